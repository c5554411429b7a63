/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _ASM_X86_UNWIND_USER_H
#define _ASM_X86_UNWIND_USER_H

#include <linux/sched.h>
#include <linux/thread_info.h>
#include <linux/uaccess.h>
#include <linux/unwind_user_types.h>

#include <asm/asm.h>
#include <asm/extable_fixup_types.h>
#include <asm/perf_event.h>
#include <asm/ptrace.h>
#include <asm/segment.h>

/*
 * A frame record is two words: the caller's frame pointer, and above it the
 * return address (psABI x86-64, 3.2.2 and figure 3.3; the i386 psABI has the
 * same with words of 4 bytes).
 *
 * The canonical frame address, the value of the stack pointer before the call
 * instruction, is right above the record.
 */
#define ARCH_UNWIND_USER_RECORD_WORDS	2

/* Without a uprobe that has been hit there is nothing to look at. */
static __always_inline bool arch_unwind_user_at_entry(struct pt_regs *regs)
{
#ifdef CONFIG_UPROBES
	return unlikely(current->utask) && is_uprobe_at_func_entry(regs);
#else
	return false;
#endif
}

void arch_unwind_user_segments(struct unwind_user_regs *dst,
			       const struct pt_regs *regs);

/**
 * arch_unwind_user_place - where a walk of the user stack starts
 * @dst:	what is set is ip, sp and fp, and at_entry
 * @regs:	task_pt_regs() of the current task, or of another one, for which at_entry
 *		means nothing
 *
 * Enough to tell whether two walks start from the same.
 *
 * Context: Any, NMI included.
 */
static __always_inline void
arch_unwind_user_place(struct unwind_user_regs *dst, const struct pt_regs *regs)
{
	dst->ip = regs->ip;
	dst->sp = regs->sp;
	dst->fp = regs->bp;
	dst->at_entry = arch_unwind_user_at_entry((struct pt_regs *)regs);
}

/**
 * arch_unwind_user_regs - note what a walk of current's user stack takes
 * @dst:	filled in
 * @regs:	task_pt_regs(current)
 *
 * @dst->word is 0 for a stack that cannot be walked: vm86 mode, registers that
 * are not of user mode, 32-bit code in a kernel without it, or with segments that
 * arch_unwind_user_segments() cannot tell.
 *
 * Context: Any, NMI included.
 */
static __always_inline void
arch_unwind_user_regs(struct unwind_user_regs *dst, const struct pt_regs *regs)
{
	arch_unwind_user_place(dst, regs);
	dst->cs_base = 0;
	dst->ss_base = 0;

	if (unlikely(!user_mode((struct pt_regs *)regs) ||
		     (regs->flags & X86_VM_MASK)))
		dst->word = 0;
	else if (likely(user_64bit_mode((struct pt_regs *)regs)))
		dst->word = 8;
	else if (!IS_ENABLED(CONFIG_IA32_EMULATION))
		dst->word = 0;
	else if (likely(regs->cs == __USER32_CS && regs->ss == __USER_DS))
		dst->word = 4;
	else
		arch_unwind_user_segments(dst, regs);
}

/*
 * The user access window. Every address used in it went through
 * arch_unwind_user_mask(), also when the CPU speculates, so that the window
 * needs no range check and no speculation barrier of its own.
 */
#define arch_unwind_user_begin()	__uaccess_begin()
#define arch_unwind_user_end()		__uaccess_end()

static __always_inline unsigned long arch_unwind_user_mask(unsigned long addr)
{
	return (__force unsigned long)mask_user_address((void __user *)addr);
}

/* The register that a fault clears, as struct pt_regs counts them: rAX is 0. */
#define UNWIND_CLEAR_AX		(EX_TYPE_ZERO_REG | EX_DATA_REG(0))

/**
 * arch_unwind_user_record - read a frame record inside the window
 * @fp:		its address, masked
 * @word:	size of its words, a compile-time constant
 * @next_fp:	set to the caller's frame pointer
 * @ra:		set to the return address, 0 where the record cannot be read
 */
static __always_inline void
arch_unwind_user_record(unsigned long fp, const unsigned int word,
			unsigned long *next_fp, unsigned long *ra)
{
	/*
	 * unsafe_get_user() tests an error code after each load where the
	 * compiler lacks asm goto with outputs, and two words would take twice
	 * that. Here a fault clears the return address instead, which the
	 * caller looks at anyway.
	 */
	if (word == 8)
		asm volatile("1:	movq	(%[fp]), %[next]\n"
			     "2:	movq	8(%[fp]), %[ra]\n"
			     "3:\n"
			     _ASM_EXTABLE_TYPE(1b, 3b, UNWIND_CLEAR_AX)
			     _ASM_EXTABLE_TYPE(2b, 3b, UNWIND_CLEAR_AX)
			     : [next] "=&r" (*next_fp), [ra] "=a" (*ra)
			     : [fp] "r" (fp)
			     : "memory");
	else
		asm volatile("1:	movl	(%[fp]), %k[next]\n"
			     "2:	movl	4(%[fp]), %k[ra]\n"
			     "3:\n"
			     _ASM_EXTABLE_TYPE(1b, 3b, UNWIND_CLEAR_AX)
			     _ASM_EXTABLE_TYPE(2b, 3b, UNWIND_CLEAR_AX)
			     : [next] "=&r" (*next_fp), [ra] "=a" (*ra)
			     : [fp] "r" (fp)
			     : "memory");
}

/*
 * Two marks that a kernel entry carries to the return to user space: of the walk of
 * its user stack, and of a request whose walk has to be in the same entry. To take
 * them back on each and every return must cost no instruction:
 *
 *  - With COMPAT they share thread_info::status with TS_COMPAT, which
 *    arch_exit_to_user_mode_prepare() clears whatever there is.
 *
 *  - Without, nothing is cleared there. They are flags of thread_info::flags then, of
 *    which arch_exit_work() looks at some where any is set: it clears these as well.
 *    They lead through no exit loop. What arch_exit_work() calls may set them again
 *    where it is traced: the notifiers come before they are cleared, and what loads
 *    the FPU's registers clears them once more, with TIF_NEED_FPU_LOAD. The rest is
 *    not to be traced (but see the limits in Documentation/core-api/unwind_deferred.rst).
 *
 * The mark of the walk is set in task context only, that of a request by interrupts,
 * too, but not by NMIs. Either is set by one instruction, so that it does not matter
 * whom an interrupt interrupts. Those that change other flags of status with
 * interrupts on (execve(), the making of a 32-bit task's area for uprobes) are C,
 * which compilers make one instruction of; if one did not, a mark that comes in
 * between would be lost, and with it that one stack.
 */
static __always_inline void arch_unwind_set_mark(const unsigned int status,
						 const int flag)
{
	if (IS_ENABLED(CONFIG_COMPAT))
		asm volatile("orl %[mark], %[status]"
			     : [status] "+m" (current_thread_info()->status)
			     : [mark] "i" (status));
	else
		set_thread_flag(flag);
}

static __always_inline bool
arch_unwind_has_mark(struct task_struct *task, const unsigned int status, const int flag)
{
	if (IS_ENABLED(CONFIG_COMPAT))
		return READ_ONCE(task_thread_info(task)->status) & status;
	return test_tsk_thread_flag(task, flag);
}

/* The stack of this kernel entry has been walked. */
static __always_inline void arch_unwind_entry_mark(void)
{
	arch_unwind_set_mark(TS_UNWIND, TIF_UNWIND);
}

static __always_inline bool arch_unwind_entry_marked(void)
{
	return arch_unwind_has_mark(current, TS_UNWIND, TIF_UNWIND);
}

/* Somebody has asked for it, other than by an NMI. */
static __always_inline void arch_unwind_entry_ask(void)
{
	arch_unwind_set_mark(TS_UNWIND_ASKED, TIF_UNWIND_ASKED);
}

static __always_inline bool arch_unwind_entry_asked(struct task_struct *task)
{
	return arch_unwind_has_mark(task, TS_UNWIND_ASKED, TIF_UNWIND_ASKED);
}

#endif /* _ASM_X86_UNWIND_USER_H */

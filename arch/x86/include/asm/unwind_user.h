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
 * arch_unwind_user_place - note where a walk of the user stack starts
 * @dst:	ip, sp, fp and at_entry are set
 * @regs:	the user registers of the current task
 *
 * Enough to tell whether two walks start at the same place.
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
 * arch_unwind_user_regs - note the registers for a walk of the current task's user stack
 * @dst:	filled in
 * @regs:	the user registers of the current task
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
 * The user access window. What is read in it went through arch_unwind_user_index(), so
 * that the window needs no range check and no speculation barrier of its own.
 */
#define arch_unwind_user_begin()	__uaccess_begin()
#define arch_unwind_user_end()		__uaccess_end()

/* @index, or 0 if it is above @limit, also when the CPU speculates. */
static __always_inline unsigned long
arch_unwind_user_index(unsigned long index, unsigned long limit)
{
	asm("cmpq %[limit], %[index]\n\t"
	    "cmovaq %[zero], %[index]"
	    : [index] "+r" (index)
	    : [limit] "r" (limit), [zero] "r" (0UL)
	    : "cc");
	return index;
}

/* The register that a fault clears, as struct pt_regs counts them: rAX is 0. */
#define UNWIND_CLEAR_AX		(EX_TYPE_ZERO_REG | EX_DATA_REG(0))

/**
 * arch_unwind_user_record - read a frame record inside the window
 * @fp:		its address in words; set to the caller's frame pointer, in bytes
 * @word:	size of its words, a compile-time constant
 *
 * Return: the return address, 0 where the record cannot be read.
 */
static __always_inline unsigned long
arch_unwind_user_record(unsigned long *fp, const unsigned int word)
{
	unsigned long ra;

	/*
	 * unsafe_get_user() tests an error code after each load where the
	 * compiler lacks asm goto with outputs, and two words would take twice
	 * that. Here a fault clears the return address instead, which the
	 * caller looks at anyway.
	 */
	if (word == 8)
		asm volatile("1:	movq	8(,%[fp],8), %[ra]\n"
			     "2:	movq	(,%[fp],8), %[fp]\n"
			     "3:\n"
			     _ASM_EXTABLE_TYPE(1b, 3b, UNWIND_CLEAR_AX)
			     _ASM_EXTABLE_TYPE(2b, 3b, UNWIND_CLEAR_AX)
			     : [fp] "+r" (*fp), [ra] "=&a" (ra)
			     :
			     : "memory");
	else
		asm volatile("1:	movl	4(,%[fp],4), %k[ra]\n"
			     "2:	movl	(,%[fp],4), %k[fp]\n"
			     "3:\n"
			     _ASM_EXTABLE_TYPE(1b, 3b, UNWIND_CLEAR_AX)
			     _ASM_EXTABLE_TYPE(2b, 3b, UNWIND_CLEAR_AX)
			     : [fp] "+r" (*fp), [ra] "=&a" (ra)
			     :
			     : "memory");
	return ra;
}

/*
 * The mark of a kernel entry: its user stack has been handed out (or there is none, in
 * an execve()). Every return to user space clears it. With COMPAT that costs nothing:
 * arch_exit_to_user_mode_prepare() clears TS_COMPAT with the same instruction.
 *
 * An interrupt may set the mark in the middle of a change of another flag of
 * thread_info::status. Such a change is one instruction, so neither is lost.
 */
static __always_inline void arch_unwind_entry_mark(void)
{
	asm volatile("orl %[mark], %[status]"
		     : [status] "+m" (current_thread_info()->status)
		     : [mark] "i" (TS_UNWIND));
}

static __always_inline bool arch_unwind_entry_marked(void)
{
	return READ_ONCE(current_thread_info()->status) & TS_UNWIND;
}

/* @task is new, and has not run yet. */
static inline void arch_unwind_entry_unmark(struct task_struct *task)
{
	task_thread_info(task)->status &= ~TS_UNWIND;
}

#endif /* _ASM_X86_UNWIND_USER_H */

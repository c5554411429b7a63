/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _ASM_X86_UNWIND_USER_H
#define _ASM_X86_UNWIND_USER_H

#include <linux/mm_types.h>
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

/* Only a task that has hit a uprobe has a utask. For all others there is nothing to check. */
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
 * These members are enough to compare the starts of two walks.
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
 * arch_unwind_user_code - note which kind of code the current task runs in user space
 * @dst:	word, cs_base and ss_base are set
 * @regs:	the user registers of the current task
 *
 * @dst->word is 0 for a stack that cannot be walked: in vm86 mode, for registers that are
 * not of user mode, for 32-bit code in a kernel without IA32_EMULATION, and if
 * arch_unwind_user_segments() does not know the segments.
 *
 * Context: Any, NMI included.
 */
static __always_inline void
arch_unwind_user_code(struct unwind_user_regs *dst, const struct pt_regs *regs)
{
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

/**
 * arch_unwind_user_regs - note the registers for a walk of the current task's user stack
 * @dst:	filled in
 * @regs:	the user registers of the current task
 *
 * Context: Any, NMI included.
 */
static __always_inline void
arch_unwind_user_regs(struct unwind_user_regs *dst, const struct pt_regs *regs)
{
	arch_unwind_user_place(dst, regs);
	arch_unwind_user_code(dst, regs);
}

/*
 * The user access window. Every address that is read in it comes from
 * arch_unwind_user_index(), so the window needs no range check and no speculation barrier
 * of its own.
 */
#define arch_unwind_user_begin()	__uaccess_begin()
#define arch_unwind_user_end()		__uaccess_end()

/**
 * arch_unwind_user_index - bound an index, also when the CPU speculates
 * @index:	an address in words
 * @limit:	the largest address that is allowed
 *
 * Return: @index, or 0 if it is above @limit.
 */
static __always_inline unsigned long
arch_unwind_user_index(unsigned long index, unsigned long limit)
{
	asm("cmpq %[limit], %[index]\n\t"
	    "cmovaq %[zero], %[index]"
	    : [index] "+r" (index)
	    : [limit] "rm" (limit), [zero] "r" (0UL)
	    : "cc");
	return index;
}

/* The register that a fault clears, as struct pt_regs counts them: rAX is 0. */
#define UNWIND_CLEAR_AX		(EX_TYPE_ZERO_REG | EX_DATA_REG(0))

/**
 * arch_unwind_user_record - read a frame record inside the window
 * @fp:		address of the record, in words. Set to the caller's frame pointer, in
 *		bytes.
 * @word:	size of a stack word in bytes, a compile-time constant
 *
 * Return: the return address, 0 if the record cannot be read.
 */
static __always_inline unsigned long
arch_unwind_user_record(unsigned long *fp, const unsigned int word)
{
	unsigned long ra;

	/*
	 * unsafe_get_user() tests an error code after each load if the compiler has
	 * no asm goto with outputs. Here a fault clears the return address instead,
	 * which the caller tests anyway.
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

/**
 * arch_unwind_user_word - read a word of a 64-bit stack inside the window
 * @slot:	its address, in words
 *
 * Return: the word, 0 if it cannot be read.
 */
static __always_inline unsigned long arch_unwind_user_word(unsigned long slot)
{
	unsigned long word;

	asm volatile("1:	movq	(,%[slot],8), %[word]\n"
		     "2:\n"
		     _ASM_EXTABLE_TYPE_REG(1b, 2b, EX_TYPE_ZERO_REG, %[word])
		     : [word] "=r" (word)
		     : [slot] "r" (slot)
		     : "memory");
	return word;
}

/**
 * arch_unwind_user_frame - read two words of a 64-bit stack inside the window
 * @slot:	where the return address is, in words
 * @fp:		where the caller's frame pointer is, in words. Set to the frame pointer,
 *		in bytes.
 *
 * Return: the return address, 0 if one of the words cannot be read.
 */
static __always_inline unsigned long
arch_unwind_user_frame(unsigned long slot, unsigned long *fp)
{
	unsigned long ra;

	asm volatile("1:	movq	(,%[slot],8), %[ra]\n"
		     "2:	movq	(,%[fp],8), %[fp]\n"
		     "3:\n"
		     _ASM_EXTABLE_TYPE_REG(1b, 3b, EX_TYPE_ZERO_REG, %[ra])
		     _ASM_EXTABLE_TYPE_REG(2b, 3b, EX_TYPE_ZERO_REG, %[ra])
		     : [fp] "+r" (*fp), [ra] "=&r" (ra)
		     : [slot] "r" (slot)
		     : "memory");
	return ra;
}

bool arch_unwind_user_register(const struct unwind_user_regs *from, unsigned int nr,
			       unsigned long *value);
unsigned int arch_unwind_sigframe(unsigned int nr);

/**
 * arch_unwind_vdso - which image of the vDSO is mapped at an address
 * @mm:		whose memory
 * @start:	where the mapping starts
 *
 * Context: Any.
 * Return: a pointer that names the image, NULL if @start is not where the vDSO is.
 */
static inline const void *arch_unwind_vdso(const struct mm_struct *mm, unsigned long start)
{
	if (!start || start != (unsigned long)READ_ONCE(mm->context.vdso))
		return NULL;
	return READ_ONCE(mm->context.vdso_image);
}

/**
 * arch_unwind_entry_mark - note that this kernel entry has handed out its user stack
 *
 * In an execve() the mark says that there is no user stack. Every return to user space
 * clears the mark. With COMPAT that costs nothing: arch_exit_to_user_mode_prepare() clears
 * TS_COMPAT with the same instruction.
 *
 * An interrupt may set the mark while the task changes another flag of
 * thread_info::status. The task does so with one instruction, so no change is lost.
 *
 * Context: Any but NMI.
 */
static __always_inline void arch_unwind_entry_mark(void)
{
	asm volatile("orl %[mark], %[status]"
		     : [status] "+m" (current_thread_info()->status)
		     : [mark] "i" (TS_UNWIND));
}

/* Is the mark of this kernel entry set? */
static __always_inline bool arch_unwind_entry_marked(void)
{
	return READ_ONCE(current_thread_info()->status) & TS_UNWIND;
}

/* Clear the mark of @task. It is a new copy of its parent, and has not run yet. */
static inline void arch_unwind_entry_unmark(struct task_struct *task)
{
	task_thread_info(task)->status &= ~TS_UNWIND;
}

#endif /* _ASM_X86_UNWIND_USER_H */

/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _KERNEL_UNWIND_USER_H
#define _KERNEL_UNWIND_USER_H

#include <linux/bitops.h>
#include <linux/jump_label.h>
#include <linux/limits.h>
#include <linux/processor.h>
#include <linux/sched.h>
#include <linux/sizes.h>
#include <linux/unwind_user_types.h>

#include <asm/unwind_user.h>

/**
 * struct unwind_user_state - the state of a walk
 * @fp:		frame pointer: address of the next frame record, if there is one
 * @cfa:	the stack below this address belongs to frames that were walked
 * @text:	size of the addresses that may hold code, from FIRST_TEXT on
 * @cs_base:	added to 32-bit code addresses
 * @ss_base:	added to 32-bit stack addresses
 * @absent:	address of the word that could not be read, 0 if there is none
 * @word:	size of a stack word
 */
struct unwind_user_state {
	unsigned long	fp;
	unsigned long	cfa;
	unsigned long	text;
	u32		cs_base;
	u32		ss_base;
	unsigned long	absent;
	unsigned int	word;
};

/* How many pages are brought for one walk. */
#define UNWIND_USER_MAX_PAGES	16

/* The page of NULL pointers holds no code. */
#define FIRST_TEXT	PAGE_SIZE

/* Can @addr be a return address: is it in user space, above the first page? */
static __always_inline bool
user_text_address(const struct unwind_user_state *state, unsigned long addr)
{
	return addr - FIRST_TEXT < state->text;
}

/* The linear address of @ra, which is relative to the code segment. 0 ends a chain, and stays. */
static __always_inline unsigned long
user_return_address(const struct unwind_user_state *state, u32 ra)
{
	return ra ? (u32)(ra + state->cs_base) : 0;
}

/* The first entry of a trace: the instruction at which the task left user space. */
static __always_inline unsigned long
user_first_entry(const struct unwind_user_state *state,
		 const struct unwind_user_regs *regs)
{
	return likely(regs->word == 8) ? regs->ip : (u32)(regs->ip + state->cs_base);
}

/* Begin a walk at @regs. Returns false if this stack cannot be walked. */
static __always_inline bool
unwind_user_start(struct unwind_user_state *state,
		  const struct unwind_user_regs *regs)
{
	state->fp = regs->fp;
	state->cfa = regs->sp;
	state->cs_base = regs->cs_base;
	state->ss_base = regs->ss_base;
	state->absent = 0;
	state->word = regs->word;
	state->text = (regs->word == 8 ? TASK_SIZE_MAX : SZ_4G) - FIRST_TEXT;

	if (unlikely(regs->word == 4)) {
		state->fp = (u32)(regs->fp + state->ss_base);
		state->cfa = (u32)(regs->sp + state->ss_base);
	}
	return regs->word;
}

/*
 * A uretprobe replaces a return address by the address of its trampoline, and keeps the
 * place of that return address in ri->stack. A walk has found the trampoline in @slot. Is
 * @stack, the place of one uretprobe, a better match than @best, the place of another?
 *
 * The match is the nearest place at @slot or above. It may be above, because gcc copies the
 * return address downwards in a function that aligns its stack. The order of the list does
 * not help: functions that longjmp() has left stay in it until the next probe is hit, and a
 * function that was called by a jump has the same place as its caller.
 *
 * If the function has @returned and the trampoline has not trapped yet, @slot is the
 * stack pointer, and the match is the nearest place below it.
 *
 * Start with a @best of ULONG_MAX, or of 0 with @returned.
 */
static inline bool unwind_user_is_slot(unsigned long slot, bool returned,
				       unsigned long stack, unsigned long best)
{
	if (returned)
		return stack < slot && stack > best;
	return stack >= slot && stack < best;
}

/* Read a word outside of the window. False: it cannot be read without a fault. */
bool unwind_user_word(struct unwind_user_state *state, unsigned long addr, u64 *word);

#ifdef CONFIG_UPROBES
unsigned long unwind_user_trampoline(void);
unsigned long unwind_user_real_return(unsigned long trampoline, unsigned long slot,
				      bool returned);
#else
static inline unsigned long unwind_user_trampoline(void)
{
	return 0;
}

static inline unsigned long
unwind_user_real_return(unsigned long trampoline, unsigned long slot, bool returned)
{
	return trampoline;
}
#endif

#ifdef CONFIG_UNWIND_TABLES
DECLARE_STATIC_KEY_FALSE(unwind_tables_key);

bool unwind_row_cache_init(void);
unsigned int unwind_table_walk(struct unwind_user_state *state,
			       const struct unwind_user_regs *regs,
			       unsigned long *entries, unsigned int max);

/*
 * A stack that is lower is not walked by tables, in words. The place of a frame pointer is at
 * most so much below that of a return address, so it is never below 0, where the kernel is.
 * (A CPU that speculates may read there. The last 2 MiB of the address space are a hole.) Nor
 * is it in the kernel at the other end, which is much further away.
 */
#define UNWIND_MIN_SP	(-S16_MIN + 1)

/*
 * Is there a table that this walk may need? A stack pointer that is no place in a stack is of
 * no use to a table. Frame pointers may be right all the same.
 */
static __always_inline bool unwind_by_tables(const struct unwind_user_regs *regs)
{
	return static_branch_unlikely(&unwind_tables_key) && regs->word == 8 && current->mm &&
	       ror64(regs->sp, 3) - UNWIND_MIN_SP < TASK_SIZE_MAX / 8;
}
#else
static __always_inline bool unwind_by_tables(const struct unwind_user_regs *regs)
{
	return false;
}

static inline unsigned int
unwind_table_walk(struct unwind_user_state *state, const struct unwind_user_regs *regs,
		  unsigned long *entries, unsigned int max)
{
	return 0;
}
#endif

#endif /* _KERNEL_UNWIND_USER_H */

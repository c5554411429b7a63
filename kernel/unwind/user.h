/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _KERNEL_UNWIND_USER_H
#define _KERNEL_UNWIND_USER_H

#include <linux/processor.h>
#include <linux/sizes.h>
#include <linux/unwind_user_types.h>

#include <asm/unwind_user.h>

/**
 * struct unwind_user_state - where a walk has come to
 * @fp:		frame pointer: address of the next frame record, if there is one
 * @cfa:	everything below belongs to frames already walked
 * @text:	size of what may hold code, from FIRST_TEXT on
 * @cs_base:	added to 32-bit code addresses
 * @ss_base:	added to 32-bit stack addresses
 * @absent:	address of the word that could not be read, 0 if all could be
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

/* A return address is in user space. */
static __always_inline bool
user_text_address(const struct unwind_user_state *state, unsigned long addr)
{
	return addr - FIRST_TEXT < state->text;
}

/* A 32-bit return address as it is read; 0 ends a chain and is none of a segment. */
static __always_inline unsigned long
user_return_address(const struct unwind_user_state *state, u32 ra)
{
	return ra ? (u32)(ra + state->cs_base) : 0;
}

/* The entry of a trace for where user space was left. */
static __always_inline unsigned long
user_first_entry(const struct unwind_user_state *state,
		 const struct unwind_user_regs *regs)
{
	return likely(regs->word == 8) ? regs->ip : (u32)(regs->ip + state->cs_base);
}

/* Begin a walk at @regs. False: that is no stack that can be walked. */
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
 * A uretprobe has put the address of its trampoline where the return address was, at
 * ri->stack. Is @stack more likely than @best to be that place, for a trampoline that
 * was found in @slot? A frame that is aligned (by gcc, with a register for its
 * arguments) has its return address once more below that place, hence the next one
 * above. Not by their order: one that longjmp() has left behind is there until the
 * next probe is hit, and what was called by a jump has the place of what jumped.
 *
 * Where the function has @returned and the trampoline has not trapped yet, it is
 * the next one below @slot, the stack pointer. @best is ULONG_MAX at first, and 0
 * where it has @returned.
 */
static inline bool unwind_user_is_slot(unsigned long slot, bool returned,
				       unsigned long stack, unsigned long best)
{
	if (returned)
		return stack < slot && stack > best;
	return stack >= slot && stack < best;
}

#endif /* _KERNEL_UNWIND_USER_H */

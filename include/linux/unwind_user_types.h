/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _LINUX_UNWIND_USER_TYPES_H
#define _LINUX_UNWIND_USER_TYPES_H

#include <linux/types.h>

/* The most entries that one walk of a user stack returns. */
#define UNWIND_USER_MAX_ENTRIES		8192U

/* What a client gets that does not ask for another number. */
#define UNWIND_USER_DEFAULT_ENTRIES	512U

/**
 * struct unwind_stacktrace - a user stack, innermost frame first
 * @nr:		number of valid words in @entries
 * @entries:	user addresses: where user space was left, then the return
 *		addresses; a 32-bit task's are zero-extended
 */
struct unwind_stacktrace {
	unsigned int	nr;
	unsigned long	*entries;
};

/**
 * struct unwind_user_regs - the user registers that a walk starts from
 * @ip:		instruction pointer
 * @sp:		stack pointer
 * @fp:		frame pointer
 * @cs_base:	where the code segment starts; 0 where there are no segments
 * @ss_base:	where the stack segment does
 * @word:	size of a stack word in bytes, 8 or 4; 0 where the stack is of
 *		a kind that nobody knows how to walk
 * @at_entry:	@ip is the first instruction of a function, so the return
 *		address is still on top of the stack
 *
 * Taken when a stack is asked for rather than when it is walked: signal
 * delivery, uprobes and ptrace may move the registers in between, and system calls
 * and ptrace the segments, but leave alone what lies above @sp.
 */
struct unwind_user_regs {
	unsigned long	ip;
	unsigned long	sp;
	unsigned long	fp;
	u32		cs_base;
	u32		ss_base;
	u8		word;
	bool		at_entry;
};

#endif /* _LINUX_UNWIND_USER_TYPES_H */

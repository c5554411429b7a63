/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _LINUX_UNWIND_USER_TYPES_H
#define _LINUX_UNWIND_USER_TYPES_H

#include <linux/types.h>

/* The maximum number of entries that one walk of a user stack returns. */
#define UNWIND_USER_MAX_ENTRIES		8192U

/**
 * struct unwind_stacktrace - a user stack, innermost frame first
 * @nr:		number of valid words in @entries
 * @entries:	user addresses: first the address where the task left user space, then the
 *		return addresses. Addresses of a 32-bit task are zero-extended.
 * @absent:	address of the word that ended the walk because it could not be read
 *		without a fault; 0 if the walk ended for another reason
 * @again:	the stack ends at a page that the task is faulting in. The callbacks run
 *		again when the page is there, or when it cannot be brought.
 */
struct unwind_stacktrace {
	unsigned int	nr;
	unsigned long	*entries;
	unsigned long	absent;
	bool		again;
};

/**
 * struct unwind_user_regs - the user registers that a walk starts from
 * @ip:		instruction pointer
 * @sp:		stack pointer
 * @fp:		frame pointer
 * @cs_base:	base of the code segment; 0 without segments
 * @ss_base:	base of the stack segment
 * @word:	size of a stack word in bytes, 8 or 4; 0 for a stack that cannot be walked
 * @at_entry:	@ip is the first instruction of a function, so the return
 *		address is still on top of the stack
 *
 * The registers are noted when the stack is requested, not when it is walked. In between,
 * signal delivery, uprobes and ptrace may change the registers, and system calls and
 * ptrace may change the segments. The memory above @sp does not change.
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

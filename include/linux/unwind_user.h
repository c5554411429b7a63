/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _LINUX_UNWIND_USER_H
#define _LINUX_UNWIND_USER_H

#include <linux/unwind_user_types.h>

void unwind_user_regs(struct unwind_stacktrace *trace,
		      const struct unwind_user_regs *regs, unsigned int max);
bool unwind_user_bring(unsigned long addr);
int unwind_user(struct unwind_stacktrace *trace, unsigned int max);

#endif /* _LINUX_UNWIND_USER_H */

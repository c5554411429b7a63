/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _LINUX_UNWIND_DEFERRED_TYPES_H
#define _LINUX_UNWIND_DEFERRED_TYPES_H

#include <linux/types.h>
#include <linux/unwind_user_types.h>

/**
 * struct unwind_task_info - a task's deferred user stack
 * @state:	pending clients, flags and the cookie, see kernel/unwind/deferred.c
 * @regs:	the user registers where the walk of the stack starts
 * @work:	queued on the task's task_work list while UNWIND_QUEUED is set
 * @owed:	the clients that have got a short stack. They get the stack once more when the
 *		task has brought the page.
 *
 * Only the task writes to it, and the interrupts and NMIs on its CPU while it runs.
 */
struct unwind_task_info {
	u64			state;
	struct unwind_user_regs	regs;
	struct callback_head	work;
	u64			owed;
};

#endif /* _LINUX_UNWIND_DEFERRED_TYPES_H */

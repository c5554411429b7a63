/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _LINUX_UNWIND_DEFERRED_TYPES_H
#define _LINUX_UNWIND_DEFERRED_TYPES_H

#include <linux/types.h>
#include <linux/unwind_user_types.h>

/**
 * struct unwind_task_info - a task's deferred user stack
 * @state:	who asked and who still waits, see kernel/unwind/deferred.c
 * @cookie:	names the stack that @state is about
 * @regs:	the user registers at the first request
 * @work:	queued on the task's task_work list while somebody waits
 * @want:	the most entries that any of the requests wants
 * @cpu:	the CPU whose spare buffer may still hold the last walk
 * @exec:	how far an execve() has come: enum unwind_exec of kernel/unwind/deferred.h
 *
 * Written by the task itself only: by its own context and by the interrupts and
 * NMIs that nest in it. Others read it while the task is kept from running, see
 * kernel/unwind/remote.c; @state and @cookie, to see whether it is worth that, at any
 * time.
 */
struct unwind_task_info {
	u64			state;
	u64			cookie;
	struct unwind_user_regs	regs;
	struct callback_head	work;
	u32			want;
	u32			cpu;
	u8			exec;
};

#endif /* _LINUX_UNWIND_DEFERRED_TYPES_H */

/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _KERNEL_UNWIND_DEFERRED_H
#define _KERNEL_UNWIND_DEFERRED_H

#include <linux/unwind_deferred.h>

#include <kunit/visibility.h>

/* A bit of unwind_task_info::state, see deferred.c. */
#define STATE_NMI	BIT_ULL(33)

/* How far an execve() of the task has come; it ends with the entry. */
enum unwind_exec {
	EXEC_NONE,
	EXEC_COMMITTED,		/* the old image is about to go */
	EXEC_NO_STACK,		/* the new one has not run yet */
	EXEC_HELD,		/* and events are about to go */
};

/* unwind_request() set the first bit of somebody who waits. */
#define UNWIND_QUEUE	2

bool unwind_waits(u64 state, const struct unwind_work *work, unsigned int bit);
bool unwind_late(u64 state, const struct unwind_user_regs *then,
		 const struct unwind_user_regs *now);

#if IS_ENABLED(CONFIG_UNWIND_KUNIT_TEST)
int unwind_request(struct unwind_task_info *info, unsigned int bit,
		   const struct unwind_user_regs *regs, bool nmi, u64 *cookie);
u64 unwind_take(struct unwind_task_info *info, bool late,
		struct unwind_user_regs *regs, u64 *cookie);
#endif

#if IS_ENABLED(CONFIG_KUNIT)
void unwind_deferred_run(struct unwind_task_info *info,
			 const struct unwind_user_regs *before);
#endif

#if IS_ENABLED(CONFIG_UNWIND_KUNIT_TEST)

void unwind_cookie_preset(unsigned int cpu, u32 count);
void unwind_count_preset(u32 count);

/*
 * Does lockdep know that this is a callback? It takes every place for one when it
 * has been turned off.
 */
bool unwind_callback_known(void);

/*
 * Called between any two steps of a request, so that a test can nest another one
 * at each of them.
 */
typedef void (*unwind_test_hook_t)(struct unwind_task_info *info);
extern unwind_test_hook_t unwind_test_hook;

static __always_inline void unwind_test_point(struct unwind_task_info *info)
{
	unwind_test_hook_t hook = READ_ONCE(unwind_test_hook);

	if (unlikely(hook))
		hook(info);
}

#else

static __always_inline void unwind_test_point(struct unwind_task_info *info) { }

#endif /* CONFIG_UNWIND_KUNIT_TEST */

#endif /* _KERNEL_UNWIND_DEFERRED_H */

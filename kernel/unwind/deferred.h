/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _KERNEL_UNWIND_DEFERRED_H
#define _KERNEL_UNWIND_DEFERRED_H

#include <linux/unwind_deferred.h>

#include <kunit/visibility.h>

#if IS_ENABLED(CONFIG_KUNIT)
void unwind_deferred_task_work(struct callback_head *head);
#endif

#if IS_ENABLED(CONFIG_UNWIND_KUNIT_TEST)

void unwind_cookie_preset(unsigned int cpu, u32 count);
unsigned int unwind_buffers_max(void);

/*
 * Called between any two steps of a request or a hand-out. A test can make a request there,
 * as an NMI would.
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

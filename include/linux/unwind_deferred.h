/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _LINUX_UNWIND_DEFERRED_H
#define _LINUX_UNWIND_DEFERRED_H

#include <linux/bits.h>
#include <linux/irqflags.h>
#include <linux/jump_label.h>
#include <linux/sched.h>
#include <linux/unwind_deferred_types.h>
#include <linux/unwind_user_types.h>

struct unwind_work;

/**
 * typedef unwind_callback_t - gets a user stack that the client requested
 * @work:	the client
 * @trace:	the stack, valid until the callback returns. @trace->nr is 0 if the stack
 *		is missing. If @trace->again is set, the callback will run again with the
 *		same @cookie. That stack is longer, unless a page could not be brought.
 * @cookie:	the cookie that the requests got
 *
 * Context: The current task made the request, on this CPU, or on another one if the task
 * has slept in a page fault of its walk. Interrupts are off, and rq->lock and perf's
 * ctx->lock may be held. So the callback takes only locks that may be taken under rq->lock,
 * and does not sleep, allocate, warn or print.
 */
typedef void (*unwind_callback_t)(struct unwind_work *work,
				  const struct unwind_stacktrace *trace, u64 cookie);

/**
 * struct unwind_work - a client of deferred unwinding
 * @func:	called with each stack that the client requested
 * @max:	the maximum number of entries that the client wants
 * @bit:	the client's bit in unwind_task_info::state, -1 if it is not registered
 *
 * unwind_deferred_init() sets all members.
 */
struct unwind_work {
	unwind_callback_t	func;
	unsigned int		max;
	int			bit;
};

/* unwind_task_info::state, see kernel/unwind/deferred.c */
#define UNWIND_CLIENTS		8
#define UNWIND_PENDING		GENMASK_ULL(UNWIND_CLIENTS - 1, 0)
#define UNWIND_QUEUED		BIT_ULL(8)
#define UNWIND_UNPROVEN		BIT_ULL(9)
#define UNWIND_FAULT		BIT_ULL(10)
#define UNWIND_COOKIE_SHIFT	16

#ifdef CONFIG_UNWIND_DEFERRED

DECLARE_STATIC_KEY_FALSE(unwind_deferred_key);

int unwind_deferred_init(struct unwind_work *work, unwind_callback_t func,
			 unsigned int max);
void unwind_deferred_cancel(struct unwind_work *work);
int unwind_deferred_request_irqsoff(struct unwind_work *work, bool irqs_on,
				    u64 *cookie);
bool unwind_deferred_in_exec(void);
bool unwind_deferred_requested(const struct unwind_work *work, u64 *cookie);
void unwind_deferred_task_init(struct task_struct *task);
void unwind_deferred_exec(void);
void unwind_deferred_confirm(void);
void __unwind_deferred_flush(void);

/**
 * unwind_deferred_request - request the current task's user stack
 * @work:	the client
 * @cookie:	set to the cookie of the stack
 *
 * Context: Any, NMI included.
 * Return: the value of unwind_deferred_request_irqsoff().
 */
static inline int unwind_deferred_request(struct unwind_work *work, u64 *cookie)
{
	unsigned long flags;
	int ret;

	local_irq_save(flags);
	ret = unwind_deferred_request_irqsoff(work, !irqs_disabled_flags(flags), cookie);
	local_irq_restore(flags);
	return ret;
}

static __always_inline bool unwind_deferred_pending(const struct task_struct *task)
{
	return static_branch_unlikely(&unwind_deferred_key) &&
	       unlikely(READ_ONCE(task->unwind_info.state) & UNWIND_PENDING);
}

/**
 * unwind_deferred_flush - hand out the current task's pending user stack now
 *
 * Call this before the task loses its stack, or before a client loses the place where it
 * stores stacks. The walk ends at a page that is not present.
 *
 * Context: Any but NMI and the window of the context switch; the task's mm is loaded.
 */
static inline void unwind_deferred_flush(void)
{
	if (unwind_deferred_pending(current))
		__unwind_deferred_flush();
}

/**
 * unwind_deferred_sched_out - hand out the pending user stack of a task that leaves its CPU
 * @prev:	the current task
 *
 * Context: prepare_task_switch(): rq->lock held, interrupts off. The task's mm, its perf
 * events and its cgroup are still in place.
 */
static __always_inline void unwind_deferred_sched_out(struct task_struct *prev)
{
	if (unwind_deferred_pending(prev))
		__unwind_deferred_flush();
}

#else /* !CONFIG_UNWIND_DEFERRED */

static inline void unwind_deferred_task_init(struct task_struct *task) { }
static inline void unwind_deferred_exec(void) { }
static inline void unwind_deferred_confirm(void) { }
static inline void unwind_deferred_flush(void) { }
static inline void unwind_deferred_sched_out(struct task_struct *prev) { }

#endif /* CONFIG_UNWIND_DEFERRED */

#endif /* _LINUX_UNWIND_DEFERRED_H */

/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _LINUX_UNWIND_DEFERRED_H
#define _LINUX_UNWIND_DEFERRED_H

#include <linux/sched.h>
#include <linux/unwind_deferred_types.h>
#include <linux/unwind_user_types.h>

struct unwind_work;

/**
 * typedef unwind_callback_t - what a client does with a user stack
 * @work:	the client
 * @trace:	the stack; valid until the callback returns; @trace->nr is 0
 *		where there is none to be had. All clients get the same entries,
 *		so they are not to be changed.
 * @cookie:	the cookie that the requests got
 *
 * Context: Task context of the task whose stack it is; may sleep.
 * unwind_deferred_cancel(), of any client, waits for it, and is not to be called
 * from it.
 */
typedef void (*unwind_callback_t)(struct unwind_work *work,
				  struct unwind_stacktrace *trace, u64 cookie);

/**
 * struct unwind_work - a client of deferred unwinding
 * @func:	called with each stack that the client asked for
 * @max:	the most entries the client wants of a stack
 * @count:	the number of its registration
 * @bit:	the client's number, -1 where it is not registered
 *
 * All set by unwind_deferred_init().
 */
struct unwind_work {
	unwind_callback_t	func;
	unsigned int		max;
	u32			count;
	int			bit;
};

/* The low half of unwind_task_info::state: clients that asked, that wait. */
#define UNWIND_CLIENTS		16
#define UNWIND_ASKED(bit)	(1ULL << (bit))
#define UNWIND_WAITS(bit)	(1ULL << (UNWIND_CLIENTS + (bit)))
#define UNWIND_ASKED_MASK	GENMASK_ULL(UNWIND_CLIENTS - 1, 0)
#define UNWIND_WAITS_MASK	(UNWIND_ASKED_MASK << UNWIND_CLIENTS)

#ifdef CONFIG_UNWIND_DEFERRED

int unwind_deferred_init(struct unwind_work *work, unwind_callback_t func,
			 unsigned int max);
int unwind_deferred_request_max(struct unwind_work *work, unsigned int max,
				u64 *cookie);
void unwind_deferred_cancel(struct unwind_work *work);
bool unwind_deferred_waits(struct unwind_work *work, struct task_struct *task);
int unwind_deferred_remote(struct unwind_work *work, struct task_struct *task,
			   struct unwind_stacktrace *trace, unsigned int max,
			   bool interrupt, u64 *cookie);

void unwind_deferred_task_init(struct task_struct *task);
void unwind_deferred_exec(void);
void unwind_deferred_exec_mmap(void);
void unwind_deferred_exec_hold(void);
void unwind_deferred_exec_release(void);
bool unwind_deferred_between_images(void);
void __unwind_deferred_flush(const struct unwind_user_regs *before);
void unwind_deferred_before(struct unwind_user_regs *before, unsigned long ip);

/* Part of unwind_deferred_flush() and its companion: call those. */
static __always_inline bool unwind_deferred_pending(void)
{
	return READ_ONCE(current->unwind_info.state) & UNWIND_WAITS_MASK;
}

/**
 * unwind_deferred_still_waits - is the stack of a request that returned 1 to come?
 * @work:	who asked
 *
 * As unwind_deferred_waits() for the current task, at the cost of a test: the request
 * has found that the client itself has asked, so what its number says of the state is
 * not left by an earlier owner.
 *
 * Context: Any, behind unwind_deferred_request() in the same one, preemption off.
 * Return: true for a stack that is to be handed out, false for one whose walk for that
 * has begun, or where the client is being cancelled.
 */
static __always_inline bool
unwind_deferred_still_waits(const struct unwind_work *work)
{
	int bit = READ_ONCE(work->bit);

	return bit >= 0 &&
	       (READ_ONCE(current->unwind_info.state) & UNWIND_WAITS(bit));
}

/**
 * unwind_deferred_flush - hand out the current task's user stack now
 *
 * For the places where a task stops being able to do it on its way back to
 * user space, and around those where the kernel changes the user registers of a
 * running entry: signal delivery, rt_sigreturn, a uprobe, a tracer. Before such a
 * change it hands out what was asked for so far, and after it what was asked for
 * meanwhile. Also before a system call that maps something in place of an existing
 * mapping: the stack comes before perf's record of the new one.
 *
 * User memory is paged in, unless the task is dying in a way that nothing could
 * end the wait for it any more: then it counts as not readable.
 *
 * Context: Task context, may sleep; user memory must still be there. Not from a
 * task_work: a run of task_work takes the whole list off first, so that this
 * could not take the work from it, and the next request would queue it twice.
 */
static inline void unwind_deferred_flush(void)
{
	if (unlikely(unwind_deferred_pending()))
		__unwind_deferred_flush(NULL);
}

/**
 * unwind_deferred_flush_changed - the same, after a change of the user registers
 * @before:	as they were, from unwind_deferred_before()
 *
 * An NMI in between that still found those gets their stack. Without @before it would
 * look like one of an earlier entry, whose stack is gone.
 *
 * Context: Task context, may sleep, in the same entry as unwind_deferred_before().
 */
static inline void
unwind_deferred_flush_changed(const struct unwind_user_regs *before)
{
	if (unlikely(unwind_deferred_pending()))
		__unwind_deferred_flush(before);
}

#else /* !CONFIG_UNWIND_DEFERRED */

static inline int
unwind_deferred_init(struct unwind_work *work, unwind_callback_t func,
		     unsigned int max)
{
	return -EOPNOTSUPP;
}

static inline int
unwind_deferred_request_max(struct unwind_work *work, unsigned int max,
			    u64 *cookie)
{
	return -EOPNOTSUPP;
}

static inline void unwind_deferred_cancel(struct unwind_work *work) { }
static inline void unwind_deferred_task_init(struct task_struct *task) { }
static inline void unwind_deferred_exec(void) { }
static inline void unwind_deferred_exec_mmap(void) { }
static inline void unwind_deferred_exec_hold(void) { }
static inline bool unwind_deferred_between_images(void) { return false; }
static inline void unwind_deferred_exec_release(void) { }
static inline void unwind_deferred_flush(void) { }
static inline void
unwind_deferred_before(struct unwind_user_regs *before, unsigned long ip) { }
static inline void
unwind_deferred_flush_changed(const struct unwind_user_regs *before) { }

#endif /* CONFIG_UNWIND_DEFERRED */

/**
 * unwind_deferred_request - ask for the current task's user stack
 * @work:	who asks
 * @cookie:	set to the name of the stack
 *
 * As unwind_deferred_request_max(), for as much of the stack as the client said
 * when it registered.
 *
 * Context: Any, NMI included.
 * Return: as unwind_deferred_request_max().
 */
static inline int unwind_deferred_request(struct unwind_work *work, u64 *cookie)
{
	return unwind_deferred_request_max(work, work->max, cookie);
}

#endif /* _LINUX_UNWIND_DEFERRED_H */

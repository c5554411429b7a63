/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A task that requests its user stack.
 *
 * The KUnit thread plays this task. It has an mm with a stack that is made here, user
 * registers, and the state of its own struct task_struct. It is a user task only while it
 * makes a request, with interrupts off. It does not return to user space, so the test runs
 * the work and clears the mark. If it is preempted, the hook of the switch hands out the
 * pending stack.
 */
#ifndef _KERNEL_UNWIND_DEFERRED_KUNIT_H
#define _KERNEL_UNWIND_DEFERRED_KUNIT_H

#include <kunit/test-bug.h>
#include <kunit/test.h>
#include <linux/cleanup.h>
#include <linux/irqflags.h>
#include <linux/mm.h>
#include <linux/preempt.h>
#include <linux/sched.h>
#include <linux/unwind_deferred.h>

#include <asm/unwind_user.h>

#include "deferred.h"
#include "kunit.h"

#define ENTRIES		64

/**
 * struct client - a client that notes the arguments of its calls
 * @work:	the client
 * @calls:	the number of calls
 * @cookie:	of the last call
 * @trace:	of the last call
 * @entries:	a copy of the entries of @trace
 * @buffer:	the buffer that had these entries
 * @called:	runs in the callback
 */
struct client {
	struct unwind_work	work;
	unsigned int		calls;
	u64			cookie;
	struct unwind_stacktrace trace;
	unsigned long		entries[ENTRIES];
	unsigned long		*buffer;
	void			(*called)(struct client *client);
};

static inline void note_call(struct unwind_work *work,
			     const struct unwind_stacktrace *trace, u64 cookie)
{
	struct client *client = container_of(work, struct client, work);

	if (!irqs_disabled())
		kunit_fail_current_test("a callback with interrupts on");
	client->calls++;
	client->cookie = cookie;
	client->trace = *trace;
	memcpy(client->entries, trace->entries,
	       min(trace->nr, ENTRIES) * sizeof(*trace->entries));
	client->buffer = trace->entries;
	if (client->called)
		client->called(client);
	unwind_test_point(&current->unwind_info);
}

static inline void cancel_client(void *client)
{
	unwind_deferred_cancel(&((struct client *)client)->work);
}

/* Make a client, and register it unless @max is 0. The end of the test cancels it. */
static inline struct client *new_client(struct kunit *test, unsigned int max)
{
	struct client *client = kunit_kzalloc(test, sizeof(*client), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, client);
	client->work.bit = -1;
	if (max)
		KUNIT_ASSERT_EQ(test, 0,
				unwind_deferred_init(&client->work, note_call, max));
	KUNIT_ASSERT_EQ(test, 0, kunit_add_action_or_reset(test, cancel_client, client));
	return client;
}

enum context {
	TASK,
	IRQS_OFF,	/* task context, interrupts were off before */
	IRQ,
	NMI,
};

static inline int request(struct client *client, enum context context, u64 *cookie)
{
	const unsigned int level = context == IRQ ? HARDIRQ_OFFSET :
				   context == NMI ? NMI_OFFSET : 0;
	const unsigned int thread = current->flags & PF_KTHREAD;
	int ret;

	guard(irqsave)();
	current->flags &= ~PF_KTHREAD;
	__preempt_count_add(level);
	ret = unwind_deferred_request_irqsoff(&client->work, context == TASK, cookie);
	__preempt_count_sub(level);
	current->flags |= thread;
	return ret;
}

/* Make a request while no stack is pending. */
static inline u64 request_first(struct kunit *test, struct client *client,
				enum context context)
{
	u64 cookie = 0;

	KUNIT_EXPECT_EQ(test, 0, request(client, context, &cookie));
	KUNIT_EXPECT_NE(test, 0ULL, cookie);
	return cookie;
}

/* Make a request, which must return @ret and set @cookie, 0 for none. */
static inline void expect_request(struct kunit *test, struct client *client,
				  enum context context, int ret, u64 cookie)
{
	u64 got = 0;

	KUNIT_EXPECT_EQ(test, ret, request(client, context, &got));
	KUNIT_EXPECT_EQ(test, cookie, got);
}

static inline void expect_refused(struct kunit *test, struct client *client, int ret)
{
	enum context context;

	for (context = TASK; context <= NMI; context++)
		expect_request(test, client, context, ret, 0);
}

/* The addresses at which the task leaves user space. */
#define IP(place)	(START_IP + 2 * (place))

static inline void enter(unsigned int place)
{
	unwind_test_enter(IP(place), STACK + 64, STACK + 64);
}

/* Make a stack with @nr entries. */
static inline void make_stack(struct kunit *test, unsigned int nr)
{
	unwind_test_stack(test, STACK, PAGE_SIZE);
	unwind_test_ladder(test, 8, STACK + 64, nr - 1);
	enter(0);
}

static inline void expect_calls(struct kunit *test, struct client *client,
				unsigned int calls, u64 cookie, unsigned int place,
				unsigned int nr)
{
	unsigned int i;

	KUNIT_EXPECT_EQ(test, calls, client->calls);
	KUNIT_EXPECT_EQ(test, cookie, client->cookie);
	KUNIT_EXPECT_EQ(test, nr, client->trace.nr);
	for (i = 0; i < min(nr, client->trace.nr); i++)
		KUNIT_EXPECT_EQ_MSG(test, i ? TEXT(i - 1) : IP(place),
				    client->entries[i], "entry %u", i);
}

static inline bool is_pending(void)
{
	return current->unwind_info.state & UNWIND_PENDING;
}

/* Is the work on the list? Checks that the state says so, and that it is there only once. */
static inline bool is_queued(struct kunit *test)
{
	struct unwind_task_info *info = &current->unwind_info;
	bool queued = current->task_works == &info->work;

	KUNIT_EXPECT_EQ(test, queued, !!(info->state & UNWIND_QUEUED));
	if (queued)
		KUNIT_EXPECT_NULL(test, info->work.next);
	return queued;
}

/* Run the work like task_work_run(), on the way to user space. */
static inline void run_work(void)
{
	WRITE_ONCE(current->task_works, NULL);
	unwind_deferred_task_work(&current->unwind_info.work);
}

static inline void leave(void)
{
	arch_unwind_entry_unmark(current);
}

/* Forget the state of earlier entries. */
static inline void start_anew(void)
{
	leave();
	WRITE_ONCE(current->task_works, NULL);
	current->unwind_info.state = 0;
	enter(0);
}

#endif /* _KERNEL_UNWIND_DEFERRED_KUNIT_H */

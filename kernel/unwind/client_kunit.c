// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of clients that come and go, of pages that a hand-out faults in, and of the context
 * switch.
 */
#include <kunit/test.h>
#include <linux/cleanup.h>
#include <linux/cpumask.h>
#include <linux/delay.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/unwind_deferred.h>
#include <linux/workqueue.h>

#include <trace/events/sched.h>

#include "deferred_kunit.h"
#include "user.h"

static unsigned long switches(void)
{
	return current->nvcsw + current->nivcsw;
}

/* Sleep until the task was switched out. A short sleep can end without a switch. */
static void switch_out(void)
{
	unsigned long before = switches();

	do {
		usleep_range(1000, 2000);
	} while (switches() == before);
}

static void unwind_client_all_bits(struct kunit *test)
{
	struct client *clients[UNWIND_CLIENTS], *more = new_client(test, 0);
	unsigned long bits = 0;
	unsigned int i;
	int bit;

	for (i = 0; i < UNWIND_CLIENTS; i++) {
		clients[i] = new_client(test, 0);
		if (unwind_deferred_init(&clients[i]->work, note_call, ENTRIES))
			break;
		bit = clients[i]->work.bit;
		KUNIT_ASSERT_LT(test, bit, UNWIND_CLIENTS);
		KUNIT_EXPECT_FALSE(test, bits & BIT(bit));
		bits |= BIT(bit);
	}
	/* perf has one of the bits while it profiles. */
	KUNIT_EXPECT_GE(test, i, UNWIND_CLIENTS - 1);
	KUNIT_EXPECT_EQ(test, -EBUSY, unwind_deferred_init(&more->work, note_call, 1));
	KUNIT_EXPECT_EQ(test, -1, more->work.bit);
	/* This client has no bit, so its cancellation frees none. */
	unwind_deferred_cancel(&more->work);
	KUNIT_EXPECT_EQ(test, -EBUSY, unwind_deferred_init(&more->work, note_call, 1));

	/* When one client is cancelled, even twice, there is room for one client. */
	bit = clients[0]->work.bit;
	unwind_deferred_cancel(&clients[0]->work);
	KUNIT_EXPECT_EQ(test, -1, clients[0]->work.bit);
	KUNIT_EXPECT_EQ(test, 0, unwind_deferred_init(&more->work, note_call, 1));
	KUNIT_EXPECT_EQ(test, bit, more->work.bit);
	unwind_deferred_cancel(&clients[0]->work);
	KUNIT_EXPECT_EQ(test, -EBUSY,
			unwind_deferred_init(&clients[0]->work, note_call, 1));
}

/*
 * The buffers have room for the client with the largest limit, as long as it exists. The
 * hooks are off without a client.
 */
static void unwind_client_buffers(struct kunit *test)
{
	static const unsigned int bad[] = { 0, UNWIND_USER_MAX_ENTRIES + 1, UINT_MAX };
	struct client *a = new_client(test, 0), *b = new_client(test, 0);
	const int enabled = static_key_count(&unwind_deferred_key.key);
	const unsigned int before = unwind_buffers_max();
	unsigned long *first;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		KUNIT_EXPECT_EQ(test, -EINVAL,
				unwind_deferred_init(&a->work, note_call, bad[i]));
		KUNIT_EXPECT_EQ(test, -1, a->work.bit);
	}
	KUNIT_ASSERT_EQ(test, 0, unwind_deferred_init(&a->work, note_call, 4));
	KUNIT_EXPECT_EQ(test, max(before, 4U), unwind_buffers_max());
	KUNIT_ASSERT_EQ(test, 0, unwind_deferred_init(&b->work, note_call,
						      UNWIND_USER_MAX_ENTRIES));
	KUNIT_EXPECT_EQ(test, UNWIND_USER_MAX_ENTRIES, unwind_buffers_max());
	KUNIT_EXPECT_EQ(test, enabled + 2, static_key_count(&unwind_deferred_key.key));
	make_stack(test, 20);
	scoped_guard(preempt) {
		request_first(test, b, TASK);
		run_work();
		KUNIT_EXPECT_EQ(test, 20, b->trace.nr);
		/* A hand-out that interrupts the walk has another buffer. */
		first = b->buffer;
		request_first(test, b, TASK);
		__unwind_deferred_flush();
		KUNIT_EXPECT_EQ(test, UNWIND_USER_MAX_ENTRIES, abs(b->buffer - first));
	}
	unwind_deferred_cancel(&b->work);
	unwind_deferred_cancel(&a->work);
	KUNIT_EXPECT_EQ(test, before, unwind_buffers_max());
	KUNIT_EXPECT_EQ(test, enabled, static_key_count(&unwind_deferred_key.key));
}

/*
 * A client that is cancelled by another CPU
 */

/* The cancellation runs on the first CPU, and the test on the last. */
static struct going {
	struct client		*client;
	struct work_struct	cancel;
	bool			cancelled;
	bool			holding;	/* hold() has started */
	bool			gone;		/* the cancellation has taken the client's bit */
	bool			too_early;	/* it has returned while hold() was running */
} going;

static void cancel_going(struct work_struct *cancel)
{
	unwind_deferred_cancel(&going.client->work);
	WRITE_ONCE(going.cancelled, true);
}

static void begin_cancel(void)
{
	WRITE_ONCE(going.cancelled, false);
	queue_work_on(cpumask_first(cpu_online_mask), system_highpri_wq, &going.cancel);
}

static void new_going(struct kunit *test)
{
	if (num_online_cpus() < 2)
		kunit_skip(test, "needs two CPUs");
	memset(&going, 0, sizeof(going));
	going.client = new_client(test, ENTRIES);
	INIT_WORK(&going.cancel, cancel_going);
	make_stack(test, 20);
	KUNIT_ASSERT_EQ(test, 0,
			set_cpus_allowed_ptr(current,
					     cpumask_of(cpumask_last(cpu_online_mask))));
}

static void hold(void)
{
	unsigned int ms;

	going.holding = true;
	begin_cancel();
	for (ms = 0; ms < 10000 && !going.gone; ms++) {
		mdelay(1);
		going.gone = READ_ONCE(going.client->work.bit) < 0;
	}
	/* This is longer than some grace periods take if nothing delays them. */
	for (ms = 0; ms < 300 && !going.too_early; ms++) {
		mdelay(1);
		going.too_early = READ_ONCE(going.cancelled);
	}
}

static void hold_call(struct client *client)
{
	hold();
}

static void hold_request(struct unwind_task_info *info)
{
	if (info == &current->unwind_info && current->mm && !going.holding)
		hold();
}

/* Right behind the walk. Interrupts are on; preemption is off by the test and by the walk. */
static void hold_walk(struct unwind_task_info *info)
{
	if (!irqs_disabled() && (preempt_count() & PREEMPT_MASK) > 1)
		hold_request(info);
}

/* A cancellation waits for requests, walks and callbacks that are under way. */
static void unwind_client_cancel_waits(struct kunit *test)
{
	struct client *new;
	unsigned int i;
	u64 cookie;
	int bit;

	for (i = 0; i < 3; i++) {
		new_going(test);
		bit = going.client->work.bit;
		if (i == 2) {
			/* Its walk uses the buffers, which go with the last client. */
			guard(preempt)();
			request_first(test, going.client, TASK);
			WRITE_ONCE(unwind_test_hook, hold_walk);
			run_work();
			WRITE_ONCE(unwind_test_hook, NULL);
			KUNIT_EXPECT_EQ(test, 0, going.client->calls);
		} else {
			guard(irqsave)();
			if (i)
				going.client->called = hold_call;
			else
				WRITE_ONCE(unwind_test_hook, hold_request);
			KUNIT_EXPECT_EQ(test, 0, request(going.client, TASK, &cookie));
			WRITE_ONCE(unwind_test_hook, NULL);
			/* The client was cancelled before this hand-out, so it is not called. */
			__unwind_deferred_flush();
			KUNIT_EXPECT_EQ(test, i, going.client->calls);
		}
		flush_work(&going.cancel);
		KUNIT_EXPECT_TRUE(test, going.gone);
		KUNIT_EXPECT_FALSE(test, going.too_early);

		new = new_client(test, ENTRIES);
		KUNIT_EXPECT_EQ(test, bit, new->work.bit);
		unwind_deferred_cancel(&new->work);
		start_anew();
	}
}

/* A cancellation forgets pending requests, so the next owner of the bit has none. */
static void unwind_client_cancel_forgets(struct kunit *test)
{
	unsigned int tries, ms, calls;
	unsigned long before;
	struct client *new;
	int bit;

	/* Only preemptible RCU ends a grace period without a switch on this CPU. */
	if (!IS_ENABLED(CONFIG_PREEMPT_RCU))
		kunit_skip(test, "needs CONFIG_PREEMPT_RCU");
	new_going(test);
	bit = going.client->work.bit;
	/* Only a task with a higher priority can preempt this one now. */
	sched_set_fifo(current);
	for (tries = 0; tries < 20; tries++) {
		calls = going.client->calls;
		before = switches();
		request_first(test, going.client, TASK);
		begin_cancel();
		for (ms = 0; ms < 10000 && !READ_ONCE(going.cancelled); ms++)
			mdelay(1);
		if (switches() == before)
			break;
		/* The hook of the switch has handed out the stack: try again. */
		flush_work(&going.cancel);
		KUNIT_ASSERT_EQ(test, 0, unwind_deferred_init(&going.client->work,
							      note_call, ENTRIES));
	}
	KUNIT_EXPECT_FALSE(test, is_pending());
	KUNIT_EXPECT_EQ(test, calls, going.client->calls);
	sched_set_normal(current, 0);
	KUNIT_ASSERT_LT(test, tries, 20);
	flush_work(&going.cancel);

	new = new_client(test, ENTRIES);
	KUNIT_EXPECT_EQ(test, bit, new->work.bit);
	__unwind_deferred_flush();
	run_work();
	KUNIT_EXPECT_EQ(test, 0, new->calls);
}

/* Each CPU counts its own cookies, and they repeat after 2^32 - 1 of them. */
static void unwind_client_cookies(struct kunit *test)
{
	const unsigned int cpus = min(num_online_cpus(), 4U);
	struct client *a = new_client(test, 1);
	unsigned int i, j, cpu = -1;
	u64 cookies[4 * 16];

	make_stack(test, 2);
	for (i = 0; i < cpus * 16; i++) {
		if (i % 16 == 0) {
			cpu = cpumask_next(cpu, cpu_online_mask);
			KUNIT_ASSERT_EQ(test, 0,
					set_cpus_allowed_ptr(current, cpumask_of(cpu)));
			unwind_cookie_preset(cpu, -8);
		}
		start_anew();
		cookies[i] = request_first(test, a, TASK);
		/* The count 0 is skipped: on the first CPU it would be the cookie 0. */
		KUNIT_EXPECT_NE(test, 0, lower_32_bits(cookies[i]));
		for (j = 0; j < i; j++)
			KUNIT_EXPECT_NE(test, cookies[i], cookies[j]);
	}
	KUNIT_EXPECT_EQ(test, 0, (s32)lower_32_bits(cookies[i - 1]) / 16);
}

/*
 * Absent pages
 */

static struct fault {
	struct kunit		*test;
	struct client		*a, *b;		/* a has requested the stack, b may */
	u64			cookie;
	struct unwind_served	*served;	/* the pages of the stack */
} fault;

/* Run the work for a stack of @nr pages. The fault of page @fail fails. */
static void bring(struct kunit *test, unsigned int nr, unsigned int fail,
		  void (*meanwhile)(void *data))
{
	fault.test = test;
	fault.a = new_client(test, ENTRIES);
	fault.b = new_client(test, ENTRIES);
	fault.served = unwind_test_serve(test, 8, nr);
	fault.served->fail = fail;
	fault.served->meanwhile = meanwhile;
	start_anew();
	unwind_test_enter(START_IP, STACK, STACK);

	/*
	 * There must be no switch before the work. It enables interrupts after its first
	 * walk: from there on a preemption hands out what is pending.
	 */
	local_irq_disable();
	fault.cookie = request_first(test, fault.a, TASK);
	run_work();
	KUNIT_EXPECT_FALSE(test, irqs_disabled());
}

/* The task is switched out, runs, requests the stack, and is switched out again. */
static void switch_in_fault(void *data)
{
	struct kunit *test = fault.test;

	switch_out();
	expect_calls(test, fault.a, 1, fault.cookie, 0, 1);
	KUNIT_EXPECT_TRUE(test, fault.a->trace.again);
	switch_out();
	KUNIT_EXPECT_EQ(test, 1, fault.a->calls);

	expect_request(test, fault.b, IRQ, 0, fault.cookie);
	switch_out();
	expect_calls(test, fault.b, 1, fault.cookie, 0, 1);
	KUNIT_EXPECT_TRUE(test, fault.b->trace.again);
}

static void unwind_client_fault(struct kunit *test)
{
	bring(test, 4, 4, switch_in_fault);
	/* Each gets the stack again, and it is whole. */
	expect_calls(test, fault.a, 2, fault.cookie, 0, 5);
	KUNIT_EXPECT_FALSE(test, fault.a->trace.again);
	expect_calls(test, fault.b, 2, fault.cookie, 0, 5);
	KUNIT_EXPECT_FALSE(test, fault.b->trace.again);
	KUNIT_EXPECT_FALSE(test, current->unwind_info.state & UNWIND_FAULT);
	KUNIT_EXPECT_EQ(test, 4, fault.served->faults);
	run_work();
	KUNIT_EXPECT_EQ(test, 4, fault.a->calls + fault.b->calls);

	/* The stack ends at the page that failed. There may be more calls by a preemption. */
	bring(test, 4, 2, NULL);
	expect_calls(test, fault.a, fault.a->calls, fault.cookie, 0, 3);
	KUNIT_EXPECT_FALSE(test, fault.a->trace.again);
	KUNIT_EXPECT_EQ(test, 3, fault.served->faults);

	/* The stack ends after the maximum number of pages. */
	bring(test, UNWIND_USER_MAX_PAGES + 4, -1, NULL);
	expect_calls(test, fault.a, fault.a->calls, fault.cookie, 0,
		     UNWIND_USER_MAX_PAGES + 1);
	KUNIT_EXPECT_FALSE(test, fault.a->trace.again);
	KUNIT_EXPECT_EQ(test, UNWIND_USER_MAX_PAGES, fault.served->faults);
}

/* A request with other registers is refused, for the first stack is owed. */
static void move_in_fault(void *data)
{
	struct kunit *test = fault.test;

	switch_out();
	expect_calls(test, fault.a, 1, fault.cookie, 0, 1);
	unwind_test_enter(START_IP, STACK + 8, STACK);
	expect_refused(test, fault.b, -EAGAIN);
	unwind_test_enter(START_IP, STACK, STACK);
	expect_request(test, fault.b, NMI, 0, fault.cookie);
}

static void unwind_client_fault_moved(struct kunit *test)
{
	bring(test, 4, 4, move_in_fault);
	expect_calls(test, fault.a, 2, fault.cookie, 0, 5);
	KUNIT_EXPECT_FALSE(test, fault.a->trace.again);
	expect_calls(test, fault.b, fault.b->calls, fault.cookie, 0, 5);
	KUNIT_EXPECT_FALSE(test, fault.b->trace.again);
	KUNIT_EXPECT_EQ(test, 0ULL, current->unwind_info.owed);
	KUNIT_EXPECT_FALSE(test, current->unwind_info.state & UNWIND_FAULT);
}

static unsigned int walks;

/* Hand out the stack right after the second walk, which ends at the second page. */
static void flush_behind_walk(struct unwind_task_info *info)
{
	u64 cookie;

	if (info != &current->unwind_info || !current->mm || irqs_disabled() ||
	    !in_atomic() || ++walks != 2)
		return;
	guard(irqsave)();
	request(fault.b, IRQ, &cookie);
	__unwind_deferred_flush();
}

static void unwind_client_fault_between(struct kunit *test)
{
	walks = 0;
	WRITE_ONCE(unwind_test_hook, flush_behind_walk);
	bring(test, 4, 4, switch_in_fault);
	WRITE_ONCE(unwind_test_hook, NULL);
	KUNIT_EXPECT_GE(test, walks, 2);
	expect_calls(test, fault.a, fault.a->calls, fault.cookie, 0, 5);
	KUNIT_EXPECT_FALSE(test, fault.a->trace.again);
	expect_calls(test, fault.b, fault.b->calls, fault.cookie, 0, 5);
	KUNIT_EXPECT_FALSE(test, fault.b->trace.again);
}

/* The client goes, and another one gets its bit. */
static void cancel_in_fault(void *data)
{
	int bit = fault.a->work.bit;

	unwind_deferred_cancel(&fault.a->work);
	/* A preemption before the cancellation may have called it. */
	fault.a->calls = 0;
	KUNIT_EXPECT_EQ(fault.test, 0,
			unwind_deferred_init(&fault.a->work, note_call, ENTRIES));
	KUNIT_EXPECT_EQ(fault.test, bit, fault.a->work.bit);
	/* A switch behind this one would note what is owed to that bit. */
	KUNIT_EXPECT_EQ(fault.test, 0, fault.a->calls);
}

/* The new owner of the bit has asked for nothing, and there is nobody to be given the stack. */
static void unwind_client_fault_cancelled(struct kunit *test)
{
	bring(test, 4, 4, cancel_in_fault);
	KUNIT_EXPECT_EQ(test, 0, fault.a->calls);
	KUNIT_EXPECT_FALSE(test, is_pending());
	KUNIT_EXPECT_EQ(test, 0ULL, current->unwind_info.owed);
	KUNIT_EXPECT_FALSE(test, current->unwind_info.state & UNWIND_FAULT);
}

/*
 * The context switch
 */

static void unwind_client_switch(struct kunit *test)
{
	struct client *a = new_client(test, ENTRIES);
	u64 cookie;

	make_stack(test, 20);
	cookie = request_first(test, a, TASK);
	switch_out();
	expect_calls(test, a, 1, cookie, 0, 20);
	expect_request(test, a, TASK, 0, cookie);
	switch_out();
	expect_calls(test, a, 2, cookie, 0, 20);
}

#if defined(CONFIG_TRACEPOINTS) && !defined(MODULE)

static struct task_struct *leaving;
static int ret_in_window[2];

static void request_in_window(void *client, bool preempt, struct task_struct *prev,
			      struct task_struct *next, unsigned int prev_state)
{
	u64 cookie;

	if (prev != leaving)
		return;
	ret_in_window[0] = request(client, IRQ, &cookie);
	ret_in_window[1] = request(client, NMI, &cookie);
}

/* At sched:sched_switch a request is refused, since it could not be handed out in time. */
static void unwind_client_window(struct kunit *test)
{
	struct client *a = new_client(test, ENTRIES);

	make_stack(test, 20);
	leaving = current;
	KUNIT_ASSERT_EQ(test, 0, register_trace_sched_switch(request_in_window, a));
	switch_out();
	unregister_trace_sched_switch(request_in_window, a);
	tracepoint_synchronize_unregister();
	KUNIT_EXPECT_EQ(test, -EAGAIN, ret_in_window[0]);
	KUNIT_EXPECT_EQ(test, -EAGAIN, ret_in_window[1]);
	KUNIT_EXPECT_FALSE(test, is_pending());
}

#endif

static void client_exit(struct kunit *test)
{
	WRITE_ONCE(unwind_test_hook, NULL);
	synchronize_rcu();
}

static void client_suite_exit(struct kunit_suite *suite)
{
	synchronize_rcu_tasks();
}

static struct kunit_case unwind_client_cases[] = {
	KUNIT_CASE(unwind_client_all_bits),
	KUNIT_CASE(unwind_client_buffers),
	KUNIT_CASE(unwind_client_cancel_waits),
	KUNIT_CASE(unwind_client_cancel_forgets),
	KUNIT_CASE(unwind_client_cookies),
	KUNIT_CASE(unwind_client_fault),
	KUNIT_CASE(unwind_client_fault_moved),
	KUNIT_CASE(unwind_client_fault_between),
	KUNIT_CASE(unwind_client_fault_cancelled),
	KUNIT_CASE(unwind_client_switch),
#if defined(CONFIG_TRACEPOINTS) && !defined(MODULE)
	KUNIT_CASE(unwind_client_window),
#endif
	{}
};

static struct kunit_suite unwind_client_suite = {
	.name		= "unwind_client",
	.exit		= client_exit,
	.suite_exit	= client_suite_exit,
	.test_cases	= unwind_client_cases,
};

kunit_test_suite(unwind_client_suite);

// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of requests for user stacks and of hand-outs: one at a time, and interrupted at
 * each of their steps.
 */
#include <kunit/test.h>
#include <linux/cleanup.h>
#include <linux/kernel.h>
#include <linux/preempt.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/task_stack.h>
#include <linux/unwind_deferred.h>
#include <linux/uprobes.h>

#include <asm/unwind_user.h>

#include "deferred_kunit.h"

static void unwind_deferred_one_entry(struct kunit *test)
{
	struct client *a = new_client(test, 5), *b = new_client(test, 15);
	struct client *c = new_client(test, ENTRIES);
	u64 cookie, pending;

	make_stack(test, 20);
	guard(preempt)();
	cookie = request_first(test, a, TASK);
	expect_request(test, a, TASK, 1, cookie);
	expect_request(test, b, IRQ, 0, cookie);
	expect_request(test, b, NMI, 1, cookie);
	KUNIT_EXPECT_TRUE(test, unwind_deferred_requested(&a->work, &pending));
	KUNIT_EXPECT_EQ(test, cookie, pending);
	KUNIT_EXPECT_FALSE(test, unwind_deferred_requested(&c->work, &pending));

	/* An NMI does not hand out: it may have interrupted a request. */
	__preempt_count_add(NMI_OFFSET);
	__unwind_deferred_flush();
	__preempt_count_sub(NMI_OFFSET);
	KUNIT_EXPECT_EQ(test, 0, a->calls + b->calls);

	/* Each client is called once, with its own maximum of entries. */
	__unwind_deferred_flush();
	expect_calls(test, a, 1, cookie, 0, 5);
	expect_calls(test, b, 1, cookie, 0, 15);
	KUNIT_EXPECT_EQ(test, 0, c->calls);
	KUNIT_EXPECT_FALSE(test, a->trace.again);
	KUNIT_EXPECT_FALSE(test, is_pending());
	KUNIT_EXPECT_FALSE(test, unwind_deferred_requested(&a->work, &pending));
	__unwind_deferred_flush();
	KUNIT_EXPECT_EQ(test, 2, a->calls + b->calls);

	/* The same stack may be requested any number of times. */
	expect_request(test, a, TASK, 0, cookie);
	expect_request(test, c, NMI, 0, cookie);
	__unwind_deferred_flush();
	expect_request(test, a, IRQ, 0, cookie);
	run_work();
	expect_calls(test, a, 3, cookie, 0, 5);
	expect_calls(test, b, 1, cookie, 0, 15);
	expect_calls(test, c, 1, cookie, 0, 20);
}

/* While a stack is pending, requests with other user registers are refused. */
static void unwind_deferred_moved(struct kunit *test)
{
	struct client *a = new_client(test, ENTRIES);
	struct pt_regs *regs = task_pt_regs(current);
	struct arch_uprobe auprobe = { .insn = { 0x55 } };
	struct uprobe_task utask = { .auprobe = &auprobe };
	u64 cookie, other;
	unsigned int i;

	make_stack(test, 20);
	guard(preempt)();
	for (i = 0; i < 4; i++) {
		start_anew();
		cookie = request_first(test, a, TASK);
		if (i == 0)
			regs->ip++;
		else if (i == 1)
			regs->sp++;
		else if (i == 2)
			regs->bp++;
		else
			current->utask = &utask;
		expect_refused(test, a, -EAGAIN);
		KUNIT_EXPECT_FALSE(test, unwind_deferred_requested(&a->work, &other));
		__unwind_deferred_flush();
		expect_calls(test, a, i + 1, cookie, 0, 20);
		KUNIT_EXPECT_NE(test, cookie, request_first(test, a, TASK));
		current->unwind_info.state = 0;
	}
	current->utask = NULL;
}

static void request_nmi(struct client *client)
{
	u64 cookie;

	client->called = NULL;
	request(client, NMI, &cookie);
}

/* unwind_deferred_confirm() is called before the user registers change. */
static void unwind_deferred_confirmed(struct kunit *test)
{
	struct client *a = new_client(test, ENTRIES);
	u64 cookie;

	make_stack(test, 20);
	guard(preempt)();
	cookie = request_first(test, a, NMI);
	unwind_deferred_confirm();
	enter(1);
	__unwind_deferred_flush();
	expect_calls(test, a, 1, cookie, 0, 20);

	/* Called too late, it does not help, and the stack is missing. */
	leave();
	cookie = request_first(test, a, NMI);
	enter(0);
	unwind_deferred_confirm();
	a->called = request_nmi;
	__unwind_deferred_flush();
	expect_calls(test, a, 2, cookie, 0, 0);
	KUNIT_EXPECT_FALSE(test, is_pending());
	KUNIT_EXPECT_FALSE(test, arch_unwind_entry_marked());
}

static void unwind_deferred_queued(struct kunit *test)
{
	struct client *a = new_client(test, ENTRIES);

	make_stack(test, 20);
	guard(preempt)();
	KUNIT_EXPECT_FALSE(test, is_queued(test));
	request_first(test, a, TASK);
	KUNIT_EXPECT_TRUE(test, is_queued(test));

	/* A hand-out at another place leaves the work on the list. */
	__unwind_deferred_flush();
	KUNIT_EXPECT_TRUE(test, is_queued(test));
	request_first(test, a, NMI);
	KUNIT_EXPECT_TRUE(test, is_queued(test));

	/* The work leaves the list before a callback runs, and the callback may queue it. */
	a->called = request_nmi;
	run_work();
	KUNIT_EXPECT_TRUE(test, is_queued(test));
	KUNIT_EXPECT_TRUE(test, is_pending());
	run_work();
	KUNIT_EXPECT_FALSE(test, is_queued(test));
	KUNIT_EXPECT_EQ(test, 3, a->calls);
}

/* With interrupts off, the task may be past the last check for task work. */
static void unwind_deferred_irqs_off(struct kunit *test)
{
	struct client *a = new_client(test, ENTRIES), *b = new_client(test, ENTRIES);
	u64 cookie;

	make_stack(test, 20);
	guard(preempt)();
	expect_request(test, a, IRQS_OFF, -EAGAIN, 0);
	cookie = request_first(test, a, IRQ);
	expect_request(test, a, IRQS_OFF, 1, cookie);
	expect_request(test, b, IRQS_OFF, 0, cookie);
	run_work();
	expect_calls(test, a, 1, cookie, 0, 20);
	expect_calls(test, b, 1, cookie, 0, 20);
	expect_request(test, a, IRQS_OFF, -EAGAIN, 0);
	KUNIT_EXPECT_FALSE(test, is_pending());
}

/* A request after the work makes the work run again, but only so many times. */
static void unwind_deferred_max_works(struct kunit *test)
{
	struct client *a = new_client(test, ENTRIES);
	unsigned int i;
	u64 cookie;

	make_stack(test, 20);
	guard(preempt)();
	cookie = request_first(test, a, TASK);
	for (i = 1; i <= 15; i++) {
		/* Hand-outs at other places do not count. */
		__unwind_deferred_flush();
		expect_request(test, a, TASK, 0, cookie);
		run_work();
		KUNIT_EXPECT_EQ(test, 2 * i, a->calls);
		if (i < 15)
			expect_request(test, a, NMI, 0, cookie);
	}
	expect_refused(test, a, -EAGAIN);
	KUNIT_EXPECT_FALSE(test, is_queued(test));

	/* Another stack of this entry, and of the next one. */
	enter(1);
	KUNIT_EXPECT_NE(test, cookie, request_first(test, a, TASK));
	run_work();
	request_first(test, a, TASK);
	run_work();
	leave();
	request_first(test, a, TASK);
}

/* A new task has no request, whatever its parent has requested. */
static void unwind_deferred_task(struct kunit *test)
{
	struct task_struct *task = kunit_kzalloc(test, sizeof(*task), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, task);
	memset(&task->unwind_info, 0x5a, sizeof(task->unwind_info));
	task_thread_info(task)->status = TS_UNWIND | TS_COMPAT;
	unwind_deferred_task_init(task);
	KUNIT_EXPECT_EQ(test, 0ULL, task->unwind_info.state);
	KUNIT_EXPECT_EQ(test, 0ULL, task->unwind_info.owed);
	KUNIT_EXPECT_EQ(test, TS_COMPAT, task_thread_info(task)->status);
}

static void unwind_deferred_no_user_task(struct kunit *test)
{
	static const unsigned int flags[] = { PF_KTHREAD, PF_USER_WORKER, PF_EXITING };
	struct client *a = new_client(test, ENTRIES);
	unsigned int i;
	u64 cookie;

	/* A task without an mm. */
	expect_refused(test, a, -EINVAL);
	make_stack(test, 20);
	for (i = 0; i < ARRAY_SIZE(flags); i++) {
		guard(irqsave)();
		current->flags = (current->flags & ~PF_KTHREAD) | flags[i];
		KUNIT_EXPECT_EQ(test, -EINVAL,
				unwind_deferred_request(&a->work, &cookie));
		current->flags = (current->flags & ~flags[i]) | PF_KTHREAD;
	}
	/* A client that was cancelled. */
	unwind_deferred_cancel(&a->work);
	expect_refused(test, a, -EINVAL);
	KUNIT_EXPECT_EQ(test, 0ULL, current->unwind_info.state);
}

/*
 * Interruptions. An interrupt or NMI is complete when the interrupted request or hand-out
 * continues. So a case is given by the interrupts and the points at which they come.
 */

/* The state at the begin of an interrupted step. */
struct start {
	const char	*name;
	bool		done;		/* client 0 has got the stack in this entry */
	unsigned int	pending;	/* 1: for client 0, 2: for client 1, by an NMI */
	bool		left;		/* the task has been in user space since */
	bool		moved;		/* the registers have changed since */
};

static const struct start starts[] = {
	{ "nothing" },
	{ "done", .done = true },
	{ "done, moved", .done = true, .moved = true },
	{ "left", .done = true, .left = true },
	{ "left, moved", .done = true, .left = true, .moved = true },
	{ "pending", .pending = 1 },
	{ "pending, moved", .pending = 1, .moved = true },
	{ "done, pending", .done = true, .pending = 1 },
	{ "done, NMI pending", .done = true, .pending = 2 },
	{ "done, NMI pending, moved", .done = true, .pending = 2, .moved = true },
	{ "NMI pending", .pending = 2 },
	{ "NMI pending, left", .pending = 2, .left = true },
	{ "NMI pending, left, moved", .pending = 2, .left = true, .moved = true },
};

KUNIT_ARRAY_PARAM_DESC(start, starts, name);

enum step { STEP_REQUEST, STEP_FLUSH, STEP_WORK, STEP_EXEC, STEPS };

/* The last two come only at points where interrupts are on. */
enum event { NMI_0, NMI_1, IRQ_FLUSH, IRQ_1, EVENTS };

#define LOG		16

/* A request, or a call of a client. */
struct logged {
	bool		call;
	unsigned int	client;		/* 0 or 1 */
	u64		cookie;
	unsigned int	place;		/* the number of the address, see IP() */
	unsigned int	entry;		/* the number of the kernel entry */
	int		ret;		/* the value of a request, or the length of the stack */
};

/* A step that is interrupted twice. */
static struct interruption {
	struct task_struct	*task;		/* the interrupted task; NULL: none */
	struct client		*client[2];
	enum event		event[2];	/* the two interrupts, */
	unsigned int		at[2];		/* their points, in this order, */
	bool			come[2];	/* and whether they have come */
	unsigned int		point;		/* the current point of the step */
	bool			inside;		/* an interrupt is not interrupted itself */
	unsigned int		place, entry;	/* the current ones */
	struct logged		log[LOG];
	unsigned int		nr;
} ir;

static struct logged *log_new(bool call, unsigned int client)
{
	struct logged *new = &ir.log[min(ir.nr, LOG - 1)];

	ir.nr++;
	*new = (struct logged) { call, client, 0, ir.place, ir.entry };
	return new;
}

/* Log a request. Its entry comes before those of its interrupts. */
static void log_request(unsigned int client, enum context context)
{
	struct logged *new = log_new(false, client);

	new->ret = request(ir.client[client], context, &new->cookie);
}

static void log_call(struct client *client)
{
	struct logged *new = log_new(true, client == ir.client[1]);

	new->cookie = client->cookie;
	new->place = (client->entries[0] - IP(0)) / 2;
	new->ret = client->trace.nr;
}

static void come(enum event event)
{
	if (event <= NMI_1) {
		log_request(event - NMI_0, NMI);
	} else if (!irqs_disabled()) {
		guard(irqsave)();
		if (event == IRQ_1)
			log_request(1, IRQ);
		else
			__unwind_deferred_flush();
	}
}

static void interrupt_here(struct unwind_task_info *info)
{
	unsigned int i;

	if (READ_ONCE(ir.task) != current || ir.inside)
		return;
	ir.inside = true;
	for (i = 0; i < 2; i++) {
		if (!ir.come[i] && ir.at[i] == ir.point) {
			ir.come[i] = true;
			come(ir.event[i]);
		}
	}
	ir.point++;
	ir.inside = false;
}

static void prepare(const struct start *start)
{
	start_anew();
	memset(ir.come, 0, sizeof(ir.come));
	ir.nr = 0;
	ir.point = 0;
	ir.place = 0;
	ir.entry = 0;
	if (start->done) {
		log_request(0, TASK);
		__unwind_deferred_flush();
	}
	if (start->pending)
		log_request(start->pending - 1, start->pending == 1 ? TASK : NMI);
	if (start->left) {
		leave();
		ir.entry++;
	}
	if (start->moved)
		enter(++ir.place);
}

/* Run the step. Then run the work, so that all pending stacks are handed out. */
static void take_step(struct kunit *test, enum step step)
{
	unsigned int i;

	WRITE_ONCE(ir.task, current);
	if (step == STEP_REQUEST)
		log_request(0, TASK);
	else if (step == STEP_FLUSH)
		__unwind_deferred_flush();
	else if (step == STEP_WORK && is_queued(test))
		run_work();
	else if (step == STEP_EXEC)
		unwind_deferred_exec();
	WRITE_ONCE(ir.task, NULL);

	for (i = 0; i < 4 && is_queued(test); i++)
		run_work();
}

/* Check entry @i of the log. Returns the fault, or NULL. */
static const char *entry_wrong(const struct start *start, enum step step, unsigned int i)
{
	const bool gone = start->pending && start->left && start->moved;
	const struct logged *a = &ir.log[i], *b;
	bool requested = false, called = false;
	int calls = 0;

	if (a->ret == -EAGAIN && start->pending && start->moved)
		return NULL;
	if (a->ret == -ESTALE && step == STEP_EXEC)
		return NULL;
	if (a->ret < 0)
		return "a request is refused";
	if (a->call && !a->ret != (gone && a->cookie == ir.log[0].cookie))
		return a->ret ? "user space has run since" : "a stack is lost";

	for (b = ir.log; b < ir.log + ir.nr; b++) {
		if (b->ret >= 0 && b->cookie != a->cookie && !a->call && !b->call &&
		    b->place == a->place && b->entry == a->entry && step != STEP_EXEC)
			return "a stack has two cookies";
		if (b->ret < 0 || b->cookie != a->cookie)
			continue;
		if (b->place != a->place && !(a->call && !a->ret) && !(b->call && !b->ret))
			return "a cookie has two stacks";
		/* The request of an NMI may turn out to belong to the next entry. */
		if (b->entry != a->entry && !a->call && !b->call &&
		    !(start->pending && start->left))
			return "a cookie has two entries";
		if (b->client != a->client)
			continue;
		requested |= !b->call;
		called |= b->call && b > a;
		calls += b->call ? 1 : -!b->ret;
	}
	if (!requested)
		return "a call with a cookie that the client has not got";
	if (!a->call && !called)
		return "no call behind a request";
	return calls ? "not one call for what was not pending" : NULL;
}

/* Check that later requests get the same cookie in this entry, and another in the next. */
static const char *next_wrong(enum step step)
{
	const struct logged *a;
	u64 last = 0, cookie, other;

	for (a = ir.log; a < ir.log + ir.nr; a++)
		if (!a->call && a->ret >= 0 && a->place == ir.place &&
		    a->entry == ir.entry)
			last = a->cookie;
	if (step == STEP_EXEC) {
		if (request(ir.client[0], TASK, &cookie) != -ESTALE ||
		    request(ir.client[0], NMI, &cookie) != -ESTALE)
			return "a stack in an execve()";
	} else {
		if (request(ir.client[0], TASK, &cookie) ||
		    request(ir.client[1], TASK, &other) ||
		    cookie != other || (last && cookie != last))
			return "not the same stack";
		last = cookie;
		__unwind_deferred_flush();
	}
	leave();
	if (request(ir.client[1], TASK, &cookie) || cookie == last)
		return "not another stack in the next entry";
	__unwind_deferred_flush();
	return NULL;
}

/* Run one case. Returns false if its result is wrong. */
static bool interrupt(struct kunit *test, const struct start *start, enum step step)
{
	const char *wrong = NULL;
	unsigned int i;

	guard(preempt)();
	prepare(start);
	take_step(test, step);
	if (is_pending())
		wrong = "pending and not queued";
	else if (ir.nr > LOG)
		wrong = "too many calls";
	for (i = 0; i < ir.nr && !wrong; i++)
		wrong = entry_wrong(start, step, i);
	if (!wrong)
		wrong = next_wrong(step);
	if (!wrong)
		return true;

	KUNIT_FAIL(test, "%s: step %u, event %u at %u, %u at %u", wrong, step, ir.event[0],
		   ir.at[0], ir.event[1], ir.at[1]);
	for (i = 0; i < min(ir.nr, LOG); i++)
		kunit_info(test, "%s client %u cookie %llx place %u entry %u: %d\n",
			   ir.log[i].call ? "call" : "request", ir.log[i].client,
			   ir.log[i].cookie, ir.log[i].place, ir.log[i].entry,
			   ir.log[i].ret);
	return false;
}

static void unwind_deferred_interrupted(struct kunit *test)
{
	const struct start *start = test->param_value;
	unsigned int i, step, count = 0;

	make_stack(test, 4);
	for (i = 0; i < 2; i++) {
		ir.client[i] = new_client(test, ENTRIES);
		ir.client[i]->called = log_call;
	}
	WRITE_ONCE(unwind_test_hook, interrupt_here);

	for (step = 0; step < STEPS; step++) {
		for (i = 0; i < EVENTS * EVENTS; i++) {
			ir.event[0] = i / EVENTS;
			ir.event[1] = i % EVENTS;
			ir.at[0] = 0;
			do {
				ir.at[1] = ir.at[0];
				do {
					if (!interrupt(test, start, step))
						return;
					count += ir.come[1];
					ir.at[1]++;
				} while (ir.come[1]);
				ir.at[0]++;
			} while (ir.come[0]);
		}
	}
	kunit_info(test, "%u interruptions\n", count);
	KUNIT_EXPECT_GE(test, count, 100);
}

static void deferred_exit(struct kunit *test)
{
	WRITE_ONCE(unwind_test_hook, NULL);
	/* Wait for requests of other tasks that have seen the hook. */
	synchronize_rcu();
}

static void deferred_suite_exit(struct kunit_suite *suite)
{
	/* Wait for other tasks that may have been preempted in the hook's function. */
	synchronize_rcu_tasks();
}

static struct kunit_case unwind_deferred_cases[] = {
	KUNIT_CASE(unwind_deferred_one_entry),
	KUNIT_CASE(unwind_deferred_moved),
	KUNIT_CASE(unwind_deferred_confirmed),
	KUNIT_CASE(unwind_deferred_queued),
	KUNIT_CASE(unwind_deferred_irqs_off),
	KUNIT_CASE(unwind_deferred_max_works),
	KUNIT_CASE(unwind_deferred_task),
	KUNIT_CASE(unwind_deferred_no_user_task),
	KUNIT_CASE_PARAM(unwind_deferred_interrupted, start_gen_params),
	{}
};

static struct kunit_suite unwind_deferred_suite = {
	.name		= "unwind_deferred",
	.exit		= deferred_exit,
	.suite_exit	= deferred_suite_exit,
	.test_cases	= unwind_deferred_cases,
};

kunit_test_suite(unwind_deferred_suite);

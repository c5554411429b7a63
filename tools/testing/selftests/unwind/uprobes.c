// SPDX-License-Identifier: GPL-2.0
/*
 * K12: uretprobes replace return addresses by a trampoline. The stack has the original
 * addresses. K13: on a function's first instruction the frame is not set up yet. The
 * stack has the caller all the same.
 */
#include <errno.h>
#include <setjmp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

/* The system call of the trampoline. Older headers do not have its name. */
#define NR_URETPROBE	335

FIXTURE(uprobes) {
	struct ut_session s;
};

FIXTURE_SETUP(uprobes)
{
	static const struct ut_opts opts = { .pid = 0 };

	ASSERT_EQ(0, ut_open(&self->s, &opts));
}

FIXTURE_TEARDOWN(uprobes)
{
	ut_close(&self->s);
}

static struct ut_stack st, entered;

static ut_noinline void inner(void)
{
	ut_syscall0(&st, __NR_getppid);
	asm volatile("" : : : "memory");
}

static ut_noinline void middle(void)
{
	ut_walk_self(&entered, (unsigned long)middle, __builtin_frame_address(0));
	inner();
	asm volatile("" : : : "memory");
}

static void outer(void *arg)
{
	middle();
	asm volatile("" : : : "memory");
}

/* The stack without probes. */
static struct ut_stack unprobed(void)
{
	ut_ladder(4, outer, NULL);
	return st;
}

TEST_F(uprobes, return_probes_pending)
{
	struct ut_stack want = unprobed();
	int tp;

	tp = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid");
	ASSERT_LE(0, ut_add_own_probe(&self->s, inner, true));
	ASSERT_LE(0, ut_add_own_probe(&self->s, middle, true));
	ASSERT_EQ(0, ut_profile_ladder(&self->s, 4, outer, NULL));
	/* The probes were pending: the program itself saw the trampoline. */
	ASSERT_NE(want.ip[2], st.ip[2]);
	ASSERT_EQ(st.ip[2], st.ip[3]);
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, tp, 0, 0), &want));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* At the sample of a return probe, the function has returned to its caller. */
TEST_F(uprobes, sample_of_a_return_probe)
{
	struct ut_stack want = unprobed(), got;
	struct ut_rec *r;
	int ret;
	unsigned int i;

	ret = ut_add_own_probe(&self->s, inner, true);
	ASSERT_EQ(0, ut_profile_ladder(&self->s, 4, outer, NULL));
	r = ut_sample(&self->s, ret, 0, 0);
	ASSERT_NE(NULL, r);
	ASSERT_EQ(UT_DEFERRED, ut_user_stack(&self->s, r, &got));
	/* ut_syscall() and inner() have returned. From middle() on the stack is the same. */
	ASSERT_EQ(want.nr - 2, got.nr);
	for (i = 1; i < got.nr; i++)
		EXPECT_EQ(want.ip[i + 2], got.ip[i]);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* The stack of a task that is to sleep; NULL if it is not to sleep. */
static struct ut_stack *asleep;

static ut_noinline void sleep_inner(void)
{
	ut_syscall0(asleep, __NR_pause);
	asm volatile("" : : : "memory");
}

static ut_noinline void leaf(void)
{
	if (asleep)
		sleep_inner();
	else
		inner();
	asm volatile("" : : : "memory");
}

static ut_noinline void recursion(int again)
{
	if (again)
		recursion(again - 1);
	else
		leaf();
	asm volatile("" : : : "memory");
}

static void recursion_outer(void *arg)
{
	recursion(3);
	asm volatile("" : : : "memory");
}

static ut_noinline UT_ATTRIBUTE(used) void tail_called(void)
{
	leaf();
	asm volatile("" : : : "memory");
}

/* It jumps to a function, which then returns to the caller. */
static ut_noinline UT_ATTRIBUTE(naked) void tail_caller(void)
{
	asm volatile("nop\n"
		     "jmp tail_called\n");
}

static ut_noinline void tail_outer(void *arg)
{
	tail_caller();
	asm volatile("" : : : "memory");
}

/* jumps_back() is left by longjmp(), so its return probe stays pending. */
static jmp_buf back;

static ut_noinline void jumps_back(void)
{
	longjmp(back, 1);
}

static ut_noinline void jump_outer(void *arg)
{
	if (!setjmp(back))
		jumps_back();
	leaf();
	asm volatile("" : : : "memory");
}

/* A function with a return probe that nobody has called. It would return to an address of -512. */
static ut_noinline UT_ATTRIBUTE(used) void not_called(void)
{
	ut_syscall0(&st, __NR_getppid);
	longjmp(back, 1);
}

static ut_noinline void jump_there(void *arg)
{
	if (!setjmp(back))
		asm volatile("push $-512\n"
			     "jmp not_called\n");
}

TEST_F(uprobes, return_to_no_user_address)
{
	struct ut_stack got;
	int tp;

	tp = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid");
	ASSERT_LE(0, ut_add_own_probe(&self->s, not_called, true));
	ASSERT_EQ(0, ut_profile_ladder(&self->s, 4, jump_there, NULL));
	ASSERT_EQ(UT_DEFERRED, ut_user_stack(&self->s, ut_sample(&self->s, tp, 0, 0), &got));
	ASSERT_EQ(2, got.nr);
	EXPECT_EQ(st.ip[0], got.ip[0]);
	EXPECT_EQ(st.ip[1], got.ip[1]);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* Pending return probes. The order alone does not tell which of them a frame belongs to. */
FIXTURE(pending) {
	struct ut_session s;
};

FIXTURE_VARIANT(pending) {
	ut_fn fn;
	void *probed[3];
	/* the first entry of the stack in which the program sees the trampoline */
	unsigned int first;
};

FIXTURE_VARIANT_ADD(pending, recursion) {
	.fn	= recursion_outer,
	.probed	= { recursion, leaf },
	.first	= 3,
};

FIXTURE_VARIANT_ADD(pending, tail_call) {
	.fn	= tail_outer,
	.probed	= { tail_caller, tail_called, tail_outer },
	.first	= 4,
};

FIXTURE_VARIANT_ADD(pending, longjmp) {
	.fn	= jump_outer,
	.probed	= { jumps_back, jump_outer },
	.first	= 4,
};

FIXTURE_SETUP(pending)
{
}

FIXTURE_TEARDOWN(pending)
{
	ut_close(&self->s);
}

static int probe_all(struct ut_session *s, void *const *probed)
{
	unsigned int i;

	for (i = 0; i < 3; i++) {
		if (probed[i] && ut_add_own_probe(s, probed[i], true) < 0)
			return -1;
	}
	return 0;
}

TEST_F(pending, at_the_return)
{
	static const struct ut_opts opts = { .pid = 0 };
	struct ut_stack want;
	int tp;

	asleep = NULL;
	ASSERT_EQ(0, ut_ladder(4, variant->fn, NULL));
	want = st;
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	tp = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid");
	ASSERT_EQ(0, probe_all(&self->s, variant->probed));
	ASSERT_EQ(0, ut_profile_ladder(&self->s, 4, variant->fn, NULL));
	/* The probes were pending: the program itself saw the trampoline. */
	ASSERT_NE(want.ip[variant->first], st.ip[variant->first]);
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, tp, 0, 0), &want));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

static void ladder_asleep(void *arg)
{
	ut_ladder(4, arg, NULL);
}

/* The task sleeps, and its stack is walked at the switch. It is the same stack. */
TEST_F(pending, of_a_sleeper)
{
	struct ut_stack want, got;
	struct ut_opts opts = {};
	struct ut_child c;
	int round, tp;

	asleep = ut_shared(sizeof(*asleep));
	ASSERT_NE(NULL, asleep);
	/* The first round is without probes. The second one, with them, must be the same. */
	for (round = 0; round < 2; round++) {
		asleep->nr = 0;
		ASSERT_EQ(0, ut_watch(&self->s, &opts, &c, ladder_asleep, variant->fn));
		tp = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_pause");
		if (round)
			ASSERT_EQ(0, probe_all(&self->s, variant->probed));
		ASSERT_EQ(0, ut_start(&self->s, &c));
		ASSERT_TRUE(ut_wait_asleep(c.pid, asleep));
		ASSERT_EQ(0, ut_drain(&self->s));
		if (!round)
			want = *asleep;
		ASSERT_EQ(UT_DEFERRED,
			  ut_user_stack(&self->s, ut_sample(&self->s, tp, c.pid, 0), &got));
		EXPECT_TRUE(ut_same_stack(&got, &want));
		EXPECT_EQ(0, ut_check(&self->s, 0));
		ut_close(&self->s);
		ASSERT_EQ(0, kill(c.pid, SIGKILL));
		ASSERT_EQ(SIGKILL, ut_wait(&c));
	}
	EXPECT_NE(want.ip[variant->first], asleep->ip[variant->first]);
}

/*
 * Samples before the handler of a probe and after it, all in the kernel entry of the
 * probe's breakpoint. Each has the stack of its own registers. If the stack of an earlier
 * sample is still pending when the registers have changed, the next one is immediate.
 */
TEST_F(uprobes, around_the_handler)
{
	int before, behind, probe;
	struct ut_stack got;
	struct ut_rec *r;
	unsigned int i;

	before = ut_add_function(&self->s, "uprobe_notify_resume");
	/* This runs only if task work is pending. */
	behind = ut_add_function(&self->s, "task_work_run");
	probe = ut_add_own_probe(&self->s, middle, false);
	ASSERT_EQ(0, ut_profile_ladder(&self->s, 4, outer, NULL));
	ASSERT_LE(1, ut_count_samples(&self->s, before, 0));
	EXPECT_EQ(UT_DEFERRED, ut_user_stack(&self->s, ut_sample(&self->s, before, 0, 0), &got));
	EXPECT_TRUE(ut_has_stack(&self->s, ut_sample(&self->s, probe, 0, 0), &entered));
	for (i = 0; (r = ut_sample(&self->s, behind, 0, i)); i++) {
		enum ut_kind kind = ut_user_stack(&self->s, r, &got);

		EXPECT_TRUE(kind == UT_DEFERRED || kind == UT_IMMEDIATE) TH_LOG("sample %u", i);
	}
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* An NMI while a probe is handled. The registers change before the stack is walked. */
TEST_F(uprobes, interrupted_in_the_handler)
{
	int func;

	func = ut_add_function(&self->s, "perf_tp_event");
	ASSERT_LE(0, ut_add_own_probe(&self->s, middle, false));
	ASSERT_EQ(0, ut_profile_ladder(&self->s, 4, outer, NULL));
	ASSERT_EQ(1, ut_count_samples(&self->s, func, 0));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, func, 0, 0), &entered));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* The same with a return probe, whose trampoline makes a system call. */
TEST_F(uprobes, interrupted_in_the_handler_of_a_return)
{
	struct ut_stack want, got;
	int func, ret;

	func = ut_add_function(&self->s, "perf_tp_event");
	ret = ut_add_own_probe(&self->s, middle, true);
	ASSERT_EQ(0, ut_profile_ladder(&self->s, 4, outer, NULL));
	ASSERT_EQ(1, ut_count_samples(&self->s, ret, 0));
	ASSERT_EQ(1, ut_count_samples(&self->s, func, 0));
	ASSERT_EQ(UT_DEFERRED, ut_user_stack(&self->s, ut_sample(&self->s, ret, 0, 0), &want));
	/* middle() has returned to its caller. */
	ASSERT_EQ(entered.nr - 1, want.nr);
	EXPECT_EQ(0, memcmp(&want.ip[1], &entered.ip[2], (want.nr - 1) * sizeof(want.ip[0])));
	ASSERT_EQ(UT_DEFERRED, ut_user_stack(&self->s, ut_sample(&self->s, func, 0, 0), &got));
	EXPECT_TRUE(ut_same_stack(&got, &want));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* Samples at the trampoline's system call, before the handler, and in the handler. */
TEST_F(uprobes, around_the_handler_of_a_return)
{
	struct ut_rec *before, *behind;
	struct ut_stack want, got;
	int enter, ret;
	char filter[32];

	unprobed();
	want = entered;
	enter = ut_add_tracepoint(&self->s, "raw_syscalls", "sys_enter");
	ret = ut_add_own_probe(&self->s, middle, true);
	ASSERT_LE(0, enter);
	ASSERT_LE(0, ret);
	snprintf(filter, sizeof(filter), "id == %d", NR_URETPROBE);
	ASSERT_EQ(0, ioctl(self->s.event[enter].fd[0], PERF_EVENT_IOC_SET_FILTER, filter));
	ASSERT_EQ(0, ut_profile_ladder(&self->s, 4, outer, NULL));
	ASSERT_EQ(1, ut_count_samples(&self->s, enter, 0));
	ASSERT_EQ(1, ut_count_samples(&self->s, ret, 0));
	before = ut_sample(&self->s, enter, 0, 0);
	behind = ut_sample(&self->s, ret, 0, 0);
	EXPECT_NE(before->cookie, behind->cookie);
	/* First in the trampoline, then at its return address, both with outer()'s callers. */
	ASSERT_EQ(UT_DEFERRED, ut_user_stack(&self->s, before, &got));
	EXPECT_NE(want.ip[1], got.ip[0]);
	ASSERT_EQ(want.nr - 1, got.nr);
	EXPECT_EQ(0, memcmp(&got.ip[1], &want.ip[2], (got.nr - 1) * sizeof(got.ip[0])));
	ASSERT_GT(want.nr, 1);
	want.nr--;
	memmove(want.ip, &want.ip[1], want.nr * sizeof(want.ip[0]));
	EXPECT_TRUE(ut_has_stack(&self->s, behind, &want));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/*
 * A sample while the kernel still looks for the return probe: it is in the trampoline, with
 * the callers of outer(). The registers change before the stack is walked, so the record
 * may be empty.
 */
TEST_F(uprobes, interrupted_before_the_handler_of_a_return)
{
	struct ut_stack want, got;
	int func;

	unprobed();
	want = entered;
	/* With two pending probes, this is called for the outer one. */
	func = ut_add_function(&self->s, "arch_uretprobe_is_alive");
	ASSERT_LE(0, ut_add_own_probe(&self->s, outer, true));
	ASSERT_LE(0, ut_add_own_probe(&self->s, middle, true));
	ASSERT_EQ(0, ut_profile_ladder(&self->s, 4, outer, NULL));
	/* It is called when middle() is entered, and when it returns. */
	ASSERT_EQ(2, ut_count_samples(&self->s, func, 0));
	ASSERT_EQ(UT_DEFERRED, ut_user_stack(&self->s, ut_sample(&self->s, func, 0, 1), &got));
	if (got.nr) {
		ASSERT_EQ(want.nr - 1, got.nr);
		EXPECT_EQ(0, memcmp(&got.ip[1], &want.ip[2], (got.nr - 1) * sizeof(got.ip[0])));
	}
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* K13 */
TEST_F(uprobes, first_instruction)
{
	int probe;

	probe = ut_add_own_probe(&self->s, middle, false);
	ASSERT_EQ(0, ut_profile_ladder(&self->s, 4, outer, NULL));
	ASSERT_EQ(1, ut_count_samples(&self->s, probe, 0));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, probe, 0, 0), &entered));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* Both: the return address of the probed function is the trampoline already. */
TEST_F(uprobes, first_instruction_with_return_probes)
{
	struct ut_stack want;
	int probe;

	unprobed();
	want = entered;
	ASSERT_LE(0, ut_add_own_probe(&self->s, middle, true));
	probe = ut_add_own_probe(&self->s, inner, false);
	ASSERT_EQ(0, ut_profile_ladder(&self->s, 4, outer, NULL));
	ASSERT_EQ(1, ut_count_samples(&self->s, probe, 0));
	/* inner(), its call in middle(), and then the stack as middle() has seen it */
	memmove(&want.ip[2], &want.ip[1], (want.nr - 1) * sizeof(want.ip[0]));
	want.nr++;
	want.ip[0] = (unsigned long)inner;
	want.ip[1] = st.ip[2];
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, probe, 0, 0), &want));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

int main(int argc, char **argv)
{
	ut_need_root();
	return test_harness_run(argc, argv);
}

// SPDX-License-Identifier: GPL-2.0
/*
 * K3, K15: events that fire during a hand-out on the way to user space. Each of them may
 * request the stack again, which needs another hand-out. The task still gets to user
 * space, and all samples have the stack.
 */
#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

#define CALLS	20

struct call {
	struct ut_stack	st;
	cpu_set_t	to;
};

static void move(void *arg)
{
	struct call *c = arg;

	ut_syscall3(&c->st, __NR_sched_setaffinity, 0, sizeof(c->to), &c->to);
}

FIXTURE(endless) {
	struct ut_session s;
};

FIXTURE_VARIANT(endless) {
	const char *sys;	/* NULL: name is a function */
	const char *name;
};

/* This fires after the task work, on the way to user space, after a change of the CPU. */
FIXTURE_VARIANT_ADD(endless, rseq) {
	.sys = "rseq", .name = "rseq_update",
};

/* This fires in the hand-out itself, when the record is written. */
FIXTURE_VARIANT_ADD(endless, writing) {
	.name = "perf_output_begin",
};

FIXTURE_SETUP(endless)
{
}

FIXTURE_TEARDOWN(endless)
{
	ut_close(&self->s);
}

TEST_F_TIMEOUT(endless, ends, 30)
{
	struct ut_opts opts = { .switches = true, .pages = 256 };
	int cpus[UT_MAX_CPUS], enter, event;
	struct call c[CALLS] = {};
	struct ut_rec *r;
	unsigned int nr;
	int i;

	nr = ut_online_cpus(cpus, UT_MAX_CPUS);
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	enter = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_sched_setaffinity");
	event = variant->sys ? ut_add_tracepoint(&self->s, variant->sys, variant->name) :
			       ut_add_probe(&self->s, "kprobe", variant->name, 0, false);
	ASSERT_LE(0, event) TH_LOG("%s", variant->name);
	ASSERT_EQ(0, ut_enable(&self->s));
	for (i = 0; i < CALLS; i++) {
		CPU_ZERO(&c[i].to);
		CPU_SET(cpus[i % nr], &c[i].to);
		ut_ladder(5, move, &c[i]);
	}
	ASSERT_EQ(0, ut_stop(&self->s));
	ASSERT_EQ(CALLS, ut_count_samples(&self->s, enter, 0));
	for (i = 0; i < CALLS; i++) {
		r = ut_sample(&self->s, enter, 0, i);
		EXPECT_TRUE(ut_stack_is(&self->s, r, &c[i].st)) TH_LOG("call %d", i);
	}
	nr = ut_count_samples(&self->s, event, 0);
	TH_LOG("%u samples of %s, %u records", nr, variant->name,
	       ut_count(&self->s, UT_RECORD_CALLCHAIN_DEFERRED, 0));
	EXPECT_LE(CALLS / 2, nr);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

int main(int argc, char **argv)
{
	ut_need_root();
	return test_harness_run(argc, argv);
}

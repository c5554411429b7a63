// SPDX-License-Identifier: GPL-2.0
/*
 * K9: a sample is taken when the events belong to the next task already. If two tasks
 * have inherited the same events, a switch between them exchanges the events a moment
 * before it switches the tasks. A sample in between must not have a user stack, neither
 * a deferred nor an immediate one.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

#define ROUNDS	50

struct shared {
	int	to[2][2];
	int	cpu;
	pid_t	pid[2];
	int	done;
};

/* One task writes first, the other reads first, so one of them always sleeps. */
static void take_turns(void *arg)
{
	struct shared *sh = arg;
	int me = sh->pid[0] == getpid() ? 0 : 1, i;
	static struct ut_stack st;
	char byte;

	for (i = 0; i < ROUNDS; i++) {
		if (me)
			ut_syscall3(&st, __NR_read, sh->to[1][0], &byte, 1);
		ut_syscall3(&st, __NR_write, sh->to[!me][1], "x", 1);
		if (!me)
			ut_syscall3(&st, __NR_read, sh->to[0][0], &byte, 1);
	}
}

static void two_children(void *arg)
{
	struct shared *sh = arg;
	int i;

	ut_pin(0, sh->cpu);
	for (i = 0; i < 2; i++) {
		pid_t pid = fork();

		if (!pid) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			sh->pid[i] = getpid();
			ut_ladder(6, take_turns, sh);
			_exit(0);
		}
		while (!UT_READ(sh->pid[i]))
			sched_yield();
	}
	for (i = 0; i < 2; i++)
		sh->done += wait(NULL) > 0;
}

FIXTURE(crosstask) {
	struct ut_session s;
	struct shared *sh;
	struct ut_child c;
};

FIXTURE_VARIANT(crosstask) {
	bool immediate;
	bool user_only;
};

/* Immediate callchains, to compare the deferred ones with. */
FIXTURE_VARIANT_ADD(crosstask, immediate) {
	.immediate = true,
};

FIXTURE_VARIANT_ADD(crosstask, deferred) {
	.immediate = false,
};

FIXTURE_VARIANT_ADD(crosstask, immediate_user) {
	.immediate = true, .user_only = true,
};

FIXTURE_VARIANT_ADD(crosstask, deferred_user) {
	.user_only = true,
};

FIXTURE_SETUP(crosstask)
{
	struct ut_opts opts = {
		.per_cpu = true, .inherit = true, .immediate = variant->immediate,
		/* exclude_callchain_kernel */
		.flags = variant->user_only ? 1ULL << 21 : 0,
	};
	int cpus[UT_MAX_CPUS];

	self->sh = ut_shared(sizeof(*self->sh));
	ASSERT_NE(NULL, self->sh);
	ASSERT_EQ(0, pipe(self->sh->to[0]));
	ASSERT_EQ(0, pipe(self->sh->to[1]));
	ASSERT_LT(0, ut_online_cpus(cpus, UT_MAX_CPUS));
	self->sh->cpu = cpus[0];
	ASSERT_EQ(0, ut_watch(&self->s, &opts, &self->c, two_children, self->sh));
}

FIXTURE_TEARDOWN(crosstask)
{
	ut_end_child(&self->c);
	ut_close(&self->s);
}

TEST_F(crosstask, between_two_tasks)
{
	unsigned int i, t, own = 0, nr = 0;
	struct ut_stack got;
	int between, before;
	struct ut_rec *r;
	__u64 k;

	/* When the memory map is switched, the events have been, but the task has not. */
	between = ut_add_function(&self->s, "switch_mm_irqs_off");
	before = ut_add_tracepoint(&self->s, "sched", "sched_switch");
	ASSERT_EQ(0, ut_start(&self->s, &self->c));
	for (i = 0; i < 2000 && UT_READ(self->sh->done) != 2; i++)
		usleep(10000);
	ASSERT_EQ(2, self->sh->done);
	ASSERT_EQ(0, ut_stop(&self->s));

	for (t = 0; t < 2; t++) {
		for (i = 0; (r = ut_sample(&self->s, between, self->sh->pid[t], i)); i++, nr++) {
			EXPECT_EQ(0, r->cookie);
			EXPECT_EQ(UT_NO_STACK, ut_user_stack(&self->s, r, &got));
			for (k = 0; k < r->nr; k++) {
				EXPECT_NE(PERF_CONTEXT_USER, r->ips[k]);
				EXPECT_NE(UT_CONTEXT_USER_DEFERRED, r->ips[k]);
			}
			EXPECT_EQ(variant->user_only, !r->nr);
		}
		/* A moment earlier the events still belong to the task. */
		for (i = 0; (r = ut_sample(&self->s, before, self->sh->pid[t], i)); i++)
			own += ut_user_stack(&self->s, r, &got) == UT_IMMEDIATE;
	}
	/* Not every switch is from one of the two tasks to the other. */
	EXPECT_LT(ROUNDS / 2, nr);
	EXPECT_LT(ROUNDS, own);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

int main(int argc, char **argv)
{
	ut_need_root();
	return test_harness_run(argc, argv);
}

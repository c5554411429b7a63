// SPDX-License-Identifier: GPL-2.0
/*
 * K5, K20: events disabled, closed and unmapped with stacks pending.
 */
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

struct target {
	struct ut_stack	ppid, uid;
};

static void target_calls(void *arg)
{
	struct target *t = arg;

	ut_syscall0(&t->ppid, __NR_getppid);
	ut_syscall0(&t->uid, __NR_getuid);
}

/* A task that is in the kernel almost all the time, and never sleeps. */
static void busy(void *arg)
{
	for (;;) {
		ut_relax();
		ut_ladder(5, target_calls, arg);
	}
}

/*
 * An event that keeps its session alive while others are opened and closed. If they left
 * anything in the session, it would affect the next ones.
 */
static int open_beside(void)
{
	struct perf_event_attr attr = {
		.type		= PERF_TYPE_SOFTWARE,
		.size		= UT_ATTR_SIZE,
		.config		= PERF_COUNT_SW_DUMMY,
		.disabled	= 1,
	};

	*ut_attr_flags(&attr) |= UT_DEFER_OUTPUT;
	return ut_perf_open(&attr, 0, -1, -1, 0);
}

FIXTURE(teardown) {
	struct target *t;
	struct ut_child c;
};

FIXTURE_SETUP(teardown)
{
	self->t = ut_shared(sizeof(*self->t));
	ASSERT_NE(NULL, self->t);
	ASSERT_EQ(0, ut_fork(&self->c, busy, self->t));
	ASSERT_EQ(0, ut_go(&self->c));
}

FIXTURE_TEARDOWN(teardown)
{
	ut_end_child(&self->c);
}

/*
 * K5, K20: events and buffers are closed in each possible order, while the task makes
 * requests. In the first half of the rounds the session is deleted, too, in the second
 * half it stays.
 */
TEST_F_TIMEOUT(teardown, with_work_pending, 280)
{
	const int rounds = 3 * 5 * 8;
	struct ut_session s;
	int beside = -1, i;

	for (i = 0; i < rounds; i++) {
		struct ut_opts opts = { .pid = self->c.pid, .pages = 8 };

		if (i == rounds / 2) {
			beside = open_beside();
			ASSERT_LE(0, beside);
		}
		opts.per_cpu = i % 3 == 1;
		if (i % 3 == 2) {
			opts.pid = -1;
			opts.per_cpu = true;
		}
		ASSERT_EQ(0, ut_open(&s, &opts));
		ASSERT_LE(0, ut_add_tracepoint(&s, "syscalls", "sys_enter_getppid"));
		ASSERT_EQ(0, ut_enable(&s));
		if (i % 8 == 0)
			usleep(500);
		switch (i % 5) {
		case 0:
			ut_disable(&s);
			break;
		case 1:
			ut_ring_unmap(&s.ring[0]);
			break;
		case 2:
			/* Close the tracking event first. */
			close(s.ring[0].fd);
			s.ring[0].fd = -1;
			break;
		case 3:
			ioctl(s.ring[0].fd, PERF_EVENT_IOC_DISABLE, PERF_IOC_FLAG_GROUP);
			break;
		}
		ut_close(&s);
	}
	/* Deferral still works. */
	{
		struct ut_opts opts = { .pid = self->c.pid, .pages = 64 };

		ASSERT_EQ(0, ut_open(&s, &opts));
		ASSERT_LE(0, ut_add_tracepoint(&s, "syscalls", "sys_enter_getppid"));
		ASSERT_EQ(0, ut_enable(&s));
		do {
			usleep(1000);
			ASSERT_EQ(0, ut_drain(&s));
		} while (!ut_count(&s, UT_RECORD_CALLCHAIN_DEFERRED, self->c.pid));
		ASSERT_EQ(0, ut_stop(&s));
		EXPECT_TRUE(ut_stack_is(&s, ut_sample(&s, 0, self->c.pid, 0), &self->t->ppid));
		/* The events may be disabled between a request and its sample. */
		EXPECT_EQ(0, ut_check(&s, UT_ALLOW_EARLY | ut_allow_lost(&s)));
		ut_close(&s);
	}
	close(beside);
}

/*
 * The events are disabled at any point of the task's work, also in the middle of a walk.
 * Each sample has its stack when the sampling events and then the output event have been
 * disabled.
 */
TEST_F_TIMEOUT(teardown, disabled_while_it_runs, 280)
{
	unsigned int round, i, lost, samples = 0;
	struct ut_session s;
	struct ut_rec *r;

	/* On a slow kernel there may be few samples in a round. */
	for (round = 0; round < 3 * 20 || samples <= 100; round++) {
		struct ut_opts opts = { .pid = self->c.pid, .pages = 64, .switches = true };

		opts.per_cpu = round % 3;
		if (round % 3 == 2)
			opts.pid = -1;
		ASSERT_EQ(0, ut_open(&s, &opts));
		ASSERT_LE(0, ut_add_tracepoint(&s, "syscalls", "sys_enter_getppid"));
		ASSERT_LE(0, ut_add_tracepoint(&s, "syscalls", "sys_exit_getuid"));
		ASSERT_EQ(0, ut_enable(&s));
		usleep(round / 3 * 50);
		ASSERT_EQ(0, ut_stop(&s));
		/* A full buffer can have room for a sample and none for its record. */
		lost = ut_allow_lost(&s);
		for (i = 0; (r = ut_sample(&s, -1, self->c.pid, i)); i++)
			ASSERT_TRUE(lost || ut_has_stack(&s, r, r->id == s.event[0].id[r->ring] ?
							 &self->t->ppid : &self->t->uid));
		samples += i;
		/* The disable may come between a request and its sample. */
		ASSERT_EQ(0, ut_check(&s, UT_ALLOW_EARLY | lost))
			TH_LOG("round %u", round);
		ut_close(&s);
	}
	TH_LOG("%u samples", samples);
}

static void busy_a_while(void *arg)
{
	int i;

	for (i = 0; i < 20; i++)
		ut_ladder(5, target_calls, arg);
}

/* The task dies while its events are closed. */
TEST_F_TIMEOUT(teardown, task_dies, 200)
{
	int i;

	/* The fixture's task is not needed here. */
	ASSERT_EQ(0, kill(self->c.pid, SIGSTOP));
	for (i = 0; i < 2 * 3 * 7; i++) {
		struct ut_opts opts = { .pages = 8, .per_cpu = i % 2, .inherit = i % 2 };
		struct ut_session s;
		struct ut_child c;

		ASSERT_EQ(0, ut_watch(&s, &opts, &c, busy_a_while, self->t));
		ASSERT_LE(0, ut_add_tracepoint(&s, "syscalls", "sys_enter_getppid"));
		ASSERT_LE(0, ut_add_tracepoint(&s, "syscalls", "sys_enter_exit_group"));
		ASSERT_EQ(0, ut_start(&s, &c));
		usleep(i % 7 * 300);
		if (i % 3 == 0)
			kill(c.pid, SIGKILL);
		if (i % 2) {
			ut_close(&s);
			ut_wait(&c);
		} else {
			ut_wait(&c);
			ASSERT_EQ(0, ut_stop(&s));
			EXPECT_EQ(0, ut_check(&s, ut_allow_lost(&s)));
			ut_close(&s);
		}
	}
}

struct own {
	struct ut_stack	st;
	int		fd;
};

/*
 * K20: a task disables the event that samples it, or the event that gets the records, on
 * its own CPU. The stack of this very call is written first.
 */
static void disable_on(void *arg)
{
	struct own *o = arg;

	ut_syscall3(&o->st, __NR_ioctl, o->fd, PERF_EVENT_IOC_DISABLE, 0);
}

TEST_F(teardown, own_disable)
{
	unsigned int round, ring, last;
	int cpus[UT_MAX_CPUS];

	ASSERT_EQ(0, kill(self->c.pid, SIGSTOP));
	ASSERT_LT(0, ut_online_cpus(cpus, UT_MAX_CPUS));
	ASSERT_EQ(0, ut_pin(0, cpus[0]));
	for (round = 0; round < 2 * 3; round++) {
		struct ut_opts opts = { .per_cpu = round % 3 };
		struct ut_session s;
		struct own o = {};

		/* Events of the task, of the task on each CPU, of each CPU. */
		opts.pid = round % 3 == 2 ? -1 : 0;
		ASSERT_EQ(0, ut_open(&s, &opts));
		ASSERT_LE(0, ut_add_tracepoint(&s, "syscalls", "sys_enter_ioctl"));
		ASSERT_EQ(0, ut_enable(&s));
		for (ring = 0; opts.per_cpu && s.ring[ring].cpu != cpus[0]; ring++)
			;
		o.fd = round / 3 ? s.ring[ring].fd : s.event[0].fd[ring];
		ASSERT_EQ(0, ut_ladder(5, disable_on, &o));
		ASSERT_EQ(0, ut_drain(&s));
		last = ut_count_samples(&s, 0, getpid());
		ASSERT_LT(0, last);
		EXPECT_TRUE(ut_stack_is(&s, ut_sample(&s, 0, getpid(), last - 1), &o.st))
			TH_LOG("round %u", round);
		EXPECT_EQ(0, ut_check_order(&s, 0)) TH_LOG("round %u", round);
		ut_close(&s);
	}
}

/* The session samples the calls that close it. */
TEST_F(teardown, own_close)
{
	static const char * const tps[] = {
		"sys_enter_close", "sys_enter_munmap", "sys_enter_ioctl", "sys_exit_ioctl",
	};
	unsigned int i, round;

	ASSERT_EQ(0, kill(self->c.pid, SIGSTOP));
	for (round = 0; round < 4 * 2 * 3; round++) {
		struct ut_opts opts = { .pid = 0, .pages = 8, .per_cpu = round % 2 };
		struct ut_session s;

		ASSERT_EQ(0, ut_open(&s, &opts));
		for (i = 0; i < ARRAY_SIZE(tps); i++)
			ASSERT_LE(0, ut_add_tracepoint(&s, "syscalls", tps[i]));
		ASSERT_EQ(0, ut_enable(&s));
		if (round % 3 == 2)
			ut_disable(&s);
		for (i = 0; round % 3 == 1 && i < s.nr_rings; i++)
			ASSERT_EQ(0, ioctl(s.ring[i].fd, PERF_EVENT_IOC_DISABLE, 0));
		if (round % 3 != 1) {
			ASSERT_EQ(0, ut_drain(&s));
			EXPECT_LT(0, ut_count_samples(&s, -1, 0));
			EXPECT_EQ(0, ut_check(&s, 0)) TH_LOG("round %u", round);
		}
		ut_close(&s);
	}
}

int main(int argc, char **argv)
{
	ut_need_root();
	return test_harness_run(argc, argv);
}

// SPDX-License-Identifier: GPL-2.0
/*
 * Buffers that are paused, full, or read while they wrap, and events that are disabled by
 * their limit (PERF_EVENT_IOC_REFRESH). The kernel counts all records that are lost.
 */
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

FIXTURE(buffers) {
	struct ut_session s;
};

FIXTURE_SETUP(buffers)
{
}

FIXTURE_TEARDOWN(buffers)
{
	ut_close(&self->s);
}

static void one_getppid(void *arg)
{
	ut_syscall0(arg, __NR_getppid);
}

/* The limit disables an event at its last sample. This sample still has its record. */
TEST_F(buffers, limited)
{
	struct ut_opts opts = { .pid = 0, .switches = true };
	struct ut_stack st[4];
	int tp, fd, i, limit;

	opts.no_output = true;
	opts.flags = UT_DEFER_OUTPUT;
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	tp = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid");
	ASSERT_LE(0, tp);
	fd = self->s.event[tp].fd[0];
	for (limit = 1; limit <= 2; limit++) {
		ASSERT_EQ(0, ioctl(fd, PERF_EVENT_IOC_REFRESH, limit));
		for (i = 0; i < 4; i++)
			ASSERT_EQ(0, ut_ladder(5, one_getppid, &st[i]));
		ASSERT_EQ(0, ut_drain(&self->s));
		ASSERT_EQ(limit, ut_count_samples(&self->s, tp, 0));
		for (i = 0; i < limit; i++)
			EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, tp, 0, i), &st[i]));
		EXPECT_EQ(0, ut_check(&self->s, 0));
		ut_forget(&self->s);
	}
}

/* A paused buffer takes no records. They are counted, and no task waits for the buffer. */
TEST_F(buffers, paused)
{
	struct ut_opts opts = { .pid = 0 };
	__u64 samples, others;
	struct ut_stack st[3];
	struct ut_rec *r;
	int tp, fd, i;

	ASSERT_EQ(0, ut_open(&self->s, &opts));
	tp = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid");
	ASSERT_LE(0, tp);
	fd = self->s.event[tp].fd[0];
	ASSERT_EQ(0, ut_enable(&self->s));
	for (i = 0; i < 3; i++) {
		ASSERT_EQ(0, ioctl(fd, PERF_EVENT_IOC_PAUSE_OUTPUT, i == 1));
		ASSERT_EQ(0, ut_ladder(5, one_getppid, &st[i]));
	}
	ASSERT_EQ(0, ut_stop(&self->s));
	ASSERT_EQ(2, ut_count_samples(&self->s, tp, 0));
	for (i = 0; i < 2; i++) {
		r = ut_sample(&self->s, tp, 0, i);
		EXPECT_TRUE(ut_stack_is(&self->s, r, &st[2 * i]));
	}
	ASSERT_EQ(0, ut_lost(&self->s, &samples, &others));
	EXPECT_EQ(1, samples);
	EXPECT_LE(1, others);
	EXPECT_EQ(0, ut_check(&self->s, UT_ALLOW_LOST));
}

/* A full buffer loses samples and records, and counts them. */
TEST_F(buffers, buffer_full)
{
	struct ut_opts opts = { .pid = 0 };
	struct ut_stack st;
	unsigned int samples, records;
	int i;

	opts.pages = 1;
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid"));
	ASSERT_EQ(0, ut_enable(&self->s));
	for (i = 0; i < 100; i++)
		ASSERT_EQ(0, ut_ladder(20, one_getppid, &st));
	ASSERT_EQ(0, ut_drain(&self->s));
	/* Losses are reported before the next record that has room. */
	ASSERT_EQ(0, ut_ladder(20, one_getppid, &st));
	ASSERT_EQ(0, ut_stop(&self->s));
	samples = ut_count(&self->s, PERF_RECORD_SAMPLE, 0);
	records = ut_count(&self->s, UT_RECORD_CALLCHAIN_DEFERRED, 0);
	EXPECT_LT(samples, 101);
	EXPECT_LT(records, 101);
	/* There are more records if the task was preempted. */
	EXPECT_LE(2 * 101, samples + records + self->s.lost);
	EXPECT_EQ(0, ut_check(&self->s, UT_ALLOW_LOST));
}

/* Nothing is lost when a buffer wraps many times while it is read. */
TEST_F(buffers, buffer_wraps)
{
	struct ut_opts opts = { .pid = 0 };
	struct ut_stack st;
	int i;

	opts.pages = 1;
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid"));
	ASSERT_EQ(0, ut_enable(&self->s));
	for (i = 0; i < 200; i++) {
		ASSERT_EQ(0, ut_ladder(i % 30, one_getppid, &st));
		ASSERT_EQ(0, ut_drain(&self->s));
		EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, -1, 0, i), &st));
	}
	ut_disable(&self->s);
	EXPECT_LE(200, ut_count(&self->s, UT_RECORD_CALLCHAIN_DEFERRED, 0));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

int main(int argc, char **argv)
{
	ut_need_root();
	return test_harness_run(argc, argv);
}

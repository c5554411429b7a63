// SPDX-License-Identifier: GPL-2.0
/*
 * K16: sample_max_stack and kernel.perf_event_max_stack hold for deferred stacks.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

#define MAX_STACK	"/proc/sys/kernel/perf_event_max_stack"

FIXTURE(limits) {
	struct ut_session s;
	long max;
};

FIXTURE_SETUP(limits)
{
	ASSERT_EQ(0, ut_read_sysctl(MAX_STACK, &self->max));
}

FIXTURE_TEARDOWN(limits)
{
	ut_close(&self->s);
	ut_write_sysctl(MAX_STACK, self->max);
}

static void one_call(void *arg)
{
	ut_syscall0(arg, __NR_getppid);
}

TEST_F(limits, sample_max_stack)
{
	struct ut_stack st, got;
	int max;

	for (max = 1; max <= 20; max++) {
		struct ut_opts opts = { .max_stack = max, .pages = 4 };
		struct ut_rec *r;
		int tp;

		ASSERT_EQ(0, ut_open(&self->s, &opts));
		tp = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid");
		ASSERT_EQ(0, ut_profile_ladder(&self->s, 10, one_call, &st));
		r = ut_sample(&self->s, tp, 0, 0);
		ASSERT_NE(NULL, r);
		/* The limit counts neither marker and cookie nor a context. */
		ASSERT_EQ(UT_DEFERRED, ut_user_stack(&self->s, r, &got)) TH_LOG("max %d", max);
		EXPECT_EQ(max < st.nr ? max : st.nr, got.nr);
		EXPECT_TRUE(ut_stack_within(&got, &st));
		EXPECT_EQ(0, ut_check(&self->s, 0));
		ut_close(&self->s);
	}
}

/* Two events in one entry have one record, with the larger limit of the two. */
TEST_F(limits, two_events)
{
	int order;

	/* A switch between the two would write a record of its own. */
	ASSERT_EQ(0, ut_fifo());
	for (order = 0; order < 2; order++) {
		static const char * const tps[] = { "sys_enter_getppid", "sys_exit_getppid" };
		struct ut_opts opts = { .pages = 4 };
		struct ut_stack st, got;
		int i;

		ASSERT_EQ(0, ut_open(&self->s, &opts));
		for (i = 0; i < 2; i++) {
			self->s.opts.max_stack = (i ^ order) ? 8 : 3;
			ASSERT_EQ(i, ut_add_tracepoint(&self->s, "syscalls", tps[i]));
		}
		ASSERT_EQ(0, ut_profile_ladder(&self->s, 10, one_call, &st));
		ASSERT_EQ(UT_DEFERRED,
			  ut_user_stack(&self->s, ut_sample(&self->s, order ? 0 : 1, 0, 0), &got));
		EXPECT_EQ(8, got.nr);
		EXPECT_TRUE(ut_stack_within(&got, &st));
		EXPECT_EQ(1, ut_count(&self->s, UT_RECORD_CALLCHAIN_DEFERRED, 0));
		EXPECT_EQ(0, ut_check(&self->s, 0));
		ut_close(&self->s);
	}
}

/* Each output event gets the record, cut at its own limit. */
TEST_F(limits, two_outputs)
{
	struct ut_opts opts = { .pages = 4, .no_output = true, .flags = UT_DEFER_OUTPUT };
	static const unsigned int max[] = { 3, 8 };
	struct ut_rec *r;
	struct ut_stack st;
	unsigned int i, k;
	int seen[2] = {};

	ASSERT_EQ(0, ut_open(&self->s, &opts));
	for (i = 0; i < 2; i++) {
		self->s.opts.max_stack = max[i];
		ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid"));
	}
	ASSERT_EQ(0, ut_profile_ladder(&self->s, 10, one_call, &st));
	EXPECT_EQ(2, ut_count(&self->s, UT_RECORD_CALLCHAIN_DEFERRED, 0));
	for (i = 0; i < self->s.nr_recs; i++) {
		r = &self->s.rec[i];
		for (k = 0; k < 2; k++)
			seen[k] += r->type == UT_RECORD_CALLCHAIN_DEFERRED && r->nr == max[k];
	}
	EXPECT_EQ(1, seen[0]);
	EXPECT_EQ(1, seen[1]);
}

/* Twice as many frames as fit into a record: header.size has 16 bits. */
static unsigned long deep[16384 * 2];

static void fill_deep(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(deep) - 2; i += 2) {
		deep[i] = (unsigned long)&deep[i + 2];
		deep[i + 1] = 0x400000 + i;
	}
}

/* The record of a sampled call on this stack. */
static struct ut_rec *deep_record(struct ut_session *s, const struct ut_opts *opts, long max)
{
	struct ut_rec *r;

	fill_deep();
	if (ut_write_sysctl(MAX_STACK, max) || ut_open(s, opts) ||
	    ut_add_tracepoint(s, "syscalls", "sys_enter_getppid") || ut_enable(s))
		return NULL;
	ut_syscall_on((unsigned long)deep, (unsigned long)deep, __NR_getppid, 0, 0, 0);
	if (ut_stop(s))
		return NULL;
	r = ut_sample(s, 0, 0, 0);
	return r ? ut_record_of(s, gettid(), r->cookie) : NULL;
}

TEST_F(limits, longest_record)
{
	struct ut_opts opts = { .pages = 64, .max_stack = 8192 };
	unsigned int i, room = (65535 - 24 - 32) / 8;
	struct ut_rec *r;

	r = deep_record(&self->s, &opts, 16384);
	ASSERT_NE(NULL, r);
	/* header, cookie, nr; tid, time, id, cpu */
	EXPECT_EQ(room, r->nr);
	EXPECT_EQ(8 * (3 + room + 4), r->size);
	for (i = 1; i < r->nr; i++)
		ASSERT_EQ(0x400000 + 2 * (i - 1), r->ips[i]);
}

/* An event that has no callchains to defer does not hold the limit of those that have. */
TEST_F(limits, event_without_callchains)
{
	struct perf_event_attr attr = {
		.type		= PERF_TYPE_SOFTWARE,
		.config		= PERF_COUNT_SW_CPU_CLOCK,
		.size		= UT_ATTR_SIZE,
		.sample_type	= PERF_SAMPLE_IP,
		.sample_period	= 1000000,
		.disabled	= 1,
	};
	struct ut_opts opts = { .pages = 4, .max_stack = 200 };
	struct ut_rec *r;
	int fd;

	*ut_attr_flags(&attr) |= UT_DEFER_CALLCHAIN;
	fd = ut_perf_open(&attr, 0, -1, -1, 0);
	ASSERT_LE(0, fd);
	r = deep_record(&self->s, &opts, 200);
	ASSERT_NE(NULL, r);
	EXPECT_EQ(200, r->nr);
	close(fd);
}

static void deep_pause(void *arg)
{
	ut_syscall_on((unsigned long)deep, (unsigned long)deep, __NR_pause, 0, 0, 0);
}

/* The record of a sleeping task is larger than the buffer, and is counted as lost. */
TEST_F(limits, longer_than_the_buffer)
{
	struct ut_opts opts = { .pages = 1, .max_stack = 1000 };
	__u64 samples, others = 0;
	struct ut_child c;

	fill_deep();
	ASSERT_EQ(0, ut_write_sysctl(MAX_STACK, 1000));
	ASSERT_EQ(0, ut_watch(&self->s, &opts, &c, deep_pause, NULL));
	ASSERT_EQ(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_pause"));
	ASSERT_EQ(0, ut_start(&self->s, &c));
	while (!others) {
		usleep(1000);
		ASSERT_EQ(0, ut_lost(&self->s, &samples, &others));
	}
	ASSERT_EQ(0, ut_stop(&self->s));
	ASSERT_EQ(0, ut_lost(&self->s, &samples, &others));
	EXPECT_EQ(1, ut_count_samples(&self->s, 0, c.pid));
	EXPECT_EQ(0, samples);
	EXPECT_EQ(1, others);
	EXPECT_EQ(0, ut_count(&self->s, UT_RECORD_CALLCHAIN_DEFERRED, c.pid));
	ut_end_child(&c);
}

/* The task is switched out between the two samples. */
static void nap(void *arg)
{
	struct timespec ts = { .tv_nsec = 300000000 };

	ut_syscall2(arg, __NR_nanosleep, &ts, NULL);
}

/* How many entries does the @nth record have? */
static __u64 entries(struct ut_session *s, unsigned int nth)
{
	size_t i;

	for (i = 0; i < s->nr_recs; i++) {
		if (s->rec[i].type == UT_RECORD_CALLCHAIN_DEFERRED && !nth--)
			return s->rec[i].nr;
	}
	return 0;
}

/*
 * After a switch the task is sampled again in the same entry, by an event with a larger,
 * smaller or equal limit. Each record has the limit of its own samples.
 */
TEST_F(limits, again_in_the_same_entry)
{
	static const char * const tps[] = { "sys_enter_nanosleep", "sys_exit_nanosleep" };
	static const unsigned int max[][2] = { { 3, 8 }, { 8, 3 }, { 8, 8 } };
	struct ut_rec *r[2];
	unsigned int n;
	int i;

	for (n = 0; n < ARRAY_SIZE(max); n++) {
		struct ut_opts opts = { .pages = 4, .switches = true };
		struct ut_stack st = {}, got;

		ASSERT_EQ(0, ut_open(&self->s, &opts));
		for (i = 0; i < 2; i++) {
			self->s.opts.max_stack = max[n][i];
			ASSERT_EQ(i, ut_add_tracepoint(&self->s, "syscalls", tps[i]));
		}
		ASSERT_EQ(0, ut_profile_ladder(&self->s, 10, nap, &st));
		for (i = 0; i < 2; i++) {
			r[i] = ut_sample(&self->s, i, 0, 0);
			ASSERT_NE(NULL, r[i]);
			EXPECT_EQ(max[n][i], entries(&self->s, i)) TH_LOG("%s", tps[i]);
			/* The longest record is the stack of both samples. */
			EXPECT_EQ(UT_DEFERRED, ut_user_stack(&self->s, r[i], &got));
			EXPECT_EQ(8, got.nr);
			EXPECT_TRUE(ut_stack_within(&got, &st));
		}
		EXPECT_EQ(r[0]->cookie, r[1]->cookie);
		EXPECT_EQ(2, ut_count(&self->s, UT_RECORD_CALLCHAIN_DEFERRED, 0));
		EXPECT_EQ(0, ut_check(&self->s, 0));
		ut_close(&self->s);
	}
}

/* An event without a limit has the limit of the sysctl, as it was when it was opened. */
TEST_F(limits, sysctl)
{
	static const int max[] = { 1, 16, 127, 200, 400 };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(max); i++) {
		struct ut_opts opts = { .pages = 4 };
		struct ut_stack st, got;
		int tp;

		ASSERT_EQ(0, ut_write_sysctl(MAX_STACK, max[i])) TH_LOG("%s", strerror(errno));
		ASSERT_EQ(0, ut_open(&self->s, &opts));
		tp = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid");
		ASSERT_EQ(0, ut_profile_ladder(&self->s, 300, one_call, &st));
		ASSERT_EQ(UT_DEFERRED,
			  ut_user_stack(&self->s, ut_sample(&self->s, tp, 0, 0), &got));
		EXPECT_EQ(max[i] < st.nr ? max[i] : st.nr, got.nr) TH_LOG("max %d", max[i]);
		EXPECT_TRUE(ut_stack_within(&got, &st));
		EXPECT_EQ(0, ut_check(&self->s, 0));
		ut_close(&self->s);
	}
}

int main(int argc, char **argv)
{
	ut_need_root();
	return test_harness_run(argc, argv);
}

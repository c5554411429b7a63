// SPDX-License-Identifier: GPL-2.0
/*
 * K20, K11: if another CPU disables an event, an interrupt hands out the pending stack of
 * the task that it interrupts. It can come between the request and the writing of the
 * sample, in the middle of a walk, or when the task is about to be preempted.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

#define MAX_STACK	"/proc/sys/kernel/perf_event_max_stack"

/* A chain of frames that takes long to walk. */
#define MOST_FRAMES	4000

static unsigned long chain[2 * MOST_FRAMES + 2];

static void make_chain(unsigned int frames, struct ut_stack *st)
{
	unsigned int i;

	for (i = 0; i < frames; i++) {
		chain[2 * i] = (unsigned long)&chain[2 * i + 2];
		chain[2 * i + 1] = 0x400000 + 16 * i;
	}
	chain[2 * i] = 0;
	chain[2 * i + 1] = 0;
	if (!st)
		return;
	st->nr = 0;
	st->ip[st->nr++] = (unsigned long)ut_syscall_on_ret;
	for (i = 0; i < frames; i++)
		st->ip[st->nr++] = chain[2 * i + 1];
}

struct caller {
	int		cpu;
	unsigned long	calls, allowed;
};

static void call_on(void *arg)
{
	struct caller *c = arg;

	if (ut_pin(0, c->cpu))
		_exit(99);
	for (;;) {
		while (c->calls == UT_READ(c->allowed))
			ut_relax();
		ut_syscall_on((unsigned long)chain, (unsigned long)chain, __NR_getppid, 0, 0, 0);
		__atomic_add_fetch(&c->calls, 1, __ATOMIC_RELEASE);
	}
}

FIXTURE(interrupt) {
	struct ut_session s;
	struct ut_child c, other;
	struct caller *caller;
	struct ut_stack want;
	long max;
};

FIXTURE_VARIANT(interrupt) {
	bool per_cpu;
};

FIXTURE_VARIANT_ADD(interrupt, task) {
	.per_cpu = false,
};

FIXTURE_VARIANT_ADD(interrupt, task_per_cpu) {
	.per_cpu = true,
};

FIXTURE_SETUP(interrupt)
{
	int cpus[UT_MAX_CPUS];
	unsigned int nr = ut_online_cpus(cpus, UT_MAX_CPUS);

	ASSERT_EQ(0, ut_read_sysctl(MAX_STACK, &self->max));
	if (nr < 2)
		SKIP(return, "needs two CPUs");
	self->caller = ut_shared(sizeof(*self->caller));
	ASSERT_NE(NULL, self->caller);
	self->caller->cpu = cpus[nr - 1];
	/* The interrupts come from this process, on another CPU. */
	ASSERT_EQ(0, ut_pin(0, cpus[0]));
}

FIXTURE_TEARDOWN(interrupt)
{
	ut_end_child(&self->c);
	ut_end_child(&self->other);
	ut_close(&self->s);
	ut_write_sysctl(MAX_STACK, self->max);
}

/* Start a caller, and open a session for it, with its system calls as event 0. */
static int watch(struct ut_session *s, struct ut_child *c, struct caller *caller, bool per_cpu,
		 unsigned int frames)
{
	struct ut_opts opts = {
		.per_cpu = per_cpu, .switches = true, .pages = 1024, .max_stack = frames + 1,
	};

	if (ut_write_sysctl(MAX_STACK, frames + 1) || ut_watch(s, &opts, c, call_on, caller))
		return -1;
	return ut_add_tracepoint(s, "syscalls", "sys_enter_getppid");
}

static void wait_for_calls(struct caller *c, unsigned int more)
{
	unsigned long from = UT_READ(c->calls);

	while (UT_READ(c->calls) < from + more && c->calls != c->allowed)
		usleep(500);
}

/* Allow so many calls, for which the buffer has room. */
static void allow_calls(struct caller *c, unsigned int more)
{
	__atomic_store_n(&c->allowed, UT_READ(c->calls) + more, __ATOMIC_RELEASE);
}

/* Open an event of the caller that has defer_output, but no buffer. */
static int open_output(pid_t pid)
{
	struct perf_event_attr attr = {
		.type		= PERF_TYPE_SOFTWARE,
		.size		= UT_ATTR_SIZE,
		.config		= PERF_COUNT_SW_DUMMY,
		.sample_id_all	= 1,
	};

	*ut_attr_flags(&attr) |= UT_DEFER_OUTPUT;
	return ut_perf_open(&attr, pid, -1, -1, 0);
}

/* Each disabling interrupts the caller. */
static int interrupt_often(int output)
{
	int i, err = 0;

	for (i = 0; i < 20; i++)
		err |= ioctl(output, PERF_EVENT_IOC_DISABLE, 0) ||
		       ioctl(output, PERF_EVENT_IOC_ENABLE, 0);
	return err;
}

/*
 * Delay the caller between the request and the writing of the sample: a breakpoint there
 * belongs to an event with a long, immediate stack. Interrupts are delayed by its walk, and
 * come right after it, at this place.
 */
static int open_delay(pid_t pid)
{
	struct perf_event_attr attr = {
		.type			= PERF_TYPE_BREAKPOINT,
		.size			= UT_ATTR_SIZE,
		.bp_type		= 4,	/* HW_BREAKPOINT_X */
		.bp_len			= sizeof(long),
		.sample_type		= PERF_SAMPLE_CALLCHAIN,
		.sample_period		= 1,
		.exclude_user		= 1,
		.exclude_callchain_kernel = 1,
	};
	__u64 start, end;

	if (ut_kernel_function("perf_output_begin_forward", &start, &end))
		return -1;
	attr.bp_addr = start;
	return ut_perf_open(&attr, pid, -1, -1, 0);
}

/*
 * If the interrupt comes between the request and the writing of the sample, the record
 * comes before the sample, and there is no other one. If the kernel samples with interrupts
 * off, the interrupt comes after the writing.
 */
TEST_F(interrupt, between_request_and_sample)
{
	unsigned int i, early = 0, samples = 0, n;
	struct ut_rec *r, *rec;
	int output, delay;

	make_chain(200, &self->want);
	ASSERT_EQ(0, watch(&self->s, &self->c, self->caller, variant->per_cpu, 200));
	output = open_output(self->c.pid);
	delay = open_delay(self->c.pid);
	ASSERT_LE(0, output);
	ASSERT_LE(0, delay) TH_LOG("%s", strerror(errno));
	ASSERT_EQ(0, ut_go(&self->c));
	for (n = 0; n < 5; n++) {
		ASSERT_EQ(0, ut_enable(&self->s));
		allow_calls(self->caller, 500);
		ASSERT_EQ(0, interrupt_often(output));
		wait_for_calls(self->caller, 1);
		ASSERT_EQ(0, ut_stop(&self->s));
		for (i = 0; (r = ut_sample(&self->s, 0, self->c.pid, i)); i++) {
			ASSERT_TRUE(ut_stack_is(&self->s, r, &self->want)) TH_LOG("sample %u", i);
			rec = ut_record_of(&self->s, self->c.pid, r->cookie);
			early += rec->ring == r->ring && rec->seq < r->seq;
			samples++;
		}
		EXPECT_EQ(i, ut_count(&self->s, UT_RECORD_CALLCHAIN_DEFERRED, self->c.pid));
		ASSERT_EQ(0, ut_check(&self->s, UT_ALLOW_EARLY));
		ut_forget(&self->s);
	}
	TH_LOG("%u of %u samples behind their record", early, samples);
	EXPECT_LT(0, samples);
	close(delay);
	close(output);
}

/* End a session. Do all samples have a record with the whole chain? */
static bool ends_whole(struct ut_session *s, pid_t tid, unsigned int allow, unsigned long *nr)
{
	struct ut_rec *r, *rec;
	__u64 k;
	int i;

	if (ut_stop(s))
		return false;
	for (i = 0; (r = ut_sample(s, 0, tid, i)); i++, ++*nr) {
		rec = r->cookie ? ut_record_of(s, tid, r->cookie) : NULL;
		if (!rec || rec->nr != MOST_FRAMES + 1) {
			ut_diag("sample %d: %s of %llu entries", i,
				rec ? "a record" : "no record", rec ? rec->nr : 0);
			return false;
		}
		for (k = 1; k < rec->nr; k++) {
			if (rec->ips[k] != 0x400000 + 16 * (k - 1)) {
				ut_diag("sample %d: entry %llu is %llx", i, k, rec->ips[k]);
				return false;
			}
		}
	}
	return !ut_check(s, allow);
}

/* Another CPU ends the session, often in the middle of a walk. No record is lost. */
TEST_F_TIMEOUT(interrupt, disable_in_the_walk, 200)
{
	unsigned long samples = 0;
	unsigned int round, spin;

	make_chain(MOST_FRAMES, NULL);
	ASSERT_EQ(0, watch(&self->s, &self->c, self->caller, variant->per_cpu, MOST_FRAMES));
	ASSERT_EQ(0, ut_go(&self->c));
	for (round = 0; round < 100; round++) {
		ASSERT_EQ(0, ut_enable(&self->s));
		allow_calls(self->caller, 60);
		wait_for_calls(self->caller, 1);
		/* Wait for another time in each round, to hit another point of the walk. */
		for (spin = round * 997 % 20000; spin; spin--)
			asm volatile("" : : : "memory");
		ASSERT_TRUE(ends_whole(&self->s, self->c.pid, 0, &samples))
			TH_LOG("round %u", round);
		ut_forget(&self->s);
	}
	TH_LOG("%lu samples", samples);
	EXPECT_LE(round, samples);
}

/*
 * Another event is disabled again and again. Its interrupts hand out the stack that the
 * task is just walking, and the task drops the frames of its own walk. Each sample still
 * has one record, with the whole chain.
 */
TEST_F_TIMEOUT(interrupt, hand_out_in_the_walk, 200)
{
	unsigned long samples = 0;
	unsigned int round;
	int output;

	make_chain(MOST_FRAMES, NULL);
	ASSERT_EQ(0, watch(&self->s, &self->c, self->caller, variant->per_cpu, MOST_FRAMES));
	output = open_output(self->c.pid);
	ASSERT_LE(0, output);
	ASSERT_EQ(0, ut_go(&self->c));
	for (round = 0; round < 20; round++) {
		ASSERT_EQ(0, ut_enable(&self->s));
		allow_calls(self->caller, 60);
		ASSERT_EQ(0, interrupt_often(output));
		wait_for_calls(self->caller, 1);
		/* Some records come before their samples. */
		ASSERT_TRUE(ends_whole(&self->s, self->c.pid, UT_ALLOW_EARLY, &samples))
			TH_LOG("round %u", round);
		EXPECT_EQ(ut_count_samples(&self->s, 0, self->c.pid),
			  ut_count(&self->s, UT_RECORD_CALLCHAIN_DEFERRED, self->c.pid));
		ut_forget(&self->s);
	}
	TH_LOG("%lu samples", samples);
	EXPECT_LE(round, samples);
	close(output);
}

/* The call that disables the event is sampled, and requests a stack. */
static void disable_output(void *arg)
{
	struct ut_session *s = arg;
	static struct ut_stack st;

	ut_syscall3(&st, __NR_ioctl, s->ring[0].fd, PERF_EVENT_IOC_DISABLE, 0);
}

TEST(own_stack)
{
	struct ut_opts opts = { .switches = true };
	struct ut_session s;
	struct ut_stack got;

	ASSERT_EQ(0, ut_open(&s, &opts));
	ASSERT_EQ(0, ut_add_tracepoint(&s, "syscalls", "sys_enter_ioctl"));
	ASSERT_EQ(0, ut_enable(&s));
	ASSERT_EQ(0, ut_drain(&s));
	ut_forget(&s);
	ASSERT_EQ(0, ut_ladder(6, disable_output, &s));
	ASSERT_EQ(0, ut_drain(&s));
	ASSERT_EQ(1, ut_count_samples(&s, 0, 0));
	ASSERT_EQ(UT_DEFERRED, ut_user_stack(&s, ut_sample(&s, 0, 0, 0), &got));
	EXPECT_TRUE(ut_is_ladder(&got, 6, 2));
	EXPECT_EQ(0, ut_check(&s, 0));
	ut_close(&s);
}

/* Another task wants the CPU while the stack is walked. */
TEST_F_TIMEOUT(interrupt, preemption_in_the_walk, 200)
{
	struct ut_preemptor p = { .cpu = self->caller->cpu, .pause_us = 500 };
	unsigned long samples = 0;
	unsigned int round;

	make_chain(MOST_FRAMES, NULL);
	ASSERT_EQ(0, ut_fork(&self->other, ut_preempt, &p));
	ASSERT_EQ(0, watch(&self->s, &self->c, self->caller, variant->per_cpu, MOST_FRAMES));
	ASSERT_EQ(0, ut_go(&self->other));
	ASSERT_EQ(0, ut_go(&self->c));
	for (round = 0; round < 20; round++) {
		ASSERT_EQ(0, ut_enable(&self->s));
		allow_calls(self->caller, 60);
		wait_for_calls(self->caller, 10);
		ASSERT_TRUE(ends_whole(&self->s, self->c.pid, 0, &samples))
			TH_LOG("round %u", round);
		ut_forget(&self->s);
	}
	TH_LOG("%lu samples", samples);
	EXPECT_LE(round, samples);
}

int main(int argc, char **argv)
{
	ut_need_root();
	return test_harness_run(argc, argv);
}

// SPDX-License-Identifier: GPL-2.0
/*
 * K19: the task changes its CPU between the sample and the kernel's exit, or the CPU goes
 * offline, or is not recorded. Each CPU has its own buffer. The record is in the buffer of
 * its sample, since it was written before the task left that CPU.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

FIXTURE(migrate) {
	struct ut_session s;
	int cpus[UT_MAX_CPUS];
	unsigned int nr_cpus;
};

FIXTURE_VARIANT(migrate) {
	bool all;
};

FIXTURE_VARIANT_ADD(migrate, task) {
	.all = false,
};

FIXTURE_VARIANT_ADD(migrate, all_tasks) {
	.all = true,
};

FIXTURE_SETUP(migrate)
{
	struct ut_opts opts = {
		.pid = variant->all ? -1 : 0, .per_cpu = true, .switches = true,
	};

	self->nr_cpus = ut_online_cpus(self->cpus, UT_MAX_CPUS);
	if (self->nr_cpus < 2)
		SKIP(return, "needs two CPUs");
	ASSERT_EQ(0, ut_open(&self->s, &opts));
}

FIXTURE_TEARDOWN(migrate)
{
	ut_close(&self->s);
}

struct move {
	struct ut_stack	st;
	cpu_set_t	to;
	long		ret;
};

static void move(void *arg)
{
	struct move *m = arg;

	m->ret = ut_syscall3(&m->st, __NR_sched_setaffinity, 0, sizeof(m->to), &m->to);
}

static void move_to(struct move *m, int cpu)
{
	CPU_ZERO(&m->to);
	CPU_SET(cpu, &m->to);
	ut_ladder(5, move, m);
}

TEST_F(migrate, in_the_entry)
{
	struct ut_rec *a, *b;
	int enter, exit, i;
	struct move m;

	enter = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_sched_setaffinity");
	exit = ut_add_tracepoint(&self->s, "syscalls", "sys_exit_sched_setaffinity");
	move_to(&m, self->cpus[0]);
	for (i = 0; i < 20; i++) {
		int from = i % self->nr_cpus, to = (i + 1) % self->nr_cpus;

		ASSERT_EQ(0, ut_enable(&self->s));
		move_to(&m, self->cpus[to]);
		ASSERT_EQ(0, m.ret);
		ASSERT_EQ(0, ut_stop(&self->s));
		a = ut_sample(&self->s, enter, gettid(), 0);
		b = ut_sample(&self->s, exit, gettid(), 0);
		ASSERT_NE(NULL, a);
		ASSERT_NE(NULL, b);
		ASSERT_EQ(self->cpus[from], self->s.ring[a->ring].cpu);
		ASSERT_EQ(self->cpus[to], self->s.ring[b->ring].cpu);
		EXPECT_EQ(a->cookie, b->cookie);
		ASSERT_TRUE(ut_stack_is(&self->s, a, &m.st));
		/* Each buffer with a sample has a record, too. */
		EXPECT_EQ(2, ut_count(&self->s, UT_RECORD_CALLCHAIN_DEFERRED, gettid()));
		EXPECT_EQ(0, ut_check(&self->s, 0));
		ut_forget(&self->s);
	}
}

/* Disable the session's events of one CPU. */
static int disable_cpu(struct ut_session *s, int cpu)
{
	unsigned int i, e;

	for (i = 0; i < s->nr_rings; i++) {
		if (s->ring[i].cpu != cpu)
			continue;
		for (e = 0; e < s->nr_events; e++) {
			if (ioctl(s->event[e].fd[i], PERF_EVENT_IOC_DISABLE, 0))
				return -1;
		}
		return ioctl(s->ring[i].fd, PERF_EVENT_IOC_DISABLE, 0);
	}
	return -1;
}

/*
 * Like perf record -C, or -C with -p: only one of two CPUs is recorded. The task moves to
 * it, or away from it, in a system call. Each sample still has its record.
 */
TEST_F(migrate, cpus_that_are_not_recorded)
{
	struct ut_rec *sample, *rec;
	int enter, exit, i, round;
	struct move m;

	enter = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_sched_setaffinity");
	exit = ut_add_tracepoint(&self->s, "syscalls", "sys_exit_sched_setaffinity");
	move_to(&m, self->cpus[0]);
	ASSERT_EQ(0, ut_enable(&self->s));
	for (i = 0; i < self->nr_cpus; i++) {
		if (i != 1)
			ASSERT_EQ(0, disable_cpu(&self->s, self->cpus[i]));
	}
	for (round = 0; round < 10; round++) {
		/* Move to the CPU that is recorded, and back again. */
		ASSERT_EQ(0, ut_drain(&self->s));
		ut_forget(&self->s);
		move_to(&m, self->cpus[!(round % 2)]);
		ASSERT_EQ(0, m.ret);
		ASSERT_EQ(0, ut_drain(&self->s));
		ASSERT_EQ(round % 2, ut_count_samples(&self->s, enter, gettid()));
		ASSERT_EQ(!(round % 2), ut_count_samples(&self->s, exit, gettid()));
		sample = ut_sample(&self->s, round % 2 ? enter : exit, gettid(), 0);
		ASSERT_TRUE(ut_stack_is(&self->s, sample, &m.st));
		rec = ut_record_of(&self->s, gettid(), sample->cookie);
		EXPECT_EQ(1, rec->ring);
		EXPECT_EQ(self->cpus[1], rec->cpu);
		EXPECT_EQ(getpid(), rec->pid);
		EXPECT_EQ(1, ut_count(&self->s, UT_RECORD_CALLCHAIN_DEFERRED, gettid()));
		EXPECT_EQ(0, ut_check(&self->s, UT_ALLOW_UNRESOLVED));
	}
	ut_disable(&self->s);
}

FIXTURE(migrate_threads) {
	struct ut_session s;
	int cpus[UT_MAX_CPUS];
	unsigned int nr_cpus;
};

FIXTURE_SETUP(migrate_threads)
{
	self->nr_cpus = ut_online_cpus(self->cpus, UT_MAX_CPUS);
}

FIXTURE_TEARDOWN(migrate_threads)
{
	ut_close(&self->s);
}

#define THREADS	8
#define ROUNDS	100

struct mover {
	pthread_t	id;
	pid_t		tid;
	int		nr;
	const int	*cpus;
	unsigned int	nr_cpus;
	struct ut_stack	st;
	struct move	m;
};

static pthread_barrier_t barrier;

static void one_call(void *arg)
{
	ut_syscall0(arg, __NR_getppid);
}

static void *mover(void *arg)
{
	struct mover *t = arg;
	int i;

	t->tid = gettid();
	pthread_barrier_wait(&barrier);
	/* The session is opened and enabled between the two barriers. */
	pthread_barrier_wait(&barrier);
	for (i = 0; i < ROUNDS; i++) {
		move_to(&t->m, t->cpus[(i + t->nr) % t->nr_cpus]);
		ut_ladder(3 + t->nr, one_call, &t->st);
	}
	return NULL;
}

/* Eight threads that move all the time. */
TEST_F(migrate_threads, all_around)
{
	static struct mover t[THREADS];
	struct ut_opts opts = {
		.pid = -1, .per_cpu = true, .switches = true, .pages = 1024,
	};
	int ppid, affinity, i;
	unsigned int k;

	pthread_barrier_init(&barrier, NULL, THREADS + 1);
	for (i = 0; i < THREADS; i++) {
		t[i].nr = i;
		t[i].cpus = self->cpus;
		t[i].nr_cpus = self->nr_cpus;
		ASSERT_EQ(0, pthread_create(&t[i].id, NULL, mover, &t[i]));
	}
	pthread_barrier_wait(&barrier);
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	ppid = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid");
	affinity = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_sched_setaffinity");
	ASSERT_EQ(0, ut_enable(&self->s));
	pthread_barrier_wait(&barrier);
	for (i = 0; i < THREADS; i++)
		ASSERT_EQ(0, pthread_join(t[i].id, NULL));
	ASSERT_EQ(0, ut_stop(&self->s));
	for (i = 0; i < THREADS; i++) {
		ASSERT_EQ(ROUNDS, ut_count_samples(&self->s, ppid, t[i].tid));
		ASSERT_EQ(ROUNDS, ut_count_samples(&self->s, affinity, t[i].tid));
		/* Each entry has one sample, and so one record. */
		ASSERT_EQ(2 * ROUNDS, ut_count(&self->s, UT_RECORD_CALLCHAIN_DEFERRED, t[i].tid));
		for (k = 0; k < ROUNDS; k += 7) {
			ASSERT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, ppid, t[i].tid, k),
						&t[i].st)) TH_LOG("thread %d, %u", i, k);
			ASSERT_TRUE(ut_stack_is(&self->s,
						ut_sample(&self->s, affinity, t[i].tid, k),
						&t[i].m.st)) TH_LOG("thread %d, %u", i, k);
		}
	}
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

FIXTURE(hotplug) {
	struct ut_session s;
	struct ut_child c;
	int cpus[UT_MAX_CPUS];
	unsigned int nr_cpus;
	int cpu;
};

FIXTURE_SETUP(hotplug)
{
	self->nr_cpus = ut_all_online(self->cpus, UT_MAX_CPUS);
	if (self->nr_cpus < 2)
		SKIP(return, "needs two CPUs");
	self->cpu = self->cpus[self->nr_cpus - 1];
}

FIXTURE_TEARDOWN(hotplug)
{
	ut_set_online(self->cpu, true);
	ut_close(&self->s);
}

struct hot {
	struct ut_stack	st;
	pid_t		tid;
	int		cpu;
	int		pipe[2];
	char		byte;
};

static void hot_read(void *arg)
{
	struct hot *h = arg;
	struct iovec iov = { &h->byte, 1 };

	/* Not read(), in which the child has waited for its start. */
	ut_syscall3(&h->st, __NR_readv, h->pipe[0], &iov, 1);
}

static void hot_child(void *arg)
{
	struct hot *h = arg;

	/* The task starts on this CPU, but need not stay: the CPU goes offline. */
	ut_pin(0, h->cpu);
	ut_ladder(6, hot_read, h);
}

/* The CPUs that are recorded. */
enum {
	ALL, THE_ONE, THE_OTHERS,
};

/*
 * A task was sampled on a CPU, and sleeps. The CPU goes offline. The record has been
 * written, and the buffer of the offline CPU can still be read. The task continues on
 * another CPU, and its next samples have their records.
 */
static void cpu_goes(struct __test_metadata *_metadata, struct ut_session *s,
		     struct ut_child *c, const int *cpus, unsigned int nr_cpus, int which,
		     bool all)
{
	struct ut_opts opts = { .pid = all ? -1 : 0, .per_cpu = true, .sideband = true };
	int cpu = cpus[nr_cpus - 1], enter, exit;
	struct ut_rec *r, *rec;
	unsigned int i;
	struct hot *h;

	h = ut_shared(sizeof(*h));
	ASSERT_NE(NULL, h);
	h->cpu = cpu;
	ASSERT_EQ(0, pipe(h->pipe));
	ASSERT_EQ(0, ut_watch(s, &opts, c, hot_child, h));
	enter = ut_add_tracepoint(s, "syscalls", "sys_enter_readv");
	exit = ut_add_tracepoint(s, "syscalls", "sys_exit_readv");
	ASSERT_EQ(0, ut_enable(s));
	for (i = 0; i < nr_cpus; i++) {
		if (which == (cpus[i] == cpu ? THE_OTHERS : THE_ONE))
			ASSERT_EQ(0, disable_cpu(s, cpus[i]));
	}
	ASSERT_EQ(0, ut_go(c));
	ASSERT_TRUE(ut_wait_asleep(c->pid, &h->st));
	ASSERT_EQ(0, ut_set_online(cpu, false)) TH_LOG("CONFIG_HOTPLUG_CPU?");
	ASSERT_EQ(0, ut_drain(s));
	r = ut_sample(s, enter, c->pid, 0);
	if (which == THE_OTHERS) {
		EXPECT_EQ(NULL, r);
	} else {
		ASSERT_TRUE(ut_stack_is(s, r, &h->st));
		rec = ut_record_of(s, c->pid, r->cookie);
		EXPECT_EQ(cpu, s->ring[r->ring].cpu);
		EXPECT_EQ(r->ring, rec->ring);
	}
	ASSERT_EQ(1, write(h->pipe[1], "x", 1));
	ASSERT_EQ(0, ut_wait(c));
	ASSERT_EQ(0, ut_stop(s));
	r = ut_sample(s, exit, c->pid, 0);
	EXPECT_EQ(which == THE_ONE, !r);
	if (r)
		EXPECT_TRUE(ut_stack_is(s, r, &h->st));
	EXPECT_EQ(0, ut_check(s, 0));
	ut_close(s);
	ASSERT_EQ(0, ut_set_online(cpu, true));
}

TEST_F(hotplug, cpu_goes_in_the_entry)
{
	int which, all;

	for (which = ALL; which <= THE_OTHERS; which++) {
		for (all = 0; all < 2; all++)
			cpu_goes(_metadata, &self->s, &self->c, self->cpus, self->nr_cpus, which,
				 all);
	}
}

static void hot_caller(void *arg)
{
	struct hot *h = arg;

	for (;;) {
		/* Move to the CPU that comes and goes, if it is online. */
		ut_pin(0, h->cpu);
		ut_ladder(6, one_call, &h->st);
	}
}

static int compare(const void *a, const void *b)
{
	__u64 x = *(const __u64 *)a, y = *(const __u64 *)b;

	return x < y ? -1 : x > y;
}

static unsigned int samples_on(struct ut_session *s, __u32 cpu)
{
	unsigned int nr = 0;
	size_t i;

	for (i = 0; i < s->nr_recs; i++)
		nr += s->rec[i].type == PERF_RECORD_SAMPLE && s->rec[i].cpu == cpu;
	return nr;
}

/* A CPU comes and goes while a task is profiled: cookies stay unique, no stack is lost. */
TEST_F(hotplug, cookies_across_hotplug)
{
	struct ut_opts opts = { .per_cpu = true, .sideband = true, .pages = 1024 };
	unsigned int samples, n, there;
	__u64 *cookies;
	struct hot *h;
	int tp, i;

	h = ut_shared(sizeof(*h));
	ASSERT_NE(NULL, h);
	h->cpu = self->cpu;
	ASSERT_EQ(0, ut_watch(&self->s, &opts, &self->c, hot_caller, h));
	tp = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid");
	ASSERT_EQ(0, ut_start(&self->s, &self->c));
	for (i = 0; i < 5; i++) {
		ASSERT_EQ(0, ut_set_online(self->cpu, false));
		usleep(50000);
		ASSERT_EQ(0, ut_drain(&self->s));
		ASSERT_EQ(0, ut_set_online(self->cpu, true));
		/* Until the task has come back to it. */
		there = samples_on(&self->s, self->cpu) + 3;
		do {
			usleep(5000);
			ASSERT_EQ(0, ut_drain(&self->s));
		} while (samples_on(&self->s, self->cpu) < there);
	}
	ASSERT_EQ(0, kill(self->c.pid, SIGKILL));
	ASSERT_EQ(SIGKILL, ut_wait(&self->c));
	ASSERT_EQ(0, ut_stop(&self->s));
	samples = ut_count_samples(&self->s, tp, self->c.pid);
	EXPECT_LT(10, samples);
	/* Each sample is of another system call. */
	cookies = calloc(samples, sizeof(*cookies));
	ASSERT_NE(NULL, cookies);
	for (i = 0, n = 0; i < (int)self->s.nr_recs; i++) {
		struct ut_rec *r = &self->s.rec[i];

		if (r->type != PERF_RECORD_SAMPLE)
			continue;
		cookies[n++] = r->cookie;
	}
	qsort(cookies, samples, sizeof(*cookies), compare);
	for (n = 1; n < samples; n++)
		ASSERT_NE(cookies[n - 1], cookies[n]);
	free(cookies);
	EXPECT_EQ(0, ut_check(&self->s, ut_allow_lost(&self->s) ?
			      UT_ALLOW_LOST | UT_ALLOW_UNRESOLVED : 0));
}

int main(int argc, char **argv)
{
	ut_need_root();
	return test_harness_run(argc, argv);
}

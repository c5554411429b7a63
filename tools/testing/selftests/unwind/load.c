// SPDX-License-Identifier: GPL-2.0
/*
 * A thousand tasks with a hundred events each, and CPUs that go offline while they are
 * recorded. Each sample has its record, or the kernel counts the record as lost. The sums
 * match the number of system calls.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

#define TASKS		1000
#define EVENTS		100
#define CALLS		2	/* system calls of each task, each with a stack */
/* The number of tasks with KASAN or KCSAN, where a sample takes milliseconds. */
#define FEW_TASKS	50
/* After OPEN_SECONDS, open no more events if these tasks have theirs. */
#define LEAST_TASKS	20
#define OPEN_SECONDS	60
#define ROOMY_PAGES	32	/* a buffer with room for all samples of a task */
#define TIGHT_PAGES	2	/* a buffer that is too small for them */

static __u64 now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000ULL + ts.tv_nsec / 1000000;
}

struct task {
	pid_t		tid;
	struct ut_stack	st;
	/* the profiler's events for this task, and their buffer */
	int		leader, fd[EVENTS];
	struct ut_ring	ring;
};

struct shared {
	int		go[2];		/* a pipe, with a byte for each task */
	int		ready, done;
	int		cpu, stop;
	unsigned long	rounds;
	struct task	task[TASKS];
};

static struct shared *sh;

static void one_call(void *arg)
{
	struct task *t = arg;

	ut_syscall0(&t->st, __NR_getppid);
}

static void *caller(void *arg)
{
	struct task *t = arg;
	char byte;
	int i;

	t->tid = gettid();
	__atomic_add_fetch(&sh->ready, 1, __ATOMIC_RELEASE);
	if (read(sh->go[0], &byte, 1) != 1)
		return NULL;
	/* The stack is the same for each call. */
	for (i = 0; i < CALLS; i++) {
		ut_ladder(t->tid % 8, one_call, t);
		sched_yield();
	}
	__atomic_add_fetch(&sh->done, 1, __ATOMIC_RELEASE);
	while (pause())
		;
	return NULL;
}

static void callers(void *arg)
{
	pthread_attr_t attr;
	int *nr_tasks = arg;
	pthread_t id;
	int i;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, PTHREAD_STACK_MIN + 16384);
	for (i = 0; i < *nr_tasks; i++) {
		if (pthread_create(&id, &attr, caller, &sh->task[i]))
			_exit(1);
	}
	for (;;)
		pause();
}

FIXTURE(load) {
	struct ut_child c;
	struct ut_session s;
	int nr_tasks, least_tasks;
};

FIXTURE_SETUP(load)
{
	struct rlimit files = {
		.rlim_cur = TASKS * (EVENTS + 1) + 1000, .rlim_max = TASKS * (EVENTS + 1) + 1000,
	};

	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &files)) TH_LOG("%s", strerror(errno));
	sh = ut_shared(sizeof(*sh));
	ASSERT_NE(NULL, sh);
	ASSERT_EQ(0, pipe(sh->go));
	self->nr_tasks = TASKS;
	self->least_tasks = TASKS;
	if (ut_kernel_checks_itself()) {
		self->nr_tasks = FEW_TASKS;
		self->least_tasks = LEAST_TASKS;
	}
	ASSERT_EQ(0, ut_fork(&self->c, callers, &self->nr_tasks));
	ASSERT_EQ(0, ut_go(&self->c));
	while (UT_READ(sh->ready) < self->nr_tasks)
		usleep(10000);
}

FIXTURE_TEARDOWN(load)
{
	ut_end_child(&self->c);
}

/* Open a group: an event with defer_output, and the sampling events. */
static int open_events(struct task *t, int tp, unsigned int pages)
{
	struct perf_event_attr attr = {
		.type		= PERF_TYPE_SOFTWARE,
		.size		= UT_ATTR_SIZE,
		.config		= PERF_COUNT_SW_DUMMY,
		.sample_type	= UT_SAMPLE_TYPE & ~(PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN),
		.sample_period	= 1,
		.read_format	= PERF_FORMAT_LOST,
		.disabled	= 1,
		.sample_id_all	= 1,
	};
	int i;

	*ut_attr_flags(&attr) |= UT_DEFER_OUTPUT;
	t->leader = ut_perf_open(&attr, t->tid, -1, -1, 0);
	if (t->leader < 0 || ut_ring_map(&t->ring, t->leader, pages))
		return -1;
	*ut_attr_flags(&attr) &= ~UT_DEFER_OUTPUT;
	*ut_attr_flags(&attr) |= UT_DEFER_CALLCHAIN;
	attr.disabled = 0;
	attr.exclude_callchain_kernel = 1;
	attr.type = PERF_TYPE_TRACEPOINT;
	attr.config = tp;
	attr.sample_type = UT_SAMPLE_TYPE;
	for (i = 0; i < EVENTS; i++) {
		t->fd[i] = ut_perf_open(&attr, t->tid, -1, t->leader, 0);
		if (t->fd[i] < 0 || ioctl(t->fd[i], PERF_EVENT_IOC_SET_OUTPUT, t->leader)) {
			ut_diag("event %d: %s", i, strerror(errno));
			return -1;
		}
	}
	return 0;
}

static __u64 lost_of(int fd)
{
	__u64 val[2] = {};

	if (read(fd, val, sizeof(val)) != sizeof(val))
		ut_diag("read: %s", strerror(errno));
	return val[1];
}

struct sums {
	unsigned long	samples, lost_samples, merged, records, lost_records, missing;
};

/* Are all sums of one task exact? */
static bool check_task(struct ut_session *s, struct task *t, struct sums *sum)
{
	unsigned long samples, records, lost_samples = 0, lost_records, missing = 0;
	struct ut_stack got;
	__u64 cookies[CALLS];
	unsigned int nr = 0, i, k;
	struct ut_rec *r;

	s->nr_rings = 1;
	s->ring[0] = t->ring;
	s->opts.sample_type = UT_SAMPLE_TYPE;
	if (ut_drain(s))
		return false;
	samples = ut_count(s, PERF_RECORD_SAMPLE, t->tid);
	records = ut_count(s, UT_RECORD_CALLCHAIN_DEFERRED, t->tid);
	for (i = 0; i < EVENTS; i++)
		lost_samples += lost_of(t->fd[i]);
	lost_records = lost_of(t->leader);
	if (samples + lost_samples != CALLS * EVENTS || records + lost_records != CALLS) {
		ut_diag("tid %u: %lu samples and %lu lost, %lu records and %lu lost", t->tid,
			samples, lost_samples, records, lost_records);
		return false;
	}
	for (i = 0; (r = ut_sample(s, -1, t->tid, i)); i++) {
		for (k = 0; k < nr && cookies[k] != r->cookie; k++)
			;
		if (k == nr) {
			if (!r->cookie || nr == CALLS) {
				ut_diag("tid %u: no cookie, or too many of them", t->tid);
				return false;
			}
			cookies[nr++] = r->cookie;
			if (ut_user_stack(s, r, &got) != UT_DEFERRED)
				missing++;
			else if (!ut_same_stack(&got, &t->st))
				return false;
		}
		sum->merged += !!ut_record_of(s, t->tid, r->cookie);
	}
	/* If all samples of a record are lost, it does not count as missing. */
	if (missing > lost_records) {
		ut_diag("tid %u: %lu stacks missing, %lu lost", t->tid, missing, lost_records);
		return false;
	}
	sum->samples += samples;
	sum->lost_samples += lost_samples;
	sum->records += records;
	sum->lost_records += lost_records;
	sum->missing += missing;
	k = !ut_check(s, UT_ALLOW_UNRESOLVED | UT_ALLOW_LOST);
	ut_forget(s);
	return k;
}

TEST_F_TIMEOUT(load, tasks_by_events, 290)
{
	__u64 start = now_ms();
	struct sums sum = {};
	int tp, nr, i;

	tp = ut_tracepoint_id("syscalls", "sys_enter_getppid");
	ASSERT_LE(0, tp);
	for (nr = 0; nr < self->nr_tasks; nr++) {
		if (nr >= self->least_tasks && now_ms() - start >= OPEN_SECONDS * 1000)
			break;
		ASSERT_EQ(0, open_events(&sh->task[nr], tp, nr % 4 ? ROOMY_PAGES : TIGHT_PAGES))
			TH_LOG("task %d: %s", nr, strerror(errno));
	}
	TH_LOG("%d tasks of %d, %d events each, %d calls, opened in %llu ms", nr,
	       self->nr_tasks, EVENTS, CALLS, now_ms() - start);
	for (i = 0; i < nr; i++)
		ASSERT_EQ(0, ioctl(sh->task[i].leader, PERF_EVENT_IOC_ENABLE, 0));
	TH_LOG("enabled %llu ms after the start", now_ms() - start);
	for (i = 0; i < self->nr_tasks; i++)
		ASSERT_EQ(1, write(sh->go[1], "g", 1));
	while (UT_READ(sh->done) < self->nr_tasks)
		usleep(10000);
	for (i = 0; i < nr; i++)
		ASSERT_EQ(0, ioctl(sh->task[i].leader, PERF_EVENT_IOC_DISABLE, 0));
	TH_LOG("recorded %llu ms after the start", now_ms() - start);
	for (i = 0; i < nr; i++)
		ASSERT_TRUE(check_task(&self->s, &sh->task[i], &sum)) TH_LOG("task %d", i);

	TH_LOG("%lu samples, %lu merged, %lu lost; %lu records, %lu lost, %lu of them missed",
	       sum.samples, sum.merged, sum.lost_samples, sum.records, sum.lost_records,
	       sum.missing);
	EXPECT_EQ(nr * CALLS * EVENTS, sum.samples + sum.lost_samples);
	EXPECT_EQ(nr * CALLS, sum.records + sum.lost_records);
	/* Three of four buffers have room for all records. */
	EXPECT_LE(nr * CALLS / 4 * 3, sum.records);
	EXPECT_LT(0, sum.lost_samples);
	TH_LOG("checked %llu ms after the start", now_ms() - start);
}

#define THREADS		8
#define LEAST_ROUNDS	100
#define PLUGS		5

FIXTURE(plugged) {
	struct ut_session s;
	struct ut_child c;
	int cpus[UT_MAX_CPUS];
	unsigned int nr_cpus;
	int cpu;
};

FIXTURE_VARIANT(plugged) {
	bool all;
};

FIXTURE_VARIANT_ADD(plugged, tasks) {
	.all = false,
};

FIXTURE_VARIANT_ADD(plugged, all_cpus) {
	.all = true,
};

static void sleep_call(void *arg)
{
	struct timespec ts = { .tv_nsec = 500000 };

	/* It may wake up on another CPU. */
	ut_syscall2(arg, __NR_nanosleep, &ts, NULL);
}

static void *sleeper(void *arg)
{
	struct ut_stack st;
	int i;

	for (i = 0; !UT_READ(sh->stop); i++) {
		/* Move to one of the CPUs, or to the one that comes and goes, if it is online. */
		ut_pin(0, i % 4 ? rand() % 8 : sh->cpu);
		ut_ladder(i % 9, sleep_call, &st);
		ut_ladder(i % 9, one_call, arg);
		__atomic_add_fetch(&sh->rounds, 1, __ATOMIC_RELEASE);
		poll(NULL, 0, 20);
	}
	return NULL;
}

static void sleepers(void *arg)
{
	pthread_t id[THREADS];
	int i;

	for (i = 0; i < THREADS; i++) {
		if (pthread_create(&id[i], NULL, sleeper, &sh->task[i]))
			_exit(1);
	}
	for (i = 0; i < THREADS; i++)
		pthread_join(id[i], NULL);
}

FIXTURE_SETUP(plugged)
{
	self->nr_cpus = ut_all_online(self->cpus, UT_MAX_CPUS);
	if (self->nr_cpus < 2)
		SKIP(return, "needs two CPUs");
	self->cpu = self->cpus[self->nr_cpus - 1];
	if (ut_set_online(self->cpu, true))
		SKIP(return, "needs a CPU that can be taken away");
	sh = ut_shared(sizeof(*sh));
	ASSERT_NE(NULL, sh);
	sh->cpu = self->cpu;
	ASSERT_EQ(0, ut_fork(&self->c, sleepers, NULL));
}

FIXTURE_TEARDOWN(plugged)
{
	ut_set_online(self->cpu, true);
	ut_close(&self->s);
}

/* The CPU goes offline and comes back while all tasks are recorded. */
TEST_F_TIMEOUT(plugged, while_recording, 200)
{
	struct ut_opts opts = { .per_cpu = true, .switches = true, .pages = 2048 };
	static const char * const tps[] = {
		"sys_enter_nanosleep", "sys_exit_nanosleep", "sys_enter_getppid",
		/* In this call a task moves to another CPU for sure. */
		"sys_enter_sched_setaffinity",
	};
	unsigned long samples = 0, missing = 0;
	__u64 lost_samples, lost_records;
	struct ut_rec *r;
	unsigned int i;

	opts.pid = variant->all ? -1 : self->c.pid;
	opts.inherit = !variant->all;
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	for (i = 0; i < ARRAY_SIZE(tps); i++)
		ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", tps[i]));
	ASSERT_EQ(0, ut_start(&self->s, &self->c));
	for (i = 0; i < PLUGS || UT_READ(sh->rounds) < LEAST_ROUNDS; i++) {
		ASSERT_EQ(0, ut_set_online(self->cpu, false));
		usleep(30000);
		ASSERT_EQ(0, ut_drain(&self->s));
		ASSERT_EQ(0, ut_set_online(self->cpu, true));
		usleep(60000);
		ASSERT_EQ(0, ut_drain(&self->s));
	}
	sh->stop = 1;
	ASSERT_EQ(0, ut_wait(&self->c));
	ASSERT_EQ(0, ut_stop(&self->s));

	/* The buffers have room for all records. */
	EXPECT_EQ(0, self->s.lost);
	if (!variant->all) {
		ASSERT_EQ(0, ut_lost(&self->s, &lost_samples, &lost_records));
		EXPECT_EQ(0, lost_samples);
		EXPECT_EQ(0, lost_records);
		for (i = 0; i < ARRAY_SIZE(tps); i++)
			EXPECT_EQ(sh->rounds, ut_count_samples(&self->s, i, 0));
	}
	for (i = 0; i < self->s.nr_recs; i++) {
		r = &self->s.rec[i];
		if (r->type != PERF_RECORD_SAMPLE)
			continue;
		samples++;
		missing += !r->cookie || !ut_record_of(&self->s, r->tid, r->cookie);
	}
	TH_LOG("%lu samples, %u records, %lu samples without one", samples,
	       ut_count(&self->s, UT_RECORD_CALLCHAIN_DEFERRED, 0), missing);
	EXPECT_LT(LEAST_ROUNDS, samples);
	EXPECT_EQ(0, missing);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

int main(int argc, char **argv)
{
	ut_need_root();
	return test_harness_run(argc, argv);
}

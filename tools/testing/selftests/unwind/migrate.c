// SPDX-License-Identifier: GPL-2.0
/*
 * K19: the task changes its CPU between the sample and the way out, or the CPU goes
 * away. There is a buffer a CPU; sample and record are in different ones.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
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
	struct ut_opts opts = { .pid = variant->all ? -1 : 0, .per_cpu = true };

	memset(&self->s, 0, sizeof(self->s));
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
	struct ut_rec *a, *b, *rec;
	int enter, exit, i;
	struct move m;

	enter = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_sched_setaffinity");
	exit = ut_add_tracepoint(&self->s, "syscalls", "sys_exit_sched_setaffinity");
	ASSERT_LE(0, enter);
	ASSERT_LE(0, exit);
	move_to(&m, self->cpus[0]);
	ASSERT_EQ(0, ut_enable(&self->s));
	for (i = 0; i < 20; i++) {
		int from = i % self->nr_cpus, to = (i + 1) % self->nr_cpus;

		ASSERT_EQ(0, ut_drain(&self->s));
		ut_forget(&self->s);
		move_to(&m, self->cpus[to]);
		ASSERT_EQ(0, m.ret);
		ASSERT_EQ(0, ut_drain(&self->s));
		a = ut_sample(&self->s, enter, gettid(), 0);
		b = ut_sample(&self->s, exit, gettid(), 0);
		ASSERT_NE(NULL, a);
		ASSERT_NE(NULL, b);
		ASSERT_EQ(self->cpus[from], self->s.ring[a->ring].cpu);
		ASSERT_EQ(self->cpus[to], self->s.ring[b->ring].cpu);
		EXPECT_EQ(a->cookie, b->cookie);
		ASSERT_TRUE(ut_stack_is(&self->s, a, &m.st));
		rec = ut_record_of(&self->s, gettid(), a->cookie);
		ASSERT_NE(NULL, rec);
		EXPECT_EQ(self->cpus[to], self->s.ring[rec->ring].cpu);
		EXPECT_EQ(self->cpus[to], rec->cpu);
		EXPECT_EQ(0, ut_check(&self->s, 0));
	}
	ut_disable(&self->s);
}

/* The session's events of one CPU record nothing. */
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

/* How often have the other CPUs been interrupted to call a function there? -1: not said. */
static long calls_elsewhere(int here)
{
	FILE *f = fopen("/proc/interrupts", "r");
	char line[4096], *word, *end;
	int cpu[UT_MAX_CPUS], nr = 0, i;
	long all = -1, calls;

	if (!f)
		return -1;
	/* The columns first. */
	if (fgets(line, sizeof(line), f)) {
		for (word = line; nr < UT_MAX_CPUS && (word = strstr(word, "CPU")); word += 3)
			cpu[nr++] = atoi(word + 3);
	}
	while (all < 0 && fgets(line, sizeof(line), f)) {
		word = strstr(line, "CAL:");
		if (!word)
			continue;
		all = 0;
		for (i = 0, word += 4; i < nr; i++, word = end) {
			calls = strtol(word, &end, 10);
			if (cpu[i] != here)
				all += calls;
		}
	}
	fclose(f);
	return all;
}

/* Whoever may open an event of a CPU may not have it interrupted without end. */
TEST_F(migrate, no_buffer_elsewhere)
{
	int here = self->cpus[0], i, tp;
	long before, after;
	struct move m;

	tp = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid");
	ASSERT_LE(0, tp);
	move_to(&m, here);
	ASSERT_EQ(0, m.ret);
	ASSERT_EQ(0, ut_enable(&self->s));
	for (i = 0; i < self->s.nr_rings; i++) {
		if (self->s.ring[i].cpu != here) {
			ut_ring_unmap(&self->s.ring[i]);
			continue;
		}
		ASSERT_EQ(0, ioctl(self->s.ring[i].fd, PERF_EVENT_IOC_DISABLE, 0));
	}
	before = calls_elsewhere(here);
	ASSERT_LE(0, before);
	for (i = 0; i < 1000; i++)
		syscall(__NR_getppid);
	after = calls_elsewhere(here);
	TH_LOG("%ld calls on other CPUs", after - before);
	EXPECT_GT(500, after - before);
	ut_disable(&self->s);
	ASSERT_EQ(0, ut_drain(&self->s));
	EXPECT_LE(500, ut_count_samples(&self->s, tp, gettid()));
}

#define CALLS	1000

static void call_ppid(void *arg)
{
	int i, *done = arg;

	for (i = 0; i < CALLS; i++)
		syscall(__NR_getppid);
	__atomic_store_n(done, 1, __ATOMIC_RELEASE);
	for (;;)
		pause();
}

/* Nor a CPU that a cpuset keeps the task from, by an event of the task for it. */
TEST(kept_from_the_cpu)
{
	struct ut_opts opts = { .per_cpu = true };
	int *done = ut_shared(sizeof(*done));
	int cpus[UT_MAX_CPUS], i, tp;
	struct ut_cgroup group;
	__u64 samples, others;
	struct ut_session s;
	struct ut_child c;
	long before, after;

	if (ut_online_cpus(cpus, UT_MAX_CPUS) < 2)
		SKIP(return, "needs two CPUs");
	memset(&s, 0, sizeof(s));
	ASSERT_NE(NULL, done);
	ASSERT_EQ(0, ut_fork(&c, call_ppid, done));
	ASSERT_EQ(0, ut_cgroup(&group, c.pid));
	ASSERT_EQ(0, ut_cgroup_cpu(&group, cpus[0]));
	opts.pid = c.pid;
	ASSERT_EQ(0, ut_open(&s, &opts));
	tp = ut_add_tracepoint(&s, "syscalls", "sys_enter_getppid");
	ASSERT_LE(0, tp);
	ASSERT_EQ(0, ut_enable(&s));
	for (i = 0; i < s.nr_rings; i++) {
		if (s.ring[i].cpu == cpus[0])
			ASSERT_EQ(0, ioctl(s.ring[i].fd, PERF_EVENT_IOC_DISABLE, 0));
	}
	before = calls_elsewhere(cpus[0]);
	ASSERT_LE(0, before);
	ASSERT_EQ(0, ut_go(&c));
	while (!UT_READ(*done))
		usleep(1000);
	after = calls_elsewhere(cpus[0]);
	TH_LOG("%ld calls on other CPUs", after - before);
	EXPECT_GT(CALLS / 2, after - before);
	ut_disable(&s);
	ASSERT_EQ(0, ut_drain(&s));
	EXPECT_LE(CALLS / 2, ut_count_samples(&s, tp, c.pid));
	/* What none of them takes is counted. */
	ASSERT_EQ(0, ut_lost(&s, &samples, &others));
	EXPECT_EQ(ut_count_samples(&s, tp, c.pid) + samples,
		  ut_count(&s, UT_RECORD_CALLCHAIN_DEFERRED, c.pid) + others)
		TH_LOG("%llu samples and %llu records are lost", samples, others);
	kill(c.pid, SIGKILL);
	ut_wait(&c);
	ut_close(&s);
	ut_cgroup_end(&group);
}

/* As perf record -C, or -C with -p: where the task leaves the kernel the session has no event. */
TEST_F(migrate, to_a_cpu_that_is_not_recorded)
{
	struct ut_rec *sample, *rec;
	struct move m;
	int enter, i;

	enter = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_sched_setaffinity");
	ASSERT_LE(0, enter);
	ASSERT_EQ(0, ut_enable(&self->s));
	ASSERT_EQ(0, disable_cpu(&self->s, self->cpus[0]));
	for (i = 0; i < 5; i++) {
		/* Unseen, and seen. */
		move_to(&m, self->cpus[1]);
		ASSERT_EQ(0, m.ret);
		ASSERT_EQ(0, ut_drain(&self->s));
		ut_forget(&self->s);
		move_to(&m, self->cpus[0]);
		ASSERT_EQ(0, m.ret);
		ASSERT_EQ(0, ut_drain(&self->s));
		ASSERT_EQ(1, ut_count_samples(&self->s, enter, gettid()));
		sample = ut_sample(&self->s, enter, gettid(), 0);
		ASSERT_EQ(self->cpus[1], self->s.ring[sample->ring].cpu);
		ASSERT_TRUE(ut_stack_is(&self->s, sample, &m.st));
		rec = ut_record_of(&self->s, gettid(), sample->cookie);
		ASSERT_NE(NULL, rec);
		EXPECT_NE(self->cpus[0], self->s.ring[rec->ring].cpu);
		EXPECT_EQ(getpid(), rec->pid);
		EXPECT_EQ(1, ut_count(&self->s, UT_RECORD_CALLCHAIN_DEFERRED, gettid()));
		EXPECT_EQ(0, ut_check(&self->s, 0));
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
	memset(&self->s, 0, sizeof(self->s));
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
	/* The session is being opened and enabled. */
	pthread_barrier_wait(&barrier);
	for (i = 0; i < ROUNDS; i++) {
		move_to(&t->m, t->cpus[(i + t->nr) % t->nr_cpus]);
		ut_ladder(3 + t->nr, one_call, &t->st);
	}
	return NULL;
}

/* Eight threads that never stay. */
TEST_F_TIMEOUT(migrate_threads, all_around, 120)
{
	static struct mover t[THREADS];
	struct ut_opts opts = { .pid = -1, .per_cpu = true, .pages = 1024 };
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
	ASSERT_LE(0, ppid);
	ASSERT_LE(0, affinity);
	ASSERT_EQ(0, ut_enable(&self->s));
	pthread_barrier_wait(&barrier);
	for (i = 0; i < THREADS; i++)
		ASSERT_EQ(0, pthread_join(t[i].id, NULL));
	ut_disable(&self->s);
	ASSERT_EQ(0, ut_drain(&self->s));
	for (i = 0; i < THREADS; i++) {
		ASSERT_EQ(ROUNDS, ut_count_samples(&self->s, ppid, t[i].tid));
		ASSERT_EQ(ROUNDS, ut_count_samples(&self->s, affinity, t[i].tid));
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
	memset(&self->s, 0, sizeof(self->s));
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

	ut_syscall3(&h->st, __NR_read, h->pipe[0], &h->byte, 1);
}

static void hot_child(void *arg)
{
	struct hot *h = arg;
	cpu_set_t set;

	/* Where it starts, not where it must stay: the CPU goes away under it. */
	CPU_ZERO(&set);
	CPU_SET(h->cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
	ut_ladder(6, hot_read, h);
}

/* The sample was taken on a CPU that is gone when the task leaves the kernel. */
TEST_F_TIMEOUT(hotplug, cpu_goes_in_the_entry, 60)
{
	struct ut_opts opts = { .per_cpu = true };
	struct ut_rec *r, *rec;
	struct hot *h;
	int tp;

	h = ut_shared(sizeof(*h));
	ASSERT_NE(NULL, h);
	h->cpu = self->cpu;
	ASSERT_EQ(0, pipe(h->pipe));
	ASSERT_EQ(0, ut_fork(&self->c, hot_child, h));
	opts.pid = self->c.pid;
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	tp = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_read");
	ASSERT_LE(0, tp);
	ASSERT_EQ(0, ut_enable(&self->s));
	ASSERT_EQ(0, ut_go(&self->c));
	while (!UT_READ(h->st.nr))
		usleep(1000);
	ASSERT_TRUE(ut_wait_state(self->c.pid, "S"));
	ASSERT_EQ(0, ut_set_online(self->cpu, false)) TH_LOG("CONFIG_HOTPLUG_CPU?");
	ASSERT_EQ(1, write(h->pipe[1], "x", 1));
	ASSERT_EQ(0, ut_wait(&self->c));
	ut_disable(&self->s);
	ASSERT_EQ(0, ut_drain(&self->s));
	r = ut_sample(&self->s, tp, self->c.pid, 0);
	ASSERT_TRUE(ut_stack_is(&self->s, r, &h->st));
	rec = ut_record_of(&self->s, self->c.pid, r->cookie);
	ASSERT_NE(NULL, rec);
	EXPECT_EQ(self->cpu, self->s.ring[r->ring].cpu);
	EXPECT_NE(self->cpu, self->s.ring[rec->ring].cpu);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* An event of a CPU that is gone gets the stacks of those who sleep, too. */
TEST_F_TIMEOUT(hotplug, cpu_is_gone_at_the_end, 60)
{
	struct ut_opts opts = { .pid = -1, .per_cpu = true };
	struct ut_rec *r, *rec;
	struct hot *h;
	int tp;

	h = ut_shared(sizeof(*h));
	ASSERT_NE(NULL, h);
	h->cpu = self->cpu;
	ASSERT_EQ(0, pipe(h->pipe));
	ASSERT_EQ(0, ut_fork(&self->c, hot_child, h));
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	tp = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_read");
	ASSERT_LE(0, tp);
	ASSERT_EQ(0, ut_enable(&self->s));
	ASSERT_EQ(0, ut_go(&self->c));
	while (!UT_READ(h->st.nr))
		usleep(1000);
	ASSERT_TRUE(ut_wait_state(self->c.pid, "S"));
	ASSERT_EQ(0, ut_set_online(self->cpu, false)) TH_LOG("CONFIG_HOTPLUG_CPU?");
	ASSERT_EQ(self->cpu, self->s.ring[self->nr_cpus - 1].cpu);
	ASSERT_EQ(0, ioctl(self->s.ring[self->nr_cpus - 1].fd, PERF_EVENT_IOC_DISABLE, 0));
	ut_disable(&self->s);
	ASSERT_EQ(0, ut_drain(&self->s));
	r = ut_sample(&self->s, tp, self->c.pid, 0);
	ASSERT_TRUE(ut_stack_is(&self->s, r, &h->st));
	rec = ut_record_of(&self->s, self->c.pid, r->cookie);
	ASSERT_NE(NULL, rec);
	EXPECT_EQ(self->cpu, self->s.ring[rec->ring].cpu);
	ASSERT_EQ(1, write(h->pipe[1], "x", 1));
	ASSERT_EQ(0, ut_wait(&self->c));
}

FIXTURE(hotplug_alone) {
	struct ut_session s;
	struct ut_child c;
	int cpus[UT_MAX_CPUS];
	unsigned int nr_cpus;
	int cpu;
};

FIXTURE_VARIANT(hotplug_alone) {
	bool all;	/* an event of the CPU, not of the task there */
	bool back;	/* the CPU is there again when the task goes on */
};

FIXTURE_VARIANT_ADD(hotplug_alone, task) {
	.all = false,
};

FIXTURE_VARIANT_ADD(hotplug_alone, task_and_back) {
	.back = true,
};

FIXTURE_VARIANT_ADD(hotplug_alone, all_tasks) {
	.all = true,
};

FIXTURE_VARIANT_ADD(hotplug_alone, all_tasks_and_back) {
	.all = true, .back = true,
};

FIXTURE_SETUP(hotplug_alone)
{
	memset(&self->s, 0, sizeof(self->s));
	self->nr_cpus = ut_all_online(self->cpus, UT_MAX_CPUS);
	if (self->nr_cpus < 2)
		SKIP(return, "needs two CPUs");
	self->cpu = self->cpus[self->nr_cpus - 1];
}

FIXTURE_TEARDOWN(hotplug_alone)
{
	ut_set_online(self->cpu, true);
	ut_close(&self->s);
}

/* Of all CPUs only the one that goes away is recorded: its buffer gets the stack. */
TEST_F_TIMEOUT(hotplug_alone, record, 60)
{
	struct ut_opts opts = { .per_cpu = true };
	struct ut_rec *r, *rec;
	unsigned int i;
	struct hot *h;
	int tp;

	h = ut_shared(sizeof(*h));
	ASSERT_NE(NULL, h);
	h->cpu = self->cpu;
	ASSERT_EQ(0, pipe(h->pipe));
	ASSERT_EQ(0, ut_fork(&self->c, hot_child, h));
	opts.pid = variant->all ? -1 : self->c.pid;
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	tp = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_read");
	ASSERT_LE(0, tp);
	ASSERT_EQ(0, ut_enable(&self->s));
	for (i = 0; i + 1 < self->nr_cpus; i++)
		ASSERT_EQ(0, disable_cpu(&self->s, self->cpus[i]));
	ASSERT_EQ(0, ut_go(&self->c));
	while (!UT_READ(h->st.nr))
		usleep(1000);
	ASSERT_TRUE(ut_wait_state(self->c.pid, "S"));
	ASSERT_EQ(0, ut_set_online(self->cpu, false)) TH_LOG("CONFIG_HOTPLUG_CPU?");
	if (variant->back)
		ASSERT_EQ(0, ut_set_online(self->cpu, true));
	ASSERT_EQ(1, write(h->pipe[1], "x", 1));
	ASSERT_EQ(0, ut_wait(&self->c));
	ASSERT_EQ(0, ut_drain(&self->s));
	r = ut_sample(&self->s, tp, self->c.pid, 0);
	ASSERT_NE(NULL, r);
	rec = ut_record_of(&self->s, self->c.pid, r->cookie);
	ASSERT_NE(NULL, rec);
	EXPECT_TRUE(ut_stack_is(&self->s, r, &h->st));
	EXPECT_EQ(self->cpu, self->s.ring[rec->ring].cpu);
	EXPECT_EQ(1, ut_count(&self->s, UT_RECORD_CALLCHAIN_DEFERRED, self->c.pid));
	EXPECT_EQ(0, self->s.lost);
	ut_disable(&self->s);
}

/*
 * A CPU that is going offline for some seconds: a thread has the lock of its events, and
 * reads memory that does not come until then.
 */
#define GOING_SECONDS	4

struct going {
	pthread_t	holder, off, end;
	int		cpu;
	int		event;
	int		userfault;
	__u64		*page;
	int		gone;
};

static double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static void *hold(void *arg)
{
	struct going *g = arg;

	ioctl(g->event, PERF_EVENT_IOC_PERIOD, g->page);
	return NULL;
}

static void *take_off(void *arg)
{
	struct going *g = arg;
	int err = ut_set_online(g->cpu, false);

	__atomic_store_n(&g->gone, err ? -1 : 1, __ATOMIC_RELEASE);
	return NULL;
}

static void *let_it_go(void *arg)
{
	struct going *g = arg;

	sleep(GOING_SECONDS);
	close(g->userfault);
	return NULL;
}

static int going(struct going *g, int cpu)
{
	struct perf_event_attr attr = {
		.type		= PERF_TYPE_SOFTWARE,
		.size		= UT_ATTR_SIZE,
		.config		= PERF_COUNT_SW_DUMMY,
		.disabled	= 1,
	};

	g->cpu = cpu;
	g->gone = 0;
	g->page = mmap(NULL, sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (g->page == MAP_FAILED)
		return -1;
	g->userfault = ut_userfault(g->page);
	g->event = ut_perf_open(&attr, -1, cpu, -1, 0);
	if (g->userfault < 0 || g->event < 0 ||
	    pthread_create(&g->holder, NULL, hold, g) ||
	    pthread_create(&g->end, NULL, let_it_go, g))
		return -1;
	usleep(200000);
	if (pthread_create(&g->off, NULL, take_off, g))
		return -1;
	usleep(300000);
	return UT_READ(g->gone) ? -1 : 0;
}

/* Has it been going until now? */
static bool gone(struct going *g)
{
	bool was_going = !UT_READ(g->gone);

	pthread_join(g->end, NULL);
	pthread_join(g->holder, NULL);
	pthread_join(g->off, NULL);
	close(g->event);
	munmap(g->page, sysconf(_SC_PAGESIZE));
	return was_going && g->gone == 1;
}

/* A task on its way out does not wait for it: what that waits for may be the task. */
TEST_F_TIMEOUT(hotplug, another_cpu_is_going, 60)
{
	struct ut_opts opts = { .pid = -1, .per_cpu = true };
	struct ut_rec *sample, *rec;
	struct going g;
	struct move m;
	unsigned int i;
	double begin, took;
	int enter;

	if (self->nr_cpus < 3)
		SKIP(return, "needs three CPUs");
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	enter = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_sched_setaffinity");
	ASSERT_LE(0, enter);
	move_to(&m, self->cpus[0]);
	ASSERT_EQ(0, m.ret);
	ASSERT_EQ(0, ut_enable(&self->s));
	for (i = 1; i < self->nr_cpus; i++)
		ASSERT_EQ(0, disable_cpu(&self->s, self->cpus[i]));
	ASSERT_EQ(0, going(&g, self->cpu));
	begin = seconds();
	move_to(&m, self->cpus[1]);
	took = seconds() - begin;
	ASSERT_TRUE(gone(&g));
	ASSERT_EQ(0, m.ret);
	TH_LOG("%.3f s", took);
	EXPECT_GT(GOING_SECONDS / 4.0, took);
	ASSERT_EQ(0, ut_drain(&self->s));
	sample = ut_sample(&self->s, enter, gettid(), 0);
	ASSERT_TRUE(ut_stack_is(&self->s, sample, &m.st));
	rec = ut_record_of(&self->s, gettid(), sample->cookie);
	ASSERT_NE(NULL, rec);
	EXPECT_EQ(self->cpus[0], self->s.ring[rec->ring].cpu);
	EXPECT_EQ(0, self->s.lost);
	ut_disable(&self->s);
}

/* Nor does who ends a profile, who may be whom it waits for as well. */
TEST_F_TIMEOUT(hotplug, another_cpu_is_going_at_the_end, 60)
{
	struct ut_opts opts = { .pid = -1, .per_cpu = true };
	struct ut_rec *sample, *rec;
	struct going g;
	struct hot *h;
	double begin, took;
	int tp;

	if (self->nr_cpus < 3)
		SKIP(return, "needs three CPUs");
	h = ut_shared(sizeof(*h));
	ASSERT_NE(NULL, h);
	h->cpu = self->cpus[1];
	ASSERT_EQ(0, pipe(h->pipe));
	ASSERT_EQ(0, ut_fork(&self->c, hot_child, h));
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	tp = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_read");
	ASSERT_LE(0, tp);
	ASSERT_EQ(0, ut_enable(&self->s));
	ASSERT_EQ(0, ut_go(&self->c));
	while (!UT_READ(h->st.nr))
		usleep(1000);
	ASSERT_TRUE(ut_wait_state(self->c.pid, "S"));
	ASSERT_EQ(0, going(&g, self->cpu));
	begin = seconds();
	ASSERT_EQ(0, disable_cpu(&self->s, self->cpus[0]));
	took = seconds() - begin;
	ASSERT_TRUE(gone(&g));
	TH_LOG("%.3f s", took);
	EXPECT_GT(GOING_SECONDS / 4.0, took);
	ASSERT_EQ(0, ut_drain(&self->s));
	sample = ut_sample(&self->s, tp, self->c.pid, 0);
	ASSERT_TRUE(ut_stack_is(&self->s, sample, &h->st));
	rec = ut_record_of(&self->s, self->c.pid, sample->cookie);
	ASSERT_NE(NULL, rec);
	EXPECT_EQ(self->cpus[0], self->s.ring[rec->ring].cpu);
	ut_disable(&self->s);
	ASSERT_EQ(1, write(h->pipe[1], "x", 1));
	ASSERT_EQ(0, ut_wait(&self->c));
}

enum who_waits {
	TASK,
	LAST_END,
	FIRST_END,
};

/*
 * Both wait for the buffer of a CPU that is offline, for a second; then it is a loss, if
 * the event of that CPU is the only one that is enabled, and else the next one's.
 */
static void behind_the_recorded(struct __test_metadata *_metadata,
				struct _test_data_hotplug *self, enum who_waits who)
{
	struct ut_opts opts = { .pid = -1, .per_cpu = true };
	__u64 lost_samples, lost;
	double begin, took;
	struct going g;
	unsigned int i;
	struct hot *h;
	int tp, last;
	long sleeps;

	if (self->nr_cpus < 4)
		SKIP(return, "needs four CPUs");
	last = self->cpus[self->nr_cpus - 2];
	h = ut_shared(sizeof(*h));
	ASSERT_NE(NULL, h);
	h->cpu = self->cpu;
	ASSERT_EQ(0, pipe(h->pipe));
	ASSERT_EQ(0, ut_fork(&self->c, hot_child, h));
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	tp = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_read");
	ASSERT_LE(0, tp);
	ASSERT_EQ(0, ut_enable(&self->s));
	for (i = 0; who != FIRST_END && i + 1 < self->nr_cpus; i++)
		ASSERT_EQ(0, disable_cpu(&self->s, self->cpus[i]));
	ASSERT_EQ(0, ut_go(&self->c));
	while (!UT_READ(h->st.nr))
		usleep(1000);
	ASSERT_TRUE(ut_wait_state(self->c.pid, "S"));
	ASSERT_EQ(0, ut_set_online(self->cpu, false)) TH_LOG("CONFIG_HOTPLUG_CPU?");
	ASSERT_EQ(0, going(&g, last));
	begin = seconds();
	sleeps = ut_sleeps();
	if (who != TASK) {
		ASSERT_EQ(0, disable_cpu(&self->s, self->cpu));
		sleeps = ut_sleeps() - sleeps;
		/* Naps of two ticks; a second of them, and no half one for a reader. */
		EXPECT_GT(ut_hz() * 5 / 8, sleeps);
	} else {
		ASSERT_EQ(1, write(h->pipe[1], "x", 1));
		ASSERT_EQ(0, ut_wait(&self->c));
	}
	took = seconds() - begin;
	ASSERT_TRUE(gone(&g));
	ASSERT_EQ(0, ut_set_online(last, true));
	TH_LOG("%.3f s", took);
	EXPECT_LT(0.9, took);
	EXPECT_GT(GOING_SECONDS * 3 / 4.0, took);
	if (who == FIRST_END) {
		ASSERT_EQ(0, disable_cpu(&self->s, self->cpus[0]));
		/* And nobody else's calls behind that. */
		ut_disable(&self->s);
	}
	if (who != TASK) {
		ASSERT_EQ(1, write(h->pipe[1], "x", 1));
		ASSERT_EQ(0, ut_wait(&self->c));
	}
	ASSERT_EQ(0, ut_drain(&self->s));
	ASSERT_EQ(1, ut_count_samples(&self->s, tp, self->c.pid));
	if (who == FIRST_END) {
		EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, tp, self->c.pid, 0),
					&h->st));
		EXPECT_EQ(0, ut_check(&self->s, 0));
		return;
	}
	EXPECT_EQ(0, ut_count(&self->s, UT_RECORD_CALLCHAIN_DEFERRED, self->c.pid));
	ASSERT_EQ(0, ut_lost(&self->s, &lost_samples, &lost));
	EXPECT_EQ(0, lost_samples);
	EXPECT_EQ(1, lost);
	ut_disable(&self->s);
}

TEST_F_TIMEOUT(hotplug, another_cpu_is_going_behind_the_recorded, 60)
{
	behind_the_recorded(_metadata, self, TASK);
}

TEST_F_TIMEOUT(hotplug, another_cpu_is_going_behind_the_recorded_at_the_end, 60)
{
	behind_the_recorded(_metadata, self, LAST_END);
}

TEST_F_TIMEOUT(hotplug, another_cpu_is_going_before_another_end, 60)
{
	behind_the_recorded(_metadata, self, FIRST_END);
}

static void hot_caller(void *arg)
{
	struct hot *h = arg;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(h->cpu, &set);
	for (;;) {
		/* Where its cookies are to go on, when it is there. */
		sched_setaffinity(0, sizeof(set), &set);
		ut_ladder(6, one_call, &h->st);
	}
}

/* CPUs come and go while a task is profiled: no cookie is given twice, no stack lost. */
TEST_F_TIMEOUT(hotplug, cookies_across_hotplug, 120)
{
	struct ut_opts opts = { .per_cpu = true, .pages = 1024 };
	unsigned int samples;
	struct hot *h;
	int tp, i;

	h = ut_shared(sizeof(*h));
	ASSERT_NE(NULL, h);
	h->cpu = self->cpu;
	ASSERT_EQ(0, ut_fork(&self->c, hot_caller, h));
	opts.pid = self->c.pid;
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	tp = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid");
	ASSERT_LE(0, tp);
	ASSERT_EQ(0, ut_enable(&self->s));
	ASSERT_EQ(0, ut_go(&self->c));
	for (i = 0; i < 5; i++) {
		ASSERT_EQ(0, ut_set_online(self->cpu, false));
		usleep(50000);
		ASSERT_EQ(0, ut_drain(&self->s));
		ASSERT_EQ(0, ut_set_online(self->cpu, true));
		usleep(50000);
		ASSERT_EQ(0, ut_drain(&self->s));
	}
	ASSERT_EQ(0, kill(self->c.pid, SIGKILL));
	ASSERT_EQ(SIGKILL, ut_wait(&self->c));
	ut_disable(&self->s);
	ASSERT_EQ(0, ut_drain(&self->s));
	samples = ut_count_samples(&self->s, tp, self->c.pid);
	EXPECT_LT(10, samples);
	EXPECT_EQ(0, ut_check(&self->s, self->s.lost ? UT_ALLOW_LOST | UT_ALLOW_UNRESOLVED : 0));
}

int main(int argc, char **argv)
{
	ut_need_root();
	return test_harness_run(argc, argv);
}

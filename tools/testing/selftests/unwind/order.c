// SPDX-License-Identifier: GPL-2.0
/*
 * K11, K7, K8: a pending user stack does not leave its CPU. Every sample with a cookie is
 * followed in its buffer by a record of that cookie, before its task is switched out, exits
 * or becomes another program. ut_check() checks this. The buffers are read while the tasks
 * still sleep, and while the events are enabled.
 */
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

#define NEW_IMAGE	"--new-image"
#define PIPE_SIZE	65536

struct shared {
	struct ut_stack	st;
	long		ret;
	int		returned;
	int		how;
	int		futex;
	int		pipe[2];
	int		cpu;
	cpu_set_t	to;
};

FIXTURE(order) {
	struct ut_session s;
	struct shared *sh;
	struct ut_child c;
	int cpus[UT_MAX_CPUS];
	unsigned int nr_cpus;
};

FIXTURE_VARIANT(order) {
	struct ut_opts opts;
};

FIXTURE_VARIANT_ADD(order, task) {
	.opts = { .sideband = true, .pages = 256 },
};

FIXTURE_VARIANT_ADD(order, task_per_cpu) {
	.opts = { .sideband = true, .pages = 256, .per_cpu = true },
};

FIXTURE_VARIANT_ADD(order, all_tasks) {
	.opts = { .sideband = true, .pages = 256, .per_cpu = true, .pid = -1 },
};

FIXTURE_SETUP(order)
{
	self->nr_cpus = ut_online_cpus(self->cpus, UT_MAX_CPUS);
	self->sh = ut_shared(sizeof(*self->sh));
	ASSERT_NE(NULL, self->sh);
	ASSERT_EQ(0, pipe(self->sh->pipe));
}

FIXTURE_TEARDOWN(order)
{
	ut_end_child(&self->c);
	ut_close(&self->s);
}

#define WATCH(fn) \
	ASSERT_EQ(0, ut_watch(&self->s, &variant->opts, &self->c, fn, self->sh))

static bool is_switch_out(const struct ut_rec *r, __u32 tid)
{
	return (r->type == PERF_RECORD_SWITCH || r->type == PERF_RECORD_SWITCH_CPU_WIDE) &&
	       (r->misc & PERF_RECORD_MISC_SWITCH_OUT) && r->tid == tid;
}

/* The record of the task's next switch-out after this sample; NULL: it is still running. */
static struct ut_rec *left_behind(struct ut_session *s, const struct ut_rec *sample)
{
	size_t i;

	for (i = 0; i < s->nr_recs; i++) {
		struct ut_rec *r = &s->rec[i];

		if (r->ring == sample->ring && r->seq > sample->seq &&
		    is_switch_out(r, sample->tid))
			return r;
	}
	return NULL;
}

/* Read until the task has been sampled the @nth time and has left that CPU. */
static struct ut_rec *wait_left(struct ut_session *s, int event, pid_t tid, unsigned int nth)
{
	struct ut_rec *r;

	while (!ut_drain(s)) {
		r = ut_sample(s, event, tid, nth);
		if (r && left_behind(s, r))
			return r;
		usleep(1000);
	}
	return NULL;
}

/* Count the records of this cookie between the sample and the task's next switch-out. */
static unsigned int records_between(struct ut_session *s, const struct ut_rec *sample)
{
	struct ut_rec *end = left_behind(s, sample);
	unsigned int nr = 0;
	size_t i;

	for (i = 0; i < s->nr_recs; i++) {
		struct ut_rec *r = &s->rec[i];

		nr += r->type == UT_RECORD_CALLCHAIN_DEFERRED && r->tid == sample->tid &&
		      r->cookie == sample->cookie && r->ring == sample->ring &&
		      r->seq > sample->seq && (!end || r->seq < end->seq);
	}
	return nr;
}

/* End the session, and check all of its records. */
static int end(struct ut_session *s)
{
	return ut_stop(s) ?: ut_check(s, 0);
}

enum {
	NANOSLEEP, FUTEX, PIPE_READ, POLL, PAUSE, WAIT, EPOLL, SIGTIMEDWAIT, SLEEPS,
};

static const char * const sleeps[] = {
	"sys_enter_nanosleep", "sys_enter_futex", "sys_enter_read", "sys_enter_poll",
	"sys_enter_pause", "sys_enter_wait4", "sys_enter_epoll_wait",
	"sys_enter_rt_sigtimedwait",
};

static void fall_asleep(void *arg)
{
	struct shared *sh = arg;
	struct timespec ts = { .tv_sec = 1000 };
	struct pollfd pfd = { .fd = sh->pipe[0], .events = POLLIN };
	struct epoll_event ev;
	sigset_t set;
	char byte;
	int fd;

	switch (sh->how) {
	case NANOSLEEP:
		ut_syscall2(&sh->st, __NR_nanosleep, &ts, NULL);
		break;
	case FUTEX:
		ut_syscall4(&sh->st, __NR_futex, &sh->futex, FUTEX_WAIT, 0, &ts);
		break;
	case PIPE_READ:
		ut_syscall3(&sh->st, __NR_read, sh->pipe[0], &byte, 1);
		break;
	case POLL:
		ut_syscall3(&sh->st, __NR_poll, &pfd, 1, 1000000);
		break;
	case PAUSE:
		ut_syscall0(&sh->st, __NR_pause);
		break;
	case WAIT:
		if (!fork()) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (;;)
				pause();
		}
		ut_syscall4(&sh->st, __NR_wait4, -1, NULL, 0, NULL);
		break;
	case EPOLL:
		fd = syscall(__NR_epoll_create1, 0);
		ut_syscall4(&sh->st, __NR_epoll_wait, fd, &ev, 1, 1000000);
		break;
	case SIGTIMEDWAIT:
		sigemptyset(&set);
		sigaddset(&set, SIGUSR1);
		ut_syscall4(&sh->st, __NR_rt_sigtimedwait, &set, NULL, &ts, 8);
		break;
	}
	sh->returned = 1;
	for (;;)
		pause();
}

static void ladder_asleep(void *arg)
{
	ut_ladder(6, fall_asleep, arg);
}

/*
 * A live reader gets the stack of a task that sleeps for a long time. The task is not woken
 * for that.
 */
TEST_F(order, asleep)
{
	struct ut_rec *r;
	int how;

	for (how = 0; how < SLEEPS; how++) {
		self->sh->how = how;
		self->sh->st.nr = 0;
		WATCH(ladder_asleep);
		ASSERT_EQ(0, ut_add_tracepoint(&self->s, "syscalls", sleeps[how]));
		ASSERT_EQ(0, ut_start(&self->s, &self->c));
		r = wait_left(&self->s, 0, self->c.pid, 0);
		EXPECT_TRUE(ut_stack_is(&self->s, r, &self->sh->st)) TH_LOG("%s", sleeps[how]);
		EXPECT_EQ(1, records_between(&self->s, r)) TH_LOG("%s", sleeps[how]);
		/* The first switch may have been a preemption, ahead of the sleep. */
		EXPECT_TRUE(ut_wait_state(self->c.pid, "S"));
		EXPECT_EQ(0, self->sh->returned);
		EXPECT_EQ(0, end(&self->s)) TH_LOG("%s", sleeps[how]);
		/* The record was there already: the end of the session adds none. */
		EXPECT_EQ(1, ut_count(&self->s, UT_RECORD_CALLCHAIN_DEFERRED, self->c.pid));
		ut_end_child(&self->c);
		ut_close(&self->s);
	}
}

/* The write() sleeps whenever the pipe is full, and faults at each page of the buffer. */
static void write_much(void *arg)
{
	static char buf[8 * PIPE_SIZE] UT_ATTRIBUTE(aligned(4096));
	struct shared *sh = arg;

	sh->ret = ut_syscall3(&sh->st, __NR_write, sh->pipe[1], buf, sizeof(buf));
	__atomic_store_n(&sh->returned, 1, __ATOMIC_RELEASE);
	for (;;)
		pause();
}

static void ladder_write(void *arg)
{
	ut_ladder(6, write_much, arg);
}

/* Read so much from the pipe, which is not full if its writer has been preempted. */
static int take(int pipe, size_t size)
{
	static char buf[PIPE_SIZE];
	ssize_t got;

	for (; size; size -= got) {
		got = read(pipe, buf, size < sizeof(buf) ? size : sizeof(buf));
		if (got <= 0)
			return -1;
	}
	return 0;
}

/*
 * A task is sampled again in the same kernel entry after it has slept. The samples have the
 * same cookie, and are followed by another record of it.
 */
TEST_F(order, again_in_the_same_entry)
{
	unsigned int part, nr = 0;
	int enter, fault, leave;
	struct ut_rec *r;
	__u64 cookie = 0;

	WATCH(ladder_write);
	enter = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_write");
	fault = ut_add_software(&self->s, PERF_COUNT_SW_PAGE_FAULTS, 1);
	leave = ut_add_tracepoint(&self->s, "syscalls", "sys_exit_write");
	ASSERT_EQ(0, ut_start(&self->s, &self->c));
	cookie = wait_left(&self->s, enter, self->c.pid, 0)->cookie;
	ASSERT_NE(0, cookie);
	for (part = 0; part < 4; part++) {
		/* The next fault after which the task has slept again. */
		do {
			r = wait_left(&self->s, fault, self->c.pid, nr++);
			ASSERT_NE(NULL, r);
		} while (r->cookie != cookie);
		EXPECT_EQ(1, records_between(&self->s, r)) TH_LOG("part %u", part);
		EXPECT_TRUE(ut_stack_is(&self->s, r, &self->sh->st)) TH_LOG("part %u", part);
		nr = ut_count_samples(&self->s, fault, self->c.pid);
		ASSERT_EQ(0, take(self->sh->pipe[0], PIPE_SIZE));
	}
	ASSERT_EQ(0, take(self->sh->pipe[0], (8 - part) * PIPE_SIZE));
	while (!UT_READ(self->sh->returned))
		usleep(1000);
	EXPECT_EQ(8 * PIPE_SIZE, self->sh->ret);
	EXPECT_EQ(0, end(&self->s));
	r = ut_sample(&self->s, leave, self->c.pid, 0);
	EXPECT_TRUE(ut_stack_is(&self->s, r, &self->sh->st));
	EXPECT_EQ(cookie, r->cookie);
}

static void long_calls(void *arg)
{
	static char buf[1 << 20];
	struct shared *sh = arg;

	for (;;)
		ut_syscall3(&sh->st, __NR_getrandom, buf, sizeof(buf), 0);
}

static void ladder_long_calls(void *arg)
{
	struct shared *sh = arg;

	if (ut_pin(0, sh->cpu))
		_exit(99);
	ut_ladder(6, long_calls, arg);
}

/* How often was the task preempted right after a record of its own, or without one? */
static unsigned int preempted_behind_a_sample(struct ut_session *s, __u32 tid)
{
	const struct ut_rec *last[UT_MAX_CPUS] = {};
	unsigned int nr = 0;
	size_t i;

	/* The list keeps the order of the records of one buffer. */
	for (i = 0; i < s->nr_recs; i++) {
		struct ut_rec *r = &s->rec[i];

		if (r->tid != tid)
			continue;
		nr += is_switch_out(r, tid) && (r->misc & PERF_RECORD_MISC_SWITCH_OUT_PREEMPT) &&
		      last[r->ring] && (last[r->ring]->type == UT_RECORD_CALLCHAIN_DEFERRED ||
					last[r->ring]->type == PERF_RECORD_SAMPLE);
		last[r->ring] = r;
	}
	return nr;
}

#define PREEMPTIONS	20

/* A task is preempted in a system call, and sampled there by tracepoints and interrupts. */
TEST_F(order, preempted)
{
	struct ut_preemptor p = { .pause_us = 2000 };
	unsigned int i, nr = 0;
	struct ut_child other;
	struct ut_rec *r;
	int enter;

	p.cpu = self->cpus[self->nr_cpus - 1];
	self->sh->cpu = p.cpu;
	ASSERT_EQ(0, ut_fork(&other, ut_preempt, &p));
	WATCH(ladder_long_calls);
	enter = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getrandom");
	ASSERT_LE(0, ut_add_software(&self->s, PERF_COUNT_SW_CPU_CLOCK, 1000000));
	ASSERT_EQ(0, ut_start(&self->s, &self->c));
	ASSERT_EQ(0, ut_go(&other));
	/* On a slow kernel the task is preempted before it comes to its calls, too. */
	while (nr < PREEMPTIONS || !ut_sample(&self->s, enter, self->c.pid, 0)) {
		usleep(10000);
		ASSERT_EQ(0, ut_drain(&self->s));
		nr = preempted_behind_a_sample(&self->s, self->c.pid);
	}
	EXPECT_EQ(0, end(&self->s));
	for (i = 0; (r = ut_sample(&self->s, enter, self->c.pid, i)); i++)
		EXPECT_TRUE(ut_stack_is(&self->s, r, &self->sh->st)) TH_LOG("call %u", i);
	EXPECT_LT(0, i);
	ut_end_child(&other);
}

static void move(void *arg)
{
	struct shared *sh = arg;

	sh->ret = ut_syscall3(&sh->st, __NR_sched_setaffinity, 0, sizeof(sh->to), &sh->to);
}

static void ladder_move(void *arg)
{
	ut_ladder(6, move, arg);
	for (;;)
		pause();
}

/* A task moves to another CPU within the entry. Each CPU has a record, with one cookie. */
TEST_F(order, migrates)
{
	struct ut_rec *a, *b;
	int enter, leave;

	if (self->nr_cpus < 2)
		SKIP(return, "needs two CPUs");
	CPU_ZERO(&self->sh->to);
	CPU_SET(self->cpus[1], &self->sh->to);
	WATCH(ladder_move);
	ASSERT_EQ(0, ut_pin(self->c.pid, self->cpus[0]));
	enter = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_sched_setaffinity");
	leave = ut_add_tracepoint(&self->s, "syscalls", "sys_exit_sched_setaffinity");
	ASSERT_EQ(0, ut_start(&self->s, &self->c));
	b = wait_left(&self->s, leave, self->c.pid, 0);
	a = ut_sample(&self->s, enter, self->c.pid, 0);
	ASSERT_NE(NULL, a);
	ASSERT_EQ(0, self->sh->ret);
	ASSERT_EQ(self->cpus[0], a->cpu);
	ASSERT_EQ(self->cpus[1], b->cpu);
	if (variant->opts.per_cpu)
		ASSERT_NE(a->ring, b->ring);
	EXPECT_EQ(a->cookie, b->cookie);
	EXPECT_EQ(1, records_between(&self->s, a));
	EXPECT_EQ(1, records_between(&self->s, b));
	EXPECT_TRUE(ut_stack_is(&self->s, a, &self->sh->st));
	EXPECT_TRUE(ut_stack_is(&self->s, b, &self->sh->st));
	EXPECT_EQ(0, end(&self->s));
}

/* The parent of a vfork() sleeps, and no signal interrupts it. */
static int vfork_child(void *arg)
{
	struct shared *sh = arg;
	char byte;

	/* Wait until the test writes to the pipe. */
	if (read(sh->pipe[0], &byte, 1) < 0)
		_exit(1);
	_exit(0);
}

static void ladder_vfork(void *arg)
{
	static char stack[65536] UT_ATTRIBUTE(aligned(16));

	clone(vfork_child, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, arg);
	for (;;)
		pause();
}

TEST_F(order, vfork_parent)
{
	struct ut_stack got;
	struct ut_rec *r;

	WATCH(ladder_vfork);
	ASSERT_EQ(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_clone"));
	ASSERT_EQ(0, ut_start(&self->s, &self->c));
	r = wait_left(&self->s, 0, self->c.pid, 0);
	ASSERT_NE(NULL, r);
	ASSERT_TRUE(ut_wait_state(self->c.pid, "D"));
	EXPECT_EQ(1, records_between(&self->s, r));
	ASSERT_EQ(UT_DEFERRED, ut_user_stack(&self->s, r, &got));
	ASSERT_LT(0, got.nr);
	EXPECT_EQ(r->ip, got.ip[0]);
	ASSERT_EQ(1, write(self->sh->pipe[1], "x", 1));
	ASSERT_TRUE(ut_wait_state(self->c.pid, "S"));
	EXPECT_EQ(0, end(&self->s));
}

static void leave_kernel(void *arg)
{
	struct shared *sh = arg;
	static const char * const argv[] = { "exe", NEW_IMAGE, NULL };

	if (sh->how)
		ut_syscall3(&sh->st, __NR_execve, "/proc/self/exe", argv, NULL);
	else
		ut_syscall1(&sh->st, __NR_exit_group, 7);
}

static void ladder_leave(void *arg)
{
	ut_ladder(6, leave_kernel, arg);
}

/* A task exits or calls exec: ut_check() wants the record before EXIT or COMM. */
TEST_F(order, exits_and_execs)
{
	static const char * const tps[] = { "sys_enter_exit_group", "sys_enter_execve" };
	int how;

	for (how = 0; how < 2; how++) {
		self->sh->how = how;
		WATCH(ladder_leave);
		ASSERT_EQ(0, ut_add_tracepoint(&self->s, "syscalls", tps[how]));
		ASSERT_EQ(0, ut_start(&self->s, &self->c));
		ASSERT_EQ(7 << 8, ut_wait(&self->c));
		EXPECT_EQ(0, end(&self->s));
		EXPECT_EQ(1, ut_count(&self->s, PERF_RECORD_EXIT, self->c.pid));
		EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, 0, self->c.pid, 0),
					&self->sh->st)) TH_LOG("%s", tps[how]);
		ut_close(&self->s);
	}
}

#define THREADS	12

static void nap(void *arg)
{
	struct timespec ts = { .tv_nsec = 1000 + rand() % 300000 };

	ut_syscall2(arg, __NR_nanosleep, &ts, NULL);
}

static void *napper(void *arg)
{
	unsigned long spin = (unsigned long)arg * 1000, i;
	struct ut_stack st;

	for (;;) {
		ut_ladder(6, nap, &st);
		for (i = 0; i < spin; i++)
			asm volatile("" : : : "memory");
		/* Move to one of four CPUs, if it is there. */
		ut_pin(0, rand() % 4);
	}
	return NULL;
}

static void nappers(void *arg)
{
	pthread_t id;
	long i;

	for (i = 1; i < THREADS; i++) {
		if (pthread_create(&id, NULL, napper, (void *)i))
			_exit(99);
	}
	napper(NULL);
}

/*
 * Threads sleep, wake up, move and are preempted. They are sampled by tracepoints and
 * interrupts, while the session is disabled and enabled again.
 */
TEST(all_at_once)
{
	struct ut_opts opts = { .pid = -1, .per_cpu = true, .sideband = true, .pages = 256 };
	unsigned long samples = 0;
	struct ut_session s;
	struct ut_child c;
	unsigned int round;

	ASSERT_EQ(0, ut_fork(&c, nappers, NULL));
	ASSERT_EQ(0, ut_open(&s, &opts));
	ASSERT_LE(0, ut_add_tracepoint(&s, "syscalls", "sys_enter_nanosleep"));
	ASSERT_LE(0, ut_add_tracepoint(&s, "syscalls", "sys_exit_nanosleep"));
	ASSERT_LE(0, ut_add_tracepoint(&s, "syscalls", "sys_enter_sched_setaffinity"));
	ASSERT_LE(0, ut_add_tracepoint(&s, "sched", "sched_waking"));
	ASSERT_LE(0, ut_add_software(&s, PERF_COUNT_SW_CPU_CLOCK, 500000));
	ASSERT_EQ(0, ut_go(&c));
	for (round = 0; round < 30; round++) {
		ASSERT_EQ(0, ut_enable(&s));
		usleep(1000 + rand() % 20000);
		ASSERT_EQ(0, ut_stop(&s));
		samples += ut_count_samples(&s, -1, 0);
		ASSERT_EQ(0, ut_check(&s, ut_allow_lost(&s))) TH_LOG("round %u", round);
		ut_forget(&s);
	}
	TH_LOG("%lu samples", samples);
	EXPECT_LT(100, samples);
	ut_end_child(&c);
	ut_close(&s);
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], NEW_IMAGE))
		return 7;
	ut_need_root();
	return test_harness_run(argc, argv);
}

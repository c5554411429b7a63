// SPDX-License-Identifier: GPL-2.0
/*
 * K11: tasks that are in the kernel when a profile ends. Disabling the event that
 * has defer_output writes their stacks; they are not woken and notice nothing.
 */
#include <asm/ldt.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

struct shared {
	struct ut_stack	st;
	long	ret;
	int	returned;
	int		futex;
	int		pipe[2];
	int		how;
	int		cpus[2];
	pid_t		tid;
};

enum {
	NANOSLEEP, FUTEX, PIPE_READ, POLL, PAUSE, WAIT, EPOLL, SIGTIMEDWAIT,
};

static void fall_asleep(void *arg)
{
	struct shared *sh = arg;
	struct timespec ts = { .tv_sec = 100 };
	struct pollfd pfd = { .fd = sh->pipe[0], .events = POLLIN };
	struct epoll_event ev;
	sigset_t set;
	char byte;
	int fd;

	switch (sh->how) {
	case NANOSLEEP:
		sh->ret = ut_syscall2(&sh->st, __NR_nanosleep, &ts, NULL);
		break;
	case FUTEX:
		sh->ret = ut_syscall4(&sh->st, __NR_futex, &sh->futex, FUTEX_WAIT, 0, &ts);
		break;
	case PIPE_READ:
		sh->ret = ut_syscall3(&sh->st, __NR_read, sh->pipe[0], &byte, 1);
		break;
	case POLL:
		sh->ret = ut_syscall3(&sh->st, __NR_poll, &pfd, 1, 100000);
		break;
	case PAUSE:
		sh->ret = ut_syscall0(&sh->st, __NR_pause);
		break;
	case WAIT:
		if (!fork()) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (;;)
				pause();
		}
		sh->ret = ut_syscall4(&sh->st, __NR_wait4, -1, NULL, 0, NULL);
		break;
	case EPOLL:
		fd = syscall(__NR_epoll_create1, 0);
		sh->ret = ut_syscall4(&sh->st, __NR_epoll_wait, fd, &ev, 1, 100000);
		break;
	case SIGTIMEDWAIT:
		sigemptyset(&set);
		sigaddset(&set, SIGUSR1);
		sh->ret = ut_syscall4(&sh->st, __NR_rt_sigtimedwait, &set, NULL, &ts, 8);
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

FIXTURE(sleepers) {
	struct ut_session s;
	struct shared *sh;
	struct ut_child c;
};

FIXTURE_VARIANT(sleepers) {
	int how;
	const char *tp;
	bool per_cpu;
};

FIXTURE_VARIANT_ADD(sleepers, nanosleep) {
	.how = NANOSLEEP, .tp = "sys_enter_nanosleep",
};

FIXTURE_VARIANT_ADD(sleepers, futex) {
	.how = FUTEX, .tp = "sys_enter_futex",
};

FIXTURE_VARIANT_ADD(sleepers, pipe_read) {
	.how = PIPE_READ, .tp = "sys_enter_read",
};

FIXTURE_VARIANT_ADD(sleepers, poll) {
	.how = POLL, .tp = "sys_enter_poll",
};

FIXTURE_VARIANT_ADD(sleepers, pause) {
	.how = PAUSE, .tp = "sys_enter_pause",
};

FIXTURE_VARIANT_ADD(sleepers, wait) {
	.how = WAIT, .tp = "sys_enter_wait4",
};

FIXTURE_VARIANT_ADD(sleepers, epoll) {
	.how = EPOLL, .tp = "sys_enter_epoll_wait",
};

FIXTURE_VARIANT_ADD(sleepers, sigtimedwait) {
	.how = SIGTIMEDWAIT, .tp = "sys_enter_rt_sigtimedwait",
};

FIXTURE_VARIANT_ADD(sleepers, nanosleep_per_cpu) {
	.how = NANOSLEEP, .tp = "sys_enter_nanosleep", .per_cpu = true,
};

FIXTURE_VARIANT_ADD(sleepers, pipe_read_per_cpu) {
	.how = PIPE_READ, .tp = "sys_enter_read", .per_cpu = true,
};

FIXTURE_VARIANT_ADD(sleepers, wait_per_cpu) {
	.how = WAIT, .tp = "sys_enter_wait4", .per_cpu = true,
};

FIXTURE_SETUP(sleepers)
{
	struct ut_opts opts = { .per_cpu = variant->per_cpu };

	memset(&self->s, 0, sizeof(self->s));
	self->sh = ut_shared(sizeof(*self->sh));
	ASSERT_NE(NULL, self->sh);
	self->sh->how = variant->how;
	ASSERT_EQ(0, pipe(self->sh->pipe));
	ASSERT_EQ(0, ut_fork(&self->c, ladder_asleep, self->sh));
	opts.pid = self->c.pid;
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", variant->tp));
	ASSERT_EQ(0, ut_enable(&self->s));
	ASSERT_EQ(0, ut_go(&self->c));
	while (!UT_READ(self->sh->st.nr))
		usleep(1000);
	ASSERT_TRUE(ut_wait_state(self->c.pid, "S"));
}

FIXTURE_TEARDOWN(sleepers)
{
	kill(self->c.pid, SIGKILL);
	ut_wait(&self->c);
	ut_close(&self->s);
}

/* Context switches so far: a task that slept on has made none. */
static long switches(pid_t pid)
{
	char path[64], line[128];
	long nr = 0, n;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "voluntary_ctxt_switches: %ld", &n) == 1 ||
		    sscanf(line, "nonvoluntary_ctxt_switches: %ld", &n) == 1)
			nr += n;
	}
	if (f)
		fclose(f);
	return nr;
}

TEST_F(sleepers, written_at_disable)
{
	struct ut_rec *r;
	unsigned int nr;
	long before;

	/* Nothing has come by itself: the task is where it was. */
	ASSERT_EQ(0, ut_drain(&self->s));
	ASSERT_EQ(1, ut_count_samples(&self->s, 0, self->c.pid));
	r = ut_sample(&self->s, 0, self->c.pid, 0);
	ASSERT_NE(0, r->cookie);
	ASSERT_EQ(NULL, ut_record_of(&self->s, self->c.pid, r->cookie));

	/* It is seen to sleep a moment before it is switched out. */
	do {
		before = switches(self->c.pid);
		usleep(50000);
	} while (before != switches(self->c.pid));
	ASSERT_EQ(0, ut_disable(&self->s));
	ASSERT_EQ(0, ut_drain(&self->s));
	r = ut_sample(&self->s, 0, self->c.pid, 0);
	EXPECT_TRUE(ut_stack_is(&self->s, r, &self->sh->st));
	EXPECT_EQ(before, switches(self->c.pid));
	EXPECT_EQ('S', ut_task_state(self->c.pid));
	EXPECT_EQ(0, self->sh->returned) TH_LOG("the system call returned %ld", self->sh->ret);
	EXPECT_EQ(0, ut_check(&self->s, 0));

	/* Once is enough: a second disable and the task's return add nothing. */
	nr = ut_count(&self->s, UT_RECORD_CALLCHAIN_DEFERRED, 0);
	ut_disable(&self->s);
	kill(self->c.pid, SIGKILL);
	usleep(100000);
	ASSERT_EQ(0, ut_drain(&self->s));
	EXPECT_EQ(nr, ut_count(&self->s, UT_RECORD_CALLCHAIN_DEFERRED, 0));
}

static void one_getppid(void *arg)
{
	ut_syscall0(arg, __NR_getppid);
}

static bool record_is_of(struct ut_session *s, pid_t pid, const struct ut_stack *st)
{
	struct ut_rec *sample, *record;

	if (ut_count_samples(s, 0, pid) != 1)
		return false;
	sample = ut_sample(s, 0, pid, 0);
	if (!ut_stack_is(s, sample, st))
		return false;
	record = ut_record_of(s, pid, sample->cookie);
	return record && record->pid == pid && !ut_check(s, 0);
}

/* Somebody who sleeps. */
static bool profile_sleeper(struct shared *sh)
{
	static struct ut_session s;
	struct ut_opts opts = {};
	struct ut_child c;

	if (ut_fork(&c, ladder_asleep, sh))
		return false;
	opts.pid = c.pid;
	if (ut_open(&s, &opts) || ut_add_tracepoint(&s, "syscalls", "sys_enter_nanosleep") ||
	    ut_enable(&s) || ut_go(&c))
		return false;
	while (!UT_READ(sh->st.nr))
		usleep(1000);
	return ut_wait_state(c.pid, "S") && !ut_disable(&s) && !ut_drain(&s) &&
	       record_is_of(&s, c.pid, &sh->st);
}

/* And who comes out by itself. */
static bool profile_self(void)
{
	static struct ut_session s;
	struct ut_opts opts = {};
	struct ut_stack st;

	return !ut_open(&s, &opts) &&
	       !ut_add_tracepoint(&s, "syscalls", "sys_enter_getppid") && !ut_enable(&s) &&
	       !ut_ladder(5, one_getppid, &st) && !ut_disable(&s) && !ut_drain(&s) &&
	       record_is_of(&s, 1, &st);
}

struct contained {
	bool	is_first, sleeper, self;
};

static void profile_contained(struct contained *seen, struct shared *sh)
{
	/* Whether tasks sleep is looked up there. */
	seen->is_first = getpid() == 1 && !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
			 !mount("proc", "/proc", "proc", 0, NULL);
	if (!seen->is_first)
		return;
	seen->sleeper = profile_sleeper(sh);
	seen->self = profile_self();
}

/*
 * A profiler in another pid namespace has the records by its own numbers, as it has the
 * samples.
 */
TEST(contained)
{
	struct shared *sh = ut_shared(sizeof(*sh));
	struct contained *seen = ut_shared(sizeof(*seen));
	pid_t pid;

	ASSERT_NE(NULL, sh);
	ASSERT_NE(NULL, seen);
	sh->how = NANOSLEEP;
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		if (unshare(CLONE_NEWPID | CLONE_NEWNS)) {
			ut_diag("unshare: %s; CONFIG_PID_NS?", strerror(errno));
			_exit(1);
		}
		/* What is forked from here on is in there, and ends with this one. */
		pid = fork();
		if (!pid) {
			profile_contained(seen, sh);
			_exit(0);
		}
		waitpid(pid, NULL, 0);
		_exit(0);
	}
	ASSERT_EQ(pid, waitpid(pid, NULL, 0));
	ASSERT_TRUE(seen->is_first);
	EXPECT_TRUE(seen->sleeper);
	EXPECT_TRUE(seen->self);
}

/* prctl() by the one who opened the events does the same as the ioctl(). */
TEST_F(sleepers, written_at_prctl)
{
	ASSERT_EQ(0, prctl(PR_TASK_PERF_EVENTS_DISABLE, 0, 0, 0, 0));
	ASSERT_EQ(0, ut_drain(&self->s));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, 0, self->c.pid, 0),
				&self->sh->st));
	EXPECT_EQ('S', ut_task_state(self->c.pid));
	EXPECT_EQ(0, self->sh->returned);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

FIXTURE(at_the_end) {
	struct ut_session s;
	struct shared *sh;
	struct ut_child c;
};

FIXTURE_SETUP(at_the_end)
{
	memset(&self->s, 0, sizeof(self->s));
	self->sh = ut_shared(sizeof(*self->sh));
	ASSERT_NE(NULL, self->sh);
	ASSERT_EQ(0, pipe(self->sh->pipe));
	self->c.pid = 0;
}

FIXTURE_TEARDOWN(at_the_end)
{
	if (self->c.pid > 0) {
		kill(self->c.pid, SIGKILL);
		/* One that is in a stop and exits already gets no signal. */
		ptrace(PTRACE_DETACH, self->c.pid, 0, 0);
		ut_wait(&self->c);
	}
	ut_close(&self->s);
}

static int watch(struct ut_session *s, pid_t pid, const char *tp)
{
	struct ut_opts opts = { .pid = pid };

	if (ut_open(s, &opts) || ut_add_tracepoint(s, "syscalls", tp) < 0)
		return -1;
	return ut_enable(s);
}

static void wait_called(struct shared *sh)
{
	while (!UT_READ(sh->st.nr))
		usleep(1000);
}

static void kill_stop(void *arg)
{
	struct shared *sh = arg;

	ut_syscall2(&sh->st, __NR_kill, getpid(), SIGSTOP);
	sh->returned = 1;
	for (;;)
		pause();
}

static void ladder_stop(void *arg)
{
	ut_ladder(6, kill_stop, arg);
}

/*
 * A stopped task is on its way out already. Its stack comes, whether it was written
 * before the stop or at the disable.
 */
TEST_F(at_the_end, stopped)
{
	ASSERT_EQ(0, ut_fork(&self->c, ladder_stop, self->sh));
	ASSERT_EQ(0, watch(&self->s, self->c.pid, "sys_enter_kill"));
	ASSERT_EQ(0, ut_go(&self->c));
	wait_called(self->sh);
	ASSERT_TRUE(ut_wait_state(self->c.pid, "T"));
	ASSERT_EQ(0, ut_disable(&self->s));
	ASSERT_EQ(0, ut_drain(&self->s));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, 0, self->c.pid, 0),
				&self->sh->st));
	EXPECT_EQ('T', ut_task_state(self->c.pid));
	EXPECT_EQ(0, self->sh->returned);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* A sleeper that is then stopped by someone else. */
TEST_F(at_the_end, asleep_then_stopped)
{
	self->sh->how = PIPE_READ;
	ASSERT_EQ(0, ut_fork(&self->c, ladder_asleep, self->sh));
	ASSERT_EQ(0, watch(&self->s, self->c.pid, "sys_enter_read"));
	ASSERT_EQ(0, ut_go(&self->c));
	wait_called(self->sh);
	ASSERT_TRUE(ut_wait_state(self->c.pid, "S"));
	ASSERT_EQ(0, kill(self->c.pid, SIGSTOP));
	ASSERT_TRUE(ut_wait_state(self->c.pid, "T"));
	ASSERT_EQ(0, ut_disable(&self->s));
	ASSERT_EQ(0, ut_drain(&self->s));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, 0, self->c.pid, 0),
				&self->sh->st));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* And one that is traced: the tracer's stop is no return to the program. */
TEST_F(at_the_end, asleep_then_traced)
{
	int status;

	self->sh->how = PIPE_READ;
	ASSERT_EQ(0, ut_fork(&self->c, ladder_asleep, self->sh));
	ASSERT_EQ(0, watch(&self->s, self->c.pid, "sys_enter_read"));
	ASSERT_EQ(0, ut_go(&self->c));
	wait_called(self->sh);
	ASSERT_TRUE(ut_wait_state(self->c.pid, "S"));
	ASSERT_EQ(0, ptrace(PTRACE_SEIZE, self->c.pid, 0, 0));
	ASSERT_EQ(0, ptrace(PTRACE_INTERRUPT, self->c.pid, 0, 0));
	ASSERT_EQ(self->c.pid, waitpid(self->c.pid, &status, __WALL));
	ASSERT_EQ(0, ut_disable(&self->s));
	ASSERT_EQ(0, ut_drain(&self->s));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, 0, self->c.pid, 0),
				&self->sh->st));
	EXPECT_EQ(0, ut_check(&self->s, 0));
	EXPECT_EQ(0, ptrace(PTRACE_DETACH, self->c.pid, 0, 0));
}

/* Sleeping not interruptibly: the parent of a vfork(). */
static int vfork_child(void *arg)
{
	struct shared *sh = arg;
	char byte;

	/* It runs, so its parent waits: until the test lets go of it. */
	__atomic_store_n(&sh->futex, 1, __ATOMIC_RELEASE);
	if (read(sh->pipe[0], &byte, 1) < 0)
		_exit(1);
	_exit(0);
}

static void vfork_and_wait(void *arg)
{
	static char stack[65536] UT_ATTRIBUTE(aligned(16));
	struct shared *sh = arg;

	sh->ret = clone(vfork_child, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, sh);
	waitpid(sh->ret, NULL, 0);
	sh->returned = 1;
}

static void ladder_vfork(void *arg)
{
	ut_ladder(6, vfork_and_wait, arg);
}

TEST_F(at_the_end, vfork_parent)
{
	struct ut_stack got;
	struct ut_rec *r;

	ASSERT_EQ(0, ut_fork(&self->c, ladder_vfork, self->sh));
	ASSERT_EQ(0, watch(&self->s, self->c.pid, "sys_enter_clone"));
	ASSERT_EQ(0, ut_go(&self->c));
	while (!UT_READ(self->sh->futex))
		usleep(1000);
	ASSERT_TRUE(ut_wait_state(self->c.pid, "DS"));
	ASSERT_EQ(0, ut_disable(&self->s));
	ASSERT_EQ(0, ut_drain(&self->s));
	r = ut_sample(&self->s, 0, self->c.pid, 0);
	ASSERT_NE(NULL, r);
	ASSERT_EQ(UT_DEFERRED, ut_user_stack(&self->s, r, &got));
	/* The C library's clone() has no frame; those of the ladder are there. */
	ASSERT_LT(7, got.nr);
	EXPECT_EQ(r->ip, got.ip[0]);
	EXPECT_EQ(0, self->sh->returned);
	ASSERT_EQ(1, write(self->sh->pipe[1], "x", 1));
	ASSERT_EQ(0, ut_wait(&self->c));
	self->c.pid = 0;
	EXPECT_EQ(1, self->sh->returned);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/*
 * In a long system call on another CPU, and not asleep: it comes out by itself, or it
 * is interrupted, and it has its own stack. None if it is in the middle of its walk for
 * as long as that waits, on a machine that has much else to do.
 */
static void long_call(void *arg)
{
	static char buf[32 << 20];
	struct shared *sh = arg;

	for (;;) {
		sh->ret = ut_syscall3(&sh->st, __NR_getrandom, buf, sizeof(buf), 0);
		sh->returned = 1;
	}
}

static void ladder_long(void *arg)
{
	ut_ladder(6, long_call, arg);
}

TEST_F_TIMEOUT(at_the_end, running, 60)
{
	struct ut_rec *r;
	unsigned int i;

	ASSERT_EQ(0, ut_fork(&self->c, ladder_long, self->sh));
	ASSERT_EQ(0, watch(&self->s, self->c.pid, "sys_enter_getrandom"));
	ASSERT_EQ(0, ut_go(&self->c));
	wait_called(self->sh);
	usleep(100000);
	ASSERT_EQ(0, ut_disable(&self->s));
	ASSERT_EQ(0, ut_drain(&self->s));
	ASSERT_LE(1, ut_count_samples(&self->s, 0, self->c.pid));
	/* Interrupted in the last one, or out of it just then. */
	for (i = 0; (r = ut_sample(&self->s, 0, self->c.pid, i)); i++)
		EXPECT_TRUE(ut_stack_is(&self->s, r, &self->sh->st)) TH_LOG("call %u", i);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* The events that a child has inherited are of the same session. */
static void child_asleep(void *arg)
{
	struct shared *sh = arg;

	pid_t pid = fork();

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		ladder_asleep(sh);
	}
	sh->tid = pid;
	for (;;)
		pause();
}

TEST_F(at_the_end, inherited)
{
	struct ut_opts opts = { .per_cpu = true, .inherit = true };
	pid_t pid;

	self->sh->how = PIPE_READ;
	ASSERT_EQ(0, ut_fork(&self->c, child_asleep, self->sh));
	opts.pid = self->c.pid;
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_read"));
	ASSERT_EQ(0, ut_enable(&self->s));
	ASSERT_EQ(0, ut_go(&self->c));
	wait_called(self->sh);
	while (!(pid = UT_READ(self->sh->tid)))
		usleep(1000);
	ASSERT_TRUE(ut_wait_state(pid, "S"));
	ASSERT_EQ(0, ut_disable(&self->s));
	ASSERT_EQ(0, ut_drain(&self->s));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, 0, pid, 0), &self->sh->st));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

#define MANY 64

struct many {
	struct shared	sh[MANY];
	struct ut_child	c[MANY];
};

/* Many tasks, one session, one disable; the children outlive it. */
TEST_F_TIMEOUT(at_the_end, many_tasks, 120)
{
	struct many *m = ut_shared(sizeof(*m));
	struct ut_opts opts = { .pid = -1, .per_cpu = true, .pages = 256 };
	int i, tp;

	ASSERT_NE(NULL, m);
	for (i = 0; i < MANY; i++) {
		m->sh[i].how = i % 2 ? NANOSLEEP : FUTEX;
		ASSERT_EQ(0, ut_fork(&m->c[i], ladder_asleep, &m->sh[i]));
	}
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_nanosleep"));
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_futex"));
	ASSERT_EQ(0, ut_enable(&self->s));
	for (i = 0; i < MANY; i++)
		ASSERT_EQ(0, ut_go(&m->c[i]));
	for (i = 0; i < MANY; i++) {
		wait_called(&m->sh[i]);
		ASSERT_TRUE(ut_wait_state(m->c[i].pid, "S"));
	}
	ASSERT_EQ(0, ut_disable(&self->s));
	ASSERT_EQ(0, ut_drain(&self->s));
	for (i = 0; i < MANY; i++) {
		tp = i % 2 ? 0 : 1;
		EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, tp, m->c[i].pid, 0),
					&m->sh[i].st)) TH_LOG("task %d", i);
		EXPECT_EQ(0, m->sh[i].returned);
	}
	for (i = 0; i < MANY; i++) {
		kill(m->c[i].pid, SIGKILL);
		ut_wait(&m->c[i]);
	}
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

#define WAKERS	16
#define ROUNDS	200

static __u64 now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000ULL + ts.tv_nsec / 1000;
}

static void spin(unsigned int us)
{
	__u64 end = now_us() + us;

	while (now_us() < end)
		;
}

static void short_nap(void *arg)
{
	struct timespec ts = { .tv_nsec = 1000 + rand() % 500000 };

	ut_syscall2(arg, __NR_nanosleep, &ts, NULL);
}

static void *waker(void *arg)
{
	struct ut_stack st;

	for (;;)
		ut_ladder(6, short_nap, &st);
	return arg;
}

static void wakers(void *arg)
{
	pthread_t id;
	int i;

	for (i = 1; i < WAKERS; i++) {
		if (pthread_create(&id, NULL, waker, NULL))
			_exit(1);
	}
	waker(arg);
}

/*
 * Tasks that wake up and fall asleep again while one event after the other is
 * disabled: each stack is written once, by its task or from outside.
 */
TEST_F_TIMEOUT(at_the_end, waking, 250)
{
	struct ut_opts opts = { .pid = -1, .per_cpu = true, .pages = 256 };
	unsigned long samples = 0, missing = 0;
	struct ut_stack got;
	struct ut_rec *r;
	int i, k;

	ASSERT_EQ(0, ut_fork(&self->c, wakers, NULL));
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_nanosleep"));
	ASSERT_EQ(0, ut_go(&self->c));
	for (i = 0; i < ROUNDS; i++) {
		ASSERT_EQ(0, ut_enable(&self->s));
		/* Not asleep: it would wake with the others. */
		spin(1000 + rand() % 10000);
		ASSERT_EQ(0, ut_disable(&self->s));
		ASSERT_EQ(0, ut_drain(&self->s));
		for (k = 0; (r = ut_sample(&self->s, 0, 0, k)); k++, samples++) {
			if (ut_user_stack(&self->s, r, &got) == UT_UNRESOLVED)
				missing++;
			else
				EXPECT_TRUE(ut_is_ladder(&got, 6, 2));
		}
		/* A task that was asleep at the last disable may come by now. */
		ASSERT_EQ(0, ut_check(&self->s, UT_ALLOW_FOREIGN | UT_ALLOW_UNRESOLVED))
			TH_LOG("round %d", i);
		ut_forget(&self->s);
	}
	TH_LOG("%lu samples, %lu without a record", samples, missing);
	/* Few a round, where there is much else to do. */
	EXPECT_LT(ROUNDS / 4, samples);
	/* One whose CPU somebody else has for longer than a disable waits. */
	EXPECT_GE(samples / 10, missing);
}

/* What one that open_output() has opened says when it is read. */
struct output_count {
	__u64	value, enabled, lost;
};

/* An event that gets records, and samples nothing. */
static int open_output_as(pid_t pid, int cpu, bool disabled)
{
	struct perf_event_attr attr = {
		.type		= PERF_TYPE_SOFTWARE,
		.size		= UT_ATTR_SIZE,
		.config		= PERF_COUNT_SW_DUMMY,
		.sample_type	= UT_SAMPLE_TYPE,
		.sample_id_all	= 1,
		.read_format	= PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_LOST,
		.disabled	= disabled,
	};

	*ut_attr_flags(&attr) |= UT_DEFER_OUTPUT;
	return ut_perf_open(&attr, pid, cpu, -1, 0);
}

static int open_output(pid_t pid, int cpu)
{
	return open_output_as(pid, cpu, false);
}

/* Disable an event before the others that has no buffer, or @page, one without room. */
static void without_a_buffer(struct __test_metadata *_metadata, struct ut_session *s,
			     struct ut_child *c, struct shared *sh, bool page)
{
	int fd;

	sh->how = PAUSE;
	ASSERT_EQ(0, ut_fork(c, ladder_asleep, sh));
	fd = open_output(c->pid, -1);
	ASSERT_LE(0, fd);
	if (page)
		ASSERT_NE(MAP_FAILED, mmap(NULL, sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE,
					   MAP_SHARED, fd, 0));
	ASSERT_EQ(0, watch(s, c->pid, "sys_enter_pause"));
	ASSERT_EQ(0, ut_go(c));
	wait_called(sh);
	ASSERT_TRUE(ut_wait_state(c->pid, "S"));
	ASSERT_EQ(0, ioctl(fd, PERF_EVENT_IOC_DISABLE, 0));
	ASSERT_EQ(0, ut_disable(s));
	ASSERT_EQ(0, ut_drain(s));
	EXPECT_TRUE(ut_stack_is(s, ut_sample(s, 0, c->pid, 0), &sh->st));
	EXPECT_EQ(0, ut_check(s, 0));
	close(fd);
}

/* An event whose buffer nobody has mapped does not take the stacks, and loses none. */
TEST_F(at_the_end, without_a_buffer)
{
	without_a_buffer(_metadata, &self->s, &self->c, self->sh, false);
}

/* Nor does one of which only the first page is mapped, the one that has no records. */
TEST_F(at_the_end, without_room)
{
	without_a_buffer(_metadata, &self->s, &self->c, self->sh, true);
}

static void deep_asleep(void *arg)
{
	ut_ladder(100, fall_asleep, arg);
}

/* Tasks asleep whose stacks are more than the buffers have room for. */
static void many_large(struct __test_metadata *_metadata, struct ut_session *s, struct many *m)
{
	struct ut_opts opts = { .pid = -1, .per_cpu = true, .pages = 2 };
	int i;

	ASSERT_NE(NULL, m);
	for (i = 0; i < MANY; i++) {
		m->sh[i].how = NANOSLEEP;
		ASSERT_EQ(0, ut_fork(&m->c[i], deep_asleep, &m->sh[i]));
	}
	ASSERT_EQ(0, ut_open(s, &opts));
	ASSERT_LE(0, ut_add_tracepoint(s, "syscalls", "sys_enter_nanosleep"));
	ASSERT_EQ(0, ut_enable(s));
	for (i = 0; i < MANY; i++) {
		ASSERT_EQ(0, ut_go(&m->c[i]));
		wait_called(&m->sh[i]);
		ASSERT_TRUE(ut_wait_state(m->c[i].pid, "S"));
		ASSERT_EQ(0, ut_drain(s));
	}
}

/*
 * Nobody reads meanwhile: the buffer of each event that is disabled takes what it can,
 * and the last one counts the rest, after it has waited for a reader once.
 */
TEST_F_TIMEOUT(at_the_end, many_too_large, 120)
{
	struct many *m = ut_shared(sizeof(*m));
	__u64 lost_samples, lost, begin, ms;
	unsigned int records = 0;
	long sleeps;
	int i;

	many_large(_metadata, &self->s, m);
	sleeps = ut_sleeps();
	begin = now_us();
	ASSERT_EQ(0, ut_disable(&self->s));
	ms = (now_us() - begin) / 1000;
	sleeps = ut_sleeps() - sleeps;
	ASSERT_EQ(0, ut_drain(&self->s));
	ASSERT_EQ(0, ut_lost(&self->s, &lost_samples, &lost));
	EXPECT_EQ(0, lost_samples);
	for (i = 0; i < MANY; i++) {
		EXPECT_NE(NULL, ut_sample(&self->s, 0, m->c[i].pid, 0));
		records += ut_count(&self->s, UT_RECORD_CALLCHAIN_DEFERRED, m->c[i].pid);
		kill(m->c[i].pid, SIGKILL);
		ut_wait(&m->c[i]);
	}
	/* A record has 100 addresses and a few more; some other one may be there. */
	EXPECT_LE(7 * self->s.nr_rings, records);
	EXPECT_GE(9 * self->s.nr_rings, records);
	EXPECT_EQ(MANY, records + lost);
	/* 500 ms of naps of two ticks, and not for each that is lost */
	if (lost)
		EXPECT_LE(480, ms);
	if (lost > 10)
		EXPECT_GT(ut_hz(), sleeps);
}

static void *disable_all(void *arg)
{
	return (void *)(long)ut_disable(arg);
}

/*
 * Another thread reads, as slowly as a profiler that writes to a disk: all stacks are
 * there, whole, and none is lost.
 */
TEST_F_TIMEOUT(at_the_end, many_read_meanwhile, 120)
{
	struct many *m = ut_shared(sizeof(*m));
	__u64 lost_samples, lost;
	pthread_t thread;
	void *ret;
	int i;

	many_large(_metadata, &self->s, m);
	ASSERT_EQ(0, pthread_create(&thread, NULL, disable_all, &self->s));
	do {
		usleep(50000);
		ASSERT_EQ(0, ut_drain(&self->s));
	} while (pthread_tryjoin_np(thread, &ret));
	EXPECT_EQ(NULL, ret);
	ASSERT_EQ(0, ut_drain(&self->s));
	ASSERT_EQ(0, ut_lost(&self->s, &lost_samples, &lost));
	EXPECT_EQ(0, lost_samples);
	EXPECT_EQ(0, lost);
	for (i = 0; i < MANY; i++) {
		EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, 0, m->c[i].pid, 0),
					&m->sh[i].st)) TH_LOG("task %d", i);
		kill(m->c[i].pid, SIGKILL);
		ut_wait(&m->c[i]);
	}
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/*
 * The event that is disabled writes into the buffer of another one, which is taken from
 * it meanwhile. What it has not written by then is written when that one is disabled.
 */
struct taken_back {
	pthread_barrier_t	begin;
	int			fd;
	int			us;
	int			ret;
};

static void *take_back(void *arg)
{
	struct taken_back *t = arg;

	pthread_barrier_wait(&t->begin);
	usleep(t->us);
	t->ret = ioctl(t->fd, PERF_EVENT_IOC_SET_OUTPUT, -1L);
	return NULL;
}

static void read_on(void *arg)
{
	struct shared *sh = arg;
	char byte;

	for (;;) {
		__atomic_add_fetch(&sh->tid, 1, __ATOMIC_RELEASE);
		ut_syscall3(&sh->st, __NR_read, sh->pipe[0], &byte, 1);
	}
}

static void ladder_read_on(void *arg)
{
	ut_ladder(6, read_on, arg);
}

#define TAKES	20

/* With @last there is no other one: it counts what it has not written. */
static void taken_back(struct __test_metadata *_metadata, struct ut_session *s, bool last)
{
	struct many *m = ut_shared(sizeof(*m));
	struct ut_opts opts = { .pid = -1, .per_cpu = true, .pages = 256, .no_output = last };
	struct taken_back t = {};
	int i, round, missing, parts = 0;
	struct output_count count;
	struct ut_rec *r;
	__u64 before = 0;
	pthread_t id;

	ASSERT_NE(NULL, m);
	ASSERT_EQ(0, pthread_barrier_init(&t.begin, NULL, 2));
	for (i = 0; i < MANY; i++) {
		ASSERT_EQ(0, pipe(m->sh[i].pipe));
		ASSERT_EQ(0, ut_fork(&m->c[i], ladder_read_on, &m->sh[i]));
	}
	ASSERT_EQ(0, ut_open(s, &opts));
	ASSERT_LE(0, ut_add_tracepoint(s, "syscalls", "sys_enter_read"));
	t.fd = open_output_as(-1, s->ring[0].cpu, true);
	ASSERT_LE(0, t.fd);
	for (round = 0; round < TAKES; round++) {
		ASSERT_EQ(0, ioctl(t.fd, PERF_EVENT_IOC_SET_OUTPUT, s->ring[0].fd));
		ASSERT_EQ(0, ioctl(t.fd, PERF_EVENT_IOC_ENABLE, 0));
		ASSERT_EQ(0, ut_enable(s));
		for (i = 0; i < MANY; i++) {
			ASSERT_LE(0, round ? write(m->sh[i].pipe[1], "x", 1) : ut_go(&m->c[i]));
			while (UT_READ(m->sh[i].tid) != round + 1)
				usleep(1000);
			ASSERT_TRUE(ut_wait_state(m->c[i].pid, "S"));
		}
		t.us = 500 * round;
		ASSERT_EQ(0, pthread_create(&id, NULL, take_back, &t));
		pthread_barrier_wait(&t.begin);
		ASSERT_EQ(0, ioctl(t.fd, PERF_EVENT_IOC_DISABLE, 0));
		ASSERT_EQ(0, pthread_join(id, NULL));
		ASSERT_EQ(0, t.ret);
		ASSERT_EQ(0, ut_disable(s));
		ASSERT_EQ(0, ut_drain(s));
		for (i = 0, missing = 0; i < MANY; i++) {
			r = ut_sample(s, 0, m->c[i].pid, 0);
			ASSERT_NE(NULL, r);
			missing += !ut_record_of(s, m->c[i].pid, r->cookie);
			EXPECT_EQ(1, ut_count_samples(s, 0, m->c[i].pid));
		}
		ut_forget(s);
		ASSERT_EQ(sizeof(count), read(t.fd, &count, sizeof(count)));
		/* All are missing where it had no buffer any more before it was disabled. */
		if (!last || missing < MANY || count.lost != before)
			EXPECT_EQ(last ? missing : 0, count.lost - before)
				TH_LOG("round %d", round);
		if (!last)
			EXPECT_EQ(0, missing);
		parts += missing && missing < MANY;
		before = count.lost;
	}
	if (last)
		TH_LOG("%d times in the middle", parts);
	for (i = 0; i < MANY; i++) {
		kill(m->c[i].pid, SIGKILL);
		ut_wait(&m->c[i]);
	}
	close(t.fd);
}

TEST_F_TIMEOUT(at_the_end, buffer_taken_back, 200)
{
	taken_back(_metadata, &self->s, false);
}

TEST_F_TIMEOUT(at_the_end, last_buffer_taken_back, 200)
{
	taken_back(_metadata, &self->s, true);
}

/* Who asked for three frames does not get more because the task was asleep. */
TEST_F(at_the_end, max_stack)
{
	struct ut_opts opts = { .max_stack = 3 };
	struct ut_stack got;

	self->sh->how = PAUSE;
	ASSERT_EQ(0, ut_fork(&self->c, ladder_asleep, self->sh));
	opts.pid = self->c.pid;
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_pause"));
	ASSERT_EQ(0, ut_enable(&self->s));
	ASSERT_EQ(0, ut_go(&self->c));
	wait_called(self->sh);
	ASSERT_TRUE(ut_wait_state(self->c.pid, "S"));
	ASSERT_EQ(0, ut_disable(&self->s));
	ASSERT_EQ(0, ut_drain(&self->s));
	ASSERT_EQ(UT_DEFERRED,
		  ut_user_stack(&self->s, ut_sample(&self->s, 0, self->c.pid, 0), &got));
	EXPECT_EQ(3, got.nr);
	EXPECT_TRUE(ut_stack_within(&got, &self->sh->st));
}

/* Enabled again after that, the session goes on: the next entry, the next stack. */
TEST_F(at_the_end, and_again)
{
	int i;

	self->sh->how = PIPE_READ;
	ASSERT_EQ(0, ut_fork(&self->c, ladder_asleep, self->sh));
	ASSERT_EQ(0, watch(&self->s, self->c.pid, "sys_enter_read"));
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_pause"));
	ASSERT_EQ(0, ut_go(&self->c));
	wait_called(self->sh);
	ASSERT_TRUE(ut_wait_state(self->c.pid, "S"));
	for (i = 0; i < 3; i++) {
		ASSERT_EQ(0, ut_disable(&self->s));
		ASSERT_EQ(0, ut_enable(&self->s));
	}
	/* No sample names that stack any more, and it is not written once more. */
	ASSERT_EQ(1, write(self->sh->pipe[1], "x", 1));
	while (!self->sh->returned)
		usleep(1000);
	ASSERT_TRUE(ut_wait_state(self->c.pid, "S"));
	ASSERT_EQ(0, ut_disable(&self->s));
	ASSERT_EQ(0, ut_drain(&self->s));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, 0, self->c.pid, 0),
				&self->sh->st));
	EXPECT_EQ(1, self->sh->ret);
	EXPECT_EQ(1, ut_count_samples(&self->s, 1, self->c.pid));
	EXPECT_EQ(2, ut_count(&self->s, UT_RECORD_CALLCHAIN_DEFERRED, self->c.pid));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* A system call that falls asleep whenever the pipe is full. */
#define PIPE_SIZE	65536

static void write_much(void *arg)
{
	static char buf[8 * PIPE_SIZE];
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

static ssize_t empty_pipe(struct shared *sh)
{
	static char buf[PIPE_SIZE];

	return read(sh->pipe[0], buf, sizeof(buf));
}

/*
 * Sampled again in the same system call: its stack is in each part of the profile, once
 * and behind the samples, for whoever reads it.
 */
TEST_F(at_the_end, sampled_again)
{
	int part, enter, asleep, exit;
	struct ut_rec *r, *rec;
	ssize_t left, got;
	__u64 cookie = 0;
	unsigned int nr;

	ASSERT_EQ(0, ut_fork(&self->c, ladder_write, self->sh));
	ASSERT_EQ(0, watch(&self->s, self->c.pid, "sys_enter_write"));
	enter = 0;
	asleep = ut_add_tracepoint(&self->s, "sched", "sched_switch");
	exit = ut_add_tracepoint(&self->s, "syscalls", "sys_exit_write");
	ASSERT_LE(0, asleep);
	ASSERT_LE(0, exit);
	ASSERT_EQ(0, ut_enable(&self->s));
	ASSERT_EQ(0, ut_go(&self->c));
	wait_called(self->sh);
	for (part = 0; part < 4; part++) {
		/* It has slept, and so it was sampled, in this part. */
		do {
			usleep(1000);
			ASSERT_TRUE(ut_wait_state(self->c.pid, "S"));
			ASSERT_EQ(0, ut_drain(&self->s));
			nr = ut_count_samples(&self->s, asleep, self->c.pid);
			r = ut_sample(&self->s, asleep, self->c.pid, nr - 1);
		} while (!nr || (!part && r->cookie !=
				 ut_sample(&self->s, enter, self->c.pid, 0)->cookie));
		if (!part)
			cookie = r->cookie;
		EXPECT_EQ(cookie, r->cookie);
		EXPECT_EQ(NULL, ut_record_of(&self->s, self->c.pid, cookie));
		ASSERT_EQ(0, ut_disable(&self->s));
		ASSERT_EQ(0, ut_drain(&self->s));
		r = ut_sample(&self->s, asleep, self->c.pid, nr - 1);
		EXPECT_TRUE(ut_stack_is(&self->s, r, &self->sh->st)) TH_LOG("part %d", part);
		EXPECT_EQ(0, ut_check(&self->s, 0)) TH_LOG("part %d", part);

		/* As long as it is not: neither the next end writes it nor its own. */
		ASSERT_EQ(0, ut_enable(&self->s));
		ASSERT_EQ(0, ut_disable(&self->s));
		ut_forget(&self->s);
		ASSERT_EQ(0, ut_drain(&self->s));
		EXPECT_EQ(0, ut_count(&self->s, UT_RECORD_CALLCHAIN_DEFERRED, 0));
		ut_forget(&self->s);
		ASSERT_EQ(0, ut_enable(&self->s));
		ASSERT_EQ(PIPE_SIZE, empty_pipe(self->sh));
	}
	/* And when it is sampled on its way out, it writes it itself. */
	for (left = (8 - part) * PIPE_SIZE; left > 0; left -= got) {
		got = empty_pipe(self->sh);
		ASSERT_LT(0, got);
	}
	while (!UT_READ(self->sh->returned))
		usleep(1000);
	EXPECT_EQ(8 * PIPE_SIZE, self->sh->ret);
	ASSERT_TRUE(ut_wait_state(self->c.pid, "S"));
	ut_disable(&self->s);
	ASSERT_EQ(0, ut_drain(&self->s));
	r = ut_sample(&self->s, exit, self->c.pid, 0);
	EXPECT_TRUE(ut_stack_is(&self->s, r, &self->sh->st));
	EXPECT_EQ(cookie, r->cookie);
	rec = ut_record_of(&self->s, self->c.pid, cookie);
	ASSERT_NE(NULL, rec);
	EXPECT_LT(r->time, rec->time);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/*
 * The second frame of a sleeping task lies on a page that is not there. Who disables
 * the event does not wait for it: the stack ends there.
 */
enum {
	USERFAULTFD, FUSE, SWAPPED,
};

struct absent {
	unsigned long	*frame, *page;
	int		how, err;
	int		ready, returned;
};

#define SWAP_DEVICE	"/dev/ram0"

/* All of the device is swap space. */
static int swap_on(void)
{
	size_t page = sysconf(_SC_PAGESIZE);
	__u32 header[3] = { 1, 1023, 0 };	/* version, last page, bad pages */
	int fd = open(SWAP_DEVICE, O_RDWR | O_CLOEXEC);

	if (fd < 0 || pwrite(fd, header, sizeof(header), 1024) != sizeof(header) ||
	    pwrite(fd, "SWAPSPACE2", 10, page - 10) != 10 || fsync(fd))
		return -1;
	close(fd);
	return swapon(SWAP_DEVICE, 0);
}

static bool is_swapped(void *addr)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	__u64 entry = 0;

	if (pread(fd, &entry, sizeof(entry), (unsigned long)addr / sysconf(_SC_PAGESIZE) * 8) < 0)
		entry = 0;
	close(fd);
	return entry >> 62 & 1;
}

static int take_away(struct absent *a)
{
	size_t size = sysconf(_SC_PAGESIZE);
	int fd, i;

	switch (a->how) {
	case USERFAULTFD:
		fd = ut_userfault(a->page);
		return fd < 0 ? -fd : 0;
	case SWAPPED:
		a->page[0] = 0;
		a->page[1] = 0x400200;
		for (i = 0; i < 100 && !is_swapped(a->page); i++) {
			if (madvise(a->page, size, MADV_PAGEOUT))
				return errno;
			usleep(10000);
		}
		return is_swapped(a->page) ? 0 : EBUSY;
	}
	return 0;
}

static void pause_without(void *arg)
{
	struct absent *a = arg;
	unsigned long fp = (unsigned long)a->frame;

	a->err = take_away(a);
	a->frame[0] = (unsigned long)a->page;
	a->frame[1] = 0x400100;
	__atomic_store_n(&a->ready, 1, __ATOMIC_RELEASE);
	ut_syscall_on(fp, fp, __NR_pause, 0, 0, 0);
	a->returned = 1;
}

FIXTURE(absent) {
	struct ut_session s;
	struct ut_fuse fuse;
	struct absent *a;
	struct ut_child c;
};

FIXTURE_VARIANT(absent) {
	int how;
};

FIXTURE_VARIANT_ADD(absent, userfaultfd) {
	.how = USERFAULTFD,
};

FIXTURE_VARIANT_ADD(absent, fuse) {
	.how = FUSE,
};

FIXTURE_VARIANT_ADD(absent, swapped) {
	.how = SWAPPED,
};

FIXTURE_SETUP(absent)
{
	size_t size = sysconf(_SC_PAGESIZE);
	char *mem = mmap(NULL, 2 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			 -1, 0);

	memset(&self->s, 0, sizeof(self->s));
	memset(&self->fuse, 0, sizeof(self->fuse));
	self->a = ut_shared(sizeof(*self->a));
	ASSERT_NE(NULL, self->a);
	ASSERT_NE(MAP_FAILED, mem);
	self->a->how = variant->how;
	self->a->frame = (unsigned long *)mem;
	self->a->page = (unsigned long *)(mem + size);
	if (variant->how == FUSE) {
		ASSERT_EQ(0, ut_fuse_page(&self->fuse, false));
		/* A frame lies above the one before. */
		self->a->page = self->fuse.page;
		self->a->frame = (unsigned long *)mmap((char *)self->fuse.page - 16 * size, size,
						       PROT_READ | PROT_WRITE,
						       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		ASSERT_LT(self->a->frame, self->a->page);
	} else if (variant->how == SWAPPED) {
		ASSERT_EQ(0, swap_on()) TH_LOG("%s: %s; CONFIG_BLK_DEV_RAM, CONFIG_SWAP?",
					       SWAP_DEVICE, strerror(errno));
	}
	ASSERT_EQ(0, ut_fork(&self->c, pause_without, self->a));
}

FIXTURE_TEARDOWN(absent)
{
	kill(self->c.pid, SIGKILL);
	ut_wait(&self->c);
	ut_close(&self->s);
	if (variant->how == FUSE)
		ut_fuse_end(&self->fuse);
	if (variant->how == SWAPPED)
		swapoff(SWAP_DEVICE);
}

TEST_F(absent, page)
{
	struct ut_opts opts = { .pid = self->c.pid };
	struct ut_stack got;

	ASSERT_EQ(0, ut_open(&self->s, &opts));
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_pause"));
	ASSERT_EQ(0, ut_enable(&self->s));
	ASSERT_EQ(0, ut_go(&self->c));
	while (!UT_READ(self->a->ready))
		usleep(1000);
	ASSERT_EQ(0, self->a->err) TH_LOG("%s", strerror(self->a->err));
	ASSERT_TRUE(ut_wait_state(self->c.pid, "S"));
	ASSERT_EQ(0, ut_disable(&self->s));
	ASSERT_EQ(0, ut_drain(&self->s));
	ASSERT_EQ(UT_DEFERRED,
		  ut_user_stack(&self->s, ut_sample(&self->s, 0, self->c.pid, 0), &got));
	ASSERT_EQ(2, got.nr);
	EXPECT_EQ(0x400100, got.ip[1]);
	EXPECT_EQ('S', ut_task_state(self->c.pid));
	EXPECT_EQ(0, self->a->returned);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* The memory map of a sleeping task is locked by another thread. */
struct locked {
	struct shared	sh;
	struct ut_fuse	fuse;
	int		lock;
};

static void *lock_map(void *arg)
{
	struct locked *l = arg;

	while (!UT_READ(l->lock))
		usleep(1000);
	ut_fuse_lock(&l->fuse);
	return NULL;
}

static void ladder_locked(void *arg)
{
	struct locked *l = arg;
	pthread_t thread;

	if (!pthread_create(&thread, NULL, lock_map, l))
		ladder_asleep(&l->sh);
}

FIXTURE(locked) {
	struct ut_session s;
	struct locked *l;
	struct ut_child c;
};

FIXTURE_VARIANT(locked) {
	int ms;
};

FIXTURE_VARIANT_ADD(locked, a_moment) {
	.ms = 100,
};

FIXTURE_VARIANT_ADD(locked, for_ever) {
	.ms = -1,
};

FIXTURE_SETUP(locked)
{
	memset(&self->s, 0, sizeof(self->s));
	self->l = ut_shared(sizeof(*self->l));
	ASSERT_NE(NULL, self->l);
	self->l->sh.how = PAUSE;
	ASSERT_EQ(0, ut_fuse_slow_page(&self->l->fuse, variant->ms));
	ASSERT_EQ(0, ut_fork(&self->c, ladder_locked, self->l));
}

FIXTURE_TEARDOWN(locked)
{
	kill(self->c.pid, SIGKILL);
	ut_fuse_end(&self->l->fuse);
	ut_wait(&self->c);
	ut_close(&self->s);
}

/* Who disables the event waits for the lock, but not without end. */
TEST_F(locked, map)
{
	struct timespec from, to;
	struct ut_stack got;
	struct ut_rec *r;
	long ms;

	ASSERT_EQ(0, watch(&self->s, self->c.pid, "sys_enter_pause"));
	ASSERT_EQ(0, ut_go(&self->c));
	wait_called(&self->l->sh);
	ASSERT_TRUE(ut_wait_state(self->c.pid, "S"));
	__atomic_store_n(&self->l->lock, 1, __ATOMIC_RELEASE);
	while (!UT_READ(*self->l->fuse.locked))
		usleep(1000);
	clock_gettime(CLOCK_MONOTONIC, &from);
	ASSERT_EQ(0, ut_disable(&self->s));
	clock_gettime(CLOCK_MONOTONIC, &to);
	ms = (to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000;
	ASSERT_EQ(0, ut_drain(&self->s));
	r = ut_sample(&self->s, 0, self->c.pid, 0);
	if (variant->ms > 0) {
		EXPECT_TRUE(ut_stack_is(&self->s, r, &self->l->sh.st));
	} else {
		/* 200, on a machine that has nothing else to do. */
		EXPECT_LT(ms, 2000);
		ASSERT_EQ(UT_DEFERRED, ut_user_stack(&self->s, r, &got));
		EXPECT_EQ(0, got.nr);
	}
	EXPECT_EQ('S', ut_task_state(self->c.pid));
	EXPECT_EQ(0, self->l->sh.returned);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* In a system call for a long time: it is not waited for, but has its stack. */
static void run_on(void *arg)
{
	static char buf[1 << 20];
	struct shared *sh = arg;
	struct iovec iov[1024];
	unsigned int i;
	int fd = open("/dev/urandom", O_RDONLY);

	for (i = 0; i < ARRAY_SIZE(iov); i++)
		iov[i] = (struct iovec){ buf, sizeof(buf) };
	for (;;)
		sh->ret = ut_syscall3(&sh->st, __NR_readv, fd, iov, ARRAY_SIZE(iov));
}

static void ladder_run_on(void *arg)
{
	ut_ladder(6, run_on, arg);
}

TEST_F(at_the_end, runs_on)
{
	struct timespec from, to;
	long ms;

	ASSERT_EQ(0, ut_fork(&self->c, ladder_run_on, self->sh));
	ASSERT_EQ(0, watch(&self->s, self->c.pid, "sys_enter_readv"));
	ASSERT_EQ(0, ut_go(&self->c));
	wait_called(self->sh);
	usleep(50000);
	clock_gettime(CLOCK_MONOTONIC, &from);
	ASSERT_EQ(0, ut_disable(&self->s));
	clock_gettime(CLOCK_MONOTONIC, &to);
	ms = (to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000;
	/* 50, on a machine that has nothing else to do. */
	EXPECT_LT(ms, 2000);
	ASSERT_EQ(0, ut_drain(&self->s));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, 0, self->c.pid, 0),
				&self->sh->st));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/*
 * Killed while who disables the event waits for it: what that one writes is from before its
 * end, by the times of both. The end is told to another event.
 */
static void *kill_soon(void *arg)
{
	pid_t *pid = arg;

	usleep(10000);
	kill(*pid, SIGKILL);
	return NULL;
}

TEST_F(at_the_end, killed_meanwhile)
{
	struct ut_opts opts = { .sideband = true, .no_output = true };
	struct ut_rec *sample, *record, *end = NULL;
	struct ut_session others;
	pthread_t id;
	size_t i;

	memset(&others, 0, sizeof(others));
	ASSERT_EQ(0, ut_fork(&self->c, ladder_run_on, self->sh));
	opts.pid = self->c.pid;
	ASSERT_EQ(0, ut_open(&others, &opts));
	ASSERT_EQ(0, ut_enable(&others));
	ASSERT_EQ(0, watch(&self->s, self->c.pid, "sys_enter_readv"));
	ASSERT_EQ(0, ut_go(&self->c));
	wait_called(self->sh);
	usleep(50000);
	ASSERT_EQ(0, pthread_create(&id, NULL, kill_soon, &self->c.pid));
	ASSERT_EQ(0, ut_disable(&self->s));
	ASSERT_EQ(0, pthread_join(id, NULL));
	ASSERT_EQ(SIGKILL, ut_wait(&self->c));
	ASSERT_EQ(0, ut_drain(&self->s));
	ASSERT_EQ(0, ut_drain(&others));
	for (i = 0; i < others.nr_recs; i++) {
		if (others.rec[i].type == PERF_RECORD_EXIT && others.rec[i].tid == self->c.pid)
			end = &others.rec[i];
	}
	ASSERT_NE(NULL, end);
	sample = ut_sample(&self->s, 0, self->c.pid, 0);
	EXPECT_TRUE(ut_stack_is(&self->s, sample, &self->sh->st));
	record = ut_record_of(&self->s, self->c.pid, sample->cookie);
	ASSERT_NE(NULL, record);
	EXPECT_LT(sample->time, record->time);
	EXPECT_LT(record->time, end->time);
	EXPECT_EQ(0, ut_check(&self->s, 0));
	self->c.pid = 0;
	ut_close(&others);
}

static int move_to(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return sched_setaffinity(0, sizeof(set), &set);
}

/* A thread in a long call, and one that sleeps in the end. */
struct busy {
	struct shared	sh, asleep;
	pid_t		runs;
	int		cpus[2], go;
};

static void *runs_long(void *arg)
{
	struct busy *b = arg;

	move_to(b->cpus[1]);
	__atomic_store_n(&b->runs, gettid(), __ATOMIC_RELEASE);
	ladder_long(&b->sh);
	return NULL;
}

static void busy_process(void *arg)
{
	struct busy *b = arg;
	pthread_t id;

	if (pthread_create(&id, NULL, runs_long, b))
		_exit(1);
	while (!UT_READ(b->go))
		usleep(1000);
	b->asleep.how = PAUSE;
	ladder_asleep(&b->asleep);
}

#define MANY_EVENTS	200

/*
 * An event a thread and CPU, that are disabled one after the other while the others
 * sample on, as by perf record -p: a moment for all, and not one for each. Who falls
 * asleep behind that has its stack, too.
 */
TEST_F_TIMEOUT(at_the_end, many_events_beside_busy_tasks, 120)
{
	struct busy *b = ut_shared(sizeof(*b));
	struct ut_opts opts = { .per_cpu = true };
	struct ut_session calls, asleep;
	struct rusage before, after;
	int i, fd[MANY_EVENTS];

	ASSERT_NE(NULL, b);
	memset(&calls, 0, sizeof(calls));
	memset(&asleep, 0, sizeof(asleep));
	if (ut_online_cpus(b->cpus, ARRAY_SIZE(b->cpus)) < 2)
		SKIP(return, "needs two CPUs");
	/* The long call has one for itself: it is not walked while it is preempted. */
	ASSERT_EQ(0, move_to(b->cpus[0]));
	ASSERT_EQ(0, ut_fork(&self->c, busy_process, b));
	ASSERT_EQ(0, ut_go(&self->c));
	while (!UT_READ(b->runs))
		usleep(1000);

	opts.pid = b->runs;
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getrandom"));
	/* Each of the calls that disable an event is another stack to wait for. */
	opts.pid = 0;
	ASSERT_EQ(0, ut_open(&calls, &opts));
	ASSERT_LE(0, ut_add_tracepoint(&calls, "syscalls", "sys_enter_ioctl"));
	opts.pid = self->c.pid;
	ASSERT_EQ(0, ut_open(&asleep, &opts));
	ASSERT_LE(0, ut_add_tracepoint(&asleep, "syscalls", "sys_enter_pause"));
	for (i = 0; i < MANY_EVENTS; i++) {
		struct ut_ring *ring = &asleep.ring[i % asleep.nr_rings];

		fd[i] = open_output(self->c.pid, ring->cpu);
		ASSERT_LE(0, fd[i]);
		ASSERT_EQ(0, ioctl(fd[i], PERF_EVENT_IOC_SET_OUTPUT, ring->fd));
	}
	ASSERT_EQ(0, ut_enable(&self->s));
	ASSERT_EQ(0, ut_enable(&asleep));
	while (!ut_count_samples(&self->s, 0, b->runs)) {
		usleep(10000);
		ASSERT_EQ(0, ut_drain(&self->s));
	}
	ASSERT_EQ(0, ut_enable(&calls));

	ASSERT_EQ(0, getrusage(RUSAGE_THREAD, &before));
	for (i = 0; i < MANY_EVENTS; i++)
		ASSERT_EQ(0, ioctl(fd[i], PERF_EVENT_IOC_DISABLE, 0));
	ASSERT_EQ(0, getrusage(RUSAGE_THREAD, &after));
	TH_LOG("waited %ld times", after.ru_nvcsw - before.ru_nvcsw);
	EXPECT_GT(MANY_EVENTS / 2, after.ru_nvcsw - before.ru_nvcsw);

	__atomic_store_n(&b->go, 1, __ATOMIC_RELEASE);
	wait_called(&b->asleep);
	ASSERT_TRUE(ut_wait_state(self->c.pid, "S"));
	ASSERT_EQ(0, ut_disable(&asleep));
	ASSERT_EQ(0, ut_drain(&asleep));
	EXPECT_TRUE(ut_stack_is(&asleep, ut_sample(&asleep, 0, self->c.pid, 0),
				&b->asleep.st));
	ut_disable(&calls);
	ut_disable(&self->s);
	for (i = 0; i < MANY_EVENTS; i++)
		close(fd[i]);
	ut_close(&calls);
	ut_close(&asleep);
}

#define DEAD_EVENTS	200

/* Its frame is in a page that does not come. */
static void stuck_in_the_walk(void *page)
{
	ut_syscall_on((unsigned long)page, (unsigned long)page, __NR_getppid, 0, 0, 0);
	for (;;)
		pause();
}

static void dies(void *arg)
{
}

/*
 * Where the tasks of all events have died, each that is disabled is the last one. Who
 * cannot be had of those that wait is not waited for, and looked for, by every one.
 */
static void disables_of_the_dead(struct __test_metadata *_metadata, struct ut_session *s,
				 struct ut_child *c)
{
	struct ut_opts opts = { .per_cpu = true };
	struct rusage before, after;
	struct ut_fuse fuse = {};
	int i, fd[DEAD_EVENTS];
	struct ut_child dead;

	ASSERT_EQ(0, ut_device_page(&fuse));
	ASSERT_EQ(0, ut_fork(c, stuck_in_the_walk, fuse.page));
	opts.pid = c->pid;
	ASSERT_EQ(0, ut_open(s, &opts));
	ASSERT_LE(0, ut_add_tracepoint(s, "syscalls", "sys_enter_getppid"));
	ASSERT_EQ(0, ut_enable(s));
	ASSERT_EQ(0, ut_fork(&dead, dies, NULL));
	for (i = 0; i < DEAD_EVENTS; i++) {
		struct ut_ring *ring = &s->ring[i % s->nr_rings];

		fd[i] = open_output(dead.pid, ring->cpu);
		ASSERT_LE(0, fd[i]);
		ASSERT_EQ(0, ioctl(fd[i], PERF_EVENT_IOC_SET_OUTPUT, ring->fd));
	}
	ASSERT_EQ(0, ut_go(&dead));
	ASSERT_EQ(0, ut_wait(&dead));
	ASSERT_EQ(0, ut_go(c));
	ASSERT_TRUE(ut_wait_state(c->pid, "D"));
	ASSERT_EQ(0, ut_disable(s));

	ASSERT_EQ(0, getrusage(RUSAGE_THREAD, &before));
	for (i = 0; i < DEAD_EVENTS; i++)
		ASSERT_EQ(0, ioctl(fd[i], PERF_EVENT_IOC_DISABLE, 0));
	ASSERT_EQ(0, getrusage(RUSAGE_THREAD, &after));
	TH_LOG("waited %ld times", after.ru_nvcsw - before.ru_nvcsw);
	EXPECT_GT(DEAD_EVENTS / 2, after.ru_nvcsw - before.ru_nvcsw);

	for (i = 0; i < DEAD_EVENTS; i++)
		close(fd[i]);
	kill(c->pid, SIGKILL);
	ut_fuse_end(&fuse);
}

TEST_F_TIMEOUT(at_the_end, many_events_of_the_dead, 120)
{
	disables_of_the_dead(_metadata, &self->s, &self->c);
}

/*
 * Who is not waited for any more at the end of a profile finds nobody to take its stack: it
 * is counted then, once, by some event of the session. With @more there is another one, of
 * another task, which stays enabled.
 */
static void given_up(struct __test_metadata *_metadata, struct ut_session *s,
		     struct ut_child *c, bool more)
{
	__u64 samples, others, too = 0;
	struct ut_opts opts = {};
	struct ut_session other;
	struct ut_fuse fuse;

	ASSERT_EQ(0, ut_device_page(&fuse));
	ASSERT_EQ(0, ut_fork(c, stuck_in_the_walk, fuse.page));
	if (more) {
		ASSERT_EQ(0, ut_open(&other, &opts));
		ASSERT_EQ(0, ut_enable(&other));
	}
	opts.pid = c->pid;
	ASSERT_EQ(0, ut_open(s, &opts));
	ASSERT_LE(0, ut_add_tracepoint(s, "syscalls", "sys_enter_getppid"));
	ASSERT_EQ(0, ut_enable(s));
	ASSERT_EQ(0, ut_go(c));
	ASSERT_TRUE(ut_wait_state(c->pid, "D"));
	ASSERT_EQ(0, ut_disable(s));
	ASSERT_EQ(0, ut_lost(s, &samples, &others));
	EXPECT_EQ(0, others);

	/* For a second the other one would still take it, when it is disabled. */
	if (more)
		sleep(2);
	ut_fuse_end(&fuse);
	ASSERT_TRUE(ut_wait_state(c->pid, "S"));
	ASSERT_EQ(0, ut_drain(s));
	EXPECT_EQ(1, ut_count_samples(s, 0, c->pid));
	EXPECT_EQ(0, ut_count(s, UT_RECORD_CALLCHAIN_DEFERRED, c->pid));
	if (more) {
		ASSERT_EQ(0, ut_disable(&other));
		ASSERT_EQ(0, ut_drain(&other));
		EXPECT_EQ(0, ut_count(&other, UT_RECORD_CALLCHAIN_DEFERRED, c->pid));
		ASSERT_EQ(0, ut_lost(&other, &samples, &too));
		ut_close(&other);
	}
	ASSERT_EQ(0, ut_lost(s, &samples, &others));
	EXPECT_EQ(0, samples);
	EXPECT_EQ(1, others + too);
}

TEST_F_TIMEOUT(at_the_end, given_up_then_counted, 60)
{
	given_up(_metadata, &self->s, &self->c, false);
}

TEST_F_TIMEOUT(at_the_end, given_up_by_another, 60)
{
	given_up(_metadata, &self->s, &self->c, true);
}

#define SLOTS	20	/* more than there are */

/* A profiler that takes a slot or, where none is left, shares one, and samples on. */
static void samples_on(void *arg)
{
	struct ut_opts opts = { .pid = getpid(), .pages = 1 };
	struct ut_session s = {};

	if (ut_open(&s, &opts) || ut_add_tracepoint(&s, "syscalls", "sys_enter_getppid") < 0 ||
	    ut_enable(&s) || ut_write_all(ut_out, "r", 1))
		_exit(1);
	while (UT_READ(*(int *)arg))
		syscall(__NR_getppid);
	pause();
}

/* What the others ask for with whom a session shares its slot is no reason to look again. */
TEST_F_TIMEOUT(at_the_end, many_events_of_the_dead_sharing, 120)
{
	int i, *busy = ut_shared(SLOTS * sizeof(*busy));
	struct ut_child c[SLOTS];
	char byte;

	ASSERT_NE(NULL, busy);
	busy[SLOTS - 1] = 1;
	for (i = 0; i < SLOTS; i++) {
		ASSERT_EQ(0, ut_fork(&c[i], samples_on, &busy[i]));
		ASSERT_EQ(0, ut_go(&c[i]));
		ASSERT_EQ(0, ut_read_all(c[i].out, &byte, 1));
	}
	disables_of_the_dead(_metadata, &self->s, &self->c);
	for (i = 0; i < SLOTS; i++) {
		kill(c[i].pid, SIGKILL);
		ut_wait(&c[i]);
	}
}

/*
 * An event of another task stays enabled while those of one are disabled, a CPU after the
 * other. As long as one of these is left it may take what a long call writes by itself;
 * the last of them has it.
 */
static void run_on_elsewhere(void *arg)
{
	struct shared *sh = arg;

	if (move_to(sh->cpus[1]))
		_exit(1);
	ladder_run_on(sh);
}

static void fork_one_that_runs_on(void *arg)
{
	struct shared *sh = arg;
	pid_t pid = fork();

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		run_on_elsewhere(sh);
	}
	sh->tid = pid;
	for (;;)
		pause();
}

/* Some event that stays as it is. */
static int stays(struct ut_session *s, struct ut_child *idle)
{
	struct ut_opts opts = {};

	memset(s, 0, sizeof(*s));
	if (ut_fork(idle, dies, NULL))
		return -1;
	opts.pid = idle->pid;
	return ut_open(s, &opts) || ut_enable(s) ? -1 : 0;
}

static void stays_no_more(struct ut_session *s, struct ut_child *idle)
{
	kill(idle->pid, SIGKILL);
	ut_wait(idle);
	ut_close(s);
}

static void disable_a_part(struct __test_metadata *_metadata, struct ut_session *s,
			   struct ut_child *c, struct shared *sh, bool inherit)
{
	struct ut_opts opts = { .per_cpu = true, .inherit = inherit };
	int cpus[UT_MAX_CPUS];
	struct ut_session other;
	struct ut_child idle;
	long before;
	pid_t tid;

	if (ut_online_cpus(cpus, UT_MAX_CPUS) < 2)
		SKIP(return, "needs two CPUs");
	/* The long call has one for itself. */
	sh->cpus[1] = cpus[1];
	ASSERT_EQ(0, move_to(cpus[0]));
	ASSERT_EQ(0, ut_fork(c, inherit ? fork_one_that_runs_on : run_on_elsewhere, sh));
	opts.pid = c->pid;
	ASSERT_EQ(0, ut_open(s, &opts));
	ASSERT_LE(0, ut_add_tracepoint(s, "syscalls", "sys_enter_readv"));
	ASSERT_EQ(0, stays(&other, &idle));
	ASSERT_EQ(0, ut_enable(s));
	ASSERT_EQ(0, ut_go(c));
	wait_called(sh);
	usleep(50000);
	tid = inherit ? UT_READ(sh->tid) : c->pid;
	ASSERT_LT(0, tid);
	if (!inherit) {
		/*
		 * The call has an event yet that will take its record. If it had to wait
		 * for its CPU meanwhile it may have been walked.
		 */
		before = switches(tid);
		ASSERT_EQ(cpus[0], s->ring[0].cpu);
		ASSERT_EQ(0, ioctl(s->ring[0].fd, PERF_EVENT_IOC_DISABLE, 0));
		ASSERT_EQ(0, ut_drain(s));
		if (before == switches(tid))
			EXPECT_EQ(0, ut_count(s, UT_RECORD_CALLCHAIN_DEFERRED, tid));
	}
	ASSERT_EQ(0, ut_disable(s));
	ASSERT_EQ(0, ut_drain(s));
	EXPECT_TRUE(ut_stack_is(s, ut_sample(s, 0, tid, 0), &sh->st));
	EXPECT_EQ(0, ut_check(s, 0));
	kill(tid, SIGKILL);
	stays_no_more(&other, &idle);
}

TEST_F(at_the_end, part_of_the_session)
{
	disable_a_part(_metadata, &self->s, &self->c, self->sh, false);
}

TEST_F(at_the_end, part_of_the_session_inherited)
{
	disable_a_part(_metadata, &self->s, &self->c, self->sh, true);
}

/*
 * Behind the time that one event has waited for a long call: who has inherited another
 * one, and fell asleep just now, is not left out.
 */
static void fork_one_asleep(void *arg)
{
	struct shared *sh = arg;
	pid_t pid = fork();

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		sh->how = PAUSE;
		ladder_asleep(sh);
	}
	sh->tid = pid;
	for (;;)
		usleep(1000000);
}

TEST_F(at_the_end, inherited_behind_another)
{
	struct ut_opts opts = { .per_cpu = true, .inherit = true };
	struct shared *busy = ut_shared(sizeof(*busy));
	struct ut_session other, calls;
	struct ut_child idle, runs;
	int cpus[UT_MAX_CPUS];
	pid_t tid;

	ASSERT_NE(NULL, busy);
	if (ut_online_cpus(cpus, UT_MAX_CPUS) < 2)
		SKIP(return, "needs two CPUs");
	busy->cpus[1] = cpus[1];
	ASSERT_EQ(0, move_to(cpus[0]));
	ASSERT_EQ(0, stays(&other, &idle));
	ASSERT_EQ(0, ut_fork(&self->c, fork_one_asleep, self->sh));
	opts.pid = self->c.pid;
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_pause"));
	ASSERT_EQ(0, ut_enable(&self->s));
	ASSERT_EQ(0, ut_fork(&runs, run_on_elsewhere, busy));
	memset(&calls, 0, sizeof(calls));
	ASSERT_EQ(0, watch(&calls, runs.pid, "sys_enter_readv"));
	ASSERT_EQ(0, ut_go(&runs));
	wait_called(busy);
	usleep(50000);
	ASSERT_EQ(0, ut_disable(&calls));

	ASSERT_EQ(0, ut_go(&self->c));
	wait_called(self->sh);
	while (!(tid = UT_READ(self->sh->tid)))
		usleep(1000);
	ASSERT_TRUE(ut_wait_state(tid, "S"));
	ASSERT_EQ(0, ut_disable(&self->s));
	ASSERT_EQ(0, ut_drain(&self->s));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, 0, tid, 0), &self->sh->st));
	EXPECT_EQ(0, ut_check(&self->s, 0));
	kill(runs.pid, SIGKILL);
	ut_wait(&runs);
	ut_close(&calls);
	stays_no_more(&other, &idle);
}

#define IDLE_EVENTS	5000

/* What the fastest of some turns of a hundred calls takes, of this thread's own time. */
static long ns_of_disables(int fd)
{
	struct timespec begun, ended;
	long ns, best = LONG_MAX;
	int turn, i;

	for (turn = 0; turn < 10; turn++) {
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begun);
		for (i = 0; i < 100; i++) {
			if (ioctl(fd, PERF_EVENT_IOC_DISABLE, 0))
				return -1;
		}
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ended);
		ns = (ended.tv_sec - begun.tv_sec) * 1000000000L +
		     ended.tv_nsec - begun.tv_nsec;
		best = ns < best ? ns : best;
	}
	return best;
}

/* None takes a record any more: how many there are is nothing to who is disabled. */
TEST_F_TIMEOUT(at_the_end, many_disabled_events, 120)
{
	struct rlimit old, limit = { IDLE_EVENTS + 1000, IDLE_EVENTS + 1000 };
	static int fd[IDLE_EVENTS];
	struct ut_opts opts = {};
	long alone, among;
	int i;

	ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &old));
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &limit));
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	ASSERT_EQ(0, ut_enable(&self->s));
	ASSERT_EQ(0, ut_disable(&self->s));
	alone = ns_of_disables(self->s.ring[0].fd);
	for (i = 0; i < IDLE_EVENTS; i++) {
		fd[i] = open_output_as(0, -1, true);
		ASSERT_LE(0, fd[i]);
		ASSERT_EQ(0, ioctl(fd[i], PERF_EVENT_IOC_SET_OUTPUT, self->s.ring[0].fd));
	}
	/* One that was enabled is the last one, again. */
	ASSERT_EQ(0, ut_enable(&self->s));
	ASSERT_EQ(0, ut_disable(&self->s));
	among = ns_of_disables(self->s.ring[0].fd);
	for (i = 0; i < IDLE_EVENTS; i++)
		close(fd[i]);
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &old));
	ASSERT_LT(0, alone);
	TH_LOG("100 calls: %ld ns, among %d others %ld ns", alone, IDLE_EVENTS, among);
	/* A hundred times as long where all are looked at. */
	EXPECT_GT(10 * alone, among);
}

/* The one who disables the event has asked for a stack in that very call. */
static void disable_output(void *arg)
{
	struct ut_session *s = arg;
	static struct ut_stack st;

	ut_syscall3(&st, __NR_ioctl, s->ring[0].fd, PERF_EVENT_IOC_DISABLE, 0);
}

TEST_F(at_the_end, own_stack)
{
	struct ut_stack got;

	ASSERT_EQ(0, watch(&self->s, 0, "sys_enter_ioctl"));
	ASSERT_EQ(0, ut_drain(&self->s));
	ut_forget(&self->s);
	ASSERT_EQ(0, ut_ladder(6, disable_output, &self->s));
	ASSERT_EQ(0, ut_drain(&self->s));
	ASSERT_EQ(1, ut_count_samples(&self->s, 0, 0));
	ASSERT_EQ(UT_DEFERRED, ut_user_stack(&self->s, ut_sample(&self->s, 0, 0, 0), &got));
	EXPECT_TRUE(ut_is_ladder(&got, 6, 2));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* A group is disabled by the ioctl() of any of its events; @page: as above. */
static void group_of(struct __test_metadata *_metadata, struct ut_session *s,
		     struct ut_child *c, struct shared *sh, __u64 flags, bool page)
{
	struct perf_event_attr attr = {
		.type		= PERF_TYPE_SOFTWARE,
		.size		= UT_ATTR_SIZE,
		.config		= PERF_COUNT_SW_DUMMY,
	};
	int member;

	sh->how = PIPE_READ;
	ASSERT_EQ(0, ut_fork(c, ladder_asleep, sh));
	ASSERT_EQ(0, watch(s, c->pid, "sys_enter_read"));
	*ut_attr_flags(&attr) |= flags;
	member = ut_perf_open(&attr, c->pid, -1, s->ring[0].fd, 0);
	ASSERT_LE(0, member);
	if (page)
		ASSERT_NE(MAP_FAILED, mmap(NULL, sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE,
					   MAP_SHARED, member, 0));
	ASSERT_EQ(0, ut_go(c));
	wait_called(sh);
	ASSERT_TRUE(ut_wait_state(c->pid, "S"));
	ASSERT_EQ(0, ioctl(member, PERF_EVENT_IOC_DISABLE, PERF_IOC_FLAG_GROUP));
	ASSERT_EQ(0, ut_drain(s));
	EXPECT_TRUE(ut_stack_is(s, ut_sample(s, 0, c->pid, 0), &sh->st));
	EXPECT_EQ(0, ut_check(s, 0));
	close(member);
}

TEST_F(at_the_end, whole_group)
{
	group_of(_metadata, &self->s, &self->c, self->sh, 0, false);
}

/* Nobody could read from the member's buffer. */
TEST_F(at_the_end, whole_group_of_one_without_buffer)
{
	group_of(_metadata, &self->s, &self->c, self->sh, UT_DEFER_OUTPUT, false);
}

TEST_F(at_the_end, whole_group_of_one_without_room)
{
	group_of(_metadata, &self->s, &self->c, self->sh, UT_DEFER_OUTPUT, true);
}

/*
 * A task that stops hands out its stack before, so what is left for the end of the
 * profile is what a sample within the stop asks for.
 */
enum {
	STOPPED, TRACED_ENTRY, TRACED_EXIT, TRACED_SIGNAL, FROZEN,
};

static void call_and_stop(void *arg)
{
	struct shared *sh = arg;
	char byte;

	switch (sh->how) {
	case STOPPED:
		sh->ret = ut_syscall2(&sh->st, __NR_kill, getpid(), SIGSTOP);
		break;
	case TRACED_SIGNAL:
		sh->ret = ut_syscall2(&sh->st, __NR_kill, getpid(), SIGUSR1);
		break;
	case FROZEN:
		/* It is interrupted by that, and made again. */
		sh->ret = ut_syscall3(&sh->st, __NR_read, sh->pipe[0], &byte, 1) - 1;
		break;
	default:
		sh->ret = ut_syscall0(&sh->st, __NR_getuid);
		break;
	}
	__atomic_store_n(&sh->returned, 1, __ATOMIC_RELEASE);
	for (;;)
		pause();
}

static void ladder_stops(void *arg)
{
	ut_ladder(6, call_and_stop, arg);
}

FIXTURE(within_a_stop) {
	struct ut_session s;
	struct ut_cgroup freezer;
	struct shared *sh;
	struct ut_child c;
	int event;
};

FIXTURE_VARIANT(within_a_stop) {
	int how;
	const char *sys;	/* NULL: name is a function's */
	const char *name;
	char state;
};

FIXTURE_VARIANT_ADD(within_a_stop, stopped) {
	.how = STOPPED, .sys = "signal", .name = "signal_deliver", .state = 'T',
};

FIXTURE_VARIANT_ADD(within_a_stop, stopped_nmi) {
	.how = STOPPED, .name = "do_signal_stop", .state = 'T',
};

FIXTURE_VARIANT_ADD(within_a_stop, traced_at_entry) {
	.how = TRACED_ENTRY, .name = "ptrace_stop", .state = 't',
};

FIXTURE_VARIANT_ADD(within_a_stop, traced_at_exit) {
	.how = TRACED_EXIT, .name = "ptrace_stop", .state = 't',
};

FIXTURE_VARIANT_ADD(within_a_stop, traced_at_signal) {
	.how = TRACED_SIGNAL, .name = "ptrace_stop", .state = 't',
};

FIXTURE_VARIANT_ADD(within_a_stop, frozen) {
	.how = FROZEN, .name = "cgroup_enter_frozen", .state = 'S',
};

FIXTURE_SETUP(within_a_stop)
{
	struct ut_opts opts = {};

	memset(&self->s, 0, sizeof(self->s));
	memset(&self->freezer, 0, sizeof(self->freezer));
	self->sh = ut_shared(sizeof(*self->sh));
	ASSERT_NE(NULL, self->sh);
	self->sh->how = variant->how;
	ASSERT_EQ(0, pipe(self->sh->pipe));
	ASSERT_EQ(0, ut_fork(&self->c, ladder_stops, self->sh));
	opts.pid = self->c.pid;
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	self->event = variant->sys ?
		      ut_add_tracepoint(&self->s, variant->sys, variant->name) :
		      ut_add_function(&self->s, variant->name);
	ASSERT_LE(0, self->event);
}

FIXTURE_TEARDOWN(within_a_stop)
{
	kill(self->c.pid, SIGKILL);
	ut_wait(&self->c);
	ut_close(&self->s);
	if (self->freezer.group[0])
		ut_cgroup_end(&self->freezer);
}

/* Run the tracee to its next stop; the status. */
static int next_stop(pid_t pid, int how)
{
	int status;

	if (ptrace(how, pid, 0, 0) || waitpid(pid, &status, __WALL) != pid || !WIFSTOPPED(status))
		return -1;
	return status;
}

/* Run it to where it enters a system call. */
static int run_to_call(pid_t pid, __u64 nr)
{
	struct __ptrace_syscall_info info;

	do {
		if (next_stop(pid, PTRACE_SYSCALL) < 0 ||
		    ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(info), &info) < 0)
			return -1;
	} while (info.op != PTRACE_SYSCALL_INFO_ENTRY || info.entry.nr != nr);
	return 0;
}

static int bring_to_stop(struct ut_session *s, struct ut_child *c, struct shared *sh,
			 struct ut_cgroup *freezer)
{
	switch (sh->how) {
	case STOPPED:
		if (ut_enable(s) || ut_go(c))
			return -1;
		return ut_wait_state(c->pid, "T") ? 0 : -1;
	case FROZEN:
		if (ut_cgroup(freezer, c->pid) || ut_enable(s) || ut_go(c))
			return -1;
		wait_called(sh);
		return ut_wait_state(c->pid, "S") ? ut_freeze(freezer, true) : -1;
	}

	if (ptrace(PTRACE_SEIZE, c->pid, 0, PTRACE_O_TRACESYSGOOD) ||
	    ptrace(PTRACE_INTERRUPT, c->pid, 0, 0) || waitpid(c->pid, NULL, __WALL) != c->pid ||
	    ut_go(c))
		return -1;
	switch (sh->how) {
	case TRACED_ENTRY:
		return ut_enable(s) || run_to_call(c->pid, __NR_getuid) ? -1 : 0;
	case TRACED_EXIT:
		/* Only there: at the stop of the entry the stack had been handed out. */
		if (run_to_call(c->pid, __NR_getuid) || ut_enable(s))
			return -1;
		return next_stop(c->pid, PTRACE_SYSCALL) < 0 ? -1 : 0;
	default:
		if (ut_enable(s))
			return -1;
		return WSTOPSIG(next_stop(c->pid, PTRACE_CONT)) == SIGUSR1 ? 0 : -1;
	}
}

static int let_go(struct ut_child *c, struct shared *sh, struct ut_cgroup *freezer)
{
	switch (sh->how) {
	case STOPPED:
		return kill(c->pid, SIGCONT);
	case FROZEN:
		return ut_freeze(freezer, false) || write(sh->pipe[1], "x", 1) != 1;
	default:
		/* Without the signal, if it was one. */
		return ptrace(PTRACE_DETACH, c->pid, 0, 0);
	}
}

TEST_F(within_a_stop, walked_from_outside)
{
	unsigned int nr, records;
	struct ut_rec *r;
	long before;
	int i;

	ASSERT_EQ(0, bring_to_stop(&self->s, &self->c, self->sh, &self->freezer));
	/* It has not been switched out yet when its state can be seen. */
	do {
		before = switches(self->c.pid);
		usleep(50000);
	} while (before != switches(self->c.pid));
	ASSERT_EQ(variant->state, ut_task_state(self->c.pid));
	ASSERT_EQ(0, ut_drain(&self->s));
	nr = ut_count_samples(&self->s, self->event, self->c.pid);
	ASSERT_LE(1, nr);
	r = ut_sample(&self->s, self->event, self->c.pid, nr - 1);
	ASSERT_NE(0, r->cookie);
	ASSERT_EQ(NULL, ut_record_of(&self->s, self->c.pid, r->cookie));

	ASSERT_EQ(0, ut_disable(&self->s));
	ASSERT_EQ(0, ut_drain(&self->s));
	r = ut_sample(&self->s, self->event, self->c.pid, nr - 1);
	EXPECT_TRUE(ut_stack_is(&self->s, r, &self->sh->st));
	EXPECT_EQ(0, ut_check(&self->s, 0));
	EXPECT_EQ(before, switches(self->c.pid));
	EXPECT_EQ(variant->state, ut_task_state(self->c.pid));
	EXPECT_EQ(0, self->sh->returned);
	records = ut_count(&self->s, UT_RECORD_CALLCHAIN_DEFERRED, 0);

	/* It goes on as if nothing had been, and its stack is not written once more. */
	ASSERT_EQ(0, ioctl(self->s.ring[0].fd, PERF_EVENT_IOC_ENABLE, 0));
	ASSERT_EQ(0, let_go(&self->c, self->sh, &self->freezer));
	for (i = 0; i < 2000 && !UT_READ(self->sh->returned); i++)
		usleep(5000);
	EXPECT_EQ(1, self->sh->returned);
	EXPECT_EQ(0, self->sh->ret);
	ASSERT_TRUE(ut_wait_state(self->c.pid, "S"));
	ASSERT_EQ(0, ioctl(self->s.ring[0].fd, PERF_EVENT_IOC_DISABLE, 0));
	ASSERT_EQ(0, ut_drain(&self->s));
	EXPECT_EQ(records, ut_count(&self->s, UT_RECORD_CALLCHAIN_DEFERRED, 0));
}

/*
 * A task that goes on while it is walked from outside: from one of two deep stacks to
 * the other, each with a system call of its own. Their frames have the same places, and
 * each of them a page of its own, so that the walk takes longer.
 */
#define DEEP	50
#define FRAME	4096

struct runner {
	struct ut_stack	st[2];
	struct iovec	iov;
	char		byte;
	int		pipe[2][2], turn[2];
	unsigned int	calls;
};

static ut_noinline void deep_read(unsigned int left, struct runner *r)
{
	char frame[FRAME];

	if (left)
		deep_read(left - 1, r);
	else
		ut_syscall3(&r->st[0], __NR_read, r->pipe[0][0], &r->byte, 1);
	asm volatile("" : : "r" (frame) : "memory");
}

static ut_noinline void deep_readv(unsigned int left, struct runner *r)
{
	char frame[FRAME];

	if (left)
		deep_readv(left - 1, r);
	else
		ut_syscall3(&r->st[1], __NR_readv, r->pipe[1][0], &r->iov, 1);
	asm volatile("" : : "r" (frame) : "memory");
}

static void run_to_and_fro(void *arg)
{
	struct runner *r = arg;

	r->iov = (struct iovec){ &r->byte, 1 };
	for (;; r->calls += 2) {
		if (write(r->turn[1], "0", 1) != 1)
			_exit(1);
		deep_read(DEEP, r);
		if (write(r->turn[1], "1", 1) != 1)
			_exit(1);
		deep_readv(DEEP, r);
	}
}

static void ladder_runner(void *arg)
{
	ut_ladder(2, run_to_and_fro, arg);
}

/* Wake it from each call, after a time that is never the same. */
static void feed(void *arg)
{
	unsigned int seed = 1, i;
	struct runner *r = arg;
	char turn;

	while (read(r->turn[0], &turn, 1) == 1) {
		seed = seed * 1103515245 + 12345;
		for (i = 0; i < (seed >> 16) % 50000; i++)
			asm volatile("");
		if (write(r->pipe[turn - '0'][1], "x", 1) != 1)
			_exit(1);
	}
}

/* So many walks, or as many as there are in that time, which is longer for the first few. */
#define RACE_WALKS	2000
#define RACE_FEW	10
#define RACE_SECONDS	40
#define RACE_MORE	60

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

/* Which of the events has a sample that waits for this stack? It is one of the last. */
static int sampled_by(struct ut_session *s, __u64 cookie)
{
	size_t i;

	for (i = s->nr_recs; i--; ) {
		if (s->rec[i].type == PERF_RECORD_SAMPLE && s->rec[i].cookie == cookie)
			return s->rec[i].id == s->event[0].id[0] ? 0 : 1;
	}
	return -1;
}

TEST_F_TIMEOUT(at_the_end, woken_again, 200)
{
	struct ut_stack want[2], got;
	struct ut_opts opts = {};
	struct ut_session end;
	struct ut_child feeder;
	int disables = 0, walked = 0;
	struct runner *r;
	double until, more;
	char turn;
	int i, e;

	r = ut_shared(sizeof(*r));
	ASSERT_NE(NULL, r);
	ASSERT_EQ(0, pipe(r->pipe[0]));
	ASSERT_EQ(0, pipe(r->pipe[1]));
	ASSERT_EQ(0, pipe(r->turn));
	ASSERT_EQ(0, ut_fork(&self->c, ladder_runner, r));
	ASSERT_EQ(0, ut_fork(&feeder, feed, r));
	ASSERT_EQ(0, ut_go(&self->c));
	/* Once without a race, up to the third call. */
	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, ut_read_all(r->turn[0], &turn, 1));
		ASSERT_EQ('0' + i, turn);
		ASSERT_EQ(1, write(r->pipe[i][1], "x", 1));
	}
	while (!UT_READ(r->calls))
		usleep(1000);
	ASSERT_TRUE(ut_wait_state(self->c.pid, "S"));
	memcpy(want, r->st, sizeof(want));
	ASSERT_LT(DEEP, want[0].nr);
	ASSERT_LT(DEEP, want[1].nr);

	/* An event of this task's is of the same session, and nothing to disable. */
	ASSERT_EQ(0, ut_open(&end, &opts));
	opts.pid = self->c.pid;
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	ASSERT_EQ(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_read"));
	ASSERT_EQ(1, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_readv"));
	ASSERT_EQ(0, ut_enable(&self->s));
	ASSERT_EQ(0, ut_go(&feeder));
	until = now() + RACE_SECONDS;
	more = until + RACE_MORE;
	while (walked < RACE_WALKS && now() < (walked > RACE_FEW ? until : more)) {
		size_t k;

		for (i = 0; i < 20; i++, disables++)
			ASSERT_EQ(0, ioctl(end.ring[0].fd, PERF_EVENT_IOC_DISABLE, 0));
		ASSERT_EQ(0, ut_drain(&self->s));
		ASSERT_EQ(0, ut_drain(&end));
		for (k = 0; k < end.nr_recs; k++) {
			struct ut_rec *rec = &end.rec[k];

			e = sampled_by(&self->s, rec->cookie);
			if (rec->type != UT_RECORD_CALLCHAIN_DEFERRED || e < 0)
				continue;
			got.nr = rec->nr;
			ASSERT_GE(UT_MAX_FRAMES, got.nr);
			memcpy(got.ip, rec->ips, got.nr * sizeof(got.ip[0]));
			ASSERT_TRUE(ut_same_stack(&got, &want[e])) TH_LOG("walk %d", walked);
			walked++;
		}
		ut_forget(&end);
		/* Seldom: the next record may be for the last sample. */
		if (self->s.nr_recs > 10000)
			ut_forget(&self->s);
	}
	ut_diag("%d disables, %u calls, %d stacks", disables, UT_READ(r->calls), walked);
	EXPECT_LT(RACE_FEW, walked);
	kill(feeder.pid, SIGKILL);
	ut_wait(&feeder);
	ut_close(&end);
}

/* The first buffer is full, the one of the next event that is disabled has room. */
static void fill_and_sleep(void *arg)
{
	int i;

	for (i = 0; i < 200; i++)
		syscall(__NR_getppid);
	fall_asleep(arg);
}

static void ladder_fill_and_sleep(void *arg)
{
	ut_ladder(6, fill_and_sleep, arg);
}

TEST_F(at_the_end, buffer_full)
{
	struct ut_opts opts = { .pages = 1 };
	struct ut_session other;
	int asleep;

	self->sh->how = PAUSE;
	ASSERT_EQ(0, ut_fork(&self->c, ladder_fill_and_sleep, self->sh));
	opts.pid = self->c.pid;
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid"));
	opts.pages = 128;
	ASSERT_EQ(0, ut_open(&other, &opts));
	asleep = ut_add_tracepoint(&other, "syscalls", "sys_enter_pause");
	ASSERT_LE(0, asleep);
	ASSERT_EQ(0, ut_enable(&self->s));
	ASSERT_EQ(0, ut_enable(&other));
	ASSERT_EQ(0, ut_go(&self->c));
	wait_called(self->sh);
	ASSERT_TRUE(ut_wait_state(self->c.pid, "S"));
	ASSERT_EQ(0, ut_disable(&self->s));
	ASSERT_EQ(0, ut_disable(&other));
	ASSERT_EQ(0, ut_drain(&self->s));
	ASSERT_EQ(0, ut_drain(&other));
	EXPECT_TRUE(ut_stack_is(&other, ut_sample(&other, asleep, self->c.pid, 0), &self->sh->st));
	ut_close(&other);
}

/*
 * Who is in a long call is walked when its own event, which has no room, has waited
 * for it: the next one has, and it is not the last.
 */
static void fill_and_run_on(void *arg)
{
	struct shared *sh = arg;
	int i;

	if (move_to(sh->cpus[1]))
		_exit(1);
	for (i = 0; i < 200; i++)
		syscall(__NR_getppid);
	run_on(sh);
}

static void ladder_fill_and_run_on(void *arg)
{
	ut_ladder(6, fill_and_run_on, arg);
}

TEST_F(at_the_end, buffer_full_when_late)
{
	struct ut_opts opts = { .pages = 1 };
	struct ut_session sampled, roomy, last;
	struct shared *sh = ut_shared(sizeof(*sh));
	struct ut_child asleep;
	int cpus[UT_MAX_CPUS];

	/* It runs when it is looked at. */
	if (ut_online_cpus(cpus, UT_MAX_CPUS) < 2)
		SKIP(return, "needs two CPUs");
	ASSERT_EQ(0, move_to(cpus[0]));
	self->sh->cpus[1] = cpus[1];
	ASSERT_NE(NULL, sh);
	sh->how = PAUSE;
	ASSERT_EQ(0, ut_fork(&self->c, ladder_fill_and_run_on, self->sh));
	ASSERT_EQ(0, ut_fork(&asleep, ladder_fill_and_sleep, sh));
	opts.pid = self->c.pid;
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid"));
	opts.pid = asleep.pid;
	ASSERT_EQ(0, ut_open(&last, &opts));
	ASSERT_LE(0, ut_add_tracepoint(&last, "syscalls", "sys_enter_getppid"));
	opts.pages = 16;
	ASSERT_EQ(0, ut_open(&roomy, &opts));
	opts.pid = self->c.pid;
	opts.no_output = true;
	ASSERT_EQ(0, ut_open(&sampled, &opts));
	ASSERT_LE(0, ut_add_tracepoint(&sampled, "syscalls", "sys_enter_readv"));
	ASSERT_EQ(0, ut_enable(&self->s));
	ASSERT_EQ(0, ut_enable(&last));
	ASSERT_EQ(0, ut_enable(&roomy));
	ASSERT_EQ(0, ut_enable(&sampled));
	ASSERT_EQ(0, ut_go(&asleep));
	wait_called(sh);
	ASSERT_TRUE(ut_wait_state(asleep.pid, "S"));
	ASSERT_EQ(0, ut_go(&self->c));
	wait_called(self->sh);
	usleep(50000);
	ASSERT_EQ(0, ut_disable(&self->s));
	ASSERT_EQ(0, ut_drain(&roomy));
	ASSERT_EQ(0, ut_count(&roomy, UT_RECORD_CALLCHAIN_DEFERRED, self->c.pid));
	ASSERT_EQ(0, ut_disable(&roomy));
	ASSERT_EQ(0, ut_disable(&last));
	ASSERT_EQ(0, ut_disable(&sampled));
	ASSERT_EQ(0, ut_drain(&sampled));
	ASSERT_LE(1, ut_count_samples(&sampled, 0, self->c.pid));
	ASSERT_EQ(0, ut_drain(&roomy));
	EXPECT_EQ(1, ut_count(&roomy, UT_RECORD_CALLCHAIN_DEFERRED, self->c.pid));
	kill(asleep.pid, SIGKILL);
	ut_wait(&asleep);
	ut_close(&sampled);
	ut_close(&roomy);
	ut_close(&last);
}

/* No room where the profiled task has gone, and one that it has made is asleep. */
static void orphan(void *arg)
{
	struct shared *sh = arg;
	int i;

	/* Nobody waits for this one. */
	alarm(60);
	if (move_to(sh->cpus[0]))
		_exit(1);
	for (i = 0; i < 200; i++)
		syscall(__NR_getppid);
	if (move_to(sh->cpus[1]))
		_exit(1);
	fall_asleep(sh);
}

/* A child of this process, which ends; tid is the child's */
static void leave(ut_fn child, struct shared *sh)
{
	pid_t pid = fork();

	if (!pid)
		ut_ladder(6, child, sh);
	sh->tid = pid;
	_exit(0);
}

static void leave_an_orphan(void *arg)
{
	leave(orphan, arg);
}

TEST_F(at_the_end, buffer_full_of_inherited)
{
	struct ut_opts opts = { .per_cpu = true, .inherit = true, .pages = 1 };
	int asleep, fill, cpus[UT_MAX_CPUS];
	pid_t pid;

	if (ut_online_cpus(cpus, UT_MAX_CPUS) < 2)
		SKIP(return, "needs two CPUs");
	self->sh->cpus[0] = cpus[0];
	self->sh->cpus[1] = cpus[1];
	self->sh->how = PAUSE;
	ASSERT_EQ(0, ut_fork(&self->c, leave_an_orphan, self->sh));
	opts.pid = self->c.pid;
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	fill = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid");
	asleep = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_pause");
	ASSERT_LE(0, fill);
	ASSERT_LE(0, asleep);
	ASSERT_EQ(0, ut_enable(&self->s));
	ASSERT_EQ(0, ut_go(&self->c));
	wait_called(self->sh);
	while (!(pid = UT_READ(self->sh->tid)))
		usleep(1000);
	EXPECT_TRUE(ut_wait_state(pid, "S"));
	EXPECT_EQ(0, ut_wait(&self->c));
	EXPECT_EQ(0, ut_disable(&self->s));
	ASSERT_EQ(0, kill(pid, SIGKILL));
	ASSERT_EQ(0, ut_drain(&self->s));
	ASSERT_GT(200, ut_count_samples(&self->s, fill, pid));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, asleep, pid, 0), &self->sh->st));
}

/*
 * The same where no buffer has room, and each is a group's. Who is disabled with the
 * group, and not asked for what is left, is no one to leave it to: it is counted as lost.
 */
static void orphan_everywhere(void *arg)
{
	int cpus[UT_MAX_CPUS], nr, i, k;

	alarm(60);
	nr = ut_online_cpus(cpus, UT_MAX_CPUS);
	for (i = 0; i < nr; i++) {
		if (move_to(cpus[i]))
			_exit(1);
		for (k = 0; k < 200; k++)
			syscall(__NR_getppid);
	}
	fall_asleep(arg);
}

static void leave_an_orphan_everywhere(void *arg)
{
	leave(orphan_everywhere, arg);
}

TEST_F(at_the_end, groups_full_of_inherited)
{
	struct ut_opts opts = { .per_cpu = true, .inherit = true, .pages = 1 };
	struct perf_event_attr attr = {
		.type		= PERF_TYPE_SOFTWARE,
		.size		= UT_ATTR_SIZE,
		.config		= PERF_COUNT_SW_DUMMY,
		.inherit	= 1,
	};
	__u64 samples, before, after;
	int i, member[UT_MAX_CPUS];
	pid_t pid;

	*ut_attr_flags(&attr) |= UT_DEFER_OUTPUT;
	self->sh->how = PAUSE;
	ASSERT_EQ(0, ut_fork(&self->c, leave_an_orphan_everywhere, self->sh));
	opts.pid = self->c.pid;
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid"));
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_pause"));
	for (i = 0; i < self->s.nr_rings; i++) {
		member[i] = ut_perf_open(&attr, self->c.pid, self->s.ring[i].cpu,
					 self->s.ring[i].fd, 0);
		ASSERT_LE(0, member[i]);
		ASSERT_NE(MAP_FAILED, mmap(NULL, 2 * sysconf(_SC_PAGESIZE),
					   PROT_READ | PROT_WRITE, MAP_SHARED, member[i], 0));
	}
	ASSERT_EQ(0, ut_enable(&self->s));
	ASSERT_EQ(0, ut_go(&self->c));
	wait_called(self->sh);
	while (!(pid = UT_READ(self->sh->tid)))
		usleep(1000);
	EXPECT_TRUE(ut_wait_state(pid, "S"));
	EXPECT_EQ(0, ut_wait(&self->c));
	ASSERT_EQ(0, ut_lost(&self->s, &samples, &before));
	ASSERT_LE(100, before);
	for (i = 0; i < self->s.nr_rings; i++)
		ASSERT_EQ(0, ioctl(self->s.ring[i].fd, PERF_EVENT_IOC_DISABLE,
				   PERF_IOC_FLAG_GROUP));
	ASSERT_EQ(0, ut_lost(&self->s, &samples, &after));
	EXPECT_EQ(before + 1, after);
	EXPECT_EQ(0, kill(pid, SIGKILL));
	for (i = 0; i < self->s.nr_rings; i++)
		close(member[i]);
}

static void orphan_asleep(void *arg)
{
	alarm(60);
	fall_asleep(arg);
}

static void leave_one_asleep(void *arg)
{
	leave(orphan_asleep, arg);
}

static void orphan_execs(void *arg)
{
	execlp("sleep", "sleep", "60", NULL);
	_exit(1);
}

static void leave_one_that_execs(void *arg)
{
	leave(orphan_execs, arg);
}

static void wait_execed(pid_t pid)
{
	char path[64], comm[16] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	while (strcmp(comm, "sleep\n")) {
		usleep(1000);
		f = fopen(path, "r");
		if (f) {
			fgets(comm, sizeof(comm), f);
			fclose(f);
		}
	}
}

/*
 * There is no room, and another event, not enabled yet, whose task is dead; one that has
 * inherited it lives, and enables it by an execve() or is asleep.
 */
static void beside_one_disabled(struct __test_metadata *_metadata, struct ut_session *s,
				struct ut_child *c, struct shared *sleeps, bool execs)
{
	struct perf_event_attr attr = {
		.type		= PERF_TYPE_SOFTWARE,
		.size		= UT_ATTR_SIZE,
		.config		= PERF_COUNT_SW_DUMMY,
		.disabled	= 1,
		.inherit	= 1,
		.enable_on_exec	= 1,
	};
	struct ut_opts opts = { .pages = 1 };
	struct shared *sh = ut_shared(sizeof(*sh));
	struct perf_event_mmap_page *page;
	__u64 samples, before, after;
	int fd, cpus[UT_MAX_CPUS];
	struct ut_child leaves;

	ASSERT_NE(NULL, sh);
	ASSERT_LE(1, ut_online_cpus(cpus, UT_MAX_CPUS));
	*ut_attr_flags(&attr) |= UT_DEFER_OUTPUT;
	sh->how = PAUSE;
	sleeps->how = PAUSE;
	ASSERT_EQ(0, ut_fork(&leaves, execs ? leave_one_that_execs : leave_one_asleep, sh));
	fd = ut_perf_open(&attr, leaves.pid, cpus[0], -1, 0);
	ASSERT_LE(0, fd);
	page = mmap(NULL, 2 * sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ASSERT_NE(MAP_FAILED, page);
	ASSERT_EQ(0, ut_fork(c, ladder_fill_and_sleep, sleeps));
	opts.pid = c->pid;
	ASSERT_EQ(0, ut_open(s, &opts));
	ASSERT_LE(0, ut_add_tracepoint(s, "syscalls", "sys_enter_getppid"));
	ASSERT_LE(0, ut_add_tracepoint(s, "syscalls", "sys_enter_pause"));
	ASSERT_EQ(0, ut_enable(s));
	ASSERT_EQ(0, ut_go(&leaves));
	ASSERT_EQ(0, ut_wait(&leaves));
	if (execs)
		wait_execed(sh->tid);
	else
		wait_called(sh);
	ASSERT_EQ(0, ut_go(c));
	wait_called(sleeps);
	ASSERT_TRUE(ut_wait_state(c->pid, "S"));
	ASSERT_EQ(0, ut_lost(s, &samples, &before));
	ASSERT_LE(100, before);
	ASSERT_EQ(0, page->data_head);
	ASSERT_EQ(0, ut_disable(s));
	ASSERT_EQ(0, ut_lost(s, &samples, &after));
	EXPECT_EQ(before + !execs, after);
	ASSERT_EQ(0, ioctl(fd, PERF_EVENT_IOC_DISABLE, 0));
	EXPECT_EQ(execs, UT_READ(page->data_head) > 0);
	kill(sh->tid, SIGKILL);
	close(fd);
}

/* It does not take the stack, which is counted as lost. */
TEST_F(at_the_end, beside_one_never_enabled)
{
	beside_one_disabled(_metadata, &self->s, &self->c, self->sh, false);
}

/* It does, when it is disabled. */
TEST_F(at_the_end, beside_one_enabled_by_exec)
{
	beside_one_disabled(_metadata, &self->s, &self->c, self->sh, true);
}

static void calls_and_sleeps(void *arg)
{
	struct shared *sh = arg;
	char byte;

	while (ut_syscall3(&sh->st, __NR_read, sh->pipe[0], &byte, 1) == 1)
		__atomic_add_fetch(&sh->returned, 1, __ATOMIC_RELEASE);
}

static void ladder_calls_and_sleeps(void *arg)
{
	ut_ladder(6, calls_and_sleeps, arg);
}

/* Is that record in a buffer, of which it does not matter where it begins? */
static bool has_record(const void *base, unsigned int pages, __u64 cookie)
{
	size_t i, nr = pages * sysconf(_SC_PAGESIZE) / sizeof(__u64);
	const __u64 *words = base + sysconf(_SC_PAGESIZE);
	const struct perf_event_header *header;

	for (i = 0; i < nr; i++) {
		header = (const void *)&words[i];
		if (header->type == UT_RECORD_CALLCHAIN_DEFERRED &&
		    header->misc == PERF_RECORD_MISC_USER && words[(i + 1) % nr] == cookie)
			return true;
	}
	return false;
}

/* More than a page has room for */
#define RECORDS	60

/*
 * Has the task left its CPU? It is shown to sleep some time before it does, on a machine
 * that is busy a long one. /proc/PID/syscall waits for it, and says where it runs on.
 */
static bool wait_off_cpu(pid_t pid)
{
	char path[64], said[16];
	int fd, i;

	snprintf(path, sizeof(path), "/proc/%d/syscall", pid);
	for (i = 0; i < 1000; i++) {
		ssize_t n = -1;

		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd >= 0) {
			n = read(fd, said, sizeof(said));
			close(fd);
		}
		if (n <= 0)
			return false;
		if (said[0] != 'r')	/* "running" */
			return true;
		usleep(5000);
	}
	return false;
}

/*
 * A buffer that overwrites itself always has room, also at its end: the event that is
 * disabled first takes each stack, and leaves none to the other. Who is on a CPU may be
 * left to it.
 */
static void overwritten(struct __test_metadata *_metadata, struct ut_session *s,
			struct ut_child *c, struct shared *sh, bool backward)
{
	struct perf_event_attr attr = {
		.type		= PERF_TYPE_SOFTWARE,
		.size		= UT_ATTR_SIZE,
		.config		= PERF_COUNT_SW_DUMMY,
		.sample_type	= UT_SAMPLE_TYPE,
		.sample_id_all	= 1,
	};
	struct ut_opts opts = { .no_output = true };
	long size = 2 * sysconf(_SC_PAGESIZE);
	void *taken, *left;
	int first, other, i;
	__u64 before = 0;

	*ut_attr_flags(&attr) |= UT_DEFER_OUTPUT;
	ASSERT_EQ(0, ut_fork(c, ladder_calls_and_sleeps, sh));
	other = ut_perf_open(&attr, c->pid, -1, -1, 0);
	attr.write_backward = backward;
	first = ut_perf_open(&attr, c->pid, -1, -1, 0);
	ASSERT_LE(0, first);
	ASSERT_LE(0, other);
	taken = mmap(NULL, size, PROT_READ, MAP_SHARED, first, 0);
	left = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, other, 0);
	ASSERT_NE(MAP_FAILED, taken);
	ASSERT_NE(MAP_FAILED, left);
	opts.pid = c->pid;
	ASSERT_EQ(0, ut_open(s, &opts));
	ASSERT_LE(0, ut_add_tracepoint(s, "syscalls", "sys_enter_read"));
	ASSERT_EQ(0, ut_enable(s));
	ASSERT_EQ(0, ut_go(c));
	wait_called(sh);
	for (i = 0; i < RECORDS; i++) {
		struct ut_rec *r;

		/* It has been in each sleep once. */
		for (;;) {
			ASSERT_EQ(0, ut_drain(s));
			r = ut_sample(s, 0, c->pid, i);
			if (r)
				break;
			usleep(100);
		}
		ASSERT_TRUE(ut_wait_state(c->pid, "S"));
		ASSERT_TRUE(wait_off_cpu(c->pid));
		ASSERT_NE(0, r->cookie);
		ASSERT_NE(before, r->cookie);
		before = r->cookie;
		ASSERT_EQ(0, ioctl(first, PERF_EVENT_IOC_DISABLE, 0));
		ASSERT_TRUE(has_record(taken, 1, r->cookie)) TH_LOG("round %d", i);
		ASSERT_FALSE(has_record(left, 1, r->cookie)) TH_LOG("round %d", i);
		ASSERT_EQ(0, ioctl(first, PERF_EVENT_IOC_ENABLE, 0));
		ASSERT_EQ(1, write(sh->pipe[1], "x", 1));
	}
	EXPECT_FALSE(has_record(taken, 1, ut_sample(s, 0, c->pid, 0)->cookie));
	munmap(taken, size);
	munmap(left, size);
	close(first);
	close(other);
}

TEST_F_TIMEOUT(at_the_end, overwritten, 120)
{
	overwritten(_metadata, &self->s, &self->c, self->sh, false);
}

TEST_F_TIMEOUT(at_the_end, overwritten_backward, 120)
{
	overwritten(_metadata, &self->s, &self->c, self->sh, true);
}

/*
 * Tasks that are killed while two threads each disable an event. The buffer of the one has
 * room for some of the stacks that they leave, the other one gets the rest, unless it was
 * the first: what there is no room for then is counted as lost.
 */
#define LEAVE	5	/* a page has room for three */

static void ladder_run_on_deep(void *arg)
{
	ut_ladder(120, run_on, arg);
}

static void *disable(void *arg)
{
	int *fd = arg;

	return (void *)(long)ioctl(*fd, PERF_EVENT_IOC_DISABLE, 0);
}

/* Somebody is disabling it. A task that is killed before that has its record written. */
static bool wait_disabled(int fd)
{
	struct output_count count = {}, before;

	do {
		before = count;
		usleep(1000);
		if (read(fd, &count, sizeof(count)) != sizeof(count))
			return false;
	} while (count.enabled != before.enabled);
	return true;
}

/* Make tasks that run on in a deep call, of each of which there is a sample; then stop that. */
static void sample_running_on(struct __test_metadata *_metadata, struct ut_session *s,
			      struct ut_child *c, struct shared *sh)
{
	struct ut_opts opts = { .pid = -1, .per_cpu = true, .no_output = true };
	int i;

	memset(sh, 0, LEAVE * sizeof(*sh));
	for (i = 0; i < LEAVE; i++)
		ASSERT_EQ(0, ut_fork(&c[i], ladder_run_on_deep, &sh[i]));
	ASSERT_EQ(0, ut_open(s, &opts));
	ASSERT_LE(0, ut_add_tracepoint(s, "syscalls", "sys_enter_readv"));
	ASSERT_EQ(0, ut_enable(s));
	for (i = 0; i < LEAVE; i++) {
		ASSERT_EQ(0, ut_go(&c[i]));
		wait_called(&sh[i]);
	}
	usleep(50000);
	ut_disable(s);
	ASSERT_EQ(0, ut_drain(s));
	for (i = 0; i < LEAVE; i++)
		ASSERT_NE(NULL, ut_sample(s, 0, c[i].pid, 0));
}

TEST_F_TIMEOUT(at_the_end, left_to_two, 120)
{
	struct shared *sh = ut_shared(LEAVE * sizeof(*sh));
	int fd[2], cpus[UT_MAX_CPUS], round, i, there;
	struct output_count count;
	struct ut_child c[LEAVE];
	pthread_t id[2];
	void *base[2];
	__u64 lost;

	ASSERT_NE(NULL, sh);
	ASSERT_LE(1, ut_online_cpus(cpus, UT_MAX_CPUS));
	for (round = 0; round < 5; round++) {
		for (i = 0; i < 2; i++) {
			fd[i] = open_output(-1, cpus[0]);
			ASSERT_LE(0, fd[i]);
			base[i] = mmap(NULL, (1 + (i ? 16 : 1)) * sysconf(_SC_PAGESIZE),
				       PROT_READ | PROT_WRITE, MAP_SHARED, fd[i], 0);
			ASSERT_NE(MAP_FAILED, base[i]);
		}
		sample_running_on(_metadata, &self->s, c, sh);

		/* Who is running has 50 ms. */
		ASSERT_EQ(0, pthread_create(&id[0], NULL, disable, &fd[0]));
		usleep(2000);
		ASSERT_EQ(0, pthread_create(&id[1], NULL, disable, &fd[1]));
		for (i = 0; i < 2; i++)
			ASSERT_TRUE(wait_disabled(fd[i]));
		for (i = 0; i < LEAVE; i++)
			kill(c[i].pid, SIGKILL);
		for (i = 0; i < 2; i++)
			ASSERT_EQ(0, pthread_join(id[i], NULL));
		for (i = 0, there = 0; i < LEAVE; i++) {
			struct ut_rec *r = ut_sample(&self->s, 0, c[i].pid, 0);

			EXPECT_EQ(SIGKILL, ut_wait(&c[i]));
			there += has_record(base[0], 1, r->cookie) +
				 has_record(base[1], 16, r->cookie);
		}
		for (i = 0, lost = 0; i < 2; i++) {
			ASSERT_EQ(sizeof(count), read(fd[i], &count, sizeof(count)));
			lost += count.lost;
		}
		EXPECT_EQ(LEAVE, there + lost) TH_LOG("%d records", there);
		EXPECT_LE(3, there);
		ut_close(&self->s);
		for (i = 0; i < 2; i++) {
			munmap(base[i], (1 + (i ? 16 : 1)) * sysconf(_SC_PAGESIZE));
			close(fd[i]);
		}
	}
}

/* How many stacks are read from one buffer, of those that are left to it? */
static int read_what_is_left(struct __test_metadata *_metadata, struct ut_session *s)
{
	struct shared *sh = ut_shared(LEAVE * sizeof(*sh));
	int fd, cpus[UT_MAX_CPUS], i, there = 0;
	struct perf_event_mmap_page *base;
	struct output_count count;
	struct ut_child c[LEAVE];
	struct ut_rec *r[LEAVE];
	bool got[LEAVE] = {};
	pthread_t id;
	void *ret;

	ASSERT_NE(NULL, sh);
	ASSERT_LE(1, ut_online_cpus(cpus, UT_MAX_CPUS));
	fd = open_output(-1, cpus[0]);
	ASSERT_LE(0, fd);
	base = mmap(NULL, 2 * sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ASSERT_NE(MAP_FAILED, base);
	sample_running_on(_metadata, s, c, sh);
	for (i = 0; i < LEAVE; i++)
		r[i] = ut_sample(s, 0, c[i].pid, 0);

	/* Who is running has 50 ms. */
	ASSERT_EQ(0, pthread_create(&id, NULL, disable, &fd));
	ASSERT_TRUE(wait_disabled(fd));
	for (i = 0; i < LEAVE; i++)
		kill(c[i].pid, SIGKILL);
	do {
		__u64 head;

		usleep(50000);
		head = __atomic_load_n(&base->data_head, __ATOMIC_ACQUIRE);
		for (i = 0; i < LEAVE; i++)
			got[i] |= has_record(base, 1, r[i]->cookie);
		__atomic_store_n(&base->data_tail, head, __ATOMIC_RELEASE);
	} while (pthread_tryjoin_np(id, &ret));
	EXPECT_EQ(NULL, ret);
	for (i = 0; i < LEAVE; i++) {
		EXPECT_EQ(SIGKILL, ut_wait(&c[i]));
		there += got[i] || has_record(base, 1, r[i]->cookie);
	}
	ASSERT_EQ(sizeof(count), read(fd, &count, sizeof(count)));
	EXPECT_EQ(LEAVE, there + count.lost);
	ut_close(s);
	munmap(base, 2 * sysconf(_SC_PAGESIZE));
	close(fd);
	munmap(sh, LEAVE * sizeof(*sh));
	return there;
}

/*
 * The same with one buffer, which another thread reads, slowly: it has what all of them
 * have left. A task that does not get a CPU for long may lose its stack, see left_to_two.
 */
TEST_F_TIMEOUT(at_the_end, left_to_a_reader, 120)
{
	int i, there = 0;

	for (i = 0; i < 3 && there < LEAVE; i++)
		there = read_what_is_left(_metadata, &self->s);
	EXPECT_EQ(LEAVE, there);
}

/*
 * Two threads each disable an event at the same time, again and again. The buffer of
 * the one is full, that of the other has room, whoever is first.
 */
struct disabler {
	pthread_barrier_t	*barrier;
	struct ut_session	*s;
	int			*end, err;
};

static void *disabler(void *arg)
{
	struct disabler *d = arg;

	for (;;) {
		pthread_barrier_wait(d->barrier);
		if (*d->end)
			return NULL;
		if (ioctl(d->s->ring[0].fd, PERF_EVENT_IOC_DISABLE, 0))
			d->err = errno;
		pthread_barrier_wait(d->barrier);
	}
}

#define AT_ONCE	300

TEST_F_TIMEOUT(at_the_end, two_at_once, 120)
{
	struct ut_opts opts = { .pages = 1 };
	unsigned int i, merged = 0, samples;
	pthread_barrier_t barrier;
	struct ut_session roomy;
	struct disabler d[2];
	pthread_t id[2];
	int end = 0, tp;

	ASSERT_EQ(0, ut_fork(&self->c, ladder_calls_and_sleeps, self->sh));
	opts.pid = self->c.pid;
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_exit_read"));
	opts.pages = 128;
	ASSERT_EQ(0, ut_open(&roomy, &opts));
	tp = ut_add_tracepoint(&roomy, "syscalls", "sys_enter_read");
	ASSERT_LE(0, tp);
	pthread_barrier_init(&barrier, NULL, 3);
	for (i = 0; i < 2; i++) {
		d[i] = (struct disabler){ &barrier, i ? &roomy : &self->s, &end };
		ASSERT_EQ(0, pthread_create(&id[i], NULL, disabler, &d[i]));
	}

	ASSERT_EQ(0, ut_enable(&self->s));
	ASSERT_EQ(0, ut_go(&self->c));
	/* Nobody reads the first buffer, so it fills up. */
	for (i = 0; i < 100; i++) {
		ASSERT_EQ(1, write(self->sh->pipe[1], "x", 1));
		while (UT_READ(self->sh->returned) <= i)
			usleep(100);
	}
	for (i = 0; i < AT_ONCE; i++) {
		ASSERT_EQ(0, ut_enable(&self->s));
		ASSERT_EQ(0, ut_enable(&roomy));
		ASSERT_EQ(1, write(self->sh->pipe[1], "x", 1));
		do {
			usleep(100);
			ASSERT_TRUE(ut_wait_state(self->c.pid, "S"));
			ASSERT_EQ(0, ut_drain(&roomy));
			samples = ut_count_samples(&roomy, tp, self->c.pid);
		} while (!samples);
		/* It may have been asleep before that one, and is on its way there. */
		ASSERT_TRUE(ut_wait_state(self->c.pid, "S"));
		pthread_barrier_wait(&barrier);
		pthread_barrier_wait(&barrier);
		ASSERT_EQ(0, d[0].err);
		ASSERT_EQ(0, d[1].err);
		ASSERT_EQ(0, ut_drain(&roomy));
		ASSERT_EQ(1, ut_count_samples(&roomy, tp, self->c.pid));
		merged += ut_stack_is(&roomy, ut_sample(&roomy, tp, self->c.pid, 0), &self->sh->st);
		ut_forget(&roomy);
	}
	EXPECT_EQ(AT_ONCE, merged);
	end = 1;
	pthread_barrier_wait(&barrier);
	for (i = 0; i < 2; i++)
		pthread_join(id[i], NULL);
	ut_close(&roomy);
}

/*
 * Who disables an event is kept from coming to the end of it, by a page of its own
 * stack that is not there. Meanwhile another thread goes on and on, and leaves its
 * stacks to it: a few, also where others disable events as often as they like.
 */
struct stuck {
	struct ut_session	*s;
	unsigned long		fp;
	pid_t			tid, caller;
	int			go, done, disables;
};

static void *stuck_disabler(void *arg)
{
	struct stuck *st = arg;

	__atomic_store_n(&st->tid, gettid(), __ATOMIC_RELEASE);
	while (!UT_READ(st->go))
		usleep(100);
	ut_syscall_on(st->fp, st->fp, __NR_ioctl, st->s->ring[0].fd, PERF_EVENT_IOC_DISABLE, 0);
	return NULL;
}

static unsigned int possible_cpus(void)
{
	FILE *f = fopen("/sys/devices/system/cpu/possible", "r");
	unsigned int first, last = UT_MAX_CPUS - 1;

	/* A range, from 0 on. */
	if (f && fscanf(f, "%u-%u", &first, &last) == 1)
		last = first;
	if (f)
		fclose(f);
	return last + 1;
}

#define CALLS_MEANWHILE	2000

/* Another event is disabled again in so many calls: more than there is room for. */
static unsigned int calls_a_disable(void)
{
	return 2 * possible_cpus();
}

static void *calls_meanwhile(void *arg)
{
	int i, seen, every = calls_a_disable();
	struct stuck *st = arg;

	__atomic_store_n(&st->caller, gettid(), __ATOMIC_RELEASE);
	while (UT_READ(st->go) < 2)
		usleep(100);
	for (i = 0; i < CALLS_MEANWHILE; i++) {
		syscall(__NR_getppid);
		if (i % every)
			continue;
		for (seen = UT_READ(st->disables); seen == UT_READ(st->disables); )
			usleep(100);
	}
	__atomic_store_n(&st->done, 1, __ATOMIC_RELEASE);
	while (UT_READ(st->go) < 3)
		usleep(100);
	return NULL;
}

TEST_F_TIMEOUT(at_the_end, left_while_stuck, 60)
{
	struct ut_opts opts = { .pages = 512 };
	struct ut_session own;
	struct stuck st = { .s = &self->s };
	struct ut_fuse fuse;
	unsigned int records;
	__u64 samples, others;
	pthread_t id[2];
	int ppid, bare;

	ASSERT_EQ(0, ut_device_page(&fuse));
	st.fp = (unsigned long)fuse.page;
	ASSERT_EQ(0, pthread_create(&id[0], NULL, stuck_disabler, &st));
	ASSERT_EQ(0, pthread_create(&id[1], NULL, calls_meanwhile, &st));
	while (!UT_READ(st.tid) || !UT_READ(st.caller))
		usleep(100);

	opts.pid = st.caller;
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	ppid = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid");
	ASSERT_LE(0, ppid);
	ASSERT_EQ(0, ut_enable(&self->s));
	opts.pid = st.tid;
	opts.no_output = true;
	ASSERT_EQ(0, ut_open(&own, &opts));
	ASSERT_LE(0, ut_add_tracepoint(&own, "syscalls", "sys_enter_ioctl"));
	ASSERT_EQ(0, ut_enable(&own));
	bare = open_output(st.caller, -1);
	ASSERT_LE(0, bare);

	__atomic_store_n(&st.go, 1, __ATOMIC_RELEASE);
	/* It is stuck: its page is asked for. */
	ASSERT_TRUE(ut_wait_state(st.tid, "D"));
	__atomic_store_n(&st.go, 2, __ATOMIC_RELEASE);
	while (!UT_READ(st.done)) {
		ASSERT_EQ(0, ioctl(bare, PERF_EVENT_IOC_DISABLE, 0));
		__atomic_add_fetch(&st.disables, 1, __ATOMIC_RELEASE);
	}
	/* What it has asked for comes. */
	ut_fuse_end(&fuse);
	pthread_join(id[0], NULL);
	__atomic_store_n(&st.go, 3, __ATOMIC_RELEASE);
	pthread_join(id[1], NULL);

	ASSERT_EQ(0, ut_drain(&self->s));
	ASSERT_EQ(CALLS_MEANWHILE, ut_count_samples(&self->s, ppid, st.caller));
	records = ut_count(&self->s, UT_RECORD_CALLCHAIN_DEFERRED, st.caller);
	TH_LOG("%u stacks of %u calls", records, CALLS_MEANWHILE);
	EXPECT_LE(1, records);
	/*
	 * Who was stuck, one a CPU, and who asked while it was counted how many wait, or
	 * before the event was off: that may be all calls until the next disable.
	 */
	EXPECT_GE(1 + possible_cpus() + 2 * calls_a_disable(), records);
	/* The others are counted, and so is that of the ioctl() itself, which is sampled. */
	ASSERT_EQ(0, ut_drain(&own));
	ASSERT_EQ(0, ut_lost(&self->s, &samples, &others));
	EXPECT_EQ(0, samples);
	EXPECT_EQ(CALLS_MEANWHILE + ut_count_samples(&own, 0, st.tid),
		  ut_count(&self->s, UT_RECORD_CALLCHAIN_DEFERRED, 0) + others);
	EXPECT_EQ(0, ut_check(&self->s, UT_ALLOW_UNRESOLVED));
	close(bare);
	ut_close(&own);
}

/*
 * The buffer of the last event is unmapped while who disables that is held up. Nobody
 * writes what is left, so it is counted: of who is asleep, and of who disables.
 */
TEST_F_TIMEOUT(at_the_end, unmapped_meanwhile, 60)
{
	struct stuck st = { .s = &self->s };
	struct ut_session calls, asleep;
	__u64 samples, others, again;
	struct ut_opts opts = {};
	struct ut_fuse fuse;
	pthread_t id;

	self->sh->how = PAUSE;
	ASSERT_EQ(0, ut_fork(&self->c, ladder_asleep, self->sh));
	ASSERT_EQ(0, ut_device_page(&fuse));
	st.fp = (unsigned long)fuse.page;
	ASSERT_EQ(0, pthread_create(&id, NULL, stuck_disabler, &st));
	while (!UT_READ(st.tid))
		usleep(100);

	opts.pid = self->c.pid;
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	opts.no_output = true;
	ASSERT_EQ(0, ut_open(&asleep, &opts));
	ASSERT_LE(0, ut_add_tracepoint(&asleep, "syscalls", "sys_enter_pause"));
	opts.pid = st.tid;
	ASSERT_EQ(0, ut_open(&calls, &opts));
	ASSERT_LE(0, ut_add_tracepoint(&calls, "syscalls", "sys_enter_ioctl"));
	ASSERT_EQ(0, ut_enable(&self->s));
	ASSERT_EQ(0, ut_enable(&asleep));
	ASSERT_EQ(0, ut_enable(&calls));
	ASSERT_EQ(0, ut_go(&self->c));
	wait_called(self->sh);
	ASSERT_TRUE(ut_wait_state(self->c.pid, "S"));

	__atomic_store_n(&st.go, 1, __ATOMIC_RELEASE);
	/* It is stuck: its page is asked for. */
	ASSERT_TRUE(ut_wait_state(st.tid, "D"));
	ut_ring_unmap(&self->s.ring[0]);
	ut_fuse_end(&fuse);
	pthread_join(id, NULL);

	ASSERT_EQ(0, ut_drain(&asleep));
	ASSERT_EQ(0, ut_drain(&calls));
	ASSERT_EQ(1, ut_count_samples(&asleep, 0, self->c.pid));
	ASSERT_EQ(1, ut_count_samples(&calls, 0, st.tid));
	ASSERT_EQ(0, ut_lost(&self->s, &samples, &others));
	EXPECT_EQ(2, others);
	/* Once, and not when the task comes by. */
	kill(self->c.pid, SIGKILL);
	ut_wait(&self->c);
	self->c.pid = 0;
	ASSERT_EQ(0, ut_lost(&self->s, &samples, &again));
	EXPECT_EQ(others, again);
	ut_close(&asleep);
	ut_close(&calls);
}

/*
 * Tasks that are on their way to another image, or to none, when the profile ends:
 * stopped there by their tracer, which is a sample of its own.
 */
struct leaving {
	struct ut_stack		st;
	const char * const	*argv;
	pid_t			tid;
	int			err;
};

static void call_execve(void *arg)
{
	static const char * const argv[] = { "exe", NULL };
	struct leaving *l = arg;

	ut_syscall3(&l->st, __NR_execve, "/proc/self/exe", l->argv ?: argv, NULL);
	_exit(98);
}

static void ladder_execve(void *arg)
{
	ut_ladder(6, call_execve, arg);
}

static void call_exit_group(void *arg)
{
	struct leaving *l = arg;

	ut_syscall1(&l->st, __NR_exit_group, 3);
}

static void ladder_exit_group(void *arg)
{
	ut_ladder(6, call_exit_group, arg);
}

static void sleep_on(void *arg)
{
	struct timespec ts = { .tv_sec = 100 };
	struct leaving *l = arg;

	ut_syscall2(&l->st, __NR_nanosleep, &ts, NULL);
}

static void *sleeping_thread(void *arg)
{
	struct leaving *l = arg;

	l->tid = gettid();
	ut_ladder(6, sleep_on, l);
	return NULL;
}

/* The other thread ends the process. */
static void sleeping_and_exit_group(void *arg)
{
	struct leaving *l = arg;
	pthread_t id;
	char byte;

	if (pthread_create(&id, NULL, sleeping_thread, l) || read(l->err, &byte, 1) != 1)
		_exit(99);
	_exit(0);
}

/*
 * Sample @tid where it is switched out, @c's child and running, until its tracer has
 * it in the stop that is called @event.
 */
static int stop_in(struct ut_session *s, struct ut_child *c, pid_t tid, int event, int go)
{
	struct ut_opts opts = { .pid = tid };
	int status;

	if (ptrace(PTRACE_SEIZE, tid, 0, 1 << event) ||
	    ut_open(s, &opts) || ut_add_tracepoint(s, "sched", "sched_switch") < 0 ||
	    ut_enable(s) || (go < 0 ? ut_go(c) : ut_write_all(go, "g", 1)) ||
	    waitpid(tid, &status, __WALL) != tid) {
		ut_diag("tid %d: %s", tid, strerror(errno));
		return -1;
	}
	if (status >> 8 != (SIGTRAP | event << 8)) {
		ut_diag("tid %d: status %#x", tid, status);
		return -1;
	}
	return 0;
}

/*
 * The sample of that stop: the last one. NULL if its stack has come by itself, which it
 * does not but for a task that was preempted on the way there.
 */
static struct ut_rec *sample_of_stop(struct ut_session *s, pid_t tid)
{
	unsigned long message;
	struct ut_rec *r;

	/* That waits until it has been switched out. */
	if (ptrace(PTRACE_GETEVENTMSG, tid, 0, &message) || ut_drain(s) ||
	    !ut_count_samples(s, 0, tid)) {
		ut_diag("tid %d: %s", tid, strerror(errno));
		return NULL;
	}
	r = ut_sample(s, 0, tid, ut_count_samples(s, 0, tid) - 1);
	return r->cookie && !ut_record_of(s, tid, r->cookie) ? r : NULL;
}

/* The same one when the profile has ended. */
static struct ut_rec *sample_of_end(struct ut_session *s, pid_t tid)
{
	return ut_drain(s) ? NULL : ut_sample(s, 0, tid, ut_count_samples(s, 0, tid) - 1);
}

TEST_F(at_the_end, exiting)
{
	struct leaving *l = ut_shared(sizeof(*l));

	ASSERT_NE(NULL, l);
	ASSERT_EQ(0, ut_fork(&self->c, ladder_exit_group, l));
	ASSERT_EQ(0, stop_in(&self->s, &self->c, self->c.pid, PTRACE_EVENT_EXIT, -1));
	if (!sample_of_stop(&self->s, self->c.pid))
		TH_LOG("has come by itself");
	ASSERT_EQ(0, ut_disable(&self->s));
	EXPECT_TRUE(ut_stack_is_late(&self->s, sample_of_end(&self->s, self->c.pid), &l->st));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

TEST_F(at_the_end, thread_of_a_dying_process)
{
	struct leaving *l = ut_shared(sizeof(*l));
	int go[2];

	ASSERT_NE(NULL, l);
	ASSERT_EQ(0, pipe(go));
	l->err = go[0];
	ASSERT_EQ(0, ut_fork(&self->c, sleeping_and_exit_group, l));
	ASSERT_EQ(0, ut_go(&self->c));
	while (!UT_READ(l->st.nr))
		usleep(1000);
	ASSERT_TRUE(ut_wait_state(l->tid, "S"));
	ASSERT_EQ(0, stop_in(&self->s, &self->c, l->tid, PTRACE_EVENT_EXIT, go[1]));
	if (!sample_of_stop(&self->s, l->tid))
		TH_LOG("has come by itself");
	ASSERT_EQ(0, ut_disable(&self->s));
	EXPECT_TRUE(ut_stack_is_late(&self->s, sample_of_end(&self->s, l->tid), &l->st));
	EXPECT_EQ(0, ut_check(&self->s, 0));
	ptrace(PTRACE_DETACH, l->tid, 0, 0);
}

/* Behind the point of no return there is neither the old stack nor a new one. */
TEST_F(at_the_end, between_the_images)
{
	struct leaving *l = ut_shared(sizeof(*l));
	struct ut_stack got;
	struct ut_rec *r;
	bool waits;

	ASSERT_NE(NULL, l);
	ASSERT_EQ(0, ut_fork(&self->c, ladder_execve, l));
	ASSERT_EQ(0, stop_in(&self->s, &self->c, self->c.pid, PTRACE_EVENT_EXEC, -1));
	waits = sample_of_stop(&self->s, self->c.pid);
	if (!waits)
		TH_LOG("has come by itself");
	ASSERT_EQ(0, ut_disable(&self->s));
	r = sample_of_end(&self->s, self->c.pid);
	ASSERT_NE(NULL, r);
	/* Behind its record, none names it. */
	EXPECT_EQ(waits || r->cookie ? UT_DEFERRED : UT_NO_STACK,
		  ut_user_stack(&self->s, r, &got));
	EXPECT_EQ(0, got.nr);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* Before it there is the old one: here the arguments cannot be read. */
static void ladder_execve_stuck(void *arg)
{
	long page = sysconf(_SC_PAGESIZE);
	struct leaving *l = arg;
	int fd;

	l->argv = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	fd = ut_userfault((void *)l->argv);
	if (fd < 0) {
		l->err = -fd;
		_exit(99);
	}
	ladder_execve(arg);
}

TEST_F(at_the_end, execve_waits)
{
	struct leaving *l = ut_shared(sizeof(*l));

	ASSERT_NE(NULL, l);
	ASSERT_EQ(0, ut_fork(&self->c, ladder_execve_stuck, l));
	ASSERT_EQ(0, watch(&self->s, self->c.pid, "sys_enter_execve"));
	ASSERT_EQ(0, ut_go(&self->c));
	while (!UT_READ(l->st.nr))
		usleep(1000);
	ASSERT_TRUE(ut_wait_state(self->c.pid, "SD"));
	ASSERT_EQ(0, l->err) TH_LOG("userfaultfd: %s", strerror(l->err));
	ASSERT_EQ(0, ut_drain(&self->s));
	ASSERT_EQ(1, ut_count_samples(&self->s, 0, self->c.pid));
	ASSERT_EQ(NULL, ut_record_of(&self->s, self->c.pid,
				     ut_sample(&self->s, 0, self->c.pid, 0)->cookie));
	ASSERT_EQ(0, ut_disable(&self->s));
	EXPECT_TRUE(ut_stack_is(&self->s, sample_of_end(&self->s, self->c.pid), &l->st));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/*
 * A program of 64 bits sleeps in 32-bit code: in the kernel's own segments for that,
 * where the stack is the right one, or in some that have a base, where it is that or
 * none. Who disables the event has others of the same numbers.
 */
static const unsigned char pause32[] = {
	0x8e, 0xd1,			/*  0: mov %ecx, %ss */
	0x89, 0xd4,			/*  2: mov %edx, %esp */
	0xb8, 29, 0, 0, 0,		/*  4: mov $29, %eax		pause() */
	0xcd, 0x80,			/*  9: int $0x80 */
	0xeb, 0xfe,			/* 11: jmp . */
};

#define PAUSED32	11
#define FRAMES32	5
#define OTHER_BASE	0x8000000

/* Where 32 bits reach it. */
struct low {
	unsigned char	code[16];
	struct {
		__u32	next, ret;
	} frame[FRAMES32];
	__u32		cs, ss, base;
};

FIXTURE(code_32) {
	struct ut_session s;
	struct low *low;
	struct ut_child c;
};

FIXTURE_VARIANT(code_32) {
	__u32 cs, ss, base;
};

FIXTURE_VARIANT_ADD(code_32, flat) {
	.cs = 0x23, .ss = 0x2b,
};

FIXTURE_VARIANT_ADD(code_32, segments_with_a_base) {
	.cs = 0x07, .ss = 0x0f, .base = 0x10000000,
};

static int set_ldt(__u32 base)
{
	struct user_desc desc = {
		.base_addr = base, .limit = 0xfffff, .seg_32bit = 1, .limit_in_pages = 1,
		.contents = MODIFY_LDT_CONTENTS_CODE,
	};

	if (syscall(SYS_modify_ldt, 1, &desc, sizeof(desc)))
		return -1;
	desc.entry_number = 1;
	desc.contents = MODIFY_LDT_CONTENTS_DATA;
	return syscall(SYS_modify_ldt, 1, &desc, sizeof(desc));
}

static void pause_in_32(void *arg)
{
	const struct low *low = arg;
	unsigned long frame = (__u32)((unsigned long)low->frame - low->base);
	struct {
		__u32	ip;
		__u16	cs;
	} to = { (unsigned long)low->code - low->base, low->cs };

	if (low->base && set_ldt(low->base))
		return;
	asm volatile("mov %[frame], %%rbp\n"
		     "ljmpl *(%[to])\n"
		     : : [to] "S" (&to), [frame] "d" (frame), "c" (low->ss) : "memory");
}

FIXTURE_SETUP(code_32)
{
	struct ut_opts opts = {};
	__u32 next, i;

	memset(&self->s, 0, sizeof(self->s));
	if (!ut_has_32bit())
		SKIP(return, UT_NO_32BIT);
	self->low = mmap(NULL, sizeof(*self->low), PROT_READ | PROT_WRITE | PROT_EXEC,
			 MAP_SHARED | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	ASSERT_NE(MAP_FAILED, self->low);
	memcpy(self->low->code, pause32, sizeof(pause32));
	self->low->cs = variant->cs;
	self->low->ss = variant->ss;
	self->low->base = variant->base;
	for (i = 0; i < FRAMES32; i++) {
		next = (unsigned long)&self->low->frame[i + 1] - variant->base;
		self->low->frame[i].next = i < FRAMES32 - 1 ? next : 0;
		self->low->frame[i].ret = 0x400100 + 16 * i - variant->base;
	}
	ASSERT_EQ(0, set_ldt(OTHER_BASE)) TH_LOG("CONFIG_MODIFY_LDT_SYSCALL?");
	ASSERT_EQ(0, ut_fork(&self->c, pause_in_32, self->low));
	opts.pid = self->c.pid;
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	/* The tracepoints of single system calls leave 32-bit ones out. */
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "raw_syscalls", "sys_enter"));
	ASSERT_EQ(0, ioctl(self->s.event[0].fd[0], PERF_EVENT_IOC_SET_FILTER, "id == 29"));
	ASSERT_EQ(0, ut_enable(&self->s));
}

FIXTURE_TEARDOWN(code_32)
{
	kill(self->c.pid, SIGKILL);
	ut_wait(&self->c);
	ut_close(&self->s);
}

TEST_F(code_32, asleep)
{
	struct ut_stack want = { .nr = 1 }, got;
	struct ut_rec *r;
	int i;

	want.ip[0] = (unsigned long)self->low->code + PAUSED32;
	for (i = 0; i < FRAMES32; i++)
		want.ip[want.nr++] = 0x400100 + 16 * i;
	ASSERT_EQ(0, ut_go(&self->c));
	do {
		usleep(1000);
		ASSERT_EQ(0, ut_drain(&self->s));
		r = ut_sample(&self->s, 0, self->c.pid, 0);
	} while (!r);
	ASSERT_TRUE(ut_wait_state(self->c.pid, "S"));
	ASSERT_EQ(0, ut_disable(&self->s));
	ASSERT_EQ(0, ut_drain(&self->s));
	ASSERT_EQ(1, ut_count_samples(&self->s, 0, 0));
	ASSERT_EQ(UT_DEFERRED,
		  ut_user_stack(&self->s, ut_sample(&self->s, 0, self->c.pid, 0), &got));
	if (got.nr || !variant->base)
		EXPECT_TRUE(ut_same_stack(&got, &want));
	EXPECT_EQ('S', ut_task_state(self->c.pid));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

int main(int argc, char **argv)
{
	ut_need_root();
	return test_harness_run(argc, argv);
}

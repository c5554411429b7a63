// SPDX-License-Identifier: GPL-2.0
/*
 * K11: tasks that are in the kernel when a profile ends. Disabling the event that
 * has defer_output writes their stacks; they are not woken and notice nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
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
 * In a long system call on another CPU, and not asleep: it comes out by itself. By
 * then it has its own stack or it has none, but never another's.
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
	struct ut_stack got;
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
	for (i = 0; (r = ut_sample(&self->s, 0, self->c.pid, i)); i++) {
		if (ut_user_stack(&self->s, r, &got) == UT_DEFERRED && got.nr)
			EXPECT_TRUE(ut_same_stack(&got, &self->sh->st));
	}
	EXPECT_EQ(0, ut_check(&self->s, UT_ALLOW_UNRESOLVED));
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

static void deep_asleep(void *arg)
{
	ut_ladder(100, fall_asleep, arg);
}

/*
 * More than the buffers have room for: the buffer of each event that is disabled
 * takes what it can, and the last one counts the rest.
 */
TEST_F_TIMEOUT(at_the_end, many_too_large, 120)
{
	struct many *m = ut_shared(sizeof(*m));
	struct ut_opts opts = { .pid = -1, .per_cpu = true, .pages = 2 };
	__u64 lost_samples, lost;
	unsigned int records = 0;
	int i;

	ASSERT_NE(NULL, m);
	for (i = 0; i < MANY; i++) {
		m->sh[i].how = NANOSLEEP;
		ASSERT_EQ(0, ut_fork(&m->c[i], deep_asleep, &m->sh[i]));
	}
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_nanosleep"));
	ASSERT_EQ(0, ut_enable(&self->s));
	for (i = 0; i < MANY; i++) {
		ASSERT_EQ(0, ut_go(&m->c[i]));
		wait_called(&m->sh[i]);
		ASSERT_TRUE(ut_wait_state(m->c[i].pid, "S"));
		ASSERT_EQ(0, ut_drain(&self->s));
	}
	ASSERT_EQ(0, ut_disable(&self->s));
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
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_exit_read"));
	ASSERT_EQ(0, ut_go(&self->c));
	wait_called(self->sh);
	ASSERT_TRUE(ut_wait_state(self->c.pid, "S"));
	for (i = 0; i < 3; i++) {
		ASSERT_EQ(0, ut_disable(&self->s));
		ASSERT_EQ(0, ut_enable(&self->s));
	}
	/* The sample of the way out belongs to the entry whose stack is out already. */
	ASSERT_EQ(1, write(self->sh->pipe[1], "x", 1));
	while (!self->sh->returned)
		usleep(1000);
	ASSERT_EQ(0, ut_disable(&self->s));
	ASSERT_EQ(0, ut_drain(&self->s));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, 0, self->c.pid, 0),
				&self->sh->st));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, 1, self->c.pid, 0),
				&self->sh->st));
	EXPECT_EQ(1, self->sh->ret);
	/* What was written at the disable is not written once more. */
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
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffdio_api api = { .api = UFFD_API };
	size_t size = sysconf(_SC_PAGESIZE);
	int fd, i;

	reg.range.start = (unsigned long)a->page;
	reg.range.len = size;
	switch (a->how) {
	case USERFAULTFD:
		fd = syscall(__NR_userfaultfd, O_CLOEXEC);
		return fd < 0 || ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &reg) ?
		       errno : 0;
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
		ASSERT_EQ(0, ut_fuse_page(&self->fuse));
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

/* In a system call for a long time, and not to be had for a stack: it is not waited for. */
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
	EXPECT_EQ(0, ut_check(&self->s, UT_ALLOW_UNRESOLVED));
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

/* A group is disabled by the ioctl() of any of its events. */
TEST_F(at_the_end, whole_group)
{
	struct perf_event_attr attr = {
		.type		= PERF_TYPE_SOFTWARE,
		.size		= UT_ATTR_SIZE,
		.config		= PERF_COUNT_SW_DUMMY,
	};
	int member;

	self->sh->how = PIPE_READ;
	ASSERT_EQ(0, ut_fork(&self->c, ladder_asleep, self->sh));
	ASSERT_EQ(0, watch(&self->s, self->c.pid, "sys_enter_read"));
	member = ut_perf_open(&attr, self->c.pid, -1, self->s.ring[0].fd, 0);
	ASSERT_LE(0, member);
	ASSERT_EQ(0, ut_go(&self->c));
	wait_called(self->sh);
	ASSERT_TRUE(ut_wait_state(self->c.pid, "S"));
	ASSERT_EQ(0, ioctl(member, PERF_EVENT_IOC_DISABLE, PERF_IOC_FLAG_GROUP));
	ASSERT_EQ(0, ut_drain(&self->s));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, 0, self->c.pid, 0),
				&self->sh->st));
	EXPECT_EQ(0, ut_check(&self->s, 0));
	close(member);
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

int main(int argc, char **argv)
{
	ut_need_root();
	return test_harness_run(argc, argv);
}

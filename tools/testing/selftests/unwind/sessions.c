// SPDX-License-Identifier: GPL-2.0
/*
 * K4, K6, K18: several profilers at once, each with its own records. K5, K20: events
 * disabled, closed and unmapped with stacks pending.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

#define NEW_IMAGE	"--new-image"
#define NEW_PROFILER	"--new-profiler"

/* The one that is profiled: a round of system calls whenever it is told to. */
struct target {
	struct ut_stack	ppid, uid;
	int	rounds, done;
	pid_t		pid;
};

static void target_calls(void *arg)
{
	struct target *t = arg;

	ut_syscall0(&t->ppid, __NR_getppid);
	ut_syscall0(&t->uid, __NR_getuid);
}

static void target(void *arg)
{
	struct target *t = arg;

	for (;;) {
		while (t->done == t->rounds)
			usleep(1000);
		ut_ladder(5, target_calls, t);
		t->done++;
	}
}

static void round_of(struct target *t)
{
	int want = t->done + 1;

	t->rounds++;
	while (t->done != want)
		usleep(1000);
}

/* A profiler: a process of its own, which watches one system call of the target. */
struct profiler {
	struct target	*t;
	const char	*tp;
	bool		uid;		/* it is getuid(), not getppid() */
	bool		all;
	bool		crowd;		/* may share its slot with others */
	int		go[2];
	int	ready, result;
	int	samples, deferred, foreign;
};

static void profile(void *arg)
{
	struct profiler *p = arg;
	struct ut_opts opts = {
		.pid = p->all ? -1 : p->t->pid, .per_cpu = p->all, .pages = 8,
	};
	struct ut_stack got;
	struct ut_session s;
	struct ut_rec *r;
	char byte;
	int i;

	if (ut_open(&s, &opts) || ut_add_tracepoint(&s, "syscalls", p->tp) < 0 || ut_enable(&s)) {
		p->ready = -1;
		return;
	}
	p->ready = 1;
	if (ut_read_all(p->go[0], &byte, 1))
		return;
	ut_disable(&s);
	if (ut_drain(&s))
		return;
	for (i = 0; (r = ut_sample(&s, 0, p->t->pid, i)); i++) {
		p->samples++;
		switch (ut_user_stack(&s, r, &got)) {
		case UT_DEFERRED:
			p->deferred++;
			break;
		case UT_IMMEDIATE:
			break;
		default:
			ut_diag("sample without a stack");
			return;
		}
		if (!ut_same_stack(&got, p->uid ? &p->t->uid : &p->t->ppid))
			return;
	}
	p->foreign = ut_count(&s, UT_RECORD_CALLCHAIN_DEFERRED, p->t->pid) - p->deferred;
	p->result = !ut_check(&s, p->crowd ? UT_ALLOW_FOREIGN : 0);
}

#define MANY	85	/* more than there are slots, and than may share one */
#define SOME	70	/* more than there are slots */

FIXTURE(sessions) {
	struct target *t;
	struct profiler *p;
	struct ut_child tc;
	struct ut_child pc[MANY];
};

FIXTURE_SETUP(sessions)
{
	self->t = ut_shared(sizeof(*self->t));
	self->p = ut_shared(MANY * sizeof(*self->p));
	ASSERT_NE(NULL, self->t);
	ASSERT_NE(NULL, self->p);
	ASSERT_EQ(0, ut_fork(&self->tc, target, self->t));
	self->t->pid = self->tc.pid;
	ASSERT_EQ(0, ut_go(&self->tc));
}

FIXTURE_TEARDOWN(sessions)
{
	kill(self->tc.pid, SIGKILL);
	ut_wait(&self->tc);
}

static int start(struct profiler *p, struct ut_child *c)
{
	if (pipe(p->go) || ut_fork(c, profile, p) || ut_go(c))
		return -1;
	while (!p->ready)
		usleep(1000);
	return p->ready == 1 ? 0 : -1;
}

static int finish(struct profiler *p, struct ut_child *c)
{
	if (ut_write_all(p->go[1], "g", 1))
		return -1;
	return ut_wait(c);
}

/* Each watches another system call of the same task. */
TEST_F(sessions, different_samples)
{
	int i;

	self->p[0] = (struct profiler){ .t = self->t, .tp = "sys_enter_getppid" };
	self->p[1] = (struct profiler){ .t = self->t, .tp = "sys_enter_getuid", .uid = true };
	for (i = 0; i < 2; i++)
		ASSERT_EQ(0, start(&self->p[i], &self->pc[i]));
	for (i = 0; i < 5; i++)
		round_of(self->t);
	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, finish(&self->p[i], &self->pc[i]));
		EXPECT_EQ(1, self->p[i].result);
		EXPECT_EQ(5, self->p[i].samples);
		EXPECT_EQ(5, self->p[i].deferred);
		EXPECT_EQ(0, self->p[i].foreign);
	}
}

/* Both watch the same: one walk, one cookie, a record for each. */
TEST_F(sessions, same_samples)
{
	int i;

	for (i = 0; i < 2; i++) {
		self->p[i] = (struct profiler){ .t = self->t, .tp = "sys_enter_getppid" };
		ASSERT_EQ(0, start(&self->p[i], &self->pc[i]));
	}
	for (i = 0; i < 5; i++)
		round_of(self->t);
	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, finish(&self->p[i], &self->pc[i]));
		EXPECT_EQ(1, self->p[i].result);
		EXPECT_EQ(5, self->p[i].samples);
		EXPECT_EQ(5, self->p[i].deferred);
		EXPECT_EQ(0, self->p[i].foreign);
	}
}

/* A profiler of everything beside one of a task. */
TEST_F(sessions, system_wide_and_task)
{
	int i;

	self->p[0] = (struct profiler){ .t = self->t, .tp = "sys_enter_getuid", .uid = true,
					.all = true };
	self->p[1] = (struct profiler){ .t = self->t, .tp = "sys_enter_getppid" };
	for (i = 0; i < 2; i++)
		ASSERT_EQ(0, start(&self->p[i], &self->pc[i]));
	for (i = 0; i < 5; i++)
		round_of(self->t);
	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, finish(&self->p[i], &self->pc[i]));
		EXPECT_EQ(1, self->p[i].result);
		EXPECT_EQ(5, self->p[i].samples);
		EXPECT_EQ(5, self->p[i].deferred);
		EXPECT_EQ(0, self->p[i].foreign);
	}
}

/* One profiler ends in the middle of the other's session. */
TEST_F(sessions, one_ends)
{
	int i;

	for (i = 0; i < 2; i++) {
		self->p[i] = (struct profiler){ .t = self->t, .tp = "sys_enter_getppid" };
		ASSERT_EQ(0, start(&self->p[i], &self->pc[i]));
	}
	round_of(self->t);
	ASSERT_EQ(0, finish(&self->p[0], &self->pc[0]));
	for (i = 0; i < 5; i++)
		round_of(self->t);
	/* A third one may take over the first one's slot, and nothing with it. */
	self->p[2] = (struct profiler){ .t = self->t, .tp = "sys_enter_getuid", .uid = true };
	ASSERT_EQ(0, start(&self->p[2], &self->pc[2]));
	round_of(self->t);
	for (i = 1; i < 3; i++)
		ASSERT_EQ(0, finish(&self->p[i], &self->pc[i]));
	for (i = 0; i < 3; i++) {
		EXPECT_EQ(1, self->p[i].result);
		EXPECT_EQ(self->p[i].samples, self->p[i].deferred);
		EXPECT_EQ(0, self->p[i].foreign);
	}
	EXPECT_EQ(1, self->p[0].samples);
	EXPECT_EQ(7, self->p[1].samples);
	EXPECT_EQ(1, self->p[2].samples);
}

static void nothing(int sig)
{
}

static void sleep_once(void *arg)
{
	ut_syscall0(arg, __NR_pause);
}

static void sleeps(void *arg)
{
	struct sigaction sa = { .sa_handler = nothing };

	sigaction(SIGUSR1, &sa, NULL);
	ut_ladder(5, sleep_once, arg);
}

struct watch_once {
	pid_t	pid;
	int	ready, go[2];
};

static void watch_pause(void *arg)
{
	struct watch_once *w = arg;
	struct ut_opts opts = { .pid = w->pid };
	struct ut_session s;
	char byte;

	if (ut_open(&s, &opts) || ut_add_tracepoint(&s, "syscalls", "sys_enter_pause") < 0 ||
	    ut_enable(&s)) {
		w->ready = -1;
		return;
	}
	w->ready = 1;
	if (ut_read_all(w->go[0], &byte, 1))
		return;
	w->ready = ut_drain(&s) ? -1 : 2 + ut_count_samples(&s, 0, w->pid);
}

/* K5: a task that sleeps still waits for a session that is gone, not for its slot. */
TEST_F(sessions, slot_of_another)
{
	struct watch_once *w = ut_shared(sizeof(*w));
	struct ut_stack *st = ut_shared(sizeof(*st));
	struct ut_opts opts = {};
	struct ut_child sleeper, c;
	struct ut_session s;

	ASSERT_NE(NULL, w);
	ASSERT_NE(NULL, st);
	ASSERT_EQ(0, pipe(w->go));
	ASSERT_EQ(0, ut_fork(&sleeper, sleeps, st));
	w->pid = sleeper.pid;
	ASSERT_EQ(0, ut_fork(&c, watch_pause, w));
	ASSERT_EQ(0, ut_go(&c));
	while (!UT_READ(w->ready))
		usleep(1000);
	ASSERT_EQ(1, w->ready);
	ASSERT_EQ(0, ut_go(&sleeper));
	while (!UT_READ(st->nr))
		usleep(1000);
	ASSERT_TRUE(ut_wait_state(sleeper.pid, "S"));
	ASSERT_EQ(0, ut_write_all(w->go[1], "g", 1));
	ASSERT_EQ(0, ut_wait(&c));
	/* It had the sample, and has not waited for the stack. */
	ASSERT_EQ(3, w->ready);
	usleep(500000);
	opts.pid = sleeper.pid;
	ASSERT_EQ(0, ut_open(&s, &opts));
	ASSERT_LE(0, ut_add_tracepoint(&s, "syscalls", "sys_enter_getppid"));
	ASSERT_EQ(0, ut_enable(&s));
	ASSERT_EQ(0, kill(sleeper.pid, SIGUSR1));
	ASSERT_EQ(0, ut_wait(&sleeper));
	ut_disable(&s);
	ASSERT_EQ(0, ut_drain(&s));
	EXPECT_EQ(0, ut_count(&s, UT_RECORD_CALLCHAIN_DEFERRED, 0));
	EXPECT_EQ(0, ut_check(&s, 0));
	ut_close(&s);
}

/*
 * K6: more profilers than slots. Each has the stacks of its samples, and no others. Of the
 * last, for which there is no room among those that share a slot, no sample is deferred.
 */
TEST_F_TIMEOUT(sessions, more_than_slots, 200)
{
	struct rlimit files = { .rlim_cur = 4096, .rlim_max = 4096 };
	int i;

	setrlimit(RLIMIT_NOFILE, &files);
	for (i = 0; i < MANY; i++) {
		self->p[i] = (struct profiler){ .t = self->t, .crowd = true, .uid = i % 2,
			.tp = i % 2 ? "sys_enter_getuid" : "sys_enter_getppid" };
		ASSERT_EQ(0, start(&self->p[i], &self->pc[i])) TH_LOG("profiler %d", i);
	}
	for (i = 0; i < 3; i++)
		round_of(self->t);
	for (i = 0; i < MANY; i++) {
		ASSERT_EQ(0, finish(&self->p[i], &self->pc[i]));
		EXPECT_EQ(1, self->p[i].result) TH_LOG("profiler %d", i);
		EXPECT_EQ(3, self->p[i].samples) TH_LOG("profiler %d", i);
		EXPECT_EQ(0, self->p[i].foreign) TH_LOG("profiler %d", i);
		if (i < SOME)
			EXPECT_EQ(3, self->p[i].deferred) TH_LOG("profiler %d", i);
	}
	EXPECT_EQ(0, self->p[MANY - 1].deferred);
}

/*
 * One that begins when the stack of this entry has been handed out to the others with
 * which it shares a slot: it has missed that, and its sample has the stack all the same.
 */
#define CROWD	20	/* enough for no slot to be left */

static void exit_group(void *arg)
{
	ut_syscall1(arg, __NR_exit_group, 3);
}

static void exits(void *arg)
{
	ut_ladder(5, exit_group, arg);
}

struct late {
	pid_t		pid;
	struct ut_stack	st;
	int		go[2];
	int		ready, samples;
	enum ut_kind	kind;
	bool		same;
};

/* The tracer's stop at the end is behind where stacks are handed out, and before this. */
static void watch_late(void *arg)
{
	struct late *l = arg;
	struct ut_opts opts = { .pid = l->pid };
	struct ut_session s;
	struct ut_stack got;
	char byte;

	if (ut_open(&s, &opts) || ut_add_function(&s, "exit_signals") < 0 || ut_enable(&s)) {
		l->ready = -1;
		return;
	}
	l->ready = 1;
	if (ut_read_all(l->go[0], &byte, 1) || ut_drain(&s))
		return;
	l->samples = ut_count_samples(&s, 0, l->pid);
	if (!l->samples)
		return;
	l->kind = ut_user_stack(&s, ut_sample(&s, 0, l->pid, 0), &got);
	l->same = ut_same_stack(&got, &l->st);
}

TEST_F_TIMEOUT(sessions, shares_late, 120)
{
	struct late *l = ut_shared(sizeof(*l));
	struct ut_opts opts = {};
	struct ut_child c, watcher;
	struct ut_session s;
	int status, i;

	ASSERT_NE(NULL, l);
	ASSERT_EQ(0, pipe(l->go));
	for (i = 0; i < CROWD; i++) {
		self->p[i] = (struct profiler){ .t = self->t, .crowd = true,
						.tp = "sys_enter_getppid" };
		ASSERT_EQ(0, start(&self->p[i], &self->pc[i])) TH_LOG("profiler %d", i);
	}
	ASSERT_EQ(0, ut_fork(&c, exits, &l->st));
	l->pid = c.pid;
	ASSERT_EQ(0, ptrace(PTRACE_SEIZE, c.pid, 0, PTRACE_O_TRACEEXIT));
	opts.pid = c.pid;
	ASSERT_EQ(0, ut_open(&s, &opts));
	ASSERT_LE(0, ut_add_tracepoint(&s, "syscalls", "sys_enter_exit_group"));
	ASSERT_EQ(0, ut_enable(&s));
	ASSERT_EQ(0, ut_go(&c));
	ASSERT_EQ(c.pid, waitpid(c.pid, &status, __WALL));
	ASSERT_EQ(SIGTRAP | PTRACE_EVENT_EXIT << 8, status >> 8);
	ASSERT_EQ(0, ut_drain(&s));
	EXPECT_TRUE(ut_stack_is(&s, ut_sample(&s, 0, c.pid, 0), &l->st));

	ASSERT_EQ(0, ut_fork(&watcher, watch_late, l));
	ASSERT_EQ(0, ut_go(&watcher));
	while (!UT_READ(l->ready))
		usleep(1000);
	ASSERT_EQ(1, l->ready);
	ASSERT_EQ(0, ptrace(PTRACE_CONT, c.pid, 0, 0));
	ASSERT_EQ(3 << 8, ut_wait(&c));
	ASSERT_EQ(0, ut_write_all(l->go[1], "g", 1));
	ASSERT_EQ(0, ut_wait(&watcher));
	EXPECT_EQ(1, l->samples);
	EXPECT_EQ(UT_IMMEDIATE, l->kind);
	EXPECT_TRUE(l->same);
	ut_close(&s);
	for (i = 0; i < CROWD; i++)
		ASSERT_EQ(0, finish(&self->p[i], &self->pc[i]));
}

/*
 * One asks for the stack of a task that waits for another one already, with which it
 * shares a slot, and to whom it was of no interest before: the task goes on within its
 * system call, which fills a pipe.
 */
struct writer {
	pid_t		pid;
	struct ut_stack	st;
	int		pipe[2], go[2];
	int		ready;
};

static void write_much(void *arg)
{
	static char buf[1 << 20];
	struct writer *w = arg;

	ut_syscall3(&w->st, __NR_write, w->pipe[1], buf, sizeof(buf));
}

static void writes(void *arg)
{
	ut_ladder(5, write_much, arg);
}

static void watch_writer(void *arg)
{
	struct writer *w = arg;
	struct ut_opts opts = { .pid = w->pid };
	struct ut_session s;
	char byte;

	w->ready = ut_open(&s, &opts) ||
		   ut_add_tracepoint(&s, "syscalls", "sys_enter_write") < 0 ||
		   ut_enable(&s) ? -1 : 1;
	ut_read_all(w->go[0], &byte, 1);
}

TEST_F_TIMEOUT(sessions, shares_later, 120)
{
	struct writer *w = ut_shared(sizeof(*w));
	struct ut_child c, watcher;
	struct ut_opts opts = {};
	struct ut_session s;
	char page[4096];
	int i, tp;

	ASSERT_NE(NULL, w);
	ASSERT_EQ(0, pipe(w->go));
	ASSERT_EQ(0, pipe(w->pipe));
	for (i = 0; i < CROWD; i++) {
		self->p[i] = (struct profiler){ .t = self->t, .crowd = true,
						.tp = "sys_enter_getppid" };
		ASSERT_EQ(0, start(&self->p[i], &self->pc[i])) TH_LOG("profiler %d", i);
	}
	ASSERT_EQ(0, ut_fork(&c, writes, w));
	w->pid = c.pid;
	opts.pid = c.pid;
	ASSERT_EQ(0, ut_open(&s, &opts));
	tp = ut_add_tracepoint(&s, "sched", "sched_switch");
	ASSERT_LE(0, tp);
	ASSERT_EQ(0, ut_fork(&watcher, watch_writer, w));
	ASSERT_EQ(0, ut_go(&watcher));
	while (!UT_READ(w->ready))
		usleep(1000);
	ASSERT_EQ(1, w->ready);
	ASSERT_EQ(0, ut_go(&c));
	while (!UT_READ(w->st.nr))
		usleep(1000);
	ASSERT_TRUE(ut_wait_state(c.pid, "S"));

	/* All who wait are looked at, and there is nothing to be had of them. */
	ut_disable(&s);
	ASSERT_EQ(0, ut_enable(&s));
	ASSERT_EQ(0, ut_read_all(w->pipe[0], page, sizeof(page)));
	do {
		usleep(1000);
		ASSERT_EQ(0, ut_drain(&s));
	} while (!ut_count_samples(&s, tp, c.pid));
	ASSERT_TRUE(ut_wait_state(c.pid, "S"));
	ut_disable(&s);
	ASSERT_EQ(0, ut_drain(&s));
	EXPECT_TRUE(ut_stack_is(&s, ut_sample(&s, tp, c.pid, 0), &w->st));
	EXPECT_EQ(0, ut_check(&s, UT_ALLOW_FOREIGN));

	kill(c.pid, SIGKILL);
	ut_wait(&c);
	ASSERT_EQ(0, ut_write_all(w->go[1], "g", 1));
	ASSERT_EQ(0, ut_wait(&watcher));
	ut_close(&s);
	for (i = 0; i < CROWD; i++)
		ASSERT_EQ(0, finish(&self->p[i], &self->pc[i]));
}

/*
 * Two share a slot. The one has asked for the stack of a task in its fork(), the other one
 * asks for the child's, which is no concern of the first.
 */
struct forks {
	struct ut_stack	fork, ppid;
	pid_t		child;
	int		go[2];
	int		ready, samples;
	bool		same;
};

static void fork_and_ask(void *arg)
{
	struct forks *f = arg;
	pid_t pid = ut_syscall0(&f->fork, __NR_fork);

	if (!pid) {
		ut_syscall0(&f->ppid, __NR_getppid);
		_exit(0);
	}
	f->child = pid;
	waitpid(pid, NULL, 0);
}

static void ladder_fork_and_ask(void *arg)
{
	ut_ladder(5, fork_and_ask, arg);
}

static void watch_child(void *arg)
{
	struct forks *f = arg;
	struct ut_opts opts = { .pid = -1, .per_cpu = true };
	struct ut_session s;
	char byte;

	if (ut_open(&s, &opts) || ut_add_tracepoint(&s, "syscalls", "sys_enter_getppid") < 0 ||
	    ut_enable(&s)) {
		f->ready = -1;
		return;
	}
	f->ready = 1;
	if (ut_read_all(f->go[0], &byte, 1) || ut_drain(&s))
		return;
	f->samples = ut_count_samples(&s, 0, f->child);
	f->same = ut_stack_is(&s, ut_sample(&s, 0, f->child, 0), &f->ppid);
}

TEST_F_TIMEOUT(sessions, shares_with_the_parent, 120)
{
	struct ut_opts opts = { .pid = -1, .per_cpu = true };
	struct forks *f = ut_shared(sizeof(*f));
	struct ut_child c, watcher;
	struct ut_session s;
	int i;

	ASSERT_NE(NULL, f);
	ASSERT_EQ(0, pipe(f->go));
	for (i = 0; i < CROWD; i++) {
		self->p[i] = (struct profiler){ .t = self->t, .crowd = true,
						.tp = "sys_enter_getppid" };
		ASSERT_EQ(0, start(&self->p[i], &self->pc[i])) TH_LOG("profiler %d", i);
	}
	ASSERT_EQ(0, ut_fork(&c, ladder_fork_and_ask, f));
	ASSERT_EQ(0, ut_open(&s, &opts));
	ASSERT_LE(0, ut_add_tracepoint(&s, "syscalls", "sys_enter_fork"));
	ASSERT_EQ(0, ut_enable(&s));
	ASSERT_EQ(0, ut_fork(&watcher, watch_child, f));
	ASSERT_EQ(0, ut_go(&watcher));
	while (!UT_READ(f->ready))
		usleep(1000);
	ASSERT_EQ(1, f->ready);
	ASSERT_EQ(0, ut_go(&c));
	ASSERT_EQ(0, ut_wait(&c));
	ut_disable(&s);
	ASSERT_EQ(0, ut_drain(&s));
	ASSERT_EQ(0, ut_write_all(f->go[1], "g", 1));
	ASSERT_EQ(0, ut_wait(&watcher));
	EXPECT_TRUE(ut_stack_is(&s, ut_sample(&s, 0, c.pid, 0), &f->fork));
	EXPECT_EQ(1, f->samples);
	EXPECT_TRUE(f->same);
	ASSERT_LT(0, f->child);
	EXPECT_EQ(0, ut_count(&s, UT_RECORD_CALLCHAIN_DEFERRED, f->child));
	ut_close(&s);
	for (i = 0; i < CROWD; i++)
		ASSERT_EQ(0, finish(&self->p[i], &self->pc[i]));
}

/*
 * One asks for a stack that has been handed out, to another one with which it shares a
 * slot: in the failing execve() of a file that is no program. What that one asks for next
 * is not for it.
 */
struct asks_late {
	pid_t		pid;
	struct ut_stack	exec, ppid;
	char		path[32], *argv[2];
	int		go[2];
	int		ready, samples, records;
	enum ut_kind	kind;
};

static void exec_and_ask(void *arg)
{
	struct asks_late *a = arg;

	ut_syscall3(&a->exec, __NR_execve, a->path, a->argv, environ);
	ut_syscall0(&a->ppid, __NR_getppid);
}

static void ladder_exec_and_ask(void *arg)
{
	ut_ladder(5, exec_and_ask, arg);
}

static void watch_failed_exec(void *arg)
{
	struct asks_late *a = arg;
	struct ut_opts opts = { .pid = a->pid };
	struct ut_session s;
	struct ut_stack got;
	char byte;

	if (ut_open(&s, &opts) || ut_add_tracepoint(&s, "syscalls", "sys_exit_execve") < 0 ||
	    ut_enable(&s)) {
		a->ready = -1;
		return;
	}
	a->ready = 1;
	if (ut_read_all(a->go[0], &byte, 1) || ut_drain(&s))
		return;
	a->samples = ut_count_samples(&s, 0, a->pid);
	a->records = ut_count(&s, UT_RECORD_CALLCHAIN_DEFERRED, a->pid);
	if (a->samples)
		a->kind = ut_user_stack(&s, ut_sample(&s, 0, a->pid, 0), &got);
}

TEST_F_TIMEOUT(sessions, shares_no_more, 120)
{
	struct asks_late *a = ut_shared(sizeof(*a));
	struct ut_child c, watcher;
	struct ut_opts opts = {};
	int i, fd, exec, ppid;
	struct ut_session s;

	ASSERT_NE(NULL, a);
	ASSERT_EQ(0, pipe(a->go));
	snprintf(a->path, sizeof(a->path), "/tmp/unwind_no_program.XXXXXX");
	a->argv[0] = a->path;
	fd = mkstemp(a->path);
	ASSERT_LE(0, fd);
	ASSERT_EQ(5, write(fd, "text\n", 5));
	ASSERT_EQ(0, fchmod(fd, 0755));
	close(fd);
	for (i = 0; i < CROWD; i++) {
		self->p[i] = (struct profiler){ .t = self->t, .crowd = true,
						.tp = "sys_enter_getuid" };
		ASSERT_EQ(0, start(&self->p[i], &self->pc[i])) TH_LOG("profiler %d", i);
	}
	ASSERT_EQ(0, ut_fork(&c, ladder_exec_and_ask, a));
	a->pid = c.pid;
	opts.pid = c.pid;
	ASSERT_EQ(0, ut_open(&s, &opts));
	exec = ut_add_tracepoint(&s, "syscalls", "sys_enter_execve");
	ppid = ut_add_tracepoint(&s, "syscalls", "sys_enter_getppid");
	ASSERT_LE(0, exec);
	ASSERT_LE(0, ppid);
	ASSERT_EQ(0, ut_enable(&s));
	ASSERT_EQ(0, ut_fork(&watcher, watch_failed_exec, a));
	ASSERT_EQ(0, ut_go(&watcher));
	while (!UT_READ(a->ready))
		usleep(1000);
	ASSERT_EQ(1, a->ready);

	ASSERT_EQ(0, ut_go(&c));
	ASSERT_EQ(0, ut_wait(&c));
	ASSERT_EQ(0, ut_write_all(a->go[1], "g", 1));
	ASSERT_EQ(0, ut_wait(&watcher));
	ASSERT_EQ(0, ut_drain(&s));
	EXPECT_TRUE(ut_stack_is(&s, ut_sample(&s, exec, c.pid, 0), &a->exec));
	EXPECT_TRUE(ut_stack_is(&s, ut_sample(&s, ppid, c.pid, 0), &a->ppid));
	EXPECT_EQ(1, a->samples);
	EXPECT_EQ(UT_IMMEDIATE, a->kind);
	EXPECT_EQ(0, a->records);
	unlink(a->path);
	ut_close(&s);
	for (i = 0; i < CROWD; i++)
		ASSERT_EQ(0, finish(&self->p[i], &self->pc[i]));
}

/* What it takes to begin and to end does not depend on how many threads there are. */
#define IDLE_THREADS	3000
#define FEW_THREADS	1000	/* where each takes 10 ms */
#define OPENED		100

static void *idle(void *arg)
{
	__atomic_add_fetch((unsigned int *)arg, 1, __ATOMIC_RELEASE);
	for (;;)
		pause();
	return NULL;
}

static __u64 now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

/* The least of all; 0 if it did not work. */
static __u64 ns_to_open_and_close(void)
{
	struct perf_event_attr attr = {
		.type		= PERF_TYPE_SOFTWARE,
		.size		= UT_ATTR_SIZE,
		.config		= PERF_COUNT_SW_DUMMY,
		.sample_id_all	= 1,
	};
	__u64 ns, least = ~0ULL;
	int i, fd;

	*ut_attr_flags(&attr) |= UT_DEFER_OUTPUT;
	for (i = 0; i < OPENED; i++) {
		ns = now_ns();
		fd = ut_perf_open(&attr, -1, 0, -1, 0);
		if (fd < 0 || ioctl(fd, PERF_EVENT_IOC_DISABLE, 0) || close(fd))
			return 0;
		ns = now_ns() - ns;
		if (ns < least)
			least = ns;
	}
	return least;
}

TEST_F_TIMEOUT(sessions, beside_many_threads, 120)
{
	unsigned int nr = ut_kernel_checks_itself() ? FEW_THREADS : IDLE_THREADS;
	unsigned int i, started = 0;
	pthread_attr_t attr;
	__u64 few, many;
	pthread_t id;

	few = ns_to_open_and_close();
	ASSERT_NE(0, few);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, PTHREAD_STACK_MIN);
	for (i = 0; i < nr; i++)
		ASSERT_EQ(0, pthread_create(&id, &attr, idle, &started)) TH_LOG("thread %u", i);
	while (UT_READ(started) < nr)
		usleep(10000);
	/* And they are asleep. */
	sleep(1);
	many = ns_to_open_and_close();
	TH_LOG("%llu us; with %u more threads %llu us", few / 1000, nr, many / 1000);
	ASSERT_NE(0, many);
	EXPECT_GT(5 * few, many);
}

/* Descriptors that outlive the process which opened them, and another reads. */
static int send_fds(int sock, int *fds, int nr)
{
	char buf[CMSG_SPACE(4 * sizeof(int))] = {}, byte = 'f';
	struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = buf, .msg_controllen = CMSG_SPACE(nr * sizeof(int)),
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(nr * sizeof(int));
	memcpy(CMSG_DATA(c), fds, nr * sizeof(int));
	return sendmsg(sock, &msg, 0) == 1 ? 0 : -1;
}

static int recv_fds(int sock, int *fds, int nr)
{
	char buf[CMSG_SPACE(4 * sizeof(int))] = {}, byte;
	struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = buf, .msg_controllen = sizeof(buf),
	};
	struct cmsghdr *c;

	if (recvmsg(sock, &msg, 0) != 1)
		return -1;
	c = CMSG_FIRSTHDR(&msg);
	if (!c || c->cmsg_len != CMSG_LEN(nr * sizeof(int)))
		return -1;
	memcpy(fds, CMSG_DATA(c), nr * sizeof(int));
	return 0;
}

struct opener {
	pid_t	pid;
	int	sock;
	__u64	id;
};

static void open_and_send(void *arg)
{
	struct opener *o = arg;
	struct ut_opts opts = { .pid = o->pid };
	struct ut_session s;
	int fds[2];

	if (ut_open(&s, &opts) || ut_add_tracepoint(&s, "syscalls", "sys_enter_getppid") < 0)
		return;
	fds[0] = s.ring[0].fd;
	fds[1] = s.event[0].fd[0];
	o->id = s.event[0].id[0];
	send_fds(o->sock, fds, 2);
}

TEST_F(sessions, opener_is_gone)
{
	struct opener *o = ut_shared(sizeof(*o));
	struct ut_session s = { .nr_rings = 1, .nr_events = 1 };
	struct ut_child c;
	int sock[2], fds[2];

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, sock));
	o->pid = self->t->pid;
	o->sock = sock[1];
	ASSERT_EQ(0, ut_fork(&c, open_and_send, o));
	ASSERT_EQ(0, ut_go(&c));
	ASSERT_EQ(0, recv_fds(sock[0], fds, 2));
	ASSERT_EQ(0, ut_wait(&c));

	s.opts.sample_type = UT_SAMPLE_TYPE;
	ASSERT_EQ(0, ut_ring_map(&s.ring[0], fds[0], 128));
	/* The opener's mapping went with it, and the redirection to it. */
	ASSERT_EQ(0, ioctl(fds[1], PERF_EVENT_IOC_SET_OUTPUT, fds[0]));
	s.ring[0].cpu = -1;
	s.event[0].fd[0] = fds[1];
	s.event[0].id[0] = o->id;
	ASSERT_EQ(0, ut_enable(&s));
	round_of(self->t);
	ut_disable(&s);
	ASSERT_EQ(0, ut_drain(&s));
	EXPECT_TRUE(ut_stack_is(&s, ut_sample(&s, 0, self->t->pid, 0), &self->t->ppid));
	EXPECT_EQ(0, ut_check(&s, 0));
	ut_close(&s);
}

/*
 * The opener executes another profiler: what that opens is a session of its own, though
 * the events of before are there, and sample on.
 */
struct successor {
	pid_t	pid;
	int	to[2], from[2];
};

static void open_and_exec(void *arg)
{
	struct successor *n = arg;
	struct ut_opts opts = { .pid = n->pid };
	char pid[16], to[16], from[16];
	struct ut_session s;

	snprintf(pid, sizeof(pid), "%d", n->pid);
	snprintf(to, sizeof(to), "%d", n->to[0]);
	snprintf(from, sizeof(from), "%d", n->from[1]);
	if (!ut_open(&s, &opts) && ut_add_tracepoint(&s, "syscalls", "sys_enter_getppid") >= 0 &&
	    !ut_enable(&s) && !fcntl(s.ring[0].fd, F_SETFD, 0) &&
	    !fcntl(s.event[0].fd[0], F_SETFD, 0))
		execl("/proc/self/exe", "new", NEW_PROFILER, pid, to, from, NULL);
	_exit(100);
}

/* The status is what the test wants to know. */
static int succeed(pid_t pid, int to, int from)
{
	struct ut_opts opts = { .pid = pid };
	struct ut_session s;
	char byte = 'r';

	if (ut_open(&s, &opts) || ut_add_tracepoint(&s, "syscalls", "sys_enter_getuid") < 0 ||
	    ut_enable(&s) || ut_write_all(from, &byte, 1) || ut_read_all(to, &byte, 1) ||
	    ut_disable(&s) || ut_drain(&s) || ut_count_samples(&s, 0, pid) != 1)
		return 101;
	return ut_count(&s, UT_RECORD_CALLCHAIN_DEFERRED, pid);
}

TEST_F(sessions, opener_is_another)
{
	struct successor n = { .pid = self->t->pid };
	struct ut_child c;
	char byte;

	ASSERT_EQ(0, pipe(n.to));
	ASSERT_EQ(0, pipe(n.from));
	ASSERT_EQ(0, ut_fork(&c, open_and_exec, &n));
	ASSERT_EQ(0, ut_go(&c));
	close(n.from[1]);
	ASSERT_EQ(0, ut_read_all(n.from[0], &byte, 1));
	round_of(self->t);
	ASSERT_EQ(0, ut_write_all(n.to[1], "e", 1));
	/* The stack of the one call, and not that of the other. */
	EXPECT_EQ(1 << 8, ut_wait(&c));
}

/* The event of one profiler that takes its records is in the group of another's. */
struct joined {
	struct ut_stack	st;
	int		pipe[2], told[2];
	int		leader, ready;
	pid_t		pid;
};

static void read_asleep(void *arg)
{
	struct joined *j = arg;
	char byte;

	ut_syscall3(&j->st, __NR_read, j->pipe[0], &byte, 1);
}

static void ladder_read_asleep(void *arg)
{
	ut_ladder(5, read_asleep, arg);
}

static int watch_read(struct ut_session *s, struct joined *j, int group)
{
	struct ut_opts opts = { .pid = j->pid, .group = group };

	return ut_open(s, &opts) || ut_add_tracepoint(s, "syscalls", "sys_enter_read") < 0 ||
	       ut_enable(s);
}

static void join_group(void *arg)
{
	struct joined *j = arg;
	struct ut_session s;
	char byte;

	j->ready = watch_read(&s, j, j->leader) ? -1 : 1;
	if (j->ready < 0 || ut_read_all(j->told[0], &byte, 1) || ut_drain(&s))
		_exit(2);
	_exit(!ut_stack_is(&s, ut_sample(&s, 0, j->pid, 0), &j->st) || ut_check(&s, 0));
}

TEST_F(sessions, one_group)
{
	struct joined *j = ut_shared(sizeof(*j));
	struct ut_child asleep, other;
	struct ut_session s;

	ASSERT_NE(NULL, j);
	ASSERT_EQ(0, pipe(j->pipe));
	ASSERT_EQ(0, pipe(j->told));
	ASSERT_EQ(0, ut_fork(&asleep, ladder_read_asleep, j));
	j->pid = asleep.pid;
	ASSERT_EQ(0, watch_read(&s, j, 0));
	j->leader = s.ring[0].fd;
	ASSERT_EQ(0, ut_fork(&other, join_group, j));
	ASSERT_EQ(0, ut_go(&other));
	while (!UT_READ(j->ready))
		usleep(1000);
	ASSERT_EQ(1, j->ready);
	ASSERT_EQ(0, ut_go(&asleep));
	while (!UT_READ(j->st.nr))
		usleep(1000);
	ASSERT_TRUE(ut_wait_state(j->pid, "S"));

	ASSERT_EQ(0, ioctl(j->leader, PERF_EVENT_IOC_DISABLE, PERF_IOC_FLAG_GROUP));
	ASSERT_EQ(0, ut_write_all(j->told[1], "d", 1));
	EXPECT_EQ(0, ut_wait(&other));
	ASSERT_EQ(0, ut_drain(&s));
	EXPECT_TRUE(ut_stack_is(&s, ut_sample(&s, 0, j->pid, 0), &j->st));
	EXPECT_EQ(0, ut_check(&s, 0));
	ut_close(&s);
	EXPECT_EQ(0, kill(asleep.pid, SIGKILL));
	ut_wait(&asleep);
}

/* Opened by one thread, read by another, after the first is gone. */
static void *open_in_thread(void *arg)
{
	struct ut_session *s = arg;
	struct ut_opts opts = { .pid = s->opts.pid };

	if (ut_open(s, &opts) || ut_add_tracepoint(s, "syscalls", "sys_enter_getppid") < 0)
		return NULL;
	return s;
}

TEST_F(sessions, opened_by_a_thread)
{
	struct ut_session s = { .opts = { .pid = self->t->pid } };
	pthread_t id;
	void *ret;
	int late;

	ASSERT_EQ(0, pthread_create(&id, NULL, open_in_thread, &s));
	ASSERT_EQ(0, pthread_join(id, &ret));
	ASSERT_EQ(&s, ret);
	/* This event, of another thread, belongs to the same session. */
	late = ut_add_tracepoint(&s, "syscalls", "sys_enter_getuid");
	ASSERT_LE(0, late);
	ASSERT_EQ(0, ut_enable(&s));
	round_of(self->t);
	ut_disable(&s);
	ASSERT_EQ(0, ut_drain(&s));
	EXPECT_TRUE(ut_stack_is(&s, ut_sample(&s, 0, self->t->pid, 0), &self->t->ppid));
	EXPECT_TRUE(ut_stack_is(&s, ut_sample(&s, late, self->t->pid, 0), &self->t->uid));
	EXPECT_EQ(0, ut_check(&s, 0));
	ut_close(&s);
}

/*
 * Events that a process opens and leaves to another, which has the same table of
 * descriptors. They are those of a task that does its work in a child, which inherits
 * them.
 */

struct family {
	struct ut_stack	ppid, uid, read;
	int		pipe[2];
	pid_t		child;
	int		asleep;
};

static void child_calls(void *arg)
{
	struct family *f = arg;
	char byte;

	ut_syscall0(&f->ppid, __NR_getppid);
	ut_syscall0(&f->uid, __NR_getuid);
	__atomic_store_n(&f->asleep, 1, __ATOMIC_RELEASE);
	ut_syscall3(&f->read, __NR_read, f->pipe[0], &byte, 1);
}

static void parent_of_one(void *arg)
{
	struct family *f = arg;
	pid_t pid = fork();

	if (!pid) {
		ut_ladder(5, child_calls, f);
		_exit(0);
	}
	f->child = pid;
	waitpid(pid, NULL, 0);
}

enum {
	DEAD, EXECED, HOLDS_ON,
};

struct hand_over {
	struct ut_session	s;
	struct ut_opts		opts;
	int			how;
	int			opened;
};

static char *new_argv[] = { "new", NEW_IMAGE, NULL };

static void open_and_go(struct hand_over *h)
{
	struct ut_session *s = &h->s;

	/* The buffers are to be mapped by the one who reads them. */
	if (ut_open(s, &h->opts) || ut_add_tracepoint(s, "syscalls", "sys_enter_getppid") < 0 ||
	    ut_add_tracepoint(s, "syscalls", "sys_enter_read") < 0)
		return;
	__atomic_store_n(&h->opened, 1, __ATOMIC_RELEASE);
	if (h->how == EXECED)
		execve("/proc/self/exe", new_argv, NULL);
	while (h->how == HOLDS_ON)
		pause();
}

/* Is this the program that the opener has executed? */
static bool is_new_image(pid_t pid)
{
	char path[64], line[64] = "";
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/cmdline", pid);
	fd = open(path, O_RDONLY);
	if (fd < 0)
		return false;
	if (read(fd, line, sizeof(line) - 1) < 0)
		line[0] = 0;
	close(fd);
	return !strcmp(line, new_argv[0]) && ut_task_state(pid) == 'S';
}

FIXTURE(handed_over) {
	struct hand_over *h;
	struct family *f;
	struct ut_child c;
	pid_t opener;
};

FIXTURE_VARIANT(handed_over) {
	int how;
	bool all;
};

FIXTURE_VARIANT_ADD(handed_over, by_dead) {
	.how = DEAD,
};

FIXTURE_VARIANT_ADD(handed_over, by_execed) {
	.how = EXECED,
};

FIXTURE_VARIANT_ADD(handed_over, by_living) {
	.how = HOLDS_ON,
};

/* And those of all tasks. */
FIXTURE_VARIANT_ADD(handed_over, by_dead_all) {
	.how = DEAD, .all = true,
};

FIXTURE_VARIANT_ADD(handed_over, by_execed_all) {
	.how = EXECED, .all = true,
};

FIXTURE_SETUP(handed_over)
{
	self->opener = 0;
	self->h = ut_shared(sizeof(*self->h));
	self->f = ut_shared(sizeof(*self->f));
	ASSERT_NE(NULL, self->h);
	ASSERT_NE(NULL, self->f);
	ASSERT_EQ(0, pipe(self->f->pipe));
	ASSERT_EQ(0, ut_fork(&self->c, parent_of_one, self->f));
	self->h->how = variant->how;
	self->h->opts = (struct ut_opts){
		.pid = variant->all ? -1 : self->c.pid, .per_cpu = true,
		.inherit = !variant->all,
	};
	self->opener = syscall(__NR_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
	ASSERT_LE(0, self->opener);
	if (!self->opener) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		open_and_go(self->h);
		_exit(0);
	}
}

FIXTURE_TEARDOWN(handed_over)
{
	if (self->opener > 0) {
		kill(self->opener, SIGKILL);
		waitpid(self->opener, NULL, 0);
	}
	if (self->f->child > 0)
		kill(self->f->child, SIGKILL);
	kill(self->c.pid, SIGKILL);
	ut_wait(&self->c);
	ut_close(&self->h->s);
}

/*
 * The new holder maps the buffers and is a profiler itself. The records of the events
 * come to these alone, and the end of the profile is the holder's to say.
 */
TEST_F(handed_over, records)
{
	struct ut_opts opts = { .pid = self->c.pid, .per_cpu = true, .inherit = true };
	struct ut_session *s = &self->h->s, own;
	unsigned int i, e;
	pid_t child;

	if (variant->how == DEAD) {
		ASSERT_EQ(self->opener, waitpid(self->opener, NULL, 0));
		self->opener = 0;
		ASSERT_EQ(1, self->h->opened);
	}
	while (!UT_READ(self->h->opened))
		usleep(1000);
	for (i = 0; variant->how == EXECED && i < 1000 && !is_new_image(self->opener); i++)
		usleep(10000);
	ASSERT_GT(1000, i);
	ASSERT_LT(0, s->nr_rings);
	for (i = 0; i < s->nr_rings; i++) {
		ASSERT_EQ(0, ut_ring_map(&s->ring[i], s->ring[i].fd, s->opts.pages));
		/* The opener's mapping went with it, and the redirection to it. */
		for (e = 0; e < s->nr_events; e++)
			ASSERT_EQ(0, ioctl(s->event[e].fd[i], PERF_EVENT_IOC_SET_OUTPUT,
					   s->ring[i].fd));
	}
	ASSERT_EQ(0, ut_open(&own, &opts));
	ASSERT_LE(0, ut_add_tracepoint(&own, "syscalls", "sys_enter_getuid"));
	ASSERT_EQ(0, ut_enable(s));
	ASSERT_EQ(0, ut_enable(&own));
	ASSERT_EQ(0, ut_go(&self->c));
	while (!UT_READ(self->f->asleep) || !UT_READ(self->f->read.nr) ||
	       !UT_READ(self->f->child))
		usleep(1000);
	child = self->f->child;
	ASSERT_TRUE(ut_wait_state(child, "S"));
	ASSERT_EQ(0, ut_drain(s));
	EXPECT_TRUE(ut_stack_is(s, ut_sample(s, 0, child, 0), &self->f->ppid));
	ASSERT_EQ(1, ut_count_samples(s, 1, child));
	EXPECT_EQ(NULL, ut_record_of(s, child, ut_sample(s, 1, child, 0)->cookie));

	ut_disable(s);
	ut_disable(&own);
	ASSERT_EQ(0, ut_drain(s));
	ASSERT_EQ(0, ut_drain(&own));
	EXPECT_TRUE(ut_stack_is(s, ut_sample(s, 1, child, 0), &self->f->read));
	EXPECT_EQ(2, ut_count(s, UT_RECORD_CALLCHAIN_DEFERRED, child));
	EXPECT_TRUE(ut_stack_is(&own, ut_sample(&own, 0, child, 0), &self->f->uid));
	EXPECT_EQ(1, ut_count(&own, UT_RECORD_CALLCHAIN_DEFERRED, child));
	EXPECT_EQ(0, ut_check(s, 0));
	EXPECT_EQ(0, ut_check(&own, 0));
	EXPECT_EQ('S', ut_task_state(child));
	ut_close(&own);
}

/* A task that is in the kernel almost all of the time, and never waits. */
static void busy(void *arg)
{
	for (;;)
		ut_ladder(5, target_calls, arg);
}

/*
 * An event that stays while others are opened and closed, and has its session stay: what
 * is left of the others in that is in the way of the next ones.
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
	kill(self->c.pid, SIGKILL);
	ut_wait(&self->c);
}

/*
 * K5, K20: all goes at once while the task makes requests, in each order there is; at
 * first the session with it, and then without.
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
			/* The tracking event first. */
			close(s.ring[0].fd);
			s.ring[0].fd = -1;
			break;
		case 3:
			ioctl(s.ring[0].fd, PERF_EVENT_IOC_DISABLE, PERF_IOC_FLAG_GROUP);
			break;
		}
		ut_close(&s);
	}
	/* And it still works. */
	{
		struct ut_opts opts = { .pid = self->c.pid, .pages = 64 };

		ASSERT_EQ(0, ut_open(&s, &opts));
		ASSERT_LE(0, ut_add_tracepoint(&s, "syscalls", "sys_enter_getppid"));
		ASSERT_EQ(0, ut_enable(&s));
		usleep(100000);
		ut_disable(&s);
		ASSERT_EQ(0, ut_drain(&s));
		EXPECT_TRUE(ut_stack_is(&s, ut_sample(&s, 0, self->c.pid, 0), &self->t->ppid));
		EXPECT_EQ(0, ut_check(&s, s.lost ? UT_ALLOW_LOST | UT_ALLOW_UNRESOLVED :
					  UT_ALLOW_UNRESOLVED));
		ut_close(&s);
	}
	close(beside);
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

	/* The other one is not needed here. */
	ASSERT_EQ(0, kill(self->c.pid, SIGSTOP));
	for (i = 0; i < 2 * 3 * 7; i++) {
		struct ut_opts opts = { .pages = 8, .per_cpu = i % 2, .inherit = i % 2 };
		struct ut_session s;
		struct ut_child c;

		ASSERT_EQ(0, ut_fork(&c, busy_a_while, self->t));
		opts.pid = c.pid;
		ASSERT_EQ(0, ut_open(&s, &opts));
		ASSERT_LE(0, ut_add_tracepoint(&s, "syscalls", "sys_enter_getppid"));
		ASSERT_LE(0, ut_add_tracepoint(&s, "syscalls", "sys_enter_exit_group"));
		ASSERT_EQ(0, ut_enable(&s));
		ASSERT_EQ(0, ut_go(&c));
		usleep(i % 7 * 300);
		if (i % 3 == 0)
			kill(c.pid, SIGKILL);
		if (i % 2) {
			ut_close(&s);
			ut_wait(&c);
		} else {
			ut_wait(&c);
			ut_disable(&s);
			ASSERT_EQ(0, ut_drain(&s));
			EXPECT_EQ(0, ut_check(&s, s.lost ?
					      UT_ALLOW_LOST | UT_ALLOW_UNRESOLVED : 0));
			ut_close(&s);
		}
	}
}

/*
 * The session watches the very calls that take it down. Those by which the events are
 * disabled that get the records have their stacks.
 */
TEST_F_TIMEOUT(teardown, own_close, 120)
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
		for (i = 0; round % 3 == 2 && i < s.nr_rings; i++)
			ASSERT_EQ(0, ioctl(s.ring[i].fd, PERF_EVENT_IOC_DISABLE, 0));
		if (round % 3) {
			ASSERT_EQ(0, ut_drain(&s));
			EXPECT_LT(0, ut_count_samples(&s, -1, 0));
			EXPECT_EQ(0, ut_check(&s, 0)) TH_LOG("round %u", round);
		}
		ut_close(&s);
	}
}

int main(int argc, char **argv)
{
	/* What the opener of events has executed. */
	if (argc == 5 && !strcmp(argv[1], NEW_PROFILER))
		return succeed(atoi(argv[2]), atoi(argv[3]), atoi(argv[4]));
	if (argc == 2 && !strcmp(argv[1], NEW_IMAGE)) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	ut_need_root();
	return test_harness_run(argc, argv);
}

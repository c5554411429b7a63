// SPDX-License-Identifier: GPL-2.0
/*
 * K24: seccomp kills a task, a tracer stops and changes it, the freezer stops it, or it
 * dumps core. With a stack pending the task does not hang, and its sample gets this stack.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/user.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

struct shared {
	struct ut_stack	st, st2;
	int	returned;
	int		pipe[2];
};

FIXTURE(stops) {
	struct ut_session s;
	struct shared *sh;
	struct ut_child c;
};

FIXTURE_SETUP(stops)
{
	self->sh = ut_shared(sizeof(*self->sh));
	ASSERT_NE(NULL, self->sh);
	ASSERT_EQ(0, pipe(self->sh->pipe));
}

FIXTURE_TEARDOWN(stops)
{
	if (self->c.pid > 0)
		kill(self->c.pid, SIGKILL);
	ut_close(&self->s);
}

static const struct ut_opts sideband = { .sideband = true };

static void do_getuid(void *arg)
{
	struct shared *sh = arg;

	ut_syscall0(&sh->st, __NR_getuid);
	sh->returned = 1;
}

static void under_filter(void *arg)
{
	/* getuid() kills the process, all other calls are allowed. */
	struct sock_filter insns[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_getuid, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { .len = 4, .filter = insns };
	struct rlimit none = {};

	setrlimit(RLIMIT_CORE, &none);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
		_exit(99);
	ut_ladder(6, do_getuid, arg);
}

/* The filter runs before the tracepoints of system calls, so sample the kill itself. */
TEST_F(stops, seccomp_kill)
{
	int tp;

	ASSERT_EQ(0, ut_watch(&self->s, &sideband, &self->c, under_filter, self->sh));
	/* The only tracepoint between the filter and the death. */
	tp = ut_add_tracepoint(&self->s, "signal", "signal_deliver");
	ASSERT_EQ(0, ut_start(&self->s, &self->c));
	ASSERT_EQ(SIGSYS, ut_wait(&self->c) & 0x7f);
	ASSERT_EQ(0, ut_stop(&self->s));
	EXPECT_EQ(0, self->sh->returned);
	EXPECT_EQ(0, ut_check(&self->s, 0));
	EXPECT_TRUE(ut_has_stack(&self->s, ut_sample(&self->s, tp, self->c.pid, 0),
				 &self->sh->st));
}

/* A core is dumped while the stack is pending, and is complete. */
static void abort_with_core(void *arg)
{
	struct rlimit unlimited = { RLIM_INFINITY, RLIM_INFINITY };
	struct shared *sh = arg;

	setrlimit(RLIMIT_CORE, &unlimited);
	prctl(PR_SET_DUMPABLE, 1);
	ut_syscall2(&sh->st, __NR_kill, getpid(), SIGQUIT);
}

static void ladder_core(void *arg)
{
	if (chdir("/tmp") || signal(SIGQUIT, SIG_DFL) == SIG_ERR)
		_exit(99);
	ut_ladder(6, abort_with_core, arg);
}

TEST_F(stops, core_dump)
{
	int enter, deliver, status, fd;
	char pattern[128] = "";

	fd = open("/proc/sys/kernel/core_pattern", O_RDWR);
	ASSERT_LE(0, fd) TH_LOG("CONFIG_COREDUMP?");
	ASSERT_LT(0, read(fd, pattern, sizeof(pattern) - 1));
	ASSERT_EQ(0, ut_watch(&self->s, &sideband, &self->c, ladder_core, self->sh));
	enter = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_kill");
	deliver = ut_add_tracepoint(&self->s, "signal", "signal_deliver");
	ASSERT_EQ(0, ut_enable(&self->s));
	/* No assertion may end the test until the pattern is restored. */
	EXPECT_LT(0, pwrite(fd, "core.unwind_test", 16, 0));
	EXPECT_EQ(0, ut_go(&self->c));
	status = ut_wait(&self->c);
	pwrite(fd, pattern, strlen(pattern), 0);
	close(fd);
	ASSERT_TRUE(WIFSIGNALED(status));
	EXPECT_TRUE(WCOREDUMP(status));
	unlink("/tmp/core.unwind_test");
	ASSERT_EQ(0, ut_stop(&self->s));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, enter, self->c.pid, 0),
				&self->sh->st));
	EXPECT_TRUE(ut_has_stack(&self->s, ut_sample(&self->s, deliver, self->c.pid, 0),
				 &self->sh->st));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

static void traced(void *arg)
{
	struct shared *sh = arg;

	ut_syscall0(&sh->st, __NR_getppid);
	ut_syscall0(&sh->st2, __NR_getuid);
}

static void ladder_traced(void *arg)
{
	ut_ladder(6, traced, arg);
}

/* Run the tracee to its next stop. Returns the status. */
static int resume(pid_t pid, int how)
{
	int status;

	if (ptrace(how, pid, 0, 0) || waitpid(pid, &status, __WALL) != pid)
		return -1;
	return status;
}

/* Run the tracee to its next stop at a system call, or to its end. Returns the status. */
static int next_call(pid_t pid)
{
	int status;

	do {
		status = resume(pid, PTRACE_SYSCALL);
	} while (WIFSTOPPED(status) && WSTOPSIG(status) != (SIGTRAP | 0x80));
	return status;
}

static int seize(struct ut_session *s, struct ut_child *c, struct shared *sh)
{
	if (ut_watch(s, &sideband, c, ladder_traced, sh))
		return -1;
	return ptrace(PTRACE_SEIZE, c->pid, 0, PTRACE_O_TRACESYSGOOD);
}

/* Stop the child before it runs its function. The test resumes it. */
static int start(struct ut_session *s, struct ut_child *c)
{
	if (ut_enable(s) || ptrace(PTRACE_INTERRUPT, c->pid, 0, 0) ||
	    waitpid(c->pid, NULL, __WALL) != c->pid)
		return -1;
	return ut_go(c);
}

/*
 * Take the frame pointer of a stopped task away, and restore it a step later: the program
 * would crash if it ran on without.
 */
static int step_without_rbp(pid_t pid)
{
	struct user_regs_struct regs;
	unsigned long rbp;

	if (ptrace(PTRACE_GETREGS, pid, 0, &regs))
		return -1;
	rbp = regs.rbp;
	regs.rbp = 0;
	if (ptrace(PTRACE_SETREGS, pid, 0, &regs) ||
	    !WIFSTOPPED(resume(pid, PTRACE_SINGLESTEP)) ||
	    ptrace(PTRACE_GETREGS, pid, 0, &regs))
		return -1;
	regs.rbp = rbp;
	return ptrace(PTRACE_SETREGS, pid, 0, &regs);
}

/*
 * A tracer changes the frame pointer at the stop after a system call. Samples from before
 * the stop have the stack from before it.
 */
TEST_F(stops, tracer_writes_registers)
{
	struct user_regs_struct regs;
	int enter, exit, status, stops = 0;
	struct ut_stack got;

	ASSERT_EQ(0, seize(&self->s, &self->c, self->sh));
	enter = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid");
	exit = ut_add_tracepoint(&self->s, "syscalls", "sys_exit_getuid");
	ASSERT_EQ(0, start(&self->s, &self->c));
	while (!WIFEXITED(status = next_call(self->c.pid))) {
		ASSERT_TRUE(WIFSTOPPED(status));
		ASSERT_EQ(0, ptrace(PTRACE_GETREGS, self->c.pid, 0, &regs));
		if (regs.orig_rax == __NR_getppid && (long)regs.rax >= 0) {
			/* The stop after getppid() */
			ASSERT_EQ(0, step_without_rbp(self->c.pid));
			stops++;
		}
	}
	EXPECT_EQ(0, WEXITSTATUS(status));
	self->c.pid = 0;
	ASSERT_EQ(1, stops);
	ASSERT_EQ(0, ut_stop(&self->s));
	ASSERT_EQ(UT_DEFERRED, ut_user_stack(&self->s, ut_sample(&self->s, enter, 0, 0), &got));
	EXPECT_TRUE(ut_same_stack(&got, &self->sh->st));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, exit, 0, 0), &self->sh->st2));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/*
 * A tracer changes the frame pointer between two samples of one system call. Each sample
 * has the stack of its own registers.
 */
static void between_two_samples(struct __test_metadata *_metadata, struct ut_session *s,
				struct ut_child *c, struct shared *sh, bool nmi)
{
	int stop, leave, enter, status, before = 0, changed = 0;
	struct ut_rec *r, *behind;
	struct user_regs_struct regs;
	unsigned long rbp = 0;
	struct ut_stack got;
	unsigned int i;

	ASSERT_EQ(0, seize(s, c, sh));
	stop = nmi ? ut_add_function(s, "do_notify_parent_cldstop") :
		     ut_add_tracepoint(s, "sched", "sched_switch");
	/* This function runs after the stop. */
	leave = ut_add_function(s, "cgroup_leave_frozen");
	enter = ut_add_tracepoint(s, "syscalls", "sys_enter_getuid");
	ASSERT_EQ(0, start(s, c));
	while (!WIFEXITED(status = next_call(c->pid))) {
		ASSERT_TRUE(WIFSTOPPED(status));
		ASSERT_EQ(0, ptrace(PTRACE_GETREGS, c->pid, 0, &regs));
		if (regs.orig_rax != __NR_getuid)
			continue;
		/* Take the frame pointer away at the entry, and restore it at the exit. */
		if (!rbp) {
			rbp = regs.rbp;
			regs.rbp = 0;
		} else {
			regs.rbp = rbp;
		}
		ASSERT_EQ(0, ptrace(PTRACE_SETREGS, c->pid, 0, &regs));
	}
	EXPECT_EQ(0, WEXITSTATUS(status));
	c->pid = 0;
	ASSERT_EQ(0, ut_stop(s));
	behind = ut_sample(s, enter, 0, 0);
	ASSERT_NE(NULL, behind);
	ASSERT_EQ(UT_DEFERRED, ut_user_stack(s, behind, &got));
	EXPECT_EQ(1, got.nr);
	EXPECT_EQ(sh->st2.ip[0], got.ip[0]);
	/* The sample at the stop has all frames. */
	for (i = 0; (r = ut_sample(s, stop, 0, i)); i++)
		before += r->time < behind->time &&
			  ut_user_stack(s, r, &got) == (nmi ? UT_DEFERRED : UT_IMMEDIATE) &&
			  got.nr == sh->st2.nr &&
			  !memcmp(got.ip, sh->st2.ip, got.nr * sizeof(*got.ip));
	EXPECT_LE(1, before);
	/* Samples with the changed registers have another cookie. */
	for (i = 0; (r = ut_sample(s, leave, 0, i)); i++)
		changed += r->time < behind->time && r->cookie == behind->cookie;
	EXPECT_EQ(1, changed);
	EXPECT_EQ(0, ut_check(s, 0));
}

TEST_F(stops, tracer_between_two_samples)
{
	between_two_samples(_metadata, &self->s, &self->c, self->sh, false);
}

/* The first sample is by an NMI, after the last check for task work before the stop. */
TEST_F(stops, tracer_behind_an_nmi)
{
	between_two_samples(_metadata, &self->s, &self->c, self->sh, true);
}

/* The same at the stop of a signal, which the tracer suppresses. */
static void kills_itself(void *arg)
{
	struct shared *sh = arg;

	ut_syscall2(&sh->st, __NR_kill, getpid(), SIGUSR1);
}

static void ladder_kills_itself(void *arg)
{
	ut_ladder(5, kills_itself, arg);
}

TEST_F(stops, tracer_behind_an_nmi_of_a_signal)
{
	unsigned int i, whole = 0;
	struct ut_stack got;
	struct ut_rec *r;
	int stop, status;

	ASSERT_EQ(0, ut_watch(&self->s, &sideband, &self->c, ladder_kills_itself, self->sh));
	ASSERT_EQ(0, ptrace(PTRACE_SEIZE, self->c.pid, 0, PTRACE_O_TRACESYSGOOD));
	stop = ut_add_function(&self->s, "do_notify_parent_cldstop");
	ASSERT_EQ(0, start(&self->s, &self->c));
	do {
		status = resume(self->c.pid, PTRACE_CONT);
		ASSERT_TRUE(WIFSTOPPED(status));
	} while (WSTOPSIG(status) != SIGUSR1);
	ASSERT_EQ(0, step_without_rbp(self->c.pid));
	status = resume(self->c.pid, PTRACE_CONT);
	ASSERT_TRUE(WIFEXITED(status));
	self->c.pid = 0;
	ASSERT_EQ(0, ut_stop(&self->s));
	for (i = 0; (r = ut_sample(&self->s, stop, 0, i)); i++)
		whole += ut_user_stack(&self->s, r, &got) == UT_DEFERRED &&
			 got.nr == self->sh->st.nr &&
			 !memcmp(got.ip, self->sh->st.ip, got.nr * sizeof(*got.ip));
	EXPECT_LE(1, whole);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

static void do_read(void *arg)
{
	struct shared *sh = arg;
	char byte;

	ut_syscall3(&sh->st, __NR_read, sh->pipe[0], &byte, 1);
	sh->returned = 1;
}

static void ladder_read(void *arg)
{
	ut_ladder(6, do_read, arg);
}

/*
 * A task is stopped and continued many times in a system call, which is restarted each
 * time. Its records can be read while it sleeps, and while it is stopped.
 */
TEST_F(stops, stopped_and_continued)
{
	int enter, i;

	ASSERT_EQ(0, ut_watch(&self->s, &sideband, &self->c, ladder_read, self->sh));
	enter = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_read");
	ASSERT_EQ(0, ut_start(&self->s, &self->c));
	ASSERT_TRUE(ut_wait_asleep(self->c.pid, &self->sh->st));
	for (i = 0; i < 5; i++) {
		ASSERT_EQ(0, ut_drain(&self->s));
		EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, enter, 0, i),
					&self->sh->st)) TH_LOG("sleep %d", i);
		ASSERT_EQ(0, kill(self->c.pid, SIGSTOP));
		ASSERT_TRUE(ut_wait_state(self->c.pid, "T"));
		ASSERT_EQ(0, ut_drain(&self->s));
		EXPECT_EQ(0, ut_check(&self->s, 0)) TH_LOG("stop %d", i);
		ASSERT_EQ(0, kill(self->c.pid, SIGCONT));
		ASSERT_TRUE(ut_wait_state(self->c.pid, "S"));
	}
	ASSERT_EQ(1, write(self->sh->pipe[1], "x", 1));
	ASSERT_EQ(0, ut_wait(&self->c));
	self->c.pid = 0;
	ASSERT_EQ(0, ut_stop(&self->s));
	/* Each entry has the same stack. */
	for (i = 0; i < ut_count_samples(&self->s, enter, 0); i++)
		EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, enter, 0, i),
					&self->sh->st));
	EXPECT_EQ(6, i);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/*
 * A sleeping task is frozen, and sampled after the last check for task work before that.
 * The record can be read while the task is frozen.
 */
TEST_F(stops, frozen)
{
	struct ut_cgroup freezer;
	int func;

	ASSERT_EQ(0, ut_watch(&self->s, &sideband, &self->c, ladder_read, self->sh));
	ASSERT_EQ(0, ut_cgroup(&freezer, self->c.pid));
	func = ut_add_function(&self->s, "cgroup_enter_frozen");
	ASSERT_EQ(0, ut_start(&self->s, &self->c));
	ASSERT_TRUE(ut_wait_asleep(self->c.pid, &self->sh->st));
	ASSERT_EQ(0, ut_freeze(&freezer, true));
	/* It is frozen some time before it is switched out. */
	ASSERT_TRUE(ut_wait_state(self->c.pid, "S"));
	ASSERT_EQ(0, ut_drain(&self->s));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, func, 0, 0), &self->sh->st));
	EXPECT_EQ(0, ut_check(&self->s, 0));
	ASSERT_EQ(0, ut_disable(&self->s));
	EXPECT_EQ(0, self->sh->returned);

	ASSERT_EQ(0, ut_freeze(&freezer, false));
	ASSERT_EQ(1, write(self->sh->pipe[1], "x", 1));
	EXPECT_EQ(0, ut_wait(&self->c));
	self->c.pid = 0;
	EXPECT_EQ(1, self->sh->returned);
	ut_cgroup_end(&freezer);
}

int main(int argc, char **argv)
{
	ut_need_root();
	return test_harness_run(argc, argv);
}

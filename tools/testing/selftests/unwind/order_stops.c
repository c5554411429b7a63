// SPDX-License-Identifier: GPL-2.0
/*
 * K11, K24: a task is sampled on its way into a stop by SIGSTOP, by its tracer or by the
 * freezer. The record is written before the switch, so a reader gets it while the task is
 * stopped.
 */
#include <errno.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

struct shared {
	struct ut_stack	st;
	int		how;
	int		returned;
	int		pipe[2];
};

enum {
	STOPPED, TRACED_ENTRY, TRACED_EXIT, TRACED_SIGNAL, FROZEN,
};

static void call_and_stop(void *arg)
{
	struct shared *sh = arg;
	char byte;

	switch (sh->how) {
	case STOPPED:
		ut_syscall2(&sh->st, __NR_kill, getpid(), SIGSTOP);
		break;
	case TRACED_SIGNAL:
		ut_syscall2(&sh->st, __NR_kill, getpid(), SIGUSR1);
		break;
	case FROZEN:
		/* The freezer interrupts the call, and it is restarted. */
		ut_syscall3(&sh->st, __NR_read, sh->pipe[0], &byte, 1);
		break;
	default:
		ut_syscall0(&sh->st, __NR_getuid);
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
	const char *function;
	char state;
};

FIXTURE_VARIANT_ADD(within_a_stop, stopped) {
	.how = STOPPED, .function = "do_signal_stop", .state = 'T',
};

FIXTURE_VARIANT_ADD(within_a_stop, traced_at_entry) {
	.how = TRACED_ENTRY, .function = "ptrace_stop", .state = 't',
};

FIXTURE_VARIANT_ADD(within_a_stop, traced_at_exit) {
	.how = TRACED_EXIT, .function = "ptrace_stop", .state = 't',
};

FIXTURE_VARIANT_ADD(within_a_stop, traced_at_signal) {
	.how = TRACED_SIGNAL, .function = "ptrace_stop", .state = 't',
};

FIXTURE_VARIANT_ADD(within_a_stop, frozen) {
	.how = FROZEN, .function = "cgroup_enter_frozen", .state = 'S',
};

FIXTURE_SETUP(within_a_stop)
{
	struct ut_opts opts = { .per_cpu = true, .sideband = true };

	self->sh = ut_shared(sizeof(*self->sh));
	ASSERT_NE(NULL, self->sh);
	self->sh->how = variant->how;
	ASSERT_EQ(0, pipe(self->sh->pipe));
	ASSERT_EQ(0, ut_watch(&self->s, &opts, &self->c, ladder_stops, self->sh));
	self->event = ut_add_function(&self->s, variant->function);
	ASSERT_LE(0, self->event);
}

FIXTURE_TEARDOWN(within_a_stop)
{
	ut_end_child(&self->c);
	ut_close(&self->s);
	if (self->freezer.group[0])
		ut_cgroup_end(&self->freezer);
}

/* Run the tracee to its next stop. Returns the status. */
static int next_stop(pid_t pid, int how)
{
	int status;

	if (ptrace(how, pid, 0, 0) || waitpid(pid, &status, __WALL) != pid || !WIFSTOPPED(status))
		return -1;
	return status;
}

/* Run the tracee to the entry of this system call. */
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
		return ut_wait_asleep(c->pid, &sh->st) ? ut_freeze(freezer, true) : -1;
	}

	if (ptrace(PTRACE_SEIZE, c->pid, 0, PTRACE_O_TRACESYSGOOD) ||
	    ptrace(PTRACE_INTERRUPT, c->pid, 0, 0) || waitpid(c->pid, NULL, __WALL) != c->pid ||
	    ut_go(c))
		return -1;
	switch (sh->how) {
	case TRACED_ENTRY:
		return ut_enable(s) || run_to_call(c->pid, __NR_getuid) ? -1 : 0;
	case TRACED_EXIT:
		/* Enable only here: at the entry's stop the stack would be handed out. */
		if (run_to_call(c->pid, __NR_getuid) || ut_enable(s))
			return -1;
		return next_stop(c->pid, PTRACE_SYSCALL) < 0 ? -1 : 0;
	default:
		if (ut_enable(s))
			return -1;
		return WSTOPSIG(next_stop(c->pid, PTRACE_CONT)) == SIGUSR1 ? 0 : -1;
	}
}

/* Has the task been switched out after this sample? */
static bool has_left(struct ut_session *s, struct ut_rec *sample)
{
	size_t i;

	for (i = 0; i < s->nr_recs; i++) {
		struct ut_rec *r = &s->rec[i];

		if ((r->type == PERF_RECORD_SWITCH || r->type == PERF_RECORD_SWITCH_CPU_WIDE) &&
		    (r->misc & PERF_RECORD_MISC_SWITCH_OUT) && r->tid == sample->tid &&
		    r->ring == sample->ring && r->seq > sample->seq)
			return true;
	}
	return false;
}

TEST_F(within_a_stop, written_before)
{
	struct ut_rec *r;
	unsigned int nr;

	ASSERT_EQ(0, bring_to_stop(&self->s, &self->c, self->sh, &self->freezer));
	/* The task's state changes before it is switched out. */
	do {
		ASSERT_EQ(0, ut_drain(&self->s));
		nr = ut_count_samples(&self->s, self->event, self->c.pid);
		r = nr ? ut_sample(&self->s, self->event, self->c.pid, nr - 1) : NULL;
	} while (!r || !has_left(&self->s, r));
	ASSERT_EQ(variant->state, ut_task_state(self->c.pid));
	EXPECT_TRUE(ut_stack_is(&self->s, r, &self->sh->st));
	EXPECT_EQ(0, self->sh->returned);
	/* No record is left for the end of the profile. */
	ASSERT_EQ(0, ut_disable(&self->s));
	nr = ut_count(&self->s, UT_RECORD_CALLCHAIN_DEFERRED, 0);
	ASSERT_EQ(0, ut_drain(&self->s));
	EXPECT_EQ(nr, ut_count(&self->s, UT_RECORD_CALLCHAIN_DEFERRED, 0));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

static void short_calls(void *arg)
{
	struct shared *sh = arg;

	for (;;)
		ut_syscall0(&sh->st, __NR_getppid);
}

static void ladder_short_calls(void *arg)
{
	ut_ladder(6, short_calls, arg);
}

/* A task is frozen and thawed on its way out of a system call with samples up to its end. */
TEST(frozen_again_and_again)
{
	struct ut_opts opts = { .per_cpu = true, .sideband = true, .pages = 256 };
	struct shared *sh = ut_shared(sizeof(*sh));
	struct ut_cgroup group;
	struct ut_session s;
	unsigned int i, nr;
	struct ut_child c;
	struct ut_rec *r;
	int leave;

	ASSERT_NE(NULL, sh);
	ASSERT_EQ(0, ut_watch(&s, &opts, &c, ladder_short_calls, sh));
	ASSERT_EQ(0, ut_cgroup(&group, c.pid));
	ASSERT_LE(0, ut_add_tracepoint(&s, "syscalls", "sys_enter_getppid"));
	leave = ut_add_tracepoint(&s, "syscalls", "sys_exit_getppid");
	for (i = 0; i < 5; i++) {
		ASSERT_EQ(0, ut_enable(&s));
		ASSERT_EQ(0, i ? ut_freeze(&group, false) : ut_go(&c));
		while (!ut_sample(&s, leave, c.pid, 0))
			ASSERT_EQ(0, ut_drain(&s));
		ASSERT_EQ(0, ut_freeze(&group, true));
		ASSERT_EQ(0, ut_drain(&s));
		/* The task is off its CPU, so none of its stacks is pending. */
		nr = ut_count_samples(&s, -1, c.pid);
		r = ut_sample(&s, -1, c.pid, nr - 1);
		EXPECT_TRUE(ut_allow_lost(&s) || ut_stack_is(&s, r, &sh->st))
			TH_LOG("round %u", i);
		ASSERT_EQ(0, ut_stop(&s));
		EXPECT_EQ(0, ut_check(&s, ut_allow_lost(&s)))
			TH_LOG("round %u", i);
		ut_forget(&s);
	}
	ut_end_child(&c);
	ut_cgroup_end(&group);
	ut_close(&s);
}

int main(int argc, char **argv)
{
	ut_need_root();
	return test_harness_run(argc, argv);
}

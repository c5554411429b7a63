// SPDX-License-Identifier: GPL-2.0
/*
 * K9: a task gets the tid of a dead task. The stacks of the two are not mixed up, because
 * their cookies differ.
 */
#include <errno.h>
#include <linux/sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

#define ROUNDS	20

struct call {
	struct ut_stack	st;
	int		depth;
	bool		asleep;		/* sleep until the test kills it */
};

static void do_call(void *arg)
{
	struct call *c = arg;

	if (c->asleep)
		ut_syscall0(&c->st, __NR_pause);
	else
		ut_syscall0(&c->st, __NR_getppid);
}

/* The state of the parent of all tasks, from which they inherit the session's events. */
struct shared {
	struct call	call[ROUNDS];
	pid_t		pid;
	int		made;		/* the number of tasks with this tid so far */
	int		kill;		/* so many of them may be killed */
	int		over;		/* the test is over, and kills the parent */
	int		err;
};

/* Fork a child with this tid, which must be free. */
static pid_t fork_as(pid_t pid)
{
	struct clone_args args = {
		.exit_signal	= SIGCHLD,
		.set_tid	= pid ? (unsigned long)&pid : 0,
		.set_tid_size	= !!pid,
	};

	return syscall(__NR_clone3, &args, sizeof(args));
}

static void parent(void *arg)
{
	struct shared *sh = arg;
	pid_t pid;
	int i;

	for (i = 0; i < ROUNDS; i++) {
		pid = fork_as(sh->pid);
		if (pid < 0) {
			sh->err = errno;
			return;
		}
		if (!pid) {
			/* No child must live on when the test is over, see the teardown. */
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (UT_READ(sh->over))
				_exit(0);
			ut_ladder(sh->call[i].depth, do_call, &sh->call[i]);
			_exit(0);
		}
		sh->pid = pid;
		__atomic_store_n(&sh->made, i + 1, __ATOMIC_RELEASE);
		while (sh->call[i].asleep && UT_READ(sh->kill) <= i)
			usleep(1000);
		if (sh->call[i].asleep)
			kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
}

FIXTURE(pid_reuse) {
	struct ut_session s;
	struct shared *sh;
	struct ut_child c;
	int ppid, pause;
};

FIXTURE_VARIANT(pid_reuse) {
	bool all;
};

FIXTURE_VARIANT_ADD(pid_reuse, inherited) {
	.all = false,
};

FIXTURE_VARIANT_ADD(pid_reuse, all_tasks) {
	.all = true,
};

FIXTURE_SETUP(pid_reuse)
{
	struct ut_opts opts = {
		.pid = variant->all ? -1 : 0, .inherit = !variant->all, .per_cpu = true,
		.sideband = true,
	};
	int i;

	self->sh = ut_shared(sizeof(*self->sh));
	ASSERT_NE(NULL, self->sh);
	for (i = 0; i < ROUNDS; i++)
		self->sh->call[i].depth = 1 + i;
	ASSERT_EQ(0, ut_watch(&self->s, &opts, &self->c, parent, self->sh));
	self->ppid = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid");
	self->pause = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_pause");
	ASSERT_EQ(0, ut_enable(&self->s));
}

FIXTURE_TEARDOWN(pid_reuse)
{
	/* For a child that calls prctl() only after the parent has died. */
	__atomic_store_n(&self->sh->over, 1, __ATOMIC_SEQ_CST);
	ut_end_child(&self->c);
	ut_close(&self->s);
}

/* Has each task its own stack, in the order of the tasks? The stacks differ by a frame. */
static bool in_order(struct ut_session *s, int event, struct shared *sh, int first, int step)
{
	int i, nr = 0;

	for (i = first; i < ROUNDS; i += step, nr++) {
		if (!ut_stack_is(s, ut_sample(s, event, sh->pid, nr), &sh->call[i].st)) {
			ut_diag("number %d of process %d", i, sh->pid);
			return false;
		}
	}
	return !ut_sample(s, event, sh->pid, nr);
}

/* All tasks run to their end. */
TEST_F(pid_reuse, one_after_the_other)
{
	ASSERT_EQ(0, ut_go(&self->c));
	while (UT_READ(self->sh->made) < ROUNDS && !UT_READ(self->sh->err))
		usleep(1000);
	ASSERT_EQ(0, self->sh->err) TH_LOG("clone3: %s", strerror(self->sh->err));
	while (ut_task_state(self->c.pid) != 'Z')
		usleep(1000);
	ASSERT_EQ(0, ut_stop(&self->s));
	EXPECT_TRUE(in_order(&self->s, self->ppid, self->sh, 0, 1));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/*
 * Every other task is killed in its sampled system call. The next task with that tid still
 * gets its own stack.
 */
TEST_F(pid_reuse, after_one_that_was_killed)
{
	int i;

	for (i = 0; i < ROUNDS; i += 2)
		self->sh->call[i].asleep = true;
	ASSERT_EQ(0, ut_go(&self->c));
	for (i = 0; i < ROUNDS; i += 2) {
		while (UT_READ(self->sh->made) <= i && !UT_READ(self->sh->err))
			usleep(1000);
		ASSERT_EQ(0, self->sh->err) TH_LOG("clone3: %s", strerror(self->sh->err));
		ASSERT_TRUE(ut_wait_asleep(self->sh->pid, &self->sh->call[i].st));
		__atomic_store_n(&self->sh->kill, i + 1, __ATOMIC_RELEASE);
	}
	while (ut_task_state(self->c.pid) != 'Z')
		usleep(1000);
	ASSERT_EQ(0, ut_stop(&self->s));
	EXPECT_TRUE(in_order(&self->s, self->pause, self->sh, 0, 2));
	EXPECT_TRUE(in_order(&self->s, self->ppid, self->sh, 1, 2));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* The stack of each task can be read while it sleeps, and is not that of the task before. */
TEST_F(pid_reuse, read_asleep)
{
	struct ut_rec *r;
	int i;

	for (i = 0; i < ROUNDS; i++)
		self->sh->call[i].asleep = true;
	ASSERT_EQ(0, ut_go(&self->c));
	for (i = 0; i < 4; i++) {
		while (UT_READ(self->sh->made) <= i && !UT_READ(self->sh->err))
			usleep(1000);
		ASSERT_EQ(0, self->sh->err) TH_LOG("clone3: %s", strerror(self->sh->err));
		do {
			usleep(1000);
			ASSERT_EQ(0, ut_drain(&self->s));
			r = ut_sample(&self->s, self->pause, self->sh->pid, i);
		} while (!r || !ut_record_of(&self->s, self->sh->pid, r->cookie));
		EXPECT_TRUE(ut_stack_is(&self->s, r, &self->sh->call[i].st))
			TH_LOG("number %d", i);
		/* The record is also there if the task was preempted before its sleep. */
		EXPECT_TRUE(ut_wait_state(self->sh->pid, "S"));
		__atomic_store_n(&self->sh->kill, i + 1, __ATOMIC_RELEASE);
	}
	ASSERT_EQ(0, ut_stop(&self->s));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

int main(int argc, char **argv)
{
	ut_need_root();
	return test_harness_run(argc, argv);
}

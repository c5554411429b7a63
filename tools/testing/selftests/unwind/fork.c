// SPDX-License-Identifier: GPL-2.0
/*
 * K9: a child does not inherit pending stacks of its parent.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

struct shared {
	struct ut_stack	st[2];
	pid_t		child;
	int		storm[256];
	struct ut_stack	storm_st[256];
};

FIXTURE(fork) {
	struct ut_session s;
	struct shared *sh;
	struct ut_child c;
};

FIXTURE_SETUP(fork)
{
	self->sh = ut_shared(sizeof(*self->sh));
	ASSERT_NE(NULL, self->sh);
}

FIXTURE_TEARDOWN(fork)
{
	ut_close(&self->s);
}

static const struct ut_opts with_children = {
	.per_cpu = true, .inherit = true, .sideband = true, .pages = 256,
};

static void call_fork(void *arg)
{
	struct shared *sh = arg;
	long ret = ut_syscall0(&sh->st[0], __NR_fork);

	if (!ret) {
		ut_syscall0(&sh->st[1], __NR_getppid);
		_exit(0);
	}
	sh->child = ret;
	waitpid(ret, NULL, 0);
}

static void ladder_fork(void *arg)
{
	ut_ladder(6, call_fork, arg);
}

TEST_F(fork, fork)
{
	struct ut_rec *parent, *child, *r;
	int enter, exit, ppid;
	size_t i;

	ASSERT_EQ(0, ut_watch(&self->s, &with_children, &self->c, ladder_fork, self->sh));
	enter = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_fork");
	exit = ut_add_tracepoint(&self->s, "syscalls", "sys_exit_fork");
	ppid = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid");
	ASSERT_EQ(0, ut_profile_child(&self->s, &self->c));

	parent = ut_sample(&self->s, enter, self->c.pid, 0);
	EXPECT_TRUE(ut_stack_is(&self->s, parent, &self->sh->st[0]));
	EXPECT_EQ(parent->cookie, ut_sample(&self->s, exit, self->c.pid, 0)->cookie);
	/* The child returns from the same system call, but its kernel entry is its own. */
	child = ut_sample(&self->s, exit, self->sh->child, 0);
	if (child) {
		EXPECT_TRUE(ut_stack_is(&self->s, child, &self->sh->st[0]));
		EXPECT_NE(parent->cookie, child->cookie);
	}
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, ppid, self->sh->child, 0),
				&self->sh->st[1]));
	for (i = 0; i < self->s.nr_recs; i++) {
		r = &self->s.rec[i];
		if (r->tid == self->sh->child && r->type == UT_RECORD_CALLCHAIN_DEFERRED)
			EXPECT_NE(parent->cookie, r->cookie);
	}
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* The parent's sample wants more entries than the child's. The child does not inherit that. */
TEST_F(fork, limit_of_the_parent)
{
	struct ut_rec *child;
	int enter, ppid;

	ASSERT_EQ(0, ut_watch(&self->s, &with_children, &self->c, ladder_fork, self->sh));
	enter = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_fork");
	self->s.opts.max_stack = 3;
	ppid = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid");
	ASSERT_EQ(0, ut_profile_child(&self->s, &self->c));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, enter, self->c.pid, 0),
				&self->sh->st[0]));
	child = ut_sample(&self->s, ppid, self->sh->child, 0);
	ASSERT_NE(NULL, child);
	child = ut_record_of(&self->s, self->sh->child, child->cookie);
	ASSERT_NE(NULL, child);
	EXPECT_EQ(3, child->nr);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/*
 * vfork() by hand. The child runs on the parent's stack, and does not change it. It
 * calls getppid() and exits.
 */
long ut_vfork(void);
UT_LABEL(ut_vfork_ret);
UT_LABEL(ut_vfork_child_ret);
asm(".text\n"
	".globl ut_vfork\n"
	"ut_vfork:\n"
	"	push %rbp\n"
	"	mov %rsp, %rbp\n"
	"	mov $58, %eax\n"
	"	syscall\n"
	".globl ut_vfork_ret\n"
	"ut_vfork_ret:\n"
	"	test %rax, %rax\n"
	"	jnz 1f\n"
	"	mov $110, %eax\n"
	"	syscall\n"
	".globl ut_vfork_child_ret\n"
	"ut_vfork_child_ret:\n"
	"	xor %edi, %edi\n"
	"	mov $60, %eax\n"
	"	syscall\n"
	"1:	pop %rbp\n"
	"	ret\n");

UT_LABEL(behind_vfork);
static ut_noinline void call_vfork(void *arg)
{
	struct shared *sh = arg;
	long ret;

	/* The frame of ut_vfork(), then the frames of this function and its callers. */
	ut_walk_self(&sh->st[0], 0, __builtin_frame_address(0));
	memmove(&sh->st[0].ip[2], &sh->st[0].ip[1], (sh->st[0].nr - 1) * sizeof(__u64));
	sh->st[0].nr++;
	asm volatile("call ut_vfork\n"
		     ".globl behind_vfork\n"
		     "behind_vfork:\n"
		     : "=a" (ret) : : "rcx", "r11", "rdi", "memory");
	sh->st[0].ip[0] = (unsigned long)ut_vfork_ret;
	sh->st[0].ip[1] = (unsigned long)behind_vfork;
	sh->st[1] = sh->st[0];
	sh->st[1].ip[0] = (unsigned long)ut_vfork_child_ret;
	sh->child = ret;
	waitpid(ret, NULL, 0);
}

static void ladder_vfork(void *arg)
{
	ut_ladder(6, call_vfork, arg);
}

TEST_F(fork, vfork)
{
	struct ut_rec *parent;
	int enter, exit, ppid;

	ASSERT_EQ(0, ut_watch(&self->s, &with_children, &self->c, ladder_vfork, self->sh));
	enter = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_vfork");
	exit = ut_add_tracepoint(&self->s, "syscalls", "sys_exit_vfork");
	ppid = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid");
	ASSERT_EQ(0, ut_profile_child(&self->s, &self->c));
	parent = ut_sample(&self->s, enter, self->c.pid, 0);
	EXPECT_TRUE(ut_stack_is(&self->s, parent, &self->sh->st[0]));
	EXPECT_EQ(parent->cookie, ut_sample(&self->s, exit, self->c.pid, 0)->cookie);
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, ppid, self->sh->child, 0),
				&self->sh->st[1]));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

static void thread_getppid(void *arg)
{
	struct shared *sh = arg;

	sh->child = gettid();
	ut_syscall0(&sh->st[1], __NR_getppid);
}

static void *thread(void *arg)
{
	ut_ladder(4, thread_getppid, arg);
	return NULL;
}

static void make_thread(void *arg)
{
	pthread_t id;

	if (!pthread_create(&id, NULL, thread, arg))
		pthread_join(id, NULL);
}

static void ladder_thread(void *arg)
{
	ut_ladder(6, make_thread, arg);
}

TEST_F(fork, thread)
{
	int clone3, clone, task_tp, ppid;
	struct ut_rec *before, *made, *of_child, *r;
	size_t i;

	ASSERT_EQ(0, ut_watch(&self->s, &with_children, &self->c, ladder_thread, self->sh));
	/* Samples in the parent, before it is copied for the child and after that. */
	clone3 = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_clone3");
	clone = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_clone");
	task_tp = ut_add_tracepoint(&self->s, "task", "task_newtask");
	ppid = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid");
	ASSERT_EQ(0, ut_profile_child(&self->s, &self->c));
	before = ut_sample(&self->s, clone3, self->c.pid, 0) ?:
		 ut_sample(&self->s, clone, self->c.pid, 0);
	made = ut_sample(&self->s, task_tp, self->c.pid, 0);
	ASSERT_NE(NULL, before);
	ASSERT_NE(NULL, made);
	EXPECT_NE(0, made->cookie);
	EXPECT_EQ(before->cookie, made->cookie);
	EXPECT_TRUE(ut_one_record(&self->s, before));
	of_child = ut_sample(&self->s, ppid, self->sh->child, 0);
	ASSERT_TRUE(ut_stack_is(&self->s, of_child, &self->sh->st[1]));
	/* The child has no other cookie, in samples or in records. */
	for (i = 0; i < self->s.nr_recs; i++) {
		r = &self->s.rec[i];
		if (r->tid == self->sh->child && r->cookie)
			EXPECT_EQ(of_child->cookie, r->cookie);
	}
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

#define STORM 128

struct storm {
	struct shared	*sh;
	int		nr;
};

static void storm_child(void *arg)
{
	struct storm *st = arg;

	ut_syscall0(&st->sh->storm_st[st->nr], __NR_getppid);
	/* The last pending stack of the task is the one of exit_group(). */
	syscall(__NR_exit_group, 0);
}

static void storm(void *arg)
{
	struct storm st = { .sh = arg };
	int i, wave;

	for (wave = 0; wave < STORM; wave += 16) {
		for (i = wave; i < wave + 16; i++) {
			pid_t pid = fork();

			if (!pid) {
				st.nr = i;
				ut_ladder(i % 20, storm_child, &st);
			}
			st.sh->storm[i] = pid;
		}
		while (wait(NULL) > 0)
			;
	}
}

/* Many children at once: each sample has the stack of its own task. */
TEST_F(fork, storm)
{
	int ppid, i;

	ASSERT_EQ(0, ut_watch(&self->s, &with_children, &self->c, storm, self->sh));
	ppid = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid");
	/* The parent has a pending stack when it is copied: fork() of the C library is clone(). */
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_clone"));
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "task", "task_newtask"));
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_exit_group"));
	ASSERT_EQ(0, ut_profile_child(&self->s, &self->c));
	for (i = 0; i < STORM; i++)
		ASSERT_TRUE(ut_stack_is(&self->s,
					ut_sample(&self->s, ppid, self->sh->storm[i], 0),
					&self->sh->storm_st[i])) TH_LOG("child %d", i);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

int main(int argc, char **argv)
{
	ut_need_root();
	return test_harness_run(argc, argv);
}

// SPDX-License-Identifier: GPL-2.0
/*
 * K7: when a task dies, its pending stacks are written first. Each case is run with one
 * event for the task, with one for each CPU, and with inherited events.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

struct shared {
	struct ut_stack	st[4];
	pid_t		tid[4];
	int	ready, pausing;
};

FIXTURE(exit) {
	struct ut_session s;
	struct shared *sh;
	struct ut_child c;
};

FIXTURE_VARIANT(exit) {
	struct ut_opts opts;
};

FIXTURE_VARIANT_ADD(exit, per_task) {
	.opts = { .sideband = true },
};

FIXTURE_VARIANT_ADD(exit, per_task_and_cpu) {
	.opts = { .sideband = true, .per_cpu = true },
};

FIXTURE_VARIANT_ADD(exit, inherited) {
	.opts = { .sideband = true, .per_cpu = true, .inherit = true },
};

FIXTURE_SETUP(exit)
{
	self->sh = ut_shared(sizeof(*self->sh));
	ASSERT_NE(NULL, self->sh);
}

FIXTURE_TEARDOWN(exit)
{
	ut_close(&self->s);
}

static const struct ut_opts all_threads = { .per_cpu = true, .inherit = true, .sideband = true };

static void call_exit_group(void *arg)
{
	ut_syscall1(&((struct shared *)arg)->st[0], __NR_exit_group, 3);
}

static void call_exit(void *arg)
{
	ut_syscall1(&((struct shared *)arg)->st[0], __NR_exit, 4);
}

static void ladder_exit_group(void *arg)
{
	ut_ladder(6, call_exit_group, arg);
}

static void ladder_exit(void *arg)
{
	ut_ladder(6, call_exit, arg);
}

/* Sample the child with the added event, let it run, and wait until it has exited. */
#define RUN_CHILD(fn, add, code) do {							\
	ASSERT_EQ(0, ut_watch(&self->s, &variant->opts, &self->c, fn, self->sh));	\
	ASSERT_LE(0, add);								\
	ASSERT_EQ(code, ut_profile_child(&self->s, &self->c));				\
} while (0)

TEST_F(exit, exit_group)
{
	RUN_CHILD(ladder_exit_group,
		  ut_add_tracepoint(&self->s, "syscalls", "sys_enter_exit_group"), 3 << 8);
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, 0, self->c.pid, 0),
				&self->sh->st[0]));
	EXPECT_EQ(1, ut_count(&self->s, PERF_RECORD_EXIT, self->c.pid));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

TEST_F(exit, exit_of_the_only_thread)
{
	RUN_CHILD(ladder_exit,
		  ut_add_tracepoint(&self->s, "syscalls", "sys_enter_exit"), 4 << 8);
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, 0, self->c.pid, 0),
				&self->sh->st[0]));
	EXPECT_EQ(1, ut_count(&self->s, PERF_RECORD_EXIT, self->c.pid));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* A request after the exit has begun is handed out, too. */
TEST_F(exit, on_the_way_out)
{
	RUN_CHILD(ladder_exit_group, ut_add_function(&self->s, "exit_signals"), 3 << 8);
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, 0, self->c.pid, 0),
				&self->sh->st[0]));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* Later samples have an immediate stack, until the task's memory is gone. */
TEST_F(exit, behind_the_last_look)
{
	RUN_CHILD(ladder_exit_group, ut_add_function(&self->s, "seccomp_filter_release"),
		  3 << 8);
	EXPECT_TRUE(ut_stack_is_immediate(&self->s, ut_sample(&self->s, 0, self->c.pid, 0),
					  &self->sh->st[0]));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

static void do_pause(void *arg)
{
	ut_syscall0(&((struct shared *)arg)->st[0], __NR_pause);
}

static void ladder_pause(void *arg)
{
	ut_ladder(6, do_pause, arg);
}

static const int fatal[] = { SIGKILL, SIGTERM };

TEST_F(exit, fatal_signal)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(fatal); i++) {
		ASSERT_EQ(0, ut_watch(&self->s, &variant->opts, &self->c, ladder_pause, self->sh));
		ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_pause"));
		self->sh->st[0].nr = 0;
		ASSERT_EQ(0, ut_start(&self->s, &self->c));
		ASSERT_TRUE(ut_wait_asleep(self->c.pid, &self->sh->st[0]));
		ASSERT_EQ(0, kill(self->c.pid, fatal[i]));
		ASSERT_EQ(fatal[i], ut_wait(&self->c));
		ASSERT_EQ(0, ut_stop(&self->s));
		EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, 0, self->c.pid, 0),
					&self->sh->st[0]));
		EXPECT_EQ(0, ut_check(&self->s, 0));
		ut_close(&self->s);
	}
}

UT_LABEL(bad_access);
static ut_noinline void die_of_access(void *arg)
{
	struct shared *sh = arg;

	ut_walk_self(&sh->st[0], (unsigned long)bad_access, __builtin_frame_address(0));
	asm volatile(".globl bad_access\nbad_access: movb $1, (%0)" : : "r" (8L) : "memory");
}

static void ladder_die(void *arg)
{
	struct rlimit none = {};

	setrlimit(RLIMIT_CORE, &none);
	ut_ladder(6, die_of_access, arg);
}

TEST_F(exit, fatal_fault)
{
	struct ut_rec *r, *hit = NULL;
	unsigned int i;

	ASSERT_EQ(0, ut_watch(&self->s, &variant->opts, &self->c, ladder_die, self->sh));
	ASSERT_LE(0, ut_add_software(&self->s, PERF_COUNT_SW_PAGE_FAULTS, 1));
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "signal", "signal_deliver"));
	ASSERT_EQ(SIGSEGV, ut_profile_child(&self->s, &self->c));
	for (i = 0; (r = ut_sample(&self->s, 0, self->c.pid, i)); i++) {
		if (r->ip == (unsigned long)bad_access)
			hit = r;
	}
	EXPECT_TRUE(ut_stack_is(&self->s, hit, &self->sh->st[0]));
	r = ut_sample(&self->s, 1, self->c.pid, 0);
	EXPECT_TRUE(ut_has_stack(&self->s, r, &self->sh->st[0]));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/*
 * When the memory is gone, a sample has no user stack and no cookie. Only events of a
 * CPU still sample the task then.
 */
TEST_F(exit, sample_without_memory)
{
	struct ut_opts opts = { .pid = -1, .per_cpu = true };
	struct ut_stack got;
	struct ut_rec *r;

	ASSERT_EQ(0, ut_fork(&self->c, ladder_exit_group, self->sh));
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "sched", "sched_process_exit"));
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_exit_group"));
	ASSERT_EQ(3 << 8, ut_profile_child(&self->s, &self->c));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, 1, self->c.pid, 0),
				&self->sh->st[0]));
	r = ut_sample(&self->s, 0, self->c.pid, 0);
	ASSERT_NE(NULL, r);
	EXPECT_EQ(0, r->cookie);
	EXPECT_EQ(UT_NO_STACK, ut_user_stack(&self->s, r, &got));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

struct thread {
	struct shared	*sh;
	int		nr;
	ut_fn		fn;
};

static void wait_asleep(pid_t tid)
{
	if (!ut_wait_state(tid, "S"))
		_exit(98);
}

static void thread_sleep(void *arg)
{
	struct timespec ts = { .tv_sec = 100 };
	struct thread *t = arg;

	ut_syscall2(&t->sh->st[t->nr], __NR_nanosleep, &ts, NULL);
}

static void thread_exit(void *arg)
{
	struct thread *t = arg;

	ut_syscall1(&t->sh->st[t->nr], __NR_exit, 0);
}

static void thread_exit_group(void *arg)
{
	struct thread *t = arg;

	while (!t->sh->pausing)
		usleep(1000);
	wait_asleep(getpid());
	ut_syscall1(&t->sh->st[t->nr], __NR_exit_group, 5);
}

static void *thread(void *arg)
{
	struct thread *t = arg;

	t->sh->tid[t->nr] = gettid();
	__atomic_add_fetch(&t->sh->ready, 1, __ATOMIC_RELEASE);
	ut_ladder(3 + t->nr, t->fn, t);
	return NULL;
}

static void start(struct thread *t)
{
	pthread_t id;

	if (pthread_create(&id, NULL, thread, t))
		_exit(99);
}

/* Two threads sleep, the third ends the process. */
static void others_exit_group(void *arg)
{
	static struct thread t[3];
	int i;

	for (i = 0; i < 2; i++) {
		t[i] = (struct thread){ .sh = arg, .nr = i, .fn = thread_sleep };
		start(&t[i]);
	}
	while (t[0].sh->ready < 2 || !t[0].sh->st[0].nr || !t[0].sh->st[1].nr)
		usleep(1000);
	wait_asleep(t[0].sh->tid[0]);
	wait_asleep(t[0].sh->tid[1]);
	t[2] = (struct thread){ .sh = arg, .nr = 2, .fn = thread_exit_group };
	start(&t[2]);
	t[2].sh->pausing = 1;
	for (;;)
		pause();
}

TEST_F(exit, exit_group_by_another_thread)
{
	unsigned int i;

	/* Without inherit the event sees only the first thread. */
	if (!variant->opts.inherit) {
		RUN_CHILD(others_exit_group,
			  ut_add_tracepoint(&self->s, "syscalls", "sys_enter_pause"), 5 << 8);
		ASSERT_EQ(1, ut_count(&self->s, PERF_RECORD_SAMPLE, self->c.pid));
		EXPECT_TRUE(ut_one_record(&self->s, ut_sample(&self->s, 0, self->c.pid, 0)));
		EXPECT_EQ(0, ut_check(&self->s, 0));
		return;
	}
	ASSERT_EQ(0, ut_watch(&self->s, &all_threads, &self->c, others_exit_group, self->sh));
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_nanosleep"));
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_exit_group"));
	ASSERT_EQ(5 << 8, ut_profile_child(&self->s, &self->c));
	for (i = 0; i < 3; i++)
		EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, i / 2, self->sh->tid[i], 0),
					&self->sh->st[i])) TH_LOG("thread %u", i);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* The leader exits first, and the last thread some time later. */
static void last_thread(void *arg)
{
	static struct thread t[2];

	t[0] = (struct thread){ .sh = arg, .nr = 1, .fn = thread_sleep };
	start(&t[0]);
	while (!t[0].sh->ready || !t[0].sh->st[1].nr)
		usleep(1000);
	wait_asleep(t[0].sh->tid[1]);
	ut_ladder(6, call_exit, arg);
}

TEST_F(exit, leader_before_last_thread)
{
	ASSERT_EQ(0, ut_watch(&self->s, &variant->opts, &self->c, last_thread, self->sh));
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_exit"));
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_nanosleep"));
	ASSERT_EQ(0, ut_start(&self->s, &self->c));
	ASSERT_TRUE(ut_wait_state(self->c.pid, "Z"));
	/* The leader's stack has been written, while its process lives on. */
	ASSERT_EQ(0, ut_drain(&self->s));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, 0, self->c.pid, 0),
				&self->sh->st[0]));
	ASSERT_EQ(0, kill(self->c.pid, SIGKILL));
	ASSERT_EQ(SIGKILL, ut_wait(&self->c));
	ASSERT_EQ(0, ut_stop(&self->s));
	if (variant->opts.inherit)
		EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, 1, self->sh->tid[1], 0),
					&self->sh->st[1]));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

static void thread_exits(void *arg)
{
	static struct thread t;

	t = (struct thread){ .sh = arg, .nr = 1, .fn = thread_exit };
	start(&t);
	while (!t.sh->ready || ut_task_state(t.sh->tid[1]) > 0)
		usleep(1000);
}

/* Only inherited events reach a thread that does not exist yet. */
FIXTURE(exit_inherited) {
	struct ut_session s;
	struct shared *sh;
	struct ut_child c;
};

FIXTURE_SETUP(exit_inherited)
{
	self->sh = ut_shared(sizeof(*self->sh));
	ASSERT_NE(NULL, self->sh);
}

FIXTURE_TEARDOWN(exit_inherited)
{
	ut_close(&self->s);
}

TEST_F(exit_inherited, thread_exits)
{
	ASSERT_EQ(0, ut_watch(&self->s, &all_threads, &self->c, thread_exits, self->sh));
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_exit"));
	ASSERT_EQ(0, ut_profile_child(&self->s, &self->c));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, 0, self->sh->tid[1], 0),
				&self->sh->st[1]));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* Two threads sleep, the third kills the process with a signal that dumps core. */
static void thread_quits(void *arg)
{
	struct thread *t = arg;

	while (!t->sh->pausing)
		usleep(1000);
	ut_syscall2(&t->sh->st[t->nr], __NR_kill, getpid(), SIGQUIT);
}

static void threads_and_a_core(void *arg)
{
	struct rlimit unlimited = { RLIM_INFINITY, RLIM_INFINITY };
	static struct thread t[3];
	struct shared *sh = arg;
	int i;

	if (chdir("/tmp") || signal(SIGQUIT, SIG_DFL) == SIG_ERR ||
	    setrlimit(RLIMIT_CORE, &unlimited) || prctl(PR_SET_DUMPABLE, 1))
		_exit(99);
	for (i = 0; i < 2; i++) {
		t[i] = (struct thread){ .sh = sh, .nr = i, .fn = thread_sleep };
		start(&t[i]);
	}
	while (UT_READ(sh->ready) < 2 || !UT_READ(sh->st[0].nr) || !UT_READ(sh->st[1].nr))
		usleep(1000);
	wait_asleep(sh->tid[0]);
	wait_asleep(sh->tid[1]);
	t[2] = (struct thread){ .sh = sh, .nr = 2, .fn = thread_quits };
	start(&t[2]);
	sh->pausing = 1;
	for (;;)
		pause();
}

/*
 * While one thread writes the core, the others wait in their exit, and still have their
 * memory. None of their stacks is pending then.
 */
TEST_F(exit_inherited, core_dump_of_threads)
{
	char pattern[128] = "";
	int status, fd, i;

	fd = open("/proc/sys/kernel/core_pattern", O_RDWR);
	ASSERT_LE(0, fd) TH_LOG("CONFIG_COREDUMP?");
	ASSERT_LT(0, read(fd, pattern, sizeof(pattern) - 1));
	ASSERT_EQ(0, ut_watch(&self->s, &all_threads, &self->c, threads_and_a_core, self->sh));
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_nanosleep"));
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_kill"));
	ASSERT_EQ(0, ut_enable(&self->s));
	/* No assertion may end the test until the pattern is restored. */
	EXPECT_LT(0, pwrite(fd, "core.unwind_exit", 16, 0));
	EXPECT_EQ(0, ut_go(&self->c));
	status = ut_wait(&self->c);
	pwrite(fd, pattern, strlen(pattern), 0);
	close(fd);
	unlink("/tmp/core.unwind_exit");
	ASSERT_TRUE(WIFSIGNALED(status));
	EXPECT_EQ(SIGQUIT, WTERMSIG(status));
	EXPECT_TRUE(WCOREDUMP(status));
	ASSERT_EQ(0, ut_stop(&self->s));
	for (i = 0; i < 3; i++)
		EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, i / 2, self->sh->tid[i], 0),
					&self->sh->st[i])) TH_LOG("thread %d", i);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

int main(int argc, char **argv)
{
	ut_need_root();
	return test_harness_run(argc, argv);
}

// SPDX-License-Identifier: GPL-2.0
/*
 * K8: a sample of the old image has the old image's stack, and its record comes before
 * the COMM record of the exec. Samples between the images have no user part.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

#define NEW_IMAGE	"--new-image"
#define NOBODY		65534
#define COPY_SIZE	32
#define SUID_DUMPABLE	"/proc/sys/fs/suid_dumpable"
#define DEFER		"/proc/sys/kernel/perf_event_defer"

struct shared {
	struct ut_stack	st[4];
	pid_t		tid[4];
	int	ready;
	long		ret;
	char		path[PATH_MAX];
};

FIXTURE(exec) {
	struct ut_session s;
	struct shared *sh;
	struct ut_child c;
	char copy[COPY_SIZE];	/* path of a copy of the program, to be removed */
};

FIXTURE_VARIANT(exec) {
	struct ut_opts opts;
};

FIXTURE_VARIANT_ADD(exec, per_task) {
	.opts = { .sideband = true },
};

FIXTURE_VARIANT_ADD(exec, inherited) {
	.opts = { .sideband = true, .per_cpu = true, .inherit = true },
};

FIXTURE_SETUP(exec)
{
	self->sh = ut_shared(sizeof(*self->sh));
	ASSERT_NE(NULL, self->sh);
	ASSERT_LT(0, readlink("/proc/self/exe", self->sh->path, PATH_MAX - 1));
}

FIXTURE_TEARDOWN(exec)
{
	ut_close(&self->s);
	if (self->copy[0])
		unlink(self->copy);
}

static char *new_argv[] = { "new", NEW_IMAGE, NULL };

static void call_execve(void *arg)
{
	struct shared *sh = arg;

	sh->ret = ut_syscall3(&sh->st[0], __NR_execve, sh->path, new_argv, NULL);
}

static void ladder_execve(void *arg)
{
	ut_ladder(6, call_execve, arg);
}

/* The first COMM record of an exec. */
static struct ut_rec *exec_comm(struct ut_session *s, pid_t tid)
{
	size_t i;

	for (i = 0; i < s->nr_recs; i++) {
		struct ut_rec *r = &s->rec[i];

		if (r->type == PERF_RECORD_COMM && (r->misc & PERF_RECORD_MISC_COMM_EXEC) &&
		    r->tid == tid)
			return r;
	}
	return NULL;
}

TEST_F(exec, old_stack)
{
	struct ut_rec *sample, *rec, *comm;
	int tp;

	ASSERT_EQ(0, ut_watch(&self->s, &variant->opts, &self->c, ladder_execve, self->sh));
	tp = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_execve");
	ASSERT_EQ(7 << 8, ut_profile_child(&self->s, &self->c));

	sample = ut_sample(&self->s, tp, self->c.pid, 0);
	ASSERT_TRUE(ut_stack_is(&self->s, sample, &self->sh->st[0]));
	rec = ut_record_of(&self->s, self->c.pid, sample->cookie);
	ASSERT_NE(NULL, rec);
	comm = exec_comm(&self->s, self->c.pid);
	ASSERT_NE(NULL, comm);
	EXPECT_LT(rec->time, comm->time);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* Has the sample neither a marker nor user addresses? */
static bool no_user_part(const struct ut_rec *r)
{
	__u64 i;

	if (!r) {
		ut_diag("no such sample");
		return false;
	}
	for (i = 0; i < r->nr; i++) {
		if (r->ips[i] == (__u64)PERF_CONTEXT_USER ||
		    r->ips[i] == UT_CONTEXT_USER_DEFERRED || !(r->ips[i] >> 63)) {
			ut_diag("word %llu of %llu: %#llx", i, r->nr, r->ips[i]);
			return false;
		}
	}
	return true;
}

/* Samples when the old image is gone, and the new one has not run. */
TEST_F(exec, between_the_images)
{
	static const char * const functions[] = {
		"unshare_files", "flush_thread", "commit_creds",
	};
	unsigned int i;
	int event[5];

	ASSERT_EQ(0, ut_watch(&self->s, &variant->opts, &self->c, ladder_execve, self->sh));
	for (i = 0; i < 3; i++)
		event[i] = ut_add_function(&self->s, functions[i]);
	event[3] = ut_add_tracepoint(&self->s, "sched", "sched_process_exec");
	event[4] = ut_add_tracepoint(&self->s, "syscalls", "sys_exit_execve");
	ASSERT_EQ(7 << 8, ut_profile_child(&self->s, &self->c));
	for (i = 0; i < 5; i++) {
		struct ut_rec *r;
		unsigned int n;

		EXPECT_LE(1, ut_count_samples(&self->s, event[i], self->c.pid));
		for (n = 0; (r = ut_sample(&self->s, event[i], self->c.pid, n)); n++) {
			/* Later samples of this kind are of the new image. */
			if (r->time > ut_sample(&self->s, event[4], self->c.pid, 0)->time)
				break;
			EXPECT_TRUE(no_user_part(r)) TH_LOG("event %u", i);
		}
	}
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* The same after a sample of the old image, whose stack they must not get. */
TEST_F(exec, before_and_between)
{
	struct ut_rec *enter;
	int tp[4], i;

	ASSERT_EQ(0, ut_watch(&self->s, &variant->opts, &self->c, ladder_execve, self->sh));
	tp[0] = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_execve");
	tp[1] = ut_add_function(&self->s, "begin_new_exec");
	tp[2] = ut_add_tracepoint(&self->s, "sched", "sched_process_exec");
	tp[3] = ut_add_tracepoint(&self->s, "syscalls", "sys_exit_execve");
	ASSERT_EQ(7 << 8, ut_profile_child(&self->s, &self->c));
	enter = ut_sample(&self->s, tp[0], self->c.pid, 0);
	EXPECT_TRUE(ut_stack_is(&self->s, enter, &self->sh->st[0]));
	/* This is before the point of no return, so it is the same stack. */
	EXPECT_EQ(enter->cookie, ut_sample(&self->s, tp[1], self->c.pid, 0)->cookie);
	for (i = 2; i < 4; i++)
		EXPECT_TRUE(no_user_part(ut_sample(&self->s, tp[i], self->c.pid, 0)))
			TH_LOG("event %d", i);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* The new image's own samples have its own stacks. */
TEST_F(exec, new_image)
{
	struct ut_rec *r, *comm;
	struct ut_stack got;
	int tp;

	ASSERT_EQ(0, ut_watch(&self->s, &variant->opts, &self->c, ladder_execve, self->sh));
	tp = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid");
	ASSERT_EQ(7 << 8, ut_profile_child(&self->s, &self->c));
	r = ut_sample(&self->s, tp, self->c.pid, 0);
	ASSERT_NE(NULL, r);
	EXPECT_EQ(UT_DEFERRED, ut_user_stack(&self->s, r, &got));
	/* The new image has the same ladder, loaded at another address: */
	/* ut_syscall(), getppid_new(), the rungs, and the two at the bottom */
	EXPECT_EQ(2 + 4 + 2, got.nr);
	ASSERT_LT(0, got.nr);
	EXPECT_EQ(r->ip, got.ip[0]);
	EXPECT_EQ((unsigned long)ut_syscall_ret & 0xfff, got.ip[0] & 0xfff);
	comm = exec_comm(&self->s, self->c.pid);
	ASSERT_NE(NULL, comm);
	EXPECT_GT(r->time, comm->time);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* The exec removes the event. The pending stack is written before. */
TEST_F(exec, remove_on_exec)
{
	struct ut_opts opts = { .per_cpu = variant->opts.per_cpu, .remove_on_exec = true };
	int tp;

	ASSERT_EQ(0, ut_watch(&self->s, &opts, &self->c, ladder_execve, self->sh));
	tp = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_execve");
	ASSERT_EQ(0, ut_start(&self->s, &self->c));
	ASSERT_EQ(7 << 8, ut_wait(&self->c));
	ASSERT_EQ(0, ut_drain(&self->s));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, tp, self->c.pid, 0),
				&self->sh->st[0]));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/*
 * Make a copy of this program that is set-uid to a user who is not root. Its image may
 * not be dumped, so an exec of it removes all events of the task, whoever opened them.
 */
static int set_uid_copy(char *path, size_t size)
{
	int from, to, err = -1;
	char buf[65536];
	ssize_t n;

	snprintf(path, size, "/tmp/unwind_exec.XXXXXX");
	to = mkstemp(path);
	from = open("/proc/self/exe", O_RDONLY);
	if (to < 0 || from < 0)
		goto out;
	while ((n = read(from, buf, sizeof(buf))) > 0) {
		if (ut_write_all(to, buf, n))
			goto out;
	}
	/* In this order, since a change of the owner clears the set-uid bit. */
	if (!n && !fchown(to, NOBODY, NOBODY) && !fchmod(to, 04755))
		err = 0;
out:
	close(from);
	close(to);
	return err;
}

/*
 * An execve() of such an image removes the events in its middle. Pending stacks of the old
 * image are handed out before.
 */
TEST_F(exec, undumpable)
{
	int enter, func;
	long dumpable;

	ASSERT_EQ(0, ut_read_sysctl(SUID_DUMPABLE, &dumpable));
	if (dumpable == 1)
		SKIP(return, SUID_DUMPABLE ": all is");
	ASSERT_EQ(0, set_uid_copy(self->copy, COPY_SIZE)) TH_LOG("%s", strerror(errno));
	snprintf(self->sh->path, PATH_MAX, "%s", self->copy);
	ASSERT_EQ(0, ut_watch(&self->s, &variant->opts, &self->c, ladder_execve, self->sh));
	enter = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_execve");
	/* Sample the removal, or a function in it whose name has the same begin. */
	func = ut_add_function(&self->s, "perf_event_exit_task");
	ASSERT_EQ(0, ut_start(&self->s, &self->c));
	ASSERT_EQ(7 << 8, ut_wait(&self->c));
	ASSERT_EQ(0, ut_drain(&self->s));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, enter, self->c.pid, 0),
				&self->sh->st[0]));
	/* The events do not see the new image. */
	EXPECT_EQ(1, ut_count_samples(&self->s, func, self->c.pid)) TH_LOG("a nosuid mount?");
	EXPECT_TRUE(no_user_part(ut_sample(&self->s, func, self->c.pid, 0)));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/*
 * An NMI at the instructions of the hook at the point of no return: each variant takes every
 * other byte. The stack of the NMI is still handed out, or the sample has no user part.
 */
TEST_F_TIMEOUT(exec, nmi_at_the_point_of_no_return, 300)
{
	unsigned int hits = 0, step;
	__u64 start, end, addr;
	struct ut_rec *r;
	int bp;

	ASSERT_EQ(0, ut_kernel_function("unwind_deferred_exec", &start, &end));
	ASSERT_LT(end - start, 8192);
	step = ut_kernel_checks_itself() ? (end - start) / 50 + 1 : 1;
	for (addr = start + variant->opts.inherit * step; addr < end; addr += 2 * step) {
		ASSERT_EQ(0, ut_watch(&self->s, &variant->opts, &self->c, ladder_execve, self->sh));
		bp = ut_add_instruction(&self->s, addr);
		ASSERT_EQ(7 << 8, ut_profile_child(&self->s, &self->c));
		r = ut_sample(&self->s, bp, self->c.pid, 0);
		if (r) {
			hits++;
			EXPECT_TRUE(r->cookie ? ut_stack_is(&self->s, r, &self->sh->st[0]) :
						no_user_part(r))
				TH_LOG("unwind_deferred_exec+%#llx", addr - start);
		}
		EXPECT_EQ(0, ut_check(&self->s, 0));
		ut_close(&self->s);
	}
	TH_LOG("%u of %llu bytes hit", hits, (end - start) / (2 * step));
	EXPECT_LT(step == 1 ? 10 : 0, hits);
}

static void failing(void *arg)
{
	char text[] = "/tmp/unwind_exec.XXXXXX";
	struct shared *sh = arg;
	int i, fd = mkstemp(text);

	if (fd < 0 || ut_write_all(fd, "no program\n", 11) || fchmod(fd, 0755))
		sh->ret = -1;
	close(fd);
	/*
	 * A file that does not exist; one that is not executable; an argument list that is
	 * too long; and a file that turns out to be no program when it has been read.
	 */
	for (i = 0; i < 4; i++) {
		static char *huge[3] = { "x" };
		const char *path = i == 0 ? "/nonexistent" :
				   i == 1 ? "/proc/self/status" :
				   i == 2 ? sh->path : text;

		if (i == 2) {
			huge[1] = malloc(1 << 20);
			memset(huge[1], 'x', 1 << 20);
			huge[1][(1 << 20) - 1] = 0;
		}
		sh->ret |= ut_syscall3(&sh->st[i], __NR_execve, path, i == 2 ? huge : new_argv,
				       NULL) >= 0;
	}
	unlink(text);
}

static void ladder_failing(void *arg)
{
	ut_ladder(6, failing, arg);
}

/* A failed exec changes nothing: the record is written at the return. */
TEST_F(exec, failed)
{
	struct ut_rec *a, *b;
	int enter, exit, i;

	ASSERT_EQ(0, ut_watch(&self->s, &variant->opts, &self->c, ladder_failing, self->sh));
	enter = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_execve");
	exit = ut_add_tracepoint(&self->s, "syscalls", "sys_exit_execve");
	ASSERT_EQ(0, ut_profile_child(&self->s, &self->c));
	ASSERT_EQ(0, self->sh->ret);
	for (i = 0; i < 4; i++) {
		a = ut_sample(&self->s, enter, self->c.pid, i);
		b = ut_sample(&self->s, exit, self->c.pid, i);
		EXPECT_TRUE(ut_stack_is(&self->s, a, &self->sh->st[i]));
		ASSERT_TRUE(ut_stack_is(&self->s, b, &self->sh->st[i]));
		EXPECT_EQ(a->cookie, b->cookie);
	}
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

struct thread {
	struct shared	*sh;
	int		nr;
};

static void thread_sleep(void *arg)
{
	struct timespec ts = { .tv_sec = 100 };
	struct thread *t = arg;

	ut_syscall2(&t->sh->st[t->nr], __NR_nanosleep, &ts, NULL);
}

static void *sleeper(void *arg)
{
	struct thread *t = arg;

	t->sh->tid[t->nr] = gettid();
	__atomic_add_fetch(&t->sh->ready, 1, __ATOMIC_RELEASE);
	ut_ladder(4, thread_sleep, t);
	return NULL;
}

static void *execer(void *arg)
{
	struct shared *sh = arg;

	sh->tid[0] = gettid();
	ut_ladder(6, call_execve, sh);
	return NULL;
}

static struct thread threads[2];

static void start_sleepers(struct shared *sh, int nr)
{
	pthread_t id;
	int i;

	for (i = 0; i < nr; i++) {
		threads[i] = (struct thread){ .sh = sh, .nr = i + 1 };
		if (pthread_create(&id, NULL, sleeper, &threads[i]))
			_exit(99);
	}
	while (sh->ready < nr)
		usleep(1000);
	for (i = 0; i < nr; i++) {
		if (!ut_wait_asleep(sh->tid[i + 1], &sh->st[i + 1]))
			_exit(98);
	}
}

static void exec_with_threads(void *arg)
{
	start_sleepers(arg, 2);
	ut_ladder(6, call_execve, arg);
}

static void exec_from_thread(void *arg)
{
	pthread_t id;

	start_sleepers(arg, 1);
	if (pthread_create(&id, NULL, execer, arg))
		_exit(99);
	for (;;)
		pause();
}

/* Nothing is left that the exec waits for, and would be switched out. */
static void *execer_alone(void *arg)
{
	while (ut_task_state(getpid()) != 'Z')
		usleep(1000);
	return execer(arg);
}

static void exec_from_last_thread(void *arg)
{
	pthread_t id;

	if (pthread_create(&id, NULL, execer_alone, arg))
		_exit(99);
	syscall(__NR_exit, 0);
}

/* Only inherited events see the other threads. */
static const struct ut_opts all_threads = { .per_cpu = true, .inherit = true, .sideband = true };

FIXTURE(exec_threads) {
	struct ut_session s;
	struct shared *sh;
	struct ut_child c;
};

FIXTURE_SETUP(exec_threads)
{
	self->sh = ut_shared(sizeof(*self->sh));
	ASSERT_NE(NULL, self->sh);
	ASSERT_LT(0, readlink("/proc/self/exe", self->sh->path, PATH_MAX - 1));
}

FIXTURE_TEARDOWN(exec_threads)
{
	ut_write_sysctl(DEFER, 1);
	ut_close(&self->s);
}

/* The threads that the exec kills have pending stacks, too. */
TEST_F(exec_threads, with_other_threads)
{
	int enter, sleep_tp, i;

	ASSERT_EQ(0, ut_watch(&self->s, &all_threads, &self->c, exec_with_threads, self->sh));
	enter = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_execve");
	sleep_tp = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_nanosleep");
	ASSERT_EQ(7 << 8, ut_profile_child(&self->s, &self->c));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, enter, self->c.pid, 0),
				&self->sh->st[0]));
	for (i = 1; i <= 2; i++)
		EXPECT_TRUE(ut_stack_is(&self->s,
					ut_sample(&self->s, sleep_tp, self->sh->tid[i], 0),
					&self->sh->st[i]));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/*
 * Between the two images no sample has a user part, immediate ones neither: where the task
 * is switched out, as it waits for its threads to end, and where nothing is deferred.
 */
TEST_F(exec_threads, immediate_between_the_images)
{
	int begin, switched, end;
	unsigned int i, pass, nr;
	struct ut_rec *r, *from, *to;
	bool waited;

	/* Once more, if the threads had ended before the task could wait for them. */
	for (pass = 0; pass < 2; pass += waited) {
		memset(self->sh->st, 0, sizeof(self->sh->st));
		self->sh->ready = 0;
		ASSERT_EQ(0, ut_watch(&self->s, &all_threads, &self->c, exec_with_threads,
				      self->sh));
		begin = ut_add_function(&self->s, "unwind_deferred_exec");
		switched = ut_add_tracepoint(&self->s, "sched", "sched_switch");
		ASSERT_LE(0, ut_add_function(&self->s, "flush_thread"));
		end = ut_add_tracepoint(&self->s, "syscalls", "sys_exit_execve");
		ASSERT_EQ(0, ut_enable(&self->s));
		ASSERT_EQ(0, ut_write_sysctl(DEFER, !pass));
		ASSERT_EQ(0, ut_go(&self->c));
		ASSERT_EQ(7 << 8, ut_wait(&self->c));
		ASSERT_EQ(0, ut_write_sysctl(DEFER, 1));
		ASSERT_EQ(0, ut_stop(&self->s));
		from = ut_sample(&self->s, begin, self->c.pid, 0);
		to = ut_sample(&self->s, end, self->c.pid, 0);
		ASSERT_NE(NULL, from);
		ASSERT_NE(NULL, to);
		nr = 0;
		waited = false;
		for (i = 0; (r = ut_sample(&self->s, -1, self->c.pid, i)); i++) {
			if (r->time <= from->time || r->time > to->time)
				continue;
			/* It may have been preempted ahead of the function's first step. */
			if (!nr && !no_user_part(r))
				continue;
			EXPECT_TRUE(no_user_part(r)) TH_LOG("pass %u, sample %u", pass, i);
			waited |= r->id == self->s.event[switched].id[r->ring];
			nr++;
		}
		/* Its switches, flush_thread() and the end. */
		ASSERT_LE(2 + waited, nr) TH_LOG("pass %u", pass);
		EXPECT_EQ(0, ut_check(&self->s, 0)) TH_LOG("pass %u", pass);
		ut_close(&self->s);
	}
}

/* A thread that is not the leader takes the leader's tid. Its record has the old tid. */
static bool from_thread(struct ut_session *s, struct ut_child *c, struct shared *sh, ut_fn fn,
			const char *sys, const char *name)
{
	int event;

	if (ut_watch(s, &all_threads, c, fn, sh))
		return false;
	event = ut_add_tracepoint(s, sys, name);
	return ut_profile_child(s, c) == 7 << 8 && c->pid != sh->tid[0] &&
	       ut_stack_is(s, ut_sample(s, event, sh->tid[0], 0), &sh->st[0]) &&
	       !ut_check(s, 0);
}

TEST_F(exec_threads, from_another_thread)
{
	EXPECT_TRUE(from_thread(&self->s, &self->c, self->sh, exec_from_thread, "syscalls",
				"sys_enter_execve"));
}

/* A request at the last moment at which the thread has its own tid. */
TEST_F(exec_threads, from_another_thread_late)
{
	EXPECT_TRUE(from_thread(&self->s, &self->c, self->sh, exec_from_last_thread, "sched",
				"sched_prepare_exec"));
}

static void getppid_new(void *arg)
{
	ut_syscall0(arg, __NR_getppid);
}

int main(int argc, char **argv)
{
	static struct ut_stack st;

	if (argc == 2 && !strcmp(argv[1], NEW_IMAGE)) {
		ut_ladder(4, getppid_new, &st);
		return 7;
	}
	ut_need_root();
	return test_harness_run(argc, argv);
}

// SPDX-License-Identifier: GPL-2.0
/*
 * K15: user stacks with absent pages. On the way to user space the walk faults such a page
 * in, and the task can be killed meanwhile. If the task is switched out for that, it first
 * gets a record that ends at the page, and a complete one when the page is there. In all
 * other places the walk ends at an absent page. No walk waits for a page that user space
 * serves.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

#define PAGE		4096UL
#define PAGES		16

FIXTURE(absent_pages) {
	struct ut_session s;
	struct ut_fuse fuse;
};

FIXTURE_SETUP(absent_pages)
{
}

FIXTURE_TEARDOWN(absent_pages)
{
	ut_close(&self->s);
	if (self->fuse.page)
		ut_fuse_end(&self->fuse);
}

/* Run @fn in a child, and sample each system call @tp of the child. */
static int watch_child(struct ut_session *s, struct ut_child *c, ut_fn fn, void *arg,
		       const char *tp)
{
	struct ut_opts opts = { .switches = true };

	if (ut_watch(s, &opts, c, fn, arg) || ut_add_tracepoint(s, "syscalls", tp) ||
	    ut_enable(s))
		return -1;
	return ut_go(c);
}

/* Wait for ten seconds at most; it should take no time. */
static bool wait_done(int *done, int want)
{
	int i;

	for (i = 0; i < 10000 && UT_READ(*done) != want; i++)
		usleep(1000);
	return UT_READ(*done) == want;
}

/*
 * A page of a device that does not answer: the walk waits for the page, but the sample has
 * a record by then, and the task can be killed.
 */
struct victim {
	unsigned long	fp;
	long		exit;		/* the number of the system call */
	struct ut_fuse	*fuse;
	int	ready, done;
};

static void unserved(void *arg)
{
	struct victim *v = arg;

	/* A preemption ahead of the walk would hand out the short stack for good. */
	if (ut_fifo())
		_exit(99);
	v->ready = 1;
	ut_syscall_on(v->fp, v->fp, __NR_getppid, 0, 0, 0);
	v->done = 1;
	for (;;)
		pause();
}

TEST_F(absent_pages, page_never_served)
{
	struct victim *v = ut_shared(sizeof(*v));
	struct ut_stack got;
	struct ut_child c;

	ASSERT_NE(NULL, v);
	ASSERT_EQ(0, ut_device_page(&self->fuse));
	v->fp = (unsigned long)self->fuse.page;
	ASSERT_EQ(0, watch_child(&self->s, &c, unserved, v, "sys_enter_getppid"));
	/* The task hangs in the fault. The stack up to the page has been written. */
	ASSERT_TRUE(ut_wait_state(c.pid, "D"));
	ASSERT_EQ(1, v->ready);
	EXPECT_EQ(0, v->done);
	ASSERT_EQ(0, ut_drain(&self->s));
	ASSERT_EQ(UT_DEFERRED, ut_user_stack(&self->s, ut_sample(&self->s, 0, c.pid, 0), &got));
	EXPECT_EQ(1, got.nr);
	EXPECT_EQ((unsigned long)ut_syscall_on_ret, got.ip[0]);
	EXPECT_EQ(0, ut_check(&self->s, UT_ALLOW_AGAIN));
	/* Neither disabling the events nor reading the buffers waits for the task. */
	ASSERT_EQ(0, ut_disable(&self->s));
	ASSERT_EQ(0, kill(c.pid, SIGKILL));
	ASSERT_EQ(SIGKILL, ut_wait(&c));
	ASSERT_EQ(0, ut_drain(&self->s));
	EXPECT_EQ(0, ut_check(&self->s, UT_ALLOW_AGAIN));
}

/*
 * A thread serves a page by userfaultfd, and its own frame pointer points into the page.
 * The walk must not fault the page in: the thread would wait for itself.
 */
static void serves_itself(void *arg)
{
	struct victim *v = arg;

	v->ready = ut_userfault((void *)v->fp);
	if (v->ready < 0)
		return;
	ut_syscall_on(v->fp, v->fp, __NR_getppid, 0, 0, 0);
	v->done = 1;
	for (;;)
		pause();
}

TEST_F(absent_pages, page_of_its_own_to_serve)
{
	struct victim *v = ut_shared(sizeof(*v));
	struct ut_stack got;
	struct ut_child c;

	ASSERT_NE(NULL, v);
	v->fp = (unsigned long)mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_EQ(0, watch_child(&self->s, &c, serves_itself, v, "sys_enter_getppid"));
	/* The child is in pause() now. With a fault it would wait for the page. */
	while (!UT_READ(v->ready))
		usleep(1000);
	ASSERT_LE(0, v->ready) TH_LOG("userfaultfd: %s", strerror(-v->ready));
	ASSERT_TRUE(ut_wait_state(c.pid, "DS"));
	EXPECT_EQ(1, v->done);
	ut_disable(&self->s);
	ASSERT_EQ(0, kill(c.pid, SIGKILL));
	ASSERT_EQ(SIGKILL, ut_wait(&c));
	ASSERT_EQ(0, ut_drain(&self->s));
	ASSERT_EQ(UT_DEFERRED, ut_user_stack(&self->s, ut_sample(&self->s, 0, c.pid, 0), &got));
	EXPECT_EQ(1, got.nr);
	EXPECT_EQ((unsigned long)ut_syscall_on_ret, got.ip[0]);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/*
 * The walk does not wait for a page of FUSE, either. Often no signal can end such a wait:
 * if the file system has no FUSE_ASYNC_READ, or if there is no readahead. The record has
 * the frames up to the page.
 */
static void beside_fuse(void *arg)
{
	struct victim *v = arg;

	ut_syscall_on(v->fp, v->fp, __NR_getppid, 0, 0, 0);
	__atomic_store_n(&v->done, 1, __ATOMIC_RELEASE);
	for (;;)
		pause();
}

FIXTURE(dead_fuse) {
	struct ut_session s;
	struct ut_fuse fuse;
	struct victim *v;
	struct ut_child c;
};

FIXTURE_VARIANT(dead_fuse) {
	bool sync;
	int advice;
};

FIXTURE_VARIANT_ADD(dead_fuse, async) {
	.advice = MADV_NORMAL,
};

FIXTURE_VARIANT_ADD(dead_fuse, sync) {
	.sync = true, .advice = MADV_NORMAL,
};

FIXTURE_VARIANT_ADD(dead_fuse, random) {
	.advice = MADV_RANDOM,
};

FIXTURE_SETUP(dead_fuse)
{
	self->v = ut_shared(sizeof(*self->v));
	ASSERT_NE(NULL, self->v);
	ASSERT_EQ(0, ut_fuse_page(&self->fuse, variant->sync));
	ASSERT_EQ(0, madvise(self->fuse.page, PAGE, variant->advice));
}

FIXTURE_TEARDOWN(dead_fuse)
{
	/* When the server is gone, tasks that wait for it continue. */
	ut_fuse_end(&self->fuse);
	ut_end_child(&self->c);
	ut_close(&self->s);
}

TEST_F(dead_fuse, page)
{
	char *page = self->fuse.page;
	unsigned long *frame;
	struct ut_stack got;

	/* The page's frame must lie above this frame. */
	frame = mmap(page - PAGES * PAGE, PAGE, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_LT((void *)frame, (void *)page);
	frame[0] = (unsigned long)page;
	frame[1] = 0x400100;
	self->v->fp = (unsigned long)frame;
	ASSERT_EQ(0, watch_child(&self->s, &self->c, beside_fuse, self->v, "sys_enter_getppid"));
	EXPECT_TRUE(wait_done(&self->v->done, 1));
	ASSERT_EQ(0, ut_stop(&self->s));
	ASSERT_EQ(UT_DEFERRED,
		  ut_user_stack(&self->s, ut_sample(&self->s, 0, self->c.pid, 0), &got));
	ASSERT_EQ(2, got.nr);
	EXPECT_EQ((unsigned long)ut_syscall_on_ret, got.ip[0]);
	EXPECT_EQ(frame[1], got.ip[1]);
	/* The task may be preempted while it waits. */
	EXPECT_EQ(0, ut_check(&self->s, UT_ALLOW_AGAIN));
}

/*
 * The frame pointer of a FUSE server points into a page of its own file. The walk must not
 * fault the page in: the server would wait for itself. When another thread has faulted the
 * page in, the walk reads it.
 */
struct self_served {
	struct ut_fuse	fuse;		/* must be the first member, see between() */
	void		*page;
	int		err, ready, done;
};

static void between(struct ut_fuse *f)
{
	struct self_served *v = (void *)f;

	if (UT_READ(v->ready) == v->done)
		return;
	ut_syscall_on((unsigned long)v->page, (unsigned long)v->page, __NR_getppid, 0, 0, 0);
	__atomic_store_n(&v->done, v->done + 1, __ATOMIC_RELEASE);
}

static void *map_and_read(void *arg)
{
	struct self_served *v = arg;
	char value[8];

	v->page = ut_fuse_map(&v->fuse, PROT_READ, MAP_PRIVATE);
	if (v->page == MAP_FAILED) {
		__atomic_store_n(&v->err, 1, __ATOMIC_RELEASE);
		return NULL;
	}
	__atomic_store_n(&v->ready, 1, __ATOMIC_RELEASE);
	/* The server looks at ready before each request, so make a request. */
	getxattr(v->fuse.path, "user.first", value, sizeof(value));
	while (UT_READ(v->done) < 1)
		usleep(1000);
	UT_READ(*(char *)v->page);
	__atomic_store_n(&v->ready, 2, __ATOMIC_RELEASE);
	getxattr(v->fuse.path, "user.second", value, sizeof(value));
	return NULL;
}

static void serves_its_file(void *arg)
{
	struct self_served *v = arg;
	int fd = ut_fuse_mount(&v->fuse);
	pthread_t id;

	if (fd < 0 || pthread_create(&id, NULL, map_and_read, v))
		__atomic_store_n(&v->err, 1, __ATOMIC_RELEASE);
	else
		ut_fuse_serve(fd, &v->fuse);
}

TEST_F(absent_pages, page_of_its_own_file)
{
	struct self_served *v = ut_shared(sizeof(*v));
	struct ut_stack got;
	struct ut_child c;

	ASSERT_NE(NULL, v);
	v->fuse = (struct ut_fuse){ .direct = -1, .before = between };
	ASSERT_EQ(0, watch_child(&self->s, &c, serves_its_file, v, "sys_enter_getppid"));
	EXPECT_TRUE(wait_done(&v->done, 2));
	EXPECT_EQ(0, UT_READ(v->err));
	ut_disable(&self->s);
	kill(c.pid, SIGKILL);
	EXPECT_EQ(SIGKILL, ut_wait_gone(&c));
	ut_fuse_end(&v->fuse);
	ASSERT_EQ(0, ut_drain(&self->s));
	ASSERT_EQ(UT_DEFERRED, ut_user_stack(&self->s, ut_sample(&self->s, 0, c.pid, 0), &got));
	EXPECT_EQ(1, got.nr);
	EXPECT_EQ((unsigned long)ut_syscall_on_ret, got.ip[0]);
	ASSERT_EQ(UT_DEFERRED, ut_user_stack(&self->s, ut_sample(&self->s, 0, c.pid, 1), &got));
	ASSERT_EQ(2, got.nr);
	EXPECT_EQ(UT_FUSE_RET, got.ip[1]);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/*
 * A return address of 0, as it often occurs in code without frame pointers. The page is
 * there, so the walk must not take the lock of the memory map, which another thread holds.
 */
static void *lock_map(void *arg)
{
	ut_fuse_lock(arg);
	return NULL;
}

static void beside_the_lock(void *arg)
{
	struct victim *v = arg;
	pthread_t thread;

	((unsigned long *)v->fp)[1] = 0;
	/* After the first call all pages that are needed are mapped. */
	ut_syscall_on(v->fp, v->fp, __NR_getppid, 0, 0, 0);
	v->ready = 1;
	if (pthread_create(&thread, NULL, lock_map, v->fuse))
		return;
	while (!UT_READ(*v->fuse->locked))
		usleep(1000);
	ut_syscall_on(v->fp, v->fp, __NR_getppid, 0, 0, 0);
	v->done = 1;
	for (;;)
		pause();
}

TEST_F(absent_pages, zero_beside_a_locked_map)
{
	struct victim *v = ut_shared(sizeof(*v));
	struct ut_stack got;
	struct ut_child c;

	ASSERT_NE(NULL, v);
	ASSERT_EQ(0, ut_fuse_slow_page(&self->fuse, -1));
	v->fp = (unsigned long)mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	v->fuse = &self->fuse;
	ASSERT_EQ(0, watch_child(&self->s, &c, beside_the_lock, v, "sys_enter_getppid"));
	EXPECT_TRUE(wait_done(&v->done, 1));
	EXPECT_EQ(1, UT_READ(*self->fuse.locked));
	ut_disable(&self->s);
	ASSERT_EQ(0, kill(c.pid, SIGKILL));
	ut_fuse_end(&self->fuse);
	memset(&self->fuse, 0, sizeof(self->fuse));
	ASSERT_EQ(SIGKILL, ut_wait(&c));
	ASSERT_EQ(0, ut_drain(&self->s));
	ASSERT_EQ(UT_DEFERRED, ut_user_stack(&self->s, ut_sample(&self->s, 0, c.pid, 1), &got));
	EXPECT_EQ(1, got.nr);
	EXPECT_EQ((unsigned long)ut_syscall_on_ret, got.ip[0]);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* Like page_never_served, but the task is killed with the events enabled. */
TEST_F(absent_pages, killed_in_the_walk)
{
	struct victim *v = ut_shared(sizeof(*v));
	struct ut_stack got;
	struct ut_child c;
	struct ut_rec *r;

	ASSERT_NE(NULL, v);
	ASSERT_EQ(0, ut_device_page(&self->fuse));
	v->fp = (unsigned long)self->fuse.page;
	ASSERT_EQ(0, watch_child(&self->s, &c, unserved, v, "sys_enter_getppid"));
	ASSERT_TRUE(ut_wait_state(c.pid, "D"));
	ASSERT_EQ(1, v->ready);
	ASSERT_EQ(0, kill(c.pid, SIGKILL));
	ASSERT_EQ(SIGKILL, ut_wait_gone(&c));
	ASSERT_EQ(0, ut_stop(&self->s));
	r = ut_sample(&self->s, 0, c.pid, 0);
	ASSERT_NE(NULL, r);
	EXPECT_EQ(UT_DEFERRED, ut_user_stack(&self->s, r, &got));
	EXPECT_EQ(1, got.nr);
	EXPECT_EQ((unsigned long)ut_syscall_on_ret, got.ip[0]);
	EXPECT_EQ(0, ut_check(&self->s, UT_ALLOW_AGAIN));
}

/* The walk at an exit faults no page in, whether or not the page could be read. */
static void exit_on(void *arg)
{
	struct victim *v = arg;

	ut_syscall_on(v->fp, v->fp, v->exit, 0, 0, 0);
}

TEST_F(absent_pages, exit_brings_none)
{
	static const struct {
		long		nr;
		const char	*tp;
	} exits[] = {
		{ __NR_exit, "sys_enter_exit" },
		{ __NR_exit_group, "sys_enter_exit_group" },
	};
	unsigned long frame[2] = { 0, 0x400100 };
	struct victim v = {};
	unsigned int n;
	int fd;

	fd = memfd_create("stack", 0);
	ASSERT_EQ(0, ftruncate(fd, PAGE));
	ASSERT_EQ(sizeof(frame), pwrite(fd, frame, sizeof(frame), 0));
	for (n = 0; n < 2 * ARRAY_SIZE(exits); n++) {
		bool served = n / ARRAY_SIZE(exits);
		struct ut_stack got;
		struct ut_child c;

		/* The page is in the file, but not in the page table. */
		if (served) {
			v.fp = (unsigned long)mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED,
						   fd, 0);
		} else {
			ASSERT_EQ(0, ut_device_page(&self->fuse));
			v.fp = (unsigned long)self->fuse.page;
		}
		v.exit = exits[n % 2].nr;
		ASSERT_EQ(0, watch_child(&self->s, &c, exit_on, &v, exits[n % 2].tp));
		EXPECT_EQ(0, ut_wait_gone(&c));
		ASSERT_EQ(0, ut_stop(&self->s));
		ASSERT_EQ(UT_DEFERRED,
			  ut_user_stack(&self->s, ut_sample(&self->s, 0, c.pid, 0), &got));
		EXPECT_EQ(1, got.nr) TH_LOG("%s", exits[n % 2].tp);
		EXPECT_EQ((unsigned long)ut_syscall_on_ret, got.ip[0]);
		EXPECT_EQ(0, ut_check(&self->s, 0));
		ut_close(&self->s);
		if (!served)
			ut_fuse_end(&self->fuse);
	}
	self->fuse.page = NULL;
}

/*
 * If nothing could end the wait for a page that is never served, the walk does not wait:
 * the task has already taken the signal that kills it, or it holds locks of an execve()
 * that other tasks wait for.
 */
#define NEW_IMAGE	"--new-image"

static char *new_argv[] = { "new", NEW_IMAGE, NULL };

static void in_thread(struct victim *v, long nr)
{
	v->done = gettid();
	v->ready = 1;
	ut_syscall_on(v->fp, v->fp, nr, 0, 0, 0);
}

static void *pause_in_thread(void *arg)
{
	in_thread(arg, __NR_pause);
	return NULL;
}

static void *exit_in_thread(void *arg)
{
	in_thread(arg, __NR_exit);
	return NULL;
}

static void killed_asleep(void *arg)
{
	pause_in_thread(arg);
}

static void killed_by_exec(void *arg)
{
	struct victim *v = arg;
	pthread_t id;

	if (pthread_create(&id, NULL, pause_in_thread, v))
		_exit(99);
	while (!UT_READ(v->ready))
		usleep(1000);
	if (!ut_wait_state(v->done, "S"))
		_exit(98);
	execve("/proc/self/exe", new_argv, NULL);
}

static void thread_exits(void *arg)
{
	struct victim *v = arg;
	pthread_t id;

	if (pthread_create(&id, NULL, exit_in_thread, v) || pthread_join(id, NULL))
		_exit(99);
}

static void in_the_exec(void *arg)
{
	struct victim *v = arg;

	ut_syscall_on(v->fp, v->fp, __NR_execve, (long)"/proc/self/exe", (long)new_argv, 0);
}

FIXTURE(no_wait) {
	struct ut_session s;
	struct ut_fuse fuse;
	struct victim *v;
	struct ut_child c;
};

FIXTURE_VARIANT(no_wait) {
	ut_fn fn;
	const char *func;		/* the sampled function; NULL: signal_deliver */
	int kill, status;
};

FIXTURE_VARIANT_ADD(no_wait, killed_asleep) {
	.fn = killed_asleep, .kill = SIGKILL, .status = SIGKILL,
};

FIXTURE_VARIANT_ADD(no_wait, killed_by_exec) {
	.fn = killed_by_exec, .status = 7 << 8,
};

/* Sampled in exit_signals(), after which no signal ends a wait of the thread. */
FIXTURE_VARIANT_ADD(no_wait, thread_exits) {
	.fn = thread_exits, .func = "exit_signals",
};

FIXTURE_VARIANT_ADD(no_wait, in_the_exec) {
	.fn = in_the_exec, .func = "begin_new_exec", .status = 7 << 8,
};

FIXTURE_SETUP(no_wait)
{
	self->v = ut_shared(sizeof(*self->v));
	ASSERT_NE(NULL, self->v);
	ASSERT_EQ(0, ut_device_page(&self->fuse));
	self->v->fp = (unsigned long)self->fuse.page;
	ASSERT_EQ(0, ut_fork(&self->c, variant->fn, self->v));
}

FIXTURE_TEARDOWN(no_wait)
{
	kill(self->c.pid, SIGKILL);
	ut_close(&self->s);
	ut_fuse_end(&self->fuse);
}

TEST_F(no_wait, page_never_served)
{
	struct ut_opts opts = { .pid = self->c.pid, .per_cpu = true, .inherit = true };
	struct ut_stack got;
	enum ut_kind kind;
	struct ut_rec *r;

	ASSERT_EQ(0, ut_open(&self->s, &opts));
	ASSERT_LE(0, variant->func ? ut_add_function(&self->s, variant->func) :
		     ut_add_tracepoint(&self->s, "signal", "signal_deliver"));
	ASSERT_EQ(0, ut_start(&self->s, &self->c));
	if (variant->kill) {
		while (!UT_READ(self->v->ready))
			usleep(1000);
		ASSERT_TRUE(ut_wait_state(self->c.pid, "S"));
		ASSERT_EQ(0, kill(self->c.pid, variant->kill));
	}
	ASSERT_EQ(variant->status, ut_wait_gone(&self->c));
	ASSERT_EQ(0, ut_stop(&self->s));
	r = ut_sample(&self->s, 0, self->v->done ?: self->c.pid, 0);
	ASSERT_NE(NULL, r);
	kind = ut_user_stack(&self->s, r, &got);
	EXPECT_TRUE(kind == UT_DEFERRED || kind == UT_IMMEDIATE);
	EXPECT_EQ(1, got.nr);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], NEW_IMAGE))
		return 7;
	ut_need_root();
	return test_harness_run(argc, argv);
}

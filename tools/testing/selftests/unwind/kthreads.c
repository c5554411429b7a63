// SPDX-License-Identifier: GPL-2.0
/*
 * K25: kernel threads have no user stack, and their samples must not show one. This holds
 * for threads without user memory, and for threads that use the memory of a process. They
 * are sampled in the switch, where no stack is deferred, and before it, where user stacks
 * are deferred.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

FIXTURE(kthreads) {
	struct ut_session s;
};

FIXTURE_SETUP(kthreads)
{
	static const struct ut_opts opts = { .pid = -1, .per_cpu = true, .pages = 512 };
	__u64 start, end;

	ASSERT_EQ(0, ut_open(&self->s, &opts));
	ASSERT_EQ(0, ut_add_tracepoint(&self->s, "sched", "sched_switch"));
	ASSERT_EQ(0, ut_kernel_function("schedule", &start, &end));
	ASSERT_EQ(1, ut_add_instruction(&self->s, start));
}

FIXTURE_TEARDOWN(kthreads)
{
	ut_close(&self->s);
}

/* The number of samples of this task, or -1 if one of them has a user part. */
static int without_user_stack(struct ut_session *s, pid_t tid)
{
	struct ut_stack got;
	struct ut_rec *r;
	int i, nr = 0;
	__u64 k;

	for (i = 0; (r = ut_sample(s, -1, tid, i)); i++) {
		nr += r->id == s->event[1].id[r->ring];
		if (ut_user_stack(s, r, &got) != UT_NO_STACK) {
			ut_diag("tid %d: %u user frames, cookie %llx", tid, got.nr, r->cookie);
			return -1;
		}
		for (k = 0; k < r->nr; k++) {
			if (r->ips[k] == UT_CONTEXT_USER_DEFERRED ||
			    r->ips[k] == (__u64)PERF_CONTEXT_USER) {
				ut_diag("tid %d: a user context", tid);
				return -1;
			}
		}
	}
	return ut_count(s, UT_RECORD_CALLCHAIN_DEFERRED, tid) ? -1 : nr;
}

static bool is_kthread(pid_t tid)
{
	char path[64], c;
	int fd, n;

	snprintf(path, sizeof(path), "/proc/%d/cmdline", tid);
	fd = open(path, O_RDONLY);
	if (fd < 0)
		return false;
	n = read(fd, &c, 1);
	close(fd);
	return !n && ut_task_state(tid) != 'Z';
}

TEST_F(kthreads, threads_of_the_kernel)
{
	int nr = 0, n;
	struct dirent *d;
	DIR *dir;

	ASSERT_EQ(0, ut_enable(&self->s));
	sync();
	usleep(500000);
	ASSERT_EQ(0, ut_stop(&self->s));
	dir = opendir("/proc");
	ASSERT_NE(NULL, dir);
	while ((d = readdir(dir))) {
		pid_t tid = atoi(d->d_name);

		if (tid <= 0 || !is_kthread(tid))
			continue;
		n = without_user_stack(&self->s, tid);
		EXPECT_LE(0, n) TH_LOG("kernel thread %d", tid);
		nr += n;
	}
	closedir(dir);
	EXPECT_LT(0, nr);
	EXPECT_EQ(0, ut_check(&self->s, ut_allow_lost(&self->s)));
}

struct ring {
	int			fd;
	struct io_uring_params	p;
	char			*sq, *cq;
	struct io_uring_sqe	*sqes;
};

static int ring_setup(struct ring *r, unsigned int flags)
{
	memset(r, 0, sizeof(*r));
	r->p.flags = flags;
	r->p.sq_thread_idle = 10;
	r->fd = syscall(__NR_io_uring_setup, 8, &r->p);
	if (r->fd < 0)
		return -1;
	r->sq = mmap(NULL, r->p.sq_off.array + r->p.sq_entries * 4, PROT_READ | PROT_WRITE,
		     MAP_SHARED, r->fd, IORING_OFF_SQ_RING);
	r->cq = mmap(NULL, r->p.cq_off.cqes + r->p.cq_entries * sizeof(struct io_uring_cqe),
		     PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, IORING_OFF_CQ_RING);
	r->sqes = mmap(NULL, r->p.sq_entries * sizeof(*r->sqes), PROT_READ | PROT_WRITE,
		       MAP_SHARED, r->fd, IORING_OFF_SQES);
	return r->sq == MAP_FAILED || r->cq == MAP_FAILED || r->sqes == MAP_FAILED ? -1 : 0;
}

static void ring_read(struct ring *r, int fd, void *buf, unsigned int flags)
{
	unsigned int *tail = (unsigned int *)(r->sq + r->p.sq_off.tail);
	unsigned int *mask = (unsigned int *)(r->sq + r->p.sq_off.ring_mask);
	unsigned int *array = (unsigned int *)(r->sq + r->p.sq_off.array);
	unsigned int idx = *tail & *mask;

	memset(&r->sqes[idx], 0, sizeof(r->sqes[idx]));
	r->sqes[idx].opcode = IORING_OP_READ;
	r->sqes[idx].fd = fd;
	r->sqes[idx].addr = (unsigned long)buf;
	r->sqes[idx].len = 1;
	r->sqes[idx].flags = flags;
	array[idx] = idx;
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
}

static bool completed(struct ring *r, unsigned int nr)
{
	unsigned int *tail = (unsigned int *)(r->cq + r->p.cq_off.tail);
	int i;

	for (i = 0; i < 1000; i++) {
		if (__atomic_load_n(tail, __ATOMIC_ACQUIRE) >= nr)
			return true;
		usleep(5000);
	}
	return false;
}

TEST_F(kthreads, io_uring_worker)
{
	struct ring r;
	int fds[2], n;
	pid_t worker;
	char byte;

	ASSERT_EQ(0, ring_setup(&r, 0)) TH_LOG("CONFIG_IO_URING? %s", strerror(errno));
	ASSERT_EQ(0, pipe(fds));
	ASSERT_EQ(0, ut_enable(&self->s));
	ring_read(&r, fds[0], &byte, IOSQE_ASYNC);
	ASSERT_EQ(1, syscall(__NR_io_uring_enter, r.fd, 1, 0, 0, NULL, 0));
	worker = ut_thread_named("iou-wrk");
	ASSERT_NE(0, worker);
	ASSERT_TRUE(ut_wait_state(worker, "S"));
	ASSERT_EQ(1, write(fds[1], "x", 1));
	ASSERT_TRUE(completed(&r, 1));
	usleep(100000);
	ASSERT_EQ(0, ut_stop(&self->s));
	n = without_user_stack(&self->s, worker);
	EXPECT_LT(0, n);
	EXPECT_EQ(0, ut_check(&self->s, ut_allow_lost(&self->s)));
}

TEST_F(kthreads, io_uring_sqpoll)
{
	struct ring r;
	int fds[2], n;
	pid_t poller;
	char byte;

	ASSERT_EQ(0, pipe(fds));
	ASSERT_EQ(0, ut_enable(&self->s));
	ASSERT_EQ(0, ring_setup(&r, IORING_SETUP_SQPOLL)) TH_LOG("%s", strerror(errno));
	poller = ut_thread_named("iou-sqp");
	ASSERT_NE(0, poller);
	ASSERT_EQ(1, write(fds[1], "x", 1));
	ring_read(&r, fds[0], &byte, 0);
	/* Wake the poller, if it sleeps already. */
	syscall(__NR_io_uring_enter, r.fd, 1, 0, IORING_ENTER_SQ_WAKEUP, NULL, 0);
	ASSERT_TRUE(completed(&r, 1));
	/* It polls some time before it sleeps. */
	ASSERT_TRUE(ut_wait_state(poller, "S"));
	ASSERT_EQ(0, ut_stop(&self->s));
	n = without_user_stack(&self->s, poller);
	EXPECT_LT(0, n);
	EXPECT_EQ(0, ut_check(&self->s, ut_allow_lost(&self->s)));
}

int main(int argc, char **argv)
{
	ut_need_root();
	return test_harness_run(argc, argv);
}

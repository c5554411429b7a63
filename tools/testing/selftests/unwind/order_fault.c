// SPDX-License-Identifier: GPL-2.0
/*
 * K11, K15: a page of the stack is absent, and the task is switched out while the walk on
 * the way to user space faults the page in. The record of the frames up to the page is
 * written before the task leaves its CPU. The complete record follows when the page is
 * there, with the same cookie.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

/* The return addresses of the frame that is there, and of the frame on the absent page. */
#define THERE	0x400100
#define ABSENT	0x400200

struct task {
	unsigned long	*frame;
	int		cpu;
	int		done;
};

FIXTURE(fault) {
	struct ut_session s;
	struct ut_fuse *fuse;
	struct task *task;
	struct ut_child c;
	struct ut_rec *sample;
	int cpus[UT_MAX_CPUS];
	unsigned int nr_cpus;
	int enter, faults;
};

FIXTURE_VARIANT(fault) {
	bool per_cpu, all;
};

FIXTURE_VARIANT_ADD(fault, task) {
	.per_cpu = false,
};

FIXTURE_VARIANT_ADD(fault, task_per_cpu) {
	.per_cpu = true,
};

FIXTURE_VARIANT_ADD(fault, all_tasks) {
	.per_cpu = true, .all = true,
};

static void call(void *arg)
{
	struct task *t = arg;
	unsigned long fp = (unsigned long)t->frame;

	/* A preemption between the sample and its walk would hand out the short stack for good. */
	if (ut_pin(0, t->cpu) || ut_fifo())
		return;
	ut_syscall_on(fp, fp, __NR_getppid, 0, 0, 0);
	__atomic_store_n(&t->done, 1, __ATOMIC_RELEASE);
	for (;;)
		pause();
}

/* The sample at the entry, if its task has left the CPU since; NULL: not yet. */
static struct ut_rec *sample_left(struct ut_session *s, int event, pid_t pid)
{
	struct ut_rec *sample = ut_sample(s, event, pid, 0), *r;
	size_t i;

	for (i = 0; sample && i < s->nr_recs; i++) {
		r = &s->rec[i];
		if ((r->type == PERF_RECORD_SWITCH || r->type == PERF_RECORD_SWITCH_CPU_WIDE) &&
		    (r->misc & PERF_RECORD_MISC_SWITCH_OUT) && r->tid == pid &&
		    r->ring == sample->ring && r->seq > sample->seq)
			return sample;
	}
	return NULL;
}

/* Bring the task into the fault of its walk. */
FIXTURE_SETUP(fault)
{
	struct ut_opts opts = {
		.pid = variant->all ? -1 : 0, .per_cpu = variant->per_cpu, .sideband = true,
	};
	size_t size = sysconf(_SC_PAGESIZE);
	void *mem;

	self->nr_cpus = ut_online_cpus(self->cpus, UT_MAX_CPUS);
	self->task = ut_shared(sizeof(*self->task));
	self->fuse = ut_shared(sizeof(*self->fuse));
	ASSERT_NE(NULL, self->task);
	ASSERT_NE(NULL, self->fuse);
	ASSERT_EQ(0, ut_device_page(self->fuse));
	self->fuse->frame = ABSENT;
	/* The page's frame must lie above this frame. */
	mem = mmap((char *)self->fuse->page - 16 * size, size, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_LT(mem, self->fuse->page);
	self->task->frame = mem;
	self->task->frame[0] = (unsigned long)self->fuse->page;
	self->task->frame[1] = THERE;
	self->task->cpu = self->cpus[0];

	ASSERT_EQ(0, ut_watch(&self->s, &opts, &self->c, call, self->task));
	self->enter = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid");
	self->faults = ut_add_software(&self->s, PERF_COUNT_SW_PAGE_FAULTS, 1);
	ASSERT_EQ(0, ut_start(&self->s, &self->c));
	do {
		ASSERT_EQ(0, ut_drain(&self->s));
		self->sample = sample_left(&self->s, self->enter, self->c.pid);
	} while (!self->sample);
	ASSERT_TRUE(ut_wait_state(self->c.pid, "D"));
}

FIXTURE_TEARDOWN(fault)
{
	ut_end_child(&self->c);
	ut_fuse_end(self->fuse);
	ut_close(&self->s);
}

/* Serve the page, and wait until the task has returned. */
static void serve(struct ut_fuse *fuse, struct task *task)
{
	char value[8];

	getxattr(fuse->path, "user.answer", value, sizeof(value));
	while (!UT_READ(task->done))
		usleep(1000);
}

static const struct ut_stack *expected(bool whole)
{
	static struct ut_stack st;

	st.nr = 2 + whole;
	st.ip[0] = (unsigned long)ut_syscall_on_ret;
	st.ip[1] = THERE;
	st.ip[2] = ABSENT;
	return &st;
}

/* Count the records of this cookie with @nr frames. */
static unsigned int count_records(struct ut_session *s, __u32 tid, __u64 cookie, unsigned int nr)
{
	unsigned int count = 0;
	size_t i;

	for (i = 0; i < s->nr_recs; i++)
		count += s->rec[i].type == UT_RECORD_CALLCHAIN_DEFERRED &&
			 s->rec[i].tid == tid && s->rec[i].cookie == cookie &&
			 s->rec[i].nr == nr;
	return count;
}

/* The complete record follows the short one, and is for all samples up to it. */
TEST_F(fault, brought)
{
	struct ut_rec *r, *in_fault = NULL;
	__u64 cookie = self->sample->cookie;
	unsigned int i;

	EXPECT_TRUE(ut_stack_is(&self->s, self->sample, expected(false)));
	EXPECT_EQ('D', ut_task_state(self->c.pid));
	serve(self->fuse, self->task);
	ASSERT_EQ(0, ut_stop(&self->s));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, self->enter, self->c.pid, 0),
				expected(true)));
	EXPECT_LE(1, count_records(&self->s, self->c.pid, cookie, 2));
	EXPECT_EQ(1, count_records(&self->s, self->c.pid, cookie, 3));
	/* The fault is sampled, too, and belongs to the same entry. */
	for (i = 0; (r = ut_sample(&self->s, self->faults, self->c.pid, i)); i++) {
		if (r->cookie == cookie)
			in_fault = r;
	}
	EXPECT_TRUE(ut_stack_is(&self->s, in_fault, expected(true)));
	EXPECT_EQ(0, ut_check(&self->s, UT_ALLOW_AGAIN));
}

/* The task moves to another CPU, and the complete record is written there. */
TEST_F(fault, brought_elsewhere)
{
	struct ut_rec *r;

	if (self->nr_cpus < 2)
		SKIP(return, "needs two CPUs");
	EXPECT_EQ(self->cpus[0], self->sample->cpu);
	ASSERT_EQ(0, ut_pin(self->c.pid, self->cpus[1]));
	serve(self->fuse, self->task);
	ASSERT_EQ(0, ut_stop(&self->s));
	r = ut_sample(&self->s, self->enter, self->c.pid, 0);
	EXPECT_TRUE(ut_stack_is(&self->s, r, expected(true)));
	r = ut_record_of(&self->s, self->c.pid, r->cookie);
	EXPECT_EQ(self->cpus[1], r->cpu);
	if (variant->per_cpu)
		EXPECT_EQ(self->cpus[1], self->s.ring[r->ring].cpu);
	EXPECT_EQ(0, ut_check(&self->s, UT_ALLOW_AGAIN));
}

/* The session is disabled meanwhile: the sample has only the short record. */
TEST_F(fault, disabled_meanwhile)
{
	__u64 cookie = self->sample->cookie;

	ASSERT_EQ(0, ut_disable(&self->s));
	serve(self->fuse, self->task);
	ASSERT_EQ(0, ut_drain(&self->s));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, self->enter, self->c.pid, 0),
				expected(false)));
	EXPECT_EQ(0, count_records(&self->s, self->c.pid, cookie, 3));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* The session is disabled and enabled again: the walk still belongs to it. */
TEST_F(fault, enabled_again)
{
	__u64 cookie = self->sample->cookie;

	ASSERT_EQ(0, ut_disable(&self->s));
	ASSERT_EQ(0, ut_enable(&self->s));
	serve(self->fuse, self->task);
	ASSERT_EQ(0, ut_stop(&self->s));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, self->enter, self->c.pid, 0),
				expected(true)));
	EXPECT_EQ(1, count_records(&self->s, self->c.pid, cookie, 3));
	EXPECT_EQ(0, ut_check(&self->s, UT_ALLOW_AGAIN));
}

/* The session is closed meanwhile, and another session gets its slot. */
TEST_F(fault, closed_meanwhile)
{
	struct ut_opts opts = { .pid = self->c.pid, .sideband = true };

	ut_close(&self->s);
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	ASSERT_EQ(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_pause"));
	ASSERT_EQ(0, ut_enable(&self->s));
	serve(self->fuse, self->task);
	ASSERT_TRUE(ut_wait_state(self->c.pid, "S"));
	ASSERT_EQ(0, ut_stop(&self->s));
	EXPECT_EQ(1, ut_count_samples(&self->s, 0, self->c.pid));
	/* It may get a record with a cookie of the old session. */
	EXPECT_EQ(0, ut_check(&self->s, UT_ALLOW_FOREIGN));
}

/* The task is killed in the fault: the short record comes before its EXIT. */
TEST_F(fault, killed)
{
	ASSERT_EQ(0, kill(self->c.pid, SIGKILL));
	ASSERT_EQ(SIGKILL, ut_wait(&self->c));
	ASSERT_EQ(0, ut_stop(&self->s));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, self->enter, self->c.pid, 0),
				expected(false)));
	EXPECT_EQ(1, ut_count(&self->s, PERF_RECORD_EXIT, self->c.pid));
	EXPECT_EQ(0, ut_check(&self->s, UT_ALLOW_AGAIN));
}

int main(int argc, char **argv)
{
	ut_need_root();
	return test_harness_run(argc, argv);
}

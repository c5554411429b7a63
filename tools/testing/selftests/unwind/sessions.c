// SPDX-License-Identifier: GPL-2.0
/*
 * K4, K6, K18: several profilers at once, each with its own records.
 */
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

#define SLOTS		64	/* the number of sessions that do not share records */

/* A profiler is a process of its own. It samples one system call of the target. */
struct profiler {
	struct ut_target	*t;
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

	if (ut_open(&s, &opts) ||
	    ut_add_tracepoint(&s, "syscalls", p->uid ? "sys_enter_getuid" : "sys_enter_getppid") ||
	    ut_enable(&s)) {
		p->ready = -1;
		return;
	}
	p->ready = 1;
	if (ut_read_all(p->go[0], &byte, 1))
		return;
	if (ut_stop(&s))
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

#define MANY	(SLOTS + 20)

FIXTURE(sessions) {
	struct ut_target *t;
	struct profiler *p;
	struct ut_child tc;
	struct ut_child pc[MANY];
};

FIXTURE_SETUP(sessions)
{
	self->t = ut_start_target(&self->tc);
	self->p = ut_shared(MANY * sizeof(*self->p));
	ASSERT_NE(NULL, self->t);
	ASSERT_NE(NULL, self->p);
}

FIXTURE_TEARDOWN(sessions)
{
	ut_end_child(&self->tc);
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

/* The first two profilers sample some rounds. Each has all stacks, and no one else's. */
static void sample_rounds(struct __test_metadata *_metadata, FIXTURE_DATA(sessions) * self,
			  int rounds)
{
	int i;

	for (i = 0; i < 2; i++)
		ASSERT_EQ(0, start(&self->p[i], &self->pc[i]));
	for (i = 0; i < rounds; i++)
		ut_round(self->t);
	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, finish(&self->p[i], &self->pc[i]));
		EXPECT_EQ(1, self->p[i].result);
		EXPECT_EQ(rounds, self->p[i].samples);
		EXPECT_EQ(rounds, self->p[i].deferred);
		EXPECT_EQ(0, self->p[i].foreign);
	}
}

/* Each profiler samples another system call of the same task. */
TEST_F(sessions, different_samples)
{
	self->p[0] = (struct profiler){ .t = self->t };
	self->p[1] = (struct profiler){ .t = self->t, .uid = true };
	sample_rounds(_metadata, self, 5);
}

/* Both sample the same call. There is one walk and one cookie, and a record for each. */
TEST_F(sessions, same_samples)
{
	int i;

	for (i = 0; i < 2; i++)
		self->p[i] = (struct profiler){ .t = self->t };
	sample_rounds(_metadata, self, 5);
}

/* One profiler samples all tasks, another one samples a single task. */
TEST_F(sessions, system_wide_and_task)
{
	self->p[0] = (struct profiler){ .t = self->t, .uid = true, .all = true };
	self->p[1] = (struct profiler){ .t = self->t };
	sample_rounds(_metadata, self, 5);
}

/* One profiler ends, and the session of the other continues. */
TEST_F(sessions, one_ends)
{
	int i;

	for (i = 0; i < 2; i++) {
		self->p[i] = (struct profiler){ .t = self->t };
		ASSERT_EQ(0, start(&self->p[i], &self->pc[i]));
	}
	ut_round(self->t);
	ASSERT_EQ(0, finish(&self->p[0], &self->pc[0]));
	for (i = 0; i < 5; i++)
		ut_round(self->t);
	/* A third profiler may get the first one's slot, but none of its records. */
	self->p[2] = (struct profiler){ .t = self->t, .uid = true };
	ASSERT_EQ(0, start(&self->p[2], &self->pc[2]));
	ut_round(self->t);
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

/*
 * K6: more profilers than slots. Each gets the stacks of its samples. Two profilers that
 * share a slot may also get records of each other. When they have ended, the slots are
 * free again.
 */
TEST_F_TIMEOUT(sessions, more_than_slots, 200)
{
	struct rlimit files = { .rlim_cur = 4096, .rlim_max = 4096 };
	int i, shared = 0;

	setrlimit(RLIMIT_NOFILE, &files);
	for (i = 0; i < MANY; i++) {
		/* Two that share a slot do not sample the same call. */
		self->p[i] = (struct profiler){
			.t = self->t, .crowd = true, .uid = (i + i / SLOTS) % 2,
		};
		ASSERT_EQ(0, start(&self->p[i], &self->pc[i])) TH_LOG("profiler %d", i);
	}
	for (i = 0; i < 3; i++)
		ut_round(self->t);
	for (i = 0; i < MANY; i++) {
		ASSERT_EQ(0, finish(&self->p[i], &self->pc[i]));
		EXPECT_EQ(1, self->p[i].result) TH_LOG("profiler %d", i);
		EXPECT_EQ(3, self->p[i].samples) TH_LOG("profiler %d", i);
		EXPECT_EQ(3, self->p[i].deferred) TH_LOG("profiler %d", i);
		shared += !!self->p[i].foreign;
	}
	TH_LOG("%d profilers had records of others", shared);
	EXPECT_LT(0, shared);
	EXPECT_GE(2 * (MANY - SLOTS), shared);

	for (i = 0; i < 2; i++)
		self->p[i] = (struct profiler){ .t = self->t, .uid = i % 2 };
	sample_rounds(_metadata, self, 1);
}

/*
 * Profilers come and go beside one that stays, as many as there are slots. Each leaves its
 * slot, so none has to share one with the first.
 */
TEST_F_TIMEOUT(sessions, come_and_go, 200)
{
	struct profiler *p = &self->p[1];
	int i;

	self->p[0] = (struct profiler){ .t = self->t };
	ASSERT_EQ(0, start(&self->p[0], &self->pc[0]));
	for (i = 0; i < SLOTS; i++) {
		*p = (struct profiler){ .t = self->t, .uid = true };
		ASSERT_EQ(0, start(p, &self->pc[1])) TH_LOG("profiler %d", i);
		ut_round(self->t);
		ASSERT_EQ(0, finish(p, &self->pc[1]));
		EXPECT_EQ(1, p->result) TH_LOG("profiler %d", i);
		EXPECT_EQ(1, p->deferred) TH_LOG("profiler %d", i);
		EXPECT_EQ(0, p->foreign) TH_LOG("profiler %d", i);
		close(p->go[0]);
		close(p->go[1]);
	}
	ASSERT_EQ(0, finish(&self->p[0], &self->pc[0]));
	EXPECT_EQ(1, self->p[0].result);
	EXPECT_EQ(SLOTS, self->p[0].deferred);
	EXPECT_EQ(0, self->p[0].foreign);
}

int main(int argc, char **argv)
{
	ut_need_root();
	return test_harness_run(argc, argv);
}

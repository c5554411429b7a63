// SPDX-License-Identifier: GPL-2.0
/*
 * K18, K19: events that count a cgroup. Such an event exists on every CPU, and is active
 * while a task of the group runs there. The records go into the buffers of their samples,
 * and stay within the session. If a task is moved out of the group, its pending stack is
 * written before.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

#define ROUNDS	40

struct caller {
	struct ut_stack	ppid, sleep;
	int		depth;
	bool		asleep;		/* sleep long after the last round */
	int		done;
};

FIXTURE(cgroups) {
	char root[64];
	char path[2][128];	/* one group for each caller */
	int group[2];
	struct caller *caller[2];
	struct ut_child c[2];
	struct ut_session s, other;
};

static int write_file(const char *dir, const char *name, const char *text)
{
	char path[256];
	int fd, err;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY);
	if (fd < 0)
		return -1;
	err = write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -1;
	close(fd);
	return err;
}

static void call_ppid(void *arg)
{
	struct caller *c = arg;

	ut_syscall0(&c->ppid, __NR_getppid);
}

static void call_sleep(void *arg)
{
	struct timespec ts = { .tv_nsec = 300000 };
	struct caller *c = arg;

	if (c->done == ROUNDS)
		ts.tv_sec = 1000;
	ut_syscall2(&c->sleep, __NR_nanosleep, &ts, NULL);
}

static void calls(void *arg)
{
	struct caller *c = arg;

	while (c->done < ROUNDS) {
		ut_ladder(c->depth, call_ppid, c);
		/* Often it wakes up on another CPU. */
		ut_pin(0, c->done % 2);
		ut_ladder(c->depth + 1, call_sleep, c);
		c->done++;
	}
	if (c->asleep)
		ut_ladder(c->depth + 1, call_sleep, c);
}

FIXTURE_SETUP(cgroups)
{
	char pid[16];
	int i;

	snprintf(self->root, sizeof(self->root), "/tmp/unwind_cgroup.XXXXXX");
	ASSERT_NE(NULL, mkdtemp(self->root));
	/* In a hierarchy of its own no one else decides which controllers are enabled. */
	ASSERT_EQ(0, mount("none", self->root, "cgroup", 0, "perf_event"))
		TH_LOG("%s", strerror(errno));
	for (i = 0; i < 2; i++) {
		snprintf(self->path[i], sizeof(self->path[i]), "%s/unwind_test%d", self->root, i);
		rmdir(self->path[i]);
		ASSERT_EQ(0, mkdir(self->path[i], 0755)) TH_LOG("%s", strerror(errno));
		self->group[i] = open(self->path[i], O_RDONLY | O_CLOEXEC);
		ASSERT_LE(0, self->group[i]);
		self->caller[i] = ut_shared(sizeof(*self->caller[i]));
		ASSERT_NE(NULL, self->caller[i]);
		self->caller[i]->depth = 3 + 5 * i;
		ASSERT_EQ(0, ut_fork(&self->c[i], calls, self->caller[i]));
		snprintf(pid, sizeof(pid), "%d", self->c[i].pid);
		ASSERT_EQ(0, write_file(self->path[i], "cgroup.procs", pid));
	}
}

FIXTURE_TEARDOWN(cgroups)
{
	int i;

	ut_close(&self->s);
	ut_close(&self->other);
	for (i = 0; i < 2; i++) {
		ut_end_child(&self->c[i]);
		close(self->group[i]);
		rmdir(self->path[i]);
	}
	umount2(self->root, MNT_DETACH);
	rmdir(self->root);
}

/* Open a session for one group, with a tracking event and sampling events on every CPU. */
static int watch(struct ut_session *s, int group)
{
	struct ut_opts opts = {
		.pid = group, .per_cpu = true, .perf_flags = PERF_FLAG_PID_CGROUP, .pages = 256,
		.sideband = true,
	};

	if (ut_open(s, &opts) || ut_add_tracepoint(s, "syscalls", "sys_enter_getppid") < 0 ||
	    ut_add_tracepoint(s, "syscalls", "sys_enter_nanosleep") < 0)
		return -1;
	return ut_enable(s);
}

/* Has the session all samples of one process, and none of the other? */
static bool only(struct ut_session *s, struct caller *c, pid_t pid, pid_t other, int rounds)
{
	int i, nr[2];

	for (i = 0; i < 2; i++) {
		nr[i] = ut_count_samples(s, i, pid);
		if (nr[i] != rounds) {
			ut_diag("event %d: %d samples", i, nr[i]);
			return false;
		}
	}
	for (i = 0; i < rounds; i++) {
		if (!ut_stack_is(s, ut_sample(s, 0, pid, i), &c->ppid) ||
		    !ut_stack_is(s, ut_sample(s, 1, pid, i), &c->sleep)) {
			ut_diag("round %d", i);
			return false;
		}
	}
	if (ut_count(s, UT_RECORD_CALLCHAIN_DEFERRED, pid) != 2U * rounds ||
	    ut_count(s, PERF_RECORD_SAMPLE, other) ||
	    ut_count(s, UT_RECORD_CALLCHAIN_DEFERRED, other)) {
		ut_diag("foreign or missing records");
		return false;
	}
	return true;
}

/* One group is profiled; another one that does the same is not. */
TEST_F(cgroups, one_group)
{
	int i;

	ASSERT_EQ(0, watch(&self->s, self->group[0])) TH_LOG("CONFIG_CGROUP_PERF?");
	for (i = 0; i < 2; i++)
		ASSERT_EQ(0, ut_go(&self->c[i]));
	for (i = 0; i < 2; i++)
		ASSERT_EQ(0, ut_wait(&self->c[i]));
	ASSERT_EQ(0, ut_stop(&self->s));
	EXPECT_TRUE(only(&self->s, self->caller[0], self->c[0].pid, self->c[1].pid, ROUNDS));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* A profiler of a group, in a process of its own. Another one profiles all tasks. */
struct profiler {
	int	group;
	int	ready, result;
	int	go[2];
	pid_t	pid[2];
	struct caller *caller;
};

static void profile(void *arg)
{
	struct profiler *p = arg;
	struct ut_session s;
	char byte;

	if (watch(&s, p->group)) {
		p->ready = -1;
		return;
	}
	p->ready = 1;
	if (read(p->go[0], &byte, 1) != 1)
		return;
	p->result = !ut_stop(&s) && only(&s, p->caller, p->pid[0], p->pid[1], ROUNDS) &&
		    !ut_check(&s, 0);
}

TEST_F(cgroups, two_groups_and_everything)
{
	struct ut_opts opts = {
		.pid = -1, .per_cpu = true, .sideband = true, .pages = 512,
	};
	struct profiler *p = ut_shared(2 * sizeof(*p));
	struct ut_child pc[2];
	int i;

	ASSERT_NE(NULL, p);
	for (i = 0; i < 2; i++) {
		p[i].group = self->group[i];
		p[i].pid[0] = self->c[i].pid;
		p[i].pid[1] = self->c[!i].pid;
		p[i].caller = self->caller[i];
		ASSERT_EQ(0, pipe(p[i].go));
		ASSERT_EQ(0, ut_fork(&pc[i], profile, &p[i]));
		ASSERT_EQ(0, ut_go(&pc[i]));
		while (!UT_READ(p[i].ready))
			usleep(1000);
		ASSERT_EQ(1, p[i].ready);
	}
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid"));
	ASSERT_EQ(0, ut_enable(&self->s));
	for (i = 0; i < 2; i++)
		ASSERT_EQ(0, ut_go(&self->c[i]));
	for (i = 0; i < 2; i++)
		ASSERT_EQ(0, ut_wait(&self->c[i]));
	ASSERT_EQ(0, ut_stop(&self->s));
	for (i = 0; i < 2; i++) {
		ASSERT_EQ(1, write(p[i].go[1], "g", 1));
		ASSERT_EQ(0, ut_wait(&pc[i]));
		EXPECT_EQ(1, p[i].result) TH_LOG("group %d", i);
		/* The profiler of all tasks samples getppid(), and not the sleeps. */
		EXPECT_EQ(ROUNDS, ut_count_samples(&self->s, 0, p[i].pid[0]));
		EXPECT_EQ(ROUNDS, ut_count(&self->s, UT_RECORD_CALLCHAIN_DEFERRED, p[i].pid[0]));
	}
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

static int move_task(const char *path, pid_t pid)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", pid);
	return write_file(path, "cgroup.procs", text);
}

/* A task sleeps after a sample. Its stack is written before it is moved out of the group. */
TEST_F(cgroups, moved_asleep)
{
	pid_t pid = self->c[0].pid;
	struct ut_rec *r;

	self->caller[0]->asleep = true;
	ASSERT_EQ(0, watch(&self->s, self->group[0]));
	ASSERT_EQ(0, ut_go(&self->c[0]));
	do {
		usleep(1000);
		ASSERT_EQ(0, ut_drain(&self->s));
		r = ut_sample(&self->s, 1, pid, ROUNDS);
	} while (!r || !ut_record_of(&self->s, pid, r->cookie));
	EXPECT_TRUE(ut_stack_is(&self->s, r, &self->caller[0]->sleep));
	ASSERT_TRUE(ut_wait_state(pid, "S"));
	ASSERT_EQ(0, move_task(self->path[1], pid));
	/* It leaves the system call and dies in the other group. */
	ASSERT_EQ(0, kill(pid, SIGKILL));
	ASSERT_EQ(SIGKILL, ut_wait(&self->c[0]));
	ASSERT_EQ(0, ut_stop(&self->s));
	EXPECT_EQ(ROUNDS + 1, ut_count_samples(&self->s, 1, pid));
	EXPECT_EQ(2 * ROUNDS + 1, ut_count(&self->s, UT_RECORD_CALLCHAIN_DEFERRED, pid));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* A task that makes long system calls without end. */
struct busy {
	struct ut_stack	st;
	int		cpu;
};

static void call_random(void *arg)
{
	static char buf[1 << 20];
	struct busy *b = arg;

	for (;;)
		ut_syscall3(&b->st, __NR_getrandom, buf, sizeof(buf), 0);
}

static void ladder_random(void *arg)
{
	struct busy *b = arg;

	ut_pin(0, b->cpu);
	ut_ladder(6, call_random, b);
}

/*
 * Another CPU moves the task out of the group and back, while the task is in a sampled
 * system call. The stack is handed out before the events are taken off the CPU.
 */
TEST_F(cgroups, moved_in_the_entry)
{
	struct busy *b = ut_shared(sizeof(*b));
	int cpus[UT_MAX_CPUS], i, k;
	unsigned int nr, calls = 0;
	struct ut_child c;
	struct ut_rec *r;

	nr = ut_online_cpus(cpus, UT_MAX_CPUS);
	if (nr < 2)
		SKIP(return, "needs two CPUs");
	ASSERT_NE(NULL, b);
	b->cpu = cpus[1];
	ASSERT_EQ(0, ut_pin(0, cpus[0]));
	ASSERT_EQ(0, ut_fork(&c, ladder_random, b));
	ASSERT_EQ(0, move_task(self->path[0], c.pid));
	ASSERT_EQ(0, watch(&self->s, self->group[0]));
	ASSERT_EQ(2, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getrandom"));
	ASSERT_EQ(3, ut_add_software(&self->s, PERF_COUNT_SW_CPU_CLOCK, 2000000));
	ASSERT_EQ(0, ut_start(&self->s, &c));
	for (i = 0; i < 100; i++) {
		do {
			ASSERT_EQ(0, ut_drain(&self->s));
		} while (!ut_sample(&self->s, -1, c.pid, 0));
		usleep(i * 10);
		ASSERT_EQ(0, move_task(self->path[1], c.pid));
		ASSERT_EQ(0, ut_drain(&self->s));
		/* When the task is out of the group, none of its stacks is pending. */
		for (k = 0; (r = ut_sample(&self->s, 2, c.pid, k)); k++)
			EXPECT_TRUE(ut_stack_is(&self->s, r, &b->st)) TH_LOG("round %d", i);
		calls += k;
		ASSERT_EQ(0, ut_check(&self->s, 0)) TH_LOG("round %d", i);
		ut_forget(&self->s);
		ASSERT_EQ(0, move_task(self->path[0], c.pid));
	}
	EXPECT_LT(0, calls);
	ASSERT_EQ(0, ut_stop(&self->s));
	EXPECT_EQ(0, ut_check(&self->s, 0));
	ut_end_child(&c);
}

int main(int argc, char **argv)
{
	ut_need_root();
	return test_harness_run(argc, argv);
}

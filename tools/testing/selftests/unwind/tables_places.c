// SPDX-License-Identifier: GPL-2.0
/*
 * Code without frame pointers at each place that hands out a stack: when the task leaves
 * its CPU (K11), exits (K7), calls exec (K8), disables its event (K20) or leaves its cgroup
 * (K19). When it forks (K9), and when uretprobes have replaced its return addresses (K12).
 * The return to user space is in tables.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../kselftest_harness.h"
#include "unwind_table.h"

#define NEW_IMAGE	"--new-image"
#define PREEMPTIONS	20

/* A system call that the code makes, and the stacks that walks have to find. */
struct shared {
	struct ut_stack	st[3];
	const char	*base;
	long		nr, arg[3];
	pid_t		child;
	int		cpu;
};

FIXTURE(places) {
	struct ut_session s;
	struct ut_code code;
	struct ut_section section;
	struct shared *sh;
	struct ut_child c;
	int fd;
};

FIXTURE_SETUP(places)
{
	ut_need_root();
	self->sh = ut_shared(sizeof(*self->sh));
	ASSERT_NE(NULL, self->sh);
	ASSERT_EQ(0, ut_code_new(&self->code, NULL));
	self->sh->base = self->code.base;
	ut_code_section(&self->section, 0);
	self->fd = ut_table_event();
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, ut_load_section(self->fd, self->code.base, &self->section));
}

FIXTURE_TEARDOWN(places)
{
	ut_end_child(&self->c);
	ut_close(&self->s);
	close(self->fd);
	ut_code_free(&self->code);
}

static void call(void *arg)
{
	struct shared *sh = arg;

	ut_code_call(sh->base, &sh->st[0], sh->nr, sh->arg[0], sh->arg[1], sh->arg[2]);
}

static void ladder_call(void *arg)
{
	ut_ladder(3, call, arg);
}

/* Fork a child that is to run @fn, and sample its system call @name. */
static void watch(struct __test_metadata *_metadata, FIXTURE_DATA(places) * self, ut_fn fn,
		  const char *name, bool per_cpu)
{
	struct ut_opts opts = {
		.sideband = true, .per_cpu = per_cpu, .inherit = per_cpu, .pages = 256,
	};
	char event[64];

	ASSERT_EQ(0, ut_watch(&self->s, &opts, &self->c, fn, self->sh));
	snprintf(event, sizeof(event), "sys_enter_%s", name);
	ASSERT_EQ(0, ut_add_tracepoint(&self->s, "syscalls", event));
	ASSERT_EQ(1, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid"));
}

/* The stack is there while the task still sleeps. */
TEST_F(places, asleep)
{
	self->sh->nr = __NR_pause;
	watch(_metadata, self, ladder_call, "pause", false);
	ASSERT_EQ(0, ut_start(&self->s, &self->c));
	ASSERT_TRUE(ut_wait_asleep(self->c.pid, &self->sh->st[0]));
	ASSERT_EQ(0, ut_drain(&self->s));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, 0, self->c.pid, 0),
				&self->sh->st[0]));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

static void long_calls(void *arg)
{
	static char buf[1 << 20];
	struct shared *sh = arg;

	for (;;)
		ut_code_call(sh->base, &sh->st[0], __NR_getrandom, (long)buf, sizeof(buf), 0);
}

static void ladder_long_calls(void *arg)
{
	if (ut_pin(0, ((struct shared *)arg)->cpu))
		_exit(99);
	ut_ladder(3, long_calls, arg);
}

/* How often was the task preempted in a call? Then the call's record is right ahead. */
static unsigned int preemptions(struct ut_session *s)
{
	const __u16 preempt = PERF_RECORD_MISC_SWITCH_OUT | PERF_RECORD_MISC_SWITCH_OUT_PREEMPT;
	unsigned int nr = 0;
	size_t i;

	for (i = 1; i < s->nr_recs; i++)
		nr += s->rec[i].type == PERF_RECORD_SWITCH &&
		      (s->rec[i].misc & preempt) == preempt &&
		      (s->rec[i - 1].type == UT_RECORD_CALLCHAIN_DEFERRED ||
		       s->rec[i - 1].type == PERF_RECORD_SAMPLE);
	return nr;
}

TEST_F(places, preempted)
{
	struct ut_preemptor p = { .pause_us = 2000 };
	int cpus[UT_MAX_CPUS];
	struct ut_child other;
	struct ut_rec *r;
	unsigned int i;

	p.cpu = cpus[ut_online_cpus(cpus, UT_MAX_CPUS) - 1];
	self->sh->cpu = p.cpu;
	ASSERT_EQ(0, ut_fork(&other, ut_preempt, &p));
	watch(_metadata, self, ladder_long_calls, "getrandom", false);
	ASSERT_EQ(0, ut_start(&self->s, &self->c));
	ASSERT_EQ(0, ut_go(&other));
	do {
		usleep(10000);
		ASSERT_EQ(0, ut_drain(&self->s));
	} while (preemptions(&self->s) < PREEMPTIONS);
	ASSERT_EQ(0, ut_stop(&self->s));
	for (i = 0; (r = ut_sample(&self->s, 0, self->c.pid, i)); i++)
		EXPECT_TRUE(ut_stack_is(&self->s, r, &self->sh->st[0])) TH_LOG("call %u", i);
	EXPECT_LE(PREEMPTIONS, i);
	EXPECT_EQ(0, ut_check(&self->s, 0));
	ut_end_child(&other);
}

/* The call ends the image, with 7. @event is sampled in it. */
static void last_call(struct __test_metadata *_metadata, FIXTURE_DATA(places) * self, int event)
{
	ASSERT_EQ(7 << 8, ut_profile_child(&self->s, &self->c));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, event, self->c.pid, 0),
				&self->sh->st[0]));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

TEST_F(places, exit)
{
	self->sh->nr = __NR_exit_group;
	self->sh->arg[0] = 7;
	watch(_metadata, self, ladder_call, "exit_group", false);
	last_call(_metadata, self, 0);
}

TEST_F(places, exec)
{
	static const char * const argv[] = { "exe", NEW_IMAGE, NULL };

	self->sh->nr = __NR_execve;
	self->sh->arg[0] = (long)"/proc/self/exe";
	self->sh->arg[1] = (long)argv;
	watch(_metadata, self, ladder_call, "execve", false);
	/* The task may sleep, and be handed out, before it comes there. */
	ASSERT_EQ(2, ut_add_function(&self->s, "begin_new_exec"));
	last_call(_metadata, self, 2);
}

/* The task disables what would take the record on its way out. */
TEST_F(places, disabled)
{
	const struct ut_opts opts = { .switches = true };

	ASSERT_EQ(0, ut_open(&self->s, &opts));
	ASSERT_EQ(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_ioctl"));
	ASSERT_EQ(0, ut_enable(&self->s));
	ASSERT_EQ(0, ut_drain(&self->s));
	ut_forget(&self->s);
	self->sh->nr = __NR_ioctl;
	self->sh->arg[0] = self->s.ring[0].fd;
	self->sh->arg[1] = PERF_EVENT_IOC_DISABLE;
	ladder_call(self->sh);
	ASSERT_EQ(0, ut_drain(&self->s));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, 0, 0, 0), &self->sh->st[0]));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* The task moves itself out of the group whose events sample it. */
TEST_F(places, moved)
{
	struct ut_opts opts = {
		.per_cpu = true, .sideband = true, .perf_flags = PERF_FLAG_PID_CGROUP,
	};
	char root[] = "/tmp/unwind_cgroup.XXXXXX", group[64], procs[80];
	int to;

	ASSERT_NE(NULL, mkdtemp(root));
	ASSERT_EQ(0, mount("none", root, "cgroup", 0, "perf_event")) TH_LOG("%s", strerror(errno));
	snprintf(group, sizeof(group), "%s/unwind_test", root);
	ASSERT_EQ(0, mkdir(group, 0755));
	snprintf(procs, sizeof(procs), "%s/cgroup.procs", root);
	to = open(procs, O_WRONLY | O_CLOEXEC);
	ASSERT_LE(0, to);

	self->sh->nr = __NR_write;
	self->sh->arg[0] = to;
	self->sh->arg[1] = (long)"0";
	self->sh->arg[2] = 1;
	ASSERT_EQ(0, ut_fork(&self->c, ladder_call, self->sh));
	snprintf(procs, sizeof(procs), "%s/cgroup.procs", group);
	ASSERT_EQ(0, ut_write_sysctl(procs, self->c.pid));
	opts.pid = open(group, O_RDONLY | O_CLOEXEC);
	ASSERT_EQ(0, ut_open(&self->s, &opts)) TH_LOG("CONFIG_CGROUP_PERF?");
	ASSERT_EQ(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_write"));
	ASSERT_EQ(0, ut_profile_child(&self->s, &self->c));
	EXPECT_EQ(1, ut_count_samples(&self->s, 0, self->c.pid));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, 0, self->c.pid, 0),
				&self->sh->st[0]));
	EXPECT_EQ(0, ut_check(&self->s, 0));

	close(opts.pid);
	close(to);
	rmdir(group);
	umount2(root, MNT_DETACH);
	rmdir(root);
}

/*
 * fork() locks the mappings while it copies them. If the task is switched out there, its
 * record is short. PERF_RECORD_FORK comes later.
 */
static bool switched_in_fork(struct ut_session *s, const struct ut_rec *sample)
{
	size_t i;

	for (i = 0; i < s->nr_recs; i++) {
		struct ut_rec *r = &s->rec[i];

		if (r->ring != sample->ring || r->seq < sample->seq)
			continue;
		if (r->type == PERF_RECORD_FORK)
			return false;
		if ((r->type == PERF_RECORD_SWITCH || r->type == PERF_RECORD_SWITCH_CPU_WIDE) &&
		    (r->misc & PERF_RECORD_MISC_SWITCH_OUT) && r->tid == sample->tid)
			return true;
	}
	return false;
}

/* Parent and child each have their own: of the fork, and of a call behind it. */
static void expect_two(struct __test_metadata *_metadata, FIXTURE_DATA(places) * self)
{
	struct ut_stack got;
	struct ut_rec *r;

	ASSERT_EQ(0, ut_profile_child(&self->s, &self->c));
	EXPECT_EQ(3, ut_count_samples(&self->s, -1, 0));
	r = ut_sample(&self->s, 0, self->c.pid, 0);
	ASSERT_NE(NULL, r);
	if (switched_in_fork(&self->s, r)) {
		EXPECT_EQ(UT_DEFERRED, ut_user_stack(&self->s, r, &got));
		EXPECT_LT(0, got.nr);
		EXPECT_TRUE(ut_stack_within(&got, &self->sh->st[0]));
	} else {
		EXPECT_TRUE(ut_stack_is(&self->s, r, &self->sh->st[0]));
	}
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, 1, self->sh->child, 0),
				&self->sh->st[1]));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, 1, self->c.pid, 0),
				&self->sh->st[2]));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* The child, too, returns by the code. */
static void call_fork(void *arg)
{
	struct shared *sh = arg;
	pid_t pid = ut_code_call(sh->base, &sh->st[0], __NR_fork, 0, 0, 0);

	if (!pid) {
		ut_code_call(sh->base, &sh->st[1], __NR_getppid, 0, 0, 0);
		_exit(0);
	}
	sh->child = pid;
	waitpid(pid, NULL, 0);
	ut_code_call(sh->base, &sh->st[2], __NR_getppid, 0, 0, 0);
}

static void ladder_fork(void *arg)
{
	ut_ladder(3, call_fork, arg);
}

TEST_F(places, fork)
{
	watch(_metadata, self, ladder_fork, "fork", true);
	expect_two(_metadata, self);
}

static void call_vforked(void *arg)
{
	struct shared *sh = arg;

	ut_code_call(sh->base, &sh->st[1], __NR_getppid, 0, 0, 0);
	_exit(0);
}

static struct shared *vfork_shared;

/* The code returns to here, on the child's stack. */
static ut_noinline void vforked(void)
{
	ut_ladder(2, call_vforked, vfork_shared);
}

/* As vfork(), but on a stack of its own: what the child does there leaves the parent's. */
static void call_vfork(void *arg)
{
	static unsigned long stack[8192] UT_ATTRIBUTE(aligned(16));
	struct shared *sh = arg;

	vfork_shared = sh;
	stack[ARRAY_SIZE(stack) - 4] = (unsigned long)vforked;
	sh->child = ut_code_call(sh->base, &sh->st[0], __NR_clone,
				 CLONE_VM | CLONE_VFORK | SIGCHLD,
				 (long)&stack[ARRAY_SIZE(stack) - 4], 0);
	waitpid(sh->child, NULL, 0);
	ut_code_call(sh->base, &sh->st[2], __NR_getppid, 0, 0, 0);
}

static void ladder_vfork(void *arg)
{
	ut_ladder(3, call_vfork, arg);
}

/* The parent's is handed out when it falls asleep, before the child runs in its memory. */
TEST_F(places, vfork)
{
	watch(_metadata, self, ladder_vfork, "clone", true);
	expect_two(_metadata, self);
}

/*
 * A uretprobe at the first instruction at each depth. Its trampoline has no row, and the
 * frame pointer is data.
 */
TEST_F(places, uretprobes)
{
	const char *path = "/tmp/ut_code_uretprobes";
	unsigned int round, depth, i, probe;
	const struct ut_opts opts = {};
	struct ut_stack want, at;
	struct ut_code code;

	ASSERT_EQ(0, ut_code_new(&code, path));
	ASSERT_EQ(0, ut_load_section(self->fd, code.base, &self->section));
	self->sh->base = code.base;
	self->sh->nr = __NR_getppid;
	ladder_call(self->sh);
	want = self->sh->st[0];
	/* One at each depth, then all. */
	for (round = 0; round < 5; round++) {
		ASSERT_EQ(0, ut_open(&self->s, &opts));
		ASSERT_EQ(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid"));
		for (i = 0, depth = 0; ut_code_at(code.base, i, &want, &at); i++) {
			/* The function's callers are in @at, and the instruction. */
			if (at.nr - (want.nr - 4) != depth + 1)
				continue;
			if (round == depth++ || round == 4)
				ASSERT_LT(0, ut_add_probe(&self->s, "uprobe", path,
							  UT_CODE_OFFSET + at.ip[0] -
							  (unsigned long)code.base, true));
		}
		ASSERT_EQ(4, depth);
		ASSERT_EQ(0, ut_enable(&self->s));
		ladder_call(self->sh);
		ASSERT_EQ(0, ut_stop(&self->s));
		EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, 0, 0, 0), &want))
			TH_LOG("round %u", round);
		/* They were pending: each function has returned through its probe. */
		for (probe = 1; probe < self->s.nr_events; probe++)
			EXPECT_EQ(1, ut_count_samples(&self->s, probe, 0));
		EXPECT_EQ(0, ut_check(&self->s, 0));
		ut_close(&self->s);
	}
	ut_code_free(&code);
	unlink(path);
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], NEW_IMAGE))
		return 7;
	return test_harness_run(argc, argv);
}

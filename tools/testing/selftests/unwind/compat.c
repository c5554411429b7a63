// SPDX-License-Identifier: GPL-2.0
/*
 * K14: a 32-bit program on a 64-bit kernel, in a flat code segment and in one with a
 * base. K10: its return from a signal handler. K11: its stack while it sleeps.
 */
#include <asm/ldt.h>
#include <errno.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

struct stack32 {
	__u32 nr;
	__u32 ip[64];
};

FIXTURE(compat) {
	struct ut_session s;
	pid_t pid;
	int in, out;
};

FIXTURE_SETUP(compat)
{
	if (!ut_has_32bit())
		SKIP(return, UT_NO_32BIT);
	self->pid = ut_start_32(&self->in, &self->out);
	ASSERT_LT(0, self->pid);
}

FIXTURE_TEARDOWN(compat)
{
	kill(self->pid, SIGKILL);
	waitpid(self->pid, NULL, 0);
	ut_close(&self->s);
}

/* Read a stack that the program writes. */
static int read_stack(int out, struct ut_stack *st)
{
	struct stack32 st32;

	if (ut_read_all(out, &st32, sizeof(st32)))
		return -1;
	for (st->nr = 0; st->nr < st32.nr; st->nr++)
		st->ip[st->nr] = st32.ip[st->nr];
	return 0;
}

/*
 * The tracepoints of single system calls do not fire for 32-bit tasks. So use the
 * tracepoint of all system calls, with a filter for the number.
 */
static int open_call(struct ut_session *s, pid_t pid, const char *filter)
{
	struct ut_opts opts = { .pid = pid };

	if (ut_open(s, &opts) || ut_add_tracepoint(s, "raw_syscalls", "sys_enter") < 0)
		return -1;
	return ioctl(s->event[0].fd[0], PERF_EVENT_IOC_SET_FILTER, filter);
}

static int watch_getppid(struct ut_session *s, pid_t pid)
{
	return open_call(s, pid, "id == 64") ?: ut_enable(s);
}

/* Samples at the top of the ladder and in the segment. */
TEST_F(compat, ladder)
{
	struct ut_stack st, segment;
	struct ut_rec *r;
	int status;
	__u64 i;

	ASSERT_EQ(0, watch_getppid(&self->s, self->pid));
	ASSERT_EQ(1, write(self->in, "g", 1));
	ASSERT_EQ(0, read_stack(self->out, &st));
	/* leaf, eleven times climb, start, _start */
	ASSERT_EQ(14, st.nr);
	ASSERT_EQ(0, read_stack(self->out, &segment));
	ASSERT_EQ(self->pid, waitpid(self->pid, &status, 0));
	ASSERT_EQ(0, status);
	ASSERT_EQ(0, ut_stop(&self->s));

	r = ut_sample(&self->s, 0, 0, 0);
	ASSERT_TRUE(ut_stack_is(&self->s, r, &st));
	r = ut_record_of(&self->s, self->pid, r->cookie);
	ASSERT_NE(NULL, r);
	for (i = 0; i < r->nr; i++)
		EXPECT_EQ(0, r->ips[i] >> 32);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* The frames in the segment have linear addresses. */
TEST_F(compat, segment_with_a_base)
{
	struct ut_stack st;
	int status;

	ASSERT_EQ(0, watch_getppid(&self->s, self->pid));
	ASSERT_EQ(1, write(self->in, "g", 1));
	ASSERT_EQ(0, read_stack(self->out, &st));
	ASSERT_EQ(0, read_stack(self->out, &st));
	ASSERT_EQ(self->pid, waitpid(self->pid, &status, 0));
	ASSERT_EQ(0, status);
	ASSERT_EQ(0, ut_stop(&self->s));
	ASSERT_EQ(2, st.nr) TH_LOG("no LDT: CONFIG_MODIFY_LDT_SYSCALL?");

	ASSERT_EQ(2, ut_count_samples(&self->s, 0, 0));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, 0, 0, 1), &st));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/*
 * The system call changes the base of the segment from which it was made. The record has
 * the stack at the time of the call, with the old base.
 */
static void check_segment_changed(struct __test_metadata *_metadata, struct ut_session *s,
				  pid_t pid, int in, int out, const char *how,
				  const char *filter)
{
	struct ut_stack st, got;
	struct ut_rec *r;
	int status;

	ASSERT_EQ(0, open_call(s, pid, filter));
	ASSERT_EQ(0, ut_enable(s));
	ASSERT_EQ(1, write(in, how, 1));
	ASSERT_EQ(0, read_stack(out, &st))
		TH_LOG("no segment: CONFIG_MODIFY_LDT_SYSCALL?");
	ASSERT_EQ(2, st.nr);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	/* With the new base the program returned to a wrong address. */
	ASSERT_TRUE(WIFSIGNALED(status));
	ASSERT_EQ(0, ut_stop(s));

	/* The first call has made the segment. */
	ASSERT_EQ(2, ut_count_samples(s, 0, 0));
	r = ut_sample(s, 0, 0, 1);
	ASSERT_EQ(UT_DEFERRED, ut_user_stack(s, r, &got));
	EXPECT_TRUE(ut_same_stack(&got, &st));
	EXPECT_EQ(0, ut_check(s, 0));
}

TEST_F(compat, segment_changed)
{
	check_segment_changed(_metadata, &self->s, self->pid, self->in, self->out, "m",
			      "id == 123");
}

TEST_F(compat, stack_segment_changed)
{
	check_segment_changed(_metadata, &self->s, self->pid, self->in, self->out, "a",
			      "id == 243");
}

/* Here an allocation within the system call requests the stack. */
TEST_F(compat, segment_changed_behind_a_request)
{
	struct ut_opts opts = { .pid = self->pid };
	struct ut_rec *r, *allocated = NULL, *exit;
	struct ut_stack st;
	unsigned int i = 0;
	int status;

	ASSERT_EQ(0, ut_open(&self->s, &opts));
	ASSERT_EQ(0, ut_add_tracepoint(&self->s, "kmem", "kmalloc"));
	ASSERT_EQ(1, ut_add_tracepoint(&self->s, "raw_syscalls", "sys_exit"));
	ASSERT_EQ(0, ioctl(self->s.event[1].fd[0], PERF_EVENT_IOC_SET_FILTER, "id == 123"));
	ASSERT_EQ(0, ut_enable(&self->s));
	ASSERT_EQ(1, write(self->in, "m", 1));
	ASSERT_EQ(0, read_stack(self->out, &st))
		TH_LOG("no segment: CONFIG_MODIFY_LDT_SYSCALL?");
	ASSERT_EQ(self->pid, waitpid(self->pid, &status, 0));
	ASSERT_EQ(0, ut_stop(&self->s));

	ASSERT_EQ(2, ut_count_samples(&self->s, 1, 0));
	exit = ut_sample(&self->s, 1, 0, 1);
	while ((r = ut_sample(&self->s, 0, 0, i++)) && r->time < exit->time)
		allocated = r;
	ASSERT_NE(NULL, allocated);
	EXPECT_TRUE(ut_stack_is(&self->s, allocated, &st));
	/* It is still the stack of the same entry. */
	EXPECT_EQ(allocated->cookie, exit->cookie);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/*
 * A handler returns with sigreturn(). At that system call the program is in its restorer,
 * which has no frame, so the next frames are those of the interrupted function. At the
 * exit of the system call the registers are those of the interrupted function, so this is
 * another stack, with another cookie.
 */
static void check_sigreturn(struct __test_metadata *_metadata, struct ut_session *s,
			    pid_t pid, int in, int out, const char *how, const char *filter)
{
	struct ut_rec *enter, *exit;
	struct ut_stack st, restorer, want;
	unsigned int i = 0;
	int status;

	ASSERT_EQ(0, open_call(s, pid, filter));
	ASSERT_EQ(1, ut_add_tracepoint(s, "raw_syscalls", "sys_exit"));
	ASSERT_EQ(0, ut_enable(s));
	ASSERT_EQ(1, write(in, how, 1));
	ASSERT_EQ(0, read_stack(out, &st));
	ASSERT_EQ(14, st.nr);
	ASSERT_EQ(0, read_stack(out, &restorer));
	ASSERT_EQ(1, restorer.nr);
	want = st;
	want.ip[0] = restorer.ip[0];
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	ASSERT_EQ(0, status);
	ASSERT_EQ(0, ut_stop(s));

	ASSERT_EQ(1, ut_count_samples(s, 0, 0));
	enter = ut_sample(s, 0, 0, 0);
	EXPECT_TRUE(ut_stack_is(s, enter, &want));
	do {
		exit = ut_sample(s, 1, 0, i++);
	} while (exit && exit->time <= enter->time);
	ASSERT_NE(NULL, exit);
	EXPECT_TRUE(ut_has_stack(s, exit, &st));
	EXPECT_NE(enter->cookie, exit->cookie);
	EXPECT_EQ(0, ut_check(s, 0));
}

TEST_F(compat, sigreturn)
{
	check_sigreturn(_metadata, &self->s, self->pid, self->in, self->out, "s", "id == 119");
}

TEST_F(compat, rt_sigreturn)
{
	check_sigreturn(_metadata, &self->s, self->pid, self->in, self->out, "t", "id == 173");
}

/* Let the program fall asleep, and expect the stack that it writes before. */
static void expect_asleep(struct __test_metadata *_metadata, FIXTURE_DATA(compat) * self,
			  const char *how, struct ut_stack *st)
{
	ASSERT_EQ(0, open_call(&self->s, self->pid, "id == 29"));
	ASSERT_EQ(0, ut_enable(&self->s));
	ASSERT_EQ(1, write(self->in, how, 1));
	ASSERT_EQ(0, read_stack(self->out, st));
	ASSERT_TRUE(ut_wait_state(self->pid, "S"));
	ASSERT_EQ(0, ut_drain(&self->s));
	ASSERT_EQ(1, ut_count_samples(&self->s, 0, 0));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, 0, 0, 0), st));
	EXPECT_EQ('S', ut_task_state(self->pid));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* While the program sleeps, the stack has been walked at the switch. */
TEST_F(compat, asleep)
{
	struct ut_stack st;

	expect_asleep(_metadata, self, "p", &st);
	ASSERT_EQ(14, st.nr);
}

/* The same in the segment. The reader has another segment with the same selector. */
TEST_F(compat, asleep_in_a_segment)
{
	struct user_desc desc = {
		.base_addr = 0x20000, .limit = 0xfffff, .seg_32bit = 1, .limit_in_pages = 1,
		.contents = MODIFY_LDT_CONTENTS_CODE,
	};
	struct ut_stack st;

	ASSERT_EQ(0, syscall(SYS_modify_ldt, 1, &desc, sizeof(desc)))
		TH_LOG("CONFIG_MODIFY_LDT_SYSCALL?");
	expect_asleep(_metadata, self, "l", &st);
}

int main(int argc, char **argv)
{
	ut_need_root();
	return test_harness_run(argc, argv);
}

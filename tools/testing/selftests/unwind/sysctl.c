// SPDX-License-Identifier: GPL-2.0
/*
 * kernel.perf_event_defer is the administrator's off switch. At 0 every later sample is
 * immediate, whatever the attribute says. The attribute is still accepted.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

#define DEFER	"/proc/sys/kernel/perf_event_defer"

static void one_call(void *arg)
{
	ut_syscall0(arg, __NR_getppid);
}

FIXTURE(sysctl) {
	struct ut_session s;
	long defer;
};

FIXTURE_SETUP(sysctl)
{
	ASSERT_EQ(0, ut_read_sysctl(DEFER, &self->defer)) TH_LOG("%s", strerror(errno));
}

FIXTURE_TEARDOWN(sysctl)
{
	ut_write_sysctl(DEFER, self->defer);
	ut_close(&self->s);
}

/* A profiler knows this kernel's rules by the presence of the file. */
TEST_F(sysctl, file)
{
	struct stat st;

	EXPECT_EQ(1, self->defer);
	ASSERT_EQ(0, stat(DEFER, &st));
	EXPECT_EQ(0644, st.st_mode & 0777);
	EXPECT_EQ(-1, ut_write_sysctl(DEFER, 2));
	EXPECT_EQ(-1, ut_write_sysctl(DEFER, -1));
	ASSERT_EQ(0, ut_read_sysctl(DEFER, &self->defer));
	EXPECT_EQ(1, self->defer);
}

/* Sample one entry with the switch on or off: its samples are deferred or immediate. */
static void one_entry(struct __test_metadata *_metadata, struct ut_session *s, bool defer)
{
	struct ut_stack st, got;
	struct ut_rec *r;
	unsigned int i;

	ASSERT_EQ(0, ut_ladder(6, one_call, &st));
	ASSERT_EQ(0, ut_drain(s));
	ASSERT_EQ(2, ut_count_samples(s, -1, 0));
	for (i = 0; i < 2; i++) {
		r = ut_sample(s, i, 0, 0);
		EXPECT_EQ(defer ? UT_DEFERRED : UT_IMMEDIATE, ut_user_stack(s, r, &got));
		EXPECT_TRUE(ut_same_stack(&got, &st));
	}
	EXPECT_EQ(defer, !!ut_count(s, UT_RECORD_CALLCHAIN_DEFERRED, 0));
	EXPECT_EQ(0, ut_check(s, 0));
	ut_forget(s);
}

static void add_events(struct __test_metadata *_metadata, struct ut_session *s)
{
	struct ut_opts opts = { .switches = true };

	ASSERT_EQ(0, ut_open(s, &opts));
	ASSERT_EQ(0, ut_add_tracepoint(s, "syscalls", "sys_enter_getppid"));
	ASSERT_EQ(1, ut_add_tracepoint(s, "syscalls", "sys_exit_getppid"));
	ASSERT_EQ(0, ut_enable(s));
}

TEST_F(sysctl, later_samples)
{
	add_events(_metadata, &self->s);
	one_entry(_metadata, &self->s, true);
	ASSERT_EQ(0, ut_write_sysctl(DEFER, 0));
	one_entry(_metadata, &self->s, false);
	one_entry(_metadata, &self->s, false);
	ASSERT_EQ(0, ut_write_sysctl(DEFER, 1));
	one_entry(_metadata, &self->s, true);
	ASSERT_EQ(0, ut_disable(&self->s));
}

/* The bits are accepted while the switch is off, and work when it is on. */
TEST_F(sysctl, opened_while_off)
{
	ASSERT_EQ(0, ut_write_sysctl(DEFER, 0));
	add_events(_metadata, &self->s);
	one_entry(_metadata, &self->s, false);
	ASSERT_EQ(0, ut_write_sysctl(DEFER, 1));
	one_entry(_metadata, &self->s, true);
	ASSERT_EQ(0, ut_disable(&self->s));
}

/* A pending stack is still written after a turn-off, here in the sampled call itself. */
static int defer_fd;

static void turn_off(void *arg)
{
	ut_syscall3(arg, __NR_write, defer_fd, "0", 1);
}

TEST_F(sysctl, turned_off_while_pending)
{
	struct ut_opts opts = { .switches = true };
	struct ut_stack st;
	struct ut_rec *r;

	ASSERT_EQ(0, ut_open(&self->s, &opts));
	ASSERT_EQ(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_write"));
	ASSERT_EQ(1, ut_add_tracepoint(&self->s, "syscalls", "sys_exit_write"));
	defer_fd = open(DEFER, O_WRONLY | O_CLOEXEC);
	ASSERT_LE(0, defer_fd);
	ASSERT_EQ(0, ut_profile_ladder(&self->s, 6, turn_off, &st));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, 0, 0, 0), &st));
	/* The next sample of the entry comes after the turn-off. */
	r = ut_sample(&self->s, 1, 0, 0);
	ASSERT_NE(NULL, r);
	EXPECT_EQ(0, r->cookie);
	EXPECT_TRUE(ut_stack_is_immediate(&self->s, r, &st));
	EXPECT_EQ(0, ut_check(&self->s, 0));
	close(defer_fd);
}

/*
 * The walk of an immediate sample can hit an event itself: the page fault at an absent page.
 * That sample comes first and has no callchain, and the outer sample keeps its own.
 */
TEST_F(sysctl, fault_in_the_walk)
{
	struct ut_stack want = { .nr = 1, .ip = { (unsigned long)ut_syscall_on_ret } };
	struct ut_opts opts = {};
	unsigned long page;
	unsigned int i = 0;
	struct ut_rec *r;

	page = (unsigned long)mmap(NULL, 4096, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_EQ(0, ut_write_sysctl(DEFER, 0));
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	ASSERT_EQ(0, ut_add_user_instruction(&self->s, want.ip[0]));
	ASSERT_EQ(1, ut_add_tracepoint(&self->s, "exceptions", "page_fault_kernel"));
	ASSERT_EQ(0, ut_enable(&self->s));
	ut_syscall_on(page, page, __NR_getppid, 0, 0, 0);
	ASSERT_EQ(0, ut_stop(&self->s));
	EXPECT_TRUE(ut_stack_is_immediate(&self->s, ut_sample(&self->s, 0, 0, 0), &want));
	/* System calls of the test may fault, too. */
	do {
		r = ut_sample(&self->s, 1, 0, i++);
		ASSERT_NE(NULL, r);
	} while (r->nr);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

int main(int argc, char **argv)
{
	ut_need_root();
	return test_harness_run(argc, argv);
}

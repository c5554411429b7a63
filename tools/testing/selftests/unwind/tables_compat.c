// SPDX-License-Identifier: GPL-2.0
/*
 * PERF_EVENT_IOC_SET_CFI of a 32-bit program.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../kselftest_harness.h"
#include "unwind_table.h"

/* It loads a table for the stacks of this program, with an event of its own. */
TEST(loaded)
{
	const struct ut_opts opts = { .switches = true };
	struct {
		char	path[32];
		__u32	size;
		__u8	section[6144];
	} request = {};
	struct ut_section section;
	struct ut_session s = {};
	int in, out, results[4];
	struct ut_stack call;
	struct ut_code code;
	pid_t pid;

	if (!ut_has_32bit())
		SKIP(return, UT_NO_32BIT);
	ASSERT_EQ(0, ut_code_new(&code, NULL));
	ut_code_section(&section, 0);
	snprintf(request.path, sizeof(request.path), "/proc/%d/fd/%d", getpid(), code.fd);
	request.size = section.size;
	memcpy(request.section, section.data, section.size);

	pid = ut_start_32(&in, &out);
	ASSERT_LT(0, pid);
	ASSERT_EQ(0, ut_write_all(in, "c", 1));
	ASSERT_EQ(0, ut_write_all(in, &request, sizeof(request)));
	ASSERT_EQ(0, ut_read_all(out, results, sizeof(results)));
	/* The structure, the section and the object where nothing is; then as they are. */
	EXPECT_EQ(-EFAULT, results[0]);
	EXPECT_EQ(-EFAULT, results[1]);
	EXPECT_EQ(-EINVAL, results[2]);
	EXPECT_EQ(0, results[3]);

	ASSERT_EQ(0, ut_open(&s, &opts));
	ASSERT_EQ(0, ut_add_tracepoint(&s, "syscalls", "sys_enter_getppid"));
	ASSERT_EQ(0, ut_enable(&s));
	ut_code_call(code.base, &call, __NR_getppid, 0, 0, 0);
	ASSERT_EQ(0, ut_drain(&s));
	EXPECT_TRUE(ut_stack_is(&s, ut_sample(&s, 0, 0, 0), &call));

	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	ut_close(&s);
	ut_code_free(&code);
}

int main(int argc, char **argv)
{
	ut_need_root();
	return test_harness_run(argc, argv);
}

// SPDX-License-Identifier: GPL-2.0
/*
 * Walks of code without frame pointers, by unwinding tables: deferred and immediate, at
 * each instruction, through signals and the vDSO; and in whose profiles.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../kselftest_harness.h"
#include "unwind_table.h"

#define DEFER	"/proc/sys/kernel/perf_event_defer"

FIXTURE(tables) {
	struct ut_session s;
	struct ut_code code;
	struct ut_section section;
	int fd;
	int event;
};

FIXTURE_SETUP(tables)
{
	ut_need_root();
	ASSERT_EQ(0, ut_code_new(&self->code, NULL));
	ut_code_section(&self->section, 0);
	self->fd = ut_table_event();
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN(tables)
{
	ut_write_sysctl(DEFER, 1);
	close(self->fd);
	ut_code_free(&self->code);
	ut_close(&self->s);
}

static void start(struct __test_metadata *_metadata, FIXTURE_DATA(tables) * self,
		  const struct ut_opts *opts)
{
	ASSERT_EQ(0, ut_open(&self->s, opts));
	self->event = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid");
	ASSERT_EQ(0, ut_enable(&self->s));
}

static const struct ut_opts self_task = { .switches = true };

/* The only sample since the last time. */
static struct ut_rec *one_sample(struct __test_metadata *_metadata, FIXTURE_DATA(tables) * self)
{
	ut_forget(&self->s);
	EXPECT_EQ(0, ut_drain(&self->s));
	EXPECT_EQ(1, ut_count_samples(&self->s, self->event, 0));
	return ut_sample(&self->s, self->event, 0, 0);
}

/* Without the table the functions are missing; with it they are there, for as long as it is. */
TEST_F(tables, deferred)
{
	struct ut_stack call, less;

	start(_metadata, self, &self_task);
	ut_code_call(self->code.base, &call, __NR_getppid, 0, 0, 0);
	ut_code_short(&call, &less);
	EXPECT_TRUE(ut_stack_is(&self->s, one_sample(_metadata, self), &less));

	ASSERT_EQ(0, ut_load_section(self->fd, self->code.base, &self->section));
	ut_code_call(self->code.base, &call, __NR_getppid, 0, 0, 0);
	EXPECT_TRUE(ut_stack_is(&self->s, one_sample(_metadata, self), &call));
	EXPECT_EQ(0, ut_check(&self->s, 0));

	/* A copy of the descriptor holds it, the last one that is closed does not. */
	close(dup(self->fd));
	ut_code_call(self->code.base, &call, __NR_getppid, 0, 0, 0);
	EXPECT_TRUE(ut_stack_is(&self->s, one_sample(_metadata, self), &call));
	close(self->fd);
	ut_code_call(self->code.base, &call, __NR_getppid, 0, 0, 0);
	EXPECT_TRUE(ut_stack_is(&self->s, one_sample(_metadata, self), &less));
	self->fd = ut_table_event();
}

TEST_F(tables, immediate)
{
	struct ut_stack call;

	ASSERT_EQ(0, ut_load_section(self->fd, self->code.base, &self->section));
	ASSERT_EQ(0, ut_write_sysctl(DEFER, 0));
	start(_metadata, self, &self_task);
	ut_code_call(self->code.base, &call, __NR_getppid, 0, 0, 0);
	EXPECT_TRUE(ut_stack_is_immediate(&self->s, one_sample(_metadata, self), &call));
}

/* K23: an event without defer_callchain is as on any kernel. */
TEST_F(tables, not_for_others)
{
	const struct ut_opts opts = { .immediate = true };
	struct ut_stack call, got, less;

	ASSERT_EQ(0, ut_load_section(self->fd, self->code.base, &self->section));
	start(_metadata, self, &opts);
	ut_code_call(self->code.base, &call, __NR_getppid, 0, 0, 0);
	ut_code_short(&call, &less);
	ASSERT_EQ(UT_IMMEDIATE, ut_user_stack(&self->s, one_sample(_metadata, self), &got));
	EXPECT_TRUE(ut_stack_within(&less, &got));
	EXPECT_GE(3, got.nr);
}

TEST_F(tables, max_stack)
{
	struct ut_opts opts = self_task;
	struct ut_stack call;

	opts.max_stack = 4;
	ASSERT_EQ(0, ut_load_section(self->fd, self->code.base, &self->section));
	start(_metadata, self, &opts);
	ut_code_call(self->code.base, &call, __NR_getppid, 0, 0, 0);
	call.nr = 4;
	EXPECT_TRUE(ut_stack_is(&self->s, one_sample(_metadata, self), &call));
}

/* Prologues, epilogues and the PLT: a breakpoint at each instruction. */
TEST_F(tables, each_instruction)
{
	struct ut_stack call, at;
	unsigned int i;

	ASSERT_EQ(0, ut_load_section(self->fd, self->code.base, &self->section));
	ut_code_call(self->code.base, &call, __NR_getpid, 0, 0, 0);
	for (i = 0; ut_code_at(self->code.base, i, &call, &at); i++) {
		ASSERT_EQ(0, ut_open(&self->s, &self_task));
		self->event = ut_add_user_instruction(&self->s, at.ip[0]);
		ASSERT_EQ(0, ut_enable(&self->s));
		ut_code_call(self->code.base, &call, __NR_getpid, 0, 0, 0);
		ASSERT_TRUE(ut_code_at(self->code.base, i, &call, &at));
		EXPECT_TRUE(ut_has_stack(&self->s, one_sample(_metadata, self), &at))
			TH_LOG("instruction %u", i);
		ut_close(&self->s);
	}
	EXPECT_EQ(29, i);
}

/* A handler interrupts the system call; on this stack, and on another one. */
static void in_handler(struct __test_metadata *_metadata, FIXTURE_DATA(tables) * self, void *alt,
		       size_t size)
{
	struct ut_stack call, want;
	struct ut_rec *r;

	ASSERT_EQ(0, ut_load_section(self->fd, self->code.base, &self->section));
	ASSERT_EQ(0, ut_code_handle(self->code.base, SIGUSR1, alt, size));
	start(_metadata, self, &self_task);
	ut_code_call(self->code.base, &call, __NR_kill, getpid(), SIGUSR1, 0);
	ut_code_in_handler(self->code.base, &call, &want);
	r = one_sample(_metadata, self);
	EXPECT_TRUE(ut_stack_is(&self->s, r, &want));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

TEST_F(tables, signal)
{
	in_handler(_metadata, self, NULL, 0);
}

TEST_F(tables, signal_on_another_stack)
{
	static char alt[65536] UT_ATTRIBUTE(aligned(16));

	in_handler(_metadata, self, alt, sizeof(alt));
}

/* In the trampoline itself: the handler has returned. */
TEST_F(tables, sigreturn)
{
	struct ut_stack call, want, got;

	ASSERT_EQ(0, ut_load_section(self->fd, self->code.base, &self->section));
	ASSERT_EQ(0, ut_code_handle(self->code.base, SIGUSR1, NULL, 0));
	ASSERT_EQ(0, ut_open(&self->s, &self_task));
	self->event = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_rt_sigreturn");
	ASSERT_LE(0, self->event);
	/* At sys_enter; the registers change before the way out. */
	ASSERT_EQ(0, ut_write_sysctl(DEFER, 0));
	ASSERT_EQ(0, ut_enable(&self->s));
	ut_code_call(self->code.base, &call, __NR_kill, getpid(), SIGUSR1, 0);
	ut_code_in_handler(self->code.base, &call, &want);
	ASSERT_EQ(UT_IMMEDIATE, ut_user_stack(&self->s, one_sample(_metadata, self), &got));
	ASSERT_EQ(call.nr + 1, got.nr);
	EXPECT_EQ(want.ip[1] + 7, got.ip[0]);
	EXPECT_EQ(0, memcmp(got.ip + 1, call.ip, call.nr * sizeof(*call.ip)));
}

/* The file is known by what it is: at another address, in a child, after an exec. */
TEST_F(tables, another_mapping)
{
	struct ut_stack call;
	char *other = ut_code_map(&self->code, NULL);

	ASSERT_NE(NULL, other);
	ASSERT_EQ(0, ut_load_section(self->fd, other, &self->section));
	start(_metadata, self, &self_task);
	ut_code_call(self->code.base, &call, __NR_getppid, 0, 0, 0);
	EXPECT_TRUE(ut_stack_is(&self->s, one_sample(_metadata, self), &call));
	ut_code_call(other, &call, __NR_getppid, 0, 0, 0);
	EXPECT_TRUE(ut_stack_is(&self->s, one_sample(_metadata, self), &call));
	munmap(other, UT_CODE_SIZE);
	ut_code_call(self->code.base, &call, __NR_getppid, 0, 0, 0);
	EXPECT_TRUE(ut_stack_is(&self->s, one_sample(_metadata, self), &call));
}

TEST_F(tables, fork)
{
	const struct ut_opts opts = { .switches = true, .per_cpu = true, .inherit = true };
	struct ut_stack *call = ut_shared(sizeof(*call));
	pid_t pid;

	ASSERT_NE(NULL, call);
	ASSERT_EQ(0, ut_load_section(self->fd, self->code.base, &self->section));
	start(_metadata, self, &opts);
	pid = fork();
	if (!pid) {
		ut_code_call(self->code.base, call, __NR_getppid, 0, 0, 0);
		_exit(0);
	}
	ASSERT_EQ(pid, waitpid(pid, NULL, 0));
	EXPECT_TRUE(ut_stack_is(&self->s, one_sample(_metadata, self), call));
}

#define NEW_IMAGE	"--new-image"

/* What the new image does: the file is named, and mapped anew. Its stack goes to a pipe. */
static int new_image(const char *path, const char *out)
{
	struct ut_code code = { .fd = open(path, O_RDWR) };
	struct ut_stack call;

	code.base = code.fd < 0 ? NULL : ut_code_map(&code, NULL);
	if (!code.base)
		return 1;
	ut_code_call(code.base, &call, __NR_getppid, 0, 0, 0);
	return ut_write_all(atoi(out), &call, sizeof(call)) ? 1 : 0;
}

TEST_F(tables, exec)
{
	struct ut_opts opts = { .per_cpu = true, .enable_on_exec = true };
	const char *path = "/tmp/ut_code_exec";
	struct ut_stack call;
	struct ut_code code;
	char number[16];
	int out[2], go[2];
	pid_t pid;
	char c;

	ASSERT_EQ(0, ut_code_new(&code, path));
	ASSERT_EQ(0, ut_load_section(self->fd, code.base, &self->section));
	ASSERT_EQ(0, pipe(out));
	ASSERT_EQ(0, pipe(go));
	snprintf(number, sizeof(number), "%d", out[1]);
	pid = fork();
	if (!pid) {
		close(go[1]);
		if (read(go[0], &c, 1) == 1)
			execl("/proc/self/exe", "tables", NEW_IMAGE, path, number, NULL);
		_exit(1);
	}
	opts.pid = pid;
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	self->event = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid");
	ASSERT_LE(0, self->event);
	ASSERT_EQ(1, write(go[1], "", 1));
	close(out[1]);
	EXPECT_EQ(0, ut_read_all(out[0], &call, sizeof(call)));
	ASSERT_EQ(pid, waitpid(pid, NULL, 0));
	EXPECT_TRUE(ut_stack_is(&self->s, one_sample(_metadata, self), &call));
	ut_code_free(&code);
	unlink(path);
}

/* Another file at the path has no table, nor has one that is written. */
TEST_F(tables, replaced)
{
	const char *path = "/tmp/ut_code_replaced";
	struct ut_stack call, less;
	struct ut_code old, new;

	ASSERT_EQ(0, ut_code_new(&old, path));
	ASSERT_EQ(0, ut_load_section(self->fd, old.base, &self->section));
	unlink(path);
	ASSERT_EQ(0, ut_code_new(&new, path));
	start(_metadata, self, &self_task);
	ut_code_call(new.base, &call, __NR_getppid, 0, 0, 0);
	ut_code_short(&call, &less);
	EXPECT_TRUE(ut_stack_is(&self->s, one_sample(_metadata, self), &less));
	ut_code_call(old.base, &call, __NR_getppid, 0, 0, 0);
	EXPECT_TRUE(ut_stack_is(&self->s, one_sample(_metadata, self), &call));

	ASSERT_EQ(1, pwrite(old.fd, "", 1, UT_CODE_OFFSET + UT_CODE_SIZE));
	ut_code_call(old.base, &call, __NR_getppid, 0, 0, 0);
	ut_code_short(&call, &less);
	EXPECT_TRUE(ut_stack_is(&self->s, one_sample(_metadata, self), &less));
	ut_code_free(&old);
	ut_code_free(&new);
	unlink(path);
}

/*
 * The vDSO: at a function's first instruction the caller is found by a table, which says
 * that the return address is on top of the stack, and not by the frame pointer.
 */
TEST_F(tables, vdso)
{
	char *vdso = (char *)getauxval(AT_SYSINFO_EHDR);
	struct ut_section s = {};
	struct ut_stack got;
	unsigned long entry;
	unsigned int i;
	void *frame;

	if (!vdso)
		SKIP(return, "this kernel was told to have no vDSO");
	/* Any "ret" of it will do: the stack is the same there as at a first instruction. */
	for (i = 0x400; i < 0x1000 && (__u8)vdso[i] != 0xc3; i++)
		;
	ASSERT_LT(i, 0x1000);
	entry = (unsigned long)vdso + i;
	ut_section_function(&s, 0, 0x1000, 0, 0, 0);
	ut_section_row(&s, 0, true, 8, 0);
	ut_section_make(&s);
	ASSERT_EQ(0, ut_load_section(self->fd, vdso + 0x500, &s));
	EXPECT_EQ(0, ut_load_section(self->fd, vdso, &s));

	ASSERT_EQ(0, ut_open(&self->s, &self_task));
	self->event = ut_add_user_instruction(&self->s, entry);
	ASSERT_EQ(0, ut_enable(&self->s));
	frame = __builtin_frame_address(0);
	asm volatile("sub $128, %%rsp\n"
		     "call *%[entry]\n"
		     ".globl vdso_called\n"
		     "vdso_called:\n"
		     "add $128, %%rsp\n"
		     : : [entry] "r" (entry) : "memory", "cc");
	UT_LABEL(vdso_called);
	ASSERT_NE(UT_UNRESOLVED, ut_user_stack(&self->s, one_sample(_metadata, self), &got));
	ASSERT_LE(3, got.nr);
	EXPECT_EQ(entry, got.ip[0]);
	EXPECT_EQ((unsigned long)vdso_called, got.ip[1]);
	EXPECT_EQ(((unsigned long *)frame)[1], got.ip[2]);
}

/* The table of one session serves another. */
TEST_F(tables, serves_all)
{
	struct ut_stack call;
	int go[2], done[2];
	pid_t pid;
	char c;

	ASSERT_EQ(0, pipe(go));
	ASSERT_EQ(0, pipe(done));
	pid = fork();
	if (!pid) {
		int fd = ut_table_event();

		c = ut_load_section(fd, self->code.base, &self->section);
		if (write(done[1], &c, 1) == 1)
			_exit(read(go[0], &c, 1) != 1);
		_exit(1);
	}
	ASSERT_EQ(1, read(done[0], &c, 1));
	ASSERT_EQ(0, c);
	start(_metadata, self, &self_task);
	ut_code_call(self->code.base, &call, __NR_getppid, 0, 0, 0);
	EXPECT_TRUE(ut_stack_is(&self->s, one_sample(_metadata, self), &call));
	ASSERT_EQ(1, write(go[1], "", 1));
	ASSERT_EQ(pid, waitpid(pid, NULL, 0));
}

/* A wrong table makes a wrong stack, and nothing else. */
TEST_F(tables, wrong)
{
	struct ut_stack call, got;

	ut_code_section(&self->section, 8);
	ASSERT_EQ(0, ut_load_section(self->fd, self->code.base, &self->section));
	start(_metadata, self, &self_task);
	ut_code_call(self->code.base, &call, __NR_getppid, 0, 0, 0);
	ASSERT_EQ(UT_DEFERRED, ut_user_stack(&self->s, one_sample(_metadata, self), &got));
	EXPECT_EQ(call.ip[0], got.ip[0]);
	EXPECT_FALSE(ut_same_stack(&got, &call));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], NEW_IMAGE))
		return new_image(argv[2], argv[3]);
	return test_harness_run(argc, argv);
}

// SPDX-License-Identifier: GPL-2.0
/*
 * K23: deferral does not change the results of bpf_get_stack() and bpf_get_stackid() in
 * BPF programs, and not the user stacks of ftrace.
 *
 * The tests use each kind of program that a kernel without BTF accepts, because each
 * kind has its own path to the walk. They do not use bpf_get_task_stack(): without BTF
 * the verifier lets no program pass it a pointer to a task. From there on its path is that
 * of bpf_get_stack().
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

/* The results of the program: lengths or errors, then the user and the kernel stack. */
#define FRAMES	64

struct value {
	__s64	user_len;
	__s64	kernel_len;
	__s64	stackid;
	__u64	hits;
	__u64	user[FRAMES];
	__u64	kernel[FRAMES];
};

static int bpf(int cmd, union bpf_attr *attr)
{
	return syscall(__NR_bpf, cmd, attr, sizeof(*attr));
}

static int map_create(int type, int value_size, int entries)
{
	union bpf_attr attr = {
		.map_type = type, .key_size = 4, .value_size = value_size,
		.max_entries = entries,
	};

	return bpf(BPF_MAP_CREATE, &attr);
}

static int map_update(int fd, __u32 key, const void *value)
{
	union bpf_attr attr = {
		.map_fd = fd, .key = (unsigned long)&key, .value = (unsigned long)value,
	};

	return bpf(BPF_MAP_UPDATE_ELEM, &attr);
}

static int map_lookup(int fd, __u32 key, void *value)
{
	union bpf_attr attr = {
		.map_fd = fd, .key = (unsigned long)&key, .value = (unsigned long)value,
	};

	return bpf(BPF_MAP_LOOKUP_ELEM, &attr);
}

#define INSN(c, d, s, o, i) \
	((struct bpf_insn){ .code = c, .dst_reg = d, .src_reg = s, .off = o, .imm = i })
#define MOV_REG(d, s)		INSN(BPF_ALU64 | BPF_MOV | BPF_X, d, s, 0, 0)
#define MOV_IMM(d, i)		INSN(BPF_ALU64 | BPF_MOV | BPF_K, d, 0, 0, i)
#define ADD_IMM(d, i)		INSN(BPF_ALU64 | BPF_ADD | BPF_K, d, 0, 0, i)
#define STORE(d, o, s)		INSN(BPF_STX | BPF_MEM | BPF_DW, d, s, o, 0)
#define STORE_IMM(d, o, i)	INSN(BPF_ST | BPF_MEM | BPF_W, d, 0, o, i)
#define LOAD_MAP(d, fd)		INSN(BPF_LD | BPF_DW | BPF_IMM, d, BPF_PSEUDO_MAP_FD, 0, fd)
#define LOAD_MAP_HIGH		INSN(0, 0, 0, 0, 0)
#define MOV_IMM32(d, i)		INSN(BPF_ALU | BPF_MOV | BPF_K, d, 0, 0, i)
#define CALL(f)			INSN(BPF_JMP | BPF_CALL, 0, 0, 0, f)
#define EXIT_INSN		INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)

static char verifier[65536];

static int load_insns(int type, const struct bpf_insn *insns, unsigned int nr, __u32 flags)
{
	union bpf_attr attr = {
		.prog_type = type,
		.prog_flags = flags,
		.insns = (unsigned long)insns,
		.insn_cnt = nr,
		.license = (unsigned long)"GPL",
		.log_buf = (unsigned long)verifier,
		.log_size = sizeof(verifier),
		.log_level = 1,
	};
	int fd = bpf(BPF_PROG_LOAD, &attr);

	if (fd < 0)
		ut_diag("BPF_PROG_LOAD: %s: %s", strerror(errno), verifier);
	return fd;
}

static int prog_load(int type, int values, int stacks, __u32 flags)
{
	struct bpf_insn insns[] = {
		/* Some programs are called for every task: skip all but this one. */
		MOV_REG(BPF_REG_6, BPF_REG_1),
		CALL(BPF_FUNC_get_current_pid_tgid),
		INSN(BPF_JMP32 | BPF_JEQ | BPF_K, BPF_REG_0, 0, 2, gettid()),
		MOV_IMM(BPF_REG_0, 1),
		EXIT_INSN,

		STORE_IMM(BPF_REG_10, -4, 0),
		LOAD_MAP(BPF_REG_1, values),
		LOAD_MAP_HIGH,
		MOV_REG(BPF_REG_2, BPF_REG_10),
		ADD_IMM(BPF_REG_2, -4),
		CALL(BPF_FUNC_map_lookup_elem),
		INSN(BPF_JMP | BPF_JNE | BPF_K, BPF_REG_0, 0, 1, 0),
		EXIT_INSN,
		MOV_REG(BPF_REG_7, BPF_REG_0),

		INSN(BPF_LDX | BPF_MEM | BPF_DW, BPF_REG_1, BPF_REG_7,
		     offsetof(struct value, hits), 0),
		ADD_IMM(BPF_REG_1, 1),
		STORE(BPF_REG_7, offsetof(struct value, hits), BPF_REG_1),

		MOV_REG(BPF_REG_1, BPF_REG_6),
		MOV_REG(BPF_REG_2, BPF_REG_7),
		ADD_IMM(BPF_REG_2, offsetof(struct value, user)),
		MOV_IMM(BPF_REG_3, FRAMES * 8),
		MOV_IMM(BPF_REG_4, BPF_F_USER_STACK),
		CALL(BPF_FUNC_get_stack),
		STORE(BPF_REG_7, offsetof(struct value, user_len), BPF_REG_0),

		MOV_REG(BPF_REG_1, BPF_REG_6),
		MOV_REG(BPF_REG_2, BPF_REG_7),
		ADD_IMM(BPF_REG_2, offsetof(struct value, kernel)),
		MOV_IMM(BPF_REG_3, FRAMES * 8),
		MOV_IMM(BPF_REG_4, 0),
		CALL(BPF_FUNC_get_stack),
		STORE(BPF_REG_7, offsetof(struct value, kernel_len), BPF_REG_0),

		/* Return 1, so that the event's own sample is written, too. */
		MOV_IMM(BPF_REG_0, 1),
		/* A sleepable program ends here. */
		flags & BPF_F_SLEEPABLE ? EXIT_INSN : MOV_REG(BPF_REG_1, BPF_REG_6),
		LOAD_MAP(BPF_REG_2, stacks),
		LOAD_MAP_HIGH,
		MOV_IMM(BPF_REG_3, BPF_F_USER_STACK | BPF_F_REUSE_STACKID),
		CALL(BPF_FUNC_get_stackid),
		STORE(BPF_REG_7, offsetof(struct value, stackid), BPF_REG_0),
		MOV_IMM(BPF_REG_0, 1),
		EXIT_INSN,
	};
	/* A sleepable program cannot use a map of stacks, so leave out the rest. */
	const unsigned int sleepable_insns = ARRAY_SIZE(insns) - 7;

	return load_insns(type, insns,
			  flags & BPF_F_SLEEPABLE ? sleepable_insns : ARRAY_SIZE(insns), flags);
}

/* A program that writes a word into the event of this CPU. */
static int prog_load_output(int events)
{
	/* If another task runs, the event is not active, and nothing is written. */
	const struct bpf_insn insns[] = {
		STORE_IMM(BPF_REG_10, -4, 0),
		LOAD_MAP(BPF_REG_2, events),
		LOAD_MAP_HIGH,
		MOV_IMM32(BPF_REG_3, -1),	/* BPF_F_CURRENT_CPU */
		MOV_REG(BPF_REG_4, BPF_REG_10),
		ADD_IMM(BPF_REG_4, -4),
		MOV_IMM(BPF_REG_5, 4),
		CALL(BPF_FUNC_perf_event_output),
		MOV_IMM(BPF_REG_0, 1),
		EXIT_INSN,
	};

	return load_insns(BPF_PROG_TYPE_RAW_TRACEPOINT, insns, ARRAY_SIZE(insns), 0);
}

FIXTURE(bpf) {
	struct ut_session s;
	int values, stacks;
	struct value v;
};

FIXTURE_VARIANT(bpf) {
	bool immediate;
};

/* The same tests with immediate callchains must have the same results. */
FIXTURE_VARIANT_ADD(bpf, immediate) {
	.immediate = true,
};

FIXTURE_VARIANT_ADD(bpf, deferred) {
	.immediate = false,
};

FIXTURE_SETUP(bpf)
{
	struct ut_opts opts = { .pid = 0, .immediate = variant->immediate };

	self->values = map_create(BPF_MAP_TYPE_ARRAY, sizeof(struct value), 1);
	self->stacks = map_create(BPF_MAP_TYPE_STACK_TRACE, FRAMES * 8, 128);
	ASSERT_LE(0, self->values) TH_LOG("CONFIG_BPF_SYSCALL? %s", strerror(errno));
	ASSERT_LE(0, self->stacks);
	ASSERT_EQ(0, ut_open(&self->s, &opts));
}

FIXTURE_TEARDOWN(bpf)
{
	ut_close(&self->s);
}

/* A stack that comes from a sample's callchain begins with PERF_CONTEXT_USER (@context). */
static bool same_user_stack(struct value *v, int stacks, const struct ut_stack *st, bool context)
{
	struct ut_stack got, want = { .nr = context };
	__u64 by_id[FRAMES] = {};

	want.ip[0] = PERF_CONTEXT_USER;
	memcpy(&want.ip[want.nr], st->ip, st->nr * sizeof(st->ip[0]));
	want.nr += st->nr;

	if (v->user_len <= 0 || v->user_len % 8) {
		ut_diag("bpf_get_stack(): %lld", v->user_len);
		return false;
	}
	got.nr = v->user_len / 8;
	memcpy(got.ip, v->user, v->user_len);
	if (!ut_same_stack(&got, &want))
		return false;
	if (stacks < 0)
		return true;
	if (v->stackid < 0 || map_lookup(stacks, v->stackid, by_id)) {
		ut_diag("bpf_get_stackid(): %lld", v->stackid);
		return false;
	}
	memcpy(got.ip, by_id, want.nr * 8);
	return ut_same_stack(&got, &want);
}

/* Has the sample its stack? If a program reads the callchain, it may be immediate. */
static bool sample_has(struct ut_session *s, int event, const struct ut_stack *want)
{
	struct ut_rec *r = ut_sample(s, event, 0, 0);
	struct ut_stack got;
	enum ut_kind kind;

	if (!r)
		return false;
	kind = ut_user_stack(s, r, &got);
	return (kind == UT_DEFERRED || kind == UT_IMMEDIATE) && ut_same_stack(&got, want);
}

/* Has the sample its stack? If no program reads the callchain, it must be deferred. */
static bool sample_is(struct ut_session *s, int event, const struct ut_stack *want,
		      bool immediate)
{
	struct ut_rec *r = ut_sample(s, event, 0, 0);
	struct ut_stack got;

	return r && ut_user_stack(s, r, &got) == (immediate ? UT_IMMEDIATE : UT_DEFERRED) &&
	       ut_same_stack(&got, want);
}

/* Let a program run at the samples of an event. */
static int run_at(struct ut_session *s, int event, int prog)
{
	if (event < 0 || prog < 0)
		return -1;
	return ioctl(s->event[event].fd[0], PERF_EVENT_IOC_SET_BPF, prog);
}

static void one_call(void *arg)
{
	ut_syscall0(arg, __NR_getppid);
}

/* A program on a tracepoint walks the stack by itself. */
TEST_F(bpf, tracepoint)
{
	struct ut_stack st;
	int tp, prog;

	tp = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid");
	prog = prog_load(BPF_PROG_TYPE_TRACEPOINT, self->values, self->stacks, 0);
	ASSERT_EQ(0, run_at(&self->s, tp, prog));
	ASSERT_EQ(0, ut_profile_ladder(&self->s, 6, one_call, &st));
	ASSERT_EQ(0, map_lookup(self->values, 0, &self->v));
	EXPECT_EQ(1, self->v.hits);
	EXPECT_TRUE(same_user_stack(&self->v, self->stacks, &st, false));
	EXPECT_TRUE(sample_has(&self->s, tp, &st));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

static void rename_self(void *arg)
{
	ut_syscall2(arg, __NR_prctl, PR_SET_NAME, "renamed");
}

/* The program is attached without an event: it runs at every hit, in any task. */
static int profile_rename(struct ut_session *s, int prog, struct ut_stack *st)
{
	union bpf_attr attr = {
		.raw_tracepoint.name = (unsigned long)"task_rename",
		.raw_tracepoint.prog_fd = prog,
	};
	int link, err;

	if (prog < 0 || ut_enable(s))
		return -1;
	link = bpf(BPF_RAW_TRACEPOINT_OPEN, &attr);
	if (link < 0)
		return -1;
	err = ut_ladder(6, rename_self, st);
	close(link);
	return err ?: ut_stop(s);
}

/* A program on a raw tracepoint, and an event that samples the same tracepoint. */
TEST_F(bpf, raw_tracepoint)
{
	struct ut_stack st;
	int tp, prog;

	tp = ut_add_tracepoint(&self->s, "task", "task_rename");
	prog = prog_load(BPF_PROG_TYPE_RAW_TRACEPOINT, self->values, self->stacks, 0);
	ASSERT_EQ(0, profile_rename(&self->s, prog, &st));
	ASSERT_EQ(0, map_lookup(self->values, 0, &self->v));
	EXPECT_EQ(1, self->v.hits);
	EXPECT_TRUE(same_user_stack(&self->v, self->stacks, &st, false));
	EXPECT_LT(8, self->v.kernel_len);
	EXPECT_TRUE(sample_is(&self->s, tp, &st, variant->immediate));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* A sample that a program writes has its stack, deferred or immediate. */
TEST_F(bpf, output)
{
	struct perf_event_attr attr = {
		.type		= PERF_TYPE_SOFTWARE,
		.config		= PERF_COUNT_SW_BPF_OUTPUT,
		.sample_period	= 1,
	};
	long nr = sysconf(_SC_NPROCESSORS_CONF), cpu;
	int event, events, prog;
	struct ut_stack st;

	event = ut_add(&self->s, &attr);
	ASSERT_LE(0, event);
	events = map_create(BPF_MAP_TYPE_PERF_EVENT_ARRAY, sizeof(int), nr);
	ASSERT_LE(0, events);
	for (cpu = 0; cpu < nr; cpu++)
		ASSERT_EQ(0, map_update(events, cpu, &self->s.event[event].fd[0]));
	prog = prog_load_output(events);
	ASSERT_EQ(0, profile_rename(&self->s, prog, &st));
	EXPECT_EQ(1, ut_count_samples(&self->s, event, 0));
	EXPECT_TRUE(sample_has(&self->s, event, &st));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* A program on a probe of a kernel function. */
TEST_F(bpf, kprobe)
{
	struct ut_stack st;
	int tp, probe, prog;

	tp = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid");
	probe = ut_add_probe(&self->s, "kprobe", "__x64_sys_getppid", 0, false);
	prog = prog_load(BPF_PROG_TYPE_KPROBE, self->values, self->stacks, 0);
	ASSERT_EQ(0, run_at(&self->s, probe, prog));
	ASSERT_EQ(0, ut_profile_ladder(&self->s, 6, one_call, &st));
	ASSERT_EQ(0, map_lookup(self->values, 0, &self->v));
	EXPECT_EQ(1, self->v.hits);
	EXPECT_TRUE(same_user_stack(&self->v, self->stacks, &st, false));
	EXPECT_LT(8, self->v.kernel_len);
	EXPECT_TRUE(sample_is(&self->s, tp, &st, variant->immediate));
	EXPECT_TRUE(sample_has(&self->s, probe, &st));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* A function of the test; the probe is where its frame is set up. */
UT_LABEL(bpf_probed);
static ut_noinline void probed(void *arg)
{
	ut_walk_self(arg, (unsigned long)bpf_probed, __builtin_frame_address(0));
	asm volatile(".globl bpf_probed\nbpf_probed: nop" : : : "memory");
}

/* Put two events on the probe, and the program on one of them. */
static bool probe_and_run(struct ut_session *s, int prog, struct ut_stack *st, int *probe,
			  int *with_prog)
{
	*probe = ut_add_own_probe(s, bpf_probed, false);
	*with_prog = ut_add_own_probe(s, bpf_probed, false);
	return !run_at(s, *with_prog, prog) && !ut_profile_ladder(s, 6, probed, st);
}

TEST_F(bpf, uprobe)
{
	int probe, with_prog, prog;
	struct ut_stack st;

	prog = prog_load(BPF_PROG_TYPE_KPROBE, self->values, self->stacks, 0);
	ASSERT_TRUE(probe_and_run(&self->s, prog, &st, &probe, &with_prog));
	ASSERT_EQ(0, map_lookup(self->values, 0, &self->v));
	EXPECT_EQ(1, self->v.hits);
	EXPECT_TRUE(same_user_stack(&self->v, self->stacks, &st, false));
	EXPECT_TRUE(sample_is(&self->s, probe, &st, variant->immediate));
	EXPECT_TRUE(sample_has(&self->s, with_prog, &st));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* A sleepable program has its own variant of bpf_get_stack(). */
TEST_F(bpf, uprobe_sleepable)
{
	int probe, with_prog, prog;
	struct ut_stack st;

	prog = prog_load(BPF_PROG_TYPE_KPROBE, self->values, -1, BPF_F_SLEEPABLE);
	ASSERT_TRUE(probe_and_run(&self->s, prog, &st, &probe, &with_prog));
	ASSERT_EQ(0, map_lookup(self->values, 0, &self->v));
	EXPECT_EQ(1, self->v.hits);
	EXPECT_TRUE(same_user_stack(&self->v, -1, &st, false));
	EXPECT_TRUE(sample_is(&self->s, probe, &st, variant->immediate));
	EXPECT_TRUE(sample_has(&self->s, with_prog, &st));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* An instance of ftrace, with its own buffer and options. */
#define TRACE	"/sys/kernel/tracing/instances/unwind_test"
#define TRACED	8	/* the number of frames that ftrace keeps */

static int trace_getppid(void)
{
	if (ut_tracepoint_id("syscalls", "sys_enter_getppid") < 0)
		return -1;
	rmdir(TRACE);
	if (mkdir(TRACE, 0700) || ut_write_sysctl(TRACE "/options/userstacktrace", 1) ||
	    ut_write_sysctl(TRACE "/events/syscalls/sys_enter_getppid/enable", 1)) {
		ut_diag("%s: %s", TRACE, strerror(errno));
		return -1;
	}
	return 0;
}

/* Count the stacks in the trace, and store the last one in @st. */
static int traced_stacks(struct ut_stack *st)
{
	FILE *f = fopen(TRACE "/trace", "r");
	bool inside = false;
	char line[512], *p;
	int nr = 0;

	st->nr = 0;
	while (f && fgets(line, sizeof(line), f)) {
		if (strstr(line, "<user stack trace>")) {
			inside = true;
			st->nr = 0;
			nr++;
		} else if (inside && !strncmp(line, " =>", 3)) {
			p = strchr(line, '<');
			if (p && st->nr < UT_MAX_FRAMES)
				st->ip[st->nr++] = strtoull(p + 1, NULL, 16);
		} else {
			inside = false;
		}
	}
	if (f)
		fclose(f);
	return f ? nr : -1;
}

/* ftrace has its own walk, which pending stacks of samples do not affect. */
TEST_F(bpf, userstacktrace)
{
	struct ut_stack st, traced;
	int tp, nr;

	tp = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid");
	ASSERT_EQ(0, trace_getppid());
	ASSERT_EQ(0, ut_profile_ladder(&self->s, 10, one_call, &st));
	nr = traced_stacks(&traced);
	ut_write_sysctl(TRACE "/events/syscalls/sys_enter_getppid/enable", 0);
	EXPECT_EQ(0, rmdir(TRACE));
	EXPECT_EQ(1, nr);
	EXPECT_EQ(TRACED, traced.nr);
	EXPECT_TRUE(ut_stack_within(&traced, &st));
	EXPECT_TRUE(sample_is(&self->s, tp, &st, variant->immediate));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* A stack, and the descriptors that the functions on it need. */
struct work {
	struct ut_stack	st;
	int		event, file;
};

UT_LABEL(bpf_touch);
static ut_noinline void touch(void *arg)
{
	struct work *w = arg;
	char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ut_walk_self(&w->st, (unsigned long)bpf_touch, __builtin_frame_address(0));
	ioctl(w->event, PERF_EVENT_IOC_ENABLE, 0);
	asm volatile(".globl bpf_touch\nbpf_touch: movb $1, (%0)" : : "r" (p) : "memory");
	ioctl(w->event, PERF_EVENT_IOC_DISABLE, 0);
	munmap(p, 4096);
}

/* Run @fn, which enables the event of page faults for one fault, with a program at it. */
static void fault_with_prog(struct __test_metadata *_metadata, FIXTURE_DATA(bpf) * self, ut_fn fn,
			    struct work *w)
{
	int prog = prog_load(BPF_PROG_TYPE_PERF_EVENT, self->values, self->stacks, 0);

	ASSERT_EQ(0, ut_add_software(&self->s, PERF_COUNT_SW_PAGE_FAULTS, 1));
	ASSERT_EQ(0, run_at(&self->s, 0, prog));
	ASSERT_EQ(0, ioctl(self->s.ring[0].fd, PERF_EVENT_IOC_ENABLE, 0));
	w->event = self->s.event[0].fd[0];
	ASSERT_EQ(0, ut_ladder(6, fn, w));
	ASSERT_EQ(0, ut_stop(&self->s));
	ASSERT_EQ(0, map_lookup(self->values, 0, &self->v));
}

/* A program on a software event gets the sample's callchain. */
TEST_F(bpf, perf_event)
{
	struct work w;

	fault_with_prog(_metadata, self, touch, &w);
	EXPECT_EQ(1, self->v.hits);
	EXPECT_TRUE(same_user_stack(&self->v, self->stacks, &w.st, true));
	/* The fault comes from user space, so there is no kernel stack. */
	EXPECT_GE(0, self->v.kernel_len);
	EXPECT_TRUE(sample_has(&self->s, 0, &w.st));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

static void in_kernel(void *arg)
{
	struct work *w = arg;
	char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ioctl(w->event, PERF_EVENT_IOC_ENABLE, 0);
	ut_syscall4(&w->st, __NR_pread64, w->file, p, 4096, 0);
	ioctl(w->event, PERF_EVENT_IOC_DISABLE, 0);
	munmap(p, 4096);
}

/* A fault in a system call has kernel frames, too. */
TEST_F(bpf, perf_event_in_kernel)
{
	struct work w = { .file = memfd_create("file", 0) };
	unsigned int i;

	ASSERT_EQ(0, ftruncate(w.file, 4096));
	fault_with_prog(_metadata, self, in_kernel, &w);
	EXPECT_LE(1, self->v.hits);
	EXPECT_TRUE(same_user_stack(&self->v, self->stacks, &w.st, true));
	ASSERT_LT(8, self->v.kernel_len);
	for (i = 0; i < self->v.kernel_len / 8; i++)
		EXPECT_NE(0, self->v.kernel[i] >> 63) TH_LOG("%llx", self->v.kernel[i]);
}

int main(int argc, char **argv)
{
	ut_need_root();
	return test_harness_run(argc, argv);
}

// SPDX-License-Identifier: GPL-2.0
/*
 * K1, K2, K3: a kernel entry has one cookie, and one record until the task leaves its
 * CPU, whatever the number and the contexts of its samples.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/hw_breakpoint.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

static const struct ut_opts self_task = { .pid = 0, .switches = true };

FIXTURE(entry) {
	struct ut_session s;
};

FIXTURE_SETUP(entry)
{
}

FIXTURE_TEARDOWN(entry)
{
	ut_close(&self->s);
}

/* Does every sample of this task have the cookie of the first one? */
static bool one_cookie(struct ut_session *s)
{
	struct ut_rec *first = ut_sample(s, -1, 0, 0), *r;
	unsigned int i;

	for (i = 0; (r = ut_sample(s, -1, 0, i)); i++) {
		if (!r->cookie || r->cookie != first->cookie) {
			ut_diag("sample %u of event %llu: cookie %llx, the first has %llx", i,
				r->id, r->cookie, first->cookie);
			return false;
		}
	}
	return true;
}

struct call {
	struct ut_stack	st;
	long		nr, a1, a2, a3, ret;
};

static void do_call(void *arg)
{
	struct call *c = arg;

	c->ret = ut_syscall3(&c->st, c->nr, c->a1, c->a2, c->a3);
}

/* Tracepoints at the entry, in the middle and at the exit of a system call. */
TEST_F(entry, many_tracepoints_in_one_system_call)
{
	static const char * const tps[][2] = {
		{ "raw_syscalls", "sys_enter" },
		{ "syscalls", "sys_enter_prctl" },
		{ "task", "task_rename" },
		{ "syscalls", "sys_exit_prctl" },
		{ "raw_syscalls", "sys_exit" },
	};
	struct call c = { .nr = __NR_prctl, .a1 = PR_SET_NAME, .a2 = (long)"renamed" };
	struct ut_rec *r;
	int tp[ARRAY_SIZE(tps)];
	unsigned int i;

	ASSERT_EQ(0, ut_open(&self->s, &self_task));
	for (i = 0; i < ARRAY_SIZE(tps); i++)
		tp[i] = ut_add_tracepoint(&self->s, tps[i][0], tps[i][1]);
	ASSERT_EQ(0, ut_profile_ladder(&self->s, 7, do_call, &c));

	/* The raw tracepoints sample the session's own ioctl() calls, too. */
	r = ut_sample(&self->s, tp[1], 0, 0);
	ASSERT_TRUE(ut_stack_is(&self->s, r, &c.st));
	EXPECT_TRUE(ut_one_record(&self->s, r));
	for (i = 2; i <= 3; i++) {
		ASSERT_EQ(1, ut_count_samples(&self->s, tp[i], 0));
		EXPECT_EQ(r->cookie, ut_sample(&self->s, tp[i], 0, 0)->cookie);
	}
	for (i = 0; i < 5; i += 4) {
		struct ut_rec *raw;
		unsigned int n, same = 0;

		for (n = 0; (raw = ut_sample(&self->s, tp[i], 0, n)); n++)
			same += raw->cookie == r->cookie;
		EXPECT_EQ(1, same) TH_LOG("%s", tps[i][1]);
	}
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

static void two_calls(void *arg)
{
	struct call *c = arg;

	do_call(c);
	do_call(c + 1);
}

/* K2 */
TEST_F(entry, next_system_call_has_another_cookie)
{
	struct call c[2] = {
		{ .nr = __NR_prctl, .a1 = PR_SET_NAME, .a2 = (long)"first" },
		{ .nr = __NR_prctl, .a1 = PR_SET_NAME, .a2 = (long)"second" },
	};
	struct ut_rec *r[2];
	int enter, rename, i;

	ASSERT_EQ(0, ut_open(&self->s, &self_task));
	enter = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_prctl");
	rename = ut_add_tracepoint(&self->s, "task", "task_rename");
	ASSERT_EQ(0, ut_profile_ladder(&self->s, 3, two_calls, c));
	for (i = 0; i < 2; i++) {
		r[i] = ut_sample(&self->s, enter, 0, i);
		ASSERT_TRUE(ut_stack_is(&self->s, r[i], &c[i].st));
		EXPECT_EQ(r[i]->cookie, ut_sample(&self->s, rename, 0, i)->cookie);
		EXPECT_TRUE(ut_one_record(&self->s, r[i]));
	}
	EXPECT_NE(r[0]->cookie, r[1]->cookie);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* A page fault of the kernel in a system call belongs to the system call. */
TEST_F(entry, page_faults_in_the_kernel)
{
	size_t page = sysconf(_SC_PAGESIZE);
	struct call c = { .nr = __NR_pread64 };
	struct ut_rec *r;
	int tp, faults, fd;
	unsigned int i;
	char *buf;

	buf = mmap(NULL, 16 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, buf);
	fd = memfd_create("data", 0);
	ASSERT_EQ(0, ftruncate(fd, 16 * page));
	c.a1 = fd;
	c.a2 = (long)buf;
	c.a3 = 16 * page;

	ASSERT_EQ(0, ut_open(&self->s, &self_task));
	tp = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_pread64");
	faults = ut_add_software(&self->s, PERF_COUNT_SW_PAGE_FAULTS, 1);
	ASSERT_EQ(0, ut_enable(&self->s));
	ASSERT_EQ(0, ut_ladder(7, do_call, &c));
	ut_disable(&self->s);
	ASSERT_EQ(16 * page, c.ret);
	ASSERT_EQ(0, ut_drain(&self->s));
	ASSERT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, tp, 0, 0), &c.st));
	for (i = 0, tp = 0; (r = ut_sample(&self->s, faults, 0, i)); i++) {
		if (r->cookie == ut_sample(&self->s, 0, 0, 0)->cookie)
			tp++;
	}
	EXPECT_LE(16, tp);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

UT_LABEL(touch_here);
static ut_noinline void touch(void *arg)
{
	struct ut_stack *st = arg;
	char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ut_walk_self(st, (unsigned long)touch_here, __builtin_frame_address(0));
	asm volatile(".globl touch_here\ntouch_here: movb $1, (%0)" : : "r" (p) : "memory");
	munmap(p, 4096);
}

/* A page fault of the program is an entry of its own. */
TEST_F(entry, page_fault_of_the_program)
{
	struct ut_rec *r, *hit = NULL;
	struct ut_stack st;
	unsigned int i;
	int faults;

	ASSERT_EQ(0, ut_open(&self->s, &self_task));
	faults = ut_add_software(&self->s, PERF_COUNT_SW_PAGE_FAULTS, 1);
	ASSERT_EQ(0, ut_profile_ladder(&self->s, 7, touch, &st));
	for (i = 0; (r = ut_sample(&self->s, faults, 0, i)); i++) {
		if (r->ip == (unsigned long)touch_here)
			hit = r;
	}
	EXPECT_TRUE(ut_stack_is(&self->s, hit, &st));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* Two events sample the fault, one with deferral and one without. Each gets the stack. */
TEST_F(entry, page_fault_counted_twice)
{
	struct ut_rec *r, *hit[2] = {};
	struct ut_stack st, got;
	int faults[2], i, k;

	ASSERT_EQ(0, ut_open(&self->s, &self_task));
	for (i = 0; i < 2; i++) {
		self->s.opts.immediate = i;
		faults[i] = ut_add_software(&self->s, PERF_COUNT_SW_PAGE_FAULTS, 1);
	}
	ASSERT_EQ(0, ut_profile_ladder(&self->s, 7, touch, &st));
	for (k = 0; k < 2; k++) {
		for (i = 0; (r = ut_sample(&self->s, faults[k], 0, i)); i++) {
			if (r->ip == (unsigned long)touch_here)
				hit[k] = r;
		}
		ASSERT_NE(NULL, hit[k]);
		EXPECT_EQ(k ? UT_IMMEDIATE : UT_DEFERRED, ut_user_stack(&self->s, hit[k], &got));
		EXPECT_TRUE(ut_same_stack(&got, &st));
	}
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* Sample kernel code that writes to a word of this task. */
static int add_watchpoint(struct ut_session *s, const void *word)
{
	struct perf_event_attr attr = {
		.type		= PERF_TYPE_BREAKPOINT,
		.bp_type	= HW_BREAKPOINT_W,
		.bp_addr	= (unsigned long)word,
		.bp_len		= HW_BREAKPOINT_LEN_8,
		.sample_period	= 1,
		.exclude_user	= 1,
	};

	return ut_add(s, &attr);
}

/*
 * K3: a debug exception in kernel mode is handled like an NMI. The system call writes to
 * a word with a watchpoint.
 */
TEST_F(entry, nmi_in_a_system_call)
{
	struct timespec ts UT_ATTRIBUTE(aligned(8));
	struct call c = { .nr = __NR_clock_gettime, .a1 = CLOCK_MONOTONIC, .a2 = (long)&ts };
	int bp;

	ASSERT_EQ(0, ut_open(&self->s, &self_task));
	bp = add_watchpoint(&self->s, &ts);
	ASSERT_EQ(0, ut_profile_ladder(&self->s, 7, do_call, &c));
	ASSERT_LE(1, ut_count_samples(&self->s, bp, 0));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, bp, 0, 0), &c.st));
	EXPECT_TRUE(one_cookie(&self->s));
	EXPECT_TRUE(ut_one_record(&self->s, ut_sample(&self->s, bp, 0, 0)));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* The same with samples in task context before and after it. */
TEST_F(entry, nmi_between_others)
{
	struct timespec ts UT_ATTRIBUTE(aligned(8));
	struct call c = { .nr = __NR_clock_gettime, .a1 = CLOCK_MONOTONIC, .a2 = (long)&ts };
	int bp, enter, exit;

	ASSERT_EQ(0, ut_open(&self->s, &self_task));
	bp = add_watchpoint(&self->s, &ts);
	enter = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_clock_gettime");
	exit = ut_add_tracepoint(&self->s, "syscalls", "sys_exit_clock_gettime");
	ASSERT_EQ(0, ut_profile_ladder(&self->s, 7, do_call, &c));
	ASSERT_LE(1, ut_count_samples(&self->s, bp, 0));
	ASSERT_EQ(1, ut_count_samples(&self->s, enter, 0));
	ASSERT_EQ(1, ut_count_samples(&self->s, exit, 0));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, bp, 0, 0), &c.st));
	EXPECT_TRUE(one_cookie(&self->s));
	EXPECT_TRUE(ut_one_record(&self->s, ut_sample(&self->s, bp, 0, 0)));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/*
 * An NMI at each instruction of a request in task context. A breakpoint is put on every
 * byte of unwind_deferred_request*() in turn. It is hit if the byte is the first one of
 * an instruction that runs. A kernel with KASAN or KCSAN has many more bytes, and is
 * slow: there the test takes a part of them, evenly spread.
 */
TEST_F_TIMEOUT(entry, nmi_in_every_instruction_of_a_request, 300)
{
	unsigned int hits = 0, samples = 0, step, n;
	struct call c = { .nr = __NR_getppid };
	__u64 start, end, addr;
	int bp, enter;

	ASSERT_EQ(0, ut_kallsyms("unwind_deferred_request", &start, &end));
	ASSERT_LT(end - start, 8192);
	step = ut_kernel_checks_itself() ? (end - start) / 250 + 1 : 1;
	ASSERT_EQ(0, ut_open(&self->s, &self_task));
	enter = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid");
	bp = ut_add_instruction(&self->s, start);
	for (addr = start; addr < end; addr += step) {
		ASSERT_EQ(0, ut_move_instruction(&self->s, bp, addr));
		ASSERT_EQ(0, ut_profile_ladder(&self->s, 3, do_call, &c));
		n = ut_count_samples(&self->s, bp, 0);
		hits += !!n;
		samples += n;
		ASSERT_EQ(1, ut_count_samples(&self->s, enter, 0));
		EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, enter, 0, 0), &c.st))
			TH_LOG("unwind_deferred_request+%#llx", addr - start);
		EXPECT_TRUE(one_cookie(&self->s))
			TH_LOG("unwind_deferred_request+%#llx", addr - start);
		EXPECT_TRUE(ut_one_record(&self->s, ut_sample(&self->s, enter, 0, 0)))
			TH_LOG("unwind_deferred_request+%#llx", addr - start);
		EXPECT_EQ(0, ut_check(&self->s, 0));
		ut_forget(&self->s);
	}
	TH_LOG("%u of %llu bytes hit, %u samples", hits, (end - start) / step, samples);
	EXPECT_LT(10, hits);
}

/* After a move to another CPU the exit code must load the FPU's registers. */
static void move_to(void *arg)
{
	struct call *c = arg;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(c->nr, &set);
	c->ret = ut_syscall3(&c->st, __NR_sched_setaffinity, 0, sizeof(set), &set);
}

/*
 * An NMI after the exit work, on the way to user space: the kernel does not look for
 * pending work any more. The request of the NMI raises an interrupt, which comes before
 * the next instruction of the program. So the sample still gets the stack of this entry.
 */
TEST_F(entry, nmi_behind_the_exit_work)
{
	unsigned int i, n, hits = 0;
	int cpus[UT_MAX_CPUS], func;
	struct call c = {};
	struct ut_stack got;
	struct ut_rec *r;

	if (ut_online_cpus(cpus, UT_MAX_CPUS) < 2)
		SKIP(return, "needs two CPUs");
	ASSERT_EQ(0, ut_open(&self->s, &self_task));
	func = ut_add_function(&self->s, "restore_fpregs_from_fpstate");
	for (i = 0; i < 20 && hits < 3; i++) {
		ut_forget(&self->s);
		ASSERT_EQ(0, ut_enable(&self->s));
		c.nr = cpus[i % 2];
		ASSERT_EQ(0, ut_ladder(7, move_to, &c));
		ASSERT_EQ(0, c.ret);
		ASSERT_EQ(0, ut_stop(&self->s));
		for (n = 0; (r = ut_sample(&self->s, func, 0, n)); n++) {
			EXPECT_EQ(UT_DEFERRED, ut_user_stack(&self->s, r, &got));
			/* The sample may be of the exit of the ioctl() that enables. */
			if (got.nr && got.ip[0] != c.st.ip[0])
				continue;
			EXPECT_TRUE(ut_same_stack(&got, &c.st));
			hits++;
		}
		EXPECT_EQ(0, ut_check(&self->s, 0));
	}
	EXPECT_LE(3, hits);
}

/*
 * A probe or a tracepoint at the same place is no NMI, so no interrupt follows. A request
 * would only be handled in the next kernel entry, after user space has run. So the sample
 * has an immediate stack, or an empty record.
 */
static void behind_the_exit_work(struct __test_metadata *_metadata, struct ut_session *s,
				 int event)
{
	unsigned int i, n, right = 0;
	int cpus[UT_MAX_CPUS];
	struct call c = {};
	struct ut_stack got;
	struct ut_rec *r;

	ASSERT_LE(2, ut_online_cpus(cpus, UT_MAX_CPUS)) TH_LOG("needs two CPUs");
	/* After a preemption the registers of the FPU are loaded in another entry, too. */
	ASSERT_EQ(0, ut_fifo());
	ASSERT_EQ(0, ut_enable(s));
	for (i = 0; i < 20; i++) {
		c.nr = cpus[i % 2];
		ASSERT_EQ(0, ut_ladder(7, move_to, &c));
		ASSERT_EQ(0, c.ret);
	}
	ASSERT_EQ(0, ut_stop(s));
	for (n = 0; (r = ut_sample(s, event, 0, n)); n++) {
		if (ut_user_stack(s, r, &got) == UT_DEFERRED) {
			EXPECT_EQ(0, got.nr) TH_LOG("sample %u", n);
			right += !got.nr;
			continue;
		}
		/* One sample may be of the exit of the ioctl(). */
		right += ut_stack_is_immediate(s, r, &c.st);
	}
	EXPECT_LE(3, n);
	EXPECT_LE(n, right + 1);
	EXPECT_EQ(0, ut_check(s, 0));
}

TEST_F(entry, probe_behind_the_exit_work)
{
	ASSERT_EQ(0, ut_open(&self->s, &self_task));
	behind_the_exit_work(_metadata, &self->s,
			     ut_add_probe(&self->s, "kprobe", "restore_fpregs_from_fpstate", 0,
					  false));
}

TEST_F(entry, tracepoint_behind_the_exit_work)
{
	ASSERT_EQ(0, ut_open(&self->s, &self_task));
	behind_the_exit_work(_metadata, &self->s,
			     ut_add_tracepoint(&self->s, "x86_fpu", "x86_fpu_regs_activated"));
}

/* The timer interrupts a long system call many times. It is still one entry. */
TEST_F(entry, interrupts_in_one_system_call)
{
	const size_t size = 64 << 20, megabyte = 1 << 20;
	struct call c = { .nr = __NR_getrandom };
	struct ut_rec *r, *first;
	unsigned int i, inside = 0;
	struct timespec from, to;
	int enter, exit, clock;
	char *buf;
	long ns;

	buf = mmap(NULL, size, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	ASSERT_NE(MAP_FAILED, buf);
	c.a1 = (long)buf;

	/* A quarter of a second at most: the buffer has room for that many samples. */
	syscall(__NR_getrandom, buf, megabyte, 0);
	clock_gettime(CLOCK_MONOTONIC, &from);
	syscall(__NR_getrandom, buf, megabyte, 0);
	clock_gettime(CLOCK_MONOTONIC, &to);
	ns = (to.tv_sec - from.tv_sec) * 1000000000L + to.tv_nsec - from.tv_nsec;
	c.a2 = ns > 250000000 / 64 ? 250000000 * megabyte / ns : size;

	ASSERT_EQ(0, ut_open(&self->s, &self_task));
	enter = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getrandom");
	exit = ut_add_tracepoint(&self->s, "syscalls", "sys_exit_getrandom");
	clock = ut_add_software(&self->s, PERF_COUNT_SW_CPU_CLOCK, 1000000);
	ASSERT_EQ(0, ut_profile_ladder(&self->s, 7, do_call, &c));
	first = ut_sample(&self->s, enter, 0, 0);
	EXPECT_TRUE(ut_stack_is(&self->s, first, &c.st));
	ASSERT_EQ(1, ut_count_samples(&self->s, exit, 0));
	EXPECT_EQ(first->cookie, ut_sample(&self->s, exit, 0, 0)->cookie);
	for (i = 0; (r = ut_sample(&self->s, clock, 0, i)); i++) {
		if (r->time <= first->time || r->time >= ut_sample(&self->s, exit, 0, 0)->time)
			continue;
		inside++;
		EXPECT_EQ(first->cookie, r->cookie);
	}
	EXPECT_LE(3, inside);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

struct spin {
	struct ut_stack	st;
	unsigned long	from, to;	/* between these addresses its frame exists */
	int		cpu;		/* for spin_elsewhere(): the CPU to run on */
	int		held;		/* spin until the test clears it */
};

static ut_noinline unsigned long here(void)
{
	asm volatile("" : : : "memory");
	return (unsigned long)__builtin_return_address(0);
}

static ut_noinline void spin(void *arg)
{
	struct timespec now, end;
	struct spin *sp = arg;

	ut_walk_self(&sp->st, 0, __builtin_frame_address(0));
	sp->from = here();
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec++;
	do {
		int i;

		for (i = 0; i < 100000; i++)
			asm volatile("" : : : "memory");
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (UT_READ(sp->held) || now.tv_sec < end.tv_sec ||
		 (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec));
	sp->to = here();
	asm volatile("" : : : "memory");	/* no tail call */
}

static int write_byte(const char *path, char byte)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int err = fd < 0 || write(fd, &byte, 1) != 1;

	if (fd >= 0)
		close(fd);
	return err ? -1 : 0;
}

/* Each interrupt of the program is an entry of its own. */
TEST_F(entry, interrupts_of_the_program)
{
	unsigned int i, in_spin = 0;
	struct ut_stack got;
	struct spin sp = {};
	struct ut_rec *r;
	int clock;

	ASSERT_EQ(0, ut_open(&self->s, &self_task));
	clock = ut_add_software(&self->s, PERF_COUNT_SW_CPU_CLOCK, 5000000);
	ASSERT_EQ(0, ut_profile_ladder(&self->s, 7, spin, &sp));
	for (i = 0; (r = ut_sample(&self->s, clock, 0, i)); i++) {
		if (r->ip < sp.from || r->ip >= sp.to)
			continue;
		EXPECT_EQ(UT_DEFERRED, ut_user_stack(&self->s, r, &got));
		ASSERT_LT(0, got.nr);
		EXPECT_EQ(r->ip, got.ip[0]);
		sp.st.ip[0] = got.ip[0];
		EXPECT_TRUE(ut_same_stack(&got, &sp.st));
		in_spin++;
	}
	EXPECT_LE(3, in_spin);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

static void spin_elsewhere(void *arg)
{
	struct spin *sp = arg;

	if (!ut_pin(0, sp->cpu))
		ut_ladder(7, spin, sp);
}

/*
 * NMIs that interrupt the program. An NMI returns without exit work. So the request raises
 * an interrupt, which comes before the next instruction of the program.
 */
TEST_F(entry, nmi_of_the_program)
{
	struct spin *sp = ut_shared(sizeof(*sp));
	unsigned int i, in_spin = 0;
	int cpus[UT_MAX_CPUS], handler;
	struct ut_opts opts = {};
	struct ut_stack got;
	enum ut_kind kind;
	struct ut_child c;
	struct ut_rec *r;

	ASSERT_NE(NULL, sp);
	if (ut_online_cpus(cpus, UT_MAX_CPUS) < 2)
		SKIP(return, "needs two CPUs");
	sp->cpu = cpus[1];
	sp->held = 1;
	ASSERT_EQ(0, ut_pin(0, cpus[0]));
	ASSERT_EQ(0, ut_watch(&self->s, &opts, &c, spin_elsewhere, sp));
	handler = ut_add_tracepoint(&self->s, "nmi", "nmi_handler");
	ASSERT_EQ(0, ut_start(&self->s, &c));
	while (!UT_READ(sp->from))
		usleep(1000);
	/* SysRq-l sends an NMI to each other CPU, to print a backtrace. */
	for (i = 0; i < 3; i++)
		ASSERT_EQ(0, write_byte("/proc/sysrq-trigger", 'l'))
			TH_LOG("CONFIG_MAGIC_SYSRQ?");
	__atomic_store_n(&sp->held, 0, __ATOMIC_RELEASE);
	ASSERT_EQ(0, ut_wait(&c));
	ASSERT_EQ(0, ut_stop(&self->s));
	for (i = 0; (r = ut_sample(&self->s, handler, c.pid, i)); i++) {
		kind = ut_user_stack(&self->s, r, &got);
		/* An NMI may also interrupt an interrupt of the program. */
		EXPECT_TRUE(kind == UT_DEFERRED || kind == UT_IMMEDIATE) TH_LOG("%d", kind);
		/* Or the entry of one, with the registers of an earlier entry: then it is empty. */
		if (!got.nr || got.ip[0] < sp->from || got.ip[0] >= sp->to)
			continue;
		sp->st.ip[0] = got.ip[0];
		EXPECT_TRUE(ut_same_stack(&got, &sp->st));
		in_spin += kind == UT_DEFERRED;
	}
	EXPECT_LE(1, in_spin);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

int main(int argc, char **argv)
{
	ut_need_root();
	return test_harness_run(argc, argv);
}

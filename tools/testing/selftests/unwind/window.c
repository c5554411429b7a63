// SPDX-License-Identifier: GPL-2.0
/*
 * K3, K11: the window of the switch. A task is about to leave its CPU, so its stack cannot
 * be deferred any more: the samples there are immediate. And NMIs at the entry of a system
 * call in which the task then sleeps: the record comes before the switch. It has the right
 * stack or is empty, and never has the stack of another entry.
 */
#include <asm/perf_regs.h>
#include <errno.h>
#include <linux/hw_breakpoint.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

#define BYTE	1

/* Two tasks on one CPU. Each of them wakes the other one and sleeps. */
struct task {
	struct ut_stack	write, read;
	int		from, to;
	int		cpu, depth;
	unsigned long	rounds;
};

static void wake_and_sleep(void *arg)
{
	struct task *t = arg;
	char byte;

	while (ut_syscall3(&t->write, __NR_write, t->to, "x", BYTE) == BYTE &&
	       ut_syscall3(&t->read, __NR_read, t->from, &byte, BYTE) == BYTE) {
		__atomic_add_fetch(&t->rounds, 1, __ATOMIC_RELEASE);
		ut_relax();
	}
}

static void ladder_wake_and_sleep(void *arg)
{
	struct task *t = arg;

	if (!ut_pin(0, t->cpu))
		ut_ladder(t->depth, wake_and_sleep, t);
}

FIXTURE(window) {
	struct ut_session s;
	struct task *task;	/* two tasks */
	struct ut_child c[2];
	int cpu;
};

FIXTURE_SETUP(window)
{
	int cpus[UT_MAX_CPUS], fds[2][2], i;
	unsigned int nr = ut_online_cpus(cpus, UT_MAX_CPUS);

	self->cpu = cpus[nr - 1];
	self->task = ut_shared(2 * sizeof(*self->task));
	ASSERT_NE(NULL, self->task);
	ASSERT_EQ(0, pipe(fds[0]));
	ASSERT_EQ(0, pipe(fds[1]));
	for (i = 0; i < 2; i++) {
		self->task[i].from = fds[i][0];
		self->task[i].to = fds[!i][1];
		self->task[i].cpu = self->cpu;
		self->task[i].depth = 4 + 3 * i;
		ASSERT_EQ(0, ut_fork(&self->c[i], ladder_wake_and_sleep, &self->task[i]));
	}
	ASSERT_EQ(0, ut_pin(0, cpus[0]));
}

static void end_children(struct ut_child *c)
{
	int i;

	for (i = 0; i < 2; i++)
		ut_end_child(&c[i]);
}

FIXTURE_TEARDOWN(window)
{
	end_children(self->c);
	ut_close(&self->s);
}

static void wait_rounds(struct task *t, unsigned int nr)
{
	unsigned long from = UT_READ(t->rounds);

	while (UT_READ(t->rounds) < from + nr) {
		ut_relax();
		sched_yield();
	}
}

/*
 * If the task was in one of its system calls, is this the right stack? In other places, if
 * the task was preempted in its program, the right stack is not known.
 */
static bool right_stack(const struct ut_stack *got, const struct task *t)
{
	const struct ut_stack *want;

	if (!got->nr || got->ip[0] != (unsigned long)ut_syscall_ret)
		return true;
	/* After the switch of the memory map the frames cannot be read. */
	if (got->nr == 1)
		return true;
	want = got->ip[1] == t->write.ip[1] ? &t->write : &t->read;
	return ut_same_stack(got, want);
}

struct kinds {
	unsigned int	kind[UT_UNRESOLVED + 1];
	unsigned int	in_call;	/* immediate stacks in a system call */
};

/* Check all samples of the two tasks, by one event or by all. */
static bool right_samples(struct ut_session *s, int event, struct ut_child *c, struct task *t,
			  struct kinds *kinds)
{
	struct ut_stack got;
	enum ut_kind kind;
	struct ut_rec *r;
	int i, k;

	for (i = 0; i < 2; i++) {
		for (k = 0; (r = ut_sample(s, event, c[i].pid, k)); k++) {
			kind = ut_user_stack(s, r, &got);
			kinds->kind[kind]++;
			kinds->in_call += kind == UT_IMMEDIATE && got.nr &&
					  got.ip[0] == (unsigned long)ut_syscall_ret;
			if (!right_stack(&got, &t[i])) {
				ut_diag("task %d, sample %d at %llx", i, k, r->ip);
				return false;
			}
		}
	}
	return true;
}

/* These events fire in the window. None of their samples is deferred, all have a stack. */
TEST_F(window, immediate)
{
	static const char * const what[] = {
		"sched:sched_switch", "context-switches", "a probe of perf's own hook",
	};
	struct ut_opts opts = { .pid = -1, .per_cpu = true, .switches = true };
	struct kinds kinds;
	unsigned int i;

	ASSERT_EQ(0, ut_open(&self->s, &opts));
	ASSERT_EQ(0, ut_add_tracepoint(&self->s, "sched", "sched_switch"));
	ASSERT_EQ(1, ut_add_software(&self->s, PERF_COUNT_SW_CONTEXT_SWITCHES, 1));
	ASSERT_EQ(2, ut_add_probe(&self->s, "kprobe", "__perf_event_task_sched_out", 0, false));
	for (i = 0; i < 2; i++)
		ASSERT_EQ(0, ut_go(&self->c[i]));
	wait_rounds(&self->task[0], 2);
	ASSERT_EQ(0, ut_enable(&self->s));
	wait_rounds(&self->task[0], 50);
	ASSERT_EQ(0, ut_stop(&self->s));
	for (i = 0; i < ARRAY_SIZE(what); i++) {
		memset(&kinds, 0, sizeof(kinds));
		EXPECT_TRUE(right_samples(&self->s, i, self->c, self->task, &kinds))
			TH_LOG("%s", what[i]);
		EXPECT_EQ(0, kinds.kind[UT_DEFERRED]) TH_LOG("%s", what[i]);
		EXPECT_EQ(0, kinds.kind[UT_UNRESOLVED]) TH_LOG("%s", what[i]);
		EXPECT_EQ(0, kinds.kind[UT_NO_STACK]) TH_LOG("%s", what[i]);
		EXPECT_LE(50, kinds.in_call) TH_LOG("%s", what[i]);
	}
	EXPECT_EQ(0, ut_check(&self->s, ut_allow_lost(&self->s)));
}

/* The number of breakpoints of a CPU. */
#define BREAKPOINTS	4
/* The number of addresses that are tried in a function. */
#define ADDRESSES	120

/*
 * Breakpoints are put on the addresses of these functions in turn, in the window and around
 * it. They are handled like an NMI. A breakpoint on the first byte of an instruction is hit.
 * The test takes a part of the addresses, evenly spread, with another start in each run.
 */
static const char * const functions[] = {
	"__schedule", "__perf_event_task_sched_out", "__unwind_deferred_flush",
	"switch_mm_irqs_off", "__switch_to", "finish_task_switch",
};

/* Find a function by its name, or by its begin, as the compiler may have added a suffix. */
static int find_function(const char *name, __u64 *start, __u64 *end)
{
	return ut_kernel_function(name, start, end) ? ut_kallsyms(name, start, end) : 0;
}

struct breakpoints {
	struct perf_event_attr	attr;
	int			fd[BREAKPOINTS];
};

static int open_breakpoints(struct breakpoints *b, int cpu, int output, __u64 addr)
{
	int i;

	b->attr = (struct perf_event_attr){
		.type			= PERF_TYPE_BREAKPOINT,
		.size			= UT_ATTR_SIZE,
		.bp_type		= HW_BREAKPOINT_X,
		.bp_addr		= addr,
		.bp_len			= sizeof(long),
		.sample_type		= UT_SAMPLE_TYPE,
		.sample_period		= 1,
		.sample_max_stack	= 64,
		.sample_id_all		= 1,
		.exclude_user		= 1,
		.disabled		= 1,
	};
	*ut_attr_flags(&b->attr) |= UT_DEFER_CALLCHAIN;
	for (i = 0; i < BREAKPOINTS; i++) {
		b->fd[i] = ut_perf_open(&b->attr, -1, cpu, -1, 0);
		if (b->fd[i] < 0 || ioctl(b->fd[i], PERF_EVENT_IOC_SET_OUTPUT, output)) {
			ut_diag("breakpoint %d: %s", i, strerror(errno));
			return -1;
		}
	}
	return 0;
}

static int move_breakpoints(struct breakpoints *b, __u64 addr, __u64 step, __u64 end)
{
	int i, err = 0;

	b->attr.disabled = 0;
	for (i = 0; i < BREAKPOINTS; i++, addr += step) {
		b->attr.bp_addr = addr < end ? addr : end - 1;
		err |= ioctl(b->fd[i], PERF_EVENT_IOC_MODIFY_ATTRIBUTES, &b->attr);
	}
	return err;
}

static int stop_breakpoints(struct breakpoints *b)
{
	int i, err = 0;

	for (i = 0; i < BREAKPOINTS; i++)
		err |= ioctl(b->fd[i], PERF_EVENT_IOC_DISABLE, 0);
	return err;
}

/* Enable or disable the session's events of one CPU. */
static int switch_on(struct ut_session *s, unsigned int ring, bool on)
{
	const int fds[] = { s->ring[ring].fd, s->event[0].fd[ring] };

	/* The output event is enabled first and disabled last. */
	if (on)
		return ioctl(fds[0], PERF_EVENT_IOC_ENABLE, 0) |
		       ioctl(fds[1], PERF_EVENT_IOC_ENABLE, 0);
	return ioctl(fds[1], PERF_EVENT_IOC_DISABLE, 0) |
	       ioctl(fds[0], PERF_EVENT_IOC_DISABLE, 0);
}

/* The steps for which the buffer has room. */
#define STEPS	16

TEST_F_TIMEOUT(window, nmi, 290)
{
	struct ut_opts opts = {
		.pid = -1, .per_cpu = true, .switches = true, .pages = 2048,
	};
	struct breakpoints b;
	__u64 start, end, first, addr, step;
	unsigned int f, i, here;
	struct kinds kinds, read;
	unsigned int reads;

	ASSERT_EQ(0, ut_open(&self->s, &opts));
	/* The stack of this sample is pending at the switch. */
	ASSERT_EQ(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_read"));
	for (here = 0; self->s.ring[here].cpu != self->cpu; here++)
		;
	for (i = 0; i < 2; i++)
		ASSERT_EQ(0, ut_go(&self->c[i]));
	wait_rounds(&self->task[0], 2);
	for (f = 0; f < ARRAY_SIZE(functions); f++) {
		ASSERT_EQ(0, find_function(functions[f], &start, &end)) TH_LOG("%s", functions[f]);
		memset(&kinds, 0, sizeof(kinds));
		reads = 0;
		step = (end - start) / ADDRESSES + 1;
		first = start + getpid() % step;
		ASSERT_EQ(0, open_breakpoints(&b, self->cpu, self->s.ring[here].fd, start))
			TH_LOG("%s", functions[f]);
		for (addr = first; addr < end;) {
			ASSERT_EQ(0, switch_on(&self->s, here, true));
			for (i = 0; i < STEPS && addr < end; i++, addr += BREAKPOINTS * step) {
				ASSERT_EQ(0, move_breakpoints(&b, addr, step, end))
					TH_LOG("%s: %s", functions[f], strerror(errno));
				wait_rounds(&self->task[0], 2);
			}
			ASSERT_EQ(0, stop_breakpoints(&b));
			ASSERT_EQ(0, switch_on(&self->s, here, false));
			ASSERT_EQ(0, ut_drain(&self->s));
			ASSERT_TRUE(right_samples(&self->s, -1, self->c, self->task, &kinds))
				TH_LOG("%s up to %#llx", functions[f], addr - start);
			memset(&read, 0, sizeof(read));
			ASSERT_TRUE(right_samples(&self->s, 0, self->c, self->task, &read));
			reads += read.kind[UT_DEFERRED];
			EXPECT_EQ(0, read.kind[UT_IMMEDIATE] + read.kind[UT_NO_STACK]);
			ASSERT_EQ(0, ut_check(&self->s, ut_allow_lost(&self->s)))
				TH_LOG("%s up to %#llx", functions[f], addr - start);
			ut_forget(&self->s);
		}
		for (i = 0; i < BREAKPOINTS; i++)
			close(b.fd[i]);
		kinds.kind[UT_DEFERRED] -= reads;
		TH_LOG("%s+%llu, by %llu: %u immediate, %u deferred, %u without a stack",
		       functions[f], first - start, step,
		       kinds.kind[UT_IMMEDIATE], kinds.kind[UT_DEFERRED],
		       kinds.kind[UT_NO_STACK]);
		/* The first three functions are at least in part in the window. */
		if (f < 3)
			EXPECT_LT(0, kinds.kind[UT_IMMEDIATE]);
		if (f == 1)
			EXPECT_EQ(0, kinds.kind[UT_DEFERRED]);
		if (!f || f == ARRAY_SIZE(functions) - 1)
			EXPECT_LT(0, kinds.kind[UT_DEFERRED]);
	}
}

/*
 * A watchpoint on a word of the user registers at the top of the task's kernel stack. The
 * entry code hits it when it has saved some of the registers. The others are still those of
 * the entry before.
 */
struct entered {
	struct ut_stack	st[2];
	int		pipe[2];
	int		ready;
};

static void call_ppid(void *arg)
{
	struct entered *e = arg;

	ut_syscall0(&e->st[0], __NR_getppid);
}

static void call_sleep(void *arg)
{
	struct timespec ts = { .tv_nsec = 100000 };
	struct entered *e = arg;

	ut_syscall2(&e->st[1], __NR_nanosleep, &ts, NULL);
}

static void two_places(void *arg)
{
	struct entered *e = arg;

	for (;;) {
		ut_ladder(3, call_ppid, e);
		ut_ladder(6, call_sleep, e);
	}
}

/* The top of a task's kernel stack: the next aligned address above its stack pointer. */
static __u64 kernel_stack_top(pid_t pid)
{
	struct perf_event_attr attr = {
		.type			= PERF_TYPE_TRACEPOINT,
		.size			= UT_ATTR_SIZE,
		.sample_type		= PERF_SAMPLE_REGS_INTR,
		.sample_regs_intr	= 1ULL << PERF_REG_X86_SP,
		.sample_period		= 1,
	};
	int id = ut_tracepoint_id("sched", "sched_switch"), fd;
	const __u64 alignment = 16384;
	struct perf_event_mmap_page *page;
	struct ut_ring ring = {};
	__u64 *words, sp = 0;

	attr.config = id;
	fd = ut_perf_open(&attr, pid, -1, -1, 0);
	if (id < 0 || fd < 0 || ut_ring_map(&ring, fd, 1))
		return 0;
	page = ring.base;
	while (!__atomic_load_n(&page->data_head, __ATOMIC_ACQUIRE))
		usleep(1000);
	/* The record: its header, the ABI, and one register. */
	words = (__u64 *)((char *)ring.base + sysconf(_SC_PAGESIZE));
	if (words[1] == PERF_SAMPLE_REGS_ABI_64)
		sp = words[2];
	ut_ring_unmap(&ring);
	close(fd);
	return (sp + alignment - 1) & ~(alignment - 1);
}

static int add_watchpoint(struct ut_session *s, __u64 addr)
{
	struct perf_event_attr attr = {
		.type		= PERF_TYPE_BREAKPOINT,
		.bp_type	= HW_BREAKPOINT_W,
		.bp_addr	= addr,
		.bp_len		= HW_BREAKPOINT_LEN_8,
		.sample_period	= 1,
		.exclude_user	= 1,
	};

	return ut_add(s, &attr);
}

/* Words of struct pt_regs, counted from its end, in the order in which they are pushed. */
static const unsigned int words[] = {
	1,	/* ss */
	2,	/* sp */
	5,	/* ip */
	17,	/* bp */
	21,	/* r15, the last one */
};

/*
 * The sample of the watchpoint in the same entry, before the sample @call of the tracepoint.
 * NULL if the watchpoint has no later sample, since it may have been disabled by then.
 */
static struct ut_rec *before_the_call(struct ut_session *s, struct ut_rec *call, int watched)
{
	struct ut_rec *last = NULL, *r;
	size_t i;

	for (i = 0; i < s->nr_recs; i++) {
		r = &s->rec[i];
		if (r->tid != call->tid || r->type != PERF_RECORD_SAMPLE || r == call)
			continue;
		if (r->seq < call->seq)
			last = r;
		else if (r->id == s->event[watched].id[0])
			return last && last->id == r->id ? last : NULL;
	}
	return NULL;
}

FIXTURE(at_the_entry) {
	struct ut_session s;
	struct entered *e;
	struct ut_child c;
};

FIXTURE_SETUP(at_the_entry)
{
	self->e = ut_shared(sizeof(*self->e));
	ASSERT_NE(NULL, self->e);
	ASSERT_EQ(0, ut_fork(&self->c, two_places, self->e));
	ASSERT_EQ(0, ut_go(&self->c));
}

FIXTURE_TEARDOWN(at_the_entry)
{
	ut_end_child(&self->c);
	ut_close(&self->s);
}

/* Have the watchpoint's sample and the tracepoint's sample after it the right stack? */
static bool right_entry(struct ut_session *s, struct ut_rec *call, struct ut_rec *nmi,
			const struct ut_stack *want, unsigned int *whole)
{
	struct ut_stack got;

	if (ut_user_stack(s, nmi, &got) == UT_UNRESOLVED) {
		ut_diag("the NMI's sample has no record");
		return false;
	}
	*whole += got.nr > 0;
	return (!got.nr || ut_same_stack(&got, want)) &&
	       (call->cookie ? ut_stack_is(s, call, want) :
			       ut_stack_is_immediate(s, call, want));
}

TEST_F(at_the_entry, task_then_sleeps)
{
	/* With room for what comes while the reader's CPU stands still for a second. */
	struct ut_opts opts = { .pid = self->c.pid, .switches = true, .pages = 2048 };
	unsigned int w, pad, hits, padding = 0, whole, k;
	struct ut_rec *call, *nmi;
	int watched, i, tp[2];
	__u64 top;

	top = kernel_stack_top(self->c.pid);
	ASSERT_NE(0, top);
	for (w = 0; w < ARRAY_SIZE(words); w++) {
		hits = 0;
		whole = 0;
		/* Kernels with support for FRED have two more words above the registers. */
		for (pad = padding; pad <= 2 && !hits; pad += 2) {
			ASSERT_EQ(0, ut_open(&self->s, &opts));
			watched = add_watchpoint(&self->s, top - 8 * (words[w] + pad));
			tp[0] = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid");
			tp[1] = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_nanosleep");
			ASSERT_EQ(0, ut_enable(&self->s));
			do {
				usleep(1000);
				ASSERT_EQ(0, ut_drain(&self->s));
			} while (ut_count_samples(&self->s, tp[1], 0) < 50);
			ASSERT_EQ(0, ut_stop(&self->s));
			for (k = 0; k < 2; k++) {
				for (i = 0; (call = ut_sample(&self->s, tp[k], 0, i)); i++) {
					nmi = before_the_call(&self->s, call, watched);
					if (!nmi)
						continue;
					hits++;
					EXPECT_TRUE(right_entry(&self->s, call, nmi,
								&self->e->st[k], &whole))
						TH_LOG("word %u, call %d", words[w], i);
				}
			}
			EXPECT_EQ(0, ut_check(&self->s, 0)) TH_LOG("word %u", words[w]);
			ut_close(&self->s);
			if (hits)
				padding = pad;
		}
		EXPECT_LE(50, hits) TH_LOG("word %u", words[w]);
		TH_LOG("word %u: %u hits, %u with the stack", words[w], hits, whole);
	}
}

int main(int argc, char **argv)
{
	ut_need_root();
	return test_harness_run(argc, argv);
}

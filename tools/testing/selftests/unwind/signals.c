// SPDX-License-Identifier: GPL-2.0
/*
 * K10: a signal is delivered at the exit of the kernel entry in which a sample was
 * taken, and rt_sigreturn() replaces the registers in the middle of an entry. The
 * stack is the one of the entry. It may be empty if the request came during the
 * delivery, from an NMI or from task context with interrupts off.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

static const struct ut_opts self_task = { .pid = 0, .switches = true };

/* The handlers of a test store their stacks here. */
static struct ut_stack in_handler[4];
static int handlers;

FIXTURE(signals) {
	struct ut_session s;
};

FIXTURE_SETUP(signals)
{
}

FIXTURE_TEARDOWN(signals)
{
	ut_close(&self->s);
}

static void handler(int sig)
{
	struct ut_stack *st = &in_handler[handlers++];

	ut_syscall0(st, __NR_getppid);
	if (sig == SIGUSR2)
		return;
	/* Send a second signal from the first one's handler. */
	if (handlers == 1 && sig == SIGHUP)
		ut_syscall2(&in_handler[3], __NR_kill, getpid(), SIGUSR2);
}

static void kill_self(void *arg)
{
	ut_syscall2(arg, __NR_kill, getpid(), SIGUSR1);
}

static void hup_self(void *arg)
{
	ut_syscall2(arg, __NR_kill, getpid(), SIGHUP);
}

static void set_handler(int sig, int flags)
{
	struct sigaction sa = { .sa_handler = handler, .sa_flags = flags };

	sigaction(sig, &sa, NULL);
}

/* The only sample is taken just before the delivery of the signal, with interrupts off. */
TEST_F(signals, sample_at_delivery)
{
	struct ut_stack st;
	int tp;

	set_handler(SIGUSR1, 0);
	ASSERT_EQ(0, ut_open(&self->s, &self_task));
	tp = ut_add_tracepoint(&self->s, "signal", "signal_deliver");
	ASSERT_EQ(0, ut_profile_ladder(&self->s, 6, kill_self, &st));
	ASSERT_EQ(1, handlers);
	ASSERT_EQ(1, ut_count_samples(&self->s, tp, 0));
	EXPECT_TRUE(ut_has_stack_or_none(&self->s, ut_sample(&self->s, tp, 0, 0), &st));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* Samples throughout the system call and at the delivery have the same stack. */
TEST_F(signals, delivery_belongs_to_the_entry)
{
	static const char * const tps[][2] = {
		{ "syscalls", "sys_enter_kill" },
		{ "signal", "signal_generate" },
		{ "syscalls", "sys_exit_kill" },
		{ "signal", "signal_deliver" },
	};
	int tp[ARRAY_SIZE(tps)], ppid;
	struct ut_stack st;
	struct ut_rec *r, *first;
	unsigned int i;

	set_handler(SIGUSR1, 0);
	ASSERT_EQ(0, ut_open(&self->s, &self_task));
	for (i = 0; i < ARRAY_SIZE(tps); i++)
		tp[i] = ut_add_tracepoint(&self->s, tps[i][0], tps[i][1]);
	ppid = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid");
	/*
	 * signal_generate has interrupts off. If a switch handed out the stack before it, its
	 * sample would be immediate.
	 */
	ASSERT_EQ(0, ut_fifo());
	ASSERT_EQ(0, ut_profile_ladder(&self->s, 6, kill_self, &st));

	first = ut_sample(&self->s, tp[0], 0, 0);
	for (i = 0; i < ARRAY_SIZE(tps); i++) {
		r = ut_sample(&self->s, tp[i], 0, 0);
		/* The delivery begins with the walk, so its own sample may be immediate. */
		EXPECT_TRUE(i == ARRAY_SIZE(tps) - 1 ? ut_has_stack(&self->s, r, &st) :
						       ut_stack_is(&self->s, r, &st))
			TH_LOG("%s", tps[i][1]);
		if (r && r->cookie)
			EXPECT_EQ(first->cookie, r->cookie) TH_LOG("%s", tps[i][1]);
	}
	/* The handler's system call is another entry. */
	r = ut_sample(&self->s, ppid, 0, 0);
	ASSERT_TRUE(ut_stack_is(&self->s, r, &in_handler[0]));
	EXPECT_NE(first->cookie, r->cookie);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/*
 * At rt_sigreturn() the program is in the C library's restorer and the frame
 * pointer is that of the interrupted function. The walk must not see the
 * registers that the system call puts in place.
 */
TEST_F(signals, sigreturn)
{
	struct ut_stack st, want;
	struct ut_rec *enter, *exit = NULL, *r;
	int tp, raw;
	unsigned int i;

	set_handler(SIGUSR1, 0);
	ASSERT_EQ(0, ut_open(&self->s, &self_task));
	tp = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_rt_sigreturn");
	raw = ut_add_tracepoint(&self->s, "raw_syscalls", "sys_exit");
	ASSERT_EQ(0, ut_profile_ladder(&self->s, 6, kill_self, &st));

	enter = ut_sample(&self->s, tp, 0, 0);
	ASSERT_NE(NULL, enter);
	want = st;
	want.ip[0] = enter->ip;
	EXPECT_NE(st.ip[0], enter->ip);
	/* The restorer has no frame: the next frames are those of the interrupted function. */
	EXPECT_TRUE(ut_stack_is(&self->s, enter, &want));

	/* At the exit the registers are the interrupted program's: this is another stack. */
	for (i = 0; (r = ut_sample(&self->s, raw, 0, i)); i++) {
		if (r->time > enter->time) {
			exit = r;
			break;
		}
	}
	ASSERT_NE(NULL, exit);
	EXPECT_NE(enter->cookie, exit->cookie);
	EXPECT_TRUE(ut_has_stack(&self->s, exit, &st));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* The only sample in rt_sigreturn() is at its exit. */
TEST_F(signals, after_sigreturn)
{
	struct ut_rec *r;
	struct ut_stack st, got;
	unsigned int i, hits = 0;
	int raw;

	set_handler(SIGUSR1, 0);
	ASSERT_EQ(0, ut_open(&self->s, &self_task));
	raw = ut_add_tracepoint(&self->s, "raw_syscalls", "sys_exit");
	ASSERT_EQ(0, ut_profile_ladder(&self->s, 6, kill_self, &st));
	for (i = 0; (r = ut_sample(&self->s, raw, 0, i)); i++) {
		if (ut_user_stack(&self->s, r, &got) == UT_DEFERRED && got.nr == st.nr &&
		    !memcmp(got.ip, st.ip, st.nr * sizeof(st.ip[0])))
			hits++;
	}
	/* kill(), and the rt_sigreturn() that returns to the same place. */
	EXPECT_EQ(2, hits);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

TEST_F(signals, nested)
{
	struct ut_stack st;
	int kill_tp, deliver, ppid;

	set_handler(SIGHUP, 0);
	set_handler(SIGUSR2, 0);
	ASSERT_EQ(0, ut_open(&self->s, &self_task));
	kill_tp = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_kill");
	deliver = ut_add_tracepoint(&self->s, "signal", "signal_deliver");
	ppid = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid");
	ASSERT_EQ(0, ut_profile_ladder(&self->s, 6, hup_self, &st));
	ASSERT_EQ(2, handlers);
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, kill_tp, 0, 0), &st));
	EXPECT_TRUE(ut_has_stack(&self->s, ut_sample(&self->s, deliver, 0, 0), &st));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, ppid, 0, 0), &in_handler[0]));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, kill_tp, 0, 1), &in_handler[3]));
	EXPECT_TRUE(ut_has_stack(&self->s, ut_sample(&self->s, deliver, 0, 1), &in_handler[3]));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, ppid, 0, 1), &in_handler[1]));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

static void two_blocked(void *arg)
{
	sigset_t set, old;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGUSR2);
	sigprocmask(SIG_BLOCK, &set, &old);
	kill(getpid(), SIGUSR1);
	kill(getpid(), SIGUSR2);
	/* Both signals are delivered at the exit of this call. */
	ut_syscall4(arg, __NR_rt_sigprocmask, SIG_UNBLOCK, &set, NULL, 8);
}

/*
 * Two signals at one exit: while the second is delivered, the registers point to the
 * handler of the first, which has not run an instruction yet.
 */
TEST_F(signals, two_at_once)
{
	struct ut_stack st, got;
	struct ut_rec *r;
	int enter, deliver;

	set_handler(SIGUSR1, 0);
	set_handler(SIGUSR2, 0);
	ASSERT_EQ(0, ut_open(&self->s, &self_task));
	enter = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_rt_sigprocmask");
	deliver = ut_add_tracepoint(&self->s, "signal", "signal_deliver");
	ASSERT_EQ(0, ut_profile_ladder(&self->s, 6, two_blocked, &st));
	ASSERT_EQ(2, handlers);
	/* The C library has made the first call. */
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, enter, 0, 1), &st));
	EXPECT_TRUE(ut_has_stack(&self->s, ut_sample(&self->s, deliver, 0, 0), &st));
	r = ut_sample(&self->s, deliver, 0, 1);
	ASSERT_NE(NULL, r);
	EXPECT_NE(UT_UNRESOLVED, ut_user_stack(&self->s, r, &got));
	if (got.nr)
		EXPECT_TRUE(got.ip[0] == (unsigned long)handler || got.ip[0] == st.ip[0])
			TH_LOG("%llx", got.ip[0]);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

FIXTURE(altstack) {
	struct ut_session s;
};

FIXTURE_VARIANT(altstack) {
	bool above;
};

FIXTURE_VARIANT_ADD(altstack, below) {
	.above = false,
};

FIXTURE_VARIANT_ADD(altstack, above) {
	.above = true,
};

FIXTURE_SETUP(altstack)
{
}

FIXTURE_TEARDOWN(altstack)
{
	ut_close(&self->s);
}

/*
 * The alternative stack lies below or above the interrupted stack. If it lies above, the
 * next frame is at a lower address, and the chain ends there.
 */
TEST_F(altstack, frames)
{
	const size_t size = 256 << 10;
	char *mem = mmap(NULL, 2 * size, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	stack_t ss = { .ss_size = size };
	struct ut_stack st;
	int enter, ppid;

	ASSERT_NE(MAP_FAILED, mem);
	ss.ss_sp = variant->above ? mem + size : mem;
	ASSERT_EQ(0, sigaltstack(&ss, NULL));
	set_handler(SIGUSR1, SA_ONSTACK);
	ASSERT_EQ(0, ut_open(&self->s, &self_task));
	enter = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_kill");
	ppid = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid");
	ASSERT_EQ(0, ut_enable(&self->s));
	ut_switch_stack(kill_self, &st, (variant->above ? mem : mem + size) + size - 64);
	ASSERT_EQ(0, ut_stop(&self->s));
	ASSERT_EQ(1, handlers);
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, enter, 0, 0), &st));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, ppid, 0, 0), &in_handler[0]));
	/* The system call, the handler, the restorer; then the interrupted function, or nothing */
	EXPECT_TRUE(variant->above ? in_handler[0].nr == 3 : in_handler[0].nr > 3);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* A child that sends SIGALRM when the test sleeps in a system call, and not before. */
static void send_alarm(void *arg)
{
	if (ut_wait_state(getppid(), "S"))
		kill(getppid(), SIGALRM);
}

/* Profile a ladder on which @fn sleeps until such a child sends the signal. */
static int profile_until_alarm(struct ut_session *s, ut_fn fn, struct ut_stack *st)
{
	struct ut_child sender;

	return ut_fork(&sender, send_alarm, NULL) || ut_enable(s) || ut_go(&sender) ||
	       ut_ladder(6, fn, st) || ut_stop(s) || ut_wait(&sender) ? -1 : 0;
}

/* A signal interrupts a sleep: the sample of the sleep has the sleep's stack. */
static void sleep_until_alarm(void *arg)
{
	struct timespec ts = { .tv_sec = 20 };

	ut_syscall2(arg, __NR_nanosleep, &ts, NULL);
}

TEST_F(signals, interrupted_sleep)
{
	struct ut_stack st;
	int enter, exit, deliver;

	ASSERT_EQ(0, ut_open(&self->s, &self_task));
	enter = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_nanosleep");
	exit = ut_add_tracepoint(&self->s, "syscalls", "sys_exit_nanosleep");
	deliver = ut_add_tracepoint(&self->s, "signal", "signal_deliver");
	set_handler(SIGALRM, 0);
	ASSERT_EQ(0, profile_until_alarm(&self->s, sleep_until_alarm, &st));
	ASSERT_EQ(1, handlers);
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, enter, 0, 0), &st));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, exit, 0, 0), &st));
	EXPECT_TRUE(ut_has_stack(&self->s, ut_sample(&self->s, deliver, 0, 0), &st));
	EXPECT_EQ(ut_sample(&self->s, enter, 0, 0)->cookie,
		  ut_sample(&self->s, exit, 0, 0)->cookie);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/*
 * An NMI hits while the handler's frame is made, and still sees the registers of the entry.
 * But they are replaced before the requested stack can be walked, so it may be empty.
 */
TEST_F(signals, interrupted_in_the_delivery)
{
	struct ut_stack st;
	int func;

	ASSERT_EQ(0, ut_open(&self->s, &self_task));
	func = ut_add_function(&self->s, "copy_fpstate_to_sigframe");
	set_handler(SIGALRM, 0);
	ASSERT_EQ(0, profile_until_alarm(&self->s, sleep_until_alarm, &st));
	ASSERT_EQ(1, handlers);
	ASSERT_EQ(1, ut_count_samples(&self->s, func, 0));
	EXPECT_TRUE(ut_has_stack_or_none(&self->s, ut_sample(&self->s, func, 0, 0), &st));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* The stack with the ip at the system call instruction, which is to be restarted. */
static bool again(struct ut_session *s, struct ut_rec *r, const struct ut_stack *st)
{
	struct ut_stack want = *st;

	want.ip[0] -= 2;
	return ut_has_stack(s, r, &want);
}

static int refill[2];

static void give(int sig)
{
	handlers += write(refill[1], "x", 1);
}

static void read_refilled(void *arg)
{
	char byte;

	ut_syscall3(arg, __NR_read, refill[0], &byte, 1);
}

/* Set an alternative stack that has no present page. */
static int fresh_altstack(void)
{
	stack_t ss = { .ss_size = 256 << 10 };

	ss.ss_sp = mmap(NULL, ss.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			-1, 0);
	return ss.ss_sp == MAP_FAILED ? -1 : sigaltstack(&ss, NULL);
}

/*
 * A handler interrupts a system call, which is restarted after it. The registers change
 * before the handler's frame is made, and making the frame causes a page fault.
 */
TEST_F(signals, restarted_behind_the_handler)
{
	struct sigaction sa = { .sa_handler = give, .sa_flags = SA_RESTART | SA_ONSTACK };
	struct ut_rec *r, *deliver, *fault = NULL;
	struct ut_stack st;
	int tp, faults;
	unsigned int i;

	ASSERT_EQ(0, pipe(refill));
	ASSERT_EQ(0, fresh_altstack());
	ASSERT_EQ(0, ut_open(&self->s, &self_task));
	tp = ut_add_tracepoint(&self->s, "signal", "signal_deliver");
	faults = ut_add_software(&self->s, PERF_COUNT_SW_PAGE_FAULTS, 1);
	sigaction(SIGALRM, &sa, NULL);
	ASSERT_EQ(0, profile_until_alarm(&self->s, read_refilled, &st));
	ASSERT_EQ(1, handlers);
	deliver = ut_sample(&self->s, tp, 0, 0);
	ASSERT_TRUE(ut_has_stack_or_none(&self->s, deliver, &st));
	/* The first fault after the delivery is the one of the frame. */
	for (i = 0; !fault && (r = ut_sample(&self->s, faults, 0, i)); i++) {
		if (r->time > deliver->time)
			fault = r;
	}
	ASSERT_NE(NULL, fault);
	EXPECT_TRUE(again(&self->s, fault, &st));
	EXPECT_NE(deliver->cookie, fault->cookie);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

static void wait_for_nothing(void *arg)
{
	sigset_t none;

	sigemptyset(&none);
	ut_syscall(arg, __NR_ppoll, 0, 0, 0, (long)&none, 8, 0);
}

static void ladder_wait(void *arg)
{
	ut_ladder(6, wait_for_nothing, arg);
}

/*
 * A system call is stopped, and restarted without a handler. Its signal mask is restored
 * after the registers have changed, and before the task work runs.
 */
TEST_F(signals, restarted_after_a_stop)
{
	struct ut_stack *st = ut_shared(sizeof(*st)), got;
	struct ut_opts opts = {};
	struct ut_child c;
	struct ut_rec *r;
	unsigned int i, restarts = 0;
	int mask;

	ASSERT_NE(NULL, st);
	ASSERT_EQ(0, ut_watch(&self->s, &opts, &c, ladder_wait, st));
	mask = ut_add_function(&self->s, "__set_current_blocked");
	/* The stack of this sample, at the stop, has been handed out by then. */
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "signal", "signal_deliver"));
	ASSERT_EQ(0, ut_start(&self->s, &c));
	while (!UT_READ(st->nr))
		usleep(1000);
	for (i = 0; i < 3; i++) {
		ASSERT_TRUE(ut_wait_state(c.pid, "S"));
		ASSERT_EQ(0, kill(c.pid, SIGSTOP));
		ASSERT_TRUE(ut_wait_state(c.pid, "T"));
		ASSERT_EQ(0, kill(c.pid, SIGCONT));
	}
	ASSERT_TRUE(ut_wait_state(c.pid, "S"));
	ASSERT_EQ(0, kill(c.pid, SIGKILL));
	ASSERT_EQ(SIGKILL, ut_wait(&c));
	ASSERT_EQ(0, ut_stop(&self->s));
	for (i = 0; (r = ut_sample(&self->s, mask, c.pid, i)); i++) {
		EXPECT_EQ(UT_DEFERRED, ut_user_stack(&self->s, r, &got)) TH_LOG("sample %u", i);
		if (got.nr && got.ip[0] == st->ip[0] - 2)
			restarts += again(&self->s, r, st);
	}
	EXPECT_LE(3, restarts);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/*
 * A page fault while the frame of the first of two signals is made. The stack that it
 * requests must not affect the next sample, which has the registers of the first handler.
 */
TEST_F(signals, fault_between_two)
{
	struct ut_stack st, got;
	int faults, work;
	struct ut_rec *r;
	unsigned int i;

	ASSERT_EQ(0, fresh_altstack());
	set_handler(SIGUSR1, SA_ONSTACK);
	set_handler(SIGUSR2, SA_ONSTACK);
	ASSERT_EQ(0, ut_open(&self->s, &self_task));
	faults = ut_add_software(&self->s, PERF_COUNT_SW_PAGE_FAULTS, 1);
	/* This runs before the second delivery, if task work is pending. */
	work = ut_add_function(&self->s, "task_work_run");
	ASSERT_EQ(0, ut_profile_ladder(&self->s, 6, two_blocked, &st));
	ASSERT_EQ(2, handlers);
	for (i = 0; (r = ut_sample(&self->s, faults, 0, i)); i++) {
		if (ut_user_stack(&self->s, r, &got) == UT_DEFERRED && ut_same_stack(&got, &st))
			break;
	}
	EXPECT_NE(NULL, r);
	for (i = 0; (r = ut_sample(&self->s, work, 0, i)); i++) {
		enum ut_kind kind = ut_user_stack(&self->s, r, &got);

		/* It is immediate if the stack of the fault is pending. */
		EXPECT_TRUE(kind == UT_DEFERRED || kind == UT_IMMEDIATE) TH_LOG("sample %u", i);
	}
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

int main(int argc, char **argv)
{
	ut_need_root();
	return test_harness_run(argc, argv);
}

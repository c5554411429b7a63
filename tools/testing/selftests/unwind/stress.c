// SPDX-License-Identifier: GPL-2.0
/*
 * Everything at once, for a number of seconds: stress SECONDS.
 *
 * Processes work: system calls that sleep in several ways, fork and vfork, execve()
 * from any thread, signal handlers, thread groups that get killed, tracers, io_uring
 * workers. Meanwhile a CPU comes and goes, memory gets short, caches are dropped, and
 * profilers of every kind come and go: of a task of their own, of its descendants, of
 * somebody else, of all CPUs, now and then more of them than the kernel has slots.
 *
 * System calls are made with a stamp: a frame chain whose return addresses name the
 * task and a serial number, which is among the arguments of the system call as well.
 * So each stack can be told to be that of its task, and for a sample that has the
 * arguments, to be that of its kernel entry.
 *
 * A profiler that ends as it should counts what it got. Each of its samples has its
 * record, but for these, which are told apart and counted:
 *
 *  lost		the kernel says that it lost as many records, or more
 *  running	the last sample of a task that was still running when the profile ended
 *  unplugged	all CPUs were profiled, and one of them came or went meanwhile
 *
 * Where nobody runs any more at the end, only the first is let pass.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../kselftest.h"
#include "unwind_test.h"

#define LEAF		"--leaf"
#define PAGE		4096UL
#define MAX_CHAIN	127
#define CROWD		20	/* with the others more than there are slots */
#define FEW		5	/* profilers when there is no crowd */

enum work {
	CALLS, FORK, VFORK, EXEC, SIGNALS, KILLS, TRACE, URING, NR_WORK,
};

static const char * const work_name[] = {
	"system calls", "fork", "vfork", "exec", "signals", "kills", "ptrace", "io_uring",
};

/* What all of them count, in shared memory. */
struct totals {
	int		stop;
	pid_t		worker[NR_WORK];
	unsigned long	online;		/* how often a CPU came or went */
	unsigned long	open;		/* sessions at the moment */
	unsigned long	nr_closed;
	__u64		closed[64];	/* when the latest of them closed */
	unsigned long	rounds[NR_WORK];
	unsigned long	hotplugs, squeezes;
	unsigned long	sessions, refused, ended, exact, probes;
	unsigned long	samples, deferred, immediate, none;
	unsigned long	records, empty, merged, late, stamped, foreign, twice, cut, locked;
	unsigned long	lost_samples, lost_records;
	unsigned long	waiting, running, unplugged, unexplained;
	unsigned long	bad;
};

static struct totals *tot;
static char self_path[4096];
static bool failing;		/* the kernel is told to fail allocations */

static unsigned long add(unsigned long *to, unsigned long n)
{
	return __atomic_add_fetch(to, n, __ATOMIC_RELAXED);
}

static __thread __u64 rnd_state;

static __u32 rnd(__u32 below)
{
	if (!rnd_state) {
		struct timespec ts;

		clock_gettime(CLOCK_MONOTONIC, &ts);
		rnd_state = ((__u64)gettid() << 32 | ts.tv_nsec) * 0x9e3779b97f4a7c15ULL | 1;
	}
	rnd_state ^= rnd_state << 13;
	rnd_state ^= rnd_state >> 7;
	rnd_state ^= rnd_state << 17;
	return (rnd_state >> 16) % below;
}

static bool stop(void)
{
	return __atomic_load_n(&tot->stop, __ATOMIC_RELAXED);
}

static void nap(long us)
{
	struct timespec ts = { .tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000 };

	nanosleep(&ts, NULL);
}

/*
 * Stamps. Behind the system call's own address come: the task and the number of
 * frames that follow the stamp, the serial number, and a hash of it all.
 */
#define STAMP_TASK	0x5add00000000UL
#define STAMP_TASK_CUT	0x5ade00000000UL	/* its frames may not be there */
#define STAMP_SERIAL	0x5bdd00000000UL
#define STAMP_HASH	0x5cdd00000000UL
#define STAMP_HASH_KIN	0x5cde00000000UL	/* a child may show it, too */
#define STAMP_HASH_EXEC	0x5cdf00000000UL	/* in the middle of it the task is renamed */
#define STAMP_FRAME	0x5ddd00000000UL
#define STAMP_ARG	0x5eed57a300000000UL
#define STAMP_FRAMES	100

struct frame {
	unsigned long	fp, ra;
};

struct stamp_args {
	unsigned long	arg[6];
};

UT_LABEL(stamp_here);

static ut_noinline UT_ATTRIBUTE(naked)
long stamp_syscall(long nr, const struct stamp_args *args, void *fp)
{
	asm volatile("push %rbp\n"
		     "mov %rdx, %rbp\n"
		     "mov %rdi, %rax\n"
		     "mov %rsi, %rcx\n"
		     "mov (%rcx), %rdi\n"
		     "mov 8(%rcx), %rsi\n"
		     "mov 16(%rcx), %rdx\n"
		     "mov 24(%rcx), %r10\n"
		     "mov 32(%rcx), %r8\n"
		     "mov 40(%rcx), %r9\n"
		     "syscall\n"
		     ".globl stamp_here\n"
		     "stamp_here:\n"
		     /* Else it is in other system calls, which do not use it. */
		     "xor %r9d, %r9d\n"
		     "pop %rbp\n"
		     "ret\n");
}

static __u32 stamp_hash(__u32 task, __u32 serial)
{
	__u64 h = ((__u64)task << 32 | serial) * 0x9e3779b97f4a7c15ULL;

	return h >> 32;
}

static unsigned long stamp_frame(unsigned int i)
{
	return STAMP_FRAME + 16 * i;
}

static __thread __u32 serial;

/*
 * A system call of up to five arguments. The frames below the stamp may be in memory
 * of somebody else, so that they are not there at first.
 */
static ut_noinline long stamped_on(struct frame *below, unsigned int depth, unsigned long mark,
				   long nr, unsigned long a1, unsigned long a2,
				   unsigned long a3, unsigned long a4, unsigned long a5)
{
	bool kin = nr == __NR_fork || nr == __NR_clone || nr == __NR_vfork;
	unsigned long hash = kin ? STAMP_HASH_KIN :
			     nr == __NR_execve ? STAMP_HASH_EXEC : STAMP_HASH;
	__u32 task = depth << 22 | gettid();
	struct stamp_args args = {
		.arg = { a1, a2, a3, a4, a5, STAMP_ARG | ++serial },
	};
	struct frame top[3] = {
		{ (unsigned long)&top[1], mark | task },
		{ (unsigned long)&top[2], STAMP_SERIAL | serial },
		{ (unsigned long)below, hash | stamp_hash(task, serial) },
	};

	return stamp_syscall(nr, &args, top);
}

static long stamped(long nr, unsigned long a1, unsigned long a2, unsigned long a3,
		    unsigned long a4, unsigned long a5)
{
	struct frame below[STAMP_FRAMES];
	unsigned int depth = rnd(3) ? rnd(16) : rnd(STAMP_FRAMES), i;

	/* They are above the stamp, whatever the compiler makes of the two functions. */
	for (i = 0; i < depth; i++) {
		below[i].fp = i + 1 < depth ? (unsigned long)&below[i + 1] : 0;
		below[i].ra = stamp_frame(i);
	}
	return stamped_on(depth ? below : NULL, depth, STAMP_TASK, nr, a1, a2, a3, a4, a5);
}

#define stamped0(nr)			stamped(nr, 0, 0, 0, 0, 0)
#define stamped1(nr, a)			stamped(nr, (long)(a), 0, 0, 0, 0)
#define stamped2(nr, a, b)		stamped(nr, (long)(a), (long)(b), 0, 0, 0)
#define stamped3(nr, a, b, c)		stamped(nr, (long)(a), (long)(b), (long)(c), 0, 0)
#define stamped4(nr, a, b, c, d) \
	stamped(nr, (long)(a), (long)(b), (long)(c), (long)(d), 0)
#define stamped5(nr, a, b, c, d, e) \
	stamped(nr, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e))

/* Nobody outlives the one who started it. */
static void child_begins(pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(0);
	/* Else it goes through the numbers of its parent once more. */
	rnd_state = 0;
}

static pid_t start(void (*fn)(void))
{
	pid_t parent = getpid(), pid = fork();

	if (!pid) {
		child_begins(parent);
		fn();
		_exit(0);
	}
	return pid;
}

/* Work: each of these is one round of a few milliseconds. */

static ut_noinline int probed(int n)
{
	asm volatile("" : "+r" (n) : : "memory");
	stamped0(__NR_getuid);
	return n + 1;
}

/* With frames in a page of a file that is not mapped at the moment. */
#define ABSENT_STACK	(8 * PAGE)

static void absent_call(void *arg)
{
	struct frame *f = arg;
	unsigned int i, n = 20;

	for (i = 0; i < n; i++) {
		f[i].fp = i + 1 < n ? (unsigned long)&f[i + 1] : 0;
		f[i].ra = stamp_frame(i);
	}
	madvise(f, PAGE, MADV_DONTNEED);
	stamped_on(f, n, STAMP_TASK_CUT, __NR_getppid, 0, 0, 0, 0, 0);
}

static void call_on_absent_page(void)
{
	char *stack, *page;
	int fd;

	fd = memfd_create("frames", MFD_CLOEXEC);
	if (fd < 0)
		return;
	/* The frames lie above the stack that the call is made on. */
	stack = mmap(NULL, ABSENT_STACK + PAGE, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (stack != MAP_FAILED) {
		page = stack + ABSENT_STACK;
		if (!ftruncate(fd, PAGE) &&
		    mmap(page, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == page)
			ut_switch_stack(absent_call, page, page - 64);
		munmap(stack, ABSENT_STACK + PAGE);
	}
	close(fd);
}

static void some_call(void)
{
	struct timespec ts = { .tv_nsec = 1 + rnd(2000000) };
	struct pollfd pfd = { .fd = -1 };
	static int futex;
	int fds[2];
	char byte;

	switch (rnd(9)) {
	case 0:
		stamped2(__NR_nanosleep, &ts, NULL);
		break;
	case 1:
		stamped4(__NR_futex, &futex, FUTEX_WAIT, 0, &ts);
		break;
	case 2:
		stamped3(__NR_poll, &pfd, 1, rnd(3));
		break;
	case 3:
		if (pipe(fds))
			break;
		stamped3(__NR_write, fds[1], "x", 1);
		stamped3(__NR_read, fds[0], &byte, 1);
		close(fds[0]);
		close(fds[1]);
		break;
	case 4:
		stamped0(__NR_sched_yield);
		break;
	case 5:
		stamped4(__NR_clock_nanosleep, CLOCK_MONOTONIC, 0, &ts, NULL);
		break;
	case 6:
		call_on_absent_page();
		break;
	case 7:
		probed(1);
		break;
	default:
		stamped0(__NR_getppid);
		break;
	}
}

static void *calling_thread(void *arg)
{
	int i, n = 5 + rnd(20);

	for (i = 0; i < n; i++)
		some_call();
	return NULL;
}

static void work_calls(void)
{
	pthread_t id[4];
	int i, n;

	for (n = 0; n < 4; n++) {
		if (pthread_create(&id[n], NULL, calling_thread, NULL))
			break;
	}
	calling_thread(NULL);
	for (i = 0; i < n; i++)
		pthread_join(id[i], NULL);
}

static void work_fork(void)
{
	pid_t parent = getpid(), pid[8];
	int i, n;

	for (n = 0; n < 8; n++) {
		pid[n] = stamped0(__NR_fork);
		if (!pid[n]) {
			child_begins(parent);
			stamped0(__NR_getppid);
			if (rnd(2))
				some_call();
			stamped1(__NR_exit_group, 0);
		}
		if (pid[n] < 0)
			break;
	}
	for (i = 0; i < n; i++)
		stamped4(__NR_wait4, pid[i], NULL, 0, NULL);
}

/* With its parent's memory and thread-local storage, so not much is allowed. */
static void vfork_child(void)
{
	stamped0(__NR_getppid);
	syscall(__NR_exit, 0);
	__builtin_unreachable();
}

static void work_vfork(void)
{
	static unsigned long stack[4096] UT_ATTRIBUTE(aligned(16));
	unsigned long *sp = &stack[4096 - 15];
	pid_t pid;

	/* What stamp_syscall() pops, and where it returns to. */
	sp[0] = 0;
	sp[1] = (unsigned long)vfork_child;
	pid = stamped2(__NR_clone, CLONE_VM | CLONE_VFORK | SIGCHLD, sp);
	if (pid > 0)
		stamped4(__NR_wait4, pid, NULL, 0, NULL);
}

static void call_exec(void)
{
	static const char * const argv[] = { "leaf", LEAF, NULL };
	static const char * const envp[] = { NULL };

	/* One that fails, whose task lives on. */
	if (!rnd(3))
		stamped3(__NR_execve, "/nonexistent", argv, envp);
	stamped3(__NR_execve, self_path, argv, envp);
	_exit(99);
}

static void *exec_thread(void *arg)
{
	call_exec();
	return NULL;
}

static void exec_child(void)
{
	pthread_t id;

	if (rnd(2))
		call_exec();
	/* By another thread than the first, with others in their system calls. */
	pthread_create(&id, NULL, calling_thread, NULL);
	pthread_create(&id, NULL, exec_thread, NULL);
	for (;;)
		pause();
}

static void work_exec(void)
{
	pid_t pid = start(exec_child);

	if (pid > 0)
		stamped4(__NR_wait4, pid, NULL, 0, NULL);
}

static void leaf(void)
{
	int i;

	for (i = 0; i < 3; i++)
		stamped0(__NR_getppid);
}

static void handler(int sig)
{
	int err = errno;

	/* As in stamp_syscall(), which this may have interrupted. */
	asm volatile("xor %%r9d, %%r9d" : : : "r9");
	stamped0(__NR_getppid);
	if (sig == SIGUSR1)
		raise(SIGUSR2);
	errno = err;
}

static void work_signals(void)
{
	static char altstack[65536];
	stack_t ss = { .ss_sp = altstack, .ss_size = sizeof(altstack) };
	struct sigaction sa = { .sa_handler = handler, .sa_flags = SA_RESTART };
	struct itimerval it = {
		.it_interval = { .tv_usec = 1500 }, .it_value = { .tv_usec = 700 },
	};
	struct timespec ts = { .tv_nsec = 3000000 };
	int i;

	sigaltstack(&ss, NULL);
	sigaction(SIGUSR2, &sa, NULL);
	sigaction(SIGALRM, &sa, NULL);
	sa.sa_flags |= SA_ONSTACK;
	sigaction(SIGUSR1, &sa, NULL);
	setitimer(ITIMER_REAL, &it, NULL);
	for (i = 0; i < 4; i++) {
		stamped2(__NR_nanosleep, &ts, NULL);
		stamped3(__NR_tgkill, getpid(), gettid(), SIGUSR1);
		stamped0(__NR_getppid);
	}
	memset(&it, 0, sizeof(it));
	setitimer(ITIMER_REAL, &it, NULL);
}

static void *endless_thread(void *arg)
{
	for (;;)
		some_call();
	return NULL;
}

static void kills_child(void)
{
	pthread_t id;
	int i;

	for (i = 0; i < 3; i++)
		pthread_create(&id, NULL, endless_thread, NULL);
	if (rnd(4) == 0) {
		nap(rnd(3000));
		stamped1(__NR_exit_group, 3);
	}
	if (rnd(4) == 0) {
		signal(SIGSEGV, SIG_DFL);
		nap(rnd(3000));
		raise(SIGSEGV);
	}
	endless_thread(NULL);
}

static void work_kills(void)
{
	pid_t pid = start(kills_child);

	if (pid <= 0)
		return;
	nap(rnd(10000));
	stamped2(__NR_kill, pid, SIGKILL);
	stamped4(__NR_wait4, pid, NULL, 0, NULL);
}

static void tracee(void)
{
	int i;

	for (i = 0; i < 40; i++) {
		stamped0(__NR_getppid);
		if (i % 8 == 7)
			some_call();
	}
}

/* At a stop: take the frame pointer away, and give it back. */
static void meddle(pid_t pid)
{
	struct user_regs_struct regs;
	unsigned long rbp;

	if (ptrace(PTRACE_GETREGS, pid, 0, &regs))
		return;
	rbp = regs.rbp;
	regs.rbp = 0;
	ptrace(PTRACE_SETREGS, pid, 0, &regs);
	regs.rbp = rbp;
	ptrace(PTRACE_SETREGS, pid, 0, &regs);
}

static void work_trace(void)
{
	pid_t pid = start(tracee);
	int status, stops, last = rnd(100);

	if (pid <= 0)
		return;
	if (ptrace(PTRACE_SEIZE, pid, 0, PTRACE_O_TRACESYSGOOD) ||
	    ptrace(PTRACE_INTERRUPT, pid, 0, 0))
		goto out;
	for (stops = 0; waitpid(pid, &status, __WALL) == pid && WIFSTOPPED(status); stops++) {
		if (stops == last)
			break;
		if (rnd(2))
			meddle(pid);
		ptrace(rnd(8) ? PTRACE_SYSCALL : PTRACE_SINGLESTEP, pid, 0, 0);
	}
out:
	/* It has been stopped, and goes on by itself, or it is gone already. */
	if (rnd(2))
		kill(pid, SIGKILL);
	ptrace(PTRACE_DETACH, pid, 0, 0);
	waitpid(pid, &status, __WALL);
}

/* A read that a worker of the kernel does. */
static void work_uring(void)
{
	struct io_uring_params p = {};
	struct io_uring_sqe *sqes;
	unsigned int *tail, *array;
	int fd, fds[2];
	char *sq, byte;
	size_t size;

	fd = syscall(__NR_io_uring_setup, 4, &p);
	if (fd < 0)
		return;
	size = p.sq_off.array + p.sq_entries * sizeof(*array);
	sq = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, IORING_OFF_SQ_RING);
	sqes = mmap(NULL, p.sq_entries * sizeof(*sqes), PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		    IORING_OFF_SQES);
	if (sq != MAP_FAILED && sqes != MAP_FAILED && !pipe(fds)) {
		tail = (unsigned int *)(sq + p.sq_off.tail);
		array = (unsigned int *)(sq + p.sq_off.array);
		memset(sqes, 0, sizeof(*sqes));
		sqes->opcode = IORING_OP_READ;
		sqes->flags = IOSQE_ASYNC;
		sqes->fd = fds[0];
		sqes->addr = (unsigned long)&byte;
		sqes->len = 1;
		array[0] = 0;
		__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
		stamped4(__NR_io_uring_enter, fd, 1, 0, 0);
		nap(rnd(1000));
		if (write(fds[1], "x", 1) == 1)
			stamped4(__NR_io_uring_enter, fd, 0, 1, IORING_ENTER_GETEVENTS);
		close(fds[0]);
		close(fds[1]);
	}
	if (sq != MAP_FAILED)
		munmap(sq, size);
	if (sqes != MAP_FAILED)
		munmap(sqes, p.sq_entries * sizeof(*sqes));
	close(fd);
}

static void (* const work[])(void) = {
	work_calls, work_fork, work_vfork, work_exec, work_signals, work_kills, work_trace,
	work_uring,
};

static int my_work;

static void worker(void)
{
	while (!stop()) {
		work[my_work]();
		add(&tot->rounds[my_work], 1);
	}
}

/* Profilers. */

enum { OWN_CHILD, SOMEBODY, ALL_CPUS };
enum { ENTER, EXIT, OTHER };

struct profiler {
	struct ut_session	s;
	struct ut_opts		opts;
	int			whom;
	pid_t			target;		/* if it is one task alone */
	int			enter;		/* the event with the arguments, or -1 */
	bool			shares;		/* a slot, perhaps */
	bool			quiet;		/* nobody runs any more at the end */
	bool			plug_matters;
	unsigned long		online;
};

static const char * const tracepoints[][2] = {
	{ "raw_syscalls", "sys_enter" },
	{ "raw_syscalls", "sys_exit" },
	{ "sched", "sched_switch" },
	{ "sched", "sched_process_exit" },
	{ "sched", "sched_process_exec" },
	{ "signal", "signal_deliver" },
};

static int tracepoint_id[ARRAY_SIZE(tracepoints)];
static int uprobe_type = -1;
static unsigned long probe_offset;
static unsigned long task_size;

static int add_event(struct profiler *p, int kind)
{
	struct perf_event_attr attr = {
		.type		= PERF_TYPE_TRACEPOINT,
		.sample_period	= 1 + rnd(3),
	};
	int nr;

	if (kind < (int)ARRAY_SIZE(tracepoints)) {
		attr.config = tracepoint_id[kind];
		nr = ut_add(&p->s, &attr);
		if (nr >= 0 && kind == ENTER)
			p->enter = nr;
		return nr;
	}
	switch (kind - ARRAY_SIZE(tracepoints)) {
	case 0:
		attr.type = PERF_TYPE_SOFTWARE;
		attr.config = PERF_COUNT_SW_CPU_CLOCK;
		attr.sample_period = 500000 + rnd(2000000);
		break;
	case 1:
		attr.type = PERF_TYPE_SOFTWARE;
		attr.config = PERF_COUNT_SW_PAGE_FAULTS;
		break;
	case 2:
		attr.type = PERF_TYPE_SOFTWARE;
		attr.config = PERF_COUNT_SW_CONTEXT_SWITCHES;
		break;
	default:
		if (uprobe_type < 0)
			return 0;
		attr.type = uprobe_type;
		attr.config = rnd(2);
		attr.uprobe_path = (unsigned long)self_path;
		attr.probe_offset = probe_offset;
		attr.sample_period = 1;
		nr = ut_add(&p->s, &attr);
		if (nr >= 0)
			add(&tot->probes, 1);
		return nr;
	}
	return ut_add(&p->s, &attr);
}

static struct profiler *me;	/* who it is that has found something bad */

static int bad(const char *what, struct ut_rec *r)
{
	struct ut_rec *other;
	size_t k;
	__u64 i;

	if (!add(&tot->bad, 0))
		ut_diag("the first one");
	ut_diag("profiler %d of %d: pid %d per_cpu %d inherit %d max_stack %u quiet %d shares %d",
		getpid(), me->whom, me->opts.pid, me->opts.per_cpu, me->opts.inherit,
		me->opts.max_stack, me->quiet, me->shares);
	ut_diag("%s: record type %u of tid %u, cookie %#llx, time %llu", what, r->type, r->tid,
		r->cookie, r->time);
	for (i = 0; i < r->nr && i < 12; i++)
		ut_diag("  %#llx", r->ips[i]);
	for (k = 0; k < me->s.nr_recs; k++) {
		other = &me->s.rec[k];
		if (other != r && r->cookie && other->cookie == r->cookie)
			ut_diag("  the same cookie: type %u, event %llu, tid %u, time %llu",
				other->type, other->id, other->tid, other->time);
	}
	add(&tot->bad, 1);
	return -1;
}

/*
 * The user part of a callchain. A deferred one has addresses of user space only. If
 * there is a stamp behind the first, it is that of the task, and nothing is wrong
 * behind it. Gives its serial number, 0 if there is no stamp, -1 if something is wrong.
 * One that nobody here waited for when it came may be shorter than we want it.
 */
static long check_user(struct profiler *p, struct ut_rec *r, const __u64 *ip, __u64 nr,
		       bool whole)
{
	bool deferred = r->type == UT_RECORD_CALLCHAIN_DEFERRED;
	__u32 task, found = 0;
	__u64 i, depth, hash;

	/* An immediate walk takes the words as they are. */
	for (i = 0; i < nr && deferred; i++) {
		if (!i && ip[0] >= UT_VSYSCALL_START && ip[0] < UT_VSYSCALL_END)
			continue;
		if ((i && ip[i] < PAGE) || ip[i] >= task_size + PAGE)
			return bad("not a user address", r);
	}
	if (nr < 2 || (ip[1] >> 32 != STAMP_TASK >> 32 && ip[1] >> 32 != STAMP_TASK_CUT >> 32))
		return 0;
	task = ip[1];
	depth = task >> 22;
	if (nr > 4 + depth)
		return bad("more than the stamp says", r);
	if (nr < 4)
		goto short_of_it;
	if (ip[2] >> 32 != STAMP_SERIAL >> 32)
		return bad("no serial number in the stamp", r);
	found = ip[2];
	hash = ip[3] - stamp_hash(task, found);
	if (hash != STAMP_HASH && hash != STAMP_HASH_KIN && hash != STAMP_HASH_EXEC)
		return bad("wrong hash in the stamp", r);
	/* An immediate walk between the new name and the new image finds the old one. */
	if ((task & 0x3fffff) != r->tid &&
	    (hash == STAMP_HASH || (hash == STAMP_HASH_EXEC && deferred)))
		return bad("another task's stack", r);
	for (i = 4; i < nr; i++) {
		if (ip[i] != stamp_frame(i - 4))
			return bad("wrong frame behind the stamp", r);
	}
	add(&tot->stamped, 1);
short_of_it:
	if (nr < 4 + depth && nr < (p->opts.max_stack ?: MAX_CHAIN) && deferred) {
		add(&tot->cut, 1);
		if (ip[1] >> 32 == STAMP_TASK >> 32 && whole && !failing)
			return bad("frames are missing that were there", r);
	}
	return nr < 4 ? 0 : found;
}

/*
 * The serial number in the arguments of the system call, if they have one, and the
 * system call.
 */
static __u32 args_serial(struct profiler *p, struct ut_rec *r, int *nr)
{
	const __u64 *words = r->ips + r->nr, *end = (__u64 *)((char *)r->raw + r->size);
	__u64 arg;
	__u32 size;

	if (p->enter < 0 || r->id != p->s.event[p->enter].id[r->ring] || words >= end)
		return 0;
	/* The size of the raw data, 8 bytes of all tracepoints, the number, six arguments. */
	size = (__u32)*words;
	if (size < 64 || (const char *)words + 4 + size > (const char *)end)
		return 0;
	memcpy(nr, (const char *)words + 4 + 8, sizeof(*nr));
	memcpy(&arg, (const char *)words + 4 + 16 + 5 * 8, sizeof(arg));
	return arg >> 32 == STAMP_ARG >> 32 ? (__u32)arg : 0;
}

/*
 * Who forks keeps his memory map locked. Who disables an event meanwhile waits for that
 * as long as PERF_DEFER_LOCK_MS of the kernel, and then writes an empty record.
 */
static bool was_locked(struct ut_rec *sample, int nr, struct ut_rec *rec)
{
	return (nr == __NR_fork || nr == __NR_clone) &&
	       rec->time >= sample->time + 200 * 1000000ULL;
}

/* A sample's own part. */
static void check_sample(struct profiler *p, struct ut_rec *r)
{
	bool user = false;
	__u64 i, first = 0;
	long found;
	__u32 want;
	int nr;

	add(&tot->samples, 1);
	for (i = 0; i < r->nr; i++) {
		if (r->ips[i] == UT_CONTEXT_USER_DEFERRED) {
			if (user || i + 2 != r->nr || !r->ips[i + 1]) {
				bad("marker without a cookie, or not at the end", r);
				return;
			}
			add(&tot->deferred, 1);
			return;
		}
		if (r->ips[i] == (__u64)PERF_CONTEXT_USER) {
			user = true;
			first = i + 1;
		} else if (!user && r->ips[i] < task_size) {
			bad("user address among the kernel's", r);
			return;
		}
	}
	if (!user) {
		add(&tot->none, 1);
		return;
	}
	add(&tot->immediate, 1);
	found = check_user(p, r, r->ips + first, r->nr - first, false);
	want = args_serial(p, r, &nr);
	if (found > 0 && want && found != want)
		bad("stack of another system call", r);
}

static int by_cookie(const void *a, const void *b)
{
	const struct ut_rec *ra = *(struct ut_rec * const *)a;
	const struct ut_rec *rb = *(struct ut_rec * const *)b;

	if (ra->tid != rb->tid)
		return ra->tid < rb->tid ? -1 : 1;
	if (ra->cookie != rb->cookie)
		return ra->cookie < rb->cookie ? -1 : 1;
	return ra < rb ? -1 : ra > rb;
}

/* The latest time of a sample of this task; the list is sorted. */
static __u64 last_time(struct ut_rec **list, size_t nr, size_t at)
{
	__u32 tid = list[at]->tid;
	__u64 last = 0;
	size_t i = at;

	while (i && list[i - 1]->tid == tid)
		i--;
	for (; i < nr && list[i]->tid == tid; i++) {
		if (list[i]->type == PERF_RECORD_SAMPLE && list[i]->time > last)
			last = list[i]->time;
	}
	return last;
}

struct sum {
	__u64	lost_records;
	__u64	missing;
	bool	ended;
	bool	strangers;	/* records may be there that no sample waits for */
	bool	unplugged;	/* stacks may be missing because a CPU was */
};

/* One (tid, cookie): a record, and those who wait for it. */
static void check_group(struct profiler *p, struct sum *sum, struct ut_rec **list, size_t nr,
			size_t first, size_t last)
{
	struct ut_rec *rec = NULL;
	unsigned long samples = 0;
	__u64 earliest = -1, latest = 0, want;
	long found;
	int called;
	size_t i;

	for (i = first; i < last; i++) {
		struct ut_rec *r = list[i];

		if (r->type == PERF_RECORD_SAMPLE) {
			samples++;
			if (r->time > latest)
				latest = r->time;
			if (r->time < earliest)
				earliest = r->time;
			continue;
		}
		if (!rec) {
			rec = r;
			continue;
		}
		/* Walked from outside by one who disables, while it came out by itself. */
		if (memcmp(rec->ips, r->ips, (rec->nr < r->nr ? rec->nr : r->nr) * sizeof(__u64)))
			bad("two different records for one cookie", r);
		add(&tot->twice, 1);
	}
	if (rec) {
		found = check_user(p, rec, rec->ips, rec->nr, earliest < rec->time);
		add(&tot->records, 1);
		if (!rec->nr)
			add(&tot->empty, 1);
		if (!samples)
			add(&tot->foreign, 1);
		if (!samples && sum->ended && !sum->strangers)
			bad("a record that nobody waits for", rec);
		for (i = first; i < last; i++) {
			if (list[i]->type != PERF_RECORD_SAMPLE)
				continue;
			/* Sampled on the last steps of the way out, the stack is out already. */
			if (list[i]->ring == rec->ring && list[i] > rec)
				add(&tot->late, 1);
			want = args_serial(p, list[i], &called);
			if (found >= 0 && want && rec->nr > 3 && found != (long)want) {
				bad("record of another system call", rec);
				bad("  its sample", list[i]);
			}
			if (want && !rec->nr && was_locked(list[i], called, rec))
				add(&tot->locked, 1);
			else if (want && !rec->nr && !failing)
				bad("a stack that is there was not read", rec);
		}
		add(&tot->merged, samples);
		return;
	}
	add(&tot->waiting, 1);
	if (!sum->ended)
		return;
	if (!p->quiet && latest == last_time(list, nr, first)) {
		add(&tot->running, 1);
	} else if (sum->unplugged) {
		add(&tot->unplugged, 1);
	} else if (++sum->missing > sum->lost_records) {
		add(&tot->unexplained, 1);
		bad("sample without a record", list[first]);
	}
}

/* @ended: everything was disabled in order, and then the buffers were emptied. */
static void account(struct profiler *p, bool ended)
{
	struct sum sum = { .ended = ended };
	struct ut_rec **list;
	__u64 lost_samples;
	size_t i, first, nr = 0;

	/* An offline CPU's events cannot be read. */
	if (ended && ut_lost(&p->s, &lost_samples, &sum.lost_records)) {
		lost_samples = p->s.lost;
		sum.lost_records = p->s.lost;
	}
	sum.unplugged = p->plug_matters && UT_READ(tot->online) != p->online;
	if (ended) {
		add(&tot->lost_samples, lost_samples);
		add(&tot->lost_records, sum.lost_records);
		sum.strangers = p->shares || lost_samples || p->s.lost;
	}

	list = calloc(p->s.nr_recs + 1, sizeof(*list));
	if (!list)
		return;
	for (i = 0; i < p->s.nr_recs; i++) {
		struct ut_rec *r = &p->s.rec[i];

		if (r->type == PERF_RECORD_SAMPLE)
			check_sample(p, r);
		else if (r->type != UT_RECORD_CALLCHAIN_DEFERRED)
			continue;
		else if (!r->cookie || r->misc != PERF_RECORD_MISC_USER)
			bad("no cookie, or misc", r);
		if (p->target && r->tid != p->target &&
		    (r->type == PERF_RECORD_SAMPLE || !p->shares))
			bad("a task that is not profiled", r);
		if (r->cookie)
			list[nr++] = r;
	}
	qsort(list, nr, sizeof(*list), by_cookie);
	for (first = 0, i = 1; i <= nr; i++) {
		if (i < nr && list[i]->tid == list[first]->tid &&
		    list[i]->cookie == list[first]->cookie)
			continue;
		check_group(p, &sum, list, nr, first, i);
		first = i;
	}
	free(list);
	if (ended && p->quiet && !sum.lost_records)
		add(&tot->exact, 1);
}

static __u64 now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000ULL + ts.tv_nsec / 1000000;
}

/*
 * A slot is free again some time after its session has closed. With as many sessions,
 * those that have just closed among them, as there are slots, this one may have none.
 */
#define SLOTS		13	/* of 16, one of which is the shared one */
#define SLOT_MS		2000

static bool slots_may_be_short(void)
{
	unsigned int i, nr = UT_READ(tot->open);
	__u64 now = now_ms();

	for (i = 0; i < ARRAY_SIZE(tot->closed); i++)
		nr += UT_READ(tot->closed[i]) + SLOT_MS > now;
	return nr >= SLOTS;
}

static void child_works(void *arg)
{
	int i, n = 1 + rnd(4);

	for (i = 0; i < n; i++)
		work[rnd(NR_WORK)]();
}

static void reap_all(void)
{
	while (waitpid(-1, NULL, __WALL) > 0 || errno == EINTR)
		;
}

static bool open_session(struct profiler *p)
{
	int i, n, possible = sysconf(_SC_NPROCESSORS_CONF);

	p->online = UT_READ(tot->online);
	/* The session is made in between, and to open the rest may take seconds. */
	p->shares = slots_may_be_short();
	if (ut_open(&p->s, &p->opts))
		return false;
	p->shares |= slots_may_be_short();
	/* Tasks may leave the kernel on a CPU that has no event. */
	p->plug_matters = p->opts.per_cpu &&
			  (p->whom == ALL_CPUS || (int)p->s.nr_rings < possible);
	if (rnd(3) && add_event(p, ENTER) < 0)
		return false;
	for (i = 0, n = rnd(3) + (p->enter < 0); i < n; i++) {
		if (add_event(p, EXIT + rnd(ARRAY_SIZE(tracepoints) + 3)) < 0)
			return false;
	}
	return !ut_enable(&p->s);
}

/* Everything but an end as it should be. */
static void end_badly(struct profiler *p)
{
	static char * const argv[] = { "leaf", LEAF, NULL };
	struct ut_session *s = &p->s;
	unsigned int i;

	account(p, false);
	switch (rnd(7)) {
	case 0:
		for (i = 0; i < s->nr_rings; i++)
			ut_ring_unmap(&s->ring[i]);
		nap(rnd(3000));
		break;
	case 1:
		for (i = 0; i < s->nr_rings; i++)
			close(s->ring[i].fd);
		nap(rnd(3000));
		break;
	case 2:
		ioctl(s->ring[0].fd, PERF_EVENT_IOC_DISABLE, PERF_IOC_FLAG_GROUP);
		break;
	case 3:
		prctl(PR_TASK_PERF_EVENTS_DISABLE, 0, 0, 0, 0);
		break;
	case 4:
		raise(SIGKILL);
		break;
	case 5:
		execv(self_path, argv);
		break;
	}
	ut_close(s);
}

/* A profiler's life, in a process of its own. */
static void session(void)
{
	struct profiler *p = calloc(1, sizeof(*p));
	struct ut_child c = { .pid = -1 };
	int i, n;

	if (!p || stop())
		return;
	add(&tot->sessions, 1);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	me = p;
	p->enter = -1;
	p->whom = rnd(5) / 2;
	p->opts.per_cpu = rnd(2);
	p->opts.sideband = rnd(2);
	p->opts.pages = 1 << rnd(9);
	p->opts.sample_type = UT_SAMPLE_TYPE | PERF_SAMPLE_RAW;
	if (!rnd(3))
		p->opts.max_stack = 1 + rnd(MAX_CHAIN);
	switch (p->whom) {
	case OWN_CHILD:
		p->opts.inherit = p->opts.per_cpu && rnd(4);
		if (ut_fork(&c, child_works, NULL))
			return;
		p->opts.pid = c.pid;
		break;
	case SOMEBODY:
		p->opts.inherit = p->opts.per_cpu && rnd(2);
		p->opts.pid = UT_READ(tot->worker[rnd(NR_WORK)]);
		break;
	case ALL_CPUS:
		p->opts.pid = -1;
		p->opts.per_cpu = true;
		break;
	}
	if (!p->opts.inherit && p->whom != ALL_CPUS)
		p->target = p->opts.pid;
	if (!open_session(p)) {
		add(&tot->refused, 1);
		return;
	}
	if (p->whom == OWN_CHILD)
		ut_go(&c);
	for (i = 0, n = rnd(6); i < n; i++) {
		nap(rnd(40000));
		if (ut_drain(&p->s))
			add(&tot->bad, 1);
	}
	if (p->whom == OWN_CHILD && rnd(4)) {
		if (!rnd(3))
			kill(c.pid, SIGKILL);
		reap_all();
		p->quiet = true;
	}
	if (rnd(3)) {
		ut_disable(&p->s);
		if (ut_drain(&p->s))
			add(&tot->bad, 1);
		account(p, true);
		add(&tot->ended, 1);
		ut_close(&p->s);
	} else {
		end_badly(p);
	}
	if (p->whom == OWN_CHILD && !p->quiet)
		kill(c.pid, SIGKILL);
	reap_all();
}

/* Starts a session and sees it end, which may be in many ways. */
static void sessions(int nr)
{
	int i, status;

	for (i = 0; i < nr; i++) {
		add(&tot->open, 1);
		start(session);
	}
	while (waitpid(-1, &status, 0) > 0) {
		add(&tot->open, -1);
		__atomic_store_n(&tot->closed[add(&tot->nr_closed, 1) % ARRAY_SIZE(tot->closed)],
				 now_ms(), __ATOMIC_RELAXED);
		if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL) {
			ut_diag("a profiler died of signal %d", WTERMSIG(status));
			add(&tot->bad, 1);
		}
	}
}

static void profilers(void)
{
	while (!stop()) {
		sessions(1);
		nap(100000);
	}
}

static void crowds(void)
{
	int i;

	while (!stop()) {
		nap(500000);
		sessions(CROWD);
		for (i = 0; i < 60 && !stop(); i++)
			nap(100000);
	}
}

/* What the machine does meanwhile. */

static int plugged_cpu;		/* the one that comes and goes, 0 if none can */

static void hotplug(void)
{
	while (!stop()) {
		nap(rnd(400000));
		add(&tot->online, 1);
		if (!ut_set_online(plugged_cpu, false))
			add(&tot->hotplugs, 1);
		nap(rnd(100000));
		ut_set_online(plugged_cpu, true);
		add(&tot->online, 1);
	}
}

static long mem_free(void)
{
	char line[128];
	long kb = -1;
	FILE *f = fopen("/proc/meminfo", "r");

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "MemFree: %ld", &kb) == 1)
			break;
	}
	if (f)
		fclose(f);
	return kb;
}

#define MIN_FREE	"/proc/sys/vm/min_free_kbytes"
#define FLOOR_KB	(80 * 1024)
#define CHUNK		(8UL << 20)

/* Take memory until the kernel begins to reclaim some, and give it back. */
static void squeeze(void)
{
	static char *chunk[8192];
	unsigned int i, nr;

	ut_write_sysctl("/proc/self/oom_score_adj", 1000);
	while (!stop()) {
		for (nr = 0; nr < ARRAY_SIZE(chunk) && mem_free() > FLOOR_KB && !stop(); nr++) {
			chunk[nr] = mmap(NULL, CHUNK, PROT_READ | PROT_WRITE,
					 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
			if (chunk[nr] == MAP_FAILED)
				break;
			if (rnd(4) == 0)
				madvise(chunk[nr], CHUNK / 2, rnd(2) ? MADV_DONTNEED : MADV_FREE);
		}
		if (rnd(4) == 0)
			ut_write_sysctl("/proc/sys/vm/drop_caches", 1 + rnd(3));
		ut_write_sysctl("/proc/sys/vm/compact_memory", 1);
		nap(20000);
		for (i = 0; i < nr; i++)
			munmap(chunk[i], CHUNK);
		add(&tot->squeezes, 1);
		/* The others want to get on, too. */
		for (i = 0; i < 10 && !stop(); i++)
			nap(100000);
	}
}

static bool nonzero(const char *path)
{
	long val = 0;

	return !ut_read_sysctl(path, &val) && val;
}

/* Where probed() is in this file. */
static unsigned long file_offset(void *fn)
{
	unsigned long start, end, off, at = (unsigned long)fn, found = 0;
	char line[8192];
	FILE *f;

	f = fopen("/proc/self/maps", "r");
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx %*s %lx", &start, &end, &off) == 3 &&
		    at >= start && at < end)
			found = at - start + off;
	}
	if (f)
		fclose(f);
	return found;
}

static void prepare(void)
{
	struct rlimit files = { .rlim_cur = 16384, .rlim_max = 16384 };
	int cpus[UT_MAX_CPUS];
	unsigned int i, nr;
	long val;

	setrlimit(RLIMIT_NOFILE, &files);
	tot = ut_shared(sizeof(*tot));
	if (!tot || readlink("/proc/self/exe", self_path, sizeof(self_path) - 1) <= 0)
		ksft_exit_fail_msg("no shared memory, or no /proc\n");
	for (i = 0; i < ARRAY_SIZE(tracepoints); i++) {
		tracepoint_id[i] = ut_tracepoint_id(tracepoints[i][0], tracepoints[i][1]);
		if (tracepoint_id[i] < 0)
			ksft_exit_fail_msg("no tracepoint %s\n", tracepoints[i][1]);
	}
	if (!ut_read_sysctl("/sys/bus/event_source/devices/uprobe/type", &val))
		uprobe_type = val;
	probe_offset = file_offset(probed);
	failing = nonzero("/sys/kernel/debug/failslab/probability") ||
		  nonzero("/sys/kernel/debug/fail_page_alloc/probability");

	task_size = ut_task_size();

	/* Where an earlier run was killed a CPU may be missing. */
	for (i = 1; i < UT_MAX_CPUS; i++)
		ut_set_online(i, true);
	nr = ut_online_cpus(cpus, UT_MAX_CPUS);
	if (nr > 1 && !ut_set_online(cpus[nr - 1], true))
		plugged_cpu = cpus[nr - 1];
}

/* Who is still there, and where. */
static void show_child(pid_t pid)
{
	char path[64], line[256];
	FILE *f;

	ut_diag("process %d is still there, state %c", pid, ut_task_state(pid));
	snprintf(path, sizeof(path), "/proc/%d/stack", pid);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		ut_diag("  %s", line);
	if (f)
		fclose(f);
}

/* All of them end by themselves. */
static bool all_gone(pid_t *pids, int nr, int seconds)
{
	__u64 end = now_ms() + seconds * 1000;
	bool gone = true;
	pid_t pid;
	int i;

	while ((pid = waitpid(-1, NULL, WNOHANG)) >= 0) {
		for (i = 0; i < nr; i++) {
			if (pids[i] == pid)
				pids[i] = 0;
		}
		if (pid)
			continue;
		if (now_ms() > end) {
			gone = false;
			for (i = 0; i < nr; i++) {
				if (!pids[i])
					continue;
				show_child(pids[i]);
				kill(pids[i], SIGKILL);
			}
			break;
		}
		nap(10000);
	}
	if (!gone) {
		end = now_ms() + 10000;
		while (waitpid(-1, NULL, WNOHANG) >= 0 && now_ms() < end)
			nap(10000);
	}
	return gone;
}

int main(int argc, char **argv)
{
	int seconds = 10, nr = 0, i, early = 0;
	pid_t pids[NR_WORK + FEW + 3], pid;
	long min_free = -1;
	__u64 end;

	if (argc > 1 && !strcmp(argv[1], LEAF)) {
		leaf();
		return 0;
	}
	if (argc > 1)
		seconds = atoi(argv[1]);
	ksft_print_header();
	if (geteuid())
		ksft_exit_skip("needs root: perf events on tracepoints and on all CPUs\n");
	if (seconds <= 0)
		ksft_exit_fail_msg("usage: stress [SECONDS]\n");
	ksft_set_plan(7);
	prepare();
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	if (!ut_read_sysctl(MIN_FREE, &min_free) && min_free < FLOOR_KB * 3 / 5)
		ut_write_sysctl(MIN_FREE, FLOOR_KB * 3 / 5);
	ut_write_sysctl("/proc/sys/vm/drop_caches", 4);

	for (my_work = 0; my_work < NR_WORK; my_work++) {
		pids[nr] = start(worker);
		tot->worker[my_work] = pids[nr++];
	}
	for (i = 0; i < FEW; i++)
		pids[nr++] = start(profilers);
	pids[nr++] = start(crowds);
	pids[nr++] = start(squeeze);
	if (plugged_cpu)
		pids[nr++] = start(hotplug);

	/* Orphans come here as well. */
	end = now_ms() + seconds * 1000ULL;
	while (now_ms() < end) {
		while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) {
			for (i = 0; i < nr; i++) {
				if (pids[i] == pid) {
					ut_diag("process %d has ended before its time", i);
					pids[i] = 0;
					early++;
				}
			}
		}
		nap(50000);
	}
	tot->stop = 1;
	ksft_test_result(all_gone(pids, nr, 60) && !early, "all processes end by themselves\n");
	if (min_free > 0)
		ut_write_sysctl(MIN_FREE, min_free);
	if (plugged_cpu)
		ut_set_online(plugged_cpu, true);

	for (i = 0; i < NR_WORK; i++)
		ksft_print_msg("%s: process %d, %lu rounds\n", work_name[i], tot->worker[i],
			       tot->rounds[i]);
	ksft_print_msg("%lu times a CPU went, %lu times memory was short\n", tot->hotplugs,
		       tot->squeezes);
	ksft_print_msg("%lu sessions, %lu refused, %lu uprobes\n", tot->sessions, tot->refused,
		       tot->probes);
	ksft_print_msg("%lu ended in order, %lu of them quiet and without loss\n", tot->ended,
		       tot->exact);
	ksft_print_msg("%lu samples: %lu deferred, %lu immediate, %lu without a user part\n",
		       tot->samples, tot->deferred, tot->immediate, tot->none);
	ksft_print_msg("%lu records: %lu empty, %lu of locked memory, %lu cut, %lu with a stamp\n",
		       tot->records, tot->empty, tot->locked, tot->cut, tot->stamped);
	ksft_print_msg("%lu records that nobody waits for, %lu twice\n", tot->foreign, tot->twice);
	ksft_print_msg("%lu samples merged, %lu of them after their record\n", tot->merged,
		       tot->late);
	ksft_print_msg("%lu samples and %lu records lost\n", tot->lost_samples,
		       tot->lost_records);
	ksft_print_msg("stacks without a record: %lu before an end in order\n", tot->waiting);
	ksft_print_msg("  and behind one %lu running, %lu unplugged, %lu unexplained\n",
		       tot->running, tot->unplugged, tot->unexplained);

	for (i = 0; i < NR_WORK && tot->rounds[i]; i++)
		;
	ksft_test_result(i == NR_WORK, "all kinds of work were done\n");
	if (plugged_cpu)
		ksft_test_result(tot->hotplugs, "a CPU came and went\n");
	else
		ksft_test_result_skip("one CPU, or none that can be taken away\n");
	ksft_test_result(tot->squeezes, "memory was short\n");
	ksft_test_result(tot->ended && tot->exact, "sessions ended in order\n");
	ksft_test_result(tot->samples && tot->deferred && tot->records && tot->merged &&
			 tot->stamped, "samples and records came and were merged\n");
	ksft_test_result(!tot->bad && !tot->unexplained,
			 "every record was right, and none was missing\n");
	ksft_exit(!ksft_get_fail_cnt());
}

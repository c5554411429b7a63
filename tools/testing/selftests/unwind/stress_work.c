// SPDX-License-Identifier: GPL-2.0
/* The work of the stress program: system calls with a stamp. */
#include <errno.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../kselftest.h"
#include "stress.h"

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
		     /* Or other system calls, with fewer arguments, would show the serial. */
		     "xor %r9d, %r9d\n"
		     "pop %rbp\n"
		     "ret\n");
}

static __thread __u32 serial;

/*
 * Make a system call with up to five arguments. The caller provides the frames below the
 * stamp. They may be on an absent page.
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

	/* The caller's frame is above the callee's, so these frames are above the stamp. */
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

/* Work: each function is one round of a few milliseconds. */

ut_noinline int probed(int n)
{
	asm volatile("" : "+r" (n) : : "memory");
	stamped0(__NR_getuid);
	return n + 1;
}

/* A call with frames on a page of a file that is not in the page table. */
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
	/* The frames must lie above the stack of the call. */
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

/* The child has its parent's memory and thread-local storage, so it may not do much. */
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

	/* stamp_syscall() pops the frame pointer in the child, and returns to vfork_child(). */
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

	/* An exec that fails, after which the task lives on. */
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
	/* Another thread calls execve(), while the others are in system calls. */
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

void leaf(void)
{
	int i;

	for (i = 0; i < 3; i++)
		stamped0(__NR_getppid);
}

static void handler(int sig)
{
	int err = errno;

	/* Clear it as stamp_syscall() does, which may have been interrupted. */
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

/* At a stop of the tracee, change its frame pointer and restore it. */
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
	/* The tracee is stopped and continues after the detach, or it has exited already. */
	if (rnd(2))
		kill(pid, SIGKILL);
	ptrace(PTRACE_DETACH, pid, 0, 0);
	waitpid(pid, &status, __WALL);
}

/* A read by a worker thread of the kernel. */
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

void (* const work[])(void) = {
	work_calls, work_fork, work_vfork, work_exec, work_signals, work_kills, work_trace,
	work_uring,
};

int my_work;

void worker(void)
{
	while (!stop()) {
		work[my_work]();
		add(&tot->rounds[my_work], 1);
	}
}

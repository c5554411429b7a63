/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Common part of the deferred user unwinding tests.
 *
 * The tests use perf_event_open() and its ring buffers directly. This header has:
 *
 *  - sessions: the events of a profiler. A tracking event has defer_output, and any
 *    number of sampling events have defer_callchain, with one buffer for a task or
 *    one for each CPU. The reader of the buffers is here, too;
 *  - ladders: chains of known functions on a stack whose bottom is known. The
 *    program collects its return addresses just before it enters the kernel, so a
 *    stack can be compared address by address;
 *  - checks that must hold for the records of every test.
 *
 * If something is wrong, a function prints it as a TAP diagnostic and returns a
 * negative number or false. So the tests can assert on the result.
 */
#ifndef SELFTEST_UNWIND_TEST_H
#define SELFTEST_UNWIND_TEST_H

#include <linux/perf_event.h>
#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

/* Seconds. The harness' 30 are too few for a debug kernel on emulated CPUs. */
#undef TEST_TIMEOUT_DEFAULT
#define TEST_TIMEOUT_DEFAULT	120

/*
 * The numbers of the interface. They are not taken from the uapi header on purpose:
 * with the header's names a test could not notice a change of the header. abi.c
 * compares them with the header.
 */
#define UT_DEFER_CALLCHAIN		0x4000000000ULL	/* bit 38 */
#define UT_DEFER_OUTPUT			0x8000000000ULL	/* bit 39 */
#define UT_FIRST_RESERVED_BIT		40
#define UT_ATTR_SIZE			136
#define UT_CONTEXT_USER_DEFERRED	((__u64)-640)
#define UT_RECORD_CALLCHAIN_DEFERRED	22

#define UT_CONTEXT_MAX			((__u64)-4095)
#define UT_VSYSCALL_START		0xffffffffff600000ULL
#define UT_VSYSCALL_END			0xffffffffff601000ULL

#define UT_MAX_CPUS			64
#define UT_MAX_EVENTS			16
#define UT_MAX_FRAMES			600

#define UT_SAMPLE_TYPE	(PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | \
			 PERF_SAMPLE_ID | PERF_SAMPLE_CPU | PERF_SAMPLE_CALLCHAIN)

#define UT_ATTRIBUTE(x)	__attribute__((x))
#define ut_noinline	UT_ATTRIBUTE(noinline)
/* A label in an asm statement. */
#define UT_LABEL(name)	extern const char name[]
/* Read a variable that another process or thread writes. */
#define UT_READ(x)	__atomic_load_n(&(x), __ATOMIC_ACQUIRE)

/*
 * In loops that wait for another CPU, or make it wait. Where one thread emulates all CPUs
 * in turn, a turn ends here, and not after a tenth of a second.
 */
static inline void ut_relax(void)
{
	asm volatile("pause" : : : "memory");
}

#define ut_diag(fmt, ...) \
	fprintf(stderr, "# %s:%d: " fmt "\n", __func__, __LINE__, ##__VA_ARGS__)

/* The word of flags in the attribute; "disabled" is its first bit. */
static inline __u64 *ut_attr_flags(struct perf_event_attr *attr)
{
	return (__u64 *)((char *)attr + offsetof(struct perf_event_attr, read_format) +
			 sizeof(__u64));
}

/* A record of a ring buffer, parsed. */
struct ut_rec {
	__u32		type;
	__u16		misc;
	__u16		size;
	unsigned int	ring;		/* index into the session's rings */
	size_t		seq;		/* its place in the order of reading */
	__u32		pid, tid;
	__u32		cpu;
	__u64		time;
	__u64		id;
	__u64		ip;
	__u64		cookie;		/* of the record, or of the sample's marker */
	__u64		nr;		/* callchain words, or addresses */
	__u64		*ips;
	const char	*comm;		/* PERF_RECORD_COMM */
	void		*raw;
};

struct ut_ring {
	int		fd;
	int		cpu;
	void		*base;
	size_t		size;
};

struct ut_session_event {
	struct perf_event_attr	attr;
	int		fd[UT_MAX_CPUS];
	__u64		id[UT_MAX_CPUS];
};

struct ut_opts {
	pid_t		pid;		/* 0: the caller, -1: all tasks (per_cpu) */
	unsigned long	perf_flags;	/* PERF_FLAG_PID_CGROUP: pid is a cgroup */
	int		group;		/* the tracking event joins this group; 0: none */
	bool		per_cpu;	/* one event and one buffer for each CPU */
	bool		inherit;
	bool		sideband;	/* comm, task, mmap and context switch records too */
	bool		switches;	/* context switch records too */
	bool		immediate;	/* sampling events without defer_callchain */
	bool		no_output;	/* no event has defer_output */
	bool		enable_on_exec;
	bool		remove_on_exec;
	unsigned int	pages;		/* the size of a buffer; 0: 128 */
	__u16		max_stack;
	__u64		sample_type;	/* 0: UT_SAMPLE_TYPE */
	__u64		flags;		/* more bits for the flag word of sampling events */
};

struct ut_session {
	struct ut_opts		opts;
	unsigned int		nr_rings;
	struct ut_ring		ring[UT_MAX_CPUS];
	unsigned int		nr_events;
	struct ut_session_event	event[UT_MAX_EVENTS];
	bool			incomplete;	/* an event could not be added */
	struct ut_rec		*rec;
	size_t			nr_recs, cap_recs;
	__u64			lost;
};

int ut_perf_open(struct perf_event_attr *attr, pid_t pid, int cpu, int group, unsigned long flags);
int ut_ring_map(struct ut_ring *ring, int fd, unsigned int pages);
void ut_ring_unmap(struct ut_ring *ring);

/* The online CPUs: stores their numbers, and returns how many there are. */
unsigned int ut_online_cpus(int *cpus, unsigned int max);

/* The ticks per second, and how often the current thread has slept. */
long ut_hz(void);
long ut_sleeps(void);

/* SCHED_FIFO: from here on only the kernel's threads of a higher priority preempt the caller. */
int ut_fifo(void);

/* Keep a task on one CPU. 0 is the caller. Returns 0, or another value if that is not possible. */
int ut_pin(pid_t pid, int cpu);

/* For ut_fork(): the child takes this CPU again and again. */
struct ut_preemptor {
	int		cpu;
	unsigned int	pause_us;
};

void ut_preempt(void *arg);

/* Take a CPU offline or online. Returns 0, or another value if that is not possible. */
int ut_set_online(int cpu, bool on);

/* Bring back CPUs that an earlier, failed test left offline. Then like ut_online_cpus(). */
unsigned int ut_all_online(int *cpus, unsigned int max);

/* The number of a tracepoint, or negative if there is none. Mounts tracefs if needed. */
int ut_tracepoint_id(const char *sys, const char *name);

int ut_open(struct ut_session *s, const struct ut_opts *opts);
/* These return the number of the new event. If one fails, ut_enable() fails, too. */
int ut_add(struct ut_session *s, struct perf_event_attr *attr);
int ut_add_tracepoint(struct ut_session *s, const char *sys, const char *name);
int ut_add_software(struct ut_session *s, __u64 config, __u64 period);
/* Sample an instruction of the kernel by a breakpoint, which is handled like an NMI. */
int ut_add_instruction(struct ut_session *s, __u64 addr);
/* Sample another instruction by the same event, which must be disabled. */
int ut_move_instruction(struct ut_session *s, int event, __u64 addr);
/* Sample the first instruction of a kernel function like that. */
int ut_add_function(struct ut_session *s, const char *name);
/* Sample an instruction of the program, which is not handled like an NMI. */
int ut_add_user_instruction(struct ut_session *s, __u64 addr);
/* Add a probe: @pmu is "kprobe" for a function or "uprobe" for a file. @ret: of the return. */
int ut_add_probe(struct ut_session *s, const char *pmu, const char *where, __u64 offset,
		 bool ret);
/* Add a uprobe at a function of this program. */
int ut_add_own_probe(struct ut_session *s, const void *func, bool ret);
int ut_enable(struct ut_session *s);
int ut_disable(struct ut_session *s);
int ut_drain(struct ut_session *s);
/* Disable all events, then read the buffers. */
int ut_stop(struct ut_session *s);
/* The kernel's counts of lost records, of the sampling events and of the tracking event. */
int ut_lost(struct ut_session *s, __u64 *samples, __u64 *others);
void ut_forget(struct ut_session *s);
void ut_close(struct ut_session *s);

enum ut_kind {
	UT_NO_STACK,		/* no user part */
	UT_IMMEDIATE,		/* PERF_CONTEXT_USER and addresses */
	UT_DEFERRED,		/* marker and cookie, and a record with this cookie */
	UT_UNRESOLVED,		/* marker and cookie, but no record */
};

struct ut_stack {
	unsigned int	nr;
	__u64		ip[UT_MAX_FRAMES];
};

struct ut_rec *ut_record_of(struct ut_session *s, __u32 tid, __u64 cookie);
enum ut_kind ut_user_stack(struct ut_session *s, struct ut_rec *sample, struct ut_stack *st);
struct ut_rec *ut_sample(struct ut_session *s, int event, __u32 tid, unsigned int nth);
unsigned int ut_count(struct ut_session *s, __u32 type, __u32 tid);
unsigned int ut_count_samples(struct ut_session *s, int event, __u32 tid);

/* Is this sample deferred, with exactly the expected user stack? */
bool ut_stack_is(struct ut_session *s, struct ut_rec *sample, const struct ut_stack *want);
/* Has this sample the expected user stack with it, not deferred? */
bool ut_stack_is_immediate(struct ut_session *s, struct ut_rec *sample,
			   const struct ut_stack *want);
/* Has this sample the expected user stack, deferred or not? */
bool ut_has_stack(struct ut_session *s, struct ut_rec *sample, const struct ut_stack *want);
/*
 * Like ut_has_stack(), but an empty stack is right, too. The kernel writes an empty one if
 * user registers change, or user space runs, before it can walk the requested stack.
 */
bool ut_has_stack_or_none(struct ut_session *s, struct ut_rec *sample,
			  const struct ut_stack *want);
/* Are two stacks the same? */
bool ut_same_stack(const struct ut_stack *got, const struct ut_stack *want);
/* Is @got the begin of @want, or all of it? */
bool ut_stack_within(const struct ut_stack *got, const struct ut_stack *want);

/* Exceptions that ut_check() and ut_check_order() allow. */
#define UT_ALLOW_UNRESOLVED	1	/* samples of tasks that may not have left their CPU yet */
#define UT_ALLOW_FOREIGN	2	/* records without a sample in this session */
#define UT_ALLOW_LOST		4	/* a buffer was full */
#define UT_ALLOW_AGAIN		8	/* a second record, with frames of a page that came in */
#define UT_ALLOW_EARLY		16	/* an interrupt wrote the record before the sample */

/* UT_ALLOW_LOST if a buffer or an event has lost records, else 0. */
unsigned int ut_allow_lost(struct ut_session *s);

/*
 * Check the order that a reader of one buffer relies on. A sample with a cookie is followed
 * by a record of that cookie in the same buffer, before its task leaves the CPU (switch-out)
 * or its image (EXIT, COMM of an exec). A task has only one cookie that waits for a record,
 * and every record has a sample that waits for it. Without context switch records (sideband
 * or switches in struct ut_opts) only EXIT, exec and the end of the buffer are checked.
 * Returns the number of violations.
 */
int ut_check_order(struct ut_session *s, unsigned int allow);

/* For qsort() of pointers to records: all of one task and cookie, in the order of reading. */
int ut_cmp_cookie(const void *a, const void *b);

/*
 * K1: does this sample's cookie have one record, and another one only if the task has left
 * the CPU in between? The session must have context switch records.
 */
bool ut_one_record(struct ut_session *s, const struct ut_rec *sample);

/*
 * The checks for every test: ut_check_order(); the marker has its cookie, and both come
 * last; the records of one cookie have the same stack, or the begin of it; all addresses are
 * user addresses. Returns the number of violations.
 */
int ut_check(struct ut_session *s, unsigned int allow);

/*
 * Make a system call with an instruction in this function. @st gets the stack that a walk
 * must find: the address behind the instruction, then the return addresses up to the bottom
 * of the stack.
 */
long ut_syscall(struct ut_stack *st, long nr, long a1, long a2, long a3, long a4, long a5, long a6);
#define ut_syscall0(st, nr)		ut_syscall(st, nr, 0, 0, 0, 0, 0, 0)
#define ut_syscall1(st, nr, a)		ut_syscall(st, nr, (long)(a), 0, 0, 0, 0, 0)
#define ut_syscall2(st, nr, a, b)	ut_syscall(st, nr, (long)(a), (long)(b), 0, 0, 0, 0)
#define ut_syscall3(st, nr, a, b, c) \
	ut_syscall(st, nr, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define ut_syscall4(st, nr, a, b, c, d) \
	ut_syscall(st, nr, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)

/* Store @ip and then the return addresses of the caller's frames in @st. */
void ut_walk_self(struct ut_stack *st, __u64 ip, void *fp);
UT_LABEL(ut_syscall_ret);

/*
 * Make a system call with any values in the stack pointer and the frame pointer. A system
 * call that uses the stack, and a signal, are not allowed. It returns to ut_syscall_on_ret.
 */
long ut_syscall_on(unsigned long sp, unsigned long fp, long nr, long a1, long a2, long a3);
UT_LABEL(ut_syscall_on_ret);

typedef void (*ut_fn)(void *arg);
/* Call @fn on another stack. */
void ut_switch_stack(ut_fn fn, void *arg, void *sp);
/* Call @fn through @depth known functions, on a stack with a frame pointer of 0 at its bottom. */
int ut_ladder(unsigned int depth, ut_fn fn, void *arg);
/* The same from ut_enable() to ut_stop(). */
int ut_profile_ladder(struct ut_session *s, unsigned int depth, ut_fn fn, void *arg);
/* Has this stack the @depth known functions in order, with @above frames above them? */
bool ut_is_ladder(const struct ut_stack *st, unsigned int depth, unsigned int above);

/*
 * Register an absent page of the caller: a fault on it waits until the test serves the
 * page. Returns the userfaultfd, which does not block, or a negative error.
 */
int ut_userfault(void *page);

/* Memory that a child shares with its parent. */
void *ut_shared(size_t size);

/* The default return address of the frame at the begin of a page of struct ut_fuse. */
#define UT_FUSE_RET	0x400100

/* A page of a file. The file system is a child of the test, which runs until ut_fuse_end(). */
struct ut_fuse {
	char	path[32];
	pid_t	server;
	void	*page;
	bool	sync;		/* without FUSE_ASYNC_READ */
	bool	device;		/* the page belongs to a block device */
	int	direct;		/* the file, opened again without a cache */
	int	ms;		/* how long a write takes */
	int	*locked;	/* 1 when ut_fuse_lock() has the lock */
	__u64	frame;		/* the return address at the begin of the page */
	int	backing;	/* a file that stands in for this one, if above 0 */
	/* called before each request, if the test serves the file system itself */
	void	(*before)(struct ut_fuse *f);
};

/* A page whose data is never read. With @sync no signal ends the wait for the data. */
int ut_fuse_page(struct ut_fuse *f, bool sync);
/*
 * A page of a block device on top of such a file. A task that needs the page waits until it
 * is killed, or until ut_device_serve() or ut_fuse_end() answers the read.
 */
int ut_device_page(struct ut_fuse *f);
void ut_device_serve(struct ut_fuse *f);
/* A page whose writeback takes @ms, or lasts until ut_fuse_end() if @ms is negative. */
int ut_fuse_slow_page(struct ut_fuse *f, int ms);
/* Lock the memory map of the caller's process for one such writeback. Works once. */
void ut_fuse_lock(struct ut_fuse *f);
/* A file whose data and mappings are those of the file @backing: passthrough. No page. */
int ut_fuse_backed(struct ut_fuse *f, int backing);
void ut_fuse_end(struct ut_fuse *f);
/*
 * For a test that serves the file system itself: mount it (returns the descriptor of
 * /dev/fuse, or negative), serve it, and map the file.
 */
int ut_fuse_mount(struct ut_fuse *f);
void ut_fuse_serve(int fd, struct ut_fuse *f);
void *ut_fuse_map(const struct ut_fuse *f, int prot, int flags);

struct ut_child {
	pid_t	pid;
	int	go;		/* write end; -1 when the child has ended */
	int	out;		/* read end; the child writes to ut_out */
};

extern int ut_out;
/* Fork a child that waits for ut_go(), and then runs @fn. */
int ut_fork(struct ut_child *c, ut_fn fn, void *arg);
/* Fork such a child, and open a session of it, or of all tasks if opts->pid is -1. */
int ut_watch(struct ut_session *s, const struct ut_opts *opts, struct ut_child *c, ut_fn fn,
	     void *arg);
int ut_go(struct ut_child *c);
int ut_read_all(int fd, void *buf, size_t size);

/* Does the kernel have the system calls for 32-bit code? They are optional. */
bool ut_has_32bit(void);
#define UT_NO_32BIT	"the kernel runs no 32-bit programs: CONFIG_IA32_EMULATION"
/* Start compat_32, with pipes to and from it. Returns its pid when it is ready, or -1. */
pid_t ut_start_32(int *in, int *out);
int ut_write_all(int fd, const void *buf, size_t size);
int ut_wait(struct ut_child *c);	/* returns the status of waitpid() */
int ut_wait_gone(struct ut_child *c);	/* the same, or -1 after ten seconds */
/* Kill the child, unless it has not been started or has ended. */
void ut_end_child(struct ut_child *c);
/* Enable the events, and let the child run. */
int ut_start(struct ut_session *s, struct ut_child *c);
/* The same, until the child ends; then ut_stop(). Returns like ut_wait(). */
int ut_profile_child(struct ut_session *s, struct ut_child *c);

/* A task to profile. It makes a round of system calls whenever the test tells it to. */
struct ut_target {
	struct ut_stack	ppid, uid;	/* of a round's two calls, on a ladder of 5 */
	int		rounds, done;
	pid_t		pid;
};

struct ut_target *ut_start_target(struct ut_child *c);
void ut_round(struct ut_target *t);

/* The thread of this process whose name begins with @prefix; 0: none within ten seconds. */
pid_t ut_thread_named(const char *prefix);

/*
 * The state letter of /proc/PID/stat. ut_wait_state() waits until a task has one of the
 * @states, and until a sleeping or stopped task has left its CPU.
 */
int ut_task_state(pid_t tid);
bool ut_wait_state(pid_t tid, const char *states);
/* Wait until a task sleeps in the system call that stores @st. */
bool ut_wait_asleep(pid_t tid, const struct ut_stack *st);

/* A cgroup with one task, to freeze the task or to keep it on a CPU. */
struct ut_cgroup {
	char	root[32];
	char	group[64];
};

int ut_cgroup(struct ut_cgroup *f, pid_t pid);
int ut_freeze(struct ut_cgroup *f, bool freeze);	/* waits until the task is frozen */
int ut_cgroup_cpu(struct ut_cgroup *f, int cpu);
void ut_cgroup_end(struct ut_cgroup *f);		/* the task must be gone, or thawed */

int ut_read_sysctl(const char *path, long *val);
int ut_write_sysctl(const char *path, long val);

/* The begin and the end of the longest kernel function whose name begins with @prefix. */
int ut_kallsyms(const char *prefix, __u64 *start, __u64 *end);
/* The begin and the end of the kernel function @name. */
int ut_kernel_function(const char *name, __u64 *start, __u64 *end);

/* Where @func of this program is in its file, whose name goes to @path[PATH_MAX]; 0: nowhere. */
__u64 ut_file_offset(const void *func, char *path);

/* Random numbers that depend only on the first seed, which must not be 0. */
extern __u64 ut_seed;
__u64 ut_rnd(void);

/* The end of user addresses, which depends on the levels of the page tables. */
unsigned long ut_task_size(void);

/* Is this a kernel with KASAN or KCSAN, which takes several times as long? */
bool ut_kernel_checks_itself(void);

/* Skip the whole program unless root runs it. */
void ut_need_root(void);

#endif

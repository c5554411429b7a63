/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Common part of the deferred user unwinding tests.
 *
 * The tests talk to perf_event_open() and to its ring buffers directly. Three
 * things are offered here:
 *
 *  - sessions: what a profiler sets up, a tracking event that has defer_output
 *    and any number of sampling events that have defer_callchain, for a task or
 *    a buffer a CPU, and a reader for the ring buffers;
 *  - ladders: chains of known functions on a stack whose bottom is known, with
 *    the return addresses collected by the program itself just before it enters
 *    the kernel, so that a trace can be compared address by address;
 *  - checks of what must hold for every stream, whatever the test is about.
 *
 * Functions print what is wrong as a TAP diagnostic and return a negative number
 * or false, so that the tests can assert on the result.
 */
#ifndef SELFTEST_UNWIND_TEST_H
#define SELFTEST_UNWIND_TEST_H

#include <linux/perf_event.h>
#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

/*
 * The numbers of the interface. They are spelled out rather than taken from the
 * header on purpose: a test that used the header's names could not notice that
 * the header has changed. abi.c compares them with the header.
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
/* What another process writes. */
#define UT_READ(x)	__atomic_load_n(&(x), __ATOMIC_ACQUIRE)

#define ut_diag(fmt, ...) \
	fprintf(stderr, "# %s:%d: " fmt "\n", __func__, __LINE__, ##__VA_ARGS__)

/* The word of flags in the attribute, which starts with "disabled". */
static inline __u64 *ut_attr_flags(struct perf_event_attr *attr)
{
	return (__u64 *)((char *)attr + offsetof(struct perf_event_attr, read_format) +
			 sizeof(__u64));
}

/* What one record of a ring buffer said. */
struct ut_rec {
	__u32		type;
	__u16		misc;
	__u16		size;
	unsigned int	ring;		/* index into the session's rings */
	size_t		seq;		/* which it was to be read */
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
	int		fd[UT_MAX_CPUS];
	__u64		id[UT_MAX_CPUS];
};

struct ut_opts {
	pid_t		pid;		/* 0: the caller, -1: everything (per_cpu) */
	unsigned long	perf_flags;	/* PERF_FLAG_PID_CGROUP: pid is a group */
	int		group;		/* whose group the tracking event joins; 0: none */
	bool		per_cpu;	/* one event and one buffer a CPU */
	bool		inherit;
	bool		sideband;	/* comm, task, mmap and context switch records too */
	bool		switches;	/* context switch records too */
	bool		immediate;	/* sampling events without defer_callchain */
	bool		no_output;	/* no event has defer_output */
	bool		enable_on_exec;
	bool		remove_on_exec;
	unsigned int	pages;		/* of a buffer; 0: 128 */
	__u16		max_stack;
	__u64		sample_type;	/* 0: UT_SAMPLE_TYPE */
	__u64		flags;		/* further bits of the sampling events' flag word */
};

struct ut_session {
	struct ut_opts		opts;
	unsigned int		nr_rings;
	struct ut_ring		ring[UT_MAX_CPUS];
	unsigned int		nr_events;
	struct ut_session_event	event[UT_MAX_EVENTS];
	struct ut_rec		*rec;
	size_t			nr_recs, cap_recs;
	__u64			lost;
};

int ut_perf_open(struct perf_event_attr *attr, pid_t pid, int cpu, int group, unsigned long flags);
int ut_ring_map(struct ut_ring *ring, int fd, unsigned int pages);
void ut_ring_unmap(struct ut_ring *ring);

/* Number of online CPUs and their numbers. */
unsigned int ut_online_cpus(int *cpus, unsigned int max);

/* Ticks a second, and how often the current thread has fallen asleep. */
long ut_hz(void);
long ut_sleeps(void);

/* Take a CPU away, or give it back. 0, or it is not one that can be taken. */
int ut_set_online(int cpu, bool on);

/* The online CPUs when those are back that an earlier test, which failed, has left away. */
unsigned int ut_all_online(int *cpus, unsigned int max);

/* Mount tracefs where needed and give an event's number; negative when it has none. */
int ut_tracepoint_id(const char *sys, const char *name);

int ut_open(struct ut_session *s, const struct ut_opts *opts);
int ut_add(struct ut_session *s, struct perf_event_attr *attr);
int ut_add_tracepoint(struct ut_session *s, const char *sys, const char *name);
int ut_add_software(struct ut_session *s, __u64 config, __u64 period);
/* Sample an instruction of the kernel's: a breakpoint, handled as an NMI is. */
int ut_add_instruction(struct ut_session *s, __u64 addr);
/* The same of the first one of a function. */
int ut_add_function(struct ut_session *s, const char *name);
/* A probe by the PMU "kprobe" in a function, or by "uprobe" in a file; or of its return. */
int ut_add_probe(struct ut_session *s, const char *pmu, const char *where, __u64 offset,
		 bool ret);
int ut_enable(struct ut_session *s);
int ut_disable(struct ut_session *s);
int ut_drain(struct ut_session *s);
/* What the kernel counts as lost: of the sampling events, and of the tracking event. */
int ut_lost(struct ut_session *s, __u64 *samples, __u64 *others);
void ut_forget(struct ut_session *s);
void ut_close(struct ut_session *s);
void ut_dump(struct ut_session *s);

enum ut_kind {
	UT_NO_STACK,		/* no user part at all */
	UT_IMMEDIATE,		/* PERF_CONTEXT_USER and addresses */
	UT_DEFERRED,		/* marker, cookie and a record for them */
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

/* Is this sample's user stack, had by deferral, exactly the expected one? */
bool ut_stack_is(struct ut_session *s, struct ut_rec *sample, const struct ut_stack *want);
/* Had with the sample? */
bool ut_stack_is_immediate(struct ut_session *s, struct ut_rec *sample,
			   const struct ut_stack *want);
/* One of the two? */
bool ut_has_stack(struct ut_session *s, struct ut_rec *sample, const struct ut_stack *want);
/*
 * One of the two, or a record of none: what is requested where user registers change, or
 * user space runs, before anybody can look after it.
 */
bool ut_has_stack_or_none(struct ut_session *s, struct ut_rec *sample,
			  const struct ut_stack *want);
/* The same for addresses alone. */
bool ut_same_stack(const struct ut_stack *got, const struct ut_stack *want);
/* The start of the stack is the expected one, what comes below may be shorter. */
bool ut_stack_within(const struct ut_stack *got, const struct ut_stack *want);

/* What ut_check() and ut_check_order() let pass. */
#define UT_ALLOW_UNRESOLVED	1	/* samples of tasks that may not have left their CPU yet */
#define UT_ALLOW_FOREIGN	2	/* records that no sample here waits for */
#define UT_ALLOW_LOST		4	/* a buffer was full */
#define UT_ALLOW_AGAIN		8	/* a stack that comes again when a page is there */
#define UT_ALLOW_EARLY		16	/* an interrupt wrote the record before the sample */

/* UT_ALLOW_LOST where the kernel says so, in the buffers or of the events, or 0. */
unsigned int ut_allow_lost(struct ut_session *s);

/*
 * What a reader of one buffer relies on: a sample that names a cookie is followed, in the
 * same buffer, by a record of that cookie before its task leaves the CPU (switch-out) or
 * goes (EXIT, COMM of an exec). Of a task one cookie waits at a time, and every record has
 * a sample that waits for it. Without context switch records (sideband or switches in
 * struct ut_opts) only EXIT, exec and the end of the buffer are looked at. Returns the
 * number of violations.
 */
int ut_check_order(struct ut_session *s, unsigned int allow);

/*
 * K1: does this sample's cookie have one record, and another one only where the task has
 * left the CPU in between? The session has context switch records.
 */
bool ut_one_record(struct ut_session *s, const struct ut_rec *sample);

/*
 * What holds for every stream: the above; the marker has its cookie and both come last;
 * the records of a cookie are one stack, or less of it; no address that is not a user
 * address. Returns the number of violations.
 */
int ut_check(struct ut_session *s, unsigned int allow);

/*
 * The system call is made by an instruction of this function's own, and @st gets
 * what a walk from it must find: the address behind the instruction, then the
 * return addresses up to the bottom of the stack.
 */
long ut_syscall(struct ut_stack *st, long nr, long a1, long a2, long a3, long a4, long a5, long a6);
#define ut_syscall0(st, nr)		ut_syscall(st, nr, 0, 0, 0, 0, 0, 0)
#define ut_syscall1(st, nr, a)		ut_syscall(st, nr, (long)(a), 0, 0, 0, 0, 0)
#define ut_syscall2(st, nr, a, b)	ut_syscall(st, nr, (long)(a), (long)(b), 0, 0, 0, 0)
#define ut_syscall3(st, nr, a, b, c) \
	ut_syscall(st, nr, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define ut_syscall4(st, nr, a, b, c, d) \
	ut_syscall(st, nr, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)

/* Walk the caller's own frames into @st, which starts with @ip. */
void ut_walk_self(struct ut_stack *st, __u64 ip, void *fp);
UT_LABEL(ut_syscall_ret);

/*
 * The same with any stack pointer and frame pointer. The kernel does not use them; no
 * signal may come in between. It returns to ut_syscall_on_ret.
 */
long ut_syscall_on(unsigned long sp, unsigned long fp, long nr, long a1, long a2, long a3);
UT_LABEL(ut_syscall_on_ret);

typedef void (*ut_fn)(void *arg);
/* Call @fn on another stack. */
void ut_switch_stack(ut_fn fn, void *arg, void *sp);
/* Call @fn through @depth known functions on a stack whose bottom has a frame pointer of 0. */
int ut_ladder(unsigned int depth, ut_fn fn, void *arg);
/* Does this stack hold the @depth known functions, in order, and how many frames above? */
bool ut_is_ladder(const struct ut_stack *st, unsigned int depth, unsigned int above);

/*
 * Have a page of the caller's that is not there never served, unless the test does it:
 * the userfaultfd, not to block, or a negative error.
 */
int ut_userfault(void *page);

/* Memory that a child shares with its parent. */
void *ut_shared(size_t size);

/* The return address of the frame at the start of such a page, where none is given. */
#define UT_FUSE_RET	0x400100

/* A page of a file of which the test is the file system. It is there until ut_fuse_end(). */
struct ut_fuse {
	char	path[32];
	pid_t	server;
	void	*page;
	bool	sync;		/* without FUSE_ASYNC_READ */
	bool	device;		/* the page is one of a block device */
	int	direct;		/* the file again, not to be cached */
	int	ms;		/* how long a write takes */
	int	*locked;	/* 1 when ut_fuse_lock() has the lock */
	__u64	frame;		/* the return address at the start of the page */
	/* what a task that serves it itself does before each request */
	void	(*before)(struct ut_fuse *f);
};

/* Nothing that is asked of its data is answered: with @sync no signal ends a wait for that. */
int ut_fuse_page(struct ut_fuse *f, bool sync);
/*
 * One of a block device that has this file behind it. Who needs it waits, until killed or
 * until ut_device_serve() or ut_fuse_end(), which answer.
 */
int ut_device_page(struct ut_fuse *f);
void ut_device_serve(struct ut_fuse *f);
/* To write it back takes @ms; until ut_fuse_end() if that is negative. */
int ut_fuse_slow_page(struct ut_fuse *f, int ms);
/* Have the memory map of the caller's process locked as long as that, once. */
void ut_fuse_lock(struct ut_fuse *f);
void ut_fuse_end(struct ut_fuse *f);
/* To be the file system oneself: /dev/fuse, or negative; what it is to do; the file, mapped. */
int ut_fuse_mount(struct ut_fuse *f);
void ut_fuse_serve(int fd, struct ut_fuse *f);
void *ut_fuse_map(const struct ut_fuse *f, int prot, int flags);

/* Fork a child that runs @fn and waits before it until ut_go(). */
struct ut_child {
	pid_t	pid;
	int	go;		/* write end */
	int	out;		/* read end of what the child writes to ut_out */
};

extern int ut_out;
int ut_fork(struct ut_child *c, ut_fn fn, void *arg);
int ut_go(struct ut_child *c);
int ut_read_all(int fd, void *buf, size_t size);

/* Does the kernel have the system calls of 32-bit code? It can be built without. */
bool ut_has_32bit(void);
#define UT_NO_32BIT	"the kernel runs no 32-bit programs: CONFIG_IA32_EMULATION"
int ut_write_all(int fd, const void *buf, size_t size);
int ut_wait(struct ut_child *c);	/* the status as of waitpid() */
int ut_wait_gone(struct ut_child *c);	/* the same, -1 if it is there after ten seconds */

/*
 * /proc/PID/stat's state letter, and waiting for one of a set of them, and until a task that
 * sleeps has left its CPU.
 */
int ut_task_state(pid_t tid);
bool ut_wait_state(pid_t tid, const char *states);

/* A control group of one task, to freeze it or to keep it on a CPU. */
struct ut_cgroup {
	char	root[32];
	char	group[64];
};

int ut_cgroup(struct ut_cgroup *f, pid_t pid);
int ut_freeze(struct ut_cgroup *f, bool freeze);	/* and wait until it is frozen */
int ut_cgroup_cpu(struct ut_cgroup *f, int cpu);
void ut_cgroup_end(struct ut_cgroup *f);		/* the task is gone, or thawed */

int ut_read_sysctl(const char *path, long *val);
int ut_write_sysctl(const char *path, long val);

/* Where the longest of the kernel's functions whose names begin so starts and ends. */
int ut_kallsyms(const char *prefix, __u64 *start, __u64 *end);
/* And the one of that name. */
int ut_kernel_function(const char *name, __u64 *start, __u64 *end);

/* The end of what can be a user address; with five levels of page tables further up. */
unsigned long ut_task_size(void);

/* Is it a kernel with KASAN or KCSAN, where all takes several times as long? */
bool ut_kernel_checks_itself(void);

/* Leave the program (as a skip of all of it) unless root runs it. */
void ut_need_root(void);

#endif

/* SPDX-License-Identifier: GPL-2.0 */
/* The declarations that the parts of the stress program share. */
#ifndef SELFTEST_UNWIND_STRESS_H
#define SELFTEST_UNWIND_STRESS_H

#include "unwind_test.h"

#define LEAF		"--leaf"
#define PAGE		4096UL
#define MAX_CHAIN	127

enum work {
	CALLS, FORK, VFORK, EXEC, SIGNALS, KILLS, TRACE, URING, NR_WORK,
};

/* The counters of all processes, in shared memory. */
struct totals {
	int		stop;
	pid_t		worker[NR_WORK];
	unsigned long	rounds[NR_WORK];
	unsigned long	hotplugs, squeezes;
	unsigned long	sessions, refused, ended, exact, probes;
	unsigned long	samples, deferred, immediate, none;
	unsigned long	records, empty, merged, again, stamped, cut;
	unsigned long	lost_samples, lost_records;
	unsigned long	bad;
};

extern struct totals *tot;
extern char self_path[4096];
extern bool failing;		/* the kernel is told to fail allocations */
extern int my_work;		/* the kind of work of this process */

unsigned long add(unsigned long *to, unsigned long n);
__u32 rnd(__u32 below);
bool stop(void);
void nap(long us);
/* Called first in each child: it dies with its parent. */
void child_begins(pid_t parent);
pid_t start(void (*fn)(void));

/* stress_work.c: the kinds of work; a process that works until stop(); the new image */
extern void (* const work[])(void);
void worker(void);
void leaf(void);
int probed(int n);

/* stress_profilers.c: the process of one profiler; called once before the first of them */
void session(void);
void prepare_sessions(void);

/*
 * Stamps. The addresses behind the one of the system call are: the task, with the number
 * of frames that follow the stamp; the serial number; and a hash of both.
 */
#define STAMP_TASK	0x5add00000000UL
#define STAMP_TASK_CUT	0x5ade00000000UL	/* the frames may be on an absent page */
#define STAMP_SERIAL	0x5bdd00000000UL
#define STAMP_HASH	0x5cdd00000000UL
#define STAMP_HASH_KIN	0x5cde00000000UL	/* a child may have this stack, too */
#define STAMP_HASH_EXEC	0x5cdf00000000UL	/* the task may change its tid in this call */
#define STAMP_FRAME	0x5ddd00000000UL
#define STAMP_ARG	0x5eed57a300000000UL
#define STAMP_FRAMES	100

static inline __u32 stamp_hash(__u32 task, __u32 serial)
{
	__u64 h = ((__u64)task << 32 | serial) * 0x9e3779b97f4a7c15ULL;

	return h >> 32;
}

static inline unsigned long stamp_frame(unsigned int i)
{
	return STAMP_FRAME + 16 * i;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 */
/* What the parts of the fuzzer share. */
#ifndef SELFTEST_UNWIND_FUZZ_H
#define SELFTEST_UNWIND_FUZZ_H

#include "unwind_test.h"

#define PAGE		4096UL
#define VICTIMS		2
#define MAX_FDS		16

struct totals {
	int		stop;
	pid_t		victim[VICTIMS];
	unsigned long	cases, opened, refused, mapped, unmapped, ioctls, passed;
	unsigned long	records, samples, deferred, chains, addresses, lost, worked;
	unsigned long	bad, stuck, traps;
};

extern struct totals *tot;

/* Of the case. */
extern __u64 case_seed;
extern unsigned int nr_cpus;
extern pid_t dying;

unsigned long add(unsigned long *to, unsigned long n);
__u64 rnd64(void);
__u32 rnd(__u32 below);
bool chance(unsigned int one_in);

/* For breakpoints, the function as well. */
extern long touched[8];
void touch(void *arg);

struct fuzz_event {
	int			fd;
	bool			mine;		/* and not a duplicate */
	bool			redirected;
	struct perf_event_attr	attr;
	char			*base;
	size_t			mapped, size;	/* all of it, and of the data */
	bool			writable;
	__u64			tail;
};

extern struct fuzz_event ev[MAX_FDS];
extern unsigned int nr_ev;
extern bool uniform;		/* all events of the case have the same kind of samples */
extern bool seen_deferred, seen_output;

/*
 * A kernel that checks itself, in a guest that is emulated, takes milliseconds for a
 * sample: some clocks that tick faster, and it does nothing else any more.
 */
#define CLOCK_NS	10000000
#define CLOCK_HZ	100

static inline bool is_clock(const struct perf_event_attr *attr)
{
	return attr->type == PERF_TYPE_SOFTWARE && attr->config <= PERF_COUNT_SW_TASK_CLOCK;
}

/* fuzz_attr.c: one event more, if the kernel takes it; once before all of them. */
void open_one(void);
void find_tracepoints(void);

/* fuzz_check.c: read what is in the buffer of an event. */
void drain(struct fuzz_event *e);
void check_with(unsigned long task_size);

#endif

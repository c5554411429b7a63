/* SPDX-License-Identifier: GPL-2.0 */
/* The declarations that the parts of the fuzzer share. */
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

/* The seed of the current case, the CPUs, and a task that is about to die. */
extern __u64 case_seed;
extern unsigned int nr_cpus;
extern pid_t dying;

unsigned long add(unsigned long *to, unsigned long n);
__u64 rnd64(void);
__u32 rnd(__u32 below);
bool chance(unsigned int one_in);

/* The targets of breakpoints: some words, and a function. */
extern long touched[8];
void touch(void *arg);

struct fuzz_event {
	int			fd;
	bool			mine;		/* opened here, not a duplicate */
	bool			redirected;
	struct perf_event_attr	attr;
	char			*base;
	size_t			mapped, size;	/* size of the mapping, and of its data */
	bool			writable;
	__u64			tail;
};

extern struct fuzz_event ev[MAX_FDS];
extern unsigned int nr_ev;
extern bool uniform;		/* all events of the case have the same kind of samples */
extern bool seen_deferred, seen_output;

/*
 * The limits of clocks. A kernel with KASAN or KCSAN in an emulated guest takes milliseconds
 * for a sample, so a few faster clocks would take all of its time.
 */
#define CLOCK_NS	10000000
#define CLOCK_HZ	100

static inline bool is_clock(const struct perf_event_attr *attr)
{
	return attr->type == PERF_TYPE_SOFTWARE && attr->config <= PERF_COUNT_SW_TASK_CLOCK;
}

/* fuzz_attr.c: try to open one more event; find the tracepoints, once before that. */
void open_one(void);
void find_tracepoints(void);

/* fuzz_check.c: read the buffer of an event and check the records. */
void drain(struct fuzz_event *e);
void check_with(unsigned long task_size);

#endif

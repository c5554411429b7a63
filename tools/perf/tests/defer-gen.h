/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Input for the tests of deferred user callchains. A test puts events into a struct gen,
 * one after the other; gen_read() writes them to a small perf.data and reads this through
 * a session.
 */
#ifndef TESTS_DEFER_GEN_H
#define TESTS_DEFER_GEN_H

#include <stdbool.h>
#include <stddef.h>
#include <linux/types.h>
#include "event.h"
#include "events_stats.h"
#include "tool.h"

struct perf_session;

#define PID	1000
#define KIP	0xffffffff81000000ULL
#define UIP	0x400000ULL
#define MAX_IPS	16
#define MAX_SEEN 64

#define SAMPLE_TYPE (PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | \
		     PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_ID)

/* The perf.data that a test writes */
struct gen {
	char	buf[64 * 1024];
	size_t	len;
	bool	swap;
	bool	pipe;
	/* read it without the ordered queue */
	bool	unordered;
	u16	max_stack;
	/* the number of machines, and the machine of the next event; 0 is the host */
	int	machines;
	int	machine;
};

/* A sample as it was delivered to the tool */
struct seen {
	u64	time;
	u32	tid;
	char	comm[16];
	u64	nr;
	u64	ips[MAX_IPS];
	u64	last;
};

struct gen_reader {
	struct perf_tool	tool;
	struct perf_session	*session;
	struct seen		seen[MAX_SEEN];
	int			nr;
	/* the number of events that were read before the first sample was delivered */
	int			read_first;
	struct events_stats	stats;
};

void gen_put64(struct gen *gen, u64 val);
void gen_comm(struct gen *gen, u32 tid, u64 time, const char *comm);
void gen_exit(struct gen *gen, u32 tid, u64 time);
void gen_chain(struct gen *gen, u32 tid, u64 time, const u64 *ips, u64 nr);
void gen_sample(struct gen *gen, u32 tid, u64 time, u64 cookie);
/* A sample that hit user space: all of the callchain is deferred */
void gen_user_sample(struct gen *gen, u32 tid, u64 time, u64 cookie);
/*
 * A record with @nr addresses. @says is the number in the record, @size the size in its
 * header; 0 stands for the true one.
 */
void gen_record(struct gen *gen, u32 tid, u64 time, u64 cookie, u64 base, u64 nr, u64 says,
		u16 size);
void gen_round(struct gen *gen);

/* Begin a perf.data, as the members of @gen say */
void gen_start(struct gen *gen);
/* Write the events to a file, and read them back */
int gen_read(struct gen *gen, struct gen_reader *rt, bool no_merge);
/* Run a test for all four kinds of input: file or pipe, of either order of bytes */
int gen_all_inputs(struct gen *gen, int machines, int (*test)(void));
/* Has the sample @i the user callchain that starts at @base, or none if @nr is 0? */
bool gen_merged(const struct gen_reader *rt, int i, u64 time, u32 tid, u64 base, u64 nr);

#endif /* TESTS_DEFER_GEN_H */

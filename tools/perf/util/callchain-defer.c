// SPDX-License-Identifier: GPL-2.0
/*
 * Deferred user callchains: bring the samples and their user stacks together.
 *
 * A sample that was written before its user stack could be walked has a callchain
 * that ends in PERF_CONTEXT_USER_DEFERRED and a cookie. The stack comes in a
 * PERF_RECORD_CALLCHAIN_DEFERRED with the same tid and cookie.
 *
 * There is one table of stacks, by (machine, tid, cookie):
 *
 *   a record is read	    its stack is put into the table. Where there is one with
 *			    the same key already, the longer one stays.
 *   a sample is delivered  its stack is looked up, and merged. Samples are delivered
 *			    in the order of their times, among all other events, so
 *			    they have the comm and the maps of the moment when they
 *			    were taken.
 *   a record is delivered  it is then that its stack is old: no sample that is yet to
 *			    be delivered was taken before it. But a task may have been
 *			    sampled again between the walk and the end of that kernel
 *			    entry. So the last stack of each task stays until its next
 *			    one is delivered, or the task exits. All before it go.
 *
 * The kernel writes the record behind its samples, into the same buffer, before the
 * task leaves the CPU: it is nearly always in the table when the sample is due. It need
 * not be where a sample is delivered as soon as it is read, and in files of kernels
 * that write the records of tasks that sleep when these wake up:
 *
 *   A file is read ahead, from where its reader is to the record that is missed
 *   (callchain-ahead.c). All records on the way go into the table.
 *
 *   In a pipe, or live, nothing can be read ahead. The flush of the ordered queue stops
 *   at the sample, and tries again the next time (ORDERED_EVENTS__HOLD). It stops for a
 *   second of the events' own time at most, and not when the queue has grown to 512 MiB.
 *   Then the sample is delivered without, and one line says so.
 *
 * A merged sample has its kernel frames, PERF_CONTEXT_USER and all of the user frames:
 * the kernel has held each part against its own limit. Where there is no stack the last
 * word is PERF_CONTEXT_USER_DEFERRED, and whatever resolves the callchain puts a frame
 * there that says so (callchain_defer__append_missing()). The cookie is never left in the
 * callchain of a sample that was meant to be merged.
 *
 * The input is not trusted. A record is held against its own length before anything in
 * it is used. The table has one entry a record at most, so its memory is bounded by the
 * size of the input.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/perf_event.h>
#include <linux/string.h>
#include <linux/time64.h>
#include <linux/zalloc.h>
#include "callchain.h"
#include "callchain-defer.h"
#include "debug.h"
#include "event.h"
#include "events_stats.h"
#include "evlist.h"
#include "evsel.h"
#include "ordered-events.h"
#include "sample.h"

/* For how long and in how much memory samples wait where nothing can be read ahead */
#define MAX_WAIT_NSEC	NSEC_PER_SEC
#define MAX_WAIT_BYTES	(512ULL << 20)

/* How many lists a new table has, as a power of 2 */
#define MIN_BITS	10

/* header.size is 16 bits wide */
#define MAX_EVENT_SIZE	((size_t)USHRT_MAX + 1)

struct defer_key {
	u64	cookie;
	u32	tid;
	u32	machine_pid;
};

/* A user stack. With the cookie 0, which is none: what is known of a task. */
struct defer_stack {
	struct hlist_node	node;
	struct defer_key	key;
	union {
		struct {
			u64		nr;
			const u64	*ips;
			/* @ips, where the record does not stay in memory */
			u64		*copy;
		};
		/* the last stack of the task that was delivered */
		struct defer_stack	*last;
	};
};

struct callchain_defer {
	struct evlist		 *evlist;
	struct events_stats	 *stats;
	/* the table: it has as many lists as stacks, or up to twice as many */
	struct hlist_head	 *lists;
	unsigned int		 bits;
	size_t			 nr_stacks;
	/* stacks that went, for the next ones */
	struct hlist_head	 spare;
	u64			 seed;
	callchain_defer__ahead_t ahead;
	void			 *ahead_arg;
	bool			 bad_record_warned;
	bool			 bound_warned;
	/* of the sample that is delivered: the longest callchain and the longest record */
	struct ip_callchain	 *chain;
};

/**
 * evlist__has_deferred_callchain - may there be deferred user callchains?
 * @evlist: events, as they were opened or read
 *
 * Return: whether one of them has one of the two attribute bits.
 */
bool evlist__has_deferred_callchain(struct evlist *evlist)
{
	struct evsel *evsel;

	evlist__for_each_entry(evlist, evsel) {
		if (evsel->core.attr.defer_callchain || evsel->core.attr.defer_output)
			return true;
	}
	return false;
}

/* Seeded, so that no file can be made whose keys all meet in one list */
static struct hlist_head *defer_list(const struct callchain_defer *cd,
				     const struct defer_key *key)
{
	u64 h = (key->cookie ^ cd->seed) * 0x9e3779b97f4a7c15ULL;

	h ^= h >> 32;
	h = (h + key->tid + ((u64)key->machine_pid << 32)) * 0xff51afd7ed558ccdULL;
	return &cd->lists[h >> (64 - cd->bits)];
}

static struct hlist_head *defer_lists__new(unsigned int bits)
{
	return calloc((size_t)1 << bits, sizeof(struct hlist_head));
}

/* Without memory the lists stay, and get longer */
static void defer_lists__grow(struct callchain_defer *cd)
{
	struct hlist_head *lists = defer_lists__new(cd->bits + 1), *old = cd->lists;
	size_t nr = (size_t)1 << cd->bits;
	struct defer_stack *stack;
	struct hlist_node *next;

	if (!lists)
		return;

	cd->lists = lists;
	cd->bits++;
	for (size_t i = 0; i < nr; i++) {
		hlist_for_each_entry_safe(stack, next, &old[i], node)
			hlist_add_head(&stack->node, defer_list(cd, &stack->key));
	}
	free(old);
}

/**
 * callchain_defer__new - the deferred user callchains of one input
 * @evlist: the events of the input, which may come to be known later
 * @stats: where to count what became of them
 *
 * One thread at a time may use it.
 *
 * Return: the new one, or NULL without memory.
 */
struct callchain_defer *callchain_defer__new(struct evlist *evlist,
					     struct events_stats *stats)
{
	struct callchain_defer *cd = zalloc(sizeof(*cd));
	struct timespec ts;

	if (!cd)
		return NULL;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	cd->seed = (unsigned long)cd + getpid() + ts.tv_nsec * 0x9e3779b97f4a7c15ULL;
	cd->evlist = evlist;
	cd->stats = stats;
	cd->chain = malloc(2 * MAX_EVENT_SIZE);
	cd->bits = MIN_BITS;
	cd->lists = defer_lists__new(cd->bits);

	if (!cd->chain || !cd->lists) {
		callchain_defer__delete(cd);
		return NULL;
	}
	return cd;
}

static void defer_stack__delete(struct callchain_defer *cd, struct defer_stack *stack)
{
	if (stack->key.cookie)
		zfree(&stack->copy);
	hlist_del(&stack->node);
	hlist_add_head(&stack->node, &cd->spare);
	cd->nr_stacks--;
}

/**
 * callchain_defer__finish - all of the input was delivered
 * @cd: its stacks, which are forgotten, or NULL
 */
void callchain_defer__finish(struct callchain_defer *cd)
{
	struct defer_stack *stack;
	struct hlist_node *next;

	if (!cd || !cd->lists)
		return;

	for (size_t i = 0; i < (size_t)1 << cd->bits; i++) {
		hlist_for_each_entry_safe(stack, next, &cd->lists[i], node)
			defer_stack__delete(cd, stack);
	}
	hlist_for_each_entry_safe(stack, next, &cd->spare, node)
		free(stack);
	INIT_HLIST_HEAD(&cd->spare);
}

/**
 * callchain_defer__delete - forget all of the deferred user callchains of an input
 * @cd: these, or NULL; the callchain of a merged sample is gone, too
 */
void callchain_defer__delete(struct callchain_defer *cd)
{
	if (!cd)
		return;

	callchain_defer__finish(cd);
	free(cd->lists);
	free(cd->chain);
	free(cd);
}

/**
 * callchain_defer__set_ahead - say how to find records that were not read yet
 * @cd: the stacks of an input
 * @ahead: reads on to the next record, or NULL where that cannot be done
 * @arg: for @ahead
 */
void callchain_defer__set_ahead(struct callchain_defer *cd, callchain_defer__ahead_t ahead,
				void *arg)
{
	cd->ahead = ahead;
	cd->ahead_arg = arg;
}

static struct defer_stack *defer_stack__find(const struct callchain_defer *cd,
					     const struct defer_key *key)
{
	struct defer_stack *stack;

	hlist_for_each_entry(stack, defer_list(cd, key), node) {
		if (stack->key.cookie == key->cookie && stack->key.tid == key->tid &&
		    stack->key.machine_pid == key->machine_pid)
			return stack;
	}
	return NULL;
}

static struct defer_stack *defer_stack__findnew(struct callchain_defer *cd,
						const struct defer_key *key)
{
	struct defer_stack *stack = defer_stack__find(cd, key);

	if (stack)
		return stack;

	if (hlist_empty(&cd->spare)) {
		stack = malloc(sizeof(*stack));
		if (!stack)
			return NULL;
	} else {
		stack = hlist_entry(cd->spare.first, struct defer_stack, node);
		hlist_del(&stack->node);
	}

	if (cd->nr_stacks++ >> cd->bits)
		defer_lists__grow(cd);
	*stack = (struct defer_stack){ .key = *key };
	hlist_add_head(&stack->node, defer_list(cd, key));
	return stack;
}

static struct defer_key defer_key(const struct perf_sample *sample, u64 cookie)
{
	return (struct defer_key) {
		.cookie		= cookie,
		.tid		= sample->tid,
		.machine_pid	= sample->machine_pid,
	};
}

/**
 * callchain_defer__add - put the stack of a record into the table
 * @cd: the stacks of the input
 * @event: a PERF_RECORD_CALLCHAIN_DEFERRED in the order of bytes of this machine
 * @copy: @event does not stay where it is until callchain_defer__finish()
 *
 * It may be added more than once.
 *
 * Return: 0, -EINVAL when there is something wrong with the record, or -ENOMEM.
 */
int callchain_defer__add(struct callchain_defer *cd, union perf_event *event, bool copy)
{
	const struct ip_callchain *chain;
	struct defer_stack *stack;
	struct perf_sample sample;
	struct defer_key key;
	u64 *ips = NULL;

	/* It holds the record against its length */
	if (evlist__parse_sample(cd->evlist, event, &sample) || !sample.deferred_cookie)
		return -EINVAL;

	chain = sample.callchain;
	for (u64 i = 0; i < chain->nr; i++) {
		if (chain->ips[i] >= PERF_CONTEXT_MAX)
			return -EINVAL;
	}

	key = defer_key(&sample, sample.deferred_cookie);
	stack = defer_stack__findnew(cd, &key);
	if (!stack)
		return -ENOMEM;
	if (chain->nr <= stack->nr)
		return 0;

	if (copy) {
		ips = memdup(chain->ips, chain->nr * sizeof(u64));
		if (!ips)
			return -ENOMEM;
	}
	free(stack->copy);
	stack->copy = ips;
	stack->ips = ips ?: chain->ips;
	stack->nr = chain->nr;
	return 0;
}

/**
 * callchain_defer__read - a PERF_RECORD_CALLCHAIN_DEFERRED was read
 * @cd: the stacks of the input
 * @event: the record
 * @copy: see callchain_defer__add()
 * @file_offset: where it was, for messages
 * @file_path: in which file
 *
 * Return: 0, 1 when the record is malformed and not to be delivered, or -ENOMEM.
 */
int callchain_defer__read(struct callchain_defer *cd, union perf_event *event, bool copy,
			  u64 file_offset, const char *file_path)
{
	int err = callchain_defer__add(cd, event, copy);

	if (err != -EINVAL)
		return err;

	if (!cd->bad_record_warned) {
		cd->bad_record_warned = true;
		pr_warning("%#" PRIx64 "@%s [%#x]: malformed deferred callchain record, skipped\n",
			   file_offset, file_path ?: "-", event->header.size);
	}
	cd->stats->nr_deferred_bad_records++;
	return 1;
}

/**
 * callchain_defer__queue_time - the place of an event in the ordered queue
 * @event: the event
 * @time: its time
 *
 * A record has its place behind all samples that can name it, also those with
 * the same time that come from another buffer.
 *
 * Return: the time to queue it at.
 */
u64 callchain_defer__queue_time(const union perf_event *event, u64 time)
{
	if (event->header.type == PERF_RECORD_CALLCHAIN_DEFERRED && time < ULLONG_MAX - 1)
		time++;
	return time;
}

/* A new last stack of a task, or none when it exits: the one before it goes. */
static int defer_task__push(struct callchain_defer *cd, const struct perf_sample *sample,
			    u64 cookie)
{
	struct defer_key key = defer_key(sample, cookie);
	struct defer_stack *task, *stack = cookie ? defer_stack__find(cd, &key) : NULL;

	key.cookie = 0;
	task = stack ? defer_stack__findnew(cd, &key) : defer_stack__find(cd, &key);
	if (!task)
		return stack ? -ENOMEM : 0;

	if (task->last && task->last != stack)
		defer_stack__delete(cd, task->last);
	task->last = stack;
	if (!cookie)
		defer_stack__delete(cd, task);
	return 0;
}

/* May a sample wait for a stack that was not read yet? */
static bool defer_may_wait(struct callchain_defer *cd, const struct ordered_events *oe,
			   const struct perf_sample *sample)
{
	bool time_over, queue_full;

	if (cd->ahead || !oe->may_hold)
		return false;

	time_over = oe->max_timestamp > sample->time + MAX_WAIT_NSEC;
	queue_full = oe->cur_alloc_size > MAX_WAIT_BYTES;
	if (!time_over && !queue_full)
		return true;

	if (!cd->bound_warned) {
		cd->bound_warned = true;
		pr_warning("A user callchain did not come within %s of events: going on without it\n",
			   time_over ? "a second" : "512 MiB");
	}
	return false;
}

/* The callchain up to the marker, then the user frames or a marker in place of them */
static void defer_merge(struct callchain_defer *cd, struct perf_sample *sample,
			u64 marker, const struct defer_stack *stack)
{
	struct ip_callchain *chain = cd->chain;
	u64 nr;

	memcpy(chain->ips, sample->callchain->ips, marker * sizeof(u64));
	chain->nr = marker;
	if (stack) {
		/* The record is for all events, of which others may go deeper */
		nr = sample->evsel->core.attr.sample_max_stack ?: stack->nr;
		nr = min(nr, stack->nr);
		chain->ips[chain->nr++] = PERF_CONTEXT_USER;
		memcpy(&chain->ips[chain->nr], stack->ips, nr * sizeof(u64));
		chain->nr += nr;
	} else {
		/* The innermost frame of a sample in user space is known without them */
		if (!marker && sample->cpumode == PERF_RECORD_MISC_USER && sample->ip) {
			chain->ips[chain->nr++] = PERF_CONTEXT_USER;
			chain->ips[chain->nr++] = sample->ip;
		}
		chain->ips[chain->nr++] = PERF_CONTEXT_USER_DEFERRED;
	}
	sample->recorded_callchain = sample->callchain;
	sample->callchain = chain;
	sample->deferred_callchain = false;
}

static int defer_sample(struct callchain_defer *cd, const struct ordered_events *oe,
			struct perf_sample *sample)
{
	const struct ip_callchain *chain = sample->callchain;
	struct defer_stack *stack = NULL;
	struct defer_key key;
	u64 marker;
	int err;

	for (marker = 0; marker < chain->nr; marker++) {
		if (chain->ips[marker] == PERF_CONTEXT_USER_DEFERRED)
			break;
	}
	if (marker == chain->nr)
		return 0;

	if (marker + 2 == chain->nr && sample->deferred_cookie) {
		key = defer_key(sample, sample->deferred_cookie);
		while (!(stack = defer_stack__find(cd, &key)) && cd->ahead) {
			err = cd->ahead(cd->ahead_arg);
			if (err < 0)
				return err;
			if (!err)
				break;
		}
		if (!stack && defer_may_wait(cd, oe, sample))
			return ORDERED_EVENTS__HOLD;
	} else {
		cd->stats->nr_deferred_bad_samples++;
	}

	if (stack && !stack->nr)
		stack = NULL;
	cd->stats->nr_deferred_samples++;
	cd->stats->nr_deferred_missing += !stack;
	defer_merge(cd, sample, marker, stack);
	return 0;
}

/**
 * callchain_defer__deliver - an event is due: give a sample its user callchain
 * @cd: the stacks of the input
 * @oe: the queue that it may be flushed from
 * @event: the event that is delivered, of any type
 * @sample: the event, parsed; the callchain of a sample becomes the merged one
 *
 * Return: 0, ORDERED_EVENTS__HOLD when the event has to wait in @oe for a record that can
 * still come, or a negative error.
 */
int callchain_defer__deliver(struct callchain_defer *cd, const struct ordered_events *oe,
			     union perf_event *event, struct perf_sample *sample)
{
	switch (event->header.type) {
	case PERF_RECORD_SAMPLE:
		return sample->callchain ? defer_sample(cd, oe, sample) : 0;
	case PERF_RECORD_CALLCHAIN_DEFERRED:
		return defer_task__push(cd, sample, sample->deferred_cookie);
	case PERF_RECORD_EXIT:
		return defer_task__push(cd, sample, 0);
	default:
		return 0;
	}
}

/**
 * callchain_defer__nr_events - how many events there were, had nothing been deferred
 * @stats: the counts
 *
 * Return: the number of events that are no records with a user callchain.
 */
u64 callchain_defer__nr_events(const struct events_stats *stats)
{
	return (u64)stats->nr_events[0] - stats->nr_events[PERF_RECORD_CALLCHAIN_DEFERRED];
}

/**
 * callchain_defer__fprintf_stats - what became of the deferred user callchains
 * @stats: the counts
 * @fp: where to print them; nothing is printed when there was none
 *
 * Return: the number of bytes.
 */
size_t callchain_defer__fprintf_stats(const struct events_stats *stats, FILE *fp)
{
	const struct {
		const char	*name;
		u64		nr;
		bool		always;
	} lines[] = {
		{ "user callchains deferred",	   stats->nr_deferred_samples,	   true },
		{ "user callchains not available", stats->nr_deferred_missing,	   true },
		{ "callchain records malformed",   stats->nr_deferred_bad_records, false },
		{ "deferred samples malformed",	   stats->nr_deferred_bad_samples, false },
	};
	size_t i, ret = 0;

	if (!stats->nr_deferred_samples && !stats->nr_deferred_bad_records)
		return 0;

	for (i = 0; i < ARRAY_SIZE(lines); i++) {
		if (lines[i].nr || lines[i].always)
			ret += fprintf(fp, "%29s: %8" PRIu64 "\n", lines[i].name, lines[i].nr);
	}
	return ret;
}

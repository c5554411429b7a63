// SPDX-License-Identifier: GPL-2.0
/*
 * Deferred user callchains: merge the samples with their user stacks.
 *
 * If the kernel cannot walk the user stack when it writes a sample, the sample's
 * callchain ends in PERF_CONTEXT_USER_DEFERRED and a cookie. The stack comes in a
 * PERF_RECORD_CALLCHAIN_DEFERRED with the same tid and cookie. That is the "record"
 * in this file.
 *
 * One table holds the stacks. Its key is (machine, tid, cookie):
 *
 *   A record is read:	     Its stack goes into the table. If there is a stack with the
 *			     same key already, the longer stack stays.
 *   A sample is delivered:  Its stack is looked up and merged. All events are delivered
 *			     in time order, so the comm and the maps are those of the
 *			     time when the sample was taken.
 *   A record is passed:     All events up to the time of the record have been delivered.
 *			     But the task may be sampled again between the walk and the
 *			     end of that kernel entry, with the same cookie. So of the
 *			     task's passed stacks the latest one stays. The others are
 *			     deleted when the next record of the task is read.
 *			     Without the ordered queue, events of several buffers are not
 *			     in the order of time, and all stacks of a file stay.
 *
 * So a record itself need not be delivered. It only goes through the queue if the tool
 * shows it or writes it.
 *
 * Our kernel writes the record after its samples, into the same buffer, before the task
 * leaves the CPU. So the record is nearly always in the table when the sample is due.
 * There are two exceptions: without the ordered queue a sample is delivered as soon as it
 * is read, and other kernels write the record of a sleeping task when it wakes up. Then:
 *
 *   A file is read ahead, from the position of its reader to the missing record
 *   (callchain-ahead.c). All records on the way go into the table.
 *
 *   A pipe or a live session cannot be read ahead. The flush of the ordered queue stops
 *   at the sample, and the next flush tries again (ORDERED_EVENTS__HOLD). The sample
 *   waits for one second of the events' own time at most, and only until queue and table
 *   have grown to 512 MiB. Then it is delivered without its user frames, and one line says so.
 *   If a tool has no ordered queue, the samples of a pipe stay as they were recorded.
 *
 * A merged sample has its kernel frames, PERF_CONTEXT_USER and all of the user frames.
 * The kernel has applied a limit to each part already. If the stack is missing, the last
 * word of the callchain is PERF_CONTEXT_USER_DEFERRED, and the code that resolves the
 * callchain adds a frame that says so (callchain_defer__append_missing()). The cookie
 * never stays in a callchain that was to be merged, not even if the sample is malformed.
 *
 * The input is not trusted. A record is checked against its own length before it is
 * used. The table has at most two entries for each record, for the stack and for its
 * task, so the size of the input bounds the memory.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <linux/err.h>
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
#include "ui/ui.h"

/* The limits of the wait for a record if the input cannot be read ahead */
#define MAX_WAIT_NSEC	NSEC_PER_SEC
#define MAX_WAIT_BYTES	(512ULL << 20)

/* A new table has 2^MIN_BITS lists */
#define MIN_BITS	10

/* header.size has 16 bits */
#define MAX_EVENT_SIZE	((size_t)USHRT_MAX + 1)

struct defer_key {
	u64	cookie;
	u32	tid;
	u32	machine_pid;
};

/* A user stack. No stack has the cookie 0: an entry with this cookie stands for a task. */
struct defer_stack {
	struct hlist_node	node;
	struct defer_key	key;
	/* of a task: its stacks whose records were read; of a stack: its place in there */
	struct list_head	list;
	/* The record is passed when events were delivered up to this time */
	u64			time;
	u64			nr;
	const u64		*ips;
	/* the memory of @ips, if the record does not stay in memory */
	u64			*copy;
};

struct callchain_defer {
	struct evlist		 *evlist;
	struct events_stats	 *stats;
	/* the table: lists are added when there are more stacks than lists */
	struct hlist_head	 *lists;
	unsigned int		 bits;
	size_t			 nr_stacks;
	/* the size of all stacks, in bytes */
	u64			 size;
	/* deleted stacks, whose memory is used again */
	struct hlist_head	 spare;
	u64			 seed;
	callchain_defer__ahead_t ahead;
	void			 *ahead_arg;
	bool			 bound_warned;
	/* the merged callchain, with room for the longest callchain and the longest record */
	struct ip_callchain	 *chain;
};

/**
 * evlist__has_deferred_callchain - can the samples have deferred user callchains?
 * @evlist: events, as they were opened or read
 *
 * Return: true if an event has attr.defer_callchain or attr.defer_output.
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

/* With a seed, so that nobody can write a file whose keys all go into one list */
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

/* If there is no memory, the number of lists stays, and the lists get longer */
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
 * callchain_defer__new - make a table for the deferred user callchains of one input
 * @evlist: the events of the input; they may be added later
 * @stats: counts merged, missing and malformed callchains
 * @ahead: reads ahead to the next record; NULL if the input cannot be read ahead
 * @arg: the argument of @ahead
 *
 * Only one thread at a time may use the table.
 *
 * Return: the table, or NULL if there is no memory.
 */
struct callchain_defer *callchain_defer__new(struct evlist *evlist, struct events_stats *stats,
					     callchain_defer__ahead_t ahead, void *arg)
{
	struct callchain_defer *cd = zalloc(sizeof(*cd));
	struct timespec ts;

	if (!cd)
		return NULL;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	cd->seed = (unsigned long)cd + getpid() + ts.tv_nsec * 0x9e3779b97f4a7c15ULL;
	cd->evlist = evlist;
	cd->stats = stats;
	cd->ahead = ahead;
	cd->ahead_arg = arg;
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
	free(stack->copy);
	list_del(&stack->list);
	hlist_del(&stack->node);
	hlist_add_head(&stack->node, &cd->spare);
	cd->nr_stacks--;
	cd->size -= sizeof(*stack) + stack->nr * sizeof(u64);
}

/**
 * callchain_defer__finish - forget all stacks, when all of the input was delivered
 * @cd: the table, or NULL
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
 * callchain_defer__delete - delete the table of an input
 * @cd: the table, or NULL; the callchain of the last merged sample is freed, too
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
	cd->size += sizeof(*stack);
	*stack = (struct defer_stack){ .key = *key };
	INIT_LIST_HEAD(&stack->list);
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
 * @cd: the table
 * @event: a PERF_RECORD_CALLCHAIN_DEFERRED in this machine's byte order
 * @copy: copy the stack, because @event is freed before callchain_defer__finish()
 *
 * The same record may be added more than once.
 *
 * Return: the stack, or ERR_PTR(): -EINVAL if the record is malformed, or -ENOMEM.
 */
struct defer_stack *callchain_defer__add(struct callchain_defer *cd, union perf_event *event,
					 bool copy)
{
	const struct ip_callchain *chain;
	struct defer_stack *stack;
	struct perf_sample sample;
	struct defer_key key;
	u64 *ips = NULL;

	/* The parser checks the record against its length */
	if (evlist__parse_sample(cd->evlist, event, &sample) || !sample.deferred_cookie)
		return ERR_PTR(-EINVAL);

	chain = sample.callchain;
	for (u64 i = 0; i < chain->nr; i++) {
		if (chain->ips[i] >= PERF_CONTEXT_MAX)
			return ERR_PTR(-EINVAL);
	}

	key = defer_key(&sample, sample.deferred_cookie);
	stack = defer_stack__findnew(cd, &key);
	if (!stack)
		return ERR_PTR(-ENOMEM);

	/*
	 * A sample with the same time may come from another buffer, so add one. An earlier
	 * record of the same stack may come from there, too. Events without a time (-1) do
	 * not wait in the queue.
	 */
	stack->time = max(stack->time, sample.time + 1);
	if (chain->nr <= stack->nr)
		return stack;

	if (copy) {
		ips = memdup(chain->ips, chain->nr * sizeof(u64));
		if (!ips)
			return ERR_PTR(-ENOMEM);
	}
	free(stack->copy);
	cd->size += (chain->nr - stack->nr) * sizeof(u64);
	stack->copy = ips;
	stack->ips = ips ?: chain->ips;
	stack->nr = chain->nr;
	return stack;
}

/*
 * All events up to @time have been delivered. Delete the task's stacks whose records are
 * passed, but the latest one only if the task exits. Records from several buffers may be
 * out of order.
 */
static void defer_task__pass(struct callchain_defer *cd, struct defer_stack *task, u64 time,
			     bool exits)
{
	struct defer_stack *stack, *next, *latest = NULL;

	list_for_each_entry_safe(stack, next, &task->list, list) {
		if (stack->time > time)
			break;
		if (latest && latest->time > stack->time) {
			defer_stack__delete(cd, stack);
			continue;
		}
		if (latest)
			defer_stack__delete(cd, latest);
		latest = stack;
	}
	if (exits && latest)
		defer_stack__delete(cd, latest);
	/* If not all are passed, there is a new task with the same number */
	if (list_empty(&task->list))
		defer_stack__delete(cd, task);
}

/**
 * callchain_defer__read - handle a PERF_RECORD_CALLCHAIN_DEFERRED that was read
 * @cd: the table
 * @oe: the ordered queue, or NULL if events are delivered as they are read
 * @event: the record
 * @copy: see callchain_defer__add()
 * @file_offset: the offset of the record, for the warning
 * @file_path: the file of the record, for the warning, or NULL
 *
 * The first malformed record is warned of, and each is counted.
 *
 * Return: 0, 1 if the record is malformed and must not be delivered, or -ENOMEM.
 */
int callchain_defer__read(struct callchain_defer *cd, const struct ordered_events *oe,
			  union perf_event *event, bool copy, u64 file_offset,
			  const char *file_path)
{
	struct defer_stack *task, *stack = callchain_defer__add(cd, event, copy);
	struct defer_key key;

	if (IS_ERR(stack)) {
		if (PTR_ERR(stack) != -EINVAL)
			return PTR_ERR(stack);
		if (!cd->stats->nr_deferred_bad_records++)
			pr_warning("%#llx@%s [%#x]: malformed deferred callchain record, skipped\n",
				   (unsigned long long)file_offset, file_path ?: "-",
				   event->header.size);
		return 1;
	}

	if (!oe) {
		/* In a file an earlier sample can still come. A pipe is not merged. */
		if (!cd->ahead)
			defer_stack__delete(cd, stack);
		return 0;
	}
	/* Without times nothing tells when a record is passed. */
	if (!stack->time)
		return 0;

	key = stack->key;
	key.cookie = 0;
	task = defer_stack__findnew(cd, &key);
	if (!task)
		return -ENOMEM;

	list_move_tail(&stack->list, &task->list);
	defer_task__pass(cd, task, oe->last_flush, /*exits=*/false);
	return 0;
}

/* May a sample wait in the ordered queue for a record that was not read yet? */
static bool defer_may_wait(struct callchain_defer *cd, const struct ordered_events *oe,
			   const struct perf_sample *sample)
{
	const char *bound;

	if (cd->ahead)
		return false;

	if (oe->makes_room)
		bound = "report.queue-size";
	else if (!oe->may_hold)
		return false;
	else if (oe->max_timestamp > sample->time + MAX_WAIT_NSEC)
		bound = "a second";
	else if (oe->cur_alloc_size + cd->size > MAX_WAIT_BYTES)
		bound = "512 MiB";
	else
		return true;

	if (!cd->bound_warned) {
		cd->bound_warned = true;
		pr_warning("A user callchain did not come within %s of events: going on without it\n",
			   bound);
	}
	return false;
}

/* Copy the callchain up to the marker. Then add the user frames, or a marker for none. */
static void defer_merge(struct callchain_defer *cd, struct perf_sample *sample,
			u64 marker, const struct defer_stack *stack)
{
	struct ip_callchain *chain = cd->chain;
	u64 nr, *end = chain->ips + marker;

	memcpy(chain->ips, sample->callchain->ips, marker * sizeof(u64));
	if (stack) {
		/* The events share the record, and the limit of this event may be lower */
		nr = sample->evsel->core.attr.sample_max_stack ?: stack->nr;
		nr = min(nr, stack->nr);
		*end++ = PERF_CONTEXT_USER;
		memcpy(end, stack->ips, nr * sizeof(u64));
		end += nr;
	} else {
		/* If the sample hit user space, its ip is the innermost user frame */
		if (!marker && sample->cpumode == PERF_RECORD_MISC_USER && sample->ip) {
			*end++ = PERF_CONTEXT_USER;
			*end++ = sample->ip;
		}
		*end++ = PERF_CONTEXT_USER_DEFERRED;
	}
	chain->nr = end - chain->ips;
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
		/* An empty record says that there is no stack. A later one may have it. */
		while (!((stack = defer_stack__find(cd, &key)) && stack->nr) && cd->ahead) {
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
 * callchain_defer__deliver - handle an event that is due: merge the callchain of a sample
 * @cd: the table
 * @oe: the ordered queue of the session
 * @event: the event, of any type
 * @sample: the parsed event; if it is a sample, it gets the merged callchain
 *
 * Return: 0, ORDERED_EVENTS__HOLD if the event must wait in @oe for a record that can
 * still come, or a negative error.
 */
int callchain_defer__deliver(struct callchain_defer *cd, const struct ordered_events *oe,
			     union perf_event *event, struct perf_sample *sample)
{
	struct defer_key key = defer_key(sample, 0);
	struct defer_stack *task;

	switch (event->header.type) {
	case PERF_RECORD_SAMPLE:
		return sample->callchain ? defer_sample(cd, oe, sample) : 0;
	case PERF_RECORD_EXIT:
		task = defer_stack__find(cd, &key);
		if (task)
			defer_task__pass(cd, task, sample->time, /*exits=*/true);
		return 0;
	default:
		return 0;
	}
}

/**
 * callchain_defer__nr_events - count the events, as if nothing had been deferred
 * @stats: the counts
 *
 * Return: the number of events, without the records with deferred user callchains.
 */
u64 callchain_defer__nr_events(const struct events_stats *stats)
{
	return (u64)stats->nr_events[0] - stats->nr_events[PERF_RECORD_CALLCHAIN_DEFERRED];
}

static char defer_missing_line[80];

static void defer_print_missing(void)
{
	fputs(defer_missing_line, stderr);
}

/**
 * callchain_defer__warn_missing - print how many user callchains are not available
 * @stats: the counts
 *
 * A browser shows the line for a moment. Then it is printed again when perf ends.
 */
void callchain_defer__warn_missing(const struct events_stats *stats)
{
	bool is_first = !defer_missing_line[0];

	snprintf(defer_missing_line, sizeof(defer_missing_line),
		 "%" PRIu64 " of %" PRIu64 " user callchains not available\n",
		 stats->nr_deferred_missing, stats->nr_deferred_samples);
	pr_warning("%s", defer_missing_line);
	if (use_browser > 0 && is_first)
		atexit(defer_print_missing);
}

/**
 * callchain_defer__fprintf_stats - print the counts of deferred user callchains
 * @stats: the counts
 * @fp: the output; nothing is printed if no user callchain was deferred
 *
 * Return: the number of bytes printed.
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

// SPDX-License-Identifier: GPL-2.0
/*
 * Deferred user callchains: count those that are not in the data, while it is
 * recorded.
 *
 * The last line of perf record says how many user callchains are not available.
 * Where the samples are read back for their build-ids the session that reads them
 * knows. Where nothing is read back, or cannot be, the events are looked at on
 * their way from the ring buffers to the output: here. The answer is that of
 * somebody who reads the output, see callchain_defer__deliver(): a sample whose
 * callchain ends in a marker and a cookie has its user callchain when there is a
 * record with the same tid and cookie, and frames in it, anywhere in the same file.
 *
 * At each moment @nr_missing is the answer for what was seen so far: a sample adds
 * one to it unless its record is known, and a record takes away as many as wait for
 * it. What this takes is to remember who waits, and, as the buffers of the CPUs
 * are read one after the other, records whose samples may still come. Neither may
 * grow with the length of the recording. So the time is divided into epochs: one
 * ends as soon as all buffers were read to their ends since it began. Then,
 *
 * - what was written before something else that was pushed in epoch N, was pushed
 *   in epoch N + 1 at the latest;
 *
 * - what was pushed in epoch N + 2 was written after all that was pushed in epoch N.
 *
 * A record is written after the samples that it belongs to. So it is forgotten after
 * the epoch that follows the one it was pushed in, but for the last one of each
 * task: where the kernel names the stack of a task that is sampled again between
 * the walk and the end of the kernel entry, such samples come later, as late as they
 * like.
 *
 * A sample waits as long as its task sleeps. It waits in vain when the task is seen
 * in another kernel entry, by its cookie, in an event that was pushed two epochs
 * later: the record was written before that event, so it comes by the end of the
 * next epoch, or never. With PERF_RECORD_EXIT the task is forgotten.
 *
 * Where the buffers are overwritten, an epoch lasts from one snapshot to the next,
 * and so does it where some other buffer is not read. Then there may be more to
 * remember than there is room for (MAX_REMEMBERED): epochs are ended early, and the
 * answer is not exact any more, but an upper bound.
 *
 * The bytes are the kernel's. They are not trusted to be events nevertheless: at
 * worst the count is wrong.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <linux/hash.h>
#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/perf_event.h>
#include <linux/zalloc.h>
#include <perf/event.h>
#include "callchain-defer.h"
#include "defer-count.h"
#include "event.h"
#include "evlist.h"
#include "evsel.h"
#include "mutex.h"

/* header.size is 16 bit wide */
#define MAX_EVENT_SIZE		((size_t)USHRT_MAX + 1)

/* With all of them in use a chain is 8 long: a look-up does not depend on how many */
#define HASH_BITS		16
#define MAX_REMEMBERED		((size_t)1 << 19)
/* There should not be that many while all buffers are read in turn */
#define MANY_REMEMBERED		((size_t)1 << 14)

enum defer_state {
	DEFER_WAITING,	/* on the list of its task */
	DEFER_IN_VAIN,	/* the task is past it: about to be forgotten */
	DEFER_RECORDED,	/* the record was pushed not long ago */
	DEFER_LAST,	/* the record is the last one of its task */
};

/* A kernel entry of a task: its samples that have no callchain yet, or its record */
struct defer_entry {
	struct hlist_node	node;
	struct list_head	list;
	u64			cookie;
	/* of the record or, of what waits, of the last sample; 0 if it has none */
	u64			time;
	/* when it was pushed, or that it is in vain was known */
	u64			epoch;
	u64			nr_waiting;
	u32			tid;
	u8			state;
	bool			empty;
};

struct defer_task {
	struct hlist_node	node;
	/* the one whose last sample was pushed first comes first */
	struct list_head	waiting;
	struct defer_entry	*last;
	struct list_head	exit;
	u64			exit_time;
	u64			exit_epoch;
	u32			tid;
};

/* One of the threads that read the buffers */
struct defer_reader {
	/* the epoch in which its turn began, and that in which it read everything */
	u64			since;
	u64			through;
	bool			gone;
	/* the begin of an event that goes on at the begin of its buffer */
	const void		*source;
	size_t			part_len;
	u64			part[MAX_EVENT_SIZE / sizeof(u64)];
};

struct defer_count {
	/* taken once for all that is pushed at once */
	struct mutex		lock;
	struct evlist		*evlist;
	u64			nr_samples;
	u64			nr_missing;
	bool			up_to;
	u64			epoch;
	size_t			nr_remembered;
	struct hlist_head	*entries;
	struct hlist_head	*tasks;
	/* each in the order of their epochs */
	struct list_head	recorded;
	struct list_head	in_vain;
	struct list_head	exits;
	int			nr_readers;
	int			nr_gone;
	int			nr_through;
	struct defer_reader	readers[];
};

/**
 * defer_count__new - count the user callchains that are not available
 * @evlist: the events, opened
 * @nr_readers: how many threads read their buffers
 *
 * Return: the counter, or NULL when there is no memory for it.
 */
struct defer_count *defer_count__new(struct evlist *evlist, int nr_readers)
{
	struct defer_count *dc = zalloc(sizeof(*dc) + nr_readers * sizeof(dc->readers[0]));

	if (!dc)
		return NULL;

	mutex_init(&dc->lock);
	dc->evlist = evlist;
	dc->nr_readers = nr_readers;
	dc->epoch = 1;
	INIT_LIST_HEAD(&dc->recorded);
	INIT_LIST_HEAD(&dc->in_vain);
	INIT_LIST_HEAD(&dc->exits);
	dc->entries = calloc(1 << HASH_BITS, sizeof(*dc->entries));
	dc->tasks = calloc(1 << HASH_BITS, sizeof(*dc->tasks));
	if (!dc->entries || !dc->tasks) {
		defer_count__delete(dc);
		return NULL;
	}
	return dc;
}

static struct hlist_head *defer_entry__head(struct defer_count *dc, u32 tid, u64 cookie)
{
	return &dc->entries[hash_64(cookie + tid * GOLDEN_RATIO_64, HASH_BITS)];
}

static struct defer_entry *defer_entry__find(struct defer_count *dc, u32 tid, u64 cookie)
{
	struct defer_entry *entry;

	hlist_for_each_entry(entry, defer_entry__head(dc, tid, cookie), node) {
		if (entry->cookie == cookie && entry->tid == tid)
			return entry;
	}
	return NULL;
}

static void *defer_count__alloc(struct defer_count *dc, size_t size)
{
	void *p = dc->nr_remembered < MAX_REMEMBERED ? zalloc(size) : NULL;

	if (p)
		dc->nr_remembered++;
	else
		dc->up_to = true;
	return p;
}

static struct defer_entry *defer_entry__new(struct defer_count *dc, u32 tid, u64 cookie)
{
	struct defer_entry *entry = defer_count__alloc(dc, sizeof(*entry));

	if (!entry)
		return NULL;

	entry->tid = tid;
	entry->cookie = cookie;
	INIT_LIST_HEAD(&entry->list);
	hlist_add_head(&entry->node, defer_entry__head(dc, tid, cookie));
	return entry;
}

static void defer_entry__forget(struct defer_count *dc, struct defer_entry *entry)
{
	hlist_del(&entry->node);
	list_del(&entry->list);
	free(entry);
	dc->nr_remembered--;
}

static struct defer_task *defer_task__find(struct defer_count *dc, u32 tid)
{
	struct defer_task *task;

	hlist_for_each_entry(task, &dc->tasks[hash_32(tid, HASH_BITS)], node) {
		if (task->tid == tid)
			return task;
	}
	return NULL;
}

static struct defer_task *defer_task__findnew(struct defer_count *dc, u32 tid)
{
	struct defer_task *task = defer_task__find(dc, tid);

	if (task)
		return task;

	task = defer_count__alloc(dc, sizeof(*task));
	if (!task)
		return NULL;

	task->tid = tid;
	INIT_LIST_HEAD(&task->waiting);
	INIT_LIST_HEAD(&task->exit);
	hlist_add_head(&task->node, &dc->tasks[hash_32(tid, HASH_BITS)]);
	return task;
}

static void defer_task__forget(struct defer_count *dc, struct defer_task *task)
{
	hlist_del(&task->node);
	list_del(&task->exit);
	free(task);
	dc->nr_remembered--;
}

/* All tasks outside of the profiler's PID namespace, and those that are gone, are one */
static bool is_task(u32 tid)
{
	return tid && tid != (u32)-1;
}

/*
 * The task was seen in an event just pushed, in no kernel entry but one whose samples
 * were pushed now, or whose record was.
 */
static void defer_task__seen(struct defer_count *dc, struct defer_task *task)
{
	struct defer_entry *entry;

	if (!task || !is_task(task->tid))
		return;

	while (!list_empty(&task->waiting)) {
		entry = list_first_entry(&task->waiting, struct defer_entry, list);
		if (entry->epoch + 2 > dc->epoch)
			break;
		entry->state = DEFER_IN_VAIN;
		entry->epoch = dc->epoch;
		list_move_tail(&entry->list, &dc->in_vain);
	}
}

/* Was that of a task that exited? There may be another one with the same number. */
static bool defer_task__had(const struct defer_task *task, const struct defer_entry *entry)
{
	if (entry->time && task->exit_time)
		return entry->time <= task->exit_time;
	return entry->epoch <= task->exit_epoch + 1;
}

static void defer_task__exited(struct defer_count *dc, struct defer_task *task)
{
	struct defer_entry *entry, *tmp;

	list_del_init(&task->exit);
	list_for_each_entry_safe(entry, tmp, &task->waiting, list) {
		if (defer_task__had(task, entry))
			defer_entry__forget(dc, entry);
	}
	if (task->last && defer_task__had(task, task->last)) {
		defer_entry__forget(dc, task->last);
		task->last = NULL;
	}
	if (list_empty(&task->waiting) && !task->last)
		defer_task__forget(dc, task);
}

/* A record that was pushed long ago is forgotten when it is not the last of its task. */
static void defer_entry__expire(struct defer_count *dc, struct defer_entry *entry)
{
	struct defer_task *task = defer_task__findnew(dc, entry->tid);

	list_del_init(&entry->list);
	if (!task || (task->last && task->last->time > entry->time)) {
		defer_entry__forget(dc, entry);
		return;
	}
	if (task->last)
		defer_entry__forget(dc, task->last);
	entry->state = DEFER_LAST;
	task->last = entry;
}

static void defer_count__next_epoch(struct defer_count *dc)
{
	struct defer_entry *entry;
	struct defer_task *task;

	dc->epoch++;
	dc->nr_through = 0;

	while (!list_empty(&dc->recorded)) {
		entry = list_first_entry(&dc->recorded, struct defer_entry, list);
		if (entry->epoch + 2 > dc->epoch)
			break;
		defer_entry__expire(dc, entry);
	}
	while (!list_empty(&dc->in_vain)) {
		entry = list_first_entry(&dc->in_vain, struct defer_entry, list);
		if (entry->epoch + 2 > dc->epoch)
			break;
		defer_entry__forget(dc, entry);
	}
	/* Its records can come in the next epoch, and make it known again when they expire */
	while (!list_empty(&dc->exits)) {
		task = list_first_entry(&dc->exits, struct defer_task, exit);
		if (task->exit_epoch + 3 > dc->epoch)
			break;
		defer_task__exited(dc, task);
	}
}

static void defer_count__forget_all(struct defer_count *dc)
{
	struct hlist_node *tmp;
	struct defer_entry *entry;
	struct defer_task *task;
	size_t i;

	/* They are on lists of the tasks */
	for (i = 0; dc->nr_remembered && i < 1 << HASH_BITS; i++) {
		hlist_for_each_entry_safe(entry, tmp, &dc->entries[i], node)
			defer_entry__forget(dc, entry);
	}
	for (i = 0; dc->nr_remembered && i < 1 << HASH_BITS; i++) {
		hlist_for_each_entry_safe(task, tmp, &dc->tasks[i], node)
			defer_task__forget(dc, task);
	}
}

/**
 * defer_count__delete - free a counter
 * @dc: the counter, or NULL
 */
void defer_count__delete(struct defer_count *dc)
{
	if (!dc)
		return;

	if (dc->entries && dc->tasks)
		defer_count__forget_all(dc);
	free(dc->entries);
	free(dc->tasks);
	mutex_destroy(&dc->lock);
	free(dc);
}

/* All buffers were read since the epoch began: so does the next one. */
static void defer_count__check_epoch(struct defer_count *dc)
{
	if (dc->nr_through && dc->nr_through + dc->nr_gone == dc->nr_readers)
		defer_count__next_epoch(dc);
}

/**
 * defer_count__begin - a reader begins to read its buffers, one after the other
 * @dc: the counter
 * @reader: the number of the reader
 *
 * Return: true when they should be read to their ends, however little is in them, as
 * there is much to be remembered until then.
 */
bool defer_count__begin(struct defer_count *dc, int reader)
{
	bool many;

	mutex_lock(&dc->lock);
	dc->readers[reader].since = dc->epoch;
	many = dc->nr_remembered > MANY_REMEMBERED;
	mutex_unlock(&dc->lock);
	return many;
}

/**
 * defer_count__end - a reader is through with its buffers
 * @dc: the counter
 * @reader: the number of the reader
 * @complete: there is nothing in them that was there when it began
 */
void defer_count__end(struct defer_count *dc, int reader, bool complete)
{
	struct defer_reader *r = &dc->readers[reader];

	if (!complete)
		return;

	mutex_lock(&dc->lock);
	if (r->since == dc->epoch && r->through != dc->epoch && !r->gone) {
		r->through = dc->epoch;
		dc->nr_through++;
		defer_count__check_epoch(dc);
	}
	mutex_unlock(&dc->lock);
}

/**
 * defer_count__leave - a reader will not read any more, its buffers are empty
 * @dc: the counter
 * @reader: the number of the reader
 */
void defer_count__leave(struct defer_count *dc, int reader)
{
	struct defer_reader *r = &dc->readers[reader];

	mutex_lock(&dc->lock);
	if (!r->gone) {
		r->gone = true;
		dc->nr_gone++;
		if (r->through == dc->epoch)
			dc->nr_through--;
		defer_count__check_epoch(dc);
	}
	mutex_unlock(&dc->lock);
}

/**
 * defer_count__next_file - what comes now goes to another file
 * @dc: the counter
 *
 * Who reads a file does not know what is in another one. The counts go on.
 */
void defer_count__next_file(struct defer_count *dc)
{
	mutex_lock(&dc->lock);
	defer_count__forget_all(dc);
	mutex_unlock(&dc->lock);
}

/**
 * defer_count__result - what a reader of the output will find
 * @dc: the counter
 * @result: how many user callchains were deferred, and how many are not there
 */
void defer_count__result(struct defer_count *dc, struct defer_count_result *result)
{
	mutex_lock(&dc->lock);
	result->nr_samples = dc->nr_samples;
	result->nr_missing = dc->nr_missing;
	result->up_to = dc->up_to;
	mutex_unlock(&dc->lock);
}

/**
 * defer_count__nr_remembered - how many kernel entries and tasks are in memory
 * @dc: the counter
 *
 * Return: their number.
 */
size_t defer_count__nr_remembered(struct defer_count *dc)
{
	size_t nr;

	mutex_lock(&dc->lock);
	nr = dc->nr_remembered;
	mutex_unlock(&dc->lock);
	return nr;
}

/* The second one of the two 32-bit values that make a word */
static u32 second_u32(const __u64 *word)
{
	return ((const __u32 *)word)[1];
}

static void defer_count__sample(struct defer_count *dc, union perf_event *event)
{
	struct evsel *evsel = evlist__event2evsel(dc->evlist, event);
	const struct ip_callchain *chain;
	const __u64 *array = event->sample.array;
	struct defer_entry *entry;
	struct defer_task *task;
	u64 type, marker, cookie, time;
	u32 tid = -1;

	if (!evsel)
		return;

	/* With a callchain found, what comes before it is there, too */
	type = evsel->core.attr.sample_type;
	chain = evsel__peek_callchain(evsel, event);
	if (!chain)
		return;

	if (type & PERF_SAMPLE_IDENTIFIER)
		array++;
	if (type & PERF_SAMPLE_IP)
		array++;
	if (type & PERF_SAMPLE_TID)
		tid = second_u32(array++);
	time = type & PERF_SAMPLE_TIME ? *array : 0;

	for (marker = 0; marker < chain->nr; marker++) {
		if (chain->ips[marker] == PERF_CONTEXT_USER_DEFERRED)
			break;
	}
	/*
	 * An immediate callchain does not tell in which kernel entry it was, nor that it
	 * was in none: a page fault's has the registers of the user.
	 */
	if (marker == chain->nr)
		return;

	dc->nr_samples++;
	cookie = marker + 2 == chain->nr ? chain->ips[marker + 1] : 0;
	if (!cookie) {
		/* Malformed */
		dc->nr_missing++;
		return;
	}

	task = defer_task__findnew(dc, tid);
	entry = defer_entry__find(dc, tid, cookie);
	if (!entry && task)
		entry = defer_entry__new(dc, tid, cookie);
	if (!entry) {
		dc->nr_missing++;
		return;
	}

	if (entry->state == DEFER_WAITING) {
		entry->time = time;
		entry->epoch = dc->epoch;
		if (task)
			list_move_tail(&entry->list, &task->waiting);
	}
	/* The stack could not be read. There might be another record, that has one. */
	if (entry->state < DEFER_RECORDED || entry->empty) {
		entry->nr_waiting++;
		dc->nr_missing++;
	}
	defer_task__seen(dc, task);
}

/* Held against its own length, as where it is read */
static void defer_count__record(struct defer_count *dc, union perf_event *event)
{
	struct evsel *evsel = evlist__event2evsel(dc->evlist, event);
	struct perf_record_callchain_deferred *rec = &event->callchain_deferred;
	size_t size = event->header.size, id_size = 0;
	struct defer_entry *entry;
	struct defer_task *task;
	const __u64 *id;
	u64 type, i, time = 0;
	u32 tid = -1;

	if (!evsel)
		return;
	if (evsel->core.attr.sample_id_all)
		id_size = evsel__id_hdr_size(evsel);
	if (size < sizeof(*rec) + id_size || !rec->cookie ||
	    rec->nr > (size - sizeof(*rec) - id_size) / sizeof(u64))
		return;
	for (i = 0; i < rec->nr; i++) {
		if (rec->ips[i] >= PERF_CONTEXT_MAX)
			return;
	}

	type = evsel->core.attr.sample_type;
	if (id_size) {
		id = &event->sample.array[(size - sizeof(event->header) - id_size) / sizeof(u64)];
		if (type & PERF_SAMPLE_TID)
			tid = second_u32(id++);
		if (type & PERF_SAMPLE_TIME)
			time = *id;
	}

	task = defer_task__find(dc, tid);
	entry = defer_entry__find(dc, tid, rec->cookie);
	if (!entry)
		entry = defer_entry__new(dc, tid, rec->cookie);
	if (entry) {
		if (rec->nr)
			dc->nr_missing -= entry->nr_waiting;
		entry->nr_waiting = 0;
		entry->empty = !rec->nr;
		if (entry->state == DEFER_LAST && task)
			task->last = NULL;
		entry->state = DEFER_RECORDED;
		entry->time = time;
		entry->epoch = dc->epoch;
		list_move_tail(&entry->list, &dc->recorded);
	}
	defer_task__seen(dc, task);
}

/* Nothing more comes of it, but what was pushed too early for that, or too late */
static void defer_count__exit(struct defer_count *dc, union perf_event *event)
{
	struct defer_task *task;

	if (event->header.size < sizeof(event->fork) || !is_task(event->fork.tid))
		return;

	task = defer_task__findnew(dc, event->fork.tid);
	if (!task)
		return;

	defer_task__seen(dc, task);
	task->exit_time = event->fork.time;
	task->exit_epoch = dc->epoch;
	list_move_tail(&task->exit, &dc->exits);
}

static void defer_count__event(struct defer_count *dc, union perf_event *event)
{
	if (event->header.type != PERF_RECORD_SAMPLE &&
	    event->header.type != PERF_RECORD_CALLCHAIN_DEFERRED &&
	    event->header.type != PERF_RECORD_EXIT)
		return;

	/* An entry and a task may be new. Nobody has a pointer to another one here. */
	if (dc->nr_remembered + 2 > MAX_REMEMBERED) {
		dc->up_to = true;
		defer_count__next_epoch(dc);
		defer_count__next_epoch(dc);
	}

	if (event->header.type == PERF_RECORD_SAMPLE)
		defer_count__sample(dc, event);
	else if (event->header.type == PERF_RECORD_CALLCHAIN_DEFERRED)
		defer_count__record(dc, event);
	else
		defer_count__exit(dc, event);
}

/* Bytes of an event until there are @want of them: how many were taken */
static size_t defer_reader__fill(struct defer_reader *r, const void *buf, size_t size,
				 size_t want)
{
	if (r->part_len >= want)
		return 0;

	size = min(size, want - r->part_len);
	memcpy((void *)r->part + r->part_len, buf, size);
	r->part_len += size;
	return size;
}

/* The rest of an event that goes on in @buf: how many bytes of it that is */
static size_t defer_reader__join(struct defer_reader *r, const void *buf, size_t size)
{
	const struct perf_event_header *hdr = (void *)r->part;
	size_t used = defer_reader__fill(r, buf, size, sizeof(*hdr));

	if (r->part_len >= sizeof(*hdr))
		used += defer_reader__fill(r, buf + used, size - used, hdr->size);
	return used;
}

/**
 * defer_count__push - look at events that go to the output
 * @dc: the counter
 * @reader: the number of the reader
 * @source: the buffer that they come from
 * @buf: events as the kernel wrote them. The last one may go on in what is pushed
 *	 next from the same buffer, which was cut where it wraps round.
 * @size: how many bytes
 */
void defer_count__push(struct defer_count *dc, int reader, const void *source,
		       const void *buf, size_t size)
{
	struct defer_reader *r = &dc->readers[reader];
	union perf_event *part = (void *)r->part;
	struct perf_event_header hdr;

	if (r->source != source) {
		r->source = source;
		r->part_len = 0;
	}

	mutex_lock(&dc->lock);
	if (r->part_len) {
		size_t used = defer_reader__join(r, buf, size);

		buf += used;
		size -= used;
		if (r->part_len < sizeof(hdr) || r->part_len < part->header.size)
			goto out;
		if (r->part_len == part->header.size)
			defer_count__event(dc, part);
		r->part_len = 0;
	}

	while (size >= sizeof(hdr)) {
		union perf_event *event = (void *)buf;

		memcpy(&hdr, buf, sizeof(hdr));
		if (hdr.size < sizeof(hdr)) {
			/* No event: who knows where the next one is */
			size = 0;
			break;
		}
		if (hdr.size > size)
			break;
		if ((unsigned long)buf % sizeof(u64))
			event = memcpy(r->part, buf, hdr.size);
		defer_count__event(dc, event);
		buf += hdr.size;
		size -= hdr.size;
	}
	memcpy(r->part, buf, size);
	r->part_len = size;
out:
	mutex_unlock(&dc->lock);
}

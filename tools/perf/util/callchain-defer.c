// SPDX-License-Identifier: GPL-2.0
/*
 * Deferred user callchains: bring the samples and their user stacks together.
 *
 * A sample that was written before its user stack could be walked has a
 * callchain that ends in PERF_CONTEXT_USER_DEFERRED and a cookie. The stack
 * comes in a PERF_RECORD_CALLCHAIN_DEFERRED with the same tid and cookie. That
 * may be written microseconds later or, for a task that sleeps, at the end of
 * the profile, and into the buffer of another CPU, so in the file it may even
 * stand before the sample.
 *
 * Samples have to be delivered in time order among all samples and side-band
 * events, because comm, maps and namespaces are those that hold at the moment
 * of delivery. Putting a sample aside until its record is delivered would hand
 * it out too late, after the exec or the exit. So it is the other way round: no
 * sample is put aside, but its stack is known before the sample is delivered.
 *
 * Seekable files: a first pass over the file (callchain_defer__index()) notes
 * where the record of each (tid, cookie) is. It hops from header to header and
 * looks into nothing but those records; only compressed files are decompressed
 * twice. It is done when an event of the file has one of the attribute's bits,
 * else it costs nothing. The second pass is the ordinary one, with the ordinary
 * order. When the ordered queue delivers a sample, its stack is looked up. The
 * records themselves are not queued, unless somebody wants to see them.
 *
 *   The index is an open addressing table of a hash and a location, 12 bytes a
 *   slot. tid and cookie are compared in the record that the location names:
 *   through the reader's mapping when the record is inside it, which it always
 *   is where one mapping takes the whole file (64-bit), else by pread(): small
 *   mapping windows (32-bit) move on, and a file of the other endianness has
 *   records in its private mapping of which one cannot tell whether they were
 *   swapped already. From compressed data the records are copied.
 *
 *   Where many tasks wait at once, a sample, its slot of the table and its record
 *   are far from those of the sample before, and out of the caches since they were
 *   read. What the samples whose turn comes next will need is asked for ahead of
 *   time (callchain_defer__look_ahead()); a guess that is wrong costs time alone.
 *
 * Pipes and live modes: nothing can be read ahead, so the ordered events queue
 * has to be patient. A record that is read goes into the queue like all events
 * and into a hash table; it leaves both when the queue delivers it, which is
 * after all samples that waited for it, because they are older. Where a kernel
 * names the stack of a task that is sampled again between the walk and the end of
 * the kernel entry, such samples are younger than the record, by as long as the
 * task may be stopped there. So the last record of each task is kept until its
 * next one is delivered or the task exits: one record a task, no more. A sample
 * whose turn it is but whose record was not read yet stops the flush
 * (callchain_defer__must_wait()): the sample and everything behind it stay until
 * the next flush. It stops the flush no longer than it must: not when the task
 * was seen past that kernel entry (another cookie, its exit) at a time up to which
 * everything was read, for then the record is lost, and not when the wait exceeds
 * a time or the queue a size. When the latter happens one line says so. A sample
 * with user registers tells nothing: page faults and the tracepoints of system
 * calls have those in the middle of a kernel entry. A busy task is in a new kernel
 * entry whenever the queue is flushed, at a time up to which not everything was read
 * yet: so of each task an earlier entry is known too, for which that holds.
 *
 * Whichever way, a lookup or an insertion does not depend on how many others
 * wait.
 *
 * A file may have the samples of several machines, guests and their host, as perf
 * inject --guest-data writes them. Each has threads and cookies of its own, so
 * wherever a tid is named here it is that of one machine. Which one is known from
 * the event's id, by the PERF_RECORD_ID_INDEX that comes before all of its events.
 *
 * A merged sample has its kernel frames, PERF_CONTEXT_USER_DEFERRED and the user
 * frames, cut where immediate unwinding had cut them: kernel and user frames
 * together against the event's maximum. Where there is no stack the marker is
 * the last word, and whoever resolves the callchain puts a frame there that
 * says so (callchain_defer__append_missing()); before it comes the address of a
 * sample that was taken in user space. The cookie is never left in the callchain of
 * a sample that was meant to be merged.
 *
 * The input is not trusted. Records are held against their own length each time
 * they are looked at. Memory is bounded by the number of records in the file, which is
 * to say by its size, after decompression.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <linux/bitops.h>
#include <linux/err.h>
#include <linux/kernel.h>
#include <linux/perf_event.h>
#include <linux/string.h>
#include <linux/time64.h>
#include <linux/zalloc.h>
#include <internal/lib.h>
#include <perf/event.h>
#include "byte-order.h"
#include "callchain.h"
#include "callchain-defer.h"
#include "compress.h"
#include "data.h"
#include "debug.h"
#include "dso.h"
#include "event.h"
#include "events_stats.h"
#include "evlist.h"
#include "evsel.h"
#include "hashmap.h"
#include "header.h"
#include "map.h"
#include "maps.h"
#include "memswap.h"
#include "ordered-events.h"
#include "sample.h"
#include "session.h"
#include "symbol.h"
#include "thread.h"
#include "util.h"

/* header.size is 16 bit wide */
#define MAX_EVENT_SIZE		((size_t)USHRT_MAX + 1)
/* Of a record that is not mapped, what is read at first: few are longer */
#define FETCH_SIZE		((size_t)4096)
#define SCAN_SIZE		((size_t)32 << 20)
#define ARENA_SHIFT		20
#define ARENA_SIZE		((size_t)1 << ARENA_SHIFT)

/*
 * Records with one (tid, cookie) that differ: one is right, unless the kernel's
 * counter came round. More than a few of them are nobody's stacks.
 */
#define MAX_SAME_KEY		4

/*
 * Of a sample or a record, what is asked for ahead of time. In longer ones the CPU goes
 * on by itself, but not to the end of a record, where its tid is: have that of most,
 * which is to say of those of up to 50 frames or so.
 */
#define CACHE_LINE		64
#define AHEAD_SAMPLE		(4 * CACHE_LINE)
#define AHEAD_RECORD		(8 * CACHE_LINE)

/*
 * Where a record is: 0 for an empty slot, else LOC_COPY and a place in the
 * arena, or the number of the file and the offset in it.
 */
#define LOC_USED		BIT_ULL(63)
#define LOC_COPY		BIT_ULL(62)
#define LOC_FILE_SHIFT		46
#define LOC_OFFSET_MASK		(BIT_ULL(LOC_FILE_SHIFT) - 1)
#define LOC_MAX_FILES		65536

struct defer_file {
	int		fd;
	u64		start;
	u64		end;
	const void	*map;
	u64		map_offset;
	u64		map_len;
};

/* A task; machine_pid is 0 for the host, and where there are no others */
struct defer_tid {
	u32	tid;
	u32	machine_pid;
};

/* A record that was looked at */
struct defer_rec {
	struct defer_tid	tid;
	u64			time;
	u64			cookie;
	struct ip_callchain	*callchain;
};

/* Queued record, by (tid, cookie), or one of a task's last two */
struct defer_node {
	struct defer_tid	 tid;
	u64			 cookie;
	union perf_event	*event;
	bool			 used;
};

/* A kernel entry of a task, and when it was first seen there; cookie 0 is its exit */
struct defer_entry {
	u64	cookie;
	u64	since;
};

/*
 * The kernel entry that a task is in, two earlier ones, and its last two records:
 * where their times are equal, one cannot tell which is the last one. Everything was
 * read up to the time of @past, and @next takes its place when that is true of it
 * too: the time up to which everything was read can be behind @now whenever one asks.
 */
struct defer_task {
	struct defer_tid	tid;
	struct defer_entry	now;
	struct defer_entry	next;
	struct defer_entry	past;
	u64			seen;
	struct defer_node	*last[2];
};

/* What the queue has to know of a sample, without parsing all of it */
struct defer_peek {
	struct defer_tid	tid;
	u64			time;
	u64			cookie;
};

/* A sample with a cookie that is delivered soon: the hash of its key */
struct defer_ahead {
	const union perf_event	*event;
	u32			hash;
};

struct callchain_defer {
	struct evlist		*evlist;
	struct events_stats	*stats;
	bool			merge;
	bool			indexed;
	bool			needs_swap;
	/* the file has several machines, even if perf_guest does not say so */
	bool			has_machines;
	bool			bad_record_warned;
	bool			bad_sample_warned;
	/* BIT(enum defer_bound) of those that were told */
	unsigned int		bounds_warned;
	/* the first pass went to the end, all records are good */
	bool			all_good;
	u64			seed;
	/* index of a file */
	u32			*hashes;
	u64			*locs;
	size_t			nr_slots;
	size_t			nr_entries;
	struct defer_file	*files;
	int			nr_files;
	char			**arena;
	size_t			nr_arena;
	size_t			arena_used;
	struct defer_ahead	ahead;
	/* queue of a pipe */
	struct hashmap		*queued;
	/* the same by their events; what the keys are read from may be another by then */
	struct hashmap		*by_event;
	struct hashmap		*tasks;
	u64			max_wait;
	u64			max_bytes;
	/* the sample_id of the events looked at last */
	const struct evsel	*id_evsel;
	u64			id_type;
	size_t			id_words;
	/* scratch */
	struct defer_rec	rec;
	struct ip_callchain	*chain;
	u64			image[MAX_EVENT_SIZE / sizeof(u64)];
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

/* Seeded, so that no file can be made whose keys all meet in one place. */
static u64 defer_hash(u64 seed, struct defer_tid tid, u64 cookie)
{
	u64 h = (cookie ^ seed) * 0x9e3779b97f4a7c15ULL;

	h ^= h >> 32;
	h = (h + tid.tid + ((u64)tid.machine_pid << 32)) * 0xff51afd7ed558ccdULL;
	h ^= h >> 33;
	h *= 0xc4ceb9fe1a85ec53ULL;
	return h ^ (h >> 29);
}

static bool defer_tid__equal(struct defer_tid a, struct defer_tid b)
{
	return a.tid == b.tid && a.machine_pid == b.machine_pid;
}

static size_t defer_node__hash(long key, void *ctx)
{
	const struct defer_node *node = (const struct defer_node *)key;

	return defer_hash(*(u64 *)ctx, node->tid, node->cookie);
}

static bool defer_node__equal(long key1, long key2, void *ctx __maybe_unused)
{
	const struct defer_node *a = (const struct defer_node *)key1;
	const struct defer_node *b = (const struct defer_node *)key2;

	return defer_tid__equal(a->tid, b->tid) && a->cookie == b->cookie;
}

static size_t defer_event__hash(long key, void *ctx)
{
	return defer_hash(*(u64 *)ctx, (struct defer_tid){}, key);
}

static bool defer_event__equal(long key1, long key2, void *ctx __maybe_unused)
{
	return key1 == key2;
}

static size_t defer_task__hash(long key, void *ctx)
{
	const struct defer_tid *tid = (const struct defer_tid *)key;

	return defer_hash(*(u64 *)ctx, *tid, 0);
}

static bool defer_task__equal(long key1, long key2, void *ctx __maybe_unused)
{
	const struct defer_tid *a = (const struct defer_tid *)key1;
	const struct defer_tid *b = (const struct defer_tid *)key2;

	return defer_tid__equal(*a, *b);
}

/**
 * callchain_defer__new - the deferred user callchains of one input
 * @evlist: the events of the input, which may come to be known later
 * @stats: where to count what became of them
 *
 * One thread at a time may use it: all functions share what they parse into. Merging
 * is on, and samples wait for any time within CALLCHAIN_DEFER__PIPE_BYTES.
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
	cd->merge = true;
	cd->max_wait = CALLCHAIN_DEFER__ANY_TIME;
	cd->max_bytes = CALLCHAIN_DEFER__PIPE_BYTES;
	/* The longest chain of a sample and the longest one of a record */
	cd->chain = malloc(2 * MAX_EVENT_SIZE);
	cd->queued = hashmap__new(defer_node__hash, defer_node__equal, &cd->seed);
	if (IS_ERR(cd->queued))
		cd->queued = NULL;
	cd->by_event = hashmap__new(defer_event__hash, defer_event__equal, &cd->seed);
	if (IS_ERR(cd->by_event))
		cd->by_event = NULL;
	cd->tasks = hashmap__new(defer_task__hash, defer_task__equal, &cd->seed);
	if (IS_ERR(cd->tasks))
		cd->tasks = NULL;

	if (!cd->chain || !cd->queued || !cd->by_event || !cd->tasks) {
		callchain_defer__delete(cd);
		return NULL;
	}
	return cd;
}

/**
 * callchain_defer__id_index - learn which event is of which machine
 * @cd: the stacks of the input, or NULL when there are none
 * @event: a PERF_RECORD_ID_INDEX
 *
 * perf_event__process_id_index() does it only for the commands that want it, and
 * after the first pass over a file.
 */
void callchain_defer__id_index(struct callchain_defer *cd, union perf_event *event)
{
	struct perf_record_id_index *ie = &event->id_index;
	struct id_index_entry_2 *e2;
	size_t i, size = ie->header.size;

	/* Without machines the second half is not there */
	if (!cd || size < sizeof(*ie) ||
	    ie->nr > (size - sizeof(*ie)) / (sizeof(ie->entries[0]) + sizeof(*e2)))
		return;

	e2 = (void *)&ie->entries[ie->nr];
	for (i = 0; i < ie->nr; i++) {
		struct perf_sample_id *sid = evlist__id2sid(cd->evlist, ie->entries[i].id);

		if (!sid || !e2[i].machine_pid)
			continue;
		sid->machine_pid = e2[i].machine_pid;
		cd->has_machines = true;
	}
}

static void defer_index__free(struct callchain_defer *cd)
{
	while (cd->nr_arena)
		free(cd->arena[--cd->nr_arena]);
	zfree(&cd->arena);
	zfree(&cd->hashes);
	zfree(&cd->locs);
	zfree(&cd->files);
	cd->arena_used = 0;
	cd->nr_slots = 0;
	cd->nr_entries = 0;
	cd->nr_files = 0;
	cd->indexed = false;
}

static void defer_node__delete(struct defer_node *node)
{
	if (node)
		free(node->event);
	free(node);
}

static void defer_task__delete(struct defer_task *task)
{
	for (size_t i = 0; i < ARRAY_SIZE(task->last); i++)
		defer_node__delete(task->last[i]);
	free(task);
}

static void defer_queue__free(struct callchain_defer *cd)
{
	struct hashmap_entry *cur;
	size_t bkt;

	if (cd->queued) {
		hashmap__for_each_entry(cd->queued, cur, bkt)
			free(cur->pvalue);
		hashmap__clear(cd->queued);
	}
	if (cd->by_event)
		hashmap__clear(cd->by_event);
	if (cd->tasks) {
		hashmap__for_each_entry(cd->tasks, cur, bkt)
			defer_task__delete(cur->pvalue);
		hashmap__clear(cd->tasks);
	}
}

/**
 * callchain_defer__delete - forget all deferred user callchains of an input
 * @cd: these, or NULL; the callchain of a merged sample is gone, too
 */
void callchain_defer__delete(struct callchain_defer *cd)
{
	if (!cd)
		return;

	defer_index__free(cd);
	defer_queue__free(cd);
	hashmap__free(cd->queued);
	hashmap__free(cd->by_event);
	hashmap__free(cd->tasks);
	free(cd->chain);
	free(cd);
}

/**
 * callchain_defer__set_merge - merge samples with their user callchains, or not
 * @cd: the callchains of an input of which nothing was read, nor indexed
 * @merge: false to have samples as they were recorded
 */
void callchain_defer__set_merge(struct callchain_defer *cd, bool merge)
{
	cd->merge = merge;
}

/**
 * callchain_defer__set_bounds - for how long samples may wait for their user callchains
 * @cd: the callchains of an input
 * @nsec: time between such a sample and the newest event that was read, in ns
 * @bytes: size of all events that are held back meanwhile
 *
 * This can be changed at any time.
 */
void callchain_defer__set_bounds(struct callchain_defer *cd, u64 nsec, u64 bytes)
{
	cd->max_wait = nsec;
	cd->max_bytes = bytes;
}

/* A word of two 32-bit values, the second one. */
static u32 defer_second_u32(u64 word)
{
	return host_is_bigendian() ? (u32)word : word >> 32;
}

/* Most files have one kind of sample_id, and this is asked for each sample. */
static size_t defer_id_words(struct callchain_defer *cd, const struct evsel *evsel)
{
	u64 type = evsel->core.attr.sample_type;

	if (!evsel->core.attr.sample_id_all)
		return 0;

	if (evsel != cd->id_evsel || type != cd->id_type) {
		cd->id_evsel = evsel;
		cd->id_type = type;
		cd->id_words = evsel__id_hdr_size(evsel) / sizeof(u64);
	}
	return cd->id_words;
}

/* The machine that the event with that id is of, see evlist__parse_sample() */
static u32 defer_machine(const struct callchain_defer *cd, u64 id)
{
	struct perf_sample_id *sid;

	if (!perf_guest && !cd->has_machines)
		return 0;

	sid = evlist__id2sid(cd->evlist, id);
	return sid ? sid->machine_pid : 0;
}

static struct defer_tid defer_tid__of_sample(const struct callchain_defer *cd,
					     const struct perf_sample *sample)
{
	return (struct defer_tid) {
		.tid		= sample->tid,
		.machine_pid	= defer_machine(cd, sample->id),
	};
}

static struct defer_tid defer_tid__of_exit(const struct callchain_defer *cd,
					   union perf_event *event)
{
	size_t words = (event->header.size - sizeof(event->header)) / sizeof(u64);
	struct evsel *evsel = evlist__event2evsel(cd->evlist, event);
	struct defer_tid tid = { .tid = event->fork.tid };

	if (evsel && evsel->core.attr.sample_id_all && evsel->is_pos > 0 &&
	    words >= (size_t)evsel->is_pos)
		tid.machine_pid = defer_machine(cd, event->sample.array[words - evsel->is_pos]);
	return tid;
}

/*
 * Parse a record into cd->rec, without all that a sample may have. The record
 * has to lie within its header.size, with its sample_id.
 */
static bool defer_rec__parse(struct callchain_defer *cd, union perf_event *event)
{
	struct perf_record_callchain_deferred *rec = &event->callchain_deferred;
	const __u64 *array = event->sample.array;
	size_t size = event->header.size, id_words, pos;
	struct evsel *evsel;
	u64 type;

	evsel = evlist__event2evsel(cd->evlist, event);
	if (!evsel)
		return false;

	type = evsel->core.attr.sample_type;
	id_words = defer_id_words(cd, evsel);
	if (size < sizeof(*rec) + id_words * sizeof(u64) ||
	    rec->nr > (size - sizeof(*rec)) / sizeof(u64) - id_words)
		return false;

	cd->rec = (struct defer_rec) {
		.tid.tid   = -1,
		.time	   = ULLONG_MAX,
		.cookie	   = rec->cookie,
		.callchain = (struct ip_callchain *)&rec->nr,
	};
	if (!id_words)
		return true;

	pos = (size - sizeof(event->header)) / sizeof(u64);
	if (evsel->is_pos > 0)
		cd->rec.tid.machine_pid = defer_machine(cd, array[pos - evsel->is_pos]);
	pos -= id_words;
	if (type & PERF_SAMPLE_TID)
		cd->rec.tid.tid = defer_second_u32(array[pos++]);
	if (type & PERF_SAMPLE_TIME)
		cd->rec.time = array[pos];
	return true;
}

/* A record that may be used names a cookie and holds addresses, nothing else. */
static bool defer_rec__good(const struct defer_rec *rec)
{
	u64 i;

	for (i = 0; i < rec->callchain->nr; i++) {
		if (rec->callchain->ips[i] >= PERF_CONTEXT_MAX)
			return false;
	}
	return rec->cookie != 0;
}

/* Make what was read with pread() an event, in the order of bytes of this machine. */
static union perf_event *defer_image(struct callchain_defer *cd, const void *raw, size_t size)
{
	union perf_event *event = (void *)cd->image;

	if (raw != cd->image)
		memcpy(cd->image, raw, size);
	if (cd->needs_swap) {
		perf_event_header__bswap(&event->header);
		mem_bswap_64(&cd->image[1], round_down(size - sizeof(u64), sizeof(u64)));
		byte_order__event(cd->evlist, NULL, event);
	}
	return event;
}

static struct defer_file *defer_file(struct callchain_defer *cd, u64 loc)
{
	return &cd->files[(loc & ~(LOC_USED | LOC_COPY)) >> LOC_FILE_SHIFT];
}

/* Where in memory the record at a location of the index is, NULL when it is not. */
static const void *defer_mapped(struct callchain_defer *cd, u64 loc)
{
	u64 offset = loc & LOC_OFFSET_MASK;
	const struct defer_file *file;

	if (loc & LOC_COPY)
		return cd->arena[offset >> ARENA_SHIFT] + (offset & (ARENA_SIZE - 1));

	file = defer_file(cd, loc);
	if (!file->map || offset < file->map_offset ||
	    offset - file->map_offset + sizeof(struct perf_event_header) > file->map_len)
		return NULL;
	return file->map + (offset - file->map_offset);
}

/* The record at a location of the index, NULL when it is not there any more. */
static union perf_event *defer_fetch(struct callchain_defer *cd, u64 loc)
{
	u64 offset = loc & LOC_OFFSET_MASK;
	const void *raw = defer_mapped(cd, loc);
	struct perf_event_header hdr;
	struct defer_file *file;
	ssize_t got;

	if (loc & LOC_COPY)
		return (void *)raw;

	file = defer_file(cd, loc);

	if (raw) {
		memcpy(&hdr, raw, sizeof(hdr));
		if (hdr.type != PERF_RECORD_CALLCHAIN_DEFERRED)
			return NULL;
		/* Else it goes on behind the window */
		if (hdr.size <= file->map_len - (offset - file->map_offset)) {
			if (!((unsigned long)raw % sizeof(u64)))
				return (void *)raw;
			return defer_image(cd, raw, hdr.size);
		}
	}

	got = pread(file->fd, cd->image, min_t(u64, FETCH_SIZE, file->end - offset), offset);
	if (got < (ssize_t)sizeof(hdr))
		return NULL;

	memcpy(&hdr, cd->image, sizeof(hdr));
	if (cd->needs_swap)
		perf_event_header__bswap(&hdr);
	if (hdr.type != PERF_RECORD_CALLCHAIN_DEFERRED || hdr.size < sizeof(hdr) ||
	    hdr.size > file->end - offset)
		return NULL;
	if (hdr.size > got &&
	    pread(file->fd, (void *)cd->image + got, hdr.size - got, offset + got) !=
	    hdr.size - got)
		return NULL;
	return defer_image(cd, cd->image, hdr.size);
}

/* Grown at 7/8: a probe compares the hashes of one or two cache lines. */
static int defer_index__grow(struct callchain_defer *cd)
{
	size_t i, j, nr_slots = cd->nr_slots ? cd->nr_slots * 2 : 1024;
	u32 *hashes;
	u64 *locs;

	if (cd->nr_entries < cd->nr_slots / 8 * 7)
		return 0;

	hashes = malloc(nr_slots * sizeof(*hashes));
	locs = calloc(nr_slots, sizeof(*locs));
	if (!hashes || !locs) {
		free(hashes);
		free(locs);
		return -ENOMEM;
	}

	for (i = 0; i < cd->nr_slots; i++) {
		if (!cd->locs[i])
			continue;
		for (j = cd->hashes[i] & (nr_slots - 1); locs[j]; j = (j + 1) & (nr_slots - 1))
			;
		hashes[j] = cd->hashes[i];
		locs[j] = cd->locs[i];
	}

	free(cd->hashes);
	free(cd->locs);
	cd->hashes = hashes;
	cd->locs = locs;
	cd->nr_slots = nr_slots;
	return 0;
}

/*
 * Note that the record in @event, just parsed into cd->rec, is at @loc. Events of
 * which several have defer_output get the same record several times. Of records
 * that differ under the same key some are kept, the sample's time decides.
 */
static int defer_index__add(struct callchain_defer *cd, union perf_event *event, u64 loc)
{
	u64 cookie = cd->rec.cookie;
	struct ip_callchain *ips = cd->rec.callchain;
	struct defer_tid tid = cd->rec.tid;
	int same = 0;
	u32 hash;
	size_t i;
	int err;

	err = defer_index__grow(cd);
	if (err)
		return err;

	hash = defer_hash(cd->seed, tid, cookie);
	for (i = hash & (cd->nr_slots - 1); cd->locs[i]; i = (i + 1) & (cd->nr_slots - 1)) {
		union perf_event *old;

		if (cd->hashes[i] != hash)
			continue;
		old = defer_fetch(cd, cd->locs[i]);
		if (!old || !defer_rec__parse(cd, old) || cd->rec.cookie != cookie ||
		    !defer_tid__equal(cd->rec.tid, tid))
			continue;
		same++;
		if (same == MAX_SAME_KEY ||
		    (cd->rec.callchain->nr == ips->nr &&
		     !memcmp(cd->rec.callchain->ips, ips->ips, ips->nr * sizeof(u64)))) {
			cd->stats->nr_deferred_duplicate++;
			return 0;
		}
	}
	if (same)
		cd->stats->nr_deferred_duplicate++;

	if (loc == LOC_COPY) {
		size_t size = PERF_ALIGN(event->header.size, sizeof(u64));

		if (!cd->nr_arena || cd->arena_used + size > ARENA_SIZE) {
			char **arena = realloc(cd->arena, (cd->nr_arena + 1) * sizeof(*arena));

			if (!arena)
				return -ENOMEM;
			cd->arena = arena;
			arena[cd->nr_arena] = malloc(ARENA_SIZE);
			if (!arena[cd->nr_arena])
				return -ENOMEM;
			cd->nr_arena++;
			cd->arena_used = 0;
		}
		loc |= ((cd->nr_arena - 1) << ARENA_SHIFT) + cd->arena_used;
		memcpy(cd->arena[cd->nr_arena - 1] + cd->arena_used, event, event->header.size);
		cd->arena_used += size;
	}

	cd->hashes[i] = hash;
	cd->locs[i] = loc;
	cd->nr_entries++;
	return 0;
}

/* A record was met in the first pass. What is wrong with it is told in the second. */
static int defer_index__record(struct callchain_defer *cd, const void *raw,
			       size_t size, u64 loc)
{
	union perf_event *event = (void *)raw;
	u64 *copy = NULL;
	int err = 0;

	/* cd->image is for the records that are compared with this one */
	if (cd->needs_swap || (unsigned long)raw % sizeof(u64)) {
		event = defer_image(cd, raw, size);
		copy = malloc(size);
		if (!copy)
			return -ENOMEM;
		memcpy(copy, event, size);
		event = (void *)copy;
	}

	if (defer_rec__parse(cd, event) && defer_rec__good(&cd->rec))
		err = defer_index__add(cd, event, loc);
	else
		cd->all_good = false;
	free(copy);
	return err;
}

/* One input of the first pass: a file, or what comes out of its compressed records */
struct defer_scan {
	struct defer_file	*file;
	void			*map;
	u64			map_pos;
	size_t			map_len;
	struct zstd_data	zstd;
	bool			zstd_ready;
	size_t			comp_len;
	char			*decomp;
	/* of an event whose end is in the next record: less than MAX_EVENT_SIZE */
	size_t			decomp_len;
};

/* @len bytes of the file at @pos, through a window that moves on with them */
static const void *defer_scan__bytes(struct defer_scan *scan, u64 pos, size_t len)
{
	if (len > scan->file->end - pos)
		return NULL;

	if (!scan->map || pos < scan->map_pos || pos + len > scan->map_pos + scan->map_len) {
		if (scan->map)
			munmap(scan->map, scan->map_len);
		scan->map_pos = round_down(pos, (u64)page_size);
		scan->map_len = min_t(u64, SCAN_SIZE, scan->file->end - scan->map_pos);
		/* Most pages have a header in them: get them all at once */
		scan->map = mmap(NULL, scan->map_len, PROT_READ, MAP_SHARED | MAP_POPULATE,
				 scan->file->fd, scan->map_pos);
		if (scan->map == MAP_FAILED) {
			scan->map = NULL;
			return NULL;
		}
	}
	return scan->map + (pos - scan->map_pos);
}

/* What follows an event without being part of it */
static u64 defer_scan__skip(struct callchain_defer *cd, const struct perf_event_header *hdr,
			    const void *raw)
{
	if (hdr->type == PERF_RECORD_AUXTRACE && hdr->size >= sizeof(*hdr) + sizeof(u64)) {
		u64 size;

		memcpy(&size, raw + sizeof(*hdr), sizeof(size));
		return cd->needs_swap ? bswap_64(size) : size;
	}
	if (hdr->type == PERF_RECORD_HEADER_TRACING_DATA &&
	    hdr->size >= sizeof(*hdr) + sizeof(u32)) {
		u32 size;

		memcpy(&size, raw + sizeof(*hdr), sizeof(size));
		return PERF_ALIGN((u64)(cd->needs_swap ? bswap_32(size) : size), sizeof(u64));
	}
	return 0;
}

/* The same steps as in perf_session__process_compressed_event(), so that the same comes out. */
static int defer_scan__compressed(struct callchain_defer *cd, struct defer_scan *scan,
				  const void *raw, size_t size)
{
	const size_t fixed = sizeof(struct perf_record_compressed);
	size_t head = 0, len, got;
	char *decomp;
	int err = 0;

	if (size < fixed || scan->comp_len > SIZE_MAX - MAX_EVENT_SIZE) {
		cd->all_good = false;
		return 0;
	}

	if (!scan->zstd_ready) {
		if (zstd_init(&scan->zstd, 0))
			return -ENOMEM;
		scan->zstd.quiet = true;
		scan->zstd_ready = true;
	}

	/* As large as the file says, as where it is read: no more is used than is needed. */
	if (!scan->decomp) {
		decomp = mmap(NULL, scan->comp_len + MAX_EVENT_SIZE, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (decomp == MAP_FAILED)
			return -ENOMEM;
		scan->decomp = decomp;
	}
	decomp = scan->decomp;
	got = zstd_decompress_stream(&scan->zstd, (void *)raw + fixed, size - fixed,
				     decomp + scan->decomp_len, scan->comp_len);
	if (got > scan->comp_len)
		return -EINVAL;
	len = scan->decomp_len + got;

	while (len - head >= sizeof(struct perf_event_header)) {
		struct perf_event_header hdr;
		u64 skip;

		memcpy(&hdr, decomp + head, sizeof(hdr));
		if (cd->needs_swap)
			perf_event_header__bswap(&hdr);
		if (hdr.size > len - head)
			break;
		if (hdr.size < sizeof(hdr))
			return -EINVAL;
		if (hdr.type == PERF_RECORD_CALLCHAIN_DEFERRED) {
			err = defer_index__record(cd, decomp + head, hdr.size, LOC_COPY);
			if (err)
				return err;
		}
		skip = defer_scan__skip(cd, &hdr, decomp + head);
		head += hdr.size;
		if (skip > len - head)
			return -EINVAL;
		head += skip;
	}

	memmove(decomp, decomp + head, len - head);
	scan->decomp_len = len - head;
	return 0;
}

/*
 * Errors in the input end the scan without a word: the second pass comes to the
 * same place and tells.
 */
static int defer_index__scan(struct callchain_defer *cd, int nr, size_t comp_len)
{
	struct defer_scan scan = {
		.file	  = &cd->files[nr],
		.comp_len = comp_len,
	};
	u64 pos = scan.file->start;
	int err = 0;

	while (pos < scan.file->end && !session_done()) {
		struct perf_event_header hdr;
		const void *raw;
		u64 skip = 0;

		raw = defer_scan__bytes(&scan, pos, sizeof(hdr));
		if (!raw)
			break;
		memcpy(&hdr, raw, sizeof(hdr));
		if (cd->needs_swap)
			perf_event_header__bswap(&hdr);
		if (hdr.size < sizeof(hdr))
			break;

		switch (hdr.type) {
		case PERF_RECORD_CALLCHAIN_DEFERRED:
			raw = defer_scan__bytes(&scan, pos, hdr.size);
			if (raw)
				err = defer_index__record(cd, raw, hdr.size,
							  ((u64)nr << LOC_FILE_SHIFT) | pos);
			break;
		case PERF_RECORD_ID_INDEX:
			raw = defer_scan__bytes(&scan, pos, hdr.size);
			if (raw)
				callchain_defer__id_index(cd, defer_image(cd, raw, hdr.size));
			break;
		case PERF_RECORD_COMPRESSED:
			raw = defer_scan__bytes(&scan, pos, hdr.size);
			if (raw)
				err = defer_scan__compressed(cd, &scan, raw, hdr.size);
			break;
		case PERF_RECORD_AUXTRACE:
		case PERF_RECORD_HEADER_TRACING_DATA:
			raw = defer_scan__bytes(&scan, pos, hdr.size);
			if (raw)
				skip = defer_scan__skip(cd, &hdr, raw);
			break;
		default:
			break;
		}

		pos += hdr.size;
		if (err || !raw || skip > scan.file->end - min(pos, scan.file->end))
			break;
		pos += skip;
	}

	if (err || pos < scan.file->end)
		cd->all_good = false;

	if (scan.map)
		munmap(scan.map, scan.map_len);
	if (scan.zstd_ready)
		zstd_fini(&scan.zstd);
	if (scan.decomp)
		munmap(scan.decomp, scan.comp_len + MAX_EVENT_SIZE);
	return err == -ENOMEM ? err : 0;
}

static void defer_index__add_file(struct callchain_defer *cd, int fd, u64 start, u64 size)
{
	u64 end = start + size;
	struct stat st;

	/* What the header says need not be there */
	if (fstat(fd, &st))
		st.st_size = 0;
	if (end < start || end > LOC_OFFSET_MASK)
		end = LOC_OFFSET_MASK;
	end = max(start, min(end, (u64)st.st_size));
	cd->files[cd->nr_files++] = (struct defer_file) {
		.fd	= fd,
		.start	= start,
		.end	= end,
	};
}

/**
 * callchain_defer__index - know the stacks of a seekable input
 * @cd: where to keep them
 * @session: session with the file or the directory
 *
 * Return: 0, also for an input with errors in it, -ENOMEM, or -E2BIG for a directory of
 * more than 65535 files.
 */
int callchain_defer__index(struct callchain_defer *cd, struct perf_session *session)
{
	struct perf_data *data = session->data;
	int i, nr = 1, err = 0;

	defer_index__free(cd);
	if (!cd->merge)
		return 0;

	if (perf_data__is_dir(data))
		nr += data->dir.nr;
	if (nr > LOC_MAX_FILES)
		return -E2BIG;

	cd->all_good = true;
	cd->needs_swap = session->header.needs_swap;
	cd->files = calloc(nr, sizeof(*cd->files));
	if (!cd->files)
		return -ENOMEM;

	defer_index__add_file(cd, perf_data__fd(data), session->header.data_offset,
			      session->header.data_size);
	for (i = 0; i < nr - 1; i++) {
		if (data->dir.files[i].size)
			defer_index__add_file(cd, data->dir.files[i].fd, 0,
					      data->dir.files[i].size);
	}

	for (i = 0; i < cd->nr_files && !err; i++)
		err = defer_index__scan(cd, i, perf_session__comp_mmap_len(session));

	cd->indexed = true;
	return err;
}

/**
 * callchain_defer__set_window - tell what a reader has mapped
 * @cd: the stacks of the input
 * @win: what is mapped; it takes the place of what was mapped of that file
 */
void callchain_defer__set_window(struct callchain_defer *cd,
				 const struct callchain_defer_window *win)
{
	int i;

	if (!cd || !cd->indexed || cd->needs_swap)
		return;

	for (i = 0; i < cd->nr_files; i++) {
		struct defer_file *file = &cd->files[i];

		if (file->fd != win->fd)
			continue;
		file->map = win->addr;
		file->map_offset = win->offset;
		file->map_len = 0;
		if (win->offset < file->end)
			file->map_len = min(win->len, file->end - win->offset);
	}
}

/* Nobody will ask for the older one of the last records of a task any more. */
static void defer_task__push_last(struct callchain_defer *cd, struct defer_task *task,
				  struct defer_node *node)
{
	if (task->last[1] && !task->last[1]->used)
		cd->stats->nr_deferred_unused++;
	defer_node__delete(task->last[1]);
	task->last[1] = task->last[0];
	task->last[0] = node;
}

static void defer_task__forget_last(struct callchain_defer *cd, struct defer_task *task)
{
	for (size_t i = 0; i < ARRAY_SIZE(task->last); i++)
		defer_task__push_last(cd, task, NULL);
}

/**
 * callchain_defer__finish - the input was delivered
 * @cd: its stacks; forgotten, except for the statistics
 */
void callchain_defer__finish(struct callchain_defer *cd)
{
	struct hashmap_entry *cur;
	size_t i, bkt;

	if (!cd)
		return;

	for (i = 0; i < cd->nr_slots; i++) {
		if (cd->locs[i] && !(cd->locs[i] & LOC_USED))
			cd->stats->nr_deferred_unused++;
	}
	hashmap__for_each_entry(cd->tasks, cur, bkt)
		defer_task__forget_last(cd, cur->pvalue);
	defer_index__free(cd);
	defer_queue__free(cd);
}

/**
 * callchain_defer__read - a PERF_RECORD_CALLCHAIN_DEFERRED was read
 * @cd: the stacks of the input
 * @event: the record
 * @file_offset: where it was, for messages
 * @file_path: in which file
 * @wanted: somebody wants to see the record
 *
 * Return: true when that was all that is to be done with it.
 */
int callchain_defer__read(struct callchain_defer *cd, union perf_event *event,
			  u64 file_offset, const char *file_path, bool wanted)
{
	/* Looked at in the first pass, and nobody wants to see it */
	if (cd->indexed && cd->all_good && !wanted)
		return true;

	if (!defer_rec__parse(cd, event) || !defer_rec__good(&cd->rec)) {
		if (!cd->bad_record_warned) {
			cd->bad_record_warned = true;
			pr_warning("%#llx@%s [%#x]: malformed deferred callchain record, skipped (others like it without a message)\n",
				   (unsigned long long)file_offset, file_path ?: "-",
				   event->header.size);
		}
		cd->stats->nr_deferred_bad_records++;
		return true;
	}

	return cd->merge && cd->indexed && !wanted;
}

/**
 * callchain_defer__queues - do the stacks come through the ordered queue
 * @cd: the stacks of the input, or NULL when there are none
 *
 * Return: true when callchain_defer__queue_time() and callchain_defer__queued()
 * want to be called.
 */
bool callchain_defer__queues(const struct callchain_defer *cd)
{
	return cd && cd->merge && !cd->indexed;
}

/**
 * callchain_defer__queue_time - the place of an event in the ordered queue
 * @event: the event
 * @time: its time
 *
 * A record has its place after all samples that can name it, also those with
 * the same time that come from another CPU's buffer.
 *
 * Return: the time to queue it at.
 */
u64 callchain_defer__queue_time(union perf_event *event, u64 time)
{
	if (event->header.type == PERF_RECORD_CALLCHAIN_DEFERRED && time < ULLONG_MAX - 1)
		time++;
	return time;
}

/**
 * evsel__peek_callchain - the callchain of a sample, without parsing all of it
 * @evsel: its event
 * @event: the sample, as it was recorded, in the order of bytes of this machine
 *
 * Return: the callchain, and all fields before it are there as well, or NULL when
 * there is none or not all of it.
 */
const struct ip_callchain *evsel__peek_callchain(const struct evsel *evsel,
						 const union perf_event *event)
{
	const __u64 *array = event->sample.array;
	u64 type = evsel->core.attr.sample_type, nr, i, left;

	if (!(type & PERF_SAMPLE_CALLCHAIN))
		return NULL;

	/* evsel->sample_size is more than that where it was counted bit by bit */
	i = hweight64(type & PERF_SAMPLE_MASK);
	left = (event->header.size - sizeof(event->header)) / sizeof(u64);
	if (type & PERF_SAMPLE_READ) {
		u64 format = evsel->core.attr.read_format;

		if (i >= left)
			return NULL;
		nr = 1;
		if (format & PERF_FORMAT_GROUP) {
			nr = array[i];
			if (nr > left)
				return NULL;
			nr *= sample_read_value_size(format) / sizeof(u64);
		} else {
			nr += format & PERF_FORMAT_LOST ? 1 : 0;
		}
		i += 1 + nr;
		i += format & PERF_FORMAT_TOTAL_TIME_ENABLED ? 1 : 0;
		i += format & PERF_FORMAT_TOTAL_TIME_RUNNING ? 1 : 0;
	}
	if (i >= left || array[i] > left - i - 1)
		return NULL;
	return (const struct ip_callchain *)&array[i];
}

static bool defer_peek(struct callchain_defer *cd, union perf_event *event,
		       struct defer_peek *pk)
{
	struct evsel *evsel = evlist__event2evsel(cd->evlist, event);
	const struct ip_callchain *chain;
	const __u64 *array = event->sample.array;
	u64 type, i = 0;

	if (!evsel)
		return false;

	type = evsel->core.attr.sample_type;
	if ((event->header.size - sizeof(event->header)) / sizeof(u64) <
	    hweight64(type & PERF_SAMPLE_MASK) ||
	    !(type & PERF_SAMPLE_TID) || !(type & PERF_SAMPLE_TIME))
		return false;

	if (type & PERF_SAMPLE_IDENTIFIER)
		i++;
	if (type & PERF_SAMPLE_IP)
		i++;
	pk->tid.tid = defer_second_u32(array[i]);
	pk->tid.machine_pid = evsel->id_pos >= 0 ? defer_machine(cd, array[evsel->id_pos]) : 0;
	pk->time = array[i + 1];
	pk->cookie = 0;

	if (!(type & PERF_SAMPLE_CALLCHAIN))
		return true;

	chain = evsel__peek_callchain(evsel, event);
	if (!chain)
		return false;
	if (chain->nr >= 2 && chain->ips[chain->nr - 2] == PERF_CONTEXT_USER_DEFERRED)
		pk->cookie = chain->ips[chain->nr - 1];
	return true;
}

static struct defer_task *defer_task__find(struct callchain_defer *cd, struct defer_tid tid)
{
	struct defer_task *task = NULL;

	hashmap__find(cd->tasks, (long)&tid, &task);
	return task;
}

static struct defer_task *defer_task__findnew(struct callchain_defer *cd, struct defer_tid tid)
{
	struct defer_task *task = defer_task__find(cd, tid);

	if (task)
		return task;

	task = zalloc(sizeof(*task));
	if (!task)
		return NULL;

	task->tid = tid;
	if (hashmap__add(cd->tasks, &task->tid, task))
		zfree(&task);
	return task;
}

/*
 * The task is past every kernel entry with another cookie than this, 0 is its exit.
 * All events up to @read were read.
 */
static int defer_task__seen(struct callchain_defer *cd, struct defer_tid tid, u64 cookie,
			    u64 time, u64 read)
{
	struct defer_task *task;

	/* All tasks outside of the profiler's PID namespace, and those that are gone */
	if (!tid.tid || tid.tid == (u32)-1)
		return 0;

	task = defer_task__findnew(cd, tid);
	if (!task)
		return -ENOMEM;
	if (time < task->seen)
		return 0;

	if (!task->seen || task->now.cookie != cookie) {
		if (task->next.since <= read) {
			task->past = task->next;
			task->next = task->now;
		}
		task->now.cookie = cookie;
		task->now.since = time;
	}
	task->seen = time;
	return 0;
}

/*
 * Was the task seen past a sample's kernel entry at a time up to @read? The record
 * of that entry was written before, so it was read, if it was not lost.
 */
static bool defer_entry__past(const struct defer_entry *entry, const struct defer_peek *pk,
			      u64 read)
{
	return entry->cookie != pk->cookie && entry->since > pk->time && entry->since <= read;
}

/* A kept record of a task, when there is one of that kernel entry. */
static struct defer_node *defer_task__last(struct callchain_defer *cd, struct defer_tid tid,
					   u64 cookie)
{
	struct defer_task *task = defer_task__find(cd, tid);

	for (size_t i = 0; task && i < ARRAY_SIZE(task->last); i++) {
		if (task->last[i] && task->last[i]->cookie == cookie)
			return task->last[i];
	}
	return NULL;
}

static bool defer_same_stack(const union perf_event *a, const union perf_event *b)
{
	u64 nr = a->callchain_deferred.nr;

	return b->callchain_deferred.nr == nr &&
	       !memcmp(a->callchain_deferred.ips, b->callchain_deferred.ips,
		       nr * sizeof(u64));
}

static int defer_queue__record(struct callchain_defer *cd, union perf_event *event)
{
	struct hashmap_entry *cur;
	struct defer_node *node, key;
	int same = 0;

	if (!defer_rec__parse(cd, event))
		return 0;

	key.tid = cd->rec.tid;
	key.cookie = cd->rec.cookie;
	node = defer_task__last(cd, key.tid, key.cookie);
	if (node) {
		same++;
		if (defer_same_stack(node->event, event)) {
			cd->stats->nr_deferred_duplicate++;
			return 0;
		}
	}
	hashmap__for_each_key_entry(cd->queued, cur, (long)&key) {
		struct defer_node *old = cur->pvalue;

		same++;
		if (same == MAX_SAME_KEY || defer_same_stack(old->event, event)) {
			cd->stats->nr_deferred_duplicate++;
			return 0;
		}
	}
	if (same)
		cd->stats->nr_deferred_duplicate++;

	node = malloc(sizeof(*node));
	if (!node)
		return -ENOMEM;
	*node = key;
	node->event = event;
	node->used = false;
	if (hashmap__append(cd->queued, node, node)) {
		free(node);
		return -ENOMEM;
	}
	/* That one is freed with all that is queued */
	return hashmap__add(cd->by_event, event, node) ? -ENOMEM : 0;
}

/**
 * callchain_defer__queued - an event was put into the ordered queue
 * @cd: the stacks of the input
 * @oe: the queue, the event is its last one
 *
 * Return: 0 or -ENOMEM.
 */
int callchain_defer__queued(struct callchain_defer *cd, struct ordered_events *oe)
{
	union perf_event *event = oe->last->event;
	struct defer_peek pk;

	switch (event->header.type) {
	case PERF_RECORD_CALLCHAIN_DEFERRED:
		return defer_queue__record(cd, event);
	case PERF_RECORD_EXIT:
		if (event->header.size >= sizeof(event->fork))
			return defer_task__seen(cd, defer_tid__of_exit(cd, event), 0,
						oe->last->timestamp, oe->next_flush);
		return 0;
	case PERF_RECORD_SAMPLE:
		if (!defer_peek(cd, event, &pk))
			return 0;
		/* An immediate callchain does not tell in which kernel entry it was */
		if (!pk.cookie)
			return 0;
		return defer_task__seen(cd, pk.tid, pk.cookie, pk.time, oe->next_flush);
	default:
		return 0;
	}
}

/* What makes that samples do not wait for their user callchains any more */
enum defer_bound {
	DEFER_BOUND_QUEUE,
	DEFER_BOUND_BYTES,
	DEFER_BOUND_TIME,
};

static void defer_warn_bound(struct callchain_defer *cd, const struct ordered_events *oe)
{
	enum defer_bound bound = DEFER_BOUND_TIME;
	char text[32];

	if (oe->makes_room)
		bound = DEFER_BOUND_QUEUE;
	else if (oe->cur_alloc_size > cd->max_bytes)
		bound = DEFER_BOUND_BYTES;

	if (cd->bounds_warned & BIT(bound))
		return;
	cd->bounds_warned |= BIT(bound);

	switch (bound) {
	case DEFER_BOUND_QUEUE:
		scnprintf(text, sizeof(text), "up to report.queue-size");
		break;
	case DEFER_BOUND_BYTES:
		scnprintf(text, sizeof(text), "in %llu MiB",
			  (unsigned long long)cd->max_bytes >> 20);
		break;
	case DEFER_BOUND_TIME:
	default:
		scnprintf(text, sizeof(text), "for %llu s",
			  (unsigned long long)cd->max_wait / NSEC_PER_SEC);
		break;
	}
	pr_warning("Held samples back %s, their user callchains did not come: delivering without (tasks still in the kernel, or callchains lost)\n",
		   text);
}

/**
 * callchain_defer__must_wait - may an event not be delivered yet
 * @cd: the stacks of the input
 * @oe: the queue that is being flushed
 * @event: the event whose turn it is
 *
 * Return: true when the event waits for a record that can still come.
 */
bool callchain_defer__must_wait(struct callchain_defer *cd, struct ordered_events *oe,
				union perf_event *event)
{
	struct defer_node key, *node;
	struct defer_task *task;
	struct defer_peek pk;

	if (!(oe->may_hold || oe->makes_room) || !callchain_defer__queues(cd) ||
	    event->header.type != PERF_RECORD_SAMPLE ||
	    !defer_peek(cd, event, &pk) || !pk.cookie)
		return false;

	key.tid = pk.tid;
	key.cookie = pk.cookie;
	if (hashmap__find(cd->queued, (long)&key, &node) ||
	    defer_task__last(cd, pk.tid, pk.cookie))
		return false;

	/* All events up to next_flush were read, the record is not among them. */
	task = defer_task__find(cd, pk.tid);
	if (task && (defer_entry__past(&task->now, &pk, oe->next_flush) ||
		     defer_entry__past(&task->next, &pk, oe->next_flush) ||
		     defer_entry__past(&task->past, &pk, oe->next_flush)))
		return false;

	if (oe->may_hold && oe->max_timestamp - pk.time <= cd->max_wait &&
	    oe->cur_alloc_size <= cd->max_bytes)
		return true;

	defer_warn_bound(cd, oe);
	return false;
}

/**
 * callchain_defer__set_now - let the time go on where no event tells it
 * @oe: the ordered queue of what is shown live
 * @now: the time, by the clock of the events
 *
 * What is held is held no longer than it may be, also when nothing more is read.
 */
void callchain_defer__set_now(struct ordered_events *oe, u64 now)
{
	if (oe->nr_events)
		oe->max_timestamp = max(oe->max_timestamp, now);
}

/*
 * Of the records with the right key the one that was written next after the
 * sample, else the last one before: the sample was taken after the walk.
 */
static bool defer_better(struct callchain_defer *cd, const struct perf_sample *sample,
			 u64 *best)
{
	u64 dist;

	/* Without times the first one is as good as any */
	if (sample->time == ULLONG_MAX || cd->rec.time == ULLONG_MAX)
		dist = ULLONG_MAX - 1;
	else if (cd->rec.time >= sample->time)
		dist = cd->rec.time - sample->time;
	else
		dist = ULLONG_MAX / 2 + min_t(u64, sample->time - cd->rec.time, ULLONG_MAX / 4);

	if (dist >= *best)
		return false;
	*best = dist;
	return true;
}

static union perf_event *defer_index__find(struct callchain_defer *cd,
					   const struct perf_sample *sample)
{
	struct defer_tid tid = defer_tid__of_sample(cd, sample);
	u64 loc = 0, parsed = 0, best = ULLONG_MAX;
	union perf_event *event = NULL;
	u32 hash;
	size_t i;

	if (!cd->nr_slots)
		return NULL;

	hash = defer_hash(cd->seed, tid, sample->deferred_cookie);
	for (i = hash & (cd->nr_slots - 1); cd->locs[i]; i = (i + 1) & (cd->nr_slots - 1)) {
		if (cd->hashes[i] != hash)
			continue;
		parsed = cd->locs[i] | LOC_USED;
		event = defer_fetch(cd, parsed);
		if (!event || !defer_rec__parse(cd, event) ||
		    !defer_tid__equal(cd->rec.tid, tid) ||
		    cd->rec.cookie != sample->deferred_cookie)
			continue;
		cd->locs[i] = parsed;
		if (defer_better(cd, sample, &best))
			loc = parsed;
	}
	if (!loc)
		return NULL;
	/* cd->rec is the one that was parsed last */
	if (loc != parsed) {
		event = defer_fetch(cd, loc);
		if (!event || !defer_rec__parse(cd, event))
			return NULL;
	}
	return event;
}

static void defer_prefetch(const void *addr, size_t size)
{
	for (size_t i = 0; i < size; i += CACHE_LINE)
		__builtin_prefetch(addr + i);
}

/* The first record that has the hash: few have one that is another's, too. */
static void defer_index__prefetch(struct callchain_defer *cd, u32 hash)
{
	const void *raw;
	size_t i;

	for (i = hash & (cd->nr_slots - 1); cd->locs[i]; i = (i + 1) & (cd->nr_slots - 1)) {
		if (cd->hashes[i] != hash)
			continue;
		raw = defer_mapped(cd, cd->locs[i]);
		if (raw)
			defer_prefetch(raw, AHEAD_RECORD);
		break;
	}
}

/**
 * callchain_defer__look_ahead - get into the caches what the next samples need
 * @cd: the stacks of the input
 * @oe: the queue that is being flushed
 * @event: the event whose turn it is
 *
 * It asks for the event that comes third, for the index's slot of the second one, and for
 * the record of the first one. So the event is there when its cookie is looked at to find
 * the slot, and the slot when it is looked at to find the record. Nothing is changed that
 * is delivered: a wrong guess asks for what is not used.
 */
void callchain_defer__look_ahead(struct callchain_defer *cd, struct ordered_events *oe,
				 struct ordered_event *event)
{
	struct defer_peek pk;
	size_t i;

	/* Records in a queue were read not long ago */
	if (!cd->nr_slots || list_is_last(&event->list, &oe->events))
		return;

	/* It is what was the next but one, unless that was inserted since or was no sample */
	event = list_next_entry(event, list);
	if (event->event == cd->ahead.event)
		defer_index__prefetch(cd, cd->ahead.hash);
	cd->ahead.event = NULL;

	if (list_is_last(&event->list, &oe->events))
		return;

	event = list_next_entry(event, list);
	if (event->event->header.type == PERF_RECORD_SAMPLE &&
	    defer_peek(cd, event->event, &pk) && pk.cookie) {
		cd->ahead.event = event->event;
		cd->ahead.hash = defer_hash(cd->seed, pk.tid, pk.cookie);
		i = cd->ahead.hash & (cd->nr_slots - 1);
		__builtin_prefetch(&cd->locs[i]);
		__builtin_prefetch(&cd->hashes[i]);
	}

	if (!list_is_last(&event->list, &oe->events))
		defer_prefetch(list_next_entry(event, list)->event, AHEAD_SAMPLE);
}

static union perf_event *defer_queue__find(struct callchain_defer *cd,
					   const struct perf_sample *sample)
{
	struct defer_node key = {
		.tid	= defer_tid__of_sample(cd, sample),
		.cookie	= sample->deferred_cookie,
	};
	struct defer_node *last = defer_task__last(cd, key.tid, key.cookie);
	union perf_event *found = NULL;
	struct hashmap_entry *cur;
	u64 best = ULLONG_MAX;

	if (last && defer_rec__parse(cd, last->event)) {
		last->used = true;
		if (defer_better(cd, sample, &best))
			found = last->event;
	}
	hashmap__for_each_key_entry(cd->queued, cur, (long)&key) {
		struct defer_node *node = cur->pvalue;

		if (!defer_rec__parse(cd, node->event))
			continue;
		node->used = true;
		if (defer_better(cd, sample, &best))
			found = node->event;
	}
	if (found && !defer_rec__parse(cd, found))
		return NULL;
	return found;
}

/* A record leaves the queue, whose memory may go: it is now one of its task's last. */
static int defer_queue__keep(struct callchain_defer *cd, union perf_event *event)
{
	struct defer_node key, *node, *gone;
	struct defer_task *task;

	if (!hashmap__delete(cd->by_event, event, NULL, &gone)) {
		/* Without a time it was not queued, and its samples did not wait */
		if (defer_rec__parse(cd, event) && cd->rec.time == ULLONG_MAX)
			cd->stats->nr_deferred_unused++;
		return 0;
	}
	key = *gone;
	/* This may take out another one of the same key: then that moves */
	if (!hashmap__delete(cd->queued, (long)&key, NULL, &node))
		return 0;
	if (node != gone) {
		*gone = *node;
		if (hashmap__update(cd->by_event, gone->event, gone, NULL, NULL))
			return -ENOMEM;
	}
	*node = key;

	task = defer_task__findnew(cd, key.tid);
	node->event = memdup(event, event->header.size);
	if (!task || !node->event) {
		free(node->event);
		free(node);
		return -ENOMEM;
	}
	defer_task__push_last(cd, task, node);
	return 0;
}

/* The task is gone at @time. One with the same number may have been seen later. */
static void defer_task__exit(struct callchain_defer *cd, struct defer_tid tid, u64 time)
{
	struct defer_task *task = defer_task__find(cd, tid);

	if (!task)
		return;

	defer_task__forget_last(cd, task);
	if (task->seen <= time) {
		hashmap__delete(cd->tasks, (long)&tid, NULL, NULL);
		defer_task__delete(task);
	}
}

/*
 * How many frames would an immediate callchain have had: the event's maximum,
 * which perf record notes, or what the sysctl was. Where that is not in the data, it
 * was 127 if nobody changed it. It was more, one cannot tell how much, where the
 * sample's part or the user's has more. What other samples have is of no matter: how
 * much of the data was read by now depends on what it is read from.
 */
static u64 defer_max_stack(const struct evsel *evsel, u64 kernel, u64 user)
{
	if (evsel->core.attr.sample_max_stack)
		return evsel->core.attr.sample_max_stack;
	if (kernel > PERF_MAX_STACK_DEPTH || user > PERF_MAX_STACK_DEPTH)
		return ULLONG_MAX;
	return PERF_MAX_STACK_DEPTH;
}

/*
 * The sample's callchain up to the marker, with @frames addresses, then the user
 * frames that there is room for. Of a sample taken in user space the innermost one
 * is known without them.
 */
static void defer_merge(struct callchain_defer *cd, const struct evsel *evsel,
			struct perf_sample *sample, u64 marker, u64 frames,
			const struct ip_callchain *user)
{
	const struct ip_callchain *recorded = sample->callchain;
	struct ip_callchain *chain = cd->chain;
	u64 room = 0, max_stack = defer_max_stack(evsel, frames, user ? user->nr : 0);

	memcpy(chain->ips, recorded->ips, marker * sizeof(u64));
	chain->nr = marker;
	if (!user && !frames && sample->cpumode == PERF_RECORD_MISC_USER &&
	    evsel->core.attr.sample_type & PERF_SAMPLE_IP) {
		chain->ips[chain->nr++] = PERF_CONTEXT_USER;
		chain->ips[chain->nr++] = sample->ip;
	}
	chain->ips[chain->nr++] = PERF_CONTEXT_USER_DEFERRED;

	if (user) {
		if (frames < max_stack)
			room = min(max_stack - frames, user->nr);
		memcpy(&chain->ips[chain->nr], user->ips, room * sizeof(u64));
		chain->nr += room;
		/* A marker at the end says that the frames are missing, these were cut */
		if (!room)
			chain->nr--;
	}

	sample->recorded_callchain = sample->callchain;
	sample->callchain = chain;
	sample->deferred_callchain = false;
}

/**
 * callchain_defer__deliver - give a sample its user callchain
 * @cd: the stacks of the input
 * @event: the event that is delivered
 * @sample: the event, parsed; its callchain becomes the merged one
 * @file_offset: where it was, for messages
 * @file_path: in which file
 *
 * To be called for records too, before those that see them, and for exits: it is
 * then that records can be forgotten.
 *
 * Return: 0, or a negative error.
 */
int callchain_defer__deliver(struct callchain_defer *cd, union perf_event *event,
			     struct perf_sample *sample, u64 file_offset,
			     const char *file_path)
{
	struct ip_callchain *chain = sample->callchain;
	struct evsel *evsel;
	union perf_event *rec = NULL;
	u64 marker, frames = 0;

	if (!cd->merge)
		return 0;

	if (event->header.type == PERF_RECORD_CALLCHAIN_DEFERRED)
		return cd->indexed ? 0 : defer_queue__keep(cd, event);

	if (event->header.type == PERF_RECORD_EXIT &&
	    event->header.size >= sizeof(event->fork)) {
		defer_task__exit(cd, defer_tid__of_exit(cd, event), sample->time);
		return 0;
	}

	if (event->header.type != PERF_RECORD_SAMPLE || !chain)
		return 0;

	for (marker = 0; marker < chain->nr; marker++) {
		u64 ip = chain->ips[marker];

		if (ip < PERF_CONTEXT_MAX)
			frames++;
		else if (ip == PERF_CONTEXT_USER_DEFERRED)
			break;
	}
	if (marker == chain->nr)
		return 0;

	evsel = evlist__event2evsel(cd->evlist, event);
	if (!evsel)
		return 0;

	cd->stats->nr_deferred_samples++;

	if (marker + 2 != chain->nr || !sample->deferred_cookie) {
		if (!cd->bad_sample_warned) {
			cd->bad_sample_warned = true;
			pr_warning("%#llx@%s [%#x]: malformed deferred callchain in a sample, user part dropped (others like it without a message)\n",
				   (unsigned long long)file_offset, file_path ?: "-",
				   event->header.size);
		}
		cd->stats->nr_deferred_bad_samples++;
	} else if (cd->indexed) {
		rec = defer_index__find(cd, sample);
	} else {
		rec = defer_queue__find(cd, sample);
	}

	if (rec && !cd->rec.callchain->nr)
		rec = NULL;
	if (!rec)
		cd->stats->nr_deferred_missing++;

	defer_merge(cd, evsel, sample, marker, frames,
		    rec ? cd->rec.callchain : NULL);
	return 0;
}

/**
 * callchain_defer__splice - make an event with an ordinary callchain of a sample
 * @to: room for an event of the maximum size
 * @event: the event as it was recorded
 * @sample: parsed from it, and merged
 * @chain_offset: where the recorded callchain is in @event
 *
 * All that is before and behind the callchain stays as it is. Frames for which
 * there is no room in an event are cut.
 *
 * Return: the size of the event.
 */
size_t callchain_defer__splice(union perf_event *to, const union perf_event *event,
			       const struct perf_sample *sample, size_t chain_offset)
{
	const struct ip_callchain *chain = sample->callchain;
	size_t tail = chain_offset + (sample->recorded_callchain->nr + 1) * sizeof(u64);
	size_t tail_size = event->header.size - tail;
	size_t i, room, nr = chain->nr;
	u64 *words = (void *)to + chain_offset;

	if (nr && chain->ips[nr - 1] == PERF_CONTEXT_USER_DEFERRED)
		nr--;
	room = (USHRT_MAX - chain_offset - tail_size) / sizeof(u64) - 1;
	nr = min(nr, room);

	memcpy(to, event, chain_offset);
	words[0] = nr;
	for (i = 0; i < nr; i++) {
		words[i + 1] = chain->ips[i] == PERF_CONTEXT_USER_DEFERRED ?
			       PERF_CONTEXT_USER : chain->ips[i];
	}
	memcpy(&words[nr + 1], (void *)event + tail, tail_size);
	to->header.size = chain_offset + (nr + 1) * sizeof(u64) + tail_size;
	return to->header.size;
}

/**
 * callchain_defer__clear_desc - what was merged is not deferred any more
 * @data: a HEADER_EVENT_DESC feature in the order of bytes of this machine: how many
 *	  attributes, the size of each, and with each its ids and its name
 * @size: of the feature; what is not all there stays as it is
 */
void callchain_defer__clear_desc(void *data, size_t size)
{
	struct {
		u32 nr;
		u32 attr_size;
	} head;
	struct {
		u32 nr_ids;
		u32 name_size;
	} tail;
	size_t pos = sizeof(head);

	if (size < sizeof(head))
		return;

	memcpy(&head, data, sizeof(head));
	for (; head.nr; head.nr--) {
		struct perf_event_attr attr = {};
		size_t known = min_t(size_t, head.attr_size, sizeof(attr));

		if ((u64)head.attr_size + sizeof(tail) > size - pos)
			return;
		memcpy(&attr, data + pos, known);
		attr.defer_callchain = 0;
		attr.defer_output = 0;
		memcpy(data + pos, &attr, known);
		pos += head.attr_size;

		memcpy(&tail, data + pos, sizeof(tail));
		pos += sizeof(tail);
		if (tail.name_size + tail.nr_ids * (u64)sizeof(u64) > size - pos)
			return;
		pos += tail.name_size + tail.nr_ids * sizeof(u64);
	}
}

/**
 * callchain_defer__nr_events - how many events there were, had nothing been deferred
 * @stats: the counts
 *
 * What is lost is shown as a share of these.
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
		{ "callchain records not claimed", stats->nr_deferred_unused,	   false },
		{ "callchain records duplicated",  stats->nr_deferred_duplicate,   false },
		{ "callchain records malformed",   stats->nr_deferred_bad_records, false },
		{ "deferred samples malformed",	   stats->nr_deferred_bad_samples, false },
	};
	size_t i, ret = 0;

	if (!stats->nr_deferred_samples && !stats->nr_deferred_unused &&
	    !stats->nr_deferred_bad_records)
		return 0;

	for (i = 0; i < ARRAY_SIZE(lines); i++) {
		if (lines[i].nr || lines[i].always)
			ret += fprintf(fp, "%29s: %8llu\n", lines[i].name,
				       (unsigned long long)lines[i].nr);
	}
	return ret;
}

/*
 * The frames that stand for something else than code: a symbol each, in a map of
 * its own, so that everything that shows frames can show them.
 */
#define DEFER_COOKIE_NAME	"(cookie)"

static pthread_once_t defer_syms_once = PTHREAD_ONCE_INIT;
static struct symbol *defer_missing_sym;
static struct symbol *defer_cookie_sym;
static struct map *defer_map;

static void defer_syms__init(void)
{
	struct dso *dso = dso__new("[deferred]");

	if (!dso)
		return;

	dso__set_short_name(dso, "[deferred]", false);
	dso__set_loaded(dso);
	/* Nobody is to look for its build ID */
	dso__set_hit(dso);
	defer_missing_sym = symbol__new(0, 1, STB_GLOBAL, STT_FUNC, CALLCHAIN_DEFER__MISSING_NAME);
	defer_cookie_sym = symbol__new(1, 1, STB_GLOBAL, STT_FUNC, DEFER_COOKIE_NAME);
	if (defer_missing_sym && defer_cookie_sym) {
		symbols__insert(dso__symbols(dso), defer_missing_sym);
		symbols__insert(dso__symbols(dso), defer_cookie_sym);
		defer_map = map__new2(0, dso);
		if (defer_map)
			map__set_hit(defer_map);
	}
	dso__put(dso);
}

static int defer_append(struct callchain_cursor *cursor, struct thread *thread,
			struct symbol **sym, u64 ip)
{
	struct map_symbol ms = {};
	int err;

	pthread_once(&defer_syms_once, defer_syms__init);
	if (!defer_map)
		return 0;

	ms.maps = maps__get(thread__maps(thread));
	ms.map = map__get(defer_map);
	ms.sym = *sym;
	err = callchain_cursor_append(cursor, ip, &ms, false, NULL, 0, 0, 0, NULL);
	map_symbol__exit(&ms);
	return err;
}

/**
 * callchain_defer__missing_symbol - what stands for a user callchain that is not there
 *
 * Return: a symbol, or NULL when there is no memory for it.
 */
struct symbol *callchain_defer__missing_symbol(void)
{
	pthread_once(&defer_syms_once, defer_syms__init);
	return defer_map ? defer_missing_sym : NULL;
}

/**
 * callchain_defer__append_missing - a frame in place of the user callchain
 * @cursor: callchain as far as it was resolved
 * @thread: whose it is
 *
 * Return: 0, or a negative error.
 */
int callchain_defer__append_missing(struct callchain_cursor *cursor, struct thread *thread)
{
	return defer_append(cursor, thread, &defer_missing_sym, 0);
}

/**
 * callchain_defer__append_cookie - the cookie of a callchain that is shown as recorded
 * @cursor: callchain as far as it was resolved
 * @thread: whose it is
 * @cookie: to be shown as what it is
 *
 * Return: 0, or a negative error.
 */
int callchain_defer__append_cookie(struct callchain_cursor *cursor, struct thread *thread,
				   u64 cookie)
{
	return defer_append(cursor, thread, &defer_cookie_sym, cookie);
}

/**
 * callchain_defer__frame_name - what a frame that is no code stands for
 * @node: a frame
 *
 * Return: the text to print, or NULL for an ordinary frame.
 */
const char *callchain_defer__frame_name(const struct callchain_cursor_node *node)
{
	const struct symbol *sym = node->ms.sym;

	if (sym && (sym == defer_missing_sym || sym == defer_cookie_sym))
		return sym->name;
	return NULL;
}

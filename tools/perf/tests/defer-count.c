// SPDX-License-Identifier: GPL-2.0
/*
 * Count the deferred user callchains that are not in the data, from what goes
 * through the hands of perf record: records before and after their samples, cut
 * events, losses, many tasks and buffers, and garbage, in bounded memory.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <linux/kernel.h>
#include <linux/perf_event.h>
#include <linux/zalloc.h>
#include <perf/event.h>
#include "debug.h"
#include "defer-count.h"
#include "event.h"
#include "evlist.h"
#include "evsel.h"
#include "tests.h"

#define PID	1000
#define KIP	0xffffffff81000000ULL
#define UIP	0x400000ULL

/* A ring buffer that was not read yet */
struct ring {
	u64	words[1 << 16];
	size_t	nr;
};

static struct evlist *evlist;
static struct defer_count *dc;
static struct ring ring;

static void put_header(struct ring *r, u32 type, u16 misc, size_t words)
{
	struct perf_event_header hdr = {
		.type = type,
		.misc = misc,
		.size = (1 + words) * sizeof(u64),
	};

	memcpy(&r->words[r->nr++], &hdr, sizeof(hdr));
}

static void put_ids(struct ring *r, u32 tid, u64 time)
{
	const u32 ids[2] = { PID, tid };

	memcpy(&r->words[r->nr++], ids, sizeof(ids));
	r->words[r->nr++] = time;
}

static void put_chain(struct ring *r, u16 misc, u32 tid, u64 time, const u64 *ips, u64 nr)
{
	put_header(r, PERF_RECORD_SAMPLE, misc, 4 + nr);
	r->words[r->nr++] = KIP;
	put_ids(r, tid, time);
	r->words[r->nr++] = nr;
	memcpy(&r->words[r->nr], ips, nr * sizeof(*ips));
	r->nr += nr;
}

static void put_sample(struct ring *r, u32 tid, u64 time, u64 cookie)
{
	const u64 ips[] = { PERF_CONTEXT_KERNEL, KIP, PERF_CONTEXT_USER_DEFERRED, cookie };

	put_chain(r, PERF_RECORD_MISC_KERNEL, tid, time, ips, ARRAY_SIZE(ips));
}

/* In user mode, with an immediate callchain */
static void put_user_sample(struct ring *r, u32 tid, u64 time)
{
	const u64 ips[] = { PERF_CONTEXT_USER, UIP };

	put_chain(r, PERF_RECORD_MISC_USER, tid, time, ips, ARRAY_SIZE(ips));
}

static void put_record(struct ring *r, u32 tid, u64 time, u64 cookie, u64 nr)
{
	u64 i;

	put_header(r, PERF_RECORD_CALLCHAIN_DEFERRED, PERF_RECORD_MISC_USER, 4 + nr);
	r->words[r->nr++] = cookie;
	r->words[r->nr++] = nr;
	for (i = 0; i < nr; i++)
		r->words[r->nr++] = UIP + i;
	put_ids(r, tid, time);
}

static void put_exit(struct ring *r, u32 tid, u64 time)
{
	const u32 ids[4] = { PID, PID, tid, tid };

	put_header(r, PERF_RECORD_EXIT, 0, 5);
	memcpy(&r->words[r->nr], ids, sizeof(ids));
	r->nr += 2;
	r->words[r->nr++] = time;
	put_ids(r, tid, time);
}

static void push(int reader, struct ring *r)
{
	defer_count__push(dc, reader, r, r->words, r->nr * sizeof(u64));
	r->nr = 0;
}

/* Read it all, with nothing else to be read */
static void round_of(struct ring *r)
{
	defer_count__begin(dc, 0);
	push(0, r);
	defer_count__end(dc, 0, true);
}

static void rounds(int nr)
{
	while (nr--)
		round_of(&ring);
}

static int setup(int readers)
{
	struct perf_event_attr attr = {
		.type		 = PERF_TYPE_SOFTWARE,
		.size		 = sizeof(attr),
		.config		 = PERF_COUNT_SW_CPU_CLOCK,
		.sample_type	 = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME |
				   PERF_SAMPLE_CALLCHAIN,
		.task		 = 1,
		.sample_id_all	 = 1,
		.defer_callchain = 1,
		.defer_output	 = 1,
	};
	struct evsel *evsel;

	ring.nr = 0;
	evlist = evlist__new();
	evsel = evlist ? evsel__new(&attr) : NULL;
	if (evsel)
		evlist__add(evlist, evsel);
	dc = evsel ? defer_count__new(evlist, readers) : NULL;
	return dc ? 0 : -ENOMEM;
}

static void teardown(void)
{
	defer_count__delete(dc);
	evlist__delete(evlist);
	dc = NULL;
	evlist = NULL;
}

static bool counted(u64 missing, u64 samples, bool up_to)
{
	struct defer_count_result result;

	defer_count__result(dc, &result);
	if (result.nr_missing == missing && result.nr_samples == samples &&
	    result.up_to == up_to)
		return true;
	pr_debug("%llu of %llu missing%s, not %llu of %llu\n",
		 (unsigned long long)result.nr_missing, (unsigned long long)result.nr_samples,
		 result.up_to ? " at most" : "", (unsigned long long)missing,
		 (unsigned long long)samples);
	return false;
}

static int with_readers(int readers, int (*test)(void))
{
	int ret = setup(readers);

	if (!ret)
		ret = test();
	teardown();
	return ret;
}

/* Whatever comes first, and however late the other one is */
static int order(void)
{
	u64 t;

	for (t = 0; t < 4; t++) {
		put_sample(&ring, 1, 10 * t, 100 + t);
		put_sample(&ring, 1, 10 * t + 1, 100 + t);
		rounds(t + 1);
		TEST_ASSERT_VAL("missing until it comes", counted(2, 2 * t + 2, false));
		put_record(&ring, 1, 10 * t + 5, 100 + t, 3);
		rounds(1);
		TEST_ASSERT_VAL("record after the samples", counted(0, 2 * t + 2, false));
	}

	/* In a buffer that is read earlier, in the same turn or the one before */
	for (t = 0; t < 2; t++) {
		put_record(&ring, 2, 105 + 10 * t, 200 + t, 3);
		rounds(t);
		put_sample(&ring, 2, 100 + 10 * t, 200 + t);
		rounds(1);
		TEST_ASSERT_VAL("record before its sample", counted(0, 9 + t, false));
	}

	/* Not the end of the kernel entry yet */
	rounds(100);
	put_sample(&ring, 2, 300, 201);
	put_sample(&ring, 1, 301, 103);
	rounds(1);
	TEST_ASSERT_VAL("behind the last record", counted(0, 12, false));

	/* The last one of a task in time, not in the order of the buffers */
	put_record(&ring, 3, 420, 302, 1);
	put_record(&ring, 3, 410, 301, 1);
	rounds(10);
	put_sample(&ring, 3, 430, 302);
	rounds(1);
	TEST_ASSERT_VAL("behind the last record in time", counted(0, 13, false));

	/* Asleep for long */
	put_sample(&ring, 4, 500, 400);
	rounds(1000);
	put_sample(&ring, 4, 501, 400);
	rounds(1000);
	put_record(&ring, 4, 502, 400, 1);
	rounds(1);
	TEST_ASSERT_VAL("asleep", counted(0, 15, false));
	return TEST_OK;
}

static int test__defer_count_order(struct test_suite *test __maybe_unused,
				   int subtest __maybe_unused)
{
	return with_readers(1, order);
}

/* What the reader of the data does not take for a callchain either */
static int missing(void)
{
	const u64 no_end[] = { PERF_CONTEXT_USER_DEFERRED, 7, 8 };
	const u64 no_cookie[] = { KIP, PERF_CONTEXT_USER_DEFERRED };
	size_t at;

	put_sample(&ring, 1, 10, 100);
	put_record(&ring, 1, 11, 100, 0);
	put_sample(&ring, 1, 12, 100);
	rounds(1);
	TEST_ASSERT_VAL("empty record", counted(2, 2, false));
	put_record(&ring, 1, 13, 100, 1);
	put_record(&ring, 1, 13, 100, 1);
	rounds(1);
	TEST_ASSERT_VAL("same cookie twice", counted(1, 2, false));
	put_sample(&ring, 1, 14, 100);
	rounds(1);
	TEST_ASSERT_VAL("same cookie twice, and later", counted(1, 3, false));

	put_sample(&ring, 1, 20, 101);
	put_record(&ring, 2, 21, 101, 1);
	put_record(&ring, 1, 22, 102, 1);
	rounds(1);
	TEST_ASSERT_VAL("another's record", counted(2, 4, false));

	put_chain(&ring, PERF_RECORD_MISC_KERNEL, 1, 30, no_end, ARRAY_SIZE(no_end));
	put_chain(&ring, PERF_RECORD_MISC_KERNEL, 1, 31, no_cookie, ARRAY_SIZE(no_cookie));
	put_sample(&ring, 1, 32, 0);
	put_record(&ring, 1, 33, 7, 1);
	put_record(&ring, 1, 34, 8, 1);
	rounds(1);
	TEST_ASSERT_VAL("malformed samples", counted(5, 7, false));

	put_sample(&ring, 1, 40, 103);
	put_sample(&ring, 1, 41, 104);
	at = ring.nr;
	put_record(&ring, 1, 42, 103, 2);
	ring.words[at + 2] = 3;
	at = ring.nr;
	put_record(&ring, 1, 43, 104, 2);
	ring.words[at + 3] = PERF_CONTEXT_USER;
	rounds(1);
	TEST_ASSERT_VAL("malformed records", counted(7, 9, false));

	put_user_sample(&ring, 1, 50);
	rounds(5);
	TEST_ASSERT_VAL("nothing deferred", counted(7, 9, false));
	return TEST_OK;
}

static int test__defer_count_missing(struct test_suite *test __maybe_unused,
				     int subtest __maybe_unused)
{
	return with_readers(1, missing);
}

static void put_some(void)
{
	put_record(&ring, 1, 12, 100, 5);
	put_sample(&ring, 1, 10, 100);
	put_exit(&ring, 9, 13);
	put_sample(&ring, 1, 20, 101);
	put_record(&ring, 1, 21, 101, 40);
	put_sample(&ring, 2, 30, 102);
}

/* Cut in two, where a buffer wraps round, and in three, which no buffer does */
static int cut(void)
{
	const char *bytes = (const char *)ring.words;
	size_t len, i, j;
	u64 nr = 0;

	put_some();
	len = ring.nr * sizeof(u64);
	for (i = 0; i <= len; i++) {
		defer_count__push(dc, 0, &ring, bytes, i);
		defer_count__push(dc, 0, &ring, bytes + i, len - i);
		defer_count__next_file(dc);
		nr++;
		TEST_ASSERT_VAL("in two", counted(nr, 3 * nr, false));
	}
	for (i = 0; i <= len; i += 3) {
		j = i + (len - i) / 2;
		defer_count__push(dc, 0, &ring, bytes, i);
		defer_count__push(dc, 0, &ring, bytes + i, j - i);
		defer_count__push(dc, 0, &ring, bytes + j, len - j);
		defer_count__next_file(dc);
		nr++;
		TEST_ASSERT_VAL("in three", counted(nr, 3 * nr, false));
	}
	/* What another buffer leaves behind is not part of it */
	defer_count__push(dc, 0, &len, bytes, 60);
	push(0, &ring);
	nr++;
	TEST_ASSERT_VAL("another buffer", counted(nr, 3 * nr, false));
	return TEST_OK;
}

static int test__defer_count_cut(struct test_suite *test __maybe_unused,
				 int subtest __maybe_unused)
{
	return with_readers(1, cut);
}

static int two_files(void)
{
	/* The sample in one, the record in the next one; and the other way round */
	put_sample(&ring, 1, 10, 100);
	put_record(&ring, 2, 10, 200, 1);
	rounds(5);
	defer_count__next_file(dc);
	put_record(&ring, 1, 11, 100, 1);
	put_sample(&ring, 2, 11, 200);
	rounds(1);
	TEST_ASSERT_VAL("in two files", counted(2, 2, false));
	put_sample(&ring, 1, 12, 100);
	rounds(1);
	TEST_ASSERT_VAL("in the same file", counted(2, 3, false));
	return TEST_OK;
}

static int test__defer_count_files(struct test_suite *test __maybe_unused,
				   int subtest __maybe_unused)
{
	return with_readers(1, two_files);
}

/* Neither what was lost, nor what was there, nor who was there is kept for ever. */
static int bounded(void)
{
	u64 t, cookie = 1, most = 0;
	u32 tid;

	for (t = 0; t < 3000; t++) {
		for (tid = 1; tid <= 8; tid++) {
			/* One in two records is lost */
			put_sample(&ring, tid, 10 * t, cookie);
			if (t & 1)
				put_record(&ring, tid, 10 * t + 1, cookie, 2);
			cookie++;
		}
		/* One that lives for a moment, and loses everything */
		put_sample(&ring, 100 + t, 10 * t, cookie++);
		put_exit(&ring, 100 + t, 10 * t + 5);
		/* and whose exit comes too early */
		put_exit(&ring, 10000 + t, 10 * t + 6);
		put_record(&ring, 10000 + t, 10 * t + 5, cookie++, 1);
		put_sample(&ring, 10000 + t, 10 * t + 4, cookie++);
		/* Only this one sleeps, and is not forgotten */
		if (!t)
			put_sample(&ring, 50, 1, 1ULL << 40);
		round_of(&ring);
		most = max_t(u64, most, defer_count__nr_remembered(dc));
	}
	put_record(&ring, 50, 10 * t, 1ULL << 40, 1);
	round_of(&ring);
	TEST_ASSERT_VAL("count", counted(1500 * 8 + 6000, 3000 * 8 + 6001, false));
	pr_debug("%llu remembered\n", (unsigned long long)most);
	TEST_ASSERT_VAL("bounded", most < 200);

	for (tid = 1; tid <= 8; tid++)
		put_exit(&ring, tid, 10 * t + 1);
	put_exit(&ring, 50, 10 * t + 1);
	rounds(5);
	TEST_ASSERT_VAL("nobody there", defer_count__nr_remembered(dc) == 0);
	/* Its exit was pushed a turn too early: what comes then is of nobody */
	put_exit(&ring, 60, 10 * t + 2);
	rounds(1);
	put_record(&ring, 60, 10 * t + 1, cookie++, 1);
	rounds(5);
	TEST_ASSERT_VAL("nobody there, late", defer_count__nr_remembered(dc) == 0);
	/* With the user's registers, as a page fault has them, it can be in the kernel */
	put_sample(&ring, 1, 10 * t + 2, cookie);
	rounds(3);
	put_user_sample(&ring, 1, 10 * t + 3);
	rounds(3);
	put_record(&ring, 1, 10 * t + 4, cookie, 1);
	rounds(1);
	TEST_ASSERT_VAL("user registers", counted(1500 * 8 + 6000, 3000 * 8 + 6002, false));

	/* A new one with the number of one that exited */
	put_exit(&ring, 1, 10 * t + 5);
	put_sample(&ring, 1, 10 * t + 6, ++cookie);
	rounds(10);
	put_record(&ring, 1, 10 * t + 7, cookie, 1);
	rounds(1);
	TEST_ASSERT_VAL("same number", counted(1500 * 8 + 6000, 3000 * 8 + 6003, false));
	return TEST_OK;
}

static int test__defer_count_bounded(struct test_suite *test __maybe_unused,
				     int subtest __maybe_unused)
{
	return with_readers(1, bounded);
}

/* Where some buffer is not read the memory is bounded nevertheless. */
static int full(void)
{
	u64 i, nr = 1500000;
	struct defer_count_result result;

	put_record(&ring, 1, 1, 1, 1);
	for (i = 2; i < nr; i++) {
		put_record(&ring, 1 + i % 5, i, i, 1);
		if (ring.nr + 64 < ARRAY_SIZE(ring.words))
			continue;
		defer_count__begin(dc, 0);
		push(0, &ring);
		defer_count__end(dc, 0, false);
	}
	push(0, &ring);
	TEST_ASSERT_VAL("bounded", defer_count__nr_remembered(dc) <= 1 << 19);
	put_sample(&ring, 1, 2, 1);
	put_sample(&ring, 1 + (nr - 1) % 5, nr, nr - 1);
	push(0, &ring);
	TEST_ASSERT_VAL("an upper bound", counted(1, 2, true));

	/* Waiting samples are not forgotten, then there is no room for others */
	for (i = nr; i < 2 * nr; i++) {
		put_sample(&ring, i, i, i);
		if (ring.nr + 64 < ARRAY_SIZE(ring.words))
			continue;
		push(0, &ring);
	}
	push(0, &ring);
	defer_count__result(dc, &result);
	TEST_ASSERT_VAL("bounded", defer_count__nr_remembered(dc) <= 1 << 19);
	TEST_ASSERT_VAL("all missing", counted(nr + 1, nr + 2, true));
	return TEST_OK;
}

static int test__defer_count_full(struct test_suite *test __maybe_unused,
				  int subtest __maybe_unused)
{
	return with_readers(1, full);
}

#define NR_CPUS_OF	4
#define NR_TASKS	24
#define NR_STEPS	200000

struct sim_task {
	u32	tid;
	u64	cookie;
	/* samples of the entry, and whether its stack was recorded */
	u64	nr;
	bool	asleep;
	bool	walked;
	bool	lost;
};

static struct ring rings[NR_CPUS_OF];
static struct sim_task tasks[NR_TASKS];

static void sim_leave(struct ring *r, struct sim_task *task, u64 now, u64 *lost)
{
	if (!task->nr || task->walked)
		return;
	task->walked = true;
	task->lost = rand() % 16 == 0;
	if (task->lost)
		*lost += task->nr;
	if (!task->lost || rand() % 2)
		put_record(r, task->tid, now, task->cookie, task->lost ? 0 : 1 + rand() % 3);
}

/*
 * Tasks that go from CPU to CPU, sleep, exit and lose callchains, and CPUs whose
 * buffers are read at different times, by one thread or by one each.
 */
static int simulate(int readers)
{
	static u32 next_tid;
	u64 now, cookie = 1, samples = 0, lost = 0, most = 0;
	int i, cpu, len, per = NR_CPUS_OF / readers;
	struct sim_task *task;

	srand(readers);
	next_tid = 1;
	memset(rings, 0, sizeof(rings));
	memset(tasks, 0, sizeof(tasks));
	for (i = 0; i < NR_TASKS; i++)
		tasks[i].tid = next_tid++;

	for (now = 1; now < NR_STEPS; now++) {
		task = &tasks[rand() % NR_TASKS];
		cpu = rand() % NR_CPUS_OF;
		switch (rand() % 8) {
		case 0:
		case 1:
			/* A new kernel entry */
			sim_leave(&rings[cpu], task, now, &lost);
			task->cookie = cookie++;
			task->nr = 0;
			task->walked = false;
			break;
		case 2:
		case 3:
		case 4:
			if (!task->cookie)
				break;
			put_sample(&rings[cpu], task->tid, now, task->cookie);
			samples++;
			task->nr++;
			/* After the walk it is the same one */
			if (task->walked && task->lost)
				lost++;
			break;
		case 5:
			sim_leave(&rings[cpu], task, now, &lost);
			break;
		case 6:
			if (rand() % 32)
				break;
			sim_leave(&rings[cpu], task, now, &lost);
			put_exit(&rings[cpu], task->tid, now);
			memset(task, 0, sizeof(*task));
			task->tid = next_tid++;
			break;
		default:
			/* A reader reads; what is left at a wrap goes in a second turn */
			i = rand() % readers;
			defer_count__begin(dc, i);
			for (cpu = i * per; cpu < (i + 1) * per; cpu++) {
				struct ring *r = &rings[cpu];

				len = r->nr ? rand() % (r->nr * sizeof(u64)) : 0;
				defer_count__push(dc, i, r, r->words, len);
				defer_count__push(dc, i, r, (char *)r->words + len,
						  r->nr * sizeof(u64) - len);
				r->nr = 0;
			}
			defer_count__end(dc, i, true);
			break;
		}
		most = max_t(u64, most, defer_count__nr_remembered(dc));
	}
	for (i = 0; i < NR_TASKS; i++)
		sim_leave(&rings[i % NR_CPUS_OF], &tasks[i], now, &lost);
	for (i = 0; i < NR_CPUS_OF; i++)
		push(i / per, &rings[i]);

	pr_debug("%d readers: %llu samples, %llu remembered\n", readers,
		 (unsigned long long)samples, (unsigned long long)most);
	TEST_ASSERT_VAL("samples lost", lost > 1000);
	TEST_ASSERT_VAL("count", counted(lost, samples, false));
	TEST_ASSERT_VAL("bounded", most < 1000);
	return TEST_OK;
}

static int one_reader(void)
{
	return simulate(1);
}

static int four_readers(void)
{
	return simulate(4);
}

static int leaving(void)
{
	/* The other one has nothing to read, but has not looked */
	put_record(&ring, 1, 1, 1, 1);
	put_record(&ring, 1, 2, 2, 1);
	round_of(&ring);
	rounds(20);
	put_sample(&ring, 1, 0, 1);
	push(1, &ring);
	TEST_ASSERT_VAL("not read for long", counted(0, 1, false));
	defer_count__leave(dc, 1);
	rounds(20);
	TEST_ASSERT_VAL("no record but the last one", defer_count__nr_remembered(dc) == 2);
	defer_count__leave(dc, 0);
	defer_count__leave(dc, 0);
	return TEST_OK;
}

static int test__defer_count_buffers(struct test_suite *test __maybe_unused,
				     int subtest __maybe_unused)
{
	int ret = with_readers(1, one_reader);

	if (ret == TEST_OK)
		ret = with_readers(4, four_readers);
	if (ret == TEST_OK)
		ret = with_readers(2, leaving);
	return ret;
}

static int garbage(void)
{
	const u32 types[] = {
		PERF_RECORD_SAMPLE, PERF_RECORD_CALLCHAIN_DEFERRED, PERF_RECORD_EXIT, 99,
	};
	char *bytes;
	size_t size;
	int i, j;

	srand(1);
	for (i = 0; i < 20000; i++) {
		/* At the end of its own memory: a sanitizer sees who reads behind it */
		size = rand() % 256;
		bytes = malloc(size ?: 1);
		if (!bytes)
			return -ENOMEM;
		for (j = 0; j < (int)size; j++)
			bytes[j] = rand() % 4 ? 0 : rand();
		if (size >= sizeof(struct perf_event_header)) {
			struct perf_event_header hdr = {
				.type = types[rand() % ARRAY_SIZE(types)],
				.misc = rand(),
				.size = rand() % 2 ? size : (size_t)rand() % 300,
			};

			memcpy(bytes, &hdr, sizeof(hdr));
		}
		defer_count__push(dc, 0, bytes, bytes, size);
		if (rand() % 2)
			defer_count__push(dc, 0, bytes, bytes, rand() % (size + 1));
		free(bytes);
	}
	/* and good ones that lost a bit */
	for (i = 0; i < 20000; i++) {
		ring.nr = 0;
		put_some();
		ring.words[rand() % ring.nr] ^= 1ULL << (rand() % 64);
		push(0, &ring);
	}
	return TEST_OK;
}

static int test__defer_count_garbage(struct test_suite *test __maybe_unused,
				     int subtest __maybe_unused)
{
	return with_readers(1, garbage);
}

static struct test_case tests__defer_count[] = {
	TEST_CASE("Lost deferred callchains, in any order", defer_count_order),
	TEST_CASE("Lost deferred callchains, missing ones", defer_count_missing),
	TEST_CASE("Lost deferred callchains, cut events", defer_count_cut),
	TEST_CASE("Lost deferred callchains, several files", defer_count_files),
	TEST_CASE("Lost deferred callchains, bounded memory", defer_count_bounded),
	TEST_CASE("Lost deferred callchains, no memory left", defer_count_full),
	TEST_CASE("Lost deferred callchains, several buffers", defer_count_buffers),
	TEST_CASE("Lost deferred callchains, garbage", defer_count_garbage),
	{ .name = NULL, }
};

struct test_suite suite__defer_count = {
	.desc = "Count of lost deferred callchains",
	.test_cases = tests__defer_count,
};

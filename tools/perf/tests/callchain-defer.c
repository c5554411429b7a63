// SPDX-License-Identifier: GPL-2.0
/*
 * Deferred user callchains: parse the records, merge them into the samples, and survive
 * malformed input.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <linux/kernel.h>
#include <linux/perf_event.h>
#include <linux/string.h>
#include "callchain.h"
#include "debug.h"
#include "defer-gen.h"
#include "event.h"
#include "evsel.h"
#include "sample.h"
#include "tests.h"

static struct gen gen;
static struct gen_reader rt;

static int test__parse(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	static const struct {
		u64 says;
		u16 size;
		int err;
	} records[] = {
		{ 0, 0, 0 },
		{ 2, 0, 0 },
		{ 4, 0, -EFAULT },
		{ 7, 0, -EFAULT },
		{ 1ULL << 61, 0, -EFAULT },
		{ (1ULL << 61) + 3, 0, -EFAULT },
		{ ULLONG_MAX, 0, -EFAULT },
		{ 3, 8, -EFAULT },
		{ 3, 16, -EFAULT },
		{ 3, 24, -EFAULT },
		{ 3, 24 + 3 * 8 + 16, -EFAULT },
		{ 1, 24 + 8, -EFAULT },
	};
	struct perf_event_attr attr = {
		.type		= PERF_TYPE_SOFTWARE,
		.config		= PERF_COUNT_SW_CPU_CLOCK,
		.sample_type	= SAMPLE_TYPE,
		.sample_id_all	= 1,
	};
	struct evsel *evsel = evsel__new(&attr);
	struct perf_sample sample;
	union perf_event *event;
	size_t i;

	TEST_ASSERT_VAL("evsel", evsel);
	memset(&gen, 0, sizeof(gen));
	for (i = 0; i < ARRAY_SIZE(records); i++) {
		/* Memory of the record's size, so that a sanitizer sees reads behind its end */
		gen.len = 0;
		gen_record(&gen, PID + 1, 5, 77, UIP, 3, records[i].says, records[i].size);
		event = memdup(gen.buf, gen.len);
		TEST_ASSERT_VAL("memory", event);
		TEST_ASSERT_EQUAL("record", evsel__parse_sample(evsel, event, &sample),
				  records[i].err);
		if (!records[i].err) {
			TEST_ASSERT_EQUAL("tid", sample.tid, PID + 1);
			TEST_ASSERT_EQUAL("time", (int)sample.time, 5);
			TEST_ASSERT_EQUAL("cookie", (int)sample.deferred_cookie, 77);
			TEST_ASSERT_VAL("frames", sample.callchain->ips[0] == UIP);
		}
		free(event);
	}

	gen.len = 0;
	gen_sample(&gen, PID + 1, 5, 78);
	TEST_ASSERT_EQUAL("sample", evsel__parse_sample(evsel, (void *)gen.buf, &sample), 0);
	TEST_ASSERT_VAL("deferred", sample.deferred_callchain);
	TEST_ASSERT_EQUAL("cookie", (int)sample.deferred_cookie, 78);
	TEST_ASSERT_VAL("name", !strcmp(perf_event__name(PERF_RECORD_CALLCHAIN_DEFERRED),
					"CALLCHAIN_DEFERRED"));
	evsel__delete(evsel);
	return TEST_OK;
}

/* Two tasks with the same cookie; several samples a record; a record before its sample */
static int merge(void)
{
	gen_sample(&gen, PID + 1, 10, 5);
	gen_sample(&gen, PID + 2, 11, 5);
	gen_sample(&gen, PID + 1, 12, 5);
	gen_record(&gen, PID + 1, 20, 5, UIP, 3, 0, 0);
	gen_record(&gen, PID + 2, 21, 5, UIP + 0x1000, 4, 0, 0);
	gen_record(&gen, PID + 1, 31, 6, UIP + 0x2000, 2, 0, 0);
	gen_sample(&gen, PID + 1, 30, 6);
	gen_round(&gen);
	TEST_ASSERT_EQUAL("read", gen_read(&gen, &rt, false), 0);
	TEST_ASSERT_EQUAL("samples", rt.nr, 4);
	TEST_ASSERT_VAL("first", gen_merged(&rt, 0, 10, PID + 1, UIP, 3));
	TEST_ASSERT_VAL("other task", gen_merged(&rt, 1, 11, PID + 2, UIP + 0x1000, 4));
	TEST_ASSERT_VAL("second", gen_merged(&rt, 2, 12, PID + 1, UIP, 3));
	TEST_ASSERT_VAL("record first", gen_merged(&rt, 3, 30, PID + 1, UIP + 0x2000, 2));
	TEST_ASSERT_EQUAL("deferred", (int)rt.stats.nr_deferred_samples, 4);
	TEST_ASSERT_EQUAL("missing", (int)rt.stats.nr_deferred_missing, 0);
	return 0;
}

/* Events without a time are delivered as they are read: nothing tells which are passed. */
static int no_times(void)
{
	gen_record(&gen, PID + 1, -1, 5, UIP, 3, 0, 0);
	gen_record(&gen, PID + 1, -1, 6, UIP + 0x1000, 2, 0, 0);
	gen_sample(&gen, PID + 1, -1, 5);
	gen_sample(&gen, PID + 1, -1, 6);
	TEST_ASSERT_EQUAL("read", gen_read(&gen, &rt, false), 0);
	TEST_ASSERT_EQUAL("samples", rt.nr, 2);
	TEST_ASSERT_VAL("first", gen_merged(&rt, 0, -1, PID + 1, UIP, 3));
	TEST_ASSERT_VAL("second", gen_merged(&rt, 1, -1, PID + 1, UIP + 0x1000, 2));
	return 0;
}

static int test__merge(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	return gen_all_inputs(&gen, 1, merge) ?: gen_all_inputs(&gen, 1, no_times);
}

static int no_merge(void)
{
	gen_sample(&gen, PID + 1, 10, 5);
	gen_record(&gen, PID + 1, 20, 5, UIP, 3, 0, 0);
	TEST_ASSERT_EQUAL("read", gen_read(&gen, &rt, true), 0);
	TEST_ASSERT_EQUAL("samples", rt.nr, 1);
	TEST_ASSERT_EQUAL("length", (int)rt.seen[0].nr, 5);
	TEST_ASSERT_VAL("as recorded", rt.seen[0].ips[3] == PERF_CONTEXT_USER_DEFERRED &&
			rt.seen[0].ips[4] == 5);
	return 0;
}

static int test__no_merge(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	return gen_all_inputs(&gen, 1, no_merge);
}

/*
 * A task is sampled again after its stack was walked, before it leaves the kernel:
 * immediately, or after it was stopped there for a minute while other events were
 * delivered.
 */
static int late(void)
{
	const u64 sec = 1000000000ULL, minute = 60 * sec;
	int i;

	gen_sample(&gen, PID + 1, 10, 5);
	gen_record(&gen, PID + 1, 20, 5, UIP, 3, 0, 0);
	gen_sample(&gen, PID + 1, 21, 5);
	gen_record(&gen, PID + 2, 30, 6, UIP + 0x1000, 4, 0, 0);
	gen_record(&gen, PID + 3, 40, 7, UIP + 0x2000, 2, 0, 0);
	gen_record(&gen, PID + 4, 41, 7, UIP + 0x2000, 2, 0, 0);
	gen_round(&gen);
	for (i = 1; i < 5; i++) {
		gen_sample(&gen, PID + 5, i * sec, 50 + i);
		gen_record(&gen, PID + 5, i * sec + 1, 50 + i, UIP + 0x3000, 3, 0, 0);
		gen_round(&gen);
	}
	gen_exit(&gen, PID + 4, 5 * sec);
	gen_sample(&gen, PID + 2, minute, 6);
	gen_sample(&gen, PID + 1, minute + 1, 5);
	gen_sample(&gen, PID + 1, minute + 2, 8);
	gen_record(&gen, PID + 1, minute + 3, 8, UIP + 0x4000, 3, 0, 0);
	gen_round(&gen);
	gen_record(&gen, PID + 2, minute + 4, 6, UIP + 0x1000, 4, 0, 0);
	gen_sample(&gen, PID + 1, minute + 5, 8);
	gen_sample(&gen, PID + 2, minute + 6, 6);
	gen_round(&gen);

	TEST_ASSERT_EQUAL("read", gen_read(&gen, &rt, false), 0);
	TEST_ASSERT_EQUAL("samples", rt.nr, 11);
	TEST_ASSERT_VAL("before", gen_merged(&rt, 0, 10, PID + 1, UIP, 3));
	TEST_ASSERT_VAL("just after", gen_merged(&rt, 1, 21, PID + 1, UIP, 3));
	TEST_ASSERT_VAL("not sampled before",
			gen_merged(&rt, 6, minute, PID + 2, UIP + 0x1000, 4));
	TEST_ASSERT_VAL("stopped", gen_merged(&rt, 7, minute + 1, PID + 1, UIP, 3));
	TEST_ASSERT_VAL("next entry", gen_merged(&rt, 8, minute + 2, PID + 1, UIP + 0x4000, 3));
	TEST_ASSERT_VAL("after the next", gen_merged(&rt, 9, minute + 5, PID + 1, UIP + 0x4000, 3));
	TEST_ASSERT_VAL("twice", gen_merged(&rt, 10, minute + 6, PID + 2, UIP + 0x1000, 4));
	TEST_ASSERT_EQUAL("missing", (int)rt.stats.nr_deferred_missing, 0);
	return 0;
}

static int test__late(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	return gen_all_inputs(&gen, 1, late);
}

static int loss(void)
{
	gen_sample(&gen, PID + 1, 10, 5);		/* no record */
	gen_sample(&gen, PID + 1, 20, 6);
	gen_record(&gen, PID + 1, 21, 6, UIP, 0, 0, 0);	/* empty */
	gen_sample(&gen, PID + 1, 30, 7);
	gen_record(&gen, PID + 2, 31, 7, UIP, 3, 0, 0);	/* of another task */
	gen_record(&gen, PID + 1, 32, 8, UIP, 3, 0, 0);	/* without a sample */
	gen_round(&gen);
	gen_sample(&gen, PID + 1, 40, 9);
	gen_record(&gen, PID + 1, 41, 9, UIP, 3, 0, 0);
	gen_user_sample(&gen, PID + 1, 50, 10);		/* no record */
	gen_user_sample(&gen, PID + 1, 60, 11);
	gen_record(&gen, PID + 1, 61, 11, UIP, 3, 0, 0);
	gen_round(&gen);
	TEST_ASSERT_EQUAL("read", gen_read(&gen, &rt, false), 0);
	TEST_ASSERT_EQUAL("samples", rt.nr, 6);
	TEST_ASSERT_VAL("no record", gen_merged(&rt, 0, 10, PID + 1, 0, 0));
	TEST_ASSERT_VAL("empty record", gen_merged(&rt, 1, 20, PID + 1, 0, 0));
	TEST_ASSERT_VAL("wrong task", gen_merged(&rt, 2, 30, PID + 1, 0, 0));
	TEST_ASSERT_VAL("good one", gen_merged(&rt, 3, 40, PID + 1, UIP, 3));
	/* Without a record only the innermost frame, the ip of the sample, is known */
	TEST_ASSERT_EQUAL("user, no record", (int)rt.seen[4].nr, 3);
	TEST_ASSERT_VAL("in user space", rt.seen[4].ips[0] == PERF_CONTEXT_USER);
	TEST_ASSERT_VAL("where it was taken", rt.seen[4].ips[1] == UIP);
	TEST_ASSERT_VAL("callers missing", rt.seen[4].ips[2] == PERF_CONTEXT_USER_DEFERRED);
	TEST_ASSERT_EQUAL("user", (int)rt.seen[5].nr, 4);
	TEST_ASSERT_VAL("first frame", rt.seen[5].ips[1] == UIP);
	TEST_ASSERT_EQUAL("deferred", (int)rt.stats.nr_deferred_samples, 6);
	TEST_ASSERT_EQUAL("missing", (int)rt.stats.nr_deferred_missing, 4);
	return 0;
}

static int test__loss(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	return gen_all_inputs(&gen, 1, loss);
}

static int malformed(void)
{
	const u64 no_cookie[] = { PERF_CONTEXT_KERNEL, KIP, KIP + 16, PERF_CONTEXT_USER_DEFERRED };
	const u64 middle[] = { PERF_CONTEXT_KERNEL, KIP, KIP + 16, PERF_CONTEXT_USER_DEFERRED,
			       99, UIP, UIP + 16 };
	static const struct {
		u64 says;
		u16 size;
	} records[] = {
		{ 4, 0 }, { 1ULL << 61, 0 }, { ULLONG_MAX, 0 },
		{ 3, 8 }, { 3, 16 }, { 3, 24 }, { 3, 24 + 3 * 8 + 16 },
	};
	size_t i, n = ARRAY_SIZE(records);

	for (i = 0; i < n; i++) {
		gen_sample(&gen, PID + 1, 10 + 10 * i, 5 + i);
		gen_record(&gen, PID + 1, 11 + 10 * i, 5 + i, UIP, 3, records[i].says,
			   records[i].size);
	}
	/* A context marker in place of an address, and the cookie 0 */
	gen_record(&gen, PID + 1, 200, 50, PERF_CONTEXT_KERNEL, 1, 0, 0);
	gen_record(&gen, PID + 1, 201, 0, UIP, 3, 0, 0);
	gen_sample(&gen, PID + 1, 210, 0);
	gen_chain(&gen, PID + 1, 211, no_cookie, ARRAY_SIZE(no_cookie));
	gen_chain(&gen, PID + 1, 212, middle, ARRAY_SIZE(middle));
	gen_sample(&gen, PID + 1, 220, 60);
	gen_record(&gen, PID + 1, 221, 60, UIP, 3, 0, 0);
	gen_round(&gen);

	TEST_ASSERT_EQUAL("read", gen_read(&gen, &rt, false), 0);
	TEST_ASSERT_EQUAL("samples", rt.nr, (int)n + 4);
	for (i = 0; i < n; i++)
		TEST_ASSERT_VAL("bad record", gen_merged(&rt, i, 10 + 10 * i, PID + 1, 0, 0));
	TEST_ASSERT_VAL("cookie 0", gen_merged(&rt, n, 210, PID + 1, 0, 0));
	TEST_ASSERT_VAL("no cookie", gen_merged(&rt, n + 1, 211, PID + 1, 0, 0));
	TEST_ASSERT_VAL("marker in the middle", gen_merged(&rt, n + 2, 212, PID + 1, 0, 0));
	TEST_ASSERT_VAL("good one", gen_merged(&rt, n + 3, 220, PID + 1, UIP, 3));
	TEST_ASSERT_EQUAL("bad records", (int)rt.stats.nr_deferred_bad_records, (int)n + 2);
	TEST_ASSERT_EQUAL("bad samples", (int)rt.stats.nr_deferred_bad_samples, 3);
	TEST_ASSERT_EQUAL("missing", (int)rt.stats.nr_deferred_missing, (int)n + 3);
	return 0;
}

static int test__malformed(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	return gen_all_inputs(&gen, 1, malformed);
}

/* Gives some of the words between two places of the input other values */
static void change_words(u64 *state, size_t from, size_t to)
{
	const u64 values[] = {
		PERF_CONTEXT_USER_DEFERRED, PERF_CONTEXT_USER, PERF_CONTEXT_MAX, 0, -1ULL,
		1ULL << 61, 5, 0,
	};
	size_t len = gen.len;

	for (gen.len = from; gen.len < to;) {
		*state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
		if (*state >> 63)
			gen.len += sizeof(u64);
		else
			gen_put64(&gen, values[*state >> 60 & 7] ?: *state);
	}
	gen.len = len;
}

/*
 * The words of every other callchain and record have any values. The samples in between are
 * merged, and none gets more than its record has.
 */
static int any_words(void)
{
	const size_t chain = sizeof(struct perf_event_header) + 5 * sizeof(u64);
	const size_t record = sizeof(struct perf_event_header), id = 3 * sizeof(u64);
	int round, i, nr;
	u64 state = 1;

	for (round = 0; round < 200; round++) {
		gen_start(&gen);
		for (i = 0; i < 16; i++) {
			size_t at = gen.len;

			gen_sample(&gen, PID + 1, 10 + 10 * i, 50 + i);
			if (i % 2)
				change_words(&state, at + chain, gen.len);
			at = gen.len;
			gen_record(&gen, PID + 1, 11 + 10 * i, 50 + i, UIP + 0x1000 * i, 3, 0, 0);
			if (i % 2)
				change_words(&state, at + record, gen.len - id);
		}
		gen_round(&gen);
		TEST_ASSERT_EQUAL("read", gen_read(&gen, &rt, false), 0);
		for (i = 0, nr = 0; i < rt.nr; i++) {
			u64 time = rt.seen[i].time;

			TEST_ASSERT_VAL("length", rt.seen[i].nr <= 4 + 3);
			if (time % 20 == 10)
				TEST_ASSERT_VAL("merged",
						gen_merged(&rt, i, time, PID + 1,
							   UIP + 0x1000 * nr++ * 2, 3));
		}
		TEST_ASSERT_EQUAL("samples in between", nr, 8);
	}
	return 0;
}

static int test__any_words(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	return gen_all_inputs(&gen, 1, any_words);
}

/*
 * Several records have the same cookie: the task was sampled again in the same kernel
 * entry, or its stack was cut at a page that came in later, or several events get
 * records. The longest record counts that was read before the sample is delivered.
 */
static int repeated(void)
{
	gen_sample(&gen, PID + 1, 10, 5);
	gen_record(&gen, PID + 1, 11, 5, UIP, 3, 0, 0);
	gen_record(&gen, PID + 1, 12, 5, UIP, 3, 0, 0);
	gen_sample(&gen, PID + 1, 20, 5);
	gen_record(&gen, PID + 1, 21, 5, UIP, 3, 0, 0);
	gen_sample(&gen, PID + 1, 30, 6);
	gen_record(&gen, PID + 1, 31, 6, UIP, 2, 0, 0);
	gen_record(&gen, PID + 1, 32, 6, UIP, 4, 0, 0);
	gen_sample(&gen, PID + 1, 40, 7);
	gen_record(&gen, PID + 1, 41, 7, UIP, 4, 0, 0);
	gen_record(&gen, PID + 1, 42, 7, UIP, 2, 0, 0);
	gen_sample(&gen, PID + 1, 50, 8);
	gen_record(&gen, PID + 1, 51, 8, UIP, 0, 0, 0);
	gen_sample(&gen, PID + 1, 52, 8);
	gen_record(&gen, PID + 1, 53, 8, UIP, 3, 0, 0);
	gen_round(&gen);

	TEST_ASSERT_EQUAL("read", gen_read(&gen, &rt, false), 0);
	TEST_ASSERT_EQUAL("samples", rt.nr, 6);
	TEST_ASSERT_VAL("first", gen_merged(&rt, 0, 10, PID + 1, UIP, 3));
	TEST_ASSERT_VAL("sampled again", gen_merged(&rt, 1, 20, PID + 1, UIP, 3));
	TEST_ASSERT_VAL("once more, whole", gen_merged(&rt, 2, 30, PID + 1, UIP, 4));
	TEST_ASSERT_VAL("shorter", gen_merged(&rt, 3, 40, PID + 1, UIP, 4));
	TEST_ASSERT_VAL("none at first", gen_merged(&rt, 4, 50, PID + 1, UIP, 3));
	TEST_ASSERT_VAL("then one", gen_merged(&rt, 5, 52, PID + 1, UIP, 3));
	TEST_ASSERT_EQUAL("missing", (int)rt.stats.nr_deferred_missing, 0);
	return 0;
}

static int test__repeated(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	return gen_all_inputs(&gen, 1, repeated);
}

/*
 * The kernel has limited the kernel frames and the user frames, each by itself. So all
 * user frames are shown, unless the record is for an event with a larger limit, too.
 */
static int depth(void)
{
	u64 max = gen.max_stack ?: 150;

	gen_sample(&gen, PID + 1, 10, 5);
	gen_record(&gen, PID + 1, 20, 5, UIP, 150, 0, 0);
	gen_round(&gen);
	TEST_ASSERT_EQUAL("read", gen_read(&gen, &rt, false), 0);
	TEST_ASSERT_EQUAL("samples", rt.nr, 1);
	TEST_ASSERT_EQUAL("frames", (int)rt.seen[0].nr, (int)(4 + max));
	TEST_ASSERT_VAL("outermost one", rt.seen[0].last == UIP + 16 * (max - 1));
	TEST_ASSERT_EQUAL("not missing", (int)rt.stats.nr_deferred_missing, 0);
	return 0;
}

static int test__depth(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	static const u16 maxes[] = { 0, 150, 3 };
	size_t i;
	int j, err;

	for (i = 0; i < ARRAY_SIZE(maxes); i++) {
		for (j = 0; j < 4; j++) {
			memset(&gen, 0, sizeof(gen));
			gen.pipe = j & 1;
			gen.swap = j & 2;
			gen.max_stack = maxes[i];
			gen.machines = 1;
			gen_start(&gen);
			err = depth();
			if (err)
				return err;
		}
	}
	return TEST_OK;
}

static struct test_case tests__callchain_defer[] = {
	TEST_CASE("Deferred callchains: parsing", parse),
	TEST_CASE("Deferred callchains: merging", merge),
	TEST_CASE("Deferred callchains: as recorded", no_merge),
	TEST_CASE("Deferred callchains: samples after the walk", late),
	TEST_CASE("Deferred callchains: loss", loss),
	TEST_CASE("Deferred callchains: malformed", malformed),
	TEST_CASE("Deferred callchains: words of any value", any_words),
	TEST_CASE("Deferred callchains: several records of one entry", repeated),
	TEST_CASE("Deferred callchains: depth", depth),
	{	.name = NULL, }
};

struct test_suite suite__callchain_defer = {
	.desc = "Deferred callchains: reading",
	.test_cases = tests__callchain_defer,
};

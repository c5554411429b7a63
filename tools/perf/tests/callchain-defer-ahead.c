// SPDX-License-Identifier: GPL-2.0
/*
 * Deferred user callchains whose records are far behind their samples. A file is read
 * ahead for them, and samples from a pipe wait.
 */
#include <string.h>
#include <linux/kernel.h>
#include <linux/perf_event.h>
#include "debug.h"
#include "defer-gen.h"
#include "event.h"
#include "tests.h"
#include "util.h"

static struct gen gen;
static struct gen_reader rt;

/*
 * The record of the first sample comes at the end of the file. The sample is delivered in
 * time order all the same, and before the reader has read the whole file.
 */
static int ahead(void)
{
	int i;

	gen_comm(&gen, PID + 1, 1, "one");
	gen_sample(&gen, PID + 1, 10, 5);
	gen_round(&gen);
	gen_round(&gen);
	for (i = 0; i < 20; i++) {
		gen_sample(&gen, PID + 2, 100 + 10 * i, 50 + i);
		gen_record(&gen, PID + 2, 101 + 10 * i, 50 + i, UIP + 0x1000 * i, 3, 0, 0);
		gen_round(&gen);
	}
	gen_record(&gen, PID + 1, 400, 5, UIP, 4, 0, 0);
	gen_comm(&gen, PID + 1, 401, "one.new");
	gen_sample(&gen, PID + 1, 402, 6);		/* no record */
	gen_round(&gen);

	TEST_ASSERT_EQUAL("read", gen_read(&gen, &rt, false), 0);
	TEST_ASSERT_EQUAL("samples", rt.nr, 22);
	TEST_ASSERT_VAL("first", gen_merged(&rt, 0, 10, PID + 1, UIP, 4));
	TEST_ASSERT_VAL("its comm", !strcmp(rt.seen[0].comm, "one"));
	for (i = 0; i < 20; i++)
		TEST_ASSERT_VAL("others", gen_merged(&rt, i + 1, 100 + 10 * i, PID + 2,
						     UIP + 0x1000 * i, 3));
	TEST_ASSERT_VAL("last", gen_merged(&rt, 21, 402, PID + 1, 0, 0));
	TEST_ASSERT_EQUAL("missing", (int)rt.stats.nr_deferred_missing, 1);
	if (!gen.pipe)
		TEST_ASSERT_VAL("all of it was read first", rt.read_first < 10);
	return 0;
}

static int test__ahead(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	return gen_all_inputs(&gen, 1, ahead);
}

/*
 * Files are merged all the same, with the record that has the stack. In pipes samples stay
 * as recorded, and none counts as missing.
 */
static int unordered(void)
{
	gen.unordered = true;
	gen_sample(&gen, PID + 1, 10, 5);
	gen_record(&gen, PID + 1, 15, 5, UIP, 0, 0, 0);
	gen_record(&gen, PID + 1, 20, 5, UIP, 3, 0, 0);
	gen_round(&gen);
	TEST_ASSERT_EQUAL("read", gen_read(&gen, &rt, false), 0);
	TEST_ASSERT_EQUAL("samples", rt.nr, 1);
	TEST_ASSERT_EQUAL("missing", (int)rt.stats.nr_deferred_missing, 0);
	if (!gen.pipe) {
		TEST_ASSERT_VAL("merged", gen_merged(&rt, 0, 10, PID + 1, UIP, 3));
		return 0;
	}
	TEST_ASSERT_EQUAL("deferred", (int)rt.stats.nr_deferred_samples, 0);
	TEST_ASSERT_EQUAL("length", (int)rt.seen[0].nr, 5);
	TEST_ASSERT_VAL("as recorded", rt.seen[0].ips[3] == PERF_CONTEXT_USER_DEFERRED &&
			rt.seen[0].ips[4] == 5);
	return 0;
}

static int test__unordered(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	return gen_all_inputs(&gen, 1, unordered);
}

/*
 * One task sleeps in the kernel for many rounds, while another task runs and changes
 * its comm. The first task changes its comm after it woke up.
 */
static int order(void)
{
	int i;

	gen_comm(&gen, PID + 1, 1, "one");
	gen_comm(&gen, PID + 2, 2, "two");
	gen_sample(&gen, PID + 1, 10, 5);
	for (i = 0; i < 10; i++) {
		gen_sample(&gen, PID + 2, 100 + 10 * i, 50 + i);
		gen_record(&gen, PID + 2, 101 + 10 * i, 50 + i, UIP + 0x1000 * i, 3, 0, 0);
		if (i == 5)
			gen_comm(&gen, PID + 2, 102 + 10 * i, "two.new");
		gen_round(&gen);
	}
	gen_record(&gen, PID + 1, 300, 5, UIP, 2, 0, 0);
	gen_comm(&gen, PID + 1, 301, "one.new");
	gen_round(&gen);

	TEST_ASSERT_EQUAL("read", gen_read(&gen, &rt, false), 0);
	TEST_ASSERT_EQUAL("samples", rt.nr, 11);
	TEST_ASSERT_VAL("sleeper", gen_merged(&rt, 0, 10, PID + 1, UIP, 2));
	TEST_ASSERT_VAL("sleeper's comm", !strcmp(rt.seen[0].comm, "one"));
	for (i = 0; i < 10; i++) {
		TEST_ASSERT_VAL("one after the other",
				gen_merged(&rt, i + 1, 100 + 10 * i, PID + 2, UIP + 0x1000 * i, 3));
		TEST_ASSERT_VAL("comm of the time",
				!strcmp(rt.seen[i + 1].comm, i > 5 ? "two.new" : "two"));
	}
	TEST_ASSERT_EQUAL("missing", (int)rt.stats.nr_deferred_missing, 0);
	return 0;
}

static int test__order(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	return gen_all_inputs(&gen, 1, order);
}

/*
 * All tasks outside of the profiler's PID namespace have the tid 0, or -1 when they have
 * exited. So events of different tasks are mixed, and each sample still gets its record.
 */
static int outside(void)
{
	const u32 tids[] = { 0, -1 };
	u64 time = 10;
	size_t i;
	int j;

	for (i = 0; i < ARRAY_SIZE(tids); i++) {
		for (j = 0; j < 10; j++, time += 10)
			gen_sample(&gen, tids[i], time, 5 + 20 * i + j);
		gen_round(&gen);
	}
	gen_round(&gen);
	for (i = 0; i < ARRAY_SIZE(tids); i++) {
		for (j = 0; j < 10; j++, time += 10)
			gen_record(&gen, tids[i], time, 5 + 20 * i + j, UIP + 0x1000 * j, 3, 0, 0);
	}
	gen_round(&gen);

	TEST_ASSERT_EQUAL("read", gen_read(&gen, &rt, false), 0);
	TEST_ASSERT_EQUAL("samples", rt.nr, 20);
	TEST_ASSERT_EQUAL("missing", (int)rt.stats.nr_deferred_missing, 0);
	for (i = 0; i < 20; i++)
		TEST_ASSERT_VAL("its own", gen_merged(&rt, i, 10 + 10 * i, tids[i / 10],
						      UIP + 0x1000 * (i % 10), 3));
	return 0;
}

static int test__outside(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	return gen_all_inputs(&gen, 1, outside);
}

#define MACHINES	6

/*
 * Tasks of several machines have the same tid and cookie, and the last two even have the
 * same stack. The host's task sleeps, while the guests' tasks run on and exit.
 */
static int machines(void)
{
	int i;

	for (i = 0; i < MACHINES; i++) {
		gen.machine = i;
		gen_sample(&gen, PID + 1, 10 + i, 5);
	}
	for (i = 1; i < MACHINES; i++) {
		gen.machine = i;
		gen_record(&gen, PID + 1, 20 + i, 5, UIP + 0x1000 * min(i, MACHINES - 2), 3,
			   0, 0);
		gen_sample(&gen, PID + 1, 30 + i, 6);
		gen_record(&gen, PID + 1, 40 + i, 6, UIP + 0x10000 * i, 3, 0, 0);
		gen_exit(&gen, PID + 1, 50 + i);
	}
	gen_round(&gen);
	for (i = 1; i < MACHINES; i++) {
		gen.machine = i;
		gen_sample(&gen, PID + 2, 60 + i, 7);
		gen_record(&gen, PID + 2, 70 + i, 7, UIP, 3, 0, 0);
	}
	gen_round(&gen);
	gen_round(&gen);
	gen.machine = 0;
	gen_record(&gen, PID + 1, 100, 5, UIP, 3, 0, 0);
	gen_round(&gen);

	TEST_ASSERT_EQUAL("read", gen_read(&gen, &rt, false), 0);
	TEST_ASSERT_EQUAL("missing", (int)rt.stats.nr_deferred_missing, 0);
	TEST_ASSERT_EQUAL("samples", rt.nr, 3 * MACHINES - 2);
	for (i = 0; i < MACHINES; i++)
		TEST_ASSERT_VAL("its own",
				gen_merged(&rt, i, 10 + i, PID + 1,
					   UIP + 0x1000 * min(i, MACHINES - 2), 3));
	for (i = 1; i < MACHINES; i++)
		TEST_ASSERT_VAL("the next one",
				gen_merged(&rt, MACHINES + i - 1, 30 + i, PID + 1,
					   UIP + 0x10000 * i, 3));
	return 0;
}

static int test__machines(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	bool guest = perf_guest;
	int err = gen_all_inputs(&gen, MACHINES, machines);

	/* PERF_RECORD_ID_INDEX has set it */
	perf_guest = guest;
	return err;
}

static struct test_case tests__callchain_defer_ahead[] = {
	TEST_CASE("Deferred callchains: without the ordered queue", unordered),
	TEST_CASE("Deferred callchains: order", order),
	TEST_CASE("Deferred callchains: looking ahead", ahead),
	TEST_CASE("Deferred callchains: tasks outside of the PID namespace", outside),
	TEST_CASE("Deferred callchains: several machines", machines),
	{	.name = NULL, }
};

struct test_suite suite__callchain_defer_ahead = {
	.desc = "Deferred callchains: reading ahead",
	.test_cases = tests__callchain_defer_ahead,
};

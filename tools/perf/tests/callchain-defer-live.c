// SPDX-License-Identifier: GPL-2.0
/*
 * Deferred user callchains of a live session: perf top and perf trace merge without a
 * struct perf_session, like this.
 */
#include <linux/kernel.h>
#include <linux/perf_event.h>
#include <linux/string.h>
#include "callchain.h"
#include "callchain-defer.h"
#include "debug.h"
#include "defer-gen.h"
#include "event.h"
#include "evlist.h"
#include "evsel.h"
#include "ordered-events.h"
#include "sample.h"
#include "tests.h"

static struct gen gen;

struct live {
	struct evlist		*evlist;
	struct callchain_defer	*cd;
	int			nr;
	int			merged;
};

static int live_deliver(struct ordered_events *oe, struct ordered_event *oevent)
{
	struct live *live = oe->data;
	struct perf_sample sample;
	int err = evlist__parse_sample(live->evlist, oevent->event, &sample) ?:
		  callchain_defer__deliver(live->cd, oe, oevent->event, &sample);

	if (!err && oevent->event->header.type == PERF_RECORD_SAMPLE) {
		live->nr++;
		live->merged += sample.callchain->ips[3] == PERF_CONTEXT_USER;
	}
	return err;
}

static int live_queue(struct live *live, struct ordered_events *oe, u64 time)
{
	union perf_event *event = (void *)gen.buf;

	gen.len = 0;
	if (event->header.type == PERF_RECORD_CALLCHAIN_DEFERRED)
		return callchain_defer__read(live->cd, oe, event, /*copy=*/true, 0, NULL);
	return ordered_events__queue(oe, event, time, 0, NULL);
}

static int live_sample(struct live *live, struct ordered_events *oe, u32 tid, u64 time,
		       u64 cookie)
{
	gen_sample(&gen, tid, time, cookie);
	return live_queue(live, oe, time);
}

static int live_record(struct live *live, struct ordered_events *oe, u32 tid, u64 time,
		       u64 cookie)
{
	gen_record(&gen, tid, time, cookie, UIP, 3, 0, 0);
	return live_queue(live, oe, time);
}

/*
 * A sample waits for its record, and all events behind it wait, too. If the record does
 * not come, the sample waits for one second of the events' time at most, and only until
 * the queue is full.
 */
static int read_live(struct live *live, struct ordered_events *oe)
{
	const u64 sec = 1000000000ULL;

	TEST_ASSERT_EQUAL("sample", live_sample(live, oe, PID, 10, 5), 0);
	TEST_ASSERT_EQUAL("other", live_sample(live, oe, PID + 1, 20, 5), 0);
	TEST_ASSERT_EQUAL("its record", live_record(live, oe, PID + 1, 21, 5), 0);
	TEST_ASSERT_EQUAL("flush", ordered_events__flush_time(oe, 30), 0);
	TEST_ASSERT_EQUAL("held", live->nr, 0);
	TEST_ASSERT_EQUAL("record", live_record(live, oe, PID, 22, 5), 0);
	TEST_ASSERT_EQUAL("flush", ordered_events__flush_time(oe, 30), 0);
	TEST_ASSERT_EQUAL("delivered", live->nr, 2);
	TEST_ASSERT_EQUAL("merged", live->merged, 2);

	TEST_ASSERT_EQUAL("lost", live_sample(live, oe, PID, 100, 6), 0);
	TEST_ASSERT_EQUAL("in time", live_sample(live, oe, PID + 1, 100 + sec, 6), 0);
	TEST_ASSERT_EQUAL("its record", live_record(live, oe, PID + 1, 99 + sec, 6), 0);
	TEST_ASSERT_EQUAL("flush", ordered_events__flush_time(oe, 2 * sec), 0);
	TEST_ASSERT_EQUAL("held", live->nr, 2);
	TEST_ASSERT_EQUAL("late", live_sample(live, oe, PID + 1, 101 + sec, 6), 0);
	TEST_ASSERT_EQUAL("flush", ordered_events__flush_time(oe, 2 * sec), 0);
	TEST_ASSERT_EQUAL("delivered", live->nr, 5);
	TEST_ASSERT_EQUAL("merged", live->merged, 4);

	TEST_ASSERT_EQUAL("lost", live_sample(live, oe, PID, 3 * sec, 7), 0);
	TEST_ASSERT_EQUAL("flush", ordered_events__flush_time(oe, 4 * sec), 0);
	TEST_ASSERT_EQUAL("held", live->nr, 5);
	oe->cur_alloc_size += 513ULL << 20;
	TEST_ASSERT_EQUAL("flush", ordered_events__flush_time(oe, 4 * sec), 0);
	oe->cur_alloc_size -= 513ULL << 20;
	TEST_ASSERT_EQUAL("delivered", live->nr, 6);
	TEST_ASSERT_EQUAL("missing", (int)live->evlist->stats.nr_deferred_missing, 2);
	return TEST_OK;
}

/*
 * If a task's next record was delivered, or the task has exited, the stack is not needed
 * any more, and must not take memory.
 */
static int read_live_stacks(struct live *live, struct ordered_events *oe)
{
	const u64 sec = 1000000000ULL;

	live->nr = 0;
	live->merged = 0;
	TEST_ASSERT_EQUAL("sample", live_sample(live, oe, PID, 5 * sec, 8), 0);
	TEST_ASSERT_EQUAL("record", live_record(live, oe, PID, 5 * sec + 1, 8), 0);
	TEST_ASSERT_EQUAL("sample", live_sample(live, oe, PID, 5 * sec + 2, 9), 0);
	TEST_ASSERT_EQUAL("record", live_record(live, oe, PID, 5 * sec + 3, 9), 0);
	/* The second record has come, but is not due yet */
	TEST_ASSERT_EQUAL("flush", ordered_events__flush_time(oe, 5 * sec + 2), 0);
	TEST_ASSERT_EQUAL("other", live_record(live, oe, PID, 6 * sec, 10), 0);
	TEST_ASSERT_EQUAL("not due", live_sample(live, oe, PID, 5 * sec + 3, 8), 0);
	TEST_ASSERT_EQUAL("flush", ordered_events__flush_time(oe, 5 * sec + 3), 0);
	TEST_ASSERT_EQUAL("merged", live->merged, 3);
	/* Now it is */
	TEST_ASSERT_EQUAL("time", live_sample(live, oe, PID, 5 * sec + 4, 9), 0);
	TEST_ASSERT_EQUAL("flush", ordered_events__flush_time(oe, 5 * sec + 4), 0);
	TEST_ASSERT_EQUAL("other", live_record(live, oe, PID, 7 * sec, 11), 0);
	TEST_ASSERT_EQUAL("latest", live_sample(live, oe, PID, 5 * sec + 5, 9), 0);
	TEST_ASSERT_EQUAL("old", live_sample(live, oe, PID, 5 * sec + 6, 8), 0);
	TEST_ASSERT_EQUAL("flush", ordered_events__flush(oe, OE_FLUSH__FINAL), 0);
	TEST_ASSERT_EQUAL("delivered", live->nr, 6);
	TEST_ASSERT_EQUAL("merged", live->merged, 5);

	gen_exit(&gen, PID, 8 * sec);
	TEST_ASSERT_EQUAL("exit", live_queue(live, oe, 8 * sec), 0);
	TEST_ASSERT_EQUAL("other task", live_sample(live, oe, PID, 9 * sec, 11), 0);
	TEST_ASSERT_EQUAL("flush", ordered_events__flush(oe, OE_FLUSH__FINAL), 0);
	TEST_ASSERT_EQUAL("delivered", live->nr, 7);
	TEST_ASSERT_EQUAL("merged", live->merged, 5);
	return TEST_OK;
}

static int nothing_ahead(void *arg __maybe_unused)
{
	return 0;
}

/*
 * A file: without the ordered queue the buffers are read one after the other. A task that was
 * sampled on two CPUs in one kernel entry has exited in the first buffer, and the second
 * one has a sample that is earlier.
 */
static int read_unordered(struct live *live)
{
	union perf_event *event = (void *)gen.buf;
	struct ordered_events oe = { .data = live };
	struct ordered_event oevent = { .event = event };
	u64 cookie;

	callchain_defer__delete(live->cd);
	live->cd = callchain_defer__new(live->evlist, &live->evlist->stats, nothing_ahead, NULL);
	TEST_ASSERT_VAL("defer", live->cd);
	live->merged = 0;
	for (cookie = 20; cookie < 24; cookie++) {
		gen_record(&gen, PID, cookie, cookie, UIP, 3, 0, 0);
		gen.len = 0;
		TEST_ASSERT_EQUAL("record",
				  callchain_defer__read(live->cd, NULL, event, /*copy=*/true,
							0, NULL), 0);
	}
	gen_exit(&gen, PID, cookie);
	gen.len = 0;
	TEST_ASSERT_EQUAL("exit", live_deliver(&oe, &oevent), 0);
	gen_sample(&gen, PID, 19, 20);
	gen.len = 0;
	TEST_ASSERT_EQUAL("sample", live_deliver(&oe, &oevent), 0);
	TEST_ASSERT_EQUAL("merged", live->merged, 1);
	return TEST_OK;
}

static int test__callchain_defer_live(struct test_suite *test __maybe_unused,
				      int subtest __maybe_unused)
{
	struct perf_event_attr attr = {
		.type		= PERF_TYPE_SOFTWARE,
		.config		= PERF_COUNT_SW_CPU_CLOCK,
		.sample_type	= SAMPLE_TYPE,
		.sample_id_all	= 1,
	};
	struct live live = { .evlist = evlist__new() };
	struct ordered_events oe = {};
	struct evsel *evsel;
	int err;

	TEST_ASSERT_VAL("evlist", live.evlist);
	evsel = evsel__new(&attr);
	TEST_ASSERT_VAL("evsel", evsel);
	evlist__add(live.evlist, evsel);
	live.cd = callchain_defer__new(live.evlist, &live.evlist->stats, NULL, NULL);
	TEST_ASSERT_VAL("defer", live.cd);
	ordered_events__init(&oe, live_deliver, &live);
	ordered_events__set_copy_on_queue(&oe, true);
	memset(&gen, 0, sizeof(gen));

	err = read_live(&live, &oe) ?: read_live_stacks(&live, &oe) ?: read_unordered(&live);

	ordered_events__free(&oe);
	callchain_defer__delete(live.cd);
	evlist__delete(live.evlist);
	return err;
}

DEFINE_SUITE("Deferred callchains: live", callchain_defer_live);

// SPDX-License-Identifier: GPL-2.0
/*
 * Samples of a group whose leader is an AUX area event. The second event samples. The
 * attributes of the other members have the fields of both events, which are more than
 * the sample has. Each member still gets its value, unless its callback would follow a
 * pointer that the sample does not have.
 */
#include <linux/err.h>
#include <linux/kernel.h>
#include <linux/perf_event.h>
#include <perf/evlist.h>
#include <perf/evsel.h>
#include "debug.h"
#include "event.h"
#include "evlist.h"
#include "evsel.h"
#include "sample.h"
#include "session.h"
#include "tests.h"
#include "tool.h"

#define SAMPLE_TYPE (PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_TID | \
		     PERF_SAMPLE_TIME)

enum { LEADER, SAMPLER, MEMBER, NR_EVENTS };

struct group_tool {
	struct perf_tool	tool;
	u64			period[NR_EVENTS];
};

static int count_sample(const struct perf_tool *tool, union perf_event *event __maybe_unused,
			struct perf_sample *sample, struct evsel *evsel,
			struct machine *machine __maybe_unused)
{
	struct group_tool *gt = container_of(tool, struct group_tool, tool);

	gt->period[evsel->core.idx] += sample->period;
	return 0;
}

static int add_event(struct evlist *evlist, u64 sample_type)
{
	struct perf_event_attr attr = {
		.type		= PERF_TYPE_SOFTWARE,
		.config		= PERF_COUNT_SW_CPU_CLOCK,
		.sample_type	= sample_type,
		.read_format	= PERF_FORMAT_GROUP | PERF_FORMAT_ID,
	};
	int idx = evlist->core.nr_entries;
	struct evsel *evsel = evsel__new_idx(&attr, idx);

	if (!evsel)
		return -ENOMEM;
	evlist__add(evlist, evsel);
	if (perf_evsel__alloc_id(&evsel->core, 1, 1))
		return -ENOMEM;
	perf_evlist__id_add(&evlist->core, &evsel->core, 0, 0, idx + 1);
	return 0;
}

/* Read a sample of a group whose leader has the additional fields @of_leader */
static int read_group(u64 of_leader, struct group_tool *gt, u32 *nr_unknown)
{
	const u64 words[] = {
		SAMPLER + 1, 0x1000, 1ULL << 32 | 1, 5,
		2, 70, SAMPLER + 1, 80, MEMBER + 1,
	};
	struct {
		struct perf_event_header header;
		u64 array[ARRAY_SIZE(words)];
	} event = {
		.header = {
			.type = PERF_RECORD_SAMPLE,
			.misc = PERF_RECORD_MISC_USER,
			.size = sizeof(event),
		},
	};
	struct evlist *evlist = evlist__new();
	struct perf_session *session;
	struct perf_sample sample;
	int err;

	if (!evlist)
		return -ENOMEM;

	memset(gt, 0, sizeof(*gt));
	perf_tool__init(&gt->tool, /*ordered_events=*/false);
	gt->tool.sample = count_sample;
	session = perf_session__new(NULL, &gt->tool);
	if (IS_ERR(session)) {
		err = PTR_ERR(session);
		goto out;
	}
	session->evlist = evlist;

	memcpy(event.array, words, sizeof(words));
	err = add_event(evlist, SAMPLE_TYPE | of_leader) ?:
	      add_event(evlist, SAMPLE_TYPE | PERF_SAMPLE_READ) ?:
	      add_event(evlist, SAMPLE_TYPE | PERF_SAMPLE_READ | of_leader) ?:
	      evlist__parse_sample(evlist, (union perf_event *)&event, &sample) ?:
	      perf_session__deliver_synth_event(session, (union perf_event *)&event, &sample);
	*nr_unknown = evlist->stats.nr_unknown_id;
	perf_session__delete(session);
out:
	evlist__delete(evlist);
	return err;
}

static int test__sample_group(struct test_suite *test __maybe_unused,
			      int subtest __maybe_unused)
{
	struct group_tool gt;
	u32 nr_unknown;

	TEST_ASSERT_EQUAL("values", read_group(PERF_SAMPLE_CPU | PERF_SAMPLE_ADDR, &gt,
					       &nr_unknown), 0);
	TEST_ASSERT_EQUAL("sampler", (int)gt.period[SAMPLER], 70);
	TEST_ASSERT_EQUAL("member", (int)gt.period[MEMBER], 80);
	TEST_ASSERT_EQUAL("known", (int)nr_unknown, 0);

	TEST_ASSERT_EQUAL("pointers", read_group(PERF_SAMPLE_CALLCHAIN, &gt, &nr_unknown), 0);
	TEST_ASSERT_EQUAL("sampler", (int)gt.period[SAMPLER], 70);
	TEST_ASSERT_EQUAL("member without callchain", (int)gt.period[MEMBER], 0);
	TEST_ASSERT_EQUAL("unknown", (int)nr_unknown, 1);
	return TEST_OK;
}

DEFINE_SUITE("Samples of groups", sample_group);

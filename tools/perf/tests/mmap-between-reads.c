// SPDX-License-Identifier: GPL-2.0
/*
 * The kernel can write a record after the last read of a turn, but before
 * perf_mmap__read_done(). The next turn must read this record.
 */
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <linux/perf_event.h>
#include <perf/cpumap.h>
#include <perf/evlist.h>
#include <perf/evsel.h>
#include <perf/mmap.h>
#include "debug.h"
#include "event.h"
#include "evlist.h"
#include "evsel.h"
#include "tests.h"
#include "thread_map.h"
#include "util/mmap.h"

/* Two names that no other test gives to this thread, of 16 bytes at most. */
#define EARLY "read early"
#define LATE "read late"

/* Begin a turn and read all records. Return whether one of them has the name @comm. */
static bool read_turn(struct perf_mmap *map, const char *comm)
{
	union perf_event *event;
	bool found = false;

	if (perf_mmap__read_init(map) < 0)
		return false;
	while ((event = perf_mmap__read_event(map))) {
		found |= event->header.type == PERF_RECORD_COMM &&
			 !strcmp(event->comm.comm, comm);
		perf_mmap__consume(map);
	}
	return found;
}

static int between_reads(struct evlist *evlist)
{
	struct perf_mmap *map;

	TEST_ASSERT_EQUAL("open", evlist__open(evlist), 0);
	TEST_ASSERT_EQUAL("mmap", evlist__mmap(evlist, 4), 0);
	TEST_ASSERT_EQUAL("one buffer", evlist->core.nr_mmaps, 1);
	map = &evlist->mmap[0].core;

	prctl(PR_SET_NAME, EARLY, 0, 0, 0);
	TEST_ASSERT_VAL("first turn", read_turn(map, EARLY));
	prctl(PR_SET_NAME, LATE, 0, 0, 0);
	perf_mmap__read_done(map);

	TEST_ASSERT_VAL("lost between two turns", read_turn(map, LATE));
	perf_mmap__read_done(map);
	return TEST_OK;
}

static int test__mmap_between_reads(struct test_suite *test __maybe_unused,
				    int subtest __maybe_unused)
{
	struct perf_event_attr attr = {
		.type		= PERF_TYPE_SOFTWARE,
		.config		= PERF_COUNT_SW_DUMMY,
		.size		= sizeof(attr),
		.comm		= 1,
		.exclude_kernel	= 1,
	};
	struct perf_thread_map *threads = thread_map__new_by_tid(getpid());
	struct perf_cpu_map *cpus = perf_cpu_map__new_any_cpu();
	struct evlist *evlist = evlist__new();
	struct evsel *evsel = evsel__new(&attr);
	char name[16];
	int err = TEST_FAIL;

	if (!threads || !cpus || !evlist || !evsel)
		goto out;

	evlist__add(evlist, evsel);
	evsel = NULL;
	perf_evlist__set_maps(&evlist->core, cpus, threads);
	prctl(PR_GET_NAME, name, 0, 0, 0);
	err = between_reads(evlist);
	prctl(PR_SET_NAME, name, 0, 0, 0);
out:
	if (evsel)
		evsel__delete(evsel);
	evlist__delete(evlist);
	perf_cpu_map__put(cpus);
	perf_thread_map__put(threads);
	return err;
}

DEFINE_SUITE("Records between two reads", mmap_between_reads);

// SPDX-License-Identifier: GPL-2.0
/*
 * Deferred user callchains: parse the records, merge them into the samples in time
 * order, and survive malformed input, with files and pipes of both byte orders.
 * Each test writes a small perf.data and reads it through a session.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <linux/err.h>
#include <linux/kernel.h>
#include <linux/perf_event.h>
#include <linux/string.h>
#include <linux/zalloc.h>
#include "callchain.h"
#include "callchain-defer.h"
#include "data.h"
#include "debug.h"
#include "event.h"
#include "evlist.h"
#include "evsel.h"
#include "header.h"
#include "machine.h"
#include "ordered-events.h"
#include "sample.h"
#include "session.h"
#include "tests.h"
#include "thread.h"
#include "tool.h"
#include "util.h"

#define PID	1000
#define KIP	0xffffffff81000000ULL
#define UIP	0x400000ULL
#define MAX_IPS	16
#define MAX_SEEN 64

#define SAMPLE_TYPE (PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | \
		     PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_ID)

/* The perf.data that a test writes */
struct gen {
	char	buf[64 * 1024];
	size_t	len;
	bool	swap;
	bool	pipe;
	/* read it without the ordered queue */
	bool	unordered;
	u16	max_stack;
	/* the number of machines, and the machine of the next event; 0 is the host */
	int	machines;
	int	machine;
};

/* A sample as it was delivered to the tool */
struct seen {
	u64	time;
	u32	tid;
	char	comm[16];
	u64	nr;
	u64	ips[MAX_IPS];
	u64	last;
};

struct reader_tool {
	struct perf_tool	tool;
	struct perf_session	*session;
	const struct gen	*gen;
	struct seen		seen[MAX_SEEN];
	int			nr;
	/* the number of events that were read before the first sample was delivered */
	int			read_first;
	struct events_stats	stats;
};

static void put16(struct gen *gen, u16 val)
{
	val = gen->swap ? bswap_16(val) : val;
	memcpy(gen->buf + gen->len, &val, sizeof(val));
	gen->len += sizeof(val);
}

static void put32(struct gen *gen, u32 val)
{
	val = gen->swap ? bswap_32(val) : val;
	memcpy(gen->buf + gen->len, &val, sizeof(val));
	gen->len += sizeof(val);
}

static void put64(struct gen *gen, u64 val)
{
	val = gen->swap ? bswap_64(val) : val;
	memcpy(gen->buf + gen->len, &val, sizeof(val));
	gen->len += sizeof(val);
}

static size_t put_header(struct gen *gen, u32 type, u16 misc)
{
	size_t at = gen->len;

	put32(gen, type);
	put16(gen, misc);
	put16(gen, 0);
	return at;
}

static void put_size(struct gen *gen, size_t at, u16 size)
{
	size_t end = gen->len;

	gen->len = at + offsetof(struct perf_event_header, size);
	put16(gen, size);
	gen->len = end;
}

static void put_sample_id(struct gen *gen, u32 tid, u64 time)
{
	put32(gen, PID);
	put32(gen, tid);
	put64(gen, time);
	put64(gen, gen->machine + 1);
}

static void put_comm(struct gen *gen, u32 tid, u64 time, const char *comm)
{
	size_t at = put_header(gen, PERF_RECORD_COMM, 0);

	put32(gen, PID);
	put32(gen, tid);
	memset(gen->buf + gen->len, 0, 16);
	memcpy(gen->buf + gen->len, comm, strlen(comm));
	gen->len += strlen(comm) < 8 ? 8 : 16;
	put_sample_id(gen, tid, time);
	put_size(gen, at, gen->len - at);
}

static void put_exit(struct gen *gen, u32 tid, u64 time)
{
	size_t at = put_header(gen, PERF_RECORD_EXIT, 0);

	put32(gen, PID);
	put32(gen, PID);
	put32(gen, tid);
	put32(gen, tid);
	put64(gen, time);
	put_sample_id(gen, tid, time);
	put_size(gen, at, gen->len - at);
}

static void put_chain_at(struct gen *gen, u16 misc, u64 ip, u32 tid, u64 time,
			 const u64 *ips, u64 nr)
{
	size_t at = put_header(gen, PERF_RECORD_SAMPLE, misc);
	u64 i;

	put64(gen, ip);
	put32(gen, PID);
	put32(gen, tid);
	put64(gen, time);
	put64(gen, gen->machine + 1);
	put64(gen, nr);
	for (i = 0; i < nr; i++)
		put64(gen, ips[i]);
	put_size(gen, at, gen->len - at);
}

static void put_chain(struct gen *gen, u32 tid, u64 time, const u64 *ips, u64 nr)
{
	put_chain_at(gen, PERF_RECORD_MISC_KERNEL, KIP, tid, time, ips, nr);
}

/* A sample that hit user space: all of the callchain is deferred */
static void put_user_sample(struct gen *gen, u32 tid, u64 time, u64 cookie)
{
	const u64 ips[] = { PERF_CONTEXT_USER_DEFERRED, cookie };

	put_chain_at(gen, PERF_RECORD_MISC_USER, UIP, tid, time, ips, ARRAY_SIZE(ips));
}

static void put_sample(struct gen *gen, u32 tid, u64 time, u64 cookie)
{
	const u64 ips[] = {
		PERF_CONTEXT_KERNEL, KIP, KIP + 16, PERF_CONTEXT_USER_DEFERRED, cookie,
	};

	put_chain(gen, tid, time, ips, ARRAY_SIZE(ips));
}

/*
 * A record with @nr addresses. @says is the number in the record, @size the size in its
 * header; 0 stands for the true one.
 */
static void put_record(struct gen *gen, u32 tid, u64 time, u64 cookie, u64 base,
		       u64 nr, u64 says, u16 size)
{
	size_t at = put_header(gen, PERF_RECORD_CALLCHAIN_DEFERRED, PERF_RECORD_MISC_USER);
	u64 i;

	put64(gen, cookie);
	put64(gen, says ?: nr);
	for (i = 0; i < nr; i++)
		put64(gen, base + 16 * i);
	put_sample_id(gen, tid, time);
	if (size)
		gen->len = at + size;
	put_size(gen, at, gen->len - at);
}

static void put_round(struct gen *gen)
{
	put_size(gen, put_header(gen, PERF_RECORD_FINISHED_ROUND, 0),
		 sizeof(struct perf_event_header));
}

static u8 reverse(u8 b)
{
	u8 r = 0;
	int i;

	for (i = 0; i < 8; i++)
		r |= ((b >> i) & 1) << (7 - i);
	return r;
}

static void put_attr(struct gen *gen)
{
	struct perf_event_attr attr = {
		.type		  = PERF_TYPE_SOFTWARE,
		.size		  = sizeof(attr),
		.config		  = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period	  = 1000,
		.sample_type	  = SAMPLE_TYPE,
		.sample_max_stack = gen->max_stack,
		.comm		  = 1,
		.task		  = 1,
		.sample_id_all	  = 1,
		.defer_callchain  = 1,
		.defer_output	  = 1,
	};
	unsigned char *bits = (void *)(&attr.read_format + 1);
	int i;

	if (gen->swap) {
		for (i = 0; i < 8; i++)
			bits[i] = reverse(bits[i]);
		attr.type = bswap_32(attr.type);
		attr.size = bswap_32(attr.size);
		attr.config = bswap_64(attr.config);
		attr.sample_period = bswap_64(attr.sample_period);
		attr.sample_type = bswap_64(attr.sample_type);
		attr.sample_max_stack = bswap_16(attr.sample_max_stack);
	}
	memcpy(gen->buf + gen->len, &attr, sizeof(attr));
	gen->len += sizeof(attr);
}

#define IDS_AT		(sizeof(struct perf_file_header))
#define ATTR_SIZE	(sizeof(struct perf_event_attr) + 2 * sizeof(u64))

static size_t attrs_at(const struct gen *gen)
{
	return IDS_AT + gen->machines * sizeof(u64);
}

static size_t data_at(const struct gen *gen)
{
	return attrs_at(gen) + gen->machines * ATTR_SIZE;
}

/* Tells the reader which event belongs to which machine */
static void put_id_index(struct gen *gen)
{
	size_t at = put_header(gen, PERF_RECORD_ID_INDEX, 0);
	int i;

	put64(gen, gen->machines);
	for (i = 0; i < gen->machines; i++) {
		put64(gen, i + 1);
		put64(gen, 0);
		put64(gen, -1ULL);
		put64(gen, -1ULL);
	}
	for (i = 0; i < gen->machines; i++) {
		put64(gen, i ? PID + i : 0);
		put64(gen, 0);
	}
	put_size(gen, at, gen->len - at);
}

static void gen_start(struct gen *gen)
{
	size_t at;
	int i;

	gen->len = 0;
	if (gen->pipe) {
		put64(gen, 0x32454c4946524550ULL);
		put64(gen, 16);
		for (i = 0; i < gen->machines; i++) {
			at = put_header(gen, PERF_RECORD_HEADER_ATTR, 0);
			put_attr(gen);
			put64(gen, i + 1);
			put_size(gen, at, gen->len - at);
		}
	} else {
		memset(gen->buf, 0, IDS_AT);
		gen->len = IDS_AT;
		for (i = 0; i < gen->machines; i++)
			put64(gen, i + 1);
		for (i = 0; i < gen->machines; i++) {
			put_attr(gen);
			put64(gen, IDS_AT + i * sizeof(u64));
			put64(gen, sizeof(u64));
		}
	}
	if (gen->machines > 1)
		put_id_index(gen);
}

static void gen_finish(struct gen *gen)
{
	size_t end = gen->len;

	if (gen->pipe)
		return;

	gen->len = 0;
	put64(gen, 0x32454c4946524550ULL);
	put64(gen, sizeof(struct perf_file_header));
	put64(gen, ATTR_SIZE);
	put64(gen, attrs_at(gen));
	put64(gen, gen->machines * ATTR_SIZE);
	put64(gen, data_at(gen));
	put64(gen, end - data_at(gen));
	gen->len = end;
}

static int read_sample(const struct perf_tool *tool, union perf_event *event __maybe_unused,
		       struct perf_sample *sample, struct evsel *evsel __maybe_unused,
		       struct machine *machine)
{
	struct reader_tool *rt = container_of(tool, struct reader_tool, tool);
	struct thread *thread = machine__findnew_thread(machine, sample->pid, sample->tid);
	struct seen *seen = &rt->seen[rt->nr];

	if (!thread || rt->nr == MAX_SEEN)
		return -ENOMEM;

	seen->time = sample->time;
	seen->tid = sample->tid;
	seen->nr = sample->callchain->nr;
	scnprintf(seen->comm, sizeof(seen->comm), "%s", thread__comm_str(thread) ?: "");
	memcpy(seen->ips, sample->callchain->ips,
	       min_t(u64, seen->nr, MAX_IPS) * sizeof(u64));
	if (seen->nr)
		seen->last = sample->callchain->ips[seen->nr - 1];
	thread__put(thread);
	if (!rt->nr)
		rt->read_first = rt->session->evlist->stats.nr_events[0];
	rt->nr++;
	return 0;
}

/* Write the events to a file, and read them back */
static int read_back(struct gen *gen, struct reader_tool *rt, bool no_merge)
{
	char name[] = "/tmp/perf-test-defer-XXXXXX";
	struct perf_data data = {
		.path  = name,
		.mode  = PERF_DATA_MODE_READ,
		.force = true,
	};
	struct perf_session *session;
	int fd = mkstemp(name), err;

	if (fd < 0)
		return -errno;

	gen_finish(gen);
	err = write(fd, gen->buf, gen->len) == (ssize_t)gen->len ? 0 : -EIO;
	close(fd);
	if (err)
		goto out;

	memset(rt, 0, sizeof(*rt));
	perf_tool__init(&rt->tool, !gen->unordered);
	rt->tool.sample = read_sample;
	rt->tool.comm = perf_event__process_comm;
	rt->tool.attr = perf_event__process_attr;
	rt->tool.id_index = perf_event__process_id_index;
	rt->tool.finished_round = perf_event__process_finished_round;
	rt->tool.ordering_requires_timestamps = true;
	rt->tool.no_merge_callchains = no_merge;
	rt->tool.no_warn = true;

	session = perf_session__new(&data, &rt->tool);
	if (IS_ERR(session)) {
		err = PTR_ERR(session);
		goto out;
	}
	rt->session = session;
	rt->gen = gen;
	err = perf_session__process_events(session);
	rt->stats = session->evlist->stats;
	perf_session__delete(session);
out:
	unlink(name);
	return err;
}

static struct gen gen;
static struct reader_tool rt;

typedef int (*input_test)(void);

/* Run a test for all four kinds of input */
static int read_all_inputs_of(int machines, input_test test)
{
	int i, err;

	for (i = 0; i < 4; i++) {
		memset(&gen, 0, sizeof(gen));
		gen.pipe = i & 1;
		gen.swap = i & 2;
		gen.machines = machines;
		gen_start(&gen);
		err = test();
		if (err) {
			pr_debug("failed with a %s of %s order of bytes\n",
				 gen.pipe ? "pipe" : "file", gen.swap ? "the other" : "this");
			return err;
		}
	}
	return TEST_OK;
}

static int read_all_inputs(input_test test)
{
	return read_all_inputs_of(1, test);
}

static bool merged(int i, u64 time, u32 tid, u64 base, u64 nr)
{
	struct seen *seen = &rt.seen[i];
	u64 j;

	if (seen->time != time || seen->tid != tid || seen->nr != 4 + nr ||
	    seen->ips[0] != PERF_CONTEXT_KERNEL || seen->ips[1] != KIP ||
	    seen->ips[2] != KIP + 16 ||
	    seen->ips[3] != (nr ? PERF_CONTEXT_USER : PERF_CONTEXT_USER_DEFERRED)) {
		pr_debug("sample %d: time %llu tid %u nr %llu\n", i,
			 (unsigned long long)seen->time, seen->tid,
			 (unsigned long long)seen->nr);
		return false;
	}
	for (j = 0; j < nr; j++) {
		if (seen->ips[4 + j] != base + 16 * j)
			return false;
	}
	return true;
}

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
		put_record(&gen, PID + 1, 5, 77, UIP, 3, records[i].says, records[i].size);
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
	put_sample(&gen, PID + 1, 5, 78);
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
	put_sample(&gen, PID + 1, 10, 5);
	put_sample(&gen, PID + 2, 11, 5);
	put_sample(&gen, PID + 1, 12, 5);
	put_record(&gen, PID + 1, 20, 5, UIP, 3, 0, 0);
	put_record(&gen, PID + 2, 21, 5, UIP + 0x1000, 4, 0, 0);
	put_record(&gen, PID + 1, 31, 6, UIP + 0x2000, 2, 0, 0);
	put_sample(&gen, PID + 1, 30, 6);
	put_round(&gen);
	TEST_ASSERT_EQUAL("read", read_back(&gen, &rt, false), 0);
	TEST_ASSERT_EQUAL("samples", rt.nr, 4);
	TEST_ASSERT_VAL("first", merged(0, 10, PID + 1, UIP, 3));
	TEST_ASSERT_VAL("other task", merged(1, 11, PID + 2, UIP + 0x1000, 4));
	TEST_ASSERT_VAL("second", merged(2, 12, PID + 1, UIP, 3));
	TEST_ASSERT_VAL("record first", merged(3, 30, PID + 1, UIP + 0x2000, 2));
	TEST_ASSERT_EQUAL("deferred", (int)rt.stats.nr_deferred_samples, 4);
	TEST_ASSERT_EQUAL("missing", (int)rt.stats.nr_deferred_missing, 0);
	return 0;
}

static int test__merge(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	return read_all_inputs(merge);
}

static int no_merge(void)
{
	put_sample(&gen, PID + 1, 10, 5);
	put_record(&gen, PID + 1, 20, 5, UIP, 3, 0, 0);
	TEST_ASSERT_EQUAL("read", read_back(&gen, &rt, true), 0);
	TEST_ASSERT_EQUAL("samples", rt.nr, 1);
	TEST_ASSERT_EQUAL("length", (int)rt.seen[0].nr, 5);
	TEST_ASSERT_VAL("as recorded", rt.seen[0].ips[3] == PERF_CONTEXT_USER_DEFERRED &&
			rt.seen[0].ips[4] == 5);
	return 0;
}

static int test__no_merge(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	return read_all_inputs(no_merge);
}

/* Files are merged all the same. In pipes samples stay as recorded, and none counts as missing. */
static int unordered(void)
{
	gen.unordered = true;
	put_sample(&gen, PID + 1, 10, 5);
	put_record(&gen, PID + 1, 20, 5, UIP, 3, 0, 0);
	put_round(&gen);
	TEST_ASSERT_EQUAL("read", read_back(&gen, &rt, false), 0);
	TEST_ASSERT_EQUAL("samples", rt.nr, 1);
	TEST_ASSERT_EQUAL("missing", (int)rt.stats.nr_deferred_missing, 0);
	if (!gen.pipe) {
		TEST_ASSERT_VAL("merged", merged(0, 10, PID + 1, UIP, 3));
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
	return read_all_inputs(unordered);
}

/*
 * One task sleeps in the kernel for many rounds, while another task runs and changes
 * its comm. The first task changes its comm after it woke up.
 */
static int order(void)
{
	int i;

	put_comm(&gen, PID + 1, 1, "one");
	put_comm(&gen, PID + 2, 2, "two");
	put_sample(&gen, PID + 1, 10, 5);
	for (i = 0; i < 10; i++) {
		put_sample(&gen, PID + 2, 100 + 10 * i, 50 + i);
		put_record(&gen, PID + 2, 101 + 10 * i, 50 + i, UIP + 0x1000 * i, 3, 0, 0);
		if (i == 5)
			put_comm(&gen, PID + 2, 102 + 10 * i, "two.new");
		put_round(&gen);
	}
	put_record(&gen, PID + 1, 300, 5, UIP, 2, 0, 0);
	put_comm(&gen, PID + 1, 301, "one.new");
	put_round(&gen);

	TEST_ASSERT_EQUAL("read", read_back(&gen, &rt, false), 0);
	TEST_ASSERT_EQUAL("samples", rt.nr, 11);
	TEST_ASSERT_VAL("sleeper", merged(0, 10, PID + 1, UIP, 2));
	TEST_ASSERT_VAL("sleeper's comm", !strcmp(rt.seen[0].comm, "one"));
	for (i = 0; i < 10; i++) {
		TEST_ASSERT_VAL("one after the other",
				merged(i + 1, 100 + 10 * i, PID + 2, UIP + 0x1000 * i, 3));
		TEST_ASSERT_VAL("comm of the time",
				!strcmp(rt.seen[i + 1].comm, i > 5 ? "two.new" : "two"));
	}
	TEST_ASSERT_EQUAL("missing", (int)rt.stats.nr_deferred_missing, 0);
	return 0;
}

static int test__order(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	return read_all_inputs(order);
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

	put_sample(&gen, PID + 1, 10, 5);
	put_record(&gen, PID + 1, 20, 5, UIP, 3, 0, 0);
	put_sample(&gen, PID + 1, 21, 5);
	put_record(&gen, PID + 2, 30, 6, UIP + 0x1000, 4, 0, 0);
	put_record(&gen, PID + 3, 40, 7, UIP + 0x2000, 2, 0, 0);
	put_record(&gen, PID + 4, 41, 7, UIP + 0x2000, 2, 0, 0);
	put_round(&gen);
	for (i = 1; i < 5; i++) {
		put_sample(&gen, PID + 5, i * sec, 50 + i);
		put_record(&gen, PID + 5, i * sec + 1, 50 + i, UIP + 0x3000, 3, 0, 0);
		put_round(&gen);
	}
	put_exit(&gen, PID + 4, 5 * sec);
	put_sample(&gen, PID + 2, minute, 6);
	put_sample(&gen, PID + 1, minute + 1, 5);
	put_sample(&gen, PID + 1, minute + 2, 8);
	put_record(&gen, PID + 1, minute + 3, 8, UIP + 0x4000, 3, 0, 0);
	put_round(&gen);
	put_record(&gen, PID + 2, minute + 4, 6, UIP + 0x1000, 4, 0, 0);
	put_sample(&gen, PID + 1, minute + 5, 8);
	put_sample(&gen, PID + 2, minute + 6, 6);
	put_round(&gen);

	TEST_ASSERT_EQUAL("read", read_back(&gen, &rt, false), 0);
	TEST_ASSERT_EQUAL("samples", rt.nr, 11);
	TEST_ASSERT_VAL("before", merged(0, 10, PID + 1, UIP, 3));
	TEST_ASSERT_VAL("just after", merged(1, 21, PID + 1, UIP, 3));
	TEST_ASSERT_VAL("not sampled before", merged(6, minute, PID + 2, UIP + 0x1000, 4));
	TEST_ASSERT_VAL("stopped", merged(7, minute + 1, PID + 1, UIP, 3));
	TEST_ASSERT_VAL("next entry", merged(8, minute + 2, PID + 1, UIP + 0x4000, 3));
	TEST_ASSERT_VAL("after the next", merged(9, minute + 5, PID + 1, UIP + 0x4000, 3));
	TEST_ASSERT_VAL("twice", merged(10, minute + 6, PID + 2, UIP + 0x1000, 4));
	TEST_ASSERT_EQUAL("missing", (int)rt.stats.nr_deferred_missing, 0);
	return 0;
}

static int test__late(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	return read_all_inputs(late);
}

static int loss(void)
{
	put_sample(&gen, PID + 1, 10, 5);		/* no record */
	put_sample(&gen, PID + 1, 20, 6);
	put_record(&gen, PID + 1, 21, 6, UIP, 0, 0, 0);	/* empty */
	put_sample(&gen, PID + 1, 30, 7);
	put_record(&gen, PID + 2, 31, 7, UIP, 3, 0, 0);	/* of another task */
	put_record(&gen, PID + 1, 32, 8, UIP, 3, 0, 0);	/* without a sample */
	put_round(&gen);
	put_sample(&gen, PID + 1, 40, 9);
	put_record(&gen, PID + 1, 41, 9, UIP, 3, 0, 0);
	put_user_sample(&gen, PID + 1, 50, 10);		/* no record */
	put_user_sample(&gen, PID + 1, 60, 11);
	put_record(&gen, PID + 1, 61, 11, UIP, 3, 0, 0);
	put_round(&gen);
	TEST_ASSERT_EQUAL("read", read_back(&gen, &rt, false), 0);
	TEST_ASSERT_EQUAL("samples", rt.nr, 6);
	TEST_ASSERT_VAL("no record", merged(0, 10, PID + 1, 0, 0));
	TEST_ASSERT_VAL("empty record", merged(1, 20, PID + 1, 0, 0));
	TEST_ASSERT_VAL("wrong task", merged(2, 30, PID + 1, 0, 0));
	TEST_ASSERT_VAL("good one", merged(3, 40, PID + 1, UIP, 3));
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
	return read_all_inputs(loss);
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
			put_sample(&gen, tids[i], time, 5 + 20 * i + j);
		put_round(&gen);
	}
	put_round(&gen);
	for (i = 0; i < ARRAY_SIZE(tids); i++) {
		for (j = 0; j < 10; j++, time += 10)
			put_record(&gen, tids[i], time, 5 + 20 * i + j, UIP + 0x1000 * j, 3, 0, 0);
	}
	put_round(&gen);

	TEST_ASSERT_EQUAL("read", read_back(&gen, &rt, false), 0);
	TEST_ASSERT_EQUAL("samples", rt.nr, 20);
	TEST_ASSERT_EQUAL("missing", (int)rt.stats.nr_deferred_missing, 0);
	for (i = 0; i < 20; i++)
		TEST_ASSERT_VAL("its own", merged(i, 10 + 10 * i, tids[i / 10],
						  UIP + 0x1000 * (i % 10), 3));
	return 0;
}

static int test__outside(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	return read_all_inputs(outside);
}

/*
 * The record of the first sample comes at the end of the file. The sample is delivered in
 * time order all the same, and before the reader has read the whole file.
 */
static int ahead(void)
{
	int i;

	put_comm(&gen, PID + 1, 1, "one");
	put_sample(&gen, PID + 1, 10, 5);
	put_round(&gen);
	put_round(&gen);
	for (i = 0; i < 20; i++) {
		put_sample(&gen, PID + 2, 100 + 10 * i, 50 + i);
		put_record(&gen, PID + 2, 101 + 10 * i, 50 + i, UIP + 0x1000 * i, 3, 0, 0);
		put_round(&gen);
	}
	put_record(&gen, PID + 1, 400, 5, UIP, 4, 0, 0);
	put_comm(&gen, PID + 1, 401, "one.new");
	put_sample(&gen, PID + 1, 402, 6);		/* no record */
	put_round(&gen);

	TEST_ASSERT_EQUAL("read", read_back(&gen, &rt, false), 0);
	TEST_ASSERT_EQUAL("samples", rt.nr, 22);
	TEST_ASSERT_VAL("first", merged(0, 10, PID + 1, UIP, 4));
	TEST_ASSERT_VAL("its comm", !strcmp(rt.seen[0].comm, "one"));
	for (i = 0; i < 20; i++)
		TEST_ASSERT_VAL("others", merged(i + 1, 100 + 10 * i, PID + 2,
						 UIP + 0x1000 * i, 3));
	TEST_ASSERT_VAL("last", merged(21, 402, PID + 1, 0, 0));
	TEST_ASSERT_EQUAL("missing", (int)rt.stats.nr_deferred_missing, 1);
	if (!gen.pipe)
		TEST_ASSERT_VAL("all of it was read first", rt.read_first < 10);
	return 0;
}

static int test__ahead(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	return read_all_inputs(ahead);
}

/* perf top and perf trace merge without a session, like this */
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
	put_sample(&gen, tid, time, cookie);
	return live_queue(live, oe, time);
}

static int live_record(struct live *live, struct ordered_events *oe, u32 tid, u64 time,
		       u64 cookie)
{
	put_record(&gen, tid, time, cookie, UIP, 3, 0, 0);
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

	put_exit(&gen, PID, 8 * sec);
	TEST_ASSERT_EQUAL("exit", live_queue(live, oe, 8 * sec), 0);
	TEST_ASSERT_EQUAL("other task", live_sample(live, oe, PID, 9 * sec, 11), 0);
	TEST_ASSERT_EQUAL("flush", ordered_events__flush(oe, OE_FLUSH__FINAL), 0);
	TEST_ASSERT_EQUAL("delivered", live->nr, 7);
	TEST_ASSERT_EQUAL("merged", live->merged, 5);
	return TEST_OK;
}

static int test__live(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
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

	err = read_live(&live, &oe) ?: read_live_stacks(&live, &oe);

	ordered_events__free(&oe);
	callchain_defer__delete(live.cd);
	evlist__delete(live.evlist);
	return err;
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
		put_sample(&gen, PID + 1, 10 + 10 * i, 5 + i);
		put_record(&gen, PID + 1, 11 + 10 * i, 5 + i, UIP, 3, records[i].says,
			   records[i].size);
	}
	/* A context marker in place of an address, and the cookie 0 */
	put_record(&gen, PID + 1, 200, 50, PERF_CONTEXT_KERNEL, 1, 0, 0);
	put_record(&gen, PID + 1, 201, 0, UIP, 3, 0, 0);
	put_sample(&gen, PID + 1, 210, 0);
	put_chain(&gen, PID + 1, 211, no_cookie, ARRAY_SIZE(no_cookie));
	put_chain(&gen, PID + 1, 212, middle, ARRAY_SIZE(middle));
	put_sample(&gen, PID + 1, 220, 60);
	put_record(&gen, PID + 1, 221, 60, UIP, 3, 0, 0);
	put_round(&gen);

	TEST_ASSERT_EQUAL("read", read_back(&gen, &rt, false), 0);
	TEST_ASSERT_EQUAL("samples", rt.nr, (int)n + 4);
	for (i = 0; i < n; i++)
		TEST_ASSERT_VAL("bad record", merged(i, 10 + 10 * i, PID + 1, 0, 0));
	TEST_ASSERT_VAL("cookie 0", merged(n, 210, PID + 1, 0, 0));
	TEST_ASSERT_VAL("no cookie", merged(n + 1, 211, PID + 1, 0, 0));
	TEST_ASSERT_VAL("marker in the middle", merged(n + 2, 212, PID + 1, 0, 0));
	TEST_ASSERT_VAL("good one", merged(n + 3, 220, PID + 1, UIP, 3));
	TEST_ASSERT_EQUAL("bad records", (int)rt.stats.nr_deferred_bad_records, (int)n + 2);
	TEST_ASSERT_EQUAL("bad samples", (int)rt.stats.nr_deferred_bad_samples, 3);
	TEST_ASSERT_EQUAL("missing", (int)rt.stats.nr_deferred_missing, (int)n + 3);
	return 0;
}

static int test__malformed(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	return read_all_inputs(malformed);
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
			put64(&gen, values[*state >> 60 & 7] ?: *state);
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

			put_sample(&gen, PID + 1, 10 + 10 * i, 50 + i);
			if (i % 2)
				change_words(&state, at + chain, gen.len);
			at = gen.len;
			put_record(&gen, PID + 1, 11 + 10 * i, 50 + i, UIP + 0x1000 * i, 3, 0, 0);
			if (i % 2)
				change_words(&state, at + record, gen.len - id);
		}
		put_round(&gen);
		TEST_ASSERT_EQUAL("read", read_back(&gen, &rt, false), 0);
		for (i = 0, nr = 0; i < rt.nr; i++) {
			u64 time = rt.seen[i].time;

			TEST_ASSERT_VAL("length", rt.seen[i].nr <= 4 + 3);
			if (time % 20 == 10)
				TEST_ASSERT_VAL("merged", merged(i, time, PID + 1,
								 UIP + 0x1000 * nr++ * 2, 3));
		}
		TEST_ASSERT_EQUAL("samples in between", nr, 8);
	}
	return 0;
}

static int test__any_words(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	return read_all_inputs(any_words);
}

/*
 * Several records have the same cookie: the task was sampled again in the same kernel
 * entry, or its stack was cut at a page that came in later, or several events get
 * records. The longest record counts that was read before the sample is delivered.
 */
static int repeated(void)
{
	put_sample(&gen, PID + 1, 10, 5);
	put_record(&gen, PID + 1, 11, 5, UIP, 3, 0, 0);
	put_record(&gen, PID + 1, 12, 5, UIP, 3, 0, 0);
	put_sample(&gen, PID + 1, 20, 5);
	put_record(&gen, PID + 1, 21, 5, UIP, 3, 0, 0);
	put_sample(&gen, PID + 1, 30, 6);
	put_record(&gen, PID + 1, 31, 6, UIP, 2, 0, 0);
	put_record(&gen, PID + 1, 32, 6, UIP, 4, 0, 0);
	put_sample(&gen, PID + 1, 40, 7);
	put_record(&gen, PID + 1, 41, 7, UIP, 4, 0, 0);
	put_record(&gen, PID + 1, 42, 7, UIP, 2, 0, 0);
	put_sample(&gen, PID + 1, 50, 8);
	put_record(&gen, PID + 1, 51, 8, UIP, 0, 0, 0);
	put_sample(&gen, PID + 1, 52, 8);
	put_record(&gen, PID + 1, 53, 8, UIP, 3, 0, 0);
	put_round(&gen);

	TEST_ASSERT_EQUAL("read", read_back(&gen, &rt, false), 0);
	TEST_ASSERT_EQUAL("samples", rt.nr, 6);
	TEST_ASSERT_VAL("first", merged(0, 10, PID + 1, UIP, 3));
	TEST_ASSERT_VAL("sampled again", merged(1, 20, PID + 1, UIP, 3));
	TEST_ASSERT_VAL("once more, whole", merged(2, 30, PID + 1, UIP, 4));
	TEST_ASSERT_VAL("shorter", merged(3, 40, PID + 1, UIP, 4));
	TEST_ASSERT_VAL("none at first", merged(4, 50, PID + 1, UIP, 3));
	TEST_ASSERT_VAL("then one", merged(5, 52, PID + 1, UIP, 3));
	TEST_ASSERT_EQUAL("missing", (int)rt.stats.nr_deferred_missing, 0);
	return 0;
}

static int test__repeated(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	return read_all_inputs(repeated);
}

/*
 * The kernel has limited the kernel frames and the user frames, each by itself. So all
 * user frames are shown, unless the record is for an event with a larger limit, too.
 */
static int depth(void)
{
	u64 max = gen.max_stack ?: 150;

	put_sample(&gen, PID + 1, 10, 5);
	put_record(&gen, PID + 1, 20, 5, UIP, 150, 0, 0);
	put_round(&gen);
	TEST_ASSERT_EQUAL("read", read_back(&gen, &rt, false), 0);
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
		put_sample(&gen, PID + 1, 10 + i, 5);
	}
	for (i = 1; i < MACHINES; i++) {
		gen.machine = i;
		put_record(&gen, PID + 1, 20 + i, 5, UIP + 0x1000 * min(i, MACHINES - 2), 3,
			   0, 0);
		put_sample(&gen, PID + 1, 30 + i, 6);
		put_record(&gen, PID + 1, 40 + i, 6, UIP + 0x10000 * i, 3, 0, 0);
		put_exit(&gen, PID + 1, 50 + i);
	}
	put_round(&gen);
	for (i = 1; i < MACHINES; i++) {
		gen.machine = i;
		put_sample(&gen, PID + 2, 60 + i, 7);
		put_record(&gen, PID + 2, 70 + i, 7, UIP, 3, 0, 0);
	}
	put_round(&gen);
	put_round(&gen);
	gen.machine = 0;
	put_record(&gen, PID + 1, 100, 5, UIP, 3, 0, 0);
	put_round(&gen);

	TEST_ASSERT_EQUAL("read", read_back(&gen, &rt, false), 0);
	TEST_ASSERT_EQUAL("missing", (int)rt.stats.nr_deferred_missing, 0);
	TEST_ASSERT_EQUAL("samples", rt.nr, 3 * MACHINES - 2);
	for (i = 0; i < MACHINES; i++)
		TEST_ASSERT_VAL("its own", merged(i, 10 + i, PID + 1,
						  UIP + 0x1000 * min(i, MACHINES - 2), 3));
	for (i = 1; i < MACHINES; i++)
		TEST_ASSERT_VAL("the next one", merged(MACHINES + i - 1, 30 + i, PID + 1,
						       UIP + 0x10000 * i, 3));
	return 0;
}

static int test__machines(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	bool guest = perf_guest;
	int err = read_all_inputs_of(MACHINES, machines);

	/* PERF_RECORD_ID_INDEX has set it */
	perf_guest = guest;
	return err;
}

static struct test_case tests__callchain_defer[] = {
	TEST_CASE("Deferred callchains: parsing", parse),
	TEST_CASE("Deferred callchains: merging", merge),
	TEST_CASE("Deferred callchains: as recorded", no_merge),
	TEST_CASE("Deferred callchains: without the ordered queue", unordered),
	TEST_CASE("Deferred callchains: order", order),
	TEST_CASE("Deferred callchains: samples after the walk", late),
	TEST_CASE("Deferred callchains: looking ahead", ahead),
	TEST_CASE("Deferred callchains: loss", loss),
	TEST_CASE("Deferred callchains: tasks outside of the PID namespace", outside),
	TEST_CASE("Deferred callchains: live", live),
	TEST_CASE("Deferred callchains: malformed", malformed),
	TEST_CASE("Deferred callchains: words of any value", any_words),
	TEST_CASE("Deferred callchains: several records of one entry", repeated),
	TEST_CASE("Deferred callchains: depth", depth),
	TEST_CASE("Deferred callchains: several machines", machines),
	{	.name = NULL, }
};

struct test_suite suite__callchain_defer = {
	.desc = "Deferred callchains: reading",
	.test_cases = tests__callchain_defer,
};

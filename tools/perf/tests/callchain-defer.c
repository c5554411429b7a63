// SPDX-License-Identifier: GPL-2.0
/*
 * Deferred user callchains: parse the records, merge them into the samples, in
 * time order, from files and pipes of both orders of bytes, and survive what is
 * wrong. Each test writes a small perf.data and reads it through a session.
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
#define MAX_ROUNDS 16

#define SAMPLE_TYPE (PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | \
		     PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_ID)

/* A perf.data in the making */
struct gen {
	char	buf[64 * 1024];
	size_t	len;
	bool	swap;
	bool	pipe;
	/* to be read without the ordered queue */
	bool	unordered;
	u16	max_stack;
	/* after each sample, how much of a file is mapped; NULL: as the reader does it */
	const u64 *mapped;
	/* how many of them have an event, and whose event is to be written: 0 is the host */
	int	machines;
	int	machine;
};

/* What the tool got to see of a sample */
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
	/* how many samples it had seen after each round */
	int			after[MAX_ROUNDS];
	int			rounds;
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

/* Taken in user space: all of the callchain is deferred */
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

/* A record with @nr addresses that says it has @says and is @size long, 0 for true */
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

/* Which event is of which machine */
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

static void map_part(struct reader_tool *rt, u64 len)
{
	static char part[sizeof(rt->gen->buf)];
	struct callchain_defer_window win = {
		.fd   = perf_data__fd(rt->session->data),
		.addr = part,
		.len  = len,
	};

	/* What is behind it is something else. */
	memset(part, 0xff, sizeof(part));
	memcpy(part, rt->gen->buf, len);
	callchain_defer__set_window(perf_session__callchain_defer(rt->session), &win);
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
	if (rt->gen->mapped)
		map_part(rt, rt->gen->mapped[rt->nr]);
	rt->nr++;
	return 0;
}

static int read_round(const struct perf_tool *tool, union perf_event *event,
		      struct ordered_events *oe)
{
	struct reader_tool *rt = container_of(tool, struct reader_tool, tool);
	int err = perf_event__process_finished_round(tool, event, oe);

	if (rt->rounds < MAX_ROUNDS)
		rt->after[rt->rounds++] = rt->nr;
	return err;
}

/* Write it to a file, read it back */
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
	rt->tool.finished_round = read_round;
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
	    seen->ips[2] != KIP + 16 || seen->ips[3] != PERF_CONTEXT_USER_DEFERRED) {
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
		/* in memory of its own, so that a sanitizer sees the end of it */
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
	TEST_ASSERT_EQUAL("unused", (int)rt.stats.nr_deferred_unused, 0);
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

/* Files are merged all the same, of pipes nothing is missing: it comes later */
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
 * One task sleeps in the kernel for many rounds, while another one goes on and
 * changes its comm; so does the first one after it woke up.
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
 * A task is sampled once more after its stack was walked, before it leaves the
 * kernel: at once, or when it was stopped there for a minute, while the queue
 * went on. The record that was for nobody is not counted before that.
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
	/* Two entries that end at the same time, the later one on a CPU that is read first */
	put_sample(&gen, PID + 3, minute + 20, 12);
	put_record(&gen, PID + 3, minute + 20, 12, UIP + 0x2000, 5, 0, 0);
	put_sample(&gen, PID + 3, minute + 12, 11);
	put_record(&gen, PID + 3, minute + 20, 11, UIP + 0x3000, 6, 0, 0);
	put_round(&gen);
	put_sample(&gen, PID + 3, minute + 30, 12);
	put_round(&gen);

	TEST_ASSERT_EQUAL("read", read_back(&gen, &rt, false), 0);
	TEST_ASSERT_EQUAL("samples", rt.nr, 14);
	TEST_ASSERT_VAL("before", merged(0, 10, PID + 1, UIP, 3));
	TEST_ASSERT_VAL("just after", merged(1, 21, PID + 1, UIP, 3));
	TEST_ASSERT_VAL("not sampled before", merged(6, minute, PID + 2, UIP + 0x1000, 4));
	TEST_ASSERT_VAL("stopped", merged(7, minute + 1, PID + 1, UIP, 3));
	TEST_ASSERT_VAL("next entry", merged(8, minute + 2, PID + 1, UIP + 0x4000, 3));
	TEST_ASSERT_VAL("after the next", merged(9, minute + 5, PID + 1, UIP + 0x4000, 3));
	TEST_ASSERT_VAL("twice", merged(10, minute + 6, PID + 2, UIP + 0x1000, 4));
	TEST_ASSERT_VAL("tie, earlier", merged(11, minute + 12, PID + 3, UIP + 0x3000, 6));
	TEST_ASSERT_VAL("tie, later", merged(12, minute + 20, PID + 3, UIP + 0x2000, 5));
	TEST_ASSERT_VAL("after a tie", merged(13, minute + 30, PID + 3, UIP + 0x2000, 5));
	TEST_ASSERT_EQUAL("missing", (int)rt.stats.nr_deferred_missing, 0);
	TEST_ASSERT_EQUAL("unused", (int)rt.stats.nr_deferred_unused, 2);
	TEST_ASSERT_EQUAL("duplicate", (int)rt.stats.nr_deferred_duplicate, 1);
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
	put_record(&gen, PID + 2, 31, 7, UIP, 3, 0, 0);	/* another task's */
	put_record(&gen, PID + 1, 32, 8, UIP, 3, 0, 0);	/* nobody's */
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
	/* Where the sample was taken is known, and no more */
	TEST_ASSERT_EQUAL("user, no record", (int)rt.seen[4].nr, 3);
	TEST_ASSERT_VAL("in user space", rt.seen[4].ips[0] == PERF_CONTEXT_USER);
	TEST_ASSERT_VAL("where it was taken", rt.seen[4].ips[1] == UIP);
	TEST_ASSERT_VAL("callers missing", rt.seen[4].ips[2] == PERF_CONTEXT_USER_DEFERRED);
	TEST_ASSERT_EQUAL("user", (int)rt.seen[5].nr, 4);
	TEST_ASSERT_VAL("first frame", rt.seen[5].ips[1] == UIP);
	TEST_ASSERT_EQUAL("deferred", (int)rt.stats.nr_deferred_samples, 6);
	TEST_ASSERT_EQUAL("missing", (int)rt.stats.nr_deferred_missing, 4);
	TEST_ASSERT_EQUAL("unused", (int)rt.stats.nr_deferred_unused, 2);
	return 0;
}

static int test__loss(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	return read_all_inputs(loss);
}

/*
 * Lost records of tasks that go on hold up nobody for longer than to the round after
 * the next, and that only when they are of the last kernel entry in their round.
 */
static int busy(void)
{
	int i, n = 0, lost = 0;

	for (i = 0; i < MAX_ROUNDS; i++) {
		for (; n < 3 * (i + 1); n++) {
			put_sample(&gen, PID + 1, 10 * n + 10, 5 + n);
			if (n % 5)
				put_record(&gen, PID + 1, 10 * n + 11, 5 + n, UIP, 3, 0, 0);
			else
				lost++;
		}
		put_sample(&gen, PID + 2, 10 * n + 2, 5 + i);
		if (i % 5)
			put_record(&gen, PID + 2, 10 * n + 3, 5 + i, UIP, 3, 0, 0);
		else
			lost++;
		put_round(&gen);
	}
	TEST_ASSERT_EQUAL("read", read_back(&gen, &rt, false), 0);
	TEST_ASSERT_EQUAL("samples", rt.nr, 4 * MAX_ROUNDS);
	TEST_ASSERT_EQUAL("missing", (int)rt.stats.nr_deferred_missing, lost);
	TEST_ASSERT_EQUAL("rounds", rt.rounds, MAX_ROUNDS);
	for (i = 0; i < MAX_ROUNDS; i++)
		TEST_ASSERT_VAL("held up", rt.after[i] >= 4 * i - 2);
	return 0;
}

static int test__busy(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	return read_all_inputs(busy);
}

/*
 * A sample that has the registers of user mode and an immediate callchain: a page
 * fault of the kernel's or the tracepoint of a system call. The task may still be in the
 * kernel entry whose record is to come.
 */
static int user_registers(void)
{
	const u64 ips[] = { PERF_CONTEXT_USER, UIP };
	int i;

	put_sample(&gen, PID + 1, 10, 5);
	put_chain_at(&gen, PERF_RECORD_MISC_USER, UIP, PID + 1, 11, ips, ARRAY_SIZE(ips));
	put_round(&gen);
	for (i = 0; i < 4; i++) {
		put_sample(&gen, PID + 2, 20 + 10 * i, 6 + i);
		put_record(&gen, PID + 2, 21 + 10 * i, 6 + i, UIP, 3, 0, 0);
		put_round(&gen);
	}
	put_record(&gen, PID + 1, 100, 5, UIP + 0x1000, 3, 0, 0);
	put_round(&gen);
	TEST_ASSERT_EQUAL("read", read_back(&gen, &rt, false), 0);
	TEST_ASSERT_EQUAL("samples", rt.nr, 6);
	TEST_ASSERT_EQUAL("missing", (int)rt.stats.nr_deferred_missing, 0);
	TEST_ASSERT_EQUAL("unused", (int)rt.stats.nr_deferred_unused, 0);
	TEST_ASSERT_VAL("merged", merged(0, 10, PID + 1, UIP + 0x1000, 3));
	return 0;
}

static int test__user_registers(struct test_suite *test __maybe_unused,
				int subtest __maybe_unused)
{
	return read_all_inputs(user_registers);
}

/*
 * All tasks outside of the profiler's PID namespace have the number 0: what the one
 * does tells nothing of the other.
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

/* What perf top and perf trace have in place of a session */
struct live {
	struct evlist		*evlist;
	struct callchain_defer	*cd;
	int			nr;
};

static int live_deliver(struct ordered_events *oe, struct ordered_event *oevent)
{
	struct live *live = oe->data;
	struct perf_sample sample;

	if (callchain_defer__must_wait(live->cd, oe, oevent->event))
		return ORDERED_EVENTS__HOLD;
	if (oevent->event->header.type == PERF_RECORD_SAMPLE)
		live->nr++;
	return evlist__parse_sample(live->evlist, oevent->event, &sample) ?:
	       callchain_defer__deliver(live->cd, oevent->event, &sample, 0, NULL);
}

static int live_queue(struct live *live, struct ordered_events *oe, size_t at, u64 time)
{
	union perf_event *event = (void *)(gen.buf + at);
	int err = ordered_events__queue(oe, event, callchain_defer__queue_time(event, time),
					0, NULL);

	return err ?: callchain_defer__queued(live->cd, oe);
}

/*
 * The same where the buffers are read in turns: what is flushed always ends before
 * the kernel entries that the tasks were seen in last.
 */
static int live_turns(struct live *live, struct ordered_events *oe)
{
	const int lag = 3, turns = 30, tasks = 5;
	int i, j, lost = 0;

	gen.len = 0;
	for (i = 0; i < turns; i++) {
		for (j = 0; j < tasks; j++) {
			u64 time = 100 * i + 10 * j + 10;
			size_t at = gen.len;

			put_sample(&gen, PID + j, time, 5 + i);
			TEST_ASSERT_EQUAL("sample", live_queue(live, oe, at, time), 0);
			if ((i + j) % 7 == 0) {
				lost++;
				continue;
			}
			at = gen.len;
			put_record(&gen, PID + j, time + 1, 5 + i, UIP, 3, 0, 0);
			TEST_ASSERT_EQUAL("record", live_queue(live, oe, at, time + 1), 0);
		}
		if (i < lag)
			continue;
		TEST_ASSERT_EQUAL("flush", ordered_events__flush_time(oe, 100 * (i - lag) + 99), 0);
		TEST_ASSERT_VAL("held up", live->nr >= tasks * (i - 2 * lag));
	}
	TEST_ASSERT_EQUAL("final", ordered_events__flush(oe, OE_FLUSH__FINAL), 0);
	TEST_ASSERT_EQUAL("all", live->nr, tasks * turns);
	TEST_ASSERT_EQUAL("missing", (int)live->evlist->stats.nr_deferred_missing, lost);
	return TEST_OK;
}

/*
 * A record that does not come: everything behind the sample is held, for the time and
 * in the bytes that it may be, and no longer.
 */
static int live_bound(struct live *live, struct ordered_events *oe, u64 nsec, u64 bytes)
{
	bool held = true;
	u64 time;
	int nr;

	oe->copy_on_queue = true;
	callchain_defer__set_bounds(live->cd, nsec, bytes);
	gen.len = 0;
	put_sample(&gen, PID, 10, 5);
	TEST_ASSERT_EQUAL("waits", live_queue(live, oe, 0, 10), 0);
	for (nr = 1, time = 20; held; nr++, time += 10) {
		gen.len = 0;
		put_sample(&gen, PID + 1, time, 5 + nr);
		TEST_ASSERT_EQUAL("sample", live_queue(live, oe, 0, time), 0);
		gen.len = 0;
		put_record(&gen, PID + 1, time + 1, 5 + nr, UIP, 3, 0, 0);
		TEST_ASSERT_EQUAL("record", live_queue(live, oe, 0, time + 1), 0);
		held = time + 1 - 10 <= nsec && oe->cur_alloc_size <= bytes;
		TEST_ASSERT_EQUAL("flush", ordered_events__flush_time(oe, time + 1), 0);
		TEST_ASSERT_EQUAL("delivered", live->nr, held ? 0 : nr + 1);
	}
	TEST_ASSERT_VAL("held at all", nr > 50);
	TEST_ASSERT_EQUAL("missing", (int)live->evlist->stats.nr_deferred_missing, 1);
	return TEST_OK;
}

static int live_seconds(struct live *live, struct ordered_events *oe)
{
	return live_bound(live, oe, 1000, CALLCHAIN_DEFER__PIPE_BYTES);
}

static int live_bytes(struct live *live, struct ordered_events *oe)
{
	return live_bound(live, oe, CALLCHAIN_DEFER__ANY_TIME, 1 << 20);
}

static int read_live(int (*test)(struct live *live, struct ordered_events *oe))
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
	live.cd = callchain_defer__new(live.evlist, &live.evlist->stats);
	TEST_ASSERT_VAL("defer", live.cd);
	ordered_events__init(&oe, live_deliver, &live);
	memset(&gen, 0, sizeof(gen));

	err = test(&live, &oe);

	ordered_events__free(&oe);
	callchain_defer__delete(live.cd);
	evlist__delete(live.evlist);
	return err;
}

static int test__live(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	return read_live(live_turns);
}

static int test__bounds(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	return read_live(live_seconds) ?: read_live(live_bytes);
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
	/* a context marker in the place of an address, a cookie that is none */
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

/*
 * Several events may bring the same record. When they differ, the one after the
 * sample is its own: the kernel's counter came round.
 */
static int duplicates(void)
{
	const u64 hour = 3600000000000ULL;
	int i;

	put_sample(&gen, PID + 1, 10, 5);
	for (i = 0; i < 3; i++)
		put_record(&gen, PID + 1, 20 + i, 5, UIP, 3, 0, 0);
	put_round(&gen);
	put_sample(&gen, PID + 1, hour, 5);
	put_record(&gen, PID + 1, hour + 10, 5, UIP + 0x1000, 3, 0, 0);
	put_round(&gen);
	for (i = 0; i < 100; i++)
		put_record(&gen, PID + 1, hour + 20 + i, 5, UIP + 0x10000 * (i + 1), 3, 0, 0);
	put_round(&gen);

	TEST_ASSERT_EQUAL("read", read_back(&gen, &rt, false), 0);
	TEST_ASSERT_EQUAL("samples", rt.nr, 2);
	TEST_ASSERT_VAL("first", merged(0, 10, PID + 1, UIP, 3));
	TEST_ASSERT_VAL("an hour later", merged(1, hour, PID + 1, UIP + 0x1000, 3));
	TEST_ASSERT_VAL("counted", rt.stats.nr_deferred_duplicate >= 2);
	return 0;
}

static int test__duplicates(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	return read_all_inputs(duplicates);
}

/* Two kernel frames, so three or none of the five user frames */
static int max_stack(void)
{
	u16 max = gen.max_stack;

	put_sample(&gen, PID + 1, 10, 5);
	put_record(&gen, PID + 1, 20, 5, UIP, 5, 0, 0);
	TEST_ASSERT_EQUAL("read", read_back(&gen, &rt, false), 0);
	TEST_ASSERT_EQUAL("samples", rt.nr, 1);
	if (max > 2)
		TEST_ASSERT_VAL("cut", merged(0, 10, PID + 1, UIP, max - 2));
	else
		TEST_ASSERT_EQUAL("no room", (int)rt.seen[0].nr, 3);
	TEST_ASSERT_EQUAL("not missing", (int)rt.stats.nr_deferred_missing, 0);
	return 0;
}

static int test__max_stack(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	static const u16 maxes[] = { 5, 3, 2, 1 };
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
			err = max_stack();
			if (err)
				return err;
		}
	}
	return TEST_OK;
}

/*
 * Two kernel frames, and user callchains that go with them, are cut with them and were cut
 * by the kernel, if it cuts where it does by default, and one that says that it does not:
 * what is shown of each does not depend on the others, nor on when they are read.
 */
static int no_max_stack(void)
{
	static const u64 depths[] = { 125, 126, PERF_MAX_STACK_DEPTH, 150, 126 };
	static const u64 shown[] = { 125, 125, 125, 150, 125 };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(depths); i++) {
		put_sample(&gen, PID + 1, 100 * i + 10, 5 + i);
		put_record(&gen, PID + 1, 100 * i + 20, 5 + i, UIP, depths[i], 0, 0);
		put_round(&gen);
	}
	TEST_ASSERT_EQUAL("read", read_back(&gen, &rt, false), 0);
	TEST_ASSERT_EQUAL("samples", rt.nr, (int)ARRAY_SIZE(depths));
	for (i = 0; i < ARRAY_SIZE(depths); i++) {
		TEST_ASSERT_EQUAL("frames", (int)rt.seen[i].nr, (int)(4 + shown[i]));
		TEST_ASSERT_VAL("outermost one", rt.seen[i].last == UIP + 16 * (shown[i] - 1));
	}
	TEST_ASSERT_EQUAL("not missing", (int)rt.stats.nr_deferred_missing, 0);
	return 0;
}

static int test__no_max_stack(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	return read_all_inputs(no_max_stack);
}

/*
 * Where one mapping does not take the whole file, as in a process of 32 bits, a record may
 * go on behind it, begin there, or be of a part that was mapped before.
 */
static int mappings(void)
{
	u64 mapped[4] = {};
	size_t at;

	gen.max_stack = 700;
	gen.mapped = mapped;
	gen_start(&gen);
	put_sample(&gen, PID + 1, 10, 5);
	put_record(&gen, PID + 1, 11, 5, UIP, 3, 0, 0);
	put_sample(&gen, PID + 1, 20, 6);
	mapped[0] = gen.len + 100 * sizeof(u64);
	/* longer than what is read at once */
	put_record(&gen, PID + 1, 21, 6, UIP + 0x10000, 600, 0, 0);
	put_sample(&gen, PID + 1, 30, 7);
	mapped[1] = gen.len + sizeof(u32);
	put_record(&gen, PID + 1, 31, 7, UIP + 0x20000, 3, 0, 0);
	at = gen.len;
	put_sample(&gen, PID + 1, 40, 8);
	put_record(&gen, PID + 1, 41, 8, UIP + 0x30000, 3, 0, 0);
	mapped[2] = at;
	TEST_ASSERT_EQUAL("read", read_back(&gen, &rt, false), 0);
	TEST_ASSERT_EQUAL("samples", rt.nr, 4);
	TEST_ASSERT_EQUAL("missing", (int)rt.stats.nr_deferred_missing, 0);
	TEST_ASSERT_VAL("all of it", merged(0, 10, PID + 1, UIP, 3));
	TEST_ASSERT_EQUAL("goes on behind it", (int)rt.seen[1].nr, 604);
	TEST_ASSERT_VAL("its end", rt.seen[1].last == UIP + 0x10000 + 16 * 599);
	TEST_ASSERT_VAL("begins at its end", merged(2, 30, PID + 1, UIP + 0x20000, 3));
	TEST_ASSERT_VAL("begins behind it", merged(3, 40, PID + 1, UIP + 0x30000, 3));
	return 0;
}

static int test__mappings(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	return read_all_inputs(mappings);
}

#define MACHINES	6

/*
 * Tasks with one number, in kernel entries with one cookie: of the last two even the
 * stacks are the same. The host's sleeps, while those of the guests go on and exit.
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
	TEST_ASSERT_EQUAL("unused", (int)rt.stats.nr_deferred_unused, 0);
	TEST_ASSERT_EQUAL("duplicate", (int)rt.stats.nr_deferred_duplicate, 0);
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

	/* set by the PERF_RECORD_ID_INDEX */
	perf_guest = guest;
	return err;
}

static struct test_case tests__callchain_defer[] = {
	TEST_CASE("deferred callchain parsing", parse),
	TEST_CASE("deferred callchain merging", merge),
	TEST_CASE("deferred callchains as recorded", no_merge),
	TEST_CASE("deferred callchains without the ordered queue", unordered),
	TEST_CASE("deferred callchain order", order),
	TEST_CASE("deferred callchains of samples after the walk", late),
	TEST_CASE("deferred callchain loss", loss),
	TEST_CASE("deferred callchain loss of a busy task", busy),
	TEST_CASE("deferred callchain of an entry with user registers in it", user_registers),
	TEST_CASE("deferred callchains of tasks outside of the PID namespace", outside),
	TEST_CASE("deferred callchain loss, read live", live),
	TEST_CASE("deferred callchains that do not come, read live", bounds),
	TEST_CASE("malformed deferred callchains", malformed),
	TEST_CASE("duplicate deferred callchains", duplicates),
	TEST_CASE("deferred callchain depth", max_stack),
	TEST_CASE("deferred callchain depth, not in the data", no_max_stack),
	TEST_CASE("deferred callchains in parts of a file", mappings),
	TEST_CASE("deferred callchains of several machines", machines),
	{	.name = NULL, }
};

struct test_suite suite__callchain_defer = {
	.desc = "deferred callchain reading",
	.test_cases = tests__callchain_defer,
};

// SPDX-License-Identifier: GPL-2.0
/*
 * Input for the tests of deferred user callchains: files and pipes of both byte orders.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <linux/err.h>
#include <linux/kernel.h>
#include <linux/perf_event.h>
#include <linux/string.h>
#include "callchain.h"
#include "data.h"
#include "debug.h"
#include "defer-gen.h"
#include "evlist.h"
#include "header.h"
#include "machine.h"
#include "sample.h"
#include "session.h"
#include "tests.h"
#include "thread.h"
#include "util.h"

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

void gen_put64(struct gen *gen, u64 val)
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
	gen_put64(gen, time);
	gen_put64(gen, gen->machine + 1);
}

void gen_comm(struct gen *gen, u32 tid, u64 time, const char *comm)
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

void gen_exit(struct gen *gen, u32 tid, u64 time)
{
	size_t at = put_header(gen, PERF_RECORD_EXIT, 0);

	put32(gen, PID);
	put32(gen, PID);
	put32(gen, tid);
	put32(gen, tid);
	gen_put64(gen, time);
	put_sample_id(gen, tid, time);
	put_size(gen, at, gen->len - at);
}

static void put_chain_at(struct gen *gen, u16 misc, u64 ip, u32 tid, u64 time,
			 const u64 *ips, u64 nr)
{
	size_t at = put_header(gen, PERF_RECORD_SAMPLE, misc);
	u64 i;

	gen_put64(gen, ip);
	put32(gen, PID);
	put32(gen, tid);
	gen_put64(gen, time);
	gen_put64(gen, gen->machine + 1);
	gen_put64(gen, nr);
	for (i = 0; i < nr; i++)
		gen_put64(gen, ips[i]);
	put_size(gen, at, gen->len - at);
}

void gen_chain(struct gen *gen, u32 tid, u64 time, const u64 *ips, u64 nr)
{
	put_chain_at(gen, PERF_RECORD_MISC_KERNEL, KIP, tid, time, ips, nr);
}

void gen_user_sample(struct gen *gen, u32 tid, u64 time, u64 cookie)
{
	const u64 ips[] = { PERF_CONTEXT_USER_DEFERRED, cookie };

	put_chain_at(gen, PERF_RECORD_MISC_USER, UIP, tid, time, ips, ARRAY_SIZE(ips));
}

void gen_sample(struct gen *gen, u32 tid, u64 time, u64 cookie)
{
	const u64 ips[] = {
		PERF_CONTEXT_KERNEL, KIP, KIP + 16, PERF_CONTEXT_USER_DEFERRED, cookie,
	};

	gen_chain(gen, tid, time, ips, ARRAY_SIZE(ips));
}

void gen_record(struct gen *gen, u32 tid, u64 time, u64 cookie, u64 base, u64 nr, u64 says,
		u16 size)
{
	size_t at = put_header(gen, PERF_RECORD_CALLCHAIN_DEFERRED, PERF_RECORD_MISC_USER);
	u64 i;

	gen_put64(gen, cookie);
	gen_put64(gen, says ?: nr);
	for (i = 0; i < nr; i++)
		gen_put64(gen, base + 16 * i);
	put_sample_id(gen, tid, time);
	if (size)
		gen->len = at + size;
	put_size(gen, at, gen->len - at);
}

void gen_round(struct gen *gen)
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

	gen_put64(gen, gen->machines);
	for (i = 0; i < gen->machines; i++) {
		gen_put64(gen, i + 1);
		gen_put64(gen, 0);
		gen_put64(gen, -1ULL);
		gen_put64(gen, -1ULL);
	}
	for (i = 0; i < gen->machines; i++) {
		gen_put64(gen, i ? PID + i : 0);
		gen_put64(gen, 0);
	}
	put_size(gen, at, gen->len - at);
}

void gen_start(struct gen *gen)
{
	size_t at;
	int i;

	gen->len = 0;
	if (gen->pipe) {
		gen_put64(gen, 0x32454c4946524550ULL);
		gen_put64(gen, 16);
		for (i = 0; i < gen->machines; i++) {
			at = put_header(gen, PERF_RECORD_HEADER_ATTR, 0);
			put_attr(gen);
			gen_put64(gen, i + 1);
			put_size(gen, at, gen->len - at);
		}
	} else {
		memset(gen->buf, 0, IDS_AT);
		gen->len = IDS_AT;
		for (i = 0; i < gen->machines; i++)
			gen_put64(gen, i + 1);
		for (i = 0; i < gen->machines; i++) {
			put_attr(gen);
			gen_put64(gen, IDS_AT + i * sizeof(u64));
			gen_put64(gen, sizeof(u64));
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
	gen_put64(gen, 0x32454c4946524550ULL);
	gen_put64(gen, sizeof(struct perf_file_header));
	gen_put64(gen, ATTR_SIZE);
	gen_put64(gen, attrs_at(gen));
	gen_put64(gen, gen->machines * ATTR_SIZE);
	gen_put64(gen, data_at(gen));
	gen_put64(gen, end - data_at(gen));
	gen->len = end;
}

static int read_sample(const struct perf_tool *tool, union perf_event *event __maybe_unused,
		       struct perf_sample *sample, struct evsel *evsel __maybe_unused,
		       struct machine *machine)
{
	struct gen_reader *rt = container_of(tool, struct gen_reader, tool);
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

int gen_read(struct gen *gen, struct gen_reader *rt, bool no_merge)
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
	err = perf_session__process_events(session);
	rt->stats = session->evlist->stats;
	perf_session__delete(session);
out:
	unlink(name);
	return err;
}

int gen_all_inputs(struct gen *gen, int machines, int (*test)(void))
{
	int i, err;

	for (i = 0; i < 4; i++) {
		memset(gen, 0, sizeof(*gen));
		gen->pipe = i & 1;
		gen->swap = i & 2;
		gen->machines = machines;
		gen_start(gen);
		err = test();
		if (err) {
			pr_debug("failed with a %s of %s order of bytes\n",
				 gen->pipe ? "pipe" : "file", gen->swap ? "the other" : "this");
			return err;
		}
	}
	return TEST_OK;
}

bool gen_merged(const struct gen_reader *rt, int i, u64 time, u32 tid, u64 base, u64 nr)
{
	const struct seen *seen = &rt->seen[i];
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

// SPDX-License-Identifier: GPL-2.0
/* Parse the records of the buffers, and check every size and offset in them. */
#include <string.h>
#include <sys/ioctl.h>

#include "../kselftest.h"
#include "fuzz.h"

#define MAX_CHAIN	((1 << 16) / 8)

static unsigned long task_size;

void check_with(unsigned long size)
{
	task_size = size;
}

static int bad(const char *what, const struct perf_event_header *h)
{
	const __u64 *w = (const __u64 *)h;
	int i;

	ut_diag("%s: record type %u misc %#x size %u, seed %llu", what, h->type, h->misc, h->size,
		case_seed);
	for (i = 0; i < h->size / 8 && i < 40; i++)
		ut_diag("  %#llx", w[i]);
	add(&tot->bad, 1);
	return -1;
}

static int check_addresses(const struct perf_event_header *h, const __u64 *ip, __u64 nr)
{
	__u64 i;

	for (i = 0; i < nr; i++) {
		if (!i && ip[0] >= UT_VSYSCALL_START && ip[0] < UT_VSYSCALL_END)
			continue;
		if ((i && ip[i] < PAGE) || ip[i] >= task_size + PAGE)
			return bad("not a user address", h);
	}
	add(&tot->addresses, nr);
	return 0;
}

static int check_deferred(const struct perf_event_header *h)
{
	const __u64 *w = (const __u64 *)h;
	__u64 room;

	if (h->size < 24)
		return bad("a deferred callchain that is too short", h);
	room = (h->size - 24) / 8;
	/* The trailer has six words at most. */
	if (w[2] > room || room - w[2] > 6)
		return bad("number of addresses and size", h);
	if (!w[1] || h->misc != PERF_RECORD_MISC_USER)
		return bad("cookie or misc", h);
	if (!seen_output)
		return bad("no event wants it", h);
	add(&tot->chains, 1);
	return check_addresses(h, w + 3, w[2]);
}

static int check_callchain(const struct perf_event_header *h, const __u64 *ip, __u64 nr)
{
	bool user = false;
	__u64 i;

	for (i = 0; i < nr; i++) {
		if (ip[i] == UT_CONTEXT_USER_DEFERRED) {
			if (user || i + 2 != nr || !ip[i + 1])
				return bad("marker without a cookie, or not at the end", h);
			if (!seen_deferred)
				return bad("deferred, and nobody asked for that", h);
			add(&tot->deferred, 1);
			return 0;
		}
		/* An immediate callchain has any words of user space behind the context. */
		if (ip[i] == (__u64)PERF_CONTEXT_USER)
			user = true;
		else if (!user && ip[i] < task_size)
			return bad("user address among the kernel's", h);
	}
	return 0;
}

/* Check a sample up to its callchain. */
static int check_sample(const struct perf_event_header *h, const struct perf_event_attr *attr)
{
	static const __u64 one_word = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_TID |
		PERF_SAMPLE_TIME | PERF_SAMPLE_ADDR | PERF_SAMPLE_ID | PERF_SAMPLE_STREAM_ID |
		PERF_SAMPLE_CPU | PERF_SAMPLE_PERIOD;
	const __u64 *w = (const __u64 *)h + 1, *end = (const __u64 *)((const char *)h + h->size);
	__u64 type = attr->sample_type, format = attr->read_format, each, head, nr;

	add(&tot->samples, 1);
	if (!uniform)
		return 0;
	w += __builtin_popcountll(type & one_word);
	if (type & PERF_SAMPLE_READ) {
		head = !!(format & PERF_FORMAT_TOTAL_TIME_ENABLED) +
		       !!(format & PERF_FORMAT_TOTAL_TIME_RUNNING);
		each = 1 + !!(format & PERF_FORMAT_ID) + !!(format & PERF_FORMAT_LOST);
		if (format & PERF_FORMAT_GROUP) {
			if (w >= end || *w > MAX_FDS)
				return bad("members of a group", h);
			w += 1 + head + *w * each;
		} else {
			w += head + each;
		}
	}
	if (w > end)
		return bad("a sample that is too short", h);
	if (!(type & PERF_SAMPLE_CALLCHAIN))
		return 0;
	if (w == end)
		return bad("no room for the callchain", h);
	nr = *w++;
	if (nr > MAX_CHAIN || nr > (__u64)(end - w))
		return bad("callchain and size", h);
	return check_callchain(h, w, nr);
}

static int check_record(const struct perf_event_header *h, const struct perf_event_attr *attr)
{
	add(&tot->records, 1);
	switch (h->type) {
	case PERF_RECORD_SAMPLE:
		return check_sample(h, attr);
	case UT_RECORD_CALLCHAIN_DEFERRED:
		return check_deferred(h);
	case PERF_RECORD_LOST:
		if (h->size < 24)
			return bad("size", h);
		add(&tot->lost, ((const __u64 *)h)[2]);
		return 0;
	default:
		if (!h->type || h->type > UT_RECORD_CALLCHAIN_DEFERRED)
			return bad("type", h);
		return 0;
	}
}

/* Check the records in @len bytes from offset @from on. Returns the bytes that are left. */
static size_t check_records(struct fuzz_event *e, __u64 from, size_t len, bool torn)
{
	static char buf[1 << 16] UT_ATTRIBUTE(aligned(8));
	const char *data = e->base + PAGE;
	struct perf_event_header *h = (struct perf_event_header *)buf;

	while (len >= sizeof(*h)) {
		size_t off = from % e->size, first;

		memcpy(h, data + off, sizeof(*h));
		if (torn && (!h->size || h->size > len))
			return 0;
		if (h->size < sizeof(*h) || h->size % 8 || h->size > len) {
			bad("header", h);
			return 0;
		}
		first = e->size - off < h->size ? e->size - off : h->size;
		memcpy(buf, data + off, first);
		memcpy(buf + first, data, h->size - first);
		from += h->size;
		len -= h->size;
		if (check_record(h, &e->attr))
			return 0;
	}
	return len;
}

void drain(struct fuzz_event *e)
{
	struct perf_event_mmap_page *page = (void *)e->base;
	__u64 head;

	/* If the output goes to another event, the buffer is read through that event. */
	if (!e->base || !e->size || e->redirected)
		return;
	head = __atomic_load_n(&page->data_head, __ATOMIC_ACQUIRE);
	if (e->attr.write_backward) {
		/* Records are written towards lower addresses, and overwrite the oldest ones. */
		if (ioctl(e->fd, PERF_EVENT_IOC_PAUSE_OUTPUT, 1))
			return;
		head = __atomic_load_n(&page->data_head, __ATOMIC_ACQUIRE);
		check_records(e, head, -head < e->size ? -head : e->size, true);
		ioctl(e->fd, PERF_EVENT_IOC_PAUSE_OUTPUT, 0);
	} else if (e->writable) {
		if (head - e->tail > e->size) {
			ut_diag("head %llu, tail %llu, size %zu", head, e->tail, e->size);
			add(&tot->bad, 1);
			return;
		}
		check_records(e, e->tail, head - e->tail, false);
		e->tail = head;
		__atomic_store_n(&page->data_tail, head, __ATOMIC_RELEASE);
	} else if (head <= e->size) {
		/* Read it only as long as nothing was overwritten, and records begin at 0. */
		if (ioctl(e->fd, PERF_EVENT_IOC_PAUSE_OUTPUT, 1))
			return;
		head = __atomic_load_n(&page->data_head, __ATOMIC_ACQUIRE);
		if (head <= e->size)
			check_records(e, 0, head, false);
		ioctl(e->fd, PERF_EVENT_IOC_PAUSE_OUTPUT, 0);
	}
}

// SPDX-License-Identifier: GPL-2.0
/* Sessions of perf events, their buffers, and the records in these. */
#include <errno.h>
#include <limits.h>
#include <linux/hw_breakpoint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../kselftest.h"
#include "unwind_test.h"

int ut_perf_open(struct perf_event_attr *attr, pid_t pid, int cpu, int group, unsigned long flags)
{
	return syscall(__NR_perf_event_open, attr, pid, cpu, group, flags | PERF_FLAG_FD_CLOEXEC);
}

int ut_ring_map(struct ut_ring *ring, int fd, unsigned int pages)
{
	size_t page = sysconf(_SC_PAGESIZE);
	void *base;

	base = mmap(NULL, (pages + 1) * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED) {
		ut_diag("mmap of %u pages: %s", pages, strerror(errno));
		return -1;
	}
	ring->fd = fd;
	ring->base = base;
	ring->size = pages * page;
	return 0;
}

void ut_ring_unmap(struct ut_ring *ring)
{
	if (ring->base)
		munmap(ring->base, ring->size + sysconf(_SC_PAGESIZE));
	ring->base = NULL;
}

unsigned int ut_online_cpus(int *cpus, unsigned int max)
{
	unsigned int nr = 0;
	int first, last;
	char sep;
	FILE *f;

	f = fopen("/sys/devices/system/cpu/online", "r");
	if (!f) {
		ut_diag("no list of online CPUs: %s", strerror(errno));
		return 0;
	}
	while (fscanf(f, "%d", &first) == 1) {
		last = first;
		sep = fgetc(f);
		if (sep == '-') {
			if (fscanf(f, "%d", &last) != 1)
				break;
			sep = fgetc(f);
		}
		for (; first <= last && nr < max; first++)
			cpus[nr++] = first;
		if (sep != ',')
			break;
	}
	fclose(f);
	return nr;
}

static const char *tracefs(void)
{
	static const char * const where = "/sys/kernel/tracing";
	static bool tried;

	if (!tried) {
		tried = true;
		if (access("/sys/kernel", F_OK))
			mount("sysfs", "/sys", "sysfs", 0, NULL);
		if (access("/sys/kernel/tracing/events", F_OK))
			mount("tracefs", where, "tracefs", 0, NULL);
	}
	return where;
}

int ut_tracepoint_id(const char *sys, const char *name)
{
	char path[256];
	int id = -1;
	FILE *f;

	snprintf(path, sizeof(path), "%s/events/%s/%s/id", tracefs(), sys, name);
	f = fopen(path, "r");
	if (!f || fscanf(f, "%d", &id) != 1)
		ut_diag("%s: %s", path, strerror(errno));
	if (f)
		fclose(f);
	return id;
}

static int open_fds(struct ut_session *s, struct perf_event_attr *attr, int group, int *fds)
{
	unsigned int i;

	for (i = 0; i < s->nr_rings; i++) {
		fds[i] = ut_perf_open(attr, s->opts.pid, s->ring[i].cpu, group,
				      s->opts.perf_flags);
		if (fds[i] < 0) {
			ut_diag("type %u config %llu cpu %d flags %#llx: %s", attr->type,
				attr->config, s->ring[i].cpu, *ut_attr_flags(attr),
				strerror(errno));
			return -1;
		}
	}
	return 0;
}

int ut_open(struct ut_session *s, const struct ut_opts *opts)
{
	struct perf_event_attr attr = {
		.type		= PERF_TYPE_SOFTWARE,
		.size		= UT_ATTR_SIZE,
		.config		= PERF_COUNT_SW_DUMMY,
		.sample_period	= 1,
		.read_format	= PERF_FORMAT_LOST,
		.disabled	= 1,
		.sample_id_all	= 1,
		.exclude_kernel	= 1,
	};
	int cpus[UT_MAX_CPUS], fds[UT_MAX_CPUS];
	unsigned int i;

	memset(s, 0, sizeof(*s));
	s->opts = *opts;
	if (!s->opts.sample_type)
		s->opts.sample_type = UT_SAMPLE_TYPE;
	if (!s->opts.pages)
		s->opts.pages = 128;

	if (opts->per_cpu) {
		s->nr_rings = ut_online_cpus(cpus, UT_MAX_CPUS);
	} else {
		s->nr_rings = 1;
		cpus[0] = -1;
	}
	for (i = 0; i < s->nr_rings; i++) {
		s->ring[i].cpu = cpus[i];
		s->ring[i].fd = -1;
	}

	/* The fields of the sample that other records can have in their trailer. */
	attr.sample_type = s->opts.sample_type & (PERF_SAMPLE_TID | PERF_SAMPLE_TIME |
			   PERF_SAMPLE_ID | PERF_SAMPLE_STREAM_ID | PERF_SAMPLE_CPU |
			   PERF_SAMPLE_IDENTIFIER);
	attr.inherit = opts->inherit;
	attr.enable_on_exec = opts->enable_on_exec;
	attr.remove_on_exec = opts->remove_on_exec;
	if (opts->sideband) {
		attr.comm = 1;
		attr.comm_exec = 1;
		attr.task = 1;
		attr.mmap = 1;
		attr.mmap2 = 1;
	}
	attr.context_switch = opts->sideband || opts->switches;
	if (!opts->no_output)
		*ut_attr_flags(&attr) |= UT_DEFER_OUTPUT;
	if (open_fds(s, &attr, opts->group ?: -1, fds))
		return -1;
	for (i = 0; i < s->nr_rings; i++) {
		if (ut_ring_map(&s->ring[i], fds[i], s->opts.pages))
			return -1;
	}
	return 0;
}

/* Without the event the session is not the one that the test wants: see ut_enable(). */
static int not_added(struct ut_session *s)
{
	s->incomplete = true;
	return -1;
}

int ut_add(struct ut_session *s, struct perf_event_attr *attr)
{
	struct ut_session_event *e = &s->event[s->nr_events];
	unsigned int i;

	attr->size = UT_ATTR_SIZE;
	attr->read_format = PERF_FORMAT_LOST;
	attr->sample_type = s->opts.sample_type;
	attr->disabled = 1;
	attr->sample_id_all = 1;
	attr->inherit = s->opts.inherit;
	attr->enable_on_exec = s->opts.enable_on_exec;
	attr->remove_on_exec = s->opts.remove_on_exec;
	attr->sample_max_stack = s->opts.max_stack;
	*ut_attr_flags(attr) |= s->opts.flags;
	if (!s->opts.immediate)
		*ut_attr_flags(attr) |= UT_DEFER_CALLCHAIN;

	if (s->nr_events == UT_MAX_EVENTS || open_fds(s, attr, -1, e->fd))
		return not_added(s);
	e->attr = *attr;
	for (i = 0; i < s->nr_rings; i++) {
		if (ioctl(e->fd[i], PERF_EVENT_IOC_SET_OUTPUT, s->ring[i].fd) ||
		    ioctl(e->fd[i], PERF_EVENT_IOC_ID, &e->id[i])) {
			ut_diag("redirect: %s", strerror(errno));
			return not_added(s);
		}
	}
	return s->nr_events++;
}

int ut_add_tracepoint(struct ut_session *s, const char *sys, const char *name)
{
	struct perf_event_attr attr = {
		.type		= PERF_TYPE_TRACEPOINT,
		.sample_period	= 1,
	};
	int id = ut_tracepoint_id(sys, name);

	if (id < 0)
		return not_added(s);
	attr.config = id;
	return ut_add(s, &attr);
}

int ut_add_software(struct ut_session *s, __u64 config, __u64 period)
{
	struct perf_event_attr attr = {
		.type		= PERF_TYPE_SOFTWARE,
		.config		= config,
		.sample_period	= period,
	};

	return ut_add(s, &attr);
}

static int add_breakpoint(struct ut_session *s, __u64 addr, bool kernel)
{
	struct perf_event_attr attr = {
		.type		= PERF_TYPE_BREAKPOINT,
		.bp_type	= HW_BREAKPOINT_X,
		.bp_addr	= addr,
		.bp_len		= sizeof(long),
		.sample_period	= 1,
		.exclude_user	= kernel,
		.exclude_kernel	= !kernel,
	};

	return ut_add(s, &attr);
}

int ut_add_instruction(struct ut_session *s, __u64 addr)
{
	return add_breakpoint(s, addr, true);
}

int ut_move_instruction(struct ut_session *s, int event, __u64 addr)
{
	struct ut_session_event *e = &s->event[event];
	unsigned int i;
	int err = 0;

	e->attr.bp_addr = addr;
	for (i = 0; i < s->nr_rings; i++)
		err |= ioctl(e->fd[i], PERF_EVENT_IOC_MODIFY_ATTRIBUTES, &e->attr);
	return err;
}

int ut_add_user_instruction(struct ut_session *s, __u64 addr)
{
	return add_breakpoint(s, addr, false);
}

int ut_add_function(struct ut_session *s, const char *name)
{
	__u64 start, end;

	if (ut_kallsyms(name, &start, &end)) {
		ut_diag("no function %s", name);
		return not_added(s);
	}
	return ut_add_instruction(s, start);
}

#define PMUS "/sys/bus/event_source/devices/"

int ut_add_probe(struct ut_session *s, const char *pmu, const char *where, __u64 offset,
		 bool ret)
{
	struct perf_event_attr attr = {
		.sample_period	= 1,
		.uprobe_path	= (unsigned long)where,
		.probe_offset	= offset,
	};
	long type, bit = 0;
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), PMUS "%s/type", pmu);
	if (ut_read_sysctl(path, &type)) {
		ut_diag("%s: %s", path, strerror(errno));
		return not_added(s);
	}
	snprintf(path, sizeof(path), PMUS "%s/format/retprobe", pmu);
	f = fopen(path, "r");
	if (!f || fscanf(f, "config:%ld", &bit) != 1) {
		ut_diag("%s: no bit", path);
		return not_added(s);
	}
	fclose(f);
	attr.type = type;
	attr.config = ret ? 1ULL << bit : 0;
	return ut_add(s, &attr);
}

int ut_add_own_probe(struct ut_session *s, const void *func, bool ret)
{
	char path[PATH_MAX];
	__u64 offset = ut_file_offset(func, path);

	if (!offset) {
		ut_diag("no file has this function");
		return not_added(s);
	}
	return ut_add_probe(s, "uprobe", path, offset, ret);
}

static int all_ioctl(struct ut_session *s, unsigned long cmd, bool output_first)
{
	unsigned int i, e;
	int err = 0;

	for (i = 0; output_first && i < s->nr_rings; i++)
		err |= ioctl(s->ring[i].fd, cmd, 0);
	for (e = 0; e < s->nr_events; e++)
		for (i = 0; i < s->nr_rings; i++)
			err |= ioctl(s->event[e].fd[i], cmd, 0);
	for (i = 0; !output_first && i < s->nr_rings; i++)
		err |= ioctl(s->ring[i].fd, cmd, 0);
	return err;
}

int ut_enable(struct ut_session *s)
{
	return s->incomplete ? -1 : all_ioctl(s, PERF_EVENT_IOC_ENABLE, true);
}

/* The tracking event is disabled last, so that no record is missing. */
int ut_disable(struct ut_session *s)
{
	return all_ioctl(s, PERF_EVENT_IOC_DISABLE, false);
}

static void parse_id(struct ut_rec *r, __u64 type, const __u64 *p)
{
	if (type & PERF_SAMPLE_TID) {
		r->pid = (__u32)*p;
		r->tid = *p++ >> 32;
	}
	if (type & PERF_SAMPLE_TIME)
		r->time = *p++;
	if (type & PERF_SAMPLE_ID)
		r->id = *p++;
	if (type & PERF_SAMPLE_STREAM_ID)
		p++;
	if (type & PERF_SAMPLE_CPU)
		r->cpu = (__u32)*p++;
	if (type & PERF_SAMPLE_IDENTIFIER)
		r->id = *p++;
}

static unsigned int id_words(__u64 type)
{
	return !!(type & PERF_SAMPLE_TID) + !!(type & PERF_SAMPLE_TIME) +
	       !!(type & PERF_SAMPLE_ID) + !!(type & PERF_SAMPLE_STREAM_ID) +
	       !!(type & PERF_SAMPLE_CPU) + !!(type & PERF_SAMPLE_IDENTIFIER);
}

static int parse_sample(struct ut_rec *r, __u64 type)
{
	const __u64 *p = (__u64 *)r->raw + 1, *end = (__u64 *)((char *)r->raw + r->size);
	__u64 i;

	if (type & PERF_SAMPLE_IDENTIFIER)
		r->id = *p++;
	if (type & PERF_SAMPLE_IP)
		r->ip = *p++;
	if (type & PERF_SAMPLE_TID) {
		r->pid = (__u32)*p;
		r->tid = *p++ >> 32;
	}
	if (type & PERF_SAMPLE_TIME)
		r->time = *p++;
	if (type & PERF_SAMPLE_ADDR)
		p++;
	if (type & PERF_SAMPLE_ID)
		r->id = *p++;
	if (type & PERF_SAMPLE_STREAM_ID)
		p++;
	if (type & PERF_SAMPLE_CPU)
		r->cpu = (__u32)*p++;
	if (type & PERF_SAMPLE_PERIOD)
		p++;
	if (type & PERF_SAMPLE_CALLCHAIN) {
		r->nr = *p++;
		r->ips = (__u64 *)p;
		if (r->nr > (__u64)(end - p)) {
			ut_diag("callchain of %llu words runs past the sample", r->nr);
			return -1;
		}
		for (i = 0; i < r->nr; i++) {
			if (r->ips[i] == UT_CONTEXT_USER_DEFERRED && i + 1 < r->nr)
				r->cookie = r->ips[i + 1];
		}
	}
	return 0;
}

static int parse(struct ut_session *s, struct ut_rec *r)
{
	__u64 type = s->opts.sample_type, *words = r->raw;

	if (r->type == PERF_RECORD_SAMPLE)
		return parse_sample(r, type);

	if (r->size < 8 + id_words(type) * 8) {
		ut_diag("record %u of %u bytes", r->type, r->size);
		return -1;
	}
	parse_id(r, type, words + r->size / 8 - id_words(type));
	switch (r->type) {
	case PERF_RECORD_LOST:
		s->lost += words[2];
		break;
	case PERF_RECORD_LOST_SAMPLES:
		s->lost += words[1];
		break;
	case PERF_RECORD_COMM:
		r->comm = (char *)(words + 2);
		break;
	case UT_RECORD_CALLCHAIN_DEFERRED:
		r->cookie = words[1];
		r->nr = words[2];
		r->ips = words + 3;
		if (r->nr != (r->size - 24) / 8 - id_words(type)) {
			ut_diag("deferred record: nr %llu in %u bytes", r->nr, r->size);
			return -1;
		}
		break;
	}
	return 0;
}

static int drain_ring(struct ut_session *s, unsigned int idx)
{
	struct ut_ring *ring = &s->ring[idx];
	struct perf_event_mmap_page *page = ring->base;
	char *data = (char *)ring->base + sysconf(_SC_PAGESIZE);
	__u64 head = __atomic_load_n(&page->data_head, __ATOMIC_ACQUIRE);
	__u64 tail = page->data_tail;
	int err = 0;

	while (tail < head) {
		struct perf_event_header hdr;
		struct ut_rec r = { .ring = idx, .seq = s->nr_recs };
		size_t first, off = tail % ring->size;

		/* The sizes of records are multiples of 8 bytes, so a header never wraps. */
		memcpy(&hdr, data + off, sizeof(hdr));
		if (hdr.size < sizeof(hdr) || hdr.size % 8 || hdr.size > head - tail) {
			ut_diag("ring %u: record of %u bytes", idx, hdr.size);
			return -1;
		}
		r.type = hdr.type;
		r.misc = hdr.misc;
		r.size = hdr.size;
		r.raw = malloc(hdr.size);
		if (!r.raw)
			return -1;
		first = ring->size - off;
		if (first > hdr.size)
			first = hdr.size;
		memcpy(r.raw, data + off, first);
		memcpy((char *)r.raw + first, data, hdr.size - first);
		tail += hdr.size;
		if (parse(s, &r))
			err = -1;
		if (s->nr_recs == s->cap_recs) {
			s->cap_recs = s->cap_recs ? s->cap_recs * 2 : 256;
			s->rec = realloc(s->rec, s->cap_recs * sizeof(*s->rec));
			if (!s->rec)
				return -1;
		}
		s->rec[s->nr_recs++] = r;
	}
	__atomic_store_n(&page->data_tail, tail, __ATOMIC_RELEASE);
	return err;
}

static int cmp_time(const void *a, const void *b)
{
	const struct ut_rec *x = a, *y = b;

	if (x->time != y->time)
		return x->time < y->time ? -1 : 1;
	return x->seq < y->seq ? -1 : x->seq > y->seq;
}

int ut_drain(struct ut_session *s)
{
	size_t from = s->nr_recs;
	unsigned int i;
	int err = 0;

	for (i = 0; i < s->nr_rings; i++) {
		if (s->ring[i].base)
			err |= drain_ring(s, i);
	}
	/* A task that has moved has samples in several buffers. */
	if (s->nr_rings > 1)
		qsort(s->rec + from, s->nr_recs - from, sizeof(*s->rec), cmp_time);
	return err;
}

int ut_stop(struct ut_session *s)
{
	return ut_disable(s) || ut_drain(s) ? -1 : 0;
}

static int add_lost(int fd, __u64 *lost)
{
	__u64 val[2];

	if (read(fd, val, sizeof(val)) != sizeof(val))
		return -1;
	*lost += val[1];
	return 0;
}

int ut_lost(struct ut_session *s, __u64 *samples, __u64 *others)
{
	unsigned int i, e;
	int err = 0;

	*samples = 0;
	*others = 0;
	for (i = 0; i < s->nr_rings; i++) {
		err |= add_lost(s->ring[i].fd, others);
		for (e = 0; e < s->nr_events; e++)
			err |= add_lost(s->event[e].fd[i], samples);
	}
	return err;
}

void ut_forget(struct ut_session *s)
{
	size_t i;

	for (i = 0; i < s->nr_recs; i++)
		free(s->rec[i].raw);
	free(s->rec);
	s->rec = NULL;
	s->nr_recs = 0;
	s->cap_recs = 0;
	s->lost = 0;
}

void ut_close(struct ut_session *s)
{
	unsigned int i, e;

	for (e = 0; e < s->nr_events; e++)
		for (i = 0; i < s->nr_rings; i++)
			close(s->event[e].fd[i]);
	for (i = 0; i < s->nr_rings; i++) {
		ut_ring_unmap(&s->ring[i]);
		close(s->ring[i].fd);
	}
	s->nr_events = 0;
	s->nr_rings = 0;
	ut_forget(s);
}

/* If a cookie has several records, the longest one is the stack. */
struct ut_rec *ut_record_of(struct ut_session *s, __u32 tid, __u64 cookie)
{
	struct ut_rec *longest = NULL;
	size_t i;

	for (i = 0; i < s->nr_recs; i++) {
		struct ut_rec *r = &s->rec[i];

		if (r->type == UT_RECORD_CALLCHAIN_DEFERRED && r->tid == tid &&
		    r->cookie == cookie && (!longest || r->nr > longest->nr))
			longest = r;
	}
	return longest;
}

enum ut_kind ut_user_stack(struct ut_session *s, struct ut_rec *sample, struct ut_stack *st)
{
	struct ut_rec *r;
	bool user = false;
	__u64 i;

	st->nr = 0;
	if (sample->cookie) {
		r = ut_record_of(s, sample->tid, sample->cookie);
		if (!r)
			return UT_UNRESOLVED;
		for (i = 0; i < r->nr && i < UT_MAX_FRAMES; i++)
			st->ip[st->nr++] = r->ips[i];
		return UT_DEFERRED;
	}
	for (i = 0; i < sample->nr; i++) {
		if (sample->ips[i] >= UT_CONTEXT_MAX)
			user = sample->ips[i] == PERF_CONTEXT_USER;
		else if (user && st->nr < UT_MAX_FRAMES)
			st->ip[st->nr++] = sample->ips[i];
	}
	return st->nr ? UT_IMMEDIATE : UT_NO_STACK;
}

static bool is_event(struct ut_session *s, struct ut_rec *r, int event)
{
	if (event < 0)
		return true;
	/* An inherited event reports the id of the event that was opened. */
	return r->id == s->event[event].id[r->ring];
}

struct ut_rec *ut_sample(struct ut_session *s, int event, __u32 tid, unsigned int nth)
{
	size_t i;

	for (i = 0; i < s->nr_recs; i++) {
		struct ut_rec *r = &s->rec[i];

		if (r->type == PERF_RECORD_SAMPLE && (!tid || r->tid == tid) &&
		    is_event(s, r, event) && !nth--)
			return r;
	}
	return NULL;
}

unsigned int ut_count(struct ut_session *s, __u32 type, __u32 tid)
{
	unsigned int nr = 0;
	size_t i;

	for (i = 0; i < s->nr_recs; i++)
		nr += s->rec[i].type == type && (!tid || s->rec[i].tid == tid);
	return nr;
}

unsigned int ut_count_samples(struct ut_session *s, int event, __u32 tid)
{
	unsigned int nr = 0;
	size_t i;

	for (i = 0; i < s->nr_recs; i++)
		nr += s->rec[i].type == PERF_RECORD_SAMPLE &&
		      (!tid || s->rec[i].tid == tid) && is_event(s, &s->rec[i], event);
	return nr;
}

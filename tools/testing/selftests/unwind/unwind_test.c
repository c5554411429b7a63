// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <linux/hw_breakpoint.h>
#include <linux/loop.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "../kselftest.h"
#include "unwind_test.h"

int ut_out = -1;

void ut_need_root(void)
{
	if (geteuid())
		ksft_exit_skip("needs root: perf events on tracepoints and on all CPUs\n");
}

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

long ut_hz(void)
{
	struct timespec res;

	/* That clock goes with the tick. */
	clock_getres(CLOCK_MONOTONIC_COARSE, &res);
	return 1000000000 / res.tv_nsec;
}

long ut_sleeps(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nvcsw;
}

int ut_set_online(int cpu, bool on)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/online", cpu);
	return ut_write_sysctl(path, on);
}

unsigned int ut_all_online(int *cpus, unsigned int max)
{
	int cpu;

	for (cpu = 1; cpu < UT_MAX_CPUS; cpu++)
		ut_set_online(cpu, true);
	return ut_online_cpus(cpus, max);
}

int ut_userfault(void *page)
{
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffdio_api api = { .api = UFFD_API };
	int fd = syscall(__NR_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	reg.range.start = (unsigned long)page;
	reg.range.len = sysconf(_SC_PAGESIZE);
	if (fd >= 0 && !ioctl(fd, UFFDIO_API, &api) && !ioctl(fd, UFFDIO_REGISTER, &reg))
		return fd;
	return -errno;
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

	/* Of the sample's fields those that other records have in their trailer. */
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
		return -1;
	for (i = 0; i < s->nr_rings; i++) {
		if (ioctl(e->fd[i], PERF_EVENT_IOC_SET_OUTPUT, s->ring[i].fd) ||
		    ioctl(e->fd[i], PERF_EVENT_IOC_ID, &e->id[i])) {
			ut_diag("redirect: %s", strerror(errno));
			return -1;
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
		return -1;
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

int ut_add_instruction(struct ut_session *s, __u64 addr)
{
	struct perf_event_attr attr = {
		.type		= PERF_TYPE_BREAKPOINT,
		.bp_type	= HW_BREAKPOINT_X,
		.bp_addr	= addr,
		.bp_len		= sizeof(long),
		.sample_period	= 1,
		.exclude_user	= 1,
	};

	return ut_add(s, &attr);
}

int ut_add_function(struct ut_session *s, const char *name)
{
	__u64 start, end;

	if (ut_kallsyms(name, &start, &end))
		return -1;
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
		return -1;
	}
	snprintf(path, sizeof(path), PMUS "%s/format/retprobe", pmu);
	f = fopen(path, "r");
	if (!f || fscanf(f, "config:%ld", &bit) != 1) {
		ut_diag("%s: no bit", path);
		return -1;
	}
	fclose(f);
	attr.type = type;
	attr.config = ret ? 1ULL << bit : 0;
	return ut_add(s, &attr);
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
	return all_ioctl(s, PERF_EVENT_IOC_ENABLE, true);
}

/* The order that makes a profile whole: the tracking event goes last. */
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

		/* Records are multiples of 8 bytes: a header never wraps. */
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
	/* A task that has moved has its samples in several. */
	if (s->nr_rings > 1)
		qsort(s->rec + from, s->nr_recs - from, sizeof(*s->rec), cmp_time);
	return err;
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

void ut_dump(struct ut_session *s)
{
	size_t i;
	__u64 n;

	for (i = 0; i < s->nr_recs; i++) {
		struct ut_rec *r = &s->rec[i];

		fprintf(stderr, "# [%zu] ring %u type %u misc %u tid %u id %llu cookie %llx%s%s\n",
			i, r->ring, r->type, r->misc, r->tid, r->id, r->cookie,
			r->comm ? " comm " : "", r->comm ? r->comm : "");
		for (n = 0; n < r->nr; n++)
			fprintf(stderr, "#      %llx\n", r->ips[n]);
	}
}

struct ut_rec *ut_record_of(struct ut_session *s, __u32 tid, __u64 cookie)
{
	size_t i;

	for (i = 0; i < s->nr_recs; i++) {
		struct ut_rec *r = &s->rec[i];

		if (r->type == UT_RECORD_CALLCHAIN_DEFERRED && r->tid == tid &&
		    r->cookie == cookie)
			return r;
	}
	return NULL;
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
	/* An inherited event reports the number of the one that was opened. */
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

bool ut_stack_within(const struct ut_stack *got, const struct ut_stack *want)
{
	unsigned int i;

	for (i = 0; i < got->nr; i++) {
		if (i >= want->nr || got->ip[i] != want->ip[i]) {
			ut_diag("frame %u of %u (%u wanted): %llx, wanted %llx", i, got->nr,
				want->nr, got->ip[i], i < want->nr ? want->ip[i] : 0);
			return false;
		}
	}
	return true;
}

bool ut_same_stack(const struct ut_stack *got, const struct ut_stack *want)
{
	if (!ut_stack_within(got, want))
		return false;
	if (got->nr != want->nr) {
		ut_diag("%u frames, wanted %u", got->nr, want->nr);
		return false;
	}
	return true;
}

bool ut_stack_is(struct ut_session *s, struct ut_rec *sample, const struct ut_stack *want)
{
	struct ut_stack got;
	enum ut_kind kind;

	if (!sample) {
		ut_diag("no such sample");
		return false;
	}
	kind = ut_user_stack(s, sample, &got);
	if (kind != UT_DEFERRED) {
		ut_diag("%s", kind == UT_UNRESOLVED ? "cookie without a record" :
			kind == UT_IMMEDIATE ? "not deferred" : "no user stack");
		return false;
	}
	return ut_same_stack(&got, want);
}

bool ut_stack_is_late(struct ut_session *s, struct ut_rec *sample, const struct ut_stack *want)
{
	struct ut_stack got;

	if (!sample || ut_user_stack(s, sample, &got) != UT_IMMEDIATE)
		return ut_stack_is(s, sample, want);
	return ut_same_stack(&got, want);
}

static int check_sample(struct ut_rec *r)
{
	__u64 i;
	int bad = 0;

	for (i = 0; i < r->nr; i++) {
		if (r->ips[i] != UT_CONTEXT_USER_DEFERRED)
			continue;
		if (i + 2 != r->nr) {
			ut_diag("marker is word %llu of %llu", i, r->nr);
			bad++;
		} else if (!r->ips[i + 1]) {
			ut_diag("cookie of 0");
			bad++;
		}
		break;
	}
	return bad;
}

unsigned long ut_task_size(void)
{
	static unsigned long size;
	char line[8192];
	FILE *f;

	if (size)
		return size;
	size = (1UL << 47) - 4096;
	f = fopen("/proc/cpuinfo", "r");
	while (f && fgets(line, sizeof(line), f)) {
		/* Not told of where the kernel does not use it. */
		if (!strncmp(line, "flags", 5) && strstr(line, " la57"))
			size = (1UL << 56) - 4096;
	}
	if (f)
		fclose(f);
	return size;
}

static int check_record(struct ut_rec *r)
{
	__u64 i;
	int bad = 0;

	if (r->misc != PERF_RECORD_MISC_USER) {
		ut_diag("misc %u", r->misc);
		bad++;
	}
	for (i = 0; i < r->nr; i++) {
		if (!i && r->ips[0] >= UT_VSYSCALL_START && r->ips[0] < UT_VSYSCALL_END)
			continue;
		if (r->ips[i] >= ut_task_size() + 4096 || !r->ips[i]) {
			ut_diag("address %llu is %llx", i, r->ips[i]);
			bad++;
		}
	}
	return bad;
}

static int cmp_cookie(const void *a, const void *b)
{
	const struct ut_rec *ra = *(struct ut_rec * const *)a;
	const struct ut_rec *rb = *(struct ut_rec * const *)b;

	if (ra->tid != rb->tid)
		return ra->tid < rb->tid ? -1 : 1;
	if (ra->cookie != rb->cookie)
		return ra->cookie < rb->cookie ? -1 : 1;
	/* Where they stand in the session's list. */
	return ra < rb ? -1 : ra > rb;
}

/* All samples and the records of one (tid, cookie). */
static int check_group(struct ut_rec **g, size_t nr, unsigned int allow)
{
	struct ut_rec *rec = NULL;
	size_t i, samples = 0;
	int bad = 0;

	for (i = 0; i < nr; i++) {
		if (g[i]->type == PERF_RECORD_SAMPLE) {
			samples++;
			continue;
		}
		if (rec) {
			ut_diag("tid %u: two records for cookie %llx", rec->tid, rec->cookie);
			bad++;
		}
		rec = g[i];
	}
	if (!rec && !(allow & UT_ALLOW_UNRESOLVED)) {
		ut_diag("tid %u: no record for cookie %llx", g[0]->tid, g[0]->cookie);
		bad++;
	}
	for (i = 0; rec && i < nr; i++) {
		if (g[i]->time > rec->time) {
			ut_diag("tid %u: a sample names cookie %llx behind its record", rec->tid,
				rec->cookie);
			bad++;
		}
	}
	if (!samples && !(allow & (UT_ALLOW_FOREIGN | UT_ALLOW_LOST))) {
		ut_diag("tid %u: nobody waits for cookie %llx", g[0]->tid, g[0]->cookie);
		bad++;
	}
	return bad;
}

/* The record comes before what ends the meaning of its addresses. */
static int check_order(struct ut_session *s)
{
	size_t i, k;
	int bad = 0;

	for (i = 0; i < s->nr_recs; i++) {
		struct ut_rec *end = &s->rec[i];
		bool exec = end->type == PERF_RECORD_COMM &&
			    (end->misc & PERF_RECORD_MISC_COMM_EXEC);

		if (end->type != PERF_RECORD_EXIT && !exec)
			continue;
		for (k = 0; k < s->nr_recs; k++) {
			struct ut_rec *r = &s->rec[k], *sample;
			size_t n;

			if (r->type != UT_RECORD_CALLCHAIN_DEFERRED || r->tid != end->tid ||
			    r->time <= end->time)
				continue;
			/* It is late if a sample from before it waited for it. */
			for (n = 0; n < s->nr_recs; n++) {
				sample = &s->rec[n];
				if (sample->type == PERF_RECORD_SAMPLE && sample->tid == r->tid &&
				    sample->cookie == r->cookie && sample->time < end->time) {
					ut_diag("tid %u: record after the task's %s", r->tid,
						exec ? "exec" : "EXIT");
					bad++;
					break;
				}
			}
		}
	}
	return bad;
}

int ut_check(struct ut_session *s, unsigned int allow)
{
	struct ut_rec **list;
	size_t i, first, nr = 0;
	int bad = 0;

	list = calloc(s->nr_recs + 1, sizeof(*list));
	if (!list)
		return 1;
	for (i = 0; i < s->nr_recs; i++) {
		struct ut_rec *r = &s->rec[i];

		if (r->type == PERF_RECORD_SAMPLE)
			bad += check_sample(r);
		else if (r->type == UT_RECORD_CALLCHAIN_DEFERRED)
			bad += check_record(r);
		else
			continue;
		if (r->type == UT_RECORD_CALLCHAIN_DEFERRED && !r->cookie) {
			ut_diag("record with a cookie of 0");
			bad++;
		}
		if (r->cookie)
			list[nr++] = r;
	}
	qsort(list, nr, sizeof(*list), cmp_cookie);
	for (first = 0, i = 1; i <= nr; i++) {
		if (i < nr && list[i]->tid == list[first]->tid &&
		    list[i]->cookie == list[first]->cookie)
			continue;
		bad += check_group(list + first, i - first, allow);
		if (bad > 20) {
			ut_diag("and so on");
			break;
		}
		first = i;
	}
	free(list);
	if (s->lost && !(allow & UT_ALLOW_LOST)) {
		ut_diag("%llu records lost", s->lost);
		bad++;
	}
	bad += check_order(s);
	return bad;
}

void ut_walk_self(struct ut_stack *st, __u64 ip, void *fp)
{
	unsigned long *frame = fp, *last = NULL;
	unsigned int nr = 0;

	st->ip[nr++] = ip;
	/* A frame that is not above the last one ends a chain, as it does in the kernel. */
	while (frame > last && nr < UT_MAX_FRAMES) {
		st->ip[nr++] = frame[1];
		last = frame;
		frame = (unsigned long *)frame[0];
	}
	/*
	 * Whoever looks at it while the same call is made again finds it whole; pairs with
	 * UT_READ().
	 */
	__atomic_store_n(&st->nr, nr, __ATOMIC_RELEASE);
}

ut_noinline long ut_syscall(struct ut_stack *st, long nr, long a1, long a2, long a3, long a4,
			    long a5, long a6)
{
	register long r10 asm("r10");
	register long r8 asm("r8");
	register long r9 asm("r9");
	long ret;

	ut_walk_self(st, (unsigned long)ut_syscall_ret, __builtin_frame_address(0));
	r10 = a4;
	r8 = a5;
	r9 = a6;
	asm volatile("syscall\n"
		     ".globl ut_syscall_ret\n"
		     "ut_syscall_ret:\n"
		     : "=a" (ret), "+r" (r10), "+r" (r8), "+r" (r9)
		     : "0" (nr), "D" (a1), "S" (a2), "d" (a3)
		     : "rcx", "r11", "memory");
	return ret;
}

ut_noinline long ut_syscall_on(unsigned long sp, unsigned long fp, long nr, long a1, long a2,
			       long a3)
{
	asm volatile("mov %%rsp, %%r12\n"
		     "mov %%rbp, %%r13\n"
		     "mov %[sp], %%rsp\n"
		     "mov %[fp], %%rbp\n"
		     "syscall\n"
		     ".globl ut_syscall_on_ret\n"
		     "ut_syscall_on_ret:\n"
		     "mov %%r12, %%rsp\n"
		     "mov %%r13, %%rbp\n"
		     : "+a" (nr)
		     : [sp] "r" (sp), [fp] "r" (fp), "D" (a1), "S" (a2), "d" (a3)
		     : "rcx", "r11", "r12", "r13", "memory");
	return nr;
}

/* Runs fn(arg) on another stack. The frame pointer at its bottom is 0. */
asm(".text\n"
	".globl ut_switch_stack\n"
	".type ut_switch_stack, @function\n"
	"ut_switch_stack:\n"
	"	push %rbp\n"
	"	push %rbx\n"
	"	mov %rsp, %rbx\n"
	"	mov %rdx, %rsp\n"
	"	xor %ebp, %ebp\n"
	"	mov %rdi, %rax\n"
	"	mov %rsi, %rdi\n"
	"	call *%rax\n"
	"	mov %rbx, %rsp\n"
	"	pop %rbx\n"
	"	pop %rbp\n"
	"	ret\n"
	".size ut_switch_stack, . - ut_switch_stack\n");

typedef void (*rung_fn)(unsigned int left, ut_fn fn, void *arg);
static const rung_fn rungs[];

static inline UT_ATTRIBUTE(always_inline) void climb(unsigned int left, ut_fn fn, void *arg)
{
	if (left)
		rungs[(left - 1) % 8](left - 1, fn, arg);
	else
		fn(arg);
	/* Something is left to do after the call: it is not a jump. */
	asm volatile("" : : : "memory");
}

#define RUNG(n)									\
static ut_noinline void ut_rung_##n(unsigned int left, ut_fn fn, void *arg)	\
{										\
	climb(left, fn, arg);							\
	asm volatile("" : : "i" (n));						\
}

RUNG(0) RUNG(1) RUNG(2) RUNG(3) RUNG(4) RUNG(5) RUNG(6) RUNG(7)

static const rung_fn rungs[] = {
	ut_rung_0, ut_rung_1, ut_rung_2, ut_rung_3,
	ut_rung_4, ut_rung_5, ut_rung_6, ut_rung_7,
};

struct climber {
	unsigned int	depth;
	ut_fn		fn;
	void		*arg;
};

static ut_noinline void start_climb(void *data)
{
	struct climber *c = data;

	climb(c->depth, c->fn, c->arg);
}

int ut_ladder(unsigned int depth, ut_fn fn, void *arg)
{
	struct climber c = { .depth = depth, .fn = fn, .arg = arg };
	size_t size = 1 << 18;
	char *stack;

	stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (stack == MAP_FAILED) {
		ut_diag("stack: %s", strerror(errno));
		return -1;
	}
	ut_switch_stack(start_climb, &c, stack + size - 64);
	munmap(stack, size);
	return 0;
}

bool ut_is_ladder(const struct ut_stack *st, unsigned int depth, unsigned int above)
{
	unsigned int i;

	/* Above: the frames of fn(); below: start_climb() and ut_switch_stack(). */
	if (st->nr != above + depth + 2) {
		ut_diag("%u frames, wanted %u + %u + 2", st->nr, above, depth);
		return false;
	}
	for (i = 0; i < depth; i++) {
		__u64 start = (unsigned long)rungs[i % 8], ip = st->ip[above + i];

		if (ip <= start || ip > start + 256) {
			ut_diag("frame %u: %llx is not in rung %u at %llx", above + i, ip, i % 8,
				start);
			return false;
		}
	}
	return true;
}

void *ut_shared(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* Who asks for this attribute has all reads answered, those from before as well. */
#define FUSE_ANSWER	"user.answer"

/* The file system: one file, of one page. */
void ut_fuse_serve(int fd, struct ut_fuse *f)
{
	static char buf[1 << 18];
	struct fuse_in_header *in = (void *)buf;
	struct {
		struct fuse_out_header	hdr;
		union {
			struct fuse_init_out	init;
			struct fuse_attr_out	attr;
			struct fuse_open_out	open;
			struct fuse_write_out	write;
			char			page[4096];
			__u64			frame[2];
		};
	} out;
	bool answers = f->locked || f->before;
	unsigned int opened = 0, kept = 0;
	__u64 reads[16];

	while (1) {
		if (f->before)
			f->before(f);
		if (read(fd, buf, sizeof(buf)) < (ssize_t)sizeof(*in))
			break;
		if (in->opcode == FUSE_FORGET || in->opcode == FUSE_BATCH_FORGET ||
		    in->opcode == FUSE_INTERRUPT)
			continue;
		if (in->opcode == FUSE_READ && !answers) {
			if (kept < ARRAY_SIZE(reads))
				reads[kept++] = in->unique;
			continue;
		}
		memset(&out, 0, sizeof(out));
		out.hdr.unique = in->unique;
		out.hdr.len = sizeof(out.hdr);
		switch (in->opcode) {
		case FUSE_INIT:
			out.init.major = FUSE_KERNEL_VERSION;
			out.init.minor = FUSE_KERNEL_MINOR_VERSION;
			out.init.max_write = sizeof(out.page);
			/* Else who faults waits for the answer in a way that no signal ends. */
			out.init.max_readahead = sizeof(out.page);
			out.init.flags = f->sync ? 0 : FUSE_ASYNC_READ;
			out.hdr.len += sizeof(out.init);
			break;
		case FUSE_GETATTR:
			out.attr.attr_valid = 1000;
			out.attr.attr.ino = 1;
			out.attr.attr.size = sizeof(out.page);
			out.attr.attr.mode = S_IFREG | 0644;
			out.attr.attr.nlink = 1;
			out.hdr.len += sizeof(out.attr);
			break;
		case FUSE_OPEN:
			/* The second time it is ut_fuse_lock()'s. */
			out.open.open_flags = opened++ ? FOPEN_DIRECT_IO : 0;
			out.hdr.len += sizeof(out.open);
			break;
		case FUSE_GETXATTR:
			out.hdr.error = -ENODATA;
			if (strcmp((char *)in + sizeof(*in) + sizeof(struct fuse_getxattr_in),
				   FUSE_ANSWER))
				break;
			answers = true;
			out.hdr.error = 0;
			out.hdr.len += sizeof(out.page);
			while (kept) {
				out.hdr.unique = reads[--kept];
				if (write(fd, &out, out.hdr.len) < 0)
					break;
			}
			out.hdr.error = -ENODATA;
			out.hdr.unique = in->unique;
			out.hdr.len = sizeof(out.hdr);
			break;
		case FUSE_READ:
			out.frame[1] = f->frame;
			out.hdr.len += sizeof(out.page);
			break;
		case FUSE_WRITE:
			__atomic_store_n(f->locked, 1, __ATOMIC_RELEASE);
			if (f->ms < 0)
				continue;
			usleep(f->ms * 1000);
			out.write.size = ((struct fuse_write_in *)(in + 1))->size;
			out.hdr.len += sizeof(out.write);
			break;
		default:
			out.hdr.error = -EOPNOTSUPP;
			break;
		}
		if (write(fd, &out, out.hdr.len) < 0)
			break;
	}
}

int ut_fuse_mount(struct ut_fuse *f)
{
	char data[96];
	int fd, file;

	snprintf(f->path, sizeof(f->path), "/tmp/unwind_fuse.XXXXXX");
	file = mkstemp(f->path);
	fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	snprintf(data, sizeof(data), "fd=%d,rootmode=100000,user_id=0,group_id=0", fd);
	if (file < 0 || fd < 0 || mount("fuse", f->path, "fuse", MS_NODEV, data)) {
		ut_diag("FUSE: %s; CONFIG_FUSE_FS?", strerror(errno));
		return -1;
	}
	close(file);
	return fd;
}

static int fuse_begin(struct ut_fuse *f)
{
	int fd = ut_fuse_mount(f);
	pid_t server;

	if (fd < 0)
		return -1;
	/* *f may be memory that the server shares. */
	server = fork();
	if (!server) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		ut_fuse_serve(fd, f);
		_exit(0);
	}
	f->server = server;
	/* Without the server everything that waits for it fails. */
	close(fd);
	return 0;
}

void *ut_fuse_map(const struct ut_fuse *f, int prot, int flags)
{
	long size = sysconf(_SC_PAGESIZE);
	void *page = MAP_FAILED;
	struct stat st = {};
	int file;

	file = open(f->path, O_RDWR | O_CLOEXEC);
	/* This asks for its size. */
	if (!fstat(file, &st) && st.st_size == size)
		page = mmap(NULL, size, prot, flags, file, 0);
	if (page == MAP_FAILED)
		ut_diag("FUSE: %s, %ld bytes", strerror(errno), (long)st.st_size);
	close(file);
	return page;
}

static int fuse_page(struct ut_fuse *f, int prot, int flags)
{
	f->direct = -1;
	f->page = MAP_FAILED;
	if (!fuse_begin(f)) {
		f->page = ut_fuse_map(f, prot, flags);
		f->direct = open(f->path, O_RDONLY | O_CLOEXEC);
	}
	if (f->page != MAP_FAILED && f->direct >= 0)
		return 0;
	ut_fuse_end(f);
	return -1;
}

int ut_fuse_page(struct ut_fuse *f, bool sync)
{
	*f = (struct ut_fuse){ .sync = sync };
	return fuse_page(f, PROT_READ, MAP_PRIVATE);
}

/* A free loop device with the file behind it, until nobody has it open any more. */
static int fuse_loop(const struct ut_fuse *f)
{
	int ctl = open("/dev/loop-control", O_RDWR | O_CLOEXEC), dev = -1, tries, nr;
	struct loop_config config = { .info.lo_flags = LO_FLAGS_AUTOCLEAR };
	char path[32];

	config.fd = open(f->path, O_RDONLY | O_CLOEXEC);
	/* Another one may take it first. */
	for (tries = 0; tries < 10 && dev < 0; tries++) {
		nr = ioctl(ctl, LOOP_CTL_GET_FREE);
		if (nr < 0)
			break;
		snprintf(path, sizeof(path), "/dev/loop%d", nr);
		dev = open(path, O_RDONLY | O_CLOEXEC);
		if (dev >= 0 && ioctl(dev, LOOP_CONFIGURE, &config)) {
			close(dev);
			dev = -1;
		}
	}
	if (dev < 0)
		ut_diag("loop: %s; CONFIG_BLK_DEV_LOOP?", strerror(errno));
	close(config.fd);
	close(ctl);
	return dev;
}

int ut_device_page(struct ut_fuse *f)
{
	long size = sysconf(_SC_PAGESIZE);
	struct stat st;
	int dev;

	*f = (struct ut_fuse){ .direct = -1, .page = MAP_FAILED };
	/* The size of the device is that of the file, which has to be known. */
	if (!fuse_begin(f) && !stat(f->path, &st) && st.st_size == size) {
		dev = fuse_loop(f);
		if (dev >= 0) {
			f->page = mmap(NULL, size, PROT_READ, MAP_PRIVATE, dev, 0);
			f->device = f->page != MAP_FAILED;
			close(dev);
		}
	}
	if (f->device)
		return 0;
	ut_fuse_end(f);
	return -1;
}

int ut_fuse_slow_page(struct ut_fuse *f, int ms)
{
	*f = (struct ut_fuse){ .ms = ms, .locked = ut_shared(sizeof(*f->locked)) };
	return f->locked ? fuse_page(f, PROT_READ | PROT_WRITE, MAP_SHARED) : -1;
}

void ut_fuse_lock(struct ut_fuse *f)
{
	__atomic_store_n((char *)f->page, 1, __ATOMIC_RELAXED);
	/*
	 * A file that is not to be cached: what is in the cache is written first, by
	 * the file's mmap function, with the memory map locked.
	 */
	mmap(NULL, sysconf(_SC_PAGESIZE), PROT_READ, MAP_PRIVATE, f->direct, 0);
}

void ut_fuse_end(struct ut_fuse *f)
{
	char value[8];

	/* What is read of the device fails otherwise, and the kernel's log tells of it. */
	if (f->device) {
		getxattr(f->path, FUSE_ANSWER, value, sizeof(value));
		munmap(f->page, sysconf(_SC_PAGESIZE));
	}
	f->device = false;
	if (f->server > 0) {
		kill(f->server, SIGKILL);
		waitpid(f->server, NULL, 0);
	}
	f->server = 0;
	if (f->direct > 0)
		close(f->direct);
	f->direct = -1;
	umount2(f->path, MNT_DETACH);
	unlink(f->path);
}

int ut_read_all(int fd, void *buf, size_t size)
{
	size_t done = 0;
	ssize_t n;

	while (done < size) {
		n = read(fd, (char *)buf + done, size - done);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			ut_diag("read: %s", n ? strerror(errno) : "end of file");
			return -1;
		}
		done += n;
	}
	return 0;
}

int ut_write_all(int fd, const void *buf, size_t size)
{
	return write(fd, buf, size) == (ssize_t)size ? 0 : -1;
}

bool ut_has_32bit(void)
{
	int status, pid = fork();

	if (!pid) {
		long ret = 20;	/* getpid() of the i386 */

		/* Where it is none it raises SIGSEGV. */
		asm volatile("int $0x80" : "+a" (ret) : : "memory", "r8", "r9", "r10", "r11");
		_exit(ret != getpid());
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
	       !WEXITSTATUS(status);
}

int ut_fork(struct ut_child *c, ut_fn fn, void *arg)
{
	int go[2], out[2];
	pid_t pid;
	char byte;

	if (pipe2(go, O_CLOEXEC) || pipe2(out, O_CLOEXEC))
		return -1;
	/* Room for more than one struct ut_stack: the child never waits for the reader. */
	fcntl(out[1], F_SETPIPE_SZ, 1 << 18);
	/* *c may be memory that the child shares: only the parent writes to it. */
	pid = fork();
	if (pid < 0)
		return -1;
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(go[1]);
		close(out[0]);
		ut_out = out[1];
		if (read(go[0], &byte, 1) == 1)
			fn(arg);
		_exit(0);
	}
	close(go[0]);
	close(out[1]);
	c->pid = pid;
	c->go = go[1];
	c->out = out[0];
	/* It waits: none of this will be among the samples. */
	return ut_wait_state(pid, "S") ? 0 : -1;
}

int ut_go(struct ut_child *c)
{
	return ut_write_all(c->go, "g", 1);
}

int ut_wait(struct ut_child *c)
{
	int status;

	if (waitpid(c->pid, &status, 0) != c->pid)
		status = -1;
	close(c->go);
	close(c->out);
	return status;
}

int ut_wait_gone(struct ut_child *c)
{
	siginfo_t info = {};
	int i;

	for (i = 0; i < 1000 && !info.si_pid; i++) {
		if (waitid(P_PID, c->pid, &info, WEXITED | WNOHANG | WNOWAIT))
			return -1;
		if (!info.si_pid)
			usleep(10000);
	}
	return info.si_pid ? ut_wait(c) : -1;
}

int ut_task_state(pid_t tid)
{
	char path[64], buf[512], *p;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	n = read(fd, buf, sizeof(buf) - 1);
	close(fd);
	if (n <= 0)
		return -1;
	buf[n] = 0;
	p = strrchr(buf, ')');
	return p && p[1] ? p[2] : -1;
}

bool ut_wait_state(pid_t tid, const char *states)
{
	int i, state = 0;

	for (i = 0; i < 2000; i++) {
		state = ut_task_state(tid);
		if (state > 0 && strchr(states, state))
			return true;
		usleep(5000);
	}
	ut_diag("task %d is in state %c, wanted one of %s", tid, state, states);
	return false;
}

int ut_cgroup(struct ut_cgroup *f, pid_t pid)
{
	char path[128];

	snprintf(f->root, sizeof(f->root), "/tmp/unwind_cgroup.XXXXXX");
	if (!mkdtemp(f->root) || mount("none", f->root, "cgroup2", 0, NULL)) {
		ut_diag("%s: %s", f->root, strerror(errno));
		return -1;
	}
	snprintf(f->group, sizeof(f->group), "%s/unwind_test", f->root);
	snprintf(path, sizeof(path), "%s/cgroup.procs", f->group);
	if (mkdir(f->group, 0755) || ut_write_sysctl(path, pid)) {
		ut_diag("%s: %s", f->group, strerror(errno));
		return -1;
	}
	return 0;
}

int ut_freeze(struct ut_cgroup *f, bool freeze)
{
	bool frozen = false;
	char path[128], line[64];
	int i;

	snprintf(path, sizeof(path), "%s/cgroup.freeze", f->group);
	if (ut_write_sysctl(path, freeze))
		return -1;
	snprintf(path, sizeof(path), "%s/cgroup.events", f->group);
	for (i = 0; freeze && i < 1000 && !frozen; i++) {
		FILE *events = fopen(path, "r");

		while (events && fgets(line, sizeof(line), events))
			frozen |= !strcmp(line, "frozen 1\n");
		if (events)
			fclose(events);
		usleep(5000);
	}
	return frozen == freeze ? 0 : -1;
}

int ut_cgroup_cpu(struct ut_cgroup *f, int cpu)
{
	char path[128];
	int fd, err;

	snprintf(path, sizeof(path), "%s/cgroup.subtree_control", f->root);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	err = ut_write_all(fd, "+cpuset", 7);
	close(fd);
	snprintf(path, sizeof(path), "%s/cpuset.cpus", f->group);
	if (!err && !ut_write_sysctl(path, cpu))
		return 0;
	ut_diag("%s: %s; CONFIG_CPUSETS?", path, strerror(errno));
	return -1;
}

void ut_cgroup_end(struct ut_cgroup *f)
{
	rmdir(f->group);
	umount2(f->root, MNT_DETACH);
	rmdir(f->root);
}

int ut_read_sysctl(const char *path, long *val)
{
	FILE *f = fopen(path, "r");
	int ok = f && fscanf(f, "%ld", val) == 1;

	if (f)
		fclose(f);
	return ok ? 0 : -1;
}

int ut_write_sysctl(const char *path, long val)
{
	char buf[32];
	int fd = open(path, O_WRONLY | O_CLOEXEC), len, err;

	if (fd < 0)
		return -1;
	len = snprintf(buf, sizeof(buf), "%ld", val);
	err = write(fd, buf, len) == len ? 0 : -1;
	close(fd);
	return err;
}

static int find_function(const char *name, size_t len, __u64 *start, __u64 *end)
{
	unsigned long long addr, first = 0;
	char type, sym[512], line[1024];
	FILE *f;

	*start = 0;
	*end = 0;
	f = fopen("/proc/kallsyms", "r");
	if (!f)
		return -1;
	/* The text of the kernel proper is in the order of its addresses. */
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%llx %c %511s", &addr, &type, sym) != 3)
			continue;
		if (first && addr > first && addr - first > *end - *start) {
			*start = first;
			*end = addr;
		}
		if (addr != first)
			first = 0;
		if ((type == 't' || type == 'T') && !strncmp(sym, name, len))
			first = addr;
	}
	fclose(f);
	return *start ? 0 : -1;
}

int ut_kallsyms(const char *prefix, __u64 *start, __u64 *end)
{
	return find_function(prefix, strlen(prefix), start, end);
}

int ut_kernel_function(const char *name, __u64 *start, __u64 *end)
{
	return find_function(name, strlen(name) + 1, start, end);
}

bool ut_kernel_checks_itself(void)
{
	__u64 start, end;

	return !ut_kallsyms("kasan_report", &start, &end) || !ut_kallsyms("kcsan_", &start, &end);
}

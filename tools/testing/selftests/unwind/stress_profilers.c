// SPDX-License-Identifier: GPL-2.0
/* The profilers of the stress program, and their checks. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../kselftest.h"
#include "stress.h"

enum { OWN_CHILD, SOMEBODY, ALL_CPUS };
enum { ENTER, EXIT, RUNTIME = 7 };

struct profiler {
	struct ut_session	s;
	struct ut_opts		opts;
	int			whom;
	pid_t			target;		/* the task, if it is only one */
	int			enter;		/* the event with the arguments, or -1 */
	bool			quiet;		/* no profiled task runs at the end */
};

static const char * const tracepoints[][2] = {
	[ENTER] = { "raw_syscalls", "sys_enter" },
	[EXIT] = { "raw_syscalls", "sys_exit" },
	{ "sched", "sched_switch" },
	{ "sched", "sched_process_exit" },
	{ "sched", "sched_process_exec" },
	{ "signal", "signal_deliver" },
	{ "sched", "sched_waking" },
	[RUNTIME] = { "sched", "sched_stat_runtime" },
};

static int tracepoint_id[ARRAY_SIZE(tracepoints)];
static int uprobe_type = -1;
static unsigned long probe_offset;
static unsigned long task_size;

static int add_event(struct profiler *p, int kind)
{
	struct perf_event_attr attr = {
		.type		= PERF_TYPE_TRACEPOINT,
		.sample_period	= 1 + rnd(3),
	};
	int nr;

	if (kind < (int)ARRAY_SIZE(tracepoints)) {
		attr.config = tracepoint_id[kind];
		/* This event counts nanoseconds. */
		if (kind == RUNTIME)
			attr.sample_period = 200000 + rnd(2000000);
		nr = ut_add(&p->s, &attr);
		if (nr >= 0 && kind == ENTER)
			p->enter = nr;
		return nr;
	}
	switch (kind - ARRAY_SIZE(tracepoints)) {
	case 0:
		attr.type = PERF_TYPE_SOFTWARE;
		attr.config = PERF_COUNT_SW_CPU_CLOCK;
		attr.sample_period = 500000 + rnd(2000000);
		break;
	case 1:
		attr.type = PERF_TYPE_SOFTWARE;
		attr.config = PERF_COUNT_SW_PAGE_FAULTS;
		break;
	case 2:
		attr.type = PERF_TYPE_SOFTWARE;
		attr.config = PERF_COUNT_SW_CONTEXT_SWITCHES;
		break;
	default:
		if (uprobe_type < 0)
			return 0;
		attr.type = uprobe_type;
		attr.config = rnd(2);
		attr.uprobe_path = (unsigned long)self_path;
		attr.probe_offset = probe_offset;
		attr.sample_period = 1;
		nr = ut_add(&p->s, &attr);
		if (nr >= 0)
			add(&tot->probes, 1);
		return nr;
	}
	return ut_add(&p->s, &attr);
}

static struct profiler *me;	/* this profiler, for the messages of bad() */

static int bad(const char *what, struct ut_rec *r)
{
	struct ut_rec *other;
	size_t k;
	__u64 i;

	if (!add(&tot->bad, 0))
		ut_diag("the first one");
	ut_diag("profiler %d of %d: pid %d per_cpu %d inherit %d max_stack %u quiet %d",
		getpid(), me->whom, me->opts.pid, me->opts.per_cpu, me->opts.inherit,
		me->opts.max_stack, me->quiet);
	ut_diag("%s: record type %u of tid %u, cookie %#llx, time %llu", what, r->type, r->tid,
		r->cookie, r->time);
	for (i = 0; i < r->nr && i < 12; i++)
		ut_diag("  %#llx", r->ips[i]);
	for (k = 0; k < me->s.nr_recs; k++) {
		other = &me->s.rec[k];
		if (other != r && r->cookie && other->cookie == r->cookie)
			ut_diag("  the same cookie: type %u, event %llu, tid %u, time %llu",
				other->type, other->id, other->tid, other->time);
	}
	add(&tot->bad, 1);
	return -1;
}

/*
 * Check the user part of a callchain. A deferred one has only user addresses. If there is a
 * stamp behind the first address, it must be a stamp of the task, with the right frames
 * behind it. Returns the serial number, 0 if there is no stamp, or -1 if something is wrong.
 * The stack may be cut if one of its pages was moved or reclaimed at that moment.
 */
static long check_user(struct profiler *p, struct ut_rec *r, const __u64 *ip, __u64 nr)
{
	bool deferred = r->type == UT_RECORD_CALLCHAIN_DEFERRED;
	__u32 task, found = 0;
	__u64 i, depth, hash;

	/* An immediate walk takes any words for addresses. */
	for (i = 0; i < nr && deferred; i++) {
		if (!i && ip[0] >= UT_VSYSCALL_START && ip[0] < UT_VSYSCALL_END)
			continue;
		if ((i && ip[i] < PAGE) || ip[i] >= task_size + PAGE)
			return bad("not a user address", r);
	}
	if (nr < 2 || (ip[1] >> 32 != STAMP_TASK >> 32 && ip[1] >> 32 != STAMP_TASK_CUT >> 32))
		return 0;
	task = ip[1];
	depth = task >> 22;
	if (nr > 4 + depth)
		return bad("more than the stamp says", r);
	if (nr < 4)
		goto short_of_it;
	if (ip[2] >> 32 != STAMP_SERIAL >> 32)
		return bad("no serial number in the stamp", r);
	found = ip[2];
	hash = ip[3] - stamp_hash(task, found);
	if (hash != STAMP_HASH && hash != STAMP_HASH_KIN && hash != STAMP_HASH_EXEC)
		return bad("wrong hash in the stamp", r);
	/* In an exec an immediate walk may find the old stack when the tid is new already. */
	if ((task & 0x3fffff) != r->tid &&
	    (hash == STAMP_HASH || (hash == STAMP_HASH_EXEC && deferred)))
		return bad("another task's stack", r);
	for (i = 4; i < nr; i++) {
		if (ip[i] != stamp_frame(i - 4))
			return bad("wrong frame behind the stamp", r);
	}
	add(&tot->stamped, 1);
short_of_it:
	if (nr < 4 + depth && nr < (p->opts.max_stack ?: MAX_CHAIN) && deferred &&
	    ip[1] >> 32 == STAMP_TASK >> 32)
		add(&tot->cut, 1);
	return nr < 4 ? 0 : found;
}

/*
 * The serial number in the arguments of the system call, or 0 if there is none. @nr gets the
 * number of the system call.
 */
static __u32 args_serial(struct profiler *p, struct ut_rec *r, int *nr)
{
	const __u64 *words = r->ips + r->nr, *end = (__u64 *)((char *)r->raw + r->size);
	__u64 arg;
	__u32 size;

	if (p->enter < 0 || r->id != p->s.event[p->enter].id[r->ring] || words >= end)
		return 0;
	/* The raw data: its size, 8 bytes of common fields, the number, six arguments. */
	size = (__u32)*words;
	if (size < 64 || (const char *)words + 4 + size > (const char *)end)
		return 0;
	memcpy(nr, (const char *)words + 4 + 8, sizeof(*nr));
	memcpy(&arg, (const char *)words + 4 + 16 + 5 * 8, sizeof(arg));
	return arg >> 32 == STAMP_ARG >> 32 ? (__u32)arg : 0;
}

/* Check a sample by itself, without its record. */
static void check_sample(struct profiler *p, struct ut_rec *r)
{
	bool user = false;
	__u64 i, first = 0;
	long found;
	__u32 want;
	int nr;

	add(&tot->samples, 1);
	for (i = 0; i < r->nr; i++) {
		if (r->ips[i] == UT_CONTEXT_USER_DEFERRED) {
			if (user || i + 2 != r->nr || !r->ips[i + 1]) {
				bad("marker without a cookie, or not at the end", r);
				return;
			}
			add(&tot->deferred, 1);
			return;
		}
		if (r->ips[i] == (__u64)PERF_CONTEXT_USER) {
			user = true;
			first = i + 1;
		} else if (!user && r->ips[i] < task_size) {
			bad("user address among the kernel's", r);
			return;
		}
	}
	if (!user) {
		add(&tot->none, 1);
		return;
	}
	add(&tot->immediate, 1);
	found = check_user(p, r, r->ips + first, r->nr - first);
	want = args_serial(p, r, &nr);
	if (found > 0 && want && found != want)
		bad("stack of another system call", r);
}

/* Check all samples and records of one (tid, cookie). The records have the same stack. */
static void check_group(struct profiler *p, struct ut_rec **g, size_t nr)
{
	struct ut_rec *rec = NULL;
	unsigned long records = 0;
	__u32 want;
	long found;
	int called;
	size_t i;

	for (i = 0; i < nr; i++) {
		if (g[i]->type == PERF_RECORD_SAMPLE)
			continue;
		records++;
		if (!rec || g[i]->nr > rec->nr)
			rec = g[i];
	}
	if (!rec)
		return;
	add(&tot->records, 1);
	add(&tot->again, records - 1);
	add(&tot->empty, !rec->nr);
	found = check_user(p, rec, rec->ips, rec->nr);
	for (i = 0; i < nr; i++) {
		if (g[i]->type != PERF_RECORD_SAMPLE)
			continue;
		add(&tot->merged, 1);
		want = args_serial(p, g[i], &called);
		if (found >= 0 && want && rec->nr > 3 && found != (long)want) {
			bad("record of another system call", rec);
			bad("  its sample", g[i]);
		}
		if (want && !rec->nr && !failing)
			bad("a stack that is there was not read", rec);
	}
}

/* Check all records. @ended: the events were disabled in order before the last read. */
static void account(struct profiler *p, bool ended)
{
	__u64 lost_samples = 0, lost_records = 0;
	unsigned int allow = UT_ALLOW_AGAIN | UT_ALLOW_EARLY;
	struct ut_rec **list;
	size_t i, first, nr = 0;
	bool lost;

	/* Events of an offline CPU cannot be read, so their losses are not known. */
	lost = ut_lost(&p->s, &lost_samples, &lost_records) || lost_samples || lost_records ||
	       p->s.lost;
	if (ended) {
		add(&tot->lost_samples, lost_samples);
		add(&tot->lost_records, lost_records);
	} else {
		allow |= UT_ALLOW_UNRESOLVED;
	}
	if (ut_check(&p->s, allow | (lost ? UT_ALLOW_LOST : 0))) {
		ut_diag("of profiler %d of %d: pid %d per_cpu %d inherit %d quiet %d ended %d",
			getpid(), p->whom, p->opts.pid, p->opts.per_cpu, p->opts.inherit,
			p->quiet, ended);
		add(&tot->bad, 1);
	}

	list = calloc(p->s.nr_recs + 1, sizeof(*list));
	if (!list)
		return;
	for (i = 0; i < p->s.nr_recs; i++) {
		struct ut_rec *r = &p->s.rec[i];

		if (r->type == PERF_RECORD_SAMPLE)
			check_sample(p, r);
		else if (r->type != UT_RECORD_CALLCHAIN_DEFERRED)
			continue;
		if (p->target && r->tid != p->target)
			bad("a task that is not profiled", r);
		if (r->cookie)
			list[nr++] = r;
	}
	qsort(list, nr, sizeof(*list), ut_cmp_cookie);
	for (first = 0, i = 1; i <= nr; i++) {
		if (i < nr && list[i]->tid == list[first]->tid &&
		    list[i]->cookie == list[first]->cookie)
			continue;
		check_group(p, list + first, i - first);
		first = i;
	}
	free(list);
	if (ended && p->quiet && !lost)
		add(&tot->exact, 1);
}

static void child_works(void *arg)
{
	int i, n = 1 + rnd(4);

	for (i = 0; i < n; i++)
		work[rnd(NR_WORK)]();
}

static void reap_all(void)
{
	while (waitpid(-1, NULL, __WALL) > 0 || errno == EINTR)
		;
}

static bool open_session(struct profiler *p)
{
	int i, n;

	if (ut_open(&p->s, &p->opts))
		return false;
	if (rnd(3) && add_event(p, ENTER) < 0)
		return false;
	for (i = 0, n = rnd(3) + (p->enter < 0); i < n; i++) {
		if (add_event(p, EXIT + rnd(ARRAY_SIZE(tracepoints) + 3)) < 0)
			return false;
	}
	return !ut_enable(&p->s);
}

/* End the session in any way but the orderly one. */
static void end_badly(struct profiler *p)
{
	static char * const argv[] = { "leaf", LEAF, NULL };
	struct ut_session *s = &p->s;
	unsigned int i;

	account(p, false);
	switch (rnd(7)) {
	case 0:
		for (i = 0; i < s->nr_rings; i++)
			ut_ring_unmap(&s->ring[i]);
		nap(rnd(3000));
		break;
	case 1:
		for (i = 0; i < s->nr_rings; i++)
			close(s->ring[i].fd);
		nap(rnd(3000));
		break;
	case 2:
		ioctl(s->ring[0].fd, PERF_EVENT_IOC_DISABLE, PERF_IOC_FLAG_GROUP);
		break;
	case 3:
		prctl(PR_TASK_PERF_EVENTS_DISABLE, 0, 0, 0, 0);
		break;
	case 4:
		raise(SIGKILL);
		break;
	case 5:
		execv(self_path, argv);
		break;
	}
	ut_close(s);
}

/* The life of a profiler, in a process of its own. */
void session(void)
{
	struct profiler *p = calloc(1, sizeof(*p));
	struct ut_child c = { .pid = -1 };
	int i, n;

	if (!p || stop())
		return;
	add(&tot->sessions, 1);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	me = p;
	p->enter = -1;
	p->whom = rnd(5) / 2;
	p->opts.per_cpu = rnd(2);
	p->opts.sideband = rnd(2);
	p->opts.pages = 1 << rnd(9);
	p->opts.sample_type = UT_SAMPLE_TYPE | PERF_SAMPLE_RAW;
	if (!rnd(3))
		p->opts.max_stack = 1 + rnd(MAX_CHAIN);
	switch (p->whom) {
	case OWN_CHILD:
		p->opts.inherit = p->opts.per_cpu && rnd(4);
		if (ut_fork(&c, child_works, NULL))
			return;
		p->opts.pid = c.pid;
		break;
	case SOMEBODY:
		p->opts.inherit = p->opts.per_cpu && rnd(2);
		p->opts.pid = UT_READ(tot->worker[rnd(NR_WORK)]);
		break;
	case ALL_CPUS:
		p->opts.pid = -1;
		p->opts.per_cpu = true;
		break;
	}
	if (!p->opts.inherit && p->whom != ALL_CPUS)
		p->target = p->opts.pid;
	if (!open_session(p)) {
		add(&tot->refused, 1);
		return;
	}
	if (p->whom == OWN_CHILD)
		ut_go(&c);
	for (i = 0, n = rnd(6); i < n; i++) {
		nap(rnd(40000));
		if (ut_drain(&p->s))
			add(&tot->bad, 1);
	}
	if (p->whom == OWN_CHILD && rnd(4)) {
		if (!rnd(3))
			kill(c.pid, SIGKILL);
		reap_all();
		p->quiet = true;
	}
	if (rnd(3)) {
		if (ut_stop(&p->s))
			add(&tot->bad, 1);
		account(p, true);
		add(&tot->ended, 1);
		ut_close(&p->s);
	} else {
		end_badly(p);
	}
	if (p->whom == OWN_CHILD && !p->quiet)
		kill(c.pid, SIGKILL);
	reap_all();
}

void prepare_sessions(void)
{
	char path[PATH_MAX];
	unsigned int i;
	long val;

	for (i = 0; i < ARRAY_SIZE(tracepoints); i++) {
		tracepoint_id[i] = ut_tracepoint_id(tracepoints[i][0], tracepoints[i][1]);
		if (tracepoint_id[i] < 0)
			ksft_exit_fail_msg("no tracepoint %s\n", tracepoints[i][1]);
	}
	if (!ut_read_sysctl("/sys/bus/event_source/devices/uprobe/type", &val))
		uprobe_type = val;
	probe_offset = ut_file_offset(probed, path);
	task_size = ut_task_size();
}

// SPDX-License-Identifier: GPL-2.0
/* Checks that must hold for the records of every test. */
#include <stdlib.h>
#include <string.h>

#include "../kselftest.h"
#include "unwind_test.h"

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

int ut_cmp_cookie(const void *a, const void *b)
{
	const struct ut_rec *ra = *(struct ut_rec * const *)a;
	const struct ut_rec *rb = *(struct ut_rec * const *)b;

	if (ra->tid != rb->tid)
		return ra->tid < rb->tid ? -1 : 1;
	if (ra->cookie != rb->cookie)
		return ra->cookie < rb->cookie ? -1 : 1;
	/* Else keep the order of the session's list. */
	return ra < rb ? -1 : ra > rb;
}

/* Check all samples and records of one (tid, cookie), whatever buffers they are in. */
static int check_group(struct ut_rec **g, size_t nr, unsigned int allow)
{
	struct ut_rec *longest = NULL;
	size_t i, samples = 0;
	int bad = 0;

	for (i = 0; i < nr; i++) {
		if (g[i]->type == PERF_RECORD_SAMPLE)
			samples++;
		else if (!longest || g[i]->nr > longest->nr)
			longest = g[i];
	}
	/* A stack does not change within a kernel entry. A record may only be shorter. */
	for (i = 0; i < nr; i++) {
		if (g[i]->type == PERF_RECORD_SAMPLE)
			continue;
		if (memcmp(g[i]->ips, longest->ips, g[i]->nr * sizeof(*g[i]->ips))) {
			ut_diag("tid %u: two stacks of cookie %llx", g[i]->tid, g[i]->cookie);
			bad++;
		}
	}
	if (!samples && !(allow & (UT_ALLOW_FOREIGN | UT_ALLOW_LOST))) {
		ut_diag("tid %u: nobody waits for cookie %llx", g[0]->tid, g[0]->cookie);
		bad++;
	}
	return bad;
}

/* The state of a task, as the reader of one buffer knows it. */
struct reader_task {
	__u32		tid;
	__u64		waits;		/* the cookie that waits for a record; 0: none */
	__u64		had;		/* the cookie of the last record since the switch-in */
};

struct reader {
	struct reader_task	*task;
	size_t			nr;
};

static struct reader_task *reader_task(struct reader *b, __u32 tid)
{
	struct reader_task *task;
	size_t i;

	for (i = 0; i < b->nr; i++) {
		if (b->task[i].tid == tid)
			return &b->task[i];
	}
	task = realloc(b->task, (b->nr + 1) * sizeof(*task));
	if (!task)
		ksft_exit_fail_msg("no memory\n");
	b->task = task;
	task += b->nr++;
	*task = (struct reader_task){ .tid = tid };
	return task;
}

/* How does the task leave its CPU or its image with this record? NULL: it does not. */
static const char *leaves(const struct ut_rec *r)
{
	switch (r->type) {
	case PERF_RECORD_EXIT:
		return "EXIT";
	case PERF_RECORD_COMM:
		return r->misc & PERF_RECORD_MISC_COMM_EXEC ? "exec" : NULL;
	case PERF_RECORD_SWITCH:
	case PERF_RECORD_SWITCH_CPU_WIDE:
		return r->misc & PERF_RECORD_MISC_SWITCH_OUT ? "switch-out" : NULL;
	}
	return NULL;
}

static int read_in_order(struct reader *b, const struct ut_rec *r, unsigned int allow)
{
	struct reader_task *task = reader_task(b, r->tid);
	const char *what;
	int bad = 0;

	if (r->type == PERF_RECORD_SAMPLE) {
		if (!r->cookie)
			return 0;
		if (task->waits && task->waits != r->cookie && !(allow & UT_ALLOW_LOST)) {
			ut_diag("tid %u: cookie %llx while %llx waits", r->tid, r->cookie,
				task->waits);
			bad++;
		}
		if (!(allow & UT_ALLOW_EARLY) || task->had != r->cookie)
			task->waits = r->cookie;
		return bad;
	}
	if (r->type == UT_RECORD_CALLCHAIN_DEFERRED) {
		if (task->waits != r->cookie && !(allow & ~UT_ALLOW_UNRESOLVED)) {
			ut_diag("tid %u: a record that nothing in buffer %u waits for, cookie %llx",
				r->tid, r->ring, r->cookie);
			bad++;
		}
		if (task->waits == r->cookie)
			task->waits = 0;
		task->had = r->cookie;
		return bad;
	}
	what = leaves(r);
	if (!what)
		return 0;
	if (task->waits && !(allow & UT_ALLOW_LOST)) {
		ut_diag("tid %u: cookie %llx has no record in buffer %u before the task's %s",
			r->tid, task->waits, r->ring, what);
		bad++;
	}
	task->waits = 0;
	task->had = 0;
	return bad;
}

static int cmp_ring(const void *a, const void *b)
{
	const struct ut_rec *x = *(struct ut_rec * const *)a, *y = *(struct ut_rec * const *)b;

	if (x->ring != y->ring)
		return x->ring < y->ring ? -1 : 1;
	return x->seq < y->seq ? -1 : x->seq > y->seq;
}

int ut_check_order(struct ut_session *s, unsigned int allow)
{
	struct reader b = {};
	struct ut_rec **list;
	size_t i, k;
	int bad = 0;

	list = calloc(s->nr_recs + 1, sizeof(*list));
	if (!list)
		return 1;
	for (i = 0; i < s->nr_recs; i++)
		list[i] = &s->rec[i];
	/* In the order in which a reader of each buffer finds them. */
	qsort(list, s->nr_recs, sizeof(*list), cmp_ring);
	for (i = 0; i < s->nr_recs; i++) {
		bad += read_in_order(&b, list[i], allow);
		if (i + 1 < s->nr_recs && list[i + 1]->ring == list[i]->ring)
			continue;
		for (k = 0; k < b.nr; k++) {
			if (!b.task[k].waits || (allow & (UT_ALLOW_UNRESOLVED | UT_ALLOW_LOST)))
				continue;
			ut_diag("tid %u: cookie %llx has no record in buffer %u", b.task[k].tid,
				b.task[k].waits, list[i]->ring);
			bad++;
		}
		b.nr = 0;
	}
	free(b.task);
	free(list);
	return bad;
}

unsigned int ut_allow_lost(struct ut_session *s)
{
	__u64 samples, others;

	/* The buffer does not report records that were lost at its end. */
	ut_lost(s, &samples, &others);
	return s->lost || samples || others ? UT_ALLOW_LOST : 0;
}

bool ut_one_record(struct ut_session *s, const struct ut_rec *sample)
{
	unsigned int records = 0;
	bool again = true;
	size_t i;

	for (i = 0; i < s->nr_recs; i++) {
		struct ut_rec *r = &s->rec[i];

		if (r->tid != sample->tid)
			continue;
		if (leaves(r)) {
			again = true;
		} else if (r->type == UT_RECORD_CALLCHAIN_DEFERRED &&
			   r->cookie == sample->cookie) {
			if (!again) {
				ut_diag("tid %u: cookie %llx has two records in a row", r->tid,
					r->cookie);
				return false;
			}
			again = false;
			records++;
		}
	}
	return records;
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
	qsort(list, nr, sizeof(*list), ut_cmp_cookie);
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
	bad += ut_check_order(s, allow);
	return bad;
}

// SPDX-License-Identifier: GPL-2.0
/*
 * The interface, bit for bit: attribute, sample, record, cookie.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

#define MAX_CONTEXTS	"/proc/sys/kernel/perf_event_max_contexts_per_stack"

static const struct ut_opts self_task = { .pid = 0, .switches = true };
static const struct ut_opts output_only = { .pid = 0 };
static const struct ut_opts self_cpus = { .pid = 0, .per_cpu = true };

FIXTURE(abi) {
	struct ut_session s;
	long contexts;
};

FIXTURE_SETUP(abi)
{
	ASSERT_EQ(0, ut_read_sysctl(MAX_CONTEXTS, &self->contexts));
}

FIXTURE_TEARDOWN(abi)
{
	ut_close(&self->s);
	ut_write_sysctl(MAX_CONTEXTS, self->contexts);
}

static void one_getppid(void *arg)
{
	ut_syscall0(arg, __NR_getppid);
}

static void two_getppids(void *arg)
{
	struct ut_stack *st = arg;
	int i;

	/* With the same registers, which do not tell one from the other. */
	for (i = 0; i < 2; i++) {
		ut_syscall0(&st[i], __NR_getppid);
		asm volatile("" : : : "memory");
	}
}

static int dummy_with(__u64 flags, __u32 size)
{
	struct perf_event_attr attr = {
		.type		= PERF_TYPE_SOFTWARE,
		.size		= size,
		.config		= PERF_COUNT_SW_DUMMY,
		.sample_type	= PERF_SAMPLE_CALLCHAIN,
		.sample_period	= 1,
		.disabled	= 1,
	};

	*ut_attr_flags(&attr) |= flags;
	return ut_perf_open(&attr, 0, -1, -1, 0);
}

TEST_F(abi, flag_bits)
{
	int fd, bit;

	fd = dummy_with(UT_DEFER_CALLCHAIN, UT_ATTR_SIZE);
	ASSERT_GE(fd, 0) TH_LOG("bit 38: %s", strerror(errno));
	close(fd);
	fd = dummy_with(UT_DEFER_OUTPUT, UT_ATTR_SIZE);
	ASSERT_GE(fd, 0) TH_LOG("bit 39: %s", strerror(errno));
	close(fd);
	fd = dummy_with(UT_DEFER_CALLCHAIN | UT_DEFER_OUTPUT, UT_ATTR_SIZE);
	ASSERT_GE(fd, 0) TH_LOG("bits 38 and 39: %s", strerror(errno));
	close(fd);
	for (bit = UT_FIRST_RESERVED_BIT; bit < 64; bit++) {
		errno = 0;
		EXPECT_EQ(-1, dummy_with(1ULL << bit, UT_ATTR_SIZE)) TH_LOG("bit %d", bit);
		EXPECT_EQ(EINVAL, errno) TH_LOG("bit %d", bit);
	}
}

/* The structure has not grown. The kernel reports its size if a larger one is used. */
TEST_F(abi, attr_size)
{
	struct {
		struct perf_event_attr attr;
		char more[256];
	} big = {};

	memset(&big, 0, sizeof(big));
	big.attr.type = PERF_TYPE_SOFTWARE;
	big.attr.config = PERF_COUNT_SW_DUMMY;
	big.attr.size = UT_ATTR_SIZE + 8;
	*ut_attr_flags(&big.attr) = UT_DEFER_CALLCHAIN;
	((char *)&big)[UT_ATTR_SIZE] = 1;
	EXPECT_EQ(-1, ut_perf_open(&big.attr, 0, -1, -1, 0));
	EXPECT_EQ(E2BIG, errno);
	EXPECT_EQ(UT_ATTR_SIZE, big.attr.size);
	/* The flag word is a part of the structure's first version. */
	EXPECT_LE(0, dummy_with(UT_DEFER_CALLCHAIN | UT_DEFER_OUTPUT, PERF_ATTR_SIZE_VER0));
}

/* The uapi header of this tree has the same numbers. */
TEST_F(abi, uapi_header)
{
#ifdef UAPI_HAS_DEFER
	struct perf_event_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.defer_callchain = 1;
	EXPECT_EQ(UT_DEFER_CALLCHAIN, *ut_attr_flags(&attr));
	attr.defer_callchain = 0;
	attr.defer_output = 1;
	EXPECT_EQ(UT_DEFER_OUTPUT, *ut_attr_flags(&attr));
	attr.defer_output = 0;
	attr.__reserved_1 = ~0;
	EXPECT_EQ(~0ULL << UT_FIRST_RESERVED_BIT, *ut_attr_flags(&attr));
	EXPECT_EQ(UT_ATTR_SIZE, sizeof(attr));
	EXPECT_EQ(UT_CONTEXT_USER_DEFERRED, (__u64)PERF_CONTEXT_USER_DEFERRED);
	EXPECT_EQ(UT_RECORD_CALLCHAIN_DEFERRED, (int)PERF_RECORD_CALLCHAIN_DEFERRED);
	EXPECT_EQ(UT_RECORD_CALLCHAIN_DEFERRED + 1, (int)PERF_RECORD_MAX);
#else
	ASSERT_TRUE(false)
		TH_LOG("built without the interface's header: run make headers in the tree first");
#endif
}

/* A sample in the kernel has the kernel frames, then marker and cookie, and no more. */
TEST_F(abi, sample_layout)
{
	struct ut_stack st;
	struct ut_rec *r;
	__u64 i, markers = 0;
	int tp;

	ASSERT_EQ(0, ut_open(&self->s, &self_task));
	tp = ut_add_tracepoint(&self->s, "task", "task_rename");
	ASSERT_EQ(0, ut_enable(&self->s));
	ASSERT_EQ(0, ut_syscall2(&st, __NR_prctl, 15 /* PR_SET_NAME */, "renamed"));
	ASSERT_EQ(0, ut_stop(&self->s));

	r = ut_sample(&self->s, tp, 0, 0);
	ASSERT_NE(NULL, r);
	ASSERT_GT(r->nr, 3);
	EXPECT_EQ((__u64)PERF_CONTEXT_KERNEL, r->ips[0]);
	for (i = 1; i < r->nr - 2; i++) {
		EXPECT_LT(r->ips[i], UT_CONTEXT_MAX) TH_LOG("word %llu", i);
		EXPECT_GT(r->ips[i], 1ULL << 63) TH_LOG("word %llu", i);
	}
	for (i = 0; i < r->nr; i++)
		markers += r->ips[i] == (__u64)PERF_CONTEXT_USER;
	EXPECT_EQ(0, markers);
	EXPECT_EQ(UT_CONTEXT_USER_DEFERRED, r->ips[r->nr - 2]);
	EXPECT_NE(0, r->ips[r->nr - 1]);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

TEST_F(abi, record_layout)
{
	struct perf_event_header *hdr;
	struct ut_stack st;
	struct ut_rec *sample, *r;
	__u64 *w, i;
	int tp;

	ASSERT_EQ(0, ut_open(&self->s, &self_task));
	tp = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid");
	ASSERT_EQ(0, ut_profile_ladder(&self->s, 10, one_getppid, &st));
	ASSERT_TRUE(ut_is_ladder(&st, 10, 2));

	ASSERT_EQ(1, ut_count(&self->s, PERF_RECORD_SAMPLE, 0));
	sample = ut_sample(&self->s, tp, 0, 0);
	EXPECT_TRUE(ut_one_record(&self->s, sample));
	r = ut_record_of(&self->s, gettid(), sample->cookie);
	ASSERT_NE(NULL, r);
	EXPECT_LT(sample, r);

	hdr = r->raw;
	w = r->raw;
	EXPECT_EQ(22, hdr->type);
	EXPECT_EQ(PERF_RECORD_MISC_USER, hdr->misc);
	/* header, cookie, nr, addresses; tid, time, id, cpu */
	EXPECT_EQ(8 * (3 + st.nr + 4), hdr->size);
	EXPECT_EQ(sample->ips[sample->nr - 1], w[1]);
	ASSERT_EQ(st.nr, w[2]);
	for (i = 0; i < st.nr; i++)
		EXPECT_EQ(st.ip[i], w[3 + i]);
	w += 3 + st.nr;
	EXPECT_EQ(getpid(), (__u32)w[0]);
	EXPECT_EQ(gettid(), w[0] >> 32);
	EXPECT_LE(sample->time, w[1]);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* The trailer has the fields of the tracking event's sample_type, in their order. */
TEST_F(abi, sample_id_trailer)
{
	static const __u64 bits[] = {
		PERF_SAMPLE_TID, PERF_SAMPLE_TIME, PERF_SAMPLE_ID,
		PERF_SAMPLE_STREAM_ID, PERF_SAMPLE_CPU, PERF_SAMPLE_IDENTIFIER,
	};
	unsigned int set, i;

	for (set = 0; set < 1 << ARRAY_SIZE(bits); set++) {
		struct ut_opts opts = self_task;
		struct ut_stack st;
		struct ut_rec *r = NULL;
		__u64 *w, id, before, nr = 0;
		size_t k;

		opts.sample_type = PERF_SAMPLE_CALLCHAIN;
		for (i = 0; i < ARRAY_SIZE(bits); i++)
			opts.sample_type |= set & (1 << i) ? bits[i] : 0;
		opts.pages = 8;
		ASSERT_EQ(0, ut_open(&self->s, &opts));
		ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid"));
		ASSERT_EQ(0, ioctl(self->s.ring[0].fd, PERF_EVENT_IOC_ID, &id));
		ASSERT_EQ(0, ut_profile_ladder(&self->s, 3, one_getppid, &st));

		for (k = 0; k < self->s.nr_recs; k++) {
			if (self->s.rec[k].type == UT_RECORD_CALLCHAIN_DEFERRED)
				r = &self->s.rec[k];
		}
		ASSERT_NE(NULL, r);
		w = r->raw;
		ASSERT_EQ(st.nr, w[2]);
		ASSERT_EQ(8 * (3 + st.nr + __builtin_popcount(set)), r->size);
		w += 3 + st.nr;
		before = w - (__u64 *)r->raw;
		for (i = 0; i < ARRAY_SIZE(bits); i++) {
			if (!(set & (1 << i)))
				continue;
			switch (bits[i]) {
			case PERF_SAMPLE_TID:
				EXPECT_EQ((__u64)gettid() << 32 | getpid(), w[nr]);
				break;
			case PERF_SAMPLE_TIME:
				EXPECT_LT(0, w[nr]);
				break;
			case PERF_SAMPLE_CPU:
				EXPECT_GT(UT_MAX_CPUS, w[nr]);
				break;
			default:
				EXPECT_EQ(id, w[nr]) TH_LOG("set %#x", set);
				break;
			}
			nr++;
		}
		EXPECT_EQ(r->size / 8, before + nr);
		ut_close(&self->s);
	}
}

TEST_F(abi, no_sample_id_all)
{
	struct perf_event_attr attr = {
		.type		= PERF_TYPE_TRACEPOINT,
		.size		= UT_ATTR_SIZE,
		.sample_period	= 1,
		.sample_type	= PERF_SAMPLE_TID | PERF_SAMPLE_CALLCHAIN,
		.disabled	= 1,
	};
	struct perf_event_mmap_page *page;
	struct ut_ring ring = { .cpu = -1 };
	struct ut_stack st;
	__u64 *w;
	int fd;

	attr.config = ut_tracepoint_id("syscalls", "sys_enter_getppid");
	*ut_attr_flags(&attr) |= UT_DEFER_CALLCHAIN | UT_DEFER_OUTPUT;
	fd = ut_perf_open(&attr, 0, -1, -1, 0);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, ut_ring_map(&ring, fd, 8));
	ASSERT_EQ(0, ioctl(fd, PERF_EVENT_IOC_ENABLE, 0));
	ASSERT_EQ(0, ut_ladder(3, one_getppid, &st));
	ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);

	page = ring.base;
	w = (__u64 *)((char *)ring.base + page->data_offset);
	/* The sample: header, tid, nr, marker, cookie. */
	ASSERT_EQ(PERF_RECORD_SAMPLE, (__u32)w[0]);
	ASSERT_EQ(8 * 5, w[0] >> 48);
	/* The record: header, cookie, nr, addresses. */
	EXPECT_EQ(UT_RECORD_CALLCHAIN_DEFERRED, (__u32)w[5]);
	EXPECT_EQ(8 * (3 + st.nr), w[5] >> 48);
	EXPECT_EQ(w[4], w[6]);
	EXPECT_EQ(st.nr, w[7]);
	/* There are more records if the task was preempted. */
	EXPECT_EQ(0, (page->data_head - 8 * 5) % (8 * (3 + st.nr)));
	ut_ring_unmap(&ring);
	close(fd);
}

/* Whatever the limits are, there is no marker without its cookie. */
TEST_F(abi, marker_with_cookie)
{
	unsigned int deferred = 0;
	int contexts, depth;
	__u64 i;

	for (contexts = 0; contexts <= 3; contexts++) {
		ASSERT_EQ(0, ut_write_sysctl(MAX_CONTEXTS, contexts));
		for (depth = 0; depth <= 4; depth++) {
			struct ut_opts opts = self_task;
			struct ut_stack st;
			struct ut_rec *r;
			int tp[2], k;

			opts.max_stack = depth;
			opts.pages = 8;
			ASSERT_EQ(0, ut_open(&self->s, &opts));
			/* One sample with kernel frames, and one without */
			tp[0] = ut_add_tracepoint(&self->s, "task", "task_rename");
			tp[1] = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_prctl");
			ASSERT_EQ(0, ut_enable(&self->s));
			ASSERT_EQ(0, ut_syscall2(&st, __NR_prctl, 15, "renamed"));
			ASSERT_EQ(0, ut_stop(&self->s));
			for (k = 0; k < 2; k++) {
				r = ut_sample(&self->s, tp[k], 0, 0);
				ASSERT_NE(NULL, r);
				/* Is there room for marker, cookie and the kernel's context? */
				EXPECT_EQ(contexts >= 3 - k, !!r->cookie)
					TH_LOG("contexts %d depth %d event %d", contexts,
					       depth, k);
				for (i = 0; i < r->nr; i++) {
					if (r->ips[i] != UT_CONTEXT_USER_DEFERRED)
						continue;
					EXPECT_EQ(i + 2, r->nr)
						TH_LOG("contexts %d depth %d", contexts, depth);
					deferred += i + 2 == r->nr && r->ips[i + 1];
				}
			}
			EXPECT_EQ(0, ut_check(&self->s, 0))
				TH_LOG("contexts %d depth %d", contexts, depth);
			ut_close(&self->s);
		}
	}
	/* The marker is there if there is room. */
	EXPECT_LT(10, deferred);
	EXPECT_EQ(0, ut_write_sysctl(MAX_CONTEXTS, self->contexts));
}

/* A call that is sampled in such a session has its stack. */
static void expect_its_stack(struct __test_metadata *_metadata, struct ut_session *s,
			     const struct ut_opts *opts)
{
	struct ut_stack st;

	ASSERT_EQ(0, ut_open(s, opts));
	ASSERT_EQ(0, ut_add_tracepoint(s, "syscalls", "sys_enter_getppid"));
	ASSERT_EQ(0, ut_profile_ladder(s, 5, one_getppid, &st));
	EXPECT_TRUE(ut_stack_is(s, ut_sample(s, 0, 0, 0), &st));
	EXPECT_EQ(0, ut_check(s, 0));
}

/*
 * An event with defer_output receives the records, although it has none of mmap,
 * comm and task.
 */
TEST_F(abi, output_only_per_task)
{
	expect_its_stack(_metadata, &self->s, &output_only);
}

TEST_F(abi, output_only_per_task_and_cpu)
{
	expect_its_stack(_metadata, &self->s, &self_cpus);
}

TEST_F(abi, output_only_per_cpu)
{
	static const struct ut_opts all = { .pid = -1, .per_cpu = true };
	int cpus[UT_MAX_CPUS], tp;
	struct ut_rec *sample, *rec;
	struct ut_stack st;

	ASSERT_EQ(0, ut_pin(0, cpus[ut_online_cpus(cpus, UT_MAX_CPUS) - 1]));

	ASSERT_EQ(0, ut_open(&self->s, &all));
	tp = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid");
	ASSERT_EQ(0, ut_profile_ladder(&self->s, 5, one_getppid, &st));
	sample = ut_sample(&self->s, tp, gettid(), 0);
	ASSERT_TRUE(ut_stack_is(&self->s, sample, &st));
	rec = ut_record_of(&self->s, gettid(), sample->cookie);
	ASSERT_NE(NULL, rec);
	EXPECT_EQ(sample->ring, rec->ring);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* A sampling event may have defer_output, too. */
TEST_F(abi, one_event_for_both)
{
	struct ut_opts opts = self_task;

	opts.no_output = true;
	opts.flags = UT_DEFER_OUTPUT;
	expect_its_stack(_metadata, &self->s, &opts);
	EXPECT_TRUE(ut_one_record(&self->s, ut_sample(&self->s, 0, 0, 0)));
}

/* If no event has defer_output, no record is written. */
TEST_F(abi, no_output_event)
{
	struct ut_opts opts = self_task;
	struct ut_stack st;

	opts.no_output = true;
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid"));
	ASSERT_EQ(0, ut_profile_ladder(&self->s, 5, one_getppid, &st));
	EXPECT_EQ(1, ut_count(&self->s, PERF_RECORD_SAMPLE, 0));
	EXPECT_EQ(0, ut_count(&self->s, UT_RECORD_CALLCHAIN_DEFERRED, 0));
}

/* An event without defer_callchain keeps its immediate callchain beside one with it. */
TEST_F(abi, event_that_did_not_ask)
{
	struct ut_stack st, got;
	struct ut_rec *r;
	int now, later;

	ASSERT_EQ(0, ut_open(&self->s, &self_task));
	later = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid");
	self->s.opts.immediate = true;
	now = ut_add_tracepoint(&self->s, "syscalls", "sys_exit_getppid");
	ASSERT_EQ(0, ut_profile_ladder(&self->s, 5, one_getppid, &st));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, later, 0, 0), &st));
	r = ut_sample(&self->s, now, 0, 0);
	ASSERT_NE(NULL, r);
	EXPECT_EQ(UT_IMMEDIATE, ut_user_stack(&self->s, r, &got));
	EXPECT_TRUE(ut_same_stack(&got, &st));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

static const __u64 exclude_callchain_user = 1ULL << 22;
static const __u64 exclude_callchain_kernel = 1ULL << 21;

/* With exclude_callchain_user there is no marker and no record. */
TEST_F(abi, exclude_callchain_user)
{
	struct ut_opts opts = self_task;
	struct ut_rec *r;
	struct ut_stack st;
	__u64 i;
	int tp;

	opts.flags = exclude_callchain_user;
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	tp = ut_add_tracepoint(&self->s, "task", "task_rename");
	ASSERT_EQ(0, ut_enable(&self->s));
	ASSERT_EQ(0, ut_syscall2(&st, __NR_prctl, 15, "renamed"));
	ASSERT_EQ(0, ut_stop(&self->s));
	r = ut_sample(&self->s, tp, 0, 0);
	ASSERT_NE(NULL, r);
	EXPECT_LT(1, r->nr);
	for (i = 0; i < r->nr; i++) {
		EXPECT_NE(UT_CONTEXT_USER_DEFERRED, r->ips[i]);
		EXPECT_NE((__u64)PERF_CONTEXT_USER, r->ips[i]);
	}
	EXPECT_EQ(0, ut_count(&self->s, UT_RECORD_CALLCHAIN_DEFERRED, 0));
}

/* With exclude_callchain_kernel the callchain is only marker and cookie. */
TEST_F(abi, exclude_callchain_kernel)
{
	struct ut_opts opts = self_task;
	struct ut_rec *r;
	struct ut_stack st;
	int tp;

	opts.flags = exclude_callchain_kernel;
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	tp = ut_add_tracepoint(&self->s, "task", "task_rename");
	ASSERT_EQ(0, ut_enable(&self->s));
	ASSERT_EQ(0, ut_syscall2(&st, __NR_prctl, 15, "renamed"));
	ASSERT_EQ(0, ut_stop(&self->s));
	r = ut_sample(&self->s, tp, 0, 0);
	ASSERT_NE(NULL, r);
	ASSERT_EQ(2, r->nr);
	EXPECT_EQ(UT_CONTEXT_USER_DEFERRED, r->ips[0]);
	EXPECT_NE(0, r->ips[1]);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* PERF_SAMPLE_STACK_USER and REGS_USER go with a deferred callchain. */
TEST_F(abi, with_regs_and_stack_user)
{
	struct ut_opts opts = self_task;
	struct perf_event_attr attr = {
		.type			= PERF_TYPE_TRACEPOINT,
		.sample_period		= 1,
		.sample_regs_user	= 1ULL << 7 | 1ULL << 8,	/* SP, IP */
		.sample_stack_user	= 256,
	};
	struct ut_rec *r;
	struct ut_stack st;
	unsigned int i, n;
	__u64 *w;
	int tp;

	opts.sample_type = UT_SAMPLE_TYPE | PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER;
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	attr.config = ut_tracepoint_id("syscalls", "sys_enter_getppid");
	tp = ut_add(&self->s, &attr);
	ASSERT_EQ(0, ut_profile_ladder(&self->s, 5, one_getppid, &st));
	r = ut_sample(&self->s, tp, 0, 0);
	EXPECT_TRUE(ut_stack_is(&self->s, r, &st));
	/* Behind the callchain: abi, sp, ip, the stack's size, its bytes, the used size. */
	w = r->ips + r->nr;
	EXPECT_EQ(PERF_SAMPLE_REGS_ABI_64, w[0]);
	EXPECT_EQ(st.ip[0], w[2]);
	ASSERT_EQ(256, w[3]);
	EXPECT_EQ(256, w[4 + 256 / sizeof(*w)]);
	/* The copy of the stack has the return addresses of the record, in order. */
	for (i = 0, n = 1; i < 256 / sizeof(*w); i++)
		n += n < st.nr && w[4 + i] == st.ip[n];
	EXPECT_LE(4, n);
}

static int cmp_u64(const void *a, const void *b)
{
	__u64 x = *(const __u64 *)a, y = *(const __u64 *)b;

	return x < y ? -1 : x > y;
}

/* K2: a thousand system calls have a thousand cookies. */
TEST_F(abi, cookie_is_unique)
{
	struct ut_opts opts = self_cpus;
	struct ut_stack st[2];
	__u64 cookie[1000];
	size_t i, nr = 0;

	opts.pages = 512;
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid"));
	ASSERT_EQ(0, ut_enable(&self->s));
	for (i = 0; i < 500; i++)
		ASSERT_EQ(0, ut_ladder(2, two_getppids, st));
	ASSERT_EQ(0, ut_stop(&self->s));
	ASSERT_EQ(1000, ut_count(&self->s, PERF_RECORD_SAMPLE, 0));
	for (i = 0; i < self->s.nr_recs; i++) {
		if (self->s.rec[i].type == PERF_RECORD_SAMPLE)
			cookie[nr++] = self->s.rec[i].cookie;
	}
	qsort(cookie, nr, sizeof(*cookie), cmp_u64);
	EXPECT_NE(0, cookie[0]);
	for (i = 1; i < nr; i++)
		EXPECT_NE(cookie[i - 1], cookie[i]);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

int main(int argc, char **argv)
{
	ut_need_root();
	return test_harness_run(argc, argv);
}

// SPDX-License-Identifier: GPL-2.0
/*
 * K17: failing allocations. All allocations for deferral are made when an event is opened,
 * or when a table is loaded. The test makes each of them fail in turn. Nothing must crash,
 * and the next event, or the next try, works. Tables count for the cgroup of who loads them.
 *
 * The test needs CONFIG_FAILSLAB, CONFIG_FAIL_PAGE_ALLOC, CONFIG_FAULT_INJECTION_DEBUG_FS,
 * CONFIG_FAULT_INJECTION_STACKTRACE_FILTER and CONFIG_MEMCG. It fails without them, so it is
 * not run by default.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../kselftest_harness.h"
#include "unwind_table.h"

#define MAX_STACK	"/proc/sys/kernel/perf_event_max_stack"
#define DEPTH		6
/* The buffers of a CPU fit into a page: kvmalloc() has another way for larger ones. */
#define MAX_FRAMES	200
#define MANY		1000000000L

/* The points of fault injection. */
static const char * const points[] = { "failslab", "fail_page_alloc" };

static int point_write(const char *point, const char *name, const char *fmt, __u64 val)
{
	char path[128], text[32];
	int fd, len, err = 0;

	snprintf(path, sizeof(path), "/sys/kernel/debug/%s/%s", point, name);
	len = snprintf(text, sizeof(text), fmt, val);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, text, len) != len) {
		ut_diag("%s: %s; CONFIG_FAULT_INJECTION_DEBUG_FS?", path, strerror(errno));
		err = -1;
	}
	if (fd >= 0)
		close(fd);
	return err;
}

/* The number of failures since arm(). */
static long failures(const char *point)
{
	char path[128];
	long left;

	snprintf(path, sizeof(path), "/sys/kernel/debug/%s/times", point);
	return ut_read_sysctl(path, &left) ? -1 : MANY - left;
}

/*
 * Let @percent % of the allocations in @func and its callees fail. With 0 %, only the
 * allocations that fail_nth() selects fail.
 */
static int arm(const char *point, const char *func, int percent)
{
	__u64 start, end;

	if (ut_kallsyms(func, &start, &end)) {
		ut_diag("no function %s", func);
		return -1;
	}
	return point_write(point, "stacktrace-depth", "%llu", 32) ||
	       point_write(point, "require-start", "%#llx", start) ||
	       point_write(point, "require-end", "%#llx", end) ||
	       point_write(point, "ignore-gfp-wait", "%c", 'N') ||
	       (!strcmp(point, "fail_page_alloc") &&
		(point_write(point, "min-order", "%llu", 0) ||
		 /* This includes the allocations of vmalloc(). */
		 point_write(point, "ignore-gfp-highmem", "%c", 'N'))) ||
	       point_write(point, "verbose", "%llu", 0) ||
	       point_write(point, "interval", "%llu", 1) ||
	       point_write(point, "times", "%llu", MANY) ||
	       point_write(point, "probability", "%llu", percent) ? -1 : 0;
}

static void disarm(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(points); i++) {
		point_write(points[i], "probability", "%llu", 0);
		point_write(points[i], "require-start", "%llu", 0);
		point_write(points[i], "require-end", "%#llx", ULONG_MAX);
	}
}

/* Let the @nth allocation fail that this thread makes in the function of arm(); 0: none. */
static int fail_nth(int nth)
{
	return ut_write_sysctl("/proc/thread-self/fail-nth", nth);
}

/* Did it fail? If not, there were fewer allocations. */
static bool has_failed(void)
{
	long left = -1;

	return !ut_read_sysctl("/proc/thread-self/fail-nth", &left) && !left;
}

static void one_call(void *arg)
{
	ut_syscall0(arg, __NR_getppid);
}

static void nap(void *arg)
{
	struct timespec ts = { .tv_nsec = 100000 };

	ut_syscall2(arg, __NR_nanosleep, &ts, NULL);
}

FIXTURE(failures) {
	struct ut_session s;
	long max;
};

FIXTURE_SETUP(failures)
{
	ASSERT_EQ(0, ut_read_sysctl(MAX_STACK, &self->max));
}

FIXTURE_TEARDOWN(failures)
{
	fail_nth(0);
	disarm();
	ut_close(&self->s);
	ut_write_sysctl(MAX_STACK, self->max);
}

/* The functions that walk stacks and hand them out. */
static const char * const places[] = {
	"unwind_deferred_task_work", "__unwind_deferred_flush",
};

/* Walking a stack and handing it out allocates nothing that could fail. */
TEST_F(failures, none_at_run_time)
{
	struct ut_opts opts = { .switches = true };
	struct ut_stack want[2];
	unsigned int p, i, k;

	for (p = 0; p < ARRAY_SIZE(places); p++) {
		ASSERT_EQ(0, ut_open(&self->s, &opts));
		ASSERT_EQ(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid"));
		ASSERT_EQ(1, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_nanosleep"));
		ASSERT_EQ(0, ut_enable(&self->s));
		for (i = 0; i < ARRAY_SIZE(points); i++)
			ASSERT_EQ(0, arm(points[i], places[p], 100));
		for (i = 0; i < 20; i++) {
			ASSERT_EQ(0, ut_ladder(DEPTH, one_call, &want[0]));
			ASSERT_EQ(0, ut_ladder(DEPTH, nap, &want[1]));
		}
		for (i = 0; i < ARRAY_SIZE(points); i++)
			EXPECT_EQ(0, failures(points[i])) TH_LOG("%s", places[p]);
		disarm();
		ASSERT_EQ(0, ut_stop(&self->s));
		for (k = 0; k < 2; k++) {
			ASSERT_EQ(20, ut_count_samples(&self->s, k, getpid()));
			for (i = 0; i < 20; i++)
				EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, k, 0, i),
							&want[k]));
		}
		EXPECT_EQ(0, ut_check(&self->s, 0));
		ut_close(&self->s);
	}
}

static int open_session(struct ut_session *s)
{
	struct ut_opts opts = { .max_stack = MAX_FRAMES };

	if (ut_open(s, &opts))
		return -1;
	return ut_add_tracepoint(s, "syscalls", "sys_enter_getppid") < 0 ? -1 : 0;
}

/* Does a sample have its stack, deferred or, if an allocation has @failed, immediate? */
static bool has_stack(struct ut_session *s, bool failed)
{
	struct ut_stack want;
	struct ut_rec *r;

	if (ut_profile_ladder(s, DEPTH, one_call, &want))
		return false;
	r = ut_sample(s, 0, getpid(), 0);
	if (failed && r && !r->cookie)
		return ut_stack_is_immediate(s, r, &want) && !ut_check(s, 0);
	return ut_stack_is(s, r, &want) && !ut_check(s, 0);
}

/*
 * If an allocation fails, the event is refused, or its stacks are walked immediately. The
 * stacks of the next event are deferred again.
 */
TEST_F_TIMEOUT(failures, open, 240)
{
	unsigned int i, nth, refused = 0, immediate = 0;
	bool failed = true;
	int err;

	/* Another size of the buffers for walks, so that those of earlier events do not fit. */
	ASSERT_EQ(0, ut_write_sysctl(MAX_STACK, MAX_FRAMES));
	for (i = 0; i < ARRAY_SIZE(points); i++)
		ASSERT_EQ(0, arm(points[i], "perf_defer_init", 0));
	for (nth = 1; failed; nth++) {
		ASSERT_GT(100, nth);
		ASSERT_EQ(0, fail_nth(nth));
		err = open_session(&self->s);
		failed = has_failed();
		fail_nth(0);
		refused += !!err;
		/* An event may be opened in spite of a failure, but not refused without one. */
		if (!failed)
			EXPECT_EQ(0, err);
		if (!err) {
			EXPECT_TRUE(has_stack(&self->s, failed)) TH_LOG("allocation %u", nth);
			immediate += failed && !ut_sample(&self->s, 0, 0, 0)->cookie;
		}
		ut_close(&self->s);
		/* The buffers for walks are freed a second after the last event. */
		sleep(2);
	}
	disarm();
	TH_LOG("%u refused and %u immediate of %u", refused, immediate, nth - 2);
	EXPECT_LE(1, refused);
	/* The buffers of each CPU, and the list of them. */
	EXPECT_LE(2, immediate);
	ASSERT_EQ(0, open_session(&self->s));
	EXPECT_TRUE(has_stack(&self->s, false));
}

/* Two unequal tables of one file, with what is behind them up to a size. */
FIXTURE(tables) {
	struct ut_code code;
	struct ut_section section, other;
	char *data;
	int fd;
};

#define MOST_DATA	(8 << 20)

FIXTURE_SETUP(tables)
{
	ASSERT_EQ(0, ut_code_new(&self->code, NULL));
	ut_code_section(&self->section, 0);
	ut_code_section(&self->other, 8);
	self->data = malloc(MOST_DATA);
	ASSERT_NE(NULL, self->data);
	/* Memory that is there: no page of it has to be allocated later. */
	memset(self->data, 0, MOST_DATA);
	memcpy(self->data, self->section.data, self->section.size);
	self->fd = ut_table_event();
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN(tables)
{
	fail_nth(0);
	disarm();
	close(self->fd);
	free(self->data);
	ut_code_free(&self->code);
}

/* If an allocation fails, nothing is kept of the table, and the next try works. */
TEST_F_TIMEOUT(tables, load, 240)
{
	/* One that fits into a page, and one of several pages. */
	const size_t sizes[] = { self->section.size, 1 << 16 };
	unsigned int i, nth, refused;
	bool failed;
	int err, fd;

	for (i = 0; i < ARRAY_SIZE(points); i++)
		ASSERT_EQ(0, arm(points[i], "perf_event_set_cfi", 0));
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		failed = true;
		refused = 0;
		for (nth = 1; failed; nth++) {
			ASSERT_GT(200, nth);
			fd = ut_table_event();
			ASSERT_LE(0, fd);
			ASSERT_EQ(0, fail_nth(nth));
			err = ut_load(fd, self->code.base, self->data, sizes[i]);
			failed = has_failed();
			fail_nth(0);
			if (err) {
				EXPECT_TRUE(failed);
				EXPECT_EQ(-ENOMEM, err) TH_LOG("allocation %u", nth);
				refused++;
				/* If it were kept, this would be EEXIST. */
				EXPECT_EQ(0, ut_load_section(self->fd, self->code.base,
							     &self->other));
				close(self->fd);
				self->fd = ut_table_event();
				EXPECT_EQ(0, ut_load(fd, self->code.base, self->data, sizes[i]));
			}
			close(fd);
		}
		TH_LOG("%zu bytes: %u refused of %u", sizes[i], refused, nth - 2);
		/* The table, and the event's note of it. */
		EXPECT_LE(2, refused);
	}
}

/* Bytes of vmalloc() that count for the cgroup. */
static long charged(const struct ut_cgroup *c)
{
	char path[128], line[128];
	long bytes = -1;
	FILE *f;

	snprintf(path, sizeof(path), "%s/memory.stat", c->group);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		sscanf(line, "vmalloc %ld", &bytes);
	if (f)
		fclose(f);
	return bytes;
}

TEST_F(tables, charged)
{
	struct ut_cgroup c;
	char path[128];
	long size;
	int fd;

	ASSERT_EQ(0, ut_cgroup(&c, getpid()));
	snprintf(path, sizeof(path), "%s/cgroup.subtree_control", c.root);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	ASSERT_EQ(0, ut_write_all(fd, "+memory", 7)) TH_LOG("CONFIG_MEMCG?");
	close(fd);
	ASSERT_EQ(0, charged(&c));

	ASSERT_EQ(0, ut_load(self->fd, self->code.base, self->data, MOST_DATA));
	size = charged(&c);
	/* The kernel adds a sixteenth. */
	EXPECT_LE(MOST_DATA, size);
	EXPECT_GE(MOST_DATA + MOST_DATA / 8, size);
	/* One that is refused is not kept, nor is an equal one. */
	EXPECT_EQ(-EEXIST, ut_load(self->fd, self->code.base, self->data, MOST_DATA - 1));
	EXPECT_EQ(size, charged(&c));
	EXPECT_EQ(0, ut_load(self->fd, self->code.base, self->data, MOST_DATA));
	EXPECT_EQ(size, charged(&c));
	/* A grace period later it is freed. */
	close(self->fd);
	self->fd = ut_table_event();
	while (charged(&c))
		usleep(10000);

	snprintf(path, sizeof(path), "%s/cgroup.procs", c.root);
	EXPECT_EQ(0, ut_write_sysctl(path, getpid()));
	ut_cgroup_end(&c);
}

int main(int argc, char **argv)
{
	ut_need_root();
	return test_harness_run(argc, argv);
}

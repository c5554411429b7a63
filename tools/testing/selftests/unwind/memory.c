// SPDX-License-Identifier: GPL-2.0
/*
 * K17: no memory is held for a task that was sampled before, and none for a task that
 * sleeps in a sampled system call, because its record has been written.
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

/*
 * The number of threads. With MANY threads 64 bytes for each thread would be noticed. With
 * FEW, if MANY take too much memory or time, a page for each thread would be.
 */
#define MANY	10000
#define FEW	1000
#define BATCH	100
#define ALLOWED	400	/* KiB */

/* The memory of a thread: its kernel stack, the task, and the touched part of its stack. */
#define THREAD_KIB	64

static long number_in(const char *path)
{
	long nr;

	return ut_read_sysctl(path, &nr) ? 0 : nr;
}

/* The sum of some lines of /proc/meminfo, in KiB. */
static long read_meminfo(const char * const *what, unsigned int nr)
{
	long sum = 0, kb;
	char line[128];
	unsigned int i;
	FILE *f;

	f = fopen("/proc/meminfo", "r");
	while (f && fgets(line, sizeof(line), f)) {
		for (i = 0; i < nr; i++) {
			if (!strncmp(line, what[i], strlen(what[i])) &&
			    sscanf(line + strlen(what[i]), "%ld", &kb) == 1)
				sum += kb;
		}
	}
	if (f)
		fclose(f);
	return sum;
}

/* The memory that the kernel has allocated, without user pages and file caches. */
static long kernel_memory(void)
{
	static const char * const what[] = { "SUnreclaim:", "Percpu:", "VmallocUsed:" };

	return read_meminfo(what, ARRAY_SIZE(what));
}

/* Is there enough memory for many threads, and are they created fast enough? */
static bool many_fit(void)
{
	static const char * const available[] = { "MemAvailable:" };

	return number_in("/proc/sys/kernel/threads-max") > MANY + FEW &&
	       number_in("/proc/sys/kernel/pid_max") > MANY + FEW &&
	       read_meminfo(available, 1) > MANY * THREAD_KIB && !ut_kernel_checks_itself();
}

struct threads {
	int		nr;
	int		start[2], end[2], done[2];
	bool		sleep_in_it;
};

static void *thread(void *arg)
{
	struct threads *t = arg;
	char byte;

	if (read(t->start[0], &byte, 1) != 1)
		return NULL;
	if (t->sleep_in_it) {
		/* This call is sampled, and the thread sleeps in it until the end. */
		if (write(t->done[1], "d", 1) != 1)
			return NULL;
		pause();
		return NULL;
	}
	syscall(__NR_getppid);
	if (write(t->done[1], "d", 1) != 1)
		return NULL;
	if (read(t->end[0], &byte, 1) != 1)
		return NULL;
	return NULL;
}

FIXTURE(memory) {
	struct ut_session s;
	struct threads t;
};

FIXTURE_SETUP(memory)
{
	pthread_attr_t attr;
	pthread_t id;
	int i;

	ASSERT_EQ(0, pipe(self->t.start));
	ASSERT_EQ(0, pipe(self->t.end));
	ASSERT_EQ(0, pipe(self->t.done));
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, PTHREAD_STACK_MIN + 16384);
	/* With guard pages there would be two mappings per thread, and too many of them. */
	pthread_attr_setguardsize(&attr, 0);
	self->t.nr = many_fit() ? MANY : FEW;
	if (self->t.nr < MANY)
		TH_LOG("%d threads, not %d: memory, threads-max, pid_max, or KASAN or KCSAN",
		       FEW, MANY);
	for (i = 0; i < self->t.nr; i++)
		ASSERT_EQ(0, pthread_create(&id, &attr, thread, &self->t));
}

FIXTURE_TEARDOWN(memory)
{
	ut_close(&self->s);
}

static int let_go(struct threads *t)
{
	char buf[BATCH];
	int i;

	memset(buf, 'g', sizeof(buf));
	for (i = 0; i < t->nr; i += BATCH) {
		if (ut_write_all(t->start[1], buf, BATCH) || ut_read_all(t->done[0], buf, BATCH))
			return -1;
	}
	/* Wait until the last threads sleep. */
	usleep(500000);
	return 0;
}

TEST_F_TIMEOUT(memory, sampled_once, 240)
{
	struct ut_opts opts = {
		.pid = -1, .per_cpu = true, .switches = true, .pages = 2048,
	};
	long before, after;

	ASSERT_EQ(0, ut_open(&self->s, &opts));
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid"));
	ASSERT_EQ(0, ut_enable(&self->s));
	usleep(500000);
	before = kernel_memory();
	ASSERT_EQ(0, let_go(&self->t));
	after = kernel_memory();
	ASSERT_EQ(0, ut_stop(&self->s));
	EXPECT_EQ(self->t.nr, ut_count(&self->s, PERF_RECORD_SAMPLE, 0));
	EXPECT_EQ(self->t.nr, ut_count(&self->s, UT_RECORD_CALLCHAIN_DEFERRED, 0));
	TH_LOG("%d threads: %ld KiB before, %ld KiB after", self->t.nr, before, after);
	EXPECT_LT(after - before, ALLOWED);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

TEST_F_TIMEOUT(memory, asleep_in_the_sampled_call, 240)
{
	struct ut_opts opts = {
		.pid = -1, .per_cpu = true, .switches = true, .pages = 2048,
	};
	long before, after;

	self->t.sleep_in_it = true;
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_pause"));
	ASSERT_EQ(0, ut_enable(&self->s));
	usleep(500000);
	before = kernel_memory();
	ASSERT_EQ(0, let_go(&self->t));
	after = kernel_memory();
	/* Read all records while the threads sleep and the events are enabled. */
	do {
		ASSERT_EQ(0, ut_drain(&self->s));
	} while (ut_count(&self->s, UT_RECORD_CALLCHAIN_DEFERRED, 0) < self->t.nr);
	EXPECT_EQ(self->t.nr, ut_count(&self->s, PERF_RECORD_SAMPLE, 0));
	EXPECT_EQ(self->t.nr, ut_count(&self->s, UT_RECORD_CALLCHAIN_DEFERRED, 0));
	TH_LOG("%d threads: %ld KiB before, %ld KiB after", self->t.nr, before, after);
	EXPECT_LT(after - before, ALLOWED);
	ASSERT_EQ(0, ut_stop(&self->s));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

int main(int argc, char **argv)
{
	ut_need_root();
	return test_harness_run(argc, argv);
}

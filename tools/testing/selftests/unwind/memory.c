// SPDX-License-Identifier: GPL-2.0
/*
 * K17: nothing is held for a task that was sampled once, nor for one that sleeps in
 * the system call that was sampled.
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

#define THREADS	1000
/* A page a thread would be four times as much. */
#define ALLOWED	1000	/* KiB */

/* What the kernel has allocated, in KiB, but for user pages and caches of files. */
static long kernel_memory(void)
{
	static const char * const what[] = { "SUnreclaim:", "Percpu:", "VmallocUsed:" };
	long sum = 0, kb;
	char line[128];
	unsigned int i;
	FILE *f;

	f = fopen("/proc/meminfo", "r");
	while (f && fgets(line, sizeof(line), f)) {
		for (i = 0; i < ARRAY_SIZE(what); i++) {
			if (!strncmp(line, what[i], strlen(what[i])) &&
			    sscanf(line + strlen(what[i]), "%ld", &kb) == 1)
				sum += kb;
		}
	}
	if (f)
		fclose(f);
	return sum;
}

struct threads {
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
		/* Sampled, and asleep in it until the end. */
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
	pthread_t id[THREADS];
};

FIXTURE_SETUP(memory)
{
	pthread_attr_t attr;
	int i;

	memset(&self->s, 0, sizeof(self->s));
	ASSERT_EQ(0, pipe(self->t.start));
	ASSERT_EQ(0, pipe(self->t.end));
	ASSERT_EQ(0, pipe(self->t.done));
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, PTHREAD_STACK_MIN + 16384);
	for (i = 0; i < THREADS; i++)
		ASSERT_EQ(0, pthread_create(&self->id[i], &attr, thread, &self->t));
}

FIXTURE_TEARDOWN(memory)
{
	ut_close(&self->s);
}

static int let_go(struct threads *t)
{
	char buf[THREADS];
	int i;

	memset(buf, 'g', sizeof(buf));
	for (i = 0; i < THREADS; i += 100) {
		if (ut_write_all(t->start[1], buf, 100) || ut_read_all(t->done[0], buf, 100))
			return -1;
	}
	/* The last of them are on their way to sleep. */
	usleep(500000);
	return 0;
}

TEST_F_TIMEOUT(memory, sampled_once, 120)
{
	struct ut_opts opts = { .pid = -1, .per_cpu = true, .pages = 512 };
	long before, after;

	ASSERT_EQ(0, ut_open(&self->s, &opts));
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid"));
	ASSERT_EQ(0, ut_enable(&self->s));
	usleep(500000);
	before = kernel_memory();
	ASSERT_EQ(0, let_go(&self->t));
	after = kernel_memory();
	ut_disable(&self->s);
	ASSERT_EQ(0, ut_drain(&self->s));
	EXPECT_EQ(THREADS, ut_count(&self->s, PERF_RECORD_SAMPLE, 0));
	EXPECT_EQ(THREADS, ut_count(&self->s, UT_RECORD_CALLCHAIN_DEFERRED, 0));
	TH_LOG("%ld KiB before, %ld KiB after", before, after);
	EXPECT_LT(after - before, ALLOWED);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

TEST_F_TIMEOUT(memory, asleep_in_the_sampled_call, 120)
{
	struct ut_opts opts = { .pid = -1, .per_cpu = true, .pages = 512 };
	long before, after;

	self->t.sleep_in_it = true;
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_pause"));
	ASSERT_EQ(0, ut_enable(&self->s));
	usleep(500000);
	before = kernel_memory();
	ASSERT_EQ(0, let_go(&self->t));
	after = kernel_memory();
	ASSERT_EQ(0, ut_drain(&self->s));
	EXPECT_EQ(THREADS, ut_count(&self->s, PERF_RECORD_SAMPLE, 0));
	EXPECT_EQ(0, ut_count(&self->s, UT_RECORD_CALLCHAIN_DEFERRED, 0));
	TH_LOG("%ld KiB before, %ld KiB after", before, after);
	EXPECT_LT(after - before, ALLOWED);
	ut_disable(&self->s);
	ASSERT_EQ(0, ut_drain(&self->s));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

int main(int argc, char **argv)
{
	ut_need_root();
	return test_harness_run(argc, argv);
}

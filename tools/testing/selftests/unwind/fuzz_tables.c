// SPDX-License-Identifier: GPL-2.0
/*
 * A fuzzer of PERF_EVENT_IOC_SET_CFI: fuzz_tables [SECONDS [SEED]].
 *
 * Sections that are right but for a few bytes are given to a file of code. What the kernel
 * takes, walks use at once, from a system call and from a signal handler: stacks may be
 * wrong then, and all else that holds for any stream holds. A thread loads and drops
 * tables of another file meanwhile.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../kselftest.h"
#include "unwind_table.h"

static int stop;

/* Values at the edge of something. */
static __u64 edge(void)
{
	static const __u64 edges[] = {
		0, 1, 2, 3, 7, 8, 15, 16, 63, 64, 65, 127, 128, 255, 256, 0x7fff, 0x8000,
		0xffff, 0x10000, 0x7fffffff, 0x80000000, 0xffffffff, 0x100000000ULL,
		0x7fffffffffffffffULL, 0x8000000000000000ULL, -1ULL,
	};

	return edges[ut_rnd() % (sizeof(edges) / sizeof(*edges))] + ut_rnd() % 3 - 1;
}

static void mutate(struct ut_section *s)
{
	unsigned int n = 1 + ut_rnd() % 4;

	while (n--) {
		size_t at = ut_rnd() % s->size, size = 1 << ut_rnd() % 4;
		/* Half of them in the header and the index. */
		__u64 value = ut_rnd() % 4 ? edge() : ut_rnd();

		if (ut_rnd() % 2)
			at %= 64;
		if (at + size > s->size)
			size = 1;
		if (ut_rnd() % 4)
			memcpy(s->data + at, &value, size);
		else
			s->data[at] ^= 1 << ut_rnd() % 8;
	}
	if (!(ut_rnd() % 16))
		s->size = ut_rnd() % s->size;
}

static void *others(void *arg)
{
	struct ut_section *section = arg;

	while (!UT_READ(stop)) {
		struct ut_code code;
		int fd = ut_table_event();

		if (fd < 0 || ut_code_new(&code, NULL))
			return "no file";
		if (ut_load_section(fd, code.base, section))
			return "no table";
		close(fd);
		ut_code_free(&code);
	}
	return NULL;
}

static void run(struct ut_code *code, unsigned long seconds)
{
	const struct ut_opts opts = { .switches = true };
	unsigned long tries = 0, taken = 0, wrong = 0;
	struct ut_section whole, s;
	struct ut_session session;
	struct ut_stack call, got;
	time_t end = time(NULL) + seconds;
	void *failed = NULL;
	pthread_t thread;
	int event, bad = 0, err, fd;

	ut_code_section(&whole, 0);
	if (ut_open(&session, &opts))
		ksft_exit_fail_msg("no session\n");
	event = ut_add_tracepoint(&session, "syscalls", "sys_enter_getppid");
	if (event < 0 || ut_enable(&session) || ut_code_handle(code->base, SIGUSR1, NULL, 0) ||
	    pthread_create(&thread, NULL, others, &whole))
		ksft_exit_fail_msg("no events, handler or thread\n");

	while (time(NULL) < end) {
		fd = ut_table_event();
		s = whole;
		mutate(&s);
		err = ut_load_section(fd, code->base, &s);
		tries++;
		if (err && err != -EINVAL) {
			ksft_print_msg("%s\n", strerror(-err));
			bad++;
		}
		if (!err) {
			taken++;
			ut_code_call(code->base, &call, __NR_kill, getpid(), SIGUSR1, 0);
			ut_code_call(code->base, &call, __NR_getppid, 0, 0, 0);
			if (ut_drain(&session) ||
			    ut_count_samples(&session, event, 0) != 2) {
				ksft_print_msg("not two samples\n");
				bad++;
			}
			/* A wrong row may lead to an absent page, and the task be preempted. */
			bad += ut_check(&session, UT_ALLOW_AGAIN);
			ut_user_stack(&session, ut_sample(&session, event, 0, 1), &got);
			if (!ut_same_stack(&got, &call))
				wrong++;
			ut_forget(&session);
		}
		close(fd);
		if (bad > 20)
			break;
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	pthread_join(thread, &failed);
	if (failed) {
		ksft_print_msg("another file: %s\n", (char *)failed);
		bad++;
	}
	ut_close(&session);

	ksft_print_msg("%lu sections, %lu taken, %lu made another stack\n", tries, taken, wrong);
	ksft_test_result(!bad, "streams\n");
	/* Or else nothing was tested. */
	ksft_test_result(taken && taken < tries && wrong, "some taken, some refused\n");
}

int main(int argc, char **argv)
{
	unsigned long seconds = argc > 1 ? strtoul(argv[1], NULL, 0) : 10;
	__u64 seed = argc > 2 ? strtoull(argv[2], NULL, 0) : (__u64)time(NULL);
	struct ut_code code;

	ksft_print_header();
	if (geteuid())
		ksft_exit_skip("needs root: CAP_PERFMON, and tracepoints\n");
	ksft_set_plan(2);
	ksft_print_msg("seed %llu\n", seed);
	ut_seed = seed * 0x9e3779b97f4a7c15ULL | 1;
	if (ut_code_new(&code, NULL))
		ksft_exit_fail_msg("no code\n");
	run(&code, seconds);
	ksft_finished();
}

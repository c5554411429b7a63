// SPDX-License-Identifier: GPL-2.0
/*
 * Everything at once, for a number of seconds: stress SECONDS.
 *
 * Processes work: they make system calls that sleep in several ways, fork, vfork, call
 * execve() from any thread, run signal handlers, kill thread groups, trace each other, and
 * use io_uring workers. Meanwhile a CPU comes and goes, memory gets short, caches are
 * dropped, and profilers of every kind come and go. They profile a task of their own and
 * its descendants, another task, or all CPUs, and now and then there are many of them.
 *
 * System calls are made with a stamp: the return addresses of a frame chain contain the
 * task and a serial number, which is also an argument of the system call. So the profilers
 * can check that each stack belongs to its task. If a sample has the arguments, they can
 * also check that the stack belongs to its kernel entry.
 *
 * Each sample must have its record in its own buffer before its task leaves the CPU, unless
 * the kernel reports lost records. This holds when a profile ends in order. It also holds
 * at any time before, except for the last sample of a task.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../kselftest.h"
#include "stress.h"

#define CROWD		20	/* profilers in a crowd */
#define FEW		5	/* profilers at other times */

static const char * const work_name[] = {
	"system calls", "fork", "vfork", "exec", "signals", "kills", "ptrace", "io_uring",
};

struct totals *tot;
char self_path[4096];
bool failing;		/* the kernel is told to fail allocations */

unsigned long add(unsigned long *to, unsigned long n)
{
	return __atomic_add_fetch(to, n, __ATOMIC_RELAXED);
}

static __thread __u64 rnd_state;

__u32 rnd(__u32 below)
{
	if (!rnd_state) {
		struct timespec ts;

		clock_gettime(CLOCK_MONOTONIC, &ts);
		rnd_state = ((__u64)gettid() << 32 | ts.tv_nsec) * 0x9e3779b97f4a7c15ULL | 1;
	}
	rnd_state ^= rnd_state << 13;
	rnd_state ^= rnd_state >> 7;
	rnd_state ^= rnd_state << 17;
	return (rnd_state >> 16) % below;
}

bool stop(void)
{
	return __atomic_load_n(&tot->stop, __ATOMIC_RELAXED);
}

void nap(long us)
{
	struct timespec ts = { .tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000 };

	nanosleep(&ts, NULL);
}

void child_begins(pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(0);
	/* Otherwise the child would get the same random numbers as its parent. */
	rnd_state = 0;
}

pid_t start(void (*fn)(void))
{
	pid_t parent = getpid(), pid = fork();

	if (!pid) {
		child_begins(parent);
		fn();
		_exit(0);
	}
	return pid;
}

static __u64 now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000ULL + ts.tv_nsec / 1000000;
}

/* Start sessions, and wait until they have ended, in whatever way. */
static void sessions(int nr)
{
	int i, status;

	for (i = 0; i < nr; i++)
		start(session);
	while (waitpid(-1, &status, 0) > 0) {
		if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL) {
			ut_diag("a profiler died of signal %d", WTERMSIG(status));
			add(&tot->bad, 1);
		}
	}
}

static void profilers(void)
{
	while (!stop()) {
		sessions(1);
		nap(100000);
	}
}

static void crowds(void)
{
	int i;

	while (!stop()) {
		nap(500000);
		sessions(CROWD);
		for (i = 0; i < 60 && !stop(); i++)
			nap(100000);
	}
}

/* The activity of the machine. */

static int plugged_cpu;		/* the CPU that comes and goes, 0 if none can */

static void hotplug(void)
{
	while (!stop()) {
		nap(rnd(400000));
		if (!ut_set_online(plugged_cpu, false))
			add(&tot->hotplugs, 1);
		nap(rnd(100000));
		ut_set_online(plugged_cpu, true);
	}
}

static long mem_free(void)
{
	char line[128];
	long kb = -1;
	FILE *f = fopen("/proc/meminfo", "r");

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "MemFree: %ld", &kb) == 1)
			break;
	}
	if (f)
		fclose(f);
	return kb;
}

#define MIN_FREE	"/proc/sys/vm/min_free_kbytes"
#define FLOOR_KB	(80 * 1024)
#define CHUNK		(8UL << 20)

/* Allocate memory until the kernel begins to reclaim, and free it. */
static void squeeze(void)
{
	static char *chunk[8192];
	unsigned int i, nr;

	ut_write_sysctl("/proc/self/oom_score_adj", 1000);
	while (!stop()) {
		for (nr = 0; nr < ARRAY_SIZE(chunk) && mem_free() > FLOOR_KB && !stop(); nr++) {
			chunk[nr] = mmap(NULL, CHUNK, PROT_READ | PROT_WRITE,
					 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
			if (chunk[nr] == MAP_FAILED)
				break;
			if (rnd(4) == 0)
				madvise(chunk[nr], CHUNK / 2, rnd(2) ? MADV_DONTNEED : MADV_FREE);
		}
		if (rnd(4) == 0)
			ut_write_sysctl("/proc/sys/vm/drop_caches", 1 + rnd(3));
		ut_write_sysctl("/proc/sys/vm/compact_memory", 1);
		nap(20000);
		for (i = 0; i < nr; i++)
			munmap(chunk[i], CHUNK);
		add(&tot->squeezes, 1);
		/* Let the other processes continue for a second. */
		for (i = 0; i < 10 && !stop(); i++)
			nap(100000);
	}
}

static bool nonzero(const char *path)
{
	long val = 0;

	return !ut_read_sysctl(path, &val) && val;
}

static void prepare(void)
{
	struct rlimit files = { .rlim_cur = 16384, .rlim_max = 16384 };
	int cpus[UT_MAX_CPUS];
	unsigned int i, nr;

	setrlimit(RLIMIT_NOFILE, &files);
	tot = ut_shared(sizeof(*tot));
	if (!tot || readlink("/proc/self/exe", self_path, sizeof(self_path) - 1) <= 0)
		ksft_exit_fail_msg("no shared memory, or no /proc\n");
	prepare_sessions();
	failing = nonzero("/sys/kernel/debug/failslab/probability") ||
		  nonzero("/sys/kernel/debug/fail_page_alloc/probability");

	/* An earlier run that was killed may have left a CPU offline. */
	for (i = 1; i < UT_MAX_CPUS; i++)
		ut_set_online(i, true);
	nr = ut_online_cpus(cpus, UT_MAX_CPUS);
	if (nr > 1 && !ut_set_online(cpus[nr - 1], true))
		plugged_cpu = cpus[nr - 1];
}

/* Show a process that has not ended, and its kernel stack. */
static void show_child(pid_t pid)
{
	char path[64], line[256];
	FILE *f;

	ut_diag("process %d is still there, state %c", pid, ut_task_state(pid));
	snprintf(path, sizeof(path), "/proc/%d/stack", pid);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		ut_diag("  %s", line);
	if (f)
		fclose(f);
}

/* Do all processes end by themselves within @seconds? Kill those that do not. */
static bool all_gone(pid_t *pids, int nr, int seconds)
{
	__u64 end = now_ms() + seconds * 1000;
	bool gone = true;
	pid_t pid;
	int i;

	while ((pid = waitpid(-1, NULL, WNOHANG)) >= 0) {
		for (i = 0; i < nr; i++) {
			if (pids[i] == pid)
				pids[i] = 0;
		}
		if (pid)
			continue;
		if (now_ms() > end) {
			gone = false;
			for (i = 0; i < nr; i++) {
				if (!pids[i])
					continue;
				show_child(pids[i]);
				kill(pids[i], SIGKILL);
			}
			break;
		}
		nap(10000);
	}
	if (!gone) {
		end = now_ms() + 10000;
		while (waitpid(-1, NULL, WNOHANG) >= 0 && now_ms() < end)
			nap(10000);
	}
	return gone;
}

int main(int argc, char **argv)
{
	int seconds = 10, nr = 0, i, early = 0;
	pid_t pids[NR_WORK + FEW + 3], pid;
	long min_free = -1;
	__u64 end;

	if (argc > 1 && !strcmp(argv[1], LEAF)) {
		leaf();
		return 0;
	}
	if (argc > 1)
		seconds = atoi(argv[1]);
	ksft_print_header();
	if (geteuid())
		ksft_exit_skip("needs root: perf events on tracepoints and on all CPUs\n");
	if (seconds <= 0)
		ksft_exit_fail_msg("usage: stress [SECONDS]\n");
	ksft_set_plan(8);
	prepare();
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	if (!ut_read_sysctl(MIN_FREE, &min_free) && min_free < FLOOR_KB * 3 / 5)
		ut_write_sysctl(MIN_FREE, FLOOR_KB * 3 / 5);
	ut_write_sysctl("/proc/sys/vm/drop_caches", 4);

	for (my_work = 0; my_work < NR_WORK; my_work++) {
		pids[nr] = start(worker);
		tot->worker[my_work] = pids[nr++];
	}
	for (i = 0; i < FEW; i++)
		pids[nr++] = start(profilers);
	pids[nr++] = start(crowds);
	pids[nr++] = start(squeeze);
	if (plugged_cpu)
		pids[nr++] = start(hotplug);

	/* As the subreaper, this process waits for orphans, too. */
	end = now_ms() + seconds * 1000ULL;
	while (now_ms() < end) {
		while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) {
			for (i = 0; i < nr; i++) {
				if (pids[i] == pid) {
					ut_diag("process %d has ended before its time", i);
					pids[i] = 0;
					early++;
				}
			}
		}
		nap(50000);
	}
	tot->stop = 1;
	ksft_test_result(all_gone(pids, nr, 60) && !early, "all processes end by themselves\n");
	if (min_free > 0)
		ut_write_sysctl(MIN_FREE, min_free);
	if (plugged_cpu)
		ut_set_online(plugged_cpu, true);

	for (i = 0; i < NR_WORK; i++)
		ksft_print_msg("%s: process %d, %lu rounds\n", work_name[i], tot->worker[i],
			       tot->rounds[i]);
	ksft_print_msg("%lu times a CPU went, %lu times memory was short\n", tot->hotplugs,
		       tot->squeezes);
	ksft_print_msg("%lu sessions, %lu refused, %lu uprobes\n", tot->sessions, tot->refused,
		       tot->probes);
	ksft_print_msg("%lu ended in order, %lu of them quiet and without loss\n", tot->ended,
		       tot->exact);
	ksft_print_msg("%lu samples: %lu deferred, %lu immediate, %lu without a user part\n",
		       tot->samples, tot->deferred, tot->immediate, tot->none);
	ksft_print_msg("%lu stacks: %lu empty, %lu cut, %lu with a stamp, %lu records again\n",
		       tot->records, tot->empty, tot->cut, tot->stamped, tot->again);
	ksft_print_msg("%lu samples merged\n", tot->merged);
	ksft_print_msg("%lu samples and %lu records lost\n", tot->lost_samples,
		       tot->lost_records);

	for (i = 0; i < NR_WORK && tot->rounds[i]; i++)
		;
	ksft_test_result(i == NR_WORK, "all kinds of work were done\n");
	if (plugged_cpu)
		ksft_test_result(tot->hotplugs, "a CPU came and went\n");
	else
		ksft_test_result_skip("one CPU, or none that can be taken away\n");
	ksft_test_result(tot->squeezes, "memory was short\n");
	ksft_test_result(tot->ended && tot->exact, "sessions ended in order\n");
	ksft_test_result(tot->samples && tot->deferred && tot->records && tot->merged &&
			 tot->stamped, "samples and records came and were merged\n");
	ksft_test_result(tot->cut <= tot->stamped / 10, "the stacks were whole\n");
	ksft_test_result(!tot->bad, "every record was right, and none was missing\n");
	ksft_exit(!ksft_get_fail_cnt());
}

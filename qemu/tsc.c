// SPDX-License-Identifier: GPL-2.0
/*
 * Says how many thousand times a second this machine's time stamp counter counts.
 *
 * A guest under TCG reads that counter, and cannot measure it well: its timers are
 * those of QEMU, which wait for a CPU as everybody does. A guest that was kept
 * waiting in those 50 ms takes a second for ten, and gives up what it waits for.
 */
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <x86intrin.h>

/* At the same moment, as close as can be had. */
struct reading {
	uint64_t	tsc;
	uint64_t	ns;
};

static uint64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_RAW, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

static struct reading read_both(void)
{
	struct reading best = { 0 };
	uint64_t before, after, between = UINT64_MAX;
	uint64_t ns;
	int i;

	/* Between two that are close nobody else had the CPU. */
	for (i = 0; i < 100; i++) {
		before = __rdtsc();
		ns = now();
		after = __rdtsc();
		if (after - before < between) {
			between = after - before;
			best.tsc = before + between / 2;
			best.ns = ns;
		}
	}
	return best;
}

int main(void)
{
	struct timespec while_it_counts = { .tv_nsec = 200000000 };
	struct reading first, last;

	first = read_both();
	nanosleep(&while_it_counts, NULL);
	last = read_both();
	printf("%.0f\n", (last.tsc - first.tsc) * 1e6 / (last.ns - first.ns));
	return 0;
}

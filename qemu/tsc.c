// SPDX-License-Identifier: GPL-2.0
/*
 * Prints the frequency of this machine's time stamp counter in kHz.
 *
 * A guest under TCG reads that counter, and cannot measure it well: its timers are
 * QEMU's, and QEMU may have to wait for a CPU. If it waits during those 50 ms, the
 * guest takes one second for ten, and gives up waiting too early.
 */
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <x86intrin.h>

/* Both clocks at the same moment, as near as possible. */
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

	/* If two readings are close, nothing else ran between them. */
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

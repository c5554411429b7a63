/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_DEFER_COUNT_H
#define __PERF_DEFER_COUNT_H

#include <stdbool.h>
#include <stddef.h>
#include <linux/types.h>

struct defer_count;
struct evlist;

/* What is known of the user callchains that samples announced */
struct defer_count_result {
	u64	nr_samples;
	u64	nr_missing;
	/* there was no room to be exact: no more are missing than that */
	bool	up_to;
};

struct defer_count *defer_count__new(struct evlist *evlist, int nr_readers);
void defer_count__delete(struct defer_count *dc);

bool defer_count__begin(struct defer_count *dc, int reader);
void defer_count__push(struct defer_count *dc, int reader, const void *source,
		       const void *buf, size_t size);
void defer_count__end(struct defer_count *dc, int reader, bool complete);
void defer_count__leave(struct defer_count *dc, int reader);
void defer_count__next_file(struct defer_count *dc);

void defer_count__result(struct defer_count *dc, struct defer_count_result *result);
size_t defer_count__nr_remembered(struct defer_count *dc);

#endif /* __PERF_DEFER_COUNT_H */

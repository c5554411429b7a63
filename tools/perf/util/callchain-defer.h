/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_CALLCHAIN_DEFER_H
#define __PERF_CALLCHAIN_DEFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <linux/types.h>

struct callchain_cursor;
struct callchain_cursor_node;
struct callchain_defer;
struct defer_stack;
struct events_stats;
struct evlist;
struct ordered_events;
struct perf_sample;
struct symbol;
struct thread;
union perf_event;

/*
 * Reads the input ahead from the position of its reader, and adds the next record to the
 * table. Returns 1 if a record was added, 0 at the end of the input, or a negative error.
 */
typedef int (*callchain_defer__ahead_t)(void *arg);

bool evlist__has_deferred_callchain(struct evlist *evlist);

struct callchain_defer *callchain_defer__new(struct evlist *evlist, struct events_stats *stats,
					     callchain_defer__ahead_t ahead, void *arg);
void callchain_defer__delete(struct callchain_defer *cd);
void callchain_defer__finish(struct callchain_defer *cd);

struct defer_stack *callchain_defer__add(struct callchain_defer *cd, union perf_event *event,
					 bool copy);
int callchain_defer__read(struct callchain_defer *cd, const struct ordered_events *oe,
			  union perf_event *event, bool copy, u64 file_offset,
			  const char *file_path);
int callchain_defer__deliver(struct callchain_defer *cd, const struct ordered_events *oe,
			     union perf_event *event, struct perf_sample *sample);

u64 callchain_defer__nr_events(const struct events_stats *stats);
size_t callchain_defer__fprintf_stats(const struct events_stats *stats, FILE *fp);
void callchain_defer__warn_missing(const struct events_stats *stats);

/* The frame in place of a missing user callchain */
#define CALLCHAIN_DEFER__MISSING_NAME	"[user callchain not available]"

struct symbol *callchain_defer__missing_symbol(void);
int callchain_defer__append_missing(struct callchain_cursor *cursor, struct thread *thread);
int callchain_defer__append_cookie(struct callchain_cursor *cursor, struct thread *thread,
				   u64 cookie);
const char *callchain_defer__frame_name(const struct callchain_cursor_node *node);

#endif /* __PERF_CALLCHAIN_DEFER_H */

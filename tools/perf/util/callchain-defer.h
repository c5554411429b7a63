/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_CALLCHAIN_DEFER_H
#define __PERF_CALLCHAIN_DEFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <linux/time64.h>
#include <linux/types.h>

struct callchain_cursor;
struct callchain_cursor_node;
struct callchain_defer;
struct events_stats;
struct evlist;
struct evsel;
struct ip_callchain;
struct ordered_event;
struct ordered_events;
struct perf_data_file;
struct perf_sample;
struct perf_session;
struct symbol;
struct thread;
union perf_event;

/* What a part of an input, that a reader has mapped, looks like */
struct callchain_defer_window {
	int		 fd;
	const void	*addr;
	u64		 offset;
	u64		 len;
};

/* How long and in how much memory samples may wait, where nobody looks on */
#define CALLCHAIN_DEFER__ANY_TIME	((u64)-1)
#define CALLCHAIN_DEFER__LIVE_NSEC	(60ULL * NSEC_PER_SEC)
#define CALLCHAIN_DEFER__PIPE_BYTES	(512ULL << 20)

bool evlist__has_deferred_callchain(struct evlist *evlist);
const struct ip_callchain *evsel__peek_callchain(const struct evsel *evsel,
						 const union perf_event *event);

struct callchain_defer *callchain_defer__new(struct evlist *evlist,
					     struct events_stats *stats);
void callchain_defer__delete(struct callchain_defer *cd);
void callchain_defer__set_merge(struct callchain_defer *cd, bool merge);
void callchain_defer__set_bounds(struct callchain_defer *cd, u64 nsec, u64 bytes);

void callchain_defer__id_index(struct callchain_defer *cd, union perf_event *event);

/* Files: know all stacks before the first sample is delivered */
int callchain_defer__index(struct callchain_defer *cd, struct perf_session *session);
void callchain_defer__set_window(struct callchain_defer *cd,
				 const struct callchain_defer_window *win);
void callchain_defer__finish(struct callchain_defer *cd);

/* Every input: a record was read, an event was queued, an event is due */
int callchain_defer__read(struct callchain_defer *cd, union perf_event *event,
			  u64 file_offset, const char *file_path, bool wanted);
bool callchain_defer__queues(const struct callchain_defer *cd);
u64 callchain_defer__queue_time(union perf_event *event, u64 time);
int callchain_defer__queued(struct callchain_defer *cd, struct ordered_events *oe);
bool callchain_defer__must_wait(struct callchain_defer *cd, struct ordered_events *oe,
				union perf_event *event);
void callchain_defer__set_now(struct ordered_events *oe, u64 now);
void callchain_defer__look_ahead(struct callchain_defer *cd, struct ordered_events *oe,
				 struct ordered_event *event);
int callchain_defer__deliver(struct callchain_defer *cd, union perf_event *event,
			     struct perf_sample *sample, u64 file_offset,
			     const char *file_path);

size_t callchain_defer__splice(union perf_event *to, const union perf_event *event,
			       const struct perf_sample *sample, size_t chain_offset);
void callchain_defer__clear_desc(void *data, size_t size);
u64 callchain_defer__nr_events(const struct events_stats *stats);
size_t callchain_defer__fprintf_stats(const struct events_stats *stats, FILE *fp);

/* Frames that stand for what is not there */
#define CALLCHAIN_DEFER__MISSING_NAME	"[user callchain not available]"

struct symbol *callchain_defer__missing_symbol(void);
int callchain_defer__append_missing(struct callchain_cursor *cursor, struct thread *thread);
int callchain_defer__append_cookie(struct callchain_cursor *cursor, struct thread *thread,
				   u64 cookie);
const char *callchain_defer__frame_name(const struct callchain_cursor_node *node);

#endif /* __PERF_CALLCHAIN_DEFER_H */

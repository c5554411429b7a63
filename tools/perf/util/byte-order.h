/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_BYTE_ORDER_H
#define __PERF_BYTE_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <linux/types.h>

struct evlist;
struct perf_session;
struct tep_handle;
union perf_event;

void byte_order__set_formats(struct perf_session *session);
bool byte_order__event(struct evlist *evlist, struct tep_handle *tep, union perf_event *event);
int byte_order__feature(u64 feat, void *data, size_t size, u32 nr_cpus);
int byte_order__tracing_data(void *data, size_t size);
int byte_order__learn_formats(struct perf_session *session, void *data, size_t size);
bool byte_order__lacks_formats(struct perf_session *session);

#endif /* __PERF_BYTE_ORDER_H */

/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_EVENT_CHECK_H
#define __PERF_EVENT_CHECK_H

#include <stdbool.h>

union perf_event;

bool perf_event__check(const union perf_event *event, bool swapped);

#endif /* __PERF_EVENT_CHECK_H */

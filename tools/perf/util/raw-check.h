/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_RAW_CHECK_H
#define __PERF_RAW_CHECK_H

#include <stdbool.h>
#include <linux/compiler.h>

struct evsel;
struct perf_sample;

#ifdef HAVE_LIBTRACEEVENT
bool evsel__check_raw(struct evsel *evsel, const struct perf_sample *sample);
#else
static inline bool evsel__check_raw(struct evsel *evsel __maybe_unused,
				    const struct perf_sample *sample __maybe_unused)
{
	return true;
}
#endif

#endif /* __PERF_RAW_CHECK_H */

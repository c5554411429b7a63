/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_RAW_CHECK_H
#define __PERF_RAW_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <linux/compiler.h>
#include <linux/types.h>

struct evsel;
struct perf_sample;
struct perf_tool;

#ifdef HAVE_LIBTRACEEVENT
bool evsel__misses_format(struct evsel *evsel, const struct perf_tool *tool,
			  const struct perf_sample *sample, u64 file_offset);
bool evsel__check_raw(struct evsel *evsel, const struct perf_sample *sample, u64 file_offset,
		      bool *open_end);
void *raw_check__close(struct perf_sample *sample);
bool format_check__text(char *buf, size_t size);
#else
static inline bool evsel__misses_format(struct evsel *evsel __maybe_unused,
					const struct perf_tool *tool __maybe_unused,
					const struct perf_sample *sample __maybe_unused,
					u64 file_offset __maybe_unused)
{
	return false;
}

static inline bool evsel__check_raw(struct evsel *evsel __maybe_unused,
				    const struct perf_sample *sample __maybe_unused,
				    u64 file_offset __maybe_unused, bool *open_end)
{
	*open_end = false;
	return true;
}

static inline void *raw_check__close(struct perf_sample *sample __maybe_unused)
{
	return NULL;
}
#endif

#endif /* __PERF_RAW_CHECK_H */

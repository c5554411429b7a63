/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_DEFER_RECORD_H
#define __PERF_DEFER_RECORD_H

#include <stdbool.h>

struct callchain_param;
struct evlist;
struct evsel;
struct record_opts;

/* May the user callchain come in a record of its own, after the sample? */
enum callchain_defer_mode {
	CALLCHAIN_DEFER_AUTO,	/* wherever the kernel has it */
	CALLCHAIN_DEFER_YES,	/* asked for by name: warn when it cannot be had */
	CALLCHAIN_DEFER_NO,	/* forbidden */
};

int callchain_param__parse_defer_word(const char *word, enum callchain_defer_mode *defer);
bool callchain_param__refuse_mode(const char *word);
char *callchain_param__split_defer(const char *arg, enum callchain_defer_mode *defer);
int callchain_param__apply_defer(struct callchain_param *param, enum callchain_defer_mode defer);

bool evlist__wants_output_event(struct evlist *evlist, const struct record_opts *opts,
				const struct callchain_param *param);
void evsel__config_defer_callchain(struct evsel *evsel, const struct callchain_param *param);
void evlist__config_defer_output(struct evlist *evlist, const struct record_opts *opts);

bool evsel__detect_missing_deferral(struct evsel *evsel);
void evsel__disable_deferral(struct evsel *evsel);

bool evlist__defers_callchains(struct evlist *evlist);
void evlist__note_max_stack(struct evlist *evlist);
int evsel__disable_turn(const struct evsel *evsel);
int evsel__enable_turn(const struct evsel *evsel);
int evlist__disable_reading(struct evlist *evlist, int (*read)(void *arg), void *arg);

#endif /* __PERF_DEFER_RECORD_H */

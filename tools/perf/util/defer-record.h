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
	CALLCHAIN_DEFER_AUTO,	/* yes, if kernel.perf_event_defer is 1 */
	CALLCHAIN_DEFER_YES,	/* yes, on every kernel that can; warn on others */
	CALLCHAIN_DEFER_NO,	/* no */
};

int callchain_param__parse_defer_word(const char *word, enum callchain_defer_mode *defer);
bool callchain_param__refuse_mode(const char *word);
char *callchain_param__split_defer(const char *arg, enum callchain_defer_mode *defer);
int callchain_param__apply_defer(struct callchain_param *param, enum callchain_defer_mode defer);

bool evlist__may_defer(struct evlist *evlist, const struct callchain_param *param);
int evlist__add_output_event(struct evlist *evlist, const struct callchain_param *param);
void evsel__config_defer_callchain(struct evsel *evsel, const struct callchain_param *param);
void evlist__config_defer_output(struct evlist *evlist, const struct record_opts *opts);
bool evlist__defers_callchains(struct evlist *evlist);

#endif /* __PERF_DEFER_RECORD_H */

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

/* Are programs without frame pointers unwound by tables that perf gives to the kernel? */
enum callchain_cfi_mode {
	CALLCHAIN_CFI_AUTO,	/* where callchains are deferred and the kernel takes tables */
	CALLCHAIN_CFI_YES,	/* asked for by name: also where deferral is off, else warn */
	CALLCHAIN_CFI_NO,	/* forbidden */
};

/* What an option says of both */
struct callchain_words {
	enum callchain_defer_mode	defer;
	enum callchain_cfi_mode		cfi;
};

int callchain_param__parse_defer_word(const char *word, struct callchain_words *words);
bool callchain_param__is_mode(const char *word);
bool callchain_param__refuse_mode(const char *word);
char *callchain_param__split_defer(const char *arg, struct callchain_words *words);
int callchain_param__apply_defer(struct callchain_param *param,
				 const struct callchain_words *words);

bool evlist__may_defer(struct evlist *evlist, const struct callchain_param *param);
int evlist__add_output_event(struct evlist *evlist, const struct callchain_param *param);
void evsel__config_defer_callchain(struct evsel *evsel, const struct callchain_param *param);
void evlist__config_defer_output(struct evlist *evlist, const struct record_opts *opts);
bool evlist__defers_callchains(struct evlist *evlist);
bool evlist__wants_cfi(struct evlist *evlist);
void evlist__no_cfi(struct evlist *evlist, const char *why);

#endif /* __PERF_DEFER_RECORD_H */

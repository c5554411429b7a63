// SPDX-License-Identifier: GPL-2.0
/*
 * Recording of deferred user callchains.
 *
 * With attr.defer_callchain the kernel may leave the user part of a callchain out of a
 * sample, and write it as a record of its own (PERF_RECORD_CALLCHAIN_DEFERRED) before the
 * task leaves the CPU. The records go to the events with attr.defer_output. This file
 * decides which events get the two bits:
 *
 * - defer_callchain: all events that sample a frame pointer callchain with a user part.
 *   By default, perf sets it if kernel.perf_event_defer is 1: then the kernel promises
 *   that a deferred callchain is as good as an immediate one. "--call-graph fp,defer"
 *   sets it on every kernel that has the bits. "fp,nodefer" forbids it.
 *
 *   With this bit the kernel also unwinds programs without frame pointers, by the tables
 *   that cfi-record.c gives it. So "cfi" sets the bit, too, and "nodefer" implies
 *   "nocfi".
 *
 * - defer_output: the dummy event that gets the side-band records. It is added if there
 *   is none. An ordinary event would not do: its maximum depth or its group would affect
 *   the callchains of all events, and so would disabling it.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <linux/kernel.h>
#include <api/fs/fs.h>

#include "callchain.h"
#include "debug.h"
#include "defer-record.h"
#include "evlist.h"
#include "evsel.h"
#include "evsel_config.h"
#include "off_cpu.h"
#include "perf_api_probe.h"
#include "record.h"
#include "util.h"

static bool is_contrary(const char *what, int old, int new)
{
	if (!old || old == new)
		return false;

	pr_err("callchain: '%s' and 'no%s' do not go together: expected one of them\n", what, what);
	return true;
}

/**
 * callchain_param__parse_defer_word - parse "defer", "nodefer", "cfi" and "nocfi"
 * @word: a word of a --call-graph option
 * @words: the modes; one is set if @word is one of the four
 *
 * Return: 1 if @word is one of the four, 0 if it is not, -EINVAL if an earlier word
 * contradicts it.
 */
int callchain_param__parse_defer_word(const char *word, struct callchain_words *words)
{
	enum callchain_defer_mode defer = CALLCHAIN_DEFER_AUTO;
	enum callchain_cfi_mode cfi = CALLCHAIN_CFI_AUTO;

	if (!strcmp(word, "defer"))
		defer = CALLCHAIN_DEFER_YES;
	else if (!strcmp(word, "nodefer"))
		defer = CALLCHAIN_DEFER_NO;
	else if (!strcmp(word, "cfi"))
		cfi = CALLCHAIN_CFI_YES;
	else if (!strcmp(word, "nocfi"))
		cfi = CALLCHAIN_CFI_NO;
	else
		return 0;

	if (defer && is_contrary("defer", words->defer, defer))
		return -EINVAL;
	if (cfi && is_contrary("cfi", words->cfi, cfi))
		return -EINVAL;

	words->defer = defer ?: words->defer;
	words->cfi = cfi ?: words->cfi;
	if (words->defer == CALLCHAIN_DEFER_NO && words->cfi == CALLCHAIN_CFI_YES) {
		pr_err("callchain: 'nodefer' and 'cfi' do not go together: expected one of them\n");
		return -EINVAL;
	}
	return 1;
}

/**
 * callchain_param__is_mode - look for a record mode
 * @word: a word of a --call-graph option
 *
 * Return: whether it is one.
 */
bool callchain_param__is_mode(const char *word)
{
	return !strcmp(word, "fp") || !strcmp(word, "dwarf") || !strcmp(word, "lbr");
}

/**
 * callchain_param__refuse_mode - refuse a second record mode
 * @word: a word of a --call-graph option that has a record mode already
 *
 * Return: true if @word is a record mode, too; then an error was printed.
 */
bool callchain_param__refuse_mode(const char *word)
{
	if (!callchain_param__is_mode(word))
		return false;

	pr_err("callchain: invalid argument '%s': expected only one of 'fp', 'dwarf' and 'lbr'\n",
	       word);
	return true;
}

/**
 * callchain_param__split_defer - take the words on deferral and tables out of an option
 * @arg: argument of --call-graph or of call-graph.record-mode
 * @words: set to the modes, all zero if there is no such word
 *
 * The words and the size may come in any order. The other words are put into the
 * order "mode[,size]". The words imply the mode "fp" if none is given.
 *
 * Return: the other words, to be freed by the caller, or NULL on error.
 */
char *callchain_param__split_defer(const char *arg, struct callchain_words *words)
{
	const char *mode = NULL;
	char *copy = strdup(arg), *others = calloc(1, strlen(arg) + 1);
	char *word, *pos = NULL, *rest = NULL;

	*words = (struct callchain_words) {};

	if (!copy || !others)
		goto out;

	for (word = strtok_r(copy, ",", &pos); word; word = strtok_r(NULL, ",", &pos)) {
		int ret = callchain_param__parse_defer_word(word, words);

		if (ret < 0)
			goto out;
		if (ret)
			continue;

		if (mode && callchain_param__refuse_mode(word))
			goto out;
		if (callchain_param__is_mode(word)) {
			mode = word;
			continue;
		}
		if (*others)
			strcat(others, ",");
		strcat(others, word);
	}

	if (!mode)
		mode = words->defer || words->cfi ? "fp" : "";

	if (asprintf(&rest, "%s%s%s", mode, *mode && *others ? "," : "", others) < 0)
		rest = NULL;
out:
	free(others);
	free(copy);
	return rest;
}

/**
 * callchain_param__apply_defer - set the modes of callgraph parameters
 * @param: callgraph parameters, with the record mode set
 * @words: from callchain_param__split_defer() or callchain_param__parse_defer_word()
 *
 * Without a word @param stays as it is, so "-g" and "--call-graph fp" keep the modes
 * from the configuration. A word overrides a mode that it contradicts.
 *
 * Return: 0, or -EINVAL if @words do not go with the record mode.
 */
int callchain_param__apply_defer(struct callchain_param *param,
				 const struct callchain_words *words)
{
	static const char * const defer[] = { "", "defer", "nodefer" };
	static const char * const cfi[] = { "", "cfi", "nocfi" };

	if (!words->defer && !words->cfi)
		return 0;

	if (param->record_mode != CALLCHAIN_FP) {
		pr_err("callchain: '%s' does not go with '%s': expected it with 'fp'\n",
		       words->defer ? defer[words->defer] : cfi[words->cfi],
		       param->record_mode == CALLCHAIN_DWARF ? "dwarf" : "lbr");
		return -EINVAL;
	}

	if (words->cfi == CALLCHAIN_CFI_YES && param->defer == CALLCHAIN_DEFER_NO)
		param->defer = CALLCHAIN_DEFER_AUTO;
	if (words->defer == CALLCHAIN_DEFER_NO && param->cfi == CALLCHAIN_CFI_YES)
		param->cfi = CALLCHAIN_CFI_AUTO;
	param->defer = words->defer ?: param->defer;
	param->cfi = words->cfi ?: param->cfi;
	return 0;
}

/* Does the kernel promise that deferred callchains are as good as immediate ones? */
static bool defers_by_default(void)
{
	static int by_default = -1;
	int value = 0;

	if (by_default < 0) {
		if (sysctl__read_int("kernel/perf_event_defer", &value))
			pr_debug2("User callchains are not deferred: no kernel.perf_event_defer\n");
		else if (value != 1)
			pr_debug2("User callchains are not deferred: perf_event_defer is %d\n",
				  value);
		by_default = value == 1;
	}
	return by_default;
}

/* Does the kernel have the attribute bits? */
static bool defers_by_name(void)
{
	static int by_name = -1;

	if (by_name < 0)
		by_name = perf_can_defer_callchain();
	return by_name;
}

static bool callchain_param__defers(const struct callchain_param *param)
{
	static bool warned;

	if (param->record_mode != CALLCHAIN_FP || param->defer == CALLCHAIN_DEFER_NO)
		return false;
	if (param->defer == CALLCHAIN_DEFER_AUTO) {
		/* It goes by tables with this bit only, also where it is not deferred */
		return defers_by_default() ||
		       (param->cfi == CALLCHAIN_CFI_YES && defers_by_name() &&
			!perf_can_set_cfi());
	}

	if (!defers_by_name() && !warned) {
		warned = true;
		pr_warning("WARNING: This kernel cannot defer user callchains, recording them with the samples\n");
	}
	return defers_by_name();
}

/**
 * evlist__may_defer - can a user callchain of these events be deferred?
 * @evlist: events that are not configured yet
 * @param: the callgraph parameters for events that have none of their own
 *
 * Return: true if that is possible; the configuration may still decide against it.
 */
bool evlist__may_defer(struct evlist *evlist, const struct callchain_param *param)
{
	struct evsel *evsel;

	if (param->enabled && callchain_param__defers(param))
		return true;

	evlist__for_each_entry(evlist, evsel) {
		if (evsel__get_config_term(evsel, CALLGRAPH) ||
		    evsel__get_config_term(evsel, MAX_STACK))
			return defers_by_name();
	}
	return false;
}

/**
 * evlist__add_output_event - add the event that gets the deferred callchains
 * @evlist: events that are not configured yet
 * @param: the callgraph parameters for events that have none of their own
 *
 * Return: 0, or -ENOMEM.
 */
int evlist__add_output_event(struct evlist *evlist, const struct callchain_param *param)
{
	if (!evlist__may_defer(evlist, param))
		return 0;

	return evlist__findnew_tracking_event(evlist, /*system_wide=*/false) ? 0 : -ENOMEM;
}

/**
 * evsel__config_defer_callchain - let an event's user callchain be deferred
 * @evsel: event with its callgraph configured
 * @param: the callgraph parameters of the event
 */
void evsel__config_defer_callchain(struct evsel *evsel, const struct callchain_param *param)
{
	struct perf_event_attr *attr = &evsel->core.attr;

	attr->defer_callchain = !attr->exclude_callchain_user && callchain_param__defers(param);
	evsel->cfi = param->cfi;
	if (param->record_mode != CALLCHAIN_FP || param->defer == CALLCHAIN_DEFER_NO)
		evsel->cfi = CALLCHAIN_CFI_NO;
}

static bool evsel__can_defer_callchain(struct evsel *evsel)
{
	const struct perf_event_attr *attr = &evsel->core.attr;

	/* perf writes the off-cpu samples itself, with stacks from a BPF program. */
	if (evsel__is_bpf_output(evsel) && evsel__name_is(evsel, OFFCPU_EVENT))
		return false;

	return evsel__has_callchain(evsel) && !attr->exclude_callchain_user;
}

/**
 * evlist__config_defer_output - let the tracking event get the deferred callchains
 * @evlist: events, configured but for attr.defer_output
 * @opts: the options of the recording
 *
 * A record is cut at the maximum depth of its output event, so this event gets the
 * largest depth of all events. If some samples have a time, the records need a time, too:
 * a record without one is delivered as soon as it is read (with perf record --per-thread
 * only tracepoints have times). Samples that are read from a pipe wait for their
 * callchains in a queue in time order, so all events get times then.
 */
void evlist__config_defer_output(struct evlist *evlist, const struct record_opts *opts)
{
	struct evsel *evsel, *output;
	bool deferred = false, timed = false, possible;
	unsigned int max_stack = 0;

	if (evlist__empty(evlist))
		return;

	output = evlist__get_tracking_event(evlist);
	possible = evsel__is_dummy_event(output) &&
		   !(opts->read_in_order && opts->sample_time_set && !opts->sample_time);

	/* Event terms, leader sampling and others may have removed the callchain since. */
	evlist__for_each_entry(evlist, evsel) {
		struct perf_event_attr *attr = &evsel->core.attr;

		attr->defer_callchain &= possible && evsel__can_defer_callchain(evsel);
		timed |= attr->sample_type & PERF_SAMPLE_TIME;
		if (attr->defer_callchain) {
			deferred = true;
			max_stack = max(max_stack, attr->sample_max_stack ?:
						   (unsigned int)sysctl__max_stack());
		}
	}
	if (!deferred)
		return;

	output->core.attr.defer_output = 1;
	output->core.attr.sample_max_stack = min_t(unsigned int, max_stack, USHRT_MAX);
	if (timed)
		evsel__set_sample_bit(output, TIME);
	if (opts->read_in_order) {
		evlist__for_each_entry(evlist, evsel)
			evsel__set_sample_bit(evsel, TIME);
	}
}

/* The strongest word of those events whose callchains can go by tables */
static enum callchain_cfi_mode evlist__cfi(struct evlist *evlist)
{
	enum callchain_cfi_mode mode = CALLCHAIN_CFI_NO;
	struct evsel *evsel;

	evlist__for_each_entry(evlist, evsel) {
		if (!evsel__can_defer_callchain(evsel))
			continue;
		if (evsel->cfi == CALLCHAIN_CFI_YES)
			return CALLCHAIN_CFI_YES;
		if (evsel->cfi == CALLCHAIN_CFI_AUTO)
			mode = CALLCHAIN_CFI_AUTO;
	}
	return mode;
}

/**
 * evlist__wants_cfi - are user callchains to be unwound by tables?
 * @evlist: events, configured
 *
 * Return: whether one of the events wants it. They are for all, then.
 */
bool evlist__wants_cfi(struct evlist *evlist)
{
	return evlist__cfi(evlist) != CALLCHAIN_CFI_NO;
}

/**
 * evlist__no_cfi - say why there are no tables
 * @evlist: events, configured, that want them
 * @why: the reason
 *
 * It is told with -v, or to who has asked for tables by name.
 */
void evlist__no_cfi(struct evlist *evlist, const char *why)
{
	if (evlist__cfi(evlist) == CALLCHAIN_CFI_YES)
		pr_warning("WARNING: No unwinding tables, user callchains go by frame pointers: %s\n",
			   why);
	else if (evlist__wants_cfi(evlist))
		pr_debug("No unwinding tables, user callchains go by frame pointers: %s\n", why);
}

/**
 * evlist__defers_callchains - does one of the events get deferred callchains?
 * @evlist: configured events
 *
 * Return: true if an event has attr.defer_output.
 */
bool evlist__defers_callchains(struct evlist *evlist)
{
	struct evsel *evsel;

	evlist__for_each_entry(evlist, evsel) {
		if (evsel->core.attr.defer_output)
			return true;
	}
	return false;
}

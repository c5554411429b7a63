// SPDX-License-Identifier: GPL-2.0
/*
 * Recording of deferred user callchains.
 *
 * With attr.defer_callchain the kernel may leave the user part of a callchain
 * out of a sample, and write it as a record of its own
 * (PERF_RECORD_CALLCHAIN_DEFERRED) when the task goes back to user space. The
 * records go to the events with attr.defer_output. This file decides which
 * events get the two bits:
 *
 * - defer_callchain: every event that samples a frame pointer callchain with a
 *   user part. It is asked for by default; "--call-graph fp,nodefer" forbids it.
 *
 * - defer_output: the one event that gets the side-band records too. More than
 *   one would record each callchain more than once.
 *
 * The record is written where the task leaves the kernel, which need not be the
 * CPU of the sample. The event with defer_output has to be there: when it is not
 * on all CPUs, callchains are not deferred at all.
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <linux/compiler.h>
#include <linux/kernel.h>
#include <internal/cpumap.h>
#include <perf/cpumap.h>

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

/* Some event that wants deferral got it asked for by name: "fp,defer". */
static bool defer_by_name;

/**
 * callchain_param__parse_defer_word - parse one of the words that are about deferral
 * @word: a word of a --call-graph option
 * @defer: set when the word is "defer" or "nodefer"
 *
 * Return: 1 when it was one of them, 0 when it was not, -EINVAL when it is
 * the contrary of what @defer has from an earlier word.
 */
int callchain_param__parse_defer_word(const char *word, enum callchain_defer_mode *defer)
{
	enum callchain_defer_mode new;

	if (!strcmp(word, "defer"))
		new = CALLCHAIN_DEFER_YES;
	else if (!strcmp(word, "nodefer"))
		new = CALLCHAIN_DEFER_NO;
	else
		return 0;

	if (*defer != CALLCHAIN_DEFER_AUTO && *defer != new) {
		pr_err("callchain: 'defer' and 'nodefer' exclude each other\n");
		return -EINVAL;
	}

	*defer = new;
	return 1;
}

static bool is_record_mode(const char *word)
{
	return !strcmp(word, "fp") || !strcmp(word, "dwarf") || !strcmp(word, "lbr");
}

/**
 * callchain_param__refuse_mode - a record mode where there is one already
 * @word: a word of a --call-graph option
 *
 * Return: true when it is one; that is told then.
 */
bool callchain_param__refuse_mode(const char *word)
{
	if (!is_record_mode(word))
		return false;

	pr_err("callchain: '%s' is one record mode too many, name only one of fp, dwarf and lbr\n",
	       word);
	return true;
}

/**
 * callchain_param__split_defer - take the words about deferral out of an option
 * @arg: argument of --call-graph or of call-graph.record-mode
 * @defer: what the words say, CALLCHAIN_DEFER_AUTO when there is none
 *
 * The words and the size may come in any order. Bring what remains into the
 * order "mode[,size]". Deferral implies the mode "fp" when none is given.
 *
 * Return: the remaining words, to be freed by the caller, or NULL on error.
 */
char *callchain_param__split_defer(const char *arg, enum callchain_defer_mode *defer)
{
	const char *mode = NULL;
	char *words = strdup(arg), *others = calloc(1, strlen(arg) + 1);
	char *word, *pos = NULL, *rest = NULL;

	*defer = CALLCHAIN_DEFER_AUTO;

	if (!words || !others)
		goto out;

	for (word = strtok_r(words, ",", &pos); word; word = strtok_r(NULL, ",", &pos)) {
		int ret = callchain_param__parse_defer_word(word, defer);

		if (ret < 0)
			goto out;
		if (ret)
			continue;

		if (mode && callchain_param__refuse_mode(word))
			goto out;
		if (is_record_mode(word)) {
			mode = word;
			continue;
		}
		if (*others)
			strcat(others, ",");
		strcat(others, word);
	}

	if (!mode)
		mode = *defer == CALLCHAIN_DEFER_AUTO ? "" : "fp";

	if (asprintf(&rest, "%s%s%s", mode, *mode && *others ? "," : "", others) < 0)
		rest = NULL;
out:
	free(others);
	free(words);
	return rest;
}

/**
 * callchain_param__apply_defer - set what the words of an option said about deferral
 * @param: callgraph parameters, with the record mode set
 * @defer: from callchain_param__split_defer() or callchain_param__parse_defer_word()
 *
 * No word leaves @param as it is, so that "-g" and "--call-graph fp" keep the
 * word given in the configuration.
 *
 * Return: 0, or -EINVAL when the words and the record mode do not go together.
 */
int callchain_param__apply_defer(struct callchain_param *param, enum callchain_defer_mode defer)
{
	if (defer == CALLCHAIN_DEFER_AUTO)
		return 0;

	if (param->record_mode != CALLCHAIN_FP) {
		pr_err("callchain: '%s' goes with --call-graph fp only, not with %s\n",
		       defer == CALLCHAIN_DEFER_YES ? "defer" : "nodefer",
		       param->record_mode == CALLCHAIN_DWARF ? "dwarf" : "lbr");
		return -EINVAL;
	}

	param->defer = defer;
	return 0;
}

static bool callchain_param__may_defer(const struct callchain_param *param)
{
	return param->record_mode == CALLCHAIN_FP && param->defer != CALLCHAIN_DEFER_NO;
}

/**
 * evsel__config_defer_callchain - let an event's user callchain be deferred
 * @evsel: event with its callgraph configured
 * @param: the callgraph parameters it was configured with
 */
void evsel__config_defer_callchain(struct evsel *evsel, const struct callchain_param *param)
{
	struct perf_event_attr *attr = &evsel->core.attr;

	attr->defer_callchain = callchain_param__may_defer(param) &&
				!attr->exclude_callchain_user;

	if (attr->defer_callchain && param->defer == CALLCHAIN_DEFER_YES)
		defer_by_name = true;
}

/* Whether the kernel knows deferral, for what has to be known before it is asked for */
static bool can_defer(void)
{
	static int can = -1;

	if (can < 0)
		can = perf_can_defer_callchain();

	return can;
}

/* The number that is one of the words of a call-graph term, 0 without */
static unsigned int words__number(const char *words)
{
	unsigned long number;
	char *end;

	for (;;) {
		number = strtoul(words, &end, 0);
		if (end != words && (*end == ',' || !*end))
			return min(number, (unsigned long)USHRT_MAX);
		words = strchr(words, ',');
		if (!words)
			return 0;
		words++;
	}
}

static bool words__have(const char *words, const char *word)
{
	size_t len = strlen(word);

	while (strncmp(words, word, len) || (words[len] != ',' && words[len])) {
		words = strchr(words, ',');
		if (!words)
			return false;
		words++;
	}
	return true;
}

/* Will the user callchain of the event be deferred, when its terms are applied? */
static bool evsel__may_defer(struct evsel *evsel, const struct callchain_param *param)
{
	const struct evsel_config_term *term = evsel__get_config_term(evsel, CALLGRAPH);
	const char *words;

	if (!term) {
		if (evsel__get_config_term(evsel, MAX_STACK))
			return param->defer != CALLCHAIN_DEFER_NO;
		/* The configuration names a mode and does not ask for callchains */
		return param->enabled && callchain_param__may_defer(param);
	}
	words = term->val.str;
	if (words__have(words, "nodefer"))
		return false;
	/* Alone it says "fp", too, see callchain_param__split_defer() */
	if (words__have(words, "defer"))
		return !words__have(words, "dwarf") && !words__have(words, "lbr");
	return words__have(words, "fp") && param->defer != CALLCHAIN_DEFER_NO;
}

/* And that of any of them, by a kernel that knows that? */
static bool evlist__may_defer(struct evlist *evlist, const struct callchain_param *param)
{
	struct evsel *evsel;

	evlist__for_each_entry(evlist, evsel) {
		if (evsel__may_defer(evsel, param))
			return can_defer();
	}
	return false;
}

/* What the events that defer have, and the one that gets their callchains has to have */
struct defer_needs {
	bool		inherit;
	bool		forward;	/* a buffer that is not overwritten */
	unsigned int	max_stack;
};

static void defer_needs__add(struct defer_needs *needs, const struct defer_needs *more)
{
	needs->inherit |= more->inherit;
	needs->forward |= more->forward;
	needs->max_stack = max(needs->max_stack, more->max_stack);
}

static bool defer_needs__met(const struct defer_needs *needs, const struct defer_needs *has)
{
	return has->inherit >= needs->inherit && has->forward >= needs->forward &&
	       has->max_stack >= needs->max_stack;
}

/* What an event has without terms of its own; @max_stack if nothing else is said */
static struct defer_needs opts__foresee(const struct record_opts *opts,
					const struct callchain_param *param,
					unsigned int max_stack)
{
	return (struct defer_needs) {
		.inherit   = !opts->no_inherit,
		.forward   = !opts->overwrite,
		.max_stack = param->max_stack ?: max_stack,
	};
}

static struct defer_needs evsel__foresee(struct evsel *evsel, const struct record_opts *opts,
					 const struct callchain_param *param,
					 unsigned int max_stack)
{
	struct defer_needs has = opts__foresee(opts, param, max_stack);
	const struct evsel_config_term *term;

	term = evsel__get_config_term(evsel, INHERIT);
	if (term)
		has.inherit = term->val.inherit;
	term = evsel__get_config_term(evsel, OVERWRITE);
	if (term)
		has.forward = !term->val.overwrite;
	term = evsel__get_config_term(evsel, MAX_STACK);
	if (term)
		has.max_stack = term->val.max_stack;
	/* Of "dwarf" the number is another one, but it does not make a leader fit. */
	term = evsel__get_config_term(evsel, CALLGRAPH);
	if (term)
		has.max_stack = words__number(term->val.str) ?: has.max_stack;
	return has;
}

/*
 * Can the tracking event get the callchains of all, see evsel__can_output()? True also
 * when one of their own could not either.
 */
static bool evlist__foresees_output(struct evlist *evlist, const struct record_opts *opts,
				    const struct callchain_param *param)
{
	unsigned int max_stack = sysctl__max_stack();
	struct defer_needs needs = {}, has;
	struct evsel *evsel;

	evlist__for_each_entry(evlist, evsel) {
		if (evsel__may_defer(evsel, param)) {
			has = evsel__foresee(evsel, opts, param, max_stack);
			defer_needs__add(&needs, &has);
		}
	}

	evsel = evlist__get_tracking_event(evlist);
	has = evsel__foresee(evsel, opts, param, max_stack);
	if (evsel__is_group_leader(evsel) && defer_needs__met(&needs, &has))
		return true;

	has = opts__foresee(opts, param, max_stack);
	has.max_stack = max_stack;
	return !defer_needs__met(&needs, &has);
}

/* One of several, or their leader */
static bool evsel__is_in_group(struct evsel *evsel)
{
	return !evsel__is_group_leader(evsel) || evsel->core.nr_members > 1;
}

/**
 * evlist__wants_output_event - do deferred callchains need an event of their own?
 * @evlist: events that are not configured yet
 * @opts: what was asked for
 * @param: the callgraph parameters for those that have none of their own
 *
 * They do where the event that gets them can be switched off alone, and where it
 * would cut them, not be inherited or be overwritten, unlike one whose they are.
 *
 * A dummy that tracks would be taken for the event of their own, and be enabled at
 * once. In a group that would have others sample before their time.
 *
 * Return: false also when no callchains will be deferred, or the kernel does not know
 * that.
 */
bool evlist__wants_output_event(struct evlist *evlist, const struct record_opts *opts,
				const struct callchain_param *param)
{
	struct evsel *tracking = evlist__get_tracking_event(evlist);

	if (evsel__is_dummy_event(tracking) && evsel__is_in_group(tracking))
		return false;

	return evlist__may_defer(evlist, param) &&
	       (opts->ctl_fd >= 0 || !evlist__foresees_output(evlist, opts, param));
}

/* Of a callchain, if nothing else is said, or of a record, where it is cut as well */
static unsigned int evsel__max_stack(const struct evsel *evsel)
{
	return evsel->core.attr.sample_max_stack ?: (unsigned int)sysctl__max_stack();
}

static struct defer_needs evsel__needs(const struct evsel *evsel)
{
	return (struct defer_needs) {
		.inherit   = evsel->core.attr.inherit,
		.forward   = !evsel->core.attr.write_backward,
		.max_stack = evsel__max_stack(evsel),
	};
}

static bool evsel__can_defer_callchain(struct evsel *evsel)
{
	const struct perf_event_attr *attr = &evsel->core.attr;

	/* The samples of off-cpu time are made by perf, from a stack that BPF took. */
	if (evsel__is_bpf_output(evsel) && evsel__name_is(evsel, OFFCPU_EVENT))
		return false;

	return evsel__has_callchain(evsel) && !attr->exclude_callchain_user;
}

static bool evsel__is_on_all_cpus(const struct evsel *evsel)
{
	struct perf_cpu_map *online;
	bool ret;

	/* An event of a thread follows it to all CPUs. */
	if (perf_cpu_map__is_any_cpu_or_is_empty(evsel->core.cpus))
		return true;

	online = perf_cpu_map__new_online_cpus();
	ret = online && perf_cpu_map__is_subset(evsel->core.cpus, online);
	perf_cpu_map__put(online);

	return ret;
}

/*
 * Events are disabled, which flushes the callchains, by their leaders. A task that
 * inherits an event that defers is to inherit the one that gets the callchains.
 */
static bool evsel__can_output(struct evsel *evsel, const struct defer_needs *needs)
{
	struct defer_needs has = evsel__needs(evsel);

	return evsel__is_group_leader(evsel) && evsel__is_on_all_cpus(evsel) &&
	       defer_needs__met(needs, &has);
}

/*
 * What a dummy says of tasks and maps does not suffer, and it has no samples to be cut.
 *
 * The kernel refuses to have it inherited without the rest of its group. And a buffer that
 * is of no CPU is not for tasks on several: the kernel does not map that of an inherited
 * event, and is not to be led past that by one whose buffer it is not. Such dummies are
 * left alone.
 */
static bool dummy__meet(struct evsel *evsel, const struct defer_needs *needs)
{
	struct perf_event_attr *attr = &evsel->core.attr;

	if (!evsel__is_group_leader(evsel) || !evsel__is_on_all_cpus(evsel))
		return false;

	if (needs->inherit && !attr->inherit &&
	    (evsel__is_in_group(evsel) ||
	     perf_cpu_map__is_any_cpu_or_is_empty(evsel->core.cpus)))
		return false;

	attr->inherit |= needs->inherit;
	attr->write_backward &= !needs->forward;
	if (evsel__max_stack(evsel) < needs->max_stack)
		attr->sample_max_stack = needs->max_stack;

	return true;
}

/* Let the event have what evsel__config() gave to the one that tracks up to now */
static void evsel__track_instead(struct evsel *evsel, struct evsel *tracking)
{
	struct perf_event_attr *from = &tracking->core.attr, *to = &evsel->core.attr;

	to->task		|= from->task;
	to->comm		|= from->comm;
	to->comm_exec		|= from->comm_exec;
	to->mmap		|= from->mmap;
	to->mmap2		|= from->mmap2;
	to->mmap_data		|= from->mmap_data;
	to->build_id		|= from->build_id;
	to->namespaces		|= from->namespaces;
	to->cgroup		|= from->cgroup;
	to->context_switch	|= from->context_switch;
	to->ksymbol		|= from->ksymbol;
	to->bpf_event		|= from->bpf_event;

	from->task		= 0;
	from->comm		= 0;
	from->comm_exec		= 0;
	from->mmap		= 0;
	from->mmap2		= 0;
	from->mmap_data		= 0;
	from->build_id		= 0;
	from->namespaces	= 0;
	from->cgroup		= 0;
	from->context_switch	= 0;
	from->ksymbol		= 0;
	from->bpf_event		= 0;

	evlist__set_tracking_event(evsel->evlist, evsel);
}

/*
 * The tracking event cannot get the callchains of all, see evsel__can_output(): let one
 * that can track in its place. A dummy is changed instead, if it can be: it has nothing
 * else to do. If it cannot be, and is enabled before the others, it tracks on, and nothing
 * is deferred: what comes until then is worth more.
 */
static void evlist__make_output(struct evlist *evlist, const struct record_opts *opts,
				const struct defer_needs *needs)
{
	struct evsel *evsel, *tracking = evlist__get_tracking_event(evlist);

	if (evsel__is_dummy_event(tracking) &&
	    (dummy__meet(tracking, needs) || tracking->immediate || opts->target.initial_delay))
		return;

	evlist__for_each_entry(evlist, evsel) {
		/* The tasks of other control groups are not to be lost sight of */
		if (evsel->cgrp && evsel->cgrp != tracking->cgrp)
			continue;
		/* The output of BPF programs, in perf trace, is not for tracking */
		if (evsel__can_output(evsel, needs) && !evsel__is_bpf_output(evsel)) {
			evsel__track_instead(evsel, tracking);
			return;
		}
	}
}

/* Why not this one, which is the tracking event, and no other one that could be? */
static const char *evsel__why_no_output(const struct evsel *evsel,
					const struct defer_needs *needs)
{
	if (evsel__is_on_all_cpus(evsel) && (evsel->core.attr.inherit || !needs->inherit) &&
	    evsel__max_stack(evsel) < needs->max_stack)
		return "The side-band event has a smaller max-stack than another one";
	return "No side-band event on all CPUs and in all tasks";
}

static void warn_by_name(const char *why)
{
	if (defer_by_name)
		pr_warning("WARNING: %s, recording user callchains without deferral.\n", why);
	defer_by_name = false;
}

static void evlist__stop_deferral(struct evlist *evlist)
{
	struct evsel *evsel;

	evlist__for_each_entry(evlist, evsel)
		evsel->core.attr.defer_callchain = 0;
}

static void deferral_is_missing(void)
{
	if (perf_missing_features.defer_callchain)
		return;

	perf_missing_features.defer_callchain = true;
	pr_debug2_peo("switching off deferred callchain support\n");
	warn_by_name("The kernel has no deferred user callchains");
}

/**
 * evlist__config_defer_output - have the tracking event get the deferred callchains
 * @evlist: events with all else configured
 * @opts: what was asked for
 *
 * Where it cannot, and the kernel defers, another one becomes the tracking event; where
 * there is none that could be, callchains are not deferred.
 *
 * Where the samples are read in order, from a pipe or live, they wait for their
 * callchains in a queue that goes by their times: so they get one.
 */
void evlist__config_defer_output(struct evlist *evlist, const struct record_opts *opts)
{
	struct defer_needs needs = {}, more;
	struct evsel *evsel, *output;
	bool deferred = false;

	if (evlist__empty(evlist))
		return;

	/* Event terms, leader sampling and others can have taken the callchain away. */
	evlist__for_each_entry(evlist, evsel) {
		if (!evsel__can_defer_callchain(evsel))
			evsel->core.attr.defer_callchain = 0;
		if (evsel->core.attr.defer_callchain) {
			deferred = true;
			more = evsel__needs(evsel);
			defer_needs__add(&needs, &more);
		}
		evsel->core.attr.defer_output = 0;
	}

	if (!deferred)
		return;

	output = evlist__get_tracking_event(evlist);
	if (!evsel__can_output(output, &needs) && can_defer()) {
		evlist__make_output(evlist, opts, &needs);
		output = evlist__get_tracking_event(evlist);
	}
	if (!evsel__can_output(output, &needs)) {
		pr_debug("'%s' is not on all CPUs, in all tasks or for all of a callchain, callchains are not deferred\n",
			 evsel__name(output));
		if (can_defer())
			warn_by_name(evsel__why_no_output(output, &needs));
		else
			deferral_is_missing();
		evlist__stop_deferral(evlist);
		return;
	}

	if (opts->read_in_order) {
		if (opts->sample_time_set && !opts->sample_time) {
			warn_by_name("No timestamps in a pipe");
			evlist__stop_deferral(evlist);
			return;
		}
		/* Without deferral they need none */
		if (!can_defer()) {
			deferral_is_missing();
			evlist__stop_deferral(evlist);
			return;
		}
		evlist__for_each_entry(evlist, evsel)
			evsel__set_sample_bit(evsel, TIME);
	}

	output->core.attr.defer_output = 1;
}

/**
 * evsel__detect_missing_deferral - find out if the kernel does not know deferral
 * @evsel: event that the kernel refused with EINVAL
 *
 * There are many reasons for an EINVAL. Deferral is lost for all events, so make
 * sure with an event that has nothing else to be refused for.
 *
 * Return: true when the event is to be tried again without.
 */
bool evsel__detect_missing_deferral(struct evsel *evsel)
{
	const struct perf_event_attr *attr = &evsel->core.attr;

	if (perf_missing_features.defer_callchain ||
	    (!attr->defer_callchain && !attr->defer_output) || can_defer())
		return false;

	deferral_is_missing();
	return true;
}

/**
 * evsel__disable_deferral - have the user callchain in each sample, as ever
 * @evsel: event that is not open
 */
void evsel__disable_deferral(struct evsel *evsel)
{
	evsel->core.attr.defer_callchain = 0;
	evsel->core.attr.defer_output = 0;
}

/**
 * evlist__defers_callchains - is there an event that gets deferred callchains?
 * @evlist: events, opened
 *
 * Return: whether one of them has defer_output.
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

/**
 * evlist__note_max_stack - say where merged callchains are to be cut
 * @evlist: events, opened
 *
 * The kernel cuts immediate callchains, kernel and user frames together, at a
 * sysctl where the event has no maximum of its own. Merged ones are cut by
 * whoever reads the data, and that is not where or when it was recorded. The
 * kernel took the same value for the event, and is not asked for it: before the
 * event is open it is not known if that knows the field.
 */
void evlist__note_max_stack(struct evlist *evlist)
{
	struct evsel *evsel;

	evlist__for_each_entry(evlist, evsel) {
		struct perf_event_attr *attr = &evsel->core.attr;

		if (attr->defer_callchain && !attr->sample_max_stack)
			attr->sample_max_stack = min(sysctl__max_stack(), USHRT_MAX);
	}
}

/**
 * evsel__disable_turn - when to disable an event, among the others
 * @evsel: event
 *
 * Disabling the event with defer_output makes the kernel write the callchains
 * that samples still wait for, of tasks asleep in the kernel. There must be no
 * more samples after that, so it comes after all others. Before it come the
 * 'immediate' events, which follow the code that the samples run through.
 *
 * Return: 0 for the first turn, up to 2 for the last one.
 */
int evsel__disable_turn(const struct evsel *evsel)
{
	if (evsel->core.attr.defer_output)
		return 2;

	return evsel->immediate ? 1 : 0;
}

/**
 * evsel__enable_turn - when to enable an event, among the others
 * @evsel: event
 *
 * A callchain that is ready before an event is there to take it is lost.
 *
 * Return: 0 for the first turn, 1 for the last one.
 */
int evsel__enable_turn(const struct evsel *evsel)
{
	return evsel->core.attr.defer_output ? 0 : 1;
}

struct disabling {
	struct evlist	*evlist;
	bool		done;
};

static void *disabling__run(void *arg)
{
	struct disabling *disabling = arg;

	evlist__disable(disabling->evlist);
	/* Pairs with smp_load_acquire() in evlist__disable_reading(). */
	smp_store_release(&disabling->done, true);
	return NULL;
}

/**
 * evlist__disable_reading - disable all events while their buffers are read
 * @evlist: events, opened and mapped
 * @read: reads the buffers; an error, which is negative, ends the reading
 * @arg: for @read
 *
 * Disabling the event with defer_output makes the kernel write a callchain for each
 * task asleep that has samples, all at once. There may be more of them than the buffers
 * have room for. Who reads gets a moment to make some; what has none then is lost. So a
 * thread of its own disables the events, and @read is called by this one until that is
 * done. Where there can be no such thread this one does both, one after the other.
 *
 * Signals are left to the threads that there were.
 *
 * Return: 0, or the first error of @read; the events are disabled anyway.
 */
int evlist__disable_reading(struct evlist *evlist, int (*read)(void *arg), void *arg)
{
	struct disabling disabling = { .evlist = evlist, };
	sigset_t all, saved;
	pthread_t thread;
	int err = 0, ret;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &saved);
	ret = pthread_create(&thread, NULL, disabling__run, &disabling);
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	if (ret) {
		evlist__disable(evlist);
		return 0;
	}

	/* Pairs with smp_store_release() in disabling__run(). */
	while (!err && !smp_load_acquire(&disabling.done)) {
		err = min(read(arg), 0);
		/* Leave a CPU that it shares to the other one */
		usleep(100);
	}
	pthread_join(thread, NULL);
	return err;
}

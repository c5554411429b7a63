// SPDX-License-Identifier: GPL-2.0
/*
 * Options and event attributes of deferred user callchains. On kernels without the
 * feature it is not tested how events are changed for it, but that they are not.
 */
#include <limits.h>
#include <string.h>

#include <perf/cpumap.h>

#include "callchain.h"
#include "cgroup.h"
#include "debug.h"
#include "defer-record.h"
#include "evlist.h"
#include "evsel.h"
#include "parse-events.h"
#include "perf_api_probe.h"
#include "record.h"
#include "tests.h"

static const struct {
	const char			*arg;
	int				ret;
	enum perf_call_graph_mode	mode;
	enum callchain_defer_mode		defer;
	unsigned int			max_stack;
	unsigned int			dump_size;
} options[] = {
	{ "fp",			0, CALLCHAIN_FP,    CALLCHAIN_DEFER_AUTO, 0,  0 },
	{ "fp,8",		0, CALLCHAIN_FP,    CALLCHAIN_DEFER_AUTO, 8,  0 },
	{ "fp,defer",		0, CALLCHAIN_FP,    CALLCHAIN_DEFER_YES,  0,  0 },
	{ "fp,nodefer",		0, CALLCHAIN_FP,    CALLCHAIN_DEFER_NO,   0,  0 },
	{ "fp,defer,8",		0, CALLCHAIN_FP,    CALLCHAIN_DEFER_YES,  8,  0 },
	{ "fp,8,defer",		0, CALLCHAIN_FP,    CALLCHAIN_DEFER_YES,  8,  0 },
	{ "8,fp,nodefer",	0, CALLCHAIN_FP,    CALLCHAIN_DEFER_NO,   8,  0 },
	{ "defer,8,fp",		0, CALLCHAIN_FP,    CALLCHAIN_DEFER_YES,  8,  0 },
	{ "defer",		0, CALLCHAIN_FP,    CALLCHAIN_DEFER_YES,  0,  0 },
	{ "nodefer,8",		0, CALLCHAIN_FP,    CALLCHAIN_DEFER_NO,   8,  0 },
	{ "fp,defer,defer",	0, CALLCHAIN_FP,    CALLCHAIN_DEFER_YES,  0,  0 },
	{ "dwarf",		0, CALLCHAIN_DWARF, CALLCHAIN_DEFER_AUTO, 0,  8192 },
	{ "dwarf,4096",		0, CALLCHAIN_DWARF, CALLCHAIN_DEFER_AUTO, 0,  4096 },
	{ "4096,dwarf",		0, CALLCHAIN_DWARF, CALLCHAIN_DEFER_AUTO, 0,  4096 },
	{ "lbr",		0, CALLCHAIN_LBR,   CALLCHAIN_DEFER_AUTO, 0,  0 },
	{ .arg = "fp,defer,nodefer",	.ret = -1 },
	{ .arg = "nodefer,fp,defer",	.ret = -1 },
	{ .arg = "fp,deferred",		.ret = -1 },
	{ .arg = "fp,def",		.ret = -1 },
	{ .arg = "fp,8x",		.ret = -1 },
	{ .arg = "dwarf,defer",		.ret = -1 },
	{ .arg = "dwarf,4096,defer",	.ret = -1 },
	{ .arg = "defer,dwarf",		.ret = -1 },
	{ .arg = "dwarf,nodefer",	.ret = -1 },
	{ .arg = "lbr,defer",		.ret = -1 },
	{ .arg = "nodefer,lbr",		.ret = -1 },
	{ .arg = "8",			.ret = -1 },
	{ .arg = "",			.ret = -1 },
};

static int check_param(const char *arg, const struct callchain_param *param, size_t i)
{
	TEST_ASSERT_EQUAL(arg, (int)param->record_mode, (int)options[i].mode);
	TEST_ASSERT_EQUAL(arg, (int)param->defer, (int)options[i].defer);
	TEST_ASSERT_EQUAL(arg, (int)param->max_stack, (int)options[i].max_stack);
	TEST_ASSERT_EQUAL(arg, (int)param->dump_size, (int)options[i].dump_size);
	return TEST_OK;
}

static int test__defer_parse(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	bool dwarf_users = dwarf_callchain_users;

	for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
		struct callchain_param param = {};
		const char *arg = options[i].arg;
		int ret = parse_callchain_record_opt(arg, &param);

		pr_debug("'%s': %d\n", arg, ret);
		TEST_ASSERT_EQUAL(arg, !!ret, !!options[i].ret);
		if (!ret && check_param(arg, &param, i))
			return TEST_FAIL;
	}

	dwarf_callchain_users = dwarf_users;
	return TEST_OK;
}

/* "-g" and a "--call-graph" without a word keep what the configuration says. */
static int test__defer_config(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	struct callchain_param saved = callchain_param;
	int ret = TEST_FAIL;

	callchain_param = callchain_param_default;

	for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
		const char *arg = options[i].arg;

		callchain_param = callchain_param_default;
		if (!!perf_callchain_config("call-graph.record-mode", arg) != !!options[i].ret) {
			pr_debug("call-graph.record-mode=%s: wrong result\n", arg);
			goto out;
		}
		if (!options[i].ret && options[i].mode == CALLCHAIN_FP &&
		    check_param(arg, &callchain_param, i))
			goto out;
	}

	callchain_param = callchain_param_default;
	if (perf_callchain_config("call-graph.record-mode", "fp,nodefer") ||
	    parse_callchain_record_opt("fp", &callchain_param) ||
	    callchain_param.defer != CALLCHAIN_DEFER_NO) {
		pr_debug("'fp' forgot the configured 'nodefer'\n");
		goto out;
	}
	if (parse_callchain_record_opt("fp,defer", &callchain_param) ||
	    callchain_param.defer != CALLCHAIN_DEFER_YES) {
		pr_debug("'fp,defer' did not override the configured 'nodefer'\n");
		goto out;
	}
	/* A configured 'defer' is no error for other modes on the command line. */
	if (parse_callchain_record_opt("lbr", &callchain_param)) {
		pr_debug("'lbr' does not go with a configured 'defer'\n");
		goto out;
	}
	ret = TEST_OK;
out:
	callchain_param = saved;
	return ret;
}

/* perf top has print options in the same list, and no frame number */
static int test__defer_top(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	static const struct {
		const char		*arg;
		int			ret;
		enum callchain_defer_mode	defer;
		enum chain_order	order;
	} tops[] = {
		{ "fp",				0, CALLCHAIN_DEFER_AUTO, ORDER_CALLEE },
		{ "fp,defer,graph,caller",	0, CALLCHAIN_DEFER_YES,  ORDER_CALLER },
		{ "graph,nodefer,fp,callee",	0, CALLCHAIN_DEFER_NO,   ORDER_CALLEE },
		{ "defer,0.5,caller",		0, CALLCHAIN_DEFER_YES,  ORDER_CALLER },
		{ .arg = "fp,defer,nodefer",	.ret = -1 },
		{ .arg = "dwarf,defer",		.ret = -1 },
		{ .arg = "defer,graph,lbr",	.ret = -1 },
	};
	struct callchain_param saved = callchain_param;
	bool dwarf_users = dwarf_callchain_users, use_callchain = symbol_conf.use_callchain;
	int ret = TEST_OK;

	for (size_t i = 0; i < ARRAY_SIZE(tops) && ret == TEST_OK; i++) {
		char arg[64];
		int err;

		snprintf(arg, sizeof(arg), "%s", tops[i].arg);
		callchain_param = callchain_param_default;
		callchain_param.record_mode = CALLCHAIN_FP;

		err = parse_callchain_top_opt(arg);
		if (!!err != !!tops[i].ret ||
		    (!err && (callchain_param.record_mode != CALLCHAIN_FP ||
			      callchain_param.defer != tops[i].defer ||
			      callchain_param.order != tops[i].order))) {
			pr_debug("'%s': %d, defer %d, order %d\n", tops[i].arg, err,
				 callchain_param.defer, callchain_param.order);
			ret = TEST_FAIL;
		}
	}

	callchain_param = saved;
	dwarf_callchain_users = dwarf_users;
	symbol_conf.use_callchain = use_callchain;
	return ret;
}

static const struct record_opts default_opts = {
	.sample_time	= true,
	.user_freq	= UINT_MAX,
	.user_interval	= ULLONG_MAX,
	.freq		= 4000,
	.target		= { .uses_mmap = true, .default_per_cpu = true, },
};

static struct evlist *parse(const char *events, const char *call_graph,
			    struct record_opts *opts)
{
	struct evlist *evlist = evlist__new();

	if (!evlist)
		return NULL;

	callchain_param = callchain_param_default;
	callchain_param.enabled = call_graph;

	if (parse_event(evlist, events) ||
	    evlist__create_maps(evlist, &opts->target) ||
	    (call_graph && parse_callchain_record_opt(call_graph, &callchain_param))) {
		evlist__delete(evlist);
		return NULL;
	}
	return evlist;
}

static struct evlist *configure(const char *events, const char *call_graph,
				struct record_opts *opts, const char *cpu)
{
	struct evlist *evlist = parse(events, call_graph, opts);
	struct evsel *evsel;

	if (!evlist)
		return NULL;

	if (cpu) {
		evlist__for_each_entry(evlist, evsel) {
			perf_cpu_map__put(evsel->core.cpus);
			evsel->core.cpus = perf_cpu_map__new(cpu);
		}
	}

	evlist__config(evlist, opts, &callchain_param);
	return evlist;
}

static const struct {
	const char	*events;
	const char	*call_graph;
	const char	*callchain;	/* defer_callchain, one digit an event */
	const char	*output;	/* defer_output */
	bool		kernel_only;
	bool		user_only;
} attrs[] = {
	{ "cpu-clock", NULL, "0", "0", false, false },
	{ "cpu-clock", "fp", "1", "1", false, false },
	{ "cpu-clock,page-faults,dummy", "fp", "111", "100", false, false },
	{ "cpu-clock,page-faults", "fp,defer", "11", "10", false, false },
	{ "cpu-clock,page-faults", "fp,nodefer", "00", "00", false, false },
	{ "cpu-clock,page-faults", "dwarf", "00", "00", false, false },
	{ "cpu-clock", "lbr", "0", "0", false, false },
	{ "{cpu-clock,page-faults}", "fp", "11", "10", false, false },
	{ "cpu-clock/call-graph=no/,page-faults", "fp", "01", "10", false, false },
	{ "cpu-clock,page-faults/call-graph=fp/", NULL, "01", "10", false, false },
	{ "cpu-clock,page-faults/max-stack=4/", "fp", "11", "10", false, false },
	{ "cpu-clock/max-stack=4/", "fp,nodefer", "0", "0", false, false },
	{ "cpu-clock/max-stack=4/,page-faults", "fp", "11", "01", false, false },
	{ "cpu-clock/max-stack=4/,page-faults/max-stack=4/", "fp", "11", "10", false, false },
	{ "cpu-clock/max-stack=4/,page-faults/max-stack=8/", "fp", "11", "01", false, false },
	{ "cpu-clock/max-stack=4/,page-faults/call-graph=no/", "fp", "10", "10", false, false },
	{ "cpu-clock/max-stack=4/,{page-faults,task-clock}", "fp", "111", "010", false, false },
	{ "cpu-clock/max-stack=4/,{page-faults/max-stack=4/,task-clock}", "fp", "000", "000",
	  false, false },
	{ "{cpu-clock/max-stack=4/,page-faults}", "fp", "00", "00", false, false },
	{ "cpu-clock/max-stack=4/,bpf-output/name=out/", "fp", "00", "00", false, false },
	{ "cpu-clock/overwrite/,page-faults", "fp", "11", "01", false, false },
	{ "cpu-clock/overwrite/,page-faults/overwrite/", "fp", "11", "10", false, false },
	{ "cpu-clock,page-faults/overwrite/", "fp", "11", "10", false, false },
	{ "cpu-clock/no-inherit/,page-faults", "fp", "11", "01", false, false },
	{ "cpu-clock/no-inherit/,page-faults/no-inherit/", "fp", "11", "10", false, false },
	{ "cpu-clock,page-faults/no-inherit/", "fp", "11", "10", false, false },
	{ "cpu-clock/no-inherit/,page-faults/max-stack=4/", "fp", "00", "00", false, false },
	{ "{cpu-clock,task-clock}:S,page-faults", "fp", "111", "001", false, false },
	{ "cpu-clock,page-faults/call-graph=fp/", "fp,8", "11", "01", false, false },
	{ "dummy/no-inherit/,page-faults", "fp", "11", "10", false, false },
	{ "dummy/overwrite/,page-faults", "fp", "11", "10", false, false },
	{ "dummy/max-stack=4/,page-faults", "fp", "11", "10", false, false },
	{ "{dummy/no-inherit/,cpu-clock/no-inherit/},page-faults", "fp", "111", "001",
	  false, false },
	{ "{dummy,cpu-clock}:S,page-faults", "fp", "111", "001", false, false },
	{ "cpu-clock/call-graph=dwarf/,page-faults", "fp", "01", "10", false, false },
	{ "cpu-clock/call-graph='fp,nodefer'/,page-faults", "fp", "01", "10", false, false },
	{ "cpu-clock/call-graph='fp,defer'/", "fp,nodefer", "1", "1", false, false },
	{ "cpu-clock/call-graph='defer,4'/", NULL, "1", "1", false, false },
	{ "cpu-clock", "fp", "0", "0", true, false },
	{ "cpu-clock", "fp", "1", "1", false, true },
};

/*
 * Each dummy that comes first lacks one thing that it needs to get the callchains, and is
 * changed to get them, if it can be
 */
static bool dummy_fits(const struct perf_event_attr *attr)
{
	return attr->inherit && !attr->write_backward && attr->sample_max_stack != 4;
}

static int check_attrs(struct evlist *evlist, size_t i)
{
	const char *callchain = attrs[i].callchain, *output = attrs[i].output;
	/* Where none gets the callchains, the first tracks */
	int n = 0, tracking = strcspn(output, "1") % strlen(output);
	bool dummy = evsel__is_dummy_event(evlist__first(evlist));
	struct evsel *evsel;

	/* Nothing is changed for a kernel that does not defer, and the first cannot output */
	if ((tracking || dummy) && !perf_can_defer_callchain()) {
		callchain = "0000";
		output = callchain;
		tracking = 0;
	}

	evlist__for_each_entry(evlist, evsel) {
		struct perf_event_attr *attr = &evsel->core.attr;
		bool tracks = n == tracking;

		if (attr->defer_callchain != (callchain[n] == '1') ||
		    attr->defer_output != (output[n] == '1') ||
		    attr->task != tracks || attr->comm != tracks || attr->mmap != tracks) {
			pr_debug("%s: defer_callchain %d, defer_output %d, task %d, comm %d, mmap %d\n",
				 evsel__name(evsel), attr->defer_callchain, attr->defer_output,
				 attr->task, attr->comm, attr->mmap);
			return TEST_FAIL;
		}
		if (dummy && !n && dummy_fits(attr) != attr->defer_output) {
			pr_debug("%s: inherit %d, write_backward %d, sample_max_stack %d\n",
				 evsel__name(evsel), attr->inherit, attr->write_backward,
				 attr->sample_max_stack);
			return TEST_FAIL;
		}
		n++;
	}

	return n == (int)strlen(attrs[i].callchain) ? TEST_OK : TEST_FAIL;
}

static int test__defer_attr(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	struct callchain_param saved = callchain_param;
	bool dwarf_users = dwarf_callchain_users;
	int ret = TEST_OK;

	for (size_t i = 0; i < ARRAY_SIZE(attrs) && ret == TEST_OK; i++) {
		struct record_opts opts = default_opts;
		struct evlist *evlist;

		opts.kernel_callchains = attrs[i].kernel_only;
		opts.user_callchains = attrs[i].user_only;

		pr_debug("-e %s --call-graph %s\n", attrs[i].events, attrs[i].call_graph);
		evlist = configure(attrs[i].events, attrs[i].call_graph, &opts, NULL);
		ret = evlist ? check_attrs(evlist, i) : TEST_FAIL;
		evlist__delete(evlist);
	}

	callchain_param = saved;
	dwarf_callchain_users = dwarf_users;
	return ret;
}

/* The record comes on whatever CPU the task leaves the kernel. */
static int test__defer_cpus(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	struct callchain_param saved = callchain_param;
	struct perf_cpu_map *online = perf_cpu_map__new_online_cpus();
	struct record_opts opts = default_opts;
	struct evlist *evlist;
	int ret = TEST_FAIL;
	char cpu[16];

	TEST_ASSERT_VAL("no CPUs", online);

	snprintf(cpu, sizeof(cpu), "%d", perf_cpu_map__max(online).cpu);
	evlist = configure("cpu-clock,page-faults", "fp", &opts, cpu);
	if (evlist) {
		bool defer = perf_cpu_map__nr(online) == 1;
		struct evsel *first = evlist__first(evlist), *last = evlist__last(evlist);

		if (first->core.attr.defer_callchain == defer &&
		    first->core.attr.defer_output == defer &&
		    last->core.attr.defer_callchain == defer &&
		    !last->core.attr.defer_output &&
		    evlist__defers_callchains(evlist) == defer &&
		    evsel__has_callchain(first))
			ret = TEST_OK;
	}

	evlist__delete(evlist);

	/* Nor is a dummy changed for what it cannot do anyway */
	evlist = configure("dummy/no-inherit/,page-faults", "fp", &opts, cpu);
	if (!evlist || (perf_cpu_map__nr(online) > 1 &&
			evlist__first(evlist)->core.attr.inherit))
		ret = TEST_FAIL;

	evlist__delete(evlist);

	/* There is one buffer for a thread on all CPUs, which nothing inherits */
	opts.target.per_thread = true;
	evlist = configure("dummy,page-faults/inherit/", "fp", &opts, NULL);
	if (!evlist || evlist__first(evlist)->core.attr.inherit ||
	    evlist__last(evlist)->core.attr.defer_output != perf_can_defer_callchain())
		ret = TEST_FAIL;

	evlist__delete(evlist);

	/* Nor does another event track in its place, if that is enabled later */
	opts.target.initial_delay = 1;
	evlist = configure("dummy,page-faults/inherit/", "fp", &opts, NULL);
	if (!evlist || !evlist__first(evlist)->core.attr.comm ||
	    evlist__last(evlist)->core.attr.comm || evlist__defers_callchains(evlist))
		ret = TEST_FAIL;

	evlist__delete(evlist);

	opts = default_opts;
	evlist = parse("{dummy,cpu-clock}:S,page-faults", "fp", &opts);
	if (evlist) {
		evlist__first(evlist)->immediate = true;
		evlist__config(evlist, &opts, &callchain_param);
		if (!evlist__first(evlist)->core.attr.comm ||
		    evlist__last(evlist)->core.attr.comm || evlist__defers_callchains(evlist))
			ret = TEST_FAIL;
	} else {
		ret = TEST_FAIL;
	}

	evlist__delete(evlist);

	/* Only a leader gets them */
	opts = default_opts;
	evlist = parse("{cpu-clock,dummy/max-stack=4/}", "fp", &opts);
	if (evlist) {
		struct evsel *dummy = evlist__last(evlist);

		evlist__set_tracking_event(evlist, dummy);
		evlist__config(evlist, &opts, &callchain_param);
		if (dummy->core.attr.sample_max_stack != 4 ||
		    evlist__first(evlist)->core.attr.defer_output != perf_can_defer_callchain())
			ret = TEST_FAIL;
	} else {
		ret = TEST_FAIL;
	}

	evlist__delete(evlist);
	perf_cpu_map__put(online);
	callchain_param = saved;
	return ret;
}

/* What an event records of tasks and maps, one bit each */
static unsigned int side_band(const struct evsel *evsel)
{
	const struct perf_event_attr *attr = &evsel->core.attr;

	return attr->task | attr->comm << 1 | attr->comm_exec << 2 | attr->mmap << 3 |
	       attr->mmap2 << 4 | attr->mmap_data << 5 | attr->build_id << 6 |
	       attr->namespaces << 7 | attr->cgroup << 8 | attr->context_switch << 9 |
	       attr->ksymbol << 10 | attr->bpf_event << 11;
}

/* An event that tracks in place of the first has all that this would have. */
static int test__defer_side_band(struct test_suite *test __maybe_unused,
				 int subtest __maybe_unused)
{
	struct callchain_param saved = callchain_param;
	struct record_opts opts = default_opts;
	struct evlist *alone, *moved;
	int ret = TEST_FAIL;

	if (!perf_can_defer_callchain()) {
		pr_debug("the kernel has no deferred user callchains\n");
		return TEST_SKIP;
	}

	opts.sample_address = true;
	opts.build_id = true;
	opts.record_namespaces = true;
	opts.record_cgroup = true;
	opts.record_switch_events = true;

	alone = configure("page-faults", "fp", &opts, NULL);
	moved = configure("cpu-clock/max-stack=4/,page-faults", "fp", &opts, NULL);
	if (alone && moved) {
		unsigned int want = side_band(evlist__first(alone));
		unsigned int first = side_band(evlist__first(moved));
		unsigned int last = side_band(evlist__last(moved));

		pr_debug("%#x alone, %#x the first, %#x in its place\n", want, first, last);
		if (want == 0xfff && !first && last == want)
			ret = TEST_OK;
	}

	evlist__delete(alone);
	evlist__delete(moved);
	callchain_param = saved;
	return ret;
}

/* Which of the two events can be the tracking one, by the control groups they are in */
static int test__defer_cgroup(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	struct cgroup *one = cgroup__new("one", false), *two = cgroup__new("two", false);
	const struct {
		struct cgroup	*first;
		struct cgroup	*last;
		bool		moves;
	} cgroups[] = {
		{ NULL, NULL, true  },
		{ one,  one,  true  },
		{ one,  NULL, true  },
		{ NULL, one,  false },
		{ one,  two,  false },
	};
	struct callchain_param saved = callchain_param;
	struct record_opts opts = default_opts;
	int ret = one && two ? TEST_OK : TEST_FAIL;

	if (!perf_can_defer_callchain()) {
		pr_debug("the kernel has no deferred user callchains\n");
		ret = TEST_SKIP;
	}

	for (size_t i = 0; i < ARRAY_SIZE(cgroups) && ret == TEST_OK; i++) {
		struct evlist *evlist = parse("cpu-clock/max-stack=4/,page-faults", "fp", &opts);
		struct evsel *first, *last;

		if (!evlist) {
			ret = TEST_FAIL;
			break;
		}

		first = evlist__first(evlist);
		last = evlist__last(evlist);
		first->cgrp = cgroup__get(cgroups[i].first);
		last->cgrp = cgroup__get(cgroups[i].last);
		evlist__config(evlist, &opts, &callchain_param);

		if (first->core.attr.comm == cgroups[i].moves ||
		    last->core.attr.comm != cgroups[i].moves ||
		    last->core.attr.defer_output != cgroups[i].moves ||
		    first->core.attr.defer_output) {
			pr_debug("%s, %s: comm %d %d, defer_output %d %d\n",
				 cgroups[i].first ? cgroups[i].first->name : "none",
				 cgroups[i].last ? cgroups[i].last->name : "none",
				 first->core.attr.comm, last->core.attr.comm,
				 first->core.attr.defer_output, last->core.attr.defer_output);
			ret = TEST_FAIL;
		}
		evlist__delete(evlist);
	}

	cgroup__put(one);
	cgroup__put(two);
	callchain_param = saved;
	return ret;
}

static int test__defer_turn(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	struct callchain_param saved = callchain_param;
	struct record_opts opts = default_opts;
	struct evlist *evlist = configure("cpu-clock,page-faults", "fp", &opts, NULL);
	struct evsel *first, *last;

	callchain_param = saved;
	TEST_ASSERT_VAL("no events", evlist);
	first = evlist__first(evlist);
	last = evlist__last(evlist);

	TEST_ASSERT_EQUAL("output event", evsel__disable_turn(first), 2);
	TEST_ASSERT_EQUAL("other event", evsel__disable_turn(last), 0);
	last->immediate = true;
	TEST_ASSERT_EQUAL("immediate event", evsel__disable_turn(last), 1);
	first->immediate = true;
	TEST_ASSERT_EQUAL("immediate output event", evsel__disable_turn(first), 2);
	TEST_ASSERT_EQUAL("output event, enable", evsel__enable_turn(first), 0);
	TEST_ASSERT_EQUAL("other event, enable", evsel__enable_turn(last), 1);

	/* Without it, events go off as they always did. */
	evsel__disable_deferral(first);
	TEST_ASSERT_VAL("still deferring", !evlist__defers_callchains(evlist));
	TEST_ASSERT_EQUAL("immediate event", evsel__disable_turn(first), 1);

	evlist__delete(evlist);
	return TEST_OK;
}

static struct test_case tests__defer_record[] = {
	TEST_CASE("Deferred callchain options, --call-graph", defer_parse),
	TEST_CASE("Deferred callchain options, perf config", defer_config),
	TEST_CASE("Deferred callchain options, perf top", defer_top),
	TEST_CASE("Deferred callchain options, attributes", defer_attr),
	TEST_CASE("Deferred callchain options, CPUs", defer_cpus),
	TEST_CASE_REASON("Deferred callchain options, side-band", defer_side_band,
			 "no deferred callchains in the kernel"),
	TEST_CASE_REASON("Deferred callchain options, control groups", defer_cgroup,
			 "no deferred callchains in the kernel"),
	TEST_CASE("Deferred callchain options, order", defer_turn),
	{	.name = NULL, }
};

struct test_suite suite__defer_record = {
	.desc = "Deferred callchain options",
	.test_cases = tests__defer_record,
};

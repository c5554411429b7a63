// SPDX-License-Identifier: GPL-2.0
/*
 * Options and event attributes of deferred user callchains. On a kernel without deferral
 * the tests check that the attributes stay as they are.
 */
#include <limits.h>
#include <string.h>

#include <api/fs/fs.h>

#include "callchain.h"
#include "debug.h"
#include "defer-record.h"
#include "evlist.h"
#include "evsel.h"
#include "parse-events.h"
#include "perf_api_probe.h"
#include "record.h"
#include "tests.h"
#include "util.h"

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
	{ .arg = "fp,8,defre",		.ret = -1 },
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

/* "-g", and "--call-graph" without "defer" or "nodefer", keep the mode of the configuration. */
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

static const struct {
	const char			*arg;
	int				ret;
	enum callchain_defer_mode	defer;
	enum callchain_cfi_mode		cfi;
} words[] = {
	{ "fp",			0, CALLCHAIN_DEFER_AUTO, CALLCHAIN_CFI_AUTO },
	{ "fp,cfi",		0, CALLCHAIN_DEFER_AUTO, CALLCHAIN_CFI_YES },
	{ "fp,nocfi",		0, CALLCHAIN_DEFER_AUTO, CALLCHAIN_CFI_NO },
	{ "cfi,8",		0, CALLCHAIN_DEFER_AUTO, CALLCHAIN_CFI_YES },
	{ "8,nocfi,defer",	0, CALLCHAIN_DEFER_YES,  CALLCHAIN_CFI_NO },
	{ "defer,fp,cfi,cfi",	0, CALLCHAIN_DEFER_YES,  CALLCHAIN_CFI_YES },
	{ "nodefer,nocfi",	0, CALLCHAIN_DEFER_NO,   CALLCHAIN_CFI_NO },
	{ .arg = "fp,cfi,nocfi",	.ret = -1 },
	{ .arg = "nocfi,cfi",		.ret = -1 },
	{ .arg = "nodefer,cfi",		.ret = -1 },
	{ .arg = "fp,cfi,nodefer",	.ret = -1 },
	{ .arg = "fp,cf",		.ret = -1 },
	{ .arg = "dwarf,cfi",		.ret = -1 },
	{ .arg = "nocfi,dwarf",		.ret = -1 },
	{ .arg = "cfi,lbr",		.ret = -1 },
	{ .arg = "lbr,nocfi",		.ret = -1 },
};

/* Of what the configuration says, and of what follows from the other word */
static const struct {
	const char			*config, *arg;
	enum callchain_defer_mode	defer;
	enum callchain_cfi_mode		cfi;
	bool				wanted;
} later[] = {
	{ "fp",		"fp",		CALLCHAIN_DEFER_AUTO, CALLCHAIN_CFI_AUTO, true },
	{ "fp,nocfi",	"fp",		CALLCHAIN_DEFER_AUTO, CALLCHAIN_CFI_NO,   false },
	{ "fp,nocfi",	"fp,defer",	CALLCHAIN_DEFER_YES,  CALLCHAIN_CFI_NO,   false },
	{ "fp,nocfi",	"fp,cfi",	CALLCHAIN_DEFER_AUTO, CALLCHAIN_CFI_YES,  true },
	{ "fp,nodefer",	"fp",		CALLCHAIN_DEFER_NO,   CALLCHAIN_CFI_AUTO, false },
	{ "fp,nodefer",	"fp,cfi",	CALLCHAIN_DEFER_AUTO, CALLCHAIN_CFI_YES,  true },
	{ "fp,cfi",	"fp,nodefer",	CALLCHAIN_DEFER_NO,   CALLCHAIN_CFI_AUTO, false },
	{ "fp,cfi",	"fp,nocfi",	CALLCHAIN_DEFER_AUTO, CALLCHAIN_CFI_NO,   false },
};

static int check_later(size_t i)
{
	struct evsel *evsel;
	struct evlist *evlist = evlist__new();
	int ret = TEST_FAIL;

	TEST_ASSERT_VAL("no memory", evlist);

	callchain_param = callchain_param_default;
	if (perf_callchain_config("call-graph.record-mode", later[i].config) ||
	    parse_callchain_record_opt(later[i].arg, &callchain_param) ||
	    parse_event(evlist, "cpu-clock"))
		goto out;

	evsel = evlist__first(evlist);
	evsel__set_sample_bit(evsel, CALLCHAIN);
	evsel__config_defer_callchain(evsel, &callchain_param);
	pr_debug("%s, then %s: defer %d, cfi %d\n", later[i].config, later[i].arg,
		 callchain_param.defer, callchain_param.cfi);
	if (callchain_param.defer == later[i].defer && callchain_param.cfi == later[i].cfi &&
	    evlist__wants_cfi(evlist) == later[i].wanted)
		ret = TEST_OK;
out:
	evlist__delete(evlist);
	return ret;
}

static int test__defer_cfi(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	bool dwarf_users = dwarf_callchain_users;
	struct callchain_param saved = callchain_param;
	int ret = TEST_OK;

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		struct callchain_param param = {};
		int err = parse_callchain_record_opt(words[i].arg, &param);

		pr_debug("'%s': %d\n", words[i].arg, err);
		TEST_ASSERT_EQUAL(words[i].arg, !!err, !!words[i].ret);
		if (err)
			continue;
		TEST_ASSERT_EQUAL(words[i].arg, (int)param.defer, (int)words[i].defer);
		TEST_ASSERT_EQUAL(words[i].arg, (int)param.cfi, (int)words[i].cfi);
	}

	for (size_t i = 0; i < ARRAY_SIZE(later) && ret == TEST_OK; i++)
		ret = check_later(i);

	callchain_param = saved;
	dwarf_callchain_users = dwarf_users;
	return ret;
}

/* perf top has the print options in the same list, and takes no frame count */
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
				struct record_opts *opts)
{
	struct evlist *evlist = parse(events, call_graph, opts);

	if (!evlist)
		return NULL;

	if (evlist__add_output_event(evlist, &callchain_param)) {
		evlist__delete(evlist);
		return NULL;
	}
	evlist__config(evlist, opts, &callchain_param);
	return evlist;
}

static const struct {
	const char	*events;
	const char	*call_graph;
	const char	*callchain;	/* the wanted defer_callchain, one digit for each event */
	bool		kernel_only;
	bool		user_only;
} attrs[] = {
	{ .events = "cpu-clock", .call_graph = NULL, .callchain = "0" },
	{ .events = "cpu-clock", .call_graph = "fp", .callchain = "1" },
	{ .events = "cpu-clock,page-faults", .call_graph = "fp,defer", .callchain = "11" },
	{ .events = "cpu-clock,page-faults", .call_graph = "fp,nodefer", .callchain = "00" },
	{ .events = "cpu-clock,page-faults", .call_graph = "dwarf", .callchain = "00" },
	{ .events = "cpu-clock", .call_graph = "lbr", .callchain = "0" },
	{ .events = "dummy,cpu-clock", .call_graph = "fp", .callchain = "11" },
	{ .events = "cpu-clock,dummy", .call_graph = "fp", .callchain = "11" },
	{ .events = "{cpu-clock,page-faults}", .call_graph = "fp", .callchain = "11" },
	{ .events = "{cpu-clock,task-clock}:S,page-faults",
	  .call_graph = "fp", .callchain = "111" },
	{ .events = "cpu-clock/call-graph=no/,page-faults", .call_graph = "fp", .callchain = "01" },
	{ .events = "cpu-clock,page-faults/call-graph=fp/", .call_graph = NULL, .callchain = "01" },
	{ .events = "cpu-clock,page-faults/max-stack=4/", .call_graph = "fp", .callchain = "11" },
	{ .events = "cpu-clock/max-stack=4/", .call_graph = "fp,nodefer", .callchain = "0" },
	{ .events = "cpu-clock/overwrite/,page-faults", .call_graph = "fp", .callchain = "11" },
	{ .events = "cpu-clock/no-inherit/,page-faults", .call_graph = "fp", .callchain = "11" },
	{ .events = "cpu-clock/call-graph=dwarf/,page-faults",
	  .call_graph = "fp", .callchain = "01" },
	{ .events = "cpu-clock/call-graph='fp,nodefer'/,page-faults",
	  .call_graph = "fp", .callchain = "01" },
	{ .events = "cpu-clock/call-graph='fp,defer'/",
	  .call_graph = "fp,nodefer", .callchain = "1" },
	{ .events = "cpu-clock/call-graph='defer,4'/", .call_graph = NULL, .callchain = "1" },
	{ .events = "cpu-clock", .call_graph = "fp", .callchain = "0",
	  .kernel_only = true },
	{ .events = "cpu-clock", .call_graph = "fp", .callchain = "1",
	  .user_only = true },
};

/* "defer" needs only the attribute bits; the default needs kernel.perf_event_defer, too */
static bool kernel_defers(size_t i)
{
	int value;

	if ((attrs[i].call_graph && strstr(attrs[i].call_graph, "fp,defer")) ||
	    strstr(attrs[i].events, "fp,defer") || strstr(attrs[i].events, "'defer"))
		return perf_can_defer_callchain();
	return !sysctl__read_int("kernel/perf_event_defer", &value) && value == 1;
}

static int check_attrs(struct evlist *evlist, size_t i)
{
	const char *callchain = attrs[i].callchain;
	bool defers = kernel_defers(i) && strchr(callchain, '1');
	struct evsel *evsel, *output = NULL;
	size_t n = 0;

	evlist__for_each_entry(evlist, evsel) {
		struct perf_event_attr *attr = &evsel->core.attr;
		bool wanted = defers && n < strlen(callchain) && callchain[n] == '1';

		if (attr->defer_callchain != wanted) {
			pr_debug("%s: defer_callchain %d\n", evsel__name(evsel),
				 attr->defer_callchain);
			return TEST_FAIL;
		}
		if (attr->defer_output) {
			if (output)
				return TEST_FAIL;
			output = evsel;
		}
		n++;
	}

	TEST_ASSERT_EQUAL("output", !!output, defers);
	if (!output)
		return TEST_OK;
	TEST_ASSERT_VAL("a dummy", evsel__is_dummy_event(output));
	TEST_ASSERT_VAL("its leader", evsel__is_group_leader(output));
	TEST_ASSERT_VAL("side-band", output->core.attr.comm && output->core.attr.mmap);
	TEST_ASSERT_VAL("depth", output->core.attr.sample_max_stack >= 4);
	return TEST_OK;
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
		evlist = configure(attrs[i].events, attrs[i].call_graph, &opts);
		ret = evlist ? check_attrs(evlist, i) : TEST_FAIL;
		evlist__delete(evlist);
	}

	callchain_param = saved;
	dwarf_callchain_users = dwarf_users;
	return ret;
}

/* The output event has the largest depth of all events, and not more. */
static int test__defer_depth(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	static const struct {
		const char	*events;
		int		max;	/* 0: the limit of the sysctl */
	} depths[] = {
		{ "cpu-clock/max-stack=4/", 4 },
		{ "cpu-clock/max-stack=4/,page-faults/max-stack=8/", 8 },
		{ "cpu-clock/max-stack=4/,page-faults", 0 },
	};
	struct callchain_param saved = callchain_param;
	int ret = TEST_OK;

	if (!perf_can_defer_callchain())
		return TEST_SKIP;

	for (size_t i = 0; i < ARRAY_SIZE(depths) && ret == TEST_OK; i++) {
		struct record_opts opts = default_opts;
		struct evlist *evlist = configure(depths[i].events, "fp,defer", &opts);
		struct evsel *output = evlist ? evlist__get_tracking_event(evlist) : NULL;

		if (!output || output->core.attr.sample_max_stack !=
		    (depths[i].max ?: sysctl__max_stack()))
			ret = TEST_FAIL;
		evlist__delete(evlist);
	}

	callchain_param = saved;
	return ret;
}

/* Samples that are read from a pipe need a time */
static int test__defer_pipe(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	struct callchain_param saved = callchain_param;
	struct record_opts opts = default_opts;
	struct evlist *evlist;
	struct evsel *evsel;
	int ret = TEST_OK;

	if (!perf_can_defer_callchain())
		return TEST_SKIP;

	opts.read_in_order = true;
	opts.sample_time = false;
	evlist = configure("cpu-clock,page-faults", "fp,defer", &opts);
	TEST_ASSERT_VAL("no events", evlist);
	evlist__for_each_entry(evlist, evsel) {
		if (!(evsel->core.attr.sample_type & PERF_SAMPLE_TIME))
			ret = TEST_FAIL;
	}
	if (!evlist__defers_callchains(evlist))
		ret = TEST_FAIL;
	evlist__delete(evlist);

	/* If the user has disabled times, nothing is deferred */
	opts.sample_time_set = true;
	evlist = configure("cpu-clock,page-faults", "fp,defer", &opts);
	TEST_ASSERT_VAL("no events", evlist);
	if (evlist__defers_callchains(evlist))
		ret = TEST_FAIL;
	evlist__delete(evlist);

	callchain_param = saved;
	return ret;
}

static struct test_case tests__defer_record[] = {
	TEST_CASE("Deferred callchains: --call-graph", defer_parse),
	TEST_CASE("Deferred callchains: perf config", defer_config),
	TEST_CASE("Deferred callchains: words about tables", defer_cfi),
	TEST_CASE("Deferred callchains: words of perf top", defer_top),
	TEST_CASE("Deferred callchains: attributes", defer_attr),
	TEST_CASE_REASON("Deferred callchains: depth of records", defer_depth,
			 "no deferred callchains in the kernel"),
	TEST_CASE_REASON("Deferred callchains: times in a pipe", defer_pipe,
			 "no deferred callchains in the kernel"),
	{	.name = NULL, }
};

struct test_suite suite__defer_record = {
	.desc = "Deferred callchains: recording",
	.test_cases = tests__defer_record,
};

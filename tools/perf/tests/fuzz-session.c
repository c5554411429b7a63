// SPDX-License-Identifier: GPL-2.0
/*
 * libFuzzer target: read a perf.data, or the stream of perf record -o -, as perf
 * script, perf report --stdio and perf report --header -D do. Deferred callchains are
 * merged in one pass, and shown as recorded in another. The records of perf stat record
 * are read, too, and the features of the header are converted as perf inject does it.
 *
 * make -C tools/perf CC=clang fuzz-session (see Makefile.perf), then
 *
 *	fuzz-session FILE...			read each file once
 *	fuzz-session -max_total_time=60 DIR	search for files that break the reader
 *
 * Each event is copied into memory of its own size before it is queued, so
 * AddressSanitizer sees reads behind its end.
 *
 * Events with raw data are taken for tracepoints, which all have the same format. Few
 * files of the corpus have formats, and mutated samples would hardly ever match them.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <linux/err.h>
#include <linux/kernel.h>
#include <linux/perf_event.h>
#include <traceevent/event-parse.h>
#include <internal/lib.h>
#include "addr_location.h"
#include "auxtrace.h"
#include "byte-order.h"
#include "callchain.h"
#include "cpumap.h"
#include "data.h"
#include "debug.h"
#include "event.h"
#include "evlist.h"
#include "evsel.h"
#include "header.h"
#include "hist.h"
#include "machine.h"
#include "ordered-events.h"
#include "sample.h"
#include "session.h"
#include "sort.h"
#include "stat.h"
#include "symbol.h"
#include "symbol_conf.h"
#include "thread.h"
#include "thread_map.h"
#include "tool.h"
#include "trace-event.h"
#include "util.h"

typedef int (fuzzer_init_t)(int *argc, char ***argv);
typedef int (fuzzer_test_t)(const uint8_t *bytes, size_t size);

/* Called by libFuzzer */
fuzzer_init_t LLVMFuzzerInitialize;
fuzzer_test_t LLVMFuzzerTestOneInput;

/* The sum of all bytes read. It is global, so that no read is optimized away. */
u64 fuzz_session_sum;

/* The operations of print formats whose sizes depend on the sample */
static const char fuzz_format[] =
	"name: fuzz\n"
	"ID: 1\n"
	"format:\n"
	"\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
	"\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n"
	"\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n"
	"\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n"
	"\n"
	"\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:1;\n"
	"\tfield:unsigned int len;\toffset:24;\tsize:4;\tsigned:0;\n"
	"\tfield:__data_loc char[] name;\toffset:28;\tsize:4;\tsigned:1;\n"
	"\tfield:__rel_loc unsigned long[] mask;\toffset:32;\tsize:4;\tsigned:0;\n"
	"\n"
	"print fmt: \"%s %s %s %s %s %d\", REC->comm, __get_str(name),\t"
	"__print_hex(__get_dynamic_array(name), REC->len),\t"
	"__print_array(REC->comm, REC->len / 4, 4),\t"
	"__get_rel_bitmask(mask), REC->common_pid / REC->len\n";

static struct tep_event *fuzz_event;

/* The limit of CPUs times threads: a record can name more than the memory has room for */
#define FUZZ_COUNTS	4096

/* The maps of perf stat record, and the counts for them, of one session */
struct fuzz_stat {
	struct perf_stat_config	 config;
	struct perf_thread_map	*threads;
	struct perf_cpu_map	*cpus;
	bool			 allocated;
};

static struct fuzz_stat fuzz_stat;

static void read_chain(const struct ip_callchain *chain)
{
	u64 i;

	if (!chain)
		return;
	for (i = 0; i < chain->nr; i++)
		fuzz_session_sum += chain->ips[i];
}

static int fuzz_sample(const struct perf_tool *tool __maybe_unused,
		       union perf_event *event __maybe_unused,
		       struct perf_sample *sample,
		       struct evsel *evsel, struct machine *machine)
{
	struct callchain_cursor *cursor = get_tls_callchain_cursor();
	struct hist_entry_iter iter = {
		.evsel	= evsel,
		.sample	= sample,
		.ops	= &hist_iter_cumulative,
	};
	struct callchain_cursor_node *node;
	struct addr_location al;
	size_t i;

	/* perf script uses priv of the event, and prints the event's name */
	fuzz_session_sum += !!evsel->priv;
	fuzz_session_sum += strlen(evsel__name(evsel));

	read_chain(sample->callchain);
	read_chain(sample->recorded_callchain);
	for (i = 0; i < sample->raw_size; i++)
		fuzz_session_sum += ((u8 *)sample->raw_data)[i];
	if (evsel->tp_format && sample->raw_data) {
		const char *name = evsel__strval(evsel, sample, "name");

		fuzz_session_sum += evsel__intval(evsel, sample, "len");
		fuzz_session_sum += name ? strlen(name) : 0;
		event_format__print(evsel->tp_format, sample->cpu, sample->raw_data,
				    sample->raw_size);
	}
	for (i = 0; i < sample->user_stack.size; i++)
		fuzz_session_sum += ((u8 *)sample->user_stack.data)[i];

	addr_location__init(&al);
	if (cursor && sample->callchain && !machine__resolve(machine, &al, sample) &&
	    !sample__resolve_callchain(sample, cursor, NULL, evsel, &al, PERF_MAX_STACK_DEPTH)) {
		callchain_cursor_commit(cursor);
		while ((node = callchain_cursor_current(cursor)) != NULL) {
			fuzz_session_sum += node->ip;
			callchain_cursor_advance(cursor);
		}
	}
	addr_location__exit(&al);

	/* Add the sample as perf report does */
	addr_location__init(&al);
	if (!machine__resolve(machine, &al, sample))
		hist_entry_iter__add(&iter, &al, PERF_MAX_STACK_DEPTH, NULL);
	addr_location__exit(&al);
	return 0;
}

/* Print the events as perf report --stdio does */
static void fuzz_report(struct evlist *evlist)
{
	struct evsel *evsel;

	evlist__for_each_entry(evlist, evsel) {
		struct hists *hists = evsel__hists(evsel);

		hists__collapse_resort(hists, NULL);
		evsel__output_resort(evsel, NULL);
		hists__fprintf(hists, /*show_header=*/true, 0, 0, 0, stdout,
			       /*ignore_callchains=*/false);
	}
}

static int fuzz_maps(struct perf_session *session)
{
	struct perf_cpu_map *cpus = fuzz_stat.cpus;
	struct perf_thread_map *threads = fuzz_stat.threads;
	struct evsel *evsel;
	u64 nr;

	if (!cpus || !threads || fuzz_stat.allocated)
		return 0;
	nr = perf_cpu_map__nr(cpus);
	/* An event can have CPUs that are not in the map */
	evlist__for_each_entry(session->evlist, evsel)
		nr += perf_cpu_map__nr(evsel->core.own_cpus);
	if (nr * perf_thread_map__nr(threads) > FUZZ_COUNTS)
		return 0;
	perf_evlist__set_maps(&session->evlist->core, cpus, threads);
	if (evlist__alloc_stats(&fuzz_stat.config, session->evlist, /*alloc_raw=*/true))
		return -ENOMEM;
	fuzz_stat.allocated = true;
	return 0;
}

static int fuzz_thread_map(struct perf_session *session, union perf_event *event)
{
	if (!fuzz_stat.threads)
		fuzz_stat.threads = thread_map__new_event(&event->thread_map);
	return fuzz_maps(session);
}

static int fuzz_cpu_map(struct perf_session *session, union perf_event *event)
{
	if (!fuzz_stat.cpus)
		fuzz_stat.cpus = cpu_map__new_data(&event->cpu_map.data);
	return fuzz_maps(session);
}

static int fuzz_stat_config(struct perf_session *session __maybe_unused,
			    union perf_event *event)
{
	perf_event__read_stat_config(&fuzz_stat.config, &event->stat_config);
	fuzz_stat.config.aggr_mode = AGGR_NONE;
	return 0;
}

static int fuzz_stat_round(struct perf_session *session, union perf_event *event)
{
	struct evsel *evsel;

	fuzz_session_sum += event->stat_round.time;
	evlist__for_each_entry(session->evlist, evsel)
		perf_stat_process_counter(&fuzz_stat.config, evsel);
	return 0;
}

static int fuzz_deferred(const struct perf_tool *tool __maybe_unused,
			 union perf_event *event __maybe_unused,
			 struct perf_sample *sample,
			 struct evsel *evsel __maybe_unused,
			 struct machine *machine __maybe_unused)
{
	read_chain(sample->callchain);
	return 0;
}

static void take_for_tracepoints(struct evlist *evlist)
{
	struct evsel *evsel;

	evlist__for_each_entry(evlist, evsel) {
		if (evsel->core.attr.sample_type & PERF_SAMPLE_RAW)
			evsel->tp_format = fuzz_event;
	}
}

static int fuzz_attr(const struct perf_tool *tool, union perf_event *event,
		     struct evlist **evlist)
{
	int err = perf_event__process_attr(tool, event, evlist);

	if (*evlist)
		take_for_tracepoints(*evlist);
	return err;
}

/* Convert a copy of the feature in memory of its size, whatever endianness the file has */
static void fuzz_native(struct perf_header *header, u64 feat, const void *data, size_t size)
{
	void *copy = malloc(size);

	if (!copy)
		return;
	memcpy(copy, data, size);
	fuzz_session_sum += byte_order__feature(feat, copy, size, header->env.nr_cpus_avail);
	free(copy);
}

static int fuzz_feature(struct perf_session *session, union perf_event *event)
{
	fuzz_native(&session->header, event->feat.feat_id, event->feat.data,
		    event->header.size - sizeof(event->feat));
	return perf_event__process_feature(session, event);
}

static int fuzz_section(struct perf_file_section *section, struct perf_header *header,
			int feat, int fd, void *data __maybe_unused)
{
	void *bytes = malloc(section->size);

	/* A section that is larger than the file was skipped, so this is no huge size */
	if (bytes && pread(fd, bytes, section->size, section->offset) == (ssize_t)section->size)
		fuzz_native(header, feat, bytes, section->size);
	free(bytes);
	return 0;
}

static void read_session(int fd, bool merge, bool dump)
{
	char path[64];
	struct perf_data data = {
		.path  = path,
		.mode  = PERF_DATA_MODE_READ,
		.force = true,
	};
	struct perf_session *session;
	struct perf_tool tool;

	scnprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	perf_tool__init(&tool, /*ordered_events=*/true);
	tool.sample	= fuzz_sample;
	tool.mmap	= perf_event__process_mmap;
	tool.mmap2	= perf_event__process_mmap2;
	tool.comm	= perf_event__process_comm;
	tool.namespaces	= perf_event__process_namespaces;
	tool.fork	= perf_event__process_fork;
	tool.exit	= perf_event__process_exit;
	tool.lost	= perf_event__process_lost;
	tool.attr	= fuzz_attr;
	tool.event_update = perf_event__process_event_update;
	tool.id_index	= perf_event__process_id_index;
	tool.feature	= fuzz_feature;
	tool.build_id	= perf_event__process_build_id;
	tool.cgroup	= perf_event__process_cgroup;
	tool.auxtrace_error = perf_event__process_auxtrace_error;
	tool.ordering_requires_timestamps = true;
	tool.no_warn	= true;
	if (!merge) {
		tool.no_merge_callchains = true;
		tool.callchain_deferred = fuzz_deferred;
	}
	if (dump) {
		tool.show_feat_hdr = SHOW_FEAT_HEADER_FULL_INFO;
	} else {
		/* For a dump, perf_tool__init() has set callbacks that print these events */
		tool.thread_map	 = fuzz_thread_map;
		tool.cpu_map	 = fuzz_cpu_map;
		tool.stat_config = fuzz_stat_config;
		tool.stat	 = perf_event__process_stat_event;
		tool.stat_round	 = fuzz_stat_round;
	}

	dump_trace = dump;
	/* The input before may have set these flags of the shared format */
	fuzz_event->flags &= ~(TEP_EVENT_FL_FAILED | TEP_EVENT_FL_PRINTRAW);
	session = perf_session__new(&data, &tool);
	if (!IS_ERR(session)) {
		ordered_events__set_copy_on_queue(&session->ordered_events, true);
		if (session->evlist)
			take_for_tracepoints(session->evlist);
		if (!merge && !perf_data__is_pipe(session->data))
			perf_header__process_sections(&session->header,
						      perf_data__fd(session->data), NULL,
						      fuzz_section);
		if (dump)
			perf_session__fprintf_info(session, stdout, /*full=*/true);
		perf_session__process_events(session);
		perf_session__fprintf_nr_events(session, stdout);
		fuzz_report(session->evlist);
		if (fuzz_stat.allocated)
			evlist__free_stats(session->evlist);
		perf_session__delete(session);
	}
	perf_cpu_map__put(fuzz_stat.cpus);
	perf_thread_map__put(fuzz_stat.threads);
	memset(&fuzz_stat, 0, sizeof(fuzz_stat));
	dump_trace = false;
}

int LLVMFuzzerInitialize(int *argc __maybe_unused, char ***argv __maybe_unused)
{
	int null = open("/dev/null", O_WRONLY);
	struct tep_handle *tep;

	/* Throw away the output of perf; libFuzzer writes to stderr. */
	if (null < 0 || dup2(null, STDOUT_FILENO) < 0)
		return -1;
	close(null);
	verbose = -1;
	quiet = true;
	page_size = sysconf(_SC_PAGE_SIZE);
	symbol_conf.use_callchain = true;
	symbol_conf.try_vmlinux_path = false;
	/* Do not read symbols and tracepoints of this machine */
	symbol_conf.kptr_restrict = true;
	if (setenv("TRACEFS_PATH", "/dev/null", /*overwrite=*/1))
		return -1;
	symbol_conf.cumulate_callchain = true;
	sort_order = "pid,comm,dso,symbol,cpu,socket,cgroup,cgroup_id";
	if (hists__init() < 0 || callchain_register_param(&callchain_param) < 0 ||
	    setup_sorting(NULL) < 0)
		return -1;

	tep = tep_alloc();
	if (!tep)
		return -1;
	tep_set_long_size(tep, sizeof(long));
	if (tep_parse_format(tep, &fuzz_event, fuzz_format, strlen(fuzz_format), "fuzz"))
		return -1;
	return symbol__init(NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	int fd = memfd_create("perf.data", MFD_CLOEXEC);

	if (fd < 0 || write(fd, bytes, size) != (ssize_t)size)
		abort();
	read_session(fd, /*merge=*/true, /*dump=*/false);
	read_session(fd, /*merge=*/false, /*dump=*/true);
	close(fd);
	return 0;
}

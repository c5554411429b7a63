// SPDX-License-Identifier: GPL-2.0
/*
 * Convert data from a machine of the other endianness to this machine's byte order.
 * Converted data is called native.
 *
 * A session swaps an event when it reads it. It swaps a sample as an array of u64, since
 * the layout depends on the attribute. After that the two halves of a word of two u32 are
 * exchanged, bytes are reversed in groups of eight, and bit-fields still have the other
 * machine's layout. With evsel->needs_swap evsel__parse_sample() corrects the values that
 * it reads. But it corrects some of them in place, so a second call breaks them again.
 * And code that reads raw data by a format, or writes the event out again, gets values
 * that were not corrected.
 *
 * So an event is converted as a whole right after the swap, before any other code reads
 * it. needs_swap is true only during the conversion. The raw data of tracepoints is
 * swapped by means of the formats. The formats must say then that the data is native
 * (byte_order__set_formats()).
 *
 * header.c swaps the features of the header value by value when it reads them. Features
 * and formats that are only copied from a file or a pipe are converted by
 * byte_order__feature() and byte_order__tracing_data().
 *
 * The conversion changes no size, so it works in place. Bytes of unknown layout stay as
 * they are: raw data that is not a tracepoint's, structures in the raw data of a
 * tracepoint, AUX data, and copies of a stack.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>
#include <internal/lib.h>
#include <linux/bitmap.h>
#include <linux/bitops.h>
#include <linux/kernel.h>
#include <linux/perf_event.h>
#include <linux/string.h>
#include "auxtrace.h"
#include "byte-order.h"
#include "debug.h"
#include "event.h"
#include "evlist.h"
#include "evsel.h"
#include "header.h"
#include "intel-pt.h"
#include "memswap.h"
#include "sample.h"
#include "session.h"
#include "util.h"
#ifdef HAVE_LIBTRACEEVENT
#include <traceevent/event-parse.h>
#include "trace-event.h"
#endif

/* Byte by byte: a value in the raw data of a tracepoint may not be aligned */
static void swap_value(u8 *p, size_t size)
{
	u8 *end = p + size - 1, byte;

	for (; p < end; p++, end--) {
		byte = *p;
		*p = *end;
		*end = byte;
	}
}

/* Finish the swap of a word of two 32-bit values that was swapped as one u64 */
static void exchange_halves(__u64 *word)
{
	*word = *word << 32 | *word >> 32;
}

#ifdef HAVE_LIBTRACEEVENT
/* The format does not describe the members of a structure */
static bool field_is_struct(const struct tep_format_field *field)
{
	return !(field->flags & TEP_FIELD_IS_POINTER) &&
	       (strstr(field->type, "struct ") || strstr(field->type, "union "));
}

/*
 * libtraceevent mostly has no element size for dynamic arrays. Then the type gives it: the
 * first word of the list that is in the type counts. If there is none, as with other
 * typedefs, the elements are taken for bytes.
 */
static size_t element_size(const struct tep_format_field *field)
{
	static const struct {
		const char	*word;
		size_t		size;	/* 0: the size of a long */
	} types[] = {
		{ "*", 0 }, { "enum ", 4 },
		{ "64", 8 }, { "32", 4 }, { "16", 2 }, { "8", 1 },
		{ "char", 1 }, { "bool", 1 }, { "short", 2 }, { "long long", 8 },
		{ "long", 0 }, { "size_t", 0 }, { "cpumask_t", 0 },
		{ "int", 4 }, { "unsigned", 4 }, { "pid_t", 4 }, { "dev_t", 4 },
		{ "gfp_t", 4 }, { "loff_t", 8 }, { "sector_t", 8 },
	};
	size_t i;

	if (field->elementsize)
		return field->elementsize;
	for (i = 0; i < ARRAY_SIZE(types); i++) {
		if (strstr(field->type, types[i].word))
			return types[i].size ?: (size_t)tep_get_long_size(field->event->tep);
	}
	return 1;
}

static void native_field(const struct tep_format_field *field, u8 *raw, size_t raw_size)
{
	size_t at = field->offset, size = field->size, width = element_size(field);

	if (at > raw_size || size > raw_size - at)
		return;

	if (field->flags & TEP_FIELD_IS_DYNAMIC) {
		u32 loc;

		if (size != sizeof(loc))
			return;
		swap_value(raw + at, sizeof(loc));
		memcpy(&loc, raw + at, sizeof(loc));
		at = loc & 0xffff;
		if (tep_field_is_relative(field->flags))
			at += field->offset + field->size;
		size = loc >> 16;
		if (at > raw_size || size > raw_size - at)
			return;
	}

	if (field->flags & TEP_FIELD_IS_STRING || field_is_struct(field) ||
	    (width != 2 && width != 4 && width != 8))
		return;

	for (; size >= width; at += width, size -= width)
		swap_value(raw + at, width);
}

static void native_raw(const struct evsel *evsel, struct tep_handle *tep, u8 *raw, size_t size)
{
	const struct tep_format_field *field;
	const struct tep_event *tp = evsel->tp_format;

	if (!tp && evsel->core.attr.type != PERF_TYPE_TRACEPOINT)
		return;

	/* In a pipe the events come before their formats, so tp_format may not be set */
	if (!tp && tep)
		tp = tep_find_event(tep, evsel->core.attr.config);
	if (!tp)
		return;

	for (field = tp->format.common_fields; field; field = field->next)
		native_field(field, raw, size);
	for (field = tp->format.fields; field; field = field->next)
		native_field(field, raw, size);
}
#else
static void native_raw(const struct evsel *evsel __maybe_unused,
		       struct tep_handle *tep __maybe_unused, u8 *raw __maybe_unused,
		       size_t size __maybe_unused)
{
}
#endif

/* Exchange the halves of @field; each field of @before that is there takes one word */
static void exchange_in_sample(union perf_event *event, u64 type, u64 field, u64 before)
{
	if (type & field)
		exchange_halves(&event->sample.array[hweight64(type & before)]);
}

/*
 * The parser converts bit-fields, raw data and AUX data in place, and finds the other
 * parts. If it fails, the sample must not be parsed again: it may be converted in part, and
 * could be parsed as a different sample.
 */
static bool native_sample(struct evsel *evsel, struct tep_handle *tep, union perf_event *event)
{
	u64 type = evsel->core.attr.sample_type, size;
	struct perf_sample sample;
	int err;

	evsel->needs_swap = true;
	err = evsel__parse_sample(evsel, event, &sample);
	evsel->needs_swap = false;
	if (err)
		return false;

	exchange_in_sample(event, type, PERF_SAMPLE_TID,
			   PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP);
	exchange_in_sample(event, type, PERF_SAMPLE_CPU,
			   PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_TID |
			   PERF_SAMPLE_TIME | PERF_SAMPLE_ADDR | PERF_SAMPLE_ID |
			   PERF_SAMPLE_STREAM_ID);

	if (sample.raw_data) {
		memcpy(sample.raw_data - sizeof(u32), &sample.raw_size, sizeof(u32));
		native_raw(evsel, tep, sample.raw_data, sample.raw_size);
	}
	if (sample.user_stack.data) {
		/* The word in front of the copy is its size. The session has swapped the copy. */
		memcpy(&size, sample.user_stack.data - sizeof(u64), sizeof(u64));
		mem_bswap_64(sample.user_stack.data, round_down(size, sizeof(u64)));
	}
	return true;
}

/*
 * Of the events that perf writes itself only build IDs can have a sample_id, if they are
 * from perf inject. Others may have zeros behind the name, which stay zeros.
 */
static bool has_sample_id(const struct evsel *evsel, const union perf_event *event)
{
	size_t size = offsetof(struct perf_record_header_build_id, filename);

	if (event->header.type < PERF_RECORD_USER_TYPE_START)
		return true;
	if (event->header.type != PERF_RECORD_HEADER_BUILD_ID)
		return false;
	size += strlen(event->build_id.filename) + 1;
	return event->header.size >= PERF_ALIGN(size, sizeof(u64)) + evsel__id_hdr_size(evsel);
}

static void native_sample_id(const struct evsel *evsel, union perf_event *event)
{
	u64 type = evsel->core.attr.sample_type;
	size_t size = evsel__id_hdr_size(evsel);
	__u64 *end = (__u64 *)event + event->header.size / sizeof(u64);

	if (event->header.size < sizeof(event->header) + size)
		return;

	if (type & PERF_SAMPLE_TID)
		exchange_halves(end - size / sizeof(u64));
	if (type & PERF_SAMPLE_CPU)
		exchange_halves(end - (type & PERF_SAMPLE_IDENTIFIER ? 2 : 1));
}

/* All values are numbers, except the filter of Intel PT: this text is swapped back */
static void native_auxtrace_info(union perf_event *event)
{
	struct perf_record_auxtrace_info *info = &event->auxtrace_info;
	size_t nr = (info->header.size - sizeof(*info)) / sizeof(u64);
	u64 len;

	if (info->type != PERF_AUXTRACE_INTEL_PT || nr <= INTEL_PT_FILTER_STR_LEN)
		return;

	nr -= INTEL_PT_FILTER_STR_LEN + 1;
	len = info->priv[INTEL_PT_FILTER_STR_LEN];
	if (len && len / sizeof(u64) < nr)
		mem_bswap_64(&info->priv[INTEL_PT_FILTER_STR_LEN + 1],
			     (len / sizeof(u64) + 1) * sizeof(u64));
}

/**
 * byte_order__event - finish the conversion of an event that was swapped
 * @evlist: the events of the session
 * @tep: formats for tracepoints that have no tp_format, or NULL. Without a format the raw
 *	data of a tracepoint stays as it is: no code can read its fields either
 * @event: an event of the other endianness, swapped by the session
 *
 * Call it once for each event, before the event is parsed.
 *
 * Return: false if the event is a malformed sample, which must not be parsed.
 */
bool byte_order__event(struct evlist *evlist, struct tep_handle *tep, union perf_event *event)
{
	struct evsel *evsel;

	if (event->header.type == PERF_RECORD_AUXTRACE_INFO) {
		native_auxtrace_info(event);
		return true;
	}

	evsel = evlist__event2evsel(evlist, event);
	if (!evsel)
		return true;

	if (event->header.type == PERF_RECORD_SAMPLE)
		return native_sample(evsel, tep, event);
	if (evsel->core.attr.sample_id_all && has_sample_id(evsel, event))
		native_sample_id(evsel, event);
	return true;
}

/**
 * byte_order__set_formats - note in the formats that the raw data of tracepoints is native
 * @session: a session that has just read its formats, if it has any
 *
 * A plugin of libtraceevent may take this for the endianness of the recorded machine, to
 * find bit-fields in a number. Such a plugin then shows wrong bits.
 */
void byte_order__set_formats(struct perf_session *session)
{
	if (!session->header.needs_swap)
		return;
#ifdef HAVE_LIBTRACEEVENT
	if (session->tevent.pevent)
		tep_set_file_bigendian(session->tevent.pevent,
				       host_is_bigendian() ? TEP_BIG_ENDIAN : TEP_LITTLE_ENDIAN);
#endif
}

/* The part of a feature, or of the tracing data, that is not converted yet */
struct rest {
	u8	*p;
	size_t	size;
};

static bool skip(struct rest *rest, u64 size)
{
	if (size > rest->size)
		return false;
	rest->p += size;
	rest->size -= size;
	return true;
}

static bool native_u32(struct rest *rest, u64 *val)
{
	u32 val32;

	if (rest->size < sizeof(val32))
		return false;
	swap_value(rest->p, sizeof(val32));
	memcpy(&val32, rest->p, sizeof(val32));
	*val = val32;
	return skip(rest, sizeof(val32));
}

static bool native_u64(struct rest *rest, u64 *val)
{
	if (rest->size < sizeof(*val))
		return false;
	swap_value(rest->p, sizeof(*val));
	memcpy(val, rest->p, sizeof(*val));
	return skip(rest, sizeof(*val));
}

static const char *end_of_group(const char *fmt)
{
	int depth = 1;

	for (; depth; fmt++)
		depth += (*fmt == '(') - (*fmt == ')');
	return fmt - 1;
}

/*
 * Convert values as @fmt describes them, up to its end, or up to the end of the group if
 * @fmt points into one:
 *
 *	4 8	a u32, a u64
 *	s l	a u32 or a u64 with a number of bytes, then the bytes
 *	z	a string with its NUL
 *	b	a bitmap: a u64 with a number of bits, then words of 64 bits
 *	(...)	a group, repeated as often as the number in front of it says
 */
static bool native_values(struct rest *rest, const char *fmt)
{
	u64 val = 0, nr;

	for (; *fmt && *fmt != ')'; fmt++) {
		bool good = true;

		switch (*fmt) {
		case '4':
			good = native_u32(rest, &val);
			break;
		case '8':
			good = native_u64(rest, &val);
			break;
		case 's':
			good = native_u32(rest, &val) && skip(rest, val);
			break;
		case 'l':
			good = native_u64(rest, &val) && skip(rest, val);
			break;
		case 'z':
			val = strnlen((char *)rest->p, rest->size);
			good = skip(rest, val + 1);
			break;
		case 'b':
			good = native_u64(rest, &nr) && nr / 8 <= rest->size;
			for (nr = good ? BITS_TO_U64(nr) : 0; nr && good; nr--)
				good = native_u64(rest, &val);
			break;
		case '(':
			for (nr = val; nr && good; nr--)
				good = native_values(rest, fmt + 1);
			fmt = end_of_group(fmt + 1);
			break;
		default:
			return false;
		}
		if (!good)
			return false;
	}
	return true;
}

/* As header.c writes them; byte_order__feature() handles the features that are not here */
static const char *const feature_formats[HEADER_LAST_FEATURE] = {
	[HEADER_HOSTNAME]	  = "s",
	[HEADER_OSRELEASE]	  = "s",
	[HEADER_VERSION]	  = "s",
	[HEADER_ARCH]		  = "s",
	[HEADER_NRCPUS]		  = "44",
	[HEADER_CPUDESC]	  = "s",
	[HEADER_CPUID]		  = "s",
	[HEADER_TOTAL_MEM]	  = "8",
	[HEADER_CMDLINE]	  = "4(s)",
	[HEADER_NUMA_TOPOLOGY]	  = "4(488s)",
	[HEADER_BRANCH_STACK]	  = "",
	[HEADER_PMU_MAPPINGS]	  = "4(4s)",
	[HEADER_GROUP_DESC]	  = "4(s44)",
	[HEADER_STAT]		  = "",
	[HEADER_CACHE]		  = "44(4444sss)",
	[HEADER_SAMPLE_TIME]	  = "88",
	[HEADER_MEM_TOPOLOGY]	  = "888(88b)",
	[HEADER_CLOCKID]	  = "8",
	[HEADER_DIR_FORMAT]	  = "8",
	/* A number of BPF programs, mostly 0. The layout of a program is not known here. */
	[HEADER_BPF_PROG_INFO]	  = "4",
	[HEADER_BPF_BTF]	  = "4",
	[HEADER_COMPRESSED]	  = "44444",
	[HEADER_CPU_PMU_CAPS]	  = "4(ss)",
	[HEADER_CLOCK_DATA]	  = "4488",
	[HEADER_HYBRID_TOPOLOGY] = "4(ss)",
	[HEADER_PMU_CAPS]	  = "4(4(ss)s)",
};

/* Each event has its attribute, the number of its ids, its name, and the ids */
static int native_event_desc(struct rest *rest)
{
	u64 nr, attr_size, nr_ids, id;

	if (!native_u32(rest, &nr) || !native_u32(rest, &attr_size) ||
	    attr_size < PERF_ATTR_SIZE_VER0)
		return -EINVAL;
	/* A later perf has added fields, and their layout is not known here */
	if (attr_size > sizeof(struct perf_event_attr))
		return -EOPNOTSUPP;

	for (; nr; nr--) {
		struct perf_event_attr attr = {};

		if (rest->size < attr_size)
			return -EINVAL;
		memcpy(&attr, rest->p, attr_size);
		perf_event__attr_swap(&attr);
		memcpy(rest->p, &attr, attr_size);
		skip(rest, attr_size);

		if (!native_u32(rest, &nr_ids) || !native_values(rest, "s"))
			return -EINVAL;
		for (; nr_ids; nr_ids--) {
			if (!native_u64(rest, &id))
				return -EINVAL;
		}
	}
	return 0;
}

/* The number of CPUs is in HEADER_NRCPUS. An older perf ends the feature earlier. */
static bool native_cpu_topology(struct rest *rest, u32 nr_cpus)
{
	bool good = native_values(rest, "4(s)4(s)");
	u32 i;

	if (!rest->size)
		return good;
	for (i = 0; i < nr_cpus && good; i++)
		good = native_values(rest, "44");
	if (!rest->size)
		return good;
	good = good && native_values(rest, "4(s)");
	for (i = 0; i < nr_cpus && good; i++)
		good = native_values(rest, "4");
	return good;
}

/**
 * byte_order__feature - convert a feature of the header
 * @feat: the number of the feature, HEADER_*
 * @data: the feature, as the other machine has written it
 * @size: the size of @data, in bytes
 * @nr_cpus: the number of CPUs of the other machine, from its HEADER_NRCPUS
 *
 * Return: 0, -EOPNOTSUPP if the layout is not known here (BPF programs), or if the feature
 * has more data at its end, or -EINVAL if @data ends too early. @data must not be used
 * after an error.
 */
int byte_order__feature(u64 feat, void *data, size_t size, u32 nr_cpus)
{
	struct rest rest = { .p = data, .size = size };
	bool good;
	int err;

	switch (feat) {
	case HEADER_TRACING_DATA:
		return byte_order__tracing_data(data, size);
	case HEADER_EVENT_DESC:
		err = native_event_desc(&rest);
		if (err)
			return err;
		good = true;
		break;
	case HEADER_CPU_TOPOLOGY:
		good = native_cpu_topology(&rest, nr_cpus);
		break;
	default:
		if (feat >= HEADER_LAST_FEATURE || !feature_formats[feat])
			return -EOPNOTSUPP;
		good = native_values(&rest, feature_formats[feat]);
		break;
	}
	if (!good)
		return -EINVAL;
	/* A pipe may have padding behind the feature */
	return memchr_inv(rest.p, 0, rest.size) ? -EOPNOTSUPP : 0;
}

/**
 * byte_order__tracing_data - convert the formats of tracepoints
 * @data: the output of record_tracing_data() on the other machine
 * @size: the size of @data, in bytes
 *
 * The formats are text, but their sizes and numbers are not. A flag has the endianness of
 * the raw data, and is converted, too.
 *
 * Return: 0, or -EINVAL if @data has no formats or ends too early. @data must not be used
 * after an error.
 */
int byte_order__tracing_data(void *data, size_t size)
{
	static const char magic[] = { 23, 8, 68, 't', 'r', 'a', 'c', 'i', 'n', 'g' };
	struct rest rest = { .p = data, .size = size };
	const char *version = data + sizeof(magic);

	if (size < sizeof(magic) || memcmp(data, magic, sizeof(magic)) ||
	    !skip(&rest, sizeof(magic)) || !native_values(&rest, "z") || rest.size < 2)
		return -EINVAL;
	if (!rest.p[0] == !host_is_bigendian())
		return 0;

	rest.p[0] = host_is_bigendian();
	/* The flag, and the size of a long. Then: a page's size, two headers, the formats. */
	skip(&rest, 2);
	if (!native_values(&rest, "4zlzl4(l)4(z4(l))ss"))
		return -EINVAL;
	/* The names of tasks */
	if (atof(version) >= 0.6 && !native_values(&rest, "l"))
		return -EINVAL;
	return 0;
}

#ifdef HAVE_LIBTRACEEVENT
static bool has_formats(const struct perf_session *session)
{
	return session->tevent.pevent;
}

static int read_formats(struct perf_session *session, const void *data, size_t size)
{
	int fd = memfd_create("formats", MFD_CLOEXEC), ret = -EINVAL;

	if (fd < 0)
		return -errno;
	if (writen(fd, data, size) == (ssize_t)size && !lseek(fd, 0, SEEK_SET) &&
	    trace_report(fd, &session->tevent, /*repipe=*/false) >= 0)
		ret = 0;
	else
		pr_err("The formats of tracepoints cannot be read\n");
	close(fd);
	return ret;
}
#else
static bool has_formats(const struct perf_session *session __maybe_unused)
{
	return false;
}

static int read_formats(struct perf_session *session __maybe_unused,
			const void *data __maybe_unused, size_t size __maybe_unused)
{
	return 0;
}
#endif

/**
 * byte_order__learn_formats - convert formats that are passed on, and parse them
 * @session: the session; the data of this machine's endianness stays as it is
 * @data: the formats, see byte_order__tracing_data()
 * @size: the size of @data, in bytes
 *
 * A command that passes a pipe on does not parse its formats. But the raw data of the
 * samples that follow cannot be converted without them.
 *
 * Return: 0, -EINVAL after a message if the formats are malformed, or the error of
 * memfd_create().
 */
int byte_order__learn_formats(struct perf_session *session, void *data, size_t size)
{
	if (!session->header.needs_swap)
		return 0;

	if (byte_order__tracing_data(data, size)) {
		pr_err("The formats of tracepoints are malformed\n");
		return -EINVAL;
	}
	return has_formats(session) ? 0 : read_formats(session, data, size);
}

/**
 * byte_order__lacks_formats - could the raw data of tracepoints not be converted?
 * @session: the session, with all its events read
 *
 * Return: true if its endianness is the other one, and it has a tracepoint, but no formats.
 */
bool byte_order__lacks_formats(struct perf_session *session)
{
	struct evsel *evsel;

	if (!session->header.needs_swap || has_formats(session))
		return false;
	evlist__for_each_entry(session->evlist, evsel) {
		if (evsel->core.attr.type == PERF_TYPE_TRACEPOINT)
			return true;
	}
	return false;
}

// SPDX-License-Identifier: GPL-2.0
/*
 * Check that the contents of an event are inside of the event.
 *
 * A perf.data file is untrusted. But the code that handles an event expects that all of
 * its fixed fields and entries are there, and that its strings have an end. So these
 * are checked against header.size once, when the event is read, before its bytes are
 * swapped. The layout of samples and deferred callchains depends on the attribute: the
 * parser checks them.
 */
#include <stddef.h>
#include <string.h>
#include <byteswap.h>
#include <linux/kernel.h>
#include <linux/perf_event.h>
#include <perf/event.h>
#include "event.h"
#include "event-check.h"

#define FIXED(type)		sizeof(struct perf_record_##type)
#define UP_TO(type, member)	offsetof(struct perf_record_##type, member)

/* The minimum size of each type of event; 0 if the header is enough */
static const u8 min_size[PERF_RECORD_HEADER_MAX] = {
	[PERF_RECORD_MMAP]		= UP_TO(mmap, filename),
	[PERF_RECORD_LOST]		= FIXED(lost),
	[PERF_RECORD_COMM]		= UP_TO(comm, comm),
	[PERF_RECORD_EXIT]		= FIXED(fork),
	[PERF_RECORD_THROTTLE]		= FIXED(throttle),
	[PERF_RECORD_UNTHROTTLE]	= FIXED(throttle),
	[PERF_RECORD_FORK]		= FIXED(fork),
	[PERF_RECORD_READ]		= UP_TO(read, time_enabled),
	[PERF_RECORD_MMAP2]		= UP_TO(mmap2, filename),
	[PERF_RECORD_AUX]		= FIXED(aux),
	[PERF_RECORD_ITRACE_START]	= FIXED(itrace_start),
	[PERF_RECORD_LOST_SAMPLES]	= FIXED(lost_samples),
	[PERF_RECORD_SWITCH_CPU_WIDE]	= FIXED(switch),
	[PERF_RECORD_NAMESPACES]	= FIXED(namespaces),
	[PERF_RECORD_KSYMBOL]		= UP_TO(ksymbol, name),
	[PERF_RECORD_BPF_EVENT]		= FIXED(bpf_event),
	[PERF_RECORD_CGROUP]		= UP_TO(cgroup, path),
	[PERF_RECORD_TEXT_POKE]		= UP_TO(text_poke_event, bytes),
	[PERF_RECORD_AUX_OUTPUT_HW_ID]	= FIXED(aux_output_hw_id),
	[PERF_RECORD_HEADER_ATTR]	= UP_TO(header_attr, attr) + PERF_ATTR_SIZE_VER0,
	/* An old perf wrote only as much of the name as was used */
	[PERF_RECORD_HEADER_EVENT_TYPE]	= UP_TO(header_event_type, event_type.name),
	[PERF_RECORD_HEADER_TRACING_DATA] = UP_TO(header_tracing_data, pad),
	[PERF_RECORD_HEADER_BUILD_ID]	= UP_TO(header_build_id, filename),
	[PERF_RECORD_ID_INDEX]		= FIXED(id_index),
	[PERF_RECORD_AUXTRACE_INFO]	= FIXED(auxtrace_info),
	[PERF_RECORD_AUXTRACE]		= FIXED(auxtrace),
	[PERF_RECORD_AUXTRACE_ERROR]	= UP_TO(auxtrace_error, time),
	[PERF_RECORD_THREAD_MAP]	= FIXED(thread_map),
	[PERF_RECORD_CPU_MAP]		= UP_TO(cpu_map, data),
	[PERF_RECORD_STAT_CONFIG]	= FIXED(stat_config),
	[PERF_RECORD_STAT]		= FIXED(stat),
	[PERF_RECORD_STAT_ROUND]	= FIXED(stat_round),
	[PERF_RECORD_EVENT_UPDATE]	= UP_TO(event_update, scale),
	[PERF_RECORD_TIME_CONV]		= UP_TO(time_conv, time_cycles),
	[PERF_RECORD_HEADER_FEATURE]	= FIXED(header_feature),
};

static bool has_string(const union perf_event *event, size_t offset)
{
	size_t size = event->header.size;

	return offset < size && memchr((const char *)event + offset, '\0', size - offset);
}

/* Does the event have @nr entries of @size bytes at @offset? */
static bool has_entries(const union perf_event *event, size_t offset, u64 nr, size_t size)
{
	return offset <= event->header.size &&
	       nr <= (event->header.size - offset) / size;
}

/* Read fields of packed structures, in either byte order */
static u16 get16(const void *p, bool swapped)
{
	u16 val;

	memcpy(&val, p, sizeof(val));
	return swapped ? bswap_16(val) : val;
}

static u32 get32(const void *p, bool swapped)
{
	u32 val;

	memcpy(&val, p, sizeof(val));
	return swapped ? bswap_32(val) : val;
}

static u64 get64(const void *p, bool swapped)
{
	u64 val;

	memcpy(&val, p, sizeof(val));
	return swapped ? bswap_64(val) : val;
}

static bool has_cpu_map(const union perf_event *event, size_t offset, bool swapped)
{
	const struct perf_record_cpu_map_data *data = (const void *)event + offset;
	const size_t range_end = offsetof(struct perf_record_cpu_map_data, range_cpu_data) +
				 sizeof(struct perf_record_range_cpu_map);
	size_t nr, long_size;

	if (!has_entries(event, offset, 1, offsetof(struct perf_record_cpu_map_data,
						    mask32_data.mask)))
		return false;

	nr = get16((const char *)data + offsetof(struct perf_record_cpu_map_data,
						 cpus_data.nr), swapped);
	switch (get16(data, swapped)) {
	case PERF_CPU_MAP__CPUS:
		return has_entries(event, offset + offsetof(struct perf_record_cpu_map_data,
							    cpus_data.cpu), nr, sizeof(u16));
	case PERF_CPU_MAP__MASK:
		long_size = get16((const char *)data +
				  offsetof(struct perf_record_cpu_map_data,
					   mask32_data.long_size), swapped);
		if (long_size == 4)
			return has_entries(event, offset +
					   offsetof(struct perf_record_cpu_map_data,
						    mask32_data.mask), nr, sizeof(u32));
		return long_size == 8 &&
		       has_entries(event, offset + offsetof(struct perf_record_cpu_map_data,
							    mask64_data.mask), nr, sizeof(u64));
	case PERF_CPU_MAP__RANGE_CPUS:
		return has_entries(event, offset, 1, range_end) &&
		       get16((const char *)data + offsetof(struct perf_record_cpu_map_data,
							   range_cpu_data.start_cpu), swapped) <=
		       get16((const char *)data + offsetof(struct perf_record_cpu_map_data,
							   range_cpu_data.end_cpu), swapped);
	default:
		return has_entries(event, offset, 1, range_end);
	}
}

static bool has_update(const union perf_event *event, bool swapped)
{
	switch (get64(&event->event_update.type, swapped)) {
	case PERF_EVENT_UPDATE__UNIT:
	case PERF_EVENT_UPDATE__NAME:
		return has_string(event, UP_TO(event_update, name));
	case PERF_EVENT_UPDATE__SCALE:
		return has_entries(event, UP_TO(event_update, scale), 1, sizeof(double));
	case PERF_EVENT_UPDATE__CPUS:
		return has_cpu_map(event, UP_TO(event_update, cpus), swapped);
	default:
		return true;
	}
}

/**
 * perf_event__check - check the contents of an event against its size
 * @event: the event as it was read, with the header in this machine's byte order
 * @swapped: the rest of the event is in the other byte order
 *
 * Return: false if a part of the contents would be behind the end of the event.
 */
bool perf_event__check(const union perf_event *event, bool swapped)
{
	u32 type = event->header.type;

	if (type >= PERF_RECORD_HEADER_MAX || event->header.size < min_size[type])
		return false;

	switch (type) {
	case PERF_RECORD_MMAP:
		return has_string(event, UP_TO(mmap, filename));
	case PERF_RECORD_MMAP2:
		if ((event->header.misc & PERF_RECORD_MISC_MMAP_BUILD_ID) &&
		    event->mmap2.build_id_size > sizeof(event->mmap2.build_id))
			return false;
		return has_string(event, UP_TO(mmap2, filename));
	case PERF_RECORD_COMM:
		return has_string(event, UP_TO(comm, comm));
	case PERF_RECORD_KSYMBOL:
		return has_string(event, UP_TO(ksymbol, name));
	case PERF_RECORD_CGROUP:
		return has_string(event, UP_TO(cgroup, path));
	case PERF_RECORD_HEADER_BUILD_ID:
		return has_string(event, UP_TO(header_build_id, filename));
	case PERF_RECORD_AUXTRACE_ERROR:
		/* Format 0 has the text in place of the time, later ones the machine behind it */
		switch (get32(&event->auxtrace_error.fmt, swapped)) {
		case 0:
			return has_string(event, UP_TO(auxtrace_error, time));
		case 1:
			return has_string(event, UP_TO(auxtrace_error, msg));
		default:
			return event->header.size >= FIXED(auxtrace_error) &&
			       has_string(event, UP_TO(auxtrace_error, msg));
		}
	case PERF_RECORD_TEXT_POKE:
		return has_entries(event, UP_TO(text_poke_event, bytes),
				   get16(&event->text_poke.old_len, swapped) +
				   get16(&event->text_poke.new_len, swapped), 1);
	case PERF_RECORD_NAMESPACES:
		return has_entries(event, FIXED(namespaces),
				   get64(&event->namespaces.nr_namespaces, swapped),
				   sizeof(struct perf_ns_link_info));
	case PERF_RECORD_ID_INDEX:
		return has_entries(event, FIXED(id_index),
				   get64(&event->id_index.nr, swapped),
				   sizeof(struct id_index_entry));
	case PERF_RECORD_THREAD_MAP:
		return has_entries(event, FIXED(thread_map),
				   get64(&event->thread_map.nr, swapped),
				   sizeof(struct perf_record_thread_map_entry));
	case PERF_RECORD_STAT_CONFIG:
		return has_entries(event, FIXED(stat_config),
				   get64(&event->stat_config.nr, swapped),
				   sizeof(struct perf_record_stat_config_entry));
	case PERF_RECORD_CPU_MAP:
		return has_cpu_map(event, UP_TO(cpu_map, data), swapped);
	case PERF_RECORD_EVENT_UPDATE:
		return has_update(event, swapped);
	default:
		return true;
	}
}

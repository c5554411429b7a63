// SPDX-License-Identifier: GPL-2.0
/*
 * Are the fields of a tracepoint inside of a sample's raw data?
 *
 * Where they are is told by the format, which is in the file as the samples are, and of
 * dynamic fields by the raw data themselves. What takes fields, libtraceevent first of
 * all, does not ask how much there is. So it is asked once, when a sample is delivered.
 */
#include <byteswap.h>
#include <string.h>
#include <linux/kernel.h>
#include <traceevent/event-parse.h>
#include "evsel.h"
#include "raw-check.h"
#include "sample.h"
#include "trace-event.h"

static void evsel__add_raw_fields(struct evsel *evsel, const struct tep_format_field *field)
{
	for (; field; field = field->next) {
		u64 end;

		/* Both are numbers of the file, and no room has what is negative */
		if (field->offset < 0 || field->size < 0)
			end = UINT_MAX;
		else
			end = (u64)field->offset + field->size;

		if (field->flags & TEP_FIELD_IS_DYNAMIC) {
			/* Where it is, and how long */
			end = max(end, (u64)(u32)field->offset + sizeof(u32));
			evsel->raw_dynamic = true;
		}
		evsel->raw_min_size = max((u64)evsel->raw_min_size, min(end, (u64)UINT_MAX));
	}
}

static bool has_dynamic_fields(const struct evsel *evsel, const struct perf_sample *sample)
{
	const struct tep_format_field *field;

	for (field = evsel->tp_format->format.fields; field; field = field->next) {
		u32 loc;
		u64 end;

		if (!(field->flags & TEP_FIELD_IS_DYNAMIC))
			continue;
		memcpy(&loc, sample->raw_data + field->offset, sizeof(loc));
		if (evsel->needs_swap)
			loc = bswap_32(loc);
		end = (loc & 0xffff) + (loc >> 16);
		if (tep_field_is_relative(field->flags))
			end += field->offset + field->size;
		if (end > sample->raw_size)
			return false;
	}
	return true;
}

/**
 * evsel__check_raw - are all fields of a tracepoint inside of a sample's raw data
 * @evsel: whose format it is, if it has one
 * @sample: of that event, or of another one of its group
 *
 * All who take fields from raw data, libtraceevent first of all, take it for granted.
 *
 * Return: false when a field would be behind the end of the raw data.
 */
bool evsel__check_raw(struct evsel *evsel, const struct perf_sample *sample)
{
	if (!evsel->tp_format || !sample->raw_data)
		return true;

	if (!evsel->raw_min_size) {
		evsel__add_raw_fields(evsel, evsel->tp_format->format.common_fields);
		evsel__add_raw_fields(evsel, evsel->tp_format->format.fields);
	}

	return sample->raw_size >= evsel->raw_min_size &&
	       (!evsel->raw_dynamic || has_dynamic_fields(evsel, sample));
}

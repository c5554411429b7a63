// SPDX-License-Identifier: GPL-2.0
/*
 * Check that the fields of a tracepoint are inside of a sample's raw data.
 *
 * The format says where the fields are, and dynamic fields have their place in the raw
 * data itself. Both come from the file. The code that reads fields, above all
 * libtraceevent, does not compare them with the size of the raw data. So each sample is
 * checked once, when it is delivered.
 *
 * Strings are read up to their NUL. The kernel writes one, but in a file it can be
 * missing. Raw data that does not end with a NUL is replaced by a copy that does
 * (raw_check__close()).
 *
 * A print format can use the value of a field as a number of elements, as an index or as
 * a divisor, and libtraceevent does not check these either. If such a value does not go
 * with the sample, or if this file does not know the operation, the fields are shown one
 * by one instead.
 */
#include <stdlib.h>
#include <string.h>
#include <linux/ctype.h>
#include <linux/kernel.h>
#include <linux/log2.h>
#include <linux/zalloc.h>
#include <traceevent/event-parse.h>
#include "debug.h"
#include "evsel.h"
#include "header.h"
#include "raw-check.h"
#include "sample.h"
#include "tool.h"
#include "trace-event.h"

static void evsel__add_raw_fields(struct evsel *evsel, const struct tep_format_field *field)
{
	for (; field; field = field->next) {
		u64 end;

		/* The file can have negative numbers: no raw data has room for such a field */
		if (field->offset < 0 || field->size < 0)
			end = UINT_MAX;
		else
			end = (u64)field->offset + field->size;

		if (field->flags & TEP_FIELD_IS_DYNAMIC) {
			/* A word with the place and the length */
			end = max_t(u64, end, (u64)(u32)field->offset + sizeof(u32));
			evsel->raw_dynamic = true;
		}
		evsel->raw_min_size = max_t(u64, evsel->raw_min_size, min_t(u64, end, UINT_MAX));
	}
}

/*
 * Get the begin and the length of a dynamic field. The byte order is the one of the
 * formats, as in all other code that reads fields.
 */
static u32 raw_loc(const struct perf_sample *sample, const struct tep_format_field *field,
		   u64 *start)
{
	u32 loc = tep_read_number(field->event->tep, sample->raw_data + field->offset,
				  sizeof(loc));

	*start = loc & 0xffff;
	if (tep_field_is_relative(field->flags))
		*start += field->offset + field->size;
	return loc >> 16;
}

static bool has_dynamic_fields(const struct perf_sample *sample,
			       const struct tep_format_field *field, bool *open_end)
{
	for (; field; field = field->next) {
		u64 start, len;

		if (!(field->flags & TEP_FIELD_IS_DYNAMIC))
			continue;
		len = raw_loc(sample, field, &start);
		if (start + len > sample->raw_size)
			return false;
		/* An empty field can be at the end, and %pIS reads two bytes of it anyway */
		if (start + sizeof(u16) > sample->raw_size)
			*open_end = true;
	}
	return true;
}

/* The check of a print format: for one sample, or for all if @sample is NULL. */
struct raw_print {
	struct tep_event *event;
	const struct perf_sample *sample;
	/* set if each sample has to be checked */
	bool depends;
};

static bool arg__is_possible(struct raw_print *print, struct tep_print_arg *arg);

static struct tep_format_field *arg__field(const struct raw_print *print,
					   struct tep_print_arg *arg)
{
	if (arg->field.field)
		return arg->field.field;
	return tep_find_any_field(print->event, arg->field.name);
}

static struct tep_format_field *dynamic_field(struct tep_format_field *field)
{
	return field && field->flags & TEP_FIELD_IS_DYNAMIC ? field : NULL;
}

static bool arg__value(const struct raw_print *print, struct tep_print_arg *arg, u64 *value);

static bool arg__op_value(const struct raw_print *print, struct tep_print_arg *arg, u64 *value)
{
	const char *op = arg->op.op;
	u64 left = 0, right;

	/* If there is only one operand, it is the right one */
	if (strcmp(op, "!") && strcmp(op, "~") && !arg__value(print, arg->op.left, &left))
		return false;

	if (!strcmp(op, "?")) {
		/* The right operand is a ':' with the two values */
		arg = arg->op.right;
		return arg && arg->type == TEP_PRINT_OP && !strcmp(arg->op.op, ":") &&
		       arg__value(print, left ? arg->op.left : arg->op.right, value);
	}

	if (!arg__value(print, arg->op.right, &right))
		return false;

	if (!strcmp(op, "+"))
		*value = left + right;
	else if (!strcmp(op, "-"))
		*value = left - right;
	else if (!strcmp(op, "*"))
		*value = left * right;
	else if (!strcmp(op, "/") && right)
		*value = left / right;
	else if (!strcmp(op, "%") && right)
		*value = left % right;
	else if (!strcmp(op, "<<") && right < 64)
		*value = left << right;
	else if (!strcmp(op, ">>") && right < 64)
		*value = left >> right;
	else if (!strcmp(op, "&"))
		*value = left & right;
	else if (!strcmp(op, "|"))
		*value = left | right;
	else if (!strcmp(op, "~"))
		*value = ~right;
	else if (!strcmp(op, "!"))
		*value = !right;
	else if (!strcmp(op, "=="))
		*value = left == right;
	else if (!strcmp(op, "!="))
		*value = left != right;
	else if (!strcmp(op, "<"))
		*value = left < right;
	else if (!strcmp(op, "<="))
		*value = left <= right;
	else if (!strcmp(op, ">"))
		*value = left > right;
	else if (!strcmp(op, ">="))
		*value = left >= right;
	else if (!strcmp(op, "&&"))
		*value = left && right;
	else if (!strcmp(op, "||"))
		*value = left || right;
	else
		return false;
	return true;
}

/*
 * Evaluate a number of elements, an index or a divisor. Without a sample each field has
 * the value 1. False if the value is not known: a type cast, for one, can change it.
 */
static bool arg__value(const struct raw_print *print, struct tep_print_arg *arg, u64 *value)
{
	struct tep_format_field *field;
	unsigned long long number = 1;
	u64 start;

	if (!arg)
		return false;

	if (arg->type == TEP_PRINT_OP)
		return arg__op_value(print, arg, value);

	if (arg->type == TEP_PRINT_ATOM) {
		number = strtoull(arg->atom.atom, NULL, 0);
	} else if (arg->type == TEP_PRINT_FIELD) {
		field = arg__field(print, arg);
		if (!field || !is_power_of_2(field->size) || field->size > (int)sizeof(u64))
			return false;
		if (print->sample)
			tep_read_number_field(field, print->sample->raw_data, &number);
	} else if (arg->type == TEP_PRINT_DYNAMIC_ARRAY_LEN) {
		field = dynamic_field(arg->dynarray.field);
		if (!field)
			return false;
		if (print->sample)
			number = raw_loc(print->sample, field, &start);
	} else {
		return false;
	}
	*value = number;
	return true;
}

/*
 * Are @count elements of @size bytes inside of the raw data? With @size 0 the elements have
 * the size that the format has for them. libtraceevent uses only 32 bits of the count.
 */
static bool array__is_possible(struct raw_print *print, struct tep_print_arg *array,
			       u32 count, u64 size)
{
	const struct perf_sample *sample = print->sample;
	struct tep_format_field *field = NULL;
	u64 start;

	if (array && array->type == TEP_PRINT_FIELD)
		field = arg__field(print, array);
	else if (array && array->type == TEP_PRINT_DYNAMIC_ARRAY)
		field = dynamic_field(array->dynarray.field);
	if (!field)
		return false;

	print->depends = true;
	if (!sample)
		return true;

	if (!size)
		size = field->elementsize ?: sizeof(u64);
	if (array->type == TEP_PRINT_FIELD)
		start = field->offset;
	else
		raw_loc(sample, field, &start);
	return start + count * size <= sample->raw_size;
}

static bool hex__is_possible(struct raw_print *print, const struct tep_print_arg_hex *hex)
{
	u64 count;

	return arg__is_possible(print, hex->size) && arg__value(print, hex->size, &count) &&
	       array__is_possible(print, hex->field, count, 1);
}

static bool int_array__is_possible(struct raw_print *print,
				   const struct tep_print_arg_int_array *array)
{
	u64 count, size;

	if (!arg__is_possible(print, array->count) ||
	    !arg__value(print, array->count, &count) ||
	    !arg__is_possible(print, array->el_size) ||
	    !arg__value(print, array->el_size, &size))
		return false;
	/* libtraceevent takes any other size for 1 */
	if (size != 2 && size != 4 && size != 8)
		size = 1;
	return array__is_possible(print, array->field, count, size);
}

static bool index__is_possible(struct raw_print *print, const struct tep_print_arg_op *op)
{
	struct tep_print_arg *array = op->left;
	u64 index;

	while (array && array->type == TEP_PRINT_TYPE)
		array = array->typecast.item;

	/* libtraceevent computes the place of the element in an int, which must not overflow */
	return arg__is_possible(print, op->right) && arg__value(print, op->right, &index) &&
	       index < USHRT_MAX && array__is_possible(print, array, index + 1, 0);
}

static bool op__is_possible(struct raw_print *print, const struct tep_print_arg_op *op)
{
	u64 value;

	if (!strcmp(op->op, "["))
		return index__is_possible(print, op);

	/* If the condition is known, only one of its two values is evaluated. */
	if (!strcmp(op->op, "?") && print->sample && op->right &&
	    op->right->type == TEP_PRINT_OP && arg__value(print, op->left, &value))
		return arg__is_possible(print, op->left) &&
		       arg__is_possible(print, value ? op->right->op.left : op->right->op.right);

	if (!strcmp(op->op, "/") || !strcmp(op->op, "%")) {
		print->depends = true;
		if (!arg__value(print, op->right, &value))
			return false;
		/* Without a sample 0 is no error: a difference of two fields is 0 here */
		if (print->sample && !value)
			return false;
	}
	return arg__is_possible(print, op->left) && arg__is_possible(print, op->right);
}

static bool args__are_possible(struct raw_print *print, struct tep_print_arg *arg)
{
	for (; arg; arg = arg->next) {
		if (!arg__is_possible(print, arg))
			return false;
	}
	return true;
}

/* Can libtraceevent evaluate an argument, without leaving the raw data? */
static bool arg__is_possible(struct raw_print *print, struct tep_print_arg *arg)
{
	/* The left operand of an operator that has only one */
	if (!arg)
		return true;

	switch ((int)arg->type) {
	case TEP_PRINT_NULL:
	case TEP_PRINT_ATOM:
	case TEP_PRINT_FIELD:
	case TEP_PRINT_BSTRING:
		return true;
	case TEP_PRINT_DYNAMIC_ARRAY:
		return dynamic_field(arg->dynarray.field);
	case TEP_PRINT_DYNAMIC_ARRAY_LEN:
		/* libtraceevent crashes at the length of a relative field */
		return dynamic_field(arg->dynarray.field) &&
		       !tep_field_is_relative(arg->dynarray.field->flags);
	case TEP_PRINT_STRING:
		return dynamic_field(arg->string.field ?:
				     tep_find_any_field(print->event, arg->string.string));
	case TEP_PRINT_BITMASK:
	case TEP_PRINT_CPUMASK:
		return dynamic_field(arg->bitmask.field ?:
				     tep_find_any_field(print->event, arg->bitmask.bitmask));
	case TEP_PRINT_FLAGS:
		return arg__is_possible(print, arg->flags.field);
	case TEP_PRINT_SYMBOL:
		return arg__is_possible(print, arg->symbol.field);
	case TEP_PRINT_TYPE:
		return arg__is_possible(print, arg->typecast.item);
	case TEP_PRINT_FUNC:
		return args__are_possible(print, arg->func.args);
	case TEP_PRINT_HEX:
	case TEP_PRINT_HEX_STR:
		return hex__is_possible(print, &arg->hex);
	case TEP_PRINT_INT_ARRAY:
		return int_array__is_possible(print, &arg->int_array);
	case TEP_PRINT_OP:
		return op__is_possible(print, &arg->op);
	default:
		return false;
	}
}

/* %pIS reads the address family, which has two bytes, before it checks the size. */
static bool address__is_possible(const struct raw_print *print, struct tep_print_arg *arg)
{
	const struct tep_format_field *field;

	while (arg && arg->type == TEP_PRINT_TYPE)
		arg = arg->typecast.item;
	if (!arg || arg->type != TEP_PRINT_FIELD)
		return true;
	field = arg__field(print, arg);
	return field && field->size >= (int)sizeof(u16);
}

/* A file can ask for a width of two billion columns, which takes as long to print. */
#define MAX_WIDTH	1024

static bool width__is_possible(struct raw_print *print, const char **fmt,
			       struct tep_print_arg **arg)
{
	u64 value;

	if (**fmt != '*')
		return strtoul(*fmt, (char **)fmt, 10) <= MAX_WIDTH;
	++*fmt;
	if (!*arg)
		return true;
	print->depends = true;
	if (!arg__value(print, *arg, &value))
		return false;
	*arg = (*arg)->next;
	/* With a negative one libtraceevent reads an argument that is not there. */
	return (u32)value <= MAX_WIDTH;
}

/* Check the conversions of the format string: their widths, and their arguments */
static bool format__is_possible(struct raw_print *print)
{
	struct tep_print_arg *arg = print->event->print_fmt.args;
	const char *fmt = print->event->print_fmt.format;

	while (fmt && (fmt = strchr(fmt, '%')) != NULL) {
		struct raw_print none = { .event = print->event };
		bool possible, is_long;

		if (*++fmt == '%') {
			fmt++;
			continue;
		}
		fmt += strspn(fmt, "-+ #0");
		/* %*ph: libtraceevent checks the length itself, and takes a negative one for 0 */
		if (*fmt == '*' && fmt[1] == 'p' && fmt[2] == 'h') {
			possible = true;
			arg = arg ? arg->next : NULL;
			fmt++;
		} else {
			possible = width__is_possible(print, &fmt, &arg);
		}
		if (possible && *fmt == '.') {
			fmt++;
			possible = width__is_possible(print, &fmt, &arg);
		}
		is_long = *fmt == 'l';
		fmt += strspn(fmt, "hlLqjzZt");
		if (!possible || (is_long && *fmt == 's'))
			return false;
		if (fmt[0] == 'p' && strchr("iI", fmt[1]) && fmt[1] && fmt[2] == 'S' &&
		    !address__is_possible(&none, arg))
			return false;
		arg = arg ? arg->next : NULL;
	}
	return true;
}

static bool print__is_possible(struct raw_print *print)
{
	return args__are_possible(print, print->event->print_fmt.args) &&
	       format__is_possible(print);
}

/*
 * Let libtraceevent print the fields one by one. With PRINTRAW alone it would still print
 * numbers as the print format says, so FAILED is needed, too. The flags stay for later
 * samples, because perf report prints some entries when the samples are gone.
 */
static void event__print_fields(struct tep_event *event)
{
	event->flags |= TEP_EVENT_FL_FAILED | TEP_EVENT_FL_PRINTRAW;
}

/* Check what does not depend on the sample: once, when the first sample is delivered. */
static void evsel__init_raw_check(struct evsel *evsel)
{
	struct tep_event *event = evsel->tp_format;
	struct raw_print print = { .event = event };

	evsel->raw_checked = true;
	evsel__add_raw_fields(evsel, event->format.common_fields);
	evsel__add_raw_fields(evsel, event->format.fields);

	/* libtraceevent could not parse the print format, and does not use it. */
	if (event->flags & TEP_EVENT_FL_FAILED)
		return;

	/* The sample of a trace_printk() has a print format of its own. */
	if (event->flags & TEP_EVENT_FL_ISBPRINT || !print__is_possible(&print)) {
		pr_debug("%s: print format may read behind the raw data, its fields are shown\n",
			 evsel__name(evsel));
		event__print_fields(event);
		return;
	}
	evsel->raw_print_depends = print.depends;
}

static void evsel__check_print(struct evsel *evsel, const struct perf_sample *sample,
			       u64 file_offset)
{
	struct tep_event *event = evsel->tp_format;
	struct raw_print print = { .event = event, .sample = sample };

	if (event->flags & TEP_EVENT_FL_FAILED || print__is_possible(&print))
		return;

	pr_warning("%s: its print format does not go with the sample at %#llx, its fields are shown from there on\n",
		   evsel__name(evsel), (unsigned long long)file_offset);
	event__print_fields(event);
}

/**
 * evsel__misses_format - is the format of a tracepoint missing?
 * @evsel: the event
 * @tool: the tool that gets the sample
 * @sample: a sample of the event, or of another event of its group
 * @file_offset: the offset of the sample, in bytes
 *
 * A pipe may come without the formats, or without the format of this tracepoint. The
 * first sample of each such event is warned of, unless the tool does not use formats.
 *
 * Return: true if the sample has raw data, but no format that describes it.
 */
bool evsel__misses_format(struct evsel *evsel, const struct perf_tool *tool,
			  const struct perf_sample *sample, u64 file_offset)
{
	if (evsel->core.attr.type != PERF_TYPE_TRACEPOINT || evsel->tp_format ||
	    !sample->raw_data)
		return false;

	if (!evsel->raw_warned && tool->tracing_data == perf_event__process_tracing_data)
		pr_warning("%s: samples have fields that no format describes, first at %#llx\n",
			   evsel__name(evsel), (unsigned long long)file_offset);
	evsel->raw_warned = true;
	return true;
}

/**
 * evsel__check_raw - check the fields of a tracepoint against a sample's raw data
 * @evsel: the event; without a format there is nothing to check
 * @sample: a sample of the event, or of another event of its group
 * @file_offset: the offset of the sample, in bytes
 * @open_end: set if the reader of a string could run over the end of the raw data, see
 *	raw_check__close(); undefined if false is returned
 *
 * The first sample of each event that fails the check is warned of. If the print format
 * does not go with the sample, the fields are shown one by one from there on.
 *
 * Return: false if a field would be behind the end of the raw data.
 */
bool evsel__check_raw(struct evsel *evsel, const struct perf_sample *sample, u64 file_offset,
		      bool *open_end)
{
	const struct tep_event *event = evsel->tp_format;

	*open_end = false;
	if (!event || !sample->raw_data)
		return true;

	if (!evsel->raw_checked)
		evsel__init_raw_check(evsel);

	*open_end = sample->raw_size && ((const char *)sample->raw_data)[sample->raw_size - 1];

	if (sample->raw_size < evsel->raw_min_size ||
	    (evsel->raw_dynamic &&
	     (!has_dynamic_fields(sample, event->format.common_fields, open_end) ||
	      !has_dynamic_fields(sample, event->format.fields, open_end)))) {
		if (!evsel->raw_warned)
			pr_warning("%s: samples have no room for the fields, first at %#llx\n",
				   evsel__name(evsel), (unsigned long long)file_offset);
		evsel->raw_warned = true;
		return false;
	}

	if (evsel->raw_print_depends)
		evsel__check_print(evsel, sample, file_offset);
	return true;
}

/**
 * raw_check__close - put a NUL behind the raw data of a sample
 * @sample: the sample; its raw data is replaced by a copy with a NUL behind it
 *
 * The size stays the same. This is for raw data that does not end with a NUL. The kernel
 * writes such data, too, if the last field is a pointer or a large number, and there is
 * no padding behind it.
 *
 * Return: the memory to free when the sample was delivered. NULL if there is no memory;
 *	   then the raw data stays as it was.
 */
void *raw_check__close(struct perf_sample *sample)
{
	/* As in the record: the size is in front, so the data begins 4 bytes behind a u64 */
	char *copy = zalloc(sizeof(u32) + sample->raw_size + sizeof(u16));

	if (!copy)
		return NULL;
	memcpy(copy, &sample->raw_size, sizeof(u32));
	memcpy(copy + sizeof(u32), sample->raw_data, sample->raw_size);
	sample->raw_data = copy + sizeof(u32);
	return copy;
}

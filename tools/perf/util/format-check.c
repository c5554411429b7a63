// SPDX-License-Identifier: GPL-2.0
/*
 * Is the text of a tracepoint's format one that libtraceevent can be given?
 *
 * tep_parse_event() takes what it reads for the kernel's: that a field of which flags are
 * printed is one of the event's, that what is constant can be evaluated, that parentheses
 * are not nested a million deep. A file can have anything there. So what is not written
 * as the kernel writes it, see f_show() in kernel/trace/trace_events.c, and print formats
 * that have more than what is known here, are not parsed.
 */
#include <stdlib.h>
#include <string.h>
#include <linux/ctype.h>
#include <linux/kernel.h>
#include "debug.h"
#include "raw-check.h"

/* A distribution's kernel has up to 14 and 1778 of them. */
#define MAX_DEPTH	64
#define MAX_OPERATORS	4096

struct format_text {
	/* the lines with the fields */
	const char *fields, *fields_end;
	/* what is left of the print format, whose last character is a newline */
	const char *at, *end;
};

static bool is_name(char c)
{
	return isalnum(c) || c == '_';
}

static bool is_next(const struct format_text *text, const char *what)
{
	return (size_t)(text->end - text->at) > strlen(what) &&
	       !memcmp(text->at, what, strlen(what));
}

/* The last character is none of these. */
static void skip_spaces(struct format_text *text)
{
	while (text->at < text->end - 1 && isspace(*text->at))
		text->at++;
}

static size_t skip_name(struct format_text *text)
{
	const char *begin = text->at;

	while (is_name(*text->at))
		text->at++;
	return text->at - begin;
}

/*
 * The end of the name of a field, in its line: of "\tfield:char comm[16];\toffset:8;..."
 * that of comm. NULL when it is another line.
 */
static const char *field__name_end(const char *line, const char *end)
{
	static const char field[] = "\tfield:";
	const char *name_end = memchr(line, ';', end - line), *at;
	bool in_brackets = false;

	if (!name_end || name_end - line < (ssize_t)sizeof(field) ||
	    memcmp(line, field, sizeof(field) - 1))
		return NULL;

	for (at = line + sizeof(field) - 1; at < name_end; at++) {
		if ((*at == '[' && in_brackets) || (*at == ']' && !in_brackets))
			return NULL;
		if (*at == '[' || *at == ']')
			in_brackets = *at == '[';
		else if (!is_name(*at) && !strchr(" *().,+-/:<>&", *at))
			return NULL;
	}
	if (in_brackets)
		return NULL;
	for (; at < end; at++) {
		if (!is_name(*at) && !strchr(";\t:-", *at))
			return NULL;
	}

	while (name_end[-1] == ']')
		name_end = memrchr(line, '[', name_end - line);
	return is_name(name_end[-1]) ? name_end : NULL;
}

static bool text__has_field(const struct format_text *text, const char *name, size_t len)
{
	const char *line, *end;

	for (line = text->fields; line < text->fields_end; line = end + 1) {
		const char *name_end;

		end = memchr(line, '\n', text->fields_end - line);
		if (!end)
			break;
		name_end = field__name_end(line, end);
		if (name_end && (size_t)(name_end - line) > len &&
		    !memcmp(name_end - len, name, len) && !is_name(*(name_end - len - 1)))
			return true;
	}
	return false;
}

/* Behind what names one: "->" or an opening parenthesis */
static bool skip_field(struct format_text *text)
{
	const char *name;
	size_t len;

	skip_spaces(text);
	name = text->at;
	len = skip_name(text);
	return len && text__has_field(text, name, len);
}

/* What begins with a name, of which some have to go on as they do in formats. */
static bool skip_word(struct format_text *text)
{
	const char *name = text->at;
	size_t len = skip_name(text);

	if (len == 3 && !memcmp(name, "REC", len)) {
		struct format_text field = *text;

		if (is_next(text, ")->")) {
			field.at += 3;
			return skip_field(&field);
		}
		if (!is_next(text, "->"))
			return false;
		text->at += 2;
		return skip_field(text);
	}

	if (len > 6 && !memcmp(name, "__get_", 6)) {
		if (*text->at != '(')
			return false;
		text->at++;
		if (!skip_field(text))
			return false;
		skip_spaces(text);
		if (*text->at != ')')
			return false;
		text->at++;
		return true;
	}

	if (len == 6 && !memcmp(name, "sizeof", len))
		return *text->at == '(' && (isalpha(text->at[1]) || text->at[1] == '_');
	return true;
}

static bool skip_quoted(struct format_text *text)
{
	if (*text->at == '\'') {
		/* One character, of which none is what ends it or the other ones */
		if (text->end - text->at < 4 || !isprint(text->at[1]) ||
		    strchr("\"'\\", text->at[1]) || text->at[2] != '\'')
			return false;
		text->at += 3;
		return true;
	}

	for (text->at++; text->at < text->end; text->at++) {
		if (*text->at == '"') {
			text->at++;
			return true;
		}
		/* libtraceevent goes on behind the quote after two of them */
		if (*text->at == '\\' && *++text->at == '\\')
			return false;
	}
	return false;
}

/* The parentheses that are closed, of those that are open */
static void skip_closed(struct format_text *text, int *depth)
{
	for (; text->at < text->end - 1; text->at++) {
		if (*text->at == ')' && *depth)
			--*depth;
		else if (!isspace(*text->at))
			break;
	}
}

/* A number, and the parentheses that are closed behind it */
static bool skip_number(struct format_text *text, unsigned long long *value, int *depth)
{
	char *end;

	skip_spaces(text);
	if (!isdigit(*text->at))
		return false;
	*value = strtoull(text->at, &end, 0);
	text->at = end;
	skip_name(text);
	skip_closed(text, depth);
	return true;
}

/* The size of a type by name, of those that formats divide by */
static bool skip_sizeof(struct format_text *text, int *depth)
{
	static const char * const types[] = {
		"u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "char", "short", "int",
		"long", "unsigned char", "unsigned short", "unsigned int", "unsigned long",
	};
	size_t i;

	text->at += strlen("sizeof(");
	for (i = 0; i < ARRAY_SIZE(types); i++) {
		size_t len = strlen(types[i]);

		if (is_next(text, types[i]) && text->at[len] == ')')
			break;
	}
	if (i == ARRAY_SIZE(types))
		return false;
	text->at += strlen(types[i]) + 1;
	skip_closed(text, depth);
	return true;
}

/*
 * Behind an operator that divides, not to be evaluated as 0 while it is parsed: something
 * of the sample, the size of a type, a number, or one that is shifted; alone, as operators
 * of the same priority are evaluated from right to left. Does not skip it.
 */
static bool divisor__is_possible(struct format_text text)
{
	unsigned long long value = 1, shift = 0;
	int depth = 0;

	for (; text.at < text.end - 1 && (isspace(*text.at) || *text.at == '('); text.at++)
		depth += *text.at == '(';

	if (is_next(&text, "REC->") || is_next(&text, "__get_"))
		return skip_word(&text);

	if (is_next(&text, "sizeof(")) {
		if (!skip_sizeof(&text, &depth))
			return false;
	} else {
		if (!skip_number(&text, &value, &depth))
			return false;
		if (is_next(&text, "<<")) {
			text.at += 2;
			if (!skip_number(&text, &shift, &depth))
				return false;
			value = shift < 64 ? value << shift : 0;
		}
	}
	return value && !depth && !strchr("*/%<>", *text.at);
}

static bool print_format__is_possible(struct format_text text)
{
	int depth = 0, operators = 0;

	while (text.at < text.end - 1) {
		char c = *text.at;

		if (c == '"' || c == '\'') {
			if (!skip_quoted(&text))
				return false;
			continue;
		}
		if (is_name(c)) {
			if (!skip_word(&text))
				return false;
			continue;
		}
		text.at++;

		if (isspace(c) || c == ',')
			continue;
		if (strchr("([{", c)) {
			if (++depth > MAX_DEPTH)
				return false;
		} else if (strchr(")]}", c)) {
			if (--depth < 0)
				return false;
		} else if (c == '/' || c == '%') {
			if (!divisor__is_possible(text))
				return false;
		} else if (!strchr("+-*<>=!&|^~?:.", c)) {
			return false;
		}
		if (++operators > MAX_OPERATORS)
			return false;
	}
	return !depth;
}

/**
 * format_check__text - look at the format of a tracepoint before it is parsed
 * @buf: the text, of a file; its last character becomes a newline, which the kernel's is
 * @size: its size in bytes
 *
 * A print format that is not possible is replaced by none: libtraceevent shows the fields
 * one by one then.
 *
 * Return: false when the fields are not described as the kernel does it, either.
 */
bool format_check__text(char *buf, size_t size)
{
	static const char print[] = "\nprint fmt: ", format[] = "\nformat:\n";
	struct format_text text;
	char *fields, *fmt, *line, *end;

	if (!size)
		return false;
	buf[size - 1] = '\n';

	fields = memmem(buf, size, format, sizeof(format) - 1);
	if (!fields)
		return false;
	fields += sizeof(format) - 1;
	fmt = memmem(fields, buf + size - fields, print, sizeof(print) - 1);
	if (!fmt)
		return false;

	for (line = fields; line < fmt + 1; line = end + 1) {
		end = memchr(line, '\n', fmt + 1 - line);
		if (end != line && !field__name_end(line, end))
			return false;
	}

	text.fields = fields;
	text.fields_end = fmt + 1;
	text.at = fmt + sizeof(print) - 1;
	text.end = buf + size;
	if (!print_format__is_possible(text)) {
		pr_debug("print format not used: %.*s", (int)(text.end - text.at), text.at);
		memset(fmt + sizeof(print) - 1, ' ', text.end - text.at - 1);
	}
	return true;
}

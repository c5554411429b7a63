// SPDX-License-Identifier: GPL-2.0
/*
 * Check the text of a tracepoint's format before libtraceevent parses it.
 *
 * tep_parse_event() trusts the text, as if it came from the kernel: it expects that the
 * fields in the print format are fields of the event, that constants can be evaluated,
 * and that parentheses are not nested a million deep. A file can have any text there. So
 * the fields are parsed only if they are written as the kernel writes them (f_show() in
 * kernel/trace/trace_events.c), and the print format only if all of it is known here.
 */
#include <stdlib.h>
#include <string.h>
#include <linux/ctype.h>
#include <linux/kernel.h>
#include "debug.h"
#include "raw-check.h"

/* The maxima in the formats of a distribution's kernel are 14 and 1778. */
#define MAX_DEPTH	64
#define MAX_OPERATORS	4096

struct format_text {
	/* the lines with the fields */
	const char *fields, *fields_end;
	/* the rest of the print format, whose last character is a newline */
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

/* Stops at the last character, the newline, at the latest. */
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
 * Find the end of a field's name in its line. In "\tfield:char comm[16];\toffset:8;..."
 * this is the end of "comm". NULL if the line does not describe a field.
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

/* Skip the name of a field, behind "->" or a parenthesis. False if there is no such field. */
static bool skip_field(struct format_text *text)
{
	const char *name;
	size_t len;

	skip_spaces(text);
	name = text->at;
	len = skip_name(text);
	return len && text__has_field(text, name, len);
}

/* Skip a name. REC, __get_...() and sizeof() must be used as the kernel's formats use them. */
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
		/* One character, which is no quote and no backslash */
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
		/* libtraceevent does not end the string at a quote behind two backslashes */
		if (*text->at == '\\' && *++text->at == '\\')
			return false;
	}
	return false;
}

/* Skip closing parentheses, as many as are open */
static void skip_closed(struct format_text *text, int *depth)
{
	for (; text->at < text->end - 1; text->at++) {
		if (*text->at == ')' && *depth)
			--*depth;
		else if (!isspace(*text->at))
			break;
	}
}

/* Skip a number, and closing parentheses behind it */
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

/* Skip sizeof() with one of the types that are used in divisors */
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
 * libtraceevent evaluates constant divisors while it parses, and crashes if one is 0. So a
 * divisor must be a value of the sample, the size of a type, a number other than 0, or such
 * a number shifted left. Another operator of that priority must not follow, since
 * libtraceevent evaluates these from right to left. Does not skip the divisor.
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
 * format_check__text - check the format of a tracepoint before it is parsed
 * @buf: the text from the file; its last character becomes a newline, as the kernel's is
 * @size: the size of @buf, in bytes
 *
 * If the print format fails the check, it is blanked: libtraceevent shows the fields one
 * by one then.
 *
 * Return: false if the fields are not written as the kernel writes them.
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

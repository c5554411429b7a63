// SPDX-License-Identifier: GPL-2.0
/*
 * Functions and rows of unwinding tables in memory, and as an SFrame section of version 3.
 *
 * A table is filled function by function: sframe_table__begin(), sframe_table__add_row() for
 * each row, sframe_table__end(). Errors of these are kept and returned by
 * sframe_table__encode(), which sorts the functions, sees to it that none overlaps another and
 * that none has more rows than the kernel takes, and writes the section in the smallest
 * encoding that each function has. sframe_table__decode() reads a section that others wrote,
 * and takes nothing in it for granted.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <linux/kernel.h>
#include <linux/unaligned.h>
#include <linux/zalloc.h>

#include "sframe.h"

/* The kernel takes sections of up to 64 MiB. A row has some 6 bytes there, and 32 here. */
#define SECTION_SIZE_MAX	(64U << 20)
#define NR_ROWS_MAX		(SECTION_SIZE_MAX / 8)

/**
 * sframe_table__exit - free what a table has
 * @table: may be all zeroes
 */
void sframe_table__exit(struct sframe_table *table)
{
	zfree(&table->functions);
	zfree(&table->rows);
	memset(table, 0, sizeof(*table));
}

static void *grow(void *array, u32 *max, size_t size)
{
	u32 new_max = *max ? *max * 2 : 1024;
	void *new = realloc(array, new_max * size);

	if (new)
		*max = new_max;
	return new;
}

/**
 * sframe_table__begin - begin a function
 * @table: the table
 * @start: address or file offset of its first byte
 * @rep_size: size of the block that its code repeats and that its rows are for, or 0
 * @is_signal: whether it is the trampoline that signal handlers return to
 */
void sframe_table__begin(struct sframe_table *table, u64 start, u8 rep_size, bool is_signal)
{
	struct sframe_function *new;

	if (table->err)
		return;

	if (table->nr_functions == table->max_functions) {
		new = grow(table->functions, &table->max_functions, sizeof(*new));
		if (!new) {
			table->err = -ENOMEM;
			return;
		}
		table->functions = new;
	}

	table->functions[table->nr_functions] = (struct sframe_function) {
		.start = start,
		.first_row = table->nr_rows,
		.order = table->nr_functions,
		.rep_size = rep_size,
		.is_signal = is_signal,
	};
}

static bool equal_rules(const struct sframe_rule *a, const struct sframe_rule *b)
{
	return a->base == b->base && a->reg == b->reg && a->deref == b->deref &&
	       a->offset == b->offset;
}

static bool equal_rows(const struct sframe_row *a, const struct sframe_row *b)
{
	if (a->end || b->end)
		return a->end && b->end;
	return equal_rules(&a->cfa, &b->cfa) && equal_rules(&a->ra, &b->ra) &&
	       equal_rules(&a->fp, &b->fp);
}

/**
 * sframe_table__add_row - add a row to the function that was begun
 * @table: the table
 * @row: holds up to the next one; rows come in ascending order
 *
 * A row that says the same as the one before it is left out.
 */
void sframe_table__add_row(struct sframe_table *table, const struct sframe_row *row)
{
	struct sframe_function *function;
	struct sframe_row *new;

	if (table->err)
		return;

	function = &table->functions[table->nr_functions];
	if (function->nr_rows && equal_rows(row, &table->rows[table->nr_rows - 1]))
		return;

	if (table->nr_rows == NR_ROWS_MAX) {
		table->err = -E2BIG;
		return;
	}
	if (table->nr_rows == table->max_rows) {
		new = grow(table->rows, &table->max_rows, sizeof(*new));
		if (!new) {
			table->err = -ENOMEM;
			return;
		}
		table->rows = new;
	}

	table->rows[table->nr_rows++] = *row;
	function->nr_rows++;
}

/**
 * sframe_table__end - end the function that was begun
 * @table: the table
 * @size: bytes of the function; one of 0, or without rows, is left out
 */
void sframe_table__end(struct sframe_table *table, u64 size)
{
	struct sframe_function *function;

	if (table->err)
		return;

	function = &table->functions[table->nr_functions];
	if (!size || size > UINT32_MAX || !function->nr_rows) {
		table->nr_rows = function->first_row;
		return;
	}
	function->size = size;
	table->nr_functions++;
}

static int cmp_function(const void *a, const void *b)
{
	const struct sframe_function *fa = a, *fb = b;

	if (fa->start != fb->start)
		return fa->start < fb->start ? -1 : 1;
	return fa->order < fb->order ? -1 : fa->order > fb->order;
}

/* Cut @function at @end, and leave out the rows behind it. */
static void cut_function(const struct sframe_table *table, struct sframe_function *function,
			 u64 end)
{
	function->size = end - function->start;
	while (function->nr_rows > 1 &&
	       table->rows[function->first_row + function->nr_rows - 1].start >= function->size)
		function->nr_rows--;
}

/**
 * sframe_table__sort - sort the functions by their start
 * @table: the table
 *
 * A function ends where the next one begins. Of several with one start the first counts.
 *
 * Return: 0, or the error of an earlier call.
 */
int sframe_table__sort(struct sframe_table *table)
{
	struct sframe_function *f = table->functions;
	u32 i, nr = 0;

	if (table->err)
		return table->err;

	if (table->nr_functions)
		qsort(f, table->nr_functions, sizeof(*f), cmp_function);

	for (i = 0; i < table->nr_functions; i++) {
		if (nr && f[nr - 1].start == f[i].start)
			continue;
		if (nr && f[nr - 1].start + f[nr - 1].size > f[i].start)
			cut_function(table, &f[nr - 1], f[i].start);
		f[nr++] = f[i];
	}
	table->nr_functions = nr;
	return 0;
}

/* Can a row of a default function say it? */
static bool row_is_default(const struct sframe_row *row)
{
	return row->end ||
	       (row->cfa.base == SFRAME_BASE_REG && !row->cfa.deref &&
		(row->cfa.reg == SFRAME_REG_SP || row->cfa.reg == SFRAME_REG_FP) &&
		row->ra.base == SFRAME_BASE_NONE &&
		(row->fp.base == SFRAME_BASE_NONE ||
		 (row->fp.base == SFRAME_BASE_CFA && row->fp.deref)));
}

static int add_rule(s64 *words, int nr, const struct sframe_rule *rule)
{
	if (rule->base == SFRAME_BASE_NONE) {
		words[nr++] = 0;
		return nr;
	}

	words[nr] = rule->deref ? SFRAME_CTL_DEREF : 0;
	if (rule->base == SFRAME_BASE_REG)
		words[nr] |= SFRAME_CTL_REG | rule->reg << SFRAME_CTL_REG_SHIFT;
	nr++;
	words[nr++] = rule->offset;
	return nr;
}

/* Control words are unsigned, and the largest has 7 bits: as if they had a sign. */
static int row_words(const struct sframe_row *row, bool flexible, s64 *words)
{
	int nr = 0;

	if (row->end)
		return 0;

	if (!flexible) {
		words[nr++] = row->cfa.offset;
		if (row->fp.base != SFRAME_BASE_NONE)
			words[nr++] = row->fp.offset;
		return nr;
	}

	nr = add_rule(words, nr, &row->cfa);
	if (row->ra.base != SFRAME_BASE_NONE || row->fp.base != SFRAME_BASE_NONE)
		nr = add_rule(words, nr, &row->ra);
	if (row->fp.base != SFRAME_BASE_NONE)
		nr = add_rule(words, nr, &row->fp);
	return nr;
}

static u8 *put_number(u8 *p, s64 value, int log_size)
{
	switch (log_size) {
	case 0:
		*p = value;
		break;
	case 1:
		put_unaligned_le16(value, p);
		break;
	default:
		put_unaligned_le32(value, p);
		break;
	}
	return p + (1 << log_size);
}

static u8 *put_row(u8 *p, const struct sframe_row *row, u32 start, bool flexible, int row_type)
{
	s64 words[SFRAME_ROW_WORDS_MAX];
	int i, size = 0, nr = row_words(row, flexible, words);
	bool sp = row->cfa.base == SFRAME_BASE_REG && row->cfa.reg == SFRAME_REG_SP;

	for (i = 0; i < nr; i++) {
		if (words[i] != (s16)words[i])
			size = 2;
		else if (words[i] != (s8)words[i])
			size = max(size, 1);
	}

	p = put_number(p, start, row_type);
	*p++ = (sp ? SFRAME_ROW_CFA_SP : 0) | nr << 1 | size << 5;
	for (i = 0; i < nr; i++)
		p = put_number(p, words[i], size);
	return p;
}

/* @rows of @function, which may be a part of it */
static u8 *put_rows(u8 *p, const struct sframe_function *function,
		    const struct sframe_row *rows, u32 nr_rows)
{
	u32 base = rows[0].start, last = rows[nr_rows - 1].start - base, i;
	int row_type = last <= UINT8_MAX ? 0 : last <= UINT16_MAX ? 1 : 2;
	bool flexible = false;

	for (i = 0; i < nr_rows; i++)
		flexible |= !row_is_default(&rows[i]);

	put_unaligned_le16(nr_rows, p);
	p[2] = row_type | (function->rep_size ? SFRAME_INFO_PCMASK : 0) |
	       (function->is_signal ? SFRAME_INFO_SIGNAL : 0);
	p[3] = flexible ? SFRAME_TYPE_FLEXIBLE : SFRAME_TYPE_DEFAULT;
	p[4] = function->rep_size;
	p += SFRAME_ATTR_SIZE;

	for (i = 0; i < nr_rows; i++)
		p = put_row(p, &rows[i], rows[i].start - base, flexible, row_type);
	return p;
}

/* The functions are numbered and their rows are written in one go. */
static int encode(const struct sframe_table *table, u8 *section, u32 nr_functions, size_t *size)
{
	u8 *index = section + SFRAME_HEADER_SIZE;
	u8 *rows = index + nr_functions * SFRAME_FUNCTION_SIZE, *p = rows;
	u32 i, j, nr_rows = 0;

	for (i = 0; i < table->nr_functions; i++) {
		const struct sframe_function *f = &table->functions[i];
		const struct sframe_row *row = &table->rows[f->first_row];

		for (j = 0; j < f->nr_rows; j += SFRAME_FUNCTION_ROWS_MAX) {
			u32 nr = min(f->nr_rows - j, SFRAME_FUNCTION_ROWS_MAX);
			u32 start = row[j].start;
			u32 end = j + nr == f->nr_rows ? f->size : row[j + nr].start;

			put_unaligned_le64(f->start + start, index);
			put_unaligned_le32(end - start, index + 8);
			put_unaligned_le32(p - rows, index + 12);
			index += SFRAME_FUNCTION_SIZE;
			p = put_rows(p, f, &row[j], nr);
			nr_rows += nr;
		}
	}

	*size = p - section;
	if (*size > SECTION_SIZE_MAX)
		return -E2BIG;

	put_unaligned_le16(SFRAME_MAGIC, section);
	section[2] = SFRAME_VERSION_3;
	section[3] = SFRAME_F_SORTED;
	section[4] = SFRAME_ABI_AMD64;
	section[5] = 0;
	section[6] = (u8)SFRAME_RA_OFFSET;
	section[7] = 0;
	put_unaligned_le32(nr_functions, section + 8);
	put_unaligned_le32(nr_rows, section + 12);
	put_unaligned_le32(p - rows, section + 16);
	put_unaligned_le32(0, section + 20);
	put_unaligned_le32(rows - (section + SFRAME_HEADER_SIZE), section + 24);
	return 0;
}

/**
 * sframe_table__encode - write a table as a section
 * @table: the table, is sorted
 * @section: set to the section, to be freed by the caller
 * @size: set to its size in bytes
 *
 * The starts of functions are relative to the section's start taken as 0.
 *
 * Return: 0, -E2BIG when the kernel would not take it for its size, -ENOMEM, -ENODATA when
 * there is no function.
 */
int sframe_table__encode(struct sframe_table *table, void **section, size_t *size)
{
	size_t max = SFRAME_HEADER_SIZE;
	u32 i, nr_functions = 0;
	int err = sframe_table__sort(table);
	void *shorter;

	if (err)
		return err;
	if (!table->nr_functions)
		return -ENODATA;

	for (i = 0; i < table->nr_functions; i++) {
		struct sframe_function *f = &table->functions[i];
		u32 parts = DIV_ROUND_UP(f->nr_rows, SFRAME_FUNCTION_ROWS_MAX);

		nr_functions += parts;
		max += parts * (SFRAME_FUNCTION_SIZE + SFRAME_ATTR_SIZE) +
		       (size_t)f->nr_rows * (4 + 1 + 4 * SFRAME_ROW_WORDS_MAX);
	}

	*section = malloc(max);
	if (!*section)
		return -ENOMEM;

	err = encode(table, *section, nr_functions, size);
	if (err) {
		zfree(section);
		return err;
	}

	shorter = realloc(*section, *size);
	if (shorter)
		*section = shorter;
	return 0;
}

/**
 * sframe_table__function - find the function of an address
 * @table: the table, sorted
 * @pc: address, in the terms of the functions' starts
 *
 * Return: the function, or NULL.
 */
const struct sframe_function *sframe_table__function(const struct sframe_table *table, u64 pc)
{
	u32 low = 0, high = table->nr_functions;

	while (low < high) {
		u32 middle = low + (high - low) / 2;
		const struct sframe_function *f = &table->functions[middle];

		if (pc < f->start)
			high = middle;
		else if (pc - f->start >= f->size)
			low = middle + 1;
		else
			return f;
	}
	return NULL;
}

/**
 * sframe_table__row - find the row of an address
 * @table: the table, sorted
 * @pc: address, in the terms of the functions' starts
 *
 * Return: the row, or NULL.
 */
const struct sframe_row *sframe_table__row(const struct sframe_table *table, u64 pc)
{
	const struct sframe_function *f = sframe_table__function(table, pc);
	const struct sframe_row *found = NULL;
	u64 offset;
	u32 i;

	if (!f)
		return NULL;

	offset = pc - f->start;
	if (f->rep_size)
		offset %= f->rep_size;

	for (i = 0; i < f->nr_rows; i++) {
		if (table->rows[f->first_row + i].start > offset)
			break;
		found = &table->rows[f->first_row + i];
	}
	return found;
}

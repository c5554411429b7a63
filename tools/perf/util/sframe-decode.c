// SPDX-License-Identifier: GPL-2.0
/*
 * Read an SFrame section of version 3 for AMD64.
 *
 * It comes out of a file that anybody may have written: nothing is read outside the section,
 * and what it says is either in the table that results or an error.
 */
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include <linux/kernel.h>
#include <linux/unaligned.h>

#include "sframe.h"

struct sframe_header {
	u32	nr_functions;
	u32	rows_len;
	const u8 *index;
	const u8 *rows;
	bool	is_pcrel;
};

static int decode_header(struct sframe_header *header, const u8 *section, size_t size)
{
	u32 index_offset, rows_offset;
	size_t begin;

	if (size < SFRAME_HEADER_SIZE || get_unaligned_le16(section) != SFRAME_MAGIC)
		return -EINVAL;
	if (section[2] != SFRAME_VERSION_3 || section[4] != SFRAME_ABI_AMD64)
		return -ENOTSUP;
	/* A fixed offset of the frame pointer is for others */
	if (section[5] || section[6] != (u8)SFRAME_RA_OFFSET)
		return -ENOTSUP;

	begin = SFRAME_HEADER_SIZE + section[7];
	if (size < begin)
		return -EINVAL;
	section += begin;
	size -= begin;

	header->is_pcrel = section[-(ssize_t)begin + 3] & SFRAME_F_START_PCREL;
	header->nr_functions = get_unaligned_le32(section - begin + 8);
	header->rows_len = get_unaligned_le32(section - begin + 16);
	index_offset = get_unaligned_le32(section - begin + 20);
	rows_offset = get_unaligned_le32(section - begin + 24);

	if (index_offset > size ||
	    header->nr_functions > (size - index_offset) / SFRAME_FUNCTION_SIZE ||
	    rows_offset > size || header->rows_len > size - rows_offset)
		return -EINVAL;

	header->index = section + index_offset;
	header->rows = section + rows_offset;
	return 0;
}

static s64 get_word(const u8 *p, int log_size)
{
	switch (log_size) {
	case 0:
		return (s8)*p;
	case 1:
		return (s16)get_unaligned_le16(p);
	default:
		return (s32)get_unaligned_le32(p);
	}
}

/* Returns the number of words that the rule has, or 0 when it is none. */
static int decode_rule(struct sframe_rule *rule, const s64 *words, int nr, int log_size)
{
	u32 control;

	if (!nr)
		return 0;

	/* It has no sign */
	control = words[0] & (log_size == 0 ? UINT8_MAX : log_size == 1 ? UINT16_MAX : UINT32_MAX);
	if (!control)
		return 1;
	if (nr < 2)
		return 0;

	rule->base = control & SFRAME_CTL_REG ? SFRAME_BASE_REG : SFRAME_BASE_CFA;
	rule->deref = control & SFRAME_CTL_DEREF;
	if (control >> SFRAME_CTL_REG_SHIFT > SFRAME_REG_MAX ||
	    (rule->base == SFRAME_BASE_CFA && !rule->deref))
		return 0;
	if (rule->base == SFRAME_BASE_REG)
		rule->reg = control >> SFRAME_CTL_REG_SHIFT;
	rule->offset = words[1];
	return 2;
}

static int decode_words(struct sframe_row *row, u8 info, const s64 *words, int nr, bool flexible,
			int log_size)
{
	struct sframe_rule *rules[] = { &row->cfa, &row->ra, &row->fp };
	int i, used;

	if (!nr) {
		row->end = true;
		return 0;
	}

	if (flexible) {
		for (i = 0; i < (int)ARRAY_SIZE(rules) && nr; i++) {
			used = decode_rule(rules[i], words, nr, log_size);
			if (!used)
				return -EINVAL;
			words += used;
			nr -= used;
		}
		/* A CFA of its own is not a CFA */
		return nr || row->cfa.base != SFRAME_BASE_REG ? -EINVAL : 0;
	}

	if (nr > 2)
		return -EINVAL;

	row->cfa.base = SFRAME_BASE_REG;
	row->cfa.reg = info & SFRAME_ROW_CFA_SP ? SFRAME_REG_SP : SFRAME_REG_FP;
	row->cfa.offset = words[0];
	if (nr == 2) {
		row->fp.base = SFRAME_BASE_CFA;
		row->fp.deref = true;
		row->fp.offset = words[1];
	}
	return 0;
}

static void add_end(struct sframe_table *table)
{
	struct sframe_row row = { .end = true };

	sframe_table__add_row(table, &row);
}

static int decode_rows(struct sframe_table *table, const u8 *p, const u8 *end, u32 limit)
{
	u32 nr_rows, i;
	int row_type;
	bool flexible;
	s64 last = -1;

	nr_rows = get_unaligned_le16(p);
	row_type = p[2] & SFRAME_INFO_ROW_TYPE;
	flexible = (p[3] & SFRAME_INFO2_TYPE) == SFRAME_TYPE_FLEXIBLE;
	if (row_type > 2 || (p[3] & SFRAME_INFO2_TYPE) > SFRAME_TYPE_FLEXIBLE)
		return -EINVAL;
	p += SFRAME_ATTR_SIZE;

	if (!nr_rows)
		add_end(table);

	for (i = 0; i < nr_rows; i++) {
		struct sframe_row row = {};
		s64 words[SFRAME_ROW_WORDS_MAX];
		int j, nr, log_size;
		u8 info;

		if (end - p < (1 << row_type) + 1)
			return -EINVAL;
		row.start = get_word(p, row_type) &
			    (row_type == 0 ? UINT8_MAX : row_type == 1 ? UINT16_MAX : UINT32_MAX);
		p += 1 << row_type;
		info = *p++;
		nr = SFRAME_ROW_NR_WORDS(info);
		log_size = SFRAME_ROW_WORD_SIZE(info);
		if (log_size > 2 || nr > SFRAME_ROW_WORDS_MAX || end - p < nr << log_size)
			return -EINVAL;

		for (j = 0; j < nr; j++, p += 1 << log_size)
			words[j] = get_word(p, log_size);

		if (row.start <= last || decode_words(&row, info, words, nr, flexible, log_size))
			return -EINVAL;
		last = row.start;
		/* What is before the first row is not said */
		if (!i && row.start)
			add_end(table);
		/* Assemblers write a row for what is told at the end of a function */
		if (row.start < limit)
			sframe_table__add_row(table, &row);
	}
	return 0;
}

/**
 * sframe_table__decode - read a section
 * @table: gets the functions, sorted; all zeroes before
 * @section: the section
 * @size: its size in bytes
 * @addr: its address, which the functions' starts are relative to
 *
 * Return: 0, -EINVAL when the section does not hold what it says, -ENOTSUP for another version
 * or architecture, -ENOMEM, -E2BIG when it has more rows than the kernel takes.
 */
int sframe_table__decode(struct sframe_table *table, const void *section, size_t size, u64 addr)
{
	struct sframe_header header;
	u64 nr_rows = 0;
	u32 i;
	int err;

	err = decode_header(&header, section, size);
	if (err)
		return err;

	for (i = 0; i < header.nr_functions; i++) {
		const u8 *f = header.index + i * SFRAME_FUNCTION_SIZE;
		u64 start = addr + get_unaligned_le64(f);
		u32 bytes = get_unaligned_le32(f + 8), rows = get_unaligned_le32(f + 12);
		const u8 *attr = header.rows + rows;
		u8 rep_size;

		if (header.is_pcrel)
			start += f - (const u8 *)section;
		if (rows > header.rows_len || header.rows_len - rows < SFRAME_ATTR_SIZE)
			return -EINVAL;

		/* Each has rows of its own, so the table is no larger than its section allows */
		nr_rows += get_unaligned_le16(attr);
		if (nr_rows * 2 > header.rows_len)
			return -EINVAL;

		rep_size = attr[2] & SFRAME_INFO_PCMASK ? attr[4] : 0;
		if (attr[2] & SFRAME_INFO_PCMASK &&
		    (!rep_size || get_unaligned_le16(attr) >= SFRAME_FUNCTION_ROWS_MAX))
			return -EINVAL;

		sframe_table__begin(table, start, rep_size, attr[2] & SFRAME_INFO_SIGNAL);
		if (table->err)
			return table->err;
		err = bytes ? decode_rows(table, attr, header.rows + header.rows_len,
					  rep_size ?: bytes) : 0;
		if (err)
			return err;
		sframe_table__end(table, bytes);
	}
	return sframe_table__sort(table);
}

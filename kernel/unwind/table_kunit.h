/* SPDX-License-Identifier: GPL-2.0 */
/*
 * SFrame sections that are made row by row.
 */
#ifndef _KERNEL_UNWIND_TABLE_KUNIT_H
#define _KERNEL_UNWIND_TABLE_KUNIT_H

#include <kunit/test.h>
#include <linux/string.h>
#include <linux/types.h>
#include <linux/unaligned.h>

#define HEADER		28
#define FUNCTION	16
#define ATTR		5

#define MASK		BIT(4)		/* in the info of a function */
#define SIGNAL		BIT(7)
#define FLEXIBLE	1		/* in its info 2 */

/* A control word of a flexible row. */
#define REG(nr)		((nr) << 3 | 1)
#define REG_AT(nr)	((nr) << 3 | 3)		/* what is stored there */
#define CFA_AT		2

/**
 * struct section - a section that is being made
 * @nr:		functions
 * @nr_rows:	rows in all
 * @index:	of the functions
 * @len:	of @rows
 * @rows:	attributes and rows
 * @attr:	the place of the last function's attribute
 * @size:	of @data, when it is made
 * @data:	the section
 */
struct section {
	unsigned int	nr;
	unsigned int	nr_rows;
	u8		index[80 * FUNCTION];
	unsigned int	len;
	u8		rows[4096];
	unsigned int	attr;
	size_t		size;
	u8		data[6144];
};

/* A function; rows follow. */
static inline void add_function(struct section *s, s64 start, u32 size, u8 info, u8 info2,
				u8 rep)
{
	u8 *function = s->index + s->nr++ * FUNCTION;

	s->attr = s->len;
	put_unaligned_le64(start, function);
	put_unaligned_le32(size, function + 8);
	put_unaligned_le32(s->attr, function + 12);
	put_unaligned_le16(0, s->rows + s->len);
	s->rows[s->len + 2] = info;
	s->rows[s->len + 3] = info2;
	s->rows[s->len + 4] = rep;
	s->len += ATTR;
}

static inline void add_number(struct section *s, u32 value, unsigned int size)
{
	unsigned int i;

	for (i = 0; i < 1U << size; i++)
		s->rows[s->len++] = value >> (8 * i);
}

/* A row with words of 1 << @size bytes. @sp: the base of the CFA in a default function. */
static inline void add_row_sized(struct section *s, u32 start, bool sp, unsigned int size,
				 const s32 *words, unsigned int nr)
{
	u8 *attr = s->rows + s->attr;
	unsigned int i;

	add_number(s, start, attr[2] & 3);
	s->rows[s->len++] = sp | nr << 1 | size << 5;
	for (i = 0; i < nr; i++)
		add_number(s, words[i], size);
	put_unaligned_le16(get_unaligned_le16(attr) + 1, attr);
	s->nr_rows++;
}

/* The words follow; without one it is the outermost frame. */
#define add_row(s, start, sp, ...) do {						\
	const s32 __words[] = { 0, ##__VA_ARGS__ };				\
										\
	add_row_sized(s, start, sp, 1, __words + 1, ARRAY_SIZE(__words) - 1);	\
} while (0)

static inline void make_section(struct section *s)
{
	const unsigned int index = s->nr * FUNCTION;
	u8 *data = s->data;

	memset(data, 0, HEADER);
	put_unaligned_le16(0xdee2, data);
	data[2] = 3;
	data[3] = 1;
	data[4] = 3;
	data[6] = -8;
	put_unaligned_le32(s->nr, data + 8);
	put_unaligned_le32(s->nr_rows, data + 12);
	put_unaligned_le32(s->len, data + 16);
	put_unaligned_le32(index, data + 24);
	memcpy(data + HEADER, s->index, index);
	memcpy(data + HEADER + index, s->rows, s->len);
	s->size = HEADER + index + s->len;
}

static inline struct section *new_section(struct kunit *test)
{
	struct section *s = kunit_kzalloc(test, sizeof(*s), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, s);
	return s;
}

#endif /* _KERNEL_UNWIND_TABLE_KUNIT_H */

/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_SFRAME_H
#define __PERF_SFRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <linux/types.h>

/* An SFrame section of version 3, with structures that are packed and little-endian. */
#define SFRAME_MAGIC		0xdee2
#define SFRAME_VERSION_3	3
#define SFRAME_F_SORTED		0x1	/* functions are sorted by their start */
#define SFRAME_F_START_PCREL	0x4	/* a start is relative to its field, not to the section */
#define SFRAME_ABI_AMD64	3
#define SFRAME_RA_OFFSET	-8	/* return address from CFA, on AMD64 */

#define SFRAME_HEADER_SIZE	28
#define SFRAME_FUNCTION_SIZE	16
#define SFRAME_ATTR_SIZE	5

#define SFRAME_INFO_ROW_TYPE	0x0f	/* start offsets of rows have 1, 2 or 4 bytes */
#define SFRAME_INFO_PCMASK	0x10	/* rows are for (pc - start) % rep size */
#define SFRAME_INFO_SIGNAL	0x80
#define SFRAME_INFO2_TYPE	0x1f
#define SFRAME_TYPE_DEFAULT	0
#define SFRAME_TYPE_FLEXIBLE	1

#define SFRAME_ROW_CFA_SP	0x01
#define SFRAME_ROW_NR_WORDS(info)	(((info) >> 1) & 0xf)
#define SFRAME_ROW_WORD_SIZE(info)	(((info) >> 5) & 0x3)
#define SFRAME_ROW_WORDS_MAX	6

#define SFRAME_CTL_REG		0x1	/* else CFA */
#define SFRAME_CTL_DEREF	0x2
#define SFRAME_CTL_REG_SHIFT	3

/* The kernel scans no more rows of a function. */
#define SFRAME_FUNCTION_ROWS_MAX	64U

enum {
	SFRAME_REG_FP = 6,
	SFRAME_REG_SP = 7,
	SFRAME_REG_MAX = 15,
};

enum sframe_base {
	SFRAME_BASE_NONE,	/* RA: at its fixed offset from CFA; FP: unchanged */
	SFRAME_BASE_CFA,
	SFRAME_BASE_REG,
};

/* base + offset, or with deref what is stored there */
struct sframe_rule {
	u8	base;		/* enum sframe_base */
	u8	reg;
	bool	deref;
	s32	offset;
};

struct sframe_row {
	u32			start;	/* bytes from the start of the function */
	bool			end;	/* a walk ends here */
	struct sframe_rule	cfa;
	struct sframe_rule	ra;
	struct sframe_rule	fp;
};

struct sframe_function {
	u64	start;
	u32	size;		/* in bytes */
	u32	first_row;	/* in sframe_table::rows */
	u32	nr_rows;
	u32	order;		/* of adding */
	u8	rep_size;	/* rows are for (pc - start) % rep_size, unless 0 */
	bool	is_signal;
};

/* Functions and their rows, as they are in a section. */
struct sframe_table {
	struct sframe_function	*functions;
	struct sframe_row	*rows;
	u32			nr_functions;
	u32			nr_rows;
	u32			max_functions;
	u32			max_rows;
	int			err;
};

void sframe_table__exit(struct sframe_table *table);
void sframe_table__begin(struct sframe_table *table, u64 start, u8 rep_size, bool is_signal);
void sframe_table__add_row(struct sframe_table *table, const struct sframe_row *row);
void sframe_table__end(struct sframe_table *table, u64 size);
int sframe_table__sort(struct sframe_table *table);
int sframe_table__encode(struct sframe_table *table, void **section, size_t *size);
int sframe_table__decode(struct sframe_table *table, const void *section, size_t size, u64 addr);

const struct sframe_function *sframe_table__function(const struct sframe_table *table, u64 pc);
const struct sframe_row *sframe_table__row(const struct sframe_table *table, u64 pc);

#endif /* __PERF_SFRAME_H */

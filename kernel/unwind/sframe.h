/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _KERNEL_UNWIND_SFRAME_H
#define _KERNEL_UNWIND_SFRAME_H

#include <linux/bits.h>
#include <linux/sizes.h>
#include <linux/types.h>

/* The most rows of a function: their scan may run under rq->lock. */
#define UNWIND_SFRAME_MAX_ROWS	64

/* The largest section: a place in it has 26 bits in a row. */
#define UNWIND_SFRAME_MAX_SIZE	SZ_64M

/* How many places there are for steps of a section of @size bytes: two for the smallest. */
#define UNWIND_SFRAME_STEPS(size)	((size) / 64 + 2)

/**
 * struct unwind_sframe - an SFrame section that has been checked
 * @steps:	for each step of 1 << @shift bytes from @first on the last function that
 *		starts there or below; one more at the end, for the last function
 * @shift:	see there
 * @functions:	the index of functions, in the section
 * @rows:	the attributes and rows of functions, in the section
 * @first:	file offset where the first function starts
 * @span:	from there to the end of the last function, in bytes, at most U32_MAX
 * @nr:		number of functions, not 0
 */
struct unwind_sframe {
	const u32	*steps;
	unsigned int	shift;
	const u8	*functions;
	const u8	*rows;
	u64		first;
	u64		span;
	u32		nr;
};

/*
 * A row in one word, as the cache keeps it. The slot is the word of the stack that has the
 * return address; the CFA is right above it. Offsets are in words of 8 bytes, and signed.
 *
 *	bits 0-15	where the caller's frame pointer is stored, from the slot
 *	bit  16		the slot is at stack pointer + offset, otherwise at frame pointer
 *			+ offset
 *	bit  17		the frame pointer is stored, otherwise it is unchanged
 *	bits 32-63	the offset of the slot
 *
 * Every other row puts the slot far below the stack pointer, where none can be. It has a
 * kind, and bits 0-15 and 22-31 have the place of its info byte in unwind_sframe::rows, in
 * two parts.
 */
#define UNWIND_ROW_SP		BIT_ULL(16)
#define UNWIND_ROW_FP		BIT_ULL(17)
#define UNWIND_ROW_SLOT		GENMASK_ULL(63, 32)

#define UNWIND_ROW_OTHER	((u64)BIT(31) << 32 | UNWIND_ROW_SP)
#define UNWIND_ROW_KIND		(UNWIND_ROW_SLOT | GENMASK_ULL(21, 16))

/* There is no caller, or none that the table can tell. */
#define UNWIND_ROW_END		(UNWIND_ROW_OTHER | 0 << 18)
/* The trampoline that a signal handler returns to. */
#define UNWIND_ROW_SIGNAL	(UNWIND_ROW_OTHER | 1 << 18)
/* To be decoded by unwind_sframe_decode(): of a default function, or of a flexible one. */
#define UNWIND_ROW_DECODE	(UNWIND_ROW_OTHER | 2 << 18)
#define UNWIND_ROW_FLEXIBLE	(UNWIND_ROW_OTHER | 3 << 18)
/* The address is in no function. */
#define UNWIND_ROW_GAP		(UNWIND_ROW_OTHER | 4 << 18)

/* A row, by the offset of the CFA in bytes; the frame pointer is unchanged. */
static inline u64 unwind_row(bool sp, s32 cfa)
{
	return (u64)(u32)((cfa >> 3) - 1) << 32 | (sp ? UNWIND_ROW_SP : 0);
}

/* The same, and the frame pointer is stored at CFA + @fp. */
static inline u64 unwind_row_fp(bool sp, s32 cfa, s32 fp)
{
	return unwind_row(sp, cfa) | UNWIND_ROW_FP | (u16)((fp >> 3) + 1);
}

static inline bool unwind_row_is_other(u64 row)
{
	return (row & UNWIND_ROW_SLOT) == (UNWIND_ROW_OTHER & UNWIND_ROW_SLOT);
}

static __always_inline s64 unwind_row_slot(u64 row)
{
	return (s64)row >> 32;
}

static __always_inline s64 unwind_row_fp_slot(u64 row)
{
	return (s16)row;
}

/* unwind_rule::base, otherwise a register by its DWARF number */
#define UNWIND_BASE_CFA		16
#define UNWIND_BASE_NONE	17	/* the frame pointer is unchanged */

#define UNWIND_DWARF_FP		6
#define UNWIND_DWARF_SP		7
#define UNWIND_DWARF_REGS	16
#define UNWIND_DWARF_IP		16

/**
 * struct unwind_rule - how a value is had
 * @base:	register, UNWIND_BASE_CFA or UNWIND_BASE_NONE
 * @deref:	the value is stored at base + @offset, otherwise that is the value
 * @offset:	in bytes
 */
struct unwind_rule {
	u8	base;
	bool	deref;
	s32	offset;
};

/**
 * struct unwind_rules - a row that does not fit into one word
 * @cfa:	the CFA; its base is a register
 * @ra:		the return address
 * @fp:		the caller's frame pointer
 */
struct unwind_rules {
	struct unwind_rule	cfa;
	struct unwind_rule	ra;
	struct unwind_rule	fp;
};

int unwind_sframe_check(struct unwind_sframe *sframe, const u8 *section, size_t size,
			u32 *steps);
u64 unwind_sframe_row(const struct unwind_sframe *sframe, u64 offset);
void unwind_sframe_gap(const struct unwind_sframe *sframe, u64 offset, u64 *start, u64 *end);
void unwind_sframe_decode(const struct unwind_sframe *sframe, u64 row,
			  struct unwind_rules *rules);

#endif /* _KERNEL_UNWIND_SFRAME_H */

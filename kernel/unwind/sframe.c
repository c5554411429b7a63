// SPDX-License-Identifier: GPL-2.0
/*
 * SFrame sections, version 3.
 *
 * A section has a header, an index of functions, which is sorted, and for each function
 * an attribute and its rows. A row holds from its start to the start of the next row.
 * The section is kept as it came: all fields are little-endian and may be unaligned.
 *
 * unwind_sframe_check() looks at each byte that the other functions will use. These check
 * nothing: they run under rq->lock and in NMIs, for sections that have passed.
 *
 * Starts of functions are offsets in the file, and not relative to the section.
 *
 * This file knows the format, and nothing of tasks, files and locks.
 */
#include <linux/errno.h>
#include <linux/limits.h>
#include <linux/minmax.h>
#include <linux/nospec.h>
#include <linux/overflow.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/unaligned.h>

#include <kunit/visibility.h>

#include "sframe.h"

/* The header */
#define HEADER_SIZE		28
#define MAGIC			0xdee2
#define VERSION			3
#define FLAG_SORTED		1
#define FLAG_VERSION_1_2	2	/* of no meaning in version 3 */
#define ABI_AMD64		3
#define FIXED_RA		(-8)

/* An entry of the index */
#define FUNCTION_SIZE		16

/* An attribute: number of rows, info, info 2, size of the block that repeats */
#define ATTR_SIZE		5
#define ATTR_TYPE		GENMASK(3, 0)
#define ATTR_MASK		BIT(4)
#define ATTR_SIGNAL		BIT(7)
#define ATTR2_FLEXIBLE		1

/* The info byte of a row */
#define INFO_SP			BIT(0)
#define INFO_WORDS(info)	(((info) >> 1) & 15)
#define INFO_SIZE(info)		(((info) >> 5) & 3)
#define INFO_MANGLED		BIT(7)

/* A control word of a flexible row */
#define CONTROL_REGISTER	BIT(0)
#define CONTROL_DEREF		BIT(1)
#define CONTROL_RESERVED	BIT(2)
#define CONTROL_SHIFT		3

/* Where the upper part of a place begins in a row. */
#define PLACE_SHIFT		22

/* How often a check lets others run. */
#define CHECK_BATCH		4096

static __always_inline u64 function_start(const u8 *function)
{
	return get_unaligned_le64(function);
}

static __always_inline u32 function_size(const u8 *function)
{
	return get_unaligned_le32(function + 8);
}

static __always_inline u32 function_attr(const u8 *function)
{
	return get_unaligned_le32(function + 12);
}

/* The start of a row; @type is 0, 1 or 2. */
static __always_inline u32 row_start(const u8 *row, unsigned int type)
{
	if (type == 0)
		return *row;
	return type == 1 ? get_unaligned_le16(row) : get_unaligned_le32(row);
}

/* The sizes of rows behind their starts, by the info byte: a scan looks at many of them. */
#define SIZE_1(info)	(1 + (INFO_WORDS(info) << INFO_SIZE(info)))
#define SIZE_4(i)	SIZE_1(i), SIZE_1((i) + 1), SIZE_1((i) + 2), SIZE_1((i) + 3)
#define SIZE_16(i)	SIZE_4(i), SIZE_4((i) + 4), SIZE_4((i) + 8), SIZE_4((i) + 12)
#define SIZE_64(i)	SIZE_16(i), SIZE_16((i) + 16), SIZE_16((i) + 32), SIZE_16((i) + 48)
static const u8 row_sizes[256] = {
	SIZE_64(0), SIZE_64(64), SIZE_64(128), SIZE_64(192),
};

static __always_inline unsigned int row_size(u8 info)
{
	return row_sizes[info];
}

/* Data word @i of the row with info byte @row. */
static noinline s32 row_word(const u8 *row, unsigned int i)
{
	const u8 *word = row + 1 + (i << INFO_SIZE(*row));

	switch (INFO_SIZE(*row)) {
	case 0:
		return (s8)*word;
	case 1:
		return (s16)get_unaligned_le16(word);
	default:
		return (s32)get_unaligned_le32(word);
	}
}

static u32 row_control(const u8 *row, unsigned int i)
{
	u32 word = row_word(row, i);

	switch (INFO_SIZE(*row)) {
	case 0:
		return (u8)word;
	case 1:
		return (u16)word;
	default:
		return word;
	}
}

/*
 * Decode the rule that begins with data word @i. Returns the number of its words. A rule
 * that is not there is as one of 0.
 */
static unsigned int decode_rule(const u8 *row, unsigned int i, struct unwind_rule *rule)
{
	u32 control = i < INFO_WORDS(*row) ? row_control(row, i) : 0;

	if (!control)
		return 1;
	rule->base = control & CONTROL_REGISTER ? control >> CONTROL_SHIFT : UNWIND_BASE_CFA;
	rule->deref = control & CONTROL_DEREF;
	rule->offset = row_word(row, i + 1);
	return 2;
}

/* See decode_rule(). Returns 0 for a bad rule. */
static unsigned int check_rule(const u8 *row, unsigned int i, bool cfa)
{
	u32 control = i < INFO_WORDS(*row) ? row_control(row, i) : 0;
	u32 reg = control >> CONTROL_SHIFT;

	if (!control)
		return !cfa;
	if (control & CONTROL_RESERVED || i + 1 >= INFO_WORDS(*row))
		return 0;
	if (control & CONTROL_REGISTER ? reg >= UNWIND_DWARF_REGS : reg || cfa)
		return 0;
	return 2;
}

/* @row is its info byte; all of it is in the section. */
static bool check_flexible(const u8 *row)
{
	unsigned int words = INFO_WORDS(*row), used = 0, n, rule;

	if (!words)
		return true;
	for (rule = 0; rule < 3; rule++) {
		n = check_rule(row, used, !rule);
		if (!n)
			return false;
		used += n;
	}
	return used >= words;
}

/* Check @nr rows from @row to @end, whose starts have the size @type. */
static __always_inline bool check_rows(const u8 *row, const u8 *end, unsigned int nr,
				       bool flexible, const unsigned int type)
{
	s64 start, before = -1;
	u8 info;

	for (; nr; nr--) {
		if (end - row < (1 << type) + 1)
			return false;
		start = row_start(row, type);
		row += 1 << type;
		info = *row;
		if (start <= before || info & INFO_MANGLED || INFO_SIZE(info) > 2 ||
		    end - row < row_size(info))
			return false;
		if (flexible ? !check_flexible(row) : INFO_WORDS(info) > 2)
			return false;
		before = start;
		row += row_size(info);
	}
	return true;
}

/* Check the rows of a function, and return their number in @nr. */
static bool check_function(const u8 *rows, u32 len, u32 attr, unsigned int *nr)
{
	const u8 *row = rows + attr + ATTR_SIZE, *end = rows + len;
	u8 info, info2;

	if (len < ATTR_SIZE || attr > len - ATTR_SIZE)
		return false;
	*nr = get_unaligned_le16(rows + attr);
	info = rows[attr + 2];
	info2 = rows[attr + 3];
	if (*nr > UNWIND_SFRAME_MAX_ROWS || info2 & ~ATTR2_FLEXIBLE ||
	    info & ~(ATTR_TYPE | ATTR_MASK | ATTR_SIGNAL) ||
	    (info & ATTR_MASK && !rows[attr + 4]))
		return false;

	switch (info & ATTR_TYPE) {
	case 0:
		return check_rows(row, end, *nr, info2, 0);
	case 1:
		return check_rows(row, end, *nr, info2, 1);
	case 2:
		return check_rows(row, end, *nr, info2, 2);
	default:
		return false;
	}
}

/*
 * The header. What it says of the sizes fits the section, so sums of u32 in u64 are all
 * that is needed. Returns the number of rows, or a negative error.
 */
static s64 check_header(struct unwind_sframe *sframe, u32 *len, const u8 *section,
			size_t size)
{
	u64 header, functions, rows, nr_rows;

	if (size < HEADER_SIZE || size > UNWIND_SFRAME_MAX_SIZE ||
	    get_unaligned_le16(section) != MAGIC || section[2] != VERSION ||
	    (section[3] & ~FLAG_VERSION_1_2) != FLAG_SORTED || section[4] != ABI_AMD64 ||
	    section[5] || (s8)section[6] != FIXED_RA)
		return -EINVAL;

	header = HEADER_SIZE + section[7];
	sframe->nr = get_unaligned_le32(section + 8);
	nr_rows = get_unaligned_le32(section + 12);
	*len = get_unaligned_le32(section + 16);
	functions = header + get_unaligned_le32(section + 20);
	rows = header + get_unaligned_le32(section + 24);

	if (!sframe->nr || functions + (u64)sframe->nr * FUNCTION_SIZE > size ||
	    rows + *len > size)
		return -EINVAL;
	/* Each function has rows of its own. So a check takes no longer than the section. */
	if ((u64)sframe->nr * ATTR_SIZE + nr_rows * 2 > *len)
		return -EINVAL;

	sframe->functions = section + functions;
	sframe->rows = section + rows;
	return nr_rows;
}

/* Make the steps that shorten the search for a function. */
static void make_steps(struct unwind_sframe *sframe, size_t size, u32 *steps)
{
	u32 nr, step, function = 0;

	sframe->shift = 0;
	while ((sframe->span - 1) >> sframe->shift >= UNWIND_SFRAME_STEPS(size) - 1)
		sframe->shift++;

	nr = ((sframe->span - 1) >> sframe->shift) + 1;
	for (step = 0; step < nr; step++) {
		u64 start = sframe->first + ((u64)step << sframe->shift);

		while (function < sframe->nr - 1 &&
		       function_start(sframe->functions + (u64)(function + 1) *
				      FUNCTION_SIZE) <= start)
			function++;
		steps[step] = function;
	}
	steps[nr] = sframe->nr - 1;
	sframe->steps = steps;
}

/**
 * unwind_sframe_check - check a section from end to end
 * @sframe:	set to what the other functions need; it points into @section
 * @section:	the section; must not change as long as @sframe is used
 * @size:	its size in bytes
 * @steps:	memory for UNWIND_SFRAME_STEPS(@size) of them, with @section
 *
 * The section has to be of version 3, for AMD64, sorted, with starts that are file
 * offsets; its functions do not overlap and span less than 4 GiB; each has at most
 * UNWIND_SFRAME_MAX_ROWS rows, sorted, of known types and inside of the section. It has
 * at most UNWIND_SFRAME_MAX_SIZE bytes.
 *
 * Context: Task context, may sleep.
 * Return: 0, -EINVAL for a section of which this does not hold, -EINTR when the task is
 * killed.
 */
int unwind_sframe_check(struct unwind_sframe *sframe, const u8 *section, size_t size,
			u32 *steps)
{
	u64 start, end = 0, found = 0;
	unsigned int nr;
	s64 nr_rows;
	u32 i, len;

	nr_rows = check_header(sframe, &len, section, size);
	if (nr_rows < 0)
		return nr_rows;

	sframe->first = function_start(sframe->functions);
	for (i = 0; i < sframe->nr; i++) {
		const u8 *function = sframe->functions + (u64)i * FUNCTION_SIZE;

		start = function_start(function);
		if (start > S64_MAX || start < end ||
		    !check_function(sframe->rows, len, function_attr(function), &nr))
			return -EINVAL;
		/* Two functions of no size at one place: which one has the rows? */
		if (i && start == function_start(function - FUNCTION_SIZE))
			return -EINVAL;
		end = start + function_size(function);
		found += nr;
		if (found > nr_rows)
			return -EINVAL;

		if (!(i % CHECK_BATCH)) {
			cond_resched();
			if (fatal_signal_pending(current))
				return -EINTR;
		}
	}
	sframe->span = end - sframe->first;
	if (end > S64_MAX || !sframe->span || sframe->span > U32_MAX || found != nr_rows)
		return -EINVAL;
	make_steps(sframe, size, steps);
	return 0;
}
EXPORT_SYMBOL_IF_KUNIT(unwind_sframe_check);

/*
 * The last function that starts at @offset or below; there is one. User space chooses @offset,
 * and what is read by it is the next index. So it is bounded also when the CPU speculates.
 */
static __always_inline const u8 *find_function(const struct unwind_sframe *sframe, u64 offset)
{
	const u64 place = array_index_nospec(offset - sframe->first, sframe->span);
	const u32 *step = sframe->steps + (place >> sframe->shift);
	const u8 *function = sframe->functions + (u64)step[0] * FUNCTION_SIZE, *middle;
	u32 nr = step[1] - step[0] + 1;

	while (nr > 1) {
		middle = function + (u64)(nr / 2) * FUNCTION_SIZE;
		function = function_start(middle) <= offset ? middle : function;
		nr -= nr / 2;
	}
	return function;
}

/* The info byte of the row that holds at @pc, NULL if the first row starts above. */
static __always_inline const u8 *find_row(const u8 *row, unsigned int nr, u32 pc,
					  const unsigned int type)
{
	const u8 *found = NULL;

	for (; nr && row_start(row, type) <= pc; nr--) {
		found = row + (1U << type);
		row = found + row_size(*found);
	}
	return found;
}

/* A default row in one word, UNWIND_ROW_GAP if it does not fit: see pack_row(). */
static __always_inline u64 pack_cfa(u8 info, s32 cfa)
{
	return cfa & 7 ? UNWIND_ROW_GAP : unwind_row(info & INFO_SP, cfa);
}

static __always_inline u64 pack_cfa_fp(u8 info, s32 cfa, s32 fp)
{
	/* Whole words, and the frame pointer not too far. */
	if ((cfa | fp) & 7 || fp < S16_MIN * 8 || fp >= S16_MAX * 8)
		return UNWIND_ROW_GAP;
	return unwind_row_fp(info & INFO_SP, cfa, fp);
}

/* See pack_row(). Out of line, as it needs more registers. */
static noinline u64 pack_otherwise(const struct unwind_sframe *sframe, const u8 *row,
				   bool flexible)
{
	u64 packed = UNWIND_ROW_GAP, place;

	if (!flexible && INFO_WORDS(*row) == 1)
		packed = pack_cfa(*row, row_word(row, 0));
	else if (!flexible)
		packed = pack_cfa_fp(*row, row_word(row, 0), row_word(row, 1));
	if (packed != UNWIND_ROW_GAP)
		return packed;

	place = row - sframe->rows;
	return (flexible ? UNWIND_ROW_FLEXIBLE : UNWIND_ROW_DECODE) |
	       (place & U16_MAX) | (place >> 16) << PLACE_SHIFT;
}

/* Put a row into one word. */
static __always_inline u64 pack_row(const struct unwind_sframe *sframe, const u8 *row,
				    bool flexible)
{
	u64 packed = UNWIND_ROW_GAP;
	u8 info = *row;

	if (unlikely(!INFO_WORDS(info)))
		return UNWIND_ROW_END;
	/* Nearly all rows have words of one byte. */
	if (likely(!flexible && !INFO_SIZE(info)))
		packed = INFO_WORDS(info) == 1 ? pack_cfa(info, (s8)row[1]) :
			 pack_cfa_fp(info, (s8)row[1], (s8)row[2]);
	if (likely(packed != UNWIND_ROW_GAP))
		return packed;
	return pack_otherwise(sframe, row, flexible);
}

/**
 * unwind_sframe_row - find the row of an address
 * @sframe:	a section that has been checked
 * @offset:	the address, as an offset in the file
 *
 * Context: Any, NMI included.
 * Return: the row in one word; UNWIND_ROW_GAP if the address is in no function.
 */
u64 unwind_sframe_row(const struct unwind_sframe *sframe, u64 offset)
{
	const u8 *function, *attr, *row;
	unsigned int nr;
	u64 pc;
	u8 info;

	/* One that is below the first function, too: it is a large number here. */
	if (unlikely(offset - sframe->first >= sframe->span))
		return UNWIND_ROW_GAP;
	function = find_function(sframe, offset);
	pc = offset - function_start(function);
	if (unlikely(pc >= function_size(function)))
		return UNWIND_ROW_GAP;

	attr = sframe->rows + function_attr(function);
	nr = get_unaligned_le16(attr);
	info = attr[2];
	if (unlikely(info & (ATTR_MASK | ATTR_SIGNAL))) {
		if (info & ATTR_SIGNAL)
			return UNWIND_ROW_SIGNAL;
		pc = (u32)pc % attr[4];
	}

	switch (info & ATTR_TYPE) {
	case 0:
		row = find_row(attr + ATTR_SIZE, nr, pc, 0);
		break;
	case 1:
		row = find_row(attr + ATTR_SIZE, nr, pc, 1);
		break;
	default:
		row = find_row(attr + ATTR_SIZE, nr, pc, 2);
	}
	if (unlikely(!row))
		return UNWIND_ROW_END;
	return pack_row(sframe, row, attr[3] & ATTR2_FLEXIBLE);
}
EXPORT_SYMBOL_IF_KUNIT(unwind_sframe_row);

/**
 * unwind_sframe_gap - where an address is that is in no function
 * @sframe:	a section that has been checked
 * @offset:	an address of which unwind_sframe_row() returns UNWIND_ROW_GAP
 * @start:	set to the end of the function below, 0 if there is none
 * @end:	set to the start of the function above, U64_MAX if there is none
 *
 * Context: Any, NMI included.
 */
void unwind_sframe_gap(const struct unwind_sframe *sframe, u64 offset, u64 *start, u64 *end)
{
	const u8 *function;

	if (offset < sframe->first) {
		*start = 0;
		*end = sframe->first;
	} else if (offset - sframe->first >= sframe->span) {
		*start = sframe->first + sframe->span;
		*end = U64_MAX;
	} else {
		function = find_function(sframe, offset);
		*start = function_start(function) + function_size(function);
		*end = function_start(function + FUNCTION_SIZE);
	}
}
EXPORT_SYMBOL_IF_KUNIT(unwind_sframe_gap);

/**
 * unwind_sframe_decode - decode a row that does not fit into one word
 * @sframe:	a section that has been checked
 * @row:	of this section, UNWIND_ROW_DECODE or UNWIND_ROW_FLEXIBLE
 * @rules:	set
 *
 * Context: Any, NMI included.
 */
void unwind_sframe_decode(const struct unwind_sframe *sframe, u64 row,
			  struct unwind_rules *rules)
{
	const u8 *info = sframe->rows + ((row & U16_MAX) | (u32)row >> PLACE_SHIFT << 16);
	unsigned int i;

	rules->ra = (struct unwind_rule){ UNWIND_BASE_CFA, true, FIXED_RA };
	rules->fp = (struct unwind_rule){ UNWIND_BASE_NONE, false, 0 };
	if ((row & UNWIND_ROW_KIND) == UNWIND_ROW_FLEXIBLE) {
		i = decode_rule(info, 0, &rules->cfa);
		i += decode_rule(info, i, &rules->ra);
		decode_rule(info, i, &rules->fp);
		return;
	}
	rules->cfa.base = *info & INFO_SP ? UNWIND_DWARF_SP : UNWIND_DWARF_FP;
	rules->cfa.deref = false;
	rules->cfa.offset = row_word(info, 0);
	if (INFO_WORDS(*info) > 1)
		rules->fp = (struct unwind_rule){ UNWIND_BASE_CFA, true, row_word(info, 1) };
}
EXPORT_SYMBOL_IF_KUNIT(unwind_sframe_decode);

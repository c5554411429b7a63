// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of what is read of SFrame sections, and of which ones are refused.
 */
#include <kunit/test.h>
#include <linux/errno.h>
#include <linux/kernel.h>
#include <linux/limits.h>
#include <linux/slab.h>

#include "sframe.h"
#include "table_kunit.h"

/* The section in memory of its own size: KASAN sees what is read behind it. */
static int check(struct kunit *test, struct unwind_sframe *sframe, const u8 *data, size_t size)
{
	u8 *copy = kunit_kmalloc(test, max(size, 1UL), GFP_KERNEL);
	u32 *steps = kunit_kmalloc_array(test, UNWIND_SFRAME_STEPS(size), sizeof(*steps),
					 GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, copy);
	KUNIT_ASSERT_NOT_NULL(test, steps);
	memcpy(copy, data, size);
	return unwind_sframe_check(sframe, copy, size, steps);
}

static void check_good(struct kunit *test, struct unwind_sframe *sframe, struct section *s)
{
	make_section(s);
	KUNIT_ASSERT_EQ(test, 0, check(test, sframe, s->data, s->size));
}

static void check_bad(struct kunit *test, struct section *s, const char *what)
{
	struct unwind_sframe sframe;

	make_section(s);
	KUNIT_EXPECT_EQ_MSG(test, -EINVAL, check(test, &sframe, s->data, s->size), "%s", what);
}

/* An assembler's: push %rbp; mov %rsp,%rbp; nop; leave; ret. The flags are this kernel's. */
static const u8 example[] = {
	0xe2, 0xde, 0x03, 0x01, 0x03, 0x00, 0xf8, 0x00, 0x01, 0x00, 0x00, 0x00,
	0x04, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
	0x10, 0x00, 0x00, 0x00,
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x07, 0x00, 0x00, 0x00,
	0x00, 0x00, 0x00, 0x00,
	0x04, 0x00, 0x00, 0x00, 0x00,
	0x00, 0x03, 0x08,
	0x01, 0x05, 0x10, 0xf0,
	0x04, 0x04, 0x10, 0xf0,
	0x06, 0x05, 0x08, 0xf0,
};

static void sframe_example(struct kunit *test)
{
	struct unwind_sframe sframe;
	u64 row;
	u64 pc;

	KUNIT_ASSERT_EQ(test, 0, check(test, &sframe, example, sizeof(example)));
	KUNIT_EXPECT_EQ(test, 1, sframe.nr);
	KUNIT_EXPECT_EQ(test, 0ULL, sframe.first);
	KUNIT_EXPECT_EQ(test, 7ULL, sframe.span);

	for (pc = 0; pc < 7; pc++) {
		row = pc < 1 ? unwind_row(true, 8) :
		      pc < 4 ? unwind_row_fp(true, 16, -16) :
		      pc < 6 ? unwind_row_fp(false, 16, -16) : unwind_row_fp(true, 8, -16);
		KUNIT_EXPECT_EQ_MSG(test, row, unwind_sframe_row(&sframe, pc), "at %llu", pc);
	}
	KUNIT_EXPECT_EQ(test, UNWIND_ROW_GAP, unwind_sframe_row(&sframe, 7));
}

/* Each size of a start with each size of words, as far as these reach. */
static void sframe_sizes(struct kunit *test)
{
	static const s32 offsets[3][4] = {
		{ 8, 16, 120, 16 }, { 8, 16, 32760, 1024 }, { 8, 16, 0x7ffffff8, 80000 },
	};
	static const u32 starts[3] = { 250, 65000, 1000000 };
	unsigned int type, size, i;

	for (type = 0; type < 3; type++) {
		for (size = 0; size < 3; size++) {
			struct section *s = new_section(test);
			struct unwind_sframe sframe;

			add_function(s, 0x1000, 2000000, type, 0, 0);
			for (i = 0; i < 4; i++) {
				const s32 words[] = { offsets[size][i], -offsets[size][3] };

				add_row_sized(s, starts[type] / 4 * i, i & 1, size, words,
					      1 + i / 2);
			}
			check_good(test, &sframe, s);
			for (i = 0; i < 4; i++) {
				s32 cfa = offsets[size][i], fp = -offsets[size][3];
				u64 pc = 0x1000 + starts[type] / 4 * i;
				u64 row = i < 2 ? unwind_row(i & 1, cfa) :
						  unwind_row_fp(i & 1, cfa, fp);

				KUNIT_EXPECT_EQ(test, row, unwind_sframe_row(&sframe, pc));
				KUNIT_EXPECT_EQ(test, row, unwind_sframe_row(&sframe, pc + 1));
			}
		}
	}
}

/* Rows that do not fit into one word. */
static void sframe_decoded(struct kunit *test)
{
	static const s32 odd[][2] = {
		{ 12, -16 }, { 16, -12 }, { 0x70000000, -0x100000 }, { 16, 0x100000 },
	};
	struct section *s = new_section(test);
	struct unwind_sframe sframe;
	struct unwind_rules rules;
	unsigned int i;
	u64 row;

	add_function(s, 0, 100, 0, 0, 0);
	for (i = 0; i < ARRAY_SIZE(odd); i++)
		add_row_sized(s, i, i & 1, 2, odd[i], 2);
	add_row(s, i, true, 12);
	check_good(test, &sframe, s);

	for (i = 0; i <= ARRAY_SIZE(odd); i++) {
		row = unwind_sframe_row(&sframe, i);
		KUNIT_ASSERT_EQ(test, UNWIND_ROW_DECODE, row & UNWIND_ROW_KIND);
		unwind_sframe_decode(&sframe, row, &rules);
		KUNIT_EXPECT_EQ(test, i & 1 || i == 4 ? UNWIND_DWARF_SP : UNWIND_DWARF_FP,
				rules.cfa.base);
		KUNIT_EXPECT_FALSE(test, rules.cfa.deref);
		KUNIT_EXPECT_EQ(test, i < 4 ? odd[i][0] : 12, rules.cfa.offset);
		KUNIT_EXPECT_EQ(test, UNWIND_BASE_CFA, rules.ra.base);
		KUNIT_EXPECT_TRUE(test, rules.ra.deref);
		KUNIT_EXPECT_EQ(test, -8, rules.ra.offset);
		KUNIT_EXPECT_EQ(test, i < 4 ? UNWIND_BASE_CFA : UNWIND_BASE_NONE,
				rules.fp.base);
		if (i < 4)
			KUNIT_EXPECT_EQ(test, odd[i][1], rules.fp.offset);
	}
}

static void expect_rule(struct kunit *test, const struct unwind_rule *rule, u8 base,
			bool deref, s32 offset)
{
	KUNIT_EXPECT_EQ(test, base, rule->base);
	KUNIT_EXPECT_EQ(test, deref, rule->deref);
	KUNIT_EXPECT_EQ(test, offset, rule->offset);
}

static void sframe_flexible(struct kunit *test)
{
	struct section *s = new_section(test);
	struct unwind_sframe sframe;
	struct unwind_rules rules;
	unsigned int i;
	u64 row[5];

	add_function(s, 0, 100, 0, FLEXIBLE, 0);
	add_row(s, 0, false, REG(10), 0, 0, CFA_AT, -16);
	add_row(s, 1, false, REG_AT(7), 96, REG(5), 0, REG_AT(12), 4);
	add_row(s, 2, false, REG(15), 300, REG_AT(6), -8);
	add_row(s, 3, false, REG(7), 8);
	add_row(s, 4, false);
	check_good(test, &sframe, s);

	for (i = 0; i < 4; i++) {
		row[i] = unwind_sframe_row(&sframe, i);
		KUNIT_EXPECT_EQ(test, UNWIND_ROW_FLEXIBLE, row[i] & UNWIND_ROW_KIND);
	}
	KUNIT_EXPECT_EQ(test, UNWIND_ROW_END, unwind_sframe_row(&sframe, 4));

	unwind_sframe_decode(&sframe, row[0], &rules);
	expect_rule(test, &rules.cfa, 10, false, 0);
	expect_rule(test, &rules.ra, UNWIND_BASE_CFA, true, -8);
	expect_rule(test, &rules.fp, UNWIND_BASE_CFA, true, -16);
	unwind_sframe_decode(&sframe, row[1], &rules);
	expect_rule(test, &rules.cfa, 7, true, 96);
	expect_rule(test, &rules.ra, 5, false, 0);
	expect_rule(test, &rules.fp, 12, true, 4);
	unwind_sframe_decode(&sframe, row[2], &rules);
	expect_rule(test, &rules.cfa, 15, false, 300);
	expect_rule(test, &rules.ra, 6, true, -8);
	KUNIT_EXPECT_EQ(test, UNWIND_BASE_NONE, rules.fp.base);
	unwind_sframe_decode(&sframe, row[3], &rules);
	expect_rule(test, &rules.cfa, 7, false, 8);
	expect_rule(test, &rules.ra, UNWIND_BASE_CFA, true, -8);
	KUNIT_EXPECT_EQ(test, UNWIND_BASE_NONE, rules.fp.base);
}

/* A function that is a block which repeats: a PLT. */
static void sframe_mask(struct kunit *test)
{
	struct section *s = new_section(test);
	struct unwind_sframe sframe;
	u64 pc;

	add_function(s, 0x1010, 160, MASK, 0, 16);
	add_row(s, 0, true, 8);
	add_row(s, 11, true, 16);
	check_good(test, &sframe, s);

	for (pc = 0; pc < 160; pc++)
		KUNIT_EXPECT_EQ(test, unwind_row(true, pc % 16 < 11 ? 8 : 16),
				unwind_sframe_row(&sframe, 0x1010 + pc));
	KUNIT_EXPECT_EQ(test, UNWIND_ROW_GAP, unwind_sframe_row(&sframe, 0x1010 + 160));
}

static void expect_gap(struct kunit *test, const struct unwind_sframe *sframe, u64 offset,
		       u64 start, u64 end)
{
	u64 from, to;

	KUNIT_EXPECT_EQ(test, UNWIND_ROW_GAP, unwind_sframe_row(sframe, offset));
	unwind_sframe_gap(sframe, offset, &from, &to);
	KUNIT_EXPECT_EQ(test, start, from);
	KUNIT_EXPECT_EQ(test, end, to);
}

/* Every number of functions, so that each way through the search is gone. */
static void sframe_functions(struct kunit *test)
{
	unsigned int nr, i;

	for (nr = 1; nr <= 70; nr++) {
		struct section *s = new_section(test);
		struct unwind_sframe sframe;

		for (i = 0; i < nr; i++) {
			add_function(s, 0x4000 + 32 * i, 16, 0, 0, 0);
			add_row(s, 4, true, 8 * (i + 1));
		}
		check_good(test, &sframe, s);
		KUNIT_EXPECT_EQ(test, 0x4000ULL, sframe.first);
		KUNIT_EXPECT_EQ(test, 32ULL * nr - 16, sframe.span);

		expect_gap(test, &sframe, 0, 0, 0x4000);
		expect_gap(test, &sframe, 0x3fff, 0, 0x4000);
		for (i = 0; i < nr; i++) {
			u64 start = 0x4000 + 32 * i, next = i < nr - 1 ? start + 32 : U64_MAX;

			/* Ahead of the first row there is none. */
			KUNIT_EXPECT_EQ(test, UNWIND_ROW_END, unwind_sframe_row(&sframe, start));
			KUNIT_EXPECT_EQ(test, UNWIND_ROW_END,
					unwind_sframe_row(&sframe, start + 3));
			KUNIT_EXPECT_EQ(test, unwind_row(true, 8 * (i + 1)),
					unwind_sframe_row(&sframe, start + 4));
			KUNIT_EXPECT_EQ(test, unwind_row(true, 8 * (i + 1)),
					unwind_sframe_row(&sframe, start + 15));
			expect_gap(test, &sframe, start + 16, start + 16, next);
			expect_gap(test, &sframe, start + 31, start + 16, next);
		}
		expect_gap(test, &sframe, S64_MAX, 0x4000 + 32 * nr - 16, U64_MAX);
		kunit_kfree(test, s);
	}
}

/* The smallest sections: one function of any size, without a row and with one. */
static void sframe_smallest(struct kunit *test)
{
	unsigned int bits;

	for (bits = 0; bits < 32; bits++) {
		struct section *s = new_section(test);
		struct unwind_sframe sframe;
		u64 last = 0x1000 + BIT_ULL(bits) - 1;

		add_function(s, 0x1000, 1U << bits, 0, 0, 0);
		check_good(test, &sframe, s);
		KUNIT_EXPECT_EQ(test, UNWIND_ROW_END, unwind_sframe_row(&sframe, last));
		add_row(s, 0, true, 8);
		check_good(test, &sframe, s);
		KUNIT_EXPECT_EQ(test, unwind_row(true, 8), unwind_sframe_row(&sframe, last));
		expect_gap(test, &sframe, last + 1, last + 1, U64_MAX);
		kunit_kfree(test, s);
	}
}

/* The outermost frame, and signal frames. */
static void sframe_kinds(struct kunit *test)
{
	struct section *s = new_section(test);
	struct unwind_sframe sframe;

	add_function(s, 0, 8, 0, 0, 0);
	add_function(s, 8, 8, 0, 0, 0);
	add_row(s, 0, true);
	add_row(s, 4, true, 8);
	add_function(s, 16, 8, SIGNAL, 0, 0);
	add_function(s, 24, 8, SIGNAL, FLEXIBLE, 0);
	add_row(s, 0, true, REG(7), 8);
	check_good(test, &sframe, s);

	KUNIT_EXPECT_EQ(test, UNWIND_ROW_END, unwind_sframe_row(&sframe, 0));
	KUNIT_EXPECT_EQ(test, UNWIND_ROW_END, unwind_sframe_row(&sframe, 8));
	KUNIT_EXPECT_EQ(test, unwind_row(true, 8), unwind_sframe_row(&sframe, 12));
	KUNIT_EXPECT_EQ(test, UNWIND_ROW_SIGNAL, unwind_sframe_row(&sframe, 16));
	KUNIT_EXPECT_EQ(test, UNWIND_ROW_SIGNAL, unwind_sframe_row(&sframe, 31));
}

/* One byte of the example is another one. */
static void sframe_bad_bytes(struct kunit *test)
{
	static const struct {
		unsigned int	at;
		u8		value;
		const char	*what;
	} bad[] = {
		{ 0, 0xe3, "magic" },
		{ 1, 0xe2, "magic" },
		{ 2, 2, "version" },
		{ 2, 4, "version" },
		{ 3, 0, "not sorted" },
		{ 3, 5, "starts relative to the field" },
		{ 3, 9, "unknown flag" },
		{ 4, 2, "another architecture" },
		{ 5, 0xf0, "fixed place of the frame pointer" },
		{ 6, 0xf0, "place of the return address" },
		{ 7, 1, "auxiliary header that moves all" },
		{ 8, 0, "no functions" },
		{ 8, 2, "too many functions" },
		{ 11, 0xff, "far too many functions" },
		{ 12, 3, "too few rows" },
		{ 12, 5, "too many rows" },
		{ 16, 0x13, "too few bytes of rows" },
		{ 16, 0x15, "too many bytes of rows" },
		{ 19, 0xff, "far too many bytes of rows" },
		{ 23, 0xff, "functions far behind" },
		{ 24, 0x11, "rows behind the end" },
		{ 27, 0xff, "rows far behind" },
		{ 35, 0x80, "negative start" },
		{ 40, 1, "attribute at another place" },
		{ 43, 0xff, "attribute far behind" },
		{ 45, 1, "far too many rows of a function" },
		{ 46, 3, "size of starts" },
		{ 46, 0x20, "bit of another architecture" },
		{ 46, 0x40, "unknown bit" },
		{ 46, 0x10, "block of no size" },
		{ 47, 2, "type of function" },
		{ 47, 0x20, "unknown bit" },
		{ 52, 0, "two rows at one start" },
		{ 56, 1, "rows not sorted" },
		{ 50, 0x83, "mangled return address" },
		{ 50, 0x63, "size of words" },
		{ 50, 0x07, "too many words" },
		{ 61, 0x07, "words behind the end" },
	};
	struct unwind_sframe sframe;
	u8 copy[sizeof(example)];
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		memcpy(copy, example, sizeof(copy));
		KUNIT_EXPECT_NE(test, copy[bad[i].at], bad[i].value);
		copy[bad[i].at] = bad[i].value;
		KUNIT_EXPECT_EQ_MSG(test, -EINVAL, check(test, &sframe, copy, sizeof(copy)),
				    "%s", bad[i].what);
	}
	for (i = 0; i < sizeof(example); i++)
		KUNIT_EXPECT_EQ_MSG(test, -EINVAL, check(test, &sframe, example, i),
				    "the first %u bytes", i);
	/* More than is needed is no harm; flag 2 has no meaning any more. */
	memcpy(copy, example, sizeof(copy));
	copy[3] |= 2;
	KUNIT_EXPECT_EQ(test, 0, check(test, &sframe, copy, sizeof(copy)));
}

static void sframe_bad_functions(struct kunit *test)
{
	struct unwind_sframe sframe;
	struct section *s;
	unsigned int i;

	s = new_section(test);
	add_function(s, 100, 8, 0, 0, 0);
	add_function(s, 107, 8, 0, 0, 0);
	check_bad(test, s, "overlap");

	s = new_section(test);
	add_function(s, 100, 8, 0, 0, 0);
	add_function(s, 50, 8, 0, 0, 0);
	check_bad(test, s, "not sorted");

	s = new_section(test);
	add_function(s, 100, 0, 0, 0, 0);
	add_function(s, 100, 8, 0, 0, 0);
	check_bad(test, s, "two at one start");

	s = new_section(test);
	add_function(s, 100, 0, 0, 0, 0);
	check_bad(test, s, "nothing covered");

	s = new_section(test);
	add_function(s, S64_MAX - 4, 8, 0, 0, 0);
	check_bad(test, s, "end of all offsets");

	s = new_section(test);
	add_function(s, 0, 1, 0, 0, 0);
	add_function(s, 0xfffffffe, 2, 0, 0, 0);
	check_bad(test, s, "4 GiB");

	s = new_section(test);
	add_function(s, 1ULL << 60, 1, 0, 0, 0);
	add_function(s, (1ULL << 60) + 0xfffffffd, 2, 0, 0, 0);
	check_good(test, &sframe, s);

	s = new_section(test);
	add_function(s, 0, 100, 0, 0, 0);
	for (i = 0; i < UNWIND_SFRAME_MAX_ROWS; i++)
		add_row(s, i, true, 8);
	check_good(test, &sframe, s);
	KUNIT_EXPECT_EQ(test, unwind_row(true, 8), unwind_sframe_row(&sframe, 99));
	add_row(s, i, true, 8);
	check_bad(test, s, "65 rows");

	/* All of them have the same rows: they take longer to check than to read. */
	s = new_section(test);
	add_function(s, 0, 1, 0, 0, 0);
	for (i = 0; i < UNWIND_SFRAME_MAX_ROWS; i++)
		add_row(s, i, true, 8);
	for (i = 1; i < 70; i++) {
		memcpy(s->index + i * FUNCTION, s->index, FUNCTION);
		put_unaligned_le64(i, s->index + i * FUNCTION);
		s->nr++;
		s->nr_rows += UNWIND_SFRAME_MAX_ROWS;
	}
	check_bad(test, s, "shared rows");
}

static void sframe_bad_rules(struct kunit *test)
{
	static const struct {
		unsigned int	nr;
		s32		words[7];
		const char	*what;
	} bad[] = {
		{ 1, { REG(7) }, "no offset" },
		{ 2, { 0, 0 }, "no CFA" },
		{ 2, { CFA_AT, 8 }, "CFA of itself" },
		{ 2, { REG(16), 8 }, "the return address as a register" },
		{ 2, { REG(31), 8 }, "a register that there is not" },
		{ 2, { REG(7) | 4, 8 }, "unknown bit" },
		{ 3, { REG(7), 8, CFA_AT }, "no offset of the return address" },
		{ 4, { REG(7), 8, 0, CFA_AT }, "no offset of the frame pointer" },
		{ 4, { REG(7), 8, REG(17), 0 }, "a register that there is not" },
		{ 4, { REG(7), 8, 6 << 3 | CFA_AT, 0 }, "a register and the CFA" },
		{ 7, { REG(7), 8, CFA_AT, -8, CFA_AT, -16, 0 }, "too many words" },
		{ 5, { REG(7), 8, 0, 0, 0 }, "too many words" },
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		struct section *s = new_section(test);

		add_function(s, 0, 100, 0, FLEXIBLE, 0);
		add_row_sized(s, 0, false, 1, bad[i].words, bad[i].nr);
		check_bad(test, s, bad[i].what);
		kunit_kfree(test, s);
	}
}

static struct kunit_case unwind_sframe_cases[] = {
	KUNIT_CASE(sframe_example),
	KUNIT_CASE(sframe_sizes),
	KUNIT_CASE(sframe_decoded),
	KUNIT_CASE(sframe_flexible),
	KUNIT_CASE(sframe_mask),
	KUNIT_CASE(sframe_functions),
	KUNIT_CASE(sframe_smallest),
	KUNIT_CASE(sframe_kinds),
	KUNIT_CASE(sframe_bad_bytes),
	KUNIT_CASE(sframe_bad_functions),
	KUNIT_CASE(sframe_bad_rules),
	{}
};

static struct kunit_suite unwind_sframe_suite = {
	.name		= "unwind_sframe",
	.test_cases	= unwind_sframe_cases,
};

kunit_test_suite(unwind_sframe_suite);

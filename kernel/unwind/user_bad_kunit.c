// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of walks of bad user stacks. Where possible, a place that a walk must not read has
 * a decoy: a good frame record, from which a wrong walk would continue.
 */
#include <kunit/test.h>
#include <linux/kernel.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/unwind_user.h>

#include "kunit.h"

#define DECOY_RA	0x555000UL

/*
 * Bad chains. In a chain of 8 frames the record BAD_FRAME has a bad value, or the walk
 * starts at a bad place.
 */
#define FRAMES		8
#define BAD_FRAME	3
#define FRAME(i)	(1024 + 64 * (i))

enum bad_what {
	BAD_NEXT,	/* the frame pointer in the record */
	BAD_RA,		/* the return address in the record */
	BAD_FP,		/* the frame pointer in the registers */
};

enum bad_base {
	FROM_ZERO,
	FROM_STACK,	/* 2 pages, one with PROT_NONE, a hole, one that is absent */
	FROM_TOP,	/* TASK_SIZE_MAX, with a page mapped below */
	FROM_KERNEL,	/* a frame record in kernel memory */
};

#define WIDE	BIT(0)		/* not for 32-bit */
#define DECOY	BIT(1)		/* there is a record there, which points to frame 5 */

/* One thing wrong with a chain of frame records. */
struct bad_chain {
	const char	*name;
	enum bad_what	what;		/* the place of the bad value */
	enum bad_base	base;		/* the base of the value */
	unsigned long	offset;		/* the offset from the base in bytes */
	unsigned int	nr;		/* the number of entries of a right walk */
	unsigned int	flags;
	int		words;		/* the offset in words, added to @offset */
	int		absent;		/* the unreadable word of that record: 1, 2, 0: none */
};

#define NEXT_BAD	(BAD_FRAME + 2)		/* START_IP, frames 0 to 3 */
#define RA_BAD		(BAD_FRAME + 1)
#define ALL		(FRAMES + 1)

#define NEXT(from)	.what = BAD_NEXT, .base = FROM_##from
#define RA(from)	.what = BAD_RA, .base = FROM_##from
#define FP(from)	.what = BAD_FP, .base = FROM_##from

static const struct bad_chain bad_chains[] = {
	{ "nothing wrong", NEXT(STACK), FRAME(4), ALL },
	/* NEXT_BAD, the decoy, frames 5 to 7 */
	{ "adjacent records", NEXT(STACK), FRAME(3), NEXT_BAD + 4, DECOY, .words = 2 },

	{ "cycle", NEXT(STACK), FRAME(1), NEXT_BAD },
	{ "record that points to itself", NEXT(STACK), FRAME(3), NEXT_BAD },
	{ "overlapping records", NEXT(STACK), FRAME(3), NEXT_BAD, DECOY, .words = 1 },
	{ "descending", NEXT(STACK), FRAME(2) + 32, NEXT_BAD, DECOY },
	{ "below the stack pointer", NEXT(STACK), FRAME(-1), NEXT_BAD, DECOY },
	{ "misaligned by one", NEXT(STACK), FRAME(4) + 1, NEXT_BAD, DECOY },
	{ "misaligned by two", NEXT(STACK), FRAME(4) + 2, NEXT_BAD, DECOY },
	{ "misaligned by four", NEXT(STACK), FRAME(4) + 4, NEXT_BAD, DECOY | WIDE },
	{ "end", NEXT(ZERO), 0, NEXT_BAD },

	{ "kernel memory", NEXT(KERNEL), 0, NEXT_BAD, WIDE },
	{ "end of user space", NEXT(TOP), 0, NEXT_BAD, WIDE },
	{ "last byte of user space", NEXT(TOP), -1UL, NEXT_BAD, WIDE },
	{ "last word of user space", NEXT(TOP), 0, NEXT_BAD, WIDE, .words = -1 },
	{ "last record of user space", NEXT(TOP), 0, NEXT_BAD + 1, DECOY | WIDE,
	  .words = -2 },
	{ "non-canonical", NEXT(ZERO), BIT(62), NEXT_BAD, WIDE },
	{ "non-canonical, negative", NEXT(ZERO), BIT(63), NEXT_BAD, WIDE },
	{ "last word of all", NEXT(ZERO), -8UL, NEXT_BAD },

	{ "last record of the mapping", NEXT(STACK), 2 * PAGE_SIZE, NEXT_BAD + 1,
	  DECOY, .words = -2 },
	{ "half in PROT_NONE", NEXT(STACK), 2 * PAGE_SIZE, NEXT_BAD, .words = -1,
	  .absent = 2 },
	{ "PROT_NONE", NEXT(STACK), 2 * PAGE_SIZE + 64, NEXT_BAD, .absent = 1 },
	{ "unmapped", NEXT(STACK), 3 * PAGE_SIZE + 64, NEXT_BAD, .absent = 1 },
	{ "never written", NEXT(STACK), 4 * PAGE_SIZE + 64, NEXT_BAD },
	{ "half behind the mapping", NEXT(STACK), 5 * PAGE_SIZE, NEXT_BAD,
	  .words = -1, .absent = 2 },

	{ "return to 0", RA(ZERO), 0, RA_BAD },
	{ "return to 10", RA(ZERO), 10, RA_BAD },
	{ "return to the end of the first page", RA(ZERO), PAGE_SIZE - 1, RA_BAD },
	{ "return to the second page", RA(ZERO), PAGE_SIZE, ALL },
	{ "return to the end of 32 bits", RA(ZERO), U32_MAX, ALL },
	{ "return to the last byte of user space", RA(TOP), -1UL, ALL, WIDE },
	{ "return to the end of user space", RA(TOP), 0, RA_BAD, WIDE },
	{ "return to kernel memory", RA(KERNEL), 0, RA_BAD, WIDE },
	{ "return to a non-canonical address", RA(ZERO), BIT(62), RA_BAD, WIDE },
	{ "return to the last byte of all", RA(ZERO), -1UL, RA_BAD, WIDE },

	{ "fp at sp", FP(STACK), FRAME(0), ALL },
	{ "fp below sp", FP(STACK), FRAME(-1), 1, DECOY },
	{ "fp half below sp", FP(STACK), FRAME(0), 1, DECOY, .words = -1 },
	{ "fp misaligned", FP(STACK), FRAME(4) + 1, 1, DECOY },
	{ "fp 0", FP(ZERO), 0, 1 },
	{ "fp in kernel memory", FP(KERNEL), 0, 1, WIDE },
	{ "fp at the end of user space", FP(TOP), 0, 1, WIDE },
	{ "fp non-canonical", FP(ZERO), BIT(62), 1, WIDE },
	{ "fp unmapped", FP(STACK), 3 * PAGE_SIZE, 1, .absent = 1 },
};

KUNIT_ARRAY_PARAM_DESC(bad_chain, bad_chains, name);

static void test_bad_chain(struct kunit *test, const struct bad_chain *bad,
			   unsigned int word)
{
	unsigned long value = bad->offset + bad->words * (long)word;
	unsigned long expected[ALL + 1] = { START_IP };
	struct unwind_stacktrace trace;
	struct unwind_user_regs regs;
	unsigned long *kernel;
	unsigned int i, nr = 0;

	kernel = kunit_kzalloc(test, 2 * sizeof(*kernel), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, kernel);
	kernel[1] = DECOY_RA;

	/* Map all of it anew, as bad_base describes it. */
	unwind_test_stack(test, STACK, 5 * PAGE_SIZE);
	unwind_test_map(test, NULL, STACK + 2 * PAGE_SIZE, PAGE_SIZE, PROT_NONE);
	KUNIT_ASSERT_EQ(test, 0, vm_munmap(STACK + 3 * PAGE_SIZE, PAGE_SIZE));
	unwind_test_stack(test, TASK_SIZE_MAX - PAGE_SIZE, PAGE_SIZE);

	switch (bad->base) {
	case FROM_ZERO:
		break;
	case FROM_STACK:
		value += STACK;
		break;
	case FROM_TOP:
		value += TASK_SIZE_MAX;
		break;
	case FROM_KERNEL:
		value += (unsigned long)kernel;
		break;
	}

	if (bad->flags & DECOY)
		unwind_test_record(test, word, value, STACK + FRAME(5), DECOY_RA);
	for (i = 0; i < FRAMES; i++) {
		unsigned long next = i < FRAMES - 1 ? STACK + FRAME(i + 1) : 0;
		unsigned long ra = TEXT(i);

		/* Do not overwrite the decoy. */
		if (bad->flags & DECOY && i != BAD_FRAME &&
		    value < STACK + FRAME(i) + 2 * word &&
		    value + 2 * word > STACK + FRAME(i))
			continue;
		if (i == BAD_FRAME && bad->what == BAD_NEXT)
			next = value;
		if (i == BAD_FRAME && bad->what == BAD_RA)
			ra = value;
		unwind_test_record(test, word, STACK + FRAME(i), next, ra);
	}

	regs = unwind_test_regs(word, STACK + FRAME(0),
				bad->what == BAD_FP ? value : STACK + FRAME(0));

	for (i = nr = 0; i < FRAMES; i++) {
		expected[++nr] = TEXT(i);
		if (i == BAD_FRAME && bad->what == BAD_RA)
			expected[nr] = (word == 4) ? (u32)value : value;
		if (i == BAD_FRAME && bad->what == BAD_NEXT &&
		    bad->flags & DECOY) {
			expected[++nr] = DECOY_RA;
			i = 4;
		}
	}
	trace = unwind_test_bring(test, &regs, 64);
	unwind_test_expect(test, trace, expected, bad->nr);
	if (bad->base == FROM_STACK)
		KUNIT_EXPECT_EQ(test, bad->absent ? value + (bad->absent - 1) * word : 0,
				trace.absent);
}

static void unwind_user_bad_chain(struct kunit *test)
{
	const struct bad_chain *bad = test->param_value;

	test_bad_chain(test, bad, 8);
	if (!(bad->flags & WIDE))
		test_bad_chain(test, bad, 4);
}

/* If the caller cannot be found, the trace ends: leaving it out would be wrong. */
static void unwind_user_at_entry_bad(struct kunit *test)
{
	unsigned long mem = unwind_test_stack(test, STACK, PAGE_SIZE);
	const unsigned long expected[] = { START_IP, CALLER };
	/* The word on top of the stack, and the stack pointer. */
	const unsigned long bad[][2] = {
		{ 10, mem }, { 0, mem }, { CALLER, mem - 8 },
		{ (unsigned long)&unwind_test_walk, mem },
		{ CALLER, (unsigned long)&expected[1] },
	};
	struct unwind_user_regs regs;
	unsigned int i, word;

	for (word = 4; word <= 8; word += 4) {
		for (i = 0; i < (word == 8 ? 5 : 3); i++) {
			unwind_test_word(test, word, mem, bad[i][0]);
			unwind_test_ladder(test, word, mem + 64, 2);
			regs = unwind_test_regs(word, bad[i][1], mem + 64);
			regs.at_entry = true;
			unwind_test_expect(test, unwind_test_walk(test, &regs, 16),
					   expected, 1);
		}
	}
}

static struct kunit_case unwind_user_bad_cases[] = {
	KUNIT_CASE_PARAM(unwind_user_bad_chain, bad_chain_gen_params),
	KUNIT_CASE(unwind_user_at_entry_bad),
	{}
};

static struct kunit_suite unwind_user_bad_suite = {
	.name		= "unwind_user_bad",
	.test_cases	= unwind_user_bad_cases,
};

kunit_test_suite(unwind_user_bad_suite);

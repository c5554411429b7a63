/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the tests of walks and those of requests share: a user stack that is made word by
 * word, in an mm of the test's own.
 */
#ifndef _KERNEL_UNWIND_KUNIT_H
#define _KERNEL_UNWIND_KUNIT_H

#include <kunit/test.h>
#include <linux/unwind_user_types.h>

/* Where stacks are made; low enough for those of 32-bit code. */
#define STACK		0x20000000UL

#define START_IP	0x400123UL
#define TEXT(i)		(0x401000UL + 16 * (i))
#define CALLER		0x666000UL

#define LADDER_STEP	48

unsigned long unwind_test_map(struct kunit *test, struct file *file, unsigned long addr,
			      unsigned long len, unsigned long prot);

/* Memory of nobody's file. With @addr 0 the kernel looks for a place. */
unsigned long unwind_test_stack(struct kunit *test, unsigned long addr,
				unsigned long len);

void unwind_test_word(struct kunit *test, unsigned int word, unsigned long addr,
		      unsigned long value);
void unwind_test_record(struct kunit *test, unsigned int word, unsigned long fp,
			unsigned long next_fp, unsigned long ra);

/* @nr frames from @fp on, the last of which ends the chain. */
void unwind_test_ladder(struct kunit *test, unsigned int word, unsigned long fp,
			unsigned int nr);

/**
 * struct unwind_served - a stack with a frame a page, which is made when it is brought
 * @word:	the size of its words
 * @nr:		how many pages
 * @fail:	one that cannot be had
 * @faults:	how many have been brought
 * @meanwhile:	runs when the first one is
 * @data:	for that
 */
struct unwind_served {
	unsigned int	word;
	unsigned int	nr;
	unsigned int	fail;
	unsigned int	faults;
	void		(*meanwhile)(void *data);
	void		*data;
};

/* At STACK. */
struct unwind_served *unwind_test_serve(struct kunit *test, unsigned int word,
					unsigned int nr);

/* The registers for a walk that starts at START_IP. */
struct unwind_user_regs unwind_test_regs(unsigned int word, unsigned long sp,
					 unsigned long fp);

/* The current task has come from 64-bit user space with these registers. */
void unwind_test_enter(unsigned long ip, unsigned long sp, unsigned long fp);

/* Nothing may be stored behind the @max entries that there is room for. */
struct unwind_stacktrace unwind_test_walk(struct kunit *test,
					  const struct unwind_user_regs *regs,
					  unsigned int max);

/* The same, and bring the pages that it takes. */
struct unwind_stacktrace unwind_test_bring(struct kunit *test,
					   const struct unwind_user_regs *regs,
					   unsigned int max);

void unwind_test_expect(struct kunit *test, struct unwind_stacktrace trace,
			const unsigned long *entries, unsigned int nr);

#endif /* _KERNEL_UNWIND_KUNIT_H */

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The common part of the tests of walks and of requests: a user stack that a test makes
 * word by word, in its own mm.
 */
#ifndef _KERNEL_UNWIND_KUNIT_H
#define _KERNEL_UNWIND_KUNIT_H

#include <kunit/test.h>
#include <linux/unwind_user_types.h>

/* The address of the stacks, low enough for 32-bit code. */
#define STACK		0x20000000UL

#define START_IP	0x400123UL
#define TEXT(i)		(0x401000UL + 16 * (i))
#define CALLER		0x666000UL

#define LADDER_STEP	48

unsigned long unwind_test_map(struct kunit *test, struct file *file, unsigned long addr,
			      unsigned long len, unsigned long prot);

/* Map anonymous memory. With @addr 0 the kernel chooses the place. */
unsigned long unwind_test_stack(struct kunit *test, unsigned long addr,
				unsigned long len);

void unwind_test_word(struct kunit *test, unsigned int word, unsigned long addr,
		      unsigned long value);
void unwind_test_record(struct kunit *test, unsigned int word, unsigned long fp,
			unsigned long next_fp, unsigned long ra);

/* Make @nr frames from @fp on. The last one ends the chain. */
void unwind_test_ladder(struct kunit *test, unsigned int word, unsigned long fp,
			unsigned int nr);

/**
 * struct unwind_served - a stack with one frame in each page; a page is made by its fault
 * @word:	the size of the stack's words
 * @nr:		the number of pages
 * @fail:	the page whose fault fails
 * @faults:	the number of faults so far
 * @meanwhile:	runs in the first fault
 * @data:	the argument of @meanwhile
 */
struct unwind_served {
	unsigned int	word;
	unsigned int	nr;
	unsigned int	fail;
	unsigned int	faults;
	void		(*meanwhile)(void *data);
	void		*data;
};

/* Map such a stack at STACK. */
struct unwind_served *unwind_test_serve(struct kunit *test, unsigned int word,
					unsigned int nr);

/* The registers for a walk that starts at START_IP. */
struct unwind_user_regs unwind_test_regs(unsigned int word, unsigned long sp,
					 unsigned long fp);

/* Set the user registers, as if the current task had come from 64-bit user space. */
void unwind_test_enter(unsigned long ip, unsigned long sp, unsigned long fp);

/* Walk, and check that nothing is stored behind the @max entries. */
struct unwind_stacktrace unwind_test_walk(struct kunit *test,
					  const struct unwind_user_regs *regs,
					  unsigned int max);

/* The same, and fault in the absent pages. */
struct unwind_stacktrace unwind_test_bring(struct kunit *test,
					   const struct unwind_user_regs *regs,
					   unsigned int max);

void unwind_test_expect(struct kunit *test, struct unwind_stacktrace trace,
			const unsigned long *entries, unsigned int nr);

#endif /* _KERNEL_UNWIND_KUNIT_H */

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Code with a table, for tests of walks and of the registry. The code is a mapping of a file
 * that nobody runs; the stack is made word by word.
 */
#ifndef _KERNEL_UNWIND_TABLE_CODE_KUNIT_H
#define _KERNEL_UNWIND_TABLE_CODE_KUNIT_H

#include <kunit/test.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/kernel.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/shmem_fs.h>
#include <linux/slab.h>
#include <linux/unwind_table.h>
#include <linux/unwind_user.h>

#include "kunit.h"
#include "table.h"
#include "table_kunit.h"

/* Where the file is mapped, from which offset, and memory of no file behind it. */
#define CODE		0x10000000UL
#define CODE_SIZE	0x200000UL
#define CODE_PAGE	1UL
#define AT(offset)	(CODE + (offset) - CODE_PAGE * PAGE_SIZE)
#define PLAIN		(CODE + CODE_SIZE)

#define LIMIT		SZ_16M

/* The functions. The first file offset of each. */
#define SP16		0x2000UL	/* CFA = SP + 16 */
#define SP32_FP		0x2100UL	/* CFA = SP + 32, FP at CFA - 16 */
#define FP16_FP		0x2200UL	/* CFA = FP + 16, FP at CFA - 16 */
#define SP24		0x2300UL	/* CFA = SP + 24: follows FP16_FP at once */
#define OUTERMOST	0x2400UL
#define TRAMPOLINE	0x2500UL
#define OTHER		0x2600UL	/* rows of flexible functions, one a byte */
#define SAME		0x2700UL	/* CFA = SP + 0 */
#define FAR_AWAY	0x100000UL	/* CFA = SP + 16, behind a large gap */

enum other {
	DRAP,		/* CFA = R10, FP at CFA - 16 */
	BY_RBX,		/* CFA = RBX + 32 */
	STORED,		/* CFA = *(SP + 16), return address at the CFA */
	RA_IN_RDI,	/* CFA = SP, return address in RDI */
	FP_IN_R12,	/* CFA = SP + 16, FP = R12 */
	BELOW,		/* CFA = SP + 16, return address at SP - 16 */
	OTHERS
};

struct code {
	struct file		*file;
	struct unwind_table	*table;
	unsigned long		sp;	/* where the next frame is put */
};

static inline void put_table(void *table)
{
	unwind_table_put(table);
}

static inline struct section *code_section(struct kunit *test)
{
	struct section *s = new_section(test);

	add_function(s, SP16, 0x100, 0, 0, 0);
	add_row(s, 0, true, 16);
	add_function(s, SP32_FP, 0x100, 0, 0, 0);
	add_row(s, 0, true, 32, -16);
	add_function(s, FP16_FP, 0x100, 0, 0, 0);
	add_row(s, 0, false, 16, -16);
	add_function(s, SP24, 0x80, 0, 0, 0);
	add_row(s, 0, true, 24);
	add_function(s, OUTERMOST, 0x80, 0, 0, 0);
	add_function(s, TRAMPOLINE, 0x80, SIGNAL, 0, 0);
	add_function(s, OTHER, 0x80, 0, FLEXIBLE, 0);
	add_row(s, DRAP, false, REG(10), 0, CFA_AT, -8, CFA_AT, -16);
	add_row(s, BY_RBX, false, REG(3), 32);
	add_row(s, STORED, false, REG_AT(7), 16, CFA_AT, 0);
	add_row(s, RA_IN_RDI, false, REG(7), 0, REG(5), 0);
	add_row(s, FP_IN_R12, false, REG(7), 16, 0, REG(12), 0);
	add_row(s, BELOW, false, REG(7), 16, CFA_AT, -32);
	add_function(s, SAME, 0x80, 0, 0, 0);
	add_row(s, 0, true, 0);
	add_function(s, FAR_AWAY, 0x80, 0, 0, 0);
	add_row(s, 0, true, 16);
	make_section(s);
	return s;
}

/* Load @s for a file. */
static inline int load(struct kunit *test, struct file *file, const struct section *s,
		       u64 limit, struct unwind_table **table)
{
	struct unwind_key key;
	int err;

	*table = unwind_table_new(s->size);
	KUNIT_ASSERT_NOT_NULL(test, *table);
	memcpy((*table)->section, s->data, s->size);
	unwind_inode_key(&key, file_inode(file));
	err = unwind_table_add(&key, table, limit);
	if (err)
		kvfree(*table);
	else
		KUNIT_ASSERT_EQ(test, 0, kunit_add_action_or_reset(test, put_table, *table));
	return err;
}

static inline void put_file(void *file)
{
	fput(file);
}

static inline struct file *new_file(struct kunit *test)
{
	struct file *file = shmem_file_setup("unwind_kunit", CODE_PAGE * PAGE_SIZE + CODE_SIZE,
					     VM_NORESERVE);

	KUNIT_ASSERT_FALSE(test, IS_ERR(file));
	KUNIT_ASSERT_EQ(test, 0, kunit_add_action_or_reset(test, put_file, file));
	return file;
}

/* Map @file as code. */
static inline void map_code(struct kunit *test, struct file *file)
{
	KUNIT_ASSERT_EQ(test, CODE,
			vm_mmap(file, CODE, CODE_SIZE, PROT_READ | PROT_EXEC,
				MAP_PRIVATE | MAP_FIXED, CODE_PAGE * PAGE_SIZE));
}

/* The code, its table, and a stack. */
static inline struct code *new_code(struct kunit *test)
{
	struct code *code = kunit_kzalloc(test, sizeof(*code), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, code);
	code->sp = unwind_test_stack(test, STACK, 4 * PAGE_SIZE) + 256;
	unwind_test_map(test, NULL, PLAIN, PAGE_SIZE, PROT_READ | PROT_EXEC);
	code->file = new_file(test);
	map_code(test, code->file);
	KUNIT_ASSERT_EQ(test, 0, load(test, code->file, code_section(test), LIMIT,
				      &code->table));
	return code;
}

static inline struct unwind_user_regs regs_at(unsigned long ip, unsigned long sp,
					      unsigned long fp)
{
	struct unwind_user_regs regs = unwind_test_regs(8, sp, fp);

	regs.ip = ip;
	return regs;
}

static inline void put(struct kunit *test, unsigned long addr, unsigned long value)
{
	unwind_test_word(test, 8, addr, value);
}

static inline void expect(struct kunit *test, const struct unwind_user_regs *regs,
			  const unsigned long *entries, unsigned int nr)
{
	unsigned int max;

	/* The second time the rows are in the cache. */
	unwind_test_expect(test, unwind_test_walk(test, regs, 64), entries, nr);
	for (max = 0; max <= nr; max++)
		unwind_test_expect(test, unwind_test_walk(test, regs, max), entries, max);
}

#define EXPECT(regs, ...) do {							\
	const unsigned long __entries[] = { __VA_ARGS__ };			\
										\
	expect(test, regs, __entries, ARRAY_SIZE(__entries));			\
} while (0)

#endif /* _KERNEL_UNWIND_TABLE_CODE_KUNIT_H */

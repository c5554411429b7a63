// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of the registry of tables, of their keys, and of the cache of rows.
 */
#include <kunit/test.h>
#include <linux/cleanup.h>
#include <linux/fs.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "table_code_kunit.h"

/* Who has which table. */
static void table_registry(struct kunit *test)
{
	struct file *file = new_file(test), *other = new_file(test);
	struct section *s = code_section(test), *bad = new_section(test);
	struct unwind_table *first, *second, *table;
	struct unwind_key key;

	unwind_inode_key(&key, file_inode(file));
	scoped_guard(rcu)
		KUNIT_EXPECT_NULL(test, unwind_table_find(&key));
	KUNIT_ASSERT_EQ(test, 0, load(test, file, s, LIMIT, &first));
	KUNIT_ASSERT_EQ(test, 0, load(test, file, s, LIMIT, &second));
	KUNIT_EXPECT_PTR_EQ(test, first, second);
	scoped_guard(rcu)
		KUNIT_EXPECT_PTR_EQ(test, (const struct unwind_table *)first,
				    unwind_table_find(&key));

	/* A bad one, another one (its last function is larger), a longer one. */
	s->data[2]++;
	KUNIT_EXPECT_EQ(test, -EINVAL, load(test, file, s, LIMIT, &table));
	s->data[2]--;
	s->data[HEADER + (s->nr - 1) * FUNCTION + 8]++;
	KUNIT_EXPECT_EQ(test, -EEXIST, load(test, file, s, LIMIT, &table));
	s->data[HEADER + (s->nr - 1) * FUNCTION + 8]--;
	s->size++;
	KUNIT_EXPECT_EQ(test, -EEXIST, load(test, file, s, LIMIT, &table));
	s->size--;
	make_section(bad);
	KUNIT_EXPECT_EQ(test, -EINVAL, load(test, other, bad, LIMIT, &table));

	/* No room; an equal one needs none. */
	KUNIT_EXPECT_EQ(test, -ENOSPC, load(test, other, s, first->charge, &table));
	KUNIT_EXPECT_EQ(test, 0, load(test, file, s, 0, &second));
	KUNIT_EXPECT_PTR_EQ(test, first, second);
	KUNIT_ASSERT_EQ(test, 0, load(test, other, s, LIMIT, &second));
	KUNIT_EXPECT_PTR_NE(test, first, second);
	/* Their numbers are not the same. */
	KUNIT_EXPECT_TRUE(test, first->base + first->sframe.span <= second->base);

	kunit_release_action(test, put_table, second);
	unwind_inode_key(&key, file_inode(other));
	scoped_guard(rcu)
		KUNIT_EXPECT_NULL(test, unwind_table_find(&key));

	/* The last of three owners. */
	unwind_inode_key(&key, file_inode(file));
	kunit_release_action(test, put_table, first);
	kunit_release_action(test, put_table, first);
	scoped_guard(rcu)
		KUNIT_EXPECT_NOT_NULL(test, unwind_table_find(&key));
	kunit_release_action(test, put_table, first);
	scoped_guard(rcu)
		KUNIT_EXPECT_NULL(test, unwind_table_find(&key));
}

/* Keys that differ only in the generation are in one chain, which has an end. */
static void table_chain(struct kunit *test)
{
	const struct section *s = code_section(test);
	struct unwind_table *table = NULL;
	struct unwind_key key = {};
	unsigned int i;
	int err;

	for (i = 0; i <= UNWIND_TABLES_CHAIN; i++) {
		key.generation = i;
		table = unwind_table_new(s->size);
		KUNIT_ASSERT_NOT_NULL(test, table);
		memcpy(table->section, s->data, s->size);
		err = unwind_table_add(&key, &table, LIMIT);
		if (err)
			break;
		KUNIT_ASSERT_EQ(test, 0, kunit_add_action_or_reset(test, put_table, table));
	}
	KUNIT_EXPECT_EQ(test, UNWIND_TABLES_CHAIN, i);
	KUNIT_ASSERT_EQ(test, -ENOSPC, err);
	kvfree(table);

	/* Another one has room. */
	key.inode = 1;
	table = unwind_table_new(s->size);
	KUNIT_ASSERT_NOT_NULL(test, table);
	memcpy(table->section, s->data, s->size);
	err = unwind_table_add(&key, &table, LIMIT);
	KUNIT_EXPECT_EQ(test, 0, err);
	if (err)
		kvfree(table);
	else
		unwind_table_put(table);
}

/* Each part of the key, and a walk that comes later. */
static void table_keys(struct kunit *test)
{
	struct code *code = new_code(test);
	struct inode *inode = file_inode(code->file);
	unsigned long sp = code->sp;
	struct unwind_user_regs regs = regs_at(AT(SP16), sp, sp);

	/* By table to OUTERMOST, by frame pointer to PLAIN. */
	put(test, sp + 8, AT(OUTERMOST));
	unwind_test_record(test, 8, sp, 0, AT(OUTERMOST));
	put(test, sp + 8, AT(OUTERMOST));
	regs.fp = sp + 64;
	unwind_test_record(test, 8, sp + 64, 0, PLAIN);

	EXPECT(&regs, AT(SP16), AT(OUTERMOST));
	inode->i_generation++;
	EXPECT(&regs, AT(SP16), PLAIN);
	inode->i_generation--;
	inode->i_size++;
	EXPECT(&regs, AT(SP16), PLAIN);
	inode->i_size--;
	inode->i_mtime_nsec++;
	EXPECT(&regs, AT(SP16), PLAIN);
	inode->i_mtime_nsec--;
	inode->i_mtime_sec--;
	EXPECT(&regs, AT(SP16), PLAIN);
	inode->i_mtime_sec++;
	EXPECT(&regs, AT(SP16), AT(OUTERMOST));

	kunit_release_action(test, put_table, code->table);
	EXPECT(&regs, AT(SP16), PLAIN);
}

/* What is in the cache of a table that is gone is nobody's. */
static void table_loaded_again(struct kunit *test)
{
	struct code *code = new_code(test);
	unsigned long sp = code->sp;
	struct unwind_user_regs regs = regs_at(AT(SP16), sp, 0);
	struct section *s = new_section(test);
	unsigned int i;

	put(test, sp + 8, AT(OUTERMOST));
	put(test, sp + 24, AT(OUTERMOST + 1));
	EXPECT(&regs, AT(SP16), AT(OUTERMOST));
	kunit_release_action(test, put_table, code->table);

	add_function(s, SP16, 0x100, 0, 0, 0);
	add_row(s, 0, true, 32);
	make_section(s);
	for (i = 0; i < 3; i++) {
		KUNIT_ASSERT_EQ(test, 0, load(test, code->file, s, LIMIT, &code->table));
		EXPECT(&regs, AT(SP16), AT(OUTERMOST + 1));
		kunit_release_action(test, put_table, code->table);
	}
}

/* Entries of the cache whose words are of two rows. */
static void table_torn(struct kunit *test)
{
	struct code *code = new_code(test);
	unsigned long sp = code->sp;
	struct unwind_user_regs regs = regs_at(AT(SP16), sp, 0);

	put(test, sp + 8, AT(OUTERMOST));
	put(test, sp + 16, AT(OUTERMOST + 1));
	EXPECT(&regs, AT(SP16), AT(OUTERMOST));
	unwind_row_cache_tear(unwind_row(true, 24));
	EXPECT(&regs, AT(SP16), AT(OUTERMOST));
}

static struct kunit_case unwind_table_keep_cases[] = {
	KUNIT_CASE(table_registry),
	KUNIT_CASE(table_chain),
	KUNIT_CASE(table_keys),
	KUNIT_CASE(table_loaded_again),
	KUNIT_CASE(table_torn),
	{}
};

static struct kunit_suite unwind_table_keep_suite = {
	.name		= "unwind_table_keep",
	.test_cases	= unwind_table_keep_cases,
};

kunit_test_suite(unwind_table_keep_suite);

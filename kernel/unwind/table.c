// SPDX-License-Identifier: GPL-2.0
/*
 * The registry of unwinding tables: which file has which table.
 *
 * A table belongs to a file by value (struct unwind_key), so it pins nothing, and a file
 * that changes has no table any more. Each owner that has loaded it counts; the last one
 * that lets go takes it out of the hash. Walks find tables under RCU, in any context, so
 * it is freed a grace period later.
 *
 * A table does not change, and its section has been checked before it came into the hash.
 *
 * Each address that a table may have a row for has a number, which is never given out
 * again: unwind_table::base and up. The cache of rows is keyed by these numbers, so it
 * may keep rows of tables that are gone.
 */
#include <linux/bug.h>
#include <linux/cleanup.h>
#include <linux/err.h>
#include <linux/hash.h>
#include <linux/hashtable.h>
#include <linux/jump_label.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/rculist.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/unwind_table.h>
#include <linux/vmalloc.h>

#include <kunit/visibility.h>

#include "table.h"
#include "user.h"

/* Switches on walks by tables while there is one. */
DEFINE_STATIC_KEY_FALSE(unwind_tables_key);

/* Guards changes of the hash, the counts and what follows. */
static DEFINE_MUTEX(unwind_tables_mutex);
static DEFINE_HASHTABLE(unwind_tables, 10);

/* Bytes of all tables. */
static u64 tables_charge;

/* The next number to give out. 0 is none's: an empty entry of the cache has the key 0. */
static u64 tables_number = 1;

static struct hlist_head *key_head(const struct unwind_key *key)
{
	/* The time, because a file that is written anew may get the same inode again. */
	return &unwind_tables[hash_64(key->inode ^ key->device << 32 ^ key->nanoseconds,
				      HASH_BITS(unwind_tables))];
}

/**
 * unwind_table_find - find the table of a file
 * @key:	of the file
 *
 * Context: Any, NMI included, in an RCU read-side section, which the table is valid in.
 * Return: the table, or NULL.
 */
const struct unwind_table *unwind_table_find(const struct unwind_key *key)
{
	const struct unwind_table *table;

	hlist_for_each_entry_rcu(table, key_head(key), node,
				 lockdep_is_held(&unwind_tables_mutex)) {
		if (!memcmp(&table->key, key, sizeof(*key)))
			return table;
	}
	return NULL;
}
EXPORT_SYMBOL_IF_KUNIT(unwind_table_find);

/**
 * unwind_table_new - allocate a table
 * @size:	of its section, which the caller fills in
 *
 * Charged to the cgroup. kvfree() it unless it is given to unwind_table_add().
 *
 * Context: Task context, may sleep.
 * Return: the table, or NULL.
 */
struct unwind_table *unwind_table_new(size_t size)
{
	const size_t steps = UNWIND_SFRAME_STEPS(size) * sizeof(u32);
	const size_t all = struct_size_t(struct unwind_table, section, ALIGN(size, 4)) + steps;
	struct unwind_table *table;

	/* kmalloc() would round a larger one up to the next power of two. */
	if (all <= PAGE_SIZE)
		table = kmalloc(all, GFP_KERNEL_ACCOUNT);
	else
		table = __vmalloc(all, GFP_KERNEL_ACCOUNT);
	if (!table)
		return NULL;
	table->size = size;
	table->charge = all <= PAGE_SIZE ? all : PAGE_ALIGN(all);
	return table;
}
EXPORT_SYMBOL_IF_KUNIT(unwind_table_new);

/* Keys may be chosen so that all tables come into one chain. */
static bool chain_is_full(const struct unwind_key *key)
{
	const struct unwind_table *table;
	unsigned int nr = 0;

	hlist_for_each_entry(table, key_head(key), node)
		nr++;
	return nr >= UNWIND_TABLES_CHAIN;
}

static int table_insert(struct unwind_table *table, const struct unwind_key *key, u64 limit)
{
	lockdep_assert_held(&unwind_tables_mutex);

	if (tables_charge + table->charge > limit ||
	    tables_number + table->sframe.span < tables_number || chain_is_full(key))
		return -ENOSPC;
	if (!unwind_row_cache_init())
		return -ENOMEM;

	tables_charge += table->charge;
	table->base = tables_number;
	tables_number += table->sframe.span;
	table->key = *key;
	table->owners = 1;
	/* Pairs with hlist_for_each_entry_rcu() in unwind_table_find(). */
	hlist_add_head_rcu(&table->node, key_head(key));
	static_branch_inc(&unwind_tables_key);
	return 0;
}

/**
 * unwind_table_add - check a table and keep it
 * @key:	of the file that it is of
 * @table:	from unwind_table_new(), with its section. Replaced by the one that is kept:
 *		an equal one may be there.
 * @limit:	the most bytes that all tables may have
 *
 * Context: Task context, may sleep. Takes unwind_tables_mutex.
 * Return: 0, and the caller owns @table and calls unwind_table_put() some time. Or
 * * -EINVAL - the section is bad
 * * -EEXIST - the file has another table
 * * -ENOSPC - the limit is reached, or all numbers are given out, or there are too many
 *   tables of files with such an inode number
 * * -ENOMEM
 * * -EINTR - the task is killed
 * and the caller frees @table.
 */
int unwind_table_add(const struct unwind_key *key, struct unwind_table **table, u64 limit)
{
	struct unwind_table *new = *table, *old;
	int err;

	err = unwind_sframe_check(&new->sframe, new->section, new->size,
				  (u32 *)(new->section + ALIGN(new->size, 4)));
	if (err)
		return err;

	guard(mutex)(&unwind_tables_mutex);

	/* The mutex is held, so it may be changed. */
	old = (struct unwind_table *)unwind_table_find(key);
	if (!old)
		return table_insert(new, key, limit);
	if (old->size != new->size || memcmp(old->section, new->section, new->size))
		return -EEXIST;
	if (old->owners == UINT_MAX)
		return -ENOSPC;
	old->owners++;
	*table = old;
	kvfree(new);
	return 0;
}
EXPORT_SYMBOL_IF_KUNIT(unwind_table_add);

/**
 * unwind_table_load - give a table to a file
 * @object:	address in the caller's memory where the file, or the vDSO, is mapped
 * @section:	an SFrame section in the caller's memory, see unwind_sframe_check()
 * @size:	its size in bytes
 * @limit:	the most bytes that all tables may have
 *
 * The first table of a file counts. Who loads an equal one shares it.
 *
 * Context: Task context, may sleep. Takes mmap_lock for reading and, after that,
 * unwind_tables_mutex.
 * Return: the table, to be given back by unwind_table_put(); or an error as
 * unwind_table_add(), or
 * * -EINVAL - nothing of that kind is mapped at @object
 * * -ENOSPC - the section is larger than 64 MiB
 * * -EFAULT - @section cannot be read
 */
struct unwind_table *unwind_table_load(unsigned long object, const void __user *section,
				       u64 size, u64 limit)
{
	struct unwind_table *table;
	struct unwind_key key;
	int err;

	err = unwind_address_key(&key, object);
	if (err)
		return ERR_PTR(err);
	if (size > UNWIND_SFRAME_MAX_SIZE)
		return ERR_PTR(-ENOSPC);

	table = unwind_table_new(size);
	if (!table)
		return ERR_PTR(-ENOMEM);
	err = -EFAULT;
	if (!copy_from_user(table->section, section, size))
		err = unwind_table_add(&key, &table, limit);
	if (err) {
		kvfree(table);
		return ERR_PTR(err);
	}
	return table;
}

/**
 * unwind_table_put - an owner lets go of a table
 * @table:	from unwind_table_load()
 *
 * Context: Task context, may sleep. Takes unwind_tables_mutex.
 */
void unwind_table_put(struct unwind_table *table)
{
	guard(mutex)(&unwind_tables_mutex);

	if (--table->owners)
		return;
	hash_del_rcu(&table->node);
	tables_charge -= table->charge;
	static_branch_dec(&unwind_tables_key);
	kvfree_rcu(table, rcu);
}
EXPORT_SYMBOL_IF_KUNIT(unwind_table_put);

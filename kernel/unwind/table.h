/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _KERNEL_UNWIND_TABLE_H
#define _KERNEL_UNWIND_TABLE_H

#include <linux/list.h>
#include <linux/rcupdate.h>
#include <linux/sizes.h>
#include <linux/types.h>
#include <linux/unwind_table.h>

#include "sframe.h"

struct inode;
struct mm_struct;

/**
 * struct unwind_key - what a table belongs to, by value
 * @device:	of the file; U64_MAX for the vDSO
 * @inode:	its number; the address of the image for the vDSO
 * @generation:	of the inode
 * @size:	of the file, in bytes
 * @seconds:	time of the last change
 * @nanoseconds: the rest of it
 *
 * All members are of the same size, so keys are compared as memory.
 */
struct unwind_key {
	u64	device;
	u64	inode;
	u64	generation;
	u64	size;
	u64	seconds;
	u64	nanoseconds;
};

/**
 * struct unwind_table - the unwinding table of a file; see table.c
 * @node:	in the hash
 * @key:	of the file
 * @owners:	who has loaded it
 * @charge:	bytes that count for the limit
 * @base:	the number of the first function's first address, for the cache of rows
 * @sframe:	@section, checked
 * @rcu:	to free it
 * @size:	of @section
 * @section:	as it came; behind it are unwind_sframe::steps
 */
struct unwind_table {
	struct hlist_node	node;
	struct unwind_key	key;
	unsigned int		owners;
	u64			charge;
	u64			base;
	struct unwind_sframe	sframe;
	struct rcu_head		rcu;
	size_t			size;
	u8			section[] __aligned(4);
};

/* The most tables in one chain of the hash: a walk may look at all of them, in an NMI. */
#define UNWIND_TABLES_CHAIN	64

/* A larger gap between functions is code that follows frame pointers. */
#define UNWIND_GAP_MAX		SZ_64K

/* A frame record of frame pointers, as a row. */
#define UNWIND_ROW_RECORD	unwind_row_fp(false, 16, -16)

/**
 * struct unwind_range - memory whose frames are had in one way
 * @start:	first address
 * @size:	in bytes, not 0
 * @table:	has the rows, all of @start to @start + @size lies between its first and
 *		its last function; or NULL. Valid in the read-side section that it was
 *		found in.
 * @offset:	of @start in the file of @table
 * @number:	of @start, for the cache of rows; 0 without a table
 * @row:	without a table the row of each address: UNWIND_ROW_RECORD, or
 *		UNWIND_ROW_END in a gap
 */
struct unwind_range {
	unsigned long			start;
	unsigned long			size;
	const struct unwind_table	*table;
	u64				offset;
	u64				number;
	u64				row;
};

const struct unwind_table *unwind_table_find(const struct unwind_key *key);
int unwind_table_add(const struct unwind_key *key, struct unwind_table **table, u64 limit);
struct unwind_table *unwind_table_new(size_t size);
void unwind_inode_key(struct unwind_key *key, const struct inode *inode);
int unwind_address_key(struct unwind_key *key, unsigned long addr);
bool unwind_range_find(struct mm_struct *mm, unsigned long addr,
		       struct unwind_range *range);

#if IS_ENABLED(CONFIG_UNWIND_KUNIT_TEST)
void unwind_row_cache_tear(u64 row);
#endif

#endif /* _KERNEL_UNWIND_TABLE_H */

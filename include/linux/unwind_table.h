/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _LINUX_UNWIND_TABLE_H
#define _LINUX_UNWIND_TABLE_H

#include <linux/types.h>

struct unwind_table;

struct unwind_table *unwind_table_load(unsigned long object, const void __user *section,
				       u64 size, u64 limit);
void unwind_table_put(struct unwind_table *table);

#endif /* _LINUX_UNWIND_TABLE_H */

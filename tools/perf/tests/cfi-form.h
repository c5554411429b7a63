/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TESTS_CFI_FORM_H
#define TESTS_CFI_FORM_H

#include <linux/unaligned.h>

#include "cfi-table.h"
#include "debug.h"
#include "sframe.h"
#include "tests.h"

/* Is the section as the kernel takes it? @table is what was read of it. */
static inline int cfi_table__check_form(const struct cfi_table *cfi,
					const struct sframe_table *table)
{
	const u8 *section = cfi->section;
	u32 i;

	TEST_ASSERT_EQUAL("flags", section[3], SFRAME_F_SORTED);
	TEST_ASSERT_EQUAL("number of functions", (int)get_unaligned_le32(section + 8),
			  (int)table->nr_functions);
	for (i = 0; i < table->nr_functions; i++) {
		const struct sframe_function *f = &table->functions[i];
		u64 start = get_unaligned_le64(section + SFRAME_HEADER_SIZE +
					       i * SFRAME_FUNCTION_SIZE);

		TEST_ASSERT_VAL("sorted", f->start == start);
		TEST_ASSERT_VAL("number of rows", f->nr_rows >= 1 && f->nr_rows <= 64);
		TEST_ASSERT_VAL("overlap", !i || f[-1].start + f[-1].size <= f->start);
	}
	return TEST_OK;
}

#endif /* TESTS_CFI_FORM_H */

// SPDX-License-Identifier: GPL-2.0
/*
 * Fuzzer of what makes unwinding tables of ELF files, for libFuzzer with AddressSanitizer and
 * UndefinedBehaviorSanitizer.
 *
 * The input is a file. What is made of it has to hold: it is sorted, nothing overlaps, no
 * function has more rows than the kernel takes, and it reads back. The input is taken for an
 * SFrame section, too.
 */
#include <stdint.h>
#include <stdlib.h>

#include "cfi-table.h"
#include "sframe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct sframe_table *table)
{
	uint32_t i;

	for (i = 0; i < table->nr_functions; i++) {
		const struct sframe_function *f = &table->functions[i];

		if (!f->size || !f->nr_rows || f->nr_rows > SFRAME_FUNCTION_ROWS_MAX)
			abort();
		if (i && f[-1].start + f[-1].size > f->start)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sframe_table table = {};
	struct cfi_table cfi = {};

	if (!cfi_table__make_memory(&cfi, data, size)) {
		if (sframe_table__decode(&table, cfi.section, cfi.size, 0))
			abort();
		check(&table);
	}
	sframe_table__exit(&table);
	cfi_table__exit(&cfi);

	if (!sframe_table__decode(&table, data, size, 0x400000) &&
	    !sframe_table__encode(&table, &cfi.section, &cfi.size)) {
		sframe_table__exit(&table);
		if (sframe_table__decode(&table, cfi.section, cfi.size, 0))
			abort();
		check(&table);
	}
	sframe_table__exit(&table);
	cfi_table__exit(&cfi);
	return 0;
}

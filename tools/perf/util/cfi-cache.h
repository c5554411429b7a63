/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_CFI_CACHE_H
#define __PERF_CFI_CACHE_H

#include <stdbool.h>
#include "cfi-table.h"

/* Where the table of a file is kept, and what it must have been made of. */
struct cfi_cache_key {
	char	*path;		/* NULL: it is not kept, the file has no build-id */
	u64	check;
};

int cfi_cache__key(struct cfi_cache_key *key, Elf *elf);
bool cfi_cache__load(struct cfi_table *cfi, const struct cfi_cache_key *key);
int cfi_cache__store(const struct cfi_table *cfi, const struct cfi_cache_key *key);
void cfi_cache__exit(struct cfi_cache_key *key);

#endif /* __PERF_CFI_CACHE_H */

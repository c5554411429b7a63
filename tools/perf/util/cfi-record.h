/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_CFI_RECORD_H
#define __PERF_CFI_RECORD_H

#include <stddef.h>
#include "debug.h"
#include "defer-record.h"

struct cfi_record;
struct evlist;
struct target;

#ifdef HAVE_DWARF_SUPPORT
struct cfi_record *cfi_record__start(struct evlist *evlist, const struct target *target,
				     const char *program, const volatile int *done);
void cfi_record__stop(struct cfi_record *record);
#else
static inline struct cfi_record *cfi_record__start(struct evlist *evlist,
						   const struct target *target __always_unused,
						   const char *program __always_unused,
						   const volatile int *done __always_unused)
{
	evlist__no_cfi(evlist, "perf was built without libdw");
	return NULL;
}

static inline void cfi_record__stop(struct cfi_record *record __always_unused)
{
}
#endif

#endif /* __PERF_CFI_RECORD_H */

/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_CFI_NEEDED_H
#define __PERF_CFI_NEEDED_H

typedef void (*cfi_needed_fn)(const char *path, void *arg);

void cfi_needed__for_each(const char *program, cfi_needed_fn fn, void *arg);

#endif /* __PERF_CFI_NEEDED_H */

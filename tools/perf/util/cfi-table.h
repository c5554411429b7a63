/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_CFI_TABLE_H
#define __PERF_CFI_TABLE_H

#include <errno.h>
#include <stddef.h>
#include <linux/types.h>

/* The unwinding table of a file: an SFrame section, and how it came about. */
struct cfi_table {
	void	*section;
	size_t	size;
	u32	nr_functions;
	u32	nr_rows;
	u32	nr_unsaid;	/* rows that end a walk, as SFrame cannot say what they are for */
};

#ifdef HAVE_DWARF_SUPPORT
#include <gelf.h>

struct sframe_table;

struct cfi_section {
	u64		 addr;
	u64		 offset;	/* in the file */
	u64		 size;
};

int cfi_table__read(struct sframe_table *table, Elf *elf, u32 *nr_unsaid);
int cfi_table__make(struct cfi_table *cfi, Elf *elf);
int cfi_table__make_fd(struct cfi_table *cfi, int fd);
size_t cfi_image__size(const void *image);
int cfi_table__make_memory(struct cfi_table *cfi, const void *image, size_t size);

bool cfi_elf__find_section(Elf *elf, const char *name, struct cfi_section *section);
bool cfi_elf__find_eh_frame(Elf *elf, struct cfi_section *section);
#endif

void cfi_table__exit(struct cfi_table *cfi);

#endif /* __PERF_CFI_TABLE_H */

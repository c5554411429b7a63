// SPDX-License-Identifier: GPL-2.0
/*
 * Times how long perf takes to make the unwinding table of a file, and to load it from its
 * cache.
 *
 *   table FILE DIRECTORY
 *
 * It is built of perf's own files. DIRECTORY takes the cache. Prints: the rows, the bytes of
 * the section, the nanoseconds to make it and to load it. Both are the best of 7, with the
 * file open and in memory.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <gelf.h>
#include <linux/types.h>

#include "build-id.h"
#include "cfi-cache.h"
#include "util.h"

#define TIMES	7

/* What perf has for its cache. */
char buildid_dir[4096];

void build_id__init(struct build_id *bid, const u8 *data, size_t size)
{
	memcpy(bid->data, data, size);
	bid->size = size;
}

int build_id__sprintf(const struct build_id *bid, char *bf)
{
	for (size_t i = 0; i < bid->size; i++)
		sprintf(bf + 2 * i, "%02x", bid->data[i]);
	return 2 * bid->size;
}

int mkdir_p(char *path, mode_t mode)
{
	char command[sizeof(buildid_dir) + 16];

	snprintf(command, sizeof(command), "mkdir -p '%s'", path);
	return system(command);
}

static unsigned long now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000UL + ts.tv_nsec;
}

static unsigned long make(int fd, struct cfi_table *cfi, bool cached)
{
	unsigned long start = now();
	struct cfi_cache_key key;
	Elf *elf = elf_begin(fd, ELF_C_READ, NULL);

	if (!elf || cfi_cache__key(&key, elf) ||
	    (cached ? !cfi_cache__load(cfi, &key) : cfi_table__make(cfi, elf)) ||
	    (!cached && cfi_cache__store(cfi, &key)))
		exit(1);
	cfi_cache__exit(&key);
	elf_end(elf);
	return now() - start;
}

int main(int argc, char **argv)
{
	unsigned long best[2] = { -1UL, -1UL }, took;
	struct cfi_table cfi;
	int fd;

	if (argc != 3)
		return 2;
	snprintf(buildid_dir, sizeof(buildid_dir), "%s", argv[2]);
	elf_version(EV_CURRENT);
	fd = open(argv[1], O_RDONLY);

	for (int i = 0; i < 2 * TIMES; i++) {
		took = make(fd, &cfi, i >= TIMES);
		if (took < best[i / TIMES])
			best[i / TIMES] = took;
		if (i < 2 * TIMES - 1)
			cfi_table__exit(&cfi);
	}
	printf("%u %zu %lu %lu\n", cfi.nr_rows, cfi.size, best[0], best[1]);
	return 0;
}

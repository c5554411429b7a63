// SPDX-License-Identifier: GPL-2.0
/*
 * Unwinding tables that were made once are kept in the build-id cache, beside what it has of
 * the file: ~/.debug/.build-id/ab/cdef...  has its table in  ~/.debug/.build-id/ab/cdef....cfi
 *
 * A build-id says what a linker made. Tools that change a file later leave it as it is, so a
 * table counts only if the executable segments lie where they did, and if the sections that it
 * was made of are the same.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <elfutils/libdwelf.h>

#include <linux/kernel.h>
#include <linux/zalloc.h>

#include "build-id.h"
#include "cfi-cache.h"
#include "util.h"

/* The last character changes with what is made of the same file. */
#define CACHE_MAGIC	"perfcfi1"
#define CACHE_SIZE_MAX	(64U << 20)

struct cache_header {
	char	magic[8];
	u64	check;		/* of the file and of the section that follows */
	u64	size;
	u32	nr_functions;
	u32	nr_rows;
	u32	nr_unsaid;
	u32	reserved;
};

static u64 hash_word(u64 hash, u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
	return hash ^ (hash >> 32);
}

static u64 hash_bytes(u64 hash, const void *data, size_t size)
{
	u64 word;

	hash = hash_word(hash, size);
	for (; size >= sizeof(word); size -= sizeof(word), data += sizeof(word)) {
		memcpy(&word, data, sizeof(word));
		hash = hash_word(hash, word);
	}
	word = 0;
	memcpy(&word, data, size);
	return hash_word(hash, word);
}

static u64 hash_section(u64 hash, Elf *elf, const struct cfi_section *section)
{
	Elf_Data *data = elf_getdata_rawchunk(elf, section->offset, section->size, ELF_T_BYTE);

	hash = hash_word(hash, section->addr);
	if (!data || !data->d_buf)
		return hash;
	return hash_bytes(hash, data->d_buf, data->d_size);
}

static int hash_file(Elf *elf, u64 *hash)
{
	struct cfi_section section;
	GElf_Phdr phdr;
	size_t nr, i;

	if (elf_getphdrnum(elf, &nr))
		return -EINVAL;

	*hash = 0;
	for (i = 0; i < nr; i++) {
		if (!gelf_getphdr(elf, i, &phdr) || phdr.p_type != PT_LOAD ||
		    !(phdr.p_flags & PF_X))
			continue;
		*hash = hash_word(*hash, phdr.p_vaddr);
		*hash = hash_word(*hash, phdr.p_offset);
		*hash = hash_word(*hash, phdr.p_filesz);
	}
	if (cfi_elf__find_section(elf, ".sframe", &section))
		*hash = hash_section(*hash, elf, &section);
	if (cfi_elf__find_eh_frame(elf, &section))
		*hash = hash_section(*hash, elf, &section);
	return 0;
}

/**
 * cfi_cache__key - find out where the table of a file is kept
 * @key: set to that, to be given to cfi_cache__exit()
 * @elf: the file
 *
 * Return: 0, also when it is not kept; -EINVAL when the file is damaged, -ENOMEM.
 */
int cfi_cache__key(struct cfi_cache_key *key, Elf *elf)
{
	char sbuild_id[SBUILD_ID_SIZE];
	struct build_id bid;
	const void *bits;
	ssize_t size;

	*key = (struct cfi_cache_key) {};

	size = dwelf_elf_gnu_build_id(elf, &bits);
	if (size < 2 || size > BUILD_ID_SIZE)
		return 0;

	build_id__init(&bid, bits, size);
	build_id__sprintf(&bid, sbuild_id);
	if (asprintf(&key->path, "%s/.build-id/%.2s/%s.cfi", buildid_dir, sbuild_id,
		     sbuild_id + 2) < 0) {
		key->path = NULL;
		return -ENOMEM;
	}
	return hash_file(elf, &key->check);
}

/**
 * cfi_cache__exit - free a key
 * @key: from cfi_cache__key()
 */
void cfi_cache__exit(struct cfi_cache_key *key)
{
	zfree(&key->path);
}

static bool load(struct cfi_table *cfi, int fd, u64 check)
{
	struct cache_header header;
	struct stat st;

	/* Somebody else's is no table of ours */
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_uid != geteuid())
		return false;
	if (read(fd, &header, sizeof(header)) != sizeof(header) ||
	    memcmp(header.magic, CACHE_MAGIC, sizeof(header.magic)) ||
	    !header.size || header.size > CACHE_SIZE_MAX ||
	    (u64)st.st_size != sizeof(header) + header.size)
		return false;

	cfi->section = malloc(header.size);
	if (!cfi->section)
		return false;
	/* The kernel would take a damaged one whose rows are still in order */
	if (read(fd, cfi->section, header.size) != (ssize_t)header.size ||
	    header.check != hash_bytes(check, cfi->section, header.size)) {
		zfree(&cfi->section);
		return false;
	}

	cfi->size = header.size;
	cfi->nr_functions = header.nr_functions;
	cfi->nr_rows = header.nr_rows;
	cfi->nr_unsaid = header.nr_unsaid;
	return true;
}

/**
 * cfi_cache__load - load the table of a file
 * @cfi: gets it
 * @key: of the file
 *
 * Return: whether there is one that was made of such a file.
 */
bool cfi_cache__load(struct cfi_table *cfi, const struct cfi_cache_key *key)
{
	bool loaded;
	int fd;

	memset(cfi, 0, sizeof(*cfi));
	if (!key->path)
		return false;

	fd = open(key->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return false;
	loaded = load(cfi, fd, key->check);
	close(fd);
	return loaded;
}

static bool write_all(int fd, const void *data, size_t size)
{
	while (size) {
		ssize_t n = write(fd, data, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		data += n;
		size -= n;
	}
	return true;
}

static int store(const struct cfi_table *cfi, const struct cfi_cache_key *key, char *temp)
{
	struct cache_header header = {
		.magic = CACHE_MAGIC,
		.check = hash_bytes(key->check, cfi->section, cfi->size),
		.size = cfi->size,
		.nr_functions = cfi->nr_functions,
		.nr_rows = cfi->nr_rows,
		.nr_unsaid = cfi->nr_unsaid,
	};
	int err = 0, fd = mkstemp(temp);

	if (fd < 0)
		return -errno;

	if (!write_all(fd, &header, sizeof(header)) ||
	    !write_all(fd, cfi->section, cfi->size))
		err = -(errno ?: EIO);
	if (close(fd) && !err)
		err = -errno;
	if (!err && rename(temp, key->path))
		err = -errno;
	if (err)
		unlink(temp);
	return err;
}

/**
 * cfi_cache__store - keep the table of a file
 * @cfi: the table
 * @key: of the file
 *
 * Others see the table that was there before, or all of this one.
 *
 * Return: 0, also when the file has no build-id; or what the file system says.
 */
int cfi_cache__store(const struct cfi_table *cfi, const struct cfi_cache_key *key)
{
	char *temp, *slash;
	int err;

	errno = 0;
	if (!key->path)
		return 0;
	if (asprintf(&temp, "%s.XXXXXX", key->path) < 0)
		return -ENOMEM;

	slash = strrchr(temp, '/');
	*slash = '\0';
	err = mkdir_p(temp, 0755) ? -(errno ?: EINVAL) : 0;
	*slash = '/';
	if (!err)
		err = store(cfi, key, temp);
	free(temp);
	return err;
}

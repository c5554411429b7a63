// SPDX-License-Identifier: GPL-2.0
/*
 * Give the kernel the unwinding table of a file: load it from the cache or make it, and hand
 * it over with the ioctl PERF_EVENT_IOC_SET_CFI.
 *
 * The kernel knows a file by where it is mapped here. The table is made of the same open
 * file, so it cannot be given to another one. This code only checks that nobody wrote to the
 * file meanwhile.
 */
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <linux/compiler.h>
#include <linux/kernel.h>
#include <linux/perf_event.h>
#include <linux/time64.h>

#include "cfi-cache.h"
#include "cfi-install.h"
#include "cfi-table.h"
#include "cloexec.h"
#include "debug.h"
#include "perf-sys.h"

static u64 now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

/**
 * cfi_install__making_ns - how long have tables been made?
 * @install: another thread may be making some
 *
 * Return: the time in nanoseconds, that of the present one included.
 */
u64 cfi_install__making_ns(const struct cfi_install *install)
{
	u64 begun = READ_ONCE(install->begun_ns), made = READ_ONCE(install->made_ns);

	return begun ? made + now_ns() - begun : made;
}

static int set_cfi(const struct cfi_install *install, const struct cfi_table *cfi,
		   const void *object)
{
	struct perf_event_cfi arg = {
		.size = sizeof(arg),
		.object = (uintptr_t)object,
		.section = (uintptr_t)cfi->section,
		.section_size = cfi->size,
	};

	return ioctl(install->event, PERF_EVENT_IOC_SET_CFI, &arg) ? -errno : 0;
}

/**
 * cfi_install__open - open the event that holds the tables
 * @install: is set up
 *
 * Return: 0, or what perf_event_open(2) says.
 */
int cfi_install__open(struct cfi_install *install)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_DUMMY,
		.size = sizeof(attr),
		.disabled = 1,
		.exclude_kernel = 1,
		.exclude_hv = 1,
	};

	*install = (struct cfi_install) {};
	install->event = sys_perf_event_open(&attr, 0, -1, -1, perf_event_open_cloexec_flag());
	return install->event < 0 ? -errno : 0;
}

/**
 * cfi_install__close - have the kernel drop the tables that nobody else holds
 * @install: from cfi_install__open()
 */
void cfi_install__close(struct cfi_install *install)
{
	if (install->event >= 0)
		close(install->event);
	install->event = -1;
}

static bool is_elf64(int fd)
{
	Elf64_Ehdr ehdr;

	return pread(fd, &ehdr, sizeof(ehdr), 0) == sizeof(ehdr) &&
	       !memcmp(ehdr.e_ident, ELFMAG, SELFMAG) && ehdr.e_ident[EI_CLASS] == ELFCLASS64 &&
	       ehdr.e_machine == EM_X86_64;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
	       a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
	       a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/*
 * The kernel notes the size and the time of the file as they are now, which includes a write
 * between the last look and the ioctl: this table is then used for a file that it was not
 * made of, until that is written to again or the profile ends. A later look would see the
 * write, but nothing takes back one table of an event. And it would not see all: data comes
 * behind its time, which steps by ticks. The walk checks all that it reads, so it gets
 * a wrong caller at worst.
 *
 * Return: what is the matter with the table or the file, or 0; else see cfi_install__file()
 */
static int hand_over(struct cfi_install *install, const struct cfi_table *cfi, int fd,
		     const struct stat *before)
{
	struct stat after;
	size_t page = sysconf(_SC_PAGESIZE);
	void *object;
	int err;

	object = mmap(NULL, page, PROT_READ, MAP_PRIVATE, fd, 0);
	if (object == MAP_FAILED)
		return -errno;

	if (fstat(fd, &after) || !same_file(before, &after))
		err = -ESTALE;
	else
		err = set_cfi(install, cfi, object);
	munmap(object, page);
	return err;
}

static int make(struct cfi_install *install, struct cfi_table *cfi, Elf *elf)
{
	u64 begun = now_ns();
	int err;

	WRITE_ONCE(install->begun_ns, begun);
	err = cfi_table__make(cfi, elf);
	WRITE_ONCE(install->begun_ns, 0);
	WRITE_ONCE(install->made_ns, install->made_ns + now_ns() - begun);
	return err;
}

static void keep(const struct cfi_table *cfi, const struct cfi_cache_key *key, const char *name)
{
	int err = cfi_cache__store(cfi, key);

	if (err)
		pr_debug("cfi: %s: table not kept in %s: %s\n", name, key->path, strerror(-err));
}

static int install_elf(struct cfi_install *install, Elf *elf, int fd, const char *name)
{
	struct cfi_table cfi = {};
	struct cfi_cache_key key;
	bool loaded;
	struct stat before;
	int err;

	if (fstat(fd, &before))
		return -errno;

	err = cfi_cache__key(&key, elf);
	loaded = !err && cfi_cache__load(&cfi, &key);
	if (loaded) {
		err = hand_over(install, &cfi, fd, &before);
		/* Damaged on the disk: made anew */
		if (err == -EINVAL) {
			cfi_table__exit(&cfi);
			loaded = false;
			err = 0;
		}
	}
	if (!loaded && !err) {
		err = make(install, &cfi, elf);
		if (!err) {
			err = hand_over(install, &cfi, fd, &before);
			/* Of a file that changed meanwhile it may be neither's, the key as well */
			if (err != -ESTALE)
				keep(&cfi, &key, name);
		}
	}
	cfi_cache__exit(&key);

	if (!err || err == -EEXIST) {
		*(err ? &install->nr_known : loaded ? &install->nr_loaded : &install->nr_made) += 1;
		install->nr_unsaid += cfi.nr_unsaid;
		install->size += cfi.size;
		pr_debug("cfi: %s: %s, %u functions, %u rows, %zu bytes, %u rows that no table can say\n",
			 name, err ? "the kernel has a table" : loaded ? "loaded" : "made",
			 cfi.nr_functions, cfi.nr_rows, cfi.size, cfi.nr_unsaid);
		err = 0;
	}
	cfi_table__exit(&cfi);
	return err;
}

static const char *why_not(int err)
{
	switch (err) {
	case -ENODATA:
		return "it says nothing about its frames";
	case -EINVAL:
		return "it is damaged, or the kernel refuses its table";
	case -E2BIG:
		return "its table is too large";
	case -ESTALE:
		return "it was written to";
	default:
		return strerror(-err);
	}
}

/**
 * cfi_install__file - give the kernel the table of a file
 * @install: from cfi_install__open()
 * @fd: the file, open for reading
 * @name: of the file, for messages
 *
 * Return: 0, also when there is none, -ENOSPC when the kernel takes no more.
 */
int cfi_install__file(struct cfi_install *install, int fd, const char *name)
{
	Elf *elf;
	int err;

	if (!is_elf64(fd)) {
		pr_debug("cfi: %s: no table: not a 64-bit ELF file\n", name);
		return 0;
	}

	elf_version(EV_CURRENT);
	elf = elf_begin(fd, ELF_C_READ, NULL);
	err = elf ? install_elf(install, elf, fd, name) : -EINVAL;
	elf_end(elf);
	if (!err)
		return 0;

	install->nr_failed++;
	pr_debug("cfi: %s: no table: %s\n", name, why_not(err));
	return err == -ENOSPC ? err : 0;
}

/**
 * cfi_install__vdso - give the kernel the table of the vDSO
 * @install: from cfi_install__open()
 *
 * Return: 0, also when there is none, -ENOSPC when the kernel takes no more.
 */
int cfi_install__vdso(struct cfi_install *install)
{
	unsigned long addr = getauxval(AT_SYSINFO_EHDR);
	const void *vdso = (const void *)addr;
	struct cfi_table cfi;
	int err;

	if (!addr || ((const Elf64_Ehdr *)vdso)->e_ident[EI_CLASS] != ELFCLASS64)
		return 0;

	err = cfi_table__make_memory(&cfi, vdso, cfi_image__size(vdso));
	if (!err)
		err = set_cfi(install, &cfi, vdso);
	if (err && err != -EEXIST) {
		install->nr_failed++;
		pr_debug("cfi: [vdso]: no table: %s\n", why_not(err));
	} else {
		pr_debug("cfi: [vdso]: %u functions, %u rows, %zu bytes\n", cfi.nr_functions,
			 cfi.nr_rows, cfi.size);
	}
	cfi_table__exit(&cfi);
	return err == -ENOSPC ? err : 0;
}

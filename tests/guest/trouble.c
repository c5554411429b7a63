// SPDX-License-Identifier: GPL-2.0
/*
 * A library to preload into perf: trouble with unwinding tables. Each kind is asked for by
 * a variable of the environment:
 *
 *   CFI_ERRNO=N    PERF_EVENT_IOC_SET_CFI with a file or the vDSO fails with this number
 *   WRITE_TO=PATH  this file is written to when the first file has been looked at
 *   SLOW=1         it takes more than half a second to read .eh_frame
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/types.h>
#include <unistd.h>

#define SET_CFI	_IOW('$', 0x40, void *)

/* What this machine's headers do not have. */
struct set_cfi {
	uint32_t size, flags;
	uint64_t object, section, section_size;
};

int ioctl(int fd, unsigned long request, ...)
{
	static int (*next)(int fd, unsigned long request, ...);
	const char *number = getenv("CFI_ERRNO");
	va_list ap;
	void *arg;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	/* perf tries at first whether there is such an ioctl, with no object */
	if (number && request == SET_CFI && ((struct set_cfi *)arg)->object) {
		errno = atoi(number);
		return -1;
	}
	if (!next)
		next = (int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT, "ioctl");
	return next(fd, request, arg);
}

ssize_t dwelf_elf_gnu_build_id(void *elf, const void **bits)
{
	static ssize_t (*next)(void *elf, const void **bits);
	const char *path = getenv("WRITE_TO");

	if (path && !next) {
		int fd = open(path, O_WRONLY | O_APPEND);

		if (write(fd, "", 1) != 1)
			abort();
		close(fd);
	}
	if (!next)
		next = (ssize_t (*)(void *, const void **))dlsym(RTLD_NEXT, __func__);
	return next(elf, bits);
}

void *dwarf_getcfi_elf(void *elf)
{
	void *(*next)(void *elf) = (void *(*)(void *))dlsym(RTLD_NEXT, __func__);

	if (getenv("SLOW"))
		usleep(600000);
	return next(elf);
}

// SPDX-License-Identifier: GPL-2.0
/*
 * A library to preload: perf_event_open(2) as a kernel without the series has it. Such
 * a kernel refuses all attribute bits that it does not know (perf_copy_attr()). The
 * last bit that 6.12 knows is sigtrap, bit 37 of the word. It has neither the sysctl
 * kernel.perf_event_defer nor the ioctl for unwinding tables.
 *
 * With KEEP_BITS in the environment it takes the attribute bits all the same, as later
 * kernels do that have nothing else of the series.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#define KNOWN	((1ULL << 38) - 1)

static int open_but(const char *name, const char *path, int flags, mode_t mode)
{
	int (*next)(const char *path, int flags, ...);

	if (!strcmp(path, "/proc/sys/kernel/perf_event_defer")) {
		errno = ENOENT;
		return -1;
	}
	next = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, name);
	return next(path, flags, mode);
}

int open(const char *path, int flags, ...)
{
	mode_t mode;
	va_list ap;

	va_start(ap, flags);
	mode = va_arg(ap, int);
	va_end(ap);
	return open_but("open", path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
	mode_t mode;
	va_list ap;

	va_start(ap, flags);
	mode = va_arg(ap, int);
	va_end(ap);
	return open_but("open64", path, flags, mode);
}

/* PERF_EVENT_IOC_SET_CFI, which this machine's headers do not have. */
#define SET_CFI	_IOW('$', 0x40, void *)

int ioctl(int fd, unsigned long request, ...)
{
	static int (*next)(int fd, unsigned long request, ...);
	va_list ap;
	void *arg;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (request == SET_CFI) {
		errno = ENOTTY;
		return -1;
	}
	if (!next)
		next = (int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT, "ioctl");
	return next(fd, request, arg);
}

/* perf calls it by syscall(): the C library has no function for this system call. */
long syscall(long nr, ...)
{
	static long (*next)(long nr, ...);
	long arg[6];
	va_list ap;
	int i;

	va_start(ap, nr);
	for (i = 0; i < 6; i++)
		arg[i] = va_arg(ap, long);
	va_end(ap);

	if (nr == SYS_perf_event_open) {
		uint64_t word;

		/* the fields in front of the word of bits have never changed their size */
		memcpy(&word, (char *)arg[0] + offsetof(struct perf_event_attr, read_format) +
		       sizeof(uint64_t), sizeof(word));
		if ((word & ~KNOWN) && !getenv("KEEP_BITS")) {
			errno = EINVAL;
			return -1;
		}
	}
	if (!next)
		next = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
	return next(nr, arg[0], arg[1], arg[2], arg[3], arg[4], arg[5]);
}

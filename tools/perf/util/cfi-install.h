/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_CFI_INSTALL_H
#define __PERF_CFI_INSTALL_H

#include <linux/types.h>

/* Tables that the kernel has from here */
struct cfi_install {
	int	event;		/* holds them; -1: none */
	u32	nr_made;
	u32	nr_loaded;	/* from the cache */
	u32	nr_known;	/* that the kernel had from others */
	u32	nr_failed;
	u64	nr_unsaid;
	u64	size;		/* bytes, in all */
	u64	made_ns;	/* time that was spent in making them */
	u64	begun_ns;	/* when the one that is being made was begun, or 0 */
};

int cfi_install__open(struct cfi_install *install);
int cfi_install__vdso(struct cfi_install *install);
int cfi_install__file(struct cfi_install *install, int fd, const char *name);
void cfi_install__close(struct cfi_install *install);
u64 cfi_install__making_ns(const struct cfi_install *install);

#endif /* __PERF_CFI_INSTALL_H */

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Code without frame pointers, in a file of its own, and its unwinding table.
 *
 * The functions call each other, ut_code_outer() first, and the last one makes a system
 * call. Their frame pointer is data. They are copied into a file, which is mapped where the
 * test wants it, and each instruction has the row that it needs.
 */
#ifndef SELFTEST_UNWIND_TABLE_H
#define SELFTEST_UNWIND_TABLE_H

#include <linux/ioctl.h>
#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>

#include "unwind_test.h"

/* The interface in numbers, as in unwind_test.h. */
struct ut_cfi {
	__u32	size;
	__u32	flags;
	__u64	object;
	__u64	section;
	__u64	section_size;
};

#define UT_IOC_SET_CFI		_IOW('$', 0x40, void *)
#define UT_CFI_MB		"/proc/sys/kernel/perf_event_cfi_mb"

/* A section that is being made. */
struct ut_section {
	unsigned int	nr;
	unsigned int	nr_rows;
	__u8		index[64 * 16];
	size_t		len;
	__u8		rows[4096];
	size_t		attr;		/* of the last function, in rows */
	size_t		size;		/* of data, when it is made */
	__u8		data[6144];
};

void ut_section_function(struct ut_section *s, __u64 start, __u32 size, __u8 info, __u8 info2,
			 __u8 rep);
void ut_section_end(struct ut_section *s, __u32 size);
/* @fp is 0 where the frame pointer is unchanged. */
void ut_section_row(struct ut_section *s, __u16 start, bool sp, __s16 cfa, __s16 fp);
void ut_section_make(struct ut_section *s);

/* PERF_EVENT_IOC_SET_CFI: 0, or -errno. */
int ut_load(int perf_fd, const void *object, const void *section, size_t size);
int ut_load_section(int perf_fd, const void *object, const struct ut_section *s);
/* An event that only holds tables. */
int ut_table_event(void);

/* Where the code is in its file, and how large that is. */
#define UT_CODE_OFFSET	0x3000
#define UT_CODE_SIZE	0x2000

struct ut_code {
	int		fd;
	char		*base;		/* where UT_CODE_OFFSET is mapped */
};

/* A new file with the code, in memory or of that name, mapped anywhere. */
int ut_code_new(struct ut_code *c, const char *path);
/* Map it at @addr as well, in place of what is there; or anywhere. */
char *ut_code_map(const struct ut_code *c, void *addr);
void ut_code_free(struct ut_code *c);
/* The table of such a file. With @shift all frames are taken for larger: a wrong one. */
void ut_code_section(struct ut_section *s, int shift);

/* Make a system call by the code that is mapped at @base; @st is what a walk has to find. */
long ut_code_call(const char *base, struct ut_stack *st, long nr, long a1, long a2, long a3);
/* The expected stack at instruction @i of those; false: there is no such instruction. */
bool ut_code_at(const char *base, unsigned int i, const struct ut_stack *call,
		struct ut_stack *at);
/* @call without what frame pointers do not find, and that the first one skips. */
void ut_code_short(const struct ut_stack *call, struct ut_stack *st);

/* Handle @sig by the code at @base, which calls getppid(), on @alt if that is not NULL. */
int ut_code_handle(const char *base, int sig, void *alt, size_t alt_size);
/* The stack in that handler when it interrupts that call. */
void ut_code_in_handler(const char *base, const struct ut_stack *call, struct ut_stack *st);

#endif

// SPDX-License-Identifier: GPL-2.0
/*
 * Unwinding tables that a profiler supplies: PERF_EVENT_IOC_SET_CFI.
 *
 * An event owns the tables that were loaded through it. They serve every walk on the
 * machine while it lives: kernel/unwind/table.c keeps them. Closing the event's last file
 * lets go of them. No lock of the event's context is taken, as a section may be large and
 * the caller may sleep on its memory, while fork() waits for that lock.
 */
#include <linux/capability.h>
#include <linux/cleanup.h>
#include <linux/err.h>
#include <linux/init.h>
#include <linux/mutex.h>
#include <linux/perf_event.h>
#include <linux/slab.h>
#include <linux/sysctl.h>
#include <linux/uaccess.h>
#include <linux/unwind_table.h>

#include "internal.h"

/* kernel.perf_event_cfi_mb: the most memory for all tables. */
static int sysctl_perf_event_cfi_mb __read_mostly = 256;

/**
 * struct perf_cfi - a table that an event owns
 * @next:	the event's next one
 * @table:	counted
 */
struct perf_cfi {
	struct perf_cfi		*next;
	struct unwind_table	*table;
};

/* Guards the lists of events whose files are used by several tasks. */
static DEFINE_MUTEX(perf_cfi_mutex);

static bool perf_cfi_has(const struct perf_event *event, const struct unwind_table *table)
{
	const struct perf_cfi *cfi;

	for (cfi = event->cfi; cfi; cfi = cfi->next) {
		if (cfi->table == table)
			return true;
	}
	return false;
}

/* Have the event own @table, once. */
static int perf_cfi_own(struct perf_event *event, struct unwind_table *table)
{
	struct perf_cfi *cfi;

	guard(mutex)(&perf_cfi_mutex);

	if (perf_cfi_has(event, table)) {
		unwind_table_put(table);
		return 0;
	}
	cfi = kmalloc(sizeof(*cfi), GFP_KERNEL_ACCOUNT);
	if (!cfi) {
		unwind_table_put(table);
		return -ENOMEM;
	}
	cfi->table = table;
	cfi->next = event->cfi;
	event->cfi = cfi;
	return 0;
}

/**
 * perf_event_set_cfi - PERF_EVENT_IOC_SET_CFI
 * @event:	the event that the table is to live with
 * @arg:	struct perf_event_cfi
 *
 * Context: Task context, may sleep. The caller holds the event's file, and no locks.
 * Takes perf_cfi_mutex, and what unwind_table_load() takes.
 * Return: 0, or
 * * -EACCES - the caller has not CAP_PERFMON
 * * -EINVAL - the structure is smaller than the first version, or has unknown flags; or
 *   neither a file nor the vDSO is mapped at the object; or the section is bad
 * * -E2BIG - the structure is larger than this kernel's, and what this kernel does not
 *   know is not 0
 * * -EFAULT - the structure or the section cannot be read
 * * -EEXIST - the file has another table
 * * -ENOSPC - the section is larger than 64 MiB, or kernel.perf_event_cfi_mb is reached, or
 *   64 tables have keys with the same hash
 * * -ENOMEM, -EINTR
 */
long perf_event_set_cfi(struct perf_event *event, unsigned long arg)
{
	struct perf_event_cfi __user *user = (struct perf_event_cfi __user *)arg;
	struct unwind_table *table;
	struct perf_event_cfi cfi;
	u64 limit;
	u32 size;
	int err;

	if (!perfmon_capable())
		return -EACCES;

	if (get_user(size, &user->size))
		return -EFAULT;
	if (size < PERF_EVENT_CFI_SIZE_VER0)
		return -EINVAL;
	if (size > PAGE_SIZE)
		return -E2BIG;
	err = copy_struct_from_user(&cfi, sizeof(cfi), user, size);
	if (err)
		return err;
	if (cfi.flags)
		return -EINVAL;

	limit = (u64)READ_ONCE(sysctl_perf_event_cfi_mb) << 20;
	table = unwind_table_load(cfi.object, u64_to_user_ptr(cfi.section),
				  cfi.section_size, limit);
	if (IS_ERR(table))
		return PTR_ERR(table);
	return perf_cfi_own(event, table);
}

/**
 * perf_event_put_cfi - let go of the tables of an event
 * @event:	its last file is being closed
 *
 * Context: Task context, may sleep.
 */
void perf_event_put_cfi(struct perf_event *event)
{
	struct perf_cfi *cfi, *next;

	/* Without a file nobody loads a table. */
	for (cfi = event->cfi; cfi; cfi = next) {
		next = cfi->next;
		unwind_table_put(cfi->table);
		kfree(cfi);
	}
	event->cfi = NULL;
}

static struct ctl_table perf_cfi_sysctls[] = {
	{
		.procname	= "perf_event_cfi_mb",
		.data		= &sysctl_perf_event_cfi_mb,
		.maxlen		= sizeof(sysctl_perf_event_cfi_mb),
		.mode		= 0644,
		.proc_handler	= proc_dointvec_minmax,
		.extra1		= SYSCTL_ZERO,
	},
};

static int __init perf_cfi_setup(void)
{
	register_sysctl_init("kernel", perf_cfi_sysctls);
	return 0;
}
late_initcall(perf_cfi_setup);

// SPDX-License-Identifier: GPL-2.0
/*
 * A PMU with an AUX area for a machine that has none, to test perf record's modes of
 * AUX area tracing (with --snapshot and without) there.
 *
 * perf takes it for Intel PT: it has the name and the format of that PMU. Each time
 * its event stops, on one CPU or with one task, it writes a block of well-formed
 * packets without a branch (SDM volume 3, chapter "Intel Processor Trace": PSB,
 * PSBEND, PAD).
 */
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/perf_event.h>
#include <linux/slab.h>
#include <linux/string.h>

#define BLOCK	64

static const u8 block[BLOCK] = {
	0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82,		/* PSB */
	0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82,
	0x02, 0x23,						/* PSBEND */
};

/* An AUX area; pages as the ring buffer has them, which outlives this. */
struct area {
	void **pages;
	unsigned long size;
	bool overwrite;
};

static DEFINE_PER_CPU(struct perf_output_handle, handles);

PMU_FORMAT_ATTR(pt,		"config:0");
PMU_FORMAT_ATTR(cyc,		"config:1");
PMU_FORMAT_ATTR(mtc,		"config:9");
PMU_FORMAT_ATTR(tsc,		"config:10");
PMU_FORMAT_ATTR(noretcomp,	"config:11");
PMU_FORMAT_ATTR(branch,		"config:13");
PMU_FORMAT_ATTR(mtc_period,	"config:14-17");
PMU_FORMAT_ATTR(cyc_thresh,	"config:19-22");
PMU_FORMAT_ATTR(psb_period,	"config:24-27");

static struct attribute *formats[] = {
	&format_attr_pt.attr,
	&format_attr_cyc.attr,
	&format_attr_mtc.attr,
	&format_attr_tsc.attr,
	&format_attr_noretcomp.attr,
	&format_attr_branch.attr,
	&format_attr_mtc_period.attr,
	&format_attr_cyc_thresh.attr,
	&format_attr_psb_period.attr,
	NULL,
};

static const struct attribute_group format_group = {
	.name = "format",
	.attrs = formats,
};

static const struct attribute_group *groups[] = {
	&format_group,
	NULL,
};

static struct pmu aux_pmu;

/* perf's core adds, starts, stops and deletes with interrupts off, on the event's CPU. */

static int aux_event_init(struct perf_event *event)
{
	return event->attr.type == aux_pmu.type ? 0 : -ENOENT;
}

static void aux_start(struct perf_event *event, int flags)
{
	/* without an area, or with a full one, there is nothing to write into */
	if (perf_aux_output_begin(this_cpu_ptr(&handles), event))
		event->hw.state = 0;
	else
		event->hw.state = PERF_HES_STOPPED;
}

static void aux_stop(struct perf_event *event, int flags)
{
	struct perf_output_handle *handle = this_cpu_ptr(&handles);
	struct area *area;
	unsigned long head, size = 0;

	if (event->hw.state & PERF_HES_STOPPED)
		return;
	event->hw.state |= PERF_HES_STOPPED;

	area = perf_get_aux(handle);
	if (!area)
		return;
	head = handle->head % area->size;
	if (area->overwrite || handle->size >= BLOCK) {
		/* head is a multiple of the block's size, as is a page's */
		memcpy(area->pages[head >> PAGE_SHIFT] + offset_in_page(head), block, BLOCK);
		size = BLOCK;
	}
	if (area->overwrite)
		handle->head = (head + size) % area->size;
	/* B of perf_aux_output_begin(): the block is there before aux_head tells of it. */
	smp_wmb();
	perf_aux_output_end(handle, size);
}

static int aux_add(struct perf_event *event, int flags)
{
	/* one event a CPU, as PT has it */
	if (this_cpu_ptr(&handles)->event)
		return -EBUSY;

	event->hw.state = PERF_HES_STOPPED;
	if (flags & PERF_EF_START)
		aux_start(event, 0);
	return 0;
}

static void aux_del(struct perf_event *event, int flags)
{
	aux_stop(event, PERF_EF_UPDATE);
}

static void aux_read(struct perf_event *event)
{
}

static void *aux_setup(struct perf_event *event, void **pages, int nr_pages, bool overwrite)
{
	struct area *area = kmalloc(sizeof(*area), GFP_KERNEL);

	if (!area)
		return NULL;
	area->pages = pages;
	area->size = (unsigned long)nr_pages << PAGE_SHIFT;
	area->overwrite = overwrite;
	return area;
}

static void aux_free(void *area)
{
	kfree(area);
}

static struct pmu aux_pmu = {
	.module		= THIS_MODULE,
	.capabilities	= PERF_PMU_CAP_EXCLUSIVE | PERF_PMU_CAP_ITRACE,
	.attr_groups	= groups,
	.task_ctx_nr	= perf_sw_context,
	.event_init	= aux_event_init,
	.add		= aux_add,
	.del		= aux_del,
	.start		= aux_start,
	.stop		= aux_stop,
	.read		= aux_read,
	.setup_aux	= aux_setup,
	.free_aux	= aux_free,
};

static int __init aux_pmu_init(void)
{
	return perf_pmu_register(&aux_pmu, "intel_pt", -1);
}
module_init(aux_pmu_init);

static void __exit aux_pmu_exit(void)
{
	perf_pmu_unregister(&aux_pmu);
}
module_exit(aux_pmu_exit);

MODULE_DESCRIPTION("A PMU with an AUX area, for tests");
MODULE_LICENSE("GPL");

// SPDX-License-Identifier: GPL-2.0
/* Events with random attributes, most of which make sense. */
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../kselftest.h"
#include "fuzz.h"

static const char * const tracepoints[][2] = {
	{ "syscalls", "sys_enter_getppid" },
	{ "syscalls", "sys_exit_getppid" },
	{ "syscalls", "sys_enter_nanosleep" },
	{ "syscalls", "sys_enter_ioctl" },
	{ "syscalls", "sys_enter_close" },
	{ "syscalls", "sys_enter_munmap" },
	{ "syscalls", "sys_enter_exit_group" },
	{ "raw_syscalls", "sys_enter" },
	{ "raw_syscalls", "sys_exit" },
	{ "sched", "sched_switch" },
	{ "sched", "sched_process_fork" },
	{ "sched", "sched_process_exec" },
	{ "sched", "sched_process_exit" },
	{ "signal", "signal_generate" },
};

static int tracepoint_id[ARRAY_SIZE(tracepoints)];

static __u64 some_sample_type(void)
{
	__u64 type = PERF_SAMPLE_CALLCHAIN;

	if (chance(8))
		return rnd64() & ((1 << 25) - 1) & ~(chance(2) ? PERF_SAMPLE_BRANCH_STACK : 0ULL);
	if (chance(10))
		type = 0;
	return type | (rnd64() & (PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME |
		PERF_SAMPLE_ADDR | PERF_SAMPLE_READ | PERF_SAMPLE_ID | PERF_SAMPLE_CPU |
		PERF_SAMPLE_PERIOD | PERF_SAMPLE_STREAM_ID | PERF_SAMPLE_RAW |
		PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER));
}

/* For each bit of the flags: it is set once in so many times; 0: never. */
static const unsigned char flag_rarity[64] = {
	[0] = 3,	/* disabled */
	[1] = 3,	/* inherit */
	[2] = 20,	/* pinned */
	[3] = 20,	/* exclusive */
	[4] = 8,	/* exclude_user */
	[5] = 4,	/* exclude_kernel */
	[6] = 4,	/* exclude_hv */
	[7] = 8,	/* exclude_idle */
	[8] = 4,	/* mmap */
	[9] = 4,	/* comm */
	[10] = 20,	/* freq */
	[11] = 8,	/* inherit_stat */
	[12] = 8,	/* enable_on_exec */
	[13] = 4,	/* task */
	[14] = 6,	/* watermark */
	[15] = 60, [16] = 60,	/* precise_ip */
	[17] = 6,	/* mmap_data */
	[18] = 2,	/* sample_id_all */
	[19] = 20,	/* exclude_host */
	[20] = 20,	/* exclude_guest */
	[21] = 4,	/* exclude_callchain_kernel */
	[22] = 8,	/* exclude_callchain_user */
	[23] = 4,	/* mmap2 */
	[24] = 4,	/* comm_exec */
	[25] = 30,	/* use_clockid */
	[26] = 6,	/* context_switch */
	[27] = 12,	/* write_backward */
	[28] = 8,	/* namespaces */
	[29] = 8,	/* ksymbol */
	[30] = 8,	/* bpf_event */
	[31] = 60,	/* aux_output */
	[32] = 8,	/* cgroup */
	[33] = 8,	/* text_poke */
	[34] = 8,	/* build_id */
	[35] = 8,	/* inherit_thread */
	[36] = 8,	/* remove_on_exec */
	[37] = 12,	/* sigtrap */
	[38] = 1,	/* defer_callchain, see below */
	[39] = 2,	/* defer_output */
	[40] = 100, [63] = 100,	/* reserved */
};

/* All flags but those that are mostly refused, or let an event count almost nothing. */
#define SANE_FLAGS	(~(1ULL << 2 | 1ULL << 3 | 1ULL << 15 | 1ULL << 16 | 1ULL << 19 |	\
			   1ULL << 25 | 1ULL << 31 | 1ULL << 35 | 1ULL << 36 |		\
			   -1ULL << UT_FIRST_RESERVED_BIT))

static void some_attr(struct perf_event_attr *attr)
{
	static struct perf_event_attr common;
	bool sane = rnd(3);
	unsigned int bit;
	__u64 flags = 0;

	memset(attr, 0, sizeof(*attr));
	attr->size = sane || rnd(4) ? UT_ATTR_SIZE : rnd(200);
	switch (rnd(12)) {
	case 0 ... 5:
		attr->type = PERF_TYPE_TRACEPOINT;
		attr->config = tracepoint_id[rnd(ARRAY_SIZE(tracepoints))];
		break;
	case 6 ... 8:
		attr->type = PERF_TYPE_SOFTWARE;
		attr->config = rnd(12);
		break;
	case 9:
		attr->type = PERF_TYPE_BREAKPOINT;
		attr->bp_type = 1 << rnd(3);
		attr->bp_addr = attr->bp_type == 4 ? (unsigned long)touch :
						     (unsigned long)&touched[rnd(2)];
		attr->bp_len = attr->bp_type == 4 ? sizeof(long) : 1 << rnd(4);
		break;
	case 10:
		attr->type = PERF_TYPE_SOFTWARE;
		attr->config = PERF_COUNT_SW_DUMMY;
		break;
	default:
		attr->type = sane ? PERF_TYPE_SOFTWARE : rnd(10);
		attr->config = rnd(20);
		break;
	}

	for (bit = 0; bit < 64; bit++) {
		if (flag_rarity[bit] && chance(flag_rarity[bit]))
			flags |= 1ULL << bit;
	}
	if (chance(6))
		flags &= ~UT_DEFER_CALLCHAIN;
	if (sane) {
		flags &= SANE_FLAGS;
		/* sigtrap needs remove_on_exec, which excludes enable_on_exec. */
		if (flags & 1ULL << 37)
			flags = (flags | 1ULL << 36) & ~(1ULL << 12);
	}
	*ut_attr_flags(attr) = flags;

	attr->sample_period = 1 + rnd(4);
	if (attr->freq)
		attr->sample_freq = 1 + rnd(is_clock(attr) ? CLOCK_HZ : 2000);
	else if (is_clock(attr))
		attr->sample_period = CLOCK_NS + rnd(5 * CLOCK_NS);
	else if (chance(20))
		attr->sample_period = rnd64();
	if (chance(3))
		attr->sample_max_stack = sane || rnd(4) ? rnd(128) : rnd(1 << 16);
	attr->wakeup_events = rnd(100);
	attr->clockid = chance(2) ? CLOCK_MONOTONIC : rnd(16);
	if (chance(50))
		attr->aux_watermark = rnd64();

	attr->sample_type = some_sample_type();
	attr->read_format = rnd(4) ? rnd(32) : 0;
	if (attr->read_format & PERF_FORMAT_GROUP && attr->inherit && !chance(4))
		attr->read_format &= ~PERF_FORMAT_GROUP;
	attr->sample_regs_user = chance(10) ? rnd64() : 0xff0fff;
	attr->sample_stack_user = chance(10) ? rnd64() : rnd(64) * 8;
	attr->sample_regs_intr = 0xff0fff;
	if (uniform) {
		if (!nr_ev)
			common = *attr;
		attr->sample_type = common.sample_type;
		attr->read_format = common.read_format;
		attr->sample_regs_user = common.sample_regs_user;
		attr->sample_stack_user = common.sample_stack_user;
	}
}

void open_one(void)
{
	static const unsigned int perf_flags[] = {
		PERF_FLAG_FD_NO_GROUP, PERF_FLAG_FD_OUTPUT, PERF_FLAG_PID_CGROUP,
	};
	struct fuzz_event *e = &ev[nr_ev];
	int pid = 0, cpu = -1, group = -1, cgroup = -1, bit;
	unsigned long flags = 0;

	if (nr_ev == MAX_FDS)
		return;
	memset(e, 0, sizeof(*e));
	some_attr(&e->attr);
	switch (rnd(10)) {
	case 0 ... 2:
		break;
	case 3 ... 4:
		pid = dying;
		break;
	case 5 ... 6:
		pid = tot->victim[rnd(VICTIMS)];
		break;
	case 7 ... 8:
		pid = -1;
		cpu = rnd(nr_cpus);
		break;
	default:
		pid = rnd(4) ? 0 : rnd(3) ? (int)rnd(500) : -1;
		break;
	}
	/* An inherited event can only be mapped if it is for one CPU. */
	if (cpu < 0 && (chance(3) || e->attr.inherit))
		cpu = chance(20) ? (int)rnd(70) : (int)rnd(nr_cpus);
	if (nr_ev && chance(4))
		group = ev[rnd(nr_ev)].fd;
	if (chance(10))
		flags = perf_flags[rnd(ARRAY_SIZE(perf_flags))];
	if (flags == PERF_FLAG_PID_CGROUP) {
		pid = open("/sys/fs/cgroup", O_RDONLY | O_CLOEXEC);
		cgroup = pid;
		cpu = rnd(nr_cpus);
	}
	if (flags == PERF_FLAG_FD_OUTPUT && nr_ev)
		group = ev[rnd(nr_ev)].fd;

	e->fd = ut_perf_open(&e->attr, pid, cpu, group, flags);
	if (cgroup >= 0)
		close(cgroup);
	if (e->fd < 0) {
		add(&tot->refused, 1);
		return;
	}
	/* The kernel must refuse each reserved bit. */
	for (bit = UT_FIRST_RESERVED_BIT; bit < 64; bit++) {
		if (*ut_attr_flags(&e->attr) >> bit & 1) {
			ut_diag("bit %d was taken, seed %llu", bit, case_seed);
			add(&tot->bad, 1);
		}
	}
	seen_deferred |= !!(*ut_attr_flags(&e->attr) & UT_DEFER_CALLCHAIN);
	seen_output |= !!(*ut_attr_flags(&e->attr) & UT_DEFER_OUTPUT);
	e->mine = true;
	add(&tot->opened, 1);
	nr_ev++;
}

void find_tracepoints(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(tracepoints); i++)
		tracepoint_id[i] = ut_tracepoint_id(tracepoints[i][0], tracepoints[i][1]);
}

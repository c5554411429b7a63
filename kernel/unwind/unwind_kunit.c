// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of user stack unwinding.
 *
 * Suite unwind_user: walks of user stacks that are made here, word by word, in
 * an mm of the test's own. A place that a walk must not go to holds a decoy
 * wherever one can be put there: a record that it would go on from.
 *
 * Suite unwind_deferred: requests, on a struct unwind_task_info of the test's own
 * and with the KUnit thread's marks. When the callbacks are called takes a task
 * that returns to user space; tools/testing/selftests/unwind has that.
 */
#include <kunit/test.h>
#include <linux/bpf.h>
#include <linux/cleanup.h>
#include <linux/completion.h>
#include <linux/context_tracking_state.h>
#include <linux/cpumask.h>
#include <linux/delay.h>
#include <linux/file.h>
#include <linux/hardirq.h>
#include <linux/kernel.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/perf_event.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/task.h>
#include <linux/shmem_fs.h>
#include <linux/task_work.h>
#include <linux/thread_info.h>
#include <linux/tick.h>
#include <linux/uaccess.h>
#include <linux/unwind_user.h>
#include <linux/workqueue.h>

#include <asm/desc.h>
#include <asm/segment.h>
#include <asm/unwind_user.h>

#include "deferred.h"

/*
 * unwind_user
 */

/* Where stacks are made; low enough for those of 32-bit code. */
#define STACK		0x20000000UL
/* A second place. */
#define ALIAS		0x30000000UL

#define START_IP	0x400123UL
#define TEXT(i)		(0x401000UL + 16 * (i))
#define DECOY		0x555000UL
#define CALLER		0x666000UL

#define MAX_ENTRIES	128
#define CANARY		0x5a5a5a5aUL

static void put_word(struct kunit *test, unsigned int word, unsigned long addr,
		     unsigned long value)
{
	u32 low = value;
	u64 all = value;

	KUNIT_ASSERT_EQ(test, 0UL,
			word == 8 ? copy_to_user((void __user *)addr, &all, word) :
				    copy_to_user((void __user *)addr, &low, word));
}

static void put_record(struct kunit *test, unsigned int word, unsigned long fp,
		       unsigned long next_fp, unsigned long ra)
{
	put_word(test, word, fp, next_fp);
	put_word(test, word, fp + word, ra);
}

static unsigned long map(struct kunit *test, struct file *file, unsigned long addr,
			 unsigned long len, unsigned long prot,
			 unsigned long offset)
{
	unsigned long flags = file ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
	unsigned long got;

	if (addr)
		flags |= MAP_FIXED;
	got = kunit_vm_mmap(test, file, addr, len, prot, flags, offset);
	KUNIT_ASSERT_NE(test, 0UL, got);
	KUNIT_ASSERT_FALSE(test, IS_ERR_VALUE(got));
	return got;
}

static unsigned long map_stack(struct kunit *test, unsigned long addr,
			       unsigned long len)
{
	return map(test, NULL, addr, len, PROT_READ | PROT_WRITE, 0);
}

static struct unwind_user_regs start_regs(unsigned int word, unsigned long sp,
					  unsigned long fp)
{
	return (struct unwind_user_regs) {
		.ip	= START_IP,
		.sp	= sp,
		.fp	= fp,
		.word	= word,
	};
}

/* Walk; nothing may be stored behind the @max entries that there is room for. */
static struct unwind_stacktrace walk(struct kunit *test,
				     const struct unwind_user_regs *regs,
				     unsigned int max)
{
	struct unwind_stacktrace trace = { .nr = MAX_ENTRIES };
	unsigned int i;

	KUNIT_ASSERT_LE(test, max, MAX_ENTRIES);
	trace.entries = kunit_kmalloc_array(test, MAX_ENTRIES,
					    sizeof(*trace.entries), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, trace.entries);
	for (i = 0; i < MAX_ENTRIES; i++)
		trace.entries[i] = CANARY;

	unwind_user_regs(&trace, regs, max);

	KUNIT_ASSERT_LE(test, trace.nr, max);
	for (i = max; i < MAX_ENTRIES; i++)
		KUNIT_ASSERT_EQ(test, CANARY, trace.entries[i]);
	return trace;
}

static void expect_entries(struct kunit *test, struct unwind_stacktrace trace,
			   const unsigned long *entries, unsigned int nr)
{
	unsigned int i;

	KUNIT_EXPECT_EQ(test, nr, trace.nr);
	for (i = 0; i < min(nr, trace.nr); i++)
		KUNIT_EXPECT_EQ_MSG(test, entries[i], trace.entries[i],
				    "entry %u", i);
}

#define LADDER_STEP	48

/* @nr frames from @fp on, the last of which ends the chain. */
static void put_ladder(struct kunit *test, unsigned int word, unsigned long fp,
		       unsigned int nr)
{
	unsigned int i;

	for (i = 0; i < nr; i++, fp += LADDER_STEP)
		put_record(test, word, fp, i < nr - 1 ? fp + LADDER_STEP : 0,
			   TEXT(i));
}

/* START_IP and the frames of a ladder, as many as there is room for. */
static void expect_ladder(struct kunit *test, struct unwind_stacktrace trace,
			  unsigned int nr)
{
	unsigned int i;

	KUNIT_EXPECT_EQ(test, nr, trace.nr);
	for (i = 0; i < min(nr, trace.nr); i++)
		KUNIT_EXPECT_EQ_MSG(test, i ? TEXT(i - 1) : START_IP,
				    trace.entries[i], "entry %u", i);
}

static void test_ladder(struct kunit *test, unsigned int word, unsigned long addr)
{
	unsigned long fp = map_stack(test, addr, 2 * PAGE_SIZE) + 64;
	struct unwind_user_regs regs = start_regs(word, fp - 32, fp);

	put_ladder(test, word, fp, 100);
	expect_ladder(test, walk(test, &regs, MAX_ENTRIES), 101);

	/* The first record may be right at the stack pointer. */
	regs.sp = fp;
	expect_ladder(test, walk(test, &regs, MAX_ENTRIES), 101);
}

static void unwind_user_ladder_64(struct kunit *test)
{
	/* Where the kernel puts it, beyond the reach of 32 bits. */
	test_ladder(test, 8, 0);
}

static void unwind_user_ladder_32(struct kunit *test)
{
	test_ladder(test, 4, STACK);
}

/* 32-bit code that has come into the kernel with these selectors. */
static void set_segments(struct unwind_user_regs *regs, u16 cs, u16 ss)
{
	const struct pt_regs entered = { .cs = cs, .ss = ss };

	arch_unwind_user_segments(regs, &entered);
}

/* Selectors that cannot be 32-bit code's: then the word size is not known. */
static void unwind_user_segments(struct kunit *test)
{
	unsigned long fp = map_stack(test, STACK, PAGE_SIZE) + 64;
	struct unwind_user_regs regs = start_regs(4, fp, fp);
	static const u16 bad[] = { 0, __USER_CS, 0xfff7 };
	unsigned int i;

	put_ladder(test, 4, fp, 3);
	expect_ladder(test, walk(test, &regs, 16), 4);
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		set_segments(&regs, bad[i], __USER_DS);
		KUNIT_EXPECT_EQ_MSG(test, 0, walk(test, &regs, 16).nr,
				    "selector %x", bad[i]);
	}
}

#define CS_BASE		0x1000000UL
#define SS_BASE		0x1800000UL

/* The three descriptors of the GDT that a task may set, and their selectors. */
#define TLS_SELECTOR(i)	((GDT_ENTRY_TLS_MIN + (i)) * 8 + 3)

static void set_tls(const struct desc_struct *tls)
{
	/* That of a task that is switched to is loaded, too. */
	preempt_disable();
	memcpy(current->thread.tls_array, tls, sizeof(current->thread.tls_array));
	load_TLS(&current->thread, smp_processor_id());
	preempt_enable();
}

/* 32-bit code whose segments do not start at 0: a trace has linear addresses. */
static void unwind_user_segment_bases(struct kunit *test)
{
	static const struct desc_struct tls[] = {
		GDT_ENTRY_INIT(DESC_CODE32 | DESC_USER, CS_BASE, 0xfffff),
		GDT_ENTRY_INIT(DESC_DATA32 | DESC_USER, SS_BASE, 0xfffff),
		GDT_ENTRY_INIT(DESC_CODE16 | DESC_USER, 0, 0xfffff),
	};
	static const struct desc_struct none[ARRAY_SIZE(tls)];
	const unsigned long frames[] = { 64, 128, 512 };
	unsigned long expected[] = {
		CS_BASE + START_IP, CS_BASE + CALLER, CS_BASE + TEXT(0),
		CS_BASE + TEXT(1), CS_BASE + TEXT(2),
	};
	unsigned long sp = map_stack(test, STACK, PAGE_SIZE) - SS_BASE;
	struct unwind_user_regs regs = start_regs(4, sp, sp + frames[0]);
	unsigned int i;

	static_assert(ARRAY_SIZE(tls) == ARRAY_SIZE(current->thread.tls_array));

	put_word(test, 4, STACK, CALLER);
	for (i = 0; i < ARRAY_SIZE(frames); i++)
		put_record(test, 4, STACK + frames[i],
			   i < ARRAY_SIZE(frames) - 1 ? sp + frames[i + 1] : 0,
			   TEXT(i));

	regs.at_entry = true;
	set_tls(tls);
	set_segments(&regs, TLS_SELECTOR(0), TLS_SELECTOR(1));
	/* What is in the tables by now does not count. */
	set_tls(none);
	expect_entries(test, walk(test, &regs, 16), expected, 5);

	/* They go around at 4 GiB. */
	regs.ip = U32_MAX;
	expected[0] = CS_BASE - 1;
	expect_entries(test, walk(test, &regs, 16), expected, 5);

	/* 16-bit code has other stack words; and a segment that is gone has no base. */
	set_tls(tls);
	set_segments(&regs, TLS_SELECTOR(2), TLS_SELECTOR(1));
	KUNIT_EXPECT_EQ(test, 0, walk(test, &regs, 16).nr);
	set_tls(none);
	set_segments(&regs, __USER32_CS, TLS_SELECTOR(1));
	KUNIT_EXPECT_EQ(test, 0, walk(test, &regs, 16).nr);
	set_segments(&regs, __USER32_CS, 0xfff7);
	KUNIT_EXPECT_EQ(test, 0, walk(test, &regs, 16).nr);

	/* Nor may the base of one of the system's be seen. */
	set_segments(&regs, __USER32_CS, GDT_ENTRY_TSS * 8 + 3);
	KUNIT_EXPECT_EQ(test, 0, walk(test, &regs, 16).nr);
	set_segments(&regs, __USER32_CS, __USER_DS);
	KUNIT_EXPECT_NE(test, 0, walk(test, &regs, 16).nr);
}

/*
 * Chains that are none. One of 8 frames has something put into its record
 * BAD_FRAME, or the walk starts somewhere else.
 */
#define FRAMES		8
#define BAD_FRAME	3
#define FRAME(i)	(1024 + 64 * (i))

enum bad_what {
	BAD_NEXT,	/* the frame pointer in the record */
	BAD_RA,		/* the return address in the record */
	BAD_FP,		/* the frame pointer in the registers */
};

enum bad_base {
	FROM_ZERO,
	FROM_STACK,	/* 2 pages, one with PROT_NONE, a hole, one not touched */
	FROM_TOP,	/* TASK_SIZE_MAX, with a page mapped below */
	FROM_KERNEL,	/* a frame record in kernel memory */
};

/**
 * struct bad_chain - one thing wrong with a chain of frame records
 * @name:	what
 * @what:	where to put the value
 * @base:	the value, and
 * @offset:	added to it
 * @words:	added to it, times the size of a word
 * @decoy:	put a record there that points to frame 5
 * @wide:	not for 32-bit
 * @nr:		the entries that are right
 */
struct bad_chain {
	const char	*name;
	enum bad_what	what;
	enum bad_base	base;
	unsigned long	offset;
	int		words;
	bool		decoy;
	bool		wide;
	unsigned int	nr;
};

#define NEXT_BAD	(BAD_FRAME + 2)		/* START_IP, frames 0 to 3 */
#define RA_BAD		(BAD_FRAME + 1)
#define ALL		(FRAMES + 1)

#define NEXT(from)	.what = BAD_NEXT, .base = FROM_##from
#define RA(from)	.what = BAD_RA, .base = FROM_##from
#define FP(from)	.what = BAD_FP, .base = FROM_##from

static const struct bad_chain bad_chains[] = {
	{ "nothing wrong", NEXT(STACK), FRAME(4), .nr = ALL },
	/* NEXT_BAD, the decoy, frames 5 to 7 */
	{ "adjacent records", NEXT(STACK), FRAME(3), .words = 2, .decoy = true,
	  .nr = NEXT_BAD + 4 },

	{ "cycle", NEXT(STACK), FRAME(1), .nr = NEXT_BAD },
	{ "record that points to itself", NEXT(STACK), FRAME(3), .nr = NEXT_BAD },
	{ "overlapping records", NEXT(STACK), FRAME(3), .words = 1, .decoy = true,
	  .nr = NEXT_BAD },
	{ "descending", NEXT(STACK), FRAME(2) + 32, .decoy = true, .nr = NEXT_BAD },
	{ "below the stack pointer", NEXT(STACK), FRAME(-1), .decoy = true,
	  .nr = NEXT_BAD },
	{ "misaligned by one", NEXT(STACK), FRAME(4) + 1, .decoy = true,
	  .nr = NEXT_BAD },
	{ "misaligned by two", NEXT(STACK), FRAME(4) + 2, .decoy = true,
	  .nr = NEXT_BAD },
	{ "misaligned by four", NEXT(STACK), FRAME(4) + 4, .decoy = true,
	  .wide = true, .nr = NEXT_BAD },
	{ "end", NEXT(ZERO), 0, .nr = NEXT_BAD },

	{ "kernel memory", NEXT(KERNEL), 0, .wide = true, .nr = NEXT_BAD },
	{ "end of user space", NEXT(TOP), 0, .wide = true, .nr = NEXT_BAD },
	{ "last byte of user space", NEXT(TOP), -1UL, .wide = true,
	  .nr = NEXT_BAD },
	{ "last word of user space", NEXT(TOP), .words = -1, .wide = true,
	  .nr = NEXT_BAD },
	{ "last record of user space", NEXT(TOP), .words = -2, .decoy = true,
	  .wide = true, .nr = NEXT_BAD + 1 },
	{ "non-canonical", NEXT(ZERO), BIT(62), .wide = true, .nr = NEXT_BAD },
	{ "non-canonical, negative", NEXT(ZERO), BIT(63), .wide = true,
	  .nr = NEXT_BAD },
	{ "last word of all", NEXT(ZERO), -8UL, .nr = NEXT_BAD },

	{ "last record of the mapping", NEXT(STACK), 2 * PAGE_SIZE, .words = -2,
	  .decoy = true, .nr = NEXT_BAD + 1 },
	{ "half in PROT_NONE", NEXT(STACK), 2 * PAGE_SIZE, .words = -1,
	  .nr = NEXT_BAD },
	{ "PROT_NONE", NEXT(STACK), 2 * PAGE_SIZE + 64, .nr = NEXT_BAD },
	{ "unmapped", NEXT(STACK), 3 * PAGE_SIZE + 64, .nr = NEXT_BAD },
	{ "never written", NEXT(STACK), 4 * PAGE_SIZE + 64, .nr = NEXT_BAD },
	{ "half behind the mapping", NEXT(STACK), 5 * PAGE_SIZE, .words = -1,
	  .nr = NEXT_BAD },

	{ "return to 0", RA(ZERO), 0, .nr = RA_BAD },
	{ "return to 10", RA(ZERO), 10, .nr = RA_BAD },
	{ "return to the end of the first page", RA(ZERO), PAGE_SIZE - 1,
	  .nr = RA_BAD },
	{ "return to the second page", RA(ZERO), PAGE_SIZE, .nr = ALL },
	{ "return to the end of 32 bits", RA(ZERO), U32_MAX, .nr = ALL },
	{ "return to the last byte of user space", RA(TOP), -1UL, .wide = true,
	  .nr = ALL },
	{ "return to the end of user space", RA(TOP), 0, .wide = true,
	  .nr = RA_BAD },
	{ "return to kernel memory", RA(KERNEL), 0, .wide = true, .nr = RA_BAD },
	{ "return to a non-canonical address", RA(ZERO), BIT(62), .wide = true,
	  .nr = RA_BAD },
	{ "return to the last byte of all", RA(ZERO), -1UL, .wide = true,
	  .nr = RA_BAD },

	{ "fp at sp", FP(STACK), FRAME(0), .nr = ALL },
	{ "fp below sp", FP(STACK), FRAME(-1), .decoy = true, .nr = 1 },
	{ "fp half below sp", FP(STACK), FRAME(0), .words = -1, .decoy = true,
	  .nr = 1 },
	{ "fp misaligned", FP(STACK), FRAME(4) + 1, .decoy = true, .nr = 1 },
	{ "fp 0", FP(ZERO), 0, .nr = 1 },
	{ "fp in kernel memory", FP(KERNEL), 0, .wide = true, .nr = 1 },
	{ "fp at the end of user space", FP(TOP), 0, .wide = true, .nr = 1 },
	{ "fp non-canonical", FP(ZERO), BIT(62), .wide = true, .nr = 1 },
	{ "fp unmapped", FP(STACK), 3 * PAGE_SIZE, .nr = 1 },
};

KUNIT_ARRAY_PARAM_DESC(bad_chain, bad_chains, name);

static void test_bad_chain(struct kunit *test, const struct bad_chain *bad,
			   unsigned int word)
{
	unsigned long value = bad->offset + bad->words * (long)word;
	unsigned long expected[ALL + 1] = { START_IP };
	struct unwind_user_regs regs;
	unsigned long *kernel;
	unsigned int i, nr = 0;

	kernel = kunit_kzalloc(test, 2 * sizeof(*kernel), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, kernel);
	kernel[1] = DECOY;

	/* From all of it made anew, to what is said above. */
	map_stack(test, STACK, 5 * PAGE_SIZE);
	map(test, NULL, STACK + 2 * PAGE_SIZE, PAGE_SIZE, PROT_NONE, 0);
	KUNIT_ASSERT_EQ(test, 0, vm_munmap(STACK + 3 * PAGE_SIZE, PAGE_SIZE));
	map_stack(test, TASK_SIZE_MAX - PAGE_SIZE, PAGE_SIZE);

	switch (bad->base) {
	case FROM_ZERO:
		break;
	case FROM_STACK:
		value += STACK;
		break;
	case FROM_TOP:
		value += TASK_SIZE_MAX;
		break;
	case FROM_KERNEL:
		value += (unsigned long)kernel;
		break;
	}

	if (bad->decoy)
		put_record(test, word, value, STACK + FRAME(5), DECOY);
	for (i = 0; i < FRAMES; i++) {
		unsigned long next = i < FRAMES - 1 ? STACK + FRAME(i + 1) : 0;
		unsigned long ra = TEXT(i);

		/* A decoy takes the place of what it overlaps. */
		if (bad->decoy && i != BAD_FRAME &&
		    value < STACK + FRAME(i) + 2 * word &&
		    value + 2 * word > STACK + FRAME(i))
			continue;
		if (i == BAD_FRAME && bad->what == BAD_NEXT)
			next = value;
		if (i == BAD_FRAME && bad->what == BAD_RA)
			ra = value;
		put_record(test, word, STACK + FRAME(i), next, ra);
	}

	regs = start_regs(word, STACK + FRAME(0),
			  bad->what == BAD_FP ? value : STACK + FRAME(0));

	for (i = nr = 0; i < FRAMES; i++) {
		expected[++nr] = TEXT(i);
		if (i == BAD_FRAME && bad->what == BAD_RA)
			expected[nr] = (word == 4) ? (u32)value : value;
		if (i == BAD_FRAME && bad->what == BAD_NEXT && bad->decoy) {
			expected[++nr] = DECOY;
			i = 4;
		}
	}
	expect_entries(test, walk(test, &regs, 64), expected, bad->nr);
}

static void unwind_user_bad_chain(struct kunit *test)
{
	const struct bad_chain *bad = test->param_value;

	test_bad_chain(test, bad, 8);
	if (!bad->wide)
		test_bad_chain(test, bad, 4);
}

static void put_file(void *file)
{
	fput(file);
}

static struct file *new_file(struct kunit *test, unsigned long size)
{
	struct file *file = shmem_file_setup("unwind_kunit", size, VM_NORESERVE);

	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, file);
	KUNIT_ASSERT_EQ(test, 0, kunit_add_action_or_reset(test, put_file, file));
	return file;
}

static bool present(unsigned long addr)
{
	unsigned long value;
	bool ret;

	pagefault_disable();
	ret = !__copy_from_user_inatomic(&value, (const void __user *)addr,
					 sizeof(value));
	pagefault_enable();
	return ret;
}

#define FAULT_PAGES	8

/*
 * A stack of which every other page is a file's that nothing has been read from.
 * There are three frames in each page; the last one of the present pages reaches
 * into the next page.
 */
static void test_fault(struct kunit *test, unsigned int word)
{
	struct file *file = new_file(test, FAULT_PAGES * PAGE_SIZE);
	unsigned long addrs[3 * FAULT_PAGES];
	struct unwind_user_regs regs;
	unsigned int i, j;

	/* All of the file is written from somewhere else. */
	map(test, file, ALIAS, FAULT_PAGES * PAGE_SIZE, PROT_READ | PROT_WRITE, 0);
	map_stack(test, STACK, FAULT_PAGES * PAGE_SIZE);
	for (i = 1; i < FAULT_PAGES; i += 2)
		map(test, file, STACK + i * PAGE_SIZE, PAGE_SIZE,
		    PROT_READ | PROT_WRITE, i * PAGE_SIZE);

	for (i = 0; i < FAULT_PAGES; i++) {
		unsigned long page = STACK + i * PAGE_SIZE;

		addrs[3 * i] = page + 256;
		addrs[3 * i + 1] = page + 1024;
		addrs[3 * i + 2] = i & 1 ? page + 2048 : page + PAGE_SIZE - word;
	}
	for (i = 0; i < ARRAY_SIZE(addrs); i++) {
		unsigned long words[] = {
			i < ARRAY_SIZE(addrs) - 1 ? addrs[i + 1] : 0, TEXT(i),
		};

		for (j = 0; j < ARRAY_SIZE(words); j++) {
			unsigned long addr = addrs[i] + j * word;

			if ((addr - STACK) / PAGE_SIZE & 1)
				addr += ALIAS - STACK;
			put_word(test, word, addr, words[j]);
		}
	}

	for (i = 0; i < FAULT_PAGES; i++)
		KUNIT_ASSERT_EQ(test, !(i & 1), present(STACK + i * PAGE_SIZE));

	regs = start_regs(word, addrs[0], addrs[0]);
	expect_ladder(test, walk(test, &regs, MAX_ENTRIES), ARRAY_SIZE(addrs) + 1);

	/* And now that all is present. */
	for (i = 0; i < FAULT_PAGES; i++)
		KUNIT_EXPECT_TRUE(test, present(STACK + i * PAGE_SIZE));
	expect_ladder(test, walk(test, &regs, MAX_ENTRIES), ARRAY_SIZE(addrs) + 1);
}

static void unwind_user_fault_64(struct kunit *test)
{
	test_fault(test, 8);
}

static void unwind_user_fault_32(struct kunit *test)
{
	test_fault(test, 4);
}

/* The room is used up by a record that has to be paged in, or right before. */
static void unwind_user_fault_max(struct kunit *test)
{
	struct file *file = new_file(test, PAGE_SIZE);
	unsigned long fp = STACK + PAGE_SIZE - 2 * LADDER_STEP;
	struct unwind_user_regs regs = start_regs(8, fp, fp);
	unsigned int max;

	for (max = 1; max <= 6; max++) {
		map(test, file, ALIAS, PAGE_SIZE, PROT_READ | PROT_WRITE, 0);
		map_stack(test, STACK, PAGE_SIZE);
		map(test, file, STACK + PAGE_SIZE, PAGE_SIZE,
		    PROT_READ | PROT_WRITE, 0);
		put_record(test, 8, fp, fp + LADDER_STEP, TEXT(0));
		put_record(test, 8, fp + LADDER_STEP, STACK + PAGE_SIZE, TEXT(1));
		put_record(test, 8, ALIAS, STACK + PAGE_SIZE + LADDER_STEP, TEXT(2));
		put_record(test, 8, ALIAS + LADDER_STEP, 0, TEXT(3));
		KUNIT_ASSERT_FALSE(test, present(STACK + PAGE_SIZE));
		expect_ladder(test, walk(test, &regs, max), min(max, 5U));
	}
}

static void test_max(struct kunit *test, unsigned int word)
{
	unsigned long fp = map_stack(test, STACK, PAGE_SIZE) + 64;
	struct unwind_user_regs regs = start_regs(word, fp, fp);
	unsigned int max;

	put_ladder(test, word, fp, 20);
	for (max = 0; max <= 23; max++)
		expect_ladder(test, walk(test, &regs, max), min(max, 21U));
}

static void unwind_user_max(struct kunit *test)
{
	test_max(test, 8);
	test_max(test, 4);
}

/* A stack of a kind that nobody knows. */
static void unwind_user_no_word(struct kunit *test)
{
	unsigned long fp = map_stack(test, STACK, PAGE_SIZE) + 64;
	struct unwind_user_regs regs = start_regs(8, fp, fp);

	put_ladder(test, 8, fp, 3);
	regs.word = 0;
	KUNIT_EXPECT_EQ(test, 0, walk(test, &regs, 16).nr);
}

static void test_at_entry(struct kunit *test, unsigned int word)
{
	const unsigned long expected[] = { START_IP, CALLER, TEXT(0), TEXT(1) };
	unsigned long mem = map_stack(test, STACK, PAGE_SIZE);
	struct unwind_user_regs regs;
	unsigned int max;

	put_ladder(test, word, mem + 64, 2);
	put_word(test, word, mem + 32, CALLER);

	regs = start_regs(word, mem + 32, mem + 64);
	expect_ladder(test, walk(test, &regs, 16), 3);
	regs.at_entry = true;
	for (max = 1; max < 6; max++)
		expect_entries(test, walk(test, &regs, max), expected, min(max, 4U));

	/* The caller's record can be right above. */
	regs.sp = mem + 64 - word;
	put_word(test, word, regs.sp, CALLER);
	expect_entries(test, walk(test, &regs, 16), expected, 4);

	/* But the return address is no part of it. */
	regs.sp = mem + 64;
	put_word(test, word, mem + 64, CALLER);
	expect_entries(test, walk(test, &regs, 16), expected, 2);
}

static void unwind_user_at_entry(struct kunit *test)
{
	test_at_entry(test, 8);
	test_at_entry(test, 4);
}

static void test_at_entry_bad(struct kunit *test, unsigned int word)
{
	unsigned long mem = map_stack(test, STACK, 3 * PAGE_SIZE);
	struct unwind_user_regs regs = start_regs(word, mem, mem + 64);
	const unsigned long expected[] = { START_IP, CALLER, TEXT(0), TEXT(1) };
	struct file *file;

	regs.at_entry = true;
	put_ladder(test, word, mem + 64, 2);

	/* A trace with the caller left out is a wrong one. */
	put_word(test, word, regs.sp, 10);
	expect_entries(test, walk(test, &regs, 16), expected, 1);
	put_word(test, word, regs.sp, 0);
	expect_entries(test, walk(test, &regs, 16), expected, 1);
	regs.sp = mem - word;
	expect_entries(test, walk(test, &regs, 16), expected, 1);
	if (word == 8) {
		put_word(test, word, mem, (unsigned long)&walk);
		regs.sp = mem;
		expect_entries(test, walk(test, &regs, 16), expected, 1);
		regs.sp = (unsigned long)&expected[1];
		regs.fp = 0;
		expect_entries(test, walk(test, &regs, 16), expected, 1);
	}

	/* It is paged in. */
	file = new_file(test, PAGE_SIZE);
	map(test, file, ALIAS, PAGE_SIZE, PROT_READ | PROT_WRITE, 0);
	map(test, file, STACK + PAGE_SIZE, PAGE_SIZE, PROT_READ | PROT_WRITE, 0);
	put_word(test, word, ALIAS, CALLER);
	put_ladder(test, word, STACK + 2 * PAGE_SIZE, 2);
	KUNIT_ASSERT_FALSE(test, present(STACK + PAGE_SIZE));
	regs.sp = STACK + PAGE_SIZE;
	regs.fp = STACK + 2 * PAGE_SIZE;
	expect_entries(test, walk(test, &regs, 16), expected, 4);
}

static void unwind_user_at_entry_bad(struct kunit *test)
{
	test_at_entry_bad(test, 8);
	test_at_entry_bad(test, 4);
}

/* An mm that a kernel thread uses does not make it a user task. */
static void unwind_user_kthread(struct kunit *test)
{
	unsigned long entries[4];
	struct unwind_stacktrace trace = { .nr = 4, .entries = entries };

	KUNIT_EXPECT_EQ(test, -EINVAL, unwind_user(&trace, ARRAY_SIZE(entries)));
	KUNIT_EXPECT_EQ(test, 0, trace.nr);

	map_stack(test, 0, PAGE_SIZE);
	trace.nr = 4;
	KUNIT_EXPECT_EQ(test, -EINVAL, unwind_user(&trace, ARRAY_SIZE(entries)));
	KUNIT_EXPECT_EQ(test, 0, trace.nr);
}

/* From where the task entered the kernel. */
static void unwind_user_of_the_task(struct kunit *test)
{
	unsigned long stack = map_stack(test, STACK, PAGE_SIZE), entries[4];
	struct unwind_stacktrace trace = { .nr = 0, .entries = entries };
	struct pt_regs *regs = task_pt_regs(current), old = *regs;
	int ret;

	put_ladder(test, 8, stack + LADDER_STEP, 8);
	regs->ip = START_IP;
	regs->sp = stack;
	regs->bp = stack + LADDER_STEP;
	regs->cs = __USER_CS;
	regs->ss = __USER_DS;

	/* No tick may take it for a task that is on its way to user space. */
	scoped_guard(irqsave) {
		pagefault_disable();
		current->flags &= ~PF_KTHREAD;
		ret = unwind_user(&trace, ARRAY_SIZE(entries));
		current->flags |= PF_KTHREAD;
		pagefault_enable();
	}
	*regs = old;
	KUNIT_EXPECT_EQ(test, 0, ret);
	expect_ladder(test, trace, ARRAY_SIZE(entries));
}

/*
 * K23, as seen by a BPF program that asks for a task's stack, which takes a kernel that
 * describes its types, or a call from here. A module has no way to that.
 */
#if defined(CONFIG_BPF_SYSCALL) && defined(CONFIG_PERF_EVENTS) && !defined(MODULE)
static long task_stack(struct task_struct *task, u64 *buf, u32 size, u64 flags)
{
	memset(buf, 0x5a, size);
	/* As a program is run. */
	guard(rcu)();
	return bpf_get_task_stack_proto.func((unsigned long)task, (unsigned long)buf, size,
					     flags, 0);
}

static void unwind_user_bpf_task_stack(struct kunit *test)
{
	unsigned long stack = map_stack(test, STACK, PAGE_SIZE);
	struct pt_regs *regs = task_pt_regs(current), old = *regs;
	unsigned int i, nr = 4;
	u64 buf[16];
	long len;

	/* As the verifier does for a program that calls it. */
	KUNIT_ASSERT_EQ(test, 0, get_callchain_buffers(sysctl_perf_event_max_stack));

	/* A kernel thread has none, and another task's is not to be had. */
	KUNIT_EXPECT_EQ(test, -EFAULT,
			task_stack(current, buf, sizeof(buf), BPF_F_USER_STACK));
	KUNIT_EXPECT_EQ(test, -EFAULT,
			task_stack(&init_task, buf, sizeof(buf), BPF_F_USER_STACK));

	put_ladder(test, 8, stack + LADDER_STEP, nr);
	regs->ip = START_IP;
	regs->sp = stack;
	regs->bp = stack + LADDER_STEP;
	regs->cs = __USER_CS;
	regs->ss = __USER_DS;

	/* No marker, no cookie, the addresses alone, also where some are left out. */
	len = task_stack(current, buf, sizeof(buf), BPF_F_USER_STACK);
	KUNIT_EXPECT_EQ(test, (nr + 1) * sizeof(*buf), len);
	for (i = 0; i <= nr; i++)
		KUNIT_EXPECT_EQ_MSG(test, i ? TEXT(i - 1) : START_IP, buf[i], "entry %u", i);
	len = task_stack(current, buf, 2 * sizeof(*buf), BPF_F_USER_STACK | 1);
	KUNIT_EXPECT_EQ(test, 2 * sizeof(*buf), len);
	KUNIT_EXPECT_EQ(test, TEXT(0), buf[0]);
	KUNIT_EXPECT_EQ(test, TEXT(1), buf[1]);

	*regs = old;

	/* The kernel's part has nothing of the user's either. */
	if (IS_ENABLED(CONFIG_STACKTRACE)) {
		len = task_stack(current, buf, sizeof(buf), 0);
		KUNIT_EXPECT_LT(test, 0, len);
		for (i = 0; len > 0 && i < len / sizeof(*buf); i++)
			KUNIT_EXPECT_TRUE_MSG(test, __kernel_text_address(buf[i]),
					      "entry %u: %#llx", i, buf[i]);
	}
	put_callchain_buffers();
}
#endif

static struct kunit_case unwind_user_cases[] = {
	KUNIT_CASE(unwind_user_ladder_64),
	KUNIT_CASE(unwind_user_ladder_32),
	KUNIT_CASE(unwind_user_segments),
	KUNIT_CASE(unwind_user_segment_bases),
	KUNIT_CASE_PARAM(unwind_user_bad_chain, bad_chain_gen_params),
	KUNIT_CASE(unwind_user_fault_64),
	KUNIT_CASE(unwind_user_fault_32),
	KUNIT_CASE(unwind_user_fault_max),
	KUNIT_CASE(unwind_user_max),
	KUNIT_CASE(unwind_user_no_word),
	KUNIT_CASE(unwind_user_at_entry),
	KUNIT_CASE(unwind_user_at_entry_bad),
	KUNIT_CASE(unwind_user_kthread),
	KUNIT_CASE(unwind_user_of_the_task),
#if defined(CONFIG_BPF_SYSCALL) && defined(CONFIG_PERF_EVENTS) && !defined(MODULE)
	KUNIT_CASE(unwind_user_bpf_task_stack),
#endif
	{}
};

static struct kunit_suite unwind_user_suite = {
	.name		= "unwind_user",
	.test_cases	= unwind_user_cases,
};

/*
 * unwind_deferred
 */

/* Bits that are given to clients last, so that nobody has them. */
enum { A = UNWIND_CLIENTS - 3, B, C };

/**
 * struct deferred - a task, as far as requests go
 * @info:	what the code under test knows of it
 * @regs:	its user registers
 */
struct deferred {
	struct unwind_task_info info;
	struct unwind_user_regs regs;
};

static bool is_marked(void)
{
	return arch_unwind_entry_marked();
}

/* The thread does not really return, so the test does what would be done then. */
static void return_to_user(void)
{
	if (IS_ENABLED(CONFIG_COMPAT)) {
		current_thread_info()->status &= ~(TS_UNWIND | TS_UNWIND_ASKED);
	} else {
		clear_thread_flag(TIF_UNWIND);
		clear_thread_flag(TIF_UNWIND_ASKED);
	}
}

static void set_marks(bool marked, bool asked)
{
	return_to_user();
	if (marked)
		arch_unwind_entry_mark();
	if (asked)
		arch_unwind_entry_ask();
}

/* A ptrace stop, say, has changed them. */
static void move_regs(struct deferred *d)
{
	d->regs.ip += 2;
	d->regs.sp -= 128;
}

static int ask(struct deferred *d, unsigned int bit, u64 *cookie)
{
	return unwind_request(&d->info, bit, &d->regs, false, cookie);
}

/* The task's own exit work: who waited? */
static u64 take(struct deferred *d, struct unwind_user_regs *regs, u64 *cookie)
{
	return unwind_take(&d->info, false, regs, cookie) & UNWIND_WAITS_MASK;
}

static bool nobody_waits(struct deferred *d)
{
	return !(d->info.state & UNWIND_WAITS_MASK);
}

static void expect_regs(struct kunit *test, const struct unwind_user_regs *expected,
			const struct unwind_user_regs *regs)
{
	KUNIT_EXPECT_EQ(test, expected->ip, regs->ip);
	KUNIT_EXPECT_EQ(test, expected->sp, regs->sp);
	KUNIT_EXPECT_EQ(test, expected->fp, regs->fp);
}

static void deferred_start(struct deferred *d)
{
	memset(d, 0, sizeof(*d));
	d->regs = start_regs(8, 0x7ff0001000, 0x7ff0001040);
	return_to_user();
}

static int deferred_init(struct kunit *test)
{
	test->priv = kunit_kzalloc(test, sizeof(struct deferred), GFP_KERNEL);
	if (!test->priv)
		return -ENOMEM;
	deferred_start(test->priv);
	return 0;
}

static void deferred_exit(struct kunit *test)
{
	WRITE_ONCE(unwind_test_hook, NULL);
	/* Requests of others that have seen it. */
	synchronize_rcu();
}

static void deferred_suite_exit(struct kunit_suite *suite)
{
	/* The walks of others: they may have been preempted in the hook's function. */
	synchronize_rcu_tasks();
}

static void unwind_deferred_one_entry(struct kunit *test)
{
	struct deferred *d = test->priv;
	struct unwind_user_regs regs;
	u64 first, cookie;

	KUNIT_EXPECT_EQ(test, UNWIND_QUEUE, ask(d, A, &first));
	KUNIT_EXPECT_NE(test, 0ULL, first);
	KUNIT_EXPECT_EQ(test, 1, ask(d, A, &cookie));
	KUNIT_EXPECT_EQ(test, first, cookie);
	KUNIT_EXPECT_EQ(test, 0, ask(d, B, &cookie));
	KUNIT_EXPECT_EQ(test, first, cookie);
	KUNIT_EXPECT_EQ(test, 1, ask(d, B, &cookie));
	KUNIT_EXPECT_EQ(test, first, cookie);

	KUNIT_EXPECT_EQ(test, UNWIND_WAITS(A) | UNWIND_WAITS(B),
			take(d, &regs, &cookie));
	KUNIT_EXPECT_EQ(test, first, cookie);
	expect_regs(test, &d->regs, &regs);
	KUNIT_EXPECT_TRUE(test, nobody_waits(d));

	/* They have had it; one more has not, and is alone with that. */
	KUNIT_EXPECT_EQ(test, 1, ask(d, A, &cookie));
	KUNIT_EXPECT_EQ(test, first, cookie);
	KUNIT_EXPECT_TRUE(test, nobody_waits(d));
	KUNIT_EXPECT_EQ(test, UNWIND_QUEUE, ask(d, C, &cookie));
	KUNIT_EXPECT_EQ(test, first, cookie);
	KUNIT_EXPECT_EQ(test, 1, ask(d, B, &cookie));
	KUNIT_EXPECT_EQ(test, first, cookie);
	KUNIT_EXPECT_EQ(test, UNWIND_WAITS(C), take(d, &regs, &cookie));
	KUNIT_EXPECT_EQ(test, first, cookie);
	KUNIT_EXPECT_TRUE(test, nobody_waits(d));
}

static void unwind_deferred_next_entry(struct kunit *test)
{
	struct deferred *d = test->priv;
	struct unwind_user_regs regs;
	u64 last = 0, cookie, taken;
	unsigned int i;

	/* The same system call again and again: its registers do not differ. */
	for (i = 0; i < 10; i++) {
		KUNIT_EXPECT_EQ(test, UNWIND_QUEUE, ask(d, i & 2 ? A : B, &cookie));
		KUNIT_EXPECT_NE(test, 0ULL, cookie);
		KUNIT_EXPECT_NE(test, last, cookie);
		KUNIT_EXPECT_EQ(test, i & 2 ? UNWIND_WAITS(A) : UNWIND_WAITS(B),
				take(d, &regs, &taken));
		KUNIT_EXPECT_EQ(test, cookie, taken);
		KUNIT_EXPECT_EQ(test, 1, ask(d, i & 2 ? A : B, &taken));
		KUNIT_EXPECT_EQ(test, cookie, taken);
		return_to_user();
		last = cookie;
	}
}

static void unwind_deferred_moved(struct kunit *test)
{
	struct deferred *d = test->priv;
	struct unwind_user_regs before = d->regs, regs;
	u64 first, second, cookie;

	KUNIT_EXPECT_EQ(test, UNWIND_QUEUE, ask(d, A, &first));
	move_regs(d);
	KUNIT_EXPECT_EQ(test, -EAGAIN, ask(d, A, &cookie));
	KUNIT_EXPECT_EQ(test, -EAGAIN, ask(d, B, &cookie));

	/* What was asked for is had, from where it was asked for. */
	KUNIT_EXPECT_EQ(test, UNWIND_WAITS(A), take(d, &regs, &cookie));
	KUNIT_EXPECT_EQ(test, first, cookie);
	expect_regs(test, &before, &regs);

	KUNIT_EXPECT_EQ(test, UNWIND_QUEUE, ask(d, A, &second));
	KUNIT_EXPECT_NE(test, 0ULL, second);
	KUNIT_EXPECT_NE(test, first, second);
	KUNIT_EXPECT_EQ(test, 0, ask(d, B, &cookie));
	KUNIT_EXPECT_EQ(test, second, cookie);
	KUNIT_EXPECT_EQ(test, UNWIND_WAITS(A) | UNWIND_WAITS(B),
			take(d, &regs, &cookie));
	KUNIT_EXPECT_EQ(test, second, cookie);
	expect_regs(test, &d->regs, &regs);

	/* And back. */
	d->regs = before;
	KUNIT_EXPECT_EQ(test, UNWIND_QUEUE, ask(d, A, &cookie));
	KUNIT_EXPECT_NE(test, first, cookie);
	KUNIT_EXPECT_NE(test, second, cookie);
}

/* Each of the four tells one stack from another. */
static void unwind_deferred_moved_each(struct kunit *test)
{
	struct deferred *d = test->priv;
	unsigned int i;
	u64 cookie;

	for (i = 0; i < 4; i++) {
		deferred_start(d);
		KUNIT_EXPECT_EQ(test, UNWIND_QUEUE, ask(d, A, &cookie));
		KUNIT_EXPECT_EQ(test, 0, ask(d, B, &cookie));
		if (i == 0)
			d->regs.ip++;
		else if (i == 1)
			d->regs.sp++;
		else if (i == 2)
			d->regs.fp++;
		else
			/* From the same addresses: it says where the caller's is. */
			d->regs.at_entry = !d->regs.at_entry;
		KUNIT_EXPECT_EQ(test, -EAGAIN, ask(d, C, &cookie));
	}
}

/*
 * A request on the way out comes behind the exit loop, and the work runs in the
 * next entry. That entry's stack may be had under the same name where an NMI
 * queued the work and the registers are the same. Else it may not, whoever asks,
 * and whether before the walk or after it.
 */
static void unwind_deferred_late(struct kunit *test)
{
	struct deferred *d = test->priv;
	struct unwind_user_regs then, now;
	unsigned int i;
	u64 first, cookie, state;

	for (i = 0; i < 2; i++) {
		bool nmi = i;

		deferred_start(d);
		KUNIT_EXPECT_EQ(test, UNWIND_QUEUE,
				unwind_request(&d->info, A, &d->regs, nmi, &first));
		/* One that comes too does not change who queued the work. */
		KUNIT_EXPECT_EQ(test, 0,
				unwind_request(&d->info, B, &d->regs, !nmi, &cookie));
		return_to_user();
		KUNIT_EXPECT_EQ(test, nmi ? 1 : -EAGAIN, ask(d, A, &cookie));
		if (nmi)
			KUNIT_EXPECT_EQ(test, first, cookie);
		else
			KUNIT_EXPECT_EQ(test, -EAGAIN, ask(d, C, &cookie));
		state = unwind_take(&d->info, !nmi, &then, &cookie);

		KUNIT_EXPECT_EQ(test, UNWIND_WAITS(A) | UNWIND_WAITS(B),
				state & UNWIND_WAITS_MASK);
		KUNIT_EXPECT_EQ(test, first, cookie);

		now = then;
		KUNIT_EXPECT_FALSE(test, unwind_late(state, &then, &now));
		now.ip++;
		KUNIT_EXPECT_EQ(test, nmi, unwind_late(state, &then, &now));
		now = then;
		now.sp++;
		KUNIT_EXPECT_EQ(test, nmi, unwind_late(state, &then, &now));
		now = then;
		now.fp++;
		KUNIT_EXPECT_EQ(test, nmi, unwind_late(state, &then, &now));

		if (nmi) {
			/* That was it, for this entry. */
			KUNIT_EXPECT_EQ(test, 1, ask(d, A, &cookie));
			KUNIT_EXPECT_EQ(test, first, cookie);
		} else {
			KUNIT_EXPECT_EQ(test, UNWIND_QUEUE, ask(d, A, &cookie));
			KUNIT_EXPECT_NE(test, first, cookie);
			take(d, &then, &cookie);
		}
		/* The NMI's part is over when its work has run. */
		KUNIT_EXPECT_EQ(test, UNWIND_QUEUE, ask(d, C, &cookie));
		state = unwind_take(&d->info, false, &then, &cookie);
		KUNIT_EXPECT_FALSE(test, unwind_late(state, &then, &now));

		return_to_user();
		KUNIT_EXPECT_EQ(test, UNWIND_QUEUE, ask(d, A, &cookie));
		KUNIT_EXPECT_NE(test, first, cookie);
	}
}

/*
 * Interleavings. What runs in between is always nested and complete, so they are
 * given by the points at which requests are interrupted by which others.
 */

/**
 * struct start - what requests find
 * @name:	what
 * @asked:	clients whose stack has been handed out; a bit each, see bit_of()
 * @wait:	clients that wait, having asked after that
 * @nmi:	those who wait are an NMI's
 * @left:	the task has returned to user space since
 * @moved:	the registers have changed since
 * @stale:	the bit of client A has a new owner since
 * @floor:	how many interleavings there are at least
 */
struct start {
	const char	*name;
	unsigned int	asked;
	unsigned int	wait;
	bool		nmi;
	bool		left;
	bool		moved;
	bool		stale;
	unsigned int	floor;
};

#define HAS_A	BIT(0)
#define HAS_B	BIT(1)
#define HAS_C	BIT(2)
#define HAS_ALL	(HAS_A | HAS_B | HAS_C)

static const struct start starts[] = {
	{ "closed", .floor = 500 },
	{ "left, A asked", HAS_A, .left = true, .floor = 500 },
	{ "left, B asked", HAS_B, .left = true, .floor = 500 },
	{ "left, all asked", HAS_ALL, .left = true, .floor = 500 },
	{ "left, A asked, moved", HAS_A, .left = true, .moved = true, .floor = 500 },
	{ "left, B asked, moved", HAS_B, .left = true, .moved = true, .floor = 500 },
	{ "left, all asked, moved", HAS_ALL, .left = true, .moved = true,
	  .floor = 500 },
	{ "done, A asked", HAS_A, .floor = 80 },
	{ "done, B asked", HAS_B, .floor = 80 },
	{ "done, A and B asked", HAS_A | HAS_B, .floor = 80 },
	{ "done, all asked", HAS_ALL, .floor = 80 },
	{ "done, A asked, moved", HAS_A, .moved = true, .floor = 500 },
	{ "done, B asked, moved", HAS_B, .moved = true, .floor = 500 },
	{ "done, all asked, moved", HAS_ALL, .moved = true, .floor = 500 },
	{ "A waits", 0, HAS_A, .floor = 80 },
	{ "B waits", 0, HAS_B, .floor = 80 },
	{ "B and C wait", 0, HAS_B | HAS_C, .floor = 80 },
	{ "done, A asked, B waits", HAS_A, HAS_B, .floor = 80 },
	{ "done, B asked, A waits", HAS_B, HAS_A, .floor = 80 },
	{ "done, B asked, C waits for an NMI", HAS_B, HAS_C, .nmi = true,
	  .floor = 80 },
	{ "A waits since a late NMI", 0, HAS_A, .nmi = true, .left = true,
	  .floor = 80 },
	{ "B waits since a late NMI", 0, HAS_B, .nmi = true, .left = true,
	  .floor = 80 },
	{ "A waits since late", 0, HAS_A, .left = true, .floor = 80 },
	{ "B waits since late", 0, HAS_B, .left = true, .floor = 80 },
	{ "A waits, moved", 0, HAS_A, .moved = true, .floor = 80 },
	{ "B waits, moved", 0, HAS_B, .moved = true, .floor = 80 },
	{ "B waits since a late NMI, moved", 0, HAS_B, .nmi = true, .left = true,
	  .moved = true, .floor = 80 },
	{ "stale bit left", HAS_A, .left = true, .stale = true, .floor = 500 },
	{ "stale bit done", HAS_A, .stale = true, .floor = 80 },
	{ "stale bit done, B asked", HAS_A | HAS_B, .stale = true, .floor = 80 },
	{ "stale bit done, moved", HAS_A, .stale = true, .moved = true,
	  .floor = 500 },
	{ "stale bit waits", 0, HAS_A, .stale = true, .floor = 80 },
	{ "stale bit waits, B waits", 0, HAS_A | HAS_B, .stale = true, .floor = 80 },
	{ "stale bit asked, B waits", HAS_A, HAS_B, .stale = true, .floor = 80 },
};

KUNIT_ARRAY_PARAM_DESC(start, starts, name);

/**
 * struct nested - a request, and when it is made
 * @bit:	the client
 * @nmi:	in NMI
 * @parent:	the request that it interrupts
 * @point:	at which of that one's points
 * @made:	it has been made
 * @ret:	what it returned
 * @cookie:	and gave
 */
struct nested {
	unsigned int	bit;
	bool		nmi;
	unsigned int	parent;
	unsigned int	point;
	bool		made;
	int		ret;
	u64		cookie;
};

#define REQUESTS 3

/**
 * struct interleaving - requests that interrupt each other
 * @d:		the task
 * @req:	the requests; the first one interrupts nobody, or the task's own work
 * @nr:		how many
 * @now:	the one that runs
 * @points:	how many points it, and each that is interrupted, has passed
 * @wrong:	the first thing that did not come out right
 */
struct interleaving {
	struct deferred	d;
	struct nested	req[REQUESTS];
	unsigned int	nr;
	unsigned int	now;
	unsigned int	points[REQUESTS];
	const char	*wrong;
};

static struct interleaving *interleaving;

static void make_request(struct interleaving *il, unsigned int i)
{
	struct nested *req = &il->req[i];
	unsigned int interrupted = il->now;

	req->made = true;
	il->now = i;
	req->ret = unwind_request(&il->d.info, req->bit, &il->d.regs, req->nmi,
				  &req->cookie);
	il->now = interrupted;
}

static void interleave_hook(struct unwind_task_info *info)
{
	struct interleaving *il = READ_ONCE(interleaving);
	unsigned int self, point, i;

	/* Requests of others on the system pass here, too. */
	if (!il || info != &il->d.info)
		return;

	self = il->now;
	point = il->points[self]++;
	for (i = 1; i < il->nr; i++)
		if (!il->req[i].made && il->req[i].parent == self &&
		    il->req[i].point == point)
			make_request(il, i);
}

/* What was there before, and the clients. */
struct before {
	const struct start	*start;
	struct deferred		d;
	bool			marked;
	bool			asked_here;	/* as the second mark has it */
	unsigned int		bits[3];
	unsigned int		asked;	/* in a generation that lives */
	unsigned int		wait;
	u64			cookie;
};

static int ask_nmi(struct deferred *d, unsigned int bit, bool nmi)
{
	u64 cookie;

	return unwind_request(&d->info, bit, &d->regs, nmi, &cookie);
}

static void no_callback(struct unwind_work *work, struct unwind_stacktrace *trace,
			u64 cookie)
{
}

static void cancel_client(void *work)
{
	unwind_deferred_cancel(work);
}

/* One that registers, or is about to be. It is cancelled at the end. */
static struct unwind_work *new_client(struct kunit *test)
{
	struct unwind_work *work = kunit_kzalloc(test, sizeof(*work), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, work);
	work->bit = -1;
	KUNIT_ASSERT_EQ(test, 0,
			kunit_add_action_or_reset(test, cancel_client, work));
	return work;
}

static struct unwind_work *new_client_registered(struct kunit *test)
{
	struct unwind_work *work = new_client(test);

	KUNIT_ASSERT_EQ(test, 0, unwind_deferred_init(work, no_callback, 0));
	return work;
}

static void prepare(struct kunit *test, struct before *before,
		    const struct start *start)
{
	struct deferred *d = &before->d;
	struct unwind_work *old = NULL;
	struct unwind_user_regs regs;
	unsigned int i, bit;
	u64 cookie;

	before->start = start;
	before->bits[0] = A;
	before->bits[1] = B;
	before->bits[2] = C;
	deferred_start(d);

	if (start->stale) {
		old = new_client_registered(test);
		before->bits[0] = old->bit;
	}
	for (i = 0; i < 3; i++)
		if (start->asked & BIT(i))
			KUNIT_ASSERT_GE(test, ask_nmi(d, before->bits[i], false), 0);
	if (start->asked)
		KUNIT_ASSERT_NE(test, 0ULL, take(d, &regs, &cookie));
	for (i = 0; i < 3; i++)
		if (start->wait & BIT(i))
			KUNIT_ASSERT_GE(test,
					ask_nmi(d, before->bits[i], start->nmi), 0);

	if (start->left)
		return_to_user();
	if (start->moved)
		move_regs(d);
	before->asked = start->left && !start->wait ? 0 : start->asked | start->wait;
	if (start->moved)
		before->asked = 0;
	before->wait = start->wait;
	before->cookie = d->info.cookie;
	before->marked = is_marked();
	before->asked_here = arch_unwind_entry_asked(current);

	if (start->stale) {
		bit = old->bit;
		unwind_deferred_cancel(old);
		old = new_client_registered(test);
		KUNIT_ASSERT_EQ(test, bit, old->bit);
		before->asked &= ~HAS_A;
	}
}

/* The clients of @state, in the order of @bits. */
static unsigned int waiting(u64 state, const unsigned int *bits)
{
	unsigned int i, wait = 0;

	for (i = 0; i < 3; i++)
		if (state & UNWIND_WAITS(bits[i]))
			wait |= BIT(i);
	return wait;
}

static unsigned int index_of(const struct before *before, unsigned int bit)
{
	unsigned int i;

	for (i = 0; i < 2 && before->bits[i] != bit; i++)
		;
	return i;
}

static void note_wrong(struct interleaving *il, bool right, const char *what)
{
	if (!right && !il->wrong)
		il->wrong = what;
}

#define CHECK(il, what) note_wrong(il, what, #what)

/* Is all that has come of the requests right? */
static void check(struct interleaving *il, const struct before *before)
{
	struct unwind_user_regs regs, other;
	unsigned int asked[3] = {}, served[3] = {};
	unsigned int i, client, queued = 0, wait = 0;
	bool late = before->start->nmi;
	u64 cookie, taken, state;
	int ret;

	if (before->wait && (before->start->moved ||
			     (before->start->left && !before->start->nmi))) {
		for (i = 0; i < il->nr; i++)
			CHECK(il, il->req[i].ret == -EAGAIN);
		CHECK(il, il->d.info.state == before->d.info.state);
		CHECK(il, il->d.info.cookie == before->cookie);
		return;
	}

	/* All get the same name; that of what was there, if that lives. */
	cookie = il->req[0].cookie;
	CHECK(il, cookie);
	if (before->wait || (before->marked && !before->start->moved))
		CHECK(il, cookie == before->cookie);
	else
		CHECK(il, cookie != before->cookie);

	for (i = 0; i < il->nr; i++) {
		CHECK(il, il->req[i].ret >= 0);
		CHECK(il, il->req[i].cookie == cookie);
		client = index_of(before, il->req[i].bit);
		asked[client]++;
		if (il->req[i].ret != 1)
			served[client]++;
		if (il->req[i].ret == UNWIND_QUEUE) {
			queued++;
			late = il->req[i].nmi;
		}
	}

	/* One request of each client counts, unless one had before. */
	for (client = 0; client < 3; client++) {
		bool first = asked[client] && !(before->asked & BIT(client));

		CHECK(il, served[client] == first);
		if (first)
			wait |= BIT(client);
	}
	/* The work is queued by one. */
	CHECK(il, queued == (wait && !before->wait));

	state = unwind_take(&il->d.info, false, &regs, &taken);
	CHECK(il, waiting(state, before->bits) ==
	      (wait | (before->start->stale ? before->wait & ~HAS_A : before->wait)));
	if (state & UNWIND_WAITS_MASK) {
		CHECK(il, taken == cookie);
		CHECK(il, regs.ip == il->d.regs.ip);
		CHECK(il, regs.sp == il->d.regs.sp);
		CHECK(il, regs.fp == il->d.regs.fp);
		CHECK(il, regs.word == il->d.regs.word);
		other = regs;
		other.sp--;
		CHECK(il, unwind_late(state, &regs, &other) == late);
		CHECK(il, !unwind_late(state, &regs, &regs));
	}
	CHECK(il, nobody_waits(&il->d));

	/* The entry goes on, and its stack has been had. */
	for (i = 0; i < il->nr; i++) {
		CHECK(il, ask(&il->d, il->req[i].bit, &taken) == 1);
		CHECK(il, taken == cookie);
	}
	CHECK(il, nobody_waits(&il->d));

	/* Not in the next. */
	return_to_user();
	for (i = 0; i < il->nr; i++) {
		ret = ask(&il->d, il->req[i].bit, &taken);
		CHECK(il, i || ret == UNWIND_QUEUE);
		CHECK(il, taken != cookie);
	}
}

static void report(struct kunit *test, const struct interleaving *il)
{
	unsigned int i;

	KUNIT_FAIL(test, "wrong: %s", il->wrong);
	for (i = 0; i < il->nr; i++)
		kunit_info(test, "request %u: bit %u%s in %u at %u: %d, cookie %llx\n",
			   i, il->req[i].bit, il->req[i].nmi ? " (NMI)" : "",
			   il->req[i].parent, il->req[i].point, il->req[i].ret,
			   il->req[i].cookie);
	kunit_info(test, "state %llx, cookie %llx\n", il->d.info.state,
		   il->d.info.cookie);
}

/* Runs what @il says, from @before. False: something came out wrong. */
static bool interleave(struct kunit *test, struct interleaving *il,
		       const struct before *before)
{
	unsigned int i;

	il->d = before->d;
	set_marks(before->marked, before->asked_here);
	il->now = 0;
	il->wrong = NULL;
	memset(il->points, 0, sizeof(il->points));
	for (i = 0; i < il->nr; i++) {
		il->req[i].made = false;
		il->req[i].ret = 0;
		il->req[i].cookie = 0;
	}

	WRITE_ONCE(interleaving, il);
	make_request(il, 0);
	WRITE_ONCE(interleaving, NULL);

	/* That was the last point of one of them. */
	for (i = 1; i < il->nr; i++)
		if (!il->req[i].made)
			return true;
	check(il, before);
	if (il->wrong)
		report(test, il);
	return !il->wrong;
}

/* All points of all who can be interrupted. False: one came out wrong. */
static bool interleave_all(struct kunit *test, struct interleaving *il,
			   const struct before *before, unsigned int *count)
{
	il->nr = 2;
	il->req[1].parent = 0;
	il->req[1].nmi = true;
	for (il->req[1].point = 0; ; il->req[1].point++) {
		if (!interleave(test, il, before))
			return false;
		if (!il->req[1].made)
			break;
		++*count;
	}

	/* The third one interrupts the second, which is no NMI then, ... */
	il->nr = 3;
	il->req[2].parent = 1;
	il->req[2].nmi = true;
	il->req[1].nmi = false;
	for (il->req[1].point = 0; ; il->req[1].point++) {
		for (il->req[2].point = 0; ; il->req[2].point++) {
			if (!interleave(test, il, before))
				return false;
			if (!il->req[2].made)
				break;
			++*count;
		}
		if (!il->req[1].made)
			break;
	}

	/* ... or comes after it. */
	il->req[2].parent = 0;
	il->req[1].nmi = true;
	for (il->req[1].point = 0; ; il->req[1].point++) {
		il->req[2].point = il->req[1].point;
		for (; ; il->req[2].point++) {
			if (!interleave(test, il, before))
				return false;
			if (!il->req[2].made)
				break;
			++*count;
		}
		if (!il->req[1].made)
			break;
	}
	return true;
}

static void unwind_deferred_interleave(struct kunit *test)
{
	const struct start *start = test->param_value;
	struct interleaving *il;
	struct before *before;
	unsigned int count = 0, i, j;

	il = kunit_kzalloc(test, sizeof(*il), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, il);
	before = kunit_kzalloc(test, sizeof(*before), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, before);
	prepare(test, before, start);

	WRITE_ONCE(unwind_test_hook, interleave_hook);
	il->req[0].bit = before->bits[0];
	for (i = 0; i < 3; i++) {
		for (j = 0; j < 3; j++) {
			il->req[1].bit = before->bits[i];
			il->req[2].bit = before->bits[j];
			if (!interleave_all(test, il, before, &count))
				return;
		}
	}
	WRITE_ONCE(unwind_test_hook, NULL);

	kunit_info(test, "%u interleavings\n", count);
	KUNIT_EXPECT_GE(test, count, start->floor);
}

/*
 * Requests that interrupt the task's own work while it takes those who wait: they
 * are among them, or wait for another walk of the same stack.
 */
static void check_take(struct interleaving *il, u64 taken, u64 cookie)
{
	unsigned int queued = 0, client, i;
	unsigned int served[3] = {};
	struct unwind_user_regs regs;
	u64 again, state;

	for (i = 1; i < il->nr; i++) {
		const struct nested *req = &il->req[i];

		CHECK(il, req->ret >= 0);
		CHECK(il, req->cookie == cookie);
		if (req->ret != 1)
			served[req->bit - A]++;
		if (req->ret == UNWIND_QUEUE)
			queued++;
	}

	state = il->d.info.state;
	for (client = A; client <= C; client++) {
		unsigned int waits = !!(taken & UNWIND_WAITS(client)) +
				     !!(state & UNWIND_WAITS(client));

		/* A waited from the start. */
		CHECK(il, served[client - A] <= (client != A));
		/* Either here or there, and once. */
		CHECK(il, waits == (client == A || served[client - A]));
	}
	CHECK(il, taken & UNWIND_WAITS(A));
	CHECK(il, queued == !nobody_waits(&il->d));

	CHECK(il, take(&il->d, &regs, &again) == (state & UNWIND_WAITS_MASK));
	CHECK(il, again == cookie);
	CHECK(il, regs.ip == il->d.regs.ip && regs.sp == il->d.regs.sp);
	CHECK(il, nobody_waits(&il->d));
}

/* False: something came out wrong. Counts in @count those with both requests. */
static bool interrupt_take(struct kunit *test, struct interleaving *il, bool marked,
			   unsigned int *count)
{
	struct unwind_user_regs regs;
	u64 cookie, taken, first;
	unsigned int i;

	deferred_start(&il->d);
	KUNIT_ASSERT_EQ(test, UNWIND_QUEUE, ask(&il->d, A, &first));
	set_marks(marked, true);
	il->now = 0;
	il->wrong = NULL;
	memset(il->points, 0, sizeof(il->points));
	for (i = 1; i < il->nr; i++)
		il->req[i].made = false;

	WRITE_ONCE(interleaving, il);
	taken = take(&il->d, &regs, &cookie);
	WRITE_ONCE(interleaving, NULL);

	CHECK(il, cookie == first);
	CHECK(il, regs.ip == il->d.regs.ip && regs.sp == il->d.regs.sp);
	if (il->req[2].made) {
		check_take(il, taken, cookie);
		++*count;
	}
	if (il->wrong)
		report(test, il);
	return !il->wrong;
}

static void unwind_deferred_interrupted_take(struct kunit *test)
{
	unsigned int count = 0, i;
	struct interleaving *il;

	il = kunit_kzalloc(test, sizeof(*il), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, il);
	WRITE_ONCE(unwind_test_hook, interleave_hook);
	il->nr = 3;

	/* Three clients for the one, three for the other, the mark lost or not. */
	for (i = 0; i < 3 * 3 * 2; i++) {
		il->req[1] = (struct nested) { .bit = A + i % 3, .nmi = true };
		il->req[2] = (struct nested) { .bit = A + i / 3 % 3, .nmi = true };
		do {
			il->req[2].point = il->req[1].point;
			do {
				if (!interrupt_take(test, il, i / 9, &count))
					return;
				il->req[2].point++;
			} while (il->req[2].made);
			il->req[1].point++;
		} while (il->req[1].made);
	}

	kunit_info(test, "%u interleavings\n", count);
	KUNIT_EXPECT_GE(test, count, 18 * 6);
}

/*
 * Bits that outlive their owners
 */

static void unwind_deferred_stale_waits(struct kunit *test)
{
	struct unwind_work *other = new_client_registered(test);
	struct unwind_work *old = new_client_registered(test);
	struct deferred *d = test->priv;
	struct unwind_user_regs regs;
	struct unwind_work *new;
	int bit = old->bit;
	u64 first, cookie, state;

	KUNIT_ASSERT_EQ(test, UNWIND_QUEUE, ask(d, bit, &first));
	KUNIT_EXPECT_TRUE(test, unwind_waits(d->info.state, old, bit));
	KUNIT_EXPECT_FALSE(test, unwind_waits(d->info.state, other, other->bit));
	unwind_deferred_cancel(old);
	new = new_client_registered(test);
	KUNIT_ASSERT_EQ(test, bit, new->bit);

	KUNIT_EXPECT_FALSE(test, unwind_waits(d->info.state, new, bit));
	/* Nor when somebody else, who was there before, brings it up to date. */
	KUNIT_EXPECT_EQ(test, 0, ask(d, other->bit, &cookie));
	KUNIT_EXPECT_EQ(test, first, cookie);
	KUNIT_EXPECT_FALSE(test, unwind_waits(d->info.state, new, bit));
	KUNIT_EXPECT_TRUE(test, unwind_waits(d->info.state, other, other->bit));

	/* The new one is let in on its own account. */
	KUNIT_EXPECT_EQ(test, 0, ask(d, bit, &cookie));
	KUNIT_EXPECT_EQ(test, first, cookie);
	KUNIT_EXPECT_TRUE(test, unwind_waits(d->info.state, new, bit));
	KUNIT_EXPECT_EQ(test, 1, ask(d, bit, &cookie));
	state = unwind_take(&d->info, false, &regs, &cookie);
	KUNIT_EXPECT_TRUE(test, unwind_waits(state, new, bit));
	KUNIT_EXPECT_TRUE(test, unwind_waits(state, other, other->bit));
	KUNIT_EXPECT_TRUE(test, nobody_waits(d));
	KUNIT_EXPECT_EQ(test, 1, ask(d, bit, &cookie));
	KUNIT_EXPECT_EQ(test, first, cookie);

	unwind_deferred_cancel(new);
	unwind_deferred_cancel(other);
}

/* The old one has had the stack, the new one has not. */
static void unwind_deferred_stale_done(struct kunit *test)
{
	struct unwind_work *old = new_client_registered(test);
	struct deferred *d = test->priv;
	struct unwind_user_regs regs;
	struct unwind_work *new;
	int bit = old->bit;
	u64 first, cookie, state;

	KUNIT_ASSERT_EQ(test, UNWIND_QUEUE, ask(d, bit, &first));
	take(d, &regs, &cookie);
	unwind_deferred_cancel(old);
	new = new_client_registered(test);
	KUNIT_ASSERT_EQ(test, bit, new->bit);

	KUNIT_EXPECT_EQ(test, UNWIND_QUEUE, ask(d, bit, &cookie));
	KUNIT_EXPECT_EQ(test, first, cookie);
	state = unwind_take(&d->info, false, &regs, &cookie);
	KUNIT_EXPECT_TRUE(test, unwind_waits(state, new, bit));
	KUNIT_EXPECT_EQ(test, 1, ask(d, bit, &cookie));

	unwind_deferred_cancel(new);
}

/* Brought up to date between the one's end and the other's begin. */
static void unwind_deferred_stale_between(struct kunit *test)
{
	struct unwind_work *old = new_client_registered(test);
	struct unwind_work *other, *new;
	struct deferred *d = test->priv;
	int bit = old->bit;
	u64 cookie;

	KUNIT_ASSERT_EQ(test, UNWIND_QUEUE, ask(d, bit, &cookie));
	other = new_client_registered(test);
	unwind_deferred_cancel(old);
	KUNIT_EXPECT_EQ(test, 0, ask(d, other->bit, &cookie));
	new = new_client_registered(test);
	KUNIT_ASSERT_EQ(test, bit, new->bit);
	KUNIT_EXPECT_FALSE(test, unwind_waits(d->info.state, new, bit));
	KUNIT_EXPECT_EQ(test, 0, ask(d, bit, &cookie));
	KUNIT_EXPECT_TRUE(test, unwind_waits(d->info.state, new, bit));
	KUNIT_EXPECT_TRUE(test, unwind_waits(d->info.state, other, other->bit));

	unwind_deferred_cancel(new);
	unwind_deferred_cancel(other);
}

/* The same, for each place where the count of registrations can go around. */
static void unwind_deferred_stale_wrap(struct kunit *test)
{
	unsigned int i;

	for (i = 0; i < 4; i++) {
		deferred_start(test->priv);
		unwind_count_preset(-i);
		unwind_deferred_stale_waits(test);
		deferred_start(test->priv);
		unwind_count_preset(-i);
		unwind_deferred_stale_done(test);
		deferred_start(test->priv);
		unwind_count_preset(-i);
		unwind_deferred_stale_between(test);
	}
}

/*
 * Clients
 */

static void unwind_deferred_all_bits(struct kunit *test)
{
	/* perf has one. No profiler may run meanwhile. */
	const unsigned int room = UNWIND_CLIENTS - IS_ENABLED(CONFIG_PERF_EVENTS);
	struct unwind_work *works[UNWIND_CLIENTS], *more = new_client(test);
	unsigned long bits = 0;
	unsigned int i;
	int bit;

	for (i = 0; i < room; i++) {
		works[i] = new_client_registered(test);
		bit = works[i]->bit;
		KUNIT_ASSERT_GE(test, bit, 0);
		KUNIT_ASSERT_LT(test, bit, UNWIND_CLIENTS);
		KUNIT_EXPECT_FALSE(test, bits & BIT(bit));
		bits |= BIT(bit);
	}
	KUNIT_EXPECT_EQ(test, -EBUSY, unwind_deferred_init(more, no_callback, 0));
	KUNIT_EXPECT_EQ(test, -1, more->bit);
	/* That one has got nothing that it could give back. */
	unwind_deferred_cancel(more);
	KUNIT_EXPECT_EQ(test, -EBUSY, unwind_deferred_init(more, no_callback, 0));

	/* One goes, and there is room for one. */
	bit = works[room / 2]->bit;
	unwind_deferred_cancel(works[room / 2]);
	KUNIT_EXPECT_EQ(test, -1, works[room / 2]->bit);
	KUNIT_EXPECT_EQ(test, 0, unwind_deferred_init(more, no_callback, 0));
	KUNIT_EXPECT_EQ(test, bit, more->bit);
	KUNIT_EXPECT_EQ(test, -EBUSY,
			unwind_deferred_init(works[room / 2], no_callback, 0));

	/* All go, and all can come again. */
	unwind_deferred_cancel(more);
	for (i = 0; i < room; i++)
		unwind_deferred_cancel(works[i]);
	for (i = 0; i < room; i++)
		KUNIT_EXPECT_EQ(test, 0,
				unwind_deferred_init(works[i], no_callback, 0));
	KUNIT_EXPECT_EQ(test, -EBUSY, unwind_deferred_init(more, no_callback, 0));
}

static void unwind_deferred_cancel_twice(struct kunit *test)
{
	struct unwind_work *first = new_client_registered(test);
	struct unwind_work *second, *third;
	int bit = first->bit;

	unwind_deferred_cancel(first);
	KUNIT_EXPECT_EQ(test, -1, first->bit);
	unwind_deferred_cancel(first);
	KUNIT_EXPECT_EQ(test, -1, first->bit);

	/* Not even when somebody else has what it had. */
	second = new_client_registered(test);
	KUNIT_ASSERT_EQ(test, bit, second->bit);
	unwind_deferred_cancel(first);
	third = new_client_registered(test);
	KUNIT_EXPECT_EQ(test, bit, second->bit);
	KUNIT_EXPECT_NE(test, bit, third->bit);
}

static void unwind_deferred_init_max(struct kunit *test)
{
	struct unwind_work *work = new_client(test);

	KUNIT_EXPECT_EQ(test, -EINVAL,
			unwind_deferred_init(work, no_callback,
					     UNWIND_USER_MAX_ENTRIES + 1));
	KUNIT_EXPECT_EQ(test, -1, work->bit);
	KUNIT_EXPECT_EQ(test, -EINVAL,
			unwind_deferred_init(work, no_callback, UINT_MAX));
	KUNIT_EXPECT_EQ(test, -1, work->bit);
	unwind_deferred_cancel(work);

	KUNIT_ASSERT_EQ(test, 0,
			unwind_deferred_init(work, no_callback,
					     UNWIND_USER_MAX_ENTRIES));
	KUNIT_EXPECT_EQ(test, UNWIND_USER_MAX_ENTRIES, work->max);
	unwind_deferred_cancel(work);
	KUNIT_ASSERT_EQ(test, 0, unwind_deferred_init(work, no_callback, 0));
	KUNIT_EXPECT_EQ(test, UNWIND_USER_DEFAULT_ENTRIES, work->max);
}

static void unwind_deferred_kthread(struct kunit *test)
{
	struct unwind_work *work = new_client_registered(test);
	u64 cookie;

	KUNIT_EXPECT_EQ(test, -EINVAL, unwind_deferred_request(work, &cookie));
	map_stack(test, 0, PAGE_SIZE);
	KUNIT_EXPECT_EQ(test, -EINVAL, unwind_deferred_request(work, &cookie));
	unwind_deferred_cancel(work);
	KUNIT_EXPECT_EQ(test, -EINVAL, unwind_deferred_request(work, &cookie));
}

/*
 * Cookies
 */

static void unwind_deferred_cookie_wrap(struct kunit *test)
{
	static const u32 before = 8, entries = 24;
	struct deferred *d = test->priv;
	struct unwind_user_regs regs;
	bool high = false, low = false;
	u64 cookies[24], cookie;
	unsigned int cpu, i, j;

	for_each_possible_cpu(cpu)
		unwind_cookie_preset(cpu, -before);

	/* All of one CPU, so that it comes to the wrap. */
	migrate_disable();
	for (i = 0; i < entries; i++) {
		KUNIT_EXPECT_EQ(test, UNWIND_QUEUE, ask(d, A, &cookies[i]));
		take(d, &regs, &cookie);
		KUNIT_EXPECT_EQ(test, cookies[i], cookie);
		return_to_user();
	}
	migrate_enable();

	for (i = 0; i < entries; i++) {
		KUNIT_EXPECT_NE(test, 0ULL, cookies[i]);
		/* On the first CPU that would be a cookie of 0. */
		KUNIT_EXPECT_NE(test, 0U, lower_32_bits(cookies[i]));
		high |= lower_32_bits(cookies[i]) >= -before;
		low |= lower_32_bits(cookies[i]) < entries;
		for (j = 0; j < i; j++)
			KUNIT_EXPECT_NE(test, cookies[i], cookies[j]);
	}
	KUNIT_EXPECT_TRUE(test, high);
	KUNIT_EXPECT_TRUE(test, low);
}

/* Each CPU has its own, so that they need not know of each other. */
static void unwind_deferred_cookie_cpus(struct kunit *test)
{
	struct deferred *d = test->priv;
	u64 cookies[8], cookie;
	struct unwind_user_regs regs;
	unsigned int cpu, nr = 0, i;

	for_each_online_cpu(cpu) {
		if (nr == ARRAY_SIZE(cookies))
			break;
		KUNIT_ASSERT_EQ(test, 0,
				set_cpus_allowed_ptr(current, cpumask_of(cpu)));
		unwind_cookie_preset(cpu, 1000);
		KUNIT_EXPECT_EQ(test, UNWIND_QUEUE, ask(d, A, &cookies[nr]));
		take(d, &regs, &cookie);
		return_to_user();
		for (i = 0; i < nr; i++)
			KUNIT_EXPECT_NE(test, cookies[i], cookies[nr]);
		nr++;
	}
	set_cpus_allowed_ptr(current, cpu_possible_mask);
}

/*
 * What the callbacks are given
 */

/**
 * struct given - a client that notes what it is given
 * @work:	the client
 * @calls:	how often it was called
 * @cookie:	the last time
 * @trace:	the last time, with room for MAX_ENTRIES
 */
struct given {
	struct unwind_work	work;
	unsigned int		calls;
	u64			cookie;
	struct unwind_stacktrace trace;
};

static void note_given(struct unwind_work *work, struct unwind_stacktrace *trace,
		       u64 cookie)
{
	struct given *given = container_of(work, struct given, work);

	given->calls++;
	given->cookie = cookie;
	given->trace.nr = min_t(unsigned int, trace->nr, MAX_ENTRIES);
	memcpy(given->trace.entries, trace->entries,
	       given->trace.nr * sizeof(*trace->entries));
}

static struct given *new_given(struct kunit *test)
{
	struct given *given = kunit_kzalloc(test, sizeof(*given), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, given);
	given->trace.entries = kunit_kmalloc_array(test, MAX_ENTRIES,
						   sizeof(*given->trace.entries),
						   GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, given->trace.entries);
	KUNIT_ASSERT_EQ(test, 0, unwind_deferred_init(&given->work, note_given,
						      MAX_ENTRIES));
	KUNIT_ASSERT_EQ(test, 0,
			kunit_add_action_or_reset(test, cancel_client,
						  &given->work));
	return given;
}

/* As a request in task context, for @max entries. */
static u64 want(struct kunit *test, struct given *given, unsigned int max)
{
	struct deferred *d = test->priv;
	u64 cookie;

	KUNIT_ASSERT_EQ(test, UNWIND_QUEUE, ask(d, given->work.bit, &cookie));
	d->info.want = max;
	arch_unwind_entry_ask();
	return cookie;
}

#define KEPT	10

/* One walk a kernel entry: who asks after it is given the same. */
static void unwind_deferred_kept(struct kunit *test)
{
	struct given *first = new_given(test), *second = new_given(test);
	unsigned long fp = map_stack(test, STACK, PAGE_SIZE) + 64;
	struct deferred *d = test->priv;
	unsigned long entries[KEPT];
	unsigned int i;
	u64 cookie;

	put_ladder(test, 8, fp, 20);
	d->regs = start_regs(8, fp, fp);
	cookie = want(test, first, KEPT);
	unwind_deferred_run(&d->info, NULL);
	KUNIT_EXPECT_EQ(test, 1, first->calls);
	KUNIT_EXPECT_EQ(test, 0, second->calls);
	KUNIT_EXPECT_EQ(test, cookie, first->cookie);
	expect_ladder(test, first->trace, KEPT);

	/* A walk would find this. */
	put_record(test, 8, fp, fp + LADDER_STEP, CALLER);
	KUNIT_EXPECT_EQ(test, cookie, want(test, second, KEPT));
	unwind_deferred_run(&d->info, NULL);
	KUNIT_EXPECT_EQ(test, 1, first->calls);
	KUNIT_EXPECT_EQ(test, 1, second->calls);
	KUNIT_EXPECT_EQ(test, cookie, second->cookie);
	expect_ladder(test, second->trace, KEPT);

	/* The next entry has a stack of its own. */
	return_to_user();
	KUNIT_EXPECT_NE(test, cookie, want(test, second, KEPT));
	unwind_deferred_run(&d->info, NULL);
	KUNIT_EXPECT_EQ(test, 1, first->calls);
	KUNIT_EXPECT_EQ(test, 2, second->calls);
	entries[0] = START_IP;
	entries[1] = CALLER;
	for (i = 2; i < KEPT; i++)
		entries[i] = TEXT(i - 1);
	expect_entries(test, second->trace, entries, KEPT);
}

/* Who wants more than the walk was to find is not given less. */
static void unwind_deferred_kept_short(struct kunit *test)
{
	struct given *first = new_given(test), *second = new_given(test);
	unsigned long fp = map_stack(test, STACK, PAGE_SIZE) + 64;
	struct deferred *d = test->priv;
	u64 cookie;

	put_ladder(test, 8, fp, 20);
	d->regs = start_regs(8, fp, fp);
	cookie = want(test, first, 5);
	unwind_deferred_run(&d->info, NULL);
	expect_ladder(test, first->trace, 5);

	KUNIT_EXPECT_EQ(test, cookie, want(test, second, 15));
	unwind_deferred_run(&d->info, NULL);
	expect_ladder(test, second->trace, 15);
}

/* The end of the chain is the end, however many entries are wanted. */
static void unwind_deferred_kept_whole(struct kunit *test)
{
	struct given *first = new_given(test), *second = new_given(test);
	unsigned long fp = map_stack(test, STACK, PAGE_SIZE) + 64;
	struct deferred *d = test->priv;

	put_ladder(test, 8, fp, 9);
	d->regs = start_regs(8, fp, fp);
	want(test, first, 50);
	unwind_deferred_run(&d->info, NULL);
	expect_ladder(test, first->trace, 10);

	put_record(test, 8, fp, fp + LADDER_STEP, CALLER);
	want(test, second, 50);
	unwind_deferred_run(&d->info, NULL);
	expect_ladder(test, second->trace, 10);
}

/*
 * A request after the exit loop, in task context: by the time of the walk user
 * space has run, and taken the mark with it.
 */
static void unwind_deferred_mark_gone(struct kunit *test)
{
	unsigned long fp = map_stack(test, STACK, PAGE_SIZE) + 64;
	struct given *given = new_given(test);
	struct deferred *d = test->priv;
	u64 cookie;

	put_ladder(test, 8, fp, 20);
	d->regs = start_regs(8, fp, fp);
	cookie = want(test, given, KEPT);
	return_to_user();
	unwind_deferred_run(&d->info, NULL);
	KUNIT_EXPECT_EQ(test, 1, given->calls);
	KUNIT_EXPECT_EQ(test, cookie, given->cookie);
	KUNIT_EXPECT_EQ(test, 0, given->trace.nr);
}

/* As an NMI's, which leaves no mark: whether user space has run the registers tell. */
static void unwind_deferred_nmi_late(struct kunit *test)
{
	unsigned long fp = map_stack(test, STACK, PAGE_SIZE) + 64;
	struct pt_regs *regs = task_pt_regs(current), old = *regs;
	struct given *given = new_given(test);
	struct deferred *d = test->priv;
	unsigned int i;
	u64 cookie;

	put_ladder(test, 8, fp, 20);
	d->regs = start_regs(8, fp, fp);
	for (i = 0; i < 3; i++) {
		return_to_user();
		KUNIT_EXPECT_EQ(test, UNWIND_QUEUE,
				unwind_request(&d->info, given->work.bit, &d->regs, true,
					       &cookie));
		d->info.want = KEPT;

		/* As they were; others; others now, and not earlier in the entry. */
		regs->ip = i ? START_IP + 2 : START_IP;
		regs->sp = d->regs.sp;
		regs->bp = d->regs.fp;
		regs->cs = __USER_CS;
		regs->ss = __USER_DS;
		unwind_deferred_run(&d->info, i == 2 ? &d->regs : NULL);

		KUNIT_EXPECT_EQ(test, i + 1, given->calls);
		KUNIT_EXPECT_EQ(test, cookie, given->cookie);
		if (i == 1)
			KUNIT_EXPECT_EQ(test, 0, given->trace.nr);
		else
			expect_ladder(test, given->trace, KEPT);
	}
	*regs = old;
}

/*
 * A client that goes while it is called
 */

/**
 * struct going - a client that is cancelled while its callback runs
 * @work:	the client
 * @test:	the test, whose thread the callback runs in
 * @bit:	what the client has
 * @calls:	how often it was called
 * @calling:	the callback has not returned
 * @cancel:	somebody else cancels it, once the callback runs
 * @cancelled:	that has returned
 * @too_early:	and did so while the callback ran
 * @meanwhile:	registers while the one who cancels waits
 */
struct going {
	struct unwind_work	work;
	struct kunit		*test;
	int			bit;
	unsigned int		calls;
	bool			calling;
	struct work_struct	cancel;
	struct completion	cancelled;
	bool			too_early;
	struct unwind_work	*meanwhile;
};

static void cancel_going(struct work_struct *cancel)
{
	struct going *going = container_of(cancel, struct going, cancel);

	unwind_deferred_cancel(&going->work);
	going->too_early = READ_ONCE(going->calling);
	complete(&going->cancelled);
}

static void stay_called(struct unwind_work *work, struct unwind_stacktrace *trace,
			u64 cookie)
{
	struct going *going = container_of(work, struct going, work);
	struct kunit *test = going->test;
	unsigned int i;

	if (going->calls++)
		return;
	WRITE_ONCE(going->calling, true);
	queue_work(system_unbound_wq, &going->cancel);

	/* It takes the client away, and waits, not only as long as RCU takes. */
	for (i = 0; i < 10000 && READ_ONCE(work->bit) >= 0; i++)
		usleep_range(1000, 2000);
	KUNIT_EXPECT_EQ(test, -1, READ_ONCE(work->bit));
	for (i = 0; i < 2; i++)
		synchronize_rcu();
	KUNIT_EXPECT_EQ(test, 0UL,
			wait_for_completion_timeout(&going->cancelled, HZ / 5));

	/* As long as it waits the bit is nobody's. */
	KUNIT_EXPECT_EQ(test, 0,
			unwind_deferred_init(going->meanwhile, no_callback, 0));
	KUNIT_EXPECT_NE(test, going->bit, going->meanwhile->bit);
	WRITE_ONCE(going->calling, false);
}

static void unwind_deferred_cancel_called(struct kunit *test)
{
	unsigned long fp = map_stack(test, STACK, PAGE_SIZE) + 64;
	struct deferred *d = test->priv, *other;
	struct going *going;
	struct given *new;
	u64 first, cookie;

	other = kunit_kzalloc(test, sizeof(*other), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, other);
	going = kunit_kzalloc(test, sizeof(*going), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, going);
	going->test = test;
	going->meanwhile = new_client(test);
	INIT_WORK(&going->cancel, cancel_going);
	init_completion(&going->cancelled);
	KUNIT_ASSERT_EQ(test, 0, unwind_deferred_init(&going->work, stay_called, 0));
	KUNIT_ASSERT_EQ(test, 0,
			kunit_add_action_or_reset(test, cancel_client, &going->work));
	going->bit = going->work.bit;
	put_ladder(test, 8, fp, 20);

	/* Two tasks ask; one of them gets as far as the callback. */
	deferred_start(other);
	d->regs = start_regs(8, fp, fp);
	KUNIT_ASSERT_EQ(test, UNWIND_QUEUE, ask(other, going->bit, &cookie));
	KUNIT_ASSERT_EQ(test, UNWIND_QUEUE, ask(d, going->bit, &first));
	unwind_deferred_run(&d->info, NULL);
	flush_work(&going->cancel);
	KUNIT_ASSERT_EQ(test, 1, going->calls);
	KUNIT_EXPECT_TRUE(test, completion_done(&going->cancelled));
	KUNIT_EXPECT_FALSE(test, going->too_early);

	/* Now the bit can be had, with nothing that the two have left there. */
	new = new_given(test);
	KUNIT_ASSERT_EQ(test, going->bit, new->work.bit);
	unwind_deferred_run(&other->info, NULL);
	KUNIT_EXPECT_EQ(test, 1, going->calls);
	KUNIT_EXPECT_EQ(test, 0, new->calls);

	/* The stack that the old one was called for, the new one has not had. */
	KUNIT_EXPECT_EQ(test, first, want(test, new, KEPT));
	unwind_deferred_run(&d->info, NULL);
	KUNIT_EXPECT_EQ(test, 1, going->calls);
	KUNIT_EXPECT_EQ(test, 1, new->calls);
	KUNIT_EXPECT_EQ(test, first, new->cookie);
	expect_ladder(test, new->trace, KEPT);
}

#ifdef CONFIG_PROVE_RCU

/**
 * struct known - a client that asks lockdep where it is called
 * @work:	the client
 * @calls:	how often it was called
 * @known:	lockdep knew that it was a callback
 */
struct known {
	struct unwind_work	work;
	unsigned int		calls;
	bool			known;
};

static void note_known(struct unwind_work *work, struct unwind_stacktrace *trace,
		       u64 cookie)
{
	struct known *known = container_of(work, struct known, work);

	known->calls++;
	known->known = unwind_callback_known();
}

/*
 * A client that cancels itself from its callback would wait for itself. It is told by
 * what the test looks at: synchronize_srcu() warns of a reader of the same kind.
 */
static void unwind_deferred_cancel_itself(struct kunit *test)
{
	unsigned long fp = map_stack(test, STACK, PAGE_SIZE) + 64;
	struct deferred *d = test->priv;
	struct known *known;
	u64 cookie;

	known = kunit_kzalloc(test, sizeof(*known), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, known);
	KUNIT_ASSERT_EQ(test, 0, unwind_deferred_init(&known->work, note_known, 0));
	KUNIT_ASSERT_EQ(test, 0,
			kunit_add_action_or_reset(test, cancel_client, &known->work));

	put_ladder(test, 8, fp, 20);
	d->regs = start_regs(8, fp, fp);
	KUNIT_ASSERT_EQ(test, UNWIND_QUEUE, ask(d, known->work.bit, &cookie));
	KUNIT_EXPECT_FALSE(test, unwind_callback_known());
	unwind_deferred_run(&d->info, NULL);
	KUNIT_EXPECT_EQ(test, 1, known->calls);
	KUNIT_EXPECT_TRUE(test, known->known);
	KUNIT_EXPECT_FALSE(test, unwind_callback_known());
}

#endif

/*
 * A client that goes while another CPU is in the middle of a request of it. That takes
 * a task that may ask, which the KUnit thread pretends to be, and what a module has not.
 */
#ifndef MODULE

/**
 * struct asking - a client that is cancelled while it asks
 * @work:	the client
 * @task:	who asks
 * @held:	the request has been held up once
 * @pinned:	it cannot be preempted there, whatever its caller does
 * @cancel:	somebody else cancels it, on another CPU
 * @gone:	it has been taken away, as seen from the request
 * @cancelled:	that has returned
 * @too_early:	and did so while the request went on
 */
struct asking {
	struct unwind_work	work;
	struct task_struct	*task;
	bool			held;
	bool			pinned;
	struct work_struct	cancel;
	bool			gone;
	bool			cancelled;
	bool			too_early;
};

/* Set while the hook is. */
static struct asking *asking;

static void cancel_asking(struct work_struct *cancel)
{
	struct asking *a = container_of(cancel, struct asking, cancel);

	unwind_deferred_cancel(&a->work);
	WRITE_ONCE(a->cancelled, true);
}

/* The request has read the client's bit, and not used it yet. */
static void hold_request(struct unwind_task_info *info)
{
	struct asking *a = READ_ONCE(asking);
	unsigned int ms;

	if (info != &a->task->unwind_info || a->held)
		return;
	a->held = true;
	a->pinned = preempt_count() & PREEMPT_MASK;

	queue_work_on(cpumask_first(cpu_online_mask), system_highpri_wq, &a->cancel);
	for (ms = 0; ms < 10000 && !a->gone; ms++) {
		mdelay(1);
		a->gone = READ_ONCE(a->work.bit) < 0;
	}
	/* As long as several grace periods take that nobody holds up. */
	for (ms = 0; ms < 300 && !a->too_early; ms++) {
		mdelay(1);
		a->too_early = READ_ONCE(a->cancelled);
	}
}

static void unwind_deferred_cancel_asking(struct kunit *test)
{
	struct unwind_task_info *info = &current->unwind_info;
	unsigned long fp = map_stack(test, STACK, PAGE_SIZE) + 64;
	struct pt_regs *regs = task_pt_regs(current), old = *regs;
	struct asking *a;
	struct given *new;
	int ret, bit;
	u64 cookie;

	if (num_online_cpus() < 2)
		kunit_skip(test, "needs two CPUs");
	/* A request with interrupts off is refused there. */
	if (context_tracking_enabled_cpu(cpumask_last(cpu_online_mask)))
		kunit_skip(test, "the last CPU is a nohz_full one");
	a = kunit_kzalloc(test, sizeof(*a), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, a);
	a->task = current;
	INIT_WORK(&a->cancel, cancel_asking);
	KUNIT_ASSERT_EQ(test, 0, unwind_deferred_init(&a->work, no_callback, 0));
	KUNIT_ASSERT_EQ(test, 0,
			kunit_add_action_or_reset(test, cancel_client, &a->work));
	bit = a->work.bit;

	put_ladder(test, 8, fp, 20);
	regs->ip = START_IP;
	regs->sp = fp;
	regs->bp = fp;
	regs->cs = __USER_CS;
	regs->ss = __USER_DS;
	WRITE_ONCE(asking, a);
	WRITE_ONCE(unwind_test_hook, hold_request);
	/* Not where the rest of what cancel waits for is done: SRCU uses the first one. */
	KUNIT_ASSERT_EQ(test, 0,
			set_cpus_allowed_ptr(current,
					     cpumask_of(cpumask_last(cpu_online_mask))));

	/* No tick may take it for a task that runs its work on the way to user space. */
	scoped_guard(irqsave) {
		current->flags &= ~PF_KTHREAD;
		ret = unwind_deferred_request(&a->work, &cookie);
		current->flags |= PF_KTHREAD;
	}
	WRITE_ONCE(unwind_test_hook, NULL);
	set_cpus_allowed_ptr(current, cpu_possible_mask);
	flush_work(&a->cancel);
	KUNIT_EXPECT_EQ(test, 0, ret);
	/* With interrupts off it is a reader of RCU's anyway; others come with them on. */
	if (IS_ENABLED(CONFIG_PREEMPT_COUNT))
		KUNIT_EXPECT_TRUE(test, a->pinned);
	KUNIT_EXPECT_TRUE(test, a->gone);
	KUNIT_EXPECT_FALSE(test, a->too_early);
	KUNIT_EXPECT_TRUE(test, a->cancelled);

	/* Who has the bit now has not asked, and is not given what the other one has. */
	new = new_given(test);
	KUNIT_EXPECT_EQ(test, bit, new->work.bit);
	KUNIT_EXPECT_TRUE(test, info->state & UNWIND_WAITS(bit));
	KUNIT_EXPECT_TRUE(test, task_work_cancel(current, &info->work));
	unwind_deferred_run(info, NULL);
	KUNIT_EXPECT_EQ(test, 0, new->calls);

	clear_thread_flag(TIF_NOTIFY_RESUME);
	info->state = 0;
	*regs = old;
}

/*
 * Where context tracking accounts the time in user space, the last steps to it are
 * traced behind the end of the marks: a task that asks with interrupts off is refused,
 * for it may be there. An interrupt that asks is not.
 */
#ifdef CONFIG_NO_HZ_FULL

static void unwind_deferred_nohz_full(struct kunit *test)
{
	struct unwind_task_info *info = &current->unwind_info;
	struct unwind_work *work;
	u64 cookie, refused = 0;
	int cpu, task, irq;

	if (!tick_nohz_full_enabled())
		kunit_skip(test, "no CPU is a nohz_full one");
	cpu = cpumask_first_and(tick_nohz_full_mask, cpu_online_mask);
	KUNIT_ASSERT_LT(test, cpu, nr_cpu_ids);
	KUNIT_ASSERT_TRUE(test, context_tracking_enabled_cpu(cpu));
	work = new_client_registered(test);
	/* Who has no mm has no user stack. */
	map_stack(test, STACK, PAGE_SIZE);
	KUNIT_ASSERT_EQ(test, 0, set_cpus_allowed_ptr(current, cpumask_of(cpu)));

	/* No tick may take it for a task that runs its work on the way to user space. */
	scoped_guard(irqsave) {
		current->flags &= ~PF_KTHREAD;
		task = unwind_deferred_request(work, &refused);
		__irq_enter_raw();
		irq = unwind_deferred_request(work, &cookie);
		__irq_exit_raw();
		current->flags |= PF_KTHREAD;
	}
	set_cpus_allowed_ptr(current, cpu_possible_mask);
	KUNIT_EXPECT_EQ(test, -EAGAIN, task);
	KUNIT_EXPECT_EQ(test, 0, refused);
	KUNIT_EXPECT_EQ(test, 0, irq);
	KUNIT_EXPECT_TRUE(test, task_work_cancel(current, &info->work));

	clear_thread_flag(TIF_NOTIFY_RESUME);
	info->state = 0;
}

#endif
#endif

static struct kunit_case unwind_deferred_cases[] = {
	KUNIT_CASE(unwind_deferred_one_entry),
	KUNIT_CASE(unwind_deferred_next_entry),
	KUNIT_CASE(unwind_deferred_moved),
	KUNIT_CASE(unwind_deferred_moved_each),
	KUNIT_CASE(unwind_deferred_late),
	KUNIT_CASE_PARAM(unwind_deferred_interleave, start_gen_params),
	KUNIT_CASE(unwind_deferred_interrupted_take),
	KUNIT_CASE(unwind_deferred_stale_waits),
	KUNIT_CASE(unwind_deferred_stale_done),
	KUNIT_CASE(unwind_deferred_stale_between),
	KUNIT_CASE(unwind_deferred_stale_wrap),
	KUNIT_CASE(unwind_deferred_all_bits),
	KUNIT_CASE(unwind_deferred_cancel_twice),
	KUNIT_CASE(unwind_deferred_init_max),
	KUNIT_CASE(unwind_deferred_kthread),
	KUNIT_CASE(unwind_deferred_cookie_wrap),
	KUNIT_CASE(unwind_deferred_cookie_cpus),
	KUNIT_CASE(unwind_deferred_kept),
	KUNIT_CASE(unwind_deferred_kept_short),
	KUNIT_CASE(unwind_deferred_kept_whole),
	KUNIT_CASE(unwind_deferred_mark_gone),
	KUNIT_CASE(unwind_deferred_nmi_late),
	KUNIT_CASE(unwind_deferred_cancel_called),
#ifdef CONFIG_PROVE_RCU
	KUNIT_CASE(unwind_deferred_cancel_itself),
#endif
#ifndef MODULE
	KUNIT_CASE(unwind_deferred_cancel_asking),
#ifdef CONFIG_NO_HZ_FULL
	KUNIT_CASE(unwind_deferred_nohz_full),
#endif
#endif
	{}
};

static struct kunit_suite unwind_deferred_suite = {
	.name		= "unwind_deferred",
	.init		= deferred_init,
	.exit		= deferred_exit,
	.suite_exit	= deferred_suite_exit,
	.test_cases	= unwind_deferred_cases,
};

kunit_test_suites(&unwind_user_suite, &unwind_deferred_suite);

MODULE_DESCRIPTION("KUnit tests of user stack unwinding");
MODULE_LICENSE("GPL");
MODULE_IMPORT_NS(EXPORTED_FOR_KUNIT_TESTING);

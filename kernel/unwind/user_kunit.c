// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of walks of user stacks. The tests make the stacks word by word.
 */
#include <kunit/test.h>
#include <linux/anon_inodes.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/kernel.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/sched/task_stack.h>
#include <linux/uaccess.h>
#include <linux/unwind_user.h>

#include <asm/desc.h>
#include <asm/segment.h>
#include <asm/unwind_user.h>

#include "kunit.h"
#include "user.h"

#define MAX_ENTRIES	128
#define CANARY		0x5a5a5a5aUL

unsigned long unwind_test_map(struct kunit *test, struct file *file, unsigned long addr,
			      unsigned long len, unsigned long prot)
{
	unsigned long flags = file ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
	unsigned long got;

	if (addr)
		flags |= MAP_FIXED;
	got = kunit_vm_mmap(test, file, addr, len, prot, flags, 0);
	KUNIT_ASSERT_NE(test, 0UL, got);
	KUNIT_ASSERT_FALSE(test, IS_ERR_VALUE(got));
	return got;
}

unsigned long unwind_test_stack(struct kunit *test, unsigned long addr,
				unsigned long len)
{
	return unwind_test_map(test, NULL, addr, len, PROT_READ | PROT_WRITE);
}

void unwind_test_word(struct kunit *test, unsigned int word, unsigned long addr,
		      unsigned long value)
{
	u32 low = value;
	u64 all = value;

	KUNIT_ASSERT_EQ(test, 0UL,
			word == 8 ? copy_to_user((void __user *)addr, &all, word) :
				    copy_to_user((void __user *)addr, &low, word));
}

void unwind_test_record(struct kunit *test, unsigned int word, unsigned long fp,
			unsigned long next_fp, unsigned long ra)
{
	unwind_test_word(test, word, fp, next_fp);
	unwind_test_word(test, word, fp + word, ra);
}

void unwind_test_ladder(struct kunit *test, unsigned int word, unsigned long fp,
			unsigned int nr)
{
	unsigned int i;

	for (i = 0; i < nr; i++, fp += LADDER_STEP)
		unwind_test_record(test, word, fp, i < nr - 1 ? fp + LADDER_STEP : 0,
				   TEXT(i));
}

static vm_fault_t served_fault(struct vm_fault *vmf)
{
	struct unwind_served *served = vmf->vma->vm_private_data;
	const unsigned int word = served->word;
	unsigned long next, ra = TEXT(vmf->pgoff);
	void *record;

	if (!served->faults++ && served->meanwhile)
		served->meanwhile(served->data);
	if (vmf->pgoff == served->fail)
		return VM_FAULT_SIGBUS;
	vmf->page = alloc_page(GFP_KERNEL | __GFP_ZERO);
	if (!vmf->page)
		return VM_FAULT_OOM;
	record = page_address(vmf->page);
	next = vmf->pgoff < served->nr - 1 ? STACK + (vmf->pgoff + 1) * PAGE_SIZE : 0;
	memcpy(record, &next, word);
	memcpy(record + word, &ra, word);
	return 0;
}

static const struct vm_operations_struct served_vm_ops = { .fault = served_fault };

static int served_mmap(struct file *file, struct vm_area_struct *vma)
{
	vma->vm_ops = &served_vm_ops;
	vma->vm_private_data = file->private_data;
	return 0;
}

static const struct file_operations served_fops = { .mmap = served_mmap };

struct unwind_served *unwind_test_serve(struct kunit *test, unsigned int word,
					unsigned int nr)
{
	struct unwind_served *served = kunit_kzalloc(test, sizeof(*served), GFP_KERNEL);
	struct file *file;

	KUNIT_ASSERT_NOT_NULL(test, served);
	served->word = word;
	served->nr = nr;
	served->fail = nr;
	file = anon_inode_getfile("unwind_kunit", &served_fops, served, O_RDONLY);
	KUNIT_ASSERT_FALSE(test, IS_ERR(file));
	unwind_test_map(test, file, STACK, nr * PAGE_SIZE, PROT_READ);
	fput(file);
	return served;
}

void unwind_test_enter(unsigned long ip, unsigned long sp, unsigned long fp)
{
	struct pt_regs *regs = task_pt_regs(current);

	regs->ip = ip;
	regs->sp = sp;
	regs->bp = fp;
	regs->cs = __USER_CS;
	regs->ss = __USER_DS;
}

struct unwind_user_regs unwind_test_regs(unsigned int word, unsigned long sp,
					 unsigned long fp)
{
	return (struct unwind_user_regs) {
		.ip	= START_IP,
		.sp	= sp,
		.fp	= fp,
		.word	= word,
	};
}

/* Walk, and check that nothing is stored behind the @max entries. */
struct unwind_stacktrace unwind_test_walk(struct kunit *test,
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

/* Walk like unwind_user(), but from @regs. */
struct unwind_stacktrace unwind_test_bring(struct kunit *test,
					   const struct unwind_user_regs *regs,
					   unsigned int max)
{
	struct unwind_stacktrace trace;

	do {
		trace = unwind_test_walk(test, regs, max);
	} while (trace.absent && unwind_user_bring(trace.absent));
	return trace;
}

void unwind_test_expect(struct kunit *test, struct unwind_stacktrace trace,
			const unsigned long *entries, unsigned int nr)
{
	unsigned int i;

	KUNIT_EXPECT_EQ(test, nr, trace.nr);
	for (i = 0; i < min(nr, trace.nr); i++)
		KUNIT_EXPECT_EQ_MSG(test, entries[i], trace.entries[i], "entry %u", i);
}

/* Expect START_IP and the frames of a ladder, @nr entries in all. */
static void expect_ladder(struct kunit *test, struct unwind_stacktrace trace,
			  unsigned int nr)
{
	unsigned int i;

	KUNIT_EXPECT_EQ(test, nr, trace.nr);
	for (i = 0; i < min(nr, trace.nr); i++)
		KUNIT_EXPECT_EQ_MSG(test, i ? TEXT(i - 1) : START_IP,
				    trace.entries[i], "entry %u", i);
}

static const unsigned int words[] = { 8, 4 };

static void word_desc(const unsigned int *word, char *desc)
{
	snprintf(desc, KUNIT_PARAM_DESC_SIZE, "%u-bit", *word * 8);
}

KUNIT_ARRAY_PARAM(word, words, word_desc);

static void unwind_user_ladder(struct kunit *test)
{
	const unsigned int word = *(const unsigned int *)test->param_value;
	/* A place above 4 GiB, which the kernel chooses, or one below. */
	unsigned long addr = word == 8 ? 0 : STACK;
	unsigned long fp = unwind_test_stack(test, addr, 2 * PAGE_SIZE) + 64;
	struct unwind_user_regs regs = unwind_test_regs(word, fp - 32, fp);
	struct unwind_stacktrace trace;
	unsigned int max;

	unwind_test_ladder(test, word, fp, 100);
	trace = unwind_test_walk(test, &regs, MAX_ENTRIES);
	expect_ladder(test, trace, 101);
	KUNIT_EXPECT_EQ(test, 0UL, trace.absent);
	KUNIT_EXPECT_FALSE(test, trace.again);

	/* The first record may be right at the stack pointer. */
	regs.sp = fp;
	expect_ladder(test, unwind_test_walk(test, &regs, MAX_ENTRIES), 101);

	unwind_test_ladder(test, word, fp, 20);
	for (max = 0; max <= 23; max++)
		expect_ladder(test, unwind_test_walk(test, &regs, max), min(max, 21U));

	/* A stack that cannot be walked. */
	regs.word = 0;
	KUNIT_EXPECT_EQ(test, 0, unwind_test_walk(test, &regs, 16).nr);
}

/* Set @regs as if 32-bit code had entered the kernel with these selectors. */
static void set_segments(struct unwind_user_regs *regs, u16 cs, u16 ss)
{
	const struct pt_regs entered = { .cs = cs, .ss = ss };

	arch_unwind_user_segments(regs, &entered);
}

#define CS_BASE		0x1000000UL
#define SS_BASE		0x1800000UL

/* The three descriptors of the GDT that a task may set, and their selectors. */
#define TLS_SELECTOR(i)	((GDT_ENTRY_TLS_MIN + (i)) * 8 + 3)

static void set_tls(const struct desc_struct *tls)
{
	/* A switch to the task would load them, so load them here, too. */
	preempt_disable();
	memcpy(current->thread.tls_array, tls, sizeof(current->thread.tls_array));
	load_TLS(&current->thread, smp_processor_id());
	preempt_enable();
}

/* The segments of 32-bit code do not start at 0. The trace has linear addresses. */
static void unwind_user_segments(struct kunit *test)
{
	static const struct desc_struct tls[] = {
		GDT_ENTRY_INIT(DESC_CODE32 | DESC_USER, CS_BASE, 0xfffff),
		GDT_ENTRY_INIT(DESC_DATA32 | DESC_USER, SS_BASE, 0xfffff),
		GDT_ENTRY_INIT(DESC_CODE16 | DESC_USER, 0, 0xfffff),
	};
	static const struct desc_struct none[ARRAY_SIZE(tls)];
	/* The last one is a system segment, whose base is a kernel address. */
	static const u16 bad[] = {
		0, __USER_CS, 0xfff7, TLS_SELECTOR(1), GDT_ENTRY_TSS * 8 + 3,
	};
	const unsigned long frames[] = { 64, 128, 512 };
	unsigned long expected[] = {
		CS_BASE + START_IP, CS_BASE + CALLER, CS_BASE + TEXT(0),
		CS_BASE + TEXT(1), CS_BASE + TEXT(2),
	};
	unsigned long sp = unwind_test_stack(test, STACK, PAGE_SIZE) - SS_BASE;
	struct unwind_user_regs regs = unwind_test_regs(4, sp, sp + frames[0]);
	unsigned int i;

	static_assert(ARRAY_SIZE(tls) == ARRAY_SIZE(current->thread.tls_array));

	unwind_test_word(test, 4, STACK, CALLER);
	for (i = 0; i < ARRAY_SIZE(frames); i++)
		unwind_test_record(test, 4, STACK + frames[i],
				   i < ARRAY_SIZE(frames) - 1 ? sp + frames[i + 1] : 0,
				   TEXT(i));

	regs.at_entry = true;
	set_tls(tls);
	set_segments(&regs, TLS_SELECTOR(0), TLS_SELECTOR(1));
	/* Later changes of the tables have no effect. */
	set_tls(none);
	unwind_test_expect(test, unwind_test_walk(test, &regs, 16), expected, 5);

	/* Addresses wrap at 4 GiB. */
	regs.ip = U32_MAX;
	expected[0] = CS_BASE - 1;
	unwind_test_expect(test, unwind_test_walk(test, &regs, 16), expected, 5);

	/* 16-bit code has other stack words. A segment that was removed has no base. */
	set_tls(tls);
	set_segments(&regs, TLS_SELECTOR(2), TLS_SELECTOR(1));
	KUNIT_EXPECT_EQ(test, 0, regs.word);
	set_tls(none);
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		set_segments(&regs, bad[i], __USER_DS);
		KUNIT_EXPECT_EQ_MSG(test, 0, regs.word, "code selector %x", bad[i]);
		set_segments(&regs, __USER32_CS, bad[i]);
		KUNIT_EXPECT_EQ_MSG(test, bad[i] == __USER_CS ? 4 : 0, regs.word,
				    "stack selector %x", bad[i]);
	}
	set_segments(&regs, __USER32_CS, __USER_DS);
	KUNIT_EXPECT_EQ(test, 4, regs.word);
}

/* Run @call as a user task. A sample that is taken meanwhile sees a user task, too. */
#define AS_USER(call) ({					\
	typeof(call) __ret;					\
								\
	current->flags &= ~PF_KTHREAD;				\
	__ret = (call);						\
	current->flags |= PF_KTHREAD;				\
	__ret;							\
})

/* A walk does not fault. It returns the place of its end, and gets further with the page. */
static void unwind_user_absent(struct kunit *test)
{
	const unsigned int word = *(const unsigned int *)test->param_value;
	struct unwind_served *served = unwind_test_serve(test, word, 24);
	struct unwind_user_regs regs = unwind_test_regs(word, STACK, STACK);
	struct unwind_stacktrace trace;
	unsigned int i;

	for (i = 0; i < 4; i++) {
		trace = unwind_test_walk(test, &regs, MAX_ENTRIES);
		expect_ladder(test, trace, i + 1);
		KUNIT_EXPECT_EQ(test, STACK + i * PAGE_SIZE, trace.absent);

		/* If the room is used up before the page, the page is not read. */
		trace = unwind_test_walk(test, &regs, i + 1);
		expect_ladder(test, trace, i + 1);
		KUNIT_EXPECT_EQ(test, 0UL, trace.absent);

		KUNIT_EXPECT_EQ(test, i, served->faults);
		KUNIT_EXPECT_TRUE(test, unwind_user_bring(STACK + i * PAGE_SIZE));
		KUNIT_EXPECT_EQ(test, i + 1, served->faults);
	}
	expect_ladder(test, unwind_test_walk(test, &regs, 5), 5);

	/* The return address on top of the stack is absent. */
	served = unwind_test_serve(test, word, 2);
	regs = unwind_test_regs(word, STACK + word, STACK + PAGE_SIZE);
	regs.at_entry = true;
	trace = unwind_test_walk(test, &regs, MAX_ENTRIES);
	expect_ladder(test, trace, 1);
	KUNIT_EXPECT_EQ(test, regs.sp, trace.absent);
	expect_ladder(test, unwind_test_bring(test, &regs, MAX_ENTRIES), 3);
	KUNIT_EXPECT_EQ(test, 2, served->faults);
}

/* A walk from the task's user registers, which faults in absent pages. */
static void unwind_user_of_the_task(struct kunit *test)
{
	struct unwind_served *served;
	unsigned long entries[24];
	struct unwind_stacktrace trace = { .nr = 4, .entries = entries };

	/* A task without an mm has no user stack, and a kernel thread with one has none. */
	KUNIT_EXPECT_EQ(test, -EINVAL, AS_USER(unwind_user(&trace, 5)));
	KUNIT_EXPECT_EQ(test, 0, trace.nr);
	served = unwind_test_serve(test, 8, 24);
	unwind_test_enter(START_IP, STACK, STACK);
	KUNIT_EXPECT_EQ(test, -EINVAL, unwind_user(&trace, 5));

	KUNIT_EXPECT_EQ(test, 0, AS_USER(unwind_user(&trace, 5)));
	expect_ladder(test, trace, 5);
	KUNIT_EXPECT_EQ(test, 4, served->faults);

	/* It faults in UNWIND_USER_MAX_PAGES pages at most. */
	KUNIT_EXPECT_EQ(test, 0, AS_USER(unwind_user(&trace, ARRAY_SIZE(entries))));
	expect_ladder(test, trace, 4 + UNWIND_USER_MAX_PAGES + 1);
	KUNIT_EXPECT_EQ(test, 4 + UNWIND_USER_MAX_PAGES, served->faults);
	KUNIT_EXPECT_EQ(test, STACK + (4 + UNWIND_USER_MAX_PAGES) * PAGE_SIZE,
			trace.absent);
}

/* Pages that are never faulted in. */
static void unwind_user_not_brought(struct kunit *test)
{
	struct signal_struct *signal = current->signal;
	struct unwind_served *served;

	/* No mapping, kernel memory, PROT_NONE, right below a stack that grows. */
	unwind_test_map(test, NULL, STACK, PAGE_SIZE, PROT_NONE);
	KUNIT_EXPECT_FALSE(test, unwind_user_bring(0));
	KUNIT_EXPECT_FALSE(test, unwind_user_bring(STACK));
	KUNIT_EXPECT_FALSE(test, unwind_user_bring(STACK + PAGE_SIZE));
	KUNIT_EXPECT_FALSE(test, unwind_user_bring(TASK_SIZE_MAX));
	KUNIT_EXPECT_FALSE(test, unwind_user_bring((unsigned long)&served));
	KUNIT_ASSERT_EQ(test, STACK,
			vm_mmap(NULL, STACK, PAGE_SIZE, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_GROWSDOWN,
				0));
	KUNIT_EXPECT_FALSE(test, unwind_user_bring(STACK - 8));
	KUNIT_EXPECT_NULL(test, vma_lookup(current->mm, STACK - 8));

	/* No page, if the task may not sleep, is dying, or is in an execve(). */
	served = unwind_test_serve(test, 8, 1);
	pagefault_disable();
	KUNIT_EXPECT_FALSE(test, unwind_user_bring(STACK));
	pagefault_enable();
	current->flags |= PF_EXITING;
	KUNIT_EXPECT_FALSE(test, unwind_user_bring(STACK));
	current->flags &= ~PF_EXITING;
	signal->flags |= SIGNAL_GROUP_EXIT;
	KUNIT_EXPECT_FALSE(test, unwind_user_bring(STACK));
	signal->flags &= ~SIGNAL_GROUP_EXIT;
	signal->group_exec_task = current;
	KUNIT_EXPECT_FALSE(test, unwind_user_bring(STACK));
	signal->group_exec_task = NULL;
	current->in_execve = 1;
	KUNIT_EXPECT_FALSE(test, unwind_user_bring(STACK));
	current->in_execve = 0;

	KUNIT_EXPECT_EQ(test, 0, served->faults);
	KUNIT_EXPECT_TRUE(test, unwind_user_bring(STACK));
	KUNIT_EXPECT_EQ(test, 1, served->faults);
}

static void unwind_user_at_entry(struct kunit *test)
{
	const unsigned int word = *(const unsigned int *)test->param_value;
	const unsigned long expected[] = { START_IP, CALLER, TEXT(0), TEXT(1) };
	unsigned long mem = unwind_test_stack(test, STACK, PAGE_SIZE);
	struct unwind_user_regs regs;
	unsigned int max;

	unwind_test_ladder(test, word, mem + 64, 2);
	unwind_test_word(test, word, mem + 32, CALLER);

	regs = unwind_test_regs(word, mem + 32, mem + 64);
	expect_ladder(test, unwind_test_walk(test, &regs, 16), 3);
	regs.at_entry = true;
	for (max = 1; max < 6; max++)
		unwind_test_expect(test, unwind_test_walk(test, &regs, max), expected,
				   min(max, 4U));

	/* The caller's record may be right above the return address. */
	regs.sp = mem + 64 - word;
	unwind_test_word(test, word, regs.sp, CALLER);
	unwind_test_expect(test, unwind_test_walk(test, &regs, 16), expected, 4);

	/* But the return address is not a part of that record. */
	regs.sp = mem + 64;
	unwind_test_word(test, word, mem + 64, CALLER);
	unwind_test_expect(test, unwind_test_walk(test, &regs, 16), expected, 2);
}

static struct kunit_case unwind_user_cases[] = {
	KUNIT_CASE_PARAM(unwind_user_ladder, word_gen_params),
	KUNIT_CASE(unwind_user_segments),
	KUNIT_CASE_PARAM(unwind_user_absent, word_gen_params),
	KUNIT_CASE(unwind_user_not_brought),
	KUNIT_CASE_PARAM(unwind_user_at_entry, word_gen_params),
	KUNIT_CASE(unwind_user_of_the_task),
	{}
};

static struct kunit_suite unwind_user_suite = {
	.name		= "unwind_user",
	.test_cases	= unwind_user_cases,
};

kunit_test_suite(unwind_user_suite);

MODULE_DESCRIPTION("KUnit tests of user stack unwinding");
MODULE_LICENSE("GPL");
MODULE_IMPORT_NS(EXPORTED_FOR_KUNIT_TESTING);

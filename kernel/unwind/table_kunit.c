// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of walks by tables: each kind of row, gaps, signal frames, mappings.
 */
#include <kunit/test.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/sched/task_stack.h>
#include <linux/unwind_user.h>

#include <asm/sigframe.h>
#include <asm/unwind_user.h>

#include "kunit.h"
#include "table_code_kunit.h"

/* Stack pointer, frame pointer, and a caller's row that counts at its last byte. */
static void table_rows(struct kunit *test)
{
	struct code *code = new_code(test);
	unsigned long sp = code->sp;
	struct unwind_user_regs regs = regs_at(AT(SP16), sp, 1);

	put(test, sp + 8, AT(SP32_FP + 8));
	/* CFA sp + 16; then + 32: the frame pointer is at sp + 32. */
	put(test, sp + 32, sp + 64);
	put(test, sp + 40, AT(FP16_FP + 8));
	/* The frame pointer's record, and the one after the call of a noreturn function. */
	put(test, sp + 64, 77);
	put(test, sp + 72, AT(SP24 + 0x80));
	/* CFA sp + 80, + 24 */
	put(test, sp + 96, AT(OUTERMOST + 8));
	EXPECT(&regs, AT(SP16), AT(SP32_FP + 8), AT(FP16_FP + 8), AT(SP24 + 0x80),
	       AT(OUTERMOST + 8));

	/* As an instruction pointer the first byte behind FP16_FP is SP24's. */
	regs = regs_at(AT(SP24), sp + 80, 77);
	EXPECT(&regs, AT(SP24), AT(OUTERMOST + 8));
}

/* Code of which nobody has a table, between frames of code that has one. */
static void table_mixed(struct kunit *test)
{
	struct code *code = new_code(test);
	unsigned long sp = code->sp;
	struct unwind_user_regs regs = regs_at(PLAIN + 8, sp, sp + 16);

	put(test, sp + 16, sp + 128);
	put(test, sp + 24, AT(SP16 + 8));
	put(test, sp + 40, AT(SP16 + 8));
	put(test, sp + 56, PLAIN + 16);
	put(test, sp + 128, sp + 160);
	put(test, sp + 136, AT(FP16_FP + 8));
	put(test, sp + 160, sp + 170);
	put(test, sp + 168, PLAIN + 24);
	/* Not aligned. */
	EXPECT(&regs, PLAIN + 8, AT(SP16 + 8), AT(SP16 + 8), PLAIN + 16, AT(FP16_FP + 8),
	       PLAIN + 24);

	/* The record may not be part of frames that were walked. */
	put(test, sp + 16, sp + 56);
	EXPECT(&regs, PLAIN + 8, AT(SP16 + 8), AT(SP16 + 8), PLAIN + 16);

	/* Nothing is mapped there. */
	regs.ip = 0x500;
	put(test, sp + 16, 0);
	EXPECT(&regs, 0x500UL, AT(SP16 + 8), AT(SP16 + 8), PLAIN + 16);
}

static void table_gaps(struct kunit *test)
{
	struct code *code = new_code(test);
	unsigned long sp = code->sp;
	struct unwind_user_regs regs = regs_at(AT(SP24 + 0x80), sp, sp);

	unwind_test_record(test, 8, sp, 0, AT(OUTERMOST));
	/* A small one in between, and one ahead of the first function. */
	EXPECT(&regs, AT(SP24 + 0x80));
	regs.ip = AT(SP16 - 1);
	EXPECT(&regs, AT(SP16 - 1));
	regs.ip = CODE;
	EXPECT(&regs, CODE);
	/* Large ones: in between, and behind the last one. */
	regs.ip = AT(SAME + 0x80);
	EXPECT(&regs, AT(SAME + 0x80), AT(OUTERMOST));
	regs.ip = AT(FAR_AWAY + 0x80);
	EXPECT(&regs, AT(FAR_AWAY + 0x80), AT(OUTERMOST));
	regs.ip = PLAIN - 1;
	EXPECT(&regs, PLAIN - 1, AT(OUTERMOST));
	/* But for a record below the stack pointer. */
	regs.sp = sp + 8;
	EXPECT(&regs, PLAIN - 1);
	regs.ip = AT(SAME + 0x80);
	EXPECT(&regs, AT(SAME + 0x80));
}

/* A gap from @ip on, @size bytes in the mapping: are frame pointers followed in all of it? */
static void expect_gap(struct kunit *test, unsigned long sp, unsigned long ip,
		       unsigned long size, bool followed)
{
	struct unwind_user_regs regs = regs_at(ip, sp, sp);
	unsigned int i;

	unwind_test_record(test, 8, sp, 0, PLAIN);
	for (i = 0; i < 2; i++) {
		if (followed)
			EXPECT(&regs, regs.ip, PLAIN);
		else
			EXPECT(&regs, regs.ip);
		regs.ip = ip + size - 1;
	}
}

/* Three gaps of 64 KiB, at the ends of the mapping and in between; and of a byte more. */
static void table_gap_bounds(struct kunit *test)
{
	struct code *code = new_code(test);
	unsigned int more;

	for (more = 0; more < 2; more++) {
		const unsigned long gap = SZ_64K + more, size = 0x100;
		struct section *s = new_section(test);
		struct file *file = new_file(test);
		struct unwind_table *table;

		add_function(s, PAGE_SIZE * CODE_PAGE + gap, size, 0, 0, 0);
		add_row(s, 0, true, 16);
		add_function(s, PAGE_SIZE * CODE_PAGE + 2 * gap + size,
			     CODE_SIZE - 3 * gap - size, 0, 0, 0);
		add_row(s, 0, true, 16);
		make_section(s);
		KUNIT_ASSERT_EQ(test, 0, load(test, file, s, LIMIT, &table));
		map_code(test, file);
		expect_gap(test, code->sp, CODE, gap, more);
		expect_gap(test, code->sp, CODE + gap + size, gap, more);
		expect_gap(test, code->sp, CODE + CODE_SIZE - gap, gap, more);
	}
}

/* What counts of a gap is what is mapped of it. */
static void table_gap_in_part(struct kunit *test)
{
	/* In the file; it is twice as large as what is mapped of it. */
	const unsigned long gap = 16 * PAGE_SIZE, end = gap + SZ_128K;
	struct code *code = new_code(test);
	struct section *s = new_section(test);
	struct file *file = new_file(test);
	struct unwind_table *table;
	unsigned int more;

	add_function(s, 0, gap, 0, 0, 0);
	add_row(s, 0, true, 16);
	add_function(s, end, PAGE_SIZE, 0, 0, 0);
	add_row(s, 0, true, 16);
	make_section(s);
	KUNIT_ASSERT_EQ(test, 0, load(test, file, s, LIMIT, &table));

	for (more = 0; more < 2; more++) {
		const unsigned long part = SZ_64K + more * PAGE_SIZE;

		/* Its end, and the function behind it. */
		KUNIT_ASSERT_EQ(test, 0, vm_munmap(CODE, CODE_SIZE));
		KUNIT_ASSERT_EQ(test, CODE,
				vm_mmap(file, CODE, part + PAGE_SIZE, PROT_READ | PROT_EXEC,
					MAP_PRIVATE | MAP_FIXED, end - part));
		expect_gap(test, code->sp, CODE, part, more);
		/* The function ahead of it, and its begin. */
		KUNIT_ASSERT_EQ(test, 0, vm_munmap(CODE, CODE_SIZE));
		KUNIT_ASSERT_EQ(test, CODE,
				vm_mmap(file, CODE, gap + part, PROT_READ | PROT_EXEC,
					MAP_PRIVATE | MAP_FIXED, 0));
		expect_gap(test, code->sp, CODE + gap, part, more);
	}
}

static void table_stops(struct kunit *test)
{
	const unsigned long none[] = {
		0, 1, PAGE_SIZE - 1, TASK_SIZE_MAX, -1UL, 0xffffffff81000000UL,
	};
	struct code *code = new_code(test);
	unsigned long sp = code->sp, top = STACK + 4 * PAGE_SIZE;
	struct unwind_user_regs regs;
	struct unwind_stacktrace trace;
	unsigned int i;

	/* Return addresses that are none. */
	regs = regs_at(AT(SP16), sp, 0);
	for (i = 0; i < ARRAY_SIZE(none); i++) {
		put(test, sp + 8, none[i]);
		EXPECT(&regs, AT(SP16));
	}

	/* A CFA that does not rise: only in the first frame. */
	put(test, sp - 8, AT(SAME + 8));
	regs.ip = AT(SAME);
	EXPECT(&regs, AT(SAME), AT(SAME + 8));
	/* One below the stack pointer, and one that goes back. */
	regs = regs_at(AT(FP16_FP), sp, sp - 24);
	EXPECT(&regs, AT(FP16_FP));
	regs = regs_at(AT(SP32_FP), sp, 0);
	put(test, sp + 16, sp + 8);
	put(test, sp + 24, AT(FP16_FP + 8));
	EXPECT(&regs, AT(SP32_FP), AT(FP16_FP + 8));
	/* The record right at it is below, too. */
	put(test, sp + 16, sp + 16);
	EXPECT(&regs, AT(SP32_FP), AT(FP16_FP + 8));

	/* Not aligned: by a frame pointer, and by the stack pointer. */
	put(test, sp + 16, sp + 44);
	EXPECT(&regs, AT(SP32_FP), AT(FP16_FP + 8));
	regs = regs_at(AT(SP16), sp + 4, 0);
	EXPECT(&regs, AT(SP16));
	/* It does no harm where it is not used. */
	regs = regs_at(AT(FP16_FP), sp + 4, sp + 32);
	put(test, sp + 32, 0);
	put(test, sp + 40, AT(OUTERMOST + 8));
	EXPECT(&regs, AT(FP16_FP), AT(OUTERMOST + 8));

	/* No user addresses. */
	regs = regs_at(AT(SP16), TASK_SIZE_MAX - 16, 0);
	EXPECT(&regs, AT(SP16));
	regs = regs_at(AT(SP16), (unsigned long)&regs, 0);
	EXPECT(&regs, AT(SP16));
	regs = regs_at(AT(FP16_FP), 0, -16UL);
	EXPECT(&regs, AT(FP16_FP));
	regs = regs_at(AT(SP16), 0, 0);
	EXPECT(&regs, AT(SP16));
	regs = regs_at(AT(SP32_FP), -32UL, 0);
	EXPECT(&regs, AT(SP32_FP));

	/* Behind the end of the stack: the word is told, of each of the two. */
	regs = regs_at(AT(SP16), top - 8, 0);
	trace = unwind_test_walk(test, &regs, 8);
	KUNIT_EXPECT_EQ(test, 1, trace.nr);
	KUNIT_EXPECT_EQ(test, top, trace.absent);
	KUNIT_ASSERT_EQ(test, 0, vm_munmap(STACK, PAGE_SIZE));
	put(test, STACK + PAGE_SIZE, AT(SP16));
	regs = regs_at(AT(SP32_FP), STACK + PAGE_SIZE - 24, 0);
	trace = unwind_test_walk(test, &regs, 8);
	KUNIT_EXPECT_EQ(test, 1, trace.nr);
	KUNIT_EXPECT_EQ(test, STACK + PAGE_SIZE - 8, trace.absent);
}

/* Rows of other registers, in the first frame and in others. */
static void table_flexible(struct kunit *test)
{
	struct code *code = new_code(test);
	struct pt_regs *entered = task_pt_regs(current);
	unsigned long sp = code->sp, fp = sp + 400;
	struct unwind_user_regs regs;

	entered->r10 = sp + 64;
	entered->bx = sp + 16;
	entered->di = AT(SP24 + 1);
	entered->r12 = sp + 96;
	put(test, sp + 48, sp + 96);			/* DRAP: FP */
	put(test, sp + 56, AT(FP16_FP + 1));
	put(test, sp + 96, 0);
	put(test, sp + 104, AT(OUTERMOST + 1));
	put(test, sp + 40, AT(OUTERMOST + 2));		/* BY_RBX */
	put(test, sp + 16, sp + 200);			/* STORED; RA_IN_RDI */
	put(test, sp + 200, AT(SP16 + 1));
	put(test, sp + 216, AT(OUTERMOST + 3));
	put(test, sp + 8, AT(FP16_FP + 2));		/* FP_IN_R12 */

	regs = regs_at(AT(OTHER + DRAP), sp, fp);
	unwind_test_enter(regs.ip, sp, fp);
	EXPECT(&regs, AT(OTHER + DRAP), AT(FP16_FP + 1), AT(OUTERMOST + 1));
	/* The registers have changed since. */
	unwind_test_enter(regs.ip, sp, fp + 8);
	EXPECT(&regs, AT(OTHER + DRAP));

	regs.ip = AT(OTHER + BY_RBX);
	unwind_test_enter(regs.ip, sp, fp);
	EXPECT(&regs, AT(OTHER + BY_RBX), AT(OUTERMOST + 2));

	regs.ip = AT(OTHER + STORED);
	EXPECT(&regs, AT(OTHER + STORED), AT(SP16 + 1), AT(OUTERMOST + 3));

	regs.ip = AT(OTHER + RA_IN_RDI);
	unwind_test_enter(regs.ip, sp, fp);
	put(test, sp + 16, AT(OUTERMOST + 4));
	EXPECT(&regs, AT(OTHER + RA_IN_RDI), AT(SP24 + 1), AT(OUTERMOST + 4));

	regs.ip = AT(OTHER + FP_IN_R12);
	unwind_test_enter(regs.ip, sp, fp);
	EXPECT(&regs, AT(OTHER + FP_IN_R12), AT(FP16_FP + 2), AT(OUTERMOST + 1));

	/* Below the stack pointer: the frames would not have to ascend. */
	put(test, sp - 16, AT(OUTERMOST + 5));
	regs.ip = AT(OTHER + BELOW);
	EXPECT(&regs, AT(OTHER + BELOW));

	/* A caller's other registers are not known; its stack pointer is. */
	regs = regs_at(AT(SP16), sp - 16, fp);
	unwind_test_enter(regs.ip, sp - 16, fp);
	put(test, sp - 8, AT(OTHER + BY_RBX + 1));
	EXPECT(&regs, AT(SP16), AT(OTHER + BY_RBX + 1));
	put(test, sp - 8, AT(OTHER + STORED + 1));
	put(test, sp + 16, sp + 200);
	EXPECT(&regs, AT(SP16), AT(OTHER + STORED + 1), AT(SP16 + 1), AT(OUTERMOST + 3));
}

/* A signal frame, as a handler that has returned sees it. */
static unsigned long put_frame(struct kunit *test, unsigned long at, unsigned long ip,
			       unsigned long sp, unsigned long fp)
{
	struct rt_sigframe *frame = kunit_kzalloc(test, sizeof(*frame), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, frame);
	frame->uc.uc_mcontext.ip = ip;
	frame->uc.uc_mcontext.sp = sp;
	frame->uc.uc_mcontext.bp = fp;
	frame->uc.uc_mcontext.bx = sp + 100 * 8;
	frame->pretcode = (char __user *)AT(TRAMPOLINE + 1);
	KUNIT_ASSERT_EQ(test, 0UL, copy_to_user((void __user *)at, frame, sizeof(*frame)));
	return at + 8;
}

static void table_signals(struct kunit *test)
{
	struct code *code = new_code(test);
	unsigned long sp = code->sp, alt = sp + 4096, next;
	struct unwind_user_regs regs;
	unsigned int i;

	/* On another stack, which is above. The interrupted instruction is SP24's first. */
	put_frame(test, alt, AT(SP24), sp, 5);
	put(test, sp + 16, AT(OUTERMOST + 1));
	regs = regs_at(AT(SP16), alt - 8, 7);
	EXPECT(&regs, AT(SP16), AT(TRAMPOLINE + 1), AT(SP24), AT(OUTERMOST + 1));
	/* From inside of the trampoline. */
	regs = regs_at(AT(TRAMPOLINE + 2), alt + 8, 7);
	EXPECT(&regs, AT(TRAMPOLINE + 2), AT(SP24), AT(OUTERMOST + 1));

	/* Its frame pointer, and another register of it. */
	put_frame(test, alt, AT(FP16_FP), sp, sp + 32);
	put(test, sp + 40, AT(OUTERMOST + 2));
	EXPECT(&regs, AT(TRAMPOLINE + 2), AT(FP16_FP), AT(OUTERMOST + 2));
	put_frame(test, alt, AT(OTHER + BY_RBX), sp, 0);
	put(test, sp + 100 * 8 + 24, AT(OUTERMOST + 3));
	EXPECT(&regs, AT(TRAMPOLINE + 2), AT(OTHER + BY_RBX), AT(OUTERMOST + 3));
	/* Its CFA may be its stack pointer. */
	put_frame(test, alt, AT(SAME), sp, 0);
	put(test, sp - 8, AT(OUTERMOST + 4));
	EXPECT(&regs, AT(TRAMPOLINE + 2), AT(SAME), AT(OUTERMOST + 4));

	/* What is no user address. */
	put_frame(test, alt, -1UL, sp, 0);
	EXPECT(&regs, AT(TRAMPOLINE + 2));
	put_frame(test, alt, AT(SP16), (unsigned long)&regs, 0);
	EXPECT(&regs, AT(TRAMPOLINE + 2), AT(SP16));
	regs.sp = STACK + 4 * PAGE_SIZE - 64;
	KUNIT_EXPECT_EQ(test, STACK + 4 * PAGE_SIZE - 64 + arch_unwind_sigframe(16),
			unwind_test_walk(test, &regs, 8).absent);

	/* Frames that go around: it ends. */
	next = put_frame(test, alt, AT(TRAMPOLINE + 2), alt + 8, 0);
	regs = regs_at(AT(TRAMPOLINE + 2), next, 0);
	{
		struct unwind_stacktrace trace = unwind_test_walk(test, &regs, 64);

		KUNIT_EXPECT_EQ(test, 9, trace.nr);
		for (i = 0; i < trace.nr; i++)
			KUNIT_EXPECT_EQ(test, AT(TRAMPOLINE + 2), trace.entries[i]);
	}
}

/* A probe on the first instruction: where nobody has a table. */
static void table_at_entry(struct kunit *test)
{
	struct code *code = new_code(test);
	unsigned long sp = code->sp;
	struct unwind_user_regs regs = regs_at(PLAIN, sp, sp + 32);

	put(test, sp, PLAIN + 64);
	put(test, sp + 32, 0);
	put(test, sp + 40, AT(OUTERMOST));
	put(test, sp + 8, AT(OUTERMOST + 1));
	EXPECT(&regs, PLAIN, AT(OUTERMOST));
	regs.at_entry = true;
	EXPECT(&regs, PLAIN, PLAIN + 64, AT(OUTERMOST));
	regs.ip = AT(SP16);
	EXPECT(&regs, AT(SP16), AT(OUTERMOST + 1));
	/* In a large gap: code without a row. In a small one it may be anything. */
	regs.ip = AT(SAME + 0x80);
	EXPECT(&regs, AT(SAME + 0x80), PLAIN + 64, AT(OUTERMOST));
	regs.ip = AT(SP24 + 0x80);
	EXPECT(&regs, AT(SP24 + 0x80));
}

/* A mapping that is being changed, is gone, or is another file's. */
static void table_mappings(struct kunit *test)
{
	struct code *code = new_code(test);
	unsigned long sp = code->sp, offset = AT(SP16) - CODE;
	struct unwind_user_regs regs = regs_at(PLAIN, sp, sp + 16);
	struct mm_struct *mm = current->mm;
	struct vm_area_struct *vma;

	unwind_test_record(test, 8, sp + 16, 0, AT(SP16 + 1));
	put(test, sp + 40, AT(OUTERMOST + 1));
	EXPECT(&regs, PLAIN, AT(SP16 + 1), AT(OUTERMOST + 1));

	/* Another mapping is changed, then this one. */
	mmap_write_lock(mm);
	vma_start_write(vma_lookup(mm, STACK));
	EXPECT(&regs, PLAIN, AT(SP16 + 1), AT(OUTERMOST + 1));
	vma = vma_lookup(mm, CODE);
	vma_start_write(vma);
	EXPECT(&regs, PLAIN, AT(SP16 + 1));
	vma->detached = true;
	mmap_write_unlock(mm);
	EXPECT(&regs, PLAIN, AT(SP16 + 1));
	vma->detached = false;
	EXPECT(&regs, PLAIN, AT(SP16 + 1), AT(OUTERMOST + 1));

	/* It is not to be executed any more, is gone, and is there again. */
	KUNIT_ASSERT_EQ(test, 0, vm_munmap(CODE, CODE_SIZE));
	put(test, sp + 16, sp + 64);
	unwind_test_record(test, 8, sp + 64, 0, PLAIN + 1);
	EXPECT(&regs, PLAIN, AT(SP16 + 1), PLAIN + 1);
	map_code(test, new_file(test));
	EXPECT(&regs, PLAIN, AT(SP16 + 1), PLAIN + 1);
	KUNIT_ASSERT_EQ(test, CODE,
			vm_mmap(code->file, CODE, CODE_SIZE, PROT_READ,
				MAP_PRIVATE | MAP_FIXED, CODE_PAGE * PAGE_SIZE));
	EXPECT(&regs, PLAIN, AT(SP16 + 1), PLAIN + 1);
	map_code(test, code->file);
	EXPECT(&regs, PLAIN, AT(SP16 + 1), AT(OUTERMOST + 1));

	/* Another part of the file at the same address has other rows. */
	KUNIT_ASSERT_EQ(test, CODE,
			vm_mmap(code->file, CODE, PAGE_SIZE, PROT_READ | PROT_EXEC,
				MAP_PRIVATE | MAP_FIXED, 2 * PAGE_SIZE));
	put(test, sp + 16, 0);
	unwind_test_record(test, 8, sp + 16, 0, CODE + (SP24 - 2 * PAGE_SIZE) + 1);
	put(test, sp + 48, AT(OUTERMOST + 2));
	regs = regs_at(PLAIN, sp, sp + 16);
	KUNIT_EXPECT_NE(test, offset, SP24 - 2 * PAGE_SIZE);
	EXPECT(&regs, PLAIN, CODE + (SP24 - 2 * PAGE_SIZE) + 1, AT(OUTERMOST + 2));
}

/* More mappings than a walk keeps. */
static void table_many_mappings(struct kunit *test)
{
	struct code *code = new_code(test);
	unsigned long entries[60], sp = code->sp;
	struct unwind_user_regs regs;
	unsigned int i;

	for (i = 0; i < 20; i++)
		KUNIT_ASSERT_EQ(test, PLAIN + 2 * (i + 1) * PAGE_SIZE,
				vm_mmap(code->file, PLAIN + 2 * (i + 1) * PAGE_SIZE, PAGE_SIZE,
					PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED,
					2 * PAGE_SIZE));
	for (i = 0; i < ARRAY_SIZE(entries); i++) {
		entries[i] = PLAIN + 2 * (i % 20 + 1) * PAGE_SIZE + 8;
		if (i)
			put(test, sp + 16 * i - 8, entries[i]);
	}
	put(test, sp + 16 * i - 8, 0);
	regs = regs_at(entries[0], sp, 0);
	expect(test, &regs, entries, ARRAY_SIZE(entries));
}

static struct kunit_case unwind_table_cases[] = {
	KUNIT_CASE(table_rows),
	KUNIT_CASE(table_mixed),
	KUNIT_CASE(table_gaps),
	KUNIT_CASE(table_gap_bounds),
	KUNIT_CASE(table_gap_in_part),
	KUNIT_CASE(table_stops),
	KUNIT_CASE(table_flexible),
	KUNIT_CASE(table_signals),
	KUNIT_CASE(table_at_entry),
	KUNIT_CASE(table_mappings),
	KUNIT_CASE(table_many_mappings),
	{}
};

static struct kunit_suite unwind_table_suite = {
	.name		= "unwind_table",
	.test_cases	= unwind_table_cases,
};

kunit_test_suite(unwind_table_suite);

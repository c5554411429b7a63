// SPDX-License-Identifier: GPL-2.0
/*
 * Unwinding tables that are made of files: what the section says is what libdw says.
 *
 * The two are compared by what comes out: CFA, return address and frame pointer, for registers
 * and memory that are any numbers. So an expression needs not be understood in the same way.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <linux/kernel.h>
#include <linux/string.h>
#include <linux/unaligned.h>
#include <linux/zalloc.h>

#include "cfi-form.h"
#include "cfi-table.h"
#include "debug.h"
#include "sframe.h"
#include "tests.h"

#ifdef HAVE_DWARF_SUPPORT
#include <dwarf.h>
#include <elfutils/libdw.h>

#define NR_REGS		17
#define RA_REG		16
#define STEPS_MAX	50000

struct outcome {
	bool	known;		/* it is said, in one way or the other */
	bool	outermost;
	u64	sp, ra, fp;
};

static u64 mix(u64 value)
{
	value = (value ^ (value >> 31)) * 0x9e3779b97f4a7c15ULL;
	return value ^ (value >> 29);
}

/* Any register and any word of memory has a value of its own. */
static u64 reg_value(unsigned int reg, u64 pc)
{
	return reg == RA_REG ? pc : mix(reg + 1);
}

static u64 memory_value(u64 addr)
{
	return mix(addr + 0x5555);
}

/* Return: whether the operations are known here; @is_value when it is no location */
static bool evaluate(const Dwarf_Op *ops, size_t nr, u64 cfa, u64 pc, u64 *result, bool *is_value)
{
	u64 stack[16] = {};
	size_t i;
	int n = 0;

	*is_value = false;
	for (i = 0; i < nr; i++) {
		u8 atom = ops[i].atom;
		u64 number = ops[i].number;

		if (n == ARRAY_SIZE(stack))
			return false;
		if (atom >= DW_OP_breg0 && atom < DW_OP_breg0 + NR_REGS) {
			stack[n++] = reg_value(atom - DW_OP_breg0, pc) + number;
			continue;
		}
		if (atom >= DW_OP_lit0 && atom <= DW_OP_lit31) {
			stack[n++] = atom - DW_OP_lit0;
			continue;
		}

		switch (atom) {
		case DW_OP_call_frame_cfa:
			stack[n++] = cfa;
			continue;
		case DW_OP_bregx:
			if (number >= NR_REGS)
				return false;
			stack[n++] = reg_value(number, pc) + ops[i].number2;
			continue;
		case DW_OP_regx:
			if (number >= NR_REGS)
				return false;
			stack[n++] = reg_value(number, pc);
			*is_value = true;
			continue;
		case DW_OP_stack_value:
			*is_value = true;
			continue;
		case DW_OP_const1u ... DW_OP_consts:
			stack[n++] = number;
			continue;
		default:
			break;
		}

		if (n < 1)
			return false;
		switch (atom) {
		case DW_OP_deref:
			stack[n - 1] = memory_value(stack[n - 1]);
			continue;
		case DW_OP_plus_uconst:
			stack[n - 1] += number;
			continue;
		default:
			break;
		}

		if (n < 2)
			return false;
		n--;
		switch (atom) {
		case DW_OP_plus:
			stack[n - 1] += stack[n];
			break;
		case DW_OP_minus:
			stack[n - 1] -= stack[n];
			break;
		case DW_OP_and:
			stack[n - 1] &= stack[n];
			break;
		case DW_OP_shl:
			stack[n - 1] <<= stack[n];
			break;
		case DW_OP_ge:
			stack[n - 1] = (s64)stack[n - 1] >= (s64)stack[n];
			break;
		default:
			return false;
		}
	}
	if (!n)
		return false;
	*result = stack[n - 1];
	return true;
}

static bool dwarf_reg(Dwarf_Frame *frame, int reg, u64 cfa, u64 pc, u64 *value, bool *undefined)
{
	Dwarf_Op mem[3], *ops;
	bool is_value;
	size_t nr;

	*undefined = false;
	if (dwarf_frame_register(frame, reg, mem, &ops, &nr))
		return false;
	if (!nr) {
		*undefined = ops;
		*value = reg_value(reg, pc);
		return true;
	}
	if (!evaluate(ops, nr, cfa, pc, value, &is_value))
		return false;
	if (!is_value)
		*value = memory_value(*value);
	return true;
}

/* Return: whether libdw has a row at @pc */
static bool dwarf_outcome(Dwarf_CFI *cfi, u64 pc, struct outcome *out, bool *is_signal)
{
	bool undefined, is_value, ra_undefined;
	Dwarf_Frame *frame;
	Dwarf_Op *ops;
	u64 cfa = 0;
	size_t nr;
	int ra_reg;

	*out = (struct outcome) {};
	if (dwarf_cfi_addrframe(cfi, pc, &frame))
		return false;

	ra_reg = dwarf_frame_info(frame, NULL, NULL, is_signal);
	out->known = !dwarf_frame_cfa(frame, &ops, &nr) && nr &&
		     evaluate(ops, nr, 0, pc, &cfa, &is_value);
	if (dwarf_reg(frame, ra_reg, cfa, pc, &out->ra, &ra_undefined) && ra_undefined) {
		out->known = true;
		out->outermost = true;
	} else if (out->known) {
		out->known = dwarf_reg(frame, ra_reg, cfa, pc, &out->ra, &undefined) &&
			     dwarf_reg(frame, SFRAME_REG_SP, cfa, pc, &out->sp, &undefined) &&
			     dwarf_reg(frame, SFRAME_REG_FP, cfa, pc, &out->fp, &undefined) &&
			     !undefined;
	}
	free(frame);
	return true;
}

static u64 rule_slot(const struct sframe_rule *rule, u64 cfa, u64 pc)
{
	return rule->offset + (rule->base == SFRAME_BASE_CFA ? cfa : reg_value(rule->reg, pc));
}

static u64 rule_value(const struct sframe_rule *rule, u64 cfa, u64 pc)
{
	u64 slot = rule_slot(rule, cfa, pc);

	return rule->deref ? memory_value(slot) : slot;
}

/* As the kernel has it */
static void sframe_outcome(const struct sframe_row *row, u64 pc, struct outcome *out)
{
	u64 cfa;

	*out = (struct outcome) { .known = !row->end, .outermost = row->end };
	if (row->end)
		return;

	cfa = rule_value(&row->cfa, 0, pc);
	out->sp = cfa;
	out->ra = memory_value(cfa - 8);
	if (row->ra.base != SFRAME_BASE_NONE) {
		out->ra = rule_value(&row->ra, cfa, pc);
		if (row->ra.deref)
			out->sp = rule_slot(&row->ra, cfa, pc) + 8;
	}
	out->fp = row->fp.base == SFRAME_BASE_NONE ? reg_value(SFRAME_REG_FP, pc) :
						     rule_value(&row->fp, cfa, pc);
}

struct comparison {
	const char		*name;
	struct sframe_table	table;
	Dwarf_CFI		*cfi;
	u64			nr, unsaid, missing, wrong;
};

static void compare(struct comparison *c, u64 pc, u64 offset)
{
	const struct sframe_function *function = sframe_table__function(&c->table, offset);
	const struct sframe_row *row = sframe_table__row(&c->table, offset);
	struct outcome dwarf, sframe;
	bool is_signal, wrong;

	c->nr++;
	if (!dwarf_outcome(c->cfi, pc, &dwarf, &is_signal)) {
		/* Nothing is said of it, unless it is the byte behind a trampoline */
		wrong = dwarf_outcome(c->cfi, pc - 1, &dwarf, &is_signal) && is_signal ?
			!row || !function->is_signal : row && !row->end;
		if (wrong && c->wrong++ < 5)
			pr_debug("%s: %#" PRIx64 ": another table than libdw's\n", c->name, pc);
		return;
	}
	if (!row) {
		if (c->missing++ < 5)
			pr_debug("%s: %#" PRIx64 ": no row\n", c->name, pc);
		return;
	}
	sframe_outcome(row, pc, &sframe);

	if (sframe.outermost || !dwarf.known) {
		wrong = !sframe.outermost;
		if (!dwarf.outermost)
			c->unsaid++;
	} else {
		wrong = dwarf.outermost || is_signal != function->is_signal ||
			sframe.ra != dwarf.ra || sframe.fp != dwarf.fp ||
			(!is_signal && sframe.sp != dwarf.sp);
	}
	if (wrong && c->wrong++ < 5)
		pr_debug("%s: %#" PRIx64 ": another caller than libdw's\n", c->name, pc);
}

/* All rows at their first and last byte, and places that have nothing to do with rows */
static void compare_segment(struct comparison *c, const GElf_Phdr *phdr)
{
	u64 offset, step = phdr->p_filesz / STEPS_MAX + 1;
	u32 i, j;

	for (offset = 0; offset < phdr->p_filesz; offset += step)
		compare(c, phdr->p_vaddr + offset, phdr->p_offset + offset);

	for (i = 0; i < c->table.nr_functions; i++) {
		const struct sframe_function *f = &c->table.functions[i];
		u64 addr = f->start - phdr->p_offset + phdr->p_vaddr;

		if (f->start < phdr->p_offset || f->start - phdr->p_offset >= phdr->p_filesz)
			continue;
		for (j = 0; j < f->nr_rows; j++) {
			u32 start = c->table.rows[f->first_row + j].start;

			compare(c, addr + start, f->start + start);
			if (start)
				compare(c, addr + start - 1, f->start + start - 1);
		}
		compare(c, addr + f->size - 1, f->start + f->size - 1);
		compare(c, addr + f->size, f->start + f->size);
	}
}

static int compare_elf(const char *name, Elf *elf)
{
	struct comparison c = { .name = name };
	struct cfi_table cfi = {};
	int err, ret = TEST_FAIL;
	size_t nr, i;

	err = cfi_table__make(&cfi, elf);
	if (err) {
		pr_debug("%s: no table: %d\n", name, err);
		return TEST_FAIL;
	}

	err = sframe_table__decode(&c.table, cfi.section, cfi.size, 0);
	c.cfi = dwarf_getcfi_elf(elf);
	if (err || !c.cfi || elf_getphdrnum(elf, &nr)) {
		pr_debug("%s: cannot read back: %d\n", name, err);
		goto out;
	}
	if (cfi_table__check_form(&cfi, &c.table))
		goto out;

	for (i = 0; i < nr; i++) {
		GElf_Phdr phdr;

		if (gelf_getphdr(elf, i, &phdr) && phdr.p_type == PT_LOAD && phdr.p_flags & PF_X)
			compare_segment(&c, &phdr);
	}

	pr_debug("%s: %u functions, %u rows, %zu bytes; of %" PRIu64 " places %" PRIu64
		 " wrong, %" PRIu64 " missing, %" PRIu64 " not to be said\n", name,
		 cfi.nr_functions, cfi.nr_rows, cfi.size, c.nr, c.wrong, c.missing, c.unsaid);
	if (c.nr && !c.wrong && !c.missing && c.unsaid * 1000 <= c.nr)
		ret = TEST_OK;
out:
	if (c.cfi)
		dwarf_cfi_end(c.cfi);
	sframe_table__exit(&c.table);
	cfi_table__exit(&cfi);
	return ret;
}

static int compare_file(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int ret = TEST_FAIL;
	Elf *elf;

	if (fd < 0) {
		pr_debug("%s: %m\n", path);
		return TEST_SKIP;
	}
	elf_version(EV_CURRENT);
	elf = elf_begin(fd, ELF_C_READ, NULL);
	if (elf)
		ret = compare_elf(path, elf);
	elf_end(elf);
	close(fd);
	return ret;
}

static int compare_loaded(struct dl_phdr_info *info, size_t size __maybe_unused, void *data)
{
	int *nr = data;

	/* This program and the vDSO have no path here */
	if (info->dlpi_name[0] != '/')
		return 0;
	++*nr;
	return compare_file(info->dlpi_name) == TEST_OK ? 0 : -1;
}

/* All that this perf is made of, and others when they are there */
static int test__cfi_files(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	static const char * const paths[] = {
		"/usr/bin/python3", "/usr/bin/perl", "/bin/bash", "/usr/bin/git",
		"/usr/lib/gcc/x86_64-linux-gnu/12/cc1", "/usr/lib/gcc/x86_64-linux-gnu/14/cc1",
		"/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
		"/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
	};
	int nr = 0;
	size_t i;

#ifndef __x86_64__
	return TEST_SKIP;
#endif
	if (compare_file("/proc/self/exe") != TEST_OK || dl_iterate_phdr(compare_loaded, &nr))
		return TEST_FAIL;
	TEST_ASSERT_VAL("no libraries", nr);

	for (i = 0; i < ARRAY_SIZE(paths); i++) {
		if (compare_file(paths[i]) == TEST_FAIL)
			return TEST_FAIL;
	}
	return TEST_OK;
}

static int test__cfi_vdso(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	unsigned long vdso = getauxval(AT_SYSINFO_EHDR);
	const void *image = (const void *)vdso;
	int ret = TEST_FAIL;
	Elf *elf;

	if (!vdso)
		return TEST_SKIP;
	elf_version(EV_CURRENT);
	elf = elf_memory((char *)image, cfi_image__size(image));
	if (elf)
		ret = compare_elf("[vdso]", elf);
	elf_end(elf);
	return ret;
}

/* A damaged file has a section that holds, or none. The same damage each time. */
static int test__cfi_damaged(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	unsigned long vdso = getauxval(AT_SYSINFO_EHDR);
	const void *original = (const void *)vdso;
	size_t size = vdso ? cfi_image__size(original) : 0;
	int nr_made = 0, ret = TEST_OK;
	u64 random = 1;
	int i;

	if (!vdso)
		return TEST_SKIP;

	for (i = 0; i < 20000 && ret == TEST_OK; i++) {
		struct sframe_table read = {};
		struct cfi_table cfi = {};
		u8 *image = memdup(original, size);
		int j;

		if (!image)
			return TEST_FAIL;
		for (j = 0; j < 1 + i % 8; j++) {
			random = mix(random + 1);
			image[random % size] = random >> 32;
		}
		if (!cfi_table__make_memory(&cfi, image, size)) {
			nr_made++;
			if (sframe_table__decode(&read, cfi.section, cfi.size, 0) ||
			    cfi_table__check_form(&cfi, &read))
				ret = TEST_FAIL;
		}
		sframe_table__exit(&read);
		cfi_table__exit(&cfi);
		free(image);
	}
	pr_debug("%d of %d damaged files have a table\n", nr_made, i);
	TEST_ASSERT_VAL("no table", nr_made);
	return ret;
}

static struct test_case tests__cfi_table[] = {
	TEST_CASE("Unwinding tables: files against libdw", cfi_files),
	TEST_CASE("Unwinding tables: the vDSO against libdw", cfi_vdso),
	TEST_CASE("Unwinding tables: damaged files", cfi_damaged),
	{ .name = NULL, }
};
#else
static int test__cfi_table(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	pr_debug("This perf was built without libdw\n");
	return TEST_SKIP;
}

static struct test_case tests__cfi_table[] = {
	TEST_CASE_REASON("Unwinding tables: tables", cfi_table, "built without libdw"),
	{ .name = NULL, }
};
#endif

struct test_suite suite__cfi_table = {
	.desc = "Unwinding tables: sections made of files",
	.test_cases = tests__cfi_table,
};

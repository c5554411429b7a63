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

static int check_form(const struct cfi_table *cfi, const struct sframe_table *table)
{
	const u8 *section = cfi->section;
	u32 i;

	TEST_ASSERT_EQUAL("flags", section[3], SFRAME_F_SORTED);
	TEST_ASSERT_EQUAL("number of functions", (int)get_unaligned_le32(section + 8),
			  (int)table->nr_functions);
	for (i = 0; i < table->nr_functions; i++) {
		const struct sframe_function *f = &table->functions[i];
		u64 start = get_unaligned_le64(section + SFRAME_HEADER_SIZE +
					       i * SFRAME_FUNCTION_SIZE);

		TEST_ASSERT_VAL("sorted", f->start == start);
		TEST_ASSERT_VAL("number of rows", f->nr_rows >= 1 && f->nr_rows <= 64);
		TEST_ASSERT_VAL("overlap", !i || f[-1].start + f[-1].size <= f->start);
	}
	return TEST_OK;
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
	if (check_form(&cfi, &c.table))
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

/* push %rbp; mov %rsp,%rbp; nop; leave; ret, as an assembler of version 3 writes it */
static const u8 assembled[] = {
	0xe2, 0xde, 0x03, 0x04, 0x03, 0x00, 0xf8, 0x00, 0x01, 0x00, 0x00, 0x00, 0x04, 0x00,
	0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x10, 0x00, 0x00, 0x00,
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x07, 0x00, 0x00, 0x00,
	0x00, 0x00, 0x00, 0x00,
	0x04, 0x00, 0x00, 0x00, 0x00,
	0x00, 0x03, 0x08, 0x01, 0x05, 0x10, 0xf0, 0x04, 0x04, 0x10, 0xf0, 0x06, 0x05, 0x08, 0xf0,
};

/* What an assembler writes is understood, and written in the same way */
static int test__sframe_assembled(struct test_suite *test __maybe_unused,
				  int subtest __maybe_unused)
{
	const size_t rows = SFRAME_HEADER_SIZE + SFRAME_FUNCTION_SIZE;
	struct sframe_table table = {};
	void *section = NULL;
	size_t size = 0, i;
	int ret = TEST_FAIL;

	if (sframe_table__decode(&table, assembled, sizeof(assembled), 0x1000) ||
	    table.nr_functions != 1 || table.functions[0].start != 0x1000 + SFRAME_HEADER_SIZE ||
	    table.functions[0].size != 7 || table.nr_rows != 4)
		goto out;
	if (sframe_table__encode(&table, &section, &size) || size != sizeof(assembled) ||
	    memcmp(section + rows, assembled + rows, size - rows))
		goto out;

	ret = TEST_OK;
	/* Cut anywhere it is refused, and nothing is read behind its end */
	for (i = 0; i < sizeof(assembled); i++) {
		u8 *cut = memdup(assembled, i ?: 1);
		struct sframe_table none = {};

		if (!cut || !sframe_table__decode(&none, cut, i, 0))
			ret = TEST_FAIL;
		sframe_table__exit(&none);
		free(cut);
	}
out:
	free(section);
	sframe_table__exit(&table);
	return ret;
}

/* A row for each of the first @nr bytes at @start */
static void add_function(struct sframe_table *table, u64 start, u32 nr, u64 size)
{
	u32 i;

	sframe_table__begin(table, start, 0, false);
	for (i = 0; i < nr; i++) {
		struct sframe_row row = {
			.start = i,
			.cfa = { .base = SFRAME_BASE_REG, .reg = SFRAME_REG_SP,
				 .offset = 8 + 8 * i },
		};

		sframe_table__add_row(table, &row);
	}
	sframe_table__end(table, size);
}

/* Long functions are split, others are cut where the next one begins. */
static int test__sframe_functions(struct test_suite *test __maybe_unused,
				  int subtest __maybe_unused)
{
	struct sframe_table table = {}, read = {};
	struct cfi_table cfi = {};
	int ret = TEST_FAIL;
	u64 pc;

	add_function(&table, 0x5000, 1, 0x20);
	add_function(&table, 0x4000, 300, 0x1000);
	add_function(&table, 0x2000, 4, 0x20);
	add_function(&table, 0x2002, 1, 0x10);
	add_function(&table, 0x2002, 2, 0x10);
	add_function(&table, 0x3000, 1, 0);

	if (sframe_table__encode(&table, &cfi.section, &cfi.size) ||
	    sframe_table__decode(&read, cfi.section, cfi.size, 0) || check_form(&cfi, &read))
		goto out;

	if (read.nr_functions != 2 + 5 + 1 || sframe_table__row(&read, 0x1fff) ||
	    sframe_table__row(&read, 0x2001)->cfa.offset != 16 ||
	    sframe_table__row(&read, 0x2002)->cfa.offset != 8 ||
	    sframe_table__row(&read, 0x2011)->cfa.offset != 8 ||
	    sframe_table__row(&read, 0x2012) || sframe_table__row(&read, 0x3000))
		goto out;

	for (pc = 0x4000; pc < 0x5000; pc++) {
		const struct sframe_row *row = sframe_table__row(&read, pc);

		if (!row || row->cfa.offset != 8 + 8 * (int)min_t(u64, pc - 0x4000, 299))
			goto out;
	}
	ret = TEST_OK;
out:
	cfi_table__exit(&cfi);
	sframe_table__exit(&read);
	sframe_table__exit(&table);
	return ret;
}

/* An ELF file with an executable segment, 0x1000 bytes at 0x401000, and .sframe at 0x402000 */
#define IMAGE_TEXT	0x200
#define IMAGE_SFRAME	0x1200

static size_t make_image(u8 *image, const void *sframe, size_t size)
{
	static const char names[] = "\0.sframe\0.shstrtab";
	Elf64_Ehdr *ehdr = (void *)image;
	Elf64_Phdr *phdr = (void *)(ehdr + 1);
	size_t strings = IMAGE_SFRAME + size;
	size_t sections = roundup(strings + sizeof(names), 8);
	Elf64_Shdr *shdr = (void *)(image + sections);

	*ehdr = (Elf64_Ehdr) {
		.e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB,
			     EV_CURRENT },
		.e_type = ET_DYN, .e_machine = EM_X86_64, .e_version = EV_CURRENT,
		.e_phoff = sizeof(*ehdr), .e_shoff = sections, .e_ehsize = sizeof(*ehdr),
		.e_phentsize = sizeof(*phdr), .e_phnum = 1, .e_shentsize = sizeof(*shdr),
		.e_shnum = 3, .e_shstrndx = 2,
	};
	*phdr = (Elf64_Phdr) {
		.p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_offset = IMAGE_TEXT,
		.p_vaddr = 0x401000, .p_filesz = 0x1000, .p_memsz = 0x1000,
	};
	memcpy(image + IMAGE_SFRAME, sframe, size);
	memcpy(image + strings, names, sizeof(names));
	shdr[1] = (Elf64_Shdr) {
		.sh_name = 1, .sh_type = 0x6ffffff4, .sh_flags = SHF_ALLOC, .sh_addr = 0x402000,
		.sh_offset = IMAGE_SFRAME, .sh_size = size,
	};
	shdr[2] = (Elf64_Shdr) {
		.sh_name = 9, .sh_type = SHT_STRTAB, .sh_offset = strings,
		.sh_size = sizeof(names),
	};
	return sections + 3 * sizeof(*shdr);
}

/* .sframe of a file is taken, with file offsets for its addresses. */
static int test__sframe_section(struct test_suite *test __maybe_unused,
				int subtest __maybe_unused)
{
	struct sframe_table table = {}, read = {};
	struct cfi_table cfi = {};
	u8 *image = calloc(1, 0x10000);
	void *section = NULL;
	int ret = TEST_FAIL;
	size_t size;

	/* Relative to the section, as the flag for the field itself is clear */
	add_function(&table, 0x401100 - 0x402000, 100, 0x200);
	add_function(&table, 0x401ff0 - 0x402000, 2, 0x20);
	add_function(&table, 0x403000 - 0x402000, 2, 0x20);
	if (!image || sframe_table__encode(&table, &section, &size))
		goto out;

	size = make_image(image, section, size);
	if (cfi_table__make_memory(&cfi, image, size) ||
	    sframe_table__decode(&read, cfi.section, cfi.size, 0) || check_form(&cfi, &read))
		goto out;

	/* The second one is cut where the segment ends, the third one is in none. */
	if (read.nr_functions != 3 || read.functions[0].start != IMAGE_TEXT + 0x100 ||
	    sframe_table__row(&read, IMAGE_TEXT + 0x100 + 80)->cfa.offset != 8 + 8 * 80 ||
	    sframe_table__row(&read, IMAGE_TEXT + 0xfff)->cfa.offset != 16 ||
	    sframe_table__row(&read, IMAGE_TEXT + 0x1000))
		goto out;

	/* What is no file for x86-64 has no table */
	((Elf64_Ehdr *)image)->e_machine = EM_AARCH64;
	cfi_table__exit(&cfi);
	if (cfi_table__make_memory(&cfi, image, size) == -ENOEXEC)
		ret = TEST_OK;
out:
	cfi_table__exit(&cfi);
	sframe_table__exit(&read);
	sframe_table__exit(&table);
	free(section);
	free(image);
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
			    check_form(&cfi, &read))
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
	TEST_CASE("Unwinding tables: what an assembler writes", sframe_assembled),
	TEST_CASE("Unwinding tables: long functions and overlaps", sframe_functions),
	TEST_CASE("Unwinding tables: a file's own .sframe", sframe_section),
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

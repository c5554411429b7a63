// SPDX-License-Identifier: GPL-2.0
/*
 * SFrame sections as assemblers and linkers write them, and as perf writes them anew.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <linux/kernel.h>
#include <linux/string.h>
#include <linux/unaligned.h>

#include "cfi-form.h"
#include "cfi-table.h"
#include "debug.h"
#include "sframe.h"
#include "tests.h"

#ifdef HAVE_DWARF_SUPPORT
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
	    sframe_table__decode(&read, cfi.section, cfi.size, 0) ||
	    cfi_table__check_form(&cfi, &read))
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
	    sframe_table__decode(&read, cfi.section, cfi.size, 0) ||
	    cfi_table__check_form(&cfi, &read))
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

/*
 * What binutils 2.47.50 makes of this, with .plt at 0x401000, .plt.got and .text behind it,
 * and .sframe at 0x402000:
 *
 *	framed:	.cfi_startproc; push %rbp; .cfi_def_cfa_offset 16; .cfi_offset rbp, -16
 *		mov %rsp, %rbp; .cfi_def_cfa_register rbp; call lazy@plt
 *		leave; .cfi_def_cfa rsp, 8; ret; .cfi_endproc
 *	large:	.cfi_startproc; sub $100000, %rsp; .cfi_def_cfa_offset 100008; .fill 300, 1, 0x90
 *		add $100000, %rsp; .cfi_def_cfa_offset 8; ret; .cfi_endproc
 *	drap:	.cfi_startproc; lea 8(%rsp), %r10; .cfi_def_cfa r10, 0; and $-64, %rsp
 *		push -8(%r10); push %rbp; mov %rsp, %rbp; .cfi_escape 0x10, 6, 2, 0x76, 0
 *		push %r10; .cfi_escape 0xf, 3, 0x76, 0x78, 6; mov bound@gotpcrel(%rip), %rax
 *		call bound@plt; pop %r10; .cfi_def_cfa r10, 0; pop %rbp
 *		lea -8(%r10), %rsp; .cfi_def_cfa rsp, 8; ret; .cfi_endproc
 *	vfork:	.cfi_startproc; pop %rdi; .cfi_def_cfa_offset 0; .cfi_register rip, rdi
 *		syscall; jmp *%rdi; .cfi_endproc
 *	moved:	.cfi_startproc; .cfi_offset rip, -16; nop; .cfi_offset rip, -8; ret; .cfi_endproc
 *	outer:	.cfi_startproc; .cfi_undefined rip; call other@plt; .cfi_endproc
 *	late:	.cfi_startproc simple; nop; .cfi_def_cfa rsp, 8; .cfi_offset rip, -8; ret
 *		.cfi_endproc
 *	empty:	.cfi_startproc; .cfi_endproc
 *	last:	.cfi_startproc; push %rax; .cfi_def_cfa_offset 16; call outer
 *		.cfi_def_cfa_offset 8; .cfi_endproc
 *	signal:	.cfi_startproc; .cfi_signal_frame; mov $15, %eax; syscall; .cfi_endproc
 *
 *	as --gsframe-3 -o linked.o linked.s
 *	ld -shared -z lazy --section-start=.plt=0x401000 --section-start=.sframe=0x402000 \
 *		--section-start=.eh_frame=0x403000 -o file linked.o
 *	objcopy -O binary -j .sframe file sframe
 */
static const u8 linked[] = {
	0xe2, 0xde, 0x03, 0x05, 0x03, 0x00, 0xf8, 0x00, 0x0d, 0x00, 0x00, 0x00, 0x1d, 0x00, 0x00,
	0x00, 0xba, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xd0, 0x00, 0x00, 0x00, 0xe4, 0xef,
	0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x10, 0x00, 0x00, 0x00, 0x9c, 0x00, 0x00, 0x00, 0xe4,
	0xef, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x20, 0x00, 0x00, 0x00, 0xa7, 0x00, 0x00, 0x00,
	0xf4, 0xef, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x08, 0x00, 0x00, 0x00, 0xb2, 0x00, 0x00,
	0x00, 0xec, 0xef, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0b, 0x00, 0x00, 0x00, 0x00, 0x00,
	0x00, 0x00, 0xe7, 0xef, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3b, 0x01, 0x00, 0x00, 0x14,
	0x00, 0x00, 0x00, 0x12, 0xf1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x27, 0x00, 0x00, 0x00,
	0x28, 0x00, 0x00, 0x00, 0x29, 0xf1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x05, 0x00, 0x00,
	0x00, 0x51, 0x00, 0x00, 0x00, 0x1e, 0xf1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02, 0x00,
	0x00, 0x00, 0x60, 0x00, 0x00, 0x00, 0x10, 0xf1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x05,
	0x00, 0x00, 0x00, 0x6f, 0x00, 0x00, 0x00, 0x05, 0xf1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
	0x02, 0x00, 0x00, 0x00, 0x76, 0x00, 0x00, 0x00, 0xf7, 0xf0, 0xff, 0xff, 0xff, 0xff, 0xff,
	0xff, 0x00, 0x00, 0x00, 0x00, 0x7e, 0x00, 0x00, 0x00, 0xe7, 0xf0, 0xff, 0xff, 0xff, 0xff,
	0xff, 0xff, 0x06, 0x00, 0x00, 0x00, 0x86, 0x00, 0x00, 0x00, 0xdd, 0xf0, 0xff, 0xff, 0xff,
	0xff, 0xff, 0xff, 0x07, 0x00, 0x00, 0x00, 0x94, 0x00, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00,
	0x00, 0x00, 0x03, 0x08, 0x01, 0x05, 0x10, 0xf0, 0x04, 0x04, 0x10, 0xf0, 0x0a, 0x05, 0x08,
	0xf0, 0x03, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x03, 0x08, 0x07, 0x00, 0x43, 0xa8, 0x86,
	0x01, 0x00, 0x3a, 0x01, 0x03, 0x08, 0x06, 0x00, 0x00, 0x01, 0x00, 0x00, 0x04, 0x39, 0x08,
	0x05, 0x04, 0x51, 0x00, 0x11, 0x0a, 0x51, 0x00, 0x00, 0x33, 0x00, 0x13, 0x0a, 0x33, 0xf8,
	0x00, 0x33, 0x00, 0x21, 0x0a, 0x51, 0x00, 0x00, 0x33, 0x00, 0x26, 0x0a, 0x39, 0x08, 0x00,
	0x33, 0x00, 0x02, 0x00, 0x00, 0x01, 0x00, 0x00, 0x04, 0x39, 0x08, 0x01, 0x08, 0x39, 0x00,
	0x29, 0x00, 0x02, 0x00, 0x00, 0x01, 0x00, 0x00, 0x08, 0x39, 0x08, 0x02, 0xf0, 0x01, 0x04,
	0x39, 0x08, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x01,
	0x03, 0x08, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x03, 0x08, 0x03, 0x00, 0x00, 0x00, 0x00,
	0x00, 0x03, 0x08, 0x01, 0x03, 0x10, 0x06, 0x03, 0x08, 0x01, 0x00, 0x80, 0x00, 0x00, 0x00,
	0x03, 0x08, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x03, 0x10, 0x06, 0x03, 0x18, 0x02, 0x00,
	0x10, 0x00, 0x10, 0x00, 0x03, 0x08, 0x0b, 0x03, 0x10, 0x01, 0x00, 0x10, 0x00, 0x08, 0x00,
	0x03, 0x10,
};

/* As .eh_frame has it. But .plt.got, whose rows are wrong, is left to .eh_frame. */
static const char linked_rows[] =
	"1000 sp+16\n1006 sp+24\n1010 sp+8\n101b sp+16\n1020 sp+8\n102b sp+16\n"
	"1030 -\n"
	"1038 sp+8\n1039 sp+16 fp *(cfa-16)\n103c fp+16 fp *(cfa-16)\n1042 sp+8 fp *(cfa-16)\n"
	"1043 sp+8\n104a sp+100008\n117d sp+8\n"
	"1183 r10+0\n118f r10+0 fp *(fp+0)\n1191 *(fp-8) fp *(fp+0)\n"
	"119f r10+0 fp *(fp+0)\n11a4 sp+8 fp *(fp+0)\n"
	"11a5 sp+8\n11a6 sp+0 ra r5+0\n"
	"11aa end\n11ab sp+8\n"
	"11ac end\n"
	"11b2 sp+8\n"
	"11b4 sp+16\n"
	"11b9 sp+8 signal\n"
	"11c1 -\n";

static int put_rule(char *text, size_t size, const char *name, const struct sframe_rule *rule)
{
	static const char * const registers[] = {
		"r0", "r1", "r2", "r3", "r4", "r5", "fp", "sp", "r8", "r9", "r10", "r11", "r12",
		"r13", "r14", "r15",
	};

	if (rule->base == SFRAME_BASE_NONE)
		return 0;
	return scnprintf(text, size, rule->deref ? "%s*(%s%+d)" : "%s%s%+d", name,
			 rule->base == SFRAME_BASE_CFA ? "cfa" : registers[rule->reg],
			 rule->offset);
}

/* What holds at @offset */
static void put_row(char *text, size_t size, const struct sframe_table *table, u64 offset)
{
	const struct sframe_row *row = sframe_table__row(table, offset);
	int len;

	if (!row || row->end) {
		scnprintf(text, size, row ? "end" : "-");
		return;
	}
	len = put_rule(text, size, "", &row->cfa);
	len += put_rule(text + len, size - len, " ra ", &row->ra);
	len += put_rule(text + len, size - len, " fp ", &row->fp);
	if (sframe_table__function(table, offset)->is_signal)
		scnprintf(text + len, size - len, " signal");
}

/* A line for each place where another row begins to hold */
static void put_rows(char *text, size_t size, const struct sframe_table *table)
{
	char rows[2][64] = {};
	int len = 0;
	u64 pc;

	for (pc = 0x1000; pc < 0x2000; pc++) {
		char *row = rows[pc % 2];

		put_row(row, sizeof(rows[0]), table, pc - 0x1000 + IMAGE_TEXT);
		if (strcmp(rows[0], rows[1]))
			len += scnprintf(text + len, size - len, "%x %s\n", (u32)pc, row);
	}
}

/* All kinds of functions and rows that a linker writes, the odd ones included */
static int test__sframe_linked(struct test_suite *test __maybe_unused,
			       int subtest __maybe_unused)
{
	u8 *image = calloc(1, 0x10000);
	struct sframe_table read = {};
	struct cfi_table cfi = {};
	char text[2048] = "";
	int ret = TEST_FAIL;
	size_t size;

	if (!image)
		goto out;

	size = make_image(image, linked, sizeof(linked));
	if (cfi_table__make_memory(&cfi, image, size) ||
	    sframe_table__decode(&read, cfi.section, cfi.size, 0) ||
	    cfi_table__check_form(&cfi, &read))
		goto out;

	put_rows(text, sizeof(text), &read);
	pr_debug("%s", text);
	/* No row is behind a function's end, and that of moved() cannot be said */
	if (!strcmp(text, linked_rows) && cfi.nr_rows == 27 && cfi.nr_unsaid == 1)
		ret = TEST_OK;
out:
	cfi_table__exit(&cfi);
	sframe_table__exit(&read);
	free(image);
	return ret;
}

static struct test_case tests__cfi_sframe[] = {
	TEST_CASE("Unwinding tables: what an assembler writes", sframe_assembled),
	TEST_CASE("Unwinding tables: what a linker writes", sframe_linked),
	TEST_CASE("Unwinding tables: long functions and overlaps", sframe_functions),
	TEST_CASE("Unwinding tables: a file's own .sframe", sframe_section),
	{ .name = NULL, }
};
#else
static int test__cfi_sframe(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	pr_debug("This perf was built without libdw\n");
	return TEST_SKIP;
}

static struct test_case tests__cfi_sframe[] = {
	TEST_CASE_REASON("Unwinding tables: .sframe", cfi_sframe, "built without libdw"),
	{ .name = NULL, }
};
#endif

struct test_suite suite__cfi_sframe = {
	.desc = "Unwinding tables: SFrame sections",
	.test_cases = tests__cfi_sframe,
};

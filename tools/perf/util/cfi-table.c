// SPDX-License-Identifier: GPL-2.0
/*
 * The unwinding table of an ELF file for the kernel: its .eh_frame, and its .sframe where it
 * has one of version 3, as an SFrame section whose functions start at file offsets.
 *
 * The functions of .sframe come first. Objects of other assemblers have no .sframe: their
 * functions come from .eh_frame, which is complete. libdw gives the rows of .eh_frame; only
 * the begins and ends of its functions are read here.
 *
 * A file may be damaged or made to do harm. Each address and length in it is checked against
 * the section's size before it is used, and the work is bounded.
 */
#include <dwarf.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <elfutils/libdw.h>

#include <linux/kernel.h>
#include <linux/unaligned.h>
#include <linux/zalloc.h>

#include "cfi-rows.h"
#include "cfi-table.h"
#include "sframe.h"

/*
 * libdw runs a function's program from its begin for each row: the time is their product.
 * cc1 has a function with more than 4096 rows.
 */
#define FUNCTION_ROWS_MAX	8192
#define WORK_MAX		(2ULL << 30)

#define PLT_ENTRY_SIZE		16

/* Encoding of a pointer: pcrel and datarel are the ways to apply it */
#define PE_FORMAT(encoding)	((encoding) & 0x0f)
#define PE_APPLICATION(encoding)	((encoding) & 0x70)

struct reader {
	Elf			*elf;
	size_t			nr_phdrs;
	struct sframe_table	*table;
	struct sframe_table	sframe;		/* what the file has, by addresses */
	Elf_Data		*eh_frame;
	u64			eh_frame_addr;
	Dwarf_CFI		*cfi;
	/* of the last FDE, as most have the same */
	u64			cie_offset;
	u8			encoding;
	bool			has_augmentation;
	bool			is_sound;
	u64			work;
	u32			nr_unsaid;
};

/* Find where the @size bytes at @addr are that a process executes; may shorten @size. */
static bool find_offset(struct reader *r, u64 addr, u64 *size, u64 *offset)
{
	GElf_Phdr phdr;
	size_t i;

	for (i = 0; i < r->nr_phdrs; i++) {
		if (!gelf_getphdr(r->elf, i, &phdr) || phdr.p_type != PT_LOAD ||
		    !(phdr.p_flags & PF_X))
			continue;
		if (addr < phdr.p_vaddr || addr - phdr.p_vaddr >= phdr.p_filesz)
			continue;
		*size = min(*size, phdr.p_filesz - (addr - phdr.p_vaddr));
		*offset = phdr.p_offset + (addr - phdr.p_vaddr);
		return true;
	}
	return false;
}

/**
 * cfi_elf__find_section - find a section by its name
 * @elf: the file
 * @name: of the section
 * @section: set to where it is
 *
 * Return: whether there is one with data in the file.
 */
bool cfi_elf__find_section(Elf *elf, const char *name, struct cfi_section *section)
{
	Elf_Scn *scn = NULL;
	size_t strings;

	if (elf_getshdrstrndx(elf, &strings))
		return false;

	while ((scn = elf_nextscn(elf, scn)) != NULL) {
		GElf_Shdr shdr;
		const char *found;

		if (!gelf_getshdr(scn, &shdr))
			continue;
		found = elf_strptr(elf, strings, shdr.sh_name);
		if (!found || strcmp(found, name) || shdr.sh_type == SHT_NOBITS ||
		    shdr.sh_flags & SHF_COMPRESSED || !shdr.sh_size)
			continue;
		*section = (struct cfi_section) {
			.addr = shdr.sh_addr, .offset = shdr.sh_offset, .size = shdr.sh_size,
		};
		return true;
	}
	return false;
}

static bool read_pointer(const u8 **pos, const u8 *end, u8 encoding, u64 addr, u64 *value)
{
	const u8 *p = *pos;
	size_t left = end - p;

	switch (PE_FORMAT(encoding)) {
	case DW_EH_PE_absptr:
	case DW_EH_PE_udata8:
	case DW_EH_PE_sdata8:
		if (left < 8)
			return false;
		*value = get_unaligned_le64(p);
		*pos = p + 8;
		break;
	case DW_EH_PE_udata4:
	case DW_EH_PE_sdata4:
		if (left < 4)
			return false;
		*value = get_unaligned_le32(p);
		if (PE_FORMAT(encoding) == DW_EH_PE_sdata4)
			*value = (s64)(s32)*value;
		*pos = p + 4;
		break;
	case DW_EH_PE_udata2:
	case DW_EH_PE_sdata2:
		if (left < 2)
			return false;
		*value = get_unaligned_le16(p);
		if (PE_FORMAT(encoding) == DW_EH_PE_sdata2)
			*value = (s64)(s16)*value;
		*pos = p + 2;
		break;
	default:
		return false;
	}

	if (encoding & DW_EH_PE_indirect)
		return false;
	if (PE_APPLICATION(encoding) == DW_EH_PE_pcrel)
		*value += addr;
	else if (PE_APPLICATION(encoding) != DW_EH_PE_absptr)
		return false;
	return true;
}

/* A file without section headers: .eh_frame is where .eh_frame_hdr points to. */
static bool find_by_segment(Elf *elf, struct cfi_section *section)
{
	size_t nr, i, j;
	GElf_Phdr phdr, load;
	const u8 *p;
	Elf_Data *data;

	if (elf_getphdrnum(elf, &nr))
		return false;

	for (i = 0; i < nr; i++) {
		if (gelf_getphdr(elf, i, &phdr) && phdr.p_type == PT_GNU_EH_FRAME)
			break;
	}
	if (i == nr || phdr.p_filesz < 12)
		return false;

	/* version, encoding of the pointer, of the count, of the table; the pointer */
	data = elf_getdata_rawchunk(elf, phdr.p_offset, 12, ELF_T_BYTE);
	if (!data || data->d_size < 12)
		return false;
	p = data->d_buf;
	if (p[0] != 1)
		return false;
	p += 4;
	if (!read_pointer(&p, (u8 *)data->d_buf + 12, ((u8 *)data->d_buf)[1], phdr.p_vaddr + 4,
			  &section->addr))
		return false;

	for (j = 0; j < nr; j++) {
		if (!gelf_getphdr(elf, j, &load) || load.p_type != PT_LOAD ||
		    section->addr < load.p_vaddr ||
		    section->addr - load.p_vaddr >= load.p_filesz)
			continue;
		section->size = load.p_filesz - (section->addr - load.p_vaddr);
		section->offset = load.p_offset + (section->addr - load.p_vaddr);
		return true;
	}
	return false;
}

/**
 * cfi_elf__find_eh_frame - find where a file's .eh_frame is
 * @elf: the file
 * @section: set to where it is; its end may be too far where there are no section headers
 *
 * Return: whether there is one.
 */
bool cfi_elf__find_eh_frame(Elf *elf, struct cfi_section *section)
{
	return cfi_elf__find_section(elf, ".eh_frame", section) || find_by_segment(elf, section);
}

/* The encoding of the addresses in the FDEs of a CIE */
static bool read_cie(struct reader *r, u64 offset)
{
	const unsigned char *ident = (void *)elf_getident(r->elf, NULL);
	const u8 *p, *end;
	const char *c;
	Dwarf_CFI_Entry entry;
	Dwarf_Off next;
	u64 ignored;

	if (dwarf_next_cfi(ident, r->eh_frame, true, offset, &next, &entry) ||
	    !dwarf_cfi_cie_p(&entry))
		return false;

	r->cie_offset = offset;
	r->encoding = DW_EH_PE_absptr;
	r->is_sound = cfi_program__is_sound(entry.cie.initial_instructions,
					    entry.cie.initial_instructions_end);

	c = entry.cie.augmentation;
	r->has_augmentation = *c == 'z';
	if (!r->has_augmentation)
		return !*c;

	p = entry.cie.augmentation_data;
	end = p + entry.cie.augmentation_data_size;
	if (!p || end > (u8 *)r->eh_frame->d_buf + r->eh_frame->d_size || end < p)
		return false;

	while (*++c) {
		u8 encoding;

		if (*c == 'S' || *c == 'B')
			continue;
		if (p == end)
			return false;
		encoding = *p++;
		switch (*c) {
		case 'R':
			r->encoding = encoding;
			return true;
		case 'L':
			break;
		case 'P':
			/* where it is does not matter */
			if (!read_pointer(&p, end, PE_FORMAT(encoding), 0, &ignored))
				return false;
			break;
		default:
			return false;
		}
	}
	return true;
}

/* The program is what is behind the addresses, and data of as many bytes as are told first */
static bool fde_is_sound(const struct reader *r, const u8 *p, const u8 *end)
{
	u64 size = 0;
	int shift = 0;

	while (r->has_augmentation) {
		if (p == end || shift > 28)
			return false;
		size |= (u64)(*p & 0x7f) << shift;
		shift += 7;
		if (!(*p++ & 0x80))
			break;
	}
	return r->is_sound && size <= (u64)(end - p) && cfi_program__is_sound(p + size, end);
}

static bool read_fde(struct reader *r, const Dwarf_FDE *fde, u64 *start, u64 *size,
		     bool *is_sound)
{
	const u8 *p = fde->start;
	u64 addr = r->eh_frame_addr + (p - (u8 *)r->eh_frame->d_buf);

	if (fde->CIE_pointer != r->cie_offset && !read_cie(r, fde->CIE_pointer)) {
		r->cie_offset = -1ULL;
		return false;
	}
	if (!read_pointer(&p, fde->end, r->encoding, addr, start) ||
	    !read_pointer(&p, fde->end, PE_FORMAT(r->encoding), 0, size))
		return false;
	*is_sound = fde_is_sound(r, p, fde->end);
	return true;
}

/* Nothing is known of it but where it is. */
static void add_unknown(struct reader *r, u64 size, u64 offset)
{
	struct sframe_row row = { .end = true };

	r->nr_unsaid++;
	sframe_table__begin(r->table, offset, 0, false);
	sframe_table__add_row(r->table, &row);
	sframe_table__end(r->table, size);
}

static void add_end(struct reader *r, u64 start)
{
	struct sframe_row row = { .start = start, .end = true };

	r->nr_unsaid++;
	sframe_table__add_row(r->table, &row);
}

/* Each entry has two rows. The one after the PLT begins a function anew. */
static void add_plt(struct reader *r, u64 begin, u64 end, const struct sframe_row *row,
		    u32 threshold)
{
	struct sframe_row entry = *row;

	sframe_table__begin(r->table, begin, PLT_ENTRY_SIZE, false);
	entry.start = 0;
	sframe_table__add_row(r->table, &entry);
	entry.start = threshold;
	entry.cfa.offset += 8;
	sframe_table__add_row(r->table, &entry);
	sframe_table__end(r->table, end - begin);
}

/*
 * The function has @size bytes at @addr, which are at @offset in the file. begin is where the
 * function that is being written began: it is the same unless there is a PLT in it.
 */
static void add_function(struct reader *r, u64 addr, u64 size, u64 offset, u64 fde_size)
{
	u64 pos = 0, begin = 0, behind = 0;
	bool begun = false, is_signal = false;
	u32 nr_rows = 0;

	while (pos < size) {
		struct sframe_row row = { .start = pos - begin };
		Dwarf_Addr row_start, row_end;
		enum cfi_row_kind kind;
		Dwarf_Frame *frame;
		u32 threshold = 0;
		int ra_reg;
		u64 next;

		r->work += fde_size;
		if (nr_rows++ == FUNCTION_ROWS_MAX ||
		    dwarf_cfi_addrframe(r->cfi, addr + pos, &frame)) {
			if (!begun) {
				sframe_table__begin(r->table, offset + pos, 0, false);
				begun = true;
				begin = pos;
			}
			add_end(r, pos - begin);
			break;
		}

		ra_reg = dwarf_frame_info(frame, &row_start, &row_end, &is_signal);
		kind = cfi_row__convert(&row, frame, ra_reg, is_signal, &threshold);
		free(frame);

		/* It can be of another FDE, that overlaps this one */
		next = size;
		if (row_end > addr + pos && row_end - addr < size)
			next = row_end - addr;

		if (kind == CFI_ROW_PLT && (addr + pos) % PLT_ENTRY_SIZE) {
			kind = CFI_ROW_UNSAID;
			row = (struct sframe_row) { .start = row.start, .end = true };
		}
		if (kind == CFI_ROW_PLT) {
			if (begun)
				sframe_table__end(r->table, pos - begin);
			begun = false;
			add_plt(r, offset + pos, offset + next, &row, threshold);
		} else {
			if (!begun) {
				sframe_table__begin(r->table, offset + pos, 0, is_signal);
				begun = true;
				begin = pos;
				row.start = 0;
			}
			r->nr_unsaid += kind == CFI_ROW_UNSAID;
			sframe_table__add_row(r->table, &row);
		}
		pos = next;
	}

	/* In rt_sigreturn(2) ip is behind the trampoline's last instruction */
	if (is_signal)
		behind = 1;
	if (begun)
		sframe_table__end(r->table, size - begin + behind);
}

static int add_eh_frame(struct reader *r)
{
	const unsigned char *ident = (void *)elf_getident(r->elf, NULL);
	Dwarf_Off offset = 0, next = 0;

	for (;; offset = next) {
		Dwarf_CFI_Entry entry;
		u64 start, size, file_offset;
		bool is_sound;
		int ret = dwarf_next_cfi(ident, r->eh_frame, true, offset, &next, &entry);

		if (ret > 0 || (ret < 0 && next <= offset))
			break;
		if (!ret && dwarf_cfi_cie_p(&entry))
			continue;
		/* It is not known which function this is of. */
		if (ret < 0 || !read_fde(r, &entry.fde, &start, &size, &is_sound)) {
			r->nr_unsaid++;
			continue;
		}
		if (!find_offset(r, start, &size, &file_offset) ||
		    sframe_table__function(&r->sframe, start))
			continue;

		if (is_sound)
			add_function(r, start, size, file_offset,
				     entry.fde.end - entry.fde.start);
		else
			add_unknown(r, size, file_offset);
		if (r->table->err)
			return r->table->err;
		if (r->work > WORK_MAX)
			return -E2BIG;
	}
	return 0;
}

static int read_eh_frame(struct reader *r)
{
	struct cfi_section section;

	if (!cfi_elf__find_eh_frame(r->elf, &section))
		return 0;

	r->eh_frame_addr = section.addr;
	r->eh_frame = elf_getdata_rawchunk(r->elf, section.offset, section.size, ELF_T_BYTE);
	if (!r->eh_frame || !r->eh_frame->d_buf)
		return -EINVAL;

	r->cfi = dwarf_getcfi_elf(r->elf);
	if (!r->cfi)
		return -EINVAL;
	r->cie_offset = -1ULL;
	return add_eh_frame(r);
}

/* An entry is called: CFA is SP + 8 there. For .plt.got binutils 2.47 says SP + 16. */
static bool is_wrong_plt(const struct sframe_table *table, const struct sframe_function *f)
{
	return f->rep_size && table->rows[f->first_row].cfa.offset != 8;
}

/*
 * The kernel expects the caller's stack pointer directly behind the return address. SFrame
 * says that it is CFA.
 */
static bool sp_differs(const struct sframe_row *row)
{
	return row->ra.deref &&
	       (row->ra.base != SFRAME_BASE_CFA || row->ra.offset != SFRAME_RA_OFFSET);
}

static void add_sframe_function(struct reader *r, const struct sframe_function *f, u64 size,
				u64 offset)
{
	u32 i;

	sframe_table__begin(r->table, offset, f->rep_size, f->is_signal);
	for (i = 0; i < f->nr_rows; i++) {
		const struct sframe_row *row = &r->sframe.rows[f->first_row + i];

		if (!f->is_signal && sp_differs(row))
			add_end(r, row->start);
		else
			sframe_table__add_row(r->table, row);
	}
	/* See add_function() */
	sframe_table__end(r->table, size + f->is_signal);
}

/* A damaged section, or a wrong PLT, counts for nothing: .eh_frame says the same. */
static int read_sframe(struct reader *r)
{
	struct sframe_table *sframe = &r->sframe;
	struct cfi_section section;
	Elf_Data *data;
	u32 i, nr = 0;

	if (!cfi_elf__find_section(r->elf, ".sframe", &section))
		return 0;

	data = elf_getdata_rawchunk(r->elf, section.offset, section.size, ELF_T_BYTE);
	if (!data || !data->d_buf ||
	    sframe_table__decode(sframe, data->d_buf, data->d_size, section.addr)) {
		sframe_table__exit(sframe);
		return 0;
	}

	for (i = 0; i < sframe->nr_functions; i++) {
		const struct sframe_function *f = &sframe->functions[i];
		u64 size = f->size, offset;

		if (is_wrong_plt(sframe, f))
			continue;
		if (find_offset(r, f->start, &size, &offset))
			add_sframe_function(r, f, size, offset);
		sframe->functions[nr++] = *f;
	}
	sframe->nr_functions = nr;
	return r->table->err;
}

/**
 * cfi_table__read - read how a file's functions are unwound
 * @table: gets the functions by their file offsets, sorted; all zeroes before
 * @elf: the file
 * @nr_unsaid: set to the number of rows that SFrame cannot say
 *
 * Return: 0, -ENOEXEC when it is no file for x86-64, -ENODATA when it does not say anything,
 * -EINVAL when it is damaged, -E2BIG when it is too large or takes too long, -ENOMEM.
 */
int cfi_table__read(struct sframe_table *table, Elf *elf, u32 *nr_unsaid)
{
	struct reader r = { .elf = elf, .table = table };
	GElf_Ehdr ehdr;
	int err;

	if (elf_kind(elf) != ELF_K_ELF || !gelf_getehdr(elf, &ehdr) ||
	    ehdr.e_machine != EM_X86_64 || ehdr.e_ident[EI_CLASS] != ELFCLASS64 ||
	    ehdr.e_ident[EI_DATA] != ELFDATA2LSB ||
	    (ehdr.e_type != ET_EXEC && ehdr.e_type != ET_DYN))
		return -ENOEXEC;
	if (elf_getphdrnum(elf, &r.nr_phdrs))
		return -EINVAL;

	err = read_sframe(&r);
	if (!err)
		err = read_eh_frame(&r);
	if (!err)
		err = sframe_table__sort(table);
	if (!err && !table->nr_functions)
		err = -ENODATA;

	*nr_unsaid = r.nr_unsaid;
	if (r.cfi)
		dwarf_cfi_end(r.cfi);
	sframe_table__exit(&r.sframe);
	return err;
}

/**
 * cfi_table__make - make the section for a file
 * @cfi: gets it
 * @elf: the file
 *
 * Return: 0, or an error of cfi_table__read().
 */
int cfi_table__make(struct cfi_table *cfi, Elf *elf)
{
	struct sframe_table table = {};
	int err;

	memset(cfi, 0, sizeof(*cfi));
	err = cfi_table__read(&table, elf, &cfi->nr_unsaid);
	if (!err)
		err = sframe_table__encode(&table, &cfi->section, &cfi->size);
	if (!err) {
		cfi->nr_functions = get_unaligned_le32(cfi->section + 8);
		cfi->nr_rows = get_unaligned_le32(cfi->section + 12);
	}
	sframe_table__exit(&table);
	return err;
}

/**
 * cfi_table__make_fd - make the section for an open file
 * @cfi: gets it
 * @fd: the file. It is read and not mapped: somebody may shorten it meanwhile.
 *
 * Return: 0, or an error of cfi_table__read().
 */
int cfi_table__make_fd(struct cfi_table *cfi, int fd)
{
	Elf *elf;
	int err;

	memset(cfi, 0, sizeof(*cfi));
	elf_version(EV_CURRENT);
	elf = elf_begin(fd, ELF_C_READ, NULL);
	if (!elf)
		return -EINVAL;
	err = cfi_table__make(cfi, elf);
	elf_end(elf);
	return err;
}

/**
 * cfi_image__size - how large is an image that is in memory?
 * @image: is sound, as the vDSO is
 *
 * Return: where its headers say that the last of it ends.
 */
size_t cfi_image__size(const void *image)
{
	const Elf64_Ehdr *ehdr = image;
	const Elf64_Phdr *phdr = image + ehdr->e_phoff;
	size_t size = max(ehdr->e_phoff + ehdr->e_phnum * sizeof(*phdr),
			  ehdr->e_shoff + ehdr->e_shnum * sizeof(Elf64_Shdr));
	int i;

	for (i = 0; i < ehdr->e_phnum; i++)
		size = max(size, (size_t)(phdr[i].p_offset + phdr[i].p_filesz));
	return size;
}

/**
 * cfi_table__make_memory - make the section for an image in memory
 * @cfi: gets it
 * @image: the image, as that of the vDSO
 * @size: its size in bytes
 *
 * Return: 0, or an error of cfi_table__read().
 */
int cfi_table__make_memory(struct cfi_table *cfi, const void *image, size_t size)
{
	Elf *elf;
	int err;

	memset(cfi, 0, sizeof(*cfi));
	elf_version(EV_CURRENT);
	elf = elf_memory((char *)image, size);
	if (!elf)
		return -EINVAL;
	err = cfi_table__make(cfi, elf);
	elf_end(elf);
	return err;
}

/**
 * cfi_table__exit - free a section
 * @cfi: has one, or none
 */
void cfi_table__exit(struct cfi_table *cfi)
{
	zfree(&cfi->section);
	cfi->size = 0;
}

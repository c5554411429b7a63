// SPDX-License-Identifier: GPL-2.0
/*
 * A row of .eh_frame, as libdw has it, in the words of SFrame.
 *
 * libdw gives DWARF expressions. Those that compilers write for CFA, the return address and
 * the frame pointer are a register or CFA plus a constant, or what is stored there. Another
 * one belongs to the PLT: its CFA is 8 bytes further from a certain byte of each entry on.
 */
#include <dwarf.h>

#include <linux/kernel.h>

#include "cfi-rows.h"

#define PROGRAM_REG_MAX		255
#define PROGRAM_STATES_MAX	64

/* base + offset, or *(base + offset) + behind */
struct linear {
	enum sframe_base	base;
	u64			reg;
	bool			deref;
	s64			offset;
	s64			behind;
};

static bool is_small(s64 value)
{
	return value == (s32)value;
}

static void set_base(struct linear *l, enum sframe_base base, u64 reg, s64 offset)
{
	*l = (struct linear) { .base = base, .reg = reg, .offset = offset };
}

static bool add(struct linear *l, s64 value)
{
	s64 *sum = l->deref ? &l->behind : &l->offset;

	return !__builtin_add_overflow(*sum, value, sum);
}

/* What is on top of the stack behind the @nr operations, if it is so simple */
static bool parse_linear(struct linear *l, const Dwarf_Op *ops, size_t nr)
{
	size_t i;

	l->base = SFRAME_BASE_NONE;
	for (i = 0; i < nr; i++) {
		u8 atom = ops[i].atom;

		if (atom == DW_OP_call_frame_cfa) {
			set_base(l, SFRAME_BASE_CFA, 0, 0);
			continue;
		}
		if (atom >= DW_OP_breg0 && atom <= DW_OP_breg31) {
			set_base(l, SFRAME_BASE_REG, atom - DW_OP_breg0, ops[i].number);
			continue;
		}
		if (atom == DW_OP_bregx) {
			set_base(l, SFRAME_BASE_REG, ops[i].number, ops[i].number2);
			continue;
		}

		if (l->base == SFRAME_BASE_NONE)
			return false;
		if (atom == DW_OP_plus_uconst) {
			if (!add(l, ops[i].number))
				return false;
		} else if (atom == DW_OP_deref && !l->deref) {
			l->deref = true;
		} else {
			return false;
		}
	}
	return l->base == SFRAME_BASE_CFA ||
	       (l->base == SFRAME_BASE_REG && l->reg <= SFRAME_REG_MAX);
}

static bool set_rule(struct sframe_rule *rule, enum sframe_base base, u64 reg, bool deref,
		     s64 offset)
{
	if (!is_small(offset))
		return false;

	*rule = (struct sframe_rule) {
		.base = base, .reg = reg, .deref = deref, .offset = offset,
	};
	return true;
}

/*
 * CFA of SFrame has no constant behind what is loaded: it is left out there, and @shift is
 * what the rules that go by CFA have to add.
 */
static bool convert_cfa(struct sframe_rule *cfa, const Dwarf_Op *ops, size_t nr, s64 *shift)
{
	struct linear l;

	if (!nr || !parse_linear(&l, ops, nr) || l.base != SFRAME_BASE_REG || !is_small(l.behind))
		return false;

	*shift = l.behind;
	return set_rule(cfa, SFRAME_BASE_REG, l.reg, l.deref, l.offset);
}

static bool convert_location(struct sframe_rule *rule, const Dwarf_Op *ops, size_t nr, s64 shift)
{
	bool is_value = ops[nr - 1].atom == DW_OP_stack_value;
	struct linear l;
	u8 atom = ops[0].atom;

	if (nr == 1 && atom == DW_OP_regx && ops[0].number <= SFRAME_REG_MAX)
		return set_rule(rule, SFRAME_BASE_REG, ops[0].number, false, 0);
	if (nr == 1 && atom >= DW_OP_reg0 && atom <= DW_OP_reg0 + SFRAME_REG_MAX)
		return set_rule(rule, SFRAME_BASE_REG, atom - DW_OP_reg0, false, 0);

	if (!parse_linear(&l, ops, nr - is_value))
		return false;

	/* One load is all that there is */
	if (l.deref && (!is_value || l.behind))
		return false;
	/* CFA plus a constant itself: its control word would be 0, which means no rule */
	if (l.base == SFRAME_BASE_CFA && is_value && !l.deref)
		return false;
	if (l.base == SFRAME_BASE_CFA && __builtin_add_overflow(l.offset, shift, &l.offset))
		return false;
	return set_rule(rule, l.base, l.reg, !is_value || l.deref, l.offset);
}

/* (the return address' register) breg7 a, breg16 0, lit15, and, litT, ge, lit3, shl, plus */
static bool is_plt(const Dwarf_Op *ops, size_t nr, int ra_reg, s64 *offset, u32 *threshold)
{
	if (nr != 9 || ra_reg < 0 || ra_reg > 31)
		return false;
	if (ops[0].atom != DW_OP_breg0 + SFRAME_REG_SP || !is_small(ops[0].number) ||
	    ops[1].atom != DW_OP_breg0 + ra_reg || ops[1].number ||
	    ops[2].atom != DW_OP_lit15 || ops[3].atom != DW_OP_and ||
	    ops[4].atom < DW_OP_lit1 || ops[4].atom > DW_OP_lit15 || ops[5].atom != DW_OP_ge ||
	    ops[6].atom != DW_OP_lit3 || ops[7].atom != DW_OP_shl || ops[8].atom != DW_OP_plus)
		return false;

	*offset = ops[0].number;
	*threshold = ops[4].atom - DW_OP_lit0;
	return true;
}

static bool is_outermost(Dwarf_Frame *frame, int ra_reg)
{
	Dwarf_Op mem[3], *ops;
	size_t nr;

	return !dwarf_frame_register(frame, ra_reg, mem, &ops, &nr) && !nr && ops;
}

/* Is the caller's stack pointer CFA, as it is unless somebody says otherwise? */
static bool sp_is_cfa(Dwarf_Frame *frame)
{
	Dwarf_Op mem[3], *ops;
	size_t nr;

	return !dwarf_frame_register(frame, SFRAME_REG_SP, mem, &ops, &nr) && nr == 2 &&
	       ops[0].atom == DW_OP_call_frame_cfa && ops[1].atom == DW_OP_stack_value;
}

static bool convert_ra(struct sframe_row *row, Dwarf_Frame *frame, int ra_reg, s64 shift,
		       bool is_signal)
{
	struct sframe_rule *ra = &row->ra;
	Dwarf_Op mem[3], *ops;
	size_t nr;

	if (dwarf_frame_register(frame, ra_reg, mem, &ops, &nr) || !nr)
		return false;
	if (!convert_location(ra, ops, nr, shift))
		return false;

	/* All registers come from the signal frame */
	if (is_signal)
		return true;

	/* The reader takes the word behind it for the caller's stack pointer, or else CFA */
	if (!sp_is_cfa(frame))
		return false;
	if (ra->deref ? ra->base != SFRAME_BASE_CFA || ra->offset != shift + SFRAME_RA_OFFSET :
			shift != 0)
		return false;

	if (ra->deref && !shift)
		*ra = (struct sframe_rule) {};
	return true;
}

static bool convert_fp(struct sframe_row *row, Dwarf_Frame *frame, s64 shift)
{
	Dwarf_Op mem[3], *ops;
	size_t nr;

	if (dwarf_frame_register(frame, SFRAME_REG_FP, mem, &ops, &nr))
		return false;
	/* Unchanged, or lost: what is in it may not be taken for the caller's */
	if (!nr)
		return !ops;
	if (!convert_location(&row->fp, ops, nr, shift))
		return false;
	if (row->fp.base == SFRAME_BASE_REG && !row->fp.deref && !row->fp.offset &&
	    row->fp.reg == SFRAME_REG_FP)
		row->fp = (struct sframe_rule) {};
	return true;
}

/**
 * cfi_row__convert - say a row of .eh_frame in the words of SFrame
 * @row: all zeroes but for its start; gets the rules
 * @frame: the row, of libdw
 * @ra_reg: number of the return address' register
 * @is_signal: whether the function is the trampoline that signal handlers return to
 * @plt_threshold: set for CFI_ROW_PLT: from this byte of an entry on CFA is 8 bytes more
 *
 * Return: CFI_ROW_SAID, CFI_ROW_PLT, or CFI_ROW_UNSAID, with which @row ends a walk.
 */
enum cfi_row_kind cfi_row__convert(struct sframe_row *row, Dwarf_Frame *frame, int ra_reg,
				   bool is_signal, u32 *plt_threshold)
{
	enum cfi_row_kind kind = CFI_ROW_SAID;
	s64 shift = 0, offset = 0;
	Dwarf_Op *ops;
	size_t nr;

	/* It needs no CFA, and often has a senseless one */
	if (is_outermost(frame, ra_reg)) {
		row->end = true;
		return CFI_ROW_SAID;
	}

	if (dwarf_frame_cfa(frame, &ops, &nr))
		goto unsaid;
	if (is_plt(ops, nr, ra_reg, &offset, plt_threshold)) {
		kind = CFI_ROW_PLT;
		if (!set_rule(&row->cfa, SFRAME_BASE_REG, SFRAME_REG_SP, false, offset))
			goto unsaid;
	} else if (!convert_cfa(&row->cfa, ops, nr, &shift)) {
		goto unsaid;
	}

	if (!convert_ra(row, frame, ra_reg, shift, is_signal) || !convert_fp(row, frame, shift))
		goto unsaid;

	/* The rows of an entry differ in CFA alone */
	if (kind == CFI_ROW_PLT &&
	    (row->ra.base != SFRAME_BASE_NONE || row->fp.base != SFRAME_BASE_NONE))
		goto unsaid;
	return kind;

unsaid:
	*row = (struct sframe_row) { .start = row->start, .end = true };
	return CFI_ROW_UNSAID;
}

/* What follows an instruction: r a register, u and s numbers, b a block, 1, 2, 4 so many bytes */
static const char * const operands[] = {
	[DW_CFA_nop] = "",
	[DW_CFA_advance_loc1] = "1",
	[DW_CFA_advance_loc2] = "2",
	[DW_CFA_advance_loc4] = "4",
	[DW_CFA_offset_extended] = "ru",
	[DW_CFA_restore_extended] = "r",
	[DW_CFA_undefined] = "r",
	[DW_CFA_same_value] = "r",
	[DW_CFA_register] = "rr",
	[DW_CFA_remember_state] = "",
	[DW_CFA_restore_state] = "",
	[DW_CFA_def_cfa] = "ru",
	[DW_CFA_def_cfa_register] = "r",
	[DW_CFA_def_cfa_offset] = "u",
	[DW_CFA_def_cfa_expression] = "b",
	[DW_CFA_expression] = "rb",
	[DW_CFA_offset_extended_sf] = "ru",
	[DW_CFA_def_cfa_sf] = "ru",
	[DW_CFA_def_cfa_offset_sf] = "u",
	[DW_CFA_val_offset] = "ru",
	[DW_CFA_val_offset_sf] = "ru",
	[DW_CFA_val_expression] = "rb",
	[DW_CFA_GNU_args_size] = "u",
	[DW_CFA_GNU_negative_offset_extended] = "ru",
};

static bool read_uleb(const u8 **pos, const u8 *end, u64 *value)
{
	int shift = 0;
	u8 byte;

	*value = 0;
	do {
		if (*pos == end || shift > 63)
			return false;
		byte = *(*pos)++;
		*value |= (u64)(byte & 0x7f) << shift;
		shift += 7;
	} while (byte & 0x80);
	return true;
}

static bool skip_operand(const u8 **pos, const u8 *end, char kind)
{
	u64 value;

	switch (kind) {
	case 'r':
		return read_uleb(pos, end, &value) && value <= PROGRAM_REG_MAX;
	case 'u':
		return read_uleb(pos, end, &value);
	case 'b':
		if (!read_uleb(pos, end, &value))
			return false;
		break;
	default:
		value = kind - '0';
		break;
	}
	if (value > (u64)(end - *pos))
		return false;
	*pos += value;
	return true;
}

/**
 * cfi_program__is_sound - can libdw be given the program of a function?
 * @p: its first instruction
 * @end: behind the last one
 *
 * libdw has an entry for each register up to the largest that is named, and a copy of all for
 * each state that is remembered: damaged ones would take all memory.
 *
 * Return: whether it has instructions that are known, and no such registers or states.
 */
bool cfi_program__is_sound(const u8 *p, const u8 *end)
{
	unsigned int nr_states = 0;

	while (p < end) {
		u8 op = *p++;
		const char *operand = "";
		u64 ignored;

		/* Their first operand is in the instruction */
		if ((op & 0xc0) == DW_CFA_offset) {
			if (!read_uleb(&p, end, &ignored))
				return false;
			continue;
		}
		if (op & 0xc0)
			continue;

		operand = op < ARRAY_SIZE(operands) ? operands[op] : NULL;
		if (!operand)
			return false;
		for (; *operand; operand++) {
			if (!skip_operand(&p, end, *operand))
				return false;
		}

		if (op == DW_CFA_remember_state && ++nr_states > PROGRAM_STATES_MAX)
			return false;
		if (op == DW_CFA_restore_state && nr_states)
			nr_states--;
	}
	return true;
}

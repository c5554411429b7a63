// SPDX-License-Identifier: GPL-2.0
/*
 * Walk a user stack by unwinding tables.
 *
 * For each frame: which memory is the address in, which row has the table for it, and
 * then what the row says. Memory without a table is walked by frame pointer. See
 * Documentation/core-api/unwind_tables.rst.
 *
 * Nearly all frames take the short way in unwind_table_walk(): the address is in the
 * memory of the frame before, its row is in the cache and fits into one word, and two
 * words of the stack are read in the user access window. Everything else is out of line.
 *
 * The walk is in one RCU read-side section, which the tables are valid in.
 */
#include <linux/bitops.h>
#include <linux/cleanup.h>
#include <linux/cpumask.h>
#include <linux/hash.h>
#include <linux/log2.h>
#include <linux/minmax.h>
#include <linux/percpu.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/uaccess.h>

#include <asm/unwind_user.h>

#include <kunit/visibility.h>

#include "table.h"
#include "user.h"

/* The mappings that a walk keeps, and the signal frames that it goes through. */
#define MAX_RANGES	8
#define MAX_SIGNALS	8

/* The return address is on top of the stack. */
#define ROW_ENTRY	unwind_row(true, 8)

#define CACHE_BITS	10

/**
 * struct row_slot - an entry of the cache
 * @key_row:	the key ^ @row
 * @row:	the row
 *
 * An NMI may write the entry between the two words, as they are written or read. What is
 * read then gives another key: see row_key().
 */
struct row_slot {
	u64	key_row;
	u64	row;
};

/* Allocated with the first table, for good. */
static struct row_slot __percpu *row_cache;

/**
 * struct table_walk - where a walk has come to, for the frames that are taken out of line
 * @addr:	the address to be looked up: of the instruction, or for a caller inside of
 *		the call
 * @sp:		the frame's stack pointer
 * @fp:		its frame pointer
 * @fresh:	it is the first frame or one that a signal interrupted: its other registers
 *		may be known, and its CFA may be equal to @sp
 * @context:	the signal frame that it was interrupted by, 0 for the first frame
 * @signals:	how many of these there were
 * @state:	the walk's limits, and where a word was absent
 * @regs:	where the walk started
 * @range:	the memory around @addr
 * @trampoline:	the one of uretprobes, 0 if there is none
 * @key:	of @range's start, for the cache of rows
 * @text:	size of what may hold code, 0 to have each return address looked at
 * @limit:	the last word of user space
 * @cache:	the cache of rows. Any CPU's would do: what is read is found to be right, or
 *		of no use.
 * @next:	the next of @ranges to be replaced
 * @nr_ranges:	how many there are
 * @ranges:	memory that has been looked up
 */
struct table_walk {
	unsigned long			addr;
	unsigned long			sp;
	unsigned long			fp;
	bool				fresh;
	unsigned long			context;
	unsigned int			signals;
	struct unwind_user_state	*state;
	const struct unwind_user_regs	*regs;
	struct unwind_range		*range;
	unsigned long			trampoline;
	u64				key;
	unsigned long			text;
	unsigned long			limit;
	struct row_slot			*cache;
	unsigned int			next;
	unsigned int			nr_ranges;
	struct unwind_range		ranges[MAX_RANGES];
};

/**
 * unwind_row_cache_init - allocate the cache of rows, if there is none
 *
 * Context: Task context, may sleep. The caller holds unwind_tables_mutex.
 * Return: whether there is a cache.
 */
bool unwind_row_cache_init(void)
{
	if (!row_cache)
		row_cache = __alloc_percpu(sizeof(struct row_slot) << CACHE_BITS,
					   sizeof(struct row_slot));
	return row_cache;
}

#if IS_ENABLED(CONFIG_UNWIND_KUNIT_TEST)
/* Make @row the second word of all entries, as if NMIs had come between their two words. */
void unwind_row_cache_tear(u64 row)
{
	unsigned int cpu, i;

	for_each_possible_cpu(cpu) {
		for (i = 0; i < 1 << CACHE_BITS; i++)
			WRITE_ONCE(per_cpu_ptr(row_cache, cpu)[i].row, row);
	}
}
EXPORT_SYMBOL_IF_KUNIT(unwind_row_cache_tear);
#endif

/*
 * The key of a number. The multiplication is one-to-one. It makes keys differ in many
 * bits, where rows differ in few: so a word of one entry and a word of another do not make
 * a key that is asked for. Bits 22 to 31 tell the place in the cache. The key of a sum is
 * the sum of the keys.
 */
static __always_inline u64 row_key(u64 number)
{
	return number * GOLDEN_RATIO_32;
}

static __always_inline struct row_slot *row_slot(struct row_slot *cache, u64 key)
{
	const unsigned int shift = 32 - CACHE_BITS - ilog2(sizeof(*cache));
	const unsigned int mask = (sizeof(*cache) << CACHE_BITS) - sizeof(*cache);

	return (void *)cache + ((key >> shift) & mask);
}

static noinline u64 row_miss(const struct table_walk *walk, unsigned long addr)
{
	const struct unwind_range *range = walk->range;
	const unsigned long rel = addr - range->start;
	u64 row = unwind_sframe_row(&range->table->sframe, range->offset + rel);
	u64 key = row_key(rel) + walk->key;
	struct row_slot *slot = row_slot(walk->cache, key);

	/* What becomes of a gap depends on the mapping. */
	if (row != UNWIND_ROW_GAP) {
		WRITE_ONCE(slot->key_row, key ^ row);
		WRITE_ONCE(slot->row, row);
	}
	return row;
}

/* Set @range and @key to those of the memory around @addr. False: it is being changed. */
static noinline bool find_range(struct table_walk *walk, unsigned long addr)
{
	struct unwind_range *range;

	for (range = walk->ranges; range < walk->ranges + walk->nr_ranges; range++) {
		if (addr - range->start < range->size)
			goto found;
	}

	range = &walk->ranges[walk->next];
	if (!unwind_range_find(current->mm, addr, range))
		return false;
	walk->next = (walk->next + 1) % MAX_RANGES;
	walk->nr_ranges = max(walk->nr_ranges, (unsigned int)(range - walk->ranges) + 1);
found:
	walk->range = range;
	walk->key = row_key(range->number);
	return true;
}

/* The value of register @nr in the frame. */
static bool get_register(struct table_walk *walk, unsigned int nr, unsigned long *value)
{
	u64 word;

	if (nr == UNWIND_DWARF_SP) {
		*value = walk->sp;
		return true;
	}
	if (nr == UNWIND_DWARF_FP) {
		*value = walk->fp;
		return true;
	}
	if (!walk->fresh)
		return false;
	if (!walk->context)
		return arch_unwind_user_register(walk->regs, nr, value);

	if (!unwind_user_word(walk->state, walk->context + arch_unwind_sigframe(nr), &word))
		return false;
	*value = word;
	return true;
}

/* Evaluate a rule. @slot is set to where the value is stored, 0 if it is not. */
static bool get_value(struct table_walk *walk, const struct unwind_rule *rule,
		      unsigned long cfa, unsigned long *value, unsigned long *slot)
{
	unsigned long base = cfa;
	u64 word;

	*slot = 0;
	if (rule->base != UNWIND_BASE_CFA && !get_register(walk, rule->base, &base))
		return false;
	*value = base + rule->offset;
	if (!rule->deref)
		return true;

	*slot = *value;
	if (!IS_ALIGNED(*slot, 8) || !unwind_user_word(walk->state, *slot, &word))
		return false;
	*value = word;
	return true;
}

/* May @sp be the stack pointer of the caller? Only in the first frame it may be the same. */
static __always_inline bool ascends(const struct table_walk *walk, unsigned long sp)
{
	return sp > walk->sp || (sp == walk->sp && walk->fresh);
}

/* Take a frame by rules. Returns the return address, 0 at the end of the walk. */
static unsigned long step_by_rules(struct table_walk *walk, const struct unwind_rules *rules)
{
	unsigned long cfa, ra, fp = walk->fp, slot, unused;

	if (!get_value(walk, &rules->cfa, 0, &cfa, &unused) ||
	    !ascends(walk, cfa) || !IS_ALIGNED(cfa, 8) ||
	    !get_value(walk, &rules->ra, cfa, &ra, &slot) ||
	    (slot && !ascends(walk, slot + 8)) ||
	    (rules->fp.base != UNWIND_BASE_NONE &&
	     !get_value(walk, &rules->fp, cfa, &fp, &unused)))
		return 0;

	if (unlikely(ra == walk->trampoline))
		ra = unwind_user_real_return(ra, slot ?: cfa - 8, false);
	walk->sp = slot ? slot + 8 : cfa;
	walk->fp = fp;
	walk->addr = ra - 1;
	walk->fresh = false;
	return ra;
}

/* Take a frame by a row that fits into one word. See step_by_rules(). */
static unsigned long step_by_row(struct table_walk *walk, u64 row)
{
	struct unwind_rules rules = {
		.cfa	= { row & UNWIND_ROW_SP ? UNWIND_DWARF_SP : UNWIND_DWARF_FP },
		.ra	= { UNWIND_BASE_CFA, true, -8 },
		.fp	= { UNWIND_BASE_NONE },
	};

	rules.cfa.offset = unwind_row_slot(row) * 8 + 8;
	if (row & UNWIND_ROW_FP)
		rules.fp = (struct unwind_rule){ UNWIND_BASE_CFA, true,
						 unwind_row_fp_slot(row) * 8 - 8 };
	return step_by_rules(walk, &rules);
}

/* Go from a signal trampoline to the code that the signal interrupted. See above. */
static unsigned long step_to_interrupted(struct table_walk *walk)
{
	const unsigned long context = walk->sp;
	struct unwind_user_state *state = walk->state;
	u64 ip, sp, fp;

	if (walk->signals++ >= MAX_SIGNALS || !IS_ALIGNED(context, 8) ||
	    !unwind_user_word(state, context + arch_unwind_sigframe(UNWIND_DWARF_IP), &ip) ||
	    !unwind_user_word(state, context + arch_unwind_sigframe(UNWIND_DWARF_SP), &sp) ||
	    !unwind_user_word(state, context + arch_unwind_sigframe(UNWIND_DWARF_FP), &fp))
		return 0;

	if (unlikely(ip == walk->trampoline))
		ip = unwind_user_real_return(ip, sp, true);
	walk->context = context;
	walk->sp = sp;
	walk->fp = fp;
	walk->addr = ip;
	walk->fresh = true;
	return ip;
}

/* An address in a gap of a table, where frame pointers may be followed. */
static bool in_large_gap(const struct unwind_range *range, unsigned long addr)
{
	u64 start, end;

	unwind_sframe_gap(&range->table->sframe, range->offset + (addr - range->start),
			  &start, &end);
	start = max(start, range->offset);
	end = min(end, range->offset + range->size);
	return end - start > UNWIND_GAP_MAX;
}

/* Take a frame out of line. See step_by_rules(). */
static noinline unsigned long step_otherwise(struct table_walk *walk, u64 row)
{
	struct unwind_rules rules;

	if (!unwind_row_is_other(row))
		return step_by_row(walk, row);

	switch (row & UNWIND_ROW_KIND) {
	case UNWIND_ROW_SIGNAL:
		return step_to_interrupted(walk);
	case UNWIND_ROW_DECODE:
	case UNWIND_ROW_FLEXIBLE:
		unwind_sframe_decode(&walk->range->table->sframe, row, &rules);
		return step_by_rules(walk, &rules);
	case UNWIND_ROW_GAP:
		if (!in_large_gap(walk->range, walk->addr))
			return 0;
		if (walk->regs->at_entry && walk->fresh && !walk->context)
			return step_by_row(walk, ROW_ENTRY);
		return walk->fp < walk->sp ? 0 : step_by_row(walk, UNWIND_ROW_RECORD);
	default:
		return 0;
	}
}

/* A return address was read as 0. Either it is, or a word is absent: find out. */
static noinline void find_absent(struct unwind_user_state *state, unsigned long slot, u64 row)
{
	u64 word;

	if (unwind_user_word(state, slot * 8, &word) && row & UNWIND_ROW_FP)
		unwind_user_word(state, (slot + unwind_row_fp_slot(row)) * 8, &word);
}

/**
 * unwind_table_walk - walk the current task's user stack by tables
 * @state:	from unwind_user_start(); @absent is set
 * @regs:	where to start, of 64-bit code
 * @entries:	room for @max entries
 * @max:	the most to store, not 0
 *
 * Context: Any in which the current task's mm is loaded, NMI included. Does not fault.
 * Return: the number of entries. The first one is @regs->ip, or the address that a
 * uretprobe has put its trampoline in place of.
 */
unsigned int unwind_table_walk(struct unwind_user_state *state,
			       const struct unwind_user_regs *regs,
			       unsigned long *entries, unsigned int max)
{
	/*
	 * Addresses of the stack are in words, by a rotation: one that is not aligned
	 * becomes a large number, and fails at the limit as do those of the kernel. What
	 * is in @walk is read as an operand, and takes no instruction of its own.
	 */
	unsigned long sp = ror64(regs->sp, 3), fp = ror64(regs->fp, 3);
	unsigned long *entry = entries, *end = entries + max, *fresh = entries + 1;
	unsigned long start = 0, size = 0, ip, ra, rel, slot, fp_slot;
	struct table_walk walk __uninitialized;
	const struct unwind_range *range;
	struct row_slot *cached;
	u64 key, row;

	walk.state = state;
	walk.regs = regs;
	walk.context = 0;
	walk.signals = 0;
	walk.next = 0;
	walk.nr_ranges = 0;
	walk.key = 0;
	walk.text = state->text;
	walk.limit = TASK_SIZE_MAX / 8 - 1;
	walk.cache = raw_cpu_ptr(row_cache);
	walk.trampoline = unwind_user_trampoline();
	ip = regs->ip;
	if (unlikely(walk.trampoline)) {
		walk.text = 0;
		if (ip == walk.trampoline) {
			ip = unwind_user_real_return(ip, regs->sp, true);
			if (!user_text_address(state, ip))
				ip = regs->ip;
		}
	}
	*entry++ = ip;
	/* The address to be looked up is the one ahead of @ra: it is inside of the call. */
	ra = ip + 1;

	guard(rcu)();
	pagefault_disable();
	while (entry != end && likely(sp >= UNWIND_MIN_SP)) {
again:
		rel = ra - start;
		if (unlikely(rel >= size)) {
			if (!find_range(&walk, ra - 1))
				break;
			range = walk.range;
			if (!range->table) {
				size = 0;
				row = range->row;
				if (row == UNWIND_ROW_RECORD) {
					if (regs->at_entry && entry == entries + 1)
						row = ROW_ENTRY;
					else if (fp < sp)
						break;
				}
				goto step;
			}
			start = range->start + 1;
			size = range->size;
			goto again;
		}

		key = row_key(rel) + walk.key;
		cached = row_slot(walk.cache, key);
		row = READ_ONCE(cached->row);
		/* A word of another entry, or half of one, is not right for this row. */
		if (unlikely((key ^ data_race(cached->key_row)) != row))
			row = row_miss(&walk, ra - 1);
step:
		slot = (row & UNWIND_ROW_SP ? sp : fp) + unwind_row_slot(row);
		/* 0 if it is no user address. */
		slot = arch_unwind_user_index(slot, walk.limit);
		if (unlikely(slot < sp)) {
			if (row == UNWIND_ROW_END)
				break;
			if (entry != fresh && !unwind_row_is_other(row))
				break;
			goto otherwise;
		}
		if (row & UNWIND_ROW_FP) {
			/* In user space, or a bit above: see UNWIND_MIN_SP. */
			fp_slot = slot + unwind_row_fp_slot(row);
			arch_unwind_user_begin();
			ra = arch_unwind_user_frame(slot, &fp_slot);
			arch_unwind_user_end();
			fp = ror64(fp_slot, 3);
		} else {
			arch_unwind_user_begin();
			ra = arch_unwind_user_word(slot);
			arch_unwind_user_end();
		}
		if (unlikely(ra - FIRST_TEXT >= walk.text)) {
			if (ra && ra == walk.trampoline)
				ra = unwind_user_real_return(ra, slot * 8, false);
			if (!ra)
				find_absent(state, slot, row);
			if (!user_text_address(state, ra))
				break;
		}
		sp = slot + 1;
		/* In this order, or else the compiler keeps two values of @entry. */
		*entry = ra;
		entry++;
		if (likely(entry != end))
			goto again;
		break;

otherwise:
		walk.addr = ra - 1;
		walk.sp = rol64(sp, 3);
		walk.fp = rol64(fp, 3);
		walk.fresh = entry == fresh;
		ip = step_otherwise(&walk, row);
		if (!user_text_address(state, ip))
			break;
		*entry++ = ip;
		ra = walk.addr + 1;
		sp = ror64(walk.sp, 3);
		fp = ror64(walk.fp, 3);
		if (walk.fresh)
			fresh = entry;
	}
	pagefault_enable();
	return entry - entries;
}

// SPDX-License-Identifier: GPL-2.0
/*
 * The bases of the segments of 32-bit code, for a walk of its stack.
 */
#include <linux/irqflags.h>
#include <linux/mmu_context.h>
#include <linux/sched.h>
#include <linux/unwind_user_types.h>

#include <asm/desc.h>
#include <asm/segment.h>
#include <asm/tlbflush.h>
#include <asm/unwind_user.h>

#include <kunit/visibility.h>

/* The current task's descriptor for @selector, or NULL. With interrupts off. */
static const struct desc_struct *user_descriptor(unsigned int selector)
{
	unsigned int idx = selector >> 3;

	if ((selector & SEGMENT_TI_MASK) == SEGMENT_LDT) {
#ifdef CONFIG_MODIFY_LDT_SYSCALL
		struct ldt_struct *ldt;

		/*
		 * An LDT is freed after an interrupt of all CPUs that have its mm
		 * loaded. If this CPU is in the middle of a switch of the mm, it
		 * may not be one of them.
		 */
		if (!nmi_uaccess_okay())
			return NULL;
		/* Pairs with the smp_store_release() in install_ldt(). */
		ldt = READ_ONCE(current->mm->context.ldt);
		if (ldt && idx < ldt->nr_entries)
			return &ldt->entries[idx];
#endif
		return NULL;
	}

	/* Not from the GDT: in the middle of a switch it may hold the next task's. */
	if (idx >= GDT_ENTRY_TLS_MIN && idx <= GDT_ENTRY_TLS_MAX)
		return &current->thread.tls_array[idx - GDT_ENTRY_TLS_MIN];

	return idx < GDT_ENTRIES ? get_current_gdt_rw() + idx : NULL;
}

/*
 * A segment of code or data that is present. A tracer may have put a system segment into a
 * register, and its base is a kernel address.
 */
static bool segment_is_there(const struct desc_struct *desc)
{
	return desc && desc->p && desc->s;
}

/**
 * arch_unwind_user_segments - note the bases of the segments of 32-bit code
 * @dst:	cs_base, ss_base and word are set
 * @regs:	the current task's user registers, not those of 64-bit code
 *
 * The bases are noted when the stack is requested. A segment register keeps the base that
 * it was loaded with (SDM volume 3, 3.4.3), while the task, another of its threads or a
 * tracer may change the descriptor tables before the walk.
 *
 * @dst->word is set to 4. It is set to 0 if the code segment is not one of 32-bit code,
 * as its descriptor's D flag tells (SDM volume 3, 3.4.5): then the size of a stack word is
 * not known. It is set to 0 as well if the task's LDT cannot be read because another mm
 * is loaded (nmi_uaccess_okay() is false).
 *
 * Context: Any, NMI included.
 */
void arch_unwind_user_segments(struct unwind_user_regs *dst, const struct pt_regs *regs)
{
	const struct desc_struct *cs, *ss;

	guard(irqsave)();
	cs = user_descriptor(regs->cs);
	ss = user_descriptor(regs->ss);
	if (!segment_is_there(cs) || !cs->d || !segment_is_there(ss)) {
		dst->word = 0;
		return;
	}
	dst->word = 4;
	dst->cs_base = get_desc_base(cs);
	dst->ss_base = get_desc_base(ss);
}
EXPORT_SYMBOL_IF_KUNIT(arch_unwind_user_segments);

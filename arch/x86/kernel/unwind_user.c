// SPDX-License-Identifier: GPL-2.0
/*
 * Where the segments of 32-bit code start, for a walk of its stack.
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
		 * An LDT is freed when all CPUs that have its mm loaded have been
		 * interrupted. This one may be in the middle of a switch.
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

	/* In the middle of a switch the GDT may have those of the next task. */
	if (idx >= GDT_ENTRY_TLS_MIN && idx <= GDT_ENTRY_TLS_MAX)
		return &current->thread.tls_array[idx - GDT_ENTRY_TLS_MIN];

	return idx < GDT_ENTRIES ? get_current_gdt_rw() + idx : NULL;
}

/* A tracer may have named a system segment, whose base is a kernel address. */
static bool segment_is_there(const struct desc_struct *desc)
{
	return desc && desc->p && desc->s;
}

/**
 * arch_unwind_user_segments - note where the segments of 32-bit code start
 * @dst:	what is set is cs_base, ss_base and word
 * @regs:	the current task's user registers, not those of 64-bit code
 *
 * Read when the stack is asked for: a segment register keeps the base that it was
 * loaded with (SDM volume 3, 3.4.3), and the task, another of its threads or a tracer
 * may write others to the tables before the walk.
 *
 * @dst->word is 4, or 0 where the code segment is none of 32-bit code, so that the
 * size of its stack words is not known. That is said by its descriptor's D flag (SDM
 * volume 3, 3.4.5). It is 0, too, where the task's LDT cannot be read, as another mm is
 * loaded: nmi_uaccess_okay() is false then.
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

// SPDX-License-Identifier: GPL-2.0
/*
 * What a walk of a user stack needs to know of registers: the bases of the segments of
 * 32-bit code, and those that unwinding tables name.
 */
#include <linux/irqflags.h>
#include <linux/mmu_context.h>
#include <linux/sched.h>
#include <linux/sched/task_stack.h>
#include <linux/stddef.h>
#include <linux/unwind_user_types.h>

#include <asm/desc.h>
#include <asm/segment.h>
#include <asm/sigframe.h>
#include <asm/tlbflush.h>
#include <asm/unwind_user.h>

#include <kunit/visibility.h>

/* Find the current task's descriptor for @selector, or NULL. Interrupts must be off. */
static const struct desc_struct *user_descriptor(unsigned int selector)
{
	unsigned int idx = selector >> 3;

	if ((selector & SEGMENT_TI_MASK) == SEGMENT_LDT) {
#ifdef CONFIG_MODIFY_LDT_SYSCALL
		struct ldt_struct *ldt;

		/*
		 * Before an LDT is freed, all CPUs that have its mm loaded are
		 * interrupted. In the middle of a switch of the mm this CPU may not
		 * be one of them, so the LDT may be freed meanwhile.
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

	/* Do not use the GDT: during a switch it may have the next task's descriptors. */
	if (idx >= GDT_ENTRY_TLS_MIN && idx <= GDT_ENTRY_TLS_MAX)
		return &current->thread.tls_array[idx - GDT_ENTRY_TLS_MIN];

	return idx < GDT_ENTRIES ? get_current_gdt_rw() + idx : NULL;
}

/*
 * Is this a present segment of code or data? A tracer may have put a system segment into a
 * register, and the base of such a segment is a kernel address.
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
 * @dst->word is set to 4. It is set to 0 if the code segment is not for 32-bit code,
 * according to the D flag of its descriptor (SDM volume 3, 3.4.5): then the size of a
 * stack word is not known. It is also set to 0 if the task's LDT cannot be read because
 * another mm is loaded (nmi_uaccess_okay() is false).
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

#ifdef CONFIG_UNWIND_TABLES
/* psABI x86-64, figure 3.36: what the numbers 0 to 15 of DWARF mean. */
#define SAVED(reg)	offsetof(struct pt_regs, reg)
static const u8 saved_registers[] = {
	SAVED(ax), SAVED(dx), SAVED(cx), SAVED(bx), SAVED(si), SAVED(di),
	SAVED(bp), SAVED(sp), SAVED(r8), SAVED(r9), SAVED(r10), SAVED(r11),
	SAVED(r12), SAVED(r13), SAVED(r14), SAVED(r15),
};

/* The same in a signal frame, and the instruction pointer as 16. */
#define FRAME(reg)	offsetof(struct rt_sigframe, uc.uc_mcontext.reg)
static const u8 frame_registers[] = {
	FRAME(ax), FRAME(dx), FRAME(cx), FRAME(bx), FRAME(si), FRAME(di),
	FRAME(bp), FRAME(sp), FRAME(r8), FRAME(r9), FRAME(r10), FRAME(r11),
	FRAME(r12), FRAME(r13), FRAME(r14), FRAME(r15), FRAME(ip),
};

/**
 * arch_unwind_user_register - another register of the place where a walk starts
 * @from:	the registers that the walk starts from
 * @nr:		the register's number in DWARF, 0 to 15
 * @value:	set
 *
 * Context: Any, NMI included.
 * Return: whether the task's user registers are still those of @from.
 */
bool arch_unwind_user_register(const struct unwind_user_regs *from, unsigned int nr,
			       unsigned long *value)
{
	const struct pt_regs *regs = task_pt_regs(current);

	if (regs->ip != from->ip || regs->sp != from->sp || regs->bp != from->fp)
		return false;
	*value = *(const unsigned long *)((const char *)regs + saved_registers[nr]);
	return true;
}

/**
 * arch_unwind_sigframe - where a signal frame has a register
 * @nr:		the register's number in DWARF, or 16 for the instruction pointer
 *
 * Return: the offset in bytes from the stack pointer of a handler that has returned.
 */
unsigned int arch_unwind_sigframe(unsigned int nr)
{
	/* The handler has taken its return address from the frame. */
	return frame_registers[nr] - sizeof_field(struct rt_sigframe, pretcode);
}
#endif

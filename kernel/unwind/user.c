// SPDX-License-Identifier: GPL-2.0
/*
 * Walk the user stack of the current task.
 *
 * A walk never faults, so it runs in any context. It returns the address of a word that
 * it could not read. In a context that may sleep unwind_user_bring() then brings that
 * page, and the walk starts again.
 *
 * While there are unwinding tables, table_walk.c chooses for each frame between a row of
 * a table and the frame pointer. While there are none, and for 32-bit code, all frames
 * are taken by frame pointer, here: a whole stack is one call, inside of one user access
 * window.
 *
 * User memory is not to be trusted. Each frame record has to lie above the one before,
 * so a walk always ends. It stops at the first record that cannot be part of a chain.
 */
#include <linux/bitops.h>
#include <linux/fs.h>
#include <linux/kernel.h>
#include <linux/magic.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/sched/task_stack.h>
#include <linux/uaccess.h>
#include <linux/unwind_user.h>
#include <linux/uprobes.h>
#include <linux/userfaultfd_k.h>

#include <asm/unwind_user.h>

#include <kunit/visibility.h>

#include "user.h"

/*
 * A fault may never complete, on a dead device for instance. Then it ends when the task
 * is killed. No fault is allowed where that does not work, or where others wait:
 *
 *  - A task that is dying cannot be killed again. prepare_signal() drops signals for
 *    a process that exits, and signals do not wake a thread after exit_signals().
 *
 *  - During an execve() the task holds cred_guard_mutex, which others may wait for. The
 *    execve() itself waits for the other threads.
 */
static bool user_fault_allowed(void)
{
	return !(current->flags & PF_EXITING) &&
	       !(READ_ONCE(current->signal->flags) & SIGNAL_GROUP_EXIT) &&
	       !READ_ONCE(current->signal->group_exec_task) &&
	       !current->in_execve;
}

/*
 * Does user space bring the pages of this mapping, by userfaultfd or FUSE? Then the task
 * itself may be the server, and would wait for itself. Also, a signal does not always end
 * the wait for a page of FUSE. With overlayfs or FUSE passthrough vm_file is the backing
 * file, and it is the one that counts.
 */
static bool user_serves(struct vm_area_struct *vma)
{
	return userfaultfd_missing(vma) || userfaultfd_minor(vma) ||
	       (vma->vm_file &&
		file_inode(vma->vm_file)->i_sb->s_magic == FUSE_SUPER_MAGIC);
}

/* Only in a mapping: a fault right below a stack would make the stack grow. */
static bool user_may_be_brought(unsigned long addr)
{
	struct mm_struct *mm = current->mm;
	struct vm_area_struct *vma;
	bool may;

	if (mmap_read_lock_killable(mm))
		return false;
	vma = vma_lookup(mm, addr);
	may = vma && !user_serves(vma);
	mmap_read_unlock(mm);
	return may;
}

/**
 * unwind_user_bring - bring a page that ended a walk
 * @addr:	&unwind_stacktrace.absent of that walk
 *
 * Pages that userfaultfd or FUSE would bring are not brought. A task that is dying or in
 * an execve() brings none.
 *
 * Context: Task context. May sleep, and take mmap_lock for reading. Ends when the task
 * is killed.
 * Return: whether the page is there now, so that another walk may come further.
 */
bool unwind_user_bring(unsigned long addr)
{
	const char __user *user = (const char __user *)addr;

	might_fault();
	return addr && access_ok(user, 1) && !faulthandler_disabled() &&
	       user_fault_allowed() && user_may_be_brought(addr) &&
	       !fault_in_readable(user, 1);
}
EXPORT_SYMBOL_IF_KUNIT(unwind_user_bring);

bool unwind_user_word(struct unwind_user_state *state, unsigned long addr, u64 *word)
{
	u32 low;

	if (state->word == 8) {
		if (copy_from_user_nofault(word, (const void __user *)addr, 8))
			goto absent;
	} else {
		if (copy_from_user_nofault(&low, (const void __user *)addr, 4))
			goto absent;
		*word = low;
	}
	return true;

absent:
	state->absent = addr;
	return false;
}

/*
 * The return address of the record below @state->cfa was read as 0. Either this is the
 * end of the chain, or a word of the record could not be read: find out.
 */
static noinline void fp_find_absent(struct unwind_user_state *state)
{
	unsigned long record = state->cfa - ARCH_UNWIND_USER_RECORD_WORDS * state->word;
	u64 word;

	if (unwind_user_word(state, record, &word))
		unwind_user_word(state, record + state->word, &word);
}

/*
 * Addresses while frame pointers are followed, except @ra: in words, by a rotation to the
 * right. The low bits of an address that is not aligned become the highest bits. So one
 * comparison with a limit finds addresses that are not aligned or not in user space.
 */
struct fp_walk {
	unsigned long	fp;
	unsigned long	cfa;
	unsigned long	ra;
};

static __always_inline unsigned long fp_to_words(unsigned long addr, const unsigned int word)
{
	return word == 8 ? ror64(addr, 3) : ror32(addr, 2);
}

static __always_inline unsigned long fp_to_bytes(unsigned long words, const unsigned int word)
{
	return word == 8 ? rol64(words, 3) : rol32(words, 2);
}

/* Take one frame. False: there is no frame record, and @walk->fp is of no use. */
static __always_inline bool fp_step(const struct unwind_user_state *state,
				    struct fp_walk *walk, unsigned long *entry,
				    unsigned long limit, const unsigned int word)
{
	/* The record has to be above the frames that were walked. */
	walk->fp = arch_unwind_user_index(walk->fp, limit);
	if (unlikely(walk->fp < walk->cfa))
		return false;

	walk->cfa = walk->fp + ARCH_UNWIND_USER_RECORD_WORDS;
	walk->ra = arch_unwind_user_record(&walk->fp, word);
	if (word == 4) {
		walk->ra = user_return_address(state, walk->ra);
		walk->fp = (u32)(walk->fp + state->ss_base);
	}
	if (unlikely(!user_text_address(state, walk->ra)))
		return false;

	*entry = walk->ra;
	walk->fp = fp_to_words(walk->fp, word);
	return true;
}

/*
 * Follow frame records. One copy is compiled for each word size, so that the 64-bit loop
 * knows nothing of segments. It takes four frames a round, and 13 instructions a frame.
 */
static __always_inline unsigned int
fp_walk_word(struct unwind_user_state *to, unsigned long *entries,
	     unsigned int max, const unsigned int word)
{
	const struct unwind_user_state state = *to;	/* in registers */
	unsigned long limit = (word == 8 ? TASK_SIZE_MAX : SZ_4G) / word -
			      ARCH_UNWIND_USER_RECORD_WORDS;
	unsigned long *entry = entries, *end = entries + (max & ~3U);
	struct fp_walk walk = {
		.fp	= fp_to_words(state.fp, word),
		/* Not DIV_ROUND_UP(): the highest addresses would become 0. */
		.cfa	= state.cfa / word + !!(state.cfa % word),
		.ra	= -1UL,
	};

	pagefault_disable();
	arch_unwind_user_begin();
	to->fp = 0;
	for (; entry != end; entry += 4) {
		if (!fp_step(&state, &walk, entry, limit, word))
			goto out;
		if (!fp_step(&state, &walk, entry + 1, limit, word))
			goto out_1;
		if (!fp_step(&state, &walk, entry + 2, limit, word))
			goto out_2;
		if (!fp_step(&state, &walk, entry + 3, limit, word))
			goto out_3;
	}
	for (end = entries + max; entry != end; entry++) {
		if (!fp_step(&state, &walk, entry, limit, word))
			goto out;
	}
	/* Or else the compiler keeps @walk.fp in words and in bytes inside of the loop. */
	OPTIMIZER_HIDE_VAR(walk.fp);
	to->fp = fp_to_bytes(walk.fp, word);
	goto out;

out_3:
	entry++;
out_2:
	entry++;
out_1:
	entry++;
out:
	arch_unwind_user_end();
	pagefault_enable();

	to->cfa = walk.cfa * word;
	if (unlikely(!walk.ra))
		fp_find_absent(to);
	return entry - entries;
}

static noinline unsigned int
fp_walk_32(struct unwind_user_state *state, unsigned long *entries,
	   unsigned int max)
{
	return fp_walk_word(state, entries, max, 4);
}

static unsigned int fp_walk(struct unwind_user_state *state,
			    unsigned long *entries, unsigned int max)
{
	if (unlikely(state->word == 4))
		return fp_walk_32(state, entries, max);
	return fp_walk_word(state, entries, max, 8);
}

/*
 * At its first instruction a function has not made a frame record yet. The return address
 * is on top of the stack, where the call pushed it.
 */
static unsigned int unwind_user_entry_frame(struct unwind_user_state *state,
					    unsigned long *entry)
{
	unsigned long ra;
	u64 word;

	if (!unwind_user_word(state, state->cfa, &word))
		return 0;
	ra = state->word == 8 ? word : user_return_address(state, word);
	if (!user_text_address(state, ra))
		return 0;

	state->cfa += state->word;
	*entry = ra;
	return 1;
}

#ifdef CONFIG_UPROBES
/* The address that pending uretprobes have put in place of return addresses, or 0. */
unsigned long unwind_user_trampoline(void)
{
	if (likely(!current->utask) || !current->utask->return_instances)
		return 0;
	return uprobe_get_trampoline_vaddr();
}

/* The return address that the @trampoline in @slot has replaced. It can be any number. */
unsigned long unwind_user_real_return(unsigned long trampoline, unsigned long slot,
				      bool returned)
{
	unsigned long best = returned ? 0 : ULONG_MAX, real = trampoline;
	struct return_instance *ri = current->utask ? current->utask->return_instances : NULL;

	for (; ri; ri = ri->next) {
		if (unwind_user_is_slot(slot, returned, ri->stack, best)) {
			best = ri->stack;
			real = ri->orig_ret_vaddr;
		}
	}
	return real;
}

/*
 * Walk once more, a frame at a time, as this tells the place of each return address.
 * Replace those that are the trampoline's.
 */
static noinline void undo_uretprobes(struct unwind_stacktrace *trace,
				     const struct unwind_user_regs *regs,
				     unsigned long trampoline)
{
	struct unwind_user_state state;
	unsigned long entry = trace->entries[0];
	unsigned int i;

	if (!unwind_user_start(&state, regs))
		return;
	if (entry == trampoline) {
		entry = unwind_user_real_return(trampoline, state.cfa, true);
		if (user_text_address(&state, entry))
			trace->entries[0] = entry;
	}

	for (i = 1; i < trace->nr; i++) {
		if (!(i == 1 && regs->at_entry ? unwind_user_entry_frame(&state, &entry) :
						 fp_walk(&state, &entry, 1))) {
			/* Another thread has changed the stack since the first walk. */
			trace->nr = i;
			break;
		}
		if (entry == trampoline) {
			entry = unwind_user_real_return(trampoline, state.cfa - state.word, false);
			if (!user_text_address(&state, entry)) {
				trace->nr = i;
				break;
			}
		}
		trace->entries[i] = entry;
	}
}
#endif

/* Put back the return addresses that pending uretprobes have replaced. */
static void unwind_user_undo_uretprobes(struct unwind_stacktrace *trace,
					const struct unwind_user_regs *regs)
{
#ifdef CONFIG_UPROBES
	unsigned long trampoline = unwind_user_trampoline();
	unsigned int i;

	if (likely(!trampoline))
		return;

	for (i = 0; i < trace->nr; i++) {
		if (trace->entries[i] == trampoline) {
			undo_uretprobes(trace, regs, trampoline);
			break;
		}
	}
#endif
}

/**
 * unwind_user_regs - walk the current task's user stack from given registers
 * @trace:	@trace->entries has room for @max entries. The other members are set.
 * @regs:	where to start
 * @max:	the most entries to store, 0 to UNWIND_USER_MAX_ENTRIES
 *
 * The first entry is @regs->ip, whatever it is. The others are return addresses in user
 * space. The walk ends with the chain of frame records, or where an unwinding table knows
 * of no caller. It also ends at a frame that is below the one before, is not aligned,
 * cannot be read, or has a return address that is no user address.
 *
 * Context: Any in which the current task's mm is loaded (nmi_uaccess_okay()), NMI
 * included. Does not fault.
 */
void unwind_user_regs(struct unwind_stacktrace *trace,
		      const struct unwind_user_regs *regs, unsigned int max)
{
	struct unwind_user_state state __uninitialized;

	trace->nr = 0;
	trace->absent = 0;
	trace->again = false;
	if (unlikely(!max || !unwind_user_start(&state, regs)))
		return;

	if (unwind_by_tables(regs)) {
		trace->nr = unwind_table_walk(&state, regs, trace->entries, max);
		trace->absent = state.absent;
		return;
	}

	trace->entries[trace->nr++] = user_first_entry(&state, regs);
	/* If the caller is not found the walk ends: the frame record is the caller's. */
	if (unlikely(regs->at_entry) && max > 1 &&
	    !unwind_user_entry_frame(&state, &trace->entries[trace->nr++]))
		trace->nr--;
	else if (max > trace->nr)
		trace->nr += fp_walk(&state, trace->entries + trace->nr, max - trace->nr);
	trace->absent = state.absent;

	unwind_user_undo_uretprobes(trace, regs);
}
EXPORT_SYMBOL_IF_KUNIT(unwind_user_regs);

/**
 * unwind_user - walk the current task's user stack
 * @trace:	@trace->entries has room for @max entries. The other members are set.
 * @max:	the most entries to store, 1 to UNWIND_USER_MAX_ENTRIES
 *
 * Brings the pages that are not present, UNWIND_USER_MAX_PAGES at most.
 *
 * Context: Task context. May fault and sleep, see unwind_user_bring().
 * Return: 0, or -EINVAL for a task that has no user stack: a kernel thread, a
 * worker that the kernel made for a user task, a task without an mm.
 */
int unwind_user(struct unwind_stacktrace *trace, unsigned int max)
{
	struct unwind_user_regs regs;
	unsigned int pages = 0;

	trace->nr = 0;
	if (!is_user_task(current))
		return -EINVAL;

	arch_unwind_user_regs(&regs, task_pt_regs(current));
	do {
		unwind_user_regs(trace, &regs, max);
	} while (trace->absent && pages++ < UNWIND_USER_MAX_PAGES &&
		 unwind_user_bring(trace->absent));
	return 0;
}
EXPORT_SYMBOL_IF_KUNIT(unwind_user);

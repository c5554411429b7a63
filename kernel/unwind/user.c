// SPDX-License-Identifier: GPL-2.0
/*
 * Walk the user stack of the current task, in a context that may fault.
 *
 * A stack is walked by methods. They stand in an array, the most trusted one
 * first, and each frame is offered to them in that order; the first that knows
 * how to step takes it. A method is asked for several frames at once, and takes
 * as many as it can, unless a more trusted one stands before it, which has to
 * be asked for each. Today there is one method, frame pointers, so a whole
 * stack is one call.
 *
 * Frame pointers are followed inside one user access window with page faults
 * disabled: a record that is not present ends the window, is read by
 * copy_from_user(), which may sleep, and the next window starts behind it.
 *
 * User memory is not to be trusted. A walk ends because each record has to lie
 * above the one before; it stops at the first thing that a chain of frame
 * records cannot contain.
 */
#include <linux/fs.h>
#include <linux/kernel.h>
#include <linux/magic.h>
#include <linux/mm.h>
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
 * A fault may never complete, as on a device that user space serves. It ends when
 * the task is killed, but a task that is dying cannot be killed again: prepare_signal()
 * drops signals for a process that exits, and nobody wakes a thread behind
 * exit_signals(). Of an execve() others may wait for cred_guard_mutex meanwhile, and it
 * waits for the other threads.
 */
static bool user_fault_allowed(void)
{
	return !(current->flags & PF_EXITING) &&
	       !(READ_ONCE(current->signal->flags) & SIGNAL_GROUP_EXIT) &&
	       !READ_ONCE(current->signal->group_exec_task) &&
	       !current->in_execve;
}

/*
 * Is it for user space to bring the pages of this? By userfaultfd or FUSE: who serves
 * one has its address at hand, maybe where a frame pointer would be, and waiting for it
 * would be for itself. Nor does any signal end the wait for a page of FUSE, where it is
 * asked for by itself, or the server knows of no FUSE_ASYNC_READ.
 */
static bool user_serves(struct vm_area_struct *vma)
{
	/* With overlayfs or FUSE passthrough vm_file is the backing file: that one counts. */
	return userfaultfd_missing(vma) || userfaultfd_minor(vma) ||
	       (vma->vm_file &&
		file_inode(vma->vm_file)->i_sb->s_magic == FUSE_SUPER_MAGIC);
}

/*
 * May a fault bring these? Not where nothing is mapped: below a stack the fault would
 * have that grow, and what was never there is no frame. Nor what user space serves.
 */
static bool user_may_be_brought(unsigned long from, unsigned int size)
{
	unsigned long to = from + size, mapped = from;
	struct mm_struct *mm = current->mm;
	struct vm_area_struct *vma;
	struct vma_iterator vmi;

	if (mmap_read_lock_killable(mm))
		return false;

	vma_iter_init(&vmi, mm, from);
	for_each_vma_range(vmi, vma, to) {
		if (vma->vm_start > mapped || user_serves(vma))
			break;
		mapped = vma->vm_end;
	}
	mmap_read_unlock(mm);
	return mapped >= to;
}

/*
 * Read what a fault may have to bring. False: it cannot be read. What is present is
 * read without mmap_lock: others may hold that for long.
 */
static bool read_user(void *to, unsigned long from, unsigned int size)
{
	const void __user *user = (const void __user *)from;
	unsigned long left;

	pagefault_disable();
	left = copy_from_user(to, user, size);
	pagefault_enable();

	if (left && access_ok(user, size) && !faulthandler_disabled() &&
	    user_fault_allowed() && user_may_be_brought(from, size))
		left = copy_from_user(to, user, size);
	return !left;
}

/*
 * Read one record outside of the window. False: it cannot be read.
 */
static noinline bool fp_record_slow(unsigned long fp, unsigned int word,
				    unsigned long *next_fp, unsigned long *ra)
{
	if (word == 8) {
		u64 words[ARCH_UNWIND_USER_RECORD_WORDS];

		if (!read_user(words, fp, sizeof(words)))
			return false;
		*next_fp = words[0];
		*ra = words[1];
	} else {
		u32 words[ARCH_UNWIND_USER_RECORD_WORDS];

		if (!read_user(words, fp, sizeof(words)))
			return false;
		*next_fp = words[0];
		*ra = words[1];
	}
	return true;
}

/*
 * A step where sleeping is all right. Its variables live in memory; those of the
 * loop do not have to.
 */
static __always_inline bool fp_step_slow(struct unwind_user_state *state,
					 unsigned long *entry,
					 const unsigned int word)
{
	unsigned long next_fp, ra;

	return fp_record_slow(state->fp, word, &next_fp, &ra) &&
	       fp_take(state, entry, next_fp, ra, word);
}

/*
 * Follow frame records. One copy is compiled for each word size, so that the
 * 64-bit loop knows nothing of segments: it has to stay within 20 instructions
 * a frame.
 */
static __always_inline unsigned int
fp_walk_word(struct unwind_user_state *to, unsigned long *entries,
	     unsigned int max, const unsigned int word)
{
	struct unwind_user_state state = *to;	/* in registers */
	unsigned long *end = entries + max;
	long left = -(long)max;			/* counts up to 0, at end */

	while (left) {
		unsigned long next_fp, ra = -1UL;

		pagefault_disable();
		arch_unwind_user_begin();
		do {
			if (unlikely(!fp_valid(&state, word)))
				break;
			state.fp = arch_unwind_user_mask(state.fp);
			arch_unwind_user_record(state.fp, word, &next_fp, &ra);
			if (!fp_take(&state, &end[left], next_fp, ra, word))
				break;
		} while (++left);
		arch_unwind_user_end();
		pagefault_enable();

		/*
		 * The end of the chain, unless the record is not present, which looks
		 * like a return address of 0 here.
		 */
		if (!left || ra || !fp_step_slow(&state, &end[left], word))
			break;
		left++;
	}

	*to = state;
	return max + left;
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
 * A method steps over at most @max frames, stores their return addresses and
 * returns their number; 0 when it cannot step from here.
 */
typedef unsigned int (*unwind_user_method_t)(struct unwind_user_state *state,
					     unsigned long *entries,
					     unsigned int max);

/* The most trusted method first. */
static const unwind_user_method_t unwind_user_methods[] = {
	fp_walk,
};

static unsigned int unwind_user_walk(struct unwind_user_state *state,
				     unsigned long *entries, unsigned int max)
{
	unsigned int nr = 0, step, i;

	do {
		step = 0;
		for (i = 0; i < ARRAY_SIZE(unwind_user_methods) && !step; i++) {
			unsigned int want = i ? 1 : max - nr;

			step = unwind_user_methods[i](state, entries + nr, want);
		}
		nr += step;
	} while (step && nr < max && ARRAY_SIZE(unwind_user_methods) > 1);

	return nr;
}

/*
 * At a function's first instruction no frame record has been made yet: the
 * return address is the word that the call pushed.
 */
static unsigned int unwind_user_entry_frame(struct unwind_user_state *state,
					    unsigned long *entry)
{
	unsigned long ra;

	if (state->word == 8) {
		u64 word;

		if (!read_user(&word, state->cfa, sizeof(word)))
			return 0;
		ra = word;
	} else {
		u32 word;

		if (!read_user(&word, state->cfa, sizeof(word)))
			return 0;
		ra = user_return_address(state, word);
	}
	if (!user_text_address(state, ra))
		return 0;

	state->cfa += state->word;
	*entry = ra;
	return 1;
}

#ifdef CONFIG_UPROBES
/* What stands for the trampoline in @slot. */
static unsigned long real_return(unsigned long trampoline, unsigned long slot,
				 bool returned)
{
	unsigned long best = returned ? 0 : ULONG_MAX, real = trampoline;
	struct return_instance *ri;

	for (ri = current->utask->return_instances; ri; ri = ri->next) {
		if (unwind_user_is_slot(slot, returned, ri->stack, best)) {
			best = ri->stack;
			real = ri->orig_ret_vaddr;
		}
	}
	return real;
}

/* The walk once more, a frame at a time: this is where the return addresses were. */
static noinline void undo_uretprobes(struct unwind_stacktrace *trace,
				     const struct unwind_user_regs *regs,
				     unsigned long trampoline)
{
	struct unwind_user_state state;
	unsigned long entry = trace->entries[0];
	unsigned int i;

	if (!unwind_user_start(&state, regs))
		return;
	if (entry == trampoline)
		trace->entries[0] = real_return(trampoline, state.cfa, true);

	for (i = 1; i < trace->nr; i++) {
		if (!(i == 1 && regs->at_entry ? unwind_user_entry_frame(&state, &entry) :
						 unwind_user_walk(&state, &entry, 1))) {
			/* Another thread has changed it. */
			trace->nr = i;
			break;
		}
		trace->entries[i] = entry != trampoline ? entry :
			real_return(trampoline, state.cfa - state.word, false);
	}
}
#endif

/* Have the trace the return addresses that pending uretprobes have replaced. */
static void unwind_user_undo_uretprobes(struct unwind_stacktrace *trace,
					const struct unwind_user_regs *regs)
{
#ifdef CONFIG_UPROBES
	unsigned long trampoline;
	unsigned int i;

	if (likely(!current->utask) || !current->utask->return_instances)
		return;

	trampoline = uprobe_get_trampoline_vaddr();
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
 * @trace:	@trace->entries has room for @max entries; @trace->nr is set
 * @regs:	where to start
 * @max:	the most entries to store, 0 to UNWIND_USER_MAX_ENTRIES
 *
 * The first entry is @regs->ip, whatever it is; the others are return
 * addresses in user space. The walk ends where the chain of frame records does,
 * or where it stops being one: a record below the frame before, not aligned, not
 * readable, or with a return address that is no user address.
 *
 * Context: Task context of a task with an mm. May fault and sleep, and take mmap_lock
 * for reading; a fault that does not come back ends when the task is killed. Of a page
 * that userfaultfd or FUSE would bring, and of a task that is dying or in an execve(),
 * only what is present is read. Or an interrupt that came while such a task ran, with
 * page faults disabled: then it does not sleep.
 */
void unwind_user_regs(struct unwind_stacktrace *trace,
		      const struct unwind_user_regs *regs, unsigned int max)
{
	struct unwind_user_state state __uninitialized;

	trace->nr = 0;
	if (unlikely(!max || !unwind_user_start(&state, regs)))
		return;

	might_fault();

	trace->entries[trace->nr++] = user_first_entry(&state, regs);
	if (unlikely(regs->at_entry) && max > 1) {
		/* Without the caller the rest would be a wrong stack. */
		if (!unwind_user_entry_frame(&state, &trace->entries[1]))
			return;
		trace->nr++;
	}
	if (max > trace->nr)
		trace->nr += unwind_user_walk(&state,
					      trace->entries + trace->nr,
					      max - trace->nr);

	unwind_user_undo_uretprobes(trace, regs);
}
EXPORT_SYMBOL_IF_KUNIT(unwind_user_regs);

/**
 * unwind_user - walk the current task's user stack
 * @trace:	@trace->entries has room for @max entries; @trace->nr is set
 * @max:	the most entries to store, 1 to UNWIND_USER_MAX_ENTRIES
 *
 * Context: Task context. May fault and sleep.
 * Return: 0, or -EINVAL for a task that has no user stack: a kernel thread, a
 * worker that the kernel made for a user task, a task without an mm.
 */
int unwind_user(struct unwind_stacktrace *trace, unsigned int max)
{
	struct unwind_user_regs regs;

	trace->nr = 0;
	if (!is_user_task(current))
		return -EINVAL;

	arch_unwind_user_regs(&regs, task_pt_regs(current));
	unwind_user_regs(trace, &regs, max);
	return 0;
}
EXPORT_SYMBOL_IF_KUNIT(unwind_user);

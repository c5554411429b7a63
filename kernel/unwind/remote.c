// SPDX-License-Identifier: GPL-2.0
/*
 * Walk the user stack that another task has been asked for.
 *
 * A task that sleeps in the kernel does not come by where its stack is walked. At
 * the end of a profile somebody else has to do it, without waking the task, and
 * without waiting for it or for its memory.
 *
 * What is looked at belongs to the task alone, so it must not run meanwhile:
 * task_call_func() holds off its wakeup for the moments before and after the
 * walk, in which the walk's start is copied and compared. The stack is good when
 * in the second one the same cookie still waits, so that the task has not been
 * near user space, and its switch count is the same, so that it has not run at
 * all.
 *
 * A task that is running, in a system call that takes long, can be interrupted: on
 * its CPU, in an interrupt, it is the current task, and does not run either.
 *
 * Only memory that is present is read, as it is for a stack that is walked at the
 * time of the sample: userfaultfd, FUSE and swap cannot hold up the caller.
 */
#include <linux/highmem.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/unwind_deferred.h>
#include <linux/unwind_user.h>
#include <linux/uprobes.h>
#include <linux/wait.h>

#include <asm/tlb.h>

#include "deferred.h"
#include "user.h"

/* As many uretprobes as a task can have pending, see kernel/events/uprobes.c. */
#define REMOTE_URETPROBES	64

/* A task that falls asleep before it is interrupted, and wakes before it is walked. */
#define REMOTE_TRIES		8

/**
 * struct remote_start - what a walk from outside starts from
 * @work:	the client that the task has to be waiting for
 * @bit:	its number
 * @cookie:	names the stack
 * @switches:	how often the task has been switched out so far
 * @regs:	its user registers
 * @max:	the most entries that those who asked want
 * @no_stack:	there is no user stack: the task is in an execve(), or its user
 *		space has run since it was asked for
 * @nr_real:	entries of @real
 * @real:	return addresses that uretprobes have replaced, and where
 */
struct remote_start {
	struct unwind_work	*work;
	unsigned int		bit;
	u64			cookie;
	unsigned long		switches;
	struct unwind_user_regs	regs;
	unsigned int		max;
	bool			no_stack;
	unsigned int		nr_real;
	struct {
		unsigned long	stack;
		unsigned long	ra;
	} real[REMOTE_URETPROBES];
};

/*
 * Has user space run since the request? As late_now() in deferred.c has it, but for a
 * task in a stop that has noted its registers, and had them changed by its tracer.
 */
static bool remote_late(struct task_struct *task)
{
	struct unwind_task_info *info = &task->unwind_info;
	struct unwind_user_regs now;
	u64 state = READ_ONCE(info->state);

	if (!(state & STATE_NMI))
		return !arch_unwind_entry_asked(task);

	arch_unwind_user_place(&now, task_pt_regs(task));
	return unwind_late(state, &info->regs, &now);
}

static bool remote_waits(struct task_struct *task, const struct remote_start *start)
{
	return unwind_waits(READ_ONCE(task->unwind_info.state), start->work, start->bit);
}

/* Note in @start what the walk of @task starts from, which waits and does not go on. */
static void remote_note(struct task_struct *task, struct remote_start *start)
{
	struct unwind_task_info *info = &task->unwind_info;

	/* As long as somebody waits, cookie and registers do not change. */
	start->cookie	= info->cookie;
	start->regs	= info->regs;
	/* 0 between the two reads in unwind_deferred_run() */
	start->max	= READ_ONCE(info->want) ?: UINT_MAX;
	start->no_stack	= info->exec >= EXEC_NO_STACK || remote_late(task);
}

/* Called by task_call_func(): @task does not change meanwhile. */
static int remote_look(struct task_struct *task, void *data)
{
	struct remote_start *start = data;

	if (!remote_waits(task, start))
		return -ESRCH;

	/* Not while it runs. Asleep, or waiting for a CPU, whatever it was doing. */
	if (task_curr(task))
		return -EAGAIN;

	remote_note(task, start);
	start->switches	= task->nvcsw + task->nivcsw;
	start->nr_real	= 0;
#ifdef CONFIG_UPROBES
	if (task->utask) {
		struct return_instance *ri = task->utask->return_instances;

		for (; ri && start->nr_real < REMOTE_URETPROBES; ri = ri->next) {
			start->real[start->nr_real].stack = ri->stack;
			start->real[start->nr_real++].ra = ri->orig_ret_vaddr;
		}
	}
#endif
	return 0;
}

/* Called by task_call_func(): has @task not run since remote_look()? */
static int remote_look_again(struct task_struct *task, void *data)
{
	struct remote_start *start = data;

	if (!remote_waits(task, start) ||
	    READ_ONCE(task->unwind_info.cookie) != start->cookie)
		return -ESRCH;
	if (task_curr(task) || task->nvcsw + task->nivcsw != start->switches)
		return -EAGAIN;
	return 0;
}

/* A page of the other's memory at a time. */
struct remote_page {
	struct mm_struct	*mm;
	unsigned long		addr;
	struct page		*page;
	void			*kaddr;
};

static void remote_page_put(struct remote_page *rp)
{
	if (!rp->page)
		return;
	kunmap_local(rp->kaddr);
	put_page(rp->page);
	rp->page = NULL;
}

static bool remote_read_word(struct remote_page *rp, unsigned long addr,
			     unsigned int word, unsigned long *value)
{
	unsigned long start = addr & PAGE_MASK;

	if (addr > TASK_SIZE_MAX - word || offset_in_page(addr) > PAGE_SIZE - word)
		return false;

	if (!rp->page || rp->addr != start) {
		remote_page_put(rp);
		/* Or it warns of what is below a stack, which it does not have grow. */
		if (!vma_lookup(rp->mm, start))
			return false;
		if (get_user_pages_remote(rp->mm, start, 1, FOLL_NOFAULT,
					  &rp->page, NULL) != 1) {
			rp->page = NULL;
			return false;
		}
		rp->kaddr = kmap_local_page(rp->page);
		rp->addr = start;
	}

	if (word == 8)
		*value = READ_ONCE(*(u64 *)(rp->kaddr + offset_in_page(addr)));
	else
		*value = READ_ONCE(*(u32 *)(rp->kaddr + offset_in_page(addr)));
	return true;
}

/* What is in @slot of the stack, or was there before a uretprobe replaced it. */
static unsigned long remote_real_return(struct mm_struct *mm,
					const struct remote_start *start,
					unsigned long entry, unsigned long slot,
					bool returned)
{
#ifdef CONFIG_UPROBES
	unsigned long best = returned ? 0 : ULONG_MAX;
	unsigned int i;

	if (likely(!start->nr_real) ||
	    entry != uprobe_get_trampoline_vaddr_mm(mm))
		return entry;

	for (i = 0; i < start->nr_real; i++) {
		if (unwind_user_is_slot(slot, returned, start->real[i].stack, best)) {
			best = start->real[i].stack;
			entry = start->real[i].ra;
		}
	}
#endif
	return entry;
}

/*
 * Is a uretprobe just being set up, whose trampoline is in @slot and of which
 * prepare_uretprobe() has not said yet what was there?
 */
static bool remote_hijacked(struct mm_struct *mm, const struct remote_start *start,
			    unsigned long entry, unsigned long slot)
{
#ifdef CONFIG_UPROBES
	unsigned int i;

	if (likely(entry != uprobe_get_trampoline_vaddr_mm(mm)))
		return false;

	for (i = 0; i < start->nr_real; i++) {
		if (start->real[i].stack == slot)
			return false;
	}
	return true;
#else
	return false;
#endif
}

/* Returns 0, or -EAGAIN where it is only now being changed. */
static int remote_walk(struct remote_page *rp, const struct remote_start *start,
		       struct unwind_stacktrace *trace, unsigned int max)
{
	const struct unwind_user_regs *regs = &start->regs;
	struct unwind_user_state state;
	unsigned long next_fp, ra;

	if (!max || !unwind_user_start(&state, regs))
		return 0;

	trace->entries[trace->nr++] =
		remote_real_return(rp->mm, start, user_first_entry(&state, regs),
				   state.cfa, true);
	if (regs->at_entry && trace->nr < max) {
		/* Without the caller the rest would be a wrong stack. */
		if (!remote_read_word(rp, state.cfa, state.word, &ra))
			return 0;
		if (state.word == 4)
			ra = user_return_address(&state, ra);
		if (!user_text_address(&state, ra))
			return 0;
		if (unlikely(remote_hijacked(rp->mm, start, ra, state.cfa)))
			return -EAGAIN;
		trace->entries[trace->nr++] = remote_real_return(rp->mm, start, ra,
								 state.cfa, false);
		state.cfa += state.word;
	}

	while (trace->nr < max && fp_valid(&state, state.word) &&
	       remote_read_word(rp, state.fp, state.word, &next_fp) &&
	       remote_read_word(rp, state.fp + state.word, state.word, &ra) &&
	       fp_take(&state, &ra, next_fp, ra, state.word))
		trace->entries[trace->nr++] = remote_real_return(rp->mm, start, ra,
								 state.cfa - state.word,
								 false);
	return 0;
}

/* Walk the stack of @task, which is not running. */
static int remote_asleep(struct task_struct *task, struct remote_start *start,
			 struct unwind_stacktrace *trace, unsigned int max)
{
	struct remote_page rp = {};
	int ret, err;

	ret = task_call_func(task, remote_look, start);
	if (ret || start->no_stack)
		return ret;

	rp.mm = get_task_mm(task);
	if (!rp.mm)
		return -ESRCH;

	if (mmap_read_trylock(rp.mm)) {
		ret = remote_walk(&rp, start, trace, min(max, start->max));
		remote_page_put(&rp);
		mmap_read_unlock(rp.mm);
	} else {
		ret = -EBUSY;
	}
	/* The task may have been the last user but us; leave that to a worker. */
	mmput_async(rp.mm);

	err = task_call_func(task, remote_look_again, start);
	return err ?: ret;
}

struct remote_call {
	struct task_struct		*task;
	struct remote_start		*start;
	struct unwind_stacktrace	*trace;
	unsigned int			max;
	int				ret;
};

/* Called by smp_call_function_single() where the task was running. */
static void remote_interrupt(void *data)
{
	struct unwind_task_info *info = &current->unwind_info;
	struct remote_call *call = data;
	struct remote_start *start = call->start;

	call->ret = -EAGAIN;
	if (current != call->task || !nmi_uaccess_okay())
		return;
	if (!remote_waits(current, start)) {
		call->ret = -ESRCH;
		return;
	}

	remote_note(current, start);
	/*
	 * What an NMI has asked for looks late while the registers are changed, too,
	 * see unwind_deferred_before(). The task knows better, and goes on now.
	 */
	if (start->no_stack && info->exec < EXEC_NO_STACK &&
	    (READ_ONCE(info->state) & STATE_NMI))
		return;

	/* It is in the handlers of a uprobe, and hands this out by itself after them. */
	if (start->regs.at_entry)
		return;

	call->ret = 0;
	if (start->no_stack)
		return;

	pagefault_disable();
	unwind_user_regs(call->trace, &start->regs, min(call->max, start->max));
	pagefault_enable();
}

/* Walk the stack of @task, which is running. */
static int remote_running(struct task_struct *task, struct remote_start *start,
			  struct unwind_stacktrace *trace, unsigned int max)
{
	struct remote_call call = {
		.task	= task,
		.start	= start,
		.trace	= trace,
		.max	= max,
	};

	if (smp_call_function_single(task_cpu(task), remote_interrupt, &call, true))
		return -EAGAIN;
	return call.ret;
}

/* What there is where no memory is for one of them, and who has got it. */
static struct remote_start spare_start;
static DEFINE_MUTEX(spare_mutex);

static struct remote_start *remote_start_get(void)
{
	struct remote_start *start = kmalloc(sizeof(*start), GFP_KERNEL | __GFP_NOWARN);

	if (start)
		return start;

	mutex_lock(&spare_mutex);
	return &spare_start;
}

static void remote_start_put(struct remote_start *start)
{
	if (start == &spare_start)
		mutex_unlock(&spare_mutex);
	else
		kfree(start);
}

DEFINE_FREE(remote_start_put, struct remote_start *, remote_start_put(_T))

/**
 * unwind_deferred_waits - has a client asked for a task's stack and not got it?
 * @work:	the client, registered
 * @task:	the task
 *
 * Context: Any. By the time it returns it may have changed, unless @task is kept
 * from running.
 * Return: true until @task begins to hand out a stack that @work asked for: to walk it,
 * which may take long, and to call the callbacks.
 */
bool unwind_deferred_waits(struct unwind_work *work, struct task_struct *task)
{
	int bit = READ_ONCE(work->bit);

	return bit >= 0 &&
	       unwind_waits(READ_ONCE(task->unwind_info.state), work, bit);
}

/**
 * unwind_deferred_remote - walk the stack that another task has been asked for
 * @work:	the client that asked; stays registered meanwhile
 * @task:	the task, not the current one
 * @trace:	@trace->entries has room for @max entries; @trace->nr is set
 * @max:	the most entries to store, at most UNWIND_USER_MAX_ENTRIES; with 0 the
 *		stack is an empty one
 * @interrupt:	if the task is running, interrupt its CPU for the time of the walk
 * @cookie:	set to the name of the stack
 *
 * The request stays as it is: when the task goes on, the client's callback is
 * called for it. The caller checks that the stack may be shown to whom it is for.
 *
 * Context: Task context, may sleep, but not for the task, its locks or its memory.
 * If what it notes of the task cannot be allocated it uses a static note, under a mutex
 * that is held for the whole call. With @interrupt it waits for a CPU that has interrupts
 * off.
 * Return:
 * * 0		- @trace and @cookie are good. @trace->nr is 0 where there is none.
 * * -EBUSY	- @cookie is good; somebody holds the lock of the task's memory map
 * * -EAGAIN	- it is running, or was meanwhile; with @interrupt: in each of some tries
 * * -ESRCH	- the task does not wait, or has begun to hand it out, or is exiting
 */
int unwind_deferred_remote(struct unwind_work *work, struct task_struct *task,
			   struct unwind_stacktrace *trace, unsigned int max,
			   bool interrupt, u64 *cookie)
{
	unsigned int tries = interrupt ? REMOTE_TRIES : 1;
	struct remote_start *start __free(remote_start_put) = NULL;
	int ret, bit;

	trace->nr = 0;
	bit = READ_ONCE(work->bit);
	if (bit < 0)
		return -ESRCH;

	start = remote_start_get();
	start->work = work;
	start->bit = bit;

	do {
		trace->nr = 0;
		ret = remote_asleep(task, start, trace, max);
		if (ret == -EAGAIN && interrupt) {
			trace->nr = 0;
			ret = remote_running(task, start, trace, max);
		}
	} while (ret == -EAGAIN && --tries);

	if (ret)
		trace->nr = 0;
	if (!ret || ret == -EBUSY)
		*cookie = start->cookie;
	return ret;
}

// SPDX-License-Identifier: GPL-2.0
/*
 * Deferred unwinding of user stacks.
 *
 * A client that wants the user stack of the current task requests it, in any context,
 * NMI included. The request sets the client's bit in the task and returns a cookie. The
 * stack is walked later, and the client's callback gets it together with the cookie.
 * The user stack does not change while the task is in the kernel, so one walk answers
 * all requests of one kernel entry, and they have the same cookie.
 *
 * A user stack does not leave its CPU. Pending requests are handed out (the stack is
 * walked and the callbacks run) at the first of these places that the task comes to:
 *
 *	return to user space	a task_work; the only place that brings absent pages
 *	exit			before the task's mm and its perf events go
 *	execve()		at the point of no return, out of the old image
 *	context switch		prepare_task_switch(), with rq->lock held
 *	unwind_deferred_flush()	where a client is about to lose the place for the
 *				stack, as with a perf event that is disabled
 *
 * A task that is off its CPU has nothing pending.
 *
 * The state
 *
 * All there is to know is in one word, unwind_task_info::state:
 *
 *	bits  0-7	the clients whose request is pending
 *	bit  8	QUEUED	 the task_work is queued. Set with the first client's bit,
 *			 cleared by the work function before it does anything else.
 *			 A hand-out elsewhere leaves the work on the list.
 *	bit  9	UNPROVEN an NMI has requested the stack, see below
 *	bit 10	FAULT	 the task is bringing a page for its walk
 *	bits 12-15	how often the work function has handed out this stack
 *	bits 16-63	the cookie: the number of a CPU and a count of that CPU
 *
 * The architecture adds a mark: a bit that every return to user space clears anyway.
 * A hand-out sets it. As long as it is set, the cookie and the registers in
 * unwind_task_info::regs are of this kernel entry. A request that finds nothing pending
 * asks again for that stack if the mark is set and the registers are the same; it gets
 * the same cookie. Otherwise it opens a new stack. The mark together with a cookie of 0
 * says that the task is in an execve() that cannot return: there is no stack.
 *
 * What is sampled between the work function and user space makes the task run the work
 * function again. That ends: a stack is handed out there UNWIND_MAX_WORKS times at
 * most, and then requests for it are refused.
 *
 * Who interrupts whom
 *
 * Only the task itself and the interrupts and NMIs on its CPU write the state, so all
 * that run at the same time are nested. (unwind_deferred_cancel() interrupts each CPU
 * for this reason.) Requests outside of NMI and hand-outs have interrupts off. So only
 * an NMI nests in either, and an NMI only requests. Two rules make that safe:
 *
 *  - A request that opens a stack publishes a new cookie, then stores the registers,
 *    then publishes its bit, which fails if an NMI has opened or asked meanwhile. An NMI
 *    ahead of the registers finds those of another stack and opens its own; one behind
 *    them asks for the stack with the new cookie. The outer request then joins.
 *
 *  - A hand-out looks, walks, and only then takes the pending bits. A request before
 *    the take has its callback run; one behind it is pending again, with the same
 *    cookie, and is handed out at the next place.
 *
 * On the way to user space the walk has interrupts on and preemption off. An interrupt
 * may hand out meanwhile, from another buffer. Then the walk finds nothing pending, and
 * its result is dropped.
 *
 * The page that is not present
 *
 * A walk never faults, and ends at such a page. On the way to user space the task then
 * sets FAULT, brings the page with preemption on, and walks again from the beginning. It
 * may sleep there, be preempted and migrate. A hand-out with FAULT set gives the clients
 * the short stack, tells them so, and notes them in unwind_task_info::owed. They get the
 * whole stack behind it, under the same cookie.
 *
 * Did user space run?
 *
 * An interrupt, or task context with interrupts on, is always inside of the kernel
 * entry: the user registers have been saved, and the work will run before user space
 * does. Two other contexts are not:
 *
 *  - An NMI may come before the entry code has saved the registers, or behind the last
 *    look for work. It makes an interrupt hit before the first instruction of user
 *    space. Its request is UNPROVEN: the stack is valid if the mark is set at the
 *    hand-out (the request came behind another hand-out of this entry), or if the
 *    registers are still the same. Otherwise it is gone, and the clients get an empty
 *    one.
 *
 *  - Task context with interrupts off may be behind the last look for work, too, and
 *    must not make an interrupt for each step to user space. Its request may join what
 *    is pending, and is refused otherwise.
 *
 * A request that finds the stack of other registers pending is refused.
 *
 * The window of the switch
 *
 * From rq->curr = next until current changes a request could not be handed out any
 * more: task_curr(current) is false, and the request is refused. The hook in
 * prepare_task_switch() runs inside of this window, ahead of perf's own.
 */
#include <linux/cleanup.h>
#include <linux/cpumask.h>
#include <linux/init.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/sched/task_stack.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/task_work.h>
#include <linux/unwind_deferred.h>
#include <linux/unwind_user.h>

#include <asm/irq_work.h>
#include <asm/unwind_user.h>

#include "deferred.h"
#include "user.h"

#define UNWIND_WORKS_ONE	BIT_ULL(12)
#define UNWIND_MAX_WORKS	GENMASK_ULL(15, 12)

/* On while there is a client. */
DEFINE_STATIC_KEY_FALSE(unwind_deferred_key);

/* Guards registration: clients_used and changes of the pointers below. */
static DEFINE_MUTEX(clients_mutex);
static unsigned long clients_used;

/* Read by hand-outs, with interrupts off, which RCU waits for. */
static struct unwind_work __rcu *clients[UNWIND_CLIENTS];

/**
 * struct unwind_buffers - space for the walks
 * @max:	the most entries that any client wants
 * @cpu:	for each CPU twice @max entries: a walk on the way to user space has the
 *		first half, a hand-out with interrupts off the second
 *
 * Replaced as a whole. Read with preemption off, which RCU waits for.
 */
struct unwind_buffers {
	unsigned int	max;
	unsigned long	*cpu[];
};

static struct unwind_buffers __rcu *buffers;

/* The lower half of the cookies of a CPU; the upper one is the CPU's number. */
static DEFINE_PER_CPU(u32, cookie_count);

static_assert(order_base_2(NR_CPUS) + 32 <= 64 - UNWIND_COOKIE_SHIFT);

static u64 new_cookie(void)
{
	u32 count;

	/* One instruction, for the NMI in between. 0 is no cookie. */
	do {
		count = this_cpu_inc_return(cookie_count);
	} while (unlikely(!count));

	return ((u64)smp_processor_id() << 32 | count) << UNWIND_COOKIE_SHIFT;
}

#if IS_ENABLED(CONFIG_UNWIND_KUNIT_TEST)
unwind_test_hook_t unwind_test_hook;
EXPORT_SYMBOL_IF_KUNIT(unwind_test_hook);

void unwind_cookie_preset(unsigned int cpu, u32 count)
{
	per_cpu(cookie_count, cpu) = count;
}
EXPORT_SYMBOL_IF_KUNIT(unwind_cookie_preset);
#endif

/* Only this CPU changes the state; what it interrupts here has the cmpxchg fail. */
static u64 change_state(struct unwind_task_info *info, u64 clear, u64 set)
{
	u64 state = READ_ONCE(info->state);

	do {
		unwind_test_point(info);
	} while (!try_cmpxchg64_local(&info->state, &state, (state & ~clear) | set));

	return state;
}

static bool has_cookie(u64 state)
{
	return state >> UNWIND_COOKIE_SHIFT;
}

static __always_inline bool same_regs(const struct unwind_user_regs *a,
				      const struct unwind_user_regs *b)
{
	return a->ip == b->ip && a->sp == b->sp && a->fp == b->fp;
}

/* Does a walk from @a find what one from @b does? */
static __always_inline bool same_place(const struct unwind_user_regs *a,
				       const struct unwind_user_regs *b)
{
	return same_regs(a, b) && a->at_entry == b->at_entry;
}

/* Of a uprobe @at_entry is set as long as its handlers run, and says nothing here. */
static bool registers_moved(const struct unwind_task_info *info)
{
	struct unwind_user_regs now __uninitialized;

	arch_unwind_user_place(&now, task_pt_regs(current));
	return !same_regs(&info->regs, &now);
}

/* Open a stack; see the head of this file. False: an NMI has changed @state. */
static __always_inline bool open_stack(struct unwind_task_info *info, u64 *state,
				       struct pt_regs *regs)
{
	u64 new = new_cookie() | (*state & (UNWIND_QUEUED | UNWIND_FAULT));

	if (!try_cmpxchg64_local(&info->state, state, new))
		return false;

	*state = new;
	unwind_test_point(info);
	arch_unwind_user_regs(&info->regs, regs);
	unwind_test_point(info);
	return true;
}

/*
 * Request a stack for the client with bit @mine. @flag is UNWIND_UNPROVEN in NMI. Sets
 * @before, the state before, and @cookie.
 */
static __always_inline int
__unwind_request(struct unwind_task_info *info, struct pt_regs *regs, u64 mine,
		 u64 flag, bool may_open, u64 *before, u64 *cookie)
{
	struct unwind_user_regs now __uninitialized;
	u64 state, new;
	bool again;

	arch_unwind_user_place(&now, regs);
	state = READ_ONCE(info->state);
	for (;;) {
		unwind_test_point(info);
		if (state & UNWIND_PENDING) {
			if (unlikely(!same_place(&info->regs, &now)))
				return -EAGAIN;
			new = state | mine;
			if (likely(new == state))
				break;
		} else {
			again = arch_unwind_entry_marked();
			if (again) {
				if (unlikely(!has_cookie(state)))
					return -ESTALE;
				again = same_place(&info->regs, &now);
			}
			if (unlikely(!may_open || (again && (state & UNWIND_MAX_WORKS) ==
						   UNWIND_MAX_WORKS)))
				return -EAGAIN;
			if (!again && unlikely(!open_stack(info, &state, regs)))
				continue;
			new = state | mine | UNWIND_QUEUED | flag;
		}
		if (likely(try_cmpxchg64_local(&info->state, &state, new)))
			break;
	}

	*before = state;
	*cookie = new >> UNWIND_COOKIE_SHIFT;
	return 0;
}

/**
 * unwind_deferred_request_irqsoff - request the current task's user stack
 * @work:	the client
 * @irqs_on:	were interrupts on where the client was called? In task context this tells
 *		that the task is inside of a kernel entry, see the head of this file
 * @cookie:	set to the name of the stack, never 0; the same for all requests of one
 *		kernel entry by whatever client, and another one in the next entry
 *
 * The callback runs on this CPU, before the task leaves it. What the client does with
 * interrupts still off is done before the callback runs.
 *
 * The cookie is unique in the system until 2^32 - 1 stacks have been requested on one
 * CPU.
 *
 * Context: Interrupts off, or NMI. Takes no locks, allocates nothing.
 * Return:
 * * 0 - the callback will run
 * * 1 - the same, for a request of @work that is pending already
 * * -EINVAL - the task has no user stack (kernel thread, a worker made by the
 *   kernel, no mm), or is exiting; @work is not registered; or the context is
 *   NMI, and there is no cmpxchg that is safe there or no interrupt for irq_work
 * * -EAGAIN - the stack cannot be deferred now: the task is being switched out; or the
 *   stack of other registers is pending, from before a signal handler was set up for
 *   instance; or interrupts were off in task context; or it was handed out on the way to
 *   user space too often
 * * -ESTALE - the task is in an execve() that cannot return: there is no user stack
 */
int unwind_deferred_request_irqsoff(struct unwind_work *work, bool irqs_on,
				    u64 *cookie)
{
	struct unwind_task_info *info = &current->unwind_info;
	bool nmi = in_nmi();
	u64 mine, before;
	int bit, err;

	if (!is_user_task(current) || (current->flags & PF_EXITING))
		return -EINVAL;
	if (nmi && !(IS_ENABLED(CONFIG_ARCH_HAVE_NMI_SAFE_CMPXCHG) &&
		     arch_irq_work_has_interrupt()))
		return -EINVAL;
	/* The window of the switch. */
	if (unlikely(!task_curr(current)))
		return -EAGAIN;

	/* Pairs with the smp_store_release() in unwind_deferred_init(). */
	bit = smp_load_acquire(&work->bit);
	if (unlikely(bit < 0))
		return -EINVAL;

	mine = BIT_ULL(bit);
	err = __unwind_request(info, task_pt_regs(current), mine,
			       nmi ? UNWIND_UNPROVEN : 0,
			       irqs_on || interrupt_context_level(), &before, cookie);
	if (unlikely(err))
		return err;

	/* It fails for a task that is exiting, and that was looked at. */
	if (!(before & UNWIND_QUEUED))
		task_work_add(current, &info->work,
			      nmi ? TWA_NMI_CURRENT : TWA_RESUME | TWAF_NO_ALLOC);

	return !!(before & mine);
}
EXPORT_SYMBOL_IF_KUNIT(unwind_deferred_request_irqsoff);

/*
 * Walk the stack into the buffer of this CPU that nobody else uses. False: user space
 * has run since the request, or that cannot be told; there is no stack.
 */
static bool walk(struct unwind_task_info *info, u64 state,
		 struct unwind_stacktrace *trace, bool irqs_off)
{
	struct unwind_buffers *space = rcu_dereference_sched(buffers);
	bool valid = !(state & UNWIND_UNPROVEN) || arch_unwind_entry_marked() ||
		     !registers_moved(info);
	unsigned int max = 0;

	trace->entries = NULL;
	/* Without a client that is left there is no space. */
	if (likely(space && valid)) {
		max = space->max;
		trace->entries = space->cpu[smp_processor_id()] + (irqs_off ? max : 0);
	}
	unwind_user_regs(trace, &info->regs, max);
	return valid;
}

static void call_clients(struct unwind_stacktrace *trace, u64 state, u64 bits)
{
	const unsigned int nr = trace->nr;

	for (; bits; bits &= bits - 1) {
		struct unwind_work *work;

		work = rcu_dereference_sched(clients[__ffs64(bits)]);
		if (unlikely(!work))
			continue;
		trace->nr = min(nr, work->max);
		work->func(work, trace, state >> UNWIND_COOKIE_SHIFT);
	}
}

/*
 * Take what is pending, and give @trace to these clients and to those who are owed the
 * stack behind a page fault. @works is added to the state. With interrupts off.
 */
static void hand_out(struct unwind_task_info *info, struct unwind_stacktrace *trace,
		     bool valid, u64 works)
{
	const u64 taken = UNWIND_PENDING | UNWIND_UNPROVEN;
	u64 state = READ_ONCE(info->state), owed = 0;

	trace->again = unlikely(state & UNWIND_FAULT);
	if (likely(!trace->again))
		swap(owed, info->owed);

	if (likely(valid)) {
		/* Ahead of the take: a request that finds nothing pending looks for it. */
		arch_unwind_entry_mark();
		do {
			unwind_test_point(info);
		} while (!try_cmpxchg64_local(&info->state, &state,
					      (state & ~taken) + works));
		unwind_test_point(info);
		call_clients(trace, state, (state & UNWIND_PENDING) | owed);
	} else {
		/* Until the take an NMI is refused, as its registers are others. */
		call_clients(trace, state, (state & UNWIND_PENDING) | owed);
		change_state(info, taken, 0);
	}

	if (unlikely(trace->again))
		info->owed |= state & UNWIND_PENDING;
}

/* See unwind_deferred_flush(). */
void __unwind_deferred_flush(void)
{
	struct unwind_task_info *info = &current->unwind_info;
	struct unwind_stacktrace trace __uninitialized;
	u64 state;

	/* An NMI never hands out: it may have interrupted a request. */
	if (unlikely(in_nmi()))
		return;

	guard(irqsave)();
	state = READ_ONCE(info->state);
	if (state & UNWIND_PENDING)
		hand_out(info, &trace, walk(info, state, &trace, true), 0);
}

/*
 * Hand out on the way to user space. Returns the address of a word that is to be
 * brought first, unless this is the @last walk.
 */
static unsigned long walk_and_hand_out(struct unwind_task_info *info, bool last)
{
	struct unwind_stacktrace trace __uninitialized;
	u64 state, now;
	bool valid;

	guard(preempt)();
	for (;;) {
		state = READ_ONCE(info->state);
		if (!(state & UNWIND_PENDING) && !info->owed)
			return 0;
		valid = walk(info, state, &trace, false);

		guard(irq)();
		now = READ_ONCE(info->state);
		/* Another stack: this one was gone, and has been handed out as such. */
		if (unlikely((state ^ now) >> UNWIND_COOKIE_SHIFT)) {
			info->owed = 0;
			continue;
		}
		if (unlikely(!(now & UNWIND_PENDING) && !info->owed))
			return 0;
		if (unlikely(trace.absent) && !last) {
			/* From here on a hand-out is one of a short stack. */
			change_state(info, 0, UNWIND_FAULT);
			return trace.absent;
		}
		hand_out(info, &trace, valid, UNWIND_WORKS_ONE);
		return 0;
	}
}

VISIBLE_IF_KUNIT void unwind_deferred_task_work(struct callback_head *head)
{
	struct unwind_task_info *info =
		container_of(head, struct unwind_task_info, work);
	unsigned int pages = UNWIND_USER_MAX_PAGES;
	unsigned long addr;

	/* A request behind this queues the work anew. */
	change_state(info, UNWIND_QUEUED, 0);

	while ((addr = walk_and_hand_out(info, !pages))) {
		/* The task may sleep here and be switched out. */
		pages = unwind_user_bring(addr) ? pages - 1 : 0;
		change_state(info, UNWIND_FAULT, 0);
	}
}
EXPORT_SYMBOL_IF_KUNIT(unwind_deferred_task_work);

/**
 * unwind_deferred_exec - the current task is about to lose its image
 *
 * Hands out what is pending, from the old image and under the old thread id. From here
 * until the new image runs there is no user stack: requests get -ESTALE.
 *
 * Context: Task context, at the point of no return of an execve(), ahead of
 * de_thread().
 */
void unwind_deferred_exec(void)
{
	struct unwind_task_info *info = &current->unwind_info;
	const u64 cookie = GENMASK_ULL(63, UNWIND_COOKIE_SHIFT);
	u64 state;

	guard(irqsave)();
	do {
		/* Whether there is a client or not: one may come during the execve(). */
		__unwind_deferred_flush();
		state = READ_ONCE(info->state);
		if (state & UNWIND_PENDING ||
		    !try_cmpxchg64_local(&info->state, &state, state & ~cookie))
			continue;
		/* Ahead of this an NMI opens a stack, if the mark is not set yet. */
		arch_unwind_entry_mark();
	} while (has_cookie(READ_ONCE(info->state)));
}

/**
 * unwind_deferred_confirm - the user registers are about to be changed
 *
 * What an NMI has requested a moment ago is compared with the registers when it is handed
 * out. Behind a change it would be taken for one of another kernel entry. Called between
 * code of uprobes that runs long and such a change.
 *
 * Context: Task context.
 */
void unwind_deferred_confirm(void)
{
	struct unwind_task_info *info = &current->unwind_info;

	if (unlikely(READ_ONCE(info->state) & UNWIND_UNPROVEN) && !registers_moved(info))
		change_state(info, UNWIND_UNPROVEN, 0);
}

/**
 * unwind_deferred_task_init - a new task has requested nothing
 * @task:	the task that is being made, a copy of its parent so far
 */
void unwind_deferred_task_init(struct task_struct *task)
{
	memset(&task->unwind_info, 0, sizeof(task->unwind_info));
	init_task_work(&task->unwind_info.work, unwind_deferred_task_work);
	arch_unwind_entry_unmark(task);
}

static void buffers_free(struct unwind_buffers *space)
{
	int cpu;

	if (!space)
		return;
	for_each_possible_cpu(cpu)
		kvfree(space->cpu[cpu]);
	kvfree(space);
}

/* Have space for @max entries at least. */
static int buffers_grow(unsigned int max)
{
	struct unwind_buffers *old, *new;
	int cpu;

	old = rcu_dereference_protected(buffers, lockdep_is_held(&clients_mutex));
	if (old && old->max >= max)
		return 0;

	new = kvzalloc(struct_size(new, cpu, nr_cpu_ids), GFP_KERNEL);
	if (!new)
		return -ENOMEM;
	new->max = max;
	for_each_possible_cpu(cpu) {
		new->cpu[cpu] = kvmalloc_node(array3_size(2, max, sizeof(**new->cpu)),
					      GFP_KERNEL, cpu_to_node(cpu));
		if (!new->cpu[cpu]) {
			buffers_free(new);
			return -ENOMEM;
		}
	}

	/* Pairs with the rcu_dereference_sched() in walk(). */
	rcu_assign_pointer(buffers, new);
	if (old) {
		synchronize_rcu();
		buffers_free(old);
	}
	return 0;
}

/**
 * unwind_deferred_init - become a client of deferred unwinding
 * @work:	the client; has to stay until unwind_deferred_cancel()
 * @func:	called with each stack that was requested
 * @max:	the most entries wanted of a stack, 1 to UNWIND_USER_MAX_ENTRIES
 *
 * Context: Task context, may sleep.
 * Return: 0, -EINVAL for a @max out of range, -EBUSY when there are UNWIND_CLIENTS
 * clients already, -ENOMEM. After an error unwind_deferred_cancel() does
 * nothing, and requests get -EINVAL.
 */
int unwind_deferred_init(struct unwind_work *work, unwind_callback_t func,
			 unsigned int max)
{
	unsigned int bit;
	int err;

	work->func = func;
	work->max = max;
	/* A request may come before. */
	WRITE_ONCE(work->bit, -1);
	if (!max || max > UNWIND_USER_MAX_ENTRIES)
		return -EINVAL;

	guard(mutex)(&clients_mutex);

	bit = find_first_zero_bit(&clients_used, UNWIND_CLIENTS);
	if (bit >= UNWIND_CLIENTS)
		return -EBUSY;
	err = buffers_grow(max);
	if (err)
		return err;
	__set_bit(bit, &clients_used);

	/* Before the first request: the hook of the switch finds what is pending. */
	static_branch_inc(&unwind_deferred_key);
	rcu_assign_pointer(clients[bit], work);
	/* Pairs with the smp_load_acquire() in unwind_deferred_request_irqsoff(). */
	smp_store_release(&work->bit, bit);
	return 0;
}
EXPORT_SYMBOL_IF_KUNIT(unwind_deferred_init);

static void forget_client(void *bit)
{
	change_state(&current->unwind_info, BIT_ULL((long)bit), 0);
	current->unwind_info.owed &= ~BIT_ULL((long)bit);
}

/**
 * unwind_deferred_cancel - stop being a client
 * @work:	the client; may be freed when this returns
 *
 * No callback runs when this returns, and none will. Stacks that are pending are
 * not handed out. A task that sleeps in a page fault of its walk remembers the client's
 * bit, and the next owner of the bit may get a stack with a cookie that it does not know.
 *
 * Context: Task context, may sleep. Waits for a grace period and interrupts each CPU.
 */
void unwind_deferred_cancel(struct unwind_work *work)
{
	struct unwind_buffers *space = NULL;
	long bit;

	guard(mutex)(&clients_mutex);

	bit = work->bit;
	if (bit < 0)
		return;
	WRITE_ONCE(work->bit, -1);
	RCU_INIT_POINTER(clients[bit], NULL);
	if (clients_used == BIT(bit))
		space = rcu_replace_pointer(buffers, NULL,
					    lockdep_is_held(&clients_mutex));

	/*
	 * Requests and callbacks have interrupts off or are in NMI, walks have preemption
	 * off: when this returns there are none of this client any more, and none that
	 * uses @space.
	 */
	synchronize_rcu();
	buffers_free(space);

	/* Only a task that runs has a bit set, and only its own CPU may clear it. */
	on_each_cpu(forget_client, (void *)bit, true);
	__clear_bit(bit, &clients_used);
	static_branch_dec(&unwind_deferred_key);
}
EXPORT_SYMBOL_IF_KUNIT(unwind_deferred_cancel);

// SPDX-License-Identifier: GPL-2.0
/*
 * Deferred unwinding of user stacks.
 *
 * A client that wants the user stack of the current task requests it, in any context,
 * NMI included. The request sets the client's bit in the task and returns a cookie, the
 * name of the stack. The stack is walked later, and the client's callback gets it together
 * with the cookie. The user stack does not change while the task is in the kernel, so one
 * walk answers all requests of one kernel entry, and they have the same cookie.
 *
 * A user stack does not leave its CPU. Pending requests are handed out (the stack is
 * walked and the callbacks run) at the first of these places that the task comes to:
 *
 *	return to user space	a task_work; the only place that brings absent pages
 *	exit			before the task's mm and its perf events go
 *	execve()		at the point of no return, out of the old image
 *	context switch		prepare_task_switch(), with rq->lock held
 *	unwind_deferred_flush()	where a client needs the stack now: perf does before it
 *				disables an event that takes stacks, or moves a task to
 *				another cgroup
 *
 * A task that is off its CPU has nothing pending.
 *
 * The task_work runs in a system call, too, where the kernel runs a task's works: in
 * get_signal() and in io_uring_enter(), for instance. So a task that is killed hands out
 * when it takes the signal. It brings no page. What is requested after that is handed out
 * at the exit. An exiting task is refused, and its clients walk the stack themselves.
 *
 * The state
 *
 * What is pending is in one word, unwind_task_info::state:
 *
 *	bits  0-7	the clients whose request is pending
 *	bit  8	QUEUED	 the task_work is queued. Set with the first client's bit,
 *			 cleared by the work function before it does anything else.
 *			 A hand-out elsewhere leaves the work on the list.
 *	bit  9	UNPROVEN the first pending request came from an NMI: user space may
 *			 run before the stack is handed out
 *	bit 10	FAULT	 the task is bringing a page for its walk, and may be off its
 *			 CPU meanwhile. Only then unwind_task_info::owed is in use.
 *	bits 12-15	how often the work function has handed out this stack
 *	bits 16-63	the cookie: the number of a CPU and a count of that CPU
 *
 * The architecture adds a mark: a bit that every return to user space clears.
 * A hand-out of a valid stack sets it. As long as it is set, the cookie and the registers in
 * unwind_task_info::regs are of this kernel entry. A request that finds nothing pending
 * asks again for that stack if the mark is set and the registers are the same; it gets
 * the same cookie. Otherwise it opens a new stack. The mark together with a cookie of 0
 * says that the task is in an execve() that cannot return: there is no stack.
 *
 * A request between the work function and user space queues the work again. An event
 * that makes a request there each time would keep the task in the kernel for ever. So
 * the work function counts how often it has handed out a stack. At the limit of 15
 * (UNWIND_MAX_WORKS) further requests for that stack are refused.
 *
 * Who interrupts whom
 *
 * Only the task itself and the interrupts and NMIs on its CPU write the state. So two
 * writers never run in parallel: one interrupts the other. (This is why
 * unwind_deferred_cancel() interrupts each CPU to clear a bit.) Requests outside of NMI
 * run with interrupts off, and so do hand-outs, but for the walk on the way to user space.
 * So only two things can come in between: an NMI, and an event that they hit themselves,
 * such as a page fault of the walk. Both only make requests. Two rules make that safe:
 *
 *  - A request that opens a stack takes three steps. It puts a new cookie into the
 *    state, it stores the registers, it sets its bit. An NMI in between makes a
 *    complete request of its own. Then the third step fails, and the outer request
 *    joins that of the NMI. The NMI never gets a cookie with the wrong registers:
 *    before the second step it finds those of an older stack, and opens a new one;
 *    after the second step the cookie and the registers belong together.
 *
 *  - A hand-out looks, walks, and only then takes the pending bits. A request before
 *    the take is served by the callbacks that follow. A request after the take is
 *    pending again, and is served at the next place. With the same registers it has the
 *    same cookie.
 *
 * On the way to user space the walk runs with preemption off, but with interrupts on.
 * An interrupt may hand out the stack meanwhile; it walks into a buffer of its own. The
 * work function then finds nothing pending, and drops the result of its walk.
 *
 * The page that is not present
 *
 * A walk brings no page. It ends at a page that is not present. On the way to user space
 * the task then sets FAULT and brings the page. Preemption is on there: the task may sleep
 * and migrate. Then it walks again from the beginning, and may come to the next such page;
 * it brings UNWIND_USER_MAX_PAGES at most. A hand-out with FAULT set, as at a switch, gives
 * the clients the short stack and tells them that more will come. It notes these clients in
 * unwind_task_info::owed. When there is no page left to bring, or none can be brought, the
 * work function gives them the stack once more, under the same cookie. Until then a request
 * for another stack is refused.
 *
 * A task has one stack at a time. If one is pending, or waits for its page, and the user
 * registers have changed since, because a signal frame was set up for instance, a request
 * is refused.
 *
 * Did user space run?
 *
 * An interrupt, or task context with interrupts on, is always inside of the kernel
 * entry: the user registers have been saved, and the work will run before user space
 * does. This is not sure in two other contexts:
 *
 *  - An NMI may come before the entry code has saved the registers, or after the last
 *    look for work. task_work_add() raises an interrupt for the work, but user space may
 *    run before it comes. So the request is UNPROVEN, and is checked at the hand-out. If
 *    the mark is set, the request was made after another hand-out of this entry, and the
 *    stack is valid. It is valid as well if the registers are still the same. Otherwise
 *    it is gone, and the clients get an empty one.
 *
 *  - Task context with interrupts off may be after the last look for work, too. It
 *    cannot raise an interrupt: with an event on each way to user space the task would
 *    never get there. So its request may join a pending one, and is refused otherwise.
 *
 * The window of the switch
 *
 * From rq->curr = next until current changes, task_curr(current) is false. A stack that
 * is requested there might not be handed out before the task has left, so the request is
 * refused. The hook in prepare_task_switch() runs inside of this window, ahead of perf's
 * own, so nothing is pending after it.
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
#define UNWIND_COOKIE		GENMASK_ULL(63, UNWIND_COOKIE_SHIFT)

/* Switches on the hook of the context switch while there is a client. */
DEFINE_STATIC_KEY_FALSE(unwind_deferred_key);
EXPORT_SYMBOL_IF_KUNIT(unwind_deferred_key);

/* Guards registration: clients_used and changes of the pointers below. */
static DEFINE_MUTEX(clients_mutex);
static unsigned long clients_used;

/* Hand-outs read it with interrupts off, so synchronize_rcu() waits for them. */
static struct unwind_work __rcu *clients[UNWIND_CLIENTS];

/**
 * struct unwind_buffers - space for the walks
 * @max:	the most entries that any client wants
 * @cpu:	for each CPU twice @max entries: a walk on the way to user space has the
 *		first half, a hand-out with interrupts off the second
 *
 * Replaced as a whole. Walks read it with preemption off, so synchronize_rcu() waits for
 * them.
 */
struct unwind_buffers {
	unsigned int	max;
	unsigned long	*cpu[];
};

static struct unwind_buffers __rcu *buffers;

/* The lower 32 bits of the cookies of a CPU. The upper 16 are the CPU's number. */
static DEFINE_PER_CPU(u32, cookie_count);

static_assert(order_base_2(CONFIG_NR_CPUS) + 32 <= 64 - UNWIND_COOKIE_SHIFT);

static u64 new_cookie(void)
{
	u32 count;

	/* One instruction, as an NMI may take a cookie, too. 0 says that there is none. */
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

unsigned int unwind_buffers_max(void)
{
	struct unwind_buffers *space;

	guard(rcu)();
	space = rcu_dereference(buffers);
	return space ? space->max : 0;
}
EXPORT_SYMBOL_IF_KUNIT(unwind_buffers_max);
#endif

/*
 * Only this CPU writes the state. If something interrupts and writes it, the cmpxchg
 * fails. Returns the state before the change.
 */
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

/* Do walks from @a and from @b find the same stack? */
static __always_inline bool same_place(const struct unwind_user_regs *a,
				       const struct unwind_user_regs *b)
{
	return same_regs(a, b) && a->at_entry == b->at_entry;
}

/* Not @at_entry: it is set while the handlers of a uprobe run, and clear after that. */
static bool registers_moved(const struct unwind_task_info *info)
{
	struct unwind_user_regs now __uninitialized;

	arch_unwind_user_place(&now, task_pt_regs(current));
	return !same_regs(&info->regs, &now);
}

/*
 * The first two steps of a request that opens a stack; see the head of this file. False:
 * an NMI has changed the state, and @state is the new one.
 */
static __always_inline bool open_stack(struct unwind_task_info *info, u64 *state,
				       const struct unwind_user_regs *now,
				       struct pt_regs *regs)
{
	u64 new = new_cookie() | (*state & UNWIND_QUEUED);

	if (!try_cmpxchg64_local(&info->state, state, new))
		return false;

	*state = new;
	unwind_test_point(info);
	info->regs.ip = now->ip;
	info->regs.sp = now->sp;
	info->regs.fp = now->fp;
	info->regs.at_entry = now->at_entry;
	arch_unwind_user_code(&info->regs, regs);
	unwind_test_point(info);
	return true;
}

/*
 * Request the stack for the client with bit @mine. @flag is UNWIND_UNPROVEN in an NMI, and
 * 0 otherwise. Without @may_open the request can only join a pending one. Sets @cookie,
 * and @before to the state before the request.
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
			if (unlikely(!may_open))
				return -EAGAIN;
			/* No other stack is opened while one is owed. */
			if (unlikely(again ? (state & UNWIND_MAX_WORKS) == UNWIND_MAX_WORKS :
					     state & UNWIND_FAULT))
				return -EAGAIN;
			if (!again && unlikely(!open_stack(info, &state, &now, regs)))
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
 * @cookie:	set to the stack's cookie, never 0; the same for all requests of one
 *		kernel entry by whatever client, and another one in the next entry
 *
 * The callback runs on this CPU, before the task leaves it. It cannot run before the
 * caller enables interrupts, so a client can note something that belongs to the request.
 *
 * The cookie is unique in the system until 2^32 - 1 stacks have been requested on one
 * CPU.
 *
 * Context: Interrupts off, or NMI. Takes no locks, allocates nothing.
 * Return:
 * * 0 - the callback will run
 * * 1 - the same, for a request of @work that is pending already
 * * -EINVAL - the task has no user stack (kernel thread, worker made by the kernel, no
 *   mm) or is exiting; or @work is not registered; or this is an NMI, and the
 *   architecture has no cmpxchg that is safe there or no interrupt for irq_work
 * * -EAGAIN - the stack cannot be deferred now: the task is being switched out; or a
 *   stack is pending, or waits for its page, and the user registers have changed since;
 *   or this is task context with interrupts off and nothing is pending; or the stack has
 *   been handed out on the way to user space too often
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

	/*
	 * If a request was pending, the work has been queued for it. It may even have begun,
	 * and have cleared UNWIND_QUEUED, but it has not taken what is pending. To add it can
	 * fail only for an exiting task, which was refused above.
	 */
	if (!(before & (UNWIND_QUEUED | UNWIND_PENDING)))
		task_work_add(current, &info->work,
			      nmi ? TWA_NMI_CURRENT : TWA_RESUME | TWAF_NO_ALLOC);

	return !!(before & mine);
}
EXPORT_SYMBOL_IF_KUNIT(unwind_deferred_request_irqsoff);

/**
 * unwind_deferred_in_exec - is the current task in an execve() that cannot return?
 *
 * Until the new image runs there is no user stack: the user registers are those of the old
 * image, whose memory may be gone. A client whose request is refused, or that makes none,
 * asks before it walks the stack itself.
 *
 * Context: Any, NMI included.
 * Return: whether there is no user stack for this reason.
 */
bool unwind_deferred_in_exec(void)
{
	return arch_unwind_entry_marked() && !has_cookie(READ_ONCE(current->unwind_info.state));
}

/**
 * unwind_deferred_requested - is a request of a client pending?
 * @work:	the client
 * @cookie:	set to the stack's cookie, if there is one
 *
 * If so, unwind_deferred_request_irqsoff() would return 1, with the same cookie. This costs
 * less. If interrupts are on, the callback may run before this returns.
 *
 * Context: Any, NMI included.
 * Return: whether the stack of the current task is pending for @work.
 */
bool unwind_deferred_requested(const struct unwind_work *work, u64 *cookie)
{
	struct unwind_task_info *info = &current->unwind_info;
	u64 state = READ_ONCE(info->state);
	struct unwind_user_regs now __uninitialized;
	int bit = READ_ONCE(work->bit);

	if (bit < 0 || !(state & BIT_ULL(bit)))
		return false;
	arch_unwind_user_place(&now, task_pt_regs(current));
	*cookie = state >> UNWIND_COOKIE_SHIFT;
	return same_place(&info->regs, &now);
}
EXPORT_SYMBOL_IF_KUNIT(unwind_deferred_requested);

/*
 * Walk the stack into a buffer of this CPU. With @irqs_off it is another one than without,
 * as an interrupt may hand out during the walk of the work function. False: user space
 * has run since the request, or may have. Then the trace is empty.
 */
static __always_inline bool walk(struct unwind_task_info *info, u64 state,
				 struct unwind_stacktrace *trace, bool irqs_off)
{
	struct unwind_buffers *space = rcu_dereference_sched(buffers);
	bool valid = !(state & UNWIND_UNPROVEN) || arch_unwind_entry_marked() ||
		     !registers_moved(info);
	unsigned int max = 0;

	trace->entries = NULL;
	/* There are no buffers when the last client has gone. */
	if (likely(space && valid)) {
		max = space->max;
		trace->entries = space->cpu[smp_processor_id()] + (irqs_off ? max : 0);
	}
	unwind_user_regs(trace, &info->regs, max);
	return valid;
}

static __always_inline void call_clients(struct unwind_stacktrace *trace, u64 state,
					 u64 bits)
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
 * Take the pending bits and those of @clear, and give @trace to the clients. If UNWIND_FAULT
 * stays set @trace may be short, and they are owed the whole stack. Otherwise the clients
 * that are owed it get @trace, too. @works is added to the count of hand-outs by the work
 * function. Interrupts are off. A @trace that is not @valid is empty. Then @info->regs are
 * of another kernel entry, so the mark is not set, and nobody is owed anything.
 */
static void hand_out(struct unwind_task_info *info, struct unwind_stacktrace *trace,
		     bool valid, u64 clear, u64 works)
{
	const u64 taken = UNWIND_PENDING | UNWIND_UNPROVEN;
	u64 state = READ_ONCE(info->state), owed = 0;

	trace->again = unlikely(state & UNWIND_FAULT & ~clear);
	if (unlikely(info->owed && !trace->again))
		swap(owed, info->owed);

	if (likely(valid)) {
		/* Before the take: an NMI after it finds nothing pending and looks for the mark. */
		arch_unwind_entry_mark();
		do {
			unwind_test_point(info);
		} while (!try_cmpxchg64_local(&info->state, &state,
					      (state & ~(taken | clear)) + works));
		unwind_test_point(info);
		call_clients(trace, state, (state & UNWIND_PENDING) | owed);
	} else {
		/*
		 * The take comes last. Until then an NMI is refused, as its registers
		 * differ. So the callbacks cannot serve its request with this stack.
		 */
		call_clients(trace, state, state & UNWIND_PENDING);
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
		hand_out(info, &trace, walk(info, state, &trace, true), 0, 0);
}
EXPORT_SYMBOL_IF_KUNIT(__unwind_deferred_flush);

/*
 * Hand out on the way to user space. If a page has to be brought first, and this is not
 * the @last walk, hand out nothing and return the address of a word in that page.
 * Otherwise return 0.
 */
static unsigned long walk_and_hand_out(struct unwind_task_info *info, bool last)
{
	struct unwind_stacktrace trace __uninitialized;
	u64 state, now;
	bool valid;

	guard(preempt)();
	for (;;) {
		state = READ_ONCE(info->state);
		if (!(state & (UNWIND_PENDING | UNWIND_FAULT)))
			return 0;
		valid = walk(info, state, &trace, false);
		unwind_test_point(info);

		guard(irq)();
		now = READ_ONCE(info->state);
		/* This stack has been handed out meanwhile, and another one was opened. */
		if (unlikely((state ^ now) >> UNWIND_COOKIE_SHIFT))
			continue;
		if (unlikely(!(now & UNWIND_PENDING) && !info->owed)) {
			change_state(info, UNWIND_FAULT, 0);
			return 0;
		}
		if (unlikely(trace.absent) && !last) {
			change_state(info, 0, UNWIND_FAULT);
			return trace.absent;
		}
		hand_out(info, &trace, valid, UNWIND_FAULT, UNWIND_WORKS_ONE);
		return 0;
	}
}

VISIBLE_IF_KUNIT void unwind_deferred_task_work(struct callback_head *head)
{
	struct unwind_task_info *info =
		container_of(head, struct unwind_task_info, work);
	unsigned int pages = UNWIND_USER_MAX_PAGES;
	unsigned long addr;

	/* From here on a request queues the work again. */
	change_state(info, UNWIND_QUEUED, 0);

	/* The task may sleep where it brings a page, and be switched out. */
	while ((addr = walk_and_hand_out(info, !pages)))
		pages = unwind_user_bring(addr) ? pages - 1 : 0;
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
	struct unwind_stacktrace trace __uninitialized;
	struct pt_regs *regs = task_pt_regs(current);
	struct unwind_user_regs now __uninitialized;
	u64 state;

	guard(irqsave)();
	__unwind_deferred_flush();

	/*
	 * NMIs may come at each of these steps. What they request has to be of this entry,
	 * and is handed out with the last step.
	 */
	arch_unwind_user_place(&now, regs);
	state = READ_ONCE(info->state);
	while (!(state & UNWIND_PENDING) && !open_stack(info, &state, &now, regs))
		;
	unwind_test_point(info);
	walk(info, state, &trace, true);
	/* Sets the mark. Also without a client: one may register during the execve(). */
	hand_out(info, &trace, true, UNWIND_COOKIE, 0);
}
EXPORT_SYMBOL_IF_KUNIT(unwind_deferred_exec);

/**
 * unwind_deferred_confirm - the user registers are about to be changed
 *
 * A stack that an NMI has requested is compared with the user registers when it is handed
 * out. After a change of the registers it would seem to be of another kernel entry, and
 * would be missing. Handlers of uprobes run long enough to be sampled often, so uprobes
 * call this between their handlers and such a change.
 *
 * Context: Task context.
 */
void unwind_deferred_confirm(void)
{
	struct unwind_task_info *info = &current->unwind_info;

	if (unlikely(READ_ONCE(info->state) & UNWIND_UNPROVEN) && !registers_moved(info))
		change_state(info, UNWIND_UNPROVEN, 0);
}
EXPORT_SYMBOL_IF_KUNIT(unwind_deferred_confirm);

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
EXPORT_SYMBOL_IF_KUNIT(unwind_deferred_task_init);

static void buffers_free(struct unwind_buffers *space)
{
	int cpu;

	if (!space)
		return;
	for_each_possible_cpu(cpu)
		kvfree(space->cpu[cpu]);
	kvfree(space);
}

/* Make room for at least @max entries. */
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
	/* A request may come before it is registered, and gets -EINVAL. */
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

	/* Before requests are accepted: the hook of the switch has to see them. */
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
 * not handed out.
 *
 * A task that is off its CPU in a page fault of its walk keeps the client's bit. If another
 * client has got that bit when the walk ends, its callback runs with a cookie that it does
 * not know, and has to ignore it.
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
	 * Requests and callbacks run with interrupts off or in an NMI, walks with preemption
	 * off. So when this returns, no request and no callback of this client is under
	 * way, and no walk uses @space.
	 */
	synchronize_rcu();
	buffers_free(space);

	/* Only a task on a CPU has pending bits, and only its CPU may clear them. */
	on_each_cpu(forget_client, (void *)bit, true);
	__clear_bit(bit, &clients_used);
	static_branch_dec(&unwind_deferred_key);
}
EXPORT_SYMBOL_IF_KUNIT(unwind_deferred_cancel);

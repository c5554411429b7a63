// SPDX-License-Identifier: GPL-2.0
/*
 * Deferred unwinding of user stacks.
 *
 * A client that wants the user stack of the current task, in whatever context
 * it runs, requests it. It gets a cookie at once, and the stack later, in a
 * callback, when the task is about to return to user space and may fault. The
 * user stack does not change while the task is in the kernel, so one walk serves
 * all clients and all their requests of one kernel entry.
 *
 * Who asks after the walk, still in the same entry, gets what it found: a walk
 * leaves that, under its cookie, in a buffer of the CPU, until another walk needs
 * the buffer. Nothing has to be given back for it when the task returns to user
 * space. If the buffer has been needed, the stack is walked again, from the same
 * registers.
 *
 * Generations
 *
 * What belongs together is called a generation here: a set of user registers,
 * a cookie that names it, the clients that asked for it. There is at most one a
 * task. It opens with a request that finds none. It lives as long as a callback
 * waits, and after the callbacks until the task returns to user space.
 *
 * Nothing on the way through a system call is paid for that. The walk, or an
 * execve(), leaves a mark of the architecture, in a word that every return to user
 * space clears, or looks at, anyway. A request that finds nobody waiting
 * and the mark gone opens a new generation. The mark also lasts as long as the kernel
 * entry where task_work is run early and the flag that leads through the exit loop is
 * gone: KVM_RUN, io_uring.
 *
 * State
 *
 * unwind_task_info::state is one word, changed by cmpxchg:
 *
 *	bits  0-15	clients that asked in this generation
 *	bits 16-31	those of them whose callback has not run yet
 *	bit  32		a generation has been opened
 *	bit  33		an NMI queued the work, see below
 *	bits 34-63	the registration count when that was last looked at
 *
 * While any of the bits 16-31 is set, unwind_task_info::work is queued with
 * task_work, or is being queued by the context that set the first of them.
 *
 * Nesting
 *
 * A task's unwind_task_info is written by that task alone. Others read its
 * registers only where it cannot run (remote.c), and its state and its cookie, each
 * a word, to decide whether to have a closer look. So what runs at the same time is
 * always nested: NMI in interrupt in task context, each finished before the one below
 * goes on. Three rules make that safe without locks:
 *
 *  - The cookie is claimed first, by a cmpxchg from the value read before the
 *    state was looked at. Cookies never repeat, so a nested request that opened
 *    a generation in between makes it fail, and the outer one starts over and
 *    joins. A nested request that comes after the cookie is claimed and before
 *    the state is set finds no generation, claims a cookie of its own, and makes
 *    the cmpxchg of the state fail, with the same end.
 *
 *  - The registers are stored before the state is set. Both the outer and the
 *    nested request store those at the top of the task's stack, so it does not
 *    matter who is last.
 *
 *  - A generation that is replaced while it lives, because the registers have
 *    changed, is closed before its cookie and its registers go, and a request
 *    that joins one has seen cookie, registers and state of the same: else the
 *    state has changed in between, and it starts over.
 *
 * The mark is set by the walk, and by an execve() ahead of its own; it is cleared by
 * the return to user space. No request can interrupt these half-way and go on, so it
 * does not change under one.
 *
 * The NMI after the exit work
 *
 * An NMI can come when the exit loop has looked at the task's flags for the last
 * time, and before user space runs; and an NMI that interrupts user space leads
 * through no exit loop at all. task_work_add() raises an interrupt for these,
 * which is taken when user space is reached, and the work runs in that entry.
 * The registers tell whether user space got anywhere before: if they are not
 * those of the request, the stack may have changed, and it is handed out as not
 * available. That is asked only where an NMI queued the work, for the kernel
 * moves the registers within an entry, too.
 *
 * Some code in task context runs after the loop, too, with interrupts off, and can
 * be traced: what restores the FPU's registers. No interrupt is raised for that.
 * Requests other than an NMI's leave a second mark, which goes the same way as
 * the first. When the walk finds it gone, user space has run, and there is no
 * stack. A request in between, of the next entry, is refused (-EAGAIN): what waits
 * is not its stack.
 *
 * The NMI ahead of the registers
 *
 * An NMI can also come when the CPU has entered the kernel and the entry code has not
 * saved the user registers: what is at the top of the stack are those of the entry
 * before, or some of these. (A stack that is walked at once begins there, too.) Its
 * request opens a generation with them. They are compared when the walk comes, as
 * above, and if they are not what has been saved since there is no stack. Until then
 * the other requests of this entry are refused (-EAGAIN): what waits is not theirs.
 *
 * Within an entry
 *
 * Signal delivery, rt_sigreturn, the restart of a system call, uprobes and a
 * tracer change the user registers of a running entry. What was asked for is
 * handed out before, by unwind_deferred_flush(), and again after, for what was
 * asked for meanwhile. In between, a stack that was asked for before the change
 * is walked from the registers as they were; the memory above the stack pointer
 * stays what it was. Signal delivery and uprobes note them as they were, for an NMI
 * that found them so: there is no return to user space in between. One may find them
 * half changed, and is given no stack, as above. A request after the change opens a
 * generation of its own, or is refused while somebody waits for the one before
 * (-EAGAIN).
 *
 * Clients
 *
 * A client is a bit. Freeing a bit does not visit the tasks that have it set.
 * Registrations are counted instead; a bit in a state word that was set before
 * its present owner registered is stale, and means nothing.
 */
#define pr_fmt(fmt) "unwind: " fmt

#include <linux/cleanup.h>
#include <linux/context_tracking_state.h>
#include <linux/init.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/task_stack.h>
#include <linux/slab.h>
#include <linux/srcu.h>
#include <linux/task_work.h>
#include <linux/unwind_deferred.h>
#include <linux/unwind_user.h>

#include <asm/tlb.h>
#include <asm/unwind_user.h>

#include "deferred.h"

#define STATE_OPEN	BIT_ULL(32)
#define STATE_COUNT	34

static_assert(2 * UNWIND_CLIENTS <= 32);

/* Guards bits_used and registrations. */
static DEFINE_MUTEX(clients_mutex);
static unsigned long bits_used;

/*
 * The number of registrations so far, in COUNT_BITS bits, and its value when the
 * owner of a bit registered.
 */
#define COUNT_BITS	(64 - STATE_COUNT)
#define COUNT_MASK	((u32)GENMASK(COUNT_BITS - 1, 0))
static u32 registrations;
static u32 registered[UNWIND_CLIENTS];

/* Callbacks may sleep, and unwind_deferred_cancel() waits for them. */
DEFINE_STATIC_SRCU(clients_srcu);
static struct unwind_work __rcu *clients[UNWIND_CLIENTS];

/* The most entries that any client wants. */
static unsigned int clients_max;

/*
 * Cookies are made of a CPU number and a count of that CPU, which goes through
 * 2^32 - 1 values before one returns: 0 is left out.
 */
static DEFINE_PER_CPU(atomic_t, cookie_count);

static u64 new_cookie(void)
{
	unsigned int cpu = raw_smp_processor_id();
	u32 count;

	/* The task may move to another CPU in between, so it is atomic. */
	do {
		count = atomic_inc_return(per_cpu_ptr(&cookie_count, cpu));
	} while (unlikely(!count));

	return (u64)cpu << 32 | count;
}

static u32 state_count(u64 state)
{
	return state >> STATE_COUNT;
}

/*
 * Did the owner that registered as number @owner come after @state was last
 * brought up to date, and not after @now? The numbers go around. An owner would
 * have to be away by 2^30 registrations to be mistaken, and then it gets a stack
 * that it did not ask for, or one less.
 */
static bool owner_newer(u32 owner, u64 state, u32 now)
{
	u32 count = state_count(state);
	u32 age = (owner - count) & COUNT_MASK;

	return age && age <= ((now - count) & COUNT_MASK);
}

/* Take the bits of earlier owners out of @state. */
static u64 state_without_stale(u64 state, u32 now)
{
	u64 asked, low = state & GENMASK_ULL(STATE_COUNT - 1, 0);
	unsigned int bit;

	for (asked = state & UNWIND_ASKED_MASK; asked; asked &= asked - 1) {
		bit = __ffs64(asked);
		if (owner_newer(READ_ONCE(registered[bit]), state, now))
			low &= ~(UNWIND_ASKED(bit) | UNWIND_WAITS(bit));
	}
	return low | (u64)now << STATE_COUNT;
}

/* Take stale bits out of @state, and bring its count up to date. */
static __always_inline u64 state_refresh(u64 state)
{
	/*
	 * Pairs with the smp_store_release() in unwind_deferred_init(): who sees
	 * the count sees what it says of the owners.
	 */
	u32 now = smp_load_acquire(&registrations);

	if (likely(now == state_count(state)))
		return state;
	return state_without_stale(state, now);
}

static bool same_regs(const struct unwind_user_regs *a,
		      const struct unwind_user_regs *b)
{
	return a->ip == b->ip && a->sp == b->sp && a->fp == b->fp;
}

/* Does a walk from @a find what one from @b does? */
static bool same_start(const struct unwind_user_regs *a,
		       const struct unwind_user_regs *b)
{
	return same_regs(a, b) && a->at_entry == b->at_entry;
}

#if IS_ENABLED(CONFIG_UNWIND_KUNIT_TEST)
unwind_test_hook_t unwind_test_hook;
EXPORT_SYMBOL_IF_KUNIT(unwind_test_hook);

void unwind_cookie_preset(unsigned int cpu, u32 count)
{
	atomic_set(per_cpu_ptr(&cookie_count, cpu), count);
}
EXPORT_SYMBOL_IF_KUNIT(unwind_cookie_preset);

void unwind_count_preset(u32 count)
{
	guard(mutex)(&clients_mutex);
	WRITE_ONCE(registrations, count & COUNT_MASK);
}
EXPORT_SYMBOL_IF_KUNIT(unwind_count_preset);

bool unwind_callback_known(void)
{
	return srcu_read_lock_held(&clients_srcu);
}
EXPORT_SYMBOL_IF_KUNIT(unwind_callback_known);
#endif

/*
 * Enter a request into @info; see the head of this file for the rules. Returns
 * UNWIND_QUEUE when the caller has to queue the work, 0 when that has been done,
 * 1 when client @bit had asked before, -EAGAIN when another stack is in the way.
 */
static __always_inline int
__unwind_request(struct unwind_task_info *info, unsigned int bit,
		 const struct unwind_user_regs *regs, bool nmi, u64 *cookie)
{
	const u64 mine = UNWIND_ASKED(bit) | UNWIND_WAITS(bit);
	u64 seen, state, new;
	bool live;

again:
	seen = READ_ONCE(info->cookie);
	unwind_test_point(info);
	state = READ_ONCE(info->state);
	unwind_test_point(info);

	/* Nothing that nests here sets the mark or takes it away. */
	live = (state & STATE_OPEN) && arch_unwind_entry_marked();

	if (state & UNWIND_WAITS_MASK) {
		if (unlikely(info->exec == EXEC_NONE &&
			     !same_start(&info->regs, regs)))
			return -EAGAIN;
		/* Asked for behind the exit loop, and user space has run since? */
		if (unlikely(!(state & STATE_NMI) &&
			     !arch_unwind_entry_asked(current)))
			return -EAGAIN;
	} else if (!live ||
		   (info->exec == EXEC_NONE && !same_start(&info->regs, regs))) {
		/*
		 * Close the one that lives before its cookie and its registers
		 * go, or else a nested request takes the new ones for its.
		 */
		if (unlikely(live)) {
			if (!try_cmpxchg64(&info->state, &state, 0))
				goto again;
			state = 0;
			unwind_test_point(info);
		}

		/* Open a generation. */
		*cookie = new_cookie();
		unwind_test_point(info);
		if (unlikely(cmpxchg64(&info->cookie, seen, *cookie) != seen))
			goto again;

		unwind_test_point(info);
		if (!arch_unwind_entry_marked())
			info->exec = EXEC_NONE;
		info->regs = *regs;
		unwind_test_point(info);

		/*
		 * No acquire: no owner is looked up, and this client's own
		 * registration has been seen with its bit.
		 */
		new = (u64)READ_ONCE(registrations) << STATE_COUNT |
		      STATE_OPEN | mine | (nmi ? STATE_NMI : 0);
		/* Ahead of the state: whoever joins the generation looks for the mark. */
		if (!nmi)
			arch_unwind_entry_ask();
		if (unlikely(!try_cmpxchg64(&info->state, &state, new)))
			goto again;
		unwind_test_point(info);
		return UNWIND_QUEUE;
	}

	/* Join the generation that is there. */
	unwind_test_point(info);
	*cookie = READ_ONCE(info->cookie);
	new = state_refresh(state);
	if (new & UNWIND_ASKED(bit)) {
		unwind_test_point(info);
		/* The registers and the cookie are those of this state? */
		if (unlikely(READ_ONCE(info->state) != state))
			goto again;
		return 1;
	}
	new |= mine;
	/* The work is queued also where the only bits that wait have become stale. */
	if (!(state & UNWIND_WAITS_MASK)) {
		if (nmi)
			new |= STATE_NMI;
		else
			arch_unwind_entry_ask();
	}
	unwind_test_point(info);
	if (unlikely(!try_cmpxchg64(&info->state, &state, new)))
		goto again;

	unwind_test_point(info);
	return state & UNWIND_WAITS_MASK ? 0 : UNWIND_QUEUE;
}

/*
 * Take from @info all who wait, and what their stack starts from. Returns the
 * state as it was. If they are @late the generation ends here, without a mark: what
 * is asked for in this entry is of another stack.
 */
static __always_inline u64
__unwind_take(struct unwind_task_info *info, bool late,
	      struct unwind_user_regs *regs, u64 *cookie)
{
	u64 state;

	/* While somebody waits nobody opens another generation. */
	unwind_test_point(info);
	*regs = info->regs;
	*cookie = info->cookie;
	unwind_test_point(info);
	if (likely(!late))
		arch_unwind_entry_mark();

	unwind_test_point(info);
	state = READ_ONCE(info->state);
	do {
		unwind_test_point(info);
	} while (!try_cmpxchg64(&info->state, &state,
				state & ~(UNWIND_WAITS_MASK | STATE_NMI)));
	unwind_test_point(info);
	return state;
}

#if IS_ENABLED(CONFIG_UNWIND_KUNIT_TEST)
int unwind_request(struct unwind_task_info *info, unsigned int bit,
		   const struct unwind_user_regs *regs, bool nmi, u64 *cookie)
{
	return __unwind_request(info, bit, regs, nmi, cookie);
}
EXPORT_SYMBOL_IF_KUNIT(unwind_request);

u64 unwind_take(struct unwind_task_info *info, bool late,
		struct unwind_user_regs *regs, u64 *cookie)
{
	return __unwind_take(info, late, regs, cookie);
}
EXPORT_SYMBOL_IF_KUNIT(unwind_take);
#endif

/*
 * Does @state say that @work waits, the present owner of @bit?
 */
bool unwind_waits(u64 state, const struct unwind_work *work, unsigned int bit)
{
	if (!(state & UNWIND_WAITS(bit)))
		return false;

	/*
	 * Pairs with rcu_assign_pointer() in unwind_deferred_init(): who has got
	 * at the client by clients[] sees that its registration is counted. Who has
	 * the client at hand, and asks for another task (remote.c), has registered
	 * it, or been handed it under a lock by who has.
	 */
	smp_rmb();
	return !owner_newer(work->count, state, READ_ONCE(registrations));
}
EXPORT_SYMBOL_IF_KUNIT(unwind_waits);

/*
 * Has user space run between the request and now, as it can where an NMI queued
 * the work, so that the stack may be another one?
 */
bool unwind_late(u64 state, const struct unwind_user_regs *then,
		 const struct unwind_user_regs *now)
{
	return (state & STATE_NMI) && !same_regs(then, now);
}
EXPORT_SYMBOL_IF_KUNIT(unwind_late);

/*
 * As unwind_late(), for the current task and its registers now. If @before is not NULL,
 * they were so earlier in this entry, and who waits now has asked since.
 */
static __always_inline bool late_now(u64 state,
				     const struct unwind_user_regs *then,
				     const struct unwind_user_regs *before)
{
	struct unwind_user_regs now __uninitialized;

	if (likely(!(state & STATE_NMI)))
		return unlikely(!arch_unwind_entry_asked(current));
	if (before && same_regs(then, before))
		return false;

	arch_unwind_user_place(&now, task_pt_regs(current));
	return unwind_late(state, then, &now);
}

/**
 * struct unwind_buffer - where a walk puts what it finds
 * @cookie:	of the stack that is in it, 0 for none
 * @nr:		entries of that stack
 * @walked:	the most entries that its walk was to find
 * @max:	room in @entries
 * @entries:	the entries of the trace
 *
 * A walk may sleep and go on elsewhere, so it owns its buffer. Each CPU keeps one
 * for the next walk that begins there. When a client goes these are given back.
 */
struct unwind_buffer {
	u64		cookie;
	unsigned int	nr;
	unsigned int	walked;
	unsigned int	max;
	unsigned long	entries[] __counted_by(max);
};

static DEFINE_PER_CPU(struct unwind_buffer *, spare_buffer);

/* Has the stack of @state been walked before? */
static bool walked_before(u64 state)
{
	return state & UNWIND_ASKED_MASK &
	       ~((state & UNWIND_WAITS_MASK) >> UNWIND_CLIENTS);
}

/*
 * Get a buffer for @max entries, and where a stack is asked for @again the one
 * that it was left in. A buffer can be taken from another CPU's, so this is an
 * xchg() that all CPUs see.
 */
static __always_inline struct unwind_buffer *
buffer_get(struct unwind_task_info *info, bool again, unsigned int max)
{
	struct unwind_buffer **spare = raw_cpu_ptr(&spare_buffer), *buffer;

	if (unlikely(again))
		spare = per_cpu_ptr(&spare_buffer, info->cpu);

	buffer = xchg(spare, NULL);
	if (likely(buffer && buffer->max >= max))
		return buffer;

	kvfree(buffer);
	buffer = kvmalloc(struct_size(buffer, entries, max),
			  GFP_KERNEL | __GFP_NOWARN);
	if (buffer) {
		buffer->cookie = 0;
		buffer->max = max;
	}
	return buffer;
}

static void buffer_put(struct unwind_task_info *info,
		       struct unwind_buffer *buffer)
{
	scoped_guard(preempt) {
		info->cpu = smp_processor_id();
		/*
		 * Who takes the last client away waits for this section, and then
		 * gives back what is there.
		 */
		if (likely(READ_ONCE(clients_max)))
			buffer = xchg(this_cpu_ptr(&spare_buffer), buffer);
	}
	if (unlikely(buffer))
		kvfree(buffer);
}

/* Fill @buffer with the stack that @regs and @cookie are of, if it is not. */
static void buffer_walk(struct unwind_buffer *buffer,
			const struct unwind_user_regs *regs, u64 cookie,
			unsigned int max)
{
	struct unwind_stacktrace trace __uninitialized;

	if (unlikely(buffer->cookie == cookie &&
		     (buffer->nr < buffer->walked || buffer->walked >= max)))
		return;

	trace.entries = buffer->entries;
	unwind_user_regs(&trace, regs, max);
	buffer->cookie = cookie;
	buffer->nr = trace.nr;
	buffer->walked = max;
}

/* Walk the stack once, and call all who wait for it; for @before see late_now(). */
VISIBLE_IF_KUNIT void
unwind_deferred_run(struct unwind_task_info *info,
		    const struct unwind_user_regs *before)
{
	struct unwind_user_regs regs __uninitialized;
	struct unwind_buffer *buffer = NULL;
	u64 state, waits, cookie;
	unsigned int max, nr = 0;
	bool again, late;
	int idx;

	/* As long as somebody waits, this and the registers do not change. */
	state = READ_ONCE(info->state);
	if (unlikely(!(state & UNWIND_WAITS_MASK)))
		return;
	late = late_now(state, &info->regs, before);

	/*
	 * An NMI in between is either among those that are taken, and what it
	 * wants is read the second time, or it finds that left for its own walk.
	 */
	max = xchg(&info->want, 0);
	again = walked_before(state);
	state = __unwind_take(info, late, &regs, &cookie);
	max = max(max, READ_ONCE(info->want));
	max = min(max, READ_ONCE(clients_max));

	if (likely(info->exec < EXEC_NO_STACK && !late && max))
		buffer = buffer_get(info, again, max);
	if (likely(buffer)) {
		buffer_walk(buffer, &regs, cookie, max);
		nr = min(buffer->nr, max);
	}

	/*
	 * Not held over the walk: a fault may take as long as user space likes,
	 * and unwind_deferred_cancel() must not wait for that.
	 */
	idx = srcu_read_lock(&clients_srcu);
	for (waits = state & UNWIND_WAITS_MASK; waits; waits &= waits - 1) {
		unsigned int bit = __ffs64(waits) - UNWIND_CLIENTS;
		struct unwind_stacktrace trace __uninitialized;
		struct unwind_work *work;

		work = srcu_dereference(clients[bit], &clients_srcu);
		if (!work || !unwind_waits(state, work, bit))
			continue;
		trace.nr = min(nr, work->max);
		trace.entries = buffer ? buffer->entries : NULL;
		work->func(work, &trace, cookie);
	}
	srcu_read_unlock(&clients_srcu, idx);

	if (likely(buffer))
		buffer_put(info, buffer);
}
EXPORT_SYMBOL_IF_KUNIT(unwind_deferred_run);

static void unwind_deferred_task_work(struct callback_head *head)
{
	unwind_deferred_run(container_of(head, struct unwind_task_info, work),
			    NULL);
}

void __unwind_deferred_flush(const struct unwind_user_regs *before)
{
	struct unwind_task_info *info = &current->unwind_info;

	/* Off the list, or else the next request would queue it twice. */
	task_work_cancel(current, &info->work);
	unwind_deferred_run(info, before);
}

/**
 * unwind_deferred_before - note the user registers before they are changed
 * @before:	for unwind_deferred_flush_changed()
 * @ip:		the instruction pointer, if that is changed first, and alone
 *
 * Context: Task context. Who waits here may not wait any more at
 * unwind_deferred_flush_changed() in the same entry: unwind_deferred_flush() comes
 * ahead of this, or task_work is run in between.
 */
void unwind_deferred_before(struct unwind_user_regs *before, unsigned long ip)
{
	arch_unwind_user_place(before, task_pt_regs(current));
	before->ip = ip;
}

/**
 * unwind_deferred_exec - the current task is about to lose its image
 *
 * Hands out what was asked for, from the old image and under the old thread id.
 * Requests are refused from here until unwind_deferred_exec_mmap(), so that
 * none is left for an image that is gone.
 *
 * Context: Task context, may sleep. Where the execve() cannot return any more,
 * before de_thread().
 */
void unwind_deferred_exec(void)
{
	struct unwind_task_info *info = &current->unwind_info;
	u64 state = READ_ONCE(info->state);

	/*
	 * The mark must not bring an earlier entry's generation back to life. The
	 * cmpxchg fails when an NMI has just opened one.
	 */
	if (!(state & UNWIND_WAITS_MASK) && !arch_unwind_entry_marked())
		try_cmpxchg64(&info->state, &state, 0);
	arch_unwind_entry_mark();

	WRITE_ONCE(info->exec, EXEC_COMMITTED);
	/* An NMI sees that, or what it asks for is seen here. */
	barrier();
	unwind_deferred_flush();
}

/**
 * unwind_deferred_exec_mmap - the current task's old image goes away now
 *
 * Until the task returns to user space requests are accepted, and get an empty stack:
 * the new image has not run yet.
 *
 * Context: Task context, interrupts off.
 */
void unwind_deferred_exec_mmap(void)
{
	struct unwind_task_info *info = &current->unwind_info;

	if (READ_ONCE(info->exec) != EXEC_COMMITTED)
		return;

	/* Nobody waits and nobody is let in, so the state is ours. */
	WRITE_ONCE(info->state, 0);
	/* An NMI that is let in again finds it closed. */
	barrier();
	WRITE_ONCE(info->exec, EXEC_NO_STACK);
}

/**
 * unwind_deferred_between_images - is the current task between two images?
 *
 * The old one is gone, and the new one has not run: what a client of this kernel
 * entry was or will be given is an empty stack, and there is none to be read on the
 * spot. That goes for requests that are refused, as the client may be about to go, too.
 *
 * Context: Any.
 * Return: whether it is.
 */
bool unwind_deferred_between_images(void)
{
	/* What an earlier entry has left there does not count. */
	return READ_ONCE(current->unwind_info.exec) >= EXEC_NO_STACK &&
	       arch_unwind_entry_marked();
}

/**
 * unwind_deferred_exec_hold - clients of the current task are about to go
 *
 * Between the images: hands out what was asked for. Requests are refused until
 * unwind_deferred_exec_release(), so that no cookie is named that nobody would be left
 * to get.
 *
 * Context: Task context, may sleep. In an execve(), behind
 * unwind_deferred_exec_mmap().
 */
void unwind_deferred_exec_hold(void)
{
	struct unwind_task_info *info = &current->unwind_info;

	if (READ_ONCE(info->exec) == EXEC_NO_STACK)
		WRITE_ONCE(info->exec, EXEC_HELD);
	/* An NMI sees that, or what it asks for is seen here. */
	barrier();
	unwind_deferred_flush();
}

/**
 * unwind_deferred_exec_release - those that were to go are gone
 *
 * Context: Task context, behind unwind_deferred_exec_hold().
 */
void unwind_deferred_exec_release(void)
{
	struct unwind_task_info *info = &current->unwind_info;

	if (READ_ONCE(info->exec) == EXEC_HELD)
		WRITE_ONCE(info->exec, EXEC_NO_STACK);
}

/**
 * unwind_deferred_task_init - a new task has not asked for anything
 * @task:	the task that is being made, a copy of its parent so far
 */
void unwind_deferred_task_init(struct task_struct *task)
{
	memset(&task->unwind_info, 0, sizeof(task->unwind_info));
	init_task_work(&task->unwind_info.work, unwind_deferred_task_work);
}

/*
 * Has client @bit asked for this stack, and waits for it? Nearly all requests of an
 * entry but the first have, and need no more than this. One look at the state is
 * enough: as long as somebody waits neither the cookie nor the registers change, and
 * what nests here takes nobody who waits away. What is not plain is left to
 * __unwind_request().
 */
static __always_inline bool
asked_before(const struct unwind_task_info *info, unsigned int bit, u64 *cookie)
{
	const u64 mine = UNWIND_ASKED(bit) | UNWIND_WAITS(bit);
	struct unwind_user_regs regs __uninitialized;
	u64 state = READ_ONCE(info->state);
	u32 now;

	if ((state & mine) != mine || info->exec != EXEC_NONE)
		return false;
	/* Pairs with the smp_store_release() in unwind_deferred_init(). */
	now = smp_load_acquire(&registrations);
	if (state_count(state) != now || !arch_unwind_entry_asked(current))
		return false;

	arch_unwind_user_place(&regs, task_pt_regs(current));
	if (!same_start(&info->regs, &regs))
		return false;

	*cookie = READ_ONCE(info->cookie);
	return true;
}

/* Somebody wants @max entries; a nested request may say so, too. */
static void want_entries(struct unwind_task_info *info, u32 max)
{
	u32 want = READ_ONCE(info->want);

	while (want < max && !try_cmpxchg(&info->want, &want, max))
		;
}

/**
 * unwind_deferred_request_max - ask for the current task's user stack
 * @work:	who asks
 * @max:	the most entries wanted; more than the client registered with counts
 *		as that. The stack has as many as the request that wants the most, of
 *		those that come before its walk
 * @cookie:	set to the name of the stack, never 0; the same for all requests
 *		of one kernel entry, whoever asks, and another one in the next
 *
 * The callback runs once a kernel entry, in the task's own context, before it
 * returns to user space or exits or loses its image to execve().
 *
 * The cookie is unique in the system until 2^32 - 1 stacks have been asked for
 * on one CPU.
 *
 * Context: Any: task, softirq, hardirq, NMI. Takes no locks, allocates nothing.
 * Return:
 * * 0 - the callback will run
 * * 1 - it will run, or has run in this kernel entry, for a request that came
 *   before
 * * -EINVAL - the task has no user stack (kernel thread, a worker made by the
 *   kernel, no mm), or is exiting; @work is not registered; or the context is
 *   NMI and the architecture has no cmpxchg that is safe there
 * * -EAGAIN - the user registers have changed since a request that still waits, or
 *   user space has run since, as it came behind the last look for work; or the task
 *   is in the middle of an execve(), see unwind_deferred_between_images(); or the CPU
 *   is a nohz_full one, the context task with interrupts off, maybe in the last steps
 *   to user space; or what describes the segments of a 32-bit task cannot be read, as
 *   it is just being switched
 */
int unwind_deferred_request_max(struct unwind_work *work, unsigned int max,
				u64 *cookie)
{
	struct unwind_task_info *info = &current->unwind_info;
	struct unwind_user_regs regs __uninitialized;
	bool nmi = in_nmi();
	int bit, ret;
	u8 exec;

	if (!is_user_task(current) || (current->flags & PF_EXITING))
		return -EINVAL;
	if (nmi && !IS_ENABLED(CONFIG_ARCH_HAVE_NMI_SAFE_CMPXCHG))
		return -EINVAL;
	/* Nobody would be left to get it. The mark: of this kernel entry. */
	exec = READ_ONCE(info->exec);
	if (unlikely(exec == EXEC_COMMITTED || exec == EXEC_HELD) &&
	    arch_unwind_entry_marked())
		return -EAGAIN;

	/* Pairs with the synchronize_rcu() in unwind_deferred_cancel(). */
	guard(preempt_notrace)();

	/*
	 * With context tracking vtime_user_enter() runs when the marks have been taken
	 * back, and can be probed. A request there would look like one of the next entry.
	 */
	if (unlikely(context_tracking_enabled_this_cpu()) && irqs_disabled() &&
	    !interrupt_context_level())
		return -EAGAIN;

	/* Pairs with the smp_store_release() in unwind_deferred_init(). */
	bit = smp_load_acquire(&work->bit);
	if (unlikely(bit < 0))
		return -EINVAL;

	if (asked_before(info, bit, cookie)) {
		want_entries(info, max);
		return 1;
	}

	arch_unwind_user_regs(&regs, task_pt_regs(current));
	/* What it takes cannot be told now; a later request may be able to. */
	if (unlikely(!regs.word) && !nmi_uaccess_okay())
		return -EAGAIN;
	ret = __unwind_request(info, bit, &regs, nmi, cookie);
	/*
	 * The client has had this stack. No walk comes for this request, so what
	 * it wants must not be left for that of another stack.
	 */
	if (ret == 1 && !(READ_ONCE(info->state) & UNWIND_WAITS(bit)))
		return 1;
	if (ret >= 0)
		want_entries(info, max);
	if (ret != UNWIND_QUEUE)
		return ret;

	ret = task_work_add(current, &info->work,
			    nmi ? TWA_NMI_CURRENT : TWA_RESUME | TWAF_NO_ALLOC);
	/* It fails for a task that is exiting, and that was looked at. */
	WARN_ON_ONCE(ret);
	return ret;
}
EXPORT_SYMBOL_IF_KUNIT(unwind_deferred_request_max);

static void update_max(void)
{
	unsigned int bit, max = 0;
	struct unwind_work *work;

	for_each_set_bit(bit, &bits_used, UNWIND_CLIENTS) {
		work = rcu_dereference_protected(clients[bit],
						 lockdep_is_held(&clients_mutex));
		if (work)
			max = max(max, work->max);
	}
	WRITE_ONCE(clients_max, max);
}

/**
 * unwind_deferred_init - become a client of deferred unwinding
 * @work:	the client; has to stay until unwind_deferred_cancel()
 * @func:	called with each stack that was asked for
 * @max:	the most entries wanted of a stack, 1 to UNWIND_USER_MAX_ENTRIES,
 *		or 0 for UNWIND_USER_DEFAULT_ENTRIES
 *
 * Context: Task context, may sleep.
 * Return: 0, -EINVAL for a @max that is too large, -EBUSY when there are
 * UNWIND_CLIENTS clients already. After an error unwind_deferred_cancel() does
 * nothing, and unwind_deferred_request() returns -EINVAL.
 */
int unwind_deferred_init(struct unwind_work *work, unwind_callback_t func,
			 unsigned int max)
{
	unsigned int bit;

	work->func = func;
	work->max = max ?: UNWIND_USER_DEFAULT_ENTRIES;
	/* A request may come before. */
	WRITE_ONCE(work->bit, -1);
	if (max > UNWIND_USER_MAX_ENTRIES)
		return -EINVAL;

	guard(mutex)(&clients_mutex);

	bit = find_first_zero_bit(&bits_used, UNWIND_CLIENTS);
	if (bit >= UNWIND_CLIENTS)
		return -EBUSY;
	__set_bit(bit, &bits_used);

	work->count = (registrations + 1) & COUNT_MASK;
	WRITE_ONCE(registered[bit], work->count);
	/* Pairs with the smp_load_acquire() in state_refresh() and asked_before(). */
	smp_store_release(&registrations, work->count);
	/* Pairs with the smp_rmb() in unwind_waits(). */
	rcu_assign_pointer(clients[bit], work);
	update_max();

	/*
	 * Pairs with the smp_load_acquire() in unwind_deferred_request_max(): a
	 * request of this client finds its registration counted.
	 */
	smp_store_release(&work->bit, bit);
	return 0;
}
EXPORT_SYMBOL_IF_KUNIT(unwind_deferred_init);

/**
 * unwind_deferred_cancel - stop being a client
 * @work:	the client; may be freed when this returns
 *
 * No callback runs when this returns, and none will. Stacks that were asked for
 * and not handed out by then are not. What it costs does not depend on the number
 * of tasks.
 *
 * Context: Task context, may sleep: waits for a grace period, and for callbacks
 * that run. Not from a callback, which would wait for itself; lockdep tells. Of
 * several that cancel the same client at once only the last to return has waited.
 */
void unwind_deferred_cancel(struct unwind_work *work)
{
	int bit, cpu;

	scoped_guard(mutex, &clients_mutex) {
		bit = work->bit;
		if (bit < 0)
			return;
		WRITE_ONCE(work->bit, -1);
		RCU_INIT_POINTER(clients[bit], NULL);
		update_max();
	}

	/*
	 * Pairs with the preempt_notrace guard in unwind_deferred_request_max():
	 * no request that has seen the bit is under way after this, on whatever
	 * CPU and in whatever context. Those to come find it gone. And with that
	 * in buffer_put(): no buffer is kept for the last client after this.
	 */
	synchronize_rcu();
	/* Pairs with the srcu_read_lock() in unwind_deferred_run(). */
	synchronize_srcu(&clients_srcu);

	/*
	 * Only now may the bit get a new owner: tasks that have it set have set
	 * it before that one registers.
	 */
	scoped_guard(mutex, &clients_mutex)
		__clear_bit(bit, &bits_used);

	/* Those who still need buffers get new ones. */
	for_each_possible_cpu(cpu)
		kvfree(xchg(per_cpu_ptr(&spare_buffer, cpu), NULL));
}
EXPORT_SYMBOL_IF_KUNIT(unwind_deferred_cancel);

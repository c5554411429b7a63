// SPDX-License-Identifier: GPL-2.0
/*
 * Deferred user callchains of perf events.
 *
 * The callchain of a sample with attr.defer_callchain ends in a marker and a cookie. The
 * user addresses follow in a PERF_RECORD_CALLCHAIN_DEFERRED with the same cookie, when
 * kernel/unwind hands out the stack: on the same CPU, before the task leaves it. One
 * record serves all samples that name its cookie.
 *
 * The record goes to the events with attr.defer_output of the same session. A session
 * is the events that one process has opened. It has a slot, one of BITS_PER_LONG, and
 * task_struct::perf_defer_sessions has a bit for each slot that waits for the task's
 * stack. When there are more sessions than slots, some share one: they get records that
 * they do not wait for, and ignore them.
 *
 * All sessions are one client of kernel/unwind. A sample requests the stack and then
 * sets its session's bit, with interrupts off. The callback takes the word, and writes to
 * the events that perf_iterate_sb() finds for the CPU and the task, as it does for other
 * side-band records. An NMI may take a sample between any two of these steps. Its session
 * gets a record from this callback or from the next one.
 *
 * A record is written where the task is, or not at all. An event stops taking records
 * when it is disabled or removed, or when the task changes its cgroup. Before that the
 * stack of the task that is running there is handed out (perf_defer_flush()).
 */
#include <linux/cleanup.h>
#include <linux/init.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/perf_event.h>
#include <linux/pid.h>
#include <linux/sched.h>
#include <linux/sched/task_stack.h>
#include <linux/slab.h>
#include <linux/sysctl.h>
#include <linux/unwind_deferred.h>
#include <linux/unwind_user.h>
#include <linux/workqueue.h>

#include <asm/tlb.h>
#include <asm/unwind_user.h>

#include "internal.h"

/* Walks store unsigned long, and callchains and records hold u64. */
static_assert(sizeof(unsigned long) == sizeof(u64));

/* kernel.perf_event_defer: 0 makes every later sample immediate. */
static int sysctl_perf_event_defer __read_mostly = 1;

/**
 * struct perf_defer_session - the events that one process has opened
 * @node:	in perf_defer_sessions
 * @owner:	the process. The reference keeps another process from getting the same
 *		struct pid.
 * @events:	how many events there are, without the inherited ones
 * @slot:	its bit in task_struct::perf_defer_sessions
 * @rcu:	to free it when perf_iterate_sb() does not see its events any more
 */
struct perf_defer_session {
	struct list_head	node;
	struct pid		*owner;
	unsigned int		events;
	unsigned int		slot;
	struct rcu_head		rcu;
};

/* Guards the list, the counts of sessions and events, and the client. */
static DEFINE_MUTEX(perf_defer_mutex);
static LIST_HEAD(perf_defer_sessions);
static unsigned int perf_defer_slots[BITS_PER_LONG];

/* The client of kernel/unwind, and how many events make requests with it. */
static struct unwind_work perf_defer_work = { .bit = -1 };
static unsigned int perf_defer_samplers;

/* A record on its way to the events. */
struct perf_defer_output {
	unsigned long	sessions;
	const u64	*ips;
	unsigned int	nr;
	struct {
		struct perf_event_header	header;
		u64				cookie;
		u64				nr;
	} record;
};

static void perf_defer_write(struct perf_event *event, void *data)
{
	/* Too large to be cleared. The functions below set all values that they write out. */
	struct perf_output_handle handle __uninitialized;
	struct perf_sample_data sample __uninitialized;
	struct perf_defer_output *output = data;
	unsigned int room, nr;

	if (!event->attr.defer_output ||
	    !(output->sessions & BIT(event->defer->slot)))
		return;

	/* header.size has 16 bits. */
	room = U16_MAX - sizeof(output->record);
	if (event->attr.sample_id_all)
		room -= event->id_header_size;
	nr = min3(output->nr, (unsigned int)event->attr.sample_max_stack,
		  room / (unsigned int)sizeof(u64));

	output->record.nr = nr;
	output->record.header = (struct perf_event_header){
		.type	= PERF_RECORD_CALLCHAIN_DEFERRED,
		.misc	= PERF_RECORD_MISC_USER,
		.size	= sizeof(output->record) + nr * sizeof(u64),
	};
	perf_event_add_id(&output->record.header, &sample, event);
	if (perf_output_begin(&handle, &sample, event, output->record.header.size))
		return;

	perf_output_put(&handle, output->record);
	__output_copy(&handle, output->ips, nr * sizeof(u64));
	perf_event__output_id_sample(event, &handle, &sample);
	perf_output_end(&handle);
}

static void perf_defer_callback(struct unwind_work *work,
				const struct unwind_stacktrace *trace, u64 cookie)
{
	struct perf_defer_output output __uninitialized;
	unsigned int max;

	if (unlikely(trace->again)) {
		/* A record of the whole stack follows, for the same sessions. */
		max = READ_ONCE(current->perf_defer_max);
		output.sessions = READ_ONCE(current->perf_defer_sessions);
	} else {
		/*
		 * The limit first. The other way round an NMI in between could set both,
		 * and lose its limit here: its own record would be empty.
		 */
		max = xchg(&current->perf_defer_max, 0);
		output.sessions = xchg(&current->perf_defer_sessions, 0);
		/* An NMI in between has set its limit ahead of its session. */
		max = max(max, READ_ONCE(current->perf_defer_max));
	}
	if (unlikely(!output.sessions))
		return;

	output.ips = (const u64 *)trace->entries;
	output.nr = min(trace->nr, max);
	output.record.cookie = cookie;
	perf_iterate_sb(perf_defer_write, &output, NULL);
}

/*
 * Request the stack and note the session, with interrupts off, so that no hand-out comes
 * between.
 *
 * Were interrupts on where the event was hit? @regs tell that. perf_swevent_event() turns
 * them off before this is called, and BPF programs call this with interrupts on.
 */
static int perf_defer_request(struct perf_event *event, struct pt_regs *regs, u64 *cookie)
{
	bool irqs_on = !regs_irqs_disabled(regs);
	u32 old, max = event->attr.sample_max_stack;
	unsigned int slot = event->defer->slot;
	unsigned long flags;
	int ret;

	/*
	 * Most of the further samples of a kernel entry find that there is nothing to note.
	 * The stack comes first: if an interrupt hands it out now, the session's bit goes.
	 */
	if (unwind_deferred_requested(&perf_defer_work, cookie) &&
	    test_bit(slot, &current->perf_defer_sessions) &&
	    READ_ONCE(current->perf_defer_max) >= max)
		return 1;

	local_irq_save(flags);
	ret = unwind_deferred_request_irqsoff(&perf_defer_work, irqs_on, cookie);
	if (likely(ret >= 0)) {
		old = READ_ONCE(current->perf_defer_max);
		while (old < max && !try_cmpxchg(&current->perf_defer_max, &old, max))
			;
		if (!test_bit(slot, &current->perf_defer_sessions))
			set_bit(slot, &current->perf_defer_sessions);
	}
	local_irq_restore(flags);
	return ret;
}

/* The user part of an immediate sample: the same walk, but no pages are brought. */
static void perf_defer_walk(struct perf_callchain_entry *entry, struct pt_regs *regs,
			    unsigned int room)
{
	struct unwind_user_regs user __uninitialized;
	struct unwind_stacktrace trace __uninitialized;

	arch_unwind_user_regs(&user, user_mode(regs) ? regs : task_pt_regs(current));
	/* During a switch of the mm another one may be loaded. Then take the first entry only. */
	if (!nmi_uaccess_okay())
		room = min(room, 1U);

	entry->ip[entry->nr++] = PERF_CONTEXT_USER;
	trace.entries = (unsigned long *)&entry->ip[entry->nr];
	unwind_user_regs(&trace, &user, min(room, UNWIND_USER_MAX_ENTRIES));
	entry->nr += trace.nr;
}

/**
 * perf_callchain_deferred - the callchain of a sample, with the user part deferred
 * @event:	the event, with attr.defer_callchain; its callchain has a user part,
 *		and it counts the current task
 * @regs:	of the sample
 *
 * Context: Any, NMI included.
 * Return: the callchain. Its user part is a marker and a cookie. If the stack cannot be
 * deferred, it has the addresses instead; in an execve() it has no user part. NULL if
 * the caller has to make the callchain: in a guest, for an event with a BPF program, or
 * if no callchain entry is free.
 */
struct perf_callchain_entry *
perf_callchain_deferred(struct perf_event *event, struct pt_regs *regs)
{
	bool kernel = !event->attr.exclude_callchain_kernel && !user_mode(regs);
	unsigned int contexts = sysctl_perf_event_max_contexts_per_stack;
	u32 max_stack = event->attr.sample_max_stack;
	struct perf_callchain_entry *entry;
	int ret = -EAGAIN, rctx;
	u64 cookie;

	/*
	 * BPF programs know nothing of cookies. A guest's user stack is not this task's; an
	 * interrupt may have hit a guest, task context has not.
	 */
	if (event->prog || (interrupt_context_level() && perf_guest_state()))
		return NULL;

	/* Held to the end: a page fault of the walk can hit an event in the same context. */
	entry = get_callchain_entry(&rctx);
	if (!entry)
		return NULL;

	entry->nr = 0;
	if (kernel) {
		struct perf_callchain_entry_ctx ctx = { .entry = entry, .max_stack = max_stack };

		perf_callchain_store_context(&ctx, PERF_CONTEXT_KERNEL);
		perf_callchain_kernel(&ctx, regs);
	}

	/* The marker and the cookie use room that is set aside for context markers. */
	if (likely(READ_ONCE(sysctl_perf_event_defer) && contexts >= kernel + 2))
		ret = perf_defer_request(event, regs, &cookie);

	if (likely(ret >= 0)) {
		entry->ip[entry->nr++] = PERF_CONTEXT_USER_DEFERRED;
		entry->ip[entry->nr++] = cookie;
	} else if (contexts >= kernel + 1 && !unwind_deferred_in_exec()) {
		/* As in any immediate callchain, kernel and user frames share the limit. */
		perf_defer_walk(entry, regs, max_stack - (entry->nr - kernel));
	}
	put_callchain_entry(rctx);
	return entry;
}

/*
 * Stop being a client if no event makes requests. This runs a while after the last of them
 * has gone, because it waits and interrupts all CPUs, and the next profile may begin soon.
 */
static void perf_defer_release(struct work_struct *work)
{
	guard(mutex)(&perf_defer_mutex);

	if (!perf_defer_samplers)
		unwind_deferred_cancel(&perf_defer_work);
}

static DECLARE_DELAYED_WORK(perf_defer_release_work, perf_defer_release);

/* Does @event make requests? Without callchains it has none to defer. */
static bool perf_defer_samples(const struct perf_event *event)
{
	return event->attr.defer_callchain &&
	       event->attr.sample_type & PERF_SAMPLE_CALLCHAIN;
}

/*
 * One more event makes requests. While there is such an event nobody can change
 * kernel.perf_event_max_stack, so the client's limit is good for all. If there is no memory
 * for the client the callchains are immediate.
 */
static void perf_defer_add_sampler(void)
{
	unsigned int max = clamp_t(unsigned int, sysctl_perf_event_max_stack,
				   1, UNWIND_USER_MAX_ENTRIES);

	lockdep_assert_held(&perf_defer_mutex);

	if (!perf_defer_samplers++ && perf_defer_work.max != max)
		unwind_deferred_cancel(&perf_defer_work);
	if (perf_defer_work.bit < 0)
		unwind_deferred_init(&perf_defer_work, perf_defer_callback, max);
}

/* The session of process @owner, or a new one in the slot with the fewest sessions. */
static struct perf_defer_session *perf_defer_session_find(struct pid *owner)
{
	struct perf_defer_session *session;
	unsigned int slot;

	lockdep_assert_held(&perf_defer_mutex);

	list_for_each_entry(session, &perf_defer_sessions, node) {
		if (session->owner == owner)
			return session;
	}

	session = kzalloc(sizeof(*session), GFP_KERNEL_ACCOUNT);
	if (!session)
		return NULL;
	for (slot = 1; slot < BITS_PER_LONG; slot++) {
		if (perf_defer_slots[slot] < perf_defer_slots[session->slot])
			session->slot = slot;
	}
	perf_defer_slots[session->slot]++;
	session->owner = get_pid(owner);
	list_add(&session->node, &perf_defer_sessions);
	return session;
}

/**
 * perf_defer_init - make a new event part of a session
 * @event:	the event; ->parent and ->attr are set
 *
 * An inherited event belongs to the session of its parent. Any other event belongs to
 * the session of the process that opens it.
 *
 * Context: Task context, may sleep. Takes perf_defer_mutex.
 * Return: 0 or -ENOMEM.
 */
int perf_defer_init(struct perf_event *event)
{
	if (!event->attr.defer_callchain && !event->attr.defer_output)
		return 0;

	/* The parent stays as long as the event. */
	if (event->parent) {
		event->defer = event->parent->defer;
		return 0;
	}

	guard(mutex)(&perf_defer_mutex);

	event->defer = perf_defer_session_find(task_tgid(current));
	if (!event->defer)
		return -ENOMEM;
	event->defer->events++;
	if (perf_defer_samples(event))
		perf_defer_add_sampler();
	return 0;
}

/**
 * perf_defer_exit - take a dying event out of its session
 * @event:	the event; it does not sample any more
 *
 * Context: Task context, may sleep. Takes perf_defer_mutex.
 */
void perf_defer_exit(struct perf_event *event)
{
	struct perf_defer_session *session = event->defer;

	if (!session || event->parent)
		return;

	guard(mutex)(&perf_defer_mutex);

	if (perf_defer_samples(event) && !--perf_defer_samplers)
		schedule_delayed_work(&perf_defer_release_work, HZ);

	if (!--session->events) {
		list_del(&session->node);
		perf_defer_slots[session->slot]--;
		put_pid(session->owner);
		kfree_rcu(session, rcu);
	}
}

/**
 * perf_defer_task_init - nobody waits for the stack of a new task
 * @task:	the task that is being made, a copy of its parent so far
 */
void perf_defer_task_init(struct task_struct *task)
{
	task->perf_defer_sessions = 0;
	task->perf_defer_max = 0;
}

static struct ctl_table perf_defer_sysctls[] = {
	{
		.procname	= "perf_event_defer",
		.data		= &sysctl_perf_event_defer,
		.maxlen		= sizeof(sysctl_perf_event_defer),
		.mode		= 0644,
		.proc_handler	= proc_dointvec_minmax,
		.extra1		= SYSCTL_ZERO,
		.extra2		= SYSCTL_ONE,
	},
};

static int __init perf_defer_setup(void)
{
	register_sysctl_init("kernel", perf_defer_sysctls);
	return 0;
}
late_initcall(perf_defer_setup);

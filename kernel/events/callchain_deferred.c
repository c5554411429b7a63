// SPDX-License-Identifier: GPL-2.0
/*
 * Deferred user callchains of perf events.
 *
 * A sample of an event with attr.defer_callchain ends in a marker and a cookie
 * instead of the user addresses. They follow in a PERF_RECORD_CALLCHAIN_DEFERRED,
 * once for all samples of one kernel entry, when kernel/unwind has walked the
 * stack in the task's own context. The record goes to the events of the same
 * session that have attr.defer_output.
 *
 * A session is made of the events that one process has opened, between one execve()
 * and the next. It is a client of kernel/unwind, and so gets the stacks that its own
 * samples wait for, and no other's. It lives as long as one of its events does: what
 * becomes of the process, and who holds the descriptors or reads the buffers, does not
 * matter. When kernel/unwind has no room for another client, the session joins the
 * others for which there was none. They share one client, and each task notes for
 * which of them: task_struct::perf_defer_sharers has a bit for each. A reader ignores
 * a cookie that it does not wait for. Where no bit is left either, nothing of a session
 * is deferred: what it costs others that there are many sessions is bounded so.
 *
 * A record goes where the task leaves the kernel. If the session has no event
 * there that would take it, because it records some of the CPUs only, or a cgroup
 * that the task is not in any more, another of its CPUs gets the record, also one
 * that has gone offline since.
 *
 * The end of a profile
 *
 * A task that sleeps in the kernel does not come by its stack before the profile
 * ends. So disabling an event with attr.defer_output, by ioctl or prctl, looks for
 * the tasks that the session still waits for, walks their stacks from outside and
 * writes them into the event's buffer. A task that is running gets a moment to
 * come out by itself or to fall asleep, and is interrupted when it does not; if its
 * record no longer finds an enabled event, it leaves a copy with the session, for
 * the one who is disabling.
 *
 * A task that sleeps on may be sampled again when the profile is enabled again. Its
 * stack is written a second time then, and only then: the reader of the first part
 * may not be that of the second.
 *
 * A record is written where no other writer of the buffer can be: on the CPU of
 * the event, or, if it has none, where its task's events are.
 */
#include <linux/bitops.h>
#include <linux/circ_buf.h>
#include <linux/cleanup.h>
#include <linux/cpu.h>
#include <linux/cpumask.h>
#include <linux/cpuset.h>
#include <linux/cred.h>
#include <linux/hashtable.h>
#include <linux/init.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/perf_event.h>
#include <linux/pid.h>
#include <linux/ptrace.h>
#include <linux/refcount.h>
#include <linux/sched/coredump.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/string.h>
#include <linux/trace_events.h>
#include <linux/unwind_deferred.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "internal.h"

/*
 * When an event is disabled: how long a running task has to come out, how long the
 * lock of a sleeping one's memory map is waited for, and how many more looks there
 * are behind the first of these times, for those who come out just then.
 */
#define PERF_DEFER_DRAIN_MS	50
#define PERF_DEFER_LOCK_MS	200
#define PERF_DEFER_MORE		2

/*
 * How long a stack for which the last buffer has no room waits for a reader of it. When
 * one has in vain, the others do not.
 */
#define PERF_DEFER_ROOM_MS	500

/*
 * How long who writes into the buffer of a CPU that is offline waits for one that is
 * going there, or coming back.
 */
#define PERF_DEFER_HOTPLUG_MS	1000

/**
 * struct perf_defer_client - what requests are made with
 * @work:	the client of kernel/unwind
 * @count:	how many wait
 */
struct perf_defer_client {
	struct unwind_work		work;
	struct perf_defer_count __percpu *count;
};

/*
 * Of requests and callbacks, and of stacks that had been written when a sample named
 * them; only the sums over all CPUs have a meaning.
 */
struct perf_defer_count {
	unsigned long	asked;
	unsigned long	done;
	unsigned long	again;
};

/* A stack that was walked from outside, while its task still waits. */
struct perf_defer_drained {
	/* Has a sample named it since? */
	unsigned int	again;
	struct rcu_head	rcu;
};

/**
 * struct perf_defer_session - the events that one process has opened
 * @client:	what they make requests with: @own, or the shared one
 * @own:	a client of this session alone
 * @node:	in sessions, by @owner
 * @shared:	in shared_sessions, if @client is the shared one
 * @sharer:	if so, its bit in task_struct::perf_defer_sharers
 * @immediate:	there was none of these left: its callchains are not deferred
 * @asked:	and how many of that one's requests, and of stacks that a sample has named
 *		again, are this session's
 * @owner:	the process; the reference keeps the address from being another's
 * @exec_id:	and its image: what another program opens later is another session
 * @refs:	one an event
 * @lock:	guards what is from here to @targets; the innermost
 * @draining:	how many are disabling an event right now
 * @turns:	how many of them may yet write into their event's buffer
 * @fresh:	has an event been disabled that took records until then?
 * @deadline:	in jiffies, for what they wait for
 * @looked:	the deadline behind which all tasks were last looked at; guarded by @drain
 * @full:	the last buffer that had no room by then, never looked into; so is this
 * @unread:	a reader was waited for in vain since that deadline; the same
 * @room:	how many stacks may be left at a time
 * @nr_left:	how many are
 * @left:	stacks of tasks that came out meanwhile
 * @outputs:	events of whole CPUs that have attr.defer_output
 * @gone:	those of them that were enabled when their CPU went offline; they are
 *		back in @outputs when they are disabled
 * @targets:	those of tasks, without the inherited ones; of both lists those that
 *		were disabled, or do not take records otherwise, are behind one that
 *		does, as soon as that is looked for
 * @settled:	how many had asked, or asked again, when last all who waited had been
 *		looked at, and what could be had of them had been written
 * @tried:	the same, when the time was over for those of whom nothing could be had
 * @given_up:	the same, when it was the last one for which it was over; until there is
 *		another @deadline, which sets it to 0
 * @gave_up:	some who wait were given up since that deadline, by the last one or by
 *		another. What is not written from then on is counted as lost
 * @drained:	the stacks that were walked from outside, by their cookies
 * @free_work:	frees it where sleeping is all right
 * @drain:	held by who writes stacks at the end of a profile; outside of
 *		cpu_hotplug_lock, of ctx->mutex, of child_mutex and of @lock
 * @rcu:	frees it behind those that still iterate over its events
 */
struct perf_defer_session {
	struct perf_defer_client	*client;
	struct perf_defer_client	own;
	struct hlist_node		node;
	struct list_head		shared;
	unsigned int			sharer;
	bool				immediate;
	atomic_long_t			asked;
	struct pid			*owner;
	u64				exec_id;
	refcount_t			refs;
	/* guards what is from here to @targets */
	raw_spinlock_t			lock;
	unsigned int			draining;
	unsigned int			turns;
	bool				fresh;
	unsigned long			deadline;
	unsigned long			looked;
	const struct perf_buffer	*full;
	bool				unread;
	unsigned long			room;
	unsigned long			nr_left;
	struct list_head		left;
	struct list_head		outputs;
	struct list_head		gone;
	struct list_head		targets;
	unsigned long			settled;
	unsigned long			tried;
	unsigned long			given_up;
	bool				gave_up;
	struct xarray			drained;
	struct work_struct		free_work;
	/* one end of a profile at a time */
	struct mutex			drain;
	struct rcu_head			rcu;
};

/*
 * Guards the table, changes of the list, which is read under RCU, and the step of a
 * session's count from and to 0.
 */
static DEFINE_MUTEX(sessions_mutex);
static DEFINE_HASHTABLE(sessions, 6);
static LIST_HEAD(shared_sessions);

/*
 * Registered at boot, so that there is always a client for a session. And so each CPU
 * keeps the buffer of its last walk, after the last session as well.
 */
static struct perf_defer_client shared_client = { .work.bit = -1 };

/*
 * Whose stack it is, and as of when. A task may get another number, in an execve() of a
 * thread, or lose it, before its stack is written by another; these keep it. And it may
 * exit, get another image or map other code until then, which is recorded at once: a
 * record whose event has that clock gets the time that was before that.
 */
struct perf_defer_origin {
	struct pid	*tgid;
	struct pid	*tid;
	/* NULL: as of its writing */
	u64		(*clock)(void);
	u64		time;
};

/* A record on its way to the events. */
struct perf_defer_output {
	struct perf_defer_session	*session;
	struct perf_event		*event;
	/* NULL: of the current task */
	const struct perf_defer_origin	*origin;
	struct unwind_stacktrace	*trace;
	/* an event took it, or counted it as lost */
	bool				written;
	/* to be written only if there is room, and not to be counted as lost */
	bool				careful;
	/* it could not: there was no room for so many bytes, or 0, see @lose */
	bool				full;
	unsigned int			size;
	/* for perf_defer_write_cpu(): of which CPU, and list of events */
	int				cpu;
	bool				gone;
	/* for perf_defer_call_cpu(): what may be done for a CPU that is offline, or was */
	enum {
		PERF_DEFER_ONLINE,	/* nothing */
		PERF_DEFER_HELD,	/* it stays offline */
		PERF_DEFER_LOSE,	/* its event may count a loss */
	}				hotplug;
	bool				offline;
	/* not to be written, but counted */
	bool				lose;
	/*
	 * an event would have taken it, and was not asked: it is of a CPU that the task
	 * may not have interrupted, or there was no memory to tell
	 */
	bool				missed;
	struct {
		struct perf_event_header	header;
		u64				cookie;
		u64				nr;
	} record;
};

/* The stack of a task that came out while an event was being disabled. */
struct perf_defer_left {
	struct list_head	node;
	struct task_struct	*task;
	const struct cred	*cred;
	struct perf_defer_origin origin;
	bool			dumpable;
	u64			cookie;
	unsigned int		nr;
	unsigned long		entries[] __counted_by(nr);
};

static bool perf_defer_get_origin(struct perf_defer_origin *origin,
				  struct task_struct *task)
{
	origin->clock = NULL;
	origin->tgid = get_task_pid(task, PIDTYPE_TGID);
	origin->tid = get_task_pid(task, PIDTYPE_PID);
	return origin->tgid && origin->tid;
}

/* It is as of now, by the clock of @event. */
static void perf_defer_set_time(struct perf_defer_origin *origin,
				struct perf_event *event)
{
	origin->clock = event->clock;
	origin->time = event->clock();
}

static void perf_defer_put_origin(struct perf_defer_origin *origin)
{
	put_pid(origin->tgid);
	put_pid(origin->tid);
}

static void perf_defer_left_free(struct perf_defer_left *left)
{
	perf_defer_put_origin(&left->origin);
	put_cred(left->cred);
	put_task_struct(left->task);
	kvfree(left);
}

/*
 * Of a mapping without data pages, which drops what is written without counting it,
 * nobody reads a record. Under RCU.
 */
static bool perf_defer_has_buffer_rcu(struct perf_event *event)
{
	/* As rcu_dereference(), for a pointer that is not declared as __rcu. */
	struct perf_buffer *rb = READ_ONCE((event->parent ?: event)->rb);

	return rb && rb->nr_pages;
}

/**
 * perf_defer_has_buffer - can records of an event be read?
 * @event:	the event
 *
 * Context: Any. By the time it returns it may have changed.
 * Return: whether it, or the one it was inherited from, has a buffer with data pages.
 */
bool perf_defer_has_buffer(struct perf_event *event)
{
	guard(rcu)();
	return perf_defer_has_buffer_rcu(event);
}

/*
 * How much does a record of @size need? As __perf_output_begin() has it: a
 * PERF_RECORD_LOST goes in front.
 */
static unsigned long perf_defer_needs(struct perf_event *event, struct perf_buffer *rb,
				      unsigned long size)
{
	if (local_read(&rb->lost))
		size += sizeof(struct perf_event_header) + 2 * sizeof(u64) +
			event->id_header_size;
	return size;
}

/*
 * Is there room for a record of @size? It is so where no other writer of the buffer
 * can be, and a hint elsewhere. A buffer that overwrites itself always has some, and one
 * that is written backwards is let find out by itself.
 */
static bool perf_defer_room(struct perf_event *event, unsigned long size)
{
	struct perf_buffer *rb;

	if (is_write_backward(event))
		return true;

	guard(rcu)();
	/* As rcu_dereference(), for a pointer that is not declared as __rcu. */
	rb = READ_ONCE((event->parent ?: event)->rb);
	if (!rb || rb->overwrite)
		return true;

	return CIRC_SPACE(local_read(&rb->head),
			  READ_ONCE(rb->user_page->data_tail),
			  perf_data_size(rb)) >= perf_defer_needs(event, rb, size);
}

static void perf_defer_write(struct perf_event *event,
			     struct perf_defer_output *output)
{
	/* perf_output_begin() and its like set what is read; too large to be cleared. */
	struct perf_output_handle handle __uninitialized;
	struct perf_sample_data sample __uninitialized;
	bool before = output->written;
	atomic64_t *lost_samples;
	unsigned int nr, room;
	s64 lost;

	/* Nobody can read it from here, and another event may take it. */
	if (unlikely(!perf_defer_has_buffer_rcu(event)))
		return;
	output->written = true;

	lost_samples = &(event->parent ?: event)->lost_samples;
	if (unlikely(output->lose)) {
		if (output->careful) {
			output->full = true;
			return;
		}
		/* As __perf_output_begin() has it. */
		atomic64_inc(lost_samples);
		return;
	}

	/* header.size has 16 bits. */
	room = U16_MAX - sizeof(output->record) - event->id_header_size;
	nr = min3(output->trace->nr, (unsigned int)event->attr.sample_max_stack,
		  room / (unsigned int)sizeof(u64));

	output->record.nr = nr;
	output->record.header = (struct perf_event_header){
		.type	= PERF_RECORD_CALLCHAIN_DEFERRED,
		.misc	= PERF_RECORD_MISC_USER,
		.size	= sizeof(output->record) + nr * sizeof(u64),
	};
	perf_event_add_id(&output->record.header, &sample, event);
	if (unlikely(output->careful) &&
	    !perf_defer_room(event, output->record.header.size)) {
		output->full = true;
		output->size = output->record.header.size;
		return;
	}
	lost = atomic64_read(lost_samples);
	if (perf_output_begin(&handle, &sample, event, output->record.header.size)) {
		/* Without a buffer, which has gone just now, no loss is counted. */
		output->written = before || atomic64_read(lost_samples) != lost;
		return;
	}

	/* Not before: a PERF_RECORD_LOST in front has set them anew. */
	if (unlikely(output->origin)) {
		struct pid_namespace *ns = (event->parent ?: event)->ns;

		sample.tid_entry.pid = pid_nr_ns(output->origin->tgid, ns);
		sample.tid_entry.tid = pid_nr_ns(output->origin->tid, ns);
		if (output->origin->clock == event->clock)
			sample.time = output->origin->time;
	}

	perf_output_put(&handle, output->record);
	__output_copy(&handle, output->trace->entries, nr * sizeof(u64));
	perf_event__output_id_sample(event, &handle, &sample);
	perf_output_end(&handle);
}

static void perf_defer_iterate(struct perf_event *event, void *data)
{
	struct perf_defer_output *output = data;
	struct perf_defer_session *session = output->session;

	if (!event->attr.defer_output || event->defer != session)
		return;

	perf_defer_write(event, output);
}

/*
 * Was the stack written at an earlier end of a profile, and no sample has named it
 * since?
 */
static bool perf_defer_is_drained(struct perf_defer_session *session, u64 cookie)
{
	struct perf_defer_drained *drained;

	guard(rcu)();
	drained = xa_load(&session->drained, cookie);
	return drained && !READ_ONCE(drained->again);
}

/* It is going to be written, as of now. False if that has been done already. */
static bool perf_defer_set_drained(struct perf_defer_session *session, u64 cookie,
				   struct perf_event *event,
				   struct perf_defer_origin *origin)
{
	struct perf_defer_drained *drained, *before;
	unsigned int again = 0;
	int err = -ENOMEM;

	drained = kzalloc(sizeof(*drained), GFP_KERNEL_ACCOUNT);

	xa_lock(&session->drained);
	if (drained)
		err = __xa_insert(&session->drained, cookie, drained, GFP_KERNEL_ACCOUNT);
	if (err == -EBUSY) {
		before = xa_load(&session->drained, cookie);
		again = xchg(&before->again, 0);
	}
	/*
	 * The record is not older than a sample that has not found the mark, which took
	 * its time before it looked, see perf_defer_name_drained(). Nor is it younger
	 * than what the task does when it has taken the mark away: that needs the lock.
	 * The sample has no barrier between its time and its look for the mark: what is
	 * moved there is less than by what the clocks of two CPUs may differ.
	 */
	smp_mb();
	perf_defer_set_time(origin, event);
	xa_unlock(&session->drained);

	if (likely(!err))
		return true;

	kfree(drained);
	/* Without memory it may be written again, at each look until its task has come by. */
	return err != -EBUSY || again;
}

/*
 * It has not been written after all. False if there is no mark: its task has come by and
 * taken it, or there was no memory for one.
 */
static bool perf_defer_unset_drained(struct perf_defer_session *session, u64 cookie)
{
	struct perf_defer_drained *drained;

	drained = xa_erase(&session->drained, cookie);
	if (!drained)
		return false;

	kfree_rcu(drained, rcu);
	return true;
}

/* Its task comes by, and does so only once. False if it has to be written. */
static bool perf_defer_take_drained(struct perf_defer_session *session, u64 cookie)
{
	struct perf_defer_drained *drained;
	bool again;

	drained = xa_erase(&session->drained, cookie);
	if (!drained)
		return false;

	/* So does perf_defer_set_drained(): one of the two finds it set, and writes. */
	again = xchg(&drained->again, 0);
	kfree_rcu(drained, rcu);
	return !again;
}

static void perf_defer_forget_drained(struct perf_defer_session *session)
{
	struct perf_defer_drained *drained;
	unsigned long cookie;

	xa_for_each(&session->drained, cookie, drained)
		perf_defer_unset_drained(session, cookie);
}

/* Of a session that shares its client: there is something to be written. */
static void perf_defer_count_own(struct perf_defer_session *session)
{
	/* Pairs with the first smp_rmb() in perf_defer_waiting(). */
	smp_mb__before_atomic();
	atomic_long_inc(&session->asked);
}

/* There is something to be written once more. */
static void perf_defer_count_again(struct perf_defer_session *session)
{
	if (unlikely(session->client == &shared_client)) {
		perf_defer_count_own(session);
		return;
	}
	/* Pairs with the last smp_rmb() in perf_defer_waiting(). */
	smp_wmb();
	this_cpu_inc(session->client->count->again);
}

/*
 * A sample names a stack: if that was written at an earlier end of a profile, it is to
 * be written again, behind the sample. Called in any context.
 */
static void perf_defer_name_drained(struct perf_defer_session *session, u64 cookie)
{
	struct perf_defer_drained *drained;

	guard(rcu)();
	drained = xa_load(&session->drained, cookie);
	if (!drained || READ_ONCE(drained->again))
		return;

	WRITE_ONCE(drained->again, 1);
	perf_defer_count_again(session);
}

/* The buffer's other writers are elsewhere, see the head of this file. */
static void perf_defer_write_here(void *data)
{
	struct perf_defer_output *output = data;

	perf_defer_write(output->event, output);
}

/*
 * Call @func where nobody else writes into the buffers of @cpu meanwhile. One that
 * is online stays so until it has answered; of one that is not it depends on
 * @output->hotplug.
 */
static void perf_defer_call_cpu(int cpu, smp_call_func_t func,
				struct perf_defer_output *output)
{
	static DEFINE_RAW_SPINLOCK(offline_lock);
	unsigned long flags;

	output->lose = false;
	if (!smp_call_function_single(cpu, func, output, 1))
		return;

	if (output->hotplug == PERF_DEFER_ONLINE) {
		output->offline = true;
		return;
	}
	if (output->hotplug == PERF_DEFER_HELD)
		lockdep_assert_cpus_held();
	else
		output->lose = true;

	/* The CPU is offline, and stays so or is not written to; nobody but us is there. */
	raw_spin_lock_irqsave(&offline_lock, flags);
	func(output);
	raw_spin_unlock_irqrestore(&offline_lock, flags);
}

/*
 * From here to cpus_read_unlock() no CPU comes or goes. Not cpus_read_lock(): one that
 * is going may wait for what the current task serves, a block device of user space for
 * one, and would wait for ever.
 */
static bool perf_defer_hold_cpus(unsigned int ms)
{
	unsigned long end = jiffies + msecs_to_jiffies(ms);

	while (!cpus_read_trylock()) {
		if (time_after_eq(jiffies, end))
			return false;
		schedule_timeout_uninterruptible(1);
	}
	return true;
}

/*
 * Have @ask call CPUs for @output, first where nothing has to be waited for. Returns
 * false when CPUs came and went for @ms, and @ask could not but count a loss.
 */
static bool perf_defer_ask(struct perf_defer_output *output,
			   void (*ask)(struct perf_defer_output *output),
			   unsigned int ms)
{
	bool held;

	output->hotplug = PERF_DEFER_ONLINE;
	output->offline = false;
	ask(output);
	if (likely(!output->offline || output->written))
		return true;

	held = perf_defer_hold_cpus(ms);
	output->hotplug = held ? PERF_DEFER_HELD : PERF_DEFER_LOSE;
	ask(output);
	if (held)
		cpus_read_unlock();
	return held;
}

static void perf_defer_ask_event_cpu(struct perf_defer_output *output)
{
	perf_defer_call_cpu(output->event->cpu, perf_defer_write_here, output);
}

static void perf_defer_write_remote(struct perf_defer_drain *drain,
				    struct perf_defer_output *output)
{
	if (output->event->cpu < 0) {
		perf_event_call(output->event, perf_defer_write_here, output);
		return;
	}

	/* Once an event that is disabled, however many stacks there are. */
	if (!perf_defer_ask(output, perf_defer_ask_event_cpu,
			    drain->hurry ? 0 : PERF_DEFER_HOTPLUG_MS))
		drain->hurry = true;
	output->lose = false;
}

/*
 * Is an event of the session being disabled, or has one been just now? The next one
 * that is will write what is left meanwhile.
 */
static bool perf_defer_is_ending(struct perf_defer_session *session)
{
	return READ_ONCE(session->draining) ||
	       (READ_ONCE(session->fresh) &&
		time_before(jiffies, READ_ONCE(session->deadline) + HZ));
}

/*
 * The first event of @session that has a buffer, even if it has been disabled. Where all
 * of these have been unmapped, the first one: its descriptor is there to be asked.
 */
static struct perf_event *perf_defer_first_readable(struct perf_defer_session *session)
{
	struct list_head *lists[] = { &session->outputs, &session->targets, &session->gone };
	struct perf_event *event, *first = NULL;
	unsigned int i;

	lockdep_assert_held(&session->lock);

	for (i = 0; i < ARRAY_SIZE(lists); i++) {
		list_for_each_entry(event, lists[i], defer_entry) {
			if (perf_defer_has_buffer(event))
				return event;
			first = first ?: event;
		}
	}
	return first;
}

/*
 * Nobody gets a stack, for want of memory or of an event that may be asked: it is lost,
 * and one event has to say so.
 */
static void perf_defer_count_lost(struct perf_defer_session *session)
{
	struct perf_event *event;

	scoped_guard(raw_spinlock_irqsave, &session->lock) {
		event = perf_defer_first_readable(session);
		if (event)
			atomic64_inc(&event->lost_samples);
	}
}

/* Is somebody disabling an event of the session, who takes one more stack? */
static bool perf_defer_takes_left(struct perf_defer_session *session)
{
	return perf_defer_is_ending(session) &&
	       READ_ONCE(session->nr_left) < READ_ONCE(session->room);
}

/* A copy of the stack for who is disabling an event, or NULL for want of memory. */
static struct perf_defer_left *perf_defer_copy(struct perf_defer_output *output)
{
	struct unwind_stacktrace *trace = output->trace;
	struct perf_defer_left *left;

	left = kvmalloc(struct_size(left, entries, trace->nr),
			GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!left)
		return NULL;

	left->task = get_task_struct(current);
	perf_defer_get_origin(&left->origin, current);
	/* The task may be gone, or somebody else's, when its stack is shown. */
	left->cred = get_task_cred(current);
	left->dumpable = get_dumpable(current->mm) == SUID_DUMP_USER;
	left->cookie = output->record.cookie;
	left->nr = trace->nr;
	memcpy(left->entries, trace->entries, trace->nr * sizeof(u64));
	return left;
}

/* Has somebody been given the stack who is disabling an event of the session? */
static bool perf_defer_give(struct perf_defer_session *session,
			    struct perf_defer_output *output)
{
	struct perf_defer_left *left;
	struct perf_event *event;

	if (likely(!perf_defer_takes_left(session)))
		return false;

	left = perf_defer_copy(output);
	if (!left) {
		output->missed = true;
		return false;
	}

	scoped_guard(raw_spinlock_irq, &session->lock) {
		if (perf_defer_takes_left(session)) {
			/* All of a session have one clock, or its time is that of the writing. */
			event = perf_defer_first_readable(session);
			if (event)
				perf_defer_set_time(&left->origin, event);
			WRITE_ONCE(session->nr_left, session->nr_left + 1);
			list_add_tail(&left->node, &session->left);
			return true;
		}
	}
	perf_defer_left_free(left);
	return false;
}

/*
 * Has an event been disabled, and were some of those who waited given up? What is not
 * written from then on nobody else counts.
 */
static bool perf_defer_gave_up(struct perf_defer_session *session)
{
	/*
	 * Behind perf_defer_is_ending(). Pairs with perf_defer_give_up(): who does not
	 * find the one ending sees that it gave up.
	 */
	smp_rmb();
	return READ_ONCE(session->gave_up);
}

/* With the session's @drain held. */
static void perf_defer_give_up(struct perf_defer_session *session)
{
	WRITE_ONCE(session->gave_up, true);
	/*
	 * Until perf_defer_drain_left() ends it, they may leave it there. Pairs with
	 * perf_defer_gave_up().
	 */
	smp_wmb();
}

/* Leave the stack with who is disabling an event of the session, if anybody. */
static void perf_defer_leave(struct perf_defer_output *output)
{
	struct perf_defer_session *session = output->session;

	/*
	 * Behind the looks at the events: who disables one has called
	 * perf_defer_drain_begin() before that, with barriers in between for the
	 * event's CPU to be asked. One of the two sees the other.
	 */
	smp_rmb();
	if (perf_defer_give(session, output))
		return;

	/*
	 * An event would have taken it and could not be asked, or nobody who is disabling
	 * one has room for it, or who disabled one has not waited for it.
	 */
	if (unlikely(output->missed || perf_defer_is_ending(session) ||
		     perf_defer_gave_up(session)))
		perf_defer_count_lost(session);
}

/*
 * Is it enabled? The event is kept by the lock of the session, whose list it was
 * found in, or by RCU, in the list of a context.
 */
static bool perf_defer_counts(struct perf_event *event)
{
	/* Pairs with perf_install_in_context(), as for all side-band records. */
	return smp_load_acquire(&event->ctx) &&
	       READ_ONCE(event->state) >= PERF_EVENT_STATE_INACTIVE;
}

/**
 * perf_defer_cpu_exit - the CPU of an event goes offline
 * @event:	the event, which is about to be taken out of its context
 *
 * It does not come back with the CPU. The samples that it took are in its buffer, and
 * so that is where their stacks belong, until it is disabled.
 *
 * Context: On that CPU, interrupts off, cpu_hotplug_lock held for writing.
 */
void perf_defer_cpu_exit(struct perf_event *event)
{
	struct perf_defer_session *session = event->defer;

	if (!session || !event->attr.defer_output || !perf_defer_counts(event))
		return;

	raw_spin_lock(&session->lock);
	if (!list_empty(&event->defer_entry))
		list_move(&event->defer_entry, &session->gone);
	raw_spin_unlock(&session->lock);
}

/* Does it take records? One that is @gone does until it is disabled, or freed. */
static bool perf_defer_counts_or(struct perf_event *event, bool gone)
{
	if (gone)
		return READ_ONCE(event->state) > PERF_EVENT_STATE_DEAD;
	return perf_defer_counts(event);
}

/* The next CPU after @cpu that the session records, or did until the CPU was @gone. */
static int perf_defer_next_cpu(struct perf_defer_session *session, int cpu, bool gone)
{
	struct list_head *list = gone ? &session->gone : &session->outputs;
	struct perf_event *event;
	unsigned long flags;
	int next = -1;

	/* Who is on its way from the one list to the other is waited for in the second. */
	if (!gone && list_empty_careful(list))
		return -1;

	raw_spin_lock_irqsave(&session->lock, flags);
	list_for_each_entry(event, list, defer_entry) {
		if (event->cpu > cpu && (next < 0 || event->cpu < next) &&
		    perf_defer_has_buffer(event) &&
		    perf_defer_counts_or(event, gone))
			next = event->cpu;
	}
	raw_spin_unlock_irqrestore(&session->lock, flags);
	return next;
}

/* Called by perf_defer_call_cpu(), with interrupts off. */
static void perf_defer_write_cpu(void *data)
{
	struct perf_defer_output *output = data;
	struct perf_defer_session *session = output->session;
	struct perf_event *event;

	/* Their events stay until perf_defer_exit() has got the lock. */
	raw_spin_lock(&session->lock);
	list_for_each_entry(event, output->gone ? &session->gone : &session->outputs,
			    defer_entry) {
		if (event->cpu != output->cpu ||
		    !perf_defer_counts_or(event, output->gone))
			continue;
		perf_defer_write(event, output);
		if (output->written)
			break;
	}
	raw_spin_unlock(&session->lock);
}

/*
 * To an event that may have been removed or disabled since it was looked at. Called by
 * perf_defer_call_cpu(), with interrupts off.
 */
static void perf_defer_write_counting(void *data)
{
	struct perf_defer_output *output = data;
	struct perf_defer_session *session = output->session;
	struct perf_event *event = output->event;

	/*
	 * What is in the list has perf_defer_exit() yet to come, which waits for the
	 * irq_work that wakes the readers. It is that of the event with the buffer.
	 */
	raw_spin_lock(&session->lock);
	if (!list_empty(&(event->parent ?: event)->defer_entry) &&
	    perf_defer_counts(event))
		perf_defer_write(event, output);
	raw_spin_unlock(&session->lock);
}

/*
 * To an event of the current task that counts on some other CPU only, be it offline.
 * The event and its parent are freed by call_rcu() in __free_event(), so they are there
 * until that CPU has answered.
 *
 * Whoever may open an event of their own task for any CPU may not have one interrupted
 * that the task is kept from, which is not @allowed, as often as it enters the kernel.
 * One that is offline or on its way there is not, and who ends a profile may. Without
 * memory @allowed is NULL, for none that is there.
 */
static void perf_defer_write_task_on(struct perf_defer_output *output,
				     const struct cpumask *allowed)
{
	struct perf_event_context *ctx;
	struct perf_event *event;

	guard(rcu)();
again:
	/* As rcu_dereference(), for a pointer that is not declared as __rcu. */
	ctx = READ_ONCE(current->perf_event_ctxp);
	if (!ctx)
		return;

	list_for_each_entry_rcu(event, &ctx->event_list, event_entry) {
		/* Buffers are limited, and a CPU is not asked for less. */
		if (event->cpu < 0 || !event->attr.defer_output ||
		    event->defer != output->session ||
		    !perf_defer_has_buffer(event) || !perf_defer_counts(event))
			continue;
		/* Not cpu_online(): from then on the task is kept from a CPU that goes. */
		if (cpu_active(event->cpu) &&
		    !(allowed && cpumask_test_cpu(event->cpu, allowed))) {
			output->missed = true;
			continue;
		}

		output->event = event;
		perf_defer_call_cpu(event->cpu, perf_defer_write_counting, output);
		if (output->written)
			return;
	}
	/* A switch to a task with the same events has swapped it, and that one may be dead. */
	if (READ_ONCE(current->perf_event_ctxp) != ctx)
		goto again;
}

static void perf_defer_write_task(struct perf_defer_output *output)
{
	cpumask_var_t allowed;

	/* Most tasks have no events of their own. */
	if (!READ_ONCE(current->perf_event_ctxp))
		return;

	if (!alloc_cpumask_var(&allowed, GFP_KERNEL | __GFP_NOWARN)) {
		perf_defer_write_task_on(output, NULL);
		return;
	}

	cpuset_cpus_allowed(current, allowed);
	perf_defer_write_task_on(output, allowed);
	free_cpumask_var(allowed);
}

/* To an event that does not count here: see the head of this file. */
static void perf_defer_ask_cpus(struct perf_defer_output *output)
{
	int cpu, gone;

	perf_defer_write_task(output);
	/* In this order: an event whose CPU goes meanwhile is found again. */
	for (gone = 0; gone < 2 && !output->written; gone++) {
		output->gone = gone;
		for (cpu = -1; !output->written; ) {
			cpu = perf_defer_next_cpu(output->session, cpu, gone);
			if (cpu < 0)
				break;
			output->cpu = cpu;
			perf_defer_call_cpu(cpu, perf_defer_write_cpu, output);
		}
	}
}

static void perf_defer_write_elsewhere(struct perf_defer_output *output)
{
	/* Those CPUs run other tasks. */
	struct perf_defer_origin origin = {
		.tgid	= task_tgid(current),
		.tid	= task_pid(current),
	};

	output->origin = &origin;
	output->missed = false;
	perf_defer_ask(output, perf_defer_ask_cpus, PERF_DEFER_HOTPLUG_MS);
	output->origin = NULL;
	output->lose = false;
}

static void perf_defer_deliver(struct perf_defer_session *session,
			       struct perf_defer_output *output)
{
	/* Was it walked from outside before? */
	if (unlikely(!xa_empty(&session->drained)) &&
	    perf_defer_take_drained(session, output->record.cookie))
		return;

	output->session = session;
	output->written = false;
	perf_iterate_sb(perf_defer_iterate, output, NULL);
	if (likely(output->written))
		return;

	perf_defer_write_elsewhere(output);
	if (!output->written)
		perf_defer_leave(output);
}

/* After the last of a session's events nobody finds it any more. */
static void perf_defer_put(struct perf_defer_session *session)
{
	if (!refcount_dec_and_mutex_lock(&session->refs, &sessions_mutex))
		return;

	hash_del(&session->node);
	list_del_rcu(&session->shared);
	mutex_unlock(&sessions_mutex);

	/* Cancelling waits for grace periods, which closing a file should not. */
	queue_work(system_unbound_wq, &session->free_work);
}

/*
 * The session behind @session of those that share a client, which is put. The
 * reference keeps it in the list until then. Only those in @sharers.
 */
static struct perf_defer_session *
perf_defer_next_shared(struct perf_defer_session *session, unsigned long sharers)
{
	struct perf_defer_session *last = session, *next = NULL;

	scoped_guard(rcu) {
		session = list_prepare_entry(session, &shared_sessions, shared);
		list_for_each_entry_continue_rcu(session, &shared_sessions, shared) {
			if ((sharers & BIT(session->sharer)) &&
			    refcount_inc_not_zero(&session->refs)) {
				next = session;
				break;
			}
		}
	}
	if (last)
		perf_defer_put(last);
	return next;
}

/*
 * @session is about to ask for the current task's stack. Has it not before? Called in
 * any context. The callback needs no barrier to see the bit: it runs in this task. Who
 * ends the profile has disabled the event on this CPU before, and so sees it as well.
 */
static bool perf_defer_share(struct perf_defer_session *session)
{
	unsigned long *sharers = &current->perf_defer_sharers;

	return !test_bit(session->sharer, sharers) &&
	       !test_and_set_bit(session->sharer, sharers);
}

/*
 * It does not wait after all, unless an interrupt has asked for it. Who has done so keeps
 * the bit, or perf_defer_is_shared_with() would pass by. An NMI may ask just before the
 * bit is cleared, which is set again then: interrupts are off until it is, so an event
 * that has asked is disabled behind that, by an interrupt of this CPU, see above.
 */
static void perf_defer_unshare(struct perf_defer_session *session)
{
	guard(irqsave)();
	if (unwind_deferred_waits(&shared_client.work, current))
		return;
	clear_bit(session->sharer, &current->perf_defer_sharers);
	if (unlikely(unwind_deferred_waits(&shared_client.work, current)))
		set_bit(session->sharer, &current->perf_defer_sharers);
}

/* For whom is the stack of the current task that has been taken? */
static unsigned long perf_defer_take_sharers(void)
{
	unsigned long sharers;
	unsigned int bit;

	/* As in perf_defer_unshare(): some may have asked since, for the next one. */
	guard(irqsave)();
	if (unlikely(unwind_deferred_waits(&shared_client.work, current)))
		return READ_ONCE(current->perf_defer_sharers);
	sharers = xchg(&current->perf_defer_sharers, 0);
	if (unlikely(unwind_deferred_waits(&shared_client.work, current))) {
		for_each_set_bit(bit, &sharers, BITS_PER_LONG)
			set_bit(bit, &current->perf_defer_sharers);
	}
	return sharers;
}

/* Give a session that shares a number which none of the others has. False if none is left. */
static bool perf_defer_new_sharer(struct perf_defer_session *new)
{
	static unsigned int last;
	struct perf_defer_session *session;
	unsigned long free = ~0UL;

	lockdep_assert_held(&sessions_mutex);

	list_for_each_entry(session, &shared_sessions, shared)
		free &= ~BIT(session->sharer);
	if (!free)
		return false;
	/* As late as can be again: some task may still have the bit of one that went. */
	last = find_next_bit_wrap(&free, BITS_PER_LONG, (last + 1) % BITS_PER_LONG);
	new->sharer = last;
	return true;
}

/* May @task wait for this session? The bit may be left from one that had it before. */
static bool perf_defer_is_shared_with(struct perf_defer_session *session,
				      struct task_struct *task)
{
	return session->client != &shared_client ||
	       test_bit(session->sharer, &task->perf_defer_sharers);
}

/**
 * perf_defer_task_init - a new task has not been sampled
 * @task:	the task, a copy of the current one, which nobody else knows yet
 *
 * Context: Task context, in copy_process(). Takes no lock.
 */
void perf_defer_task_init(struct task_struct *task)
{
	task->perf_defer_sharers = 0;
}

static void perf_defer_callback(struct unwind_work *work,
				struct unwind_stacktrace *trace, u64 cookie)
{
	struct perf_defer_client *client =
		container_of(work, struct perf_defer_client, work);
	struct perf_defer_output output __uninitialized;
	struct perf_defer_session *session = NULL;
	unsigned long sharers;

	output.origin = NULL;
	output.careful = false;
	output.lose = false;
	output.trace = trace;
	output.record.cookie = cookie;

	/* A trace goes into the buffer as it is. */
	static_assert(sizeof(*trace->entries) == sizeof(u64));

	if (likely(client != &shared_client)) {
		session = container_of(client, struct perf_defer_session, own);
		perf_defer_deliver(session, &output);
	} else {
		sharers = perf_defer_take_sharers();
		while ((session = perf_defer_next_shared(session, sharers)))
			perf_defer_deliver(session, &output);
	}

	/* After the record is where it belongs, for perf_defer_drain_end(). */
	this_cpu_inc(client->count->done);
}

/*
 * Callchains that are all deferred, for a sample in each context that can
 * interrupt the others: nr, the marker, the cookie.
 */
static DEFINE_PER_CPU(u64 [PERF_NR_CONTEXTS][3], defer_chains);

/*
 * The stack has been asked for before, in this entry. Returns 1 for one that waits; 0
 * where there is none to wait for; -ESRCH where the record has been written, and a
 * reader may have passed it: it is not named any more, and what has just been walked
 * can be read at once.
 */
static __always_inline int perf_defer_join(struct perf_event *event, u64 cookie)
{
	struct perf_defer_session *session = event->defer;

	if (unlikely(!unwind_deferred_still_waits(&session->client->work)))
		return unwind_deferred_between_images() ? 0 : -ESRCH;

	if (unlikely(!xa_empty(&session->drained)))
		perf_defer_name_drained(session, cookie);
	return 1;
}

/**
 * perf_callchain_deferred - the callchain of a sample, with the user part deferred
 * @event:	the event, with attr.defer_callchain; its callchain has a user part,
 *		and it counts the current task
 * @regs:	of the sample
 *
 * Context: Any, NMI included.
 * Return: the callchain; NULL when it cannot be deferred, and the user part is to
 * be walked at once.
 */
struct perf_callchain_entry *
perf_callchain_deferred(struct perf_event *event, struct pt_regs *regs)
{
	u64 cookie __uninitialized;
	struct perf_defer_client *client = event->defer->client;
	bool kernel = !event->attr.exclude_callchain_kernel;
	u32 max_stack = event->attr.sample_max_stack;
	struct perf_callchain_entry *entry;
	unsigned int contexts;
	bool joins = false, none = false;
	u64 *chain;
	int ret;

	/* A guest's user stack is not this task's. */
	if (perf_guest_state())
		return NULL;

	/* BPF programs that read the callchain know nothing of cookies. */
	if (event->prog)
		return NULL;

	/* Its limit may disable it within this entry, and then it takes no record. */
	if (event->attr.defer_output &&
	    (atomic_read(&event->event_limit) || event->pending_disable))
		return NULL;

	/*
	 * The marker and the cookie both take room that is set aside for context
	 * markers. There is enough for both, or neither is stored.
	 */
	kernel = kernel && !user_mode(regs);
	contexts = kernel ? 3 : 2;
	if (contexts > READ_ONCE(sysctl_perf_event_max_contexts_per_stack))
		return NULL;

	if (unlikely(client == &shared_client))
		joins = perf_defer_share(event->defer);
	/* Before it waits: who counts them meanwhile must not miss it. */
	this_cpu_inc(client->count->asked);
	if (unlikely(client == &shared_client))
		perf_defer_count_own(event->defer);
	ret = unwind_deferred_request_max(&client->work, max_stack, &cookie);
	if (ret) {
		if (ret > 0)
			ret = perf_defer_join(event, cookie);
		else if (unwind_deferred_between_images())
			ret = 0;
		if (unlikely(joins) && ret <= 0)
			perf_defer_unshare(event->defer);
		/* Behind that, for the same reason. No callback is run for it. */
		this_cpu_inc(client->count->done);
		if (ret < 0)
			return NULL;
		none = !ret;
	}

	if (!kernel) {
		chain = this_cpu_ptr(defer_chains)[interrupt_context_level()];
		chain[0] = none ? 0 : 2;
		chain[1] = PERF_CONTEXT_USER_DEFERRED;
		chain[2] = cookie;
		return (struct perf_callchain_entry *)chain;
	}

	entry = get_perf_callchain(regs, true, false, max_stack, false, true);
	if (!entry)
		return NULL;
	if (unlikely(none))
		return entry;

	entry->ip[entry->nr++] = PERF_CONTEXT_USER_DEFERRED;
	entry->ip[entry->nr++] = cookie;
	return entry;
}

static int perf_defer_client_init(struct perf_defer_client *client)
{
	int err;

	client->count = alloc_percpu_gfp(struct perf_defer_count,
					 GFP_KERNEL_ACCOUNT);
	if (!client->count)
		return -ENOMEM;

	err = unwind_deferred_init(&client->work, perf_defer_callback,
				   UNWIND_USER_MAX_ENTRIES);
	if (err) {
		free_percpu(client->count);
		client->count = NULL;
	}
	return err;
}

/*
 * How many wait; at times more, never less: a sample is counted before it asks. Who is
 * seen to be done has asked before, maybe on another CPU: that is seen then, too. Of a
 * client that is shared these are all who share it. @all grows with each of whom there is
 * something to be written for this session.
 */
static unsigned long perf_defer_waiting(struct perf_defer_session *session,
					unsigned long *all)
{
	struct perf_defer_client *client = session->client;
	unsigned long asked = 0, done = 0, again = 0, own;
	int cpu;

	own = atomic_long_read(&session->asked);
	/*
	 * Whose request is counted in @asked of the session is counted among all: pairs
	 * with perf_defer_count_own(). And with perf_defer_share(), see below.
	 */
	smp_rmb();
	for_each_possible_cpu(cpu)
		done += READ_ONCE(per_cpu_ptr(client->count, cpu)->done);
	/* Pairs with the switch of a task from the one CPU to the other. */
	smp_mb();
	for_each_possible_cpu(cpu) {
		asked += READ_ONCE(per_cpu_ptr(client->count, cpu)->asked);
		if (all)
			again += READ_ONCE(per_cpu_ptr(client->count, cpu)->again);
	}
	/*
	 * Who is seen to have asked again is seen in perf_defer_is_drained(), too. Pairs
	 * with perf_defer_count_again(). Who is seen to have asked is seen in
	 * perf_defer_is_shared_with(): the test_and_set_bit() in perf_defer_share() comes
	 * before the count.
	 */
	smp_rmb();
	if (all)
		*all = client == &shared_client ? own : asked + again;
	return asked - done;
}

static void perf_defer_free(struct work_struct *work)
{
	struct perf_defer_session *session =
		container_of(work, struct perf_defer_session, free_work);
	struct perf_defer_left *left, *next;

	if (session->client == &session->own) {
		unwind_deferred_cancel(&session->own.work);
		free_percpu(session->own.count);
	}
	perf_defer_forget_drained(session);
	/* Left to somebody who was killed. */
	list_for_each_entry_safe(left, next, &session->left, node)
		perf_defer_left_free(left);
	put_pid(session->owner);
	kfree_rcu(session, rcu);
}

static struct perf_defer_session *perf_defer_session_new(struct pid *owner)
{
	struct perf_defer_session *session;
	int err;

	session = kzalloc(sizeof(*session), GFP_KERNEL_ACCOUNT);
	if (!session)
		return NULL;

	raw_spin_lock_init(&session->lock);
	mutex_init(&session->drain);
	INIT_LIST_HEAD(&session->left);
	INIT_LIST_HEAD(&session->outputs);
	INIT_LIST_HEAD(&session->gone);
	INIT_LIST_HEAD(&session->targets);
	INIT_LIST_HEAD(&session->shared);
	xa_init_flags(&session->drained, XA_FLAGS_ACCOUNT);

	session->client = &session->own;
	err = perf_defer_client_init(&session->own);
	if (err == -EBUSY) {
		session->client = &shared_client;
		session->immediate = !perf_defer_new_sharer(session);
	} else if (err) {
		kfree(session);
		return NULL;
	}

	refcount_set(&session->refs, 1);
	session->deadline = jiffies - HZ;
	session->looked = session->deadline - 1;
	session->owner = get_pid(owner);
	session->exec_id = current->self_exec_id;
	INIT_WORK(&session->free_work, perf_defer_free);
	hash_add(sessions, &session->node, (unsigned long)owner);
	if (session->client == &shared_client && !session->immediate)
		list_add_tail_rcu(&session->shared, &shared_sessions);
	return session;
}

/* The session of the current process, @owner, with a reference. */
static struct perf_defer_session *perf_defer_session_get(struct pid *owner)
{
	struct perf_defer_session *session;

	guard(mutex)(&sessions_mutex);

	hash_for_each_possible(sessions, session, node, (unsigned long)owner) {
		if (session->owner == owner &&
		    session->exec_id == current->self_exec_id) {
			refcount_inc(&session->refs);
			return session;
		}
	}
	return perf_defer_session_new(owner);
}

/*
 * Does the event happen behind the last look for work on the way to user space? What
 * is asked for there is walked after user space has run, if at all: its stack is gone.
 * Some, of arch_exit_to_user_mode_prepare(), come with the FPU's state and with the
 * MSRs of KVM; others behind the place where the marks of kernel/unwind are taken back:
 * a request there would look like one of the next kernel entry.
 */
static bool perf_defer_too_late(struct perf_event *event)
{
#ifdef CONFIG_EVENT_TRACING
	const char *system;

	/* A BPF program can write to it from those tracepoints. */
	if (event->attr.type == PERF_TYPE_SOFTWARE &&
	    event->attr.config == PERF_COUNT_SW_BPF_OUTPUT)
		return true;
	if (event->attr.type != PERF_TYPE_TRACEPOINT || !event->tp_event)
		return false;

	system = event->tp_event->class->system;
	return !strcmp(system, "preemptirq") || !strcmp(system, "x86_fpu") ||
	       !strcmp(system, "msr");
#else
	return false;
#endif
}

/**
 * perf_defer_init - make a new event part of a session
 * @event:	the event; ->parent and ->attr are set
 *
 * An inherited event is of its parent's session, another one of that of the
 * process that opens it. What can sample in the last steps to user space, and what is
 * of a session for which there is no room, keeps its immediate callchains:
 * @event->attr.defer_callchain is cleared.
 *
 * Context: Task context, may sleep. Takes sessions_mutex.
 * Return: 0 or -ENOMEM.
 */
int perf_defer_init(struct perf_event *event)
{
	struct perf_defer_session *session;

	if (perf_defer_too_late(event))
		event->attr.defer_callchain = 0;
	if (!event->attr.defer_callchain && !event->attr.defer_output)
		return 0;

	if (event->parent) {
		session = event->parent->defer;
		refcount_inc(&session->refs);
	} else {
		session = perf_defer_session_get(task_tgid(current));
		if (!session)
			return -ENOMEM;
		event->defer_ended = event->attr.disabled;
	}
	event->defer = session;
	if (session->immediate)
		event->attr.defer_callchain = 0;

	INIT_LIST_HEAD(&event->defer_entry);
	if (event->attr.defer_output && !(event->hw.target && event->parent)) {
		raw_spin_lock_irq(&session->lock);
		list_add_tail(&event->defer_entry, event->hw.target ?
			      &session->targets : &session->outputs);
		raw_spin_unlock_irq(&session->lock);
	}
	return 0;
}

/**
 * perf_defer_exit - take a dying event out of its session
 * @event:	the event; it does not sample any more
 *
 * Context: Task context, may sleep. Takes sessions_mutex for the last event of a
 * session, and does not wait for requests or callbacks of others.
 */
void perf_defer_exit(struct perf_event *event)
{
	struct perf_defer_session *session = event->defer;

	if (!session)
		return;

	/* Inherited ones are in no list. */
	if (!list_empty(&event->defer_entry)) {
		raw_spin_lock_irq(&session->lock);
		list_del_init(&event->defer_entry);
		raw_spin_unlock_irq(&session->lock);
		/*
		 * While it was in the list another CPU may have written to it, so that
		 * there is a reader to wake, since _free_event() did this.
		 */
		if (irq_work_is_busy(&event->pending_irq))
			irq_work_sync(&event->pending_irq);
	}
	perf_defer_put(session);
}

/* As perfmon_capable(), for a look at each task, of which none is to be audited. */
static bool perf_defer_capable(void)
{
	return ns_capable_noaudit(&init_user_ns, CAP_PERFMON) ||
	       ns_capable_noaudit(&init_user_ns, CAP_SYS_ADMIN);
}

/*
 * May the current task open such an event for all tasks? As perf_allow_cpu() has it,
 * but for the security module, which was asked when the event was opened.
 */
static bool perf_defer_may_show_all(struct perf_event *event)
{
	return (!event->hw.target && sysctl_perf_event_paranoid <= 0) ||
	       perf_defer_capable();
}

/*
 * The current task must have been allowed to open the event for @task. After an
 * execve() that gives the task more rights than that, nobody waits for it.
 */
static bool perf_defer_may_show(struct perf_event *event,
				struct task_struct *task)
{
	return ptrace_may_access(task, PTRACE_MODE_READ_REALCREDS |
				       PTRACE_MODE_NOAUDIT) ||
	       perf_defer_may_show_all(event);
}

/*
 * Does the event take records, or do those that were inherited from it, which are in
 * no list? It is not enabled any more when its own task has exited, and they are, if it
 * ever was, until it is disabled. Looked at without child_mutex, and while others may
 * enable it: who asks needs to know of what was done before, no more, and has no order
 * to keep with it.
 */
static bool perf_defer_takes(struct perf_event *event)
{
	return perf_defer_counts(event) ||
	       (READ_ONCE(event->state) == PERF_EVENT_STATE_EXIT &&
		!READ_ONCE(event->defer_ended) && !list_empty(&event->child_list));
}

/**
 * perf_defer_disable - an event is about to be disabled
 * @event:	the event; those that were inherited from it are disabled with it
 *
 * Context: Task context, ctx->mutex and ctx->lock held.
 */
void perf_defer_disable(struct perf_event *event)
{
	if (event->attr.defer_output)
		WRITE_ONCE(event->defer_ended, true);
}

/**
 * perf_defer_enable - an event is about to be enabled
 * @event:	the event; those that were inherited from it are enabled with it, or it is
 *		one of these, alone
 *
 * Context: Any, while nobody else disables it: ctx->mutex held, or ctx->lock by its own
 * task that enables it in an execve(). An inherited one may be enabled so while the event
 * that it is from is disabled: then the latter may count as one that takes records until
 * it is disabled again, and what it would have taken is not counted as lost.
 */
void perf_defer_enable(struct perf_event *event)
{
	/* One of those that were inherited takes records again. */
	event = event->parent ?: event;
	if (READ_ONCE(event->defer_ended))
		WRITE_ONCE(event->defer_ended, false);
}

/*
 * Does an event of the list take records, other than @event? It is the first one then, and
 * those that do not, as their tasks are dead, are behind it: each is passed once, however
 * many are disabled one after the other. Not turned where it is the first already: the list
 * of a single one would look empty to who does not lock it, and so would its entry.
 */
static bool perf_defer_list_takes(struct list_head *list, struct perf_event *event)
{
	struct perf_event *other;

	list_for_each_entry(other, list, defer_entry) {
		if (other == event || !perf_defer_takes(other) ||
		    !perf_defer_has_buffer(other))
			continue;
		if (!list_is_first(&other->defer_entry, list))
			list_rotate_to_front(&other->defer_entry, list);
		return true;
	}
	return false;
}

/*
 * Does no other event of the session take records? Those that were disabled are at
 * the ends of the lists, so the first ones tell.
 */
static bool perf_defer_last_takes(struct perf_event *event)
{
	struct perf_defer_session *session = event->defer;
	struct perf_event *other;

	lockdep_assert_held(&session->lock);

	if (perf_defer_list_takes(&session->outputs, event) ||
	    perf_defer_list_takes(&session->targets, event))
		return false;
	list_for_each_entry(other, &session->gone, defer_entry) {
		if (other != event && perf_defer_has_buffer(other))
			return false;
	}
	return true;
}

/*
 * Has @task an event of the session to give a record to when it comes out? Those of
 * whole CPUs take it, or those of its own context, however many there are of others. Not
 * one that came there with a context that was swapped: that is another task's.
 */
static bool perf_defer_has_taker(struct perf_defer_session *session,
				 struct task_struct *task)
{
	struct perf_event_context *ctx;
	struct perf_event *event;

	scoped_guard(raw_spinlock_irq, &session->lock) {
		list_for_each_entry(event, &session->outputs, defer_entry) {
			if (perf_defer_takes(event) && perf_defer_has_buffer(event))
				return true;
		}
	}

	guard(rcu)();
	/* As rcu_dereference(), for a pointer that is not declared as __rcu. */
	ctx = READ_ONCE(task->perf_event_ctxp);
	if (!ctx)
		return false;

	list_for_each_entry_rcu(event, &ctx->event_list, event_entry) {
		if (event->attr.defer_output && event->defer == session &&
		    event->hw.target == task && perf_defer_counts(event) &&
		    perf_defer_has_buffer_rcu(event))
			return true;
	}
	return false;
}

/* And has no other one that is being disabled its turn yet? */
static bool perf_defer_is_last(struct perf_defer_drain *drain)
{
	struct perf_defer_session *session = drain->event->defer;
	bool last;

	lockdep_assert_held(&session->drain);

	raw_spin_lock_irq(&session->lock);
	last = session->turns == drain->turn && perf_defer_last_takes(drain->event);
	raw_spin_unlock_irq(&session->lock);
	return last;
}

/* Would a record of @size fit if all of the buffer had been read? */
static bool perf_defer_fits(struct perf_event *event, unsigned long size)
{
	struct perf_buffer *rb;

	guard(rcu)();
	/* As rcu_dereference(), for a pointer that is not declared as __rcu. */
	rb = READ_ONCE(event->rb);
	return rb && perf_defer_needs(event, rb, size) < perf_data_size(rb);
}

/*
 * Wait until there seems to be room for a record of @size, for @naps at most, of which
 * what is left remains. The event's CPU is not interrupted meanwhile.
 */
static bool perf_defer_wait_room(struct perf_defer_drain *drain, unsigned int size,
				 unsigned int *naps)
{
	struct perf_defer_session *session = drain->event->defer;

	lockdep_assert_held(&session->drain);

	if (session->unread || !perf_defer_fits(drain->event, size))
		return false;

	while (*naps) {
		--*naps;
		schedule_timeout_killable(1);
		if (fatal_signal_pending(current))
			return false;
		if (perf_defer_room(drain->event, size))
			return true;
	}
	session->unread = true;
	return false;
}

/*
 * No other event is there to leave it to. Another thread or process may be about to read
 * the buffer of the last one, a profiler that writes to a disk for one, and gets some time
 * to make room. What there is none for then is counted as lost.
 */
static void perf_defer_write_last(struct perf_defer_drain *drain,
				  struct perf_defer_output *output)
{
	/*
	 * Counted, and not by the clock: who reads may have been held up with all others.
	 * One of a tick takes two, as what is left of the current tick does not count.
	 */
	unsigned int naps = DIV_ROUND_UP(msecs_to_jiffies(PERF_DEFER_ROOM_MS), 2);

	output->careful = perf_defer_is_last(drain);
	for (;;) {
		output->full = false;
		output->size = 0;
		output->written = false;
		perf_defer_write_remote(drain, output);
		/* Only a careful one finds it so. */
		if (!output->full)
			break;

		/* Its CPU, if it was that, has been waited for. */
		output->careful = output->size &&
				  perf_defer_wait_room(drain, output->size, &naps);
	}
}

/* Nobody needs to leave a stack to this one. */
static void perf_defer_end_turn(struct perf_defer_drain *drain)
{
	lockdep_assert_held(&drain->event->defer->lock);

	drain->event->defer->turns -= drain->turn;
	drain->turn = false;
}

static bool perf_defer_same_tid(const struct perf_defer_origin *origin,
				struct task_struct *task)
{
	guard(rcu)();
	return task_pid(task) == origin->tid;
}

/* Is this the stack that @task waits for? */
static bool perf_defer_waits_for(struct perf_defer_session *session,
				 struct task_struct *task, u64 cookie)
{
	/* In this order: it has not been another's before, as none returns. */
	return unwind_deferred_waits(&session->client->work, task) &&
	       READ_ONCE(task->unwind_info.cookie) == cookie;
}

/*
 * It has not been written after all, and is to be by another. One that there was no
 * memory to mark its task writes by itself as soon as it comes by. False if it is
 * nobody's any more.
 */
static bool perf_defer_leave_drained(struct perf_defer_session *session,
				     struct task_struct *task, u64 cookie)
{
	return perf_defer_unset_drained(session, cookie) ||
	       perf_defer_waits_for(session, task, cookie);
}

/*
 * Returns 0; -EAGAIN for a task that is running, -EBUSY for one whose memory map
 * is locked, to be looked at once more if there is time; -ENOSPC when the buffer
 * is full, and the turn of another event is still to come; -EACCES. One that is running when
 * it is @late is interrupted; or, -EALREADY, an event is left that takes what it writes
 * by itself, and has to be disabled, too. The @last time a locked one's stack is given
 * up: it is an empty one.
 */
static int perf_defer_drain_task(struct perf_defer_drain *drain,
				 struct task_struct *task,
				 struct unwind_stacktrace *trace, bool late,
				 bool last)
{
	struct perf_event *event = drain->event;
	struct perf_defer_session *session = event->defer;
	struct perf_defer_origin origin;
	struct perf_defer_output output = {
		.session = session,
		.event	= event,
		.origin	= &origin,
		.trace	= trace,
	};
	/* Without memory for it the stack is an empty one. */
	unsigned int max = trace->entries ? min_t(u32, event->attr.sample_max_stack,
						  UNWIND_USER_MAX_ENTRIES) : 0;
	int ret, err = 0;

	if (!perf_defer_is_shared_with(session, task))
		return 0;
	/* Once a session, whichever of its events are disabled. */
	if (perf_defer_is_drained(session, READ_ONCE(task->unwind_info.cookie)))
		return 0;
	if (!perf_defer_may_show(event, task))
		return -EACCES;

	if (!perf_defer_get_origin(&origin, task))
		goto out;

	ret = unwind_deferred_remote(&session->client->work, task, trace, max, false,
				     &output.record.cookie);
	if (ret == -EAGAIN && late) {
		if (!drain->last && perf_defer_has_taker(session, task)) {
			err = -EALREADY;
			goto out;
		}
		ret = unwind_deferred_remote(&session->client->work, task, trace, max,
					     true, &output.record.cookie);
	}
	if (ret && !(ret == -EBUSY && last)) {
		/* One that does not wait any more is on its way out, and is counted. */
		err = ret == -ESRCH ? -EAGAIN : ret;
		goto out;
	}

	/*
	 * Between the first looks and the walk the task may have run, changed its
	 * number, and got more rights; since the walk it makes no difference.
	 */
	if (!perf_defer_same_tid(&origin, task)) {
		err = -EAGAIN;
		goto out;
	}
	if (!perf_defer_may_show(event, task)) {
		err = -EACCES;
		goto out;
	}

	if (!perf_defer_set_drained(session, output.record.cookie, event, &origin))
		goto out;
	/*
	 * It may have gone on since the walk. Pairs with the cmpxchg in
	 * __unwind_take(): either the task is still seen to wait here, and finds the
	 * mark when it comes by, or it may have missed the mark and written its
	 * stack by itself. Then the mark goes, unless the task has found it after
	 * all, and taken it away.
	 */
	smp_mb();
	if (!perf_defer_waits_for(session, task, output.record.cookie) &&
	    perf_defer_unset_drained(session, output.record.cookie)) {
		err = -EAGAIN;
		goto out;
	}
	/*
	 * Where there is no room: the buffer of the next event that is disabled
	 * may have some. The last one has to wait for it, or count what is lost.
	 */
	output.careful = true;
	perf_defer_write_remote(drain, &output);
	if (output.full) {
		if (!perf_defer_is_last(drain) &&
		    perf_defer_leave_drained(session, task, output.record.cookie)) {
			err = -ENOSPC;
			goto out;
		}
		perf_defer_write_last(drain, &output);
	}
	if (!output.written) {
		/*
		 * Its buffer has been unmapped just now: the next event may have one.
		 * Unless there is none, or the task has come by, and left its stack to
		 * this one: lost. One that wrote it by itself, as a sample had named it
		 * again, is taken for such, too.
		 */
		if (!perf_defer_is_last(drain) &&
		    perf_defer_leave_drained(session, task, output.record.cookie))
			err = -ENOSPC;
		else
			atomic64_inc(&event->lost_samples);
	}
out:
	perf_defer_put_origin(&origin);
	return err;
}

/* Behind the @nr in @tasks, which has room for @max, if the client waits for @task. */
static unsigned int perf_defer_add(struct perf_defer_client *client,
				   struct task_struct *task,
				   struct task_struct **tasks, unsigned int nr,
				   unsigned int max)
{
	if (nr < max && task != current && unwind_deferred_waits(&client->work, task))
		tasks[nr++] = get_task_struct(task);
	return nr;
}

/* Fill @tasks with those that the client waits for. */
static unsigned int perf_defer_collect(struct perf_defer_client *client,
				       struct task_struct **tasks,
				       unsigned int max)
{
	struct task_struct *process, *task;
	unsigned int nr = 0;

	guard(rcu)();
	for_each_process_thread(process, task) {
		nr = perf_defer_add(client, task, tasks, nr, max);
		if (nr == max)
			return nr;
	}
	return nr;
}

/*
 * With those of them alone that are the event's own: its task, and the tasks that have
 * inherited it. They may have no other event to take their record.
 */
static unsigned int perf_defer_collect_own(struct perf_event *event,
					   struct task_struct **tasks,
					   unsigned int max)
{
	struct perf_defer_client *client = event->defer->client;
	struct perf_event *child;
	unsigned int nr;

	if (!event->hw.target)
		return 0;

	guard(mutex)(&event->child_mutex);
	nr = perf_defer_add(client, event->hw.target, tasks, 0, max);
	list_for_each_entry(child, &event->child_list, child_list)
		nr = perf_defer_add(client, child->hw.target, tasks, nr, max);
	return nr;
}

/*
 * With the first @max of them from number @from on, which is set behind the last one, where
 * there is no memory to note all at once.
 */
static unsigned int perf_defer_collect_from(struct perf_defer_client *client, int *from,
					    struct task_struct **tasks, unsigned int max)
{
	struct task_struct *task;
	unsigned int nr = 0;
	struct pid *pid;

	guard(rcu)();
	while (nr < max && (pid = find_ge_pid(*from, &init_pid_ns))) {
		*from = pid_nr(pid) + 1;
		task = pid_task(pid, PIDTYPE_PID);
		if (task)
			nr = perf_defer_add(client, task, tasks, nr, max);
	}
	return nr;
}

/*
 * There is no room for a stack. The next event that is disabled is to look at all tasks,
 * whatever the others have seen, if it has another buffer.
 */
static int perf_defer_no_room(struct perf_defer_drain *drain)
{
	struct perf_defer_session *session = drain->event->defer;

	WRITE_ONCE(session->tried, session->settled);
	session->looked = session->deadline - 1;
	session->full = READ_ONCE(drain->event->rb);
	return -ENOSPC;
}

/*
 * One look at all tasks, unless nobody has asked since all were settled: the events
 * of a session are disabled one after the other, and the first one has it all. When
 * it is @late for those who are running, one event and the last one look once more, and
 * the others at their own tasks: there may be an event a thread and CPU, and those that
 * are left sample on.
 * Returns 0; -EBUSY or -EAGAIN if some of them are worth another, see above; -ENOSPC
 * when the next event has to look.
 */
static int perf_defer_drain_tasks(struct perf_defer_drain *drain,
				  struct unwind_stacktrace *trace, bool late,
				  bool last)
{
	struct perf_defer_session *session = drain->event->defer;
	struct perf_defer_client *client = session->client;
	struct task_struct **many __free(kvfree) = NULL;
	struct task_struct *few[16], **tasks;
	bool full = false, all = true, left = false, own = false;
	unsigned long waiting, asked, seen = 0;
	unsigned int nr, max, i;
	int err = 0, from = 1;

	waiting = perf_defer_waiting(session, &asked);
	if (!waiting || asked == READ_ONCE(session->settled))
		return 0;
	drain->last = perf_defer_is_last(drain);
	if (!drain->last) {
		/* Many share one; what there may be room for now is the last one's. */
		if (READ_ONCE(drain->event->rb) == session->full)
			return -ENOSPC;
		if (asked == READ_ONCE(session->tried))
			return 0;
		own = late && session->looked == session->deadline;
	} else if (asked == session->given_up) {
		/* Each of many whose tasks are dead is the last one. */
		return 0;
	}

	/* A few more may have joined; if there are many, they are next. */
	max = min(waiting + 16, (unsigned long)PID_MAX_LIMIT);
	many = kvmalloc_array(max, sizeof(*many), GFP_KERNEL | __GFP_NOWARN);
	/* Without memory they are left to the last one, which looks at all of them anyway. */
	if (unlikely(!many && own))
		return 0;
	tasks = many ?: few;
	do {
		if (unlikely(!many))
			nr = perf_defer_collect_from(client, &from, few, ARRAY_SIZE(few));
		else if (own)
			nr = perf_defer_collect_own(drain->event, many, max);
		else
			nr = perf_defer_collect(client, many, max);
		seen += nr;

		for (i = 0; i < nr; i++) {
			switch (full ? 0 : perf_defer_drain_task(drain, tasks[i], trace,
								 late, last)) {
			case -EBUSY:
				err = -EBUSY;
				break;
			case -EALREADY:
				left = true;
				fallthrough;
			case -EAGAIN:
				err = err ?: -EAGAIN;
				break;
			case -ENOSPC:
				full = true;
				break;
			case -EACCES:
				all = false;
				break;
			}
			put_task_struct(tasks[i]);
			cond_resched();
		}
	} while (!many && nr == ARRAY_SIZE(few) && !full);
	if (full)
		return perf_defer_no_room(drain);
	/* Who is on its way out leaves that to the next event that is disabled. */
	if (own)
		return err == -EBUSY ? err : 0;
	/*
	 * Who is counted and does not wait any more is being walked right now. In both
	 * counts: who has been walked from outside may have come out since.
	 */
	if (!err && (seen == max || max(waiting, perf_defer_waiting(session, NULL)) > seen))
		err = -EAGAIN;
	if (!err && all) {
		WRITE_ONCE(session->settled, asked);
	} else if (late && err != -EBUSY && !left) {
		WRITE_ONCE(session->tried, asked);
		if (err)
			perf_defer_give_up(session);
	}
	return err;
}

/* Has its task, which may be dead, the rights that it had when it left the stack? */
static bool perf_defer_same_cred(const struct perf_defer_left *left)
{
	return rcu_access_pointer(left->task->real_cred) == left->cred;
}

/*
 * Write what was left by tasks that came out while the event was disabled. Who has got
 * the session's @drain does that, and who is the last one in any case.
 */
static void perf_defer_drain_left(struct perf_defer_drain *drain, bool locked, bool end)
{
	struct perf_event *event = drain->event;
	struct perf_defer_session *session = event->defer;
	struct perf_defer_left *left, *next;
	LIST_HEAD(list);
	bool others, had, mine, ending, keep;

	scoped_guard(raw_spinlock_irq, &session->lock) {
		/* Somebody else's buffer may have room for what this one has not. */
		others = session->turns > drain->turn;
		/* Its buffer may have been unmapped since it was about to be disabled. */
		had = drain->turn;
		if (end) {
			session->draining--;
			perf_defer_end_turn(drain);
		}
		mine = locked && perf_defer_has_buffer(event);
		/*
		 * Behind the last one there is nobody to write it. Of those that are
		 * disabled behind that none looks again, however many there are.
		 */
		if ((mine || had) && session->fresh && !session->turns &&
		    perf_defer_last_takes(event))
			WRITE_ONCE(session->fresh, false);
		ending = perf_defer_is_ending(session);
		/* Nor is there anybody to count it, then. */
		if (mine || (!ending && perf_defer_last_takes(event))) {
			list_splice_init(&session->left, &list);
			WRITE_ONCE(session->nr_left, 0);
		}
		if (!ending)
			WRITE_ONCE(session->room, 0);
	}

	list_for_each_entry_safe(left, next, &list, node) {
		struct unwind_stacktrace trace = {
			.nr		= left->nr,
			.entries	= left->entries,
		};
		struct perf_defer_output output = {
			.session = session,
			.event	= event,
			.origin	= &left->origin,
			.trace	= &trace,
			.careful = others,
			.record	= { .cookie = left->cookie },
		};

		list_del(&left->node);
		/* In this order: with other credentials it may be shown, but not this. */
		keep = perf_defer_may_show(event, left->task) &&
		       ((left->dumpable && perf_defer_same_cred(left)) ||
			perf_defer_may_show_all(event)) &&
		       !perf_defer_is_drained(session, left->cookie);
		if (keep) {
			if (others || !locked)
				perf_defer_write_remote(drain, &output);
			else
				perf_defer_write_last(drain, &output);
			/* Only where there are others may it be full. */
			keep = output.full || (ending && !output.written);
			if (unlikely(!keep && !output.written))
				atomic64_inc(&event->lost_samples);
		}
		if (keep) {
			/* Who has a turn has not been here: it waits for @drain. */
			raw_spin_lock_irq(&session->lock);
			list_add_tail(&left->node, &session->left);
			WRITE_ONCE(session->nr_left, session->nr_left + 1);
			raw_spin_unlock_irq(&session->lock);
			continue;
		}
		perf_defer_left_free(left);
	}
}

/*
 * How many stacks may be left by tasks that come out while an event is disabled, and
 * not written yet: of those who wait, and on each CPU one who asks until then. There
 * may be more if another thread of the profile asks on, and they are left out; so
 * nobody can have stacks piled up by not coming to the end of it.
 */
static void perf_defer_make_room(struct perf_defer_session *session,
				 unsigned long waiting)
{
	lockdep_assert_held(&session->lock);

	WRITE_ONCE(session->room, max(session->room, waiting + num_possible_cpus()));
}

/*
 * Behind those that take records. Never out of its list, and that never empty in between,
 * see perf_defer_next_cpu().
 */
static void perf_defer_move_behind(struct perf_event *event)
{
	struct perf_defer_session *session = event->defer;
	struct list_head *list = event->hw.target ? &session->targets : &session->outputs;

	lockdep_assert_held(&session->lock);

	if (!list_empty(&event->defer_entry) && !list_is_last(&event->defer_entry, list))
		list_move_tail(&event->defer_entry, list);
}

/**
 * perf_defer_drain_add - an event is about to be disabled together with others
 * @event:	the event
 * @drains:	those that take the stacks: one of each session, the first with a buffer
 *		or else the first
 * @nr:		how many these are
 * @max:	how many there is room for
 *
 * Does nothing for an event without attr.defer_output.
 *
 * Context: The mutex of the context that all of them are in is held.
 * Return: How many there are now.
 */
unsigned int perf_defer_drain_add(struct perf_event *event,
				  struct perf_defer_drain *drains,
				  unsigned int nr, unsigned int max)
{
	unsigned int i;

	if (!event->attr.defer_output)
		return nr;
	for (i = 0; i < nr; i++) {
		struct perf_event *output = drains[i].event;

		if (output->defer != event->defer)
			continue;
		if (!perf_defer_has_buffer(output) && perf_defer_has_buffer(event))
			drains[i].event = event;
		return nr;
	}
	if (nr < max)
		drains[nr++].event = event;
	return nr;
}

/**
 * perf_defer_drain_begin - an event is about to be disabled
 * @drain:	@drain->event is the event, which stays until perf_defer_drain_end();
 *		the others are set, but for @drain->last, which each look at the tasks
 *		sets
 *
 * Does nothing for an event without attr.defer_output.
 *
 * Context: Task context. Takes a spinlock, for a few steps however many events are
 * disabled one after the other.
 */
void perf_defer_drain_begin(struct perf_defer_drain *drain)
{
	struct perf_event *event = drain->event;
	struct perf_defer_session *session = event->defer;
	unsigned long waiting = 0;

	drain->turn = false;
	drain->hurry = false;
	if (!event->attr.defer_output)
		return;

	/* The first of many has made room, and each makes more behind this. */
	if (!perf_defer_is_ending(session))
		waiting = perf_defer_waiting(session, NULL);

	raw_spin_lock_irq(&session->lock);
	perf_defer_make_room(session, waiting);
	session->draining++;
	drain->turn = perf_defer_has_buffer(event);
	session->turns += drain->turn;
	WRITE_ONCE(session->fresh, session->fresh | perf_defer_takes(event));
	perf_defer_move_behind(event);
	raw_spin_unlock_irq(&session->lock);
}

/*
 * Until when to wait for tasks that are running. A profiler disables one event
 * after the other, and they wait once together. The last one has a time of its own:
 * from there on nobody takes a record.
 */
static unsigned long perf_defer_deadline(struct perf_defer_drain *drain)
{
	struct perf_defer_session *session = drain->event->defer;
	bool last = perf_defer_is_last(drain);
	unsigned long deadline;

	raw_spin_lock_irq(&session->lock);
	if (time_after_eq(jiffies, session->deadline + HZ) || (last && session->fresh)) {
		WRITE_ONCE(session->deadline,
			   jiffies + msecs_to_jiffies(PERF_DEFER_DRAIN_MS));
		session->full = NULL;
		session->unread = false;
		session->given_up = 0;
		WRITE_ONCE(session->gave_up, false);
	}
	if (last)
		WRITE_ONCE(session->fresh, false);
	deadline = session->deadline;
	raw_spin_unlock_irq(&session->lock);
	return deadline;
}

/* With the session's @drain held. Some wait, or did a moment ago. */
static void perf_defer_drain_all(struct perf_defer_drain *drain)
{
	struct perf_event *event = drain->event;
	unsigned long deadline, patience = 0, delay = 1;
	unsigned int max, more = PERF_DEFER_MORE;
	struct unwind_stacktrace trace = {};
	bool late, looked = false;
	int err;

	max = min_t(u32, event->attr.sample_max_stack, UNWIND_USER_MAX_ENTRIES);
	trace.entries = kvmalloc_array(max, sizeof(*trace.entries),
				       GFP_KERNEL | __GFP_NOWARN);
	deadline = perf_defer_deadline(drain);
	for (;;) {
		late = time_after(jiffies, deadline);
		err = perf_defer_drain_tasks(drain, &trace, late,
					     looked && time_after(jiffies, patience));
		if (!err || err == -ENOSPC)
			break;
		/* Behind the first look, which takes long where a reader is waited for. */
		if (!looked)
			patience = jiffies + msecs_to_jiffies(PERF_DEFER_LOCK_MS);
		looked = true;
		/* Who has just come out is about to leave a stack. */
		if (err == -EAGAIN && late && !more--) {
			if (drain->last)
				event->defer->given_up = event->defer->tried;
			perf_defer_give_up(event->defer);
			break;
		}

		perf_defer_drain_left(drain, true, false);
		schedule_timeout_killable(err == -EAGAIN && late ? 1 : delay);
		if (fatal_signal_pending(current))
			break;
		delay = min(2 * delay, msecs_to_jiffies(PERF_DEFER_DRAIN_MS));
	}
	if (late && err != -ENOSPC)
		event->defer->looked = deadline;
	kvfree(trace.entries);
}

/**
 * perf_defer_drain_end - an event has been disabled
 * @drain:	what perf_defer_drain_begin() was called with
 *
 * Writes into the event's buffer the stacks that its session still waits for. That
 * takes a look at two counters of every CPU where there is none, and else the time
 * of the walks; where tasks are running at most PERF_DEFER_DRAIN_MS, once for all
 * events that are disabled within a second and once more for the last one, and then
 * an interrupt of each CPU on which one still is; where memory maps are locked at most
 * PERF_DEFER_LOCK_MS, once for each such task; where no buffer has room, at most
 * PERF_DEFER_ROOM_MS for each stack that a reader makes room for, and once where none
 * does; where the event's CPU is offline, and another one comes or goes, at most
 * PERF_DEFER_HOTPLUG_MS; where other threads disable events of the session, theirs. An
 * event that had no buffer before it was disabled hands out the stack of the current task,
 * no more. One whose buffer is unmapped meanwhile counts as lost what no other event is
 * left to take.
 *
 * Context: Task context, may sleep. No lock of the event or its context is held.
 * Takes the session's @drain.
 */
void perf_defer_drain_end(struct perf_defer_drain *drain)
{
	struct perf_event *event = drain->event;
	struct perf_defer_session *session = event->defer;
	unsigned long waiting;
	bool locked;

	if (!event->attr.defer_output)
		return;

	/* The current task cannot be walked from outside. Takes as long as it likes. */
	unwind_deferred_flush();

	/* One at a time: what the one finds no room for is left to the other. */
	locked = !mutex_lock_killable(&session->drain);
	waiting = perf_defer_waiting(session, NULL);

	scoped_guard(raw_spinlock_irq, &session->lock) {
		perf_defer_make_room(session, waiting);
		/* If the CPU has gone before it was disabled. */
		perf_defer_move_behind(event);
		if (!locked)
			perf_defer_end_turn(drain);
	}

	if (locked && !waiting)
		/* Of the tasks that were walked from outside none waits. */
		perf_defer_forget_drained(session);
	else if (locked && (drain->turn || perf_defer_has_buffer(event)))
		/* It may have been unmapped since: then it counts them, if it is the last. */
		perf_defer_drain_all(drain);

	perf_defer_drain_left(drain, locked, true);
	if (locked)
		mutex_unlock(&session->drain);
}

static int __init perf_defer_setup(void)
{
	return perf_defer_client_init(&shared_client);
}
core_initcall(perf_defer_setup);

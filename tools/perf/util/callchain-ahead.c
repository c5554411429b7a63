// SPDX-License-Identifier: GPL-2.0
/*
 * Read a file ahead, to find the user callchain of a sample.
 *
 * A sample is due, and the record that has its user callchain was not read yet: see
 * callchain-defer.c. So look on from where the reader is. Of all events but those
 * records only the header is looked at. Each record on the way is put into the table,
 * and when the next one is missed the search goes on where this one ended. So the file
 * is gone through once, and not at all as long as each record is read before its sample
 * is due. Only for a record that does not exist the file is looked at to its end: after
 * that there is nothing more to look at.
 *
 * The events of a compressed file are in blocks. A block that is met here is
 * decompressed here, and left for the reader, who finds it when it comes there.
 *
 * Of a directory all files are looked at in turn.
 *
 * The file has a mapping of its own here: in the reader's the events of the other
 * endianness are swapped up to where it is, and on 32 bits it moves on. Errors in the
 * file end the search without a word. The reader comes to the same place, and tells.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <linux/kernel.h>
#include <linux/perf_event.h>
#include <linux/string.h>
#include <internal/lib.h>
#include <perf/event.h>
#include "callchain-ahead.h"
#include "callchain-defer.h"
#include "event.h"
#include "session.h"
#include "tool.h"
#include "util.h"

/* As much as the reader maps: all of it, where there are the addresses for that */
#if BITS_PER_LONG == 64
#define WINDOW_SIZE	ULLONG_MAX
#else
#define WINDOW_SIZE	(32ULL << 20)
#endif

/* @len bytes of the file at @pos, or NULL */
static char *ahead__bytes(struct callchain_ahead *ahead, u64 pos, size_t len)
{
	if (pos > ahead->end || len > ahead->end - pos)
		return NULL;

	if (!ahead->map || pos + len > ahead->map_pos + ahead->map_len) {
		if (ahead->map)
			munmap(ahead->map, ahead->map_len);
		ahead->map_pos = round_down(pos, (u64)page_size);
		ahead->map_len = min_t(u64, WINDOW_SIZE, ahead->end - ahead->map_pos);
		ahead->map = mmap(NULL, ahead->map_len, PROT_READ, MAP_SHARED, ahead->fd,
				  ahead->map_pos);
		if (ahead->map == MAP_FAILED) {
			ahead->map = NULL;
			return NULL;
		}
	}
	return ahead->map + (pos - ahead->map_pos);
}

/* An event of which all is there, its header in the order of bytes of this machine */
struct ahead_event {
	struct perf_event_header header;
	char			 *data;
	bool			 in_block;
};

static bool ahead__header(const struct callchain_ahead *ahead, struct ahead_event *ev)
{
	memcpy(&ev->header, ev->data, sizeof(ev->header));
	if (ahead->session->header.needs_swap)
		perf_event_header__bswap(&ev->header);
	return ev->header.size >= sizeof(ev->header);
}

/* The next event, of the block or behind it; false where there is none */
static bool ahead__event(struct callchain_ahead *ahead, struct ahead_event *ev)
{
	size_t left = ahead->block ? ahead->block->size - ahead->head : 0;

	if (left >= sizeof(ev->header)) {
		ev->data = ahead->block->data + ahead->head;
		ev->in_block = true;
		if (!ahead__header(ahead, ev))
			return false;
		if (ev->header.size <= left)
			return true;
	}

	/* What is left of the block is the begin of an event that the next one goes on with */
	ev->data = ahead__bytes(ahead, ahead->pos, sizeof(ev->header));
	ev->in_block = false;
	if (!ev->data || !ahead__header(ahead, ev))
		return false;
	ev->data = ahead__bytes(ahead, ahead->pos, ev->header.size);
	return ev->data;
}

/* What follows an event without being part of it, which the reader skips, too */
static u64 ahead__skip(const struct callchain_ahead *ahead, const struct ahead_event *ev)
{
	bool needs_swap = ahead->session->header.needs_swap;
	const char *data = ev->data + sizeof(ev->header);
	size_t size = ev->header.size - sizeof(ev->header);
	u64 skip = 0;
	u32 skip32;

	if (ev->header.type == PERF_RECORD_AUXTRACE && size >= sizeof(skip)) {
		memcpy(&skip, data, sizeof(skip));
		if (needs_swap)
			skip = bswap_64(skip);
	}
	if (ev->header.type == PERF_RECORD_HEADER_TRACING_DATA && size >= sizeof(skip32)) {
		memcpy(&skip32, data, sizeof(skip32));
		skip = needs_swap ? bswap_32(skip32) : skip32;
		skip = PERF_ALIGN(skip, sizeof(u64));
	}
	return skip;
}

static int ahead__record(struct callchain_ahead *ahead, const struct ahead_event *ev)
{
	struct perf_session *session = ahead->session;
	bool needs_swap = session->header.needs_swap;
	union perf_event *event = (void *)ev->data;
	int err = -EINVAL;

	if (!needs_swap && !((unsigned long)event % sizeof(u64)))
		return callchain_defer__add(session->callchain_defer, event,
					    /*copy=*/BITS_PER_LONG == 32);

	event = memdup(ev->data, ev->header.size);
	if (!event)
		return -ENOMEM;
	event->header = ev->header;
	if (!needs_swap || perf_session__swap_event(session, event))
		err = callchain_defer__add(session->callchain_defer, event, /*copy=*/true);
	free(event);
	return err;
}

/* The next block, which begins with what is left of this one */
static bool ahead__decompress(struct callchain_ahead *ahead, const struct ahead_event *ev)
{
	struct decomp_data *data = ahead->decomp_data;

	if (ev->in_block || ahead->block != data->decomp_tail ||
	    ev->header.size < sizeof(struct perf_record_compressed))
		return false;

	if (perf_session__decompress(ahead->session, data, ahead->head, (void *)ev->data,
				     ev->header.size, ahead->pos, ahead->path)) {
		/* The reader is not to try it anew, with what is left of the stream */
		data->failed = true;
		return false;
	}
	ahead->block = data->decomp_tail;
	ahead->head = 0;
	return true;
}

/* Look on until a record was put into the table: 1, or 0 at the end */
static int ahead__next(struct callchain_ahead *ahead)
{
	struct ahead_event ev;
	int err = 0;
	u64 size;

	/* The reader went on */
	if (ahead->pos < *ahead->read_pos) {
		ahead->pos = *ahead->read_pos;
		ahead->block = ahead->decomp_data->decomp_last;
		ahead->head = ahead->block ? min_t(u64, ahead->block->head, ahead->block->size) : 0;
	}

	while (!err && !session_done() && ahead__event(ahead, &ev)) {
		if (ev.header.type == PERF_RECORD_COMPRESSED && !ahead__decompress(ahead, &ev)) {
			ahead->end = ahead->pos;
			break;
		}
		if (ev.header.type == PERF_RECORD_CALLCHAIN_DEFERRED) {
			err = ahead__record(ahead, &ev);
			/* What is wrong with it is told when it is read */
			err = err == -EINVAL ? 0 : err ?: 1;
		}

		size = ev.header.size + min(ahead__skip(ahead, &ev), (u64)LLONG_MAX);
		if (ev.in_block)
			ahead->head += min_t(u64, size, ahead->block->size - ahead->head);
		else
			ahead->pos += min(size, ahead->end - ahead->pos);
	}
	return err;
}

/**
 * callchain_ahead__next - look on in the files of a session
 * @arg: the session
 *
 * Return: 1 when a record was put into the table, 0 when there is none that was not, or
 * a negative error.
 */
int callchain_ahead__next(void *arg)
{
	struct perf_session *session = arg;
	struct list_head *files = &session->callchain_ahead;
	struct callchain_ahead *ahead;
	int err;

	list_for_each_entry(ahead, files, list) {
		err = ahead__next(ahead);
		if (err) {
			list_rotate_left(files);
			return err;
		}
	}
	return 0;
}

/**
 * callchain_ahead__start - a reader is going to read a file
 * @ahead: of that file; where it is, what it has and its end are set
 * @session: whose reader that is
 */
void callchain_ahead__start(struct callchain_ahead *ahead, struct perf_session *session)
{
	struct stat st;

	/* To read a mapping behind the end of its file is fatal */
	if (fstat(ahead->fd, &st))
		st.st_size = 0;
	ahead->end = min_t(u64, ahead->end, st.st_size);
	ahead->end = max(ahead->end, ahead->pos);
	ahead->session = session;
	list_add_tail(&ahead->list, &session->callchain_ahead);
}

/**
 * callchain_ahead__end - forget a file
 * @ahead: of that file; the stacks of its records have been forgotten
 */
void callchain_ahead__end(struct callchain_ahead *ahead)
{
	if (!ahead->session)
		return;
	list_del(&ahead->list);
	if (ahead->map)
		munmap(ahead->map, ahead->map_len);
	ahead->map = NULL;
	ahead->session = NULL;
}

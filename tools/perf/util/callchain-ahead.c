// SPDX-License-Identifier: GPL-2.0
/*
 * Read a file ahead, to find the user callchain of a sample.
 *
 * If a sample is due, and the record with its user callchain was not read yet
 * (callchain-defer.c), this code searches the file from the position of the reader. It
 * adds each record that it finds to the table. Of other events it reads only the header.
 * The next search continues where this one ended, so the file is searched once. If each
 * record is read before its sample is due, there is no search. A record that does not
 * exist costs a search to the end of the file, after which nothing is left to search.
 *
 * The events of a compressed file are in blocks. The search decompresses a block that it
 * comes to, and keeps it for the reader.
 *
 * The files of a directory are searched in turn.
 *
 * The search maps the file by itself. The reader's mapping cannot be shared: the reader
 * swaps events of the other endianness in place, and on 32 bits it maps only a part of
 * the file. An error in the file ends the search without a message. The reader comes to
 * the same place later, and reports the error.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <linux/err.h>
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

/* Map as much as the reader does: all of the file if there are enough addresses */
#if BITS_PER_LONG == 64
#define WINDOW_SIZE	ULLONG_MAX
#else
#define WINDOW_SIZE	(32ULL << 20)
#endif

/* Get @len bytes of the file at @pos; NULL if they are behind the end, or cannot be mapped */
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

/* A complete event. @header is in this machine's byte order, @data is as in the file. */
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

/* Get the next event, from the block or from the file; false if there is none */
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

	/* The rest of the block, if any, is the begin of an event; the next block has its end */
	ev->data = ahead__bytes(ahead, ahead->pos, sizeof(ev->header));
	ev->in_block = false;
	if (!ev->data || !ahead__header(ahead, ev))
		return false;
	ev->data = ahead__bytes(ahead, ahead->pos, ev->header.size);
	return ev->data;
}

/* The size of data behind an event that header.size does not count. The reader skips it, too. */
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
	struct defer_stack *stack = ERR_PTR(-EINVAL);

	if (!needs_swap && !((unsigned long)event % sizeof(u64))) {
		stack = callchain_defer__add(session->callchain_defer, event,
					     /*copy=*/BITS_PER_LONG == 32);
		return PTR_ERR_OR_ZERO(stack);
	}

	event = memdup(ev->data, ev->header.size);
	if (!event)
		return -ENOMEM;
	event->header = ev->header;
	if (!needs_swap || perf_session__swap_event(session, event))
		stack = callchain_defer__add(session->callchain_defer, event, /*copy=*/true);
	free(event);
	return PTR_ERR_OR_ZERO(stack);
}

/* Decompress the next block; the rest of the current block is copied to its begin */
static bool ahead__decompress(struct callchain_ahead *ahead, const struct ahead_event *ev)
{
	struct decomp_data *data = ahead->decomp_data;

	if (ev->in_block || ahead->block != data->decomp_tail ||
	    ev->header.size < sizeof(struct perf_record_compressed))
		return false;

	if (perf_session__decompress(ahead->session, data, ahead->head, (void *)ev->data,
				     ev->header.size, ahead->pos, ahead->path)) {
		/* The stream is broken: the reader must not try the same block again */
		data->failed = true;
		return false;
	}
	ahead->block = data->decomp_tail;
	ahead->head = 0;
	return true;
}

/* Search until a record was added to the table. Returns 1, 0 at the end, or an error. */
static int ahead__next(struct callchain_ahead *ahead)
{
	struct decomp *block = ahead->decomp_data->decomp_last;
	struct ahead_event ev;
	int err = 0;
	u64 size;

	/*
	 * The reader has overtaken the search, which continues from the reader's position.
	 * They may be in the same block, where the reader has swapped the events behind it.
	 */
	if (ahead->pos < *ahead->read_pos ||
	    (ahead->pos == *ahead->read_pos && block && ahead->block == block &&
	     ahead->head < block->head)) {
		ahead->pos = *ahead->read_pos;
		ahead->block = block;
		ahead->head = block ? min_t(u64, block->head, block->size) : 0;
	}

	while (!err && !session_done() && ahead__event(ahead, &ev)) {
		if (ev.header.type == PERF_RECORD_COMPRESSED && !ahead__decompress(ahead, &ev)) {
			ahead->end = ahead->pos;
			break;
		}
		if (ev.header.type == PERF_RECORD_CALLCHAIN_DEFERRED) {
			err = ahead__record(ahead, &ev);
			/* The reader will report a malformed record */
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
 * callchain_ahead__next - search the files of a session for the next record
 * @arg: the session
 *
 * Return: 1 if a record was added to the table, 0 if no record is left in the files, or
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
 * callchain_ahead__start - prepare the search of a file, before its reader starts
 * @ahead: the search; the caller has set path, fd, read_pos, decomp_data, pos and end
 * @session: the session that reads the file
 */
void callchain_ahead__start(struct callchain_ahead *ahead, struct perf_session *session)
{
	struct stat st;

	/* An access to a mapping behind the end of the file raises SIGBUS */
	if (fstat(ahead->fd, &st))
		st.st_size = 0;
	ahead->end = min_t(u64, ahead->end, st.st_size);
	ahead->end = max(ahead->end, ahead->pos);
	ahead->session = session;
	list_add_tail(&ahead->list, &session->callchain_ahead);
}

/**
 * callchain_ahead__end - end the search of a file, and unmap the file
 * @ahead: the search; the table must not have stacks of this file any more
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

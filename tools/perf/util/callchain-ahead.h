/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_CALLCHAIN_AHEAD_H
#define __PERF_CALLCHAIN_AHEAD_H

#include <stddef.h>
#include <linux/list.h>
#include <linux/types.h>

struct decomp;
struct decomp_data;
struct perf_session;

/* One file that a session reads, ahead of its reader */
struct callchain_ahead {
	struct list_head	list;
	struct perf_session	*session;
	const char		*path;
	int			fd;
	/* where the reader is, and what it has decompressed */
	const u64		*read_pos;
	struct decomp_data	*decomp_data;
	/* the next event to look at, and the end of the data */
	u64			pos;
	u64			end;
	/* the block at whose events it looks before that one, and the next of these */
	struct decomp		*block;
	size_t			head;
	/* what is mapped */
	char			*map;
	u64			map_pos;
	size_t			map_len;
};

void callchain_ahead__start(struct callchain_ahead *ahead, struct perf_session *session);
void callchain_ahead__end(struct callchain_ahead *ahead);
int callchain_ahead__next(void *session);

#endif /* __PERF_CALLCHAIN_AHEAD_H */

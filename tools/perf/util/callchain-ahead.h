/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_CALLCHAIN_AHEAD_H
#define __PERF_CALLCHAIN_AHEAD_H

#include <stddef.h>
#include <linux/list.h>
#include <linux/types.h>

struct decomp;
struct decomp_data;
struct perf_session;

/* The search of one file, ahead of its reader */
struct callchain_ahead {
	struct list_head	list;
	struct perf_session	*session;
	const char		*path;
	int			fd;
	/* the position of the reader, and its decompressed blocks */
	const u64		*read_pos;
	struct decomp_data	*decomp_data;
	/* the file offset of the next event, and the end of the data */
	u64			pos;
	u64			end;
	/* the current block, whose events come before @pos, and the offset of the next one */
	struct decomp		*block;
	size_t			head;
	/* the mapped part of the file */
	char			*map;
	u64			map_pos;
	size_t			map_len;
};

void callchain_ahead__start(struct callchain_ahead *ahead, struct perf_session *session);
void callchain_ahead__end(struct callchain_ahead *ahead);
int callchain_ahead__next(void *session);

#endif /* __PERF_CALLCHAIN_AHEAD_H */

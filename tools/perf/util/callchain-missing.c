// SPDX-License-Identifier: GPL-2.0
/*
 * Special frames in place of a deferred user callchain.
 *
 * One frame says that the user callchain is not available. Another one shows the cookie,
 * if samples are printed as they were recorded. Both have a symbol, in a map of their
 * own, so every command that shows frames can show them.
 */
#include <pthread.h>
#include "callchain.h"
#include "callchain-defer.h"
#include "dso.h"
#include "map.h"
#include "maps.h"
#include "symbol.h"
#include "thread.h"

#define DEFER_COOKIE_NAME	"(cookie)"

static pthread_once_t defer_syms_once = PTHREAD_ONCE_INIT;
static struct symbol *defer_missing_sym;
static struct symbol *defer_cookie_sym;
static struct map *defer_map;

static void defer_syms__init(void)
{
	struct dso *dso = dso__new("[deferred]");

	if (!dso)
		return;

	dso__set_short_name(dso, "[deferred]", false);
	dso__set_loaded(dso);
	/* So that no command looks for its build ID */
	dso__set_hit(dso);
	defer_missing_sym = symbol__new(0, 1, STB_GLOBAL, STT_FUNC, CALLCHAIN_DEFER__MISSING_NAME);
	defer_cookie_sym = symbol__new(1, 1, STB_GLOBAL, STT_FUNC, DEFER_COOKIE_NAME);
	if (defer_missing_sym && defer_cookie_sym) {
		symbols__insert(dso__symbols(dso), defer_missing_sym);
		symbols__insert(dso__symbols(dso), defer_cookie_sym);
		defer_map = map__new2(0, dso);
		if (defer_map)
			map__set_hit(defer_map);
	}
	dso__put(dso);
}

static int defer_append(struct callchain_cursor *cursor, struct thread *thread,
			struct symbol **sym, u64 ip)
{
	struct map_symbol ms = {};
	int err;

	pthread_once(&defer_syms_once, defer_syms__init);
	if (!defer_map)
		return 0;

	ms.maps = maps__get(thread__maps(thread));
	ms.map = map__get(defer_map);
	ms.sym = *sym;
	err = callchain_cursor_append(cursor, ip, &ms, false, NULL, 0, 0, 0, NULL);
	map_symbol__exit(&ms);
	return err;
}

/**
 * callchain_defer__missing_symbol - get the symbol of a missing user callchain
 *
 * Return: the symbol, or NULL if there is no memory for it.
 */
struct symbol *callchain_defer__missing_symbol(void)
{
	pthread_once(&defer_syms_once, defer_syms__init);
	return defer_map ? defer_missing_sym : NULL;
}

/**
 * callchain_defer__append_missing - append a frame for a missing user callchain
 * @cursor: the frames that were resolved so far
 * @thread: the thread of the sample
 *
 * Return: 0, or a negative error.
 */
int callchain_defer__append_missing(struct callchain_cursor *cursor, struct thread *thread)
{
	return defer_append(cursor, thread, &defer_missing_sym, 0);
}

/**
 * callchain_defer__append_cookie - append a frame that shows the cookie
 * @cursor: the frames that were resolved so far
 * @thread: the thread of the sample
 * @cookie: the cookie, which becomes the address of the frame
 *
 * Return: 0, or a negative error.
 */
int callchain_defer__append_cookie(struct callchain_cursor *cursor, struct thread *thread,
				   u64 cookie)
{
	return defer_append(cursor, thread, &defer_cookie_sym, cookie);
}

/**
 * callchain_defer__frame_name - get the name of a special frame
 * @node: a frame
 *
 * Return: the text to print, or NULL if the frame is an ordinary one.
 */
const char *callchain_defer__frame_name(const struct callchain_cursor_node *node)
{
	const struct symbol *sym = node->ms.sym;

	if (sym && (sym == defer_missing_sym || sym == defer_cookie_sym))
		return sym->name;
	return NULL;
}

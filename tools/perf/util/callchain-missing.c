// SPDX-License-Identifier: GPL-2.0
/*
 * The frames that stand for something else than code, where a user callchain was
 * deferred: one says that it is not available, one has the cookie that names it in a
 * sample that is shown as it was recorded. Each has a symbol, in a map of its own, so
 * that everything that shows frames can show them.
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
	/* Nobody is to look for its build ID */
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
 * callchain_defer__missing_symbol - what stands for a user callchain that is not there
 *
 * Return: a symbol, or NULL when there is no memory for it.
 */
struct symbol *callchain_defer__missing_symbol(void)
{
	pthread_once(&defer_syms_once, defer_syms__init);
	return defer_map ? defer_missing_sym : NULL;
}

/**
 * callchain_defer__append_missing - a frame in place of the user callchain
 * @cursor: callchain as far as it was resolved
 * @thread: whose it is
 *
 * Return: 0, or a negative error.
 */
int callchain_defer__append_missing(struct callchain_cursor *cursor, struct thread *thread)
{
	return defer_append(cursor, thread, &defer_missing_sym, 0);
}

/**
 * callchain_defer__append_cookie - the cookie of a callchain that is shown as recorded
 * @cursor: callchain as far as it was resolved
 * @thread: whose it is
 * @cookie: to be shown as what it is
 *
 * Return: 0, or a negative error.
 */
int callchain_defer__append_cookie(struct callchain_cursor *cursor, struct thread *thread,
				   u64 cookie)
{
	return defer_append(cursor, thread, &defer_cookie_sym, cookie);
}

/**
 * callchain_defer__frame_name - what a frame that is no code stands for
 * @node: a frame
 *
 * Return: the text to print, or NULL for an ordinary frame.
 */
const char *callchain_defer__frame_name(const struct callchain_cursor_node *node)
{
	const struct symbol *sym = node->ms.sym;

	if (sym && (sym == defer_missing_sym || sym == defer_cookie_sym))
		return sym->name;
	return NULL;
}

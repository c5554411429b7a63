// SPDX-License-Identifier: GPL-2.0
/*
 * The tree in which perf report collects callchains. Callchains with the same begin
 * share nodes, whatever their order and number, and each is counted at its last node.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/rbtree.h>
#include "branch.h"
#include "callchain.h"
#include "debug.h"
#include "dso.h"
#include "map.h"
#include "map_symbol.h"
#include "symbol.h"
#include "tests.h"

struct entry {
	u64		ip;
	struct map	*map;
	struct symbol	*sym;
	const char	*srcline;
	bool		branch;
};

/* Add a callchain to a tree, as perf report does for a sample */
static int append(struct callchain_root *root, const struct entry *entries, size_t nr)
{
	struct callchain_cursor *cursor = get_tls_callchain_cursor();
	struct branch_flags flags = { .cycles = 5 };

	TEST_ASSERT_VAL("a cursor", cursor);
	callchain_cursor_reset(cursor);
	for (size_t i = 0; i < nr; i++) {
		struct map_symbol ms = { .map = entries[i].map, .sym = entries[i].sym };

		TEST_ASSERT_EQUAL("room in the cursor", 0,
				  callchain_cursor_append(cursor, entries[i].ip, &ms,
							  entries[i].branch, &flags, 0, 0, 0,
							  entries[i].srcline));
	}
	TEST_ASSERT_EQUAL("append", 0, callchain_append(root, cursor, 1));
	return TEST_OK;
}

static int append_ips(struct callchain_root *root, const u64 *ips, size_t nr)
{
	struct entry entries[8] = {};

	TEST_ASSERT_VAL("a short callchain", nr <= ARRAY_SIZE(entries));
	for (size_t i = 0; i < nr; i++)
		entries[i].ip = ips[i];
	return append(root, entries, nr);
}

#define APPEND(root, ...)							\
	append_ips(root, (const u64[]){ __VA_ARGS__ },				\
		   ARRAY_SIZE(((const u64[]){ __VA_ARGS__ })))

static char text[512];

#define PUT(...)								\
	scnprintf(text + strlen(text), sizeof(text) - strlen(text), __VA_ARGS__)

/*
 * Print a tree as text: each node as "(ip ip ...=count children)", and the children in
 * the order of the tree, with the highest address or name first.
 */
static void print_children(struct callchain_node *node)
{
	struct callchain_list *entry;
	struct rb_node *n;

	for (n = rb_first(&node->rb_root_in); n; n = rb_next(n)) {
		struct callchain_node *child = rb_entry(n, struct callchain_node, rb_node_in);
		const char *before = "(";
		unsigned int nr = 0;

		list_for_each_entry(entry, &child->val, list) {
			PUT("%s%d", before, (int)entry->ip);
			before = " ";
			nr++;
		}
		if (nr != child->val_nr)
			PUT(", said to be %u", child->val_nr);
		if (child->count != child->hit)
			PUT(", period %d", (int)child->hit);
		PUT("=%u", child->count);
		print_children(child);
		PUT(")");
	}
}

static bool looks_like(struct callchain_root *root, const char *want)
{
	text[0] = '\0';
	print_children(&root->node);
	if (strcmp(text, want)) {
		pr_err("the tree is\n  %s\nand not\n  %s\n", text, want);
		return false;
	}
	return true;
}

/* Run a test with an empty tree */
static int in_tree(enum chain_key key, int (*test)(struct callchain_root *root))
{
	struct callchain_param param = callchain_param;
	bool use_callchain = symbol_conf.use_callchain;
	struct callchain_root root = {};
	int ret;

	callchain_param.key = key;
	/* Without this free_callchain() frees nothing */
	symbol_conf.use_callchain = true;
	callchain_init(&root);
	ret = test(&root);
	free_callchain(&root);
	symbol_conf.use_callchain = use_callchain;
	callchain_param = param;
	return ret;
}

static int parts(struct callchain_root *root)
{
	if (APPEND(root, 1, 2, 3, 4) ||
	    APPEND(root, 1, 2, 3, 4) ||
	    !looks_like(root, "(1 2 3 4=2)"))
		return TEST_FAIL;
	/* Another first frame, other last frames, and the common part alone */
	if (APPEND(root, 1, 2, 5) ||
	    !looks_like(root, "(1 2=0(5=1)(3 4=2))"))
		return TEST_FAIL;
	if (APPEND(root, 9, 2, 3, 4) ||
	    APPEND(root, 1, 2) ||
	    APPEND(root, 1, 2, 3, 4) ||
	    !looks_like(root, "(9 2 3 4=1)(1 2=1(5=1)(3 4=3))"))
		return TEST_FAIL;
	/* A node that was split keeps only its own part */
	if (APPEND(root, 1, 2, 1, 2) ||
	    !looks_like(root, "(9 2 3 4=1)(1 2=1(5=1)(3 4=3)(1 2=1))"))
		return TEST_FAIL;
	/* Longer and shorter callchains at a split node, and a second split */
	if (APPEND(root, 1, 2, 3, 4, 6) ||
	    APPEND(root, 1, 2, 3) ||
	    APPEND(root, 1, 2, 3, 7) ||
	    APPEND(root, 1, 2, 3, 4, 6) ||
	    APPEND(root, 9, 2, 3, 8) ||
	    APPEND(root, 9, 2, 3, 4) ||
	    !looks_like(root, "(9 2 3=0(8=1)(4=2))(1 2=1(5=1)(3=1(7=1)(4=3(6=2)))(1 2=1))"))
		return TEST_FAIL;
	return TEST_OK;
}

static int test__callchain_tree_parts(struct test_suite *test __maybe_unused,
				      int subtest __maybe_unused)
{
	return in_tree(CCKEY_ADDRESS, parts);
}

static int merge(struct callchain_root *root)
{
	struct callchain_cursor *cursor = get_tls_callchain_cursor();
	struct callchain_root other = {};
	int ret = TEST_FAIL;

	callchain_init(&other);
	if (APPEND(root, 1, 2, 3, 4) ||
	    APPEND(root, 1, 2, 5) ||
	    APPEND(&other, 1, 2, 3, 4) ||
	    APPEND(&other, 1, 2, 6) ||
	    APPEND(&other, 7))
		goto out;
	callchain_cursor_reset(cursor);
	if (callchain_merge(cursor, root, &other) ||
	    !looks_like(root, "(7=1)(1 2=0(6=1)(5=1)(3 4=2))") || !looks_like(&other, ""))
		goto out;
	if (APPEND(root, 1, 2, 6) ||
	    APPEND(root, 7) ||
	    !looks_like(root, "(7=2)(1 2=0(6=2)(5=1)(3 4=2))"))
		goto out;
	ret = TEST_OK;
out:
	free_callchain(&other);
	return ret;
}

static int test__callchain_tree_merge(struct test_suite *test __maybe_unused,
				      int subtest __maybe_unused)
{
	return in_tree(CCKEY_ADDRESS, merge);
}

/* Two addresses in one function are equal with this key, although they differ */
static int function(struct callchain_root *root)
{
	struct symbol *f = symbol__new(10, 10, 0, 0, "f");
	struct symbol *g = symbol__new(10, 10, 0, 0, "g");
	const struct entry one[] = { { .ip = 11, .sym = f }, { .ip = 30 } };
	const struct entry two[] = { { .ip = 12, .sym = f }, { .ip = 30 } };
	/* A function that is inlined at the address of the first entry */
	const struct entry inlined[] = { { .ip = 11, .sym = g }, { .ip = 30 } };
	int ret = TEST_FAIL;

	if (!f || !g)
		goto out;
	g->inlined = true;
	if (append(root, one, 2) || append(root, two, 2) || append(root, one, 2) ||
	    !looks_like(root, "(11 30=3)"))
		goto out;
	if (append(root, inlined, 2) || append(root, inlined, 2) ||
	    !looks_like(root, "(11 30=2)(11 30=3)"))
		goto out;
	ret = TEST_OK;
out:
	if (g)
		symbol__delete(g);
	if (f)
		symbol__delete(f);
	return ret;
}

static int test__callchain_tree_function(struct test_suite *test __maybe_unused,
					 int subtest __maybe_unused)
{
	return in_tree(CCKEY_FUNCTION, function);
}

/* The same address makes two entries in two DSOs, but one entry in two maps of one DSO */
static int two_dsos(struct callchain_root *root)
{
	struct dso *a = dso__new("a"), *b = dso__new("b");
	struct map *a1 = a ? map__new2(0, a) : NULL;
	struct map *a2 = a ? map__new2(0, a) : NULL;
	struct map *b1 = b ? map__new2(0, b) : NULL;
	const struct entry first[] = { { .ip = 11, .map = a1 }, { .ip = 30, .map = b1 } };
	const struct entry second[] = { { .ip = 11, .map = a2 }, { .ip = 30, .map = b1 } };
	const struct entry other[] = { { .ip = 11, .map = b1 }, { .ip = 30, .map = b1 } };
	const struct entry ends[] = { { .ip = 11, .map = a1 }, { .ip = 30, .map = a1 } };
	int ret = TEST_FAIL;

	if (!a1 || !a2 || !b1)
		goto out;
	/* The tree is sorted by the addresses of the DSOs, the highest first */
	if (append(root, first, 2) || append(root, second, 2) || append(root, first, 2) ||
	    append(root, other, 2) || append(root, other, 2) ||
	    !looks_like(root, b > a ? "(11 30=2)(11 30=3)" : "(11 30=3)(11 30=2)"))
		goto out;
	if (append(root, ends, 2) ||
	    !looks_like(root, b > a ? "(11 30=2)(11=0(30=3)(30=1))" :
			"(11=0(30=1)(30=3))(11 30=2)"))
		goto out;
	ret = TEST_OK;
out:
	map__put(b1);
	map__put(a2);
	map__put(a1);
	dso__put(b);
	dso__put(a);
	return ret;
}

static int test__callchain_tree_dso(struct test_suite *test __maybe_unused,
				    int subtest __maybe_unused)
{
	return in_tree(CCKEY_FUNCTION, two_dsos);
}

/* The same address makes two entries if its source lines differ */
static int srcline(struct callchain_root *root)
{
	const struct entry one[] = { { .ip = 11, .srcline = "f.c:1" }, { .ip = 30 } };
	const struct entry two[] = { { .ip = 11, .srcline = "f.c:2" }, { .ip = 30 } };

	if (append(root, one, 2) || append(root, two, 2) || append(root, one, 2) ||
	    !looks_like(root, "(11 30=1)(11 30=2)"))
		return TEST_FAIL;
	return TEST_OK;
}

static int test__callchain_tree_srcline(struct test_suite *test __maybe_unused,
					int subtest __maybe_unused)
{
	return in_tree(CCKEY_SRCLINE, srcline);
}

/*
 * Each entry adds up its branches, whether or not the first callchain with this entry
 * had branches.
 */
static int add_branches(struct callchain_root *root, bool plain_first)
{
	const struct entry with[] = { { .ip = 1, .branch = true }, { .ip = 2, .branch = true } };
	const struct entry plain[] = { { .ip = 1 }, { .ip = 2 } };
	u64 count = 0, cycles = 0;

	if ((plain_first && append(root, plain, 2)) || append(root, with, 2) ||
	    append(root, with, 2) || append(root, plain, 2) || append(root, with, 2) ||
	    !looks_like(root, plain_first ? "(1 2=5)" : "(1 2=4)"))
		return TEST_FAIL;
	callchain_branch_counts(root, &count, NULL, NULL, &cycles);
	if (count != 6 || cycles != 30) {
		pr_err("%llu branches of %llu cycles, and not 6 of 30\n",
		       (unsigned long long)count, (unsigned long long)cycles);
		return TEST_FAIL;
	}
	return TEST_OK;
}

static int branches_first(struct callchain_root *root)
{
	return add_branches(root, false);
}

static int branches_later(struct callchain_root *root)
{
	return add_branches(root, true);
}

static int test__callchain_tree_branches(struct test_suite *test __maybe_unused,
					 int subtest __maybe_unused)
{
	int ret = in_tree(CCKEY_ADDRESS, branches_first);

	return ret ?: in_tree(CCKEY_ADDRESS, branches_later);
}

static struct test_case tests__callchain_tree[] = {
	TEST_CASE("Callchain tree, parts in common", callchain_tree_parts),
	TEST_CASE("Callchain tree, merge", callchain_tree_merge),
	TEST_CASE("Callchain tree, by function", callchain_tree_function),
	TEST_CASE("Callchain tree, by DSO", callchain_tree_dso),
	TEST_CASE("Callchain tree, by line", callchain_tree_srcline),
	TEST_CASE("Callchain tree, with branches", callchain_tree_branches),
	{	.name = NULL, }
};

struct test_suite suite__callchain_tree = {
	.desc = "Callchain tree",
	.test_cases = tests__callchain_tree,
};

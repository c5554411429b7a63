// SPDX-License-Identifier: GPL-2.0
/*
 * While a table is loaded all walks go by the walker of tables: those of programs that have
 * none, too. So tests of walks by frame pointer are run again, with a table of another file.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "../kselftest_harness.h"
#include "unwind_table.h"

FIXTURE(tables_others) {
	struct ut_code code;
	struct ut_section section;
	int fd;
};

FIXTURE_VARIANT(tables_others) {
	const char *name;
};

FIXTURE_VARIANT_ADD(tables_others, compat) { .name = "compat" };
FIXTURE_VARIANT_ADD(tables_others, uprobes) { .name = "uprobes" };
FIXTURE_VARIANT_ADD(tables_others, signals) { .name = "signals" };
FIXTURE_VARIANT_ADD(tables_others, bad_stacks) { .name = "bad_stacks" };
FIXTURE_VARIANT_ADD(tables_others, order) { .name = "order" };
FIXTURE_VARIANT_ADD(tables_others, absent_pages) { .name = "absent_pages" };

FIXTURE_SETUP(tables_others)
{
	ut_need_root();
	ASSERT_EQ(0, ut_code_new(&self->code, NULL));
	ut_code_section(&self->section, 0);
	self->fd = ut_table_event();
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, ut_load_section(self->fd, self->code.base, &self->section));
}

FIXTURE_TEARDOWN(tables_others)
{
	close(self->fd);
	ut_code_free(&self->code);
}

TEST_F_TIMEOUT(tables_others, again, 800)
{
	char path[PATH_MAX], *slash;
	ssize_t len = readlink("/proc/self/exe", path, sizeof(path) - 32);
	int status, skipped = 0;
	char line[512];
	FILE *out;

	ASSERT_LT(0, len);
	path[len] = 0;
	slash = strrchr(path, '/');
	snprintf(slash + 1, path + sizeof(path) - (slash + 1), "%s 2>&1", variant->name);
	out = popen(path, "r");
	ASSERT_NE(NULL, out);
	while (fgets(line, sizeof(line), out)) {
		if (strstr(line, "# SKIP"))
			skipped++;
		/* The lines of its own result are not this program's. */
		if (!strncmp(line, "not ok", 6) || line[0] == '#')
			fprintf(stderr, "# %s: %s", variant->name, line);
	}
	status = pclose(out);
	EXPECT_TRUE(WIFEXITED(status));
	EXPECT_EQ(0, WEXITSTATUS(status));
	EXPECT_EQ(0, skipped);
}

TEST_HARNESS_MAIN

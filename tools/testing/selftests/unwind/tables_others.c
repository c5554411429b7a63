// SPDX-License-Identifier: GPL-2.0
/*
 * While a table is loaded all walks go by the walker of tables: those of programs that have
 * none, too. So tests of walks by frame pointer are run again, with a table of another file.
 *
 * K23: other users of callchains go without tables. So the test of these users is run again,
 * with a table of its own file that ends each walk at once.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "../kselftest_harness.h"
#include "unwind_table.h"

/* The path of a program that is beside this one. */
static int path_of(const char *name, char *path, size_t size)
{
	ssize_t len = readlink("/proc/self/exe", path, size - 32);
	char *slash;

	if (len < 0)
		return -1;
	path[len] = 0;
	slash = strrchr(path, '/');
	snprintf(slash + 1, path + size - (slash + 1), "%s", name);
	return 0;
}

/* Run it. Returns its exit status, or -1. @skipped counts what it skips. */
static int run(const char *name, const char *args, bool quiet, int *skipped)
{
	char path[PATH_MAX], command[PATH_MAX + 64], line[512];
	FILE *out;
	int status;

	if (path_of(name, path, sizeof(path)))
		return -1;
	snprintf(command, sizeof(command), "%s %s 2>&1", path, args);
	out = popen(command, "r");
	if (!out)
		return -1;
	*skipped = 0;
	while (fgets(line, sizeof(line), out)) {
		if (strstr(line, "# SKIP"))
			(*skipped)++;
		/* The lines of its own result are not this program's. */
		if (!quiet && (!strncmp(line, "not ok", 6) || line[0] == '#'))
			fprintf(stderr, "# %s: %s", name, line);
	}
	status = pclose(out);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

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
	int skipped;

	EXPECT_EQ(0, run(variant->name, "", false, &skipped));
	EXPECT_EQ(0, skipped);
}

TEST(other_users)
{
	struct ut_section section = {};
	char path[PATH_MAX];
	struct stat st;
	int file, fd, skipped;
	void *map;

	ut_need_root();
	ASSERT_EQ(0, path_of("bpf", path, sizeof(path)));
	file = open(path, O_RDONLY | O_CLOEXEC);
	ASSERT_LE(0, file);
	ASSERT_EQ(0, fstat(file, &st));
	map = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, file, 0);
	ASSERT_NE(MAP_FAILED, map);
	/* Without a row it is the outermost function. */
	ut_section_function(&section, 0, st.st_size, 0, 0, 0);
	ut_section_make(&section);
	fd = ut_table_event();
	ASSERT_EQ(0, ut_load_section(fd, map, &section));

	/* The walks of deferral do end, those of others do not. */
	EXPECT_LT(0, run("bpf", "-r bpf.deferred.output", true, &skipped));
	EXPECT_EQ(0, run("bpf", "-v immediate", false, &skipped));
	EXPECT_EQ(0, skipped);
	munmap(map, st.st_size);
	close(file);
	close(fd);
}

TEST_HARNESS_MAIN

// SPDX-License-Identifier: GPL-2.0
/*
 * Mappings that change between walks, and under them.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../kselftest_harness.h"
#include "unwind_table.h"

/* Two files of the same code at one address, one with a table that takes frames for larger. */
FIXTURE(tables_change) {
	struct ut_session s;
	struct ut_code code;
	struct ut_section section;
	int fd;
	int event;
};

FIXTURE_SETUP(tables_change)
{
	const struct ut_opts opts = { .switches = true, .pages = 1024 };

	ut_need_root();
	ASSERT_EQ(0, ut_code_new(&self->code, NULL));
	ut_code_section(&self->section, 0);
	self->fd = ut_table_event();
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, ut_load_section(self->fd, self->code.base, &self->section));
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	self->event = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid");
	ASSERT_EQ(0, ut_enable(&self->s));
}

FIXTURE_TEARDOWN(tables_change)
{
	ut_close(&self->s);
	close(self->fd);
	ut_code_free(&self->code);
}

/* Call it, and see whether the walk is whole, or ends where there is no table. */
static void expect_call(struct __test_metadata *_metadata, FIXTURE_DATA(tables_change) * self,
			bool whole)
{
	struct ut_stack call, less;

	ut_code_call(self->code.base, &call, __NR_getppid, 0, 0, 0);
	ut_code_short(&call, &less);
	ut_forget(&self->s);
	ASSERT_EQ(0, ut_drain(&self->s));
	ASSERT_EQ(1, ut_count_samples(&self->s, self->event, 0));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, self->event, 0, 0),
				whole ? &call : &less));
}

/* As dlclose() and dlopen() do it. */
TEST_F(tables_change, unmapped_and_mapped)
{
	struct ut_code other;
	struct ut_section wrong;
	unsigned int i;

	ASSERT_EQ(0, ut_code_new(&other, NULL));
	for (i = 0; i < 10; i++) {
		expect_call(_metadata, self, true);
		ASSERT_EQ(0, munmap(self->code.base, UT_CODE_SIZE));
		ASSERT_EQ(self->code.base, ut_code_map(&other, self->code.base));
		expect_call(_metadata, self, false);
		ASSERT_EQ(0, munmap(self->code.base, UT_CODE_SIZE));
		ASSERT_EQ(self->code.base, ut_code_map(&self->code, self->code.base));
	}
	/* With a table of its own, for the same offsets. */
	ut_code_section(&wrong, 16);
	ASSERT_EQ(0, ut_load_section(self->fd, other.base, &wrong));
	for (i = 0; i < 10; i++) {
		struct ut_stack call, got;

		expect_call(_metadata, self, true);
		ASSERT_EQ(self->code.base, ut_code_map(&other, self->code.base));
		ut_code_call(self->code.base, &call, __NR_getppid, 0, 0, 0);
		ut_forget(&self->s);
		ASSERT_EQ(0, ut_drain(&self->s));
		ASSERT_EQ(UT_DEFERRED, ut_user_stack(&self->s, ut_sample(&self->s, self->event, 0,
									 0), &got));
		EXPECT_FALSE(ut_same_stack(&got, &call));
		ASSERT_EQ(self->code.base, ut_code_map(&self->code, self->code.base));
	}
	ut_code_free(&other);
}

/* MAP_FIXED: a copy of the code in memory of no file. */
TEST_F(tables_change, over_code)
{
	void *copy = malloc(UT_CODE_SIZE);

	ASSERT_NE(NULL, copy);
	memcpy(copy, self->code.base, UT_CODE_SIZE);
	expect_call(_metadata, self, true);
	ASSERT_EQ(self->code.base, mmap(self->code.base, UT_CODE_SIZE,
					PROT_READ | PROT_WRITE | PROT_EXEC,
					MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
	memcpy(self->code.base, copy, UT_CODE_SIZE);
	expect_call(_metadata, self, false);
	ASSERT_EQ(self->code.base, ut_code_map(&self->code, self->code.base));
	expect_call(_metadata, self, true);
	free(copy);
}

/* It is moved, split and put together. */
TEST_F(tables_change, moved)
{
	char *to = mmap(NULL, UT_CODE_SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ASSERT_NE(MAP_FAILED, to);
	expect_call(_metadata, self, true);
	ASSERT_EQ(to, mremap(self->code.base, UT_CODE_SIZE, UT_CODE_SIZE,
			     MREMAP_MAYMOVE | MREMAP_FIXED, to));
	self->code.base = to;
	expect_call(_metadata, self, true);
	ASSERT_EQ(0, mprotect(to + 4096, 4096, PROT_READ));
	expect_call(_metadata, self, true);
	ASSERT_EQ(0, mprotect(to + 4096, 4096, PROT_READ | PROT_EXEC));
	expect_call(_metadata, self, true);
}

/*
 * A table does not hold up an umount. A file of the next file system is another one, though
 * its numbers, its size and its times are the same.
 */
TEST_F(tables_change, unmounted)
{
	const struct timespec times[2] = { { .tv_sec = 1000000000 }, { .tv_sec = 1000000000 } };
	struct stat st[2];
	unsigned int i;

	/* The mounts go with this process. */
	ASSERT_EQ(0, unshare(CLONE_NEWNS));
	ASSERT_EQ(0, mount(NULL, "/", NULL, MS_PRIVATE | MS_REC, NULL));
	for (i = 0; i < 2; i++) {
		ut_code_free(&self->code);
		if (i)
			ASSERT_EQ(0, umount("/tmp")) TH_LOG("%s", strerror(errno));
		ASSERT_EQ(0, mount("none", "/tmp", "tmpfs", 0, NULL));
		ASSERT_EQ(0, ut_code_new(&self->code, "/tmp/code"));
		ASSERT_EQ(0, futimens(self->code.fd, times));
		ASSERT_EQ(0, fstat(self->code.fd, &st[i]));
		expect_call(_metadata, self, false);
		if (!i) {
			ASSERT_EQ(0, ut_load_section(self->fd, self->code.base,
						     &self->section));
			expect_call(_metadata, self, true);
		}
	}
	EXPECT_EQ(st[0].st_dev, st[1].st_dev);
	EXPECT_EQ(st[0].st_ino, st[1].st_ino);
	EXPECT_EQ(st[0].st_size, st[1].st_size);
	EXPECT_EQ(st[0].st_mtim.tv_sec, st[1].st_mtim.tv_sec);
	EXPECT_EQ(st[0].st_mtim.tv_nsec, st[1].st_mtim.tv_nsec);
}

enum noise {
	NOISE_OTHER,		/* mappings come and go */
	NOISE_SPLIT,		/* the code's mapping is split and put together */
	NOISE_FORK,		/* which locks all mappings for a while */
	NOISE_TABLES,		/* tables come and go, of another file */
};

static enum noise noise;
static int stop;
static char *noisy;

static void *make_noise(void *arg)
{
	struct ut_section *section = arg;

	while (!UT_READ(stop)) {
		switch (noise) {
		case NOISE_OTHER: {
			char *p = mmap(NULL, 16 * 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS,
				       -1, 0);

			mprotect(p + 4096, 4096, PROT_READ | PROT_EXEC);
			munmap(p, 16 * 4096);
			break;
		}
		case NOISE_SPLIT:
			mprotect(noisy + 4096, 4096, PROT_READ);
			mprotect(noisy + 4096, 4096, PROT_READ | PROT_EXEC);
			break;
		case NOISE_FORK: {
			pid_t pid = fork();

			if (!pid)
				_exit(0);
			waitpid(pid, NULL, 0);
			break;
		}
		case NOISE_TABLES: {
			struct ut_code other;
			int fd = ut_table_event();

			if (ut_code_new(&other, NULL))
				return "no file";
			if (ut_load_section(fd, other.base, section))
				return "no table";
			close(fd);
			ut_code_free(&other);
			break;
		}
		}
	}
	return NULL;
}

FIXTURE(tables_noise) {
	FIXTURE_DATA(tables_change) c;
};

FIXTURE_VARIANT(tables_noise) {
	enum noise noise;
	bool whole;		/* nothing is ever missing */
};

FIXTURE_VARIANT_ADD(tables_noise, mappings) { .noise = NOISE_OTHER };
FIXTURE_VARIANT_ADD(tables_noise, split) { .noise = NOISE_SPLIT };
FIXTURE_VARIANT_ADD(tables_noise, fork) { .noise = NOISE_FORK };
FIXTURE_VARIANT_ADD(tables_noise, tables) { .noise = NOISE_TABLES, .whole = true };

FIXTURE_SETUP(tables_noise)
{
	tables_change_setup(_metadata, &self->c, NULL);
}

FIXTURE_TEARDOWN(tables_noise)
{
	tables_change_teardown(_metadata, &self->c, NULL);
}

/*
 * While another thread changes the mm no stack is ever wrong, and some are whole. What
 * cannot be read ends the walk.
 */
TEST_F(tables_noise, while_samples_run)
{
	FIXTURE_DATA(tables_change) * c = &self->c;
	unsigned int i, j, whole = 0, n = 0;
	struct ut_stack call, got;
	pthread_t thread;
	void *failed;

	noise = variant->noise;
	noisy = c->code.base;
	ASSERT_EQ(0, pthread_create(&thread, NULL, make_noise, &c->section));
	for (i = 0; i < 20; i++) {
		for (j = 0; j < 100; j++)
			ut_code_call(c->code.base, &call, __NR_getppid, 0, 0, 0);
		ut_forget(&c->s);
		ASSERT_EQ(0, ut_drain(&c->s));
		for (j = 0; j < ut_count_samples(&c->s, c->event, 0); j++, n++) {
			struct ut_rec *r = ut_sample(&c->s, c->event, 0, j);

			ASSERT_NE(UT_UNRESOLVED, ut_user_stack(&c->s, r, &got));
			if (ut_same_stack(&got, &call))
				whole++;
			else
				EXPECT_TRUE(ut_stack_within(&got, &call));
		}
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	ASSERT_EQ(0, pthread_join(thread, &failed));
	EXPECT_EQ(NULL, failed) TH_LOG("%s", (char *)failed);
	EXPECT_EQ(2000, n);
	/* How many depends on how fast the other thread is. */
	EXPECT_LE(variant->whole ? n : 1, whole);
	TH_LOG("%u of %u whole", whole, n);
}

TEST_HARNESS_MAIN

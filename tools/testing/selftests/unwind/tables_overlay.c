// SPDX-License-Identifier: GPL-2.0
/*
 * Tables of files on overlayfs, as containers have them, and on FUSE with passthrough. A file
 * there has an inode of its own, but a mapping is one of the file below, and so is its table.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "../kselftest_harness.h"
#include "unwind_table.h"

FIXTURE(tables_overlay) {
	struct ut_session s;
	struct ut_code lower;		/* in its layer */
	struct ut_code code;		/* the same file on overlayfs */
	struct ut_section section;
	int fd;
	int event;
};

FIXTURE_SETUP(tables_overlay)
{
	const struct ut_opts opts = { .switches = true };

	ut_need_root();
	/* The mounts go with this process. */
	ASSERT_EQ(0, unshare(CLONE_NEWNS));
	ASSERT_EQ(0, mount(NULL, "/", NULL, MS_PRIVATE | MS_REC, NULL));
	ASSERT_EQ(0, mount("none", "/tmp", "tmpfs", 0, NULL));
	ASSERT_EQ(0, mkdir("/tmp/lower", 0700));
	ASSERT_EQ(0, mkdir("/tmp/upper", 0700));
	ASSERT_EQ(0, mkdir("/tmp/work", 0700));
	ASSERT_EQ(0, mkdir("/tmp/merged", 0700));
	ASSERT_EQ(0, ut_code_new(&self->lower, "/tmp/lower/code"));
	if (mount("none", "/tmp/merged", "overlay", 0,
		  "lowerdir=/tmp/lower,upperdir=/tmp/upper,workdir=/tmp/work")) {
		ASSERT_EQ(ENODEV, errno);
		SKIP(return, "no overlayfs: CONFIG_OVERLAY_FS");
	}
	self->code.fd = open("/tmp/merged/code", O_RDONLY | O_CLOEXEC);
	self->code.base = ut_code_map(&self->code, NULL);
	ASSERT_NE(NULL, self->code.base);

	ut_code_section(&self->section, 0);
	self->fd = ut_table_event();
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	self->event = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid");
	ASSERT_EQ(0, ut_enable(&self->s));
}

FIXTURE_TEARDOWN(tables_overlay)
{
	ut_close(&self->s);
	close(self->fd);
	ut_code_free(&self->code);
	ut_code_free(&self->lower);
}

/* Call the code, and see whether its table serves the walk. */
static void expect_call(struct __test_metadata *_metadata, FIXTURE_DATA(tables_overlay) * self,
			const char *base, bool served)
{
	struct ut_stack call, less;

	ut_code_call(base, &call, __NR_getppid, 0, 0, 0);
	ut_code_short(&call, &less);
	ut_forget(&self->s);
	ASSERT_EQ(0, ut_drain(&self->s));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, self->event, 0, 0),
				served ? &call : &less));
}

/*
 * @code is the file @lower on another file system. The profiler and the program have mapped it
 * separately; a third mapping is that of @lower.
 */
static void expect_one_file(struct __test_metadata *_metadata,
			    FIXTURE_DATA(tables_overlay) * self, const struct ut_code *code)
{
	char *profilers = ut_code_map(code, NULL);
	struct ut_section other;

	ASSERT_NE(NULL, profilers);
	ut_code_section(&other, 8);
	expect_call(_metadata, self, code->base, false);
	ASSERT_EQ(0, ut_load_section(self->fd, profilers, &self->section));
	munmap(profilers, UT_CODE_SIZE);
	expect_call(_metadata, self, code->base, true);
	/* It is one file, with one table. */
	expect_call(_metadata, self, self->lower.base, true);
	EXPECT_EQ(-EEXIST, ut_load_section(self->fd, self->lower.base, &other));
}

TEST_F(tables_overlay, lower_layer)
{
	expect_one_file(_metadata, self, &self->code);
}

TEST_F(tables_overlay, fuse_passthrough)
{
	struct ut_fuse fuse;
	struct ut_code code;
	struct stat st;

	ASSERT_EQ(0, ut_fuse_backed(&fuse, self->lower.fd));
	code.fd = open(fuse.path, O_RDONLY | O_CLOEXEC);
	ASSERT_LE(0, code.fd);
	ASSERT_EQ(0, fstat(code.fd, &st));
	code.base = ut_code_map(&code, NULL);
	ASSERT_NE(NULL, code.base);
	expect_one_file(_metadata, self, &code);
	ut_code_free(&code);
	ut_fuse_end(&fuse);
}

/* A file that is opened to be written to is copied into the upper layer: another file. */
TEST_F(tables_overlay, copied_up)
{
	struct ut_code copy;

	ASSERT_EQ(0, ut_load_section(self->fd, self->lower.base, &self->section));
	copy.fd = open("/tmp/merged/code", O_RDWR | O_CLOEXEC);
	copy.base = ut_code_map(&copy, NULL);
	ASSERT_NE(NULL, copy.base);
	expect_call(_metadata, self, copy.base, false);
	/* What was mapped before is still the lower one. */
	expect_call(_metadata, self, self->code.base, true);

	ASSERT_EQ(0, ut_load_section(self->fd, copy.base, &self->section));
	expect_call(_metadata, self, copy.base, true);
	ut_code_free(&copy);
}

TEST_HARNESS_MAIN

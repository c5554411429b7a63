// SPDX-License-Identifier: GPL-2.0
/*
 * PERF_EVENT_IOC_SET_CFI: what it refuses, with which error, and what it holds.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../kselftest_harness.h"
#include "unwind_table.h"

#define NOBODY	65534

FIXTURE(tables_ioctl) {
	struct ut_code code;
	struct ut_section section;
	struct ut_cfi cfi;
	long mb;
	int fd;
};

FIXTURE_SETUP(tables_ioctl)
{
	ut_need_root();
	ASSERT_EQ(0, ut_read_sysctl(UT_CFI_MB, &self->mb));
	ASSERT_EQ(0, ut_code_new(&self->code, NULL));
	ut_code_section(&self->section, 0);
	self->fd = ut_table_event();
	ASSERT_LE(0, self->fd);
	self->cfi = (struct ut_cfi) {
		.size		= sizeof(self->cfi),
		.object		= (unsigned long)self->code.base,
		.section	= (unsigned long)self->section.data,
		.section_size	= self->section.size,
	};
}

FIXTURE_TEARDOWN(tables_ioctl)
{
	ut_write_sysctl(UT_CFI_MB, self->mb);
	close(self->fd);
	ut_code_free(&self->code);
}

static int set_cfi(int fd, const void *cfi)
{
	return ioctl(fd, UT_IOC_SET_CFI, cfi) ? -errno : 0;
}

TEST_F(tables_ioctl, interface)
{
	EXPECT_EQ(32, sizeof(struct ut_cfi));
#ifdef PERF_EVENT_IOC_SET_CFI
	EXPECT_EQ(UT_IOC_SET_CFI, PERF_EVENT_IOC_SET_CFI);
	EXPECT_EQ(sizeof(struct ut_cfi), sizeof(struct perf_event_cfi));
	EXPECT_EQ(offsetof(struct ut_cfi, section), offsetof(struct perf_event_cfi, section));
#endif
	EXPECT_EQ(256, self->mb);
	EXPECT_EQ(-1, ut_write_sysctl(UT_CFI_MB, -1));
}

TEST_F(tables_ioctl, structure)
{
	struct {
		struct ut_cfi	cfi;
		__u64		more[2];
	} larger = { .cfi = self->cfi };
	size_t page = getpagesize();
	char *end = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			 0);

	ASSERT_NE(MAP_FAILED, end);
	end += page;
	ASSERT_EQ(0, munmap(end, page));

	EXPECT_EQ(-EFAULT, set_cfi(self->fd, NULL));
	EXPECT_EQ(-EFAULT, set_cfi(self->fd, end));
	/* The size can be read, and not the rest. */
	memcpy(end - 16, &self->cfi, 16);
	EXPECT_EQ(-EFAULT, set_cfi(self->fd, end - 16));

	self->cfi.size = 31;
	EXPECT_EQ(-EINVAL, set_cfi(self->fd, &self->cfi));
	self->cfi.size = 0;
	EXPECT_EQ(-EINVAL, set_cfi(self->fd, &self->cfi));
	self->cfi.size = sizeof(self->cfi);
	self->cfi.flags = 1;
	EXPECT_EQ(-EINVAL, set_cfi(self->fd, &self->cfi));

	larger.cfi.size = sizeof(larger);
	larger.more[1] = 1;
	EXPECT_EQ(-E2BIG, set_cfi(self->fd, &larger));
	larger.cfi.size = page + 8;
	EXPECT_EQ(-E2BIG, set_cfi(self->fd, &larger));
	larger.cfi.size = sizeof(larger);
	larger.more[1] = 0;
	EXPECT_EQ(0, set_cfi(self->fd, &larger));
	/* Another number is no command. */
	EXPECT_EQ(-1, ioctl(self->fd, _IOW('$', 0x41, void *), &self->cfi));
	EXPECT_EQ(ENOTTY, errno);
}

TEST_F(tables_ioctl, section)
{
	size_t size = self->section.size, i;
	struct ut_section bad;

	EXPECT_EQ(-EFAULT, ut_load(self->fd, self->code.base, NULL, size));
	EXPECT_EQ(-EFAULT, ut_load(self->fd, self->code.base, (void *)-4096UL, size));
	EXPECT_EQ(-EINVAL, ut_load(self->fd, self->code.base, self->section.data, 0));
	for (i = 0; i < size; i++)
		EXPECT_EQ(-EINVAL, ut_load(self->fd, self->code.base, self->section.data, i));
	for (i = 0; i < 7; i++) {
		bad = self->section;
		bad.data[i] ^= 0x10;
		EXPECT_EQ(-EINVAL, ut_load_section(self->fd, self->code.base, &bad))
			TH_LOG("byte %zu", i);
	}
	/* None of them is kept. */
	EXPECT_EQ(0, ut_load_section(self->fd, self->code.base, &self->section));
}

TEST_F(tables_ioctl, object)
{
	const char *vdso = (const char *)getauxval(AT_SYSINFO_EHDR);
	void *anon = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int zero = open("/dev/zero", O_RDONLY);
	void *device = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, zero, 0);

	EXPECT_EQ(-EINVAL, ut_load_section(self->fd, NULL, &self->section));
	EXPECT_EQ(-EINVAL, ut_load_section(self->fd, (void *)-4096UL, &self->section));
	EXPECT_EQ(-EINVAL, ut_load_section(self->fd, anon, &self->section));
	EXPECT_EQ(-EINVAL, ut_load_section(self->fd, &anon, &self->section));
	/* A private mapping of it has no file; a shared one has a file that is none. */
	EXPECT_EQ(-EINVAL, ut_load_section(self->fd, device, &self->section));
	/* Data of the vDSO is mapped ahead of it. */
	EXPECT_EQ(-EINVAL, ut_load_section(self->fd, vdso - 4096, &self->section));
	EXPECT_EQ(0, ut_load_section(self->fd, vdso, &self->section));
	/* A file need not be mapped for execution. */
	ASSERT_EQ(0, mprotect(self->code.base, 4096, PROT_READ));
	EXPECT_EQ(0, ut_load_section(self->fd, self->code.base, &self->section));
	EXPECT_EQ(0, ut_load_section(self->fd, self->code.base + UT_CODE_SIZE - 1,
				     &self->section));
	munmap(anon, 4096);
	munmap(device, 4096);
	close(zero);
}

/* The first table of a file counts, for as long as one of its owners lives. */
TEST_F(tables_ioctl, owners)
{
	int second = ut_table_event(), third = ut_table_event();
	struct ut_section other, longer = self->section;

	ut_code_section(&other, 8);
	longer.size++;
	ASSERT_LE(0, second);
	ASSERT_LE(0, third);
	EXPECT_EQ(0, ut_load_section(self->fd, self->code.base, &self->section));
	EXPECT_EQ(0, ut_load_section(self->fd, self->code.base, &self->section));
	EXPECT_EQ(0, ut_load_section(second, self->code.base, &self->section));
	EXPECT_EQ(-EEXIST, ut_load_section(third, self->code.base, &other));
	EXPECT_EQ(-EEXIST, ut_load_section(self->fd, self->code.base, &other));
	EXPECT_EQ(-EEXIST, ut_load_section(self->fd, self->code.base, &longer));
	close(self->fd);
	EXPECT_EQ(-EEXIST, ut_load_section(third, self->code.base, &other));
	close(second);
	EXPECT_EQ(0, ut_load_section(third, self->code.base, &other));
	self->fd = third;
}

/* Also when the file of an event is held by a mapping, or by a child. */
TEST_F(tables_ioctl, last_file)
{
	struct ut_section other;
	struct ut_ring ring = {};
	int second = ut_table_event(), go[2];
	pid_t pid;
	char c;

	ut_code_section(&other, 8);
	ASSERT_EQ(0, pipe(go));
	ASSERT_EQ(0, ut_load_section(self->fd, self->code.base, &self->section));
	ASSERT_EQ(0, ut_ring_map(&ring, self->fd, 1));
	close(self->fd);
	EXPECT_EQ(-EEXIST, ut_load_section(second, self->code.base, &other));
	ut_ring_unmap(&ring);
	EXPECT_EQ(0, ut_load_section(second, self->code.base, &other));

	pid = fork();
	if (!pid) {
		close(go[1]);
		_exit(read(go[0], &c, 1));
	}
	close(second);
	self->fd = ut_table_event();
	EXPECT_EQ(-EEXIST, ut_load_section(self->fd, self->code.base, &self->section));
	close(go[1]);
	ASSERT_EQ(pid, waitpid(pid, NULL, 0));
	EXPECT_EQ(0, ut_load_section(self->fd, self->code.base, &self->section));
}

TEST_F(tables_ioctl, limit)
{
	size_t size = 64 << 20;
	struct ut_code more;
	char *large = mmap(NULL, size + 1, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	ASSERT_NE(MAP_FAILED, large);
	ASSERT_EQ(0, ut_code_new(&more, NULL));
	ASSERT_EQ(0, ut_write_sysctl(UT_CFI_MB, 0));
	EXPECT_EQ(-ENOSPC, ut_load_section(self->fd, self->code.base, &self->section));
	ASSERT_EQ(0, ut_write_sysctl(UT_CFI_MB, 1));
	EXPECT_EQ(0, ut_load_section(self->fd, self->code.base, &self->section));

	/* What is behind the section's parts counts as well, and what the kernel adds. */
	memcpy(large, self->section.data, self->section.size);
	EXPECT_EQ(-ENOSPC, ut_load(self->fd, more.base, large, 1 << 20));
	EXPECT_EQ(0, ut_load(self->fd, more.base, large, (1 << 20) - (128 << 10)));
	EXPECT_EQ(0, ut_load(self->fd, more.base, large, (1 << 20) - (128 << 10)));
	/* What goes makes room. */
	close(self->fd);
	self->fd = ut_table_event();
	EXPECT_EQ(0, ut_load(self->fd, self->code.base, large, (1 << 20) - (128 << 10)));

	ASSERT_EQ(0, ut_write_sysctl(UT_CFI_MB, 256));
	EXPECT_EQ(-ENOSPC, ut_load(self->fd, more.base, large, size + 1));
	EXPECT_EQ(-ENOSPC, ut_load(self->fd, more.base, large, -1UL));
	munmap(large, size + 1);
	ut_code_free(&more);
}

static int drop(bool perfmon)
{
	struct __user_cap_header_struct hdr = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = {};

	if (prctl(PR_SET_KEEPCAPS, 1) || setresuid(NOBODY, NOBODY, NOBODY))
		return -1;
	if (perfmon) {
		data[CAP_PERFMON / 32].permitted = 1U << CAP_PERFMON % 32;
		data[CAP_PERFMON / 32].effective = 1U << CAP_PERFMON % 32;
	}
	return syscall(__NR_capset, &hdr, data);
}

/* CAP_PERFMON, and nothing less: not even what the structure is made of is looked at. */
TEST_F(tables_ioctl, permission)
{
	unsigned int perfmon;
	int status;
	pid_t pid;

	for (perfmon = 0; perfmon < 2; perfmon++) {
		pid = fork();
		if (!pid) {
			if (drop(perfmon))
				_exit(100);
			if (!perfmon && set_cfi(self->fd, NULL) != -EACCES)
				_exit(101);
			_exit(-ut_load_section(self->fd, self->code.base, &self->section));
		}
		ASSERT_EQ(pid, waitpid(pid, &status, 0));
		ASSERT_TRUE(WIFEXITED(status));
		EXPECT_EQ(perfmon ? 0 : EACCES, WEXITSTATUS(status));
	}
}

/* A caller that sleeps on its memory does not hold up others: no lock is held meanwhile. */
TEST_F(tables_ioctl, sleeps_without_locks)
{
	char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int uffd = ut_userfault(page);
	int status;
	pid_t pid;

	ASSERT_LE(0, uffd);
	pid = fork();
	if (!pid) {
		/* The child's memory is its own. */
		page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			    0);
		uffd = ut_userfault(page);
		_exit(uffd < 0 || !ut_load(self->fd, self->code.base, page, 4096));
	}
	ASSERT_TRUE(ut_wait_state(pid, "S"));
	EXPECT_EQ(0, ioctl(self->fd, PERF_EVENT_IOC_ENABLE, 0));
	EXPECT_EQ(0, ut_load_section(self->fd, self->code.base, &self->section));
	EXPECT_EQ(0, ioctl(self->fd, PERF_EVENT_IOC_DISABLE, 0));
	kill(pid, SIGKILL);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_TRUE(WIFSIGNALED(status));
	close(uffd);
}

TEST_HARNESS_MAIN

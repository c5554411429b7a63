// SPDX-License-Identifier: GPL-2.0
/*
 * K15: whatever the user stack is, the walk ends, can be killed, and nothing but
 * user addresses comes out. The same rules as the kernel's, computed here, tell
 * what each trace must be.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

#define PAGE		4096UL
#define PAGES		16

/* The end of what can be a user address; with five levels of page tables further up. */
static unsigned long task_size = (1UL << 47) - PAGE;

static void find_task_size(void)
{
	char line[8192];
	FILE *f = fopen("/proc/cpuinfo", "r");

	while (f && fgets(line, sizeof(line), f)) {
		if (!strncmp(line, "flags", 5) && strstr(line, " la57"))
			task_size = (1UL << 56) - PAGE;
	}
	if (f)
		fclose(f);
}

/*
 * getppid() with a stack pointer and a frame pointer of any kind. The kernel does
 * not use them, and no signal comes in between.
 */
UT_LABEL(bad_here);
static ut_noinline long bad_syscall(unsigned long sp, unsigned long fp)
{
	long ret;

	asm volatile("mov %%rsp, %%r12\n"
		     "mov %%rbp, %%r13\n"
		     "mov %1, %%rsp\n"
		     "mov %2, %%rbp\n"
		     "mov $110, %%eax\n"
		     "syscall\n"
		     ".globl bad_here\n"
		     "bad_here:\n"
		     "mov %%r12, %%rsp\n"
		     "mov %%r13, %%rbp\n"
		     : "=&a" (ret) : "r" (sp), "r" (fp)
		     : "rcx", "r11", "r12", "r13", "memory");
	return ret;
}

FIXTURE(bad_stacks) {
	struct ut_session s;
	unsigned long *mem;	/* a hole, PAGES pages, a hole */
	unsigned long start, end;
	int tp;
};

FIXTURE_SETUP(bad_stacks)
{
	static const struct ut_opts opts = { .pid = 0 };
	char *area;

	memset(&self->s, 0, sizeof(self->s));
	find_task_size();
	area = mmap(NULL, (PAGES + 2) * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, area);
	/* The first and the last page stay, or else the next mapping takes them. */
	self->mem = (unsigned long *)(area + PAGE);
	ASSERT_EQ(0, mprotect(self->mem, PAGES * PAGE, PROT_READ | PROT_WRITE));
	self->start = (unsigned long)self->mem;
	self->end = self->start + PAGES * PAGE;

	ASSERT_EQ(0, ut_open(&self->s, &opts));
	self->tp = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid");
	ASSERT_LE(0, self->tp);
	ASSERT_EQ(0, ut_enable(&self->s));
}

FIXTURE_TEARDOWN(bad_stacks)
{
	ut_close(&self->s);
}

/* Is this word of the area readable? */
static bool readable(unsigned long start, unsigned long holes, unsigned long addr)
{
	unsigned long page = (addr - start) / PAGE;

	return addr >= start && page < PAGES && !(holes & 1UL << page) &&
	       !((addr - start + 7) / PAGE >= PAGES) && !(holes & 1UL << (addr - start + 7) / PAGE);
}

/*
 * The rules: a frame is aligned, not below the stack pointer, above the last one,
 * can be read, and returns to a user address. @holes is a bitmap of pages.
 */
static void model(struct ut_stack *st, unsigned long start, unsigned long holes,
		  unsigned long sp, unsigned long fp)
{
	unsigned long last = 0, ret;

	st->nr = 0;
	st->ip[st->nr++] = (unsigned long)bad_here;
	while (st->nr < 127) {
		if (fp & 7 || fp < sp || fp <= last)
			return;
		if (!readable(start, holes, fp) || !readable(start, holes, fp + 8))
			return;
		ret = ((unsigned long *)fp)[1];
		if (!ret || ret >= task_size)
			return;
		st->ip[st->nr++] = ret;
		last = fp;
		fp = ((unsigned long *)fp)[0];
	}
}

static bool one(struct ut_session *s, int tp, const struct ut_stack *want, unsigned long sp,
		unsigned long fp)
{
	bool ok;

	ut_forget(s);
	bad_syscall(sp, fp);
	if (ut_drain(s))
		return false;
	ok = ut_stack_is(s, ut_sample(s, tp, 0, 0), want) && !ut_check(s, 0);
	if (!ok)
		ut_diag("sp %lx fp %lx", sp, fp);
	return ok;
}

static bool check(struct ut_session *s, int tp, unsigned long start, unsigned long sp,
		  unsigned long fp)
{
	struct ut_stack want;

	model(&want, start, 0, sp, fp);
	return one(s, tp, &want, sp, fp);
}

#define CHECK(sp, fp) \
	EXPECT_TRUE(check(&self->s, self->tp, self->start, (unsigned long)(sp),	\
			  (unsigned long)(fp)))

TEST_F(bad_stacks, frame_pointers)
{
	const unsigned long bad[] = {
		0, 1, 7, 8, 16, PAGE - 8, PAGE, ~0UL, ~0UL - 7, ~0UL - 15, 1UL << 63,
		task_size - 16, task_size - 8, task_size, task_size + PAGE - 8,
		task_size + PAGE - 1, task_size + PAGE, ~task_size - PAGE, ~task_size,
		0xffff800000000000UL, 0xff11000000000000UL, 0xffff888000000000UL,
		0xffffffff81000000UL,
		UT_VSYSCALL_START, UT_VSYSCALL_START + 0x400, UT_VSYSCALL_END - 8,
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		CHECK(0, bad[i]);
		CHECK(bad[i], bad[i]);
		CHECK(self->mem, bad[i]);
		/* And as the second frame. */
		self->mem[0] = bad[i];
		self->mem[1] = 0x400000;
		CHECK(self->mem, self->mem);
	}
}

TEST_F(bad_stacks, return_addresses)
{
	const unsigned long bad[] = {
		0, task_size, task_size + 1, task_size + PAGE - 1, task_size + PAGE,
		0xffff800000000000UL, 0xffffffff81000000UL, UT_VSYSCALL_START, ~0UL,
		~0UL - 127, ~0UL - 511, ~0UL - 639,
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		self->mem[0] = (unsigned long)&self->mem[2];
		self->mem[1] = 0x400000;
		self->mem[2] = (unsigned long)&self->mem[4];
		self->mem[3] = bad[i];
		self->mem[4] = 0;
		self->mem[5] = 0x400100;
		CHECK(self->mem, self->mem);
	}
}

TEST_F(bad_stacks, cycles)
{
	self->mem[0] = (unsigned long)&self->mem[0];
	self->mem[1] = 0x400000;
	CHECK(self->mem, self->mem);

	self->mem[0] = (unsigned long)&self->mem[8];
	self->mem[8] = (unsigned long)&self->mem[0];
	self->mem[9] = 0x400100;
	CHECK(self->mem, self->mem);

	self->mem[8] = (unsigned long)&self->mem[4];
	self->mem[4] = (unsigned long)&self->mem[8];
	self->mem[5] = 0x400200;
	CHECK(self->mem, self->mem);
}

TEST_F(bad_stacks, descending)
{
	self->mem[100] = (unsigned long)&self->mem[50];
	self->mem[101] = 0x400000;
	self->mem[50] = (unsigned long)&self->mem[200];
	self->mem[51] = 0x400100;
	CHECK(self->mem, &self->mem[100]);
	/* The very first frame lies below the stack pointer. */
	CHECK(&self->mem[101], &self->mem[100]);
	CHECK(&self->mem[100], &self->mem[100]);
}

TEST_F(bad_stacks, unaligned)
{
	int off;

	for (off = 0; off < 16; off++) {
		self->mem[0] = (unsigned long)&self->mem[2] + off;
		self->mem[1] = 0x400000;
		memset(&self->mem[2], 0, 64);
		CHECK(self->mem, self->mem);
		CHECK(self->mem, (unsigned long)self->mem + off);
	}
}

TEST_F(bad_stacks, end_of_the_mapping)
{
	unsigned long off;

	memset(self->mem, 0, PAGES * PAGE);
	for (off = 8; off <= 32; off += 8) {
		unsigned long fp = self->end - off;

		if (off >= 16)
			((unsigned long *)fp)[1] = 0x400000;
		CHECK(self->mem, fp);
		self->mem[0] = fp;
		self->mem[1] = 0x400100;
		CHECK(self->mem, self->mem);
		/* And where it begins. */
		CHECK(0, self->start - off);
	}
}

/* More frames than any trace holds. */
TEST_F(bad_stacks, endless)
{
	struct ut_stack got;
	unsigned long i;

	for (i = 0; i + 3 < PAGES * PAGE / 8; i += 2) {
		self->mem[i] = (unsigned long)&self->mem[i + 2];
		self->mem[i + 1] = 0x400000 + i;
	}
	bad_syscall(self->start, self->start);
	ASSERT_EQ(0, ut_drain(&self->s));
	ASSERT_EQ(UT_DEFERRED, ut_user_stack(&self->s, ut_sample(&self->s, self->tp, 0, 0), &got));
	EXPECT_EQ(127, got.nr);
	for (i = 1; i < got.nr; i++)
		EXPECT_EQ(0x400000 + 2 * (i - 1), got.ip[i]);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* A page that cannot be read ends the walk, one that is not there yet does not. */
TEST_F(bad_stacks, pages)
{
	unsigned long *page1 = self->mem + PAGE / 8, *page2 = self->mem + 2 * PAGE / 8;
	struct ut_stack want;
	int fd;

	self->mem[0] = (unsigned long)page1;
	self->mem[1] = 0x400000;
	page1[0] = (unsigned long)page2;
	page1[1] = 0x400100;
	page2[0] = 0;
	page2[1] = 0x400200;

	ASSERT_EQ(0, mprotect(page1, PAGE, PROT_NONE));
	model(&want, self->start, 1 << 1, self->start, self->start);
	ASSERT_EQ(2, want.nr);
	EXPECT_TRUE(one(&self->s, self->tp, &want, self->start, self->start));

	/* One that can be written to only is readable on this architecture. */
	ASSERT_EQ(0, mprotect(page1, PAGE, PROT_READ | PROT_WRITE));
	model(&want, self->start, 0, self->start, self->start);
	ASSERT_EQ(4, want.nr);
	EXPECT_TRUE(one(&self->s, self->tp, &want, self->start, self->start));

	/* A file's page, dropped: it has to be read in again. */
	fd = memfd_create("stack", 0);
	ASSERT_EQ(0, ftruncate(fd, PAGE));
	ASSERT_EQ(PAGE, pwrite(fd, page1, PAGE, 0));
	ASSERT_NE(MAP_FAILED, mmap(page1, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
				   0));
	EXPECT_TRUE(one(&self->s, self->tp, &want, self->start, self->start));
	/* And beyond the file's end: no more than a fault. */
	ASSERT_EQ(0, ftruncate(fd, 0));
	model(&want, self->start, 1 << 1, self->start, self->start);
	EXPECT_TRUE(one(&self->s, self->tp, &want, self->start, self->start));
	ASSERT_EQ(0, munmap(page1, PAGE));
	EXPECT_TRUE(one(&self->s, self->tp, &want, self->start, self->start));
}

static __u64 seed;

static __u64 rnd(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static unsigned long some_address(unsigned long start)
{
	switch (rnd() % 24) {
	case 0: return 0;
	case 1: return rnd();
	case 2: return rnd() % task_size;
	case 3: return 0xffff800000000000UL | rnd();
	case 4: return UT_VSYSCALL_START + rnd() % PAGE;
	case 5: return task_size - 16 + rnd() % 32;
	case 6: return start + rnd() % (PAGES * PAGE);
	case 7: return start + PAGES * PAGE - rnd() % 32;
	default: return start + (rnd() % (PAGES * PAGE) & ~7UL);
	}
}

/*
 * Thousands of generated ones. Frames point upwards by a little for the most part,
 * so that walks have a length; the rest is as bad as it can be.
 */
TEST_F_TIMEOUT(bad_stacks, generated, 280)
{
	unsigned long i, holes = 0, sp, fp, n, deep = 0;
	struct ut_stack want;

	seed = 0x9e3779b97f4a7c15ULL;
	for (n = 0; n < 4000; n++) {
		if (n % 16 == 0) {
			unsigned long page = rnd() % PAGES;

			mprotect(self->mem, PAGES * PAGE, PROT_READ | PROT_WRITE);
			for (i = 0; i < PAGES * PAGE / 8; i++) {
				unsigned long here = self->start + i * 8;

				if (rnd() % 64 == 0)
					self->mem[i] = some_address(self->start);
				else if (i % 2)
					self->mem[i] = 0x400000 + rnd() % 0x100000;
				else
					self->mem[i] = here + 16 * (1 + rnd() % 16);
			}
			holes = rnd() % 2 ? 1UL << page : 0;
			if (holes)
				mprotect((char *)self->mem + page * PAGE, PAGE, PROT_NONE);
		}
		fp = rnd() % 4 ? self->start + (rnd() % (PAGES * PAGE) & ~15UL) :
				 some_address(self->start);
		sp = rnd() % 4 ? fp - (rnd() % 256 & ~7UL) : some_address(self->start);
		model(&want, self->start, holes, sp, fp);
		deep += want.nr > 10;
		ASSERT_TRUE(one(&self->s, self->tp, &want, sp, fp)) TH_LOG("stack %lu", n);
	}
	EXPECT_LT(100, deep);
}

/*
 * A page under userfaultfd that is never served: the walk may wait for it, or not,
 * but the task can be killed, and the sample gets its record.
 */
struct victim {
	unsigned long	fp;
	int		uffd;
	int	ready, done;
};

static void unserved(void *arg)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct victim *v = arg;

	v->uffd = syscall(__NR_userfaultfd, O_CLOEXEC);
	reg.range.start = v->fp;
	reg.range.len = PAGE;
	if (v->uffd < 0 || ioctl(v->uffd, UFFDIO_API, &api) ||
	    ioctl(v->uffd, UFFDIO_REGISTER, &reg)) {
		v->ready = -errno;
		_exit(1);
	}
	v->ready = 1;
	bad_syscall(v->fp, v->fp);
	v->done = 1;
	for (;;)
		pause();
}

TEST_F_TIMEOUT(bad_stacks, page_never_served, 60)
{
	struct ut_opts opts = {};
	struct victim *v = ut_shared(sizeof(*v));
	struct ut_stack got;
	struct ut_child c;
	struct ut_rec *r;
	int i;

	ASSERT_NE(NULL, v);
	ut_close(&self->s);
	v->fp = (unsigned long)mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_EQ(0, ut_fork(&c, unserved, v));
	opts.pid = c.pid;
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid"));
	ASSERT_EQ(0, ut_enable(&self->s));
	ASSERT_EQ(0, ut_go(&c));
	/* It gets stuck in the fault, or comes through without the page. */
	for (i = 0; i < 100 && (!v->ready || ut_task_state(c.pid) == 'R'); i++)
		usleep(10000);
	ASSERT_EQ(1, v->ready) TH_LOG("userfaultfd: %s", strerror(-v->ready));
	usleep(200000);
	/* Nobody waits with it: neither who disables nor who reads. */
	ASSERT_EQ(0, ut_disable(&self->s));
	ASSERT_EQ(0, kill(c.pid, SIGKILL));
	ASSERT_EQ(SIGKILL, ut_wait(&c));
	ASSERT_EQ(0, ut_drain(&self->s));
	r = ut_sample(&self->s, 0, c.pid, 0);
	ASSERT_NE(NULL, r);
	if (ut_user_stack(&self->s, r, &got) == UT_DEFERRED && got.nr) {
		EXPECT_EQ(1, got.nr);
		EXPECT_EQ((unsigned long)bad_here, got.ip[0]);
	}
	/* Disabled while the task was stuck: the record may be among what is lost by that. */
	EXPECT_EQ(0, ut_check(&self->s, UT_ALLOW_UNRESOLVED));
}

/* The same, killed with the events enabled: the record is there. */
TEST_F_TIMEOUT(bad_stacks, killed_in_the_walk, 60)
{
	struct ut_opts opts = {};
	struct victim *v = ut_shared(sizeof(*v));
	struct ut_stack got;
	struct ut_child c;
	struct ut_rec *r;
	int i;

	ASSERT_NE(NULL, v);
	ut_close(&self->s);
	v->fp = (unsigned long)mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_EQ(0, ut_fork(&c, unserved, v));
	opts.pid = c.pid;
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_getppid"));
	ASSERT_EQ(0, ut_enable(&self->s));
	ASSERT_EQ(0, ut_go(&c));
	for (i = 0; i < 100 && (!v->ready || ut_task_state(c.pid) == 'R'); i++)
		usleep(10000);
	ASSERT_EQ(1, v->ready) TH_LOG("userfaultfd: %s", strerror(-v->ready));
	usleep(200000);
	ASSERT_EQ(0, kill(c.pid, SIGKILL));
	ASSERT_EQ(SIGKILL, ut_wait(&c));
	ut_disable(&self->s);
	ASSERT_EQ(0, ut_drain(&self->s));
	r = ut_sample(&self->s, 0, c.pid, 0);
	ASSERT_NE(NULL, r);
	EXPECT_EQ(UT_DEFERRED, ut_user_stack(&self->s, r, &got));
	EXPECT_GE(1, got.nr);
	if (got.nr)
		EXPECT_EQ((unsigned long)bad_here, got.ip[0]);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

int main(int argc, char **argv)
{
	ut_need_root();
	return test_harness_run(argc, argv);
}

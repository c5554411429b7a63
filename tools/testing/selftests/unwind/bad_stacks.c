// SPDX-License-Identifier: GPL-2.0
/*
 * K15: whatever the user stack contains, the walk ends, and it returns only user
 * addresses. The tests compute each expected stack with the same rules as the kernel.
 */
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

#define PAGE		4096UL
#define PAGES		16

static unsigned long task_size;

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

	area = mmap(NULL, (PAGES + 2) * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, area);
	/* Keep the first and the last page mapped, so that they stay inaccessible. */
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
 * The rules of the kernel: a frame is aligned, not below the stack pointer, not below the
 * end of the last frame, and can be read. It returns to a user address that is not in the
 * first page. @holes is a bitmap of pages that cannot be read.
 */
static void model(struct ut_stack *st, unsigned long start, unsigned long holes,
		  unsigned long sp, unsigned long fp)
{
	unsigned long ret;

	st->nr = 0;
	st->ip[st->nr++] = (unsigned long)ut_syscall_on_ret;
	while (st->nr < 127) {
		if (fp & 7 || fp < sp)
			return;
		if (!readable(start, holes, fp) || !readable(start, holes, fp + 8))
			return;
		ret = ((unsigned long *)fp)[1];
		if (ret < PAGE || ret >= task_size)
			return;
		st->ip[st->nr++] = ret;
		sp = fp + 16;
		fp = ((unsigned long *)fp)[0];
	}
}

static bool one(struct ut_session *s, int tp, const struct ut_stack *want, unsigned long sp,
		unsigned long fp)
{
	bool ok;

	ut_forget(s);
	ut_syscall_on(sp, fp, __NR_getppid, 0, 0, 0);
	if (ut_drain(s))
		return false;
	/* A second record is right if the task was preempted in a fault of the walk. */
	ok = ut_stack_is(s, ut_sample(s, tp, 0, 0), want) && !ut_check(s, UT_ALLOW_AGAIN);
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
		/* The chain is below the stack pointer. */
		CHECK(~0UL - i % 8, self->mem);
		/* The same address as the second frame. */
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
	/* The first frame lies below the stack pointer. */
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
		/* The begin of the readable area. */
		CHECK(0, self->start - off);
	}
}

/* More frames than a stack may have. */
TEST_F(bad_stacks, endless)
{
	struct ut_stack got;
	unsigned long i;

	for (i = 0; i + 3 < PAGES * PAGE / 8; i += 2) {
		self->mem[i] = (unsigned long)&self->mem[i + 2];
		self->mem[i + 1] = 0x400000 + i;
	}
	ut_syscall_on(self->start, self->start, __NR_getppid, 0, 0, 0);
	ASSERT_EQ(0, ut_drain(&self->s));
	ASSERT_EQ(UT_DEFERRED, ut_user_stack(&self->s, ut_sample(&self->s, self->tp, 0, 0), &got));
	EXPECT_EQ(127, got.nr);
	for (i = 1; i < got.nr; i++)
		EXPECT_EQ(0x400000 + 2 * (i - 1), got.ip[i]);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* A page that cannot be read ends the walk. A page that is only absent does not. */
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

	/* On this architecture a page that can be written can be read, too. */
	ASSERT_EQ(0, mprotect(page1, PAGE, PROT_READ | PROT_WRITE));
	model(&want, self->start, 0, self->start, self->start);
	ASSERT_EQ(4, want.nr);
	EXPECT_TRUE(one(&self->s, self->tp, &want, self->start, self->start));

	/*
	 * A page of a file that was dropped: the walk faults it in again. After a preemption
	 * ahead of the walk it would not.
	 */
	ASSERT_EQ(0, ut_fifo());
	fd = memfd_create("stack", 0);
	ASSERT_EQ(0, ftruncate(fd, PAGE));
	ASSERT_EQ(PAGE, pwrite(fd, page1, PAGE, 0));
	ASSERT_NE(MAP_FAILED, mmap(page1, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
				   0));
	EXPECT_TRUE(one(&self->s, self->tp, &want, self->start, self->start));
	/* Behind the end of the file the fault fails, and the walk ends. */
	ASSERT_EQ(0, ftruncate(fd, 0));
	model(&want, self->start, 1 << 1, self->start, self->start);
	EXPECT_TRUE(one(&self->s, self->tp, &want, self->start, self->start));
	ASSERT_EQ(0, munmap(page1, PAGE));
	EXPECT_TRUE(one(&self->s, self->tp, &want, self->start, self->start));
}

/* The address of a variable of the kernel. */
static unsigned long kernel_variable(const char *name)
{
	unsigned long addr, found = 0;
	char type, sym[512], line[1024];
	FILE *f = fopen("/proc/kallsyms", "r");

	while (f && !found && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx %c %511s", &addr, &type, sym) == 3 &&
		    strchr("dDbB", type) && !strcmp(sym, name))
			found = addr;
	}
	if (f)
		fclose(f);
	return found;
}

/* Put a valid frame into kernel memory. The walk must not read it. */
TEST_F(bad_stacks, kernel_memory)
{
	/* struct files_stat_struct: the third number can be set by a sysctl. */
	unsigned long record = kernel_variable("files_stat") + 8;
	long before;

	ASSERT_NE(8, record) TH_LOG("CONFIG_KALLSYMS_ALL?");
	ASSERT_EQ(0, ut_read_sysctl("/proc/sys/fs/file-max", &before));
	ASSERT_EQ(0, ut_write_sysctl("/proc/sys/fs/file-max", 0x400000));
	CHECK(0, record);
	self->mem[0] = record;
	self->mem[1] = 0x400100;
	CHECK(self->mem, self->mem);
	ut_write_sysctl("/proc/sys/fs/file-max", before);
}

static unsigned long some_address(unsigned long start)
{
	switch (ut_rnd() % 28) {
	case 0: return (ut_rnd() & 1) * (ut_rnd() % (2 * PAGE));
	case 1: return ut_rnd();
	case 2: return ut_rnd() % task_size;
	case 3: return 0xffff800000000000UL | ut_rnd();
	case 4: return UT_VSYSCALL_START + ut_rnd() % PAGE;
	case 5: return task_size - 16 + ut_rnd() % 32;
	case 6: return start + ut_rnd() % (PAGES * PAGE);
	case 7: return start + PAGES * PAGE - ut_rnd() % 32;
	default: return start + (ut_rnd() % (PAGES * PAGE) & ~7UL);
	}
}

/*
 * Fill the memory with frames. Most frames point a little upwards, so that walks get
 * long. The others are as bad as possible. Returns a bitmap of unreadable pages.
 */
static unsigned long generate(unsigned long *mem)
{
	unsigned long start = (unsigned long)mem, page = ut_rnd() % PAGES, i;

	mprotect(mem, PAGES * PAGE, PROT_READ | PROT_WRITE);
	for (i = 0; i < PAGES * PAGE / 8; i++) {
		unsigned long here = start + i * 8;

		if (ut_rnd() % 64 == 0)
			mem[i] = some_address(start);
		else if (ut_rnd() % 32 == 0)
			mem[i] = here + 8;	/* half a record */
		else if (i % 2)
			mem[i] = 0x400000 + ut_rnd() % 0x100000;
		else
			mem[i] = here + 16 * (1 + ut_rnd() % 16);
	}
	if (ut_rnd() % 2)
		return 0;
	mprotect((char *)mem + page * PAGE, PAGE, PROT_NONE);
	return 1UL << page;
}

/* Choose the start of a walk. */
static void some_start(unsigned long start, unsigned long *sp, unsigned long *fp)
{
	*fp = ut_rnd() % 4 ? start + (ut_rnd() % (PAGES * PAGE) & ~15UL) : some_address(start);
	*sp = ut_rnd() % 4 ? *fp - (ut_rnd() % 256 & ~7UL) : some_address(start);
}

/* Thousands of generated stacks. */
TEST_F_TIMEOUT(bad_stacks, generated, 280)
{
	unsigned long holes = 0, sp, fp, n, deep = 0;
	struct ut_stack want;

	ut_seed = 0x9e3779b97f4a7c15ULL;
	for (n = 0; n < 4000; n++) {
		if (n % 16 == 0)
			holes = generate(self->mem);
		some_start(self->start, &sp, &fp);
		model(&want, self->start, holes, sp, fp);
		deep += want.nr > 10;
		ASSERT_TRUE(one(&self->s, self->tp, &want, sp, fp)) TH_LOG("stack %lu", n);
	}
	EXPECT_LT(100, deep);
}

/* A thread that sleeps on such a stack, so that the stack is walked at the switch. */
struct sleeper {
	struct ut_session	s;
	int			tp;
	pthread_t		id;
	pid_t			tid;
	sem_t			go, done;
	int			pipe[2];
	unsigned long		sp, fp;
	char			c;
};

/* The only read() of the thread is the call in which it sleeps. */
static void *sleep_on(void *arg)
{
	struct sleeper *z = arg;

	__atomic_store_n(&z->tid, gettid(), __ATOMIC_RELEASE);
	for (;;) {
		while (sem_wait(&z->go))
			;
		ut_syscall_on(z->sp, z->fp, __NR_read, z->pipe[0], (long)&z->c, 1);
		sem_post(&z->done);
	}
	return NULL;
}

static int sleeper_begin(struct sleeper *z)
{
	struct ut_opts opts = { .switches = true };

	memset(&z->s, 0, sizeof(z->s));
	z->tid = 0;
	if (sem_init(&z->go, 0, 0) || sem_init(&z->done, 0, 0) || pipe(z->pipe) ||
	    pthread_create(&z->id, NULL, sleep_on, z))
		return -1;
	while (!UT_READ(z->tid))
		usleep(1000);
	opts.pid = z->tid;
	if (ut_open(&z->s, &opts))
		return -1;
	z->tp = ut_add_tracepoint(&z->s, "syscalls", "sys_enter_read");
	return z->tp < 0 ? -1 : ut_enable(&z->s);
}

static bool one_asleep(struct sleeper *z, const struct ut_stack *want)
{
	bool ok = false;

	ut_forget(&z->s);
	sem_post(&z->go);
	while (!ut_sample(&z->s, z->tp, z->tid, 0)) {
		usleep(100);
		if (ut_drain(&z->s))
			return false;
	}
	if (ut_wait_state(z->tid, "S") && !ut_drain(&z->s))
		ok = ut_stack_is(&z->s, ut_sample(&z->s, z->tp, z->tid, 0), want) &&
		     !ut_check(&z->s, 0);
	if (!ok)
		ut_diag("sp %lx fp %lx", z->sp, z->fp);
	if (write(z->pipe[1], "", 1) != 1 || sem_wait(&z->done))
		return false;
	return ok;
}

/* Fewer stacks on kernels that are slow. */
static unsigned long nr_asleep(void)
{
	return ut_kernel_checks_itself() ? 200 : 500;
}

TEST_F_TIMEOUT(bad_stacks, generated_asleep, 280)
{
	unsigned long holes = 0, n, nr = nr_asleep(), deep = 0;
	static struct sleeper z;
	struct ut_stack want;

	ASSERT_EQ(0, sleeper_begin(&z));

	ut_seed = 0xd1342543de82ef95ULL;
	for (n = 0; n < nr; n++) {
		if (n % 16 == 0)
			holes = generate(self->mem);
		some_start(self->start, &z.sp, &z.fp);
		model(&want, self->start, holes, z.sp, z.fp);
		deep += want.nr > 10;
		ASSERT_TRUE(one_asleep(&z, &want)) TH_LOG("stack %lu", n);
	}
	EXPECT_LT(nr / 40, deep);
	ut_close(&z.s);
}

/* The current lower end of the main thread's stack. */
static unsigned long stack_start(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	unsigned long start = 0;
	char line[256];

	while (f && fgets(line, sizeof(line), f)) {
		if (strstr(line, "[stack]"))
			start = strtoul(line, NULL, 16);
	}
	if (f)
		fclose(f);
	return start;
}

/*
 * Frames below a stack that can grow. A fault of user space would make the stack grow. The
 * walk must not.
 */
TEST_F(bad_stacks, below_the_stack)
{
	static const unsigned long below[] = { 8, 16, PAGE, 4 * PAGE, 1UL << 20 };
	unsigned long start;
	unsigned int i;

	/* The first call may make the stack grow by itself. */
	start = stack_start();
	start = stack_start();
	ASSERT_NE(0, start);
	for (i = 0; i < ARRAY_SIZE(below); i++)
		CHECK(0, start - below[i]);
	EXPECT_EQ(start, stack_start());
}

/* A frame that overlaps the last frame. */
TEST_F(bad_stacks, overlapping)
{
	int off;

	for (off = -8; off <= 8; off++) {
		memset(self->mem, 0, PAGE);
		self->mem[20] = (unsigned long)&self->mem[22 + off];
		self->mem[21] = 0x400000;
		if (23 + off != 20 && 23 + off != 21)
			self->mem[23 + off] = 0x400100;
		CHECK(self->mem, &self->mem[20]);
		CHECK(&self->mem[20 + off], &self->mem[20]);
	}
}

int main(int argc, char **argv)
{
	ut_need_root();
	task_size = ut_task_size();
	return test_harness_run(argc, argv);
}

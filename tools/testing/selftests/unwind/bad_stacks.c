// SPDX-License-Identifier: GPL-2.0
/*
 * K15: whatever the user stack is, the walk ends, can be killed, and nothing but
 * user addresses comes out. The same rules as the kernel's, computed here, tell
 * what each trace must be.
 */
#include <asm/ldt.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/hw_breakpoint.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <time.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

#define PAGE		4096UL
#define PAGES		16

static unsigned long task_size;

FIXTURE(bad_stacks) {
	struct ut_session s;
	struct ut_fuse fuse;
	unsigned long *mem;	/* a hole, PAGES pages, a hole */
	unsigned long start, end;
	int tp;
};

FIXTURE_SETUP(bad_stacks)
{
	static const struct ut_opts opts = { .pid = 0 };
	char *area;

	memset(&self->s, 0, sizeof(self->s));
	memset(&self->fuse, 0, sizeof(self->fuse));
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
	if (self->fuse.page)
		ut_fuse_end(&self->fuse);
}

/* Is this word of the area readable? */
static bool readable(unsigned long start, unsigned long holes, unsigned long addr)
{
	unsigned long page = (addr - start) / PAGE;

	return addr >= start && page < PAGES && !(holes & 1UL << page) &&
	       !((addr - start + 7) / PAGE >= PAGES) && !(holes & 1UL << (addr - start + 7) / PAGE);
}

/*
 * The rules: a frame is aligned, not below the stack pointer, not below the end of the
 * last one, can be read, and returns to a user address that is not in the first page.
 * @holes is a bitmap of pages.
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
	ut_syscall_on(self->start, self->start, __NR_getppid, 0, 0, 0);
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

/* Where a variable of the kernel's is. */
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

/* A frame record in the kernel's memory, which this makes there, is none. */
TEST_F(bad_stacks, kernel_memory)
{
	/* struct files_stat_struct: two numbers, then the one that can be set */
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
	switch (rnd() % 28) {
	case 0: return (rnd() & 1) * (rnd() % (2 * PAGE));
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
 * Frames point upwards by a little for the most part, so that walks have a length; the
 * rest is as bad as it can be. Returns the pages that are made holes.
 */
static unsigned long generate(unsigned long *mem)
{
	unsigned long start = (unsigned long)mem, page = rnd() % PAGES, i;

	mprotect(mem, PAGES * PAGE, PROT_READ | PROT_WRITE);
	for (i = 0; i < PAGES * PAGE / 8; i++) {
		unsigned long here = start + i * 8;

		if (rnd() % 64 == 0)
			mem[i] = some_address(start);
		else if (rnd() % 32 == 0)
			mem[i] = here + 8;	/* half a record */
		else if (i % 2)
			mem[i] = 0x400000 + rnd() % 0x100000;
		else
			mem[i] = here + 16 * (1 + rnd() % 16);
	}
	if (rnd() % 2)
		return 0;
	mprotect((char *)mem + page * PAGE, PAGE, PROT_NONE);
	return 1UL << page;
}

/* Where a walk of that is to start. */
static void some_start(unsigned long start, unsigned long *sp, unsigned long *fp)
{
	*fp = rnd() % 4 ? start + (rnd() % (PAGES * PAGE) & ~15UL) : some_address(start);
	*sp = rnd() % 4 ? *fp - (rnd() % 256 & ~7UL) : some_address(start);
}

/* Thousands of generated ones. */
TEST_F_TIMEOUT(bad_stacks, generated, 280)
{
	unsigned long holes = 0, sp, fp, n, deep = 0;
	struct ut_stack want;

	seed = 0x9e3779b97f4a7c15ULL;
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

struct stack32 {
	unsigned int	cs, ss;		/* selectors */
	unsigned int	cs_base, ss_base;
};

/*
 * A thread that sleeps on such a stack when the profile ends: the walk is another task's,
 * by another way to its memory, and finds the same.
 */
struct sleeper {
	struct ut_session	s;
	int			tp;
	pthread_t		id;
	pid_t			tid;
	sem_t			go, done;
	int			pipe[2];
	const struct stack32	*seg;	/* of 32 bits */
	unsigned long		sp, fp;
	char			c;
};

static void bad_syscall_32(const struct stack32 *s, __u32 sp, __u32 fp);

/* Nothing but the call that it sleeps in is a read(). */
static void *sleep_on(void *arg)
{
	struct sleeper *z = arg;

	__atomic_store_n(&z->tid, gettid(), __ATOMIC_RELEASE);
	for (;;) {
		while (sem_wait(&z->go))
			;
		if (z->seg)
			bad_syscall_32(z->seg, z->sp, z->fp);
		else
			ut_syscall_on(z->sp, z->fp, __NR_read, z->pipe[0], (long)&z->c, 1);
		sem_post(&z->done);
	}
	return NULL;
}

static int sleeper_begin(struct sleeper *z)
{
	struct ut_opts opts = {};

	memset(&z->s, 0, sizeof(z->s));
	z->tid = 0;
	if (sem_init(&z->go, 0, 0) || sem_init(&z->done, 0, 0) ||
	    pthread_create(&z->id, NULL, sleep_on, z))
		return -1;
	while (!UT_READ(z->tid))
		usleep(1000);
	opts.pid = z->tid;
	return ut_open(&z->s, &opts);
}

static bool one_asleep(struct sleeper *z, const struct ut_stack *want)
{
	struct ut_rec *r;
	bool ok = false;

	ut_forget(&z->s);
	if (ut_enable(&z->s))
		return false;
	sem_post(&z->go);
	while (!ut_sample(&z->s, z->tp, z->tid, 0)) {
		usleep(100);
		if (ut_drain(&z->s))
			return false;
	}
	if (ut_wait_state(z->tid, "S") && !ut_disable(&z->s) && !ut_drain(&z->s)) {
		r = ut_sample(&z->s, z->tp, z->tid, 0);
		ok = ut_stack_is(&z->s, r, want) && !ut_check(&z->s, 0);
	}
	if (!ok)
		ut_diag("sp %lx fp %lx", z->sp, z->fp);
	/* The thread has nothing to add when it goes on. */
	if (write(z->pipe[1], "", 1) != 1 || sem_wait(&z->done))
		return false;
	return ok;
}

/* Where all takes longer there are fewer of them. */
static unsigned long nr_asleep(void)
{
	return ut_kernel_checks_itself() ? 200 : 1000;
}

TEST_F_TIMEOUT(bad_stacks, generated_asleep, 280)
{
	unsigned long holes = 0, n, nr = nr_asleep(), deep = 0;
	static struct sleeper z;
	struct ut_stack want;

	ASSERT_EQ(0, pipe(z.pipe));
	ASSERT_EQ(0, sleeper_begin(&z));
	z.tp = ut_add_tracepoint(&z.s, "syscalls", "sys_enter_read");
	ASSERT_LE(0, z.tp);

	seed = 0xd1342543de82ef95ULL;
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

/* Where the stack of the main thread begins now, to grow from there. */
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
 * Below a stack that grows, where a fault would have it do so: it has not been there, and
 * nobody but the task itself makes it be. A walk from outside says nothing of it either.
 */
TEST_F(bad_stacks, below_the_stack)
{
	static const unsigned long below[] = { 8, 16, PAGE, 4 * PAGE, 1UL << 20 };
	static struct sleeper z;
	struct ut_stack want;
	unsigned long start;
	char said[4096];
	unsigned int i;
	ssize_t len;
	int kmsg;

	/* It is read once before, for what that takes. */
	start = stack_start();
	start = stack_start();
	ASSERT_NE(0, start);
	for (i = 0; i < ARRAY_SIZE(below); i++)
		CHECK(0, start - below[i]);
	EXPECT_EQ(start, stack_start());

	kmsg = open("/dev/kmsg", O_RDONLY | O_NONBLOCK);
	ASSERT_LE(0, kmsg);
	ASSERT_LE(0, lseek(kmsg, 0, SEEK_END));
	ASSERT_EQ(0, pipe(z.pipe));
	ASSERT_EQ(0, sleeper_begin(&z));
	z.tp = ut_add_tracepoint(&z.s, "syscalls", "sys_enter_read");
	ASSERT_LE(0, z.tp);
	for (i = 0; i < ARRAY_SIZE(below); i++) {
		z.fp = start - below[i];
		z.sp = z.fp - PAGE;
		model(&want, self->start, 0, z.sp, z.fp);
		ASSERT_EQ(1, want.nr);
		EXPECT_TRUE(one_asleep(&z, &want));
	}
	EXPECT_EQ(start, stack_start());
	ut_close(&z.s);
	while ((len = read(kmsg, said, sizeof(said) - 1)) > 0) {
		said[len] = 0;
		EXPECT_EQ(NULL, strstr(said, "grows the stack")) TH_LOG("%s", said);
	}
	close(kmsg);
}

/* A frame that overlaps the last one, or lies within it. */
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

/*
 * 32-bit stacks. The process enters a 32-bit code segment, its own or one of the LDT
 * that has a base, does a system call of that kind, and comes back.
 */
#define CS64		0x33
#define CS32		0x23
#define SS32		0x2b
#define LDT_CS		0x07
#define LDT_SS		0x0f
#define BASE32		0x10000000U

static const unsigned char code32[] = {
	0x8e, 0xd1,			/*  0: mov %ecx, %ss */
	0x89, 0xd4,			/*  2: mov %edx, %esp */
	0xb8, 64, 0, 0, 0,		/*  4: mov $64, %eax		getppid() */
	0xcd, 0x80,			/*  9: int $0x80 */
	0xb9, SS32, 0, 0, 0,		/* 11: mov $SS32, %ecx */
	0x8e, 0xd1,			/* 16: mov %ecx, %ss */
	0xea, 0, 0, 0, 0, CS64, 0,	/* 18: ljmp $CS64, $25 */
	0x41, 0xff, 0xe4,		/* 25: jmp *%r12		64 bits again */
};

/* Behind the system call. */
static unsigned int here_32 = 11;

static unsigned char *low_code;

/*
 * Put @code where 32 bits reach it, with the address of what is at @back in it into what
 * is at @jump, the operand of its way out. Returns 0 or -1.
 */
static int map_low_code(const unsigned char *code, size_t size, int jump, int back)
{
	void *to = mmap(NULL, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	__u32 addr = (unsigned long)to + back;

	if (to == MAP_FAILED)
		return -1;
	low_code = to;
	memcpy(low_code, code, size);
	memcpy(low_code + jump, &addr, sizeof(addr));
	return 0;
}

static ut_noinline void bad_syscall_32(const struct stack32 *s, __u32 sp, __u32 fp)
{
	struct {
		__u32	ip;
		__u16	cs;
	} to = { (unsigned long)low_code - s->cs_base, s->cs };
	unsigned long ss = s->ss, esp = sp, ebp = fp;

	/* What is below the stack pointer belongs to the compiler. */
	asm volatile("lea -128(%%rsp), %%rsp\n"
		     "push %%rbp\n"
		     "push %%rbx\n"
		     "mov %%rsp, %%r13\n"
		     "lea 1f(%%rip), %%r12\n"
		     "mov %[ebp], %%rbp\n"
		     "ljmpl *(%[to])\n"
		     "1:\n"
		     "mov %%r13, %%rsp\n"
		     "pop %%rbx\n"
		     "pop %%rbp\n"
		     "lea 128(%%rsp), %%rsp\n"
		     : "+c" (ss), "+d" (esp)
		     : [to] "S" (&to), [ebp] "D" (ebp)
		     : "rax", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "memory");
}

static bool readable_32(unsigned long start, unsigned long holes, unsigned long addr)
{
	unsigned long page = (addr - start) / PAGE, last = (addr - start + 3) / PAGE;

	return addr >= start && last < PAGES && !(holes & 1UL << page) &&
	       !(holes & 1UL << last);
}

/* The same rules with words of 32 bits, and segments. */
static void model_32(struct ut_stack *st, const struct stack32 *s, unsigned long start,
		     unsigned long holes, __u32 esp, __u32 ebp)
{
	__u32 fp = ebp + s->ss_base, ret;
	unsigned long sp = (__u32)(esp + s->ss_base);

	st->nr = 0;
	st->ip[st->nr++] = (__u32)(unsigned long)(low_code + here_32);
	while (st->nr < 127) {
		if (fp & 3 || fp < sp)
			return;
		if (!readable_32(start, holes, fp) || !readable_32(start, holes, fp + 4UL))
			return;
		ret = ((__u32 *)(unsigned long)fp)[1];
		if (!ret)
			return;
		ret += s->cs_base;
		if (ret < PAGE)
			return;
		st->ip[st->nr++] = ret;
		sp = fp + 8UL;
		fp = ((__u32 *)(unsigned long)fp)[0] + s->ss_base;
	}
}

static __u32 some_address_32(__u32 start)
{
	switch (rnd() % 16) {
	case 0: return (rnd() & 1) * (rnd() % (2 * PAGE));
	case 1: return rnd();
	case 2: return -1U - rnd() % 32;
	case 3: return start + rnd() % (PAGES * PAGE);
	case 4: return start + PAGES * PAGE - rnd() % 16;
	case 5: return -BASE32 + rnd() % (2 * PAGE);
	default: return start + (rnd() % (PAGES * PAGE) & ~3UL);
	}
}

FIXTURE(bad_stacks_32) {
	struct ut_session s;
	struct stack32 seg;
	__u32 *mem;
	int tp;
};

FIXTURE_VARIANT(bad_stacks_32) {
	bool ldt;
};

FIXTURE_VARIANT_ADD(bad_stacks_32, flat) {
	.ldt = false,
};

FIXTURE_VARIANT_ADD(bad_stacks_32, segments_with_a_base) {
	.ldt = true,
};

FIXTURE_SETUP(bad_stacks_32)
{
	static const struct ut_opts opts = { .pid = 0, .pages = 512 };
	struct user_desc desc = {
		.base_addr = BASE32, .limit = 0xfffff, .seg_32bit = 1, .limit_in_pages = 1,
		.contents = MODIFY_LDT_CONTENTS_CODE,
	};
	char *area;

	memset(&self->s, 0, sizeof(self->s));
	if (!ut_has_32bit())
		SKIP(return, UT_NO_32BIT);
	ASSERT_EQ(0, map_low_code(code32, sizeof(code32), 19, 25));
	area = mmap(NULL, (PAGES + 2) * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT,
		    -1, 0);
	ASSERT_NE(MAP_FAILED, area);
	self->mem = (__u32 *)(area + PAGE);
	ASSERT_EQ(0, mprotect(self->mem, PAGES * PAGE, PROT_READ | PROT_WRITE));

	self->seg = (struct stack32){ .cs = CS32, .ss = SS32 };
	if (variant->ldt) {
		ASSERT_EQ(0, syscall(SYS_modify_ldt, 1, &desc, sizeof(desc)))
			TH_LOG("CONFIG_MODIFY_LDT_SYSCALL?");
		desc.entry_number = 1;
		desc.contents = MODIFY_LDT_CONTENTS_DATA;
		ASSERT_EQ(0, syscall(SYS_modify_ldt, 1, &desc, sizeof(desc)));
		self->seg = (struct stack32){ LDT_CS, LDT_SS, BASE32, BASE32 };
	}

	ASSERT_EQ(0, ut_open(&self->s, &opts));
	/* The tracepoints of single system calls leave 32-bit ones out. */
	self->tp = ut_add_tracepoint(&self->s, "raw_syscalls", "sys_enter");
	ASSERT_LE(0, self->tp);
	ASSERT_EQ(0, ioctl(self->s.event[0].fd[0], PERF_EVENT_IOC_SET_FILTER, "id == 64"));
	ASSERT_EQ(0, ut_enable(&self->s));
}

FIXTURE_TEARDOWN(bad_stacks_32)
{
	ut_close(&self->s);
}

static unsigned long generate_32(__u32 *mem, const struct stack32 *seg)
{
	unsigned long start = (unsigned long)mem, page = rnd() % PAGES, i;

	mprotect(mem, PAGES * PAGE, PROT_READ | PROT_WRITE);
	for (i = 0; i < PAGES * PAGE / 4; i++) {
		__u32 here = start + i * 4;

		if (rnd() % 64 == 0)
			mem[i] = some_address_32(start) - seg->ss_base;
		else if (rnd() % 32 == 0)
			mem[i] = here + 4 - seg->ss_base;
		else if (i % 2)
			mem[i] = 0x400000 + rnd() % 0x100000;
		else
			mem[i] = here + 8 * (1 + rnd() % 16) - seg->ss_base;
	}
	if (rnd() % 2)
		return 0;
	mprotect((char *)mem + page * PAGE, PAGE, PROT_NONE);
	return 1UL << page;
}

static void some_start_32(unsigned long start, const struct stack32 *seg, __u32 *sp, __u32 *fp)
{
	*fp = rnd() % 4 ? start + (rnd() % (PAGES * PAGE) & ~7UL) : some_address_32(start);
	*sp = rnd() % 4 ? *fp - (rnd() % 256 & ~3UL) : some_address_32(start);
	*sp -= seg->ss_base;
	*fp -= seg->ss_base;
}

TEST_F_TIMEOUT(bad_stacks_32, generated, 280)
{
	unsigned long start = (unsigned long)self->mem, n, holes = 0, deep = 0;
	const struct stack32 *seg = &self->seg;
	struct ut_stack want;
	__u32 sp, fp;

	seed = 0x2545f4914f6cdd1dULL;
	for (n = 0; n < 4000; n++) {
		if (n % 16 == 0)
			holes = generate_32(self->mem, seg);
		some_start_32(start, seg, &sp, &fp);
		model_32(&want, seg, start, holes, sp, fp);
		deep += want.nr > 10;
		ut_forget(&self->s);
		bad_syscall_32(seg, sp, fp);
		ASSERT_EQ(0, ut_drain(&self->s));
		ASSERT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, self->tp, 0, 0), &want))
			TH_LOG("stack %lu, esp %x, ebp %x", n, sp, fp);
		ASSERT_EQ(0, ut_check(&self->s, 0));
	}
	EXPECT_LT(100, deep);
}

/* Asleep in a read(), walked from outside. */
TEST_F_TIMEOUT(bad_stacks_32, generated_asleep, 280)
{
	static const unsigned char code_read[] = {
		0x8e, 0xd1,			/*  0: mov %ecx, %ss */
		0x89, 0xd4,			/*  2: mov %edx, %esp */
		0xbb, 0, 0, 0, 0,		/*  4: mov $pipe, %ebx */
		0xb9, 0, 0, 0, 0,		/*  9: mov $buffer, %ecx */
		0xba, 1, 0, 0, 0,		/* 14: mov $1, %edx */
		0xb8, 3, 0, 0, 0,		/* 19: mov $3, %eax		read() */
		0xcd, 0x80,			/* 24: int $0x80 */
		0xb9, SS32, 0, 0, 0,		/* 26: mov $SS32, %ecx */
		0x8e, 0xd1,			/* 31: mov %ecx, %ss */
		0xea, 0, 0, 0, 0, CS64, 0,	/* 33: ljmp $CS64, $40 */
		0x41, 0xff, 0xe4,		/* 40: jmp *%r12 */
	};
	unsigned long start = (unsigned long)self->mem, n, nr = nr_asleep();
	unsigned long holes = 0, deep = 0;
	unsigned char *code = low_code + 128, *buffer = low_code + 256;
	__u32 back = (unsigned long)code + 40, buf = (unsigned long)buffer, sp, fp;
	static struct sleeper z;
	struct ut_stack want;

	ASSERT_EQ(0, pipe(z.pipe));
	memcpy(code, code_read, sizeof(code_read));
	memcpy(code + 5, &z.pipe[0], 4);
	memcpy(code + 10, &buf, 4);
	memcpy(code + 34, &back, 4);
	low_code = code;
	here_32 = 26;

	z.seg = &self->seg;
	ASSERT_EQ(0, sleeper_begin(&z));
	z.tp = ut_add_tracepoint(&z.s, "raw_syscalls", "sys_enter");
	ASSERT_LE(0, z.tp);
	ASSERT_EQ(0, ioctl(z.s.event[z.tp].fd[0], PERF_EVENT_IOC_SET_FILTER, "id == 3"));

	seed = 0x9fb21c651e98df25ULL;
	for (n = 0; n < nr; n++) {
		if (n % 16 == 0)
			holes = generate_32(self->mem, z.seg);
		some_start_32(start, z.seg, &sp, &fp);
		z.sp = sp;
		z.fp = fp;
		model_32(&want, z.seg, start, holes, sp, fp);
		deep += want.nr > 10;
		ASSERT_TRUE(one_asleep(&z, &want)) TH_LOG("stack %lu", n);
	}
	EXPECT_LT(nr / 40, deep);
	ut_close(&z.s);
}

/* Code of 16 bits: the size of its stack words is not known, so there is no stack. */
TEST_F(bad_stacks_32, code_of_16_bits)
{
	static const unsigned char code16[] = {
		0x8e, 0xd1,				/*  0: mov %cx, %ss */
		0x66, 0x89, 0xd4,			/*  2: mov %edx, %esp */
		0x66, 0xb8, 64, 0, 0, 0,		/*  5: mov $64, %eax	getppid() */
		0xcd, 0x80,				/* 11: int $0x80 */
		0x66, 0xb9, SS32, 0, 0, 0,		/* 13: mov $SS32, %ecx */
		0x8e, 0xd1,				/* 19: mov %cx, %ss */
		0x66, 0xea, 0, 0, 0, 0, CS64, 0,	/* 21: ljmpl $CS64, $29 */
		0x41, 0xff, 0xe4,			/* 29: jmp *%r12 */
	};
	unsigned char *code = low_code + 128;
	__u32 back = (unsigned long)code + 29, fp = (unsigned long)self->mem;
	struct user_desc desc = {
		.entry_number = 2, .base_addr = (unsigned long)code, .limit = 0xffff,
		.contents = MODIFY_LDT_CONTENTS_CODE,
	};
	struct stack32 seg = { .cs = 2 << 3 | 7, .ss = SS32, .cs_base = desc.base_addr };
	struct ut_stack got;

	ASSERT_EQ(0, syscall(SYS_modify_ldt, 1, &desc, sizeof(desc)))
		TH_LOG("CONFIG_MODIFY_LDT_SYSCALL, CONFIG_X86_16BIT?");
	memcpy(code, code16, sizeof(code16));
	memcpy(code + 23, &back, sizeof(back));
	/* A frame, if it were code of 32 bits. */
	self->mem[0] = 0;
	self->mem[1] = 0x400000;
	low_code = code;
	bad_syscall_32(&seg, fp, fp);
	ASSERT_EQ(0, ut_drain(&self->s));
	ASSERT_EQ(UT_DEFERRED, ut_user_stack(&self->s, ut_sample(&self->s, self->tp, 0, 0), &got));
	EXPECT_EQ(0, got.nr);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/*
 * Code of 32 bits runs on any kernel: there is a segment for it. Where the kernel knows no
 * programs of that kind there is no stack, or the right one, and not what words of 64 bits
 * would be.
 */
TEST(code_of_32_bits)
{
	static const unsigned char code[] = {
		0x8e, 0xd1,			/*  0: mov %ecx, %ss */
		0x89, 0xd4,			/*  2: mov %edx, %esp */
		0x90,				/*  4: nop		the breakpoint */
		0xb9, SS32, 0, 0, 0,		/*  5: mov $SS32, %ecx */
		0x8e, 0xd1,			/* 10: mov %ecx, %ss */
		0xea, 0, 0, 0, 0, CS64, 0,	/* 12: ljmp $CS64, $19 */
		0x41, 0xff, 0xe4,		/* 19: jmp *%r12 */
	};
	static const struct stack32 seg = { .cs = CS32, .ss = SS32 };
	static const struct ut_opts opts = { .pid = 0 };
	struct perf_event_attr attr = {
		.type		= PERF_TYPE_BREAKPOINT,
		.bp_type	= HW_BREAKPOINT_X,
		.bp_len		= sizeof(long),
		.sample_period	= 1,
	};
	struct ut_stack want = { .nr = 2 }, got;
	struct ut_session s = {};
	__u32 *mem;
	int bp;

	ASSERT_EQ(0, map_low_code(code, sizeof(code), 13, 19));
	mem = (__u32 *)(low_code + PAGE / 2);
	mem[1] = 0x400000;
	/* The return address of a frame of 64-bit words. */
	mem[2] = 0x500000;

	ASSERT_EQ(0, ut_open(&s, &opts));
	attr.bp_addr = (unsigned long)low_code + 4;
	bp = ut_add(&s, &attr);
	ASSERT_LE(0, bp);
	ASSERT_EQ(0, ut_enable(&s));
	bad_syscall_32(&seg, (unsigned long)mem, (unsigned long)mem);
	ut_disable(&s);
	ASSERT_EQ(0, ut_drain(&s));
	ASSERT_EQ(1, ut_count_samples(&s, bp, 0));
	want.ip[0] = attr.bp_addr;
	want.ip[1] = mem[1];
	ASSERT_EQ(UT_DEFERRED, ut_user_stack(&s, ut_sample(&s, bp, 0, 0), &got));
	if (ut_has_32bit() || got.nr)
		EXPECT_TRUE(ut_stack_is(&s, ut_sample(&s, bp, 0, 0), &want));
	EXPECT_EQ(0, ut_check(&s, 0));
	ut_close(&s);
}

/* Run @fn in a child, of which each call of @tp is sampled. */
static int watch_child(struct ut_session *s, struct ut_child *c, ut_fn fn, void *arg,
		       const char *tp)
{
	struct ut_opts opts = {};

	if (ut_fork(c, fn, arg))
		return -1;
	opts.pid = c->pid;
	if (ut_open(s, &opts) || ut_add_tracepoint(s, "syscalls", tp) < 0 || ut_enable(s))
		return -1;
	return ut_go(c);
}

/*
 * A page of a device that does not answer: the walk waits for it, but the task can be
 * killed, and the sample gets its record.
 */
struct victim {
	unsigned long	fp;
	long		exit;		/* by this system call, or not at all */
	struct ut_fuse	*fuse;
	int	ready, done;
};

static void unserved(void *arg)
{
	struct victim *v = arg;

	v->ready = 1;
	if (v->exit)
		ut_syscall_on(v->fp, v->fp, v->exit, 0, 0, 0);
	ut_syscall_on(v->fp, v->fp, __NR_getppid, 0, 0, 0);
	v->done = 1;
	for (;;)
		pause();
}

TEST_F_TIMEOUT(bad_stacks, page_never_served, 60)
{
	struct victim *v = ut_shared(sizeof(*v));
	struct ut_stack got;
	struct ut_child c;
	struct ut_rec *r;

	ASSERT_NE(NULL, v);
	ut_close(&self->s);
	ASSERT_EQ(0, ut_device_page(&self->fuse));
	v->fp = (unsigned long)self->fuse.page;
	ASSERT_EQ(0, watch_child(&self->s, &c, unserved, v, "sys_enter_getppid"));
	/* It gets stuck in the fault. */
	ASSERT_TRUE(ut_wait_state(c.pid, "D"));
	ASSERT_EQ(1, v->ready);
	EXPECT_EQ(0, v->done);
	/* Nobody waits with it: neither who disables nor who reads. */
	ASSERT_EQ(0, ut_disable(&self->s));
	ASSERT_EQ(0, kill(c.pid, SIGKILL));
	ASSERT_EQ(SIGKILL, ut_wait(&c));
	ASSERT_EQ(0, ut_drain(&self->s));
	r = ut_sample(&self->s, 0, c.pid, 0);
	ASSERT_NE(NULL, r);
	if (ut_user_stack(&self->s, r, &got) == UT_DEFERRED && got.nr) {
		EXPECT_EQ(1, got.nr);
		EXPECT_EQ((unsigned long)ut_syscall_on_ret, got.ip[0]);
	}
	/* Disabled while the task was stuck: the record may be among what is lost by that. */
	EXPECT_EQ(0, ut_check(&self->s, UT_ALLOW_UNRESOLVED));
}

/*
 * A thread that serves a page by userfaultfd has its address at hand, here where the
 * frame pointer is: it must not be made to wait for itself.
 */
static void serves_itself(void *arg)
{
	struct victim *v = arg;

	v->ready = ut_userfault((void *)v->fp);
	if (v->ready < 0)
		return;
	ut_syscall_on(v->fp, v->fp, __NR_getppid, 0, 0, 0);
	v->done = 1;
	for (;;)
		pause();
}

TEST_F(bad_stacks, page_of_its_own_to_serve)
{
	struct victim *v = ut_shared(sizeof(*v));
	struct ut_stack got;
	struct ut_child c;

	ASSERT_NE(NULL, v);
	ut_close(&self->s);
	v->fp = (unsigned long)mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_EQ(0, watch_child(&self->s, &c, serves_itself, v, "sys_enter_getppid"));
	/* In pause(), or waiting for the page. */
	while (!UT_READ(v->ready))
		usleep(1000);
	ASSERT_LE(0, v->ready) TH_LOG("userfaultfd: %s", strerror(-v->ready));
	ASSERT_TRUE(ut_wait_state(c.pid, "DS"));
	EXPECT_EQ(1, v->done);
	ut_disable(&self->s);
	ASSERT_EQ(0, kill(c.pid, SIGKILL));
	ASSERT_EQ(SIGKILL, ut_wait(&c));
	ASSERT_EQ(0, ut_drain(&self->s));
	ASSERT_EQ(UT_DEFERRED, ut_user_stack(&self->s, ut_sample(&self->s, 0, c.pid, 0), &got));
	EXPECT_EQ(1, got.nr);
	EXPECT_EQ((unsigned long)ut_syscall_on_ret, got.ip[0]);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/*
 * Nor does a task wait for a page of FUSE, which no signal may end, as where the server
 * answers one request at a time, or a page is read by itself. Its record has the frames
 * up to there.
 */
static void beside_fuse(void *arg)
{
	struct victim *v = arg;

	ut_syscall_on(v->fp, v->fp, __NR_getppid, 0, 0, 0);
	__atomic_store_n(&v->done, 1, __ATOMIC_RELEASE);
	for (;;)
		pause();
}

/* Ten seconds, for what takes none. */
static bool wait_done(int *done, int want)
{
	int i;

	for (i = 0; i < 10000 && UT_READ(*done) != want; i++)
		usleep(1000);
	return UT_READ(*done) == want;
}

FIXTURE(dead_fuse) {
	struct ut_session s;
	struct ut_fuse fuse;
	struct victim *v;
	struct ut_child c;
};

FIXTURE_VARIANT(dead_fuse) {
	bool sync;
	int advice;
};

FIXTURE_VARIANT_ADD(dead_fuse, async) {
	.advice = MADV_NORMAL,
};

FIXTURE_VARIANT_ADD(dead_fuse, sync) {
	.sync = true, .advice = MADV_NORMAL,
};

FIXTURE_VARIANT_ADD(dead_fuse, random) {
	.advice = MADV_RANDOM,
};

FIXTURE_SETUP(dead_fuse)
{
	memset(&self->s, 0, sizeof(self->s));
	self->c.pid = 0;
	self->v = ut_shared(sizeof(*self->v));
	ASSERT_NE(NULL, self->v);
	ASSERT_EQ(0, ut_fuse_page(&self->fuse, variant->sync));
	ASSERT_EQ(0, madvise(self->fuse.page, PAGE, variant->advice));
}

FIXTURE_TEARDOWN(dead_fuse)
{
	/* A task that waits goes on when the server is gone. */
	ut_fuse_end(&self->fuse);
	if (self->c.pid > 0) {
		kill(self->c.pid, SIGKILL);
		ut_wait(&self->c);
	}
	ut_close(&self->s);
}

TEST_F(dead_fuse, page)
{
	char *page = self->fuse.page;
	unsigned long *frame;
	struct ut_stack got;

	/* A frame that lies above the one before. */
	frame = mmap(page - PAGES * PAGE, PAGE, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_LT((void *)frame, (void *)page);
	frame[0] = (unsigned long)page;
	frame[1] = 0x400100;
	self->v->fp = (unsigned long)frame;
	ASSERT_EQ(0, watch_child(&self->s, &self->c, beside_fuse, self->v, "sys_enter_getppid"));
	EXPECT_TRUE(wait_done(&self->v->done, 1));
	ut_disable(&self->s);
	ASSERT_EQ(0, ut_drain(&self->s));
	ASSERT_EQ(UT_DEFERRED,
		  ut_user_stack(&self->s, ut_sample(&self->s, 0, self->c.pid, 0), &got));
	ASSERT_EQ(2, got.nr);
	EXPECT_EQ((unsigned long)ut_syscall_on_ret, got.ip[0]);
	EXPECT_EQ(frame[1], got.ip[1]);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/*
 * The server itself, with the address of a page of its own at hand: it must not wait for
 * what it has to answer. When another thread has had the page it is read.
 */
struct self_served {
	struct ut_fuse	fuse;		/* the first, for between() */
	void		*page;
	int		err, ready, done;
};

static void between(struct ut_fuse *f)
{
	struct self_served *v = (void *)f;

	if (UT_READ(v->ready) == v->done)
		return;
	ut_syscall_on((unsigned long)v->page, (unsigned long)v->page, __NR_getppid, 0, 0, 0);
	__atomic_store_n(&v->done, v->done + 1, __ATOMIC_RELEASE);
}

static void *map_and_read(void *arg)
{
	struct self_served *v = arg;
	char value[8];

	v->page = ut_fuse_map(&v->fuse, PROT_READ, MAP_PRIVATE);
	if (v->page == MAP_FAILED) {
		__atomic_store_n(&v->err, 1, __ATOMIC_RELEASE);
		return NULL;
	}
	__atomic_store_n(&v->ready, 1, __ATOMIC_RELEASE);
	/* What comes behind a request is seen by the next one at the latest. */
	getxattr(v->fuse.path, "user.first", value, sizeof(value));
	while (UT_READ(v->done) < 1)
		usleep(1000);
	UT_READ(*(char *)v->page);
	__atomic_store_n(&v->ready, 2, __ATOMIC_RELEASE);
	getxattr(v->fuse.path, "user.second", value, sizeof(value));
	return NULL;
}

static void serves_its_file(void *arg)
{
	struct self_served *v = arg;
	int fd = ut_fuse_mount(&v->fuse);
	pthread_t id;

	if (fd < 0 || pthread_create(&id, NULL, map_and_read, v))
		__atomic_store_n(&v->err, 1, __ATOMIC_RELEASE);
	else
		ut_fuse_serve(fd, &v->fuse);
}

TEST_F(bad_stacks, page_of_its_own_file)
{
	struct self_served *v = ut_shared(sizeof(*v));
	struct ut_stack got;
	struct ut_child c;

	ASSERT_NE(NULL, v);
	ut_close(&self->s);
	v->fuse = (struct ut_fuse){ .direct = -1, .before = between, .frame = 0x400100 };
	ASSERT_EQ(0, watch_child(&self->s, &c, serves_its_file, v, "sys_enter_getppid"));
	EXPECT_TRUE(wait_done(&v->done, 2));
	EXPECT_EQ(0, UT_READ(v->err));
	ut_disable(&self->s);
	kill(c.pid, SIGKILL);
	EXPECT_EQ(SIGKILL, ut_wait_gone(&c));
	ut_fuse_end(&v->fuse);
	ASSERT_EQ(0, ut_drain(&self->s));
	ASSERT_EQ(UT_DEFERRED, ut_user_stack(&self->s, ut_sample(&self->s, 0, c.pid, 0), &got));
	EXPECT_EQ(1, got.nr);
	EXPECT_EQ((unsigned long)ut_syscall_on_ret, got.ip[0]);
	ASSERT_EQ(UT_DEFERRED, ut_user_stack(&self->s, ut_sample(&self->s, 0, c.pid, 1), &got));
	ASSERT_EQ(2, got.nr);
	EXPECT_EQ(v->fuse.frame, got.ip[1]);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/*
 * A return address of 0, as code without frame pointers has many: it is there, so the
 * task does not wait for another thread that has the memory map locked.
 */
static void *lock_map(void *arg)
{
	ut_fuse_lock(arg);
	return NULL;
}

static void beside_the_lock(void *arg)
{
	struct victim *v = arg;
	pthread_t thread;

	((unsigned long *)v->fp)[1] = 0;
	/* All pages that it takes are mapped behind this. */
	ut_syscall_on(v->fp, v->fp, __NR_getppid, 0, 0, 0);
	v->ready = 1;
	if (pthread_create(&thread, NULL, lock_map, v->fuse))
		return;
	while (!UT_READ(*v->fuse->locked))
		usleep(1000);
	ut_syscall_on(v->fp, v->fp, __NR_getppid, 0, 0, 0);
	v->done = 1;
	for (;;)
		pause();
}

TEST_F(bad_stacks, zero_beside_a_locked_map)
{
	struct victim *v = ut_shared(sizeof(*v));
	struct ut_stack got;
	struct ut_child c;
	int i;

	ASSERT_NE(NULL, v);
	ut_close(&self->s);
	ASSERT_EQ(0, ut_fuse_slow_page(&self->fuse, -1));
	v->fp = self->start;
	v->fuse = &self->fuse;
	ASSERT_EQ(0, watch_child(&self->s, &c, beside_the_lock, v, "sys_enter_getppid"));
	for (i = 0; i < 10000 && !UT_READ(v->done); i++)
		usleep(1000);
	EXPECT_EQ(1, v->done);
	EXPECT_EQ(1, UT_READ(*self->fuse.locked));
	ut_disable(&self->s);
	ASSERT_EQ(0, kill(c.pid, SIGKILL));
	ut_fuse_end(&self->fuse);
	memset(&self->fuse, 0, sizeof(self->fuse));
	ASSERT_EQ(SIGKILL, ut_wait(&c));
	ASSERT_EQ(0, ut_drain(&self->s));
	ASSERT_EQ(UT_DEFERRED, ut_user_stack(&self->s, ut_sample(&self->s, 0, c.pid, 1), &got));
	EXPECT_EQ(1, got.nr);
	EXPECT_EQ((unsigned long)ut_syscall_on_ret, got.ip[0]);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* The same as the first, killed with the events enabled: the record is there. */
TEST_F_TIMEOUT(bad_stacks, killed_in_the_walk, 60)
{
	struct victim *v = ut_shared(sizeof(*v));
	struct ut_stack got;
	struct ut_child c;
	struct ut_rec *r;

	ASSERT_NE(NULL, v);
	ut_close(&self->s);
	ASSERT_EQ(0, ut_device_page(&self->fuse));
	v->fp = (unsigned long)self->fuse.page;
	ASSERT_EQ(0, watch_child(&self->s, &c, unserved, v, "sys_enter_getppid"));
	ASSERT_TRUE(ut_wait_state(c.pid, "D"));
	ASSERT_EQ(1, v->ready);
	ASSERT_EQ(0, kill(c.pid, SIGKILL));
	ASSERT_EQ(SIGKILL, ut_wait_gone(&c));
	ut_disable(&self->s);
	ASSERT_EQ(0, ut_drain(&self->s));
	r = ut_sample(&self->s, 0, c.pid, 0);
	ASSERT_NE(NULL, r);
	EXPECT_EQ(UT_DEFERRED, ut_user_stack(&self->s, r, &got));
	EXPECT_GE(1, got.nr);
	if (got.nr)
		EXPECT_EQ((unsigned long)ut_syscall_on_ret, got.ip[0]);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/*
 * On its way out of exit() and exit_group(): where signals do not reach it any more it
 * does not wait, so that one SIGKILL is enough.
 */
TEST_F_TIMEOUT(bad_stacks, killed_in_the_exit, 60)
{
	static const struct {
		long		nr;
		const char	*tp;
	} exits[] = {
		{ __NR_exit, "sys_enter_exit" },
		{ __NR_exit_group, "sys_enter_exit_group" },
	};
	struct victim *v = ut_shared(sizeof(*v));
	unsigned int n;
	int i;

	ASSERT_NE(NULL, v);
	ut_close(&self->s);
	for (n = 0; n < ARRAY_SIZE(exits); n++) {
		struct ut_stack got;
		struct ut_child c;
		struct ut_rec *r;

		memset(v, 0, sizeof(*v));
		v->exit = exits[n].nr;
		ASSERT_EQ(0, ut_device_page(&self->fuse));
		v->fp = (unsigned long)self->fuse.page;
		ASSERT_EQ(0, watch_child(&self->s, &c, unserved, v, exits[n].tp));
		for (i = 0; i < 100 && (!v->ready || ut_task_state(c.pid) == 'R'); i++)
			usleep(10000);
		ASSERT_EQ(1, v->ready);
		usleep(200000);
		kill(c.pid, SIGKILL);
		i = ut_wait_gone(&c);
		/* It has waited and been killed, or not waited at all. */
		EXPECT_TRUE(i == SIGKILL || !i) TH_LOG("status %#x", i);
		ut_disable(&self->s);
		ASSERT_EQ(0, ut_drain(&self->s));
		r = ut_sample(&self->s, 0, c.pid, 0);
		ASSERT_NE(NULL, r);
		EXPECT_EQ(UT_DEFERRED, ut_user_stack(&self->s, r, &got));
		EXPECT_EQ(1, got.nr);
		EXPECT_EQ(0, ut_check(&self->s, 0));
		ut_close(&self->s);
		ut_fuse_end(&self->fuse);
	}
}

/* What has to be paged in is: a task that exits has all of its stack, too. */
static void exit_on(void *arg)
{
	struct victim *v = arg;

	ut_syscall_on(v->fp, v->fp, v->exit, 0, 0, 0);
}

TEST_F(bad_stacks, exit_pages_in)
{
	static const struct {
		long		nr;
		const char	*tp;
	} exits[] = {
		{ __NR_exit, "sys_enter_exit" },
		{ __NR_exit_group, "sys_enter_exit_group" },
	};
	unsigned long frame[2] = { 0, 0x400100 };
	struct victim v = {};
	unsigned int n;
	int fd;

	ut_close(&self->s);
	fd = memfd_create("stack", 0);
	ASSERT_EQ(0, ftruncate(fd, PAGE));
	ASSERT_EQ(sizeof(frame), pwrite(fd, frame, sizeof(frame), 0));
	for (n = 0; n < ARRAY_SIZE(exits); n++) {
		struct ut_stack got;
		struct ut_child c;

		/* In the file, and in no page table. */
		v.fp = (unsigned long)mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		v.exit = exits[n].nr;
		ASSERT_EQ(0, watch_child(&self->s, &c, exit_on, &v, exits[n].tp));
		ASSERT_EQ(0, ut_wait(&c));
		ut_disable(&self->s);
		ASSERT_EQ(0, ut_drain(&self->s));
		ASSERT_EQ(UT_DEFERRED,
			  ut_user_stack(&self->s, ut_sample(&self->s, 0, c.pid, 0), &got));
		ASSERT_EQ(2, got.nr) TH_LOG("%s", exits[n].tp);
		EXPECT_EQ(frame[1], got.ip[1]);
		EXPECT_EQ(0, ut_check(&self->s, 0));
		ut_close(&self->s);
	}
}

/*
 * Where nothing can end the wait for a page that is never served, the walk does not
 * wait: the signal that kills the task has been taken, or others wait for the task
 * with locks that only an execve() gives back.
 */
#define NEW_IMAGE	"--new-image"

static char *new_argv[] = { "new", NEW_IMAGE, NULL };

static void in_thread(struct victim *v, long nr)
{
	v->done = gettid();
	v->ready = 1;
	ut_syscall_on(v->fp, v->fp, nr, 0, 0, 0);
}

static void *pause_in_thread(void *arg)
{
	in_thread(arg, __NR_pause);
	return NULL;
}

static void *exit_in_thread(void *arg)
{
	in_thread(arg, __NR_exit);
	return NULL;
}

static void killed_asleep(void *arg)
{
	pause_in_thread(arg);
}

static void killed_by_exec(void *arg)
{
	struct victim *v = arg;
	pthread_t id;

	if (pthread_create(&id, NULL, pause_in_thread, v))
		_exit(99);
	while (!UT_READ(v->ready))
		usleep(1000);
	if (!ut_wait_state(v->done, "S"))
		_exit(98);
	execve("/proc/self/exe", new_argv, NULL);
}

static void thread_exits(void *arg)
{
	struct victim *v = arg;
	pthread_t id;

	if (pthread_create(&id, NULL, exit_in_thread, v) || pthread_join(id, NULL))
		_exit(99);
}

static void in_the_exec(void *arg)
{
	struct victim *v = arg;

	ut_syscall_on(v->fp, v->fp, __NR_execve, (long)"/proc/self/exe", (long)new_argv, 0);
}

FIXTURE(no_wait) {
	struct ut_session s;
	struct ut_fuse fuse;
	struct victim *v;
	struct ut_child c;
};

FIXTURE_VARIANT(no_wait) {
	ut_fn fn;
	const char *func;		/* what is sampled, or the signal is */
	int kill, status;
};

FIXTURE_VARIANT_ADD(no_wait, killed_asleep) {
	.fn = killed_asleep, .kill = SIGKILL, .status = SIGKILL,
};

FIXTURE_VARIANT_ADD(no_wait, killed_by_exec) {
	.fn = killed_by_exec, .status = 7 << 8,
};

/* Behind what ends the wait of one that has not come so far. */
FIXTURE_VARIANT_ADD(no_wait, thread_exits) {
	.fn = thread_exits, .func = "exit_signals",
};

FIXTURE_VARIANT_ADD(no_wait, in_the_exec) {
	.fn = in_the_exec, .func = "begin_new_exec", .status = 7 << 8,
};

FIXTURE_SETUP(no_wait)
{
	memset(&self->s, 0, sizeof(self->s));
	memset(&self->fuse, 0, sizeof(self->fuse));
	self->v = ut_shared(sizeof(*self->v));
	ASSERT_NE(NULL, self->v);
	ASSERT_EQ(0, ut_device_page(&self->fuse));
	self->v->fp = (unsigned long)self->fuse.page;
	ASSERT_EQ(0, ut_fork(&self->c, variant->fn, self->v));
}

FIXTURE_TEARDOWN(no_wait)
{
	kill(self->c.pid, SIGKILL);
	ut_close(&self->s);
	ut_fuse_end(&self->fuse);
}

TEST_F(no_wait, page_never_served)
{
	struct ut_opts opts = { .pid = self->c.pid, .per_cpu = true, .inherit = true };
	struct ut_stack got;
	struct ut_rec *r;

	ASSERT_EQ(0, ut_open(&self->s, &opts));
	ASSERT_LE(0, variant->func ? ut_add_function(&self->s, variant->func) :
		     ut_add_tracepoint(&self->s, "signal", "signal_deliver"));
	ASSERT_EQ(0, ut_enable(&self->s));
	ASSERT_EQ(0, ut_go(&self->c));
	if (variant->kill) {
		while (!UT_READ(self->v->ready))
			usleep(1000);
		ASSERT_TRUE(ut_wait_state(self->c.pid, "S"));
		ASSERT_EQ(0, kill(self->c.pid, variant->kill));
	}
	ASSERT_EQ(variant->status, ut_wait_gone(&self->c));
	ut_disable(&self->s);
	ASSERT_EQ(0, ut_drain(&self->s));
	r = ut_sample(&self->s, 0, self->v->done ?: self->c.pid, 0);
	ASSERT_NE(NULL, r);
	EXPECT_EQ(UT_DEFERRED, ut_user_stack(&self->s, r, &got));
	EXPECT_EQ(1, got.nr);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], NEW_IMAGE))
		return 7;
	ut_need_root();
	task_size = ut_task_size();
	return test_harness_run(argc, argv);
}

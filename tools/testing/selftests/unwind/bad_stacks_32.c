// SPDX-License-Identifier: GPL-2.0
/*
 * K14, K15: whatever a 32-bit user stack contains, the walk ends, and it returns only user
 * addresses. The tests compute each expected stack with the same rules as the kernel.
 */
#include <asm/ldt.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

#define PAGE		4096UL
#define PAGES		16

struct stack32 {
	unsigned int	cs, ss;		/* selectors */
	unsigned int	cs_base, ss_base;
};

/*
 * 32-bit stacks. The process enters a 32-bit code segment, either the kernel's or one in
 * the LDT with a base, makes a 32-bit system call, and returns to 64-bit code.
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

/* The offset behind the system call. */
#define HERE32	11

static unsigned char *low_code;

/*
 * Map @code where 32-bit code can address it. The jump to 64-bit code has its operand at
 * offset @jump: set it to the address of offset @back. Returns 0 or -1.
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

	/* The compiler may use the red zone below the stack pointer. */
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

/* The rules of the kernel, with words of 32 bits and with segments. */
static void model_32(struct ut_stack *st, const struct stack32 *s, unsigned long start,
		     unsigned long holes, __u32 esp, __u32 ebp)
{
	__u32 fp = ebp + s->ss_base, ret;
	unsigned long sp = (__u32)(esp + s->ss_base);

	st->nr = 0;
	st->ip[st->nr++] = (__u32)(unsigned long)(low_code + HERE32);
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
	switch (ut_rnd() % 16) {
	case 0: return (ut_rnd() & 1) * (ut_rnd() % (2 * PAGE));
	case 1: return ut_rnd();
	case 2: return -1U - ut_rnd() % 32;
	case 3: return start + ut_rnd() % (PAGES * PAGE);
	case 4: return start + PAGES * PAGE - ut_rnd() % 16;
	case 5: return -BASE32 + ut_rnd() % (2 * PAGE);
	default: return start + (ut_rnd() % (PAGES * PAGE) & ~3UL);
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
	/* The tracepoints of single system calls do not fire for 32-bit calls. */
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
	unsigned long start = (unsigned long)mem, page = ut_rnd() % PAGES, i;

	mprotect(mem, PAGES * PAGE, PROT_READ | PROT_WRITE);
	for (i = 0; i < PAGES * PAGE / 4; i++) {
		__u32 here = start + i * 4;

		if (ut_rnd() % 64 == 0)
			mem[i] = some_address_32(start) - seg->ss_base;
		else if (ut_rnd() % 32 == 0)
			mem[i] = here + 4 - seg->ss_base;
		else if (i % 2)
			mem[i] = 0x400000 + ut_rnd() % 0x100000;
		else
			mem[i] = here + 8 * (1 + ut_rnd() % 16) - seg->ss_base;
	}
	if (ut_rnd() % 2)
		return 0;
	mprotect((char *)mem + page * PAGE, PAGE, PROT_NONE);
	return 1UL << page;
}

static void some_start_32(unsigned long start, const struct stack32 *seg, __u32 *sp, __u32 *fp)
{
	*fp = ut_rnd() % 4 ? start + (ut_rnd() % (PAGES * PAGE) & ~7UL) : some_address_32(start);
	*sp = ut_rnd() % 4 ? *fp - (ut_rnd() % 256 & ~3UL) : some_address_32(start);
	*sp -= seg->ss_base;
	*fp -= seg->ss_base;
}

TEST_F_TIMEOUT(bad_stacks_32, generated, 280)
{
	unsigned long start = (unsigned long)self->mem, n, holes = 0, deep = 0;
	const struct stack32 *seg = &self->seg;
	struct ut_stack want;
	__u32 sp, fp;

	ut_seed = 0x2545f4914f6cdd1dULL;
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
		ASSERT_EQ(0, ut_check(&self->s, UT_ALLOW_AGAIN));
	}
	EXPECT_LT(100, deep);
}

/* In 16-bit code the kernel does not know the size of the stack's words: no stack. */
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
	/* In 32-bit code this would be a frame. */
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
 * Every kernel has a segment for 32-bit code. If the kernel has no 32-bit system calls,
 * the stack is empty or right. The walk must not read 64-bit words.
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
	struct ut_stack want = { .nr = 2 }, got;
	struct ut_session s = {};
	__u32 *mem;
	int bp;

	ASSERT_EQ(0, map_low_code(code, sizeof(code), 13, 19));
	mem = (__u32 *)(low_code + PAGE / 2);
	mem[1] = 0x400000;
	/* With 64-bit words this would be the return address. */
	mem[2] = 0x500000;

	ASSERT_EQ(0, ut_open(&s, &opts));
	bp = ut_add_user_instruction(&s, (unsigned long)low_code + 4);
	ASSERT_EQ(0, ut_enable(&s));
	bad_syscall_32(&seg, (unsigned long)mem, (unsigned long)mem);
	ASSERT_EQ(0, ut_stop(&s));
	ASSERT_EQ(1, ut_count_samples(&s, bp, 0));
	want.ip[0] = (unsigned long)low_code + 4;
	want.ip[1] = mem[1];
	ASSERT_EQ(UT_DEFERRED, ut_user_stack(&s, ut_sample(&s, bp, 0, 0), &got));
	if (ut_has_32bit() || got.nr)
		EXPECT_TRUE(ut_stack_is(&s, ut_sample(&s, bp, 0, 0), &want));
	EXPECT_EQ(0, ut_check(&s, 0));
	ut_close(&s);
}

int main(int argc, char **argv)
{
	ut_need_root();
	return test_harness_run(argc, argv);
}

// SPDX-License-Identifier: GPL-2.0
/*
 * The 32-bit program of compat.c. It has no libraries, so that a compiler is all
 * that is needed to build it.
 *
 * It says "r" when it is up and waits for a byte. Then it calls getppid() at the
 * top of a ladder of functions, writes how many frames that stack has and which,
 * calls getppid() from a code segment whose base is not 0, writes that segment's
 * frames, and exits.
 */
typedef unsigned int u32;

#define ATTRIBUTE(x) __attribute__((x))

enum { NR_exit = 1, NR_read = 3, NR_write = 4, NR_getppid = 64, NR_modify_ldt = 123 };

struct stack {
	u32 nr;
	u32 ip[64];
};

static struct stack st;

static inline int sys3(int nr, u32 a, u32 b, u32 c)
{
	int ret;

	asm volatile("int $0x80" : "=a" (ret) : "0" (nr), "b" (a), "c" (b), "d" (c) : "memory");
	return ret;
}

static ATTRIBUTE(noinline) void leaf(void)
{
	u32 *frame = __builtin_frame_address(0);
	int ret;

	st.nr = 0;
	asm("mov $here32, %0" : "=r" (st.ip[st.nr++]));
	for (; frame; frame = (u32 *)frame[0])
		st.ip[st.nr++] = frame[1];
	asm volatile("int $0x80\n"
		     ".globl here32\n"
		     "here32:\n"
		     : "=a" (ret) : "0" (NR_getppid) : "memory");
}

static ATTRIBUTE(noinline) void climb(u32 left)
{
	if (left)
		climb(left - 1);
	else
		leaf();
	asm volatile("" : : : "memory");
}

/*
 * In a segment of its own: a call of a function with a frame. The frame pointer is
 * 0 outside, so that all of the chain lies in the segment.
 */
struct user_desc32 {
	u32 entry_number, base_addr, limit, flags;
};

#define SEGMENT_BASE	0x10000

/* By jumps: a far call is not what this is about. */
asm(".text\n"
	"far_visit:\n"
	"	push %ebp\n"
	"	xor %ebp, %ebp\n"
	"	ljmp $7, $far_outer - 0x10000\n"
	"far_outer:\n"
	"	call far_inner\n"
	"far_inner_ret:\n"
	"	ljmp *far_back\n"
	"far_inner:\n"
	"	push %ebp\n"
	"	mov %esp, %ebp\n"
	"	mov $64, %eax\n"
	"	int $0x80\n"
	"far_here:\n"
	"	pop %ebp\n"
	"	ret\n"
	"far_home:\n"
	"	pop %ebp\n"
	"	ret\n"
	".data\n"
	"far_back: .long far_home\n"
	"	.short 0x23\n"
	".text\n");

void ATTRIBUTE(used) start(void)
{
	struct user_desc32 desc = {
		.base_addr	= SEGMENT_BASE,
		.limit		= 0xfffff,
		/* 32-bit, code, limit in pages, usable */
		.flags		= 1 | 2 << 1 | 1 << 4 | 1 << 6,
	};
	char byte;

	sys3(NR_write, 1, (u32)"r", 1);
	if (sys3(NR_read, 0, (u32)&byte, 1) != 1)
		sys3(NR_exit, 1, 0, 0);

	climb(10);
	sys3(NR_write, 1, (u32)&st, sizeof(st));

	st.nr = 0;
	if (!sys3(NR_modify_ldt, 1, (u32)&desc, sizeof(desc))) {
		asm volatile("call far_visit" : : : "eax", "ecx", "edx", "memory");
		st.nr = 2;
		asm("mov $far_here, %0" : "=r" (st.ip[0]));
		asm("mov $far_inner_ret, %0" : "=r" (st.ip[1]));
	}
	sys3(NR_write, 1, (u32)&st, sizeof(st));
	sys3(NR_exit, 0, 0, 0);
}

asm(".text\n"
	".globl _start\n"
	"_start:\n"
	"	xor %ebp, %ebp\n"
	"	and $-16, %esp\n"
	"	call start\n"
	"	hlt\n");

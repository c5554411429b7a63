// SPDX-License-Identifier: GPL-2.0
/*
 * The 32-bit program of compat.c. It uses no libraries, so a compiler is enough to
 * build it.
 *
 * It writes "r" when it is ready, and reads a byte with a command. It runs the
 * command at the top of a ladder of functions, or in a code segment whose base is
 * not 0 ("the segment"). It writes stacks: a number of frames, then the frames.
 *
 *	g	call getppid() on the ladder and write that stack, then do the
 *		same in the segment
 *	s, t	send itself a signal on the ladder; the handler returns with
 *		sigreturn() (s) or rt_sigreturn() (t); write the stack, and the
 *		address of the handler's return
 *	p, l	write the stack, and sleep in pause() on the ladder (p) or in
 *		the segment (l)
 *	m, a	write the stack, and change the base of the code segment with
 *		modify_ldt() (m) or of the stack segment with set_thread_area()
 *		(a); the program then faults
 *	c	read a struct table_request, open an event and load the table with it, with
 *		wrong addresses first; write what the ioctls return, and hold the event until
 *		there is another byte to read
 */
typedef unsigned int u32;
typedef unsigned long long u64;

#define ATTRIBUTE(x) __attribute__((x))

enum {
	NR_exit = 1, NR_read = 3, NR_write = 4, NR_open = 5, NR_getpid = 20, NR_pause = 29,
	NR_kill = 37, NR_ioctl = 54, NR_getppid = 64, NR_mmap = 90, NR_modify_ldt = 123,
	NR_rt_sigaction = 174, NR_set_thread_area = 243, NR_perf_event_open = 336,
};

struct stack {
	u32 nr;
	u32 ip[64];
};

static struct stack st;

/* The system call of leaf(), and whether to write the stack before it. */
static struct {
	u32 nr, a, b;
	u32 write;
} leaf_call;

static inline int sys4(int nr, u32 a, u32 b, u32 c, u32 d)
{
	int ret;

	/* A fifth argument is 0. */
	asm volatile("int $0x80"
		     : "=a" (ret) : "0" (nr), "b" (a), "c" (b), "d" (c), "S" (d), "D" (0)
		     : "memory");
	return ret;
}

static inline int sys3(int nr, u32 a, u32 b, u32 c)
{
	return sys4(nr, a, b, c, 0);
}

static void write_stack(void)
{
	sys3(NR_write, 1, (u32)&st, sizeof(st));
}

static ATTRIBUTE(noinline) void leaf(void)
{
	u32 *frame = __builtin_frame_address(0);
	int ret;

	st.nr = 0;
	asm("mov $here32, %0" : "=r" (st.ip[st.nr++]));
	for (; frame; frame = (u32 *)frame[0])
		st.ip[st.nr++] = frame[1];
	if (leaf_call.write)
		write_stack();
	asm volatile("int $0x80\n"
		     ".globl here32\n"
		     "here32:\n"
		     : "=a" (ret)
		     : "0" (leaf_call.nr), "b" (leaf_call.a), "c" (leaf_call.b) : "memory");
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
 * Call a function with a frame in a segment of its own. The caller's frame pointer is 0,
 * so that all of the chain lies in the segment.
 */
struct user_desc32 {
	u32 entry_number, base_addr, limit, flags;
};

#define SEGMENT_BASE	0x10000
#define OTHER_BASE	0x20000

/* Enter and leave the segment by jumps: a far call would push another kind of frame. */
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
	"	mov far_nr, %eax\n"
	"	mov far_args, %ebx\n"
	"	mov far_args + 4, %ecx\n"
	"	mov far_args + 8, %edx\n"
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
	"far_nr: .long 0\n"
	"far_args: .long 0, 0, 0\n"
	".text\n");

/* The same with a stack in a segment of its own. */
asm(".text\n"
	"stack_visit:\n"
	"	mov %eax, %ss\n"
	"	sub $0x10000, %esp\n"
	"	xor %ebp, %ebp\n"
	"	call stack_inner\n"
	"stack_inner_ret:\n"
	"	hlt\n"
	"stack_inner:\n"
	"	push %ebp\n"
	"	mov %esp, %ebp\n"
	"	mov $243, %eax\n"
	"	int $0x80\n"
	"stack_here:\n"
	"	pop %ebp\n"
	"	ret\n");

static int make_segment(void)
{
	struct user_desc32 desc = {
		.base_addr	= SEGMENT_BASE,
		.limit		= 0xfffff,
		/* 32-bit, code, limit in pages, usable */
		.flags		= 1 | 2 << 1 | 1 << 4 | 1 << 6,
	};

	st.nr = 0;
	if (sys3(NR_modify_ldt, 1, (u32)&desc, sizeof(desc)))
		return -1;
	st.nr = 2;
	asm("mov $far_here, %0" : "=r" (st.ip[0]));
	asm("mov $far_inner_ret, %0" : "=r" (st.ip[1]));
	return 0;
}

static void call_in_segment(u32 nr)
{
	asm volatile("mov %0, far_nr\n"
		     "call far_visit" : : "r" (nr) : "eax", "ebx", "ecx", "edx", "memory");
}

static void change_segment(void)
{
	static struct user_desc32 desc = {
		.base_addr	= OTHER_BASE,
		.limit		= 0xfffff,
		.flags		= 1 | 2 << 1 | 1 << 4 | 1 << 6,
	};

	if (make_segment())
		return;
	write_stack();
	asm volatile("movl $1, far_args\n"
		     "mov %0, far_args + 4\n"
		     "mov %1, far_args + 8\n"
		     : : "r" (&desc), "r" (sizeof(desc)) : "memory");
	call_in_segment(NR_modify_ldt);
}

static void change_stack_segment(void)
{
	struct user_desc32 desc = {
		.entry_number	= -1,
		.base_addr	= SEGMENT_BASE,
		.limit		= 0xfffff,
		/* 32-bit, data, limit in pages, usable */
		.flags		= 1 | 1 << 4 | 1 << 6,
	};

	if (sys3(NR_set_thread_area, (u32)&desc, 0, 0))
		return;
	desc.base_addr = OTHER_BASE;
	st.nr = 2;
	asm("mov $stack_here, %0" : "=r" (st.ip[0]));
	asm("mov $stack_inner_ret, %0" : "=r" (st.ip[1]));
	write_stack();
	asm volatile("jmp stack_visit"
		     : : "a" (desc.entry_number << 3 | 3), "b" (&desc) : "memory");
}

/* The structure of the kernel, not of the C library. */
struct sigaction32 {
	u32 handler, flags, restorer, mask[2];
};

#define SIGUSR1		10
#define SA_SIGINFO	4
#define SA_RESTORER	0x04000000

static u32 handled;

static void handler(void)
{
	handled++;
}

/* The handlers return to these restorers, with the signal's frame on top of the stack. */
asm(".text\n"
	"restore:\n"
	"	pop %eax\n"
	"	mov $119, %eax\n"
	"	int $0x80\n"
	"restored:\n"
	"	hlt\n"
	"rt_restore:\n"
	"	mov $173, %eax\n"
	"	int $0x80\n"
	"rt_restored:\n"
	"	hlt\n");

static void signal_self(int rt)
{
	struct sigaction32 sa = {
		.handler	= (u32)handler,
		.flags		= SA_RESTORER | (rt ? SA_SIGINFO : 0),
	};
	u32 from;

	if (rt) {
		asm("mov $rt_restore, %0" : "=r" (sa.restorer));
		asm("mov $rt_restored, %0" : "=r" (from));
	} else {
		asm("mov $restore, %0" : "=r" (sa.restorer));
		asm("mov $restored, %0" : "=r" (from));
	}
	sys4(NR_rt_sigaction, SIGUSR1, (u32)&sa, 0, sizeof(sa.mask));

	leaf_call.nr = NR_kill;
	leaf_call.a = sys3(NR_getpid, 0, 0, 0);
	leaf_call.b = SIGUSR1;
	climb(10);
	write_stack();
	st.nr = 1;
	st.ip[0] = from;
	write_stack();
	sys3(NR_exit, handled != 1, 0, 0);
}

/* An unwinding table of a file. */
static struct table_request {
	char	path[32];
	u32	size;
	char	section[6144];
} request;

/* The kernel's structure, and the ioctl of 32-bit programs. */
struct cfi {
	u32 size, flags;
	u64 object, section, section_size;
};

#define SET_CFI		0x40042440
#define FOUR_GB		0x100000000ULL

static void load_table(void)
{
	/* Type, size, and a number: the dummy among the software events. It is disabled. */
	u64 attr[8] = { 1 | 64 * FOUR_GB, 9, 0, 0, 0, 1 };
	struct cfi cfi = { .size = sizeof(cfi) };
	u32 event, map[6], got = 0;
	int results[4];
	char byte;

	while (got < sizeof(request)) {
		int n = sys3(NR_read, 0, (u32)&request + got, sizeof(request) - got);

		if (n <= 0)
			return;
		got += n;
	}
	/* A page for reading, private. */
	map[0] = 0;
	map[1] = 4096;
	map[2] = 1;
	map[3] = 2;
	map[4] = sys3(NR_open, (u32)request.path, 0, 0);
	map[5] = 0;
	cfi.section_size = request.size;
	event = sys4(NR_perf_event_open, (u32)attr, 0, -1, -1);

	results[0] = sys3(NR_ioctl, event, SET_CFI, -4096);
	cfi.object = (u32)sys3(NR_mmap, (u32)map, 0, 0);
	cfi.section = (u32)request.section + FOUR_GB;
	results[1] = sys3(NR_ioctl, event, SET_CFI, (u32)&cfi);
	cfi.section -= FOUR_GB;
	cfi.object += FOUR_GB;
	results[2] = sys3(NR_ioctl, event, SET_CFI, (u32)&cfi);
	cfi.object -= FOUR_GB;
	results[3] = sys3(NR_ioctl, event, SET_CFI, (u32)&cfi);
	sys3(NR_write, 1, (u32)results, sizeof(results));
	sys3(NR_read, 0, (u32)&byte, 1);
}

void ATTRIBUTE(used) start(void)
{
	char byte;

	sys3(NR_write, 1, (u32)"r", 1);
	if (sys3(NR_read, 0, (u32)&byte, 1) != 1)
		sys3(NR_exit, 1, 0, 0);

	switch (byte) {
	case 'g':
		leaf_call.nr = NR_getppid;
		climb(10);
		write_stack();
		if (!make_segment())
			call_in_segment(NR_getppid);
		write_stack();
		break;
	case 's':
	case 't':
		signal_self(byte == 't');
		break;
	case 'p':
		leaf_call.nr = NR_pause;
		leaf_call.write = 1;
		climb(10);
		break;
	case 'm':
		change_segment();
		break;
	case 'a':
		change_stack_segment();
		break;
	case 'c':
		load_table();
		break;
	case 'l':
		if (!make_segment()) {
			write_stack();
			call_in_segment(NR_pause);
		}
		break;
	}
	sys3(NR_exit, 0, 0, 0);
}

asm(".text\n"
	".globl _start\n"
	"_start:\n"
	"	xor %ebp, %ebp\n"
	"	and $-16, %esp\n"
	"	call start\n"
	"	hlt\n");

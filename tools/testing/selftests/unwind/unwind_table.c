// SPDX-License-Identifier: GPL-2.0
/*
 * Code without frame pointers and its unwinding table: see unwind_table.h.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "unwind_table.h"

#define MASK	0x10
#define SIGNAL	0x80

/*
 * insn notes where each instruction is, and how many of the functions are its callers;
 * row and function note the table.
 */
asm(".macro function info rep depth\n"
	".set ut_depth, \\depth\n"
	"78: .pushsection ut_rows, \"a\"\n"
	".long 78b - ut_blob, 2, \\info, \\rep\n"
	".popsection\n"
	".endm\n"
	".macro end\n"
	"78: .pushsection ut_rows, \"a\"\n"
	".long 78b - ut_blob, 3, 0, 0\n"
	".popsection\n"
	".endm\n"
	".macro row sp cfa fp\n"
	"78: .pushsection ut_rows, \"a\"\n"
	".long 78b - ut_blob, \\sp, \\cfa, \\fp\n"
	".popsection\n"
	".endm\n"
	".macro insn text:vararg\n"
	"77: \\text\n"
	".pushsection ut_insns, \"a\"\n"
	".long 77b - ut_blob, ut_depth\n"
	".popsection\n"
	".endm\n"
	".pushsection .text\n"
	".balign 16\n"
	"ut_blob:\n"

	"function 0 0 0\n"
	"ut_code_outer:\n"
	"row 1 8 0\n"
	"insn push %rbp\n"
	"row 1 16 -16\n"
	"insn push %rbx\n"
	"row 1 24 -16\n"
	"insn sub $48, %rsp\n"
	"row 1 72 -16\n"
	"insn mov $1, %ebp\n"
	"insn call ut_code_plt\n"
	"ut_code_ret0:\n"
	"insn add $48, %rsp\n"
	"row 1 24 -16\n"
	"insn pop %rbx\n"
	"row 1 16 -16\n"
	"insn pop %rbp\n"
    /* As GCC has it: the frame pointer's place is below the stack pointer by now. */
	"row 1 8 -16\n"
	"insn ret\n"
	"end\n"

    /* Entries of 16 bytes; the second one is used. */
	".balign 16, 0xcc\n"
	"function 0x10 16 1\n"
	"row 1 8 0\n"
	".fill 2, 1, 0xcc\n"
	"row 1 16 0\n"
	".fill 4, 1, 0xcc\n"
	"row 1 8 0\n"
	".fill 10, 1, 0xcc\n"
	"ut_code_plt:\n"
	"insn pushq $0\n"
	"insn add $8, %rsp\n"
	"insn jmp ut_code_mid\n"
	".balign 16, 0xcc\n"
	"end\n"

	"function 0 0 1\n"
	"ut_code_mid:\n"
	"row 1 8 0\n"
	"insn sub $1032, %rsp\n"
	"row 1 1040 0\n"
	"insn call ut_code_aligned\n"
	"ut_code_ret1:\n"
	"insn add $1032, %rsp\n"
	"row 1 8 0\n"
	"insn ret\n"
	"end\n"

	"function 0 0 2\n"
	"ut_code_aligned:\n"
	"row 1 8 0\n"
	"insn push %rbp\n"
	"row 1 16 -16\n"
	"insn mov %rsp, %rbp\n"
	"row 0 16 -16\n"
	"insn sub $40, %rsp\n"
	"insn and $-64, %rsp\n"
	"insn call ut_code_leaf\n"
	"ut_code_ret2:\n"
	"insn leave\n"
	"row 1 8 -16\n"
	"insn ret\n"
	"end\n"

	"function 0 0 3\n"
	"ut_code_leaf:\n"
	"row 1 8 0\n"
	"insn mov %rdi, %rax\n"
	"insn mov %rsi, %rdi\n"
	"insn mov %rdx, %rsi\n"
	"insn mov %rcx, %rdx\n"
	"insn syscall\n"
	"ut_code_ret3:\n"
	"insn ret\n"
	"end\n"

	".balign 16, 0xcc\n"
	"function 0 0 0\n"
	"ut_code_handler:\n"
	"row 1 8 0\n"
	"mov $110, %eax\n"
	"syscall\n"
	"ut_code_handler_ret:\n"
	"ret\n"
	"end\n"

	/* It begins ahead of, and ends behind, any address that a stack may have. */
	"function 0x80 0 0\n"
	"nop\n"
	"ut_code_restorer:\n"
	"mov $15, %eax\n"
	"syscall\n"
	"int3\n"
	"end\n"
	"ut_blob_end:\n"
	".popsection\n");

static_assert(__NR_getppid == 110 && __NR_rt_sigreturn == 15, "in the code above");

struct row {
	__u32	at;
	__u32	kind;		/* 0, 1: base of the CFA; 2: a function; 3: its end */
	__s32	a, b;
};

struct insn {
	__u32	at;
	__u32	depth;
};

extern const struct row __start_ut_rows[], __stop_ut_rows[];
extern const struct insn __start_ut_insns[], __stop_ut_insns[];
UT_LABEL(ut_blob);
UT_LABEL(ut_blob_end);
UT_LABEL(ut_code_ret0);
UT_LABEL(ut_code_ret1);
UT_LABEL(ut_code_ret2);
UT_LABEL(ut_code_ret3);
UT_LABEL(ut_code_handler);
UT_LABEL(ut_code_handler_ret);
UT_LABEL(ut_code_restorer);
UT_LABEL(ut_code_called);

static void put(__u8 *to, __u64 value, unsigned int size)
{
	while (size--) {
		*to++ = value;
		value >>= 8;
	}
}

void ut_section_function(struct ut_section *s, __u64 start, __u32 size, __u8 info, __u8 info2,
			 __u8 rep)
{
	__u8 *function = s->index + s->nr++ * 16, *attr = s->rows + s->len;

	s->attr = s->len;
	put(function, start, 8);
	put(function + 8, size, 4);
	put(function + 12, s->attr, 4);
	put(attr, 0, 2);
	attr[2] = info | 1;		/* starts of 2 bytes */
	attr[3] = info2;
	attr[4] = rep;
	s->len += 5;
}

void ut_section_end(struct ut_section *s, __u32 size)
{
	put(s->index + (s->nr - 1) * 16 + 8, size, 4);
}

void ut_section_row(struct ut_section *s, __u16 start, bool sp, __s16 cfa, __s16 fp)
{
	__u8 *row = s->rows + s->len;
	unsigned int words = fp ? 2 : 1;

	put(row, start, 2);
	row[2] = sp | words << 1 | 1 << 5;
	put(row + 3, cfa, 2);
	if (fp)
		put(row + 5, fp, 2);
	s->len += 3 + 2 * words;
	s->rows[s->attr]++;
	s->nr_rows++;
}

void ut_section_make(struct ut_section *s)
{
	const __u8 fixed[8] = { 0xe2, 0xde, 3, 1, 3, 0, 0xf8, 0 };
	unsigned int index = s->nr * 16;

	memset(s->data, 0, sizeof(s->data));
	memcpy(s->data, fixed, sizeof(fixed));
	put(s->data + 8, s->nr, 4);
	put(s->data + 12, s->nr_rows, 4);
	put(s->data + 16, s->len, 4);
	put(s->data + 24, index, 4);
	memcpy(s->data + 28, s->index, index);
	memcpy(s->data + 28 + index, s->rows, s->len);
	s->size = 28 + index + s->len;
}

void ut_code_section(struct ut_section *s, int shift)
{
	const struct row *row;
	__u32 start = 0;

	memset(s, 0, sizeof(*s));
	for (row = __start_ut_rows; row < __stop_ut_rows; row++) {
		switch (row->kind) {
		case 2:
			start = row->at;
			ut_section_function(s, UT_CODE_OFFSET + start, 0, row->a, 0, row->b);
			break;
		case 3:
			ut_section_end(s, row->at - start);
			break;
		default:
			ut_section_row(s, row->at - start, row->kind, row->a + shift, row->b);
		}
	}
	ut_section_make(s);
}

int ut_load(int perf_fd, const void *object, const void *section, size_t size)
{
	struct ut_cfi cfi = {
		.size		= sizeof(cfi),
		.object		= (unsigned long)object,
		.section	= (unsigned long)section,
		.section_size	= size,
	};

	return ioctl(perf_fd, UT_IOC_SET_CFI, &cfi) ? -errno : 0;
}

int ut_load_section(int perf_fd, const void *object, const struct ut_section *s)
{
	return ut_load(perf_fd, object, s->data, s->size);
}

int ut_table_event(void)
{
	struct perf_event_attr attr = {
		.type		= PERF_TYPE_SOFTWARE,
		.size		= UT_ATTR_SIZE,
		.config		= PERF_COUNT_SW_DUMMY,
		.disabled	= 1,
	};

	return ut_perf_open(&attr, 0, -1, -1, 0);
}

char *ut_code_map(const struct ut_code *c, void *addr)
{
	char *base = mmap(addr, UT_CODE_SIZE, PROT_READ | PROT_EXEC,
			  MAP_PRIVATE | (addr ? MAP_FIXED : 0), c->fd, UT_CODE_OFFSET);

	return base == MAP_FAILED ? NULL : base;
}

int ut_code_new(struct ut_code *c, const char *path)
{
	size_t size = ut_blob_end - ut_blob;

	c->base = NULL;
	c->fd = path ? open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0700) :
		       memfd_create("ut_code", MFD_CLOEXEC);
	if (c->fd < 0)
		return -1;
	if (!ftruncate(c->fd, UT_CODE_OFFSET + UT_CODE_SIZE) &&
	    pwrite(c->fd, ut_blob, size, UT_CODE_OFFSET) == (ssize_t)size)
		c->base = ut_code_map(c, NULL);
	if (!c->base) {
		ut_diag("%s", strerror(errno));
		close(c->fd);
		return -1;
	}
	return 0;
}

void ut_code_free(struct ut_code *c)
{
	munmap(c->base, UT_CODE_SIZE);
	close(c->fd);
}

/* The functions' return addresses, the innermost one first, from @depth on. */
static unsigned int put_callers(const char *base, unsigned int depth, __u64 *ip)
{
	const char * const rets[] = { ut_code_ret0, ut_code_ret1, ut_code_ret2, ut_code_ret3 };
	unsigned int i;

	for (i = 0; i < depth; i++)
		ip[i] = (unsigned long)(base + (rets[depth - 1 - i] - ut_blob));
	return depth;
}

ut_noinline long ut_code_call(const char *base, struct ut_stack *st, long nr, long a1, long a2,
			      long a3)
{
	struct ut_stack rest;
	unsigned int n;
	long ret;

	ut_walk_self(&rest, (unsigned long)ut_code_called, __builtin_frame_address(0));
	n = put_callers(base, 4, st->ip);
	memcpy(st->ip + n, rest.ip, rest.nr * sizeof(*rest.ip));
	__atomic_store_n(&st->nr, n + rest.nr, __ATOMIC_RELEASE);

	/* Not into the red zone. */
	asm volatile("sub $128, %%rsp\n"
		     "call *%[code]\n"
		     ".globl ut_code_called\n"
		     "ut_code_called:\n"
		     "add $128, %%rsp\n"
		     : "=a" (ret), "+D" (nr), "+S" (a1), "+d" (a2), "+c" (a3)
		     : [code] "r" (base)
		     : "r8", "r9", "r10", "r11", "cc", "memory");
	return ret;
}

bool ut_code_at(const char *base, unsigned int i, const struct ut_stack *call,
		struct ut_stack *at)
{
	const struct insn *insn = __start_ut_insns + i;
	unsigned int n = 1;

	if (insn >= __stop_ut_insns)
		return false;
	at->ip[0] = (unsigned long)base + insn->at;
	n += put_callers(base, insn->depth, at->ip + n);
	memcpy(at->ip + n, call->ip + 4, (call->nr - 4) * sizeof(*call->ip));
	at->nr = n + call->nr - 4;
	return true;
}

void ut_code_short(const struct ut_stack *call, struct ut_stack *st)
{
	/* ut_code_aligned() has a frame record, and the next frame pointer is data. */
	st->nr = 2;
	st->ip[0] = call->ip[0];
	st->ip[1] = call->ip[2];
}

int ut_code_handle(const char *base, int sig, void *alt, size_t alt_size)
{
	struct {
		const void	*handler;
		unsigned long	flags;
		const void	*restorer;
		unsigned long	mask;
	} sa = {
		.handler	= base + (ut_code_handler - ut_blob),
		.flags		= 0x04000000 /* SA_RESTORER */ | (alt ? SA_ONSTACK : 0),
		.restorer	= base + (ut_code_restorer - ut_blob),
	};
	stack_t stack = { .ss_sp = alt, .ss_size = alt_size };

	if (alt && sigaltstack(&stack, NULL))
		return -1;
	return syscall(__NR_rt_sigaction, sig, &sa, NULL, sizeof(sa.mask));
}

void ut_code_in_handler(const char *base, const struct ut_stack *call, struct ut_stack *st)
{
	st->ip[0] = (unsigned long)(base + (ut_code_handler_ret - ut_blob));
	st->ip[1] = (unsigned long)(base + (ut_code_restorer - ut_blob));
	memcpy(st->ip + 2, call->ip, call->nr * sizeof(*call->ip));
	st->nr = call->nr + 2;
}

// SPDX-License-Identifier: GPL-2.0
/* Stacks that the tests know, and whether a sample has one of them. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "../kselftest.h"
#include "unwind_test.h"

void ut_walk_self(struct ut_stack *st, __u64 ip, void *fp)
{
	unsigned long *frame = fp, *last = NULL;
	unsigned int nr = 0;

	st->ip[nr++] = ip;
	/* A chain ends at a frame that is not above the last one, as in the kernel. */
	while (frame > last && nr < UT_MAX_FRAMES) {
		st->ip[nr++] = frame[1];
		last = frame;
		frame = (unsigned long *)frame[0];
	}
	/*
	 * Another process may read the stack while the same call is made again; it must
	 * see the addresses before their number. Pairs with UT_READ().
	 */
	__atomic_store_n(&st->nr, nr, __ATOMIC_RELEASE);
}

ut_noinline long ut_syscall(struct ut_stack *st, long nr, long a1, long a2, long a3, long a4,
			    long a5, long a6)
{
	register long r10 asm("r10");
	register long r8 asm("r8");
	register long r9 asm("r9");
	long ret;

	ut_walk_self(st, (unsigned long)ut_syscall_ret, __builtin_frame_address(0));
	r10 = a4;
	r8 = a5;
	r9 = a6;
	asm volatile("syscall\n"
		     ".globl ut_syscall_ret\n"
		     "ut_syscall_ret:\n"
		     : "=a" (ret), "+r" (r10), "+r" (r8), "+r" (r9)
		     : "0" (nr), "D" (a1), "S" (a2), "d" (a3)
		     : "rcx", "r11", "memory");
	return ret;
}

ut_noinline long ut_syscall_on(unsigned long sp, unsigned long fp, long nr, long a1, long a2,
			       long a3)
{
	asm volatile("mov %%rsp, %%r12\n"
		     "mov %%rbp, %%r13\n"
		     "mov %[sp], %%rsp\n"
		     "mov %[fp], %%rbp\n"
		     "syscall\n"
		     ".globl ut_syscall_on_ret\n"
		     "ut_syscall_on_ret:\n"
		     "mov %%r12, %%rsp\n"
		     "mov %%r13, %%rbp\n"
		     : "+a" (nr)
		     : [sp] "r" (sp), [fp] "r" (fp), "D" (a1), "S" (a2), "d" (a3)
		     : "rcx", "r11", "r12", "r13", "memory");
	return nr;
}

/* Run fn(arg) on another stack. The frame pointer at its bottom is 0. */
asm(".text\n"
	".globl ut_switch_stack\n"
	".type ut_switch_stack, @function\n"
	"ut_switch_stack:\n"
	"	push %rbp\n"
	"	push %rbx\n"
	"	mov %rsp, %rbx\n"
	"	mov %rdx, %rsp\n"
	"	xor %ebp, %ebp\n"
	"	mov %rdi, %rax\n"
	"	mov %rsi, %rdi\n"
	"	call *%rax\n"
	"	mov %rbx, %rsp\n"
	"	pop %rbx\n"
	"	pop %rbp\n"
	"	ret\n"
	".size ut_switch_stack, . - ut_switch_stack\n");

typedef void (*rung_fn)(unsigned int left, ut_fn fn, void *arg);
static const rung_fn rungs[];

static inline UT_ATTRIBUTE(always_inline) void climb(unsigned int left, ut_fn fn, void *arg)
{
	if (left)
		rungs[(left - 1) % 8](left - 1, fn, arg);
	else
		fn(arg);
	/* Code after the call, so that the compiler does not make it a jump. */
	asm volatile("" : : : "memory");
}

#define RUNG(n)									\
static ut_noinline void ut_rung_##n(unsigned int left, ut_fn fn, void *arg)	\
{										\
	climb(left, fn, arg);							\
	asm volatile("" : : "i" (n));						\
}

RUNG(0) RUNG(1) RUNG(2) RUNG(3) RUNG(4) RUNG(5) RUNG(6) RUNG(7)

static const rung_fn rungs[] = {
	ut_rung_0, ut_rung_1, ut_rung_2, ut_rung_3,
	ut_rung_4, ut_rung_5, ut_rung_6, ut_rung_7,
};

struct climber {
	unsigned int	depth;
	ut_fn		fn;
	void		*arg;
};

static ut_noinline void start_climb(void *data)
{
	struct climber *c = data;

	climb(c->depth, c->fn, c->arg);
}

int ut_ladder(unsigned int depth, ut_fn fn, void *arg)
{
	struct climber c = { .depth = depth, .fn = fn, .arg = arg };
	size_t size = 1 << 18;
	char *stack;

	stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (stack == MAP_FAILED) {
		ut_diag("stack: %s", strerror(errno));
		return -1;
	}
	ut_switch_stack(start_climb, &c, stack + size - 64);
	munmap(stack, size);
	return 0;
}

int ut_profile_ladder(struct ut_session *s, unsigned int depth, ut_fn fn, void *arg)
{
	return ut_enable(s) || ut_ladder(depth, fn, arg) || ut_stop(s) ? -1 : 0;
}

bool ut_is_ladder(const struct ut_stack *st, unsigned int depth, unsigned int above)
{
	unsigned int i;

	/* The frames of fn() are above, start_climb() and ut_switch_stack() are below. */
	if (st->nr != above + depth + 2) {
		ut_diag("%u frames, wanted %u + %u + 2", st->nr, above, depth);
		return false;
	}
	for (i = 0; i < depth; i++) {
		__u64 start = (unsigned long)rungs[i % 8], ip = st->ip[above + i];

		if (ip <= start || ip > start + 256) {
			ut_diag("frame %u: %llx is not in rung %u at %llx", above + i, ip, i % 8,
				start);
			return false;
		}
	}
	return true;
}

bool ut_stack_within(const struct ut_stack *got, const struct ut_stack *want)
{
	unsigned int i;

	for (i = 0; i < got->nr; i++) {
		if (i >= want->nr || got->ip[i] != want->ip[i]) {
			ut_diag("frame %u of %u (%u wanted): %llx, wanted %llx", i, got->nr,
				want->nr, got->ip[i], i < want->nr ? want->ip[i] : 0);
			return false;
		}
	}
	return true;
}

bool ut_same_stack(const struct ut_stack *got, const struct ut_stack *want)
{
	if (!ut_stack_within(got, want))
		return false;
	if (got->nr != want->nr) {
		ut_diag("%u frames, wanted %u", got->nr, want->nr);
		return false;
	}
	return true;
}

/* Is the user part of a sample the expected stack, and of an allowed kind? @gone: or empty? */
static bool sample_is(struct ut_session *s, struct ut_rec *sample, const struct ut_stack *want,
		      bool deferred, bool immediate, bool gone)
{
	static const char * const kinds[] = {
		[UT_NO_STACK] = "no user stack", [UT_IMMEDIATE] = "not deferred",
		[UT_DEFERRED] = "deferred", [UT_UNRESOLVED] = "cookie without a record",
	};
	struct ut_stack got;
	enum ut_kind kind;

	if (!sample) {
		ut_diag("no such sample");
		return false;
	}
	kind = ut_user_stack(s, sample, &got);
	if (!(kind == UT_DEFERRED && deferred) && !(kind == UT_IMMEDIATE && immediate)) {
		ut_diag("%s", kinds[kind]);
		return false;
	}
	return (gone && !got.nr) || ut_same_stack(&got, want);
}

bool ut_stack_is(struct ut_session *s, struct ut_rec *sample, const struct ut_stack *want)
{
	return sample_is(s, sample, want, true, false, false);
}

bool ut_stack_is_immediate(struct ut_session *s, struct ut_rec *sample,
			   const struct ut_stack *want)
{
	return sample_is(s, sample, want, false, true, false);
}

bool ut_has_stack(struct ut_session *s, struct ut_rec *sample, const struct ut_stack *want)
{
	return sample_is(s, sample, want, true, true, false);
}

bool ut_has_stack_or_none(struct ut_session *s, struct ut_rec *sample,
			  const struct ut_stack *want)
{
	return sample_is(s, sample, want, true, true, true);
}

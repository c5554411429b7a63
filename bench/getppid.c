// SPDX-License-Identifier: GPL-2.0
/*
 * Measures the cost of a sampled system call, by the depth of the user stack.
 *
 * Recurses to a depth, calls getppid() CALLS times there, and times that with
 * CLOCK_MONOTONIC_RAW: under QEMU's -icount that clock counts instructions. It
 * records itself meanwhile, with the events and the buffer of
 *
 *	perf record -m 8M -e syscalls:sys_enter_getppid
 *
 * in several modes. It reads the buffer between the rounds, outside the time that is
 * measured, and checks every record: if a sample or a stack is missing, the figure is
 * not printed.
 *
 * The kernel's interface is defined here again, so that the program can be built with
 * the headers of any kernel. On a kernel without the series it leaves out the deferred
 * modes.
 *
 * In the modes "tables" the stack is of functions without frame pointers, which have an
 * unwinding table: see links.
 *
 * It also measures the cost of a context switch. Two threads take turns through pipes:
 * with nothing traced; beside a profile of the whole system that samples neither; and
 * with a sample of each switch. A turn of two switches is timed, and the switches are
 * counted.
 *
 * usage: getppid [ROUNDS [MODE EVENTS [DEPTH]]]
 *
 * Output, a line a figure: mode events depth cost frames bytes
 *	cost	the least of all rounds, nanoseconds a call or a switch, in thousandths
 *	frames	user addresses of a stack
 *	bytes	of the buffer, for a call or a switch
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CALLS		1000
#define MAX_EVENTS	10
#define PAGE		4096UL
#define DATA		(8UL << 20)
#define MASK		(DATA - 1)

#define TRACING		"/sys/kernel/tracing"
#define GETPPID		"syscalls/sys_enter_getppid"
#define SWITCH		"sched/sched_switch"
#define FORK		"sched/sched_process_fork"

enum {
	TYPE_SOFTWARE = 1, TYPE_TRACEPOINT = 2, SW_DUMMY = 9,
	SAMPLE_IP = 1 << 0, SAMPLE_TID = 1 << 1, SAMPLE_TIME = 1 << 2,
	SAMPLE_CALLCHAIN = 1 << 5, SAMPLE_CPU = 1 << 7, SAMPLE_PERIOD = 1 << 8,
	SAMPLE_RAW = 1 << 10, SAMPLE_REGS_USER = 1 << 12,
	SAMPLE_STACK_USER = 1 << 13, SAMPLE_IDENTIFIER = 1 << 16,
	FORMAT_ID = 1 << 2, FORMAT_LOST = 1 << 4,
	RECORD_LOST = 2, RECORD_THROTTLE = 5, RECORD_SAMPLE = 9,
	RECORD_LOST_SAMPLES = 13, RECORD_CALLCHAIN_DEFERRED = 22,
};

#define FLAG(bit)	(1ULL << (bit))
#define DISABLED	FLAG(0)
#define INHERIT		FLAG(1)
/* mmap, comm, task, mmap2, comm_exec, ksymbol, bpf_event */
#define TRACKING	(FLAG(8) | FLAG(9) | FLAG(13) | FLAG(23) | FLAG(24) | \
			 FLAG(29) | FLAG(30))
#define SAMPLE_ID_ALL	FLAG(18)
#define EXCLUDE_GUEST	FLAG(20)
#define EXCLUDE_CALLCHAIN_USER FLAG(22)
#define DEFER_CALLCHAIN	FLAG(38)
#define DEFER_OUTPUT	FLAG(39)

#define CONTEXT_USER		((uint64_t)-512)
#define CONTEXT_USER_DEFERRED	((uint64_t)-640)
#define CONTEXT_MAX		((uint64_t)-4095)

#define IOC_ENABLE	0x2400
#define IOC_DISABLE	0x2401
#define IOC_SET_OUTPUT	0x2405
#define IOC_SET_CFI	0x40082440

/* struct perf_event_attr as it is from 6.2 on */
struct attr {
	uint32_t	type;
	uint32_t	size;
	uint64_t	config;
	uint64_t	sample_period;
	uint64_t	sample_type;
	uint64_t	read_format;
	uint64_t	flags;
	uint32_t	wakeup_events;
	uint32_t	bp_type;
	uint64_t	config1;
	uint64_t	config2;
	uint64_t	branch_sample_type;
	uint64_t	sample_regs_user;
	uint32_t	sample_stack_user;
	int32_t		clockid;
	uint64_t	sample_regs_intr;
	uint32_t	aux_watermark;
	uint16_t	sample_max_stack;
	uint16_t	reserved_2;
	uint32_t	aux_sample_size;
	uint32_t	reserved_3;
	uint64_t	sig_data;
	uint64_t	config3;
};

_Static_assert(sizeof(struct attr) == 136, "PERF_ATTR_SIZE_VER8");

struct cfi {
	uint32_t	size;
	uint32_t	flags;
	uint64_t	object;
	uint64_t	section;
	uint64_t	section_size;
};

/* the head and the tail in struct perf_event_mmap_page */
#define PAGE_HEAD	0x400
#define PAGE_TAIL	0x408

/* These do nothing; profile.c knows them by their bytes. */
#define PROFILE_START()	asm volatile("nopl 0x62656769(%rax)")
#define PROFILE_STOP()	asm volatile("nopl 0x656e6465(%rax)")

struct header {
	uint32_t	type;
	uint16_t	misc;
	uint16_t	size;
};

enum kind { UNTRACED, PLAIN, IMMEDIATE, DEFERRED, DEFERRED_DUMMY, DWARF };

struct mode {
	const char	*name;
	enum kind	kind;
	unsigned int	events;
	bool		longest;	/* the one depth that goes with MAX_STACK */
	const char	*tracepoint;	/* of the whole system; else GETPPID, of the task */
	enum { RECURSE, SAME_LINKS, LINKS_IN_TURN } stack;
};

static const struct mode modes[] = {
	{ "untraced",	UNTRACED,	0 },
	{ "plain",	PLAIN,		1 },
	{ "immediate",	IMMEDIATE,	1 },
	{ "deferred",	DEFERRED,	1 },
	/* as when perf adds an event for the side-band records */
	{ "deferred-dummy", DEFERRED_DUMMY, 1 },
	{ "dwarf",	DWARF,		1 },
	{ "plain",	PLAIN,		MAX_EVENTS },
	{ "immediate",	IMMEDIATE,	MAX_EVENTS },
	{ "deferred",	DEFERRED,	MAX_EVENTS },
	{ "immediate",	IMMEDIATE,	1, true },
	{ "deferred",	DEFERRED,	1, true },
	{ "tables",	DEFERRED,	1, .stack = SAME_LINKS },
	/* other functions in each call, so that no row of theirs is in the cache */
	{ "tables-missed", DEFERRED,	1, .stack = LINKS_IN_TURN },
	{ "tables-missed", UNTRACED,	0, .stack = LINKS_IN_TURN },
	/* what is left of a profile when it is over: nothing */
	{ "untraced-after", UNTRACED,	0 },
};

static const unsigned int depths[] = { 0, 16, 64, 120 };

/* The longest stack that one may ask of perf is 127 frames, unless that is raised. */
#define MAX_STACK	"512"
#define MAX_STACK_FILE	"/proc/sys/kernel/perf_event_max_stack"
#define LONGEST		500

static unsigned int rounds = 7;
static const char *only;
static unsigned int only_events;
static int only_depth = -1;

static int fds[MAX_EVENTS + 1];
static unsigned int nr_fds;
static char *ring;
static char scratch[65536];

static void die(const char *what)
{
	fprintf(stderr, "getppid: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int open_event(const struct attr *attr, const struct mode *mode)
{
	return syscall(SYS_perf_event_open, attr, mode->tracepoint ? -1 : 0, 0, -1,
		       8 /* CLOEXEC */);
}

static uint64_t tracepoint_id(const char *tracepoint)
{
	char text[32] = "", name[128];
	int fd;

	snprintf(name, sizeof(name), TRACING "/events/%s/id", tracepoint);
	fd = open(name, O_RDONLY);
	if (fd < 0 && !mount("tracefs", TRACING, "tracefs", 0, NULL))
		fd = open(name, O_RDONLY);
	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
		die(name);
	close(fd);
	return strtoull(text, NULL, 10);
}

static bool is_deferred(const struct mode *mode)
{
	return mode->kind == DEFERRED || mode->kind == DEFERRED_DUMMY;
}

static void raise_max_stack(void)
{
	int fd = open(MAX_STACK_FILE, O_WRONLY);

	if (fd < 0 || write(fd, MAX_STACK, sizeof(MAX_STACK) - 1) < 0)
		die(MAX_STACK_FILE);
	close(fd);
}

/* as perf does: where there are several events */
static bool with_identifier(const struct mode *mode)
{
	return mode->events > 1 || mode->kind == DEFERRED_DUMMY;
}

/*
 * Code as of a stock program, without frame pointers. Each of the LINKS functions saves %rbp
 * for its caller, which costs a walk by tables more than if it did not, and calls the next
 * one, as deep as %edi says. The last one goes on to calls_of_links, which makes %esi
 * system calls. A walk ends in enter_links, which calls the function at %rdx.
 */
#define LINKS		4000
#define LINK_SIZE	32
#define TEXT(x)		#x
#define NUMBER(x)	TEXT(x)

void enter_links(unsigned int depth, unsigned int nr, const char *link);
extern const char links[], calls_of_links[], end_of_links[], __executable_start[];
asm("	.pushsection .text\n"
    "	.balign	" NUMBER(LINK_SIZE) "\n"
    "links:\n"
    "	.rept	" NUMBER(LINKS) "\n"
    "	.balign	" NUMBER(LINK_SIZE) "\n"
    "	sub	$1, %edi\n"			/* 0 */
    "	{disp32} js calls_of_links\n"		/* 3 */
    "	push	%rbp\n"			/* 9 */
    "	sub	$16, %rsp\n"			/* 10 */
    "	call	. + " NUMBER(LINK_SIZE) " - 14\n" /* 14 */
    "	add	$16, %rsp\n"			/* 19 */
    "	pop	%rbp\n"			/* 23 */
    "	ret\n"					/* 24 */
    "	.endr\n"
    "	.balign	" NUMBER(LINK_SIZE) "\n"
    "calls_of_links:\n"
    "	mov	$110, %eax\n"
    "	syscall\n"
    "	sub	$1, %esi\n"
    "	jnz	calls_of_links\n"
    "	ret\n"
    "	.balign	" NUMBER(LINK_SIZE) "\n"
    "enter_links:\n"
    "	call	*%rdx\n"
    "	ret\n"
    "end_of_links:\n"
    "	.popsection\n");

_Static_assert(SYS_getppid == 110, "in the code above");

/*
 * Their table, an SFrame section of version 3. An attribute, and the rows: where a row
 * starts, its info byte, CFA - stack pointer, where the frame pointer is - CFA.
 */
#define CFA		3
#define CFA_AND_FP	5

static const int8_t link_rows[] = {
	5, 0, 0, 0, 0,
	0, CFA, 8,
	10, CFA_AND_FP, 16, -16,
	14, CFA_AND_FP, 32, -16,
	23, CFA_AND_FP, 16, -16,
	24, CFA, 8,
};
static const int8_t calls_rows[] = { 1, 0, 0, 0, 0, 0, CFA, 8 };
static const int8_t enter_rows[] = { 0, 0, 0, 0, 0 };

struct function {
	uint64_t	start;
	uint32_t	size;
	uint32_t	rows;
};

static struct {
	uint16_t	magic;
	uint8_t		version, flags, abi;
	int8_t		fixed_fp, fixed_ra;
	uint8_t		aux_size;
	uint32_t	nr_functions, nr_rows, rows_size, functions_at, rows_at;
	struct function	functions[LINKS + 2];
	int8_t		rows[(LINKS + 2) * sizeof(link_rows)];
} __attribute__((packed)) table = {
	.magic = 0xdee2, .version = 3, .flags = 1 /* sorted */, .abi = 3 /* AMD64 */,
	.fixed_ra = -8, .rows_at = sizeof(table.functions),
};

static void add_function(const char *start, const char *end, const int8_t *rows, size_t size)
{
	/* Starts are offsets in the file. */
	table.functions[table.nr_functions++] = (struct function){
		start - __executable_start, end - start, table.rows_size };
	memcpy(table.rows + table.rows_size, rows, size);
	table.nr_rows += rows[0];
	table.rows_size += size;
}

static void load_table(int fd)
{
	const struct cfi cfi = {
		.size = sizeof(cfi), .object = (uintptr_t)links,
		.section = (uintptr_t)&table, .section_size = sizeof(table),
	};

	table.nr_functions = table.nr_rows = table.rows_size = 0;
	for (const char *link = links; link < calls_of_links; link += LINK_SIZE)
		add_function(link, link + LINK_SIZE, link_rows, sizeof(link_rows));
	add_function(calls_of_links, (const char *)enter_links, calls_rows, sizeof(calls_rows));
	add_function((const char *)enter_links, end_of_links, enter_rows, sizeof(enter_rows));
	if (ioctl(fd, IOC_SET_CFI, &cfi))
		die("PERF_EVENT_IOC_SET_CFI");
}

/* false: the kernel does not know the mode */
static bool open_mode(const struct mode *mode)
{
	struct attr attr = {
		.type = TYPE_TRACEPOINT,
		.size = sizeof(attr),
		.config = tracepoint_id(mode->tracepoint ?: GETPPID),
		.sample_period = 1,
		.sample_type = SAMPLE_IP | SAMPLE_TID | SAMPLE_TIME |
			       SAMPLE_CPU | SAMPLE_PERIOD | SAMPLE_RAW,
		.read_format = FORMAT_ID | FORMAT_LOST,
		.flags = DISABLED | INHERIT | SAMPLE_ID_ALL,
	};
	struct attr dummy = {
		.type = TYPE_SOFTWARE,
		.size = sizeof(dummy),
		.config = SW_DUMMY,
		.sample_period = 1,
		.read_format = FORMAT_ID | FORMAT_LOST,
		.flags = DISABLED | INHERIT | SAMPLE_ID_ALL | TRACKING |
			 EXCLUDE_GUEST | DEFER_OUTPUT,
	};
	unsigned int i;
	int fd;

	if (mode->longest)
		raise_max_stack();
	switch (mode->kind) {
	case UNTRACED:
		return true;
	case PLAIN:
		break;
	case DWARF:
		attr.sample_type |= SAMPLE_CALLCHAIN | SAMPLE_REGS_USER |
				    SAMPLE_STACK_USER;
		attr.sample_regs_user = 0xff0fff;
		attr.sample_stack_user = 8192;
		attr.flags |= EXCLUDE_CALLCHAIN_USER;
		break;
	case DEFERRED:
	case DEFERRED_DUMMY:
		attr.flags |= DEFER_CALLCHAIN;
		/* fall through */
	case IMMEDIATE:
		attr.sample_type |= SAMPLE_CALLCHAIN;
		break;
	}
	if (with_identifier(mode))
		attr.sample_type |= SAMPLE_IDENTIFIER;
	dummy.sample_type = attr.sample_type & ~(SAMPLE_CALLCHAIN | SAMPLE_RAW);

	for (i = 0; i < mode->events; i++) {
		struct attr one = attr;

		/* the first event gets the side-band records, or else the dummy */
		if (!i && mode->kind != DEFERRED_DUMMY)
			one.flags |= TRACKING;
		if (!i && mode->kind == DEFERRED)
			one.flags |= DEFER_OUTPUT;
		fd = open_event(&one, mode);
		if (fd < 0 && is_deferred(mode) && errno == EINVAL && !i)
			return false;
		if (fd < 0)
			die("perf_event_open");
		fds[nr_fds++] = fd;
	}
	if (mode->kind == DEFERRED_DUMMY) {
		fd = open_event(&dummy, mode);
		if (fd < 0)
			die("perf_event_open of the dummy event");
		fds[nr_fds++] = fd;
	}
	if (mode->stack != RECURSE)
		load_table(fds[0]);
	ring = mmap(NULL, PAGE + DATA, PROT_READ | PROT_WRITE, MAP_SHARED,
		    fds[0], 0);
	if (ring == MAP_FAILED)
		die("mmap of the ring buffer");
	for (i = 1; i < nr_fds; i++)
		if (ioctl(fds[i], IOC_SET_OUTPUT, fds[0]))
			die("PERF_EVENT_IOC_SET_OUTPUT");
	for (i = 0; i < nr_fds; i++)
		if (ioctl(fds[i], IOC_ENABLE, 0))
			die("PERF_EVENT_IOC_ENABLE");
	return true;
}

static void close_mode(void)
{
	if (ring)
		munmap(ring, PAGE + DATA);
	ring = NULL;
	if (!nr_fds)
		return;
	while (nr_fds)
		close(fds[--nr_fds]);
	/* What a profile leaves has gone when this is over. */
	sleep(3);
}

struct seen {
	uint64_t	samples, bad, bytes;
	uint64_t	immediate, deferred;	/* samples with a stack of that kind */
	uint64_t	frames;		/* of the last stack */
	uint64_t	cookie;		/* of the last sample */
	uint64_t	cookies;	/* different ones */
	bool		waiting;	/* the last sample, for its record */
};

static bool is_ours(uint64_t pid_and_tid)
{
	return (uint32_t)pid_and_tid == (uint32_t)getpid();
}

static void see_sample(struct seen *seen, const struct mode *mode,
		       const uint64_t *word)
{
	uint64_t i, nr, frames = 0, user = 0, cookie = 0;

	/* identifier, ip, tid, time, cpu, period */
	word += with_identifier(mode);
	if (!is_ours(word[1]))
		return;
	seen->samples++;
	if (mode->kind != IMMEDIATE && !is_deferred(mode))
		return;
	word += 5;
	nr = *word++;
	for (i = 0; i < nr; i++) {
		if (word[i] == CONTEXT_USER)
			user = 1;
		else if (word[i] == CONTEXT_USER_DEFERRED && i + 2 == nr)
			cookie = word[++i];
		else if (word[i] >= CONTEXT_MAX)
			user = 0;
		else if (user)
			frames++;
	}
	if (!cookie == !frames) {
		seen->bad++;
	} else if (frames) {
		seen->immediate++;
		seen->frames = frames;
	} else {
		seen->deferred++;
		if (cookie != seen->cookie) {
			seen->cookies++;
			/* its records come before the next call's samples */
			seen->bad += seen->waiting;
		}
		seen->cookie = cookie;
		seen->waiting = true;
	}
}

/* One more comes with the same cookie where a task was switched out in the call. */
static void see_record(struct seen *seen, const uint64_t *word)
{
	if (!is_ours(word[2 + word[1]]))
		return;
	if (word[0] != seen->cookie || !word[1])
		seen->bad++;
	seen->frames = word[1];
	seen->waiting = false;
}

/* Empties the buffer. */
static void see(struct seen *seen, const struct mode *mode)
{
	uint64_t head, tail, at, first;
	const struct header *header;
	const uint64_t *word;

	memset(seen, 0, sizeof(*seen));
	if (!ring)
		return;
	head = __atomic_load_n((uint64_t *)(ring + PAGE_HEAD), __ATOMIC_ACQUIRE);
	tail = *(uint64_t *)(ring + PAGE_TAIL);
	seen->bytes = head - tail;
	for (; tail < head; tail += header->size) {
		at = tail & MASK;
		header = (struct header *)(ring + PAGE + at);
		if (at + header->size > DATA) {
			first = DATA - at;
			memcpy(scratch, ring + PAGE + at, first);
			memcpy(scratch + first, ring + PAGE, header->size - first);
			header = (struct header *)scratch;
		}
		if (header->size < sizeof(*header)) {
			seen->bad++;
			break;
		}
		word = (const uint64_t *)(header + 1);
		switch (header->type) {
		case RECORD_SAMPLE:
			see_sample(seen, mode, word);
			break;
		case RECORD_CALLCHAIN_DEFERRED:
			see_record(seen, word);
			break;
		case RECORD_LOST:
		case RECORD_LOST_SAMPLES:
		case RECORD_THROTTLE:
			seen->bad++;
			break;
		}
	}
	__atomic_store_n((uint64_t *)(ring + PAGE_TAIL), head, __ATOMIC_RELEASE);
	seen->bad += seen->waiting;
}

/*
 * Ends the program unless there are @samples, each with its stack, which is deferred or
 * not, and @stacks different deferred ones.
 */
static void check(const struct seen *seen, const struct mode *mode, bool deferred,
		  uint64_t samples, uint64_t stacks)
{
	bool chains = mode->kind == IMMEDIATE || is_deferred(mode);

	if (!seen->bad && seen->samples == samples &&
	    seen->deferred == (deferred ? samples : 0) &&
	    seen->immediate == (chains && !deferred ? samples : 0) &&
	    seen->cookies == stacks)
		return;
	fprintf(stderr,
		"getppid: %s, %u events: void: %lu samples of %lu, %lu immediate stacks, %lu deferred ones, %lu cookies of %lu, %lu bad ones\n",
		mode->name, mode->events, seen->samples, samples,
		seen->immediate, seen->deferred, seen->cookies, stacks, seen->bad);
	exit(1);
}

static uint64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_RAW, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

static __attribute__((noinline)) uint64_t calls(unsigned int nr)
{
	uint64_t start = now();

	PROFILE_START();
	for (unsigned int i = 0; i < nr; i++)
		syscall(SYS_getppid);
	PROFILE_STOP();
	return now() - start;
}

/* So that there are as many frames as with recurse() and its callers. */
#define FURTHER_LINKS	3

static uint64_t calls_by_links(const struct mode *mode, unsigned int depth, unsigned int nr)
{
	unsigned int each = mode->stack == SAME_LINKS ? nr : 1, first = 0;
	uint64_t start = now();

	depth += FURTHER_LINKS;
	PROFILE_START();
	for (; nr; nr -= each) {
		enter_links(depth, each, links + first * LINK_SIZE);
		first += depth;
		if (first + depth > LINKS)
			first = 0;
	}
	PROFILE_STOP();
	return now() - start;
}

static __attribute__((noinline)) uint64_t recurse(unsigned int depth,
						  uint64_t (*function)(unsigned int nr),
						  unsigned int nr)
{
	uint64_t taken;

	if (!depth)
		return function(nr);
	taken = recurse(depth - 1, function, nr);
	/* not a tail call */
	asm volatile("" : "+r" (taken));
	return taken;
}

static void print(const struct mode *mode, unsigned int depth, uint64_t cost,
		  uint64_t frames, uint64_t bytes)
{
	printf("%s %u %u %lu %lu %lu\n", mode->name, mode->events, depth, cost, frames,
	       bytes);
	fflush(stdout);
}

static void run(const struct mode *mode, unsigned int depth)
{
	unsigned int nr = CALLS;
	uint64_t best = UINT64_MAX, taken;
	struct seen seen;

	/* so that a round fits into the buffer */
	if (mode->kind == DWARF || mode->events > 2)
		nr = CALLS / 2;

	see(&seen, mode);
	for (unsigned int i = 0; i < rounds; i++) {
		taken = mode->stack == RECURSE ? recurse(depth, calls, nr) :
						 calls_by_links(mode, depth, nr);
		see(&seen, mode);
		check(&seen, mode, is_deferred(mode), (uint64_t)nr * mode->events,
		      is_deferred(mode) ? nr : 0);
		if (taken < best)
			best = taken;
	}
	print(mode, depth, best * 1000 / nr, seen.frames, seen.bytes / nr);
}

/*
 * The stack ends as the psABI has it, in a frame pointer of 0; what the C library
 * leaves in the register before it calls main() differs from one to the next.
 */
void outermost(void (*function)(void));
asm("	.pushsection .text\n"
    "	.type	outermost, @function\n"
    "outermost:\n"
    "	push	%rbp\n"
    "	xor	%ebp, %ebp\n"
    "	call	*%rdi\n"
    "	pop	%rbp\n"
    "	ret\n"
    "	.size	outermost, . - outermost\n"
    "	.popsection\n");

/* A sample of a switch cannot be deferred. */
static const struct mode switch_modes[] = {
	{ "switch",		UNTRACED,	0 },
	{ "switch-beside-immediate", IMMEDIATE,	1, false, FORK },
	{ "switch-beside-deferred", DEFERRED,	1, false, FORK },
	{ "switch-immediate",	IMMEDIATE,	1, false, SWITCH },
	{ "switch-deferred",	DEFERRED,	1, false, SWITCH },
	{ "switch-after",	UNTRACED,	0 },
};

#define SWITCH_DEPTH	16
#define TURNS		500
/* Who is woken waits until the other one does: one switch to each. */
#define TURN_SWITCHES	2

static int to[2], from[2];

/* By syscall(), which leaves the frame pointer alone. */
static void turn(int in, int out)
{
	char byte;

	if (syscall(SYS_read, in, &byte, 1) != 1 || syscall(SYS_write, out, &byte, 1) != 1)
		die("a pipe");
}

/* Those of both threads. */
static uint64_t count_switches(void)
{
	struct rusage usage;

	if (getrusage(RUSAGE_SELF, &usage))
		die("getrusage");
	return usage.ru_nvcsw + usage.ru_nivcsw;
}

/* The least that a turn takes. */
static uint64_t turns(unsigned int nr)
{
	uint64_t best = UINT64_MAX, taken, switches;

	/* Each by itself: many have a tick of the clock in them, or what is behind one. */
	while (nr--) {
		switches = count_switches();
		taken = now();
		PROFILE_START();
		turn(from[0], to[1]);
		PROFILE_STOP();
		taken = now() - taken;
		switches = count_switches() - switches;
		if (switches == TURN_SWITCHES && taken < best)
			best = taken;
	}
	return best;
}

static uint64_t turns_of_other(unsigned int nr)
{
	for (;;)
		turn(to[0], from[1]);
	return nr;
}

static void other(void)
{
	recurse(SWITCH_DEPTH, turns_of_other, 0);
}

static void *start_other(void *unused)
{
	outermost(other);
	return unused;
}

/* One sample of FORK. */
static void fork_once(void)
{
	pid_t pid = syscall(SYS_fork);

	if (!pid)
		syscall(SYS_exit_group, 0);
	if (pid < 0 || waitpid(pid, NULL, 0) != pid)
		die("fork");
}

static void run_switches(const struct mode *mode)
{
	uint64_t best = UINT64_MAX, taken, switches, bytes = 0, frames = 0;
	bool sampled = mode->tracepoint && !strcmp(mode->tracepoint, SWITCH);
	struct seen seen;

	for (unsigned int i = 0; i < rounds; i++) {
		see(&seen, mode);
		switches = count_switches();
		taken = recurse(SWITCH_DEPTH, turns, TURNS);
		switches = count_switches() - switches;
		see(&seen, mode);
		check(&seen, mode, false, sampled ? switches : 0, 0);
		frames = seen.frames;
		bytes = seen.bytes / switches;
		if (taken < best)
			best = taken;
	}
	if (best == UINT64_MAX) {
		fprintf(stderr, "getppid: %s: void: no turn has %u switches\n",
			mode->name, TURN_SWITCHES);
		exit(1);
	}
	/* The session that has sampled nothing does sample. */
	if (mode->tracepoint && !sampled) {
		fork_once();
		see(&seen, mode);
		check(&seen, mode, is_deferred(mode), 1, is_deferred(mode));
	}
	print(mode, SWITCH_DEPTH, best * 1000 / TURN_SWITCHES, frames, bytes);
}

static bool is_wanted(const struct mode *mode)
{
	return !only || (!strcmp(only, mode->name) && only_events == mode->events);
}

static void take_turns(const struct mode *mode)
{
	const struct sched_param param = { .sched_priority = 1 };
	pthread_t thread;

	if (sched_setscheduler(0, SCHED_FIFO, &param))
		die("sched_setscheduler");
	if (pipe(to) || pipe(from))
		die("pipe");
	errno = pthread_create(&thread, NULL, start_other, NULL);
	if (errno)
		die("pthread_create");
	if (write(to[1], "", 1) != 1)
		die("a pipe");
	if (open_mode(mode))
		run_switches(mode);
	close_mode();
}

/*
 * Each in a process of its own: one with threads has more to do in other calls, and what
 * a process has done before moves a turn by some 20 instructions.
 */
static void all_switches(void)
{
	int status;
	pid_t pid;

	for (size_t m = 0; m < sizeof(switch_modes) / sizeof(*switch_modes); m++) {
		if (!is_wanted(&switch_modes[m]))
			continue;
		pid = fork();
		if (!pid) {
			take_turns(&switch_modes[m]);
			_exit(0);
		}
		if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
			die("the process that takes turns");
	}
}

static void all(void)
{
	all_switches();
	for (size_t m = 0; m < sizeof(modes) / sizeof(*modes); m++) {
		bool known = is_wanted(&modes[m]) && open_mode(&modes[m]);

		if (known && modes[m].longest &&
		    (only_depth < 0 || only_depth == LONGEST))
			run(&modes[m], LONGEST);
		for (size_t d = 0; known && !modes[m].longest &&
		     d < sizeof(depths) / sizeof(*depths); d++)
			if (only_depth < 0 || (int)depths[d] == only_depth)
				run(&modes[m], depths[d]);
		close_mode();
	}
}

int main(int argc, char **argv)
{
	if (argc > 1)
		rounds = atoi(argv[1]);
	if (argc > 3) {
		only = argv[2];
		only_events = atoi(argv[3]);
	}
	if (argc > 4)
		only_depth = atoi(argv[4]);
	outermost(all);
	return 0;
}

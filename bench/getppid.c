// SPDX-License-Identifier: GPL-2.0
/*
 * What a sampled system call costs, by the depth of the user stack.
 *
 * Recurses to a depth, calls getppid() CALLS times there, and times that with
 * CLOCK_MONOTONIC_RAW: under QEMU's -icount that clock counts instructions. It
 * records itself meanwhile, with the events and the buffer of
 *
 *	perf record -m 8M -e syscalls:sys_enter_getppid
 *
 * in several modes. The buffer is read between the rounds, outside the time that
 * is taken, and every record in it is looked at: a figure of which a sample or a
 * stack is missing is not printed.
 *
 * The kernel's interface is written down here once more, so that the program can
 * be built with the headers of any kernel, and runs on one without the series,
 * where it leaves out the deferred modes.
 *
 * What it costs that two threads take turns, through pipes, where nothing is traced:
 * each of their calls returns to user space behind a switch of tasks, and has the
 * FPU's registers to load. That is the mode untraced-switch, and a call a turn.
 *
 * And what a profile of the whole system costs that is set up and ends again, by
 * the number of threads there are, which are asleep and not sampled. That is the
 * time of the thread which does it, without what it waits for; and, as "cancel",
 * that of the kernel's workers behind it, which end what a closed file leaves.
 *
 * usage: getppid [ROUNDS [MODE EVENTS [DEPTH]]]
 *
 * Output, a line a figure: mode events depth cost frames bytes
 *	cost	the least of all rounds, nanoseconds a call, in thousandths
 *	frames	user addresses of a stack
 *	bytes	of the buffer, for a call
 * What a part of a profile costs is a mode of its own, such as deferred-teardown;
 * the depth is the number of threads then.
 */
#include <dirent.h>
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
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CALLS		1000
#define MAX_EVENTS	10
#define PAGE		4096UL
#define DATA		(8UL << 20)
#define MASK		(DATA - 1)

#define ID_FILE		"/sys/kernel/tracing/events/syscalls/sys_enter_getppid/id"

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
};

static const struct mode modes[] = {
	{ "untraced",	UNTRACED,	0 },
	{ "plain",	PLAIN,		1 },
	{ "immediate",	IMMEDIATE,	1 },
	{ "deferred",	DEFERRED,	1 },
	/* as when perf adds an event for the side-band records */
	{ "deferred-dummy", DEFERRED_DUMMY, 1 },
	{ "dwarf",	DWARF,		1 },
	{ "plain",	PLAIN,		2 },
	{ "immediate",	IMMEDIATE,	2 },
	{ "deferred",	DEFERRED,	2 },
	{ "plain",	PLAIN,		MAX_EVENTS },
	{ "immediate",	IMMEDIATE,	MAX_EVENTS },
	{ "deferred",	DEFERRED,	MAX_EVENTS },
	{ "immediate",	IMMEDIATE,	1, true },
	{ "deferred",	DEFERRED,	1, true },
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

/* How many threads there are while profiles come and go. */
static const unsigned int threads[] = { 10, 2000 };

#define THREAD_STACK	(64UL << 10)

static int fds[MAX_EVENTS + 1];
static unsigned int nr_fds;
static char *ring;
static char scratch[65536];

static void die(const char *what)
{
	fprintf(stderr, "getppid: %s: %s\n", what, strerror(errno));
	exit(1);
}

static bool whole_system;

static int open_event(const struct attr *attr)
{
	return syscall(SYS_perf_event_open, attr, whole_system ? -1 : 0, 0, -1,
		       8 /* CLOEXEC */);
}

static uint64_t tracepoint_id(void)
{
	static uint64_t id;
	char text[32] = "";
	int fd;

	if (id)
		return id;
	fd = open(ID_FILE, O_RDONLY);
	if (fd < 0 && !mount("tracefs", "/sys/kernel/tracing", "tracefs", 0, NULL))
		fd = open(ID_FILE, O_RDONLY);
	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
		die(ID_FILE);
	close(fd);
	id = strtoull(text, NULL, 10);
	return id;
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

/* false: the kernel does not know the mode */
static bool open_mode(const struct mode *mode)
{
	struct attr attr = {
		.type = TYPE_TRACEPOINT,
		.size = sizeof(attr),
		.config = tracepoint_id(),
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
		fd = open_event(&one);
		if (fd < 0 && is_deferred(mode) && errno == EINVAL && !i)
			return false;
		if (fd < 0)
			die("perf_event_open");
		fds[nr_fds++] = fd;
	}
	if (mode->kind == DEFERRED_DUMMY) {
		fd = open_event(&dummy);
		if (fd < 0)
			die("perf_event_open of the dummy event");
		fds[nr_fds++] = fd;
	}
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

static void unmap_ring(void)
{
	if (ring)
		munmap(ring, PAGE + DATA);
	ring = NULL;
}

static void close_mode(void)
{
	unmap_ring();
	while (nr_fds)
		close(fds[--nr_fds]);
}

struct seen {
	uint64_t	samples, records, bad, bytes;
	uint64_t	frames;		/* of the last stack */
	uint64_t	cookie;		/* of the last sample */
	uint64_t	cookies;	/* different ones */
};

static void see_sample(struct seen *seen, const struct mode *mode,
		       const uint64_t *word)
{
	uint64_t i, nr, frames = 0, user = 0, cookie = 0;

	seen->samples++;
	if (mode->kind != IMMEDIATE && !is_deferred(mode))
		return;
	/* identifier, ip, tid, time, cpu, period */
	word += with_identifier(mode) ? 6 : 5;
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
	if (mode->kind == IMMEDIATE) {
		if (!frames || cookie)
			seen->bad++;
		seen->frames = frames;
		return;
	}
	if (!cookie || frames)
		seen->bad++;
	if (cookie != seen->cookie)
		seen->cookies++;
	seen->cookie = cookie;
}

/* Empties the buffer. */
static void see(struct seen *seen, const struct mode *mode)
{
	uint64_t head, tail, at, first;
	const struct header *header;
	const uint64_t *word;

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
			seen->records++;
			seen->frames = word[1];
			/* after its samples, before the next call's */
			if (word[0] != seen->cookie || !word[1])
				seen->bad++;
			break;
		case RECORD_LOST:
		case RECORD_LOST_SAMPLES:
		case RECORD_THROTTLE:
			seen->bad++;
			break;
		}
	}
	__atomic_store_n((uint64_t *)(ring + PAGE_TAIL), head, __ATOMIC_RELEASE);
}

static uint64_t read_clock(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

static uint64_t now(void)
{
	return read_clock(CLOCK_MONOTONIC_RAW);
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

static __attribute__((noinline)) uint64_t recurse(unsigned int depth,
						  unsigned int nr)
{
	uint64_t taken;

	if (!depth)
		return calls(nr);
	taken = recurse(depth - 1, nr);
	/* not a tail call */
	asm volatile("" : "+r" (taken));
	return taken;
}

static void run(const struct mode *mode, unsigned int depth)
{
	unsigned int nr = CALLS;
	uint64_t best = UINT64_MAX, taken;
	struct seen seen = {};

	/* so that a round fits into the buffer */
	if (mode->kind == DWARF || mode->events > 2)
		nr = CALLS / 2;

	see(&seen, mode);
	for (unsigned int i = 0; i < rounds; i++) {
		memset(&seen, 0, sizeof(seen));
		taken = recurse(depth, nr);
		see(&seen, mode);
		if (seen.bad || seen.samples != (uint64_t)nr * mode->events ||
		    (is_deferred(mode) &&
		     (seen.records != nr || seen.cookies != nr))) {
			fprintf(stderr,
				"getppid: %s, %u events, depth %u: void: %lu samples, %lu records, %lu cookies, %lu bad ones of %u calls\n",
				mode->name, mode->events, depth, seen.samples,
				seen.records, seen.cookies, seen.bad, nr);
			exit(1);
		}
		if (taken < best)
			best = taken;
	}
	printf("%s %u %u %lu %lu %lu\n", mode->name, mode->events, depth,
	       best * 1000 / nr, seen.frames, seen.bytes / nr);
	fflush(stdout);
}

#define TURNS		100

static int to[2], from[2];

static void turn(int in, int out)
{
	char byte;

	if (read(in, &byte, 1) != 1 || write(out, &byte, 1) != 1)
		die("a pipe");
}

static void *take_turns(void *unused)
{
	for (;;)
		turn(to[0], from[1]);
	return unused;
}

static void take_turns_with_thread(void)
{
	/* Who is woken waits until the other one does: one switch to each, every turn. */
	const struct sched_param param = { .sched_priority = 1 };
	uint64_t best = UINT64_MAX, taken;
	pthread_t thread;

	if (sched_setscheduler(0, SCHED_FIFO, &param))
		die("sched_setscheduler");
	if (pipe(to) || pipe(from))
		die("pipe");
	errno = pthread_create(&thread, NULL, take_turns, NULL);
	if (errno)
		die("pthread_create");
	if (write(to[1], "", 1) != 1)
		die("a pipe");
	/* Each by itself: many have a tick of the clock in them, or what is behind one. */
	for (unsigned int i = 0; i < rounds * TURNS; i++) {
		taken = now();
		turn(from[0], to[1]);
		taken = now() - taken;
		if (taken < best)
			best = taken;
	}
	printf("untraced-switch 0 0 %lu 0 0\n", best * 1000);
	fflush(stdout);
}

/* In a process of its own, for what one with threads has to do in other calls. */
static void run_switches(void)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		take_turns_with_thread();
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		die("the process that takes turns");
}

static void *stay_asleep(void *unused)
{
	for (;;)
		pause();
	return unused;
}

static unsigned int started;

static void start_threads(unsigned int nr)
{
	pthread_attr_t attr;
	pthread_t thread;

	if (pthread_attr_init(&attr) ||
	    pthread_attr_setstacksize(&attr, THREAD_STACK))
		die("pthread_attr_setstacksize");
	for (; started < nr; started++) {
		errno = pthread_create(&thread, &attr, stay_asleep, NULL);
		if (errno)
			die("pthread_create");
	}
	pthread_attr_destroy(&attr);
	/* They run, and go to sleep. */
	sleep(1);
}

enum part { SETUP, DISABLE, TEARDOWN, CANCEL, PARTS };

static const char * const parts[PARTS] = { "setup", "disable", "teardown", "cancel" };

/* For how long the kernel's workers have run, all together, in nanoseconds. */
static uint64_t workers_clock(void)
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;
	uint64_t sum = 0;

	if (!dir)
		die("/proc");
	while ((entry = readdir(dir))) {
		char name[300], comm[16] = "";
		uint64_t one = 0;
		FILE *f;

		snprintf(name, sizeof(name), "/proc/%s/comm", entry->d_name);
		f = fopen(name, "r");
		if (!f)
			continue;
		if (!fgets(comm, sizeof(comm), f))
			comm[0] = '\0';
		fclose(f);
		if (strncmp(comm, "kworker/", 8))
			continue;
		snprintf(name, sizeof(name), "/proc/%s/schedstat", entry->d_name);
		f = fopen(name, "r");
		/* One may have gone. */
		if (!f && errno == ENOENT && access("/proc/self/schedstat", R_OK))
			die("/proc/self/schedstat, CONFIG_SCHED_INFO?");
		if (!f)
			continue;
		if (fscanf(f, "%lu", &one) == 1)
			sum += one;
		fclose(f);
	}
	closedir(dir);
	return sum;
}

static bool add_profile(const struct mode *mode, uint64_t *best)
{
	const clockid_t clock = CLOCK_THREAD_CPUTIME_ID;
	uint64_t taken[PARTS];
	struct seen seen = {};

	taken[SETUP] = read_clock(clock);
	if (!open_mode(mode))
		return false;
	taken[SETUP] = read_clock(clock) - taken[SETUP];

	syscall(SYS_getppid);
	taken[DISABLE] = read_clock(clock);
	if (ioctl(fds[0], IOC_DISABLE, 0))
		die("PERF_EVENT_IOC_DISABLE");
	taken[DISABLE] = read_clock(clock) - taken[DISABLE];

	see(&seen, mode);
	if (seen.bad || seen.samples != 1 || seen.records != is_deferred(mode)) {
		fprintf(stderr,
			"getppid: a profile, %s: void: %lu samples, %lu records, %lu bad ones\n",
			mode->name, seen.samples, seen.records, seen.bad);
		exit(1);
	}

	taken[TEARDOWN] = read_clock(clock);
	unmap_ring();
	taken[TEARDOWN] = read_clock(clock) - taken[TEARDOWN];
	/* The buffer is freed behind a grace period, in whoever's time that is. */
	usleep(100000);
	taken[CANCEL] = workers_clock();
	taken[TEARDOWN] -= read_clock(clock);
	close_mode();
	taken[TEARDOWN] += read_clock(clock);
	/* The workers wait for a few of those. */
	usleep(200000);
	taken[CANCEL] = workers_clock() - taken[CANCEL];

	for (int part = 0; part < PARTS; part++)
		if (taken[part] < best[part])
			best[part] = taken[part];
	return true;
}

/* Profiles of the whole system, of one sampled call each. */
static void run_profiles(const struct mode *mode)
{
	uint64_t best[PARTS];

	for (int part = 0; part < PARTS; part++)
		best[part] = UINT64_MAX;
	for (unsigned int i = 0; i < rounds; i++)
		if (!add_profile(mode, best))
			return;
	for (int part = 0; part < PARTS; part++)
		printf("%s-%s 1 %u %lu 0 0\n", mode->name, parts[part],
		       started, best[part] * 1000);
	fflush(stdout);
}

static void all_profiles(void)
{
	static const struct mode of[] = {
		{ "immediate",	IMMEDIATE,	1 },
		{ "deferred",	DEFERRED,	1 },
	};

	whole_system = true;
	for (size_t t = 0; t < sizeof(threads) / sizeof(*threads); t++) {
		start_threads(threads[t]);
		for (size_t m = 0; m < sizeof(of) / sizeof(*of); m++)
			run_profiles(&of[m]);
	}
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

static void all(void)
{
	if (!only || !strcmp(only, "untraced"))
		run_switches();
	for (size_t m = 0; m < sizeof(modes) / sizeof(*modes); m++) {
		bool known = (!only || (!strcmp(only, modes[m].name) &&
					only_events == modes[m].events)) &&
			     open_mode(&modes[m]);

		if (known && modes[m].longest &&
		    (only_depth < 0 || only_depth == LONGEST))
			run(&modes[m], LONGEST);
		for (size_t d = 0; known && !modes[m].longest &&
		     d < sizeof(depths) / sizeof(*depths); d++)
			if (only_depth < 0 || (int)depths[d] == only_depth)
				run(&modes[m], depths[d]);
		close_mode();
	}
	if (!only)
		all_profiles();
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

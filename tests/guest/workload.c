// SPDX-License-Identifier: GPL-2.0
/*
 * The programs that the test "callchains" records. Every probed system call is
 * known, with its whole chain of callers.
 *
 * A probed system call carries a number of its own in an argument that the kernel
 * ignores. All frames are known: enter() ends the chain of frame pointers, for the
 * C library is built without them, and the chain would go on with a word that is
 * no frame pointer. "calls N" on stderr gives the number of probed calls; a line
 * "child PID" names a process that is left behind.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define CALL	__attribute__((noinline, noclone, noipa))
#define CPUS	4

typedef unsigned long ulong;

/*
 * Each function has something to do after the call it makes, so that it is no
 * tail call, and has a frame: the compiler leaves it out of a function without
 * variables that calls nothing, whatever the options say.
 */
#define AFTER()	asm volatile("" : : "r" (__builtin_frame_address(0)) : "memory")

/* A system call without the C library, so that its caller is our function. */
static inline __attribute__((always_inline))
long call(long nr, ulong a, ulong b, ulong c)
{
	long ret;

#ifdef __x86_64__
	asm volatile("syscall" : "=a" (ret) : "0" (nr), "D" (a), "S" (b), "d" (c)
		     : "rcx", "r11", "memory");
#else
	asm volatile("int $0x80" : "=a" (ret)
		     : "0" (nr), "b" (a), "c" (b), "d" (c) : "memory");
#endif
	return ret;
}

/* Calls function(argument) as the outermost frame: its caller's frame is 0. */
void enter(void (*function)(void *), void *argument);
#ifdef __x86_64__
asm(".pushsection .text\n"
    ".type enter, @function\n"
    "enter:	push %rbp\n"
    "	mov %rdi, %rax\n"
    "	mov %rsi, %rdi\n"
    "	xor %ebp, %ebp\n"
    "	call *%rax\n"
    "	pop %rbp\n"
    "	ret\n"
    ".size enter, . - enter\n"
    ".popsection\n");
#else
asm(".pushsection .text\n"
    ".type enter, @function\n"
    "enter:	push %ebp\n"
    "	mov 8(%esp), %eax\n"
    "	mov 12(%esp), %edx\n"
    "	xor %ebp, %ebp\n"
    "	sub $4, %esp\n"
    "	push %edx\n"
    "	call *%eax\n"
    "	add $8, %esp\n"
    "	pop %ebp\n"
    "	ret\n"
    ".size enter, . - enter\n"
    ".popsection\n");
#endif

static long total;		/* probed calls of the whole workload */
static int count, depth;
static int done[2];		/* a pipe: a byte for each thread at its end */

static void made(long calls)
{
	__atomic_add_fetch(&total, calls, __ATOMIC_RELAXED);
}

/* The probed calls, each with its number. */
static CALL void hit(ulong seq)
{
	call(SYS_getpgid, seq, 0, 0);		/* no such process */
	AFTER();
}

static CALL void hit_sleeping(ulong seq, long ms)
{
	call(SYS_poll, seq, 0, ms);		/* no descriptors */
	AFTER();
}

static CALL void hit_rename(ulong seq, const char *name)
{
	call(SYS_prctl, PR_SET_NAME, (ulong)name, seq);
	AFTER();
}

static CALL void hit_migrating(ulong seq, int cpu)
{
	static ulong masks[CPUS][256];		/* larger than the kernel's */

	masks[cpu][0] = 1UL << cpu;
	call(SYS_sched_setaffinity, 0, seq, (ulong)masks[cpu]);
	AFTER();
}

static CALL void hit_exit(ulong seq)
{
	for (;;)
		call(SYS_exit_group, seq, 0, 0);
}

static CALL void recurse(int levels, ulong seq)
{
	if (levels > 1)
		recurse(levels - 1, seq);
	else
		hit(seq);
	AFTER();
}

static CALL void recurse_exit(int levels, ulong seq)
{
	if (levels > 1)
		recurse_exit(levels - 1, seq);
	else
		hit_exit(seq);
	AFTER();
}

static CALL void recurse_sleeping(int levels, ulong seq, long ms)
{
	if (levels > 1)
		recurse_sleeping(levels - 1, seq, ms);
	else
		hit_sleeping(seq, ms);
	AFTER();
}

/* a call on the way down, on another CPU than the one before, and on the way up */
static CALL void recurse_migrating(int levels, int cpu, ulong *seq)
{
	hit_migrating((*seq)++, cpu % CPUS);
	hit((*seq)++);
	if (levels > 1)
		recurse_migrating(levels - 1, cpu + 1, seq);
	hit((*seq)++);
	hit_migrating((*seq)++, (cpu + 2) % CPUS);
	AFTER();
}

static CALL void deep(void *unused)
{
	for (int i = 0; i < count; i++)
		recurse(depth, i + 1);
	made(count);
}

static CALL void migrating(void *number)
{
	int self = (long)number;
	ulong seq = 1000;			/* a size: not below a mask's */

	for (int i = 0; i < count; i++)
		recurse_migrating(1 + (self + i) % 5, self + i, &seq);
	made(seq - 1000);
}

static void *migrating_thread(void *number)
{
	enter(migrating, number);
	if (write(done[1], "", 1) != 1)
		abort();
	for (;;)
		pause();
}

static CALL void polling(void *number)
{
	for (ulong seq = 1;; seq++)
		recurse_sleeping(3 + (long)number, seq, 150 + 10 * (long)number);
}

static void *polling_thread(void *number)
{
	enter(polling, number);
	return NULL;
}

/* So many descriptors that a call takes some milliseconds and does not sleep. */
#define MANY	30000
static struct pollfd many[10 * MANY];

static CALL void hit_long(ulong number)
{
	call(SYS_poll, (ulong)(many + number), MANY, 0);
	AFTER();
}

static CALL void long_calls(void *unused)
{
	for (ulong number = 0;; number++)
		hit_long(number % (9 * MANY));
}

static void *long_thread(void *unused)
{
	struct rlimit limit = { MANY, MANY };

	if (setrlimit(RLIMIT_NOFILE, &limit))
		abort();
	enter(long_calls, NULL);
	return NULL;
}

/*
 * The threads are not joined: that is a futex call with a time, which 32-bit
 * programs do not have where the kernel is without CONFIG_COMPAT_32BIT_TIME.
 */
static CALL void threads(void *function)
{
	pthread_t thread;
	char byte;

	if (pipe(done))
		abort();
	for (long i = 0; i < depth; i++)
		if (pthread_create(&thread, NULL, function, (void *)i))
			abort();
	for (int i = 0; i < depth; i++)
		if (read(done[0], &byte, 1) != 1)
			abort();
}

/* Children that are gone as soon as they were seen. */
static CALL void storm(void *unused)
{
	int alive = 0;

	for (int i = 0; i < count; i++) {
		pid_t pid = fork();

		if (pid < 0)
			abort();
		if (!pid) {
			if (i % 3)
				recurse(2 + i % 7, 2 * i + 1);
			recurse_exit(2 + i % 5, 2 * i + 2);
		}
		made(i % 3 ? 2 : 1);
		if (i % 10 == 0) {
			recurse(3, i + 1);
			made(1);
		}
		if (++alive == 12)
			while (alive && wait(NULL) > 0)
				alive--;
	}
	while (wait(NULL) > 0)
		;
}

/* The name changes in the call, and between calls. */
static CALL void renames(void *unused)
{
	char name[16];

	for (int i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "name-%d", i);
		recurse(2 + i % 4, 3 * i + 1);
		hit_rename(3 * i + 2, name);
		recurse(2 + i % 3, 3 * i + 3);
	}
	made(3 * count);
}

static volatile sig_atomic_t handled;

static CALL void handler_call(void)
{
	recurse(3, 1000000 + handled);
	AFTER();
}

static void handler(int sig)
{
	handled++;
	handler_call();
}

/* A call that ends in the delivery of a signal, whose handler calls again. */
static CALL void signals(void *unused)
{
	struct sigaction act = { .sa_handler = handler };
	struct itimerval soon = { .it_value = { .tv_usec = 20000 } };

	sigaction(SIGALRM, &act, NULL);
	for (int i = 0; i < count; i++) {
		int before = handled;

		setitimer(ITIMER_REAL, &soon, NULL);
		recurse_sleeping(2 + i % 4, i + 1, 2000);
		if (handled != before + 1)
			abort();
	}
	made(2 * count);
}

static void wait_for_sleep(pid_t tid)
{
	char path[64], stat[256], *state;

	snprintf(path, sizeof(path), "/proc/%d/stat", tid);
	do {
		FILE *f = fopen(path, "r");

		if (!f || !fgets(stat, sizeof(stat), f))
			abort();
		fclose(f);
		state = strrchr(stat, ')');
		usleep(1000);
	} while (!state || state[2] != 'S');
}

/* The processes that are left asleep when the workload ends. */
static CALL void sleepers(void *unused)
{
	for (int i = 0; i < count; i++) {
		pid_t pid = fork();

		if (pid < 0)
			abort();
		if (!pid) {
			recurse_sleeping(3 + i, i + 1, -1);
			_exit(1);
		}
		fprintf(stderr, "child %d\n", pid);
		wait_for_sleep(pid);
	}
	made(count);
}

/* Sleeps for good, from the end of its input on. */
static CALL void lone(void *unused)
{
	char byte;

	while (read(0, &byte, 1) > 0)
		;
	recurse_sleeping(depth, 1, -1);
}

static char **self;
static char *environment[1000];

/* The executed image replaces the one whose stack the call has. */
static CALL void execute(int left)
{
	char number[16];
	char *argv[] = { self[0], "exec", number, "1", NULL };

	snprintf(number, sizeof(number), "%d", left - 1);
	/* links of all names are there */
	*strrchr(self[0], '-') = 0;
	snprintf(strchr(self[0], 0), 8, "-%d", left % 4);
	call(SYS_execve, (ulong)self[0], (ulong)argv,
	     (ulong)(environment + 999 - left));
	abort();
}

static CALL void recurse_execute(int levels, int left)
{
	if (levels > 1)
		recurse_execute(levels - 1, left);
	else
		execute(left);
	AFTER();
}

static CALL void executes(void *unused)
{
	recurse(3 + count % 3, 2 * count + 1);
	if (count)
		recurse_execute(2 + count % 4, count);
}

/* Page faults: "area FIRST BEYOND" on stderr is where they are. */
static CALL void touch(volatile char *p, int pages)
{
	*p = 1;
	if (pages > 1)
		touch(p + 4096, pages - 1);
	AFTER();
}

static CALL void faults(void *unused)
{
	for (int i = 0; i < count; i++) {
		char *p = mmap(NULL, depth * 4096, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (p == MAP_FAILED)
			abort();
		madvise(p, depth * 4096, MADV_NOHUGEPAGE);
		fprintf(stderr, "area %lx %lx\n", (ulong)p,
			(ulong)p + depth * 4096);
		touch(p, depth);
	}
	made((long)count * depth);
}

/*
 * Code whose file is unmapped, or another one mapped, while it is in use. Two
 * functions with the same instructions are at the begin of a page each, and
 * pages of two files are mapped to one place. So what is called in the first
 * may return to the second.
 */
#define PAGE	4096UL
#ifdef __x86_64__
#define MAPPED(name)				\
	".balign 4096\n"			\
	".type " #name ", @function\n"		\
	#name ":	push %rbp\n"		\
	"	mov %rsp, %rbp\n"		\
	"	mov %rdi, %rax\n"		\
	"	mov %rsi, %rdi\n"		\
	"	call *%rax\n"			\
	"	pop %rbp\n"			\
	"	ret\n"				\
	".size " #name ", . - " #name "\n"
#else
#define MAPPED(name)				\
	".balign 4096\n"			\
	".type " #name ", @function\n"		\
	#name ":	push %ebp\n"		\
	"	mov %esp, %ebp\n"		\
	"	sub $4, %esp\n"		\
	"	push 12(%ebp)\n"		\
	"	call *8(%ebp)\n"		\
	"	leave\n"			\
	"	ret\n"				\
	".size " #name ", . - " #name "\n"
#endif
/* not in .text: it would begin with a page, and leave one to the PLT alone */
asm(".pushsection .mapped, \"ax\", @progbits\n"
    MAPPED(mapped_first)
    MAPPED(mapped_second)
    ".balign 4096\n"
    ".popsection\n");
extern const char mapped_first[], mapped_second[];

/* which of them a hit is in is told by its number */
enum { NEITHER, FIRST, SECOND, FUNCTIONS = 4 };
#define OTHER(which)	(FIRST + SECOND - (which))

static char **names;			/* of the two files */
static int files[2];
static void (*place)(void (*)(void *), void *);
static long hits;
static volatile pid_t sleeper;

static ulong numbered(int which)
{
	return FUNCTIONS * ++hits + which;
}

static CALL void hit_unmap(ulong seq)
{
	call(SYS_munmap, (ulong)place, PAGE, seq);
	AFTER();
}

/* For 64 bits the number is the length, which is a page, whatever it is. */
static CALL void hit_map(ulong seq, int which)
{
	extern const char __ehdr_start[];
	ulong at = (which == FIRST ? mapped_first : mapped_second) - __ehdr_start;
	int prot = PROT_READ | PROT_EXEC, fd = files[which - FIRST];
	long ret;
#ifdef __x86_64__
	register long flags asm("r10") = MAP_PRIVATE | MAP_FIXED;
	register long file asm("r8") = fd;
	register long offset asm("r9") = at;

	asm volatile("syscall" : "=a" (ret)
		     : "0" (SYS_mmap), "D" (place), "S" (seq), "d" (prot),
		       "r" (flags), "r" (file), "r" (offset)
		     : "rcx", "r11", "memory");
#else
	/* not mmap2, whose last argument is in the frame pointer */
	ulong args[] = { (ulong)place, PAGE, prot, MAP_PRIVATE | MAP_FIXED, fd,
			 at };

	ret = call(SYS_mmap, (ulong)args, seq, 0);
#endif
	if (ret != (long)place || seq > PAGE)
		abort();
	AFTER();
}

/* Called by the function that is in the place. */
static CALL void replace(void *function)
{
	int which = (long)function, step = hits % 3;

	recurse(1 + step, numbered(which));
	if (step) {
		hit_unmap(numbered(which));
		recurse(1 + step, numbered(which));
	}
	hit_map(numbered(which), OTHER(which));
	recurse(4 - step, numbered(OTHER(which)));
}

static CALL void asleep(void *seq)
{
	hit_sleeping((ulong)seq, -1);
}

static CALL void sleeping(void *seq)
{
	place(asleep, seq);
	AFTER();
}

static void *sleeping_thread(void *seq)
{
	sleeper = gettid();
	enter(sleeping, seq);
	if (write(done[1], "", 1) != 1)
		abort();
	for (;;)
		pause();
}

static void woken(int sig)
{
}

static CALL void replace_under_sleeper(int which, int unmap)
{
	pthread_t thread;
	char byte;

	sleeper = 0;
	if (pthread_create(&thread, NULL, sleeping_thread,
			   (void *)numbered(which)))
		abort();
	while (!sleeper)
		usleep(1000);
	wait_for_sleep(sleeper);
	if (unmap)
		hit_unmap(numbered(NEITHER));
	else
		hit_map(numbered(NEITHER), OTHER(which));
	recurse(1, numbered(NEITHER));
	if (unmap)
		hit_map(numbered(NEITHER), OTHER(which));
	pthread_kill(thread, SIGUSR1);
	if (read(done[0], &byte, 1) != 1)
		abort();
}

static CALL void remaps(void *unused)
{
	struct sigaction act = { .sa_handler = woken };

	sigaction(SIGUSR1, &act, NULL);
	files[0] = open(names[0], O_RDONLY);
	files[1] = open(names[1], O_RDONLY);
	place = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (files[0] < 0 || files[1] < 0 || place == MAP_FAILED || pipe(done))
		abort();
	for (int i = 0; i < count; i++) {
		int which = i % 2 ? SECOND : FIRST;

		hit_map(numbered(NEITHER), which);
		place(replace, (void *)(long)which);
		if (i % depth == 0) {
			hit_map(numbered(NEITHER), which);
			replace_under_sleeper(which, i / depth % 2);
		}
	}
	made(hits);
}

#ifdef DYNAMIC
/* Each of two libraries has one of the functions. */
static CALL void library_calls(void *function)
{
	for (int i = 0; i < depth; i++)
		recurse(1 + i, numbered((long)function));
}

static CALL void libraries(void *unused)
{
	for (int i = 0; i < count; i++) {
		int which = i % 2 ? SECOND : FIRST;
		void *library = dlopen(names[i % 2], RTLD_NOW);

		place = library ? dlsym(library, which == FIRST ?
					"mapped_first" : "mapped_second") : NULL;
		if (!place)
			abort();
		place(library_calls, (void *)(long)which);
		if (dlclose(library))
			abort();
		recurse(2, numbered(NEITHER));
	}
	made(hits);
}
#endif

static CALL void finish(void *unused)
{
	made(1);
	fprintf(stderr, "calls %ld\n", total);
	hit_exit(0x10000);		/* status 0 */
}

int main(int argc, char **argv)
{
	const char *mode = argc > 3 ? argv[1] : "";
	void (*run)(void *) = NULL;
	void *argument = NULL;

	self = argv;
	names = argv + 4;
	count = argc > 3 ? atoi(argv[2]) : 0;
	depth = argc > 3 ? atoi(argv[3]) : 0;
	if (!strcmp(mode, "deep"))
		run = deep;
	else if (!strcmp(mode, "storm"))
		run = storm;
	else if (!strcmp(mode, "rename"))
		run = renames;
	else if (!strcmp(mode, "signal"))
		run = signals;
	else if (!strcmp(mode, "sleep"))
		run = sleepers;
	else if (!strcmp(mode, "lone"))
		run = lone;
	else if (!strcmp(mode, "exec"))
		run = executes;
	else if (!strcmp(mode, "fault"))
		run = faults;
	else if (!strcmp(mode, "migrate") || !strcmp(mode, "poll") || !strcmp(mode, "long"))
		run = threads;
	else if (!strcmp(mode, "remap") && argc == 6)
		run = remaps;
#ifdef DYNAMIC
	else if (!strcmp(mode, "library") && argc == 6)
		run = libraries;
#endif
	if (!run || depth < 1) {
		fprintf(stderr, "usage: workload MODE COUNT DEPTH [FILE FILE]\n");
		return 2;
	}
	if (run == threads)
		argument = *mode == 'm' ? migrating_thread :
			   *mode == 'p' ? polling_thread : long_thread;
	enter(run, argument);
	enter(finish, NULL);
	return 1;
}

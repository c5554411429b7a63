// SPDX-License-Identifier: GPL-2.0
/*
 * The program that make demo profiles: its system calls have deep callers.
 *
 * It plays a small data base. It answers requests, and each kind of answer ends
 * in another system call, a dozen calls below main(). It is built with frame
 * pointers, and makes its system calls itself: the C library of most
 * distributions has no frame pointers, and so hides the callers of its functions.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#define CALL	__attribute__((noinline, noclone))
#define PAGES	64
#define PAGE	4096UL

struct request {
	int kind;
	long result;
};

static int zero_fd, null_fd;
/* Reading it takes longer than several samples are apart. */
static char table[4096 * PAGE];

static inline long call(long nr, long a, long b, long c, long d, long e)
{
	register long r10 asm("r10") = d;
	register long r8 asm("r8") = e;
	register long r9 asm("r9") = 0;
	long ret;

	asm volatile("syscall" : "=a" (ret)
		     : "0" (nr), "D" (a), "S" (b), "d" (c), "r" (r10), "r" (r8),
		       "r" (r9)
		     : "rcx", "r11", "memory");
	return ret;
}

/* ... and each function has something to do after the call it makes */
#define AFTER(what) do { req->result += (what); asm volatile("" ::: "memory"); } while (0)

static CALL void read_pages(struct request *req)
{
	AFTER(call(SYS_read, zero_fd, (long)table, sizeof(table), 0, 0));
}

static CALL void write_log(struct request *req)
{
	AFTER(call(SYS_write, null_fd, (long)table, 512, 0, 0));
}

static CALL void check_owner(struct request *req)
{
	AFTER(call(SYS_getppid, 0, 0, 0, 0, 0));
}

static CALL void wait_for_disk(struct request *req)
{
	struct timespec ts = { .tv_nsec = 200000 };

	AFTER(call(SYS_nanosleep, (long)&ts, 0, 0, 0, 0));
}

/* No system call: the samples are taken in page faults. */
static CALL void fill_cache(struct request *req)
{
	long map = call(SYS_mmap, 0, PAGES * PAGE, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1);
	unsigned long i;

	if (map < 0)
		exit(1);
	for (i = 0; i < PAGES; i++)
		((volatile char *)map)[i * PAGE] = 1;
	AFTER(call(SYS_munmap, map, PAGES * PAGE, 0, 0, 0));
}

static CALL void scan_table(struct request *req)
{
	switch (req->kind % 16) {
	case 0:
		wait_for_disk(req);
		break;
	case 1:
		write_log(req);
		break;
	case 2:
	case 10:
		check_owner(req);
		break;
	case 4:
	case 8:
	case 12:
		fill_cache(req);
		break;
	default:
		read_pages(req);
		break;
	}
	AFTER(1);
}

#define LEVEL(name, callee)				\
static CALL void name(struct request *req)		\
{							\
	callee(req);					\
	AFTER(1);					\
}

LEVEL(execute_plan, scan_table)
LEVEL(plan_query, execute_plan)
LEVEL(run_query, plan_query)
LEVEL(open_transaction, run_query)
LEVEL(authorise, open_transaction)
LEVEL(dispatch, authorise)
LEVEL(parse_request, dispatch)
LEVEL(handle_client, parse_request)
LEVEL(serve_clients, handle_client)

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 2;
	struct timespec start, now;
	struct request req = { 0 };

	zero_fd = open("/dev/zero", O_RDONLY);
	null_fd = open("/dev/null", O_WRONLY);
	if (zero_fd < 0 || null_fd < 0) {
		perror("/dev");
		return 1;
	}
	clock_gettime(CLOCK_MONOTONIC, &start);
	do {
		serve_clients(&req);
		req.kind++;
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec - start.tv_sec +
		 (now.tv_nsec - start.tv_nsec) / 1e9 < seconds);
	printf("demo: %d requests\n", req.kind);
	return 0;
}

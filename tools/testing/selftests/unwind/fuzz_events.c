// SPDX-License-Identifier: GPL-2.0
/*
 * A fuzzer of perf_event_open() with the bits of deferral set: fuzz_events SECONDS [SEED].
 *
 * The fuzzer runs cases. Each case is a process that opens events for targets of all
 * kinds, with random attributes, most of which make sense. Then it does anything that is
 * possible with the descriptors: map, unmap, enable, disable, redirect, pause, read, pass
 * them to another process, close, exit, exec, be killed. Its targets work, fork and die
 * meanwhile. All records of the buffers are checked.
 *
 * The seed and the number of a case determine its actions. Only the timing, and which
 * actions succeed, can be different in another run.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../kselftest.h"
#include "fuzz.h"

#define LEAF		"--leaf"
#define DEFER		"/proc/sys/kernel/perf_event_defer"
#define FUZZERS		3
#define CASE_SECONDS	180

struct totals *tot;
struct fuzz_event ev[MAX_FDS];
unsigned int nr_ev;
bool uniform, seen_deferred, seen_output;

unsigned long add(unsigned long *to, unsigned long n)
{
	return __atomic_add_fetch(to, n, __ATOMIC_RELAXED);
}

static char self_path[4096];
static __u64 seed, rnd_state;
__u64 case_seed;
unsigned int nr_cpus;
pid_t dying;

static void rnd_start(__u64 s)
{
	rnd_state = s * 0x9e3779b97f4a7c15ULL ^ 0x123456789abcdefULL;
	if (!rnd_state)
		rnd_state = 1;
}

__u64 rnd64(void)
{
	rnd_state ^= rnd_state << 13;
	rnd_state ^= rnd_state >> 7;
	rnd_state ^= rnd_state << 17;
	return rnd_state;
}

__u32 rnd(__u32 below)
{
	return (rnd64() >> 16) % below;
}

bool chance(unsigned int one_in)
{
	return !rnd(one_in);
}

static bool stop(void)
{
	return __atomic_load_n(&tot->stop, __ATOMIC_RELAXED);
}

static __u64 now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000ULL + ts.tv_nsec / 1000000;
}

static pid_t start(void (*fn)(void))
{
	pid_t parent = getpid(), pid = fork();

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(0);
		fn();
		_exit(0);
	}
	return pid;
}

/* The activity of the targets. */

long touched[8] UT_ATTRIBUTE(aligned(64));

ut_noinline void touch(void *arg)
{
	struct timespec ts = { .tv_nsec = 300000 };
	char *page;

	touched[0]++;
	getppid();
	touched[1] += touched[0];
	asm volatile("" : : : "memory");
	syscall(__NR_getuid);
	page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page != MAP_FAILED) {
		*page = 1;
		munmap(page, PAGE);
	}
	if (arg)
		nanosleep(&ts, NULL);
}

/*
 * If each system call is sampled, the return from this handler raises the next SIGTRAP. So
 * ignore the signal at last.
 */
static void trapped(int sig)
{
	static unsigned int traps;

	/* The program that an exec starts has no totals. */
	if (tot)
		add(&tot->traps, 1);
	if (++traps % 64 == 0)
		signal(SIGTRAP, SIG_IGN);
}

static void activity(int n)
{
	int i;

	signal(SIGTRAP, trapped);
	for (i = 0; i < n; i++)
		ut_ladder(i % 20, touch, i % 4 ? NULL : (void *)1);
}

static void *thread(void *arg)
{
	activity(5);
	return NULL;
}

static void victim(void)
{
	pthread_t id;
	pid_t pid;

	signal(SIGIO, SIG_IGN);
	while (!stop()) {
		activity(10);
		if (!pthread_create(&id, NULL, thread, NULL))
			pthread_join(id, NULL);
		pid = fork();
		if (!pid) {
			activity(3);
			_exit(0);
		}
		waitpid(pid, NULL, 0);
	}
}

static void dying_child(void)
{
	static char * const argv[] = { "leaf", LEAF, NULL };
	pthread_t id;

	usleep(rnd(2000));
	activity(rnd(30));
	if (chance(3) && !pthread_create(&id, NULL, thread, NULL))
		activity(2);
	if (chance(3))
		execv(self_path, argv);
	if (chance(3))
		raise(SIGKILL);
}

static void unmap(struct fuzz_event *e)
{
	if (!e->base)
		return;
	munmap(e->base, e->mapped);
	e->base = NULL;
	add(&tot->unmapped, 1);
}

static void map(struct fuzz_event *e)
{
	struct perf_event_mmap_page *page;
	size_t pages = 1UL << rnd(6);
	int prot = PROT_READ | PROT_WRITE;
	void *aux;

	if (chance(10))
		pages = rnd(20);	/* 0 and odd ones */
	if (chance(6))
		prot = PROT_READ;
	if (e->base)
		unmap(e);
	e->mapped = (pages + 1) * PAGE;
	e->base = mmap(NULL, e->mapped, prot, chance(20) ? MAP_PRIVATE : MAP_SHARED, e->fd,
		       chance(20) ? PAGE : 0);
	if (e->base == MAP_FAILED) {
		e->base = NULL;
		return;
	}
	add(&tot->mapped, 1);
	e->size = pages * PAGE;
	e->writable = prot & PROT_WRITE;
	page = (void *)e->base;
	/* Another process may have read from the buffer before. */
	e->tail = page->data_tail;
	if (chance(10) && e->writable) {
		page->aux_offset = chance(4) ? rnd64() : e->mapped;
		page->aux_size = chance(4) ? rnd64() : PAGE << rnd(4);
		aux = mmap(NULL, page->aux_size & 0xffffff, prot, MAP_SHARED, e->fd,
			   page->aux_offset);
		if (aux != MAP_FAILED)
			munmap(aux, page->aux_size & 0xffffff);
	}
	if (chance(12))
		unmap(e);
}

static void some_ioctl(struct fuzz_event *e)
{
	static const unsigned long plain[] = {
		PERF_EVENT_IOC_ENABLE, PERF_EVENT_IOC_DISABLE, PERF_EVENT_IOC_RESET,
	};
	static const char * const filters[] = {
		"common_pid != 0", "common_pid == 0", "id == 39", "nonsense", "",
	};
	struct perf_event_attr attr;
	__u32 prog_ids[4] = { 2 };
	__u64 val;
	int to;

	add(&tot->ioctls, 1);
	switch (rnd(16)) {
	case 0 ... 7:
		ioctl(e->fd, plain[rnd(3)],
		      chance(3) ? PERF_IOC_FLAG_GROUP : chance(20) ? rnd64() : 0);
		break;
	case 8:
		ioctl(e->fd, PERF_EVENT_IOC_REFRESH, rnd(10));
		break;
	case 9:
		val = chance(4) ? rnd64() : 1 + rnd(3);
		if (e->attr.freq)
			val = 1 + rnd(is_clock(&e->attr) ? CLOCK_HZ : 2000);
		else if (is_clock(&e->attr))
			val = CLOCK_NS + val % (5 * CLOCK_NS);
		ioctl(e->fd, PERF_EVENT_IOC_PERIOD, &val);
		break;
	case 10 ... 12:
		to = chance(5) ? -1 : ev[rnd(nr_ev)].fd;
		if (!ioctl(e->fd, PERF_EVENT_IOC_SET_OUTPUT, to))
			e->redirected = to >= 0;
		break;
	case 13:
		ioctl(e->fd, PERF_EVENT_IOC_PAUSE_OUTPUT, rnd(2));
		break;
	case 14:
		attr = e->attr;
		attr.bp_addr = (unsigned long)&touched[rnd(4)];
		*ut_attr_flags(&attr) ^= chance(2) ? 0 : 1ULL << rnd(40);
		ioctl(e->fd, PERF_EVENT_IOC_MODIFY_ATTRIBUTES, &attr);
		break;
	default:
		ioctl(e->fd, PERF_EVENT_IOC_ID, &val);
		ioctl(e->fd, PERF_EVENT_IOC_QUERY_BPF, prog_ids);
		ioctl(e->fd, PERF_EVENT_IOC_SET_FILTER, filters[rnd(ARRAY_SIZE(filters))]);
		break;
	}
}

/* Pass descriptors to a process that keeps them for a while. */

static int keeper_sock[2];

static void send_fd(int sock, int fd)
{
	char buf[CMSG_SPACE(sizeof(int))] = {}, byte = 'f';
	struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = buf, .msg_controllen = sizeof(buf),
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(int));
	if (sendmsg(sock, &msg, MSG_DONTWAIT) == 1)
		add(&tot->passed, 1);
}

static int recv_fd(int sock)
{
	char buf[CMSG_SPACE(sizeof(int))] = {}, byte;
	struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = buf, .msg_controllen = sizeof(buf),
	};
	struct cmsghdr *c;
	int fd;

	if (recvmsg(sock, &msg, MSG_DONTWAIT) != 1)
		return -1;
	c = CMSG_FIRSTHDR(&msg);
	if (!c || c->cmsg_len != CMSG_LEN(sizeof(int)))
		return -1;
	memcpy(&fd, CMSG_DATA(c), sizeof(int));
	return fd;
}

/* The keeper does not know the attributes of the events that it gets. */
static void keeper(void)
{
	struct fuzz_event *e;
	int fd;

	rnd_start(seed + 77);
	seen_output = true;
	seen_deferred = true;
	while (!stop()) {
		fd = recv_fd(keeper_sock[1]);
		if (fd >= 0) {
			e = &ev[rnd(MAX_FDS)];
			if (e->fd > 0) {
				unmap(e);
				close(e->fd);
			}
			memset(e, 0, sizeof(*e));
			e->fd = fd;
			nr_ev = MAX_FDS;
		}
		usleep(1000);
		if (chance(100))
			ut_write_sysctl(DEFER, !chance(8));
		e = &ev[rnd(MAX_FDS)];
		if (e->fd <= 0)
			continue;
		switch (rnd(8)) {
		case 0:
			/* The opener may read the buffer, too, so map it read-only. */
			unmap(e);
			e->mapped = 9 * PAGE;
			e->base = mmap(NULL, e->mapped, PROT_READ, MAP_SHARED, e->fd, 0);
			if (e->base == MAP_FAILED)
				e->base = NULL;
			break;
		case 1:
			unmap(e);
			close(e->fd);
			e->fd = -1;
			break;
		case 2:
			ioctl(e->fd, PERF_EVENT_IOC_DISABLE, 0);
			break;
		case 3:
			ioctl(e->fd, PERF_EVENT_IOC_ENABLE, 0);
			break;
		case 4:
			ioctl(e->fd, PERF_EVENT_IOC_SET_OUTPUT, -1);
			break;
		}
	}
}

static void read_one(struct fuzz_event *e)
{
	struct pollfd pfd = { .fd = e->fd, .events = POLLIN };
	__u64 buf[64];
	ssize_t n;

	n = read(e->fd, buf, rnd(4) ? sizeof(buf) : rnd(64));
	if (n > (ssize_t)sizeof(buf)) {
		ut_diag("read of %zd bytes, seed %llu", n, case_seed);
		add(&tot->bad, 1);
	}
	poll(&pfd, 1, 0);
}

static void forget_fd(struct fuzz_event *e)
{
	unmap(e);
	close(e->fd);
	*e = ev[--nr_ev];
}

static void some_step(void)
{
	struct fuzz_event *e;
	pid_t pid;
	int fd;

	if (!nr_ev || chance(6)) {
		open_one();
		return;
	}
	e = &ev[rnd(nr_ev)];
	switch (rnd(24)) {
	case 0 ... 5:
		some_ioctl(e);
		break;
	case 6 ... 8:
		map(e);
		break;
	case 9:
		unmap(e);
		break;
	case 10:
		read_one(e);
		break;
	case 11:
		prctl(chance(2) ? PR_TASK_PERF_EVENTS_DISABLE : PR_TASK_PERF_EVENTS_ENABLE,
		      0, 0, 0, 0);
		break;
	case 12:
		fd = dup(e->fd);
		if (fd >= 0) {
			if (chance(2))
				ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);
			close(fd);
		}
		break;
	case 13:
		send_fd(keeper_sock[0], e->fd);
		break;
	case 14:
		forget_fd(e);
		break;
	case 15:
		/* A child has the descriptors, but not the mappings. */
		pid = fork();
		if (!pid) {
			activity(rnd(4));
			some_ioctl(e);
			_exit(0);
		}
		if (chance(2))
			kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		break;
	case 16:
		if (dying > 0 && chance(3))
			kill(dying, SIGKILL);
		break;
	case 17:
		/* Redirect and enable all events, as a profiler does. */
		for (fd = 0; fd < (int)nr_ev; fd++) {
			if (fd && !ev[fd].redirected)
				ioctl(ev[fd].fd, PERF_EVENT_IOC_SET_OUTPUT, ev[0].fd);
			ioctl(ev[fd].fd, PERF_EVENT_IOC_ENABLE, 0);
		}
		activity(3);
		break;
	case 18 ... 20:
		activity(1 + rnd(6));
		break;
	default:
		drain(e);
		break;
	}
}

static void one_case(void)
{
	static char * const argv[] = { "leaf", LEAF, NULL };
	unsigned int i, n = 20 + rnd(60);
	char *const *av = argv;

	uniform = rnd(2);
	dying = start(dying_child);
	if (chance(12) && (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534)))
		return;
	for (i = 0; i < 4; i++)
		open_one();
	for (i = 0; i < nr_ev; i++)
		map(&ev[i]);
	for (i = 0; i < n; i++)
		some_step();
	for (i = 0; i < nr_ev; i++)
		drain(&ev[i]);
	add(&tot->worked, !!nr_ev);
	add(&tot->cases, 1);
	switch (rnd(4)) {
	case 0:
		execv(self_path, av);
		break;
	case 1:
		raise(SIGKILL);
		break;
	case 2:
		while (nr_ev)
			forget_fd(&ev[rnd(nr_ev)]);
		break;
	}
}

static void show_stack(pid_t pid)
{
	char path[64], line[256];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stack", pid);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		fprintf(stderr, "#   %s", line);
	if (f)
		fclose(f);
}

static unsigned int my_number;

static void fuzzer(void)
{
	unsigned int nr;
	int status;
	pid_t pid;
	__u64 end;

	prctl(PR_SET_CHILD_SUBREAPER, 1);
	for (nr = 0; !stop(); nr++) {
		/* Set it before the fork, because the child needs it, too. */
		case_seed = seed + (__u64)my_number * 1000000000 + nr;
		rnd_start(case_seed);
		pid = start(one_case);
		end = now_ms() + CASE_SECONDS * 1000;
		while (waitpid(pid, &status, WNOHANG) == 0) {
			usleep(2000);
			if (now_ms() < end)
				continue;
			ut_diag("a case does not end, seed %llu, state %c", case_seed,
				ut_task_state(pid));
			show_stack(pid);
			add(&tot->stuck, 1);
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			break;
		}
		/* SIGTRAP is no error: an exec removes the handler, but not a pending signal. */
		if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL &&
		    WTERMSIG(status) != SIGTRAP) {
			ut_diag("a case died of signal %d, seed %llu", WTERMSIG(status),
				case_seed);
			add(&tot->bad, 1);
		}
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
	}
	/* As the subreaper, wait for all that the cases have started. */
	while (waitpid(-1, NULL, 0) > 0)
		;
}

static void prepare(void)
{
	struct rlimit files = { .rlim_cur = 4096, .rlim_max = 4096 };
	int cpus[UT_MAX_CPUS];

	setrlimit(RLIMIT_NOFILE, &files);
	tot = ut_shared(sizeof(*tot));
	if (!tot || readlink("/proc/self/exe", self_path, sizeof(self_path) - 1) <= 0)
		ksft_exit_fail_msg("no shared memory, or no /proc\n");
	nr_cpus = ut_online_cpus(cpus, UT_MAX_CPUS);
	find_tracepoints();
	check_with(ut_task_size());
}

/* Were there deferred samples, records, and addresses? */
static bool seen_all(void)
{
	return UT_READ(tot->deferred) && UT_READ(tot->chains) && UT_READ(tot->addresses);
}

int main(int argc, char **argv)
{
	pid_t pids[FUZZERS + VICTIMS + 1];
	int i, nr = 0, left = 0, seconds = 10;
	__u64 end, last;

	if (argc > 1 && !strcmp(argv[1], LEAF)) {
		activity(2);
		return 0;
	}
	ksft_print_header();
	if (geteuid())
		ksft_exit_skip("needs root: perf events on tracepoints and on all CPUs\n");
	if (argc > 1)
		seconds = atoi(argv[1]);
	seed = argc > 2 ? strtoull(argv[2], NULL, 0) : (__u64)time(NULL) << 20 ^ getpid();
	if (seconds <= 0 || argc > 3)
		ksft_exit_fail_msg("usage: fuzz_events [SECONDS [SEED]]\n");
	ksft_set_plan(4);
	signal(SIGTRAP, trapped);
	ksft_print_msg("seed %llu\n", seed);
	prepare();

	/* Only the fuzzers and the keeper may have the sockets, so close them on exec. */
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, keeper_sock))
		ksft_exit_fail_msg("socketpair\n");
	for (i = 0; i < VICTIMS; i++) {
		tot->victim[i] = start(victim);
		pids[nr++] = tot->victim[i];
	}
	pids[nr++] = start(keeper);
	for (my_number = 0; my_number < FUZZERS; my_number++)
		pids[nr++] = start(fuzzer);
	close(keeper_sock[1]);

	end = now_ms() + seconds * 1000ULL;
	/* On a slow kernel, run longer until all kinds of records were seen. */
	last = end + 240 * 1000ULL;
	while (now_ms() < end || (!seen_all() && now_ms() < last))
		usleep(50000);
	tot->stop = 1;
	ut_write_sysctl(DEFER, 1);
	end = now_ms() + (CASE_SECONDS + 10) * 1000;
	for (i = 0; i < nr; i++) {
		while (waitpid(pids[i], NULL, WNOHANG) == 0) {
			usleep(10000);
			if (now_ms() < end)
				continue;
			ut_diag("process %d does not end", i);
			show_stack(pids[i]);
			kill(pids[i], SIGKILL);
			left++;
			break;
		}
	}

	ksft_print_msg("%lu cases, %lu with events\n", tot->cases, tot->worked);
	ksft_print_msg("%lu events opened, %lu refused, %lu passed on\n", tot->opened,
		       tot->refused, tot->passed);
	ksft_print_msg("%lu mapped, %lu unmapped, %lu ioctls\n", tot->mapped, tot->unmapped,
		       tot->ioctls);
	ksft_print_msg("%lu records, %lu samples, %lu lost\n", tot->records, tot->samples,
		       tot->lost);
	ksft_print_msg("%lu signals of samples\n", tot->traps);
	ksft_print_msg("%lu known to be deferred, %lu deferred callchains of %lu addresses\n",
		       tot->deferred, tot->chains, tot->addresses);
	ksft_test_result(!left && !tot->stuck, "everything ends by itself\n");
	ksft_test_result(tot->cases && tot->opened && tot->mapped, "events were opened\n");
	ksft_test_result(seen_all(), "samples were deferred, and their callchains came\n");
	ksft_test_result(!tot->bad, "every record was right\n");
	ksft_exit(!ksft_get_fail_cnt());
}

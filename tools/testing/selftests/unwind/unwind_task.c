// SPDX-License-Identifier: GPL-2.0
/* Child processes and their states, and facts about the system. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../kselftest.h"
#include "unwind_test.h"

int ut_out = -1;

void ut_need_root(void)
{
	if (geteuid())
		ksft_exit_skip("needs root: perf events on tracepoints and on all CPUs\n");
}

long ut_hz(void)
{
	struct timespec res;

	/* This clock advances with the tick. */
	clock_getres(CLOCK_MONOTONIC_COARSE, &res);
	return 1000000000 / res.tv_nsec;
}

long ut_sleeps(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nvcsw;
}

int ut_fifo(void)
{
	struct sched_param param = { .sched_priority = 1 };

	return sched_setscheduler(0, SCHED_FIFO, &param);
}

int ut_pin(pid_t pid, int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return sched_setaffinity(pid, sizeof(set), &set);
}

void ut_preempt(void *arg)
{
	const struct ut_preemptor *p = arg;
	struct timespec ts = { .tv_nsec = p->pause_us * 1000 };

	if (ut_pin(0, p->cpu) || ut_fifo())
		_exit(99);
	for (;;)
		nanosleep(&ts, NULL);
}

int ut_set_online(int cpu, bool on)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/online", cpu);
	return ut_write_sysctl(path, on);
}

unsigned int ut_all_online(int *cpus, unsigned int max)
{
	int cpu;

	for (cpu = 1; cpu < UT_MAX_CPUS; cpu++)
		ut_set_online(cpu, true);
	return ut_online_cpus(cpus, max);
}

int ut_read_all(int fd, void *buf, size_t size)
{
	size_t done = 0;
	ssize_t n;

	while (done < size) {
		n = read(fd, (char *)buf + done, size - done);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			ut_diag("read: %s", n ? strerror(errno) : "end of file");
			return -1;
		}
		done += n;
	}
	return 0;
}

int ut_write_all(int fd, const void *buf, size_t size)
{
	return write(fd, buf, size) == (ssize_t)size ? 0 : -1;
}

bool ut_has_32bit(void)
{
	int status, pid = fork();

	if (!pid) {
		long ret = 20;	/* getpid() of the i386 */

		/* Without 32-bit system calls this raises SIGSEGV. */
		asm volatile("int $0x80" : "+a" (ret) : : "memory", "r8", "r9", "r10", "r11");
		_exit(ret != getpid());
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
	       !WEXITSTATUS(status);
}

pid_t ut_start_32(int *in, int *out)
{
	char path[PATH_MAX], self_path[PATH_MAX] = "";
	int to[2], from[2];
	char byte = 0;
	pid_t pid;

	if (readlink("/proc/self/exe", self_path, sizeof(self_path) - 1) < 0)
		return -1;
	snprintf(path, sizeof(path), "%.*s/compat_32", (int)sizeof(path) - 16,
		 dirname(self_path));
	if (access(path, X_OK)) {
		ut_diag("%s: %s; needs gcc -m32 or the package gcc-i686-linux-gnu to build", path,
			strerror(errno));
		return -1;
	}
	if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC))
		return -1;
	pid = fork();
	if (!pid) {
		dup2(to[0], 0);
		dup2(from[1], 1);
		execl(path, "compat_32", NULL);
		_exit(127);
	}
	close(to[0]);
	close(from[1]);
	*in = to[1];
	*out = from[0];
	return pid < 0 || ut_read_all(*out, &byte, 1) || byte != 'r' ? -1 : pid;
}

int ut_fork(struct ut_child *c, ut_fn fn, void *arg)
{
	int go[2], out[2];
	pid_t pid;
	char byte;

	if (pipe2(go, O_CLOEXEC) || pipe2(out, O_CLOEXEC))
		return -1;
	/* Room for more than one struct ut_stack, so the child never waits for the reader. */
	fcntl(out[1], F_SETPIPE_SZ, 1 << 18);
	/* The child may share *c, so only the parent writes to it. */
	pid = fork();
	if (pid < 0)
		return -1;
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(go[1]);
		close(out[0]);
		ut_out = out[1];
		if (read(go[0], &byte, 1) == 1)
			fn(arg);
		_exit(0);
	}
	close(go[0]);
	close(out[1]);
	c->pid = pid;
	c->go = go[1];
	c->out = out[0];
	/* The child waits now, so its start is not among the samples. */
	return ut_wait_state(pid, "S") ? 0 : -1;
}

int ut_watch(struct ut_session *s, const struct ut_opts *opts, struct ut_child *c, ut_fn fn,
	     void *arg)
{
	struct ut_opts of_child = *opts;

	if (ut_fork(c, fn, arg))
		return -1;
	if (!of_child.pid)
		of_child.pid = c->pid;
	return ut_open(s, &of_child);
}

int ut_go(struct ut_child *c)
{
	return ut_write_all(c->go, "g", 1);
}

int ut_start(struct ut_session *s, struct ut_child *c)
{
	return ut_enable(s) || ut_go(c) ? -1 : 0;
}

int ut_wait(struct ut_child *c)
{
	int status;

	if (waitpid(c->pid, &status, 0) != c->pid)
		status = -1;
	close(c->go);
	close(c->out);
	c->go = -1;
	return status;
}

void ut_end_child(struct ut_child *c)
{
	if (c->go <= 0)
		return;
	kill(c->pid, SIGKILL);
	ut_wait(c);
}

static void target_calls(void *arg)
{
	struct ut_target *t = arg;

	ut_syscall0(&t->ppid, __NR_getppid);
	ut_syscall0(&t->uid, __NR_getuid);
}

static void target(void *arg)
{
	struct ut_target *t = arg;

	for (;;) {
		while (t->done == t->rounds)
			usleep(1000);
		ut_ladder(5, target_calls, t);
		t->done++;
	}
}

struct ut_target *ut_start_target(struct ut_child *c)
{
	struct ut_target *t = ut_shared(sizeof(*t));

	if (!t || ut_fork(c, target, t))
		return NULL;
	t->pid = c->pid;
	return ut_go(c) ? NULL : t;
}

void ut_round(struct ut_target *t)
{
	int want = t->done + 1;

	t->rounds++;
	while (t->done != want)
		usleep(1000);
}

int ut_wait_gone(struct ut_child *c)
{
	siginfo_t info = {};
	int i;

	for (i = 0; i < 1000 && !info.si_pid; i++) {
		if (waitid(P_PID, c->pid, &info, WEXITED | WNOHANG | WNOWAIT))
			return -1;
		if (!info.si_pid)
			usleep(10000);
	}
	return info.si_pid ? ut_wait(c) : -1;
}

int ut_profile_child(struct ut_session *s, struct ut_child *c)
{
	int status;

	if (ut_start(s, c))
		return -1;
	status = ut_wait(c);
	return ut_stop(s) ? -1 : status;
}

int ut_task_state(pid_t tid)
{
	char path[64], buf[512], *p;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	n = read(fd, buf, sizeof(buf) - 1);
	close(fd);
	if (n <= 0)
		return -1;
	buf[n] = 0;
	p = strrchr(buf, ')');
	return p && p[1] ? p[2] : -1;
}

/*
 * Has the task been switched out? Its state changes some time before that. Its system call
 * can be read only after the switch.
 */
static bool off_cpu(pid_t tid)
{
	char path[64], buf[16] = "";
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/syscall", tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return true;
	if (read(fd, buf, sizeof(buf) - 1) < 0)
		buf[0] = 0;
	close(fd);
	return strncmp(buf, "running", 7);
}

bool ut_wait_state(pid_t tid, const char *states)
{
	int i, state = 0;

	for (i = 0; i < 2000; i++) {
		state = ut_task_state(tid);
		if (state > 0 && strchr(states, state) &&
		    (!strchr("SDTt", state) || off_cpu(tid)))
			return true;
		usleep(5000);
	}
	ut_diag("task %d is in state %c, wanted one of %s", tid, state, states);
	return false;
}

static pid_t find_thread(const char *prefix)
{
	DIR *dir = opendir("/proc/self/task");
	char path[64], comm[32];
	struct dirent *d;
	pid_t tid, found = 0;
	FILE *f;

	while (dir && (d = readdir(dir))) {
		tid = atoi(d->d_name);
		snprintf(path, sizeof(path), "/proc/self/task/%d/comm", tid);
		f = fopen(path, "r");
		if (f && fgets(comm, sizeof(comm), f) && !strncmp(comm, prefix, strlen(prefix)))
			found = tid;
		if (f)
			fclose(f);
	}
	if (dir)
		closedir(dir);
	return found;
}

bool ut_wait_asleep(pid_t tid, const struct ut_stack *st)
{
	while (!UT_READ(st->nr))
		usleep(1000);
	return ut_wait_state(tid, "S");
}

pid_t ut_thread_named(const char *prefix)
{
	pid_t found;
	int i;

	for (i = 0; i < 10000; i++) {
		found = find_thread(prefix);
		if (found)
			return found;
		usleep(1000);
	}
	return 0;
}

int ut_cgroup(struct ut_cgroup *f, pid_t pid)
{
	char path[128];

	snprintf(f->root, sizeof(f->root), "/tmp/unwind_cgroup.XXXXXX");
	if (!mkdtemp(f->root) || mount("none", f->root, "cgroup2", 0, NULL)) {
		ut_diag("%s: %s", f->root, strerror(errno));
		return -1;
	}
	snprintf(f->group, sizeof(f->group), "%s/unwind_test", f->root);
	snprintf(path, sizeof(path), "%s/cgroup.procs", f->group);
	if (mkdir(f->group, 0755) || ut_write_sysctl(path, pid)) {
		ut_diag("%s: %s", f->group, strerror(errno));
		return -1;
	}
	return 0;
}

int ut_freeze(struct ut_cgroup *f, bool freeze)
{
	bool frozen = false;
	char path[128], line[64];
	int i;

	snprintf(path, sizeof(path), "%s/cgroup.freeze", f->group);
	if (ut_write_sysctl(path, freeze))
		return -1;
	snprintf(path, sizeof(path), "%s/cgroup.events", f->group);
	for (i = 0; freeze && i < 1000 && !frozen; i++) {
		FILE *events = fopen(path, "r");

		while (events && fgets(line, sizeof(line), events))
			frozen |= !strcmp(line, "frozen 1\n");
		if (events)
			fclose(events);
		usleep(5000);
	}
	return frozen == freeze ? 0 : -1;
}

int ut_cgroup_cpu(struct ut_cgroup *f, int cpu)
{
	char path[128];
	int fd, err;

	snprintf(path, sizeof(path), "%s/cgroup.subtree_control", f->root);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	err = ut_write_all(fd, "+cpuset", 7);
	close(fd);
	snprintf(path, sizeof(path), "%s/cpuset.cpus", f->group);
	if (!err && !ut_write_sysctl(path, cpu))
		return 0;
	ut_diag("%s: %s; CONFIG_CPUSETS?", path, strerror(errno));
	return -1;
}

void ut_cgroup_end(struct ut_cgroup *f)
{
	rmdir(f->group);
	umount2(f->root, MNT_DETACH);
	rmdir(f->root);
}

int ut_read_sysctl(const char *path, long *val)
{
	FILE *f = fopen(path, "r");
	int ok = f && fscanf(f, "%ld", val) == 1;

	if (f)
		fclose(f);
	return ok ? 0 : -1;
}

int ut_write_sysctl(const char *path, long val)
{
	char buf[32];
	int fd = open(path, O_WRONLY | O_CLOEXEC), len, err;

	if (fd < 0)
		return -1;
	len = snprintf(buf, sizeof(buf), "%ld", val);
	err = write(fd, buf, len) == len ? 0 : -1;
	close(fd);
	return err;
}

static int find_function(const char *name, size_t len, __u64 *start, __u64 *end)
{
	unsigned long long addr, first = 0;
	char type, sym[512], line[1024];
	FILE *f;

	*start = 0;
	*end = 0;
	f = fopen("/proc/kallsyms", "r");
	if (!f)
		return -1;
	/* The kernel's own functions are sorted by address; those of modules are not. */
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%llx %c %511s", &addr, &type, sym) != 3)
			continue;
		if (first && addr > first && addr - first > *end - *start) {
			*start = first;
			*end = addr;
		}
		if (addr != first)
			first = 0;
		if ((type == 't' || type == 'T') && !strncmp(sym, name, len))
			first = addr;
	}
	fclose(f);
	return *start ? 0 : -1;
}

int ut_kallsyms(const char *prefix, __u64 *start, __u64 *end)
{
	return find_function(prefix, strlen(prefix), start, end);
}

int ut_kernel_function(const char *name, __u64 *start, __u64 *end)
{
	return find_function(name, strlen(name) + 1, start, end);
}

__u64 ut_file_offset(const void *func, char *path)
{
	unsigned long start, end, off, addr = (unsigned long)func;
	char line[PATH_MAX + 256];
	__u64 offset = 0;
	FILE *f = fopen("/proc/self/maps", "r");

	while (f && !offset && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx %*s %lx %*s %*s %4095s", &start, &end, &off,
			   path) == 4 && addr >= start && addr < end)
			offset = addr - start + off;
	}
	if (f)
		fclose(f);
	return offset;
}

bool ut_kernel_checks_itself(void)
{
	__u64 start, end;

	return !ut_kallsyms("kasan_report", &start, &end) || !ut_kallsyms("kcsan_", &start, &end);
}

unsigned long ut_task_size(void)
{
	static unsigned long size;
	char line[8192];
	FILE *f;

	if (size)
		return size;
	size = (1UL << 47) - 4096;
	f = fopen("/proc/cpuinfo", "r");
	while (f && fgets(line, sizeof(line), f)) {
		/* The kernel shows the flag only if it uses five levels. */
		if (!strncmp(line, "flags", 5) && strstr(line, " la57"))
			size = (1UL << 56) - 4096;
	}
	if (f)
		fclose(f);
	return size;
}

__u64 ut_seed;

__u64 ut_rnd(void)
{
	ut_seed ^= ut_seed << 13;
	ut_seed ^= ut_seed >> 7;
	ut_seed ^= ut_seed << 17;
	return ut_seed;
}

void *ut_shared(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

// SPDX-License-Identifier: GPL-2.0
/*
 * The guest's first and only system process. It makes its root of the host's,
 * shared over 9p, runs one command there and tells the runner (qemu/run) the
 * status of the command.
 *
 * The runner puts two files into the initramfs: /conf (one word and its value a
 * line) and /cmd (a shell script).
 *
 * The command's output goes through a pipe to a virtio port of its own, so
 * that it is not mixed with the kernel's messages and arrives byte for byte.
 * The pipe is there because a port can be opened once only, while programs
 * expect to be able to open /dev/stdout. The last line on the port is the
 * token that the runner chose and the exit status; the runner answers with a
 * byte, which is when all output has arrived and the guest may power off.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#define PORT		"/dev/vport0p1"
#define CONSOLE		"/dev/hvc0"
#define OPT_9P		"trans=virtio,version=9p2000.L,msize=512000"
#define MAX_SHARES	16
#define MAX_ENV		64

struct share {
	char *tag;
	char *path;
	bool writable;
};

static struct share shares[MAX_SHARES];
static int nr_shares;
static char *env[MAX_ENV];
static int nr_env;
static char *token = "";
static char *cwd = "/";
static bool host_root, hotplug, interactive;
static unsigned short rows, cols;
static int port = -1;

/* QEMU ends where a machine boots again, as the runner has -no-reboot. */
static void power_off(void)
{
	sync();
	reboot(RB_AUTOBOOT);
	for (;;)
		pause();
}

static void write_all(int fd, const char *buf, size_t len)
{
	while (len) {
		ssize_t n = write(fd, buf, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return;
		buf += n;
		len -= n;
	}
}

/* Writes to the kernel log, which is the console, and ends without a status. */
static void __attribute__((noreturn, format(printf, 1, 2)))
die(const char *fmt, ...)
{
	int saved = errno;
	char buf[512];
	va_list ap;
	int len, fd;

	len = snprintf(buf, sizeof(buf), "<3>init: ");
	va_start(ap, fmt);
	len += vsnprintf(buf + len, sizeof(buf) - len, fmt, ap);
	va_end(ap);
	if (len < (int)sizeof(buf))
		snprintf(buf + len, sizeof(buf) - len, ": %s", strerror(saved));
	fd = open("/dev/kmsg", O_WRONLY);
	write_all(fd < 0 ? STDERR_FILENO : fd, buf, strlen(buf));
	power_off();
	_exit(1);
}

static char *read_file(const char *path)
{
	size_t size = 0, room = 4096;
	char *buf = malloc(room);
	int fd = open(path, O_RDONLY);

	if (fd < 0 || !buf)
		die("%s", path);
	for (;;) {
		ssize_t n = read(fd, buf + size, room - size - 1);

		if (n < 0)
			die("%s", path);
		if (!n)
			break;
		size += n;
		if (size + 1 == room) {
			room *= 2;
			buf = realloc(buf, room);
			if (!buf)
				die("%s", path);
		}
	}
	close(fd);
	buf[size] = '\0';
	return buf;
}

static void read_conf(void)
{
	char *next = read_file("/conf"), *line;

	while ((line = strsep(&next, "\n"))) {
		char *key = strsep(&line, " ");

		if (!*key)
			continue;
		if (!strcmp(key, "interactive")) {
			interactive = true;
		} else if (!strcmp(key, "hostroot")) {
			host_root = true;
		} else if (!strcmp(key, "hotplug")) {
			hotplug = true;
		} else if (!line) {
			die("/conf: %s: no value", key);
		} else if (!strcmp(key, "token")) {
			token = line;
		} else if (!strcmp(key, "cwd")) {
			cwd = line;
		} else if (!strcmp(key, "winsize")) {
			sscanf(line, "%hu %hu", &rows, &cols);
		} else if (!strcmp(key, "env") && nr_env < MAX_ENV - 1) {
			env[nr_env++] = line;
		} else if ((!strcmp(key, "ro") || !strcmp(key, "rw")) &&
			   nr_shares < MAX_SHARES) {
			struct share *share = &shares[nr_shares++];

			share->writable = key[1] == 'w';
			share->tag = strsep(&line, " ");
			share->path = line;
		} else {
			die("/conf: %s %s", key, line);
		}
	}
}

static void make_dirs(const char *path)
{
	char *copy = strdup(path), *p = copy;

	if (!copy)
		die("%s", path);
	while ((p = strchr(p + 1, '/'))) {
		*p = '\0';
		mkdir(copy, 0755);
		*p = '/';
	}
	if (mkdir(copy, 0755) && errno != EEXIST && errno != EROFS)
		die("mkdir %s", path);
	free(copy);
}

static void do_mount(const char *what, const char *where, const char *type,
		     unsigned long flags, const char *opts)
{
	if (mount(what, where, type, flags, opts))
		die("mount %s on %s", what, where);
}

/* File systems that a kernel may have been built without. */
static void try_mount(const char *what, const char *where, const char *type)
{
	if (mount(what, where, type, 0, NULL) && errno != ENODEV &&
	    errno != ENOENT)
		die("mount %s on %s", what, where);
}

static void make_root(void)
{
	const char *root = host_root ? "/host" : "";
	char path[4096];
	int i;

	if (host_root) {
		mkdir("/host", 0755);
		do_mount("root", root, "9p", MS_RDONLY, OPT_9P ",cache=loose");
		do_mount("dev", "/host/dev", "devtmpfs", 0, NULL);
		/* not a chroot() alone: a container's paths would begin with /host */
		if (chdir("/host") || mount(".", "/", NULL, MS_MOVE, NULL) ||
		    chroot(".") || chdir("/"))
			die("root");
		do_mount("tmp", "/tmp", "tmpfs", 0, "mode=1777");
		do_mount("run", "/run", "tmpfs", 0, "mode=755");
		if (!access("/var/tmp", F_OK))
			do_mount("vartmp", "/var/tmp", "tmpfs", 0, "mode=1777");
	} else {
		mkdir("/tmp", 01777);
		mkdir("/run", 0755);
		mkdir("/proc", 0555);
		mkdir("/sys", 0555);
	}
	do_mount("proc", "/proc", "proc", 0, NULL);
	do_mount("sys", "/sys", "sysfs", 0, NULL);
	mkdir("/dev/pts", 0755);
	try_mount("devpts", "/dev/pts", "devpts");
	mkdir("/dev/shm", 01777);
	do_mount("shm", "/dev/shm", "tmpfs", 0, "mode=1777");
	mkdir("/dev/mqueue", 01777);
	try_mount("mqueue", "/dev/mqueue", "mqueue");
	try_mount("debug", "/sys/kernel/debug", "debugfs");
	try_mount("trace", "/sys/kernel/tracing", "tracefs");
	try_mount("cgroup", "/sys/fs/cgroup", "cgroup2");
	if (symlink("/proc/self/fd", "/dev/fd") ||
	    symlink("/proc/self/fd/0", "/dev/stdin") ||
	    symlink("/proc/self/fd/1", "/dev/stdout") ||
	    symlink("/proc/self/fd/2", "/dev/stderr"))
		die("symlink");

	for (i = 0; i < nr_shares; i++) {
		struct share *share = &shares[i];

		make_dirs(share->path);
		snprintf(path, sizeof(path), "%s,cache=%s", OPT_9P,
			 share->writable ? "mmap" : "loose");
		do_mount(share->tag, share->path, "9p",
			 share->writable ? 0 : MS_RDONLY, path);
	}
}

/*
 * Stops the deadline servers of fair tasks (deadline.c), which nothing here needs. If
 * fair tasks had to wait for a second, as on a host that is short of CPUs, the server
 * of 6.12 miscounts when its CPU goes offline: sched_cpu_dying() counts it as a task
 * that is left, and its bandwidth underflows. Both warn.
 *
 * A server stops by itself when its CPU has been idle for a while. Stopping it again
 * would take its bandwidth away twice and warn, too (sched_fair_server_write() does
 * not check). So this runs on the CPU of the server, which then is not idle.
 */
static void no_fair_server(void)
{
	cpu_set_t all, own;
	char path[128];
	int cpu, fd;

	if (sched_getaffinity(0, sizeof(all), &all))
		die("sched_getaffinity");

	for (cpu = 0; cpu < 64; cpu++) {
		snprintf(path, sizeof(path),
			 "/sys/kernel/debug/sched/fair_server/cpu%d/runtime", cpu);
		fd = open(path, O_WRONLY | O_CLOEXEC);
		if (fd < 0)
			break;
		CPU_ZERO(&own);
		CPU_SET(cpu, &own);
		if (sched_setaffinity(0, sizeof(own), &own) || write(fd, "0", 1) != 1)
			die("%s", path);
		close(fd);
	}
	if (sched_setaffinity(0, sizeof(all), &all))
		die("sched_setaffinity");
}

static void network_up(void)
{
	struct ifreq ifr = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return;
	if (ioctl(fd, SIOCSIFFLAGS, &ifr))
		die("lo");
	close(fd);
}

static void open_port(void)
{
	int tries;

	/* the ports are announced to the driver by messages from the host */
	for (tries = 0; tries < 500; tries++) {
		port = open(PORT, O_RDWR | O_CLOEXEC);
		if (port >= 0 || (errno != ENOENT && errno != ENXIO))
			break;
		usleep(10000);
	}
	if (port < 0)
		die("%s", PORT);
}

static void open_console(void)
{
	struct winsize ws = { .ws_row = rows, .ws_col = cols };
	int fd;

	setsid();
	fd = open(CONSOLE, O_RDWR);
	if (fd < 0)
		_exit(127);
	ioctl(fd, TIOCSCTTY, 0);
	ioctl(fd, TIOCSWINSZ, &ws);
	dup2(fd, STDIN_FILENO);
	dup2(fd, STDOUT_FILENO);
	dup2(fd, STDERR_FILENO);
	if (fd > STDERR_FILENO)
		close(fd);
}

static pid_t start(char *script, int out)
{
	sigset_t none;
	pid_t pid;

	pid = fork();
	if (pid < 0)
		die("fork");
	if (pid)
		return pid;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (chdir(cwd) && chdir("/"))
		_exit(127);
	if (interactive) {
		open_console();
		if (host_root)
			execle("/bin/bash", "-sh", "--norc", "--noprofile",
			       NULL, env);
		execle("/bin/sh", "-sh", NULL, env);
	} else {
		int null = open("/dev/null", O_RDONLY);

		setsid();
		dup2(null, STDIN_FILENO);
		dup2(out, STDOUT_FILENO);
		dup2(out, STDERR_FILENO);
		execle("/bin/sh", "sh", "-c", script, NULL, env);
	}
	_exit(127);
}

/* Moves what is in the pipe to the port; false at its end, or when empty. */
static bool pump(int from)
{
	static char buf[65536];
	ssize_t n = read(from, buf, sizeof(buf));

	if (n <= 0)
		return n < 0 && errno == EINTR;
	write_all(port, buf, n);
	return true;
}

/* Runs the command to its end, and reaps orphans meanwhile. */
static int run(char *script)
{
	int pipefd[2], sigfd, status = 0;
	bool ended = false;
	sigset_t set;
	pid_t main_pid;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	if (sigprocmask(SIG_BLOCK, &set, NULL))
		die("sigprocmask");
	sigfd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (sigfd < 0 || pipe2(pipefd, O_CLOEXEC))
		die("signalfd, pipe");
	if (fcntl(pipefd[0], F_SETFL, O_NONBLOCK))
		die("fcntl");

	main_pid = start(script, pipefd[1]);
	while (!ended) {
		struct pollfd fds[2] = {
			{ .fd = pipefd[0], .events = POLLIN },
			{ .fd = sigfd, .events = POLLIN },
		};
		struct signalfd_siginfo info;
		int wstatus;
		pid_t pid;

		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			die("poll");
		if (fds[0].revents)
			pump(pipefd[0]);
		if (!fds[1].revents)
			continue;
		while (read(sigfd, &info, sizeof(info)) > 0)
			;
		while ((pid = waitpid(-1, &wstatus, WNOHANG)) > 0) {
			if (pid != main_pid)
				continue;
			ended = true;
			status = WIFEXITED(wstatus) ? WEXITSTATUS(wstatus) :
						      128 + WTERMSIG(wstatus);
		}
	}
	while (pump(pipefd[0]))
		;
	return status;
}

int main(void)
{
	char line[256], byte;
	char *script;
	int status, i;

	mkdir("/dev", 0755);
	/* the kernel mounts it by itself only where there is no initramfs */
	do_mount("dev", "/dev", "devtmpfs", 0, NULL);
	read_conf();
	script = read_file("/cmd");
	make_root();
	if (hotplug)
		no_fair_server();
	network_up();
	open_port();
	sethostname("guest", 5);

	status = run(script);

	/* processes that the command left must end before the file systems go */
	kill(-1, SIGKILL);
	while (wait(NULL) > 0)
		;
	if (chdir("/"))
		die("chdir");
	for (i = 0; i < nr_shares; i++)
		if (shares[i].writable && umount(shares[i].path))
			die("umount %s", shares[i].path);
	sync();
	snprintf(line, sizeof(line), "\n%s %d\n", token, status);
	write_all(port, line, strlen(line));
	if (read(port, &byte, 1) != 1)
		die("no answer on %s", PORT);
	power_off();
	return 0;
}

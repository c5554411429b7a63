// SPDX-License-Identifier: GPL-2.0
/*
 * K18: a session belongs to the process that opens the events, with all its threads and
 * images. This does not change when another process gets the descriptors.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

#define NEW_IMAGE	"--new-image"
#define NEW_PROFILER	"--new-profiler"

FIXTURE(openers) {
	struct ut_target *t;
	struct ut_child tc;
};

FIXTURE_SETUP(openers)
{
	self->t = ut_start_target(&self->tc);
	ASSERT_NE(NULL, self->t);
}

FIXTURE_TEARDOWN(openers)
{
	ut_end_child(&self->tc);
}

/* Pass descriptors to another process, which reads them when the opener is dead. */
static int send_fds(int sock, int *fds, int nr)
{
	char buf[CMSG_SPACE(4 * sizeof(int))] = {}, byte = 'f';
	struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = buf, .msg_controllen = CMSG_SPACE(nr * sizeof(int)),
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(nr * sizeof(int));
	memcpy(CMSG_DATA(c), fds, nr * sizeof(int));
	return sendmsg(sock, &msg, 0) == 1 ? 0 : -1;
}

static int recv_fds(int sock, int *fds, int nr)
{
	char buf[CMSG_SPACE(4 * sizeof(int))] = {}, byte;
	struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = buf, .msg_controllen = sizeof(buf),
	};
	struct cmsghdr *c;

	if (recvmsg(sock, &msg, 0) != 1)
		return -1;
	c = CMSG_FIRSTHDR(&msg);
	if (!c || c->cmsg_len != CMSG_LEN(nr * sizeof(int)))
		return -1;
	memcpy(fds, CMSG_DATA(c), nr * sizeof(int));
	return 0;
}

struct opener {
	pid_t	pid;
	int	sock;
	__u64	id;
};

static void open_and_send(void *arg)
{
	struct opener *o = arg;
	struct ut_opts opts = { .pid = o->pid };
	struct ut_session s;
	int fds[2];

	if (ut_open(&s, &opts) || ut_add_tracepoint(&s, "syscalls", "sys_enter_getppid") < 0)
		return;
	fds[0] = s.ring[0].fd;
	fds[1] = s.event[0].fd[0];
	o->id = s.event[0].id[0];
	send_fds(o->sock, fds, 2);
}

TEST_F(openers, opener_is_gone)
{
	struct opener *o = ut_shared(sizeof(*o));
	struct ut_session s = { .nr_rings = 1, .nr_events = 1 };
	struct ut_child c;
	int sock[2], fds[2];

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, sock));
	o->pid = self->t->pid;
	o->sock = sock[1];
	ASSERT_EQ(0, ut_fork(&c, open_and_send, o));
	ASSERT_EQ(0, ut_go(&c));
	ASSERT_EQ(0, recv_fds(sock[0], fds, 2));
	ASSERT_EQ(0, ut_wait(&c));

	s.opts.sample_type = UT_SAMPLE_TYPE;
	ASSERT_EQ(0, ut_ring_map(&s.ring[0], fds[0], 128));
	/* The opener's mapping is gone, so the redirection to it is gone, too. */
	ASSERT_EQ(0, ioctl(fds[1], PERF_EVENT_IOC_SET_OUTPUT, fds[0]));
	s.ring[0].cpu = -1;
	s.event[0].fd[0] = fds[1];
	s.event[0].id[0] = o->id;
	ASSERT_EQ(0, ut_enable(&s));
	ut_round(self->t);
	ASSERT_EQ(0, ut_stop(&s));
	EXPECT_TRUE(ut_stack_is(&s, ut_sample(&s, 0, self->t->pid, 0), &self->t->ppid));
	EXPECT_EQ(0, ut_check(&s, 0));
	ut_close(&s);
}

/*
 * A profiler executes itself, and keeps its session. Samples of an event from before the
 * exec have records in an output event from after it, and the other way round.
 */
struct reborn {
	pid_t	pid;
	int	to[2], from[2];
	bool	output_first;
};

static void open_and_exec(void *arg)
{
	struct reborn *n = arg;
	struct ut_opts opts = { .pid = n->pid, .no_output = !n->output_first };
	struct ut_session s;
	char words[128];
	int i;

	if (ut_open(&s, &opts) || ut_add_tracepoint(&s, "syscalls", "sys_enter_getppid") < 0)
		_exit(100);
	const int fds[] = { n->to[0], n->from[1], s.ring[0].fd, s.event[0].fd[0] };

	for (i = 0; i < 4; i++)
		fcntl(fds[i], F_SETFD, 0);
	snprintf(words, sizeof(words), "%d %d %d %d %d %d %llu", n->pid, n->output_first,
		 fds[0], fds[1], fds[2], fds[3], s.event[0].id[0]);
	execl("/proc/self/exe", "new", NEW_PROFILER, words, NULL);
	_exit(101);
}

/* The exit status is the result of the test. */
static int reborn(const char *words)
{
	struct ut_session s = { .nr_rings = 1 };
	struct ut_opts opts = {};
	int to, from, first, e;
	struct ut_stack got;
	char byte = 'r';

	s.opts.sample_type = UT_SAMPLE_TYPE;
	s.ring[0].cpu = -1;
	if (sscanf(words, "%d %d %d %d %d %d %llu", &opts.pid, &first, &to, &from,
		   &s.ring[0].fd, &s.event[0].fd[0], &s.event[0].id[0]) != 7)
		return 102;
	s.opts.pid = opts.pid;
	if (first ? ut_ring_map(&s.ring[0], s.ring[0].fd, 128) : 0)
		return 103;
	if (!first) {
		struct ut_session_event before = s.event[0];

		if (ut_open(&s, &opts))
			return 104;
		s.event[0] = before;
	}
	s.nr_events = 1;
	/* The mapping is gone with the old image, so the redirection to it is gone, too. */
	if (ioctl(s.event[0].fd[0], PERF_EVENT_IOC_SET_OUTPUT, s.ring[0].fd) ||
	    ut_add_tracepoint(&s, "syscalls", "sys_enter_getuid") != 1 || ut_enable(&s) ||
	    ut_write_all(from, &byte, 1) || ut_read_all(to, &byte, 1) || ut_stop(&s))
		return 105;
	for (e = 0; e < 2; e++) {
		/* ut_syscall(), its caller, the rungs, and the two at the bottom. */
		if (ut_count_samples(&s, e, opts.pid) != 1 ||
		    ut_user_stack(&s, ut_sample(&s, e, opts.pid, 0), &got) != UT_DEFERRED ||
		    got.nr != 2 + 5 + 2)
			return 1 + e;
	}
	return ut_check(&s, 0) ? 3 : 0;
}

static void exec_of_the_profiler(struct __test_metadata *_metadata, struct ut_target *t,
				 bool output_first)
{
	struct reborn n = { .pid = t->pid, .output_first = output_first };
	struct ut_child c;
	char byte;

	ASSERT_EQ(0, pipe(n.to));
	ASSERT_EQ(0, pipe(n.from));
	ASSERT_EQ(0, ut_fork(&c, open_and_exec, &n));
	ASSERT_EQ(0, ut_go(&c));
	close(n.from[1]);
	ASSERT_EQ(0, ut_read_all(n.from[0], &byte, 1));
	ut_round(t);
	ASSERT_EQ(0, ut_write_all(n.to[1], "e", 1));
	EXPECT_EQ(0, ut_wait(&c) >> 8);
}

TEST_F(openers, samplers_behind_an_exec)
{
	exec_of_the_profiler(_metadata, self->t, true);
}

TEST_F(openers, output_behind_an_exec)
{
	exec_of_the_profiler(_metadata, self->t, false);
}

/* One thread opens the events. Another one reads them when the first has exited. */
static void *open_in_thread(void *arg)
{
	struct ut_session *s = arg;
	struct ut_opts opts = { .pid = s->opts.pid };

	if (ut_open(s, &opts) || ut_add_tracepoint(s, "syscalls", "sys_enter_getppid") < 0)
		return NULL;
	return s;
}

TEST_F(openers, opened_by_a_thread)
{
	struct ut_session s = { .opts = { .pid = self->t->pid } };
	pthread_t id;
	void *ret;
	int late;

	ASSERT_EQ(0, pthread_create(&id, NULL, open_in_thread, &s));
	ASSERT_EQ(0, pthread_join(id, &ret));
	ASSERT_EQ(&s, ret);
	/* This event is opened by another thread, and belongs to the same session. */
	late = ut_add_tracepoint(&s, "syscalls", "sys_enter_getuid");
	ASSERT_EQ(0, ut_enable(&s));
	ut_round(self->t);
	ASSERT_EQ(0, ut_stop(&s));
	EXPECT_TRUE(ut_stack_is(&s, ut_sample(&s, 0, self->t->pid, 0), &self->t->ppid));
	EXPECT_TRUE(ut_stack_is(&s, ut_sample(&s, late, self->t->pid, 0), &self->t->uid));
	EXPECT_EQ(0, ut_check(&s, 0));
	ut_close(&s);
}

/*
 * A process opens events, and leaves them to another process with the same table of
 * descriptors. The profiled task does its work in a child, which inherits the events.
 */

struct family {
	struct ut_stack	ppid, uid, read;
	int		pipe[2];
	pid_t		child;
	int		asleep;
};

static void child_calls(void *arg)
{
	struct family *f = arg;
	char byte;

	ut_syscall0(&f->ppid, __NR_getppid);
	ut_syscall0(&f->uid, __NR_getuid);
	__atomic_store_n(&f->asleep, 1, __ATOMIC_RELEASE);
	ut_syscall3(&f->read, __NR_read, f->pipe[0], &byte, 1);
}

static void parent_of_one(void *arg)
{
	struct family *f = arg;
	pid_t pid = fork();

	if (!pid) {
		ut_ladder(5, child_calls, f);
		_exit(0);
	}
	f->child = pid;
	waitpid(pid, NULL, 0);
}

enum {
	DEAD, EXECED, HOLDS_ON,
};

struct hand_over {
	struct ut_session	s;
	struct ut_opts		opts;
	int			how;
	int			opened;
};

static char *new_argv[] = { "new", NEW_IMAGE, NULL };

static void open_and_go(struct hand_over *h)
{
	struct ut_session *s = &h->s;

	/* The opener's mappings end with it. The reader maps the buffers again. */
	if (ut_open(s, &h->opts) || ut_add_tracepoint(s, "syscalls", "sys_enter_getppid") < 0 ||
	    ut_add_tracepoint(s, "syscalls", "sys_enter_read") < 0)
		return;
	__atomic_store_n(&h->opened, 1, __ATOMIC_RELEASE);
	if (h->how == EXECED)
		execve("/proc/self/exe", new_argv, NULL);
	while (h->how == HOLDS_ON)
		pause();
}

/* Does the opener run its new program? */
static bool is_new_image(pid_t pid)
{
	char path[64], line[64] = "";
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/cmdline", pid);
	fd = open(path, O_RDONLY);
	if (fd < 0)
		return false;
	if (read(fd, line, sizeof(line) - 1) < 0)
		line[0] = 0;
	close(fd);
	return !strcmp(line, new_argv[0]) && ut_task_state(pid) == 'S';
}

FIXTURE(handed_over) {
	struct hand_over *h;
	struct family *f;
	struct ut_child c;
	pid_t opener;
};

FIXTURE_VARIANT(handed_over) {
	int how;
	bool all;
};

FIXTURE_VARIANT_ADD(handed_over, by_dead) {
	.how = DEAD,
};

FIXTURE_VARIANT_ADD(handed_over, by_execed) {
	.how = EXECED,
};

FIXTURE_VARIANT_ADD(handed_over, by_living) {
	.how = HOLDS_ON,
};

/* The same with events of all tasks. */
FIXTURE_VARIANT_ADD(handed_over, by_dead_all) {
	.how = DEAD, .all = true,
};

FIXTURE_VARIANT_ADD(handed_over, by_execed_all) {
	.how = EXECED, .all = true,
};

FIXTURE_SETUP(handed_over)
{
	self->h = ut_shared(sizeof(*self->h));
	self->f = ut_shared(sizeof(*self->f));
	ASSERT_NE(NULL, self->h);
	ASSERT_NE(NULL, self->f);
	ASSERT_EQ(0, pipe(self->f->pipe));
	ASSERT_EQ(0, ut_fork(&self->c, parent_of_one, self->f));
	self->h->how = variant->how;
	self->h->opts = (struct ut_opts){
		.pid = variant->all ? -1 : self->c.pid, .per_cpu = true,
		.inherit = !variant->all,
	};
	self->opener = syscall(__NR_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
	ASSERT_LE(0, self->opener);
	if (!self->opener) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		open_and_go(self->h);
		_exit(0);
	}
}

FIXTURE_TEARDOWN(handed_over)
{
	if (self->opener > 0) {
		kill(self->opener, SIGKILL);
		waitpid(self->opener, NULL, 0);
	}
	if (self->f->child > 0)
		kill(self->f->child, SIGKILL);
	ut_end_child(&self->c);
	ut_close(&self->h->s);
}

/*
 * The new holder maps the buffers, and is a profiler itself. The records for the events
 * that it was given go only to these events.
 */
TEST_F(handed_over, records)
{
	struct ut_opts opts = { .pid = self->c.pid, .per_cpu = true, .inherit = true };
	struct ut_session *s = &self->h->s, own;
	unsigned int i, e;
	pid_t child;

	if (variant->how == DEAD) {
		ASSERT_EQ(self->opener, waitpid(self->opener, NULL, 0));
		self->opener = 0;
		ASSERT_EQ(1, self->h->opened);
	}
	while (!UT_READ(self->h->opened))
		usleep(1000);
	for (i = 0; variant->how == EXECED && i < 1000 && !is_new_image(self->opener); i++)
		usleep(10000);
	ASSERT_GT(1000, i);
	ASSERT_LT(0, s->nr_rings);
	for (i = 0; i < s->nr_rings; i++) {
		ASSERT_EQ(0, ut_ring_map(&s->ring[i], s->ring[i].fd, s->opts.pages));
		/* The opener's mapping is gone, so the redirection to it is gone, too. */
		for (e = 0; e < s->nr_events; e++)
			ASSERT_EQ(0, ioctl(s->event[e].fd[i], PERF_EVENT_IOC_SET_OUTPUT,
					   s->ring[i].fd));
	}
	ASSERT_EQ(0, ut_open(&own, &opts));
	ASSERT_LE(0, ut_add_tracepoint(&own, "syscalls", "sys_enter_getuid"));
	ASSERT_EQ(0, ut_enable(s));
	ASSERT_EQ(0, ut_start(&own, &self->c));
	while (!UT_READ(self->f->asleep) || !UT_READ(self->f->read.nr) ||
	       !UT_READ(self->f->child))
		usleep(1000);
	child = self->f->child;
	ASSERT_TRUE(ut_wait_state(child, "S"));
	ASSERT_EQ(0, ut_stop(s));
	ASSERT_EQ(0, ut_stop(&own));
	EXPECT_TRUE(ut_stack_is(s, ut_sample(s, 0, child, 0), &self->f->ppid));
	EXPECT_TRUE(ut_stack_is(s, ut_sample(s, 1, child, 0), &self->f->read));
	EXPECT_TRUE(ut_stack_is(&own, ut_sample(&own, 0, child, 0), &self->f->uid));
	EXPECT_EQ(0, ut_check(s, 0));
	EXPECT_EQ(0, ut_check(&own, 0));
	EXPECT_EQ('S', ut_task_state(child));
	ut_close(&own);
}

int main(int argc, char **argv)
{
	/* The programs that the openers execute. */
	if (argc == 3 && !strcmp(argv[1], NEW_PROFILER))
		return reborn(argv[2]);
	if (argc == 2 && !strcmp(argv[1], NEW_IMAGE)) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	ut_need_root();
	return test_harness_run(argc, argv);
}

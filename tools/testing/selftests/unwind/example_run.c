// SPDX-License-Identifier: GPL-2.0
/*
 * Run the example of Documentation/userspace-api/perf_deferred_callchain.rst, and
 * compare the printed stack with the stack that the profiled program prints.
 */
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

#define CHUNK	(1024 * 1024UL)
#define CHUNKS	16

/* The output of the example. */
struct output {
	unsigned int	kernel;		/* number of kernel frames */
	struct ut_stack	user;
	struct ut_stack	want;		/* printed by the profiled program */
	unsigned int	entry, samples, merged, records, immediate, missing, lost;
	bool		summary;
	int		status;
};

/* The other end of the pipe reads @chunks chunks, and no more. */
static void reader(int fd, unsigned int chunks)
{
	static char buf[CHUNK];
	size_t left = chunks * CHUNK + 1;
	ssize_t n;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (left) {
		n = read(fd, buf, left < sizeof(buf) ? left : sizeof(buf));
		if (n <= 0)
			break;
		left -= n;
	}
	while (chunks < CHUNKS)
		pause();
	_exit(0);
}

/*
 * The profiled program. It prints the stack of its first system call, which is short,
 * and then stays in the second one for a long time.
 */
static void writer(void *arg)
{
	static char buf[CHUNKS * CHUNK];
	unsigned int chunks = *(unsigned int *)arg, i;
	const size_t len[] = { 1, sizeof(buf) };
	struct ut_stack st;
	int fds[2];

	if (pipe(fds))
		exit(1);
	if (!fork())
		reader(fds[0], chunks);
	for (i = 0; i < ARRAY_SIZE(len); i++) {
		if (ut_syscall3(&st, __NR_write, fds[1], buf, len[i]) != (long)len[i])
			exit(1);
		if (!i) {
			unsigned int n;

			for (n = 0; n < st.nr; n++)
				printf("want %llx\n", st.ip[n]);
			fflush(stdout);
		}
	}
	exit(0);
}

static int work(unsigned int chunks)
{
	/* In one of the tests the profiler ends before this program. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	ut_ladder(6, writer, &chunks);
	return 1;
}

enum part { NONE, KERNEL, USER, WANT };

static void add_frame(struct output *o, enum part to, __u64 ip)
{
	struct ut_stack *st = to == WANT ? &o->want : &o->user;

	if (to == KERNEL)
		o->kernel++;
	else if (to != NONE && st->nr < UT_MAX_FRAMES)
		st->ip[st->nr++] = ip;
}

static int run(struct output *o, const char *seconds, const char *chunks)
{
	enum part part = NONE;
	char self[PATH_MAX] = "", cmd[3 * PATH_MAX], line[256];
	char end;
	int dir;
	FILE *f;

	memset(o, 0, sizeof(*o));
	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		return -1;
	dir = strrchr(self, '/') - self;
	snprintf(cmd, sizeof(cmd), "exec '%.*s/example' %s '%s' --work %s", dir, self,
		 seconds, self, chunks);
	f = popen(cmd, "r");
	if (!f)
		return -1;
	while (fgets(line, sizeof(line), f)) {
		unsigned long long ip;

		printf("# %s", line);
		if (!strcmp(line, "  kernel\n"))
			part = KERNEL;
		else if (!strcmp(line, "  user\n"))
			part = USER;
		else if (sscanf(line, "    %llx%c", &ip, &end) == 2 && end == '\n')
			add_frame(o, part, ip);
		else if (sscanf(line, "want %llx", &ip) == 1)
			add_frame(o, WANT, ip);
		else if (sscanf(line, "kernel entry with %u samples:", &o->entry) == 1)
			;
		else
			o->summary = sscanf(line,
					    "%u samples: %u merged with %u records, %u not deferred, %u missing, %u lost",
					    &o->samples, &o->merged, &o->records, &o->immediate,
					    &o->missing, &o->lost) == 6;
	}
	o->status = pclose(f);
	return 0;
}

FIXTURE(example) {
	struct output o;
};

FIXTURE_VARIANT(example) {
	const char *seconds, *chunks;
};

/* The command ends before the profile. */
FIXTURE_VARIANT_ADD(example, to_the_exit) {
	.seconds = "60", .chunks = "16",
};

/* The command sleeps in its system call when the profile ends. */
FIXTURE_VARIANT_ADD(example, left_asleep) {
	.seconds = "10", .chunks = "12",
};

FIXTURE_SETUP(example)
{
	ASSERT_EQ(0, run(&self->o, variant->seconds, variant->chunks));
}

FIXTURE_TEARDOWN(example)
{
}

TEST_F(example, prints_the_merged_stack)
{
	struct output *o = &self->o;

	EXPECT_EQ(0, o->status);
	ASSERT_TRUE(o->summary);

	/* A system call with several samples, with kernel frames and the right user stack. */
	EXPECT_LT(1, o->entry);
	EXPECT_LT(1, o->kernel);
	EXPECT_LT(8, o->want.nr);
	EXPECT_TRUE(ut_same_stack(&o->user, &o->want));

	EXPECT_LE(o->entry, o->merged);
	EXPECT_LE(o->records, o->merged);
	EXPECT_EQ(o->samples, o->merged + o->immediate + o->missing);
	EXPECT_EQ(0, o->missing);
	EXPECT_EQ(0, o->lost);
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "--work"))
		return work(atoi(argv[2]));
	ut_need_root();
	return test_harness_run(argc, argv);
}

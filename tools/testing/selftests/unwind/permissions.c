// SPDX-License-Identifier: GPL-2.0
/*
 * K21: a deferred stack needs the same permissions as an immediate one, and a set-uid
 * exec ends both.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

#define PARANOID	"/proc/sys/kernel/perf_event_paranoid"
#define NOBODY		65534
#define NEW_IMAGE	"--new-image"

FIXTURE(permissions) {
	long paranoid;
};

FIXTURE_SETUP(permissions)
{
	ASSERT_EQ(0, ut_read_sysctl(PARANOID, &self->paranoid));
}

FIXTURE_TEARDOWN(permissions)
{
	ut_write_sysctl(PARANOID, self->paranoid);
}

static int become_nobody(bool perfmon)
{
	struct __user_cap_header_struct hdr = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = {};

	if (prctl(PR_SET_KEEPCAPS, 1) || setresgid(NOBODY, NOBODY, NOBODY) ||
	    setresuid(NOBODY, NOBODY, NOBODY))
		return -1;
	if (perfmon) {
		data[CAP_PERFMON / 32].permitted = 1U << CAP_PERFMON % 32;
		data[CAP_PERFMON / 32].effective = 1U << CAP_PERFMON % 32;
	}
	/* The change of the user has made this process undumpable: undo that. */
	return syscall(__NR_capset, &hdr, data) || prctl(PR_SET_DUMPABLE, 1) ? -1 : 0;
}

struct result {
	int	err[4][2][2];	/* by target, user only, deferred */
};

static int try_open(pid_t pid, int cpu, int type, bool user_only, bool deferred)
{
	struct perf_event_attr attr = {
		.type		= type,
		.size		= UT_ATTR_SIZE,
		.config		= PERF_COUNT_SW_PAGE_FAULTS,
		.sample_type	= PERF_SAMPLE_CALLCHAIN,
		.sample_period	= 1,
		.disabled	= 1,
		.exclude_kernel	= user_only,
		.exclude_hv	= user_only,
		.exclude_callchain_kernel = user_only,
	};
	int fd;

	if (deferred)
		*ut_attr_flags(&attr) |= UT_DEFER_CALLCHAIN | UT_DEFER_OUTPUT;
	fd = ut_perf_open(&attr, pid, cpu, -1, 0);
	if (fd < 0)
		return errno;
	close(fd);
	return 0;
}

struct ask {
	struct result	r;
	bool		perfmon, ok;
};

static void ask_all(void *arg)
{
	struct ask *a = arg;
	int user, deferred;

	if (become_nobody(a->perfmon))
		return;
	for (user = 0; user < 2; user++) {
		for (deferred = 0; deferred < 2; deferred++) {
			/* The task itself, a task of another user, all tasks of a CPU */
			a->r.err[0][user][deferred] = try_open(0, -1, PERF_TYPE_SOFTWARE, user,
							       deferred);
			a->r.err[1][user][deferred] = try_open(1, -1, PERF_TYPE_SOFTWARE, user,
							       deferred);
			a->r.err[2][user][deferred] = try_open(-1, 0, PERF_TYPE_SOFTWARE, user,
							       deferred);
		}
	}
	a->ok = true;
}

/* With each setting, with and without the capability: both are allowed, or neither is. */
TEST_F(permissions, same_as_callchains)
{
	struct ask *a = ut_shared(sizeof(*a));
	int paranoid, perfmon, what, user, refused = 0, allowed = 0;
	struct ut_child c;

	ASSERT_NE(NULL, a);
	for (paranoid = -1; paranoid <= 4; paranoid++) {
		ASSERT_EQ(0, ut_write_sysctl(PARANOID, paranoid));
		for (perfmon = 0; perfmon < 2; perfmon++) {
			memset(a, 0, sizeof(*a));
			a->perfmon = perfmon;
			ASSERT_EQ(0, ut_fork(&c, ask_all, a));
			ASSERT_EQ(0, ut_go(&c));
			ASSERT_EQ(0, ut_wait(&c));
			ASSERT_TRUE(a->ok);
			for (what = 0; what < 3; what++) {
				for (user = 0; user < 2; user++) {
					int *err = a->r.err[what][user];

					EXPECT_EQ(err[0], err[1])
						TH_LOG("paranoid %d perfmon %d what %d user %d",
						       paranoid, perfmon, what, user);
					refused += err[1] == EACCES || err[1] == EPERM;
					allowed += !err[1];
				}
			}
			/* A task of another user always needs the capability. */
			if (!perfmon)
				EXPECT_NE(0, a->r.err[1][1][1]);
		}
	}
	EXPECT_LT(5, refused);
	EXPECT_LT(5, allowed);
}

struct own {
	struct ut_stack	st;
	bool		ok;
};

UT_LABEL(own_touch);
static ut_noinline void touch(void *arg)
{
	struct own *o = arg;
	char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ut_walk_self(&o->st, (unsigned long)own_touch, __builtin_frame_address(0));
	asm volatile(".globl own_touch\nown_touch: movb $1, (%0)" : : "r" (p) : "memory");
	munmap(p, 4096);
}

/* exclude_kernel, exclude_hv, exclude_callchain_kernel: a user may open such events */
static const __u64 user_only = 1ULL << 5 | 1ULL << 6 | 1ULL << 21;

static void profile_self(void *arg)
{
	struct ut_opts opts = { .pid = 0, .pages = 8, .flags = user_only };
	struct own *o = arg;
	struct ut_session s;
	struct ut_rec *r, *hit = NULL;
	unsigned int i;
	__u64 k;

	if (become_nobody(false) || ut_open(&s, &opts) ||
	    ut_add_software(&s, PERF_COUNT_SW_PAGE_FAULTS, 1) < 0)
		return;
	if (ut_profile_ladder(&s, 6, touch, o))
		return;
	for (i = 0; (r = ut_sample(&s, 0, 0, i)); i++) {
		for (k = 0; k < r->nr; k++) {
			/* No address of the kernel. */
			if (r->ips[k] >> 63 && r->ips[k] < UT_CONTEXT_MAX)
				return;
		}
		if (r->ip == (unsigned long)own_touch)
			hit = r;
	}
	o->ok = ut_stack_is(&s, hit, &o->st) && !ut_check(&s, 0);
}

/* A user who may profile own tasks gets their stacks deferred. */
TEST_F(permissions, own_stacks)
{
	struct own *o = ut_shared(sizeof(*o));
	struct ut_child c;

	ASSERT_NE(NULL, o);
	ASSERT_EQ(0, ut_write_sysctl(PARANOID, 2));
	ASSERT_EQ(0, ut_fork(&c, profile_self, o));
	ASSERT_EQ(0, ut_go(&c));
	ASSERT_EQ(0, ut_wait(&c));
	EXPECT_TRUE(o->ok);
}

/*
 * A user profiles a task, which executes a set-uid program. The user gets the stacks from
 * before the exec, and nothing from after it.
 */
struct suid {
	struct own	own;
	char		path[PATH_MAX];
	int		samples, records, after;
	int	opened, result;
};

static char *new_argv[] = { "new", NEW_IMAGE, NULL };

static void exec_suid(void *arg)
{
	struct suid *x = arg;

	ut_ladder(6, touch, &x->own);
	execve(x->path, new_argv, NULL);
	_exit(99);
}

static void profile_suid(void *arg)
{
	struct ut_opts opts = {
		.pages = 64, .sideband = true, .flags = user_only,
	};
	struct suid *x = arg;
	struct ut_session s;
	struct ut_child c;
	struct ut_rec *r, *hit = NULL;
	bool exec = false;
	size_t i;

	x->result = -1;
	if (become_nobody(false) || ut_fork(&c, exec_suid, x))
		return;
	opts.pid = c.pid;
	if (ut_open(&s, &opts) || ut_add_software(&s, PERF_COUNT_SW_PAGE_FAULTS, 1) < 0)
		return;
	ut_enable(&s);
	ut_go(&c);
	/* The status of the new image says whether it was root. */
	x->result = WEXITSTATUS(ut_wait(&c));
	if (ut_drain(&s))
		return;
	for (i = 0; i < s.nr_recs; i++) {
		r = &s.rec[i];
		if (r->type == PERF_RECORD_COMM && (r->misc & PERF_RECORD_MISC_COMM_EXEC))
			exec = true;
		if (r->type != PERF_RECORD_SAMPLE && r->type != UT_RECORD_CALLCHAIN_DEFERRED)
			continue;
		x->after += exec;
		if (r->type == PERF_RECORD_SAMPLE && r->ip == (unsigned long)own_touch)
			hit = r;
	}
	x->own.ok = ut_stack_is(&s, hit, &x->own.st) && !ut_check(&s, 0);
}

TEST_F(permissions, set_uid_exec)
{
	struct suid *x = ut_shared(sizeof(*x));
	char buf[65536];
	struct ut_child c;
	int from, to;
	ssize_t n;

	ASSERT_NE(NULL, x);
	ASSERT_EQ(0, ut_write_sysctl(PARANOID, 2));
	snprintf(x->path, sizeof(x->path), "/tmp/unwind_suid.XXXXXX");
	to = mkstemp(x->path);
	from = open("/proc/self/exe", O_RDONLY);
	ASSERT_LE(0, to);
	ASSERT_LE(0, from);
	while ((n = read(from, buf, sizeof(buf))) > 0)
		ASSERT_EQ(n, write(to, buf, n));
	close(from);
	ASSERT_EQ(0, fchmod(to, 04755));
	close(to);
	ASSERT_EQ(0, ut_fork(&c, profile_suid, x));
	ASSERT_EQ(0, ut_go(&c));
	ASSERT_EQ(0, ut_wait(&c));
	unlink(x->path);
	/* The new image was root, and ran to its end. */
	ASSERT_EQ(7, x->result) TH_LOG("is /tmp mounted nosuid?");
	EXPECT_TRUE(x->own.ok);
	EXPECT_EQ(0, x->after);
}

int main(int argc, char **argv)
{
	static struct own o;

	if (argc == 2 && !strcmp(argv[1], NEW_IMAGE)) {
		ut_ladder(4, touch, &o);
		return geteuid() ? 8 : 7;
	}
	ut_need_root();
	return test_harness_run(argc, argv);
}

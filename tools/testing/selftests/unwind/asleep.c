// SPDX-License-Identifier: GPL-2.0
/*
 * K11, K14, K15: stacks that are walked at the switch, where the walk must not wait. The
 * tasks fall asleep with absent pages in their stack, in 32-bit code, in another pid
 * namespace, or with inherited events.
 */
#include <asm/ldt.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

/* Read until the sample of this task has its record. The task sleeps meanwhile. */
static struct ut_rec *wait_record(struct ut_session *s, pid_t pid)
{
	struct ut_rec *r;

	while (!ut_drain(s)) {
		r = ut_sample(s, 0, pid, 0);
		if (r && (!r->cookie || ut_record_of(s, pid, r->cookie)))
			return r;
		usleep(1000);
	}
	return NULL;
}

struct shared {
	struct ut_stack	st;
	pid_t		tid;
};

static void call_pause(void *arg)
{
	struct shared *sh = arg;

	ut_syscall0(&sh->st, __NR_pause);
}

static void ladder_asleep(void *arg)
{
	ut_ladder(6, call_pause, arg);
}

static void child_asleep(void *arg)
{
	struct shared *sh = arg;
	pid_t pid = fork();

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		ladder_asleep(sh);
	}
	__atomic_store_n(&sh->tid, pid, __ATOMIC_RELEASE);
	for (;;)
		pause();
}

/* The inherited events of a child belong to the same session. */
TEST(inherited)
{
	struct ut_opts opts = { .per_cpu = true, .inherit = true, .sideband = true };
	struct shared *sh = ut_shared(sizeof(*sh));
	struct ut_session s;
	struct ut_child c;
	struct ut_rec *r;

	ASSERT_NE(NULL, sh);
	ASSERT_EQ(0, ut_watch(&s, &opts, &c, child_asleep, sh));
	ASSERT_EQ(0, ut_add_tracepoint(&s, "syscalls", "sys_enter_pause"));
	ASSERT_EQ(0, ut_start(&s, &c));
	while (!UT_READ(sh->tid))
		usleep(1000);
	r = wait_record(&s, sh->tid);
	EXPECT_TRUE(ut_stack_is(&s, r, &sh->st));
	/* The record is also there if the task was preempted before its sleep. */
	EXPECT_TRUE(ut_wait_state(sh->tid, "S"));
	ASSERT_EQ(0, ut_stop(&s));
	EXPECT_EQ(0, ut_check(&s, 0));
	ut_end_child(&c);
	ut_close(&s);
}

static void one_getppid(void *arg)
{
	ut_syscall0(arg, __NR_getppid);
}

static bool record_is_of(struct ut_session *s, pid_t pid, const struct ut_stack *st)
{
	struct ut_rec *sample, *record;

	if (ut_count_samples(s, 0, pid) != 1)
		return false;
	sample = ut_sample(s, 0, pid, 0);
	if (!ut_stack_is(s, sample, st))
		return false;
	record = ut_record_of(s, pid, sample->cookie);
	return record && record->pid == pid && !ut_check(s, 0);
}

/* Profile a task that sleeps. */
static bool profile_sleeper(struct shared *sh)
{
	static struct ut_session s;
	struct ut_opts opts = { .switches = true };
	struct ut_child c;

	return !ut_watch(&s, &opts, &c, ladder_asleep, sh) &&
	       !ut_add_tracepoint(&s, "syscalls", "sys_enter_pause") && !ut_enable(&s) &&
	       !ut_go(&c) && wait_record(&s, c.pid) && !ut_stop(&s) &&
	       record_is_of(&s, c.pid, &sh->st);
}

/* Profile this task, which returns to user space. */
static bool profile_self(void)
{
	static struct ut_session s;
	struct ut_opts opts = { .switches = true };
	struct ut_stack st;

	return !ut_open(&s, &opts) &&
	       !ut_add_tracepoint(&s, "syscalls", "sys_enter_getppid") &&
	       !ut_profile_ladder(&s, 5, one_getppid, &st) && record_is_of(&s, 1, &st);
}

struct contained {
	bool	is_first, sleeper, self;
};

static void profile_contained(struct contained *seen, struct shared *sh)
{
	/* ut_wait_state() needs a /proc with the new tids. */
	seen->is_first = getpid() == 1 && !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
			 !mount("proc", "/proc", "proc", 0, NULL);
	if (!seen->is_first)
		return;
	seen->sleeper = profile_sleeper(sh);
	seen->self = profile_self();
}

/*
 * If a profiler runs in another pid namespace, its records and samples have the tids of
 * that namespace.
 */
TEST(contained)
{
	struct shared *sh = ut_shared(sizeof(*sh));
	struct contained *seen = ut_shared(sizeof(*seen));
	pid_t pid;

	ASSERT_NE(NULL, sh);
	ASSERT_NE(NULL, seen);
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		if (unshare(CLONE_NEWPID | CLONE_NEWNS)) {
			ut_diag("unshare: %s; CONFIG_PID_NS?", strerror(errno));
			_exit(1);
		}
		/* The next child is the first task of the new namespace. */
		pid = fork();
		if (!pid) {
			profile_contained(seen, sh);
			_exit(0);
		}
		waitpid(pid, NULL, 0);
		_exit(0);
	}
	ASSERT_EQ(pid, waitpid(pid, NULL, 0));
	ASSERT_TRUE(seen->is_first);
	EXPECT_TRUE(seen->sleeper);
	EXPECT_TRUE(seen->self);
}

/*
 * The third frame of a sleeping task lies on an absent page. The walk at the switch does
 * not wait for it: the stack ends there.
 */
enum {
	USERFAULTFD, FUSE, SWAPPED,
};

struct absent {
	unsigned long	*frame, *page;
	int		how, err;
	int		ready, returned;
};

#define SWAP_DEVICE	"/dev/ram0"

/* All of the device is swap space. */
static int swap_on(void)
{
	size_t page = sysconf(_SC_PAGESIZE);
	__u32 header[3] = { 1, 1023, 0 };	/* version, last page, bad pages */
	int fd = open(SWAP_DEVICE, O_RDWR | O_CLOEXEC);

	if (fd < 0 || pwrite(fd, header, sizeof(header), 1024) != sizeof(header) ||
	    pwrite(fd, "SWAPSPACE2", 10, page - 10) != 10 || fsync(fd))
		return -1;
	close(fd);
	return swapon(SWAP_DEVICE, 0);
}

static bool is_swapped(void *addr)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	__u64 entry = 0;

	if (pread(fd, &entry, sizeof(entry), (unsigned long)addr / sysconf(_SC_PAGESIZE) * 8) < 0)
		entry = 0;
	close(fd);
	return entry >> 62 & 1;
}

static int take_away(struct absent *a)
{
	size_t size = sysconf(_SC_PAGESIZE);
	int fd, i;

	switch (a->how) {
	case USERFAULTFD:
		fd = ut_userfault(a->page);
		return fd < 0 ? -fd : 0;
	case SWAPPED:
		a->page[0] = 0;
		a->page[1] = 0x400200;
		for (i = 0; i < 100 && !is_swapped(a->page); i++) {
			if (madvise(a->page, size, MADV_PAGEOUT))
				return errno;
			usleep(10000);
		}
		return is_swapped(a->page) ? 0 : EBUSY;
	}
	return 0;
}

static void pause_without(void *arg)
{
	struct absent *a = arg;
	unsigned long fp = (unsigned long)a->frame;

	a->err = take_away(a);
	a->frame[0] = (unsigned long)a->page;
	a->frame[1] = 0x400100;
	__atomic_store_n(&a->ready, 1, __ATOMIC_RELEASE);
	ut_syscall_on(fp, fp, __NR_pause, 0, 0, 0);
	a->returned = 1;
}

FIXTURE(absent) {
	struct ut_session s;
	struct ut_fuse fuse;
	struct absent *a;
	struct ut_child c;
};

FIXTURE_VARIANT(absent) {
	int how;
};

FIXTURE_VARIANT_ADD(absent, userfaultfd) {
	.how = USERFAULTFD,
};

FIXTURE_VARIANT_ADD(absent, fuse) {
	.how = FUSE,
};

FIXTURE_VARIANT_ADD(absent, swapped) {
	.how = SWAPPED,
};

FIXTURE_SETUP(absent)
{
	size_t size = sysconf(_SC_PAGESIZE);
	char *mem = mmap(NULL, 2 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			 -1, 0);

	self->a = ut_shared(sizeof(*self->a));
	ASSERT_NE(NULL, self->a);
	ASSERT_NE(MAP_FAILED, mem);
	self->a->how = variant->how;
	self->a->frame = (unsigned long *)mem;
	self->a->page = (unsigned long *)(mem + size);
	if (variant->how == FUSE) {
		ASSERT_EQ(0, ut_fuse_page(&self->fuse, false));
		/* The page's frame must lie above this frame. */
		self->a->page = self->fuse.page;
		self->a->frame = (unsigned long *)mmap((char *)self->fuse.page - 16 * size, size,
						       PROT_READ | PROT_WRITE,
						       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		ASSERT_LT(self->a->frame, self->a->page);
	} else if (variant->how == SWAPPED) {
		ASSERT_EQ(0, swap_on()) TH_LOG("%s: %s; CONFIG_BLK_DEV_RAM, CONFIG_SWAP?",
					       SWAP_DEVICE, strerror(errno));
	}
	ASSERT_EQ(0, ut_fork(&self->c, pause_without, self->a));
}

FIXTURE_TEARDOWN(absent)
{
	ut_end_child(&self->c);
	ut_close(&self->s);
	if (variant->how == FUSE)
		ut_fuse_end(&self->fuse);
	if (variant->how == SWAPPED)
		swapoff(SWAP_DEVICE);
}

TEST_F(absent, page)
{
	struct ut_opts opts = { .pid = self->c.pid, .sideband = true };
	struct ut_stack got;
	struct ut_rec *r;

	ASSERT_EQ(0, ut_open(&self->s, &opts));
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "syscalls", "sys_enter_pause"));
	ASSERT_EQ(0, ut_start(&self->s, &self->c));
	while (!UT_READ(self->a->ready))
		usleep(1000);
	ASSERT_EQ(0, self->a->err) TH_LOG("%s", strerror(self->a->err));
	r = wait_record(&self->s, self->c.pid);
	ASSERT_NE(NULL, r);
	ASSERT_EQ(UT_DEFERRED, ut_user_stack(&self->s, r, &got));
	ASSERT_EQ(2, got.nr);
	EXPECT_EQ(0x400100, got.ip[1]);
	EXPECT_TRUE(ut_wait_state(self->c.pid, "S"));
	EXPECT_EQ(0, self->a->returned);
	ASSERT_EQ(0, ut_stop(&self->s));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/*
 * A 64-bit program sleeps in 32-bit code. In the kernel's own 32-bit segments the stack
 * is right. In segments with a base it is right, or empty.
 */
static const unsigned char pause32[] = {
	0x8e, 0xd1,			/*  0: mov %ecx, %ss */
	0x89, 0xd4,			/*  2: mov %edx, %esp */
	0xb8, 29, 0, 0, 0,		/*  4: mov $29, %eax		pause() */
	0xcd, 0x80,			/*  9: int $0x80 */
	0xeb, 0xfe,			/* 11: jmp . */
};

#define PAUSED32	11
#define FRAMES32	5

/* In memory that 32-bit code can address. */
struct low {
	unsigned char	code[16];
	struct {
		__u32	next, ret;
	} frame[FRAMES32];
	__u32		cs, ss, base;
};

FIXTURE(code_32) {
	struct ut_session s;
	struct low *low;
	struct ut_child c;
};

FIXTURE_VARIANT(code_32) {
	__u32 cs, ss, base;
};

FIXTURE_VARIANT_ADD(code_32, flat) {
	.cs = 0x23, .ss = 0x2b,
};

FIXTURE_VARIANT_ADD(code_32, segments_with_a_base) {
	.cs = 0x07, .ss = 0x0f, .base = 0x10000000,
};

static int set_ldt(__u32 base)
{
	struct user_desc desc = {
		.base_addr = base, .limit = 0xfffff, .seg_32bit = 1, .limit_in_pages = 1,
		.contents = MODIFY_LDT_CONTENTS_CODE,
	};

	if (syscall(SYS_modify_ldt, 1, &desc, sizeof(desc)))
		return -1;
	desc.entry_number = 1;
	desc.contents = MODIFY_LDT_CONTENTS_DATA;
	return syscall(SYS_modify_ldt, 1, &desc, sizeof(desc));
}

static void pause_in_32(void *arg)
{
	const struct low *low = arg;
	unsigned long frame = (__u32)((unsigned long)low->frame - low->base);
	struct {
		__u32	ip;
		__u16	cs;
	} to = { (unsigned long)low->code - low->base, low->cs };

	if (low->base && set_ldt(low->base))
		return;
	asm volatile("mov %[frame], %%rbp\n"
		     "ljmpl *(%[to])\n"
		     : : [to] "S" (&to), [frame] "d" (frame), "c" (low->ss) : "memory");
}

FIXTURE_SETUP(code_32)
{
	struct ut_opts opts = { .sideband = true };
	__u32 next, i;

	if (!ut_has_32bit())
		SKIP(return, UT_NO_32BIT);
	self->low = mmap(NULL, sizeof(*self->low), PROT_READ | PROT_WRITE | PROT_EXEC,
			 MAP_SHARED | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	ASSERT_NE(MAP_FAILED, self->low);
	memcpy(self->low->code, pause32, sizeof(pause32));
	self->low->cs = variant->cs;
	self->low->ss = variant->ss;
	self->low->base = variant->base;
	for (i = 0; i < FRAMES32; i++) {
		next = (unsigned long)&self->low->frame[i + 1] - variant->base;
		self->low->frame[i].next = i < FRAMES32 - 1 ? next : 0;
		self->low->frame[i].ret = 0x400100 + 16 * i - variant->base;
	}
	ASSERT_EQ(0, ut_watch(&self->s, &opts, &self->c, pause_in_32, self->low));
	/* The tracepoints of single system calls do not fire for 32-bit calls. */
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "raw_syscalls", "sys_enter"));
	ASSERT_EQ(0, ioctl(self->s.event[0].fd[0], PERF_EVENT_IOC_SET_FILTER, "id == 29"));
	ASSERT_EQ(0, ut_enable(&self->s));
}

FIXTURE_TEARDOWN(code_32)
{
	ut_end_child(&self->c);
	ut_close(&self->s);
}

TEST_F(code_32, asleep)
{
	struct ut_stack want = { .nr = 1 }, got;
	struct ut_rec *r;
	int i;

	want.ip[0] = (unsigned long)self->low->code + PAUSED32;
	for (i = 0; i < FRAMES32; i++)
		want.ip[want.nr++] = 0x400100 + 16 * i;
	ASSERT_EQ(0, ut_go(&self->c));
	r = wait_record(&self->s, self->c.pid);
	ASSERT_NE(NULL, r);
	ASSERT_EQ(UT_DEFERRED, ut_user_stack(&self->s, r, &got));
	if (got.nr || !variant->base)
		EXPECT_TRUE(ut_same_stack(&got, &want));
	ASSERT_TRUE(ut_wait_state(self->c.pid, "S"));
	ASSERT_EQ(0, ut_stop(&self->s));
	EXPECT_EQ(1, ut_count_samples(&self->s, 0, 0));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

int main(int argc, char **argv)
{
	ut_need_root();
	return test_harness_run(argc, argv);
}

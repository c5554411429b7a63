// SPDX-License-Identifier: GPL-2.0
/*
 * K25: the thread of a vCPU has a user stack, the stack of the system call that runs the
 * guest. Each call has one stack, however often it leaves and enters the guest. KVM runs
 * the task work in between, so the stack is handed out long before the call ends. Later
 * samples in the call have the same cookie, or, after several hand-outs, an immediate
 * stack. A sample of the guest does not have the user stack of the thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "../kselftest_harness.h"
#include "unwind_test.h"

#define GUEST_FLAG	0x300	/* the guest sets it when it runs */
#define GUEST_STOP	0x301	/* tells the guest to stop */
#define GUEST_CODE	0x400
#define GUEST_STACK	0xff0
#define GUEST_EXITS	100
#define GUEST_RUNS	5

/* The interrupt vector of an NMI in real mode, and the message that raises an NMI. */
#define NMI_VECTOR	2
#define MSI_ADDRESS	0xfee00000
#define MSI_NMI		(4 << 8)

#define WORD(x)		#x
#define NUMBER(x)	WORD(x)

/*
 * The guest runs one of three loops in real mode. A write to port 0x80 ends the system call
 * that runs the guest. The kernel handles the other exits: CPUID, HLT, interrupts.
 */
asm(".pushsection .rodata\n"
	"	.code16\n"
	"guest_code:\n"
	"guest_exits:\n"
	"	mov $" NUMBER(GUEST_EXITS) ", %si\n"
	"1:	xor %eax, %eax\n"
	"	cpuid\n"
	"	dec %si\n"
	"	jnz 1b\n"
	"	out %al, $0x80\n"
	"	jmp guest_exits\n"
	"guest_halts:\n"
	"	movb $1, " NUMBER(GUEST_FLAG) "\n"
	"	hlt\n"
	"	out %al, $0x80\n"
	"	jmp guest_halts\n"
	"guest_spins:\n"
	"	movb $1, " NUMBER(GUEST_FLAG) "\n"
	"1:	cmpb $0, " NUMBER(GUEST_STOP) "\n"
	"	je 1b\n"
	"	out %al, $0x80\n"
	"	jmp guest_spins\n"
	"guest_nmi:\n"
	"	iret\n"
	"guest_end:\n"
	"	.code64\n"
	"	.popsection\n");
UT_LABEL(guest_code);
UT_LABEL(guest_exits);
UT_LABEL(guest_halts);
UT_LABEL(guest_spins);
UT_LABEL(guest_nmi);
UT_LABEL(guest_end);

static const struct ut_opts self_task = { .pid = 0, .switches = true };

/* A virtual machine with one page of memory and one vCPU. */
struct vm {
	int		dev, fd, vcpu;
	unsigned char	*mem;
	struct kvm_run	*run;
	size_t		run_size;
};

static int vm_open(struct vm *vm)
{
	struct kvm_userspace_memory_region region = { .memory_size = sysconf(_SC_PAGESIZE) };
	struct kvm_lapic_state apic;
	unsigned short *vectors;

	vm->mem = ut_shared(region.memory_size);
	if (!vm->mem)
		return -1;
	region.userspace_addr = (unsigned long)vm->mem;
	memcpy(vm->mem + GUEST_CODE, guest_code, guest_end - guest_code);
	vectors = (unsigned short *)vm->mem;
	vectors[2 * NMI_VECTOR] = GUEST_CODE + (guest_nmi - guest_code);

	vm->fd = ioctl(vm->dev, KVM_CREATE_VM, 0);
	/* KVM on an Intel CPU needs three more pages, at any other address. */
	if (vm->fd < 0 || ioctl(vm->fd, KVM_SET_TSS_ADDR, 0xfffbd000) ||
	    ioctl(vm->fd, KVM_CREATE_IRQCHIP, 0) ||
	    ioctl(vm->fd, KVM_SET_USER_MEMORY_REGION, &region))
		return -1;
	vm->vcpu = ioctl(vm->fd, KVM_CREATE_VCPU, 0);
	/* The vCPU gets messages only after its APIC has been set. */
	if (vm->vcpu < 0 || ioctl(vm->vcpu, KVM_GET_LAPIC, &apic) ||
	    ioctl(vm->vcpu, KVM_SET_LAPIC, &apic))
		return -1;
	vm->run_size = ioctl(vm->dev, KVM_GET_VCPU_MMAP_SIZE, 0);
	vm->run = mmap(NULL, vm->run_size, PROT_READ | PROT_WRITE, MAP_SHARED, vm->vcpu, 0);
	return vm->run == MAP_FAILED ? -1 : 0;
}

/* Let the guest continue at @where. */
static int vm_start(struct vm *vm, const char *where)
{
	struct kvm_regs regs = {
		.rip	= GUEST_CODE + (where - guest_code),
		.rsp	= GUEST_STACK,
		.rflags	= 2,
	};
	struct kvm_sregs sregs;

	if (ioctl(vm->vcpu, KVM_GET_SREGS, &sregs))
		return -1;
	sregs.cs.base = 0;
	sregs.cs.selector = 0;
	return ioctl(vm->vcpu, KVM_SET_SREGS, &sregs) || ioctl(vm->vcpu, KVM_SET_REGS, &regs);
}

FIXTURE(kvm) {
	struct ut_session s;
	struct vm vm;
};

FIXTURE_SETUP(kvm)
{
	self->vm.dev = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	if (self->vm.dev < 0)
		SKIP(return, "/dev/kvm: %s; a CPU with svm, and CONFIG_KVM_AMD?", strerror(errno));
	ASSERT_EQ(0, vm_open(&self->vm)) TH_LOG("%s", strerror(errno));
}

FIXTURE_TEARDOWN(kvm)
{
	ut_close(&self->s);
	munmap(self->vm.run, self->vm.run_size);
	close(self->vm.vcpu);
	close(self->vm.fd);
	close(self->vm.dev);
}

struct call {
	struct ut_stack	st;
	int		vcpu;
	long		ret;
};

static void run_guest(void *arg)
{
	struct call *c = arg;

	c->ret = ut_syscall3(&c->st, __NR_ioctl, c->vcpu, KVM_RUN, 0);
}

static void run_twice(void *arg)
{
	struct call *c = arg;

	run_guest(c);
	run_guest(c + 1);
}

/* The number of the event's samples with this stack; -1 if one has another cookie. */
static int samples_of(struct ut_session *s, int event, __u64 cookie, const struct ut_stack *st)
{
	struct ut_stack got;
	struct ut_rec *r;
	int i, nr = 0;

	for (i = 0; (r = ut_sample(s, event, 0, i)); i++) {
		enum ut_kind kind = ut_user_stack(s, r, &got);

		if ((kind != UT_DEFERRED && kind != UT_IMMEDIATE) || got.nr != st->nr ||
		    memcmp(got.ip, st->ip, st->nr * sizeof(st->ip[0])))
			continue;
		if (kind == UT_DEFERRED && r->cookie != cookie)
			return -1;
		nr++;
	}
	return nr;
}

/* The cookie of the first deferred sample with this stack; 0: there is none. */
static __u64 cookie_of(struct ut_session *s, int event, const struct ut_stack *st)
{
	struct ut_stack got;
	struct ut_rec *r;
	int i;

	for (i = 0; (r = ut_sample(s, event, 0, i)); i++) {
		enum ut_kind kind = ut_user_stack(s, r, &got);

		if (kind == UT_DEFERRED && got.nr == st->nr &&
		    !memcmp(got.ip, st->ip, st->nr * sizeof(st->ip[0])))
			return r->cookie;
	}
	return 0;
}

/*
 * Do all samples of the event have the stacks of these two calls? With @cookies, each call
 * must have its own cookie; without, the samples must be immediate.
 */
static bool one_stack_a_run(struct ut_session *s, int event, const struct call *c, bool cookies)
{
	unsigned int all = ut_count_samples(s, event, 0);
	__u64 cookie[2];
	int i, nr[2];

	for (i = 0; i < 2; i++) {
		cookie[i] = cookie_of(s, event, &c[i].st);
		nr[i] = samples_of(s, event, cookie[i], &c[i].st);
	}
	if (cookies != !!cookie[0] || cookies != !!cookie[1] ||
	    (cookies && cookie[0] == cookie[1]) || nr[0] < GUEST_EXITS ||
	    nr[1] < GUEST_EXITS || nr[0] + nr[1] != (int)all) {
		ut_diag("%u samples: %d of %llx, %d of %llx", all, nr[0], cookie[0], nr[1],
			cookie[1]);
		return false;
	}
	return true;
}

/* Samples from the begin of the system call to its end. */
TEST_F(kvm, many_exits)
{
	struct call c[2] = { { .vcpu = self->vm.vcpu }, { .vcpu = self->vm.vcpu } };
	int enter, leave, exit, i;
	__u64 cookie;

	ASSERT_EQ(0, vm_start(&self->vm, guest_exits));
	ASSERT_EQ(0, ut_open(&self->s, &self_task));
	enter = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_ioctl");
	leave = ut_add_tracepoint(&self->s, "syscalls", "sys_exit_ioctl");
	ASSERT_LE(0, ut_add_tracepoint(&self->s, "kvm", "kvm_entry"));
	exit = ut_add_tracepoint(&self->s, "kvm", "kvm_exit");
	ASSERT_EQ(0, ut_profile_ladder(&self->s, 7, run_twice, c));
	for (i = 0; i < 2; i++)
		ASSERT_EQ(0, c[i].ret);
	ASSERT_EQ(KVM_EXIT_IO, self->vm.run->exit_reason);

	for (i = 0; i < 2; i++) {
		/* This stack was walked before the guest's first run. */
		cookie = cookie_of(&self->s, enter, &c[i].st);
		EXPECT_NE(0, cookie);
		EXPECT_EQ(1, samples_of(&self->s, enter, cookie, &c[i].st));
		EXPECT_LE(GUEST_EXITS, samples_of(&self->s, exit, cookie, &c[i].st));
		EXPECT_EQ(1, samples_of(&self->s, leave, cookie, &c[i].st));
	}
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* Samples with interrupts off, after the last check for task work: they are immediate. */
TEST_F(kvm, sampled_at_the_entry)
{
	struct call c[2] = { { .vcpu = self->vm.vcpu }, { .vcpu = self->vm.vcpu } };
	int entry;

	ASSERT_EQ(0, vm_start(&self->vm, guest_exits));
	ASSERT_EQ(0, ut_open(&self->s, &self_task));
	entry = ut_add_tracepoint(&self->s, "kvm", "kvm_entry");
	ASSERT_EQ(0, ut_profile_ladder(&self->s, 7, run_twice, c));
	EXPECT_TRUE(one_stack_a_run(&self->s, entry, c, false));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* Samples by an NMI, between two runs of the guest in one call. */
TEST_F(kvm, sampled_by_nmi)
{
	struct call c[2] = { { .vcpu = self->vm.vcpu }, { .vcpu = self->vm.vcpu } };
	int func;

	ASSERT_EQ(0, vm_start(&self->vm, guest_exits));
	ASSERT_EQ(0, ut_open(&self->s, &self_task));
	func = ut_add_function(&self->s, "kvm_emulate_cpuid");
	ASSERT_EQ(0, ut_profile_ladder(&self->s, 7, run_twice, c));
	EXPECT_TRUE(one_stack_a_run(&self->s, func, c, true));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* Another thread, which acts while the guest runs. */
struct other {
	struct ut_session	*s;
	struct vm		*vm;
	pid_t			tid;
	pthread_t		vcpu;
	bool			disable;
	unsigned int		records;
	int			err;
};

/* Run the guest on a ladder, beside another thread. */
static int run_beside(void *(*act)(void *), struct other *o, struct call *c)
{
	pthread_t id;

	if (pthread_create(&id, NULL, act, o) || ut_ladder(7, run_guest, c) ||
	    pthread_join(id, NULL))
		return -1;
	return o->err;
}

/* Wait until the guest runs. */
static int wait_guest(struct other *o)
{
	int i;

	for (i = 0; i < 10000 && !UT_READ(o->vm->mem[GUEST_FLAG]); i++)
		usleep(1000);
	return UT_READ(o->vm->mem[GUEST_FLAG]) ? 0 : -1;
}

/*
 * Wait until a thread has left the run queue. Its state changes some time before that, see
 * set_current_state(). But its wchan can only be read afterwards. The switch follows at once,
 * though the host may let its CPU wait.
 */
static bool wait_asleep(pid_t tid)
{
	char path[64], where[64];
	ssize_t n;
	int i, fd;

	snprintf(path, sizeof(path), "/proc/%d/wchan", tid);
	for (i = 0; i < 10000; i++) {
		fd = open(path, O_RDONLY | O_CLOEXEC);
		n = read(fd, where, sizeof(where));
		close(fd);
		if (n > 1 && ut_task_state(tid) == 'S')
			return true;
		usleep(1000);
	}
	ut_diag("%s: not asleep", path);
	return false;
}

static void *wake_guest(void *arg)
{
	struct kvm_msi msi = { .address_lo = MSI_ADDRESS, .data = MSI_NMI };
	struct other *o = arg;
	int i;

	/* When the guest halts, the thread of the vCPU sleeps in KVM_RUN. */
	o->err = wait_guest(o);
	if (!o->err && !wait_asleep(o->tid))
		o->err = -1;
	if (!o->err && o->disable) {
		/* The stack is handed out at the switch. */
		for (i = 0; i < 10000 && !o->err && !o->records; i++) {
			usleep(1000);
			o->err = ut_drain(o->s);
			o->records = ut_count(o->s, UT_RECORD_CALLCHAIN_DEFERRED, o->tid);
		}
		ut_disable(o->s);
		/* Disabling the events has not woken the thread. */
		if (ut_task_state(o->tid) != 'S')
			o->err = -1;
	}
	if (ioctl(o->vm->fd, KVM_SIGNAL_MSI, &msi) != 1) {
		ut_diag("the vCPU has no APIC: %s", strerror(errno));
		o->err = -1;
	}
	return NULL;
}

/* When the guest halts, the thread of the vCPU sleeps in the system call. */
TEST_F(kvm, halted)
{
	struct other o = { .vm = &self->vm, .tid = gettid() };
	struct call c = { .vcpu = self->vm.vcpu };
	int halt, sleeps, wakes;
	__u64 cookie;

	ASSERT_EQ(0, vm_start(&self->vm, guest_halts));
	ASSERT_EQ(0, ut_open(&self->s, &self_task));
	halt = ut_add_function(&self->s, "kvm_vcpu_halt");
	sleeps = ut_add_tracepoint(&self->s, "sched", "sched_switch");
	wakes = ut_add_tracepoint(&self->s, "kvm", "kvm_vcpu_wakeup");
	ASSERT_EQ(0, ut_enable(&self->s));
	ASSERT_EQ(0, run_beside(wake_guest, &o, &c));
	ASSERT_EQ(0, ut_stop(&self->s));
	ASSERT_EQ(0, c.ret);
	ASSERT_EQ(KVM_EXIT_IO, self->vm.run->exit_reason);

	ASSERT_EQ(1, ut_count_samples(&self->s, halt, 0));
	cookie = cookie_of(&self->s, halt, &c.st);
	ASSERT_NE(0, cookie);
	EXPECT_LE(1, samples_of(&self->s, sleeps, cookie, &c.st));
	EXPECT_LE(1, ut_count_samples(&self->s, wakes, 0));
	EXPECT_EQ(ut_count_samples(&self->s, wakes, 0),
		  samples_of(&self->s, wakes, cookie, &c.st));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* K11: if the profile ends while the thread sleeps, its record has been written. */
TEST_F(kvm, profile_ends_while_halted)
{
	struct other o = { .s = &self->s, .vm = &self->vm, .tid = gettid(), .disable = true };
	struct call c = { .vcpu = self->vm.vcpu };
	int halt;

	ASSERT_EQ(0, vm_start(&self->vm, guest_halts));
	ASSERT_EQ(0, ut_open(&self->s, &self_task));
	halt = ut_add_function(&self->s, "kvm_vcpu_halt");
	ASSERT_EQ(0, ut_enable(&self->s));
	ASSERT_EQ(0, run_beside(wake_guest, &o, &c));
	ASSERT_EQ(0, c.ret);
	ASSERT_EQ(0, ut_drain(&self->s));
	EXPECT_EQ(1, o.records);
	EXPECT_EQ(1, ut_count(&self->s, UT_RECORD_CALLCHAIN_DEFERRED, 0));
	EXPECT_TRUE(ut_stack_is(&self->s, ut_sample(&self->s, halt, 0, 0), &c.st));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

static void *stop_guest(void *arg)
{
	struct other *o = arg;

	o->err = wait_guest(o);
	usleep(500000);
	__atomic_store_n(&o->vm->mem[GUEST_STOP], 1, __ATOMIC_RELEASE);
	return NULL;
}

/* A sample of an interrupt of the guest is in the guest, and has no user stack. */
TEST_F(kvm, interrupts_of_the_guest)
{
	/* The guest may run for longer where the other thread's CPU stands still. */
	const struct ut_opts opts = { .pid = 0, .switches = true, .pages = 1024 };
	unsigned int i, guest = 0, kernel = 0;
	struct other o = { .vm = &self->vm };
	struct call c = { .vcpu = self->vm.vcpu };
	struct ut_stack got;
	struct ut_rec *r;
	int exit, clock;
	__u64 cookie;

	ASSERT_EQ(0, vm_start(&self->vm, guest_spins));
	ASSERT_EQ(0, ut_open(&self->s, &opts));
	exit = ut_add_tracepoint(&self->s, "kvm", "kvm_exit");
	clock = ut_add_software(&self->s, PERF_COUNT_SW_CPU_CLOCK, 1000000);
	ASSERT_EQ(0, ut_enable(&self->s));
	ASSERT_EQ(0, run_beside(stop_guest, &o, &c));
	ASSERT_EQ(0, ut_stop(&self->s));
	ASSERT_EQ(0, c.ret);

	/*
	 * Exits have interrupts off. They are immediate, unless the clock has hit the thread in
	 * the kernel before.
	 */
	cookie = cookie_of(&self->s, exit, &c.st) ?: cookie_of(&self->s, clock, &c.st);
	EXPECT_EQ(ut_count_samples(&self->s, exit, 0),
		  samples_of(&self->s, exit, cookie, &c.st));
	for (i = 0; (r = ut_sample(&self->s, clock, 0, i)); i++) {
		kernel += ut_user_stack(&self->s, r, &got) != UT_NO_STACK;
		if ((r->misc & PERF_RECORD_MISC_CPUMODE_MASK) != PERF_RECORD_MISC_GUEST_KERNEL)
			continue;
		guest++;
		EXPECT_EQ(UT_NO_STACK, ut_user_stack(&self->s, r, &got));
		EXPECT_LE(GUEST_CODE, r->ip);
		EXPECT_GT(GUEST_CODE + (guest_end - guest_code), r->ip);
	}
	TH_LOG("%u samples, %u of the guest, %u of its thread in KVM_RUN", i, guest, kernel);
	EXPECT_LE(3, guest);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

static void *profile_guest(void *arg)
{
	struct other *o = arg;

	o->err = wait_guest(o) ?: ut_enable(o->s);
	usleep(100000);
	ut_disable(o->s);
	__atomic_store_n(&o->vm->mem[GUEST_STOP], 1, __ATOMIC_RELEASE);
	return NULL;
}

/*
 * If the first sample in a call is of the guest, it must not request the stack of the
 * thread. So the events are enabled when the guest runs already. There are several runs,
 * since the first sample may still hit KVM outside of the guest.
 */
TEST_F(kvm, first_sample_is_of_the_guest)
{
	unsigned int i, run, all, guest = 0, first = 0;
	struct other o = { .s = &self->s, .vm = &self->vm };
	struct call c = { .vcpu = self->vm.vcpu };
	struct ut_stack got;
	struct ut_rec *r;
	int clock;

	ASSERT_EQ(0, ut_open(&self->s, &self_task));
	clock = ut_add_software(&self->s, PERF_COUNT_SW_CPU_CLOCK, 1000000);
	for (run = 0; run < GUEST_RUNS; run++) {
		ASSERT_EQ(0, vm_start(&self->vm, guest_spins));
		self->vm.mem[GUEST_FLAG] = 0;
		self->vm.mem[GUEST_STOP] = 0;
		ASSERT_EQ(0, run_beside(profile_guest, &o, &c));
		ASSERT_EQ(0, c.ret);
		all = ut_count_samples(&self->s, clock, 0);
		ASSERT_EQ(0, ut_drain(&self->s));
		for (i = all; (r = ut_sample(&self->s, clock, 0, i)); i++) {
			if ((r->misc & PERF_RECORD_MISC_CPUMODE_MASK) !=
			    PERF_RECORD_MISC_GUEST_KERNEL)
				continue;
			guest++;
			first += i == all;
			EXPECT_EQ(UT_NO_STACK, ut_user_stack(&self->s, r, &got));
		}
	}
	TH_LOG("%u samples, %u of the guest, the first of %u runs of %u", i, guest, first, run);
	EXPECT_LE(3, guest);
	EXPECT_LE(1, first);
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

static void *kick_guest(void *arg)
{
	struct other *o = arg;

	o->err = wait_guest(o) ?: pthread_kill(o->vcpu, SIGUSR1);
	return NULL;
}

static void nothing(int sig)
{
}

/* K10: a signal ends the system call, and its delivery belongs to the same entry. */
TEST_F(kvm, signal_ends_the_run)
{
	struct other o = { .vm = &self->vm, .vcpu = pthread_self() };
	struct sigaction act = { .sa_handler = nothing };
	struct call c = { .vcpu = self->vm.vcpu };
	struct ut_rec *r;
	int enter, exit, deliver;

	ASSERT_EQ(0, sigaction(SIGUSR1, &act, NULL));
	ASSERT_EQ(0, vm_start(&self->vm, guest_spins));
	ASSERT_EQ(0, ut_open(&self->s, &self_task));
	enter = ut_add_tracepoint(&self->s, "syscalls", "sys_enter_ioctl");
	exit = ut_add_tracepoint(&self->s, "kvm", "kvm_exit");
	deliver = ut_add_tracepoint(&self->s, "signal", "signal_deliver");
	ASSERT_EQ(0, ut_enable(&self->s));
	ASSERT_EQ(0, run_beside(kick_guest, &o, &c));
	ASSERT_EQ(0, ut_stop(&self->s));
	ASSERT_EQ(-EINTR, c.ret);
	/* The first two ioctl() calls enable the other two events. */
	r = ut_sample(&self->s, enter, 0, 2);
	ASSERT_TRUE(ut_stack_is(&self->s, r, &c.st));
	EXPECT_EQ(ut_count_samples(&self->s, exit, 0),
		  samples_of(&self->s, exit, r->cookie, &c.st));
	EXPECT_EQ(1, samples_of(&self->s, deliver, r->cookie, &c.st));
	EXPECT_EQ(0, ut_check(&self->s, 0));
}

/* A worker of KVM uses the memory of the process, and has no user stack. */
TEST_F(kvm, worker_without_user_stack)
{
	static const struct ut_opts all = { .pid = -1, .per_cpu = true, .pages = 512 };
	struct call c = { .vcpu = self->vm.vcpu };
	struct ut_stack got;
	struct ut_rec *r;
	unsigned int i;
	pid_t tid;
	int tp;

	ASSERT_EQ(0, vm_start(&self->vm, guest_exits));
	ASSERT_EQ(0, ut_open(&self->s, &all));
	tp = ut_add_tracepoint(&self->s, "sched", "sched_switch");
	ASSERT_EQ(0, ut_enable(&self->s));
	/* The first run creates the worker. */
	ASSERT_EQ(0, ut_ladder(7, run_guest, &c));
	ASSERT_EQ(0, c.ret);
	tid = ut_thread_named("kvm-");
	ASSERT_NE(0, tid);
	ASSERT_TRUE(wait_asleep(tid));
	ASSERT_EQ(0, ut_stop(&self->s));
	for (i = 0; (r = ut_sample(&self->s, tp, tid, i)); i++)
		EXPECT_EQ(UT_NO_STACK, ut_user_stack(&self->s, r, &got));
	EXPECT_LT(0, i);
	EXPECT_EQ(0, ut_count(&self->s, UT_RECORD_CALLCHAIN_DEFERRED, tid));
	EXPECT_EQ(0, ut_check(&self->s, ut_allow_lost(&self->s)));
}

int main(int argc, char **argv)
{
	ut_need_root();
	return test_harness_run(argc, argv);
}

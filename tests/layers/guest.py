# SPDX-License-Identifier: GPL-2.0
"""The runner of guests, qemu/run: exit status, faults, hangs, its time limit."""

import os
import re
import sys

from common import TOP
from layer import Layer
from runner import Runner

sys.path.insert(0, os.path.join(TOP, "qemu"))
import console  # noqa: E402

# A line of each kind, as the kernel prints it; at least one a pattern.
REPORTS = (
    ("warning", "WARNING: CPU: 1 PID: 42 at kernel/events/core.c:1234 f+0x1"),
    ("warning", "------------[ cut here ]------------ WARNING: CPU: 1 PID: 4"),
    ("bug", "BUG: unable to handle page fault for address: ffff888000000000"),
    ("bug", "BUG kmalloc-64 (Not tainted): Poison overwritten"),
    ("bug", "BUG: MAX_LOCKDEP_ENTRIES too low!"),
    ("bug", "=====[ BUG: something ]"),
    ("bug", "kernel BUG at kernel/unwind/deferred.c:42!"),
    ("lockup", "watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [a.out:42]"),
    ("lockup", "watchdog: Watchdog detected hard LOCKUP on cpu 1"),
    ("lockup", "BUG: workqueue lockup - pool cpus=1 node=0 flags=0x0 nice=0"),
    ("kasan", "BUG: KASAN: slab-use-after-free in unwind_deferred_request+0x1"),
    ("kasan", "BUG: KASAN: slab-out-of-bounds in buffer_get+0x1/0x2"),
    ("kasan", "KASAN: null-ptr-deref in range [0x0000000000000000-0x7]"),
    ("kasan", "BUG: KFENCE: use-after-free read in f+0x1/0x2"),
    ("kcsan", "BUG: KCSAN: data-race in a / b"),
    ("kcsan", "BUG: KCSAN: assert: race in a / b"),
    ("ubsan", "UBSAN: array-index-out-of-bounds in kernel/unwind/user.c:1:2"),
    ("ubsan", "UBSAN: shift-out-of-bounds in kernel/unwind/deferred.c:1:2"),
    ("oops", "Oops: 0000 [#1] PREEMPT SMP"),
    ("oops", "Oops: general protection fault, probably for non-canonical"),
    ("oops", "general protection fault, probably for non-canonical address"),
    ("oops", "Internal error: Oops: 96000004 [#1] SMP"),
    ("oops", "traps: Kernel stack is corrupted in: f"),
    ("oops", "unchecked MSR access error: RDMSR from 0x1 at rIP: 0x1"),
    ("panic", "Kernel panic - not syncing: Attempted to kill init!"),
    ("panic", "---[ end Kernel panic - not syncing: Attempted to kill init! ]"),
    ("rcu stall", "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:"),
    ("rcu stall", "rcu: INFO: rcu_preempt self-detected stall on CPU"),
    ("rcu stall", "rcu: INFO: rcu_sched detected expedited stalls on x"),
    ("rcu stall", "INFO: rcu_tasks detected stalls on tasks: stall"),
    ("rcu stall", "rcu: rcu_preempt kthread starved for 2100 jiffies! g1 f0x0"),
    ("hung task", "INFO: task a.out:42 blocked for more than 120 seconds."),
    ("hung task", "INFO: task a.out:42 blocked on a mutex"),
    ("lockdep", "WARNING: possible circular locking dependency detected"),
    ("lockdep", "WARNING: possible recursive locking detected"),
    ("lockdep", "WARNING: inconsistent lock state"),
    ("lockdep", "WARNING: possible irq lock inversion dependency detected"),
    ("lockdep", "WARNING: HARDIRQ-safe -> HARDIRQ-unsafe lock order detected"),
    ("lockdep", "WARNING: suspicious RCU usage"),
    ("lockdep", "[ BUG: Invalid wait context ]"),
    ("lockdep", "INFO: trying to register non-static key."),
    ("lockdep", "DEBUG_LOCKS_WARN_ON(current->hardirq_context)"),
    ("lockdep", "WARNING: lock held when returning to user space!"),
    ("lockdep", "WARNING: bad unlock balance detected!"),
    ("lockdep", "WARNING: held lock freed!"),
    ("lockdep", "WARNING: a.out/42 still has locks held!"),
    ("lockdep", "turning off the locking correctness validator."),
    ("lockdep", "INFO: lockdep is turned off."),
    ("sleep", "BUG: sleeping function called from invalid context at x.c:1"),
    ("sleep", "BUG: scheduling while atomic: a.out/42/0x00000002"),
    ("preempt", "BUG: using smp_processor_id() in preemptible [00000000] code"),
    ("debug objects", "ODEBUG: free active (active state 0) object: 1 x"),
    ("debug objects", "ODEBUG: Out of memory. ODEBUG disabled"),
    ("kmemleak", "kmemleak: 2 new suspected memory leaks (see /sys/kernel/deb"),
    ("kmemleak", "kmemleak: Kernel memory leak detector disabled"),
    ("memory", "list_del corruption. prev->next should be x, but was y"),
    ("memory", "list_add corruption. prev->next should be x, but was y"),
    ("memory", "refcount_t: underflow; use-after-free."),
    ("memory", "corrupted stack end detected inside scheduler"),
    ("init", "init: mount dev on /dev: No such device"),
)
HARMLESS = (
    "printk: legacy console [ttyS0] enabled",
    "traps: a.out[42] general protection fault ip:1 sp:2 error:0 in a.out",
    "a.out[42]: segfault at 0 ip 1 sp 2 error 4 in a.out[3+4]",
    "rcu: Preemptible hierarchical RCU implementation.",
    "rcu: RCU calculated value of scheduler-enlistment delay is 10 jiffies.",
    "perf: interrupt took too long (2501 > 2500), lowering to 79000",
    "x86/fpu: Supporting XSAVE feature 0x001: 'x87 floating point registers'",
    "Spectre V2 : Mitigation: Retpolines",
    "# Subtest: a_test_about_BUG_lines",
    "debugfs: no WARNING",
    "kasan: KernelAddressSanitizer initialized",
    "kcsan: enabled early",
    "kmemleak: Kernel memory leak detector initialized (mem pool available: 1)",
    "kmemleak: Automatic memory scanning thread started",
    "kmemleak: Cannot allocate a scan area, scanning the full object",
    "Lock dependency validator: Copyright (c) 2006 Red Hat, Inc., Ingo Molnar",
    "... MAX_LOCKDEP_SUBCLASSES:  8",
    "Running RCU self tests",
    "NMI watchdog: Enabled. Permanently consumes one hw-PMU counter.",
    "FAULT_INJECTION: forcing a failure.",
)
# As KCSAN reports them: one race with a function of ours on the way, one
# without, one by interrupted accesses of which the other is not known.
RACES = """\
==================================================================
BUG: KCSAN: data-race in task_work_add / task_work_run

write to 0xffff888100000000 of 8 bytes by interrupt on cpu 1:
 task_work_add+0x11/0x22
 our_request+0x33/0x44
 perf_callchain+0x1/0x2

read to 0xffff888100000000 of 8 bytes by task 42 on cpu 0:
 task_work_run+0x11/0x22
 syscall_exit_to_user_mode+0x1/0x2

value changed: 0x0000000000000000 -> 0xffff888100000001

Reported by Kernel Concurrency Sanitizer on:
CPU: 0 PID: 42 Comm: a.out Not tainted 6.12.117 #1
==================================================================
[    3.000000] ==================================================================
[    3.000000] BUG: KCSAN: data-race in tick_sched_do_timer+0x1/0x2
[    3.000000]
[    3.000000] race at unknown origin, with write to 0xff of 8 bytes by task 1
[    3.000000]  tick_sched_do_timer+0x11/0x22
[    3.000000] ==================================================================
[    4.000000]  our_request+0x33/0x44
[    5.000000] BUG: KCSAN: data-race in our_walk.isra.0 / d_walk
"""


def run_guest(layer):
    guest = Runner(layer)
    run, expect = guest.run, guest.expect

    def kinds():
        for kind, line in REPORTS:
            for prefix in ("", "[   12.345678] ", "[   12.345678][  T123] "):
                assert console.kind_of(prefix + line) == kind, \
                    (prefix + line, console.kind_of(prefix + line))
        for line in HARMLESS:
            assert console.kind_of("[    1.000000] " + line) is None, line
        found = console.reports("\n".join(r for _, r in REPORTS), ["WARNING"])
        assert found and not any("WARNING" in f[2] for f in found), found
        # no pattern without a line that is told by it
        used = {next(i for i, (_, pattern) in enumerate(console.REPORTS)
                     if re.match(pattern, line)) for _, line in REPORTS}
        assert used == set(range(len(console.REPORTS))), \
            [console.REPORTS[i] for i in
             set(range(len(console.REPORTS))) - used]

    def races():
        ours, elsewhere = {"our_request", "our_walk"}, []
        found = console.reports(RACES, (), ours, elsewhere)
        assert [f[0] for f in found] == [2, 25], found
        assert len(elsewhere) == 1 and "tick_sched" in elsewhere[0], elsewhere
        assert len(console.reports(RACES)) == 3
        assert not console.reports(RACES, (), {"our"})

    layer.test("the parser knows each kind of report, and what is none",
               kinds)
    layer.test("a data race is told by the functions that it names", races)

    def stopping():
        warning = "\n".join((
            "[  210.943451] ------------[ cut here ]------------",
            "[  210.944188] sched: Unexpected reschedule of offline CPU#1!",
            "[  210.945192] WARNING: CPU: 3 PID: 0 at arch/x86/kernel/apic/ipi"
            ".c:70 native_smp_send_reschedule+0x33/0x40"))
        for said in ("[  210.940000] reboot: Power down",
                     "[  210.940000][    T1] reboot: System halted"):
            for text, reports in ((f"{said}\n{warning}", 0),
                                  (f"{warning}\n{said}", 1), (warning, 1),
                                  (f"{warning}\n{said}\n{warning}", 1)):
                text = console.until_power_off(text)
                assert len(console.reports(text)) == reports, text

    layer.test("what stops is not heard, what was said before is", stopping)

    def statuses():
        expect(run("status", "echo out; echo err >&2; exit 3"), 3,
               "out\nerr\n")
        expect(run("signal", "kill -9 $$"), 137, "")

    layer.test("the command's output and exit status are handed back",
               statuses)

    def reported():
        for kind, line in REPORTS:
            assert "'" not in line
        lines = "; ".join(f"echo '{line}' >/dev/kmsg" for _, line in REPORTS)
        result = run("reports", lines + "; echo fine")
        expect(result, 125, "fine\n", ("the guest's kernel reports",))
        with open(layer.log("reports.console")) as f:
            found = {text for _, _, text in console.reports(f.read())}
        for _, line in REPORTS:
            assert any(line in text for text in found), line
        # one alone is enough, and is shown
        expect(run("kasan", "echo 'BUG: KASAN: x' >/dev/kmsg"), 125, "",
               ("BUG: KASAN: x",))
        expect(run("allowed", "--allow", "KASAN: expected",
                   "echo 'BUG: KASAN: expected' >/dev/kmsg"), 0, "")

    layer.test("a report on the console fails the run and is shown", reported)

    def hangs():
        expect(run("hang", "--timeout", "10", "echo begun; sleep 1000"), 124,
               "begun\n", ("time limit of 10 s is over, ",
                          " s after its last output; --timeout (make: "
                          "TIMEOUT=) gives it more"))

    layer.test("a guest that hangs is ended at the time limit", hangs)

    def goes_down():
        # a reset does not wait for what is on its way out: hence the sleep
        expect(run("down", "echo begun; sleep 3; echo b >/proc/sysrq-trigger; "
                   "sleep 100"), 125, "begun\n",
               ("without saying that it was done",))
        expect(run("panic", "echo c >/proc/sysrq-trigger; sleep 100"), 125,
               "", ("Kernel panic",))
        expect(run("early", "--append", "rdinit=/none init=/none", "true"),
               125, "", ("without saying that it was done",))

    layer.test("a guest that goes down without a word is a failure",
               goes_down)


LAYER = Layer(__name__, "the runner: exit status, faults, hangs, time limit",
              run_guest, needs=("kernel",))

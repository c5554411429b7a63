# SPDX-License-Identifier: GPL-2.0
"""The runner of guests, qemu/run: exit status, faults, hangs, its time limit."""

import os
import re
import sys

from common import TOP
from layer import Layer
from runner import REPORTS, Runner

sys.path.insert(0, os.path.join(TOP, "qemu"))
import console  # noqa: E402

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
# As KCSAN reports them: a race with a function of ours in a stack, one without, and one
# whose other access is not known.
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

    layer.test("reports after power-off do not count, earlier ones do", stopping)

    def statuses():
        expect(run("status", "echo out; echo err >&2; exit 3"), 3,
               "out\nerr\n")

    layer.test("the command's output and exit status are handed back",
               statuses)

    def reported():
        expect(run("kasan", "echo 'BUG: KASAN: x' >/dev/kmsg; echo fine"), 125,
               "fine\n", ("the guest's kernel reports", "BUG: KASAN: x"))

    layer.test("a report on the console fails the run and is shown", reported)

    def hangs():
        # on a slow machine it may not be up by then, which is no other matter
        expect(run("hang", "--timeout", "10", "sleep 1000"), 124, "",
               ("time limit of 10 s is over, ", " s after its last output; "
                "--timeout (make: TIMEOUT=) gives it more"))

    layer.test("a guest that hangs is ended at the time limit", hangs)

    def goes_down():
        # a reset does not wait for what is on its way out: hence the sleep
        expect(run("down", "echo begun; sleep 3; echo b >/proc/sysrq-trigger; "
                   "sleep 100"), 125, "begun\n",
               ("without saying that it was done",))

    layer.test("a guest that goes down without a word is a failure",
               goes_down)


LAYER = Layer(__name__, "the runner: exit status, faults, hangs, time limit",
              run_guest, needs=("kernel",))

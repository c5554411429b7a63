# SPDX-License-Identifier: GPL-2.0
"""qemu/run, to be tested itself."""

import os
import subprocess

from common import TOP, Failure

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


class Runner:
    """qemu/run, with the kernel that was built."""

    def __init__(self, layer):
        self.layer = layer

    def run(self, name, *args):
        layer = self.layer
        result = subprocess.run(
            [os.path.join(TOP, "qemu", "run"), "--build", layer.check.build,
             "--kernel", layer.check.bzimage, "--timeout", "60", "--log",
             layer.log(name + ".console"), *args], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            errors="replace", cwd=TOP)
        with open(layer.log(name + ".log"), "w") as f:
            f.write(f"{result.stdout}\n--- {result.returncode}\n"
                    f"{result.stderr}")
        return result

    @staticmethod
    def expect(result, status, out=None, says=()):
        said = f"status {result.returncode}\n{result.stdout[-800:]}\n" \
               f"{result.stderr[-1500:]}"
        if result.returncode != status:
            raise Failure(f"status {status} is wanted: {said}")
        if out is not None and result.stdout != out:
            raise Failure(f"{out!r} is wanted: {said}")
        for words in says:
            if words not in result.stderr:
                raise Failure(f"{words!r} is not said: {said}")

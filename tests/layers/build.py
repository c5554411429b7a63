# SPDX-License-Identifier: GPL-2.0
"""The tree, the kernel and perf are built, without a warning in our files."""

import os

from builds import FIRST, touched_files
from common import Failure, read_series
from layer import Layer, fail

# and DEBUG_INFO not
GUEST_OPTIONS = """
    SMP PREEMPT IA32_EMULATION PERF_EVENTS HIGH_RES_TIMERS FTRACE_SYSCALLS
    KPROBE_EVENTS UPROBE_EVENTS BPF_SYSCALL USERFAULTFD SECCOMP_FILTER
    CGROUP_PERF NAMESPACES IO_URING HOTPLUG_CPU SWAP MODULES MODIFY_LDT_SYSCALL
    KUNIT DEBUG_FS NET_9P_VIRTIO 9P_FS KALLSYMS_ALL
""".split()


def run_build(layer):
    check, builds = layer.check, layer.check.builds

    layer.test("the series is there", lambda: read_series()
               or fail("patches/*/series name no patch"))

    def no_warning(name):
        warnings = [line.rstrip() for line in builds.logs[name].split("\n")
                    if "warning:" in line]
        mine = [w for w in warnings
                if any(w.split(":")[0].endswith(path) or
                       path.endswith("/" + w.split(":")[0].lstrip("./"))
                       for path in touched_files())]
        if mine:
            raise Failure("\n".join(mine))

    for goal in FIRST:
        if goal in builds.goals:
            layer.test(f"make {goal}", builds.wait, goal)
        if goal in builds.logs:
            layer.test(f"no warning in a file of the series: {goal}",
                       no_warning, goal)
    if "kernel" not in builds.logs:
        return

    def options():
        with open(os.path.join(check.build, "kernel", ".config")) as f:
            have = set(f.read().split("\n"))
        missing = [o for o in GUEST_OPTIONS if f"CONFIG_{o}=y" not in have]
        if missing or "CONFIG_DEBUG_INFO=y" in have:
            raise Failure(f"build/kernel/.config: not {missing}, or debug "
                          "information")

    layer.test("the guest's kernel has what others rely on", options)


LAYER = Layer(__name__, "the tree, the kernel, perf",
              run_build, lambda _: None, needs=())

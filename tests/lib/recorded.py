# SPDX-License-Identifier: GPL-2.0
"""Running the programs of tests/guest, each in a guest of its own."""

import os

from common import TOP, TREE_NAME, call

# The guest's own memory, not the host's directory: there what perf record
# --switch-output had written was once gone, it seems by a signal in 9p's way.
OUT = "/run/roundtrip"
# Without the owner: it is root in the guest, and here whoever runs QEMU.
KEEP = "cp -dR --preserve=mode,timestamps ."
# The test that is of a PMU which only Intel's CPUs have: perf asks for theirs.
AUX_TEST = "auxtrace"
AUX_OPTIONS = ["--qemu=-cpu", "--qemu=max,-fsrm,vendor=GenuineIntel"]


def boot_test(layer, name, programs, out_dir):
    """Runs one executable of tests/guest in a guest of its own; returns boot()'s
    result."""
    os.makedirs(out_dir)
    more = []
    if name == AUX_TEST:
        call([os.path.join(TOP, "scripts", "build"), "aux-pmu"],
             log=layer.log("aux-pmu.log"),
             env=dict(os.environ, BUILD=layer.check.build))
        more = [*AUX_OPTIONS, "--env", f"MODULES={layer.check.build}/aux-pmu"]
    return layer.boot(
        name, f"mkdir {OUT} && cd {OUT} && {TOP}/tests/guest/{name}\n"
        f"status=$?; {KEEP} {out_dir} || exit; exit $status",
        "--rw", out_dir, "--env", f"PERF={layer.check.perf}",
        "--env", f"BIN={programs}", "--env", f"OUT={OUT}",
        "--env", f"PERF_EXEC_PATH={layer.check.build}/{TREE_NAME}"
        "/tools/perf", "--patches-code", *more, smp=4, timeout=2700)


# The programs that the layer readers runs in the guest.
RECORDER = "recordings"

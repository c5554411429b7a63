# SPDX-License-Identifier: GPL-2.0
"""Running the programs of tests/guest, each in a guest of its own."""

import os

from common import TOP, TREE_NAME

# The guest's own memory. In the host's directory a file of perf record --switch-output
# was lost once: a signal seems to have interrupted 9p.
OUT = "/run/roundtrip"
# Without the owner: it is root in the guest, and here whoever runs QEMU.
KEEP = "cp -dR --preserve=mode,timestamps ."


def boot_test(layer, name, programs, out_dir, *options):
    """Runs one executable of tests/guest in a guest of its own; returns boot()'s
    result.

    It finds perf in $PERF, the workload in $BIN (workload for 64 bits, workload.32 for
    32), and writes into $OUT, where it is started, and which is copied into @out_dir
    when it is done. It speaks TAP, or its exit status is the result (0 passed, 4
    skipped).
    """
    os.makedirs(out_dir)
    return layer.boot(
        name, f"mkdir {OUT} && cd {OUT} && {TOP}/tests/guest/{name}\n"
        f"status=$?; {KEEP} {out_dir} || exit; exit $status",
        "--rw", out_dir, "--env", f"PERF={layer.check.perf}",
        "--env", f"BIN={programs}", "--env", f"OUT={OUT}",
        "--env", f"SERIES={os.environ.get('SERIES', '')}",
        "--env", f"PERF_EXEC_PATH={layer.check.build}/{TREE_NAME}"
        "/tools/perf", "--patches-code", *options, smp=4, timeout=2700)

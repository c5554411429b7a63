# SPDX-License-Identifier: GPL-2.0
"""The commands that only read perf.data, on this machine (tests/perf)."""

import os
import subprocess

from common import TOP, TREE_NAME
from layer import Layer, tell
from programs import programs_of
from recorded import boot_test

# makes the recordings, in tests/guest
RECORDER = "recordings"


def run_readers(layer):
    """Tests the commands that read perf.data, on this machine: recordings of the guest,
    and files made without one."""
    programs = programs_of(layer)
    recorded = os.path.join(layer.dir, "recordings.out")
    tell(layer, RECORDER, *boot_test(layer, RECORDER, programs, recorded))
    made = os.path.join(layer.dir, "synthetic.out")
    os.makedirs(made)
    # without the settings of the user
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("PERF_", "DEBUGINFOD_"))}
    environment.update(
        PERF=layer.check.perf, BIN=programs, PERF_CONFIG="/dev/null",
        ALL="1" if layer.check.all else "",
        PERF_EXEC_PATH=f"{layer.check.build}/{TREE_NAME}/tools/perf")
    for name, directory in ("recorded", recorded), ("synthetic", made):
        log = layer.log(f"{name}.log")
        with open(log, "w") as f:
            status = subprocess.run(
                ["timeout", "--kill-after=10", "1200",
                 os.path.join(TOP, "tests", "perf", name)], cwd=directory, stdout=f,
                stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT,
                env=dict(environment, OUT=directory, HOME=directory)).returncode
        with open(log, errors="replace") as f:
            tell(layer, name, status, f.read(), "")


LAYER = Layer(__name__, "tests/perf: commands that read perf.data, deferred against immediate",
              run_readers)

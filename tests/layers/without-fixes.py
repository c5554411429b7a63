# SPDX-License-Identifier: GPL-2.0
"""The series kernel and perf without perf-fixes: perf is built, and passes its tests."""

import os
import subprocess

from common import TOP, call, read_text
from layer import Layer

LAYERS = ("perf-test", "readers", "bad-input")


def run_without_fixes(layer):
    """Runs layers of perf on a build of its own."""
    build = layer.check.build
    own = os.path.join(build, "without-fixes")
    env = dict(os.environ, BUILD=own, SERIES="kernel perf")
    call([os.path.join(TOP, "scripts", "tree"), "--build", own, "--kernel-src",
          os.path.join(build, "base")], log=layer.log("tree.log"), env=env)
    call([os.path.join(TOP, "scripts", "build"), "perf"], log=layer.log("build.log"),
         env=env)
    # no fix of the kernel changes what perf reads
    if not os.path.lexists(f"{own}/kernel"):
        os.symlink("../kernel", f"{own}/kernel")
    log = layer.log("run.log")
    with open(log, "w") as f:
        status = subprocess.run(
            [os.path.join(TOP, "tests", "run"), "--build", own, "--no-build", *LAYERS],
            env=env, stdin=subprocess.DEVNULL, stdout=f,
            stderr=subprocess.STDOUT).returncode
    results = [result for name in LAYERS for result in
               layer.tap(read_text(f"{own}/check/{name}.tap"), name, log)]
    if status and all(result != "not ok" for _, result, _ in results):
        layer.not_ok(f"tests/run: exit status {status}", f"log: {log}")


LAYER = Layer(__name__, "SERIES='kernel perf': perf is built and passes its tests",
              run_without_fixes, alone=True, rare=True)

# SPDX-License-Identifier: GPL-2.0
"""The fuzzer of the reader of perf.data: inputs that are the same each time."""

import os
import subprocess
import sys

from builds import build
from common import TOP, Failure
from layer import Layer

# what takes a minute on two CPUs
FUZZ_INPUTS = 25000


def run_fuzz(layer):
    """Inputs that are the same each time; make fuzz looks for new ones."""
    check = layer.check
    build("fuzz-session", check, layer.log("build.log"))

    def fuzz():
        result = subprocess.run(
            [sys.executable, os.path.join(TOP, "tests", "perf", "fuzz"), "--build",
             check.build, "--inputs", str(FUZZ_INPUTS)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace")
        if result.returncode:
            raise Failure(result.stdout)

    layer.test(f"{FUZZ_INPUTS} inputs of fuzz-session", fuzz)


LAYER = Layer(__name__, "the reader of perf.data and changed files of the corpus",
              run_fuzz, needs=("perf-fuzz",), rare=True)

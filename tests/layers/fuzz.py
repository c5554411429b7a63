# SPDX-License-Identifier: GPL-2.0
"""The fuzzers of the reader of perf.data and of the code that makes unwinding tables.
Their inputs are the same each time."""

import os
import subprocess
import sys

from builds import build
from common import TOP, Failure, call
from layer import Layer

# these take a minute on two CPUs
FUZZ_INPUTS = 25000
CFI_INPUTS = 20000


def run_fuzz(layer):
    """Inputs that are the same each time; make fuzz and make fuzz-cfi look for new ones."""
    check = layer.check
    build(check, "fuzz-session", layer.log("build.log"))

    def fuzz():
        result = subprocess.run(
            [sys.executable, os.path.join(TOP, "tests", "perf", "fuzz"), "--build",
             check.build, "--inputs", str(FUZZ_INPUTS)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace")
        if result.returncode:
            raise Failure(result.stdout)

    layer.test(f"{FUZZ_INPUTS} inputs of fuzz-session", fuzz)
    build(check, "fuzz-cfi", layer.log("build-cfi.log"))
    where = os.path.join(check.build, "fuzz-cfi")
    # it adds its finds to the first directory
    found = layer.log("found")
    os.makedirs(found, exist_ok=True)
    layer.test(f"{CFI_INPUTS} inputs of fuzz-cfi", call,
               [os.path.join(where, "fuzz-cfi"), f"-runs={CFI_INPUTS}", "-seed=1",
                "-max_len=65536", "-timeout=60", f"-artifact_prefix={layer.dir}/",
                found, os.path.join(where, "corpus")])


LAYER = Layer(__name__, "the reader of perf.data, and tables of ELF files: changed inputs",
              run_fuzz, needs=("perf-fuzz",), rare=True)

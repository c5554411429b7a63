# SPDX-License-Identifier: GPL-2.0
"""A test notices each behaviour that is taken out of the kernel (tests/mutants)."""

import os
import re

from builds import build
from common import TOP, Failure, call
from layer import Layer


def run_mutants(layer):
    """tests/mutants/run: one behaviour after the other is taken out, and the tests
    fail."""
    check = layer.check
    mutants = [os.path.join(TOP, "tests", "mutants", "run"), "--build", check.build]
    if check.may_build:
        call([*mutants, "--edit"], log=layer.log("edit.log"))
        build(check, "kernel-mutants", layer.log("build.log"))
    result = call(mutants, log=layer.log("mutants.log"), check=False)
    found = re.findall(r"^(GREEN|red) +(\S+ +[^:\n]+: .*)\n((?:    .*\n)*)",
                       result.stdout, re.M)
    for colour, name, said in found:
        if colour == "red":
            layer.ok(name)
        else:
            layer.not_ok(name, said)
    if result.returncode and not any(c == "GREEN" for c, _, _ in found) or \
            not found:
        raise Failure(f"status {result.returncode}\n{result.stdout[-2000:]}")


LAYER = Layer(__name__, "a test notices each behaviour that is taken out of the kernel",
              run_mutants, needs=("tree",), alone=True, rare=True)

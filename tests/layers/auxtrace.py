# SPDX-License-Identifier: GPL-2.0
"""perf record with an AUX area beside deferred callchains, in the guest."""

import os

from builds import build
from layer import Layer, tell
from programs import programs_of
from recorded import boot_test

NAME = "auxtrace"
# The PMU is one that only Intel's CPUs have: perf asks for theirs.
OPTIONS = ("--qemu=-cpu", "--qemu=max,-fsrm,vendor=GenuineIntel")


def run_auxtrace(layer):
    check = layer.check
    build(check, "aux-pmu", layer.log("aux-pmu.log"))
    tell(layer, NAME, *boot_test(
        layer, NAME, programs_of(layer), os.path.join(layer.dir, NAME), *OPTIONS,
        "--env", f"MODULES={check.build}/aux-pmu"))


LAYER = Layer(__name__, "perf record with AUX areas: deferred against immediate",
              run_auxtrace, rare=True)

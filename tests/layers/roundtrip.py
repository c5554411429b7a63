# SPDX-License-Identifier: GPL-2.0
"""What runs in the guest (tests/guest): deferred callchains against immediate ones."""

import os

from common import TOP, Failure
from layer import Layer, tell
from programs import programs_of
from recorded import boot_test

# those that other layers run
OTHERS = ("auxtrace", "recordings")


def start_roundtrip(layer):
    """The executables of tests/guest, each in a guest of its own."""
    source = os.path.join(TOP, "tests", "guest")
    tests = [n for n in sorted(os.listdir(source)) if n not in OTHERS and
             os.access(os.path.join(source, n), os.X_OK)]
    if not tests:
        raise Failure("tests/guest has no test")
    programs = programs_of(layer)
    layer.tests = []
    for name in tests:
        layer.tests.append((name, layer.in_lane(
            boot_test, layer, name, programs, os.path.join(layer.dir, name))))


def run_roundtrip(layer):
    for name, guest in layer.tests:
        tell(layer, name, *guest.result())


LAYER = Layer(__name__, "tests/guest: deferred against immediate",
              run_roundtrip, start_roundtrip)

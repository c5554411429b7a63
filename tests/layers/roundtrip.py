# SPDX-License-Identifier: GPL-2.0
"""What runs in the guest (tests/guest): deferred callchains against immediate ones."""

import os

from common import TOP, Failure
from layer import Layer, tell
from programs import programs_of
from recorded import RECORDER, boot_test


def start_roundtrip(layer):
    """The executables of tests/guest, in the guest, each with its own boot, but
    for what the layer readers has there.

    They find perf in $PERF, the workload in $BIN (workload for 64 bits,
    workload.32 for 32), the one that is AUX_TEST its module in
    $MODULES, and write into $OUT, where they are started, and which is copied out
    when they are done. They speak TAP, or their exit status is the result (0
    passed, 4 skipped).
    """
    source = os.path.join(TOP, "tests", "guest")
    names = sorted(os.listdir(source)) if os.path.isdir(source) else []
    tests = [n for n in names if os.access(os.path.join(source, n), os.X_OK)
             and os.path.isfile(os.path.join(source, n)) and n != RECORDER]
    if not tests:
        raise Failure("tests/guest has no test")
    programs = programs_of(layer)
    layer.tests = []
    for name in tests:
        layer.tests.append((name, layer.in_lane(
            boot_test, layer, name, programs, os.path.join(layer.dir, name))))


def run_roundtrip(layer):
    for name, guest in layer.tests:
        try:
            result = guest.result()
        except Failure as failure:
            # the others were there
            layer.not_ok(name, str(failure))
            continue
        tell(layer, name, *result)


LAYER = Layer(__name__, "tests/guest: deferred against immediate",
              run_roundtrip, start_roundtrip)

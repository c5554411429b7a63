# SPDX-License-Identifier: GPL-2.0
"""A kernel without 32-bit programs."""

from guests import run_kselftest, run_kunit
from layer import Layer
from without import same_exit_path, same_instructions


def run_64(layer):
    """A kernel without 32-bit programs tells kernel entries apart in another way. Tests
    it; the few tests of 32-bit programs are skipped, with that reason."""
    names = ("kernel-base-64", "kernel-64")
    kernel = layer.check.kernel(names[1])
    # nothing else there clears bits of the same word
    layer.test("the same code on the way through a system call, but for one `and`",
               same_exit_path, layer, names)
    layer.test("getppid() takes one instruction more", same_instructions, layer,
               names, 1)
    run_kunit(layer, kernel=kernel)
    run_kselftest(layer, kernel=kernel)


LAYER = Layer(__name__, "without 32-bit programs: instructions of a system call, KUnit, kselftests",
              run_64, needs=("kernel", "kernel-base-64", "kernel-64"),
              alone=True, rare=True)

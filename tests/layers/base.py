# SPDX-License-Identifier: GPL-2.0
"""The series against the kernel of the base."""

from layer import Layer
from without import fallback, same_exit_path, same_instructions


def run_base(layer):
    """Compares the series with the base's own kernel."""
    fallback(layer, "", layer.check.kernel("kernel-base"))
    names = ("kernel-base", "kernel")
    layer.test("the same code on the way through a system call, but for a mask",
               same_exit_path, layer, names)
    layer.test("getppid() does not take one instruction more",
               same_instructions, layer, names)


LAYER = Layer(__name__, "on the kernel of the base: perf record; code and instructions of a system call",
              run_base, needs=("kernel", "perf", "kernel-base"), alone=True,
              rare=True)

# SPDX-License-Identifier: GPL-2.0
"""The unwinder's KUnit tests, in the guest."""

from guests import run_kunit
from layer import Layer

LAYER = Layer(__name__, "the KUnit tests of the core, in the guest",
              run_kunit, needs=("kernel",))

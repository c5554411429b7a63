# SPDX-License-Identifier: GPL-2.0
"""KUnit and the kselftests on the debug kernel."""

from guests import add_tests, guests_of, run_guests
from layer import Layer

LAYER = Layer(__name__, "KUnit, kselftests: debug kernel",
              run_guests,
              guests_of("kernel-debug", add_tests),
              needs=("kernel", "kernel-debug"))

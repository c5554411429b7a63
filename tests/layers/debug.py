# SPDX-License-Identifier: GPL-2.0
"""KUnit and the kselftests on the debug kernel."""

from guests import add_kselftests, add_kunit, guests_of, run_guests
from layer import Layer

LAYER = Layer(__name__, "KUnit, kselftests: debug kernel",
              run_guests,
              guests_of("kernel-debug", add_kunit, add_kselftests),
              needs=("kernel", "kernel-debug"))

# SPDX-License-Identifier: GPL-2.0
"""Everything at once, on the debug kernel."""

from guests import add_stress, guests_of, run_guests
from layer import Layer

LAYER = Layer(__name__, "everything at once: debug kernel",
              run_guests,
              guests_of("kernel-debug", add_stress),
              needs=("kernel", "kernel-debug"))

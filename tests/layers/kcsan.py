# SPDX-License-Identifier: GPL-2.0
"""The tests on a kernel that finds data races."""

from guests import (add_failures, add_stress, add_tests, guests_of,
                    run_guests)
from layer import Layer

LAYER = Layer(__name__, "stress, failures, KUnit, kselftests: a kernel that finds data races",
              run_guests,
              guests_of("kernel-kcsan", add_stress, add_failures, add_tests),
              needs=("kernel", "kernel-kcsan"), rare=True)

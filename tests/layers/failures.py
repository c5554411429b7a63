# SPDX-License-Identifier: GPL-2.0
"""Failing allocations and a fuzzer of perf_event_open(), on the debug kernel."""

from guests import add_failures, guests_of, run_guests
from layer import Layer

LAYER = Layer(__name__, "failing allocations, a fuzzer: debug kernel",
              run_guests,
              guests_of("kernel-debug", add_failures),
              needs=("kernel", "kernel-debug"), rare=True)

# SPDX-License-Identifier: GPL-2.0
"""The kselftests of the series, in the guest."""

from guests import run_kselftest
from layer import Layer

LAYER = Layer(__name__, "tools/testing/selftests/unwind, in the guest",
              run_kselftest, needs=("kernel",))

# SPDX-License-Identifier: GPL-2.0
"""perf record where the kernel refuses to defer."""

import os

from common import TOP, call
from layer import Layer
from without import fallback


def run_fallback(layer):
    """Without deferral in the kernel perf works as before, with the messages that the
    manual promises. A preloaded library refuses, on our kernel."""
    refuse = layer.log("refuse.so")
    call(["gcc", "-shared", "-fPIC", "-O2", "-Wall", "-o", refuse,
          os.path.join(TOP, "tests", "guest", "refuse.c"), "-ldl"],
         log=layer.log("build.log"))
    fallback(layer, f"LD_PRELOAD={refuse}", layer.check.bzimage)


LAYER = Layer(__name__, "perf record where a kernel cannot defer, in the guest",
              run_fallback)

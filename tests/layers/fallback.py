# SPDX-License-Identifier: GPL-2.0
"""perf record where the kernel refuses to defer."""

import os
import re

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
    keep_bits(layer, f"LD_PRELOAD={refuse} KEEP_BITS=1")


def keep_bits(layer, setting):
    """On later kernels, which have the attribute bits and no kernel.perf_event_defer,
    perf asks for deferral by name only."""
    perf = layer.check.perf
    _, out = layer.guest(
        "bits", "for words in -g '--call-graph fp,defer'; do echo \"=== $words\"; "
        f"{setting} {perf} record $words -o /tmp/data -e cpu-clock -- true 2>&1; "
        f"{perf} evlist -v -i /tmp/data; done", "--patches-code")
    for words, bits in (("-g", []),
                        ("--call-graph fp,defer", ["defer_callchain", "defer_output"])):
        said = out.partition(f"=== {words}\n")[2].partition("===")[0]
        name = f"Attribute bits without the sysctl, {words}"
        if "CALLCHAIN" in said and "warning" not in said.lower() and \
                re.findall(r"\b(defer_\w+): 1\b", said) == bits:
            layer.ok(name)
        else:
            layer.not_ok(name, f"{said}\nlog: {layer.log('bits.log')}")


LAYER = Layer(__name__, "perf record where a kernel cannot defer, in the guest",
              run_fallback)

# SPDX-License-Identifier: GPL-2.0
"""A second build makes nothing."""

import os

from builds import SOURCES, build
from common import THING, Failure
from layer import Layer


def run_again(layer):
    """A second build makes nothing."""
    check = layer.check

    def nothing_made(name):
        build(check, name, layer.log("build.log"))
        log = os.path.join(check.build, "log", name + ".log")
        with open(log, errors="replace") as f:
            made = [line.rstrip("\n") for line in f if THING.match(line)]
        if made:
            raise Failure(f"{len(made)} files, the first ones:\n"
                          + "\n".join(made[:10]) + f"\nlog: {log}")

    for name in SOURCES:
        layer.test(f"make {name} a second time makes no file again",
                   nothing_made, name)


LAYER = Layer(__name__, "a second build makes nothing",
              run_again, alone=True, rare=True)

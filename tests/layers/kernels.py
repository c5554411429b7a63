# SPDX-License-Identifier: GPL-2.0
"""Builds the kernels that only some layers need."""

from builds import FIRST
from layer import Layer


def run_kernels(layer):
    """Builds the things that only some layers need."""
    builds = layer.check.builds
    for goal in builds.goals if builds else ():
        if goal not in FIRST:
            layer.test(f"make {goal}", builds.wait, goal)


LAYER = Layer(__name__, "builds for the layers below",
              run_kernels, lambda _: None,
              needs=())

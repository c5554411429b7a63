# SPDX-License-Identifier: GPL-2.0
"""The tree, the kernel and perf are built, without a warning in our files."""

from builds import FIRST, touched_files
from common import Failure, read_series
from layer import Layer, fail


def run_build(layer):
    builds = layer.check.builds

    layer.test("the series is there", lambda: read_series()
               or fail("patches/*/series name no patch"))

    def no_warning(name):
        warnings = [line.rstrip() for line in builds.logs[name].split("\n")
                    if "warning:" in line]
        mine = [w for w in warnings
                if any(w.split(":")[0].endswith(path) or
                       path.endswith("/" + w.split(":")[0].lstrip("./"))
                       for path in touched_files())]
        if mine:
            raise Failure("\n".join(mine))

    for goal in FIRST:
        if goal in builds.goals:
            layer.test(f"make {goal}", builds.wait, goal)
        if goal in builds.logs:
            layer.test(f"no warning in a file of the series: {goal}",
                       no_warning, goal)


LAYER = Layer(__name__, "the tree, the kernel, perf",
              run_build, lambda _: None, needs=())

# SPDX-License-Identifier: GPL-2.0
"""W=1 and sparse in other configurations (tests/lib/configs.ini)."""

import os

from common import TREE_NAME, Failure, Lock
from configs import Workshop, jobs, read_configs, run_all
from layer import Layer


def run_configs(layer):
    check = layer.check
    build = check.build
    tree = os.path.join(build, TREE_NAME)
    shop = Workshop(os.path.join(build, "configs"), tree,
                    os.path.join(build, "base"))
    configs = read_configs()

    def report(config, seconds, failure):
        name = f"{config.name}: {config.about}"
        if failure is None:
            layer.ok(name)
        elif isinstance(failure, Failure):
            layer.not_ok(name, str(failure))
        else:
            layer.not_ok(name, repr(failure))
        with open(layer.log("seconds"), "a") as f:
            f.write(f"{config.name} {seconds:.1f}\n")

    with Lock(shop.out):
        run_all(shop, configs, layer.dir, report, min(jobs(), 4))

    def complete():
        left = sorted(set(shop.new + shop.edited)
                      - {o[:-2] + ".c" for o in shop.built})
        if left:
            raise Failure("built in no configuration: " + ", ".join(left))

    layer.test("every C file of the kernel part was built", complete)


LAYER = Layer(__name__, "W=1 and sparse in the configurations of configs.ini",
              run_configs, needs=("tree",), alone=True, rare=True)

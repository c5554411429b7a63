# SPDX-License-Identifier: GPL-2.0
"""qemu/run, to be tested itself."""

import os
import subprocess

from common import TOP, Failure


class Runner:
    """qemu/run, with the kernel that was built."""

    def __init__(self, layer):
        self.layer = layer

    def run(self, name, *args):
        layer = self.layer
        result = subprocess.run(
            [os.path.join(TOP, "qemu", "run"), "--build", layer.check.build,
             "--kernel", layer.check.bzimage, "--timeout", "60", "--log",
             layer.log(name + ".console"), *args], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            errors="replace", cwd=TOP)
        with open(layer.log(name + ".log"), "w") as f:
            f.write(f"{result.stdout}\n--- {result.returncode}\n"
                    f"{result.stderr}")
        return result

    @staticmethod
    def expect(result, status, out=None, says=()):
        said = f"status {result.returncode}\n{result.stdout[-800:]}\n" \
               f"{result.stderr[-1500:]}"
        if result.returncode != status:
            raise Failure(f"status {status} is wanted: {said}")
        if out is not None and result.stdout != out:
            raise Failure(f"{out!r} is wanted: {said}")
        for words in says:
            if words not in result.stderr:
                raise Failure(f"{words!r} is not said: {said}")

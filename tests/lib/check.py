# SPDX-License-Identifier: GPL-2.0
"""A run of some layers: side by side, each as soon as what it needs is built."""

import concurrent.futures
import os
import threading
import time

from builds import NICER
from common import Failure, say
from layer import why_of

# So many guests run at a time, of one layer or of several.
LANES = max(1, min(4, os.cpu_count() or 1))


class Check:
    def __init__(self, build):
        self.build = build
        self.out = os.path.join(build, "check")
        self.bzimage = self.kernel("kernel")
        self.perf = os.path.join(build, "perf/perf")
        self.kselftests = None
        self.lanes = concurrent.futures.ThreadPoolExecutor(LANES)
        self.spare = concurrent.futures.ThreadPoolExecutor(
            1, initializer=os.nice, initargs=(NICER,))
        self.lock = threading.Lock()
        self.started = time.monotonic()
        # makes the things that layers need; None: build/ is taken as it is
        self.builds = None
        self.may_build = True
        # does it run a whole tier, or layers that were named?
        self.whole = False
        # does it run all tests, or those that every change must pass?
        self.all = False
        # layers that are not begun yet
        self.waiting = []

    @staticmethod
    def say(text):
        say(text)

    def end(self):
        if self.builds:
            self.builds.end()
        for pool in self.lanes, self.spare:
            pool.shutdown(cancel_futures=True)

    def kernel(self, name):
        """The image of a kernel."""
        return os.path.join(self.build, name, "arch/x86/boot/bzImage")

    def futures_of(self, layer):
        """{goal: its future} of the goals that @layer needs."""
        return {goal: self.builds.made[goal] for goal in layer.needs} \
            if self.builds else {}

    def begin_layers(self):
        """Begins the layers whose goals are made."""
        for layer in list(self.waiting):
            futures = self.futures_of(layer)
            due = list(futures.values())
            # a layer without guests would delay the kernel, for which all guests wait
            if not layer.in_guest and self.builds and "kernel" in self.builds.made:
                due.append(self.builds.made["kernel"])
            if all(future.done() for future in due):
                self.waiting.remove(layer)
                self.begin(layer, futures)

    def begin(self, layer, futures):
        layer.check = self

        def begin():
            missing = [f"make {goal}" for goal, future in futures.items()
                       if future.exception()]
            if missing:
                raise Failure(f"it was not begun, as {', '.join(missing)} failed")
            layer.begin(self)

        layer.good = self.attempt(layer, begin)
        layer.begun.set()

    def attempt(self, layer, step):
        try:
            step()
        except Exception as error:  # whatever it is, the layer failed
            layer.not_ok(f"{layer.name} ran to its end",
                         why_of(error, self.build))
            return False
        return True

    def tell(self, layer):
        """Prints the results of a layer as they come."""
        self.say(f"=== {layer.name}: {layer.about}")
        layer.show()
        layer.begun.wait()
        if layer.good:
            self.attempt(layer, layer.finish)
        layer.end()
        bad = sum(s == "not ok" for _, s, _ in layer.results)
        self.say(f"=== {layer.name}: {len(layer.results)} tests, {bad} failed, "
            f"{layer.seconds:.1f} s")

    def run(self, layers):
        """Runs all of @layers side by side, and prints the results in their order; then
        runs the layers that are alone."""
        alone = [layer for layer in layers if layer.alone]
        together = [layer for layer in layers if not layer.alone]
        self.waiting = list(together)
        self.begin_layers()
        if self.builds:
            self.builds.start()
        for layer in together:
            self.tell(layer)
        for layer in alone:
            futures = self.futures_of(layer)
            concurrent.futures.wait(futures.values())
            self.begin(layer, futures)
            self.tell(layer)

# SPDX-License-Identifier: GPL-2.0
"""What the layers need to have been built, and the building of it."""

import concurrent.futures
import fcntl
import os
import subprocess
import threading

from common import (TOP, Failure, call, edited_files, read_series, say,
                    wanted_series)

# The things that layers need, in the order in which they are made. The debug kernel
# takes longest, but most guests wait for perf.
GOALS = ("tree", "series", "kernel", "perf", "kernel-debug", "perf-fuzz",
         "kernel-kcsan", "kernel-base", "kernel-base-64", "kernel-64")
# The series that some of them need: to the perf of the base the sanitizers object at
# every file.
NEEDED = {"perf": "perf", "perf-fuzz": "perf-fixes"}
# The nice value of layers without guests: they take the time that guests leave.
NICER = 10
# The layer build tests these goals. SOURCES has the part of the tree that each is
# made of.
FIRST = ("tree", "series", "kernel", "perf")
SOURCES = {"kernel": "", "perf": "tools/perf/"}


def has_series(*goals):
    """Whether the tree has the series that @goals need (SERIES=)."""
    return all(NEEDED.get(goal, "kernel") in wanted_series() for goal in goals)


def touched_files():
    series = read_series()
    return edited_files(series) | {p for patch in series for p in patch.new_files}


def forget_objects(check, goal):
    """Removes the objects of the series' files: no log has the messages of their last
    build any more."""
    top = SOURCES[goal]
    with open(os.path.join(check.build, "log", f"{goal}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for path in touched_files():
            if path.startswith(top) and path.endswith(".c"):
                path = os.path.join(check.build, goal, path[len(top):-2] + ".o")
                if os.path.exists(path):
                    os.unlink(path)


def build(check, what, log):
    """Builds something that no layer needs to begin."""
    call([os.path.join(TOP, "scripts", "build"), what], log=log,
         env=dict(os.environ, BUILD=check.build))


class Builds(threading.Thread):
    """Makes @goals, one after the other, and begins layers when the things they need
    are made."""

    def __init__(self, check, goals):
        super().__init__(daemon=True)
        self.check = check
        self.goals = goals
        # the repository whose scripts make them
        self.top = TOP
        self.made = {goal: concurrent.futures.Future() for goal in goals}
        # of the logs of builds, which the next one of the same writes anew
        self.logs = {}
        self.lock = threading.Lock()
        self.child = None
        self.over = False
        # the last line of output; all lines are printed while somebody waits for it
        self.last = ""
        self.awaited = False

    def run(self):
        for goal in self.goals:
            try:
                self.make(goal)
            except Exception as error:  # whatever it is, it is not there
                self.made[goal].set_exception(error)
            else:
                self.made[goal].set_result(None)
            self.check.begin_layers()

    def make(self, goal):
        if goal != "tree" and self.made["tree"].exception():
            raise Failure("it was not begun, as make tree failed")
        if goal in SOURCES and self.check.whole:
            forget_objects(self.check, goal)
        command = [os.path.join(self.top, "scripts", "build"), goal]
        if goal in ("tree", "series"):
            command = [os.path.join(self.top, "scripts", goal), "--build",
                       self.check.build]
        with self.lock:
            if self.over:
                raise Failure("it was not begun")
            self.child = subprocess.Popen(
                ["nice", "-n", str(NICER), *command],
                cwd=self.top, env=dict(os.environ, BUILD=self.check.build),
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, errors="replace")
        said = []
        for line in self.child.stdout:
            said = [*said[-30:], line]
            self.last = line.rstrip()
            if self.awaited:
                say(self.last)
        if self.child.wait():
            raise Failure("".join(said))
        if goal in SOURCES:
            with open(os.path.join(self.check.build, "log", goal + ".log"),
                      errors="replace") as f:
                self.logs[goal] = f.read()

    def wait(self, goal):
        """Waits until @goal is made; raises if that failed."""
        future = self.made[goal]
        if not future.done() and self.last:
            say(self.last)
        self.awaited = True
        try:
            future.result()
        finally:
            self.awaited = False

    def end(self):
        """Ends the build that runs, and begins no other."""
        with self.lock:
            self.over = True
            if self.child and self.child.poll() is None:
                self.child.terminate()

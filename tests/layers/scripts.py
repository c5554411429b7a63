# SPDX-License-Identifier: GPL-2.0
"""The scripts, where a fault would lose work or hide another fault: the round trip of
the tree, the edits that it does not overwrite, the reading of results."""

import os
import shutil
import stat
import subprocess

from builds import Builds
from check import Check
from common import SERIES, TOP, Failure, Git, edited_files, read_series
from layer import Layer
from sandbox import Sandbox
from tap import missing_results, tap_results


def run_scripts(layer):
    box = Sandbox(layer)

    def tree(*args):
        return box.good("tree", *args)

    def round_trip():
        tree("--kernel-src", box.src)
        box.good("refresh")
        box.same()

    box.test("tree and refresh without a change give no difference", round_trip)

    def uncommitted():
        path = sorted(edited_files(read_series()))[0]
        box.append(path, "\n")
        box.bad("refresh", says=("not committed", path))
        brought = [p for patch in read_series() for p in patch.new_files]
        with open(os.path.join(box.top, brought[0]), "a") as f:
            f.write("\n")
        box.bad("tree", says=("not committed", path))
        box.back()
        tree()

    box.test("refused: edits in the tree that are not committed",
             uncommitted)

    def unrefreshed():
        box.write("kernel/brought.c", "int brought;\n")
        box.commit("test: bring", "kernel/brought.c")
        brought = [p for patch in read_series() for p in patch.new_files]
        with open(os.path.join(box.top, brought[0]), "a") as f:
            f.write("\n")
        box.bad("tree", says=("not in patches/", "test: bring"))
        box.bad("refresh", says=(f"{box.tree} was made of them",))
        assert os.path.exists(os.path.join(box.tree, "kernel/brought.c"))
        box.back()
        tree()

    box.test("refused: what would overwrite commits or edits of either side",
             unrefreshed)

    layer.test("a layer whose build failed has failed",
               not_made, os.path.join(layer.dir, "not-made"))
    layer.test("TAP is read correctly", tap)
    layer.test("a skipped test has failed, unless SKIPS has its reason", skips,
               os.path.join(layer.dir, "skips"))
    layer.test("every script parses; shellcheck has nothing to say", lint)
    layer.test("nothing but the series in the series' directories",
               only_series)
    shutil.rmtree(box.top)


def lint():
    names = [n for n in Git(TOP)("ls-files", "scripts", "qemu", "tests",
                                 "bench", ".ci").split("\n") if n]
    shells = []
    for name in names:
        path = os.path.join(TOP, name)
        with open(path, "rb") as f:
            head = f.read(64).split(b"\n")[0]
        if name.endswith(".py") or b"python" in head:
            with open(path) as f:
                compile(f.read(), path, "exec")
        elif head.startswith(b"#!") and b"sh" in head:
            shells.append(path)
        if head.startswith(b"#!") and not os.stat(path).st_mode & stat.S_IXUSR:
            raise Failure(f"{name} is not executable")
    result = subprocess.run(["shellcheck", *shells], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)
    if result.returncode or not shells:
        raise Failure(result.stdout or "no shell script")


def tap():
    """The results in the output of a program are read."""
    parsed = tap_results("ok 1 # SKIP of no name\nok 2 - b # SKIP x\n"
                         "not ok 3 # exit=1\nok 4\nok 5 five\n"
                         "ok 6 - # SKIP nor this\n")
    if [(name, status) for name, status, _ in parsed] != [
            ("test 1", "skip"), ("b", "skip"), ("test 3", "not ok"),
            ("test 4", "ok"), ("five", "ok"), ("test 6", "skip")]:
        raise Failure(f"TAP is taken as {parsed}")
    text = "TAP version 13\n1..3\nok 1 a\nnot ok 2 b\n"
    if missing_results(text) != [(3, 2)]:
        raise Failure("it is not seen that a test did not come to its end")
    # by its exit status alone a program of many tests may fail
    outer = [status for _, status, _ in tap_results(
        "# ok 1 a\nnot ok 1 selftests: unwind: x # exit=1\n")]
    if outer != ["ok", "not ok"]:
        raise Failure(f"a program that failed is {outer}")


class Silent(Check):
    """A run of layers that prints nothing."""

    @staticmethod
    def say(text):
        pass


def skips(work):
    """A skipped test has failed, unless it may be skipped."""
    for name, why, wanted in (
            ("kselftest", "needs two CPUs", "not ok"),
            ("kselftest", "/dev/kvm: No such device; a CPU with svm, and x?", "skip"),
            ("kselftest", "the kernel runs no 32-bit programs: x", "not ok"),
            ("64", "the kernel runs no 32-bit programs: x", "skip")):
        check = Silent(work)
        os.makedirs(check.out, exist_ok=True)
        layer = Layer(name, "", None)
        layer.check = check
        layer.tap(f"1..1\nok 1 - a # SKIP {why}\n", "x", "x.log")
        check.end()
        if layer.results[0][:2] != ("a", wanted):
            raise Failure(f"{name}: {why}: {layer.results}")


def not_made(work):
    """A layer whose kernel could not be built has failed."""
    ran = []

    def layer(name, *needs):
        return Layer(name, "", lambda self: ran.append(self.name)
                     or self.ok("something"), needs=needs)

    scripts = os.path.join(work, "scripts")
    os.makedirs(scripts)
    for name in ("tree", "build"):
        with open(os.path.join(scripts, name), "w") as f:
            f.write('#!/bin/sh\ncase " $BAD " in *" ${1#--} "*) echo no $1; exit 1 ;; '
                    'esac\n')
        os.chmod(os.path.join(scripts, name), 0o755)
    goals = ("tree", "kernel-debug", "perf-fuzz")
    # scripts/tree is called with --build
    for bad, wanted in (("", ["a", "b", "c", "d"]), ("kernel-debug", ["a", "c"]),
                        ("build", [])):
        ran.clear()
        os.environ["BAD"] = bad
        check = Silent(work)
        check.builds = Builds(check, goals)
        check.builds.top = work
        layers = [layer("a", "tree"), layer("b", "kernel-debug"),
                  layer("c", "perf-fuzz"), layer("d", *goals)]
        try:
            check.run(layers)
        finally:
            check.end()
            del os.environ["BAD"]
        results = [[status for _, status, _ in one.results] for one in layers]
        if sorted(ran) != wanted or results != [
                ["ok" if one.name in wanted else "not ok"] for one in layers]:
            raise Failure(f"{bad} failed: {ran} ran, not {wanted}; {results}")


def only_series():
    """Each file under git is the repository's own or is brought by a patch."""
    brought = {p for patch in read_series(wanted=SERIES) for p in patch.new_files}
    own = ("README.md", "CONTRIBUTING.md", "COPYING", "MAINTAINERS",
           "Makefile", ".gitignore")
    stray = [n for n in Git(TOP)("ls-files").split("\n")
             if n not in own and n not in brought and
             n.split("/")[0] not in ("patches", "qemu", "tests", "bench",
                                     "scripts", ".ci")]
    if stray:
        raise Failure("neither the frame's nor brought by a patch: "
                      + ", ".join(stray))


LAYER = Layer(__name__, "make tree and make refresh: round trip, refusals; reading of results; lint",
              run_scripts, needs=("tree",), in_guest=False)

# SPDX-License-Identifier: GPL-2.0
"""A layer: tests that run together, and their results."""

import os
import re
import shutil
import subprocess
import threading
import time
import traceback

from common import TOP, Failure, is_full, remedy_of, write_text
from tap import missing_results, near, tap_results

# Tests that may be skipped: (layers, the test's reason, our reason). Others have failed.
SKIPS = (
    (".*", r"/dev/kvm: .*; a CPU with svm", "where QEMU has KVM, the guest's CPU is "
     "of the host's maker, and Intel's have no svm"),
    (".*", r"no BTF to hide, or no way to do so", "a container may have no name "
     "spaces of its own"),
    ("readers", r"hotspot is not installed", "it brings the libraries of a desktop"),
    ("64", r"the kernel runs no 32-bit programs", "it is the kernel without them"),
)


def why_of(error, build):
    """The text for an exception; for a bug of ours, with its place."""
    text = str(error)
    if isinstance(error, OSError) and is_full(text):
        return f"{text}\n{remedy_of(text, build)}"
    if isinstance(error, (Failure, AssertionError)):
        return text or repr(error)
    return "".join(traceback.format_exception(error))


class Layer:
    """A layer, and the results of its tests.

    It begins when the things it @needs, some of GOALS, are made. @run takes a lane
    until it is done. A layer with several things to run in parallel has @start, too,
    which passes each of them to in_lane(); then @run waits for them, without a lane.
    """

    def __init__(self, name, about, run, start=None, needs=("kernel", "perf"),
                 rare=False, alone=False, in_guest=True):
        # runs only with --all, or when it is named
        self.rare = rare
        # runs behind all others, with none beside it
        self.alone = alone
        # of a file in layers/, its module
        self.name = name.removeprefix("layers.")
        self.about = about
        self.run = run
        self.start = start
        self.needs = needs
        # without a @guest it has a lane of its kind
        self.in_guest = in_guest
        self.results = []
        self.lines = []
        self.check = None
        self.seconds = 0
        self.whole = None
        self.begun = threading.Event()
        self.good = False
        # text that is not printed yet; None when text is printed at once
        self.unsaid = []
        self.lock = threading.Lock()

    def begin(self, check):
        self.check = check
        self.dir = os.path.join(check.out, self.name)
        shutil.rmtree(self.dir, ignore_errors=True)
        os.makedirs(self.dir)
        if self.start:
            self.start(self)
        else:
            self.whole = self.in_lane(self.run, self)

    def in_lane(self, function, *args, **kwargs):
        """Runs @function as soon as a lane is free; returns its future."""
        def timed():
            begun = time.monotonic()
            try:
                return function(*args, **kwargs)
            finally:
                with self.lock:
                    self.seconds += time.monotonic() - begun

        return (self.check.lanes if self.in_guest else
                self.check.spare).submit(timed)

    def show(self):
        """Prints the text so far, and from here on prints at once."""
        with self.lock:
            for text in self.unsaid:
                self.check.say(text)
            self.unsaid = None

    def finish(self):
        """Waits for the end of the tests that begin() has begun."""
        if self.whole:
            self.whole.result()
        else:
            self.run(self)

    def say(self, text):
        with self.lock:
            if self.unsaid is None:
                self.check.say(text)
            else:
                self.unsaid.append(text)

    def note(self, name, status, why=""):
        if status == "skip" and not any(
                re.fullmatch(layers, self.name) and re.match(said, why)
                for layers, said, _ in SKIPS):
            status, why = "not ok", f"it was skipped: {why}"
        number = len(self.results) + 1
        self.results.append((name, status, why))
        words = {"ok": "ok", "not ok": "not ok", "skip": "ok"}[status]
        line = f"{words} {number} - {name}"
        if status == "skip":
            line += f" # SKIP {why}"
        self.say(f"  {line}")
        if status == "not ok" and why:
            lines = why.rstrip().split("\n")
            if len(lines) > 25:
                # the first lines say what failed, the last lines where it ended
                lines = lines[:12] + ["..."] + lines[-12:]
            for text in lines:
                self.say(f"  #   {text}")
        lines = [line]
        if status == "not ok":
            lines += [f"#   {text}" for text in why.split("\n")]
        self.lines += lines
        try:
            with open(self.tap_file(), "a", errors="surrogateescape") as f:
                f.writelines(f"{text}\n" for text in lines)
        except OSError:
            # the result counts all the same; end() tells of the file
            pass

    def tap_file(self):
        return os.path.join(self.check.out, self.name + ".tap")

    def end(self):
        """Writes the file again, with the plan in front."""
        try:
            write_text(self.tap_file(), "\n".join(
                ["TAP version 13", f"1..{len(self.results)}", *self.lines, ""]))
        except OSError as error:
            self.not_ok(f"{self.name}.tap is written",
                        why_of(error, self.check.build))

    def ok(self, name):
        self.note(name, "ok")

    def not_ok(self, name, why=""):
        self.note(name, "not ok", why)

    def skip(self, name, why):
        self.note(name, "skip", why)

    def test(self, name, function, *args):
        """One test: passes unless @function raises."""
        try:
            function(*args)
        except Exception as error:  # whatever it is, the test failed
            self.not_ok(name, why_of(error, self.check.build))
        else:
            self.ok(name)

    def tap(self, text, what, log):
        """Counts the results in a program's output; none is a failure."""
        results = tap_results(text)
        for name, status, why in results:
            if status == "not ok":
                why = (why + "\n" if why else "") + \
                    near(text, name) + f"\nlog: {log}"
            elif status == "skip":
                why = re.sub(r"(?i)^skip\w*:?\s*", "", why) or "no reason"
            self.note(name, status, why)
        if not results:
            self.not_ok(f"{what}: no result", text[-2000:] + f"\nlog: {log}")
        for planned, seen in missing_results(text):
            self.not_ok(f"{what}: {planned} tests planned, {seen} seen",
                        f"log: {log}")
        return results

    def log(self, name):
        return os.path.join(self.dir, name)

    def boot(self, name, command, *options, timeout=600, smp=2, mem="2G",
             kernel=None):
        """Runs @command in the guest: (exit status, its output, the runner's
        messages). Notes nothing, so that several can run at a time."""
        check = self.check
        args = [os.path.join(TOP, "qemu", "run"), "--build", check.build,
                "--kernel", kernel or check.bzimage, "--smp", str(smp),
                "--mem", mem, "--timeout", str(timeout), "--log",
                self.log(name + ".console"), *options, "--", command]
        # in memory: a full disk is not to cut the runner's messages
        result = subprocess.run(args, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, cwd=TOP,
                                errors="replace")
        for suffix, text in ((".vm", result.stderr), (".log", result.stdout)):
            with open(self.log(name + suffix), "w", errors="replace") as f:
                f.write(text)
        return result.returncode, result.stdout, result.stderr

    def judge(self, name, status, out, said):
        """Raises if a guest did not end well: a report of its kernel, the time
        limit."""
        if status in (124, 125) and said:
            results = tap_results(out)
            for test, result, why in results:
                self.note(test, result, why)
            raise Failure(f"{said.rstrip()}\nits output ends:\n"
                          f"{out[-1500:]}\nlog: {self.log(name + '.log')}")

    def guest(self, name, command, *options, **kwargs):
        """Runs @command in the guest: (exit status, its output).

        What the runner says of the guest (a report of its kernel, the time
        limit) is a failure and raises.
        """
        status, out, said = self.boot(name, command, *options, **kwargs)
        self.judge(name, status, out, said)
        return status, out


def tell(layer, name, status, out, said):
    """Notes the results of a test, in the guest or not."""
    try:
        layer.judge(name, status, out, said)
    except Failure as failure:
        layer.not_ok(name, str(failure))
        return
    log = layer.log(f"{name}.log")
    if tap_results(out):
        results = layer.tap(out, name, log)
        if status and all(s != "not ok" for _, s, _ in results):
            layer.not_ok(f"{name}: exit status {status}", f"log: {log}")
    elif status == 0:
        layer.ok(name)
    elif status == 4:
        layer.skip(name, out.strip().split("\n")[-1] or "no reason")
    else:
        layer.not_ok(name, f"exit status {status}\n{out[-1500:]}\nlog: {log}")


def fail(why):
    raise Failure(why)

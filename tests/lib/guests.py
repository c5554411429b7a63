# SPDX-License-Identifier: GPL-2.0
"""Tests in the guest: KUnit, kselftests, and what else runs on kernels that check
themselves."""

import glob
import os
import re
import time

from check import LANES
from common import TOP, Failure, call, read_series, read_text
from programs import kselftests_of


def run_kunit(layer, **kwargs):
    status, out = layer.guest(
        "kunit", "cat /sys/kernel/debug/kunit/*/results",
        "--append", "kunit.enable=1", **kwargs)
    log = layer.log("kunit.log")
    suites = []
    for path in glob.glob(os.path.join(TOP, "kernel/unwind/*_kunit.c")):
        suites += re.findall(r"^static struct kunit_suite \w+ = \{\s+"
                             r"\.name\s+= \"(\w+)\"", read_text(path), re.M)
    missing = [name for name in suites
               if not re.search(rf"^(?:not )?ok \d+ {name}$", out, re.M)]
    layer.tap(out, "kunit", log)
    if status or missing or not suites:
        raise Failure(f"status {status}, no result of {missing}; log: {log}")


# A line with it and the name of a program stands before the program's output, and one
# with the program's exit status behind.
MARK = "=== program"


def kselftest_names(install):
    """The names of the programs that run_kselftest.sh runs."""
    with open(os.path.join(install, "kselftest-list.txt")) as f:
        names = [line.strip().split(":")[1] for line in f if line.strip()]
    if not names:
        raise Failure("no kselftest is installed")
    return names


def commands_of(install, names):
    """The lines for the shell that run the programs @names, whose output is for
    as_run_kselftest().

    run_kselftest.sh starts some thirty processes for each program. An emulated CPU
    takes longer for them than for most programs: with a debug kernel, a third of a
    second each.
    """
    lines = [f"cd {install}/unwind", "bad=0", "echo TAP version 13", f"echo 1..{len(names)}"]
    for name in names:
        lines += [f"echo {MARK} {name}", f"./{name} 2>&1", "status=$?",
                  f"echo {MARK} $status", "[ $status = 0 ] || bad=1"]
    return "\n".join([*lines, "(exit $bad)"])


def as_run_kselftest(out):
    """The output of commands_of(), as run_kselftest.sh prints it."""
    lines, name, number = [], None, 0
    for line in out.split("\n"):
        if not line.startswith(MARK):
            lines.append(f"# {line}" if name else line)
            continue
        word = line[len(MARK) + 1:]
        if not name:
            name = word
            continue
        number += 1
        end = {"0": "", "4": " # SKIP"}.get(word, f" # exit={word}")
        lines.append(("not " if "exit" in end else "") +
                     f"ok {number} selftests: unwind: {name}{end}")
        name = None
    # where the guest went down there is no end
    return "\n".join(lines)


def run_kselftest(layer, **kwargs):
    install = kselftests_of(layer)
    # one program as users run them, the others without that script's processes
    first, *names = sorted(kselftest_names(install), key="sysctl".__ne__)
    # each test has events of tracepoints; those of the debug kernel run at once
    _, out = layer.guest(
        "kselftest", f"( cd {install} && ./run_kselftest.sh -o 300 -t unwind:{first} )\n"
        + commands_of(install, names), "--hotplug",
        "--patches-code", "--ro", install, smp=4, timeout=1500, **kwargs)
    layer.tap(as_run_kselftest(out), "kselftest", layer.log("kselftest.log"))


# The guest's CPUs are slow, and now and then wait for the host's: so a CPU counts as
# stuck after 60 s without scheduling.
OPTIONS = ["--append", "watchdog_thresh=30 workqueue.watchdog_thresh=90"]
# On one CPU, neither the first nor the last, time in user space is accounted at each
# entry, if the kernel can.
NOHZ_FULL = {"kernel-debug": "nohz_full=2", "kernel-kcsan": ""}
# Twice: kmemleak does not report memory younger than five seconds, or with other
# references than at the last scan. It reports leaks on the console, too.
KMEMLEAK = """
status=$?
leaks=/sys/kernel/debug/kmemleak
echo scan >$leaks && sleep 6 && echo scan >$leaks || exit 1
sed 's/^/# /' $leaks
exit $status
"""
# A race that the base intends: code that reads the time reads one half of a latch
# while the other half is written (kernel/time/timekeeping.c).
LATCH = "KCSAN: data-race in ktime_get_mono_fast_ns / timekeeping_update"


class Guests:
    """The guests of a layer that boots a kernel of its own; their results are printed
    one by one."""

    def __init__(self, layer, kernel):
        self.layer = layer
        self.kernel = kernel
        self.bzimage = layer.check.kernel(kernel)
        if not os.path.isfile(self.bzimage):
            raise Failure(f"no {self.bzimage}; make {kernel} builds it")
        # read before anything begins: a wrong value ends the layer
        self.stress_seconds = number_of("STRESS_SECONDS",
                                        300 if layer.check.all else 60)
        self.fuzz_seconds = number_of("FUZZ_EVENTS_SECONDS", 60)
        self.runs = []

    def add(self, name, command, *options, **kwargs):
        """Runs @command in a guest of its own. Its output is TAP; where its exit
        status is not 0 a test in the output has failed."""
        options = [*OPTIONS, *options]
        if self.kernel == "kernel-debug":
            command = f"( {command}\n){KMEMLEAK}"
        else:
            options += ["--races-of", own_functions(self.layer, self.kernel),
                        "--allow", LATCH]

        def run():
            begun = time.monotonic()
            result = self.layer.boot(name, command, *options,
                                     kernel=self.bzimage, **kwargs)
            return *result, time.monotonic() - begun

        self.runs.append((name, self.layer.in_lane(run)))

    def finish(self):
        """Waits for the guests, and prints their results."""
        layer = self.layer
        for name, future in self.runs:
            status, out, said, seconds = future.result()
            layer.say(f"  # {name}: {seconds:.0f} s on {self.kernel}")
            for line in said.split("\n"):
                if line.startswith("vm: races elsewhere"):
                    layer.say(f"  # {name}: {line[4:]}")
            try:
                layer.judge(name, status, out, said)
            except Failure as failure:
                layer.not_ok(f"{name}: no report of {self.kernel}",
                             str(failure))
                continue
            log = layer.log(name + ".log")
            results = layer.tap(as_run_kselftest(out), name, log)
            if status and all(s != "not ok" for _, s, _ in results):
                layer.not_ok(f"{name}: exit status {status}",
                             f"{out[-1500:]}\nlog: {log}")
            else:
                layer.ok(f"{name}: no report of {self.kernel}")


def own_functions(layer, kernel):
    """A file with the names of the functions in the series' own objects, and of the
    functions that its patches add to files of the base."""
    objects, names = [], set()
    for patch in read_series():
        objects += [path[:-2] + ".o" for path in patch.new_files
                    if re.match(r"(kernel|arch/x86)/.*\.c$", path)]
        for text in patch.diff.split("diff --git ")[1:]:
            if re.match(r"a/(?!tools/).*\.[ch] ", text):
                names |= set(re.findall(
                    r"^\+(?:[a-z][^;=\n]*?\b)?([a-z_]\w*)\([^;\n]*$", text,
                    re.M))
    for path in objects:
        path = os.path.join(layer.check.build, kernel, path)
        if not os.path.exists(path):
            raise Failure(f"{path} is not in the kernel")
        names |= {line.split()[-1].split(".")[0] for line in
                  call(["nm", path]).stdout.split("\n")
                  if re.search(r" [tT] ", line)}
    if not names:
        raise Failure("the series has no functions")
    path = layer.log("functions")
    with open(path, "w") as f:
        f.writelines(f"{name}\n" for name in sorted(names))
    return path


# CPU seconds that a kselftest takes on the debug kernel, where it is not about 5.
LONG = {"abi": 24, "entry": 25, "exec": 46, "exit": 10, "load": 18,
        "memory": 9, "migrate": 16, "order": 27, "order_fault": 11,
        "order_interrupt": 14, "pid_reuse": 11, "sessions": 27, "tables_others": 45,
        "teardown": 50, "uprobes": 9, "window": 24}


def add_tests(guests):
    """The KUnit tests and the kselftests, shared out among as few guests as there are
    lanes: these kernels take long to boot, and to look for leaks."""
    install = kselftests_of(guests.layer)

    def seconds(name):
        return LONG.get(name, 5)

    # the longest of them first, each into the lot that is the shortest so far
    lots = [[] for _ in range(LANES)]
    for name in sorted(kselftest_names(install), key=seconds, reverse=True):
        min(lots, key=lambda lot: sum(map(seconds, lot))).append(name)
    for number, lot in enumerate(lots, 1):
        command = ""
        options = ["--hotplug", "--ro", install]
        if number == len(lots):
            # says nothing until its end
            command = "cat /sys/kernel/debug/kunit/*/results || exit\n"
            options += ["--append", f"kunit.enable=1 {NOHZ_FULL[guests.kernel]}"]
        command += commands_of(install, lot)
        guests.add(f"tests-{number}", command, *options, smp=4, timeout=3600)


def add_program(guests, name, *args, options=(), **kwargs):
    """A program that is built with the kselftests and is no test."""
    install = kselftests_of(guests.layer)
    program = os.path.join(install, "unwind", name)
    if not os.access(program, os.X_OK):
        guests.layer.not_ok(name, f"no {program}; is it not in the kselftests' "
                            "TEST_GEN_PROGS_EXTENDED?")
        return
    guests.add(name, " ".join([program, *args]), *options, "--ro",
               install, **kwargs)


def number_of(name, default):
    """The seconds that the variable @name sets."""
    if not os.environ.get(name):
        return default
    try:
        value = int(os.environ[name])
    except ValueError:
        value = 0
    if value <= 0:
        raise Failure(f"{name}={os.environ[name]}: a number above 0 is wanted")
    return value


def add_stress(guests):
    # when the time is over it still has to end its work, which takes long
    add_program(guests, "stress", str(guests.stress_seconds),
                options=["--hotplug"], smp=4, mem="3G",
                timeout=2 * guests.stress_seconds + 600)


def add_failures(guests):
    seconds = guests.fuzz_seconds
    add_program(guests, "alloc_failures", timeout=900)
    # no other test has as many tracepoints come and go
    add_program(guests, "fuzz_events", str(seconds),
                options=["--patches-code"], timeout=2 * seconds + 600)
    # the first table and the last one switch a static key
    add_program(guests, "fuzz_tables", str(seconds),
                options=["--patches-code"], timeout=2 * seconds + 600)


def guests_of(kernel, *adding):
    """The function that starts a layer with the guests of @adding on @kernel."""
    def start(layer):
        layer.guests = Guests(layer, kernel)
        for add in adding:
            add(layer.guests)
    return start


def run_guests(layer):
    layer.guests.finish()

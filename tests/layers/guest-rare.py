# SPDX-License-Identifier: GPL-2.0
"""The runner of guests, qemu/run: rarer cases."""

import os
import subprocess
import sys

from common import TOP
from layer import Layer
from programs import outside_make
from runner import REPORTS, Runner

sys.path.insert(0, os.path.join(TOP, "qemu"))
import console  # noqa: E402


def run_guest_rare(layer):
    check, guest = layer.check, Runner(layer)
    run, expect = guest.run, guest.expect

    def front_door():
        # the last as it was typed, and not with make's variables in it
        for command, status in (("exit 7", 7), ("exit 255", 255),
                                ("a='$(shell exit) ${'; echo fine $a", 0)):
            result = subprocess.run(
                ["make", "vm", f"CMD={command}", "TIMEOUT=60"], cwd=TOP,
                env=outside_make(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                text=True)
            assert result.returncode == status, result
            with open(os.path.join(check.build, "vm.status")) as f:
                assert f.read() == f"{status}\n", result
        assert "fine $(shell exit) ${\n" in result.stdout, result

    if check.may_build and \
            os.path.realpath(check.build) == os.path.join(TOP, "build"):
        layer.test("make vm ends with its command's status, and leaves it",
                   front_door)

    layer.test("a command that a signal ends", lambda: expect(
        run("signal", "kill -9 $$"), 137, ""))

    def reported():
        for _, line in REPORTS:
            assert "'" not in line
        lines = "; ".join(f"echo '{line}' >/dev/kmsg" for _, line in REPORTS)
        expect(run("reports", lines + "; echo fine"), 125, "fine\n",
               ("the guest's kernel reports",))
        with open(layer.log("reports.console")) as f:
            found = {text for _, _, text in console.reports(f.read())}
        for _, line in REPORTS:
            assert any(line in text for text in found), line
        expect(run("allowed", "--allow", "KASAN: expected",
                   "echo 'BUG: KASAN: expected' >/dev/kmsg"), 0, "")

    layer.test("a report of each kind on the console, and one that is expected",
               reported)

    def goes_down():
        expect(run("panic", "echo c >/proc/sysrq-trigger; sleep 100"), 125,
               "", ("Kernel panic",))
        expect(run("early", "--append", "rdinit=/none init=/none", "true"),
               125, "", ("without saying that it was done",))

    layer.test("a guest that panics, or never begins, is a failure", goes_down)

    def world():
        out = os.path.join(layer.dir, "out")
        os.makedirs(out)
        result = run(
            "world", "--smp", "4", "--rw", out,
            f"nproc; pwd; ls -d /etc/passwd; echo kept >{out}/file; "
            f"touch {TOP}/README.md 2>/dev/null || echo read-only; "
            "printf 'a\\0b' | wc -c; echo again >/dev/stdout; "
            "grep -c . /proc/self/status >/dev/null && "
            "ls -d /sys/kernel/tracing/events /sys/kernel/debug/kunit "
            ">/dev/null && echo mounted")
        expect(result, 0, f"4\n{TOP}\n/etc/passwd\nread-only\n3\nagain\n"
               "mounted\n")
        with open(os.path.join(out, "file")) as f:
            assert f.read() == "kept\n"

    layer.test("the host's root read-only, a directory of it writable", world)

    def refused():
        for args, says in (
                (("--smp", "9", "true"), "1 to 8 CPUs"),
                (("--kernel", "/none", "true"), "no kernel at /none"),
                (("--rw", "/no/such", "true"), "no such directory")):
            result = run("refused", *args)
            assert result.returncode in (2, 125), result
            assert says in result.stderr, result.stderr

    layer.test("bad options are refused by name", refused)


LAYER = Layer(__name__, "the runner: rarer cases",
              run_guest_rare, rare=True)

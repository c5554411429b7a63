# SPDX-License-Identifier: GPL-2.0
"""Kernels without deferral, or without the series: perf on them, and the code and the
instructions of a system call."""

import os
import re

from common import TOP, TREE_NAME, Failure, call


def fallback(layer, setting, kernel):
    check = layer.check
    recording, skipped = ("Deferred callchains: perf record",
                          "Deferred callchains: perf script, report and inject")
    _, out = layer.guest(
        "fallback", f"cd {check.build}/{TREE_NAME}/tools/perf && "
        f"for t in '{recording}' '{skipped}'; do "
        f"{setting} {check.perf} test -vv \"$t\" 2>&1; done",
        "--patches-code", kernel=kernel)
    log = layer.log("fallback.log")
    for name, status in re.findall(r"^(.+) \[(Ok|Failed)\]$", out, re.M):
        if status == "Ok":
            layer.ok(name)
        else:
            layer.not_ok(name, f"log: {log}")
    # each of the two tests has a part that is skipped, with this reason
    if out.count("The kernel defers no user callchains by default [Skipped]") != 2:
        layer.not_ok("the fallback was tested to its end",
                     f"{out[-1500:]}\nlog: {log}")
    if re.search(rf"^ *\d+: {skipped} +: Skip$", out, re.M):
        layer.ok(f"{skipped}: skipped")
    else:
        layer.not_ok(f"{skipped}: skipped", f"{out[-1500:]}\nlog: {log}")


def same_exit_path(layer, names):
    """K22, in the code of two kernels: the base, and the base with the series."""
    out = call([os.path.join(TOP, "bench", "same-exit-path"),
                *(f"{layer.check.build}/{name}/vmlinux" for name in names)],
               log=layer.log("same-exit-path.log")).stdout
    # without it two kernels of the base would be the same, too
    if "the mask is" not in out:
        raise Failure(f"build/{names[1]} is without the series:\n{out}")


def same_instructions(layer, names, more=0):
    """K22: a system call that is not sampled, on the two kernels. The series may take
    @more instructions."""
    base, series = map(layer.check.kernel, names)
    out = call([os.path.join(TOP, "bench", "kernel"), "--untraced", "--strict",
                "--more", str(more), "--build", layer.check.build, "--base",
                base, "--series", series, "--out", layer.dir],
               log=layer.log("instructions.log")).stdout
    if not re.search(r"^  met +not traced", out, re.M):
        raise Failure(f"no figure:\n{out}")

# SPDX-License-Identifier: GPL-2.0
"""Entries of perf test: those that the series adds, and some of the base."""

import os
import re
import subprocess

from common import TOP, TREE_NAME, Failure, call, read_series
from layer import Layer

# tests of the base for code that the series changes: the attributes of perf record, its
# compressed files, JSON
PERF_TESTS_OF_THE_BASE = {
    "Setup struct perf_event_attr",
    "Zstd perf.data compression/decompression",
    "'perf data convert --to-json' command test",
}
# These open no event, and run here: in the guest they take twenty times as long.
HERE = {
    "Callchain tree",
    "Deferred callchains: live",
    "Deferred callchains: reading",
    "Deferred callchains: reading ahead",
    "Records between two reads",
    "Samples of groups",
    "Threads found by their number",
    "Unwinding tables: SFrame sections",
}


def run_perf_test(layer):
    """Every entry of perf test that the series adds, and some of the base."""
    perf = layer.check.perf
    wanted = set()
    for path in {p for patch in read_series() for p in patch.new_files
                 if p.startswith("tools/perf/tests/")}:
        with open(os.path.join(TOP, path)) as f:
            wanted.update(re.findall(
                r'\A#!.*\n# (.+)$|^DEFINE_SUITE\("(.+)",|'
                r'^struct test_suite \w+ = \{\s+\.desc = "(.+)",', f.read(),
                re.M))
    wanted = {"".join(found) for found in wanted} | PERF_TESTS_OF_THE_BASE
    source = f"{layer.check.build}/{TREE_NAME}/tools/perf"
    listing = call([perf, "test", "list"], cwd=source).stdout
    numbers = [(m[1], m[2].strip()) for m in
               re.finditer(r"^\s*(\d+):\s+(.*)$", listing, re.M)
               if m[2].strip() in wanted]
    missing = wanted - {name for _, name in numbers}
    if missing or not numbers:
        raise Failure(f"perf test list does not have {sorted(missing)}:\n"
                      + listing[-1500:])
    log = layer.log("perf-test.log")
    here, there = (" ".join(number for number, name in numbers if (name in HERE) == which)
                   for which in (True, False))
    command = f"cd {source} && for n in %s; do echo \"=== $n\"; {perf} test -v $n 2>&1; done"
    _, out = layer.guest("perf-test", command % there, "--patches-code", smp=4,
                         timeout=900)
    out += subprocess.run(
        ["sh", "-c", command % here], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        text=True, errors="replace", env={name: value for name, value in os.environ.items()
                                          if not name.startswith("PERF_")}).stdout
    with open(log, "w") as f:
        f.write(out)
    # " 97: name   : Ok", and " 97.1: sub-test  : Skip (why)"
    runs = re.split(r"^=== (\d+)$", out, flags=re.M)[1:]
    said = dict(zip(runs[0::2], runs[1::2]))
    for number, name in numbers:
        text = said.get(number, "")
        seen = re.findall(rf"^\s*({number}(?:\.\d+)?):\s+(.*?)\s*:\s+"
                          r"(Ok|Skip|FAILED!)(.*)$", text, re.M)
        if not seen:
            layer.not_ok(name, f"no result\n{text[-1500:]}\nlog: {log}")
        for _, what, status, why in seen:
            full = what if what == name else f"{name}: {what}"
            if status == "Ok":
                layer.ok(full)
            elif status == "Skip":
                layer.skip(full, why.strip(" ()") or "no reason")
            else:
                layer.not_ok(full, f"{text[-1500:]}\nlog: {log}")


LAYER = Layer(__name__, "entries of perf test, of the series and of the base",
              run_perf_test)

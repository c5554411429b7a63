# SPDX-License-Identifier: GPL-2.0
"""perf without libdw, which cannot make unwinding tables."""

import os
import re

from builds import build
from common import Failure
from layer import Layer

# perf record by default, with -v, and with tables asked for by name
RECORD = """
for words in -g "-v -g" "--call-graph fp,cfi"; do
    echo "=== $words"
    {perf} record $words -e page-faults -c 1 -o /tmp/data -- true 2>&1 || exit
    {perf} evlist -v -i /tmp/data
    {perf} script -i /tmp/data -F ip,sym || exit
done
echo "=== perf test"
{perf} test -v "Unwinding tables" 2>&1
"""
NO_TABLES = "No unwinding tables, user callchains go by frame pointers: " \
    "perf was built without libdw"


def run_no_libdw(layer):
    build(layer.check, "perf-no-libdw", layer.log("build.log"))
    # perf's make takes warnings for errors
    layer.ok("it builds without a warning")
    perf = os.path.join(layer.check.build, "perf-no-libdw", "perf")
    _, out = layer.guest("record", RECORD.format(perf=perf), "--patches-code")
    said = dict(zip(*[iter(re.split(r"^=== (.*)\n", out, flags=re.M)[1:])] * 2))

    def says(words, *lines):
        text = said.get(words, "")
        if re.findall("^.*unwinding tables.*$", text, re.M) != [*lines] or \
                re.findall(r"\bdefer_\w+: 1\b", text) != ["defer_callchain: 1",
                                                         "defer_output: 1"] or \
                not re.search(r"^\s+[0-9a-f]+ \w", text, re.M):
            raise Failure(f"{text[-1500:]}\nlog: {layer.log('record.log')}")

    layer.test("it records by frame pointers, silent by default", says, "-g")
    layer.test("-v says why", says, "-v -g", NO_TABLES)
    layer.test("a warning where tables are asked for by name", says,
               "--call-graph fp,cfi", f"WARNING: {NO_TABLES}")

    def skips():
        if "Skip (built without libdw)" not in said.get("perf test", ""):
            raise Failure(said.get("perf test", "")[-1500:])

    layer.test("perf test skips what it cannot make", skips)


LAYER = Layer(__name__, "perf without libdw: record by frame pointers", run_no_libdw,
              needs=("kernel", "perf"), alone=True, rare=True)

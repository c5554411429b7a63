# SPDX-License-Identifier: GPL-2.0
"""The mails that make series writes: checkpatch, git am, MAINTAINERS."""

import fnmatch
import hashlib
import os
import re
import subprocess

from common import (TOP, TREE_NAME, Failure, call, contents, mails_of,
                    read_series, read_text, write_text)
from layer import Layer
from sandbox import git_am

# Reports of checkpatch that the series cannot avoid. A line of the top Kconfig that
# sources another Kconfig has its own file's name in it. perf reads the description of
# a shell test from the second line, which puts the licence on the third. libFuzzer
# and Python give functions their names.
CHECKPATCH_EXEMPT = (
    ("EMBEDDED_FILENAME", "Kconfig"),
    ("SPDX_LICENSE_TAG", "tools/perf/tests/shell/"),
    ("CAMELCASE", "tools/perf/tests/fuzz-session.c"),
    # the names of libelf and libdw
    ("CAMELCASE", "tools/perf/util/cfi-"),
    ("CAMELCASE", "tools/perf/tests/cfi-table.c"),
    # an operand of an asm statement, %[name], as an argument of a macro
    ("SPACING", "arch/x86/include/asm/unwind_user.h"),
    # a regular expression of the base
    ("LONG_LINE", "tools/perf/trace/beauty/perf_ioctl.sh"),
    # the formats of inttypes.h, as all of perf has them
    ("CAMELCASE", "tools/perf/util/callchain-defer.c"),
    # code of the base that moves, or gets an argument, keeps its form
    ("UNNECESSARY_PARENTHESES", "tools/perf/util/tool.c"),
    ("PARENTHESIS_ALIGNMENT", "tools/perf/util/tool.c"),
    ("PARENTHESIS_ALIGNMENT", "tools/perf/util/data-convert-bt.c"),
    # lists of initializers
    ("COMPLEX_MACRO", "kernel/unwind/sframe.c"),
    ("MACRO_ARG_REUSE", "kernel/unwind/sframe.c"),
    # what an assembler's section has between its ends
    ("AVOID_EXTERNS", "tools/testing/selftests/unwind/unwind_table.c"),
    # programs have no linux/perf_regs.h
    ("INCLUDE_LINUX", "tools/testing/selftests/unwind/window.c"),
    ("CAMELCASE", "tools/perf/util/scripting-engines/trace-event-python.c"),
)


def run_series(layer):
    """checkpatch, git am, MAINTAINERS."""
    check = layer.check
    mails = mails_of(check.build)
    tree = os.path.join(check.build, TREE_NAME)
    # a patch that passed is not checked again until it, or checkpatch, changes
    record = os.path.join(check.build, "checkpatch.passed")
    before = set(read_text(record).split("\n")) if os.path.exists(record) else ()
    passed = []
    rules = repr(CHECKPATCH_EXEMPT).encode() + b"".join(
        contents(os.path.join(tree, "scripts", name)) for name in
        ("checkpatch.pl", "spelling.txt", "const_structs.checkpatch")
        if os.path.exists(os.path.join(tree, "scripts", name)))

    def digest_of_mail(mail):
        # its number and those of the blobs change with other patches
        text = re.sub(r"^(?:Subject: \[PATCH[^]]*\]|index .*$)", "",
                      read_text(mail), flags=re.M)
        return hashlib.sha256(
            rules + text.encode("utf-8", "surrogateescape")).hexdigest()

    def checkpatch(mail):
        digest = digest_of_mail(mail)
        if digest not in before:
            run_checkpatch(mail)
        passed.append(digest)

    def run_checkpatch(mail):
        # that a patch that adds files has to be looked at for MAINTAINERS is
        # what the test below does
        result = subprocess.run(
            ["perl", "scripts/checkpatch.pl", "--strict", "--no-color",
             "--show-types", "--ignore", "FILE_PATH_CHANGES",
             mail],
            cwd=tree, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace")
        with open(layer.log("checkpatch.log"), "a") as f:
            f.write(result.stdout)
        # it asks spdxcheck.py, which may want a module that is not there
        said = re.sub(r"^Traceback .*?\n(?:  .*\n)+\w+: .*\n", "",
                      result.stdout, flags=re.M)
        if not re.search(r"^total: \d+ errors", said, re.M):
            raise Failure(said)
        findings = re.findall(r"^(?:ERROR|WARNING|CHECK):(\w+): .*"
                              r"(?:\n#\d+: (?:FILE: (\S+?):\d+:)?)?", said, re.M)
        if not all(any(name == n and file.startswith(f)
                       for n, f in CHECKPATCH_EXEMPT)
                   for name, file in findings):
            raise Failure(said)

    for mail in mails:
        name = os.path.relpath(mail, os.path.join(check.build, "series"))
        layer.test(f"checkpatch --strict {name}", checkpatch, mail)
    write_text(record, "\n".join(passed))
    layer.test("git am on the pristine base", git_am,
               check.build, layer.dir, mails)

    def covered():
        with open(os.path.join(TOP, "MAINTAINERS")) as f:
            patterns = re.findall(r"^F:\s+(\S+)$", f.read(), re.M)
        lonely = []
        for patch in read_series():
            for path in patch.new_files:
                if not any(path.startswith(p) if p.endswith("/") else
                           fnmatch.fnmatch(path, p) for p in patterns):
                    lonely.append(path)
        if lonely:
            raise Failure("no F: line of MAINTAINERS has " + ", ".join(lonely))

    layer.test("MAINTAINERS has every new file", covered)
    layer.test("what the mutants take out is there", call,
               [os.path.join(TOP, "tests", "mutants", "run"), "--build", check.build,
                "--edit", "--copy", os.path.join(layer.dir, "mutants")],
               layer.log("mutants.log"))

    def entry():
        with open(os.path.join(TOP, "MAINTAINERS")) as f:
            ours = f.read().strip()
        with open(os.path.join(tree, "MAINTAINERS"), errors="replace") as f:
            if ours not in f.read():
                raise Failure("the entry in MAINTAINERS is not the one that "
                              "the series adds to the tree's")

    layer.test("the series adds the MAINTAINERS entry", entry)


LAYER = Layer(__name__, "checkpatch --strict, git am, MAINTAINERS",
              run_series, needs=("series",), in_guest=False)

# SPDX-License-Identifier: GPL-2.0
"""The mails that make series writes: checkpatch, git am, MAINTAINERS."""

import hashlib
import os
import re
import subprocess

from common import (APPLIED, BASE, SERIES, TOP, TREE_NAME, Failure, Git, call,
                    contents, mails_of, read_series, read_text, wanted_series,
                    write_text)
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
    ("CAMELCASE", "tools/perf/tests/cfi-"),
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
    # a flag that a signal handler sets
    ("VOLATILE", "tools/perf/util/cfi-record"),
    # what an assembler's section has between its ends
    ("AVOID_EXTERNS", "tools/testing/selftests/unwind/unwind_table.c"),
    # programs have no linux/perf_regs.h
    ("INCLUDE_LINUX", "tools/testing/selftests/unwind/window.c"),
    ("CAMELCASE", "tools/perf/util/scripting-engines/trace-event-python.c"),
)

# added lines of a patch, for a reviewer to take in
MOST_LINES = 1300


def entry_at(git, commit):
    """The entry that the series add to MAINTAINERS, as far as @commit has it."""
    title = read_text(os.path.join(TOP, "MAINTAINERS")).split("\n")[0]
    text = git("show", f"{commit}:MAINTAINERS")
    match = re.search(rf"^{re.escape(title)}\n(?:.+\n)+", text, re.M)
    if not match:
        raise Failure(f"MAINTAINERS has no entry {title!r}")
    return match[0].strip()


def means(pattern, path):
    """Whether get_maintainer.pl takes @path for a file of @pattern: * stops at a slash."""
    glob = re.escape(pattern).replace(r"\*", "[^/]*")
    return re.match(glob + ("" if pattern.endswith("/") else "$"), path)


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

    def covered(git, commit, patches):
        """The entry at @commit names the files of @patches, and no others."""
        new = [path for patch in patches for path in patch.new_files]
        patterns = re.findall(r"^F:\s+(\S+)$", entry_at(git, commit), re.M)
        idle = [p for p in patterns if not any(means(p, path) for path in new)]
        if idle:
            raise Failure("no new file is meant by F: " + ", ".join(idle))
        lonely = [path for path in new if not any(means(p, path) for p in patterns)]
        if lonely:
            raise Failure("no F: line of MAINTAINERS has " + ", ".join(lonely))

    git = Git(tree)
    patches = read_series()
    commits = git("rev-list", "--reverse", f"{BASE}..{APPLIED}").split("\n")

    def lengths():
        long = []
        for commit, patch in zip(commits, patches):
            counts = git("show", "--format=", "--numstat", "--no-renames", commit)
            added = sum(int(line.split("\t")[0]) for line in counts.split("\n"))
            if added > MOST_LINES:
                long.append(f"patches/{patch.name}: {added} lines")
        if long:
            raise Failure("\n".join(long))

    layer.test(f"no patch adds more than {MOST_LINES} lines", lengths)
    # each series lists its own files: the first one may be applied without the others
    for name in wanted_series():
        count = 1 + max(n for n, patch in enumerate(patches) if patch.series == name)
        layer.test(f"MAINTAINERS has the new files up to {name}, and no others",
                   covered, git, commits[count - 1], patches[:count])
    layer.test("the code that the mutants take out is there", call,
               [os.path.join(TOP, "tests", "mutants", "run"), "--build", check.build,
                "--edit", "--copy", os.path.join(layer.dir, "mutants")],
               layer.log("mutants.log"))

    def entry():
        with open(os.path.join(TOP, "MAINTAINERS")) as f:
            ours = f.read().strip().split("\n")
        if wanted_series() != SERIES:
            # without the lines of the series that are not there
            new = [path for patch in patches for path in patch.new_files]
            ours = [line for line in ours if not line.startswith("F:") or
                    any(means(line.split()[1], path) for path in new)]
        if entry_at(git, APPLIED) != "\n".join(ours):
            raise Failure("the entry in MAINTAINERS is not the one that "
                          "the series add to the tree's")

    layer.test("the series add the MAINTAINERS entry", entry)


LAYER = Layer(__name__, "checkpatch --strict, git am, MAINTAINERS",
              run_series, needs=("series",), in_guest=False)

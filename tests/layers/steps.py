# SPDX-License-Identifier: GPL-2.0
"""Builds the files that each commit of the series touches, one commit after the
other.

For a commit that edits the kernel it builds, in the guest's configuration, all C
files that the series has touched so far, and a small kernel as a whole, to see it
link. For a commit that edits tools/perf it builds perf, and for one that edits the
selftests it builds these, with the headers of that step.

The options of qemu/series.config are set from the commit on that makes x86 select
HAVE_UNWIND_USER_FP. Until then the series must build without them.
"""

import os
import re
import shutil
import subprocess

import configs
from common import (APPLIED, BASE, TOP, TREE_NAME, Failure, Git, call,
                    read_text)
from layer import Layer

SMALL = "x86-64-smp"


class Steps:
    def __init__(self, build):
        self.build = build
        self.out = os.path.join(build, "steps")
        self.tree = os.path.join(self.out, "tree")
        git_dir = os.path.join(build, TREE_NAME, ".git")
        self.git = Git(self.tree, GIT_DIR=git_dir, GIT_WORK_TREE=self.tree,
                       GIT_INDEX_FILE=os.path.join(self.out, "index"))

    def begin(self):
        """Makes the tree of the base, with nothing built."""
        shutil.rmtree(self.out, ignore_errors=True)
        os.makedirs(self.out)
        call(["cp", "-a", "--reflink=auto", os.path.join(self.build, "base"),
              self.tree])
        self.git("read-tree", BASE)
        self.git.raw("update-index", "-q", "--refresh", check=False)
        self.git("read-tree", "--reset", "-u", BASE)

    def commits(self):
        """[(commit, subject, files)]"""
        out = []
        for line in self.git("log", "--reverse", "--format=%H %s",
                             f"{BASE}..{APPLIED}").split("\n"):
            commit, subject = line.split(" ", 1)
            out.append((commit, subject, self.files(f"{commit}^", commit)))
        return out

    def files(self, old, new):
        return [p for p in self.git("diff", "--name-only", "--no-renames", "-z",
                                    old, new).split("\0") if p]

    def step(self, commit, files, log):
        open(log, "w").close()
        self.git("read-tree", "--reset", "-u", commit)
        kernel = [p for p in files if not p.startswith(
            ("tools/", "Documentation/", "MAINTAINERS"))]
        if kernel:
            self.kernel(commit, log)
        if any(p.startswith(("tools/perf/", "tools/lib/", "tools/include/"))
               for p in files):
            self.perf(log)
        if any(p.startswith("tools/testing/selftests/") for p in files):
            self.selftests(log)

    def make(self, log, *args):
        command = ["make", f"-j{configs.jobs()}", *args]
        start = os.path.getsize(log)
        with open(log, "a") as f:
            f.write(f"$ {' '.join(command)}\n")
            f.flush()
            status = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=f,
                                    stderr=subprocess.STDOUT,
                                    env=configs.clean_env()).returncode
        with open(log, errors="replace") as f:
            f.seek(start)
            text = f.read()
        if status:
            raise Failure(f"{' '.join(args[-3:])} does not build:\n"
                          + configs.tail(log) + f"\nlog: {log}")
        return text

    def enabled(self):
        return "select HAVE_UNWIND_USER_FP" in read_text(
            os.path.join(self.tree, "arch/x86/Kconfig"))

    def kconfig(self, directory, log, *fragments):
        call([configs.KCONFIG, self.tree, directory, *fragments], log=log,
             env=configs.clean_env())

    def kernel(self, commit, log):
        source = configs.Source(self.tree)
        touched = self.files(BASE, commit)
        guest = os.path.join(self.out, "guest")
        fragments = [os.path.join(TOP, "qemu", "kernel.config")]
        if self.enabled():
            fragments.append(os.path.join(TOP, "qemu", "series.config"))
        self.kconfig(guest, log, *fragments)
        objects = configs.Objects(source, "x86",
                                  os.path.join(guest, ".config")).of(
            configs.kernel_c(touched))
        if not objects:
            raise Failure("the guest's configuration has none of "
                          + ", ".join(touched))
        said = configs.Messages(
            self.make(log, "-C", self.tree, f"O={guest}", *objects), source)
        if said.count:
            raise Failure("\n".join(said.beyond(None)) + f"\nlog: {log}")

        small = os.path.join(self.out, "small")
        config = next(c for c in configs.read_configs() if c.name == SMALL)
        fragment = os.path.join(self.out, "small.config")
        options = config.options + (config.series if self.enabled() else [])
        with open(fragment, "w") as f:
            f.writelines(f"CONFIG_{o}\n" for o in options)
        self.kconfig(small, log, fragment)
        self.make(log, "-C", self.tree, f"O={small}", "vmlinux")

    def perf(self, log):
        out = os.path.join(self.out, "perf")
        os.makedirs(out, exist_ok=True)
        self.make(log, "-C", os.path.join(self.tree, "tools/perf"), f"O={out}")
        if not os.path.exists(os.path.join(out, "perf")):
            raise Failure(f"no perf\nlog: {log}")

    def selftests(self, log):
        guest = os.path.join(self.out, "guest")
        out = os.path.join(self.out, "kselftest")
        shutil.rmtree(out, ignore_errors=True)
        os.makedirs(out)
        self.make(log, "-C", self.tree, f"O={guest}", "headers")
        text = self.make(
            log, "-C", os.path.join(self.tree, "tools/testing/selftests"),
            f"O={out}", "TARGETS=unwind", "FORCE_TARGETS=1",
            f"KHDR_INCLUDES=-isystem {guest}/usr/include", "all")
        said = re.findall(r"^.*\bwarning: .*$", text, re.M)
        if said:
            raise Failure("\n".join(said) + f"\nlog: {log}")


def run_steps(layer):
    steps = Steps(layer.check.build)
    steps.begin()
    commits = steps.commits()
    for number, (commit, subject, files) in enumerate(commits, 1):
        layer.test(f"{number}/{len(commits)} {subject}", steps.step, commit,
                   files, layer.log(f"{number:04d}.log"))
    if not steps.enabled():
        raise Failure("no step selects HAVE_UNWIND_USER_FP")


LAYER = Layer(__name__, "the files that each commit touches build, commit by commit",
              run_steps, needs=("tree",), alone=True, rare=True)

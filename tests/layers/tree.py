# SPDX-License-Identifier: GPL-2.0
"""make tree and make refresh: commits, files and series that come, go and move."""

import os
import re
import shutil

from common import SERIES, Failure, Git, read_series
from layer import Layer
from sandbox import IDENTITY, SIGNED, Sandbox


def run_tree(layer):
    box = Sandbox(layer)

    def tree(*args):
        return box.good("tree", *args)
    tree("--kernel-src", box.src)

    def twice():
        heads = box.git("rev-parse", "HEAD")
        shutil.rmtree(box.build)
        tree("--kernel-src", box.src)
        if box.git("rev-parse", "HEAD") != heads:
            raise Failure("two runs made different commits")
        before = {p: os.stat(os.path.join(box.tree, p)).st_mtime_ns
                  for p in box.git("ls-files").split("\n")}
        if "up to date" not in tree():
            raise Failure("a second make tree did something")
        written = [p for p, then in before.items()
                   if os.stat(os.path.join(box.tree, p)).st_mtime_ns != then]
        if written:
            raise Failure(f"a second make tree wrote {written}")

    box.test("the commits are the same each time; a second run does nothing",
             twice)

    def three_series():
        """A tree of some series, and the series that refresh gives a commit."""
        for wrong in ("perf", "perf kernel", "kernel perf-fixes", "kernels"):
            box.bad("tree", SERIES=wrong, says=(f"'{wrong}'", "'kernel perf'"))
        kernel, perf = (len(read_series(box.top, names))
                        for names in (["kernel"], ["kernel", "perf"]))
        out = box.good("tree", SERIES="kernel")
        assert f"{kernel} commits" in out, out
        box.append("kernel/exec_domain.c", "\n/* an edit */\n")
        box.commit("test: an edit", "kernel/exec_domain.c")
        box.bad("tree", says=("not in patches/",))
        box.good("refresh")
        changes = Git(box.top)("status", "--porcelain").split("\n")
        assert changes == [" M patches/kernel/series",
                           "?? patches/kernel/test-an-edit.patch"], changes
        box.git("reset", "-q", "--hard", "HEAD~1")
        box.good("refresh")
        box.same()
        tree()

        # a commit of the kernel's behind the last one
        commits = box.git("rev-list", "--reverse",
                          "refs/series/base..HEAD").split("\n")
        last = commits[kernel - 1]
        box.git("rebase", "-q", "--onto", f"{last}^", last, env=IDENTITY)
        box.git("cherry-pick", last, env=IDENTITY)
        box.bad("refresh", says=("of the series kernel, is behind",
                                 "of the series perf-fixes", "git rebase -i"))
        box.back()
        # perf's first one with another subject
        box.git("reset", "-q", "--hard", commits[kernel])
        box.git("commit", "-q", "--amend", "-m", "test: renamed" + SIGNED,
                env=IDENTITY)
        box.good("refresh")
        names = [patch.name for patch in read_series(box.top, SERIES)]
        assert len(names) == kernel + 1 and \
            names[-1] == "perf/test-renamed.patch", names[-1]
        # and a second one of that name
        box.append("kernel/exec_domain.c", "\n/* an edit */\n")
        box.commit("test: renamed", "kernel/exec_domain.c")
        box.bad("refresh", says=("would both be test-renamed.patch",))
        box.back()
        tree()
        # the last two change places
        commits = box.git("rev-list", "refs/series/base..HEAD").split("\n")
        box.git("reset", "-q", "--hard", "HEAD~2")
        for commit in commits[:2]:
            box.git("cherry-pick", commit, env=IDENTITY)
        box.good("refresh")
        changes = Git(box.top)("status", "--porcelain").split("\n")
        assert changes == [" M patches/perf-fixes/series"], changes
        box.back()
        tree()
        box.good("refresh")
        box.same()

    box.test("SERIES=: a tree of the first ones; each commit goes to its series",
             three_series)

    def edit():
        box.append("kernel/exec_domain.c", "\n/* an edit */\n")
        box.write("kernel/brought.c", "int brought;\n")
        box.write("kernel/brought.sh", "#!/bin/sh\n", executable=True)
        box.commit("test: an edit and two files", "kernel/exec_domain.c",
                   "kernel/brought.c", "kernel/brought.sh")
        box.good("refresh")
        with open(os.path.join(box.top, "kernel/brought.c")) as f:
            assert f.read() == "int brought;\n"
        assert os.access(os.path.join(box.top, "kernel/brought.sh"), os.X_OK)
        last = read_series(box.top, SERIES)[-1]
        assert last.new_files == ["kernel/brought.c", "kernel/brought.sh"], \
            last.new_files
        assert "+/* an edit */" in last.diff, last.diff
        # and from patches/ alone the same tree comes out
        kept = box.git("rev-parse", "HEAD^{tree}")
        shutil.rmtree(box.build)
        tree("--kernel-src", box.src)
        assert box.git("rev-parse", "HEAD^{tree}") == kept, \
            box.git("ls-tree", "-r", "HEAD")
        Git(box.top)("add", "-A")
        box.good("refresh")
        diff = Git(box.top)("diff", "--name-only")
        assert not diff, diff

    box.test("a commit in the tree arrives in patches/ and comes back", edit)

    def incremental():
        untouched = os.stat(os.path.join(box.tree, "Makefile")).st_mtime_ns
        edited = os.path.join(box.tree, "kernel/exec_domain.c")
        before = os.stat(edited).st_mtime_ns
        with open(os.path.join(box.top, "kernel/brought.c"), "a") as f:
            f.write("int more;\n")
        out = tree()
        assert "1 files written" in out, out
        assert os.stat(edited).st_mtime_ns == before
        assert os.stat(os.path.join(box.tree,
                                    "Makefile")).st_mtime_ns == untouched
        with open(os.path.join(box.tree, "kernel/brought.c")) as f:
            assert "int more;" in f.read()

    box.test("a changed whole file is the only one that make tree writes",
             incremental)

    def removed():
        box.git("reset", "-q", "--hard", "HEAD~1")
        box.good("refresh")
        for name in ("kernel/brought.c", "kernel/brought.sh"):
            assert not os.path.exists(os.path.join(box.top, name)), name
        Git(box.top)("reset", "-q")
        box.same()
        with open(os.path.join(box.tree, "kernel/exec_domain.c")) as f:
            assert "an edit" not in f.read()

    box.test("a file that no commit brings any more is removed", removed)

    def twice_touched():
        box.write("kernel/brought.c", "int brought;\n")
        box.commit("test: bring", "kernel/brought.c")
        box.append("kernel/brought.c", "int again;\n")
        box.commit("test: touch again", "kernel/brought.c")
        box.bad("refresh", says=("kernel/brought.c", "test: bring",
                                 "test: touch again"))
        box.same()
        box.back()

    box.test("refused: a new file that two commits touch", twice_touched)

    def unsigned():
        box.write("kernel/brought.c", "int brought;\n")
        box.commit("test: bring", "kernel/brought.c", signed=False)
        box.bad("refresh", says=("not signed off", "test: bring"))
        box.back()

    box.test("refused: a commit that is not signed off", unsigned)

    def our_name():
        box.write("bench/x.c", "int x;\n")
        box.commit("test: bring", "bench/x.c")
        box.bad("refresh", says=("bench/x.c",))
        box.back()

    box.test("refused: a new file at a path of the repository's own",
             our_name)

    def stray():
        plain = "kernel/groups.c"
        box.append(plain, "\n/* stray */\n")
        box.bad("refresh", says=(plain, "was edited"))
        with open(os.path.join(box.src, plain)) as f:
            pristine = f.read()
        box.commit("test: an edit of a file just put under git", plain)
        box.good("refresh")
        last = read_series(box.top, SERIES)[-1]
        assert last.new_files == [] and "+/* stray */" in last.diff \
            and "new file" not in last.diff, last.text()
        # git takes the file away with the commit; make tree brings it back
        box.git("reset", "-q", "--hard", "HEAD~1")
        box.good("refresh")
        tree()
        with open(os.path.join(box.tree, plain)) as f:
            assert f.read() == pristine
        box.write("kernel/stray.c", "int stray;\n")
        box.bad("refresh", says=("kernel/stray.c", "is new"))
        os.rename(os.path.join(box.tree, "kernel/stray.c"),
                  os.path.join(box.tree, "kernel/stray.o"))
        box.good("refresh")
        box.same()

    box.test("an edit of a file that is not under git is not lost", stray)

    def add():
        plain = "kernel/user.c"
        count = box.git("rev-list", "--count", "HEAD")
        box.append(plain, "\n/* added */\n")
        tree("--add", plain)
        assert box.git("rev-list", "--count", "HEAD") == count
        assert plain in box.git("status", "--porcelain",
                                "--untracked-files=no")
        box.commit("test: an edit", plain)
        box.git("rebase", "-q", "--root", env=IDENTITY)
        box.back()
        with open(os.path.join(box.tree, plain)) as f:
            assert "added" not in f.read()
        box.good("refresh")
        box.same()
        box.bad("tree", "--add", "no/such.c", says=("no/such.c",))

    box.test("make tree-add puts a file of the base under git", add)

    def bad_patch():
        series = [p for p in read_series(box.top, SERIES) if p.diff]
        path = os.path.join(box.top, "patches", series[0].name)
        with open(path) as f:
            text = f.read()
        lines = text.split("\n")
        at = next(n for n, line in enumerate(lines)
                  if line.startswith("@@"))
        old = [n for n in range(at + 1, len(lines))
               if lines[n].startswith(" ") and lines[n].strip()]
        for n in old[:3]:
            lines[n] = lines[n][:1] + "no such line" + lines[n][1:]
        with open(path, "w") as f:
            f.write("\n".join(lines))
        out = box.bad("tree", says=(series[0].name, "does not apply",
                                    "log: "))
        log = re.search(r"log: (\S+)", out)[1]
        assert os.path.getsize(log)
        with open(path, "w") as f:
            f.write(text)
        tree()
        box.good("refresh")
        box.same()

    box.test("a patch that does not apply: told, and the next run recovers",
             bad_patch)

    def cut_short():
        brought = [p for patch in read_series() for p in patch.new_files]
        path = os.path.join(box.top, brought[0])
        with open(path, "a") as f:
            f.write("\n/* a change */\n")
        # a directory where a temporary file has to go stops the writing
        block = os.path.join(box.tree, brought[0] + ".new")
        os.mkdir(block)
        box.bad("tree", says=(brought[0],))
        os.rmdir(block)
        tree()
        with open(os.path.join(box.tree, brought[0])) as f:
            assert "a change" in f.read()
        Git(box.top)("checkout", "-q", "--", ".")
        tree()

    box.test("a run that was cut short is completed by the next", cut_short)
    shutil.rmtree(box.top)


LAYER = Layer(__name__, "make tree and make refresh: the rarer cases",
              run_tree, needs=("tree",), rare=True, in_guest=False)

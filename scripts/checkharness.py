# SPDX-License-Identifier: GPL-2.0
"""The tests of the harness: scripts/ and qemu/, for scripts/check."""

import importlib.machinery
import importlib.util
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import xml.etree.ElementTree

from common import (TOP, TREE_NAME, Failure, Git, mails_of,
                    outside_make, read_series)

sys.path.insert(0, os.path.join(TOP, "qemu"))
import console  # noqa: E402

IDENTITY = {}
for _who in ("AUTHOR", "COMMITTER"):
    IDENTITY[f"GIT_{_who}_NAME"] = "Tester"
    IDENTITY[f"GIT_{_who}_EMAIL"] = "tester@example.org"
SIGNED = "\n\nWhy it is so.\n\nSigned-off-by: Tester <tester@example.org>\n"


def touched_files(series):
    """The files of the base that a series edits."""
    return {path for patch in series for path in
            re.findall(r"^diff --git a/(.*) b/\1$", patch.diff, re.M)}


def small_base(build, target, series):
    """A base with only those files that the series and the scripts read."""
    base = os.path.join(build, "base")
    wanted = touched_files(series) | {
        "Makefile", "scripts/checkpatch.pl", ".gitignore", ".gitattributes",
        # for edits by the tests; no patch is to have an edit of these
        "kernel/exec_domain.c", "kernel/groups.c", "kernel/user.c"}
    for path in sorted(wanted):
        source = os.path.join(base, path)
        if os.path.isfile(source):
            os.makedirs(os.path.dirname(os.path.join(target, path)),
                        exist_ok=True)
            shutil.copy2(source, os.path.join(target, path))
    return target


def copy_repository(target):
    """Copies this repository as it is, without build/."""
    names = Git(TOP)("ls-files", "-z", "--cached", "--others",
                     "--exclude-standard").split("\0")
    for name in names:
        source = os.path.join(TOP, name)
        if name and os.path.isfile(source):
            path = os.path.join(target, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            shutil.copy2(source, path)
    git = Git(target)
    git("init", "-q", "-b", "main")
    git("add", "-A", "-f")
    git("commit", "-q", "-m", "start", env=IDENTITY)
    return target


def git_am(build, work, mails):
    """Applies the mails to the pristine base; compares with the tree."""
    series = read_series()
    repo = os.path.join(work, "am")
    base = os.path.join(build, "base")
    for path in sorted(touched_files(series)):
        target = os.path.join(repo, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy2(os.path.join(base, path), target)
    git = Git(repo)
    git("init", "-q", "-b", "main")
    git("add", "-A", "-f")
    git("commit", "-q", "-m", "base", env=IDENTITY)
    result = git.raw("am", "-q", *mails, check=False, env=IDENTITY)
    if result.returncode or result.stderr.strip():
        # "clean" leaves no room for a warning about white space either
        raise Failure((result.stdout + result.stderr).decode(
            errors="replace"))
    tree = Git(os.path.join(build, TREE_NAME))
    wanted = dict(reversed(line.split("\t")) for line in
                  tree("ls-tree", "-r", "HEAD").split("\n"))
    got = dict(reversed(line.split("\t")) for line in
               git("ls-tree", "-r", "HEAD").split("\n"))
    for path, meta in got.items():
        if wanted.get(path) != meta:
            raise Failure(f"{path} is not what build/{TREE_NAME} has")
    made = git("rev-list", "--count", "HEAD")
    if int(made) != len(series) + 1:
        raise Failure(f"{made} commits for {len(series)} patches")


# what somebody may have set, and what is said is then looked at in vain
NOT_ENGLISH = {"LC_ALL": "", "LANG": "C.UTF-8", "LANGUAGE": "de"}


class Sandbox:
    """A copy of the repository with a small base and a build of its own."""

    def __init__(self, layer):
        self.layer = layer
        self.top = copy_repository(os.path.join(layer.dir, "repo"))
        self.build = os.path.join(self.top, "build")
        self.tree = os.path.join(self.build, TREE_NAME)
        self.src = small_base(layer.check.build,
                              os.path.join(layer.dir, "src"), read_series())
        self.git = Git(self.tree)

    def run(self, script, *args, **env):
        """(exit status, all of its output)."""
        result = subprocess.run(
            [os.path.join(self.top, "scripts", script), *args],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            cwd=self.top, env=dict(
                {k: v for k, v in os.environ.items() if k not in
                 ("KERNEL_SRC", "BUILD", "CMD", "BASE")},
                **NOT_ENGLISH, **env))
        with open(self.layer.log("commands.log"), "a") as f:
            f.write(f"$ {script} {' '.join(args)}\n{result.stdout}"
                    f"[{result.returncode}]\n")
        return result.returncode, result.stdout

    def good(self, script, *args, **env):
        status, out = self.run(script, *args, **env)
        if status:
            raise Failure(f"{script} {' '.join(args)} failed:\n{out}")
        return out

    def bad(self, script, *args, says=(), **env):
        status, out = self.run(script, *args, **env)
        if not status:
            raise Failure(f"{script} {' '.join(args)} did not fail:\n{out}")
        if "Traceback" in out:
            raise Failure(out)
        for words in says:
            if words not in out:
                raise Failure(f"{script} {' '.join(args)} failed without "
                              f"saying {words!r}:\n{out}")
        return out

    def same(self):
        """Raises if the repository is not as it was at the start."""
        changes = Git(self.top)("status", "--porcelain")
        if changes:
            diff = Git(self.top)("diff")
            raise Failure(f"{changes}\n{diff[:2000]}")

    def write(self, path, text, executable=False):
        full = os.path.join(self.tree, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w") as f:
            f.write(text)
        if executable:
            os.chmod(full, 0o755)

    def append(self, path, text):
        with open(os.path.join(self.tree, path), "a") as f:
            f.write(text)

    def commit(self, subject, *paths, signed=True):
        self.git("add", "-f", *paths)
        self.git("commit", "-q", "-m", subject + (SIGNED if signed else ""),
                 env=IDENTITY)

    def test(self, name, function):
        """Runs one test. If it fails, its leftovers are removed before the next one."""
        failed = sum(r[1] == "not ok" for r in self.layer.results)
        self.layer.test(name, function)
        if sum(r[1] == "not ok" for r in self.layer.results) != failed:
            shutil.rmtree(self.build, ignore_errors=True)
            git = Git(self.top)
            git("reset", "-q", "--hard")
            git("clean", "-q", "-f", "-d", "-e", "build")
            self.good("tree", "--kernel-src", self.src)

    def back(self):
        """Restores the tree and the repository."""
        self.git("reset", "-q", "--hard", "refs/series/applied")
        Git(self.top)("checkout", "-q", "--", ".")
        Git(self.top)("clean", "-q", "-f", "-d", "-e", "build")


def run_scripts(layer):
    box = Sandbox(layer)

    def tree(*args):
        return box.good("tree", *args)

    def round_trip():
        tree("--kernel-src", box.src)
        box.good("refresh")
        box.same()

    box.test("tree and refresh without a change give no difference", round_trip)

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
        names = [patch.name for patch in read_series(box.top)]
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
        last = read_series(box.top)[-1]
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

    def uncommitted():
        path = sorted(touched_files(read_series()))[0]
        box.append(path, "\n")
        box.bad("refresh", says=("not committed", path))
        brought = [p for patch in read_series() for p in patch.new_files]
        with open(os.path.join(box.top, brought[0]), "a") as f:
            f.write("\n")
        box.bad("tree", says=("not committed", path))
        box.back()
        tree()

    box.test("refused: edits in the tree that are not committed",
             uncommitted)

    def unrefreshed():
        box.write("kernel/brought.c", "int brought;\n")
        box.commit("test: bring", "kernel/brought.c")
        brought = [p for patch in read_series() for p in patch.new_files]
        with open(os.path.join(box.top, brought[0]), "a") as f:
            f.write("\n")
        box.bad("tree", says=("not in patches/", "test: bring"))
        box.bad("refresh", says=(f"{box.tree} was made of them",))
        assert os.path.exists(os.path.join(box.tree, "kernel/brought.c"))
        box.back()
        tree()

    box.test("refused: what would overwrite commits or edits of either side",
             unrefreshed)

    def stray():
        plain = "kernel/groups.c"
        box.append(plain, "\n/* stray */\n")
        box.bad("refresh", says=(plain, "was edited"))
        with open(os.path.join(box.src, plain)) as f:
            pristine = f.read()
        box.commit("test: an edit of a file just put under git", plain)
        box.good("refresh")
        last = read_series(box.top)[-1]
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
        series = [p for p in read_series(box.top) if p.diff]
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

    layer.test("packages: named; what apt would remove for them stays",
               packages, layer)
    layer.test("what could not be made is not tested as it was before",
               not_made, os.path.join(layer.dir, "not-made"))
    layer.test("TAP is read as it is meant", tap)
    layer.test("what is skipped has failed, or may be", skips,
               os.path.join(layer.dir, "skips"))
    layer.test("every script parses; shellcheck has nothing to say", lint)
    layer.test("nothing but the series in the series' directories",
               only_series)
    shutil.rmtree(box.top)


def run_scripts_rare(layer):
    box = Sandbox(layer)

    def tree(*args):
        return box.good("tree", *args)

    tree("--kernel-src", box.src)

    def from_tarball():
        heads = box.git("rev-parse", "HEAD")
        for kind in ("xz", "gz"):
            shutil.rmtree(box.build)
            tree("--kernel-src", tarball(box, kind))
            assert box.git("rev-parse", "HEAD") == heads
        # as tar -C directory -c ./name and tar -C name -c . have them
        for number, name in enumerate(("./linux-6.12.x", ".")):
            path = os.path.join(layer.dir, f"dot{number}.tar")
            with tarfile.open(path, "w") as tar:
                tar.add(box.src, name)
            tree("--kernel-src", path, "--base-only")
            assert not subprocess.run(["diff", "-r", box.src, os.path.join(
                box.build, "base")]).returncode
        tree("--kernel-src", box.src)
        # the source named last is kept when none is named
        assert "up to date" in tree()

    box.test("KERNEL_SRC names a tarball", from_tarball)

    def versions():
        for words, says in (
                (("6", "11", "100"), ("6.11.100", "6.12.y")),
                (("6", "13", "0"), ("6.13.0", "6.12.y")),
                (("7", "12", "117"), ("7.12.117",)),
                (("6", "12", "99"), ("6.12.99", "6.12.100"))):
            other = os.path.join(layer.dir, "other")
            shutil.rmtree(other, ignore_errors=True)
            shutil.copytree(box.src, other)
            path = os.path.join(other, "Makefile")
            with open(path) as f:
                text = f.read()
            for name, word in zip(("VERSION", "PATCHLEVEL", "SUBLEVEL"),
                                  words):
                text = re.sub(rf"^{name} = .*$", f"{name} = {word}", text,
                              count=1, flags=re.M)
            with open(path, "w") as f:
                f.write(text)
            box.bad("tree", "--kernel-src", other, says=says)
        assert "up to date" in tree()

    box.test("refused by its version: another kernel, a 6.12.y too old",
             versions)

    def no_source():
        box.bad("tree", "--kernel-src", os.path.join(layer.dir, "none"),
                says=("no such directory or tarball",))
        box.bad("tree", "--kernel-src", os.path.join(TOP, "qemu"),
                says=("Makefile",))
        cut = os.path.join(layer.dir, "cut.tar.xz")
        with open(tarball(box, "xz"), "rb") as f:
            whole = f.read()
        # before its Makefile, and after it
        for length in (2000, len(whole) - 2000):
            with open(cut, "wb") as f:
                f.write(whole[:length])
            box.bad("tree", "--kernel-src", cut,
                    says=("no whole tarball", "log: ", "fetch it again"))
        assert "up to date" in tree()

    box.test("refused: no source, no kernel's source, half a tarball",
             no_source)

    def newer():
        """With another 6.12.y the tree is made anew, and its objects go."""
        other = os.path.join(layer.dir, "newer")
        shutil.copytree(box.src, other)
        path = os.path.join(other, "Makefile")
        with open(path) as f:
            text = f.read()
        with open(path, "w") as f:
            f.write(re.sub(r"^SUBLEVEL = .*$", "SUBLEVEL = 200", text,
                           count=1, flags=re.M))
        made = ("kernel", "kernel-debug", "mutants/linux", "perf-base", "steps")
        kept = ("log", "demo", "vm", "fuzz/corpus", "bench")
        for name in made + kept:
            os.makedirs(os.path.join(box.build, name), exist_ok=True)
        box.write("kernel/brought.c", "int brought;\n")
        new = ("kernel/brought.c is new",)
        box.bad("tree", "--kernel-src", other, "--base-only", says=new)
        box.commit("test: bring", "kernel/brought.c")
        for more in (), ("--base-only",):
            box.bad("tree", "--kernel-src", other, *more,
                    says=("test: bring",))
        box.back()
        # nothing of the one before for what comes next to be called up to date
        out = tree("--kernel-src", other, "--base-only")
        assert "6.12.200" in out and "kernel-debug" in out, out
        assert sublevels(box) == {"base": "200"}, sublevels(box)
        there = [n for n in made if os.path.exists(os.path.join(box.build, n))]
        assert not there, there
        tree("--kernel-src", other)
        assert sublevels(box) == {"base": "200", TREE_NAME: "200"}, \
            sublevels(box)
        tree("--kernel-src", box.src)
        gone = [n for n in kept
                if not os.path.exists(os.path.join(box.build, n))]
        assert not gone, gone

    box.test("another 6.12.y by KERNEL_SRC makes the tree anew", newer)

    def unfit():
        """If a base cannot be used, everything made of the present one stays."""
        series = [p for p in read_series(box.top) if p.diff]
        brought = [f for p in read_series(box.top) for f in p.new_files][0]
        has_it = os.path.join(layer.dir, "has-it")
        shutil.copytree(box.src, has_it)
        os.makedirs(os.path.dirname(os.path.join(has_it, brought)),
                    exist_ok=True)
        with open(os.path.join(has_it, brought), "w") as f:
            f.write("int already;\n")
        differs = os.path.join(layer.dir, "differs")
        shutil.copytree(box.src, differs)
        path = re.search(r"^--- a/(.*)$", series[0].diff, re.M)[1]
        with open(os.path.join(differs, path), "w") as f:
            f.write("int other;\n")
        os.makedirs(os.path.join(box.build, "kernel"))
        before = sublevels(box)
        box.bad("tree", "--kernel-src", has_it,
                says=(brought, "without the series"))
        for more in (), ("--base-only",):
            box.bad("tree", "--kernel-src", differs, *more,
                    says=(series[0].name, "does not apply", "is not taken"))
        left = {n for n in os.listdir(box.build) if "trial" in n or
                n.startswith("base.") and n != "base.id"}
        assert not left, left
        # the first one, too, is taken or nothing is
        first = os.path.join(layer.dir, "first")
        out = box.bad("tree", "--build", first, "--kernel-src", differs,
                      says=(series[0].name, "does not apply", "is not taken"))
        assert "had" not in out, out
        assert set(os.listdir(first)) == {".lock", "log"}, os.listdir(first)
        tree("--build", first, "--kernel-src", box.src)
        shutil.rmtree(first)
        for source in has_it, differs:
            shutil.rmtree(source)
        assert sublevels(box) == before
        assert os.path.exists(os.path.join(box.build, "kernel"))
        assert "up to date" in tree()
        box.good("refresh")
        box.same()
        os.rmdir(os.path.join(box.build, "kernel"))

    box.test("refused: a base with the series, one that it does not fit; no build "
         "is lost", unfit)

    def clean():
        def kept(*says):
            box.bad("clean", box.build, says=(*says, "FORCE=1"))
            assert os.path.exists(os.path.join(box.tree, "Makefile"))

        box.write("kernel/brought.c", "int brought;\n")
        kept("kernel/brought.c is new")
        box.commit("test: bring", "kernel/brought.c")
        kept("test: bring")
        box.back()
        path = sorted(touched_files(read_series()))[0]
        box.append(path, "\n")
        kept("not committed", path)
        box.back()
        box.append("kernel/groups.c", "\n/* an edit */\n")
        kept("kernel/groups.c was edited")
        box.good("clean", box.build, FORCE="1")
        assert not os.path.exists(box.build)
        # what a build leaves is nobody's work
        tree("--kernel-src", box.src)
        box.write("kernel/brought.o", "")
        box.good("clean", box.build)
        assert not os.path.exists(box.build)
        box.good("clean", box.build)
        tree("--kernel-src", box.src)

    box.test("make clean leaves unsaved work alone, and FORCE=1 does not", clean)

    def imported():
        """refresh --from, out of a repository that has the whole base."""
        whole = os.path.join(layer.dir, "whole")
        shutil.copytree(box.src, whole)
        git = Git(whole)
        git("init", "-q", "-b", "main")
        git("add", "-A", "-f")
        git("commit", "-q", "-m", "base", env=IDENTITY)
        git("tag", "base")
        git("am", "-q", *mails_of(layer.check.build), env=IDENTITY)
        box.good("refresh", "--from", whole, "base..HEAD")
        box.same()
        box.good("refresh", "--from", whole, "base..HEAD~1")
        assert len(read_series(box.top)) == len(read_series()) - 1
        box.bad("refresh", "--from", whole, "base..HEAD",
                says=("not committed",))
        box.good("refresh", "--force", "--from", whole, "base..HEAD")
        box.same()

    box.test("refresh --from another repository gives the same files",
             imported)

    layer.test("flame graphs: well-formed, self-contained, true to the samples",
               flame_graphs, layer)
    layer.test("one instruction more on the way through a system call is told",
               other_exit_paths, layer)
    shutil.rmtree(box.top)


def sublevels(box):
    """{directory: SUBLEVEL} of the base and of the tree."""
    out = {}
    for name in ("base", TREE_NAME):
        path = os.path.join(box.build, name, "Makefile")
        if os.path.exists(path):
            with open(path) as f:
                out[name] = re.search(r"^SUBLEVEL = (.*)$", f.read(), re.M)[1]
    return out


def tarball(box, kind):
    path = os.path.join(box.layer.dir, f"small.tar.{kind}")
    if not os.path.exists(path):
        with tarfile.open(path, f"w:{kind}") as tar:
            tar.add(box.src, "linux-source-6.12")
    return path


def packages(layer):
    """scripts/packages with a dpkg, an apt and compilers of the test."""
    tools = os.path.join(layer.dir, "tools")
    os.makedirs(tools)
    for name in ("sh", "cat", "sed", "grep", "tr", "cut", "dirname", "awk",
                 "mkdir", "wc", "date", "env", "head", "tail", "sleep"):
        os.symlink(shutil.which(name), os.path.join(tools, name))
    ran = os.path.join(layer.dir, "installs")

    def fake(name, text):
        with open(os.path.join(tools, name), "w") as f:
            f.write("#!/bin/sh\n" + text)
        os.chmod(os.path.join(tools, name), 0o755)

    def stops(*says, args=(), silent=()):
        result = subprocess.run(
            ["sh", os.path.join(TOP, "scripts/packages"), *args],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
            env={"PATH": tools, "BUILD": os.path.join(layer.dir, "pkg")})
        assert result.returncode == 1, result.stdout
        for words in says:
            assert re.search(words, result.stdout, re.M), \
                f"{words!r} is not said:\n{result.stdout}"
        for name in silent:
            assert f"    {name}\n" not in result.stdout, result.stdout

    fake("uname", "echo x86_64\n")
    fake("id", "echo 0\n")
    tests = ("shellcheck", "linux-perf", "gcc-i686-linux-gnu")
    stops("there is no apt", "^    gcc$", "^    linux-source-6.12$",
          silent=tests)
    stops("^    git$", args=["tree"], silent=("gcc", *tests))
    stops("installs nothing", *[f"^    {name}$" for name in tests],
          args=["--check", "check"])
    # no cross compiler where gcc makes 32-bit programs
    fake("gcc", "case $* in '-m32 '*) exec cat >/dev/null ;; esac; exit 1\n")
    stops("^    gcc-", args=["--check", "all"],
          silent=("gcc-i686-linux-gnu", "libc6-dev-i386-cross"))
    # nothing of what apt would remove is removed
    fake("dpkg-query", "exit 1\n")
    fake("apt-get", "case \" $* \" in *' -s '*) printf 'Remv x32 [1]\\nRemv "
         f"busybox [1]\\nInst x (1)\\n' ;; *' update '*) ;; *) echo >{ran} ;; esac\n")
    stops("would remove", "^    x32$", "apt-get remove", silent=("busybox",))
    assert not os.path.exists(ran)


# what perf script prints, with what has to be escaped or is not a symbol
SCRIPT_TEXT = """\
demo    73     4.000001: cpu-clock: 
\tffffffff81234567 read_zero+0x17 ([kernel.kallsyms])
\t          401234 read_pages<int, 2>(char const*)+0x14 (/tmp/demo & co)
\t          401300 main+0x20 (/tmp/demo & co)

demo    73     4.000002: cpu-clock: 
\t          401300 main+0x24 (/tmp/demo & co)

demo    73     4.000003: syscalls:sys_enter_getppid: 
\tffffffff81239999 other+0x1 ([kernel.kallsyms])

two words   74     4.000004: cpu-clock: 
\tffffffff81234567 read_zero+0x17 ([kernel.kallsyms])
\t               0 [user callchain not available] ([deferred])

"""


def flame_graphs(layer):
    text, page = layer.log("script.txt"), layer.log("flamegraph.html")
    with open(text, "w") as f:
        f.write(SCRIPT_TEXT)

    def draw(*args):
        return subprocess.run(
            [os.path.join(TOP, "scripts", "flamegraph.py"), "-o", page, *args],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    result = draw("--event", "cpu-clock", "--title", "a < b", f"One={text}",
                  f"Two={text}")
    if result.returncode:
        raise Failure(result.stdout)
    with open(page) as f:
        body = f.read()
    outside = re.findall(r"(?:src|href|url|@import)[^\n]*", body)
    outside += [u for u in re.findall(r"https?://[^\"' ]*", body)
                if u != "http://www.w3.org/1999/xhtml"]
    if outside:
        raise Failure(f"not self-contained: {outside}")
    space = "{http://www.w3.org/1999/xhtml}"
    pictures = list(xml.etree.ElementTree.fromstring(body).iter(space + "svg"))
    if len(pictures) != 2:
        raise Failure(f"{len(pictures)} pictures")
    for picture in pictures:
        frames = {}
        for g in picture.iter(space + "g"):
            name, _, _ = g.find(space + "title").text.rpartition(": ")
            frames[int(g.get("data-d")), name] = (
                g.get("class").split()[1], int(g.get("data-n")),
                float(g.get("data-x")), float(g.get("data-w")))
        wanted = {
            (0, "all"): ("root", 3), (1, "demo"): ("comm", 2),
            (1, "two words"): ("comm", 1), (2, "main"): ("user", 2),
            (3, "read_pages<int, 2>(char const*)"): ("user", 1),
            (4, "read_zero"): ("kernel", 1),
            (2, "user callchain not available"): ("missing", 1),
            (3, "read_zero"): ("kernel", 1)}
        if {key: value[:2] for key, value in frames.items()} != wanted:
            raise Failure(f"frames {frames}")
        for (depth, name), (_, samples, x, width) in frames.items():
            below = [f for (d, _), f in frames.items() if d == depth - 1
                     and f[2] <= x + 1e-5 and x + width <= f[2] + f[3] + 1e-5]
            if abs(width - samples / 3) > 1e-5 or (depth and len(below) != 1):
                raise Failure(f"{name} is {width} wide at {x}, depth {depth}, "
                              f"on {len(below)} frames")
    # a picture alone
    picture = layer.log("flamegraph.svg")
    result = draw("-o", picture, "--event", "cpu-clock", f"a < b={text}")
    if result.returncode:
        raise Failure(result.stdout)
    with open(picture) as f:
        root = xml.etree.ElementTree.fromstring(f.read())
    frames = list(root.iter("{http://www.w3.org/2000/svg}g"))
    if root.tag != "{http://www.w3.org/2000/svg}svg" or len(frames) != 8:
        raise Failure(f"{root.tag} of {len(frames)} frames")
    result = draw("-o", picture, f"One={text}", f"Two={text}")
    if not result.returncode or "name one TITLE" not in result.stdout:
        raise Failure(f"two in one picture: {result.stdout}")
    result = draw("--event", "no-such-event", f"One={text}")
    if not result.returncode or "no sample" not in result.stdout:
        raise Failure(f"without a sample: {result.stdout}")


# two functions as scripts/same-exit-path reads them; {} is where they differ
EXIT_PATH = """
.globl _start, do_syscall_64, syscall_exit_to_user_mode, handler, other
_start: ret
{before}
.type do_syscall_64, @function
do_syscall_64:
	mov	counter(%rip), %rax
	call	{callee}
{more}
	jmp	syscall_exit_to_user_mode
.size do_syscall_64, . - do_syscall_64
.type syscall_exit_to_user_mode, @function
syscall_exit_to_user_mode:
	test	%eax, %eax
	je	{to}
	{clear}
1:	call	handler
2:	{end}
.size syscall_exit_to_user_mode, . - syscall_exit_to_user_mode
handler: ret
other: ret
.data
{data}
counter: .quad 0
"""


def other_exit_paths(layer):
    """scripts/same-exit-path on a pair that is the same, and on pairs that differ."""
    old, new, alone = (f"andl ${mask}, 0x10(%rdi)" for mask in (
        "0xfffffff9", "0xfffffff1", "0xfffffff7"))

    def link(name, **here):
        source, image = layer.log(f"{name}.S"), layer.log(f"{name}.elf")
        values = {"before": "", "callee": "handler", "more": "", "end": "ret",
                  "clear": new, "data": "", "to": "1f", **here}
        with open(source, "w") as f:
            f.write(EXIT_PATH.format(**values))
        subprocess.run(["gcc", "-nostdlib", "-static", "-o", image, source,
                        "-Wl,-Ttext=0xffffffff81000000,--build-id=none",
                        "-no-pie"],
                       check=True)
        return image

    def compare(status, says, base, series):
        result = subprocess.run(
            [os.path.join(TOP, "scripts", "same-exit-path"), base, series],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if result.returncode != status or says not in result.stdout:
            raise Failure(f"{os.path.basename(series)}: status "
                          f"{result.returncode}, not {status}, or no {says!r}:"
                          f"\n{result.stdout}")

    base = link("base", clear=old)
    compare(0, "the mask is 0xfffffff1", base, link("series"))
    # it lies elsewhere, as does what it looks at
    compare(0, "the mask is 0xfffffff1", base, link(
        "moved", before=".space 0x1234", data=".space 0x568"))
    for name, says, here in (
            ("nop", "+nop", {"more": "nop"}),
            ("twice", "+andl", {"more": alone}),
            ("unmarked", "+andl", {"clear": old}),
            ("callee", "+call <other>", {"callee": "other"}),
            ("where", "+clear", {"clear": new.replace("rdi", "rsi")}),
            ("bits", "+andl", {"clear": new.replace("f1", "e1")}),
            ("less", "-ret", {"end": ""}),
            ("longer", "+ret", {"end": "ret; ret"})):
        compare(1, says, base, link(name, **here))
    # it is a jump to another instruction
    compare(1, "+je", base, link("jump", to="2f"))
    none = link("none", clear="")
    compare(2, "no mask in any of", none, none)

    # without COMPAT one instruction is more
    compare(0, "the mask is 0xfffffff7", none, link("series-64", clear=alone))
    for name, says, here in (
            ("twice-64", "+andl", {"clear": alone + "; " + alone}),
            ("nop-64", "+nop", {"clear": alone + "; nop"}),
            ("jump-64", "+je", {"clear": alone, "to": "2f"}),
            ("bits-64", "+andl", {"clear": alone.replace("f7", "e7")})):
        compare(1, says, none, link(name, **here))


def lint():
    names = [n for n in Git(TOP)("ls-files", "scripts", "qemu", "bench",
                                 ".ci").split("\n") if n]
    shells = []
    for name in names:
        path = os.path.join(TOP, name)
        with open(path, "rb") as f:
            head = f.read(64).split(b"\n")[0]
        if name.endswith(".py") or b"python" in head:
            with open(path) as f:
                compile(f.read(), path, "exec")
        elif head.startswith(b"#!") and b"sh" in head:
            shells.append(path)
        if head.startswith(b"#!") and not os.stat(path).st_mode & stat.S_IXUSR:
            raise Failure(f"{name} is not executable")
    result = subprocess.run(["shellcheck", *shells], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)
    if result.returncode or not shells:
        raise Failure(result.stdout or "no shell script")


def check_module():
    """scripts/check as a module, to test its parts."""
    path = os.path.join(TOP, "scripts", "check")
    loader = importlib.machinery.SourceFileLoader("check", path)
    spec = importlib.util.spec_from_loader("check", loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    module.say = lambda text: None
    return module


def tap():
    """scripts/check reads the results in a program's output."""
    module = check_module()
    parsed = module.tap_results("ok 1 # SKIP of no name\nok 2 - b # SKIP x\n"
                                "not ok 3 # exit=1\nok 4\nok 5 five\n"
                                "ok 6 - # SKIP nor this\n")
    if [(name, status) for name, status, _ in parsed] != [
            ("test 1", "skip"), ("b", "skip"), ("test 3", "not ok"),
            ("test 4", "ok"), ("five", "ok"), ("test 6", "skip")]:
        raise Failure(f"TAP is taken as {parsed}")
    text = "TAP version 13\n1..3\nok 1 a\nnot ok 2 b\n"
    if module.missing_results(text) != [(3, 2)]:
        raise Failure("it is not seen that a test did not come to its end")
    # by its exit status alone a program of many tests may fail
    outer = [status for _, status, _ in module.tap_results(
        "# ok 1 a\nnot ok 1 selftests: unwind: x # exit=1\n")]
    if outer != ["ok", "not ok"]:
        raise Failure(f"a program that failed is {outer}")


def skips(work):
    """scripts/check counts a skipped test as failed, unless it may be skipped."""
    module = check_module()
    for name, why, wanted in (
            ("kselftest", "needs two CPUs", "not ok"),
            ("kselftest", "/dev/kvm: No such device; a CPU with svm, and x?", "skip"),
            ("kselftest", "the kernel runs no 32-bit programs: x", "not ok"),
            ("64", "the kernel runs no 32-bit programs: x", "skip")):
        check = module.Check(work)
        os.makedirs(check.out, exist_ok=True)
        layer = module.Layer(name, "", None)
        layer.check = check
        layer.tap(f"1..1\nok 1 - a # SKIP {why}\n", "x", "x.log")
        check.end()
        if layer.results[0][:2] != ("a", wanted):
            raise Failure(f"{name}: {why}: {layer.results}")


def not_made(work):
    """scripts/check fails a layer whose kernel could not be built."""
    module = check_module()
    ran = []

    def layer(name, *needs):
        return module.Layer(name, "", lambda self: ran.append(self.name)
                            or self.ok("something"), needs=needs)

    scripts = os.path.join(work, "scripts")
    os.makedirs(scripts)
    for name in ("tree", "build"):
        with open(os.path.join(scripts, name), "w") as f:
            f.write('#!/bin/sh\ncase " $BAD " in *" ${1#--} "*) echo no $1; exit 1 ;; '
                    'esac\n')
        os.chmod(os.path.join(scripts, name), 0o755)
    module.TOP = work
    module.SOURCES = {}
    goals = ("tree", "kernel-debug", "perf-fuzz")
    # scripts/tree is called with --build
    for bad, wanted in (("", ["a", "b", "c", "d"]), ("kernel-debug", ["a", "c"]),
                        ("build", [])):
        ran.clear()
        os.environ["BAD"] = bad
        check = module.Check(work)
        check.builds = module.Builds(check, goals)
        layers = [layer("a", "tree"), layer("b", "kernel-debug"),
                  layer("c", "perf-fuzz"), layer("d", *goals)]
        try:
            check.run(layers)
        finally:
            check.end()
            del os.environ["BAD"]
        results = [[status for _, status, _ in one.results] for one in layers]
        if sorted(ran) != wanted or results != [
                ["ok" if one.name in wanted else "not ok"] for one in layers]:
            raise Failure(f"{bad} failed: {ran} ran, not {wanted}; {results}")


def only_series():
    """Each file under git is the repository's own or is brought by a patch."""
    brought = {p for patch in read_series() for p in patch.new_files}
    own = ("README.md", "CONTRIBUTING.md", "COPYING", "MAINTAINERS",
           "Makefile", ".gitignore")
    stray = [n for n in Git(TOP)("ls-files").split("\n")
             if n not in own and n not in brought and
             n.split("/")[0] not in ("patches", "qemu", "bench", "scripts",
                                     ".ci")]
    if stray:
        raise Failure("neither the frame's nor brought by a patch: "
                      + ", ".join(stray))


# A line of each kind, as the kernel prints it; at least one a pattern.
REPORTS = (
    ("warning", "WARNING: CPU: 1 PID: 42 at kernel/events/core.c:1234 f+0x1"),
    ("warning", "------------[ cut here ]------------ WARNING: CPU: 1 PID: 4"),
    ("bug", "BUG: unable to handle page fault for address: ffff888000000000"),
    ("bug", "BUG kmalloc-64 (Not tainted): Poison overwritten"),
    ("bug", "BUG: MAX_LOCKDEP_ENTRIES too low!"),
    ("bug", "=====[ BUG: something ]"),
    ("bug", "kernel BUG at kernel/unwind/deferred.c:42!"),
    ("lockup", "watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [a.out:42]"),
    ("lockup", "watchdog: Watchdog detected hard LOCKUP on cpu 1"),
    ("lockup", "BUG: workqueue lockup - pool cpus=1 node=0 flags=0x0 nice=0"),
    ("kasan", "BUG: KASAN: slab-use-after-free in unwind_deferred_request+0x1"),
    ("kasan", "BUG: KASAN: slab-out-of-bounds in buffer_get+0x1/0x2"),
    ("kasan", "KASAN: null-ptr-deref in range [0x0000000000000000-0x7]"),
    ("kasan", "BUG: KFENCE: use-after-free read in f+0x1/0x2"),
    ("kcsan", "BUG: KCSAN: data-race in a / b"),
    ("kcsan", "BUG: KCSAN: assert: race in a / b"),
    ("ubsan", "UBSAN: array-index-out-of-bounds in kernel/unwind/user.c:1:2"),
    ("ubsan", "UBSAN: shift-out-of-bounds in kernel/unwind/deferred.c:1:2"),
    ("oops", "Oops: 0000 [#1] PREEMPT SMP"),
    ("oops", "Oops: general protection fault, probably for non-canonical"),
    ("oops", "general protection fault, probably for non-canonical address"),
    ("oops", "Internal error: Oops: 96000004 [#1] SMP"),
    ("oops", "traps: Kernel stack is corrupted in: f"),
    ("oops", "unchecked MSR access error: RDMSR from 0x1 at rIP: 0x1"),
    ("panic", "Kernel panic - not syncing: Attempted to kill init!"),
    ("panic", "---[ end Kernel panic - not syncing: Attempted to kill init! ]"),
    ("rcu stall", "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:"),
    ("rcu stall", "rcu: INFO: rcu_preempt self-detected stall on CPU"),
    ("rcu stall", "rcu: INFO: rcu_sched detected expedited stalls on x"),
    ("rcu stall", "INFO: rcu_tasks detected stalls on tasks: stall"),
    ("rcu stall", "rcu: rcu_preempt kthread starved for 2100 jiffies! g1 f0x0"),
    ("hung task", "INFO: task a.out:42 blocked for more than 120 seconds."),
    ("hung task", "INFO: task a.out:42 blocked on a mutex"),
    ("lockdep", "WARNING: possible circular locking dependency detected"),
    ("lockdep", "WARNING: possible recursive locking detected"),
    ("lockdep", "WARNING: inconsistent lock state"),
    ("lockdep", "WARNING: possible irq lock inversion dependency detected"),
    ("lockdep", "WARNING: HARDIRQ-safe -> HARDIRQ-unsafe lock order detected"),
    ("lockdep", "WARNING: suspicious RCU usage"),
    ("lockdep", "[ BUG: Invalid wait context ]"),
    ("lockdep", "INFO: trying to register non-static key."),
    ("lockdep", "DEBUG_LOCKS_WARN_ON(current->hardirq_context)"),
    ("lockdep", "WARNING: lock held when returning to user space!"),
    ("lockdep", "WARNING: bad unlock balance detected!"),
    ("lockdep", "WARNING: held lock freed!"),
    ("lockdep", "WARNING: a.out/42 still has locks held!"),
    ("lockdep", "turning off the locking correctness validator."),
    ("lockdep", "INFO: lockdep is turned off."),
    ("sleep", "BUG: sleeping function called from invalid context at x.c:1"),
    ("sleep", "BUG: scheduling while atomic: a.out/42/0x00000002"),
    ("preempt", "BUG: using smp_processor_id() in preemptible [00000000] code"),
    ("debug objects", "ODEBUG: free active (active state 0) object: 1 x"),
    ("debug objects", "ODEBUG: Out of memory. ODEBUG disabled"),
    ("kmemleak", "kmemleak: 2 new suspected memory leaks (see /sys/kernel/deb"),
    ("kmemleak", "kmemleak: Kernel memory leak detector disabled"),
    ("memory", "list_del corruption. prev->next should be x, but was y"),
    ("memory", "list_add corruption. prev->next should be x, but was y"),
    ("memory", "refcount_t: underflow; use-after-free."),
    ("memory", "corrupted stack end detected inside scheduler"),
    ("init", "init: mount dev on /dev: No such device"),
)
HARMLESS = (
    "printk: legacy console [ttyS0] enabled",
    "traps: a.out[42] general protection fault ip:1 sp:2 error:0 in a.out",
    "a.out[42]: segfault at 0 ip 1 sp 2 error 4 in a.out[3+4]",
    "rcu: Preemptible hierarchical RCU implementation.",
    "rcu: RCU calculated value of scheduler-enlistment delay is 10 jiffies.",
    "perf: interrupt took too long (2501 > 2500), lowering to 79000",
    "x86/fpu: Supporting XSAVE feature 0x001: 'x87 floating point registers'",
    "Spectre V2 : Mitigation: Retpolines",
    "# Subtest: a_test_about_BUG_lines",
    "debugfs: no WARNING",
    "kasan: KernelAddressSanitizer initialized",
    "kcsan: enabled early",
    "kmemleak: Kernel memory leak detector initialized (mem pool available: 1)",
    "kmemleak: Automatic memory scanning thread started",
    "kmemleak: Cannot allocate a scan area, scanning the full object",
    "Lock dependency validator: Copyright (c) 2006 Red Hat, Inc., Ingo Molnar",
    "... MAX_LOCKDEP_SUBCLASSES:  8",
    "Running RCU self tests",
    "NMI watchdog: Enabled. Permanently consumes one hw-PMU counter.",
    "FAULT_INJECTION: forcing a failure.",
)
# As KCSAN reports them: one race with a function of ours on the way, one
# without, one by interrupted accesses of which the other is not known.
RACES = """\
==================================================================
BUG: KCSAN: data-race in task_work_add / task_work_run

write to 0xffff888100000000 of 8 bytes by interrupt on cpu 1:
 task_work_add+0x11/0x22
 our_request+0x33/0x44
 perf_callchain+0x1/0x2

read to 0xffff888100000000 of 8 bytes by task 42 on cpu 0:
 task_work_run+0x11/0x22
 syscall_exit_to_user_mode+0x1/0x2

value changed: 0x0000000000000000 -> 0xffff888100000001

Reported by Kernel Concurrency Sanitizer on:
CPU: 0 PID: 42 Comm: a.out Not tainted 6.12.117 #1
==================================================================
[    3.000000] ==================================================================
[    3.000000] BUG: KCSAN: data-race in tick_sched_do_timer+0x1/0x2
[    3.000000]
[    3.000000] race at unknown origin, with write to 0xff of 8 bytes by task 1
[    3.000000]  tick_sched_do_timer+0x11/0x22
[    3.000000] ==================================================================
[    4.000000]  our_request+0x33/0x44
[    5.000000] BUG: KCSAN: data-race in our_walk.isra.0 / d_walk
"""


class Runner:
    """qemu/run, with the kernel that was built."""

    def __init__(self, layer):
        self.layer = layer

    def run(self, name, *args):
        layer = self.layer
        result = subprocess.run(
            [os.path.join(TOP, "qemu", "run"), "--build", layer.check.build,
             "--kernel", layer.check.bzimage, "--timeout", "60", "--log",
             layer.log(name + ".console"), *args], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            errors="replace", cwd=TOP)
        with open(layer.log(name + ".log"), "w") as f:
            f.write(f"{result.stdout}\n--- {result.returncode}\n"
                    f"{result.stderr}")
        return result

    @staticmethod
    def expect(result, status, out=None, says=()):
        said = f"status {result.returncode}\n{result.stdout[-800:]}\n" \
               f"{result.stderr[-1500:]}"
        if result.returncode != status:
            raise Failure(f"status {status} is wanted: {said}")
        if out is not None and result.stdout != out:
            raise Failure(f"{out!r} is wanted: {said}")
        for words in says:
            if words not in result.stderr:
                raise Failure(f"{words!r} is not said: {said}")


def run_guest(layer):
    guest = Runner(layer)
    run, expect = guest.run, guest.expect

    def kinds():
        for kind, line in REPORTS:
            for prefix in ("", "[   12.345678] ", "[   12.345678][  T123] "):
                assert console.kind_of(prefix + line) == kind, \
                    (prefix + line, console.kind_of(prefix + line))
        for line in HARMLESS:
            assert console.kind_of("[    1.000000] " + line) is None, line
        found = console.reports("\n".join(r for _, r in REPORTS), ["WARNING"])
        assert found and not any("WARNING" in f[2] for f in found), found
        # no pattern without a line that is told by it
        used = {next(i for i, (_, pattern) in enumerate(console.REPORTS)
                     if re.match(pattern, line)) for _, line in REPORTS}
        assert used == set(range(len(console.REPORTS))), \
            [console.REPORTS[i] for i in
             set(range(len(console.REPORTS))) - used]

    def races():
        ours, elsewhere = {"our_request", "our_walk"}, []
        found = console.reports(RACES, (), ours, elsewhere)
        assert [f[0] for f in found] == [2, 25], found
        assert len(elsewhere) == 1 and "tick_sched" in elsewhere[0], elsewhere
        assert len(console.reports(RACES)) == 3
        assert not console.reports(RACES, (), {"our"})

    layer.test("the parser knows each kind of report, and what is none",
               kinds)
    layer.test("a data race is told by the functions that it names", races)

    def stopping():
        warning = "\n".join((
            "[  210.943451] ------------[ cut here ]------------",
            "[  210.944188] sched: Unexpected reschedule of offline CPU#1!",
            "[  210.945192] WARNING: CPU: 3 PID: 0 at arch/x86/kernel/apic/ipi"
            ".c:70 native_smp_send_reschedule+0x33/0x40"))
        for said in ("[  210.940000] reboot: Power down",
                     "[  210.940000][    T1] reboot: System halted"):
            for text, reports in ((f"{said}\n{warning}", 0),
                                  (f"{warning}\n{said}", 1), (warning, 1),
                                  (f"{warning}\n{said}\n{warning}", 1)):
                text = console.until_power_off(text)
                assert len(console.reports(text)) == reports, text

    layer.test("what stops is not heard, what was said before is", stopping)

    def statuses():
        expect(run("status", "echo out; echo err >&2; exit 3"), 3,
               "out\nerr\n")
        expect(run("signal", "kill -9 $$"), 137, "")

    layer.test("the command's output and exit status are handed back",
               statuses)

    def reported():
        for kind, line in REPORTS:
            assert "'" not in line
        lines = "; ".join(f"echo '{line}' >/dev/kmsg" for _, line in REPORTS)
        result = run("reports", lines + "; echo fine")
        expect(result, 125, "fine\n", ("the guest's kernel reports",))
        with open(layer.log("reports.console")) as f:
            found = {text for _, _, text in console.reports(f.read())}
        for _, line in REPORTS:
            assert any(line in text for text in found), line
        # one alone is enough, and is shown
        expect(run("kasan", "echo 'BUG: KASAN: x' >/dev/kmsg"), 125, "",
               ("BUG: KASAN: x",))
        expect(run("allowed", "--allow", "KASAN: expected",
                   "echo 'BUG: KASAN: expected' >/dev/kmsg"), 0, "")

    layer.test("a report on the console fails the run and is shown", reported)

    def hangs():
        expect(run("hang", "--timeout", "10", "echo begun; sleep 1000"), 124,
               "begun\n", ("time limit of 10 s is over, ",
                          " s after its last output; --timeout (make: "
                          "TIMEOUT=) gives it more"))

    layer.test("a guest that hangs is ended at the time limit", hangs)

    def goes_down():
        # a reset does not wait for what is on its way out: hence the sleep
        expect(run("down", "echo begun; sleep 3; echo b >/proc/sysrq-trigger; "
                   "sleep 100"), 125, "begun\n",
               ("without saying that it was done",))
        expect(run("panic", "echo c >/proc/sysrq-trigger; sleep 100"), 125,
               "", ("Kernel panic",))
        expect(run("early", "--append", "rdinit=/none init=/none", "true"),
               125, "", ("without saying that it was done",))

    layer.test("a guest that goes down without a word is a failure",
               goes_down)


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

    def cpus():
        for number in ("1", "8"):
            expect(run(f"smp{number}", "--smp", number, "--timeout", "240",
                       "nproc"), 0, f"{number}\n")

    layer.test("the fewest and the most CPUs", cpus)

    def large():
        result = run("large", "seq 1 300000")
        expect(result, 0, "".join(f"{n}\n" for n in range(1, 300001)))

    layer.test("two megabytes of output arrive whole", large)

    def refused():
        for args, says in (
                (("--smp", "9", "true"), "1 to 8 CPUs"),
                (("--kernel", "/none", "true"), "no kernel at /none"),
                (("--rw", "/no/such", "true"), "no such directory")):
            result = run("refused", *args)
            assert result.returncode in (2, 125), result
            assert says in result.stderr, result.stderr

    layer.test("bad options are refused by name", refused)

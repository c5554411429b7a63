# SPDX-License-Identifier: GPL-2.0
"""The scripts: make tree and make refresh, packages, the runner of the tests."""

import os
import re
import shutil
import stat
import subprocess

from builds import Builds
from check import Check
from common import TOP, Failure, Git, read_series
from layer import Layer
from sandbox import IDENTITY, SIGNED, Sandbox, touched_files
from tap import missing_results, tap_results


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


def lint():
    names = [n for n in Git(TOP)("ls-files", "scripts", "qemu", "tests",
                                 "bench", ".ci").split("\n") if n]
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


def tap():
    """The results in the output of a program are read."""
    parsed = tap_results("ok 1 # SKIP of no name\nok 2 - b # SKIP x\n"
                         "not ok 3 # exit=1\nok 4\nok 5 five\n"
                         "ok 6 - # SKIP nor this\n")
    if [(name, status) for name, status, _ in parsed] != [
            ("test 1", "skip"), ("b", "skip"), ("test 3", "not ok"),
            ("test 4", "ok"), ("five", "ok"), ("test 6", "skip")]:
        raise Failure(f"TAP is taken as {parsed}")
    text = "TAP version 13\n1..3\nok 1 a\nnot ok 2 b\n"
    if missing_results(text) != [(3, 2)]:
        raise Failure("it is not seen that a test did not come to its end")
    # by its exit status alone a program of many tests may fail
    outer = [status for _, status, _ in tap_results(
        "# ok 1 a\nnot ok 1 selftests: unwind: x # exit=1\n")]
    if outer != ["ok", "not ok"]:
        raise Failure(f"a program that failed is {outer}")


class Silent(Check):
    """A run of layers that prints nothing."""

    @staticmethod
    def say(text):
        pass


def skips(work):
    """A skipped test has failed, unless it may be skipped."""
    for name, why, wanted in (
            ("kselftest", "needs two CPUs", "not ok"),
            ("kselftest", "/dev/kvm: No such device; a CPU with svm, and x?", "skip"),
            ("kselftest", "the kernel runs no 32-bit programs: x", "not ok"),
            ("64", "the kernel runs no 32-bit programs: x", "skip")):
        check = Silent(work)
        os.makedirs(check.out, exist_ok=True)
        layer = Layer(name, "", None)
        layer.check = check
        layer.tap(f"1..1\nok 1 - a # SKIP {why}\n", "x", "x.log")
        check.end()
        if layer.results[0][:2] != ("a", wanted):
            raise Failure(f"{name}: {why}: {layer.results}")


def not_made(work):
    """A layer whose kernel could not be built has failed."""
    ran = []

    def layer(name, *needs):
        return Layer(name, "", lambda self: ran.append(self.name)
                     or self.ok("something"), needs=needs)

    scripts = os.path.join(work, "scripts")
    os.makedirs(scripts)
    for name in ("tree", "build"):
        with open(os.path.join(scripts, name), "w") as f:
            f.write('#!/bin/sh\ncase " $BAD " in *" ${1#--} "*) echo no $1; exit 1 ;; '
                    'esac\n')
        os.chmod(os.path.join(scripts, name), 0o755)
    goals = ("tree", "kernel-debug", "perf-fuzz")
    # scripts/tree is called with --build
    for bad, wanted in (("", ["a", "b", "c", "d"]), ("kernel-debug", ["a", "c"]),
                        ("build", [])):
        ran.clear()
        os.environ["BAD"] = bad
        check = Silent(work)
        check.builds = Builds(check, goals)
        check.builds.top = work
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
             n.split("/")[0] not in ("patches", "qemu", "tests", "bench",
                                     "scripts", ".ci")]
    if stray:
        raise Failure("neither the frame's nor brought by a patch: "
                      + ", ".join(stray))


LAYER = Layer(__name__, "tree and refresh: round trip, refusals; packages; lint",
              run_scripts, needs=("tree",), in_guest=False)

# SPDX-License-Identifier: GPL-2.0
"""The scripts, rarer cases: other bases, make clean, packages."""

import os
import re
import shutil
import subprocess
import tarfile

from common import (SERIES, TOP, TREE_NAME, Failure, Git, edited_files, mails_of,
                    read_series)
from layer import Layer
from sandbox import IDENTITY, Sandbox


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
        # nothing made of the old base is left, or the next build would take it
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
        series = [p for p in read_series(box.top, SERIES) if p.diff]
        brought = [f for p in read_series(box.top, SERIES) for f in p.new_files][0]
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
        path = sorted(edited_files(read_series()))[0]
        box.append(path, "\n")
        kept("not committed", path)
        box.back()
        box.append("kernel/groups.c", "\n/* an edit */\n")
        kept("kernel/groups.c was edited")
        box.good("clean", box.build, FORCE="1")
        assert not os.path.exists(box.build)
        # objects are nobody's work
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
        assert len(read_series(box.top, SERIES)) == len(read_series(wanted=SERIES)) - 1
        box.bad("refresh", "--from", whole, "base..HEAD",
                says=("not committed",))
        box.good("refresh", "--force", "--from", whole, "base..HEAD")
        box.same()

    box.test("refresh --from another repository gives the same files",
             imported)

    layer.test("packages: what apt would remove for them stays",
               packages, layer)
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

    fake("uname", "echo x86_64\n")
    fake("id", "echo 0\n")
    fake("dpkg-query", "exit 1\n")
    fake("apt-get", "case \" $* \" in *' -s '*) printf 'Remv x32 [1]\\nRemv "
         f"busybox [1]\\nInst x (1)\\n' ;; *' update '*) ;; *) echo >{ran} ;; esac\n")
    result = subprocess.run(
        ["sh", os.path.join(TOP, "scripts/packages")], stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={"PATH": tools, "BUILD": os.path.join(layer.dir, "pkg")})
    assert result.returncode == 1, result.stdout
    for words in "would remove", "\n    x32\n", "apt-get remove":
        assert words in result.stdout, result.stdout
    # it has nothing to do with them
    assert "    busybox\n" not in result.stdout, result.stdout
    assert not os.path.exists(ran)


# two functions as bench/same-exit-path reads them; {} is where they differ
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
    """bench/same-exit-path on a pair that is the same, and on pairs that differ."""
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
            [os.path.join(TOP, "bench", "same-exit-path"), base, series],
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


LAYER = Layer(__name__, "other bases, make clean, packages",
              run_scripts_rare, needs=("series",), rare=True, in_guest=False)

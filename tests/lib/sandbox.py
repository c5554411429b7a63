# SPDX-License-Identifier: GPL-2.0
"""A copy of the repository, to test the scripts in."""

import os
import shutil
import subprocess

from common import (SERIES, TOP, TREE_NAME, Failure, Git, edited_files,
                    read_series)
from programs import outside_make

IDENTITY = {}
for _who in ("AUTHOR", "COMMITTER"):
    IDENTITY[f"GIT_{_who}_NAME"] = "Tester"
    IDENTITY[f"GIT_{_who}_EMAIL"] = "tester@example.org"
SIGNED = "\n\nWhy it is so.\n\nSigned-off-by: Tester <tester@example.org>\n"


def small_base(build, target, series):
    """A base with only those files that the series and the scripts read."""
    base = os.path.join(build, "base")
    wanted = edited_files(series) | {
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
    for path in sorted(edited_files(series)):
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


# A user may have set these. The scripts speak English all the same.
NOT_ENGLISH = {"LC_ALL": "", "LANG": "C.UTF-8", "LANGUAGE": "de"}


class Sandbox:
    """A copy of the repository with a small base and a build of its own. It has all
    series, whatever SERIES= says."""

    def __init__(self, layer):
        self.layer = layer
        self.top = copy_repository(os.path.join(layer.dir, "repo"))
        self.build = os.path.join(self.top, "build")
        self.tree = os.path.join(self.build, TREE_NAME)
        self.src = small_base(layer.check.build,
                              os.path.join(layer.dir, "src"),
                              read_series(wanted=SERIES))
        self.git = Git(self.tree)

    def run(self, script, *args, **env):
        """(exit status, all of its output)."""
        result = subprocess.run(
            [os.path.join(self.top, "scripts", script), *args],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            cwd=self.top, env=dict(outside_make("KERNEL_SRC", "BUILD", "SERIES"),
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

# SPDX-License-Identifier: GPL-2.0
"""Shared by tree, refresh, series and the tests: paths, the reporting of errors, and
the form of a patch in patches/.

There are three series, in SERIES, each on top of the one before. patches/NAME/
has the patches of one series, and the file series, which names them in their
order. A patch file is named after its subject. It is a mail without the new files:

    From: Name <address>
    Date: ...
    Subject: unwind: ...

    The message's body, signed off.
    ---
    New-file: kernel/unwind/user.c

    diff --git a/kernel/Makefile b/kernel/Makefile
    ...

Each New-file line names a whole file of the repository, at its in-tree path,
that the commit brings; one patch brings it and no other touches it.
"""

import fcntl
import fnmatch
import functools
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time

# The scripts read the messages of commands: in English, wherever they are run.
os.environ.update(LC_ALL="C.UTF-8", LANGUAGE="")

TOP = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
PATCHES = os.path.join(TOP, "patches")
# in the order in which they are applied
SERIES = ("kernel", "perf", "perf-fixes")
TREE_NAME = "linux-6.12"
# A line of a build's output that names a thing it makes. Lines that a build prints
# even if it finds nothing to do are left out.
THING = re.compile(r"^  (?!(?:CALL|CHK|DESCEND|INSTALL) |GEN +Makefile$)"
                   r"[A-Z][A-Z0-9_]+ +\S")
# the state of the tree that patches/ and the whole files stand for
APPLIED = "refs/series/applied"
# the base's files, as far as they are under git
BASE = "refs/series/base"
# top-level names that are the repository's own, never the tree's
OURS = ("README.md", "CONTRIBUTING.md", "COPYING", "MAINTAINERS", "Makefile",
        "patches", "qemu", "tests", "bench", "scripts", ".ci", "build",
        ".gitignore", ".git")


class Failure(Exception):
    """A fault that the user has to mend; the text describes it."""


def say(text):
    print(text, flush=True)


def end_output():
    """At its end Python writes the rest of the output, and ends with 120 if that
    fails. Output that has failed before is not tried again."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run_main(name, main):
    """Runs @main, and prints a Failure in one piece."""
    try:
        sys.exit(main())
    except Failure as failure:
        print(f"{name}: {failure}", file=sys.stderr)
        sys.exit(1)
    except OSError as error:
        print(f"{name}: {error}\n  {remedy_of(str(error))}", file=sys.stderr)
        end_output()
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def is_full(text):
    """Whether the text of an error names a full disk."""
    return "No space left" in text or "Disk quota" in text


def remedy_of(text, path=TOP):
    """The remedy for an error, by its text."""
    if is_full(text):
        return (f"the disk is full (df -h {path} tells); make room and run "
                "the same command again")
    return "see to this and run the same command again"


def call(args, log=None, check=True, **kwargs):
    """Runs a command; if it fails, raises with its last lines and its log."""
    result = subprocess.run(args, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True,
                            errors="surrogateescape", **kwargs)
    where = os.path.dirname(log) if log else TOP
    if log:
        try:
            with open(log, "a", errors="surrogateescape") as f:
                f.write(f"$ {' '.join(args)}\n{result.stdout}")
        except OSError as error:
            # the command's fault is reported even if the log has no room for it
            if result.returncode == 0:
                raise
            log += f" (cut short: {error.strerror})"
    if check and result.returncode:
        tail = "\n".join("    " + line for line in
                         result.stdout.rstrip().split("\n")[-15:])
        raise Failure(f"{' '.join(args[:6])} failed "
                      f"(exit status {result.returncode}):\n{tail}"
                      + (f"\n  log: {log}" if log else "")
                      + f"\n  {remedy_of(result.stdout, where)}")
    return result


def descendants(pid):
    """All processes that @pid has started, and their own."""
    children = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", errors="replace") as f:
                parent = int(f.read().rpartition(")")[2].split()[1])
        except OSError:
            # gone meanwhile
            continue
        children.setdefault(parent, []).append(int(name))
    found, left = [], [pid]
    while left:
        below = children.get(left.pop(), [])
        found += below
        left += below
    return found


def end_all_on_sigterm():
    """All processes that this one has started end with it: guests, builds."""
    def end(*_):
        # no thread is to start another one meanwhile
        sys.setswitchinterval(60)
        for pid in descendants(os.getpid()):
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                pass
        os._exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)


class Git:
    """git in one repository, deaf to the user's own configuration."""

    def __init__(self, path, **env):
        self.path = path
        self.env = dict(os.environ, GIT_CONFIG_NOSYSTEM="1",
                        GIT_CONFIG_GLOBAL="/dev/null", LC_ALL="C.UTF-8",
                        **env)
        for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
            if name not in env:
                self.env.pop(name, None)

    def raw(self, *args, check=True, data=None, env=None):
        result = subprocess.run(
            ["git", "-c", "core.autocrlf=false", "-c", "core.quotePath=false",
             "-c", "core.fileMode=true", "-c", "core.abbrev=12",
             "-c", "core.attributesFile=/dev/null",
             "-c", "core.excludesFile=/dev/null", "-c", "safe.directory=*",
             # what stands after @@ must not depend on git's version
             "-c", "diff.cpp.xfuncname=^[[:alpha:]$_].*$",
             "-c", "diff.rust.xfuncname=^[[:alpha:]$_].*$", *args],
            cwd=self.path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            input=data, env=dict(self.env, **(env or {})))
        if check and result.returncode:
            raise Failure(
                f"git {' '.join(args[:4])} in {self.path} failed:\n    "
                + result.stderr.decode(errors="replace").strip())
        return result

    def __call__(self, *args, **kwargs):
        out = self.raw(*args, **kwargs).stdout
        return out.decode("utf-8", "surrogateescape").rstrip("\n")

    def ok(self, *args):
        return self.raw(*args, check=False).returncode == 0


class Patch:
    """One file of patches/; its name is relative to that."""

    def __init__(self, author, date, subject, body, new_files, diff):
        self.author = author
        self.date = date
        self.subject = subject
        self.body = body
        self.new_files = new_files
        self.diff = diff
        self.name = None

    @property
    def series(self):
        return os.path.dirname(self.name)

    def text(self):
        out = [f"From: {self.author}\nDate: {self.date}\n"
               f"Subject: {self.subject}\n\n"]
        out.append(self.body.strip("\n") + "\n---\n")
        out += [f"New-file: {path}\n" for path in self.new_files]
        if self.diff:
            out.append("\n" + self.diff)
        return "".join(out)

    @classmethod
    def parse(cls, name, text):
        match = re.match(r"From: (.*)\nDate: (.*)\nSubject: (.*)\n\n"
                         r"((?:.*\n)*?)---\n((?:New-file: .*\n)*)"
                         r"(?:\n(diff --git (?:.*\n)*))?\Z", text)
        if not match:
            raise Failure(f"patches/{name} is not in the form that "
                          "scripts/refresh writes (From, Date, Subject, body, "
                          "---, New-file lines, diff)")
        author, date, subject, body, new_files, diff = match.groups()
        patch = cls(author, date, subject, body.strip("\n") + "\n",
                    [line[len("New-file: "):]
                     for line in new_files.split("\n") if line], diff or "")
        patch.name = name
        return patch

    def message(self):
        return f"{self.subject}\n\n{self.body}"

    def file_name(self):
        """The subject, as far as 60 characters go, cut at a word."""
        slug = re.sub(r"[^a-z0-9_.]+", "-", self.subject.lower()).strip("-.")
        if len(slug) > 60:
            slug = slug[:61].rpartition("-")[0] or slug[:60]
        return slug.rstrip("-.") + ".patch"


def read_text(path):
    with open(path, encoding="utf-8", errors="surrogateescape",
              newline="") as f:
        return f.read()


def write_text(path, text):
    """Writes a whole file or nothing of it; leaves an equal one alone."""
    try:
        if read_text(path) == text:
            return False
    except FileNotFoundError:
        pass
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temp = path + ".new"
    with open(temp, "w", encoding="utf-8", errors="surrogateescape",
              newline="") as f:
        f.write(text)
    os.rename(temp, path)
    return True


def wanted_series():
    """The names of the series that SERIES= asks for: all, without it."""
    wanted = tuple(os.environ.get("SERIES", "").split()) or SERIES
    if wanted != SERIES[:len(wanted)]:
        prefixes = ", ".join(repr(" ".join(SERIES[:n + 1]))
                             for n in range(len(SERIES)))
        raise Failure(f"SERIES='{' '.join(wanted)}': a series needs those below "
                      f"it, in this order: one of {prefixes}")
    return wanted


def names_of(series, top=TOP):
    """The names of the patch files of one series, in their order."""
    try:
        lines = read_text(os.path.join(top, "patches", series,
                                       "series")).split("\n")
    except FileNotFoundError:
        raise Failure(f"there is no patches/{series}/series") from None
    names = [line.strip() for line in lines]
    return [n for n in names if n and not n.startswith("#")]


def read_series(top=TOP, wanted=None):
    """The patches of these series in their order; raises if they do not fit together."""
    patches, seen, brought = [], {}, {}
    for series in wanted or wanted_series():
        names = names_of(series, top)
        for name in names:
            path = f"{series}/{name}"
            if name in seen:
                raise Failure(f"patches/{path}: patches/{seen[name]} has the "
                              "same name")
            seen[name] = path
            try:
                text = read_text(os.path.join(top, "patches", path))
            except FileNotFoundError:
                raise Failure(f"patches/{series}/series names {name}, which "
                              "is not there") from None
            patches.append(Patch.parse(path, text))
        stray = sorted(n for n in os.listdir(os.path.join(top, "patches", series))
                       if n.endswith(".patch") and n not in names)
        if stray:
            raise Failure(f"patches/{series}/{stray[0]} is not named in "
                          f"patches/{series}/series")
    for patch in patches:
        for path in patch.new_files:
            check_new_path(path, patch.name)
            if path in brought:
                raise Failure(f"{path} is brought by {brought[path]} and by "
                              f"{patch.name}; one patch brings a file")
            if not os.path.isfile(os.path.join(top, path)):
                raise Failure(f"patches/{patch.name} brings {path}, which is "
                              "not in the repository")
            brought[path] = patch.name
    return patches


def edited_files(series):
    """The files of the base that @series edits."""
    return {path for patch in series for path in
            re.findall(r"^diff --git a/(.*) b/\1$", patch.diff, re.M)}


def mails_of(build):
    """The mails that make series wrote, in the order to apply them in."""
    out = []
    for name in wanted_series():
        directory = os.path.join(build, "series", name)
        if os.path.isdir(directory):
            out += [os.path.join(directory, mail)
                    for mail in sorted(os.listdir(directory))
                    if mail.endswith(".patch")]
    return out


def check_new_path(path, where):
    parts = path.split("/")
    if path.startswith("/") or ".." in parts or "" in parts:
        raise Failure(f"{where}: {path!r} is no path inside the tree")
    if parts[0] in OURS:
        raise Failure(f"{where} brings {path}, but {parts[0]} at the top of "
                      "the repository is its own; such a file cannot be kept "
                      "here")


def digest_of(series, top=TOP):
    """A digest of the series: patches and whole files, with their modes."""
    digest = hashlib.sha256()
    for patch in series:
        digest.update(f"{patch.name}\0{patch.text()}\0".encode(
            "utf-8", "surrogateescape"))
        for path in patch.new_files:
            full = os.path.join(top, path)
            with open(full, "rb") as f:
                data = f.read()
            digest.update(f"{path}\0{os.access(full, os.X_OK)}\0{len(data)}\0"
                          .encode("utf-8", "surrogateescape"))
            digest.update(data)
    return digest.hexdigest()


def state_of(wanted, top=TOP):
    """The state of these series, in one line."""
    return " ".join([digest_of(read_series(top, wanted), top), *wanted])


def recorded_state(tree):
    """The state that @tree was made of; empty without a tree."""
    try:
        return read_text(os.path.join(tree, ".git", "series-digest"))
    except FileNotFoundError:
        return ""


def record_state(tree, state):
    with open(os.path.join(tree, ".git", "series-digest"), "w") as f:
        f.write(state)


class Lock:
    """Held by one run at a time in a build directory."""

    def __init__(self, build):
        os.makedirs(os.path.join(build, "log"), exist_ok=True)
        self.file = open(os.path.join(build, ".lock"), "w")

    def __enter__(self):
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another run to finish with build/ ...")
            fcntl.flock(self.file, fcntl.LOCK_EX)
        return self

    def __exit__(self, *_):
        self.file.close()


class Step:
    """Says what is being done and how long it took."""

    def __init__(self, what):
        self.what = what

    def __enter__(self):
        self.start = time.monotonic()
        say(f"{self.what} ...")
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            say(f"{self.what}: done in "
                f"{time.monotonic() - self.start:.1f} s")


def stray_edits(build, tree, git):
    """[(path, what)] of changes in @tree that git does not see there.

    Only the files that the series touches are under git. The others are
    compared with the pristine base by size and time of modification, and by
    content where these differ.
    """
    base = os.path.join(build, "base")
    tracked = set(git("ls-files", "-z").split("\0"))
    found = []
    for path in walk(tree):
        if path in tracked:
            continue
        full, pristine = os.path.join(tree, path), os.path.join(base, path)
        try:
            old = os.lstat(pristine)
        except FileNotFoundError:
            found.append((path, "is new"))
            continue
        new = os.lstat(full)
        if (new.st_size, new.st_mtime_ns) != (old.st_size, old.st_mtime_ns) \
                and contents(full) != contents(pristine):
            found.append((path, "was edited"))
    # files that tools leave in a source tree are no edits
    found = [(p, what) for p, what in found
             if what != "is new" or not ignored(tree, p)]
    return found


@functools.lru_cache(maxsize=None)
def ignore_rules(directory):
    """[(negated, anchored, pattern)] of a .gitignore."""
    rules = []
    try:
        with open(os.path.join(directory, ".gitignore"),
                  errors="surrogateescape") as f:
            lines = f.read().split("\n")
    except OSError:
        return rules
    for line in lines:
        line = line.strip()
        # "/*" is how Debian's tree ignores all that is not Debian's
        if not line or line.startswith("#") or line in ("/*", "!/debian/"):
            continue
        negated = line.startswith("!")
        line = line.lstrip("!")
        anchored = "/" in line.rstrip("/")
        rules.append((negated, anchored, line.strip("/")))
    return rules


def ignored(tree, path):
    """Whether the .gitignore files of the tree ignore a file.

    git cannot be asked: see ignore_rules().
    """
    parts = path.split("/")
    for depth in range(1, len(parts) + 1):
        # a directory on the way, or the file: the innermost rule counts
        verdict = False
        for up in range(depth):
            inner = "/".join(parts[up:depth])
            for negated, anchored, pattern in ignore_rules(
                    os.path.join(tree, *parts[:up])):
                if fnmatch.fnmatchcase(inner if anchored
                                       else parts[depth - 1], pattern):
                    verdict = not negated
        if verdict:
            return True
    return False


def restore_missing(build, tree):
    """Brings back files of the base that git took out of the tree.

    A reset or a rebase does so across the commit that put such a file under git.
    """
    base = os.path.join(build, "base")
    tracked = set(Git(tree)("ls-files", "-z").split("\0"))
    for path in sorted(set(walk(base)) - set(walk(tree)) - tracked):
        target = os.path.join(tree, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy2(os.path.join(base, path), target, follow_symlinks=False)
        say(f"tree: brought back {path}, which the base has")


def contents(path):
    if os.path.islink(path):
        return os.readlink(path).encode()
    with open(path, "rb") as f:
        return f.read()


def walk(top):
    """The files below @top, as paths relative to it, without git's own."""
    for directory, dirs, files in os.walk(top):
        if directory == top and ".git" in dirs:
            dirs.remove(".git")
        prefix = os.path.relpath(directory, top)
        prefix = "" if prefix == "." else prefix + "/"
        for name in files:
            yield prefix + name
        for name in dirs:
            if os.path.islink(os.path.join(directory, name)):
                yield prefix + name


def tell_strays(strays):
    lines = [f"    {path} {what}" for path, what in strays[:20]]
    if len(strays) > 20:
        lines.append(f"    and {len(strays) - 20} more")
    return "\n".join(lines)


def refuse_edits(build):
    """Raises when the tree has what patches/ does not have."""
    tree = os.path.join(build, TREE_NAME)
    if not os.path.isdir(os.path.join(tree, ".git")):
        return
    git = Git(tree)
    how = (f"  make refresh writes commits back to patches/; to throw them "
           f"away:\n    git -C {tree} reset --hard {APPLIED}")
    changed = git("status", "--porcelain", "--untracked-files=no")
    if changed:
        raise Failure(f"{tree} has edits that are not committed:\n"
                      + "\n".join("    " + line
                                  for line in changed.split("\n")[:20])
                      + f"\n  commit them there, then\n{how}")
    if git("rev-parse", "HEAD") != git("rev-parse", APPLIED):
        log = git("log", "--oneline", f"{APPLIED}..HEAD", "--")
        raise Failure(f"{tree} has commits that are not in patches/:\n"
                      + "\n".join("    " + line
                                  for line in log.split("\n")[:20])
                      + f"\n{how}")
    if not os.path.exists(os.path.join(build, "base.id")) or \
            not os.path.isdir(os.path.join(build, "base")):
        # without a whole base there is nothing to compare with
        return
    strays = stray_edits(build, tree, git)
    if strays:
        raise Failure(
            f"{tree} has edits of files that are not under git there:\n"
            + tell_strays(strays)
            + "\n  git add and commit them there and run make refresh, or "
            "bring them back to what the base has (build/base)")


def digest_of_files(directory):
    digest = hashlib.sha256()
    for path in sorted(walk(directory)):
        digest.update(path.encode() + b"\0" +
                      contents(os.path.join(directory, path)) + b"\0")
    return digest.hexdigest()

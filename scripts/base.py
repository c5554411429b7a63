# SPDX-License-Identifier: GPL-2.0
"""The pristine base, unpacked into build/base."""

import hashlib
import os
import re
import shutil

from common import (Failure, Step, call, is_full, read_series, read_text,
                    refuse_edits, remedy_of, say, walk, write_text)

PACKAGE = "linux-source-6.12"
TARBALL = "/usr/src/linux-source-6.12.tar.xz"
OLDEST = 100
ANOTHER = ("name a 6.12.y, from 6.12.%d on, with KERNEL_SRC= (a directory or a "
           "tarball)" % OLDEST)
# Names in the build directory that outlive a change of the base: they are not made
# of it, or are made anew each time. tests/run, which empties the directory of
# each layer itself, may be the caller.
KEPT = ("log", "demo", "check", "vm", "vm.status", "fuzz", "bench", ".lock",
        "base", "base.new", "base.old", "base.id", "base.next",
        "base.next.new")


def version_of(makefile):
    """(version, patchlevel, sublevel, text) of a kernel's Makefile, or None"""
    words = dict(re.findall(
        r"^(VERSION|PATCHLEVEL|SUBLEVEL|EXTRAVERSION)[ \t]*=[ \t]*(\S*)",
        makefile, re.M))
    try:
        numbers = tuple(int(words[w]) for w in
                        ("VERSION", "PATCHLEVEL", "SUBLEVEL"))
    except (KeyError, ValueError):
        return None
    return numbers + (".".join(map(str, numbers))
                      + words.get("EXTRAVERSION", ""),)


def check_version(makefile, source):
    version = version_of(makefile)
    if not version:
        raise Failure(f"{source} is no kernel source: its Makefile names no "
                      f"version; {ANOTHER}")
    if version[:2] != (6, 12):
        raise Failure(f"{source} is Linux {version[3]}; the series is for "
                      f"6.12.y: {ANOTHER}")
    if version[2] < OLDEST:
        raise Failure(f"{source} is Linux {version[3]}; the series needs "
                      f"6.12.{OLDEST} or later: {ANOTHER}")
    return version[3]


def identity(source):
    """A word that changes when the contents of @source do."""
    stat = os.stat(source)
    if not os.path.isdir(source):
        return f"{source} {stat.st_size} {stat.st_mtime_ns}"
    digest = hashlib.sha256()
    for path in sorted(files_of(source)):
        stat = os.lstat(os.path.join(source, path))
        digest.update(f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}\0".encode(
            "utf-8", "surrogateescape"))
    return f"{source} {digest.hexdigest()}"


def files_of(directory):
    """The sources in a user's own directory: git's files, or else all files."""
    if os.path.exists(os.path.join(directory, ".git")):
        names = call(["git", "-c", "safe.directory=*", "-C", directory,
                      "ls-files", "-z"]).stdout
        return [n for n in names.split("\0") if n
                and os.path.lexists(os.path.join(directory, n))]
    if os.path.exists(os.path.join(directory, ".config")) or \
            os.path.exists(os.path.join(directory, "include/config")):
        raise Failure(f"{directory} has been built in and is no git "
                      "repository that would tell its sources from the rest; "
                      "run make mrproper there")
    return list(walk(directory))


def read_makefile(source, log):
    """(its top Makefile, how many directories a tarball has above that)"""
    if os.path.isdir(source):
        try:
            with open(os.path.join(source, "Makefile"),
                      errors="replace") as f:
                return f.read(), 0
        except OSError:
            raise Failure(f"{source} has no Makefile at its top; "
                          f"{ANOTHER}") from None
    said = []
    # The second is for tarballs whose names begin with "./". It comes second: in
    # one packed without a top directory it would find ./arch/Makefile.
    for depth, pattern in (1, "*/Makefile"), (2, "./*/Makefile"):
        result = call(["tar", "-xOf", source, "--wildcards",
                       "--no-wildcards-match-slash", "--occurrence=1",
                       pattern], log=log, check=False)
        if not result.returncode:
            return result.stdout, depth
        said.append(result.stdout)
    tell_tarball(source, said[0], log)


def tell_tarball(source, said, log):
    """Raises for a tarball that tar could not read to its end."""
    what = "is no whole tarball of a kernel"
    if is_full(said):
        what = "cannot be unpacked"
        remedy = remedy_of(said, os.path.dirname(log))
    elif "Cannot exec" in said:
        what = "cannot be unpacked"
        remedy = ("the program that unpacks what it is packed with is missing: "
                  "install it and run the same command again")
    elif source == TARBALL:
        remedy = (f"apt-get install --reinstall {PACKAGE} brings it again; or "
                  + ANOTHER)
    else:
        remedy = "if it was downloaded, fetch it again; or " + ANOTHER
    raise Failure(f"{source} {what}:\n"
                  + "\n".join("    " + line for line in
                              said.strip().split("\n")[-8:])
                  + f"\n  log: {log}\n  {remedy}")


def unpack(source, target, log, depth):
    if os.path.isdir(source):
        for path in files_of(source):
            full = os.path.join(target, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            shutil.copy2(os.path.join(source, path), full,
                         follow_symlinks=False)
    else:
        os.makedirs(target)
        result = call(["tar", "-xf", source, "-C", target,
                       f"--strip-components={depth}", "--no-same-owner"],
                      log=log, check=False)
        if result.returncode:
            tell_tarball(source, result.stdout, log)


def remove(build, name):
    """Removes a file or directory in @build. It is renamed first: its name never
    stands for half of it."""
    path, old = os.path.join(build, name), os.path.join(build, "base.old")
    os.rename(path, old)
    if os.path.isdir(old) and not os.path.islink(old):
        shutil.rmtree(old)
    else:
        os.unlink(old)


def switch(build):
    """Puts the base in base.new, whose identity is in base.next, in the place of
    the base before, if there is one.

    Everything made of the old base goes: its objects look newer than the sources
    of any base. A run that is cut short in here is completed by the next one, as
    base.next goes last. base.id names the base that everything else was made of,
    and is not there until then.
    """
    base, fresh, old, id_file, following = (
        os.path.join(build, name) for name in
        ("base", "base.new", "base.old", "base.id", "base.next"))
    if os.path.lexists(old):
        # from a run that was cut short
        remove(build, "base.old")
    # a directory without these has nothing of ours
    if any(os.path.exists(os.path.join(build, name)) for name in
           ("base.id", "log/tree.log", "log/kernel-base.log")):
        made = sorted(set(os.listdir(build)) - set(KEPT))
    else:
        made = []
    if os.path.exists(id_file):
        os.unlink(id_file)
    if made:
        say(f"base: removing what was made of another one in {build}: "
            + ", ".join(made))
    for name in made:
        remove(build, name)
    if os.path.isdir(fresh):
        if os.path.isdir(base):
            remove(build, "base")
        os.rename(fresh, base)
    os.rename(following, id_file)


def acquire(build, source, trial=None):
    """Makes build/base of @source. A change of the base removes everything made of
    the old one, the tree too. It is refused if the tree has unsaved work, or if
    @trial raises, which is called with the directory of the new base.

    Without a @source the present base is kept; if there is none, Debian's package
    is unpacked.
    """
    named = bool(source)
    base = os.path.join(build, "base")
    id_file = os.path.join(build, "base.id")
    log = os.path.join(build, "log", "base.log")
    if os.path.exists(os.path.join(build, "base.next")):
        switch(build)
    have = None
    if os.path.isdir(base) and os.path.exists(id_file):
        have = read_text(id_file)
    if not source:
        if have:
            return
        source = TARBALL
        if not os.path.exists(source):
            raise Failure(
                f"{source} is not there; install Debian's package {PACKAGE} "
                f"(scripts/packages does), or {ANOTHER}")
    elif not os.path.exists(os.path.expanduser(source)):
        raise Failure(f"KERNEL_SRC={source}: no such directory or tarball")
    source = os.path.realpath(os.path.expanduser(source))
    open(log, "w").close()
    makefile, depth = read_makefile(source, log)
    version = check_version(makefile, source)
    want = identity(source)
    if have == want:
        return
    # before the minutes that unpacking may take
    refuse_edits(build)
    fresh = base + ".new"
    try:
        take(source, fresh, log, version, depth)
        if named and trial:
            trial(fresh)
    except Failure:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    write_text(os.path.join(build, "base.next"), want)
    switch(build)


def take(source, fresh, log, version, depth):
    """Unpacks it, and checks that the series can be applied to it."""
    with Step(f"base: unpacking Linux {version} from {source}"):
        if os.path.exists(fresh):
            shutil.rmtree(fresh)
        unpack(source, fresh, log, depth)
        for needed in ("Makefile", "scripts/checkpatch.pl"):
            if not os.path.exists(os.path.join(fresh, needed)):
                raise Failure(f"{source} is not a whole kernel source: it "
                              f"has no {needed}; {ANOTHER}")
        for patch in read_series():
            for path in patch.new_files:
                if os.path.lexists(os.path.join(fresh, path)):
                    raise Failure(f"{source} has {path}, which the series "
                                  "brings: it is to be a 6.12.y without the "
                                  "series (in a git repository: git worktree "
                                  "add DIRECTORY v6.12.N)")

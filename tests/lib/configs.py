# SPDX-License-Identifier: GPL-2.0
"""Builds the series in other configurations.

configs.ini names the configurations. In each of them the C files that the
series adds or edits are compiled with W=1 and checked by sparse, in the patched
tree. A warning fails the configuration, unless the pristine base has the same
warning about the same file there.

The Makefiles tell which of the files a configuration builds; see Objects.
"""

import collections
import concurrent.futures
import configparser
import hashlib
import os
import re
import subprocess
import threading
import time

from common import TOP, Failure, edited_files, read_series, read_text, write_text
from programs import outside_make

DATA = os.path.join(TOP, "tests", "lib", "configs.ini")
KCONFIG = os.path.join(TOP, "scripts", "kconfig")
SPARSE = os.path.join(TOP, "tests", "lib", "sparse")

# ARCH of a configuration: the prefix of its compiler
COMPILERS = {"x86": "", "arm64": "aarch64-linux-gnu-",
             "riscv": "riscv64-linux-gnu-"}
# the option that builds the series' own C files
ENABLED = "UNWIND_DEFERRED=y"
# directories that are built in every configuration
ALWAYS = re.compile(r"^(?:[a-z]+|arch/[a-z0-9]+)$")


class Config:
    """One section of configs.ini."""

    def __init__(self, name, section):
        self.name = name
        self.about = section.pop("about")
        self.arch = section.pop("arch", "x86")
        self.vmlinux = section.pop("vmlinux", "no") == "yes"
        self.options = [self.whole(o) for o in
                        section.pop("options", "").split()]
        self.series = [self.whole(o) for o in
                       section.pop("series", "").split()]
        if section:
            raise Failure(f"{DATA}: [{name}] has {', '.join(section)}, which "
                          "nothing reads")
        if self.arch not in COMPILERS:
            raise Failure(f"{DATA}: [{name}]: no compiler for {self.arch}")

    @staticmethod
    def whole(option):
        return option if "=" in option else option + "=y"


def read_configs():
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.read_string(read_text(DATA), DATA)
    return [Config(name, dict(parser[name])) for name in parser.sections()]


class Source:
    """A kernel tree."""

    def __init__(self, path):
        self.path = os.path.realpath(path)

    def has(self, path):
        return os.path.isfile(os.path.join(self.path, path))


def touched_files():
    """(new files, edited files) of the series."""
    series = read_series()
    new = [p for patch in series for p in patch.new_files]
    return new, sorted(edited_files(series) - set(new))


def kernel_c(paths):
    return [p for p in paths
            if p.endswith(".c") and not p.startswith(("tools/", "samples/",
                                                      "scripts/"))]


# C files that the series leaves alone, and that consist largely of code in headers
# which it edits
USERS = {"arch/x86/include/asm/entry-common.h": ["arch/x86/entry/common.c",
                                                 "kernel/entry/common.c"],
         "include/linux/perf_event.h": ["kernel/events/callchain.c"]}

# sparse checks an inline function of a header in the files that use it. For headers
# of the base that only new files use, these files of the base give the warnings that
# the base has already.
WITNESSES = ("arch/x86/kernel/process_32.c", "arch/x86/kernel/process_64.c")


class Objects:
    """The objects that the Makefiles of a tree build in a configuration."""

    def __init__(self, source, arch, config):
        self.source = source
        self.arch = arch
        self.config = config
        self.lists = {}

    def listed(self, directory):
        if directory not in self.lists:
            name = os.path.join(directory, "Kbuild")
            if not self.source.has(name):
                name = os.path.join(directory, "Makefile")
            bits = 64 if "\nCONFIG_64BIT=y\n" in read_text(self.config) else 32
            text = (f"include {self.config}\n"
                    f"srctree := {self.source.path}\n"
                    f"src := $(srctree)/{directory}\nobj := {directory}\n"
                    f"BITS := {bits}\nSRCARCH := {self.arch}\n"
                    f"include $(srctree)/{name}\n"
                    "$(info = $(obj-y) $(obj-m) $(lib-y))\n"
                    ".PHONY: nothing\n.DEFAULT_GOAL := nothing\nnothing:;@:\n")
            result = subprocess.run(["make", "-s", "-f", "-"], input=text,
                                    text=True, stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE, env=clean_env())
            lines = [line for line in result.stdout.split("\n")
                     if line.startswith("= ")]
            if result.returncode or not lines:
                raise Failure(f"cannot ask {name} for its objects:\n"
                              + result.stderr)
            self.lists[directory] = set(lines[-1][2:].split())
        return self.lists[directory]

    def directory(self, path):
        if ALWAYS.match(path):
            return not path.startswith("arch/") or path == f"arch/{self.arch}"
        parent, name = os.path.split(path)
        return self.directory(parent) and name + "/" in self.listed(parent)

    def of(self, files):
        """The objects of the C @files, without files that are not built."""
        out = []
        for path in files:
            directory, name = os.path.split(path)
            if path.startswith("arch/") and \
                    not path.startswith(f"arch/{self.arch}/"):
                continue
            if self.directory(directory) and \
                    name[:-2] + ".o" in self.listed(directory):
                out.append(path[:-2] + ".o")
        return out


def clean_env(**more):
    """The environment without variables that change a build of the kernel."""
    return dict(outside_make("V", "O", "W", "C", "ARCH", "CROSS_COMPILE", "KCFLAGS",
                             "CHECK", "CF", "LLVM", "CC", "KCONFIG_ALLCONFIG"),
                LC_ALL="C.UTF-8", **more)


MESSAGE = re.compile(r"^(?P<path>[^\s:][^:\n]*?):(?:\d+:)*\s+"
                     r"(?P<text>(?:fatal )?(?:warning|error):.*)$", re.I)
MODPOST = re.compile(r"^(?:WARNING|ERROR): ?(?P<text>modpost: .*)$")
# a further line of sparse about the message before: "path:1:2:    expected ..."
MORE = re.compile(r"^[^\s:][^:\n]*?:\d+:\d+:(?P<text>\s{2,}\S.*)$")
# a line of kbuild: "  CC [M]  fs/exec.o"
UNIT = re.compile(r"^  (?P<what>[A-Z][A-Z0-9_]*) +(?:\[M\] +)?(?P<path>\S+)")


class Messages:
    """The messages of the compiler, kernel-doc, objtool and sparse in a log.

    Line numbers and offsets are left out, so that the base's messages can be
    subtracted from the patched tree's. A message about a header counts once,
    however many files include it. With @units only messages about these objects
    count: with -j1, those that follow their CC and CHECK lines.
    """

    def __init__(self, text, source, units=None):
        self.units = {"CC": set(), "CHECK": set()}
        self.count = collections.Counter()
        self.lines = {}
        # {object: the files that its messages are about}
        self.blamed = {}
        key = unit = None
        for line in text.split("\n"):
            match = UNIT.match(line)
            if match:
                key = unit = None
                if match["what"] in self.units and \
                        match["path"][-2:] in (".c", ".o"):
                    unit = self.relative(match["path"], source)[:-2] + ".o"
                    self.units[match["what"]].add(unit)
                continue
            if units is not None and unit not in units:
                key = None
                continue
            match = MESSAGE.match(line)
            modpost = MODPOST.match(line)
            more = MORE.match(line)
            if match or modpost:
                path = self.relative(match["path"], source) if match \
                    else "modpost"
                said = (match or modpost)["text"]
                key = (path, re.sub(r"\+0x[0-9a-f]+", "", said))
                self.count[key] += 1
                self.lines.setdefault(key, []).append(line)
                if unit:
                    self.blamed.setdefault(unit, set()).add(path)
            elif more and key:
                self.lines[key].append(line)
            elif not line.startswith(" "):
                key = None

    @staticmethod
    def relative(path, source):
        prefix = source.path + "/"
        path = path[len(prefix):] if path.startswith(prefix) else path
        return os.path.normpath(path)

    def beyond(self, other):
        """The lines of messages that @other, if there is one, does not have."""
        out = []
        for key, number in self.count.items():
            before = other.count[key] if other else 0
            if key[0].endswith(".h"):
                number, before = 1, min(before, 1)
            if number > before:
                out += self.lines[key]
        return out


class Workshop:
    """Builds configurations, in a directory for each worker, arch and tree.

    Host programs are made once in each directory. kbuild rebuilds files that depend
    on the configuration; the objects to be checked are removed first.
    """

    def __init__(self, out, tree, base):
        self.out = out
        self.tree = Source(tree)
        self.base = Source(base)
        new, edited = touched_files()
        self.new = kernel_c(new)
        users = [u for header, more in USERS.items() if header in edited
                 for u in more]
        self.edited = sorted(set(kernel_c(edited) + users))
        self.ours = set(new)
        self.lock = threading.Lock()
        self.built = set()
        self.tools = "".join(
            subprocess.run([tool, "--version"], stdout=subprocess.PIPE,
                           text=True, check=True).stdout
            for tool in ["sparse"] + [c + "gcc" for c in COMPILERS.values()])
        version = os.path.join(os.path.dirname(self.base.path), "base.id")
        self.base_id = read_text(version) if os.path.exists(version) else ""

    def make(self, config, source, directory, log, *goals):
        args = ["make", "-C", source.path, f"O={directory}", "-j1",
                f"ARCH={config.arch}",
                f"CROSS_COMPILE={COMPILERS[config.arch]}", f"CHECK={SPARSE}",
                *goals]
        with open(log, "a") as f:
            f.write(f"$ {' '.join(args)}\n")
            f.flush()
            result = subprocess.run(args, stdin=subprocess.DEVNULL, stdout=f,
                                    stderr=subprocess.STDOUT, env=clean_env())
        if result.returncode:
            raise Failure(f"make {' '.join(goals)[:60]} failed:\n"
                          + tail(log) + f"\nlog: {log}")

    def configure(self, config, source, directory, options, log):
        fragment = os.path.join(directory, "asked.config")
        os.makedirs(directory, exist_ok=True)
        write_text(fragment, "".join(f"CONFIG_{o}\n" for o in options))
        result = subprocess.run(
            [KCONFIG, source.path, directory, fragment],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=clean_env(ARCH=config.arch,
                          CROSS_COMPILE=COMPILERS[config.arch]))
        with open(log, "a") as f:
            f.write(result.stdout)
        if result.returncode:
            raise Failure(f"no configuration:\n{result.stdout}\nlog: {log}")
        if source is self.tree and "unmet direct dep" in result.stdout:
            raise Failure(f"{result.stdout}\nlog: {log}")
        return os.path.join(directory, ".config")

    def compile(self, config, source, directory, objects, log):
        """Makes the objects with W=1 and sparse; returns the messages."""
        for name in objects:
            path = os.path.join(directory, name)
            if os.path.exists(path):
                os.unlink(path)
        start = os.path.getsize(log) if os.path.exists(log) else 0
        self.make(config, source, directory, log, "W=1", "C=2", *objects)
        with open(log, errors="replace") as f:
            f.seek(start)
            messages = Messages(f.read(), source, set(objects))
        for what in ("CC", "CHECK"):
            left = set(objects) - messages.units[what]
            if left:
                raise Failure(f"no {what} of {', '.join(sorted(left))}\n"
                              f"log: {log}")
        return messages

    def base_messages(self, config, directory, objects, log):
        """The base's messages about the objects, kept for the next time."""
        self.configure(config, self.base, directory, config.options, log)
        text = read_text(os.path.join(directory, ".config"))
        digest = hashlib.sha256("\0".join(
            [self.base_id, self.tools, text, *objects]).encode()).hexdigest()
        kept = os.path.join(self.out, "base-said", digest[:32])
        if self.base_id and os.path.exists(kept):
            return Messages(read_text(kept), self.base, set(objects))
        fresh = log + ".base"
        open(fresh, "w").close()
        messages = self.compile(config, self.base, directory, objects, fresh)
        write_text(kept, read_text(fresh))
        return messages

    def run(self, config, worker, log):
        """Builds one configuration; raises a Failure with all its faults."""
        open(log, "w").close()
        place = os.path.join(self.out, f"{config.arch}-{worker}")
        directory = os.path.join(place, "series")
        dot = self.configure(config, self.tree, directory,
                             config.options + config.series, log)
        objects = Objects(self.tree, config.arch, dot).of(
            sorted(self.new + self.edited))
        ours = [o for o in objects if o[:-2] + ".c" in self.new]
        if ENABLED in config.series and not ours:
            raise Failure("none of the series' own files is built")
        if ENABLED not in config.series and ours:
            raise Failure("built, though the configuration is without the "
                          "series: " + ", ".join(ours))
        said = self.compile(config, self.tree, directory, objects, log)
        base = None
        compare = [o for o in objects if o in said.blamed and o not in ours]
        if any(path.endswith(".h") and path not in self.ours
               for o in ours for path in said.blamed.get(o, ())):
            compare += Objects(self.tree, config.arch, dot).of(WITNESSES)
        if compare:
            base = self.base_messages(config, os.path.join(place, "base"),
                                      compare, log)
        found = said.beyond(base)
        if config.vmlinux:
            found += self.link(config, directory, base, log)
        with self.lock:
            self.built.update(objects)
        if found:
            raise Failure(f"{len(found)} lines of warnings that the base has "
                          "not:\n" + "\n".join(found) + f"\nlog: {log}")
        return objects

    def link(self, config, directory, base, log):
        """Builds the whole kernel; returns messages about files of ours and about
        the whole."""
        log += ".vmlinux"
        open(log, "w").close()
        self.make(config, self.tree, directory, log, "W=1", "vmlinux")
        said = Messages(read_text(log), self.tree)
        if not os.path.exists(os.path.join(directory, "vmlinux")):
            raise Failure(f"no vmlinux\nlog: {log}")
        for key in list(said.count):
            if key[0] not in self.ours and \
                    key[0] not in ("vmlinux.o", "modpost"):
                del said.count[key]
        return said.beyond(base)


def tail(log, lines=25):
    text = read_text(log).rstrip().split("\n")
    errors = [n for n, line in enumerate(text)
              if re.search(r"\berror\b|Error \d", line)]
    first = max(0, errors[0] - 3) if errors else -lines
    return "\n".join(text[first:][:lines])


def run_all(shop, configs, logs, report, workers):
    """Runs the configurations; @report(config, seconds, failure) of each.

    One worker takes them from the front of the list, the next from the back,
    so that each works on few architectures.
    """
    left = collections.deque(configs)
    lock = threading.Lock()

    def work(number, tell):
        while True:
            with lock:
                if not left:
                    return
                config = left.pop() if number % 2 else left.popleft()
            begun = time.monotonic()
            failure = None
            try:
                shop.run(config, number, os.path.join(logs, config.name
                                                      + ".log"))
            except Exception as error:  # whatever it is, it failed
                failure = error
            tell(config, time.monotonic() - begun, failure)

    tell_lock = threading.Lock()

    def tell(*args):
        with tell_lock:
            report(*args)

    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        for future in [pool.submit(work, n, tell) for n in range(workers)]:
            future.result()


def jobs():
    return int(os.environ.get("JOBS") or os.cpu_count())

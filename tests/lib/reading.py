# SPDX-License-Identifier: GPL-2.0
"""Recordings, and perf's output of them.

The tests' own reader (perfdata.py) writes a recording twice: as it is, and with each
user callchain in its sample, as if nothing had been deferred. A command must print the
same for both.
"""

import concurrent.futures
import fcntl
import itertools
import json
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import termios
import threading
import time

import otherorder
import perfdata
import roundtrip as rt
from roundtrip import PERF, Wrong

# the modules are those of the libpython that perf is linked with
LIBPYTHON = re.search(r"libpython\S* => (\S+)/lib/\S*libpython", subprocess.run(
    ["ldd", os.environ["PERF"]], stdout=subprocess.PIPE, text=True).stdout)
if LIBPYTHON:
    os.environ["PYTHONHOME"] = LIBPYTHON[1]
RECORDED = {}
OTHER_ORDER = threading.Lock()
NUMBERS = itertools.count(1)

NAME = os.fsdecode("grüße".encode() + b"\xff")

# the callers in "profile", to the end
CHAIN = r"recurse\b(.*\n)+?.*\bstorm\b(.*\n)+?.*\benter\b"

# name: perf's arguments, and the least number of deferred samples
RECORDINGS = {
    "profile": (["record", "-g", "--sample-cpu", "-c", "1", "-e",
                 "page-faults,rt:deferred", *rt.workload("storm", 40, 1)], 60),
    # no tracepoint: scripts and pipes treat these in another way. A task that leaves its
    # CPU has an immediate callchain.
    "switches": (["record", "-g", "-c", "1", "-e", "context-switches",
                  *rt.workload("signal", 12, 1)], 0),
    "exec": (["record", "-g", "-e", "rt:deferred", "sh", "-c",
              f"{rt.BIN}/workload rename 10 1"], 30),
    # samples of switches are immediate; wakeups by interrupts and forks are deferred
    "sched": (["sched", "record", "-g", *rt.workload("migrate", 4, 6)], 5),
    # deferred only if a tick comes in a system call, by chance
    "stat": (["record", "-g", "-c", "1", "-e",
              "sched:sched_switch,sched:sched_stat_runtime",
              *rt.workload("signal", 12, 1)], 0),
    "kmem": (["kmem", "record", "-g", *rt.workload("storm", 6, 1)], 50),
    # perf kmem looks for callers of page allocations only. The buffer has room: it fails
    # when events are lost.
    "pages": (["kmem", "--page", "record", "-m", "4M", "-g",
               *rt.workload("storm", 6, 1)], 50),
    # how often they wait for each other depends on the host, too
    "lock": (["record", "-a", "-R", "-g", "-c", "1", "-e",
              "lock:contention_begin,lock:contention_end", "sh", "-c",
              "(yes & yes & yes & yes) | head -c 16000000 >/dev/null"], 10),
    "kwork": (["kwork", "-k", "softirq,workqueue,sched", "record", "-g", "--",
               *rt.workload("storm", 20, 1)], 20),
    # system wide there is an event without callchains, and perf kwork timehist
    # shows none
    "softirq": (["record", "-g", "--sample-cpu", "-R", "-c", "1", "-e",
                 "irq:softirq_raise,irq:softirq_entry,irq:softirq_exit",
                 *rt.workload("storm", 150, 1)], 10),
    "timechart": (["timechart", "record", "-g", *rt.workload("migrate", 4, 6)],
                  0),
    "trace": (["trace", "record", "-g", *rt.workload("deep", 20, 4)], 20),
    # a name that is not ASCII, and in part no text
    "names": (["record", "-g", "-e", "rt:deferred", "sh", "-c",
               f"ln -s {rt.BIN}/workload ./{NAME} && exec ./{NAME} storm 5 1"],
              5),
    # these samples have the fields that perf mem wants, though no hardware filled them
    "memory": (["record", "-g", "-d", "-W", "-c", "1", "-e",
                "rt_fault:deferred", *rt.workload("fault", 3, 30)], 60),
}
# further recordings of the same: the source, and more options
FORMS = {
    "form-z": ("profile", ["-z"]),
    "form--threads": ("profile", ["--threads"]),
    "form-z--threads": ("profile", ["-z", "--threads"]),
    "form-kcore": ("profile", ["--threads"]),
    "switches.pipe": ("switches", []),
    "stat.pipe": ("stat", []),
    "lock.pipe": ("lock", []),
    "compressed.pipe": ("switches", ["-z"]),
}
# the symbols of the guest's kernel, for readers on another machine
BUILDIDS = "buildids"
# False: recordings that are not there cannot be made here
RECORDS = True


def record(name):
    """A recording of the one table or of the other, if it is not there yet: its
    file, or directory."""
    source, words = FORMS.get(name, (name, []))
    path = name if name in FORMS else f"{name}.data"
    if os.path.exists(path):
        return path
    if not RECORDS:
        raise Wrong(f"no {path}: tests/guest/recordings has not made it")
    args, _ = RECORDINGS[source]
    at = args.index("record") + 1
    pipe = path.endswith(".pipe")
    out = ["-o", "-" if pipe else path] if name != "timechart" else []
    # not for a relative path: the cache stays empty then
    rt.run([PERF, "--buildid-dir", os.path.abspath(BUILDIDS), *args[:at], *words,
            *out, *args[at:]], f"{name}.record", stdout=path if pipe else None)
    if not out:	# it has no such option
        os.rename("perf.data", path)
    return path


def symbols():
    """The addresses of the workload's functions, which is linked to a place."""
    out = subprocess.run(["nm", f"{rt.BIN}/workload"], check=True, text=True,
                         stdout=subprocess.PIPE).stdout
    return sorted((int(a, 16), name) for a, kind, name in
                  re.findall(r"^([0-9a-f]+) ([tT]) (\S+)$", out, re.M))


def hardware(name):
    """What the guest's processor cannot do: put into a recording."""
    at = {symbol: address for address, symbol in symbols()}
    if name == "branches":
        # into hit_sleeping, and out of it to its caller
        return "switches", perfdata.Hardware(branches=[
            (at["hit_sleeping"] + 8, at["recurse_sleeping"] + 16),
            (at["recurse_sleeping"] + 12, at["hit_sleeping"])])
    # a load that hit a modified line in the L3
    return "memory", perfdata.Hardware(
        addr=at["enter"], data_src=2 | (0x2 | 0x40) << 5 | 0x10 << 19)


def recording(name):
    """(the data as recorded, the same with nothing deferred)."""
    if name in ("branches", "hitm"):
        if name not in RECORDED:
            source, other = hardware(name)
            recording(source)
            pair = f"{name}.deferred", f"{name}.immediate"
            perfdata.twins(f"{source}.data", *pair, hardware=other)
            RECORDED[name] = pair
        return RECORDED[name]
    if name not in RECORDED:
        record(name)
        _, least = RECORDINGS[name]
        pair = f"{name}.deferred", f"{name}.immediate"
        merged = perfdata.twins(f"{name}.data", *pair)
        if merged < least:
            raise Wrong(f"{name}: {merged} deferred samples, not {least}")
        RECORDED[name] = pair
    return RECORDED[name]


def readings(name):
    """Those two, and the one as recorded in the other byte order: to be read the same."""
    deferred, immediate = recording(name)
    other = f"{deferred}.other"
    with OTHER_ORDER:	# it is asked for by some threads
        if not os.path.exists(other):
            otherorder.swapped(deferred, other)
            # perf takes the time of the recording from the file
            shutil.copystat(deferred, other)
    return deferred, immediate, other


def output(data, args, what):
    out, err = rt.run([PERF, *args], what)
    if re.search("callchains? not available", out + err) or "cookie" in out:
        raise Wrong(f"perf {' '.join(args)}: {err[-400:]}\n{out[:800]}")
    if args[0] in ("lock", "trace"):	# they print there
        out += err
    # the file's own name, and its times, are no matter
    return re.sub(rf"{re.escape(data)}|^# (captured on|file size|"
                  r"data (offset|size)|cmdline|event ).*$", "", out, flags=re.M)


def equal(name, *args, has=(), pick=None):
    """perf @args on all three; {} is the file's name, else -i FILE comes behind the
    command. @has: expressions that are in the output, or it proves nothing."""
    texts = []
    for data in readings(name):
        words = [a.format(data) for a in args]
        if not any("{}" in a for a in args):
            words += ["-i", data]
        what = f"{data}-{args[0]}-{next(NUMBERS)}"
        text = output(data, words, what)
        texts.append(pick(text) if pick else text)
    ours, *others = texts
    lines = ours.split("\n")
    for text, kind in zip(others, ("immediate", "the other order")):
        theirs = text.split("\n")
        # a chain on one line goes on where the immediate walk could not read a page
        at = next((n for n, (a, b) in enumerate(zip(lines, theirs)) if a != b and
                   not (kind == "immediate" and " <- " in b and a.startswith(b))),
                  min(len(lines), len(theirs)))
        if at == len(lines) == len(theirs):
            continue
        raise Wrong(f"perf {' '.join(args)}, line {at}:\n" + "\n".join(
            ["deferred:", *lines[max(0, at - 3):at + 4], f"{kind}:",
             *theirs[max(0, at - 3):at + 4]]))
    if not ours.strip():
        raise Wrong(f"perf {' '.join(args)}: nothing is shown")
    for expression in has:
        if not re.search(expression, ours, re.M):
            raise Wrong(f"perf {' '.join(args)}: no {expression}:\n"
                        f"{ours[:1500]}")
    return ours


def equal_orders(source, commands, injects, show=None):
    """Compares the output of perf @commands, and the files of perf inject @injects, for
    @source and the same in the other byte order. perf @show reads these files."""
    texts = []
    for order in ("this", "other"):
        where = f"{source}.{order}"
        os.makedirs(where, exist_ok=True)
        if order == "this":
            shutil.copy(source, f"{where}/data")
        else:
            otherorder.swapped(source, f"{where}/data")
        # perf takes the time of the recording from the file
        os.utime(f"{where}/data", (0, 0))
        # perf inject writes down how it was called
        there = ["env", "-C", where, PERF]
        read = ["".join(rt.run([*there, *words, "-i", "data"], f"{where}/{number}"))
                for number, words in enumerate(commands)]
        for words, out in itertools.product(injects, ["file", "pipe"]):
            # and nothing that was not set
            rt.run(["env", f"MALLOC_PERTURB_={len(order)}", *there, "inject", *words,
                    "-i", "data", "-o", "injected" if out == "file" else "-"], f"{where}/inject",
                   stdout=None if out == "file" else f"{where}/injected")
            with open(f"{where}/injected", "rb") as f:
                read.append(f.read())
            if show:
                os.utime(f"{where}/injected", (0, 0))
                read.append(rt.run([*there, *show, "-i", "injected"], f"{where}/show")[0])
        texts.append(read)
    for number, (ours, theirs) in enumerate(zip(*texts)):
        if ours != theirs:
            at = len(os.path.commonprefix([ours, theirs]))
            raise Wrong(f"{source}, {number}, at {at}:\n{ours[:at + 99][-199:]}\n"
                        f"the other order:\n{theirs[:at + 99][-199:]}")
    return texts[0]


class Each:
    """Many comparisons, a few at once; all of their faults are told."""

    def __init__(self, *names, function=equal):
        self.function = function
        for name in names:
            recording(name)
        self.pool = concurrent.futures.ThreadPoolExecutor(3)
        self.futures = []

    def __call__(self, *args, **kwargs):
        self.futures.append(self.pool.submit(self.function, *args, **kwargs))

    def end(self):
        wrong = []
        for future in self.futures:
            try:
                future.result()
            except Wrong as error:
                wrong.append(str(error))
        if wrong:
            raise Wrong("\n".join(wrong))


def browse(words, steps, directory):
    """Runs @words on a terminal. @steps are pairs: a key, and a text or file. The key is
    given when perf waits and has shown the text or made the file. Returns the output."""
    os.makedirs(directory, exist_ok=True)
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 60, 160, 0, 0))
    steps, shown, last = list(steps), b"", time.monotonic()
    with subprocess.Popen(words, stdin=slave, stdout=slave, stderr=slave,
                          cwd=directory, start_new_session=True,
                          env=dict(os.environ, TERM="xterm")) as perf:
        os.close(slave)
        while perf.poll() is None and time.monotonic() < last + 60:
            if select.select([master], [], [], 0.2)[0]:
                try:
                    shown += os.read(master, 1 << 16)
                except OSError:		# it is gone
                    break
                last = time.monotonic()
            elif steps and time.monotonic() > last + 1 and (
                    steps[0][1] in shown or
                    os.path.exists(os.path.join(directory.encode(),
                                                steps[0][1]))):
                os.write(master, steps.pop(0)[0])
                last = time.monotonic()
        if not steps and perf.poll() is None and time.monotonic() >= last + 60:
            steps = [(None, "end of it")]
        if steps:
            perf.kill()
            raise Wrong(f"{words}: no {steps[0][1]}\n{shown[-800:]}")
    while select.select([master], [], [], 0)[0]:
        try:
            shown += os.read(master, 1 << 16)
        except OSError:
            break
    os.close(master)
    return shown


def stock_perf():
    stock = shutil.which("perf", path="/usr/bin:/bin")
    if not stock:
        raise Wrong("the distribution's perf (linux-perf) is not installed")
    return stock


def samples_as_json(data):
    rt.run([PERF, "data", "convert", "--force", "--to-json", f"{data}.json", "-i",
            data], f"{data}.convert")
    with open(f"{data}.json") as f:
        samples = json.load(f)["samples"]
    for sample in samples:
        sample["callchain"] = [
            frame for frame in sample["callchain"]
            if frame.get("symbol") != "[user callchain not available]"]
    return samples


def injected(data):
    """The name of a pipe's data, of a file."""
    stream = f"{data}.pipe"
    if not os.path.exists(stream):
        temporary = f"{stream}.{next(NUMBERS)}"
        rt.run([PERF, "inject", "-i", data, "-o", "-"], temporary,
               stdout=temporary)
        os.rename(temporary, stream)
    return stream


def read_pipe(stream, args, status=0):
    """What perf @args prints and says of the pipe."""
    what = f"{stream}-{args[0]}-{next(NUMBERS)}"
    with open(stream, "rb") as f, open(f"{what}.out", "wb") as o, \
            open(f"{what}.err", "wb") as e:
        # a pipe, in which perf cannot seek
        cat = subprocess.Popen(["cat"], stdin=f, stdout=subprocess.PIPE)
        result = subprocess.run([PERF, *args], stdin=cat.stdout, stdout=o,
                                stderr=e, timeout=240)
        cat.stdout.close()
        cat.wait()
    with open(f"{what}.out", errors="replace") as o, \
            open(f"{what}.err", errors="replace") as e:
        text = o.read(), e.read()
    # A CPU of the guest can be kept from running between the time of a record and
    # its write. Then perf record has read later ones of the others before it.
    text = text[0], re.sub(r"^Warning:\n\d+ out of order events recorded\.\n+", "",
                           text[1], flags=re.M)
    if bool(result.returncode) != bool(status) or result.returncode < 0:
        raise Wrong(f"perf {' '.join(args)} of {stream}: status "
                    f"{result.returncode}\n{text[1][-800:]}")
    return text

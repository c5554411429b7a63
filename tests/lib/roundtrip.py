# SPDX-License-Identifier: GPL-2.0
"""Recording a workload twice at once, and the tests that compare the two.

A workload (tests/guest/workload.c) is recorded with two events that see each hit: one
defers, the other does not. compare.py compares what perf script prints of the two.
The recording without merging shows that the first did defer: it has as many deferred
callchains as there are hits.

A test is a function with the decorator test(), fixes() if it needs the series
perf-fixes, or rare() if make check does without it; main() runs them, and prints TAP.
"""

import contextlib
import difflib
import os
import re
import subprocess
import sys
import time
import traceback

import compare
import perfdata

TRACEFS = "/sys/kernel/tracing"
TESTS = []
# of the tree; empty: all
SERIES = os.environ.get("SERIES", "").split()
BIN = os.environ["BIN"]
OUT = os.environ["OUT"]
PERF = os.environ["PERF"]
# where a probed system call's number is: the offset of the register in pt_regs
PROBES = (
    ("__x64_sys_getpgid", 112),			# di
    ("__ia32_sys_getpgid", 40),			# bx
    ("__x64_sys_poll", 112),
    ("__ia32_sys_poll", 40),
    ("__x64_sys_prctl", 96),			# dx
    ("__ia32_sys_prctl", 96),
    ("__x64_sys_sched_setaffinity", 104),	# si
    ("__ia32_compat_sys_sched_setaffinity", 88),	# cx
    ("__x64_sys_exit_group", 112),
    ("__ia32_sys_exit_group", 40),
    ("__x64_sys_execve", 96),			# dx
)
POLL = 7			# of 64-bit programs
# these are made by the C library too
MAPPING = (
    ("__x64_sys_mmap", 104),
    ("__ia32_compat_sys_ia32_mmap", 88),
    ("__x64_sys_munmap", 96),
    ("__ia32_sys_munmap", 96),
)


class Wrong(Exception):
    """A test failed, and why."""


class Skip(Exception):
    """A test cannot be done here, and why."""


def test(function):
    TESTS.append(function)
    return function


def fixes(function):
    """A test of a fault that perf-fixes mends: it is not run without that series."""
    return test(function) if not SERIES or "perf-fixes" in SERIES else function


def rare(function):
    """A test for make check-all only, or when an argument names it."""
    return test(function) if os.environ.get("ALL") or function.__name__ in sys.argv[1:] \
        else function


def probe():
    """The two events, each on all the probed system calls, and two more on
    those that change the maps, and on page faults."""
    with open("/proc/kallsyms") as f:
        known = {line.split()[2] for line in f}
    for event in (compare.DEFERRED, compare.IMMEDIATE):
        lines = [f"p:rt/{event} {function} seq=+{offset}(%di):u64\n"
                 for function, offset in PROBES]
        lines += [f"p:rt_map/{event} {function} seq=+{offset}(%di):u64\n"
                  for function, offset in MAPPING]
        lines.append(f"p:rt_fault/{event} handle_mm_fault seq=%si:u64\n")
        for line in lines:
            if line.split()[1] not in known:
                raise Wrong(f"the kernel has no {line.split()[1]}")
            # not open(..., "a"), which looks for the end: there is none
            fd = os.open(f"{TRACEFS}/kprobe_events", os.O_WRONLY | os.O_APPEND)
            os.write(fd, line.encode())
            os.close(fd)
    # The probes stay armed, so that no perf record patches the kernel's code: an
    # int3 of that can stay where it is, see stale_code() in qemu/run. One at a
    # probe that uses ftrace goes to address 0.
    with open(f"{TRACEFS}/tracing_on", "w") as f:
        f.write("0")
    for group in ("rt", "rt_map", "rt_fault"):
        with open(f"{TRACEFS}/events/{group}/enable", "w") as f:
            f.write("1")


def events(place="rt:{}", deferred="fp,defer,nocfi", immediate="fp,nodefer", more=""):
    """Two events at one place. By tables the deferred one would show more callers."""
    args = []
    for name, graph in ((compare.DEFERRED, deferred),
                        (compare.IMMEDIATE, immediate)):
        place_of = place.format(name)
        terms = f"call-graph='{graph}'{more}"
        if "/" in place_of:
            args += ["-e", place_of[:-1] + f"name={name},{terms}/"]
        else:
            args += ["-e", f"{place_of}/{terms}/"]
    return args


def run(args, what, stdout=None, timeout=240):
    """Runs perf; returns (stdout, stderr). Its output goes to files: processes
    that a workload leaves behind keep a pipe open."""
    out = stdout or f"{what}.out"
    with open(out, "wb") as o, open(f"{what}.err", "wb") as e:
        result = subprocess.run(args, stdin=subprocess.DEVNULL, stdout=o,
                                stderr=e, timeout=timeout)
    with open(f"{what}.err", errors="replace") as f:
        err = f.read()
    if result.returncode:
        raise Wrong(f"{' '.join(args)}: exit status {result.returncode}\n"
                    f"{err[-800:]}")
    if stdout:
        return None, err
    with open(out, errors="replace") as f:
        return f.read(), err


def difference(one, other, lines=60):
    """The first lines of a diff of two outputs."""
    diff = difflib.unified_diff(one.split("\n"), other.split("\n"), n=6,
                                lineterm="")
    return "\n".join(line for _, line in zip(range(lines), diff))


def workload(*args, bits=64):
    name = "workload" if bits == 64 else f"workload.{bits}"
    return [f"{BIN}/{name}", *map(str, args)]


def record(name, command, which=None, options=("-m", "2M")):
    """perf record of @command: its stderr, with the workload's."""
    _, err = run([PERF, "record", "-o", f"{name}.data", *options,
                  *(which or events()), *command], f"{name}.record")
    return err


def calls(err):
    """The number of hits that the workload made."""
    found = re.findall(r"^calls (\d+)$", err, re.M)
    if len(found) != 1:
        raise Wrong(f"the workload did not end well:\n{err[-800:]}")
    return int(found[0])


def script(name, *options, fields=compare.FIELDS, missing=False, lost=False):
    """perf script's output; what it says to be lost is a failure, unless
    @missing allows for user callchains, and @lost for all records."""
    out, err = run([PERF, "script", "-f", "-i", f"{name}.data", "--ns",
                    *([] if lost else ["--show-lost-events"]), "-F", fields,
                    *options], f"{name}.script")
    if "PERF_RECORD_LOST" in out:
        raise Wrong("perf script tells of lost records")
    if missing:
        err = re.sub(r"^\d+ of \d+ user callchains not available$", "", err,
                     flags=re.M)
    if not lost and re.search(r"\blost\b|not available|warning", err, re.I):
        raise Wrong(f"perf script says: {err[-400:]}")
    return out


def recorded(name):
    """The number of deferred callchains in the data."""
    raw, _ = run([PERF, "script", "-f", "-i", f"{name}.data",
                  "--no-merge-callchains"], f"{name}.raw")
    return len(re.findall(r"DEFERRED CALLCHAIN", raw))


def check(name, text, expected, records="same", end="enter", pick=None,
          limit=None):
    """Compares, and looks for the deferred callchains as recorded."""
    try:
        samples = compare.parse(text)
    except ValueError as error:
        raise Wrong(str(error)) from None
    hits = sum(s.event == compare.DEFERRED for s in samples)
    if pick:
        samples = [s for s in samples if pick(s)]
    same(samples, expected, end, limit)
    if records:
        seen = recorded(name)
        if seen != hits:
            raise Wrong(f"{hits} deferred samples, {seen} deferred callchains")
    return samples


def whole(name, *args, bits=64, expected=None, end="enter", options=(),
          limit=None):
    """Record, print, compare."""
    err = record(name, workload(*args, bits=bits),
                 options=("-m", "2M", *options))
    made = calls(err) if expected is None else expected
    return check(name, script(name), made, end=end, limit=limit)


def count_of(sample, symbol):
    return sum(re.sub(r"\+0x.*", "", f[1]) == symbol for f in sample.frames)


def all_there(*paths, deferred=1):
    """In the data itself: samples were deferred, and all callchains are there."""
    cookies = perfdata.Cookies(*paths)
    if len(cookies.waiting) < deferred:
        raise Wrong(f"{paths}: {len(cookies.waiting)} deferred samples, not "
                    f"{deferred}")
    if cookies.missing:
        raise Wrong(f"{paths}: {len(cookies.missing)} of "
                    f"{len(cookies.waiting)} callchains are missing, "
                    f"{cookies.missing[0]} for one")
    return cookies


def same(samples, expected=None, end="enter", limit=None):
    wrong = compare.compare(samples, expected, end, limit)
    if wrong:
        raise Wrong("\n".join(wrong[:12] + [f"({len(wrong)} differences)"]))


def mode(name, *options, events=None, expected=None, end="enter",
         command=("deep", 30, 20), raw=True, pick=None):
    """Records @command with @options, compares all its hits."""
    err = record(name, workload(*command), which=events,
                    options=("-m", "1M", *options))
    samples = compare.parse(script(name))
    if pick:
        samples = [s for s in samples if pick(s)]
    made = calls(err) if expected is None else expected
    same(samples, made, end)
    if raw:
        all_there(f"{name}.data", deferred=made)
    return samples, err


def joint(samples, whole="enter"):
    """Without the hits at the begin and at the end of a thread's profile that
    one event alone saw: events are not enabled, disabled and read in one
    moment. These have to have all their frames too."""
    of = {event: {s.key for s in samples if s.event == event}
          for event in (compare.DEFERRED, compare.IMMEDIATE)}
    both = of[compare.DEFERRED] & of[compare.IMMEDIATE]
    spans = {}
    for s in samples:
        if s.key in both:
            first, last = spans.get(s.tid, (s.time, s.time))
            spans[s.tid] = min(first, s.time), max(last, s.time)
    out = []
    for s in samples:
        first, last = spans.get(s.tid, (1 << 64, 0))
        if s.key in both or first < s.time < last:
            out.append(s)
        elif not count_of(s, whole):
            raise Wrong(f"{s}: no whole chain: {s.frames}")
    if len(samples) - len(out) > 4 * max(1, len(spans)):
        raise Wrong(f"{len(samples) - len(out)} hits seen by one event only")
    return out


@contextlib.contextmanager
def sysctl(name, value):
    """kernel.@name has another @value."""
    path = f"/proc/sys/kernel/{name}"
    with open(path) as f:
        before = f.read()
    try:
        with open(path, "w") as f:
            f.write(str(value))
        yield
    finally:
        with open(path, "w") as f:
            f.write(before)


class Polling:
    """Threads that are asleep in a hit most of the time, or with @mode "long" awake."""

    def __init__(self, threads, mode="poll"):
        self.threads = threads
        self.mode = mode

    def __enter__(self):
        self.process = subprocess.Popen(workload(self.mode, 1, self.threads))
        tasks = f"/proc/{self.process.pid}/task"
        while len(os.listdir(tasks)) <= self.threads:
            time.sleep(0.05)
        self.pid = self.process.pid
        self.tids = sorted(int(t) for t in os.listdir(tasks)
                           if int(t) != self.pid)
        return self

    def naps(self):
        """How often each of them has gone to sleep: that is once in each hit."""
        found = []
        for tid in self.tids:
            with open(f"/proc/{tid}/status") as f:
                found.append(int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)",
                                           f.read(), re.M)[1]))
        return found

    def wait(self, hits):
        """Until each of them has made so many more hits, however long that takes."""
        wanted = [n + hits for n in self.naps()]
        while any(n < w for n, w in zip(self.naps(), wanted)):
            time.sleep(0.05)

    def until(self, hits):
        """A command that does the same."""
        tids = " ".join(map(str, self.tids))
        return ["sh", "-c", f"""
naps() {{ sed -n 's/^voluntary_ctxt_switches:[^0-9]*//p' /proc/$1/status; }}
for tid in {tids}; do eval wanted_$tid=$(($(naps $tid) + {hits})); done
for tid in {tids}; do
	until [ $(naps $tid) -ge $((wanted_$tid)) ]; do sleep 0.1; done
done"""]

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def lone_sleeper():
    """A task that never wakes: its PID, and a function that lets it go to sleep in a hit,
    and returns when it is off its CPU."""
    with subprocess.Popen(workload("lone", 1, 3), stdin=subprocess.PIPE) as sleeper:
        def asleep():
            # this waits until the task has been switched out
            with open(f"/proc/{sleeper.pid}/syscall") as f:
                return f.read().startswith(f"{POLL} ")

        def sleep():
            sleeper.stdin.close()
            begun = time.monotonic()
            while not asleep():
                if time.monotonic() > begun + 60:
                    raise Wrong("the task does not sleep in its hit")
                time.sleep(0.05)

        try:
            yield sleeper.pid, sleep
        finally:
            sleeper.kill()


def of_workload(sample):
    """System wide others come to the probed calls too."""
    return bool(count_of(sample, "enter"))


def group_of_events():
    """A directory: the cgroup "roundtrip" of perf's controller."""
    # with no other controller there, cgroup2's cgroups do not get this one
    hierarchy = "/tmp/perf_event"
    group = f"{hierarchy}/roundtrip"
    if not os.path.ismount(hierarchy):
        os.makedirs(hierarchy)
        subprocess.run(["mount", "-t", "cgroup", "-o", "perf_event", "none",
                        hierarchy], check=True)
    os.makedirs(group, exist_ok=True)
    return group


def main(prepare=probe):
    """Runs the tests, or those that the arguments name; returns the exit status."""
    os.chdir(OUT)
    wanted = [t for t in TESTS
              if len(sys.argv) == 1 or t.__name__ in sys.argv[1:]]
    print(f"TAP version 13\n1..{len(wanted)}", flush=True)
    prepare()
    failed = 0
    for number, function in enumerate(wanted, 1):
        name = f"{function.__name__.replace('_', ' ')}: {function.__doc__}"
        begun = time.monotonic()
        try:
            function()
            result = "ok"
        except Skip as why:
            result = "ok"
            name += f" # SKIP {why}"
        except Exception as error:
            text = str(error) if isinstance(error, Wrong) else \
                traceback.format_exc()
            for line in text.rstrip().split("\n"):
                print(f"# {line}")
            result = "not ok"
            failed += 1
        print(f"{result} {number} - {name}")
        print(f"# {time.monotonic() - begun:.1f} s", flush=True)
    return 1 if failed else 0

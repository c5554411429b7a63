# SPDX-License-Identifier: GPL-2.0
"""perf with sanitizers reads each file of the corpus (tests/data/corpus)."""

import json
import os
import re
import resource
import signal
import struct
import subprocess

from builds import has_series
from common import TOP, Failure, call
from layer import Layer

CORPUS = os.path.join(TOP, "tests", "data", "corpus")
READERS = {
    "script": ["script"],
    "script, as recorded": ["script", "--no-merge-callchains"],
    "report": ["report", "--stdio"],
    "report -D": ["report", "-D"],
    "report --stats": ["report", "--stats"],
    "inject": ["inject", "-o", "/dev/null"],
    "inject, merged": ["inject", "--merge-callchains", "-o", "/dev/null"],
    # the header of a file comes as events
    "inject, merged, pipe": ["inject", "--merge-callchains", "-o", "-"],
    # these go through callchains themselves. So do sched timehist, kmem, lock,
    # kwork and timechart, but of tracepoints only, whose formats are not in the
    # corpus: fuzz-session has one of its own
    "convert": ["data", "convert", "--force", "--to-json", "{log}.json"],
    "buildid-list": ["buildid-list", "--with-hits"],
    # each file is read twice, and deleted as often
    "diff": ["diff", "{path}", "{path}"],
}
# file of the corpus: further commands that read it
OTHERS = {
    "c2c-no-node": {"c2c": ["c2c", "report", "--stdio"]},
    **{name: {
        "report, trace": ["report", "--stdio", "-s", "trace"],
        "evlist": ["evlist", "--trace-fields"],
        "trace": ["trace"],
    } for name in ("no-format-pipe", "other-format-pipe")},
    "any-cpu": {
        "script, one CPU": ["script", "-C", "0"],
        "report, one CPU": ["report", "--stdio", "-C", "0"],
        "report, sockets": ["report", "--stdio", "--sort", "cpu,socket"],
        "diff, one CPU": ["diff", "-C", "0", "{path}", "{path}"],
    },
}
# Without perf-fixes the sanitizers report faults of the base for every file. There perf
# without sanitizers reads the files of EXPECTED. The base makes no JSON of pipes, and
# reads nothing of a file that is cut off.
NEEDS = ("perf", "perf-fuzz")
FIXED = has_series(*NEEDS)
READERS_OF_FIXES = {"convert"}
FILES_OF_FIXES = {"cut-off"}
ENVIRONMENT = {"ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
               "UBSAN_OPTIONS": "print_stacktrace=1",
               "PERF_CONFIG": "/dev/null"}
SANITIZER = re.compile(r"runtime error:|ERROR: \w+Sanitizer|DEADLYSIGNAL")
RECORD = "callchain records malformed"
SAMPLE = "deferred samples malformed"
MISSING = "user callchains not available"
COUNTS = (RECORD, SAMPLE, MISSING)
# the line with the offset of the first such record
TOLD = "malformed deferred callchain record, skipped"
# PERF_RECORD_CALLCHAIN_DEFERRED
TYPE = 22
# of a pipe offsets are counted from behind its header, as perf report -D has them
PIPE_HEADER = 16
# file of the corpus: the counts that are not 0
EXPECTED = {
    "bad-nr-huge": {RECORD: 2, MISSING: 2},
    "bad-nr-past-end": {RECORD: 1, MISSING: 1},
    "bad-truncated": {RECORD: 4, MISSING: 5},
    "bad-no-sample-id": {RECORD: 1, MISSING: 1},
    "bad-context-in-record": {RECORD: 1, MISSING: 1},
    "bad-cookie-zero": {RECORD: 1, SAMPLE: 1, MISSING: 1},
    "bad-no-cookie": {SAMPLE: 2, MISSING: 2},
    "bad-mid-chain": {SAMPLE: 2, MISSING: 2},
    "bad-nr-zero": {MISSING: 1},
    "bad-same-cookie": {},
    "bad-same-cookie-other": {},
    "bad-unaligned": {},
    "bad-unclaimed": {},
    "machines-file-little": {},
    "machines-file-big": {},
    "machines-pipe-little": {},
    "machines-pipe-big": {},
    "cut-off": {MISSING: 4},
    "good-compressed": {MISSING: 8},
    "old-event-type-pipe": {MISSING: 24},
    "lost-file-little": {MISSING: 24},
    "lost-file-big": {MISSING: 24},
    "lost-pipe-little": {MISSING: 24},
    "lost-pipe-big": {MISSING: 24},
    "raw-data-file": {MISSING: 12},
    "raw-data-pipe": {MISSING: 12},
    "raw-data-file-big": {MISSING: 12},
    "raw-data-pipe-big": {MISSING: 12},
}
for _name in [n for n in EXPECTED if n.startswith("bad-")]:
    EXPECTED[_name + "-pipe"] = dict(EXPECTED[_name])
# a message that ends the reading: it comes once, though the file is read twice
ENDED = {"bad-compressed": "failed to decompress"}


def read(perf, words, path, log):
    """(stdout, stderr) of a reader, which must not crash."""
    if "{path}" not in words:
        words = [*words, "-i", "{path}"]
    words = [word.format(path=path, log=log) for word in words]
    with open(f"{log}.err", "w+", errors="replace") as errors:
        try:
            result = subprocess.run(
                [perf, *words], stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=errors, timeout=120,
                env=dict(os.environ, **ENVIRONMENT))
        except subprocess.TimeoutExpired:
            raise Failure(f"perf {' '.join(words)}: not done in 120 s") \
                from None
        errors.seek(0)
        said = errors.read()
    out = result.stdout.decode(errors="replace")
    if result.returncode < 0 or SANITIZER.search(said):
        raise Failure(f"perf {' '.join(words)}: status {result.returncode}\n"
                      f"{said[-3000:]}")
    return out, said


def look_there(name, line):
    """The event that a message names must be at its offset and of its type."""
    offset, size = (int(number, 16) for number in
                    re.match(r"(0x[0-9a-f]+)@\S+ \[(0x[0-9a-f]+)\]", line).groups())
    with open(os.path.join(CORPUS, name), "rb") as f:
        f.seek(offset + (PIPE_HEADER if name.endswith("-pipe") else 0))
        header = struct.unpack("<IHH", f.read(8))
    if (header[0], header[2]) != (TYPE, size):
        raise Failure(f"{name}: there is {header}:\n{line}")


def read_all(perf, name, directory):
    for what, words in {**READERS, **OTHERS.get(name, {})}.items():
        if what in READERS_OF_FIXES and not FIXED:
            continue
        log = os.path.join(directory, re.sub(r"\W+", "-", f"{name} {what}"))
        out, said = read(perf, words, os.path.join(CORPUS, name), log)
        # perf inject passes on what is compressed, unless it merges
        if name in ENDED and what != "inject" and said.count(ENDED[name]) != 1:
            raise Failure(f"perf {what}: not once {ENDED[name]!r}:\n{said}")
        if name not in EXPECTED:
            continue
        counts = EXPECTED[name]
        if re.search(r"malformed \S+ event, skipped", said):
            raise Failure(f"perf {what}: a good event is skipped:\n{said}")
        if what == "script":
            lines = re.findall(rf"^0x[0-9a-f]+@\S+ .*{TOLD}.*$", said, re.M)
            if len(lines) != (RECORD in counts):
                raise Failure(f"{len(lines)} lines that say {TOLD!r}, not "
                              f"{int(RECORD in counts)}:\n{said}")
            for line in lines:
                look_there(name, line)
            missing = re.findall(rf"^(\d+) of \d+ {MISSING}$", said, re.M)
            want = [str(counts[MISSING])] if MISSING in counts else []
            if missing != want:
                raise Failure(f"{MISSING}: says {missing}, not "
                              f"{counts.get(MISSING)}:\n{said}")
        elif what == "report --stats":
            for count in COUNTS:
                seen = re.search(rf"{count}: +(\d+)$", out, re.M)
                seen = int(seen[1]) if seen else 0
                if seen != counts.get(count, 0):
                    raise Failure(f"{count}: {seen}, not "
                                  f"{counts.get(count, 0)}\n{out[-1500:]}")
        elif what == "convert":
            with open(f"{log}.json") as f:
                samples = json.load(f)["samples"]
            shown = sum(frame.get("symbol") == "[user callchain not available]"
                        for sample in samples for frame in sample["callchain"])
            if not samples or shown != counts.get(MISSING, 0):
                raise Failure(f"{len(samples)} samples as JSON, {MISSING}: "
                              f"{shown}, not {counts.get(MISSING, 0)}")


# samples whose callchain never comes, and the memory that perf may take for them
# beyond twice the file: the file is mapped, and a pipe's events are copied
WAITING = 1000000
OWN_MEMORY = 64 << 20


def read_waiting(perf, form, words, directory):
    """A million samples that wait for nothing: counted, in bounded memory."""
    path = os.path.join(directory, f"waiting-{form}")
    call([os.path.join(TOP, "tests", "data", "mkperfdata"), "--samples", str(WAITING),
          "--threads", "1000", "--lose-every", "1", "--form", form, "-o", path])
    try:
        with open(f"{path}.err", "w+", errors="replace") as errors:
            child = subprocess.Popen([perf, *words, "-i", path],
                                     stdin=subprocess.DEVNULL,
                                     stdout=subprocess.PIPE, stderr=errors,
                                     env=dict(os.environ, **ENVIRONMENT))
            # chains of a few lines; none is cut in two by a line's end
            shown = sum(b"[user callchain not available]" in line
                        for line in child.stdout)
            child.stdout.close()
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            errors.seek(0)
            said = errors.read()
        limit = 2 * os.path.getsize(path) + OWN_MEMORY
    finally:
        os.unlink(path)
    if child.returncode or \
            f"{WAITING} of {WAITING} {MISSING}" not in said:
        raise Failure(f"status {child.returncode}\n{said[-1500:]}")
    if shown != WAITING:
        raise Failure(f"{shown} samples are shown, not {WAITING}")
    if usage.ru_maxrss << 10 > limit:
        raise Failure(f"{usage.ru_maxrss >> 10} MiB of memory, not "
                      f"{limit >> 20}")


# threads that wait at once, and by how much more user time may be taken for the
# second number of them than for the first
AT_ONCE = 8, 10000
MORE_TIME = 2
# seconds after which it is no longer waited for
MOST_TIME = 30


def user_time(perf, words, path):
    """Seconds of CPU time in user mode, without disturbances."""
    times = []
    for _ in range(3):
        with open(f"{path}.err", "wb") as errors:
            child = subprocess.Popen([perf, *words, "-i", path],
                                     stdin=subprocess.DEVNULL,
                                     stdout=subprocess.DEVNULL, stderr=errors,
                                     env=dict(os.environ, **ENVIRONMENT),
                                     preexec_fn=lambda: resource.setrlimit(
                                         resource.RLIMIT_CPU,
                                         (MOST_TIME, MOST_TIME + 5)))
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode == -signal.SIGXCPU:
            raise Failure(f"{path}: not done in {MOST_TIME} s")
        if child.returncode:
            with open(f"{path}.err", errors="replace") as errors:
                raise Failure(f"status {child.returncode}\n"
                              f"{errors.read()[-1500:]}")
        times.append(usage.ru_utime)
    return min(times)


def read_many(perf, form, words, directory):
    """The time for a callchain does not grow with the number of waiting ones."""
    times = []
    for threads in AT_ONCE:
        path = os.path.join(directory, f"at-once-{form}-{threads}")
        # one call of each of the many threads
        call([os.path.join(TOP, "tests", "data", "mkperfdata"), "--samples", "40000",
              "--per-cookie", "4", "--threads", str(threads), "--form", form,
              "-o", path])
        try:
            times.append(user_time(perf, words, path))
        finally:
            os.unlink(path)
    few, many = times
    if many > MORE_TIME * few:
        raise Failure(f"{many:.2f} s with {AT_ONCE[1]} threads that wait, "
                      f"{few:.2f} s with {AT_ONCE[0]}")


def inject_guest(perf, directory):
    """perf inject reads samples also if it wants only other events."""
    host, guest = (os.path.join(directory, name) for name in ("host", "guest"))
    for path in host, guest:
        call([os.path.join(TOP, "tests", "data", "mkperfdata"), "--samples", "40",
              "-o", path])
    for words in ([f"--guest-data={guest},5000", "-o", f"{host}.out"],
                  ["--vm-time-correlation", "-f"]):
        result = subprocess.run(
            [perf, "inject", "-i", host, *words], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            errors="replace", env=dict(os.environ, **ENVIRONMENT))
        if result.returncode:
            raise Failure(f"perf inject {' '.join(words)}: status "
                          f"{result.returncode}\n{result.stderr[-1500:]}")
    result = subprocess.run(
        [perf, "inject", "--merge-callchains", "--vm-time-correlation", "-f",
         "-i", host], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True)
    if not result.returncode or "in place" not in result.stderr:
        raise Failure(f"--merge-callchains in place: {result.stderr[-500:]}")


def start_bad_input(layer):
    """Every file of the corpus, through the readers of a perf with sanitizers; as many
    files at a time as there are lanes."""
    check = layer.check
    perf = os.path.join(check.build, "perf-fuzz", "perf") if FIXED else check.perf
    if not os.access(perf, os.X_OK):
        raise Failure(f"no {perf}; scripts/build perf-fuzz makes it")
    names = sorted(os.listdir(CORPUS))
    missing = sorted({*EXPECTED, *OTHERS} - set(names))
    if missing:
        raise Failure("the corpus has no " + ", ".join(missing))
    if not FIXED:
        names = sorted({*EXPECTED} - FILES_OF_FIXES)
    layer.tests = [(name, layer.in_lane(read_all, perf, name, layer.dir))
                   for name in names]

    def add(name, function, *args):
        layer.tests.append((name, layer.in_lane(function, check.perf, *args)))

    if FIXED:
        add("perf inject of guests and with time correlation", inject_guest, layer.dir)
    # sanitizers take more memory than what they look at
    for form in ("file", "pipe"):
        add(f"{WAITING} samples wait for nothing, {form}", read_waiting, form,
            ["script", "-F", "tid,time,ip,sym"], layer.dir)
        add(f"{AT_ONCE[1]} threads wait at once, {form}", read_many, form,
            ["script", "-F", "tid,time,ip"], layer.dir)


def run_bad_input(layer):
    for name, future in layer.tests:
        layer.test(name, future.result)


LAYER = Layer(__name__, "perf with sanitizers reads the corpus of the fuzzer",
              run_bad_input, start_bad_input, needs=NEEDS if FIXED else NEEDS[:1])

# SPDX-License-Identifier: GPL-2.0
"""Compares merged deferred callchains with immediate ones of the same run.

Two events sit on one place: one of them defers its user callchains, the other
does not. Each hit gives a sample of each event, in the same kernel entry. A number
tells the hit from all others: an argument of the system call, or the address of a
page fault. The two samples must be equal except for the event's name and the time,
which differs by the moment between the two.

The text is the output of
  perf script --ns -F comm,pid,tid,cpu,time,event,trace,ip,sym,symoff
(addr in place of trace for page faults).
"""

import collections
import re

FIELDS = "comm,pid,tid,cpu,time,event,trace,ip,sym,symoff"
DEFERRED = "deferred"
IMMEDIATE = "immediate"
MISSING = "user callchain not available"

HEADER = re.compile(
    r"^\s*(?P<comm>\S.*?)\s+(?P<pid>-?\d+)/(?P<tid>-?\d+)\s+"
    r"\[(?P<cpu>\d+)\]\s+(?P<sec>\d+)\.(?P<ns>\d{9}):\s+"
    r"(?:\w+:)?(?P<event>deferred|immediate):\s+(?P<rest>.*)$")
FRAME = re.compile(r"^\s+(?P<ip>[0-9a-f]+) (?P<symbol>\S.*)$")

# where the user's half of the address space ends
KERNEL = 1 << 63


class Sample:
    """One sample: key tells the hit, frames are (address, symbol+offset)."""

    def __init__(self, comm, pid, tid, cpu, time, event, number, frames):
        self.comm = comm
        self.pid = pid
        self.tid = tid
        self.cpu = cpu
        self.time = time
        self.event = event
        self.number = number
        self.frames = frames

    @property
    def key(self):
        return (self.tid, self.number)

    @property
    def user(self):
        return [f for f in self.frames if f[0] < KERNEL]

    def __str__(self):
        return (f"{self.event} {self.comm} {self.pid}/{self.tid} "
                f"number {self.number} at {self.time}")

    def copy(self):
        return Sample(self.comm, self.pid, self.tid, self.cpu, self.time,
                      self.event, self.number, list(self.frames))


def parse(text):
    """The samples of perf script's output, in its order; raises ValueError
    on a line that is neither a sample's first line nor a frame of one."""
    samples = []
    inside = False
    for line in text.split("\n"):
        if not line.strip():
            inside = False
            continue
        frame = FRAME.match(line) if inside else None
        if frame:
            samples[-1].frames.append((int(frame["ip"], 16), frame["symbol"]))
            continue
        head = HEADER.match(line)
        if not head and inside and MISSING in line:
            samples[-1].frames.append((0, line.strip()))
            continue
        if not head:
            raise ValueError(f"not understood: {line!r}")
        number = re.search(r"\bseq=(\d+)", head["rest"])
        if number:
            number = int(number[1])
        else:
            number = re.match(r"\s*([0-9a-f]+)\b", head["rest"])
            if not number:
                raise ValueError(f"a sample without a number: {line!r}")
            number = int(number[1], 16)
        samples.append(Sample(
            head["comm"], int(head["pid"]), int(head["tid"]),
            int(head["cpu"]), int(head["sec"]) * 10**9 + int(head["ns"]),
            head["event"], number, []))
        inside = True
    return samples


def first_difference(ours, theirs):
    """Where two chains part, in words."""
    for at in range(max(len(ours), len(theirs))):
        a = ours[at] if at < len(ours) else None
        b = theirs[at] if at < len(theirs) else None
        if a != b:
            def show(frame):
                return f"{frame[0]:x} {frame[1]}" if frame else "nothing"
            return (f"frame {at} of {len(ours)}/{len(theirs)}: deferred "
                    f"{show(a)}, immediate {show(b)}")
    return None


def compare(samples, expected=None, end=None, limit=None):
    """What is wrong with @samples, as a list of lines; empty if nothing is.

    @expected: the number of hits that the workload made, None if that is not
    known. @end: the name of the function that is the outermost frame of every
    chain, None if chains are cut short. @limit: the most frames of a chain. Kernel
    and user frames share it in an immediate sample, and each part has it for itself
    in a deferred one, which may go on where the immediate one was cut.
    """
    wrong = []
    streams = {DEFERRED: [], IMMEDIATE: []}
    for before, sample in zip([None] + samples, samples):
        streams[sample.event].append(sample)
        if before and sample.time < before.time:
            wrong.append(f"order: {sample} is after {before}")
    found = {}
    for event, stream in streams.items():
        if expected is not None and len(stream) != expected:
            wrong.append(f"count: {len(stream)} samples of {event}, the "
                         f"workload made {expected} calls")
        if not stream:
            wrong.append(f"count: no sample of {event}")
        keys = collections.Counter(sample.key for sample in stream)
        for key, times in keys.items():
            if times > 1:
                wrong.append(f"twice: {event} tid {key[0]} number {key[1]}")
        found[event] = {sample.key: sample for sample in stream}
    for one, other in ((DEFERRED, IMMEDIATE), (IMMEDIATE, DEFERRED)):
        for key, sample in found[one].items():
            if key not in found[other]:
                wrong.append(f"missing: {sample} has no {other} sample")

    # a thread's hits come in the same order in both
    def by_thread(event):
        threads = collections.defaultdict(list)
        for sample in streams[event]:
            threads[sample.tid].append(sample.number)
        return threads

    order = by_thread(IMMEDIATE)
    for tid, numbers in by_thread(DEFERRED).items():
        if sorted(numbers) == sorted(order[tid]) and numbers != order[tid]:
            wrong.append(f"order: the samples of tid {tid}")

    for key, ours in found[DEFERRED].items():
        theirs = found[IMMEDIATE].get(key)
        if not theirs:
            continue
        for what in ("comm", "pid", "cpu"):
            if getattr(ours, what) != getattr(theirs, what):
                wrong.append(f"{what}: {ours}: {getattr(ours, what)}, "
                             f"immediate {getattr(theirs, what)}")
        frames = ours.frames
        if limit and len(theirs.frames) == limit:
            frames = frames[:limit]
            if len(ours.user) != limit:
                wrong.append(f"frames: {ours}: {len(ours.user)} user frames, "
                             f"the limit is {limit}")
        difference = first_difference(frames, theirs.frames)
        if difference:
            wrong.append(f"frames: {ours}: {difference}")
        for sample in (ours, theirs):
            if not sample.user:
                wrong.append(f"frames: {sample}: no user frame")
            elif any(MISSING in f[1] for f in sample.frames):
                wrong.append(f"frames: {sample}: user frames missing")
            elif end and re.sub(r"\+0x.*", "", sample.user[-1][1]) != end:
                wrong.append(f"frames: {sample}: ends in "
                             f"{sample.user[-1][1]}, not in {end}")
    return wrong


def mutations(samples):
    """(what was done, samples) of faults that compare() has to find.

    Of a good run with at least two hits in one thread.
    """
    of_thread = collections.defaultdict(list)
    for at, sample in enumerate(samples):
        if sample.event == DEFERRED:
            of_thread[sample.tid].append(at)
    first, second = next(v for v in of_thread.values() if len(v) > 1)[-2:]

    def changed(function):
        copy = [sample.copy() for sample in samples]
        function(copy)
        return copy

    def swap(copy):
        copy[first], copy[second] = copy[second], copy[first]

    def swap_with_times(copy):
        swap(copy)
        copy[first].time, copy[second].time = \
            copy[second].time, copy[first].time

    def swap_chains(copy):
        a, b = copy[first], copy[second]
        a.frames, b.frames = b.frames + b.frames[-1:], a.frames

    def all_of(event, function):
        def every(copy):
            for sample in copy:
                if sample.event == event:
                    function(sample)
        return every

    def swap_frames(copy):
        frames = copy[second].frames
        at = next(i for i in range(len(frames) - 1)
                  if frames[i] != frames[i + 1])
        frames[at], frames[at + 1] = frames[at + 1], frames[at]

    def missing(copy):
        copy[second].frames = [f for f in copy[second].frames
                               if f[0] >= KERNEL] + [(0, f"[{MISSING}]")]

    def no_user(sample):
        sample.frames = [f for f in sample.frames if f[0] >= KERNEL]

    def set_comm(copy):
        copy[second].comm += "x"

    def set_cpu(copy):
        copy[second].cpu += 1

    def set_address(copy):
        ip, symbol = copy[second].frames[-2]
        copy[second].frames[-2] = (ip + 1, symbol)

    yield "a deferred sample is missing", changed(lambda c: c.pop(second))
    yield "an immediate sample is missing", changed(
        lambda c: c.pop(next(i for i, s in enumerate(c)
                             if s.event == IMMEDIATE)))
    yield "both samples of a hit are missing", changed(
        lambda c: c.__setitem__(slice(None), [
            s for s in c if s.key != samples[second].key]))
    yield "a sample is there twice", changed(
        lambda c: c.insert(second, c[second].copy()))
    yield "two samples are swapped", changed(swap)
    yield "two samples are swapped, with their times", changed(swap_with_times)
    yield "two samples have each other's chains", changed(swap_chains)
    yield "a frame too many, outermost", changed(
        lambda c: c[second].frames.append(c[second].frames[-1]))
    yield "a frame too few, outermost", changed(
        lambda c: c[second].frames.pop())
    yield "a frame too many, innermost", changed(
        lambda c: c[second].frames.insert(0, c[second].frames[0]))
    yield "a frame too few, innermost", changed(
        lambda c: c[second].frames.pop(0))
    yield "a frame too few, in the middle", changed(
        lambda c: c[second].frames.pop(len(c[second].frames) // 2))
    yield "two frames are swapped", changed(swap_frames)
    yield "another address", changed(set_address)
    yield "another comm", changed(set_comm)
    yield "another CPU", changed(set_cpu)
    yield "the user frames are shown as missing", changed(missing)
    yield "no user frame in any deferred sample", changed(
        all_of(DEFERRED, no_user))
    yield "no user frame in any sample", changed(
        lambda c: [no_user(sample) for sample in c])
    yield "no outermost frame in any sample", changed(
        lambda c: [sample.frames.pop() for sample in c])
    yield "no deferred sample", changed(
        lambda c: c.__setitem__(slice(None), [
            s for s in c if s.event == IMMEDIATE]))
    yield "no sample", []

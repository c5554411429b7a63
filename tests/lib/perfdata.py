# SPDX-License-Identifier: GPL-2.0
"""Reads perf.data without perf, as far as callchains are concerned.

The tests use this, and not the perf that they test, to know which samples wait for a
callchain, which callchains are there, and what the data would be if nothing had been
deferred.
"""

import glob
import os
import struct

COMM, SAMPLE, LOST_SAMPLES, CALLCHAIN_DEFERRED = 3, 9, 13, 22
HEADER_ATTR, HEADER_TRACING_DATA, AUXTRACE, COMPRESSED = 64, 66, 71, 81
CONTEXT_USER = 2**64 - 512
CONTEXT_USER_DEFERRED = 2**64 - 640
CONTEXT_MAX = 2**64 - 4095
DEFER_CALLCHAIN, DEFER_OUTPUT = 38, 39	# bits of the attribute's flags
SAMPLE_ID_ALL = 18

# sample_type: the fields before the callchain, then those of a sample_id
IDENTIFIER, IP, TID, TIME, ADDR = 1 << 16, 1 << 0, 1 << 1, 1 << 2, 1 << 3
ID, STREAM_ID, CPU, PERIOD, READ = 1 << 6, 1 << 9, 1 << 7, 1 << 8, 1 << 4
CALLCHAIN, BRANCH_STACK, DATA_SRC = 1 << 5, 1 << 11, 1 << 15
AFTER_DATA_SRC = 0xfe0000
AFTER_BRANCH_STACK = AFTER_DATA_SRC | 1 << 24 | DATA_SRC | 0x7000
BEFORE = (IDENTIFIER, IP, TID, TIME, ADDR, ID, STREAM_ID, CPU, PERIOD)
SAMPLE_IDS = (TID, TIME, ID, STREAM_ID, CPU, IDENTIFIER)


class Bad(Exception):
    """The data is not what it should be."""


class Attr:
    """An event: its attribute (the flags' place is at 40) and its ids."""

    def __init__(self, raw, ids=()):
        self.raw = raw
        self.ids = ids
        self.sample_type, self.read_format, self.flags = \
            struct.unpack_from("<QQQ", raw, 24)

    def bit(self, number):
        return bool(self.flags >> number & 1)

    def callchain_at(self, raw):
        """Where in a sample the number of its frames is; None without."""
        if not self.sample_type & CALLCHAIN:
            return None
        at = 8 + 8 * sum(bool(self.sample_type & field) for field in BEFORE)
        if self.sample_type & READ:
            form = self.read_format
            times = 8 * ((form & 1) + (form >> 1 & 1))
            value = 8 * (1 + (form >> 2 & 1) + (form >> 4 & 1))
            if form & 8:
                at += 8 + times + \
                    value * struct.unpack_from("<Q", raw, at)[0]
            else:
                at += value + times
        return at


class PerfData:
    """A perf.data file or a directory of them: the events and the records."""

    def __init__(self, path):
        self.path = path
        self.parts = [path]
        if os.path.isdir(path):
            self.parts = [f"{path}/data"] + sorted(
                glob.glob(f"{path}/data.[0-9]*"))
        with open(self.parts[0], "rb") as f:
            self.raw = f.read()
        if self.raw[:8] != b"PERFILE2":
            raise Bad(f"{path} is no perf.data")
        (self.header_size, attr_size, attrs, attrs_size, self.data,
         self.data_size) = struct.unpack_from("<6Q", self.raw, 8)
        if self.header_size != 104:
            raise Bad(f"{path}: a pipe's data, not a file's")
        self.attrs_at = [attrs + i for i in range(0, attrs_size, attr_size)]
        self.attrs = []
        for at in self.attrs_at:
            ids, size = struct.unpack_from("<QQ", self.raw, at + attr_size - 16)
            self.attrs.append(Attr(
                self.raw[at:at + attr_size - 16],
                struct.unpack_from(f"<{size // 8}Q", self.raw, ids)))
        self.by_id = {i: attr for attr in self.attrs for i in attr.ids}

    def records(self):
        """(type, the record's bytes and what belongs to it)."""
        for part in self.parts:
            raw, at, end = self.raw, self.data, self.data + self.data_size
            if part != self.parts[0]:
                with open(part, "rb") as f:
                    raw = f.read()
                at, end = 0, len(raw)
            while at < end:
                kind, _, size = struct.unpack_from("<IHH", raw, at)
                if size < 8 or at + size > end:
                    raise Bad(f"{part}: a record of {size} bytes at {at}")
                if kind == COMPRESSED:
                    raise Bad(f"{part} is compressed")
                if kind == AUXTRACE:
                    size += struct.unpack_from("<Q", raw, at + 8)[0]
                elif kind == HEADER_TRACING_DATA:
                    size += -(-struct.unpack_from("<I", raw, at + 8)[0] // 8) * 8
                yield kind, raw[at:at + size]
                at += size

    def attr_of(self, kind, raw):
        first = self.attrs[0]
        if len(self.attrs) == 1:
            return first
        if first.sample_type & IDENTIFIER:
            at = 8 if kind == SAMPLE else len(raw) - 8
            return self.by_id[struct.unpack_from("<Q", raw, at)[0]]
        # without it all events have the same fields; of records any will do
        if kind == SAMPLE and first.sample_type & ID:
            before = (IP, TID, TIME, ADDR)
            at = 8 + 8 * sum(bool(first.sample_type & f) for f in before)
            return self.by_id[struct.unpack_from("<Q", raw, at)[0]]
        return first

    def ids_of(self, kind, raw):
        """(pid, tid) of a sample or of another record."""
        attr = self.attr_of(kind, raw)
        if kind == SAMPLE:
            at = 8 + 8 * sum(bool(attr.sample_type & f)
                             for f in (IDENTIFIER, IP))
        else:
            at = len(raw) - 8 * sum(bool(attr.sample_type & f)
                                    for f in SAMPLE_IDS)
        return struct.unpack_from("<II", raw, at)

    def lost(self):
        """Records that found no room, of all events, as counted at the end."""
        return sum(struct.unpack_from("<Q", raw, 8)[0]
                   for kind, raw in self.records() if kind == LOST_SAMPLES)

    def waiting(self, raw):
        """(tid, cookie, the callchain's place) of a sample; None if it does
        not wait for its user callchain."""
        attr = self.attr_of(SAMPLE, raw)
        at = attr.callchain_at(raw)
        if at is None:
            return None
        nr = struct.unpack_from("<Q", raw, at)[0]
        if nr < 2:
            return None
        marker, cookie = struct.unpack_from("<QQ", raw, at + 8 * (nr - 1))
        if marker != CONTEXT_USER_DEFERRED:
            return None
        return self.ids_of(SAMPLE, raw)[1], cookie, at

    def callchain(self, raw):
        """((tid, cookie), addresses) of a deferred callchain."""
        attr = self.attr_of(CALLCHAIN_DEFERRED, raw)
        cookie, nr = struct.unpack_from("<QQ", raw, 8)
        ids = 8 * sum(bool(attr.sample_type & f) for f in SAMPLE_IDS)
        if not attr.bit(SAMPLE_ID_ALL) or 24 + 8 * nr + ids != len(raw):
            raise Bad(f"{self.path}: a deferred callchain of {len(raw)} bytes "
                      f"with {nr} frames")
        _, tid = self.ids_of(CALLCHAIN_DEFERRED, raw)
        return (tid, cookie), struct.unpack_from(f"<{nr}Q", raw, 24)


class Cookies:
    """The samples that wait and the callchains that are there, of files that
    belong together."""

    def __init__(self, *paths):
        self.waiting = []
        self.there = {}
        self.samples = 0
        for path in paths:
            data = PerfData(path)
            for kind, raw in data.records():
                if kind == SAMPLE:
                    self.samples += 1
                    found = data.waiting(raw)
                    if found:
                        self.waiting.append(found[:2])
                elif kind == CALLCHAIN_DEFERRED:
                    key, ips = data.callchain(raw)
                    self.there[key] = ips

    @property
    def missing(self):
        return [key for key in self.waiting if not self.there.get(key)]


def put_back(raw, chains, at, max_stack):
    """A sample with its user callchain in it, cut where the kernel would have
    cut it."""
    nr = struct.unpack_from("<Q", raw, at)[0]
    ips = list(struct.unpack_from(f"<{nr - 2}Q", raw, at + 8))
    frames = sum(ip < CONTEXT_MAX for ip in ips)
    ips += [CONTEXT_USER, *chains[:max_stack - frames]]
    return resized(raw[:at] + struct.pack(f"<{len(ips) + 1}Q", len(ips), *ips)
                   + raw[at + 8 + 8 * nr:])


def resized(raw):
    out = bytearray(raw)
    struct.pack_into("<H", out, 6, len(out))
    return out


class Hardware:
    """What a machine with other hardware had put into the same samples."""

    def __init__(self, branches=(), data_src=None, addr=None):
        self.branches = branches
        self.data_src = data_src
        self.addr = addr

    def attr(self, raw):
        """Where the attribute differs: (offset, value)."""
        sample_type, = struct.unpack_from("<Q", raw, 24)
        if self.branches:
            # any branch, of user space
            return (24, sample_type | BRANCH_STACK), (72, 1 << 3 | 1)
        return ()

    def sample(self, attr, raw):
        if self.branches:
            if attr.sample_type & AFTER_BRANCH_STACK:
                raise Bad("the branches are not the last field")
            raw = resized(bytes(raw) + struct.pack("<Q", len(self.branches))
                          + b"".join(struct.pack("<3Q", *pair, 0)
                                     for pair in self.branches))
        if self.data_src is not None:
            if not attr.sample_type & DATA_SRC or \
                    attr.sample_type & AFTER_DATA_SRC:
                raise Bad("the data source is not the last field")
            raw = raw[:-8] + struct.pack("<Q", self.data_src)
        if self.addr is not None:
            if not attr.sample_type & ADDR:
                raise Bad("there is no address")
            at = 8 + 8 * sum(bool(attr.sample_type & field)
                             for field in (IDENTIFIER, IP, TID, TIME))
            raw = raw[:at] + struct.pack("<Q", self.addr) + raw[at + 8:]
        return raw


def with_numa(features, number, bits, at):
    """The sections of the features, which are to be written at @at, with
    NUMA_TOPOLOGY: one node, which has the last CPU. The others are of none, as of
    memory that is not there: perf c2c has nowhere to count their samples."""
    nrcpus, topology = 7, 14
    if bits[topology // 8] >> topology % 8 & 1:
        return features

    def place(feature):
        return sum((bits[n // 8] >> n % 8) & 1 for n in range(feature))

    offset, = struct.unpack_from("<Q", features, 16 * place(nrcpus))
    cpus = max(struct.unpack_from("<II", features, offset - at))
    before = place(topology)
    table = bytearray(features[:16 * number])
    for entry in range(0, 16 * number, 16):
        offset, = struct.unpack_from("<Q", table, entry)
        struct.pack_into("<Q", table, entry, offset + 16)
    name = f"{cpus - 1}".encode().ljust(64, b"\0")
    section = struct.pack("<IIQQI", 1, 0, 1 << 20, 1 << 19, len(name)) + name
    table[16 * before:16 * before] = struct.pack(
        "<QQ", at + len(features) + 16, len(section))
    bits[topology // 8] |= 1 << topology % 8
    return table + features[16 * number:] + section


def twins(source, deferred, immediate, max_stack=127, hardware=Hardware()):
    """Writes two files of the same samples: as they were recorded, and as
    perf record had written them, had nothing been deferred.

    Samples whose callchain is not there (a new image that did not run yet) are
    in neither. Returns the number of samples in which the files differ.
    """
    data = PerfData(source)
    if len(data.parts) > 1:
        raise Bad("a directory")
    chains = {}
    for kind, raw in data.records():
        if kind == CALLCHAIN_DEFERRED:
            key, ips = data.callchain(raw)
            chains[key] = ips
    outs = {path: bytearray(data.raw[:data.data])
            for path in (deferred, immediate)}
    for at, attr in zip(data.attrs_at, data.attrs):
        flags = attr.flags & ~(1 << DEFER_CALLCHAIN | 1 << DEFER_OUTPUT)
        struct.pack_into("<Q", outs[immediate], at + 40, flags)
        for place, value in hardware.attr(attr.raw):
            for out in outs.values():
                struct.pack_into("<Q", out, at + place, value)
    merged = 0
    for kind, raw in data.records():
        waits = data.waiting(raw) if kind == SAMPLE else None
        if waits and not chains.get(waits[:2]):
            continue
        if kind == SAMPLE:
            attr = data.attr_of(kind, raw)
            outs[deferred] += hardware.sample(attr, raw)
            if waits:
                raw = put_back(raw, chains[waits[:2]], waits[2], max_stack)
                merged += 1
            outs[immediate] += hardware.sample(attr, raw)
            continue
        outs[deferred] += raw
        if kind != CALLCHAIN_DEFERRED:
            outs[immediate] += raw
    # the sections of the features are behind the data, their table first
    number = sum(byte.bit_count() for byte in data.raw[72:104])
    for path, out in outs.items():
        moved = len(out) - data.data - data.data_size
        struct.pack_into("<Q", out, 48, len(out) - data.data)
        features = bytearray(data.raw[data.data + data.data_size:])
        # the description of the events has their attributes once more
        for attr, place in zip(data.attrs, data.attrs_at):
            features = features.replace(
                attr.raw, bytes(out[place:place + len(attr.raw)]))
        for at in range(0, 16 * number, 16):
            offset = struct.unpack_from("<Q", features, at)[0]
            struct.pack_into("<Q", features, at, offset + moved)
        bits = bytearray(out[72:104])
        features = with_numa(features, number, bits, len(out))
        out[72:104] = bits
        with open(path, "wb") as f:
            f.write(out + features)
    return merged

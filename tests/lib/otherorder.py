# SPDX-License-Identifier: GPL-2.0
"""Writes a perf.data as a machine of the other byte order would have written it.

It takes a file or a stored pipe of a little-endian 64-bit machine, and writes that of
a big-endian one. Everything keeps its place and its size: bytes change places within
their fields. perf must print the same for both. This code follows the description of
the format and the code that writes it, and not perf's code that reads the other order.

Unknown data raises Bad. Strings, dumps of stacks, AUX data, build ids, raw data
without a format, and structures in other raw data are copied.
"""

import functools
import os
import re
import struct
import sys

from perfdata import (ADDR, AUXTRACE, BRANCH_STACK, CALLCHAIN, CALLCHAIN_DEFERRED,
                      COMM, CPU, DATA_SRC, HEADER_ATTR, HEADER_TRACING_DATA, ID,
                      IDENTIFIER, IP, PERIOD, READ, SAMPLE, SAMPLE_ID_ALL,
                      STREAM_ID, TID, TIME, Attr, Bad)

# Bit-fields begin at the least significant bit on the one machine and at the most
# significant one on the other; a field of several bits is a number on both.
BIT_FIELDS = {
    # of an attribute: one bit each, but for precise_ip and what is reserved
    "A": 15 * (1,) + (2,) + 23 * (1,) + (24,),
    # of a branch: mispred, predicted, in_tx, abort, cycles, type, spec, new_type,
    # priv, reserved
    "R": (1, 1, 1, 1, 16, 4, 2, 4, 3, 31),
}
NUMBERS = {"H": 2, "I": 4, "Q": 8}
COUNTS = {"(": 4, "[": 8}

# A form has a letter for each field, those above and
#	b	a byte
#	s	a string with its zero, filled up to a multiple of 8
#	S	a string behind its size, which is of 4 bytes
#	W	words of 8 bytes behind their number, which is one, too
#	B	a bitmap behind its size in bits, which is of 8 bytes
#	(form)	as often as the number of 4 bytes before it says
#	[form]	as often as the number of 8 bytes before it says
#	{form}	as often as there is room
ATTR = "IIQQQQAIIQQQQIIQIHHIIQQ"
ATTR_MAX = 136


@functools.lru_cache
def parsed(form):
    """[(letter, what is in its brackets)]"""
    def level(codes):
        out = []
        for code in codes:
            if code in ")]}":
                break
            out.append((code, level(codes) if code in "([{" else None))
        return out
    return level(iter(form))


class Cursor:
    """A place in the bytes. What it goes over is in the other order then, and
    returned as it was."""

    def __init__(self, raw, at, end):
        if not 0 <= at <= end <= len(raw):
            raise Bad(f"bytes {at} to {end} of {len(raw)}")
        self.raw, self.at, self.end = raw, at, end

    @property
    def left(self):
        return self.end - self.at

    def peek(self, form, offset=0):
        return struct.unpack_from("<" + form, self.raw, self.at + offset)

    def skip(self, size):
        """Bytes that stay as they are."""
        part = self.part(size)
        return bytes(self.raw[part.at:part.end])

    def part(self, size):
        """One for the next bytes, which this one skips."""
        if size > self.left:
            raise Bad(f"{size} bytes at {self.at}, which end at {self.end}")
        part = Cursor(self.raw, self.at, self.at + size)
        self.at = part.end
        return part

    def done(self):
        if self.left:
            raise Bad(f"{self.left} bytes at {self.at} are not known")

    def padding(self):
        if any(self.skip(self.left)):
            raise Bad(f"no zeroes up to {self.at}")

    def number(self, size):
        at, value = self.at, self.skip(size)
        self.raw[at:self.at] = value[::-1]
        return int.from_bytes(value, "little")

    u16 = functools.partialmethod(number, 2)
    u32 = functools.partialmethod(number, 4)
    u64 = functools.partialmethod(number, 8)

    def words(self, number):
        at = self.at
        values = struct.unpack(f"<{number}Q", self.skip(8 * number))
        struct.pack_into(f">{number}Q", self.raw, at, *values)
        return values

    def bit_fields(self, widths):
        at, value = self.at, int.from_bytes(self.skip(8), "little")
        other = low = 0
        for width in widths:
            other |= (value >> low & (1 << width) - 1) << 64 - low - width
            low += width
        self.raw[at:self.at] = other.to_bytes(8, "big")

    def string(self):
        end = self.raw.find(0, self.at, self.end)
        if end < 0:
            raise Bad(f"the string at {self.at} has no end")
        return self.skip(end + 1 - self.at)[:-1]

    def filled(self, size):
        """Behind so many bytes, what makes them a multiple of 8."""
        self.skip(-size % 8)

    def form(self, form):
        self.fields(parsed(form))

    def fields(self, fields):
        for code, inner in fields:
            if code in NUMBERS:
                self.number(NUMBERS[code])
            elif code in BIT_FIELDS:
                self.bit_fields(BIT_FIELDS[code])
            elif code == "b":
                self.skip(1)
            elif code == "s":
                self.filled(len(self.string()) + 1)
            elif code == "S":
                self.skip(self.u32())
            elif code == "W":
                self.words(self.u64())
            elif code == "B":
                self.words(-(-self.u64() // 64))
            elif code in COUNTS:
                for _ in range(self.number(COUNTS[code])):
                    self.fields(inner)
            else:
                while self.left:
                    self.fields(inner)

    def attr(self, size):
        """An attribute, also of a perf whose attributes were shorter."""
        place = self.part(size)
        event = Event(bytes(place.raw[place.at:place.end]))
        for code in ATTR:
            if place.left:
                place.form(code)
        place.done()
        return event


# Samples and the events that they are of

SAMPLE_IDS = ((TID, "II"), (TIME, "Q"), (ID, "Q"), (STREAM_ID, "Q"), (CPU, "II"),
              (IDENTIFIER, "Q"))
BRANCH_HW_INDEX, BRANCH_COUNTERS = 1 << 17, 1 << 19
FORMAT_TIMES, FORMAT_GROUP, FORMAT_MORE = 3, 8, 4 | 16
TYPE_TRACEPOINT = 2


def size_of(form):
    return sum(NUMBERS[code] for code in form)


class Event(Attr):
    def __init__(self, raw):
        super().__init__(raw.ljust(ATTR_MAX, b"\0"))
        self.type, size, self.config = struct.unpack_from("<IIQ", self.raw)
        self.branches, self.regs_user, _, self.regs_intr = \
            struct.unpack_from("<4Q", self.raw, 72)
        if self.sample_type >> 25 or self.read_format >> 5 or self.flags >> 40 \
                or self.branches >> 20 or size > len(raw):
            raise Bad("an attribute with more than is known")
        # what is at the end of the records that are no samples
        self.sample_id = "".join(form for bit, form in SAMPLE_IDS
                                 if self.sample_type & bit
                                 and self.bit(SAMPLE_ID_ALL))

    def id_at(self, kind, record):
        """Where the record has the id of its event; None without one."""
        if self.sample_type & IDENTIFIER:
            before, behind = (), (IDENTIFIER,)
        elif self.sample_type & ID:
            before, behind = (IP, TID, TIME, ADDR), (ID, STREAM_ID, CPU)
        else:
            return None
        if kind == SAMPLE:
            return record.at + 8 * sum(bool(self.sample_type & bit)
                                       for bit in before)
        return record.end - 8 * sum(bool(self.sample_type & bit)
                                    for bit in behind) if self.sample_id else None


def read_values(_, record, event):
    times = (event.read_format & FORMAT_TIMES).bit_count()
    value = 1 + (event.read_format & FORMAT_MORE).bit_count()
    if event.read_format & FORMAT_GROUP:
        value *= record.u64()
    record.words(times + value)


def raw_data(data, record, event):
    raw = record.part(record.u32())
    if event.type == TYPE_TRACEPOINT:
        if event.config not in data.formats:
            raise Bad(f"no format of the tracepoint {event.config}")
        for field in data.formats[event.config]:
            field.exchange(raw)


def branch_stack(_, record, event):
    number = record.u64()
    if event.branches & BRANCH_HW_INDEX:
        record.u64()
    for _ in range(number):
        record.form("QQR")
    if event.branches & BRANCH_COUNTERS:
        record.words(number)


def regs(record, mask):
    if record.u64():
        record.words(mask.bit_count())


def stack_user(_, record, __):
    size = record.u64()
    record.skip(size)
    if size:
        record.u64()


# in the order in which the kernel writes them
SAMPLE_FIELDS = (
    (IDENTIFIER, "Q"), (IP, "Q"), (TID, "II"), (TIME, "Q"), (ADDR, "Q"), (ID, "Q"),
    (STREAM_ID, "Q"), (CPU, "II"), (PERIOD, "Q"), (READ, read_values),
    (CALLCHAIN, "W"),
    (1 << 10, raw_data),
    (BRANCH_STACK, branch_stack),
    (1 << 12, lambda _, record, event: regs(record, event.regs_user)),
    (1 << 13, stack_user),
    (1 << 14 | 1 << 24, "Q"),		# WEIGHT, and as a structure
    (DATA_SRC, "Q"),
    (1 << 17, "Q"),			# TRANSACTION
    (1 << 18, lambda _, record, event: regs(record, event.regs_intr)),
    (1 << 19, "Q"),			# PHYS_ADDR
    (1 << 21, "Q"),			# CGROUP
    (1 << 22, "Q"), (1 << 23, "Q"),	# DATA_PAGE_SIZE, CODE_PAGE_SIZE
    (1 << 20, lambda _, record, __: record.skip(record.u64())),	# AUX
)


# Tracing data, and the raw data of tracepoints

# the sizes of what is in the arrays that are anywhere in the raw data
ELEMENTS = {
    1: "((un)?signed )?char|bool|(__)?[us]8|u?int8_t",
    2: "(unsigned )?short|(__)?[us]16|u?int16_t",
    4: "unsigned|(unsigned )?int|(__)?[us]32|u?int32_t|pid_t|gfp_t",
    8: r"(unsigned )?long( long)?|(__)?[us]64|u?int64_t|size_t|cpumask_t|.*\*",
}
FIELD = re.compile(r"field:((?:__data_loc |__rel_loc )?)([^;]+?) *\b\w+"
                   r"(?:\[(\d+)\])?;\s*offset:(\d+);\s*size:(\d+);")


class Field:
    """A field of a tracepoint, from its line in the format."""

    def __init__(self, line):
        match = FIELD.match(line)
        if not match:
            raise Bad(f"what is {line!r}?")
        self.where, kind, number, offset, size = match.groups()
        self.offset, self.size = int(offset), int(size)
        self.element = self.size // int(number or 1)
        if self.where:
            sizes = [size for size, kinds in ELEMENTS.items()
                     if re.fullmatch(kinds, kind.removesuffix("[]").strip())]
            if not sizes or self.size != 4:
                raise Bad(f"what is in {line!r}?")
            self.element = sizes[0]
        elif re.match("(const )?(struct|union) [^*]*$", kind) or \
                self.element not in NUMBERS.values():
            self.element = 1

    def exchange(self, raw):
        start = raw.at + self.offset
        place = Cursor(raw.raw, start, start + self.size)
        if self.where:
            where = place.u32()
            start = (place.end if self.where == "__rel_loc " else raw.at) + \
                (where & 0xffff)
            place = Cursor(raw.raw, start, start + (where >> 16))
        if place.end > raw.end:
            raise Bad(f"a field up to {place.end} of raw data up to {raw.end}")
        while place.left and self.element > 1:
            place.number(self.element)


def tracing_data(data, at):
    """What perf record took from tracefs. The formats are known then."""
    if at.skip(10) != b"\27\10\104tracing":
        raise Bad("no tracing data")
    version = [int(number) for number in at.string().split(b".")]
    if at.peek("BB") != (0, 8):
        raise Bad("tracing data not of a little-endian 64-bit machine")
    at.raw[at.at] = 1
    at.form("bbI")
    for name in b"header_page", b"header_event":
        if at.string() != name:
            raise Bad(f"no {name} in the tracing data")
        at.skip(at.u64())
    formats = [at.skip(at.u64()) for _ in range(at.u32())]
    for _ in range(at.u32()):
        at.string()
        formats += [at.skip(at.u64()) for _ in range(at.u32())]
    at.form("SS")	# kallsyms, printk_formats
    if version >= [0, 6]:
        at.skip(at.u64())	# saved_cmdlines
    at.padding()
    for text in formats:
        number, = re.findall(r"^ID: (\d+)$", text.decode(), re.M)
        data.formats[int(number)] = [
            Field(line) for line in re.findall(r"field:.*", text.decode())]


# The features of a file, or a pipe

def nrcpus(data, at):
    data.cpus, _ = at.u32(), at.u32()


def cpu_topology(data, at):
    at.form("(S)(S)")
    if at.left and data.cpus is None:
        raise Bad("the number of CPUs is not known")
    for _ in range(data.cpus if at.left else 0):
        at.form("II")	# core, socket
    dies = at.u32() if at.left else 0
    for _ in range(dies):
        at.form("S")
    for _ in range(data.cpus if dies else 0):
        at.form("I")


def event_desc(_, at):
    number, size = at.u32(), at.u32()
    for _ in range(number):
        at.attr(size)
        ids = at.u32()
        at.form("S")
        at.words(ids)


def none_of_bpf(_, at):
    if at.u32():
        raise Bad("there are BPF programs")


def build_ids(_, at):
    while at.left:
        record = at.part(*at.peek("H", 6))
        record.form("IHHI")


FEATURES = {
    1: tracing_data,
    2: build_ids,
    3: "S", 4: "S", 5: "S", 6: "S",	# HOSTNAME, OSRELEASE, VERSION, ARCH
    7: nrcpus,
    8: "S", 9: "S",		# CPUDESC, CPUID
    10: "Q",			# TOTAL_MEM
    11: "(S)",			# CMDLINE
    12: event_desc,
    13: cpu_topology,
    14: "(IQQS)",		# NUMA_TOPOLOGY
    15: "",			# BRANCH_STACK
    16: "(IS)",			# PMU_MAPPINGS
    17: "(SII)",		# GROUP_DESC
    18: "[QQ]",			# AUXTRACE
    19: "",			# STAT
    20: "I(IIIISSS)",		# CACHE, behind its version
    21: "QQ",			# SAMPLE_TIME
    22: "QQ[QQB]",		# MEM_TOPOLOGY
    23: "Q",			# CLOCKID
    24: "Q",			# DIR_FORMAT
    25: none_of_bpf,		# BPF_PROG_INFO
    26: none_of_bpf,		# BPF_BTF
    27: "IIIII",		# COMPRESSED
    28: "(SS)",			# CPU_PMU_CAPS
    29: "IIQQ",			# CLOCK_DATA
    30: "(SS)",			# HYBRID_TOPOLOGY
    31: "((SS)S)",		# PMU_CAPS
    32: "",			# of a pipe: they end
}


# Records

HEADER_BUILD_ID, RECORD_READ, MISC_MMAP_BUILD_ID = 67, 8, 1 << 14
AUXTRACE_INTEL_PT, INTEL_PT_FILTER_STR_LEN = 1, 16


def mmap2(_, record, misc):
    record.form("IIQQQ" + ("b" * 24 if misc & MISC_MMAP_BUILD_ID else "IIQQ") + "IIs")


def text_poke(_, record, __):
    record.u64()
    size = record.u16() + record.u16()
    record.skip(size)
    record.filled(4 + size)


def header_attr(data, record, _):
    event = record.attr(*record.peek("I", 4))
    data.add(event, record.words(record.left // 8))


def header_tracing_data(data, record, _):
    size = record.u32()
    record.form("{I}")
    tracing_data(data, data.records_at.part(size))


def header_build_id(data, record, _):
    start, whole = record.at - 8, Cursor(record.raw, record.at, record.end)
    record.form("I" + "b" * 24)
    record.string()
    record.filled(record.at - start)
    if record.left:	# perf inject writes one that has a sample_id
        record.form(data.event_of(HEADER_BUILD_ID, whole).sample_id)


def auxtrace_info(_, record, __):
    kind, _ = record.u32(), record.u32()
    if kind == AUXTRACE_INTEL_PT and record.left > 8 * INTEL_PT_FILTER_STR_LEN:
        size = record.words(INTEL_PT_FILTER_STR_LEN + 1)[-1]
        if size:	# of the filter, without its zero
            record.skip(size + 1 + -(size + 1) % 8)
    record.words(record.left // 8)


def auxtrace(data, record, _):
    size = record.u64()
    record.form("QQIIII")
    data.records_at.skip(size)


def auxtrace_error(_, record, __):
    record.form("IIIII")
    form = record.u32()
    record.form("QQ" if form else "Q")	# ip, time
    record.skip(min(64, record.left))
    record.form("II" if form > 1 else "")


def cpu_map(_, record, __):
    kind = record.u16()
    if kind == 2:
        record.form("bbHH")
    else:
        number = record.u16()
        size = record.u16() if kind == 1 else 2
        if (kind, size) not in ((0, 2), (1, 4), (1, 8)):
            raise Bad(f"CPUs of the kind {kind}, {size} bytes each")
        record.skip(4 if size == 8 else 0)
        for _ in range(number):
            record.number(size)
    record.padding()


def event_update(data, record, misc):
    kind, _ = record.words(2)
    if kind == 3:
        cpu_map(data, record, misc)
    elif kind == 1:	# the scale, a double
        record.u64()
    elif kind in (0, 2):	# unit, name
        record.string()
    else:
        raise Bad(f"an update of the kind {kind}")
    record.padding()


def header_feature(data, record, _):
    data.feature(record.u64(), record)
    record.padding()


# of the kernel, and of perf record in the same form: a sample_id is behind
KERNEL = {
    1: "IIQQQs",		# MMAP
    2: "QQ",			# LOST
    COMM: "IIs",
    4: "IIIIQ",			# EXIT
    5: "QQQ", 6: "QQQ",		# THROTTLE, UNTHROTTLE
    7: "IIIIQ",			# FORK
    RECORD_READ: "II",		# and the values
    10: mmap2,
    11: "QQQ",			# AUX
    12: "II",			# ITRACE_START
    13: "Q",			# LOST_SAMPLES
    14: "",			# SWITCH
    15: "II",			# SWITCH_CPU_WIDE
    16: "II[QQ]",		# NAMESPACES
    17: "QIHHs",		# KSYMBOL
    18: "HHIbbbbbbbb",		# BPF_EVENT
    19: "Qs",			# CGROUP
    20: text_poke,
    21: "Q",			# AUX_OUTPUT_HW_ID
    CALLCHAIN_DEFERRED: "QW",
}

USER = {
    HEADER_ATTR: header_attr,
    65: "Q" + "b" * 64,		# HEADER_EVENT_TYPE
    HEADER_TRACING_DATA: header_tracing_data,
    HEADER_BUILD_ID: header_build_id,
    68: "",			# FINISHED_ROUND
    69: "Q{QQ}",		# ID_INDEX, which may have one or two arrays
    70: auxtrace_info,
    AUXTRACE: auxtrace,
    72: auxtrace_error,
    73: "[Q" + "b" * 16 + "]",	# THREAD_MAP
    74: cpu_map,
    75: "[QQ]",			# STAT_CONFIG
    76: "QIIQQQ",		# STAT
    77: "QQ",			# STAT_ROUND
    78: event_update,
    79: "QQQ{QQbbbbbbbb}",	# TIME_CONV, which was shorter
    80: header_feature,
    82: "",			# FINISHED_INIT
}


class Data:
    """All of a perf.data."""

    def __init__(self, raw):
        self.raw = bytearray(raw)
        self.places = []
        self.events = []
        self.by_id = {}
        self.formats = {}
        self.cpus = None
        self.records_at = None

    def place(self, at, size):
        self.places.append((at, at + size))
        return Cursor(self.raw, at, at + size)

    def other(self):
        """The bytes in the other order."""
        magic, size = struct.unpack_from("<8sQ", self.raw)
        if magic != b"PERFILE2":
            raise Bad("no perf.data of a little-endian machine")
        if size == 16:
            self.place(0, size).words(2)
            self.records(self.place(size, len(self.raw) - size))
        elif size == 104:
            self.file(self.place(0, size))
        else:
            raise Bad(f"a header of {size} bytes")
        # the places are all of it, but for zeroes between them
        last = 0
        places = sorted(place for place in self.places if place[0] < place[1])
        for start, end in [*places, (len(self.raw), len(self.raw))]:
            if start < last or any(self.raw[last:start]):
                raise Bad(f"what is before {start}?")
            last = end
        return self.raw

    def file(self, header):
        (_, _, entry_size, events, events_size, data, data_size, _,
         types_size) = header.words(9)
        bits = sum(word << 64 * i for i, word in enumerate(header.words(4)))
        if types_size:
            raise Bad("event types, as long ago")
        for at in range(events, events + events_size, entry_size):
            entry = self.place(at, entry_size)
            event = entry.attr(entry_size - 16)
            ids = self.place(*entry.words(2))
            self.add(event, ids.words(ids.left // 8))
            ids.done()
        # first the features: the formats are among them
        table = self.place(data + data_size, 16 * bits.bit_count())
        for number in range(256):
            if bits >> number & 1:
                section = self.place(*table.words(2))
                self.feature(number, section)
                section.done()
        self.records(self.place(data, data_size))

    def add(self, event, ids):
        self.events.append(event)
        self.by_id.update((number, event) for number in ids)

    def feature(self, number, at):
        if number not in FEATURES:
            raise Bad(f"the feature {number}")
        self.convert(FEATURES[number], at)

    def convert(self, what, at, *more):
        if isinstance(what, str):
            at.form(what)
        else:
            what(self, at, *more)

    def records(self, at):
        self.records_at = at
        while at.left:
            start, (kind, misc, size) = at.at, at.peek("IHH")
            try:
                record = at.part(size)
                record.form("IHH")
                self.record(kind, misc, record)
                record.done()
            except Bad as bad:
                raise Bad(f"record {kind} of {size} bytes at {start}: {bad}") \
                    from bad

    def record(self, kind, misc, record):
        if kind in USER:
            self.convert(USER[kind], record, misc)
            return
        if kind != SAMPLE and kind not in KERNEL:
            raise Bad("of no kind that is known")
        event = self.event_of(kind, record)
        if kind == SAMPLE:
            for bits, what in SAMPLE_FIELDS:
                if event.sample_type & bits:
                    self.convert(what, record, event)
            return
        inner = record.part(record.left - size_of(event.sample_id))
        self.convert(KERNEL[kind], inner, misc)
        if kind == RECORD_READ:
            read_values(self, inner, event)
        inner.done()
        record.form(event.sample_id)

    def event_of(self, kind, record):
        if not self.events:
            raise Bad("there is no event yet")
        first = self.events[0]
        if len(self.events) == 1:
            return first
        at = first.id_at(kind, record)
        if at is None:
            alike = {(event.sample_type, event.read_format, event.sample_id,
                      event.type == TYPE_TRACEPOINT and event.config)
                     for event in self.events}
            if len(alike) > 1:
                raise Bad("which event it is of is not said")
            return first
        number, = struct.unpack_from("<Q", self.raw, at)
        if number == 0 and kind != SAMPLE:
            return first	# synthesized
        if number not in self.by_id:
            raise Bad(f"of an event with the id {number}")
        return self.by_id[number]


def swapped(source, target):
    """Writes to @target what is in @source in the other order."""
    if os.path.isdir(source):
        raise Bad(f"{source} is a directory")
    with open(source, "rb") as f:
        raw = f.read()
    try:
        raw = Data(raw).other()
    except (Bad, ValueError, struct.error) as bad:
        raise Bad(f"{source}: {bad}") from bad
    with open(target, "wb") as f:
        f.write(raw)


if __name__ == "__main__":
    swapped(*sys.argv[1:])

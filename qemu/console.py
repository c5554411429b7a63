# SPDX-License-Identifier: GPL-2.0
"""Finds reports of faults on a kernel's console.

The kernel prints every fault that it finds on the console, and the lines of a
checker begin alike. Lines of user space do not get there, except those written to
/dev/kmsg.
"""

import re

# "[    1.234567] " and, with CONFIG_PRINTK_CALLER, "[    T1] "; a report may
# start in the middle of a line that was begun before
PREFIX = re.compile(r"^(?:<\d+>)?(?:\[ *\d+\.\d+\](?:\[ *[TC]\d+\])? ?)*")

# (kind, what the line has, after the prefix)
# The first match gives a report its kind: a checker stands before the words that its
# reports begin with.
REPORTS = (
    ("panic", r"Kernel panic - not syncing"),
    ("panic", r"---\[ end Kernel panic"),
    ("kasan", r".*\b(?:KASAN|KFENCE|KMSAN): "),
    ("kcsan", r".*\bKCSAN: "),
    ("ubsan", r"UBSAN: "),
    ("lockdep", r".*possible circular locking"),
    ("lockdep", r".*possible recursive locking"),
    ("lockdep", r".*inconsistent lock state"),
    ("lockdep", r".*possible irq lock inversion"),
    ("lockdep", r".*-(?:safe|READ-safe) -> .*-unsafe lock order"),
    ("lockdep", r".*suspicious RCU usage"),
    ("lockdep", r".*Invalid wait context"),
    ("lockdep", r".*trying to register non-static key"),
    ("lockdep", r".*DEBUG_LOCKS_WARN_ON"),
    ("lockdep", r".*lock held when returning to user space"),
    ("lockdep", r".*bad unlock balance"),
    ("lockdep", r".*held lock freed"),
    ("lockdep", r".*\bstill has locks held"),
    ("lockdep", r"turning off the locking correctness validator"),
    ("lockdep", r"INFO: lockdep is turned off"),
    ("sleep", r"BUG: sleeping function called from invalid context"),
    ("sleep", r"BUG: scheduling while atomic"),
    ("preempt", r"BUG: using \w+\(\) in preemptible"),
    ("lockup", r".*soft lockup"),
    ("lockup", r".*hard LOCKUP"),
    ("lockup", r".*workqueue lockup"),
    ("oops", r"(?:Oops|PANIC): "),
    ("oops", r"Internal error: "),
    ("oops", r"general protection fault, (?:maybe|probably) for"),
    ("oops", r"(?:.*: )?Kernel stack (?:overflow|is corrupted)"),
    ("oops", r"unchecked MSR access error"),
    ("bug", r"kernel BUG at "),
    ("bug", r"(?:watchdog: )?BUG:? "),
    ("bug", r"=+\[ BUG|\[ BUG: "),
    ("warning", r"(?:------------\[ cut here \]------------\s*)?WARNING: "),
    ("rcu stall", r"rcu: INFO: \w+ .*(?:detected|self-detected) "),
    ("rcu stall", r"(?:rcu: )?INFO: rcu_\w+ .*stall"),
    ("rcu stall", r"rcu: .*kthread (?:starved|timer wakeup)"),
    ("hung task", r"INFO: task .* blocked (?:for more than|on )"),
    ("debug objects", r"ODEBUG: "),
    ("kmemleak", r"kmemleak: \d+ new"),
    ("kmemleak", r"kmemleak: .*(?:disabled|Found object by alias)"),
    ("memory", r"list_(?:add|del) corruption"),
    ("memory", r"refcount_t: "),
    ("memory", r"corrupted stack end detected"),
    ("init", r"init: "),
)

_REPORTS = tuple((kind, re.compile(what)) for kind, what in REPORTS)
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\r\0]")


def clean(line):
    """One line of the console without escape sequences."""
    return _ESCAPES.sub("", line).rstrip("\n")


def kind_of(line):
    """The kind of fault that a line reports, or None."""
    text = title_of(line)
    for kind, pattern in _REPORTS:
        if pattern.match(text):
            return kind
    return None


# A line of a stack: "  f+0x12/0x34", "? f+0x12/0x34"; or of a race's title and
# its accesses: "data-race in f / g", "read to 0x1 of 8 bytes by task 1 on cpu 2:"
_FUNCTION = re.compile(r"\b([A-Za-z_]\w*)(?:\.[\w.]+)?\+0x[0-9a-f]+/0x[0-9a-f]+")
_RACE = re.compile(r"BUG: KCSAN: [\w-]+ in (.*)")
_RULE = re.compile(r"={30,}$")


def title_of(line):
    """A line without its time."""
    return PREFIX.sub("", clean(line))


def functions_of_race(lines, start):
    """The functions that a KCSAN report names; @start: its title's index."""
    title = _RACE.search(clean(lines[start]))
    names = set(re.findall(r"[A-Za-z_]\w*", title[1])) if title else set()
    for line in lines[start + 1:]:
        text = title_of(line)
        if _RULE.match(text):
            break
        names.update(_FUNCTION.findall(text))
    return names


def reports(text, allow=(), races_of=None, elsewhere=None):
    """[(line number, kind, line)] of all lines that report a fault.

    @allow: regular expressions; a line that matches one is expected, and left out.
    @races_of: a set of functions; a data race counts if its report names one of
    them, at either access or on the way there. None: all data races count.
    @elsewhere: a list that gets the lines of the other races
    """
    allowed = [re.compile(a) for a in allow]
    found = []
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        kind = kind_of(line)
        if not kind or any(a.search(line) for a in allowed):
            continue
        if races_of is not None and _RACE.search(line) and \
                not functions_of_race(lines, number - 1) & races_of:
            if elsewhere is not None:
                elsewhere.append(clean(line))
            continue
        found.append((number, kind, clean(line)))
    return found


# The last lines of the base before it stops all CPUs but one (kernel/reboot.c)
_GOING = re.compile(r"reboot: (?:Power down|Restarting system|"
                    r"(?:Power off not available: )?System halted)")


def until_power_off(text):
    """The console of a guest that was done, up to the stop of its CPUs.

    A CPU takes itself offline when it is told to stop, and another one that has not
    been told yet may still wake it up: "sched: Unexpected reschedule of offline
    CPU#1!". On real machines these are a few instructions apart; in QEMU, as long
    as the host lets a CPU wait.
    """
    lines = text.split("\n")
    for number in range(len(lines) - 1, -1, -1):
        if _GOING.match(title_of(lines[number])):
            return "\n".join(lines[:number + 1])
    return text


def excerpt(text, found, before=2, after=24, limit=3):
    """The lines around the first @limit reports, for a person to read."""
    lines = [clean(line) for line in text.split("\n")]
    out = []
    shown = 0
    for number, _, _ in found:
        if number <= shown:
            continue
        if limit == 0:
            out.append("    ...")
            break
        limit -= 1
        first = max(shown, number - 1 - before)
        shown = min(len(lines), number + after)
        out += ["    " + line for line in lines[first:shown]]
    return "\n".join(out)

# SPDX-License-Identifier: GPL-2.0
"""What of a kernel's console is a report of a fault.

The kernel says everything it finds out about itself on the console, in lines
that begin alike whichever checker prints them. Lines of user space do not get
there, with one exception: what is written to /dev/kmsg.
"""

import re

# "[    1.234567] " and, with CONFIG_PRINTK_CALLER, "[    T1] "; a report may
# start in the middle of a line that was begun before
PREFIX = re.compile(r"^(?:<\d+>)?(?:\[ *\d+\.\d+\](?:\[ *[TC]\d+\])? ?)*")

# (kind, what the line has, after the prefix)
REPORTS = (
    ("panic", r"Kernel panic - not syncing"),
    ("panic", r"---\[ end Kernel panic"),
    ("oops", r"(?:Oops|PANIC): "),
    ("oops", r"Internal error: "),
    ("oops", r"general protection fault, (?:maybe|probably) for"),
    ("oops", r"(?:.*: )?Kernel stack (?:overflow|is corrupted)"),
    ("oops", r"unchecked MSR access error"),
    ("bug", r"kernel BUG at "),
    ("bug", r"(?:watchdog: )?BUG:? "),
    ("bug", r"=+\[ BUG"),
    ("warning", r"(?:------------\[ cut here \]------------\s*)?WARNING: "),
    ("kasan", r".*\b(?:KASAN|KFENCE|KMSAN): "),
    ("kcsan", r".*\bKCSAN: "),
    ("ubsan", r"UBSAN: "),
    ("lockdep", r".*(?:possible circular locking|possible recursive locking|"
                r"inconsistent lock state|possible irq lock inversion|"
                r"suspicious RCU usage|Invalid wait context|"
                r"trying to register non-static key|"
                r"DEBUG_LOCKS_WARN_ON|lock held when returning to user space|"
                r"(?:bad unlock balance|held lock freed)|"
                r"INFO: lockdep is turned off)"),
    ("rcu stall", r"rcu: INFO: \w+ .*(?:detected|self-detected) "),
    ("rcu stall", r"(?:rcu: )?INFO: rcu_\w+ .*stall"),
    ("rcu stall", r"rcu: .*kthread (?:starved|timer wakeup)"),
    ("hung task", r"INFO: task .* blocked (?:for more than|on )"),
    ("lockup", r".*(?:soft lockup|hard LOCKUP|workqueue lockup)"),
    ("debug objects", r"ODEBUG: "),
    ("memory", r"(?:list_(?:add|del) corruption|refcount_t: |"
               r"kmemleak: \d+ new|corrupted stack end detected)"),
    ("init", r"init: "),
)

_REPORTS = tuple((kind, re.compile(what)) for kind, what in REPORTS)
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\r\0]")


def clean(line):
    """One line of the console without escape sequences."""
    return _ESCAPES.sub("", line).rstrip("\n")


def kind_of(line):
    """What a line reports, or None."""
    text = PREFIX.sub("", clean(line))
    for kind, pattern in _REPORTS:
        if pattern.match(text):
            return kind
    return None


def reports(text, allow=()):
    """[(line number, kind, line)] of all lines that report a fault.

    @allow: regular expressions of lines that a test expects; each of them
    that matches a line takes that line out.
    """
    allowed = [re.compile(a) for a in allow]
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        kind = kind_of(line)
        if kind and not any(a.search(line) for a in allowed):
            found.append((number, kind, clean(line)))
    return found


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

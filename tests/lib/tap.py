# SPDX-License-Identifier: GPL-2.0
"""Reading TAP: the output of KUnit, of kselftests and of our own programs."""

import re

# TAP, KTAP and the kselftest harness: "ok 1 name # SKIP why", indented, or after any
# number of "# ", with which a runner marks the output of a test below it
RESULT = re.compile(r"^(?P<depth>(?:[ \t]|# )*)(?P<no>not )?ok (?P<number>\d+)"
                    r"(?: -)?(?: (?!#))?(?P<name>.*?)"
                    r"(?:\s+#\s*(?P<directive>.*))?$")


def tap_results(text):
    """[(name, "ok" | "not ok" | "skip", why)] of the innermost tests.

    A line that sums up lines of more depth right before it is left out, unless
    it fails and none of them did.
    """
    stack, out = [], []
    for line in text.split("\n"):
        match = RESULT.match(line.rstrip())
        if not match:
            continue
        depth = len(match["depth"])
        below = [r for r in stack if r[0] > depth]
        stack = [r for r in stack if r[0] <= depth]
        status = "not ok" if match["no"] else "ok"
        directive = match["directive"] or ""
        if status == "ok" and directive.upper().startswith("SKIP"):
            status = "skip"
        name = match["name"].strip() or f"test {match['number']}"
        result = (depth, name, status, directive)
        if below:
            prefix = re.sub(r"^(selftests: )", "", result[1])
            inner = [(f"{prefix}: {n}", s, w) for _, n, s, w in below]
            if status == "not ok" and all(s != "not ok" for _, s, _ in inner):
                inner.append((result[1], status, directive))
            stack += [(depth, *r) for r in inner]
        else:
            stack.append(result)
    out = [r[1:] for r in stack]
    return out


def missing_results(text):
    """[(planned, seen)] of the TAP documents whose plan was not fulfilled."""
    out = []
    for document in re.split(r"^K?TAP version \d+\n", text, flags=re.M):
        plan = re.search(r"^1\.\.(\d+)\s*(?:#.*)?$", document, re.M)
        seen = len(re.findall(r"^(?:not )?ok \d+", document, re.M))
        if plan and int(plan[1]) != seen:
            out.append((int(plan[1]), seen))
    return out


def near(text, name):
    """The lines before a failed test's line: they have the reason."""
    lines = text.split("\n")
    last = name.rsplit(": ", 1)[-1]
    for number, line in enumerate(lines):
        if "not ok " in line and last in line:
            first = number
            while first > max(0, number - 20) and \
                    not RESULT.match(lines[first - 1].rstrip()):
                first -= 1
            return "\n".join(lines[first:number + 1])
    return ""

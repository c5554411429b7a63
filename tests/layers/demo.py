# SPDX-License-Identifier: GPL-2.0
"""The tests of make demo: its output and its files."""

import os
import re
import subprocess

from common import TOP, Failure
from layer import Layer
from programs import outside_make

# the files that the README promises
LEFT = ("perf.data", "script.txt", "report.txt", "flamegraph.html")
FIGURES = re.compile(
    r"^(deferred|immediate): +(\d+) samples, +(\d+) deferred records, "
    r"+(\d+) bytes in perf.data$", re.M)
# long enough that there are samples of it in both modes
COMMAND = "dd if=/dev/zero of=/dev/null bs=256k count=4000"


def over(layer):
    """A command that takes too long: the message names TIMEOUT=."""
    result = subprocess.run(
        [os.path.join(TOP, "scripts", "demo"), "--build", layer.check.build,
         "--out", layer.log("over"), "--timeout", "5"],
        env=dict(outside_make("DEMO_BEGUN"), RUN_CMD="sleep 1000"), cwd=TOP,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for words in ("time limit of 5 s is over", "TIMEOUT=SECONDS"):
        assert words in result.stdout, result.stdout
    assert result.returncode == 1, result.returncode


def demo(layer, name, own=""):
    """Runs it; its output, the directory that it left, and {mode: (samples, records,
    bytes)}.

    @own is a command for make, where that builds in this directory, and may.
    What somebody left in build/demo/ stays.
    """
    build = layer.check.build
    out = layer.log(name)
    log = layer.log(f"{name}.log")
    command = [os.path.join(TOP, "scripts", "demo"), "--build", build, "--out",
               out]
    if own and layer.check.may_build and \
            os.path.realpath(build) == os.path.join(TOP, "build"):
        command = ["make", "demo", f"CMD={own}", f"DEMO_OUT={out}"]
    with open(log, "w") as f:
        result = subprocess.run(
            command, env=dict(outside_make("DEMO_BEGUN"), RUN_CMD=own),
            cwd=TOP, stdout=f, stderr=subprocess.STDOUT)
    with open(log, errors="replace") as f:
        text = f.read()
    if result.returncode:
        raise Failure(f"status {result.returncode}\n{text[-1500:]}\n"
                      f"log: {log}")
    figures = {mode: tuple(map(int, numbers))
               for mode, *numbers in FIGURES.findall(text)}
    if list(figures) != ["deferred", "immediate"]:
        raise Failure(f"no line of figures for both modes; log: {log}")
    for file in LEFT:
        path = os.path.join(out, file)
        if not os.path.exists(path) or not os.path.getsize(path):
            raise Failure(f"{path} is not there, or empty; log: {log}")
    for mode, file in (("deferred", "perf.data"),
                       ("immediate", "perf-immediate.data")):
        size = os.path.getsize(os.path.join(out, file))
        if figures[mode][2] != size:
            raise Failure(f"{file} has {size} bytes, not those of {mode}, "
                          f"{figures[mode][2]}; log: {log}")
    return text, out, figures


def section(text, title):
    """The lines below a heading."""
    found = re.search(rf"^--- .*{title}.*\n((?:.*\S.*\n)+)", text, re.M)
    if not found:
        raise Failure(f"nothing is shown as {title!r}:\n{text[-2000:]}")
    return found[1].split("\n")[:-1]


def own_program(layer):
    text, out, figures = demo(layer, "own")
    with open(os.path.join(out, "flamegraph.html")) as f:
        page = f.read()
    outside = re.findall(r"(?:src|href)\s*=\s*[\"'](?!#|data:)|@import|url\((?!#|data:)"
                         r"|<link\b|fetch\(", page)
    if outside:
        raise Failure(f"flamegraph.html loads something: {outside}")
    _, *pictures = page.split("<svg")
    if len(pictures) != 2 or \
            not all(re.search(r"\bmain\b", picture) for picture in pictures):
        raise Failure(f"{len(pictures)} flame graphs, or one without main")
    # one sample: kernel frames, then user frames down to main
    sample = section(text, "one merged sample")
    frames = [re.match(r"\s+([0-9a-f]+) (\S+)", line) for line in sample[1:]]
    if not all(frames):
        raise Failure("no frames:\n" + "\n".join(sample))
    kernel = [bool(int(frame[1], 16) >> 63) for frame in frames]
    names = [frame[2].split("+")[0] for frame in frames]
    if not kernel[0] or kernel[-1] or kernel != sorted(kernel, reverse=True):
        raise Failure("not kernel frames and then user frames:\n"
                      + "\n".join(sample))
    if "main" not in names[kernel.index(False):] or kernel.count(False) < 8:
        raise Failure("not down to main:\n" + "\n".join(sample))
    if not any(line.startswith("# Samples: ") for line in
               section(text, "the head of perf report")):
        raise Failure(f"no head of perf report:\n{text[-2000:]}")
    samples, records, size = figures["deferred"]
    at_once, none, more = figures["immediate"]
    if not 0 < records <= samples or not at_once or none:
        raise Failure(f"deferred: {records} records of {samples} samples; "
                      f"immediate: {none} of {at_once}")
    if size / samples >= more / at_once:
        raise Failure(f"a sample takes {size / samples:.0f} bytes deferred "
                      f"and {more / at_once:.0f} at once")


def distribution_program(layer):
    """perl, which has no frame pointers, in the run of own_program()."""
    with open(layer.log("own.log"), errors="replace") as f:
        text = f.read()
    sample = section(text, "one of perl")
    found = re.match(r"([\d.]+) a sample, and ([\d.]+) without unwinding tables$",
                     sample[0])
    if not found or float(found[1]) < 3 * float(found[2]):
        raise Failure(f"frames with tables and without: {sample[0]}")
    user = [line for line in sample[2:] if not int(line.split()[0], 16) >> 63]
    if len(user) < 6 or "__libc_start_main" not in "".join(user[-3:]):
        raise Failure("not down to __libc_start_main:\n" + "\n".join(sample))
    with open(os.path.join(layer.log("own"), "flamegraph.html")) as f:
        _, *pictures = f.read().split("<svg")
    if ["perl_run:" in picture for picture in pictures] != [True, False]:
        raise Failure("perl's callers are not in the deferred graph alone")


def own_command(layer):
    _, out, figures = demo(layer, "command", COMMAND)
    with open(os.path.join(out, "script.txt"), errors="replace") as f:
        text = f.read()
    if not re.search(r"^dd +\d+ ", text, re.M):
        raise Failure(f"no sample of it:\n{text[:1000]}")
    if not figures["deferred"][1]:
        raise Failure(f"no deferred record: {figures}")


def run_demo(layer):
    layer.test("the demo's program: a merged sample, the report, the figures",
               own_program, layer)
    layer.test("perl: its frames with unwinding tables and without",
               distribution_program, layer)
    layer.test(f"CMD='{COMMAND}'", own_command, layer)
    layer.test("CMD='sleep 1000' with too little TIMEOUT=", over, layer)


LAYER = Layer(__name__, "make demo: its output and its files", run_demo, rare=True)

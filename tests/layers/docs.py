# SPDX-License-Identifier: GPL-2.0
"""The pages of the series, kernel-doc, perf's help."""

import os
import re
import subprocess

from common import TOP, TREE_NAME, Failure, call, read_series, read_text
from layer import Layer
from programs import outside_make

# of a page, for a reader to take in at once
MOST_LINES = 300


def run_docs(layer):
    """The pages of the series, kernel-doc, perf's help."""
    check = layer.check
    tree = os.path.join(check.build, TREE_NAME)
    objects = os.path.join(check.build, "docs")
    new = sorted(f for patch in read_series() for f in patch.new_files)
    pages = [f for f in new if f.startswith("Documentation/") and
             f.endswith(".rst")]

    def htmldocs():
        if not pages:
            raise Failure("the series has no page under Documentation/")
        output = os.path.join(objects, "Documentation", "output")
        names = [os.path.splitext(os.path.relpath(p, "Documentation"))[0]
                 for p in pages]
        dirs = sorted({n.split("/")[0] for n in names})
        # Sphinx does not read an unchanged page again, nor the code that it quotes. And
        # the index of the directory has to name the page.
        again = [f".doctrees/{n}.doctree" for n in names] + \
            [f".doctrees/{d}/index.doctree" for d in dirs] + \
            [f"{n}.html" for n in names]
        for name in again:
            path = os.path.join(output, name)
            if os.path.exists(path):
                os.unlink(path)
        os.makedirs(objects, exist_ok=True)
        log = layer.log("htmldocs.log")
        text = call(["make", "-C", tree, f"O={objects}",
                     f"-j{os.environ.get('JOBS') or os.cpu_count()}",
                     f"SPHINXDIRS={' '.join(dirs)}", "htmldocs"],
                    log=log, env=dict(outside_make(), LC_ALL="C.UTF-8")).stdout
        # a warning about a page names the page, or the file that it quotes
        mine = [line for line in text.split("\n")
                if re.search(r"\b(WARNING|ERROR|CRITICAL|warning|error)\b", line)
                and any(re.search(rf"(?<!\w){re.escape(f)}(?!\w)", line)
                        for f in new + names)]
        if mine:
            raise Failure("\n".join(mine) + f"\nlog: {log}")
        for name in names:
            if not os.path.exists(os.path.join(output, name + ".html")):
                raise Failure(f"{name}.html was not made\nlog: {log}")

    def lengths():
        for page in pages:
            lines = read_text(os.path.join(TOP, page)).count("\n")
            if lines > MOST_LINES:
                raise Failure(f"{page} has {lines} lines, more than {MOST_LINES}")

    layer.test(f"no page has more than {MOST_LINES} lines", lengths)
    layer.test("make htmldocs, no warning about a page of the series", htmldocs)

    def kernel_doc(path):
        result = subprocess.run(
            ["perl", "scripts/kernel-doc", "-none", "-Wall", "-Werror", path],
            cwd=tree, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace")
        if result.returncode or result.stdout.strip():
            raise Failure(result.stdout or "kernel-doc failed")

    for path in new:
        if path.endswith((".c", ".h")):
            layer.test(f"kernel-doc {path}", kernel_doc, path)

    for command in HELP:
        layer.test(f"perf {command} -h names its option", read_help, check.perf, command)


# command: words of its -h
HELP = {
    "record": [r"\(defer\|nodefer\)"], "top": [r"\(defer\|nodefer\)"],
    "trace": [r"\(defer\|nodefer\)"], "script": ["--merge-callchains"],
    "inject": ["--merge-callchains"],
}


def read_help(perf, command):
    try:
        result = subprocess.run([perf, command, "-h"],
                                stdin=subprocess.DEVNULL, text=True,
                                stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT)
    except OSError as error:
        raise Failure(error) from None
    for words in HELP[command]:
        if not re.search(words, result.stdout):
            raise Failure(f"perf {command} -h: no {words}\n{result.stdout}")


LAYER = Layer(__name__, "make htmldocs of the pages, kernel-doc, the help of perf",
              run_docs, rare=True, in_guest=False)

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Draws the output of perf script as flame graphs, side by side in one page.

  flamegraph.py -o OUT.html [--event NAME] TITLE=SCRIPT.TXT ...
  flamegraph.py -o OUT.svg [--event NAME] TITLE=SCRIPT.TXT

The page loads nothing: no network, no library. Without scripting it is a
picture. With it, a click on a frame makes that frame as wide as the picture,
and the text field marks the frames whose names have that text. The page is
well-formed XML too, so that a test can read it. OUT.svg is one graph as a
picture alone.
"""

import argparse
import html
import re
import sys
import zlib

HEADER = re.compile(r"^(?P<comm>\S.*?)\s+-?\d+(?:/-?\d+)?\s+(?:\[\d+\]\s+)?"
                    r"(?:\d+\.\d+:)?\s*(?:\d+\s+)?"
                    r"(?P<event>[^\s][^\s]*?):[^:]*$")
FRAME = re.compile(r"^\s+(?P<ip>[0-9a-f]+) (?P<name>.+?)(?: \((?P<dso>[^()]*|"
                   r"\[[^()]*\])\))?$")
MISSING = "user callchain not available"
KERNEL = 1 << 63

ROW = 14		# the height of a frame
WIDTH = 1000		# of the picture, before it is fitted to the window
NARROW = 0.0008		# frames that are less than this are not drawn,
NARROW_ALONE = 0.002	# nor those in a picture alone, which has no zoom


class Node:
    """A frame: how many samples it is in, and what it calls."""

    def __init__(self, name, kind):
        self.name = name
        self.kind = kind
        self.samples = 0
        self.callees = {}

    def callee(self, name, kind):
        key = (name, kind)
        if key not in self.callees:
            self.callees[key] = Node(name, kind)
        return self.callees[key]

    def depth(self):
        deepest, level = 0, [self]
        while level:
            deepest += 1
            level = [c for node in level for c in node.callees.values()]
        return deepest


class Profile:
    """The samples of one output of perf script, as a tree of frames."""

    def __init__(self, title, text, event=None):
        self.title = title
        self.root = Node("all", "root")
        self.missing = 0
        for block in re.split(r"\n\s*\n", text):
            lines = [line for line in block.split("\n") if line.strip()]
            header = HEADER.match(lines[0].strip()) if lines else None
            if not header or (event and
                              header["event"].split("/")[0] != event):
                continue
            self.add(header["comm"], lines[1:])

    def add(self, comm, lines):
        frames = []
        for line in lines:
            frame = FRAME.match(line)
            if MISSING in line:
                frames.append((MISSING, "missing"))
            elif frame:
                name = re.sub(r"\+0x[0-9a-f]+$", "", frame["name"])
                if name == "[unknown]" and frame["dso"]:
                    name = f"[{frame['dso'].strip('[]').rsplit('/', 1)[-1]}]"
                frame = (name, "kernel" if int(frame["ip"], 16) >= KERNEL else "user")
                # A walk that follows what is no frame pointer finds any number of these
                if name != "[unknown]" or frame not in frames[-1:]:
                    frames.append(frame)
        self.missing += any(kind == "missing" for _, kind in frames)
        self.root.samples += 1
        node = self.root.callee(comm, "comm")
        node.samples += 1
        for name, kind in reversed(frames):
            node = node.callee(name, kind)
            node.samples += 1


def colour(node):
    """One for a name, warm for the program, cold for the kernel."""
    # not hash(), which is another one in each run
    seed = zlib.crc32(node.name.encode())
    hue, light = {
        "kernel": (198 + seed % 34, 62 + seed // 64 % 12),
        "user": (14 + seed % 34, 60 + seed // 64 % 12),
        "comm": (95, 66), "root": (0, 82), "missing": (0, 70),
    }[node.kind]
    full = 0 if node.kind in ("root", "missing") else \
        45 if node.kind == "comm" else 78
    return f"hsl({hue},{full}%,{light}%)"


def fitting(name, width):
    """What of a name fits into that many pixels."""
    room = int((width - 6) / 6.6)
    if room < 3:
        return ""
    return name if len(name) <= room else name[:room - 2] + ".."


def draw(profile, top=0, narrow=NARROW):
    """The lines of an <svg> of a profile, with so much room above it."""
    total = profile.root.samples
    rows = profile.root.depth()
    height = top + rows * ROW
    out = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" '
           f'data-rows="{rows}">']
    level = [(profile.root, 0, 0)]
    while level:
        node, start, depth = level.pop()
        share = node.samples / total
        if share < narrow:
            continue
        x, width = WIDTH * start / total, WIDTH * share
        y = height - (depth + 1) * ROW
        name = html.escape(node.name)
        out.append(
            f'<g class="f {node.kind}" data-x="{start / total:.6f}" '
            f'data-w="{share:.6f}" data-d="{depth}" data-n="{node.samples}">'
            f'<title>{name}: {node.samples} samples, {100 * share:.2f} %'
            f'</title><rect x="{x:.2f}" y="{y}" width="{width:.2f}" '
            f'height="{ROW - 1}" fill="{colour(node)}"/><text '
            f'x="{x + 3:.2f}" y="{y + 10}">'
            f'{html.escape(fitting(node.name, width))}</text></g>')
        for callee in sorted(node.callees.values(),
                             key=lambda n: (n.name, n.kind)):
            level.append((callee, start, depth + 1))
            start += callee.samples
    out.append("</svg>")
    return out


STYLE = """
:root { color-scheme: light dark; --bg: #fbfaf7; --fg: #222; --dim: #6b6b6b; }
@media (prefers-color-scheme: dark) {
  :root { --bg: #1b1c1e; --fg: #e6e6e6; --dim: #a0a0a0; }
}
body { margin: 0; padding: .6em 1em; box-sizing: border-box;
  background: var(--bg); color: var(--fg);
  font: 14px/1.3 system-ui, sans-serif; }
h1 { font-size: 1.15em; margin: 0; }
h2 { font-size: 1em; margin: 0; }
small, p { margin: 0; color: var(--dim); font: inherit; }
small { font-weight: normal; }
header { display: flex; flex-wrap: wrap; gap: .2em 1.2em;
  align-items: baseline; }
input { font: inherit; padding: 0 .5em; min-width: 16em; }
section { display: flex; flex-direction: column; min-width: 0; }
/* A reversed column begins at its end: the bases are on one line, and what is
   too deep is scrolled to from there. */
.graph { display: flex; flex-direction: column-reverse; max-height: 90vh;
  overflow-y: auto; scrollbar-gutter: stable; }
svg { width: 100%; display: block; flex: none; }
svg text { font: 11px ui-monospace, monospace; fill: #111;
  pointer-events: none; }
/* Side by side, both as high as the window. */
@media (min-width: 56em) {
  body { display: flex; flex-direction: column; height: 100vh; }
  main { flex: 1; min-height: 0; display: grid; gap: 0 1em;
    grid-auto-flow: column; grid-auto-columns: minmax(0, 1fr);
    grid-template-rows: minmax(0, 1fr); }
  section { min-height: 0; }
  .graph { flex: 1; min-height: 0; max-height: none; }
}
.f { cursor: pointer; }
.f:hover rect { stroke: #000; stroke-width: 1; }
.f.found rect { fill: #d32fd3; }
.f.found text { fill: #fff; }
.f.above rect { opacity: .5; }
.key span { display: inline-block; width: .9em; height: .9em;
  margin: 0 .3em 0 1em; vertical-align: -.1em; border-radius: 2px; }
#detail { height: 1.5em; flex: none; overflow: hidden; white-space: nowrap;
  text-overflow: ellipsis; font: 12px/1.5 ui-monospace, monospace; }
"""

SCRIPT = """
(function () {
  'use strict';
  var ROW = %d;
  var detail = document.getElementById('detail');
  function fit(name, width) {
    var room = Math.floor((width - 6) / 6.6);
    if (room < 3) return '';
    return name.length <= room ? name : name.slice(0, room - 2) + '..';
  }
  function setup(svg) {
    var rows = Number(svg.dataset.rows);
    var frames = Array.from(svg.querySelectorAll('.f')).map(function (g) {
      var title = g.querySelector('title').textContent;
      return { g: g, x: Number(g.dataset.x), w: Number(g.dataset.w),
        d: Number(g.dataset.d), title: title,
        name: title.slice(0, title.lastIndexOf(': ')),
        rect: g.querySelector('rect'), text: g.querySelector('text') };
    });
    var zoom = frames[0];
    function layout() {
      var width = svg.clientWidth || 1000;
      svg.setAttribute('viewBox', '0 0 ' + width + ' ' + rows * ROW);
      svg.style.height = rows * ROW + 'px';
      frames.forEach(function (f) {
        var above = f.d < zoom.d && f.x <= zoom.x + 1e-6 &&
          f.x + f.w >= zoom.x + zoom.w - 1e-6;
        var inside = f.d >= zoom.d && f.x >= zoom.x - 1e-6 &&
          f.x + f.w <= zoom.x + zoom.w + 1e-6;
        var x = above ? 0 : (f.x - zoom.x) / zoom.w * width;
        var w = above ? width : f.w / zoom.w * width;
        f.g.style.display = above || inside ? '' : 'none';
        f.g.classList.toggle('above', above);
        f.rect.setAttribute('x', x);
        f.rect.setAttribute('width', Math.max(0, w - 0.5));
        f.text.setAttribute('x', x + 3);
        f.text.textContent = fit(f.name, w);
      });
    }
    frames.forEach(function (f) {
      f.g.addEventListener('click', function () { zoom = f; layout(); });
      f.g.addEventListener('mouseenter', function () {
        detail.textContent = f.title;
      });
    });
    layout();
    window.addEventListener('resize', layout);
    return frames;
  }
  var all = Array.from(document.querySelectorAll('svg')).map(setup);
  document.getElementById('search').addEventListener('input', function (e) {
    var what = e.target.value.toLowerCase();
    var said = all.map(function (frames) {
      var spans = [];
      frames.forEach(function (f) {
        var hit = what !== '' && f.name.toLowerCase().includes(what);
        f.g.classList.toggle('found', hit);
        if (hit) spans.push([f.x, f.x + f.w]);
      });
      spans.sort(function (a, b) { return a[0] - b[0]; });
      var sum = 0, end = 0;
      spans.forEach(function (s) {
        sum += Math.max(0, s[1] - Math.max(end, s[0]));
        end = Math.max(end, s[1]);
      });
      return (100 * sum).toFixed(1) + ' %%';
    });
    detail.textContent = what === '' ? '' : 'found: ' + said.join(', ');
  });
})();
""" % ROW


def page(title, profiles):
    out = [
        "<!DOCTYPE html>",
        '<html xmlns="http://www.w3.org/1999/xhtml" lang="en">', "<head>",
        '<meta charset="utf-8"/>',
        '<meta name="viewport" content="width=device-width"/>',
        f"<title>{html.escape(title)}</title>",
        f"<style>{STYLE}</style>", "</head>", "<body>",
        f"<header><h1>{html.escape(title)}</h1>",
        '<input id="search" type="search" placeholder="find a function" '
        'aria-label="find a function"/>',
        '<p class="key">'
        '<span style="background:hsl(30,78%,65%)"></span>program'
        '<span style="background:hsl(214,78%,67%)"></span>kernel'
        '<span style="background:hsl(0,0%,70%)"></span>not available</p>',
        "</header>", '<div id="detail"></div>', "<main>"]
    for profile in profiles:
        out.append("<section>")
        out.append(f"<h2>{html.escape(profile.title)} <small>"
                   f"{profile.root.samples} samples, {profile.missing} "
                   "without user frames</small></h2>")
        out.append('<div class="graph">')
        out += draw(profile)
        out.append("</div></section>")
    out += ["</main>", f"<script>//<![CDATA[{SCRIPT}//]]></script>",
            "</body>", "</html>", ""]
    return "\n".join(out)


def picture(profile):
    """The <svg> of a profile on paper of its own, with a line of text."""
    first, *frames = draw(profile, 24, NARROW_ALONE)
    return "\n".join([
        first.replace(" ", ' xmlns="http://www.w3.org/2000/svg" ', 1),
        "<style>text { font: 11px ui-monospace, monospace; fill: #111; }"
        "</style>", '<rect width="100%" height="100%" fill="#fbfaf7"/>',
        f'<text x="3" y="15">{html.escape(profile.title)}: '
        f"{profile.root.samples} samples</text>", *frames, ""])


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("-o", "--output", required=True)
    p.add_argument("--title", default="Flame graphs")
    p.add_argument("--event", help="the samples of this event only")
    p.add_argument("script", metavar="TITLE=SCRIPT.TXT", nargs="+")
    args = p.parse_args()
    profiles = []
    for word in args.script:
        title, _, path = word.rpartition("=")
        with open(path, errors="replace") as f:
            profile = Profile(title or path, f.read(), args.event)
        if not profile.root.samples:
            sys.exit(f"flamegraph.py: no sample in {path}")
        profiles.append(profile)
    alone = args.output.endswith(".svg")
    if alone and len(profiles) > 1:
        p.error("a picture alone is of one profile: name one TITLE=SCRIPT.TXT, "
                "or OUT.html")
    with open(args.output, "w") as f:
        f.write(picture(profiles[0]) if alone else page(args.title, profiles))
    return 0


if __name__ == "__main__":
    sys.exit(main())

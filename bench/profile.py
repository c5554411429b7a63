#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
r"""Prints how many instructions of a call each function took.

usage: bench/profile.py VMLINUX COUNTS CALLS [LEAST]

COUNTS is the file that the plugin profile.c wrote, for instance of CALLS = 1000:

    gcc -O2 -shared -fPIC -o build/bench/profile.so bench/profile.c
    qemu/run --icount --kernel build/kernel-bench/arch/x86/boot/bzImage \
        --qemu=-plugin --qemu=build/bench/profile.so,out=build/bench/counts \
        'build/bench/getppid 1 deferred 1 16'
    bench/profile.py build/kernel-bench/vmlinux build/bench/counts 1000

Functions with less than LEAST instructions a call (1) are summed up. "runs" is how
often the first of a function's instructions ran, a call.
"""

import bisect
import subprocess
import sys


def main():
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    vmlinux, counts, calls = sys.argv[1], sys.argv[2], int(sys.argv[3])
    least = float(sys.argv[4]) if len(sys.argv) == 5 else 1
    nm = subprocess.run(["nm", "-n", vmlinux], check=True, text=True,
                        stdout=subprocess.PIPE).stdout
    symbols = [(int(a, 16), name) for a, kind, name in
               (line.split(None, 2) for line in nm.splitlines()
                if len(line.split(None, 2)) == 3) if kind in "tTwW"]
    starts = [a for a, _ in symbols]
    total, first = {}, {}
    with open(counts) as f:
        for addr, nr in sorted((int(a, 16), int(n)) for a, n in
                               (line.split() for line in f)):
            if addr < 1 << 63:
                name = "[user]"
            else:
                at = bisect.bisect_right(starts, addr) - 1
                name = symbols[at][1] if at >= 0 else "?"
            total[name] = total.get(name, 0) + nr
            first.setdefault(name, nr)
    rest = 0
    print(f"{'a call':>9} {'runs':>8}  function")
    for name, nr in sorted(total.items(), key=lambda item: -item[1]):
        if nr / calls < least:
            rest += nr
        else:
            print(f"{nr / calls:9.1f} {first[name] / calls:8.2f}  {name}")
    print(f"{rest / calls:9.1f} {'':>8}  [below {least:g} each]")
    print(f"{sum(total.values()) / calls:9.1f} {'':>8}  [all]")


if __name__ == "__main__":
    main()

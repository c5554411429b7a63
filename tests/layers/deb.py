# SPDX-License-Identifier: GPL-2.0
"""make deb, with the guest's configuration: its kernel boots, and its perf defers."""

import glob
import os
import re
import subprocess

from common import TOP, Failure, call
from layer import Layer
from programs import outside_make


def deb(layer, name, **env):
    """(exit status, output) of scripts/deb."""
    check = layer.check
    log = layer.log(f"{name}.log")
    with open(log, "w") as f:
        status = subprocess.run(
            [os.path.join(TOP, "scripts", "deb"), "--build", check.build],
            env=dict(outside_make("SERIES", "DEBUG_INFO"), BUILD=check.build, **env),
            stdin=subprocess.DEVNULL, stdout=f, stderr=subprocess.STDOUT).returncode
    with open(log, errors="replace") as f:
        return status, f.read()


def refused(layer):
    for says, env in (("there is no /none", {"KCONFIG": "/none"}),
                      ("needs the series perf", {"SERIES": "kernel"})):
        status, out = deb(layer, "refused", **env)
        if not status or says not in out or "Traceback" in out:
            raise Failure(f"{env}: status {status}\n{out[-1500:]}")


def made(layer):
    status, out = deb(layer, "deb", KCONFIG=f"{layer.check.build}/kernel/.config")
    if status:
        raise Failure(out[-2500:])
    for words in (r"^deb: \d+ options are set: about \d+ minutes on \d+ CPUs, \d+ GB in ",
                  r"^    apt install /\S+/linux-image-6\.12\.\d+-unwind_\S+_amd64\.deb ",
                  r"^    perf-unwind record -g -- COMMAND",
                  r"^    apt remove linux-image-6\.12\.\d+-unwind perf-unwind$"):
        if not re.search(words, out, re.M):
            raise Failure(f"it does not say {words!r}:\n{out[-2500:]}")
    for package in re.findall(r"^deb: (\S+\.deb) \(", out, re.M):
        call(["dpkg-deb", "-x", package, layer.log("root")], log=layer.log("unpacked"))
    depends = call(["dpkg-deb", "-f", *glob.glob(f"{layer.check.build}/deb/perf-unwind_*"),
                    "Depends"]).stdout
    if "libc6" not in depends or "libelf1" not in depends:
        raise Failure(f"perf depends on {depends}")


def boots(layer):
    root = layer.log("root")
    images = glob.glob(f"{root}/boot/vmlinuz-*")
    if len(images) != 1:
        raise Failure(f"images: {images}")
    release = images[0].rpartition("vmlinuz-")[2]
    if not os.path.isdir(f"{root}/lib/modules/{release}"):
        raise Failure(f"no modules of {release}")
    perf = f"{root}/usr/bin/perf-unwind"
    if os.readlink(perf) != "/usr/lib/perf-unwind/bin/perf":
        raise Failure(f"{perf} is {os.readlink(perf)}")
    perf = root + os.readlink(perf)
    status, out = layer.guest(
        "guest", f"uname -r && cd /tmp && {perf} record -g -c 1 -e page-faults true 2>&1 "
        f"&& {perf} script --no-merge-callchains", kernel=images[0])
    if status or not out.startswith(f"{release}\n") or "DEFERRED CALLCHAIN" not in out:
        raise Failure(f"status {status}\n{out[-1500:]}\nlog: {layer.log('guest.log')}")


def run_deb(layer):
    layer.test("refused: no configuration, no perf", refused, layer)
    layer.test("the packages, and what is said of them", made, layer)
    layer.test("the package's kernel boots, and its perf records deferred callchains",
               boots, layer)


LAYER = Layer(__name__, "make deb with the configuration of the guest",
              run_deb, needs=("kernel",), alone=True, rare=True)

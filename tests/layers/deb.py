# SPDX-License-Identifier: GPL-2.0
"""make deb, with the guest's configuration: its kernel boots, and its perf defers."""

import glob
import os
import re
import subprocess

from common import TOP, Failure, call, read_text, write_text
from layer import Layer
from programs import outside_make

# as in a distribution's configuration: a key in a file of its own, debug information
DISTRIBUTION = """
CONFIG_MODULE_SIG=y
CONFIG_MODULE_SIG_KEY=""
CONFIG_SYSTEM_TRUSTED_KEYRING=y
CONFIG_SYSTEM_TRUSTED_KEYS="debian/certs/debian-uefi-certs.pem"
CONFIG_DEBUG_INFO=y
CONFIG_DEBUG_INFO_DWARF_TOOLCHAIN_DEFAULT=y
"""


def deb(layer, name, **env):
    """(exit status, output) of scripts/deb."""
    check = layer.check
    log = layer.log(f"{name}.log")
    with open(log, "w") as f:
        status = subprocess.run(
            [os.path.join(TOP, "scripts", "deb"), "--build", check.build],
            env=dict(outside_make("DEBUG_INFO", "KCONFIG"), **env),
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
    build = layer.check.build
    config = layer.log("config")
    write_text(config, read_text(f"{build}/kernel/.config") + DISTRIBUTION)
    status, out = deb(layer, "deb", KCONFIG=config)
    if status:
        raise Failure(out[-2500:])
    for words in (r"^deb: \d+ options are set: about \d+ minutes on \d+ CPUs, \d+ GB in ",
                  r"^    apt install /\S+/linux-image-6\.12\.\d+-unwind_\S+_amd64\.deb ",
                  r"^    perf-unwind record -g -- COMMAND",
                  r"^    apt remove linux-image-6\.12\.\d+-unwind perf-unwind$"):
        if not re.search(words, out, re.M):
            raise Failure(f"it does not say {words!r}:\n{out[-2500:]}")
    packages = re.findall(r"^deb: (\S+\.deb) \(", out, re.M)
    if sorted(packages) != sorted(glob.glob(f"{build}/deb/*.deb")):
        raise Failure(f"it names {packages}")
    for package in packages:
        call(["dpkg-deb", "-x", package, layer.log("root")], log=layer.log("unpacked"))
    depends = call(["dpkg-deb", "-f", *glob.glob(f"{build}/deb/perf-unwind_*"),
                    "Depends"]).stdout
    # it makes tables with libdw
    if not all(name in depends for name in ("libc6", "libelf1", "libdw1")):
        raise Failure(f"perf depends on {depends}")
    status, out = deb(layer, "again", KCONFIG=config)
    if status or "deb: nothing to do" not in out or packages != re.findall(
            r"^deb: (\S+\.deb) \(", out, re.M):
        raise Failure(f"the second time: status {status}\n{out[-1500:]}")


def boots(layer):
    root = layer.log("root")
    images = glob.glob(f"{root}/boot/vmlinuz-*-unwind")
    if len(images) != 1:
        raise Failure(f"images: {os.listdir(f'{root}/boot')}")
    release = images[0].rpartition("vmlinuz-")[2]
    if not os.path.isdir(f"{root}/lib/modules/{release}"):
        raise Failure(f"no modules of {release}")
    if "CONFIG_DEBUG_INFO=y" in read_text(f"{root}/boot/config-{release}"):
        raise Failure("the kernel has debug information")
    status, out = layer.guest(
        "guest", "uname -r && cd /tmp && perf-unwind record -o perf.data -g -c 1 -e "
        "page-faults true 2>&1 && perf-unwind script --no-merge-callchains",
        "--env", f"PATH={root}/usr/bin:/usr/bin:/bin", kernel=images[0])
    if status or not out.startswith(f"{release}\n") or "DEFERRED CALLCHAIN" not in out:
        raise Failure(f"status {status}\n{out[-1500:]}\nlog: {layer.log('guest.log')}")


def run_deb(layer):
    layer.test("refused: no configuration, no perf", refused, layer)
    layer.test("the packages, and what is said of them", made, layer)
    layer.test("the package's kernel boots, and its perf records deferred callchains",
               boots, layer)


LAYER = Layer(__name__, "make deb with the configuration of the guest",
              run_deb, alone=True, rare=True)

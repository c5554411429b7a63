# SPDX-License-Identifier: GPL-2.0
"""The programs of the tests, and the environment in which commands are run."""

import os
import shutil
import subprocess

from common import (TOP, TREE_NAME, Failure, call, digest_of_files, read_text,
                    write_text)


def outside_make(*others):
    """The environment for a make that is no part of the make that started this: it
    has none of that one's variables, and none of @others."""
    told = ("ARGS", "BASE", "CMD", "DEMO_OUT", "LAYER", "MEM", "MFLAGS", "SMP",
            "TIMEOUT", "VERSION")
    return {k: v for k, v in os.environ.items()
            if not k.startswith("MAKE") and k not in (*told, *others)}


def compiler_32():
    """The compiler that makes 32-bit programs here, with their C library."""
    for command in ["gcc", "-m32"], ["i686-linux-gnu-gcc"]:
        if shutil.which(command[0]) and not subprocess.run(
                [*command, "-static", "-x", "c", "-o", "/dev/null", "-"],
                input=b"int main(void) { return 0; }\n",
                stderr=subprocess.DEVNULL).returncode:
            return command
    raise Failure("neither gcc -m32 nor i686-linux-gnu-gcc makes a program; "
                  "scripts/packages check installs what is missing")


def install_kselftests(build, headers, objects, log):
    """Builds the kselftests in @objects, with the kernel's headers, which are
    made in @headers; returns where they are installed."""
    tree = os.path.join(build, TREE_NAME)
    install = os.path.join(objects, "install")
    jobs = f"-j{os.environ.get('JOBS') or os.cpu_count()}"
    env = outside_make()
    shutil.rmtree(install, ignore_errors=True)
    os.makedirs(objects, exist_ok=True)
    call(["make", "-C", tree, f"O={headers}", jobs, "headers"], log=log,
         env=env)
    # kselftest's make does not rebuild programs when these headers change
    digest = digest_of_files(os.path.join(headers, "usr", "include"))
    made_with = os.path.join(objects, "headers.digest")
    if not os.path.exists(made_with) or read_text(made_with) != digest:
        shutil.rmtree(objects)
        write_text(made_with, digest)
    call(["make", "-C", f"{tree}/tools/testing/selftests", f"O={objects}",
          "TARGETS=unwind", f"INSTALL_PATH={install}", "FORCE_TARGETS=1",
          f"KHDR_INCLUDES=-isystem {headers}/usr/include", jobs, "install"],
         log=log, env=env)
    return install


def kselftests_of(layer):
    """Builds the kselftests once; returns where they are installed."""
    check = layer.check
    with check.lock:
        if not check.kselftests:
            check.kselftests = install_kselftests(
                check.build, f"{check.build}/kernel",
                f"{check.build}/kselftest", layer.log("build.log"))
    return check.kselftests


def programs_of(layer):
    """Builds the workload of tests/guest for 64 and 32 bits, the program without frame
    pointers, and the library that makes trouble; returns the directory."""
    source = os.path.join(TOP, "tests", "guest")
    programs = os.path.join(layer.dir, "bin")
    cc32 = compiler_32()
    os.makedirs(programs)
    flags = ["-O1", "-g", "-Wall", "-fno-omit-frame-pointer",
             "-mno-omit-leaf-frame-pointer",
             "-fno-optimize-sibling-calls", "-fno-stack-protector",
             "-static", "-pthread"]
    for cc, suffix in (["gcc"], ""), (cc32, ".32"):
        call([*cc, *flags, "-o", f"{programs}/workload{suffix}",
              os.path.join(source, "workload.c")], log=layer.log("build.log"))
    call(["g++", "-O2", "-Wall", "-fomit-frame-pointer", "-pthread", "-o",
          f"{programs}/threads", os.path.join(source, "threads.cc")],
         log=layer.log("build.log"))
    call(["gcc", "-shared", "-fPIC", "-O2", "-Wall", "-o", f"{programs}/trouble.so",
          os.path.join(source, "trouble.c"), "-ldl"], log=layer.log("build.log"))
    return programs

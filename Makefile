# SPDX-License-Identifier: GPL-2.0
#
# The only front door. make help lists the targets.

# The n of make -n: make runs the rule of a makefile to load all the same.
dry := $(findstring n,$(firstword -$(MAKEFLAGS)))
MAKEFLAGS += --no-print-directory
SHELL := /bin/sh

# To make and to the kernel's build such a name is two names; to QEMU, one with a
# comma is.
comma := ,
ifneq ($(words $(CURDIR))$(findstring :,$(CURDIR))$(findstring $(comma),$(CURDIR)),1)
$(error $(CURDIR): the path has a blank, a colon or a comma; the kernel's build or QEMU does not take it: clone into another directory)
endif

ifneq ($(words x$(DEMO_OUT))$(findstring :,$(DEMO_OUT))$(findstring $(comma),$(DEMO_OUT)),1)
$(error DEMO_OUT=$(DEMO_OUT): the path has a blank, a colon or a comma; QEMU does not take it: name another directory)
endif

# Some scripts read the messages of commands: in English.
export LC_ALL := C.UTF-8
export LANGUAGE :=

build := $(CURDIR)/build
export BUILD := $(build)

# A command may hold a dollar sign, and is passed on as it was typed. make would
# expand the dollar signs of CMD itself.
export RUN_CMD := $(value CMD)
unexport CMD
# make demo says how long it took
export DEMO_BEGUN := $(if $(filter demo,$(MAKECMDGOALS)),$(shell date +%s))
export KERNEL_SRC JOBS ACCEL LAYER PEER_PERF SERIES KCONFIG DEBUG_INFO
export STRESS_SECONDS FUZZ_SECONDS FUZZ_EVENTS_SECONDS

SMP ?= 2
MEM ?= 2G
TIMEOUT ?=
ARGS ?=
VERSION ?=

# the kernel that make vm boots
which := $(if $(filter 1 y yes,$(BASE)),kernel-base,kernel)

# this build's perf comes first in the guest's PATH
vm = qemu/run --kernel $(build)/$(which)/arch/x86/boot/bzImage \
	--smp $(SMP) --mem $(MEM) $(if $(TIMEOUT),--timeout $(TIMEOUT)) \
	--rw $(build)/demo \
	--env PATH=$(build)/perf:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
	--env PERF_EXEC_PATH=$(build)/linux-6.12/tools/perf $(ARGS)

.PHONY: vm-run help demo check check-all tree tree-add \
	kernel kernel-base kernel-64 kernel-base-64 kernel-debug kernel-kcsan perf vm \
	series refresh deb \
	packages packages-tree packages-demo packages-check packages-deb packages-all \
	bench-kernel bench-perf bench-stacks fuzz fuzz-cfi clean
.NOTPARALLEL:

help:
	@echo 'The two commands:'
	@echo '  make demo              install, build, boot, profile, show; leaves build/demo/'
	@echo '  make check             the tests that every change must pass; leaves build/check/'
	@echo
	@echo 'The parts:'
	@echo '  make packages          install the missing packages (scripts/packages --list)'
	@echo '  make tree              make the patched tree, build/linux-6.12: a git commit a patch'
	@echo '  make tree-add FILES=   put files of the base under git there, to edit them'
	@echo '  make refresh           write whole files and patches/ from the commits in that tree'
	@echo '  make series            write build/series/*/*.patch, for mail or git am, in the'
	@echo '                         order of SERIES'
	@echo '  make kernel            build build/kernel/arch/x86/boot/bzImage'
	@echo '  make kernel-debug      build one with KASAN, lockdep and more: build/kernel-debug/'
	@echo '  make kernel-kcsan      build one that finds data races: build/kernel-kcsan/'
	@echo '  make check-all         run all tests; tests/run --list names the layers,'
	@echo '                         LAYER= runs some of them'
	@echo '  make perf              build build/perf/perf'
	@echo '  make deb               make Debian packages of a kernel, configured as the running'
	@echo '                         one, and of perf, in build/deb/; says how to use them'
	@echo '  make vm                start a shell in the guest'
	@echo '  make vm CMD='"'...'"'      run one command there; make ends with its exit status and'
	@echo '                         leaves it in build/vm.status'
	@echo '  make bench-kernel      count the instructions of a sampled call, with the series'
	@echo '                         and without; build/bench/kernel.json'
	@echo '  make bench-perf        time perf with deferred and with immediate callchains, and'
	@echo '                         the perf of the base; build/bench/perf.json'
	@echo '  make bench-stacks      compare the stacks of programs without frame pointers with'
	@echo '                         those of DWARF; build/bench/stacks.json. It takes ten'
	@echo '                         minutes and more'
	@echo '  make fuzz              run libFuzzer on the reader of perf.data for ten minutes'
	@echo '  make fuzz-cfi          run it on the code that makes unwinding tables of ELF files'
	@echo '  make clean             remove build/, unless the tree has unsaved work (FORCE=1)'
	@echo
	@echo 'Variables, each at the end of any of these commands:'
	@echo "  CMD='...'              vm: the command to run; demo: the command to profile. The"
	@echo '                         guest sees the root directory of this machine, read-only,'
	@echo '                         has its own /tmp, /run and /var/tmp, and may write to'
	@echo '                         build/demo/'
	@echo '  DEMO_OUT=DIR           demo: write to DIR, not to build/demo/'
	@echo '  KERNEL_SRC=PATH        the base: a directory or tarball of a 6.12.y from 6.12.100'
	@echo '                         on, in place of the package linux-source-6.12; stays until'
	@echo '                         another one is named, or make clean'
	@echo "  SERIES='kernel perf'   the series to use, the first of: kernel, perf, perf-fixes."
	@echo '                         Any target that uses the tree makes it of these (all'
	@echo '                         three); another SERIES rewrites the files that differ'
	@echo '  KCONFIG=FILE           deb: the configuration of another kernel'
	@echo '  DEBUG_INFO=1           deb: keep debug information and BTF, if it has them'
	@echo '  BASE=1                 vm: boot the base without the series (build/kernel-base)'
	@echo '  SMP=1..8               vm, demo: CPUs of the guest (2)'
	@echo '  MEM=2G                 vm, demo: memory of the guest'
	@echo '  TIMEOUT=SECONDS        vm, demo: time limit of the command (600); 0: none'
	@echo '  ACCEL=auto|tcg|kvm     auto: KVM if a probe boot proves it, else TCG'
	@echo "  ARGS='...'             vm: more options for qemu/run (qemu/run --help);"
	@echo '                         check: for tests/run; bench-kernel: for bench/kernel;'
	@echo '                         bench-perf: for bench/perf (--large 20000000 measures the'
	@echo '                         memory for that many samples)'
	@echo '  PEER_PERF=PERF         bench-perf: measure this perf, too'
	@echo '  FUZZ_SECONDS=N         fuzz: time (600)'
	@echo "  LAYER='a b'            check, check-all: run these layers only; tests/run --list"
	@echo '  STRESS_SECONDS=N       check, check-all: time of the stress test (60, 300)'
	@echo '  FUZZ_EVENTS_SECONDS=60 check-all: time of the fuzzer of perf_event_open()'
	@echo '  JOBS=N                 compilers at once (all CPUs)'
	@echo '  VERSION=N              series: [PATCH vN ...]'

# Each target installs what it needs. The largest set that is asked for comes first.
packages packages-check:
	@scripts/packages check

packages-all:
	@scripts/packages all

packages-deb:
	@scripts/packages deb

packages-tree:
	@scripts/packages tree

packages-demo:
	@scripts/packages

tree: packages-tree
	@scripts/tree --build $(build)

tree-add:
	@$(if $(FILES),,echo 'make tree-add FILES="kernel/fork.c ..."' >&2; exit 2;) \
	scripts/tree --build $(build) --add $(FILES)

refresh:
	@scripts/refresh --build $(build)

series: tree
	@scripts/series --build $(build) $(if $(VERSION),--version $(VERSION))

deb: packages-deb tree
	@scripts/deb --build $(build)

kernel: packages-demo tree
	@scripts/build kernel

kernel-base: packages-demo
	@scripts/tree --build $(build) --base-only
	@scripts/build kernel-base

# Without 32-bit programs, for the layer 64.
kernel-64: packages-demo tree
	@scripts/build $@

kernel-base-64: packages-demo
	@scripts/tree --build $(build) --base-only
	@scripts/build $@

# Kernels that check themselves, for the layers debug, stress, failures and kcsan.
kernel-debug kernel-kcsan: packages-demo tree
	@scripts/build $@

perf: packages-demo tree
	@scripts/build perf

# Two kernels of their own: bench/bench.config
bench-kernel: packages-demo tree
	@scripts/tree --build $(build) --base-only
	@scripts/build kernel-base-bench
	@scripts/build kernel-bench
	@bench/kernel --build $(build) $(ARGS)

bench-perf: perf
	@scripts/build perf-base
	@bench/perf --build $(build) $(ARGS)

bench-stacks: packages-check kernel perf
	@scripts/build perf-libdw
	@bench/stacks --build $(build) $(ARGS)

fuzz: packages-check tree
	@scripts/build fuzz-session
	@tests/perf/fuzz --build $(build) --seconds $(or $(FUZZ_SECONDS),600) $(ARGS)

fuzz-cfi: packages-check tree
	@scripts/build fuzz-cfi
	@cd $(build)/fuzz-cfi && ./fuzz-cfi -max_len=65536 -timeout=10 \
		-max_total_time=$(or $(FUZZ_SECONDS),600) corpus

# make itself ends with 2 when a recipe fails, whatever the recipe's status. To end
# with the command's own it loads a function (qemu/makeexit.c), and needs a compiler
# for that before anything else. Without one it prints the status as "Error N".
# build/vm.status has it in both cases. make -n would build the function too, and from
# make 4.4 on end where it cannot.
ifneq ($(filter vm,$(MAKECMDGOALS)),)
ifneq ($(if $(dry),$(wildcard $(build)/vm/makeexit.so),load),)
-load $(build)/vm/makeexit.so
endif
endif

$(build)/vm/makeexit.so: qemu/makeexit.c
	@mkdir -p $(@D)
	@$(if $(dry),,command -v gcc >/dev/null || scripts/packages || :)
	@gcc -O2 -Wall -shared -fPIC -o $@ $< 2>/dev/null || :

loaded = $(filter %/makeexit.so,$(.LOADED))

vm-run: $(which) perf
	@mkdir -p $(build)/demo; rm -f $(build)/vm.status
	@if [ -n "$$RUN_CMD" ]; then $(vm) "$$RUN_CMD"; else $(vm); fi; \
	status=$$?; echo $$status >$(build)/vm.status; \
	$(if $(loaded),,exit $$status)

# make expands a recipe before it runs any line of it: hence two targets. make -n
# expands it too, and runs nothing.
vm: vm-run
	@$(if $(dry),,$(if $(loaded),$(exit-with $(file <$(build)/vm.status)))):

demo: kernel perf
	@scripts/demo --build $(build) --smp $(SMP) --mem $(MEM) \
		$(if $(TIMEOUT),--timeout $(TIMEOUT)) \
		$(if $(DEMO_OUT),--out '$(DEMO_OUT)')

# The first layer builds what the others need.
check: packages-check
	@tests/run --build $(build) $(ARGS)

check-all: packages-all
	@tests/run --all --build $(build) $(ARGS)

clean:
	@scripts/clean $(build)

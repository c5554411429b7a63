# SPDX-License-Identifier: GPL-2.0
#
# The only front door; make help lists what it opens.

# of make -n, which what makes a makefile is not told of
dry := $(findstring n,$(firstword -$(MAKEFLAGS)))
MAKEFLAGS += --no-print-directory
SHELL := /bin/sh

# neither make nor the kernel's build can tell such a name from two; nor can QEMU,
# where there is a comma
comma := ,
ifneq ($(words $(CURDIR))$(findstring :,$(CURDIR))$(findstring $(comma),$(CURDIR)),1)
$(error $(CURDIR): the path has a blank, a colon or a comma, which the kernel's build or QEMU does not take: clone into another)
endif

ifneq ($(words x$(DEMO_OUT))$(findstring :,$(DEMO_OUT))$(findstring $(comma),$(DEMO_OUT)),1)
$(error DEMO_OUT=$(DEMO_OUT): the path has a blank, a colon or a comma, which QEMU does not take: name another)
endif

# what a command says is looked at here and there: in English
export LC_ALL := C.UTF-8
export LANGUAGE :=

build := $(CURDIR)/build
export BUILD := $(build)

# a command may hold anything, a dollar sign too, as it was typed; make itself
# would hand CMD on with its dollar signs looked at
export RUN_CMD := $(value CMD)
unexport CMD
# for how long make demo takes
export DEMO_BEGUN := $(if $(filter demo,$(MAKECMDGOALS)),$(shell date +%s))
export KERNEL_SRC JOBS ACCEL LAYER PEER_PERF SERIES
export STRESS_SECONDS FUZZ_SECONDS FUZZ_EVENTS_SECONDS

SMP ?= 2
MEM ?= 2G
TIMEOUT ?=
ARGS ?=
VERSION ?=

# the kernel that make vm boots
which := $(if $(filter 1 y yes,$(BASE)),kernel-base,kernel)

# the guest sees its own perf first
vm = qemu/run --kernel $(build)/$(which)/arch/x86/boot/bzImage \
	--smp $(SMP) --mem $(MEM) $(if $(TIMEOUT),--timeout $(TIMEOUT)) \
	--rw $(build)/demo \
	--env PATH=$(build)/perf:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
	--env PERF_EXEC_PATH=$(build)/linux-6.12/tools/perf $(ARGS)

.PHONY: vm-run help demo check check-all tree tree-add \
	kernel kernel-base kernel-64 kernel-base-64 kernel-debug kernel-kcsan perf vm \
	series refresh \
	packages packages-tree packages-demo packages-check packages-all bench-kernel bench-perf fuzz clean
.NOTPARALLEL:

help:
	@echo 'The two commands:'
	@echo '  make demo              install, build, boot, profile, show; leaves build/demo/'
	@echo '  make check             what every change has to pass; TAP and logs in build/check/'
	@echo
	@echo 'The parts:'
	@echo '  make packages          install what is missing (apt); scripts/packages --list'
	@echo '  make tree              build/linux-6.12, the patched tree, one git commit a patch'
	@echo '  make tree-add FILES=   put files of the base under git there, to edit them'
	@echo '  make refresh           whole files and patches/ from the commits in that tree'
	@echo '  make series            build/series/*/*.patch, each to mail or to git am, in the'
	@echo '                         order of SERIES'
	@echo '  make kernel            build/kernel/arch/x86/boot/bzImage'
	@echo '  make kernel-debug      the same with KASAN, lockdep and more: build/kernel-debug/'
	@echo '  make kernel-kcsan      the same, watching for data races: build/kernel-kcsan/'
	@echo '  make check-all         all tests; scripts/check --list names the layers, and'
	@echo '                         LAYER= some of them'
	@echo '  make perf              build/perf/perf'
	@echo '  make vm                a shell in the guest'
	@echo '  make vm CMD='"'...'"'      one command there; make ends with its exit status, which'
	@echo '                         is in build/vm.status as well'
	@echo '  make bench-kernel      what a sampled call costs, in instructions, against the'
	@echo '                         base; build/bench/kernel.json'
	@echo '  make bench-perf        how long perf takes for deferred callchains, against the'
	@echo '                         base'"'"'s perf and immediate ones; build/bench/perf.json'
	@echo '  make fuzz              ten minutes of libFuzzer on the reader of perf.data'
	@echo '  make clean             remove build/, unless the tree has unsaved work (FORCE=1)'
	@echo
	@echo 'Variables, each at the end of any of these commands:'
	@echo "  CMD='...'              vm: what to run; demo: what to profile. The host's root is"
	@echo '                         the guest'"'"'s, read-only, with a /tmp, /run and /var/tmp of'
	@echo '                         its own; build/demo/ is writable'
	@echo '  DEMO_OUT=DIR           demo: what it leaves goes there, not to build/demo/'
	@echo '  KERNEL_SRC=PATH        directory or tarball of a 6.12.y, from 6.12.100 on, in'
	@echo '                         place of the package linux-source-6.12; kept until'
	@echo '                         another is named or make clean'
	@echo "  SERIES='kernel perf'   the first of the three series, kernel, perf, perf-fixes:"
	@echo '                         any target that uses the tree makes it of these, without'
	@echo '                         it of all three; another SERIES rewrites what differs'
	@echo '  BASE=1                 vm: boot the base without the series (build/kernel-base)'
	@echo '  SMP=1..8               vm, demo: CPUs of the guest (2)'
	@echo '  MEM=2G                 vm, demo: its memory'
	@echo '  TIMEOUT=SECONDS        vm, demo: for what is run there (600); 0: none'
	@echo '  ACCEL=auto|tcg|kvm     auto: KVM if a probe boot proves it, else TCG'
	@echo "  ARGS='...'             vm: more options for qemu/run (qemu/run --help); check:"
	@echo '                         more for scripts/check; bench-kernel, bench-perf: for'
	@echo '                         bench/kernel, bench/perf (--large 20000000: the memory'
	@echo '                         for so many samples)'
	@echo '  PEER_PERF=PERF         bench-perf: another perf, measured beside them'
	@echo '  FUZZ_SECONDS=N         fuzz: how long (600)'
	@echo "  LAYER='a b'            check, check-all: these layers only; scripts/check --list"
	@echo '  STRESS_SECONDS=N       check, check-all: how long the stress runs (60, 300)'
	@echo '  FUZZ_EVENTS_SECONDS=60 check-all: and the fuzzer of perf_event_open()'
	@echo '  JOBS=N                 compilers at once (all CPUs)'
	@echo '  VERSION=N              series: [PATCH vN ...]'

# what a target needs and no more; the largest set that is asked for comes first
packages packages-check:
	@scripts/packages check

packages-all:
	@scripts/packages all

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

kernel: packages-demo tree
	@scripts/build kernel

kernel-base: packages-demo
	@scripts/tree --build $(build) --base-only
	@scripts/build kernel-base

# without 32-bit programs, for the layer 64
kernel-64: packages-demo tree
	@scripts/build $@

kernel-base-64: packages-demo
	@scripts/tree --build $(build) --base-only
	@scripts/build $@

# what checks itself, for the layers debug, stress and failures, and for kcsan
kernel-debug kernel-kcsan: packages-demo tree
	@scripts/build $@

perf: packages-demo tree
	@scripts/build perf

# both kernels without the tests' hooks, which cost instructions
bench-kernel: kernel-base tree
	@scripts/build kernel-bench
	@bench/kernel --build $(build) $(ARGS)

bench-perf: perf
	@scripts/build perf-base
	@bench/perf --build $(build) $(ARGS)

fuzz: packages-check tree
	@scripts/build fuzz-session
	@scripts/fuzz --build $(build) --seconds $(or $(FUZZ_SECONDS),600) $(ARGS)

# make ends with 2 whatever status other than 0 a recipe had. For the command's
# own it loads a function that ends it (qemu/makeexit.c), for which it needs a
# compiler before anything else; where there will be none, the status is told as
# "Error N". build/vm.status has it in both cases.
# make -n makes it too, and from 4.4 on ends where it could not.
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

# what a recipe says is expanded before any of it is run, hence two targets; and
# with make -n too, which runs nothing
vm: vm-run
	@$(if $(dry),,$(if $(loaded),$(exit-with $(file <$(build)/vm.status)))):

demo: kernel perf
	@scripts/demo --build $(build) --smp $(SMP) --mem $(MEM) \
		$(if $(TIMEOUT),--timeout $(TIMEOUT)) \
		$(if $(DEMO_OUT),--out '$(DEMO_OUT)')

# builds what it needs itself, as its first layer
check: packages-check
	@scripts/check --build $(build) $(ARGS)

check-all: packages-all
	@scripts/check --all --build $(build) $(ARGS)

clean:
	@scripts/clean $(build)

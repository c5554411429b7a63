#!/bin/bash
# Deferred callchains: perf record
# SPDX-License-Identifier: GPL-2.0
#
# Recording only. The events that should ask for deferral do so, and in all modes of
# perf record the data has a record for each deferred sample. On kernels without the
# feature perf records as before.

set -e

err=0
dir=$(mktemp -d /tmp/__perf_test.callchain.XXXXX)
data=$dir/perf.data
log=$dir/log
background=
on=

cleanup()
{
	[ -z "$background" ] || kill "$background" 2> /dev/null || true
	rm -rf "$dir"
	trap - EXIT TERM INT
}

trap_cleanup()
{
	cleanup
	exit 1
}
trap trap_cleanup EXIT TERM INT

# Sleeps in the kernel many times, in one system call after the other
nap='i=0; while [ $i -lt 5 ]; do sleep 0.01; i=$((i+1)); done'

fail()
{
	echo "$1 [Failed]"
	err=1
}

# record ARGS: run perf record, with the data in $data and the messages in $log
record()
{
	rm -rf "$data" "$data".*
	perf record -o "$data" "$@" > /dev/null 2> "$log" || {
		cat "$log"
		fail "perf record $*"
		return 1
	}
}

# bits NAME FILE: print this attribute bit of all events, one digit for each event
bits()
{
	perf evlist -v -i "$2" 2> /dev/null | grep -v '^#' |
		sed "s/.*, $1: 1.*/1/; t; s/.*/0/" | tr -d '\n'
}

# check_bits NAME CALLCHAIN OUTPUT: compare defer_callchain and defer_output of all events
check_bits()
{
	local callchain output

	callchain=$(bits defer_callchain "$data")
	output=$(bits defer_output "$data")
	if [ "$callchain" = "$2" ] && [ "$output" = "$3" ]; then
		echo "$1 [Ok]"
	else
		fail "$1: defer_callchain $callchain for $2, defer_output $output for $3"
	fi
}

# count FILE...: print the number of deferred samples, and how many have no record
count()
{
	local file

	for file in "$@"; do
		perf report -D -i "$file" 2> /dev/null
	done | awk '
		/PERF_RECORD_CALLCHAIN_DEFERRED/ {
			split($0, part, "PERF_RECORD_CALLCHAIN_DEFERRED")
			n = split(part[2], word, " ")
			split(word[3], id, "[/:]")
			got[id[2] " " word[4]] = 1
			next
		}
		/PERF_RECORD_SAMPLE/ {
			split($0, part, "PERF_RECORD_SAMPLE")
			split(part[2], word, " ")
			split(word[3], id, "[/:]")
			tid = id[2]
			marker = 0
			next
		}
		/^\.\.\.\.\. *[0-9]+: / {
			if (marker) {
				sub(/^0*/, "", $NF)
				want[++wanted] = tid " 0x" $NF
			}
			marker = $NF == "fffffffffffffd80"
			next
		}
		{ marker = 0 }
		END {
			for (i = 1; i <= wanted; i++)
				missing += !(want[i] in got)
			print wanted + 0, missing + 0
		}'
}

# check_complete NAME FILE...: there are deferred samples, and each has its record
check_complete()
{
	local name=$1 wanted missing

	shift
	read -r wanted missing <<< "$(count "$@")"

	if [ "$wanted" -gt 0 ] && [ "$missing" -eq 0 ]; then
		echo "$name: $wanted deferred user callchains [Ok]"
	else
		fail "$name: $missing of $wanted deferred user callchains are missing"
	fi
}

# check_messages NAME REGEX LINES: so many lines in $log match
check_messages()
{
	local n

	n=$(grep -c "$2" "$log" || true)
	if [ "$n" -eq "$3" ]; then
		echo "$1 [Ok]"
	else
		cat "$log"
		fail "$1: $n lines for $3"
	fi
}

# --snapshot needs an AUX area event, and there is none here. With callchains perf must
# print the same error as without them, and nothing else.
test_snapshot()
{
	local option name

	for option in "" -g "--call-graph=fp,defer" "--call-graph=fp,nodefer"; do
		name="Snapshot, ${option:-no callchains}"
		# shellcheck disable=SC2086 # there may be no option
		if perf record -o "$data" --snapshot $option -e cpu-clock -- true \
			> /dev/null 2> "$log"; then
			fail "$name"
			continue
		fi
		check_messages "$name" "^No AUX area tracing to snapshot$" 1
		check_messages "$name, nothing else" "" 1
	done
}

# Words that do not go together are refused, and the message names them
test_words()
{
	local words said expected

	for words in "dwarf,defer:'defer' does not go with 'dwarf': expected it with 'fp'" \
		     "nodefer,lbr:'nodefer' does not go with 'lbr': expected it with 'fp'" \
		     "fp,defer,nodefer:'defer' and 'nodefer' .*: expected one of them" \
		     "fp,defer,dwarf:invalid argument 'dwarf': expected only one of .*" \
		     "dwarf,cfi:'cfi' does not go with 'dwarf': expected it with 'fp'" \
		     "nocfi,lbr:'nocfi' does not go with 'lbr': expected it with 'fp'" \
		     "cfi,nocfi:'cfi' and 'nocfi' .*: expected one of them" \
		     "nodefer,cfi:'nodefer' and 'cfi' .*: expected one of them" \
		     "graf:Unknown .* value 'graf': expected 'fp', 'dwarf' or 'lbr'" \
		     "defer,x:invalid argument 'x': expected a frame count, 'defer', .* or 'nocfi'"
	do
		said=${words#*:}
		words=${words%%:*}
		if perf record -o "$data" --call-graph "$words" -e cpu-clock -- true \
			> /dev/null 2> "$log"; then
			fail "--call-graph $words"
		else
			check_messages "--call-graph $words is refused" "^callchain: $said$" 1
		fi
	done
	# perf top has the print options in the same option, and some of them are numbers
	expected="expected 'fp', 'dwarf', 'lbr', 'defer', .*, a number, 'graph', .* or 'count'"
	for words in "fp,defer,dwarf:invalid argument 'dwarf': expected only one of .*" \
		     "defer,0.5,fp,graf:Unknown .* value 'graf': $expected" \
		     "0.5,defer,graf:Unknown .* value 'graf': $expected" \
		     ".5,defer,graf:Unknown .* value 'graf': $expected"; do
		said=${words#*:}
		words=${words%%:*}
		if timeout 60 perf top --stdio --call-graph "$words" \
		   < /dev/null > /dev/null 2> "$log"; then
			fail "perf top --call-graph $words"
		else
			check_messages "perf top --call-graph $words is refused" \
				"^callchain: $said$" 1
			check_messages "perf top --call-graph $words, nothing else" "^callchain:" 1
		fi
	done
	# If the option of a single event is wrong, perf prints an error, and records the
	# event like the others. All wrong options of events are handled so.
	record -e "cpu-clock/call-graph='dwarf,defer'/" -- true || return 0
	check_messages "call-graph='dwarf,defer' of an event" \
		"^callchain: 'defer' does not go with 'dwarf': expected it with 'fp'$" 1
}

# attributes OUTPUT ARGS: record into a file or a pipe, and print the events' attributes
attributes()
{
	local output=$1

	shift
	perf record -o "$output" -e "$events" "$@" -- true \
		9<> "$dir/control" > "$dir/pipe.data" 2> "$log" || {
		cat "$log"
		echo "perf record $* failed"
		return 0
	}
	[ "$output" != - ] || output=$dir/pipe.data
	perf evlist -v -i "$output" 2>&1
}

# same_attributes NAME ARGS: the attributes are the same by default and with nodefer
same_attributes()
{
	local name=$1 output form events=${events:-cpu-clock,task-clock}

	shift
	[ -p "$dir/control" ] || mkfifo "$dir/control"
	for output in "$data" -; do
		form="file"
		[ "$output" != - ] || form="pipe"
		attributes "$output" "$@" > "$dir/default"
		attributes "$output" "$@" --call-graph fp,nodefer > "$dir/forbidden"
		if grep -q CALLCHAIN "$dir/default" &&
		   diff "$dir/default" "$dir/forbidden" > "$dir/diff"; then
			echo "$name, $form [Ok]"
		else
			cat "$dir/default" "$dir/forbidden"
			fail "$name, $form"
		fi
	done
}

# Does the kernel have the attribute bits?
has_bits()
{
	perf record -o "$dir/bits.data" --call-graph fp,defer -e cpu-clock -- true 2>&1 |
		grep -q "cannot defer user callchains" && return 1
	return 0
}

test_fallback()
{
	record -vv -g -e cpu-clock,task-clock -- true || return 0
	check_messages "-vv says why" "^User callchains are not deferred: " 1

	record -g -e cpu-clock,task-clock -- true || return 0
	check_messages "Silent by default" "WARNING\|deferred" 0
	check_bits "Recorded as before" 00 00
	if perf evlist -v -i "$data" 2> /dev/null | grep -q CALLCHAIN; then
		echo "Callchains without deferral [Ok]"
	else
		fail "Callchains without deferral"
	fi

	# Tables are for kernels that take them
	record -v -g -e cpu-clock,task-clock -- true || return 0
	check_messages "-v says why there are no tables" "^No unwinding tables, " 1
	record --call-graph fp,cfi -e cpu-clock,task-clock -- true || return 0
	check_messages "Warning when tables are asked for by name" \
		"^WARNING: No unwinding tables, " 1
	check_bits "Recorded as before, tables asked for by name" 00 00
	record -v --call-graph fp,nocfi -e cpu-clock,task-clock -- true || return 0
	check_messages "Tables not looked for when forbidden" "unwinding tables" 0

	# Other kernels may have the attribute bits, but not kernel.perf_event_defer
	if ! has_bits; then
		record --call-graph fp,defer -e cpu-clock,task-clock -- true || return 0
		check_messages "Warning when asked for by name" \
			"^WARNING: This kernel cannot defer user callchains" 1
		check_bits "Recorded as before, asked for by name" 00 00

		printf '[call-graph]\n\trecord-mode = fp,defer\n' > "$dir/config"
		PERF_CONFIG=$dir/config record -g -e cpu-clock,task-clock -- true || return 0
		check_messages "Warning when asked for by name in the configuration" \
			"^WARNING: This kernel cannot defer user callchains" 1
	fi

	record -vv --call-graph fp,nodefer -e cpu-clock,task-clock -- true || return 0
	check_messages "Not looked at when forbidden" "not deferred" 0

	# Without deferral perf adds no times to a pipe, and no event for the callchains
	same_attributes "Attributes" -g
	same_attributes "Attributes, per thread" --per-thread -g
	events='{page-faults/max-stack=4/,context-switches}' \
		same_attributes "Attributes, a leader with a smaller max-stack" -g
}

# live WORDS: run perf trace and perf top with callchains, with all output in $log
live()
{
	perf trace --call-graph "$1" --no-syscalls -e page-faults/period=1/ -- true \
		> "$log" 2>&1 || {
		cat "$log"
		fail "perf trace --call-graph $1"
		return 1
	}
	# perf top throws away keys that come before its first display. At the end of
	# its input it would poll without end, so keep the input open after the q.
	(
		for _ in $(seq 100); do
			grep -q "PerfTop:" "$log" && break
			sleep 1
		done
		sleep 1
		echo q
		sleep 2
	) | timeout 150 perf top --stdio -d 1 --call-graph "$1" -e cpu-clock \
		>> "$log" 2>&1 || {
		cat "$log"
		fail "perf top --call-graph $1"
		return 1
	}
	if ! grep -q "page-faults/period=1/(" "$log" || ! grep -q "PerfTop:" "$log" ||
	   ! grep -q "do_syscall_64" "$log"; then
		cat "$log"
		fail "perf trace and perf top, --call-graph $1"
		return 1
	fi
}

test_fallback_live()
{
	if ! perf version --build-options 2> /dev/null | grep -q 'libtraceevent: \[ on'; then
		echo "perf trace and perf top: no perf trace in this build [Skipped]"
		return 0
	fi
	live fp || return 0
	check_messages "perf trace and perf top, silent by default" "WARNING\|deferred" 0
	has_bits || {
		live fp,defer || return 0
		check_messages "perf trace and perf top, warning when asked for by name" \
			"^WARNING: This kernel cannot defer user callchains" 2
	}
	live fp,nodefer || return 0
	check_messages "perf trace and perf top, silent when forbidden" "WARNING\|deferred" 0
}

# The last digit is for the event that perf adds for the callchains
test_attributes()
{
	record -vv -g -e cpu-clock -- true || return 0
	check_messages "No fallback" "not deferred\|WARNING" 0
	check_messages "defer_callchain in -vv" "^  defer_callchain  *1$" 1
	check_messages "defer_output in -vv" "^  defer_output  *1$" 1
	check_bits "One event" 10 01

	record -g -e cpu-clock,task-clock,context-switches -- true || return 0
	check_bits "Three events" 1110 0001
	record -g -e '{cpu-clock,task-clock}' -- true || return 0
	check_bits "Group" 110 001
	record -g -e '{page-faults/max-stack=4/,context-switches}' -- true || return 0
	check_bits "Group, leader with a smaller max-stack" 110 001
	record -g -e '{cpu-clock,task-clock}:S,page-faults' -- true || return 0
	check_bits "Group, sampled by its leader" 1110 0001
	record -e cpu-clock,task-clock/call-graph=fp/ -- true || return 0
	check_bits "One event with call-graph=fp" 010 001
	record -a -g -e cpu-clock,task-clock -- true || return 0
	check_bits "System wide" 110 001
	record -C 0 -g -e cpu-clock -- true || return 0
	check_bits "One CPU" 10 01
	record -g -e dummy,cpu-clock -- true || return 0
	check_bits "A dummy that is there" 11 10
	record --call-graph fp,defer -e cpu-clock -- true || return 0
	check_bits "Asked for by name" 10 01
	check_messages "Asked for by name, no warning" "WARNING" 0
	record --call-graph fp,nodefer -e cpu-clock -- true || return 0
	check_bits "Forbidden" 0 0
	record --call-graph dwarf -e cpu-clock -- true || return 0
	check_bits "dwarf" 0 0
	record -g --kernel-callchains -e cpu-clock -- true || return 0
	check_bits "Kernel callchains only" 00 00
	record -g --user-callchains -e cpu-clock -- true || return 0
	check_bits "User callchains only" 10 01

	# With a mode in the configuration, but no -g, there are no callchains to add it for
	printf '[call-graph]\n\trecord-mode = fp\n' > "$dir/config"
	PERF_CONFIG=$dir/config record -e '{page-faults/overwrite/,context-switches}' -- true ||
		return 0
	check_bits "No callchains" 00 00

	# perf test reads no configuration, so the tests above are not affected by one
	printf '[call-graph]\n\trecord-mode = fp,nodefer\n' > "$dir/config"
	PERF_CONFIG=$dir/config record -g -e cpu-clock -- true || return 0
	check_bits "Forbidden by the configuration" 0 0
	PERF_CONFIG=$dir/config record --call-graph fp,defer -e cpu-clock -- true || return 0
	check_bits "Forbidden by the configuration, asked for by name" 10 01

	# The administrator's switch
	if echo 0 2> /dev/null > /proc/sys/kernel/perf_event_defer; then
		record -g -e cpu-clock -- true || true
		check_bits "kernel.perf_event_defer is 0" 0 0
		record --call-graph fp,defer -e cpu-clock -- true || true
		check_bits "kernel.perf_event_defer is 0, asked for by name" 10 01
		check_messages "kernel.perf_event_defer is 0, no warning" "WARNING" 0
		echo 1 > /proc/sys/kernel/perf_event_defer
	fi
}

# mode NAME ARGS: record the naps with these options
mode()
{
	local name=$1

	shift
	# shellcheck disable=SC2086 # $on is a command with an argument, or nothing
	record -g -e page-faults,cpu-clock -c 1 "$@" -- $on sh -c "$nap" || return 0
	check_complete "$name" "$data"
}

test_modes()
{
	record -g -e page-faults -c 1 -- sh -c "$nap" || return 0
	check_complete "One event" "$data"

	mode "Two events" -c 1000000
	mode "System wide" -a -c 1000000
	# Elsewhere the naps may leave this CPU idle
	! command -v taskset > /dev/null || on="taskset 1"
	mode "One CPU" -C 0 -c 1000000
	on=
	mode "No inherit" --no-inherit -c 1000000
	mode "Per thread" --per-thread -c 1000000
	mode "Overwritable buffers" --overwrite -m 1M -c 1000000
	mode "User callchains only" --user-callchains -c 1000000
	mode "Frame limit" --call-graph fp,defer,4 -c 1000000
	if perf record --help 2>&1 | grep -q -- --aio; then
		mode "Asynchronous writing" --aio -c 1000000
	fi
	if perf version --build-options 2> /dev/null | grep -q 'zstd: \[ on'; then
		mode "Compression" -z -c 1000000
	fi

	# A directory with a file for each thread
	mode "Parallel threads" --threads -c 1000000

	perf record -g -e page-faults -c 1 -o - -- sh -c "$nap" > "$dir/pipe.data" 2> "$log"
	check_complete "Pipe" "$dir/pipe.data"

	# At a switch one record for each CPU may be in the next file, so read all files
	record -g -e page-faults -c 1 --switch-output=16K -- sh -c "$nap; $nap" || return 0
	check_complete "Switched output" "$data".*
}

# These tasks never return to user space while they are profiled. The kernel must write
# their records when they fall asleep.
test_sleepers()
{
	local event=$asleep naps=$dir/naps
	# A command that ends when the process below has slept twice more
	local until_naps='n=$(($(wc -l < "$0") + 2))
		until [ "$(wc -l < "$0")" -ge $n ]; do sleep 0.1; done'

	record -g -e "$event" -- \
		sh -c 'sleep 30 & echo $! > "$0/pid"; sleep 0.2' "$dir" || return 0
	kill "$(cat "$dir/pid")"
	check_complete "Children that outlive the command" "$data"

	: > "$naps"
	sh -c 'while :; do sleep 0.05; echo >> "$0"; done' "$naps" &
	background=$!
	record -a -g -e "$event" -- sh -c "$until_naps" "$naps" || return 0
	check_complete "System wide, tasks asleep at the end" "$data"

	record -g -e "$event" -p "$background" -- sh -c "$until_naps" "$naps" || return 0
	check_complete "Process asleep at the end" "$data"
	record -g -e "$event" -t "$background" -- sh -c "$until_naps" "$naps" || return 0
	check_complete "Thread asleep at the end" "$data"
	kill "$background"
	background=
}

# The event that gets the callchains must be disabled last.
test_order()
{
	local fds order

	if ! perf record -o "$data" -e syscalls:sys_enter_ioctl -- true > /dev/null 2>&1; then
		echo "Order of disabling: cannot trace ioctl [Skipped]"
		return 0
	fi

	# PERF_EVENT_IOC_DISABLE
	perf record -o "$data" -e syscalls:sys_enter_ioctl --filter 'cmd == 0x2401' -- \
		perf record -vv -o "$dir/inner.data" -g -e cpu-clock,task-clock \
			-p $$ -- true > /dev/null 2> "$log" || true

	# The file descriptors of the event with defer_output
	fds=$(awk '/^perf_event_attr:/ { output = 0 }
		   /^  defer_output  *1$/ { output = 1 }
		   /^sys_perf_event_open:.* = [0-9]+$/ && output { printf "%d ", $NF }' "$log")
	order=$(perf script -i "$data" -F trace 2> /dev/null |
		sed -n 's/.*fd: 0x0*\([0-9a-f]\+\),.*/\1/p' | while read -r fd; do
			echo -n "$((16#$fd)) "
		done)

	if [ -n "$fds" ] && [ "$order" != "$fds" ] && [ "${order%"$fds"}" != "$order" ]; then
		echo "Order of disabling [Ok]"
	else
		fail "Order of disabling: '$order' does not end in '$fds'"
	fi
}

if ! perf record -o "$data" -g -e cpu-clock -- true > "$log" 2>&1; then
	cat "$log"
	echo "Cannot record callchains [Skipped]"
	cleanup
	exit 2
fi

# Sample a system call that sleeps, if the kernel has tracepoints for system calls
asleep=page-faults
if perf record -o "$data" -e syscalls:sys_enter_wait4 -- true > /dev/null 2>&1; then
	asleep=syscalls:sys_enter_wait4
fi

test_words
test_snapshot

if [ "$(cat /proc/sys/kernel/perf_event_defer 2> /dev/null)" != 1 ]; then
	test_fallback
	test_fallback_live
	if [ $err -eq 0 ]; then
		echo "The kernel defers no user callchains by default [Skipped]"
		err=2
	fi
else
	test_attributes
	test_modes
	test_sleepers
	test_order
fi

cleanup
exit $err

#!/bin/bash
# Deferred callchains: perf script, report and inject
# SPDX-License-Identifier: GPL-2.0
#
# Record once, and read the data with each command. The frames of a merged sample
# must be the frames of the recorded sample, followed by those of the record with
# the same cookie.

set -e

err=0
dir=$(mktemp -d /tmp/__perf_test.callchain.XXXXX)
data=$dir/perf.data
log=$dir/log

cleanup()
{
	rm -rf "$dir"
	trap - EXIT TERM INT
}

trap_cleanup()
{
	cleanup
	exit 1
}
trap trap_cleanup EXIT TERM INT

# Sleeps in the kernel many times, and leaves a child that still sleeps at the end
nap='i=0; while [ $i -lt 5 ]; do sleep 0.01; i=$((i+1)); done; sleep 1 &'

ok()
{
	echo "$1 [Ok]"
}

fail()
{
	echo "$1 [Failed]"
	err=1
}

# check NAME COMMAND: the command must succeed
check()
{
	local name=$1

	shift
	if "$@"; then
		ok "$name"
	else
		fail "$name"
	fi
}

# same FILE FILE: compare, and show the begin of the differences
same()
{
	diff "$1" "$2" > "$dir/diff" && return 0
	head -n 6 "$dir/diff" | cut -c 1-300
	return 1
}

# frames FILE [OPTION]: print a line for each sample, with tid, time and addresses.
# The line of a record begins with "record", and has the cookie in place of the time.
frames()
{
	perf script -i "$@" -F tid,time,ip 2> "$log" | awk '
		function flush() {
			if (line != "")
				print line
			line = ""
		}
		/^$/ { flush(); next }
		/DEFERRED CALLCHAIN/ {
			match($0, /cookie: [0-9a-f]+/)
			line = "record " $1 " " substr($0, RSTART + 8, RLENGTH - 8)
			next
		}
		/not available/ { line = line " missing"; next }
		/\(cookie\)/ { line = line " cookie " $1; next }
		line == "" { line = $1 " " $2; next }
		{ line = line " " $1 }
		END { flush() }'
}

# Merge the output of frames --no-merge-callchains, as perf must do it
merge()
{
	awk '
		$1 == "record" {
			key = $2 " " $3
			$1 = $2 = $3 = ""
			sub(/^ */, "")
			chain[key] = $0
			next
		}
		{ sample[++n] = $0 }
		END {
			for (i = 1; i <= n; i++) {
				at = index(sample[i], " cookie ")
				if (at) {
					split(sample[i], word, " ")
					key = word[1] " " substr(sample[i], at + 8)
					sample[i] = substr(sample[i], 1, at) \
						    (chain[key] == "" ? "missing" : chain[key])
				}
				print sample[i]
			}
		}'
}

test_script()
{
	frames "$data" --no-merge-callchains > "$dir/recorded"
	frames "$data" > "$dir/merged"
	merge < "$dir/recorded" > "$dir/wanted"

	check "Deferred samples" grep -q ' cookie ' "$dir/recorded"
	check "Callchains on their own" grep -q '^record ' "$dir/recorded"
	check "Merged" same "$dir/wanted" "$dir/merged"
	if grep -q 'cookie\|^record' "$dir/merged"; then
		fail "No cookie among the merged"
	else
		ok "No cookie among the merged"
	fi
}

# stat NAME: print this count from perf report --stats, 0 if it is not there
stat()
{
	awk -v name="$1:" 'index($0, name) { n = $NF } END { print n + 0 }' "$dir/stats"
}

test_report()
{
	perf report -i "$data" --stats > "$dir/stats" 2> "$log"
	check "Number of deferred ones" \
		[ "$(stat 'user callchains deferred')" -eq "$(grep -c ' cookie ' "$dir/recorded")" ]
	check "Number of missing ones" \
		[ "$(stat 'user callchains not available')" -eq \
		  "$(grep -c ' missing' "$dir/wanted" || true)" ]
	check "Numbers in the header" \
		[ "$(perf report -i "$data" --header-only 2> "$log" |
		     grep -c 'defer_callchain = 1')" -eq 2 ]
	perf report -i "$data" --stdio --no-children -g callee > "$dir/report" 2> "$log"
	check "Callchains in perf report" grep -q -- '--' "$dir/report"
	if grep -q '(cookie)' "$dir/report"; then
		fail "No cookie in perf report"
	else
		ok "No cookie in perf report"
	fi
	perf report -D -i "$data" > "$dir/dump" 2> "$log"
	check "Raw dump" \
		[ "$(grep -c 'PERF_RECORD_CALLCHAIN_DEFERRED(IP, 0x2)' "$dir/dump")" -eq \
		  "$(grep -c '^record ' "$dir/recorded")" ]
}

test_inject()
{
	perf inject -i "$data" -o "$dir/through" > "$log" 2>&1
	frames "$dir/through" --no-merge-callchains > "$dir/frames"
	check "Injected as recorded" same "$dir/recorded" "$dir/frames"

	perf inject --merge-callchains -i "$data" -o "$dir/plain" > "$log" 2>&1
	frames "$dir/plain" --no-merge-callchains > "$dir/frames"
	sed 's/ missing$//' "$dir/merged" > "$dir/wanted"
	check "Merged for others" same "$dir/wanted" "$dir/frames"
	if perf evlist -v -i "$dir/plain" 2> "$log" | grep -q defer_; then
		fail "No bits left for others"
	else
		ok "No bits left for others"
	fi
}

test_pipe()
{
	perf record -g -e page-faults,cpu-clock -c 1000000 -o - -- sh -c "$nap" \
		> "$dir/pipe" 2> "$log"
	frames - --no-merge-callchains < "$dir/pipe" > "$dir/recorded"
	# In a pipe a record can come after its samples
	merge < "$dir/recorded" > "$dir/wanted"
	frames - < "$dir/pipe" > "$dir/merged"
	check "Merged from a pipe" same "$dir/wanted" "$dir/merged"
}

if ! perf record -vv -o "$data" -g -e page-faults,cpu-clock -c 1000000 -- \
	sh -c "$nap" > /dev/null 2> "$log"; then
	cat "$log"
	echo "Cannot record callchains [Skipped]"
	cleanup
	exit 2
fi

if grep -q "^User callchains are not deferred" "$log"; then
	echo "The kernel defers no user callchains by default [Skipped]"
	cleanup
	exit 2
fi

test_script
test_report
test_inject
test_pipe

cleanup
exit $err

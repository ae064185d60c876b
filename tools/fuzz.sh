#!/bin/sh
# Runs every fuzz target of the main module for the given time, one after another, and reports the
# CPU time and findings of each.
#
#     tools/fuzz.sh 10s
#     tools/fuzz.sh 2m docs/fuzzing.md 1     # append the results to a ledger; with one worker
set -eu

fuzztime=$1
ledger=${2:+$(realpath "$2")}
workers=${3:-$(nproc)}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# spend sets spent to the CPU time, in seconds, of all programs started by this shell. It must not
# run in a subshell, which has its own times.
spend() {
	times >"$tmp/times"
	spent=$(awk -F'[ms ]+' 'NR == 2 { printf "%.0f", $1 * 60 + $2 + $3 * 60 + $4 }' "$tmp/times")
}

grep -r --include='*_test.go' -o '^func Fuzz[A-Za-z0-9_]*' . | sort >"$tmp/targets"
while IFS=: read -r file target; do
	target=${target#func }
	dir=$(dirname "$file")
	echo "fuzz: $dir $target"
	# Build first, to exclude the compiler's time. The cache is that of go test. With limiterhooks,
	# the limiter overwrites memory with garbage before it reuses it.
	(cd "$dir" && go test -c -tags limiterhooks -o "$tmp/test" -fuzz "^$target\$" .) >&2
	cache=$(go env GOCACHE)/fuzz/$(cd "$dir" && go list .)
	spend
	before=$spent
	status=0
	(cd "$dir" && "$tmp/test" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "$fuzztime" \
		-test.fuzzcachedir "$cache" -test.parallel "$workers") >"$tmp/log" 2>&1 </dev/null || status=$?
	cat "$tmp/log"
	# Go before 1.27 may report the end of the fuzz time as a failure (golang/go issue 75804). Real
	# failures name the failing input.
	if [ "$status" != 0 ]; then
		if ! grep -q 'context deadline exceeded' "$tmp/log" || grep -q 'Failing input' "$tmp/log"; then
			exit 1
		fi
		echo "fuzz: $dir $target: only the time ran out"
	fi
	found=$(sed -n 's/^fuzz: elapsed:.* execs: \([0-9]*\) .*new interesting: \([0-9]*\) (total: \([0-9]*\)).*/\1 | \2 | \3/p' "$tmp/log" | tail -n 1)
	spend
	row="| \`${dir#./}.$target\` | $(date -u +%F) | $((spent - before)) | ${found:-0 | 0 | 0} |"
	echo "$row"
	if [ -n "$ledger" ]; then
		echo "$row" >>"$ledger"
	fi
done <"$tmp/targets"

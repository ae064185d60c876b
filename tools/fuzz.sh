#!/bin/sh
# Runs every fuzz target of the main module for the given time, one after another: tools/fuzz.sh 10s
set -eu

fuzztime=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

grep -r --include='*_test.go' -o '^func Fuzz[A-Za-z0-9_]*' . | sort >"$tmp/targets"
while IFS=: read -r file target; do
	target=${target#func }
	dir=$(dirname "$file")
	echo "fuzz: $dir $target"
	# The cache is that of go test. With limiterhooks, the limiter overwrites memory with garbage before
	# it reuses it.
	(cd "$dir" && go test -c -tags limiterhooks -o "$tmp/test" -fuzz "^$target\$" .) >&2
	cache=$(go env GOCACHE)/fuzz/$(cd "$dir" && go list .)
	status=0
	(cd "$dir" && "$tmp/test" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "$fuzztime" \
		-test.fuzzcachedir "$cache") >"$tmp/log" 2>&1 </dev/null || status=$?
	cat "$tmp/log"
	# Go before 1.27 may report the end of the fuzz time as a failure (golang/go issue 75804). Real
	# failures name the failing input.
	if [ "$status" != 0 ]; then
		if ! grep -q 'context deadline exceeded' "$tmp/log" || grep -q 'Failing input' "$tmp/log"; then
			exit 1
		fi
		echo "fuzz: $dir $target: only the time ran out"
	fi
done <"$tmp/targets"

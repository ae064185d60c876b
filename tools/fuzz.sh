#!/bin/sh
# Runs every fuzz target of the main module for the time given, one after another.
#
#     tools/fuzz.sh 10s
set -eu

fuzztime=$1
log=$(mktemp)
trap 'rm -f "$log"' EXIT

grep -r --include='*_test.go' -o '^func Fuzz[A-Za-z0-9_]*' . | sort |
	while IFS=: read -r file target; do
		target=${target#func }
		dir=$(dirname "$file")
		echo "fuzz: $dir $target"
		status=0
		(cd "$dir" && go test -run '^$' -fuzz "^$target\$" -fuzztime "$fuzztime" .) \
			>"$log" 2>&1 </dev/null || status=$?
		cat "$log"
		[ "$status" = 0 ] && continue
		# Go before 1.27 may report the end of the fuzz time itself as a failure
		# (golang/go issue 75804). A real one names the input that failed.
		if grep -q 'context deadline exceeded' "$log" && ! grep -q 'Failing input' "$log"; then
			echo "fuzz: $dir $target: only the time ran out"
			continue
		fi
		exit 1
	done

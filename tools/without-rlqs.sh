#!/usr/bin/env bash
# Shows that the rate limit quota service is one tree: a copy without rlqs/, the file that adds it
# to the program and the tests that use it builds, and its other tests pass. Prints what it removed.
#
#     tools/without-rlqs.sh          # build, and test the packages that knew the tree
set -euo pipefail

cd "$(dirname "$0")/.."
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files -z | xargs -0 cp --parents -t "$copy"
cd "$copy"
rm -r rlqs e2e/quota
users=$(grep -rl --include=*.go -e 'sluice/rlqs"' -e 'sluice/rlqs/' .)
for file in $users; do
	case "$file" in
	*_test.go | ./cmd/sluice/quotas.go) ;;
	*) echo "$file imports rlqs: only cmd/sluice/quotas.go may" >&2; exit 1 ;;
	esac
	# Tests of the same stream in several files.
	rm -f "$file" "${file%_test.go}_ends_test.go"
	echo "without $file"
done
go build ./...
go vet ./...
go test ./cmd/sluice ./descriptors ./server/...

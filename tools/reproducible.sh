#!/bin/sh
# Builds bin/sluice twice, from copies of this tree in two directories, the second
# time with an empty build cache, and fails unless both are the same bytes.
#
#     tools/reproducible.sh MAKE...
#
# MAKE... is the make to call, with the variables that the builds shall have.
set -eu

dir=$(mktemp -d)
trap 'chmod -R u+w "$dir" && rm -rf "$dir"' EXIT

for copy in one a/longer/path; do
	mkdir -p "$dir/$copy"
	git ls-files -z --cached --others --exclude-standard |
		tar -c --null --ignore-failed-read -T - 2>/dev/null | tar -x -C "$dir/$copy"
done
"$@" -s -C "$dir/one" build
GOCACHE=$dir/cache "$@" -s -C "$dir/a/longer/path" build

one=$(sha256sum <"$dir/one/bin/sluice")
two=$(sha256sum <"$dir/a/longer/path/bin/sluice")
if [ "$one" != "$two" ]; then
	echo "reproducible: two builds of one tree differ: sha256 ${one%% *} and ${two%% *}" >&2
	exit 1
fi
echo "reproducible: two builds, one digest: sha256 ${one%% *}"

#!/bin/sh
# Builds the files of a release twice, from copies of this tree in two directories, the second time
# with an empty build cache, and fails if they differ.
#
#     tools/reproducible.sh MAKE...
#
# MAKE... is the make command to run, with the variables of the builds.
set -eu

dir=$(mktemp -d)
trap 'chmod -R u+w "$dir" && rm -rf "$dir"' EXIT

for copy in one a/longer/path; do
	mkdir -p "$dir/$copy"
	git ls-files -z --cached --others --exclude-standard |
		tar -c --null --ignore-failed-read -T - 2>/dev/null | tar -x -C "$dir/$copy"
	# Only a tree that git knows is signed.
	echo "gitdir: $(git rev-parse --absolute-git-dir)" >"$dir/$copy/.git"
done
"$@" -s -C "$dir/one" release DIST=dist PUSH= >"$dir/log"
GOCACHE=$dir/cache "$@" -s -C "$dir/a/longer/path" release DIST=dist PUSH= >"$dir/log"

# The binaries, the archives, the chart, the SBOMs, the tars, the provenance, the signatures, and the
# index of the layout, which contains the digests of all its other files.
one=$(cd "$dir/one/dist" && sha256sum sluice* SHA256SUMS* oci/index.json)
two=$(cd "$dir/a/longer/path/dist" && sha256sum sluice* SHA256SUMS* oci/index.json)
if [ "$one" != "$two" ]; then
	printf 'reproducible: two builds of one tree differ:\n%s\nand\n%s\n' "$one" "$two" >&2
	exit 1
fi
printf 'reproducible: two builds, one digest each:\n%s\n' "$one"

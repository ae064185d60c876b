#!/bin/sh
# Puts the PyPI package grpcio, a client over gRPC's C core, into the directory given,
# for the Python 3 that is installed here.
#
#     tools/grpcio.sh 1.85.1 .build/grpcio-1.85.1
#
# Safe to interrupt: the directory appears under its name only when it is whole and has
# been imported once.
set -eu

version=$1
target=$2

fail() {
	printf 'grpcio: %s\n' "$@" >&2
	exit 1
}

command -v python3 >/dev/null || fail "python3 is not installed."
python3 -c 'import ensurepip, venv' 2>/dev/null ||
	fail "python3 has no venv module (Debian, Ubuntu: apt-get install python3-venv)."

mkdir -p "$(dirname "$target")"
work=$(mktemp -d "$(dirname "$target")/grpcio-install.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

echo "grpcio: installing $version (once)"
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: \
	--target "$work/grpcio" "grpcio==$version" ||
	fail "pip could not install grpcio $version for $(python3 --version)."
PYTHONPATH="$work/grpcio" python3 -c 'import grpc' || fail "grpcio $version does not run here."
mv "$work/grpcio" "$target"

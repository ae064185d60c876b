#!/usr/bin/env bash
# Runs the tests of the shared store on Redis 6.2 and 8, which it downloads, on a redis-server in
# the PATH, and on the servers in STORE_BINS, one after another.
#
#     tools/test-stores.sh .build
set -euo pipefail

build=$1
tools=$(dirname "$0")
servers=()
for version in 6.2.14 8.2.3; do
	if [ -x "$build/redis-$version" ] || "$tools/redis.sh" $version "$build/redis-$version"; then
		servers+=("$build/redis-$version")
	fi
done
! mine=$(command -v redis-server) || servers+=("$mine")
IFS=: read -ra others <<<"${STORE_BINS:-}"
servers+=("${others[@]}")

export SLUICE_NOT_RUN STORE_BINS=
SLUICE_NOT_RUN=$(mktemp)
trap 'rm -f "$SLUICE_NOT_RUN"' EXIT
tested=
for server in "${servers[@]}"; do
	version=$("$server" --version)
	echo "test-stores: $version"
	tested+="$version "
	VALKEY_BIN=$server go test -tags more -count=1 -timeout 15m ./store/... || exit 1
	VALKEY_BIN=$server go test -count=1 -timeout 15m ./e2e/proxy -run TestReplicasShareAStore || exit 1
done
for major in 6 7 8; do
	case $tested in
	*"Redis server v=$major."*) ;;
	*) echo "the shared store on Redis $major: name one in STORE_BINS" >>"$SLUICE_NOT_RUN" ;;
	esac
done
sort -u "$SLUICE_NOT_RUN" | while read -r why; do echo "make test-stores: passed WITHOUT $why"; done

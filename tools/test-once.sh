#!/usr/bin/env bash
# Runs the tests of a directory, unless they have passed with the same inputs: then it prints a
# line. If FRESH is set it always runs them.
#
#     tools/test-once.sh conformance/h2spec [FILE or DIRECTORY...]
#
# The inputs are the sources of the directory and of sluice, the given files and directories, the
# versions of all dependencies and of Go, the tools in .build, and the variables below. Tests that
# skipped something, such as for lack of a browser, run again.
set -euo pipefail

cd "$(dirname "$0")/.."
folder=$1
stamp=.build/passed/${folder//\//-}

# Lists the project's files in the packages of a directory and in their dependencies, and their
# tests with -test.
sources() {
	(cd "$1" && go list -deps ${2-} -f '{{if not .Standard}}{{$dir := .Dir}}
		{{- range .GoFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}
		{{- range .SFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}
		{{- range .EmbedFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}{{end}}' ./...) | sed -n "\\:^$PWD/.*//:d; s:^$PWD/::p"
}

inputs() {
	local module
	module=$(dirname "$(cd "$folder" && go env GOMOD)")
	go version
	go env GOFLAGS CGO_ENABLED GOOS GOARCH GOFIPS140
	echo "${ENVOY_BIN-} ${CHROMIUM_BIN-} ${SLUICE_NAMESPACES-}"
	echo .build/*-[0-9]*
	{
		sources "$folder" -test
		sources cmd/sluice
		find "$@" go.mod go.sum "$module"/go.mod "$module"/go.sum -type f
	} | LC_ALL=C sort -u | xargs -d '\n' sha256sum
}

now=$(inputs "$@" | sha256sum)
if [ -z "${FRESH-}" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$now" ]; then
	echo "skipped	$folder: passed with the same inputs (FRESH=1 runs it)"
	exit 0
fi

left=$(mktemp)
trap 'rm -f "$left"' EXIT
(cd "$folder" && SLUICE_NOT_RUN=$left go test -count=1 -shuffle=on -p 3 -timeout 1h ./...)
if [ -s "$left" ]; then
	cat "$left" >>"${SLUICE_NOT_RUN:-/dev/null}"
	exit 0
fi
mkdir -p .build/passed
echo "$now" >"$stamp"

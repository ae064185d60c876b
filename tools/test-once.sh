#!/usr/bin/env bash
# Runs the tests of a folder unless they have passed with the same inputs: then it prints a line. With
# FRESH set it always runs them.
#
#     tools/test-once.sh judges/h2spec [FILE or FOLDER...]
#
# The inputs are sluice's own sources, the folder, the files and folders given, the versions of all
# dependencies and of Go, the tools in .build, and the variables below. A test that left something out,
# such as one without a browser, has not passed with anything.
set -euo pipefail

cd "$(dirname "$0")/.."
folder=$1
stamp=.build/passed/${folder//\//-}

# The sources that the binary and the helpers of the tests are built from.
sources() {
	go list -deps -f '{{if .Module}}{{if .Module.Main}}{{$dir := .Dir}}
		{{- range .GoFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}
		{{- range .SFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}
		{{- range .EmbedFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}{{end}}{{end}}' ./cmd/sluice ./e2e/suite
}

inputs() {
	go version
	go env GOFLAGS CGO_ENABLED GOOS GOARCH GOFIPS140
	echo "${ENVOY_BIN-} ${CHROMIUM_BIN-} ${SLUICE_NAMESPACES-}"
	ls -d .build/*-[0-9]* 2>/dev/null || true
	{
		sources
		find "$@" go.mod go.sum -type f
	} | sed '/^$/d' | sed "s:^$PWD/::" | LC_ALL=C sort -u | xargs -d '\n' sha256sum
}

now=$(inputs "$@" | sha256sum)
if [ -z "${FRESH-}" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$now" ]; then
	echo "skipped	$folder: passed with the same inputs (FRESH=1 runs it)"
	exit 0
fi

left=$(mktemp)
trap 'rm -f "$left"' EXIT
(cd "$folder" && SLUICE_NOT_RUN=$left go test -count=1 -shuffle=on -timeout 1h .)
if [ -s "$left" ]; then
	cat "$left" >>"${SLUICE_NOT_RUN:-/dev/null}"
	exit 0
fi
mkdir -p .build/passed
echo "$now" >"$stamp"

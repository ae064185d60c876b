#!/usr/bin/env bash
# Compares the size of the project with its budgets.
#
#     tools/budget.sh           # fail if a value is above its budget
#     tools/budget.sh -update   # set each budget to the value of today
set -euo pipefail

code=86002      # lines of Go that cmd/sluice links, without generated protobuf
tokens=503746   # Go tokens of these files, without comments
several=25    # statements of these files that assign several independent values
long=771      # lines of these files over 120 columns
others=126251   # other lines of Go in all modules, without generated code
words=57940    # words of Markdown
flags=84       # flags of serve
packages=780    # packages that make test compiles

cd "$(dirname "$0")/.."
export CGO_ENABLED=0 LC_ALL=C
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# count program < names of files: what `program` prints for all of them as one text.
count() { tr '\n' '\0' | xargs -0 cat -- | "$@" | tr -d ' '; }

# Tracked files that are in the tree; a file may have been deleted and not yet committed.
git ls-files | sort >"$tmp/tracked"
while read -r name; do if [ -f "$name" ]; then echo "$name"; fi; done <"$tmp/tracked" >"$tmp/files"
grep '\.go$' "$tmp/files" | grep -v '\.pb\.go$' >"$tmp/go"
go list -deps -f '{{if .Module}}{{if .Module.Main}}{{$p := .ImportPath}}{{range .GoFiles}}{{$p}}/{{.}}
{{end}}{{end}}{{end}}' ./cmd/sluice | sed "/^\$/d; s|^$(go list -m)/||" | sort >"$tmp/built"
comm -12 "$tmp/built" "$tmp/go" >"$tmp/linked"
comm -13 "$tmp/built" "$tmp/go" >"$tmp/rest"
first="$(go list ./... | grep -v '/e2e\(/\|$\)') ./e2e/proxy ./e2e/concurrency ./e2e/denials ./e2e/examples"

now_code=$(count wc -l <"$tmp/linked")
go -C tools build -buildvcs=false -trimpath -o "$tmp/sourcesize" ./sourcesize
read -r now_tokens now_several now_long < <("$tmp/sourcesize" <"$tmp/linked")
now_others=$(count wc -l <"$tmp/rest")
now_words=$(grep '\.md$' "$tmp/files" | count wc -w)
go build -buildvcs=false -trimpath -o "$tmp/sluice" ./cmd/sluice
now_flags=$("$tmp/sluice" serve --help-all | grep -cE '^ {2,8}(-[a-z], )?--[a-z]')
# A package that is compiled again for a test counts once.
# shellcheck disable=SC2086 # a list
now_packages=$(go list -test -deps $first | sed 's/ .*//' | sort -u | wc -l | tr -d ' ')

if [ "${1-}" = -update ]; then
	cp tools/budget.sh "$tmp/new"
	for name in code tokens several long others words flags packages; do
		now=now_$name
		sed "s/^$name=[0-9]*/$name=${!now}/" "$tmp/new" >"$tmp/newer" && mv "$tmp/newer" "$tmp/new"
	done
	cat "$tmp/new" >tools/budget.sh
	exit
fi

failed=0
printf '%-50s %9s %9s\n' budget now most
# row name now most text remedy
row() {
	printf '%-50s %9d %9d\n' "$4" "$2" "$3"
	if [ "$2" -gt "$3" ]; then
		echo "budget: $1 is $(($2 - $3)) above its budget: $5" >&2
		failed=1
	elif [ $((($3 - $2) * 100)) -gt "$3" ]; then
		echo "budget: $1 is more than 1 % below its budget: lower it in tools/budget.sh"
	fi
}
less='take out as much elsewhere, or raise it in tools/budget.sh and say why in the commit'
row code "$now_code" "$code" 'lines of Go that cmd/sluice links' "$less"
row tokens "$now_tokens" "$tokens" 'tokens of these lines, without comments' "$less"
row several "$now_several" "$several" 'of them, statements that assign several values' 'write one assignment a line'
row long "$now_long" "$long" 'of them, lines over 120 columns' 'break the lines'
row others "$now_others" "$others" 'other lines of Go' "$less"
row words "$now_words" "$words" 'words of Markdown' "$less"
row flags "$now_flags" "$flags" 'flags of serve' 'do without, or use a constant or a variable'
row packages "$now_packages" "$packages" 'packages that make test compiles' \
	"leave out the import (go list -deps names the importers), or move the test to a module of its own"
exit "$failed"

# What the scripts share that install something of a package registry into .build. They set name
# and target before they source it; "$name: " begins each line of an error. The target appears under
# its name only when it is whole, so they are safe to interrupt.

fail() {
	printf "$name: %s\n" "$@" >&2
	exit 1
}

# $1 must be installed, or the rest says what to do.
need() {
	command -v "$1" >/dev/null && return
	what=$1
	shift
	fail "$what is not installed." "$@"
}

# Sets work to a directory beside the target, which is removed at the end.
new_work() {
	mkdir -p "$(dirname "$target")"
	work=$(mktemp -d "$(dirname "$target")/$name-install.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	trap 'exit 1' HUP INT TERM
}

# Makes a virtual environment of Python in $work/venv. Arguments are more lines of an error.
new_venv() {
	need python3 "$@"
	python3 -c 'import ensurepip, venv' 2>/dev/null ||
		fail "python3 has no venv module (Debian, Ubuntu: apt-get install python3-venv)." "$@"
	python3 -m venv "$work/venv"
}

# pip install with these arguments, of binary packages only.
pip_install() {
	"$work/venv/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: "$@"
}

# Shared functions of the scripts that install packages into .build. The scripts set name and target
# before they source this file; "$name: " is the prefix of each line of an error. The target appears
# under its name only when it is complete, so the scripts are safe to interrupt.

fail() {
	printf "$name: %s\n" "$@" >&2
	exit 1
}

# Fails if the command $1 is not installed. The other arguments are more lines of the error.
need() {
	command -v "$1" >/dev/null && return
	what=$1
	shift
	fail "$what is not installed." "$@"
}

# Sets work to a directory next to the target, and removes it at exit.
new_work() {
	mkdir -p "$(dirname "$target")"
	work=$(mktemp -d "$(dirname "$target")/$name-install.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	trap 'exit 1' HUP INT TERM
}

# Creates a Python virtual environment in $work/venv. Arguments are more lines of an error.
new_venv() {
	need python3 "$@"
	python3 -c 'import ensurepip, venv' 2>/dev/null ||
		fail "python3 has no venv module (Debian, Ubuntu: apt-get install python3-venv)." "$@"
	python3 -m venv "$work/venv"
}

# Runs pip install with the given arguments, for binary packages only.
pip_install() {
	"$work/venv/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: "$@"
}

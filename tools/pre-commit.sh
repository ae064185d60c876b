#!/bin/sh
# Installs pre-commit (https://pre-commit.com) into the given directory, for the tests of
# .pre-commit-hooks.yaml.
#
#     tools/pre-commit.sh 4.7.0 .build/pre-commit-4.7.0
#
# Safe to interrupt: the directory appears under its name only when it is complete.
set -eu

version=$1
target=$2
name=pre-commit
cd "$(dirname "$0")/.."
. tools/install.sh

new_work
made=$work/made
mkdir "$made"
echo "pre-commit: installing $version (once)"
new_venv
pip_install --target "$made" "pre-commit==$version" || fail "pip could not install it for $(python3 --version)."
PYTHONPATH="$made" python3 -m pre_commit --version >/dev/null || fail "it does not run here."
mv "$made" "$target"

#!/bin/sh
# Installs the dependencies of a client of e2e/clients into the given directory: python, node, java,
# tonic or sdk, the name of the client's directory. The versions are those of the files there.
#
#     tools/client.sh node .build/clients/node
#
# Safe to interrupt: the directory appears under its name only when it is complete.
set -eu

name=$1
target=$2
cd "$(dirname "$0")/.."
. tools/install.sh
source=$PWD/e2e/clients/testdata/$name

new_work
made=$work/made
mkdir "$made"
echo "$name: installing the client of $source (once)"
case $name in
python)
	new_venv
	pip_install --target "$made" -r "$source/requirements.txt" || fail "pip could not install it for $(python3 --version)."
	PYTHONPATH="$made" python3 -c 'import grpc' || fail "grpcio does not run here."
	;;
sdk)
	new_venv
	pip_install --target "$made" -r "$source/requirements.txt" || fail "pip could not install it for $(python3 --version)."
	PYTHONPATH="$made" python3 -c 'import anthropic, http_sf, openai' || fail "the packages anthropic, http-sf and openai do not run here."
	;;
node)
	need npm "Install Node.js 20 or later, with npm."
	cp "$source/package.json" "$source/package-lock.json" "$made"
	(cd "$made" && npm ci --silent --no-fund --no-audit) || fail "npm could not install it."
	;;
java)
	need javac "Install a JDK, 17 or later."
	need mvn "Install Maven."
	mvn -q -B -f "$source/pom.xml" dependency:copy-dependencies -DoutputDirectory="$made" || fail "Maven could not install it."
	javac -cp "$made/*" -d "$made" "$source/Calls.java" || fail "$(javac -version) could not compile it."
	;;
tonic)
	need cargo "Install Rust 1.88 or later, with cargo."
	cargo build --quiet --locked --release --manifest-path "$source/Cargo.toml" --target-dir "$work/target" ||
		fail "cargo could not build it."
	mv "$work/target/release/calls" "$made"
	;;
*) fail "there is no such client." ;;
esac
rm -rf "$target"
mv "$made" "$target"

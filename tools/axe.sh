#!/bin/sh
# Installs axe-core, the accessibility checker of the page's tests, into the given directory, from
# the npm package of that name.
#
#     tools/axe.sh 4.14.1 .build/axe-core-4.14.1
set -eu

version=$1
target=$2
name=axe-core
. "$(dirname "$0")/install.sh"

# The package's checksum in the registry.
case $version in
4.14.1) integrity=FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ== ;;
*) fail "the checksum of axe-core $version is not known; add it to tools/axe.sh." ;;
esac

need node "Install Node.js 20 or later, with npm."
need npm "Install npm."
new_work
npm pack "axe-core@$version" --silent --cache "$work/cache" --pack-destination "$work" >/dev/null ||
	fail "npm could not fetch axe-core $version."
node -e '
const [file, want] = process.argv.slice(1);
const hash = require("crypto").createHash("sha512").update(require("fs").readFileSync(file)).digest("base64");
process.exit(hash === want ? 0 : 1);
' "$work/axe-core-$version.tgz" "$integrity" || fail "the package has another checksum than tools/axe.sh."
tar -xzf "$work/axe-core-$version.tgz" -C "$work"
rm -rf "$target"
mv "$work/package" "$target"

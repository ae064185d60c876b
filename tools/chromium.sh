#!/bin/sh
# Installs a headless Chromium into the given directory, from the npm package @sparticuz/chromium,
# which contains the binary for Linux on amd64, its libraries and a font.
#
#     tools/chromium.sh 153.0.0 .build/chromium-153.0.0
#
# The program in it is named chromium. Safe to interrupt: the directory appears under its name only
# when it is complete and the program has run once.
set -eu

version=$1
target=$2
name=chromium
. "$(dirname "$0")/install.sh"

# The package's checksum in the registry.
case $version in
153.0.0) integrity=jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA== ;;
*) fail "the checksum of @sparticuz/chromium $version is not known; add it to tools/chromium.sh." ;;
esac

remedy="Set CHROMIUM_BIN to a Chromium or Chrome of yours, or install your distribution's."
[ "$(uname -sm)" = "Linux x86_64" ] || fail "the package has it for Linux on amd64 alone." "$remedy"
need node "Install Node.js 20 or later, with npm." "$remedy"
need npm "Install npm." "$remedy"
new_work
echo "chromium: installing @sparticuz/chromium $version (once; 220 MB on disk)"
made=$work/made
mkdir "$made"
npm pack "@sparticuz/chromium@$version" --silent --cache "$work/cache" --pack-destination "$work" >/dev/null ||
	fail "npm could not fetch @sparticuz/chromium $version." "$remedy"
node -e '
const fs = require("fs"), zlib = require("zlib"), crypto = require("crypto"), { pipeline } = require("stream/promises");
const [work, integrity] = process.argv.slice(1);
(async () => {
  const hash = crypto.createHash("sha512");
  const archive = fs.readdirSync(work).find((f) => f.endsWith(".tgz"));
  await pipeline(fs.createReadStream(work + "/" + archive), hash);
  if (hash.digest("base64") !== integrity) throw new Error("the package has another checksum than tools/chromium.sh");
  require("child_process").execFileSync("tar", ["-xzf", work + "/" + archive, "-C", work]);
  for (const f of ["chromium", "al2023.tar", "swiftshader.tar", "fonts.tar"])
    await pipeline(fs.createReadStream(work + "/package/bin/" + f + ".br"), zlib.createBrotliDecompress(), fs.createWriteStream(work + "/" + f));
})().catch((e) => { console.error("chromium: " + e.message); process.exit(1); });
' "$work" "$integrity" || fail "@sparticuz/chromium $version could not be unpacked." "$remedy"
for archive in al2023 swiftshader fonts; do
	tar -xf "$work/$archive.tar" -C "$made"
done
mv "$work/chromium" "$made/headless"
chmod +x "$made/headless"
cat >"$made/fonts.conf" <<'END'
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir prefix="relative">fonts</dir></fontconfig>
END
# Environment variables set the paths of the libraries and the font.
cat >"$made/chromium" <<'END'
#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" FONTCONFIG_PATH="$here"
exec "$here/headless" "$@"
END
chmod +x "$made/chromium"
"$made/chromium" --version >/dev/null || fail "it does not run on this machine." "$remedy"
rm -rf "$target"
mv "$made" "$target"

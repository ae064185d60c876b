package main

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdxlib"
)

// releaseInto writes the archive of sluiceBinary, the chart and the checksums to out, with links to
// the files of TestMain's image.
func releaseInto(t *testing.T, out string, flags ...string) {
	t.Helper()
	for _, suffix := range []string{".docker.tar", ".spdx.json"} {
		name := "sluice-linux-" + runtime.GOARCH + suffix
		check(t, os.Link(filepath.Join(built, name), filepath.Join(out, name)))
	}
	check(t, os.CopyFS(filepath.Join(out, "oci"), os.DirFS(filepath.Join(built, "oci"))))
	check(t, run(t.Context(), imageArgs(out, append(flags, "-release")...), t.Output(), t.Output()))
}

// TestReleaseInstalls installs the archive as described in README.md, and uses each of its files.
func TestReleaseInstalls(t *testing.T) {
	one := t.TempDir()
	releaseInto(t, one)
	archive := "sluice-v1.2.3-linux-" + runtime.GOARCH + ".tar.gz"
	files := map[string]string{}
	entries, err := os.ReadDir(one)
	check(t, err)
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		files[e.Name()] = sum(t, filepath.Join(one, e.Name()))
	}
	delete(files, "SHA256SUMS")
	if n := len(files); n != 5 || files[archive] == "" || files["sluice-v1.2.3.intoto.json"] == "" || files["sluice-chart-1.2.3.tgz"] == "" {
		t.Fatalf("the release has the files %q", slices.Sorted(maps.Keys(files)))
	}
	sums, err := os.ReadFile(filepath.Join(one, "SHA256SUMS"))
	check(t, err)
	for name, digest := range files {
		if !strings.Contains(string(sums), digest+"  "+name+"\n") {
			t.Errorf("SHA256SUMS lacks %s %s:\n%s", digest, name, sums)
		}
	}

	prefix := t.TempDir()
	output(t, "tar", "-xzf", filepath.Join(one, archive), "-C", prefix, "--strip-components=1")
	for line := range strings.Lines(output(t, "tar", "--utc", "-tvzf", filepath.Join(one, archive))) {
		if !strings.Contains(line, " 0/0 ") || !strings.Contains(line, " 1970-01-01 ") {
			t.Errorf("the archive contains the user or time of the build: %s", line)
		}
	}
	program := filepath.Join(prefix, "bin", "sluice")
	if !bytes.Equal(read(t, program), read(t, sluiceBinary)) {
		t.Error("the archive contains another program")
	}
	if text := output(t, program, "check", filepath.Join(source, "examples", "quickstart")); !strings.Contains(text, "0 warnings") {
		t.Errorf("the program printed %q", text)
	}
	share := filepath.Join(prefix, "share")
	for path, begins := range map[string]string{
		"man/man1/sluice.1":                                  `.TH "SLUICE" "1"`,
		"bash-completion/completions/sluice":                 "",
		"zsh/site-functions/_sluice":                         "#compdef sluice",
		"fish/vendor_completions.d/sluice.fish":              "",
		"doc/sluice/README.md":                               "# sluice",
		"doc/sluice/CHANGELOG.md":                            "# Changelog",
		"doc/sluice/LICENSE":                                 "",
		"doc/sluice/licenses/google.golang.org/grpc/LICENSE": "",
		"doc/sluice/licenses/stdlib/LICENSE":                 "Copyright",
	} {
		if text := strings.TrimSpace(string(read(t, filepath.Join(share, path)))); text == "" || !strings.HasPrefix(text, begins) {
			t.Errorf("%s begins with %.40q, want %q", path, text, begins)
		}
	}
	if bash, err := exec.LookPath("bash"); err == nil {
		output(t, bash, "-n", filepath.Join(share, "bash-completion/completions/sluice"))
	}
	document, err := spdxjson.Read(bytes.NewReader(read(t, filepath.Join(share, "doc/sluice/sluice.spdx.json"))))
	check(t, err)
	check(t, spdxlib.ValidateDocument(document))
	if len(document.Packages) < 20 {
		t.Errorf("the bill of materials has %d packages", len(document.Packages))
	}
	for _, p := range document.Packages {
		if p.PackageName == authoritiesModule || p.PackageName == "sluice-image" {
			t.Errorf("the bill of materials of the archive lists %s", p.PackageName)
		}
	}
}

// TestReleaseIsComplete omits inputs that a release requires.
func TestReleaseIsComplete(t *testing.T) {
	if err := run(t.Context(), imageArgs(t.TempDir(), "-release"), t.Output(), t.Output()); err == nil || !strings.Contains(err.Error(), "make image") {
		t.Errorf("a release without an image = %v", err)
	}
	other := mustRead(t)
	other.platform.OS = "darwin"
	if err := checkPlatforms([]*program{mustRead(t), other}); err == nil || !strings.Contains(err.Error(), "built for darwin") {
		t.Errorf("an image of a program for darwin = %v", err)
	}
	if err := writeRelease(t.Context(), &options{out: t.TempDir(), source: source}, []*program{other}, t.Output()); err == nil || !strings.Contains(err.Error(), "this machine") {
		t.Errorf("a release without a program for this machine = %v", err)
	}
}

func TestChartVersion(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.3": "1.2.3", "v1.2.3-rc.1": "1.2.3-rc.1", "0012345": "0.0.0-g0012345", "v1.2.3-4-gabc-dirty": "1.2.3-4-gabc-dirty",
		"dev": "0.0.0-gdev", "a_b/c": "0.0.0-ga-b-c",
	} {
		if got := chartVersion(version); got != want {
			t.Errorf("chartVersion(%q) = %q, want %q", version, got, want)
		}
	}
}

// output runs a program and returns its output.
func output(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v:\n%s", program, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	check(t, err)
	return content
}

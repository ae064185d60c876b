package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

const (
	source    = "../.."
	revision  = "c0ffee0c0ffee0c0ffee0c0ffee0c0ffee0c0ffe"
	committed = "2026-11-21T18:57:30Z"
)

// sluiceBinary is the path of the program, and built a directory with its image. TestMain builds
// both; tests only read them.
var sluiceBinary, built string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "image-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	sluiceBinary = filepath.Join(dir, "sluice-linux-"+runtime.GOARCH) // as make names it
	if err := compile(source, "./cmd/sluice", sluiceBinary, "CGO_ENABLED=0", "GOOS=linux"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	built = filepath.Join(dir, "built")
	if err := run(context.Background(), imageArgs(built), io.Discard, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// imageArgs returns the command line that builds the image of sluiceBinary.
func imageArgs(out string, flags ...string) []string {
	args := []string{"-version", "v1.2.3", "-revision", revision, "-commit-date", committed, "-source", source, "-out", out}
	return append(append(args, flags...), sluiceBinary)
}

func compile(dir, pkg, to string, env ...string) error {
	cmd := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", to, pkg)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w:\n%s", cmd.Args, err, out)
	}
	return nil
}

// buildImage builds the image of sluiceBinary again and returns the directory.
func buildImage(t *testing.T, flags ...string) (out string) {
	t.Helper()
	out = t.TempDir()
	check(t, run(t.Context(), imageArgs(out, flags...), t.Output(), t.Output()))
	return out
}

// readLayout returns the index named v1.2.3 of an OCI layout.
func readLayout(t *testing.T, out string) v1.ImageIndex {
	t.Helper()
	l, err := layout.ImageIndexFromPath(filepath.Join(out, "oci"))
	check(t, err)
	manifest, err := l.IndexManifest()
	check(t, err)
	for _, d := range manifest.Manifests {
		if d.Annotations["org.opencontainers.image.ref.name"] == "v1.2.3" {
			index, err := l.ImageIndex(d.Digest)
			check(t, err)
			return index
		}
	}
	t.Fatalf("no image is named v1.2.3: %+v", manifest.Manifests)
	return nil
}

// onlyImage returns the single image of an index.
func onlyImage(t *testing.T, index v1.ImageIndex) v1.Image {
	t.Helper()
	manifest, err := index.IndexManifest()
	check(t, err)
	if n := len(manifest.Manifests); n != 1 {
		t.Fatalf("%d images, want one", n)
	}
	if p := manifest.Manifests[0].Platform; p == nil || p.String() != "linux/"+runtime.GOARCH {
		t.Errorf("the platform is %v", p)
	}
	image, err := index.Image(manifest.Manifests[0].Digest)
	check(t, err)
	return image
}

func TestImageIsValidAndTheSameEachTime(t *testing.T) {
	one, two := built, buildImage(t)
	first, second := readLayout(t, one), readLayout(t, two)
	check(t, validate.Index(first))
	a, err := first.Digest()
	check(t, err)
	b, err := second.Digest()
	check(t, err)
	if a != b {
		t.Errorf("two builds have the digests %s and %s", a, b)
	}
	name := "sluice-linux-" + runtime.GOARCH + ".docker.tar"
	for _, file := range []string{name, "oci/index.json"} {
		if x, y := sum(t, filepath.Join(one, file)), sum(t, filepath.Join(two, file)); x != y {
			t.Errorf("the %s of two builds has the digests %s and %s", file, x, y)
		}
	}
	manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(filepath.Join(one, name)) })
	check(t, err)
	if len(manifest) != 1 || !slices.Equal(manifest[0].RepoTags, []string{"sluice:v1.2.3"}) { // docker.io/library/sluice in kind
		t.Errorf("%s contains %+v, want sluice:v1.2.3", name, manifest)
	}
	loadable, err := tarball.ImageFromPath(filepath.Join(one, name), nil)
	check(t, err)
	check(t, validate.Image(loadable))
	x, err := loadable.ConfigName()
	check(t, err)
	y, err := onlyImage(t, first).ConfigName()
	check(t, err)
	if x != y {
		t.Errorf("docker load imports the image %s, but the layout has %s", x, y)
	}
	// Build again into the same directory: the files are replaced.
	check(t, run(t.Context(), []string{"-version", "v1.2.3", "-commit-date", "2027-01-01T00:00:00Z", "-source", source, "-out", two, sluiceBinary}, io.Discard, t.Output()))
	if again, err := readLayout(t, two).Digest(); err != nil || again == a {
		t.Errorf("a build of another commit is %s, %v, want another digest", again, err)
	}
}

func TestImageIsSmall(t *testing.T) {
	r := mutate.Extract(onlyImage(t, readLayout(t, built)))
	defer r.Close()
	size, err := io.Copy(io.Discard, r)
	check(t, err)
	if size > maxImageSize {
		t.Errorf("the image has %d bytes, want at most %d", size, maxImageSize)
	}
	t.Logf("%d bytes uncompressed; the maximum is %d", size, maxImageSize)
	big := []tree{{"bin/sluice": {content: make([]byte, maxImageSize)}, "LICENSE": {content: []byte("?")}}}
	if _, err := assemble(release{version: "v1"}, mustRead(t), big); err == nil || !strings.Contains(err.Error(), "33000000 at most") {
		t.Errorf("assemble beyond the maximum size = %v", err)
	}
}

func TestAuthorities(t *testing.T) {
	text, err := authorities()
	check(t, err)
	names := map[string]bool{}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		check(t, err)
		if !c.IsCA {
			t.Errorf("%s is not a CA", c.Subject)
		}
		names[c.Subject.CommonName] = true
	}
	if len(names) < 100 || !names["ISRG Root X1"] || !names["Amazon Root CA 1"] {
		t.Errorf("%d authorities, want 100 or more, and those of Let's Encrypt and Amazon", len(names))
	}
	if pool := x509.NewCertPool(); !pool.AppendCertsFromPEM(text) {
		t.Error("crypto/x509 cannot read the authorities")
	}
}

func TestRootHasTheFilesOfTheImage(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	args := []string{"-version", "v1.2.3", "-source", source, "-root", root, sluiceBinary}
	check(t, run(t.Context(), args, t.Output(), t.Output()))
	layers, err := contents(release{version: "v1.2.3"}, mustRead(t), source)
	check(t, err)
	for _, tree := range layers {
		for path, f := range tree {
			info, err := os.Stat(filepath.Join(root, path))
			check(t, err)
			if got := info.Mode(); got != os.FileMode(f.mode()) {
				t.Errorf("%s has the mode %v, want %v", path, got, os.FileMode(f.mode()))
			}
			content, err := os.ReadFile(filepath.Join(root, path))
			check(t, err)
			if want := tree[path].content; f.linkTo == "" && !bytes.Equal(content, want) {
				t.Errorf("%s differs", path)
			}
		}
	}
	if err := run(t.Context(), args, io.Discard, io.Discard); !errors.Is(err, os.ErrExist) {
		t.Errorf("write to an existing directory: %v, want an error", err)
	}
}

func TestProgramsThatWouldNotRun(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	check(t, os.WriteFile(text, []byte("#!/bin/sh\n"), 0o755))
	other := filepath.Join(dir, "other")
	check(t, compile(".", ".", other))
	foreign := filepath.Join(dir, "foreign")
	check(t, os.WriteFile(foreign, bytes.ReplaceAll(mustRead(t).content, []byte("CGO_ENABLED=0"), []byte("CGO_ENABLED=1")), 0o755))
	windows := filepath.Join(dir, "windows")
	check(t, os.WriteFile(windows, bytes.ReplaceAll(mustRead(t).content, []byte("GOOS=linux"), []byte("GOOS=aixxx")), 0o755))
	for path, want := range map[string]string{
		filepath.Join(dir, "absent"): "no such file",
		text:                         "unrecognized file format",
		other:                        "must be that of " + mainPackage,
		foreign:                      "CGO_ENABLED=1: must be 0",
		windows:                      "GOOS=aixxx: must be linux or darwin",
	} {
		if _, err := readProgram(path); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("readProgram(%s) = %v, want an error with %q and the path", path, err, want)
		}
	}
}

func TestCommandLine(t *testing.T) {
	for want, args := range map[string][]string{
		"-version is missing":      {"p"},
		"no program is given":      {"-version", "v1"},
		"takes one program":        {"-version", "v1", "-root", "r", "p", "q"},
		"such as 2026-":            {"-version", "v1", "-commit-date", "yesterday", "p"},
		"provided but not defined": {"-verson", "v1"},
	} {
		var stderr strings.Builder
		if err := run(t.Context(), args, io.Discard, &stderr); !errors.Is(err, errUsage) || !strings.Contains(stderr.String(), want) {
			t.Errorf("image %v = %v and printed %q, want %q", args, err, stderr.String(), want)
		}
	}
	var help strings.Builder
	if err := run(t.Context(), []string{"--help"}, io.Discard, &help); !errors.Is(err, flag.ErrHelp) || !strings.Contains(help.String(), "-commit-date") {
		t.Errorf("--help = %v and printed %q", err, help.String())
	}
	if err := run(t.Context(), []string{"-version", "v1 (modified)", "-out", t.TempDir(), sluiceBinary}, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), `-version is "v1 (modified)"`) {
		t.Errorf("run with a version that cannot be a tag: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := run(ended, []string{"-version", "v1", "-out", t.TempDir(), sluiceBinary}, io.Discard, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("after Ctrl-C: %v", err)
	}
}

func TestLabelsOmitUnknownValues(t *testing.T) {
	at, err := time.Parse(time.RFC3339, committed)
	check(t, err)
	all := release{version: "v1", revision: "c", committed: at}.labels()
	if all["org.opencontainers.image.created"] != committed || all["org.opencontainers.image.revision"] != "c" || all["org.opencontainers.image.version"] != "v1" {
		t.Errorf("labels = %v", all)
	}
	few := release{version: "v1"}.labels()
	if _, ok := few["org.opencontainers.image.created"]; ok || len(few) != len(all)-2 {
		t.Errorf("labels without commit and date = %v", few)
	}
}

func mustRead(t *testing.T) *program {
	t.Helper()
	p, err := readProgram(sluiceBinary)
	check(t, err)
	return p
}

func sum(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	check(t, err)
	digest := sha256.Sum256(content)
	return hex.EncodeToString(digest[:])
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestFilesAreIndependentOfTheBuild checks that the image contains neither the time nor the user of
// the build. The digests of two builds within a second would not show that.
func TestFilesAreIndependentOfTheBuild(t *testing.T) {
	image := onlyImage(t, readLayout(t, built))
	r := mutate.Extract(image)
	defer r.Close()
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		check(t, err)
		if h.ModTime.Unix() != 0 || h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.Gname != "" {
			t.Errorf("%s has the time %v and the owner %d:%d", h.Name, h.ModTime, h.Uid, h.Gid)
		}
	}
	config, err := image.ConfigFile()
	check(t, err)
	if got := config.Created.Format(time.RFC3339); got != committed {
		t.Errorf("the image was created at %s, want %s, the commit's time", got, committed)
	}
	for _, h := range config.History {
		if got := h.Created.Format(time.RFC3339); got != committed {
			t.Errorf("a layer was created at %s, want %s", got, committed)
		}
	}
}

package dropin

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// image is a container image in the format of docker load.
type image struct {
	// entrypoint, user and labels are from the configuration.
	entrypoint []string
	user       string
	labels     map[string]string
	// layers contains compressed tars, the lowest first.
	layers [][]byte
}

// makeImage builds the image for this machine like `make image`, and returns the path of its tar.
func makeImage(t *testing.T) string {
	t.Helper()
	dist := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "make", "-s", "-C", "../..", "image", "DIST="+dist, "PUSH=", "PLATFORMS=linux/"+runtime.GOARCH)
	// Do not pass on the flags of a make that runs this test.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "MAKEFLAGS=") || strings.HasPrefix(v, "MFLAGS=") || strings.HasPrefix(v, "MAKELEVEL=")
	})
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make image: %v:\n%s", err, out)
	}
	return filepath.Join(dist, "sluice-linux-"+runtime.GOARCH+".docker.tar")
}

// readImage reads a tar in the format of docker load.
func readImage(t *testing.T, path string) *image {
	t.Helper()
	f, err := os.Open(path)
	check(t, err)
	defer f.Close()
	files := make(map[string][]byte)
	walkTar(t, f, func(h *tar.Header, content []byte) { files[h.Name] = content })
	var manifest []struct {
		Config string
		Layers []string
	}
	check(t, json.Unmarshal(files["manifest.json"], &manifest))
	if len(manifest) != 1 {
		t.Fatalf("%s has %d images, want one", path, len(manifest))
	}
	var config struct {
		Config struct {
			Entrypoint []string
			User       string
			Labels     map[string]string
		} `json:"config"`
	}
	check(t, json.Unmarshal(files[manifest[0].Config], &config))
	i := &image{entrypoint: config.Config.Entrypoint, user: config.Config.User, labels: config.Config.Labels}
	for _, name := range manifest[0].Layers {
		i.layers = append(i.layers, files[name])
	}
	return i
}

// extract writes the image's files below root with their modes.
func (i *image) extract(t *testing.T, root string) {
	t.Helper()
	for _, layer := range i.layers {
		plain, err := gzip.NewReader(bytes.NewReader(layer))
		check(t, err)
		walkTar(t, plain, func(h *tar.Header, content []byte) {
			path := filepath.Join(root, filepath.FromSlash(h.Name))
			switch h.Typeflag {
			case tar.TypeDir:
				check(t, os.MkdirAll(path, 0o755))
			case tar.TypeReg:
				check(t, os.WriteFile(path, content, 0o644))
			case tar.TypeLink:
				check(t, os.Link(filepath.Join(root, filepath.FromSlash(h.Linkname)), path))
			default:
				t.Fatalf("the image has %s of type %q", h.Name, h.Typeflag)
			}
			check(t, os.Chmod(path, h.FileInfo().Mode().Perm()))
		})
	}
}

func walkTar(t *testing.T, from io.Reader, visit func(*tar.Header, []byte)) {
	t.Helper()
	r := tar.NewReader(from)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		check(t, err)
		content, err := io.ReadAll(r)
		check(t, err)
		visit(h, content)
	}
}

// testImage compares the labels of the image with its program.
func testImage(t *testing.T, i *image) {
	t.Helper()
	root := t.TempDir()
	i.extract(t, root)
	if i.user != "65532:65532" {
		t.Errorf("its user is %q, want 65532:65532: a number, for runAsNonRoot", i.user)
	}
	sluice, err := os.Stat(filepath.Join(root, "bin", "sluice"))
	check(t, err)
	ratelimit, err := os.Stat(filepath.Join(root, "bin", "ratelimit"))
	check(t, err)
	if !os.SameFile(sluice, ratelimit) {
		t.Error("/bin/sluice and /bin/ratelimit are two files")
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(root, "bin", "sluice"), "version", "--output", "json").Output()
	check(t, err)
	var v struct {
		Version    string `json:"version"`
		Revision   string `json:"revision"`
		CommitDate string `json:"commit_date"`
	}
	check(t, json.Unmarshal(out, &v))
	for label, want := range map[string]string{"version": v.Version, "revision": v.Revision, "created": v.CommitDate} {
		if got := i.labels["org.opencontainers.image."+label]; got != want {
			t.Errorf("the label %s is %q, but sluice version prints %q", label, got, want)
		}
	}
}

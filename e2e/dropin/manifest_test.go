package dropin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// manifest is what a consumer of envoyproxy/ratelimit runs.
type manifest struct {
	args, env []string
	// configMap are files by their path in the container.
	configMap map[string]string
	// call are arguments of `sluice call`, want is what it prints.
	call []string
	want string
}

func readManifest(t *testing.T, path string) manifest {
	t.Helper()
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m := manifest{configMap: map[string]string{}}
	for _, f := range archive.Files {
		text := strings.TrimSpace(string(f.Data))
		switch mounted, ok := strings.CutPrefix(f.Name, "configmap"); {
		case ok:
			m.configMap[mounted] = string(f.Data)
		case f.Name == "args":
			m.args = strings.Split(text, "\n")
		case f.Name == "env":
			m.env = strings.Split(text, "\n")
		case f.Name == "call":
			m.call = strings.Fields(text)
		case f.Name == "want":
			m.want = text
		default:
			t.Fatalf("%s has a file %s", path, f.Name)
		}
	}
	return m
}

// image lays out the file system of the image and of what is mounted into it.
func (m *manifest) image(t *testing.T, binary string) (root string) {
	t.Helper()
	root = t.TempDir()
	program, err := os.ReadFile(binary)
	check(t, err)
	check(t, os.MkdirAll(filepath.Join(root, "bin"), 0o755))
	check(t, os.WriteFile(filepath.Join(root, "bin", "ratelimit"), program, 0o755))
	for path, content := range m.configMap {
		// As the kubelet mounts a ConfigMap: files are links through ..data.
		dir := filepath.Join(root, filepath.Dir(path))
		check(t, os.MkdirAll(filepath.Join(dir, "..version"), 0o755))
		check(t, os.WriteFile(filepath.Join(dir, "..version", filepath.Base(path)), []byte(content), 0o644))
		if _, err := os.Lstat(filepath.Join(dir, "..data")); err != nil {
			check(t, os.Symlink("..version", filepath.Join(dir, "..data")))
		}
		check(t, os.Symlink(filepath.Join("..data", filepath.Base(path)), filepath.Join(root, path)))
	}
	return root
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

package descriptors

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// configMap is a mounted ConfigMap. It changes as the kubelet changes it
// (AtomicWriter): the files go to a new directory, `..data` is renamed onto it in
// one step, then links to removed files and the old directory go.
type configMap struct {
	t    *testing.T
	dir  string
	last string
	n    int
}

func newConfigMap(t *testing.T, dir string) *configMap {
	t.Helper()
	return &configMap{t: t, dir: dir}
}

// update may run on another goroutine than the test's.
func (m *configMap) update(files map[string]string) {
	m.n++
	version := fmt.Sprintf("..2026_01_31_00_00_00.%d", m.n)
	check := func(err error) {
		if err != nil {
			m.t.Error(err)
		}
	}
	check(os.Mkdir(filepath.Join(m.dir, version), 0o700))
	for name, content := range files {
		check(os.WriteFile(filepath.Join(m.dir, version, name), []byte(content), 0o600))
	}
	check(os.Chmod(filepath.Join(m.dir, version), 0o755))
	check(os.Symlink(version, filepath.Join(m.dir, "..data_tmp")))
	check(os.Rename(filepath.Join(m.dir, "..data_tmp"), filepath.Join(m.dir, "..data")))
	for name := range files {
		if _, err := os.Lstat(filepath.Join(m.dir, name)); err != nil {
			check(os.Symlink(filepath.Join("..data", name), filepath.Join(m.dir, name)))
		}
	}
	entries, err := os.ReadDir(m.dir)
	check(err)
	for _, e := range entries {
		if _, kept := files[e.Name()]; !kept && e.Name()[0] != '.' {
			check(os.Remove(filepath.Join(m.dir, e.Name())))
		}
	}
	if m.last != "" {
		check(os.RemoveAll(filepath.Join(m.dir, m.last)))
	}
	m.last = version
}

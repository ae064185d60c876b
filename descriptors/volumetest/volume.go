// Package volumetest changes files as the kubelet changes those of a mounted ConfigMap or Secret,
// for tests of programs that watch such files.
package volumetest

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Update sets the files of the volume in dir. A volume begins as an empty directory.
func Update[Text ~string | ~[]byte](dir string, files map[string]Text) error {
	for _, step := range Steps(dir, files, false) {
		if err := step.Do(); err != nil {
			return err
		}
	}
	return nil
}

// Step is a part of an update. After any step programs may read the files, or the kubelet may end.
type Step struct {
	Name string
	Do   func() error
}

// Steps returns the steps of an [Update], in the order of Kubernetes' AtomicWriter: it writes the
// files to a new directory, moves the link `..data` to that by one rename, and removes the old
// directory. Names link to files in `..data`; links for new names come after the rename or, with
// early, before it, as in Kubernetes until 2023. Another update repairs one that ended after any
// step.
func Steps[Text ~string | ~[]byte](dir string, files map[string]Text, early bool) []Step {
	var (
		names   = slices.Sorted(maps.Keys(files))
		data    = filepath.Join(dir, "..data")
		old, _  = os.Readlink(data) // empty before the first update
		version string
		steps   []Step
	)
	add := func(name string, do func() error) { steps = append(steps, Step{name, do}) }
	add("make a directory", func() (err error) {
		version, err = os.MkdirTemp(dir, time.Now().UTC().Format("..2006_01_02_15_04_05.")) //nolint:forbidigo // part of a name, as the kubelet does
		return err
	})
	add("let others read it", func() error { return os.Chmod(version, 0o755) }) //nolint:gosec // as the kubelet does
	for _, name := range names {
		text := []byte(files[name])
		for _, n := range []int{0, len(text) / 2, len(text)} {
			add("write "+name, func() error { return os.WriteFile(filepath.Join(version, name), text[:n], 0o600) })
		}
	}
	link := func() {
		for _, name := range names {
			add("link "+name, func() error {
				err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name))
				if errors.Is(err, fs.ErrExist) {
					return nil
				}
				return err
			})
		}
	}
	if early {
		link()
	}
	add("link ..data_tmp", func() error {
		// A kubelet that was killed may have left one.
		if err := os.Remove(data + "_tmp"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return os.Symlink(filepath.Base(version), data+"_tmp")
	})
	add(Swap, func() error { return os.Rename(data+"_tmp", data) })
	if !early {
		link()
	}
	visible, _ := os.ReadDir(dir)
	for _, e := range visible {
		if _, kept := files[e.Name()]; !kept && !strings.HasPrefix(e.Name(), "..") {
			add("unlink "+e.Name(), func() error { return os.Remove(filepath.Join(dir, e.Name())) })
		}
	}
	if old == "" {
		return steps
	}
	gone, _ := os.ReadDir(filepath.Join(dir, old))
	for _, e := range gone {
		add("remove the old "+e.Name(), func() error { return os.Remove(filepath.Join(dir, old, e.Name())) })
	}
	add("remove the old directory", func() error { return os.Remove(filepath.Join(dir, old)) })
	return steps
}

// Swap is the name of the step that puts the new files in place of the old.
const Swap = "swap ..data"

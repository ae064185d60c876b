package source

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestSourceDetectsChanges makes each kind of change several times.
func TestSourceDetectsChanges(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		// start writes version 1 and returns the path to follow and a function that
		// writes another version.
		start func(t *testing.T, dir string) (path string, change func(version int))
	}{
		{"a ConfigMap swap", func(t *testing.T, dir string) (string, func(int)) {
			t.Helper()
			mount(t, dir, map[string]string{"rules.yaml": rulesOf(1)})
			return dir, func(v int) { mount(t, dir, map[string]string{"rules.yaml": rulesOf(v)}) }
		}},
		{"a ConfigMap swap with the file named", func(t *testing.T, dir string) (string, func(int)) {
			t.Helper()
			mount(t, dir, map[string]string{"rules.yaml": rulesOf(1)})
			return filepath.Join(dir, "rules.yaml"), func(v int) { mount(t, dir, map[string]string{"rules.yaml": rulesOf(v)}) }
		}},
		{"a ConfigMap swap that renames the file", func(t *testing.T, dir string) (string, func(int)) {
			t.Helper()
			mount(t, dir, map[string]string{"1.yaml": rulesOf(1)})
			return dir, func(v int) { mount(t, dir, map[string]string{fmt.Sprintf("%d.yaml", v): rulesOf(v)}) }
		}},
		{"an atomic rename", func(t *testing.T, dir string) (string, func(int)) {
			t.Helper()
			write(t, rulesOf(1), dir, "rules.yaml")
			return dir, func(v int) {
				write(t, rulesOf(v), dir, ".rules.yaml.tmp")
				rename(t, filepath.Join(dir, ".rules.yaml.tmp"), filepath.Join(dir, "rules.yaml"))
			}
		}},
		{"an atomic rename with the file named", func(t *testing.T, dir string) (string, func(int)) {
			t.Helper()
			write(t, rulesOf(1), dir, "rules.yaml")
			return filepath.Join(dir, "rules.yaml"), func(v int) {
				write(t, rulesOf(v), dir, "rules.yaml.tmp")
				rename(t, filepath.Join(dir, "rules.yaml.tmp"), filepath.Join(dir, "rules.yaml"))
			}
		}},
		{"writing in place", func(t *testing.T, dir string) (string, func(int)) {
			t.Helper()
			write(t, rulesOf(1), dir, "rules.yaml")
			return dir, func(v int) { write(t, rulesOf(v), dir, "rules.yaml") }
		}},
		{"writing in place in a directory below", func(t *testing.T, dir string) (string, func(int)) {
			t.Helper()
			write(t, rulesOf(1), dir, "a/b/rules.yaml")
			return dir, func(v int) { write(t, rulesOf(v), dir, "a/b/rules.yaml") }
		}},
		{"a copied file that replaces another", func(t *testing.T, dir string) (string, func(int)) {
			t.Helper()
			write(t, rulesOf(1), dir, "1.yaml")
			return dir, func(v int) {
				if err := os.Remove(filepath.Join(dir, fmt.Sprintf("%d.yaml", v-1))); err != nil {
					t.Error(err)
				}
				write(t, rulesOf(v), dir, fmt.Sprintf("%d.yaml", v))
			}
		}},
		{"a new directory below", func(t *testing.T, dir string) (string, func(int)) {
			t.Helper()
			write(t, rulesOf(1), dir, "v1/rules.yaml")
			return dir, func(v int) {
				write(t, rulesOf(v), dir, fmt.Sprintf("v%d/rules.yaml", v))
				if err := os.RemoveAll(filepath.Join(dir, fmt.Sprintf("v%d", v-1))); err != nil {
					t.Error(err)
				}
			}
		}},
		{"writing in place behind links", func(t *testing.T, dir string) (string, func(int)) {
			t.Helper()
			write(t, rulesOf(1), dir, "target/rules.yaml")
			link(t, "../target", dir, "current/link")
			link(t, "../current/link/rules.yaml", dir, "config/rules.yaml")
			return filepath.Join(dir, "config"), func(v int) { write(t, rulesOf(v), dir, "target/rules.yaml") }
		}},
		{"a link in the middle of a chain", func(t *testing.T, dir string) (string, func(int)) {
			t.Helper()
			write(t, rulesOf(1), dir, "v1/rules.yaml")
			link(t, "../v1", dir, "current/link")
			link(t, "../current/link", dir, "config/below")
			return filepath.Join(dir, "config"), func(v int) {
				write(t, rulesOf(v), dir, fmt.Sprintf("v%d/rules.yaml", v))
				link(t, fmt.Sprintf("../v%d", v), dir, "current/next")
				rename(t, filepath.Join(dir, "current/next"), filepath.Join(dir, "current/link"))
			}
		}},
		{"the directory moved away and created again", func(t *testing.T, dir string) (string, func(int)) {
			t.Helper()
			write(t, rulesOf(1), dir, "config/rules.yaml")
			return filepath.Join(dir, "config"), func(v int) {
				write(t, rulesOf(v), dir, "next/rules.yaml")
				rename(t, filepath.Join(dir, "config"), filepath.Join(dir, fmt.Sprintf("old%d", v)))
				rename(t, filepath.Join(dir, "next"), filepath.Join(dir, "config"))
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				path, change := tt.start(t, t.TempDir())
				first, updates := follow(t, Options{}, path)
				if versionOf(first) != 1 {
					t.Fatalf("Load = %+v, want version 1", first)
				}
				for v := 2; v <= 4; v++ {
					change(v)
					awaitVersion(t, updates, v)
				}
			})
		})
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	must.OK(t, os.Rename(from, to))
}

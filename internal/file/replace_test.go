package file_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/file"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// expectContent fails the test if the content of a file differs.
func expectContent(t *testing.T, path, want string) {
	t.Helper()
	if got, err := os.ReadFile(path); string(got) != want || err != nil {
		t.Errorf("%s has %q, %v, want %q", path, got, err, want)
	}
}

// TestReplace verifies that a file is replaced completely or not at all, and that no temporary
// file is left.
func TestReplace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	write := func(text string, err error) error {
		return file.Replace(path, 0o600, func(w io.Writer) error {
			_, werr := io.WriteString(w, text)
			return errors.Join(err, werr)
		})
	}
	expectNoOtherFile := func() {
		t.Helper()
		if found, err := os.ReadDir(filepath.Dir(path)); len(found) != 1 || err != nil {
			t.Errorf("the directory contains %v, %v, want only the file", found, err)
		}
	}
	must.OK(t, write("old", nil))
	expectContent(t, path, "old")
	broken := errors.New("broken")
	if err := write("half", broken); !errors.Is(err, broken) {
		t.Errorf("file.Replace() = %v", err)
	}
	expectContent(t, path, "old")
	expectNoOtherFile()

	// A temporary file of a killed process is replaced. If it is a link, its target does not
	// change.
	victim := filepath.Join(t.TempDir(), "victim")
	must.OK(t, errors.Join(os.WriteFile(victim, []byte("kept"), 0o600), os.Symlink(victim, path+".new")))
	must.OK(t, errors.Join(os.Chmod(path, 0o644), write("new", nil)))
	expectContent(t, path, "new")
	expectContent(t, victim, "kept")
	expectNoOtherFile()
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v, want 0600", info.Mode(), err)
	}
}

package suite

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// fakeTB records how a test ended.
type fakeTB struct {
	testing.TB

	skipped, failed bool
}

func (*fakeTB) Helper()        {}
func (*fakeTB) Name() string   { return "TestName" }
func (v *fakeTB) Skip(...any)  { v.skipped = true }
func (v *fakeTB) Fatal(...any) { v.failed = true }

func TestSkipIsNoted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notrun")
	t.Setenv("SLUICE_NOT_RUN", path)
	t.Setenv("SLUICE_NAMESPACES", "")
	for range 2 {
		var v fakeTB
		if SkipWithoutNamespaces(&v, "no root"); !v.skipped || v.failed {
			t.Errorf("with optional namespaces the test was skipped: %v, failed: %v", v.skipped, v.failed)
		}
	}
	const line = "TestName: no root\n"
	if text, err := os.ReadFile(path); err != nil || string(text) != line+line {
		t.Errorf("noted %q, %v, want the line twice: %q", text, err, line)
	}
	t.Setenv("SLUICE_NOT_RUN", filepath.Join(path, "below a file"))
	if err := NoteSkipped("x"); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("NoteSkipped to an unwritable file = %v, want an error", err)
	}
}

func TestNamespacesAreRequired(t *testing.T) {
	t.Setenv("SLUICE_NOT_RUN", filepath.Join(t.TempDir(), "notrun"))
	t.Setenv("SLUICE_NAMESPACES", "required")
	var v fakeTB
	if SkipWithoutNamespaces(&v, "no root"); !v.failed {
		t.Error("the test continued without required namespaces")
	}
}

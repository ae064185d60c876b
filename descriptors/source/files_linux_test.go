package source

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestReadPermissionError reads files as a user without permission. Only the thread changes its
// file system user, and it ends with the goroutine.
func TestReadPermissionError(t *testing.T) {
	dir := t.TempDir()
	must.OK(t, os.Chmod(dir, 0o700))
	closed := filepath.Join(dir, "closed")
	write(t, "domain: d\n", closed, "r.yaml")
	file := filepath.Join(dir, "r.yaml")
	write(t, "domain: d\n", file)
	for _, mode := range []struct {
		path string
		bits os.FileMode
	}{{file, 0}, {closed, 0}} {
		must.OK(t, os.Chmod(mode.path, mode.bits))
	}
	t.Cleanup(func() {
		if err := os.Chmod(closed, 0o700); err != nil {
			t.Error(err)
		}
	})
	type result struct {
		path  string
		files []File
		err   error
	}
	results := make(chan result)
	go func() {
		defer close(results)
		runtime.LockOSThread() // without unlocking, so that no other goroutine uses this thread
		if os.Geteuid() == 0 {
			if err := syscall.Setfsuid(65532); err != nil {
				t.Error(err)
				return
			}
		}
		for _, path := range []string{file, closed, filepath.Join(closed, "r.yaml")} {
			files, err := readAll([]string{path})
			results <- result{path, files, err}
		}
	}()
	read := 0
	for r := range results {
		read++
		user := fmt.Sprintf("permission denied: sluice runs as user %d with the groups [", os.Geteuid())
		if r.files != nil || !errors.Is(r.err, fs.ErrPermission) || !strings.Contains(r.err.Error(), dir) ||
			!strings.Contains(r.err.Error(), user) || !strings.Contains(r.err.Error(), "chmod") {
			t.Errorf("Read(%s) = %v, %v, want an error with the path, the user and a remedy", r.path, r.files, r.err)
		}
	}
	if read != 3 {
		t.Errorf("%d reads, want 3", read)
	}
}

// Package file replaces and locks files.
package file

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// ErrLocked is the error of [Lock] for a file that another process has locked.
var ErrLocked = errors.New("locked by another process")

// Replace replaces a file atomically: a reader finds the complete old or the complete new file,
// even after a crash of the process or the machine. Mode is subject to the umask. Only one process
// at a time may replace a file.
func Replace(path string, mode os.FileMode, write func(io.Writer) error) (err error) {
	f, err := createTemporary(path, mode)
	if err != nil {
		return err
	}
	temporary := f.Name()
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(temporary)
		}
	}()
	if err := write(f); err != nil {
		return err
	}
	// Without this the rename could reach the disk before the contents.
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("rename: %w", err)
	}
	if err := syncDirectory(filepath.Dir(path)); err != nil {
		return fmt.Errorf("sync the directory: %w", err)
	}
	return nil
}

// createTemporary creates the file that [Replace] renames to path.
func createTemporary(path string, mode os.FileMode) (*os.File, error) {
	temporary := path + ".new"
	// It may be left over from a crash, or a link, which must not be followed.
	if err := os.Remove(temporary); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove the old temporary file: %w", err)
	}
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, fmt.Errorf("create a temporary file: %w", err)
	}
	return f, nil
}

// syncDirectory flushes a rename in the directory to the disk.
func syncDirectory(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

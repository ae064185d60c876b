package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// replaceFile writes a file anew, with a mode from which the umask takes. Whoever reads it
// finds the old one or the new one, whole, though the process or the machine die at any
// time. Only one process at a time may replace a file.
func replaceFile(path string, mode os.FileMode, write func(io.Writer) error) (err error) {
	f, err := createTemporary(path, mode)
	if err != nil {
		return err
	}
	beside := f.Name()
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(beside)
		}
	}()
	if err := write(f); err != nil {
		return err
	}
	// Else the name could reach the disk before the contents do.
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	if err := os.Rename(beside, path); err != nil {
		return fmt.Errorf("put in place: %w", err)
	}
	if err := syncDirectory(filepath.Dir(path)); err != nil {
		return fmt.Errorf("sync its directory: %w", err)
	}
	return nil
}

// createTemporary opens a new file from which one at path can be made.
func createTemporary(path string, mode os.FileMode) (*os.File, error) {
	beside := path + ".new"
	// One that dies leaves it behind. What else has the name, such as a link, is not to be
	// written to.
	if err := os.Remove(beside); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("make room for a new file: %w", err)
	}
	f, err := os.OpenFile(beside, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, fmt.Errorf("make a new file: %w", err)
	}
	return f, nil
}

// syncDirectory makes a renaming in the directory last.
func syncDirectory(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

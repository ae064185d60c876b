package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// reportFile is where a report goes.
type reportFile struct {
	path string
	// mode is that of the file, less the umask.
	mode os.FileMode
	// stream says that the place is no file, such as /dev/stdout, and is written to.
	stream bool
}

// newReportFile returns the page at a path, or why none can be written there: a run over large logs
// takes long. What is there stays as it is, and may not be one of the run's own files.
func newReportFile(path string, inputs []string) (p reportFile, err error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		p.path, p.mode = path, 0o666
	case err != nil:
		return p, withoutPath(err)
	case info.IsDir():
		return p, errors.New("this is a directory: name a file")
	case !info.Mode().IsRegular():
		return reportFile{path: path, stream: true}, nil
	default:
		for _, input := range inputs {
			if other, err := os.Stat(input); err == nil && os.SameFile(info, other) {
				return p, fmt.Errorf("this is %s, which is read: name another file", input)
			}
		}
		p.mode = info.Mode().Perm()
		if p.path, err = filepath.EvalSymlinks(path); err != nil {
			return p, withoutPath(err)
		}
		old, err := os.OpenFile(p.path, os.O_WRONLY, 0)
		if err != nil {
			return p, withoutPath(err)
		}
		if err := old.Close(); err != nil {
			return p, withoutPath(err)
		}
	}
	f, err := createTemporary(p.path, p.mode)
	if err != nil {
		return p, withoutPath(err)
	}
	return p, errors.Join(f.Close(), os.Remove(f.Name()))
}

func (p reportFile) write(content func(io.Writer) error) error {
	if !p.stream {
		return withoutPath(replaceFile(p.path, p.mode, content))
	}
	f, err := os.OpenFile(p.path, os.O_WRONLY, 0)
	if err != nil {
		return withoutPath(err)
	}
	return errors.Join(content(f), f.Close())
}

// withoutPath is an error without the path, which its reader knows.
func withoutPath(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

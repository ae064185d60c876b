package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// page is where a report goes.
type page struct {
	path string
	// mode is that of the file, less the umask.
	mode os.FileMode
	// stream says that the place is no file, such as /dev/stdout, and is written to.
	stream bool
}

// newPage returns the page at a path, or why none can be written there: a run over large logs
// takes long. What is there stays as it is, and may not be one of the run's own files.
func newPage(path string, inputs []string) (p page, err error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		p.path, p.mode = path, 0o666
	case err != nil:
		return p, reason(err)
	case info.IsDir():
		return p, errors.New("this is a directory: name a file")
	case !info.Mode().IsRegular():
		return page{path: path, stream: true}, nil
	default:
		for _, input := range inputs {
			if other, err := os.Stat(input); err == nil && os.SameFile(info, other) {
				return p, fmt.Errorf("this is %s, which is read: name another file", input)
			}
		}
		p.mode = info.Mode().Perm()
		if p.path, err = filepath.EvalSymlinks(path); err != nil {
			return p, reason(err)
		}
		old, err := os.OpenFile(p.path, os.O_WRONLY, 0)
		if err != nil {
			return p, reason(err)
		}
		if err := old.Close(); err != nil {
			return p, reason(err)
		}
	}
	f, err := openBeside(p.path, p.mode)
	if err != nil {
		return p, reason(err)
	}
	return p, errors.Join(f.Close(), os.Remove(f.Name()))
}

func (p page) write(content func(io.Writer) error) error {
	if !p.stream {
		return reason(replaceFile(p.path, p.mode, content))
	}
	f, err := os.OpenFile(p.path, os.O_WRONLY, 0)
	if err != nil {
		return reason(err)
	}
	return errors.Join(content(f), f.Close())
}

// reason is an error without the path, which its reader knows.
func reason(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

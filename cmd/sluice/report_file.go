package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sluice-ratelimit/sluice/internal/file"
)

// reportFile is the destination of a report.
type reportFile struct {
	path string
	mode os.FileMode // subject to the umask
	// stream is true if the path is not a regular file, such as /dev/stdout.
	stream bool
}

// newReportFile checks that a report can be written to path, before a long simulation. It does not
// change an existing file. The path must not be one of the inputs.
func newReportFile(path string, inputs []string) (p reportFile, err error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		p.path, p.mode = path, 0o666
	case err != nil:
		return p, withoutPath(err)
	case info.IsDir():
		return p, errors.New("is a directory: name a file")
	case !info.Mode().IsRegular():
		return reportFile{path: path, stream: true}, nil
	default:
		for _, input := range inputs {
			if other, err := os.Stat(input); err == nil && os.SameFile(info, other) {
				return p, fmt.Errorf("is the same file as the input %s: name another file", input)
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
	f, err := file.CreateTemporary(p.path, p.mode)
	if err != nil {
		return p, withoutPath(err)
	}
	return p, errors.Join(f.Close(), os.Remove(f.Name()))
}

func (p reportFile) write(content func(io.Writer) error) error {
	if !p.stream {
		return withoutPath(file.Replace(p.path, p.mode, content))
	}
	f, err := os.OpenFile(p.path, os.O_WRONLY, 0)
	if err != nil {
		return withoutPath(err)
	}
	return errors.Join(content(f), f.Close())
}

// withoutPath returns err without its path, which the caller adds.
func withoutPath(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

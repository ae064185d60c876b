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
// change an existing file. The path must not be one of the inputs, as [file.InputAt] knows them.
func newReportFile(path string) (p reportFile, err error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		p.path = path
		p.mode = 0o666
	case err != nil:
		return p, withoutPath(err)
	case info.IsDir():
		return p, errors.New("is a directory: name a file")
	case !info.Mode().IsRegular():
		return reportFile{path: path, stream: true}, nil
	default:
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
	if err := p.checkInputs(); err != nil {
		return p, err
	}
	f, err := file.CreateTemporary(p.path, p.mode)
	if err != nil {
		return p, withoutPath(err)
	}
	return p, errors.Join(f.Close(), os.Remove(f.Name()))
}

// checkInputs returns an error if writing the report would overwrite a file that this process has
// read.
func (p reportFile) checkInputs() error {
	if input := file.InputAt(p.path); input != "" {
		return fmt.Errorf("is the same file as the input %s: name another file", input)
	}
	if input := file.InputAt(file.TemporaryName(p.path)); input != "" {
		return fmt.Errorf("the report is first written to %s, which is the input %s: name another file",
			file.TemporaryName(p.path), input)
	}
	return nil
}

func (p reportFile) write(content func(io.Writer) error) error {
	if !p.stream {
		if err := p.checkInputs(); err != nil { // more files may have been opened
			return err
		}
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

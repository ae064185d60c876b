package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors/tables"
)

// maxTableBytes bounds the size of a file of rows.
const maxTableBytes = 512 << 20

// A TableUpdate is the result of reading the file of a table.
type TableUpdate struct {
	Table *tables.Table
	// Rows are nil with an error.
	Rows *tables.Rows
	// Err says why there are none; what is in force stays.
	Err error
}

// TableOptions say what a [TableFile] reads and calls.
type TableOptions struct {
	Table *tables.Table
	Path  string
	// OnLoad is called with the first reading and after every change of the file. It puts the rows in force, or returns
	// why not. Required.
	OnLoad func(TableUpdate) error
	// OnUnwatched, Poll and Settle are as in [Options].
	OnUnwatched  func(error)
	Poll, Settle time.Duration
}

// TableFile is the file of a table, whose changes are followed as those of [Files] are. A file that looks as it did when it was read,
// by size, times and place, is not read again, since it may be large.
type TableFile struct {
	opt  TableOptions
	last stamp // of the last reading
}

// stamp tells one state of a file from another.
type stamp struct {
	info fs.FileInfo
	err  string // why there is none
}

func (s stamp) is(other stamp) bool {
	if s.info == nil || other.info == nil {
		return s.info == nil && other.info == nil && s.err == other.err
	}
	return os.SameFile(s.info, other.info) && s.info.Size() == other.info.Size() && s.info.ModTime().Equal(other.info.ModTime())
}

// NewTableFile returns a TableFile. It reads nothing yet.
func NewTableFile(opt TableOptions) *TableFile {
	if opt.Poll <= 0 {
		opt.Poll = 10 * time.Second
	}
	if opt.Settle <= 0 {
		opt.Settle = 100 * time.Millisecond
	}
	return &TableFile{opt: opt}
}

// alone returns a group of this file.
func (f *TableFile) alone() *Group { return &Group{tables: []*TableFile{f}} }

// Load reads the file for the first time, calls OnLoad and returns the error that keeps its rows out.
func (f *TableFile) Load() error { return f.alone().Load() }

// Run calls OnLoad after every change of the file since it was read last, until ctx ends.
func (f *TableFile) Run(ctx context.Context) { f.alone().Run(ctx) }

// look reads the file if it has changed and stays as it is for a settle time.
func (f *TableFile) look(ctx context.Context, w *watcher, refresh func()) {
	f.alone().look(ctx, w, refresh)
}

func (f *TableFile) stamp() stamp {
	info, err := os.Stat(f.opt.Path)
	if err != nil {
		return unreadable(err)
	}
	return stamp{info: info}
}

// unreadable returns the stamp of a file that cannot be opened or read, whichever operation found out.
func unreadable(err error) stamp {
	if wrong, ok := errors.AsType[*fs.PathError](err); ok {
		err = wrong.Err
	}
	return stamp{err: err.Error()}
}

func (f *TableFile) read() (*tables.Rows, stamp, error) { return readTable(f.opt.Table, f.opt.Path) }

// errChanged says that a file changed while it was read.
var errChanged = errors.New("the file changes while it is read")

// ReadTable reads a file of rows for a table once.
func ReadTable(t *tables.Table, path string) (*tables.Rows, error) {
	rows, _, err := readTable(t, path)
	return rows, err
}

func readTable(t *tables.Table, path string) (*tables.Rows, stamp, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() { // to open a pipe may never end
		return nil, stamp{info: info}, fmt.Errorf("read %s: not a regular file", path)
	}
	file, err := os.Open(path) //nolint:gosec // reading the file that the operator names is the point
	if err != nil {
		return nil, unreadable(err), withUser(err)
	}
	defer file.Close() //nolint:errcheck // only read from
	return readOpenTable(t, path, file, nil)
}

// readOpenTable reads an open file. Then, which may be nil, is called when that is done.
func readOpenTable(t *tables.Table, path string, file *os.File, then func()) (*tables.Rows, stamp, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, unreadable(err), err
	}
	before := stamp{info: info}
	if info.Size() > maxTableBytes {
		return nil, before, fmt.Errorf("read %s: %d MiB; a table is at most %d MiB", path, info.Size()>>20, maxTableBytes>>20)
	}
	content := &failingReader{in: file}
	rows, found := t.Read(path, io.LimitReader(content, maxTableBytes))
	if content.err != nil { // of the file system, which may be over without a change of the file
		return nil, unreadable(content.err), fmt.Errorf("read %s: %w", path, content.err)
	}
	if then != nil {
		then()
	}
	if after, err := file.Stat(); err != nil || !before.is(stamp{info: after}) {
		return nil, stamp{}, fmt.Errorf("read %s: %w", path, errChanged)
	}
	return rows, before, found.Err()
}

// failingReader keeps the error that ends reading, other than [io.EOF].
type failingReader struct {
	in  io.Reader
	err error
}

// Read implements [io.Reader].
func (r *failingReader) Read(p []byte) (n int, err error) {
	n, err = r.in.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

package source

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/descriptors/tables"
)

// maxTableBytes bounds the size of a file of rows.
const maxTableBytes = 512 << 20

// unfinishedTime is how long a file without a final newline must not change before it is read,
// since a writer may not have finished.
const unfinishedTime = 5 * time.Second

// changingTime is how long a file may keep changing before that is an error. At the start it is
// startTime for all files together.
const (
	changingTime = time.Minute
	startTime    = 2 * unfinishedTime
)

// A TableUpdate is the result of reading the file of a table.
type TableUpdate struct {
	Table *tables.Table
	// Rows are nil with an error.
	Rows *tables.Rows
	// Diagnostics are warnings about the rows.
	Diagnostics rules.Diagnostics
	// Err is why there are no rows; the active rows stay.
	Err error
}

// TableOptions are the options of a [TableFile].
type TableOptions struct {
	Table *tables.Table
	Path  string
	// AllowEmpty permits a file without rows if the table has some, which otherwise is the error
	// [ErrNoRows].
	AllowEmpty bool
	// Settle is as in [Options], for a [Group] without files of rules.
	Settle time.Duration
}

// TableFile is the file of a table that a [Group] follows. Since it may be large, it is not read
// again while size, times and inode do not change. A file without a final newline counts as
// unfinished: it is read once it has not changed for five seconds.
type TableFile struct {
	opt  TableOptions
	last stamp // the file's state at the last reading
	seen stamp // the file's state when it was last observed
	// unchanged returns how long the state seen has lasted.
	unchanged func() time.Duration
	// unfinished is the state in which the file was unfinished when it was last read.
	unfinished stamp
	// open is openTable, except in tests.
	open func(path string) (tableSource, error)
}

// stamp identifies a state of a file.
type stamp struct {
	info fs.FileInfo
	err  string // why info is nil
}

func (s stamp) equal(other stamp) bool {
	if s.info == nil || other.info == nil {
		return s.info == nil && other.info == nil && s.err == other.err
	}
	return os.SameFile(s.info, other.info) && s.info.Size() == other.info.Size() &&
		s.info.ModTime().Equal(other.info.ModTime())
}

// NewTableFile returns a TableFile. It does not read the file yet.
func NewTableFile(opt TableOptions) *TableFile {
	opt.Settle = cmp.Or(opt.Settle, defaultSettle)
	f := &TableFile{opt: opt, open: openTable, unchanged: stopwatch()}
	f.observe()
	return f
}

// changingReading returns the error for a file that keeps changing.
func (f *TableFile) changingReading() tableReading {
	return tableReading{stamp: stamp{err: errChanging.Error()}, err: fmt.Errorf("read %s: %w", f.opt.Path, errChanging)}
}

// observe records the state of the file without reading it.
func (f *TableFile) observe() {
	if s := stampOf(f.opt.Path); !s.equal(f.seen) {
		f.seen = s
		f.unchanged = stopwatch()
	}
}

// stopwatch returns a function that returns the time since stopwatch was called.
func stopwatch() func() time.Duration {
	start := time.Now() //nolint:forbidigo // only for the duration
	return func() time.Duration { return time.Since(start) }
}

// stampOf returns the state of a file now.
func stampOf(path string) stamp {
	info, err := os.Stat(path)
	if err != nil {
		return unreadable(err)
	}
	return stamp{info: info}
}

// unreadable returns the stamp of a file that cannot be opened or read, which does not depend on
// the operation.
func unreadable(err error) stamp {
	if wrong, ok := errors.AsType[*fs.PathError](err); ok {
		err = wrong.Err
	}
	return stamp{err: err.Error()}
}

// tableReading is the content of a file at one time.
type tableReading struct {
	rows     *tables.Rows // nil with an error
	warnings rules.Diagnostics
	stamp    stamp
	err      error
}

func (f *TableFile) read() tableReading {
	r := readTable(f.opt.Table, f.opt.Path, f.open,
		func(s stamp) bool { return s.equal(f.seen) && f.unchanged() >= unfinishedTime })
	if errors.Is(r.err, errUnfinished) {
		f.unfinished = f.seen
	}
	return r
}

// isUnfinished reports whether the file was unfinished when it was last read, and has to be read
// later.
func (f *TableFile) isUnfinished() bool {
	return f.unfinished.info != nil && f.unfinished.equal(f.seen) && f.unchanged() < unfinishedTime
}

// update makes r the last reading and returns its update.
func (f *TableFile) update(r tableReading) TableUpdate {
	f.last = r.stamp
	f.compare(&r)
	return TableUpdate{Table: f.opt.Table, Rows: r.rows, Diagnostics: r.warnings, Err: r.err}
}

// ErrNoRows means that a file has no rows though its table has some.
var ErrNoRows = errors.New("the file has no rows")

// compare warns if a reading has no rows, or less than half the rows of the table: the file may be
// truncated between two rows. Losing all rows is an error unless AllowEmpty is set.
func (f *TableFile) compare(r *tableReading) {
	if r.rows == nil {
		return
	}
	lost := ""
	switch before, now := f.opt.Table.Rows().Len(), r.rows.Len(); {
	case now == 0 && before > 0 && !f.opt.AllowEmpty:
		r.rows = nil
		r.err = fmt.Errorf("%s: error: %w, but the table has %s", f.opt.Path, ErrNoRows, rules.Count(before, "row"))
	case now == 0:
		lost = "the file has no rows: the rules' own numbers apply to all keys"
	case 2*now < before:
		lost = fmt.Sprintf("the file has %s, but the table had %d: more than half are missing", rules.Count(now, "row"),
			before)
	}
	if lost != "" {
		r.warnings = append(r.warnings,
			rules.Diagnostic{Pos: rules.Pos{File: f.opt.Path}, Severity: rules.Warning, Message: lost})
	}
}

var (
	errChanged    = errors.New("the file changes while it is read")
	errChanging   = errors.New("the file keeps changing; write to another file and rename it")
	errUnfinished = fmt.Errorf("the file does not end with a newline and keeps changing; it is read once it has not changed for %v", unfinishedTime)
)

// ReadTable reads a file of rows for a table once. It does not wait for an unfinished file. found
// are warnings about the rows.
func ReadTable(t *tables.Table, path string) (rows *tables.Rows, found rules.Diagnostics, err error) {
	r := readTable(t, path, openTable, func(stamp) bool { return true })
	(&TableFile{opt: TableOptions{Table: t, Path: path}}).compare(&r)
	return r.rows, r.warnings, r.err
}

// tableSource is an open file of a table.
type tableSource interface {
	io.ReadCloser
	io.ReaderAt
	Stat() (fs.FileInfo, error)
}

func openTable(path string) (tableSource, error) {
	file, err := openRegular(path)
	if err != nil {
		return nil, addUser(err)
	}
	return file, nil
}

// readTable reads a file, unless it is unfinished and isSettled returns false.
func readTable(
	t *tables.Table, path string, open func(string) (tableSource, error), isSettled func(stamp) bool,
) tableReading {
	file, err := open(path)
	if err != nil {
		return tableReading{stamp: unreadable(err), err: err}
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return tableReading{stamp: unreadable(err), err: err}
	}
	before := stamp{info: info}
	if info.Size() > maxTableBytes {
		return tableReading{
			stamp: before, err: fmt.Errorf("read %s: the file has %d MiB; the maximum for a table is %d MiB", path, info.Size()>>20, maxTableBytes>>20),
		}
	}
	if !isSettled(before) && isUnfinished(file, info.Size()) {
		return tableReading{err: fmt.Errorf("read %s: %w", path, errUnfinished)}
	}
	content := &failingReader{in: file}
	rows, found := t.Read(path, io.LimitReader(content, maxTableBytes))
	after, err := file.Stat()
	switch {
	case content.err != nil: // an error of the file system may end without a change of the file
		return tableReading{stamp: unreadable(content.err), err: fmt.Errorf("read %s: %w", path, content.err)}
	case err != nil:
		return tableReading{stamp: unreadable(err), err: err}
	case !before.equal(stamp{info: after}):
		return tableReading{err: fmt.Errorf("read %s: %w", path, errChanged)}
	case found.HasErrors():
		return tableReading{stamp: before, err: found.Err()}
	case content.n < info.Size():
		return tableReading{
			stamp: unreadable(io.ErrUnexpectedEOF), err: fmt.Errorf("read %s: %w: %d bytes of %d", path, io.ErrUnexpectedEOF, content.n, info.Size()),
		}
	}
	return tableReading{rows: rows, warnings: found, stamp: before}
}

// isUnfinished reports whether a file is empty or does not end with a newline. It returns false if
// the end cannot be read; reading the file then returns the error.
func isUnfinished(file io.ReaderAt, size int64) bool {
	if size == 0 {
		return true
	}
	var last [1]byte
	n, _ := file.ReadAt(last[:], size-1)
	return n == 1 && last[0] != '\n'
}

// failingReader counts bytes and keeps the error that ends reading, other than [io.EOF].
type failingReader struct {
	in  io.Reader
	n   int64
	err error
}

func (r *failingReader) Read(p []byte) (n int, err error) {
	n, err = r.in.Read(p)
	r.n += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

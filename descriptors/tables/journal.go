package tables

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// Journal keeps a table in a file. Each change is durable before it is in force. Its methods may be called concurrently.
//
// Changes are appended to the file. When it is mostly changes that others have replaced, it is written anew beside itself and
// renamed. So whenever the process is killed, the file has all changes that were acknowledged, and at its end at most one
// record that was not.
type Journal struct {
	table *Table
	path  string

	mu      sync.Mutex
	queue   []*waiting
	writing bool // a goroutine writes what is queued
	closed  bool

	// The goroutine that writes has the rest.
	file *os.File
	size int64 // of what is durable
	// whole is the size when the file was last written anew, retry the one at which that is tried again after it failed.
	whole, retry int64
	// broken says that the file may end in something else than size bytes of records: only a new one helps.
	broken bool
	buf    []byte
	// notify, if not nil, is told when writing begins to fail, and with nil when it does so no more.
	notify  func(error)
	failing bool
}

// waiting are changes of a caller that waits for them to be durable.
type waiting struct {
	columns []string
	changes []Change
	done    chan error
}

var (
	// ErrFull says that a table has as many rows, or names, as it may have.
	ErrFull = errors.New("the table is full")
	// ErrDamaged says that a journal has lost changes that were acknowledged.
	ErrDamaged = errors.New("the journal is damaged")
	// ErrColumns says that changes are of other columns than the table.
	ErrColumns = errors.New("other columns")
	// ErrNotSaved says that changes could not be made durable.
	ErrNotSaved = errors.New("not saved, and not in force")
	// ErrClosed says that the process ends.
	ErrClosed = errors.New("the table is closed")
	errNames  = fmt.Errorf("its rows have %d names; each is a series of metrics, and rows may share one", MaxNames)
)

// journalEnds is how the names of journals end.
const journalEnds = ".table"

// maxJournalBytes is the size of a journal from which it takes no new row.
const maxJournalBytes = 1 << 30

// compactFrom is the size of a journal from which it may be written anew.
const compactFrom = 1 << 20

// Apply makes changes durable, all or none, and then puts them in force. An error says that nothing has changed. Columns are those of the
// changes; the first change decides those of the table.
func (j *Journal) Apply(columns []string, changes []Change) error {
	w := &waiting{columns, changes, make(chan error, 1)}
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return ErrClosed
	}
	j.queue = append(j.queue, w)
	if !j.writing {
		j.writing = true
		go j.write()
	}
	j.mu.Unlock()
	return <-w.done
}

// Close waits for changes that are being written. Others fail.
func (j *Journal) Close() error {
	j.mu.Lock()
	j.closed = true
	j.mu.Unlock()
	_ = j.Flush()
	if j.file == nil {
		return nil
	}
	return j.file.Close()
}

// Flush waits for changes that are being written.
func (j *Journal) Flush() error {
	w := &waiting{done: make(chan error, 1)}
	j.mu.Lock()
	j.queue = append(j.queue, w)
	if !j.writing {
		j.writing = true
		go j.write()
	}
	j.mu.Unlock()
	return <-w.done
}

// write writes what is queued, as one record what came meanwhile, until nothing is.
func (j *Journal) write() {
	for {
		j.mu.Lock()
		all := j.queue
		j.queue = nil
		if len(all) == 0 {
			j.writing = false
			j.mu.Unlock()
			return
		}
		j.mu.Unlock()
		for len(all) > 0 {
			all = j.commit(all)
		}
	}
}

// commit writes the first of all as one record, as many as fit, and answers them. It returns the others.
func (j *Journal) commit(all []*waiting) (rest []*waiting) {
	b := j.buf[:0]
	b = append(b, make([]byte, recordHead)...)
	columns := j.table.Rows().Columns()
	var named []string
	if columns != nil && j.table.Rows().Len() > 0 {
		named = *columns // an empty table may get others
	}
	var taken []*waiting
	more := 0 // rows
	for rest = all; len(rest) > 0; rest = rest[1:] {
		w := rest[0]
		if len(w.changes) > 0 && named == nil {
			if !slices.ContainsFunc(w.changes, func(c Change) bool { return !c.Delete }) {
				w.done <- nil // there is no row to delete, and a deletion decides no columns
				continue
			}
			named = w.columns
		}
		rows, err := j.check(w, named, more)
		if errors.Is(err, errNames) {
			if len(taken) > 0 {
				break // what is taken may need names that no row has yet
			}
			if j.table.dropNames() {
				j.broken = true // the file has them, and may have as many as the table
				rows, err = j.check(w, named, more)
			}
		}
		if err != nil {
			w.done <- err
			continue
		}
		from := len(b)
		for i := range w.changes {
			b = appendChange(b, &w.changes[i])
		}
		if len(b) > recordHead+maxRecordLen {
			b = b[:from]
			if len(taken) > 0 {
				break
			}
			w.done <- fmt.Errorf("%w: the changes take more than %d MiB at once", ErrNotSaved, maxRecordLen>>20)
			continue
		}
		taken, more = append(taken, w), more+rows
	}
	if j.buf = b; cap(b) > compactFrom {
		j.buf = nil
	}
	var err error
	if len(b) > recordHead {
		sealRecord(b, 0)
		j.broken = j.broken || columns != nil && !slices.Equal(named, *columns)
		err = j.save(named, b)
	}
	for _, w := range taken {
		if err == nil {
			err = j.enforce(named, w.changes)
		}
		w.done <- err
	}
	j.compact()
	return rest
}

// enforce puts changes in force, and says in them what was. That check has found them right means that it cannot fail.
func (j *Journal) enforce(columns []string, changes []Change) error {
	for i := range changes {
		c := &changes[i]
		if c.Was, c.Had = j.table.Rows().Get(c.Values); c.Delete {
			j.table.Delete(c.Values)
		} else if err := j.table.Put(columns, c.Values, c.Row); err != nil {
			return err
		}
	}
	return nil
}

// check returns how many rows changes add, beside so many that others do, or why they cannot be taken.
func (j *Journal) check(w *waiting, named []string, more int) (added int, err error) {
	if len(w.changes) == 0 {
		return 0, nil
	}
	if !slices.Equal(w.columns, named) {
		return 0, fmt.Errorf("%w: the table has %q, not %q", ErrColumns, named, w.columns)
	}
	rows, puts := j.table.Rows(), 0
	for i := range w.changes {
		c := &w.changes[i]
		if len(c.Values) != len(named) {
			return 0, fmt.Errorf("%d values for %d columns", len(c.Values), len(named))
		}
		if err := checkValues(c.Values); err != nil {
			return 0, err
		}
		if !j.table.hasName(c.Row.Name) {
			return 0, fmt.Errorf("%w: %w", ErrFull, errNames)
		}
		if c.Delete {
			continue
		}
		puts++
		if _, known := rows.Get(c.Values); !known {
			added++
		}
	}
	if rows.Len()+more+added > j.table.most {
		return 0, fmt.Errorf("%w: it has %d rows, and at most %d", ErrFull, rows.Len(), j.table.most)
	}
	if added > 0 && j.size > maxJournalBytes || puts > 0 && j.size > 2*maxJournalBytes { // the latter if it cannot be written anew
		return 0, fmt.Errorf("%w: its rows take %d MiB, and at most %d", ErrFull, j.size>>20, maxJournalBytes>>20)
	}
	return added, nil
}

// save makes a record durable.
func (j *Journal) save(columns []string, record []byte) error {
	if err := j.look(); err != nil {
		j.tell(err)
		return fmt.Errorf("%w: %w", ErrNotSaved, err)
	}
	if j.broken || j.file == nil {
		if err := j.rewrite(columns); err != nil {
			j.tell(err)
			return fmt.Errorf("%w: %w", ErrNotSaved, err)
		}
	}
	_, err := j.file.WriteAt(record, j.size)
	if err == nil {
		err = j.file.Sync()
	}
	if err == nil {
		j.size += int64(len(record))
		j.tell(nil)
		return nil
	}
	j.tell(err)
	if cut := j.cut(j.size); cut != nil {
		j.broken = true
	}
	return fmt.Errorf("%w: %w", ErrNotSaved, err)
}

// look sees whether the file is where the next process will look for it. One that somebody has removed is broken. It returns an error if
// another is in its place, since nobody but an operator knows which of the two holds.
func (j *Journal) look() error {
	if j.file == nil {
		return nil
	}
	own, err := j.file.Stat()
	if err != nil {
		return err
	}
	there, err := os.Stat(j.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		j.broken = true
		return nil
	case err != nil:
		return err
	case !os.SameFile(own, there):
		return fmt.Errorf("%s was replaced by somebody else: restart to go on with it, or remove it to go on with the rows in force", j.path)
	}
	return nil
}

// cut makes size bytes of the file all that there is.
func (j *Journal) cut(size int64) error {
	if err := j.file.Truncate(size); err != nil {
		return err
	}
	return j.file.Sync()
}

// compact writes the file anew if most of it may be changes that others have replaced.
func (j *Journal) compact() {
	if j.size < max(compactFrom, min(2*j.whole, j.whole+maxJournalBytes/4), j.retry) {
		return
	}
	err := j.rewrite(*j.table.Rows().Columns())
	j.retry = 0
	if err != nil {
		j.retry = j.size + j.size/4
	}
	j.tell(err)
}

// tell tells whether writing fails, if that is news.
func (j *Journal) tell(err error) {
	if j.notify != nil && (err != nil) != j.failing {
		j.failing = err != nil
		j.notify(err)
	}
}

// rewrite replaces the file by one that has the rows in force, each once. If that fails, the file stays.
func (j *Journal) rewrite(columns []string) (err error) {
	next, err := os.OpenFile(j.path+".tmp", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	size, err := writeRows(next, columns, j.table.Rows())
	if err == nil {
		err = next.Sync()
	}
	if err == nil {
		err = os.Rename(next.Name(), j.path)
	}
	if err != nil {
		_ = next.Close()
		_ = os.Remove(next.Name()) // the next attempt replaces it
		return err
	}
	if j.file != nil {
		_ = j.file.Close() // it is no file of a directory any more
	}
	j.file, j.size, j.whole = next, size, size
	err = syncDir(filepath.Dir(j.path))
	j.broken = err != nil // after a loss of power, the file may be the old one
	return err
}

// writeRows writes a journal that has the rows.
func writeRows(to io.Writer, columns []string, rows *Rows) (size int64, err error) {
	const piece = 1 << 16
	b := appendColumns([]byte(journalMagic), columns)
	flush := func() error {
		n, err := to.Write(b)
		size += int64(n)
		b = b[:0]
		return err
	}
	from := len(b)
	b = append(b, make([]byte, recordHead)...)
	for values, row := range rows.All() {
		b = appendChange(b, &Change{Values: values, Row: row})
		if len(b) >= piece {
			sealRecord(b, from)
			if err := flush(); err != nil {
				return size, err
			}
			from, b = 0, append(b, make([]byte, recordHead)...)
		}
	}
	if len(b) == from+recordHead {
		b = b[:from]
	} else {
		sealRecord(b, from)
	}
	return size, flush()
}

// syncDir makes a rename durable.
func syncDir(dir string) error {
	d, err := os.Open(dir) //nolint:gosec // the operator names it
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }() // only synced
	return d.Sync()
}

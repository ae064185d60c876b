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

// Journal keeps a table in a file. A change is durable before it is active. The methods may be
// called concurrently.
//
// Changes are appended to the file. When later changes may have replaced most of it, the rows are
// written to a new file, which replaces the old one. So whenever the process is killed, the file
// has all acknowledged changes, followed by one incomplete record at most.
type Journal struct {
	table *Table
	path  string
	// notify, if not nil, is called with an error when writing begins to fail, and with nil when it
	// works again.
	notify func(error)

	mu      sync.Mutex
	queue   []*request
	writing bool // a goroutine writes the queue
	closed  bool
	writers sync.WaitGroup

	// Only the goroutine that writes uses the fields below.
	file    *os.File // nil before the first change
	columns []string // columns of the file
	size    int64    // number of bytes of complete records
	// compactAt is the size at which the file is replaced by one that has each row once.
	compactAt int64
	// incomplete is true if the file is missing or may not end with a complete record. It is
	// replaced before the next change.
	incomplete bool
	failing    bool // whether notify was last called with an error
}

// request has the changes of a caller of [Journal.Apply].
type request struct {
	columns []string
	changes []Change
	payload []byte // the changes as they are in a record
	dryRun  bool   // whether the changes are only checked
	done    chan error
}

var (
	// ErrFull means that a table has the maximum number of rows or names.
	ErrFull = errors.New("the table is full")
	// ErrDamaged means that a journal has lost acknowledged changes.
	ErrDamaged = errors.New("the journal is damaged")
	// ErrColumns means that changes have other columns than the table.
	ErrColumns = errors.New("different columns")
	// ErrNotSaved means that changes could not be made durable.
	ErrNotSaved = errors.New("not saved, and not active")
	// ErrClosed means that the journal was closed, because the process is shutting down.
	ErrClosed = errors.New("the table is closed")
	errNames  = fmt.Errorf("its rows have %d names; each is a series of metrics, and rows may share one", MaxNames)
)

const (
	// journalExt is the file name extension of journals.
	journalExt = ".table"
	// maxJournalBytes is the size of a journal from which it rejects new rows.
	maxJournalBytes = 1 << 30
	// compactFrom is the minimum size of a journal that is compacted.
	compactFrom = 1 << 20
)

// compactAfter returns the size at which a journal is compacted again. size is its size after
// compaction, when it has each row once.
func compactAfter(size int64) int64 {
	return max(compactFrom, min(2*size, size+maxJournalBytes/4))
}

// Apply makes all changes durable and then active, or only checks them if dryRun is true. If it
// returns an error, it applies none. columns are the key columns of the changes. An empty table gets
// these columns.
func (j *Journal) Apply(columns []string, changes []Change, dryRun bool) error {
	r := &request{columns: columns, changes: changes, dryRun: dryRun, done: make(chan error, 1)}
	for i := range changes {
		c := &changes[i]
		if len(c.Values) != len(columns) {
			return fmt.Errorf("%d values for %d columns", len(c.Values), len(columns))
		}
		if err := checkValues(c.Values); err != nil {
			return err
		}
		r.payload = appendChange(r.payload, c)
	}
	if len(r.payload) > maxRecordLen {
		return fmt.Errorf("%w: the changes exceed %d MiB", ErrNotSaved, maxRecordLen>>20)
	}
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return ErrClosed
	}
	j.queue = append(j.queue, r)
	if !j.writing {
		j.writing = true
		j.writers.Go(j.write)
	}
	j.mu.Unlock()
	return <-r.done
}

// Close waits for the changes of active calls of Apply, and closes the file. Later calls fail.
func (j *Journal) Close() error {
	j.mu.Lock()
	j.closed = true
	j.mu.Unlock()
	j.writers.Wait()
	if j.file == nil {
		return nil
	}
	return j.file.Close()
}

// write writes the queue until it is empty. Requests that come during a write share the next one.
func (j *Journal) write() {
	for {
		j.mu.Lock()
		queue := j.queue
		j.queue = nil
		j.writing = len(queue) > 0
		j.mu.Unlock()
		if len(queue) == 0 {
			return
		}
		for len(queue) > 0 {
			queue = j.commit(queue)
			j.compact()
		}
	}
}

// commit writes the changes of valid requests as one record, activates them, and completes the
// requests in order. It returns the requests for the next record.
func (j *Journal) commit(queue []*request) (rest []*request) {
	var columns []string
	if rows := j.table.Rows(); rows.Len() > 0 {
		columns = *rows.Columns()
	}
	var payload []byte
	var batch []*request
	added := 0 // number of new rows in batch
	for rest = queue; len(rest) > 0; rest = rest[1:] {
		r := rest[0]
		if len(payload)+len(r.payload) > maxRecordLen {
			break
		}
		if len(r.changes) == 0 ||
			columns == nil && !slices.ContainsFunc(r.changes, func(c Change) bool { return !c.Delete }) {
			// An empty table has no row to delete, and deletions do not determine the columns.
			r.done <- nil
			continue
		}
		n, err := j.check(r, columns, added)
		if errors.Is(err, errNames) {
			if len(batch) > 0 {
				break // the names of rows in batch are not in use yet, so they must not be dropped
			}
			if j.table.dropNames() {
				// The file still has the dropped names, so a reader of it could exceed the maximum.
				j.incomplete = true
				n, err = j.check(r, columns, added)
			}
		}
		if err != nil || r.dryRun {
			r.done <- err
			continue
		}
		columns = r.columns
		added += n
		payload = append(payload, r.payload...)
		batch = append(batch, r)
	}
	if len(batch) == 0 {
		return rest
	}
	err := j.save(columns, appendRecord(nil, payload))
	for _, r := range batch {
		if err == nil {
			err = j.activate(r)
		}
		r.done <- err
	}
	return rest
}

// check returns the number of new rows of a request, or why it is rejected. others is the number of
// new rows of the requests before it. columns is nil if the table may get any columns.
func (j *Journal) check(r *request, columns []string, others int) (added int, err error) {
	if columns != nil && !slices.Equal(r.columns, columns) {
		return 0, fmt.Errorf("%w: the table has %q, not %q", ErrColumns, columns, r.columns)
	}
	rows := j.table.Rows()
	puts := 0
	for i := range r.changes {
		c := &r.changes[i]
		c.Was, c.Had = rows.Get(c.Values)
		if c.Delete {
			continue
		}
		if !j.table.reserveName(c.Row.Name) {
			return 0, fmt.Errorf("%w: %w", ErrFull, errNames)
		}
		puts++
		if !c.Had {
			added++
		}
	}
	if rows.Len()+others+added > j.table.maxRows {
		return 0, fmt.Errorf("%w: it has %d rows, and at most %d", ErrFull, rows.Len(), j.table.maxRows)
	}
	// The size reaches the second bound only if compaction fails.
	if added > 0 && j.size > maxJournalBytes || puts > 0 && j.size > 2*maxJournalBytes {
		return 0, fmt.Errorf("%w: its rows take %d MiB, and at most %d", ErrFull, j.size>>20, maxJournalBytes>>20)
	}
	return added, nil
}

// activate applies the changes to the table, and stores the replaced rows in them. It does not fail
// after check.
func (j *Journal) activate(r *request) error {
	for i := range r.changes {
		c := &r.changes[i]
		c.Was, c.Had = j.table.Rows().Get(c.Values)
		if c.Delete {
			j.table.Delete(c.Values)
		} else if err := j.table.Put(r.columns, c.Values, c.Row); err != nil {
			return err
		}
	}
	return nil
}

// save makes a record durable.
func (j *Journal) save(columns []string, record []byte) error {
	err := j.append(columns, record)
	j.report(err)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotSaved, err)
	}
	return nil
}

// append appends a record to the file, or changes nothing in it.
func (j *Journal) append(columns []string, record []byte) error {
	if err := j.checkPath(); err != nil {
		return err
	}
	if j.incomplete || !slices.Equal(columns, j.columns) {
		if err := j.rewrite(columns); err != nil {
			return err
		}
	}
	_, err := j.file.WriteAt(record, j.size)
	if err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		j.incomplete = j.cut(j.size) != nil
		if wrong := (*fs.PathError)(nil); errors.As(err, &wrong) {
			wrong.Path = j.path // the file may have been opened under the name before its renaming
		}
		return err
	}
	j.size += int64(len(record))
	return nil
}

// checkPath checks that the path still leads to the open file. If the file was removed, it will be
// written again. Another file at the path is an error, because only an operator knows which of the
// two is right.
func (j *Journal) checkPath() error {
	found, err := os.Stat(j.path)
	if errors.Is(err, fs.ErrNotExist) {
		j.incomplete = true
		return nil
	}
	if err != nil {
		return err
	}
	if j.file != nil {
		own, err := j.file.Stat()
		if err != nil {
			return err
		}
		if os.SameFile(own, found) {
			return nil
		}
	}
	return fmt.Errorf("another process replaced the file %s: restart to use its rows, or remove it to keep the active rows", j.path)
}

// cut truncates the file to the given size.
func (j *Journal) cut(size int64) error {
	if err := j.file.Truncate(size); err != nil {
		return err
	}
	return j.file.Sync()
}

// compact replaces the file if later changes may have replaced most of it.
func (j *Journal) compact() {
	if j.size < j.compactAt {
		return
	}
	err := j.rewrite(j.columns)
	if err != nil {
		j.compactAt = j.size + j.size/4
	}
	j.report(err)
}

// report calls notify when writing begins to fail or works again.
func (j *Journal) report(err error) {
	if j.notify != nil && (err != nil) != j.failing {
		j.failing = err != nil
		j.notify(err)
	}
}

// rewrite replaces the file by one that has each active row once. If that fails, the file stays.
func (j *Journal) rewrite(columns []string) error {
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
		_ = os.Remove(next.Name()) // if it remains, the next attempt replaces it
		return err
	}
	if j.file != nil {
		_ = j.file.Close() // nothing uses the old file
	}
	j.file = next
	j.columns = columns
	j.size = size
	j.compactAt = compactAfter(size)
	err = syncDir(filepath.Dir(j.path))
	j.incomplete = err != nil // a power failure could bring back the old file
	return err
}

// writeRows writes a journal that has each row once. It returns the number of bytes written.
func writeRows(to io.Writer, columns []string, rows *Rows) (size int64, err error) {
	const piece = 1 << 16 // approximate length of a payload
	write := func(b []byte) error {
		n, err := to.Write(b)
		size += int64(n)
		return err
	}
	if err = write(appendRecord([]byte(journalMagic), appendKey(nil, columns))); err != nil {
		return size, err
	}
	var payload, record []byte
	for values, row := range rows.All() {
		if payload = appendChange(payload, &Change{Values: values, Row: row}); len(payload) < piece {
			continue
		}
		record = appendRecord(record[:0], payload)
		if err = write(record); err != nil {
			return size, err
		}
		payload = payload[:0]
	}
	record = record[:0]
	if len(payload) > 0 {
		record = appendRecord(record, payload)
	}
	err = write(appendRecord(record, []byte{rowsEnd}))
	return size, err
}

// syncDir makes a rename durable.
func syncDir(dir string) error {
	d, err := os.Open(dir) //nolint:gosec // the operator names it
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }() // nothing was written
	return d.Sync()
}

package tables

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Recovered says what opening a journal found.
type Recovered struct {
	// Torn is how many bytes at its end were cut off: a change that was not acknowledged when the process ended.
	Torn int64
}

// OpenJournal opens the journal of a table in a directory, and puts its rows in force. There need be none yet: the first change makes it.
// Notify, if not nil, is told why writing fails, and with nil once it does no more.
func OpenJournal(t *Table, dir string, notify func(error)) (*Journal, Recovered, error) {
	j := &Journal{table: t, path: filepath.Join(dir, t.name+journalEnds), notify: notify}
	_ = os.Remove(j.path + ".tmp") // of a process that was killed while it wrote
	content, err := os.ReadFile(j.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return j, Recovered{}, nil
	case err != nil:
		return nil, Recovered{}, err
	}
	rows, good, changes, err := t.parse(content)
	if err != nil {
		return nil, Recovered{}, fmt.Errorf("%s: %w", j.path, err)
	}
	if j.file, err = os.OpenFile(j.path, os.O_RDWR, 0o600); err != nil {
		return nil, Recovered{}, err
	}
	found := Recovered{Torn: int64(len(content) - good)}
	if found.Torn > 0 {
		if err := j.cut(int64(good)); err != nil {
			_ = j.file.Close() // nothing was written
			return nil, found, err
		}
	}
	j.size = int64(good)
	j.whole = j.size * int64(rows.Len()+1) / int64(changes+1) // about
	t.Replace(rows)
	return j, found, nil
}

// ReadJournal reads the journal of a table that another process may have open, and puts its rows in force.
func ReadJournal(t *Table, dir string) error {
	content, err := os.ReadFile(filepath.Join(dir, t.name+journalEnds)) //nolint:gosec // reading what the operator names is the point
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	rows, _, _, err := t.parse(content)
	if err == nil {
		t.Replace(rows)
	}
	return err
}

// parse reads a journal. Good is how many of its bytes are records, which have so many changes.
func (t *Table) parse(content []byte) (rows *Rows, good, changes int, err error) {
	if !strings.HasPrefix(string(content), journalMagic) {
		return nil, 0, 0, errors.New("the file is no table of sluice, or of another version")
	}
	b := &builder{hasher: t.Rows().hasher, lastWins: true}
	rest := content[len(journalMagic):]
	values := make([]string, 0, MaxColumns)
	for len(rest) > 0 {
		payload, next, err := nextRecord(rest)
		if err != nil {
			break
		}
		at := len(content) - len(rest)
		r := payloadReader{b: payload}
		if b.columns == nil {
			if b.columns = r.values(nil); r.bad || CheckColumns(b.columns) != nil {
				return nil, 0, 0, fmt.Errorf("%w: the record at byte %d has no columns", ErrDamaged, at)
			}
			r.b = nil
		}
		for len(r.b) > 0 {
			c, ok := r.change(values[:0])
			if !ok || len(c.Values) != len(b.columns) {
				return nil, 0, 0, fmt.Errorf("%w: the record at byte %d has no changes", ErrDamaged, at)
			}
			if err := b.change(&c); err != nil {
				return nil, 0, 0, err
			}
			changes++
		}
		rest = next
	}
	good = len(content) - len(rest)
	if err := torn(rest); err != nil {
		return nil, 0, 0, fmt.Errorf("%w at byte %d: %w; to go on with the changes before it, cut the file there", ErrDamaged, good, err)
	}
	if b.columns == nil { // a file gets its name once it has them
		return nil, 0, 0, fmt.Errorf("%w: it ends before its first record", ErrDamaged)
	}
	return b.build(), good, changes, nil
}

// torn returns why the end of a journal, which is no record, cannot be one that was being written when the process ended: of those there
// is one, at the end.
func torn(rest []byte) error {
	if len(rest) > recordHead+maxRecordLen {
		return errors.New("more follows than a record that was not acknowledged")
	}
	for i := 1; i < len(rest); i++ {
		if _, _, err := nextRecord(rest[i:]); err == nil {
			return errors.New("a whole record follows one that is not")
		}
	}
	return nil
}

// change adds a change of a journal.
func (b *builder) change(c *Change) error {
	if err := b.add(c.Values, c.Row, 0); err != nil {
		return err
	}
	if c.Delete {
		b.rows[len(b.rows)-1].slot.is |= isDeleted
	}
	return nil
}

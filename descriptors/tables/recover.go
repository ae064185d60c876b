package tables

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// OpenJournal opens the journal of a table in a directory, and activates its rows. If there is no
// journal, the first change creates it. notify, if not nil, is called with an error when writing
// begins to fail, and with nil when it works again. torn is the number of bytes that were truncated
// at the end of the file: a change that was not acknowledged before the process ended.
func OpenJournal(t *Table, dir string, notify func(error)) (j *Journal, torn int64, err error) {
	j = &Journal{table: t, path: journalPath(t, dir), notify: notify, incomplete: true, compactAt: compactFrom}
	_ = os.Remove(j.path + ".tmp") // a process may have been killed while it wrote the file
	found, err := t.readJournal(j.path)
	switch {
	case err != nil:
		return nil, 0, err
	case found == nil:
		return j, 0, nil
	}
	if j.file, err = os.OpenFile(j.path, os.O_RDWR, 0o600); err != nil {
		return nil, 0, err
	}
	j.columns = *found.rows.Columns()
	j.size = found.size
	j.incomplete = false
	j.compactAt = compactAfter(j.size * int64(found.rows.Len()+1) / int64(found.changes+1))
	if found.torn > 0 {
		if err := j.cut(j.size); err != nil {
			_ = j.file.Close() // nothing was written
			return nil, 0, err
		}
	}
	t.Replace(found.rows)
	return j, found.torn, nil
}

// ReadJournal reads the journal of a table that another process may have open, and activates its
// rows.
func ReadJournal(t *Table, dir string) error {
	found, err := t.readJournal(journalPath(t, dir))
	if found != nil {
		t.Replace(found.rows)
	}
	return err
}

func journalPath(t *Table, dir string) string { return filepath.Join(dir, t.name+journalExt) }

// recovered is the content of a journal.
type recovered struct {
	rows    *Rows
	changes int
	size    int64 // number of bytes of complete records
	torn    int64 // number of bytes of an incomplete record at the end
}

// readJournal reads a journal. It returns nil if there is no file.
func (t *Table) readJournal(path string) (*recovered, error) {
	content, err := os.ReadFile(path) //nolint:gosec // the operator names the directory
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // see above
	}
	if err != nil {
		return nil, err
	}
	found, err := t.parse(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; restore the file from a copy, or move it away to begin with an empty table",
			path, err)
	}
	return found, nil
}

// parse reads the content of a journal.
func (t *Table) parse(content []byte) (*recovered, error) {
	if !strings.HasPrefix(string(content), journalMagic) {
		return nil, errors.New("the file is not a sluice table, or one of another version")
	}
	b := &builder{hasher: t.Rows().hasher, lastWins: true}
	found := &recovered{size: int64(len(journalMagic))}
	values := make([]string, 0, MaxColumns)
	complete := false // the rows that the file was created with were read
	for {
		payload, next, err := nextRecord(content[found.size:])
		if err != nil {
			break
		}
		r := payloadReader{b: payload}
		if b.columns == nil {
			if b.columns = r.readValues(nil); r.bad || CheckColumns(b.columns) != nil {
				return nil, fmt.Errorf("%w: the record at byte %d does not contain columns", ErrDamaged, found.size)
			}
		}
		if len(payload) == 1 && payload[0] == rowsEnd {
			complete = true
			r.b = nil
		}
		for len(r.b) > 0 {
			c, ok := r.readChange(values[:0])
			if !ok || len(c.Values) != len(b.columns) {
				return nil, fmt.Errorf("%w: the record at byte %d does not contain valid changes", ErrDamaged,
					found.size)
			}
			if err := b.addChange(&c); err != nil {
				return nil, err
			}
			found.changes++
		}
		found.size = int64(len(content) - len(next))
	}
	if !complete {
		return nil, fmt.Errorf("%w at byte %d: the rows that were saved when the file was created are incomplete",
			ErrDamaged, found.size)
	}
	rest := content[found.size:]
	if err := checkTorn(rest); err != nil {
		return nil, fmt.Errorf("%w at byte %d: %w; truncate the file there to keep the changes before it", ErrDamaged,
			found.size, err)
	}
	found.rows = b.build()
	found.torn = int64(len(rest))
	return found, nil
}

// checkTorn checks that the bytes after the last complete record can be a record that was being
// written when the process ended. It returns an error if there is too much, or if a complete record
// follows.
func checkTorn(rest []byte) error {
	if len(rest) > recordHead+maxRecordLen {
		return errors.New("the incomplete record there is longer than any record")
	}
	for i := 1; i < len(rest); i++ {
		if _, _, err := nextRecord(rest[i:]); err == nil {
			return errors.New("a complete record follows an incomplete one")
		}
	}
	return nil
}

// addChange adds a change of a journal.
func (b *builder) addChange(c *Change) error {
	if err := b.add(c.Values, c.Row, 0); err != nil {
		return err
	}
	if c.Delete {
		b.rows[len(b.rows)-1].slot.flags |= isDeleted
	}
	return nil
}

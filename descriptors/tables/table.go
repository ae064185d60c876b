package tables

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// Table is a table of rows that rules name. It may be read concurrently while one goroutine changes
// it.
type Table struct {
	name    string
	rows    atomic.Pointer[Rows]
	maxRows int

	mu sync.Mutex // serializes changes of rows
}

// New returns an empty table.
func New(name string) *Table {
	t := &Table{name: name, maxRows: MaxRows}
	t.rows.Store(newRows(nil, identity.NewKey().Hasher(), 1, nil))
	return t
}

// Name returns the name of the table.
func (t *Table) Name() string { return t.name }

// Rows returns the current rows. Put and Delete may change single rows of them.
func (t *Table) Rows() *Rows { return t.rows.Load() }

// Replace replaces all rows at once.
func (t *Table) Replace(rows *Rows) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old := t.rows.Load().columns; old != nil && slices.Equal(*old, *rows.columns) {
		rows.columns = old
	}
	t.rows.Store(rows)
}

// Put adds or replaces a row. The first row of an empty table determines the columns.
func (t *Table) Put(columns, values []string, row Row) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.rows.Load()
	switch {
	case r.columns == nil || r.Len() == 0 && !slices.Equal(*r.columns, columns):
		named := Columns(slices.Clone(columns))
		r = newRows(&named, r.hasher, 1, nil)
	case !slices.Equal(*r.columns, columns):
		return fmt.Errorf("table %s has the columns %q, not %q", t.name, *r.columns, columns)
	}
	id := r.idOf(values)
	if _, known := r.Find(id); !known && r.Len() >= t.maxRows {
		return fmt.Errorf("table %s is full: it has %d rows", t.name, t.maxRows)
	}
	for r.Len() > growRows*len(r.shards) || r.shards[r.shardOf(id)].Load().n >= maxShardRows {
		r = r.grown()
	}
	name, ok := r.nameIndex(row.Name)
	if !ok {
		return fmt.Errorf("table %s has %d names already; each is a series of metrics", t.name, MaxNames)
	}
	at := &r.shards[r.shardOf(id)]
	old := at.Load()
	next := old.with(slotOf(id, row, name), appendKey(nil, values))
	r.n.Add(int64(next.n - old.n))
	at.Store(next)
	t.rows.Store(r)
	return nil
}

// Delete removes the row of a key. It returns false if there is none.
func (t *Table) Delete(values []string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.rows.Load()
	if r.columns == nil || len(values) != len(*r.columns) {
		return false
	}
	id := r.idOf(values)
	at := &r.shards[r.shardOf(id)]
	if at.Load().find(id) == nil {
		return false
	}
	at.Store(at.Load().without(func(s *slot) bool { return s.id == id }))
	r.n.Add(-1)
	return true
}

// reserveName adds a name. It returns false if there are too many.
func (t *Table) reserveName(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.rows.Load().nameIndex(name)
	return ok
}

// dropNames removes names that no row has, and reports whether it removed any. A concurrent request
// for a row that was just replaced may be counted under the next name that is added.
func (t *Table) dropNames() (some bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rows.Load().dropNames()
}

package tables

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// Table is a table of rows that rules name. Any number of goroutines may read it while one of its
// sources changes it.
type Table struct {
	name string
	rows atomic.Pointer[Rows]
	most int // rows

	mu sync.Mutex // for what changes rows
}

// New returns an empty table.
func New(name string) *Table {
	t := &Table{name: name, most: MaxRows}
	t.rows.Store(newRows(nil, identity.NewKey().Hasher(), 1, nil))
	return t
}

// Name is what rules call the table.
func (t *Table) Name() string { return t.name }

// Rows returns the rows as they are now. Single rows of them change while they are read.
func (t *Table) Rows() *Rows { return t.rows.Load() }

// Replace puts other rows in force, all at once.
func (t *Table) Replace(rows *Rows) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old := t.rows.Load().columns; old != nil && slices.Equal(*old, *rows.columns) {
		rows.columns = old
	}
	t.rows.Store(rows)
}

// Put adds a row, or replaces the one of the same key. The first decides the columns.
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
	if _, known := r.Find(id); !known && r.Len() >= t.most {
		return fmt.Errorf("table %s is full: it has %d rows", t.name, t.most)
	}
	for r.Len() > manyRows*len(r.shards) || r.shards[r.shardOf(id)].Load().n >= mostRows {
		r = r.grown()
	}
	name, ok := r.nameIndex(row.Name)
	if !ok {
		return fmt.Errorf("table %s has %d names already; each is a series of metrics", t.name, MaxNames)
	}
	s := slot{id: id, number: row.RequestsPerUnit, burst: row.Burst, name: name, unit: uint8(row.Unit), is: isTaken} //nolint:gosec // a unit is small
	if row.Unlimited {
		s.is |= isUnlimited
	}
	at := &r.shards[r.shardOf(id)]
	old := at.Load()
	next := old.with(s, appendKey(nil, values))
	r.n.Add(int64(next.n - old.n))
	at.Store(next)
	t.rows.Store(r)
	return nil
}

// Delete removes the row of a key. It reports whether there was one.
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

// hasName makes room for a name. It reports whether there is any.
func (t *Table) hasName(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.rows.Load().nameIndex(name)
	return ok
}

// dropNames forgets names that no row has any more. It reports whether there were some. A request that just then counts for a row that
// was replaced may count for the name that comes next.
func (t *Table) dropNames() (some bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rows.Load().dropNames()
}

package descriptors

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// A TableUse is that a limit takes its numbers from a table, where a row has some. Its methods may be called concurrently.
type TableUse struct {
	table *tables.Table
	at    int // index of table in the tables of the set
	// keys are those of the levels that lead to the limit, "" where values of requests cannot be columns.
	keys []string
	path string
	// levels are those of the columns that the table has had last.
	levels atomic.Pointer[columnLevels]
	// labels are those of rows with names, in metrics.
	labels atomic.Pointer[map[string]string]
}

// columnLevels says at which levels the values of columns stand.
type columnLevels struct {
	columns *tables.Columns
	levels  []int // nil if they do not fit
}

// Name is that of the table.
func (u *TableUse) Name() string { return u.table.Name() }

// Column is the key of the last entry that leads to the limit and can be a column.
func (u *TableUse) Column() string {
	for _, key := range slices.Backward(u.keys) {
		if key != "" {
			return key
		}
	}
	return ""
}

// TableUses returns the uses of a table by the limits of the set.
func (s *Set) TableUses(name string) []*TableUse {
	var uses []*TableUse
	for _, l := range s.Limits {
		if l.Table != nil && l.Table.Name() == name {
			uses = append(uses, l.Table)
		}
	}
	return uses
}

// TableFits returns why a table cannot have these columns under the rules of the set, or nil.
func (s *Set) TableFits(name string, columns []string) error {
	for _, use := range s.TableUses(name) {
		if err := use.Fits(columns); err != nil {
			return err
		}
	}
	return nil
}

// useTable has a limit take numbers from the table that it names.
func (c *compiler) useTable(l *Limit, b *rules.Limit) {
	if b.Table == "" {
		return
	}
	path := func() string { return nodePath(l.Rule.domain, l.Rule.node) }
	entry, err := c.opt.Tables.Table(b.Table)
	if err != nil {
		c.fail(b.Pos, path(), "%v", err)
		return
	}
	table := entry.Table
	u := &TableUse{table: table, path: l.Rule.Path()}
	shared := l.Rule.few().shared
	for i, n := range l.Rule.node.lineage() {
		key := n.key
		if isWildcard(key) || shared != nil && shared[i] != nil || slices.Contains(tables.Words, key) {
			key = "" // one counter for many values, which cannot have a limit each; or a column that is no key
		}
		u.keys = append(u.keys, key)
	}
	if u.Column() == "" {
		c.fail(b.Pos, path(), "table %q: no row can be for a counter of this rule, since each of its entries stands for many values, or is called as what a row says (%s)",
			b.Table, strings.Join(tables.Words, ", "))
		return
	}
	if !c.opt.TablesLater {
		if columns := entry.ColumnsLocked(); columns != nil {
			if err := u.Fits(*columns); err != nil {
				c.fail(b.Pos, path(), "table %q: %v", b.Table, err)
				return
			}
		}
	}
	if u.at = slices.Index(c.set.tables, table); u.at < 0 {
		u.at = len(c.set.tables)
		c.set.tables = append(c.set.tables, table)
	}
	l.Table = u
}

// Snapshot is the rows of tables at one time. Requests that are planned with the same snapshot find the same rows, in however
// many tables they look. It is immutable.
type Snapshot struct {
	rows []*tables.Rows // by [TableUse].at; nil for a table whose current rows apply
}

// Snapshot returns the current rows of the set's tables that have their rows from files. Rows of other tables change one by
// one, while requests read them.
func (s *Set) Snapshot(all *tables.Registry) *Snapshot {
	if len(s.tables) == 0 {
		return nil
	}
	snapshot := &Snapshot{rows: make([]*tables.Rows, len(s.tables))}
	for i, t := range s.tables {
		if e, err := all.Table(t.Name()); err == nil && e.Path != "" {
			snapshot.rows[i] = e.Rows()
		}
	}
	return snapshot
}

// TablesFit returns which limits cannot go by the columns of their tables, each in a line, or nil. Columns returns those
// of a table, nil for any.
func (s *Set) TablesFit(columns func(table string) *tables.Columns) error {
	var found rules.Diagnostics
	of := map[string]*tables.Columns{}
	for _, l := range s.Limits {
		if l.Table == nil {
			continue
		}
		name := l.Table.Name()
		if _, known := of[name]; !known {
			of[name] = columns(name)
		}
		if of[name] == nil {
			continue
		}
		if err := l.Table.Fits(*of[name]); err != nil {
			found = append(found, rules.Diagnostic{
				Pos: l.Pos, Severity: rules.Error, Path: nodePath(l.Rule.domain, l.Rule.node), Message: fmt.Sprintf("table %q: %v", name, err),
			})
		}
	}
	return found.Err()
}

// Fits returns why a table cannot have these columns, or nil.
func (u *TableUse) Fits(columns []string) error {
	if _, missing := u.levelsOf(columns); missing != "" {
		may := slices.DeleteFunc(slices.Clone(u.keys), func(key string) bool { return key == "" })
		return fmt.Errorf("column %q is no entry of the rule %s%s; those with a value of their own for each counter are %s", rules.Shorten(missing),
			rules.Shorten(u.path), rules.DidYouMean(rules.Nearest(missing, may)), strings.Join(may, ", "))
	}
	return nil
}

// levelsOf returns the level of each column: the last that has its key.
func (u *TableUse) levelsOf(columns []string) (levels []int, missing string) {
	for _, column := range columns {
		at := -1
		for i, key := range u.keys {
			if key == column && key != "" {
				at = i
			}
		}
		if at < 0 {
			return nil, column
		}
		levels = append(levels, at)
	}
	return levels, ""
}

// find returns the row for the entries of a request. Snapshot may be nil.
func (u *TableUse) find(snapshot *Snapshot, entries []Entry) (rows *tables.Rows, hit tables.Hit, ok bool) {
	if snapshot != nil {
		rows = snapshot.rows[u.at]
	}
	if rows == nil {
		rows = u.table.Rows()
	}
	columns := rows.Columns()
	if columns == nil {
		return rows, hit, false
	}
	of := u.levels.Load()
	if of == nil || of.columns != columns {
		of = &columnLevels{columns: columns}
		of.levels, _ = u.levelsOf(*columns)
		u.levels.Store(of)
	}
	if of.levels == nil {
		return rows, hit, false
	}
	h := rows.Hasher()
	for i, level := range of.levels {
		h.AddBytesAt(i, entries[level].Value)
	}
	hit, ok = rows.Find(h.Sum())
	return rows, hit, ok
}

// label returns the label in metrics of a limit with the row of a name: the name, behind the label of a limit in a list. A new one allocates.
func (u *TableUse) label(limit, row string) string {
	if limit == "" || row == "" {
		return limit + row
	}
	known := u.labels.Load()
	if known != nil && (*known)[row] != "" {
		return (*known)[row]
	}
	next := map[string]string{}
	if known != nil && len(*known) < tables.MaxNames { // else most are of rows that are gone
		maps.Copy(next, *known)
	}
	next[row] = limit + beforeRow + row
	u.labels.Store(&next) // one that another goroutine has just added is added again
	return next[row]
}

// A rowLimit is a limit with the numbers of a row.
type rowLimit struct {
	Limit
	terms   Terms
	reserve limiter.Reserve
}

// rowOf returns a limit that names a table with the numbers of the request's row, or l itself if there is none. Unlimited says that by its
// row it is no limit.
func (p *Plan) rowOf(l *Limit, snapshot *Snapshot, entries []Entry) (of *Limit, unlimited bool) {
	rows, hit, ok := l.Table.find(snapshot, entries)
	if !ok {
		return l, false
	}
	if p.rows == len(p.rowLimits) {
		p.rowLimits = append(p.rowLimits, new(rowLimit)) // others point to the elements
	}
	r := p.rowLimits[p.rows]
	p.rows++
	r.Limit, r.terms = *l, *l.Terms
	r.Terms, r.terms.Row = &r.terms, rows.NameOf(hit)
	r.Label = l.Table.label(l.Label, r.terms.Row)
	if hit.Unlimited {
		return &r.Limit, true
	}
	r.terms.take(hit, l.Rule.domain.calendarMonths)
	if l.Reservation != nil {
		l.Reservation.words.Set(&r.reserve, &r.terms.Policy)
		r.terms.Policy.Reserve = &r.reserve
	}
	return &r.Limit, false
}

// take gives t the numbers of a row. A number that the algorithm cannot have counts as the greatest that it can. Months says that
// [Options.CalendarMonths] is set.
func (t *Terms) take(hit tables.Hit, months bool) {
	if hit.Unit != 0 && (hit.Unit != t.Unit || t.UnitMultiplier != 1) {
		t.Unit, t.UnitMultiplier = hit.Unit, 1
		rules.Recalendar(&t.Policy, hit.Unit, 1, months)
	}
	t.RequestsPerUnit = min(hit.RequestsPerUnit, rules.GreatestNumber(t.Policy.Algorithm))
	window := time.Duration(t.Unit.Seconds()*int64(t.UnitMultiplier)) * time.Second
	rules.Renumber(&t.Policy, t.RequestsPerUnit, window)
	if hit.Burst > 0 && t.Policy.Algorithm == limiter.TokenBucket {
		t.Policy.Burst = uint32(min(uint64(hit.Burst), t.Policy.MaxHits()))
	}
	t.counter = rules.CounterWord(&t.Policy, t.Candidate)
}

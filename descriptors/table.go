package descriptors

import (
	"cmp"
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

// A TableUse is the use of a table by a limit. Its methods may be called concurrently.
type TableUse struct {
	table *tables.Table
	index int // index of table in the tables of the set
	// keys are the keys of the levels that lead to the limit, "" for levels that cannot be a
	// column.
	keys []string
	path string
	// hasBurst is true if the limit uses the burst of rows.
	hasBurst bool
	// levels caches the levels of the table's columns.
	levels atomic.Pointer[columnLevels]
	// labels maps the names of rows to metric labels.
	labels atomic.Pointer[map[string]string]
}

// columnLevels has the level of each column.
type columnLevels struct {
	columns *tables.Columns
	levels  []int // nil if a column has no level
}

// Name returns the name of the table.
func (u *TableUse) Name() string { return u.table.Name() }

// Column returns the key of the last level that can be a column, or "".
func (u *TableUse) Column() string {
	for _, key := range slices.Backward(u.keys) {
		if key != "" {
			return key
		}
	}
	return ""
}

// TableUses returns the uses of a table by limits of the set.
func (s *Set) TableUses(name string) []*TableUse {
	var uses []*TableUse
	for _, l := range s.Limits {
		if l.Table != nil && l.Table.Name() == name {
			uses = append(uses, l.Table)
		}
	}
	return uses
}

// CheckTable returns an error if a limit of the set does not support a table with these columns, or
// if none supports its burst: burst names a row with one, or is empty.
func (s *Set) CheckTable(name string, columns []string, burst string) error {
	uses := s.TableUses(name)
	for _, use := range uses {
		if err := use.CheckColumns(columns); err != nil {
			return err
		}
	}
	return checkBurst(uses, burst)
}

// checkBurst returns an error if no use of a table supports the burst of the given row.
func checkBurst(uses []*TableUse, row string) error {
	if row == "" || len(uses) == 0 || slices.ContainsFunc(uses, func(u *TableUse) bool { return u.hasBurst }) {
		return nil
	}
	return fmt.Errorf(`the row of %s has a burst, but no rule of the table has "algorithm: token_bucket"; remove the burst, or set the algorithm`, row)
}

// compileTable sets l.Table if the limit has the field table.
func (c *compiler) compileTable(l *Limit, b *rules.Limit) {
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
	u := &TableUse{table: table, path: l.Rule.Path(), hasBurst: l.Policy.Algorithm == limiter.TokenBucket}
	shared := l.Rule.optionalOrZero().shared
	for i, n := range l.Rule.node.lineage() {
		key := n.key
		if isWildcard(key) || shared != nil && shared[i] != nil || slices.Contains(tables.RowFields, key) {
			key = "" // the level has one counter for many values, or the name of a row field
		}
		u.keys = append(u.keys, key)
	}
	if u.Column() == "" {
		c.fail(b.Pos, path(), "table %q: rows cannot apply to this rule, since none of its keys can be a column: each has a wildcard, shares one counter, or is a field of rows (%s)",
			b.Table, strings.Join(tables.RowFields, ", "))
		return
	}
	if u.index = slices.Index(c.set.tables, table); u.index < 0 {
		u.index = len(c.set.tables)
		c.set.tables = append(c.set.tables, table)
	}
	l.Table = u
}

// Snapshot contains the rows of tables at one time, so that requests that are planned with it use
// the same rows of all tables. It is immutable.
type Snapshot struct {
	rows []*tables.Rows // by [TableUse].index; nil for a table whose current rows apply
}

// Snapshot returns the current rows of the set's tables that are read from files. Rows of other
// tables change one by one while requests read them.
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

// CheckTables returns an error with a line for each limit that does not support the columns of its
// table, or whose table has a burst that no limit supports. columns returns the columns of a table,
// nil for any, and a row with burst.
func (s *Set) CheckTables(columns func(table string) (of *tables.Columns, burst string)) error {
	return s.checkTables(columns).Err()
}

func (s *Set) checkTables(columns func(table string) (of *tables.Columns, burst string)) (found rules.Diagnostics) {
	type checked struct {
		columns *tables.Columns
		burst   error
	}
	byTable := map[string]checked{}
	for _, l := range s.Limits {
		if l.Table == nil {
			continue
		}
		name := l.Table.Name()
		table, known := byTable[name]
		if !known {
			of, burst := columns(name)
			table = checked{of, checkBurst(s.TableUses(name), burst)}
			byTable[name] = table
		}
		err := table.burst
		if table.columns != nil {
			err = cmp.Or(l.Table.CheckColumns(*table.columns), err)
		}
		if err != nil {
			found = append(found, rules.Diagnostic{
				Pos: l.Pos, Severity: rules.Error, Path: nodePath(l.Rule.domain, l.Rule.node), Message: fmt.Sprintf("table %q: %v", name, err),
			})
		}
	}
	return found
}

// CheckColumns returns an error if the limit does not support a table with these columns.
func (u *TableUse) CheckColumns(columns []string) error {
	if _, missing := u.levelsOf(columns); missing != "" {
		allowed := slices.DeleteFunc(slices.Clone(u.keys), func(key string) bool { return key == "" })
		return fmt.Errorf("column %q is not an entry of the rule %s%s (allowed: %s)", rules.Shorten(missing),
			rules.Shorten(u.path), rules.DidYouMean(missing, allowed), strings.Join(allowed, ", "))
	}
	return nil
}

// levelsOf returns the level of each column, which is the last with its key, or the first column
// without a level.
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

// find returns the row for the entries of a request. snapshot may be nil.
func (u *TableUse) find(snapshot *Snapshot, entries []Entry) (rows *tables.Rows, hit tables.Hit, ok bool) {
	if snapshot != nil {
		rows = snapshot.rows[u.index]
	}
	if rows == nil {
		rows = u.table.Rows()
	}
	columns := rows.Columns()
	if columns == nil {
		return rows, hit, false
	}
	known := u.levels.Load()
	if known == nil || known.columns != columns {
		known = &columnLevels{columns: columns}
		known.levels, _ = u.levelsOf(*columns)
		u.levels.Store(known)
	}
	if known.levels == nil {
		return rows, hit, false
	}
	h := rows.Hasher()
	for i, level := range known.levels {
		h.AddBytesAt(i, entries[level].Value)
	}
	hit, ok = rows.Find(h.Sum())
	return rows, hit, ok
}

// label returns the metric label for a row with a name: the name, after the limit's label in a
// list. It allocates for a new name.
func (u *TableUse) label(limit, row string) string {
	if limit == "" || row == "" {
		return limit + row
	}
	known := u.labels.Load()
	if known != nil && (*known)[row] != "" {
		return (*known)[row]
	}
	next := map[string]string{}
	if known != nil && len(*known) < tables.MaxNames { // otherwise most names are of deleted rows
		maps.Copy(next, *known)
	}
	next[row] = limit + rowSeparator + row
	u.labels.Store(&next) // a concurrent addition may be lost, and is repeated by the next call
	return next[row]
}

// A rowLimit is a limit with the numbers of a row.
type rowLimit struct {
	Limit
	terms   Terms
	reserve limiter.Reserve
}

// limitForRow returns the limit with the numbers of the request's row, or l itself if there is no
// row. unlimited is true if the row is.
func (p *Plan) limitForRow(l *Limit, snapshot *Snapshot, entries []Entry) (of *Limit, unlimited bool) {
	rows, hit, ok := l.Table.find(snapshot, entries)
	if !ok {
		return l, false
	}
	if p.rows == len(p.rowLimits) {
		// Allocated separately, since Limits and Charges point to it.
		p.rowLimits = append(p.rowLimits, new(rowLimit))
	}
	r := p.rowLimits[p.rows]
	p.rows++
	r.Limit = *l
	r.terms = *l.Terms
	r.Terms = &r.terms
	r.terms.Row = rows.NameOf(hit)
	r.Label = l.Table.label(l.Label, r.terms.Row)
	if hit.Unlimited {
		return &r.Limit, true
	}
	r.terms.applyRow(hit, l.Rule.domain.calendarMonths)
	if l.Reservation != nil {
		l.Reservation.reserve.Configure(&r.reserve, &r.terms.Policy)
		r.terms.Policy.Reserve = &r.reserve
	}
	return &r.Limit, false
}

// applyRow sets the numbers of a row. Numbers above the algorithm's maximum become the maximum.
// months is [Options.CalendarMonths].
func (t *Terms) applyRow(hit tables.Hit, months bool) {
	if hit.Unit != 0 && (hit.Unit != t.Unit || t.UnitMultiplier != 1) {
		t.Unit = hit.Unit
		t.UnitMultiplier = 1
		rules.UpdateCalendar(&t.Policy, hit.Unit, 1, months)
	}
	t.RequestsPerUnit = min(hit.RequestsPerUnit, rules.MaxRequests(t.Policy.Algorithm))
	window := time.Duration(t.Unit.Seconds()*int64(t.UnitMultiplier)) * time.Second
	rules.Rescale(&t.Policy, t.RequestsPerUnit, window)
	if hit.Burst > 0 && t.Policy.Algorithm == limiter.TokenBucket {
		t.Policy.Burst = uint32(min(uint64(hit.Burst), t.Policy.MaxHits()))
	}
	t.setKind()
}

package ruleset

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/source"
	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// rulesSource is the name of the source of rules. The other sources have the names of their tables,
// which are not empty.
const rulesSource = ""

// versions contains versions by the names of their sources.
type versions map[string]*version

// version is the result of reading a source without an error: rules, or the rows of a table.
type version struct {
	rules *source.Update // nil for rows
	rows  *tables.Rows   // nil for rules
	// failed contains the names of sources that changed together with this version and failed to
	// load. It includes the failed sources of an earlier version of the same source that was still
	// waiting. This version waits until each of them has been read again.
	failed map[string]bool
}

// LoadRules is [Loader.Load] for rules alone.
func (l *Loader) LoadRules(u source.Update) error { return l.Load(source.Change{Rules: &u}) }

// Load activates a change. It returns an error if the change contains rules and these are not
// active afterwards. It logs the reasons, except for [source.ErrUsed].
func (l *Loader) Load(c source.Change) error {
	l.tables.Lock()
	waited := l.waiting[rulesSource]
	err := l.loadLocked(c)
	accepted := waited != nil && waited.rules.Accepted != nil && waited.rules.Set == l.service.Rules()
	l.tables.Unlock()
	if accepted {
		waited.rules.Accepted()
	}
	return err
}

func (l *Loader) loadLocked(c source.Change) error {
	if u := c.Rules; u != nil && u.Set != nil && u.Set != l.service.Rules() && u.Set.Used() {
		return source.ErrUsed
	}
	read, failed := l.readLocked(c)
	l.inheritFailedLocked(read, failed)
	l.dropReplacedLocked(read, failed)
	if l.service.Rules() == nil { // without rules all requests fail, so do not wait for tables
		clear(failed)
	}
	err := failedError(failed)
	if err == nil {
		err = l.activateLocked(read)
	}
	if err != nil {
		l.postponeLocked(read, failed, err)
	}
	if c.Rules == nil {
		return nil
	}
	return cmp.Or(c.Rules.Err, err)
}

// retry activates waiting versions, if that is possible now.
func (l *Loader) retry() { _ = l.Load(source.Change{}) }

// readLocked returns the versions of a change, and the names of the sources that failed to load,
// which it logs.
func (l *Loader) readLocked(c source.Change) (read versions, failed map[string]bool) {
	read = versions{}
	failed = map[string]bool{}
	if u := c.Rules; u != nil {
		l.LogDiagnostics(u.Diagnostics)
		if u.Err != nil {
			l.ReportRejected("", u.Err)
			failed[rulesSource] = true
		} else {
			read[rulesSource] = &version{rules: u}
		}
	}
	for _, u := range c.Tables {
		name := u.Table.Name()
		for _, d := range u.Diagnostics {
			l.logger.Warn("tables: "+d.String(), zap.String("table", name))
		}
		if u.Err != nil {
			l.reportRowsRejected(name, TableError(name, u.Err))
			failed[name] = true
		} else {
			read[name] = &version{rows: u.Rows}
		}
	}
	return read, failed
}

// inheritFailedLocked is called before read versions replace waiting ones. It adds to failed the
// sources for which the waiting versions wait, unless they have been read again. Rules do not wait
// for a table to which they do not refer.
func (l *Loader) inheritFailedLocked(read versions, failed map[string]bool) {
	inherited := map[string]bool{}
	for name, v := range read {
		waiting := l.waiting[name]
		if waiting == nil || v.rules != nil && v.rules.Set == l.service.Rules() {
			continue
		}
		for other := range waiting.failed {
			if read[other] == nil && (v.rules == nil || len(v.rules.Set.TableUses(other)) > 0) {
				inherited[other] = true
			}
		}
	}
	maps.Copy(failed, inherited)
}

// dropReplacedLocked removes the waiting versions of sources that have been read again. A version
// that waited for such a source now waits for the sources in failed instead.
func (l *Loader) dropReplacedLocked(read versions, failed map[string]bool) {
	names := slices.Collect(maps.Keys(failed))
	for name := range read {
		names = append(names, name)
	}
	for _, name := range names {
		delete(l.waiting, name)
	}
	for _, v := range l.waiting {
		before := len(v.failed)
		for _, name := range names {
			delete(v.failed, name)
		}
		if len(v.failed) < before {
			maps.Copy(v.failed, failed)
		}
	}
}

// failedError returns an error that names the failed sources, nil if there are none.
func failedError(failed map[string]bool) error {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(failed)) {
		if name == rulesSource {
			all = append(all, "the rules")
		} else {
			all = append(all, fmt.Sprintf("table %q", name))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return errors.New("not active, because these changed at the same time and failed to load: " +
		strings.Join(all, ", "))
}

// activateLocked activates the read versions, if possible together with waiting ones. It returns an
// error if the read versions are not active.
func (l *Loader) activateLocked(read versions) error {
	all := maps.Clone(read)
	for name, v := range l.waiting {
		if len(v.failed) == 0 {
			all[name] = v
		}
	}
	if read[rulesSource] == nil && all[rulesSource] != nil {
		if l.tryActivateLocked(all, read) == nil {
			return nil
		}
		delete(all, rulesSource) // rules that cannot be activated yet do not delay waiting rows
	}
	return l.tryActivateLocked(all, read)
}

// tryActivateLocked activates all versions, except for rows that do not fit the rules. If such rows
// are among the required ones, it returns an error and activates nothing.
func (l *Loader) tryActivateLocked(all, required versions) error {
	before := l.service.Rules()
	set := before
	rows := map[string]*tables.Rows{}
	if v := all[rulesSource]; v != nil {
		set = v.rules.Set
	}
	for name, v := range all {
		if v.rows != nil &&
			(required[name] != nil || set == nil || set.CheckTable(name, *v.rows.Columns(), v.rows.Burst()) == nil) {
			rows[name] = v.rows
		}
	}
	if set != nil {
		if err := l.tablesFitLocked(set, rows); err != nil {
			return err
		}
	}
	if set != before {
		if err := l.service.Activate(l.opt.Now(), set, rows); err != nil {
			return err
		}
	} else if len(rows) > 0 {
		l.service.ActivateRows(rows)
	}
	if all[rulesSource] != nil {
		delete(l.waiting, rulesSource)
		l.reportActivated(set, before)
	}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		delete(l.waiting, name)
		l.opt.TableMetrics[name].Loads.Inc()
		l.opt.TableMetrics[name].LastOK.Set(1)
		l.logger.Info("table loaded", zap.String("table", name), zap.Int("rows", rows[name].Len()),
			telemetry.Clear(name, telemetry.TableRejected))
	}
	return nil
}

// tablesFitLocked returns an error if limits of the set do not fit the columns of their tables,
// with the given rows in place of the active ones.
func (l *Loader) tablesFitLocked(set *descriptors.Set, rows map[string]*tables.Rows) error {
	return set.CheckTables(func(name string) (*tables.Columns, string) {
		if rows[name] != nil {
			return rows[name].Columns(), rows[name].Burst()
		}
		e, _ := l.tables.Table(name) // cannot fail, because the compiler has found the table
		return e.ColumnsLocked(), e.Rows().Burst()
	})
}

// postponeLocked makes the read versions wait and logs the reasons: sources in failed changed at
// the same time, or the versions do not fit each other.
func (l *Loader) postponeLocked(read versions, failed map[string]bool, err error) {
	set := l.service.Rules()
	if v := read[rulesSource]; v != nil {
		set = v.rules.Set
	}
	for _, name := range slices.Sorted(maps.Keys(read)) {
		v := read[name]
		v.failed = maps.Clone(failed)
		l.waiting[name] = v
		if name == rulesSource {
			l.ReportRejected("", err)
			continue
		}
		reason := fmt.Errorf("table %q: %w", name, err)
		if len(failed) == 0 {
			e, _ := l.tables.Table(name) // cannot fail
			if misfit := set.CheckTable(name, *v.rows.Columns(), v.rows.Burst()); misfit != nil {
				reason = fmt.Errorf("%s:1:1: error: %w; the rows wait for rules that they fit", e.Path, misfit)
			} else {
				reason = fmt.Errorf("table %q: not active, because other files that changed at the same time are not",
					name)
			}
		}
		l.reportRowsRejected(name, reason)
	}
}

// reportRowsRejected logs and counts why rows are not active.
func (l *Loader) reportRowsRejected(name string, err error) {
	l.opt.TableMetrics[name].Rejected.Inc()
	l.opt.TableMetrics[name].LastOK.Set(0)
	telemetry.RaiseWithLines(l.logger, telemetry.TableRejected, name, "tables: ", trimmedLines(err),
		zap.String("table", name))
}

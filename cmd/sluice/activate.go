package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/source"
	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// Rules and rows that were read at the same time are activated at the same time, so that a request is decided by all of them or
// by none. If one of them does not load, or they do not fit each other, none is activated. Those that load wait, and are
// activated with the first later change that makes it possible.

// parts are rules and rows by the names of tables. Rules have the name [rulesPart].
type parts map[string]*part

// part is rules, or the rows of a table.
type part struct {
	rules *source.Update // nil for rows
	rows  *tables.Rows
	// broken are the names of parts that were read at the same time as this part, or as a previous version that waited for them
	// too, and do not load. This part waits until each is replaced.
	broken map[string]bool
}

const rulesPart = "" // which no table is called

// takeRules is take for rules alone.
func (r *keeper) takeRules(u source.Update) error { return r.take(source.Change{Rules: &u}) }

// take activates a change, or returns why its rules are not active. It logs the reasons, except for [source.ErrUsed].
func (r *keeper) take(c source.Change) error {
	r.tables.Lock()
	waited := r.waiting[rulesPart]
	err := r.takeLocked(c)
	accepted := waited != nil && waited.rules.Accepted != nil && waited.rules.Set == r.service.Rules()
	r.tables.Unlock()
	if accepted {
		waited.rules.Accepted()
	}
	return err
}

func (r *keeper) takeLocked(c source.Change) error {
	if u := c.Rules; u != nil && u.Set != nil && u.Set != r.service.Rules() && u.Set.Used() {
		return source.ErrUsed
	}
	read, broken := r.readLocked(c)
	r.inheritBrokenLocked(read, broken)
	r.replaceWaitingLocked(read, broken)
	if r.service.Rules() == nil { // all requests are errors: nothing waits for a table that does not load
		clear(broken)
	}
	err := brokenError(broken)
	if err == nil {
		err = r.activateLocked(read)
	}
	if err != nil {
		r.holdLocked(read, broken, err)
	}
	if c.Rules == nil {
		return nil
	}
	return cmp.Or(c.Rules.Err, err)
}

// retry activates parts that wait, if that is possible now.
func (r *keeper) retry() { _ = r.take(source.Change{}) }

// readLocked returns the parts of a change, and the names of those that do not load, which it logs.
func (r *keeper) readLocked(c source.Change) (read parts, broken map[string]bool) {
	read, broken = parts{}, map[string]bool{}
	if u := c.Rules; u != nil {
		r.warn(u.Diagnostics)
		if u.Err != nil {
			r.reject("", u.Err)
			broken[rulesPart] = true
		} else {
			read[rulesPart] = &part{rules: u}
		}
	}
	for _, u := range c.Tables {
		name := u.Table.Name()
		for _, d := range u.Diagnostics {
			r.logger.Warn("tables: "+d.String(), zap.String("table", name))
		}
		if u.Err != nil {
			r.rejectRows(name, tableError(name, u.Err))
			broken[name] = true
		} else {
			read[name] = &part{rows: u.Rows}
		}
	}
	return read, broken
}

// inheritBrokenLocked adds to broken the names of parts for which the previous versions of the read parts wait and which have not
// been read again: these parts still do not load. Rules do not wait for a table that they do not name.
func (r *keeper) inheritBrokenLocked(read parts, broken map[string]bool) {
	still := map[string]bool{}
	for name, p := range read {
		waiting := r.waiting[name]
		if waiting == nil || p.rules != nil && p.rules.Set == r.service.Rules() {
			continue
		}
		for other := range waiting.broken {
			if read[other] == nil && (p.rules == nil || len(p.rules.Set.TableUses(other)) > 0) {
				still[other] = true
			}
		}
	}
	maps.Copy(broken, still)
}

// replaceWaitingLocked removes waiting parts that have been read again. Parts that wait for one of these no longer wait, or
// wait for those that are broken now.
func (r *keeper) replaceWaitingLocked(read parts, broken map[string]bool) {
	names := slices.Collect(maps.Keys(broken))
	for name := range read {
		names = append(names, name)
	}
	for _, name := range names {
		delete(r.waiting, name)
	}
	for _, p := range r.waiting {
		before := len(p.broken)
		for _, name := range names {
			delete(p.broken, name)
		}
		if len(p.broken) < before {
			maps.Copy(p.broken, broken)
		}
	}
}

// brokenError says which parts do not load. It is nil if there are none.
func brokenError(broken map[string]bool) error {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(broken)) {
		if name == rulesPart {
			all = append(all, "the rules")
		} else {
			all = append(all, fmt.Sprintf("table %q", name))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return errors.New("not active, since this changed at the same time and does not load: " + strings.Join(all, ", "))
}

// activateLocked activates parts, if possible together with parts that wait. It returns why these are not active.
func (r *keeper) activateLocked(read parts) error {
	all := maps.Clone(read)
	for name, p := range r.waiting {
		if len(p.broken) == 0 {
			all[name] = p
		}
	}
	if read[rulesPart] == nil && all[rulesPart] != nil {
		if r.tryLocked(all, read) == nil {
			return nil
		}
		delete(all, rulesPart) // rules that cannot be activated yet do not delay waiting rows
	}
	return r.tryLocked(all, read)
}

// tryLocked activates rules and rows, except for rows that do not fit the rules. If these must be active, it returns an error and
// activates nothing.
func (r *keeper) tryLocked(all, must parts) error {
	before := r.service.Rules()
	set, rows := before, map[string]*tables.Rows{}
	if p := all[rulesPart]; p != nil {
		set = p.rules.Set
	}
	for name, p := range all {
		if p.rows != nil && (must[name] != nil || set == nil || set.TableFits(name, *p.rows.Columns()) == nil) {
			rows[name] = p.rows
		}
	}
	if set != nil {
		if err := r.tablesFitLocked(set, rows); err != nil {
			return err
		}
	}
	if set != before {
		if err := r.service.Activate(now(), set, rows); err != nil {
			return err
		}
	} else if len(rows) > 0 {
		r.service.ActivateRows(rows)
	}
	if all[rulesPart] != nil {
		delete(r.waiting, rulesPart)
		r.loaded(set, before)
	}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		delete(r.waiting, name)
		r.tableMetrics[name].Loads.Inc()
		r.tableMetrics[name].LastOK.Set(1)
		r.logger.Info("table loaded", zap.String("table", name), zap.Int("rows", rows[name].Len()), telemetry.Clear(name, telemetry.TableRejected))
	}
	return nil
}

// tablesFitLocked returns which limits cannot go by the columns of their tables, with the given rows in place of the active ones.
func (r *keeper) tablesFitLocked(set *descriptors.Set, rows map[string]*tables.Rows) error {
	return set.TablesFit(func(name string) *tables.Columns {
		if rows[name] != nil {
			return rows[name].Columns()
		}
		e, _ := r.tables.Table(name) // the compiler has found it
		return e.ColumnsLocked()
	})
}

// loaded logs that rules are active after others, which may be nil.
func (r *keeper) loaded(set, before *descriptors.Set) {
	if set == before {
		r.metrics.ConfigRestored()
		r.logger.Info("rules are back at what is in force", zap.String("hash", set.Hash), telemetry.Clear("", telemetry.RulesRejected))
		return
	}
	r.advise(set)
	r.metrics.ConfigLoaded(set.Hash, float64(time.Now().UnixMilli())/1e3)
	fields := []zap.Field{zap.String("hash", set.Hash), zap.Int("limits", len(set.Limits)), zap.Strings("domains", set.Domains())}
	if before != nil {
		c := set.Changes(before)
		r.metrics.ConfigChanged(c.Added, c.Removed, c.Changed)
		fields = append(fields, zap.Int("changes", c.Total()), zap.Strings("changed", c.First))
	}
	r.logger.Info("rules loaded", append(fields, telemetry.Clear("", rulesCode(before)))...)
	if set.Empty() {
		r.logger.Warn("rules: there are none: every request passes")
	}
}

// holdLocked has parts wait that were read at the same time as broken ones, or that do not fit, and logs why.
func (r *keeper) holdLocked(read parts, broken map[string]bool, err error) {
	set := r.service.Rules()
	if p := read[rulesPart]; p != nil {
		set = p.rules.Set
	}
	for _, name := range slices.Sorted(maps.Keys(read)) {
		p := read[name]
		p.broken, r.waiting[name] = maps.Clone(broken), p
		if name == rulesPart {
			r.reject("", err)
			continue
		}
		why := fmt.Errorf("table %q: %w", name, err)
		if len(broken) == 0 {
			e, _ := r.tables.Table(name) // it has the name
			if misfit := set.TableFits(name, *p.rows.Columns()); misfit != nil {
				why = fmt.Errorf("%s:1:1: error: %w; the rows are activated with rules that they fit", e.Path, misfit)
			} else {
				why = fmt.Errorf("table %q: not active, since what changed at the same time is not", name)
			}
		}
		r.rejectRows(name, why)
	}
}

// rejectRows logs why rows are not active.
func (r *keeper) rejectRows(name string, err error) {
	r.tableMetrics[name].Rejected.Inc()
	r.tableMetrics[name].LastOK.Set(0)
	telemetry.RaiseWithLines(r.logger, telemetry.TableRejected, name, "tables: ", trimmedLines(err), zap.String("table", name))
}

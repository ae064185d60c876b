package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/descriptors/source"
	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// tableFlags name tables, whose rows have numbers of limits.
type tableFlags struct {
	Table     []tableFlag `placeholder:"NAME[=PATH]" sep:"none" help:"Numbers by key for rules that name this table: a file, CSV with a header or JSON lines, or without PATH one in --tables-dir that is changed row by row; may be repeated."`
	TablesDir string      `placeholder:"DIR" help:"Directory of tables that are changed row by row; it is made if it is not there. It must be written to by nobody else."`
}

// tableFlag is a table and its file, if it has one.
type tableFlag struct{ name, path string }

// UnmarshalText reads NAME or NAME=PATH.
func (f *tableFlag) UnmarshalText(text []byte) error {
	name, path, file := strings.Cut(string(text), "=")
	if name == "" || file && path == "" {
		return fmt.Errorf("%q is no table: write NAME=PATH, such as customers=customers.csv, or NAME beside --tables-dir", text)
	}
	f.name, f.path = name, path
	return nil
}

// registry returns the tables, which are empty.
func (f *tableFlags) registry() (*tables.Registry, error) {
	all := new(tables.Registry)
	for _, t := range f.Table {
		if _, err := all.Add(t.name, t.path); err != nil {
			return nil, fmt.Errorf("--table: %w", err)
		}
	}
	return all, nil
}

// loadTables reads all tables once. Those without a file are empty if there is no directory. Found are warnings about files.
func (f *tableFlags) loadTables() (all *tables.Registry, found rules.Diagnostics, err error) {
	all, err = f.registry()
	for _, name := range all.Names() {
		e, _ := all.Table(name) // it has the name
		switch {
		case e.Path != "":
			rows, warnings, failed := source.ReadTable(e.Table, e.Path)
			if err = failed; err == nil {
				e.Replace(rows)
			}
			found = append(found, warnings...)
		case f.TablesDir != "":
			err = tables.ReadJournal(e.Table, f.TablesDir)
		}
		if err != nil {
			return nil, nil, tableError(name, err)
		}
	}
	return all, found, err
}

// tableError adds to an error which table it is of.
func tableError(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("no file of table %q: %w: name it with --table %s=PATH", name, err, name)
	}
	if errors.Is(err, source.ErrNoRows) {
		return fmt.Errorf("table %q does not load:\n%w: accept it with --allow-empty-tables", name, err)
	}
	return fmt.Errorf("table %q does not load:\n%w", name, err)
}

// openTables opens all tables, and follows files in group. A file that is bad at the start is an error if bad rules are.
func (s *serveCmd) openTables(ctx context.Context, group *errgroup.Group, r *keeper) (end func(), err error) {
	end = func() {}
	if err := s.openJournals(r, &end); err != nil {
		return end, err
	}
	ends := s.OnBadStart == "exit" // until all are read
	var names []string
	var files []*source.TableFile
	for _, name := range r.tables.Names() {
		e, _ := r.tables.Table(name) // it has the name
		if e.Path == "" {
			continue
		}
		names = append(names, name)
		files = append(files, source.NewTableFile(source.TableOptions{
			Table: e.Table, Path: e.Path, AllowEmpty: s.AllowEmptyTables, OnUnwatched: r.unwatched,
			OnLoad: func(u source.TableUpdate) error {
				if ends && u.Err != nil {
					return u.Err
				}
				for _, d := range u.Diagnostics {
					r.logger.Warn("tables: "+d.String(), zap.String("table", name))
				}
				return r.takeTable(u)
			},
		}))
	}
	for i, file := range files {
		err := file.Load(ctx)
		if ctx.Err() != nil {
			return end, nil //nolint:nilerr // the process was told to end
		}
		if err != nil && ends {
			return end, fmt.Errorf("%w\n(--on-bad-start=serve starts without its rows and waits for good ones)", tableError(names[i], err))
		}
	}
	ends = false
	for _, file := range files { // none before, since ends is theirs too
		group.Go(until(ctx, file.Run))
	}
	return end, nil
}

// openJournals opens the tables of --tables-dir. End closes them.
func (s *serveCmd) openJournals(r *keeper, end *func()) error {
	dir := s.Tables.TablesDir
	without := slices.IndexFunc(s.Tables.Table, func(t tableFlag) bool { return t.path == "" })
	switch {
	case without < 0 && dir == "":
		return nil
	case without < 0:
		return errors.New("--tables-dir: no table is in it: name one with --table NAME")
	case dir == "":
		name := s.Tables.Table[without].name
		return fmt.Errorf("--table %s has no source: write --table %[1]s=PATH, or name a directory with --tables-dir", name)
	}
	outliveFileLimit()
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("--tables-dir: %w", err)
	}
	unlock, err := lockFile(filepath.Join(dir, "lock"))
	if err != nil {
		return fmt.Errorf("--tables-dir %s: lock: %w: it must be a directory that this user can write to, and of one process", dir, err)
	}
	*end = func() {
		if err := r.tables.Close(); err != nil {
			r.logger.Error("tables: close", zap.Error(err))
		}
		unlock()
	}
	for _, name := range r.tables.Names() {
		e, _ := r.tables.Table(name) // it has the name
		if e.Path != "" {
			continue
		}
		said := zap.String("table", name)
		journal, found, err := tables.OpenJournal(e.Table, dir, func(err error) {
			r.tableMetrics[name].Unsaved.Set(0)
			if err != nil {
				r.tableMetrics[name].Unsaved.Set(1)
				r.logger.Error("a table cannot be saved: changes of its rows are refused until it can be", said, zap.Error(err))
			} else {
				r.logger.Info("a table is saved again", said)
			}
		})
		if err != nil {
			return tableError(name, err)
		}
		if e.Journal = journal; found.Torn > 0 {
			r.logger.Warn("tables: the end of a journal was cut off: a change that nobody was told had been made", said, zap.Int64("bytes", found.Torn))
		}
		r.logger.Info("table opened", said, zap.Int("rows", e.Rows().Len()))
	}
	return nil
}

// measureTables registers the metrics of tables, if there are any.
func (r *keeper) measureTables() map[string]*telemetry.Table {
	if names := r.tables.Names(); len(names) > 0 {
		r.tableMetrics = r.metrics.Tables(names, func(name string) int {
			e, _ := r.tables.Table(name) // it has the name
			return e.Rows().Len()
		})
	}
	return r.tableMetrics
}

// takeTable puts rows in force or tells why not.
func (r *keeper) takeTable(u source.TableUpdate) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := u.Table.Name()
	delete(r.rows, name)
	if u.Err == nil {
		u.Err = r.replaceLocked(name, u.Rows)
	}
	if u.Err == nil {
		r.takeWaitingLocked()
		return nil
	}
	if r.rows[name] != nil && r.takeWaitingLocked() && r.rows[name] == nil {
		return nil // these rules are for these rows
	}
	for line := range strings.Lines(tableError(name, u.Err).Error()) {
		r.logger.Error("tables: " + strings.TrimSpace(line))
	}
	r.tableMetrics[name].Rejected.Inc()
	r.tableMetrics[name].LastOK.Set(0)
	r.logger.Error("a table does not load: its rows stay as they are", zap.String("table", name))
	return u.Err
}

// replaceLocked puts the rows of a file in force. If the rules in force do not fit, it returns why, and the rows wait for others.
func (r *keeper) replaceLocked(name string, rows *tables.Rows) error {
	e, _ := r.tables.Table(name) // it has the name
	if set := r.service.Rules(); set != nil {
		if err := set.TableFits(name, *rows.Columns()); err != nil {
			if r.rows == nil {
				r.rows = map[string]*tables.Rows{}
			}
			r.rows[name] = rows
			return fmt.Errorf("%s:1:1: error: %w; the rows are put in force with rules that they fit", e.Path, err)
		}
	}
	delete(r.rows, name)
	e.Replace(rows)
	r.service.TablesChanged()
	r.tableMetrics[name].Loads.Inc()
	r.tableMetrics[name].LastOK.Set(1)
	r.logger.Info("table loaded", zap.String("table", name), zap.Int("rows", rows.Len()))
	return nil
}

// takeRowsLocked puts rows in force that have waited for the rules in force.
func (r *keeper) takeRowsLocked() {
	for _, name := range slices.Sorted(maps.Keys(r.rows)) {
		_ = r.replaceLocked(name, r.rows[name]) // they go on waiting, which was told
	}
}

// tablesFitLocked returns why tables, as they are or as they wait, do not fit a set.
func (r *keeper) tablesFitLocked(set *descriptors.Set) error {
	return set.TablesFit(func(name string) *tables.Columns {
		e, _ := r.tables.Table(name) // the compiler has found it
		columns, rows := e.Columns(), r.rows[name]
		if rows != nil && columns != nil && set.TableFits(name, *columns) != nil {
			return rows.Columns()
		}
		return columns
	})
}

// takeWaitingLocked puts rules in force that have waited for tables, if these fit now. It reports whether it has.
func (r *keeper) takeWaitingLocked() bool {
	return r.waiting != nil && r.tablesFitLocked(r.waiting.Set) == nil && r.takeLocked(*r.waiting) == nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

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
		return fmt.Errorf("no file of table %q: %v: name it with --table %s=PATH", name, err, name) //nolint:errorlint // see loadError, for missing rules
	}
	if errors.Is(err, source.ErrNoRows) {
		return fmt.Errorf("table %q does not load:\n%w: accept it with --allow-empty-tables", name, err)
	}
	return fmt.Errorf("table %q does not load:\n%w", name, err)
}

func (s *serveCmd) tableFiles(r *keeper) (files []*source.TableFile) {
	for _, name := range r.tables.Names() {
		if e, _ := r.tables.Table(name); e.Path != "" { // it has the name
			files = append(files, source.NewTableFile(source.TableOptions{
				Table: e.Table, Path: e.Path, AllowEmpty: s.AllowEmptyTables, OnUnwatched: r.unwatched,
			}))
		}
	}
	return files
}

// follow follows rules, which may be nil, and the files of tables. If --on-bad-start says so, what is bad at the start is an error.
func (s *serveCmd) follow(ctx context.Context, group *errgroup.Group, r *keeper, rules *source.Files) error {
	tableFiles := s.tableFiles(r)
	if rules == nil && len(tableFiles) == 0 {
		return nil
	}
	ends := s.OnBadStart == "exit"
	var bad error // that ends the process
	all := source.NewGroup(rules, tableFiles, func(c source.Change) error {
		if !ends {
			return r.take(c)
		}
		if bad = s.badStart(c); bad == nil {
			bad = s.badRules(r.take(c))
		}
		return bad
	})
	all.OnWait(r.reportWait)
	if _ = all.Load(ctx); bad != nil { // it returns this error, or take has logged it
		return bad
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the process is to end
	}
	ends = false
	group.Go(until(ctx, all.Run))
	return nil
}

func (r *keeper) reportWait(w source.Wait) {
	fields := []zap.Field{zap.Duration("waited", w.Waited.Round(time.Millisecond)), zap.Duration("at_most", w.Most)}
	if len(w.Tables) > 0 {
		fields = append(fields, zap.Strings("tables", w.Tables), zap.Int64s("bytes", w.Bytes))
	}
	r.logger.Info("waiting for files before listening: "+waitReason(w), fields...)
}

func waitReason(w source.Wait) string {
	switch {
	case len(w.Tables) == 0:
		return "files of rules change"
	case w.Rules:
		return "files of rules change, and files of tables change or do not end with a newline"
	default:
		return "files of tables change or do not end with a newline"
	}
}

// badStart returns the error of the first reading of rules and tables, or nil.
func (s *serveCmd) badStart(c source.Change) error {
	for _, u := range c.Tables {
		if u.Err != nil {
			return fmt.Errorf("%w\n(--on-bad-start=serve starts without its rows and waits for good ones)", tableError(u.Table.Name(), u.Err))
		}
	}
	if c.Rules == nil {
		return nil
	}
	return s.badRules(c.Rules.Err)
}

// badRules returns the error of rules at the start, nil for nil.
func (s *serveCmd) badRules(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w\n(--on-bad-start=serve starts without rules and waits for good ones)", loadError(err, s.Defaults))
}

// openJournals opens the tables of --tables-dir. end closes those that are open, also after an error.
func (s *serveCmd) openJournals(r *keeper) (end func(), err error) {
	end = func() {}
	dir := s.Tables.TablesDir
	without := slices.IndexFunc(s.Tables.Table, func(t tableFlag) bool { return t.path == "" })
	switch {
	case without < 0 && dir == "":
		return end, nil
	case without < 0:
		return end, errors.New("--tables-dir: no table is in it: name one with --table NAME")
	case dir == "":
		name := s.Tables.Table[without].name
		return end, fmt.Errorf("--table %s has no source: write --table %[1]s=PATH, or name a directory with --tables-dir", name)
	}
	outliveFileLimit()
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return end, fmt.Errorf("--tables-dir: %w", err)
	}
	unlock, err := lockFile(filepath.Join(dir, "lock"))
	if err != nil {
		return end, fmt.Errorf("--tables-dir %s: lock: %w: it must be a directory that this user can write to, and of one process", dir, err)
	}
	end = func() {
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
		journal, torn, err := tables.OpenJournal(e.Table, dir, func(err error) { r.journalChanged(name, err) })
		if err != nil {
			return end, tableError(name, err)
		}
		if e.Journal = journal; torn > 0 {
			r.logger.Warn("tables: the end of a journal was cut off: a change that was not acknowledged", said, zap.Int64("bytes", torn))
		}
		r.logger.Info("table opened", said, zap.Int("rows", e.Rows().Len()))
	}
	return end, nil
}

// journalChanged reports that the journal of a table cannot be written, or can be written again.
func (r *keeper) journalChanged(name string, err error) {
	said := zap.String("table", name)
	if err != nil {
		r.tableMetrics[name].Unsaved.Set(1)
		telemetry.Raise(r.logger, telemetry.TableNotSaved, name, said, zap.Error(err))
		return
	}
	r.tableMetrics[name].Unsaved.Set(0)
	r.logger.Info("a table is saved again", said, telemetry.Clear(name, telemetry.TableNotSaved))
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

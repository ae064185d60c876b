package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-ratelimit/sluice/descriptors/source"
	"github.com/sluice-ratelimit/sluice/tables"
)

// tableFlags name the files of tables, whose rows have numbers of limits.
type tableFlags struct {
	Table []tableFile `placeholder:"NAME=PATH" sep:"none" help:"File of numbers by key, for rules that name this table: CSV with a header, or JSON lines; may be repeated."`
}

// tableFile is the file of a table.
type tableFile struct{ name, path string }

// UnmarshalText reads NAME=PATH.
func (f *tableFile) UnmarshalText(text []byte) error {
	name, path, ok := strings.Cut(string(text), "=")
	if !ok || name == "" || path == "" {
		return fmt.Errorf("%q is no table: write NAME=PATH, such as customers=customers.csv", text)
	}
	f.name, f.path = name, path
	return nil
}

// registry returns empty tables for the files.
func (f *tableFlags) registry() (*tables.Registry, error) {
	paths := map[string]string{}
	for _, t := range f.Table {
		if other, twice := paths[t.name]; twice {
			return nil, fmt.Errorf("table %q has two sources, %s and %s: a table has one", t.name, other, t.path)
		}
		paths[t.name] = t.path
	}
	return tables.NewRegistry(slices.Collect(maps.Keys(paths))...), nil
}

// loadTables reads the files once.
func (f *tableFlags) loadTables() (*tables.Registry, error) {
	all, err := f.registry()
	if err != nil {
		return nil, err
	}
	for _, file := range f.Table {
		t, _ := all.Table(file.name)
		rows, _, err := source.ReadTable(t, file.path)
		if err != nil {
			return nil, tableError(file.name, err)
		}
		t.Replace(rows)
	}
	return all, nil
}

// tableError adds to an error which table it is of.
func tableError(name string, err error) error {
	if os.IsNotExist(err) {
		return fmt.Errorf("no file of table %q: %w: name it with --table %s=PATH", name, err, name)
	}
	return fmt.Errorf("table %q does not load:\n%w", name, err)
}

// followTables reads the files of tables, and follows them in group. A file that is bad at the start is an error if ends is set.
func (s *serveCmd) followTables(ctx context.Context, group *errgroup.Group, r *keeper) (err error) {
	if r.tables, err = s.Tables.registry(); err != nil {
		return err
	}
	ends := s.OnBadStart == "exit"
	for _, f := range s.Tables.Table {
		t, _ := r.tables.Table(f.name)
		file := source.NewTableFile(source.TableOptions{
			Table: t, Path: f.path, OnUnwatched: r.unwatched,
			OnLoad: func(u source.TableUpdate) error {
				if ends && u.Err != nil {
					return u.Err
				}
				return r.takeTable(u)
			},
		})
		if err := file.Load(); err != nil && ends {
			return fmt.Errorf("%w\n(--on-bad-start=serve starts without the rows and waits for good ones)", tableError(f.name, err))
		}
		group.Go(until(ctx, file.Run))
	}
	ends = false
	return nil
}

// takeTable puts rows in force or tells why not.
func (r *keeper) takeTable(u source.TableUpdate) error {
	name := zap.String("table", u.Table.Name())
	if u.Err != nil {
		for line := range strings.Lines(tableError(u.Table.Name(), u.Err).Error()) {
			r.logger.Error("tables: " + strings.TrimSpace(line))
		}
		r.logger.Error("a table does not load: its rows stay as they are", name)
		return u.Err
	}
	u.Table.Replace(u.Rows)
	r.logger.Info("table loaded", name, zap.Int("rows", u.Rows.Len()), zap.Duration("took", u.Took))
	return nil
}

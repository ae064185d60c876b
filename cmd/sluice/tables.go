package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/descriptors/source"
	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/internal/file"
	"github.com/sluice-ratelimit/sluice/server/ruleset"
)

// tableFlags configures tables of limits by key.
type tableFlags struct {
	Table     []tableFlag `placeholder:"NAME[=PATH]" sep:"none" help:"Table of limits by key, for rules that name it: NAME=PATH for a CSV file with a header, or NAME for a table in --tables-dir. May be repeated."`
	TablesDir string      `placeholder:"DIR" help:"Directory of the tables that are changed row by row. serve creates it if it does not exist. No other process may write to it."`
}

// tableFlag is a table. Path is empty if the table is in --tables-dir.
type tableFlag struct{ name, path string }

// UnmarshalText reads NAME or NAME=PATH.
func (f *tableFlag) UnmarshalText(text []byte) error {
	name, path, file := strings.Cut(string(text), "=")
	if name == "" || file && path == "" {
		return fmt.Errorf("%q is not a table: must be NAME=PATH, such as customers=customers.csv, or NAME together with --tables-dir", text)
	}
	f.name = name
	f.path = path
	return nil
}

// registry returns the tables, without rows.
func (f *tableFlags) registry() (*tables.Registry, error) {
	all := new(tables.Registry)
	for _, t := range f.Table {
		if _, err := all.Add(t.name, t.path); err != nil {
			return nil, fmt.Errorf("--table: %w", err)
		}
	}
	return all, nil
}

// loadTables reads all tables once, and returns warnings about their files. Tables without a file
// are empty unless --tables-dir is set.
func (f *tableFlags) loadTables() (all *tables.Registry, found rules.Diagnostics, err error) {
	all, err = f.registry()
	for _, name := range all.Names() {
		e, _ := all.Table(name) // the name exists
		switch {
		case e.Path != "":
			rows, warnings, failed := source.ReadTable(e.Table, e.Path)
			err = failed
			if err == nil {
				e.Replace(rows)
			}
			found = append(found, warnings...)
		case f.TablesDir != "":
			err = tables.ReadJournal(e.Table, f.TablesDir)
		}
		if err != nil {
			return nil, nil, ruleset.TableError(name, err)
		}
	}
	return all, found, err
}

// openJournals opens the tables of --tables-dir. The caller must call closeAll, also after an
// error.
func (s *serveCmd) openJournals(loader *ruleset.Loader) (closeAll func(), err error) {
	closeAll = func() {}
	dir := s.Tables.TablesDir
	without := slices.IndexFunc(s.Tables.Table, func(t tableFlag) bool { return t.path == "" })
	switch {
	case without < 0 && dir == "":
		return closeAll, nil
	case without < 0:
		return closeAll, errors.New("--tables-dir has no tables: add them with --table NAME")
	case dir == "":
		name := s.Tables.Table[without].name
		return closeAll, fmt.Errorf("--table %s has no source: use --table %[1]s=PATH, or set --tables-dir", name)
	}
	file.IgnoreSizeSignal()
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return closeAll, fmt.Errorf("--tables-dir: %w", err)
	}
	unlock, err := file.Lock(filepath.Join(dir, "lock"))
	if err != nil {
		return closeAll, fmt.Errorf("--tables-dir %s: lock: %w: must be a directory that this user can write to and no other process uses", dir, err)
	}
	closeAll = func() {
		loader.CloseJournals()
		unlock()
	}
	return closeAll, loader.OpenJournals(dir)
}

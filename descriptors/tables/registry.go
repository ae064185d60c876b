package tables

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// Registry has the tables that rules may name. A nil *Registry has none. It is safe for concurrent
// use once all tables are added.
type Registry struct {
	entries map[string]*Entry

	// mu serializes activations of rules and of rows of files, since the rules must support the
	// columns of the tables.
	mu       sync.Mutex
	released func() // called without mu when an empty table may get other columns
}

// Entry is a table with the source of its rows.
type Entry struct {
	*Table

	// Path is its file, or empty for a table that is changed row by row.
	Path string
	// Journal persists a table that is changed row by row. It is nil for others, and until it is
	// opened.
	Journal *Journal

	// claimed are the columns of changes that are being saved, and claims the number of these
	// changes.
	claimed Columns
	claims  int
}

// ColumnsLocked returns the columns that rules must support, or nil for any: an empty table that is
// changed row by row may get others. Concurrent callers need the lock of the registry.
func (e *Entry) ColumnsLocked() *Columns {
	switch {
	case e.Path != "" || e.Rows().Len() > 0:
		return e.Rows().Columns()
	case e.claims > 0:
		return &e.claimed
	}
	return nil
}

// Lock blocks other goroutines that activate rules or rows of files, or claim columns, until
// Unlock.
func (r *Registry) Lock() { r.mu.Lock() }

// Unlock releases the lock of [Registry.Lock].
func (r *Registry) Unlock() { r.mu.Unlock() }

// OnRelease sets a function that is called, without the lock, when an empty table may get any
// columns again. It must be called before the first Claim.
func (r *Registry) OnRelease(released func()) { r.released = released }

// Claim reserves the columns of a table for changes that are being saved, until release is called:
// rules that do not support the columns are not activated meanwhile. fits returns why the active
// rules do not support them, or nil.
func (r *Registry) Claim(e *Entry, columns []string, fits func() error) (release func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.claims > 0 && !slices.Equal(e.claimed, columns) {
		return nil, fmt.Errorf("%w: a change with the columns %q is being saved", ErrColumns, e.claimed)
	}
	if err := fits(); err != nil {
		return nil, err
	}
	e.claimed = columns
	e.claims++
	return func() {
		r.mu.Lock()
		e.claims--
		free := e.ColumnsLocked() == nil
		r.mu.Unlock()
		if free && r.released != nil {
			r.released()
		}
	}, nil
}

// tableNames matches valid names, which are part of URLs and file names.
var tableNames = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

// Add adds an empty table. path is its file, or empty.
func (r *Registry) Add(name, path string) (*Entry, error) {
	if !tableNames.MatchString(name) {
		return nil, fmt.Errorf("table %q: a name is at most 64 letters, digits and - _ . and begins with a letter or a digit", rules.Shorten(name))
	}
	if other := r.entries[name]; other != nil {
		return nil, fmt.Errorf("table %q has two sources, %s and %s: a table has one", name, rowSource(other.Path),
			rowSource(path))
	}
	if r.entries == nil {
		r.entries = map[string]*Entry{}
	}
	r.entries[name] = &Entry{Table: New(name), Path: path}
	return r.entries[name], nil
}

func rowSource(path string) string {
	if path == "" {
		return "--tables-dir"
	}
	return path
}

// Table returns the table with the given name, or an error that lists the tables.
func (r *Registry) Table(name string) (*Entry, error) {
	if r != nil && r.entries[name] != nil {
		return r.entries[name], nil
	}
	all := r.Names()
	if len(all) == 0 {
		return nil, fmt.Errorf("unknown table %q; name it with --table %s=PATH, or --table %[2]s with --tables-dir",
			rules.Shorten(name), rules.Shorten(name))
	}
	return nil, fmt.Errorf("unknown table %q%s (known: %s)", rules.Shorten(name),
		rules.DidYouMean(name, all), strings.Join(all, ", "))
}

// Names returns the names of all tables, sorted.
func (r *Registry) Names() []string {
	if r == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(r.entries))
}

// Close closes all journals.
func (r *Registry) Close() error {
	var failed error
	for _, name := range r.Names() {
		if j := r.entries[name].Journal; j != nil {
			failed = errors.Join(failed, j.Close())
		}
	}
	return failed
}

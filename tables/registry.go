package tables

import (
	"fmt"
	"maps"
	"slices"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// Registry has the tables that rules may name. A nil one has none. Any number of goroutines may use it.
type Registry struct {
	tables map[string]*Table
}

// NewRegistry returns empty tables of these names.
func NewRegistry(names ...string) *Registry {
	r := &Registry{tables: map[string]*Table{}}
	for _, name := range names {
		r.tables[name] = New(name)
	}
	return r
}

// Table returns the table of a name, or an error that says which there are.
func (r *Registry) Table(name string) (*Table, error) {
	if r != nil && r.tables[name] != nil {
		return r.tables[name], nil
	}
	names := r.Names()
	if len(names) == 0 {
		return nil, fmt.Errorf("unknown table %q; give it with --table %s=PATH", rules.Shorten(name), rules.Shorten(name))
	}
	return nil, fmt.Errorf("unknown table %q%s; those of --table are %q", rules.Shorten(name), rules.DidYouMean(rules.Nearest(name, names)), names)
}

// Names returns the names of all tables, sorted.
func (r *Registry) Names() []string {
	if r == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(r.tables))
}

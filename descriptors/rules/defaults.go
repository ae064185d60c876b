package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// EveryDomain is the domain of defaults that hold for all of them.
const EveryDomain = "*"

// Defaults are words for rules that lack them. They come from a file of their own; see
// rulefile.ParseDefaults. They are immutable. Nil Defaults have no words.
//
// A rule gets the words of one item only, the most specific one that fits: the item of
// its path, else of its name, else the item for all rules. Of two such items the one of
// the rule's own domain comes first. A rule with any of these words gets none, and so do
// unlimited rules and rate_limits lists. The words of the domain hold if no [Config] of
// the domain has them.
type Defaults struct {
	// ByDomain has the documents by the domain that they are for.
	ByDomain map[string]*DomainDefaults
	// Allowances are the warnings that their file acknowledges.
	Allowances Allowances
}

// DomainDefaults is one document of defaults.
type DomainDefaults struct {
	Pos          Pos
	Domain       string // "*" for all
	AllOrNothing *bool  // nil where the document does not say
	MaxCounters  int64  // 0 where the document does not say
	Items        []*DefaultItem
	byID         map[string]*DefaultItem // see itemID
}

// DefaultItem is one item of defaults: words for the rule of a path, for the rules of a
// name, or, without either, for all.
type DefaultItem struct {
	Pos   Pos
	At    string // the place in the tree, for diagnostics
	Path  []Level
	Name  string
	Limit Limit // only words that the item gives
}

// Level is the key and value of a descriptor.
type Level struct{ Key, Value string }

// String returns a level as key=value, or key where the value is empty.
func (l Level) String() string {
	if l.Value == "" {
		return l.Key
	}
	return l.Key + "=" + l.Value
}

// itemID tells the items for a path, for a name and for all rules apart, whatever is in
// their keys, values and names.
func itemID(path []Level, name string) string {
	var b strings.Builder
	for _, l := range path {
		fmt.Fprintf(&b, " %q %q", l.Key, l.Value)
	}
	if name != "" {
		fmt.Fprintf(&b, "%q", name)
	}
	return b.String()
}

// Target says which rules an item is for.
func (e *DefaultItem) Target() string {
	if e.Path != nil {
		return fmt.Sprintf("the path %q", Shorten(e.Text()))
	}
	return fmt.Sprintf("the name %q", Shorten(e.Name))
}

// Text is the path or name of the rules that an item is for.
func (e *DefaultItem) Text() string {
	if e.Path == nil {
		return e.Name
	}
	levels := make([]string, len(e.Path))
	for i, l := range e.Path {
		levels[i] = l.String()
	}
	return strings.Join(levels, " > ")
}

// Names returns the domains that have a document, sorted.
func (d *Defaults) Names() []string { return slices.Sorted(maps.Keys(d.ByDomain)) }

// Add adds a document, unless there is one for its domain, which it then returns.
func (d *Defaults) Add(dd *DomainDefaults) (first *DomainDefaults) {
	if first = d.ByDomain[dd.Domain]; first != nil {
		return first
	}
	if d.ByDomain == nil {
		d.ByDomain = map[string]*DomainDefaults{}
	}
	d.ByDomain[dd.Domain] = dd
	return nil
}

// Add adds an item, unless there is one for the same rules, which it then returns.
func (dd *DomainDefaults) Add(e *DefaultItem) (first *DefaultItem) {
	id := itemID(e.Path, e.Name)
	if first = dd.byID[id]; first != nil {
		return first
	}
	if dd.byID == nil {
		dd.byID = map[string]*DefaultItem{}
	}
	dd.byID[id] = e
	dd.Items = append(dd.Items, e)
	return nil
}

// Of returns the documents for a domain, its own first.
func (d *Defaults) Of(domain string) []*DomainDefaults {
	if d == nil {
		return nil
	}
	var all []*DomainDefaults
	if own := d.ByDomain[domain]; own != nil {
		all = append(all, own)
	}
	if every := d.ByDomain[EveryDomain]; every != nil && domain != EveryDomain {
		all = append(all, every)
	}
	return all
}

// Fitting returns the items that fit a rule. The first one holds.
func (d *Defaults) Fitting(domain string, path []Level, name string) []*DefaultItem {
	var all []*DefaultItem
	documents := d.Of(domain)
	for _, id := range slices.Compact([]string{itemID(path, ""), itemID(nil, name), itemID(nil, "")}) {
		for _, dd := range documents {
			if e := dd.byID[id]; e != nil {
				all = append(all, e)
			}
		}
	}
	return all
}

// OwnWords reports whether l has one of the words that defaults give.
func (l *Limit) OwnWords() bool {
	return l.UnitMultiplier > 1 || l.Words != Words{}
}

// With returns l with the words of e.
func (l *Limit) With(e *DefaultItem) Limit {
	given := *l
	given.Words, given.UnitMultiplier = e.Limit.Words, e.Limit.UnitMultiplier
	if given.Name == "" {
		given.Name = e.Limit.Name
	}
	return given
}

// WrongWords says why the words of a limit do not fit together. It is empty if they do.
func (l *Limit) WrongWords() []string {
	if wrong := l.WindowMistake(); wrong != "" {
		return []string{wrong}
	}
	var all []string
	for _, m := range l.Mistakes() {
		all = append(all, m.Message)
	}
	return all
}

package rules

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// EveryDomain is the domain of defaults for all domains.
const EveryDomain = "*"

// Defaults set fields of rules that do not have them. They are immutable and are read from a
// separate file; see rulefile.ParseDefaults. A nil *Defaults has no documents.
//
// A rule gets the fields of one item: one that matches its path, or else its name, or else all
// rules. If both the rule's own domain and [EveryDomain] have such an item, that of the own domain
// applies. Unlimited rules, rate_limits lists and rules that have any of the fields of rate_limit
// besides unit and name get none of these. The other fields of the item apply to each rule that
// lacks them. The fields of the domain apply if no [Config] of the domain has them, except exempt,
// whose items are added.
type Defaults struct {
	// ByDomain has the documents by domain.
	ByDomain map[string]*DomainDefaults
	// Allowances are the warnings that the file acknowledges.
	Allowances Allowances
}

// DomainDefaults is one document of defaults.
type DomainDefaults struct {
	Pos          Pos
	Domain       string // "*" for all
	AllOrNothing *bool  // nil if absent
	MaxCounters  int64  // 0 if absent
	Denied       *DeniedResponse
	Exempt       []Descriptor // like Config.Exempt
	Items        []*DefaultItem
	byID         map[string]*DefaultItem // items by itemID
}

// DefaultItem is an item of defaults. It applies to the rule with a path, to the rules with a name
// or, without either, to all rules.
type DefaultItem struct {
	Pos   Pos
	At    string // the item's [Diagnostic.Path]
	Path  []Level
	Name  string
	Limit Limit // only the fields that the item sets; Unit is 0 if absent
	// Set is the fields values, cidr and prefix, nil if all are absent.
	Set *ValueSet
	// Denied, ShadowMode and DetailedMetric are nil if the field is absent.
	Denied                     *DeniedResponse
	ShadowMode, DetailedMetric *bool
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

// itemID returns a unique key for the items of a path, of a name and of all rules.
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

// Target describes the rules that an item applies to.
func (e *DefaultItem) Target() string {
	if e.Path != nil {
		return fmt.Sprintf("the path %q", Shorten(e.Text()))
	}
	return fmt.Sprintf("the name %q", Shorten(e.Name))
}

// Text returns the path or name that an item applies to.
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

// Names returns the domains of all documents, sorted.
func (d *Defaults) Names() []string { return slices.Sorted(maps.Keys(d.ByDomain)) }

// Add adds a document. If its domain has one already, Add returns that and changes nothing.
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

// Add adds an item. If the same rules have one already, Add returns that and changes nothing.
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

// ForDomain returns the documents that apply to a domain, its own first.
func (d *Defaults) ForDomain(domain string) []*DomainDefaults {
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

// Matching returns the items that match a rule. The first one applies.
func (d *Defaults) Matching(domain string, path []Level, name string) []*DefaultItem {
	var all []*DefaultItem
	documents := d.ForDomain(domain)
	for _, id := range slices.Compact([]string{itemID(path, ""), itemID(nil, name), itemID(nil, "")}) {
		for _, dd := range documents {
			if e := dd.byID[id]; e != nil {
				all = append(all, e)
			}
		}
	}
	return all
}

// Selections returns descriptors with all sets of values.
func (d *Defaults) Selections() (all []Descriptor) {
	for _, name := range d.Names() {
		dd := d.ByDomain[name]
		all = append(all, dd.Exempt...)
		for _, e := range dd.Items {
			all = append(all, Descriptor{Set: e.Set})
		}
	}
	return all
}

// SetsLimit reports whether e sets fields of rate_limit.
func (e *DefaultItem) SetsLimit() bool {
	return e.Limit.HasDefaultFields() || e.Limit.Name != "" || e.Limit.Unit != 0
}

// HasDefaultFields reports whether l has a field, except unit and name, that defaults can set.
func (l *Limit) HasDefaultFields() bool {
	return l.UnitMultiplier > 1 || l.Reserve != nil || l.Penalty != nil || l.DefaultFields != DefaultFields{}
}

// SetDefaults sets the fields of e, except those of rate_limit, that d lacks. It reports whether it
// set any.
func (d *Descriptor) SetDefaults(e *DefaultItem) bool {
	set := setAbsent(&d.Set, e.Set)
	denied := setAbsent(&d.Denied, e.Denied)
	shadow := setAbsent(&d.ShadowMode, e.ShadowMode)
	return setAbsent(&d.DetailedMetric, e.DetailedMetric) || set || denied || shadow
}

// setAbsent sets *field to value if only *field is nil, and reports whether it did.
func setAbsent[T any](field **T, value *T) bool {
	if *field != nil || value == nil {
		return false
	}
	*field = value
	return true
}

// WithDefaults returns l with the fields of rate_limit of e.
func (l *Limit) WithDefaults(e *DefaultItem) Limit {
	merged := *l
	merged.DefaultFields = e.Limit.DefaultFields
	merged.UnitMultiplier = e.Limit.UnitMultiplier
	merged.Reserve = e.Limit.Reserve
	merged.Penalty = e.Limit.Penalty
	merged.Unit = cmp.Or(e.Limit.Unit, l.Unit)
	if merged.Name == "" {
		merged.Name = e.Limit.Name
	}
	return merged
}

// MistakeMessages returns the messages of the mistakes in the window or the fields of a limit.
func (l *Limit) MistakeMessages() []string {
	if wrong := l.WindowMistake(); wrong != "" {
		return []string{wrong}
	}
	var all []string
	for _, m := range l.Mistakes() {
		all = append(all, m.Message)
	}
	return all
}

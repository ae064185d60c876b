package descriptors

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// An inheritance is what a set has from the sets before it. It grows from set to set, since a request may outlive any
// number of sets.
type inheritance struct {
	// sets is the number of sets before.
	sets int
	// gave has the keys of rules that gave leases, and learnt the estimates of limits. Each is kept with the number of the
	// last set that had it.
	gave   map[keyPath]kept[keyPatterns]
	learnt map[limitName]kept[*estimate]
}

type kept[T any] struct {
	value T
	last  int
}

// mostInherited is the largest number of key paths, and of estimates, that a set inherits. Those of the oldest sets are
// forgotten first.
const mostInherited = 1 << 13

type limitName struct{ domain, name string }

// A keyPath is the keys that lead to a rule, quoted. A rule with another keyPath gets none of the descriptors that come
// to the rule, unless one of them has wildcards.
type keyPath struct{ domain, keys string }

// keyPatterns are the keys that lead to a rule, from the first level down.
type keyPatterns []pattern

// Inherit makes s the successor of old, the set before it, or nil. It must be called once, before s is used.
//
//   - Limits estimate what requests cost from what those of the same domain and name have learnt.
//   - Requests that began under earlier sets, however many sets ago, bring leases back to rules that may give none. Rules
//     with the keys of a rule that gave some ignore these. As hits they would use up, or refund, the complete limit.
func (s *Set) Inherit(old *Set) {
	s.used = true
	if old == nil {
		return
	}
	s.inherited = old.bequest()
	var wild []keyPath // the paths with wildcards
	for path, k := range s.inherited.gave {
		if d := s.domains[path.domain]; d != nil {
			d.gave = append(d.gave, k.value)
		}
		if isWildcard(path.keys) {
			wild = append(wild, path)
		}
	}
	for _, l := range s.Limits {
		if v := l.Reservation; v != nil && v.estimate != nil {
			if k, ok := s.inherited.learnt[limitName{l.Rule.Domain(), l.Name}]; ok {
				v.estimate = k.value
			}
		}
		if len(s.inherited.gave) > 0 && !l.Rule.few().leases && s.inherited.gaveTo(l.Rule, wild) {
			l.Rule.ensureRare().leases = true
		}
	}
}

// Used reports whether Inherit was called: requests may still read the set. It must not be called concurrently with Inherit.
func (s *Set) Used() bool { return s.used }

// bequest returns what the set after s inherits.
func (s *Set) bequest() inheritance {
	in := inheritance{s.inherited.sets + 1, maps.Clone(s.inherited.gave), maps.Clone(s.inherited.learnt)}
	if in.gave == nil {
		in.gave, in.learnt = map[keyPath]kept[keyPatterns]{}, map[limitName]kept[*estimate]{}
	}
	for _, l := range s.Limits {
		if l.Policy.UsesLeases() && !l.Rule.Unlimited {
			path, patterns := l.Rule.keys()
			in.gave[path] = kept[keyPatterns]{patterns, in.sets}
		}
		if v := l.Reservation; v != nil && v.estimate != nil {
			in.learnt[limitName{l.Rule.Domain(), l.Name}] = kept[*estimate]{v.estimate, in.sets}
		}
	}
	forgetOldest(in.gave)
	forgetOldest(in.learnt)
	return in
}

// forgetOldest deletes the elements beyond [mostInherited] that the oldest sets had last.
func forgetOldest[K comparable, T any](m map[K]kept[T]) {
	if len(m) <= mostInherited {
		return
	}
	var last []int
	for _, k := range m {
		last = append(last, k.last)
	}
	slices.Sort(last)
	excess := len(m) - mostInherited
	newest := last[excess-1] // of those to be deleted
	for _, all := range []bool{false, true} {
		for key, k := range m {
			if excess > 0 && (k.last < newest || all && k.last == newest) {
				delete(m, key)
				excess--
			}
		}
	}
}

// gaveTo reports whether a rule that gave leases may have got descriptors that come to r. Wild has the paths with
// wildcards.
func (in *inheritance) gaveTo(r *Rule, wild []keyPath) bool {
	path, patterns := r.keys()
	if _, ok := in.gave[path]; ok {
		return true
	}
	if isWildcard(path.keys) {
		for other, k := range in.gave {
			if other.domain == path.domain && k.value.overlaps(patterns) {
				return true
			}
		}
		return false
	}
	return slices.ContainsFunc(wild, func(other keyPath) bool {
		return other.domain == path.domain && in.gave[other].value.overlaps(patterns)
	})
}

// keys returns the keys that lead to r.
func (r *Rule) keys() (keyPath, keyPatterns) {
	var b []byte
	var patterns keyPatterns
	for _, n := range r.node.lineage() {
		b = strconv.AppendQuote(b, n.key)
		patterns = append(patterns, newPattern(n.key))
	}
	return keyPath{r.Domain(), string(b)}, patterns
}

// gaveLeases reports whether rules of the domain with these keys gave leases in sets before this one.
func (d *domain) gaveLeases(entries []Entry) bool {
	return slices.ContainsFunc(d.gave, func(keys keyPatterns) bool {
		return slices.EqualFunc(keys, entries, func(p pattern, e Entry) bool { return p.matches(e.Key) })
	})
}

// overlaps reports whether keys may match both. It is exact unless both have wildcards on a level.
func (k keyPatterns) overlaps(other keyPatterns) bool {
	return slices.EqualFunc(k, other, func(a, b pattern) bool {
		switch {
		case a.literal:
			return b.matches([]byte(a.prefix))
		case b.literal:
			return a.matches([]byte(b.prefix))
		}
		return (strings.HasPrefix(a.prefix, b.prefix) || strings.HasPrefix(b.prefix, a.prefix)) &&
			(strings.HasSuffix(a.suffix, b.suffix) || strings.HasSuffix(b.suffix, a.suffix))
	})
}

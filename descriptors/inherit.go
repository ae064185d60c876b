package descriptors

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// inheritance is state from earlier sets. It is passed on from set to set, since a request may
// outlive any number of them.
type inheritance struct {
	sets int
	// leaseKeys has the keys of rules that granted leases. estimates has the estimates of limits.
	leaseKeys map[keyPath]aged[keyPatterns]
	estimates map[limitName]aged[*estimate]
}

// aged is inherited state with the number of the last set that had it.
type aged[T any] struct {
	value T
	last  int
}

// maxInherited bounds the key paths, and the estimates, that a set inherits. Those of the oldest
// sets are dropped first.
const maxInherited = 1 << 13

type limitName struct{ domain, name string }

// keyPath is the keys that lead to a rule, quoted. Rules with different key paths match different
// descriptors, unless a key has wildcards.
type keyPath struct{ domain, keys string }

// keyPatterns are the keys that lead to a rule, from the first level down.
type keyPatterns []pattern

// Inherit makes s the successor of old, the previous set, which may be nil. It must be called once,
// before s is used.
//
//   - Limits inherit the estimates of limits with the same domain and name.
//   - Rules with the keys of a rule that granted leases ignore leases that they do not know.
//     Requests that began under an earlier set may still return such leases, and counted as hits or
//     refunds these would use up or refill the limit.
func (s *Set) Inherit(old *Set) {
	s.used = true
	if old == nil {
		return
	}
	s.inherited = old.forSuccessor()
	var wild []keyPath // key paths with wildcards
	for path, k := range s.inherited.leaseKeys {
		if d := s.domains[path.domain]; d != nil {
			d.formerLeaseKeys = append(d.formerLeaseKeys, k.value)
		}
		if isWildcard(path.keys) {
			wild = append(wild, path)
		}
	}
	for _, l := range s.Limits {
		if v := l.Reservation; v != nil && v.estimate != nil {
			if k, ok := s.inherited.estimates[limitName{l.Rule.Domain(), l.Name}]; ok {
				v.estimate = k.value
			}
		}
		if len(s.inherited.leaseKeys) > 0 && !l.Rule.optionalOrZero().leases && s.inherited.hadLeases(l.Rule, wild) {
			l.Rule.ensureOptional().leases = true
		}
	}
}

// Used reports whether Inherit was called, so requests may still read the set. It must not be
// called concurrently with Inherit.
func (s *Set) Used() bool { return s.used }

// forSuccessor returns what the next set inherits.
func (s *Set) forSuccessor() inheritance {
	in := inheritance{s.inherited.sets + 1, maps.Clone(s.inherited.leaseKeys), maps.Clone(s.inherited.estimates)}
	if in.leaseKeys == nil {
		in.leaseKeys = map[keyPath]aged[keyPatterns]{}
		in.estimates = map[limitName]aged[*estimate]{}
	}
	for _, l := range s.Limits {
		if l.Policy.UsesLeases() && !l.Rule.Unlimited {
			path, patterns := l.Rule.keys()
			in.leaseKeys[path] = aged[keyPatterns]{patterns, in.sets}
		}
		if v := l.Reservation; v != nil && v.estimate != nil {
			in.estimates[limitName{l.Rule.Domain(), l.Name}] = aged[*estimate]{v.estimate, in.sets}
		}
	}
	forgetOldest(in.leaseKeys)
	forgetOldest(in.estimates)
	return in
}

// forgetOldest reduces m to maxInherited elements. It deletes those that were last in the oldest
// sets.
func forgetOldest[K comparable, T any](m map[K]aged[T]) {
	if len(m) <= maxInherited {
		return
	}
	var last []int
	for _, k := range m {
		last = append(last, k.last)
	}
	slices.Sort(last)
	excess := len(m) - maxInherited
	newest := last[excess-1] // the newest set that loses elements
	for _, all := range []bool{false, true} {
		for key, k := range m {
			if excess > 0 && (k.last < newest || all && k.last == newest) {
				delete(m, key)
				excess--
			}
		}
	}
}

// hadLeases reports whether a rule that granted leases can have matched descriptors that match r.
// wild are the key paths with wildcards.
func (in *inheritance) hadLeases(r *Rule, wild []keyPath) bool {
	path, patterns := r.keys()
	if _, ok := in.leaseKeys[path]; ok {
		return true
	}
	if isWildcard(path.keys) {
		for other, k := range in.leaseKeys {
			if other.domain == path.domain && k.value.overlaps(patterns) {
				return true
			}
		}
		return false
	}
	return slices.ContainsFunc(wild, func(other keyPath) bool {
		return other.domain == path.domain && in.leaseKeys[other].value.overlaps(patterns)
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

// hadLeases reports whether rules of the domain with these keys granted leases in earlier sets.
func (d *domain) hadLeases(entries []Entry) bool {
	return slices.ContainsFunc(d.formerLeaseKeys, func(keys keyPatterns) bool {
		return slices.EqualFunc(keys, entries, func(p pattern, e Entry) bool { return p.matches(e.Key) })
	})
}

// overlaps reports whether some keys match both. If both have wildcards on a level, it may return
// true by mistake.
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

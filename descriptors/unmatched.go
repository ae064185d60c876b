package descriptors

import "github.com/sluice-ratelimit/sluice/descriptors/rules"

// Unmatched describes where a request's descriptor that matches no rule leaves the tree: the last
// node that it matches, and the entry that matches nothing below that. The zero value means that a
// rule matches.
type Unmatched struct {
	domain *domain
	at     *node
	// entry is the index of the entry that matches nothing, or -1 if all match.
	entry int
}

// Unmatched returns where entries that match no rule leave the tree of a domain, given by its index
// in [Set.Domains]. key is the key of the entry that matches nothing, a view of entries, or nil.
// The result is the zero value if a rule matches, or a descriptor without a limit and with nothing
// below it, which is how rules exempt requests.
func (s *Set) Unmatched(domain int, entries []Entry) (Unmatched, []byte) {
	d := s.domains[s.names[domain]]
	n := &d.root
	addresses := addressReader{}
	for i := range entries {
		if n.below == nil {
			return Unmatched{d, n, i}, entries[i].Key
		}
		next := n.below.next(&entries[i], &addresses)
		if next == nil {
			return Unmatched{d, n, i}, entries[i].Key
		}
		n = next
	}
	if n.rule != nil || n.below == nil {
		return Unmatched{}, nil
	}
	return Unmatched{d, n, -1}, nil
}

// Domain returns the domain of the descriptor.
func (u Unmatched) Domain() string { return u.domain.name }

// Entry returns the number of the entry that matches nothing, from 1, or 0 if all match.
func (u Unmatched) Entry() int { return u.entry + 1 }

// Reached returns the last descriptor that matches, such as `route=search`, or "".
func (u Unmatched) Reached() string { return pathText(u.at.lineage()) }

// Explain returns a sentence that explains why descriptors with the given key in that entry match
// no rule, and lists the nearest descriptors. meant is the key that was likely meant, or "".
func (u Unmatched) Explain(key string) (why, meant string) {
	if u.entry < 0 {
		return u.at.whyNoLimit(), ""
	}
	at := []*node{u.at}
	if u.at.below != nil {
		meant = rules.Suggest(key, otherKeys(key, at))
	}
	return whyNoMatch(at, &Form{Key: rules.Shorten(key), AnyValue: true}, u.entry), meant
}

package descriptors

import (
	"fmt"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// Unmatched is where the rules end for descriptors that match none: the last descriptor of the rules that
// they reach, and the key of the entry that leads no further. The zero value is none.
type Unmatched struct {
	domain *domain
	at     *node
	// entry is the number of the entry that leads no further, from 0, or -1 if all lead somewhere.
	entry int
}

// Unmatched says where the rules of a domain, by its place in [Set.Domains], end for entries that match no rule, and
// the key at which they do; it is a view of them, nil if all entries match. It returns none if the
// entries lead to a descriptor without a limit and with nothing below it: that is how rules let pass.
func (s *Set) Unmatched(domain int, entries []Entry) (Unmatched, []byte) {
	d := s.domains[s.names[domain]]
	n := &d.root
	for i := range entries {
		if n.below == nil {
			return Unmatched{d, n, i}, entries[i].Key
		}
		next := n.below.next(&entries[i])
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

// Domain is the domain's name.
func (u Unmatched) Domain() string { return u.domain.name }

// Entry is the number of the entry that leads no further, from 1, or 0 if all lead somewhere.
func (u Unmatched) Entry() int { return u.entry + 1 }

// Reached is the last descriptor of the rules that matches, such as `route=search`, empty if none does.
func (u Unmatched) Reached() string { return pathText(u.at.lineage()) }

// Explain says in a sentence why descriptors whose entry has that key match no rule, and which rules
// are nearest. Meant is the key that was likely meant, or empty.
func (u Unmatched) Explain(key string) (why, meant string) {
	switch {
	case u.at.parent == nil && u.entry < 0:
		return "the descriptor is empty", ""
	case u.entry < 0:
		return fmt.Sprintf("%s at %s has no limit; those below it need %s", u.Reached(), u.at.pos, keysText([]*node{u.at})), ""
	case u.at.below != nil:
		if similar := similar(key, []*node{u.at}); len(similar) > 0 {
			meant = similar[0]
		}
	}
	return stuck([]*node{u.at}, &Form{Key: rules.Shorten(key), AnyValue: true}, u.entry), meant
}

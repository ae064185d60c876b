package descriptors

import "github.com/sluice-ratelimit/sluice/limiter/identity"

// The places of the parts of an identity: the domain, what the counter holds, and each
// entry's key and value. The hash depends on a part's place, so parts cannot be swapped.
const (
	domainPlace  = 0
	counterPlace = 1
)

func keyPlace(level int) int   { return 2 + 2*level }
func valuePlace(level int) int { return 3 + 2*level }

// ruleIdentity makes the identities of a rule's counters. The literal parts of the rule,
// its keys and most values, are hashed when the rule is compiled. A request adds the rest.
type ruleIdentity struct {
	literal identity.Hasher
	open    []openPart
}

// openPart is the key or value of an entry that only the request tells.
type openPart struct {
	level int
	key   bool
}

// newIdentity returns the identity of the rule at the end of lineage. Where shared
// has an element that is not nil, it stands in place of the entry's value.
func newIdentity(d *domain, lineage []*node, shared [][]byte) ruleIdentity {
	id := ruleIdentity{literal: d.prefix}
	for i, n := range lineage {
		if isWildcard(n.key) {
			id.open = append(id.open, openPart{i, true})
		} else {
			id.literal.AddBytesAt(keyPlace(i), []byte(n.key))
		}
		switch {
		case shared != nil && shared[i] != nil:
			id.literal.AddBytesAt(valuePlace(i), shared[i])
		case n.value == "" || isWildcard(n.value) || isWildcard(n.key):
			id.open = append(id.open, openPart{i, false})
		default:
			id.literal.AddBytesAt(valuePlace(i), []byte(n.value))
		}
	}
	return id
}

// of hashes what the identities of all counters of the rule share for these entries,
// which match it.
func (id *ruleIdentity) of(entries []Entry) identity.Hasher {
	h := id.literal
	for _, part := range id.open {
		e := &entries[part.level]
		if part.key {
			h.AddBytesAt(keyPlace(part.level), e.Key)
		} else {
			h.AddBytesAt(valuePlace(part.level), e.Value)
		}
	}
	return h
}

// identityAsSent is ruleIdentity.of for entries that count as they were sent, whatever
// rule they match.
func (d *domain) identityAsSent(entries []Entry) identity.Hasher {
	h := d.prefix
	for i := range entries {
		h.AddBytesAt(keyPlace(i), entries[i].Key)
		h.AddBytesAt(valuePlace(i), entries[i].Value)
	}
	return h
}

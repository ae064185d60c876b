package descriptors

import "github.com/sluice-ratelimit/sluice/limiter/identity"

// The positions of the parts of an identity: the domain, the counter kind, and each entry's key and
// value. The hash depends on them, so parts cannot be swapped.
const (
	domainPart  = 0
	counterPart = 1
)

func keyPart(level int) int   { return 2 + 2*level }
func valuePart(level int) int { return 3 + 2*level }

// ruleIdentity makes the identities of a rule's counters. The literal parts of the rule are hashed
// when it is compiled, the parts in open for each request.
type ruleIdentity struct {
	literal identity.Hasher
	open    []openPart
}

// openPart is the key or value of an entry that the rule does not determine.
type openPart struct {
	level int
	key   bool
	set   *valueSet // nil unless the value is counted as an address
}

// newIdentity returns the identity of the rule at the end of lineage. Elements of shared that are
// not nil replace the values of entries.
func newIdentity(d *domain, lineage []*node, shared [][]byte) ruleIdentity {
	id := ruleIdentity{literal: d.prefix}
	for i, n := range lineage {
		if isWildcard(n.key) {
			id.open = append(id.open, openPart{level: i, key: true})
		} else {
			id.literal.AddBytesAt(keyPart(i), []byte(n.key))
		}
		switch {
		case shared != nil && shared[i] != nil:
			id.literal.AddBytesAt(valuePart(i), shared[i])
		case n.value == "" || isWildcard(n.value) || isWildcard(n.key):
			open := openPart{level: i}
			if n.set != nil && n.set.addresses {
				open.set = n.set
			}
			id.open = append(id.open, open)
		default:
			id.literal.AddBytesAt(valuePart(i), []byte(n.value))
		}
	}
	return id
}

// hashEntries returns the hash of matching entries that all counters of the rule have in common.
func (id *ruleIdentity) hashEntries(entries []Entry) identity.Hasher {
	h := id.literal
	for _, part := range id.open {
		e := &entries[part.level]
		switch {
		case part.key:
			h.AddBytesAt(keyPart(part.level), e.Key)
		case part.set != nil:
			var buf [maxCounted]byte
			h.AddBytesAt(valuePart(part.level), part.set.counted(buf[:], e.Value, sharedMark))
		default:
			h.AddBytesAt(valuePart(part.level), e.Value)
		}
	}
	return h
}

// identityAsSent hashes entries as sent, whatever rule they match.
func (d *domain) identityAsSent(entries []Entry) identity.Hasher {
	h := d.prefix
	for i := range entries {
		h.AddBytesAt(keyPart(i), entries[i].Key)
		h.AddBytesAt(valuePart(i), entries[i].Value)
	}
	return h
}

// DescriptorID returns the part of the identities of the counters of descriptor i of a planned
// request that does not depend on the limits. Entries are those of the descriptor.
func (s *Set) DescriptorID(p *Plan, i int, entries []Entry) identity.ID {
	h := s.domains[p.DomainName].identityAsSent(entries)
	if r := p.Matches[i].Rule; r != nil {
		h = r.identity.hashEntries(entries)
	}
	return h.Sum()
}

package descriptors

import (
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// domain is one domain's compiled rules.
type domain struct {
	name         string
	index        int
	allOrNothing bool
	// calendarMonths is [Options.CalendarMonths].
	calendarMonths bool
	// maxCounters is 0 if the domain shares memory with others.
	maxCounters int64
	// maxCountersAt is the place of the document with max_counters, zero if it comes from defaults.
	maxCountersAt rules.Pos
	// divides is true if a limit of the domain is divided among Envoys.
	divides bool
	// denied is the domain's denied_response, or nil.
	denied *rules.DeniedResponse
	root   node
	// exempt are the items of the field exempt, or nil, and exemptDigest their hash.
	exempt       *level
	exemptDigest digest
	// prefix is the hash of the name, with which each identity starts.
	prefix identity.Hasher
	// replaceable is the number of names that limits of the domain replace. Their ids are
	// 1..replaceable.
	replaceable int
	// formerLeaseKeys has the keys of the domain's rules that granted leases in earlier sets.
	formerLeaseKeys []keyPatterns
}

// match returns the node that the entries lead to, or nil. Without entries it is the root, which
// has no rule. addresses reads values that are compared with ranges.
func (d *domain) match(entries []Entry, addresses *addressReader) *node {
	n := &d.root
	for i := range entries {
		if n.below == nil {
			return nil
		}
		if n = n.below.next(&entries[i], addresses); n == nil {
			return nil
		}
	}
	return n
}

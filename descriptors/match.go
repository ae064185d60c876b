package descriptors

import (
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// domain is one domain's compiled rules.
type domain struct {
	name string
	// index is the domain's place in Set.names.
	index        int
	allOrNothing bool
	// calendarMonths is [Options.CalendarMonths].
	calendarMonths bool
	// maxCounters is 0 if the domain has no bound of its own.
	maxCounters int64
	// maxCountersAt is where the document begins that says so, zero if defaults do.
	maxCountersAt rules.Pos
	// divides says that a limit of the domain is divided among Envoys.
	divides bool
	root    node
	// prefix is the hash of the name, which each identity has.
	prefix identity.Hasher
	// replaceable is how many names of limits are replaced by a limit. Their ids are
	// 1..replaceable.
	replaceable int
	// gave has the keys of the domain's rules that gave leases in sets before this one.
	gave []keyPatterns
}

// match returns the node that the entries lead to, or nil. Without entries it is
// the root, which has no rule.
func (d *domain) match(entries []Entry) *node {
	n := &d.root
	for i := range entries {
		if n.below == nil {
			return nil
		}
		if n = n.below.next(&entries[i]); n == nil {
			return nil
		}
	}
	return n
}

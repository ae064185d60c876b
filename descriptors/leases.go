package descriptors

import (
	"iter"
	"slices"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// FirstLease is the smallest lease: smaller hits are never a lease.
//
// A limit that grants leases returns each in the response's dynamic metadata, under the limit's
// name. When the request ends, Envoy returns the lease as the hits of a descriptor with the same
// entries. The hits may have either sign, since not every Envoy configuration can set
// is_negative_hits.
const FirstLease = limiter.FirstLease

// classifyLeaseCharges marks the charges of lease-granting rules as acquisition, release or cost. A
// descriptor that returns a lease releases it, and other descriptors of the request on the same
// rule settle its cost.
//
// A request without a lease was denied, or started while the service was unavailable. The hits that
// its descriptors contain are a cost, too: in Envoy's configuration only elements for the end of a
// request contain hits. A cost reserves nothing, and acquires no permit of a list that has other
// limits. 0 hits only read. If starts is true, descriptors with hits start a request of that cost.
func (p *Plan) classifyLeaseCharges(req *Request, starts bool) {
	returned := false // whether the request returns a lease
	for i := range p.Matches {
		m := &p.Matches[i]
		if m.Hits >= limiter.FirstLease && m.usesLeases() {
			m.Lease = m.Hits
			returned = true
		}
	}
	for i := range p.Matches {
		m := &p.Matches[i]
		if !m.usesLeases() {
			continue
		}
		ends := returned && (m.Lease > 0 || p.returnsLeaseFor(m))
		own := req.Descriptors[i].HasHits && !starts
		for at := range p.ChargesOf(i) {
			c := &p.Batch.Charges[at]
			switch reserves := c.Policy.Reserve != nil; {
			case m.Lease > 0: // its hits may have either sign
				c.Refund = true
				if !c.Policy.UsesLeases() {
					c.Hits = 0
				}
			case c.Policy.Algorithm == limiter.Concurrency &&
				(ends || own && m.limitedBy().chargesCosts(p.Limits[at].Candidate)):
				c.Hits = 0
			case reserves && c.Refund: // only the return of a lease refunds a reservation
				c.Hits = 0
			case !reserves || ends:
			case own:
				c.Reserve = c.Hits == 0 // a read includes reserved hits
			case c.Hits <= maxStartHits || starts:
				c.Reserve = true
				c.Hits = p.Limits[at].Reservation.Hits(c.Policy)
			}
		}
	}
}

// maxStartHits is the largest number of hits of a request, without hits of its descriptors, with
// which it reserves. More hits are a cost.
const maxStartHits = 1

// chargesCosts reports whether a limit of the rule counts hits other than those in progress, so that
// the hits of a request may be its cost. Candidates do not matter to other limits than candidates.
func (r *Rule) chargesCosts(candidate bool) bool {
	return slices.ContainsFunc(r.Limits, (*Limit).HasWindow) ||
		candidate && slices.ContainsFunc(r.Candidates(), (*Limit).HasWindow)
}

// ChargesOf yields the charges of match i, including those of candidates.
func (p *Plan) ChargesOf(i int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for at := p.Matches[i].First; at < p.Matches[i].First+p.Matches[i].Count; at++ {
			if !yield(at) {
				return
			}
		}
		// Candidates are in the order of matches.
		first, _ := slices.BinarySearchFunc(p.Candidates, i, func(c Candidate, i int) int { return c.Match - i })
		for _, candidate := range p.Candidates[first:] {
			if candidate.Match != i || !yield(candidate.Charge) {
				return
			}
		}
	}
}

// returnsLeaseFor reports whether a descriptor of the request returns a lease to the rule of m.
func (p *Plan) returnsLeaseFor(m *Match) bool {
	return slices.ContainsFunc(p.Matches, func(o Match) bool { return o.Lease > 0 && o.limitedBy() == m.limitedBy() })
}

// limitedBy returns the rule whose fields apply to the descriptor, or nil.
func (m *Match) limitedBy() *Rule {
	if m.override != nil {
		return m.override.rule
	}
	return m.Rule
}

// usesLeases reports whether hits of m from FirstLease on are a lease: its rule, or a rule with the
// same keys in an earlier set, grants leases.
func (m *Match) usesLeases() bool {
	r := m.limitedBy()
	return r != nil && r.optionalOrZero().leases || m.override != nil && m.override.leased
}

// ReturnsLease reports whether the request returns a lease.
func (p *Plan) ReturnsLease() bool {
	return slices.ContainsFunc(p.Matches, func(m Match) bool { return m.Lease > 0 })
}

// AllLeases yields the match and the charge of each lease that the request acquired.
func (p *Plan) AllLeases() iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		for i := range p.Matches {
			for at := range p.ChargesOf(i) {
				if p.Batch.Lease(at) > 0 && !yield(i, at) {
					return
				}
			}
		}
	}
}

// LeaseName is the name of a lease: that of its limit and the number of the descriptor among those
// of the request that match the limit.
type LeaseName struct {
	Limit string
	Nth   int
}

// LeaseLimit returns the name of the limit of charge at of match i.
func (p *Plan) LeaseLimit(i, at int) string {
	if o := p.Matches[i].override; o != nil {
		return o.rule.Limits[0].Name
	}
	return p.Limits[at].Name
}

// NamedLeases yields the charges of all acquired leases with the names of the leases. Descriptors
// without a lease, such as those with an unlimited row, are numbered too, since Envoy's
// configuration has a fixed name for each.
func (p *Plan) NamedLeases() iter.Seq2[int, LeaseName] {
	return func(yield func(int, LeaseName) bool) {
		if p.leaseNames == nil {
			p.leaseNames = map[string]int{}
		}
		clear(p.leaseNames)
		for i := range p.Matches {
			m := &p.Matches[i]
			if m.Lease > 0 || m.limitedBy() == nil { // it acquires no lease
				continue
			}
			m.countLeaseNames(p.leaseNames)
			for at := range p.ChargesOf(i) {
				if p.Batch.Lease(at) == 0 {
					continue
				}
				name := p.LeaseLimit(i, at)
				if !yield(at, LeaseName{name, p.leaseNames[name]}) {
					return
				}
			}
		}
	}
}

// countLeaseNames counts m for the name of each of its limits that may grant a lease.
func (m *Match) countLeaseNames(names map[string]int) {
	r := m.limitedBy()
	if m.override != nil {
		if r.hasLimits() {
			names[r.Limits[0].Name]++
		}
		return
	}
	for _, limits := range [...][]*Limit{r.Limits, r.Candidates()} {
		for _, l := range limits {
			if l.Policy.UsesLeases() {
				names[l.Name]++
			}
		}
	}
}

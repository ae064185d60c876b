package descriptors

import (
	"iter"
	"slices"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// A limit that gives leases tells each in the reply's dynamic metadata, under its name. Envoy brings it back when
// the request's stream has ended: as the hits of a descriptor with the same entries, of either sign, since not all
// that write Envoy's configuration can say is_negative_hits.

// FirstLease is the least number of hits that is a lease to a rule that gives some.
const FirstLease = limiter.FirstLease

// findLeases makes charges of rules that give leases what they are. Those of a descriptor that brings a lease give it
// back, and those beside it on the same rule are what the request has cost. Others begin a request. With look none
// changes anything.
func (p *Plan) findLeases(look bool) {
	brings := false // a lease
	for i := range p.Matches {
		m := &p.Matches[i]
		if m.Hits >= limiter.FirstLease && m.leases() {
			m.Lease, brings = m.Hits, true
		}
	}
	for i := range p.Matches {
		m := &p.Matches[i]
		if !m.leases() {
			continue
		}
		ends := brings && (m.Lease > 0 || p.endsBeside(m))
		for at := range p.ChargesOf(i) {
			c := &p.Batch.Charges[at]
			switch reserves := c.Policy.Reserve != nil; {
			case m.Lease > 0: // of either sign
				if c.Refund = true; !c.Policy.UsesLeases() {
					c.Hits = 0
				}
			case ends && c.Policy.Algorithm == limiter.Concurrency: // it holds its place since before
				c.Hits = 0
			case reserves && c.Refund: // only a lease gives back
				c.Hits = 0
			case reserves && !ends && c.Hits <= mostOfStart:
				if c.Reserve, c.Hits = true, 0; !look {
					c.Hits = p.Limits[at].Reservation.Hits(c.Policy)
				}
			}
		}
	}
}

// mostOfStart is the most hits of a request that reserves: it does not know yet what it costs. So more hits than that are
// a cost, which comes without its lease because the service did not answer when the request began.
const mostOfStart = 1

// ChargesOf returns the charges of match i, those of candidates too.
func (p *Plan) ChargesOf(i int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for at := p.Matches[i].First; at < p.Matches[i].First+p.Matches[i].Count; at++ {
			if !yield(at) {
				return
			}
		}
		// They stand in the order of matches.
		first, _ := slices.BinarySearchFunc(p.Candidates, i, func(c Candidate, i int) int { return c.Match - i })
		for _, candidate := range p.Candidates[first:] {
			if candidate.Match != i || !yield(candidate.Charge) {
				return
			}
		}
	}
}

// endsBeside reports whether another descriptor of the request brings a lease for the rule of m.
func (p *Plan) endsBeside(m *Match) bool {
	return slices.ContainsFunc(p.Matches, func(o Match) bool { return o.Lease > 0 && o.limitedBy() == m.limitedBy() })
}

// limitedBy returns the rule whose words apply to the descriptor, or nil.
func (m *Match) limitedBy() *Rule {
	if m.override != nil {
		return m.override.rule
	}
	return m.Rule
}

// leases reports whether large hits of m are a lease: its rule gives leases, or rules with its keys did.
func (m *Match) leases() bool {
	r := m.limitedBy()
	return r != nil && r.few().leases || m.override != nil && m.override.leased
}

// BringsLeases reports whether the request gives back a lease.
func (p *Plan) BringsLeases() bool {
	return slices.ContainsFunc(p.Matches, func(m Match) bool { return m.Lease > 0 })
}

// AllLeases returns the matches and the charges of all leases that the request takes.
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

// LeaseName is the name of a lease: that of the limit that gave it and, from the second descriptor on that comes to the
// limit, the number of the descriptor among these.
type LeaseName struct {
	Limit string
	Nth   int
}

// LeaseLimit returns the name of the limit that charge at of match i, which gives leases, gives them under.
func (p *Plan) LeaseLimit(i, at int) string {
	if o := p.Matches[i].override; o != nil {
		return o.rule.Limits[0].Name
	}
	return p.Limits[at].Name
}

// NamedLeases returns the charges of all leases that the request takes, with the names of the leases. Descriptors that get
// no lease count in these too, such as those of an unlimited row: Envoy's configuration has a fixed name for each.
func (p *Plan) NamedLeases() iter.Seq2[int, LeaseName] {
	return func(yield func(int, LeaseName) bool) {
		if p.leaseNames == nil {
			p.leaseNames = map[string]int{}
		}
		clear(p.leaseNames)
		for i := range p.Matches {
			m := &p.Matches[i]
			if m.Lease > 0 || m.limitedBy() == nil { // it takes none
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

// countLeaseNames adds m to the descriptors that come to each limit by whose name it may be given a lease.
func (m *Match) countLeaseNames(names map[string]int) {
	r := m.limitedBy()
	if m.override != nil {
		names[r.Limits[0].Name]++
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

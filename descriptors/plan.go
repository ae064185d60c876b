package descriptors

import (
	"cmp"
	"slices"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// Plan fills p with the charges of req. It allocates nothing once p has grown to
// the size of such requests. P refers to s and to req's bytes until it is used
// again.
func (s *Set) Plan(p *Plan, req *Request, global Global) {
	d := s.domains[string(req.Domain)]
	p.begin(d, len(req.Descriptors))
	if d == nil {
		p.Batch.QuotaPass = global.Quota && len(p.Matches) > 0
		return
	}
	replacing, candidates := false, false
	for i := range req.Descriptors {
		rule := p.match(d, i, &req.Descriptors[i])
		if rule == nil || rule.rare == nil {
			continue
		}
		candidates = candidates || len(rule.rare.candidates) > 0
		p.Leases = p.Leases || rule.rare.leases
		if len(rule.rare.replaces) > 0 {
			if !replacing {
				replacing = true
				p.beginReplacing(d)
			}
			for _, id := range rule.rare.replaces {
				p.replacedIn[id] = p.turn
			}
		}
	}
	group := int32(0)
	for i := range req.Descriptors {
		m, desc := &p.Matches[i], &req.Descriptors[i]
		m.First, m.Hits = len(p.Batch.Charges), hits(req, desc)
		switch {
		case m.override != nil:
			p.chargeOverride(d, m, desc, global, group)
		case m.Rule == nil:
			p.Batch.QuotaPass = p.Batch.QuotaPass || global.Quota
		case m.Rule.Unlimited:
			// Not a quota member, not even a passing one, as in envoyproxy/ratelimit.
		default:
			p.chargeRule(m, desc, global, group, replacing)
		}
		if m.Count > 0 && !d.allOrNothing {
			group++
		}
	}
	if candidates {
		p.chargeCandidates(req, global.Rows, group+1, replacing)
	}
	if p.Leases {
		p.findLeases(global.Look)
	}
}

// begin empties p for a request with n descriptors.
func (p *Plan) begin(d *domain, n int) {
	clear(p.Limits) // drop the limits of an earlier rule set
	p.Limits = p.Limits[:0]
	p.Batch.Reset()
	p.Candidates = p.Candidates[:0]
	clear(p.overrides)
	p.overrides = p.overrides[:0]
	p.rows = 0
	clear(p.Matches)
	p.Matches = slices.Grow(p.Matches[:0], n)[:n]
	p.KnownDomain, p.DomainName, p.DomainIndex, p.Leases = d != nil, "", -1, false
	if d != nil {
		p.DomainName, p.DomainIndex = d.name, d.index
	}
}

// match fills in what descriptor i of the request came to. It returns the rule if
// that is to be applied.
func (p *Plan) match(d *domain, i int, desc *Descriptor) *Rule {
	m := &p.Matches[i]
	var rule *Rule
	if n := d.match(desc.Entries); n != nil {
		rule = n.rule
	}
	if desc.HasOverride {
		if p.override(d, m, rule, desc.Override) {
			return nil
		}
		m.IgnoredOverride = true
	}
	m.Rule = rule
	return rule
}

func (p *Plan) beginReplacing(d *domain) {
	p.turn++
	if n := d.replaceable + 1; len(p.replacedIn) < n {
		p.replacedIn = append(p.replacedIn, make([]uint64, n-len(p.replacedIn))...)
	}
}

// hits returns the hits of a descriptor. 0 in the request stands for 1, 0 in the
// descriptor for a peek.
func hits(req *Request, desc *Descriptor) uint64 {
	if desc.HasHits {
		return desc.Hits
	}
	return max(1, uint64(req.HitsAddend))
}

func (p *Plan) chargeRule(m *Match, desc *Descriptor, global Global, group int32, replacing bool) {
	rule := m.Rule
	mode, quota := rule.mode, rule.Quota || global.Quota
	if mode == limiter.Enforce && quota {
		mode = limiter.Quota
	}
	h := rule.identity.of(desc.Entries)
	replacing = replacing && rule.replaceable
	rows := p.rows
	for _, l := range rule.Limits {
		if replacing && p.replaced(l) {
			continue
		}
		if l.Table != nil {
			of, unlimited := p.rowOf(l, global.Rows, desc.Entries)
			if l = of; unlimited {
				m.Unlimited = l
				continue
			}
		}
		if p.rows > rows && p.shareCounter(m.First, l) {
			continue
		}
		p.charge(m, l, h, desc.Refund, mode, group)
		m.Count++
	}
	if m.Count == 0 && m.Unlimited != nil {
		return // as with an unlimited rule
	}
	if m.Unlimited = nil; m.Count == 0 {
		// The reference no longer looks at the quota flag of a replaced rule.
		m.Replaced = true
		p.Batch.QuotaPass = p.Batch.QuotaPass || global.Quota
	} else if quota && (mode == limiter.Shadow || desc.Refund) {
		p.Batch.QuotaPass = true // its status is OK whatever happens
	}
}

func (p *Plan) charge(m *Match, l *Limit, h identity.Hasher, refund bool, mode limiter.Mode, group int32) {
	h.AddWordAt(counterPlace, l.counter)
	p.Batch.Charges = append(p.Batch.Charges, limiter.Charge{
		ID: h.Sum(), Policy: &l.Policy, Hits: m.Hits, Refund: refund, Mode: mode, Group: group,
	})
	p.Limits = append(p.Limits, l)
}

// shareCounter reports whether a charge of the same rule, the first of which is given, has the counter of l already: rows can
// give two limits of a list the same window. That charge is then by the one of the two limits that admits less.
func (p *Plan) shareCounter(first int, l *Limit) bool {
	for at := first; at < len(p.Limits); at++ {
		if other := p.Limits[at]; other.counter == l.counter {
			if cmp.Or(cmp.Compare(l.Policy.Limit, other.Policy.Limit), cmp.Compare(l.Policy.Capacity(), other.Policy.Capacity())) < 0 {
				p.Limits[at], p.Batch.Charges[at].Policy = l, &l.Policy
			}
			return true
		}
	}
	return false
}

// replaced reports whether a limit of the request replaces l.
func (p *Plan) replaced(l *Limit) bool { return l.nameID != 0 && p.replacedIn[l.nameID] == p.turn }

// chargeCandidates charges the limits that are not in force, behind all others and each for
// itself, from the group on.
func (p *Plan) chargeCandidates(req *Request, snapshot *Snapshot, group int32, replacing bool) {
	for i := range p.Matches {
		m := &p.Matches[i]
		if m.Rule == nil || len(m.Rule.Candidates()) == 0 {
			continue
		}
		desc := &req.Descriptors[i]
		h := m.Rule.identity.of(desc.Entries)
		rows, first := p.rows, len(p.Batch.Charges)
		for _, l := range m.Rule.Candidates() {
			if replacing && p.replaced(l) {
				continue
			}
			if l.Table != nil {
				of, unlimited := p.rowOf(l, snapshot, desc.Entries)
				if l = of; unlimited {
					continue
				}
			}
			if p.rows > rows && p.shareCounter(first, l) {
				continue
			}
			p.Candidates = append(p.Candidates, Candidate{Charge: len(p.Batch.Charges), Match: i})
			p.charge(m, l, h, desc.Refund, limiter.Watch, group)
			group++
		}
	}
}

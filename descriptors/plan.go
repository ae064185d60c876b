package descriptors

import (
	"cmp"
	"slices"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// Plan sets p to the charges of req. It allocates nothing once p has grown. p refers to s and to
// req's bytes until it is used again.
func (s *Set) Plan(p *Plan, req *Request, global Global) {
	d := s.domains[string(req.Domain)]
	p.begin(d, len(req.Descriptors))
	if d == nil {
		p.Batch.QuotaPass = global.Quota && len(p.Matches) > 0
		return
	}
	exempts := d.exempt != nil && !global.ReadOnly
	if exempts {
		p.addresses.remembers = true
	}
	replacing := false
	candidates := false
	for i := range req.Descriptors {
		if exempts && p.Exempt == nil {
			p.Exempt = d.exempt.findExemption(req.Descriptors[i].Entries, &p.addresses)
		}
		rule := p.match(d, i, &req.Descriptors[i])
		if rule == nil || rule.optional == nil {
			continue
		}
		candidates = candidates || len(rule.optional.candidates) > 0
		p.Leases = p.Leases || rule.optional.leases
		if len(rule.optional.replaces) > 0 {
			if !replacing {
				replacing = true
				p.beginReplacing(d)
			}
			for _, id := range rule.optional.replaces {
				p.replacedIn[id] = p.generation
			}
		}
	}
	if p.Exempt != nil {
		p.applyExemption(req)
	}
	group := int32(0)
	for i := range req.Descriptors {
		m := &p.Matches[i]
		desc := &req.Descriptors[i]
		m.First = len(p.Batch.Charges)
		m.Hits = hits(req, desc)
		switch {
		case m.override != nil:
			p.chargeOverride(d, m, desc, global, group)
		case m.Rule == nil:
			p.Batch.QuotaPass = p.Batch.QuotaPass || global.Quota
		case m.Rule.Unlimited:
			// As in envoyproxy/ratelimit, an unlimited rule is not a quota, not even one that passes.
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
		p.classifyLeaseCharges(req, global.Starts)
	}
}

// NotAddresses returns the number of values that were compared with ranges of addresses but are not
// addresses. A value that was compared with those of exempt and of a rule counts once.
func (p *Plan) NotAddresses() int { return p.addresses.notAddresses }

// begin empties p for a request with n descriptors.
func (p *Plan) begin(d *domain, n int) {
	clear(p.Limits) // drop the limits of an earlier rule set
	p.Limits = p.Limits[:0]
	p.Batch.Reset()
	p.Candidates = p.Candidates[:0]
	clear(p.overrides)
	p.overrides = p.overrides[:0]
	p.rows = 0
	p.Exempt = nil
	p.addresses.notAddresses = 0
	if p.addresses.remembers {
		p.addresses = addressReader{}
	}
	clear(p.Matches)
	p.Matches = slices.Grow(p.Matches[:0], n)[:n]
	p.KnownDomain = d != nil
	p.DomainName = ""
	p.DomainIndex = -1
	p.Leases = false
	p.Choices = false
	if d != nil {
		p.DomainName = d.name
		p.DomainIndex = d.index
	}
}

// match sets p.Matches[i]. It returns the rule to apply, or nil.
func (p *Plan) match(d *domain, i int, desc *Descriptor) *Rule {
	m := &p.Matches[i]
	var rule *Rule
	if n := d.match(desc.Entries, &p.addresses); n != nil {
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
	p.generation++
	if n := d.replaceable + 1; len(p.replacedIn) < n {
		p.replacedIn = append(p.replacedIn, make([]uint64, n-len(p.replacedIn))...)
	}
}

// hits returns the hits of a descriptor. 0 means 1 if the request has it, and a peek if the
// descriptor has it.
func hits(req *Request, desc *Descriptor) uint64 {
	if desc.HasHits {
		return desc.Hits
	}
	return max(1, uint64(req.HitsAddend))
}

func (p *Plan) chargeRule(m *Match, desc *Descriptor, global Global, group int32, replacing bool) {
	rule := m.Rule
	mode := rule.mode
	quota := rule.Quota || global.Quota
	if mode == limiter.Enforce && quota {
		mode = limiter.Quota
	}
	h := rule.identity.hashEntries(desc.Entries)
	replacing = replacing && rule.replaceable
	rows := p.rows
	limits := rule.Limits
	if rule.choice && !global.ReadOnly {
		p.chargeChoice(m, desc, global.Rows, h, mode, group, replacing)
		limits = nil
	}
	for _, l := range limits {
		if replacing && p.replaced(l) {
			continue
		}
		if l.Table != nil {
			limit, unlimited := p.limitForRow(l, global.Rows, desc.Entries)
			if l = limit; unlimited {
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
	m.Unlimited = nil
	if m.Count == 0 {
		// As in envoyproxy/ratelimit, the quota mode of a replaced rule is ignored. A rule with soft
		// limits only is no quota, either.
		m.Replaced = len(rule.Limits) > 0
		p.Batch.QuotaPass = p.Batch.QuotaPass || global.Quota
	} else if quota && (mode == limiter.Shadow || desc.Refund) {
		p.Batch.QuotaPass = true // the status is OK in any case
	}
}

func (p *Plan) charge(m *Match, l *Limit, h identity.Hasher, refund bool, mode limiter.Mode, group int32) {
	if l.counter != nil {
		h = l.counter.identity
	}
	h.AddWordAt(counterPart, l.kind)
	p.Batch.Charges = append(p.Batch.Charges, limiter.Charge{
		ID: h.Sum(), Policy: &l.Policy, Hits: m.Hits, Refund: refund, Mode: mode, Group: group,
	})
	p.Limits = append(p.Limits, l)
}

// shareCounter reports whether a charge of the same rule, from index first on, has the counter of
// l: rows can give two limits of a list the same window. The charge then uses the stricter of the
// two limits.
func (p *Plan) shareCounter(first int, l *Limit) bool {
	for at := first; at < len(p.Limits); at++ {
		if other := p.Limits[at]; other.kind == l.kind && other.counter == l.counter {
			if cmp.Or(cmp.Compare(l.Policy.Limit, other.Policy.Limit),
				cmp.Compare(l.Policy.Capacity(), other.Policy.Capacity())) < 0 {
				p.Limits[at] = l
				p.Batch.Charges[at].Policy = &l.Policy
			}
			return true
		}
	}
	return false
}

// replaced reports whether a limit of the request replaces l.
func (p *Plan) replaced(l *Limit) bool {
	return l.nameID != 0 && p.replacedIn[l.nameID] == p.generation
}

// chargeCandidates appends the charges of candidates, each in a group of its own from the given one
// on.
func (p *Plan) chargeCandidates(req *Request, snapshot *Snapshot, group int32, replacing bool) {
	for i := range p.Matches {
		m := &p.Matches[i]
		if m.Rule == nil || len(m.Rule.Candidates()) == 0 {
			continue
		}
		desc := &req.Descriptors[i]
		h := m.Rule.identity.hashEntries(desc.Entries)
		rows := p.rows
		first := len(p.Batch.Charges)
		for _, l := range m.Rule.Candidates() {
			if replacing && p.replaced(l) {
				continue
			}
			if l.Table != nil {
				limit, unlimited := p.limitForRow(l, snapshot, desc.Entries)
				if l = limit; unlimited {
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

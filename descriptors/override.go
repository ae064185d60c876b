package descriptors

import (
	"math"
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// override makes the descriptor's own limit apply to m instead of rule, which may be nil.
// It reports whether that limit is usable.
func (p *Plan) override(d *domain, m *Match, rule *Rule, o Override) bool {
	unit, multiplier := rules.Unit(o.Unit), max(1, o.UnitMultiplier)
	seconds := unit.Seconds() * int64(multiplier) // below 2^57
	if seconds == 0 || seconds > int64(limiter.MaxWindow/time.Second) {
		return false
	}
	policy := limiter.Policy{Algorithm: limiter.FixedWindow, CountRefused: !d.allOrNothing}
	if rule != nil && !rule.Unlimited {
		// Number and unit are the descriptor's. The rest is the rule's; of a list, that
		// of the first block.
		policy = rule.Limits[0].Policy
	}
	if policy.Algorithm == limiter.SlidingLog && o.RequestsPerUnit > limiter.MaxLog {
		return false
	}
	configured := policy.Limit
	policy.Limit, policy.Window = o.RequestsPerUnit, time.Duration(seconds)*time.Second
	switch policy.Algorithm {
	case limiter.TokenBucket:
		policy.Burst = scaleBurst(policy.Burst, configured, &policy)
	case limiter.LeakyBucket:
		policy.Slack = uint32(min(uint64(policy.Slack), policy.MaxHits()-1)) //nolint:gosec // no greater than it was
	default: // nothing that depends on the number
	}
	if cap(p.overrides) < len(p.Matches) {
		// Limits and Charges point to the elements, so only an empty list may move.
		p.overrides = slices.Grow(p.overrides[:0], len(p.Matches))
	}
	p.overrides = append(p.overrides, overrideLimit{rule: rule, Limit: Limit{Index: -1}, terms: Terms{
		Policy: policy, RequestsPerUnit: o.RequestsPerUnit,
		Unit: unit, UnitMultiplier: multiplier, counter: rules.CounterWord(&policy, false),
	}})
	l := &p.overrides[len(p.overrides)-1]
	l.Terms = &l.terms
	m.Override, m.override = true, l
	return true
}

// scaleBurst keeps the ratio of burst to limit: it returns the burst for p's limit, rounded
// up, and no more than a bucket of p may have. A configured limit of 0 has no ratio, so
// the burst is the whole limit then, as by default.
func scaleBurst(burst, configured uint32, p *limiter.Policy) uint32 {
	scaled := uint64(p.Limit)
	if configured > 0 {
		scaled = (uint64(burst)*uint64(p.Limit) + uint64(configured) - 1) / uint64(configured)
	}
	return uint32(max(1, min(scaled, p.MaxHits(), math.MaxUint32)))
}

// chargeOverride charges m's override. Its counter is keyed by the values as sent, even if
// the rule shares one counter. Shadow and quota mode of the rule do not apply.
func (p *Plan) chargeOverride(d *domain, m *Match, desc *Descriptor, global Global, group int32) {
	mode := limiter.Enforce
	if global.Quota {
		mode = limiter.Quota
		p.Batch.QuotaPass = p.Batch.QuotaPass || desc.Refund
	}
	p.charge(m, &m.override.Limit, d.identityAsSent(desc.Entries), desc.Refund, mode, group)
	m.Count++
}

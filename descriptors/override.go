package descriptors

import (
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// override makes the descriptor's own limit apply to m, in place of rule, which
// may be nil. It reports whether the limit is usable.
func (p *Plan) override(d *domain, m *Match, rule *Rule, o Override) bool {
	unit, multiplier := Unit(o.Unit), max(1, o.UnitMultiplier)
	seconds := unit.Seconds() * int64(multiplier) // below 2^57
	if seconds == 0 || seconds > int64(limiter.MaxWindow/time.Second) {
		return false
	}
	policy := limiter.Policy{
		Algorithm: limiter.FixedWindow, Limit: o.RequestsPerUnit,
		Window: time.Duration(seconds) * time.Second, CountRefused: !d.allOrNothing,
	}
	if rule != nil && !rule.Unlimited {
		// Number and unit are the descriptor's, all else stays. Of a list the first
		// block lends it.
		first := &rule.Limits[0].Policy
		policy.Algorithm, policy.CountRefused = first.Algorithm, first.CountRefused
	}
	if cap(p.overrides) < len(p.Matches) {
		// Limits and Charges point to the elements: only an empty list may move.
		p.overrides = slices.Grow(p.overrides[:0], len(p.Matches))
	}
	p.overrides = append(p.overrides, Limit{
		Policy: policy, RequestsPerUnit: o.RequestsPerUnit,
		Unit: unit, UnitMultiplier: multiplier, Index: -1, counter: counterWord(&policy),
	})
	m.Override, m.override = true, &p.overrides[len(p.overrides)-1]
	return true
}

// chargeOverride charges m's override. Its counter is keyed by the values as sent,
// also where the rule shares one counter; neither shadow nor quota of a rule holds.
func (p *Plan) chargeOverride(d *domain, m *Match, desc *Descriptor, global Global, group int32) {
	mode := limiter.Enforce
	if global.Quota {
		mode = limiter.Quota
		p.Batch.QuotaPass = p.Batch.QuotaPass || desc.Refund
	}
	p.charge(m, m.override, d.identify(desc.Entries, nil), desc.Refund, mode, group)
}

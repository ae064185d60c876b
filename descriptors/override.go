package descriptors

import (
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// override applies the descriptor's own limit to m instead of rule, which may be nil. It returns
// false if the limit is not usable.
func (p *Plan) override(d *domain, m *Match, rule *Rule, o Override) bool {
	unit := rules.Unit(o.Unit)
	multiplier := max(1, o.UnitMultiplier)
	seconds := unit.Seconds() * int64(multiplier) // below 2^57
	if seconds == 0 || seconds > int64(limiter.MaxWindow/time.Second) {
		return false
	}
	policy := limiter.Policy{Algorithm: limiter.FixedWindow, CountRefused: !d.allOrNothing}
	if rule.hasLimits() {
		// The number and the unit are the descriptor's; all other fields are those of the rule's
		// first limit.
		policy = rule.Limits[0].Policy
	}
	if !rules.Rescale(&policy, o.RequestsPerUnit, time.Duration(seconds)*time.Second) {
		return false
	}
	policy.Pinned = false  // its counter has the values as sent
	policy.NoBlocks = true // its number changes from request to request
	rules.UpdateCalendar(&policy, unit, multiplier, d.calendarMonths)
	if cap(p.overrides) < len(p.Matches) {
		// Limits and Charges point to the elements, so the slice must not be reallocated later.
		p.overrides = slices.Grow(p.overrides[:0], len(p.Matches))
	}
	p.overrides = append(p.overrides, overrideLimit{rule: rule, Limit: Limit{Index: -1}, terms: Terms{
		Policy: policy, RequestsPerUnit: o.RequestsPerUnit,
		Unit: unit, UnitMultiplier: multiplier, kind: rules.CounterKind(&policy, false),
	}})
	l := &p.overrides[len(p.overrides)-1]
	l.terms.Hidden = rule.hasLimits() && rule.Limits[0].Hidden
	l.Terms = &l.terms
	if policy.Reserve != nil {
		l.Reservation = rule.Limits[0].Reservation
		l.Reservation.reserve.Configure(&l.reserve, &l.terms.Policy)
		l.terms.Policy.Reserve = &l.reserve
	}
	m.Override = true
	m.override = l
	p.Leases = p.Leases || rule != nil && rule.optionalOrZero().leases
	return true
}

// chargeOverride charges m's override. Its counter has the values as sent, even if the rule shares
// one counter. The rule's shadow and quota mode do not apply.
func (p *Plan) chargeOverride(d *domain, m *Match, desc *Descriptor, global Global, group int32) {
	mode := limiter.Enforce
	if global.Quota {
		mode = limiter.Quota
		p.Batch.QuotaPass = p.Batch.QuotaPass || desc.Refund
	}
	p.charge(m, &m.override.Limit, d.identityAsSent(desc.Entries), desc.Refund, mode, group)
	m.Count++
	if o := m.override; o.rule == nil && m.Hits >= limiter.FirstLease && d.hadLeases(desc.Entries) {
		o.leased = true
		p.Leases = true
	}
}

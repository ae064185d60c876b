package descriptors

import (
	"cmp"
	"slices"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// HasReports reports whether a limit has the field soft or notify_at.
func (s *Set) HasReports() bool { return s.reports }

// Reporting returns the limits of a domain with the field soft or notify_at, in the order of the
// files.
func (s *Set) Reporting(domain string) (all []*Limit) {
	for _, l := range s.Limits {
		if l.Rule.Domain() == domain && (l.Soft || l.NotifyAt.Exist()) {
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(a, b *Limit) int {
		if a.Precedes(b) {
			return -1
		}
		return 1
	})
	return all
}

// hasLimits reports whether r has limits that can deny. r may be nil.
func (r *Rule) hasLimits() bool { return r != nil && !r.Unlimited && len(r.Limits) > 0 }

// InShadow reports whether l denies nothing because it or its rule is in shadow mode. l is not a limit
// from a request.
func (l *Limit) InShadow() bool { return !l.Soft && (l.Candidate || l.Rule.Shadow) }

// IsReached reports whether a soft limit is exceeded, or another limit used up to the lowest share of
// its field notify_at. It is false for refunds, and for limits with neither field.
func (l *Limit) IsReached(c *limiter.Charge, d *limiter.Decision) bool {
	switch {
	case c.Refund || d.Skipped || !l.Soft && !l.NotifyAt.Exist():
		return false
	case d.Over || l.Soft:
		return d.Over
	default:
		return IsUsedTo(l.NotifyAt[0], limiter.SaturatingAdd(d.Before, d.Charged), l.Policy.Capacity())
	}
}

// IsUsedTo reports whether the used hits are at least the given share of the capacity.
func IsUsedTo(share float64, used, capacity uint64) bool {
	return float64(used) >= share*float64(capacity)*(1-1e-12) // the factor covers rounding, such as that of 0.07 * 100
}

// HasNotices reports whether a limit has the field notify_at.
func (s *Set) HasNotices() bool { return s.notices }

// warnOnlySoft warns of fields of a descriptor, own without defaults, that have no effect because all
// of its limits are soft.
func (c *compiler) warnOnlySoft(d *domain, n *node, cfg, own *rules.Descriptor) {
	if rules.CountActive(cfg.RateLimits) > 0 || rules.AreCandidates(cfg.RateLimits) {
		return
	}
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"shadow_mode", rules.ValueOr(own.ShadowMode, false)}, {"quota_mode", own.QuotaMode}, {"denied_response", own.Denied != nil},
	} {
		if f.set {
			c.warn(rules.NoEffect, own.Pos, nodePath(d, n),
				"%q has no effect on soft limits, which deny nothing; remove it", f.name)
		}
	}
}

// Precedes reports whether l is before other in the files. Both belong to rules of the same domain.
func (l *Limit) Precedes(other *Limit) bool {
	if l.Rule == other.Rule { // whose indices begin with the limits that can deny
		return cmp.Or(cmp.Compare(l.Pos.Line, other.Pos.Line), cmp.Compare(l.Pos.Col, other.Pos.Col),
			cmp.Compare(l.Index, other.Index)) < 0
	}
	return l.Index < other.Index
}

package descriptors

import (
	"fmt"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// reportSeconds is Envoy's report interval, whatever its configuration says.
const reportSeconds = 5

// minDivisible is the smallest limit per second that n Envoys can divide: between two reports, the
// share of each must yield min_tokens.
func minDivisible(q *rules.Quota, n int) float64 {
	return float64(n) * float64(q.MinTokens) / reportSeconds
}

// quotaAdvice warns of limits that are too small to divide, and notes what operators have to know
// about divided limits.
func quotaAdvice(s *Set, stored bool) (ds rules.Diagnostics) {
	if !s.divides {
		return nil
	}
	var first *Limit
	for _, l := range s.Limits {
		q := l.Rule.Divided()
		if q == nil || l.Rule.Unlimited || l.RequestsPerUnit == 0 {
			continue
		}
		if first == nil {
			first = l
		}
		minRate := minDivisible(q, 2)
		rate := float64(l.RequestsPerUnit) / l.Policy.Window.Seconds()
		if rate < minRate && !s.allowances.Allow(rules.SmallQuota, l.Pos) {
			ds = append(ds, l.diagnostic(rules.Warning, rules.SmallQuota, fmt.Sprintf(
				"%s is too small for two Envoys to divide: each may save %d tokens, more than its share yields between two reports; use at least %.2g a second, or remove quota",
				l.rateText(), q.MinTokens, minRate)))
		}
	}
	if first == nil {
		return ds
	}
	q := first.Rule.Divided()
	text := fmt.Sprintf("n Envoys divide this limit: on top of its rate they admit bursts of up to n x %d requests, or the requests of %v at this rate if that is more. For n = 10 the rate should be at least %.2g a second. ",
		q.MinTokens, q.Burst, minDivisible(q, 10))
	if stored {
		text += "Only one of the sluices that share the store divides a domain at a time: let Envoys check the health of quota." + first.Rule.Domain() + " (docs/rlqs.md)"
	} else {
		text += "Without a store each of N sluices divides the full limit, so together they admit N times as much: let all Envoys use the same one"
	}
	text += ". A rate limit filter that uses the same rule has its own counter, so the two together admit twice as much"
	return append(ds, first.diagnostic(rules.Note, "", text))
}

func (l *Limit) rateText() string {
	return fmt.Sprintf("%d in %s", l.RequestsPerUnit, rules.WindowText(l.Unit, l.UnitMultiplier))
}

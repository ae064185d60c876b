package descriptors

import (
	"fmt"
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// Leases should last at least as long as requests, but not much longer: a window or ttl below
// minLeaseTime, or a window above maxLeaseTime, is likely a mistake.
const (
	minLeaseTime = time.Minute
	maxLeaseTime = 24 * time.Hour
)

// GrantsLeases reports whether a limit of the set grants leases.
func (s *Set) GrantsLeases() bool {
	return slices.ContainsFunc(s.Limits, func(l *Limit) bool { return l.Policy.UsesLeases() })
}

// warnFunc warns of a limit, unless a comment acknowledges the warning.
type warnFunc func(code rules.Code, format string, args ...any)

// limitAdvice warns of limits whose leases may be lost or have an unsuitable duration, and of those
// that are too small to divide.
func limitAdvice(s *Set) (ds rules.Diagnostics) {
	byName := map[string]*Limit{}
	for _, l := range s.Limits {
		if l.Rule.Unlimited {
			continue
		}
		warn := func(code rules.Code, format string, args ...any) {
			if !s.allowances.Allow(code, l.Pos) {
				ds = append(ds, rules.Diagnostic{
					Pos: l.Pos, Severity: rules.Warning, Code: code, Path: nodePath(l.Rule.domain, l.Rule.node), Message: fmt.Sprintf(format, args...),
				})
			}
		}
		if q := l.Rule.Divided(); q != nil {
			adviseQuota(l, q, warn)
		}
		if !l.Policy.UsesLeases() {
			continue
		}
		if o := byName[l.Name]; o == nil {
			byName[l.Name] = l
		} else if o.Rule.domain != l.Rule.domain {
			warn(rules.Leases, "domain %q at %s also has leases named %q: if a filter chain of Envoy has filters for both domains, the second overwrites the first's lease, which is then never released; choose another name",
				o.Rule.Domain(), o.Pos, rules.Shorten(l.Name))
		}
		if l.HasWindow() {
			adviseReserve(l, warn)
		} else {
			adviseConcurrency(l, warn)
		}
		if maxCounters := l.Rule.domain.maxCounters; maxCounters > 0 {
			warn(rules.Leases, "max_counters of the domain evicts the least used of more than %d counters, with the leases of running requests: make it greater than the number of keys with concurrent requests", maxCounters)
		}
	}
	return ds
}

// adviseConcurrency warns of unsuitable numbers and windows of concurrency limits.
func adviseConcurrency(l *Limit, warn warnFunc) {
	window := rules.WindowText(l.Unit, l.UnitMultiplier)
	switch {
	case l.RequestsPerUnit == 0:
		warn(rules.Leases, "0 denies every request: set how many may run at once, or remove the limit")
	case l.Policy.Window < minLeaseTime:
		warn(rules.Leases, "a permit is released after %s even if its request still runs, so more than %d may run at once: make the window longer than the longest request", window, l.RequestsPerUnit)
	case l.Policy.Window > maxLeaseTime:
		warn(rules.Leases, "a permit that is never released, for example because Envoy crashed, stays held for %s: make the window only a little longer than the longest request", window)
	}
}

// adviseReserve warns of unsuitable amounts and TTLs of reservations.
func adviseReserve(l *Limit, warn warnFunc) {
	v := l.Reservation
	switch capacity := l.Policy.Capacity(); {
	case l.RequestsPerUnit == 0:
	case v.Hits(&l.Policy)*2 > capacity:
		warn(rules.Leases, "each request reserves %d of %d, so only one can run at a time: reserve less, or raise the limit",
			v.Hits(&l.Policy), capacity)
	case l.Policy.Reserve.Life() < minLeaseTime:
		warn(rules.Leases, "a reservation expires after %v even if its request still runs, so concurrent requests can exceed the limit: make ttl longer than the longest request", l.Policy.Reserve.Life())
	}
}

// reportSeconds is Envoy's report interval, whatever its configuration says.
const reportSeconds = 5

// adviseQuota warns of a limit that is too small for two Envoys to divide: between two reports, the
// share of each must yield min_tokens.
func adviseQuota(l *Limit, q *rules.Quota, warn warnFunc) {
	minRate := 2 * float64(q.MinTokens) / reportSeconds
	if l.RequestsPerUnit > 0 && float64(l.RequestsPerUnit)/l.Policy.Window.Seconds() < minRate {
		warn(rules.SmallQuota, "%d in %s is too small for two Envoys to divide: each may save %d tokens, more than its share yields between two reports; use at least %.2g a second, or remove quota",
			l.RequestsPerUnit, rules.WindowText(l.Unit, l.UnitMultiplier), q.MinTokens, minRate)
	}
}

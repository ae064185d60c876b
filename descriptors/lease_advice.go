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

// leaseAdvice warns of limits whose leases may be lost or have an unsuitable duration, and notes
// what operators have to configure elsewhere.
func leaseAdvice(s *Set, stored bool) (ds rules.Diagnostics) {
	var first *Limit
	granting := 0
	byName := map[string]*Limit{}
	for _, l := range s.Limits {
		if l.Rule.Unlimited || !l.Policy.UsesLeases() {
			continue
		}
		if granting++; first == nil {
			first = l
		}
		warn := func(format string, args ...any) {
			if !s.allowances.Allow(rules.Leases, l.Pos) {
				ds = append(ds, l.diagnostic(rules.Warning, rules.Leases, fmt.Sprintf(format, args...)))
			}
		}
		if o := byName[l.Name]; o == nil {
			byName[l.Name] = l
		} else if o.Rule.domain != l.Rule.domain {
			warn("domain %q at %s also has leases named %q: if a filter chain of Envoy has filters for both domains, the second overwrites the first's lease, which is then never released; choose another name",
				o.Rule.Domain(), o.Pos, rules.Shorten(l.Name))
		}
		if l.HasWindow() {
			adviseReserve(l, warn)
		} else {
			adviseConcurrency(l, warn)
		}
		if maxCounters := l.Rule.domain.maxCounters; maxCounters > 0 {
			warn("max_counters of the domain evicts the least used of more than %d counters, with the leases of running requests: make it greater than the number of keys with concurrent requests", maxCounters)
		}
	}
	if first != nil {
		ds = append(ds, first.diagnostic(rules.Note, "", leaseNote(granting-1, stored)))
	}
	return ds
}

// adviseConcurrency warns of unsuitable numbers and windows of concurrency limits.
func adviseConcurrency(l *Limit, warn func(format string, args ...any)) {
	window := rules.WindowText(l.Unit, l.UnitMultiplier)
	switch {
	case l.RequestsPerUnit == 0:
		warn("0 denies every request: set how many may run at once, or remove the limit")
	case l.Policy.Window < minLeaseTime:
		warn("a permit is released after %s even if its request still runs, so more than %d may run at once: make the window longer than the longest request", window, l.RequestsPerUnit)
	case l.Policy.Window > maxLeaseTime:
		warn("a permit that is never released, for example because Envoy crashed, stays held for %s: make the window only a little longer than the longest request", window)
	}
}

// adviseReserve warns of unsuitable amounts and TTLs of reservations.
func adviseReserve(l *Limit, warn func(format string, args ...any)) {
	v := l.Reservation
	switch capacity := l.Policy.Capacity(); {
	case l.RequestsPerUnit == 0:
	case v.Hits(&l.Policy)*2 > capacity:
		warn("each request reserves %d of %d, so only one can run at a time: reserve less, or raise the limit",
			v.Hits(&l.Policy), capacity)
	case l.Policy.Reserve.Life() < minLeaseTime:
		warn("a reservation expires after %v even if its request still runs, so concurrent requests can exceed the limit: make ttl longer than the longest request", l.Policy.Reserve.Life())
	}
}

// leaseNote states which process the end call has to reach.
func leaseNote(more int, stored bool) string {
	text := "a lease of this limit is released by a call at the end of the request"
	if more > 0 {
		text += fmt.Sprintf(" (like those of %d more limits)", more)
	}
	if stored {
		return text +
			": do not use --grpc-transport=grpc-go, which does not release leases early when clients disconnect"
	}
	return text + ": that call must reach the process that granted the lease. Run one replica, use a --store, or shard both calls by the same key (examples/sharded); " +
		"and do not use --grpc-transport=grpc-go, which does not release leases early when clients disconnect"
}

func (l *Limit) diagnostic(severity rules.Severity, code rules.Code, message string) rules.Diagnostic {
	return rules.Diagnostic{
		Pos: l.Pos, Severity: severity, Code: code, Path: nodePath(l.Rule.domain, l.Rule.node), Message: message,
	}
}

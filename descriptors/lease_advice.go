package descriptors

import (
	"fmt"
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// A concurrency limit should not release requests before they end, nor much later.
const (
	shortestHold = time.Minute
	longestHold  = 24 * time.Hour
)

// GivesLeases reports whether a limit of the set grants leases.
func (s *Set) GivesLeases() bool {
	return slices.ContainsFunc(s.Limits, func(l *Limit) bool { return l.Policy.UsesLeases() })
}

// leaseAdvice warns of limits whose leases may be lost or have an unsuitable duration, and notes what operators have to
// configure elsewhere.
func leaseAdvice(s *Set, stored bool) (ds rules.Diagnostics) {
	var first *Limit
	giving, byName := 0, map[string]*Limit{}
	for _, l := range s.Limits {
		if l.Rule.Unlimited || !l.Policy.UsesLeases() {
			continue
		}
		if giving++; first == nil {
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
			warn("domain %q at %s has leases under the name %q, too: where one chain of Envoy's has filters for both, the second overwrites the first's lease, which is never given back; choose another name",
				o.Rule.Domain(), o.Pos, rules.Shorten(l.Name))
		}
		if l.HasWindow() {
			adviseReserve(l, warn)
		} else {
			adviseHold(l, warn)
		}
		if most := l.Rule.domain.maxCounters; most > 0 {
			warn("max_counters of the domain evicts the least used of more than %d counters, and with it what requests hold there: make it greater than the number of keys that have requests at once", most)
		}
	}
	if first != nil {
		ds = append(ds, first.diagnostic(rules.Note, "", leaseNote(giving-1, stored)))
	}
	return ds
}

// adviseHold warns of unsuitable numbers and windows of concurrency limits.
func adviseHold(l *Limit, warn func(format string, args ...any)) {
	window := rules.WindowText(l.Unit, l.UnitMultiplier)
	switch {
	case l.RequestsPerUnit == 0:
		warn("0 at once denies every request: write how many may run, or remove the limit")
	case l.Policy.Window < shortestHold:
		warn("a place is free again after %s, even while its request runs, so that more than %d run at once: make the window longer than the longest request", window, l.RequestsPerUnit)
	case l.Policy.Window > longestHold:
		warn("a place that nobody gives back, as where an Envoy ended, stays taken for %s: make the window little longer than the longest request", window)
	}
}

// adviseReserve warns of unsuitable amounts and TTLs of reservations.
func adviseReserve(l *Limit, warn func(format string, args ...any)) {
	v := l.Reservation
	switch most := l.Policy.Capacity(); {
	case l.RequestsPerUnit == 0:
	case v.Hits(&l.Policy)*2 > most:
		warn("a request reserves %d of %d, so that one runs at a time: reserve less, or raise the limit", v.Hits(&l.Policy), most)
	case l.Policy.Reserve.Life() < shortestHold:
		warn("what a request reserves is free again after %v, even while it runs, so that requests at once overdraw the limit: make ttl longer than the longest request", l.Policy.Reserve.Life())
	}
}

// leaseNote states which process the end call has to reach.
func leaseNote(more int, stored bool) string {
	text := "what a request holds here is given back by a call at its end"
	if more > 0 {
		text += fmt.Sprintf(" (and that of %d more)", more)
	}
	if stored {
		return text + ": do not run --grpc-transport=grpc-go, which returns no lease of a client that goes away early"
	}
	return text + ": that call must come to the process that gave the lease. So run one replica, give all a --store, or shard by the same key in both calls (examples/sharded); " +
		"and not --grpc-transport=grpc-go, which returns no lease of a client that goes away early"
}

func (l *Limit) diagnostic(severity rules.Severity, code rules.Code, message string) rules.Diagnostic {
	return rules.Diagnostic{Pos: l.Pos, Severity: severity, Code: code, Path: nodePath(l.Rule.domain, l.Rule.node), Message: message}
}

package live

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/telemetry"
)

// sort sorts and truncates the lists of a merged state.
func (s *State) sort() {
	slices.SortStableFunc(s.Conditions, telemetry.CompareConditions)
	slices.SortStableFunc(s.Events, func(a, b telemetry.Event) int { return b.Time.Compare(a.Time) })
	s.Events = s.Events[:min(len(s.Events), telemetry.MaxEvents)]
	SortUnknown(s.UnknownDomains)
	slices.SortStableFunc(s.Domains, func(a, b DomainState) int { return CompareRates(a.Rate, b.Rate) })
	for i := range s.Domains {
		d := &s.Domains[i]
		slices.SortFunc(d.DeniedKeys, CompareKeys)
		for j := range d.DeniedKeys {
			if k := &d.DeniedKeys[j]; d.DeniedRequests > 0 {
				k.Share = k.PerSecond / d.DeniedRequests
			}
		}
		d.DeniedKeys = d.DeniedKeys[:min(len(d.DeniedKeys), MaxKeys)]
		slices.SortFunc(d.Unmatched, compareUnmatched)
		slices.SortStableFunc(d.Rules, CompareRules)
	}
}

// The lists of a state are sorted by severity in descending order.

// CompareRates compares by denials, then by hits.
func CompareRates(a, b Rate) int {
	return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(b.Hits, a.Hits))
}

// CompareRules compares limits of requests before those of another unit, because their rates are
// not comparable, and then as [CompareRates].
func CompareRules(a, b RuleState) int {
	rank := func(r RuleState) int { return strings.Index("requests permits tokens hits", r.Unit) }
	return cmp.Or(cmp.Compare(rank(a), rank(b)), CompareRates(a.Rate, b.Rate))
}

// CompareKeys compares by rate of denials, then by total denials.
func CompareKeys(a, b Key) int {
	return cmp.Or(cmp.Compare(b.PerSecond, a.PerSecond), cmp.Compare(b.Denied, a.Denied), cmp.Compare(a.Hash, b.Hash))
}

func compareUnmatched(a, b Unmatched) int {
	return cmp.Or(cmp.Compare(b.Seen, a.Seen), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Below, b.Below))
}

// SortUnknown sorts domains by their descriptors in descending order.
func SortUnknown(all []UnknownDomain) {
	slices.SortFunc(all, func(a, b UnknownDomain) int {
		return cmp.Or(cmp.Compare(b.PerSecond, a.PerSecond), cmp.Compare(b.Descriptors, a.Descriptors), cmp.Compare(a.Domain, b.Domain))
	})
}

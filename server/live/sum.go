package live

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// Sum merges the states of the replicas with the given addresses. A single state is returned
// unchanged. Rates and counts are added up. Denied keys are merged by hash if all replicas have the
// same hash key, and otherwise by descriptor. The permits of a key are added up too, unless all
// replicas share a store. The state of divided limits is left out.
// If the rules or the ShadowMode of the replicas differ, the result contains a condition. It has the
// Config of a replica with limits, or else with rules, if there is one. It has no rules, ShadowMode
// or TopKeys off only if that is true of all replicas.
func Sum(addrs []string, states []*State) *State {
	if len(states) == 1 {
		return states[0]
	}
	sum := *states[0]
	sum.Host = fmt.Sprintf("%d replicas", len(states))
	sum.Quota = nil
	sum.Conditions = []telemetry.Condition{}
	sum.Domains = []DomainState{}
	sum.UnknownDomains = []UnknownDomain{}
	sum.Events = []telemetry.Event{}
	if slices.ContainsFunc(states, func(s *State) bool { return s.HashKey != sum.HashKey }) {
		sum.HashKey = ""
	}
	merger := keyMerger{
		byHash:      sum.HashKey != "",
		sharedStore: !slices.ContainsFunc(states, func(s *State) bool { return s.Counters != "store" }),
	}
	indexes := map[string]int{} // index in sum.Domains by name
	hashes := map[string]bool{}
	omitted := 0
	for i, s := range states {
		hashes[s.Config.Hash] = true
		if i > 0 {
			sum.Status.add(&s.Status)
		}
		if sum.Config.Limits == 0 && (s.Config.Limits > 0 || sum.Config.Hash == "") {
			sum.Config = s.Config
		}
		sum.ShadowMode = sum.ShadowMode && s.ShadowMode
		if sum.TopKeys == Off {
			sum.TopKeys = s.TopKeys
		}
		omitted = max(omitted, s.Config.Omitted)
		if s.Started.Before(sum.Started) {
			sum.Started = s.Started
		}
		if u := s.UnmaskedUntil; u != nil && (sum.UnmaskedUntil == nil || u.After(*sum.UnmaskedUntil)) {
			sum.UnmaskedUntil = u
		}
		addr := addrs[i]
		for _, c := range s.Conditions {
			c.Replica = addr
			sum.Conditions = append(sum.Conditions, c)
		}
		for _, e := range s.Events {
			e.Replica = addr
			sum.Events = append(sum.Events, e)
		}
		sum.UnknownDomains = mergeByName(sum.UnknownDomains, s.UnknownDomains, func(u *UnknownDomain) string { return u.Domain }, func(a, b *UnknownDomain) {
			a.Descriptors = limiter.SaturatingAdd(a.Descriptors, b.Descriptors)
			a.PerSecond += b.PerSecond
		})
		for j := range s.Domains {
			d := &s.Domains[j]
			n, ok := indexes[d.Domain]
			if !ok {
				n = len(sum.Domains)
				indexes[d.Domain] = n
				sum.Domains = append(sum.Domains, DomainState{
					Domain: d.Domain, DeniedKeys: []Key{}, Unmatched: []Unmatched{}, Rules: []RuleState{},
				})
			}
			sum.Domains[n].addDomain(d, merger)
		}
	}
	sum.Config.Omitted = omitted
	var rules, alone, shadow []string
	for i, s := range states {
		rules = append(rules, addrs[i]+": rules "+cmp.Or(s.Config.Hash, "are missing"))
		if s.CountsAlone {
			alone = append(alone, addrs[i]+": counts in memory")
		}
		if s.ShadowMode {
			shadow = append(shadow, addrs[i]+": shadow mode")
		}
	}
	sum.CountsAlone = len(alone) > 0
	raise := func(code telemetry.Code, since time.Time, prefix string, lines []string) {
		condition := telemetry.NewCondition(code, since)
		condition.Text = prefix + condition.Text
		condition.Lines = lines
		sum.Conditions = append(sum.Conditions, condition)
	}
	if len(hashes) > 1 {
		raise(telemetry.RulesDiffer, sum.Time, "", rules)
	}
	if len(alone) > 1 {
		raise(telemetry.ReplicasCountSeparately, sum.Started, fmt.Sprintf("%d ", len(alone)), alone)
	}
	if len(shadow) > 0 && !sum.ShadowMode {
		raise(telemetry.ShadowModeDiffers, sum.Started, "", shadow)
	}
	sum.sort()
	return &sum
}

// mergeByName adds each element of more to the element of all with the same name, or appends it if
// there is none.
func mergeByName[T any](all, more []T, name func(*T) string, add func(a, b *T)) []T {
	indexes := map[string]int{}
	for i := range all {
		indexes[name(&all[i])] = i
	}
	for i := range more {
		if j, ok := indexes[name(&more[i])]; ok {
			add(&all[j], &more[i])
		} else {
			all = append(all, more[i])
		}
	}
	return all
}

func (d *DomainState) addDomain(o *DomainState, m keyMerger) {
	d.Add(o.Rate)
	d.DeniedRequests += o.DeniedRequests
	d.OmittedKeys += o.OmittedKeys
	d.DeniedKeys = mergeByName(d.DeniedKeys, o.DeniedKeys, m.identity, m.add)
	d.Unmatched = mergeByName(d.Unmatched, o.Unmatched, (*Unmatched).identity, func(a, b *Unmatched) {
		a.Seen = limiter.SaturatingAdd(a.Seen, b.Seen)
		a.Since = earlier(a.Since, b.Since)
		a.Last = later(a.Last, b.Last)
	})
	d.Rules = mergeByName(d.Rules, o.Rules, (*RuleState).identity, func(a, b *RuleState) {
		a.Add(b.Rate)
		a.TotalHits = limiter.SaturatingAdd(a.TotalHits, b.TotalHits)
		a.TotalDenied = limiter.SaturatingAdd(a.TotalDenied, b.TotalDenied)
		a.Exceeded = limiter.SaturatingAdd(a.Exceeded, b.Exceeded)
		a.Line = a.Line.add(b.Line)
	})
}

type keyMerger struct {
	byHash      bool // whether the hashes of all replicas are comparable
	sharedStore bool // whether all replicas count in the store
}

// add adds the key b of another replica to a.
func (m keyMerger) add(a, b *Key) {
	a.Descriptor = cmp.Or(a.Descriptor, b.Descriptor) // with unmasked keys, only some replicas may know it
	a.PerSecond += b.PerSecond
	a.Denied = limiter.SaturatingAdd(a.Denied, b.Denied)
	a.Since = earlier(a.Since, b.Since)
	a.Last = later(a.Last, b.Last)
	if m.sharedStore { // replicas with different rules may differ
		a.Permits = max(a.Permits, b.Permits)
	} else {
		a.Permits = limiter.SaturatingAdd(a.Permits, b.Permits)
	}
	a.InFlight = addCounts(a.InFlight, b.InFlight)
	if b.PenaltyUntil != nil && (a.PenaltyUntil == nil || a.PenaltyUntil.Before(*b.PenaltyUntil)) {
		a.PenaltyUntil = b.PenaltyUntil
	}
}

// identity returns a string that is the same for the same key at all replicas.
func (m keyMerger) identity(k *Key) string {
	if !m.byHash && k.Descriptor != "" && !strings.HasSuffix(k.Descriptor, ellipsis) { // a cut descriptor is ambiguous
		return strings.Join([]string{k.Rule, k.Limit, k.OwnLimit, k.Descriptor}, "\x00")
	}
	return k.Hash
}

func (u *Unmatched) identity() string { return fmt.Sprint(u.Entry, "\x00", u.Below, "\x00", u.Key) }

func (r *RuleState) identity() string {
	return fmt.Sprint(r.Rule, "\x00", r.Limit, "\x00", r.Name, "\x00", r.Shadow, r.Soft)
}

// add returns the sum of two lines, each of which may be nil.
func (l *Line) add(o *Line) *Line {
	if l == nil || o == nil || l.Seconds != o.Seconds {
		return cmp.Or(l, o)
	}
	sum := &Line{Seconds: l.Seconds}
	for i := range min(len(l.Hits), len(o.Hits), len(l.Denied), len(o.Denied)) {
		sum.Hits = append(sum.Hits, limiter.SaturatingAdd(l.Hits[i], o.Hits[i]))
		sum.Denied = append(sum.Denied, limiter.SaturatingAdd(l.Denied[i], o.Denied[i]))
	}
	return sum
}

// addCounts returns the sum of two counts, each of which may be unknown.
func addCounts(a, b *uint64) *uint64 {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	return new(limiter.SaturatingAdd(*a, *b))
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

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

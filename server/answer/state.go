package answer

import (
	"cmp"
	"context"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// The bounds on a state.
const (
	maxStateRules   = 10_000
	maxStateDomains = 1000
)

// watched is what [Service.Watch] remembers.
type watched struct {
	mu      sync.Mutex
	hits    live.Rates[*telemetry.RuleCounters]
	unknown live.Rates[string]
}

// Watch keeps what [Service.State] tells of, until ctx ends.
func (s *Service) Watch(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			s.Tick(now)
		}
	}
}

// Tick does what [Service.Watch] does each second.
func (s *Service) Tick(now time.Time) {
	defer s.caught()
	s.live.Tick(now)
	s.metrics.Conditions.Tick(now)
	w := &s.watched
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hits.Step(now, func(seen func(*telemetry.RuleCounters, live.Counts)) {
		if r := s.rules.Load(); r != nil {
			s.each(r, func(_ int, c *telemetry.RuleCounters) { seen(c, counts(c)) })
		}
	})
	w.unknown.Step(now, func(seen func(string, live.Counts)) {
		for domain, n := range s.metrics.UnknownDomains.Counts() {
			seen(domain, live.Counts{Hits: n})
		}
	})
}

// each yields the counters of each limit that was hit. A limit has several if its metrics have values of requests, or
// names of rows. The limit is -1 for counters of these kinds without a hit since the rules were loaded.
func (s *Service) each(r *serving, yield func(limit int, c *telemetry.RuleCounters)) {
	s.metrics.Rules.EachRuntime(yield)
	for i, l := range r.set.Limits {
		if c := r.counters.Begun(i); c != nil && !l.Rule.RuntimeMetric {
			yield(i, c)
		}
	}
}

func counts(c *telemetry.RuleCounters) live.Counts {
	h := c.Counted()
	return live.Counts{Hits: h.Total, Denied: h.Over - min(h.Over, h.Shadow), Near: h.Near, Shadow: h.Shadow}
}

// StateRules says which limits [Service.State] has: those that deny most, and then those with most hits.
type StateRules struct {
	// Most is how many, at most 10,000.
	Most int
	// Idle says that limits without a hit in the last five minutes are among them.
	Idle bool
}

// AllRules are all limits, or the first 10,000 of more.
var AllRules = StateRules{Most: maxStateRules, Idle: true}

// State returns what is so at the time now.
func (s *Service) State(now time.Time, which StateRules) *live.State {
	s.Tick(now)
	w := &s.watched
	w.mu.Lock()
	defer w.mu.Unlock()
	state := &live.State{
		Version: live.Version, Time: now.UTC(), Program: s.metrics.Build.Version, Started: s.started, Counters: "memory",
		ShadowMode: s.settings.ShadowMode, TopKeys: s.live.Mode(), HashKey: s.live.HashKey(),
		Domains: []live.DomainState{}, UnknownDomains: []live.UnknownDomain{},
		Wrong: s.metrics.Conditions.Active(now), Events: s.metrics.Events.Last(),
	}
	state.Host, _ = os.Hostname() // empty if nobody knows
	if s.later {
		state.Counters = "store"
	}
	if quotas := s.quotas.Load(); quotas != nil {
		state.Quota = quotas.All(now)
	}
	r := s.rules.Load()
	if r == nil {
		return state
	}
	state.Config = live.Config{Hash: r.set.Hash, Loaded: r.since, Domains: len(r.set.Domains()), Limits: len(r.set.Limits)}
	for domain, n := range s.metrics.UnknownDomains.Counts() {
		if _, known := slices.BinarySearch(r.set.Domains(), domain); known { // it was unknown to earlier rules
			continue
		}
		rate, _ := w.unknown.Rate(domain, live.Counts{Hits: n}, now)
		u := live.UnknownDomain{Domain: domain, Descriptors: n, PerSecond: rate.Hits}
		if near := rules.Nearest(domain, r.set.Domains()); len(near) > 0 {
			u.Meant = near[0]
		}
		state.UnknownDomains = append(state.UnknownDomains, u)
	}
	live.SortUnknown(state.UnknownDomains)
	s.addDomainsLocked(state, r, now, which)
	return state
}

// ruleRow is a limit of a state before its texts are made.
type ruleRow struct {
	limit *descriptors.Limit
	live.Rate
	of       []*telemetry.RuleCounters
	counts   live.Counts
	exceeded uint64
	active   bool // there was a hit in the last five minutes
}

// addDomainsLocked adds the domains of the rules and their limits.
func (s *Service) addDomainsLocked(state *live.State, r *serving, now time.Time, which StateRules) {
	denials, unmatched := s.live.Denials(), s.live.Unmatched()
	domains := make([]live.DomainState, len(r.set.Domains()))
	for i, name := range r.set.Domains() {
		domains[i] = live.DomainState{
			Domain: name, DeniedKeys: []live.Key{}, Unmatched: append([]live.Unmatched{}, unmatched[name]...), Rules: []live.RuleState{},
		}
		if d := denials[name]; d != nil {
			domains[i].DeniedKeys, domains[i].DeniedRequests = d.Keys, d.PerSecond
		}
	}
	rows := make([]ruleRow, len(r.set.Limits))
	for i, l := range r.set.Limits {
		rows[i].limit = l
	}
	counted := map[*telemetry.RuleCounters]bool{} // limits may share counters
	s.each(r, func(i int, c *telemetry.RuleCounters) {
		if i < 0 || i >= len(rows) { // a request of other rules noted it
			return
		}
		row, n := &rows[i], counts(c)
		rate, known := s.watched.hits.Rate(c, n, now)
		row.Add(rate)
		row.of, row.counts, row.exceeded = append(row.of, c), row.counts.Plus(n), limiter.SaturatingAdd(row.exceeded, c.ExceededHits())
		row.active = row.active || known || rate.Hits > 0
		if !counted[c] {
			domains[row.limit.Rule.DomainIndex()].Add(rate)
			counted[c] = true
		}
	})
	if !which.Idle {
		rows = slices.DeleteFunc(rows, func(r ruleRow) bool { return !r.active })
	}
	// Most are in order: a stable sort would move them all the same.
	slices.SortFunc(rows, func(a, b ruleRow) int {
		return cmp.Or(live.CompareRates(a.Rate, b.Rate), cmp.Compare(a.limit.Index, b.limit.Index))
	})
	rows = rows[:min(len(rows), which.Most, maxStateRules)]
	state.Config.Omitted = state.Config.Limits - len(rows)
	for i := range rows {
		row := &rows[i]
		l := row.limit
		d := &domains[l.Rule.DomainIndex()]
		d.Rules = append(d.Rules, live.RuleState{
			Rule: l.Rule.Path(), Limit: l.String(), Name: l.Name, At: l.Pos.String(), Shadow: l.Candidate || l.Rule.Shadow,
			Rate: row.Rate, TotalHits: row.counts.Hits, TotalDenied: row.counts.Denied, Exceeded: row.exceeded, Line: s.watched.hits.Line(row.of...),
		})
	}
	slices.SortStableFunc(domains, func(a, b live.DomainState) int { return live.CompareRates(a.Rate, b.Rate) })
	state.Domains = domains[:min(len(domains), maxStateDomains)]
}

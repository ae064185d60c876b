package admin

import (
	"cmp"
	"context"
	"os"
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// The bounds on a state.
const (
	maxStateRules   = 10_000
	maxStateDomains = 1000
)

// Watch records the rates that [API.State] has, until ctx ends.
func (a *API) Watch(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			a.Tick(now)
		}
	}
}

// Tick does what [API.Watch] does each second.
func (a *API) Tick(now time.Time) {
	defer func() {
		if p := recover(); p != nil {
			a.panics.Report(p)
		}
	}()
	a.service.Live().Tick(now)
	a.metrics.Conditions.Tick(now)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hits.Step(now, func(seen func(*telemetry.RuleCounters, live.Counts)) {
		if r, err := a.service.Active(); err == nil {
			a.each(r, func(_ int, c *telemetry.RuleCounters) { seen(c, counts(c)) })
		}
	})
	a.unknown.Step(now, func(seen func(string, live.Counts)) {
		for domain, n := range a.metrics.UnknownDomains.Counts() {
			seen(domain, live.Counts{Hits: n})
		}
	})
}

// each yields the counters of each limit that was hit. A limit has several if its metrics have values of requests, or
// names of rows. The limit is -1 for counters of these kinds without a hit since the rules were loaded.
func (a *API) each(r *answer.Active, yield func(limit int, c *telemetry.RuleCounters)) {
	a.metrics.Rules.EachRuntime(yield)
	for i, l := range r.Set.Limits {
		if c := r.Counters.Existing(i); c != nil && !l.Rule.RuntimeMetric {
			yield(i, c)
		}
	}
}

func counts(c *telemetry.RuleCounters) live.Counts {
	h := c.Hits()
	return live.Counts{Hits: h.Total, Denied: h.Over - min(h.Over, h.Shadow), Near: h.Near, Shadow: h.Shadow}
}

// StateRules selects the limits of [API.State]: those that deny most, and then those with most hits.
type StateRules struct {
	// Most is the largest number of limits, at most 10,000.
	Most int
	// Idle includes limits without a hit in the last five minutes.
	Idle bool
}

// AllRules are all limits, or the first 10,000 of more.
var AllRules = StateRules{Most: maxStateRules, Idle: true}

// State returns the state at the time now.
func (a *API) State(now time.Time, which StateRules) *live.State {
	a.Tick(now)
	a.mu.Lock()
	defer a.mu.Unlock()
	known, settings := a.service.Live(), a.service.Settings()
	state := &live.State{
		Version: live.Version, Time: now.UTC(), Program: a.metrics.Build.Version, Started: a.metrics.Started, Counters: "memory",
		ShadowMode: settings.ShadowMode, TopKeys: known.Mode(), HashKey: known.HashKey(),
		Domains: []live.DomainState{}, UnknownDomains: []live.UnknownDomain{},
		Wrong: a.metrics.Conditions.Active(now), Events: a.metrics.Events.Last(),
	}
	state.Host, _ = os.Hostname() // empty if nobody knows
	if settings.Decider != nil {
		state.Counters = "store"
	}
	state.Quota = a.quotaState(now)
	r, err := a.service.Active()
	if err != nil {
		return state
	}
	state.Config = live.Config{Hash: r.Set.Hash, Loaded: r.Since, Domains: len(r.Set.Domains()), Limits: len(r.Set.Limits)}
	for domain, n := range a.metrics.UnknownDomains.Counts() {
		if _, known := slices.BinarySearch(r.Set.Domains(), domain); known { // it was unknown to earlier rules
			continue
		}
		rate, _ := a.unknown.Rate(domain, live.Counts{Hits: n}, now)
		u := live.UnknownDomain{Domain: domain, Descriptors: n, PerSecond: rate.Hits}
		if near := rules.Nearest(domain, r.Set.Domains()); len(near) > 0 {
			u.Meant = near[0]
		}
		state.UnknownDomains = append(state.UnknownDomains, u)
	}
	live.SortUnknown(state.UnknownDomains)
	a.addDomainsLocked(state, r, now, which)
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
func (a *API) addDomainsLocked(state *live.State, r *answer.Active, now time.Time, which StateRules) {
	denials, unmatched := a.service.Live().Denials(), a.service.Live().Unmatched()
	domains := make([]live.DomainState, len(r.Set.Domains()))
	for i, name := range r.Set.Domains() {
		domains[i] = live.DomainState{
			Domain: name, DeniedKeys: []live.Key{}, Unmatched: append([]live.Unmatched{}, unmatched[name]...), Rules: []live.RuleState{},
		}
		if d := denials[name]; d != nil {
			domains[i].DeniedKeys, domains[i].DeniedRequests = d.Keys, d.PerSecond
		}
	}
	rows := make([]ruleRow, len(r.Set.Limits))
	for i, l := range r.Set.Limits {
		rows[i].limit = l
	}
	counted := map[*telemetry.RuleCounters]bool{} // limits may share counters
	a.each(r, func(i int, c *telemetry.RuleCounters) {
		if i < 0 || i >= len(rows) { // a request of other rules noted it
			return
		}
		row, n := &rows[i], counts(c)
		rate, known := a.hits.Rate(c, n, now)
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
	slices.SortFunc(rows, func(x, y ruleRow) int {
		return cmp.Or(live.CompareRates(x.Rate, y.Rate), cmp.Compare(x.limit.Index, y.limit.Index))
	})
	rows = rows[:min(len(rows), which.Most, maxStateRules)]
	state.Config.Omitted = state.Config.Limits - len(rows)
	for i := range rows {
		row := &rows[i]
		l := row.limit
		d := &domains[l.Rule.DomainIndex()]
		d.Rules = append(d.Rules, live.RuleState{
			Rule: l.Rule.Path(), Limit: l.String(), Name: l.Name, At: l.Pos.String(), Shadow: l.Candidate || l.Rule.Shadow,
			Rate: row.Rate, TotalHits: row.counts.Hits, TotalDenied: row.counts.Denied, Exceeded: row.exceeded, Line: a.hits.Line(row.of...),
		})
	}
	slices.SortStableFunc(domains, func(x, y live.DomainState) int { return live.CompareRates(x.Rate, y.Rate) })
	state.Domains = domains[:min(len(domains), maxStateDomains)]
}

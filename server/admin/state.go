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

// Bounds on a state.
const (
	maxStateRules   = 10_000
	maxStateDomains = 1000
)

// Watch records the rates of [API.State] until ctx is done.
func (a *API) Watch(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C: // its time is not that of a.clock
			now, _ := a.clock.Now()
			a.Tick(time.Unix(0, int64(now)))
		}
	}
}

// Tick updates rates and conditions at the time now. [API.Watch] calls it each second.
func (a *API) Tick(now time.Time) {
	defer func() {
		if p := recover(); p != nil {
			a.panics.Report(p)
		}
	}()
	a.metrics.Conditions.Tick(now)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.advanceLocked(now)
}

// advanceLocked advances all rates, so that they cover the same time, and the conditions that depend
// on counters of rules.
func (a *API) advanceLocked(now time.Time) {
	a.maskExpired()
	a.service.Recorder().Tick(now)
	a.hits.Advance(now, func(record func(*telemetry.RuleCounters, live.Counts)) {
		if r, err := a.service.Active(); err == nil {
			a.eachCounters(r, func(_ int, c *telemetry.RuleCounters) { record(c, counts(c)) })
		}
	})
	a.calls.advance(now, a.metrics.Calls)
	a.unknown.Advance(now, func(record func(string, live.Counts)) {
		for domain, n := range a.metrics.UnknownDomains.Counts() {
			record(domain, live.Counts{Hits: n})
		}
	})
	a.service.ExpireLeases()
	if r, err := a.service.Active(); err == nil {
		a.ends.advance(now, a.metrics.Conditions, r,
			func(yield func(int, *telemetry.RuleCounters)) { a.eachCounters(r, yield) })
	}
}

// eachCounters yields the counters of each limit with hits, and the index of the limit. A limit has
// several counters if its metrics contain values of requests or names of rows. For such counters
// the index is -1 if there was no hit since the rules were loaded.
func (a *API) eachCounters(r *answer.Active, yield func(limit int, c *telemetry.RuleCounters)) {
	a.metrics.Rules.EachRuntime(yield)
	for i, l := range r.Set.Limits {
		if c := r.Counters.Existing(i); c != nil && !l.Rule.RuntimeMetric {
			yield(i, c)
		}
	}
}

func counts(c *telemetry.RuleCounters) live.Counts {
	h := c.Hits()
	return live.Counts{Hits: h.Total - h.Uncharged, Denied: h.Over - min(h.Over, h.Shadow), Near: h.Near, Shadow: h.Shadow}
}

// StateRules selects the limits and keys of [API.State]. Limits are sorted by denials and then by
// hits in descending order.
type StateRules struct {
	// Max is the maximum number of limits, at most 10,000.
	Max int
	// Idle includes limits without a hit in the last five minutes.
	Idle bool
	// Keys is the maximum number of denied keys, at most 10,000: the most denied of all domains.
	Keys int
}

// AllRules selects all limits and keys, but at most 10,000 of each.
var AllRules = StateRules{Max: maxStateRules, Idle: true, Keys: maxStateRules}

// State returns the state at the time now.
func (a *API) State(now time.Time, which StateRules) *live.State {
	a.metrics.Conditions.Tick(now)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.advanceLocked(now)
	recorder := a.service.Recorder()
	settings := a.service.Settings()
	state := &live.State{
		Version: live.Version, Time: now.UTC(), Program: a.metrics.Build.Version, Started: a.metrics.Started, Counters: "memory",
		CountsAlone: settings.CountsAlone(), ShadowMode: settings.ShadowMode, TopKeys: recorder.Mode(), HashKey: recorder.HashKey(),
		Domains: []live.DomainState{}, UnknownDomains: []live.UnknownDomain{},
		Conditions: a.metrics.Conditions.Active(now), Events: a.metrics.Events.Last(),
	}
	if until := recorder.UnmaskedUntil(); !until.IsZero() {
		state.UnmaskedUntil = new(until.UTC())
	}
	state.Host, _ = os.Hostname() // empty if unknown
	if settings.Decider != nil {
		state.Counters = "store"
	}
	state.Status = a.statusLocked(now)
	state.Quota = a.quotaState(now)
	r, err := a.service.Active()
	if err != nil {
		return state
	}
	state.Config = live.Config{
		Hash: r.Set.Hash, Loaded: r.Since, Domains: len(r.Set.Domains()), Limits: len(r.Set.Limits),
	}
	for domain, n := range a.metrics.UnknownDomains.Counts() {
		if _, known := slices.BinarySearch(r.Set.Domains(), domain); known { // earlier rules did not contain it
			continue
		}
		rate, _ := a.unknown.Rate(domain, live.Counts{Hits: n}, now)
		u := live.UnknownDomain{
			Domain: domain, Descriptors: n, PerSecond: rate.Hits, Meant: rules.Suggest(domain, r.Set.Domains()),
		}
		state.UnknownDomains = append(state.UnknownDomains, u)
	}
	live.SortUnknown(state.UnknownDomains)
	a.addDomainsLocked(state, r, now, which)
	return state
}

// ruleRow is a limit of a state before it is formatted.
type ruleRow struct {
	limit *descriptors.Limit
	live.Rate
	counters []*telemetry.RuleCounters
	counts   live.Counts
	exceeded uint64
	active   bool // whether there was a hit in the last five minutes
}

// addDomainsLocked adds the domains of the rules and their limits.
func (a *API) addDomainsLocked(state *live.State, r *answer.Active, now time.Time, which StateRules) {
	denials := a.service.Recorder().Denials(which.Keys)
	unmatched := a.service.Recorder().Unmatched()
	domains := make([]live.DomainState, len(r.Set.Domains()))
	for i, name := range r.Set.Domains() {
		domains[i] = live.DomainState{
			Domain: name, DeniedKeys: []live.Key{}, Unmatched: append([]live.Unmatched{}, unmatched[name]...), Rules: []live.RuleState{},
		}
		if d := denials[name]; d != nil {
			domains[i].DeniedKeys = d.Keys
			domains[i].OmittedKeys = d.Omitted
			domains[i].DeniedRequests = d.PerSecond
			for j := range d.Keys {
				k := &d.Keys[j]
				if k.Charge().Policy.Algorithm == limiter.Concurrency {
					if held := r.LookupCharge(i, *k.Charge(), nil).Held(limiter.Time(now.UnixNano()), 0); held != nil {
						k.InFlight = &held.Hits
					}
				}
			}
		}
	}
	rows := make([]ruleRow, len(r.Set.Limits))
	for i, l := range r.Set.Limits {
		rows[i].limit = l
	}
	counted := map[*telemetry.RuleCounters]bool{} // limits may share counters
	a.eachCounters(r, func(i int, c *telemetry.RuleCounters) {
		if i < 0 || i >= len(rows) { // the counters belong to other rules
			return
		}
		row := &rows[i]
		n := counts(c)
		rate, known := a.hits.Rate(c, n, now)
		row.Add(rate)
		row.counters = append(row.counters, c)
		row.counts = row.counts.Plus(n)
		row.exceeded = limiter.SaturatingAdd(row.exceeded, c.ExceededHits())
		row.active = row.active || known || rate.Hits > 0
		if !counted[c] {
			domains[row.limit.Rule.DomainIndex()].Add(rate)
			counted[c] = true
		}
	})
	if !which.Idle {
		rows = slices.DeleteFunc(rows, func(r ruleRow) bool { return !r.active })
	}
	// Most rows are in order already. A stable sort would be slower.
	slices.SortFunc(rows, func(x, y ruleRow) int {
		return cmp.Or(live.CompareRates(x.Rate, y.Rate), cmp.Compare(x.limit.Index, y.limit.Index))
	})
	rows = rows[:min(len(rows), which.Max, maxStateRules)]
	state.Config.Omitted = state.Config.Limits - len(rows)
	for i := range rows {
		row := &rows[i]
		l := row.limit
		d := &domains[l.Rule.DomainIndex()]
		d.Rules = append(d.Rules, live.RuleState{
			Rule: l.Rule.Path(), Limit: l.String(), Name: l.Name, Unit: live.UnitOf(l), At: l.Pos.String(), Shadow: l.InShadow(), Soft: l.Soft,
			Rate: row.Rate, TotalHits: row.counts.Hits, TotalDenied: row.counts.Denied, Exceeded: row.exceeded, Line: a.hits.Line(row.counters...),
		})
	}
	for i := range domains {
		slices.SortStableFunc(domains[i].Rules, live.CompareRules)
	}
	slices.SortStableFunc(domains, func(x, y live.DomainState) int { return live.CompareRates(x.Rate, y.Rate) })
	state.Domains = domains[:min(len(domains), maxStateDomains)]
}

package simulate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/simulate/accesslog"
	"github.com/sluice-ratelimit/sluice/simulate/report"
)

// shownKeys is the maximum number of keys reported for a limit.
const shownKeys = 10

func newReport(r *run, rd *readPlan) *report.Report {
	out := &report.Report{
		Version: 1, Lines: r.Read, Requests: r.requests, WithoutDescriptor: r.withoutDescriptor, OutsideRange: r.outsideRange, NoRequest: r.NoRequest, Bad: r.Bad, Late: r.late, Ahead: r.ahead,
		FirstBad: r.FirstBad, OtherDomain: r.otherDomain, UnknownDomain: r.rules.unknownDomain,
		From: time.Unix(0, r.from).UTC(), To: time.Unix(0, r.to).UTC(),
		Source: sourceName(rd.source), Computed: r.computed, Unknown: sortUnknown(r.unknown),
		Rules: r.rules.outcome(),
	}
	for _, log := range r.options.Logs {
		out.Logs = append(out.Logs, log.Name)
	}
	if out.FirstBad == nil {
		out.FirstBad = []accesslog.BadLine{}
	}
	for item, n := range r.rules.exempt {
		out.Exempt = append(out.Exempt, report.Exempt{Calls: n, Item: item.String()})
	}
	slices.SortFunc(out.Exempt, func(a, b report.Exempt) int {
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.Item, b.Item))
	})
	if r.recorded > 0 {
		out.Recorded = &report.Recorded{Requests: r.recorded, Denied: r.recordedDenied, Agree: r.agreed}
	}
	for _, a := range r.alternatives {
		out.Against = append(out.Against, report.Comparison{Outcome: a.outcome(), More: a.onlyDenied, Fewer: a.onlyAdmitted})
	}
	return out
}

func sourceName(s source) string {
	switch s := s.(type) {
	case *loggedCalls:
		if s.object >= 0 {
			return "dynamic metadata"
		}
		return "the log"
	case *envoySource:
		return "Envoy's configuration"
	default:
		return "--descriptor"
	}
}

func (s *variant) outcome() report.Outcome {
	t := s.tally
	o := report.Outcome{
		Name: s.name, Denied: s.denied, Keys: t.keys.n, Limits: []report.Limit{}, BinSeconds: t.time.width, BinStart: time.Unix(t.time.start, 0).UTC(),
	}
	slices.Sort(t.active)
	top := make([]ranking, len(t.limits))
	for i := range t.keys.n {
		k := t.keys.at(i)
		top[k.limit].add(k)
	}
	for _, i := range t.active {
		l := t.reportLimit(i)
		l.TopKeys = t.reportKeys(top[i])
		o.Limits = append(o.Limits, l)
	}
	for i, l := range s.set.Limits {
		if t.limits[i].bins == nil && !l.Rule.Unlimited {
			o.Unused++
		}
	}
	return o
}

func (t *tally) reportLimit(i int32) report.Limit {
	l := &t.limits[i]
	out := report.Limit{
		Hits: l.hits, Over: l.over, Keys: l.keys, KeysOver: l.keysOver,
		Rule: "limits of requests", Limit: "their own",
	}
	if l.limit != nil {
		out.Rule = l.limit.Rule.Path()
		out.Name = l.limit.Name
		out.Limit = l.limit.String()
		out.Place = l.limit.Pos.String()
		out.Shadow = l.limit.InShadow()
		out.Soft = l.limit.Soft
	}
	demand := &l.demand
	allowance := l.allowance
	if l.shares != nil {
		demand = l.shares
		allowance = thousandths
	}
	share := func(n uint64) float64 { return float64(n) / float64(max(1, allowance)) }
	out.Used = report.Used{P50: share(demand.quantile(0.5)), P99: share(demand.quantile(0.99)), Max: share(demand.max)}
	out.Timeline = l.bins[:t.time.now+1]
	return out
}

// ranking is the keys of a limit with the most hits over the limit, or with the most hits if they
// have the same number over it. Of equal keys, the first wins.
type ranking []*key

func (r *ranking) add(k *key) {
	at := len(*r)
	for at > 0 && k.ranksBefore((*r)[at-1]) {
		at--
	}
	if at < shownKeys {
		*r = slices.Insert(*r, at, k)
		*r = (*r)[:min(len(*r), shownKeys)]
	}
}

func (k *key) ranksBefore(other *key) bool {
	return k.over > other.over || k.over == other.over && k.hits > other.hits
}

func (t *tally) reportKeys(r ranking) []report.Key {
	all := []report.Key{}
	for _, k := range r {
		all = append(all, report.Key{
			Name: t.keyName(k), Hits: k.hits, Over: k.over, Peak: float64(k.peak) / float64(t.allowanceOf(k)),
		})
	}
	return all
}

// keyName returns the values of a key, or its rule and the hash of the values.
func (t *tally) keyName(k *key) string {
	if t.showValues {
		return t.keys.texts[k.name-1]
	}
	rule := "request"
	if l := t.limits[k.limit].limit; l != nil {
		rule = metricKey(l.Rule)
	}
	return fmt.Sprintf("%s#%08x", rule, k.name)
}

// metricKey returns the name of a rule without request values.
func metricKey(r *descriptors.Rule) string {
	name, _, _ := r.AppendMetricKey(nil, nil)
	return string(name)
}

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

// shownKeys and deniedKeys limit the number of keys reported for a limit.
const (
	shownKeys  = 10
	deniedKeys = 5
)

// ReportSchema returns the JSON Schema (draft-07) of the report that [Run] returns.
func ReportSchema() []byte { return report.Schema() }

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
		out.Against = append(out.Against, r.newComparison(a))
	}
	return out
}

func (r *run) newComparison(s *variant) report.Comparison {
	most := ranking{n: 3, score: func(k *key) uint64 { return uint64(k.moreDenied) }}
	for i := range s.tally.keys.n {
		most.add(i, s.tally.keys.at(i))
	}
	c := report.Comparison{
		Outcome: s.outcome(), More: s.onlyDenied, Fewer: s.onlyAdmitted, MostDenied: s.tally.reportKeys(&most),
	}
	c.MoreKeys = s.tally.keysOver() - r.rules.tally.keysOver()
	return c
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
	largest := make([]ranking, len(t.limits))
	most := make([]ranking, len(t.limits))
	for i := range largest {
		largest[i] = ranking{n: shownKeys, score: func(k *key) uint64 { return k.hits }}
		most[i] = ranking{n: deniedKeys, score: func(k *key) uint64 { return k.over }}
	}
	for i := range t.keys.n {
		k := t.keys.at(i)
		largest[k.limit].add(i, k)
		most[k.limit].add(i, k)
	}
	for _, i := range t.active {
		l := t.reportLimit(i)
		l.Largest = t.reportKeys(&largest[i])
		l.MostOver = t.reportKeys(&most[i])
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
	out.Use = demand.histogram(allowance)
	if w := l.worst; w.over > 0 {
		out.Worst = &report.Minute{At: time.Unix(w.minute*60, 0).UTC(), Hits: w.hits, Over: w.over}
	}
	out.Timeline = l.bins[:t.time.now+1]
	return out
}

func (t *tally) keysOver() (n int) {
	for _, i := range t.active {
		n += t.limits[i].keysOver
	}
	return n
}

// ranking collects the n keys with the highest scores. Of equal scores, the first key wins.
type ranking struct {
	n     int
	score func(*key) uint64
	best  []ranked
}

type ranked struct {
	score uint64
	index int
}

// add ranks the key with the given index.
func (r *ranking) add(order int, k *key) {
	v := r.score(k)
	full := len(r.best) == r.n
	if v == 0 || full && v <= r.best[r.n-1].score {
		return
	}
	if full {
		r.best = r.best[:r.n-1]
	}
	r.best = append(r.best, ranked{v, order})
	slices.SortStableFunc(r.best, func(a, b ranked) int { return cmp.Compare(b.score, a.score) })
}

func (t *tally) reportKeys(r *ranking) []report.Key {
	all := []report.Key{}
	for _, p := range r.best {
		k := t.keys.at(p.index)
		all = append(all, report.Key{
			Name: t.keyName(k), Hits: k.hits, Over: k.over, More: k.moreDenied, Peak: float64(k.peak) / float64(t.allowanceOf(k)),
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

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

// shownKeys is how many of a limit's largest keys are shown, and deniedKeys how many of those that
// are over it most.
const (
	shownKeys  = 10
	deniedKeys = 5
)

// ReportSchema returns the JSON Schema (draft-07) of the report that [Run] returns.
func ReportSchema() []byte { return report.Schema() }

func newReport(r *run, rd *reader) *report.Report {
	out := &report.Report{
		Version: 1, Lines: r.Read, Requests: r.requests, Silent: r.silent, Outside: r.outside, NoRequest: r.NoRequest, Bad: r.Bad, Late: r.late,
		FirstBad: r.Worst, OtherDomain: r.otherDomain, Strange: r.rules.strange,
		From: time.Unix(0, r.from).UTC(), To: time.Unix(0, r.to).UTC(),
		Source: sourceName(rd.source), Computed: r.computed, Unknown: sortUnknown(r.unknown), Replicas: r.options.Replicas,
		Rules: r.rules.outcome(),
	}
	for _, log := range r.options.Logs {
		out.Logs = append(out.Logs, log.Name)
	}
	if out.FirstBad == nil {
		out.FirstBad = []accesslog.BadLine{}
	}
	out.StatusHint = rd.format.StatusHint()
	if r.recorded > 0 {
		out.Recorded = &report.Recorded{Requests: r.recorded, Denied: r.refused, Agree: r.agree}
	}
	for _, a := range r.against {
		out.Against = append(out.Against, r.comparison(a))
	}
	if r.divided != nil {
		out.Divided = r.division()
	}
	return out
}

func sourceName(s source) string {
	switch s := s.(type) {
	case *described:
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

func (s *side) outcome() report.Outcome {
	t := s.tally
	o := report.Outcome{Name: s.name, Denied: s.denied, Keys: t.keys.n, Limits: []report.Limit{}, BinSeconds: t.time.width, BinStart: time.Unix(t.time.start, 0).UTC()}
	slices.Sort(t.touched)
	largest, most := make([]ranking, len(t.limits)), make([]ranking, len(t.limits))
	for i := range largest {
		largest[i] = ranking{n: shownKeys, of: func(k *key) uint64 { return k.hits }}
		most[i] = ranking{n: deniedKeys, of: func(k *key) uint64 { return k.over }}
	}
	for i := range t.keys.n {
		k := t.keys.at(i)
		largest[k.limit].take(i, k)
		most[k.limit].take(i, k)
	}
	for _, i := range t.touched {
		l := t.limit(i)
		l.Largest, l.MostOver = t.named(&largest[i]), t.named(&most[i])
		o.Limits = append(o.Limits, l)
	}
	for i, l := range s.set.Limits {
		if t.limits[i].bins == nil && !l.Rule.Unlimited {
			o.Unused++
		}
	}
	return o
}

func (t *tally) limit(i int32) report.Limit {
	l := &t.limits[i]
	out := report.Limit{
		Hits: l.hits, Over: l.over, Keys: l.keys, KeysOver: l.keysOver,
		Rule: "limits of requests", Limit: "their own",
	}
	if l.limit != nil {
		out.Rule, out.Name, out.Limit = l.limit.Rule.Path(), l.limit.Name, l.limit.String()
		out.Place, out.Shadow = l.limit.Pos.String(), l.limit.Rule.Shadow || l.limit.Candidate
	}
	asked, number := &l.demand, l.number
	if l.shares != nil {
		asked, number = l.shares, thousandths
	}
	share := func(n uint64) float64 { return float64(n) / float64(max(1, number)) }
	out.Used = report.Used{P50: share(asked.quantile(0.5)), P99: share(asked.quantile(0.99)), Max: share(asked.max)}
	out.Use = asked.histogram(number)
	if w := l.worst; w.over > 0 {
		out.Worst = &report.Minute{At: time.Unix(w.minute*60, 0).UTC(), Hits: w.hits, Over: w.over}
	}
	out.Timeline = l.bins[:t.time.now+1]
	return out
}

func (t *tally) keysOver() (n int) {
	for _, i := range t.touched {
		n += t.limits[i].keysOver
	}
	return n
}

// ranking is the keys with the greatest of something. Of equals the one that came first is first.
type ranking struct {
	n    int
	of   func(*key) uint64
	best []place
}

// place is a key's in a ranking.
type place struct {
	of    uint64
	order int
}

// take takes in the key of an order.
func (r *ranking) take(order int, k *key) {
	v := r.of(k)
	full := len(r.best) == r.n
	if v == 0 || full && v <= r.best[r.n-1].of {
		return
	}
	if full {
		r.best = r.best[:r.n-1]
	}
	r.best = append(r.best, place{v, order})
	slices.SortStableFunc(r.best, func(a, b place) int { return cmp.Compare(b.of, a.of) })
}

// named are the keys of a ranking for people.
func (t *tally) named(r *ranking) []report.Key {
	all := []report.Key{}
	for _, p := range r.best {
		k := t.keys.at(p.order)
		all = append(all, report.Key{Name: t.name(k), Hits: k.hits, Over: k.over, More: k.more, Peak: float64(k.peak) / float64(t.numberOf(k))})
	}
	return all
}

// name is a key for people: its values, or the rule and a hash that tells it apart within
// this report.
func (t *tally) name(k *key) string {
	if k.text > 0 {
		return t.keys.texts[k.text-1]
	}
	rule := "request"
	if l := t.limits[k.limit].limit; l != nil {
		rule = metricKey(l.Rule)
	}
	return fmt.Sprintf("%s#%08x", rule, hash(k.id))
}

// metricKey is a rule's name without values of requests.
func metricKey(r *descriptors.Rule) string {
	name, _, _ := r.AppendMetricKey(nil, nil)
	return string(name)
}

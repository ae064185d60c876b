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

// shownKeys is how many keys of a limit are shown.
const shownKeys = 10

func newReport(r *run, rd *reader) *report.Report {
	out := &report.Report{
		Lines: r.Read, Requests: r.requests, Silent: r.silent, Outside: r.outside, Bad: r.Bad, Late: r.late,
		FirstBad: r.Worst, OtherDomain: r.otherDomain, Strange: r.rules.strange,
		From: time.Unix(0, r.from).UTC(), To: time.Unix(0, r.to).UTC(),
		Source: sourceName(rd.source), Computed: r.computed, Unknown: sortUnknown(r.unknown), Replicas: r.options.Replicas,
		Rules: r.rules.outcome(),
	}
	if out.FirstBad == nil {
		out.FirstBad = []accesslog.BadLine{}
	}
	if r.recorded > 0 {
		out.Recorded = &report.Recorded{Requests: r.recorded, Denied: r.refused, Agree: r.agree}
	}
	if a := r.against; a != nil {
		c := &report.Comparison{Outcome: a.outcome(), More: r.onlyAgainst, Fewer: r.onlyRules, Most: a.tally.most(func(k *key) uint64 { return uint64(k.more) }, -1, 3)}
		c.MoreKeys = a.tally.keysOver() - r.rules.tally.keysOver()
		out.Against = c
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
	o := report.Outcome{Denied: s.denied, Keys: t.keys.n, Limits: []report.Limit{}, BinSeconds: t.time.width, BinStart: time.Unix(t.time.start, 0).UTC()}
	slices.Sort(t.touched)
	for _, i := range t.touched {
		o.Limits = append(o.Limits, t.limit(i))
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
	share := func(n uint64) float64 { return float64(n) / float64(max(1, l.number)) }
	out.Used = report.Used{P50: share(l.demand.quantile(0.5)), P99: share(l.demand.quantile(0.99)), Max: share(l.demand.max)}
	out.Use = l.demand.histogram(l.number)
	if w := l.worst; w.over > 0 {
		out.Worst = &report.Minute{At: time.Unix(w.minute*60, 0).UTC(), Hits: w.hits, Over: w.over}
	}
	out.Timeline = l.bins[:t.time.now+1]
	out.Largest = t.most(func(k *key) uint64 { return k.hits }, i, shownKeys)
	return out
}

func (t *tally) keysOver() (n int) {
	for _, i := range t.touched {
		n += t.limits[i].keysOver
	}
	return n
}

// most returns the keys with the greatest of something, of one limit or, for -1, of all.
// Of equals the one that came first is first.
func (t *tally) most(of func(*key) uint64, limit int32, n int) []report.Key {
	type place struct {
		of    uint64
		order int
	}
	var best []place
	for i := range t.keys.n {
		k := t.keys.at(i)
		if limit >= 0 && k.limit != limit {
			continue
		}
		v := of(k)
		if v == 0 || len(best) == n && v <= best[n-1].of {
			continue
		}
		if len(best) == n {
			best = best[:n-1]
		}
		best = append(best, place{v, i})
		slices.SortStableFunc(best, func(a, b place) int { return cmp.Compare(b.of, a.of) })
	}
	all := []report.Key{}
	for _, p := range best {
		k := t.keys.at(p.order)
		l := &t.limits[k.limit]
		all = append(all, report.Key{Name: t.name(k), Hits: k.hits, Over: k.over, More: k.more, Peak: float64(k.peak) / float64(max(1, l.number))})
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

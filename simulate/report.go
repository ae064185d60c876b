package simulate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/simulate/accesslog"
)

// Report is what a simulation found.
type Report struct {
	// Lines counts the lines of the logs, empty ones left out, and Requests those of them
	// that led to a decision.
	Lines    int    `json:"lines"`
	Requests uint64 `json:"requests"`
	// Silent counts lines that lead to no descriptor, so that Envoy did not ask.
	Silent int `json:"asked_nothing"`
	// Outside counts the lines of another time than was wanted.
	Outside int `json:"outside_of_time,omitempty"`
	// Bad counts the lines that could not be read, and Late those that came too late to be
	// put into order. Both are left out.
	Bad      int                 `json:"unreadable"`
	Late     int                 `json:"late"`
	FirstBad []accesslog.BadLine `json:"first_unreadable"`
	// OtherDomain counts the calls to other domains than the one that is looked at, and
	// Strange those to domains without rules.
	OtherDomain int       `json:"other_domain,omitempty"`
	Strange     uint64    `json:"domain_without_rules,omitempty"`
	From        time.Time `json:"from"`
	To          time.Time `json:"to"`
	// Source says where descriptors come from.
	Source   string    `json:"source"`
	Computed int       `json:"descriptors_computed"`
	Unknown  []Unknown `json:"descriptors_unknown"`
	Replicas int       `json:"replicas"`
	// Recommend is the share in percent for which numbers are recommended; 0 if none are.
	Recommend float64 `json:"recommended_for_percent,omitempty"`

	// Recorded is what the log says; nil where it says nothing.
	Recorded *Recorded   `json:"recorded,omitempty"`
	Rules    Outcome     `json:"rules"`
	Against  *Comparison `json:"against,omitempty"`
}

// Recorded compares with what the log says.
type Recorded struct {
	Requests uint64 `json:"requests"`
	Denied   uint64 `json:"denied"`
	Agree    uint64 `json:"agree"`
}

// Outcome is what one set of rules makes of the requests.
type Outcome struct {
	Denied uint64  `json:"denied"`
	Keys   int     `json:"keys"`
	Limits []Limit `json:"limits"`
	// Unused counts the limits that no request asked for.
	Unused int `json:"limits_without_hits"`
	// BinSeconds is how long a bin of the timelines is; they begin at BinStart.
	BinSeconds int64     `json:"bin_seconds"`
	BinStart   time.Time `json:"bin_start"`
}

// Comparison is what other rules make of the same requests.
type Comparison struct {
	Outcome

	// More counts the requests that only these rules deny, and Fewer those that they alone
	// admit.
	More  uint64 `json:"more_denied"`
	Fewer uint64 `json:"fewer_denied"`
	// Keys are those that the most of these requests are denied for.
	Most []Key `json:"most_of_them"`
	// MoreKeys counts the keys over limit beyond those of the first rules.
	MoreKeys int `json:"more_keys_over"`
}

// Limit is what became of one limit.
type Limit struct {
	Rule     string `json:"rule"`
	Name     string `json:"name,omitempty"`
	Limit    string `json:"limit"`
	Place    string `json:"place,omitempty"`
	Shadow   bool   `json:"shadow,omitempty"`
	Hits     uint64 `json:"hits"`
	Over     uint64 `json:"over"`
	Keys     int    `json:"keys"`
	KeysOver int    `json:"keys_over"`
	// Used are quantiles of what a key asked for in a window, as a share of the limit.
	Used Used `json:"used_of_limit"`
	// Use counts windows by what was asked for in them.
	Use []Use `json:"use"`
	// Worst is the minute with the greatest share over limit; nil where nothing was.
	Worst *Minute `json:"worst_minute,omitempty"`
	// Hits and hits over limit by time.
	Timeline []Bin `json:"timeline"`
	Largest  []Key `json:"largest_keys"`
	// Recommended is nil unless it was asked for.
	Recommended *Recommendation `json:"recommended,omitempty"`
}

// Used are quantiles.
type Used struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Minute is a minute of a limit.
type Minute struct {
	At   time.Time `json:"at"`
	Hits uint64    `json:"hits"`
	Over uint64    `json:"over"`
}

// Bin is a while of a limit.
type Bin struct {
	Hits uint64 `json:"hits"`
	Over uint64 `json:"over"`
}

// Key is a counter.
type Key struct {
	Name string  `json:"key"`
	Hits uint64  `json:"hits"`
	Over uint64  `json:"over"`
	Peak float64 `json:"peak_of_limit"`
	More uint32  `json:"more_denied,omitempty"`

	order int
}

// shownKeys is how many keys of a limit are shown.
const shownKeys = 10

func newReport(r *run, rd *reader) *Report {
	out := &Report{
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
		out.Recorded = &Recorded{r.recorded, r.refused, r.agree}
	}
	if a := r.against; a != nil {
		c := &Comparison{Outcome: a.outcome(), More: r.onlyAgainst, Fewer: r.onlyRules, Most: a.tally.most(func(k *key) uint64 { return uint64(k.more) }, -1, 3)}
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

func (s *side) outcome() Outcome {
	t := s.tally
	o := Outcome{Denied: s.denied, Keys: t.keys.n, Limits: []Limit{}, BinSeconds: t.time.width, BinStart: time.Unix(t.time.start, 0).UTC()}
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

func (t *tally) limit(i int32) Limit {
	l := &t.limits[i]
	out := Limit{
		Hits: l.hits, Over: l.over, Keys: l.keys, KeysOver: l.keysOver,
		Rule: "limits of requests", Limit: "their own",
	}
	if l.limit != nil {
		out.Rule, out.Name, out.Limit = l.limit.Rule.Path(), l.limit.Name, l.limit.String()
		out.Place, out.Shadow = l.limit.Pos.String(), l.limit.Rule.Shadow || l.limit.Candidate
	}
	share := func(n uint64) float64 { return float64(n) / float64(max(1, l.number)) }
	out.Used = Used{share(l.demand.quantile(0.5)), share(l.demand.quantile(0.99)), share(l.demand.max)}
	out.Use = l.demand.histogram(l.number)
	if w := l.worst; w.over > 0 {
		out.Worst = &Minute{time.Unix(w.minute*60, 0).UTC(), w.hits, w.over}
	}
	for _, b := range l.bins[:t.time.now+1] {
		out.Timeline = append(out.Timeline, Bin{b.hits, b.over})
	}
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
func (t *tally) most(of func(*key) uint64, limit int32, n int) []Key {
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
	all := []Key{}
	for _, p := range best {
		k := t.keys.at(p.order)
		l := &t.limits[k.limit]
		all = append(all, Key{Name: t.name(k), Hits: k.hits, Over: k.over, More: k.more, Peak: float64(k.peak) / float64(max(1, l.number)), order: p.order})
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

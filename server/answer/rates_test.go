package answer

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// TestRatesGoOnOverLoads loads rules after many hits on a limit whose metrics have values of requests, or names of rows. Its hits
// stay, and its rate is that of the hits since.
func TestRatesGoOnOverLoads(t *testing.T) {
	const (
		plain    = "{domain: d, descriptors: [{key: user, rate_limit: {requests_per_unit: 5, unit: second}}]}"
		detailed = "{domain: d, descriptors: [{key: user, detailed_metric: true, rate_limit: {requests_per_unit: 5, unit: second}}]}"
		other    = "{domain: d, descriptors: [{key: a, rate_limit: {requests_per_unit: 5, unit: day}}, {key: user, detailed_metric: true, rate_limit: {requests_per_unit: 6, unit: minute}}]}"
		named    = "{domain: d, descriptors: [{key: user, rate_limit: {requests_per_unit: 5, unit: second, table: t}}]}"
	)
	for name, loads := range map[string][]string{
		"detailed": {detailed, detailed}, "another": {detailed, other}, "back": {detailed, plain, detailed}, "twice": {detailed, other, detailed},
		"gone": {detailed, "{domain: d, descriptors: [{key: a, rate_limit: {requests_per_unit: 5, unit: day}}]}", detailed},
		"row":  {named, named}, "row, back": {named, plain, named}, "plain": {plain, plain},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReloaded(t, loads[0])
			e, err := r.tables.Table("t")
			if err != nil {
				t.Fatal(err)
			}
			if err := e.Put([]string{"user"}, []string{"al"}, tables.Row{RequestsPerUnit: 3, Name: "gold"}); err != nil {
				t.Fatal(err)
			}
			wait := func(seconds int) {
				for range seconds {
					r.now += limiter.Time(time.Second)
					r.service.Tick(time.Unix(0, int64(r.now)))
				}
			}
			shown := func(hits uint64, rate float64) {
				t.Helper()
				state := r.service.State(time.Unix(0, int64(r.now)), AllRules)
				for _, l := range state.Domains[0].Rules {
					if l.Rule == "user" && (l.TotalHits != hits || l.Hits < rate/3 || l.Hits > rate) {
						t.Errorf("%d hits, %v/s, are shown, want %d and %v/s", l.TotalHits, l.Hits, hits, rate)
					}
				}
			}
			r.ask(1_000_000)
			wait(60)
			shown(1_000_000, 0)
			for _, text := range loads[1:] {
				r.serve(text)
				wait(11)
			}
			if len(loads) == 2 {
				shown(1_000_000, 0)
			}
			r.ask(7)
			shown(1_000_007, 1.4)
			r.serve(loads[len(loads)-1])
			shown(1_000_007, 1.4)
		})
	}
}

// TestExceededHitsOfNamedRows holds the same of a limit whose row has a name in metrics.
func TestExceededHitsOfNamedRows(t *testing.T) {
	r := newReloaded(t, "{domain: d, descriptors: [{key: user, rate_limit: {requests_per_unit: 5, unit: second, table: t}}]}")
	e, err := r.tables.Table("t")
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Put([]string{"user"}, []string{"al"}, tables.Row{RequestsPerUnit: 3, Name: "gold"}); err != nil {
		t.Fatal(err)
	}
	x := &Exchange{}
	if _, _, err := r.service.Answer(r.now, time.Minute, x, r.request()); err != nil {
		t.Fatal(err)
	}
	x.service, x.rules = r.service, r.service.rules.Load()
	x.Exceeded(0)(7)
	if got := r.service.State(time.Unix(0, int64(r.now)), AllRules).Domains[0].Rules[0]; got.Exceeded != 7 || got.TotalHits != 1 {
		t.Errorf("the state has %+v, want 1 hit and 7 beyond the limit", got)
	}
}

// TestRatesOfLimitsThatShareCounters holds that a domain counts hits once that several of its limits show, since their names in
// metrics are one.
func TestRatesOfLimitsThatShareCounters(t *testing.T) {
	r := newReloaded(t, `{domain: d, descriptors: [
		{key: user, value: "al", rate_limit: {requests_per_unit: 5, unit: second}},
		{key: user_al, rate_limit: {requests_per_unit: 5, unit: second}}]}`)
	r.ask(50)
	d := r.service.State(time.Unix(0, int64(r.now)), AllRules).Domains[0]
	if sum := d.Rules[0].Hits + d.Rules[1].Hits; d.Rules[0].TotalHits != 50 || d.Rules[1].TotalHits != 50 || sum != 2*d.Hits {
		t.Errorf("the domain has %v hits a second, its limits %v and %v, want each as many", d.Hits, d.Rules[0].Hits, d.Rules[1].Hits)
	}
}

// TestUnknownDomainsThatRulesHave holds that a domain is no longer unknown with rules that have it.
func TestUnknownDomainsThatRulesHave(t *testing.T) {
	r := newReloaded(t, "{domain: shop, descriptors: [{key: user, rate_limit: {requests_per_unit: 5, unit: second}}]}")
	unknown := func() int { return len(r.service.State(time.Unix(0, int64(r.now)), AllRules).UnknownDomains) }
	if r.ask(); unknown() != 1 {
		t.Fatalf("%d unknown domains, want d", unknown())
	}
	r.serve("{domain: d, descriptors: [{key: user, rate_limit: {requests_per_unit: 5, unit: second}}]}")
	if n := unknown(); n != 0 {
		t.Errorf("%d unknown domains once the rules have d, want none", n)
	}
}

// TestRateOfALimitThatSharesWhatIsBeyondTheBounds begins to use a limit whose name in metrics is that of all series beyond the
// bounds. Its rate is that of the hits since, not of all that were counted there before.
func TestRateOfALimitThatSharesWhatIsBeyondTheBounds(t *testing.T) {
	const detailed = "{domain: d, descriptors: [{key: user, detailed_metric: true, rate_limit: {requests_per_unit: 5, unit: second}}"
	r := newReloaded(t, detailed+"]}")
	ask := func(key, value string, hits uint32) {
		request := oneDescriptor(0, key, value)
		request.HitsAddend = hits
		if _, _, err := r.service.Answer(r.now, time.Minute, &Exchange{}, marshal(t, request)); err != nil {
			t.Fatal(err)
		}
	}
	ask("user", strings.Repeat("x", 1000), 1_000_000) // no name of a series is as long
	for range 60 {
		r.now += limiter.Time(time.Second)
		r.service.Tick(time.Unix(0, int64(r.now)))
	}
	r.serve(detailed + ", {key: other, rate_limit: {requests_per_unit: 5, unit: second}}]}")
	ask("other", "v", 1)
	state := r.service.State(time.Unix(0, int64(r.now)), AllRules)
	for _, l := range state.Domains[0].Rules {
		if l.Rule == "other" && (l.TotalHits != 1_000_001 || l.Hits > 1) {
			t.Errorf("%d hits, %v a second, are shown, want 1,000,001 and those of one hit", l.TotalHits, l.Hits)
		}
	}
}

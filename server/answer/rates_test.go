package answer

import (
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

package admin_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/admin"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/servertest"
)

const noon = servertest.Noon

// reloaded is the API of a service whose rules change. They may refer to the table t, which has
// rows of users.
type reloaded struct {
	*admin.API

	t       *testing.T
	service *answer.Service
	tables  *tables.Registry
	now     limiter.Time
}

func newReloaded(t *testing.T, rules string) *reloaded {
	t.Helper()
	r := &reloaded{t: t, tables: new(tables.Registry), now: noon}
	if _, err := r.tables.Add("t", ""); err != nil {
		t.Fatal(err)
	}
	r.service = servertest.Service(t, answer.Settings{Tables: r.tables}, "")
	r.API = newAPI(t, r.service, zap.NewNop())
	r.serve(rules)
	return r
}

// serve activates the rules of a domain.
func (r *reloaded) serve(rules string) {
	r.t.Helper()
	r.now += limiter.Time(time.Millisecond)
	if err := r.service.SetRules(r.now, servertest.CompileWith(r.t, rules, descriptors.Options{Tables: r.tables})); err != nil {
		r.t.Fatal(err)
	}
}

// requestHits makes a request of user al, with the given hits or one.
func (r *reloaded) requestHits(hits ...uint64) {
	r.t.Helper()
	request := servertest.OneDescriptor("user", "al")
	for _, n := range hits {
		request.Descriptors[0].HitsAddend = wrapperspb.UInt64(n)
	}
	if _, _, err := r.service.Answer(r.now, time.Minute, &answer.Exchange{}, servertest.Marshal(r.t, request)); err != nil {
		r.t.Fatal(err)
	}
}

func (r *reloaded) time() time.Time { return time.Unix(0, int64(r.now)) }

// TestRatesAcrossReloads loads rules after many hits on a limit whose metrics contain values of
// requests or names of rows. The total stays, and the rate includes only later hits.
func TestRatesAcrossReloads(t *testing.T) {
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
					r.Tick(r.time())
				}
			}
			check := func(hits uint64, rate float64) {
				t.Helper()
				state := r.State(r.time(), admin.AllRules)
				for _, l := range state.Domains[0].Rules {
					if l.Rule == "user" && (l.TotalHits != hits || l.Hits < rate/3 || l.Hits > rate) {
						t.Errorf("the state has %d hits, %v/s, want %d and %v/s", l.TotalHits, l.Hits, hits, rate)
					}
				}
			}
			r.requestHits(1_000_000)
			wait(60)
			check(1_000_000, 0)
			for _, text := range loads[1:] {
				r.serve(text)
				wait(11)
			}
			if len(loads) == 2 {
				check(1_000_000, 0)
			}
			r.requestHits(7)
			check(1_000_007, 1.4)
			r.serve(loads[len(loads)-1])
			check(1_000_007, 1.4)
		})
	}
}

// TestRatesOfLimitsThatShareCounters checks that a domain counts hits once if several limits share
// their counters because their metric names are equal.
func TestRatesOfLimitsThatShareCounters(t *testing.T) {
	r := newReloaded(t, `{domain: d, descriptors: [
		{key: user, value: "al", rate_limit: {requests_per_unit: 5, unit: second}},
		{key: user_al, rate_limit: {requests_per_unit: 5, unit: second}}]}`)
	r.requestHits(50)
	d := r.State(r.time(), admin.AllRules).Domains[0]
	if sum := d.Rules[0].Hits + d.Rules[1].Hits; d.Rules[0].TotalHits != 50 || d.Rules[1].TotalHits != 50 || sum != 2*d.Hits {
		t.Errorf("the domain has %v hits a second, its limits %v and %v, want three equal rates", d.Hits, d.Rules[0].Hits, d.Rules[1].Hits)
	}
}

// TestUnknownDomainsThatRulesHave checks that a domain is no longer unknown once rules have it.
func TestUnknownDomainsThatRulesHave(t *testing.T) {
	r := newReloaded(t, "{domain: shop, descriptors: [{key: user, rate_limit: {requests_per_unit: 5, unit: second}}]}")
	unknown := func() int { return len(r.State(r.time(), admin.AllRules).UnknownDomains) }
	if r.requestHits(); unknown() != 1 {
		t.Fatalf("%d unknown domains, want d", unknown())
	}
	r.serve("{domain: d, descriptors: [{key: user, rate_limit: {requests_per_unit: 5, unit: second}}]}")
	if n := unknown(); n != 0 {
		t.Errorf("%d unknown domains once the rules have d, want none", n)
	}
}

// TestRateOfOverflowSeries adds a limit whose metrics are in the series for names beyond the
// bounds. Its rate includes only later hits, not those that this series counted before.
func TestRateOfOverflowSeries(t *testing.T) {
	const detailed = "{domain: d, descriptors: [{key: user, detailed_metric: true, rate_limit: {requests_per_unit: 5, unit: second}}"
	r := newReloaded(t, detailed+"]}")
	requestHits := func(key, value string, hits uint32) {
		request := servertest.OneDescriptor(key, value)
		request.HitsAddend = hits
		if _, _, err := r.service.Answer(r.now, time.Minute, &answer.Exchange{}, servertest.Marshal(t, request)); err != nil {
			t.Fatal(err)
		}
	}
	requestHits("user", strings.Repeat("x", 1000), 1_000_000) // too long for the name of a series
	for range 60 {
		r.now += limiter.Time(time.Second)
		r.Tick(r.time())
	}
	r.serve(detailed + ", {key: other, rate_limit: {requests_per_unit: 5, unit: second}}]}")
	requestHits("other", "v", 1)
	state := r.State(r.time(), admin.AllRules)
	for _, l := range state.Domains[0].Rules {
		if l.Rule == "other" && (l.TotalHits != 1_000_001 || l.Hits > 1) {
			t.Errorf("the state has %d hits, %v a second, want 1,000,001 and the rate of one hit", l.TotalHits, l.Hits)
		}
	}
}

// TestDeniedDescriptorsOfAList has two limits deny the same request. The domain counts it once, and
// each of the two keys has a share of all denials.
func TestDeniedDescriptorsOfAList(t *testing.T) {
	r := newReloaded(t, "{domain: d, descriptors: [{key: user, rate_limits: [{requests_per_unit: 0, unit: minute}, {requests_per_unit: 0, unit: day}]}]}")
	for i := range 3 {
		now := r.time().Add(time.Duration(i) * 5 * time.Second)
		r.Tick(now)
		for range 50 {
			r.requestHits()
		}
		d := r.State(now, admin.AllRules).Domains[0]
		if len(d.DeniedKeys) != 2 || d.DeniedKeys[0].Share != 1 || d.DeniedKeys[1].Share != 1 || d.DeniedRequests != d.DeniedKeys[0].PerSecond {
			t.Errorf("%v denied a second, by the keys %+v, want two keys with all of them", d.DeniedRequests, d.DeniedKeys)
		}
	}
}

// TestHitsThatAnotherLimitDenies has the first limit of a list deny most requests. The others show the
// hits that are charged to them.
func TestHitsThatAnotherLimitDenies(t *testing.T) {
	r := newReloaded(t, `{domain: d, descriptors: [{key: user, rate_limits: [{requests_per_unit: 5, unit: minute},
		{requests_per_unit: 300, unit: hour}, {requests_per_unit: 300, unit: day, count_refused: true}]}]}`)
	for range 60 {
		r.requestHits()
	}
	d := r.State(r.time(), admin.AllRules).Domains[0]
	var limits []string
	for _, l := range d.Rules {
		limits = append(limits, fmt.Sprintf("%s: %d hits, %d denied", l.Limit, l.TotalHits, l.TotalDenied))
	}
	want := []string{"5/minute: 60 hits, 55 denied", "300/day, count_refused: true: 60 hits, 0 denied", "300/hour: 5 hits, 0 denied"}
	if diff := cmp.Diff(want, limits); diff != "" {
		t.Error(diff)
	}
}

// TestStatusRates answers calls for ten seconds and then none.
func TestStatusRates(t *testing.T) {
	s := servertest.Service(t, answer.Settings{}, "{domain: d, descriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: 3}}]}")
	a := newAPI(t, s, zap.NewNop())
	calls := s.Metrics().Calls
	now := time.Unix(0, int64(noon))
	for range 20 {
		a.Tick(now)
		for i := range 50 {
			calls.ShouldRateLimit.Done([]uint32{0, 0, 0, 0, 3}[i%5], 20*time.Microsecond)
			if i%5 < 2 {
				calls.Denied.Inc()
			}
		}
		now = now.Add(500 * time.Millisecond)
	}
	status := a.State(now, admin.AllRules).Status
	if status.Calls != 100 || status.Denied != 40 || status.Errors != 20 {
		t.Errorf("%v calls, %v denied and %v errors per second, want 100, 40 and 20", status.Calls, status.Denied, status.Errors)
	}
	if status.P99 == nil || *status.P99 <= 10e-6 || *status.P99 > 25e-6 {
		t.Errorf("the 99th percentile is %v, want one in the bucket of 10 to 25 us", status.P99)
	}
	for range 30 {
		now = now.Add(500 * time.Millisecond)
		a.Tick(now)
	}
	if status = a.State(now, admin.AllRules).Status; status.Calls != 0 || status.P99 != nil {
		t.Errorf("without calls the status is %+v, want neither a rate nor a percentile", status)
	}
}

// TestRatesAgree has a client that makes 100 requests a second, all denied, and reads the state at
// any time, also between two seconds. From the first denial on the rates of the key, the domain and
// the limit are equal. Once they cover a complete period, they are within 3 % of the rate of the
// metrics.
func TestRatesAgree(t *testing.T) {
	r := newReloaded(t, "{domain: d, descriptors: [{key: user, rate_limit: {requests_per_unit: 0, unit: minute}}]}")
	random, sent := rand.New(rand.NewPCG(1, 2)), 0
	for start := r.now; r.now < start+limiter.Time(time.Minute); {
		r.now += limiter.Time(10 * time.Millisecond)
		r.requestHits()
		if sent++; sent%100 == 37 {
			r.Tick(r.time()) // by Watch
		}
		if random.IntN(30) > 0 {
			continue
		}
		d := &r.State(r.time(), admin.AllRules).Domains[0]
		if key := &d.DeniedKeys[0]; key.PerSecond != d.Rules[0].Denied || d.DeniedRequests != key.PerSecond || d.Denied != key.PerSecond {
			t.Fatalf("after %d requests %v a second of the key are denied, %v of the domain, %v of the limit", sent, key.PerSecond, d.DeniedRequests, d.Rules[0].Denied)
		}
		if rate := d.Rules[0].Denied; sent > 1000 && (rate < 97 || rate > 103) || d.Rules[0].TotalDenied != uint64(sent) {
			t.Fatalf("after %d requests %v a second are denied, %d in total, want 100 a second", sent, rate, d.Rules[0].TotalDenied)
		}
	}
}

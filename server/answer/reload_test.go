package answer

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// reloaded is a service whose rules change while requests run.
type reloaded struct {
	t       *testing.T
	service *Service
	tables  *tables.Registry
	own     *rlcommon.RateLimitDescriptor_RateLimitOverride // override of all requests
	now     limiter.Time
}

const leaseGrace = time.Second

func newReloaded(t *testing.T, rules string) *reloaded {
	t.Helper()
	r := &reloaded{t: t, tables: new(tables.Registry), now: noon}
	e, err := r.tables.Add("t", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Put([]string{"user"}, []string{"bo"}, tables.Row{RequestsPerUnit: 1}); err != nil {
		t.Fatal(err)
	}
	r.service = service(t, Settings{Tables: r.tables, LeaseGrace: leaseGrace}, "")
	r.serve(rules)
	return r
}

// serve activates the rules of a domain.
func (r *reloaded) serve(rules string) {
	r.t.Helper()
	configs, ds := rulefile.Parse("rules.yaml", []byte(rules))
	if err := ds.Err(); err != nil {
		r.t.Fatal(err)
	}
	set, ds := descriptors.Compile(configs, descriptors.Options{Tables: r.tables, HashKey: r.service.table.Key()})
	if err := ds.Err(); err != nil {
		r.t.Fatal(err)
	}
	r.now += limiter.Time(time.Millisecond)
	if err := r.service.SetRules(r.now, set); err != nil {
		r.t.Fatal(err)
	}
}

// request returns a request of user al, with the given hits if any.
func (r *reloaded) request(hits ...uint64) []byte {
	request := &rls.RateLimitRequest{Domain: "d"}
	add := func() *rlcommon.RateLimitDescriptor {
		d := &rlcommon.RateLimitDescriptor{Entries: []*rlcommon.RateLimitDescriptor_Entry{entry("user", "al")}, Limit: r.own}
		request.Descriptors = append(request.Descriptors, d)
		return d
	}
	for _, n := range hits {
		add().HitsAddend = wrapperspb.UInt64(n)
	}
	if len(hits) == 0 {
		add()
	}
	return marshal(r.t, request)
}

// send returns the lease that a request acquired, 0 for none, and whether it was denied.
func (r *reloaded) send(hits ...uint64) (lease uint64, denied bool) {
	r.t.Helper()
	var x Exchange
	if _, _, err := r.service.Answer(r.now, time.Minute, &x, r.request(hits...)); err != nil {
		r.t.Fatal(err)
	}
	for at := range x.plan.Batch.Charges {
		lease = max(lease, x.plan.Batch.Lease(at))
	}
	return lease, x.OverLimit()
}

// begin starts n requests and returns their leases, without zeros.
func (r *reloaded) begin(n int) (leases []uint64) {
	r.t.Helper()
	for i := range n {
		lease, denied := r.send()
		if denied {
			r.t.Fatalf("request %d of %d is denied", i+1, n)
		}
		leases = append(leases, lease)
	}
	return leases
}

// endRequests returns leases at a cost of 1.
func (r *reloaded) endRequests(leases []uint64) {
	r.t.Helper()
	for _, lease := range leases {
		r.send(lease, 1)
	}
}

// wantFull checks that exactly n more requests can start.
func (r *reloaded) wantFull(n int) {
	r.t.Helper()
	r.begin(n)
	if _, denied := r.send(); !denied {
		r.t.Errorf("more than %d requests can begin", n)
	}
}

// wantGranted checks the number of leases that are neither returned nor revoked.
func (r *reloaded) wantGranted(want int) {
	r.t.Helper()
	if n := r.service.leases.Len(); n != want {
		r.t.Errorf("%d leases are granted, want %d", n, want)
	}
}

const (
	held = 16
	// atMost16 allows 16 concurrent requests, and reserve 16 reservations.
	atMost16 = "{domain: d, descriptors: [{key: user, rate_limit: {name: s, algorithm: concurrency, requests_per_unit: 16, unit: hour}}]}"
	reserve  = "{domain: d, descriptors: [{key: user, rate_limit: {name: s, algorithm: token_bucket, requests_per_unit: 160999, unit: hour, reserve: {amount: 10000}}}]}"
)

// lostBy contains rules that no longer have the limit of atMost16 or reserve.
var lostBy = map[string]string{
	"another algorithm": "{domain: d, descriptors: [{key: user, rate_limit: {name: s, algorithm: sliding_log, requests_per_unit: 1000, unit: hour}}]}",
	"a bucket":          "{domain: d, descriptors: [{key: user, rate_limit: {name: s, algorithm: token_bucket, requests_per_unit: 160000, unit: hour}}]}",
	"no rule":           "{domain: d, descriptors: [{key: other, rate_limit: {requests_per_unit: 1, unit: hour}}]}",
	"no domain":         "{domain: e, descriptors: [{key: user, rate_limit: {name: s, algorithm: concurrency, requests_per_unit: 16, unit: hour}}]}",
	"unlimited":         "{domain: d, descriptors: [{key: user, rate_limit: {unlimited: true}}]}",
	"deeper":            "{domain: d, descriptors: [{key: user, descriptors: [{key: path, rate_limit: {name: s, algorithm: concurrency, requests_per_unit: 16, unit: hour}}]}]}",
	"a rule of a value": "{domain: d, descriptors: [{key: user, value: al, rate_limit: {requests_per_unit: 1000, unit: hour}}, " +
		"{key: user, rate_limit: {name: s, algorithm: concurrency, requests_per_unit: 16, unit: hour}}]}",
	"a candidate": "{domain: d, descriptors: [{key: user, rate_limits: [{name: n, requests_per_unit: 1000, unit: hour}, " +
		"{name: s, algorithm: concurrency, requests_per_unit: 16, unit: hour, shadow: true}]}]}",
}

// TestRollbackFindsNoOldLeases removes and restores the rule of a limit whose slots are all in use.
// The requests end in between, afterwards, or never.
func TestRollbackFindsNoOldLeases(t *testing.T) {
	all := map[string]string{
		"another window": strings.NewReplacer("hour", "minute").Replace(atMost16),
		"another name":   strings.ReplaceAll(atMost16, "name: s", "name: r"),
	}
	maps.Copy(all, lostBy)
	for _, first := range []string{atMost16, reserve} {
		for name, second := range all {
			for _, end := range []string{"meanwhile", "after", "never"} {
				t.Run(fmt.Sprint(strings.Contains(first, "reserve"), " ", name, " ", end), func(t *testing.T) {
					r := newReloaded(t, first)
					leases := r.begin(held)
					r.serve(second)
					if out := gathered(t, r.service, "sluice_leases_active"); out != 0 {
						t.Errorf("%v are in flight by the metric", out)
					}
					if end == "meanwhile" {
						r.endRequests(leases)
					}
					r.serve(first)
					switch got := r.begin(held - 1); end {
					case "after":
						r.endRequests(leases)
						r.endRequests(got)
						r.begin(held - 1)
					default:
						r.begin(1)
					}
					if got := gathered(t, r.service, "sluice_leases_released_total"); got < held {
						t.Errorf("%v leases are returned by the metric", got)
					}
				})
			}
		}
	}
}

// TestRenamedLimitStartsEmpty renames a limit and back, or gives its domain a bound and removes it.
// Envoy returns no lease under the new name, or to the other partition.
func TestRenamedLimitStartsEmpty(t *testing.T) {
	for _, change := range [][2]string{{"name: s", "name: other"}, {"domain: d", "domain: d, max_counters: 100"}} {
		r := newReloaded(t, atMost16)
		r.wantFull(held)
		r.serve(strings.Replace(atMost16, change[0], change[1], 1))
		r.wantFull(held)
		r.serve(atMost16)
		r.wantFull(held)
	}
}

// TestAnEditKeepsLeases changes fields that do not identify the counter.
func TestAnEditKeepsLeases(t *testing.T) {
	for name, texts := range map[string][2]string{
		"limit":     {atMost16, strings.Replace(atMost16, "16", "40", 1)},
		"less":      {atMost16, strings.Replace(atMost16, "16", "7", 1)},
		"another":   {atMost16, strings.Replace(atMost16, "[", "[{key: x, rate_limit: {requests_per_unit: 1, unit: day}}, ", 1)},
		"file":      {atMost16, "{domain: c, descriptors: [{key: user, rate_limit: {requests_per_unit: 1, unit: day}}]}\n---\n" + atMost16},
		"a value":   {atMost16, strings.Replace(atMost16, "key: user", "key: user, value: al", 1)},
		"a pattern": {atMost16, strings.Replace(atMost16, "key: user", "key: us*, value: a*", 1)},
		"a list": {atMost16, "{domain: d, descriptors: [{key: user, rate_limits: [{requests_per_unit: 1000, unit: day}, " +
			"{name: s, algorithm: concurrency, requests_per_unit: 16, unit: hour}]}]}"},
		"shadow": {atMost16, strings.Replace(atMost16, "key: user", "key: user, shadow_mode: true", 1)},
		"ttl":    {reserve, strings.Replace(reserve, "amount: 10000", "amount: 10000, ttl: 30s, unsettled: release", 1)},
		"amount": {reserve, strings.Replace(reserve, "amount: 10000", "amount: 20000", 1)},
		"rate":   {reserve, strings.Replace(reserve, "160999", "320000", 1)},
	} {
		for _, back := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " ", back), func(t *testing.T) {
				r := newReloaded(t, texts[0])
				b := r.service.Connect("envoy")
				x := Exchange{Connection: b, Stream: 1}
				if _, _, err := r.service.Answer(r.now, time.Minute, &x, r.request()); err != nil {
					t.Fatal(err)
				}
				leases := r.begin(held - 1)
				if r.serve(texts[1]); back {
					r.serve(texts[0])
				}
				r.wantGranted(held)
				var plan descriptors.Plan
				request := descriptors.Request{Domain: []byte("d"), Descriptors: make([]descriptors.Descriptor, 1)}
				if p, want := r.service.planByActiveRules(&plan, &request), r.service.rules.Load().partitions[plan.DomainIndex]; p != want {
					t.Fatal("leases get another partition than that of their domain")
				}
				b.ResetCall(1)
				r.endRequests(leases)
				r.wantGranted(0)
				if got := gathered(t, r.service, "sluice_leases_released_total"); got != held {
					t.Errorf("%v leases came back, want %d", got, held)
				}
			})
		}
	}
}

// TestARollbackOfOverrides uses limit overrides, which have other fields of their rule.
func TestARollbackOfOverrides(t *testing.T) {
	for _, first := range []string{atMost16, reserve} {
		for name, second := range lostBy {
			t.Run(name, func(t *testing.T) {
				r := newReloaded(t, first)
				r.own = &rlcommon.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 3, Unit: typev3.RateLimitUnit_DAY}
				if strings.Contains(first, "reserve") {
					r.own.RequestsPerUnit = 30000
				}
				r.wantFull(3)
				r.serve(strings.Replace(first, "16", "22", 1))
				if _, denied := r.send(); !denied {
					t.Error("an edit drops leases")
				}
				r.serve(second)
				r.serve(first)
				r.wantFull(3)
			})
		}
	}
}

// TestARollbackOfRows changes the table row of requests, and changes it back.
func TestARollbackOfRows(t *testing.T) {
	const text = "{domain: d, descriptors: [{key: user, rate_limit: {name: s, algorithm: concurrency, requests_per_unit: 16, unit: hour, table: t}}]}"
	for name, other := range map[string]tables.Row{"another unit": {RequestsPerUnit: 5, Unit: 3}, "unlimited": {Unlimited: true}, "no row": {}} {
		t.Run(name, func(t *testing.T) {
			r := newReloaded(t, text)
			e, err := r.tables.Table("t")
			if err != nil {
				t.Fatal(err)
			}
			put := func(row tables.Row) {
				t.Helper()
				if row == (tables.Row{}) {
					e.Delete([]string{"al"})
				} else if err := e.Put([]string{"user"}, []string{"al"}, row); err != nil {
					t.Fatal(err)
				}
				r.service.TablesChanged()
			}
			first := tables.Row{RequestsPerUnit: 3, Unit: 4}
			put(first)
			r.wantFull(3)
			put(tables.Row{RequestsPerUnit: 4, Unit: 4})
			r.wantFull(1)
			put(other)
			put(first)
			r.wantFull(3)
			r.serve(atMost16)
			r.serve(text)
			r.wantFull(3)
		})
	}
}

// TestLeaseGrantedAfterRuleRemoved changes rules and rows while requests are being decided.
func TestLeaseGrantedAfterRuleRemoved(t *testing.T) {
	for name, change := range map[string]func(*reloaded){
		"a rule":    func(r *reloaded) { r.serve(lostBy["no rule"]) },
		"two rules": func(r *reloaded) { r.serve(lostBy["no rule"]); r.serve(lostBy["a bucket"]) },
		"a row": func(r *reloaded) {
			e, _ := r.tables.Table("t")
			e.Delete([]string{"al"})
			r.service.TablesChanged()
		},
	} {
		for _, stays := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " ", stays), func(t *testing.T) {
				text := strings.Replace(atMost16, "16", "16, table: t", 1)
				r := newReloaded(t, text)
				e, _ := r.tables.Table("t")
				put := func() {
					if err := e.Put([]string{"user"}, []string{"al"}, tables.Row{RequestsPerUnit: 1, Unit: 4}); err != nil {
						t.Fatal(err)
					}
					r.service.TablesChanged()
				}
				put()
				var x Exchange
				if done, err := r.service.Begin(r.now, time.Minute, &x, r.request(), x.waiter()); !done || err != nil {
					t.Fatal(done, err)
				}
				change(r)
				if stays { // the rule or row is restored before the request is answered
					r.serve(text)
					put()
				}
				r.service.Finish(&x)
				want := 0
				if stays {
					want = 1
				}
				r.wantGranted(want)
				r.serve(text)
				put()
				if !stays {
					r.begin(1)
				}
				if _, denied := r.send(); !denied {
					t.Error("more than one request can begin")
				}
			})
		}
	}
}

// TestManyLeasesAreReviewed reloads with more leases than are reviewed at once. Half of them are
// revoked.
func TestManyLeasesAreReviewed(t *testing.T) {
	const text = "{domain: d, descriptors: [{key: user, value: al, rate_limit: {name: s, algorithm: concurrency, requests_per_unit: 4096, unit: hour}}, " +
		"{key: user, rate_limit: {name: r, algorithm: concurrency, requests_per_unit: 4096, unit: hour}}]}"
	const each = 10*64 + 1
	r := newReloaded(t, text)
	others := marshal(t, &rls.RateLimitRequest{Domain: "d", Descriptors: []*rlcommon.RateLimitDescriptor{{
		Entries: []*rlcommon.RateLimitDescriptor_Entry{entry("user", "bo")},
	}}})
	for range each {
		r.begin(1)
		if _, _, err := r.service.Answer(r.now, time.Minute, &Exchange{}, others); err != nil {
			t.Fatal(err)
		}
	}
	r.serve(strings.Replace(text, "name: s", "name: other", 1))
	r.wantGranted(each)
	if got := gathered(t, r.service, "sluice_leases_released_total"); got != each {
		t.Errorf("%v leases came back, want %d", got, each)
	}
}

// TestARollbackInAStore has the counters in a store, under names.
func TestARollbackInAStore(t *testing.T) {
	table, err := limiter.New(limiter.Options{Bytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	named := &namedElsewhere{elsewhere: elsewhere{table}}
	r := &reloaded{t: t, tables: new(tables.Registry), now: noon}
	r.service = NewService(Settings{Bounds: fillBounds(Bounds{}), Decider: named, Namer: descriptors.NewNamer("p:", nil)}, table, newMetrics(t))
	r.serve(atMost16)
	r.wantFull(held)
	r.serve(lostBy["no rule"])
	r.serve(atMost16)
	r.wantFull(held)
	if len(named.names) != 1 {
		t.Errorf("one counter has the names %v", named.names)
	}
}

// namedElsewhere records the names of counters.
type namedElsewhere struct {
	elsewhere

	names map[string]bool
}

func (e *namedElsewhere) Decide(now limiter.Time, b *limiter.Batch, names [][]byte, w limiter.Waiter) (bool, error) {
	if e.names == nil {
		e.names = map[string]bool{}
	}
	for _, name := range names {
		e.names[string(name)] = true
	}
	return e.elsewhere.Decide(now, b, names, w)
}

// TestReloadsWhileRequestsRun removes and restores a limit while requests start and end. At the
// end, no lease is held.
func TestReloadsWhileRequestsRun(t *testing.T) {
	r := newReloaded(t, atMost16)
	begin, stop := r.request(), make(chan struct{})
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			var x Exchange
			var open []uint64
			for running := true; running || len(open) > 0; {
				select {
				case <-stop:
					running = false
				default:
				}
				in := begin
				if len(open) == 4 || !running {
					if len(open) == 0 {
						return
					}
					in, open = r.request(open[0], 1), open[1:]
				}
				if _, _, err := r.service.Answer(noon, time.Minute, &x, in); err != nil {
					t.Error(err)
					return
				}
				for at := range x.plan.Batch.Charges {
					if lease := x.plan.Batch.Lease(at); lease > 0 {
						open = append(open, lease)
					}
				}
			}
		})
	}
	for range 20 {
		for name := range lostBy {
			r.serve(lostBy[name])
			r.serve(atMost16)
		}
	}
	close(stop)
	clients.Wait()
	r.wantGranted(0)
	r.now = noon
	r.wantFull(held)
}

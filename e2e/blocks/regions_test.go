package blocks_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// oneWay is the delay in each direction between the store and the replicas of another region.
const oneWay = 40 * time.Millisecond

// startRegions starts a replica in the region of the store, and two replicas in another one.
func startRegions(t *testing.T, all []tenant, timeout time.Duration, args ...string) (*fleet, []*link) {
	t.Helper()
	store := storetest.Start(t)
	links := []*link{startLink(t, store.Addr), startLongLink(t, store.Addr, oneWay), startLongLink(t, store.Addr, oneWay)}
	var addrs []string
	for _, l := range links {
		addrs = append(addrs, l.addr)
	}
	return startFleet(t, store, addrs, all, timeout, args...), links
}

// decidedBy returns the number of requests of a replica, by component that decided.
func (f *fleet) decidedBy(t *testing.T, replica int) map[string]float64 {
	t.Helper()
	page, by := suite.Metrics(t, f.sluices[replica].Load()), map[string]float64{}
	for _, name := range []string{"store", "memory", "block", "fallback"} {
		by[name] = page.Sum("sluice_store_charges_total", fmt.Sprintf("by=%q", name))
	}
	return by
}

// A traffic is requests on one counter at a constant rate, evenly distributed over the replicas.
type traffic struct {
	tenant

	rate     float64
	duration time.Duration
	deadline time.Duration // of requests
	args     []string      // further arguments of all replicas
	local    bool          // the fallback may decide, with the hits that a replica knows
	model    *limit        // unless it is a fixed window
}

// modelled returns requests on a limit that is not a fixed window.
func modelled(l limit, fields string, rate float64) traffic {
	one := tenant{name: l.algorithm, limit: l.n, window: l.window, fields: fields}
	return traffic{tenant: one, rate: rate, duration: 20 * time.Second, model: &l}
}

// Kinds of traffic. The fallback is involved in the last four.
var (
	thousand = tenant{name: "1000", limit: 1000, window: time.Second}
	minute   = tenant{name: "6000", limit: 6000, window: time.Minute}
	bucket   = token(1000, time.Second, 1000)
	slide    = sliding(4000, 4*time.Second, 10)
	local    = []string{"--store-fallback", "local"}
	traffics = map[string]traffic{
		"1,000 a second, demand 0.8": {tenant: thousand, rate: 800, duration: 20 * time.Second},
		"1,000 a second, demand 1.5": {tenant: thousand, rate: 1500, duration: 20 * time.Second},
		"6,000 a minute, demand 0.8": {tenant: minute, rate: 80, duration: 130 * time.Second},
		"6,000 a minute, demand 1.5": {tenant: minute, rate: 150, duration: 130 * time.Second},
		"token bucket, demand 0.8":   modelled(bucket, ", algorithm: token_bucket, burst: 1000", 800),
		"token bucket, demand 1.5":   modelled(bucket, ", algorithm: token_bucket, burst: 1000", 1500),
		"sliding window, demand 0.8": modelled(slide, ", algorithm: sliding_window", 800),
		"sliding window, demand 1.5": modelled(slide, ", algorithm: sliding_window", 1500),
		"one hit a second":           {tenant: thousand, rate: 3, duration: 20 * time.Second},
		"deadline 20 ms":             {tenant: thousand, rate: 1500, duration: 20 * time.Second, deadline: 20 * time.Millisecond, args: local, local: true},
		"deadline 250 ms":            {tenant: thousand, rate: 1500, duration: 20 * time.Second, deadline: 250 * time.Millisecond, args: local, local: true},
		"--store-timeout 50ms":       {tenant: thousand, rate: 1500, duration: 20 * time.Second, args: append([]string{"--store-timeout", "50ms"}, local...), local: true},
		"--store-timeout 200ms":      {tenant: thousand, rate: 1500, duration: 20 * time.Second, args: append([]string{"--store-timeout", "200ms"}, local...), local: true},
	}
)

// answers are the latencies of requests of one region.
type answers struct {
	mu       sync.Mutex
	took     []time.Duration
	all      []span
	admitted []span
	tenths   [10][2]int // requests by tenth of the window, and those that took at least waited
}

// waited is the latency above which a request has certainly waited for another region.
const waited = oneWay

// add adds a request that was due at a time.
func (a *answers) add(due time.Time, took, window time.Duration, admitted bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.took = append(a.took, took)
	one := span{due.UnixNano(), due.UnixNano() + int64(took), 1}
	a.all = append(a.all, one)
	if admitted {
		a.admitted = append(a.admitted, one)
	}
	tenth := &a.tenths[due.UnixNano()%int64(window)*10/int64(window)]
	tenth[0]++
	if took >= waited {
		tenth[1]++
	}
}

func (a *answers) quantile(q float64) float64 {
	return float64(a.took[min(len(a.took)-1, int(q*float64(len(a.took))))].Microseconds()) / 1000
}

// run sends the traffic to all replicas, and returns the answers of each replica.
func (f *fleet) run(t *testing.T, rate float64, duration time.Duration) []*answers {
	t.Helper()
	all, start := []*answers{}, time.Now()
	var clients sync.WaitGroup
	for replica := range f.sluices {
		a := &answers{}
		all = append(all, a)
		clients.Go(func() {
			each := time.Duration(float64(time.Second) * float64(len(f.sluices)) / rate)
			for due := start.Add(each * time.Duration(replica) / 3); due.Sub(start) < duration; due = due.Add(each) {
				time.Sleep(time.Until(due))
				clients.Go(func() {
					if admitted, answered := f.request(context.WithoutCancel(t.Context()), replica, 0, 1); answered {
						a.add(due, time.Since(due), f.tenants[0].window, admitted)
					}
				})
			}
		})
	}
	clients.Wait()
	return all
}

// TestRegionsTable measures replicas at different distances of the store:
//
//	SLUICE_EFFORT=100 go test ./e2e/blocks -count=1 -v -timeout 40m -run TestRegionsTable
func TestRegionsTable(t *testing.T) {
	effort.Require(t, effort.All)
	for name, one := range traffics {
		for _, mode := range []string{"off", "auto"} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				if one.rate < 200 { // several do not disturb each other
					t.Parallel()
				}
				one.measure(t, mode)
			})
		}
	}
}

// measure measures a traffic with or without blocks, and logs the figures of each replica, and those
// of the store. Commands per request do not include those of probes.
func (one *traffic) measure(t *testing.T, mode string) {
	t.Helper()
	args := slices.Concat(patient, []string{"--store-blocks", mode}, one.args)
	f, _ := startRegions(t, []tenant{one.tenant}, cmp.Or(one.deadline, suite.Patience), args...)
	f.single = true
	earlier := f.run(t, one.rate, 10*time.Second) // also the first measurements of the speed
	var before []map[string]float64
	for n := range f.sluices {
		before = append(before, f.decidedBy(t, n))
	}
	executed, start := commands(f.store), time.Now()
	all := f.run(t, one.rate, one.duration)
	executed, took := commands(f.store)-executed, time.Since(start)
	requests := 0
	for n, a := range all {
		requests += len(a.took)
		slices.Sort(a.took)
		by, total := f.decidedBy(t, n), 0.0
		for name := range by {
			by[name] -= before[n][name]
			total += by[name]
		}
		var starts []string
		for _, tenth := range a.tenths {
			starts = append(starts, fmt.Sprintf("%.0f", 100*float64(tenth[1])/float64(max(1, tenth[0]))))
		}
		t.Logf("replica %d: p50 %.1f, p90 %.1f, p99 %.1f, max %.1f ms; %.1f %% by the store, %.1f %% memory, %.1f %% block, %.1f %% fallback; %d of %d admitted; waited by tenth of the window in %%: %s",
			n, a.quantile(0.5), a.quantile(0.9), a.quantile(0.99), a.quantile(1), 100*by["store"]/total, 100*by["memory"]/total, 100*by["block"]/total, 100*by["fallback"]/total,
			len(a.admitted), len(a.took), strings.Join(starts, " "))
	}
	time.Sleep(2 * time.Second) // blocks are returned
	idle := commands(f.store)
	time.Sleep(10 * time.Second) // each tenth probe measures the speed of the store
	perSecond := float64(commands(f.store)-idle) / 10
	sent := float64(executed) - perSecond*took.Seconds()
	admitted, admissible := f.share(0)
	if one.model != nil {
		c := &counter{limit: *one.model}
		for _, a := range slices.Concat(earlier, all) {
			c.all, c.hits = append(c.all, a.all...), append(c.hits, a.admitted...)
		}
		if bad, _ := c.exceeded(1); bad != "" {
			t.Error(bad)
		}
		admitted, admissible = len(c.hits), c.admissible()
	}
	t.Logf("%.4f commands per request, %.1f per second without requests; admitted %d of %d admissible; %d failed", sent/float64(requests), perSecond, admitted, admissible, f.failed.Load())
	f.verify(t, func(int, int64) int {
		if one.local {
			return one.limit * (1 + len(f.sluices))
		}
		if one.model != nil {
			return one.limit + one.model.size // the model is stricter
		}
		return one.limit
	})
}

package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/sluice-ratelimit/sluice/telemetry"
)

// quotaDomain is the domain of the divided limit, whose only key is quotaKey.
const quotaDomain, quotaKey = "divided", "bucket"

// quotaPlan is the part of a scenario with a divided limit.
type quotaPlan struct {
	envoys     int
	rates      []uint64        // R per second, at the start and after each change
	changes    []time.Duration // of R, after the start of the traffic
	burst      time.Duration
	minTokens  uint32
	oneAddress bool // all Envoys have one address, as behind NAT
	allow      bool // without an assignment requests are admitted
	pongDelay  time.Duration
	idles      bool // at the end Envoys have no requests; otherwise they disconnect
	demands    map[string][]demand
	storm      bool // a client opens and resets streams at a high rate, and Envoys have little demand
}

// demand is the number of requests per second of a bucket at an Envoy. It changes every period,
// unless that is 0.
type demand struct {
	rates  []float64
	period time.Duration
}

func (d demand) at(t time.Duration) float64 {
	if d.period == 0 {
		return d.rates[0]
	}
	return d.rates[int(t/d.period)%len(d.rates)]
}

// chooseQuota adds a divided limit to a third of the scenarios, and faults of its Envoys.
func (c *scenario) chooseQuota() {
	r := rand.New(rand.NewPCG(c.seed, 4))
	if r.IntN(3) > 0 {
		return
	}
	q := &quotaPlan{
		envoys: 1 + r.IntN(4), rates: []uint64{20 + r.Uint64N(300)}, burst: time.Duration(r.IntN(4)) * 100 * time.Millisecond, minTokens: 1 + r.Uint32N(8),
		oneAddress: r.IntN(4) == 0, allow: r.IntN(2) == 0, idles: r.IntN(2) == 0, demands: map[string][]demand{},
	}
	if r.IntN(3) == 0 {
		q.pongDelay = time.Duration(r.Int64N(int64(400 * time.Millisecond)))
	}
	for range r.IntN(3) {
		q.rates = append(q.rates, 20+r.Uint64N(300))
		q.changes = append(q.changes, time.Duration(len(q.changes))*25*time.Second+time.Duration(10+r.IntN(20))*time.Second)
	}
	for i := range q.envoys {
		share := float64(q.rates[0]) / float64(q.envoys)
		q.demands["steady"] = append(q.demands["steady"], demand{rates: []float64{share * (0.3 + 2*r.Float64())}})
		jumping := demand{rates: []float64{0, 0, 2 * share}, period: time.Duration(4+r.IntN(12)) * time.Second}
		jumping.rates[i%3] = 3 * share
		q.demands["jumping"] = append(q.demands["jumping"], jumping)
		q.demands["idle"] = append(q.demands["idle"], demand{rates: []float64{share, 0, 0, 0}, period: 8 * time.Second})
	}
	c.quota = q
	if r := rand.New(rand.NewPCG(c.seed, 8)); c.replicas == 1 && r.IntN(2) == 0 {
		q.storm, q.changes, q.pongDelay, q.minTokens, c.faults = true, nil, 0, max(q.minTokens, 8), nil
		for i := range q.demands["steady"] {
			q.demands["steady"][i].rates[0] = float64(q.rates[0]) * (0.02 + 0.03*r.Float64())
		}
		return
	}
	if r.IntN(4) == 0 {
		return
	}
	for range 1 + r.IntN(3) {
		f := fault{at: time.Duration(r.Int64N(int64(c.duration))), kind: []string{"silence", "reset", "slow", "pause"}[r.IntN(4)], host: fmt.Sprint("quota-", r.IntN(q.envoys))}
		f.d = time.Duration(r.ExpFloat64() * float64([]time.Duration{300 * time.Millisecond, 5 * time.Second, 15 * time.Second}[r.IntN(3)]))
		if f.d = min(f.d, 40*time.Second); f.kind != "pause" {
			f.d = min(f.d, 16*time.Second)
		}
		if f.kind == "silence" && r.IntN(3) == 0 {
			f.host = fmt.Sprint("sluice-", r.IntN(c.replicas))
		}
		c.faults = append(c.faults, f)
	}
}

// quotas are the Envoys with the quota filter.
type quotas struct {
	*quotaPlan

	world  *world
	envoys []*quotaEnvoy

	mu     sync.Mutex // guards the fields below and the Envoys'
	rate   uint64     // R
	ended  bool       // Envoys have no requests any more
	ledger quotaLedger
}

// newQuotas returns the Envoys of a scenario, nil if no limit is divided.
func newQuotas(w *world) *quotas {
	if w.quota == nil {
		return nil
	}
	q := &quotas{quotaPlan: w.quota, world: w, rate: w.quota.rates[0]}
	q.ledger = quotaLedger{
		quotas: q, excused: map[string]time.Time{}, metrics: map[string]*telemetry.Metrics{}, leads: map[string][2]float64{}, steps: map[string][]quotaSums{},
	}
	q.ledger.calm = make([]calmCounts, q.quotaPlan.envoys)
	for i := range q.quotaPlan.envoys {
		e := &quotaEnvoy{quotas: q, world: w, index: i, host: fmt.Sprint("quota-", i), healthy: map[string]bool{}, buckets: map[string]*quotaBucket{}}
		e.conns, e.health = w.newConnections(e.host), w.newConnections(e.host)
		e.conns.wrap = func(c net.Conn) net.Conn { return suspendable{c, e} }
		e.health.wrap, e.conns.options.PongDelay = e.conns.wrap, q.pongDelay
		e.random = rand.New(rand.NewPCG(w.seed, hashText(e.host)))
		q.envoys = append(q.envoys, e)
		if q.oneAddress {
			w.network.update(e.host, func(l *links) { l.behind = "quota-0" })
		}
	}
	return q
}

// rules returns the divided limit, as a document of a rule file.
func (q *quotas) rules() string {
	if q == nil {
		return ""
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return fmt.Sprintf("---\ndomain: %s\ndescriptors:\n  - key: %s\n    rate_limit: { unit: second, requests_per_unit: %d, algorithm: token_bucket, quota: { burst: %v, min_tokens: %d } }\n",
		quotaDomain, quotaKey, q.rate, q.burst, q.minTokens)
}

// Durations after the traffic and all faults until each Envoy must have its shares, and after that,
// until nothing may be assigned since all requests have ended. The first is the sum of: an Envoy finds
// that its connection is dead (12 s), its next report (5 s), and its former share (12.5 s), or the
// election of a leader (4.5 s) and its learning (15.5 s). The second are six idle reports, a probe
// and the TTL.
const quotaRecovery, quotaRest = 45 * time.Second, 60 * time.Second

// run plays the requests of all Envoys.
func (q *quotas) run() {
	if q == nil {
		return
	}
	w := q.world
	for i, at := range q.changes {
		time.AfterFunc(at, func() { q.change(q.rates[i+1]) })
	}
	ctx, cancel := context.WithCancel(context.Background())
	var parties sync.WaitGroup
	for _, e := range q.envoys {
		parties.Go(func() { e.run(ctx) })
		if w.shared {
			for _, r := range w.replicas {
				parties.Go(func() { e.checkHealth(ctx, r.host) })
			}
		}
	}
	parties.Go(func() { q.ledger.watch(ctx) })
	end := w.duration
	for _, f := range w.faults {
		end = max(end, f.at+f.lasts())
	}
	time.Sleep(end + quotaRecovery)
	q.ledger.checkRecovered()
	q.mu.Lock()
	q.ended = true
	q.mu.Unlock()
	if q.idles {
		time.Sleep(quotaRest)
	}
	cancel()
	parties.Wait()
	for _, e := range q.envoys {
		e.conns.end()
		e.health.end()
	}
	if !q.idles {
		time.Sleep(quotaRest)
	}
	q.ledger.checkAtRest()
}

// ofQuotaEnvoy reports whether the fault is one of an Envoy with the quota filter.
func (f fault) ofQuotaEnvoy() bool { return strings.HasPrefix(f.host, "quota-") }

// suffer plays a fault of an Envoy.
func (q *quotas) suffer(f fault) {
	if q.world.network.suffer(f) {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range q.envoys {
		if e.host == f.host {
			e.pausedUntil, e.pauseBegan = time.Now().Add(f.d), time.Now()
		}
	}
}

// change changes R. Other operations may delay the reloads.
func (q *quotas) change(rate uint64) {
	q.mu.Lock()
	c := &limitChange{rate: q.rate, pending: len(q.world.replicas)}
	q.ledger.limits = append(q.ledger.limits, c)
	q.rate = rate
	q.mu.Unlock()
	q.world.record("operator", "changes the divided limit to %d", rate)
	for _, r := range q.world.replicas {
		go func() {
			defer r.operations.acquire()()
			if r.running {
				r.reload(q.world.rules)
			}
			q.mu.Lock()
			defer q.mu.Unlock()
			c.pending, c.until = c.pending-1, time.Now()
		}()
	}
}

package simulation

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluice-ratelimit/sluice/rlqs/division"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// quotaLedger checks the bounds of a divided limit (docs/rlqs.md, "Guarantees"). quotas.mu guards
// its fields.
type quotaLedger struct {
	quotas  *quotas
	limits  []*limitChange
	excused map[string]time.Time          // by bucket: until then more than the limit is permitted
	learns  []time.Time                   // until when what each new divider has learnt is active
	learnt  time.Time                     // when what the last new divider has learnt has expired
	metrics map[string]*telemetry.Metrics // of the running processes, by replica
	leads   map[string][2]float64         // see noticeLeaders; by replica
	steps   map[string][]quotaSums        // by bucket, one per quotaStep
	failed  bool                          // one violation is enough
	calm    []calmCounts                  // by Envoy
}

// calmCounts are those of the requests of an Envoy during a storm.
type calmCounts struct{ all, denied uint64 }

type (
	// limitChange is the time until which the limit was rate at a sluice. pending is the number of
	// sluices where it may still be.
	limitChange struct {
		until   time.Time
		rate    uint64
		pending int
	}
	// quotaSums are sums over all Envoys in a step. gained are the tokens that buckets gained by an
	// action.
	quotaSums struct{ admitted, gained, bound float64 }
)

// Durations of the guarantee: a divider that starts, or becomes the leader, learns for 6 s or 15.5
// s. Until an assignment of its predecessor has expired, at most 12.5 s later, up to twice the
// limit may be active.
const (
	quotaTTL            = 12*time.Second + 500*time.Millisecond
	quotaLearning       = 6 * time.Second
	quotaLeaderLearning = 15*time.Second + 500*time.Millisecond
)

// started records that a process starts.
func (q *quotas) started(host string, m *telemetry.Metrics) {
	if q == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ledger.metrics[host] = m
	q.ledger.learns = append(q.ledger.learns, time.Now().Add(quotaLearning+quotaTTL))
	q.ledger.excuseLocked(quotaLearning)
	if !q.world.shared {
		time.AfterFunc(quotaLearning, func() { q.ledger.excuseUnknown(host, m) })
	}
}

// excuseUnknown permits more than the limit of the buckets with a share that a process does not
// know when it has learnt.
func (l *quotaLedger) excuseUnknown(host string, m *telemetry.Metrics) {
	l.quotas.mu.Lock()
	defer l.quotas.mu.Unlock()
	if l.metrics[host] != m {
		return // it has ended
	}
	for name := range l.quotas.demands {
		for _, e := range l.quotas.envoys {
			if b := e.buckets[name]; b.known() && b.Active(e.now()) && time.Since(b.appliedAt) >= quotaLearning {
				l.excused[name] = time.Now().Add(quotaTTL)
			}
		}
	}
}

// excuseLocked permits more than the limit of the buckets whose rates another divider has changed in the
// last seconds, or were not those of the requests.
func (l *quotaLedger) excuseLocked(learning time.Duration) {
	l.learnt = later(l.learnt, time.Now().Add(learning+quotaTTL))
	for name := range l.quotas.demands {
		for _, e := range l.quotas.envoys {
			if b := e.buckets[name]; b.known() && time.Since(later(b.changedAt, b.misledAt)) < quotaTTL {
				l.excused[name] = time.Now().Add(learning + quotaTTL)
			}
		}
	}
}

// misled records that the rate of an Envoy is not that of its requests, for which a new divider takes
// it. It permits more than the limit while a new divider learns.
func (l *quotaLedger) misled(name string, b *quotaBucket) {
	b.misledAt = time.Now()
	if time.Now().Before(l.learnt) {
		l.excused[name] = l.learnt
	}
}

// watch looks for changes of leaders until ctx ends.
func (l *quotaLedger) watch(ctx context.Context) {
	for sleep(ctx, quotaStep/2) {
		l.quotas.mu.Lock()
		l.noticeLeaders()
		l.quotas.mu.Unlock()
	}
}

// noticeLeaders records changes of leaders since the last call. It must be called before an action is
// applied, which a new leader may have sent.
func (l *quotaLedger) noticeLeaders() {
	if !l.quotas.world.shared {
		return
	}
	for _, host := range sortedKeys(l.metrics) {
		m := l.metrics[host]
		now := [2]float64{testutil.ToFloat64(m.Quota.LeaderDomains), testutil.ToFloat64(m.Quota.MisdirectedStreams)}
		if before, known := l.leads[host]; known && now != before {
			if now[0] > 0 { // maybe again, which ends its streams
				l.learns = append(l.learns, time.Now().Add(quotaLeaderLearning+quotaTTL))
			}
			l.excuseLocked(quotaLeaderLearning)
		}
		l.leads[host] = now
	}
}

// sum returns the sum of the rates that are active at all Envoys. An assignment does not count that
// arrived while its Envoy was suspended until others had its share (docs/rlqs.md,
// "Guarantees"), for 12 s at most.
func (l *quotaLedger) sum(name string) (sum int64) {
	for _, e := range l.quotas.envoys {
		if b := e.buckets[name]; b.known() && b.Active(e.now()) && b.Kind == division.Assign && !b.stale {
			sum += int64(b.Rate)
		}
	}
	return sum
}

// bound returns the permitted sum of rates, in tokens per hour. After the limit was lowered, a rate
// remains active until its Envoy has read the new one.
func (l *quotaLedger) bound(name string) int64 {
	rate, now := l.quotas.rate, time.Now()
	for _, c := range l.limits {
		if c.pending > 0 || now.Before(l.formerUntil(c.until)) {
			rate = max(rate, c.rate)
		}
	}
	dividers := uint64(0) // each takes rates of requests for former rates
	for _, until := range l.learns {
		if now.Before(until) {
			dividers++
		}
	}
	most := int64(rate) * int64(division.Fill/time.Second)
	switch {
	case now.Before(l.excused[name]):
		return most * int64(1+max(1, dividers))
	case dividers > 0: // they were measured
		return most + most/50
	}
	return most
}

// formerUntil returns until when rates of a limit may be active that was replaced at the given time. A
// fault may delay the new rates until its end. Then an Envoy finds that its connection is dead (12
// s), and reports (5 s); or a leader is elected (4.5 s), and learns. Its rates last for their TTL.
func (l *quotaLedger) formerUntil(replaced time.Time) time.Time {
	w := l.quotas.world
	until := replaced.Add(2*time.Second + l.quotas.pongDelay)
	for i, f := range w.faults {
		if effectsOf[f.kind].changes || !w.shared && !w.isReplica(f.host) && !f.ofQuotaEnvoy() {
			continue
		}
		begins, ends := w.interval(i)
		if ends = ends.Add(5*time.Second - recovery + quotaLeaderLearning + quotaTTL); begins.Before(replaced.Add(2 * time.Second)) {
			until = later(until, ends)
		}
	}
	return until
}

// applied checks the sum after an Envoy has applied an action.
func (l *quotaLedger) applied(e *quotaEnvoy, name string, b *quotaBucket, gained float64) {
	if b.Kind == division.AssignAllowAll {
		l.quotas.world.fail("%s: %s of a divided limit is ALLOW_ALL", e.host, name)
	}
	if !b.stale {
		l.step(name).gained += gained
	}
	if sum, most := l.sum(name), l.bound(name); sum > most && !l.failed {
		l.failed = true
		l.quotas.world.fail("%s gets %d/h of %s, the sum is %d, at most %d allowed", e.host, b.Rate, name, sum, most)
	}
}

// isStormy reports whether a client has opened and reset streams for two seconds, and goes on.
func (w *world) isStormy() bool {
	if !w.quota.storm {
		return false
	}
	since := time.Since(w.traffic) - w.attacks[0].at
	return since > 2*time.Second && since < w.attacks[0].d
}

// checkCalm checks that no Envoy with a demand below its share denied requests during a storm.
func (l *quotaLedger) checkCalm() {
	for i, c := range l.calm {
		if c.denied > max(6, c.all/20) { // a few random ones may exceed the bucket
			l.quotas.world.fail("quota-%d denied %d of %d requests while streams came and went, although it has a share", i, c.denied, c.all)
		}
	}
}

func (l *quotaLedger) admitted(name string, n uint64) { l.step(name).admitted += float64(n) }

// step returns the sums of the current step.
func (l *quotaLedger) step(name string) *quotaSums {
	i, bound := int(time.Since(l.quotas.world.began)/quotaStep), float64(l.bound(name))/float64(division.Fill/quotaStep)
	for len(l.steps[name]) <= i {
		l.steps[name] = append(l.steps[name], quotaSums{bound: bound})
	}
	s := &l.steps[name][i]
	s.bound = max(s.bound, bound)
	return s
}

// checkAdmitted checks that no interval of 1 or 5 s admits more than R x W, the tokens saved at its
// start and those gained in it. Steps of Envoys overlap, so there is one more.
func (l *quotaLedger) checkAdmitted() {
	for _, name := range sortedKeys(l.steps) {
		steps := l.steps[name]
		for _, n := range []int{int(time.Second / quotaStep), int(5 * time.Second / quotaStep)} {
			for first := 0; first+n <= len(steps); first++ {
				admitted, most, largest := 0.0, 0.0, 0.0
				for _, s := range steps[first : first+n] {
					admitted += s.admitted
					most += s.gained + s.bound
					largest = max(largest, s.bound)
				}
				saved := float64(len(l.quotas.envoys))*float64(l.quotas.minTokens) + largest*l.quotas.burst.Seconds()/quotaStep.Seconds()
				if most += largest + saved; admitted > most {
					l.quotas.world.fail("%s admits %.0f requests within %v, at most %.0f allowed (from %v)", name, admitted, time.Duration(n)*quotaStep, most, time.Duration(first)*quotaStep)
					return
				}
			}
		}
	}
}

// checkRecovered checks that each Envoy with requests has a share, and that the complete limit is
// assigned.
func (l *quotaLedger) checkRecovered() {
	q := l.quotas
	q.mu.Lock()
	defer q.mu.Unlock()
	l.checkCalm()
	const name = "steady"
	for _, e := range q.envoys {
		if b := e.buckets[name]; !b.known() || !b.Active(e.now()) || b.Kind != division.Assign || b.Rate == 0 {
			q.world.fail("%s has no share of %s long after the last fault: %+v", e.host, name, b)
		}
	}
	if sum, r := l.sum(name), int64(q.rate)*int64(division.Fill/time.Second); sum < r*95/100 {
		q.world.fail("%d/h of %s are assigned long after the last fault, want %d", sum, name, r)
	}
}

// checkAtRest checks that nothing is assigned.
func (l *quotaLedger) checkAtRest() {
	q := l.quotas
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, host := range sortedKeys(l.metrics) {
		m := l.metrics[host].Quota
		if buckets, shares := testutil.ToFloat64(m.Buckets), testutil.ToFloat64(m.Shares); buckets+shares > 0 {
			q.world.fail("%s has %v buckets with %v shares at rest", host, buckets, shares)
		}
	}
	for _, e := range q.envoys {
		for _, name := range sortedKeys(e.buckets) {
			if b := e.buckets[name]; b.Active(e.now()) {
				q.world.fail("%s has an assignment of %s at rest", e.host, name)
			}
		}
	}
	l.checkAdmitted()
}

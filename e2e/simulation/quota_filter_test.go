package simulation

import (
	"context"
	"math/rand/v2"
	"time"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sluice-ratelimit/sluice/e2e/h2client"
	"github.com/sluice-ratelimit/sluice/quota"
	"github.com/sluice-ratelimit/sluice/quota/filter"
)

// quotaBucket is a bucket of an Envoy.
type quotaBucket struct {
	filter.Bucket

	stale     bool      // the Envoy was suspended when its assignment arrived, see [quotaLedger.sum]
	appliedAt time.Time // when the last action arrived
	changedAt time.Time
	// misledAt is when the Envoy last had another rate than that of its requests: it had no valid
	// assignment, or did not use all of it.
	misledAt time.Time
}

// quotaEnvoy is an Envoy with the filter rate_limit_quota.
type quotaEnvoy struct {
	quotas *quotas
	world  *world
	index  int
	host   string
	random *rand.Rand

	// The fields below are guarded by quotas.mu.
	healthy                 map[string]bool // by replica
	buckets                 map[string]*quotaBucket
	conns                   []*h2client.Conn
	conn                    *h2client.Conn   // the last one, which is used
	replica                 string           // of conn
	stream                  *h2client.Stream // nil for none
	connecting              bool
	pausedUntil, pauseBegan time.Time
}

// quotaStep is the interval between the requests of an Envoy.
const quotaStep = 200 * time.Millisecond

// run makes the requests and reports of an Envoy.
func (e *quotaEnvoy) run(ctx context.Context) {
	now := time.Now()
	report, step := now.Add(time.Duration(e.random.Int64N(int64(filter.ReportInterval)))), now.Add(time.Duration(e.random.Int64N(int64(quotaStep))))
	for ctx.Err() == nil {
		time.Sleep(min(time.Until(report), time.Until(step)))
		e.awaitResume()
		now := time.Now()
		if !now.Before(step) {
			for _, name := range sortedKeys(e.quotas.demands) {
				if e.admit(name) {
					e.report(name)
				}
			}
		}
		if !now.Before(report) {
			e.report(sortedKeys(e.quotas.demands)...)
		}
		for !report.After(now) { // a timer that was late does not fire twice
			report = report.Add(filter.ReportInterval)
		}
		for !step.After(now) {
			step = step.Add(quotaStep)
		}
	}
}

// admit decides the requests of a step. It reports whether the bucket is new.
func (e *quotaEnvoy) admit(name string) (first bool) {
	q, now := e.quotas, e.now()
	q.mu.Lock()
	defer q.mu.Unlock()
	mean := e.quotas.demands[name][e.index].at(time.Since(e.world.traffic)) * quotaStep.Seconds()
	n := uint64(mean)
	if e.random.Float64() < mean-float64(n) {
		n++
	}
	if q.ended || n == 0 {
		return false
	}
	b := e.buckets[name]
	if first = !b.known(); first {
		b = new(quotaBucket)
		e.buckets[name] = b
		b.Start(now)
	}
	active := b.Active(now)
	switch allowed := b.Admit(now, n, q.allow); {
	case active && !b.stale:
		q.ledger.admitted(name, allowed)
	case !active && !first && allowed > 0:
		q.ledger.misled(name, b)
	}
	return first
}

func (b *quotaBucket) known() bool { return b != nil && b.Known }

func (e *quotaEnvoy) now() quota.Time { return time.Since(e.world.began) }

// report sends the usage of buckets.
func (e *quotaEnvoy) report(names ...string) {
	m := &rlqs.RateLimitQuotaUsageReports{Domain: quotaDomain}
	e.quotas.mu.Lock()
	for _, name := range names {
		if b := e.buckets[name]; b.known() {
			r := b.TakeReport(e.now())
			if b.Active(e.now()) && float64(r.Allowed) < 0.98*float64(b.Rate)*float64(r.Elapsed)/float64(quota.Fill) {
				e.quotas.ledger.misled(name, b)
			}
			m.BucketQuotaUsages = append(m.BucketQuotaUsages, &rlqs.RateLimitQuotaUsageReports_BucketQuotaUsage{
				BucketId:    &rlqs.BucketId{Bucket: map[string]string{"sluice": quotaKey, quotaKey: name}},
				TimeElapsed: durationpb.New(r.Elapsed), NumRequestsAllowed: r.Allowed, NumRequestsDenied: r.Denied,
			})
		}
	}
	e.quotas.mu.Unlock()
	if len(m.GetBucketQuotaUsages()) > 0 {
		e.send(mustMarshal(m))
	}
}

// receive applies the actions of a message.
func (e *quotaEnvoy) receive(s *h2client.Stream, message []byte) {
	m := new(rlqs.RateLimitQuotaResponse)
	if err := proto.Unmarshal(message, m); err != nil {
		e.world.fail("%s: a quota response cannot be decoded: %v", e.host, err)
		return
	}
	q := e.quotas
	q.mu.Lock()
	defer q.mu.Unlock()
	if e.stream != s {
		return
	}
	for _, a := range m.GetBucketAction() {
		name := a.GetBucketId().GetBucket()[quotaKey]
		b := e.buckets[name]
		if !b.known() {
			continue
		}
		before := 0.0
		if b.Active(e.now()) {
			b.Refill(e.now())
			before = b.Tokens
		}
		was := b.Bucket
		b.appliedAt = time.Now()
		if b.Apply(e.now(), actionOf(a)); b.Rate != was.Rate {
			b.changedAt = b.appliedAt
		}
		b.stale = time.Since(e.pausedUntil) < 50*time.Millisecond && e.pausedUntil.Sub(e.pauseBegan) >= 12*time.Second
		e.world.record(e.host, "%s gets kind %d, %d/h, %v tokens", name, b.Kind, b.Rate, b.MaxTokens)
		q.ledger.applied(e, name, b, max(b.Tokens-before, 0))
		if name == "steady" && b.known() { // otherwise it was abandoned, but its rate remains reserved
			q.ledger.last[s] = assignment{b.Rate, time.Now()}
		}
	}
}

// actionOf converts an action.
func actionOf(a *rlqs.RateLimitQuotaResponse_BucketAction) *quota.Action {
	assignment := a.GetQuotaAssignmentAction()
	ttl, strategy := assignment.GetAssignmentTimeToLive().AsDuration(), assignment.GetRateLimitStrategy()
	switch bucket := strategy.GetTokenBucket(); {
	case assignment == nil:
		return &quota.Action{Kind: quota.Abandon}
	case bucket != nil:
		return &quota.Action{Kind: quota.Assign, TTL: ttl, Rate: quota.Rate(bucket.GetTokensPerFill().GetValue()), MaxTokens: bucket.GetMaxTokens()}
	case strategy.GetBlanketRule() == 0:
		return &quota.Action{Kind: quota.AssignAllowAll, TTL: ttl}
	}
	return &quota.Action{Kind: quota.AssignDenyAll, TTL: ttl}
}

package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sluice-ratelimit/sluice/e2e/h2client"
	"github.com/sluice-ratelimit/sluice/rlqs/division"
	"github.com/sluice-ratelimit/sluice/rlqs/filter"
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
	conns  *connections
	health *connections   // of health checks
	conn   *h2client.Conn // the last one of conns, which is used; for open alone

	// The fields below are guarded by quotas.mu.
	healthy                 map[string]bool // by replica
	buckets                 map[string]*quotaBucket
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
	active, allowed := b.Active(now), b.Admit(now, n, q.allow)
	if c := &q.ledger.calm[e.index]; name == "steady" && e.world.isStormy() {
		c.all, c.denied = c.all+n, c.denied+n-allowed
	}
	switch {
	case active && !b.stale:
		q.ledger.admitted(name, allowed)
	case !active && !first && allowed > 0:
		q.ledger.misled(name, b)
	}
	return first
}

func (b *quotaBucket) known() bool { return b != nil && b.Known }

func (e *quotaEnvoy) now() division.Time { return time.Since(e.world.began) }

// report sends the usage of buckets.
func (e *quotaEnvoy) report(names ...string) {
	m := &rlqs.RateLimitQuotaUsageReports{Domain: quotaDomain}
	e.quotas.mu.Lock()
	for _, name := range names {
		if b := e.buckets[name]; b.known() {
			r := b.TakeReport(e.now())
			if b.Active(e.now()) && float64(r.Allowed) < 0.98*float64(b.Rate)*float64(r.Elapsed)/float64(division.Fill) {
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
	q.ledger.noticeLeaders()
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
	}
}

// actionOf converts an action.
func actionOf(a *rlqs.RateLimitQuotaResponse_BucketAction) *division.Action {
	assignment := a.GetQuotaAssignmentAction()
	ttl, strategy := assignment.GetAssignmentTimeToLive().AsDuration(), assignment.GetRateLimitStrategy()
	switch bucket := strategy.GetTokenBucket(); {
	case assignment == nil:
		return &division.Action{Kind: division.Abandon}
	case bucket != nil:
		return &division.Action{Kind: division.Assign, TTL: ttl, Rate: division.Rate(bucket.GetTokensPerFill().GetValue()), MaxTokens: bucket.GetMaxTokens()}
	case strategy.GetBlanketRule() == 0:
		return &division.Action{Kind: division.AssignAllowAll, TTL: ttl}
	}
	return &division.Action{Kind: division.AssignDenyAll, TTL: ttl}
}

const quotaPath = "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas"

// awaitResume returns when the Envoy is not suspended.
func (e *quotaEnvoy) awaitResume() {
	for {
		e.quotas.mu.Lock()
		left := time.Until(e.pausedUntil)
		e.quotas.mu.Unlock()
		if left <= 0 {
			return
		}
		time.Sleep(left)
	}
}

// suspendable is a connection of an Envoy that may be suspended. Meanwhile it neither reads nor
// writes.
type suspendable struct {
	net.Conn

	envoy *quotaEnvoy
}

func (c suspendable) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.envoy.awaitResume()
	return n, err
}

func (c suspendable) Write(p []byte) (int, error) {
	c.envoy.awaitResume()
	return c.Conn.Write(p)
}

// send sends a report. Without a stream it opens one to a healthy sluice; if it cannot, the usage is
// lost, as with Envoy.
func (e *quotaEnvoy) send(report []byte) {
	e.quotas.mu.Lock()
	s, opens := e.stream, e.stream == nil && !e.connecting
	e.connecting = e.connecting || opens
	e.quotas.mu.Unlock()
	if opens {
		go e.open(report)
	} else if s != nil {
		if err := s.Send(report); err != nil {
			e.world.record(e.host, "cannot report: %v", err)
		}
	}
}

// open opens a stream, and sends the first report.
func (e *quotaEnvoy) open(first []byte) {
	var s *h2client.Stream
	c, err := e.connect()
	if err == nil {
		s, err = c.Open(quotaPath, 0, first, e.receive)
	}
	e.quotas.mu.Lock()
	if e.connecting = false; err == nil {
		e.stream = s
	}
	e.quotas.mu.Unlock()
	if err != nil {
		e.world.record(e.host, "cannot open a stream: %v", err)
		return
	}
	e.world.record(e.host, "opens a stream")
	<-s.Done
	e.world.record(e.host, "a stream has ended: %s %v", s.Status, s.Err) // the message has random names
	e.quotas.mu.Lock()
	defer e.quotas.mu.Unlock()
	if e.stream == s {
		e.stream = nil
	}
}

// connect returns a connection to a healthy sluice: the last one or a new one.
func (e *quotaEnvoy) connect() (*h2client.Conn, error) {
	e.quotas.mu.Lock()
	var healthy []string
	for _, r := range e.world.replicas {
		if e.healthy[r.host] || !e.world.shared {
			healthy = append(healthy, r.host)
		}
	}
	e.quotas.mu.Unlock()
	if len(healthy) == 0 {
		return nil, errors.New("no healthy sluice")
	}
	replica := healthy[hashText(e.host+e.now().String())%uint64(len(healthy))]
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := e.conns.to(ctx, replica)
	if err != nil || c == e.conn {
		return c, err
	}
	if e.conn != nil {
		e.conn.Close()
	}
	e.conn = c
	e.world.record(e.host, "connects to %s", replica)
	go e.keepAlive(c)
	return c, nil
}

// keepAlive closes a connection whose PING is not acknowledged within 2 s, as configured in
// docs/rlqs.md.
func (e *quotaEnvoy) keepAlive(c *h2client.Conn) {
	for {
		select {
		case <-time.After(10 * time.Second):
		case <-c.Done:
			return
		}
		if c.Ping() != nil {
			return
		}
		select {
		case <-c.Pongs:
		case <-c.Done:
			return
		case <-time.After(2 * time.Second):
			e.awaitResume()
			e.world.record(e.host, "closes a connection without a pong")
			c.Close()
			return
		}
	}
}

// checkHealth asks a sluice every second whether it divides the domain.
func (e *quotaEnvoy) checkHealth(ctx context.Context, replica string) {
	check := func() error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		c, err := e.health.to(ctx, replica)
		if err != nil {
			return err
		}
		var reply grpc_health_v1.HealthCheckResponse
		err = e.world.call(ctx, c, "/grpc.health.v1.Health/Check", time.Second, &grpc_health_v1.HealthCheckRequest{Service: "quota." + quotaDomain}, &reply)
		if err == nil && reply.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
			err = fmt.Errorf("%v", reply.GetStatus())
		}
		return err
	}
	for wait := time.Duration(0); sleep(ctx, wait+e.world.network.latencyOf(e.host+replica)); wait = time.Second {
		e.awaitResume()
		err := check()
		e.quotas.mu.Lock()
		if e.healthy[replica] != (err == nil) {
			e.world.record(e.host, "health of %s: %v", replica, err)
		}
		e.healthy[replica] = err == nil
		e.quotas.mu.Unlock()
	}
}

package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sluice-ratelimit/sluice/quota"
	"github.com/sluice-ratelimit/sluice/quota/filter"
)

const quotaPath = "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas"

// quotaDomain is the domain of the divided limit, whose only key is quotaKey.
const quotaDomain, quotaKey = "divided", "bucket"

// quotaPlan is the part of a scenario with a divided limit.
type quotaPlan struct {
	envoys     int
	rates      []uint64        // R per second, at the start and after each change
	changes    []time.Duration // of R, after the start of the traffic
	burst      time.Duration
	minTokens  uint32
	oneAddress bool // all Envoys are behind one address
	allow      bool // without an assignment requests are admitted
	pongDelay  time.Duration
	idles      bool // at the end Envoys have no requests; otherwise they disconnect
	demands    map[string][]demand
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
	switch kind := r.IntN(4); {
	case kind == 0:
		return
	case kind == 1 && !c.shared:
		q.oneAddress, q.changes, q.pongDelay = true, nil, 0
		d := 3*time.Second + time.Duration(r.Int64N(int64(3*time.Second))) // PINGs 30 s after the start may be late
		c.faults = []fault{{at: 30*time.Second + time.Duration(r.Int64N(int64(d))) + time.Second - d, kind: "suspend", host: "sluice-0", d: d}}
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
	q.ledger.init(q)
	for i := range q.quotaPlan.envoys {
		e := &quotaEnvoy{quotas: q, world: w, index: i, host: fmt.Sprint("quota-", i), healthy: map[string]bool{}, buckets: map[string]*quotaBucket{}}
		e.random = rand.New(rand.NewPCG(w.seed, hashText(e.host)))
		q.envoys = append(q.envoys, e)
		if q.oneAddress {
			w.network.behind[e.host] = "quota-0"
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

// Durations after the traffic, of faults in it: until each Envoy must have its shares, and until
// nothing may be assigned after all requests have ended. The first is the sum of: an Envoy finds
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
	time.Sleep(w.duration + quotaRecovery)
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
		e.close()
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

// quotaBucket is a bucket of an Envoy.
type quotaBucket struct {
	filter.Bucket

	stale     bool // the Envoy was suspended when its assignment arrived, see [quotaLedger.sum]
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
	conns                   []*grpcConn // all, the last one is used
	replica                 string      // of the last connection
	stream                  *grpcStream // nil for none
	id                      uint32
	connecting              bool
	pausedUntil, pauseBegan time.Time
}

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

// report sends the usage of buckets. Without a stream it opens one to a healthy sluice; if it cannot,
// the usage is lost, as with Envoy.
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
	stream, id, connecting := e.stream, e.id, e.connecting
	var conn *grpcConn
	if stream != nil {
		conn = e.conns[len(e.conns)-1]
	}
	e.connecting = stream == nil
	e.quotas.mu.Unlock()
	if len(m.GetBucketQuotaUsages()) == 0 {
		e.setConnecting(connecting)
		return
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(err)
	}
	switch {
	case stream != nil:
		if err := conn.send(id, b); err != nil {
			e.world.record(e.host, "cannot report: %v", err)
		}
	case !connecting:
		go e.open(b)
	}
}

func (e *quotaEnvoy) setConnecting(connecting bool) {
	e.quotas.mu.Lock()
	defer e.quotas.mu.Unlock()
	e.connecting = connecting && e.stream == nil
}

// open opens a stream, and sends the first report.
func (e *quotaEnvoy) open(first []byte) {
	defer e.setConnecting(false)
	c, replica, err := e.connect()
	if err != nil {
		e.world.record(e.host, "cannot connect: %v", err)
		return
	}
	var s *grpcStream
	received := make(chan struct{}) // closed when s is set
	id, s, err := c.open(quotaPath, 0, first, func(message []byte) {
		<-received
		e.receive(s, message)
	})
	if err != nil {
		close(received)
		e.world.record(e.host, "cannot open a stream: %v", err)
		return
	}
	e.quotas.mu.Lock()
	e.stream, e.id = s, id
	e.quotas.mu.Unlock()
	close(received)
	e.world.record(e.host, "opens stream %d to %s", id, replica)
	go func() {
		<-s.finished
		e.world.record(e.host, "stream %d to %s has ended: %s %s %v", id, replica, s.status, s.message, s.err)
		e.quotas.mu.Lock()
		defer e.quotas.mu.Unlock()
		if e.stream == s {
			e.stream = nil
		}
	}()
}

// connect returns the connection to use, a new one if necessary, and its sluice.
func (e *quotaEnvoy) connect() (*grpcConn, string, error) {
	e.quotas.mu.Lock()
	var healthy []string
	for _, r := range e.world.replicas {
		if e.healthy[r.host] || !e.world.shared {
			healthy = append(healthy, r.host)
		}
	}
	var last *grpcConn
	if n := len(e.conns); n > 0 {
		last = e.conns[n-1]
	}
	previous := e.replica
	e.quotas.mu.Unlock()
	if len(healthy) == 0 {
		return nil, "", errors.New("no healthy sluice")
	}
	replica := healthy[hashText(e.host+e.now().String())%uint64(len(healthy))]
	if last != nil && replica == previous && last.usable() {
		return last, replica, nil
	}
	c, err := e.dial(replica, e.quotas.pongDelay)
	if err != nil {
		return nil, "", err
	}
	if last != nil {
		last.close()
	}
	e.quotas.mu.Lock()
	defer e.quotas.mu.Unlock()
	e.conns, e.replica = append(e.conns, c), replica
	go e.keepAlive(c)
	return c, replica, nil
}

func (e *quotaEnvoy) dial(replica string, pongDelay time.Duration) (*grpcConn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	conn, err := e.world.network.dial(ctx, e.host, replica+grpcPort)
	if err != nil {
		return nil, err
	}
	return newGRPC(suspendable{conn, e}, pongDelay, 1<<20)
}

// keepAlive closes a connection whose PING is not acknowledged within 2 s, as configured in
// docs/rlqs.md.
func (e *quotaEnvoy) keepAlive(c *grpcConn) {
	for {
		select {
		case <-time.After(10 * time.Second):
		case <-c.done:
			return
		}
		if c.ping() != nil {
			return
		}
		select {
		case <-c.pongs:
		case <-c.done:
			return
		case <-time.After(2 * time.Second):
			e.awaitResume()
			e.world.record(e.host, "closes a connection without a pong")
			c.close()
			return
		}
	}
}

// receive applies the actions of a message.
func (e *quotaEnvoy) receive(s *grpcStream, message []byte) {
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
		if b.Apply(e.now(), actionOf(a)); b.Rate != was.Rate {
			b.changedAt = time.Now()
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
	bucket := assignment.GetRateLimitStrategy().GetTokenBucket()
	switch {
	case assignment == nil:
		return &quota.Action{Kind: quota.Abandon}
	case bucket == nil && assignment.GetRateLimitStrategy().GetBlanketRule() == 0:
		return &quota.Action{Kind: quota.AssignAllowAll, TTL: assignment.GetAssignmentTimeToLive().AsDuration()}
	case bucket == nil:
		return &quota.Action{Kind: quota.AssignDenyAll, TTL: assignment.GetAssignmentTimeToLive().AsDuration()}
	}
	return &quota.Action{
		Kind: quota.Assign, TTL: assignment.GetAssignmentTimeToLive().AsDuration(),
		Rate: quota.Rate(bucket.GetTokensPerFill().GetValue()), MaxTokens: bucket.GetMaxTokens(),
	}
}

// checkHealth asks a sluice every second whether it divides the domain.
func (e *quotaEnvoy) checkHealth(ctx context.Context, replica string) {
	message, err := proto.Marshal(&grpc_health_v1.HealthCheckRequest{Service: "quota." + quotaDomain})
	if err != nil {
		panic(err)
	}
	var c *grpcConn
	check := func() error {
		if c == nil || !c.usable() {
			if c, err = e.dial(replica, 0); err != nil {
				return err
			}
		}
		b, err := c.call(ctx, "/grpc.health.v1.Health/Check", time.Second, message)
		m := new(grpc_health_v1.HealthCheckResponse)
		if err == nil {
			err = proto.Unmarshal(b, m)
		}
		if err == nil && m.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
			err = fmt.Errorf("%v", m.GetStatus())
		}
		return err
	}
	for wait := time.Duration(0); ; wait = time.Second {
		select {
		case <-time.After(wait + e.world.network.latencyOf(e.host+replica)):
		case <-ctx.Done():
			if c != nil {
				c.close()
				<-c.done
			}
			return
		}
		e.awaitResume()
		err := check()
		e.quotas.mu.Lock()
		if e.healthy[replica] != (err == nil) {
			e.world.record(e.host, "health of %s: %v", replica, errText(err))
		}
		e.healthy[replica] = err == nil
		e.quotas.mu.Unlock()
	}
}

// close closes all connections.
func (e *quotaEnvoy) close() {
	e.quotas.mu.Lock()
	conns := e.conns
	e.quotas.mu.Unlock()
	for _, c := range conns {
		c.close()
		<-c.done
		if c.violated != "" {
			e.world.fail("%s: the server violates the protocol: %s", e.host, c.violated)
		}
	}
}

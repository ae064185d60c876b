package simulation

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"

	"github.com/sluice-ratelimit/sluice/e2e/h2client"
	"github.com/sluice-ratelimit/sluice/e2e/torture/hostile"
)

// attack is a hostile client of one sluice.
type attack struct {
	name    string // of quotaAttacks or of package hostile
	replica string
	at      time.Duration // after the start of the traffic
	d       time.Duration // 0: until all sluices have stopped
	conns   int
}

func (a attack) String() string {
	return fmt.Sprintf("%v: %d connections to %s: %s for %v", a.at, a.conns, a.replica, a.name, a.d)
}

// stormName is the attack of a storm, see [quotaPlan].
const stormName = "quota streams come and go"

// quotaAttacks are attacks by streams of the quota service. They return when ctx ends.
var quotaAttacks = map[string]func(ctx context.Context, a *attacker){
	"quota streams never read": func(ctx context.Context, a *attacker) {
		a.reportQuotas(ctx, func(c net.Conn) net.Conn { return neverRead{c, ctx} }, h2client.Options{})
	},
	"quota streams without pongs": func(ctx context.Context, a *attacker) {
		a.reportQuotas(ctx, func(c net.Conn) net.Conn { return c }, h2client.Options{PongDelay: time.Hour, Window: 1 << 20})
	},
	stormName: func(ctx context.Context, a *attacker) { a.openAndReset(ctx) },
}

// moreRules returns the rules of the domains other than [domain], as documents of a rule file.
func (w *world) moreRules() string {
	rules := w.quotas.rules()
	if len(w.attacks) > 0 {
		rules += "---\ndomain: attacked\ndescriptors: [{ key: client, rate_limit: { unit: second, requests_per_unit: 5, algorithm: sliding_window } }]\n"
	}
	return rules
}

// attackNames are the names of the attacks of package hostile.
var attackNames = func() (names []string) {
	for _, a := range hostile.Attacks(hostile.Target{}) {
		names = append(names, a.Name)
	}
	return names
}()

// chooseAttacks adds attacks to a third of the scenarios.
func (c *scenario) chooseAttacks() {
	r := rand.New(rand.NewPCG(c.seed, 3))
	if c.quota != nil && c.quota.storm {
		c.attacks = []attack{{name: stormName, replica: "sluice-0", at: 22 * time.Second, d: 20 * time.Second, conns: 1}}
	}
	if r.IntN(3) > 0 {
		return
	}
	for range 1 + r.IntN(3) {
		a := attack{
			name: attackNames[r.IntN(len(attackNames))], replica: fmt.Sprint("sluice-", r.IntN(c.replicas)),
			at: time.Duration(r.Int64N(int64(c.duration - 10*time.Second))), conns: 1 + r.IntN(4),
		}
		if isOfQuotas := c.quota != nil && r.IntN(2) == 0; isOfQuotas || r.IntN(2) == 0 {
			a.d = min(time.Duration(1+r.IntN(20))*time.Second, c.duration-a.at)
			if isOfQuotas {
				a.name = []string{"quota streams never read", "quota streams without pongs"}[r.IntN(2)]
				a.conns *= 1 + r.IntN(12)
			}
		}
		c.attacks = append(c.attacks, a)
	}
}

// attacker plays an attack.
type attacker struct {
	attack

	world  *world
	host   string
	link   string        // name of a connection of quotaAttacks
	random *rand.Rand    // of the connection
	left   *atomic.Int64 // bytes that all connections still send
}

// maxHostileBytes is how much an attacker sends, since processing it takes time.
const maxHostileBytes = 150 << 10

// startAttacks starts all attackers. The function that it returns ends them.
func (w *world) startAttacks() (stop func()) {
	if len(w.attacks) == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i, plan := range w.attacks {
		a := &attacker{attack: plan, world: w, host: fmt.Sprint("hostile-", i), left: new(atomic.Int64)}
		a.left.Store(maxHostileBytes)
		all.Go(func() { a.play(ctx) })
	}
	return func() {
		cancel()
		all.Wait()
	}
}

func (a *attacker) play(ctx context.Context) {
	if !sleep(ctx, a.at) {
		return
	}
	a.world.record(a.host, "attacks %s: %s", a.replica, a.name)
	if a.d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, a.d)
		defer cancel()
	}
	if own := quotaAttacks[a.name]; own != nil {
		var conns sync.WaitGroup
		for i := range a.conns {
			c := *a
			c.link = fmt.Sprint(a.host, " ", i)
			c.random = rand.New(rand.NewPCG(a.world.seed, hashText(c.link)))
			conns.Go(func() { own(ctx, &c) })
		}
		conns.Wait()
		return
	}
	t := hostile.Target{Addr: a.replica + grpcPort, Domain: "attacked", Key: "client", Value: "mallory", Dial: a.dial}
	found := mustHave(hostile.Find(a.name, t))
	for ctx.Err() == nil { // it ends when a sluice does not run
		_, _ = found.Run(ctx, t, a.conns)
		time.Sleep(time.Second)
	}
}

// dial connects, at most a few times per second.
func (a *attacker) dial(ctx context.Context, to string) (net.Conn, error) {
	time.Sleep(300*time.Millisecond + a.world.network.latencyOf(a.host+a.link))
	c, err := a.world.network.dial(ctx, a.host, to)
	if err != nil {
		return nil, err
	}
	return pacedConn{c, a}, nil
}

// pacedConn sends at most 16 KiB per 30 ms.
type pacedConn struct {
	net.Conn

	attacker *attacker
}

func (c pacedConn) Write(p []byte) (written int, err error) {
	for len(p) > 0 && err == nil {
		time.Sleep(30*time.Millisecond + c.attacker.world.network.latencyOf(c.attacker.host+c.attacker.link))
		n := min(len(p), 16<<10)
		if c.attacker.left.Add(-int64(n)) < 0 {
			time.Sleep(time.Minute)
			return written, io.ErrShortWrite
		}
		n, err = c.Conn.Write(p[:n])
		written, p = written+n, p[n:]
	}
	return written, err
}

// neverRead is a connection whose client does not read until ctx ends.
type neverRead struct {
	net.Conn

	ctx context.Context //nolint:containedctx // a Read has no other way to end
}

func (c neverRead) Read(p []byte) (int, error) {
	<-c.ctx.Done()
	return c.Conn.Read(p)
}

// reportQuotas opens streams of the quota service and reports requests on all of them, again and
// again. In the end it reads what was queued for them.
func (a *attacker) reportQuotas(ctx context.Context, use func(net.Conn) net.Conn, o h2client.Options) {
	report := hostileReport(1000)
	a.connect(ctx, a.replica+grpcPort, func(conn net.Conn) {
		c, err := h2client.New(use(conn), o)
		if err != nil {
			return
		}
		defer c.Close()
		var streams []*h2client.Stream
		var queued [5]burst
		for i := range queued {
			if s, err := c.Open(quotaPath, 0, report, queued[i].add); err == nil {
				streams = append(streams, s)
			}
		}
		for err == nil && ctx.Err() == nil {
			time.Sleep(time.Second)
			for _, s := range streams {
				err = s.Send(report)
			}
		}
		if err == nil {
			err = c.SetWindow(1 << 20)
			time.Sleep(100 * time.Millisecond)
		}
		if c.Close(); err != nil {
			return
		}
		<-c.Done
		most := 0
		for _, b := range queued {
			most = max(most, b.n)
		}
		a.world.checkQueued(most)
	})
}

// hostileReport returns a report of a large demand.
func hostileReport(n uint64) []byte {
	return mustMarshal(&rlqs.RateLimitQuotaUsageReports{Domain: quotaDomain, BucketQuotaUsages: []*rlqs.RateLimitQuotaUsageReports_BucketQuotaUsage{{
		BucketId: &rlqs.BucketId{Bucket: map[string]string{"sluice": quotaKey, quotaKey: "steady"}}, NumRequestsAllowed: n, NumRequestsDenied: n,
	}}})
}

// openAndReset opens a quota stream, reports and resets it, each 1 to 4 ms. It resets some only when
// it has opened the next one.
func (a *attacker) openAndReset(ctx context.Context) {
	gap := time.Duration(1+a.random.IntN(4)) * time.Millisecond
	for sleep(ctx, time.Second) {
		conn, err := a.world.network.dial(ctx, a.host, a.replica+grpcPort)
		if err != nil {
			continue
		}
		c := mustHave(h2client.New(conn, h2client.Options{Window: 1 << 20}))
		for sleep(ctx, gap) {
			s, err := c.Open(quotaPath, 0, hostileReport(100), func(*h2client.Stream, []byte) {})
			if err != nil {
				break
			}
			late := time.Duration(0)
			if a.random.IntN(50) == 0 {
				late = 2 * gap
			}
			time.AfterFunc(late, s.Reset)
		}
		c.Close()
		<-c.Done
	}
}

// burst counts the messages that arrive together with the first one.
type burst struct {
	began time.Time
	n     int
}

func (b *burst) add(*h2client.Stream, []byte) {
	if b.n == 0 {
		b.began = time.Now()
	}
	if time.Since(b.began) < 100*time.Microsecond {
		b.n++
	}
}

// checkQueued checks that only one message was queued for a stream that was not read. Another one may
// follow at once.
func (w *world) checkQueued(n int) {
	if n > 2 {
		w.fail("%d messages were queued for a quota stream that was not read, at most 2 allowed", n)
	}
}

// connect passes connections to use, one after the other, until ctx ends. It closes the last one a
// second later.
func (a *attacker) connect(ctx context.Context, to string, use func(net.Conn)) {
	for ctx.Err() == nil {
		c, err := a.dial(ctx, to)
		if err != nil {
			continue
		}
		end := context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, func() { _ = c.Close() }) })
		use(c)
		end()
		_ = c.Close()
	}
}

// Bounds on what honest clients notice (DESIGN.md, docs/operations.md).
const (
	maxReload = 2 * time.Second
	maxDrain  = drainTimeout + 3*time.Second
)

// checkAnswered verifies that each call was decided within its deadline, unless there was a fault. A
// response may be delayed until the deadline, and then arrive too late (docs/algorithms.md).
func (w *world) checkAnswered() {
	for _, e := range w.ledger.entries {
		if e.limit.maxWait > w.callTimeout-4*maxLatency {
			continue
		}
		if e.unanswered != nil && w.during(e.sent, e.received.Add(time.Millisecond), func(f fault) bool { return w.affects(f, e.replica) && disturbs(f) && !effectsOf[f.kind].changes }) == 0 {
			w.fail("a call to %s at %v was not answered although there was no fault: %v", e.replica, e.sent.Sub(w.began), e.unanswered)
		}
	}
}

// isExpected reports whether attacks may have counted in a metric.
func (w *world) isExpected(metric string) bool {
	return len(w.attacks) > 0 && (strings.HasSuffix(metric, " flood") || strings.HasSuffix(metric, " protocol"))
}

// unexpected returns the conditions that attacks do not raise.
func (w *world) unexpected(codes string) string {
	return strings.Join(slices.DeleteFunc(strings.Fields(codes), func(code string) bool {
		return len(w.attacks) > 0 && (strings.HasPrefix(code, "requests_") || code == "connections_rejected")
	}), " ")
}

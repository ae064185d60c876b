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

	"github.com/sluice-ratelimit/sluice/e2e/torture/hostile"
)

// attack is a hostile client of one sluice.
type attack struct {
	name    string // of package hostile
	replica string
	at      time.Duration // after the start of the traffic
	d       time.Duration // 0: until all sluices have stopped
	conns   int
}

func (a attack) String() string {
	return fmt.Sprintf("%v: %d connections to %s: %s for %v", a.at, a.conns, a.replica, a.name, a.d)
}

// moreRules returns the rules of the domains other than [domain], as documents of a rule file.
func (w *world) moreRules() string {
	if len(w.attacks) == 0 {
		return ""
	}
	return "---\ndomain: attacked\ndescriptors: [{ key: client, rate_limit: { unit: second, requests_per_unit: 5, algorithm: sliding_window } }]\n"
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
	if r.IntN(3) > 0 {
		return
	}
	for range 1 + r.IntN(3) {
		a := attack{
			name: attackNames[r.IntN(len(attackNames))], replica: fmt.Sprint("sluice-", r.IntN(c.replicas)),
			at: time.Duration(r.Int64N(int64(c.duration - 10*time.Second))), conns: 1 + r.IntN(4),
		}
		if r.IntN(2) == 0 {
			a.d = min(time.Duration(1+r.IntN(20))*time.Second, c.duration-a.at)
		}
		c.attacks = append(c.attacks, a)
	}
}

// attacker plays an attack.
type attacker struct {
	attack

	world *world
	host  string
	left  *atomic.Int64 // bytes that all connections still send
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
	t := hostile.Target{Addr: a.replica + grpcPort, Domain: "attacked", Key: "client", Value: "mallory", Dial: a.dial}
	found := mustHave(hostile.Find(a.name, t))
	for ctx.Err() == nil { // it ends when a sluice does not run
		_, _ = found.Run(ctx, t, a.conns)
		time.Sleep(time.Second)
	}
}

// dial connects, at most a few times per second.
func (a *attacker) dial(ctx context.Context, to string) (net.Conn, error) {
	time.Sleep(300*time.Millisecond + a.world.network.latencyOf(a.host))
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
		time.Sleep(30*time.Millisecond + c.attacker.world.network.latencyOf(c.attacker.host))
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

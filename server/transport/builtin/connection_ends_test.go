package builtin

import (
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"golang.org/x/net/http2"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/clock"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/servertest"
	"github.com/sluice-ratelimit/sluice/server/transport"
	"github.com/sluice-ratelimit/sluice/server/transport/h2"
)

// connectionEnds are ways in which a connection is closed, by the client or because of it.
var connectionEnds = map[string]func(c *rawClient){
	"PUSH_PROMISE": func(c *rawClient) { _ = c.fr.WriteRawFrame(http2.FramePushPromise, 0, 1, nil) },
	"pings": func(c *rawClient) {
		for range 5 {
			_ = c.fr.WritePing(false, [8]byte{})
		}
	},
	"a frame that is too large": func(c *rawClient) { _, _ = c.conn.Write([]byte{1, 0, 0, 0, 0, 0, 0, 0, 1}) },
	"a window that is too large": func(c *rawClient) {
		c.fr.AllowIllegalWrites = true
		_ = c.fr.WriteWindowUpdate(0, 1<<31-1)
	},
	"useless frames": func(c *rawClient) {
		for range 1200 {
			_ = c.fr.WriteSettings()
		}
	},
	"resets of all calls": func(c *rawClient) {
		for id := uint32(1); id < c.next; id += 2 {
			_ = c.fr.WriteRSTStream(id, http2.ErrCodeCancel)
		}
		_ = c.fr.WriteRawFrame(http2.FramePushPromise, 0, 1, nil)
	},
	"resets of some calls": func(c *rawClient) {
		for id := uint32(1); id < c.next; id += 6 {
			_ = c.fr.WriteRSTStream(id, http2.ErrCodeCancel)
		}
		_ = c.fr.WriteRawFrame(http2.FramePushPromise, 0, 1, nil)
	},
	"close": func(c *rawClient) { _ = c.conn.Close() },
}

// countEndsBeforePing returns how many calls end before the server acknowledges a PING.
func (c *rawClient) countEndsBeforePing() (n int) {
	c.t.Helper()
	c.must(c.fr.WritePing(false, [8]byte{'n'}))
	for {
		f, err := c.fr.ReadFrame()
		if err != nil {
			c.t.Fatalf("after %d calls: %v", n, err)
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			if f.StreamEnded() {
				n++
			}
		case *http2.PingFrame:
			if f.IsAck() {
				return n
			}
		}
	}
}

// newGatedService returns a service whose requests a gate decides.
func newGatedService(t *testing.T, rules string) (*answer.Service, *gate) {
	t.Helper()
	table := servertest.Table(t)
	g := &gate{table, make(chan func(), 1<<12)}
	settings := answer.Settings{Clock: clock.New(), Decider: g, Namer: descriptors.NewNamer("p:", nil)}
	return servertest.ServiceOn(t, table, settings, rules), g
}

// receive returns functions that decide the next n calls at the gate.
func (g *gate) receive(n int) (decide []func()) {
	for range n {
		decide = append(decide, <-g.waiting)
	}
	return decide
}

// twoRules allow calls of (k, v) at once, and delay those of (wait, v) for seconds, or for 3 ms if
// short is set.
func twoRules(short bool) string {
	waits := "requests_per_unit: 1, unit: second, max_wait: 60s"
	if short {
		waits = "requests_per_unit: 2000, unit: second, max_wait: 3ms"
	}
	return `
domain: d
descriptors:
  - { key: k, rate_limit: { unit: hour, requests_per_unit: 1000000 } }
  - { key: wait, rate_limit: { algorithm: leaky_bucket, slack: 0, ` + waits + ` } }
`
}

// requestOf returns a request for (key, v).
func requestOf(t *testing.T, key string) []byte {
	t.Helper()
	r := simpleRequest()
	r.Descriptors[0].Entries[0].Key = key
	return marshal(t, r)
}

// TestClosedConnectionsDoNotAffectOthers closes a connection, in each way, while a store has its
// calls. The store decides some before the close, some before the reader returns, and some later.
// Another connection, whose calls reuse the memory of released ones, gets all its answers.
func TestClosedConnectionsDoNotAffectOthers(t *testing.T) {
	t.Parallel()
	for name, end := range connectionEnds {
		for _, key := range []string{"k", "wait"} {
			t.Run(name+", "+key, func(t *testing.T) {
				t.Parallel()
				const n = 20 // of each kind
				s, g := newGatedService(t, twoRules(false))
				r := serve(t, s)
				client := r.rawClient(t)
				for range 3 * n {
					client.call(requestOf(t, key), 0)
				}
				decide := g.receive(3 * n)
				w, c := r.onlyConnection(t)
				decided := func(some []func(), left int64) {
					for _, d := range some {
						d()
					}
					await(t, "the calls are decided", func() bool { return c.storeCalls.Load() == left })
				}
				decided(decide[:n], 2*n)
				end(client)
				if name != "close" {
					await(t, "the connection ends", c.isEnding)
				}
				decided(decide[n:2*n], n)

				other := r.rawClient(t)
				for range n {
					other.call(requestOf(t, "k"), 0)
				}
				others := g.receive(n)
				_ = client.conn.Close()
				await(t, "the reader has returned", func() bool { return len(w.snapshotConns()) == 1 })
				decided(decide[2*n:], 0)
				for _, d := range others {
					d()
				}
				await(t, "the other connection's calls are decided", func() bool { return w.snapshotConns()[0].storeCalls.Load() == 0 })
				if got := other.countEndsBeforePing(); got != n {
					t.Errorf("%d of %d calls of the other connection are answered", got, n)
				}
				await(t, "no reply is delayed and no memory is counted", func() bool {
					return testutil.ToFloat64(s.Metrics().PendingDelays) == 0 && w.storeMemory.bytes.Load() == 0
				})
			})
		}
	}
}

// TestDelayOfAResetCallIsCancelled resets a call while a store decides it. The decision delays its
// reply, so its charges are canceled.
func TestDelayOfAResetCallIsCancelled(t *testing.T) {
	t.Parallel()
	s, g := newGatedService(t, twoRules(false))
	r := serve(t, s)
	client := r.rawClient(t)
	client.call(requestOf(t, "wait"), 0) // is not delayed
	id := client.call(requestOf(t, "wait"), 0)
	decide := g.receive(2)
	_, c := r.onlyConnection(t)
	client.must(client.fr.WriteRSTStream(id, http2.ErrCodeCancel))
	await(t, "the call is reset", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.h2.OpenStreams() == 1
	})
	decide[0]()
	decide[1]()
	await(t, "the charges are canceled", func() bool { return testutil.ToFloat64(s.Metrics().CancelledDelays) == 1 })
}

// decideShuffled decides the calls at the gate in random order, until done is closed and none is
// left.
func (g *gate) decideShuffled(r *rand.Rand, done <-chan struct{}) {
	var undecided []func()
	for {
		if len(undecided) > 0 && r.IntN(3) > 0 {
			i := r.IntN(len(undecided))
			undecided[i]()
			undecided = slices.Delete(undecided, i, i+1)
		}
		if len(undecided) > 0 {
			select {
			case decide := <-g.waiting:
				undecided = append(undecided, decide)
			default:
			}
			continue
		}
		select {
		case decide := <-g.waiting:
			undecided = append(undecided, decide)
		case <-done:
			for len(g.waiting) > 0 {
				select {
				case decide := <-g.waiting:
					decide()
				default: // another goroutine took it
				}
			}
			return
		}
	}
}

// TestCallsOfClosedConnections closes connections in random ways, while a store decides their calls
// in random order and timers send replies. Another connection gets all its answers.
func TestCallsOfClosedConnections(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s, g := newGatedService(t, twoRules(true))
	r := serve(t, s)
	done := make(chan struct{})
	var deciding sync.WaitGroup
	for i := range uint64(2) {
		deciding.Go(func() { g.decideShuffled(rand.New(rand.NewPCG(seed, i)), done) })
	}
	other, ended := r.rawClient(t), make(chan struct{})
	other.must(other.fr.WriteWindowUpdate(0, 1<<30))
	go func() {
		defer close(ended)
		random := rand.New(rand.NewPCG(seed, 2))
		names := slices.Sorted(maps.Keys(connectionEnds))
		for range 100 {
			client := r.rawClient(t)
			for range random.IntN(60) {
				id := client.call(requestOf(t, []string{"k", "wait"}[random.IntN(2)]), 0)
				if random.IntN(4) == 0 {
					client.must(client.fr.WriteRSTStream(id-2*uint32(random.IntN(int(id+1)/2)), http2.ErrCodeCancel))
				}
			}
			connectionEnds[names[random.IntN(len(names))]](client)
			_ = client.conn.Close()
		}
	}()
	calls := 0
	for over := false; !over; {
		select {
		case <-ended:
			over = true
		default:
		}
		for range 20 {
			other.call(requestOf(t, "k"), 0)
		}
		other.readEnds(20)
		calls += 20
	}
	w, _ := r.onlyConnection(t)
	close(done)
	deciding.Wait()
	await(t, "all is returned", func() bool {
		return w.storeMemory.bytes.Load() == 0 && testutil.ToFloat64(s.Metrics().PendingDelays) == 0
	})
	t.Logf("%d calls of the other connection were answered", calls)
}

// TestEndedCallIsReleasedOnce ends a connection while a store decides its call, or delays its reply,
// and cancels the stream of the call later. Until then the call is not released, since Cancel would
// then cancel the call of another connection. It is not parallel: nothing else uses the pool.
func TestEndedCallIsReleasedOnce(t *testing.T) {
	for _, key := range []string{"k", "wait"} {
		s, g := newGatedService(t, twoRules(false))
		ours, theirs := net.Pipe()
		defer ours.Close()
		defer theirs.Close()
		config := transport.Config{Limits: fillLimits(transport.Limits{}), Handler: answer.NewHandler(s, zap.NewNop(), nil, false), Quotas: newQuotas(t, s, new(atomic.Int64))}
		c := newConnection(New(config), ours)
		c.leaseConn, c.out = s.Connect("client"), getOutput()
		c.mailbox.flushing = true // so that no flusher starts
		pend := func() *rateLimitCall {
			_, _, pending := c.shouldRateLimit(&h2.Call{Stream: 1, Message: requestOf(t, key)}, nil)
			(<-g.waiting)()
			x, _ := pending.(*rateLimitCall)
			return x
		}
		x := pend()
		if key == "wait" { // the second of two replies is delayed
			must.OK(t, c.processMailboxLocked(0))
			x = pend()
			must.OK(t, c.processMailboxLocked(0))
			if x.delayTimer == nil || !x.delayTimer.Stop() {
				t.Fatal("the reply is not delayed")
			}
			x.transfer(ownerTimer, ownerMailbox)
			c.postCompletion(x)
		}
		c.ending = true
		must.OK(t, c.processMailboxLocked(0))
		if x.conn != c {
			t.Errorf("%s: the call is released before its stream is canceled", key)
			continue
		}
		if x.Cancel(); x.conn != nil {
			t.Errorf("%s: the call is not released when its stream is canceled", key)
		}
	}
}

// panickingGate panics after it has accepted a request.
type panickingGate struct{ *gate }

func (g panickingGate) Decide(now limiter.Time, b *limiter.Batch, names [][]byte, w limiter.Waiter) (bool, error) {
	_, _ = g.gate.Decide(now, b, names, w)
	panic("a bug after the request was taken")
}

// TestPanicWithCallInStore has the decider panic after it has accepted a call. The call is answered
// and counted once, and hits that the store charges for it later are returned.
func TestPanicWithCallInStore(t *testing.T) {
	t.Parallel()
	table := servertest.Table(t)
	g := &gate{table, make(chan func(), 10)}
	settings := answer.Settings{Clock: clock.New(), Decider: panickingGate{g}, Namer: descriptors.NewNamer("p:", nil)}
	s := servertest.ServiceOn(t, table, settings, onePermit)
	r := serve(t, s)
	client := r.rawClient(t)
	client.call(requestOf(t, "k"), 0)
	if got := client.readEnds(1)[1]; got != "13" {
		t.Errorf("the call ends with %s, want 13", got)
	}
	_, c := r.onlyConnection(t)
	(<-g.waiting)()
	(<-g.waiting)() // returns the slot
	awaitReturned(t, s, "reset", 1)
	if n := c.storeCalls.Load(); n != 0 || testutil.ToFloat64(s.Metrics().ServiceErrors) != 1 {
		t.Errorf("%d calls are counted as undecided, and %v as failed, want 0 and 1", n, testutil.ToFloat64(s.Metrics().ServiceErrors))
	}
}

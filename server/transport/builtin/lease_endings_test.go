package builtin

import (
	"context"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/clock"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/servertest"
)

// onePermit allows one permit for each value of k. Requests for (wait, v) also wait for a leaky
// bucket.
const onePermit = `
domain: d
descriptors:
  - { key: k, rate_limit: { name: streams, algorithm: concurrency, requests_per_unit: 1, unit: hour } }
  - { key: wait, rate_limits: [
      { name: waited, algorithm: concurrency, requests_per_unit: 2, unit: hour },
      { algorithm: leaky_bucket, requests_per_unit: 1, unit: minute, slack: 0, max_wait: 60s } ] }
`

// isFree reports whether a request would be allowed. It releases the permit that it acquires.
func isFree(t *testing.T, s *answer.Service, c *clock.Clock, request []byte) bool {
	t.Helper()
	x := &answer.Exchange{}
	now, _ := c.Now()
	if _, _, err := s.Answer(now, 0, x, request); err != nil {
		t.Fatal(err)
	}
	s.Cancel(now, x)
	return !x.OverLimit()
}

// gate is a decider that decides in a table, when the test calls the functions in waiting.
type gate struct {
	*limiter.Table
	waiting chan func()
}

func (g *gate) Decide(now limiter.Time, b *limiter.Batch, _ [][]byte, w limiter.Waiter) (bool, error) {
	g.waiting <- func() { g.Table.Decide(now, b); w.Decided(nil) }
	return false, nil
}
func (g *gate) Cancel(now limiter.Time, b *limiter.Batch, _ [][]byte) { g.Table.Cancel(now, b) }
func (*gate) Up() bool                                                { return true }
func (*gate) Reset(context.Context, limiter.Time, *limiter.Batch, [][]byte, int) (uint64, error) {
	return 0, nil
}

// TestResetReturnsLease resets calls that have the only permit: with the reply sent, together with
// the request, and while the reply is delayed.
func TestResetReturnsLease(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		request *rls.RateLimitRequest
		reset   func(t *testing.T, c *rawClient, request []byte)
	}{
		"after the reply": {simpleRequest(), func(_ *testing.T, c *rawClient, request []byte) {
			id := c.call(request, 0)
			c.readEnds(1)
			c.must(c.fr.WriteRSTStream(id, http2.ErrCodeCancel))
		}},
		"twice and another without a permit": {simpleRequest(), func(_ *testing.T, c *rawClient, request []byte) {
			id := c.call(request, 0)
			c.must(c.fr.WriteRSTStream(c.call(request, 0), http2.ErrCodeCancel))
			c.readEnds(2)
			c.must(c.fr.WriteRSTStream(id, http2.ErrCodeCancel))
			c.must(c.fr.WriteRSTStream(id, http2.ErrCodeCancel))
		}},
		"with the request": {simpleRequest(), func(_ *testing.T, c *rawClient, request []byte) {
			c.must(c.fr.WriteRSTStream(c.call(request, 0), http2.ErrCodeCancel))
		}},
		"before a window for the reply": {simpleRequest(), func(_ *testing.T, c *rawClient, request []byte) {
			c.must(c.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1}))
			c.must(c.fr.WriteRSTStream(c.call(request, 0), http2.ErrCodeCancel))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := clock.New()
			s := service(t, answer.Settings{Clock: now}, onePermit)
			client, request := serve(t, s).rawClient(t), marshal(t, test.request)
			test.reset(t, client, request)
			awaitReturned(t, s, "reset", 1)
			if !isFree(t, s, now, request) {
				t.Error("the permit is not free")
			}
		})
	}
}

// TestResetReturnsOwnLease resets streams with the same numbers as those of another connection,
// which has the only permit.
func TestResetReturnsOwnLease(t *testing.T) {
	t.Parallel()
	now := clock.New()
	s := service(t, answer.Settings{Clock: now}, onePermit)
	r, request := serve(t, s), marshal(t, simpleRequest())
	holder, thief := r.rawClient(t), r.rawClient(t)
	holder.call(request, 0)
	holder.readEnds(1)
	for range 3 {
		id := thief.call(request, 0)
		thief.readEnds(1)
		thief.must(thief.fr.WriteRSTStream(id, http2.ErrCodeCancel))
	}
	thief.call(request, 0)
	thief.readEnds(1) // after its resets
	if isFree(t, s, now, request) {
		t.Error("the permit is free")
	}
}

// TestDelayedCallReturnsLease resets a call while its reply is delayed. Until then its memory is counted.
func TestDelayedCallReturnsLease(t *testing.T) {
	now := clock.New()
	s := service(t, answer.Settings{Clock: now}, onePermit)
	r := serve(t, s)
	client := r.rawClient(t)
	wait := simpleRequest()
	wait.Descriptors[0].Entries[0].Key = "wait"
	request := marshal(t, wait)
	client.call(request, 0)
	client.readEnds(1)
	id := client.call(request, 0) // its reply is delayed
	held := func(n float64) func() bool {
		return func() bool { return servertest.MetricByLabel(t, s, "sluice_leases_active")["d"] == n }
	}
	await(t, "two leases are active", held(2))
	w, _ := r.onlyConnection(t)
	await(t, "the delayed call is counted", func() bool { return w.buffered.bytes.Load() >= int64(len(request)) })
	client.must(client.fr.WriteRSTStream(id, http2.ErrCodeCancel))
	await(t, "one lease is active", held(1))
	await(t, "no bytes are counted", func() bool { return w.buffered.bytes.Load() == 0 })
	awaitReturned(t, s, "reset", 1)
}

// TestCallInStoreReturnsLease resets a call, or closes its connection, while a store decides it.
func TestCallInStoreReturnsLease(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(c *rawClient, id uint32){
		"reset":      func(c *rawClient, id uint32) { c.must(c.fr.WriteRSTStream(id, http2.ErrCodeCancel)) },
		"connection": func(c *rawClient, _ uint32) { _ = c.conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table := servertest.Table(t)
			g := &gate{table, make(chan func(), 10)}
			now := clock.New()
			s := servertest.ServiceOn(t, table, answer.Settings{Clock: now, Decider: g, Namer: descriptors.NewNamer("p:", nil)}, onePermit)
			r := serve(t, s)
			client, request := r.rawClient(t), marshal(t, simpleRequest())
			id := client.call(request, 0)
			decide := <-g.waiting
			_, c := r.onlyConnection(t)
			leave(client, id)
			await(t, "the call is cancelled", func() bool {
				c.mu.Lock()
				defer c.mu.Unlock()
				return c.h2.OpenStreams() == 0
			})
			decide()
			(<-g.waiting)() // returns the slot
			awaitReturned(t, s, "reset", 1)
		})
	}
}

// awaitReturned waits until n leases were returned in one way, and none in any other.
func awaitReturned(t *testing.T, s *answer.Service, by string, n float64) {
	t.Helper()
	await(t, "leases were returned", func() bool {
		got := servertest.MetricByLabel(t, s, "sluice_leases_released_total")
		return len(got) == 1 && got[by] == n
	})
}

package store

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest/luahost"
)

// TestSplitRequestIsUndoneInItsSubWindow denies a request whose sliding window is in one store and
// whose other limit is in a distant one. Others charge later sub-windows before the denial is known.
func TestSplitRequestIsUndoneInItsSubWindow(t *testing.T) {
	t.Parallel()
	const sub = 200 * time.Millisecond
	ring := &limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: 1000, Window: 10 * sub, SubWindows: 10}
	none := &limiter.Policy{Algorithm: limiter.FixedWindow, Window: time.Second}
	hits := func(n uint64) limiter.Charge {
		c := oneHit(1, ring)
		c.Hits = n
		return c
	}
	for _, others := range []int{0, 1, 3} {
		synctest.Test(t, func(t *testing.T) {
			server := func(trip time.Duration) redis.Server {
				l := make(luahost.Memory)
				go func() { _ = luahost.NewServer().Serve(l) }()
				t.Cleanup(func() { close(l) })
				return redis.Server{Network: "tcp", Address: "store:1", DialContext: func(context.Context, string, string) (net.Conn, error) {
					return l.Dial(trip), nil
				}}
			}
			distant := server(4 * sub)
			s := newStore(t, Options{
				Server: server(time.Millisecond), PerSecond: &distant,
				at: func() limiter.Time { return limiter.Time(time.Now().UnixNano()) },
			})
			runUntilEnd(t, s)
			if !s.Await(t.Context()) {
				t.Fatal("no connection")
			}
			var c, other caller
			must.OK(t, c.decide(s, hits(7)))
			go func() {
				for range others {
					time.Sleep(sub)
					_ = other.decide(s, hits(20))
				}
			}()
			if must.OK(t, c.decide(s, hits(50), oneHit(2, none))); !c.b.Denied || c.b.Decisions[0].Charged != 0 {
				t.Fatalf("decided %+v, want a denial", c.b.Decisions)
			}
			time.Sleep(4 * sub)
			must.OK(t, c.decide(s, hits(0)))
			if used, want := c.b.Decisions[0].Before, uint64(7+20*others); used != want {
				t.Errorf("%d requests of others: %d hits are used, want %d", others, used, want)
			}
		})
	}
}

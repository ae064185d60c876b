package store

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest/luahost"
)

// TestBatchesInFlight checks how many batches may be in flight at each round trip.
func TestBatchesInFlight(t *testing.T) {
	t.Parallel()
	for trip, want := range map[time.Duration]int{
		-time.Second: 2, 0: 2, time.Millisecond: 2, 14 * time.Millisecond: 2, 15 * time.Millisecond: 3, 80 * time.Millisecond: 16, time.Hour: 32,
	} {
		sh := newIdleShard(t)
		sh.shortestTrip.Store(int64(time.Hour))
		sh.learnTrip(trip)
		sh.learnTrip(trip + time.Second) // a busy server
		if n := sh.mostInFlight(); n != want {
			t.Errorf("%d batches in flight with a round trip of %v, want %d", n, trip, want)
		}
	}
}

// A slow server at a distance is used after a few round trips.
func TestDistantSlowStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const trip = 80 * time.Millisecond
		host, l := luahost.NewServer(), make(luahost.Memory)
		host.OnCommand(func(_ string, args [][]byte, _ []byte) { time.Sleep(time.Duration(len(args)) * 100 * time.Microsecond) })
		go func() { _ = host.Serve(l) }()
		defer close(l)
		s := newStore(t, Options{
			at: func() limiter.Time { return limiter.Time(time.Now().UnixNano()) }, Timeout: time.Second, DialTimeout: time.Second,
			Server: redis.Server{Network: "tcp", Address: "store:1", DialContext: func(context.Context, string, string) (net.Conn, error) {
				return l.Dial(trip), nil
			}},
		})
		start := time.Now()
		runUntilEnd(t, s)
		if !s.Await(t.Context()) {
			t.Fatal("no connection")
		}
		if took := time.Since(start); took > 5*trip {
			t.Errorf("connected after %v, want %v at most", took, 5*trip)
		}
	})
}

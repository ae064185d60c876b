package store

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// TestNoPolicyOutlivesItsRequest looks at what waits for the store when its callers have gone: what gives a lease back, and
// a reset. It must not refer to the policies of the requests, whose memory exchanges use again for overrides and rows.
func TestNoPolicyOutlivesItsRequest(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t)
	r := newRelay(t, srv.Addr, nil, false)
	s := runStore(t, Options{Server: redis.Server{Network: "tcp", Address: r.addr}, Timeout: time.Minute})
	storetest.Eventually(t, "up", s.Up)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	now := limiter.Time(time.Now().UnixNano())
	var c caller
	for _, p := range append(reserving(true), spot(1, 5).Policy) {
		take, held := func() uint64 { return c.reserve(t, s, p, 60) }, func() bool { return c.reserved(t, s, p) > 0 }
		if p.Reserve == nil {
			take, held = func() uint64 { return c.take(t, s, hit(1, p)) }, func() bool { return c.used(t, s, hit(1, p)) > 0 }
		}
		if take() == 0 {
			t.Fatal("nothing can be held")
		}
		r.hold(true)
		s.Cancel(now, &c.b, c.names)
		if _, err := s.Reset(gone, now, &limiter.Batch{Charges: []limiter.Charge{{Policy: p}}}, [][]byte{[]byte("s1{another}_x")}, 0); err == nil {
			t.Error("a reset whose caller has gone was done")
		}
		lane, waiting := s.fleet.lane(0), 0
		lane.mu.Lock()
		for a := lane.open.first; a != nil; a = a.next {
			waiting++
			for _, charge := range a.batch.Charges {
				if charge.Policy == p || p.Reserve != nil && charge.Policy.Reserve == p.Reserve {
					t.Errorf("algorithm %d: a charge that waits for the store has the policy of the request", p.Algorithm)
				}
			}
		}
		lane.mu.Unlock()
		if waiting != 2 {
			t.Errorf("%d wait for the store, want what gives back and the reset", waiting)
		}
		r.hold(false)
		storetest.Eventually(t, "what was held is free", func() bool { return !held() })
		srv.Must("FLUSHALL")
	}
}

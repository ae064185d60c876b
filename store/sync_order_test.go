package store

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// steadyTraffic makes a request whenever hits are synced, while the fallback decides.
type steadyTraffic struct {
	recorder
	store atomic.Pointer[Store]
	runs  atomic.Int64
}

func (o *steadyTraffic) Synced(uint64) {
	o.runs.Add(1)
	if s := o.store.Load(); !s.main.shardOf(0).accepts() {
		var c caller
		_ = c.decide(s, oneHit(1, hugeFixedWindow))
	}
}

// A recovering shard is used although new hits arrive during each round trip of the sync.
func TestSyncEndsUnderTraffic(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t)
	r := newRelay(t, srv.Addr, nil, false)
	o := &steadyTraffic{}
	s := runStore(t, Options{Server: redis.Server{Network: "tcp", Address: r.addr}, Observer: o, Fallback: Local, Timeout: time.Minute, DialTimeout: time.Minute})
	o.store.Store(s)
	storetest.Eventually(t, "up", s.Up)
	r.setBlocked(true)
	storetest.Eventually(t, "unavailable", func() bool { return !s.Up() })
	var c caller
	_ = c.decide(s, oneHit(1, hugeFixedWindow))
	r.setBlocked(false)
	storetest.Eventually(t, "up", s.Up)
	storetest.Eventually(t, "all hits are synced", func() bool { return s.unsyncedCounters() == 0 })
	if n := o.runs.Load(); n == 0 || n > 3 {
		t.Errorf("hits were synced %d times, want one to three times: of the outage, and of the first time", n)
	}
}

// The prober does not use a connection any more that was lost.
func TestNoSyncOnLostConnection(t *testing.T) {
	t.Parallel()
	for range 30 { // a random event would be first
		s := newStore(t, Options{Server: redis.Server{Network: "tcp", Address: "127.0.0.1:1"}, Panicked: func(any) { t.Error("the connection was used") }})
		sh := s.main.shardOf(0)
		lost := lostConn{&redis.Conn{}, &redis.Error{Kind: redis.Timeout}}
		b := limiter.Batch{Charges: []limiter.Charge{oneHit(1, hugeFixedWindow)}}
		at := limiter.Time(time.Now().UnixNano())
		if err := s.fallBack(at, &b); err != nil {
			t.Fatal(err)
		}
		var c caller
		s.main.recordUnsynced(Local, at, &b, 0, nameOf("s1", &b.Charges[0]), "", 0, &c)
		sh.requestSync()
		sh.lost <- lost
		if got, ok := sh.monitor(t.Context(), lost.client); !ok || got != lost {
			t.Errorf("monitor = %v, %v, want the lost connection", got, ok)
		}
		if s.unsyncedCounters() != 1 {
			t.Error("hits were synced")
		}
	}
}

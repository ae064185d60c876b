package store

import (
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
)

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

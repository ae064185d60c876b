package store

import (
	"context"
	"testing"

	"github.com/sluice-ratelimit/sluice/store/redis"
)

// TestStopIsNoOutage checks that a monitor whose connection was closed by the end of ctx does not
// report the store as unavailable.
func TestStopIsNoOutage(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 { // select chooses at random
		sh := newIdleShard(t)
		done := make(chan struct{})
		close(done)
		c := &redis.Conn{Done: done}
		sh.conn = c
		if err, ok := sh.monitor(ctx, c); ok {
			t.Fatalf("monitor = %v, true; want false", err)
		}
	}
}

//go:build more

package store

import (
	"context"
	"testing"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

func runStore(tb testing.TB, o Options) *Store {
	tb.Helper()
	s := newStore(tb, o)
	s.syncBound = longTimeout // once the store is up, all hits are synced
	runUntilEnd(tb, s)
	return s
}

func serverAt(s *storetest.Server) redis.Server { return redis.Server{Network: "tcp", Address: s.Addr} }

// reset resets the named counter.
func reset(s *Store, p *limiter.Policy, name []byte) (used uint64, err error) {
	b := &limiter.Batch{Charges: []limiter.Charge{{Policy: p}}}
	return s.Reset(context.Background(), limiter.Time(s.options.Clock().UnixNano()), b, [][]byte{name}, 0)
}

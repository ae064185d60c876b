package daemon

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/server/servertest"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// TestClocksDiffer compares clocks whose difference changes.
func TestClocksDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := servertest.Metrics(t)
		metrics.Events.Watch(zap.NewNop())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var offset atomic.Int64
		go watchClocks(ctx, func() time.Duration { return time.Duration(offset.Load()) }, metrics.Conditions)
		for _, s := range []struct {
			ahead time.Duration
			want  any // the field of the condition, or nil
		}{
			{0, nil},
			{500 * time.Millisecond, nil},
			{501 * time.Millisecond, "501ms"},
			{5 * time.Second, "5s"},
			{-5 * time.Second, "-5s"},
			{-400 * time.Millisecond, nil},
		} {
			offset.Store(int64(s.ahead))
			time.Sleep(clocksInterval + 1)
			synctest.Wait()
			var got any
			for _, c := range metrics.Conditions.Active(time.Now()) {
				if c.Code == telemetry.ClocksDiffer {
					got = c.Fields["store_ahead"]
				}
			}
			if got != s.want {
				t.Errorf("the store's clock is %v ahead: the condition has %v, want %v", s.ahead, got, s.want)
			}
		}
	})
}

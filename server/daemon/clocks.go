package daemon

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/telemetry"
)

const (
	// clocksInterval is how often the clocks are compared, and maxClockDifference their greatest
	// difference without a condition.
	clocksInterval     = 5 * time.Second
	maxClockDifference = 500 * time.Millisecond
)

// WatchClocks raises a condition while the clock of this machine differs from the store's. It returns
// when ctx ends. The difference matters only if envoyproxy/ratelimit, whose windows follow the clocks
// of its replicas, has the same counters.
func (d *Daemon) WatchClocks(ctx context.Context) {
	watchClocks(ctx, d.Store.Offset, d.Metrics.Conditions)
}

func watchClocks(ctx context.Context, offset func() time.Duration, conditions *telemetry.Conditions) {
	tick := time.NewTicker(clocksInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if off := offset(); off.Abs() > maxClockDifference {
			conditions.Update(telemetry.ClocksDiffer, "", zap.Duration("store_ahead", off.Round(time.Millisecond)))
		} else {
			conditions.End(telemetry.ClocksDiffer, "")
		}
	}
}

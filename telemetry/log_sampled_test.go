package telemetry

import (
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// setClock is a zap clock that the test sets.
type setClock struct{ now time.Time }

func (c *setClock) Now() time.Time                       { return c.now }
func (*setClock) NewTicker(d time.Duration) *time.Ticker { return time.NewTicker(d) }

// TestSampledAfterClockSet checks how many lines of a message are logged in an interval, also after
// the clock was set back or had been years ahead.
func TestSampledAfterClockSet(t *testing.T) {
	for _, set := range []time.Duration{0, -time.Nanosecond, -time.Second, -time.Hour, -50 * 365 * 24 * time.Hour, time.Hour} {
		core, lines := observer.New(zap.InfoLevel)
		clock := &setClock{now: time.Unix(2_000_000_000, 0)}
		logger := Sampled(zap.New(core, zap.WithClock(clock)), 10*time.Second, 2, 100).With(zap.Int("n", 1))
		burst := func() (passed int) {
			for range 200 {
				logger.Warn("a message")
				logger.Debug("a message")
			}
			return len(lines.TakeAll())
		}
		if n := burst(); n != 3 {
			t.Errorf("%d of 200 lines are logged, want 2 and one of each hundred", n)
		}
		clock.now = clock.now.Add(9 * time.Second)
		if n := burst(); n != 2 {
			t.Errorf("%d of 200 more lines are logged in the same interval, want 2", n)
		}
		clock.now = clock.now.Add(set)
		for range 5 {
			clock.now = clock.now.Add(10 * time.Second)
			if n := burst(); n != 3 {
				t.Errorf("%d of 200 lines are logged in an interval after the clock was set by %v, want 3", n, set)
			}
		}
	}
	core, lines := observer.New(zap.InfoLevel)
	clock := &setClock{now: time.Unix(2_000_000_000, 0)}
	logger := Rare(zap.New(core, zap.WithClock(clock)))
	for range 300 {
		logger.Warn("a message")
		logger.Warn("another message")
		clock.now = clock.now.Add(-time.Second)
	}
	if n := lines.Len(); n < 40 || n > 80 {
		t.Errorf("%d lines are logged in 300 seconds of a clock that runs backwards, want one of each message in ten", n)
	}
}

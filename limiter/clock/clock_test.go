package clock

import (
	"sync"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

const minute = limiter.Time(time.Minute)

// fakeClock is a Clock with simulated system clocks.
type fakeClock struct {
	*Clock
	wall    limiter.Time
	elapsed time.Duration
	reads   int
}

func newFakeClock() *fakeClock {
	f := &fakeClock{Clock: New(), wall: limiter.Time(1_700_000_000_123_456_789)}
	f.readBoth = func() (limiter.Time, time.Duration) {
		f.reads++
		return f.wall, f.elapsed
	}
	return f
}

// pass lets time pass.
func (f *fakeClock) pass(d time.Duration) { f.elapsed, f.wall = f.elapsed+d, f.wall+limiter.Time(d) }

func (f *fakeClock) expectTime(t *testing.T, when string, want limiter.Time) {
	t.Helper()
	if got := f.At(f.elapsed); got != want {
		t.Errorf("%s: the time is off by %v", when, time.Duration(got-want))
	}
}

func TestClockFollowsTheWallClock(t *testing.T) {
	f := newFakeClock()
	f.expectTime(t, "at first", f.wall)
	for range 99 {
		f.pass(time.Millisecond)
		f.expectTime(t, "in the first 100 ms", f.wall)
	}
	if f.reads != 1 {
		t.Errorf("%d reads of the wall clock in 99 ms, want 1", f.reads)
	}
	f.wall += limiter.Time(time.Hour) // set ahead
	f.expectTime(t, "99 ms after a read", f.wall-limiter.Time(time.Hour))
	f.pass(time.Millisecond)
	f.expectTime(t, "100 ms after a read", f.wall)

	f.wall -= limiter.Time(time.Minute) // set back
	f.pass(resyncInterval)
	f.expectTime(t, "set back", f.wall)

	f.pass(8 * time.Hour) // no calls during a night
	f.wall += limiter.Time(time.Second)
	f.expectTime(t, "after the night", f.wall)

	f.wall += limiter.Time(8 * time.Hour) // suspended: only the wall clock advances
	f.pass(resyncInterval)
	f.expectTime(t, "after a suspension", f.wall)
}

// TestClockWhileResyncing checks that callers do not use a stale offset while another caller
// updates it.
func TestClockWhileResyncing(t *testing.T) {
	f := newFakeClock()
	f.At(f.elapsed)
	f.wall += limiter.Time(time.Hour)
	f.pass(resyncInterval)
	f.resyncMu.Lock()
	f.expectTime(t, "while another caller reads", f.wall)
	f.resyncMu.Unlock()
}

func TestClockIsTheSystems(t *testing.T) {
	c := New()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			last := c.Elapsed()
			for range 10_000 {
				before := time.Now()
				at, elapsed := c.Now()
				after := time.Now()
				// A minute, in case the machine's clock is adjusted meanwhile.
				if at < limiter.Time(before.UnixNano())-minute || at > limiter.Time(after.UnixNano())+minute {
					t.Errorf("Now() = %d, want %d to %d", at, before.UnixNano(), after.UnixNano())
					return
				}
				if elapsed < last || elapsed < c.ElapsedAt(before) || elapsed > c.ElapsedAt(after) {
					t.Errorf("elapsed = %v after %v, want %v to %v", elapsed, last, c.ElapsedAt(before), c.ElapsedAt(after))
					return
				}
				last = elapsed
			}
		})
	}
	wg.Wait()
}

func BenchmarkClock(b *testing.B) {
	c := New()
	b.ReportAllocs()
	for b.Loop() {
		c.Now()
	}
}

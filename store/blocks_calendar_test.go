package store

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// Limits of calendar windows are exact when clocks change: midnight is skipped in Havana, and occurs
// twice in autumn; Lord Howe changes by half an hour.
func TestBlocksWhenClocksChange(t *testing.T) {
	for _, tt := range []struct {
		zone string
		at   time.Time
	}{
		{"America/Havana", time.Date(2000, 4, 2, 5, 0, 0, 0, time.UTC)},
		{"America/Havana", time.Date(2000, 10, 29, 4, 0, 0, 0, time.UTC)},
		{"America/Havana", time.Date(2000, 10, 29, 5, 0, 0, 0, time.UTC)},
		{"Australia/Lord_Howe", time.Date(2000, 8, 26, 15, 30, 0, 0, time.UTC)},
		{"Australia/Lord_Howe", time.Date(2000, 3, 25, 15, 0, 0, 0, time.UTC)},
	} {
		zone, err := time.LoadLocation(tt.zone)
		must.OK(t, err)
		for _, a := range []limiter.Algorithm{limiter.FixedWindow, limiter.SlidingWindow} {
			for unit := limiter.Days; unit <= limiter.Months; unit++ {
				synctest.Test(t, func(t *testing.T) {
					w := newBlockWorld(t, 2, 3*time.Millisecond)
					c := limiter.NewCalendar(zone, 1).WithUnit(unit)
					p := &limiter.Policy{Algorithm: a, Limit: 2000, Window: 24 * time.Hour, SubWindows: 10, Calendar: c}
					offset := time.Until(tt.at.Add(-4 * time.Second))
					w.host.SetOffset(offset)
					for _, r := range w.replicas {
						r.store.options.at = func() limiter.Time { return limiter.Time(time.Now().Add(offset).UnixNano()) }
						r.jump.Store(int64(offset))
					}
					rng := rand.New(rand.NewPCG(1, 3))
					var mu sync.Mutex
					counts, local := map[int64]int{}, 0
					for start := time.Now(); time.Since(start) < 8*time.Second; {
						time.Sleep(time.Duration(rng.ExpFloat64() * float64(time.Second) / 600))
						r := w.replicas[rng.IntN(2)]
						x := &caller{clock: r.store.options.Clock}
						at := limiter.Time(time.Now().Add(offset).UnixNano())
						done, err := x.start(r.store, 0, oneHit(1, p))
						record := func(at limiter.Time) {
							mu.Lock()
							defer mu.Unlock()
							if err == nil && !x.b.Denied {
								if a == limiter.FixedWindow {
									counts[int64(p.WindowEnd(at))]++
								} else {
									counts[p.Ring().Number(at)]++
								}
							}
						}
						if done {
							local++
							record(at)
							continue
						}
						go func() {
							err = <-x.decided
							if a == limiter.SlidingWindow { // the store decides when the request arrives
								at = limiter.Time(time.Now().Add(offset).UnixNano())
							}
							record(at)
						}()
					}
					time.Sleep(time.Second)
					synctest.Wait()
					total := 0
					for x, n := range counts {
						if total += n; a == limiter.FixedWindow && n > 2000 {
							t.Errorf("%s %v unit %d: %d hits in the window that ends at %v", tt.zone, tt.at, unit, n, time.Unix(0, x).UTC())
						}
					}
					if a == limiter.SlidingWindow && total > 2000 {
						t.Errorf("%s %v unit %d: %d hits in a sliding window", tt.zone, tt.at, unit, total)
					}
					if local < 500 || total < 1990 {
						t.Errorf("%s %v unit %d algorithm %d: %d local, %d in total", tt.zone, tt.at, unit, a, local, total)
					}
				})
			}
		}
	}
}

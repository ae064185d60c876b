package store

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// Hits that were denied while another replica had unused hits are counted when the window has ended.
// Denied hits of a window that is full at its end are not.
func TestDeniedWhileOthersHadHits(t *testing.T) {
	for _, full := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newBlockWorld(t, 2, time.Millisecond)
			p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 2000, Window: 2 * time.Second}
			end := time.Now().Truncate(p.Window).Add(p.Window)
			for time.Until(end) > 450*time.Millisecond {
				time.Sleep(5 * time.Millisecond)
				w.replicas[0].request(p, 1)
			}
			synctest.Wait()
			unused, before := w.replicas[0].unused(), w.total()
			for range 2000 { // until the first replica returns its hits
				w.replicas[1].request(p, 1)
				time.Sleep(50 * time.Microsecond)
			}
			synctest.Wait()
			denied := 2000 - (w.total() - before)
			time.Sleep(time.Until(end) - 150*time.Millisecond) // the others are returned
			if full {
				for range unused {
					w.replicas[0].request(p, 1)
				}
			}
			synctest.Wait()
			time.Sleep(time.Until(end) + time.Second)
			want := uint64(min(denied, unused))
			if full {
				want = 0
			}
			if got := w.hitsOf(blockDenied); denied == 0 || got != want {
				t.Errorf("full %v: %d hits counted, want %d: %d were denied while the other replica had %d", full, got, want, denied, unused)
			}
		})
	}
}

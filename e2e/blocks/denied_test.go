package blocks_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// TestDeniedHits denies hits at one replica while another one has unused hits, which it returns before
// the window ends. The first replica counts the denied hits, at most as many as could have been
// admitted, and none if denied hits count.
func TestDeniedHits(t *testing.T) {
	t.Parallel()
	for _, counted := range []bool{false, true} {
		t.Run(fmt.Sprintf("count_refused: %t", counted), func(t *testing.T) {
			t.Parallel()
			one := tenant{name: "a", limit: 600, window: 2 * time.Second, fields: fmt.Sprintf(", count_refused: %t", counted)}
			store := storetest.Start(t)
			f := startFleet(t, store, direct(store)[:2], []tenant{one}, suite.Patience, patient...)
			l := f.ledgers[0]
			deniedHits := func() int {
				return int(suite.Metrics(t, f.sluices[1].Load()).Sum("sluice_store_block_hits_total", `result="denied"`))
			}
			found, rounds := false, 0
			for !found && (!counted || rounds < 3) {
				rounds++
				last := l.window(time.Now())
				suite.Eventually(t, "a window begins", func() bool { return l.window(time.Now()) > last })
				before, admitted, denied, now := deniedHits(), 0, 0, l.window(time.Now())
				send := func(replica, hits int) {
					if ok, _ := f.request(t.Context(), replica, 0, hits); ok {
						admitted += hits
					} else if replica == 1 {
						denied += hits
					}
				}
				for range 100 { // both are hot, and have blocks
					send(0, 1)
					send(1, 1)
					wait(t.Context(), 5*time.Millisecond)
				}
				for denied == 0 {
					send(1, 5)
				}
				for l.window(time.Now().Add(-200*time.Millisecond)) == now { // the counter stays hot
					send(1, one.limit+1)
					wait(t.Context(), 20*time.Millisecond)
				}
				suite.Eventually(t, "the denied hits are known, or the window is over", func() bool {
					got, end := deniedHits()-before, l.window(time.Now())
					if end > now+1 || admitted > one.limit {
						return true // a busy machine took too long
					}
					most := min(denied, one.limit-admitted)
					if got > most || counted && got > 0 {
						t.Errorf("%d of %d denied hits could have been admitted, and %d are reported", most, denied, got)
					}
					found = found || got == most && most > 0
					return found
				})
			}
			t.Logf("%d windows", rounds)
		})
	}
}

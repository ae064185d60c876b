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
// admitted, and none if denied hits count. Windows in which a busy machine is too slow are repeated.
func TestDeniedHits(t *testing.T) {
	t.Parallel()
	for _, counted := range []bool{false, true} {
		t.Run(fmt.Sprintf("count_refused: %t", counted), func(t *testing.T) {
			t.Parallel()
			one := tenant{name: "a", limit: 600, window: 2 * time.Second, fields: fmt.Sprintf(", count_refused: %t", counted)}
			store := storetest.Start(t)
			f := startFleet(t, store, direct(store)[:2], []tenant{one}, suite.Patience, patient...)
			suite.Eventually(t, "a window has denied hits and room", func() bool {
				denied, reported := f.deny(t)
				if reported > denied || counted && reported > 0 {
					t.Fatalf("%d denied hits are reported, and %d could have been admitted", reported, denied)
				}
				return denied > 0 && (counted || reported == denied)
			})
		})
	}
}

// deny denies hits at the second replica while the first has unused hits. It returns how many of them
// could have been admitted, as unused hits were returned, and how many the second replica reports.
// Both are 0 if the machine was too slow.
func (f *fleet) deny(t *testing.T) (denied, reported int) {
	t.Helper()
	const short = 5 * time.Millisecond
	l, limit := f.ledgers[0], f.tenants[0].limit
	metric := func() int {
		return int(suite.Metrics(t, f.sluices[1].Load()).Sum("sluice_store_block_hits_total", `result="denied"`))
	}
	last := l.window(time.Now())
	suite.Eventually(t, "a window begins", func() bool { return l.window(time.Now()) > last })
	before, now, admitted := metric(), l.window(time.Now()), 0
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
		wait(t.Context(), short)
	}
	for denied == 0 && l.window(time.Now()) == now {
		send(1, 20)
	}
	for l.window(time.Now().Add(-200*time.Millisecond)) == now { // the counter stays hot
		send(1, limit+1)
		wait(t.Context(), short)
	}
	denied = min(denied, limit-admitted)
	suite.Eventually(t, "the hits are reported, or the next window is over", func() bool {
		reported = metric() - before
		return reported >= denied || l.window(time.Now()) > now+1
	})
	if admitted > limit || l.window(time.Now()) > now+1 && reported > 0 { // hits of two windows
		return 0, 0
	}
	return denied, reported
}

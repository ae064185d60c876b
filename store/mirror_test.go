//go:build more

package store

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// An outage grants no fresh allowance: the fallback continues from the store's last reply,
// including hits of other replicas, except for logs. After the outage the store also has the hits
// of the fallback.
func TestMirror(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, tt := range []struct {
		p     *limiter.Policy
		admit int // hits that are admitted during the outage
	}{
		{&limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 100, Window: limiter.MaxWindow}, 10},
		{&limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: 100, Window: day, SubWindows: 10}, 10},
		{&limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: 100, Window: day, SubWindows: 60}, 10},
		{&limiter.Policy{Algorithm: limiter.SlidingLog, Limit: 100, Window: day}, 50},
		{&limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 1, Window: day, Burst: 100}, 10},
		{&limiter.Policy{Algorithm: limiter.LeakyBucket, Limit: 1, Window: day, Slack: 99}, 10},
	} {
		t.Run(fmt.Sprint(tt.p.Algorithm, " ", tt.p.SubWindows), func(t *testing.T) {
			t.Parallel()
			srv := storetest.Start(t)
			mine, other := runStore(t, Options{Server: serverAt(srv)}), runStore(t, Options{Server: serverAt(srv)})
			storetest.Eventually(t, "up", func() bool { return mine.Up() && other.Up() })
			var a, b caller
			charge := oneHit(1, tt.p)
			charge.Hits = 40
			if err := b.decide(other, charge); err != nil || b.b.Denied {
				t.Fatal(err, b.b.Denied)
			}
			charge.Hits = 50
			if err := a.decide(mine, charge); err != nil || a.b.Denied {
				t.Fatal(err, a.b.Denied)
			}
			srv.Stop()
			charge.Hits = 1
			admitted := 0
			for n := range 100 {
				done, err := a.start(mine, 0, charge)
				if !done {
					if n > 0 {
						t.Error("the store is still available")
					}
					sh := mine.main.shardOf(0) // the timeout passes
					sh.markUnavailable(sh.connection(), &redis.Error{Kind: redis.Timeout, Err: context.DeadlineExceeded})
					err = <-a.decided
				}
				must.OK(t, err)
				if !a.b.Denied {
					admitted++
				}
			}
			if admitted != tt.admit {
				t.Errorf("algorithm %d: %d hits were admitted during the outage, want the remaining %d", tt.p.Algorithm, admitted, tt.admit)
			}
			srv.Continue()
			storetest.Eventually(t, "up", mine.Up)
			charge.Hits = 0
			must.OK(t, a.decide(mine, charge))
			// The first hit may have reached the store before the connection was lost, and count
			// twice. The debt of a bucket is at most one window, and a log has at most its limit.
			if got := a.b.Decisions[0].Before; got != 100 && (got != 101 || tt.p.Algorithm == limiter.SlidingLog) {
				t.Errorf("algorithm %d: the store has %d hits, want the 90 that it admitted plus those of the fallback, one of which may count twice", tt.p.Algorithm, got)
			}
		})
	}
}

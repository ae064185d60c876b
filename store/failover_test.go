//go:build more

package store

import (
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// TestHitsLostByFailover measures how many hits a requested failover loses: the old primary counted
// them while Sentinels were agreeing on the new one. The test needs a quiet machine.
func TestHitsLostByFailover(t *testing.T) {
	effort.Require(t, effort.All)
	for range 5 {
		t.Run("", func(t *testing.T) {
			primary := storetest.Start(t)
			replica := storetest.StartReplica(t, primary)
			sentinels := storetest.StartSentinels(t, primary, 1, 3)
			to := redis.Server{Master: "main"}
			for _, s := range sentinels {
				to.Sentinels = append(to.Sentinels, s.Addr)
			}
			s := runStore(t, Options{Server: to, Fallback: Deny})
			storetest.Eventually(t, "up", s.Up)
			time.Sleep(2 * time.Second) // wait for the subscriptions to the Sentinels
			admitted, stop, stopped := 0, make(chan struct{}), make(chan struct{})
			const each = 2 * time.Millisecond
			go func() {
				defer close(stopped)
				tick := time.NewTicker(each)
				defer tick.Stop()
				for {
					select {
					case <-stop:
						return
					case <-tick.C:
					}
					var c caller
					if err := c.decide(s, oneHit(1, hugeFixedWindow)); err == nil && !c.b.Denied {
						admitted++
					}
				}
			}()
			time.Sleep(time.Second)
			storetest.Eventually(t, "failover begins", func() bool {
				_, err := sentinels[0].Command("SENTINEL", "FAILOVER", "main")
				return err == nil
			})
			storetest.Eventually(t, "the replica is used", func() bool { return s.Up() && s.main.shardOf(0).address() == replica.Addr })
			time.Sleep(3 * time.Second)
			close(stop)
			<-stopped
			var c caller
			peek := oneHit(1, hugeFixedWindow)
			peek.Hits = 0
			must.OK(t, c.decide(s, peek))
			lost := admitted - int(c.b.Decisions[0].Before)
			t.Logf("%d of %d hits were lost, the hits of %v", lost, admitted, time.Duration(lost)*each)
		})
	}
}

package store

import (
	"testing"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// The store remembers the newest leases that came back before the replica that gave them without the store could report them.
// So it keeps no place over many outages, each of which has fewer such leases than the store remembers.
func TestReleasesElsewhereOverOutages(t *testing.T) {
	t.Parallel()
	const outages, requests = 2, 2500 // the store remembers 4,096
	srv := storetest.Start(t)
	relays := []*relay{newRelay(t, srv.Addr, nil, false), newRelay(t, srv.Addr, nil, false)}
	var replicas []*Store
	for _, r := range relays {
		replicas = append(replicas, runStore(t, Options{Server: redis.Server{Network: "tcp", Address: r.addr}}))
	}
	place := slotCharge(1, limiter.MaxLog)
	var c caller
	for outage := range outages {
		for i, s := range replicas {
			storetest.Eventually(t, "up", s.Up)
			relays[i].cut(true)
			storetest.Eventually(t, "away", func() bool { return !s.Up() })
		}
		for range requests {
			lease := c.acquireSlot(t, replicas[0], place)
			if lease == 0 {
				t.Fatal("a place was refused in the outage")
			}
			c.releaseSlot(t, replicas[1], place, lease)
		}
		for _, i := range []int{1, 0} { // the end reaches the store first
			relays[i].cut(false)
			storetest.Eventually(t, "up again, and nothing is owed", func() bool { return replicas[i].Up() && replicas[i].unsyncedCounters() == 0 })
		}
		if held := c.heldHits(t, replicas[0], place); held > 0 {
			t.Errorf("outage %d: %d places are held after all requests have ended", outage+1, held)
		}
	}
}

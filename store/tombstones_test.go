package store

import (
	"testing"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// If a lease that one replica granted without the store is returned at another replica, the store
// remembers it until the first replica reports it. So no permit stays held after many outages, if
// each outage has fewer such leases than the store remembers.
func TestReleasesElsewhereOverOutages(t *testing.T) {
	t.Parallel()
	const outages, requests = 2, 2500 // the store remembers 4,096
	srv := storetest.Start(t)
	relays := []*relay{newRelay(t, srv.Addr, nil, false), newRelay(t, srv.Addr, nil, false)}
	var replicas []*Store
	for _, r := range relays {
		replicas = append(replicas, runStore(t, Options{Server: redis.Server{Network: "tcp", Address: r.addr}}))
	}
	permit := permitCharge(1, limiter.MaxLog)
	var c caller
	for outage := range outages {
		for i, s := range replicas {
			storetest.Eventually(t, "up", s.Up)
			relays[i].cut(true)
			storetest.Eventually(t, "unavailable", func() bool { return !s.Up() })
		}
		for range requests {
			lease := c.acquirePermit(t, replicas[0], permit)
			if lease == 0 {
				t.Fatal("a permit was denied in the outage")
			}
			c.releasePermit(t, replicas[1], permit, lease)
		}
		for _, i := range []int{1, 0} { // the replica with the releases recovers first
			relays[i].cut(false)
			storetest.Eventually(t, "the replica has a connection, and all leases are synced", func() bool { return replicas[i].Up() && replicas[i].unsyncedCounters() == 0 })
		}
		if held := c.heldHits(t, replicas[0], permit); held > 0 {
			t.Errorf("outage %d: %d permits are held after all requests have ended", outage+1, held)
		}
	}
}

//go:build more

package store

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/script"
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
			relays[i].setBlocked(true)
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
			relays[i].setBlocked(false)
			storetest.Eventually(t, "the replica has a connection, and all leases are synced", func() bool { return replicas[i].Up() && replicas[i].unsyncedCounters() == 0 })
		}
		if held := c.heldHits(t, replicas[0], permit); held > 0 {
			t.Errorf("outage %d: %d permits are held after all requests have ended", outage+1, held)
		}
	}
}

// The store remembers the last 4,096 permits of a counter, and the first 1,024 reservations, that a
// replica granted without the store and that were returned.
func TestRememberedReleasesAreBounded(t *testing.T) {
	t.Parallel()
	const permits, reservations, more = 4096, 1024, 5
	srv := storetest.Start(t)
	s := runStore(t, Options{Server: serverAt(srv), Fallback: Error})
	storetest.Eventually(t, "up", s.Up)
	var c caller
	releaseMany := func(charge limiter.Charge, n int) (leases []string) {
		released := map[uint64]bool{}
		for len(leases) < n {
			lease := script.NewLease(script.LeaseName(charge.Policy, append(nameOf("s1", &charge), 'x')), 1)
			if released[lease] {
				continue // a process repeats leases after half a million, which other tests may take meanwhile
			}
			released[lease] = true
			leases = append(leases, strconv.FormatUint(lease, 10))
			c.releasePermit(t, s, charge, lease)
		}
		return leases
	}
	remembered := func(leases []string, command ...string) (n int) {
		members := strings.Fields(srv.Must(command...))
		for _, lease := range leases {
			if slices.Contains(members, lease) {
				n++
			}
		}
		return n
	}
	leases := releaseMany(permitCharge(1, limiter.MaxLog), permits+more)
	if n := remembered(leases, "ZRANGE", "s1{1}_x", "0", "-1"); n != permits {
		t.Errorf("%d of %d permits are remembered, want %d", n, len(leases), permits)
	}
	if n := remembered(leases[len(leases)-more:], "ZRANGE", "s1{1}_x", "0", "-1"); n != more {
		t.Errorf("%d of the last %d permits are remembered", n, more)
	}
	leases = releaseMany(oneHit(2, reservingPolicies(false)[2]), reservations+more)
	if n := remembered(leases[:reservations], "HKEYS", "s1{2}_xh"); n != reservations {
		t.Errorf("%d of the first %d reservations are remembered", n, reservations)
	}
	if n := remembered(leases[reservations:], "HKEYS", "s1{2}_xh"); n > 0 {
		t.Errorf("%d reservations are remembered in addition", n)
	}
}

package blocks_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// millions is the number of requests of the long TestFailovers.
const millions = 10_000_000

// TestFailovers has Sentinels replace the primary again and again, while replicas are killed and
// stopped and connections are lost. A window exceeds its limit only if the primary was replaced in
// it: at most once more for each time, because the new primary may lack hits. With SLUICE_LONG=1 the
// test lasts until 10 million requests are answered, or almost until the deadline of `go test`:
//
//	SLUICE_LONG=1 go test ./e2e/blocks -count=1 -v -timeout 30m -run TestFailovers
func TestFailovers(t *testing.T) {
	t.Parallel()
	primary := storetest.Start(t)
	other := storetest.StartReplica(t, primary)
	sentinels := storetest.StartSentinels(t, primary, 1, 3)
	var addrs []string
	for _, s := range sentinels {
		addrs = append(addrs, s.Addr)
	}
	all := append([]tenant{{name: "hour", limit: 1_000_000, window: time.Hour, weight: 8}}, tenants...)
	f := &faults{fleet: startFleet(t, primary, direct(primary), all, 2*time.Second,
		"--store", "redis+sentinel://"+strings.Join(addrs, ",")+"/main", "--store-fallback", "error")}
	for range all {
		f.starts, f.restored = append(f.starts, map[int64]int{}), append(f.restored, map[int64]int{})
	}
	f.load(t, 3)
	kinds, count := f.kinds(t), map[string]int{}
	end := time.Now().Add(24 * time.Hour)
	if deadline, ok := t.Deadline(); ok {
		end = deadline.Add(-time.Minute)
	}
	start := time.Now()
	for first := true; first || long() && f.requests.Load() < millions && time.Now().Before(end); first = false {
		for _, name := range []string{"kill", "CLIENT KILL", "SIGSTOP of a sluice", "CLIENT KILL", "SIGTERM", "CLIENT KILL"} {
			kinds[name]()
			count[name]++
			pause(t.Context())
		}
		f.during(f.restored, everyone, func() { f.failOver(t, sentinels[0], other) })
		count["failover"]++
		f.store, other = other, f.store
		before, _ := f.total()
		suite.Eventually(t, "requests are admitted", func() bool {
			now, _ := f.total()
			return now > before+500
		})
	}
	f.stop()
	t.Logf("%d requests answered and %d not, in %.0f s; %v", f.requests.Load(), f.failed.Load(), time.Since(start).Seconds(), count)
	for i, l := range f.ledgers {
		over, hits, windows := 0, 0, l.all()
		for w := windows.first; w <= windows.last; w++ {
			if admitted, _ := l.certain(w); admitted > all[i].limit {
				over++
				hits += admitted - all[i].limit
			}
		}
		t.Logf("%s: %d of %d windows certainly exceed the limit, by %d hits together", all[i].name, over, windows.last-windows.first+1, hits)
	}
	f.verify(t, func(i int, w int64) int { return all[i].limit * (1 + f.restored[i][w]) })
}

// failOver replaces the primary by a replica.
func (f *fleet) failOver(t *testing.T, sentinel, replica *storetest.Server) {
	t.Helper()
	suite.Eventually(t, "the failover begins", func() bool {
		_, err := sentinel.Command("SENTINEL", "FAILOVER", "main")
		return err == nil
	})
	isPrimary := func(s *storetest.Server) bool {
		role, err := s.Command("ROLE")
		return err == nil && strings.HasPrefix(role, "master")
	}
	suite.Eventually(t, "the replica is the primary", func() bool { return isPrimary(replica) && !isPrimary(f.store) })
}

//go:build more

package store

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/script"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// A burst is many simultaneous requests on three counters. The key of the first is foreign. The
// second is in the same slot of a cluster, and has a limit. The third is in another slot.
type burst struct {
	name     string
	policy   *limiter.Policy
	fallback Fallback
	grouped  bool   // the three charges are one group
	counters uint64 // number of the first counter
}

const burstLimit, burstRequests = 5, 20

// expected returns the number of requests that the second limit admits, and the hits on the second
// and third counters.
func (u *burst) expected() (passed, second, third int) {
	passed, second, third = burstLimit, burstLimit, burstRequests
	if u.grouped {
		third = burstLimit
	}
	if u.fallback == Deny && u.grouped {
		passed, second, third = 0, 0, 0
	}
	if u.fallback == Deny && u.policy.UsesLeases() { // permits depend on the complete request
		passed, second = 0, 0
	}
	if u.policy.CountRefused {
		second, third = burstRequests, burstRequests
	}
	return passed, second, third
}

// run sends the requests to s, and reads the counters through other. It writes the foreign key to
// servers.
func (u *burst) run(t *testing.T, s, other *Store, servers []*storetest.Server) {
	t.Helper()
	unlimitedPolicy := *hugeFixedWindow
	unlimitedPolicy.CountRefused = u.policy.CountRefused
	charges := []limiter.Charge{oneHit(u.counters, &unlimitedPolicy), oneHit(u.counters+1, u.policy), oneHit(u.counters+2, &unlimitedPolicy)}
	for i := range charges {
		if !u.grouped {
			charges[i].Group = int32(i)
		}
	}
	names := [][]byte{fmt.Appendf(nil, "foreign{%d}", u.counters), fmt.Appendf(nil, "limited{%d}", u.counters), fmt.Appendf(nil, "far{far%d}", u.counters)}
	key := script.AppendName(nil, limiter.Time(time.Now().UnixNano()), &unlimitedPolicy, names[0])
	written := false
	for _, srv := range servers {
		_, err := srv.Command("RPUSH", string(key), "x")
		written = written || err == nil
	}
	if !written {
		t.Fatal("no server has the slot of the key")
	}
	callers := make([]caller, burstRequests)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			if err := callers[i].decideNamed(s, names, charges...); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	passed := 0
	for i := range callers {
		if d := &callers[i].b.Decisions[1]; !d.Over && !d.Denied {
			passed++
		}
	}
	want, second, third := u.expected()
	if passed != want {
		t.Errorf("%s: %d of %d requests were admitted under a limit of %d, want %d", u.name, passed, burstRequests, burstLimit, want)
	}
	var c caller
	used := func(i int) int {
		peek := charges[i]
		peek.Hits, peek.Group = 0, 0
		must.OK(t, c.decideNamed(other, names[i:i+1], peek))
		return int(c.b.Decisions[0].Before)
	}
	storetest.Eventually(t, fmt.Sprintf("%s: the second counter has %d hits and the third %d", u.name, second, third), func() bool {
		return used(1) == second && used(2) == third && s.unsyncedCounters() == 0
	})
}

// decideNamed is decide for counters with the given names.
func (c *caller) decideNamed(s *Store, names [][]byte, charges ...limiter.Charge) error {
	if c.decided == nil {
		c.decided = make(chan error, 1)
	}
	c.b.Reset()
	c.b.Charges = append(c.b.Charges, charges...)
	done, err := s.Decide(limiter.Time(time.Now().UnixNano()), &c.b, names, c)
	if !done {
		err = <-c.decided
	}
	return err
}

// While the key of one counter is foreign, the store decides the other limits of each request, even
// with many concurrent requests.
func TestForeignKeysInABurst(t *testing.T) {
	t.Parallel()
	srv, cluster := storetest.Start(t), storetest.StartCluster(t, 2, false)
	counters := uint64(1)
	for kind, servers := range map[string][]*storetest.Server{"server": {srv}, "cluster": cluster} {
		to := serverAt(srv)
		if kind == "cluster" {
			to = nodes(cluster)
		}
		for _, fallback := range []Fallback{Local, Allow, Deny} {
			o := &recorder{}
			s := runStore(t, Options{Server: to, Fallback: fallback, Observer: o})
			other := runStore(t, Options{Server: to, Fallback: Error})
			storetest.Eventually(t, "up", func() bool { return s.Up() && other.Up() })
			for _, p := range []*limiter.Policy{
				{Algorithm: limiter.FixedWindow, Limit: burstLimit, Window: limiter.MaxWindow, CountRefused: true}, // native on a single server
				{Algorithm: limiter.FixedWindow, Limit: burstLimit, Window: limiter.MaxWindow},
				{Algorithm: limiter.SlidingWindow, Limit: burstLimit, Window: time.Hour, SubWindows: 4},
				{Algorithm: limiter.TokenBucket, Limit: 1, Window: 24 * time.Hour, Burst: burstLimit},
				{Algorithm: limiter.Concurrency, Limit: burstLimit, Window: time.Hour},
			} {
				for _, grouped := range []bool{false, true} {
					counters += 3
					u := &burst{fmt.Sprintf("%s, %s, algorithm %d, counts %v, grouped %v", kind, fallback, p.Algorithm, p.CountRefused, grouped), p, fallback, grouped, counters}
					u.run(t, s, other, servers)
				}
			}
			if o.diverged > 0 || o.failuresOf(redis.Script) == 0 {
				t.Errorf("%s, %s: %d replies diverged, failed %v", kind, fallback, o.diverged, o.failed)
			}
		}
	}
}

// If a request has a foreign key, and a limit in another slot denies the group, the store's
// decisions are refunded.
func TestForeignKeysAndOtherSlots(t *testing.T) {
	t.Parallel()
	cluster := storetest.StartCluster(t, 2, false)
	s := runStore(t, Options{Server: nodes(cluster), Fallback: Local})
	storetest.Eventually(t, "up", s.Up)
	once := &limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 1, Window: 24 * time.Hour, Burst: 1}
	for _, p := range []*limiter.Policy{
		{Algorithm: limiter.FixedWindow, Limit: burstLimit, Window: limiter.MaxWindow},
		{Algorithm: limiter.TokenBucket, Limit: 1, Window: 24 * time.Hour, Burst: burstLimit},
		{Algorithm: limiter.Concurrency, Limit: burstLimit, Window: time.Hour},
	} {
		first := 10 * uint64(p.Algorithm)
		charges := []limiter.Charge{oneHit(first, hugeBucket), oneHit(first+1, p), oneHit(first+2, once)}
		tag := fmt.Sprintf("{%d}", first)
		names := [][]byte{[]byte("foreign" + tag), []byte("limited" + tag), []byte("once{once" + tag + "}")}
		if redis.SlotOf(names[0]) != redis.SlotOf(names[1]) || redis.SlotOf(names[0]) == redis.SlotOf(names[2]) {
			t.Fatal("the first two counters are in one slot, and the third is in another")
		}
		for _, srv := range cluster {
			_, _ = srv.Command("RPUSH", string(names[0]), "x") // fails on the nodes without the slot
		}
		var c caller
		for n := range 3 {
			if err := c.decideNamed(s, names, charges...); err != nil || c.b.Denied != (n > 0) {
				t.Errorf("algorithm %d: request %d was decided %+v, %v", p.Algorithm, n+1, c.b.Decisions, err)
			}
			storetest.Eventually(t, "the charge of a denied group is refunded", func() bool {
				peek := charges[1]
				peek.Hits = 0
				must.OK(t, c.decideNamed(s, names[1:2], peek))
				return c.b.Decisions[0].Before == 1 && s.unsyncedCounters() == 0
			})
		}
	}
}

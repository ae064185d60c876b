//go:build more

package store

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// nodes returns the address of a cluster by its first node.
func nodes(all []*storetest.Server) redis.Server { return redis.Server{Nodes: []string{all[0].Addr}} }

// A group over many slots and two stores is charged completely or not at all once refunds are done,
// and all decisions are equal to those of a table.
func TestClusterGroups(t *testing.T) {
	t.Parallel()
	all := storetest.StartCluster(t, 3, false)
	perSecond := storetest.Start(t)
	seconds := serverAt(perSecond)
	o := &recorder{}
	s := runStore(t, Options{Server: nodes(all), PerSecond: &seconds, Observer: o, Fallback: Deny, Clock: frozenClock, at: frozenTime})
	testGroups(t, s, o)
}

// The same applies to a request that is split because the store would need too long for it.
func TestLargeGroups(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t)
	o := &recorder{}
	s := newStore(t, Options{Server: serverAt(srv), Observer: o, Fallback: Deny, Clock: frozenClock, at: frozenTime})
	s.partBound = 16*time.Microsecond + time.Microsecond // enough for one log or two other charges
	runUntilEnd(t, s)
	testGroups(t, s, o)
}

// frozenClock and frozenTime return a time years ahead of the server's clock, so that nothing expires.
func frozenClock() time.Time   { return time.Unix(2_000_000_000, 0) }
func frozenTime() limiter.Time { return limiter.Time(frozenClock().UnixNano()) }

// testGroups compares the decisions of s on random requests with those of a table.
func testGroups(t *testing.T, s *Store, o *recorder) {
	t.Helper()
	storetest.Eventually(t, "up", s.Up)
	const day = 24 * time.Hour
	policies := []*limiter.Policy{
		{Algorithm: limiter.FixedWindow, Limit: 9, Window: limiter.MaxWindow},
		{Algorithm: limiter.TokenBucket, Limit: 1, Window: day, Burst: 8},
		{Algorithm: limiter.SlidingWindow, Limit: 7, Window: day, SubWindows: 1},
		{Algorithm: limiter.SlidingLog, Limit: 6, Window: day},
		{Algorithm: limiter.LeakyBucket, Limit: 1, Window: day, Slack: 4},
		{Algorithm: limiter.LeakyBucket, Limit: 1, Window: 10 * time.Second, MaxWait: time.Minute, MaxWaiting: 3},
		{Algorithm: limiter.FixedWindow, Limit: 4, Window: limiter.MaxWindow, CountRefused: true},
		{Algorithm: limiter.FixedWindow, Limit: 0, Window: limiter.MaxWindow},
		{Algorithm: limiter.FixedWindow, Limit: 0, Window: time.Second},
		{Algorithm: limiter.TokenBucket, Limit: 0, Window: time.Second, Burst: 3},
		{Algorithm: limiter.Concurrency, Limit: 3, Window: day},
		{Algorithm: limiter.FixedWindow, Limit: 6, Window: limiter.MaxWindow, Reserve: limiter.NewReserve(2, day, true)},
	}
	leases := grantedLeases{}
	random := rand.New(rand.NewPCG(18, 18))
	table := newTable(t)
	split := 0
	for n := range 400 {
		var charges []limiter.Charge
		group, quota := int32(0), random.IntN(4) == 0
		for range 1 + random.IntN(5) {
			k := random.IntN(3 * len(policies))
			c := oneHit(uint64(n/20*100+k+1), policies[k%len(policies)])
			c.Hits, c.Group, c.Refund = []uint64{1, 1, 1, 2, 0, 5}[random.IntN(6)], group, random.IntN(10) == 0
			c.Mode = []limiter.Mode{limiter.Enforce, limiter.Enforce, limiter.Shadow}[random.IntN(3)]
			if quota && random.IntN(2) == 0 {
				c.Mode = limiter.Quota
			}
			if c.Reserve = c.Policy.Reserve != nil && random.IntN(2) == 0; c.Policy.UsesLeases() && random.IntN(3) == 0 {
				c.Refund, c.Reserve, c.Hits = true, false, uint64(random.IntN(1<<16))
			}
			if c.Refund {
				c.Reserve = false
			}
			// A later group on the counter may see the hits of a denied group until they are
			// refunded.
			if slices.ContainsFunc(charges, func(o limiter.Charge) bool { return o.ID == c.ID && o.Group != group }) {
				continue
			}
			charges = append(charges, c)
			if random.IntN(3) == 0 {
				group++
			}
		}
		if len(charges) == 0 {
			continue
		}
		c := caller{clock: frozenClock}
		want := limiter.Batch{Charges: slices.Clone(charges), Budget: longTimeout}
		leases.setRefunds(&want, 0)
		leases.setRefunds(&limiter.Batch{Charges: charges}, 1)
		must.OK(t, c.decideWithin(s, longTimeout, charges...))
		table.Decide(frozenTime(), &want)
		if diff := cmp.Diff(want.Decisions, c.b.Decisions); diff != "" || want.Denied != c.b.Denied {
			t.Fatalf("request %d, store +, table -:\n%s\n%s", n, diff, describe(charges))
		}
		leases.add(t, &want, &c.b)
		r := s.split(0, &limiter.Batch{Charges: charges}, c.names)
		if len(r.parts) > 1 {
			split++
		}
		r.release()
		// Refunds arrive in the background.
		for i := range charges {
			peek := charges[i]
			peek.Hits, peek.Refund, peek.Reserve, peek.Mode = 0, false, peek.Policy.Reserve != nil, limiter.Shadow
			storetest.Eventually(t, "the charges of denied groups are refunded", func() bool {
				must.OK(t, c.decideWithin(s, longTimeout, peek))
				want.Charges = append(want.Charges[:0], peek)
				table.Decide(frozenTime(), &want)
				return want.Decisions[0].Before == c.b.Decisions[0].Before
			})
		}
	}
	if o.diverged > 0 || o.decided[byFallback] > 0 || split < 200 {
		t.Errorf("%d replies diverged, decided %v, %d requests in parts; want many parts and no charge decided by the fallback", o.diverged, o.decided, split)
	}
}

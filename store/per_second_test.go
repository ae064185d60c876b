//go:build more

package store

import (
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// Limits of one second are in the second store, all others in the first. If one is unavailable, the
// fallback decides its charges, and the other store the rest.
func TestPerSecond(t *testing.T) {
	t.Parallel()
	first, second := storetest.Start(t), storetest.Start(t)
	to := serverAt(second)
	o := &recorder{}
	s := runStore(t, Options{Server: serverAt(first), PerSecond: &to, Observer: o, Fallback: Deny})
	storetest.Eventually(t, "up", s.Up)
	charges := []limiter.Charge{
		oneHit(1, &limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 1, Window: time.Second, Burst: 1 << 31}),
		oneHit(2, &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1 << 30, Window: limiter.MaxWindow}),
		oneHit(3, &limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 1, Window: 2 * time.Second, Burst: 1 << 31}),
	}
	for i := range charges {
		charges[i].Group, charges[i].Hits = int32(i), 3600 // so the keys of buckets do not expire during the test
	}
	var c caller
	if err := c.decide(s, charges...); err != nil || c.b.Denied {
		t.Fatal(err, c.b.Denied)
	}
	const keys = `return #redis.call('KEYS', 's1{?}*')`
	if n, m := first.Must("EVAL", keys, "0"), second.Must("EVAL", keys, "0"); n != "2" || m != "1" {
		t.Errorf("%s counters in the first store, %s in the second, want 2 and 1", n, m)
	}
	second.Kill()
	storetest.Eventually(t, "the second store is unavailable", func() bool {
		_ = c.decide(s, charges[0])
		return !s.Up()
	})
	if err := c.decide(s, charges...); err != nil || !c.b.Decisions[0].Over || c.b.Decisions[1].Over || c.b.Decisions[2].Over {
		t.Errorf("decided %+v, %v, want only the first denied by the fallback", c.b.Decisions, err)
	}
	// As one group they are denied, and the first store refunds its hits.
	before := c.b.Decisions[1].Before
	for i := range charges {
		charges[i].Group = 0
	}
	if err := c.decide(s, charges...); err != nil || !c.b.Denied || c.b.Decisions[1].Charged != 0 || !c.b.Decisions[1].Denied {
		t.Errorf("decided %+v, %v, want the group to be denied", c.b.Decisions, err)
	}
	peek := charges[1]
	peek.Hits = 0
	storetest.Eventually(t, "the charge is refunded", func() bool {
		return c.decide(s, peek) == nil && c.b.Decisions[0].Before == before+3600
	})
}

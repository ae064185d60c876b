//go:build more

package store

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// refundable are policies with a limit of 9 whose counters can refund all hits of a test.
var refundable = []*limiter.Policy{
	{Algorithm: limiter.FixedWindow, Limit: 9, Window: limiter.MaxWindow},
	{Algorithm: limiter.SlidingWindow, Limit: 9, Window: limiter.MaxWindow, SubWindows: 3},
	{Algorithm: limiter.SlidingLog, Limit: 9, Window: limiter.MaxWindow},
	{Algorithm: limiter.TokenBucket, Limit: 1, Window: 24 * time.Hour, Burst: 9},
}

// withRefund returns 4 hits on a counter and a refund.
func withRefund(number uint64, p *limiter.Policy, hits uint64) []limiter.Charge {
	charge, refund := oneHit(number, p), oneHit(number, p)
	charge.Hits, refund.Hits, refund.Refund = 4, hits, true
	return []limiter.Charge{charge, refund}
}

// If other hits on the counter are denied, a refund returns all of its hits, once and as far as the
// counter has them. The denial may be due to their own limit, or to one that the same script or
// another store decides.
func TestRefundsOfDeniedRequests(t *testing.T) {
	t.Parallel()
	first, second := storetest.Start(t), storetest.Start(t)
	seconds := serverAt(second)
	one := newStore(t, Options{Server: serverAt(first)})
	two := newStore(t, Options{Server: serverAt(first), PerSecond: &seconds})
	for _, s := range []*Store{one, two} {
		runUntilEnd(t, s)
		storetest.Eventually(t, "up", s.Up)
	}
	none := &limiter.Policy{Algorithm: limiter.FixedWindow, Window: limiter.MaxWindow}
	noneASecond := &limiter.Policy{Algorithm: limiter.FixedWindow, Window: time.Second}
	number := uint64(0)
	for by, tt := range map[string]struct {
		s      *Store
		denies []limiter.Charge
	}{
		"its own limit": {one, nil},
		"the script":    {one, []limiter.Charge{oneHit(998, none)}},
		"a store":       {two, []limiter.Charge{oneHit(998, noneASecond)}},
	} {
		for _, p := range refundable {
			for _, refundFirst := range []bool{false, true} {
				number++
				var c caller
				decide := func(charges []limiter.Charge) {
					t.Helper()
					if refundFirst {
						charges[0], charges[1] = charges[1], charges[0]
					}
					must.OK(t, c.decide(tt.s, append(charges, tt.denies...)...))
				}
				before := oneHit(number, p)
				if before.Hits = 5; tt.denies == nil {
					before.Hits = 9
				}
				used := before.Hits
				must.OK(t, c.decide(tt.s, before))
				for _, refund := range []uint64{3, 9} { // the second is larger than the used hits
					if tt.denies == nil {
						refund = 1
					}
					want := min(refund, used)
					used -= want
					decide(withRefund(number, p, refund))
					at := 1
					if refundFirst {
						at = 0
					}
					what := fmt.Sprintf("denied by %s, algorithm %d, refund first %v", by, p.Algorithm, refundFirst)
					if d := c.b.Decisions; !c.b.Denied || d[at].Charged != want || d[1-at].Charged != 0 {
						t.Errorf("%s: %+v, want a refund of %d to return %d", what, d, refund, want)
					}
					if d := c.b.Decisions[at]; d.Before-c.b.Stored().Refunded(at) != used || used > 0 && d.Reset < time.Hour {
						t.Errorf("%s: %+v and %d refunded, want %d remaining hits that last for hours", what, d, c.b.Stored().Refunded(at), used)
					}
					storetest.Eventually(t, what, func() bool { return c.usedHits(t, tt.s, before) == int(used) })
				}
			}
		}
	}
}

// A refund whose caller does not wait for the reply is done once, when the store runs it.
func TestLateRefunds(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t)
	r := newRelay(t, srv.Addr, nil, false)
	s := runStore(t, Options{Server: redis.Server{Network: "tcp", Address: r.addr}, Timeout: time.Minute, DialTimeout: time.Minute})
	other := runStore(t, Options{Server: serverAt(srv)})
	number := uint64(0)
	for how, want := range map[lateOutcome]int{replied: 2, replyLost: 2, neverRun: 5} {
		for _, p := range refundable {
			storetest.Eventually(t, "up", func() bool { return s.Up() && other.Up() })
			number += 2
			none := oneHit(number+1, &limiter.Policy{Algorithm: limiter.FixedWindow, Window: limiter.MaxWindow})
			before := oneHit(number, p)
			before.Hits = 5
			var c, there caller
			must.OK(t, c.decide(s, before))
			used := func() int { return there.usedHits(t, other, before) }
			c.startLate(t, s, r, how, func() bool { return used() == 2 }, append(withRefund(number, p, 3), none)...)
			if d := c.b.Decisions[1]; d.Charged != 3 {
				t.Errorf("%s, algorithm %d: the fallback refunds %d, want 3", how, p.Algorithm, d.Charged)
			}
			r.finishLate(t, s, how)
			storetest.Eventually(t, "all hits are synced", func() bool { return s.Up() && s.unsyncedCounters() == 0 })
			if got := c.usedHits(t, s, before); got != want || used() != want {
				t.Errorf("%s, algorithm %d: %d hits are used, want %d", how, p.Algorithm, got, want)
			}
		}
	}
}

// Requests with refunds on counters in two stores are decided as in memory, and leave the same
// state. All hits on a counter are in one charge: a store decides later charges before the decision
// of the other store is known. The clocks stand still.
func TestSplitRefundsDecideAsMemory(t *testing.T) {
	t.Parallel()
	seed := fromEnvironment(t, "STORE_SEED", 31)
	random := rand.New(rand.NewPCG(seed, 1))
	var policies []*limiter.Policy
	for _, p := range refundable {
		for _, limit := range []uint32{0, 1, 3, 9} {
			for _, each := range []time.Duration{p.Window, time.Second} {
				own := *p
				own.Limit, own.Window, own.CountRefused = limit, each, random.IntN(3) == 0
				if own.Burst > 0 {
					own.Burst = 1 + limit
				}
				if random.IntN(4) == 0 {
					own.Penalty = limiter.NewPenalty(time.Hour)
				}
				own.Prepare()
				policies = append(policies, &own)
			}
		}
	}
	first, second := serverAt(storetest.Start(t)), serverAt(storetest.Start(t))
	now := limiter.Time(1_900_000_000_500_000_000)
	clock := func() time.Time { return time.Unix(0, int64(now)) }
	s := runStore(t, Options{Server: first, PerSecond: &second, Clock: clock, at: func() limiter.Time { return now }})
	storetest.Eventually(t, "up", s.Up)
	memory, c := newTable(t), caller{clock: clock}
	for n := range effort.Times(t, 300) {
		var plain limiter.Batch
		charged, group := map[uint64]bool{}, int32(0)
		for range 1 + random.IntN(6) {
			which := random.IntN(len(policies))
			if k := len(plain.Charges); k > 0 && random.IntN(2) == 0 {
				which = int(plain.Charges[k-1].ID.Lo) - 1
			}
			charge := oneHit(uint64(which+1), policies[which])
			charge.Hits, charge.Group = random.Uint64N(8), group
			charge.Refund = charged[charge.ID.Lo] || random.IntN(3) == 0
			charge.Mode = []limiter.Mode{limiter.Enforce, limiter.Enforce, limiter.Shadow, limiter.Watch}[random.IntN(4)]
			charged[charge.ID.Lo] = charged[charge.ID.Lo] || !charge.Refund
			plain.Charges = append(plain.Charges, charge)
			group += random.Int32N(2)
		}
		must.OK(t, c.decide(s, plain.Charges...))
		memory.Decide(now, &plain)
		what := fmt.Sprintf("seed %d, request %d", seed, n)
		for i, want := range plain.Decisions {
			if got := c.b.Decisions[i]; got.Over != want.Over || got.Denied != want.Denied || got.Charged != want.Charged || got.RetryAfter != want.RetryAfter || c.b.Stored().Refunded(i) != plain.Stored().Refunded(i) {
				t.Fatalf("%s, charge %d: %+v, in memory %+v\n%s", what, i, got, want, describe(plain.Charges))
			}
		}
		for _, charge := range plain.Charges {
			var peek limiter.Batch
			charge.Hits, charge.Refund, charge.Mode = 0, false, limiter.Enforce
			peek.Charges = []limiter.Charge{charge}
			memory.Decide(now, &peek)
			var there caller
			there.clock = clock
			storetest.Eventually(t, what+"\n"+describe(plain.Charges), func() bool {
				err := there.decide(s, charge)
				return err == nil && there.b.Decisions[0].Before == peek.Decisions[0].Before && there.b.Decisions[0].Penalty == peek.Decisions[0].Penalty
			})
		}
	}
}

//go:build more

package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// TestLateDenialsAreSynced has another replica use 8 of 9 hits of a counter. A request then asks for
// 4 more, and for 4 of an unused counter. Its deadline passes, and the fallback, which does not know
// the other replica's hits, admits it. The reply that comes later denies it, so the hits are not in
// the store yet.
func TestLateDenialsAreSynced(t *testing.T) {
	t.Parallel()
	for _, fallback := range []Fallback{Local, Allow} {
		for _, p := range refundable {
			for _, countRefused := range []bool{false, true} {
				p := *p
				p.CountRefused = countRefused
				t.Run(fmt.Sprintf("%s, algorithm %d, count_refused %t", fallback, p.Algorithm, countRefused), func(t *testing.T) {
					t.Parallel()
					srv := storetest.Start(t)
					r := newRelay(t, srv.Addr, nil, false)
					s := runStore(t, Options{Server: redis.Server{Network: "tcp", Address: r.addr}, Fallback: fallback, Timeout: time.Minute, DialTimeout: time.Minute})
					other := runStore(t, Options{Server: serverAt(srv), Fallback: Deny})
					storetest.Eventually(t, "up", func() bool { return s.Up() && other.Up() })
					var c, o caller
					full, unused := oneHit(1, &p), oneHit(2, &p)
					full.Hits = 8
					if err := o.decide(other, full); err != nil || o.b.Denied {
						t.Fatal(err, o.b.Denied)
					}
					full.Hits, unused.Hits = 4, 4
					want := map[uint64]int{1: 12, 2: 4}
					switch p.Algorithm {
					case limiter.SlidingLog: // a log has at most its limit
						want[1] = 9
					case limiter.TokenBucket: // its debt is at most the hits of a window
						want[1] = 10
					default:
					}
					c.startLate(t, s, r, replied, func() bool { return true }, full, unused)
					if c.b.Denied {
						t.Fatal("the fallback denies the request")
					}
					r.finishLate(t, s, replied)
					got := map[uint64]int{}
					storetest.Eventually(t, fmt.Sprintf("the store has %v hits", want), func() bool {
						got = map[uint64]int{1: o.usedHits(t, other, full), 2: o.usedHits(t, other, unused)}
						return fmt.Sprint(got) == fmt.Sprint(want) && s.unsyncedCounters() == 0
					})
				})
			}
		}
	}
}

// TestLateDenialOfADeniedGroup has a request whose group the second store denies, while the part in
// the main store is late: the fallback admits it, and the reply denies it. No hit of the request
// counts.
func TestLateDenialOfADeniedGroup(t *testing.T) {
	t.Parallel()
	srv, second := storetest.Start(t), storetest.Start(t)
	r := newRelay(t, srv.Addr, nil, false)
	perSecond := serverAt(second)
	s := runStore(t, Options{Server: redis.Server{Network: "tcp", Address: r.addr}, PerSecond: &perSecond, Timeout: time.Minute, DialTimeout: time.Minute})
	other := runStore(t, Options{Server: serverAt(srv), Fallback: Deny})
	storetest.Eventually(t, "up", func() bool { return s.Up() && other.Up() })
	var c, o caller
	full := oneHit(1, refundable[0])
	denying := oneHit(2, &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 0, Window: time.Second})
	full.Hits = 8
	if err := o.decide(other, full); err != nil || o.b.Denied {
		t.Fatal(err, o.b.Denied)
	}
	full.Hits = 4
	c.startLate(t, s, r, replied, func() bool { return true }, full, denying)
	if !c.b.Denied {
		t.Fatal("the second store admits the request")
	}
	r.finishLate(t, s, replied)
	// The reply of a later request proves that the late one has been resolved.
	storetest.Eventually(t, "up", s.Up)
	c.usedHits(t, s, full)
	storetest.Eventually(t, "nothing is unsynced", func() bool { return s.unsyncedCounters() == 0 })
	if used := o.usedHits(t, other, full); used != 8 {
		t.Errorf("the store has %d hits, want 8 without those of the denied request", used)
	}
}

// TestLateChoices has another replica use up the first of two alternatives, or both. The fallback,
// which does not know these hits, charges the first. The late reply shows that the store has charged the
// second, so that nothing is recorded, or neither, so that only the hits of the first are.
func TestLateChoices(t *testing.T) {
	t.Parallel()
	for _, fallback := range []Fallback{Local, Allow} {
		for _, both := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, both used up: %t", fallback, both), func(t *testing.T) {
				t.Parallel()
				srv := storetest.Start(t)
				r := newRelay(t, srv.Addr, nil, false)
				s := runStore(t, Options{Server: redis.Server{Network: "tcp", Address: r.addr}, Fallback: fallback, Timeout: time.Minute, DialTimeout: time.Minute})
				other := runStore(t, Options{Server: serverAt(srv), Fallback: Deny})
				storetest.Eventually(t, "up", func() bool { return s.Up() && other.Up() })
				var c, o caller
				first, second := oneHit(1, refundable[0]), oneHit(2, refundable[0])
				want := map[uint64]int{1: 8, 2: 4}
				used := []limiter.Charge{first}
				if both {
					want, used = map[uint64]int{1: 12, 2: 8}, append(used, second)
				}
				for _, charge := range used {
					charge.Hits = 8
					if err := o.decide(other, charge); err != nil || o.b.Denied {
						t.Fatal(err, o.b.Denied)
					}
				}
				first.Hits, first.Choice, second.Hits, second.Choice = 4, limiter.FirstChoice, 4, limiter.NextChoice
				c.startLate(t, s, r, replied, func() bool { return true }, first, second)
				if c.b.Denied || c.b.Decisions[0].Skipped || !c.b.Decisions[1].Skipped {
					t.Fatalf("the fallback decides %+v, want the first to be charged", c.b.Decisions)
				}
				r.finishLate(t, s, replied)
				first.Choice, second.Choice = limiter.NoChoice, limiter.NoChoice
				// The reply of a later request proves that the late one has been resolved.
				storetest.Eventually(t, "up", s.Up)
				c.usedHits(t, s, first)
				storetest.Eventually(t, fmt.Sprintf("the store has %v hits", want), func() bool {
					got := map[uint64]int{1: o.usedHits(t, other, first), 2: o.usedHits(t, other, second)}
					return fmt.Sprint(got) == fmt.Sprint(want) && s.unsyncedCounters() == 0
				})
			})
		}
	}
}

//go:build more

package store

import (
	"errors"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// If another program wrote the key of a counter, only requests on that counter are affected. Other
// hits of the request, if the fallback admits it, count in the store, whether or not the caller still
// waits.
func TestKeyOfAnotherProgramAffectsOneLimit(t *testing.T) {
	t.Parallel()
	const limit, requests = 5, 20
	srv := storetest.Start(t)
	r := newRelay(t, srv.Addr, nil, false)
	o := &recorder{}
	s := runStore(t, Options{Server: redis.Server{Network: "tcp", Address: r.addr}, Observer: o, Timeout: time.Minute, DialTimeout: time.Minute})
	other := runStore(t, Options{Server: serverAt(srv), Fallback: Error})
	storetest.Eventually(t, "up", func() bool { return s.Up() && other.Up() })
	for n, p := range []*limiter.Policy{
		{Algorithm: limiter.FixedWindow, Limit: limit, Window: limiter.MaxWindow, CountRefused: true}, // native, the others use the script
		{Algorithm: limiter.FixedWindow, Limit: limit, Window: limiter.MaxWindow},
		{Algorithm: limiter.TokenBucket, Limit: 1, Window: 24 * time.Hour, Burst: limit},
		{Algorithm: limiter.Concurrency, Limit: limit, Window: time.Hour},
	} {
		loose := *hugeFixedWindow
		loose.CountRefused = p.CountRefused
		bad, good := oneHit(uint64(2*n+1), &loose), oneHit(uint64(2*n+2), p)
		good.Group = 1
		srv.Must("RPUSH", keyOf(&bad), "x")
		var c, there caller
		passed, counted := 0, 0
		counts := func() bool { return there.usedHits(t, other, good) == counted && s.unsyncedCounters() == 0 }
		for range requests {
			must.OK(t, c.decide(s, bad, good))
			if !c.b.Decisions[1].Over {
				passed++
			}
			if counted++; !p.CountRefused {
				counted = min(counted, limit)
			}
			storetest.Eventually(t, "the hit counts in the store", counts)
			c.usedHits(t, s, good) // updates the mirror of this replica
		}
		if passed != limit {
			t.Errorf("algorithm %d: %d of %d requests were admitted under a limit of %d", p.Algorithm, passed, requests, limit)
		}
		if _, err := reset(other, p, c.names[0]); err != nil {
			t.Fatal(err)
		}
		c.usedHits(t, s, good)
		c.startLate(t, s, r, replied, func() bool { return true }, bad, good)
		r.finishLate(t, s, replied)
		counted = 1
		storetest.Eventually(t, "the hit of a late request counts", counts)
	}
	storetest.Eventually(t, "the hits on keys that another program wrote are dropped", func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.dropped == 4*(requests+1)
	})
}

// If a request fails because one of two stores or primaries is unavailable, its charges on the other
// one are undone: leases are released, and hits are refunded unless their limit counts denied hits.
func TestFailedRequestIsUndone(t *testing.T) {
	t.Parallel()
	first, second := storetest.Start(t), storetest.Start(t)
	seconds := serverAt(second)
	cluster := storetest.StartCluster(t, 2, false)
	for name, tt := range map[string]struct {
		to   Options
		down *storetest.Server
		lost limiter.Charge // a charge on the unavailable store
	}{
		"stores":    {Options{Server: serverAt(first), PerSecond: &seconds}, second, oneHit(1, hugeBucket)},
		"primaries": {Options{Server: nodes(cluster)}, cluster[1], hitInSlots(new(uint64), hugeFixedWindow, redis.Slots/2, redis.Slots)},
	} {
		tt.to.Fallback = Error
		s := runStore(t, tt.to)
		storetest.Eventually(t, "up", s.Up)
		tt.down.Kill()
		var c caller
		storetest.Eventually(t, "unavailable", func() bool {
			_ = c.decide(s, tt.lost)
			return !s.Up()
		})
		var number uint64
		for kind, p := range map[string]*limiter.Policy{
			"permit":             permitCharge(1, 3).Policy,
			"reservation":        reservingPolicies(true)[0],
			"window":             {Algorithm: limiter.FixedWindow, Limit: 9, Window: limiter.MaxWindow},
			"sliding window":     {Algorithm: limiter.SlidingWindow, Limit: 9, Window: limiter.MaxWindow, SubWindows: 3},
			"log":                {Algorithm: limiter.SlidingLog, Limit: 9, Window: limiter.MaxWindow},
			"bucket":             {Algorithm: limiter.TokenBucket, Limit: 1, Window: limiter.MaxWindow, Burst: 9},
			"counts denied hits": {Algorithm: limiter.SlidingWindow, Limit: 9, Window: limiter.MaxWindow, SubWindows: 3, CountRefused: true},
		} {
			part := hitInSlots(&number, p, 0, redis.Slots/2)
			part.Reserve, part.Hits = part.Policy.Reserve != nil, 2
			want := uint64(0)
			if part.Policy.CountRefused {
				want = 2 * part.Hits
			}
			other := tt.lost
			for _, other.Group = range []int32{0, 1} { // in one group, and in two
				if err := c.decide(s, part, other); !errors.Is(err, ErrUnavailable) {
					t.Fatalf("%s, %s: decide = %v, want %v", name, kind, err, ErrUnavailable)
				}
			}
			storetest.Eventually(t, name+", "+kind+": the charge is refunded", func() bool { return c.heldHits(t, s, part) == want })
		}
		if n := s.unsyncedCounters(); n > 0 {
			t.Errorf("%s: %d counters are unsynced", name, n)
		}
	}
}

// hitInSlots returns a hit on the next counter, after number, whose slot is in a range.
func hitInSlots(number *uint64, p *limiter.Policy, from, to int) limiter.Charge {
	for {
		*number++
		c := oneHit(*number, p)
		if slot := int(redis.SlotOf(nameOf("s1", &c))); slot >= from && slot < to {
			return c
		}
	}
}

// If the store counts some hits of a request, and other commands fail with an error that makes the
// shard unavailable, each hit counts once after the recovery, and the keys expire.
func TestPartlyCountedRequests(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t)
	r := newRelay(t, srv.Addr, nil, false)
	o := &recorder{}
	failures := func() (all int) {
		for _, kind := range redis.Kinds {
			all += o.failuresOf(kind)
		}
		return all
	}
	s := runStore(t, Options{Server: redis.Server{Network: "tcp", Address: r.addr}, Observer: o, Timeout: time.Minute, DialTimeout: time.Minute})
	storetest.Eventually(t, "up", s.Up)
	p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1 << 30, Window: limiter.MaxWindow, CountRefused: true}
	number := uint64(0)
	for _, late := range []bool{false, true} { // whether the caller's deadline has passed
		for _, lacks := range []string{"a key", "expiries"} {
			number += 2
			counted, other := oneHit(number, p), oneHit(number+1, p)
			rights := []string{"ACL", "SETUSER", "default", "-expireat"}
			if lacks == "a key" {
				rights = []string{"ACL", "SETUSER", "default", "resetkeys", "~" + string(nameOf("s1", &counted)) + "*", "~s1{probe}*"}
			}
			srv.Must(rights...)
			failed := failures()
			var c caller
			hasRun := func() bool { return srv.Must("EXISTS", keyOf(&counted)) == "1" }
			if late {
				c.startLate(t, s, r, replied, hasRun, counted, other)
			} else {
				r.pauseReplies(true)
				if done, err := c.start(s, 0, counted, other); done || err != nil {
					t.Fatal(done, err)
				}
				storetest.Eventually(t, "the store has run the request", hasRun)
			}
			srv.Must("ACL", "SETUSER", "default", "allkeys", "+@all")
			r.pauseReplies(false)
			if !late {
				must.OK(t, <-c.decided)
			}
			storetest.Eventually(t, "all hits are synced", func() bool {
				return failures() > failed && s.Up() && s.unsyncedCounters() == 0 && srv.Must("EXISTS", keyOf(&other)) == "1"
			})
			for _, charge := range []limiter.Charge{counted, other} {
				if got := srv.Must("GET", keyOf(&charge)); got != "1" {
					t.Errorf("the user lacks %s, late %v: the store has %s hits of counter %d, want 1", lacks, late, got, charge.ID.Lo)
				}
				storetest.Eventually(t, "the key expires", func() bool { return srv.Must("TTL", keyOf(&charge)) != "-1" })
			}
		}
	}
}

//go:build more

package store

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/script"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// addHits records unsynced hits on a counter, without waking a shard.
func (s *Store) addHits(tb testing.TB, charge limiter.Charge, hits uint64) {
	tb.Helper()
	now := s.main.time(limiter.Time(time.Now().UnixNano()))
	charge.Hits = hits
	b := limiter.Batch{Charges: []limiter.Charge{charge}}
	b.Stored().ResetDecisions()
	b.Decisions[0].Charged = hits
	name := script.AppendName(nil, now, charge.Policy, nameOf("s1", &charge))
	s.main.recordUnsynced(Allow, now, &b, 0, name, string(name), redis.SlotOf(name), &caller{})
}

// countersIn returns n counters of charge's kind in slots from first to last, in the order of their
// slots.
func countersIn(charge func(n uint64) limiter.Charge, n int, first, last uint16) (all []limiter.Charge) {
	for id := uint64(1); len(all) < n; id++ {
		c := charge(id)
		if slot := redis.SlotOf(nameOf("s1", &c)); slot >= first && slot <= last {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b limiter.Charge) int {
		return int(redis.SlotOf(nameOf("s1", &a))) - int(redis.SlotOf(nameOf("s1", &b)))
	})
	return all
}

// Hits of a moving slot are charged at the node that has their key, or that will have it. They do
// not delay the hits of other slots.
func TestUnsyncedHitsOfMovingSlots(t *testing.T) {
	t.Parallel()
	fixed := func(n uint64) limiter.Charge { return oneHit(n, hugeFixedWindow) }
	counter := func(charge *limiter.Charge) string {
		return string(script.AppendName(nil, limiter.Time(time.Now().UnixNano()), hugeFixedWindow, nameOf("s1", charge)))
	}
	for name, tt := range map[string]struct {
		prepare func(m *movingSlot, key string)
		had     int
	}{
		"a new key": {prepare: func(m *movingSlot, _ string) { m.begin() }},
		"a key at the old node": {func(m *movingSlot, key string) {
			m.from.Must("SET", key, "7")
			m.begin()
		}, 7},
		"a key at the new node": {func(m *movingSlot, key string) {
			m.from.Must("SET", key, "7")
			m.begin()
			m.migrate()
		}, 7},
		"a slot that has moved": {func(m *movingSlot, key string) {
			m.from.Must("SET", key, "7")
			m.begin()
			m.finish()
		}, 7},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := storetest.StartCluster(t, 2, false)
			o := &recorder{}
			s := runStore(t, Options{Server: nodes(all), Observer: o})
			storetest.Eventually(t, "up", s.Up)
			charges := countersIn(fixed, 6, 0, redis.Slots/2-1)
			slot := newMovingSlot(t, all, nameOf("s1", &charges[0]))
			tt.prepare(slot, counter(&charges[0]))
			for i := range charges {
				s.addHits(t, charges[i], uint64(i+1))
				s.main.requestSync(redis.SlotOf(nameOf("s1", &charges[i]))) // the other node may have the slot by now
			}
			storetest.Eventually(t, "all hits are synced", func() bool { return s.unsyncedCounters() == 0 && o.syncedHits() == 21 })
			for i := range charges {
				want := i + 1
				if i == 0 {
					want += tt.had
				}
				var c caller
				if got := c.usedHits(t, s, charges[i]); got != want {
					t.Errorf("counter %d has %d hits, want %d", i, got, want)
				}
			}
			if o.dropped != 0 || o.failuresOf(redis.Connection)+o.failuresOf(redis.Timeout) != 0 {
				t.Errorf("%d hits were dropped; failures %v", o.dropped, o.failed)
			}
		})
	}
}

// Hits of a slot that cannot be charged yet do not delay other hits. They are charged when the slot
// is stable, without a request or a refresh.
func TestUnsyncedHitsOfAStuckSlot(t *testing.T) {
	t.Parallel()
	all := storetest.StartCluster(t, 2, false)
	o := &recorder{}
	s := runStore(t, Options{Server: nodes(all), Observer: o})
	storetest.Eventually(t, "up", s.Up)
	charges := countersIn(func(n uint64) limiter.Charge { return oneHit(n, hugeFixedWindow) }, 5, 0, redis.Slots/2-1)
	slot := newMovingSlot(t, all, nameOf("s1", &charges[0]))
	slot.begin()
	slot.to.Kill()
	storetest.Eventually(t, "the other node is unavailable", func() bool { return !s.Up() })
	for i := range charges {
		s.addHits(t, charges[i], 3)
	}
	s.main.shardOf(0).requestSync()
	storetest.Eventually(t, "the other hits are synced", func() bool { return s.unsyncedCounters() == 1 && o.syncedHits() == 12 })
	askReplies := errorCount(t, slot.from, "ASK")
	storetest.Eventually(t, "the slot is queried again", func() bool { return errorCount(t, slot.from, "ASK") > askReplies })
	slot.from.Must("CLUSTER", "SETSLOT", slot.slot, "STABLE")
	storetest.Eventually(t, "all hits are synced", func() bool { return s.unsyncedCounters() == 0 && o.syncedHits() == 15 })
	for i := range charges {
		var c caller
		if got := c.usedHits(t, s, charges[i]); got != 3 {
			t.Errorf("counter %d has %d hits, want 3", i, got)
		}
	}
	if !s.main.shardOf(0).isUp() || o.dropped != 0 {
		t.Errorf("isUp = %v, %d hits were dropped", s.main.shardOf(0).isUp(), o.dropped)
	}
}

// syncedHits returns the number of hits that were synced.
func (o *recorder) syncedHits() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.synced
}

// A store that ends charges the unsynced hits of moving slots, though all of its shards end at the
// same time.
func TestUnsyncedHitsOfMovingSlotsAtShutdown(t *testing.T) {
	t.Parallel()
	all := storetest.StartCluster(t, 2, false)
	s := newStore(t, Options{Server: nodes(all)})
	s.flushBound = time.Minute
	other := runStore(t, Options{Server: nodes(all)})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx)
	}()
	storetest.Eventually(t, "up", func() bool { return s.Up() && other.Up() })
	fixed := func(n uint64) limiter.Charge { return oneHit(n, hugeFixedWindow) }
	charges := append(countersIn(fixed, 2, 0, redis.Slots/2-1), countersIn(fixed, 2, redis.Slots/2, redis.Slots-1)...)
	for i := range charges {
		if i%2 == 0 { // a counter at each node
			newMovingSlot(t, all, nameOf("s1", &charges[i])).begin()
		}
		s.addHits(t, charges[i], 3)
	}
	cancel()
	<-ended
	var c caller
	for i := range charges {
		if got := c.usedHits(t, other, charges[i]); got != 3 {
			t.Errorf("counter %d has %d hits, want 3", i, got)
		}
	}
}

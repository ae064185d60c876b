package store

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// sameSet returns a charge of one of the counters that have the same places.
func sameSet(n uint64, p *limiter.Policy) limiter.Charge { return chargeOn(1+n*maxHot, p) }

// Two hot counters with the same places both have blocks.
func TestBlocksOfCountersWithTheSamePlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l := newBlockWorld(t, 1, time.Millisecond), newBlockLedger()
		r, p := w.replicas[0], &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1 << 20, Window: limiter.MaxWindow}
		for range 1000 {
			time.Sleep(time.Millisecond)
			r.requestAll(l, sameSet(0, p))
			r.requestAll(l, sameSet(1, p))
		}
		for n := range uint64(2) {
			if !r.decidesLocally(sameSet(n, p)) {
				t.Errorf("counter %d is not decided from a block", n)
			}
		}
	})
}

// Counters that become hot and cold concurrently have one place each, and are found until they are
// cold.
func TestHotCountersHaveOnePlace(t *testing.T) {
	bl := newBlocks(newStore(t, Options{}), nil)
	p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1 << 20, Window: limiter.MaxWindow}
	for round := range effort.Times(t, 300) {
		var all sync.WaitGroup
		for i := range uint64(6) {
			c := sameSet(i%3, p) // each counter twice, and one more than there are places
			all.Go(func() {
				bl.promote(&limiter.Batch{Charges: []limiter.Charge{c}}, 0, []byte("name"), 100, 0)
				if h := bl.find(&c); h != nil && h.charge.ID != c.ID {
					t.Errorf("found %v instead of %v", h.charge.ID, c.ID)
				}
			})
		}
		elapsed := time.Duration(round) * time.Hour
		all.Go(func() { bl.sweep(moment{elapsed: elapsed}) })
		all.Wait()
		checkPlaces(t, bl)
		if t.Failed() {
			return
		}
	}
	bl.sweep(moment{elapsed: time.Duration(effort.Times(t, 300)) * time.Hour})
	if checkPlaces(t, bl); len(bl.all) > 0 {
		t.Errorf("%d counters are still hot", len(bl.all))
	}
}

// checkPlaces checks that each hot counter has one place, and that only these have one.
func checkPlaces(t *testing.T, bl *blocks) {
	t.Helper()
	found, hot := map[identity.ID]*hotCounter{}, 0
	for i := range bl.hot {
		for k := range bl.hot[i] {
			if h := bl.hot[i][k].Load(); h != nil {
				found[h.charge.ID] = h
				hot++
			}
		}
	}
	if len(found) != hot || len(bl.all) != hot {
		t.Errorf("%d places and %d hot counters, of %d identities", hot, len(bl.all), len(found))
	}
	for _, h := range bl.all {
		if found[h.charge.ID] != h || bl.find(&h.charge) != h {
			t.Errorf("the counter %v has no place, or another one", h.charge.ID)
		}
	}
}

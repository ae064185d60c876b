package store

import (
	"testing"
	"time"
)

// TestBatchesInFlight checks how many batches may be in flight at each round trip.
func TestBatchesInFlight(t *testing.T) {
	t.Parallel()
	for trip, want := range map[time.Duration]int{
		-time.Second: 2, 0: 2, time.Millisecond: 2, 14 * time.Millisecond: 2, 15 * time.Millisecond: 3, 80 * time.Millisecond: 16, time.Hour: 32,
	} {
		sh := newIdleShard(t)
		sh.shortestTrip.Store(int64(time.Hour))
		sh.learnTrip(trip)
		sh.learnTrip(trip + time.Second) // a busy server
		n := 0
		for sh.hasRoomLocked() {
			sh.queue = append(sh.queue, newRequest())
			sh.nextBatch(n, nil)
			n++
		}
		if n != want {
			t.Errorf("%d batches in flight with a round trip of %v, want %d", n, trip, want)
		}
	}
}

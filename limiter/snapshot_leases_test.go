package limiter

import (
	"bytes"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// loadWith loads a snapshot, with or without leases.
func loadWith(t *testing.T, b []byte, leases bool) *Table {
	t.Helper()
	tab, _, err := Load(bytes.NewReader(b), Options{Bytes: 1 << 20, RestoreLeases: leases})
	must.OK(t, err)
	checkSlots(t, tab)
	tab.nonces = nonceKey{0x2545f4914f6cdd1d, 0xa0761d6478bd642f, 0xe7037ed1a0b428db, 0x8ebc6af09c88c6e3, 0x1d8e4e27c47d124f} // differs from the key of newTable
	return tab
}

// TestASnapshotWithoutLeases loads hits, but no permits and reservations. Old leases do not affect
// new ones.
func TestASnapshotWithoutLeases(t *testing.T) {
	const n = 16
	tab := newTable(t, 1<<20)
	id, p := counterID(1), atOnce(n)
	var old []uint64
	for range n {
		old = append(old, acquirePermit(tab, benchNow, id, p))
	}
	loaded := loadWith(t, snapshot(t, tab, benchNow), false)
	now := benchNow + sec
	new1 := acquirePermit(loaded, now, id, p)
	for _, lease := range old {
		if returnLease(loaded, now, id, p, lease) != 0 {
			t.Errorf("the old lease %d released hits", lease)
		}
	}
	for i := range n - 1 {
		if acquirePermit(loaded, now, id, p) == 0 {
			t.Errorf("%d permits are held, want 1", n-1-i)
		}
	}
	for _, lease := range old {
		if returnLease(loaded, now, id, p, lease) != 0 {
			t.Errorf("the old lease %d released hits", lease)
		}
	}
	if acquirePermit(loaded, now, id, p) != 0 || returnLease(loaded, now, id, p, new1) != 1 {
		t.Error("the permits of the new process have changed")
	}

	for name, p := range reserving(1000, 8, false) {
		t.Run(name, func(t *testing.T) {
			b := &budget{newTable(t, 1<<20), counterID(2), p}
			leases := []uint64{b.reserve(benchNow, 300), b.reserve(benchNow, 300)}
			decide(b.table, benchNow, Charge{ID: b.id, Policy: p, Hits: 50})
			for restored, want := range map[bool]uint64{false: 50, true: 650} {
				again := &budget{loadWith(t, snapshot(t, b.table, benchNow), restored), b.id, p}
				if got := again.used(benchNow); got != want {
					t.Errorf("leases restored: %v: %d hits are used or held, want %d", restored, got, want)
				}
				again.settleLease(benchNow, leases[0], 70) // the cost counts whether or not leases were restored
				if got, want := again.used(benchNow), map[bool]uint64{false: 120, true: 420}[restored]; got != want {
					t.Errorf("leases restored: %v: after a cost of 70, %d hits are used or held, want %d", restored, got, want)
				}
			}
		})
	}
}

// TestLeasesSinceASnapshot simulates a crash of a process that granted leases after its last
// snapshot. Returning these does not release leases of the next process.
func TestLeasesSinceASnapshot(t *testing.T) {
	const n = 8
	id, p := identity.ID{Hi: 77 << 8, Lo: 5}, atOnce(2*n)
	tab := newTable(t, 1<<20)
	for range n {
		acquirePermit(tab, benchNow, id, p)
	}
	saved := snapshot(t, tab, benchNow)
	var lost []uint64
	for range n {
		lost = append(lost, acquirePermit(tab, benchNow, id, p))
	}
	again := loadWith(t, saved, true)
	for range n {
		if acquirePermit(again, benchNow, id, p) == 0 { // at the same time
			t.Fatal("more permits are held than were saved")
		}
	}
	for _, lease := range lost {
		if returnLease(again, benchNow, id, p, lease) != 0 {
			t.Errorf("the lease %d of a crashed process released a permit of the next one", lease)
		}
	}
}

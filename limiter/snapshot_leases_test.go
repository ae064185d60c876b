package limiter

import (
	"bytes"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// loadSnapshot loads a snapshot into a table with other nonces.
func loadSnapshot(t *testing.T, b []byte) *Table {
	t.Helper()
	tab, _, err := Load(bytes.NewReader(b), Options{Bytes: 1 << 20})
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
	loaded := loadSnapshot(t, snapshot(t, tab, benchNow))
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
			lease := b.reserve(benchNow, 300)
			decide(b.table, benchNow, Charge{ID: b.id, Policy: p, Hits: 50})
			again := &budget{loadSnapshot(t, snapshot(t, b.table, benchNow)), b.id, p}
			if got := again.used(benchNow); got != 50 {
				t.Errorf("%d hits are used or held, want 50", got)
			}
			again.settleLease(benchNow, lease, 70)
			if got := again.used(benchNow); got != 120 {
				t.Errorf("after a cost of 70, %d hits are used or held, want 120", got)
			}
		})
	}
}

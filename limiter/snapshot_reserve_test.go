package limiter

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// writes is a writer that calls before for each write.
type writes struct {
	bytes.Buffer

	before func()
}

func (w *writes) Write(b []byte) (int, error) {
	w.before()
	return w.Buffer.Write(b)
}

// TestASnapshotLosesNoSettlement settles reservations while a snapshot is written: it contains each
// as a hold, as a cost, or as both.
func TestASnapshotLosesNoSettlement(t *testing.T) {
	const budgets, held = 4000, 7
	for name, p := range reserving(1000, 8, false) {
		t.Run(name, func(t *testing.T) {
			now := benchNow
			table, err := New(Options{Bytes: 8 << 20})
			must.OK(t, err)
			random := rand.New(rand.NewPCG(1, 2))
			all := make([]budget, budgets)
			leases := make([]uint64, budgets)
			for i := range all {
				all[i] = budget{table, identity.ID{Hi: random.Uint64() >> 8, Lo: random.Uint64()}, p}
				if leases[i] = all[i].reserve(now, held); leases[i] == 0 {
					t.Fatalf("reservation %d was denied", i)
				}
			}
			settled := 0
			w := &writes{before: func() {
				for range 150 {
					if settled < budgets {
						all[settled].settleLease(now, leases[settled], held)
						settled++
					}
				}
			}}
			if _, err := table.Save(w, now); err != nil {
				t.Fatal(err)
			}
			if settled < 450 {
				t.Fatalf("%d reservations were settled during the save, want several times 150", settled)
			}
			loaded := load(t, w.Bytes(), 8<<20)
			both := 0
			for i := range all {
				again := budget{loaded, all[i].id, p}
				switch used := again.used(now); used {
				case held:
				case 2 * held:
					both++
				default:
					t.Fatalf("budget %d with %d settled hits: %d hits are used or held, want %d or twice that", i, settled, used, held)
				}
			}
			t.Logf("%d reservations were settled; %d of them are in the snapshot as both a hold and a cost", settled, both)
		})
	}
}

package limiter

import (
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// TestLeaseStats reads the leases of three requests, of which the second ends.
func TestLeaseStats(t *testing.T) {
	permits := &Policy{Algorithm: Concurrency, Limit: 5, Window: 10 * time.Minute}
	hits := &Policy{Algorithm: FixedWindow, Limit: 1000, Window: time.Hour, Reserve: NewReserve(10, 10*time.Minute, true)}
	for name, p := range map[string]*Policy{"permits": permits, "reservations": hits} {
		p.Prepare()
		table, err := New(Options{Bytes: 1 << 20})
		must.OK(t, err)
		at, per := benchNow-benchNow%Time(time.Second), uint64(1)
		if p == hits {
			per = 100
		}
		begin := func(at Time) (lease uint64) {
			b := &Batch{Charges: []Charge{{ID: identity.ID{Hi: 7 << 40, Lo: 1}, Policy: p, Hits: per, Reserve: p == hits}}}
			table.Decide(at, b)
			return b.Lease(0)
		}
		stats := func(at Time) LeaseStats {
			b := &Batch{Charges: []Charge{{ID: identity.ID{Hi: 7 << 40, Lo: 1}, Policy: p}}}
			return table.LeaseStats(at, b, 0)
		}
		if got := stats(at); got != (LeaseStats{}) {
			t.Errorf("%s: %+v before the first lease", name, got)
		}
		begin(at)
		second := begin(at + Time(time.Minute))
		begin(at + Time(2*time.Minute))
		if got, want := stats(at+Time(3*time.Minute)), (LeaseStats{3, 3 * per, 3 * time.Minute, 7 * time.Minute}); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
		table.Decide(at+Time(3*time.Minute), &Batch{Charges: []Charge{{ID: identity.ID{Hi: 7 << 40, Lo: 1}, Policy: p, Hits: second, Refund: true}}})
		if got, want := stats(at+Time(11*time.Minute)), (LeaseStats{1, per, 9 * time.Minute, time.Minute}); got != want {
			t.Errorf("%s: %+v after one lease has expired and one was returned, want %+v", name, got, want)
		}
		if got := stats(at + Time(12*time.Minute)); got != (LeaseStats{}) {
			t.Errorf("%s: %+v after all leases have ended", name, got)
		}
	}
}

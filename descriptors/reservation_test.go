package descriptors

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// newTestServiceWithRows returns a testService whose rules may name the table t.
func newTestServiceWithRows(t *testing.T, rows, text string) *testService {
	t.Helper()
	table, err := limiter.New(limiter.Options{Bytes: 1 << 20})
	must.OK(t, err)
	opt, _ := withTable(t, rows)
	opt.HashKey = table.Key()
	return &testService{t: t, table: table, set: load(t, opt, text)}
}

// heldOf returns the used and reserved hits of a descriptor's counter, the given time after the
// start.
func (d *testService) heldOf(of Descriptor, after time.Duration) uint64 {
	d.t.Helper()
	of.HasHits = true
	d.set.Plan(&d.plan, &Request{Domain: []byte("d"), Descriptors: []Descriptor{of}}, Global{})
	d.table.Decide(opening+limiter.Time(after), &d.plan.Batch)
	return d.plan.Batch.Decisions[0].Before
}

// TestRowReservationLifetime reserves on rows and overrides whose window differs from the rule's.
// Unsettled hits stay reserved for the ttl and, with unsettled: keep, for as long as they would
// count in their own window.
func TestRowReservationLifetime(t *testing.T) {
	const second, minute = int32(rules.Second), int32(rules.Minute)
	for _, tt := range []struct {
		rule, row string // the rule's fields; the columns requests_per_unit, unit, burst
		own       Descriptor
		unsettled string
		held      time.Duration
	}{
		{"100, unit: day", "20,second,", startCall().limit(20, second, 1), "keep", 2 * time.Second},
		{"100, unit: day", "20,second,", startCall().limit(20, second, 1), "release", time.Second},
		{"100, unit: second", "20,minute,", startCall().limit(20, minute, 1), "keep", 61 * time.Second},
		{"100, unit: second", "20,minute,", startCall().limit(20, minute, 1), "release", time.Second},
		{"100, unit: second, algorithm: sliding_window", "20,minute,", startCall().limit(20, minute, 1), "keep", 61 * time.Second},
		{"100, unit: minute, algorithm: token_bucket", "20,second,", startCall().limit(20, second, 1), "keep", 2 * time.Second},
		{"100, unit: minute, algorithm: token_bucket, burst: 300", "20,second,60", startCall().limit(20, second, 1), "keep", 4 * time.Second},
		{"100, unit: second, algorithm: token_bucket", "20,minute,", startCall().limit(20, minute, 1), "keep", 61 * time.Second},
		{"0, unit: day", "20,second,", startCall().limit(20, second, 1), "keep", 2 * time.Second},
	} {
		for name, of := range map[string]Descriptor{"row": startCall(), "override": tt.own} {
			d := newTestServiceWithRows(t, "user,requests_per_unit,unit,burst\nal,"+tt.row+"\n", fmt.Sprintf(`
domain: d
descriptors: [{key: user, rate_limit: {name: s, requests_per_unit: %s, table: t, reserve: {amount: 10, ttl: 1s, unsettled: %s}}}]
`, tt.rule, tt.unsettled))
			for range 2 {
				if p := d.decide(of); p.Batch.Denied || p.Batch.Lease(0) == 0 {
					t.Fatalf("%+v, %s: want exactly two reservations of 10 of 20 hits", tt, name)
				}
			}
			for after, want := range map[time.Duration]uint64{0: 20, tt.held - time.Millisecond: 20, tt.held: 0} {
				if got := d.heldOf(of, after); got != want {
					t.Errorf("rule %s, %s %s, %s: after %v, %d hits are reserved, want %d", tt.rule, name, tt.row, tt.unsettled, after, got, want)
				}
			}
		}
	}
}

// TestEstimatesAreClampedToRow reserves an estimate on a row with a larger capacity than its rule,
// and on a row with a smaller capacity.
func TestEstimatesAreClampedToRow(t *testing.T) {
	for row, want := range map[string]uint64{"100000": 5000, "300": 300, "8192000": 5000, "81920000": 40000} {
		d := newTestServiceWithRows(t, "user,requests_per_unit\nal,"+row+"\n", `
domain: d
descriptors: [{key: user, rate_limit: {name: s, unit: day, requests_per_unit: 1000, table: t, reserve: {p90: true, first: 400}}}]
`)
		for range 64 {
			d.set.Limits[0].Reservation.RecordCost(5000)
		}
		if got := d.decide(startCall()).Batch.Decisions[0].Charged; got != want {
			t.Errorf("under a row of %s, after requests of 5000 hits, a request reserves %d, want %d", row, got, want)
		}
	}
}

// TestSamplesOfAnEstimate records costs until the estimate no longer depends on the initial one.
func TestSamplesOfAnEstimate(t *testing.T) {
	set := load(t, Options{}, `{domain: d, descriptors: [{key: k, rate_limits: [
		{unit: hour, requests_per_unit: 100000, name: a, reserve: {p90: true, first: 4000}}, {unit: day, requests_per_unit: 100000, name: b, reserve: {amount: 500}}]}]}`)
	estimated, fixed := set.Limits[0].Reservation, set.Limits[1].Reservation
	for i := range 100 {
		if n, needed := estimated.Samples(); n != min(i, 64) || needed != 64 {
			t.Errorf("after %d costs there are %d samples of %d, want %d of 64", i, n, needed, min(i, 64))
		}
		estimated.RecordCost(1000)
		fixed.RecordCost(1000)
	}
	if n, needed := fixed.Samples(); n != 0 || needed != 0 {
		t.Errorf("a fixed amount has %d samples of %d, want none", n, needed)
	}
}

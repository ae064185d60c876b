package telemetry

import (
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func TestTimersMatchHistogram(t *testing.T) {
	for _, milliseconds := range []bool{false, true} {
		testTimersMatchHistogram(t, milliseconds)
	}
}

// testTimersMatchHistogram checks the timers of a histogram in the given unit.
func testTimersMatchHistogram(t *testing.T, milliseconds bool) {
	t.Helper()
	addr, lines := packets(t, "udp", "127.0.0.1:0")
	s, m, _ := newTestStatsdOf(t, StatsdOptions{Network: "udp", Addr: addr}, Options{Milliseconds: milliseconds})
	timers := func() []string {
		if err := flush(t, s); err != nil {
			t.Fatal(err)
		}
		var values []string
		for _, l := range lines() {
			if v, ok := strings.CutPrefix(l, "ratelimit_server.ShouldRateLimit.response_time:"); ok {
				values = append(values, strings.TrimSuffix(v, "|ms"))
			}
		}
		return values
	}
	if got := timers(); len(got) != 0 {
		t.Errorf("timers are %v without requests", got)
	}
	for range 990 {
		m.Calls.ShouldRateLimit.Done(0, 12*time.Microsecond) // in the bucket from 10 us to 25 us
	}
	for range 10 {
		m.Calls.ShouldRateLimit.Done(0, 20*time.Second) // above all buckets
	}
	got := timers()
	if len(got) != maxTimerValues || got[0] != "0.010076" || got[98] != "0.024924" || got[99] != "10000.000000" {
		t.Errorf("timers are %v, want %d values, 99 of them from 0.010 to 0.025 and the last 10000", got, maxTimerValues)
	}
	m.Calls.ShouldRateLimit.Done(0, 12*time.Microsecond)
	if got := timers(); !slices.Equal(got, []string{"0.017500"}) {
		t.Errorf("timers are %v, want the one of the last interval", got)
	}
}

// TestHistogramUnits checks that times are sent in milliseconds and other values unchanged,
// whatever the unit of the response time.
func TestHistogramUnits(t *testing.T) {
	for _, milliseconds := range []bool{false, true} {
		addr, lines := packets(t, "udp", "127.0.0.1:0")
		s, m, _ := newTestStatsdOf(t, StatsdOptions{Network: "udp", Addr: addr}, Options{Milliseconds: milliseconds})
		shared := m.Store(nil, nil, nil, func() bool { return true }, func() map[string]bool { return nil }, func() time.Duration { return 0 })
		shared.Batch(2*time.Millisecond, 3)
		if err := flush(t, s); err != nil {
			t.Fatal(err)
		}
		all := lines()
		// The middles of the buckets.
		for _, want := range []string{"sluice_store_batch_duration_seconds:1.750000|ms", "sluice_store_batch_charges:3.000000|ms"} {
			if !slices.Contains(all, want) {
				t.Errorf("milliseconds %v: sent %q, want %q among it", milliseconds, all, want)
			}
		}
	}
}

// TestTimersAfterHistogramReset resets a histogram, as happens to native ones with too many
// buckets, and then exceeds its former counts. All later observations are sent.
func TestTimersAfterHistogramReset(t *testing.T) {
	of := func(created int64, low, high uint64) *dto.Histogram {
		return &dto.Histogram{
			SampleCount: new(low + high), CreatedTimestamp: &timestamppb.Timestamp{Seconds: created},
			Bucket: []*dto.Bucket{{UpperBound: new(1.0), CumulativeCount: new(low)}, {UpperBound: new(2.0), CumulativeCount: new(low + high)}},
		}
	}
	var s sentSeries
	for _, step := range []struct {
		h         *dto.Histogram
		low, high int
	}{
		{of(1, 0, 10), 0, 10},
		{of(1, 0, 12), 0, 2},
		{of(2, 5, 10), 5, 10}, // a larger total, but no more in the second bucket
		{of(3, 20, 20), 20, 20},
		{of(3, 21, 20), 1, 0},
	} {
		low, high := 0, 0
		for _, v := range s.sample(step.h) {
			if v < 1 {
				low++
			} else {
				high++
			}
		}
		if low != step.low || high != step.high {
			t.Errorf("of %v, %d values below 1 and %d above are sent, want %d and %d", step.h, low, high, step.low, step.high)
		}
	}
}

package telemetry

import (
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// histograms returns the response times by status code.
func histograms(t *testing.T, m *Metrics) map[string]*dto.Histogram {
	t.Helper()
	families, err := m.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]*dto.Histogram{}
	for _, f := range families {
		for _, series := range f.GetMetric() {
			for _, l := range series.GetLabel() {
				if f.GetName() == "ratelimit_service_response_time_seconds" && l.GetName() == "code" {
					got[l.GetValue()] = series.GetHistogram()
				}
			}
		}
	}
	return got
}

func TestResponseTime(t *testing.T) {
	for _, tt := range []struct {
		milliseconds bool
		unit, least  float64
	}{{false, 1, 10e-6}, {true, 1e3, 0.01}} {
		m, err := New(Options{Milliseconds: tt.milliseconds})
		if err != nil {
			t.Fatal(err)
		}
		if got := histograms(t, m); len(got) != 1 || got["OK"].GetSampleCount() != 0 {
			t.Errorf("before the first call the series are %v, want only OK, at 0", got)
		}
		call := m.Calls.ShouldRateLimit
		call.Done(0, 10*time.Microsecond)
		call.Done(0, 3*time.Millisecond)
		call.Done(8, time.Minute)
		call.Done(99, time.Second)
		got := histograms(t, m)
		if len(got) != 3 || got["RESOURCE_EXHAUSTED"].GetSampleCount() != 1 || got["UNKNOWN"].GetSampleCount() != 1 {
			t.Errorf("response times are %v, want OK, RESOURCE_EXHAUSTED and, for an undefined code, UNKNOWN", got)
		}
		ok := got["OK"]
		if sum, want := ok.GetSampleSum(), 0.00301*tt.unit; ok.GetSampleCount() != 2 || sum < want*0.999 || sum > want*1.001 {
			t.Errorf("milliseconds %v: %d calls in %v, want 2 in %v", tt.milliseconds, ok.GetSampleCount(), sum, want)
		}
		if first := ok.GetBucket()[0]; first.GetUpperBound() != tt.least || first.GetCumulativeCount() != 1 {
			t.Errorf("the first bucket is %v, want 1 up to %v", first, tt.least)
		}
		if len(ok.GetPositiveSpan()) == 0 {
			t.Error("no native histogram")
		}
	}
}

// TestResponseTimeHasReferenceBuckets checks that the bounds of envoyproxy/ratelimit are buckets,
// so that queries by `le` continue to work.
func TestResponseTimeHasReferenceBuckets(t *testing.T) {
	if !slices.IsSorted(responseTimeBuckets) {
		t.Errorf("buckets are not sorted: %v", responseTimeBuckets)
	}
	for _, le := range prometheus.DefBuckets {
		if !slices.Contains(responseTimeBuckets, le) {
			t.Errorf("no bucket for le=%v", le)
		}
	}
}

func TestCallsDoNotAllocate(t *testing.T) {
	m, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	call := m.Calls.ShouldRateLimit
	if n := must.AllocsPerRun(100, func() {
		call.Requests.Inc()
		call.Done(0, 17*time.Microsecond)
		call.Done(2, 17*time.Microsecond)
	}); n != 0 {
		t.Errorf("a call allocates %v times, want 0", n)
	}
}

func TestMethods(t *testing.T) {
	m, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	if m.Calls.Method("Check") == nil || m.Calls.Method("Watch") == nil || m.Calls.Method("ShouldRateLimit") != m.Calls.ShouldRateLimit {
		t.Error("a method of the server has no metrics")
	}
	if m.Calls.Method("Strange") != nil {
		t.Error("an unknown method has metrics")
	}
}

func BenchmarkCall(b *testing.B) {
	m, err := New(Options{})
	if err != nil {
		b.Fatal(err)
	}
	call := m.Calls.ShouldRateLimit
	took := 17 * time.Microsecond
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			call.Requests.Inc()
			call.Done(0, took)
		}
	})
}

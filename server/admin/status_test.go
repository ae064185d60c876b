package admin

import (
	"testing"

	"github.com/sluice-ratelimit/sluice/telemetry"
)

// TestQuantile interpolates within buckets that end at 1, 2 and 4.
func TestQuantile(t *testing.T) {
	bounds := []float64{1, 2, 4}
	for _, tt := range []struct {
		name    string
		q, n    float64
		buckets []float64
		want    float64
	}{
		{"in the first bucket", 0.5, 10, []float64{10, 10, 10}, 0.5},
		{"at the end of a bucket", 0.5, 10, []float64{5, 10, 10}, 1},
		{"in the last bucket", 0.9, 10, []float64{5, 8, 10}, 3},
		{"above all bounds", 0.99, 10, []float64{5, 5, 5}, 4},
		{"in a bucket after empty ones", 0.5, 10, []float64{0, 0, 10}, 3},
	} {
		if got := quantile(tt.q, tt.n, tt.buckets, bounds); got == nil || *got != tt.want {
			t.Errorf("%s: quantile %v is %v, want %v", tt.name, tt.q, got, tt.want)
		}
	}
	if got := quantile(0.99, 0, []float64{0, 0, 0}, bounds); got != nil {
		t.Errorf("without values the quantile is %v, want none", *got)
	}
}

// TestCountersThatFit uses tables of 1600 bytes.
func TestCountersThatFit(t *testing.T) {
	for _, tt := range []struct {
		name       string
		classes    []telemetry.ClassStats
		used, want int64
	}{
		{"empty", []telemetry.ClassStats{{CounterBytes: 16}}, 0, 100},
		{"one size", []telemetry.ClassStats{{CounterBytes: 16, Live: 50}}, 50, 100},
		{"two sizes", []telemetry.ClassStats{{CounterBytes: 16, Live: 10}, {CounterBytes: 64, Live: 10}}, 20, 40},
	} {
		used, capacity := countersThatFit(telemetry.TableStats{Bytes: 1600, Classes: tt.classes})
		if used != tt.used || capacity != tt.want {
			t.Errorf("%s: %d of %d counters, want %d of %d", tt.name, used, capacity, tt.used, tt.want)
		}
	}
}

package division_test

import (
	"math"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/rlqs/division"
)

// TestDemandAfterAStep checks the demand estimated from the first two reports after a step, for
// steps at different parts of the interval.
func TestDemandAfterAStep(t *testing.T) {
	const share = 100.0
	for _, tt := range []struct {
		name     string
		old, new float64
		part     float64 // fraction of the interval before the step
		want     float64 // estimate after the first report
	}{
		{"falls, early", 300, 20, 0.2, 20},
		{"falls in the middle", 300, 20, 0.5, 20},
		{"falls, late", 300, 20, 0.8, 20},
		{"falls, still denied: the estimate is its share", 300, 200, 0.5, share},
		{"falls, was never denied", 90, 30, 0.5, 30},
		{"falls early, was never denied", 90, 30, 0.2, 10.5},
		{"rises", 30, 90, 0.5, 90},
		{"stays", 300, 300, 0.5, 300},
	} {
		r := newRig(division.Options{Fresh: true})
		report := func(part float64) float64 {
			const seconds = 5
			allowed := min(tt.old, share)*part + min(tt.new, share)*(1-part)
			all := tt.old*part + tt.new*(1-part)
			r.report(1, 0, hundred, uint64(allowed*seconds), uint64((all-allowed)*seconds), seconds*time.Second)
			r.takeAndConfirm(1)
			v, _ := r.View(r.now, bucketOf(0))
			r.advance(seconds * time.Second)
			return v.Shares[0].Demand
		}
		for range 3 {
			report(1)
		}
		if got := report(tt.part); math.Abs(got-tt.want) > 1 {
			t.Errorf("%s: demand %.1f after the first report, want %.1f", tt.name, got, tt.want)
		}
		if got := report(0); math.Abs(got-tt.new) > 1 {
			t.Errorf("%s: demand %.1f after the second report, want %.1f", tt.name, got, tt.new)
		}
	}
}

package division_test

import (
	"math"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/rlqs/division"
)

// TestCountShadowHits counts hits of two streams that report every five seconds, with a demand
// below a shadow limit, of twice the limit, and of zero.
func TestCountShadowHits(t *testing.T) {
	r := newRig(division.Options{Fresh: true})
	limit := &division.Limit{Strategy: division.AllowAll, Hits: 100, Window: time.Second}
	r.reportFirst(1, 0, limit)
	excess := uint64(0)
	reports := func(n int, hits uint64) {
		for range n {
			r.now += 2500 * time.Millisecond // the streams report alternately
			excess += r.CountShadowHits(r.now, bucketOf(0), hits)
		}
	}
	for _, step := range []struct {
		n        int
		hits     uint64
		from, to uint64
	}{
		{24, 240, 0, 0},       // 96 per second for a minute
		{24, 500, 5400, 6000}, // 200 per second: half exceeds the limit, except for the saved tokens
		{24, 240, 5400, 6000}, // within the limit again
		{24, 0, 5400, 6000},   // saves the tokens of at most five seconds
		{1, 1000, 5900, 6500},
	} {
		if reports(step.n, step.hits); excess < step.from || excess > step.to {
			t.Errorf("after %d reports of %d: %d hits exceed the limit, want %d to %d", step.n, step.hits, excess, step.from, step.to)
		}
	}
	for i, l := range []*division.Limit{{Strategy: division.AllowAll}, hundred, {Strategy: division.DenyAll}} {
		if r.reportFirst(1, 1+i, l); r.CountShadowHits(r.now, bucketOf(1+i), 1<<40) != 0 {
			t.Errorf("hits exceed the limit %+v", l)
		}
	}
	if r.CountShadowHits(r.now, bucketOf(9), 7) != 0 {
		t.Error("hits of an unknown bucket exceed a limit")
	}
	r.reportFirst(1, 5, &division.Limit{Strategy: division.AllowAll, Window: time.Second, MinTokens: 4})
	r.reportFirst(1, 6, limit)
	r.CountShadowHits(r.now, bucketOf(6), math.MaxUint64)
	r.now += 5 * time.Second
	if got := r.CountShadowHits(r.now, bucketOf(6), 10); got != 0 {
		t.Errorf("after a huge report %d of 10 hits exceed the limit, want none", got)
	}
	if got := r.CountShadowHits(r.now, bucketOf(5), 7); got != 7 {
		t.Errorf("%d of 7 hits exceed a limit of 0, want all", got)
	}
}

// TestSmallShadowLimits counts the hits of an hour that exceed limits with less than one hit in a
// report interval.
func TestSmallShadowLimits(t *testing.T) {
	for _, tt := range []struct{ perHour, hits uint64 }{{9, 1}, {9, 2}, {600, 1}, {3600, 6}} {
		l := &division.Limit{Hits: tt.perHour, Window: time.Hour, MinTokens: 4, Strategy: division.AllowAll}
		r := newRig(division.Options{Fresh: true})
		sent, within := uint64(0), uint64(0)
		for range 720 {
			r.advance(5 * time.Second)
			r.report(1, 0, l, tt.hits, 0, 5*time.Second)
			sent, within = sent+tt.hits, within+tt.hits-r.CountShadowHits(r.now, bucketOf(0), tt.hits)
		}
		if want := min(sent, tt.perHour); within < want-1 || within > want+5 {
			t.Errorf("%d hits an hour, %d in each report: %d are within the limit of %d", sent, tt.hits, within, tt.perHour)
		}
	}
}

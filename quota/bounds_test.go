package quota_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/quota"
)

func TestIdleBucketsAreAbandoned(t *testing.T) {
	r := newRig(quota.Options{Fresh: true, IdleReports: 3})
	r.first(1, 0, hundred)
	for i := range 3 {
		r.told(1)
		r.pass(5 * time.Second)
		r.report(1, 0, hundred, 0, 0, 5*time.Second)
		if got := r.Counts().Abandoned; got != uint64(i/2) {
			t.Errorf("after %d idle reports %d are abandoned", i+1, got)
		}
	}
	if a := r.told(1); len(a) > 1 || r.Counts().Abandoned != 1 {
		t.Errorf("told %+v, %+v", a, r.Counts())
	}
	r.pass(time.Second)
	if c := r.Counts(); c.Buckets != 0 {
		t.Errorf("left %+v", c)
	}
	r.first(1, 0, hundred)
	if got := r.rate(1); got != int64(perHour(100)) {
		t.Errorf("told %d after it was abandoned", got)
	}
}

// TestIdleBucketsAreAbandonedUnconfirmed holds it where each confirmation comes two reports late.
func TestIdleBucketsAreAbandonedUnconfirmed(t *testing.T) {
	r := newRig(quota.Options{Fresh: true, IdleReports: 3})
	r.first(1, 0, hundred)
	var last, before uint64
	for range 8 {
		actions, seq, _ := r.Take(r.now, 1, nil, 9)
		if len(actions) == 1 && actions[0].Kind == quota.Abandon {
			return
		}
		if seq == 0 {
			seq = last
		}
		r.pass(5 * time.Second)
		r.report(1, 0, hundred, 0, 0, 5*time.Second)
		r.Confirmed(r.now, 1, before)
		r.Tick(r.now)
		last, before = seq, last
	}
	t.Error("an idle bucket is never abandoned")
}

func TestBounds(t *testing.T) {
	r := newRig(quota.Options{Fresh: true, MaxStreamBuckets: 3, MaxBuckets: 5})
	outcomes := func(h quota.Holder) (kept int) {
		for i := range 4 {
			if r.first(h, i, hundred) == quota.Kept {
				kept++
			}
		}
		return kept
	}
	if got := []int{outcomes(1), outcomes(2), outcomes(3)}; !slices.Equal(got, []int{3, 2, 0}) {
		t.Errorf("kept %v, want 3 of a stream and 5 in all", got)
	}
	if got := r.Counts(); got.Shares != 5 || got.NoRoom != 7 {
		t.Errorf("%+v", got)
	}
	narrow := newRig(quota.Options{Fresh: true, MaxIDBytes: 2})
	if got := []quota.Outcome{narrow.first(1, 0, hundred), narrow.first(1, 1, hundred), narrow.first(1, 2, hundred)}; got[1] != quota.Kept || got[2] != quota.NoRoom {
		t.Errorf("outcomes %v of ids of a byte each, with room for two", got)
	}
	// Where half the room is taken, one idle report is enough.
	r.told(1)
	r.pass(5 * time.Second)
	r.report(1, 0, hundred, 0, 0, 5*time.Second)
	if a := r.told(1); len(a) != 1 || a[0].Kind != quota.Abandon {
		t.Errorf("told %+v, want Abandon", a)
	}
}

// TestPatience holds that who has no assignment and can get none is told to deny, and who may still act
// on an old one is not.
func TestPatience(t *testing.T) {
	for _, elapsed := range []time.Duration{0, 5 * time.Second} {
		r := newRig(quota.Options{Fresh: true})
		r.first(1, 0, hundred)
		r.told(1)
		r.Closed(r.now, 1)
		r.report(2, 0, hundred, 1, 0, elapsed)
		if a := r.told(2); a != nil {
			t.Errorf("told %+v at once", a)
		}
		r.pass(1001 * time.Millisecond)
		if a := r.told(2); (elapsed == 0) != (len(a) == 1 && a[0].Kind == quota.AssignNone) {
			t.Errorf("elapsed %v: told %+v after a second", elapsed, a)
		}
		r.pass(4 * time.Second)
		r.report(2, 0, hundred, 1, 0, 5*time.Second)
		r.told(2)
		r.pass(7499 * time.Millisecond)
		if got := r.rate(2); got != int64(perHour(100)) {
			t.Errorf("elapsed %v: told %d once the other's share has ended", elapsed, got)
		}
	}
}

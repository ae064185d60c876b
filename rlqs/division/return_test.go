package division_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/rlqs/division"
)

// TestPeerReconnectsBeforeClose has an Envoy open a new stream before the service notices the end
// of the previous one. When the previous stream is closed, the new one inherits its rates, unless
// the two may belong to different Envoys.
func TestPeerReconnectsBeforeClose(t *testing.T) {
	for _, tt := range []struct {
		name    string
		elapsed time.Duration                           // in the first report of the new stream
		between func(r *rig) (newest division.StreamID) // called while both are open
		closed  [2]division.StreamID
		want    int64
	}{
		{"reconnects", 5 * time.Second, func(*rig) division.StreamID { return 2 }, [2]division.StreamID{1, 0}, int64(perHour(100))},
		{"reconnects twice", 5 * time.Second, func(r *rig) division.StreamID {
			r.OpenStream(r.now, 3, 7, 0)
			r.report(3, 0, hundred, 500, 0, 5*time.Second)
			return 3
		}, [2]division.StreamID{1, 2}, int64(perHour(100))},
		{"another one joins", 0, func(*rig) division.StreamID { return 2 }, [2]division.StreamID{1, 0}, -1},
		{"both report", 5 * time.Second, func(r *rig) division.StreamID {
			r.report(1, 0, hundred, 500, 0, 5*time.Second)
			return 2
		}, [2]division.StreamID{1, 0}, -1},
		{"both report, but are read after a stall", 5 * time.Second, func(r *rig) division.StreamID {
			r.now += 4 * time.Second
			r.report(1, 0, hundred, 500, 0, 5*time.Second)
			return 2
		}, [2]division.StreamID{1, 0}, int64(perHour(100))},
		{"the older one confirms", 5 * time.Second, func(r *rig) division.StreamID {
			r.Confirm(r.now, 1, 1)
			return 2
		}, [2]division.StreamID{1, 0}, -1},
		{"the newer one ends first", 5 * time.Second, func(r *rig) division.StreamID {
			r.CloseStream(r.now, 2)
			r.OpenStream(r.now, 3, 7, 0)
			r.report(3, 0, hundred, 500, 0, 5*time.Second)
			return 3
		}, [2]division.StreamID{1, 0}, -1},
		{"it was two Envoys a minute before", 5 * time.Second, nil, [2]division.StreamID{1, 0}, -1},
	} {
		r := newRig(division.Options{Fresh: true, MaxLate: 500 * time.Millisecond})
		r.OpenStream(r.now, 1, 7, 0)
		if tt.between == nil {
			r.OpenStream(r.now, 9, 7, 0)
			r.reportFirst(1, 1, hundred)
			r.CloseStream(r.now, 9)
			r.advance(time.Minute)
			tt.between = func(*rig) division.StreamID { return 2 }
		}
		r.reportFirst(1, 0, hundred)
		r.takeAndConfirm(1)
		r.advance(4 * time.Second)
		r.OpenStream(r.now, 2, 7, 0)
		r.report(2, 0, hundred, 500, 0, tt.elapsed)
		newest := tt.between(r)
		for _, stream := range tt.closed {
			r.CloseStream(r.now, stream)
		}
		r.advance(300 * time.Millisecond) // after a stall nothing can be taken for a moment
		if got := r.takeRate(newest); got != tt.want {
			t.Errorf("%s: assigned is %d, want %d", tt.name, got, tt.want)
		}
	}
}

// TestReconnectedPeerKeepsShare has one of two Envoys reconnect while most requests of both are
// denied. Envoy truncates the elapsed time to seconds, so the first report of the new stream may
// cover up to a second more than its Elapsed. Compared with it, the next report looks like a lower
// demand. The Envoy must keep its half of the limit nevertheless.
func TestReconnectedPeerKeepsShare(t *testing.T) {
	for elapsed := 4 * time.Second; elapsed < 20*time.Second; elapsed += time.Second {
		r := newRig(division.Options{Fresh: true})
		all := []division.StreamID{1, 2}
		for i, stream := range all {
			r.OpenStream(r.now, stream, uint64(i)+1, uint64(i)+1)
			r.reportFirst(stream, 0, hundred)
		}
		report := func(stream division.StreamID, seconds uint64, elapsed time.Duration) {
			r.report(stream, 0, hundred, 50*seconds, 450*seconds, elapsed)
		}
		deliver := func() {
			for range 3 {
				r.takeAndConfirm(all[0])
				r.takeAndConfirm(all[1])
			}
		}
		for range 4 {
			r.advance(5 * time.Second)
			for _, stream := range all {
				report(stream, 5, 5*time.Second)
			}
			deliver()
		}
		r.CloseStream(r.now, 2)
		r.OpenStream(r.now, 3, 2, 2)
		all[1] = 3
		r.advance(5 * time.Second)
		report(1, 5, 5*time.Second)
		covered := uint64(elapsed / time.Second)
		if covered%5 != 0 {
			covered++
		}
		report(3, covered, elapsed)
		deliver()
		r.advance(5 * time.Second)
		report(1, 5, 5*time.Second)
		report(3, 5, 5*time.Second)
		for _, a := range r.takeAndConfirm(3) {
			if a.Kind != division.Assign || a.Rate != perHour(50) {
				t.Errorf("%v: the action is %+v, want half of the limit", elapsed, a)
			}
		}
	}
}

// TestStalledCaller calls Tick four seconds late. No action can be taken for the next 250 ms.
func TestStalledCaller(t *testing.T) {
	r := newRig(division.Options{Fresh: true, MaxLate: 500 * time.Millisecond})
	r.reportFirst(1, 0, hundred)
	if next := r.tick(); next != r.now+500*time.Millisecond || r.takeRate(1) != int64(perHour(100)) {
		t.Fatalf("the next Tick is due in %v", next-r.now)
	}
	for range 30 {
		r.advance(time.Second)
		r.AppendReady(nil)
		r.report(1, 0, hundred, 100, 0, 5*time.Second)
		if got := r.takeRate(1); got != int64(perHour(100)) {
			t.Fatalf("assigned is %d", got)
		}
	}
	r.AppendReady(nil)
	r.report(1, 0, hundred, 100, 0, 5*time.Second)
	r.now += 4 * time.Second
	if got := r.takeAndConfirm(1); got != nil {
		t.Errorf("the actions are %+v immediately after the stall", got)
	}
	if got := r.AppendReady(nil); got != nil {
		t.Errorf("AppendReady() = %v immediately after the stall", got)
	}
	if next := r.tick(); next > r.now+250*time.Millisecond {
		t.Errorf("the next Tick is due in %v", next-r.now)
	}
	r.advance(250 * time.Millisecond)
	if got := r.AppendReady(nil); !slices.Equal(got, []division.StreamID{1}) {
		t.Errorf("AppendReady() = %v", got)
	}
	if got := r.takeRate(1); got != int64(perHour(100)) {
		t.Errorf("after the pause %d is assigned", got)
	}
	r.CloseStream(r.now, 1)
	r.advance(20 * time.Second)
	if next := r.tick(); next < r.now+time.Minute {
		t.Errorf("without streams the next Tick is due in %v", next-r.now)
	}
}

package quota_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/quota"
)

// TestPeerComesBackBeforeItsEndIsNoticed has an Envoy open another stream while its last one is still open here. It takes over what
// that one held when it ends, unless both streams may be of different Envoys.
func TestPeerComesBackBeforeItsEndIsNoticed(t *testing.T) {
	for _, tt := range []struct {
		name    string
		elapsed time.Duration                        // of the first report of the other stream
		between func(r *rig) (newest quota.StreamID) // while both are open
		closed  [2]quota.StreamID
		want    int64
	}{
		{"comes back", 5 * time.Second, func(*rig) quota.StreamID { return 2 }, [2]quota.StreamID{1, 0}, int64(perHour(100))},
		{"comes back twice", 5 * time.Second, func(r *rig) quota.StreamID {
			r.OpenStream(r.now, 3, 7, 0)
			r.report(3, 0, hundred, 500, 0, 5*time.Second)
			return 3
		}, [2]quota.StreamID{1, 2}, int64(perHour(100))},
		{"another one joins", 0, func(*rig) quota.StreamID { return 2 }, [2]quota.StreamID{1, 0}, -1},
		{"both report", 5 * time.Second, func(r *rig) quota.StreamID {
			r.report(1, 0, hundred, 500, 0, 5*time.Second)
			return 2
		}, [2]quota.StreamID{1, 0}, -1},
		{"the older one confirms", 5 * time.Second, func(r *rig) quota.StreamID {
			r.Confirm(r.now, 1, 1)
			return 2
		}, [2]quota.StreamID{1, 0}, -1},
		{"the newer one ends first", 5 * time.Second, func(r *rig) quota.StreamID {
			r.CloseStream(r.now, 2)
			r.OpenStream(r.now, 3, 7, 0)
			r.report(3, 0, hundred, 500, 0, 5*time.Second)
			return 3
		}, [2]quota.StreamID{1, 0}, -1},
		{"it was two Envoys a minute before", 5 * time.Second, nil, [2]quota.StreamID{1, 0}, -1},
	} {
		r := newRig(quota.Options{Fresh: true})
		r.OpenStream(r.now, 1, 7, 0)
		if tt.between == nil {
			r.OpenStream(r.now, 9, 7, 0)
			r.first(1, 1, hundred)
			r.CloseStream(r.now, 9)
			r.pass(time.Minute)
			tt.between = func(*rig) quota.StreamID { return 2 }
		}
		r.first(1, 0, hundred)
		r.told(1)
		r.pass(4 * time.Second)
		r.OpenStream(r.now, 2, 7, 0)
		r.report(2, 0, hundred, 500, 0, tt.elapsed)
		newest := tt.between(r)
		for _, h := range tt.closed {
			r.CloseStream(r.now, h)
		}
		r.tick()
		if got := r.rate(newest); got != tt.want {
			t.Errorf("%s: told %d, want %d", tt.name, got, tt.want)
		}
	}
}

// TestPeerThatComesBackKeepsItsDemand has an Envoy of two that are both denied most of their requests come back with another
// stream. Envoy cuts off fractions of seconds, so its report may cover a second more than it says. The Envoy's next report then
// looks as if its requests had become fewer, and so it must keep its half of the limit.
func TestPeerThatComesBackKeepsItsDemand(t *testing.T) {
	for elapsed := 4 * time.Second; elapsed < 20*time.Second; elapsed += time.Second {
		r := newRig(quota.Options{Fresh: true})
		all := []quota.StreamID{1, 2}
		for i, h := range all {
			r.OpenStream(r.now, h, uint64(i)+1, uint64(i)+1)
			r.first(h, 0, hundred)
		}
		report := func(h quota.StreamID, seconds uint64, elapsed time.Duration) {
			r.report(h, 0, hundred, 50*seconds, 450*seconds, elapsed)
		}
		settle := func() {
			for range 3 {
				r.told(all[0])
				r.told(all[1])
			}
		}
		for range 4 {
			r.pass(5 * time.Second)
			for _, h := range all {
				report(h, 5, 5*time.Second)
			}
			settle()
		}
		r.CloseStream(r.now, 2)
		r.OpenStream(r.now, 3, 2, 2)
		all[1] = 3
		r.pass(5 * time.Second)
		report(1, 5, 5*time.Second)
		covered := uint64(elapsed / time.Second)
		if covered%5 != 0 {
			covered++
		}
		report(3, covered, elapsed)
		settle()
		r.pass(5 * time.Second)
		report(1, 5, 5*time.Second)
		report(3, 5, 5*time.Second)
		for _, a := range r.told(3) {
			if a.Kind != quota.Assign || a.Rate != perHour(50) {
				t.Errorf("%v: told %+v, want half of the limit", elapsed, a)
			}
		}
	}
}

// TestStalledCaller delays calls: no action can be taken for a while, but soon after.
func TestStalledCaller(t *testing.T) {
	r := newRig(quota.Options{Fresh: true, MaxLate: 500 * time.Millisecond})
	r.first(1, 0, hundred)
	if next := r.tick(); next != r.now+500*time.Millisecond || r.rate(1) != int64(perHour(100)) {
		t.Fatalf("the next Tick is due in %v", next-r.now)
	}
	for range 30 {
		r.pass(time.Second)
		r.AppendReady(nil)
		r.report(1, 0, hundred, 100, 0, 5*time.Second)
		if got := r.rate(1); got != int64(perHour(100)) {
			t.Fatalf("told %d", got)
		}
	}
	r.AppendReady(nil)
	r.report(1, 0, hundred, 100, 0, 5*time.Second)
	r.now += 4 * time.Second
	if got := r.told(1); got != nil {
		t.Errorf("told %+v as soon as the caller goes on", got)
	}
	if got := r.AppendReady(nil); got != nil {
		t.Errorf("Ready() = %v as soon as the caller goes on", got)
	}
	if next := r.tick(); next > r.now+250*time.Millisecond {
		t.Errorf("the next Tick is due in %v", next-r.now)
	}
	r.pass(250 * time.Millisecond)
	if got := r.AppendReady(nil); !slices.Equal(got, []quota.StreamID{1}) {
		t.Errorf("Ready() = %v", got)
	}
	if got := r.rate(1); got != int64(perHour(100)) {
		t.Errorf("then told %d", got)
	}
	r.CloseStream(r.now, 1)
	r.pass(20 * time.Second)
	if next := r.tick(); next < r.now+time.Minute {
		t.Errorf("without streams the next Tick is due in %v", next-r.now)
	}
}

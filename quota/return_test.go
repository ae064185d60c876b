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
		elapsed time.Duration                      // of the first report of the other stream
		between func(r *rig) (newest quota.Holder) // while both are open
		closed  [2]quota.Holder
		want    int64
	}{
		{"comes back", 5 * time.Second, func(*rig) quota.Holder { return 2 }, [2]quota.Holder{1, 0}, int64(perHour(100))},
		{"comes back twice", 5 * time.Second, func(r *rig) quota.Holder {
			r.Opened(r.now, 3, 7, 0)
			r.report(3, 0, hundred, 500, 0, 5*time.Second)
			return 3
		}, [2]quota.Holder{1, 2}, int64(perHour(100))},
		{"another one joins", 0, func(*rig) quota.Holder { return 2 }, [2]quota.Holder{1, 0}, -1},
		{"both report", 5 * time.Second, func(r *rig) quota.Holder {
			r.report(1, 0, hundred, 500, 0, 5*time.Second)
			return 2
		}, [2]quota.Holder{1, 0}, -1},
		{"the older one confirms", 5 * time.Second, func(r *rig) quota.Holder {
			r.Confirmed(r.now, 1, 1)
			return 2
		}, [2]quota.Holder{1, 0}, -1},
		{"the newer one ends first", 5 * time.Second, func(r *rig) quota.Holder {
			r.Closed(r.now, 2)
			r.Opened(r.now, 3, 7, 0)
			r.report(3, 0, hundred, 500, 0, 5*time.Second)
			return 3
		}, [2]quota.Holder{1, 0}, -1},
		{"it was two Envoys a minute before", 5 * time.Second, nil, [2]quota.Holder{1, 0}, -1},
	} {
		r := newRig(quota.Options{Fresh: true})
		r.Opened(r.now, 1, 7, 0)
		if tt.between == nil {
			r.Opened(r.now, 9, 7, 0)
			r.first(1, 1, hundred)
			r.Closed(r.now, 9)
			r.pass(time.Minute)
			tt.between = func(*rig) quota.Holder { return 2 }
		}
		r.first(1, 0, hundred)
		r.told(1)
		r.pass(4 * time.Second)
		r.Opened(r.now, 2, 7, 0)
		r.report(2, 0, hundred, 500, 0, tt.elapsed)
		newest := tt.between(r)
		for _, h := range tt.closed {
			r.Closed(r.now, h)
		}
		r.tick()
		if got := r.rate(newest); got != tt.want {
			t.Errorf("%s: told %d, want %d", tt.name, got, tt.want)
		}
	}
}

// TestCallerStandsStill has calls come late: nothing is to be taken for a while, but soon after.
func TestCallerStandsStill(t *testing.T) {
	r := newRig(quota.Options{Fresh: true, MaxLate: 500 * time.Millisecond})
	r.first(1, 0, hundred)
	if next := r.tick(); next != r.now+500*time.Millisecond || r.rate(1) != int64(perHour(100)) {
		t.Fatalf("the next Tick is due in %v", next-r.now)
	}
	for range 30 {
		r.pass(time.Second)
		r.Ready(nil)
		r.report(1, 0, hundred, 100, 0, 5*time.Second)
		if got := r.rate(1); got != int64(perHour(100)) {
			t.Fatalf("told %d", got)
		}
	}
	r.Ready(nil)
	r.report(1, 0, hundred, 100, 0, 5*time.Second)
	r.now += 4 * time.Second
	if got := r.told(1); got != nil {
		t.Errorf("told %+v as soon as the caller goes on", got)
	}
	if got := r.Ready(nil); got != nil {
		t.Errorf("Ready() = %v as soon as the caller goes on", got)
	}
	if next := r.tick(); next > r.now+250*time.Millisecond {
		t.Errorf("the next Tick is due in %v", next-r.now)
	}
	r.pass(250 * time.Millisecond)
	if got := r.Ready(nil); !slices.Equal(got, []quota.Holder{1}) {
		t.Errorf("Ready() = %v", got)
	}
	if got := r.rate(1); got != int64(perHour(100)) {
		t.Errorf("then told %d", got)
	}
	r.Closed(r.now, 1)
	r.pass(20 * time.Second)
	if next := r.tick(); next < r.now+time.Minute {
		t.Errorf("without streams the next Tick is due in %v", next-r.now)
	}
}

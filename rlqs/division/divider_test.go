package division_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/rlqs/division"
)

func TestFirstStreamGetsAllAndSharesIt(t *testing.T) {
	r := newRig(division.Options{Fresh: true})
	r.reportFirst(1, 0, hundred)
	want := []division.Action{{
		Bucket: bucketOf(0), ID: "\x00", Kind: division.Assign, Rate: perHour(100), MaxTokens: 10, TTL: 12 * time.Second,
	}}
	if diff := cmp.Diff(r.takeAndConfirm(1), want); diff != "" {
		t.Fatalf("the actions of the first stream differ (-got +want):\n%s", diff)
	}
	r.reportFirst(2, 0, hundred)
	if got := r.takeAndConfirm(2); got != nil {
		t.Errorf("the second stream is assigned %+v before the rate of the first is lowered", got)
	}
	lowered, seq, _ := r.TakeActions(r.now, 1, nil, 10)
	if len(lowered) != 1 || lowered[0].Rate >= perHour(100) {
		t.Fatalf("the first stream receives %+v, want a lower rate", lowered)
	}
	r.Tick(r.now)
	if got := r.takeAndConfirm(2); got != nil {
		t.Errorf("the second stream is assigned %+v before the first has confirmed", got)
	}
	r.Confirm(r.now, 1, seq)
	r.Tick(r.now)
	if got := r.takeRate(2); got <= 0 || got+int64(lowered[0].Rate) > int64(perHour(100)) {
		t.Errorf("the second stream is assigned %d in addition to %d of %d", got, lowered[0].Rate, perHour(100))
	}
}

func TestStrategies(t *testing.T) {
	r := newRig(division.Options{Fresh: true})
	for i, tt := range []struct {
		limit *division.Limit
		want  division.Kind
	}{
		{&division.Limit{Strategy: division.AllowAll}, division.AssignAllowAll},
		{&division.Limit{Strategy: division.DenyAll}, division.AssignDenyAll},
		{hundred, division.Assign},
	} {
		r.reportFirst(1, i, tt.limit)
		if a := r.takeAndConfirm(1); len(a) != 1 || a[0].Kind != tt.want || a[0].TTL != 12*time.Second {
			t.Errorf("%+v: the actions are %+v, want kind %d", tt.limit, a, tt.want)
		}
	}
	if got := r.reportFirst(1, 3, nil); got != division.NoLimit {
		t.Errorf("a report without a limit is %d, want NoLimit", got)
	}
	if a := r.takeAndConfirm(1); a != nil {
		t.Errorf("a bucket without a rule and with requests gets %+v", a)
	}
	r.report(1, 3, nil, 0, 0, 5*time.Second)
	if a := r.takeAndConfirm(1); len(a) != 1 || a[0].Kind != division.Abandon {
		t.Errorf("an idle bucket without a rule gets %+v, want Abandon", a)
	}
}

func TestLimitChanges(t *testing.T) {
	r := newRig(division.Options{Fresh: true})
	r.reportFirst(1, 0, hundred)
	r.reportFirst(2, 0, hundred)
	r.takeAndConfirm(1)
	r.takeAndConfirm(2)
	twenty := &division.Limit{Hits: 20, Window: time.Second}
	r.SetLimit(r.now, bucketOf(0), twenty)
	r.Tick(r.now)
	a, seq, _ := r.TakeActions(r.now, 1, nil, 10)
	b := r.takeRate(2)
	if len(a) != 1 || int64(a[0].Rate)+b > int64(perHour(20)) {
		t.Errorf("assigned are %+v and %d of %d", a, b, perHour(20))
	}
	r.SetLimit(r.now, bucketOf(0), hundred)
	r.Tick(r.now)
	if v, _ := r.View(r.now, bucketOf(0)); v.AssignedRate > int64(perHour(100)) {
		t.Errorf("%d is in effect", v.AssignedRate)
	}
	r.Confirm(r.now, 1, seq)
	r.SetLimit(r.now, bucketOf(0), nil)
	r.Tick(r.now)
	r.advance(time.Second)
	for stream := range division.StreamID(2) {
		if a := r.takeAndConfirm(stream + 1); len(a) != 1 || a[0].Kind != division.Abandon {
			t.Errorf("stream %d: without a rule the actions are %+v, want Abandon", stream+1, a)
		}
	}
	if c := r.Counts(); c.Buckets != 0 || c.Shares != 0 {
		t.Errorf("after Abandon the counts are %+v", c)
	}
}

// TestPeers checks which rates streams inherit from streams of the same peer that ended before.
func TestPeers(t *testing.T) {
	for _, tt := range []struct {
		name      string
		peers     [3]uint64 // of two Envoys, and of the new stream
		overlap   bool      // whether both Envoys have streams at the same time
		want      int64
		inherited int // Counts.Inherited
	}{
		{"reconnects", [3]uint64{7, 8, 7}, false, int64(perHour(100)), 1},
		{"another peer", [3]uint64{7, 8, 9}, false, -1, 0},
		{"no peer", [3]uint64{7, 8, 0}, false, -1, 0},
		{"shared peer", [3]uint64{7, 7, 7}, true, -1, 0},
	} {
		r := newRig(division.Options{Fresh: true})
		r.OpenStream(r.now, 1, tt.peers[0], 0)
		if tt.overlap {
			r.OpenStream(r.now, 2, tt.peers[1], 0)
		}
		r.reportFirst(1, 0, hundred)
		r.takeAndConfirm(1)
		r.CloseStream(r.now, 1)
		r.CloseStream(r.now, 2)
		r.now += time.Second
		r.OpenStream(r.now, 3, tt.peers[2], 0)
		r.report(3, 0, hundred, 500, 0, 5*time.Second)
		if got := r.takeRate(3); got != tt.want {
			t.Errorf("%s: assigned is %d, want %d", tt.name, got, tt.want)
		}
		if got := r.Counts().Inherited; got != uint64(tt.inherited) {
			t.Errorf("%s: %d shares inherited, want %d", tt.name, got, tt.inherited)
		}
		r.advance(12 * time.Second)
		r.report(3, 0, hundred, 500, 0, 5*time.Second)
		if got := r.takeRate(3); got != int64(perHour(100)) {
			t.Errorf("%s: %d is assigned once all lost rates have expired", tt.name, got)
		}
	}
}

// TestPeersWhileLearning has the stream of an Envoy end after a restart, before another Envoy of the
// same address has reconnected. The latter does not inherit, so the rates of both stay within the limit.
func TestPeersWhileLearning(t *testing.T) {
	for _, ends := range []time.Duration{time.Second, 7 * time.Second} {
		r := newRig(division.Options{})
		r.OpenStream(r.now, 1, 7, 0)
		r.report(1, 0, hundred, 250, 0, 5*time.Second)
		first := r.takeRate(1)
		r.advance(ends)
		r.CloseStream(r.now, 1)
		r.OpenStream(r.now, 2, 7, 0)
		r.report(2, 0, hundred, 250, 0, 5*time.Second)
		r.advance(6 * time.Second) // the divider has learned
		r.report(2, 0, hundred, 250, 250, 5*time.Second)
		second := max(r.takeRate(2), 0)
		if learned := ends > 6*time.Second; first <= 0 || learned == (first+second <= int64(perHour(100))) {
			t.Errorf("a stream has %d until it ends after %v, and the next of its address %d", first, ends, second)
		}
	}
}

// TestLearning checks the assignments of a divider whose predecessor may have assigned everything.
func TestLearning(t *testing.T) {
	const learning = 6 * time.Second
	r := newRig(division.Options{})
	r.report(1, 0, hundred, 300, 0, 5*time.Second)
	if got := r.takeRate(1); got != int64(perHour(50)) {
		t.Errorf("a stream that admitted 60 per second is assigned %d, want half of the limit", got)
	}
	r.reportFirst(2, 0, hundred)
	r.advance(5 * time.Second)
	if got := r.takeRate(2); got != -1 {
		t.Errorf("a new stream is assigned %d during the learning period", got)
	}
	if v, _ := r.View(r.now, bucketOf(0)); v.Learning != learning-5*time.Second || v.AssignedRate != int64(perHour(100)) {
		t.Errorf("learning for %v, %d in effect", v.Learning, v.AssignedRate)
	}
	r.advance(learning - 5*time.Second)
	r.report(1, 0, hundred, 300, 0, 5*time.Second)
	if got := r.takeRate(1); got <= 0 {
		t.Errorf("assigned is %d after the learning period", got)
	}
}

// TestRestartWithLiar has a client claim all of the limit first after a restart, or after a change of
// the leader, and confirm nothing. The others get nearly the other half.
func TestRestartWithLiar(t *testing.T) {
	for _, tt := range []struct {
		name             string
		predecessorUntil time.Duration
		reports          []division.StreamID // in this order; the streams of the liar are 1 and 2
	}{
		{"restart", 0, []division.StreamID{1, 3, 4}},
		{"change of the leader", 3 * time.Second, []division.StreamID{1, 3, 4}},
		{"two streams", 0, []division.StreamID{3, 1, 2, 4}},
	} {
		r := newRig(division.Options{Fresh: tt.predecessorUntil > 0})
		l := *hundred
		l.PredecessorUntil = tt.predecessorUntil
		most, liar := map[division.StreamID]int64{}, func(stream division.StreamID) bool { return stream <= 2 }
		for stream := division.StreamID(1); stream <= 4; stream++ {
			r.OpenStream(r.now, stream, 0, uint64(max(stream, 2)))
		}
		for at := range 30 {
			r.advance(time.Second)
			for _, stream := range tt.reports {
				hits := uint64(250)
				if liar(stream) {
					hits = 1_000_000
				}
				if at == 0 || at%5 == 1 && !liar(stream) {
					r.report(stream, 0, &l, hits, 0, 5*time.Second)
				}
			}
			for _, stream := range tt.reports {
				actions, seq, _ := r.TakeActions(r.now, stream, nil, 100)
				if !liar(stream) {
					r.Confirm(r.now, stream, seq)
				}
				for _, a := range actions {
					most[stream] = max(most[stream], int64(a.Rate))
				}
			}
		}
		if most[1]+most[2] > int64(perHour(50)) || most[3]+most[4] < int64(perHour(44)) {
			t.Errorf("%s: the liar is assigned %d and %d, and the others %d and %d", tt.name, most[1], most[2], most[3], most[4])
		}
	}
}

// TestOverstatedDemandGetsFairShare checks that an overstated demand takes nothing from streams
// with less than a fair share.
func TestOverstatedDemandGetsFairShare(t *testing.T) {
	r := newRig(division.Options{Fresh: true})
	rates := map[division.StreamID]int64{}
	for range 5 {
		for stream := range division.StreamID(4) {
			if stream == 3 {
				r.report(stream, 0, hundred, math.MaxUint64, math.MaxUint64, 5*time.Second)
			} else {
				r.report(stream, 0, hundred, 100, 0, 5*time.Second) // 20 per second
			}
			for stream := range division.StreamID(4) {
				if rate := r.takeRate(stream); rate >= 0 {
					rates[stream] = rate
				}
			}
		}
		r.advance(5 * time.Second)
	}
	for stream := range division.StreamID(3) {
		if rates[stream] < int64(perHour(20)) {
			t.Errorf("a stream with a demand of 20 per second has %d, the one that overstates its demand %d", rates[stream], rates[3])
		}
	}
	if rates[3] < int64(perHour(35)) {
		t.Errorf("the stream that overstates its demand has %d, want nearly %d", rates[3], perHour(40))
	}
}

// TestFallingDemandIsProbed checks that a stream whose demand fell is probed while another stream
// is denied, and only then.
func TestFallingDemandIsProbed(t *testing.T) {
	for _, tt := range []struct{ last, own, others, want uint64 }{
		{200, 0, 0, 0},
		{200, 100, 0, 0},
		{200, 0, 100, 1},
		{200, 100, 100, 1},
		{340, 100, 100, 0}, // its demand still exceeds its share
	} {
		r := newRig(division.Options{Fresh: true})
		for i := range 3 {
			r.report(1, 0, hundred, []uint64{400, 400, tt.last}[i], tt.own, 5*time.Second)
			r.report(2, 0, hundred, 50, tt.others, 5*time.Second)
			for range 3 {
				r.takeAndConfirm(1)
				r.takeAndConfirm(2)
			}
			if i < 2 {
				r.advance(5 * time.Second)
			}
		}
		if got := r.Counts().Probed; got != tt.want {
			t.Errorf("%+v: probed %d times", tt, got)
		}
		r.advance(300 * time.Millisecond)
		if v, _ := r.View(r.now, bucketOf(0)); len(v.Shares) != 2-int(tt.want) {
			t.Errorf("%+v: the shares after an unanswered probe are %+v", tt, v.Shares)
		}
	}
}

func TestOutbox(t *testing.T) {
	r := newRig(division.Options{Fresh: true})
	for i := range 5 {
		r.reportFirst(1, i, hundred)
	}
	r.reportFirst(2, 0, hundred) // lowers the rate of stream 1 in bucket 0 before its first action is taken
	if got := r.AppendReady(nil); !slices.Contains(got, 1) {
		t.Errorf("AppendReady() = %v", got)
	}
	if got := r.AppendReady(nil); got != nil {
		t.Errorf("AppendReady() = %v again", got)
	}
	first, one, more := r.TakeActions(r.now, 1, nil, 3)
	if len(first) != 3 || !more {
		t.Errorf("TakeActions() = %d, more %v", len(first), more)
	}
	second, two, more := r.TakeActions(r.now, 1, nil, 3)
	if len(second) != 2 || more || two <= one {
		t.Errorf("TakeActions() = %d, more %v, %d after %d", len(second), more, two, one)
	}
	seen := map[string]bool{}
	for _, a := range append(first, second...) {
		if seen[a.ID] {
			t.Errorf("two actions for %q", a.ID)
		}
		seen[a.ID] = true
	}
	confirmed := func() (n int) {
		for i := range 5 {
			if v, _ := r.View(r.now, bucketOf(i)); v.Shares[0].Confirmed {
				n++
			}
		}
		return n
	}
	r.Confirm(r.now, 1, one)
	if got := confirmed(); got != 3 {
		t.Errorf("%d shares are confirmed, want the first three", got)
	}
	r.Confirm(r.now, 1, two)
	if got := confirmed(); got != 5 {
		t.Errorf("%d shares are confirmed, want all", got)
	}
}

// TestSilentStreamsLeaveNoState checks that all state of silent streams is removed, even after a
// jump of the clock.
func TestSilentStreamsLeaveNoState(t *testing.T) {
	r := newRig(division.Options{Fresh: true})
	r.OpenStream(r.now, 1, 5, 0)
	r.reportFirst(1, 0, hundred)
	r.takeAndConfirm(1)
	r.reportFirst(2, 1, hundred)
	r.takeAndConfirm(2)
	r.CloseStream(r.now, 2)
	r.CloseStream(r.now, 3)
	r.Confirm(r.now, 3, 99)
	if actions, seq, more := r.TakeActions(r.now, 3, nil, 5); actions != nil || seq != 0 || more {
		t.Error("an unknown stream has actions")
	}
	r.Tick(r.now - time.Hour)
	r.advance(30 * time.Second)
	if c := r.Counts(); c.Buckets != 0 || c.Shares != 0 {
		t.Errorf("left %+v", c)
	}
	if next := r.Tick(0); next <= r.now {
		t.Errorf("Tick() = %v at %v", next, r.now)
	}
}

// TestClockGoesBack checks that a time before the last one expires nothing early.
func TestClockGoesBack(t *testing.T) {
	r := newRig(division.Options{Fresh: true})
	r.now = 20 * time.Second
	r.reportFirst(1, 0, hundred)
	_, seq, _ := r.TakeActions(r.now, 1, nil, 9)
	r.Confirm(r.now-10*time.Second, 1, seq)
	r.CloseStream(r.now-10*time.Second, 1)
	r.now += 12 * time.Second
	r.reportFirst(2, 0, hundred)
	if got := r.takeRate(2); got > 0 {
		t.Errorf("%d is assigned while the complete limit may be in effect at the first stream", got)
	}
}

func TestView(t *testing.T) {
	r := newRig(division.Options{Fresh: true})
	if _, known := r.View(0, bucketOf(0)); known {
		t.Error("an unknown bucket has a view")
	}
	r.reportFirst(1, 0, hundred)
	r.takeAndConfirm(1)
	r.reportFirst(2, 0, hundred)
	r.takeAndConfirm(1)
	r.takeAndConfirm(2)
	r.advance(5 * time.Second)
	r.report(1, 0, hundred, 250, 250, 5*time.Second)
	r.CloseStream(r.now, 2)
	r.Tick(r.now)
	r.TakeActions(r.now, 1, nil, 9)
	got, _ := r.View(r.now, bucketOf(0))
	want := division.View{
		ID: "\x00", Limit: *hundred, Rate: int64(perHour(100)), AssignedRate: int64(perHour(100)), LostRate: got.LostRate, LostFor: 7500 * time.Millisecond,
		Shares: []division.ShareView{{
			Stream: 1, Demand: got.Shares[0].Demand, Rate: got.Shares[0].Rate, MaxRate: got.Shares[0].MaxRate, Assigned: true, Confirmed: true,
		}},
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("View() (-got +want):\n%s", diff)
	}
	share := got.Shares[0]
	if math.Abs(share.Demand-100) > 1 || got.LostRate == 0 || int64(share.MaxRate)+got.LostRate != got.Rate {
		t.Errorf("View() = %+v", got)
	}
	if buckets := slices.Collect(r.Buckets()); !slices.Equal(buckets, []division.Bucket{bucketOf(0)}) {
		t.Errorf("Buckets() = %v", buckets)
	}
}

func TestRates(t *testing.T) {
	for _, tt := range []struct {
		limit division.Limit
		want  int64
	}{
		{division.Limit{Hits: 1, Window: time.Hour}, 1},
		{division.Limit{Hits: 1, Window: 2 * time.Hour}, 0},
		{division.Limit{Hits: 59, Window: 2 * time.Hour}, 29},
		{division.Limit{Hits: 1000, Window: time.Minute}, 60_000},
		{division.Limit{Hits: math.MaxUint64, Window: time.Nanosecond}, 1 << 40},
		{division.Limit{Hits: math.MaxUint64, Window: 24 * 365 * time.Hour}, 1 << 40},
		{division.Limit{Hits: 5}, 0},
	} {
		r := newRig(division.Options{Fresh: true})
		r.reportFirst(1, 0, &tt.limit)
		r.advance(2 * time.Second)
		r.takeAndConfirm(1)
		v, _ := r.View(r.now, bucketOf(0))
		if v.Rate != tt.want || v.AssignedRate != min(tt.want, int64(division.MaxRate)) {
			t.Errorf("%+v: rate %d, %d in effect, want %d", tt.limit, v.Rate, v.AssignedRate, tt.want)
		}
	}
}

// TestReportsDoNotAllocate checks reports of known buckets.
func TestReportsDoNotAllocate(t *testing.T) {
	f := newFleet(3, 50)
	for range 5 {
		f.round()
	}
	if got := must.AllocsPerRun(20, func() { f.round() }); got > 0 {
		t.Errorf("150 reports, divided, taken and confirmed, allocate %v times", got)
	}
}

// ExampleDivider shows how a service uses a Divider.
func ExampleDivider() {
	d := division.NewWith(0, division.Options{Fresh: true})
	limit := &division.Limit{Hits: 100, Window: time.Second, Burst: 100 * time.Millisecond}
	d.OpenStream(1, 1, 0, 0)
	d.Report(2, 1, division.Report{Bucket: division.Bucket{1}, ID: []byte("path=/a"), Limit: limit, Allowed: 1})
	d.Tick(2)
	for _, stream := range d.AppendReady(nil) {
		actions, seq, _ := d.TakeActions(3, stream, nil, 100)
		for _, a := range actions { // written to the stream, followed by a PING
			fmt.Printf("%d: %s may admit %d an hour, %d at once, for %v\n", stream, a.ID, a.Rate, a.MaxTokens, a.TTL)
		}
		d.Confirm(4, stream, seq) // when the PING is acknowledged
	}
	// Output: 1: path=/a may admit 360000 an hour, 10 at once, for 12s
}

// TestPredecessorUntil sets a time until which another divider may have divided a limit. Streams
// keep the rates that they report, and nothing else is assigned until the predecessor's assignments
// have expired.
func TestPredecessorUntil(t *testing.T) {
	r := newRig(division.Options{Fresh: true})
	r.advance(time.Minute)
	l := *hundred
	l.PredecessorUntil = r.now + 3*time.Second
	r.report(1, 0, &l, 200, 0, 5*time.Second)
	if got := r.takeRate(1); got != int64(perHour(40)) {
		t.Errorf("a stream that admitted 40 per second is assigned %d", got)
	}
	for range 3 {
		r.advance(5 * time.Second)
		r.report(1, 0, &l, 200, 50, 5*time.Second)
		if got := r.takeRate(1); got != int64(perHour(40)) {
			t.Errorf("at %v the stream is assigned %d", r.now, got)
		}
	}
	v, _ := r.View(r.now, bucketOf(0))
	if v.Learning != 500*time.Millisecond || v.AssignedRate > v.Rate {
		t.Errorf("%d of %d are in effect, and learning ends in %v", v.AssignedRate, v.Rate, v.Learning)
	}
	r.advance(500 * time.Millisecond)
	r.report(1, 0, &l, 200, 50, 5*time.Second)
	if got := r.takeRate(1); got != int64(perHour(100)) {
		t.Errorf("after the predecessor's assignments have expired, the stream is assigned %d", got)
	}
}

// TestPredecessorAssignedMore has one of two streams report a rate that a predecessor assigned. The
// other stream gets nothing until the first has confirmed a lower rate.
func TestPredecessorAssignedMore(t *testing.T) {
	r := newRig(division.Options{Fresh: true})
	r.advance(time.Minute)
	l := *hundred
	l.PredecessorUntil = r.now + 3*time.Second
	r.report(1, 0, &l, 200, 0, 5*time.Second)
	r.reportFirst(2, 0, &l)
	if got := r.takeRate(2); got != -1 {
		t.Errorf("while the first stream has the rate that it reported, the second is assigned %d", got)
	}
	first := r.takeRate(1)
	if got := r.takeRate(2); first < 0 || got <= 0 || first+got > int64(perHour(40)) {
		t.Errorf("the first stream is assigned %d, and the second %d", first, got)
	}
}

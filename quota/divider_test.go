package quota_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/quota"
)

func TestFirstHolderGetsAllAndSharesIt(t *testing.T) {
	r := newRig(quota.Options{Fresh: true})
	r.first(1, 0, hundred)
	want := []quota.Action{{
		Bucket: bucketOf(0), ID: "\x00", Kind: quota.Assign, Rate: perHour(100), MaxTokens: 10, TTL: 12 * time.Second,
	}}
	if diff := cmp.Diff(r.told(1), want); diff != "" {
		t.Fatalf("the first holder is told (-got +want):\n%s", diff)
	}
	r.first(2, 0, hundred)
	if got := r.told(2); got != nil {
		t.Errorf("the second is told %+v before the first has less", got)
	}
	lowered, seq, _ := r.TakeActions(r.now, 1, nil, 10)
	if len(lowered) != 1 || lowered[0].Rate >= perHour(100) {
		t.Fatalf("the first is told %+v, want less", lowered)
	}
	r.Tick(r.now)
	if got := r.told(2); got != nil {
		t.Errorf("the second is told %+v before the first has confirmed", got)
	}
	r.Confirm(r.now, 1, seq)
	r.Tick(r.now)
	if got := r.rate(2); got <= 0 || got+int64(lowered[0].Rate) > int64(perHour(100)) {
		t.Errorf("the second is told %d beside %d of %d", got, lowered[0].Rate, perHour(100))
	}
}

func TestVerdicts(t *testing.T) {
	r := newRig(quota.Options{Fresh: true})
	for i, tt := range []struct {
		limit *quota.Limit
		want  quota.Kind
	}{
		{&quota.Limit{Strategy: quota.AllowAll}, quota.AssignAllowAll},
		{&quota.Limit{Strategy: quota.DenyAll}, quota.AssignDenyAll},
		{hundred, quota.Assign},
	} {
		r.first(1, i, tt.limit)
		if a := r.told(1); len(a) != 1 || a[0].Kind != tt.want || a[0].TTL != 12*time.Second {
			t.Errorf("%+v: told %+v, want kind %d", tt.limit, a, tt.want)
		}
	}
	if got := r.first(1, 3, nil); got != quota.NoLimit {
		t.Errorf("a report without a limit is %d, want NoLimit", got)
	}
	if a := r.told(1); a != nil {
		t.Errorf("told %+v of a bucket without a rule, which has requests", a)
	}
	r.report(1, 3, nil, 0, 0, 5*time.Second)
	if a := r.told(1); len(a) != 1 || a[0].Kind != quota.Abandon {
		t.Errorf("told %+v of an idle bucket without a rule, want Abandon", a)
	}
}

func TestLimitChanges(t *testing.T) {
	r := newRig(quota.Options{Fresh: true})
	r.first(1, 0, hundred)
	r.first(2, 0, hundred)
	r.told(1)
	r.told(2)
	twenty := &quota.Limit{Hits: 20, Window: time.Second}
	r.SetLimit(r.now, bucketOf(0), twenty)
	r.Tick(r.now)
	a, seq, _ := r.TakeActions(r.now, 1, nil, 10)
	b := r.rate(2)
	if len(a) != 1 || int64(a[0].Rate)+b > int64(perHour(20)) {
		t.Errorf("told %+v and %d of %d", a, b, perHour(20))
	}
	r.SetLimit(r.now, bucketOf(0), hundred)
	r.Tick(r.now)
	if v, _ := r.View(r.now, bucketOf(0)); v.AssignedRate > int64(perHour(100)) {
		t.Errorf("%d is in force", v.AssignedRate)
	}
	r.Confirm(r.now, 1, seq)
	r.SetLimit(r.now, bucketOf(0), nil)
	r.Tick(r.now)
	for h := range quota.StreamID(2) {
		if a := r.told(h + 1); len(a) != 1 || a[0].Kind != quota.Abandon {
			t.Errorf("%d is told %+v once the rule is gone, want Abandon", h+1, a)
		}
	}
	if c := r.Counts(); c.Buckets != 0 || c.Shares != 0 {
		t.Errorf("left %+v", c)
	}
}

// TestLimitGoesWhileSharesAreQueued removes a limit while assignments are queued, before the next division: only
// Abandon is sent.
func TestLimitGoesWhileSharesAreQueued(t *testing.T) {
	const holders = 20
	r := newRig(quota.Options{Fresh: true})
	for h := range quota.StreamID(holders) {
		r.first(h+1, 0, hundred)
	}
	r.pass(2 * time.Second)
	r.SetLimit(r.now, bucketOf(0), nil)
	for range 2 {
		for h := range quota.StreamID(holders) {
			for _, a := range r.told(h + 1) {
				if a.Kind != quota.Abandon {
					t.Errorf("%d is told %+v", h+1, a)
				}
			}
		}
		r.pass(2 * time.Second)
	}
	if n := r.Counts().Buckets; n != 0 {
		t.Errorf("%d buckets are left", n)
	}
}

// TestPeers checks which rates streams inherit from streams of the same peer that ended before.
func TestPeers(t *testing.T) {
	for _, tt := range []struct {
		name     string
		peers    [3]uint64 // of two Envoys, and of the one that comes
		mixed    bool      // two streams of the peer at once
		want     int64
		takenFor int // TakenOver
	}{
		{"comes back", [3]uint64{7, 8, 7}, false, int64(perHour(100)), 1},
		{"is another", [3]uint64{7, 8, 9}, false, -1, 0},
		{"has no address", [3]uint64{7, 8, 0}, false, -1, 0},
		{"shares one", [3]uint64{7, 7, 7}, true, -1, 0},
	} {
		r := newRig(quota.Options{Fresh: true})
		r.OpenStream(r.now, 1, tt.peers[0], 0)
		if tt.mixed {
			r.OpenStream(r.now, 2, tt.peers[1], 0)
		}
		r.first(1, 0, hundred)
		r.told(1)
		r.CloseStream(r.now, 1)
		r.CloseStream(r.now, 2)
		r.now += time.Second
		r.OpenStream(r.now, 3, tt.peers[2], 0)
		r.report(3, 0, hundred, 500, 0, 5*time.Second)
		if got := r.rate(3); got != tt.want {
			t.Errorf("%s: told %d, want %d", tt.name, got, tt.want)
		}
		if got := r.Counts().Inherited; got != uint64(tt.takenFor) {
			t.Errorf("%s: %d taken over, want %d", tt.name, got, tt.takenFor)
		}
		r.pass(12 * time.Second)
		r.report(3, 0, hundred, 500, 0, 5*time.Second)
		if got := r.rate(3); got != int64(perHour(100)) {
			t.Errorf("%s: told %d once all has ended", tt.name, got)
		}
	}
}

// TestLearning checks the assignments of a divider whose predecessor may have assigned everything.
func TestLearning(t *testing.T) {
	for _, tt := range []struct {
		name     string
		o        quota.Options
		admits   int64 // told to who admitted 60 a second
		learning time.Duration
	}{
		{name: "plain", admits: int64(perHour(60)), learning: 6 * time.Second},
		{name: "strict", o: quota.Options{Strict: true}, admits: -1, learning: 12500 * time.Millisecond},
	} {
		r := newRig(tt.o)
		r.report(1, 0, hundred, 300, 0, 5*time.Second)
		if got := r.rate(1); got != tt.admits {
			t.Errorf("%s: who admitted 60 a second is told %d, want %d", tt.name, got, tt.admits)
		}
		r.first(2, 0, hundred)
		r.pass(5 * time.Second)
		if got := r.rate(2); got != -1 {
			t.Errorf("%s: to whom the bucket is new is told %d while it learns", tt.name, got)
		}
		if v, _ := r.View(r.now, bucketOf(0)); v.Learning != tt.learning-5*time.Second || v.AssignedRate != int64(perHour(100)) {
			t.Errorf("%s: learning for %v, %d in force", tt.name, v.Learning, v.AssignedRate)
		}
		r.pass(tt.learning - 5*time.Second)
		r.report(1, 0, hundred, 300, 0, 5*time.Second)
		if got := r.rate(1); got <= 0 {
			t.Errorf("%s: told %d once it has learnt", tt.name, got)
		}
	}
}

// TestOverstatedDemandGetsAFairShare checks that an overstated demand takes nothing from streams with less than a
// fair share.
func TestOverstatedDemandGetsAFairShare(t *testing.T) {
	r := newRig(quota.Options{Fresh: true})
	rates := map[quota.StreamID]int64{}
	for range 5 {
		for h := range quota.StreamID(4) {
			if h == 3 {
				r.report(h, 0, hundred, math.MaxUint64, math.MaxUint64, 5*time.Second)
			} else {
				r.report(h, 0, hundred, 100, 0, 5*time.Second) // 20 a second
			}
			for h := range quota.StreamID(4) {
				if rate := r.rate(h); rate >= 0 {
					rates[h] = rate
				}
			}
		}
		r.pass(5 * time.Second)
	}
	for h := range quota.StreamID(3) {
		if rates[h] < int64(perHour(20)) {
			t.Errorf("who wants 20 a second of 100 for four has %d, beside a liar's %d", rates[h], rates[3])
		}
	}
	if rates[3] < int64(perHour(35)) {
		t.Errorf("%d of %d goes to who asks for it", rates[3], perHour(40))
	}
}

// TestFallingDemandIsProbed checks that a stream whose demand fell is probed while another stream is denied, and only
// then.
func TestFallingDemandIsProbed(t *testing.T) {
	for _, tt := range []struct{ last, own, others, want uint64 }{
		{200, 0, 0, 0},
		{200, 100, 0, 0},
		{200, 0, 100, 1},
		{200, 100, 100, 1},
		{340, 100, 100, 0}, // it wants more than it has all the same
	} {
		r := newRig(quota.Options{Fresh: true})
		for i := range 3 {
			r.report(1, 0, hundred, []uint64{400, 400, tt.last}[i], tt.own, 5*time.Second)
			r.report(2, 0, hundred, 50, tt.others, 5*time.Second)
			for range 3 {
				r.told(1)
				r.told(2)
			}
			if i < 2 {
				r.pass(5 * time.Second)
			}
		}
		if got := r.Counts().Probed; got != tt.want {
			t.Errorf("%+v: asked %d times", tt, got)
		}
		r.pass(300 * time.Millisecond)
		if v, _ := r.View(r.now, bucketOf(0)); len(v.Shares) != 2-int(tt.want) {
			t.Errorf("%+v: holders %+v without an answer", tt, v.Shares)
		}
	}
}

func TestOutbox(t *testing.T) {
	r := newRig(quota.Options{Fresh: true})
	for i := range 5 {
		r.first(1, i, hundred)
	}
	r.first(2, 0, hundred) // so that the first gets less of bucket 0, before it was told anything
	if got := r.AppendReady(nil); !slices.Contains(got, 1) {
		t.Errorf("Ready() = %v", got)
	}
	if got := r.AppendReady(nil); got != nil {
		t.Errorf("Ready() = %v again", got)
	}
	first, one, more := r.TakeActions(r.now, 1, nil, 3)
	if len(first) != 3 || !more {
		t.Errorf("Take() = %d, more %v", len(first), more)
	}
	second, two, more := r.TakeActions(r.now, 1, nil, 3)
	if len(second) != 2 || more || two <= one {
		t.Errorf("Take() = %d, more %v, %d after %d", len(second), more, two, one)
	}
	seen := map[string]bool{}
	for _, a := range append(first, second...) {
		if seen[a.ID] {
			t.Errorf("two actions of %q", a.ID)
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
		t.Errorf("%d are confirmed, want the first three", got)
	}
	r.Confirm(r.now, 1, two)
	if got := confirmed(); got != 5 {
		t.Errorf("%d are confirmed, want all", got)
	}
}

// TestForgotten checks that all state of silent streams is removed, even after a jump of the clock.
func TestForgotten(t *testing.T) {
	r := newRig(quota.Options{Fresh: true})
	r.OpenStream(r.now, 1, 5, 0)
	r.first(1, 0, hundred)
	r.told(1)
	r.first(2, 1, hundred)
	r.told(2)
	r.CloseStream(r.now, 2)
	r.CloseStream(r.now, 3)
	r.Confirm(r.now, 3, 99)
	if actions, seq, more := r.TakeActions(r.now, 3, nil, 5); actions != nil || seq != 0 || more {
		t.Error("an unknown stream has something to take")
	}
	r.Tick(r.now - time.Hour)
	r.pass(30 * time.Second)
	if c := r.Counts(); c.Buckets != 0 || c.Shares != 0 {
		t.Errorf("left %+v", c)
	}
	if next := r.Tick(0); next <= r.now {
		t.Errorf("Tick() = %v at %v", next, r.now)
	}
}

// TestClockGoesBack holds that a time before the last ends nothing early.
func TestClockGoesBack(t *testing.T) {
	r := newRig(quota.Options{Fresh: true})
	r.now = 20 * time.Second
	r.first(1, 0, hundred)
	_, seq, _ := r.TakeActions(r.now, 1, nil, 9)
	r.Confirm(r.now-10*time.Second, 1, seq)
	r.CloseStream(r.now-10*time.Second, 1)
	r.now += 12 * time.Second
	r.first(2, 0, hundred)
	if got := r.rate(2); got > 0 {
		t.Errorf("told %d while the first may act on all", got)
	}
}

func TestView(t *testing.T) {
	r := newRig(quota.Options{Fresh: true})
	if _, known := r.View(0, bucketOf(0)); known {
		t.Error("an unknown bucket has a view")
	}
	r.first(1, 0, hundred)
	r.told(1)
	r.first(2, 0, hundred)
	r.told(1)
	r.told(2)
	r.pass(5 * time.Second)
	r.report(1, 0, hundred, 250, 250, 5*time.Second)
	r.CloseStream(r.now, 2)
	r.Tick(r.now)
	r.TakeActions(r.now, 1, nil, 9)
	got, _ := r.View(r.now, bucketOf(0))
	want := quota.View{
		ID: "\x00", Limit: *hundred, Rate: int64(perHour(100)), AssignedRate: int64(perHour(100)), LostRate: got.LostRate, LostFor: 7500 * time.Millisecond,
		Shares: []quota.ShareView{{
			Stream: 1, Demand: got.Shares[0].Demand, Rate: got.Shares[0].Rate, MaxRate: got.Shares[0].MaxRate, Assigned: true, Confirmed: true,
		}},
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("View() (-got +want):\n%s", diff)
	}
	h := got.Shares[0]
	if math.Abs(h.Demand-100) > 1 || got.LostRate == 0 || int64(h.MaxRate)+got.LostRate != got.Rate {
		t.Errorf("View() = %+v", got)
	}
	if buckets := slices.Collect(r.Buckets()); !slices.Equal(buckets, []quota.Bucket{bucketOf(0)}) {
		t.Errorf("Buckets() = %v", buckets)
	}
}

func TestRates(t *testing.T) {
	for _, tt := range []struct {
		limit quota.Limit
		want  int64
	}{
		{quota.Limit{Hits: 1, Window: time.Hour}, 1},
		{quota.Limit{Hits: 1, Window: 2 * time.Hour}, 0},
		{quota.Limit{Hits: 59, Window: 2 * time.Hour}, 29},
		{quota.Limit{Hits: 1000, Window: time.Minute}, 60_000},
		{quota.Limit{Hits: math.MaxUint64, Window: time.Nanosecond}, 1 << 40},
		{quota.Limit{Hits: math.MaxUint64, Window: 24 * 365 * time.Hour}, 1 << 40},
		{quota.Limit{Hits: 5}, 0},
	} {
		r := newRig(quota.Options{Fresh: true})
		r.first(1, 0, &tt.limit)
		r.pass(2 * time.Second)
		r.told(1)
		v, _ := r.View(r.now, bucketOf(0))
		if v.Rate != tt.want || v.AssignedRate != min(tt.want, int64(quota.MaxRate)) {
			t.Errorf("%+v: rate %d, %d in force, want %d", tt.limit, v.Rate, v.AssignedRate, tt.want)
		}
	}
}

// TestReportsAllocateNothing holds it for buckets that are known.
func TestReportsAllocateNothing(t *testing.T) {
	f := newFleet(3, 50)
	for range 5 {
		f.round(1)
	}
	if got := testing.AllocsPerRun(20, func() { f.round(1) }); got > 0 {
		t.Errorf("150 reports, divided, taken and confirmed, allocate %v times", got)
	}
}

// ExampleDivider shows how a service uses a Divider.
func ExampleDivider() {
	d := quota.New(0, quota.Options{Fresh: true})
	limit := &quota.Limit{Hits: 100, Window: time.Second, Burst: 100 * time.Millisecond}
	d.OpenStream(1, 1, 0, 0)
	d.Report(2, 1, quota.Report{Bucket: quota.Bucket{1}, ID: []byte("path=/a"), Limit: limit, Allowed: 1})
	d.Tick(2)
	for _, h := range d.AppendReady(nil) {
		actions, seq, _ := d.TakeActions(3, h, nil, 100)
		for _, a := range actions { // to be written to the stream, and a PING after it
			fmt.Printf("%d: %s may admit %d an hour, %d at once, for %v\n", h, a.ID, a.Rate, a.MaxTokens, a.TTL)
		}
		d.Confirm(4, h, seq) // at the PING's acknowledgement
	}
	// Output: 1: path=/a may admit 360000 an hour, 10 at once, for 12s
}

// TestPredecessorDividedBefore has another divider divide a limit until some time: the rates that streams report to
// have admitted continue, and nothing else is assigned until the predecessor's assignments have expired.
func TestPredecessorDividedBefore(t *testing.T) {
	r := newRig(quota.Options{Fresh: true})
	r.pass(time.Minute)
	l := *hundred
	l.PredecessorUntil = r.now + 3*time.Second
	r.report(1, 0, &l, 300, 0, 5*time.Second)
	if got := r.rate(1); got != int64(perHour(60)) {
		t.Errorf("who admitted 60 a second is told %d", got)
	}
	for range 3 {
		r.pass(5 * time.Second)
		r.report(1, 0, &l, 300, 50, 5*time.Second)
		if got := r.rate(1); got != int64(perHour(60)) {
			t.Errorf("at %v it is told %d", r.now, got)
		}
	}
	v, _ := r.View(r.now, bucketOf(0))
	if v.Learning != 500*time.Millisecond || v.AssignedRate > v.Rate {
		t.Errorf("%d of %d are in force, and learning ends in %v", v.AssignedRate, v.Rate, v.Learning)
	}
	r.pass(500 * time.Millisecond)
	r.report(1, 0, &l, 300, 50, 5*time.Second)
	if got := r.rate(1); got != int64(perHour(100)) {
		t.Errorf("when all that others assigned has ended it is told %d", got)
	}
}

// TestPredecessorAssignedMore has one of two streams admit a rate that a predecessor assigned: the other gets nothing
// before that rate is lower.
func TestPredecessorAssignedMore(t *testing.T) {
	r := newRig(quota.Options{Fresh: true})
	r.pass(time.Minute)
	l := *hundred
	l.PredecessorUntil = r.now + 3*time.Second
	r.report(1, 0, &l, 300, 0, 5*time.Second)
	r.first(2, 0, &l)
	if got := r.rate(2); got != -1 {
		t.Errorf("while the first has what it admitted, the second is told %d", got)
	}
	first := r.rate(1)
	if got := r.rate(2); first < 0 || got <= 0 || first+got > int64(perHour(60)) {
		t.Errorf("the first is told %d, and the second then %d", first, got)
	}
}

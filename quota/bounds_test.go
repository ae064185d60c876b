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
		actions, seq, _ := r.TakeActions(r.now, 1, nil, 9)
		if len(actions) == 1 && actions[0].Kind == quota.Abandon {
			return
		}
		if seq == 0 {
			seq = last
		}
		r.pass(5 * time.Second)
		r.report(1, 0, hundred, 0, 0, 5*time.Second)
		r.Confirm(r.now, 1, before)
		r.Tick(r.now)
		last, before = seq, last
	}
	t.Error("an idle bucket is never abandoned")
}

func TestBounds(t *testing.T) {
	r := newRig(quota.Options{Fresh: true, MaxStreamBuckets: 3})
	outcomes := func(h quota.StreamID) (kept int) {
		for i := range 4 {
			if r.first(h, i, hundred) == quota.Accepted {
				kept++
			}
		}
		return kept
	}
	if got := []int{outcomes(1), outcomes(2)}; !slices.Equal(got, []int{3, 3}) {
		t.Errorf("kept %v, want 3 of a stream", got)
	}
	if got := r.Counts(); got.Shares != 6 || got.TooManyBuckets != 2 {
		t.Errorf("%+v", got)
	}
	// If half of the memory is used, one idle report is enough.
	r.told(1)
	r.pass(5 * time.Second)
	r.report(1, 0, hundred, 0, 0, 5*time.Second)
	if a := r.told(1); len(a) != 1 || a[0].Kind != quota.Abandon {
		t.Errorf("told %+v, want Abandon", a)
	}
}

// TestMemoryIsDividedAmongClients has clients use all the memory that they can, each with several streams. Each time
// another client still finds some.
func TestMemoryIsDividedAmongClients(t *testing.T) {
	const most = 1 << 20
	r := newRig(quota.Options{Fresh: true, MaxBytes: most})
	holder, free := quota.StreamID(0), most
	for client := range uint64(5) {
		bucket := 0
		for range 20 {
			holder++
			r.OpenStream(r.now, holder, 0, client+1)
			for range 200 {
				bucket++
				key, id := quota.Bucket{client, uint64(bucket)}, make([]byte, 64)
				r.Report(r.now, holder, quota.Report{Bucket: key, ID: id, Limit: hundred, Allowed: 1})
			}
		}
		r.tick()
		had := most - r.Counts().Bytes
		if had > free*2/3 || had < free/3 {
			t.Errorf("client %d leaves %d of %d bytes", client, had, free)
		}
		free = had
		if wrong := r.Broken(); wrong != "" {
			t.Fatal(wrong)
		}
	}
	before := r.Counts().Shares
	r.OpenStream(r.now, 1000, 0, 1000)
	if n := r.reportWide(1000, 20, hundred); n != 20 || r.Counts().Shares != before+20 {
		t.Errorf("the next client has room for %d buckets of 20", n)
	}
	r.OpenStream(r.now, 1001, 0, 1)
	if n := r.reportWide(1001, 20, hundred); n != 0 {
		t.Errorf("the first client has room for %d more", n)
	}
	// An idle bucket of the first client is given up after one report, one of the last client is not.
	for h, i := range map[quota.StreamID]quota.Bucket{1: {0, 1}, 1000: mustKey(1)} {
		_, seq, _ := r.TakeActions(r.now, h, nil, 1000)
		r.Confirm(r.now, h, seq)
		r.Report(r.now+5*time.Second, h, quota.Report{Bucket: i, Limit: hundred, Elapsed: 5 * time.Second})
	}
	r.now += 5 * time.Second
	r.tick()
	if got := r.Counts().Abandoned; got != 1 {
		t.Errorf("%d buckets are abandoned", got)
	}
	// Whatever they had is free once it has ended.
	for h := range holder + 1002 {
		r.CloseStream(r.now, h)
	}
	r.pass(13 * time.Second)
	if c := r.Counts(); c.Bytes != 0 || c.Buckets != 0 {
		t.Errorf("left %+v", c)
	}
}

// TestMemoryOfLostShares has a client open streams one after another. Their lost rates stay in effect and count as
// the client's.
func TestMemoryOfLostShares(t *testing.T) {
	const most = 1 << 20
	for _, o := range []quota.Options{{Fresh: true, MaxBytes: most}, {MaxBytes: most}} {
		r := newRig(o)
		for h := range quota.StreamID(200) {
			r.OpenStream(r.now, h+1, 0, 7)
			for i := range 200 {
				key, id := quota.Bucket{uint64(h), uint64(i)}, []byte("id")
				r.Report(r.now, h+1, quota.Report{Bucket: key, ID: id, Limit: hundred, Allowed: 1, Elapsed: 5 * time.Second})
			}
			r.tick()
			r.TakeActions(r.now, h+1, nil, 1000)
			r.CloseStream(r.now, h+1)
			r.tick()
		}
		if c := r.Counts(); c.Bytes > most/2 || c.Buckets*200 > most {
			t.Errorf("%+v", c)
		}
		if wrong := r.Broken(); wrong != "" {
			t.Error(wrong)
		}
	}
}

// TestAssignTimeout checks that a stream that can get no assignment is assigned DENY_ALL after the timeout, unless
// its Envoy may still act on an earlier assignment.
func TestAssignTimeout(t *testing.T) {
	for _, elapsed := range []time.Duration{0, 5 * time.Second} {
		r := newRig(quota.Options{Fresh: true})
		r.first(1, 0, hundred)
		r.told(1)
		r.CloseStream(r.now, 1)
		r.report(2, 0, hundred, 1, 0, elapsed)
		if a := r.told(2); a != nil {
			t.Errorf("told %+v at once", a)
		}
		r.pass(1001 * time.Millisecond)
		if a := r.told(2); (elapsed == 0) != (len(a) == 1 && a[0].Kind == quota.AssignDenyAll) {
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

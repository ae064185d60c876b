package division_test

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/rlqs/division"
)

// spreadKey returns the key and the ID of the bucket with the given number. The keys are spread
// over the hash space.
func spreadKey(i int) (division.Bucket, []byte) {
	return division.Bucket{uint64(i) * 0x9e3779b97f4a7c15, uint64(i)}, binary.BigEndian.AppendUint32(nil, uint32(i))
}

// reportMany reports the first requests of n buckets and returns how many buckets are accepted.
func (r *rig) reportMany(stream division.StreamID, n int, l *division.Limit) (accepted int) {
	for i := range n {
		key, id := spreadKey(i)
		if r.Report(r.now, stream, division.Report{Bucket: key, ID: id, Limit: l, Allowed: 1}) == division.Accepted {
			accepted++
		}
	}
	return accepted
}

// TestSilentStreamsCauseNoWork has streams report many buckets once and then stop before they take
// the actions, before they confirm them, or afterwards. Their buckets are divided a few times and
// then never again.
func TestSilentStreamsCauseNoWork(t *testing.T) {
	const streams, buckets = 10, 200
	for _, tt := range []struct {
		name           string
		takes          int // calls of TakeActions per stream
		confirms, idle bool
		limit          *division.Limit
	}{
		{name: "take nothing", limit: hundred},
		{name: "take nothing, all allowed", limit: &division.Limit{Strategy: division.AllowAll}},
		{name: "take nothing, all denied", limit: &division.Limit{Strategy: division.DenyAll}},
		{name: "take nothing, without a rule", limit: nil},
		{name: "take a part", takes: 1, limit: hundred},
		{name: "take all, confirm nothing", takes: 2, limit: hundred},
		{name: "take all that is denied, confirm nothing", takes: 2, limit: &division.Limit{Strategy: division.DenyAll}},
		{name: "take and confirm all", takes: 2, confirms: true, limit: hundred},
		{name: "take and confirm all, then report idle buckets", takes: 2, confirms: true, idle: true, limit: hundred},
		{name: "take nothing, report idle buckets", idle: true, limit: hundred},
	} {
		r := newRig(division.Options{Fresh: true, IdleReports: 2})
		for stream := range division.StreamID(streams) {
			r.reportMany(stream+1, buckets, hundred)
		}
		if tt.limit != hundred {
			for i := range buckets {
				key, _ := spreadKey(i)
				r.SetLimit(r.now, key, tt.limit)
			}
		}
		r.advance(2 * time.Second)
		for range tt.takes {
			for stream := range division.StreamID(streams) {
				_, seq, _ := r.TakeActions(r.now, stream+1, nil, buckets/2)
				if tt.confirms {
					r.Confirm(r.now, stream+1, seq)
				}
			}
		}
		for range 3 {
			r.advance(5 * time.Second)
			for stream := range division.StreamID(streams) {
				for i := range buckets {
					key, id := spreadKey(i)
					if tt.idle {
						r.Report(r.now, stream+1, division.Report{Bucket: key, ID: id, Limit: tt.limit, Elapsed: 5 * time.Second})
					}
				}
			}
		}
		begun, ticks := r.Counts().Divisions, 0
		for end := r.now + time.Minute; r.now < end; ticks++ {
			r.now = max(r.tick(), r.now+1)
		}
		if got := r.Counts().Divisions - begun; got > 6*buckets || ticks > 1000 {
			t.Errorf("%s: %d buckets are divided %d times in a minute, in %d ticks", tt.name, buckets, got, ticks)
		}
		if next := r.Tick(r.now); next < r.now+time.Minute {
			t.Errorf("%s: without an event, Tick is due in %v", tt.name, next-r.now)
		}
		if wrong := r.CheckInvariants(); wrong != "" {
			t.Errorf("%s: %s", tt.name, wrong)
		}
	}
}

// TestTicksAreBounded closes a stream with many buckets while others are divided. Each Tick visits
// a bounded number of shares. A bucket that changes after the close does not wait until all buckets
// of the closed stream are divided.
func TestTicksAreBounded(t *testing.T) {
	const buckets, tickShares = 20_000, 100
	r := newRig(division.Options{Fresh: true, MaxStreamBuckets: buckets, MaxBytes: 1 << 30, TickShares: tickShares})
	ticks := func() (n int) {
		for ; ; n++ {
			before := r.Counts().Divisions
			next := r.Tick(r.now)
			if divided := r.Counts().Divisions - before; divided > tickShares {
				t.Errorf("a Tick divides %d buckets", divided)
			}
			if next > r.now {
				return n
			}
		}
	}
	r.reportMany(1, buckets, hundred)
	if n := ticks(); n < buckets/tickShares {
		t.Errorf("%d buckets are divided in %d ticks", buckets, n)
	}
	_, seq, _ := r.TakeActions(r.now, 1, nil, math.MaxInt)
	r.Confirm(r.now, 1, seq)
	r.CloseStream(r.now, 1)
	key, id := spreadKey(buckets + 1)
	for stream := range division.StreamID(2) {
		r.Report(r.now, 2+stream, division.Report{Bucket: key, ID: id, Limit: hundred, Allowed: 1})
	}
	r.Tick(r.now)
	if got := r.takeRate(2); got <= 0 {
		t.Errorf("after a stream with %d buckets is closed, another stream is assigned %d", buckets, got)
	}
	ticks()
	if v, _ := r.View(r.now, spreadBucket(7)); v.LostRate == 0 || len(v.Shares) > 0 {
		t.Errorf("the closed stream's buckets are %+v", v)
	}
	r.advance(13 * time.Second)
	if c := r.Counts(); c.Buckets != 0 {
		t.Errorf("left %+v", c)
	}
	if wrong := r.CheckInvariants(); wrong != "" {
		t.Error(wrong)
	}
}

func spreadBucket(i int) division.Bucket {
	key, _ := spreadKey(i)
	return key
}

// TestUnconfirmedActionsAreBounded has one stream take many actions without confirming any, and
// another report buckets without ever taking an action. The memory does not grow.
func TestUnconfirmedActionsAreBounded(t *testing.T) {
	r := newRig(division.Options{Fresh: true})
	for range 2000 {
		r.report(1, 0, hundred, 500, 0, 5*time.Second)
		r.TakeActions(r.now, 1, nil, 9)
		for i := range 3 {
			r.report(2, i, hundred, 1, 0, 0)
		}
		r.advance(13 * time.Second)
		if wrong := r.CheckInvariants(); wrong != "" {
			t.Fatal(wrong)
		}
	}
}

// TestEachBucket iterates over the buckets of a stream in batches, while some of them are removed.
func TestEachBucket(t *testing.T) {
	const buckets = 50
	r := newRig(division.Options{Fresh: true})
	r.reportMany(1, buckets, &division.Limit{Strategy: division.DenyAll})
	seen, steps := map[division.Bucket]bool{}, 0
	for left := math.MaxInt; left > 0; steps++ {
		before := len(seen)
		left = r.EachBucket(1, left, 7, func(key division.Bucket, _ string) { seen[key] = true })
		if len(seen)-before > 7 {
			t.Fatalf("a batch has %d buckets", len(seen)-before)
		}
		if steps == 2 {
			for i := range buckets / 2 {
				r.SetLimit(r.now, spreadBucket(2*i), nil)
			}
			r.takeAndConfirm(1)
			r.takeAndConfirm(1)
			if c := r.Counts(); c.Buckets != buckets/2 {
				t.Fatalf("left %+v", c)
			}
		}
	}
	for i := range buckets / 2 {
		if !seen[spreadBucket(2*i+1)] {
			t.Errorf("bucket %d is missing", 2*i+1)
		}
	}
	if r.EachBucket(2, math.MaxInt, 7, nil) != 0 {
		t.Error("an unknown stream has buckets")
	}
}

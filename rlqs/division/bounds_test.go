package division_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/rlqs/division"
)

func TestIdleBucketsAreAbandoned(t *testing.T) {
	r := newRig(division.Options{Fresh: true, IdleReports: 3})
	r.reportFirst(1, 0, hundred)
	for i := range 3 {
		r.takeAndConfirm(1)
		r.advance(5 * time.Second)
		r.report(1, 0, hundred, 0, 0, 5*time.Second)
		if got := r.Counts().Abandoned; got != uint64(i/2) {
			t.Errorf("after %d idle reports %d buckets are abandoned", i+1, got)
		}
	}
	if a := r.takeAndConfirm(1); len(a) > 1 || r.Counts().Abandoned != 1 {
		t.Errorf("the actions are %+v, and the counts %+v", a, r.Counts())
	}
	r.advance(time.Second)
	if c := r.Counts(); c.Buckets != 0 {
		t.Errorf("left %+v", c)
	}
	r.reportFirst(1, 0, hundred)
	if got := r.takeRate(1); got != int64(perHour(100)) {
		t.Errorf("an abandoned bucket that is reported again is assigned %d", got)
	}
}

// TestIdleBucketsAreAbandonedWithLateConfirms confirms each action two reports late.
func TestIdleBucketsAreAbandonedWithLateConfirms(t *testing.T) {
	r := newRig(division.Options{Fresh: true, IdleReports: 3})
	r.reportFirst(1, 0, hundred)
	var last, before uint64
	for range 8 {
		actions, seq, _ := r.TakeActions(r.now, 1, nil, 9)
		if len(actions) == 1 && actions[0].Kind == division.Abandon {
			return
		}
		if seq == 0 {
			seq = last
		}
		r.advance(5 * time.Second)
		r.report(1, 0, hundred, 0, 0, 5*time.Second)
		r.Confirm(r.now, 1, before)
		r.Tick(r.now)
		last, before = seq, last
	}
	t.Error("an idle bucket is never abandoned")
}

func TestBounds(t *testing.T) {
	r := newRig(division.Options{Fresh: true, MaxStreamBuckets: 3})
	outcomes := func(stream division.StreamID) (accepted int) {
		for i := range 4 {
			if r.reportFirst(stream, i, hundred) == division.Accepted {
				accepted++
			}
		}
		return accepted
	}
	if got := []int{outcomes(1), outcomes(2)}; !slices.Equal(got, []int{3, 3}) {
		t.Errorf("%v buckets are accepted, want 3 of each stream", got)
	}
	if got := r.Counts(); got.Shares != 6 || got.TooManyBuckets != 2 {
		t.Errorf("%+v", got)
	}
	// A stream that uses more than half of its bound loses a bucket after one idle report.
	r.takeAndConfirm(1)
	r.advance(5 * time.Second)
	r.report(1, 0, hundred, 0, 0, 5*time.Second)
	if a := r.takeAndConfirm(1); len(a) != 1 || a[0].Kind != division.Abandon {
		t.Errorf("the actions are %+v, want Abandon", a)
	}
}

// TestMemoryIsDividedAmongClients has clients, each with several streams, use as much memory as
// they can. Each leaves memory for the next one.
func TestMemoryIsDividedAmongClients(t *testing.T) {
	const maxBytes = 1 << 20
	r := newRig(division.Options{Fresh: true, MaxBytes: maxBytes})
	last, free := division.StreamID(0), maxBytes // the last stream, and the free bytes
	for client := range uint64(5) {
		bucket := 0
		for range 20 {
			last++
			r.OpenStream(r.now, last, 0, client+1)
			for range 200 {
				bucket++
				key, id := division.Bucket{client, uint64(bucket)}, make([]byte, 64)
				r.Report(r.now, last, division.Report{Bucket: key, ID: id, Limit: hundred, Allowed: 1})
			}
		}
		r.tick()
		left := maxBytes - r.Counts().Bytes
		if left > free*2/3 || left < free/3 {
			t.Errorf("client %d leaves %d of %d bytes", client, left, free)
		}
		free = left
		if wrong := r.CheckInvariants(); wrong != "" {
			t.Fatal(wrong)
		}
	}
	before := r.Counts().Shares
	r.OpenStream(r.now, 1000, 0, 1000)
	if n := r.reportMany(1000, 20, hundred); n != 20 || r.Counts().Shares != before+20 {
		t.Errorf("%d of 20 buckets of the next client are accepted", n)
	}
	r.OpenStream(r.now, 1001, 0, 1)
	if n := r.reportMany(1001, 20, hundred); n != 0 {
		t.Errorf("%d more buckets of the first client are accepted, want none", n)
	}
	// An idle bucket of the first client is abandoned after one report, but not one of the last
	// client.
	for stream, i := range map[division.StreamID]division.Bucket{1: {0, 1}, 1000: spreadBucket(1)} {
		_, seq, _ := r.TakeActions(r.now, stream, nil, 1000)
		r.Confirm(r.now, stream, seq)
		r.Report(r.now+5*time.Second, stream, division.Report{Bucket: i, Limit: hundred, Elapsed: 5 * time.Second})
	}
	r.now += 5 * time.Second
	r.tick()
	if got := r.Counts().Abandoned; got != 1 {
		t.Errorf("%d buckets are abandoned, want 1", got)
	}
	// All memory is free once the rates of the closed streams have expired.
	for stream := range last + 1002 {
		r.CloseStream(r.now, stream)
	}
	r.advance(13 * time.Second)
	if c := r.Counts(); c.Bytes != 0 || c.Buckets != 0 {
		t.Errorf("left %+v", c)
	}
}

// TestMemoryOfLostShares has a client open streams one after another. The lost rates of the closed
// streams count in the client's memory.
func TestMemoryOfLostShares(t *testing.T) {
	const maxBytes = 1 << 20
	for _, o := range []division.Options{{Fresh: true, MaxBytes: maxBytes}, {MaxBytes: maxBytes}} {
		r := newRig(o)
		for stream := range division.StreamID(200) {
			r.OpenStream(r.now, stream+1, 0, 7)
			for i := range 200 {
				key, id := division.Bucket{uint64(stream), uint64(i)}, []byte("id")
				r.Report(r.now, stream+1, division.Report{Bucket: key, ID: id, Limit: hundred, Allowed: 1, Elapsed: 5 * time.Second})
			}
			r.tick()
			r.TakeActions(r.now, stream+1, nil, 1000)
			r.CloseStream(r.now, stream+1)
			r.tick()
		}
		if c := r.Counts(); c.Bytes > maxBytes/2 || c.Buckets*200 > maxBytes {
			t.Errorf("%+v", c)
		}
		if wrong := r.CheckInvariants(); wrong != "" {
			t.Error(wrong)
		}
	}
}

// TestAssignTimeout checks that a stream that can get no rate is assigned DENY_ALL after the
// timeout, unless its Envoy may still apply an earlier assignment.
func TestAssignTimeout(t *testing.T) {
	for _, elapsed := range []time.Duration{0, 5 * time.Second} {
		r := newRig(division.Options{Fresh: true})
		r.reportFirst(1, 0, hundred)
		r.takeAndConfirm(1)
		r.CloseStream(r.now, 1)
		r.report(2, 0, hundred, 1, 0, elapsed)
		if a := r.takeAndConfirm(2); a != nil {
			t.Errorf("the actions are %+v at once", a)
		}
		r.advance(1001 * time.Millisecond)
		if a := r.takeAndConfirm(2); (elapsed == 0) != (len(a) == 1 && a[0].Kind == division.AssignDenyAll) {
			t.Errorf("elapsed %v: the actions are %+v after a second", elapsed, a)
		}
		r.advance(4 * time.Second)
		r.report(2, 0, hundred, 1, 0, 5*time.Second)
		r.takeAndConfirm(2)
		r.advance(7499 * time.Millisecond)
		if got := r.takeRate(2); got != int64(perHour(100)) {
			t.Errorf("elapsed %v: %d is assigned once the other share has expired", elapsed, got)
		}
	}
}

// TestDefaultMemory has clients use as much memory as they can: together they get 48 MiB, and the
// first one half of it, as docs/rlqs.md states.
func TestDefaultMemory(t *testing.T) {
	const maxBytes = 48 << 20
	r := newRig(division.Options{Fresh: true})
	last, id := division.StreamID(0), make([]byte, 1<<10)
	for client := range uint64(7) {
		for bucket := uint64(0); ; bucket++ {
			if bucket%10_000 == 0 { // the maximum of a stream
				last++
				r.OpenStream(r.now, last, 0, client+1)
			}
			if r.Report(r.now, last, division.Report{Bucket: division.Bucket{client, bucket}, ID: id, Limit: hundred, Allowed: 1}) != division.Accepted {
				break
			}
		}
		if client == 0 {
			if got := r.Counts().Bytes; got > maxBytes/2 || got < maxBytes/2*99/100 {
				t.Errorf("the first client uses %d bytes, want %d", got, maxBytes/2)
			}
		}
	}
	if got := r.Counts().Bytes; got > maxBytes || got < maxBytes*98/100 {
		t.Errorf("all clients use %d bytes, want %d", got, maxBytes)
	}
}

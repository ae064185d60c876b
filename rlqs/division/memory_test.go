package division_test

import (
	"encoding/binary"
	"runtime"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/rlqs/division"
)

// fleet is a divider with streams, all of which report the same buckets.
type fleet struct {
	d       *division.Divider
	now     division.Time
	streams int
	ids     [][]byte
	limit   *division.Limit
	actions []division.Action
	ready   []division.StreamID
}

func newFleet(streams, buckets int) *fleet {
	f := &fleet{
		d:       division.NewWith(0, division.Options{Fresh: true, MaxLate: -1, MaxStreamBuckets: buckets, MaxBytes: 1 << 30}),
		streams: streams, limit: &division.Limit{Hits: 1000, Window: time.Second, Burst: 100 * time.Millisecond},
	}
	for i := range buckets {
		f.ids = append(f.ids, binary.BigEndian.AppendUint64(nil, uint64(i)))
	}
	return f
}

// round makes each stream report all buckets and confirm the resulting actions, in five seconds.
func (f *fleet) round() {
	for stream := range f.streams {
		f.now += 5 * time.Second / time.Duration(f.streams)
		for i, id := range f.ids {
			f.d.Report(f.now, division.StreamID(stream+1), division.Report{
				Bucket: division.Bucket{uint64(i) * 0x9e3779b97f4a7c15, uint64(i)}, ID: id, Limit: f.limit,
				Allowed: uint64(100 + (i+stream)%7), Elapsed: 5 * time.Second,
			})
		}
		for f.d.Tick(f.now) <= f.now {
		}
		f.ready = f.d.AppendReady(f.ready[:0])
		for _, ready := range f.ready {
			for more := true; more; {
				var seq uint64
				f.actions, seq, more = f.d.TakeActions(f.now, ready, f.actions[:0], 1000)
				f.d.Confirm(f.now, ready, seq)
			}
		}
	}
}

// TestMemory checks the memory of a bucket with one stream, without its ID, and of each further
// stream.
func TestMemory(t *testing.T) {
	const buckets = 20_000
	measure := func(streams int) float64 {
		var before, after runtime.MemStats
		f := newFleet(streams, buckets)
		runtime.GC()
		runtime.ReadMemStats(&before)
		f.round()
		f.round()
		f.actions, f.ready = nil, nil
		runtime.GC()
		runtime.ReadMemStats(&after)
		defer runtime.KeepAlive(f)
		return float64(after.HeapAlloc-before.HeapAlloc) / buckets
	}
	one, five := measure(1), measure(5)
	t.Logf("a bucket uses %.0f bytes with one stream, %.0f for each further one", one, (five-one)/4)
	if one > 400 || (five-one)/4 > 135 {
		t.Errorf("a bucket uses %.0f bytes with one stream, %.0f for each further one, want at most 400 and 135", one, (five-one)/4)
	}
}

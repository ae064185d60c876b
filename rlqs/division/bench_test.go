package division_test

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"syscall"
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
		d:       division.New(0, division.Options{Fresh: true, MaxLate: -1, MaxStreamBuckets: buckets, MaxBytes: 1 << 30}),
		streams: streams, limit: &division.Limit{Hits: 1000, Window: time.Second, Burst: 100 * time.Millisecond},
	}
	for i := range buckets {
		f.ids = append(f.ids, binary.BigEndian.AppendUint64(nil, uint64(i)))
	}
	return f
}

// round makes each stream report all buckets and confirm the resulting actions, in five seconds.
func (f *fleet) round(n uint64) (actions int) {
	for stream := range f.streams {
		f.now += 5 * time.Second / time.Duration(f.streams)
		for i, id := range f.ids {
			allowed := n * uint64(100+(i+stream)%7)
			f.d.Report(f.now, division.StreamID(stream+1), division.Report{
				Bucket: division.Bucket{uint64(i) * 0x9e3779b97f4a7c15, uint64(i)}, ID: id, Limit: f.limit,
				Allowed: allowed, Elapsed: 5 * time.Second,
			})
		}
		for f.d.Tick(f.now) <= f.now {
		}
		f.ready = f.d.AppendReady(f.ready[:0])
		for _, ready := range f.ready {
			for more := true; more; {
				var seq uint64
				f.actions, seq, more = f.d.TakeActions(f.now, ready, f.actions[:0], 1000)
				actions += len(f.actions)
				f.d.Confirm(f.now, ready, seq)
			}
		}
	}
	return actions
}

// BenchmarkReports measures a report, the division of its bucket, and the taking and confirmation
// of the actions.
func BenchmarkReports(b *testing.B) {
	for _, c := range []struct {
		streams, buckets int
		changing         bool
	}{
		{1, 1000, false},
		{2, 1000, false},
		{2, 100_000, false},
		{2, 100_000, true},
		{10, 10_000, false},
		{10, 10_000, true},
		{100, 100, false},
		{100, 100, true},
		{1000, 10, false},
	} {
		b.Run(fmt.Sprintf("streams=%d/buckets=%d/changing=%v", c.streams, c.buckets, c.changing), func(b *testing.B) {
			f := newFleet(c.streams, c.buckets)
			f.round(1)
			f.round(1)
			b.ReportAllocs()
			b.ResetTimer()
			rounds, actions, begun := 0, 0, cpuTime()
			for b.Loop() {
				rounds++
				n := uint64(1)
				if c.changing {
					n += uint64(rounds % 3)
				}
				actions += f.round(n)
			}
			reports := float64(rounds * c.streams * c.buckets)
			b.ReportMetric(float64(cpuTime()-begun)/reports, "cpu-ns/report")
			b.ReportMetric(float64(actions)/reports, "actions/report")
		})
	}
}

// cpuTime returns the CPU time of this process, which does not depend on other work on the machine.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
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
		f.round(1)
		f.round(1)
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

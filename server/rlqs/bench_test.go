package rlqs_test

import (
	"fmt"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	rlqsv3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/rlqs"
	"github.com/sluice-ratelimit/sluice/server/servertest"
)

// atOnce is how many bytes a connection reads at once.
const atOnce = 16 << 10

// fleet is Envoys that report as many buckets each.
type fleet struct {
	passed  time.Duration
	service *rlqs.Service
	streams []*rlqs.Stream
	reports [][]byte
	out     []byte
}

func newFleet(tb testing.TB, envoys, buckets int) *fleet {
	tb.Helper()
	f, set := &fleet{}, servertest.Compile(tb, divided)
	s := rlqs.New(rlqs.Options{
		Elapsed: func() time.Duration { return f.passed }, Rules: func() *descriptors.Set { return set }, Metrics: servertest.Metrics(tb),
		Count: func(*descriptors.Set, *descriptors.Rule, []descriptors.Entry, uint64, uint64, uint64) {},
	})
	tb.Cleanup(s.Close)
	f.service = s
	f.passed = time.Hour
	for i := range envoys {
		st, err := s.Open(rlqs.Peer{Identity: strconv.Itoa(i)}, func() {})
		must.OK(tb, err)
		m := &rlqsv3.RateLimitQuotaUsageReports{Domain: "d"}
		for j := range buckets {
			m.BucketQuotaUsages = append(m.BucketQuotaUsages, user(uint64(j%100), 0, fmt.Sprintf("user-%d-%d", i, j)))
		}
		f.streams, f.reports = append(f.streams, st), append(f.reports, servertest.Marshal(tb, m))
	}
	return f
}

// report has all Envoys report, and take and confirm what there is for them.
func (f *fleet) report(tb testing.TB) {
	tb.Helper()
	f.passed += 5 * time.Second
	for i, st := range f.streams {
		for b := f.reports[i]; len(b) > 0; {
			n := min(len(b), atOnce)
			must.OK(tb, st.Feed(b[:n], n == len(b)))
			b = b[n:]
		}
		for more := true; more; {
			var seq uint64
			if f.out, seq, more = st.AppendMessage(f.out[:0]); seq > 0 {
				st.Confirm(seq)
			}
		}
	}
}

// BenchmarkReports is what the service takes for a bucket in a report, with its answer and the acknowledgement of that.
func BenchmarkReports(b *testing.B) {
	const envoys, buckets = 2, 10_000
	f := newFleet(b, envoys, buckets)
	f.report(b)
	b.ReportAllocs()
	begun := processorTime(b)
	for b.Loop() {
		f.report(b)
	}
	// Of the processor: on a busy machine the clock says nothing.
	b.ReportMetric(float64(processorTime(b)-begun)/float64(b.N*envoys*buckets), "cpu-ns/bucket")
}

// processorTime is what the process has used.
func processorTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	must.OK(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// heap returns the bytes in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestBucketsTakeLittle compares what 100,000 buckets take with what the service says that it holds.
func TestBucketsTakeLittle(t *testing.T) {
	f := newFleet(t, 10, 10_000)
	before := heap()
	f.report(t)
	f.report(t)
	taken := heap() - before
	if held := f.service.MemoryBytes(); taken > held || held > rlqs.MaxMemoryBytes {
		t.Errorf("100,000 buckets take %d bytes, and %d are counted of %d", taken, held, rlqs.MaxMemoryBytes)
	}
	t.Logf("100,000 buckets take %.1f MiB", float64(taken)/(1<<20))
	runtime.KeepAlive(f)
}

// TestStreamsTakeLittle compares what streams take that have sent a part of a report with what the service says that it holds.
func TestStreamsTakeLittle(t *testing.T) {
	f, streams := newFleet(t, 0, 0), make([]*rlqs.Stream, rlqs.MaxStreams/2)
	before := heap()
	for i := range streams {
		var err error
		if streams[i], err = f.service.Open(rlqs.Peer{Identity: "one"}, func() {}); err != nil {
			t.Fatal(err)
		}
	}
	check := func(kind string) {
		t.Helper()
		taken, held := heap()-before, f.service.MemoryBytes()
		if taken > held || held > rlqs.MaxMemoryBytes {
			t.Errorf("%s take %d bytes, and %d are counted", kind, taken, held)
		}
		t.Logf("%s take %d bytes each", kind, taken/int64(len(streams)))
	}
	check("streams without a report")
	for _, st := range streams {
		must.OK(t, st.Feed([]byte("\x0a\x01d\x12\x7f"), false))
	}
	check("streams with a part of a report")
	for _, st := range streams {
		st.Close()
	}
	if held := f.service.MemoryBytes(); held != 0 {
		t.Errorf("without streams %d bytes are counted", held)
	}
}

package rlqs_test

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	rlqsv3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/server/rlqs"
	"github.com/sluice-ratelimit/sluice/server/servertest"
)

// atOnce is how many bytes a connection reads at once.
const atOnce = 16 << 10

// fleet is Envoys that report as many buckets each.
type fleet struct {
	passed  time.Duration
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
	f.passed = time.Hour
	for i := range envoys {
		st, err := s.Open(rlqs.Peer{}, func() {})
		if err != nil {
			tb.Fatal(err)
		}
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
			if err := st.Report(b[:n], n == len(b)); err != nil {
				tb.Fatal(err)
			}
			b = b[n:]
		}
		for more := true; more; {
			var seq uint64
			if f.out, seq, more = st.Take(f.out[:0]); seq > 0 {
				st.Confirmed(seq)
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
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestBucketsTakeLittle holds what 100,000 buckets take.
func TestBucketsTakeLittle(t *testing.T) {
	var before, after runtime.MemStats
	f := newFleet(t, 10, 10_000)
	runtime.GC()
	runtime.ReadMemStats(&before)
	f.report(t)
	f.report(t)
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(f)
	if taken := float64(after.HeapAlloc-before.HeapAlloc) / (1 << 20); taken > 100 {
		t.Errorf("100,000 buckets take %.1f MiB", taken)
	} else {
		t.Logf("100,000 buckets take %.1f MiB", taken)
	}
}

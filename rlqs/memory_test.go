package rlqs_test

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	rlqsv3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/rlqs"
	"github.com/sluice-ratelimit/sluice/server/quota"
	"github.com/sluice-ratelimit/sluice/server/servertest"
)

// readSize is the number of bytes in each call of Feed.
const readSize = 16 << 10

// fleet is a service and Envoys that each report the same number of buckets.
type fleet struct {
	elapsed time.Duration
	service *rlqs.Service
	streams []quota.Stream
	reports [][]byte
	out     []byte
}

func newFleet(tb testing.TB, envoys, buckets int) *fleet {
	tb.Helper()
	f, set := &fleet{}, servertest.Compile(tb, divided)
	s := rlqs.New(quota.Options{
		Elapsed: func() time.Duration { return f.elapsed }, Rules: func() *descriptors.Set { return set }, Metrics: servertest.Metrics(tb),
		Count: func(*descriptors.Set, *descriptors.Rule, []descriptors.Entry, uint64, uint64, uint64) {},
	})
	tb.Cleanup(s.Close)
	f.service = s
	f.elapsed = time.Hour
	for i := range envoys {
		st, err := s.Open(quota.Peer{Identity: strconv.Itoa(i)}, func() {})
		must.OK(tb, err)
		m := &rlqsv3.RateLimitQuotaUsageReports{Domain: "d"}
		for j := range buckets {
			m.BucketQuotaUsages = append(m.BucketQuotaUsages, user(uint64(j%100), 0, fmt.Sprintf("user-%d-%d", i, j)))
		}
		f.streams, f.reports = append(f.streams, st), append(f.reports, servertest.Marshal(tb, m))
	}
	return f
}

// report makes all Envoys report, and receive and confirm all messages.
func (f *fleet) report(tb testing.TB) {
	tb.Helper()
	f.elapsed += 5 * time.Second
	for i, st := range f.streams {
		for b := f.reports[i]; len(b) > 0; {
			n := min(len(b), readSize)
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

// heap returns the bytes in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestBucketMemory compares the memory of 100,000 buckets with MemoryBytes.
func TestBucketMemory(t *testing.T) {
	f := newFleet(t, 10, 10_000)
	before := heap()
	f.report(t)
	f.report(t)
	used := heap() - before
	if estimate := f.service.MemoryBytes(); used > estimate || estimate > rlqs.MaxMemoryBytes {
		t.Errorf("100,000 buckets use %d bytes; MemoryBytes is %d, its maximum %d", used, estimate, rlqs.MaxMemoryBytes)
	}
	t.Logf("100,000 buckets use %.1f MiB", float64(used)/(1<<20))
	runtime.KeepAlive(f)
}

// TestStreamMemory compares the memory of streams, without a report and with an incomplete one,
// with MemoryBytes.
func TestStreamMemory(t *testing.T) {
	f, streams := newFleet(t, 0, 0), make([]quota.Stream, rlqs.MaxStreams/2)
	before := heap()
	for i := range streams {
		var err error
		if streams[i], err = f.service.Open(quota.Peer{Identity: "one"}, func() {}); err != nil {
			t.Fatal(err)
		}
	}
	check := func(kind string) {
		t.Helper()
		used, estimate := heap()-before, f.service.MemoryBytes()
		if used > estimate || estimate > rlqs.MaxMemoryBytes {
			t.Errorf("%s use %d bytes, but MemoryBytes is %d", kind, used, estimate)
		}
		t.Logf("%s use %d bytes each", kind, used/int64(len(streams)))
	}
	check("streams without a report")
	for _, st := range streams {
		must.OK(t, st.Feed([]byte("\x0a\x01d\x12\x7f"), false))
	}
	check("streams with an incomplete report")
	for _, st := range streams {
		st.Close()
	}
	if n := f.service.MemoryBytes(); n != 0 {
		t.Errorf("without streams MemoryBytes is %d", n)
	}
}

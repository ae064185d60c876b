package rlqs_test

import (
	"testing"
	"testing/synctest"
	"time"

	rlqsv3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/servertest"
)

// passes advances time and waits for the work that is due in it.
func passes(d time.Duration) {
	time.Sleep(d) // of the test's own clock
	synctest.Wait()
}

// TestFirstReportTimeout has streams without a report, and with the first half of one: they fail, and others do not.
func TestFirstReportTimeout(t *testing.T) {
	play(t, nil, func(s *stage) {
		empty, half, nothing, reported := s.envoy(), s.envoy(), s.envoy(), s.envoy()
		if n := s.metric("sluice_quota_streams"); n != 4 {
			t.Errorf("%g streams are counted", n)
		}
		must.OK(t, half.Feed([]byte("\x0a\x01d\x12"), false))
		if err := nothing.Feed(nil, true); err != nil { // which says nothing of a domain
			t.Fatal(err)
		}
		passes(9 * time.Second)
		reported.reports(user(1, 0, "al"))
		if empty.Err() != nil || half.Err() != nil {
			t.Error("after 9 s a stream has ended")
		}
		passes(time.Second)
		for name, e := range map[string]*envoy{"without a report": empty, "with half a report": half, "with an empty report": nothing} {
			if err := e.Err(); status.Code(err) != codes.DeadlineExceeded || e.wakes.Load() == 0 {
				t.Errorf("a stream %s ends with %v", name, err)
			}
			e.Close()
		}
		passes(time.Hour)
		if err := reported.Err(); err != nil {
			t.Errorf("a stream that has reported ends with %v", err)
		}
		if n := s.metric("sluice_quota_streams"); n != 1 {
			t.Errorf("%g streams are counted", n)
		}
		late := s.envoy()
		if passes(10 * time.Second); late.Err() == nil {
			t.Error("a stream that begins later does not end")
		}
	})
}

// TestReportAfterCloseIsIgnored has a report arrive after its stream was closed, as with a transport that uses
// goroutines.
func TestReportAfterCloseIsIgnored(t *testing.T) {
	play(t, nil, func(s *stage) {
		e := s.envoy()
		e.reports(user(1, 0, "al"))
		e.Close()
		m := &rlqsv3.RateLimitQuotaUsageReports{Domain: "d", BucketQuotaUsages: []*rlqsv3.RateLimitQuotaUsageReports_BucketQuotaUsage{user(1, 0, "bo")}}
		if err := e.Feed(servertest.Marshal(t, m), true); status.Code(err) != codes.Canceled {
			t.Errorf("Report = %v, want CANCELLED", err)
		}
		if passes(time.Minute); s.metric("sluice_quota_buckets") != 0 || s.MemoryBytes() != 0 {
			t.Errorf("%g buckets and %d bytes are left", s.metric("sluice_quota_buckets"), s.MemoryBytes())
		}
	})
}

// TestDeliveryTimeout has clients that receive no message, or receive each one late.
func TestDeliveryTimeout(t *testing.T) {
	play(t, nil, func(s *stage) {
		sends := func(e *envoy, name string) uint64 {
			t.Helper()
			if err := e.Feed(servertest.Marshal(t, &rlqsv3.RateLimitQuotaUsageReports{
				Domain: "d", BucketQuotaUsages: []*rlqsv3.RateLimitQuotaUsageReports_BucketQuotaUsage{user(1, 0, name)},
			}), true); err != nil {
				t.Fatal(err)
			}
			_, seq, _ := e.AppendMessage(nil)
			return seq
		}
		deaf, late := s.envoy(), s.envoy()
		for range 2 {
			sends(deaf, "al")
			seq := sends(late, "bo")
			passes(29 * time.Second)
			if err := deaf.Err(); err != nil {
				t.Fatalf("after 29 s the stream ends with %v", err)
			}
			late.Confirm(seq)
			deaf.Confirm(1) // the second time, no more than before
		}
		sent := s.envoy()
		sends(sent, "cy")
		sent.MarkSent(1) // what a transport that sees no acknowledgements says
		seq := sends(late, "bo")
		passes(time.Second)
		sends(late, "bo")
		late.Confirm(seq) // a part of what it was sent
		passes(29 * time.Second)
		if err := deaf.Err(); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("the stream of who takes in nothing ends with %v", err)
		}
		if err := late.Err(); err != nil {
			t.Errorf("the stream of who is late ends with %v", err)
		}
		if passes(time.Second); late.Err() == nil {
			t.Error("who takes in no more is not ended")
		}
		if passes(time.Hour); sent.Err() != nil {
			t.Errorf("a stream without acknowledgements ends with %v", sent.Err())
		}
	})
}

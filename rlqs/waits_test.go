package rlqs_test

import (
	"testing"
	"testing/synctest"
	"time"

	rlqsv3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/servertest"
)

// advance advances the clock of the synctest bubble and waits for all work that becomes due.
func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// TestFirstReportTimeout checks that a stream without a complete first report fails after 10 s, and
// that a stream that has reported does not fail.
func TestFirstReportTimeout(t *testing.T) {
	runService(t, nil, func(s *testService) {
		silent, half, empty, reported := s.openEnvoy(), s.openEnvoy(), s.openEnvoy(), s.openEnvoy()
		if n := s.metric("sluice_quota_streams"); n != 4 {
			t.Errorf("%g streams are open", n)
		}
		must.OK(t, half.Feed([]byte("\x0a\x01d\x12"), false))
		if err := empty.Feed(nil, true); err != nil { // without a domain
			t.Fatal(err)
		}
		advance(9 * time.Second)
		reported.report(user(1, 0, "al"))
		if silent.Err() != nil || half.Err() != nil {
			t.Error("after 9 s a stream has failed")
		}
		advance(time.Second)
		for name, e := range map[string]*envoy{"without a report": silent, "with half a report": half, "with an empty report": empty} {
			if err := e.Err(); status.Code(err) != codes.DeadlineExceeded || e.wakes.Load() == 0 {
				t.Errorf("a stream %s fails with %v", name, err)
			}
			e.Close()
		}
		advance(time.Hour)
		if err := reported.Err(); err != nil {
			t.Errorf("a stream that has reported fails with %v", err)
		}
		if n := s.metric("sluice_quota_streams"); n != 1 {
			t.Errorf("%g streams are open", n)
		}
		late := s.openEnvoy()
		if advance(10 * time.Second); late.Err() == nil {
			t.Error("a stream that is opened later does not fail")
		}
	})
}

// TestReportAfterCloseIsIgnored has a report arrive after its stream was closed, as with a
// transport that uses goroutines.
func TestReportAfterCloseIsIgnored(t *testing.T) {
	runService(t, nil, func(s *testService) {
		e := s.openEnvoy()
		e.report(user(1, 0, "al"))
		e.Close()
		m := &rlqsv3.RateLimitQuotaUsageReports{Domain: "d", BucketQuotaUsages: []*rlqsv3.RateLimitQuotaUsageReports_BucketQuotaUsage{user(1, 0, "bo")}}
		if err := e.Feed(servertest.Marshal(t, m), true); status.Code(err) != codes.Canceled {
			t.Errorf("Feed = %v, want CANCELLED", err)
		}
		if advance(time.Minute); s.metric("sluice_quota_buckets") != 0 || s.MemoryBytes() != 0 {
			t.Errorf("%g buckets and %d bytes are left", s.metric("sluice_quota_buckets"), s.MemoryBytes())
		}
	})
}

// TestDeliveryTimeout checks that a stream fails if its client receives no message for 30 s, but
// not if it receives messages late.
func TestDeliveryTimeout(t *testing.T) {
	runService(t, nil, func(s *testService) {
		sendReport := func(e *envoy, name string) uint64 {
			t.Helper()
			if err := e.Feed(servertest.Marshal(t, &rlqsv3.RateLimitQuotaUsageReports{
				Domain: "d", BucketQuotaUsages: []*rlqsv3.RateLimitQuotaUsageReports_BucketQuotaUsage{user(1, 0, name)},
			}), true); err != nil {
				t.Fatal(err)
			}
			_, seq, _ := e.AppendMessage(nil)
			return seq
		}
		unread, late := s.openEnvoy(), s.openEnvoy()
		for range 2 {
			sendReport(unread, "al")
			seq := sendReport(late, "bo")
			advance(29 * time.Second)
			if err := unread.Err(); err != nil {
				t.Fatalf("after 29 s the stream fails with %v", err)
			}
			late.Confirm(seq)
			unread.Confirm(1) // the second time, a message that was confirmed before
		}
		sent := s.openEnvoy()
		sendReport(sent, "cy")
		sent.MarkSent(1) // by a transport without acknowledgements
		seq := sendReport(late, "bo")
		advance(time.Second)
		sendReport(late, "bo")
		late.Confirm(seq) // not the last message
		advance(29 * time.Second)
		if err := unread.Err(); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("the stream of a client that receives nothing fails with %v", err)
		}
		if err := late.Err(); err != nil {
			t.Errorf("the stream of a client that receives late fails with %v", err)
		}
		if advance(time.Second); late.Err() == nil {
			t.Error("the stream of a client that receives nothing more does not fail")
		}
		if advance(time.Hour); sent.Err() != nil {
			t.Errorf("a stream without acknowledgements fails with %v", sent.Err())
		}
	})
}

// TestReportsConfirmMessages has a transport without acknowledgements: a message counts as received
// with the second periodic report after it, since it may cross the first one.
func TestReportsConfirmMessages(t *testing.T) {
	runService(t, nil, func(s *testService) {
		e := s.openEnvoy()
		entries := []descriptors.Entry{{Key: []byte("user"), Value: []byte("al")}}
		for i, step := range []struct {
			bucket    string
			periodic  bool
			confirmed bool
		}{{"al", false, false}, {"bo", false, false}, {"cy", false, false}, {"al", true, false}, {"di", false, false}, {"al", true, true}} {
			bucket := user(1, 0, step.bucket)
			if !step.periodic {
				bucket.TimeElapsed = nil
			}
			must.OK(t, e.Feed(servertest.Marshal(t, &rlqsv3.RateLimitQuotaUsageReports{
				Domain: "d", BucketQuotaUsages: []*rlqsv3.RateLimitQuotaUsageReports_BucketQuotaUsage{bucket},
			}), true))
			e.ConfirmByReports()
			if v, ok := s.View("d", entries); !ok || v.Shares[0].Confirmed != step.confirmed {
				t.Errorf("after report %d the view is %+v, want %v", i, v, step.confirmed)
			}
			_, seq, _ := e.AppendMessage(nil)
			e.MarkSent(seq)
			advance(time.Second)
		}
	})
}

package rlqs_test

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/rlqs"
	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/quota"
)

// openAll opens streams of a client until it gets no further slot, or all slots are in use.
func (s *testService) openAll(client string) (all []*envoy) {
	s.t.Helper()
	for free := rlqs.MaxStreams - int(s.metric("sluice_quota_streams")); len(all) < free; {
		e, err := s.tryOpen(quota.Peer{Identity: client})
		if status.Code(err) == codes.ResourceExhausted {
			return all
		}
		must.OK(s.t, err)
		all = append(all, e)
	}
	return all
}

// reportOnAll makes the first report on each stream.
func (s *testService) reportOnAll(all []*envoy) {
	s.t.Helper()
	for _, e := range all {
		must.OK(s.t, e.Feed([]byte("\x0a\x01d"), true))
	}
}

// TestOneClientLeavesSlots has several clients in turn open as many streams as they can. Each of
// them leaves free slots.
func TestOneClientLeavesSlots(t *testing.T) {
	runService(t, nil, func(s *testService) {
		left := 10_000 // docs/rlqs.md
		if rlqs.MaxStreams != left {
			t.Errorf("there are %d slots, want %d", rlqs.MaxStreams, left)
		}
		for i := range 5 {
			all := s.openAll(fmt.Sprint("client ", i))
			if len(all) != (left+1)/2 { // the same number stays free
				t.Errorf("client %d gets %d of %d free slots", i, len(all), left)
			}
			s.reportOnAll(all)
			left -= len(all)
		}
		if n := s.metric("sluice_quota_streams"); n != float64(rlqs.MaxStreams-left) {
			t.Errorf("%g streams are open", n)
		}
		e := s.open(quota.Peer{Identity: "another"})
		e.Close()
		e.Close()
		if n := len(s.openAll("another")); n != (left+1)/2 {
			t.Errorf("after closing a stream, a client gets %d slots", n)
		}
	})
}

// TestClientWithMostStreamsLosesSlots has clients use all slots. Further clients take slots from
// the client with the most streams. Its streams without a report lose their slots first, beginning
// with the oldest, and then its newest streams.
func TestClientWithMostStreamsLosesSlots(t *testing.T) {
	runService(t, nil, func(s *testService) {
		var first []*envoy
		for free := rlqs.MaxStreams; free > 0; free /= 2 {
			var all []*envoy
			for range (free + 1) / 2 {
				all = append(all, s.open(quota.Peer{Identity: fmt.Sprint("client ", free)}))
			}
			if first == nil {
				first, all = all, all[3:]
			}
			s.reportOnAll(all)
		}
		if n := s.metric("sluice_quota_streams"); n != rlqs.MaxStreams {
			t.Fatalf("%g streams are open", n)
		}
		for i, loser := range []*envoy{first[0], first[1], first[2], first[len(first)-1], first[len(first)-2]} {
			woken := loser.wakes.Load()
			e := s.open(quota.Peer{Identity: fmt.Sprint("late ", i)})
			s.reportOnAll([]*envoy{e})
			if err := loser.Err(); status.Code(err) != codes.ResourceExhausted || loser.wakes.Load() == woken {
				t.Errorf("late client %d: the evicted stream fails with %v", i, err)
			}
		}
		ended := 0
		for _, e := range first {
			if e.Err() != nil {
				ended++
			}
		}
		if ended != 5 {
			t.Errorf("%d streams lost their slots, want 5", ended)
		}
		if _, err := s.tryOpen(quota.Peer{Identity: fmt.Sprint("client ", rlqs.MaxStreams)}); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("the client with the most streams opens another one: %v", err)
		}
	})
}

// TestForbiddenClientGetsNoSlot checks that a client that may use no domain cannot open a stream.
func TestForbiddenClientGetsNoSlot(t *testing.T) {
	allow, err := access.ParseAllowList([]string{"a=d", "b=*"})
	must.OK(t, err)
	runService(t, allow, func(s *testService) {
		for _, c := range []*access.Client{nil, named(allow, "stranger")} {
			if _, err := s.tryOpen(quota.Peer{Client: c}); status.Code(err) != codes.PermissionDenied {
				t.Errorf("Open = %v, want PERMISSION_DENIED", err)
			}
		}
		if n := s.metric("sluice_quota_streams"); n != 0 {
			t.Errorf("%g streams are open", n)
		}
		for _, name := range []string{"a", "b"} {
			s.reportOnAll([]*envoy{s.open(quota.Peer{Client: named(allow, name)})})
		}
		if n := s.metric("sluice_quota_rejected_streams_total"); n != 2 {
			t.Errorf("%g streams were rejected, want 2", n)
		}
	})
}

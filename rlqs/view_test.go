package rlqs_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/rlqs"
	"github.com/sluice-ratelimit/sluice/server/quota"
	"github.com/sluice-ratelimit/sluice/server/servertest"
)

// TestViews checks the views of a bucket that two Envoys share and of buckets with one Envoy,
// before and after one Envoy disconnects.
func TestViews(t *testing.T) {
	runService(t, nil, func(s *testService) {
		if views, streams, buckets := s.Largest(); len(views)+streams+buckets > 0 || len(s.AssignedRatios()) > 0 {
			t.Errorf("without Envoys there are %v, %d streams, %d buckets, %v", views, streams, buckets, s.AssignedRatios())
		}
		e := s.openEnvoy()
		f, err := s.Open(quota.Peer{Address: "10.0.0.7"}, func() {})
		must.OK(t, err)
		second := &envoy{Stream: f, s: s, received: map[string]string{}}
		for range 4 {
			e.report(user(200, 100, "al"), user(1, 0, "bo"), usage(9, 0, "sluice", "free", "free", "x"))
			second.report(user(300, 0, "al"))
			time.Sleep(5 * time.Second)
			synctest.Wait()
			e.receive()
			second.receive()
		}
		views, streams, buckets := s.Largest()
		if len(views) != 2 || streams != 2 || buckets != 3 {
			t.Fatalf("Largest returns %d buckets, %d streams, %d buckets in total, want 2, 2, 3", len(views), streams, buckets)
		}
		if v := views[0]; v.Rule.Path() != "user" || len(v.Entries) != 1 || string(v.Entries[0].Value) != "al" || len(v.Shares) != 2 ||
			v.Limit != 100 || v.Assigned > v.Limit || v.Assigned < 95 || v.Lost != 0 || v.LostFor != 0 || v.Learning != 0 {
			t.Errorf("the largest bucket is %+v", v)
		}
		if s := views[0].Shares; s[0].Address != "" || s[1].Address != "10.0.0.7" {
			t.Errorf("the shares are %+v", s)
		}
		for rule, ratio := range s.AssignedRatios() {
			if rule.Path() != "user" || ratio < 0.5 || ratio > 1 { // of al and bo
				t.Errorf("the ratio of %s is %g", rule.Path(), ratio)
			}
		}
		if len(s.AssignedRatios()) != 1 {
			t.Errorf("the ratios are %v", s.AssignedRatios())
		}
		second.Close()
		entries := []descriptors.Entry{{Key: []byte("user"), Value: []byte("al")}}
		if v, ok := s.View("d", entries); !ok || len(v.Shares) != 1 || v.Lost == 0 || v.LostFor <= 0 || v.LostFor > 12500*time.Millisecond {
			t.Errorf("after an Envoy has disconnected, the view is %+v, %v", v, ok)
		}
		if v, ok := s.View("d", entries[:0]); ok {
			t.Errorf("an empty descriptor has the view %+v", v)
		}
		// Equal limits of newer rules replace the earlier ones.
		s.set.Store(servertest.Compile(t, divided))
		s.RulesChanged()
		for rule := range s.AssignedRatios() {
			if s.set.Load().Match([]byte("d"), entries) != rule {
				t.Error("a rule is not one of the active rules")
			}
		}
		if len(s.AssignedRatios()) != 1 {
			t.Errorf("with newer rules the ratios are %v", s.AssignedRatios())
		}
		s.set.Store(servertest.Compile(t, strings.Replace(divided, "shadow_mode: true", "shadow_mode: false", 1)))
		s.RulesChanged()
		e.report(usage(1, 0, "sluice", "tried", "tried", "x"))
		if len(s.AssignedRatios()) != 2 {
			t.Errorf("with a limit that is no longer in shadow mode the ratios are %v", s.AssignedRatios())
		}
	})
}

// TestLargestAreBounded checks that only the MaxViews buckets with the most demand are returned.
func TestLargestAreBounded(t *testing.T) {
	runService(t, nil, func(s *testService) {
		e := s.openEnvoy()
		for range 3 {
			for i := range 3 * rlqs.MaxViews {
				e.report(user(uint64(10+i), 0, fmt.Sprint("u", i)))
			}
			time.Sleep(5 * time.Second)
		}
		views, _, _ := s.Largest()
		if len(views) != rlqs.MaxViews {
			t.Fatalf("Largest returns %d buckets", len(views))
		}
		for i, v := range views {
			if want := fmt.Sprint("u", 3*rlqs.MaxViews-1-i); string(v.Entries[0].Value) != want {
				t.Errorf("bucket %d is that of %s, want %s", i, v.Entries[0].Value, want)
			}
		}
	})
}

package rlqs_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/rlqs"
	"github.com/sluice-ratelimit/sluice/server/servertest"
)

// TestViews has two Envoys share a bucket, one of them alone in others, and one go.
func TestViews(t *testing.T) {
	play(t, nil, func(s *stage) {
		if views, streams, buckets := s.Largest(); len(views)+streams+buckets > 0 || len(s.AssignedRatios()) > 0 {
			t.Errorf("without Envoys there are %v, %d streams, %d buckets, %v", views, streams, buckets, s.AssignedRatios())
		}
		e := s.envoy()
		f, err := s.Open(rlqs.Peer{Address: "10.0.0.7"}, func() {})
		must.OK(t, err)
		second := &envoy{Stream: f, s: s, told: map[string]string{}}
		for range 4 {
			e.reports(user(200, 100, "al"), user(1, 0, "bo"), usage(9, 0, "sluice", "free", "free", "x"))
			second.reports(user(300, 0, "al"))
			time.Sleep(5 * time.Second)
			synctest.Wait()
			e.take()
			second.take()
		}
		views, streams, buckets := s.Largest()
		if len(views) != 2 || streams != 2 || buckets != 3 {
			t.Fatalf("there are %d of two buckets that are divided, %d streams, %d buckets", len(views), streams, buckets)
		}
		if v := views[0]; v.Rule.Path() != "user" || len(v.Entries) != 1 || string(v.Entries[0].Value) != "al" || len(v.Shares) != 2 ||
			rlqs.PerSecond(v.Rate) != 100 || v.AssignedRate > v.Rate || rlqs.PerSecond(v.AssignedRate) < 95 || v.LostRate != 0 || v.LostFor != 0 || v.Learning != 0 {
			t.Errorf("the largest bucket is %+v", v)
		}
		if v := views[0]; v.Addresses[v.Shares[1].Stream] != "10.0.0.7" || len(v.Addresses) != 1 {
			t.Errorf("addresses are %v", v.Addresses)
		}
		for rule, part := range s.AssignedRatios() {
			if rule.Path() != "user" || part < 0.5 || part > 1 { // of al and bo
				t.Errorf("%s: %g is in force", rule.Path(), part)
			}
		}
		if len(s.AssignedRatios()) != 1 {
			t.Errorf("in force are %v", s.AssignedRatios())
		}
		second.Close()
		entries := []descriptors.Entry{{Key: []byte("user"), Value: []byte("al")}}
		if v, ok := s.ViewBucket("d", entries); !ok || len(v.Shares) != 1 || v.LostRate == 0 || v.LostFor <= 0 || v.LostFor > 12500*time.Millisecond {
			t.Errorf("of a bucket of which an Envoy has gone is known %+v, %v", v, ok)
		}
		if v, ok := s.ViewBucket("d", entries[:0]); ok {
			t.Errorf("of an empty descriptor is known %+v", v)
		}
		// Equal limits of newer rules are those of the rules in force.
		s.set.Store(servertest.Compile(t, divided))
		s.RulesChanged()
		for rule := range s.AssignedRatios() {
			if s.set.Load().Match([]byte("d"), entries) != rule {
				t.Error("a rule is not one of those in force")
			}
		}
		if len(s.AssignedRatios()) != 1 {
			t.Errorf("with newer rules %v are in force", s.AssignedRatios())
		}
		s.set.Store(servertest.Compile(t, strings.Replace(divided, "shadow_mode: true", "shadow_mode: false", 1)))
		s.RulesChanged()
		e.reports(usage(1, 0, "sluice", "tried", "tried", "x"))
		if len(s.AssignedRatios()) != 2 {
			t.Errorf("with a limit that is no longer in shadow mode %v are in force", s.AssignedRatios())
		}
	})
}

// TestLargestAreBounded has more buckets than are shown: those with most demand are.
func TestLargestAreBounded(t *testing.T) {
	play(t, nil, func(s *stage) {
		e := s.envoy()
		for range 3 {
			for i := range 3 * rlqs.MaxViews {
				e.reports(user(uint64(10+i), 0, fmt.Sprint("u", i)))
			}
			time.Sleep(5 * time.Second)
		}
		views, _, _ := s.Largest()
		if len(views) != rlqs.MaxViews {
			t.Fatalf("%d buckets are shown", len(views))
		}
		for i, v := range views {
			if want := fmt.Sprint("u", 3*rlqs.MaxViews-1-i); string(v.Entries[0].Value) != want {
				t.Errorf("bucket %d is %s's, want %s's", i, v.Entries[0].Value, want)
			}
		}
	})
}

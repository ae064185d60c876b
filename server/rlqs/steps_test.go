package rlqs_test

import (
	"strconv"
	"testing"

	rlqsv3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/rlqs"
	"github.com/sluice-ratelimit/sluice/server/servertest"
)

// TestRulesAndSurveysTakeSteps has an Envoy report many buckets. The service reads the rules once each time that it
// locks, so their reads count the batches under the lock.
func TestRulesAndSurveysTakeSteps(t *testing.T) {
	play(t, nil, func(s *stage) {
		const buckets = 2*rlqs.SurveyedAtOnce + 1 // with a share each
		m := &rlqsv3.RateLimitQuotaUsageReports{Domain: "d"}
		for i := range buckets {
			m.BucketQuotaUsages = append(m.BucketQuotaUsages, user(1, 0, strconv.Itoa(i)))
		}
		e := s.envoy()
		must.OK(t, e.Feed(servertest.Marshal(t, m), true))
		s.set.Store(servertest.Compile(t, divided))
		s.asked.Store(0)
		s.RulesChanged()
		if n := s.asked.Load(); n < buckets/rlqs.RematchedAtOnce {
			t.Errorf("new rules are applied in %d steps", n)
		}
		s.asked.Store(0)
		if n := len(s.AssignedRatios()); n != 1 {
			t.Errorf("%d rules have a part in force", n)
		}
		if n := s.asked.Load(); n < 2*buckets/rlqs.SurveyedAtOnce {
			t.Errorf("all buckets are looked at in %d steps", n)
		}
		s.asked.Store(0)
		if views, _, n := s.Largest(); len(views) != rlqs.MaxViews || n != buckets {
			t.Errorf("there are %d of %d buckets", len(views), n)
		}
		if n := s.asked.Load(); n > rlqs.MaxViews+1 {
			t.Errorf("a state takes %d steps after metrics", n)
		}
	})
}

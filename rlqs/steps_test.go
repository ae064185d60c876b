package rlqs_test

import (
	"strconv"
	"testing"

	rlqsv3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/rlqs"
	"github.com/sluice-ratelimit/sluice/server/servertest"
)

// TestRulesAndSurveysRunInBatches has an Envoy report many buckets. The service reads the rules
// once for each batch that it processes under its lock, so the number of reads is the number of
// batches.
func TestRulesAndSurveysRunInBatches(t *testing.T) {
	runService(t, nil, func(s *testService) {
		const buckets = 2*rlqs.SurveyBatch + 1 // with a share each
		m := &rlqsv3.RateLimitQuotaUsageReports{Domain: "d"}
		for i := range buckets {
			m.BucketQuotaUsages = append(m.BucketQuotaUsages, user(1, 0, strconv.Itoa(i)))
		}
		e := s.openEnvoy()
		must.OK(t, e.Feed(servertest.Marshal(t, m), true))
		s.set.Store(servertest.Compile(t, divided))
		s.rulesReads.Store(0)
		s.RulesChanged()
		if n := s.rulesReads.Load(); n < buckets/rlqs.RulesBatch {
			t.Errorf("new rules are applied in %d batches", n)
		}
		s.rulesReads.Store(0)
		if n := len(s.AssignedRatios()); n != 1 {
			t.Errorf("%d rules have a ratio, want 1", n)
		}
		if n := s.rulesReads.Load(); n < 2*buckets/rlqs.SurveyBatch {
			t.Errorf("a survey has %d batches", n)
		}
		s.rulesReads.Store(0)
		if views, _, n := s.Largest(); len(views) != rlqs.MaxViews || n != buckets {
			t.Errorf("Largest returns %d of %d buckets", len(views), n)
		}
		if n := s.rulesReads.Load(); n > rlqs.MaxViews+1 {
			t.Errorf("Largest after AssignedRatios reads the rules %d times, want no second survey", n)
		}
	})
}

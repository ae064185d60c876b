package quota_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/rlqs/division"
	"github.com/sluice-ratelimit/sluice/rlqs/filter"
)

// slowRules have a token bucket with a negligible refill: one token in half an hour.
const slowRules = `
domain: d
descriptors:
  - key: user
    descriptors:
      - { key: api, value: all, rate_limit: { unit: hour, requests_per_unit: 2, algorithm: token_bucket, quota: { min_tokens: 20 } } }
`

// TestFilterModel applies the same actions and requests to a real Envoy and to the model of its
// bucket, on which simulations are based. Both admit the same number of
// requests.
func TestFilterModel(t *testing.T) {
	t.Parallel()
	s := start(t, slowRules, 1)
	var model filter.Bucket
	model.Start(0)
	apply := func(kind division.Kind, most uint32) {
		model.Apply(0, &division.Action{Kind: kind, Rate: 2, MaxTokens: most, TTL: 12 * time.Second})
	}
	compare := func(name string, n uint64) {
		t.Helper()
		admitted := uint64(0)
		for range n {
			if s.request(t.Context(), t, 0, "al") {
				admitted++
			}
		}
		if want := model.Admit(0, n, false); admitted != want {
			t.Fatalf("%s: Envoy admits %d of %d requests, the model %d", name, admitted, n, want)
		}
	}
	actions := func(kind string) float64 { return s.metric(t, "sluice_quota_actions_total", `kind="`+kind+`"`) }
	// Envoy logs each replacement of a token bucket.
	buckets := func() int { return strings.Count(s.envoys[0].Log(), "A new TokenBucket has been configured") }
	change := func(from, to string) {
		t.Helper()
		before := buckets()
		s.writeRules(t, strings.Replace(slowRules, from, to, 1))
		suite.Eventually(t, "a new token bucket", func() bool { return buckets() > before })
	}

	s.awaitShares(t, "al") // uses one token
	apply(division.Assign, 20)
	model.Admit(0, 1, false)
	compare("the first token bucket, which starts full", 12)
	change("min_tokens: 20", "min_tokens: 9")
	apply(division.Assign, 9)
	compare("a smaller token bucket, which is full to the same fraction", 30)
	change("min_tokens: 20", "min_tokens: 15")
	apply(division.Assign, 15)
	compare("a larger token bucket, which starts empty", 30)

	denied := actions("deny_all")
	s.writeRules(t, strings.Replace(slowRules, "requests_per_unit: 2,", "requests_per_unit: 0,", 1))
	suite.Eventually(t, "a limit of 0", func() bool { return actions("deny_all") > denied })
	apply(division.AssignDenyAll, 0)
	compare("a limit of 0", 5)
	change("min_tokens: 20", "min_tokens: 9")
	apply(division.Assign, 9)
	compare("a token bucket after DENY_ALL, which starts full", 30)

	before := actions("token_bucket")
	suite.Eventually(t, "the same share again", func() bool { return actions("token_bucket") > before })
	apply(division.Assign, 9)
	compare("a renewal, which has no effect", 3)

	s.sluice.Kill()
	time.Sleep(13 * time.Second) // until shares have expired
	s.startSluice(t)
	s.awaitShares(t, "al")
	model.Expires = 0
	apply(division.Assign, 9)
	model.Admit(0, 1, false)
	compare("a token bucket after an expired one, which starts full", 30)
}

package quota_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/quota"
	"github.com/sluice-ratelimit/sluice/quota/filter"
)

// slow has a token bucket whose refilling plays no part in a test: a token in half an hour.
const slow = `
domain: d
descriptors:
  - key: user
    descriptors:
      - { key: api, value: all, rate_limit: { unit: hour, requests_per_unit: 2, algorithm: token_bucket, quota: { min_tokens: 20 } } }
`

// TestModel has a real Envoy and the model of its bucket told the same, and get the same requests: as many pass. It is
// what simulations and sluice simulate --rlqs rest on.
func TestModel(t *testing.T) {
	t.Parallel()
	s := play(t, slow, 1)
	var model filter.Bucket
	model.Start(0)
	told := func(kind quota.Kind, most uint32) {
		model.Apply(0, &quota.Action{Kind: kind, Rate: 2, MaxTokens: most, TTL: 12 * time.Second})
	}
	requests := func(what string, n uint64) {
		t.Helper()
		passed := uint64(0)
		for range n {
			if s.ask(t.Context(), t, 0, "al") {
				passed++
			}
		}
		if want := model.Admit(0, n, false); passed != want {
			t.Fatalf("%s: Envoy lets %d of %d requests pass, the model %d", what, passed, n, want)
		}
	}
	actions := func(kind string) float64 { return s.metric(t, "sluice_quota_actions_total", `kind="`+kind+`"`) }
	// Envoy notes each token bucket that takes another one's place.
	buckets := func() int { return strings.Count(s.envoys[0].Log(), "A new TokenBucket has been configured") }
	change := func(from, to string) {
		t.Helper()
		before := buckets()
		s.write(t, strings.Replace(slow, from, to, 1))
		suite.Eventually(t, "another token bucket", func() bool { return buckets() > before })
	}

	s.awaitShares(t, "al") // which takes one token
	told(quota.Assign, 20)
	model.Admit(0, 1, false)
	requests("of the first token bucket, which is full", 12)
	change("min_tokens: 20", "min_tokens: 9")
	told(quota.Assign, 9)
	requests("of a smaller one, which is as full as the first", 30)
	change("min_tokens: 20", "min_tokens: 15")
	told(quota.Assign, 15)
	requests("of a larger one, which is as empty", 30)

	denied := actions("deny_all")
	s.write(t, strings.Replace(slow, "requests_per_unit: 2,", "requests_per_unit: 0,", 1))
	suite.Eventually(t, "a limit of 0", func() bool { return actions("deny_all") > denied })
	told(quota.AssignDenyAll, 0)
	requests("of a limit of 0", 5)
	change("min_tokens: 20", "min_tokens: 9")
	told(quota.Assign, 9)
	requests("of a token bucket after it, which is full", 30)

	was := actions("token_bucket")
	suite.Eventually(t, "the same share again", func() bool { return actions("token_bucket") > was })
	told(quota.Assign, 9)
	requests("of the same one, which goes on", 3)

	s.sluice.Kill()
	time.Sleep(13 * time.Second) // in which shares end
	s.startSluice(t)
	s.awaitShares(t, "al")
	model.Expires = 0
	told(quota.Assign, 9)
	model.Admit(0, 1, false)
	requests("of a token bucket after another has ended, which is full", 30)
}

package xds

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/xds/adstest"
	pb "github.com/sluice-ratelimit/sluice/xds/ratelimitv3"
)

// TestFieldsFromDefaults receives equal rules over xDS. Each field of the defaults changes the
// answers of the rule with its name, and none changes those of the rule "plain".
func TestFieldsFromDefaults(t *testing.T) {
	const text = `domain: d
defaults:
  - { name: detailed, detailed_metric: true }
  - { name: shadow, shadow_mode: true }
  - { name: penalty, rate_limit: { count_refused: false, penalty: [2m] } }
  - { name: plain, rate_limit: { count_refused: false } }
  - { name: reserve, rate_limit: { reserve: { amount: 6 } } }
  - { name: hidden, rate_limit: { hidden: true } }
  - { name: soft, rate_limit: { soft: true } }
  - { name: denied, denied_response: problem }
  - { path: [{ key: not-shadow }], shadow_mode: false }
  - { shadow_mode: true } # unnamed rules
`
	defaults := filepath.Join(t.TempDir(), "defaults.yaml")
	must.OK(t, os.WriteFile(defaults, []byte(text), 0o600))
	config := &pb.RateLimitConfig{Name: "d", Domain: "d"}
	for _, name := range []string{"detailed", "shadow", "penalty", "plain", "reserve", "hidden", "soft", "denied", "", "not-shadow"} {
		limit := &pb.RateLimitPolicy{Name: strings.TrimPrefix(name, "not-shadow"), Unit: pb.RateLimitUnit_YEAR, RequestsPerUnit: 10}
		config.Descriptors = append(config.Descriptors, &pb.RateLimitDescriptor{Key: "of-" + name, RateLimit: limit})
	}
	config.GetDescriptors()[len(config.GetDescriptors())-1].Key = "not-shadow"
	m := startManagement(t, adstest.Options{})
	set(t, m, "1", config)
	s := serve(t, "--xds-addr", m.Addr(), "--defaults", defaults)
	// send sends hits for a key and checks the code.
	send := func(key string, hits uint32, want rls.RateLimitResponse_Code) *rls.RateLimitResponse {
		t.Helper()
		reply, err := s.client.ShouldRateLimit(t.Context(), &rls.RateLimitRequest{
			Domain: "d", HitsAddend: hits,
			Descriptors: []*rlcommon.RateLimitDescriptor{{Entries: []*rlcommon.RateLimitDescriptor_Entry{{Key: key, Value: "alice"}}}},
		})
		must.OK(t, err)
		if reply.GetOverallCode() != want {
			t.Errorf("%d hits of %s: %v, want %v", hits, key, reply, want)
		}
		return reply
	}
	const ok, over = rls.RateLimitResponse_OK, rls.RateLimitResponse_OVER_LIMIT

	send("of-plain", 11, over)
	reply := send("of-plain", 1, ok)
	if l := reply.GetStatuses()[0].GetCurrentLimit(); l.GetName() != "plain" {
		t.Errorf("current limit of the plain rule is %v", l)
	}
	send("of-penalty", 11, over)
	send("of-penalty", 1, over)
	send("of-shadow", 11, ok)
	send("of-soft", 11, ok)
	send("of-", 11, ok)
	send("not-shadow", 11, over)
	send("of-reserve", 1, ok)
	send("of-reserve", 1, over)
	if l := send("of-hidden", 1, ok).GetStatuses()[0].GetCurrentLimit(); l != nil {
		t.Errorf("current limit of the hidden limit is %v, want none", l)
	}
	if body := string(send("of-denied", 11, over).GetRawBody()); !strings.Contains(body, "quota-exceeded") {
		t.Errorf("body of the denial is %q, want a problem", body)
	}
	send("of-detailed", 1, ok)
	metrics := suite.Metrics(t, s.Sluice)
	for label, want := range map[string]float64{`rule="of-detailed_alice"`: 1, `rule="of-plain_alice"`: 0, `rule="of-plain"`: 12} {
		if got := metrics.Sum("ratelimit_service_rate_limit_total_hits", label); got != want {
			t.Errorf("hits of %s are %v, want %v", label, got, want)
		}
	}
}

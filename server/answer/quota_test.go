package answer

import (
	"testing"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// TestQuotaIsCounted counts requests that Envoys have decided, by rules with and without values of
// requests in their metrics.
func TestQuotaIsCounted(t *testing.T) {
	s := service(t, Settings{}, `{domain: d, descriptors: [
  {key: a, rate_limit: {unit: second, requests_per_unit: 5, algorithm: token_bucket, quota: {}}},
  {key: b, detailed_metric: true, rate_limit: {unit: second, requests_per_unit: 5, algorithm: token_bucket, quota: {}}}]}`)
	set := s.Rules()
	for _, key := range []string{"a", "b"} {
		entries := []descriptors.Entry{{Key: []byte(key), Value: []byte("x")}}
		s.CountQuota(set, set.Match([]byte("d"), entries), entries, 3, 2, 0)
		s.CountQuota(set, set.Match([]byte("d"), entries), entries, 0, 0, 0)
		s.CountQuota(nil, set.Match([]byte("d"), entries), entries, 7, 7, 0) // of rules that are not active
	}
	if got, want := counted(t, s.metrics.Registry), (telemetry.Hits{Total: 10, Within: 6, Over: 4}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
	if got := gathered(t, s, "sluice_quota_direct_descriptors_total"); got != 0 {
		t.Errorf("%g calls are counted, want none", got)
	}
	if _, _, err := s.Answer(noon, 0, &Exchange{}, marshal(t, &rls.RateLimitRequest{Domain: "d", Descriptors: []*rlcommon.RateLimitDescriptor{
		{Entries: []*rlcommon.RateLimitDescriptor_Entry{entry("a", "x")}},
	}})); err != nil {
		t.Fatal(err)
	}
	if got := gathered(t, s, "sluice_quota_direct_descriptors_total"); got != 1 {
		t.Errorf("%g calls are counted, want one", got)
	}
}

// TestQuotaBeyondShadow counts requests that a limit in shadow mode, or the service in shadow mode,
// would have denied.
func TestQuotaBeyondShadow(t *testing.T) {
	for text, want := range map[string]telemetry.Hits{
		"shadow_mode: true, ":  {Total: 12, Within: 7, Over: 5, Shadow: 4},
		"shadow_mode: false, ": {Total: 12, Within: 7, Over: 5},
	} {
		s := service(t, Settings{ShadowMode: true}, "{domain: d, descriptors: [{key: a, "+text+"rate_limit: {unit: second, requests_per_unit: 5, algorithm: token_bucket, quota: {}}}]}")
		entries := []descriptors.Entry{{Key: []byte("a"), Value: []byte("x")}}
		s.CountQuota(s.Rules(), s.Rules().Match([]byte("d"), entries), entries, 11, 1, 4)
		if got := counted(t, s.metrics.Registry); got != want {
			t.Errorf("%s: counted %+v, want %+v", text, got, want)
		}
		if got := gathered(t, s, "ratelimit_service_global_shadow_mode"); want.Shadow == 0 && got != 4 || want.Shadow > 0 && got != 0 {
			t.Errorf("%s: %g are counted for the service's shadow mode", text, got)
		}
	}
}

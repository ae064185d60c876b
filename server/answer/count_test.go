package answer

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/telemetry"
)

// splitAsReference classifies hits of a fixed window that counts denied hits by the code of
// envoyproxy/ratelimit. The near threshold is never above the limit, because the difference would
// wrap around there.
func splitAsReference(before, hits, limit uint64, ratio float32, shadow bool) (h telemetry.Hits) {
	after := before + hits
	near := min(limit, uint64(math.Floor(float64(float32(limit)*ratio))))
	h.Total = hits
	if after > limit {
		if before >= limit {
			h.Over = hits
		} else {
			h.Over = after - limit
			h.Near = limit - max(near, before)
		}
		if shadow {
			h.Shadow = h.Over
		}
		return h
	}
	h.Within = hits
	if after > near {
		if before >= near {
			h.Near = hits
		} else {
			h.Near = after - near
		}
	}
	return h
}

// TestHitsSplitAsInTheReference compares the metrics after random requests, including lookups, with
// the sums of splitAsReference.
func TestHitsSplitAsInTheReference(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	for range 300 {
		limit, ratio, shadow := r.Uint64N(40), float32(r.IntN(11))/10, r.IntN(3) == 0
		if r.IntN(8) == 0 {
			limit = math.MaxUint32 - r.Uint64N(3)
		}
		s := service(t, Settings{NearLimitRatio: ratio}, fmt.Sprintf(
			"{domain: d, descriptors: [{key: k, shadow_mode: %v, rate_limit: {unit: day, requests_per_unit: %d}}]}", shadow, limit))
		var want telemetry.Hits
		var used uint64
		for range 12 {
			hits := r.Uint64N(8)
			if limit > 100 {
				hits = r.Uint64N(limit)
			}
			if _, _, err := s.Answer(noon, 0, &Exchange{}, marshal(t, &rls.RateLimitRequest{Domain: "d", Descriptors: []*rlcommon.RateLimitDescriptor{{
				Entries:    []*rlcommon.RateLimitDescriptor_Entry{entry("k", "v")},
				HitsAddend: wrapperspb.UInt64(hits),
			}}})); err != nil {
				t.Fatal(err)
			}
			h := splitAsReference(used, hits, limit, ratio, shadow)
			used += hits
			want.Total, want.Over, want.Near = want.Total+h.Total, want.Over+h.Over, want.Near+h.Near
			want.Within, want.Shadow = want.Within+h.Within, want.Shadow+h.Shadow
		}
		if got := counted(t, s.metrics.Registry); got != want {
			t.Fatalf("seed %d: limit %d, ratio %v, shadow %v: counted %+v, want %+v", seed, limit, ratio, shadow, got, want)
		}
	}
}

// TestUnlimitedRulesCountHits checks that refunded hits are counted separately for unlimited rules
// too.
func TestUnlimitedRulesCountHits(t *testing.T) {
	s := service(t, Settings{}, "{domain: d, descriptors: [{key: k, rate_limit: {unlimited: true}}]}")
	for _, negative := range []bool{false, false, true} {
		if _, _, err := s.Answer(noon, 0, &Exchange{}, marshal(t, &rls.RateLimitRequest{Domain: "d", Descriptors: []*rlcommon.RateLimitDescriptor{{
			Entries:        []*rlcommon.RateLimitDescriptor_Entry{entry("k", "v")},
			HitsAddend:     wrapperspb.UInt64(3),
			IsNegativeHits: negative,
		}}})); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := counted(t, s.metrics.Registry), (telemetry.Hits{Total: 6, Within: 6, Negative: 3}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
}

// counted returns the sums of the series of all rules.
func counted(t *testing.T, g prometheus.Gatherer) (h telemetry.Hits) {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]*uint64{
		"total_hits": &h.Total, "over_limit": &h.Over, "near_limit": &h.Near, "within_limit": &h.Within,
		"shadow_mode": &h.Shadow, "total_negative_hits": &h.Negative,
	}
	for _, f := range families {
		for name, sum := range of {
			if f.GetName() == "ratelimit_service_rate_limit_"+name {
				for _, m := range f.GetMetric() {
					*sum += uint64(m.GetCounter().GetValue())
				}
			}
		}
	}
	return h
}

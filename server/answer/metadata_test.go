package answer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
)

// TestMetadataOfRefunds checks that used is the number of hits after a refund, even if the refund
// reduces hits of its own request.
func TestMetadataOfRefunds(t *testing.T) {
	s := service(t, Settings{DecisionMetadata: true}, "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 9, count_refused: false}}]")
	for _, tt := range []struct {
		hits, refund, used, charged uint64
	}{
		{5, 0, 5, 0},
		{4, 3, 6, 3}, // 1 hit is left
		{4, 6, 4, 6}, // no hit is left, and 2 refunded hits are unused
		{8, 2, 2, 2}, // the hits exceed the limit
	} {
		charges := []*ratelimitv3.RateLimitDescriptor{
			{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "k", Value: "v"}}, HitsAddend: wrapperspb.UInt64(tt.hits)},
			{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "k", Value: "v"}}, HitsAddend: wrapperspb.UInt64(tt.refund), IsNegativeHits: true},
		}
		b, _, err := s.Answer(noon, 0, &Exchange{}, marshal(t, &rls.RateLimitRequest{Domain: "d", Descriptors: charges}))
		if err != nil {
			t.Fatal(err)
		}
		var reply rls.RateLimitResponse
		if err := proto.Unmarshal(b, &reply); err != nil {
			t.Fatal(err)
		}
		decisions := reply.GetDynamicMetadata().GetFields()["sluice"].GetStructValue().GetFields()["decisions"].GetListValue().GetValues()
		fields := decisions[1].GetStructValue().GetFields()
		if used, charged := fields["used"].GetNumberValue(), fields["charged"].GetNumberValue(); used != float64(tt.used) || charged != -float64(tt.charged) {
			t.Errorf("%d hits and a refund of %d: used %v, charged %v; want %d and %d less", tt.hits, tt.refund, used, charged, tt.used, tt.charged)
		}
	}
}

// TestLeaseNamesDoNotCollide checks that a limit with leases cannot have the name of another field
// of the dynamic metadata: package descriptors lists the fields that this package writes.
func TestLeaseNamesDoNotCollide(t *testing.T) {
	s := service(t, Settings{DynamicMetadata: true, DecisionMetadata: true, DeniedBy: true},
		"domain: d\ndescriptors: [{key: k, metadata: {a: 1}, rate_limit: {unit: day, requests_per_unit: 5}}, {key: none, rate_limits: [{unit: day, requests_per_unit: 0}, {unit: day, requests_per_unit: 0, name: low, soft: true}]}]")
	b, _, err := s.Answer(noon, 0, &Exchange{}, marshal(t, &rls.RateLimitRequest{
		Domain: "d", HitsAddend: 2, Descriptors: []*ratelimitv3.RateLimitDescriptor{
			{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "k", Value: "v"}}}, {Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "none", Value: "v"}}},
		},
	}))
	if err != nil {
		t.Fatal(err)
	}
	var reply rls.RateLimitResponse
	if err := proto.Unmarshal(b, &reply); err != nil {
		t.Fatal(err)
	}
	names := slices.Sorted(maps.Keys(reply.GetDynamicMetadata().GetFields()))
	if diff := cmp.Diff([]string{"denied_by", "descriptors", "domain", "hitsAddend", "metadata", "sluice", "soft"}, names); diff != "" {
		t.Errorf("dynamic metadata (-want +got):\n%s", diff)
	}
	for _, name := range append(names, "mine") {
		configs, _ := rulefile.Parse("f", fmt.Appendf(nil, "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 5, algorithm: concurrency, name: %s}}]", name))
		_, ds := descriptors.Compile(configs, descriptors.Options{})
		if reserved := strings.Contains(fmt.Sprint(ds), "is reserved"); reserved != (name != "mine") {
			t.Errorf("a lease named %s: found %v", name, ds)
		}
	}
}

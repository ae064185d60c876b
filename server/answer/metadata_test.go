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

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
)

// TestLeasesDoNotTakeOthersNames holds that no limit whose leases stand in the dynamic metadata has the name of
// something else there: package descriptors lists what this package writes.
func TestLeasesDoNotTakeOthersNames(t *testing.T) {
	s := service(t, Settings{DynamicMetadata: true, DecisionMetadata: true}, "domain: d\ndescriptors: [{key: k, metadata: {a: 1}, rate_limit: {unit: day, requests_per_unit: 5}}]")
	b, _, err := s.Answer(noon, 0, &Exchange{}, marshal(t, &rls.RateLimitRequest{
		Domain: "d", HitsAddend: 2, Descriptors: []*ratelimitv3.RateLimitDescriptor{{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "k", Value: "v"}}}},
	}))
	if err != nil {
		t.Fatal(err)
	}
	var reply rls.RateLimitResponse
	if err := proto.Unmarshal(b, &reply); err != nil {
		t.Fatal(err)
	}
	names := slices.Sorted(maps.Keys(reply.GetDynamicMetadata().GetFields()))
	if diff := cmp.Diff([]string{"descriptors", "domain", "hitsAddend", "metadata", "sluice"}, names); diff != "" {
		t.Errorf("dynamic metadata (-want +got):\n%s", diff)
	}
	for _, name := range append(names, "mine") {
		configs, _ := rulefile.Parse("f", fmt.Appendf(nil, "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 5, algorithm: concurrency, name: %s}}]", name))
		_, ds := descriptors.Compile(configs, descriptors.Options{})
		if taken := strings.Contains(fmt.Sprint(ds), "is taken"); taken != (name != "mine") {
			t.Errorf("a lease named %s: found %v", name, ds)
		}
	}
}

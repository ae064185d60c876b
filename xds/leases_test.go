package xds

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/xds/ratelimitv3"
)

// TestDefaultsGrantLeases sets the algorithm of limits from a management server by defaults, since
// the messages of xDS lack the field.
func TestDefaultsGrantLeases(t *testing.T) {
	defaults, ds := rulefile.ParseDefaults("defaults.yaml", []byte("domain: shop\ndefaults:\n- rate_limit: { algorithm: concurrency, unit_multiplier: 10 }"))
	if len(ds) > 0 {
		t.Fatal(ds)
	}
	limit := func(key, name string) *ratelimitv3.RateLimitDescriptor {
		return &ratelimitv3.RateLimitDescriptor{Key: key, RateLimit: &ratelimitv3.RateLimitPolicy{Name: name, Unit: ratelimitv3.RateLimitUnit_MINUTE, RequestsPerUnit: 5}}
	}
	for name, tt := range map[string]struct {
		limits []*ratelimitv3.RateLimitDescriptor
		want   string // the first limit, or the error
	}{
		"names": {[]*ratelimitv3.RateLimitDescriptor{limit("a", "streams"), limit("b", "uploads")}, "5 concurrent requests, each for at most 10 minutes"},
		"no name": {
			[]*ratelimitv3.RateLimitDescriptor{limit("a", "")},
			`defaults.yaml:3:3: error: domain "shop" > defaults[0]: the rule domain "shop" > key "a" > rate_limit at xds:r does not support these fields: "name" is missing`,
		},
		"one name": {
			[]*ratelimitv3.RateLimitDescriptor{limit("a", "n"), limit("b", "n")},
			`the rule domain "shop" > key "b" > rate_limit at xds:r does not support these fields: name "n" is also that of domain "shop" > key "a" > rate_limit at xds:r`,
		},
	} {
		message, err := proto.Marshal(&ratelimitv3.RateLimitConfig{Name: "r", Domain: "shop", Descriptors: tt.limits})
		must.OK(t, err)
		set, ds := build([]*anypb.Any{{TypeUrl: TypeURL, Value: message}}, descriptors.Options{Defaults: defaults})
		got := ""
		if set != nil {
			got = set.Limits[0].String()
		} else if len(ds) == 1 {
			got = ds[0].String()
		}
		if !strings.Contains(got, tt.want) {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

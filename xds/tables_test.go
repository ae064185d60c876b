package xds

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/xds/ratelimitv3"
)

// TestDefaultsNameTables sets the table of limits from a management server by defaults, since their
// messages lack the field.
func TestDefaultsNameTables(t *testing.T) {
	defaults, found := rulefile.ParseDefaults("defaults.yaml", []byte("domain: shop\ndefaults:\n- name: plan\n  rate_limit: { table: customers }"))
	if len(found) > 0 {
		t.Fatal(found)
	}
	all := new(tables.Registry)
	e, err := all.Add("customers", "")
	must.OK(t, err)
	must.OK(t, e.Put([]string{"customer"}, []string{"acme"}, tables.Row{RequestsPerUnit: 500}))
	message, err := proto.Marshal(&ratelimitv3.RateLimitConfig{Name: "r", Domain: "shop", Descriptors: []*ratelimitv3.RateLimitDescriptor{
		{Key: "customer", RateLimit: &ratelimitv3.RateLimitPolicy{Name: "plan", Unit: ratelimitv3.RateLimitUnit_MINUTE, RequestsPerUnit: 5}},
	}})
	must.OK(t, err)
	set, found := build([]*anypb.Any{{TypeUrl: TypeURL, Value: message}}, descriptors.Options{Defaults: defaults, Tables: all})
	if set == nil {
		t.Fatal(found)
	}
	var p descriptors.Plan
	set.Plan(&p, &descriptors.Request{Domain: []byte("shop"), Descriptors: []descriptors.Descriptor{
		{Entries: []descriptors.Entry{{Key: []byte("customer"), Value: []byte("acme")}}},
	}}, descriptors.Global{})
	if got := p.Limits[0].RequestsPerUnit; got != 500 {
		t.Errorf("the number is %d, want 500", got)
	}
}

package xds_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/xds"
	pb "github.com/sluice-ratelimit/sluice/xds/ratelimitv3"
)

func TestConvertsEveryField(t *testing.T) {
	metadata := map[string]any{"tier": "gold", "list": []any{1.5, true, nil, map[string]any{"a": "b"}}}
	m, err := structpb.NewStruct(metadata)
	must.OK(t, err)
	var ds []*pb.RateLimitDescriptor
	var want strings.Builder
	for u := pb.RateLimitUnit_SECOND; u <= pb.RateLimitUnit_WEEK; u++ {
		ds = append(ds, &pb.RateLimitDescriptor{Key: "unit", Value: u.String(), RateLimit: &pb.RateLimitPolicy{Unit: u, RequestsPerUnit: 3}})
		fmt.Fprintf(&want, "d.unit_%s: unit=%s requests_per_unit=3, shadow_mode: false, quota_mode: false\n", u, u)
	}
	ds = append(ds,
		&pb.RateLimitDescriptor{Key: "shadow", ShadowMode: true, DetailedMetric: true, Metadata: m, RateLimit: &pb.RateLimitPolicy{Unit: pb.RateLimitUnit_DAY, Name: "s"}},
		&pb.RateLimitDescriptor{Key: "outer", Descriptors: []*pb.RateLimitDescriptor{
			{Key: "quota", Value: "*", QuotaMode: true, Metadata: &structpb.Struct{}, RateLimit: &pb.RateLimitPolicy{Unit: pb.RateLimitUnit_DAY, RequestsPerUnit: 1<<32 - 1, Replaces: []*pb.RateLimitReplace{{Name: "s"}}}},
			{Key: "free", RateLimit: &pb.RateLimitPolicy{Unlimited: true, RequestsPerUnit: 7}},
		}})
	want.WriteString(`d.shadow: unit=DAY requests_per_unit=0, shadow_mode: true, quota_mode: false
d.outer.quota_*: unit=DAY requests_per_unit=4294967295, shadow_mode: false, quota_mode: true
d.outer.free: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false, unlimited: true
`)
	set, found := xds.Build([]*anypb.Any{wire(t, &pb.RateLimitConfig{Name: "d", Domain: "d", Descriptors: ds})}, descriptors.Options{})
	if set == nil || len(found) > 0 {
		t.Fatalf("diagnostics are %v", found)
	}
	var got strings.Builder
	must.OK(t, set.Dump(&got))
	if diff := cmp.Diff(want.String(), got.String()); diff != "" {
		t.Errorf("rules differ (-want +got):\n%s", diff)
	}
	shadow := set.Limits[7].Rule
	if diff := cmp.Diff(metadata, shadow.Metadata()); diff != "" || !shadow.RuntimeMetric {
		t.Errorf("detailed_metric is %t, metadata (-want +got):\n%s", shadow.RuntimeMetric, diff)
	}
	if quota := set.Limits[8].Rule; quota.Metadata() != nil || quota.Pos().String() != "xds:d" {
		t.Errorf("metadata is %v at %v, want none at xds:d", quota.Metadata(), quota.Pos())
	}
}

func TestOrderOfResourcesDoesNotMatter(t *testing.T) {
	a, b, c := wire(t, domain("a", 1)), wire(t, domain("b", 2)), wire(t, domain("c", 3))
	one, _ := xds.Build([]*anypb.Any{a, b, c}, descriptors.Options{})
	other, _ := xds.Build([]*anypb.Any{c, a, b}, descriptors.Options{})
	if one.Hash != other.Hash {
		t.Errorf("hashes are %s and %s", one.Hash, other.Hash)
	}
}

func TestMergedDomains(t *testing.T) {
	first, second := domain("d", 1), domain("d", 2)
	first.Name, second.Name = "1", "2"
	second.Descriptors[0].Key = "path"
	set, found := xds.Build([]*anypb.Any{wire(t, second), wire(t, first)}, descriptors.Options{MergeDomains: true})
	if set == nil || set.Limits[0].Rule.Path() != "user" || set.Limits[1].Rule.Path() != "path" {
		t.Errorf("rules of the merged domain: %v, want user, path", found)
	}
}

func TestInvalidResources(t *testing.T) {
	deep := &pb.RateLimitDescriptor{Key: "k"}
	value := structpb.NewBoolValue(true)
	for range 101 {
		deep = &pb.RateLimitDescriptor{Key: "k", Descriptors: []*pb.RateLimitDescriptor{deep}}
		value = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{value}})
	}
	nested := domain("m", 1)
	nested.Descriptors[0].Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"a": value}}
	deepName := strings.Repeat("ä", 100)
	_, found := xds.Build([]*anypb.Any{
		{TypeUrl: "type.googleapis.com/google.protobuf.Empty"},
		{TypeUrl: xds.TypeURL, Value: []byte{0xff}},
		wire(t, &pb.RateLimitConfig{Name: "deep", Domain: "deep", Descriptors: []*pb.RateLimitDescriptor{deep}}),
		wire(t, nested),
		wire(t, &pb.RateLimitConfig{Domain: "odd", Descriptors: []*pb.RateLimitDescriptor{
			{Key: "a", RateLimit: &pb.RateLimitPolicy{Unlimited: true, Unit: 9, Name: `"`}},
			{Key: deepName, RateLimit: &pb.RateLimitPolicy{Unit: 9}},
		}}),
	}, descriptors.Options{})
	var got []string
	for _, d := range found {
		got = append(got, d.String())
	}
	want := []string{
		`xds:deep: error: descriptors are nested deeper than 100 levels`,
		`xds:m: error: domain "m" > key "user" > metadata: maps and lists are nested deeper than 100 levels`,
		`xds:odd: warning: no-effect: domain "odd" > key "a" > rate_limit: the unit has no effect with unlimited, and 9 is not a unit`,
		`xds:odd: warning: unsafe-name: domain "odd" > key "a" > rate_limit: name "\"" contains a quote or a control character, which breaks the x-ratelimit-limit header`,
		`xds:odd: error: domain "odd" > key "` + strings.Repeat("ä", 30) + `..." > rate_limit: unknown unit 9; allowed are second, minute, hour, day, week, month, year`,
		`xds:resource 1: error: the resource is of type "type.googleapis.com/google.protobuf.Empty"; it must be ` + xds.TypeURL,
	}
	// protobuf varies the white space of its errors deliberately.
	if last := got[len(got)-1]; !strings.HasPrefix(last, "xds:resource 2: error: the resource is not a RateLimitConfig: ") {
		t.Errorf("the last diagnostic is %s", last)
	}
	if diff := cmp.Diff(want, got[:len(got)-1]); diff != "" {
		t.Errorf("diagnostics differ (-want +got):\n%s", diff)
	}
}

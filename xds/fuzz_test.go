package xds_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/xds"
	pb "github.com/sluice-ratelimit/sluice/xds/ratelimitv3"
)

// FuzzConvert reads arbitrary bytes as a resource. The resource must be equivalent to a file
// with the same rules: both load with the same limits, or both are rejected.
func FuzzConvert(f *testing.F) {
	full := domain("d", 5)
	full.Descriptors[0].RateLimit.Name = "n"
	full.Descriptors = append(full.Descriptors,
		&pb.RateLimitDescriptor{Key: "a", Value: "*", QuotaMode: true, Descriptors: full.GetDescriptors()},
		&pb.RateLimitDescriptor{Key: "b", RateLimit: &pb.RateLimitPolicy{Unlimited: true}},
		&pb.RateLimitDescriptor{Key: "c", RateLimit: &pb.RateLimitPolicy{Unit: 7, Replaces: []*pb.RateLimitReplace{{Name: "n"}}}})
	f.Add(wire(f, full).GetValue())
	f.Add(wire(f, &pb.RateLimitConfig{}).GetValue())
	f.Add([]byte{0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		set, found := xds.Build([]*anypb.Any{{TypeUrl: xds.TypeURL, Value: b}}, descriptors.Options{})
		if (set == nil) != found.HasErrors() {
			t.Fatalf("set is %v, diagnostics are %v", set, found)
		}
		var m pb.RateLimitConfig
		if err := proto.Unmarshal(b, &m); err != nil {
			if set != nil {
				t.Fatalf("accepted bytes that are not a message: %v", err)
			}
			return
		}
		text := "domain: " + yamlText(m.GetDomain()) + "\ndescriptors:" + yamlList(m.GetDescriptors()) + "\n"
		var fileSet *descriptors.Set
		configs, ds := rulefile.Parse("file", []byte(text))
		if !ds.HasErrors() {
			fileSet, ds = descriptors.Compile(configs, descriptors.Options{})
		}
		if (fileSet == nil) != (set == nil) {
			// The maximum depth counts lists and maps in a file, but descriptors here.
			if set != nil && strings.Contains(ds.Err().Error(), "nest deeper") {
				return
			}
			t.Fatalf("over xDS: %v\nas a file: %v\n%s", found, ds, text)
		}
		if set == nil {
			return
		}
		var over, as strings.Builder
		must.OK(t, set.Dump(&over))
		must.OK(t, fileSet.Dump(&as))
		if over.String() != as.String() {
			t.Fatalf("over xDS:\n%s\nas a file:\n%s", over.String(), as.String())
		}
		if set.Hash != fileSet.Hash && !hasMetadata(m.GetDescriptors()) {
			t.Fatalf("over xDS the hash is %s, as a file %s of\n%s", set.Hash, fileSet.Hash, as.String())
		}
	})
}

func hasMetadata(ds []*pb.RateLimitDescriptor) bool {
	return slices.ContainsFunc(ds, func(d *pb.RateLimitDescriptor) bool {
		return d.GetMetadata() != nil || hasMetadata(d.GetDescriptors())
	})
}

// yamlList returns descriptors in YAML's flow style, without metadata.
func yamlList(ds []*pb.RateLimitDescriptor) string {
	var b strings.Builder
	for _, d := range ds {
		fmt.Fprintf(&b, ", {key: %s, value: %s, shadow_mode: %t, detailed_metric: %t, quota_mode: %t",
			yamlText(d.GetKey()), yamlText(d.GetValue()), d.GetShadowMode(), d.GetDetailedMetric(), d.GetQuotaMode())
		if p := d.GetRateLimit(); p != nil {
			fmt.Fprintf(&b, ", rate_limit: {requests_per_unit: %d, name: %s", p.GetRequestsPerUnit(), yamlText(p.GetName()))
			if p.GetUnit() != 0 {
				fmt.Fprintf(&b, ", unit: %s", yamlText(p.GetUnit().String()))
			}
			if p.GetUnlimited() {
				b.WriteString(", unlimited: true")
			}
			var replaces strings.Builder
			for _, r := range p.GetReplaces() {
				fmt.Fprintf(&replaces, ", {name: %s}", yamlText(r.GetName()))
			}
			fmt.Fprintf(&b, ", replaces: [%s]}", strings.TrimPrefix(replaces.String(), ", "))
		}
		fmt.Fprintf(&b, ", descriptors: %s}", yamlList(d.GetDescriptors()))
	}
	return " [" + strings.TrimPrefix(b.String(), ", ") + "]"
}

// yamlText quotes text and escapes all characters that are special in YAML.
func yamlText(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r < ' ' || r > '~' || r == '"' || r == '\\' {
			fmt.Fprintf(&b, `\U%08x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return `"` + b.String() + `"`
}

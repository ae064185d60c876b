package answer

import (
	"cmp"
	"testing"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"go.uber.org/goleak"

	"github.com/sluice-ratelimit/sluice/descriptors"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const oneRule = "{domain: d, descriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1000000}}]}"

// fillBounds replaces zero fields by defaults for tests.
func fillBounds(b Bounds) Bounds {
	return Bounds{
		MessageBytes: cmp.Or(b.MessageBytes, 4<<20),
		Descriptors:  cmp.Or(b.Descriptors, 1000),
		Entries:      cmp.Or(b.Entries, 64),
		KeyBytes:     cmp.Or(b.KeyBytes, 1<<10),
	}
}

func simpleRequest() *rls.RateLimitRequest {
	return &rls.RateLimitRequest{Domain: "d", Descriptors: []*rlcommon.RateLimitDescriptor{{Entries: []*rlcommon.RateLimitDescriptor_Entry{entry("k", "v")}}}}
}

const tracedRules = `
domain: edge
descriptors:
  - key: user
    descriptors:
      - key: path
        value: /api/*
        detailed_metric: true
        rate_limits:
          - {unit: hour, requests_per_unit: 1}
          - {unit: day, requests_per_unit: 100}
  - key: plan
    value: free
    rate_limit: {unit: year, requests_per_unit: 1000}
`

// tracedRequest contains values that no span may contain.
func tracedRequest() *rls.RateLimitRequest {
	return &rls.RateLimitRequest{Domain: "edge", Descriptors: []*rlcommon.RateLimitDescriptor{
		{Entries: []*rlcommon.RateLimitDescriptor_Entry{entry("user", "secret-1"), entry("path", "/api/secret-2")}},
		{Entries: []*rlcommon.RateLimitDescriptor_Entry{entry("plan", "free")}},
		{Entries: []*rlcommon.RateLimitDescriptor_Entry{entry("nothing", "secret-3")}},
		{
			Entries: []*rlcommon.RateLimitDescriptor_Entry{entry("plan", "secret-4")},
			Limit:   &rlcommon.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 7, Unit: typev3.RateLimitUnit_DAY},
		},
	}}
}

// descriptorOf returns a descriptor with one entry.
func descriptorOf(key, value string) descriptors.Descriptor {
	return descriptors.Descriptor{Entries: []descriptors.Entry{{Key: []byte(key), Value: []byte(value)}}}
}

package answer

import (
	"strings"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestHiddenLimits checks that a reply contains neither the name nor the numbers of a hidden limit,
// except in the metadata, and that a denial by it has the time to wait.
func TestHiddenLimits(t *testing.T) {
	const rules = `
domain: d
descriptors:
- key: user
  rate_limits:
  - {name: quota, unit: day, requests_per_unit: 9}
  - {name: flood, unit: minute, requests_per_unit: 2, hidden: true}
- {key: only, rate_limit: {name: flood, unit: minute, requests_per_unit: 0, hidden: true}}
- {key: quota, value: spent, quota_mode: true, rate_limit: {name: reserved, unit: day, requests_per_unit: 0}}
- {key: quota, quota_mode: true, rate_limit: {name: more, unit: day, requests_per_unit: 9}}
- {key: empty, rate_limit: {name: spent, unit: minute, requests_per_unit: 0}}
- key: own
  denied_response: {body: "in {retry_after} s, {domain}"}
  rate_limit: {name: flood, unit: minute, requests_per_unit: 0, hidden: true}
- key: described
  denied_response: {body: "static", headers: {x-plan: "{name}"}}
  rate_limit: {name: flood, unit: minute, requests_per_unit: 0, hidden: true}
- key: list
  denied_response: {body: "{name} {limit}/{window}, reset {reset}, wait {retry_after}"}
  rate_limits:
  - {name: short, unit: second, requests_per_unit: 0}
  - {name: visible, unit: minute, requests_per_unit: 0}
  - {name: flood, unit: hour, requests_per_unit: 0, hidden: true}
---
domain: all
all_or_nothing: true
descriptors:
- {key: only, rate_limit: {name: flood, unit: minute, requests_per_unit: 0, hidden: true}}
- {key: quota, value: spent, quota_mode: true, rate_limit: {name: reserved, unit: day, requests_per_unit: 0}}
- {key: quota, quota_mode: true, rate_limit: {name: more, unit: day, requests_per_unit: 9}}
`
	s := service(t, Settings{
		ResponseHeaders: true, RequestHeaders: true, RateLimitHeaders: "structured", DeniedBy: true, DeniedResponse: "problem",
		Headers:      Headers{Limit: "RateLimit-Limit", Remaining: "RateLimit-Remaining", Reset: "RateLimit-Reset"},
		RequestNames: RequestHeaders{Limit: "Limit"},
	}, rules)
	ask := func(keys ...string) *rls.RateLimitResponse {
		request := &rls.RateLimitRequest{Domain: "d"}
		if keys[0] == "all" {
			request.Domain, keys = "all", keys[1:]
		}
		for _, key := range keys {
			key, value, _ := strings.Cut(key, "=")
			request.Descriptors = append(request.Descriptors, &ratelimitv3.RateLimitDescriptor{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: key, Value: value}}})
		}
		b, _, err := s.Answer(noon, 0, &Exchange{}, marshal(t, request))
		must.OK(t, err)
		reply := new(rls.RateLimitResponse)
		must.OK(t, proto.Unmarshal(b, reply))
		return reply
	}
	for _, tt := range []struct {
		keys     string
		limit    string // name of the limit of the last status
		deniedBy string
		body     string // part of the body, or "" for none
	}{
		{keys: "user", limit: "quota"},
		{keys: "user", limit: "quota"},
		{keys: "user", deniedBy: "flood"},
		{keys: "only", deniedBy: "flood"},
		{keys: "own", deniedBy: "flood", body: "in 60 s, d"},
		{keys: "described", deniedBy: "flood"},
		{keys: "only empty", limit: "spent", deniedBy: "spent", body: `"violated-policies":["spent"]`},
		{keys: "empty only", deniedBy: "spent", body: `"violated-policies":["spent"]`},
		{keys: "quota=spent quota only", deniedBy: "flood"}, // a quota passes, so neither denies
		{keys: "all quota=spent quota only", deniedBy: "flood"},
		{keys: "list", deniedBy: "flood", body: "visible 0/60, reset 60, wait 3600"},
	} {
		got := ask(strings.Fields(tt.keys)...)
		status := got.GetStatuses()[len(got.GetStatuses())-1]
		headers := map[string]string{}
		for _, h := range got.GetResponseHeadersToAdd() {
			headers[h.GetKey()] = h.GetValue()
		}
		deniedBy := got.GetDynamicMetadata().GetFields()["denied_by"].GetStringValue()
		if status.GetCurrentLimit().GetName() != tt.limit || deniedBy != tt.deniedBy || (status.GetCurrentLimit() == nil) != (tt.limit == "") {
			t.Errorf("%s: limit %v, denied by %q; want limit %q, denied by %q", tt.keys, status.GetCurrentLimit(), deniedBy, tt.limit, tt.deniedBy)
		}
		if body := string(got.GetRawBody()); !strings.Contains(body, tt.body) || (body == "") != (tt.body == "") {
			t.Errorf("%s: body %q, want %q in it", tt.keys, body, tt.body)
		}
		if waits := headers["Retry-After"] != "" && status.GetDurationUntilReset().GetSeconds() > 0; waits != (tt.deniedBy != "") {
			t.Errorf("%s: Retry-After %q, reset %v", tt.keys, headers["Retry-After"], status.GetDurationUntilReset())
		}
		got.DynamicMetadata = nil
		if text := protojson.Format(got); strings.Contains(text, "flood") || tt.limit == "" && status.GetLimitRemaining() != 0 {
			t.Errorf("%s: the reply describes the hidden limit: %s", tt.keys, text)
		}
	}
}

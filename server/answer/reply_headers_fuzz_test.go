package answer

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// FuzzReplyHeaders denies a request by rules with arbitrary texts, as any source can contain them.
// Neither the headers of the reply nor the names, which Envoy writes into headers, contain control
// characters, and bodies keep their bounds.
func FuzzReplyHeaders(f *testing.F) {
	f.Add("per-user", "d", "k", "v", "application/json", `{"n":"{name}","s":{retry_after}}`, "x-plan", "{name} {domain}", byte(0))
	f.Add("a\r\nx-injected: 1", "d\r\ne", "k\n", "v\x00", "text/plain", "{name}{name}{domain}", "x-a", "{name}", byte(2))
	f.Add(strings.Repeat("\"\x01\u2028", 200), strings.Repeat("\\", 999), "k", "", "application/x+json; a=b", `"{name}"`, "X-B", "{limit} {window} {reset}", byte(4))
	f.Add("n", "d", "k", "v", "a/b\r\nc: d", "{unknown}", "host", "a\r\nb: c", byte(6))
	table, err := limiter.New(limiter.Options{})
	must.OK(f, err)
	metrics := newMetrics(f)
	f.Fuzz(func(t *testing.T, name, domain, key, value, contentType, body, header, headerValue string, kind byte) {
		body, headerValue = strings.ToValidUTF8(body, "?"), strings.ToValidUTF8(headerValue, "?") // as in files
		d := &rules.DeniedResponse{GRPC: kind%2 > 0}
		own := d.SetContentType(contentType) == nil && d.SetBody(body) == nil && d.AddHeader(header, headerValue) == nil
		if presets := rules.DeniedPresets(); !own {
			d = rules.DeniedPreset(presets[int(kind)%len(presets)])
		}
		limit := rules.Limit{Unit: rules.Minute, UnitMultiplier: 1, Name: strings.ToValidUTF8(name, "?")}
		soft := rules.Limit{Unit: rules.Minute, UnitMultiplier: 1, Name: limit.Name}
		if strings.TrimSpace(limit.Name) != "" {
			limit.NotifyAt, soft.Soft = rules.Shares{0.5}, new(true)
		}
		set, _ := descriptors.Compile([]rules.Config{{Domain: strings.ToValidUTF8(domain, "?"), Denied: d, Descriptors: []rules.Descriptor{
			{Key: strings.ToValidUTF8(key, "?"), Value: strings.ToValidUTF8(value, "?"), RateLimits: []rules.Limit{limit}},
			{Key: strings.ToValidUTF8(key, "?") + "s", RateLimits: []rules.Limit{soft}},
		}}}, descriptors.Options{})
		request := &rls.RateLimitRequest{Domain: strings.ToValidUTF8(domain, "?"), Descriptors: []*rlcommon.RateLimitDescriptor{{
			Entries: []*rlcommon.RateLimitDescriptor_Entry{{Key: strings.ToValidUTF8(key, "?"), Value: strings.ToValidUTF8(value, "?")}},
		}}}
		if set == nil {
			return // no domain or key
		}
		s := NewService(Settings{
			Bounds: fillBounds(Bounds{KeyBytes: 1 << 20}), GRPCDenials: kind > 128, RetryAfterHeader: true, ResponseHeaders: true, RequestHeaders: true,
			DeniedBy: true, SoftHeader: "x-ratelimit-soft", RateLimitHeaders: "structured", Headers: Headers{Limit: "l"}, RequestNames: RequestHeaders{Limit: "l"},
		}, table, metrics)
		must.OK(t, s.SetRules(0, set))
		var x Exchange
		b, _, err := s.Answer(noon, 0, &x, marshal(t, request))
		must.OK(t, err)
		var reply rls.RateLimitResponse
		must.OK(t, proto.Unmarshal(b, &reply))
		checkHeaders(t, reply.GetResponseHeadersToAdd())
		checkHeaders(t, reply.GetRequestHeadersToAdd())
		if soft.Soft != nil { // a request that passes
			passing := proto.CloneOf(request)
			passing.Descriptors[0].Entries[0].Key += "s"
			b, _, err := s.Answer(noon, 0, &x, marshal(t, passing))
			must.OK(t, err)
			var reply rls.RateLimitResponse
			must.OK(t, proto.Unmarshal(b, &reply))
			checkHeaders(t, reply.GetResponseHeadersToAdd())
			checkHeaders(t, reply.GetRequestHeadersToAdd())
			if got := reply.GetDynamicMetadata().GetFields()["soft"].GetStringValue(); got == "" && len(key) < 1000 || strings.ContainsFunc(got, unicode.IsControl) {
				t.Errorf("soft is %q for the name %q", got, limit.Name)
			}
		}
		for _, st := range reply.GetStatuses() {
			if n := st.GetCurrentLimit().GetName(); strings.ContainsFunc(n, unicode.IsControl) {
				t.Errorf("the limit's name is %q", n)
			}
		}
		if got := reply.GetRawBody(); len(got) > 4096 || own && strings.HasSuffix(d.ContentType, "json") && !json.Valid(got) {
			t.Errorf("%d bytes of body: %q", len(got), got)
		}
	})
}

// checkHeaders checks that the names of headers are valid and occur once, and that values are
// bounded and have no control characters.
func checkHeaders(t *testing.T, all []*corev3.HeaderValue) {
	t.Helper()
	seen := map[string]bool{}
	for _, h := range all {
		name := strings.ToLower(h.GetKey())
		if !telemetry.IsHeaderName(name) || seen[name] && name != "l" || strings.ContainsFunc(h.GetValue(), unicode.IsControl) || len(h.GetValue()) > 6000 {
			t.Errorf("header %q: %q in %v", h.GetKey(), h.GetValue(), all)
		}
		seen[name] = true
	}
}

package envoyconfig

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/descriptors"
)

// TestLimitOverrides covers limits that descriptors carry.
func TestLimitOverrides(t *testing.T) {
	const dynamic = "{ dynamic_metadata: { metadata_key: { key: ns, path: [{ key: limit }] } } }"
	for _, test := range []struct {
		limit    string
		metadata map[string]string
		want     descriptors.Override
		has      bool
		unknown  string
	}{
		{limit: "{ rate_limit: { requests_per_unit: 12, unit: HOUR } }", want: descriptors.Override{RequestsPerUnit: 12, Unit: 3}, has: true},
		{limit: "{ rate_limit: { requests_per_unit: 1, unit: 6 } }", want: descriptors.Override{RequestsPerUnit: 1, Unit: 6}, has: true},
		{limit: "{ rate_limit: { unit: DAY } }", want: descriptors.Override{Unit: 4}, has: true},
		{limit: "{ rate_limit: { requests_per_unit: 12 } }", want: descriptors.Override{RequestsPerUnit: 12}, has: true},
		{limit: dynamic}, // no filter sets it
		{limit: dynamic, metadata: map[string]string{"ns:limit": ""}},
		{limit: dynamic, metadata: map[string]string{"ns:limit": "{}"}},
		{limit: dynamic, metadata: map[string]string{"ns:limit": "12/HOUR"}},
		{limit: dynamic, metadata: map[string]string{"ns:limit": `{"requests_per_unit":12}`}},
		{limit: dynamic, metadata: map[string]string{"ns:limit": `{"requests_per_unit":-1,"unit":"HOUR"}`}},
		{limit: dynamic, metadata: map[string]string{"ns:limit": `{"requests_per_unit":5e9,"unit":"HOUR"}`}},
		{limit: dynamic, metadata: map[string]string{"ns:limit": `{"requests_per_unit":12,"unit":"FORTNIGHT"}`}},
		{
			limit: dynamic, metadata: map[string]string{"ns:limit": `{"requests_per_unit":12,"unit":"HOUR"}`},
			want: descriptors.Override{RequestsPerUnit: 12, Unit: 3}, has: true,
		},
	} {
		c := proxy(t, "rate_limits: [{ actions: [{ generic_key: { descriptor_value: v } }], limit: "+test.limit+" }]\n"+toBackend)
		calls, err := c.Calls(Request{Method: "GET", Scheme: "http", Authority: "a", Path: "/", Metadata: test.metadata})
		if err != nil {
			t.Fatal(err)
		}
		d := calls.ByFilter[0].Descriptors[0]
		if d.Override != test.want || d.HasOverride != test.has || !strings.HasPrefix(d.OverrideUnknown, test.unknown) || (d.OverrideUnknown == "") != (test.unknown == "") {
			t.Errorf("%s with %v is %+v, %v, %q", test.limit, test.metadata, d.Override, d.HasOverride, d.OverrideUnknown)
		}
	}
}

// TestInternalRequestsInLogs determines from a log whether Envoy treated a request as internal. The
// log contains x-forwarded-for with the address that Envoy appended. e2e/envoyconfig compares
// requests of clients with a real Envoy.
func TestInternalRequestsInLogs(t *testing.T) {
	const internal, external, unknown = "internal", "external", "unknown"
	ranges := "internal_address_config: { cidr_ranges: [{ address_prefix: 10.0.0.0, prefix_len: 8 }] }"
	for _, test := range []struct{ manager, forwarded, want string }{
		{"use_remote_address: true", "10.0.0.1", external}, // no ranges
		{"use_remote_address: true\n          " + ranges, "10.0.0.1", internal},
		{"use_remote_address: true\n          " + ranges, "192.0.2.1", external},
		{"use_remote_address: true\n          " + ranges, "192.0.2.1,10.0.0.1", external},
		{"use_remote_address: true\n          skip_xff_append: true\n          " + ranges, "10.0.0.1", external},
		{"use_remote_address: true\n          skip_xff_append: true\n          " + ranges, "", unknown}, // the peer is not in the log
		{ranges, "10.0.0.1", internal},
		{ranges, "10.0.0.1,10.0.0.2", external},
		{ranges, "", external},
		{ranges + "\n          xff_num_trusted_hops: 1", "10.0.0.1", external},
		{ranges + "\n          original_ip_detection_extensions: [{ name: x }]", "10.0.0.1", unknown},
	} {
		text := strings.Replace(listenerText, "          http_filters:", "          "+test.manager+"\n          http_filters:", 1)
		for _, kind := range []string{internal, external} {
			c, err := Read([]File{{"envoy.yaml", []byte(strings.Replace(text, "domain: shop\n", "domain: shop\n                request_type: "+kind+"\n", 1))}})
			if err != nil {
				t.Fatal(err)
			}
			calls, err := c.Calls(Request{Method: "GET", Scheme: "http", Authority: "a", Path: "/", Remote: netip.Addr{}, Logged: func(name string) (string, bool, string) {
				if name == "x-forwarded-for" && test.forwarded != "" {
					return test.forwarded, true, ""
				}
				return "", false, ""
			}})
			if err != nil {
				t.Fatal(err)
			}
			none := calls.ByFilter[0].NotCalled
			got := map[bool]string{true: kind, false: map[string]string{internal: external, external: internal}[kind]}[!strings.HasPrefix(none, "request_type")]
			if strings.HasPrefix(none, UnknownPrefix) {
				got = unknown
			}
			if got != test.want {
				t.Errorf("%s, %q, with a filter for %s requests: %s (%s), want %s", test.manager, test.forwarded, kind, got, none, test.want)
			}
		}
	}
}

package envoyconfig

import (
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

package descriptors

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

func TestParseEntries(t *testing.T) {
	type pairs [][2]string
	for _, tt := range []struct {
		text string
		want pairs
	}{
		{`k=v`, pairs{{"k", "v"}}},
		{`k=v,k2=v2`, pairs{{"k", "v"}, {"k2", "v2"}}},
		{`k=`, pairs{{"k", ""}}},
		{`k=,k2=v`, pairs{{"k", ""}, {"k2", "v"}}},
		{`k=a=b`, pairs{{"k", "a=b"}}},
		{`path=/a?b=c&d`, pairs{{"path", "/a?b=c&d"}}},
		{`k=a\,b`, pairs{{"k", "a,b"}}},
		{`k\=1=v`, pairs{{"k=1", "v"}}},
		{`k\,1=v`, pairs{{"k,1", "v"}}},
		{`k=a\\b`, pairs{{"k", `a\b`}}},
		{`k=a\b`, pairs{{"k", "ab"}}},
		{`k=a\`, pairs{{"k", `a\`}}}, // a backslash at the end
		{`k= v `, pairs{{"k", " v "}}},
		{`k=ü`, pairs{{"k", "ü"}}},
		{``, nil},
	} {
		entries, err := ParseEntries(tt.text)
		var got pairs
		for _, e := range entries {
			got = append(got, [2]string{string(e.Key), string(e.Value)})
		}
		if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
			t.Errorf("ParseEntries(%q) = %v, %v (-want +got):\n%s", tt.text, got, err, diff)
		}
	}
	for _, text := range []string{`k`, `k,k2=v`, `k2=v,k`, `k\=v`, `=v`, `,`, `k=v,`, `,k=v`, `k=v,,k2=v2`, `k=v,=v2`} {
		if got, err := ParseEntries(text); err == nil {
			t.Errorf("ParseEntries(%q) = %v, want an error", text, got)
		}
	}
}

func TestParseOverride(t *testing.T) {
	for _, tt := range []struct {
		text string
		want Override
	}{
		{"5/hour", Override{RequestsPerUnit: 5, Unit: int32(rules.Hour)}},
		{"0/second", Override{Unit: int32(rules.Second)}},
		{"4294967295/YEAR", Override{RequestsPerUnit: 4294967295, Unit: int32(rules.Year)}},
		{"100/10Minute", Override{RequestsPerUnit: 100, Unit: int32(rules.Minute), UnitMultiplier: 10}},
		{"1/1day", Override{RequestsPerUnit: 1, Unit: int32(rules.Day), UnitMultiplier: 1}},
		{"2/month", Override{RequestsPerUnit: 2, Unit: int32(rules.Month)}},
	} {
		if got, err := ParseOverride(tt.text); err != nil || got != tt.want {
			t.Errorf("ParseOverride(%q) = %+v, %v, want %+v", tt.text, got, err, tt.want)
		}
	}
	for _, text := range []string{
		"", "5", "/", "5/", "/hour", "x/hour", "-1/hour", "1.5/hour", "4294967296/hour", "5/hours", "5/h", "5/unknown",
		"5/0hour", "5/10", "5/-1hour", "5/4294967296hour", "5/hour/hour", "5 /hour", "5/ hour",
		"5/week", // overrides do not support weeks
	} {
		if got, err := ParseOverride(text); err == nil {
			t.Errorf("ParseOverride(%q) = %+v, want an error", text, got)
		}
	}
}

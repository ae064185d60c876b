package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/descriptors"
)

func TestParseEntries(t *testing.T) {
	type pairs [][2]string
	for _, tt := range []struct {
		text string
		want pairs
	}{
		{`k=v`, pairs{{"k", "v"}}},
		{`k=v,k2=v2`, pairs{{"k", "v"}, {"k2", "v2"}}},
		{`k`, pairs{{"k", ""}}},
		{`k=`, pairs{{"k", ""}}},
		{`k,k2=v`, pairs{{"k", ""}, {"k2", "v"}}},
		{`k=a=b`, pairs{{"k", "a=b"}}},
		{`path=/a?b=c&d`, pairs{{"path", "/a?b=c&d"}}},
		{`k=a\,b`, pairs{{"k", "a,b"}}},
		{`k\=1=v`, pairs{{"k=1", "v"}}},
		{`k\,1=v`, pairs{{"k,1", "v"}}},
		{`k=a\\b`, pairs{{"k", `a\b`}}},
		{`k=a\b`, pairs{{"k", "ab"}}},
		{`k=a\`, pairs{{"k", `a\`}}}, // nothing follows that it could escape
		{`k= v `, pairs{{"k", " v "}}},
		{`k=ü`, pairs{{"k", "ü"}}},
		{``, nil},
	} {
		entries, err := parseEntries(tt.text)
		var got pairs
		for _, e := range entries {
			got = append(got, [2]string{string(e.Key), string(e.Value)})
		}
		if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
			t.Errorf("parseEntries(%q) = %v, %v (-want +got):\n%s", tt.text, got, err, diff)
		}
	}
	for _, text := range []string{`=v`, `,`, `k=v,`, `,k=v`, `k=v,,k2=v2`, `k=v,=v2`} {
		if got, err := parseEntries(text); err == nil {
			t.Errorf("parseEntries(%q) = %v, want an error", text, got)
		}
	}
}

func TestParseOverride(t *testing.T) {
	for _, tt := range []struct {
		text string
		want descriptors.Override
	}{
		{"5/hour", descriptors.Override{RequestsPerUnit: 5, Unit: int32(descriptors.Hour)}},
		{"0/second", descriptors.Override{Unit: int32(descriptors.Second)}},
		{"4294967295/YEAR", descriptors.Override{RequestsPerUnit: 4294967295, Unit: int32(descriptors.Year)}},
		{"100/10Minute", descriptors.Override{RequestsPerUnit: 100, Unit: int32(descriptors.Minute), UnitMultiplier: 10}},
		{"1/1day", descriptors.Override{RequestsPerUnit: 1, Unit: int32(descriptors.Day), UnitMultiplier: 1}},
		{"2/month", descriptors.Override{RequestsPerUnit: 2, Unit: int32(descriptors.Month)}},
	} {
		if got, err := parseOverride(tt.text); err != nil || got != tt.want {
			t.Errorf("parseOverride(%q) = %+v, %v, want %+v", tt.text, got, err, tt.want)
		}
	}
	for _, text := range []string{
		"", "5", "/", "5/", "/hour", "x/hour", "-1/hour", "1.5/hour", "4294967296/hour", "5/hours", "5/h", "5/unknown",
		"5/0hour", "5/10", "5/-1hour", "5/4294967296hour", "5/hour/hour", "5 /hour", "5/ hour",
		"5/week", // the protocol's overrides have none
	} {
		if got, err := parseOverride(text); err == nil {
			t.Errorf("parseOverride(%q) = %+v, want an error", text, got)
		}
	}
}

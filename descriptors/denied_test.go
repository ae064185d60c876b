package descriptors

import (
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// TestDeniedResponsePrecedence checks which response applies to a rule: its own, that of the item of
// defaults for it, that of the domain, or that of the defaults of the domain or of all domains.
func TestDeniedResponsePrecedence(t *testing.T) {
	for _, tt := range []struct {
		name, rules, defaults, want string
	}{
		{"none", "", "", ""},
		{"the rule's", "rule domain", `{domain: d, denied_response: openai, defaults: [{denied_response: problem}]}`, "text"},
		{"the item's", "domain", `{domain: d, denied_response: openai, defaults: [{denied_response: problem}]}`, "problem"},
		{"the item's with a limit's fields", "domain", `{domain: d, defaults: [{rate_limit: {algorithm: token_bucket}, denied_response: problem}]}`, "problem"},
		{"the item's for a path", "", `{domain: d, defaults: [{denied_response: problem}, {path: [{key: k}], denied_response: none}]}`, "none"},
		{"the item's for rules with fields", "fields", `{domain: d, defaults: [{rate_limit: {algorithm: sliding_log}, denied_response: problem}]}`, "problem"},
		{"the item's for a list", "list", `{domain: d, defaults: [{rate_limit: {algorithm: sliding_log}, denied_response: problem}]}`, "problem"},
		{"the domain's", "domain", `{domain: d, denied_response: openai}`, "anthropic"},
		{"the defaults' of the domain", "", "{domain: '*', denied_response: text}\n---\n{domain: d, denied_response: openai}", "openai"},
		{"the defaults' of all domains", "", "{domain: '*', denied_response: text}", "text"},
	} {
		text := "domain: d\n"
		if strings.Contains(tt.rules, "domain") {
			text += "denied_response: anthropic\n"
		}
		limit := "rate_limit: {unit: hour, requests_per_unit: 1}"
		switch {
		case strings.Contains(tt.rules, "fields"):
			limit = "rate_limit: {unit: hour, requests_per_unit: 1, algorithm: token_bucket}"
		case strings.Contains(tt.rules, "list"):
			limit = "rate_limits: [{unit: hour, requests_per_unit: 1}]"
		}
		if strings.Contains(tt.rules, "rule") {
			limit += ", denied_response: text"
		}
		set, ds := compileWith(t, text+"descriptors: [{key: k, "+limit+"}]", tt.defaults)
		if set == nil {
			t.Fatal(tt.name, ds.Err())
		}
		p := &Plan{}
		set.Plan(p, &Request{Domain: []byte("d"), Descriptors: []Descriptor{{Entries: []Entry{{[]byte("k"), []byte("v")}}}}}, Global{})
		got := ""
		if d := set.DeniedResponse(p, 0); d != nil {
			got = d.String()
		}
		if got != tt.want || set.HasDeniedResponses() != (tt.want != "") {
			t.Errorf("%s: %q applies, want %q", tt.name, got, tt.want)
		}
		for _, d := range ds {
			if d.Severity == rules.Warning {
				t.Errorf("%s: %v", tt.name, d)
			}
		}
	}
}

// TestDomainFilesDifferInDeniedResponse checks that the first value applies, with a warning.
func TestDomainFilesDifferInDeniedResponse(t *testing.T) {
	set, ds := compileWith(t, "{domain: d, denied_response: text}\n---\n{domain: d, denied_response: problem}\n---\n{domain: d, denied_response: text}", "")
	if set == nil || len(ds) != 1 || ds[0].Code != rules.Differ || !strings.Contains(ds[0].Message, "the first, text, applies") {
		t.Errorf("findings %v, want one of differ", ds)
	}
}

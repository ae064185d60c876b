package envoyconfig

import (
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// TestQuotaSnippet covers rules with all forms of quota, and rules without quota.
func TestQuotaSnippet(t *testing.T) {
	const text = `domain: "a: b"
descriptors:
  - { key: tenant, rate_limit: { unit: hour, requests_per_unit: 1 } }
  - { key: all, value: 'x "y"', rate_limit: &q { unit: second, requests_per_unit: 1000, algorithm: token_bucket, quota: {} } }
  - key: user
    rate_limit: *q
    descriptors:
      - { key: user, rate_limit: *q }
      - { key: remote_address, rate_limit: *q }
  - { key: user, value: vip, rate_limit: *q }
  - { key: "a,b", rate_limit: *q }
  - { key: sluice, rate_limit: *q }
  - { key: plan, value: "p*", rate_limit: *q }
`
	set := ruleSet(t, text)
	for _, target := range snippetTargets {
		got, err := QuotaSnippet(set, "a: b", target)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			`domain: "a: b"`,
			`sluice: { string_value: "all" }`, `"all": { string_value: "x \"y\"" }`,
			`sluice: { string_value: "user,remote_address" }`, `typed_config: { "@type": type.googleapis.com/envoy.extensions.matching.common_inputs.network.v3.SourceIPInput }`,
			"# user at rules.yaml:", "# user=vip at ", `"user": { string_value: other }`, `"plan": { string_value: CHANGE-ME }`,
			`# This rule gets no bucket: an id can have the key "user" only once`, `# This rule gets no bucket: an id can have the key "sluice" only once`,
			`# This rule gets no bucket: the entry "sluice" of an id cannot name the key "a,b"`,
			"expired_assignment_behavior_timeout: 86400s",
		} {
			if !strings.Contains(got, want) {
				t.Errorf("%s: the snippet lacks %s:\n%s", target, want, got)
			}
		}
		for _, not := range []string{"tenant", "rate_limits", `string_value: "vip"`, "keep_matching"} {
			if strings.Contains(got, not) {
				t.Errorf("%s: the snippet contains %s, want it omitted", target, not)
			}
		}
		for _, filled := range []bool{false, true} {
			if filled {
				got = strings.ReplaceAll(strings.ReplaceAll(got, "string_value: "+placeholder, "string_value: pro"), placeholder, "x-own")
			}
			c, err := Read([]File{{"snippet.yaml", []byte(got)}})
			if err != nil {
				t.Fatal(err)
			}
			left, unsent := 0, 0
			for _, f := range c.Check(set) {
				switch {
				case f.Code == ChangeMe:
					left++
				case f.Code == Unsent: // the snippet contains the reason
					unsent++
				case f.Severity != rules.Note:
					t.Errorf("%s: %v", target, f)
				}
			}
			if unsent != 3 {
				t.Errorf("%s: %d rules get no bucket, want 3", target, unsent)
			}
			if filled != (left == 0) {
				t.Errorf("%s, filled %v: %d placeholders are left", target, filled, left)
			}
		}
	}
	if got, err := QuotaSnippet(ruleSet(t, leaseRules), "shop", EnvoyTarget); err == nil || !strings.Contains(err.Error(), `no rule of domain "shop" has quota`) {
		t.Errorf("rules without quota have the snippet %s, %v", got, err)
	}
}

// TestSnippetOmitsRulesWithQuota checks that the snippet has no actions for a rule with quota.
func TestSnippetOmitsRulesWithQuota(t *testing.T) {
	got := Snippet(ruleSet(t, `domain: d
descriptors:
  - { key: user, rate_limit: { unit: second, requests_per_unit: 100, algorithm: token_bucket, quota: {} } }
  - { key: path, rate_limit: { unit: second, requests_per_unit: 100 } }
`), "d", SnippetOptions{})
	if !strings.Contains(got, `descriptor_key: "path"`) || strings.Contains(got, `descriptor_key: "user"`) ||
		!strings.Contains(got, "# user at rules.yaml:3:5 has quota: sluice envoy snippet --rlqs prints the filter for it") {
		t.Errorf("the snippet for a rule with quota and one without is\n%s", got)
	}
}

package envoyconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

var snippetTargets = []Target{EnvoyTarget, GatewayTarget, SidecarTarget}

// fillSnippet replaces the placeholders of a snippet.
func fillSnippet(snippet string) string {
	return strings.NewReplacer("inbound|http|"+placeholder, "inbound|http|8080", placeholder, "x-own").Replace(snippet)
}

// TestSnippet checks that the only findings of the snippet for each example's rules are its placeholders.
func TestSnippet(t *testing.T) {
	paths, err := filepath.Glob("../examples/*/rules.yaml")
	if err != nil || len(paths) < 10 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		set := ruleSet(t, string(text))
		if len(set.Domains()) != 1 {
			continue // the snippet is for one domain
		}
		for _, target := range snippetTargets {
			for _, llm := range []string{"openai", "anthropic"} {
				c, err := Read([]File{{"snippet.yaml", []byte(Snippet(set, set.Domains()[0], SnippetOptions{LLM: llm, Target: target}))}})
				if err != nil {
					t.Fatalf("%s, %s: %v", path, llm, err)
				}
				for _, f := range c.Check(set) {
					if f.Code != ChangeMe && f.Severity == rules.Error {
						t.Errorf("%s, %s, %s: %v", path, llm, target, f)
					}
				}
			}
			snippet := Snippet(set, set.Domains()[0], SnippetOptions{Target: target})
			for _, filled := range []bool{false, true} {
				if filled {
					snippet = fillSnippet(snippet)
				}
				c, err := Read([]File{{"snippet.yaml", []byte(snippet)}})
				if err != nil {
					t.Fatalf("%s: %v\n%s", path, err, snippet)
				}
				left := 0
				for _, f := range c.Check(set) {
					switch {
					case f.Code == ChangeMe:
						left++
					case f.Severity != rules.Note:
						t.Errorf("%s, %s: %v", path, target, f)
					}
				}
				if filled != (left == 0) {
					t.Errorf("%s, %s, filled %v: %d placeholders are left", path, target, filled, left)
				}
			}
		}
	}
}

// TestSnippetActions covers each action that makes an entry.
func TestSnippetActions(t *testing.T) {
	set := ruleSet(t, `domain: "a: b"
descriptors:
  - { key: masked_remote_address, rate_limit: &l { unit: hour, requests_per_unit: 1 } }
  - { key: generic_key, value: 'x "y"', rate_limit: *l }
  - { key: header_match, value: admin, rate_limit: *l }
  - { key: query_match, rate_limit: *l }
  - { key: plan, value: free, rate_limit: *l }
  - { key: "p*", value: b, rate_limit: *l }
  - key: user
    rate_limit: *l
    descriptors: [{ key: user, value: x, rate_limit: { unit: hour, requests_per_unit: 1, algorithm: leaky_bucket, max_wait: 2s } }]
  - { key: user, value: vip, rate_limit: *l }
`)
	got := Snippet(set, "a: b", SnippetOptions{})
	for _, want := range []string{
		`domain: "a: b"`, "timeout: 2.25s",
		"- masked_remote_address: {}\n",
		`- generic_key: { descriptor_value: "x \"y\"" }` + "\n",
		`- header_value_match: { descriptor_value: "admin", headers: [{ name: CHANGE-ME, string_match: { exact: CHANGE-ME } }] }`,
		`- query_parameter_value_match: { descriptor_value: CHANGE-ME, query_parameters: [{ name: CHANGE-ME, string_match: { exact: CHANGE-ME } }] }`,
		`- request_headers: { header_name: CHANGE-ME, descriptor_key: "plan" } # or where only some routes send it: generic_key: { descriptor_key: "plan", descriptor_value: "free" }`,
		`- request_headers: { header_name: CHANGE-ME, descriptor_key: CHANGE-ME }`,
		`  # user at rules.yaml:9:5
  # user=vip at rules.yaml:12:5
  - actions:
      - request_headers: { header_name: CHANGE-ME, descriptor_key: "user" }
`,
		`      - request_headers: { header_name: CHANGE-ME, descriptor_key: "user" }
      - request_headers: { header_name: CHANGE-ME, descriptor_key: "user" } # or`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the snippet lacks %s:\n%s", want, got)
		}
	}
}

// TestSnippetSources covers the sources of values. Check finds nothing in their actions.
func TestSnippetSources(t *testing.T) {
	set := ruleSet(t, `domain: mesh
descriptors:
  - { key: user, value: vip, rate_limit: &l { unit: hour, requests_per_unit: 1 } }
  - { key: caller, descriptors: [{ key: "a b", rate_limit: *l }] }
`)
	sources := map[string]Source{}
	for key, text := range map[string]string{"user": "jwt:sub", "caller": "certificate", "a b": "header::path"} {
		source, err := ParseSource(text)
		if err != nil {
			t.Fatal(err)
		}
		if sources[key] = source; !HasKey(set, "mesh", key) || HasKey(set, "shop", key) {
			t.Errorf("HasKey of %s is wrong", key)
		}
	}
	for _, target := range snippetTargets {
		got := Snippet(set, "mesh", SnippetOptions{Target: target, Sources: sources})
		for _, want := range []string{
			`- metadata: { descriptor_key: "user", metadata_key: { key: envoy.filters.http.jwt_authn, path: [{ key: payload }, { key: "sub" }] } } # needs payload_in_metadata: payload in jwt_authn`,
			"text: connection.uri_san_peer_certificate\n", `- request_headers: { header_name: ":path", descriptor_key: "a b" }`,
		} {
			if !strings.Contains(got, want) {
				t.Errorf("%s: the snippet lacks %s:\n%s", target, want, got)
			}
		}
		c, err := Read([]File{{"snippet.yaml", []byte(fillSnippet(got))}})
		if err != nil {
			t.Fatalf("%s: %v\n%s", target, err, got)
		}
		for _, f := range c.Check(set) {
			if f.Severity != rules.Note && f.Code != QueryInKey {
				t.Errorf("%s: %v\n%s", target, f, got)
			}
		}
	}
	for _, text := range []string{"", "jwt", "jwt:", "header:", "certificate:x", "cookie:a"} {
		if _, err := ParseSource(text); err == nil {
			t.Errorf("ParseSource(%q) accepts it", text)
		}
	}
}

// TestSnippetOfLeases checks that the policies which release leases have no findings.
func TestSnippetOfLeases(t *testing.T) {
	set := ruleSet(t, leaseRules)
	for _, target := range snippetTargets {
		snippet := Snippet(set, "shop", SnippetOptions{Target: target})
		for _, want := range []string{
			"# Envoy does not send hits_addend from other places",
			`hits_addend: { format: "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:streams)%", is_negative_hits: true }`,
			`hits_addend: { format: "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:fewer)%", is_negative_hits: true }`,
			`'CHANGE-ME' in metadata.filter_metadata['CHANGE-ME']`, `|| metadata.filter_metadata['envoy.filters.http.ratelimit'].tokens > 0.0`,
		} {
			if !strings.Contains(strings.Replace(snippet, "list. Envoy does", "list. # Envoy does", 1), want) {
				t.Errorf("the snippet lacks %s:\n%s", want, snippet)
			}
		}
		c, err := Read([]File{{"snippet.yaml", []byte(fillSnippet(snippet))}})
		if err != nil {
			t.Fatalf("%v\n%s", err, snippet)
		}
		for _, f := range c.Check(set) {
			if f.Severity != rules.Note {
				t.Errorf("%s: %v\n%s", target, f, snippet)
			}
		}
	}
}

// TestSnippetOfTokens covers the elements that count the tokens of an LLM.
func TestSnippetOfTokens(t *testing.T) {
	set := ruleSet(t, `domain: llm
descriptors:
  - { key: user, rate_limit: &l { unit: hour, requests_per_unit: 1, count_refused: true } }
  - { key: user, value: vip, rate_limit: { unit: hour, requests_per_unit: 2, count_refused: true } }
  - { key: model, value: small, rate_limit: *l }
  - { key: streams, rate_limit: { unit: hour, requests_per_unit: 1, algorithm: concurrency, name: streams } }
  - { key: both, rate_limits: [*l, { unit: hour, requests_per_unit: 1, algorithm: concurrency, name: both }] }
  - { key: mixed, rate_limit: *l }
  - { key: mixed, value: x, rate_limit: { unit: hour, requests_per_unit: 10, name: mixed, reserve: { amount: 1 } } }
  - { key: held, rate_limits: [{ unit: hour, requests_per_unit: 10, name: held, reserve: { amount: 1 } }, { unit: hour, requests_per_unit: 1, algorithm: concurrency, name: one }] }
`)
	got := Snippet(set, "llm", SnippetOptions{LLM: "openai"})
	for _, want := range []string{
		`
      # user at rules.yaml:3:5
      # user=vip at rules.yaml:4:5
      - actions:
          - request_headers: { header_name: CHANGE-ME, descriptor_key: "user" }
        hits_addend: { number: 0 } # only checks the limit
      # Charges the tokens of the response:
      - actions:
          - request_headers: { header_name: CHANGE-ME, descriptor_key: "user" }
        hits_addend: { format: "%CEL(response.code_details != 'request_rate_limited' ? metadata.filter_metadata['llm'].total_tokens_or_estimate : 'denied')%" }
        apply_on_stream_done: true
      # model=small at rules.yaml:5:5
      - actions:
          - ` + modelAction + `
        hits_addend: { number: 0 }`,
		`
      # streams at rules.yaml:6:5
      - actions:
          - request_headers: { header_name: CHANGE-ME, descriptor_key: "streams" }
      # Releases the lease at the end of the stream:
      - actions:
          - request_headers: { header_name: CHANGE-ME, descriptor_key: "streams" }
        hits_addend: { format: "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:streams)%", is_negative_hits: true }
        apply_on_stream_done: true
      # both at rules.yaml:7:5
      # Tokens are not charged here: give the limit with concurrency a descriptor with a key of its own
`, `
          - request_headers: { header_name: CHANGE-ME, descriptor_key: "mixed" }
      # Releases the lease`, `
      # held at rules.yaml:10:5
      - actions:`, "request_rules:", "value: 0 } # such as an error", "request_headers_to_remove: [accept-encoding]",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the snippet lacks %s:\n%s", want, got)
		}
	}
	for want, times := range map[string]int{
		"metadata.filter_metadata['llm'].total_tokens > 1.0":                  1, // held
		"metadata.filter_metadata['llm'].total_tokens_or_estimate > 1.0":      1, // mixed
		"metadata.filter_metadata['llm'].total_tokens_or_estimate : 'denied'": 2, // user and model
	} {
		if n := strings.Count(got, want); n != times {
			t.Errorf("%d elements contain %s, want %d:\n%s", n, want, times, got)
		}
	}
	if strings.Count(got, "value: 1000") != 1 || !strings.Contains(got, "key: total_tokens_or_estimate, value: 1000") {
		t.Errorf("a stream without usage costs the wrong limits 1000:\n%s", got)
	}
	reserved := ruleSet(t, "domain: llm\ndescriptors: [{ key: user, rate_limit: { unit: hour, requests_per_unit: 10, name: held, reserve: { amount: 1 } } }]\n")
	if got := Snippet(reserved, "llm", SnippetOptions{LLM: "openai"}); strings.Contains(got, "estimate") {
		t.Errorf("a stream without usage costs more than its reservation:\n%s", got)
	}
	plain := ruleSet(t, "domain: llm\ndescriptors: [{ key: user, rate_limit: { unit: hour, requests_per_unit: 1 } }]\n")
	if got := Snippet(plain, "llm", SnippetOptions{LLM: "openai"}); strings.Contains(got, "request_rules") || strings.Contains(got, "such as an error") || !strings.Contains(got, "value: 1000, preserve_existing") {
		t.Errorf("the snippet reads requests or errors without need, or does not charge streams without usage:\n%s", got)
	}
	two := ruleSet(t, `domain: llm
descriptors:
  - { key: user, rate_limit: { unit: hour, requests_per_unit: 10, name: all, reserve: { amount: 1 } } }
  - { key: user, value: vip, rate_limit: { unit: hour, requests_per_unit: 10, name: "v-i'p", reserve: { amount: 1 } } }
`)
	const (
		lease = `metadata.filter_metadata['envoy.filters.http.ratelimit'].all > 0.0 || metadata.filter_metadata['envoy.filters.http.ratelimit']['v-i\\'p'] > 0.0`
		cost  = `metadata.filter_metadata['llm'].output_tokens`
	)
	for _, want := range []string{": ((" + lease + ")\n", `"%CEL(` + cost + " > 1.0\n            && response.code_details != 'request_rate_limited'\n            || " + lease + "\n            ? " + cost + ` : 0.0)%"`} {
		if got := Snippet(two, "llm", SnippetOptions{LLM: "anthropic"}); strings.Count(got, want) != 1 {
			t.Errorf("the snippet lacks %s:\n%s", want, got)
		}
	}
	if got := Snippet(plain, "llm", SnippetOptions{LLM: "anthropic"}); strings.Contains(got, "on_missing") || strings.Count(got, "# Charges") != 1 || strings.Count(got, "(llm:") != 3 {
		t.Errorf("the snippet does not charge three numbers under one comment:\n%s", got)
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
		!strings.Contains(got, "# user at rules.yaml:3:5 has quota, which the quota filter uses") {
		t.Errorf("the snippet for a rule with quota and one without is\n%s", got)
	}
}

package envoyconfig

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestCheckCosts changes the configuration that the snippet prints for a reservation.
func TestCheckCosts(t *testing.T) {
	set := ruleSet(t, "domain: llm\ndescriptors: [{ key: user, rate_limit: { unit: hour, requests_per_unit: 10000, name: tokens, reserve: { amount: 100 } } }]\n")
	snippet := strings.ReplaceAll(Snippet(set, "llm", SnippetOptions{LLM: "openai"}), placeholder, "x-user")
	expression := regexp.MustCompile(`hits_addend:\n +format: "%CEL[^"]*"`).FindString(snippet)
	streamed := regexp.MustCompile(`(?s)  - name: envoy.filters.http.sse_to_metadata.*?\n  - name`).FindString(snippet)
	streamed = strings.TrimSuffix(streamed, "  - name")
	const (
		plain  = `hits_addend: { format: "%DYNAMIC_METADATA(llm:total_tokens)%" }`
		header = `request_headers: { header_name: x-user, descriptor_key: "user" }`
		outage = "warning: no cost of user reads response.code"
	)
	for name, tt := range map[string]struct {
		change []string // old and new texts
		want   []string
	}{
		"unchanged": {},
		"a plain cost": {[]string{expression, plain}, []string{
			"warning: a denied request gets this cost by on_missing at", outage,
		}},
		"another default":           {[]string{expression, plain, "value: 0 }", "value: 9 }"}, []string{outage}},
		"a default of 1 for errors": {[]string{expression, plain, "on_missing: { metadata_namespace: llm, key: total_tokens, value: 0 }", "on_error: { metadata_namespace: llm, key: total_tokens, value: 1 }"}, []string{"warning: a denied request gets this cost by on_error", outage}},
		"complete responses only":   {[]string{streamed, ""}, []string{"warning: the filter at"}},
		"text in metadata":          {[]string{header, `metadata: { descriptor_key: user, metadata_key: { key: llm, path: [{ key: model }] } }`}, nil},
		"CEL in initial_metadata": {[]string{"{ cluster_name: sluice } }", `{ cluster_name: sluice }, initial_metadata: [{ key: a, value: "%CEL(response.code)%" }] }`}, []string{
			"error: Envoy aborts at a request",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.NewReplacer(tt.change...).Replace(snippet)
			if len(tt.change) > 0 && text == snippet {
				t.Fatal("nothing is replaced")
			}
			c, err := Read([]File{{"snippet.yaml", []byte(text)}})
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			var got []string
			for _, f := range c.Check(set) {
				if f.Code == Leases || f.Code == StreamedCost {
					got = append(got, fmt.Sprintf("%v: %s", f.Severity, f.Message))
				}
			}
			for _, want := range tt.want {
				if !slices.ContainsFunc(got, func(f string) bool { return strings.HasPrefix(f, want) }) {
					t.Errorf("the findings %q lack %q", got, want)
				}
			}
			got = slices.DeleteFunc(got, func(f string) bool {
				return slices.ContainsFunc(tt.want, func(want string) bool { return strings.HasPrefix(f, want) })
			})
			if len(got) > 0 {
				t.Errorf("further findings: %q", got)
			}
		})
	}
}

// TestLimitNamedAfterItsCost checks the printed snippet of a limit that has the name of the cost's
// field.
func TestLimitNamedAfterItsCost(t *testing.T) {
	set := ruleSet(t, `domain: llm
descriptors: [{ key: user, rate_limit: { unit: hour, requests_per_unit: 10000, name: total_tokens, reserve: { amount: 100 } } }]
`)
	snippet := strings.ReplaceAll(Snippet(set, "llm", SnippetOptions{LLM: "openai"}), placeholder, "x-user")
	c, err := Read([]File{{"snippet.yaml", []byte(snippet)}})
	must.OK(t, err)
	for _, f := range c.Check(set) {
		if f.Code == Leases {
			t.Errorf("the printed snippet: %s", f.Message)
		}
	}
}

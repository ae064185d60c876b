package envoyconfig

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFiltersWithoutConfiguration covers filters that Envoy accepts without typed_config.
// e2e/envoyconfig covers those that it rejects, with a real Envoy.
func TestFiltersWithoutConfiguration(t *testing.T) {
	const typeURL = "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit"
	for name, tt := range map[string]struct {
		filter string
		want   []string
	}{
		"optional": {
			filter: "{ name: envoy.filters.http.ratelimit, is_optional: true }",
			want:   []string{"error: domain: no listener has a rate limit filter before its router"},
		},
		"optional, another": {
			filter: "{ name: mine, is_optional: true }",
			want:   []string{"error: domain: no listener has a rate limit filter before its router"},
		},
		"by ECDS": {
			filter: "{ name: limit, config_discovery: { config_source: { ads: {} }, type_urls: [" + typeURL + "] } }",
			want:   []string{"envoy.yaml:8:15: note: unknown: this is the only rate limit filter, and it is not checked"},
		},
		"of ECDS, another": {
			filter: "{ name: limit, config_discovery: { config_source: { ads: {} }, type_urls: [x/y.Z] } }",
			want:   []string{"error: domain: no listener has a rate limit filter before its router"},
		},
	} {
		text := listenerText[1:]
		begin := strings.Index(text, "- name: limit\n")
		end := begin + strings.Index(text[begin:], "            - name: ")
		if begin < 0 || end < begin {
			t.Fatalf("the listener has no filter between lines, at %d and %d", begin, end)
		}
		c, err := Read([]File{{"envoy.yaml", []byte(text[:begin] + "- " + tt.filter + "\n" + text[end:])}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []string
		for _, finding := range findingsOf(t, c) {
			if strings.Contains(finding, ": domain: ") || strings.Contains(finding, ": unknown: ") {
				got = append(got, finding[:min(len(finding), len(tt.want[0]))])
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

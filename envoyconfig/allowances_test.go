package envoyconfig

import (
	"strings"
	"testing"
)

// TestAcknowledgements covers comments that acknowledge warnings, in Envoy's files and in the rules.
func TestAcknowledgements(t *testing.T) {
	for name, tt := range map[string]struct {
		envoy, rules string // lines before the filter and before the rule
		want         []string
	}{
		"none": {want: []string{
			`envoy.yaml:8:15: warning: timeout: the filter has no timeout`,
			`rules.yaml:5:5: warning: unsent: no route sends a descriptor that other can match`,
		}},
		"both": {envoy: "# In a moment.\n# sluice:allow timeout", rules: "# sluice:allow unsent"},
		"the other": {envoy: "# sluice:allow uncounted-hits", rules: "# sluice:allow restart", want: []string{
			`envoy.yaml:8:13: warning: allow: line 9 has no warning uncounted-hits: remove the acknowledgement`,
			`envoy.yaml:9:15: warning: timeout: the filter has no timeout`,
			`rules.yaml:6:5: warning: unsent: no route sends a descriptor that other can match`,
		}},
		"no code": {envoy: "# sluice:allow timout", want: []string{
			`envoy.yaml:8:13: warning: allow: "timout" is not the code of a warning that comments can acknowledge; did you mean "timeout"?`,
			`envoy.yaml:9:15: warning: timeout: the filter has no timeout`,
			`rules.yaml:5:5: warning: unsent: no route sends a descriptor that other can match`,
		}},
	} {
		text, file := listenerText[1:], "domain: shop\ndescriptors:\n  - key: user\n    rate_limit: { unit: hour, requests_per_unit: 1 }\n"
		if tt.envoy != "" {
			const before = "            "
			text = strings.Replace(text, before+"- name: limit\n", before+indent(tt.envoy+"\n- name: limit", before)+"\n", 1)
		}
		if tt.rules != "" {
			file += "  " + tt.rules + "\n"
		}
		file += "  - key: other\n    rate_limit: { unit: hour, requests_per_unit: 1 }\n"
		c, err := Read([]File{{"envoy.yaml", []byte(text)}})
		if err != nil {
			t.Fatal(err)
		}
		got := c.Check(ruleSet(t, file))
		if len(got) != len(tt.want) {
			t.Errorf("%s: found %v, want %q", name, got, tt.want)
			continue
		}
		for i, want := range tt.want {
			if !strings.HasPrefix(got[i].String(), want) {
				t.Errorf("%s: found %v, want %s", name, got[i], want)
			}
		}
	}
}

package envoyconfig

import (
	"strings"
	"testing"
)

// dumpOf returns the part of Envoy 1.N's /config_dump that contains the version.
func dumpOf(minor string) File {
	return File{"dump.json", []byte(`{"configs": [{
 "@type": "type.googleapis.com/envoy.admin.v3.BootstrapConfigDump",
 "bootstrap": {"node": {"user_agent_name": "envoy", "user_agent_build_version": {"version": {"major_number": 1, "minor_number": ` + minor + `, "patch": 3}}}}
}]}`)}
}

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

// TestCrashingEndCall covers versions of Envoy that may crash if a call at the end of a stream fails.
func TestCrashingEndCall(t *testing.T) {
	const start = "{ actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }] }"
	end := strings.TrimSuffix(start, " }") + ", hits_addend: { number: 2 }, apply_on_stream_done: true }"
	const prefix = ": version: an Envoy before 1.37.1, 1.36.5, 1.35.8 or 1.34.13 may crash if the call for this element fails"
	for _, tt := range []struct {
		elements, version string // version is the minor and the patch
		want              string // severity
	}{
		{start + ", " + end, "", "note"},
		{end + ", " + start, "", "note"},
		{start, "", ""},
		{end, "", ""},
		{start + ", " + end, "30, 99", "warning"},
		{start + ", " + end, "34, 12", "warning"},
		{start + ", " + end, "34, 13", ""},
		{start + ", " + end, "35, 7", "warning"},
		{start + ", " + end, "35, 8", ""},
		{start + ", " + end, "36, 4", "warning"},
		{start + ", " + end, "36, 5", ""},
		{start + ", " + end, "37, 0", "warning"},
		{start + ", " + end, "37, 1", ""},
		{start + ", " + end, "38, 0", ""},
		{start + ", " + end, "40, 0", ""},
		{end, "37, 0", ""},
	} {
		files := []File{{"envoy.yaml", []byte(strings.Replace(listenerText, "domain: shop\n", "domain: shop\n                timeout: 1s\n                rate_limits: ["+tt.elements+"]\n", 1))}}
		if minor, patch, ok := strings.Cut(tt.version, ", "); ok {
			dump := dumpOf(minor)
			dump.Content = []byte(strings.Replace(string(dump.Content), `"patch": 3`, `"patch": `+patch, 1))
			files = append(files, dump)
		}
		c, err := Read(files)
		if err != nil {
			t.Fatal(err)
		}
		found := strings.Join(findingsOf(t, c), "\n")
		if want := tt.want + prefix; strings.Contains(found, prefix) != (tt.want != "") || tt.want != "" && !strings.Contains(found, want) {
			t.Errorf("with [%s] and Envoy 1.%s: found %s, want the severity %q", tt.elements, tt.version, found, tt.want)
		}
	}
}

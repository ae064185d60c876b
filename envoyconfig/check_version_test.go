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

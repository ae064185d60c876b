package envoyconfig_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/envoyconfig"
)

// mistake is a common mistake, inserted into the valid configuration of testdata/mistakes.
type mistake struct {
	name string
	// old is replaced by put in the file in. more contains further pairs.
	in, old, put string
	more         []string
	// want is the severity and code of the expected finding, and message is a part of its message, or "rejected" if
	// Envoy rejects the configuration. If want is empty, none is the reason why the mistake cannot be found.
	want, message string
	none          string
	// envoyRejects is true if Envoy rejects the configuration for another reason.
	envoyRejects bool
}

// TestMistakes inserts each mistake and expects that check finds it or that the real Envoy rejects
// it. Envoy must reject exactly the configurations marked as rejected.
func TestMistakes(t *testing.T) {
	binary := suite.Envoy(t, root)
	good := map[string]string{}
	for _, name := range []string{"envoy.yaml", "rules.yaml"} {
		text, err := os.ReadFile(filepath.Join("testdata", "mistakes", name))
		if err != nil {
			t.Fatal(err)
		}
		good[name] = string(text)
	}
	for _, found := range findingsOf(t, good["envoy.yaml"], good["rules.yaml"]) {
		if !strings.Contains(found, ": note: ") {
			t.Errorf("without a mistake: found %s", found)
		}
	}
	found, explained := 0, 0
	names := map[string]bool{}
	for _, m := range mistakes {
		if names[m.name] {
			t.Errorf("%s: listed twice", m.name)
		}
		names[m.name] = true
		files := map[string]string{"envoy.yaml": good["envoy.yaml"], "rules.yaml": good["rules.yaml"]}
		for pair := append([]string{m.old, m.put}, m.more...); len(pair) > 0; pair = pair[2:] {
			if !strings.Contains(files[m.in], pair[0]) {
				t.Fatalf("%s: %s has no %q", m.name, m.in, pair[0])
			}
			files[m.in] = strings.Replace(files[m.in], pair[0], pair[1], 1)
		}
		got := findingsOf(t, files["envoy.yaml"], files["rules.yaml"])
		switch {
		case (m.want == "") == (m.none == ""):
			t.Errorf("%s: set want or none", m.name)
		case m.want == "rejected", m.want != "" && has(got, m.want, m.message):
			found++
		case m.want != "":
			t.Errorf("%s: want %s: ... %s, found\n%s", m.name, m.want, m.message, strings.Join(got, "\n"))
		default:
			explained++
			for _, f := range got {
				if !strings.Contains(f, ": note: ") {
					t.Errorf("%s: found %s, want no finding, because %s", m.name, f, m.none)
				}
			}
		}
		if m.in != "envoy.yaml" {
			continue
		}
		file := filepath.Join(t.TempDir(), "envoy.yaml")
		if err := os.WriteFile(file, []byte(files["envoy.yaml"]), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := envoy.Validate(t.Context(), binary, file); (err != nil) != (m.want == "rejected" || m.envoyRejects) {
			t.Errorf("%s: want %s, Envoy returned %v", m.name, m.want, err)
		}
	}
	t.Logf("%d mistakes: %d are found or rejected by Envoy, %d are not visible in the files", len(mistakes), found, explained)
}

// has reports whether a finding has the severity and code want and contains message.
func has(found []string, want, message string) bool {
	for _, f := range found {
		if strings.Contains(" "+f, " "+want+": ") && strings.Contains(f, message) {
			return true
		}
	}
	return false
}

// findingsOf returns the findings of a configuration and its rules.
func findingsOf(t *testing.T, bootstrap, text string) []string {
	t.Helper()
	configs, wrong := rulefile.Parse("rules.yaml", []byte(text))
	set, more := descriptors.Compile(configs, descriptors.Options{})
	if set == nil || len(wrong) > 0 {
		return strings.Split(fmt.Sprint(wrong, more), "\n")
	}
	config, err := envoyconfig.Read([]envoyconfig.File{{Name: "envoy.yaml", Content: []byte(bootstrap)}})
	if err != nil {
		return []string{"envoy.yaml: rejected: " + err.Error()}
	}
	var all []string
	for _, d := range wrong {
		all = append(all, d.String())
	}
	for _, f := range config.Check(set) {
		all = append(all, f.String())
	}
	return all
}

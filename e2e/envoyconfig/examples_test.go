package envoyconfig_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/descriptors/source"
	"github.com/sluice-ratelimit/sluice/envoyconfig"
)

// TestExamplesHaveNoFindings checks the Envoy configuration of each example, the quick start and
// the demo against the rules next to it.
func TestExamplesHaveNoFindings(t *testing.T) {
	pairs := map[string]string{
		"envoy.yaml":                      "examples/quickstart/rules.yaml",
		"examples/istio/envoyfilter.yaml": "examples/istio/rules.yaml",
	}
	found, err := filepath.Glob(filepath.Join(root, "examples", "*", "envoy.yaml"))
	if err != nil || len(found) < 10 {
		t.Fatalf("examples are %q, %v", found, err)
	}
	for _, path := range found {
		name := filepath.Base(filepath.Dir(path))
		pairs[filepath.Join("examples", name, "envoy.yaml")] = filepath.Join("examples", name, "rules.yaml")
	}
	for proxy, ruleFile := range pairs {
		text, err := os.ReadFile(filepath.Join(root, proxy))
		if err != nil {
			t.Fatal(err)
		}
		config, err := envoyconfig.Read([]envoyconfig.File{{Name: proxy, Content: text}})
		if err != nil {
			t.Error(err)
			continue
		}
		set, diagnostics, err := source.Load([]string{filepath.Join(root, ruleFile)}, "", descriptors.Options{})
		if err != nil || set == nil {
			t.Fatal(err, diagnostics)
		}
		for _, f := range config.Check(set) {
			if f.Severity != rules.Note {
				t.Errorf("%s: %v", proxy, f)
			}
		}
	}
}

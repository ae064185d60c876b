package rulefile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// conformanceCase is a configuration, one YAML file per string, with the known result of
// envoyproxy/ratelimit.
type conformanceCase struct {
	Name   string            `yaml:"name"`
	Env    map[string]string `yaml:"env"`
	Config []string          `yaml:"config"`
}

func conformance(t *testing.T, name string) []conformanceCase {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("../../e2e/testdata/conformance", name))
	must.OK(t, err)
	var cases []conformanceCase
	must.OK(t, yaml.Load(content, &cases))
	if len(cases) == 0 {
		t.Fatalf("%s contains no cases", name)
	}
	return cases
}

func (c conformanceCase) load() (*descriptors.Set, rules.Diagnostics) {
	var configs []rules.Config
	var found rules.Diagnostics
	var names []string
	for i, text := range c.Config {
		name := fmt.Sprintf("%d.yaml", i)
		read, ds := Parse(name, []byte(text))
		configs, found, names = append(configs, read...), append(found, ds...), append(names, name)
	}
	return descriptors.Build(configs, found, names, descriptors.Options{MergeDomains: c.Env["MERGE_DOMAIN_CONFIG"] == "true"})
}

func TestInvalidConformance(t *testing.T) {
	for _, c := range conformance(t, "invalid.yaml") {
		set, ds := c.load()
		if set != nil || !ds.HasErrors() {
			t.Errorf("%s: loaded with %v, want an error", c.Name, ds)
		}
		for _, d := range ds {
			if !strings.HasSuffix(d.Pos.File, ".yaml") || d.Pos.Line < 1 || d.Pos.Col < 1 {
				t.Errorf("%s: %v names no file and line", c.Name, d)
			}
		}
	}
}

func TestAcceptedConformance(t *testing.T) {
	for _, c := range conformance(t, "accepted.yaml") {
		set, ds := c.load()
		if c.Name == "second_yaml_document_ignored" {
			// Here every document is parsed, not only the first.
			if err := ds.Err(); err == nil || !strings.HasPrefix(err.Error(), `0.yaml:6:1: error: domain "e": unknown field "bogus"`) {
				t.Errorf("%s: error %v, want one for bogus on line 6", c.Name, err)
			}
			c.Config[0] = strings.Replace(c.Config[0], "bogus: 1\n", "", 1)
			set, ds = c.load()
		}
		if set == nil || ds.HasErrors() {
			t.Errorf("%s: %v, want it to load", c.Name, ds)
		}
	}
}

func TestConformanceCasesLoad(t *testing.T) {
	for _, c := range conformance(t, "cases.yaml") {
		if set, ds := c.load(); set == nil || ds.HasErrors() {
			t.Errorf("%s: %v, want it to load", c.Name, ds)
		}
	}
}

package examples_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// envoyConfigs returns the complete Envoy configurations in this repository: YAML files with a
// document that contains static_resources.
func envoyConfigs(t *testing.T) []string {
	t.Helper()
	var found []string
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".yaml" && filepath.Ext(path) != ".yml":
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return err
		}
		var config map[string]any
		if yaml.Unmarshal(text, &config) == nil && config["static_resources"] != nil {
			found = append(found, path)
		}
		return nil
	})
	must.OK(t, err)
	return found
}

// TestEnvoyAcceptsEveryConfiguration has the real Envoy check each configuration.
func TestEnvoyAcceptsEveryConfiguration(t *testing.T) {
	t.Parallel()
	binary := suite.Envoy(t, root)
	paths := envoyConfigs(t)
	if len(paths) < 10 {
		t.Errorf("configurations of Envoy are %q, want those of the examples and envoy.yaml", paths)
	}
	for _, path := range paths {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			if err := envoy.Validate(t.Context(), binary, filepath.Join(root, path)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestOutagesDenyNoRequests checks that no filter denies requests while sluice does not respond.
func TestOutagesDenyNoRequests(t *testing.T) {
	t.Parallel()
	filters := 0
	for _, path := range envoyConfigs(t) {
		eachObject(example(t, "..", path), func(o object) {
			if strings.HasSuffix(field[string](o, "@type"), ".ratelimit.v3.RateLimit") {
				filters++
				if o["failure_mode_deny"] == true && !strings.HasPrefix(path, "bench/") {
					t.Errorf("%s denies requests during an outage", path)
				}
			}
		})
	}
	if filters < 10 {
		t.Errorf("%d filters found", filters)
	}
}

// TestExamplesUseTheQuickStartCluster compares the copies of the cluster `sluice` with that of
// envoy.yaml, in which each line is explained.
func TestExamplesUseTheQuickStartCluster(t *testing.T) {
	t.Parallel()
	cluster := func(path string) object {
		for _, c := range field[list](field[object](example(t, "..", path), "static_resources"), "clusters") {
			if c, _ := c.(object); c["name"] == "sluice" {
				return c
			}
		}
		t.Errorf("%s: no cluster sluice", path)
		return nil
	}
	want := cluster("envoy.yaml")
	paths, err := filepath.Glob(filepath.Join(root, "examples", "*", "envoy.yaml"))
	if err != nil || len(paths) < 8 {
		t.Fatalf("examples are %q, %v", paths, err)
	}
	for _, path := range paths {
		name := filepath.Base(filepath.Dir(path))
		got := cluster(filepath.Join("examples", name, "envoy.yaml"))
		for _, own := range clusterDifferences[name] {
			if cmp.Equal(got[own], want[own]) {
				t.Errorf("%s: %s equals that of envoy.yaml; remove it from clusterDifferences", name, own)
			}
			got[own] = want[own]
		}
		for field, value := range got {
			if value == nil {
				delete(got, field)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: the cluster differs from that of envoy.yaml (-want +got):\n%s", name, diff)
		}
	}
}

// clusterDifferences contains the cluster's fields that an example changes.
var clusterDifferences = map[string][]string{
	"compose": {"load_assignment"},
	"sharded": {"lb_policy", "common_lb_config", "load_assignment", "typed_extension_protocol_options", "health_checks", "outlier_detection"},
}

// field returns a field of a configuration, or the zero value.
func field[T any](o object, name string) T {
	v, _ := o[name].(T)
	return v
}

// TestREADMESnippetMatchesQuickStart compares the Envoy configuration in README.md with envoy.yaml,
// which must contain the same values.
func TestREADMESnippetMatchesQuickStart(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root, "README.md"))
	must.OK(t, err)
	whole := example(t, "..", "envoy.yaml")
	snippets := 0
	for _, block := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindAllStringSubmatch(string(page), -1) {
		if strings.HasPrefix(block[1], "domain:") {
			continue // rules, which are tested in cmd/sluice
		}
		snippets++
		var shown object
		must.OK(t, yaml.Unmarshal([]byte(block[1]), &shown))
		for name, value := range shown {
			found := false
			eachObject(whole, func(o object) { found = found || o[name] != nil && containsConfig(o[name], value) })
			if !found {
				t.Errorf("envoy.yaml has no %s with the fields in README.md:\n%s", name, block[1])
			}
		}
	}
	if snippets == 0 {
		t.Error("README.md contains no Envoy configuration")
	}
}

// containsConfig reports whether whole contains all fields of part.
func containsConfig(whole, part any) bool {
	switch part := part.(type) {
	case object:
		o, ok := whole.(object)
		for name, value := range part {
			ok = ok && containsConfig(o[name], value)
		}
		return ok
	case list:
		l, ok := whole.(list)
		for _, value := range part {
			ok = ok && slices.ContainsFunc(l, func(item any) bool { return containsConfig(item, value) })
		}
		return ok
	}
	return cmp.Equal(whole, part)
}

// TestQuotaServiceEnvoysMatch checks that the two Envoys of quota-service differ only in their
// ports.
func TestQuotaServiceEnvoysMatch(t *testing.T) {
	t.Parallel()
	ports := map[int]int{9901: 9911, 10000: 10010, 10001: 10011}
	first := example(t, "quota-service", "envoy.yaml")
	eachObject(first, func(o object) {
		if port, is := o["port_value"].(int); is && ports[port] != 0 {
			o["port_value"] = ports[port]
		}
	})
	if diff := cmp.Diff(first, example(t, "quota-service", "second.yaml")); diff != "" {
		t.Errorf("second.yaml differs from envoy.yaml with other ports (-want +got):\n%s", diff)
	}
}

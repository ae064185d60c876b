package envoyconfig_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/envoyconfig"
)

// TestEnvoyLoadsSnippets has the real Envoy load the snippet for each example's rules, inserted
// where its comments say and with the placeholders filled in.
func TestEnvoyLoadsSnippets(t *testing.T) {
	binary := suite.Envoy(t, root)
	paths, err := filepath.Glob(filepath.Join(root, "examples", "*", "rules.yaml"))
	if err != nil || len(paths) < 10 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		parsed, _ := rulefile.Parse(path, text)
		set, wrong := descriptors.Compile(parsed, descriptors.Options{})
		if set == nil {
			t.Fatal(wrong)
		}
		for _, domain := range set.Domains() {
			loadSnippet(t, binary, path, envoyconfig.Snippet(set, domain, envoyconfig.SnippetOptions{}))
		}
	}
}

// loadSnippet has Envoy load a snippet.
func loadSnippet(t *testing.T, binary, path, snippet string) {
	t.Helper()
	var parts struct {
		Filters  list `yaml:"http_filters"`
		Clusters list `yaml:"clusters"`
		Limits   list `yaml:"rate_limits"`
	}
	filled := strings.ReplaceAll(strings.ReplaceAll(snippet, "address: CHANGE-ME", "address: 127.0.0.1"), "CHANGE-ME", "x-own")
	if err := yaml.Unmarshal([]byte(filled), &parts); err != nil {
		t.Fatalf("%s: %v\n%s", path, err, snippet)
	}
	whole := frame(parts.Filters, object{"virtual_hosts": list{object{
		"name": "all", "domains": list{"*"}, "rate_limits": parts.Limits,
		"routes": list{object{"match": object{"prefix": "/"}, "route": object{"cluster": "sluice"}}},
	}}}, parts.Clusters)
	config, err := json.Marshal(whole)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "envoy.json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := envoy.Validate(t.Context(), binary, file); err != nil {
		t.Errorf("%s: %v\n%s", path, err, snippet)
	}
}

// frame returns a bootstrap around filters, a route configuration and clusters.
func frame(filters list, routes object, clusters list) object {
	return object{"static_resources": object{
		"clusters": clusters,
		"listeners": list{listener("ingress", object{
			"stat_prefix": "ingress", "route_config": routes,
			"http_filters": append(filters, object{
				"name":         "envoy.filters.http.router",
				"typed_config": object{"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
			}),
		})},
	}}
}

package examples_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

type (
	object = map[string]any
	list   = []any
)

// startSluice starts sluice in the repository's root.
func startSluice(t *testing.T, o sluice.Options) *sluice.Sluice {
	t.Helper()
	o.Binary, o.Dir = sluiceBinary, root
	return suite.StartSluice(t, o)
}

// startEnvoy starts an Envoy with extended timeouts and an example's configuration.
func startEnvoy(t *testing.T, config object, endpoints map[string]string) *envoy.Envoy {
	t.Helper()
	text, err := json.Marshal(config)
	must.OK(t, err)
	return suite.StartEnvoy(t, root, envoy.Options{Bootstrap: text, Endpoints: endpoints, Patient: true, Dir: suite.ShortDir(t)})
}

// example reads a file of examples/ with one document.
func example(t *testing.T, name ...string) object {
	t.Helper()
	return document(t, filepath.Join(append([]string{root, "examples"}, name...)...))
}

// testdata reads a file of testdata/ with one document.
func testdata(t *testing.T, name string) object {
	t.Helper()
	return document(t, filepath.Join("testdata", name))
}

func document(t *testing.T, path string) object {
	t.Helper()
	text, err := os.ReadFile(path)
	must.OK(t, err)
	var config object
	if err := yaml.Unmarshal(text, &config); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return config
}

// eachObject calls visit with every object in a configuration, inner objects last.
func eachObject(config any, visit func(object)) {
	switch c := config.(type) {
	case object:
		visit(c)
		for _, v := range c {
			eachObject(v, visit)
		}
	case list:
		for _, v := range c {
			eachObject(v, visit)
		}
	}
}

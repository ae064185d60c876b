package examples_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
)

type (
	object = map[string]any
	list   = []any
)

// startSluice runs sluice with flags, in the repository's root.
func startSluice(t *testing.T, o sluice.Options) *sluice.Sluice {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	o.Binary, o.Dir = sluiceBinary, root
	s, err := sluice.Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	return s
}

// startEnvoy runs a patient Envoy with an example's configuration.
func startEnvoy(t *testing.T, config object, endpoints map[string]string) *envoy.Envoy {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	e, err := envoy.Start(ctx, envoy.Options{
		Binary:    envoyBinary(t),
		Bootstrap: text,
		Endpoints: endpoints,
		Patient:   true,
		Dir:       shortDir(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Kill)
	return e
}

// shortDir returns a directory with a path short enough for a socket in it. That of
// t.TempDir may be too long.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "envoy-") //nolint:usetesting // its path is too long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// example reads a file of examples/ that holds one document.
func example(t *testing.T, name ...string) object {
	t.Helper()
	return document(t, filepath.Join(append([]string{root, "examples"}, name...)...))
}

// testdata reads a file of testdata/ that holds one document.
func testdata(t *testing.T, name string) object {
	t.Helper()
	return document(t, filepath.Join("testdata", name))
}

func document(t *testing.T, path string) object {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var config object
	if err := yaml.Unmarshal(text, &config); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return config
}

// each calls what with every object in a configuration, the innermost last.
func each(config any, what func(object)) {
	switch c := config.(type) {
	case object:
		what(c)
		for _, v := range c {
			each(v, what)
		}
	case list:
		for _, v := range c {
			each(v, what)
		}
	}
}

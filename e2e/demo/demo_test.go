package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const root = "../.."

// temporary gives the demo a temporary directory and fails the test if the demo leaves files in it.
func temporary(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Cleanup(func() {
		left, err := filepath.Glob(filepath.Join(dir, "sluice-demo-*"))
		if err != nil || len(left) > 0 {
			t.Errorf("the demo left files: %v, %v", left, err)
		}
	})
}

func TestDemo(t *testing.T) {
	suite.Envoy(t, root)
	temporary(t)
	var out bytes.Buffer
	err := run(t.Context(), options{root: root, rules: "examples/quickstart/rules.yaml"}, &out)
	if err != nil {
		t.Fatalf("run() = %v, want nil; it printed:\n%s", err, &out)
	}
	for _, want := range []string{
		`x-ratelimit-limit: 5, 5;w=3600;name="per-user", 600;w=60;name="per-address"`,
		`rule="feature_beta"} 1`,
		`x-ratelimit-limit: 8, 8;w=3600;name="per-user"`,
		"Done: 20 requests in",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the demo did not print %q", want)
		}
	}
	if t.Failed() {
		t.Log(out.String())
	}
}

func TestUnexpectedAnswer(t *testing.T) {
	suite.Envoy(t, root)
	temporary(t)
	text, err := os.ReadFile(filepath.Join(root, "examples/quickstart/rules.yaml"))
	must.OK(t, err)
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	text = bytes.Replace(text, []byte("requests_per_unit: 5\n"), []byte("requests_per_unit: 4\n"), 1)
	must.OK(t, os.WriteFile(rules, text, 0o600))
	fromRoot, err := filepath.Rel(absolute(t, root), rules)
	must.OK(t, err)
	err = run(t.Context(), options{root: root, rules: fromRoot}, &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), `remaining "3", want 200 with "4"`) {
		t.Errorf("run() = %v, want an error that compares the remaining requests", err)
	}
}

func TestKeep(t *testing.T) {
	suite.Envoy(t, root)
	temporary(t)
	ctx, interrupt := context.WithCancel(t.Context())
	out := &interrupter{after: "until Ctrl-C", interrupt: interrupt}
	if err := run(ctx, options{root: root, rules: "examples/quickstart/rules.yaml", keep: true}, out); err != nil {
		t.Fatalf("run() = %v, want nil; it printed:\n%s", err, &out.Buffer)
	}
	if !strings.HasSuffix(out.String(), "Stopping.\n") {
		t.Errorf("run() did not end with \"Stopping.\":\n%s", &out.Buffer)
	}
}

// interrupter calls interrupt after a write that contains the text after.
type interrupter struct {
	bytes.Buffer

	after     string
	interrupt func()
}

func (i *interrupter) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(i.after)) {
		i.interrupt()
	}
	return i.Buffer.Write(p)
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	must.OK(t, err)
	return path
}

package envoy_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-ratelimit/sluice/e2e/backend"
	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

const root = "../.."

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func TestQuickStartConfigurationIsValid(t *testing.T) {
	binary := suite.Envoy(t, root)
	config := filepath.Join(root, "envoy.yaml")
	if err := envoy.Validate(t.Context(), binary, config); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(config)
	must.OK(t, err)
	broken := filepath.Join(t.TempDir(), "envoy.yaml")
	misspelt := strings.Replace(string(text), "failure_mode_deny:", "failure_mode_denied:", 1)
	must.OK(t, os.WriteFile(broken, []byte(misspelt), 0o600))
	if err := envoy.Validate(t.Context(), binary, broken); err == nil {
		t.Error("Validate() of a misspelt field = nil, want an error")
	}
}

// TestVersionIsDocumented checks the first row of the tested versions.
func TestVersionIsDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "compatibility.md"))
	must.OK(t, err)
	if row := "| " + envoy.Version + " | all (`make test-more`)"; !strings.Contains(string(page), row) {
		t.Errorf("docs/compatibility.md has no row %q", row)
	}
}

func TestTwoEnvoysServeAtOnce(t *testing.T) {
	binary := suite.Envoy(t, root)
	b, err := backend.Start(t.Context())
	must.OK(t, err)
	defer b.Close()
	bootstrap, err := os.ReadFile(filepath.Join(root, "envoy.yaml"))
	must.OK(t, err)
	for _, path := range []string{"/first", "/second"} {
		e, err := envoy.Start(t.Context(), envoy.Options{
			Binary:    binary,
			Bootstrap: bootstrap,
			Clusters: map[string][]string{
				"backend": {b.Addr},
				// There is no listener, and failure_mode_deny is false, so requests pass.
				"sluice": {"127.0.0.1:1"},
			},
			Dir: t.TempDir(),
		})
		must.OK(t, err)
		defer e.Kill()
		resp, err := http.Get("http://" + e.Addr("ingress") + path)
		must.OK(t, err)
		defer resp.Body.Close()
		var got backend.Request
		if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || got.Path != path {
			t.Errorf("GET %s: the backend got %q, %v, want %q, nil", path, got.Path, err, path)
		}
	}
	if got := len(b.Requests()); got != 2 {
		t.Errorf("the backend got %d requests, want 2", got)
	}
}

func TestStartRejectsInvalidOptions(t *testing.T) {
	for name, options := range map[string]envoy.Options{
		"no YAML":          {Bootstrap: []byte("a: [")},
		"unknown cluster":  {Bootstrap: []byte("a: b"), Clusters: map[string][]string{"c": {"127.0.0.1:1"}}},
		"unknown endpoint": {Bootstrap: []byte("a: b"), Endpoints: map[string]string{"127.0.0.1:1": "127.0.0.1:2"}},
		"bad endpoint": {
			Bootstrap: []byte("static_resources: {clusters: [{name: c}]}"),
			Clusters:  map[string][]string{"c": {"127.0.0.1"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := envoy.Start(t.Context(), options); err == nil {
				t.Error("Start() = nil, want an error")
			}
		})
	}
}

func TestStartReportsEnvoysOutput(t *testing.T) {
	_, err := envoy.Start(t.Context(), envoy.Options{
		Binary:    suite.Envoy(t, root),
		Bootstrap: []byte("no_such_field: 1"),
		Dir:       t.TempDir(),
	})
	if err == nil || !strings.Contains(err.Error(), "no_such_field") {
		t.Errorf("Start() = %v, want an error that names no_such_field", err)
	}
}

func TestFindRequiresNamedEnvoy(t *testing.T) {
	t.Setenv("ENVOY_BIN", filepath.Join(t.TempDir(), "envoy"))
	if _, err := envoy.Find(root); err == nil || errors.Is(err, envoy.ErrNotInstalled) {
		t.Errorf("Find() = %v, want an error other than ErrNotInstalled", err)
	}
}

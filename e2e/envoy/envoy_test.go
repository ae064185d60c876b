package envoy_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

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

// TestVersionIsDocumented checks the version that the page says is tested.
func TestVersionIsDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "compatibility.md"))
	must.OK(t, err)
	if text := "Tests run with Envoy " + envoy.Version + ","; !strings.Contains(string(page), text) {
		t.Errorf("docs/compatibility.md does not say %q", text)
	}
}

func TestFindRequiresNamedEnvoy(t *testing.T) {
	t.Setenv("ENVOY_BIN", filepath.Join(t.TempDir(), "envoy"))
	if _, err := envoy.Find(root); err == nil || errors.Is(err, envoy.ErrNotInstalled) {
		t.Errorf("Find() = %v, want an error other than ErrNotInstalled", err)
	}
}

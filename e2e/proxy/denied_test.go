package proxy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/e2e/window"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// raised is the result of a vendor's client: its error, and the seconds it slept between its two
// attempts.
type raised struct {
	Error      string
	Status     int
	Code       string
	Message    string
	RetryAfter string `json:"retry_after"`
	Slept      []float64
}

// callSDK sends a request with the client of a vendor. It skips the test, with a note, if the client
// is not installed.
func callSDK(t *testing.T, vendor, url string) raised {
	t.Helper()
	packages, err := filepath.Abs(filepath.Join(root, ".build", "clients", "sdk"))
	must.OK(t, err)
	if _, err := os.Stat(packages); errors.Is(err, os.ErrNotExist) {
		suite.Skip(t, "no client of "+vendor+"; `make clients` prints the reason")
	}
	cmd := exec.CommandContext(t.Context(), "python3", filepath.Join(root, "e2e", "clients", "testdata", "sdk", "denied.py"), vendor, url)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+packages)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	must.OK(t, err)
	var r raised
	must.OK(t, json.Unmarshal(out, &r))
	return r
}

// TestVendorClientsUnderstandDenials has the clients of OpenAI and Anthropic read a denial. They
// raise their error for rate limits and wait as long as the headers say. After a long wait they do
// not try again.
func TestVendorClientsUnderstandDenials(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ vendor, code string }{{"openai", "rate_limit_exceeded"}, {"anthropic", "rate_limit_error"}} {
		t.Run(tt.vendor, func(t *testing.T) {
			t.Parallel()
			p, _ := startSetup(t, setup{
				rules: fmt.Sprintf(`
domain: d
descriptors:
  - { key: short, denied_response: %[1]s, rate_limit: { name: per-user, unit: second, unit_multiplier: 119, requests_per_unit: 1, algorithm: token_bucket } }
  - { key: long, denied_response: %[1]s, rate_limit: { name: per-day, unit: day, requests_per_unit: 1, algorithm: token_bucket } }
`, tt.vendor),
				listener: listener{routes: `
- { match: { prefix: /short }, route: { rate_limits: [{ actions: [{ generic_key: { descriptor_key: short, descriptor_value: x } }] }] } }
- { match: { prefix: /long }, route: { rate_limits: [{ actions: [{ generic_key: { descriptor_key: long, descriptor_value: x } }] }] } }
`},
			})
			window.AwaitHour(t)
			for _, wait := range []string{"short", "long"} {
				if got := p.get(t, "/"+wait); got.status != 200 || got.get("Retry-After-Ms") != "" || got.get("Retry-After") != "" {
					t.Errorf("%s: the first request got %v, want 200 without headers of a denial", wait, got)
				}
				r := callSDK(t, tt.vendor, "http://"+p.Addr("ingress")+"/"+wait)
				after, err := strconv.Atoi(r.RetryAfter)
				must.OK(t, err)
				if r.Error != "RateLimitError" || r.Status != 429 || r.Code != tt.code {
					t.Errorf("%s: the client raised %+v, want RateLimitError with the code %s", wait, r, tt.code)
				}
				if wait == "short" && (len(r.Slept) != 1 || r.Slept[0] <= float64(after-1) || r.Slept[0] > 119) {
					t.Errorf("short: the client slept %v seconds before the attempt with retry-after %d, want the time that the first denial stated", r.Slept, after)
				}
				if wait == "long" && (len(r.Slept) != 0 || after <= 120) {
					t.Errorf("long: the client slept %v seconds with retry-after %d, want no second attempt", r.Slept, after)
				}
				name := map[string]string{"short": "per-user", "long": "per-day"}[wait]
				if want := fmt.Sprintf("Rate limit %s reached. Please try again in %ds.", name, after); r.Message != want {
					t.Errorf("%s: message %q, want %q", wait, r.Message, want)
				}
			}
		})
	}
}

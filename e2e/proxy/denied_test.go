//go:build more

package proxy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

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
func callSDK(t *testing.T, vendor, url string) (r raised) {
	t.Helper()
	runSDK(t, &r, "denied.py", vendor, url)
	return r
}

// runSDK runs a program of the directory sdk and decodes its output, JSON. It skips the test, with a
// note, if the packages of that directory are not installed.
func runSDK(t *testing.T, out any, program string, args ...string) {
	t.Helper()
	packages, err := filepath.Abs(filepath.Join(root, ".build", "clients", "sdk"))
	must.OK(t, err)
	if _, err := os.Stat(packages); errors.Is(err, os.ErrNotExist) {
		suite.Skip(t, "no packages for "+program+"; `make clients` prints the reason")
	}
	cmd := exec.CommandContext(t.Context(), "python3", append([]string{filepath.Join(root, "e2e", "clients", "testdata", "sdk", program)}, args...)...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+packages)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	must.OK(t, err)
	must.OK(t, json.Unmarshal(text, out))
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

// TestHostileNamesAddNoHeaders sends names of limits with line breaks to Envoy, which writes them into
// headers. No header begins in a name.
func TestHostileNamesAddNoHeaders(t *testing.T) {
	t.Parallel()
	p, _ := startSetup(t, setup{
		rules: `
domain: d
denied_response: { content_type: application/json, body: '{"n":"{name}"}', headers: { x-name: "{name}" } }
descriptors: [{ key: user, rate_limit: { name: "a\r\nx-injected: 1\r\n\r\nb", unit: hour, requests_per_unit: 1 } }]
`,
		args:     []string{"--ratelimit-headers=structured"},
		listener: listener{routes: `[{ match: { prefix: / }, route: { rate_limits: ` + byUser + ` } }]`},
	})
	window.AwaitHour(t)
	const name = "a??x-injected: 1????b"
	for _, status := range []int{200, 429} {
		got := p.get(t, "/", "x-user: al")
		if got.status != status || got.get("X-Injected") != "" || !strings.Contains(got.get("X-Ratelimit-Limit"), name) || !strings.Contains(got.get("RateLimit"), name) {
			t.Errorf("got %v, want %d with the name %q", got, status, name)
		}
		if want := map[int]string{429: name}[status]; got.get("X-Name") != want {
			t.Errorf("status %d: x-name is %q, want %q", status, got.get("X-Name"), want)
		}
	}
}

// TestGRPCClientsUnderstandDenials has grpc-go read denials with the headers of gRPC. It gets the
// body as the message and the time to wait, and tries again unless the pushback forbids it.
func TestGRPCClientsUnderstandDenials(t *testing.T) {
	t.Parallel()
	p, limits := startSetup(t, setup{
		rules: `
domain: d
denied_response: { body: "{name}: wait", grpc: true }
descriptors:
  - { key: short, rate_limit: { name: short, unit: second, requests_per_unit: 0 } }
  - { key: long, rate_limit: { name: long, unit: day, requests_per_unit: 0 } }
`,
		listener: listener{
			rateLimit: []string{"rate_limited_as_resource_exhausted: false"},
			routes: `
- { match: { prefix: /short }, route: { rate_limits: [{ actions: [{ generic_key: { descriptor_key: short, descriptor_value: x } }] }] } }
- { match: { prefix: /long }, route: { rate_limits: [{ actions: [{ generic_key: { descriptor_key: long, descriptor_value: x } }] }] } }
`,
		},
	})
	window.AwaitHour(t)
	conn, err := grpc.NewClient("passthrough:///"+p.Addr("ingress"), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultServiceConfig(
		`{"methodConfig":[{"name":[{}],"retryPolicy":{"maxAttempts":2,"initialBackoff":"0.001s","maxBackoff":"0.001s","backoffMultiplier":1,"retryableStatusCodes":["RESOURCE_EXHAUSTED"]}}]}`))
	must.OK(t, err)
	defer conn.Close()
	for name, want := range map[string]struct {
		calls float64
		wait  time.Duration
	}{"short": {2, time.Second}, "long": {1, 24 * time.Hour}} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		s := status.Convert(conn.Invoke(ctx, "/"+name+"/Call", &emptypb.Empty{}, &emptypb.Empty{}))
		if s.Code() != codes.ResourceExhausted || !strings.HasSuffix(s.Message(), name+": wait") || len(s.Details()) != 1 {
			t.Fatalf("%s: status %v with details %v, want RESOURCE_EXHAUSTED with the body", name, s, s.Details())
		}
		info, ok := s.Details()[0].(*errdetails.RetryInfo)
		if wait := info.GetRetryDelay().AsDuration(); !ok || wait <= 0 || wait > want.wait {
			t.Errorf("%s: details %v, want a delay of up to %v", name, s.Details(), want.wait)
		}
		if n := metric(t, limits, "ratelimit_service_rate_limit_over_limit", `rule="`+name+`"`); n != want.calls {
			t.Errorf("%s: %v calls, want %v: the pushback of a long wait forbids a second one", name, n, want.calls)
		}
	}
}

package denials_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/e2e/window"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/answer"
)

const root = "../.."

// binary is sluice, built by TestMain.
var binary string

func TestMain(m *testing.M) {
	os.Exit(suite.Main(m, root, func(path, _ string) { binary = path }))
}

var (
	flags    = []string{"--ratelimit-headers=structured", "--retry-after-header", "--denied-response=text"}
	settings = answer.Settings{RateLimitHeaders: "structured", RetryAfterHeader: true, DeniedResponse: "text"}
)

// users returns rules that admit nothing, with random responses: one for each user.
func users(seed uint64) *document {
	g := generator{rand.New(rand.NewPCG(seed, seed))}
	d := &document{Domain: "denials", Response: "problem"}
	for i := range 40 {
		r := &rule{Key: "user", Value: fmt.Sprint("user-", i), Limit: &limit{Unit: "year", Name: pick(g, names...), Hidden: g.chance(5), Algorithm: "fixed_window"}}
		if chosen, isMap := g.response().(response); isMap {
			if chosen.GRPC = false; chosen.Body == "" && chosen.Headers == nil {
				chosen.Body = "{name}"
			}
			r.Response = chosen
		} else if g.chance(2) {
			r.Response = pick(g, presets...)
		}
		d.Rules = append(d.Rules, r)
	}
	return d
}

// checkUsers compares the denials of all users with the model.
func checkUsers(t *testing.T, d *document, seed uint64, ask func(t *testing.T, c *call) *rls.RateLimitResponse) {
	t.Helper()
	suite.SkipAtYearEnd(t)
	for _, r := range d.Rules {
		m, c := &model{settings, map[string]*counter{}}, &call{d, []item{{rule: r, value: r.Value, hits: 1}}}
		from := time.Now()
		before := m.answer(from.UnixNano(), c)
		reply := ask(t, c)
		now := time.Now()
		want := m.answer(now.UnixNano(), c)
		for _, h := range reply.GetResponseHeadersToAdd() {
			ms, _ := strconv.ParseInt(h.GetValue(), 10, 64)
			if h.GetKey() == "retry-after-ms" && ceil(want.wait, time.Millisecond) <= ms && ms <= ceil(before.wait, time.Millisecond) {
				h.Value = want.headers["retry-after-ms"]
			}
		}
		diff := compare(c, want, reply)
		for ms, sent := want.headers["retry-after-ms"]; diff != "" && now.After(from); { // another second may have begun
			if now = now.Add(-time.Second); now.Before(from) {
				now = from
			}
			if want = m.answer(now.UnixNano(), c); sent {
				want.headers["retry-after-ms"] = ms
			}
			diff = compare(c, want, reply)
		}
		if diff != "" {
			line, _ := json.Marshal(r)
			t.Errorf("seed %d: %s\ngot %v\nfor %s", seed, diff, reply, line)
		}
	}
}

// startEnvoy starts the Envoy of examples/denials, whose routes below /v1/ send the header x-user.
func startEnvoy(t *testing.T, s *sluice.Sluice) *envoy.Envoy {
	t.Helper()
	bootstrap, err := os.ReadFile(filepath.Join(root, "examples", "denials", "envoy.yaml"))
	must.OK(t, err)
	return suite.StartEnvoy(t, root, envoy.Options{Bootstrap: bootstrap, Clusters: map[string][]string{"sluice": {s.Addr("grpc")}}, Patient: true})
}

// TestModelThroughEnvoy compares what clients of a real Envoy receive with the model.
func TestModelThroughEnvoy(t *testing.T) {
	t.Parallel()
	const seed = 1
	d := users(seed)
	proxy := startEnvoy(t, suite.StartSluice(t, sluice.Options{Binary: binary, Args: append(flags, "--config", suite.WriteRules(t, ruleFile(t, []*document{d})))}))
	client := &http.Client{}
	t.Cleanup(client.CloseIdleConnections)
	checkUsers(t, d, seed, func(t *testing.T, c *call) *rls.RateLimitResponse {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+proxy.Addr("ingress")+"/v1/x", http.NoBody)
		must.OK(t, err)
		req.Header.Set("X-User", c.items[0].value)
		resp, err := client.Do(req)
		must.OK(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		must.OK(t, err)
		reply := &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OVER_LIMIT, RawBody: body}
		if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("X-Envoy-Ratelimited") != "true" {
			reply.OverallCode = rls.RateLimitResponse_OK
		}
		for name, values := range resp.Header {
			if slices.Contains([]string{"X-Envoy-Ratelimited", "Date", "Server", "Content-Length"}, name) || name == "Content-Type" && values[0] == "text/plain" {
				continue // Envoy's own
			}
			for _, v := range values {
				reply.ResponseHeadersToAdd = append(reply.ResponseHeadersToAdd, &corev3.HeaderValue{Key: strings.ToLower(name), Value: v})
			}
		}
		return reply
	})
}

// TestGRPCIORetriesAsTold has gRPC's C core make calls that a real Envoy denies. The body is the
// message. The client waits until the next window before each retry, and does not retry after a
// long wait.
func TestGRPCIORetriesAsTold(t *testing.T) {
	t.Parallel()
	packages, err := filepath.Abs(filepath.Join(root, ".build", "clients", "python"))
	must.OK(t, err)
	if _, err := os.Stat(packages); errors.Is(err, os.ErrNotExist) {
		suite.Skip(t, "no client for grpcio; `make clients` prints the reason")
	}
	s := suite.StartSluice(t, sluice.Options{Binary: binary, Args: []string{"--config", suite.WriteRules(t, `
domain: denials
denied_response: { body: "{name}: wait, 100% é", grpc: true }
descriptors:
  - { key: user, value: short, rate_limit: { name: short, unit: second, requests_per_unit: 0 } }
  - { key: user, value: long, rate_limit: { name: long, unit: year, requests_per_unit: 0 } }
`)}})
	proxy := startEnvoy(t, s)
	window.AwaitHour(t)
	for name, calls := range map[string]float64{"short": 5, "long": 1} {
		cmd := exec.CommandContext(t.Context(), "python3", filepath.Join(root, "e2e", "clients", "testdata", "python", "denied.py"), proxy.Addr("ingress"), name)
		cmd.Env = append(os.Environ(), "PYTHONPATH="+packages)
		cmd.Stderr = os.Stderr
		text, err := cmd.Output()
		must.OK(t, err)
		var got struct {
			Code, Message string
			Begin, End    int
		}
		must.OK(t, json.Unmarshal(text, &got))
		if got.Code != "RESOURCE_EXHAUSTED" || got.Message != name+": wait, 100% é" {
			t.Errorf("%s: the client got %s, want RESOURCE_EXHAUSTED with the body", name, text)
		}
		if n := suite.Metrics(t, s).Sum("ratelimit_service_rate_limit_over_limit", `rule="user_`+name+`"`); n != calls {
			t.Errorf("%s: %v calls, want %v", name, n, calls)
		}
		// A timer may be a millisecond early, so every second retry may be in the same window.
		if waited := got.End - got.Begin; name == "short" && waited < 2 {
			t.Errorf("the client made 5 attempts within %d seconds, want it to wait for the next window", waited)
		}
	}
}

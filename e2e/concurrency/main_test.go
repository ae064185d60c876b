// Package concurrency tests limits on requests in flight behind the real Envoy. The backend counts
// the requests in progress.
package concurrency_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

const root = "../.."

// sluiceBinary is built by TestMain.
var sluiceBinary string

func TestMain(m *testing.M) {
	os.Exit(suite.Main(m, root, func(binary, _ string) { sluiceBinary = binary }))
}

// testbed is a sluice, an Envoy in front of a backend, and a client of Envoy.
type testbed struct {
	*backend

	sluice *sluice.Sluice
	envoy  *envoy.Envoy
	client *http.Client
}

// startTestbed starts all programs.
func startTestbed(t *testing.T, rules string, hold http.HandlerFunc) *testbed {
	t.Helper()
	suite.Envoy(t, root) // skips the test before anything runs
	s := &testbed{backend: startBackend(t, hold)}
	s.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
	t.Cleanup(s.client.CloseIdleConnections)
	s.sluice = suite.StartSluice(t, sluice.Options{Binary: sluiceBinary, Args: []string{"--config", suite.WriteRules(t, rules)}})
	config, err := os.ReadFile("testdata/filters.yaml")
	must.OK(t, err)
	s.envoy = suite.StartEnvoy(t, root, envoy.Options{
		Bootstrap: config,
		Clusters: map[string][]string{
			"sluice": {s.sluice.Addr("grpc")}, "backend": {s.addr}, "grpc": {s.addr}, "nobody": {unusedAddr},
		},
	})
	return s
}

// unusedAddr is an address without a listener.
const unusedAddr = "127.0.0.1:1"

// request returns a request of a user to Envoy.
func (s *testbed) request(ctx context.Context, user, path string) *http.Request {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.envoy.Addr("ingress")+path, http.NoBody)
	if err != nil {
		panic(err) // the path is a constant
	}
	r.Header.Set("X-User", user)
	return r
}

// get sends a request of a user and reads the complete answer.
func (s *testbed) get(ctx context.Context, user, path string, headers ...string) (int, error) {
	r := s.request(ctx, user, path)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	reply, err := s.client.Do(r)
	if err != nil {
		return 0, err
	}
	defer reply.Body.Close()
	if _, err := io.Copy(io.Discard, reply.Body); err != nil {
		return reply.StatusCode, fmt.Errorf("the answer ended early: %w", err)
	}
	return reply.StatusCode, nil
}

// counter is the state of a counter on the debug listener.
type counter struct {
	Used, Remaining, Reserves int
	Held                      struct{ Requests, Hits int }
}

// counter looks up a counter without changing it.
func (s *testbed) counter(t *testing.T, domain, key, value string) counter {
	t.Helper()
	url := fmt.Sprintf("http://%s/counters?domain=%s&descriptor=%s=%s", s.sluice.Addr("debug"), domain, key, value)
	var answer struct{ Counters []counter }
	if err := json.Unmarshal(suite.Get(t, url), &answer); err != nil {
		t.Fatalf("read /counters: %v", err)
	}
	if len(answer.Counters) != 1 {
		t.Fatalf("%s=%s of %s has the counters %+v, want one", key, value, domain, answer.Counters)
	}
	return answer.Counters[0]
}

// freePermits returns the number of free permits of a user.
func (s *testbed) freePermits(t *testing.T, user string) int {
	t.Helper()
	return s.counter(t, "d", "user", user).Remaining
}

func (s *testbed) awaitFreePermits(t *testing.T, user string, want int) {
	t.Helper()
	suite.Eventually(t, fmt.Sprintf("%d permits of %s are free", want, user), func() bool { return s.freePermits(t, user) == want })
}

// metric returns the sum of the series of sluice with the given name and labels (name="value").
func (s *testbed) metric(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	return suite.Metrics(t, s.sluice).Sum(name, labels...)
}

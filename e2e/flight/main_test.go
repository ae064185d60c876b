// Package flight tests limits on requests in flight behind the real Envoy: what runs at the backend is counted
// there.
package flight_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// root is the repository's root, seen from here.
const root = "../.."

// sluiceBinary is what TestMain built for all tests.
var sluiceBinary string

func TestMain(m *testing.M) {
	os.Exit(suite.Main(m, root, func(binary, _ string) { sluiceBinary = binary }))
}

// A stage is sluice, an Envoy in front of a ledger, and a client of the Envoy.
type stage struct {
	*ledger

	sluice *sluice.Sluice
	envoy  *envoy.Envoy
	client *http.Client
	dir    string
	args   []string // of sluice
	// accessLog is that of the Envoy that started last.
	accessLog string
}

// startStage starts a stage. Sluice gets these arguments beside the rules.
func startStage(t *testing.T, rules string, hold http.HandlerFunc, args ...string) *stage {
	t.Helper()
	suite.Envoy(t, root) // skips where none is installed, before anything runs
	s := &stage{ledger: startLedger(t, hold), dir: suite.ShortDir(t), args: append([]string{"--config", suite.WriteRules(t, rules)}, args...)}
	s.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
	t.Cleanup(s.client.CloseIdleConnections)
	s.startSluice(t)
	s.envoy = s.startEnvoy(t)
	return s
}

// startSluice starts sluice, or starts it again.
func (s *stage) startSluice(t *testing.T) {
	t.Helper()
	var addrs map[string]string
	if slices.Contains(s.args, "--state-file") { // it will start again, at an address that nobody takes meanwhile
		addrs = map[string]string{"grpc": "unix://" + filepath.Join(s.dir, "sluice.sock")}
	}
	s.sluice = suite.StartSluice(t, sluice.Options{Binary: sluiceBinary, Args: s.args, Addrs: addrs})
}

// startEnvoy starts one more Envoy, which asks sluice. Replacements are pairs of texts of its configuration, the
// old one and the new one.
func (s *stage) startEnvoy(t *testing.T, replacements ...string) *envoy.Envoy {
	t.Helper()
	service := s.sluice.Addr("grpc")
	if strings.HasPrefix(service, "/") {
		service = "unix://" + service
	}
	dir := t.TempDir()
	s.accessLog = filepath.Join(dir, "access.log")
	config, err := os.ReadFile("testdata/filters.yaml")
	must.OK(t, err)
	return suite.StartEnvoy(t, root, envoy.Options{
		Dir:       dir,
		Bootstrap: []byte(strings.NewReplacer(append(replacements, "ACCESS_LOG", s.accessLog)...).Replace(string(config))),
		Clusters: map[string][]string{
			"sluice": {service}, "backend": {s.addr}, "grpc": {s.addr}, "nobody": {unusedAddr},
		},
	})
}

// unusedAddr is an address where nobody listens.
const unusedAddr = "127.0.0.1:1"

// request returns a request of a user to the Envoy.
func (s *stage) request(ctx context.Context, user, path string) *http.Request {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.envoy.Addr("ingress")+path, http.NoBody)
	if err != nil {
		panic(err) // the path is a constant
	}
	r.Header.Set("X-User", user)
	return r
}

// get sends a request of a user, and returns the status when all of the answer is there.
func (s *stage) get(ctx context.Context, user, path string, headers ...string) (int, error) {
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
		return reply.StatusCode, fmt.Errorf("the answer broke off: %w", err)
	}
	return reply.StatusCode, nil
}

// A counter is what sluice says of one on its debug listener.
type counter struct {
	Used, Remaining, Reserves int
	Held                      struct{ Requests, Hits int }
}

// counter looks one up, which changes nothing.
func (s *stage) counter(t *testing.T, domain, key, value string) counter {
	t.Helper()
	url := fmt.Sprintf("http://%s/counters?domain=%s&descriptor=%s=%s", s.sluice.Addr("debug"), domain, key, value)
	var answer struct{ Counters []counter }
	if err := json.Unmarshal(suite.Get(t, url), &answer); err != nil {
		t.Fatalf("/counters answers: %v", err)
	}
	if len(answer.Counters) != 1 {
		t.Fatalf("%s=%s of %s has the counters %+v, want one", key, value, domain, answer.Counters)
	}
	return answer.Counters[0]
}

// freeSlots returns how many of a user's places are free.
func (s *stage) freeSlots(t *testing.T, user string) int {
	t.Helper()
	return s.counter(t, "d", "user", user).Remaining
}

// awaitFreeSlots waits until so many of a user's places are free.
func (s *stage) awaitFreeSlots(t *testing.T, user string, want int) {
	t.Helper()
	suite.Eventually(t, fmt.Sprintf("%d places of %s are free", want, user), func() bool { return s.freeSlots(t, user) == want })
}

// metric returns the sum of sluice's series of that name that have all labels, given as name="value".
func (s *stage) metric(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	return suite.Metrics(t, s.sluice).Sum(name, labels...)
}

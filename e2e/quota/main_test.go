// Package quota tests the rate limit quota service with real Envoys. It checks all requests that
// they admit against the limit.
package quota_test

import (
	"bytes"
	"context"
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/backend"
	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// root is the relative path of the repository's root.
const root = "../.."

// sluiceBinary is the path of the binary that TestMain builds.
var sluiceBinary string

func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "4"); err != nil { // most tests wait for reports, which Envoys send every 5 s
		panic(err)
	}
	os.Exit(suite.Main(m, root, func(binary, _ string) { sluiceBinary = binary }))
}

// harness is a sluice, the Envoys that use it, and the backend behind them.
type harness struct {
	rules   string // path of the rules file
	sluice  *sluice.Sluice
	envoys  []*envoy.Envoy
	backend *backend.Backend
	client  *http.Client
	begun   time.Time
	args    []string
	addr    string   // address of sluice
	others  []string // addresses of the other sluices that Envoys use

	mu       sync.Mutex
	admitted []admission
	denied   int
}

// admission is a request that an Envoy admitted at some time between sent and answered.
type admission struct {
	sent, answered time.Duration
	envoy          int
	user           string
}

// start starts a harness with the given rules and number of Envoys.
func start(t *testing.T, rules string, envoys int, args ...string) *harness {
	t.Helper()
	suite.Envoy(t, root) // skips the test if no Envoy is installed
	dir := suite.ShortDir(t)
	s := &harness{
		rules: filepath.Join(dir, "rules.yaml"), backend: suite.StartBackend(t), begun: time.Now(), addr: "unix://" + filepath.Join(dir, "sluice.sock"),
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}},
	}
	t.Cleanup(s.client.CloseIdleConnections)
	s.args = append([]string{"--config", s.rules}, args...)
	s.writeRules(t, rules)
	s.startSluice(t)
	for range envoys {
		s.startEnvoy(t)
	}
	return s
}

func (s *harness) writeRules(t *testing.T, rules string) {
	t.Helper()
	suite.Replace(t, s.rules, rules)
}

// startSluice starts sluice, or restarts it at the same address.
func (s *harness) startSluice(t *testing.T) {
	t.Helper()
	s.sluice = s.startSluiceAt(t, s.addr)
}

// startSluiceAt starts a further sluice at the given address.
func (s *harness) startSluiceAt(t *testing.T, addr string) *sluice.Sluice {
	t.Helper()
	return suite.StartSluice(t, sluice.Options{Binary: sluiceBinary, Args: s.args, Addrs: map[string]string{"grpc": addr}})
}

// startEnvoy starts a further Envoy. replacements are pairs of an old and a new text of its
// configuration.
func (s *harness) startEnvoy(t *testing.T, replacements ...string) {
	t.Helper()
	config, err := os.ReadFile("testdata/filters.yaml")
	must.OK(t, err)
	for i := 0; i < len(replacements); i += 2 {
		if !bytes.Contains(config, []byte(replacements[i])) {
			t.Fatalf("the configuration has no %s", replacements[i])
		}
		config = bytes.ReplaceAll(config, []byte(replacements[i]), []byte(replacements[i+1]))
	}
	s.envoys = append(s.envoys, suite.StartEnvoy(t, root, envoy.Options{
		Bootstrap: config,
		Clusters:  map[string][]string{"sluice": append([]string{s.addr}, s.others...), "backend": {s.backend.Addr}},
	}))
}

// request sends a request of a user to an Envoy and reports whether it was admitted.
func (s *harness) request(ctx context.Context, t *testing.T, at int, user string) bool {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.envoys[at].Addr("ingress")+"/", http.NoBody)
	if err != nil {
		t.Error(err)
		return false
	}
	r.Header.Set("X-User", user)
	sent := time.Since(s.begun)
	reply, err := s.client.Do(r)
	if err != nil {
		if ctx.Err() == nil {
			t.Error(err)
		}
		return false
	}
	_, _ = io.Copy(io.Discard, reply.Body)
	_ = reply.Body.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch reply.StatusCode {
	case http.StatusOK:
		s.admitted = append(s.admitted, admission{sent, time.Since(s.begun), at, user})
	case http.StatusTooManyRequests:
		s.denied++
	default:
		t.Errorf("a response has the status %d", reply.StatusCode)
	}
	return reply.StatusCode == http.StatusOK
}

// load sends requests of a user to an Envoy, at most one per interval, until ctx ends.
func (s *harness) load(ctx context.Context, t *testing.T, at int, user string, every time.Duration) {
	t.Helper()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.request(ctx, t, at, user)
		case <-ctx.Done():
			return
		}
	}
}

// checkBound fails the test if in any interval the Envoys together admitted more requests of a user
// than rate x its length + burst. A request counts in an interval only if it was sent and answered
// within it, since the time of its admission is not known exactly. So a busy machine does not
// cause a false failure. checkBound returns the number of requests.
func (s *harness) checkBound(t *testing.T, user string, rate, burst float64) int {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []admission
	for _, a := range s.admitted {
		if a.user == user {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(a, b admission) int { return int(a.answered - b.answered) })
	worst, from, to := 0.0, time.Duration(0), time.Duration(0)
	for _, first := range all {
		n := 0
		for _, a := range all {
			if a.sent < first.sent {
				continue
			}
			n++
			if excess := float64(n) - rate*(a.answered-first.sent).Seconds(); excess > worst {
				worst, from, to = excess, first.sent, a.answered
			}
		}
	}
	if t.Logf("%d requests of %q were admitted; greatest excess over the rate: %.1f of %.0f, from %v to %v", len(all), user, worst, burst, from, to); worst > burst {
		t.Errorf("in the %v from %v on, the Envoys admitted %.1f more requests of %q than %g a second, want at most %g more", to-from, from, worst, user, rate, burst)
	}
	return len(all)
}

// metric returns the sum of the series of a metric that have all given labels, such as
// `domain="d"`.
func (s *harness) metric(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	return suite.Metrics(t, s.sluice).Sum(name, labels...)
}

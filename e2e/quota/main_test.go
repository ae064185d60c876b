// Package quota tests the rate limit quota service behind real Envoys: all that they admit is held against the limit.
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

// root is the repository's root, seen from here.
const root = "../.."

// sluiceBinary is what TestMain built for all tests.
var sluiceBinary string

func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "4"); err != nil { // most tests wait for reports of Envoys, each of which takes 5 s
		panic(err)
	}
	os.Exit(suite.Main(m, root, func(binary, _ string) { sluiceBinary = binary }))
}

// A stage is sluice, Envoys that ask it, and the backend behind them.
type stage struct {
	rules   string // where they are
	sluice  *sluice.Sluice
	envoys  []*envoy.Envoy
	backend *backend.Backend
	client  *http.Client
	begun   time.Time
	args    []string
	addr    string   // of sluice
	others  []string // addresses of other sluices that Envoys may ask

	mu       sync.Mutex
	admitted []admission
	denied   int
}

// admission is a request that an Envoy let pass, at a time that its client knows to lie within these.
type admission struct {
	sent, answered time.Duration
	envoy          int
	user           string
}

// play starts a stage with so many Envoys.
func play(t *testing.T, rules string, envoys int, args ...string) *stage {
	t.Helper()
	suite.Envoy(t, root) // skips where none is installed, before anything runs
	dir := suite.ShortDir(t)
	s := &stage{
		rules: filepath.Join(dir, "rules.yaml"), backend: suite.StartBackend(t), begun: time.Now(), addr: "unix://" + filepath.Join(dir, "sluice.sock"),
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}},
	}
	t.Cleanup(s.client.CloseIdleConnections)
	s.args = append([]string{"--config", s.rules}, args...)
	s.write(t, rules)
	s.startSluice(t)
	for range envoys {
		s.startEnvoy(t)
	}
	return s
}

func (s *stage) write(t *testing.T, rules string) {
	t.Helper()
	suite.Replace(t, s.rules, rules)
}

// startSluice starts sluice, or starts it again at the same address.
func (s *stage) startSluice(t *testing.T) {
	t.Helper()
	s.sluice = s.startSluiceAt(t, s.addr)
}

// startSluiceAt starts a sluice at an address.
func (s *stage) startSluiceAt(t *testing.T, addr string) *sluice.Sluice {
	t.Helper()
	return suite.StartSluice(t, sluice.Options{Binary: sluiceBinary, Args: s.args, Addrs: map[string]string{"grpc": addr}})
}

// startEnvoy starts one more Envoy. Replacements are pairs of texts of its configuration, the old one and the new.
func (s *stage) startEnvoy(t *testing.T, replacements ...string) {
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

// ask sends a request of a user to an Envoy, and reports whether it was let pass.
func (s *stage) ask(ctx context.Context, t *testing.T, at int, user string) bool {
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
		t.Errorf("a request has the status %d", reply.StatusCode)
	}
	return reply.StatusCode == http.StatusOK
}

// load has an Envoy get requests of a user at most this often, until ctx ends.
func (s *stage) load(ctx context.Context, t *testing.T, at int, user string, every time.Duration) {
	t.Helper()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.ask(ctx, t, at, user)
		case <-ctx.Done():
			return
		}
	}
}

// hold fails the test if a user's requests were let pass beyond rate x time + burst in any interval, whichever Envoys
// let them pass. Of each request it is known within which times it was let pass, so that an interval has those that
// began and ended in it, and a busy machine only makes them fewer. It returns how many there were.
func (s *stage) hold(t *testing.T, user string, rate, burst float64) int {
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
			if beyond := float64(n) - rate*(a.answered-first.sent).Seconds(); beyond > worst {
				worst, from, to = beyond, first.sent, a.answered
			}
		}
	}
	if t.Logf("%d requests of %q passed; most beyond the rate: %.1f of %.0f, from %v to %v", len(all), user, worst, burst, from, to); worst > burst {
		t.Errorf("in %v from %v on, the Envoys let %.1f more requests of %q pass than %g a second, allowed are %g", to-from, from, worst, user, rate, burst)
	}
	return len(all)
}

// since forgets what was let pass before a time.
func (s *stage) since(begun time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.admitted = slices.DeleteFunc(s.admitted, func(a admission) bool { return a.sent < begun })
}

// metric returns the sum of sluice's series of that name that have all labels, given as name="value".
func (s *stage) metric(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	return suite.Metrics(t, s.sluice).Sum(name, labels...)
}

// Package leases compares limits that grant leases, concurrency and reserve, with a ledger that
// follows the documentation. It makes the calls that Envoy makes.
package leases_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

var sluiceBinary string

func TestMain(m *testing.M) {
	os.Exit(suite.Main(m, "../..", func(binary, _ string) { sluiceBinary = binary }))
}

const (
	seedsPerProcess = 5
	callsPerProcess = 120 // calls of each seed between two restarts
)

// seeds returns the number of seeds of each mode: 10, or 50 with SLUICE_EFFORT=100.
func seeds(t *testing.T) int {
	t.Helper()
	if effort.Level(t) >= effort.All {
		return 50
	}
	return 10
}

// TestMemory compares decisions in memory.
func TestMemory(t *testing.T) { compare(t, mode{}) }

// TestStore compares decisions in a store that two replicas share, and their successors after a
// restart.
func TestStore(t *testing.T) {
	server := storetest.Start(t)
	compare(t, mode{args: []string{"--store", "redis://" + server.Addr, "--store-timeout", "1m", "--store-dial-timeout", "1m"}, replicas: 2, restarts: []bool{true}})
}

// TestStateFile compares decisions over restarts with a state file, with and without restored
// leases.
func TestStateFile(t *testing.T) { compare(t, mode{restarts: []bool{false, true, false}}) }

// mode determines where counters are stored.
type mode struct {
	args     []string
	replicas int    // number of replicas that share a store; 0 without a store
	restarts []bool // for each restart: whether the next process restores leases, which a store always does
}

// compare plays all seeds, several per process. Seeds whose counters span the end of an hour are
// played again.
func compare(t *testing.T, m mode) {
	t.Helper()
	t.Parallel()
	found := 0
	for first := 1; first <= seeds(t); first += seedsPerProcess {
		for again := true; again; {
			hour := time.Now().Truncate(time.Hour)
			worlds := m.play(t, first)
			if again = !time.Now().Truncate(time.Hour).Equal(hour); again {
				t.Logf("an hour has ended; repeating seeds %d to %d", first, first+seedsPerProcess-1)
				continue
			}
			for _, w := range worlds {
				found += len(w.violations)
				for _, v := range w.violations[:min(1, len(w.violations))] {
					t.Error(v)
				}
			}
		}
	}
	t.Logf("seeds 1 to %d: %d violations", seeds(t), found)
}

// play plays some seeds in one process, and in its successors.
func (m mode) play(t *testing.T, first int) []*world {
	t.Helper()
	dir := t.TempDir()
	args := append([]string{"--config", filepath.Join(dir, "rules.yaml"), "--lease-grace", "0s"}, m.args...)
	if m.replicas > 0 {
		args = append(args, "--store-prefix", fmt.Sprint(filepath.Base(dir), first))
	}
	if m.restarts != nil && m.replicas == 0 {
		args = append(args, "--state-file", filepath.Join(dir, "state"))
	}
	var worlds []*world
	var file strings.Builder
	for seed := first; seed < first+seedsPerProcess; seed++ {
		r := rand.New(rand.NewPCG(uint64(seed), 39))
		w := &world{Rand: r, seed: seed, nodes: rules(seed, r), counters: map[string]*counter{}, replicas: m.replicas}
		worlds = append(worlds, w)
		file.WriteString(yaml(w.nodes))
		for _, n := range w.nodes {
			for _, l := range n.limits {
				if l.table != "" {
					path := filepath.Join(dir, l.table+".csv")
					args = append(args, "--table", l.table+"="+path)
					suite.Replace(t, path, l.csv(n.key))
				}
			}
		}
	}
	suite.Replace(t, filepath.Join(dir, "rules.yaml"), file.String())
	m.run(t, worlds, args, len(m.restarts) == 0)
	for i, restored := range m.restarts {
		for _, w := range worlds {
			w.applyRestart(restored)
		}
		next := slices.Clone(args)
		if restored && m.replicas == 0 {
			next = append(next, "--state-file-leases")
		}
		m.run(t, worlds, next, i == len(m.restarts)-1)
	}
	return worlds
}

// run plays worlds concurrently in one process, and shuts it down. In the last process all requests
// end before the shutdown.
func (m mode) run(t *testing.T, worlds []*world, args []string, last bool) {
	t.Helper()
	var replicas []*sluice.Sluice
	var clients []rls.RateLimitServiceClient
	for range max(1, m.replicas) {
		replica := suite.StartSluice(t, sluice.Options{Binary: sluiceBinary, Args: args})
		replicas = append(replicas, replica)
		if m.replicas > 0 {
			suite.Eventually(t, "the store is available", func() bool { return suite.Metrics(t, replica).Sum("sluice_store_up") == 1 })
		}
		for range 2 {
			conn, err := grpc.NewClient("passthrough:///"+replica.Addr("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
			must.OK(t, err)
			defer conn.Close()
			clients = append(clients, rls.NewRateLimitServiceClient(conn))
		}
	}
	first := replicas[0]
	group, playing := errgroup.WithContext(t.Context()) // without a time limit
	for _, w := range worlds {
		w.clients = clients
		w.readCounters = func(a descriptor) []shownCounter { return readCounters(t, first, a) }
		w.reset = func(a descriptor) { reset(t, first, a) }
		group.Go(func() error {
			if err := w.play(playing, callsPerProcess); err != nil || !last {
				return err
			}
			return w.finish(playing)
		})
	}
	must.OK(t, group.Wait())
	if n := suite.Metrics(t, first).Sum("sluice_leases_active"); last && n != 0 {
		worlds[0].fail(nil, "all requests of all seeds have ended, but %v leases are active", n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	for _, replica := range replicas {
		if _, err := replica.Stop(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// page returns the URL of the counters of a descriptor on the debug listener.
func page(s *sluice.Sluice, a descriptor) string {
	query := url.Values{"domain": {a.domain}, "descriptor": {a.key + "=" + a.tenant}}
	if a.over != nil {
		query.Set("limit", fmt.Sprintf("%d/%s", a.over.n, a.over.unit))
	}
	return "http://" + s.Addr("debug") + "/counters?" + query.Encode()
}

// readCounters reads counters without changing them.
func readCounters(t *testing.T, s *sluice.Sluice, a descriptor) []shownCounter {
	t.Helper()
	var answer struct{ Counters []shownCounter }
	if err := json.Unmarshal(suite.Get(t, page(s, a)), &answer); err != nil {
		t.Error(err)
	}
	return answer.Counters
}

// reset resets the counters of a descriptor.
func reset(t *testing.T, s *sluice.Sluice, a descriptor) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, page(s, a), http.NoBody)
	if err != nil {
		panic(err) // the URL is valid
	}
	request.Close = true
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Error(err)
		return
	}
	if _ = answer.Body.Close(); answer.StatusCode != http.StatusOK {
		t.Errorf("the response to a reset is %s", answer.Status)
	}
}

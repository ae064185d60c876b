package examples_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/e2e/window"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

const (
	shardedUsers = 300
	// shardedLimit is the limit per user in examples/sharded/rules.yaml.
	shardedLimit = 20
	// shardedTries is the number of requests per user and round.
	shardedTries = shardedLimit + 4
)

// shards runs examples/sharded. The ports of its envoy.yaml are mapped to those of the replicas.
type shards struct {
	replicas []*sluice.Sluice
	// endpoints maps the endpoints of envoy.yaml to real addresses.
	endpoints map[string]string
	envoy     *envoy.Envoy
	client    *http.Client
	hour      time.Time // of all counters
}

func startShards(t *testing.T) *shards {
	t.Helper()
	window.AwaitHour(t)
	s := &shards{
		hour:      time.Now().Truncate(time.Hour),
		endpoints: make(map[string]string),
		client:    &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}},
	}
	t.Cleanup(s.client.CloseIdleConnections)
	for _, at := range []string{"127.0.0.1:8081", "127.0.0.1:8082", "127.0.0.1:8083"} {
		s.add(t, at)
	}
	s.envoy = startEnvoy(t, shardedConfig(t), s.endpoints)
	return s
}

// add starts a replica for an endpoint.
func (s *shards) add(t *testing.T, endpoint string) {
	t.Helper()
	replica := startSluice(t, sluice.Options{Args: shardedFlags, Addrs: map[string]string{"grpc": storetest.FreeAddress(t)}})
	s.replicas = append(s.replicas, replica)
	s.endpoints[endpoint] = replica.Addr("grpc")
}

// shardedConfig returns the example's Envoy configuration, changed to deny on errors, so that a
// request passes only if sluice admitted it.
func shardedConfig(t *testing.T) object {
	t.Helper()
	config := example(t, "sharded", "envoy.yaml")
	eachObject(config, func(o object) {
		if kind, _ := o["@type"].(string); strings.HasSuffix(kind, ".ratelimit.v3.RateLimit") {
			o["failure_mode_deny"] = true
		}
	})
	return config
}

// addFourthReplica adds a replica, and restarts Envoy with an endpoint for it.
func (s *shards) addFourthReplica(t *testing.T) {
	t.Helper()
	s.add(t, "127.0.0.1:8084")
	config := shardedConfig(t)
	eachObject(config, func(o object) {
		hosts, ok := o["lb_endpoints"].(list)
		if !ok || len(hosts) != 3 {
			return
		}
		o["lb_endpoints"] = append(hosts, object{
			"endpoint": object{"address": object{"socket_address": object{"address": "127.0.0.1", "port_value": 8084}}},
			"metadata": object{"filter_metadata": object{"envoy.lb": object{"hash_key": "sluice-3"}}},
		})
	})
	s.envoy.Kill()
	s.client.CloseIdleConnections()
	s.envoy = startEnvoy(t, config, s.endpoints)
	s.awaitHealthy(t, 4)
}

var shardedFlags = []string{"--config", "examples/sharded/rules.yaml", "--counter-memory", "4MiB"}

// errDisturbed is returned if the hour ended, or if calls failed or the set of healthy replicas
// changed according to Envoy's statistics. The numbers of passed requests are then meaningless.
var errDisturbed = errors.New("calls of Envoy failed, the set of healthy replicas changed, or the hour ended")

// sendAll sends all users' requests, interleaved, from many concurrent clients. It returns the
// number of passed requests per user, or [errDisturbed].
func (s *shards) sendAll(t *testing.T) (map[string]int, error) {
	t.Helper()
	before := s.disturbances(t)
	requests := make([]string, 0, shardedUsers*shardedTries)
	for user := range shardedUsers {
		for range shardedTries {
			requests = append(requests, fmt.Sprint("user-", user))
		}
	}
	rand.Shuffle(len(requests), func(i, j int) { requests[i], requests[j] = requests[j], requests[i] })
	passed := make(map[string]int)
	failed := 0
	var mu sync.Mutex
	clients, ctx := errgroup.WithContext(t.Context())
	clients.SetLimit(32)
	for _, user := range requests {
		clients.Go(func() error {
			status, err := s.get(ctx, user)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			switch status {
			case http.StatusOK:
				passed[user]++
			case http.StatusTooManyRequests:
			default:
				failed++
			}
			return nil
		})
	}
	must.OK(t, clients.Wait())
	if after := s.disturbances(t); !maps.Equal(before, after) || s.isOver() {
		return nil, fmt.Errorf("%w: %d requests failed; before %v, after %v", errDisturbed, failed, before, after)
	}
	if failed > 0 {
		t.Fatalf("%d requests have neither status 200 nor 429, although sluice answered every call", failed)
	}
	return passed, nil
}

// disturbances returns Envoy's statistics of failed calls and of changes of the healthy replicas.
func (s *shards) disturbances(t *testing.T) map[string]int {
	t.Helper()
	return suite.EnvoyStats(t, s.envoy, `ratelimit\.error$|^cluster\.sluice\.(membership_healthy|membership_change)$`)
}

// isOver reports whether the hour has ended, at which the counters start again.
func (s *shards) isOver() bool { return !time.Now().Truncate(time.Hour).Equal(s.hour) }

func (s *shards) get(ctx context.Context, user string) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.envoy.Addr("ingress")+"/", http.NoBody)
	if err != nil {
		return 0, err
	}
	if user != "" {
		req.Header.Set("X-User", user)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// owners returns the index of the replica that counted each user. It fails the test if two replicas
// counted a user.
func (s *shards) owners(t *testing.T) map[string]int {
	t.Helper()
	owners := make(map[string]int)
	for n, replica := range s.replicas {
		for i := range shardedUsers {
			user := fmt.Sprint("user-", i)
			if s.hitsOf(t, replica, user) == 0 {
				continue
			}
			if other, twice := owners[user]; twice {
				t.Errorf("%s was counted by replica %d and by replica %d", user, other, n)
			}
			owners[user] = n
		}
	}
	return owners
}

// hitsOf returns the number of a user's hits on a replica.
func (s *shards) hitsOf(t *testing.T, replica *sluice.Sluice, user string) (hitsOf int) {
	t.Helper()
	query := url.Values{"domain": {"sharded"}, "descriptor": {"user=" + user}}
	resp, err := s.client.Get("http://" + replica.Addr("debug") + "/counters?" + query.Encode())
	must.OK(t, err)
	defer resp.Body.Close()
	var report struct{ Counters []struct{ Used int } }
	if err := json.NewDecoder(resp.Body).Decode(&report); err != nil || len(report.Counters) != 1 {
		t.Fatalf("counters of %s: %d, %v, want one", user, len(report.Counters), err)
	}
	return report.Counters[0].Used
}

// awaitHealthy waits until Envoy considers the given number of replicas healthy.
func (s *shards) awaitHealthy(t *testing.T, want int) {
	t.Helper()
	suite.Eventually(t, fmt.Sprintf("Envoy considers %d replicas healthy", want), func() bool {
		return suite.EnvoyStats(t, s.envoy, `^cluster\.sluice\.membership_healthy$`)["cluster.sluice.membership_healthy"] == want
	})
	// Workers may get this update later than Envoy's main thread. A worker that has answered two
	// requests on one connection has the update.
	for range 2 {
		var clients errgroup.Group
		for range 64 {
			clients.Go(func() error {
				_, err := s.get(t.Context(), "") // without a user Envoy makes no call
				return err
			})
		}
		must.OK(t, clients.Wait())
	}
}

// TestShardsAreExact runs examples/sharded. Three replicas share the users, and each user's limit
// is exact. Only the counters of users of a lost replica, and of users that move to a new replica,
// start again. The test is repeated if Envoy was disturbed, as on a busy machine.
func TestShardsAreExact(t *testing.T) {
	t.Parallel()
	const attempts = 5
	var err error
	for range attempts {
		if err = checkShards(t); err == nil {
			return
		}
		t.Log(err)
	}
	t.Errorf("all %d attempts were disturbed", attempts)
}

// checkShards returns an error if Envoy was disturbed.
func checkShards(t *testing.T) error {
	t.Helper()
	s := startShards(t)
	defer s.killAll()
	s.awaitHealthy(t, 3)
	check := func(when string, want func(user string) int) error {
		t.Helper()
		passed, err := s.sendAll(t)
		if err != nil {
			return fmt.Errorf("%s: %w", when, err)
		}
		for i := range shardedUsers {
			user := fmt.Sprint("user-", i)
			if got := passed[user]; got != want(user) {
				t.Errorf("%s: %d requests of %s passed, want %d", when, got, user, want(user))
			}
		}
		return nil
	}

	if err := check("at first", func(string) int { return shardedLimit }); err != nil {
		return err
	}
	owners := s.owners(t)
	switch {
	case s.isOver():
		return errDisturbed
	case len(owners) != shardedUsers:
		t.Fatalf("the replicas counted %d users, want %d", len(owners), shardedUsers)
	}
	const lost = 1
	orphans := 0
	for _, n := range owners {
		if n == lost {
			orphans++
		}
	}
	if least := shardedUsers / 6; orphans < least || orphans > 3*least {
		t.Fatalf("one of three replicas has %d of %d users, want about a third", orphans, shardedUsers)
	}
	again := func(user string) int {
		if owners[user] == lost {
			return shardedLimit
		}
		return 0
	}

	s.replicas[lost].Kill()
	s.awaitHealthy(t, 2)
	if err := check("after the loss of a replica", again); err != nil {
		return err
	}
	if err := check("again after the loss", func(string) int { return 0 }); err != nil {
		return err
	}

	// The replica restarts without counters, and its users return to it.
	s.replicas[lost] = startSluice(t, sluice.Options{
		Args:  shardedFlags,
		Addrs: map[string]string{"grpc": s.replicas[lost].Addr("grpc")},
	})
	s.awaitHealthy(t, 3)
	if err := check("after its return", again); err != nil {
		return err
	}
	return s.checkFourthReplica(t)
}

// checkFourthReplica adds a replica, which gets a quarter of the users. Only their counters start
// again.
func (s *shards) checkFourthReplica(t *testing.T) error {
	t.Helper()
	s.addFourthReplica(t)
	passed, err := s.sendAll(t)
	if err != nil {
		return fmt.Errorf("with a fourth replica: %w", err)
	}
	moved := make(map[string]int) // and how many requests of each user pass
	for i := range shardedUsers {
		if user := fmt.Sprint("user-", i); s.hitsOf(t, s.replicas[3], user) > 0 {
			moved[user] = shardedLimit
		}
	}
	if s.isOver() {
		return errDisturbed
	}
	for i := range shardedUsers {
		user := fmt.Sprint("user-", i)
		if got := passed[user]; got != moved[user] {
			t.Errorf("with a fourth replica: %d requests of %s passed, want %d", got, user, moved[user])
		}
	}
	if least := shardedUsers / 8; len(moved) < least || len(moved) > 3*least {
		t.Errorf("%d of %d users moved to the fourth of four replicas, want about a quarter", len(moved), shardedUsers)
	}
	return nil
}

func (s *shards) killAll() {
	s.client.CloseIdleConnections()
	s.envoy.Kill()
	for _, replica := range s.replicas {
		replica.Kill()
	}
}

// Package clients tests sluice with gRPC clients other than Envoy. They open many calls
// at once and send more frames for each.
package clients_test

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/e2e/window"
)

const root = "../.."

// grpcioVersion is what make grpcio fetches.
const grpcioVersion = "1.85.1"

// calls is how many calls are made at once, after a first one.
const (
	calls = 2000
	rules = `
domain: d
descriptors:
- { key: user, rate_limit: { unit: year, requests_per_unit: 1500 } }
- { key: held, rate_limit: { unit: second, requests_per_unit: 2000, algorithm: leaky_bucket, slack: 0, max_wait: 60s, max_waiting: 20000 } }
`
)

var binary string

func TestMain(m *testing.M) {
	os.Exit(suite.Main(m, root, func(path, _ string) { binary = path }))
}

func TestTheVersionIsThatOfTheMakefile(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	if line := "\nGRPCIO_VERSION := " + grpcioVersion + "\n"; !strings.Contains(string(makefile), line) {
		t.Errorf("the Makefile has no line %q", line)
	}
}

// burst is a call, and then many others of one sort at once.
type burst struct{ first, others *rls.RateLimitRequest }

// client makes one burst after the other over one connection. It returns how often each
// answer came, by burst.
type client func(t *testing.T, addr string, bursts [2]burst) []map[string]int

// TestManyCallsAtOnce has each client open 2,000 calls before it has an answer, on a new
// connection and on a used one. All are answered, exact to the hit.
func TestManyCallsAtOnce(t *testing.T) {
	t.Parallel()
	rounds := 2
	if os.Getenv("SLUICE_LONG") != "" {
		rounds = 10
	}
	window.AwaitHour(t)
	for name, run := range map[string]client{"grpcio": grpcio, "grpc-go": grpcGo} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range rounds {
				answered(t, run)
				held(t, run)
			}
		})
	}
}

func answered(t *testing.T, run client) {
	t.Helper()
	limits := start(t)
	got := run(t, limits.Addr("grpc"), [2]burst{
		{request("user", "new", 1), request("user", "new", 1)},
		{request("user", "used", 1), request("user", "used", 1)},
	})
	expect(t, limits, got, map[string]int{"OK": 1500, "OVER_LIMIT": 1 + calls - 1500})
}

// held holds the first call for a second and all others behind it. So the connection has
// as many open calls as it may before the first answer.
func held(t *testing.T, run client) {
	t.Helper()
	limits := start(t)
	got := run(t, limits.Addr("grpc"), [2]burst{
		{request("held", "new", 2000), request("held", "new", 1)},
		{request("held", "used", 2000), request("held", "used", 1)},
	})
	expect(t, limits, got, map[string]int{"OK": 1 + calls})
	if n := number(t, limits, "sluice_waited_calls_total"); n < calls {
		t.Errorf("%v of %d calls were held", n, 2*calls)
	}
}

func expect(t *testing.T, limits *sluice.Sluice, got []map[string]int, want map[string]int) {
	t.Helper()
	connections := []string{"new", "used"}
	if len(got) != len(connections) {
		t.Fatalf("the client tells of %d rounds, want %d", len(got), len(connections))
	}
	for i, connection := range connections {
		if !maps.Equal(got[i], want) {
			t.Errorf("over a %s connection %d calls were answered with %v, want %v", connection, calls, got[i], want)
		}
	}
	if n := number(t, limits, "sluice_ended_connections_total"); n != 0 {
		t.Errorf("%v connections were ended, want none", n)
	}
}

func start(t *testing.T) *sluice.Sluice {
	t.Helper()
	config := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(config, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	s, err := sluice.Start(ctx, sluice.Options{Binary: binary, Args: []string{"--counter-memory", "4MiB", "--config", config}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	return s
}

func request(key, value string, hits uint64) *rls.RateLimitRequest {
	return &rls.RateLimitRequest{Domain: "d", Descriptors: []*rlcommon.RateLimitDescriptor{{
		Entries:    []*rlcommon.RateLimitDescriptor_Entry{{Key: key, Value: value}},
		HitsAddend: wrapperspb.UInt64(hits),
	}}}
}

// grpcio is gRPC's C core, as in Python, C++, Ruby and PHP. It sends two WINDOW_UPDATEs
// with every call, before any answer.
func grpcio(t *testing.T, addr string, bursts [2]burst) []map[string]int {
	t.Helper()
	library, err := filepath.Abs(filepath.Join(root, ".build", "grpcio-"+grpcioVersion))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(library); errors.Is(err, os.ErrNotExist) {
		suite.NotRun(t, "there is no grpcio "+grpcioVersion+": run `make grpcio`, which says why")
	}
	args := []string{"testdata/calls.py", addr, strconv.Itoa(calls)}
	for _, b := range bursts {
		first, err := proto.Marshal(b.first)
		if err != nil {
			t.Fatal(err)
		}
		others, err := proto.Marshal(b.others)
		if err != nil {
			t.Fatal(err)
		}
		args = append(args, hex.EncodeToString(first)+","+hex.EncodeToString(others))
	}
	cmd := exec.CommandContext(t.Context(), "python3", args...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+library)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, said.String())
	}
	var all []map[string]int
	for line := range strings.Lines(string(out)) {
		var answers map[string]int
		if err := json.Unmarshal([]byte(line), &answers); err != nil {
			t.Fatal(err)
		}
		all = append(all, answers)
	}
	return all
}

func grpcGo(t *testing.T, addr string, bursts [2]burst) []map[string]int {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	var all []map[string]int
	for _, b := range bursts {
		var (
			wg      sync.WaitGroup
			mu      sync.Mutex
			answers = map[string]int{}
		)
		ask := func(r *rls.RateLimitRequest) {
			got, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, r)
			answer := got.GetOverallCode().String()
			if err != nil {
				answer = err.Error()
			}
			mu.Lock()
			answers[answer]++
			mu.Unlock()
		}
		wg.Go(func() { ask(b.first) })
		for range calls {
			wg.Go(func() { ask(b.others) })
		}
		wg.Wait()
		all = append(all, answers)
	}
	return all
}

// number returns the sum of the series of that name.
func number(t *testing.T, s *sluice.Sluice, name string) (sum float64) {
	t.Helper()
	c := &http.Client{Timeout: time.Minute}
	defer c.CloseIdleConnections()
	resp, err := c.Get("http://" + s.Addr("metrics") + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines, found := bufio.NewScanner(resp.Body), false
	for lines.Scan() {
		series, value, _ := strings.Cut(lines.Text(), " ")
		if got, _, _ := strings.Cut(series, "{"); got != name {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		sum, found = sum+v, true
	}
	if !found {
		t.Fatalf("there is no %s (%v)", name, lines.Err())
	}
	return sum
}

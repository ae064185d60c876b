// Package clients tests sluice with gRPC clients other than Envoy. They open more concurrent calls,
// send more frames per call, and handle windows, headers and the ends of calls differently.
package clients_test

import (
	"bufio"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/e2e/window"
	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/testcert"
)

const root = "../.."

const rules = `
domain: d
descriptors:
- { key: user, rate_limit: { unit: year, requests_per_unit: 1500 } }
- { key: held, rate_limit: { unit: second, requests_per_unit: 2000, algorithm: leaky_bucket, slack: 0, max_wait: 60s, max_waiting: 20000 } }
- { key: long held, rate_limit: { unit: minute, requests_per_unit: 60000, algorithm: leaky_bucket, slack: 0, max_wait: 60s, max_waiting: 100000 } }
`

var (
	built string
	// This program is also the grpc-go client.
	calls = flag.Bool("calls", false, "make the calls that standard input asks for, and run no tests")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if *calls {
		os.Exit(callByGRPCGo(flag.Args()))
	}
	os.Exit(suite.Main(m, root, func(path, _ string) { built = path }))
}

// forEachTransport runs a test without and with TLS, sequentially, because a client uses the whole
// machine.
func forEachTransport(t *testing.T, test func(t *testing.T, limits *sluice.Sluice, authority string)) {
	t.Helper()
	for _, name := range []string{"plain", "TLS"} {
		t.Run(name, func(t *testing.T) {
			window.AwaitHour(t)
			var args []string
			authority := ""
			if name == "TLS" {
				files := certificate(t)
				args, authority = []string{"--grpc-tls-cert", files.Cert, "--grpc-tls-key", files.Key}, files.CA
			}
			limits := start(t, args...)
			test(t, limits, authority)
			if n := metricSum(t, limits, "sluice_grpc_connections_closed_total"); n != 0 {
				t.Errorf("%v connections were closed, want none", n)
			}
		})
	}
}

// certificate creates a certificate for the loopback address.
func certificate(t *testing.T) testcert.Files {
	t.Helper()
	authority, err := testcert.New(t.Name())
	must.OK(t, err)
	pair, err := authority.Issue(testcert.Leaf{Names: []string{"127.0.0.1"}})
	must.OK(t, err)
	files, err := testcert.Mount(t.TempDir(), pair, authority.PEM)
	must.OK(t, err)
	return files
}

// TestCalls has each client make calls of all kinds over one connection. All are answered, limits
// are exact, and the connection stays open.
func TestCalls(t *testing.T) {
	t.Parallel()
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			command := c.command(t)
			forEachTransport(t, func(t *testing.T, limits *sluice.Sluice, authority string) {
				t.Helper()
				addr := limits.Addr("grpc")
				for _, s := range burstSteps(t) {
					// Each on a new connection.
					dial(t, command, addr, authority).do(t, s)
				}
				conn := dial(t, command, addr, authority)
				for _, s := range ordinarySteps() {
					conn.do(t, s)
				}
				testCancelled(t, limits, dial(t, command, addr, authority), conn)
				testExpired(t, limits, conn)
			})
		})
	}
}

// burstSteps returns calls that start before the first answer, more than the allowed concurrent
// streams. Either the first reply is delayed by a second and all others wait for it, or none is.
func burstSteps(t *testing.T) []step {
	t.Helper()
	sizes := []int{1000, 2000}
	if effort.Level(t) >= effort.All {
		sizes = append(sizes, 10_000)
	}
	var all []step
	for _, n := range sizes {
		value := strconv.Itoa(n)
		ok := min(n, 1499)
		want := map[string]int{"OK": 1 + ok}
		if n > ok {
			want["OVER_LIMIT"] = n - ok
		}
		all = append(all,
			step{name: value + " at once", first: request("user", value, 1), calls: n, each: request("user", value, 1), want: want},
			step{name: value + " held", first: request("held", value, 2000), calls: n, each: request("held", value, 1), want: map[string]int{"OK": 1 + n}},
		)
	}
	return all
}

// ordinarySteps returns other kinds of calls that end with an answer.
func ordinarySteps() []step {
	return []step{
		{name: "one", calls: 1, each: request("user", "one", 1), want: map[string]int{"OK": 1}},
		{name: "50 KiB of metadata", calls: 10, each: request("user", "metadata", 1), metadata: 50 << 10, want: map[string]int{"OK": 10}},
		{name: "error", calls: 10, each: &rls.RateLimitRequest{HitsAddend: 1}, want: map[string]int{"UNKNOWN: rate limit domain must not be empty": 10}},
		// The deadline precedes the delayed reply.
		{name: "deadline", calls: 10, each: request("long held", "deadline", 55_000), timeout: 30 * time.Second, want: map[string]int{"OVER_LIMIT": 10}},
		// A burst on a connection that is already in use.
		{name: "2000 at once later", first: request("user", "later", 1), calls: 2000, each: request("user", "later", 1), want: map[string]int{"OK": 1500, "OVER_LIMIT": 501}},
		{name: "2000 held later", first: request("held", "later", 2000), calls: 2000, each: request("held", "later", 1), want: map[string]int{"OK": 2001}},
	}
}

// testCancelled has the client cancel calls whose replies are delayed after a call of another
// client. Their permits are released.
func testCancelled(t *testing.T, limits *sluice.Sluice, other, one *conn) {
	t.Helper()
	const n = 1000
	before := metricSum(t, limits, "sluice_delayed_responses_cancelled_total")
	wait := func(want float64) {
		t.Helper()
		suite.Eventually(t, fmt.Sprint(want, " calls wait"), func() bool { return metricSum(t, limits, "sluice_delayed_responses_pending") == want })
	}
	begin := func(c *conn, calls int, hits uint64) (finish func()) {
		t.Helper()
		return c.start(t, step{
			name: "cancelled", calls: calls, each: request("long held", "cancelled", hits),
			timeout: 2 * time.Minute, want: map[string]int{"CANCELLED": calls},
		})
	}
	finishOther := begin(other, 1, 55_000)
	wait(1)
	finish := begin(one, n, 1)
	wait(1 + n)
	finish()
	finishOther()
	wait(0)
	if got := metricSum(t, limits, "sluice_delayed_responses_cancelled_total") - before; got != 1+n {
		t.Errorf("%v permits were released, want %v", got, 1+n)
	}
}

// testExpired stops sluice until the deadlines of calls have passed. The connection continues to
// work.
func testExpired(t *testing.T, limits *sluice.Sluice, conn *conn) {
	t.Helper()
	send(t, limits, syscall.SIGSTOP)
	stat := fmt.Sprintf("/proc/%d/stat", limits.PID())
	suite.Eventually(t, "sluice has stopped", func() bool {
		text, err := os.ReadFile(stat)
		must.OK(t, err)
		_, state, _ := strings.Cut(string(text), ") ")
		return strings.HasPrefix(state, "T")
	})
	conn.do(t, step{name: "expired", calls: 100, each: request("user", "expired", 1), timeout: time.Second, want: map[string]int{"DEADLINE_EXCEEDED": 100}})
	send(t, limits, syscall.SIGCONT)
	conn.do(t, step{name: "after that", calls: 1, each: request("user", "after that", 1), want: map[string]int{"OK": 1}})
}

func send(t *testing.T, limits *sluice.Sluice, signal os.Signal) {
	t.Helper()
	must.OK(t, limits.Signal(signal))
}

// start starts sluice and stops it when the test ends.
func start(t *testing.T, args ...string) *sluice.Sluice {
	t.Helper()
	return suite.StartSluice(t, sluice.Options{Binary: built, Args: append(args, "--counter-memory", "4MiB", "--config", suite.WriteRules(t, rules))})
}

func request(key, value string, hits uint64) *rls.RateLimitRequest {
	return &rls.RateLimitRequest{Domain: "d", Descriptors: []*rlcommon.RateLimitDescriptor{{
		Entries:    []*rlcommon.RateLimitDescriptor_Entry{{Key: key, Value: value}},
		HitsAddend: wrapperspb.UInt64(hits),
	}}}
}

// metricSum returns the sum of the series with the given name.
func metricSum(t *testing.T, s *sluice.Sluice, name string) (sum float64) {
	t.Helper()
	c := &http.Client{Timeout: time.Minute}
	defer c.CloseIdleConnections()
	resp, err := c.Get("http://" + s.Addr("metrics") + "/metrics")
	must.OK(t, err)
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
		t.Fatalf("missing metric %s (%v)", name, lines.Err())
	}
	return sum
}

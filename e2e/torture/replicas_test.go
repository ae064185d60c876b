//go:build torture

package torture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/process"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// replicas are two sluices behind an Envoy.
type replicas struct {
	rules string
	delay string // --drain-delay
	addr  []string
	now   []*sluice.Sluice
	envoy *envoy.Envoy
	// web has one connection per client. One of Envoy's threads serves each connection.
	web [4]*http.Client
	n   atomic.Int64
}

func startReplicas(t *testing.T) *replicas {
	t.Helper()
	bootstrap, err := os.ReadFile("testdata/envoy.yaml")
	must.OK(t, err)
	return startReplicasBehind(t, bootstrap, 2, process.ScaleByLoad(2*time.Second).String())
}

// startReplicasBehind starts n replicas behind an Envoy with the given bootstrap.
func startReplicasBehind(t *testing.T, bootstrap []byte, n int, delay string) *replicas {
	t.Helper()
	suite.Envoy(t, Root) // skips the test before processes start
	r := &replicas{
		rules: suite.WriteRules(t, "domain: torture\ndescriptors: [{ key: remote_address, rate_limit: { unit: year, requests_per_unit: 4000000000 } }]\n"),
		delay: delay,
		now:   make([]*sluice.Sluice, n),
	}
	for range n {
		r.addr = append(r.addr, storetest.FreeAddress(t))
	}
	for i := range r.web {
		// Over HTTP/1.1 a stall would open a connection per call.
		transport := &http.Transport{Protocols: new(http.Protocols)}
		transport.Protocols.SetUnencryptedHTTP2(true)
		r.web[i] = &http.Client{Transport: transport}
		t.Cleanup(r.web[i].CloseIdleConnections)
	}
	for i := range r.now {
		r.start(t, i)
	}
	r.envoy = suite.StartEnvoy(t, Root, envoy.Options{Bootstrap: bootstrap, Clusters: map[string][]string{"sluice": r.addr}})
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("Envoy counted:\n" + r.stats(t))
		}
	})
	return r
}

func (r *replicas) start(t *testing.T, i int) {
	t.Helper()
	r.now[i] = Start(t, Options{
		Args:  []string{"--config", r.rules, "--drain-delay", r.delay},
		Addrs: map[string]string{"grpc": r.addr[i]},
	})
}

// stop stops a replica with SIGTERM, which drains it.
func (r *replicas) stop(t *testing.T, i int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	if code, err := r.now[i].Stop(ctx); code != 0 || err != nil {
		t.Fatalf("Stop() = %d, %v, want 0, nil; its log:\n%s", code, err, r.now[i].Log())
	}
}

// stats returns Envoy's statistics of its calls.
func (r *replicas) stats(t *testing.T) string {
	t.Helper()
	resp, err := http.Get("http://" + r.envoy.Admin + "/stats?usedonly&filter=sluice|ratelimit")
	if err != nil {
		return err.Error()
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// request sends a request through Envoy, which calls one of the replicas.
func (r *replicas) request(ctx context.Context) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.envoy.Addr("ingress")+"/", http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := r.web[int(r.n.Add(1))%len(r.web)].Do(req)
	if err != nil {
		return "", fmt.Errorf("no answer from Envoy: %w", errors.Unwrap(err))
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", errors.New(resp.Status)
	}
	return resp.Status, nil
}

// maxCalls is the largest number of calls in flight through Envoy, and envoyThreads that of its
// threads.
const maxCalls, envoyThreads = 200, 2

// load starts a load at the highest rate that the machine allows.
func (r *replicas) load(t *testing.T) *Load {
	t.Helper()
	return StartLoad(t, LoadOptions{
		Rate: Pick(1500, 5000), Call: r.request, Deadline: time.Minute, MaxInFlight: maxCalls, MinRate: MinRate,
	})
}

// awaitCalls waits until a restarted replica has received the given number of calls.
func (r *replicas) awaitCalls(t *testing.T, i, calls int) {
	t.Helper()
	suite.Eventually(t, fmt.Sprintf("%d calls to sluice %d", calls, i), func() bool {
		return suite.Metrics(t, r.now[i]).Sum("ratelimit_service_total_requests", `grpc_method="ShouldRateLimit"`) >= float64(calls)
	})
}

// TestRollingRestarts restarts two replicas in turn, repeatedly, as Kubernetes does. Behind Envoy
// no call fails.
func TestRollingRestarts(t *testing.T) {
	Parallel(t)
	r := startReplicas(t)
	load := r.load(t)
	load.Run(t, 2*time.Second)
	load.Phase("restarts")
	for range Pick(3, 10) {
		r.awaitCalls(t, 0, 500)
		r.stop(t, 0)
		r.start(t, 0)
	}
	r.awaitCalls(t, 0, 500)
	load.Phase("after")
	load.Run(t, 2*time.Second)
	report := load.Stop(t)
	report.AtLeast(t, MinRate, "before", "after")
	report.AtLeast(t, MinRate/4, "restarts") // starts need part of the machine
	report.NoErrors(t, "before", "restarts", "after")
}

// TestKill kills one of two replicas. Only its calls in flight and the calls sent to it before
// Envoy notices fail.
func TestKill(t *testing.T) {
	Parallel(t)
	const most = 64 // failed calls of the best kill, in addition to those in flight
	rnd := Rand(t)
	r := startReplicas(t)
	load := r.load(t)
	load.Run(t, 2*time.Second)
	inFlight := make([]int, Pick(4, 20))
	for n := range inFlight {
		i := rnd.IntN(2)
		load.Phase(fmt.Sprint("kill ", n+1))
		load.AwaitEarlierPhases(t)
		inFlight[n] = load.InFlight()
		signal(t, r.now[i], syscall.SIGKILL)
		load.AwaitAnswers(t, 1000)
		load.Phase(fmt.Sprint("one left ", n+1))
		load.AwaitAnswers(t, 500)
		r.start(t, i)
		r.awaitCalls(t, i, 500)
	}
	load.Phase("after")
	load.Run(t, 2*time.Second)
	report := load.Stop(t)
	report.AtLeast(t, MinRate, "before", "after")
	report.NoErrors(t, "before", "after")
	best := math.MaxInt
	for n := range inFlight {
		report.NoErrors(t, fmt.Sprint("one left ", n+1))
		failed := report.Phase(t, fmt.Sprint("kill ", n+1)).Failed()
		best = min(best, failed-inFlight[n])
		// When one of Envoy's threads notices, all calls that it has sent there fail, which are more on a
		// busy machine, but not more than there are at a time.
		if failed > inFlight[n]+envoyThreads*maxCalls {
			t.Errorf("kill %d: %d calls failed, at most %d were in flight", n+1, failed, inFlight[n])
		}
	}
	if best > most {
		t.Errorf("in each kill at least %d calls failed in addition to those in flight, want at most %d in one", best, most)
	}
}

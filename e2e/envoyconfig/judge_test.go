//go:build more

package envoyconfig_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"

	"github.com/sluice-ratelimit/sluice/e2e/backend"
	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// requestsPerKind is the number of requests that a judge sends of each kind.
const requestsPerKind = 100

// judge finds out which requests a variant limits, with a real Envoy and a real sluice. It is
// safe for concurrent use.
type judge struct {
	binary  string // of sluice
	backend *backend.Backend
	// slots bounds the number of Envoys that run at the same time.
	slots chan struct{}
}

// verdict describes how a variant treats requests.
type verdict struct {
	// rejected is Envoy's error if it does not load the bootstrap.
	rejected string
	// crashed reports whether Envoy ended before the requests did.
	crashed bool
	// kinds are the results of the kinds of requests, in order.
	kinds []kindVerdict
}

// kindVerdict is the result of [requestsPerKind] requests of one kind, which start with new counters.
type kindVerdict struct {
	passed, denied int
	// other is the number of requests with another status, by status. 0 is a failed connection.
	other map[int]int
	// firstDenied is the number of the first denied request, beginning at 1. 0 if none is denied.
	firstDenied int
	// calls is the number of calls that reached sluice.
	calls int
	// failedCalls is the number of calls that failed, after which Envoy lets a request pass. If it
	// is positive, passed proves nothing.
	failedCalls int
}

func newJudge(t *testing.T) *judge {
	t.Helper()
	suite.SkipAtYearEnd(t)
	suite.Envoy(t, root) // skips the test if there is none
	binary, err := sluice.Build(t.Context(), root, t.TempDir())
	must.OK(t, err)
	return &judge{binary: binary, backend: suite.StartBackend(t), slots: make(chan struct{}, 2)}
}

// run starts the variant, sends its requests one after the other, and stops it.
func (j *judge) run(t *testing.T, v variant) verdict {
	t.Helper()
	j.slots <- struct{}{}
	defer func() { <-j.slots }()
	// All sluices run until the end, so that no health check fails.
	var limiters []*sluice.Sluice
	for range v.requests {
		limiter := suite.StartSluice(t, sluice.Options{
			Binary: j.binary, Args: []string{"--config", suite.WriteRules(t, string(v.rules))},
			Addrs: map[string]string{"http": "", "metrics": "", "debug": ""},
		})
		defer limiter.Kill()
		limiters = append(limiters, limiter)
	}
	relay := startRelay(t)
	defer relay.stop()
	relay.forwardTo(t, limiters[0].Addr("grpc"))
	e, err := envoy.Start(t.Context(), envoy.Options{
		Binary:    suite.Envoy(t, root),
		Bootstrap: v.ports(port(t, relay.addr), port(t, j.backend.Addr), 0),
		Patient:   bytes.Contains(v.bootstrap, []byte("filters.http.ratelimit.v3.RateLimit")),
		Workers:   1,
		Dir:       suite.ShortDir(t),
	})
	if err != nil {
		_, why, critical := strings.Cut(err.Error(), "[critical]")
		if !critical {
			t.Fatalf("%s: %v", v.name, err)
		}
		return verdict{rejected: why}
	}
	defer e.Kill()
	s := &session{envoy: e, relay: relay, everyRequest: bytes.Contains(v.bootstrap, []byte("apply_on_stream_done"))}
	var found verdict
	for i, kind := range v.requests {
		relay.forwardTo(t, limiters[i].Addr("grpc"))
		result := s.send(t, kind)
		found.kinds = append(found.kinds, result)
		if result.other[0] > 0 {
			found.crashed = true
			break
		}
	}
	return found
}

// session sends requests to an Envoy.
type session struct {
	envoy *envoy.Envoy
	relay *relay
	// everyRequest reports whether each request waits until the calls at the end of the previous
	// one have been answered, so that the first denial does not depend on the schedule.
	everyRequest bool
	// failed is the number of failed calls so far.
	failed int
}

func (s *session) send(t *testing.T, kind request) kindVerdict {
	t.Helper()
	// Each request has its own connection, like those of different clients.
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	result := kindVerdict{other: map[int]int{}}
	called := s.relay.calls.Load()
	for i := 1; i <= requestsPerKind; i++ {
		status, denied := s.request(t, client, kind)
		switch {
		case denied:
			result.denied++
			if result.firstDenied == 0 {
				result.firstDenied = i
			}
		case status >= 200 && status < 400:
			result.passed++
		default:
			result.other[status]++
		}
		if status == 0 {
			return result
		}
		if s.everyRequest {
			s.settle(t)
		}
	}
	failed := s.settle(t)
	result.failedCalls = failed - s.failed
	s.failed = failed
	result.calls = int(s.relay.calls.Load() - called)
	return result
}

// request returns the status of a response, and whether the limiter denied the request. The status
// is 0 if there is no response.
func (s *session) request(t *testing.T, client *http.Client, kind request) (status int, denied bool) {
	t.Helper()
	addr := s.envoy.Addr("ingress")
	req := (&http.Request{
		Method: kind.method, Host: "shop.example", Header: http.Header{},
		URL: &url.URL{Scheme: "http", Host: addr, Opaque: kind.path},
	}).WithContext(t.Context())
	for name, value := range kind.headers {
		if name == "host" {
			req.Host = value
		} else {
			req.Header.Set(name, value)
		}
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Logf("%s %s: %v", kind.method, kind.path, err)
		return 0, false
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body) // the status counts
	// With filter_enforced of 0 %, the responses of the backend have the header, too.
	denied = resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 400 && resp.Header.Get("x-envoy-ratelimited") != ""
	return resp.StatusCode, denied
}

// settle waits until Envoy processes no requests and no calls, and returns the number of failed
// calls. When a stream is no longer active, its call at the end has begun.
func (s *session) settle(t *testing.T) (failed int) {
	t.Helper()
	suite.Eventually(t, "Envoy is idle", func() bool {
		idle := true
		failed = 0
		const filter = `^http\..*\.downstream_rq_active$|^cluster\..*\.upstream_rq(_pending)?_active$|ratelimit\.(.*\.)?error$`
		for name, n := range suite.EnvoyStats(t, s.envoy, filter) {
			if strings.HasSuffix(name, ".error") {
				failed += n
			} else if n != 0 && !strings.HasPrefix(name, "http.admin.") {
				idle = false
			}
		}
		return idle
	})
	return failed
}

// relay forwards gRPC calls to a sluice, and counts those of Envoy's filters. It stays connected to
// Envoy while the sluice changes, so that each kind of requests has new counters and no call fails.
type relay struct {
	addr  string
	calls atomic.Int64
	to    atomic.Pointer[grpc.ClientConn]
	stop  func()
}

func startRelay(t *testing.T) *relay {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.OK(t, err)
	r := &relay{addr: l.Addr().String()}
	s := grpc.NewServer(grpc.ForceServerCodecV2(bytesCodec{}), grpc.UnknownServiceHandler(r.forward))
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.Serve(l) // calls show whether it serves
	}()
	r.stop = sync.OnceFunc(func() {
		s.Stop()
		<-served
		if conn := r.to.Load(); conn != nil {
			_ = conn.Close()
		}
	})
	t.Cleanup(r.stop)
	return r
}

// forwardTo changes the sluice of further calls.
func (r *relay) forwardTo(t *testing.T, addr string) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.OK(t, err)
	if previous := r.to.Swap(conn); previous != nil {
		_ = previous.Close()
	}
}

func (r *relay) forward(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	if strings.HasSuffix(method, "/ShouldRateLimit") {
		r.calls.Add(1)
	}
	var message []byte
	if err := stream.RecvMsg(&message); err != nil {
		return err
	}
	var reply []byte
	if err := r.to.Load().Invoke(stream.Context(), method, &message, &reply, grpc.ForceCodecV2(bytesCodec{})); err != nil {
		return err
	}
	return stream.SendMsg(&reply)
}

// bytesCodec leaves messages encoded.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }

func (bytesCodec) Marshal(message any) (mem.BufferSlice, error) {
	text, ok := message.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("encode %T: want *[]byte", message)
	}
	return mem.BufferSlice{mem.SliceBuffer(*text)}, nil
}

func (bytesCodec) Unmarshal(data mem.BufferSlice, message any) error {
	text, ok := message.(*[]byte)
	if !ok {
		return fmt.Errorf("decode %T: want *[]byte", message)
	}
	*text = data.Materialize()
	return nil
}

func port(t *testing.T, addr string) int {
	t.Helper()
	_, digits, err := net.SplitHostPort(addr)
	must.OK(t, err)
	n, err := strconv.Atoi(digits)
	must.OK(t, err)
	return n
}

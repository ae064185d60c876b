package server

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const oneRule = "{domain: d, descriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1000000}}]}"

// running is a server on loopback. Its addresses are by listener.
type running struct {
	*Server
	addr map[string]string
	logs *observer.ObservedLogs // from info on
	stop context.CancelFunc
	done chan error
}

// serve runs a server until the test ends.
func serve(t *testing.T, s *Service, options Options) *running {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	for _, addr := range []*string{&options.GRPCAddr, &options.HTTPAddr, &options.DebugAddr, &options.MetricsAddr} {
		if *addr == "" {
			*addr = "127.0.0.1:0"
		}
	}
	options.Limits = fillLimits(options.Limits)
	options.JSON = true
	options.GRPCSocketMode = cmp.Or(options.GRPCSocketMode, defaultSocketMode)
	options.MetricsPath = cmp.Or(options.MetricsPath, "/metrics")
	options.DrainTimeout = cmp.Or(options.DrainTimeout, 30*time.Second)
	r := &running{Server: New(options, s, s.metrics, zap.New(core)), addr: map[string]string{}, logs: logs, done: make(chan error, 1)}
	if err := r.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, e := range logs.FilterMessage("listening").All() {
		m := e.ContextMap()
		r.addr[fmt.Sprint(m["listener"])] = fmt.Sprint(m["addr"])
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	r.stop = cancel
	go func() { r.done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-r.done; err != nil {
			t.Errorf("Run() = %v, want nil", err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return r
}

// dial connects to the gRPC listener.
func (r *running) dial(t *testing.T, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	target := r.addr["grpc"]
	switch {
	case strings.HasPrefix(target, "@"):
		target = "unix-abstract:" + target[1:]
	case strings.HasPrefix(target, "/"):
		target = "unix://" + target
	default:
		target = "passthrough:///" + target
	}
	conn, err := grpc.NewClient(target, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func simpleRequest() *rls.RateLimitRequest {
	return &rls.RateLimitRequest{Domain: "d", Descriptors: []*rlcommon.RateLimitDescriptor{{Entries: []*rlcommon.RateLimitDescriptor_Entry{entry("k", "v")}}}}
}

func checkOK(t *testing.T, conn *grpc.ClientConn) {
	t.Helper()
	reply, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), simpleRequest())
	if err != nil || reply.GetOverallCode() != rls.RateLimitResponse_OK || len(reply.GetStatuses()) != 1 {
		t.Errorf("ShouldRateLimit() = %v, %v, want OK", reply, err)
	}
}

// bytesCodec sends and receives bytes as they are.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, errors.New("not bytes")
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return errors.New("not bytes")
	}
	*b = data.Materialize()
	return nil
}

func TestBadInputGetsAClearAnswer(t *testing.T) {
	r := serve(t, service(t, Settings{}, oneRule), Options{})
	neighbour := r.dial(t)
	conn := r.dial(t, grpc.WithDefaultCallOptions(grpc.ForceCodecV2(bytesCodec{})))
	with := func(change func(*rls.RateLimitRequest)) []byte {
		m := simpleRequest()
		m.Descriptors[0].Entries[0].Value = "not the neighbour's"
		change(m)
		return marshal(t, m)
	}
	good := marshal(t, simpleRequest())
	for _, test := range []struct {
		name    string
		request []byte
		want    codes.Code
		message string
	}{
		{"empty domain", with(func(m *rls.RateLimitRequest) { m.Domain = "" }), codes.Unknown, "rate limit domain must not be empty"},
		{"no descriptors", with(func(m *rls.RateLimitRequest) { m.Descriptors = nil }), codes.Unknown, "rate limit descriptor list must not be empty"},
		{"above the message limit", with(func(m *rls.RateLimitRequest) { m.Domain = strings.Repeat("d", 5<<20) }), codes.ResourceExhausted, "--max-message allows 4194304"},
		{"far above the message limit", with(func(m *rls.RateLimitRequest) { m.Domain = strings.Repeat("d", 9<<20) }), codes.ResourceExhausted, "larger than max"},
		{"just below the message limit", with(func(m *rls.RateLimitRequest) { m.Domain = strings.Repeat("d", 4_190_000) }), codes.OK, ""},
		{"10,000 descriptors", with(func(m *rls.RateLimitRequest) {
			m.Descriptors = many(10_000)
		}), codes.ResourceExhausted, "10000 descriptors: --max-descriptors allows 1000"},
		{"key that is not UTF-8", bytes.Replace(good, []byte("k"), []byte{0xff}, 1), codes.OK, ""},
		{"hits of 2^64-1", with(func(m *rls.RateLimitRequest) { m.Descriptors[0].HitsAddend = wrapperspb.UInt64(1<<64 - 1) }), codes.OK, ""},
		{"override with unit 0", with(func(m *rls.RateLimitRequest) {
			m.Descriptors[0].Limit = &rlcommon.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 5}
		}), codes.OK, ""},
		{"override with unit 99", with(func(m *rls.RateLimitRequest) {
			m.Descriptors[0].Limit = &rlcommon.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 5, Unit: typev3.RateLimitUnit(99)}
		}), codes.OK, ""},
		{"cut short", good[:len(good)-1], codes.Internal, "not a valid"},
		{"over-long", append(bytes.Clone(good), 0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f), codes.Internal, "not a valid"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var reply []byte
			err := conn.Invoke(t.Context(), "/"+serviceName+"/ShouldRateLimit", test.request, &reply)
			if got := status.Convert(err); got.Code() != test.want || !strings.Contains(got.Message(), test.message) {
				t.Errorf("error is %v, want %v with %q", err, test.want, test.message)
			}
			checkOK(t, neighbour)
		})
	}
}

func many(n int) []*rlcommon.RateLimitDescriptor {
	ds := make([]*rlcommon.RateLimitDescriptor, n)
	for i := range ds {
		ds[i] = &rlcommon.RateLimitDescriptor{}
	}
	return ds
}

func TestHealthAndReflection(t *testing.T) {
	r := serve(t, service(t, Settings{}, oneRule), Options{DrainDelay: 2 * time.Second})
	conn := r.dial(t)
	health := grpc_health_v1.NewHealthClient(conn)
	for _, name := range []string{"", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"} {
		reply, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: name})
		if err != nil || reply.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Errorf("Check(%q) = %v, %v, want SERVING", name, reply, err)
		}
	}
	if _, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "other"}); status.Code(err) != codes.NotFound {
		t.Errorf("Check(other) = %v, want NOT_FOUND", err)
	}
	stream, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = stream.Send(&grpc_reflection_v1.ServerReflectionRequest{
		MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: serviceName},
	})
	if err != nil {
		t.Fatal(err)
	}
	reply, err := stream.Recv()
	if err != nil || len(reply.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
		t.Errorf("reflection of %s: %v, %v", serviceName, reply, err)
	}
	// At the end health turns first, while calls are still answered.
	watch, err := health.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "ratelimit"})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := watch.Recv(); err != nil || got.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Fatalf("Watch() = %v, %v, want SERVING", got, err)
	}
	r.stop()
	if got, err := watch.Recv(); err != nil || got.GetStatus() != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("Watch() after the stop = %v, %v, want NOT_SERVING", got, err)
	}
	if code, _ := get(t, "http://"+r.addr["http"]+"/healthcheck"); code != http.StatusInternalServerError {
		t.Errorf("/healthcheck while draining is %d, want 500", code)
	}
	checkOK(t, conn)
	// A graceful stop would wait for the watcher until the drain timeout.
	if _, err := watch.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("Watch() at the end of the delay = %v, want UNAVAILABLE", err)
	}
	if _, err := stream.Recv(); err == nil {
		t.Error("the reflection stream goes on")
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	return send(t, http.MethodGet, url, "")
}

func send(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func TestHTTP(t *testing.T) {
	r := serve(t, service(t, Settings{}, "{domain: d, descriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1}}]}"), Options{})
	ask := `{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}`
	for _, test := range []struct {
		name, method, listener, path, body string
		code                               int
		want                               string
	}{
		{"health", "GET", "http", "/healthcheck", "", 200, "OK"},
		{"json within", "POST", "http", "/json", ask, 200, `"overallCode":"OK"`},
		{"json over", "POST", "http", "/json", ask, 429, `"OVER_LIMIT"`},
		{"json in snake case", "POST", "http", "/json", `{"domain":"x","hits_addend":1,"descriptors":[{}]}`, 200, `"OK"`},
		{"json empty", "POST", "http", "/json", "", 400, "Bad Request"},
		{"json of another shape", "POST", "http", "/json", `{"domains":"d"}`, 400, "domains"},
		{"json without domain", "POST", "http", "/json", `{"descriptors":[{}]}`, 400, "rate limit domain must not be empty"},
		{"json too large", "POST", "http", "/json", `{"domain":"` + strings.Repeat("d", 1<<17) + `"}`, 413, ""},
		{"else", "GET", "http", "/", "", 404, ""},
		{"no metrics in public", "GET", "http", "/metrics", "", 404, ""},
		{"no profiles in public", "GET", "http", "/debug/pprof/", "", 404, ""},
		{"metrics", "GET", "metrics", "/metrics", "", 200, `ratelimit_service_rate_limit_over_limit{domain="d",key1="k",key2="",limit="",rule="k"} 1`},
		{"metrics only", "GET", "metrics", "/debug/pprof/", "", 404, ""},
		{"index", "GET", "debug", "/", "", 200, "/rlconfig"},
		{"rules", "GET", "debug", "/rlconfig", "", 200, "d.k: unit=HOUR requests_per_unit=1, shadow_mode: false, quota_mode: false"},
		{"stats", "GET", "debug", "/stats", "", 200, "ratelimit_service_total_requests"},
		{"profiles", "GET", "debug", "/debug/pprof/", "", 200, "goroutine"},
		{"no json in debug", "POST", "debug", "/json", ask, 404, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, body := send(t, test.method, "http://"+r.addr[test.listener]+test.path, test.body)
			if code != test.code || !strings.Contains(body, test.want) {
				t.Errorf("%s %s = %d %.300q, want %d with %q", test.method, test.path, code, body, test.code, test.want)
			}
		})
	}
}

func TestConnectionsBeyondTheLimitAreClosed(t *testing.T) {
	s := service(t, Settings{}, oneRule)
	r := serve(t, s, Options{Limits: Limits{MaxConnections: 2}})
	first, second := r.dial(t), r.dial(t)
	checkOK(t, first)
	checkOK(t, second)
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", r.addr["grpc"])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(conn); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("third connection: %v, want its end", err)
	}
	_ = conn.Close()
	if got := testutil.ToFloat64(s.metrics.RejectedConnections); got != 1 {
		t.Errorf("%v connections rejected, want 1", got)
	}
	checkOK(t, first)
	_ = second.Close()
	// The place is free once the server has seen the end; until then a client
	// that waits for readiness tries again.
	third := r.dial(t, grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	checkOK(t, third)
}

func TestUnixSockets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	for _, addr := range []string{"unix://" + path, "unix:@sluice-test-" + filepath.Base(filepath.Dir(path))} {
		t.Run(addr[:6], func(t *testing.T) {
			r := serve(t, service(t, Settings{}, oneRule), Options{GRPCAddr: addr})
			checkOK(t, r.dial(t))
			if strings.Contains(addr, "@") {
				return
			}
			if _, err := listen(t.Context(), addr, false, defaultSocketMode); err == nil || !strings.Contains(err.Error(), "another process listens") {
				t.Errorf("listen on a socket in use: %v", err)
			}
		})
	}

	// A process that was killed leaves its socket behind.
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if unix, ok := l.(*net.UnixListener); ok {
		unix.SetUnlinkOnClose(false)
	}
	_ = l.Close()
	r := serve(t, service(t, Settings{}, oneRule), Options{GRPCAddr: "unix://" + path})
	checkOK(t, r.dial(t))
}

// TestSocketMode holds that the mode of the gRPC socket is as asked, and that of others is not.
func TestSocketMode(t *testing.T) {
	for mode, want := range map[fs.FileMode]fs.FileMode{0: 0o660, 0o600: 0o600, 0o666: 0o666} {
		grpc, http := filepath.Join(t.TempDir(), "grpc"), filepath.Join(t.TempDir(), "http")
		serve(t, service(t, Settings{}, oneRule), Options{GRPCAddr: "unix://" + grpc, GRPCSocketMode: mode, HTTPAddr: "unix://" + http})
		for path, want := range map[string]fs.FileMode{grpc: want, http: 0o660} {
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
				t.Errorf("GRPCSocketMode %v: %s is %v, %v, want %v", mode, filepath.Base(path), info.Mode().Perm(), err, want)
			}
		}
	}
}

func TestListenKeepsAFileInTheWay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listen(t.Context(), "unix://"+path, false, defaultSocketMode); err == nil {
		t.Error("listen on a regular file succeeded")
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "x" {
		t.Errorf("the file is %q, %v afterwards, want it as it was", b, err)
	}
	for _, addr := range []string{"unix://", "unix:", "unix://tmp/s", "unix:s"} {
		if _, err := listen(t.Context(), addr, false, defaultSocketMode); err == nil || !strings.Contains(err.Error(), "must be unix:///path") {
			t.Errorf("listen(%q) = %v, want what is allowed", addr, err)
		}
	}
}

func TestListenOpensAllOrNone(t *testing.T) {
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	s := service(t, Settings{}, oneRule)
	path := filepath.Join(t.TempDir(), "s")
	r := New(Options{GRPCAddr: "unix://" + path, HTTPAddr: taken.Addr().String()}, s, s.metrics, zap.NewNop())
	if err := r.Listen(t.Context()); err == nil || !strings.Contains(err.Error(), "http listener") {
		t.Errorf("Listen() = %v, want an error of the http listener", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the gRPC socket is still there: %v", err)
	}
}

// TestCallsInFlightAreAnswered stops a server while calls go on: none fails.
func TestCallsInFlightAreAnswered(t *testing.T) {
	r := serve(t, service(t, Settings{}, oneRule), Options{})
	conn := r.dial(t)
	checkOK(t, conn)
	const callers = 8
	failed := make(chan error, callers)
	for range callers {
		go func() {
			client := rls.NewRateLimitServiceClient(conn)
			for n := 0; ; n++ {
				if _, err := client.ShouldRateLimit(t.Context(), simpleRequest()); err != nil {
					// The connection is gone and nobody listens any more: the call never
					// reached the server.
					if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "connection refused") {
						failed <- err
						return
					}
					failed <- nil
					return
				}
				if n == 100 {
					r.stop()
				}
			}
		}()
	}
	for range callers {
		if err := <-failed; err != nil {
			t.Errorf("a call failed: %v", err)
		}
	}
}

// TestReflectionIsForFew opens as many streams of reflection as are allowed, and one more, each
// on a connection of its own.
func TestReflectionIsForFew(t *testing.T) {
	r := serve(t, service(t, Settings{}, oneRule), Options{})
	reflect := func() (func() error, context.CancelFunc) {
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := grpc_reflection_v1.NewServerReflectionClient(r.dial(t)).ServerReflectionInfo(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return func() error {
			err := stream.Send(&grpc_reflection_v1.ServerReflectionRequest{
				MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{},
			})
			if err != nil && !errors.Is(err, io.EOF) { // which says to ask Recv why
				return err
			}
			_, err = stream.Recv()
			return err
		}, cancel
	}
	first, leave := reflect()
	if err := first(); err != nil {
		t.Fatal(err)
	}
	for range maxConversations - 1 {
		ask, _ := reflect()
		if err := ask(); err != nil {
			t.Fatal(err)
		}
	}
	ask, _ := reflect()
	if err := ask(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one too many: %v, want RESOURCE_EXHAUSTED", err)
	}
	checkOK(t, r.dial(t))
	leave()
	for range 10_000 { // until the server has seen it go
		ask, _ := reflect()
		if ask() == nil {
			return
		}
	}
	t.Error("the place of one that has left stays taken")
}

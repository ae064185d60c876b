package own

import (
	"cmp"
	"net"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/transport"
	"github.com/sluice-ratelimit/sluice/server/transport/grpcgo"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const oneRule = "{domain: d, descriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1000000}}]}"

// The transports.
const (
	transportOwn  = "own"
	transportGRPC = "grpc-go"
)

// overBoth runs a test over each transport.
func overBoth(t *testing.T, test func(t *testing.T, name string)) {
	t.Helper()
	for _, name := range []string{transportGRPC, transportOwn} {
		t.Run(name, func(t *testing.T) { test(t, name) })
	}
}

// overBothAtOnce is overBoth for tests that wait for most of their time: beside each other and beside
// other tests.
func overBothAtOnce(t *testing.T, test func(t *testing.T, name string)) {
	t.Helper()
	t.Parallel()
	for _, name := range []string{transportGRPC, transportOwn} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, name)
		})
	}
}

// start returns a transport with health and reflection, both healthy.
func start(name string, c transport.Config) transport.Transport {
	c.Hint = []byte("HTTP/1.1 400 Bad Request\r\n\r\n")
	c.Register = func(own reflection.GRPCServer, _ grpc.ServiceRegistrar) {
		healthy := health.NewServer()
		healthy.SetServingStatus("ratelimit", grpc_health_v1.HealthCheckResponse_SERVING)
		healthy.SetServingStatus(answer.ServiceName, grpc_health_v1.HealthCheckResponse_SERVING)
		grpc_health_v1.RegisterHealthServer(own, healthy)
		reflection.Register(own)
	}
	if name == transportOwn {
		return New(c)
	}
	return grpcgo.New(c)
}

// options say which transport runs, and with which limits.
type options struct {
	Transport string
	Limits    transport.Limits
}

// running is a transport on loopback.
type running struct {
	grpc transport.Transport
	addr string
	logs *observer.ObservedLogs // from info on
}

// serve runs a transport until the test ends.
func serve(t *testing.T, s *answer.Service, o options) *running {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &running{addr: l.Addr().String(), logs: logs, grpc: start(o.Transport, transport.Config{
		Limits: fillLimits(o.Limits), Handler: answer.NewHandler(s, zap.New(core), nil, false), Creds: insecure.NewCredentials(),
	})}
	done := make(chan error, 1)
	go func() { done <- r.grpc.Serve(l) }()
	t.Cleanup(func() {
		r.grpc.Stop()
		if err := <-done; err != nil {
			t.Errorf("Serve() = %v, want nil", err)
		}
	})
	return r
}

// dial connects to the transport.
func (r *running) dial(t *testing.T) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+r.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func fillLimits(l transport.Limits) transport.Limits {
	return transport.Limits{
		MaxMessageBytes:       cmp.Or(l.MaxMessageBytes, 4<<20),
		MaxConnections:        cmp.Or(l.MaxConnections, 10_000),
		MaxHTTPConnections:    cmp.Or(l.MaxHTTPConnections, 1000),
		MaxStreams:            cmp.Or(l.MaxStreams, 1024),
		MaxHeaderBytes:        cmp.Or(l.MaxHeaderBytes, 128<<10),
		ConnectionTimeout:     cmp.Or(l.ConnectionTimeout, 5*time.Second),
		MaxConnectionIdle:     cmp.Or(l.MaxConnectionIdle, 15*time.Minute),
		MaxConnectionAge:      l.MaxConnectionAge,
		MaxConnectionAgeGrace: l.MaxConnectionAgeGrace,
		KeepaliveTime:         cmp.Or(l.KeepaliveTime, time.Minute),
		KeepaliveTimeout:      cmp.Or(l.KeepaliveTimeout, 10*time.Second),
		KeepaliveMinTime:      cmp.Or(l.KeepaliveMinTime, 10*time.Second),
	}
}

// compile compiles one file of rules.
func compile(tb testing.TB, text string) *descriptors.Set {
	tb.Helper()
	configs, ds := rulefile.Parse("rules.yaml", []byte(text))
	if err := ds.Err(); err != nil {
		tb.Fatal(err)
	}
	set, ds := descriptors.Compile(configs, descriptors.Options{})
	if err := ds.Err(); err != nil {
		tb.Fatal(err)
	}
	return set
}

func newMetrics(tb testing.TB) *telemetry.Metrics {
	tb.Helper()
	m, err := telemetry.New(telemetry.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

// service returns a service of its own with these rules, or without any.
func service(tb testing.TB, settings answer.Settings, rules string) *answer.Service {
	tb.Helper()
	table, err := limiter.New(limiter.Options{Bytes: 1 << 20})
	if err != nil {
		tb.Fatal(err)
	}
	settings.Bounds = answer.Bounds{
		MessageBytes: cmp.Or(settings.Bounds.MessageBytes, 4<<20), Descriptors: 1000, Entries: 64, KeyBytes: 1 << 10,
	}
	s := answer.NewService(settings, table, newMetrics(tb))
	if rules != "" {
		if err := s.Serve(0, compile(tb, rules)); err != nil {
			tb.Fatal(err)
		}
	}
	return s
}

func entry(key, value string) *rlcommon.RateLimitDescriptor_Entry {
	return &rlcommon.RateLimitDescriptor_Entry{Key: key, Value: value}
}

func marshal(tb testing.TB, m proto.Message) []byte {
	tb.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		tb.Fatal(err)
	}
	return b
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

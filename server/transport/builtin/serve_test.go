package builtin

import (
	"net"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/quota"
	"github.com/sluice-ratelimit/sluice/server/servertest"
	"github.com/sluice-ratelimit/sluice/server/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const oneRule = "{domain: d, descriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1000000}}]}"

// start returns a transport with health and reflection, both healthy.
func start(c transport.Config) transport.Transport {
	c.Register = func(own reflection.GRPCServer, _ grpc.ServiceRegistrar) {
		healthy := health.NewServer()
		healthy.SetServingStatus("ratelimit", grpc_health_v1.HealthCheckResponse_SERVING)
		healthy.SetServingStatus(answer.ServiceName, grpc_health_v1.HealthCheckResponse_SERVING)
		grpc_health_v1.RegisterHealthServer(own, healthy)
		reflection.Register(own)
	}
	return New(c)
}

// running is a transport on loopback.
type running struct {
	grpc transport.Transport
	addr string
	logs *observer.ObservedLogs // of level info and above
	// draining is closed by drain.
	draining chan struct{}
	passed   atomic.Int64 // added to the clock of the quota service
}

// newQuotas returns the quota service of a server that has run long enough for a predecessor's
// assignments to have expired. passed is added to its clock. quota_test.go replaces it.
var newQuotas = func(*testing.T, *answer.Service, *atomic.Int64) quota.Service { return nil }

// serve runs a transport until the test ends. limits are optional.
func serve(t *testing.T, s *answer.Service, limits ...transport.Limits) *running {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.OK(t, err)
	draining := make(chan struct{})
	r := &running{addr: l.Addr().String(), logs: logs, draining: draining}
	r.grpc = start(transport.Config{
		Limits: fillLimits(append(limits, transport.Limits{})[0]), Handler: answer.NewHandler(s, zap.New(core), nil, false), Creds: insecure.NewCredentials(),
		Quotas: newQuotas(t, s, &r.passed), Draining: draining,
	})
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

// drain stops the transport gracefully.
func (r *running) drain() {
	close(r.draining)
	r.grpc.GracefulStop()
}

// dial connects to the transport.
func (r *running) dial(t *testing.T) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+r.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.OK(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Helpers that tests of other packages share.
var (
	service       = servertest.Service
	marshal       = servertest.Marshal
	simpleRequest = servertest.SimpleRequest
	checkOK       = servertest.CheckOK
	fillLimits    = servertest.Limits
	endedBy       = servertest.EndedConnections
	await         = servertest.WaitFor
)

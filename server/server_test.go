package server

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/quota"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const oneRule = "{domain: d, descriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1000000}}]}"

// newQuotas is set by quotas_test.go.
var newQuotas func(quota.Options) quota.Service

// running is a server on loopback. Its addresses are by listener.
type running struct {
	*Server
	addr map[string]string
	logs *observer.ObservedLogs // level info and above
	stop context.CancelFunc
	done chan error
}

// serve runs a server until the test ends. It applies the changes to the server before it starts.
func serve(t *testing.T, s *answer.Service, options Options, changes ...func(*Server)) *running {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	for _, addr := range []*string{&options.GRPCAddr, &options.HTTPAddr, &options.DebugAddr, &options.MetricsAddr} {
		if *addr == "" {
			*addr = "127.0.0.1:0"
		}
	}
	options.Limits = fillLimits(options.Limits)
	options.JSON = true
	options.NewQuotas = newQuotas
	options.GRPCSocketMode = cmp.Or(options.GRPCSocketMode, defaultSocketMode)
	options.MetricsPath = cmp.Or(options.MetricsPath, "/metrics")
	options.DrainTimeout = cmp.Or(options.DrainTimeout, 24*time.Hour)
	r := &running{Server: New(options, s, zap.New(core)), addr: map[string]string{}, logs: logs, done: make(chan error, 1)}
	if err := r.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, e := range logs.FilterMessage("listening").All() {
		m := e.ContextMap()
		r.addr[fmt.Sprint(m["listener"])] = fmt.Sprint(m["addr"])
	}
	for _, change := range changes {
		change(r.Server)
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

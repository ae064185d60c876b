package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"testing"

	"go.uber.org/zap"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/transport"
)

// checkHealth checks the health by all of its names, over gRPC and HTTP.
func (r *running) checkHealth(t *testing.T, when string, want bool) {
	t.Helper()
	health := grpc_health_v1.NewHealthClient(r.dial(t))
	state, code := serving(want), http.StatusInternalServerError
	if want {
		code = http.StatusOK
	}
	for _, name := range []string{"", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"} {
		reply, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: name})
		if err != nil || reply.GetStatus() != state {
			t.Errorf("%s: Check(%q) = %v, %v, want %v", when, name, reply.GetStatus(), err, state)
		}
	}
	if got, _ := get(t, "http://"+r.addr["http"]+"/healthcheck"); got != code {
		t.Errorf("%s: /healthcheck is %d, want %d", when, got, code)
	}
}

// serving returns the status of a healthy or an unhealthy server.
func serving(healthy bool) grpc_health_v1.HealthCheckResponse_ServingStatus {
	if healthy {
		return grpc_health_v1.HealthCheckResponse_SERVING
	}
	return grpc_health_v1.HealthCheckResponse_NOT_SERVING
}

// watchHealth watches the health of a service. The returned function fails the test if the next
// message differs.
func (r *running) watchHealth(t *testing.T, service string) (next func(want bool)) {
	t.Helper()
	watch, err := grpc_health_v1.NewHealthClient(r.dial(t)).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service})
	if err != nil {
		t.Fatal(err)
	}
	return func(want bool) {
		t.Helper()
		if got, err := watch.Recv(); err != nil || got.GetStatus() != serving(want) {
			t.Fatalf("Watch() = %v, %v, want %v", got, err, serving(want))
		}
	}
}

// acceptHook calls before at each Accept.
type acceptHook struct {
	net.Listener
	before func()
}

func (l acceptHook) Accept() (net.Conn, error) {
	l.before()
	return l.Listener.Accept()
}

// TestFirstClientSeesHealthy blocks the server when it turns healthy. No listener accepts
// connections before that, so a client that connects as soon as the address is logged sees the same
// health as later clients.
func TestFirstClientSeesHealthy(t *testing.T) {
	s := service(t, answer.Settings{}, "")
	r := New(Options{GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0", Limits: fillLimits(transport.Limits{})}, s, zap.NewNop())
	if err := r.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	accepts := make(chan struct{}, 100)
	accept := func() { accepts <- struct{}{} }
	r.grpcConn = acceptHook{r.grpcConn, accept}
	for _, l := range r.json {
		l.Listener = acceptHook{l.Listener, accept}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	r.health.updating.Lock()
	go func() { done <- r.Run(ctx) }()
	for range 1000 {
		runtime.Gosched()
	}
	if len(accepts) > 0 {
		t.Error("a listener accepts before the server is healthy")
	}
	r.health.updating.Unlock()
	<-accepts
	<-accepts
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run() = %v, want nil", err)
	}
}

func TestUnhealthyWithoutStore(t *testing.T) {
	for _, required := range []bool{false, true} {
		store := &asyncStore{}
		store.down.Store(1)
		r := serve(t, serviceWithStore(t, store, oneRule), Options{UnhealthyWithoutStore: required})
		r.checkHealth(t, "before the store is available", !required)
		next := r.watchHealth(t, answer.ServiceName) // the last that is updated
		next(!required)
		if !required {
			continue
		}
		for _, down := range []int64{0, 1} {
			store.down.Store(down)
			next(down == 0)
			r.checkHealth(t, fmt.Sprintf("store down: %v", down == 1), down == 0)
		}
	}
}

func TestUnhealthyWithoutRules(t *testing.T) {
	for _, required := range []bool{false, true} {
		s := service(t, answer.Settings{}, "")
		r := serve(t, s, Options{UnhealthyWithoutRules: required})
		r.checkHealth(t, "before the first rules", !required)
		next := r.watchHealth(t, "ratelimit")
		next(!required)
		if err := s.SetRules(0, compile(t, oneRule)); err != nil {
			t.Fatal(err)
		}
		r.checkHealth(t, "with rules", true)
		if required {
			next(true)
		}
		if err := s.SetRules(0, compile(t, "{domain: d, max_counters: 4000000000}")); err == nil {
			t.Fatal("rules beyond the memory bound are accepted")
		}
		r.checkHealth(t, "after rules that were rejected", true)
		empty, _ := descriptors.Build(nil, nil, nil, descriptors.Options{})
		if err := s.SetRules(0, empty); err != nil {
			t.Fatal(err)
		}
		r.checkHealth(t, "without any domain", !required)
		if err := s.SetRules(0, compile(t, "{domain: d}")); err != nil {
			t.Fatal(err)
		}
		r.checkHealth(t, "with a domain without rules", true)
		r.health.setServing(false)
		if err := s.SetRules(0, compile(t, oneRule)); err != nil {
			t.Fatal(err)
		}
		r.checkHealth(t, "with rules while draining", false)
	}
}

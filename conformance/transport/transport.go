// Package transport runs sluice's gRPC server with the services of third-party conformance suites.
package transport

import (
	"context"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/transport"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

const grpcGo = "grpc-go"

// Names are the values of --grpc-transport.
var Names = []string{"builtin", grpcGo}

// limits are the defaults of sluice's flags.
var limits = transport.Limits{
	MaxMessageBytes: 4 << 20, MaxConnections: 10_000, MaxHTTPConnections: 1000, MaxStreams: 1024, MaxHeaderBytes: 128 << 10,
	ConnectionTimeout: 5 * time.Second, MaxConnectionIdle: 15 * time.Minute,
	KeepaliveTime: time.Minute, KeepaliveTimeout: 10 * time.Second, KeepaliveMinTime: 10 * time.Second,
}

// Server is a running server without rules.
type Server struct {
	// Addr is its address, host:port.
	Addr string

	stop context.CancelFunc
	done chan error
}

// Start starts a server on a free port of loopback, with the services that register adds.
// maxMessage limits messages; 0 is the default. The caller must call Stop.
func Start(name string, maxMessage int, register func(grpc.ServiceRegistrar)) (*Server, error) {
	metrics, err := telemetry.New(telemetry.Options{})
	if err != nil {
		return nil, err
	}
	table, err := limiter.New(limiter.Options{Bytes: 1 << 20})
	if err != nil {
		return nil, err
	}
	core, logs := observer.New(zapcore.InfoLevel)
	options := server.Options{
		GRPCAddr: "127.0.0.1:0", Transport: name, Limits: limits, DrainTimeout: time.Second, Register: register,
	}
	if maxMessage > 0 {
		options.Limits.MaxMessageBytes = maxMessage
		if name == grpcGo {
			options.Limits.MaxMessageBytes /= 2 // grpc-go accepts twice the limit, so that sluice itself can reject a larger message
		}
	}
	s := server.New(options, answer.NewService(answer.Settings{}, table, metrics), zap.New(core))
	ctx, stop := context.WithCancel(context.Background())
	if err := s.Listen(ctx); err != nil {
		stop()
		return nil, err
	}
	running := &Server{stop: stop, done: make(chan error, 1)}
	go func() { running.done <- s.Run(ctx) }()
	for _, e := range logs.FilterMessage("listening").All() {
		if addr, ok := e.ContextMap()["addr"].(string); ok {
			running.Addr = addr
		}
	}
	return running, nil
}

// Stop stops the server, and returns the error of Run.
func (s *Server) Stop() error {
	s.stop()
	return <-s.done
}

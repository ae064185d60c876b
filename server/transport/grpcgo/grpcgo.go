package grpcgo

import (
	"context"
	"math"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip" // for requests and replies
	"google.golang.org/grpc/keepalive"

	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/transport"
)

type server struct {
	*grpc.Server
	handler    *answer.Handler
	calls      inFlight
	handshakes handshakes
}

// New returns a transport.
func New(c transport.Config) transport.Transport {
	s := &server{handler: c.Handler}
	others := transport.NewInterceptors(&c)
	begin := func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		defer s.calls.begin()()
		if info.FullMethod == quotaMethod { // the service counts its streams itself
			return handle(srv, stream)
		}
		if err := others.BeginStream(info.FullMethod, info.IsClientStream); err != nil {
			return err
		}
		defer others.EndStream(info.FullMethod)
		return handle(srv, stream)
	}
	unary := func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		defer s.calls.begin()()
		return others.Unary(ctx, request, info, handle)
	}
	options := append(grpcOptions(c.Limits), grpc.Creds(c.Creds), grpc.UnaryInterceptor(unary),
		grpc.ChainStreamInterceptor(begin, others.Stream))
	if c.Tracer != nil {
		options = append(options, grpc.StatsHandler(c.Tracer))
	}
	s.Server = grpc.NewServer(options...)
	s.RegisterService(&serviceDesc, rateLimits{c.Handler, &s.calls})
	if c.Quotas != nil {
		s.RegisterService(&quotaDesc, quotaStreams{c.Quotas, others})
	}
	if c.Register != nil {
		c.Register(s, s)
	}
	return s
}

func (s *server) Serve(l net.Listener) error {
	return s.Server.Serve(listener{l, &s.handshakes, s.handler})
}

// drainTimeout is how long a shutdown waits for unfinished handshakes, and, after the last call has
// ended, for clients to read their replies.
const drainTimeout = 2 * time.Second

// GracefulStop implements [transport.Transport]. To grpc-go, a call is open until its client has
// read the reply. Therefore the connections are closed if, for drainTimeout, no call began and no
// handler was running.
func (s *server) GracefulStop() {
	s.handshakes.setDeadline(time.Now().Add(drainTimeout)) //nolint:forbidigo // of a socket
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.Server.GracefulStop()
	}()
	for idle := int64(-1); ; {
		select {
		case <-stopped:
			return
		case <-time.After(drainTimeout):
		}
		begun := s.calls.begun.Load()
		open := s.calls.open.Load()
		switch {
		case open > 0:
			idle = -1
		case idle == begun:
			s.Stop()
			<-stopped
			return
		default:
			idle = begun
		}
	}
}

// Stop implements [transport.Transport].
func (s *server) Stop() {
	s.handshakes.setDeadline(time.Now()) //nolint:forbidigo // of a socket
	s.Server.Stop()
}

// inFlight counts calls. Its methods may be called concurrently.
type inFlight struct{ begun, open atomic.Int64 }

// begin counts a call. end must be called when its handler returns.
func (f *inFlight) begin() (end func()) {
	f.open.Add(1)
	f.begun.Add(1)
	return f.endCall
}

func (f *inFlight) endCall() { f.open.Add(-1) }

// messageSizeFactor is the factor by which grpc-go's message limit exceeds --max-message. So
// requests that are slightly too large reach the handler, which rejects them with an error that
// names the flag, counts them and logs them.
const messageSizeFactor = 2

func grpcOptions(l transport.Limits) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()),
		// Goroutines that are reused do not have to grow their stacks for each call.
		grpc.NumStreamWorkers(32),
		// The read buffer of each connection has 32 KiB by default. A request has about 200 bytes.
		grpc.ReadBufferSize(8 << 10),
		// By default a client can grow the window of each stream to 16 MiB.
		grpc.StaticStreamWindowSize(64 << 10),
		grpc.StaticConnWindowSize(1 << 20),
		grpc.MaxConcurrentStreams(l.MaxStreams),
		grpc.MaxHeaderListSize(l.MaxHeaderBytes),
		grpc.MaxRecvMsgSize(min(l.MaxMessageBytes, math.MaxInt32/messageSizeFactor) * messageSizeFactor),
		grpc.ConnectionTimeout(l.ConnectionTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle:     l.MaxConnectionIdle,
			MaxConnectionAge:      l.MaxConnectionAge,
			MaxConnectionAgeGrace: l.MaxConnectionAgeGrace,
			Time:                  l.KeepaliveTime,
			Timeout:               l.KeepaliveTimeout,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime:             l.KeepaliveMinTime,
			PermitWithoutStream: true,
		}),
	}
}

// rateLimits implements RateLimitService.
type rateLimits struct {
	*answer.Handler
	calls *inFlight
}

package grpcgo

import (
	"math"
	"net"

	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip" // for requests and replies
	"google.golang.org/grpc/keepalive"

	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/transport"
)

type server struct {
	*grpc.Server
	handler *answer.Handler
}

// New returns a transport.
func New(c transport.Config) transport.Transport {
	others := transport.NewInterceptors(&c)
	begin := func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		if info.FullMethod == quotaMethod { // the service counts its streams itself
			return handle(srv, stream)
		}
		if err := others.BeginStream(info.FullMethod, info.IsClientStream); err != nil {
			return err
		}
		defer others.EndStream(info.FullMethod)
		return handle(srv, stream)
	}
	options := append(grpcOptions(c.Limits), grpc.Creds(c.Creds), grpc.UnaryInterceptor(others.Unary),
		grpc.ChainStreamInterceptor(begin, others.Stream))
	if c.Tracer != nil {
		options = append(options, grpc.StatsHandler(c.Tracer))
	}
	s := server{grpc.NewServer(options...), c.Handler}
	s.RegisterService(&serviceDesc, c.Handler)
	if c.Quotas != nil {
		s.RegisterService(&quotaDesc, quotaStreams{c.Quotas, others})
	}
	if c.Register != nil {
		c.Register(s, s)
	}
	return s
}

func (s server) Serve(l net.Listener) error { return s.Server.Serve(listener{l, s.handler}) }

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

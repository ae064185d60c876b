package grpcgo

import (
	"math"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/sluice-ratelimit/sluice/server/transport"
	"github.com/sluice-ratelimit/sluice/server/transport/grpcgo/guard"
)

// New returns a transport.
func New(c transport.Config) transport.Transport {
	m, others := c.Handler.Metrics, transport.NewOthers(&c)
	guarding := guard.New(guard.Options{
		MaxStreams:      int(c.Limits.MaxStreams),
		HeaderListBytes: decodedHeaders * int(c.Limits.MaxHeaderBytes),
		Elapsed:         c.Handler.Clock.Elapsed,
		OddActs:         m.Ended.OddActs,
		Memory:          m.Ended.Memory,
		Windows:         m.Ended.Windows,
		Logger:          c.Handler.Rare,
		Reserved:        c.Quotas.Held,
	})
	options := append(grpcOptions(c.Limits),
		grpc.Creds(guarding.Credentials(greeting{c.Creds, &c})),
		grpc.InTapHandle((*headerBound)(&c).inspect))
	if !c.KeepsHeaders {
		options = append(options, grpc.ChainUnaryInterceptor(boundUnary), grpc.ChainStreamInterceptor(boundStreams))
	}
	begin := func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		if isQuotas(info.FullMethod) {
			return handle(srv, stream)
		}
		if err := others.Begin(info.FullMethod, info.IsClientStream); err != nil {
			return err
		}
		defer others.End(info.FullMethod)
		return handle(srv, stream)
	}
	options = append(options, grpc.ChainUnaryInterceptor(others.Unary), grpc.ChainStreamInterceptor(begin, others.Stream))
	if c.Tracer != nil {
		options = append(options, grpc.StatsHandler(c.Tracer))
	}
	server := grpc.NewServer(options...)
	server.RegisterService(&serviceDesc, c.Handler)
	if c.Quotas != nil {
		server.RegisterService(&quotaDesc, quotaStreams{c.Quotas, others})
	}
	if c.Register != nil {
		c.Register(server, server)
	}
	return server
}

// largerMessages says how large a message grpc-go accepts: this many times --max-message. So the
// handler rejects and counts a request beyond the bound. Beyond the larger bound, grpc-go rejects
// it, without a metric or a log line.
const largerMessages = 2

// streamWorkers is how many goroutines of grpc-go run calls. They keep their grown stacks from call
// to call; a new goroutine would have to grow its own. A call that finds no free worker gets a new
// goroutine, so fewer than 32 gain nothing.
const streamWorkers = 32

// grpcOptions are the options of the gRPC server. One connection can make a stock grpc-go server
// use gigabytes. Each bound here prevents one way to do so.
func grpcOptions(l transport.Limits) []grpc.ServerOption {
	received := min(l.MaxMessageBytes, math.MaxInt32/largerMessages) * largerMessages
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()),
		grpc.NumStreamWorkers(streamWorkers),
		// Each connection has a buffer to read into, 32 KiB by default. A request has about
		// 200 bytes.
		grpc.ReadBufferSize(8 << 10),
		grpc.MaxConcurrentStreams(l.MaxStreams),
		grpc.MaxHeaderListSize(decodedHeaders * l.MaxHeaderBytes),
		grpc.MaxRecvMsgSize(received),
		// One that is registered would not know how large a message may be.
		grpc.RPCDecompressor(newDecompressor(received)), //nolint:staticcheck // it is there as long as grpc-go 1
		// Windows that follow the bandwidth would let a client grow them to 16 MiB for each
		// of its streams.
		grpc.StaticStreamWindowSize(64 << 10),
		grpc.StaticConnWindowSize(1 << 20),
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

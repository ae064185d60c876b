package server

import (
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/sluice-ratelimit/sluice/telemetry"
)

const defaultMaxMessage = 4 << 20

// Limits bound what one client can cost. The zero value means the defaults.
type Limits struct {
	// MaxMessageBytes bounds a request over gRPC. 0 means 4 MiB. A request beyond the bound
	// is answered with an error, and Envoy then lets it pass, so no end client may reach the
	// bound. An end client can fill Envoy's 60 KiB of headers, and Envoy may repeat them in
	// each descriptor of a route. The bound must hold 60 KiB for each entry that comes from
	// a header; the default holds 68.
	MaxMessageBytes int
	// MaxStreams bounds the calls in flight on one connection. 0 means 1024.
	MaxStreams uint32
	// MaxHeaderBytes bounds the headers of a call, as RFC 9113 counts them (6.5.2: each has
	// 32 bytes more than its own). 0 means 128 KiB. An Envoy that traces forwards headers of
	// end clients, up to its 60 KiB, and SkyWalking's tracer a third more.
	MaxHeaderBytes uint32
	// MaxConnections bounds the gRPC connections. 0 means 10000.
	MaxConnections int
	// MaxHTTPConnections bounds those of each listener that speaks HTTP. 0 means 1000.
	MaxHTTPConnections int
	// ConnectionTimeout is how long a connection may take to begin: TLS and HTTP/2
	// settings. 0 means 5 s.
	ConnectionTimeout time.Duration
	// MaxConnectionIdle ends connections that had no call for that time. 0 means 15 minutes.
	MaxConnectionIdle time.Duration
	// KeepaliveTime is how long a client may be silent before it is pinged, at least a
	// second. 0 means a minute. KeepaliveTimeout is how long its answer may take. 0 means
	// 10 s.
	KeepaliveTime, KeepaliveTimeout time.Duration
	// KeepaliveMinTime is the least time between a client's own pings. The connection of a
	// client that pings more often is closed. 0 means 10 s.
	KeepaliveMinTime time.Duration
	// MaxConnectionAge ends connections after that time, so that clients spread over new
	// replicas. 0 means never.
	MaxConnectionAge time.Duration
	// MaxConnectionAgeGrace is how long calls may take after that. 0 means any time.
	MaxConnectionAgeGrace time.Duration
}

func (l Limits) withDefaults() Limits {
	if l.MaxMessageBytes == 0 {
		l.MaxMessageBytes = defaultMaxMessage
	}
	if l.MaxStreams == 0 {
		l.MaxStreams = 1024
	}
	if l.MaxConnections == 0 {
		l.MaxConnections = 10_000
	}
	if l.MaxHTTPConnections == 0 {
		l.MaxHTTPConnections = 1000
	}
	if l.MaxHeaderBytes == 0 {
		l.MaxHeaderBytes = 128 << 10
	}
	for _, d := range []struct {
		time *time.Duration
		or   time.Duration
	}{
		{&l.ConnectionTimeout, 5 * time.Second},
		{&l.MaxConnectionIdle, 15 * time.Minute},
		{&l.KeepaliveTime, time.Minute},
		{&l.KeepaliveTimeout, 10 * time.Second},
		{&l.KeepaliveMinTime, 10 * time.Second},
	} {
		if *d.time == 0 {
			*d.time = d.or
		}
	}
	return l
}

// Bounds on an HTTP request on any listener, in bytes.
const (
	maxHTTPHead = 16 << 10
	maxHTTPBody = 64 << 10
)

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
func grpcOptions(l Limits, calls *telemetry.Calls, draining <-chan struct{}) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(countUnary(calls)),
		grpc.ChainStreamInterceptor(countStreams(calls), endWith(draining), boundConversations()),
		grpc.ForceServerCodecV2(newCodec()),
		grpc.NumStreamWorkers(streamWorkers),
		// Each connection has a buffer to read into, 32 KiB by default. A request has about
		// 200 bytes.
		grpc.ReadBufferSize(8 << 10),
		grpc.MaxConcurrentStreams(l.MaxStreams),
		grpc.MaxHeaderListSize(decodedHeaders * l.MaxHeaderBytes),
		grpc.MaxRecvMsgSize(min(l.MaxMessageBytes, math.MaxInt32/largerMessages) * largerMessages),
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

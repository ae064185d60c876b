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
	// MaxMessageBytes bounds a request over gRPC. 0 means 4 MiB: an end client can
	// fill Envoy's 60 KiB of headers, and Envoy may repeat them in each descriptor of
	// a route. A request beyond the bound is answered with an error, which Envoy
	// takes for a pass, so the bound has to hold 60 KiB for each entry that comes
	// from a header; the default holds 68.
	MaxMessageBytes int
	// MaxStreams bounds the calls in flight on one connection. 0 means 1024.
	MaxStreams uint32
	// MaxHeaderBytes bounds the headers of a call, as RFC 9113 counts them (6.5.2: 32
	// bytes for each beside its own). 0 means 128 KiB: an Envoy that traces forwards
	// headers of end clients, up to its 60 KiB, and SkyWalking's tracer a third more.
	MaxHeaderBytes uint32
	// MaxConnections bounds the gRPC connections. 0 means 10000.
	MaxConnections int
	// MaxHTTPConnections bounds those of each listener that speaks HTTP. 0 means 1000.
	MaxHTTPConnections int
	// ConnectionTimeout is how long a connection may take to begin: TLS and HTTP/2
	// settings. 0 means 5 s.
	ConnectionTimeout time.Duration
	// MaxConnectionIdle ends connections without a call for that time. 0 means 15
	// minutes.
	MaxConnectionIdle time.Duration
	// KeepaliveTime is after how long a silence a client is pinged, at least a
	// second; 0 means a minute. KeepaliveTimeout is how long it may take to answer;
	// 0 means 10 s.
	KeepaliveTime, KeepaliveTimeout time.Duration
	// KeepaliveMinTime is the least time between a client's own pings; who pings
	// more often is sent away. 0 means 10 s.
	KeepaliveMinTime time.Duration
	// MaxConnectionAge ends connections after that time, so that clients spread
	// over new replicas. 0 means never.
	MaxConnectionAge time.Duration
	// MaxConnectionAgeGrace is how long calls may take after that. 0 means as long
	// as they like.
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

// What an HTTP request may take on any listener.
const (
	maxHTTPHead = 16 << 10
	maxHTTPBody = 64 << 10
)

// largerMessages is how many times --max-message grpc-go takes, so that a request
// beyond the bound is rejected and counted by the handler. Beyond this, grpc-go
// rejects it without a word.
const largerMessages = 2

// streamWorkers run calls, and keep grown stacks from call to call, which new
// goroutines lack. A call that finds none waiting gets a goroutine of its own, so
// fewer than 32 gain nothing.
const streamWorkers = 32

// grpcOptions are the options of the gRPC server. A stock grpc-go server can be
// brought to gigabytes by one connection; each option here closes a way.
func grpcOptions(l Limits, calls *telemetry.Calls, draining <-chan struct{}) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(countUnary(calls)),
		grpc.ChainStreamInterceptor(countStreams(calls), endWith(draining), boundConversations()),
		grpc.ForceServerCodecV2(newCodec()),
		grpc.NumStreamWorkers(streamWorkers),
		// Each connection holds a buffer to read into, 32 KiB by default; a request has
		// some 200 bytes.
		grpc.ReadBufferSize(8 << 10),
		grpc.MaxConcurrentStreams(l.MaxStreams),
		grpc.MaxHeaderListSize(decodedHeaders * l.MaxHeaderBytes),
		grpc.MaxRecvMsgSize(min(l.MaxMessageBytes, math.MaxInt32/largerMessages) * largerMessages),
		// Windows that follow the bandwidth would grow to 16 MiB for each of a client's
		// streams, if it likes.
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

package server

import (
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// Limits bound what one client can cost. Each field carries its flag, default and range as tags,
// which cmd/sluice reads. There is no other default.
type Limits struct {
	// MaxMessageBytes bounds a request over gRPC. A request beyond the bound is answered with an
	// error, and Envoy then lets it pass, so no end client may reach the bound. An end client can
	// fill Envoy's 60 KiB of headers, and Envoy may repeat them in each descriptor of a route. The
	// default holds 68 entries that come from a header.
	MaxMessageBytes int `name:"max-message" type:"size" range:"1..2147483647" default:"4MiB" placeholder:"SIZE" help:"Largest request. A larger one gets an error, which Envoy takes for a pass, so allow 60KiB (Envoy's max_request_headers_kb) for each entry that comes from a header. Default 4MiB."`

	MaxConnections     int    `type:"count" range:"1..2147483647" default:"10000" placeholder:"N" help:"Most gRPC connections. There may be fewer if the process may not open so many files. Default 10000."`
	MaxHTTPConnections int    `name:"max-http-connections" type:"count" range:"1..2147483647" default:"1000" placeholder:"N" help:"Most connections of each HTTP listener. There may be fewer if the process may not open so many files. Default 1000."`
	MaxStreams         uint32 `type:"count" range:"1..2147483647" default:"1024" placeholder:"N" help:"Most calls in flight on one connection. Default 1024."`
	// MaxHeaderBytes is counted as RFC 9113 does (6.5.2: each header has 32 bytes more than its
	// own). The headers of Envoy's call take 700 bytes, and those of a trace more.
	MaxHeaderBytes uint32 `name:"max-header-size" type:"size" range:"1KiB..16MiB" default:"128KiB" placeholder:"SIZE" help:"Most that the headers of a call may take; more than twice as much may close the connection. Envoy forwards tracing headers of end clients, up to its max_request_headers_kb (60). Default 128KiB."`

	ConnectionTimeout     time.Duration `range:"1ms..1h" default:"5s" placeholder:"TIME" help:"Longest that a connection may take to begin. Default 5s."`
	MaxConnectionIdle     time.Duration `range:"1ms..87600h" default:"15m" placeholder:"TIME" help:"End a connection after this time without a call. Default 15m."`
	MaxConnectionAge      time.Duration `range:"0s..87600h" default:"24h" placeholder:"TIME" help:"End a connection after this time, give or take a tenth, so that clients spread over new replicas. 0 means never. Default 24h."`
	MaxConnectionAgeGrace time.Duration `range:"0s..87600h" default:"1h" placeholder:"TIME" help:"Time for calls in flight after that. 0 means as long as they take. Default 1h."`
	// KeepaliveTime is at least a second because grpc-go pings no more often.
	KeepaliveTime    time.Duration `range:"1s..87600h" default:"60s" placeholder:"TIME" help:"Ping a client after this time of silence. Default 60s."`
	KeepaliveTimeout time.Duration `range:"1ms..1h" default:"10s" placeholder:"TIME" help:"End the connection if the client has not answered a ping after this time. Default 10s."`
	KeepaliveMinTime time.Duration `range:"1ms..87600h" default:"10s" placeholder:"TIME" help:"Least time between a client's own pings. The connection of a client that pings more often ends. Default 10s."`
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
func grpcOptions(l Limits) []grpc.ServerOption {
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

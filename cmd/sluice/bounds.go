package main

import (
	"fmt"
	"math"
	"time"

	"github.com/sluice-ratelimit/sluice/cmd/sluice/process"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server"
)

// boundsFlags bound what clients can cost.
type boundsFlags struct {
	CounterMemory  byteSize `group:"bounds" default:"64MiB" placeholder:"SIZE" help:"Memory for counters. Default 64MiB."`
	MaxMessage     byteSize `group:"bounds" name:"max-message" default:"4MiB" placeholder:"SIZE" help:"Largest request. A larger one gets an error, which Envoy takes for a pass, so allow 60KiB (Envoy's max_request_headers_kb) for each entry that comes from a header. Default 4MiB."`
	MaxDescriptors int64    `group:"bounds" default:"1000" placeholder:"N" help:"Most descriptors of one request. Default 1000."`
	MaxEntries     int64    `group:"bounds" default:"64" placeholder:"N" help:"Most entries of one descriptor. Default 64."`
	MaxKeyLength   byteSize `group:"bounds" default:"1KiB" placeholder:"SIZE" help:"Longest key of an entry. Default 1KiB."`

	MaxConnections    int64         `group:"bounds" default:"10000" placeholder:"N" help:"Most gRPC connections. There may be fewer if the process may not open so many files. Default 10000."`
	MaxHTTPConns      int64         `group:"bounds" name:"max-http-connections" default:"1000" placeholder:"N" help:"Most connections of each HTTP listener. There may be fewer if the process may not open so many files. Default 1000."`
	MaxStreams        int64         `group:"bounds" default:"1024" placeholder:"N" help:"Most calls in flight on one connection. Default 1024."`
	MaxHeaderSize     byteSize      `group:"bounds" default:"128KiB" placeholder:"SIZE" help:"Most that the headers of a call may take; more than twice as much may close the connection. Envoy forwards tracing headers of end clients, up to its max_request_headers_kb (60). Default 128KiB."`
	ConnectionTimeout time.Duration `group:"bounds" default:"5s" placeholder:"TIME" help:"Longest that a connection may take to begin. Default 5s."`
	MaxConnIdle       time.Duration `group:"bounds" name:"max-connection-idle" default:"15m" placeholder:"TIME" help:"End a connection after this time without a call. Default 15m."`
	MaxConnAge        connectionAge `group:"bounds" name:"max-connection-age" default:"24h" placeholder:"TIME" help:"End a connection after this time, give or take a tenth, so that clients spread over new replicas. 0 means never. Default 24h."`
	MaxConnGrace      connectionAge `group:"bounds" name:"max-connection-age-grace" default:"1h" placeholder:"TIME" help:"Time for calls in flight after that. 0 means as long as they take. Default 1h."`
	KeepaliveTime     time.Duration `group:"bounds" default:"60s" placeholder:"TIME" help:"Ping a client after this time of silence. Default 60s."`
	KeepaliveTimeout  time.Duration `group:"bounds" default:"10s" placeholder:"TIME" help:"End the connection if the client has not answered a ping after this time. Default 10s."`
	KeepaliveMinTime  time.Duration `group:"bounds" default:"10s" placeholder:"TIME" help:"Least time between a client's own pings. The connection of a client that pings more often ends. Default 10s."`
}

// check returns an error for the first bound that is out of range.
func (f *boundsFlags) check() error {
	const most = math.MaxInt32 // what every platform can count
	memory := int64(f.CounterMemory)
	if machine := process.MachineMemory(); memory > machine {
		return fmt.Errorf("--counter-memory is %d: this machine has %d bytes of memory, so it must be %d to %d",
			memory, machine, limiter.MinBytes, min(machine, limiter.MaxBytes))
	}
	for _, n := range []struct {
		flag             string
		value, low, high int64
	}{
		{"--counter-memory", memory, limiter.MinBytes, limiter.MaxBytes},
		{"--max-message", int64(f.MaxMessage), 1, most},
		{"--max-descriptors", f.MaxDescriptors, 1, most},
		{"--max-entries", f.MaxEntries, 1, most},
		{"--max-key-length", int64(f.MaxKeyLength), 1, most},
		{"--max-connections", f.MaxConnections, 1, most},
		{"--max-http-connections", f.MaxHTTPConns, 1, most},
		{"--max-streams", f.MaxStreams, 1, most},
		// The headers of Envoy's call take 700 bytes, and those of a trace more.
		{"--max-header-size", int64(f.MaxHeaderSize), 1 << 10, 16 << 20},
	} {
		if n.value < n.low || n.value > n.high {
			return fmt.Errorf("%s is %d: must be %d to %d", n.flag, n.value, n.low, n.high)
		}
	}
	const ms, hour = time.Millisecond, time.Hour
	return checkTimes([]boundedTime{
		{"--connection-timeout", f.ConnectionTimeout, ms, hour},
		{"--max-connection-idle", f.MaxConnIdle, ms, longest},
		{"--keepalive-time", f.KeepaliveTime, time.Second, longest}, // grpc-go pings no more often
		{"--keepalive-timeout", f.KeepaliveTimeout, ms, hour},
		{"--keepalive-min-time", f.KeepaliveMinTime, ms, longest},
	})
}

// bounds are those on one request.
func (f *boundsFlags) bounds() server.Bounds {
	return server.Bounds{
		MessageBytes: int(f.MaxMessage),
		Descriptors:  int(f.MaxDescriptors),
		Entries:      int(f.MaxEntries),
		KeyBytes:     int(f.MaxKeyLength),
	}
}

// limits are those on connections.
func (f *boundsFlags) limits() server.Limits {
	return server.Limits{
		MaxMessageBytes:       int(f.MaxMessage),
		MaxStreams:            uint32(f.MaxStreams),    //nolint:gosec // check has seen it
		MaxHeaderBytes:        uint32(f.MaxHeaderSize), //nolint:gosec // check has seen it
		MaxConnections:        int(f.MaxConnections),
		MaxHTTPConnections:    int(f.MaxHTTPConns),
		ConnectionTimeout:     f.ConnectionTimeout,
		MaxConnectionIdle:     f.MaxConnIdle,
		KeepaliveTime:         f.KeepaliveTime,
		KeepaliveTimeout:      f.KeepaliveTimeout,
		KeepaliveMinTime:      f.KeepaliveMinTime,
		MaxConnectionAge:      time.Duration(f.MaxConnAge),
		MaxConnectionAgeGrace: time.Duration(f.MaxConnGrace),
	}
}

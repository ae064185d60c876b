package server

import (
	"context"
	"io/fs"
	"net"
	"time"

	"google.golang.org/grpc"

	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/admin"
	"github.com/sluice-ratelimit/sluice/server/quota"
	"github.com/sluice-ratelimit/sluice/server/transport"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// Options configure a [Server]. Most fields define a flag by their tags. An empty address disables
// a listener.
type Options struct {
	GRPCAddr       string      `group:"listeners" name:"grpc-addr" type:"address" default:":8081" placeholder:"ADDR" help:"Listen address of the rate limit service: host:port, unix:///path or unix:@name."`
	GRPCSocketMode fs.FileMode `group:"listeners" name:"grpc-socket-mode" type:"mode" default:"0660" placeholder:"MODE" help:"File mode of the Unix socket of --grpc-addr: 0660 lets its user and group connect, 0666 everyone who can reach the file."`
	Transport      string      `group:"listeners" name:"grpc-transport" enum:"builtin,grpc-go" default:"builtin" placeholder:"builtin|grpc-go" help:"gRPC server: builtin, or grpc-go as a fallback for incompatible clients, with fewer bounds (docs/threats.md)."`
	HTTPAddr       string      `group:"listeners" name:"http-addr" type:"address" default:":8080" placeholder:"ADDR" help:"Listen address of /healthcheck and /json."`
	// JSON must be disabled if clients of /json must be authenticated.
	JSON bool `group:"listeners" name:"json" default:"true" negatable:"" help:"Serve /json on --http-addr, without authentication. Default: true."`
	// Usage is served where /json is, but JSON does not disable it.
	Usage       bool   `group:"listeners" name:"usage" help:"Serve /usage on --http-addr, or on --json-addr if set: the state of the limits of the descriptors in headers that Envoy sets (docs/usage.md)."`
	DebugAddr   string `group:"listeners" name:"debug-addr" type:"address" default:"127.0.0.1:6070" placeholder:"ADDR" help:"Listen address of the debug listener: the state for sluice top, /rlconfig and profiles. Without authentication unless --debug-token-file or --debug-client-ca is set."`
	MetricsAddr string `group:"listeners" name:"metrics-addr" type:"address" default:":9090" placeholder:"ADDR" help:"Listen address of the Prometheus metrics."`
	MetricsPath string `name:"PROMETHEUS_PATH" hidden:"" type:"path" default:"/metrics" placeholder:"PATH" help:"Path of the Prometheus metrics."`
	// ReusePort also lets another sluice listen on the same port by mistake, without an error.
	ReusePort bool   `name:"reuse-port" hidden:"" default:"${reusePort}" help:"Set SO_REUSEPORT on TCP listeners, so that a new process of the same user can start before the old one exits: only if the program is named ratelimit."`
	JSONAddr  string `group:"listeners" name:"json-addr" type:"address" placeholder:"ADDR" help:"Listen address of /json over TLS, with the certificates of the rate limit service. Replaces /json on --http-addr. Default: none."`

	StatusCodes string           `group:"replies" name:"grpc-status-codes" enum:"compatible,precise" default:"compatible" placeholder:"compatible|precise" help:"gRPC status codes of errors: compatible (UNKNOWN, as envoyproxy/ratelimit) or precise (INVALID_ARGUMENT and UNAVAILABLE)."`
	Limits      transport.Limits `embed:"" group:"bounds"`

	// UnhealthyWithoutRules concerns the active rules: if a reload fails, the previous rules stay
	// active, and the server stays healthy.
	UnhealthyWithoutRules bool `name:"HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED" hidden:"" help:"Report unhealthy while no domain is configured. Default: report healthy; requests are allowed or get errors."`
	// UnhealthyWithoutStore requires [answer.Settings].Decider.
	UnhealthyWithoutStore bool          `group:"store" help:"Report unhealthy while the store is unavailable. Default: report healthy; --store-fallback decides."`
	DrainDelay            time.Duration `group:"process" range:"0s..24h" default:"0s" placeholder:"TIME" help:"Time after SIGTERM between reporting unhealthy and rejecting new calls."`
	DrainTimeout          time.Duration `group:"process" range:"1ns..24h" default:"30s" placeholder:"TIME" help:"Maximum time to wait for calls in flight when draining."`

	// Elector elects the replica that divides the quotas of a domain. If it is nil, this server
	// divides all. Name is the name of this replica in messages.
	Elector quota.Elector `kong:"-"`
	Name    string        `kong:"-"`
	// NewQuotas creates the rate limit quota service, such as that of package rlqs. If it is nil,
	// the server does not have the service.
	NewQuotas func(quota.Options) quota.Service `kong:"-"`
	// Optional contains the HTTP listeners that are skipped, with a warning, if their port is in
	// use. The value is the flag that moves the listener.
	Optional map[string]string `kong:"-"`
	// OpenListener opens a listener; mode is the mode of a socket file. Nil opens a socket of this
	// machine.
	OpenListener func(ctx context.Context, addr string, mode fs.FileMode) (net.Listener, error) `kong:"-"`
	// TLS secures the gRPC listener and JSONAddr. Nil means plain text. The caller must run it.
	// [answer.Settings].Allow requires one that checks client certificates.
	TLS *access.TLS `kong:"-"`
	// DebugTLS secures the debug listener. Nil means plain text. DebugRights require it. The caller
	// must run it and the tokens of DebugRights.
	DebugTLS    *access.TLS  `kong:"-"`
	DebugRights admin.Rights `kong:"-"`
	// Tracing creates a span for each rate-limit request over gRPC. Optional.
	Tracing *telemetry.Tracing `kong:"-"`
	// Register registers further gRPC services, such as those of conformance suites. If it is set,
	// the transport retains the headers of all calls. Optional.
	Register func(grpc.ServiceRegistrar) `kong:"-"`
}

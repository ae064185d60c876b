package transport

import (
	"net"
	"slices"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/rlqs"
)

// Transport carries gRPC on a listener. Its methods may be called concurrently.
type Transport interface {
	// Serve answers until Stop or GracefulStop, which close the listener. It returns
	// [grpc.ErrServerStopped] if one of them came first.
	Serve(l net.Listener) error
	// GracefulStop waits for the calls in flight, and Stop does not.
	GracefulStop()
	Stop()
}

// Config is what a transport serves, and within what bounds.
type Config struct {
	Limits  Limits
	Handler *answer.Handler // of rate-limit requests
	// Quotas is the rate limit quota service. Optional: by default there is none.
	Quotas *rlqs.Service
	// Creds are the server's side of connections.
	Creds credentials.TransportCredentials
	// Tracer is told of rate-limit requests, and reads the headers that TraceHeaders names, in lower case.
	// Optional: by default nothing is traced.
	Tracer       stats.Handler
	TraceHeaders []string
	// Hint is the answer to a client of HTTP/1; see [SpeaksHTTP1].
	Hint []byte
	// Draining is closed when the streams of other services are to end.
	Draining <-chan struct{}
	// Register registers the services beside RateLimitService: our own, whose calls need no metadata, and
	// others. Optional: by default there are none.
	Register func(own reflection.GRPCServer, others grpc.ServiceRegistrar)
	// KeepsHeaders says that there are others, for which the headers of calls are kept.
	KeepsHeaders bool
}

// maxTraceHeader is the longest header of a trace that is kept. W3C requires 512 bytes of
// tracestate and 8192 of baggage.
const maxTraceHeader = 16 << 10

// MostTraceHeaders is how much is kept of a call's headers of traces. Each of a thousand open calls may have
// some of each, again and again.
const MostTraceHeaders = 2 * maxTraceHeader

// KeepsHeader reports whether tracing reads a header of so many bytes, so that it is kept while its call is
// open.
func (c *Config) KeepsHeader(name []byte, size int) bool {
	return size <= maxTraceHeader && slices.ContainsFunc(c.TraceHeaders, func(k string) bool { return k == string(name) })
}

// HeadersTooLarge counts and logs a call that is rejected for its headers, and returns its error.
func (c *Config) HeadersTooLarge(size int) error {
	most := int(c.Limits.MaxHeaderBytes)
	c.Handler.Metrics.Rejected.Headers.Inc()
	c.Handler.Metrics.ClientErrors.BeyondBounds.Report(c.Handler.Rare, nil, zap.String("bound", "headers"),
		zap.Int("bytes", size), zap.Int("max", most), zap.String("remedy", "set --max-header-size above what your proxies forward"))
	return status.Errorf(codes.ResourceExhausted, "the headers take %d bytes: --max-header-size allows %d", size, most)
}

// MachineOf returns the address of another machine, or nothing: programs on this one share theirs. It names one machine,
// and not a client as AddressOf of package access does, so it is the complete address: pods of one node may share the first half.
func MachineOf(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || tcp.IP.IsLoopback() {
		return ""
	}
	return tcp.AddrPort().Addr().Unmap().String()
}

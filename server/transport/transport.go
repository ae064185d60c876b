package transport

import (
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/stats"

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
	// Hint is the answer to a client of HTTP/1, over the built-in transport.
	Hint []byte
	// Draining is closed when the streams of other services are to end.
	Draining <-chan struct{}
	// Register registers the services beside RateLimitService: our own, whose calls need no metadata, and
	// others. Optional: by default there are none.
	Register func(own reflection.GRPCServer, others grpc.ServiceRegistrar)
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

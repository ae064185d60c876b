package transport

import (
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/stats"

	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/cpu"
	"github.com/sluice-ratelimit/sluice/server/quota"
)

// Transport is a gRPC server. Its methods may be called concurrently.
type Transport interface {
	// Serve accepts connections until Stop or GracefulStop is called, which close the listener. It
	// returns [grpc.ErrServerStopped] if one of them was called before.
	Serve(l net.Listener) error
	// GracefulStop waits for open calls; Stop does not.
	GracefulStop()
	Stop()
}

// Config configures a transport.
type Config struct {
	Limits  Limits
	Handler *answer.Handler // handler of rate-limit requests
	// Quotas is the rate limit quota service, or nil.
	Quotas quota.Service
	// Tokens are for work that can be long. Nil means tokens of its own.
	Tokens *cpu.Tokens
	// Creds perform the handshake of a connection.
	Creds credentials.TransportCredentials
	// Tracer, if not nil, traces rate-limit requests. It reads the headers in TraceHeaders, which
	// are in lower case.
	Tracer       stats.Handler
	TraceHeaders []string
	// Draining is closed when the streams of other services must end.
	Draining <-chan struct{}
	// Register, if not nil, registers services other than RateLimitService: our own, whose calls
	// need no metadata, and others.
	Register func(own reflection.GRPCServer, others grpc.ServiceRegistrar)
}

// MachineOf returns the IP address of a client on another machine. It returns "" for a client on
// this machine, because all its programs share their addresses. The address is complete, unlike the
// prefix that AddressOf of package access returns: the pods of a node can share a prefix.
func MachineOf(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || tcp.IP.IsLoopback() {
		return ""
	}
	return tcp.AddrPort().Addr().Unmap().String()
}

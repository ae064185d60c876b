package transport

import (
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/stats"

	"github.com/sluice-ratelimit/sluice/server/answer"
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

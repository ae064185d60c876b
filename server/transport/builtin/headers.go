package builtin

import (
	"net"
	"slices"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/server/transport"
)

// maxTraceHeader is the longest header of a trace that is kept. W3C requires 512 bytes of
// tracestate and 8192 of baggage.
const maxTraceHeader = 16 << 10

// mostTraceHeaders is how much is kept of a call's headers of traces. Each of a thousand open calls may have
// some of each, again and again.
const mostTraceHeaders = 2 * maxTraceHeader

// keepsHeader reports whether a header with the given number of bytes is kept while its call is open, because tracing
// reads the headers traces.
func keepsHeader(traces []string, name []byte, size int) bool {
	return size <= maxTraceHeader && slices.ContainsFunc(traces, func(k string) bool { return k == string(name) })
}

// headersTooLarge counts and logs a call of a client that is rejected for its headers, and returns its error.
func headersTooLarge(c *transport.Config, size int, client net.Addr) error {
	most := int(c.Limits.MaxHeaderBytes)
	c.Handler.Metrics.Rejected.Headers.Inc()
	c.Handler.Metrics.ClientErrors.BeyondBounds.Report(c.Handler.Rare, client, zap.String("bound", "headers"),
		zap.Int("bytes", size), zap.Int("max", most), zap.String("remedy", "set --max-header-size above what your proxies forward"))
	return status.Errorf(codes.ResourceExhausted, "the headers take %d bytes: --max-header-size allows %d", size, most)
}

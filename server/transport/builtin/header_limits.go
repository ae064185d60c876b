package builtin

import (
	"net"
	"slices"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/server/transport"
)

// maxTraceHeader is the size of the largest tracing header that is kept. W3C requires 512 bytes of
// tracestate and 8192 of baggage.
const maxTraceHeader = 16 << 10

// maxTraceHeaderBytes limits the tracing headers that a call keeps. There may be a thousand calls,
// and a header may be repeated.
const maxTraceHeaderBytes = 2 * maxTraceHeader

// shouldKeepHeader reports whether a header of the given size is kept while its call is open: it is
// one of the tracing headers.
func shouldKeepHeader(traces []string, name []byte, size int) bool {
	return size <= maxTraceHeader && slices.ContainsFunc(traces, func(k string) bool { return k == string(name) })
}

// headersTooLargeError counts and logs a call that is rejected because of its headers, and returns
// the error.
func headersTooLargeError(c *transport.Config, size int, client net.Addr) error {
	limit := int(c.Limits.MaxHeaderBytes)
	c.Handler.Metrics.Rejected.Headers.Inc()
	c.Handler.Metrics.ClientErrors.BeyondBounds.Report(c.Handler.Rare, client, zap.String("bound", "headers"),
		zap.Int("bytes", size), zap.Int("max", limit), zap.String("remedy", "set --max-header-size above what your proxies forward"))
	return status.Errorf(codes.ResourceExhausted, "headers of %d bytes exceed --max-header-size (%d)", size, limit)
}

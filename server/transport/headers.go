package transport

import (
	"slices"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

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
	c.Handler.Rare.Warn("call rejected: its headers are too large; more within ten seconds are only counted",
		zap.Int("bytes", size), zap.Int("max", most), zap.String("remedy", "set --max-header-size above what your proxies forward"))
	return status.Errorf(codes.ResourceExhausted, "the headers take %d bytes: --max-header-size allows %d", size, most)
}

package server

import (
	"context"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// decodedHeaders says how much grpc-go decodes of a call's headers: this many times
// --max-header-size. Of a call between the two bounds, only that call fails, here. Beyond the
// larger one, grpc-go resets the call if it has many small headers in one frame. Otherwise it
// closes the connection, with all other calls on it.
const decodedHeaders = 2

// maxTraceHeader is the longest header of a trace that is kept. W3C requires 512 bytes of
// tracestate and 8192 of baggage.
const maxTraceHeader = 16 << 10

// mostTraceHeaders is how much the own transport keeps of a call's headers of traces. Each of a thousand
// open calls may have some of each, again and again.
const mostTraceHeaders = 2 * maxTraceHeader

// headerBound is the bound on a call's headers.
type headerBound struct {
	max      int
	kept     []string // the headers that tracing reads, in lower case
	all      bool     // all are kept: there are services that may read them
	rejected prometheus.Counter
	logger   *zap.Logger // see rareLogger
}

// inspect is called with the headers of each call before anything else is done for it. It rejects
// a call whose headers are too large. It deletes the headers that nobody reads: otherwise each of
// a thousand open calls of a client would keep its own.
//
// It implements [tap.ServerInHandle]. grpc-go calls it in the connection's reader, so it must be
// quick and must not wait.
func (b *headerBound) inspect(ctx context.Context, info *tap.Info) (context.Context, error) {
	size := 0
	for name, values := range info.Header {
		n := fieldSize(name, values)
		size += n
		if !b.all && (n > maxTraceHeader || !slices.Contains(b.kept, name)) {
			delete(info.Header, name)
		}
	}
	if size <= b.max {
		return ctx, nil
	}
	return ctx, headersTooLarge(size, b.max, b.rejected, b.logger)
}

// headersTooLarge counts and logs a call that is rejected for its headers, and returns its error.
func headersTooLarge(size, most int, rejected prometheus.Counter, logger *zap.Logger) error {
	rejected.Inc()
	logger.Warn("call rejected: its headers are too large; more within ten seconds are only counted",
		zap.Int("bytes", size), zap.Int("max", most), zap.String("remedy", "set --max-header-size above what your proxies forward"))
	return status.Errorf(codes.ResourceExhausted, "the headers take %d bytes: --max-header-size allows %d", size, most)
}

// fieldSize is what a header and its values take in the list of headers by RFC 9113, section
// 6.5.2.
func fieldSize(name string, values []string) int {
	n := 0
	for _, v := range values {
		n += len(name) + len(v) + 32
	}
	return n
}

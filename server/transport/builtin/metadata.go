package builtin

import (
	"encoding/base64"
	"maps"
	"net"
	"slices"
	"strings"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/server/transport"
	"github.com/sluice-ratelimit/sluice/server/transport/h2"
)

// messagePrefix is the size of a message's prefix: a flag and a length.
const messagePrefix = 5

// binarySuffix marks headers whose values are base64 on the wire.
const binarySuffix = "-bin"

// reservedHeaders are reserved by gRPC. They are not metadata.
var reservedHeaders = []string{
	"te", "grpc-encoding", "grpc-message", "grpc-message-type", "grpc-status", "grpc-timeout",
}

// metadataOf returns the metadata of a request, decoded as in grpc-go.
func metadataOf(fields []h2.Field) (metadata.MD, error) {
	md := make(metadata.MD, len(fields))
	for _, f := range fields {
		value := f.Value
		switch {
		case slices.Contains(reservedHeaders, f.Name):
			continue
		case strings.HasSuffix(f.Name, binarySuffix):
			code := base64.RawStdEncoding
			if len(value)%4 == 0 { // it is padded, or needs no padding
				code = base64.StdEncoding
			}
			bytes, err := code.DecodeString(value)
			if err != nil {
				return nil, status.Errorf(codes.Internal, "malformed binary metadata %q in header %q: %v", value,
					f.Name, err)
			}
			value = string(bytes)
		}
		md[f.Name] = append(md[f.Name], value)
	}
	return md, nil
}

// fieldsOf returns the header fields of a reply's metadata.
func fieldsOf(md metadata.MD) []h2.Field {
	var fields []h2.Field
	for _, name := range slices.Sorted(maps.Keys(md)) {
		if name == "" || name[0] == ':' || name == "content-type" || name == "user-agent" ||
			slices.Contains(reservedHeaders, name) {
			continue
		}
		for _, value := range md[name] {
			if strings.HasSuffix(name, binarySuffix) {
				value = base64.RawStdEncoding.EncodeToString([]byte(value))
			}
			fields = append(fields, h2.Field{Name: name, Value: value})
		}
	}
	return fields
}

// validateMetadata returns an error if metadata contains characters that are invalid in headers.
func validateMetadata(md metadata.MD) error {
	for name, values := range md {
		for _, b := range []byte(name) {
			if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789.-_:", rune(b)) {
				return status.Errorf(codes.Internal, "header key %q contains illegal characters not in [0-9a-z-_.]",
					name)
			}
		}
		for _, value := range values {
			if !strings.HasSuffix(name, binarySuffix) &&
				strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
				return status.Errorf(codes.Internal, "header key %q contains value with non-printable ASCII characters",
					name)
			}
		}
	}
	return nil
}

// statusOf converts an error to a status.
func statusOf(err error) h2.Status {
	if err == nil {
		return h2.Status{}
	}
	s, _ := status.FromError(err)
	return h2.Status{Code: uint32(s.Code()), Message: s.Message()}
}

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
		zap.Int("bytes", size), zap.Int("max", limit),
		zap.String("remedy", "set --max-header-size above what your proxies forward"))
	return status.Errorf(codes.ResourceExhausted, "headers of %d bytes exceed --max-header-size (%d)", size, limit)
}

package hostile

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"slices"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// healthCheck is a method of another service.
const healthCheck = "/grpc.health.v1.Health/Check"

// inflated is the decompressed size of a request of a few KB. It is below the server's limit.
const inflated = 7 << 19

// bombs returns attacks with compressed requests, and with requests that are not gRPC.
func bombs(t Target) []Attack {
	return []Attack{
		{Name: "gzip bomb", begin: func(c *Conn) (func() error, error) {
			entry := append(field(1, t.Key), longField(2, inflated)...)
			return c.compressedCalls(shouldRateLimit, append(field(1, t.Domain), message(2, message(1, entry))...))
		}},
		{Name: "gzip bomb to health", begin: func(c *Conn) (func() error, error) { return c.compressedCalls(healthCheck, longField(1, inflated)) }},
		{Name: "requests that are not gRPC", options: zeroWindow, begin: otherContentType},
	}
}

// compressedCalls makes calls with compressed messages.
func (c *Conn) compressedCalls(path string, request []byte) (func() error, error) {
	var small bytes.Buffer
	w := gzip.NewWriter(&small)
	if _, err := w.Write(request); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	framed := Framed(small.Bytes())
	framed[0] = 1 // compressed
	headers := block(path, hpack.HeaderField{Name: "grpc-encoding", Value: "gzip"})
	return c.callsOf(1, 2, func(b []byte, stream uint32) []byte { return appendCall(b, stream, headers, framed) }), nil
}

// otherContentType sends requests of another content type whose answers have no window, and
// continues to send data on their streams.
func otherContentType(c *Conn) (func() error, error) {
	headers := encode([]hpack.HeaderField{
		{Name: ":method", Value: "GET"},
		{Name: ":scheme", Value: "http"},
		{Name: ":path", Value: "/"},
		{Name: ":authority", Value: "sluice"},
	})
	if err := c.onManyStreams(1, openStream(headers))(); err != nil {
		return nil, err
	}
	var b []byte
	part := make([]byte, 1025)
	next := uint32(0)
	return func() error {
		b = b[:0]
		for range 64 {
			b = appendFrame(b, http2.FrameData, 0, 1+2*(next%manyStreams), part)
			next++
		}
		return c.Send(64, b)
	}, nil
}

// message returns a message field in protobuf encoding.
func message(number byte, value []byte) []byte {
	return append(binary.AppendUvarint([]byte{number<<3 | 2}, uint64(len(value))), value...)
}

// longField returns a field of size equal bytes.
func longField(number byte, size int) []byte {
	return message(number, slices.Repeat([]byte("x"), size))
}

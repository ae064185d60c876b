package h2

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// TestHeaderValues makes calls with one unusual header each, which replaces the usual one, on one
// connection. A call without an expected frame is answered.
func TestHeaderValues(t *testing.T) {
	const (
		protocolError = "RST_STREAM 1 PROTOCOL_ERROR"
		notGRPC       = "HEADERS 1 :status=415 content-type=text/plain"
		notPost       = "HEADERS 1 :status=405 content-type=text/plain"
		otherCodec    = "HEADERS 1 grpc-status=12 grpc-message=the content type must be application/grpc or application/grpc+proto END"
		badTimeout    = "HEADERS 1 :status=400 grpc-status=13 grpc-message=malformed grpc-timeout END"
		badBinary     = "HEADERS 1 :status=400 grpc-status=13 grpc-message=malformed binary metadata END"
		noHost        = "HEADERS 1 :status=400 grpc-status=13 grpc-message=no host or :authority header present END"
		compressed    = `HEADERS 1 grpc-status=12 grpc-message=grpc: Decompressor is not installed for grpc-encoding "100%25" grpc-accept-encoding=identity END`
	)
	c := newReadyClient(t)
	id := uint32(1)
	for _, tt := range []struct {
		name   string
		values []string
		want   string
	}{
		{"content-type", []string{
			"application/grpc", "application/grpc+proto", "application/grpc+proto;charset=utf-8", "application/grpc;charset=utf-8", "application/grpc+", "application/grpc;",
		}, ""},
		{"content-type", []string{
			"", "application/grpcx", "application/grpc-web", "Application/GRPC", "application/grpc ", " application/grpc", "application/json",
		}, notGRPC},
		{"content-type", []string{"application/grpc+json", "application/grpc+json;x"}, otherCodec},
		{":method", []string{"", "GET", "HEAD", "PUT", "CONNECT", "post", "POST "}, notPost},
		{":scheme", []string{"", "https", "x"}, ""},
		{":path", []string{"/~"}, "HEADERS 1 grpc-status=12 grpc-message=unknown method /~ END"},
		{":path", []string{"/\x7f%"}, "HEADERS 1 grpc-status=12 grpc-message=unknown method /%7F%25 END"},
		{":authority", []string{""}, ""},
		{"host", []string{"", "other"}, ""},
		{"te", []string{"", "gzip", "trailers, deflate", "Trailers"}, protocolError},
		{"connection", []string{"", "te"}, protocolError},
		{"proxy-connection", []string{"close"}, protocolError},
		{"keep-alive", []string{"1"}, protocolError},
		{"transfer-encoding", []string{"chunked"}, protocolError},
		{"upgrade", []string{"h2c"}, protocolError},
		{"http2-settings", []string{"AAMAAABkAAQAAP__"}, ""},
		{"x_y", []string{"z", " spaces ", "\ttab\t", "\xc3\x28", "\x01\x7f\xff"}, ""},
		{"~x!#$%&'*+-.^_`|", []string{"z"}, ""},
		{"x", []string{"\x00", "a\rb", "a\n"}, protocolError},
		{"x y", []string{"z"}, protocolError},
		{"xZ", []string{"z"}, protocolError},
		{"x:y", []string{"z"}, protocolError},
		{"x\x7f", []string{"z"}, protocolError},
		{"grpc-timeout", []string{"1H", "99999999n", "00000001S"}, ""},
		{"grpc-timeout", []string{"", "1", "S", "1s", "+1S", "100000000n"}, badTimeout},
		{"grpc-encoding", []string{"", "identity"}, ""},
		{"grpc-encoding", []string{"100%"}, compressed},
		{"x-bin", []string{"", "AAEC", "AA==", "AA", "AAE=", "AAE", "AA+/", "azAZ09+/", strings.Repeat("A", 3000)}, ""},
		{"x-bin", []string{"A", "A===", "AA=", "AAE==", "=", "====", "AA-_", "AA EC", "AAEC,AAEC", "AA==AA==", "AA@A", "AA[A", "AA`A", "AA{A", "AA:A", "AA.A"}, badBinary},
		{"x-bin-y", []string{"!"}, ""},
	} {
		for _, value := range tt.values {
			id += 2
			c.now += time.Second // refills the budget of glitches
			fields := request(echoPath)
			found := false
			for i := 0; i < len(fields); i += 2 {
				if fields[i] == tt.name {
					fields[i+1] = value
					found = true
				}
			}
			if !found {
				fields = append(fields, tt.name, value)
			}
			c.headers(id, false, fields...)
			c.must(c.WriteData(id, true, grpcMessage("a")))
			want := strings.Replace(cmp.Or(tt.want, answer(1, "a")[0]), " 1", fmt.Sprintf(" %d", id), 1)
			if got := c.frames(); len(got) == 0 || got[0] != want {
				t.Errorf("%s: %q: the client gets\n%q, want first\n%q", tt.name, value, got, want)
			}
		}
	}
	for _, tt := range []struct {
		name   string
		fields []string
		want   string
	}{
		{"no host", []string{":method", "POST", ":scheme", "http", ":path", echoPath, "content-type", "application/grpc"}, noHost},
		{"two hosts", request(echoPath, "host", "a", "host", "a"), "HEADERS 1 :status=400 grpc-status=13 grpc-message=more than one host header END"},
		{"two content types", request(echoPath, "content-type", "text/plain"), answer(1, "a")[0]},
		{"equal content lengths", request(echoPath, "content-length", "6", "content-length", "6"), answer(1, "a")[0]},
		{"two content lengths", request(echoPath, "content-length", "6", "content-length", "7"), protocolError},
		{"an invalid timeout and value", request(echoPath, "grpc-timeout", "x", "x-bin", "!"), badBinary},
	} {
		c := newReadyClient(t)
		c.headers(1, false, tt.fields...)
		c.must(c.WriteData(1, true, grpcMessage("a")))
		if got := c.frames(); len(got) == 0 || got[0] != tt.want {
			t.Errorf("%s: the client gets\n%q, want first\n%q", tt.name, got, tt.want)
		}
	}
}

// TestPaddedCall checks that padding and a priority do not change an answer.
func TestPaddedCall(t *testing.T) {
	c := newReadyClient(t)
	one := grpcMessage("hello")
	c.must(c.WriteHeaders(http2.HeadersFrameParam{
		StreamID: 1, EndHeaders: true, PadLength: 99, BlockFragment: c.encode(request(echoPath)...), Priority: http2.PriorityParam{StreamDep: 3, Weight: 3},
	}))
	c.must(c.WriteDataPadded(1, false, one[:3], make([]byte, 255)))
	c.must(c.WriteDataPadded(1, false, nil, make([]byte, 100)))
	c.must(c.WriteDataPadded(1, true, one[3:], nil))
	c.want(answer(1, "hello")...)
}

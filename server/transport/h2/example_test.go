package h2_test

import (
	"bytes"
	"fmt"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/sluice-ratelimit/sluice/server/transport/h2"
)

// upper answers calls with their message in upper case.
type upper struct{}

func (upper) Call(c *h2.Call) ([]byte, h2.Status, h2.PendingCall) {
	fmt.Printf("call: %q\n", c.Message)
	return bytes.ToUpper(c.Message), h2.Status{}, nil
}

func (upper) Open(*h2.Call) (h2.StreamingCall, h2.Status) { return nil, h2.Status{Code: 12} }

func (upper) UnknownMethod(path string) h2.Status { return h2.Status{Code: 12, Message: path} }

func (upper) LimitExceeded(*h2.Call, h2.Limit, int) h2.Status { return h2.Status{Code: 8} }
func (upper) Reset(uint32)                                    {}

// A connection is fed with a client's bytes, here a complete call, and appends the bytes to send.
func ExampleConn() {
	var in, headers bytes.Buffer
	in.WriteString(h2.Preface)
	frames, encoder := http2.NewFramer(&in, nil), hpack.NewEncoder(&headers)
	for _, h := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", "/shout.Shout/Loud"},
		{":authority", "here"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
	} {
		_ = encoder.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}) // into memory, as the frames
	}
	_ = frames.WriteSettings()
	_ = frames.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: headers.Bytes(), EndHeaders: true})
	_ = frames.WriteData(1, true, append([]byte{0, 0, 0, 0, 5}, "hello"...))

	server := h2.NewServer(h2.Options{
		Limits:  h2.Limits{MaxStreams: 100, MaxHeaderBytes: 16 << 10, MaxMessageBytes: 64 << 10, PingInterval: 10 * time.Second},
		Methods: []h2.Method{{Path: "/shout.Shout/Loud"}},
	})
	conn := server.NewConn(upper{}, 0)
	out, _, _, err := conn.Feed(conn.Start(nil), in.Bytes(), time.Second)
	if err != nil {
		fmt.Println(err)
		return
	}
	for got := http2.NewFramer(nil, bytes.NewReader(out)); ; {
		f, err := got.ReadFrame()
		if err != nil {
			return // all was read
		}
		if data, ok := f.(*http2.DataFrame); ok {
			fmt.Printf("reply: %q\n", data.Data()[5:])
		}
	}
	// Output:
	// call: "hello"
	// reply: "HELLO"
}

package h2

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// TestConnectionErrors violates rules that close the connection.
func TestConnectionErrors(t *testing.T) {
	for _, tt := range []struct {
		name  string
		write func(c *client)
		want  Code
	}{
		{"a frame too large", func(c *client) { c.must(c.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, maxFrameBytes+1))) }, CodeFrameSize},
		{"DATA on stream 0", func(c *client) { c.must(c.WriteData(0, true, nil)) }, CodeProtocol},
		{"DATA on an idle stream", func(c *client) { c.must(c.WriteData(1, true, nil)) }, CodeProtocol},
		{"DATA on a stream that has ended", func(c *client) {
			c.call(1, "hello")
			c.must(c.WriteData(1, true, nil))
		}, CodeStreamClosed},
		{"HEADERS on stream 0", func(c *client) { c.headers(0, true, request(echoPath)...) }, CodeProtocol},
		{"HEADERS on a server's stream", func(c *client) { c.headers(2, true, request(echoPath)...) }, CodeProtocol},
		{"HEADERS on a closed stream", func(c *client) {
			c.call(1, "hello")
			c.headers(1, true, request(echoPath)...)
		}, CodeStreamClosed},
		{"HEADERS on a lower stream", func(c *client) {
			c.call(3, "hello")
			c.headers(1, true, request(echoPath)...)
		}, CodeProtocol},
		{"a frame inside a header block", func(c *client) {
			c.must(c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.encode(request(echoPath)...)}))
			c.must(c.WritePing(false, [8]byte{}))
		}, CodeProtocol},
		{"CONTINUATION of another stream", func(c *client) {
			c.must(c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.encode(request(echoPath)...)}))
			c.must(c.WriteContinuation(3, true, nil))
		}, CodeProtocol},
		{"CONTINUATION of no block", func(c *client) { c.must(c.WriteContinuation(1, true, nil)) }, CodeProtocol},
		{"an empty CONTINUATION", func(c *client) {
			c.must(c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.encode(request(echoPath)...)}))
			c.must(c.WriteContinuation(1, false, nil))
		}, CodeEnhanceYourCalm},
		{"a block that ends within a field", func(c *client) {
			c.must(c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, BlockFragment: []byte("\x40\x01")}))
		}, CodeCompression},
		{"padding only", func(c *client) { c.must(c.WriteRawFrame(http2.FrameHeaders, flagPadded|flagEndHeaders, 1, []byte{1})) }, CodeProtocol},
		{"padded and empty", func(c *client) { c.must(c.WriteRawFrame(http2.FrameHeaders, flagPadded, 1, nil)) }, CodeFrameSize},
		{"a priority cut short", func(c *client) { c.must(c.WriteRawFrame(http2.FrameHeaders, flagPriority, 1, make([]byte, 4))) }, CodeFrameSize},
		{"RST_STREAM on an idle stream", func(c *client) { c.must(c.WriteRSTStream(1, http2.ErrCodeCancel)) }, CodeProtocol},
		{"RST_STREAM of a wrong length", func(c *client) { c.must(c.WriteRawFrame(http2.FrameRSTStream, 0, 1, make([]byte, 5))) }, CodeFrameSize},
		{"PRIORITY on stream 0", func(c *client) { c.must(c.WriteRawFrame(http2.FramePriority, 0, 0, make([]byte, 5))) }, CodeProtocol},
		{"PRIORITY of a wrong length on a stream that has not begun", func(c *client) { c.must(c.WriteRawFrame(http2.FramePriority, 0, 7, make([]byte, 4))) }, CodeFrameSize},
		{"PRIORITY on a stream that has not begun, and depends on itself", func(c *client) {
			c.must(c.WriteRawFrame(http2.FramePriority, 0, 7, []byte{0, 0, 0, 7, 0}))
		}, CodeProtocol},
		{"PRIORITY on a server's stream that depends on itself", func(c *client) {
			c.must(c.WriteRawFrame(http2.FramePriority, 0, 8, []byte{0, 0, 0, 8, 0}))
		}, CodeProtocol},
		{"SETTINGS on a stream", func(c *client) { c.must(c.WriteRawFrame(http2.FrameSettings, 0, 1, nil)) }, CodeProtocol},
		{"SETTINGS of a wrong length", func(c *client) { c.must(c.WriteRawFrame(http2.FrameSettings, 0, 0, make([]byte, 7))) }, CodeFrameSize},
		{"SETTINGS ACK with settings", func(c *client) { c.must(c.WriteRawFrame(http2.FrameSettings, flagAck, 0, make([]byte, 6))) }, CodeFrameSize},
		{"too many SETTINGS", func(c *client) {
			c.must(c.WriteRawFrame(http2.FrameSettings, 0, 0, make([]byte, 6*33)))
		}, CodeEnhanceYourCalm},
		{"ENABLE_PUSH of 2", func(c *client) { c.must(c.WriteSettings(http2.Setting{ID: 2, Val: 2})) }, CodeProtocol},
		{"INITIAL_WINDOW_SIZE of 2^31", func(c *client) { c.must(c.WriteSettings(http2.Setting{ID: 4, Val: 1 << 31})) }, CodeFlowControl},
		{"MAX_FRAME_SIZE of 0", func(c *client) { c.must(c.WriteSettings(http2.Setting{ID: 5})) }, CodeProtocol},
		{"MAX_FRAME_SIZE of 2^24", func(c *client) { c.must(c.WriteSettings(http2.Setting{ID: 5, Val: 1 << 24})) }, CodeProtocol},
		{"a setting that overflows a window", func(c *client) {
			c.call(1, "later")
			c.must(c.WriteWindowUpdate(1, maxWindow-defaultWindow))
			c.must(c.WriteSettings(http2.Setting{ID: 4, Val: defaultWindow + 1}))
		}, CodeFlowControl},
		{"the same of a stream that has just begun", func(c *client) {
			c.headers(1, false, request(echoPath)...)
			c.must(c.WriteWindowUpdate(1, maxWindow-defaultWindow))
			c.must(c.WriteSettings(http2.Setting{ID: 4, Val: defaultWindow + 1}))
		}, CodeFlowControl},
		{"PUSH_PROMISE", func(c *client) { c.must(c.WriteRawFrame(http2.FramePushPromise, flagEndHeaders, 1, make([]byte, 4))) }, CodeProtocol},
		{"PING on a stream", func(c *client) { c.must(c.WriteRawFrame(http2.FramePing, 0, 1, make([]byte, 8))) }, CodeProtocol},
		{"PING of a wrong length", func(c *client) { c.must(c.WriteRawFrame(http2.FramePing, 0, 0, make([]byte, 7))) }, CodeFrameSize},
		{"GOAWAY on a stream", func(c *client) { c.must(c.WriteRawFrame(http2.FrameGoAway, 0, 1, make([]byte, 8))) }, CodeProtocol},
		{"GOAWAY of a wrong length", func(c *client) { c.must(c.WriteRawFrame(http2.FrameGoAway, 0, 0, make([]byte, 7))) }, CodeFrameSize},
		{"WINDOW_UPDATE of a wrong length", func(c *client) { c.must(c.WriteRawFrame(http2.FrameWindowUpdate, 0, 0, make([]byte, 5))) }, CodeFrameSize},
		{"WINDOW_UPDATE of nothing", func(c *client) { c.must(c.WriteWindowUpdate(0, 0)) }, CodeProtocol},
		{"WINDOW_UPDATE on an idle stream", func(c *client) { c.must(c.WriteWindowUpdate(1, 1)) }, CodeProtocol},
		{"a connection's window too large", func(c *client) { c.must(c.WriteWindowUpdate(0, maxWindow)) }, CodeFlowControl},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newReadyClient(t)
			tt.write(c)
			c.wantError(tt.want)
		})
	}
}

// TestStreamErrors violates rules that affect one call.
func TestStreamErrors(t *testing.T) {
	for _, tt := range []struct {
		name  string
		write func(c *client)
		want  Code
	}{
		{"no :path", func(c *client) {
			c.headers(1, true, ":method", "POST", ":scheme", "http", "content-type", "application/grpc")
		}, CodeProtocol},
		{"an empty :path", func(c *client) { c.headers(1, true, request("")...) }, CodeProtocol},
		{"a :path without a slash", func(c *client) { c.headers(1, true, request(echoPath[1:])...) }, CodeProtocol},
		{"a pseudo-header twice", func(c *client) {
			c.headers(1, true, append([]string{":path", echoPath}, request(echoPath)...)...)
		}, CodeProtocol},
		{"a pseudo-header after others", func(c *client) {
			c.headers(1, true, ":method", "POST", ":scheme", "http", "te", "trailers", ":path", echoPath)
		}, CodeProtocol},
		{"an unknown pseudo-header", func(c *client) { c.headers(1, true, append([]string{":x", "y"}, request(echoPath)...)...) }, CodeProtocol},
		{"a response's pseudo-header", func(c *client) { c.headers(1, true, append([]string{":status", "200"}, request(echoPath)...)...) }, CodeProtocol},
		{"connection", func(c *client) { c.headers(1, true, request(echoPath, "connection", "close")...) }, CodeProtocol},
		{"te", func(c *client) { c.headers(1, true, request(echoPath, "te", "gzip")...) }, CodeProtocol},
		{"upper case", func(c *client) { c.headers(1, true, request(echoPath, "X-Y", "z")...) }, CodeProtocol},
		{"an empty name", func(c *client) { c.headers(1, true, request(echoPath, "", "z")...) }, CodeProtocol},
		{"a line break", func(c *client) { c.headers(1, true, request(echoPath, "x", "y\r\nz")...) }, CodeProtocol},
		{"a zero byte", func(c *client) { c.headers(1, true, request(echoPath, "x", "\x00")...) }, CodeProtocol},
		{"more than content-length", func(c *client) {
			c.headers(1, false, request(echoPath, "content-length", "9")...)
			c.must(c.WriteData(1, false, make([]byte, 10)))
		}, CodeProtocol},
		{"less than content-length", func(c *client) {
			c.headers(1, false, request(echoPath, "content-length", "9")...)
			c.must(c.WriteData(1, true, make([]byte, 8)))
		}, CodeProtocol},
		{"a content-length that is no number", func(c *client) { c.headers(1, false, request(echoPath, "content-length", "+9")...) }, CodeProtocol},
		{"a content-length of 17 digits", func(c *client) {
			c.headers(1, false, request(echoPath, "content-length", strings.Repeat("0", 16)+"9")...)
		}, CodeProtocol},
		{"trailers that end nothing", func(c *client) {
			c.headers(1, false, request(echoPath)...)
			c.headers(1, false, "x", "y")
		}, CodeProtocol},
		{"pseudo-headers in trailers", func(c *client) {
			c.headers(1, false, request(echoPath)...)
			c.headers(1, true, ":path", "/")
		}, CodeProtocol},
		{"DATA after the end", func(c *client) {
			c.call(1, "later")
			c.must(c.WriteData(1, true, nil))
		}, CodeStreamClosed},
		{"HEADERS after the end", func(c *client) {
			c.call(1, "later")
			c.headers(1, true, "x", "y")
		}, CodeStreamClosed},
		{"WINDOW_UPDATE of nothing", func(c *client) {
			c.call(1, "later")
			c.must(c.WriteWindowUpdate(1, 0))
		}, CodeProtocol},
		{"a stream's window too large", func(c *client) {
			c.call(1, "later")
			c.must(c.WriteWindowUpdate(1, maxWindow))
		}, CodeFlowControl},
		{"a stream that depends on itself", func(c *client) {
			c.must(c.WriteHeaders(http2.HeadersFrameParam{
				StreamID: 1, EndStream: true, EndHeaders: true, PadLength: 7, BlockFragment: c.encode(request(echoPath)...), Priority: http2.PriorityParam{StreamDep: 1},
			}))
		}, CodeProtocol},
		{"PRIORITY that depends on itself", func(c *client) {
			c.call(1, "later")
			c.must(c.WritePriority(1, http2.PriorityParam{StreamDep: 1}))
		}, CodeProtocol},
		{"PRIORITY of a wrong length", func(c *client) {
			c.call(1, "later")
			c.must(c.WriteRawFrame(http2.FramePriority, 0, 1, make([]byte, 4)))
		}, CodeFrameSize},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newReadyClient(t)
			tt.write(c)
			c.want("RST_STREAM 1 " + http2.ErrCode(tt.want).String())
			c.call(3, "hello")
			c.want(answer(3, "hello")...)
			if later := len(c.handler.calls) - 1; c.handler.cancelled != later {
				t.Errorf("%d of %d calls were cancelled", c.handler.cancelled, later)
			}
			if c.conn.OpenStreams() != 0 || c.conn.Buffered() != 0 {
				t.Errorf("%d streams are open, %d bytes buffered", c.conn.OpenStreams(), c.conn.Buffered())
			}
		})
	}
}

// TestTrailersAfterEarlyAnswers answers many calls before their requests have ended. The client
// ends them later, in any order, with trailers or DATA.
func TestTrailersAfterEarlyAnswers(t *testing.T) {
	const n = 90
	for _, trailers := range []bool{true, false} {
		c := newReadyClient(t)
		for i := range uint32(n) {
			c.headers(1+2*i, false, request("/unknown")...)
		}
		for i := range uint32(n) {
			if trailers {
				c.headers(1+2*i, true, "x", "y")
			} else {
				c.must(c.WriteData(1+2*i, true, grpcMessage("hello")))
			}
		}
		if c.frames(); c.err != nil {
			t.Fatalf("the connection ended: %v", c.err)
		}
		c.call(1001, "hello")
		c.want(answer(1001, "hello")...)
		c.headers(1, true, "x", "y") // all have ended by now
		c.wantError(CodeProtocol)
	}
}

// TestIgnoredFrames sends frames that must be ignored.
func TestIgnoredFrames(t *testing.T) {
	for name, write := range map[string]func(c *client){
		"unknown frames": func(c *client) {
			for kind := 10; kind < 256; kind++ {
				c.must(c.WriteRawFrame(http2.FrameType(kind), 0xff, uint32(kind), make([]byte, kind)))
			}
		},
		"unknown flags and settings": func(c *client) {
			c.must(c.WriteSettings(http2.Setting{ID: 0xff, Val: 1 << 31}))
			c.want("SETTINGS ACK")
		},
		"PRIORITY on an idle stream":         func(c *client) { c.must(c.WritePriority(99, http2.PriorityParam{StreamDep: 3})) },
		"GOAWAY":                             func(c *client) { c.must(c.WriteGoAway(7, http2.ErrCodeNo, []byte("bye"))) },
		"an acknowledgement too many":        func(c *client) { c.must(c.WriteSettingsAck()) },
		"the answer of a PING we never sent": func(c *client) { c.must(c.WritePing(true, [8]byte{1})) },
		"late frames of a stream that has ended": func(c *client) {
			c.call(1, "hello")
			c.want(answer(1, "hello")...)
			c.must(c.WriteWindowUpdate(1, 100))
			c.must(c.WriteWindowUpdate(1, 0))
			c.must(c.WriteRSTStream(1, http2.ErrCodeCancel))
			c.must(c.WritePriority(1, http2.PriorityParam{StreamDep: 3}))
		},
		"late DATA of a stream that we have ended": func(c *client) {
			c.headers(1, false, request("/unknown")...)
			c.want("HEADERS 1 grpc-status=12 grpc-message=unknown method /unknown END", "RST_STREAM 1 NO_ERROR")
			c.must(c.WriteData(1, false, make([]byte, 9999)))
			c.headers(1, true, "late", "trailers")
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newReadyClient(t)
			write(c)
			c.want()
			c.call(101, "hello")
			c.want(answer(101, "hello")...)
		})
	}
}

func TestPreface(t *testing.T) {
	c := newClient(t)
	c.in.Reset()
	c.in.WriteString("GET / HTTP/1.1\r\n")
	c.wantError(CodeProtocol)
	c = newClient(t)
	c.must(c.WritePing(false, [8]byte{}))
	c.wantError(CodeProtocol)
	c = newClient(t)
	c.must(c.WriteSettingsAck())
	c.wantError(CodeProtocol)
}

// TestErrors makes calls that are answered with errors.
func TestErrors(t *testing.T) {
	for _, tt := range []struct {
		name  string
		write func(c *client)
		want  []string
	}{
		{"the handler's", func(c *client) { c.call(1, "fail") }, []string{"HEADERS 1 grpc-status=3 grpc-message=it fails: 100 %25%0A END"}},
		{"a GET", func(c *client) {
			c.headers(1, true, ":method", "GET", ":scheme", "http", ":path", "/", ":authority", "test", "content-type", "application/grpc")
		}, []string{"HEADERS 1 :status=405 content-type=text/plain", `DATA 1 "sluice speaks gRPC: the method must be POST\n" END`}},
		{"another content type", func(c *client) {
			c.headers(1, false, ":method", "POST", ":scheme", "http", ":path", echoPath, "content-type", "application/grpcweb")
			c.must(c.WriteData(1, true, make([]byte, 100)))
		}, []string{"HEADERS 1 :status=415 content-type=text/plain", `DATA 1 "sluice speaks gRPC: the content type must be application/grpc\n" END`}},
		{"no message", func(c *client) { c.headers(1, true, request(echoPath)...) }, []string{"HEADERS 1 grpc-status=12 grpc-message=" + errNoMessage.Message + " END"}},
		{"two messages", func(c *client) {
			c.headers(1, false, request(echoPath)...)
			c.must(c.WriteData(1, true, append(grpcMessage("a"), grpcMessage("b")...)))
		}, []string{"HEADERS 1 grpc-status=12 grpc-message=" + errTooManyMessages.Message + " END"}},
		{"two messages, the end later", func(c *client) {
			c.headers(1, false, request(echoPath)...)
			c.must(c.WriteData(1, false, append(grpcMessage("a"), grpcMessage("b")...)))
		}, []string{"HEADERS 1 grpc-status=12 grpc-message=" + errTooManyMessages.Message + " END", "RST_STREAM 1 NO_ERROR"}},
		{"half a message", func(c *client) {
			c.headers(1, false, request(echoPath)...)
			c.must(c.WriteData(1, true, grpcMessage("abc")[:7]))
		}, []string{"HEADERS 1 grpc-status=13 grpc-message=" + errTruncated.Message + " END"}},
		{"half a prefix", func(c *client) {
			c.headers(1, false, request(echoPath)...)
			c.must(c.WriteData(1, true, []byte{0, 0}))
		}, []string{"HEADERS 1 grpc-status=13 grpc-message=" + errTruncated.Message + " END"}},
		{"compressed without an encoding", func(c *client) {
			c.headers(1, false, request(echoPath)...)
			c.must(c.WriteData(1, true, []byte{1, 0, 0, 0, 1, 'x'}))
		}, []string{"HEADERS 1 grpc-status=13 grpc-message=" + errNoEncoding.Message + " END"}},
		{"an unknown flag", func(c *client) {
			c.headers(1, false, request(echoPath)...)
			c.must(c.WriteData(1, true, []byte{2, 0, 0, 0, 1, 'x'}))
		}, []string{"HEADERS 1 grpc-status=13 grpc-message=grpc: received unexpected payload format 2 END"}},
		{
			"a compressed message", func(c *client) {
				c.headers(1, false, request(echoPath, "grpc-encoding", "gzip")...)
				c.must(c.WriteData(1, true, []byte{1, 0, 0, 0, 1, 'x'}))
			},
			[]string{
				"HEADERS 1 grpc-status=12 grpc-message=grpc: Decompressor is not installed for grpc-encoding \"gzip\" grpc-accept-encoding=identity END",
				"RST_STREAM 1 NO_ERROR",
			},
		},
		{"another codec", func(c *client) {
			c.headers(1, true, ":method", "POST", ":scheme", "http", ":path", echoPath, ":authority", "test", "content-type", "application/grpc+json")
		}, []string{"HEADERS 1 grpc-status=12 grpc-message=" + errOtherCodec.Message + " END"}},
		{
			"a timeout of 9 digits", func(c *client) { c.headers(1, true, request(echoPath, "grpc-timeout", "123456789S")...) },
			[]string{"HEADERS 1 :status=400 grpc-status=13 grpc-message=malformed grpc-timeout END"},
		},
		{"a timeout of 0", func(c *client) {
			c.headers(1, false, request(echoPath, "grpc-timeout", "0m")...)
			c.must(c.WriteData(1, true, grpcMessage("hello")))
		}, []string{"HEADERS 1 grpc-status=4 grpc-message=" + errDeadlineExceeded.Message + " END", "RST_STREAM 1 NO_ERROR"}},
		{"headers too large", func(c *client) {
			c.headers(1, true, request(echoPath, "x", strings.Repeat("y", 5000), "z", strings.Repeat("y", 12000))...)
		}, []string{"HEADERS 1 grpc-status=8 grpc-message=bound 0: 17355 bytes END"}},
		{"a message too large", func(c *client) {
			c.headers(1, false, request(echoPath)...)
			c.must(c.WriteData(1, false, []byte{0, 0, 1, 0, 1}))
		}, []string{"HEADERS 1 grpc-status=8 grpc-message=bound 1: 65537 bytes END", "RST_STREAM 1 NO_ERROR"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newReadyClient(t)
			tt.write(c)
			c.want(tt.want...)
			c.call(3, "hello")
			c.want(answer(3, "hello")...)
			if n := len(c.handler.calls); n > 1 && tt.name != "the handler's" {
				t.Errorf("the handler got %d calls, want the last", n)
			}
			if c.conn.OpenStreams() != 0 || c.conn.Buffered() != 0 {
				t.Errorf("%d streams are open, %d bytes buffered", c.conn.OpenStreams(), c.conn.Buffered())
			}
		})
	}
}

func TestTimeouts(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"1H": time.Hour, "2M": 2 * time.Minute, "3S": 3 * time.Second, "20m": 20 * time.Millisecond, "5u": 5 * time.Microsecond, "6n": 6,
		"99999999H": 100 * 365 * 24 * time.Hour, "0S": 0,
		"": invalidTimeout, "1": invalidTimeout, "S": invalidTimeout, "-1S": invalidTimeout, "1s": invalidTimeout, "1.5S": invalidTimeout, "123456789n": invalidTimeout,
	} {
		if got := parseTimeout([]byte(value)); got != want {
			t.Errorf("parseTimeout(%q) = %v, want %v", value, got, want)
		}
	}
}

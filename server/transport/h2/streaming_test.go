package h2

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

func keepX(name []byte, size int) bool { return name[0] == 'x' && size < 100 }

// Open implements [Handler].
func (e *echo) Open(c *Call) (StreamingCall, Status) {
	if slices.Contains(c.Fields, Field{"x-refuse", "yes"}) {
		return nil, Status{Code: 8, Message: "refused"}
	}
	e.calls = append(e.calls, *c)
	e.streamingCalls = append(e.streamingCalls, &recordedCall{echo: e, stream: c.Stream})
	newest := e.streamingCalls[len(e.streamingCalls)-1]
	if slices.Contains(c.Fields, Field{"x-pieces", "yes"}) {
		e.piecewise = append(e.piecewise, &chunkedCall{recordedCall: newest})
		return e.piecewise[len(e.piecewise)-1], Status{}
	}
	return newest, Status{}
}

// recordedCall records the calls of its methods.
type recordedCall struct {
	*echo
	stream   uint32
	received []string
	sent     int
}

func (s *recordedCall) Receive(message []byte) {
	line := string(message)
	if len(line) > 100 {
		line = fmt.Sprintf("%d bytes", len(line))
	}
	s.received = append(s.received, line)
}

func (s *recordedCall) RequestEnded(status Status) {
	s.received = append(s.received, strings.TrimRight(fmt.Sprintf("end %d %s", status.Code, status.Message), " "))
}

func (s *recordedCall) Sent(n int) { s.sent += n }

// wantReceived fails the test if the newest call did not receive this since the last check.
func (c *client) wantReceived(lines ...string) {
	c.t.Helper()
	c.feed()
	s := c.handler.streamingCalls[len(c.handler.streamingCalls)-1]
	if !slices.Equal(s.received, lines) {
		c.t.Fatalf("the call received %q, want %q", s.received, lines)
	}
	s.received = nil
}

// openStreaming opens a StreamingCall.
func (c *client) openStreaming(stream uint32, more ...string) {
	c.t.Helper()
	c.headers(stream, false, request(talkPath, more...)...)
}

// TestKeptHeaderLimit makes a call with more headers than it may keep: a header is kept if it fits.
func TestKeptHeaderLimit(t *testing.T) {
	c := newReadyClient(t, func(o *Options) { o.Methods[2].MaxKeptBytes = 230 })
	c.openStreaming(1, "x-a", strings.Repeat("a", 60), "x-b", strings.Repeat("b", 60), "x-c", strings.Repeat("c", 60), "y", "2", "x-d", "")
	c.want()
	if got := c.handler.calls[0].Fields; len(got) != 3 || got[0].Name != "x-a" || got[1].Name != "x-b" || got[2].Name != "x-d" {
		t.Errorf("the call keeps %v, want x-a, x-b and x-d", got)
	}
}

func TestStreamingCall(t *testing.T) {
	c := newReadyClient(t)
	c.openStreaming(1, "x-a", "1", "grpc-timeout", "3S", "x-b", strings.Repeat("b", 80), "y", "2", "x-c", "3")
	c.want()
	if got := c.handler.calls[0]; got.Method != 2 || got.Timeout != 3*time.Second ||
		!slices.Equal(got.Fields, []Field{{"x-a", "1"}, {"x-c", "3"}}) {
		t.Errorf("the handler gets %+v", got)
	}
	c.wantReceived()
	c.must(c.WriteData(1, false, append(grpcMessage("one"), grpcMessage("two")[:6]...)))
	c.wantReceived("one")
	c.must(c.WriteData(1, false, append(grpcMessage("two")[6:], grpcMessage("")...)))
	c.wantReceived() // no message was requested
	c.out = c.conn.RequestMessage(c.out, 1)
	c.wantReceived("two")
	c.out = c.conn.SendHeader(c.out, 1, []Field{{"x-d", "4"}})
	c.out = c.conn.SendHeader(c.out, 1, []Field{{"x-e", "5"}})
	c.out = c.conn.Send(c.out, 1, []byte("three"))
	c.want("HEADERS 1 x-d=4", fmt.Sprintf("DATA 1 %q", grpcMessage("three")))
	c.out = c.conn.RequestMessage(c.out, 1)
	c.wantReceived("")
	c.must(c.WriteData(1, true, grpcMessage("four")))
	c.out = c.conn.RequestMessage(c.out, 1)
	c.wantReceived("four", "end 0")
	c.out = c.conn.RequestMessage(c.out, 1)
	c.wantReceived()
	c.out = c.conn.Send(c.out, 1, nil)
	c.out = c.conn.Finish(c.out, 1, Status{Code: 3, Message: "é"}, []Field{{"x-f", strings.Repeat("f", 300)}})
	c.want(fmt.Sprintf("DATA 1 %q", grpcMessage("")), "HEADERS 1 grpc-status=3 grpc-message=%C3%A9 x-f="+strings.Repeat("f", 300)+" END")
	if got := c.handler.streamingCalls[0].sent; got != 15 || c.conn.OpenStreams() != 0 || c.conn.Buffered() != 0 {
		t.Errorf("%d bytes were sent, want 15; %d streams are open, %d bytes are buffered", got, c.conn.OpenStreams(), c.conn.Buffered())
	}
	c.out = c.conn.Send(c.out, 1, []byte("late"))
	c.out = c.conn.Finish(c.out, 1, Status{}, nil)
	c.out = c.conn.RequestMessage(c.out, 1)
	c.want()
}

// TestStreamingCallEnds ends StreamingCalls in all ways.
func TestStreamingCallEnds(t *testing.T) {
	c := newReadyClient(t)
	c.openStreaming(1, "x-refuse", "yes")
	c.want("HEADERS 1 grpc-status=8 grpc-message=refused END", "RST_STREAM 1 NO_ERROR")
	c.openStreaming(3)
	c.want()
	c.out = c.conn.Finish(c.out, 3, Status{}, nil) // the client has not ended it
	if !bytes.Contains(c.out, []byte(replyHeaders)) {
		t.Error("trailers without earlier headers lack the :status and the content type")
	}
	c.want("HEADERS 3 grpc-status=0 END", "RST_STREAM 3 NO_ERROR")
	c.must(c.WriteData(3, true, grpcMessage("late")))
	c.want()
	c.wantReceived()
	c.headers(5, true, request(talkPath)...)
	c.wantReceived("end 0")
	for i, test := range []struct{ body, want string }{
		{"\x00\x00\x00\x00\x05hell", "end 13 " + errTruncated.Message},
		{"\x02\x00\x00\x00\x01x", "end 13 grpc: received unexpected payload format 2"},
		{"\x01\x00\x00\x00\x01x", "end 13 " + errNoEncoding.Message},
		{"\x00\x7f\x00\x00\x00x", "end 8 bound 1: 2130706432 bytes"},
	} {
		id := uint32(7 + 2*i)
		c.openStreaming(id)
		c.must(c.WriteData(id, true, []byte(test.body)))
		c.wantReceived(test.want)
	}
	c.handler.cancelled = 0
	c.must(c.WriteRSTStream(5, http2.ErrCodeCancel))
	c.feed()
	c.conn.Close()
	if got := c.handler.cancelled; got != 5 {
		t.Errorf("%d streaming calls were cancelled, want the five that were open", got)
	}
}

// TestStreamingCallWindows sends as much as allowed: the requested message and the initial window
// are buffered.
func TestStreamingCallWindows(t *testing.T) {
	c := newReadyClient(t)
	c.openStreaming(1)
	c.want()
	c.must(c.WriteData(1, false, bytes.Repeat(grpcMessage("0123456789"), 4096/15)))
	c.wantReceived("0123456789")
	c.want()
	for range 4096/15 - 1 {
		c.out = c.conn.RequestMessage(c.out, 1)
		c.wantReceived("0123456789")
	}
	c.want() // the client gets no window while no message is requested
	c.out = c.conn.RequestMessage(c.out, 1)
	c.want("WINDOW_UPDATE 1 4095")
	message := grpcMessage(strings.Repeat("x", 60_000))
	c.must(c.WriteData(1, false, message[:4096]))
	c.want("WINDOW_UPDATE 1 56165")
	for rest := message[4096:]; len(rest) > 0; {
		n := min(len(rest), maxFrameBytes)
		c.must(c.WriteData(1, false, rest[:n]))
		rest = rest[n:]
	}
	c.want()
	c.wantReceived("60000 bytes")
	if n := c.conn.Buffered(); n != 0 {
		t.Errorf("%d bytes are buffered, want none", n)
	}
	c.must(c.WriteData(1, false, grpcMessage("y")[:3]))
	c.want()
	c.now += maxRequestTime
	c.out = c.conn.ResetOverdue(c.out, c.now)
	c.want() // no message is requested
	c.out = c.conn.RequestMessage(c.out, 1)
	c.want("WINDOW_UPDATE 1 3843")
	c.out = c.conn.ResetOverdue(c.out, c.now+maxRequestTime)
	c.want("RST_STREAM 1 CANCEL")
}

// TestStreamingCallBackpressure closes the window: messages wait for it.
func TestStreamingCallBackpressure(t *testing.T) {
	c := newReadyClient(t)
	c.must(c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 8}))
	c.call(1, "streaming")
	c.want("SETTINGS ACK")
	c.out = c.conn.Send(c.out, 1, []byte("one"))
	c.out = c.conn.Send(c.out, 1, []byte("two"))
	c.want("HEADERS 1", fmt.Sprintf("DATA 1 %q", grpcMessage("one")))
	streaming := c.handler.streamingCalls[0]
	if streaming.sent != 8 || c.conn.Buffered() != 8 {
		t.Errorf("%d bytes were sent and %d are buffered, want 8 and 8", streaming.sent, c.conn.Buffered())
	}
	c.out = c.conn.ResetOverdue(c.out, c.now+time.Hour)
	c.want() // the handler has to end it
	c.must(c.WriteWindowUpdate(1, 3))
	c.want(`DATA 1 "\x00\x00\x00"`)
	c.out = c.conn.Finish(c.out, 1, Status{}, nil)
	c.want()
	c.call(3, "") // other calls do not wait for it
	c.want(answer(3, "")...)
	c.must(c.WriteWindowUpdate(1, 100))
	c.want(`DATA 1 "\x00\x03two"`, "HEADERS 1 grpc-status=0 END")
	if streaming.sent != 11 || streaming.cancelled != 0 {
		t.Errorf("%d bytes were sent until the end, want 11; %d cancelled", streaming.sent, streaming.cancelled)
	}
	c.call(5, "streaming")
	c.want()
	c.out = c.conn.Send(c.out, 5, []byte("a long message"))
	c.out = c.conn.Finish(c.out, 5, Status{}, nil)
	c.want("HEADERS 5", `DATA 5 "\x00\x00\x00\x00\x0ea l"`)
	c.out = c.conn.ResetOverdue(c.out, c.now+maxReplyTime)
	c.want("RST_STREAM 5 CANCEL")
	if c.conn.Buffered() != 0 || c.conn.OpenStreams() != 0 {
		t.Errorf("%d bytes are buffered, %d streams are open", c.conn.Buffered(), c.conn.OpenStreams())
	}
}

// TestStreamingCallAbort aborts a call while a message waits for a window.
func TestStreamingCallAbort(t *testing.T) {
	c := newReadyClient(t)
	c.must(c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	c.call(1, "streaming")
	c.want("SETTINGS ACK")
	c.out = c.conn.Send(c.out, 1, []byte("one"))
	c.want("HEADERS 1")
	c.out = c.conn.Abort(c.out, 1)
	c.want("RST_STREAM 1 CANCEL")
	c.out = c.conn.Abort(c.out, 1)
	c.want()
	if n := c.handler.streamingCalls[0].cancelled; n != 1 || c.conn.Buffered() != 0 || c.conn.OpenStreams() != 0 {
		t.Errorf("cancelled %d times, %d bytes are buffered, %d streams are open", n, c.conn.Buffered(), c.conn.OpenStreams())
	}
}

// TestStreamingCallReleasesSlot opens more calls with large messages than there are slots.
func TestStreamingCallReleasesSlot(t *testing.T) {
	c := newReadyClient(t)
	message := grpcMessage(strings.Repeat("x", 10_000))
	for i := range maxSlots + 1 {
		id := uint32(1 + 2*i)
		c.openStreaming(id)
		c.must(c.WriteData(id, false, message[:streamWindow]))
		c.want(fmt.Sprintf("WINDOW_UPDATE %d %d", id, len(message)-streamWindow+maxPadding))
		c.must(c.WriteData(id, false, message[streamWindow:]))
		c.wantReceived("10000 bytes")
	}
}

// TestStreamingCallDeadline has a call reach its deadline.
func TestStreamingCallDeadline(t *testing.T) {
	c := newReadyClient(t)
	c.openStreaming(1, "grpc-timeout", "3S")
	c.openStreaming(3, "grpc-timeout", "0S")
	c.want("HEADERS 3 grpc-status=4 grpc-message=context deadline exceeded END", "RST_STREAM 3 NO_ERROR")
	c.out = c.conn.ResetOverdue(c.out, c.now+3*time.Second)
	c.want("RST_STREAM 1 CANCEL")
	if c.handler.cancelled != 1 {
		t.Errorf("%d were cancelled, want 1", c.handler.cancelled)
	}
}

// TestLongBlock sends reply headers in several frames.
func TestLongBlock(t *testing.T) {
	c := newReadyClient(t)
	c.call(1, "streaming")
	c.want()
	c.out = c.conn.SendHeader(c.out, 1, []Field{{"x", strings.Repeat("x", 40_000)}})
	r := http2.NewFramer(nil, bytes.NewReader(c.out))
	c.out = nil
	r.ReadMetaHeaders = c.decoder
	f, err := r.ReadFrame()
	c.must(err)
	if m, ok := f.(*http2.MetaHeadersFrame); !ok || len(m.RegularFields()) != 2 || len(m.RegularFields()[1].Value) != 40_000 {
		t.Errorf("the headers are %v", f)
	}
}

// TestStreamingCallEarnsBudget does, for each message, what gRPC clients do: send it in a small
// frame, extend windows, and send a PING to measure the bandwidth.
func TestStreamingCallEarnsBudget(t *testing.T) {
	c := newReadyClient(t, func(o *Options) { o.Limits.PingInterval = time.Minute })
	c.openStreaming(1)
	for range 2 * maxGlitches {
		c.must(c.WriteData(1, false, grpcMessage("x")))
		c.wantReceived("x")
		c.out = c.conn.RequestMessage(c.out, 1)
		c.out = c.conn.Send(c.out, 1, []byte("y"))
		for range 2 {
			c.must(c.WriteWindowUpdate(0, 3))
			c.must(c.WriteWindowUpdate(1, 3))
		}
		c.must(c.WritePing(false, [8]byte{}))
		if c.frames(); c.err != nil {
			t.Fatal(c.err)
		}
	}
}

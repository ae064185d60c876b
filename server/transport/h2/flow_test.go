package h2

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// TestRepliesWaitForWindows has a client extend its windows little by little.
func TestRepliesWaitForWindows(t *testing.T) {
	c := newReadyClient(t)
	c.must(c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	c.want("SETTINGS ACK")
	c.call(1, "hello")
	c.call(3, "world")
	c.want("HEADERS 1", "HEADERS 3")
	if c.conn.Buffered() != 20 {
		t.Errorf("%d bytes are buffered, want 20", c.conn.Buffered())
	}
	c.must(c.WriteWindowUpdate(3, 4))
	c.want(`DATA 3 "\x00\x00\x00\x00"`)
	c.must(c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 3}))
	c.want("SETTINGS ACK", `DATA 1 "\x00\x00\x00"`, `DATA 3 "\x05wo"`)
	c.must(c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})) // windows are negative now
	c.want("SETTINGS ACK")
	c.must(c.WriteWindowUpdate(1, 2))
	c.want()
	c.must(c.WriteWindowUpdate(1, 100))
	c.want(`DATA 1 "\x00\x05hello"`, "HEADERS 1 grpc-status=0 END")
	c.must(c.WriteRSTStream(3, http2.ErrCodeCancel))
	c.want()
	if c.conn.Buffered() != 0 || c.conn.OpenStreams() != 0 {
		t.Errorf("%d bytes are buffered, %d streams open", c.conn.Buffered(), c.conn.OpenStreams())
	}
}

// TestRepliesWaitForConnectionWindow also has a reply of several frames.
func TestRepliesWaitForConnectionWindow(t *testing.T) {
	c := newReadyClient(t)
	c.must(c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}))
	c.want("SETTINGS ACK")
	c.setReply(strings.Repeat("x", 40_000))
	c.call(1, "long")
	c.want("HEADERS 1", "DATA 1 16384 bytes", "DATA 1 16384 bytes", "DATA 1 7237 bytes", "HEADERS 1 grpc-status=0 END")
	c.call(3, "long")
	c.want("HEADERS 3", "DATA 3 16384 bytes", "DATA 3 9146 bytes")
	c.setReply("")
	c.call(5, "hello") // the window is closed, and it is not first in the queue
	c.want("HEADERS 5")
	c.must(c.WriteWindowUpdate(0, 14_474))
	c.want("DATA 3 14474 bytes")
	c.must(c.WriteWindowUpdate(0, 12))
	c.want(`DATA 3 "x"`, "HEADERS 3 grpc-status=0 END", answer(5, "hello")[1], answer(5, "hello")[2])
}

// replies answers with a fixed reply.
type replies struct {
	*echo
	with string
}

func (r replies) Call(*Call) ([]byte, Status, PendingCall) { return []byte(r.with), Status{}, nil }

func (c *client) setReply(with string) {
	if c.conn.handler = c.handler; with != "" {
		c.conn.handler = replies{c.handler, with}
	}
}

// TestTooManyQueuedReplies has a client that never extends its window: its calls are refused before
// the handler decides them, and the queued replies are dropped after their time limit.
func TestTooManyQueuedReplies(t *testing.T) {
	c := newReadyClient(t, func(o *Options) { o.Limits.MaxStreams = 1000 })
	c.must(c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	c.want("SETTINGS ACK")
	c.setReply(strings.Repeat("x", 10_000))
	id := uint32(1)
	for ; ; id += 2 {
		c.call(id, "long")
		if got := c.frames(); got[0] != fmt.Sprintf("HEADERS %d", id) {
			if want := fmt.Sprintf("RST_STREAM %d REFUSED_STREAM", id); !slices.Equal(got, []string{want}) {
				t.Fatalf("the client gets %q, want %q", got, want)
			}
			break
		}
		if c.conn.Buffered() > maxQueuedBytes+11_000 {
			t.Fatalf("%d bytes are buffered", c.conn.Buffered())
		}
	}
	c.out = c.conn.ResetOverdue(c.out, c.now+maxReplyTime-1)
	c.want()
	c.out = c.conn.ResetOverdue(c.out, c.now+maxReplyTime)
	if got := c.frames(); len(got) != int(id/2) || got[0] != "RST_STREAM 1 CANCEL" || c.conn.Buffered() != 0 {
		t.Errorf("%d frames, from %q on; %d bytes are buffered", len(got), got[0], c.conn.Buffered())
	}
}

// startLarge writes the beginning of a message of the given size.
func (c *client) startLarge(stream uint32, bytes, sent int) {
	c.t.Helper()
	c.headers(stream, false, request(echoPath)...)
	prefix := []byte{0, 0, byte(bytes >> 16), byte(bytes >> 8), byte(bytes)}[0:5]
	prefix[1], prefix[2], prefix[3], prefix[4] = byte(bytes>>24), byte(bytes>>16), byte(bytes>>8), byte(bytes)
	c.must(c.WriteData(stream, false, append(prefix, make([]byte, sent-5)...)))
}

// TestLargeRequestsNeedSlots sends six large requests at once, of which four get a slot.
func TestLargeRequestsNeedSlots(t *testing.T) {
	c := newReadyClient(t)
	for id := uint32(1); id <= 11; id += 2 {
		c.startLarge(id, 50_000, 3000)
	}
	c.want("WINDOW_UPDATE 1 46165", "WINDOW_UPDATE 3 46165", "WINDOW_UPDATE 5 46165", "WINDOW_UPDATE 7 46165")
	c.startLarge(13, 4091, 3000) // fits into the initial window
	c.must(c.WriteData(13, true, make([]byte, 1096)))
	if got := c.frames(); got[len(got)-1] != "HEADERS 13 grpc-status=0 END" {
		t.Errorf("a request that fits into the initial window:  %q", got)
	}
	c.must(c.WriteRSTStream(9, http2.ErrCodeCancel)) // it was the next
	c.want()
	for sent := 3000; sent < 50_005; sent += 10_000 {
		c.must(c.WriteData(1, sent+10_000 >= 50_005, make([]byte, min(10_000, 50_005-sent))))
	}
	if got := c.frames(); got[0] != "HEADERS 1" || !slices.Contains(got, "WINDOW_UPDATE 11 46165") {
		t.Errorf("the end of a large request gives %q", got)
	}
	c.must(c.WriteRSTStream(3, http2.ErrCodeCancel))
	for _, id := range []uint32{5, 7, 11} {
		c.must(c.WriteRSTStream(id, http2.ErrCodeCancel))
	}
	c.want()
	if c.conn.Buffered() != 0 || c.conn.receive.usedSlots != 0 {
		t.Errorf("%d bytes are buffered, %d slots used", c.conn.Buffered(), c.conn.receive.usedSlots)
	}
}

// TestPaddingTakesNoWindow sends a small request whose padding would use up the window.
func TestPaddingTakesNoWindow(t *testing.T) {
	c := newReadyClient(t)
	c.headers(1, false, request(echoPath)...)
	message := grpcMessage(strings.Repeat("x", 2000))
	for i, b := range message {
		c.must(c.WriteDataPadded(1, i == len(message)-1, []byte{b}, make([]byte, 255)))
		c.conn.glitches.left = maxGlitches // not tested here
		c.feed()
		if c.err != nil {
			t.Fatalf("after %d bytes: %v", i, c.err)
		}
	}
	got := c.frames()
	if last := got[len(got)-1]; last != "HEADERS 1 grpc-status=0 END" {
		t.Errorf("the last frame is %q", last)
	}
}

// TestWindowViolations sends more than the windows allow.
func TestWindowViolations(t *testing.T) {
	c := newReadyClient(t)
	c.headers(1, false, request(echoPath)...)
	c.must(c.WriteData(1, false, make([]byte, streamWindow)[:3]))
	c.feed()
	c.must(c.WriteData(1, false, make([]byte, streamWindow-2)))
	c.wantError(CodeFlowControl)

	// Before the acknowledgement, HTTP/2's defaults apply.
	c = newClient(t)
	c.must(c.WriteSettings())
	c.want("SETTINGS", "WINDOW_UPDATE 0 983041", "SETTINGS ACK")
	for id := uint32(1); id <= 31; id += 2 {
		c.startLarge(id, 50_000, 4095)
	}
	got := c.frames()
	if c.err != nil || len(got) != 0 || c.conn.Buffered() < 16*4095 {
		t.Errorf("%q, %v; %d bytes are buffered", got, c.err, c.conn.Buffered())
	}
	for id := uint32(33); id <= 65 && c.err == nil; id += 2 {
		c.startLarge(id, 50_000, 4095)
		c.feed()
	}
	c.wantError(CodeFlowControl)
	if c.conn.Buffered() > 2*defaultWindow+8192 {
		t.Errorf("%d bytes are buffered", c.conn.Buffered())
	}
}

// TestWindowsFollowOurSettings has a request begin before the client knows the smaller window.
func TestWindowsFollowOurSettings(t *testing.T) {
	c := newClient(t)
	c.must(c.WriteSettings())
	c.want("SETTINGS", "WINDOW_UPDATE 0 983041", "SETTINGS ACK")
	c.startLarge(1, 50_000, 10_000)
	c.headers(3, false, request(echoPath)...)
	c.want()
	c.must(c.WriteSettingsAck())
	// The stream's window is 4096-10000, and 40005 bytes are missing.
	c.want("WINDOW_UPDATE 1 46165")
	for range 4 {
		c.must(c.WriteData(1, false, make([]byte, 10_000)))
	}
	c.must(c.WriteData(1, true, make([]byte, 5)))
	c.must(c.WriteData(3, true, grpcMessage("hello")))
	if got := c.frames(); c.err != nil || got[len(got)-1] != "HEADERS 3 grpc-status=0 END" {
		t.Errorf("%q, %v", got, c.err)
	}
}

// TestConnectionWindowIsRestored sends more data than the window, even on closed streams.
func TestConnectionWindowIsRestored(t *testing.T) {
	c := newReadyClient(t)
	c.headers(1, false, request("/unknown")...)
	for range 3 * connWindow / maxFrameBytes {
		c.must(c.WriteData(1, false, make([]byte, maxFrameBytes)))
		c.feed()
	}
	updates := 0
	for _, f := range c.frames() {
		if f == fmt.Sprintf("WINDOW_UPDATE 0 %d", connWindow/2) {
			updates++
		}
	}
	if c.err != nil || updates != 6 {
		t.Errorf("%d updates, %v; want one for each half window", updates, c.err)
	}
}

// TestIncompleteRequests verifies that requests are reset after five seconds, or at their deadline.
func TestIncompleteRequests(t *testing.T) {
	c := newReadyClient(t)
	c.headers(1, false, request(echoPath, "grpc-timeout", "1S")...)
	c.headers(3, false, request(echoPath, "grpc-timeout", "1H")...)
	c.headers(5, false, request(echoPath)...)
	c.call(7, "later")
	c.want()
	for _, tt := range []struct {
		after time.Duration
		want  []string
	}{
		{time.Second - 1, nil},
		{time.Second, []string{"RST_STREAM 1 CANCEL"}},
		{maxRequestTime - 1, nil},
		{maxRequestTime, []string{"RST_STREAM 3 CANCEL", "RST_STREAM 5 CANCEL"}},
		{time.Hour, nil},
	} {
		c.out = c.conn.ResetOverdue(c.out, c.now+tt.after)
		c.want(tt.want...)
	}
	if c.conn.OpenStreams() != 1 {
		t.Errorf("%d streams are open, want the one that waits for its answer", c.conn.OpenStreams())
	}
	c.conn.Close()
	if c.handler.cancelled != 1 {
		t.Errorf("%d calls were cancelled, want 1", c.handler.cancelled)
	}
}

// TestKeptHeadersAreNotData sends headers that calls keep, before acknowledging our SETTINGS, and
// as much data as all windows allow. Headers are not subject to flow control.
func TestKeptHeadersAreNotData(t *testing.T) {
	for name, tt := range map[string]struct {
		calls, tracestate int
		end               bool // of each request; otherwise all are incomplete
	}{
		"unanswered calls with small headers": {1000, 45, true},
		"unanswered calls with large headers": {300, 512, true},
		"incomplete requests":                 {1000, 512, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, func(o *Options) {
				o.Limits.MaxStreams = 1024
				o.Methods[1].KeepHeader = func(name []byte, _ int) bool { return strings.HasPrefix(string(name), "trace") }
			})
			c.must(c.WriteSettings())
			for i := range tt.calls {
				c.headers(uint32(2*i+1), false, request(echoPath,
					"traceparent", fmt.Sprintf("00-0af7651916cd43dd8448eb211c80319c-%016x-01", i), "tracestate", "a="+strings.Repeat("b", tt.tracestate))...)
				message := grpcMessage("later")
				if !tt.end {
					message = message[:prefixBytes]
				}
				c.must(c.WriteData(uint32(2*i+1), tt.end, message))
			}
			c.feed()
			if c.err != nil || c.conn.OpenStreams() != tt.calls || c.conn.Buffered() < 2*defaultWindow {
				t.Errorf("%d calls are open, with %d bytes: %v", c.conn.OpenStreams(), c.conn.Buffered(), c.err)
			}
			c.conn.checkCounts(t)
		})
	}
}

// TestLastInitialWindowCounts sets the initial window twice in one frame. The last value applies.
func TestLastInitialWindowCounts(t *testing.T) {
	c := newReadyClient(t)
	c.must(c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	c.want("SETTINGS ACK")
	c.call(1, "hello")
	c.must(c.WriteWindowUpdate(1, 4))
	c.want(append([]string{}, answer(1, "hello")[0], `DATA 1 "\x00\x00\x00\x00"`)...)
	c.must(c.WriteSettings(
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: maxWindow}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 3},
	))
	c.want("SETTINGS ACK", `DATA 1 "\x05he"`)
}

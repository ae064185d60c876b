package h2

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// chunkedCall records the received messages and acknowledged marks.
type chunkedCall struct {
	*recordedCall
	message []byte
	begun   bool
	most    int // the largest chunk
	marked  []uint32
}

func (p *chunkedCall) ReceiveChunk(piece []byte, remaining int) {
	p.message, p.most = append(p.message, piece...), max(p.most, len(piece))
	if p.begun = remaining > 0; !p.begun {
		p.Receive(p.message)
		p.message = nil
	}
}

func (p *chunkedCall) MarkAcknowledged(mark uint32) { p.marked = append(p.marked, mark) }

// openChunked opens a ChunkedCall.
func (c *client) openChunked(stream uint32) *chunkedCall {
	c.t.Helper()
	c.openStreaming(stream, "x-pieces", "yes")
	c.want(fmt.Sprintf("WINDOW_UPDATE %d %d", stream, chunkedWindow-streamWindow))
	return c.handler.piecewise[len(c.handler.piecewise)-1]
}

// TestChunks sends messages of all sizes in frames of all sizes.
func TestChunks(t *testing.T) {
	c := newReadyClient(t)
	p := c.openChunked(1)
	buffered := c.conn.Buffered()
	r := rand.New(rand.NewPCG(1, 1))
	var all []byte
	var want []string
	for _, size := range []int{0, 1, 90, 5, 0, 0, 17, 100} {
		message := strings.Repeat("x", size)
		all, want = append(all, grpcMessage(message)...), append(want, message)
	}
	for len(all) > 0 {
		n := min(len(all), 1+r.IntN(9))
		c.must(c.WriteData(1, false, all[:n]))
		all = all[n:]
	}
	c.wantReceived(want...)
	c.want()
	c.must(c.WriteData(1, true, grpcMessage("last")))
	c.wantReceived("last", "end 0")
	if n := c.conn.Buffered() - buffered; p.begun || n != 0 {
		t.Errorf("%d bytes are buffered, want none", n)
	}
}

// TestChunksAreNotBuffered sends a message that exceeds the limit of others: the window is extended
// as it is read, and nothing is buffered.
func TestChunksAreNotBuffered(t *testing.T) {
	c := newReadyClient(t)
	c.openChunked(1)
	size, window, held := 3*testLimits.MaxMessageBytes, int64(chunkedWindow), c.conn.MemoryBytes()
	message := grpcMessage(strings.Repeat("x", size))
	for len(message) > 0 {
		n := min(len(message), maxFrameBytes, int(window))
		if n == 0 {
			t.Fatalf("the client may not send the last %d bytes", len(message))
		}
		c.must(c.WriteData(1, false, message[:n]))
		window, message = window-int64(n), message[n:]
		for _, f := range c.frames() {
			var more int64
			if _, err := fmt.Sscanf(f, "WINDOW_UPDATE 1 %d", &more); err == nil {
				window += more
			}
		}
		if c.err != nil || window > chunkedWindow || c.conn.MemoryBytes() > held+64 {
			t.Fatalf("the window is %d, %d bytes are used, %v", window, c.conn.MemoryBytes()-held, c.err)
		}
	}
	c.wantReceived(fmt.Sprintf("%d bytes", size))
}

// TestChunksLimitBatches sends more than one call of Feed processes.
func TestChunksLimitBatches(t *testing.T) {
	c := newReadyClient(t)
	p := c.openChunked(1)
	message := grpcMessage(strings.Repeat("x", 4*maxBatchOutput))
	for i := 0; i < chunkedWindow; i += maxFrameBytes {
		c.must(c.WriteData(1, false, message[i:i+maxFrameBytes]))
	}
	_, used, more, err := c.conn.Feed(nil, c.in.Bytes(), c.now)
	if want := maxBatchOutput + 2*frameHeaderBytes + maxFrameBytes; err != nil || !more || used > want || len(p.message) == 0 {
		t.Errorf("Feed used %d of %d bytes, want at most %d: %v, %v", used, c.in.Len(), want, more, err)
	}
}

// TestChunkedCallEnds sends incomplete and compressed messages, and messages to a call that has
// finished.
func TestChunkedCallEnds(t *testing.T) {
	for _, test := range []struct {
		body string
		end  bool
		want []string
	}{
		{"", true, []string{"end 0"}},
		{"\x00\x00\x00", true, []string{"end 13 " + errTruncated.Message}},
		{"\x00\x00\x00\x00\x05hell", true, []string{"end 13 " + errTruncated.Message}},
		{"\x01\x00\x00\x00\x01x", false, []string{"end 13 " + errNoEncoding.Message}},
	} {
		c := newReadyClient(t)
		c.openChunked(1)
		c.must(c.WriteData(1, test.end, []byte(test.body)))
		c.wantReceived(test.want...)
	}
	c := newReadyClient(t)
	c.openChunked(1)
	c.out = c.conn.Finish(c.out, 1, Status{}, nil)
	c.want("HEADERS 1 grpc-status=0 END", "RST_STREAM 1 NO_ERROR")
	c.must(c.WriteData(1, false, grpcMessage("late")))
	c.want()
	c.wantReceived()
}

// TestChunksBeforeSettings sends as much as allowed before the client knows our SETTINGS, and
// continues.
func TestChunksBeforeSettings(t *testing.T) {
	c := newClient(t)
	c.must(c.WriteSettings())
	c.openStreaming(1, "x-pieces", "yes")
	c.feed()
	message := grpcMessage(strings.Repeat("x", chunkedWindow+30_000-prefixBytes))
	for sent := 0; sent < 48<<10; sent += maxFrameBytes {
		c.must(c.WriteData(1, false, message[sent:sent+maxFrameBytes]))
	}
	c.feed()
	c.must(c.WriteSettingsAck())
	c.feed()
	for sent := 48 << 10; sent < len(message); sent += maxFrameBytes {
		c.must(c.WriteData(1, false, message[sent:min(len(message), sent+maxFrameBytes)]))
		c.feed()
	}
	c.wantReceived(fmt.Sprintf("%d bytes", len(message)-prefixBytes))
}

// TestMarks acknowledges marks, has marks wait for a window, and acknowledges marks of closed
// streams.
func TestMarks(t *testing.T) {
	c := newReadyClient(t)
	c.must(c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 8}))
	c.want("SETTINGS ACK")
	p := c.openChunked(1)
	ping := func(mark, stream uint32) (data [8]byte) {
		binary.BigEndian.PutUint32(data[:], markPing<<24|mark)
		binary.BigEndian.PutUint32(data[4:], stream)
		return data
	}
	wantMarked := func(marks ...uint32) {
		t.Helper()
		if c.feed(); !slices.Equal(p.marked, marks) {
			t.Fatalf("acknowledged the marks %v, want %v", p.marked, marks)
		}
		p.marked = nil
	}
	c.out = c.conn.Send(c.out, 1, []byte("one"))
	c.out = c.conn.Mark(c.out, 1, 7)
	c.want("HEADERS 1", fmt.Sprintf("DATA 1 %q", grpcMessage("one")), fmt.Sprintf("PING %q", ping(7, 1)))
	c.must(c.WritePing(true, ping(7, 1)))
	wantMarked(7)
	c.out = c.conn.Send(c.out, 1, []byte("two"))
	c.out = c.conn.Mark(c.out, 1, 8)
	c.out = c.conn.Mark(c.out, 1, 9)
	c.want()
	c.must(c.WriteWindowUpdate(1, 7))
	c.want(fmt.Sprintf("DATA 1 %q", grpcMessage("two")[:7]))
	c.must(c.WriteWindowUpdate(1, 7))
	c.want(`DATA 1 "o"`, fmt.Sprintf("PING %q", ping(9, 1)))
	c.must(c.WritePing(true, ping(9, 1)))
	c.must(c.WritePing(true, [8]byte{}))                             // of the keepalive
	c.must(c.WritePing(true, [8]byte([]byte(drainPing))))            // of a drain
	c.must(c.WritePing(true, ping(1, 3)))                            // of a closed stream
	c.must(c.WritePing(true, ping(1, 0)))                            // of no stream
	c.must(c.WritePing(true, [8]byte(bytes.Repeat([]byte{'m'}, 8)))) // likewise
	wantMarked(9)
	c.out = c.conn.Finish(c.out, 1, Status{}, nil)
	c.must(c.WritePing(true, ping(9, 1)))
	c.feed()
	wantMarked()
	c.openStreaming(3) // which has no marks
	c.must(c.WritePing(true, ping(1, 3)))
	if c.feed(); c.err != nil {
		t.Error(c.err)
	}
}

// TestMarksAfterAStall has a suspended client acknowledge many marks at once. Other
// acknowledgements are glitches.
func TestMarksAfterAStall(t *testing.T) {
	c := newReadyClient(t)
	p := c.openChunked(1)
	for i := range uint32(3 * maxGlitches) {
		c.out = c.conn.Send(c.out, 1, nil)
		c.out = c.conn.Mark(c.out, 1, i)
	}
	ack := func(mark uint32) {
		var data [8]byte
		binary.BigEndian.PutUint32(data[:], markPing<<24|mark)
		data[7] = 1
		c.must(c.WritePing(true, data))
		c.frames()
	}
	for i := range uint32(3 * maxGlitches) {
		if ack(i); c.err != nil {
			t.Fatalf("%d marks: %v", i, c.err)
		}
	}
	if len(p.marked) != 3*maxGlitches {
		t.Errorf("%d marks were acknowledged", len(p.marked))
	}
	for range 2 * maxGlitches {
		if ack(0); c.err != nil {
			return
		}
	}
	t.Error("acknowledging PINGs that were never sent has no limit")
}

// TestMarksAreNotGlitches acknowledges many marks one by one.
func TestMarksAreNotGlitches(t *testing.T) {
	c := newReadyClient(t)
	p := c.openChunked(1)
	for i := range uint32(3 * maxGlitches) {
		c.out = c.conn.Send(c.out, 1, nil)
		c.out = c.conn.Mark(c.out, 1, i)
		var data [8]byte
		binary.BigEndian.PutUint32(data[:], markPing<<24|i)
		data[7] = 1
		c.must(c.WritePing(true, data))
		if c.frames(); c.err != nil {
			t.Fatal(c.err)
		}
	}
	if len(p.marked) != 3*maxGlitches {
		t.Errorf("%d marks were acknowledged", len(p.marked))
	}
	c.now += time.Hour
	if c.out = c.conn.ResetOverdue(nil, c.now); len(c.out) != 0 {
		t.Error("a streaming call is overdue after an hour")
	}
}

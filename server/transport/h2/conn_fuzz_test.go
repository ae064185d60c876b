package h2

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// FuzzConnection feeds a connection with frames from a script, in one piece and in fragments.
// Purely random bytes would seldom be frames with an effect.
//
// The output must not depend on the fragments, and must be valid frames for x/net. The memory must
// stay within its limit, and no call may be answered twice.
func FuzzConnection(f *testing.F) {
	f.Add([]byte("\x10\x00\x01\x00\x01\x05hello"))
	f.Add([]byte("\x03\x00\x00\x01\x00\x04part\x01\x01\x03end\x08\x00\x09\x00\x0a\x01\x40\x0b\x00\x01\x0c\x00\x06\x0d\x00"))
	f.Add([]byte("\xff\x00\x05\x02\x02\x05later\x04\x02\x08\x0e\x02\x00\x02\x02\x04late\x0f\x01\x00\x40\x80\x0b\x02"))
	f.Add([]byte("\x01\x05\x01\x05\x03\x05\x05\x10\x00\x01\x00\x02\x00\x11\x09\x00\x12\x00\x01\x13\x00"))
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) == 0 {
			return
		}
		piece := 1 + int(script[0])
		complete := newClient(t)
		complete.must(complete.WriteSettings())
		complete.runScript(script[1:])
		in := bytes.Clone(complete.in.Bytes())
		complete.feed()

		fragmented := newClient(t)
		fragmented.in.Reset()
		for rest := in; len(rest) > 0 && fragmented.err == nil; {
			n := min(piece, len(rest))
			fragmented.in.Write(rest[:n])
			fragmented.feed()
			rest = rest[n:]
			if fragmented.err == nil {
				fragmented.conn.checkCounts(t)
			}
			if most := fragmented.conn.server.MaxMemoryBytes(prefixBytes + testLimits.MaxMessageBytes); fragmented.conn.MemoryBytes() > most {
				t.Fatalf("%d bytes are used, more than %d", fragmented.conn.MemoryBytes(), most)
			}
		}
		if !bytes.Equal(complete.out, fragmented.out) || fmt.Sprint(complete.err) != fmt.Sprint(fragmented.err) {
			t.Fatalf("complete: %q, %v\nin fragments of %d bytes: %q, %v", complete.out, complete.err, piece, fragmented.out, fragmented.err)
		}
		complete.out = complete.conn.ResetOverdue(complete.out, complete.now+time.Hour)
		complete.checkOutput()
		if n := complete.conn.Buffered(); n != 0 && complete.err == nil && complete.conn.block.stream == 0 {
			t.Errorf("%d bytes are buffered in the end", n)
		}
		complete.conn.Close()
		if later := complete.handler.countPending(); complete.handler.cancelled != later {
			t.Errorf("%d calls were cancelled, want %d", complete.handler.cancelled, later)
		}
	})
}

// runScript writes frames: a byte for the kind, one for the stream, and the arguments of the kind.
func (c *client) runScript(s []byte) {
	next := func() byte {
		if len(s) == 0 {
			return 0
		}
		b := s[0]
		s = s[1:]
		return b
	}
	text := func() []byte {
		n := min(int(next()), len(s))
		b := s[:n]
		s = s[n:]
		return b
	}
	for len(s) > 0 {
		kind, stream := next(), uint32(next())
		switch kind % 20 {
		case 0: // as most clients start a call
			c.headers(2*stream+1, false, request(echoPath)...)
		case 1:
			c.must(c.WriteData(2*stream+1, true, grpcMessage(string(text()))))
		case 2: // a complete call
			c.call(2*stream+1, string(text()))
		case 3:
			c.must(c.WriteData(2*stream+1, kind >= 128, text()))
		case 4: // the beginning of a message of any size
			size := int(next())<<8 | int(next())
			c.must(c.WriteData(2*stream+1, false, append(grpcMessage(string(make([]byte, size)))[:prefixBytes], text()...)))
		case 5:
			c.headers(2*stream+1, kind >= 128, request("/unknown", "grpc-timeout", string(text()))...)
		case 6: // trailers
			c.headers(2*stream+1, true, "x", string(text()))
		case 7:
			c.must(c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, EndStream: kind >= 128, BlockFragment: text()}))
		case 8:
			c.must(c.WriteContinuation(stream, kind >= 128, text()))
		case 9:
			c.must(c.WriteRSTStream(2*stream+1, http2.ErrCode(next())))
		case 10:
			c.must(c.WriteSettings(http2.Setting{ID: http2.SettingID(stream), Val: uint32(next()) << next()}))
		case 11:
			c.must(c.WriteSettingsAck())
		case 12:
			c.must(c.WriteWindowUpdate(2*stream+1, uint32(next())<<next()))
		case 13:
			c.must(c.WriteWindowUpdate(0, uint32(next())<<next()))
		case 14:
			c.must(c.WritePing(kind >= 128, [8]byte{next()}))
		case 15:
			c.must(c.WriteDataPadded(2*stream+1, kind >= 128, text(), make([]byte, next())))
		case 16: // a full frame
			c.must(c.WriteData(2*stream+1, kind >= 128, make([]byte, maxFrameBytes)))
		case 17: // headers that are too large
			c.headers(2*stream+1, true, request(echoPath, "x", string(make([]byte, int(next())<<8)))...)
		case 18:
			c.must(c.WriteRawFrame(http2.FrameType(stream), http2.Flags(next()), uint32(next()), text()))
		case 19:
			c.in.Write(text())
		}
	}
}

// checkOutput checks that the output is valid for a client.
func (c *client) checkOutput() {
	c.t.Helper()
	ends := map[uint32]int{} // how often we ended each stream
	r := http2.NewFramer(nil, bytes.NewReader(c.out))
	at := 0
	for {
		f, err := r.ReadFrame()
		if err != nil {
			break
		}
		h := f.Header()
		at += frameHeaderBytes + int(h.Length)
		switch {
		case h.Type == http2.FrameHeaders:
			if _, err := c.decoder.DecodeFull(f.(*http2.HeadersFrame).HeaderBlockFragment()); err != nil {
				c.t.Fatalf("headers of stream %d: %v", h.StreamID, err)
			}
		case h.Type == http2.FrameData && h.Length == 0:
			c.t.Errorf("an empty DATA frame on stream %d", h.StreamID)
		}
		if (h.Type == http2.FrameHeaders || h.Type == http2.FrameData) && ends[h.StreamID] > 0 {
			c.t.Errorf("%v after the end of stream %d", h, h.StreamID)
		}
		if (h.Type == http2.FrameHeaders || h.Type == http2.FrameData) && h.Flags.Has(http2.FlagDataEndStream) {
			ends[h.StreamID]++
		}
		if h.Type == http2.FrameRSTStream {
			ends[h.StreamID]++
		}
	}
	if at != len(c.out) {
		c.t.Fatalf("after %d of %d bytes comes no frame: %q", at, len(c.out), c.out[at:])
	}
}

// countPending returns the number of pending calls.
func (e *echo) countPending() (n int) {
	for _, m := range e.messages {
		if m == "later" {
			n++
		}
	}
	return n
}

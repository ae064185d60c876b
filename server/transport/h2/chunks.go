package h2

import "encoding/binary"

// ChunkedCall is a [StreamingCall] whose messages are passed on in chunks, as they are received,
// without [Conn.RequestMessage]. The connection buffers none of them, so a message may have any
// size.
type ChunkedCall interface {
	StreamingCall
	// ReceiveChunk receives the next part of a message, which is valid until ReceiveChunk returns.
	// remaining is the number of bytes of the message that follow it. Receive is never called.
	ReceiveChunk(p []byte, remaining int)
}

// MarkHandler is a [StreamingCall] for which [Conn.Mark] can be used.
type MarkHandler interface {
	// MarkAcknowledged is called when the client has received everything that was sent before the
	// mark.
	MarkAcknowledged(mark uint32)
}

// chunkedWindow is the window of the stream of a [ChunkedCall].
const chunkedWindow = 64 << 10

// chunks is the state of the messages of a ChunkedCall.
type chunks struct {
	ChunkedCall
	prefix     [prefixBytes]byte
	prefixRead uint8  // bytes of the prefix
	remaining  uint32 // bytes of the message
}

// receiveChunks passes on data of a ChunkedCall.
func (c *Conn) receiveChunks(s *stream, p []byte) {
	t := &s.streaming.chunks
	for len(p) > 0 && !s.streaming.requestDone {
		if t.prefixRead < prefixBytes {
			n := copy(t.prefix[t.prefixRead:], p)
			t.prefixRead, p = t.prefixRead+uint8(n), p[n:] //nolint:gosec // at most prefixBytes
			if t.prefixRead < prefixBytes {
				break
			}
			if t.prefix[0] != 0 {
				c.endMessages(s, flagFault(t.prefix[0]))
				return
			}
			c.glitches.add(glitchesPerCall) // a message earns as much as a call
			t.remaining = binary.BigEndian.Uint32(t.prefix[1:])
			if t.remaining == 0 {
				t.prefixRead = 0
				t.ReceiveChunk(nil, 0)
			}
			continue
		}
		n := min(len(p), int(t.remaining))
		t.remaining -= uint32(n) //nolint:gosec // at most remaining
		if t.remaining == 0 {
			t.prefixRead = 0
		}
		c.outputLimit -= n // processing a chunk costs about as much as sending it
		t.ReceiveChunk(p[:n], int(t.remaining))
		p = p[n:]
	}
	switch {
	case s.streaming.requestDone:
	case s.state == streamOpen:
		c.extendChunkedWindow(s)
	case t.prefixRead > 0:
		c.endMessages(s, errTruncated)
	default:
		c.endMessages(s, Status{})
	}
}

// extendChunkedWindow restores the window of a stream, once half of it is used.
func (c *Conn) extendChunkedWindow(s *stream) {
	if s.receiveWindow < chunkedWindow/2 {
		c.out = appendWindowUpdate(c.out, s.id, uint32(chunkedWindow-s.receiveWindow)) //nolint:gosec // at most two windows
		s.receiveWindow = chunkedWindow
	}
}

// markPing is the first byte of a mark's PING, and distinguishes it from our other PINGs. The mark
// and the stream's number follow.
const markPing = 'm'

// Mark sends a PING after everything that was passed to [Conn.Send], and reports its
// acknowledgement to the call, which must be a [MarkHandler]. If data is unsent, the PING waits for
// it; a later mark replaces a waiting one. A mark has 24 bits.
func (c *Conn) Mark(out []byte, id, mark uint32) []byte {
	return c.withStream(out, c.findStreaming(id), func(s *stream) {
		s.streaming.mark = mark
		s.streaming.markPending = true
		if s.unsent == nil {
			c.sendMark(s)
		}
	})
}

func (c *Conn) sendMark(s *stream) {
	if !s.streaming.markPending {
		return
	}
	s.streaming.markPending = false
	var data [pingBytes]byte
	binary.BigEndian.PutUint32(data[:], markPing<<24|s.streaming.mark&(1<<24-1))
	binary.BigEndian.PutUint32(data[4:], s.id)
	c.out = c.ping(c.out, data[:])
}

// receiveMark handles the acknowledgement of a mark's PING.
func (c *Conn) receiveMark(data []byte) {
	s := c.findStreaming(binary.BigEndian.Uint32(data[4:]))
	if s == nil {
		return
	}
	if m, ok := s.streaming.StreamingCall.(MarkHandler); ok {
		m.MarkAcknowledged(binary.BigEndian.Uint32(data) & (1<<24 - 1))
	}
}

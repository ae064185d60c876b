package h2

import "encoding/binary"

// ChunkedCall is a [Conversation] whose messages come in pieces, as they are read. The connection keeps none of
// them, so a message may have any size, and nobody has to ask for it by [Conn.Want].
type ChunkedCall interface {
	StreamingCall
	// ReceiveChunk brings the next bytes of a message, and says how many follow. They are valid until Piece
	// returns. Receive is never called.
	ReceiveChunk(p []byte, follow int)
}

// MarkHandler is a [Conversation] that [Conn.Mark] marks.
type MarkHandler interface {
	// MarkAcknowledged says that the client has got what was sent before the mark.
	MarkAcknowledged(mark uint32)
}

// chunkedWindow is what a client may send on a stream of [Pieces] before it is read.
const chunkedWindow = 64 << 10

// chunks is how far the messages have come that come in pieces.
type chunks struct {
	ChunkedCall
	prefix     [prefixBytes]byte
	prefixRead uint8  // bytes of the prefix
	remaining  uint32 // of the message
}

// Compressed messages are refused: whoever inflates piece by piece has to keep a window of 32 KiB a stream.
var errCompressedChunks = Status{statusUnimplemented, "the messages of this method must not be compressed"}

// receiveChunks hands over a part of a client's messages.
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
				c.endMessages(s, errCompressedChunks)
				return
			}
			c.glitches.add(glitchesPerCall) // a message is as good as a call
			t.remaining = binary.BigEndian.Uint32(t.prefix[1:])
			if t.remaining == 0 {
				t.prefixRead = 0
				t.ReceiveChunk(nil, 0)
			}
			continue
		}
		n := min(len(p), int(t.remaining))
		t.remaining -= uint32(n) //nolint:gosec // at most follow
		if t.remaining == 0 {
			t.prefixRead = 0
		}
		c.outputLimit -= n // what is done with a piece takes as long as to answer with as much
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

// extendChunkedWindow opens the window of a stream, once half of it is used up.
func (c *Conn) extendChunkedWindow(s *stream) {
	if s.receiveWindow < chunkedWindow/2 {
		c.out = appendWindowUpdate(c.out, s.id, uint32(chunkedWindow-s.receiveWindow)) //nolint:gosec // at most two windows
		s.receiveWindow = chunkedWindow
	}
}

// A mark's PING has this beside the mark and the stream's number, as none of our other PINGs does.
const markPing = 'm'

// Mark sends a PING behind all that [Conn.Send] was given so far, and has the conversation, which is a [Marker],
// told of its acknowledgement. If what was given has to wait for a window, so does the PING, and a later
// mark takes its place. A mark has 24 bits.
func (c *Conn) Mark(out []byte, id, mark uint32) []byte {
	return c.withStream(out, c.conversation(id), func(s *stream) {
		s.streaming.mark, s.streaming.markPending = mark, true
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

// receiveMark takes in the acknowledgement of a mark.
func (c *Conn) receiveMark(data []byte) {
	s := c.conversation(binary.BigEndian.Uint32(data[4:]))
	if s == nil {
		return
	}
	if m, ok := s.streaming.StreamingCall.(MarkHandler); ok {
		m.MarkAcknowledged(binary.BigEndian.Uint32(data) & (1<<24 - 1))
	}
}

package h2

import "encoding/binary"

// Pieces is a [Conversation] whose messages come in pieces, as they are read. The connection keeps none of
// them, so a message may have any size, and nobody has to ask for it by [Conn.Want].
type Pieces interface {
	Conversation
	// Piece brings the next bytes of a message, and says how many follow. They are valid until Piece
	// returns. Receive is never called.
	Piece(p []byte, follow int)
}

// Marker is a [Conversation] that [Conn.Mark] marks.
type Marker interface {
	// Marked says that the client has got what was sent before the mark.
	Marked(mark uint32)
}

// pieceWindow is what a client may send on a stream of [Pieces] before it is read.
const pieceWindow = 64 << 10

// pieces is how far the messages have come that come in pieces.
type pieces struct {
	Pieces
	prefix [prefixBytes]byte
	begun  uint8  // bytes of the prefix
	follow uint32 // of the message
}

// Compressed messages are refused: whoever inflates piece by piece has to keep a window of 32 KiB a stream.
var compressedPieces = Status{statusUnimplemented, "the messages of this method must not be compressed"}

// receivePieces hands over a part of a client's messages.
func (c *Conn) receivePieces(s *stream, p []byte) {
	t := &s.talk.pieces
	for len(p) > 0 && !s.talk.ended {
		if t.begun < prefixBytes {
			n := copy(t.prefix[t.begun:], p)
			t.begun, p = t.begun+uint8(n), p[n:] //nolint:gosec // at most prefixBytes
			if t.begun < prefixBytes {
				break
			}
			if t.prefix[0] != 0 {
				c.endMessages(s, compressedPieces)
				return
			}
			c.odd.give(oddActsPerCall) // a message is as good as a call
			t.follow = binary.BigEndian.Uint32(t.prefix[1:])
			if t.follow == 0 {
				t.begun = 0
				t.Piece(nil, 0)
			}
			continue
		}
		n := min(len(p), int(t.follow))
		t.follow -= uint32(n) //nolint:gosec // at most follow
		if t.follow == 0 {
			t.begun = 0
		}
		c.full -= n // what is done with a piece takes as long as to answer with as much
		t.Piece(p[:n], int(t.follow))
		p = p[n:]
	}
	switch {
	case s.talk.ended:
	case s.state == streamOpen:
		c.creditPieces(s)
	case t.begun > 0:
		c.endMessages(s, truncated)
	default:
		c.endMessages(s, Status{})
	}
}

// creditPieces opens the window of a stream, once half of it is used up.
func (c *Conn) creditPieces(s *stream) {
	if s.receiveWindow < pieceWindow/2 {
		c.out = appendWindowUpdate(c.out, s.id, uint32(pieceWindow-s.receiveWindow)) //nolint:gosec // at most two windows
		s.receiveWindow = pieceWindow
	}
}

// A mark's PING has this beside the mark and the stream's number, as none of our other PINGs does.
const markPing = 'm'

// Mark sends a PING behind all that [Conn.Send] was given so far, and has the conversation, which is a [Marker],
// told of its acknowledgement. If what was given has to wait for a window, so does the PING, and a later
// mark takes its place. A mark has 24 bits.
func (c *Conn) Mark(out []byte, id, mark uint32) []byte {
	return c.with(out, c.conversation(id), func(s *stream) {
		s.talk.mark, s.talk.marks = mark, true
		if s.waiting == nil {
			c.sendMark(s)
		}
	})
}

func (c *Conn) sendMark(s *stream) {
	if !s.talk.marks {
		return
	}
	s.talk.marks = false
	var data [pingBytes]byte
	binary.BigEndian.PutUint32(data[:], markPing<<24|s.talk.mark&(1<<24-1))
	binary.BigEndian.PutUint32(data[4:], s.id)
	c.out = c.ping(c.out, data[:])
}

// receiveMark takes in the acknowledgement of a mark.
func (c *Conn) receiveMark(data []byte) {
	s := c.conversation(binary.BigEndian.Uint32(data[4:]))
	if s == nil {
		return
	}
	if m, ok := s.talk.Conversation.(Marker); ok {
		m.Marked(binary.BigEndian.Uint32(data) & (1<<24 - 1))
	}
}

package guard

import "encoding/binary"

// Numbers of RFC 9113, sections 3.4, 4.1, 6 and 7.
const (
	prefaceBytes = 24
	headerBytes  = 9
	// codeBytes is the payload of an RST_STREAM and of a WINDOW_UPDATE.
	codeBytes = 4

	frameData         = 0
	frameHeaders      = 1
	frameRSTStream    = 3
	frameSettings     = 4
	frameGoAway       = 7
	frameWindowUpdate = 8
	frameContinuation = 9

	flagEndStream  = 1
	flagAck        = 1
	flagEndHeaders = 4

	codeNo            = 0
	codeRefusedStream = 7
	codeCancel        = 8
)

// frames finds the frames in one direction of a connection. The bytes come in pieces of any
// size. The zero value expects the beginning of a frame.
type frames struct {
	head [headerBytes + codeBytes]byte // a frame's header, and the payload of a short one
	have int                           // bytes of head
	skip int                           // bytes of payload still to pass over
}

// next reads p up to the end of the next frame's head, and reports whether that is in p. If so,
// f describes this frame until the next call, which gets rest.
func (f *frames) next(p []byte) (rest []byte, ok bool) {
	if f.have == f.need() {
		f.have = 0
	}
	n := min(f.skip, len(p))
	f.skip -= n
	p = p[n:]
	for len(p) > 0 {
		n := copy(f.head[f.have:f.need()], p)
		f.have += n
		p = p[n:]
		if f.have == f.need() {
			f.skip = f.length() - (f.have - headerBytes)
			return p, true
		}
	}
	return nil, false
}

// need is how many bytes of a frame f has to keep: its header, and a short payload.
func (f *frames) need() int {
	if f.have >= headerBytes && f.length() == codeBytes && (f.kind() == frameRSTStream || f.kind() == frameWindowUpdate) {
		return headerBytes + codeBytes
	}
	return headerBytes
}

// between reports whether another frame may come: all that began have ended, and so has a header block
// (RFC 9113, 4.3).
func (f *frames) between() bool {
	return f.skip == 0 && (f.have == 0 || f.have == f.need()) && !f.continues()
}

// continues reports whether a CONTINUATION must follow the newest frame.
func (f *frames) continues() bool {
	return (f.kind() == frameHeaders || f.kind() == frameContinuation) && !f.has(flagEndHeaders)
}

func (f *frames) length() int     { return int(f.head[0])<<16 | int(f.head[1])<<8 | int(f.head[2]) }
func (f *frames) kind() byte      { return f.head[3] }
func (f *frames) has(b byte) bool { return f.head[4]&b != 0 }
func (f *frames) stream() uint32  { return binary.BigEndian.Uint32(f.head[5:]) & (1<<31 - 1) }

// code is the payload of an RST_STREAM or a WINDOW_UPDATE that has the right length.
func (f *frames) code() uint32 { return binary.BigEndian.Uint32(f.head[headerBytes:]) }

package h2

import "encoding/binary"

// Preface is the connection preface of a client (3.4).
const Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

const (
	frameHeaderBytes = 9       // 4.1
	maxFrameBytes    = 1 << 14 // payload size; we neither allow nor send more (4.2)

	// MaxFrame is the size of the largest frame. A reader needs a buffer of that size.
	MaxFrame = frameHeaderBytes + maxFrameBytes
)

// frameType is the type of a frame (6).
type frameType byte

const (
	frameData         frameType = 0
	frameHeaders      frameType = 1
	framePriority     frameType = 2
	frameRSTStream    frameType = 3
	frameSettings     frameType = 4
	framePushPromise  frameType = 5
	framePing         frameType = 6
	frameGoAway       frameType = 7
	frameWindowUpdate frameType = 8
	frameContinuation frameType = 9
)

// Flags (6).
const (
	flagEndStream  = 0x1
	flagAck        = 0x1
	flagEndHeaders = 0x4
	flagPadded     = 0x8
	flagPriority   = 0x20
)

type frame struct {
	frameType
	flags   byte
	stream  uint32
	payload []byte
}

func (f *frame) has(flag byte) bool { return f.flags&flag != 0 }

// frameBytes returns the payload length from a frame's header.
func frameBytes(p []byte) int { return int(p[0])<<16 | int(p[1])<<8 | int(p[2]) }

// parseFrame parses a complete frame.
func parseFrame(p []byte) frame {
	return frame{frameType(p[3]), p[4], binary.BigEndian.Uint32(p[5:]) & (1<<31 - 1), p[frameHeaderBytes:]}
}

// unpad returns the payload without padding (6.1) and priority fields.
func (f *frame) unpad() ([]byte, error) {
	p := f.payload
	padding := 0
	if f.has(flagPadded) {
		if len(p) == 0 {
			return nil, &ConnError{CodeFrameSize, "a padded frame without the length of its padding"}
		}
		padding = int(p[0])
		p = p[1:]
	}
	if f.frameType == frameHeaders && f.has(flagPriority) {
		if len(p) < priorityBytes {
			return nil, &ConnError{CodeFrameSize, "a HEADERS frame too short for its priority"}
		}
		p = p[priorityBytes:]
	}
	if padding > len(p) {
		return nil, &ConnError{CodeProtocol, "more padding than payload"}
	}
	return p[:len(p)-padding], nil
}

// priorityBytes is the payload size of PRIORITY (6.3).
const priorityBytes = 5

// dependsOnItself reports whether priority fields name their own stream, an error in RFC 7540
// (5.3.1), which RFC 9113 no longer mentions.
func dependsOnItself(fields []byte, stream uint32) bool {
	return binary.BigEndian.Uint32(fields)&(1<<31-1) == stream
}

func appendFrameHeader(b []byte, length int, t frameType, flags byte, stream uint32) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(length)<<8|uint32(t)) //nolint:gosec // at most maxFrameBytes
	return binary.BigEndian.AppendUint32(append(b, flags), stream)
}

func appendRSTStream(b []byte, stream uint32, code Code) []byte {
	b = appendFrameHeader(b, 4, frameRSTStream, 0, stream)
	return binary.BigEndian.AppendUint32(b, uint32(code))
}

func appendWindowUpdate(b []byte, stream, increment uint32) []byte {
	b = appendFrameHeader(b, 4, frameWindowUpdate, 0, stream)
	return binary.BigEndian.AppendUint32(b, increment)
}

func appendPing(b []byte, flags byte, data []byte) []byte {
	return append(appendFrameHeader(b, pingBytes, framePing, flags, 0), data...)
}

// pingBytes is the payload size of PING (6.7).
const pingBytes = 8

func appendGoAway(b []byte, last uint32, code Code, reason string) []byte {
	b = appendFrameHeader(b, 8+len(reason), frameGoAway, 0, 0)
	b = binary.BigEndian.AppendUint32(b, last)
	b = binary.BigEndian.AppendUint32(b, uint32(code))
	return append(b, reason...)
}

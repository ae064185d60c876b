package h2

import (
	"time"
)

// Feed takes in what the client sent, and appends what it is to get. It takes used bytes of in. The
// rest must come again, before more: more says that whole frames are among it, otherwise it is the
// beginning of one. After an error, the connection must end; what was appended is still to be sent.
//
// Times must not go backwards.
func (c *Conn) Feed(out, in []byte, now time.Duration) (appended []byte, used int, more bool, err error) {
	c.out, c.now = out, now
	used, more, err = c.feed(in)
	appended, c.out = c.out, nil
	return appended, used, more, err
}

func (c *Conn) feed(in []byte) (used int, more bool, err error) {
	if c.stage == awaitsPreface {
		n := min(len(in), len(Preface))
		if string(in[:n]) != Preface[:n] {
			return 0, false, &ConnError{CodeProtocol, "no HTTP/2 preface"}
		}
		if n < len(Preface) {
			return 0, false, nil
		}
		used, c.stage = n, awaitsSettings
	}
	blocks := 0
	c.outputLimit = len(c.out) + maxBatchOutput
	for frames := 0; len(in)-used >= frameHeaderBytes; frames++ {
		n := frameBytes(in[used:])
		if n > maxFrameBytes {
			return used, false, &ConnError{CodeFrameSize, "a frame of more than 16 KiB"}
		}
		if n += frameHeaderBytes; len(in)-used < n {
			break
		}
		if frames == maxBatchFrames || len(c.out) >= c.outputLimit || blocks >= maxBatchBlockBytes {
			return used, true, nil
		}
		f := parseFrame(in[used : used+n])
		if f.frameType == frameHeaders || f.frameType == frameContinuation {
			blocks += len(f.payload)
		}
		used += n
		if err := c.receiveFrame(&f); err != nil {
			return used, false, err
		}
		if c.glitches.exceeded(c.now) {
			return used, false, &ConnError{CodeEnhanceYourCalm, "too many frames that ask for nothing, or calls that had to be reset"}
		}
	}
	return used, false, nil
}

// receiveFrame takes in a frame. An error ends the connection.
func (c *Conn) receiveFrame(f *frame) error {
	if c.stage == awaitsSettings {
		if f.frameType != frameSettings || f.has(flagAck) {
			return &ConnError{CodeProtocol, "the first frame is no SETTINGS"} // 3.4
		}
		c.stage = awaitsFrames
	}
	if c.block.stream != 0 && (f.frameType != frameContinuation || f.stream != c.block.stream) {
		return &ConnError{CodeProtocol, "a frame within a header block"} // 4.3
	}
	switch f.frameType {
	case frameData:
		return c.receiveData(f)
	case frameHeaders:
		return c.receiveHeaders(f)
	case frameContinuation:
		return c.receiveContinuation(f)
	case frameRSTStream:
		return c.receiveReset(f)
	case frameWindowUpdate:
		c.glitches.left--
		return c.receiveWindowUpdate(f)
	case frameSettings:
		return c.receiveSettings(f)
	case framePushPromise:
		return &ConnError{CodeProtocol, "PUSH_PROMISE of a client"} // 8.4
	case framePing:
		return c.receivePing(f)
	case frameGoAway:
		c.glitches.left--
		c.gotGoAway = true // which changes nothing: a client begins streams as it likes
		return checkGoAway(f)
	case framePriority:
		c.glitches.left--
		return c.receivePriority(f)
	default:
		c.glitches.left-- // 5.5: ignored
		return nil
	}
}

func checkGoAway(f *frame) error {
	switch {
	case f.stream != 0:
		return &ConnError{CodeProtocol, "GOAWAY on a stream"}
	case len(f.payload) < 8:
		return &ConnError{CodeFrameSize, "a GOAWAY of less than 8 bytes"}
	}
	return nil
}

// receivePriority ignores a deprecated frame (5.3.2, 6.3).
func (c *Conn) receivePriority(f *frame) error {
	switch {
	case f.stream == 0:
		return &ConnError{CodeProtocol, "PRIORITY on no stream"}
	// A stream that has not begun must not be reset (5.1).
	case len(f.payload) != priorityBytes && c.idle(f.stream):
		return &ConnError{CodeFrameSize, "a PRIORITY that has not 5 bytes"}
	case len(f.payload) != priorityBytes:
		c.resetForError(f.stream, CodeFrameSize)
	case dependsOnItself(f.payload, f.stream) && c.idle(f.stream):
		return &ConnError{CodeProtocol, "a PRIORITY that depends on itself"}
	case dependsOnItself(f.payload, f.stream):
		c.resetForError(f.stream, CodeProtocol)
	}
	return nil
}

// GoAway appends the end of a connection, for the error of a call of Feed.
func (c *Conn) GoAway(out []byte, err *ConnError) []byte {
	last := c.lastStream
	if c.drain.ignores(last) {
		last = c.drain.last // it must not grow (6.8)
	}
	return appendGoAway(out, last, err.Code, err.Reason)
}

// Close cancels the calls that were to be answered later. Nothing else may be called after it, except that
// it may be called again if a [Later] panicked, for the others.
func (c *Conn) Close() {
	c.send.queue = nil
	for id, s := range c.streams {
		later := s.pending
		delete(c.streams, id)
		s.recycle()
		if later != nil {
			later.Cancel()
		}
	}
}

// GotSettings reports whether the client's first SETTINGS have come.
func (c *Conn) GotSettings() bool { return c.stage == awaitsFrames }

// A call of Feed returns after framesAtOnce frames, blocksAtOnce bytes of header blocks, each of which
// may be a field, or once it has appended outputAtOnce bytes: others wait for the processor, and what was
// appended should go out. Two bytes that messages were decompressed to count as one that was appended.
const (
	maxBatchFrames     = 256
	maxBatchBlockBytes = 8 << 10
	maxBatchOutput     = 16 << 10
)

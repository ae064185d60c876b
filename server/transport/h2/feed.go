package h2

import (
	"time"
)

// Feed processes input and appends output. It processes the first used bytes of in; the rest must
// be passed again. If more is true, the rest has complete frames, otherwise it is an incomplete
// frame, which must be passed again together with further input. After an error the connection must
// be closed, after sending the output.
//
// Times must not decrease.
func (c *Conn) Feed(out, in []byte, now time.Duration) (appended []byte, used int, more bool, err error) {
	c.out = out
	c.now = now
	used, more, err = c.feed(in)
	appended = c.out
	c.out = nil
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
		used = n
		c.stage = awaitsSettings
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
			return used, false,
				&ConnError{CodeEnhanceYourCalm, "too many useless frames, or calls that had to be reset"}
		}
	}
	return used, false, nil
}

// receiveFrame processes a frame. An error closes the connection.
func (c *Conn) receiveFrame(f *frame) error {
	if c.stage == awaitsSettings {
		if f.frameType != frameSettings || f.has(flagAck) {
			return &ConnError{CodeProtocol, "the first frame is not SETTINGS"} // 3.4
		}
		c.stage = awaitsFrames
	}
	if c.block.stream != 0 && (f.frameType != frameContinuation || f.stream != c.block.stream) {
		return &ConnError{CodeProtocol, "a frame inside a header block"} // 4.3
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
		return &ConnError{CodeProtocol, "PUSH_PROMISE from a client"} // 8.4
	case framePing:
		return c.receivePing(f)
	case frameGoAway:
		c.glitches.left--
		c.gotGoAway = true // has no effect: a client may still open streams
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

// receivePriority checks a deprecated frame, which has no effect (5.3.2, 6.3).
func (c *Conn) receivePriority(f *frame) error {
	switch {
	case f.stream == 0:
		return &ConnError{CodeProtocol, "PRIORITY on stream 0"}
	// An idle stream must not be reset (5.1).
	case len(f.payload) != priorityBytes && c.idle(f.stream):
		return &ConnError{CodeFrameSize, "a PRIORITY whose payload is not 5 bytes"}
	case len(f.payload) != priorityBytes:
		c.resetForError(f.stream, CodeFrameSize)
	case dependsOnItself(f.payload, f.stream) && c.idle(f.stream):
		return &ConnError{CodeProtocol, "a PRIORITY that depends on itself"}
	case dependsOnItself(f.payload, f.stream):
		c.resetForError(f.stream, CodeProtocol)
	}
	return nil
}

// GoAway appends the GOAWAY for an error that Feed returned.
func (c *Conn) GoAway(out []byte, err *ConnError) []byte {
	last := c.lastStream
	if c.drain.ignores(last) {
		last = c.drain.last // it must not increase (6.8)
	}
	return appendGoAway(out, last, err.Code, err.Reason)
}

// Close cancels the pending calls. No other method may be called afterwards. If a [PendingCall]
// panicked, Close may be called again, for the remaining calls.
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

// GotSettings reports whether the client's first SETTINGS were received.
func (c *Conn) GotSettings() bool { return c.stage == awaitsFrames }

// Feed returns after maxBatchFrames frames, after maxBatchBlockBytes bytes of header blocks, each
// byte of which may be a field, or when it has appended maxBatchOutput bytes: other connections
// need CPU time, and the output should be sent.
const (
	maxBatchFrames     = 256
	maxBatchBlockBytes = 8 << 10
	maxBatchOutput     = 16 << 10
)

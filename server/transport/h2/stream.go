package h2

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// find returns an open stream, or nil.
func (c *Conn) find(id uint32) *stream {
	if c.newest.id == id {
		return &c.newest
	}
	return c.streams[id]
}

// OpenStreams returns the number of open streams.
func (c *Conn) OpenStreams() int {
	n := len(c.streams)
	if c.newest.id != 0 {
		n++
	}
	return n
}

// LastStream returns the highest stream number.
func (c *Conn) LastStream() uint32 { return c.lastStream }

// storeStream moves newest to streams, if s is newest. The returned stream does not move any more.
func (c *Conn) storeStream(s *stream) *stream {
	if s != &c.newest {
		return s
	}
	if c.streams == nil {
		c.streams = make(map[uint32]*stream)
	}
	moved := streams.Get().(*stream) //nolint:forcetypeassert // the pool has no other type
	*moved = c.newest
	c.newest = stream{}
	c.streams[moved.id] = moved
	c.peakStreams = max(c.peakStreams, len(c.streams))
	if moved.kept != nil {
		c.receive.buffered += moved.kept.bytes
	}
	return moved
}

// streams is a pool. Without it, a client that opens all streams and closes its connection, in a
// loop, would produce garbage faster than it is collected.
var streams = sync.Pool{New: func() any { return new(stream) }}

// recycle clears a stream and returns it to the pool.
func (s *stream) recycle() {
	*s = stream{}
	streams.Put(s)
}

// closeStream removes a stream. clientEnded is true if the client can send nothing more on it.
func (c *Conn) closeStream(s *stream, clientEnded bool) {
	c.closedStreams.add(s.id, clientEnded)
	if s == &c.newest {
		c.newest = stream{}
		return
	}
	delete(c.streams, s.id)
	c.dropBody(s)
	if s.kept != nil {
		c.receive.buffered -= s.kept.bytes
	}
	c.releaseSlot(s)
	if s.unsent != nil {
		c.dequeueReply(s)
	}
	s.recycle()
}

// reset sends RST_STREAM and closes the stream.
func (c *Conn) reset(s *stream, code Code) {
	c.out = appendRSTStream(c.out, s.id, code)
	c.notifyCanceled(s)
	c.closeStream(s, s.state != streamOpen)
}

// resetForError resets a stream, even one that is closed or was not opened, because of the client's
// error. The reset counts as a glitch, in addition to the frame, if that is one.
func (c *Conn) resetForError(id uint32, code Code) {
	c.glitches.left -= 1 + glitchesPerCall // takes back the credit for the call
	if s := c.find(id); s != nil {
		c.reset(s, code)
		return
	}
	c.out = appendRSTStream(c.out, id, code)
}

// receiveReset handles RST_STREAM (6.4).
func (c *Conn) receiveReset(f *frame) error {
	switch {
	case len(f.payload) != 4:
		return &ConnError{CodeFrameSize, "an RST_STREAM whose payload is not 4 bytes"}
	case c.idle(f.stream):
		return &ConnError{CodeProtocol, "RST_STREAM on an idle stream"}
	}
	// A reset of a closed stream is not a glitch, because the reply was on its way. But each stream
	// allows only one.
	if c.glitches.resets++; c.glitches.resets > c.glitches.opened {
		c.glitches.left--
	}
	s := c.find(f.stream)
	if s == nil {
		c.handler.Reset(f.stream)
		return nil
	}
	c.notifyCanceled(s)
	c.closeStream(s, true)
	return nil
}

// notifyCanceled notifies the handler that the client has canceled a call, or may not have seen the
// reply.
func (c *Conn) notifyCanceled(s *stream) {
	if s.pending != nil {
		s.pending.Cancel()
		return
	}
	c.handler.Reset(s.id)
}

// idle reports whether a stream was not opened (5.1). Streams with even numbers would be ours, and
// are never opened.
func (c *Conn) idle(id uint32) bool { return id > c.lastStream || id&1 == 0 }

const endStreamBit = 1 << 31

func (e *closedStreams) add(id uint32, client bool) {
	if client {
		id |= endStreamBit
	} else {
		e.openByClient++
	}
	e.ring[e.next%len(e.ring)] = id
	e.next++
}

// find reports whether a stream is remembered, and whether the client had ended it.
func (e *closedStreams) find(id uint32) (found, client bool) {
	for _, r := range e.ring {
		if r&^endStreamBit == id {
			return true, r&endStreamBit != 0
		}
	}
	return false, false
}

// sortedStreams returns the streams in the order of their numbers: output must not depend on the
// order of a map.
func (c *Conn) sortedStreams() []*stream {
	return slices.SortedFunc(maps.Values(c.streams), func(a, b *stream) int { return int(a.id) - int(b.id) })
}

// Time limits of a stream's client.
const (
	maxRequestTime = 5 * time.Second  // for the end of a request
	maxReplyTime   = 10 * time.Second // for a window
)

// ResetOverdue resets the streams that have reached a time limit or their deadline, and continues a
// drain. It should be called once a second.
func (c *Conn) ResetOverdue(out []byte, now time.Duration) []byte {
	c.out = out
	c.now = now
	if c.drain.step == drainNotified && now-c.drain.since >= drainPingTimeout {
		c.endDrain()
	}
	if s := &c.newest; s.id != 0 && s.overdue(now) {
		c.reset(s, CodeCancel)
	}
	if len(c.streams) > 0 {
		for _, s := range c.sortedStreams() {
			if s.overdue(now) {
				c.reset(s, CodeCancel)
			}
		}
	}
	out = c.out
	c.out = nil
	return out
}

func (s *stream) overdue(now time.Duration) bool {
	switch {
	case s.streaming != nil && !s.streaming.finished:
		return s.timed && now >= s.deadline ||
			s.streaming.wantsMessage && len(s.body) > 0 && now-s.requestStart >= maxRequestTime
	case s.unsent != nil:
		return now-s.unsentSince >= maxReplyTime
	case s.state != streamOpen:
		return false // the handler has not answered yet
	}
	return now-s.requestStart >= maxRequestTime || s.timed && now >= s.deadline
}

package h2

import (
	"maps"
	"slices"
	"sync"
)

// find returns an open stream, or nil.
func (c *Conn) find(id uint32) *stream {
	if c.newest.id == id {
		return &c.newest
	}
	return c.streams[id]
}

// OpenStreams returns how many calls are open.
func (c *Conn) OpenStreams() int {
	n := len(c.streams)
	if c.newest.id != 0 {
		n++
	}
	return n
}

// LastStream returns the number of the newest stream.
func (c *Conn) LastStream() uint32 { return c.lastStream }

// storeStream moves a stream to those that last. Pointers to it may be kept from then on.
func (c *Conn) storeStream(s *stream) *stream {
	if s != &c.newest {
		return s
	}
	if c.streams == nil {
		c.streams = make(map[uint32]*stream)
	}
	moved := streams.Get().(*stream) //nolint:forcetypeassert // it holds nothing else
	*moved = c.newest
	c.newest = stream{}
	c.streams[moved.id] = moved
	c.peakStreams = max(c.peakStreams, len(c.streams))
	if moved.kept != nil {
		c.receive.buffered += moved.kept.bytes
	}
	return moved
}

// streams are for use again, by any connection: one that opens all it may and goes away, again and
// again, would otherwise leave garbage faster than it is collected.
var streams = sync.Pool{New: func() any { return new(stream) }}

// recycle forgets what a stream held: a body that each of many streams kept would be memory that nobody
// counts.
func (s *stream) recycle() {
	*s = stream{}
	streams.Put(s)
}

// closeStream forgets a stream. clientEnded says that nothing more of it may come.
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

// reset ends a stream by a frame of ours.
func (c *Conn) reset(s *stream, code Code) {
	c.out = appendRSTStream(c.out, s.id, code)
	c.notifyCanceled(s)
	c.closeStream(s, s.state != streamOpen)
}

// resetForError resets a stream, which may have ended or not begun, because of what its client did. If that
// was a frame that is an odd act anyway, such as a PRIORITY of a wrong length, it is two: the frame, and
// the reset that it makes us send.
func (c *Conn) resetForError(id uint32, code Code) {
	c.glitches.left -= 1 + glitchesPerCall // it must not gain by the call's own credit
	if s := c.find(id); s != nil {
		c.reset(s, code)
		return
	}
	c.out = appendRSTStream(c.out, id, code)
}

// receiveReset takes in the end of a call that nobody waits for any more (6.4).
func (c *Conn) receiveReset(f *frame) error {
	switch {
	case len(f.payload) != 4:
		return &ConnError{CodeFrameSize, "an RST_STREAM that has not 4 bytes"}
	case c.idle(f.stream):
		return &ConnError{CodeProtocol, "RST_STREAM on a stream that has not begun"}
	}
	// A reset of a stream that has ended is no odd act, since the answer was on its way. But there is
	// at most one for each stream.
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

// notifyCanceled tells the handler that nobody waits for an answer any more, which may be on its way.
func (c *Conn) notifyCanceled(s *stream) {
	if s.pending != nil {
		s.pending.Cancel()
		return
	}
	c.handler.Reset(s.id)
}

// idle reports whether a stream has not begun. Streams with even numbers are ours, and never do.
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

// find returns whether a stream is remembered, and whether the client had ended it.
func (e *closedStreams) find(id uint32) (found, client bool) {
	for _, r := range e.ring {
		if r&^endStreamBit == id {
			return true, r&endStreamBit != 0
		}
	}
	return false, false
}

// sortedStreams returns the streams that last, in the order of their numbers: what a connection appends must
// not depend on a map's order.
func (c *Conn) sortedStreams() []*stream {
	return slices.SortedFunc(maps.Values(c.streams), func(a, b *stream) int { return int(a.id) - int(b.id) })
}
